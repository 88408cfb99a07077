"""The roles of HybridTree: the host grows the upper layers, guests the lower ones."""

from __future__ import annotations

import numpy as np
import torch

from securevfl.algorithms.boosting.bins import Bins, fit_bins
from securevfl.algorithms.boosting.trees import Tree
from securevfl.algorithms.field.hybrid_tree.layers import LowerLayers, UpperLayers, grow_layers
from securevfl.algorithms.field.hybrid_tree.settings import HybridSettings
from securevfl.errors import ProtocolError
from securevfl.privacy import Link, fan_out
from securevfl.training.active_role import ActiveRole
from securevfl.training.bookkeeping import Bookkeeping
from securevfl.training.objectives import find_objective
from securevfl.training.passive_role import PassiveRole
from securevfl.training.role import Role
from securevfl.training.state import State, as_tensor
from securevfl.training.tree_terms import fit_bin_count
from securevfl.transport import Kind

__all__ = ["HybridGuest", "HybridHost"]


class _Books(Bookkeeping):
    """The upper layers also learn from rows that are not aligned."""

    def rows_to_learn_from(self) -> np.ndarray:
        return np.concatenate([self.role.table.split.train, self.role.table.rows_only_at(self.role.site.active)])


class _TreeRole(Role):
    """Base of both roles: columns in bins, and one batch of all training rows."""

    config: HybridSettings

    def columns_of(self, rows: np.ndarray) -> np.ndarray:
        """This party's columns of numbered rows, float64 (n, columns)."""
        return self.features(rows).reshape(len(rows), -1).double().cpu().numpy()

    def fit_codes(self, rows: np.ndarray) -> tuple[Bins, np.ndarray]:
        """Bins of these rows' columns, and the rows' codes, int16 (n, columns)."""
        x = self.columns_of(rows)
        bins = fit_bins(x, self.config.bins or fit_bin_count(len(rows), costly=False), self.table.codes)
        return bins, bins.encode_rows(x).astype(np.int16)

    def batches(self, epoch: int) -> list[np.ndarray]:
        """One batch: a tree needs the gradients of all training rows."""
        return [self.table.split.train]


class HybridHost(_TreeRole, ActiveRole):
    """The active party: grows the upper layers, and adds up what the guests return.

    Attributes:
        upper: its layers.
        raw: cached raw scores of numbered rows, float64 (rows, outputs).
        scored: how many trees each row of `raw` includes, (rows,).
    """

    bookkeeping = _Books

    def build(self) -> None:
        classes = self.task.classes
        self.objective = find_objective("logistic") if classes == 2 else find_objective("softmax", classes=classes)
        self.upper = UpperLayers(self.task.outputs, int(self.features.row_shape.numel()), self._forget_scores)
        self.parts["upper"] = self.upper
        self.raw = np.zeros((self.table.total_count, self.task.outputs))
        self.scored = np.zeros(self.table.total_count, np.int64)
        train, others = self.table.split.train, self.table.rows_only_at(self.site.active)
        if len(train):
            known = others[self.labels(others).cpu().numpy() >= 0]
            self.rows = np.concatenate([train, known])
            self.bins, self.codes = self.fit_codes(self.rows)
            self.fitted: np.ndarray | None = None

    def _forget_scores(self) -> None:
        self.scored[:] = 0

    async def train_batch(self, rows: np.ndarray) -> float:
        y = self.labels(self.rows).cpu().numpy()
        if self.fitted is None:
            self.upper.start = self.objective.initial_score(y, np.ones(len(y)))
            self.fitted = np.tile(self.upper.start, (len(y), 1))
        g, h = self.objective.compute_derivatives(self.fitted, y)
        common = len(rows)
        for k in range(self.task.outputs):
            grown = await grow_layers(self.config, self.bins, self.codes, g[:, k], h[:, k], self.config.host_depth, k)
            taught = np.zeros(len(grown.tree.owner), bool)
            taught[grown.leaf[:common]] = True
            self.upper.trees.append(grown.tree)
            self.upper.taught.append(taught)
            added = np.asarray(grown.tree.value)[grown.leaf]
            if self.site.passive:
                added[:common] = await self._ask_values(g[:common, k], h[:common, k], grown.leaf[:common])
            self.fitted[:, k] += added
        return float(self.objective.compute_losses(self.fitted[:common], y[:common]).sum())

    async def _ask_values(self, g: np.ndarray, h: np.ndarray, leaf: np.ndarray) -> np.ndarray:
        """The mean over the guests of the values of common rows, (n,)."""
        gradients, place = np.stack([g, h], axis=1), leaf.astype(np.int32)

        async def send(link: Link) -> None:
            await link.send(Kind.GRADIENT, "hybrid/gradients", g=gradients, leaf=place)

        await fan_out(self.site.passive_links, send)
        found = [
            await self._receive_numbers(link, "hybrid/values", "values", (len(leaf),))
            for link in self.site.passive_links
        ]
        mean: np.ndarray = np.mean(found, axis=0)
        return mean

    async def _receive_numbers(self, link: Link, step: str, name: str, shape: tuple[int, ...]) -> np.ndarray:
        """Numbers of a guest.

        Raises:
            ProtocolError: it sent something else.
        """
        message = await link.receive(Kind.STATISTIC, step, name)
        found = np.asarray(message.arrays[name])
        if found.dtype != np.float64 or found.shape != shape or not np.isfinite(found).all():
            raise ProtocolError(f"{link.peer!r} sent {found.dtype} {found.shape} for {name} of {shape}, or no numbers")
        return found

    async def score(self, rows: np.ndarray) -> torch.Tensor:
        upper, outputs = self.upper, self.task.outputs
        start = int(self.scored[rows].min(initial=len(upper.trees)))
        if (self.scored[rows] != start).any():
            start = 0
        if start == 0:
            self.raw[rows] = upper.start
        leaves = upper.leaves_of(self.columns_of(rows), start)
        for number, (tree, leaf) in enumerate(zip(upper.trees[start:], leaves, strict=True), start):
            untaught = ~upper.taught[number] if self.site.passive else np.ones(len(tree.owner), bool)
            self.raw[rows, tree.output] += (np.asarray(tree.value) * untaught)[leaf]
        if self.site.passive:

            async def send(link: Link) -> None:
                await link.send(Kind.CONTROL, "hybrid/leaves", leaves=leaves)

            await fan_out(self.site.passive_links, send)
            shape = (len(rows), outputs)
            self.raw[rows] += np.mean(
                [
                    await self._receive_numbers(link, "hybrid/scores", "scores", shape)
                    for link in self.site.passive_links
                ],
                axis=0,
            )
        self.scored[rows] = len(upper.trees)
        return torch.from_numpy(self.raw[rows])

    def score_alone(self, rows: np.ndarray) -> torch.Tensor:
        """The raw scores of the upper layers alone, (n, outputs)."""
        upper = self.upper
        found = np.tile(upper.start, (len(rows), 1))
        for tree, leaf in zip(upper.trees, upper.leaves_of(self.columns_of(rows), 0), strict=True):
            found[:, tree.output] += np.asarray(tree.value)[leaf]
        return torch.from_numpy(found)

    def remember(self) -> State:
        # With the cached scores: sums of one tree at a time and of several together differ in their last bits.
        kept: State = {"raw": torch.from_numpy(self.raw.copy()), "scored": torch.from_numpy(self.scored.copy())}
        return kept | {"fitted": None if self.fitted is None else torch.from_numpy(self.fitted)}

    def recall(self, memory: State) -> None:
        kept = memory["fitted"]
        self.fitted = None if kept is None else as_tensor(kept).numpy().copy()
        self.raw, self.scored = (as_tensor(memory[name]).numpy().copy() for name in ("raw", "scored"))

    def closing_notes(self) -> list[str]:
        return [
            f"the upper layers of {len(self.upper.trees)} trees learned from {len(self.table.split.train):,} common "
            f"and {len(self.rows) - len(self.table.split.train):,} other rows; one message each way a tree"
        ]


class HybridGuest(_TreeRole, PassiveRole):
    """A passive party: grows the lower layers below each leaf of the upper ones.

    Attributes:
        lower: its layers.
    """

    def build(self) -> None:
        outputs = 1 if self.table.classes <= 2 else self.table.classes
        self.lower = LowerLayers(outputs, int(self.features.row_shape.numel()))
        self.parts["lower"] = self.lower
        if len(self.table.split.train):
            self.bins, self.codes = self.fit_codes(self.table.split.train)

    async def train_batch(self, rows: np.ndarray) -> None:
        for output in range(self.lower.outputs):
            message = await self.upstream.receive(Kind.GRADIENT, "hybrid/gradients", "g", "leaf")
            g, leaf = np.asarray(message.arrays["g"]), np.asarray(message.arrays["leaf"])
            if (
                g.dtype != np.float64
                or leaf.dtype != np.int32
                or (g.shape, leaf.shape) != ((len(rows), 2), (len(rows),))
                or not np.isfinite(g).all()
                or (g[:, 1] < 0).any()
            ):
                raise ProtocolError(f"{self.upstream.peer!r} sent malformed gradients: {g.dtype} {g.shape}")
            values, below = np.empty(len(rows)), dict[int, Tree]()
            for upper in np.unique(leaf).tolist():
                here = np.flatnonzero(leaf == upper)
                grown = await grow_layers(
                    self.config, self.bins, self.codes[here], g[here, 0], g[here, 1], self.config.guest_depth, output
                )
                below[upper] = grown.tree
                values[here] = np.asarray(grown.tree.value)[grown.leaf]
            self.lower.trees.append(below)
            await self.upstream.send(Kind.STATISTIC, "hybrid/values", values=values)

    async def answer(self, rows: np.ndarray) -> None:
        message = await self.upstream.receive(Kind.CONTROL, "hybrid/leaves", "leaves")
        leaves, trees = np.asarray(message.arrays["leaves"]), self.lower.trees
        if leaves.dtype != np.int32 or leaves.ndim != 2 or leaves.shape[1] != len(rows) or len(leaves) > len(trees):
            raise ProtocolError(
                f"{self.upstream.peer!r} sent leaves as {leaves.dtype} {leaves.shape}, of {len(trees)} trees and "
                f"{len(rows)} rows"
            )
        x, found = self.columns_of(rows), np.zeros((len(rows), self.lower.outputs))
        for below, leaf in zip(trees[len(trees) - len(leaves) :], leaves, strict=True):
            for upper, tree in below.items():
                here = np.flatnonzero(leaf == upper)
                if len(here):
                    found[here, tree.output] += np.asarray(tree.value)[tree.leaves_of(x[here], {}, len(here))]
        await self.upstream.send(Kind.STATISTIC, "hybrid/scores", scores=found)
