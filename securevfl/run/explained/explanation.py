"""Explained scores: what each party added, each party's own reasons, and how the two are written to files."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
from securevfl_net.durable import make_folder, write_atomic

from securevfl.data.column_terms import Direction, PartyTerms, Reason, find_reasons
from securevfl.errors import UnknownNameError
from securevfl.report.importance import ImportanceRecord, PartyImportance
from securevfl.report.printed_scores import print_score
from securevfl.run.frames import frame_of

if TYPE_CHECKING:
    from pandas import DataFrame

__all__ = ["Explanation", "reasons_as_csv"]


@dataclass(frozen=True, kw_only=True, repr=False)
class Explanation:
    """Explained scores of some rows.

    In each row, `baseline` and the row of `totals` add up to `sums`.

    Attributes:
        method: ``"terms"``: exact, because the model is a sum; ``"shapley"``: values of `run.explained.coalitions`.
        title: of the job.
        ids: the active party's identifiers of the rows.
        output: name of the class whose score is explained; empty for a number.
        unit: of `sums`, `baseline` and `totals`.
        scores: of these rows as `predict` returns them, (n,).
        sums: what is explained, (n,): the score, or the model's sum before it becomes a probability.
        baseline: of an average row.
        players: parties; ``"a + b"`` where what is opened does not tell the two apart.
        totals: what each of them adds, less its mean, (n, players). The active party may see these.
        own: party → terms of its own columns, for this party alone; without the parties that cannot see them.
        place: of the explained class among the outputs of `own`.
        why: why `method` is not ``"terms"``; empty where it is.
        background: how many persons a row was compared with; 0 for terms.
        answers: passive party → most answers that one of its rows took part in; empty for terms, which open none.
    """

    method: Literal["terms", "shapley"]
    title: str
    ids: Sequence[str]
    output: str
    unit: str
    scores: np.ndarray = field(repr=False)
    sums: np.ndarray = field(repr=False)
    baseline: float
    players: tuple[str, ...]
    totals: np.ndarray = field(repr=False)
    own: Mapping[str, PartyTerms] = field(default_factory=dict, repr=False)
    place: int = 0
    why: str = ""
    background: int = 0
    answers: Mapping[str, int] = field(default_factory=dict)

    def __repr__(self) -> str:
        how = "exact terms" if self.method == "terms" else f"Shapley values against {self.background} persons"
        what = f"{self.output!r}" if self.output else "a number"
        return f"Explanation({len(self.ids):,} rows of {what}, {how}; {', '.join(self.players)})"

    @property
    def importance(self) -> dict[str, float]:
        """Party → the mean magnitude of what it adds over these rows, the largest first."""
        sizes = np.abs(self.totals).mean(axis=0) if len(self.totals) else np.zeros(len(self.players))
        return dict(sorted(zip(self.players, sizes.tolist(), strict=True), key=lambda one: -one[1]))

    def columns_of(self, party: str) -> dict[str, float]:
        """A party's column → the mean magnitude of its term over these rows, the largest first; for this party alone.

        Raises:
            UnknownNameError: a party without terms of its own.
        """
        return self._terms_of(party).importance(self.place)

    def reasons(self, party: str, *, most: int = 3, direction: Direction = "down") -> dict[str, list[Reason]]:
        """The columns of one party that move each row's score most, the strongest first; for this party alone.

        Args:
            party: its name.
            most: how many of each row.
            direction: ``"down"``, ``"up"`` or ``"both"``.

        Raises:
            UnknownNameError: a party without terms of its own.
        """
        terms = self._terms_of(party)
        return {
            name: find_reasons(terms, row, most=most, direction=direction, output=self.place)
            for row, name in enumerate(self.ids)
        }

    def _terms_of(self, party: str) -> PartyTerms:
        if party not in self.own:
            raise UnknownNameError("party that sees terms of its columns", party, self.own)
        return self.own[party]

    def to_pandas(self) -> DataFrame:
        """One row for each explained row: its score, what is explained, the baseline, and what each party adds.

        Raises:
            InputError: pandas is not installed.
        """
        rows = [
            {"score": score, "explained": value, "baseline": self.baseline, **dict(zip(self.players, row, strict=True))}
            for score, value, row in zip(self.scores.tolist(), self.sums.tolist(), self.totals.tolist(), strict=True)
        ]
        return frame_of(rows, list(self.ids), "id")

    def record(self) -> ImportanceRecord:
        """The global importance of parties and of their columns over these rows, for the report."""
        return ImportanceRecord(
            method=self.method,
            rows=len(self.ids),
            output=self.output,
            unit=self.unit,
            background=self.background,
            parties=[
                PartyImportance(party=name, importance=size, columns=self.columns_of(name) if name in self.own else {})
                for name, size in self.importance.items()
            ],
            others=[
                PartyImportance(party=name, importance=None, columns=self.columns_of(name))
                for name in self.own
                if name not in self.players
            ],
        )

    def write(self, file: str | Path, *, most: int = 3, direction: Direction = "down") -> list[Path]:
        """Write the active party's file, with totals of parties alone, and beside it ``<name>.<party>.csv`` for each
        party that sees terms of its own columns. Hand each party its own file and no other.

        Args:
            file: the active party's, CSV.
            most: reasons of each row in the parties' files.
            direction: see `reasons`.

        Returns:
            The files that were written.

        Raises:
            OSError: one cannot be written.
        """
        target = Path(file)
        make_folder(target.parent)
        text = io.StringIO(newline="")
        writer = csv.writer(text)
        writer.writerow(["id", "score", "explained", "baseline", *self.players])
        for name, score, value, row in zip(
            self.ids, self.scores.tolist(), self.sums.tolist(), self.totals.tolist(), strict=True
        ):
            shown = print_score(score, number=not self.output)
            writer.writerow([name, shown, *(f"{one:.6g}" for one in (value, self.baseline, *row))])
        write_atomic(target, text.getvalue().encode(), private=True)
        found = [target]
        for party, terms in self.own.items():
            place = target.with_name(f"{target.stem}.{party}{target.suffix or '.csv'}")
            content = reasons_as_csv(self.reasons(party, most=most, direction=direction), terms)
            write_atomic(place, content, private=True)
            found.append(place)
        return found


def reasons_as_csv(reasons: Mapping[str, Sequence[Reason]], terms: PartyTerms) -> bytes:
    """A party's file of reasons: identifier, rank, column, value, contribution, and points where the model has them.

    Args:
        reasons: person → reasons.
        terms: that they are of.
    """
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow(["id", "rank", "column", "value", f"adds ({terms.unit})", *(["points"] if terms.points else [])])
    for name, found in reasons.items():
        for rank, one in enumerate(found, 1):
            points = [f"{terms.points * one.term:.1f}"] if terms.points else []
            writer.writerow([name, rank, one.column, one.value, f"{one.term:.6g}", *points])
    return text.getvalue().encode()
