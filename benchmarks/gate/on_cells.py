"""Cells whose jobs deal bins on shares, trees and scorecards: what a computing party received by row, and what it
received where sums by bin are computed, which in the clear give away a partner's cells and the labels of its bins.

Both attacks of the sums are tried twice, in the same code. *With what one party received* they have to be guessing,
also where the attacker is granted each row's gradients and node, which it does not have. *With what two parties have
together* they have to succeed: the positive control.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import numpy as np
from securevfl_crypto.replicated import Share

from benchmarks.gate.on_shares import Sights, Wiretap, shares_of
from benchmarks.gate.on_trees import guess_cells, solve_cells
from securevfl.attacks import PartyView
from securevfl.shares.scorecard import course as card_course
from securevfl.shares.trees import growing

__all__ = ["Summed", "read_counts", "solve_sums", "sort_rows", "watch"]

_MOST = 12
"""Messages with rows of one round of trees, or of one batch, that attacks are given."""
_WIDEST = 96
_SURE = 5.0
"""Deviations that a correlation of chance exceeds once in two million, on Fisher's scale."""


@dataclass(frozen=True)
class Step:
    """One party's part of a step that adds up by bin.

    Attributes:
        by: what is added up, (k, n): g and h of each node, or labels.
        sums: (k, cells).
        heard: places of the messages that it received meanwhile.
    """

    by: Share
    sums: Share
    heard: slice


@dataclass
class Summed:
    """Steps that add up by bin.

    Attributes:
        steps: computing party → its steps.
        begun: computing party → how many messages it had when each round of trees, or the counting, began.
    """

    steps: dict[str, list[Step]] = field(default_factory=lambda: defaultdict(list))
    begun: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))


@contextmanager
def watch(tap: Wiretap, computing: Sequence[str]) -> Iterator[Summed]:
    """Record where the jobs inside add up by bin.

    Args:
        tap: hears all parties.
        computing: names of the three, in order.
    """
    found = Summed()
    sum_cells, count = growing._Growth._sum_cells, card_course.count_positives

    async def summed(self: Any, totals: Share) -> Share:
        party, first = computing[self.engine.index], self.sums is None
        start = len(tap.heard_by[party])
        if first:
            found.begun[party].append(start)
        lefts = self.members[:2] if first else self.members[:2, 0::2]
        bits = await sum_cells(self, totals)
        sums = self.sums if first else self.sums[:, 0::2]
        by, sums = (one.reshape(-1, one.shape[-1]) for one in (lefts, sums))
        found.steps[party].append(Step(by, sums, slice(start, len(tap.heard_by[party]))))
        return bits

    async def counted(engine: Any, cells: list[Share], targets: list[Share]) -> Share:
        party = computing[engine.index]
        start = len(tap.heard_by[party])
        found.begun[party].append(start)
        positives = await count(engine, cells, targets)
        labels = Share(*(np.concatenate([getattr(one, side) for one in targets]).T for side in ("mine", "next")))
        found.steps[party].append(Step(labels, positives[None], slice(start, len(tap.heard_by[party]))))
        return positives

    with (
        mock.patch.object(growing._Growth, "_sum_cells", summed),
        mock.patch.object(card_course, "count_positives", counted),
    ):
        yield found


def _open(one: Share, other: Share) -> np.ndarray:
    """What a party and the next one know together, as signed words, float64."""
    return (one.mine + one.next + other.next).view(np.int64).astype(np.float64)


def _guesses(tap: Wiretap, party: str, step: Step) -> Iterator[np.ndarray]:
    """What a party can take for the sums of a step, (k, cells): each message that it received meanwhile, and all of
    them and its own two summands together."""
    k, cells = step.sums.shape
    heard = [
        np.asarray(message.arrays["1"])[-k * cells :].reshape(cells, k).T
        for _, message in tap.heard_by[party][step.heard]
        if message.what == "shares/round" and np.asarray(message.arrays.get("1", ())).size >= k * cells
    ]
    own = step.sums.mine + step.sums.next
    for words in (own, *heard, sum(heard, own)):
        yield (
            words.view(np.int64).astype(np.float64)
            if words.flags.c_contiguous
            else np.ascontiguousarray(words).view(np.int64).astype(np.float64)
        )


def solve_sums(
    tap: Wiretap, found: Summed, computing: Sequence[str], codes: np.ndarray, counts: Sequence[int], theirs: slice
) -> tuple[float, float, float]:
    """Solve the equations that the active party has of its partners' cells in the clear.

    Args:
        tap: heard all parties.
        found: what they added up.
        computing: names of the three, the active party first.
        codes: cells of the rows that train, (n, columns), of all parties.
        counts: cells of each column.
        theirs: the partners' columns.

    Returns:
        Share of the partners' cells that are right: by what the active party received, granted each row's gradients and
        node; by guessing; by what it and the next party have together.
    """
    first, second = (found.steps[name] for name in computing[:2])
    ends = np.cumsum([0, *counts])
    cells = slice(int(ends[theirs.start]), int(ends[-1]))
    truth, wanted = codes[:, theirs], list(counts)[theirs]
    known = [row for one, other in zip(first, second, strict=True) for row in _open(one.by, other.by)]
    opened = [row[cells] for one, other in zip(first, second, strict=True) for row in _open(one.sums, other.sums)]
    tried = []
    for variant in zip(*(list(_guesses(tap, computing[0], step)) for step in first), strict=False):
        tried.append(solve_cells(known, [row[cells] for sums in variant for row in sums], truth, wanted))
    return max(tried), guess_cells(truth), solve_cells(known, opened, truth, wanted)


def read_counts(
    tap: Wiretap, found: Summed, computing: Sequence[str], truth: Mapping[str, tuple[slice, np.ndarray]]
) -> tuple[float, float, float]:
    """Read how many rows of the second class are in a party's own bins: in the clear a scorecard's passive party is
    told these counts.

    Args:
        tap: heard all parties.
        found: what they added up.
        computing: names of the three, the active party first.
        truth: passive party that computes → its cells, and the counts in them.

    Returns:
        R² of the counts by what the party received, the best of all tries; what chance surely does not exceed; R² by
        what two parties have together. Of the party that gains most.
    """
    (one,), (other,) = (found.steps[name] for name in computing[:2])
    opened, results = _open(one.sums, other.sums)[0], []
    for party, (cells, counts) in truth.items():
        (step,) = found.steps[party]
        best = max(_explain(guess[0][cells], counts) for guess in _guesses(tap, party, step))
        chance = math.tanh(_SURE / math.sqrt(len(counts) - 3)) ** 2
        results.append((best, chance, _explain(opened[cells], counts)))
    return max(results, key=lambda result: result[0] - result[1])


def _explain(guess: np.ndarray, counts: np.ndarray) -> float:
    return float(np.corrcoef(guess, counts)[0, 1]) ** 2 if guess.std() and counts.std() else 0.0


def sort_rows(tap: Wiretap, party: str, view: PartyView, found: Summed) -> Sights:
    """Sort what a computing party received by the rows that it is about: cells and targets, as they were dealt, and of
    each round of trees the masked words of which there are as many as rows, or a multiple.

    Args:
        tap: heard all parties.
        party: whose.
        view: its rows.
        found: where rounds of trees begin.
    """
    seen = Sights(defaultdict(lambda: defaultdict(list)))
    learned = np.unique(view.train)
    by_length = {len(rows): rows for rows in (view.test, view.valid, learned)}
    targets = np.concatenate([learned, view.valid])
    heard = tap.heard_by[party]
    for peer, message in heard:
        if message.what != "shares/input":
            continue
        tables = [a for a in map(np.asarray, message.arrays.values()) if a.ndim == 2]
        if tables and tables[0].shape == (len(targets), 1) and "labels" not in seen.of:
            _add(seen, "labels", targets, shares_of(message, 0, len(targets), 1))
        for dealt in tables:
            table = dealt if dealt.dtype == np.uint64 else dealt.T  # trees deal cells × rows
            if len(table) in by_length and table.shape[1] > 1:
                _add(seen, peer, by_length[len(table)], table / 2.0 ** (8 * table.itemsize))
    starts = found.begun[party]
    length = min(np.diff(starts), default=len(heard) - starts[0]) if starts else 0
    for start in starts:
        words = [
            np.asarray(message.arrays["1"])
            for _, message in heard[start : start + int(length)]
            if message.what == "shares/round" and "1" in message.arrays
        ]
        fitting = [one for one in words if one.dtype == np.uint64 and one.size and one.size % len(learned) == 0]
        if fitting:
            columns = [one.view(np.int64).reshape(-1, len(learned)).T / 2.0**63 for one in fitting[:_MOST]]
            _add(seen, "rounds", learned, np.hstack(columns)[:, :_WIDEST])
    return seen


def _add(seen: Sights, about: str, rows: np.ndarray, values: np.ndarray) -> None:
    for row, value in zip(rows.tolist(), values, strict=True):
        seen.of[about][row].append(value)
