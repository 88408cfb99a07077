"""Score rows by several sets of parties in turn: each row by the first set that has it.

The parties align once for each set, and rows that were scored take part no more. So each row is scored once, and no two
sums over different parties of one row are ever opened: their difference would be one party's part of it. The set
without passive parties is the active party alone, which sends nothing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from securevfl.data import FeatureEncoder, Parties, PartyTable
from securevfl.errors import FewCommonRows, NoCommonRows, RowsSpent
from securevfl.party import Alone, Job
from securevfl.party_context import Observer
from securevfl.privacy import Ledger, ResultBook
from securevfl.run.digests import data_digests
from securevfl.run.kept_answers import KeptAnswers
from securevfl.run.simulation import Aligned, align_parties, find_spent, predict_parties
from securevfl.training import Subsets

__all__ = ["Asking", "ScoringStep", "party_sets", "score_by_sets"]

Ledgers = Mapping[str, Mapping[str, Ledger]]


@dataclass(frozen=True, kw_only=True)
class ScoringStep:
    """Scores by one set of parties, with their cost.

    Attributes:
        parties: whose columns were used, the active party first.
        rows: the active party's numbers of the rows, (n,).
        probabilities: (n, classes).
        tells: what the alignment disclosed to whom, as text; empty if the active party scored alone.
        why: why nothing was scored; empty where something was.
        kept: how many rows were answered from what the active party holds.
        skipped: the active party's numbers of rows that were left out, because a party answers nothing more about them.
        refused: party → about how many of them.
        ledgers: run → party → ledger: of the alignment, where there was one, and of the prediction.
    """

    parties: tuple[str, ...]
    rows: np.ndarray = field(repr=False)
    probabilities: np.ndarray = field(repr=False)
    tells: str = ""
    why: str = ""
    kept: int = 0
    skipped: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64), repr=False)
    refused: Mapping[str, int] = field(default_factory=dict)
    ledgers: Ledgers = field(default_factory=dict)

    @property
    def messages(self) -> int:
        """Number of messages that all parties sent."""
        return sum(1 for _ in self._sent_entries())

    @property
    def bytes(self) -> int:
        """Number of bytes that all parties sent."""
        return sum(self._sent_entries())

    def _sent_entries(self) -> Iterator[int]:
        for ledgers in self.ledgers.values():
            for ledger in ledgers.values():
                yield from (entry.bytes for entry in ledger.entries if entry.way == "sent")


@dataclass(frozen=True, kw_only=True)
class Asking:
    """What a prediction asks about.

    Attributes:
        answers: folder of the answers that the active party holds; None to hold none.
        model: digest of the model that they are of.
        again: whether to ask about rows whose answers it holds, too.
        skip_spent: whether to leave out the rows about which a party answers nothing more.
    """

    answers: Path | None = None
    model: str = ""
    again: bool = False
    skip_spent: bool = False

    def open_answers(self, parties: Sequence[str], tables: Mapping[str, PartyTable]) -> KeptAnswers | None:
        """The answers of these parties' columns; None to hold none.

        Args:
            parties: names of those that score, the active party first.
            tables: their tables.
        """
        if self.answers is None:
            return None
        model = hashlib.sha256("\n".join((self.model, *parties)).encode()).hexdigest()
        return KeptAnswers(self.answers, model, [data_digests(tables[name], {})["table"] for name in parties[1:]])


def party_sets(subsets: Subsets, passive: Sequence[str]) -> list[tuple[str, ...]]:
    """The sets of passive parties that together score every row of the active party, the largest first.

    Args:
        subsets: see `Algorithm.subsets`; not ``"all"``.
        passive: names of all passive parties.
    """
    sizes = range(len(passive), 0, -1) if subsets == "any" else [len(passive)] * bool(passive)
    return [*(chosen for size in sizes for chosen in combinations(passive, size)), ()]


def score_by_sets(
    job: Job,
    parts: Mapping[str, Mapping[str, Any]],
    parties: Parties,
    sets: Iterable[Sequence[str]],
    *,
    aligned: Aligned | None = None,
    observers: Mapping[str, Observer] | None = None,
    results: Mapping[str, ResultBook] | None = None,
    asking: Asking | None = None,
) -> Iterator[ScoringStep]:
    """Score rows by each set in turn: those that no earlier set scored.

    Args:
        job: that trained the model.
        parts: party → its part of the model; of all that it was trained with.
        parties: their tables.
        sets: of passive parties; an empty one for the active party alone.
        aligned: an alignment of all these tables to use again, for the first set.
        observers: party → receiver of its events.
        results: party → its result book.
        asking: what to ask about; about all rows unless given.

    Yields:
        A step for each set; one of a single set that has no common rows raises instead.

    Raises:
        SecureVFLError: alignment or scoring failed.
    """
    active, chosen = parties.active.name, [tuple(one) for one in sets]
    among = tuple(map(str, parts[active].get("passive", sorted(set(parts) - {active}))))
    left = {name: np.arange(table.rows) for name, table in parties.items()}
    for number, present in enumerate(chosen):
        names = (active, *present)
        whole = all(len(left[name]) == parties[name].rows for name in names)
        tables = {name: parties[name] if whole else parties[name].take(left[name]) for name in names}
        if not present:
            yield _score_alone(job, parts[active], parties, left[active])
            continue
        if any(not len(left[name]) for name in names):
            continue
        some = Parties(tables, active=active)
        mine = job.replace(policies={name: policy for name, policy in job.policies.items() if name in names})
        title = "" if set(present) == set(among) else f" with {', '.join(present)}"
        told = _reveals_membership(active, present, among)
        try:
            found = (None if number else aligned) or align_parties(
                some, mine, run=f"alignment{title}", among=among, predicts=True
            )
        except (NoCommonRows, FewCommonRows) as error:
            if len(chosen) == 1:
                raise
            wide = len(parts[active]["names"])
            ledgers = {f"alignment{title}": {ledger.party: ledger for ledger in error.ledgers}}
            yield ScoringStep(
                parties=names,
                rows=left[active][:0],
                probabilities=np.empty((0, wide)),
                tells=told,
                why=str(error),
                ledgers=ledgers,
            )
            continue
        numbers = {name: left[name][found.parties[name].rows] for name in names}
        left |= {name: np.setdiff1d(left[name], rows) for name, rows in numbers.items()}
        yield _score_together(
            mine,
            some,
            found,
            {name: part for name, part in parts.items() if name in names or name not in (active, *among)},
            ScoringStep(
                parties=names,
                rows=numbers[active],
                probabilities=np.empty((0, 0)),
                tells=told,
                ledgers={f"alignment{title}": found.ledgers},
            ),
            asking or Asking(),
            run=f"predict{title}",
            observers=observers,
            among=among,
            results=results,
        )


def _score_together(
    job: Job,
    parties: Parties,
    aligned: Aligned,
    parts: Mapping[str, Mapping[str, Any]],
    step: ScoringStep,
    asking: Asking,
    *,
    run: str,
    **options: Any,
) -> ScoringStep:
    """Score aligned rows: from the answers that the active party holds, and by asking about the others."""
    active, count = parties.active, aligned.common_rows
    kept = asking.open_answers(step.parties, parties)
    keys: list[str] = []
    found: dict[int, np.ndarray] = {}
    if kept is not None:
        rows = aligned.parties[active.name].rows
        own = FeatureEncoder.from_state(parts[active.name]["encoder"]).transform(active, rows)
        keys = kept.row_keys(active.ids_of(rows), own)
        if not asking.again:
            held = {place: kept.get(key, current=True) for place, key in enumerate(keys)}
            found = {place: one.values for place, one in held.items() if one is not None}
    ask = np.array([place for place in range(count) if place not in found], np.int64)
    refused, spent = _find_spent_rows(job, parties, aligned, parts, ask, options)
    if len(spent) and not asking.skip_spent:
        raise RowsSpent(refused, spent=len(spent), rows=count)
    ask = np.setdiff1d(ask, spent)
    scores, said = np.empty((0, 0)), dict[str, Ledger]()
    if len(ask):
        scores, said = predict_parties(job, parties, aligned.take(ask), parts, run=run, **options)
        if kept is not None:
            kept.put([keys[place] for place in ask.tolist()], scores)
    answered = len(found)
    found |= zip(ask.tolist(), scores, strict=True)
    places = sorted(found)
    return replace(
        step,
        rows=step.rows[places],
        probabilities=np.array([found[place] for place in places]).reshape(-1, len(parts[active.name]["names"])),
        kept=answered,
        skipped=step.rows[spent],
        refused=refused,
        ledgers={**step.ledgers, **({run: said} if said else {})},
    )


def _find_spent_rows(
    job: Job,
    parties: Parties,
    aligned: Aligned,
    parts: Mapping[str, Mapping[str, Any]],
    ask: np.ndarray,
    options: Mapping[str, Any],
) -> tuple[dict[str, int], np.ndarray]:
    """Party → about how many of these aligned rows, (n,) positions, it answers nothing more; and which rows."""
    some = aligned.take(ask)
    among, results = options.get("among", ()), options.get("results")
    found = find_spent(job, parties, some, parts, among=among, results=results) if len(ask) else {}
    spent = np.zeros(len(ask), bool)
    for flags in found.values():
        spent |= flags
    return {name: int(flags.sum()) for name, flags in found.items()}, ask[spent]


def _score_alone(job: Job, part: Mapping[str, Any], parties: Parties, rows: np.ndarray) -> ScoringStep:
    alone = Alone(parties.active, job, part, run="predict alone")
    scores = alone.scores(rows)
    alone.ledger.close("done")
    name = parties.active.name
    return ScoringStep(
        parties=(name,), rows=rows, probabilities=scores, ledgers={"predict alone": {name: alone.ledger}}
    )


def _reveals_membership(active: str, present: Sequence[str], among: Sequence[str]) -> str:
    if set(present) == set(among):
        return "all parties learn which of their rows are common to all"
    without = ", ".join(name for name in among if name not in present)
    who = " and ".join(present)
    return (
        f"{active} learns which of its rows {who} ha{'s' if len(present) == 1 else 've'} and {without} lack "
        f"or did not disclose; {who} learn{'s' * (len(present) == 1)} the same of their rows"
    )
