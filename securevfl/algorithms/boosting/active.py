"""The active party's role in boosting: it owns the labels, grows the trees and sets their leaf values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from securevfl.algorithms.boosting.asking import TreeQueries
from securevfl.algorithms.boosting.bins import fit_bins
from securevfl.algorithms.boosting.directions import check_parties, column_directions
from securevfl.algorithms.boosting.growing import TreeLimits, grow_tree
from securevfl.algorithms.boosting.histograms import to_fixed_point
from securevfl.algorithms.boosting.sampling import one_sided
from securevfl.algorithms.boosting.settings import BoostingSettings
from securevfl.algorithms.boosting.splits import SplitRule, leaf_value
from securevfl.algorithms.boosting.trees import Tree, cut_owners, read_trees, write_trees
from securevfl.errors import InputError
from securevfl.training.active_role import ActiveRole
from securevfl.training.objectives import Objective, find_objective
from securevfl.training.regression import Regression
from securevfl.training.state import State, as_dict, as_list, as_tensor
from securevfl.training.tree_terms import draw_rows, fit_leaf_bounds

__all__ = ["BoostingActive", "Forest"]


class Forest:
    """The active party's part of the model.

    Args:
        role: the active party's role.

    Attributes:
        trees: all trees, in the order of training.
        start: initial raw score of every row, (outputs,).
    """

    def __init__(self, role: BoostingActive) -> None:
        self._role = role
        self.trees: list[Tree] = []
        self.start = np.zeros(role.outputs)

    async def setup(self) -> None:
        """Ask the passive parties how many bins their columns have; under encryption, send them the public key.

        Does nothing without training rows: scoring needs neither.
        """
        if len(self._role.table.split.train):
            await self._role.asking.setup()

    def snapshot(self) -> object:
        """See `Part.snapshot`."""
        trees, start = write_trees(self.trees), torch.from_numpy(self.start.copy())
        return {"trees": trees, "start": start, "passive": list(self._role.trained_with)}

    def restore(self, state: object) -> None:
        """See `Part.restore`."""
        role, kept = self._role, as_dict(state)
        self.start = as_tensor(kept["start"]).numpy().copy()
        parties = as_list(kept.get("passive", list(role.trained_with)))
        self.trees = read_trees(as_dict(kept["trees"]), owners=len(parties), outputs=role.outputs, columns=role.width)
        if parties != list(role.trained_with):  # some left since
            now = {name: place for place, name in enumerate(role.trained_with, 1)}
            cut_owners(self.trees, {was: now[name] for was, name in enumerate(parties, 1) if name in now})
        role.scored[:] = 0  # `raw` was computed with the trees that were just replaced

    def get_state(self) -> State:
        """See `Part.get_state`."""
        return as_dict(self.snapshot())

    def load_state(self, state: State) -> None:
        """See `Part.load_state`."""
        self.restore(state)


class BoostingActive(ActiveRole):
    """The active party: computes gradients, grows trees on them and scores rows.

    Attributes:
        objective: the loss, with its derivatives.
        outputs: width of a raw score.
        forest: the model so far.
        raw: cached raw scores of numbered rows, float64 (rows, outputs).
        scored: how many trees, from the first on, each row of `raw` already includes, (rows,).
        fitted: raw scores of the training rows with all trees, (training rows, outputs); None before the first tree.
    """

    config: BoostingSettings

    def build(self) -> None:
        task = self.task
        self.objective: Objective = self.build_objective()
        self.outputs = task.outputs
        self.forest = Forest(self)
        self.parts["forest"] = self.forest
        self.raw = np.zeros((self.table.total_count, self.outputs))
        self.scored = np.zeros(self.table.total_count, dtype=np.int64)
        train = self.table.split.train
        self.fitted: np.ndarray | None = None
        if len(train):
            x = self.columns_of(train)
            bins = fit_bins(x, self.bin_count, self.table.codes)
            config, mine = self.config, self.table
            check_parties((*config.rising, *config.falling), (self.site.name, *self.trained_with))
            directions = column_directions(self.site.name, mine.encoded, mine.codes, config.rising, config.falling)
            if (config.rising or config.falling) and self.outputs > 1:
                raise InputError(
                    "boosting.rising and boosting.falling need a target with two classes or a number, and this one "
                    f"has {self.outputs} classes, where a higher score may mean a lower probability: leave both out"
                )
            self.asking = TreeQueries(self, bins, bins.encode_rows(x).astype(np.int16), directions)

    def build_objective(self) -> Objective:
        """The loss whose derivatives the trees fit."""
        task = self.task
        if isinstance(task, Regression):
            return find_objective(task.loss.name, delta=task.loss.delta, power=task.loss.power)
        return find_objective("logistic") if task.classes == 2 else find_objective("softmax", classes=task.classes)

    def training_targets(self, rows: np.ndarray) -> np.ndarray:
        """Targets of rows, (n,): classes, or numbers in the task's scale."""
        labels, task = self.labels(rows), self.task
        found: np.ndarray = (task.make_targets(labels) if isinstance(task, Regression) else labels).cpu().numpy()
        return found

    def columns_of(self, rows: np.ndarray) -> np.ndarray:
        """This party's columns of numbered rows, float64 (n, columns)."""
        x = self.features(rows)
        return x.reshape(len(rows), -1).double().cpu().numpy() if x.numel() else np.empty((len(rows), self.width))

    @property
    def bin_count(self) -> int:
        """The most bins of a column."""
        return self.config.bin_count(self.protection, len(self.table.split.train))

    @property
    def width(self) -> int:
        """Number of this party's columns."""
        return int(self.features.row_shape.numel())

    def batches(self, epoch: int) -> list[np.ndarray]:
        """One batch with all training rows: each round of boosting needs the gradients of all of them."""
        return [self.training_rows(epoch)]

    async def train_batch(self, rows: np.ndarray) -> float:
        y, weight = self.training_targets(rows), self.table.counts
        importance = np.ones(len(rows)) if weight is None else weight[torch.from_numpy(rows)].double().numpy()
        if self.fitted is None:
            self.fitted = self.begin_scores(rows, y, importance)
        g, h = self.objective.compute_derivatives(self.fitted, y)
        for k in range(self.outputs):
            await self.add_tree(k, g[:, k] * importance, h[:, k] * importance)
        return float((self.objective.compute_losses(self.fitted, y) * importance).sum())

    def begin_scores(self, rows: np.ndarray, y: np.ndarray, importance: np.ndarray) -> np.ndarray:
        """Raw scores at which the rows that train begin, (n, outputs).

        Args:
            rows: their numbers.
            y: their targets.
            importance: their weights.
        """
        self.forest.start = self.objective.initial_score(y, importance)
        return np.tile(self.forest.start, (len(rows), 1))

    def first_scores(self, rows: np.ndarray) -> np.ndarray:
        """Raw scores at which other rows begin, (n, outputs) or (outputs,)."""
        return self.forest.start

    async def add_tree(self, output: int, g: np.ndarray, h: np.ndarray) -> None:
        """Grow a tree and append it to the forest.

        Args:
            output: which column of the raw score it adds to.
            g: first derivatives of the training rows' losses, times the rows' weights, (n,).
            h: second derivatives, likewise.
        """
        config, number = self.config, len(self.forest.trees)
        weight = self.draw_row_weights(number, np.abs(g))
        g, h = g * weight, h * weight
        # Paillier adds integers, and the same integers without encryption give the same trees.
        (g_integers, g_unit), (h_integers, h_unit) = to_fixed_point(g, config.bits), to_fixed_point(h, config.bits)
        least, least_rows = fit_leaf_bounds(len(g), config.min_hessian)
        rule = SplitRule(
            l1=config.l1,
            l2=config.l2,
            min_gain=config.min_gain,
            min_hessian=least,
            least_rows=least_rows,
            scales=(g_unit, h_unit),
        )
        values = np.stack([g_integers, h_integers], axis=1)
        limits = TreeLimits(depth=config.depth, leaves=config.leaves)
        seen, allowed = weight > 0, self.allowed_columns(number)
        await self.asking.begin_tree(values, seen, allowed)
        grown = await grow_tree(
            values,
            (g, h),
            rule,
            limits,
            self.asking,
            output=output,
            seen=seen,
            allowed=allowed,
            directions=self.asking.directions,
        )
        await self.asking.end_tree()
        grown.tree.value = [config.lr * value for value in grown.tree.value]
        self.forest.trees.append(grown.tree)
        if self.fitted is not None:
            self.fitted[:, output] += np.asarray(grown.tree.value)[grown.leaf]

    def draw_row_weights(self, number: int, size: np.ndarray) -> np.ndarray:
        """Draw each training row's weight in a tree, (n,): 1 for a random sample and 0 for the others, or, with `goss`,
        weights by the size of the gradients."""
        if self.config.goss is not None:
            generator = np.random.default_rng(self.seed("rows of a tree", number))
            return one_sided(size, *self.config.goss, generator)
        weight = np.zeros(len(size))
        weight[draw_rows(self.site.seed, number, len(size), self.config.rows)] = 1.0
        return weight

    def allowed_columns(self, number: int) -> np.ndarray | None:
        """Draw which of all parties' columns a tree may split on, bool (columns,); None if it may use all."""
        count = len(self.asking.code_counts)
        if not self.config.splits_own_columns:
            return np.arange(count) >= self.width
        if self.config.columns == 1:
            return None
        generator = np.random.default_rng(self.seed("columns of a tree", number))
        allowed = np.zeros(count, dtype=bool)
        allowed[generator.permutation(count)[: max(1, round(self.config.columns * count))]] = True
        return allowed

    async def score(self, rows: np.ndarray) -> torch.Tensor:
        start = int(self.scored[rows].min(initial=len(self.forest.trees)))
        if (self.scored[rows] != start).any():
            start = 0  # these rows were scored at different times: compute them from the first tree
        if start == 0:
            self.raw[rows] = self.first_scores(rows)
        for tree, leaf in await self._leaves_of(self.forest.trees[start:], rows):
            self.raw[rows, tree.output] += np.asarray(tree.value)[leaf]
        self.scored[rows] = len(self.forest.trees)
        return torch.from_numpy(self.raw[rows])

    async def begin_from(self, part: Mapping[str, Any]) -> None:
        """See `Role.begin_from`: new trees correct the scores of the earlier ones. The others send the sides of the
        training rows at their splits once."""
        await super().begin_from(part)
        self.fitted = (await self.score(self.table.split.train)).numpy().copy()

    async def go_on_without(self) -> None:
        """Fit the values of all leaves anew, tree by tree, as when they were grown: a node that a party split which
        left is a leaf now. The others send the sides of the training rows at their splits once more."""
        rows = self.table.split.train
        y, weight = self.training_targets(rows), self.table.counts
        importance = np.ones(len(rows)) if weight is None else weight[torch.from_numpy(rows)].double().numpy()
        self.fitted = self.begin_scores(rows, y, importance)
        config, trees = self.config, self.forest.trees
        rule = SplitRule(l1=config.l1, l2=config.l2, min_gain=0.0, min_hessian=0.0, scales=(1.0, 1.0))
        g, h = self.objective.compute_derivatives(self.fitted, y)
        for number, (tree, leaf) in enumerate(await self._leaves_of(trees, rows)):
            if number % self.outputs == 0:
                g, h = self.objective.compute_derivatives(self.fitted, y)
            size = len(tree.owner)
            sums = [np.bincount(leaf, weights=one[:, tree.output] * importance, minlength=size) for one in (g, h)]
            tree.value = [config.lr * leaf_value(float(a), float(b), rule) for a, b in zip(*sums, strict=True)]
            self.fitted[:, tree.output] += np.asarray(tree.value)[leaf]
        self.scored[:] = 0

    async def _leaves_of(self, trees: Sequence[Tree], rows: np.ndarray) -> list[tuple[Tree, np.ndarray]]:
        """Each of these trees, and the leaf of numbered rows in it, (n,)."""
        own, sides = self.columns_of(rows), await self.route_rows(trees, len(rows))
        # Each passive party sends its splits of all trees in one array: `taken` counts those of earlier trees.
        taken, found = dict.fromkeys(sides, 0), []
        for tree in trees:
            mine: dict[int, np.ndarray] = {}
            for owner, bits in sides.items():
                count = tree.splits_of(owner)
                mine[owner] = bits[taken[owner] : taken[owner] + count]
                taken[owner] += count
            found.append((tree, tree.leaves_of(own, mine, len(rows))))
        return found

    async def route_rows(self, trees: Sequence[Tree], rows: int) -> Mapping[int, np.ndarray]:
        """Receive from each passive party which rows go left at its splits of these trees.

        Returns:
            Party's number as in `Tree.owner` → bool (splits, rows), tree by tree.
        """
        found = {}
        for name in self.site.passive:
            owner = 1 + self.trained_with.index(name)
            count = sum(tree.splits_of(owner) for tree in trees)
            found[owner] = await TreeQueries.received_sides(self.site.links[name], "boost/paths", count, rows)
        return found

    def remember(self) -> State:
        return {"fitted": None if self.fitted is None else torch.from_numpy(self.fitted)}

    def recall(self, memory: State) -> None:
        self.fitted = None if memory["fitted"] is None else as_tensor(memory["fitted"]).numpy().copy()

    def closing_notes(self) -> list[str]:
        gains: dict[str, float] = {}
        names = [self.site.name, *self.trained_with]
        for tree in self.forest.trees:
            for owner, gain in zip(tree.owner, tree.gain, strict=True):
                if owner >= 0:
                    gains[names[owner]] = gains.get(names[owner], 0.0) + gain
        total = sum(gains.values())
        if not total:
            return ["no tree has a split: no column separates the labels"]
        shares = ", ".join(f"{name} {gain / total:.0%}" for name, gain in sorted(gains.items(), key=lambda it: -it[1]))
        found = [f"{len(self.forest.trees)} trees; share of the gain by party: {shares}"]
        own = np.zeros(len(self.table.encoded))
        for tree in self.forest.trees:
            for owner, column, gain in zip(tree.owner, tree.split, tree.gain, strict=True):
                if owner == 0:
                    own[column] += gain / total
        best = [k for k in np.argsort(-own, kind="stable")[:5] if own[k] > 0]
        if best:
            mine = ", ".join(f"{self.table.encoded[k]} {own[k]:.0%}" for k in best)
            found.append(f"{self.site.name}'s columns with the most gain: {mine}")
        return found
