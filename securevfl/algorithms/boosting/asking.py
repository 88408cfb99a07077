"""The active party's questions to passive parties for sums and sides, in the clear or sealed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import securevfl_crypto as crypto
from securevfl_crypto.sums import SealedSums, SumOwner, SumPlan

from securevfl.algorithms.boosting.bins import Bins
from securevfl.algorithms.boosting.categories import NUMBER, pack_sets
from securevfl.algorithms.boosting.growing import Chosen, Owned
from securevfl.algorithms.boosting.histograms import plain_sums
from securevfl.algorithms.boosting.introductions import hear_introduction
from securevfl.algorithms.boosting.sampling import scatter_columns, tell_columns, tell_rows
from securevfl.algorithms.boosting.settings import BoostingSettings
from securevfl.cut import Paillier, Protection
from securevfl.cut.sealed_work import count_as_encryption
from securevfl.errors import ProtocolError
from securevfl.party_context import PartyContext
from securevfl.privacy import Link, fan_out
from securevfl.transport import Guard, Kind

__all__ = ["TreeQueries", "plan_of"]

_VALUES = 2
"""Integers of a row: g and h."""


def plan_of(key_bits: int, rows: int, bits: int, nodes: int) -> SumPlan:
    """Plan the layout of rows and sums in plaintexts. Both sides compute the same plan.

    Args:
        key_bits: of the modulus.
        rows: that train.
        bits: of the fixed point.
        nodes: number of nodes with separate slots in one plaintext.
    """
    return SumPlan(key_bits=key_bits, rows=rows, bounds=(1 << bits,) * _VALUES, nodes=nodes)


class GrowingRole(Protocol):
    """The part of the active party's role that asking uses."""

    @property
    def config(self) -> BoostingSettings:
        """The job's algorithm."""
        ...

    @property
    def site(self) -> PartyContext:
        """The party's place."""
        ...

    @property
    def protection(self) -> Protection:
        """Of what is sent."""
        ...

    @property
    def bin_count(self) -> int:
        """The most bins of a column."""
        ...

    @property
    def trained_with(self) -> tuple[str, ...]:
        """Names of the passive parties, in their order."""
        ...


class TreeQueries:
    """Sums and splits of all parties' columns, as the active party queries them while it grows trees.

    Args:
        role: of the active party.
        bins: of its own columns.
        codes: of its training rows, int16 (n, columns).
        directions: of its own columns, from `column_directions`.

    Attributes:
        directions: of all candidate columns.
    """

    def __init__(self, role: GrowingRole, bins: Bins, codes: np.ndarray, directions: np.ndarray) -> None:
        self.directions = directions
        self._role, self._bins, self._codes = role, bins, codes
        self._theirs: dict[str, tuple[int, ...]] = {}
        self._counts: tuple[int, ...] = bins.code_counts
        self._kinds = bins.category_columns
        self._values = np.empty((0, _VALUES), dtype=np.int64)
        self._rows = np.empty(0, dtype=np.int64)
        self._own = np.empty(0, dtype=np.int64)
        self._drawn: dict[str, np.ndarray] = {}
        self._numbers: dict[str, int] = {}
        self._owner: SumOwner | None = None
        self._guard = Guard()

    @property
    def code_counts(self) -> Sequence[int]:
        """Codes of all candidate columns: the active party's own first, then party by party."""
        return self._counts

    @property
    def category_columns(self) -> np.ndarray:
        """Which candidate columns contain categories."""
        return self._kinds

    @property
    def can_subtract_siblings(self) -> bool:
        """Whether to compute the larger sibling's sums by subtraction. Not if bins are merged, which differs by
        node."""
        return not self._role.config.merges_small_bins

    async def setup(self) -> None:
        """Learn the others' bins; hand out a key.

        Raises:
            ProtocolError: a party says something impossible of its columns.
        """
        role = self._role
        for link in self._role.site.passive_links:
            bins, directions, kinds = await hear_introduction(link, role.bin_count)
            self.directions = np.concatenate([self.directions, directions])
            self._kinds = np.concatenate([self._kinds, kinds > 0])
            self._theirs[link.peer] = tuple(bins.tolist())
            self._counts = (*self._counts, *self._theirs[link.peer])
        protection = role.protection
        if isinstance(protection, Paillier) and self._theirs:
            (scheme,) = protection.schemes().values()
            with count_as_encryption(role.site.clock):
                key = scheme.generate_key()
                if not isinstance(key, crypto.PaillierPrivateKey):
                    raise ProtocolError("sums of rows can be sealed only under Paillier")
                plan = plan_of(key.public.bits, len(self._codes), role.config.bits, 1)
                self._owner = SumOwner(key, plan)
            self._guard = Guard(scheme.name, key.public.bits, key.public.fingerprint)
            packed = np.frombuffer(key.public.to_bytes(), dtype=np.uint8)

            async def send_key(link: Link) -> None:
                await link.send(Kind.PUBLIC_KEY, "boost/key", key=packed)

            await fan_out(self._role.site.passive_links, send_key)

    async def _announce_next(self, what: str, **meta: int) -> None:
        async def send_next(link: Link) -> None:
            await link.send(Kind.CONTROL, "boost/next", meta={"do": what, **meta})

        await fan_out(self._role.site.passive_links, send_next)

    async def begin_tree(self, values: np.ndarray, seen: np.ndarray, allowed: np.ndarray | None = None) -> None:
        """Begin a tree. Rows that it does not see are left out where passive parties may know which these are, and are
        sent as zeros else.

        Args:
            values: of the training rows in fixed point, int64 (n, 2).
            seen: which of them the tree sees, bool (n,).
            allowed: which of all columns it may split by, bool (columns,); None for all. The others are not summed.
        """
        role = self._role
        config, shown = role.config, role.config.shows_nodes(role.protection)
        told = config.tells_rows(role.protection)
        self._values, self._rows = values, np.flatnonzero(seen) if told else np.arange(len(seen))
        self._numbers = dict.fromkeys(self._theirs, 0)
        await self._announce_next("tree")
        if told and config.goss is not None:
            await tell_rows(self._role.site.passive_links, seen)
        sizes = [len(self._bins.code_counts), *map(len, self._theirs.values())]
        drawn = np.ones(sum(sizes), dtype=bool) if allowed is None else allowed
        self._own, *rest = (np.flatnonzero(part) for part in np.split(drawn, np.cumsum(sizes)[:-1]))
        self._drawn = dict(zip(self._theirs, rest, strict=True))
        if config.columns < 1:
            await tell_columns(self._role.site.passive_links, self._drawn)
        if self._owner is not None:
            self._owner = self._owner.with_plan(plan_of(self._guard.bits, len(self._rows), config.bits, 1))
        if shown:
            await self._send_gradients(None)

    async def end_tree(self) -> None:
        """End the tree."""
        await self._announce_next("end")

    async def _send_gradients(self, slot: np.ndarray | None) -> None:
        if not self._theirs:
            return
        values = self._values[self._rows]
        if self._owner is None:

            async def send_values(link: Link) -> None:
                await link.send(Kind.GRADIENT, "boost/gradients", g=values)

        else:
            with count_as_encryption(self._role.site.clock):
                sealed = self._owner.encrypt_rows(values, slot)

            async def send_values(link: Link) -> None:
                await link.send(Kind.CIPHERTEXT, "boost/gradients", guard=self._guard, c=sealed)

        await fan_out(self._role.site.passive_links, send_values)

    async def node_sums(self, nodes: Sequence[int], slot: np.ndarray, totals: np.ndarray) -> np.ndarray:
        """See `SumSources.node_sums`."""
        counts, mine = self._bins.code_counts, self._own
        codes = self._codes if len(mine) == len(counts) else self._codes[:, mine]
        own = scatter_columns(
            plain_sums(self._values, codes, [counts[j] for j in mine], slot, len(nodes)), counts, mine
        )
        if not self._theirs:
            return own
        shown = self._role.config.shows_nodes(self._role.protection)
        most = len(nodes) if shown or self._owner is None else self._owner.plan.most_nodes
        parts = []
        for start in range(0, len(nodes), most):
            end = min(start + most, len(nodes))
            here = np.where((slot >= start) & (slot < end), slot - start, -1)
            parts.append(await self._theirs_of(nodes[start:end], here, totals[start:end], shown=shown))
        return np.concatenate([own, np.concatenate(parts)], axis=1)

    async def _theirs_of(
        self, nodes: Sequence[int], slot: np.ndarray, totals: np.ndarray, *, shown: bool
    ) -> np.ndarray:
        """Sums of the passive parties' codes, int64 (nodes, codes, 2)."""
        await self._announce_next("sums", nodes=len(nodes))
        if shown:
            numbers, place = np.asarray(nodes, dtype=np.int64), slot[self._rows].astype(np.int32)

            async def send_nodes(link: Link) -> None:
                await link.send(Kind.CONTROL, "boost/nodes", nodes=numbers, place=place)

            await fan_out(self._role.site.passive_links, send_nodes)
        else:
            if self._owner is None:
                raise ProtocolError("hidden nodes need a key")
            plan = plan_of(self._guard.bits, len(self._rows), self._role.config.bits, len(nodes))
            self._owner = self._owner.with_plan(plan)
            await self._send_gradients(slot[self._rows])
        found = []
        for link in self._role.site.passive_links:
            if self._theirs[link.peer]:
                found.append(await self._receive_sums(link, len(nodes), totals, shown=shown))
        return np.concatenate(found, axis=1) if found else np.empty((len(nodes), 0, _VALUES), dtype=np.int64)

    async def _receive_sums(self, link: Link, nodes: int, totals: np.ndarray, *, shown: bool) -> np.ndarray:
        """Sums of all codes of a party, int64 (nodes, codes, 2); zeros for columns that the tree does not use."""
        whole, columns = self._theirs[link.peer], self._drawn[link.peer]
        counts = [whole[column] for column in columns]
        if not counts:
            return np.zeros((nodes, sum(whole), _VALUES), dtype=np.int64)
        return scatter_columns(await self._open_sums(link, counts, nodes, totals, shown=shown), whole, columns)

    async def _open_sums(
        self, link: Link, counts: Sequence[int], nodes: int, totals: np.ndarray, *, shown: bool
    ) -> np.ndarray:
        if self._owner is not None:
            omitted = np.asarray((await link.receive(Kind.CONTROL, "boost/fullest", "bins")).arrays["bins"])
            message = await link.receive(Kind.CIPHERTEXT, "boost/sums", "c")
            if omitted.dtype != np.int32 or (omitted < 0).any() or (omitted >= 1 << 15).any():
                raise ProtocolError(f"{link.peer!r} does not leave out one bin of each column")
            answer = SealedSums(np.asarray(message.arrays["c"]), omitted.astype(np.int32))
            with count_as_encryption(self._role.site.clock):
                return self._owner.open_sums(answer, counts, totals, nodes=nodes if shown else 1)
        message = await link.receive(Kind.STATISTIC, "boost/sums", "sums")
        sums = np.asarray(message.arrays["sums"])
        if sums.dtype != np.int64 or sums.shape != (nodes, sum(counts), _VALUES):
            raise ProtocolError(f"{link.peer!r} sent sums as {sums.dtype} {sums.shape}")
        starts = np.concatenate([[0], np.cumsum(counts)[:-1]]).astype(np.int64)
        if (np.add.reduceat(sums, starts, axis=1) != totals[:, None]).any():
            raise ProtocolError(f"{link.peer!r} sent sums that do not add up to those of all rows")
        return sums

    async def goes_left(self, chosen: Sequence[Chosen]) -> tuple[np.ndarray, list[Owned]]:
        """See `SumSources.goes_left`."""
        rows = len(self._codes)
        sides = np.zeros((len(chosen), rows), dtype=bool)
        owned = [Owned(0, 0)] * len(chosen)
        mine = len(self._bins.code_counts)
        first, asked = mine, dict[str, list[int]]()
        for k, one in enumerate(chosen):
            if one.column < mine:
                sides[k] = self._bins.goes_left(
                    self._codes, one.column, one.bin, missing_left=one.missing_left, left=one.codes
                )
                threshold = self._bins.threshold(one.column, one.bin) if one.codes == NUMBER else 0.0
                owned[k] = Owned(0, one.column, threshold, self._bins.levels_of(one.column, one.codes))
        for link in self._role.site.passive_links:
            name = link.peer
            asked[name] = [k for k, one in enumerate(chosen) if first <= one.column < first + len(self._theirs[name])]
            told = (
                self._role.config.merges_small_bins
            )  # whose bins were put together by node; else nodes are nobody's business
            table = [
                [chosen[k].node if told else 0, chosen[k].column - first, chosen[k].bin, chosen[k].missing_left]
                for k in asked[name]
            ]
            first += len(self._theirs[name])
            await link.send(Kind.CONTROL, "boost/next", meta={"do": "split"})
            splits = np.asarray(table, dtype=np.int64).reshape(len(table), 4)
            sets = pack_sets(chosen[k].codes for k in asked[name])
            await link.send(Kind.CONTROL, "boost/splits", splits=splits, sets=sets)
        for link in self._role.site.passive_links:
            name = link.peer
            bits = await self.received_sides(link, "boost/sides", len(asked[name]), rows)
            place = 1 + self._role.trained_with.index(name)
            for k, side in zip(asked[name], bits, strict=True):
                sides[k] = side
                owned[k] = Owned(place, self._numbers[name])
                self._numbers[name] += 1
        return sides, owned

    @staticmethod
    async def received_sides(link: Link, step: str, splits: int, rows: int) -> np.ndarray:
        """Which rows go left at a party's splits, bool (splits, rows).

        Raises:
            ProtocolError: it sent something else.
        """
        message = await link.receive(Kind.CONTROL, step, "bits")
        bits = np.asarray(message.arrays["bits"])
        if bits.dtype != np.uint8 or bits.shape != (splits, -(-rows // 8)):
            raise ProtocolError(
                f"{link.peer!r} sent {bits.dtype} {bits.shape}; the sides of {rows} rows at {splits} splits are "
                f"uint8 ({splits}, {-(-rows // 8)})"
            )
        return np.unpackbits(bits, axis=1, count=rows).astype(bool)
