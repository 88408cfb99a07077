"""One party's side of the sums of an epoch: it deals its contrasts and its part, and gets the sums of its columns."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from securevfl_crypto.replicated import Opening, Share, concatenate

from securevfl.errors import PolicyError, ProtocolError
from securevfl.shares.additive.contrasts import split_contrasts
from securevfl.shares.additive.ranged import bit_weights, join_bits, split_bits
from securevfl.shares.additive.sums import SharedRows, find_violations, sum_contrasts
from securevfl.shares.engine import ONE
from securevfl.shares.exchanges import SUMS
from securevfl.shares.model_release import receive_sum, send_summand
from securevfl.shares.share_party import ShareParty
from securevfl.training.sum_plan import SumPlan

__all__ = ["BOUNDS", "SharedSums", "SumNoise", "sum_openings"]

BOUNDS = "bounds"
"""The opening, once an epoch of a job with a budget, of whether what was dealt is within its bounds."""

_DEALT = 1 << 20
"""Words that one message deals."""


class SumNoise(Protocol):
    """A computing party's part of the noise on the sums."""

    def draw(self, shape: tuple[int, ...]) -> np.ndarray:
        """This party's part for one epoch, int64, in units of the last place."""
        ...


_DEVIATIONS = 8.0
_THREE = math.sqrt(1.5)
"""The noise of three parties, over that of any two."""


def sum_openings(plan: SumPlan, sources: Sequence[str], computing: Sequence[str], epochs: int) -> dict[str, Opening]:
    """What an epoch opens inside the three: to each owner its own sums, once, and to all whether bounds hold.

    Args:
        plan: of the sums.
        sources: names of the data parties, the active one first.
        computing: names of the three.
        epochs: that are trained from here on.
    """
    found = {BOUNDS: Opening(epochs, None, 1, each=1)}
    for party, name in enumerate(sources):
        values = plan.columns[party] * plan.outputs
        if name in computing and values:
            found[_opening_name(party)] = Opening(epochs, (computing.index(name),), values, each=1)
    return found


@dataclass
class Epoch:
    """What the data parties dealt of an epoch, at a computing party.

    Attributes:
        rows: in groups.
        values: of the contrasts, (2, columns).
        bits: all words that have to be bits.
        zeros: all words that have to be zero.
    """

    rows: list[SharedRows] = field(default_factory=list, repr=False)
    values: Share | None = field(default=None, repr=False)
    bits: list[Share] = field(default_factory=list, repr=False)
    zeros: list[Share] = field(default_factory=list, repr=False)


@dataclass
class SharedSums:
    """One party's side.

    Attributes:
        member: deals and computes for this party.
        plan: of the sums.
        noise: at a computing party of a job with a budget.
        scale: what a target of one stands for on shares.
        targets: y of the rows that train, at a computing party, (n, outputs), from 0 to `scale`.
        reserve: is called with the epoch before its sums are opened.
        own_targets: y at the active party, int64 (n, outputs) in units of the last place.
        bounded: whether what is dealt is checked: in a job with a budget, whose ε depends on it.
        rounds: of all epochs so far, once their first rows are dealt.
        sent: bytes that this party sent to the others that compute.
    """

    member: ShareParty
    plan: SumPlan
    noise: SumNoise | None
    reserve: Callable[[int], None]
    bounded: bool
    scale: int = ONE
    own_targets: np.ndarray | None = field(default=None, repr=False)
    targets: Share | None = field(default=None, repr=False)
    rounds: int = 0
    sent: int = 0
    _last: int = 0
    _before: tuple[int, int] = (0, 0)

    @property
    def opening_names(self) -> tuple[str, ...]:
        """The openings of one epoch."""
        owners = enumerate(self.member.sources)
        names = [_opening_name(k) for k, name in owners if name in self.member.computing and self.plan.columns[k]]
        return (*names, *([BOUNDS] if self.bounded else []))

    async def exchange(self, epoch: int, contrasts: np.ndarray | None, part: np.ndarray | None) -> np.ndarray | None:
        """Sums of this party's columns over the rows that train, int64 (columns, outputs); None at a coordinator.

        Args:
            epoch: counted from 1; each only once, and in order.
            contrasts: of this party's columns, int64 (n, columns).
            part: int64 (n, outputs): of the rows' probabilities, or at the active party what its own part leaves of
                the targets. Both None at a coordinator.

        Raises:
            PolicyError: an epoch that was summed before, or a party dealt what is outside its bounds.
            ProtocolError: a sum that no rows could give.
        """
        if epoch <= self._last:
            raise PolicyError(f"{self.member.site.name!r} refuses to open the sums of epoch {epoch} again")
        self._last = epoch
        if part is not None and self.own_targets is not None:
            part = self.own_targets - part  # targets were dealt once, and checked
        dealt = await self._share_all(contrasts, part)
        engine, found = self.member.engine, None
        if engine is not None and dealt.values is not None:
            if self.bounded and not await engine.is_zero(
                BOUNDS, await find_violations(engine, dealt.bits, dealt.zeros)
            ):
                raise PolicyError(
                    f"{self.member.site.name!r} refuses to open sums: a party dealt contrasts or probabilities outside "
                    "the bounds that the noise is sized for. Nothing of this epoch was opened"
                )
            self.reserve(epoch)
            every = sum(self.plan.columns), self.plan.outputs
            noise = None if self.noise is None else (self.noise.draw(every) * self.finer).view(np.uint64)
            found = await sum_contrasts(engine, dealt.rows, dealt.values, noise)
        sums = await self._open(found)
        if engine is not None:
            self.rounds += engine.rounds - self._before[0]
            self.sent += engine.sent - self._before[1]
        if sums is not None and np.abs(sums.astype(np.float64)).max(initial=0.0) > self._largest_sum:
            raise ProtocolError(
                f"a sum of epoch {epoch} opened to {self.member.site.name!r} is larger than {self.plan.rows} rows and "
                "their noise can make it: a party deals, or adds, something else"
            )
        return sums

    async def _share_all(self, contrasts: np.ndarray | None, part: np.ndarray | None) -> Epoch:
        """What all parties deal of an epoch, in groups of rows; empty at a party that does not compute."""
        plan, member, found = self.plan, self.member, Epoch()
        split = None if contrasts is None else split_contrasts(contrasts)
        widths = [
            columns + plan.outputs * (len(bit_weights(top)) if self.bounded else 1)
            for columns, top in zip(plan.columns, self._tops, strict=True)
        ]
        own = member.sources.index(member.site.name) if member.has_rows else 0
        most = max(_DEALT // sum(widths), 1)
        for start in range(0, plan.rows, most):
            here = slice(start, min(start + most, plan.rows))
            words = None
            if split is not None and part is not None:
                words = [split.bits[here], self._encode(part[here] + plan.slacks[own], self._tops[own])]
                words += [] if start else [self._encode(split.values + plan.contrast, 2 * plan.contrast)]
            wanted = {
                name: self._dealt_shapes(here.stop - start, columns, top, first=not start)
                for name, columns, top in zip(member.sources, plan.columns, self._tops, strict=True)
            }
            beside = None if self.targets is None else self.targets[here]
            dealt = await member.share_arrays(words, wanted, beside=beside)
            if member.engine is not None and not start:  # all three are at the same depth now
                self._before = member.engine.rounds, member.engine.sent
            if dealt and beside is not None:
                self._take(found, [dealt[name] for name in member.sources], beside)
        return found

    def _dealt_shapes(self, rows: int, columns: int, top: int, *, first: bool) -> list[tuple[int, ...]]:
        """Shapes of what a party deals of some rows; with the first ones, also the values of its contrasts."""
        part: tuple[int, ...] = (rows, self.plan.outputs)
        values: tuple[int, ...] = (2, columns)
        if self.bounded:
            part = (*part, len(bit_weights(top)))
            values = (*values, len(bit_weights(2 * self.plan.contrast)))
        return [(rows, columns), part, *([values] if first else [])]

    def _encode(self, numbers: np.ndarray, top: int) -> np.ndarray:
        """Numbers from 0 to `top`, as they are dealt."""
        return split_bits(numbers, top) if self.bounded else np.ascontiguousarray(numbers).view(np.uint64)

    @property
    def _largest_sum(self) -> float:
        """The size that a sum does not exceed, by all that is likely."""
        plan = self.plan
        return float(plan.rows) * (plan.one + sum(plan.slacks)) * plan.contrast + _DEVIATIONS * _THREE * plan.sigma

    @property
    def finer(self) -> int:
        """Units of shared residuals in one unit of a part."""
        return self.scale // self.plan.one

    @property
    def _tops(self) -> tuple[int, ...]:
        """The ends of the ranges of what the data parties deal, from 0: their parts, moved up by the slack."""
        return tuple(cap + 2 * slack for cap, slack in zip(self.plan.caps, self.plan.slacks, strict=True))

    def _take(self, found: Epoch, dealt: Sequence[Sequence[Share]], targets: Share) -> None:
        """Add a group of rows, as the data parties deal them in order, to what was found so far."""
        plan, engine = self.plan, self.member.engine
        if engine is None:
            return
        bits, residual = concatenate([one[0] for one in dealt], axis=1), targets
        for cap, slack, top, (_, part, *_) in zip(plan.caps, plan.slacks, self._tops, dealt, strict=True):
            joined = part
            if self.bounded:
                found.bits.append(part)
                joined = join_bits(part, top)
                if plan.outputs > 1:
                    whole = engine.constant(np.full(len(joined), cap, np.uint64))
                    found.zeros.append(joined.sum(axis=1) - whole)
            moved = joined - engine.constant(np.full(joined.shape, slack, np.uint64))
            residual = residual - moved * self.finer
        if found.values is None:
            values = [one[2] for one in dealt]
            if self.bounded:
                found.bits += values
                values = [join_bits(one, 2 * plan.contrast) for one in values]
            every = concatenate(values, axis=1)
            found.values = every - engine.constant(np.full(every.shape, plan.contrast, np.uint64))
        found.bits += [bits] * self.bounded
        found.rows.append(SharedRows(bits, residual))

    async def _open(self, found: Share | None) -> np.ndarray | None:
        """Open to each owner the sums of its columns; this party's, or None."""
        member, plan = self.member, self.plan
        ends = np.cumsum(plan.columns)
        mine = member.sources.index(member.site.name) if member.has_rows else -1
        size = (plan.columns[mine], plan.outputs) if mine >= 0 else (0, plan.outputs)
        if member.engine is None or found is None:
            links = [member.site.links[name] for name in member.computing]
            words = await receive_sum(links, size[0] * size[1], SUMS, "the sums of its columns") if size[0] else None
        else:
            inside = []
            for party, (name, end) in enumerate(zip(member.sources, ends, strict=True)):
                own = found[end - plan.columns[party] : end]
                if name in member.computing:
                    inside += [(_opening_name(party), own, member.computing.index(name))] * bool(own.size)
                elif own.size:
                    await send_summand(member.site.links[name], own.reshape(-1), SUMS)
            opened = await member.engine.open_each(inside)
            words = opened.get(_opening_name(mine))
        if mine < 0:
            return None
        return np.zeros(size, np.int64) if words is None else words.view(np.int64).reshape(size) // self.finer


def _opening_name(party: int) -> str:
    return f"sums {party}"
