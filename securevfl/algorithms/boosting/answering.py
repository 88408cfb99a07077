"""A passive party's answers while a tree grows: the sums over its bins and the sides of its splits."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from securevfl_crypto.modular import Batch
from securevfl_crypto.sums import SealedSums, SumHolder

from securevfl.algorithms.boosting.asking import plan_of
from securevfl.algorithms.boosting.bins import Bins
from securevfl.algorithms.boosting.categories import CODES, NUMBER, unpack_sets
from securevfl.algorithms.boosting.histograms import Merged, merged_bins, plain_sums
from securevfl.algorithms.boosting.sampling import hear_columns, receive_rows
from securevfl.algorithms.boosting.settings import BoostingSettings
from securevfl.algorithms.boosting.trees import OwnSplits
from securevfl.cut import Protection
from securevfl.cut.sealed_work import count_as_encryption
from securevfl.errors import ProtocolError
from securevfl.party_context import PartyContext
from securevfl.privacy import Link
from securevfl.training.tree_terms import draw_rows
from securevfl.transport import Guard, Kind

__all__ = ["TreeAnswers"]

_MOST_NODES = 1 << 12


class Trees(Protocol):
    """The party's part of the model."""

    trees: list[OwnSplits]


class AnsweringRole(Protocol):
    """The part of a passive party's role that answering uses.

    Attributes:
        holder: computes sealed sums; None if sums are not sealed.
        guard: the guard of the messages with sealed sums.
        equations: number of sums sent for each bin so far.
        bins: the bins of its columns.
        codes: the codes of its training rows, int16 (n, columns).
    """

    holder: SumHolder | None
    guard: Guard
    equations: int
    bins: Bins
    codes: np.ndarray

    @property
    def forest(self) -> Trees:
        """Its part of the model."""
        ...

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
        """The job's protection."""
        ...

    @property
    def upstream(self) -> Link:
        """The link to the active party."""
        ...


class TreeAnswers:
    """A passive party's part in growing one tree.

    Args:
        role: of the party.
    """

    def __init__(self, role: AnsweringRole) -> None:
        self._role, self._link = role, role.upstream
        self._rows = np.empty(0, dtype=np.int64)
        self._codes = role.codes
        self._counts = role.bins.code_counts
        self._places = dict[int, int]()
        self._values: np.ndarray | None = None
        self._sealed: Batch | None = None
        self._merged: dict[int, Merged] = {}
        self._splits = OwnSplits()
        self._summed = self._nodes = 0

    async def run(self) -> None:
        """Follow the active party until the tree ends.

        Raises:
            ProtocolError: it asks for something else.
        """
        shown = self._role.config.shows_nodes(self._role.protection)
        if await self._receive_question() != ("tree", 0):
            raise ProtocolError(f"{self._link.peer!r} continued a tree that it had not begun")
        await self._begin_tree()
        if shown:
            await self._receive_gradients(1)
        while True:
            what, nodes = await self._receive_question()
            if what == "end":
                break
            if what == "sums":
                self._check_node_count(nodes)
                await (self._sums_shown(nodes) if shown else self._sums_hidden(nodes))
            elif what == "split":
                await self._split_nodes()
            else:
                raise ProtocolError(f"{self._link.peer!r} asks for {what!r:.40} in the middle of a tree")
        self._role.forest.trees.append(self._splits)

    async def _begin_tree(self) -> None:
        """Receive the rows and columns of the tree."""
        role = self._role
        self._rows, whole = await self._receive_summed_rows(), role.bins.code_counts
        drawn = role.config.columns < 1
        columns = await hear_columns(self._link, len(whole)) if drawn else np.arange(len(whole))
        if len(self._rows) < len(role.codes) or len(columns) < len(whole):  # avoids a copy of all codes
            self._codes = role.codes[np.ix_(self._rows, columns)]
        self._counts = tuple(whole[column] for column in columns)
        self._places = {column: place for place, column in enumerate(columns.tolist())}

    async def _receive_summed_rows(self) -> np.ndarray:
        """Receive the numbers of the training rows to sum, int64 (n,): the tree's rows if this party may know them,
        else all."""
        role, config = self._role, self._role.config
        rows = len(role.codes)
        if not config.tells_rows(role.protection):
            return np.arange(rows)
        if config.goss is None:
            return draw_rows(role.site.seed, len(role.forest.trees), rows, config.rows)
        return await receive_rows(self._link, rows)

    async def _receive_question(self) -> tuple[str, int]:
        message = await self._link.receive(Kind.CONTROL, "boost/next")
        what, nodes = message.meta.get("do"), message.meta.get("nodes", 0)
        if not isinstance(what, str) or type(nodes) is not int or not 0 <= nodes <= _MOST_NODES:
            raise ProtocolError(f"{self._link.peer!r} asks for {what!r:.40} of {nodes!r:.20} nodes")
        return what, nodes

    def _check_node_count(self, nodes: int) -> None:
        """Check the number of summed nodes against the largest tree that the job allows.

        More sums would reveal more of the columns than the party agreed to.

        Raises:
            ProtocolError: there are too many.
        """
        self._summed, self._nodes = self._summed + nodes, nodes
        most = self._role.config.most_summed
        if self._summed > most:
            raise ProtocolError(
                f"{self._link.peer!r} asks for sums of {self._summed} nodes; a tree of the job has {most}"
            )

    async def _receive_gradients(self, nodes: int) -> None:
        role = self._role
        rows = len(self._rows)
        if role.holder is None:
            message = await self._link.receive(Kind.GRADIENT, "boost/gradients", "g")
            values = np.asarray(message.arrays["g"])
            most = 1 << role.config.bits
            if values.dtype != np.int64 or values.shape != (rows, 2) or np.abs(values).max() > most:
                raise ProtocolError(
                    f"{self._link.peer!r} sent malformed gradients: {rows} rows within ±{most} are needed"
                )
            self._values = values
            return
        message = await self._link.receive(Kind.CIPHERTEXT, "boost/gradients", "c")
        with count_as_encryption(role.site.clock):
            role.holder = role.holder.with_plan(plan_of(role.guard.bits, rows, role.config.bits, nodes))
            self._sealed = role.holder.load_rows(np.asarray(message.arrays["c"]))

    async def _sums_hidden(self, nodes: int) -> None:
        if not nodes:
            raise ProtocolError(f"{self._link.peer!r} asked for the sums of 0 nodes")
        await self._receive_gradients(nodes)
        await self._send_sums(self._codes.astype(np.int64), None, 1)

    async def _sums_shown(self, nodes: int) -> None:
        role = self._role
        message = await self._link.receive(Kind.CONTROL, "boost/nodes", "nodes", "place")
        numbers, place = np.asarray(message.arrays["nodes"]), np.asarray(message.arrays["place"])
        rows = len(self._rows)
        right = numbers.dtype == np.int64 and numbers.shape == (nodes,) and nodes > 0
        if not right or place.dtype != np.int32 or place.shape != (rows,) or place.min() < -1 or place.max() >= nodes:
            raise ProtocolError(f"{self._link.peer!r} sent a malformed assignment of {rows} rows to {nodes} nodes")
        codes = self._codes.astype(np.int64)
        if role.config.merges_small_bins:
            for k, number in enumerate(numbers.tolist()):
                here = np.flatnonzero(place == k)
                merged = merged_bins(self._codes[here], self._counts, role.config.merge)
                codes[here], self._merged[number] = merged.codes, merged
        await self._send_sums(codes, place.astype(np.int64), nodes)

    async def _send_sums(self, codes: np.ndarray, place: np.ndarray | None, nodes: int) -> None:
        role, counts = self._role, self._counts
        if not counts:
            return
        groups = (
            role.config.merges_small_bins and self._summed > 1
        )  # merged bins differ from node to node, so their sums give no further equations
        role.equations += 0 if groups else 2 * self._nodes  # of g and of h
        if role.holder is None:
            if self._values is None or place is None:
                raise ProtocolError(f"{self._link.peer!r} asks for sums before it sent gradients")
            sums = plain_sums(self._values, codes, counts, place, nodes)
            await self._link.send(Kind.STATISTIC, "boost/sums", sums=sums)
            return
        if self._sealed is None:
            raise ProtocolError(f"{self._link.peer!r} asks for sums before it sent gradients")
        with count_as_encryption(role.site.clock):
            found: SealedSums = role.holder.compute_sums(self._sealed, codes, counts, place, nodes)
        await self._link.send(Kind.CONTROL, "boost/fullest", bins=found.omitted.astype(np.int32))
        await self._link.send(Kind.CIPHERTEXT, "boost/sums", guard=role.guard, c=found.ciphertexts)

    async def _split_nodes(self) -> None:
        role = self._role
        message = await self._link.receive(Kind.CONTROL, "boost/splits", "splits", "sets")
        splits, sets = np.asarray(message.arrays["splits"]), np.asarray(message.arrays["sets"])
        counts = role.bins.code_counts
        if splits.dtype != np.int64 or splits.ndim != 2 or splits.shape[1] != 4 or len(splits) > _MOST_NODES:
            raise ProtocolError(f"{self._link.peer!r} sent {splits.dtype} {splits.shape} as its chosen splits")
        most = role.config.most_splits
        if len(self._splits) + len(splits) > most:
            raise ProtocolError(
                f"{self._link.peer!r} chose {len(self._splits) + len(splits)} splits; a tree of the job has {most}"
            )
        if sets.dtype != np.uint8 or sets.shape != (len(splits), CODES // 8):
            raise ProtocolError(
                f"{self._link.peer!r} sent {sets.dtype} {sets.shape}; one set of codes per split is needed"
            )
        sides = np.empty((len(splits), len(role.codes)), dtype=bool)
        for k, ((node, column, bin_, missing), codes) in enumerate(
            zip(splits.tolist(), unpack_sets(sets), strict=True)
        ):
            if not (column in self._places and 0 <= bin_ < counts[column] - 1 and missing in (0, 1)):
                raise ProtocolError(f"{self._link.peer!r} chose bin {bin_} of column {column}, which does not exist")
            if (
                (codes != NUMBER) != bool(role.bins.category_columns[column])
                or codes >> counts[column] > 0
                or codes == 0
            ):
                raise ProtocolError(f"{self._link.peer!r} chose codes of column {column} that do not exist")
            last, missing_left, left = bin_, bool(missing), codes
            if codes == NUMBER:
                last = self._last_bin(node, column, bin_) if role.config.merges_small_bins else bin_
            else:
                left = self._bins_of_groups(node, column, codes) if role.config.merges_small_bins else codes
                missing_left = bool(left >> (counts[column] - 1) & 1)
            sides[k] = role.bins.goes_left(role.codes, column, last, missing_left=missing_left, left=left)
            self._splits.column.append(column)
            self._splits.threshold.append(role.bins.threshold(column, last) if left == NUMBER else 0.0)
            self._splits.missing_left.append(missing_left)
            self._splits.levels.append(role.bins.levels_of(column, left))
        await self._link.send(Kind.CONTROL, "boost/sides", bits=np.packbits(sides, axis=1))

    def _last_bin(self, node: int, column: int, group: int) -> int:
        """The last bin of a group of bins that were merged for a node."""
        ends = self._put_together(node).ends[self._places[column]]
        return ends[group] if group < len(ends) else self._role.bins.code_counts[column] - 2

    def _bins_of_groups(self, node: int, column: int, groups: int) -> int:
        """The set of bins in a set of groups."""
        table = self._put_together(node).tables[self._places[column]]
        return sum(1 << code for code, group in enumerate(table.tolist()) if groups >> group & 1)

    def _put_together(self, node: int) -> Merged:
        found = self._merged.get(node)
        if found is None:
            raise ProtocolError(f"{self._link.peer!r} split node {node} without having asked for its sums")
        return found
