"""A passive party's role: it adds up what it is sent over the bins of its columns, and splits where it is told."""

from __future__ import annotations

from collections import Counter

import numpy as np
import securevfl_crypto as crypto
from securevfl_crypto.modular import Batch
from securevfl_crypto.sums import SealedSums, SumHolder

from securevfl.algorithms.boosting.asking import plan_of
from securevfl.algorithms.boosting.bins import Bins, fit_bins
from securevfl.algorithms.boosting.categories import CODES, NUMBER, unpacked
from securevfl.algorithms.boosting.directions import column_directions
from securevfl.algorithms.boosting.histograms import Merged, merged_bins, plain_sums
from securevfl.algorithms.boosting.sampling import drawn_rows
from securevfl.algorithms.boosting.settings import Settings
from securevfl.algorithms.boosting.trees import OwnSplits, read_splits, write_splits
from securevfl.cut import Paillier
from securevfl.cut.handshake import key_bytes
from securevfl.cut.sealed import working
from securevfl.errors import ProtocolError
from securevfl.training.role import PassiveRole
from securevfl.training.state import State, as_dict
from securevfl.transport import Guard, Kind

__all__ = ["BoostingPassive", "OwnForest"]

_MOST_NODES = 1 << 12


class OwnForest:
    """A passive party's part of the model: its own splits, tree by tree.

    Args:
        role: whose it is.

    Attributes:
        trees: its splits of each tree, none where it has none.
    """

    def __init__(self, role: BoostingPassive) -> None:
        self._role = role
        self.trees: list[OwnSplits] = []

    async def setup(self) -> None:
        """Say how many bins the columns have, and take the key; nothing of that in a prediction."""
        if len(self._role.table.split.train):
            await self._role.introduce()

    def snapshot(self) -> object:
        """See `Part.snapshot`."""
        return write_splits(self.trees)

    def restore(self, state: object) -> None:
        """See `Part.restore`."""
        self.trees = read_splits(as_dict(state), columns=self._role.width)
        self._role.scored[:] = 0

    def state(self) -> State:
        """See `Part.state`."""
        return as_dict(self.snapshot())

    def load(self, state: State) -> None:
        """See `Part.load`."""
        self.restore(state)


class BoostingPassive(PassiveRole):
    """Answers with sums over its bins, and with the sides of its splits.

    Attributes:
        forest: its part of the model so far.
        scored: how many trees each numbered row was scored by, (rows,).
        bins: of its columns, fitted on the training rows.
        codes: of these rows, int16 (n, columns).
        directions: of its columns, as `column_directions` says.
    """

    config: Settings

    def build(self) -> None:
        self.forest = OwnForest(self)
        self.parts["forest"] = self.forest
        self.scored = np.zeros(self.table.rows, dtype=np.int64)
        self.holder: SumHolder | None = None
        self.guard = Guard()
        train = self.table.split.train
        if len(train):
            x = self.columns_of(train)
            self.bins: Bins = fit_bins(x, self.config.bins, self.table.codes)
            self.codes = self.bins.codes(x).astype(np.int16)
            config, mine = self.config, self.table
            self.directions = column_directions(self.site.name, mine.encoded, mine.codes, config.rising, config.falling)

    def columns_of(self, rows: np.ndarray) -> np.ndarray:
        """This party's columns of numbered rows, float64 (n, columns)."""
        x = self.features(rows)
        return x.reshape(len(rows), -1).double().cpu().numpy() if x.numel() else np.empty((len(rows), self.width))

    def closing_notes(self) -> list[str]:
        """Which of its columns split most often: the party knows no gains."""
        counts = Counter(column for tree in self.forest.trees for column in tree.column)
        if not counts:
            return []
        told = ", ".join(f"{self.table.encoded[column]} {times}" for column, times in counts.most_common(5))
        return [f"{self.site.name}'s columns with most of its splits: {told}"]

    @property
    def width(self) -> int:
        """How many columns the party has."""
        return int(self.features.shape.numel())

    def batches(self, epoch: int) -> list[np.ndarray]:
        """One: a tree sees all training rows."""
        return [self.training_rows(epoch)]

    async def introduce(self) -> None:
        """Say how many bins the columns have, and take the key where sums are sealed."""
        counts = np.asarray(self.bins.counts, dtype=np.int64)
        kinds = self.bins.kinds.astype(np.int64)
        await self.upstream.send(Kind.CONTROL, "boost/columns", bins=counts, directions=self.directions, kinds=kinds)
        protection = self.protection
        if not isinstance(protection, Paillier):
            return
        message = await self.upstream.receive(Kind.PUBLIC_KEY, "boost/key", "key")
        (scheme,) = protection.schemes().values()
        with working(self.site.clock):
            key = scheme.read_public(key_bytes(self.site.active, message.arrays["key"]))
            if not isinstance(key, crypto.PaillierPublicKey):
                raise ProtocolError("sums of rows are sealed under Paillier alone")
            self.holder = SumHolder(key, plan_of(key.bits, len(self.codes), self.config.bits, 1))
        self.guard = Guard(scheme.name, key.bits, key.fingerprint)

    async def train_batch(self, rows: np.ndarray) -> None:
        for _ in range(1 if self.table.classes <= 2 else self.table.classes):  # one class stands for a number
            await _OneTree(self).run()

    async def answer(self, rows: np.ndarray) -> None:
        start = int(self.scored[rows].min(initial=len(self.forest.trees)))
        if (self.scored[rows] != start).any():
            start = 0
        x = self.columns_of(rows)
        sides = [tree.sides(x) for tree in self.forest.trees[start:]]
        found = np.concatenate([np.empty((0, len(rows)), dtype=bool), *sides])
        await self.upstream.send(Kind.CONTROL, "boost/paths", bits=np.packbits(found, axis=1))
        self.scored[rows] = len(self.forest.trees)


class _OneTree:
    """A passive party's part in growing one tree."""

    def __init__(self, role: BoostingPassive) -> None:
        self._role, self._link = role, role.upstream
        self._rows = np.empty(0, dtype=np.int64)
        self._codes = role.codes
        self._values: np.ndarray | None = None
        self._sealed: Batch | None = None
        self._merged: dict[int, Merged] = {}
        self._splits = OwnSplits()

    async def run(self) -> None:
        """Follow the active party until the tree ends.

        Raises:
            ProtocolError: it asks for something else.
        """
        shown = self._role.config.shows_nodes(self._role.protection)
        if await self._asked() != ("tree", 0):
            raise ProtocolError(f"{self._link.peer!r} goes on with a tree that has not begun")
        self._rows = await self._seen()
        self._codes = self._role.codes[self._rows]
        if shown:
            await self._gradients(1)
        while True:
            what, nodes = await self._asked()
            if what == "end":
                break
            if what == "sums":
                await (self._sums_shown(nodes) if shown else self._sums_hidden(nodes))
            elif what == "split":
                await self._split()
            else:
                raise ProtocolError(f"{self._link.peer!r} asks for {what!r:.40} in the middle of a tree")
        self._role.forest.trees.append(self._splits)

    async def _seen(self) -> np.ndarray:
        """The training rows that are summed, int64 (n,): those that the tree sees, where this party may know them."""
        role, config = self._role, self._role.config
        rows = len(role.codes)
        if not config.tells_rows(role.protection):
            return np.arange(rows)
        if config.goss is None:
            return drawn_rows(role.site.seed, len(role.forest.trees), rows, config.rows)
        bits = np.asarray((await self._link.receive(Kind.CONTROL, "boost/rows", "bits")).arrays["bits"])
        if bits.dtype != np.uint8 or bits.shape != (-(-rows // 8),) or not np.unpackbits(bits, count=rows).any():
            raise ProtocolError(f"{self._link.peer!r} does not say which of {rows} rows a tree sees")
        return np.flatnonzero(np.unpackbits(bits, count=rows))

    async def _asked(self) -> tuple[str, int]:
        message = await self._link.receive(Kind.CONTROL, "boost/next")
        what, nodes = message.meta.get("do"), message.meta.get("nodes", 0)
        if not isinstance(what, str) or type(nodes) is not int or not 0 <= nodes <= _MOST_NODES:
            raise ProtocolError(f"{self._link.peer!r} asks for {what!r:.40} of {nodes!r:.20} nodes")
        return what, nodes

    async def _gradients(self, nodes: int) -> None:
        role = self._role
        rows = len(self._rows)
        if role.holder is None:
            message = await self._link.receive(Kind.GRADIENT, "boost/gradients", "g")
            values = np.asarray(message.arrays["g"])
            most = 1 << role.config.bits
            if values.dtype != np.int64 or values.shape != (rows, 2) or np.abs(values).max() > most:
                raise ProtocolError(f"{self._link.peer!r} sent no gradients of {rows} rows within ±{most}")
            self._values = values
            return
        message = await self._link.receive(Kind.CIPHERTEXT, "boost/gradients", "c")
        with working(role.site.clock):
            role.holder = role.holder.on(plan_of(role.guard.bits, rows, role.config.bits, nodes))
            self._sealed = role.holder.load(np.asarray(message.arrays["c"]))

    async def _sums_hidden(self, nodes: int) -> None:
        if not nodes:
            raise ProtocolError(f"{self._link.peer!r} asks for sums of no node")
        await self._gradients(nodes)
        await self._answer(self._codes.astype(np.int64), None, 1)

    async def _sums_shown(self, nodes: int) -> None:
        role = self._role
        message = await self._link.receive(Kind.CONTROL, "boost/nodes", "nodes", "place")
        numbers, place = np.asarray(message.arrays["nodes"]), np.asarray(message.arrays["place"])
        rows = len(self._rows)
        right = numbers.dtype == np.int64 and numbers.shape == (nodes,) and nodes > 0
        if not right or place.dtype != np.int32 or place.shape != (rows,) or place.min() < -1 or place.max() >= nodes:
            raise ProtocolError(
                f"{self._link.peer!r} does not say which of {rows} rows stand in which of {nodes} nodes"
            )
        codes = self._codes.astype(np.int64)
        if role.config.merges:
            for k, number in enumerate(numbers.tolist()):
                here = np.flatnonzero(place == k)
                merged = merged_bins(self._codes[here], role.bins.counts, role.config.merge)
                codes[here], self._merged[number] = merged.codes, merged
        await self._answer(codes, place.astype(np.int64), nodes)

    async def _answer(self, codes: np.ndarray, place: np.ndarray | None, nodes: int) -> None:
        role, counts = self._role, self._role.bins.counts
        if not counts:
            return
        if role.holder is None:
            if self._values is None or place is None:
                raise ProtocolError(f"{self._link.peer!r} asks for sums before it sent gradients")
            sums = plain_sums(self._values, codes, counts, place, nodes)
            await self._link.send(Kind.STATISTIC, "boost/sums", sums=sums)
            return
        if self._sealed is None:
            raise ProtocolError(f"{self._link.peer!r} asks for sums before it sent gradients")
        with working(role.site.clock):
            found: SealedSums = role.holder.sums(self._sealed, codes, counts, place, nodes)
        await self._link.send(Kind.CONTROL, "boost/fullest", bins=found.omitted.astype(np.int32))
        await self._link.send(Kind.CIPHERTEXT, "boost/sums", guard=role.guard, c=found.ciphertexts)

    async def _split(self) -> None:
        role = self._role
        message = await self._link.receive(Kind.CONTROL, "boost/splits", "splits", "sets")
        splits, sets = np.asarray(message.arrays["splits"]), np.asarray(message.arrays["sets"])
        counts = role.bins.counts
        if splits.dtype != np.int64 or splits.ndim != 2 or splits.shape[1] != 4 or len(splits) > _MOST_NODES:
            raise ProtocolError(f"{self._link.peer!r} sent {splits.dtype} {splits.shape}, and not its choice of splits")
        if sets.dtype != np.uint8 or sets.shape != (len(splits), CODES // 8):
            raise ProtocolError(f"{self._link.peer!r} sent {sets.dtype} {sets.shape}, and not a set for each split")
        sides = np.empty((len(splits), len(role.codes)), dtype=bool)
        for k, ((node, column, bin_, missing), codes) in enumerate(zip(splits.tolist(), unpacked(sets), strict=True)):
            if not (0 <= column < len(counts) and 0 <= bin_ < counts[column] - 1 and missing in (0, 1)):
                raise ProtocolError(f"{self._link.peer!r} chose bin {bin_} of column {column}, which is not there")
            if (codes != NUMBER) != bool(role.bins.kinds[column]) or codes >> counts[column] > 0 or codes == 0:
                raise ProtocolError(f"{self._link.peer!r} chose codes of column {column} that it does not have")
            last, missing_left, left = bin_, bool(missing), codes
            if codes == NUMBER:
                last = self._last_bin(node, column, bin_) if role.config.merges else bin_
            else:
                left = self._whole(node, column, codes) if role.config.merges else codes
                missing_left = bool(left >> (counts[column] - 1) & 1)
            sides[k] = role.bins.goes_left(role.codes, column, last, missing_left=missing_left, left=left)
            self._splits.column.append(column)
            self._splits.threshold.append(role.bins.threshold(column, last) if left == NUMBER else 0.0)
            self._splits.missing_left.append(missing_left)
            self._splits.levels.append(role.bins.levels_of(column, left))
        await self._link.send(Kind.CONTROL, "boost/sides", bits=np.packbits(sides, axis=1))

    def _last_bin(self, node: int, column: int, group: int) -> int:
        """The last bin of a group of bins that were put together for a node."""
        ends = self._put_together(node).ends
        return ends[column][group] if group < len(ends[column]) else self._role.bins.counts[column] - 2

    def _whole(self, node: int, column: int, groups: int) -> int:
        """The set of bins in a set of groups."""
        table = self._put_together(node).tables[column]
        return sum(1 << code for code, group in enumerate(table.tolist()) if groups >> group & 1)

    def _put_together(self, node: int) -> Merged:
        found = self._merged.get(node)
        if found is None:
            raise ProtocolError(f"{self._link.peer!r} splits node {node}, whose sums it never saw")
        return found
