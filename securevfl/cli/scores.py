"""Scores as CSV: a row's identifier, the probability of each class or the number predicted, and whose columns it was
scored from."""

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
    """The file that `predict` writes.

    Args:
        classes: their names; one name alone is that of a numeric target.
        ids: of the rows.
        probabilities: of each row, as many as there are classes; of a numeric target the prediction, in its units.
        used: of each row the parties whose columns it was scored from; None leaves the column ``parties`` out.
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
