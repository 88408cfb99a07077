"""The programs of statistics on shares of two: each keeps its rows. The passive party's rows are multiplied with the
active party's columns, which cross masked; both then have summands of the products.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from securevfl_crypto.replicated import Opening
from securevfl_crypto.ring import matmul
from securevfl_crypto.two.bits import compare
from securevfl_crypto.two.correlations import Correlations, Linear, LinearTask
from securevfl_crypto.two.dealt import DealtCorrelations
from securevfl_crypto.two.multiply import bits_to_words, select
from securevfl_crypto.two.pair import PairCorrelations
from securevfl_crypto.two.wire import swap

from securevfl.shares.crossing.computing import OPENING, draw_noise
from securevfl.shares.crossing.programs import CrossingProgram, receive_plan
from securevfl.shares.sharing import name_parties_in_errors
from securevfl.shares.two.dealt_lots import HelperLink, LotDealer
from securevfl.shares.two.helper import TwoHelper
from securevfl.shares.two.parties import CountedWire, TwoParty
from securevfl.shares.two.wire import LinkTwoWire
from securevfl.training.crossing import LIMB_BITS, CrossPlan, begin_crossing
from securevfl.training.rows import Trained

__all__ = ["CrossingHelper", "CrossingOfTwo"]

_ROWS = 1024
"""Rows that are multiplied at once."""

_OUTPUTS = 16
"""Columns of the active party that are multiplied at once."""

_BATCHES = 8
"""Batches whose random numbers are made together."""

_COUNT_BITS = 32
_FIRST = 1 << 42
"""The number of the first batch."""


def split_limbs(matrix: np.ndarray, wide: np.ndarray) -> np.ndarray:
    """A matrix whose entries are at most 2^13 in size: low parts of all columns, then high parts of the wide ones.

    Args:
        matrix: int64 (n, width), at most 2^26 in size.
        wide: which columns have high parts, bool (width,).
    """
    high = (matrix[:, wide] + (1 << LIMB_BITS - 1)) >> LIMB_BITS
    low = matrix.copy()
    low[:, wide] -= high << LIMB_BITS
    return np.concatenate([low, high], axis=1)


def join_limbs(sums: np.ndarray, wide: np.ndarray) -> np.ndarray:
    """Sums with the columns of a matrix, from sums with its limbs, uint64 (width, k)."""
    width = len(wide)
    found = sums[:width].copy()
    found[wide] += sums[width:] << np.uint64(LIMB_BITS)
    return found


class CrossingOfTwo(CrossingProgram):
    """The program of one of two parties that compute."""

    _helper: HelperLink | None = None

    async def compute(self) -> tuple[np.ndarray | None, list[str]]:
        plan = await begin_crossing(self.role, self.sharing.site.other_links)
        party, wire = await self._make_party(plan)
        products = await self._multiply_columns(party, plan, self.role.matrix())
        opened = await self._open_cells(party, plan, products)
        await wire.flush()
        if self._helper is not None:
            await self._helper.pause()
        return opened, [
            f"{self.sharing.site.name!r} multiplied {plan.rows:,} rows on shares of two and sent "
            f"{party.wire.octets / 1e6:.2f} MB to the other; {len(plan.release.released):,} numbers were opened, each "
            "zero where it was withheld"
        ]

    async def _make_party(self, plan: CrossPlan) -> tuple[TwoParty, LinkTwoWire]:
        sharing, site = self.sharing, self.sharing.site
        names = sharing.computing_parties
        (peer,) = (name for name in names if name != site.name)
        wire = LinkTwoWire(site, peer)
        counted = CountedWire(wire)
        if sharing.protection.coordinator_among(names):
            self._helper = HelperLink(site)
            source: Correlations = DealtCorrelations(counted, await self._helper.receive_seed(), self._helper.ask)
        else:
            source = PairCorrelations(counted, f"{site.job} {', '.join(names)}".encode())
        await source.setup()
        opening = Opening(1, (0,), len(plan.release.released))
        return TwoParty(site, names, counted, source, {OPENING: opening}), wire

    async def _multiply_columns(self, party: TwoParty, plan: CrossPlan, matrix: np.ndarray) -> np.ndarray:
        """This party's summands of all products, uint64 (raw,)."""
        wide = plan.layouts[1].wide_columns()
        width, active = len(wide) + int(wide.sum()), plan.active_width
        own = matrix if party.is_active else split_limbs(matrix, wide)
        total = np.zeros((width, active), np.uint64)
        starts = list(range(0, plan.rows, _ROWS))
        for first in range(0, active, _OUTPUTS):
            columns = slice(first, min(first + _OUTPUTS, active))
            for place in range(0, len(starts), _BATCHES):
                batches = [slice(start, min(start + _ROWS, plan.rows)) for start in starts[place : place + _BATCHES]]
                total[:, columns] += await self._multiply_batches(party, own, batches, columns, width, place)
        for place in range(len(starts)):
            party.source.forget_rows(_FIRST + place)
        return np.ascontiguousarray(join_limbs(total, wide).T).reshape(-1)

    async def _multiply_batches(
        self,
        party: TwoParty,
        own: np.ndarray,
        batches: Sequence[slice],
        columns: slice,
        width: int,
        place: int,
    ) -> np.ndarray:
        """Summands of the products of some batches with some columns, (width, columns)."""
        outputs = columns.stop - columns.start
        keys = [_FIRST + place + number for number in range(len(batches))]
        tasks = [
            LinearTask(
                key=key,
                rows=np.zeros((part.stop - part.start, 0), np.int64) if party.is_active else own[part],
                other=width if party.is_active else 0,
                outputs=outputs,
                backward=True,
            )
            for key, part in zip(keys, batches, strict=True)
        ]
        uses = [made.popleft() for made in await party.source.make_linear(tasks, 1)]
        found = np.zeros((width, outputs), np.uint64)
        sent = [
            own[part, columns].view(np.uint64) - _require_pad(use)
            if party.is_active
            else np.zeros((0, outputs), np.uint64)
            for part, use in zip(batches, uses, strict=True)
        ]
        rows = sum(part.stop - part.start for part in batches)
        expect = [(np.uint64, (0 if party.is_active else rows, outputs))]
        (theirs,) = await swap(party.wire, "step columns", [np.concatenate(sent)], expect)
        start = 0
        for part, use in zip(batches, uses, strict=True):
            if party.is_active:
                found += _require_words(use.share_back)
                continue
            end = start + part.stop - part.start
            words = np.ascontiguousarray(own[part].T).view(np.uint64)
            found += matmul(words, np.ascontiguousarray(theirs[start:end])) + _require_words(use.mask_back)
            start = end
        return found

    async def _open_cells(self, party: TwoParty, plan: CrossPlan, products: np.ndarray) -> np.ndarray | None:
        """Open the released cells, int64 (released,) at the active party; None at the other."""
        release, wire, transfers = plan.release, party.wire, party.transfers
        cells = release.sum_cells(products)
        wanted = cells[release.released]
        first = np.uint64(party.is_active)
        if plan.least and len(release.guards):
            guarded = cells[release.guards] - first * np.uint64(plan.least)
            enough = await bits_to_words(wire, transfers, await compare(wire, transfers, guarded, _COUNT_BITS))
            short = release.count_short(first - enough)
            passes = await bits_to_words(
                wire, transfers, await compare(wire, transfers, np.uint64(0) - short, _COUNT_BITS)
            )
            left = passes - release.earlier_passes(passes) - first
            chosen = await compare(wire, transfers, left, _COUNT_BITS)
            where = release.cell_level >= 0
            if where.any():
                wanted = wanted.copy()
                wanted[where] = await select(wire, transfers, chosen[release.cell_level[where]], wanted[where])
        noise = None if party.is_active else draw_noise(plan, 1.0)
        if noise is not None:
            wanted = wanted + noise
        shifts = np.where(release.cell_kind == 0, plan.shift, 0)
        opened = await party.open_words(OPENING, wanted.reshape(1, -1), shifts.tolist(), (62 - shifts).tolist())
        return None if opened is None else opened[0] << shifts


def _require_pad(use: Linear) -> np.ndarray:
    assert use.pad_back is not None  # noqa: S101 - the task goes backward
    return use.pad_back


def _require_words(words: np.ndarray | None) -> np.ndarray:
    assert words is not None  # noqa: S101 - the task goes backward
    return words


class CrossingHelper(TwoHelper):
    """The helper's program: it deals random numbers and receives sizes."""

    async def run(self) -> Trained:
        with name_parties_in_errors(self.sharing.computing_parties):
            await receive_plan(self.sharing)
            self._dealer = LotDealer(self.sharing.site)
            await self._dealer.send_seeds()
            await self._dealer.deal_until_pause()
        self.trained.notes.append(self.describe_dealing())
        return self.trained
