"""The result of a run or a comparison: its record, ledgers and test scores, and ways to show them."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import numpy as np
from securevfl_net.durable import write_atomic

from securevfl.errors import InputError, UnknownNameError
from securevfl.privacy import Ledger, Ledgers, PublicSigningKey
from securevfl.report import (
    Card,
    Evaluation,
    Plots,
    Record,
    RunRecord,
    Shown,
    comparison_table,
    make_cards,
    receipt_table,
    render_text,
    run_line,
    table_html,
    worst_lines,
    write_report,
)
from securevfl.report.printed_scores import print_score
from securevfl.run.frames import What, epochs_frame, runs_frame, scores_frame
from securevfl.run.model import Model
from securevfl.run.run_files import chain_digests, sha256, write_ledgers

if TYPE_CHECKING:
    from pandas import DataFrame

__all__ = ["Result"]


@dataclass(frozen=True, kw_only=True, repr=False)
class Result:
    """A finished run.

    Attributes:
        record: all figures, as in `metrics.json`.
        ledgers: run → party → ledger.
        scores: run → probabilities of the test rows, (n, classes).
        test_ids: the active party's identifiers of the test rows, in the order of `scores`.
        models: run → what was learned, for `predict`.
        signing: what opened the ledgers, with the parties' keys.
    """

    record: Record
    ledgers: Mapping[str, Mapping[str, Ledger]]
    scores: Mapping[str, np.ndarray] = field(repr=False)
    test_ids: Sequence[str]
    models: dict[str, Model] = field(default_factory=dict)
    signing: Ledgers = field(default_factory=Ledgers, repr=False, compare=False)

    def __reduce__(self) -> NoReturn:
        raise InputError(
            "a result is not pickled or copied: it contains the parties' signing keys and identifiers of the "
            "test rows. Save it with result.report(FOLDER), its models with result.model().save(FOLDER)"
        )

    @property
    def keys(self) -> Mapping[str, PublicSigningKey]:
        """Party → the public key that its ledgers are signed with."""
        return self.signing.keys

    def model(self, key: str | None = None) -> Model:
        """The model of one run (by default the last one).

        Raises:
            UnknownNameError: no job has this key; baselines leave no model.
            InputError: the jobs computed statistics of columns, and trained none.
        """
        if not self.models and any(run.statistics is not None for run in self.record.runs):
            raise InputError("statistics of columns leave no model: they are in result.record.runs[-1].statistics")
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

    @property
    def evaluation(self) -> Evaluation:
        """The test rows of the last run beyond its metrics: per class, confusion, calibration, lift, stability.
        `run(key).evaluation` has that of another run.

        Raises:
            InputError: no run scored test rows.
        """
        for run in reversed(self.record.runs):
            if run.evaluation is not None:
                return run.evaluation
        raise InputError("no run scored test rows, so there is nothing to evaluate")

    @property
    def card(self) -> Card:
        """Worst case: who could read what of whose data in the first job. The report opens with this card; `cards` has
        those of all jobs.

        Raises:
            InputError: no run had two parties.
        """
        found = self.cards
        if not found:
            raise InputError("no run had two parties, so no party could read another's data and there is no card")
        return next(iter(found.values()))

    @property
    def cards(self) -> dict[str, Card]:
        """Run → its card; baselines have no card."""
        return make_cards(self.record)

    @property
    def plot(self) -> Plots:
        """Curves of the test rows on matplotlib's axes: `roc()`, `calibration()`, `loss()`, `confusion()`, `lift()`."""
        return Plots(self.record)

    def __repr__(self) -> str:
        title = self.record.title
        lines = [f"Result({title!r}, {len(self.test_ids):,} test rows)", *map(run_line, self.record.runs)]
        return "\n  ".join([*lines, *worst_lines(self.record)])

    def _repr_html_(self) -> str:
        worst = "".join(f"<div>{escape(line)}</div>" for line in worst_lines(self.record))
        return f"<div>{table_html(comparison_table(self.record))}{worst}</div>"

    def to_pandas(self, what: What = "runs") -> DataFrame:
        """The figures as a DataFrame.

        Args:
            what: ``"runs"``, one row a run with its metrics on the test rows; ``"epochs"``, one row an epoch; or
                ``"scores"``, one row for each test row of the active party, by its identifier.

        Raises:
            InputError: `what` is unknown, or pandas is not installed.
        """
        if what == "runs":
            return runs_frame(self.record)
        if what == "epochs":
            return epochs_frame(self.record)
        if what != "scores":
            raise InputError(f"what is {what!r}; give 'runs', 'epochs' or 'scores'")
        found = next((run.evaluation for run in reversed(self.record.runs) if run.evaluation is not None), None)
        return scores_frame(self.test_ids, [] if found is None else found.classes, self.scores)

    def table(self, width: int = 110) -> Shown:
        """The comparison as text; a table where a notebook shows it."""
        table = comparison_table(self.record)
        return Shown(render_text(table, width=width), table_html(table))

    def receipt(self, key: str | None = None, width: int = 110) -> Shown:
        """The protection receipt of one run (the last one unless named) as text; a table where a notebook shows it."""
        table = receipt_table(self.run(key or self.record.runs[-1].key))
        return Shown(render_text(table, width=width), table_html(table))

    def report(self, folder: str | Path) -> Path:
        """Write `ledgers/`, `scores.csv`, `metrics.json` and `report.html` to `folder`, in this order, each whole or
        not at all; returns the page's path.

        The last chain of each party's ledger contains the digests of `metrics.json` and `scores.csv`.

        Raises:
            InputError: the page could not be written; everything else was.
            OSError: something else could not be written; what comes before it was.
        """
        target = Path(folder)
        ledgers = [ledger for parties in self.ledgers.values() for ledger in parties.values()]
        scores = self._format_scores()
        digests = {"metrics.json": sha256(self.record.to_json()), "scores.csv": sha256(scores)}
        write_ledgers([*ledgers, *chain_digests(self.signing, digests)], target)
        write_atomic(target / "scores.csv", scores, private=True)
        return write_report(self.record, target)

    def _format_scores(self) -> bytes:
        """The active party's test rows as CSV: under each run the probability of every class, ``RUN: CLASS``, or the
        number that was predicted, ``RUN``."""
        text = io.StringIO(newline="")
        writer = csv.writer(text)
        head = ["id"]
        for key, scores in self.scores.items():
            found = self.run(key).evaluation
            classes = [] if found is None else found.classes
            if len(classes) != scores.shape[1]:
                classes = [str(k) for k in range(scores.shape[1])]
            head += [key] if scores.shape[1] == 1 else [f"{key}: {name}" for name in classes]
        writer.writerow(head)
        for i, name in enumerate(self.test_ids):
            writer.writerow(
                [name, *(print_score(v, number=s.shape[1] == 1) for s in self.scores.values() for v in s[i].tolist())]
            )
        return text.getvalue().encode()
