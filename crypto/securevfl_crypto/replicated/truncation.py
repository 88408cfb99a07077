"""Exact truncation, comparison and gate of a product, by an opening behind a mask. Two rounds, or four.

Each party has one of the summands z₀ + z₁ + z₂ of z. Party 2 draws r, uniform over 64 bits, and the parties open
c = z + 2^62 + r to parties 0 and 1. These learn nothing, because r is uniform and unknown to them; party 2 learns
nothing, because it does not get c. From c, which two parties have, and r, which the third has, follow:

- **The truncation** by f bits: ``(c ≫ f) − (r ≫ f) − 2^(62−f) + w 2^(64−f)``, where w = 1 if the sum wrapped. z + 2^62
  is below 2^63, so w = [r ≥ 2^63] · [c < 2^63] is a product of a bit of party 2 with a bit of the others: exact
  (Dalskov, Escudero and Keller, USENIX Security 2021). The carry of the last f bits, which are uniform, rounds up with
  a probability equal to the part that is cut off.
- **The comparison** [z ≥ t]: bit 62 of z + 2^62 − t, from bits 62 of c − t and r and the borrow of their lower bits,
  which party 2 computes from masked rows modulo 67 without learning it (Wagh, Gupta and Chandran, SecureNN, PETS 2019,
  algorithm 3; see `ring.kernels`). Several t use one r.
- **Products with a bit**: party 2 deals summands of its values (r ≫ f, the top bit, their products with its bits) to
  parties 0 and 1. These two both know c, so they compute every product locally.

At the end parties 0 and 1 have two summands of each result and turn them into a replicated sharing.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from securevfl_crypto.replicated.curves import Curve
from securevfl_crypto.replicated.party import Party
from securevfl_crypto.replicated.resharing import Reshare
from securevfl_crypto.replicated.share import U8, U64, Share
from securevfl_crypto.replicated.task import OFFSET, Task, column_of, parts_of, public_part
from securevfl_crypto.ring import (
    COLUMNS,
    MODULUS,
    check_residues,
    deal_bits,
    extract_coins,
    find_zeros,
    mask_comparison,
)

__all__ = ["run_masked_tasks"]

_ONE = np.uint64(1)
_TOP = np.uint64(63)
_SIGN = np.uint64(62)


async def run_masked_tasks(
    party: Party, tasks: Sequence[Task], reshare: Reshare | None = None
) -> tuple[list[list[Share]], list[Share]]:
    """Run all tasks, and a `reshare` in the same rounds; return the results of both."""
    beside = reshare or Reshare(party, [])
    work = [task for task in tasks if task.size]
    if not work:
        await beside.send()
        words: list[tuple[U64, U64]] = []
        plain = await beside.receive()
    else:
        role = _MaskParty(party, work) if party.index == 2 else _OpeningParty(party, work)
        words, plain = await role.run(beside)
    found = iter(words)
    empty = np.zeros(0, np.uint64)
    return [task.result_shares(next(found) if task.size else (empty, empty)) for task in tasks], plain


def _collect_results(work: Sequence[Task], mine: U64, after: U64) -> list[tuple[U64, U64]]:
    sizes = [task.result_words for task in work]
    return list(zip(parts_of(mine, sizes), parts_of(after, sizes), strict=True))


class _Sizes:
    """Total sizes over all tasks."""

    def __init__(self, work: Sequence[Task]) -> None:
        self.values = sum(task.size for task in work)
        self.compared = sum(task.size for task in work if task.curve)
        self.rows = sum(task.rows for task in work)
        self.ahead = sum(task.dealt_words for task in work)
        self.answers = sum(task.answer_words for task in work)
        self.results = sum(task.result_words for task in work)
        self.with_first = (self.values, self.ahead, self.answers, self.results)
        """Words that parties 2 and 0 draw: shares of zero, masks of the dealt words, shares of the results."""
        self.with_second = (self.values, self.results)
        """Words that parties 2 and 1 draw."""


class _MaskParty:
    """Party 2: knows the masks, never the opened words."""

    def __init__(self, party: Party, work: Sequence[Task]) -> None:
        self._party, self._work = party, work
        self._sizes = sizes = _Sizes(work)
        streams = party.streams
        # From party 2's private stream: if party 0 or 1 knew r, c would show it z.
        self._mask = streams.draw_words(None, (sizes.values,))
        first, self._ahead, self._answers, after = streams.draw_split(0, sizes.with_first)
        second, mine = streams.draw_split(2, sizes.with_second)
        self._opening = np.concatenate([task.summand.ravel() for task in work]) - first - second + self._mask
        self._results = mine, after
        if sizes.compared:
            self._rows = streams.draw_residues(0, sizes.compared * COLUMNS, MODULUS).reshape(-1, COLUMNS)

    async def run(self, beside: Reshare) -> tuple[list[tuple[U64, U64]], list[Share]]:
        party, sizes = self._party, self._sizes
        masks = list(parts_of(self._mask, [task.size for task in self._work]))
        compared = [r for task, r in zip(self._work, masks, strict=True) if task.curve]
        await party.send(0, "opening", [self._opening])
        message: list[np.ndarray] = [self._opening]
        if sizes.ahead:
            # Party 0 draws the other summand from the common stream, so only party 1 gets these words.
            message.append(self._mask_words(masks) - self._ahead)
        if sizes.compared:
            message.append(deal_bits(np.concatenate(compared), self._rows))
        await party.send(1, "opening", message)
        await beside.send()
        plain = await beside.receive()
        if sizes.rows:
            shape = (sizes.rows, COLUMNS)
            (first,) = await party.receive(0, "rows", [(np.uint8, shape)])
            (second,) = await party.receive(1, "rows", [(np.uint8, shape)])
            answer = self._answer_comparisons(masks, find_zeros(first, second))
            await party.send(1, "answers", [answer - self._answers])
        return _collect_results(self._work, *self._results), plain

    def _mask_words(self, masks: Sequence[U64]) -> U64:
        words: list[U64] = []
        for task, r in zip(self._work, masks, strict=True):
            if task.has_value:
                known = [r >> np.uint64(task.shift), r >> _TOP]
                words += known
                if task.gate is not None:
                    bits = (task.gate.mine + task.gate.next).ravel()
                    words += [part * bits for part in known]
        return np.concatenate(words)

    def _answer_comparisons(self, masks: Sequence[U64], found: U64) -> U64:
        words: list[U64] = []
        hits = parts_of(found, [task.rows for task in self._work])
        for task, r, hit in zip(self._work, masks, hits, strict=True):
            if task.curve:
                bit = hit.reshape(-1, task.size) ^ ((r >> _SIGN) & _ONE)
                words.append(bit.ravel())
                if task.has_value:
                    words += [(bit * (r >> np.uint64(task.shift))).ravel(), (bit * (r >> _TOP)).ravel()]
        return np.concatenate(words)


class _OpeningParty:
    """Parties 0 and 1: know the opened words, never the masks."""

    def __init__(self, party: Party, work: Sequence[Task]) -> None:
        self._party, self._work = party, work
        self._first = party.index == 0
        self._sizes = sizes = _Sizes(work)
        streams = party.streams
        if self._first:
            zeros, self._ahead, self._answers, self._result = streams.draw_split(0, sizes.with_first)
        else:  # party 2 sends the words that it deals
            zeros, self._result = streams.draw_split(2, sizes.with_second)
            self._ahead = self._answers = np.zeros(0, np.uint64)
        self._opening = np.concatenate([task.summand.ravel() for task in work]) + zeros
        self._rows = np.zeros((0, COLUMNS), np.uint8)
        self._turns = np.zeros(0, np.uint8)
        if sizes.rows:
            if self._first:
                self._rows = streams.draw_residues(0, sizes.compared * COLUMNS, MODULUS).reshape(-1, COLUMNS)
            # Under key 1, which party 2 lacks: random turns hide from it the outcome of each comparison.
            self._turns = streams.draw_octets(1, sizes.rows)
            self._factors = streams.draw_residues(1, sizes.rows * COLUMNS, MODULUS - 1).reshape(-1, COLUMNS)
            self._noughts = streams.draw_residues(1, sizes.rows * COLUMNS, MODULUS).reshape(-1, COLUMNS)

    async def run(self, beside: Reshare) -> tuple[list[tuple[U64, U64]], list[Share]]:
        party, sizes = self._party, self._sizes
        other = 1 - party.index
        await party.send(other, "opening", [self._opening])
        await beside.send()
        c = await self._open_masked(other)
        plain = await beside.receive()
        parts = list(parts_of(c, [task.size for task in self._work]))
        if sizes.rows:
            await party.send(2, "rows", [self._compare_masked(parts)])
            if not self._first:
                (self._answers,) = await party.receive(2, "answers", [(np.uint64, (sizes.answers,))])
        # Masked with words that the peer lacks, else the exchanged summands would show it the result.
        mine = self._result_summands(parts) - self._result
        await party.send(other, "result", [mine])
        (theirs,) = await party.receive(other, "result", [(np.uint64, (sizes.results,))])
        middle = mine + theirs
        words = (self._result, middle) if self._first else (middle, self._result)
        return _collect_results(self._work, *words), plain

    async def _open_masked(self, other: int) -> U64:
        """Receive and add up c; party 1 also receives the words that party 2 dealt."""
        party, sizes = self._party, self._sizes
        values = (np.uint64, (sizes.values,))
        (summand,) = await party.receive(other, "opening", [values])
        if self._first:
            (masked,) = await party.receive(2, "opening", [values])
        else:
            extra = [(np.uint64, (sizes.ahead,))] * bool(sizes.ahead)
            rows = [(np.uint8, (sizes.compared, COLUMNS))] * bool(sizes.compared)
            masked, *rest = await party.receive(2, "opening", [values, *extra, *rows])
            if sizes.ahead:
                self._ahead = rest[0]
            if sizes.compared:
                self._rows = check_residues(rest[-1], sizes.compared, "party 2's shares of bits")
        return np.asarray(self._opening + summand + masked + OFFSET)

    def _compare_masked(self, opened: Sequence[U64]) -> U8:
        """Compute the masked rows of all comparisons."""
        found, row, value = [], 0, 0
        for task, c in zip(self._work, opened, strict=True):
            if task.curve:
                rows, values = slice(row, row + task.rows), slice(value, value + task.size)
                found.append(
                    mask_comparison(
                        task.opened_words(c).ravel(),
                        self._rows[values],
                        self._factors[rows],
                        self._noughts[rows],
                        self._turns[rows],
                        first=self._first,
                    )
                )
                row, value = rows.stop, values.stop
        return np.concatenate(found)

    def _result_summands(self, opened: Sequence[U64]) -> U64:
        """Compute this party's summands of all results."""
        ahead = parts_of(self._ahead, [task.dealt_words for task in self._work])
        answers = parts_of(self._answers, [task.answer_words for task in self._work])
        turns = parts_of(self._turns, [task.rows for task in self._work])
        words = []
        for task, c, known, answer, turn in zip(self._work, opened, ahead, answers, turns, strict=True):
            if task.curve:
                words.append(self._evaluate_curve(task, task.curve, c, known, answer, turn))
            elif task.gate is not None:
                words.append(self._gate_value(task, task.gate, c, known.reshape(4, -1)))
            else:
                public, wrap = public_part(c, task.shift)
                words.append(self._truncate_value(public, wrap, known.reshape(2, -1)))
        return np.concatenate(words)

    def _truncate_value(self, public: U64, wrap: U64, known: U64) -> U64:
        rest = wrap * known[1] - known[0]
        return np.asarray(public + rest if self._first else rest)

    def _gate_value(self, task: Task, gate: Share, c: U64, known: U64) -> U64:
        """Multiply y by bit p, whose summand p₁ parties 0 and 1 both have; party 2 has the other two."""
        public, wrap = public_part(c, task.shift)
        mine, after = gate.mine.ravel(), gate.next.ravel()
        middle = after if self._first else mine
        summand = mine + after if self._first else after
        high, top, high_bits, top_bits = known
        return np.asarray(public * summand - (high * middle + high_bits) + wrap * (top * middle + top_bits))

    def _evaluate_curve(self, task: Task, curve: Curve, c: U64, known: U64, answer: U64, turn: U8) -> U64:
        rows = (len(curve.thresholds), task.size)
        parts = answer.reshape(-1, *rows)
        flipped = ((task.opened_words(c) >> _SIGN) & _ONE) ^ extract_coins(turn).reshape(rows)
        sign = _ONE - (flipped << _ONE)
        bits = sign * parts[0]
        if self._first:
            bits += flipped
        if not curve.slopes and not curve.gates:
            return np.asarray(bits).ravel()
        words = []
        if curve.slopes:
            public, wrap = public_part(c, task.shift)
            y = self._truncate_value(public, wrap, known.reshape(2, -1))
            product = flipped * y + sign * (public * parts[0] - parts[1] + wrap * parts[2])
            total = (column_of(curve.slopes) * (product - column_of(curve.thresholds) * bits)).sum(
                axis=0, dtype=np.uint64
            )
            words.append(total + np.uint64(curve.start % (1 << 64)) if self._first else total)
        if curve.gates:
            words.append((column_of(curve.gates) * bits).sum(axis=0, dtype=np.uint64))
        return np.concatenate(words)
