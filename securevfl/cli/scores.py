"""Write scores as CSV: identifier, class probabilities or predicted number, and the parties whose columns were used."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path

from securevfl.report.printed_scores import print_score

__all__ = ["describe_answers", "describe_skipped", "format_figures", "scores_as_csv"]


def scores_as_csv(
    classes: Sequence[str],
    ids: Sequence[str],
    probabilities: Sequence[Sequence[float]],
    used: Sequence[Sequence[str]] | None = None,
    skipped: Sequence[str] = (),
) -> bytes:
    """Return the CSV file that `predict` writes.

    Args:
        classes: class names; a single name means a numeric target.
        ids: of the rows.
        probabilities: per row, one probability per class; for a numeric target the prediction, in its units.
        used: per row, the parties whose columns were used; None omits the column ``parties``.
        skipped: rows that were left out; they follow without a score.
    """
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    number = len(classes) == 1
    writer.writerow(["id", *classes, *([] if used is None else ["parties"])])
    for place, (name, row) in enumerate(zip(ids, probabilities, strict=True)):
        writer.writerow(
            [
                name,
                *(print_score(one, number=number) for one in row),
                *([] if used is None else [" ".join(used[place])]),
            ]
        )
    blank = [""] * (len(classes) + (used is not None))
    writer.writerows([name, *blank] for name in skipped)
    return text.getvalue().encode()


def describe_answers(kept: int, older: int, asked: int, numbers: int | None) -> str:
    """One line: how many rows were answered from what the asker holds, and how many were asked about, at what price.

    Args:
        kept: rows that were answered from the store.
        older: how many of these answers are from before a partner's table changed.
        asked: rows that were asked about.
        numbers: of each row that an answer costs; None where nobody counts them.
    """
    price = "numbers that nobody counts" if numbers is None else f"{numbers} number{'s' * (numbers != 1)} of each row"
    line = f"{kept:,} rows were answered from the store, {asked:,} were asked about" + (f": {price}" if asked else "")
    if not kept:
        return line
    changed = f"; {older:,} answers of the store are from before a partner's table changed" if older else ""
    return f"{line}{changed}. --ask-again asks about these as well, for {price}"


def describe_skipped(refused: Mapping[str, int], skipped: int, file: Path) -> str:
    """One line about rows that were left out.

    Args:
        refused: party → about how many of them it answers nothing more.
        skipped: how many were left out.
        file: where they are listed.
    """
    who = " and ".join(f"{name} ({count:,})" for name, count in sorted(refused.items()))
    return f"{skipped:,} rows were left out, about which {who} answers nothing more; {file} lists them without a score"


def format_figures(metrics: Mapping[str, float]) -> str:
    """Metrics in one line."""
    return ", ".join(f"{name} {value:.4f}" for name, value in metrics.items())
