"""Write scores as CSV: identifier, class probabilities or predicted number, and the parties whose columns were used."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence

__all__ = ["scores_as_csv"]


def scores_as_csv(
    classes: Sequence[str],
    ids: Sequence[str],
    probabilities: Sequence[Sequence[float]],
    used: Sequence[Sequence[str]] | None = None,
) -> bytes:
    """Return the CSV file that `predict` writes.

    Args:
        classes: class names; a single name means a numeric target.
        ids: of the rows.
        probabilities: per row, one probability per class; for a numeric target the prediction, in its units.
        used: per row, the parties whose columns were used; None omits the column ``parties``.
    """
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    digits = ".10g" if len(classes) == 1 else ".6f"
    writer.writerow(["id", *classes, *([] if used is None else ["parties"])])
    for place, (name, row) in enumerate(zip(ids, probabilities, strict=True)):
        writer.writerow(
            [name, *(format(value, digits) for value in row), *([] if used is None else [" ".join(used[place])])]
        )
    return text.getvalue().encode()
