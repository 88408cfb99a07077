"""What a run or a comparison gives back: its record, its ledgers, the test scores, and ways to show them."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from securevfl.durable import make_folder, write_whole
from securevfl.errors import UnknownNameError
from securevfl.jobs.model import Model
from securevfl.privacy import Ledger
from securevfl.report import Record, RunRecord, comparison_table, receipt_table, render_text, write

__all__ = ["LEDGER", "Result", "write_ledgers"]

LEDGER = "ledger.jsonl"
"""File name of the ledgers in a run's folder: the chains of all parties and runs, one after the other."""


@dataclass(frozen=True, kw_only=True)
class Result:
    """A finished run.

    Attributes:
        record: all figures, as in `metrics.json`.
        ledgers: run → party → ledger.
        scores: run → probabilities of the test rows, (n, classes).
        test_ids: the active party's identifiers of the test rows, in the order of `scores`.
        models: run → what was learned, for `predict`.
    """

    record: Record
    ledgers: Mapping[str, Mapping[str, Ledger]]
    scores: Mapping[str, np.ndarray]
    test_ids: Sequence[str]
    models: dict[str, Model] = field(default_factory=dict)

    def model(self, key: str | None = None) -> Model:
        """What one run learned (the last one unless named).

        Raises:
            UnknownNameError: no job has this key; baselines leave no model.
        """
        name = key or next(reversed(self.models), "")
        if name not in self.models:
            raise UnknownNameError("model", name, self.models)
        return self.models[name]

    def run(self, key: str) -> RunRecord:
        """The figures of one run.

        Raises:
            UnknownNameError: no run has this key.
        """
        for run in self.record.runs:
            if run.key == key:
                return run
        raise UnknownNameError("run", key, [run.key for run in self.record.runs])

    def table(self, width: int = 110) -> str:
        """The comparison as text."""
        return render_text(comparison_table(self.record), width=width)

    def receipt(self, key: str | None = None, width: int = 110) -> str:
        """The protection receipt of one run (the last one unless named) as text."""
        return render_text(receipt_table(self.run(key or self.record.runs[-1].key)), width=width)

    def report(self, folder: str | Path) -> Path:
        """Write `ledger.jsonl`, `scores.csv`, `metrics.json` and `report.html` to `folder`, in this order, each whole
        or not at all; returns the page's path.

        Raises:
            InputError: the page could not be written; everything else was.
            OSError: something else could not be written; what comes before it was.
        """
        target = Path(folder)
        write_ledgers([ledger for parties in self.ledgers.values() for ledger in parties.values()], target)
        self._write_scores(target / "scores.csv")
        return write(self.record, target)

    def _write_scores(self, path: Path) -> None:
        """The active party's test rows with the probability of the last class under each run."""
        text = io.StringIO(newline="")
        writer = csv.writer(text)
        writer.writerow(["id", *self.scores])
        for i, name in enumerate(self.test_ids):
            writer.writerow([name, *(f"{scores[i, -1]:.6f}" for scores in self.scores.values())])
        write_whole(path, text.getvalue().encode())


def write_ledgers(ledgers: Sequence[Ledger], folder: Path) -> Path:
    """Write chains to `folder`, one after the other; returns the file's path."""
    make_folder(folder)
    write_whole(folder / LEDGER, b"".join(ledger.to_jsonl() for ledger in ledgers))
    return folder / LEDGER
