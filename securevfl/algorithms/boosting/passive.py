"""A passive party's role: it sums gradients over the bins of its columns and applies the chosen splits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
import securevfl_crypto as crypto
from securevfl_crypto.sums import SumHolder

from securevfl.algorithms.boosting.answering import TreeAnswers
from securevfl.algorithms.boosting.asking import plan_of
from securevfl.algorithms.boosting.bins import Bins, fit_bins
from securevfl.algorithms.boosting.directions import column_directions
from securevfl.algorithms.boosting.introductions import send_introduction
from securevfl.algorithms.boosting.settings import BoostingSettings
from securevfl.algorithms.boosting.trees import OwnSplits, read_splits, write_splits
from securevfl.cut import Paillier
from securevfl.cut.handshake import read_key
from securevfl.cut.sealed_work import count_as_encryption
from securevfl.errors import ProtocolError
from securevfl.training.passive_role import PassiveRole
from securevfl.training.state import State, as_dict
from securevfl.transport import Guard, Kind

__all__ = ["BoostingPassive", "OwnForest"]

_MANY = 10
"""From a sum of each bin for so many rows on, a report says what sums tell together."""


class OwnForest:
    """A passive party's part of the model: its own splits, tree by tree.

    Args:
        role: the passive party's role.

    Attributes:
        trees: its splits of each tree, possibly empty.
    """

    def __init__(self, role: BoostingPassive) -> None:
        self._role = role
        self.trees: list[OwnSplits] = []

    async def setup(self) -> None:
        """Say how many bins the columns have, and take the key; nothing of that in a prediction."""
        if len(self._role.table.split.train):
            await self._role.send_bin_counts()

    def snapshot(self) -> object:
        """See `Part.snapshot`."""
        return write_splits(self.trees)

    def restore(self, state: object) -> None:
        """See `Part.restore`."""
        self.trees = read_splits(as_dict(state), columns=self._role.width)
        self._role.scored[:] = 0

    def get_state(self) -> State:
        """See `Part.get_state`."""
        return as_dict(self.snapshot())

    def load_state(self, state: State) -> None:
        """See `Part.load_state`."""
        self.restore(state)


class BoostingPassive(PassiveRole):
    """Answers with sums over its bins, and with the sides of its splits.

    Attributes:
        forest: its part of the model so far.
        scored: number of trees that have scored each numbered row, (rows,).
        bins: of its columns, fitted on the training rows.
        codes: of these rows, int16 (n, columns).
        directions: of its columns, from `column_directions`.
        equations: number of sums sent for each bin so far, including those before a run was resumed.
    """

    config: BoostingSettings

    def build(self) -> None:
        self.forest = OwnForest(self)
        self.parts["forest"] = self.forest
        self.scored = np.zeros(self.table.total_count, dtype=np.int64)
        self.holder: SumHolder | None = None
        self.guard = Guard()
        self.equations = 0
        train = self.table.split.train
        if len(train):
            x = self.columns_of(train)
            self.bins: Bins = fit_bins(x, self.bin_count, self.table.codes)
            self.codes = self.bins.encode_rows(x).astype(np.int16)
            config, mine = self.config, self.table
            self.directions = column_directions(self.site.name, mine.encoded, mine.codes, config.rising, config.falling)

    def columns_of(self, rows: np.ndarray) -> np.ndarray:
        """This party's columns of numbered rows, float64 (n, columns)."""
        x = self.features(rows)
        return x.reshape(len(rows), -1).double().cpu().numpy() if x.numel() else np.empty((len(rows), self.width))

    def closing_notes(self) -> list[str]:
        """List the columns that split most often (the party does not learn gains); warn about the sums sent."""
        counts = Counter(column for tree in self.forest.trees for column in tree.column)
        found, rows = [], len(self.table.split.train)
        if counts:
            told = ", ".join(f"{self.table.encoded[column]} {times}" for column, times in counts.most_common(5))
            found.append(f"{self.site.name}'s columns with the most splits: {told}")
        if _MANY * self.equations >= rows > 0:
            found.append(
                f"the active party read {self.equations:,} sums of each bin of {self.site.name!r}, of {rows:,} rows: "
                "each is an equation, and with as many sums as rows it computes which bin each row is in (fewer trees, "
                "or fewer bins)"
            )
        return found

    def remember(self) -> State:
        return {"equations": self.equations}

    def recall(self, memory: State) -> None:
        self.equations = int(str(memory.get("equations", 0)))  # older checkpoints lack it

    @property
    def bin_count(self) -> int:
        """The most bins of a column."""
        return self.config.bin_count(self.protection, len(self.table.split.train))

    @property
    def width(self) -> int:
        """Number of this party's columns."""
        return int(self.features.row_shape.numel())

    def batches(self, epoch: int) -> list[np.ndarray]:
        """A single batch: a tree uses all training rows."""
        return [self.training_rows(epoch)]

    async def send_bin_counts(self) -> None:
        """Say how many bins the columns have, and take the key where sums are sealed."""
        await send_introduction(self.upstream, self.bins, self.directions)
        protection = self.protection
        if not isinstance(protection, Paillier):
            return
        message = await self.upstream.receive(Kind.PUBLIC_KEY, "boost/key", "key")
        (scheme,) = protection.schemes().values()
        with count_as_encryption(self.site.clock):
            key = scheme.read_public(read_key(self.site.active, message.arrays["key"]))
            if not isinstance(key, crypto.PaillierPublicKey):
                raise ProtocolError("sums of rows can be sealed only under Paillier")
            self.holder = SumHolder(key, plan_of(key.bits, len(self.codes), self.config.bits, 1))
        self.guard = Guard(scheme.name, key.bits, key.fingerprint)

    async def train_batch(self, rows: np.ndarray) -> None:
        for _ in range(1 if self.table.classes <= 2 else self.table.classes):  # one class stands for a number
            await TreeAnswers(self).run()

    async def begin_from(self, part: Mapping[str, Any]) -> None:
        """See `Role.begin_from`; sends the sides of the training rows at this party's splits."""
        await super().begin_from(part)
        await self.answer(self.table.split.train)

    async def go_on_without(self) -> None:
        """Send the sides of the training rows at this party's splits once more: with them the active party fits the
        values of leaves anew, after a party left."""
        await self.answer(self.table.split.train)
        self.scored[:] = 0

    async def answer(self, rows: np.ndarray) -> None:
        start = int(self.scored[rows].min(initial=len(self.forest.trees)))
        if (self.scored[rows] != start).any():
            start = 0
        x = self.columns_of(rows)
        sides = [tree.goes_left(x) for tree in self.forest.trees[start:]]
        found = np.concatenate([np.empty((0, len(rows)), dtype=bool), *sides])
        await self.upstream.send(Kind.CONTROL, "boost/paths", bits=np.packbits(found, axis=1))
        self.scored[rows] = len(self.forest.trees)
