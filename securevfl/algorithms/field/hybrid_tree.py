"""HybridTree: the active party grows the upper layers of a tree, passive parties the lower ones (arXiv 2310.11865).

Li et al., ICLR 2024. The paper's *host* has labels and columns of all of its rows, a *guest* has other columns of some
of them. A theorem moves the guests' splits below the host's, so a tree can be grown layer by layer instead of node by
node:

1. The host grows the upper layers on all of its labelled rows, by its own columns.
2. It sends each guest the gradients of the common rows and each row's leaf in the upper layers.
3. Under each such leaf a guest grows the lower layers by its own columns, and returns the value of each row's leaf.
4. A row's value is the mean over the guests; a row that no guest has gets the value of its leaf of the upper layers.

So a tree takes one message each way, whatever its depth. The paper encrypts gradients and values additively; then a
guest cannot compare splits by their gains, and our sources do not show how it chooses them. Here both cross in the
clear.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, ClassVar

import numpy as np
import torch
from msgspec import Meta

from securevfl.algorithms.boosting.bins import Bins, fit_bins
from securevfl.algorithms.boosting.growing import GrownTree, TreeLimits, grow_tree
from securevfl.algorithms.boosting.histograms import to_fixed_point
from securevfl.algorithms.boosting.own_model import OwnSums
from securevfl.algorithms.boosting.splits import SplitRule
from securevfl.algorithms.boosting.trees import Tree, read_trees, write_trees
from securevfl.cut import Protection
from securevfl.data import View
from securevfl.errors import InputError, ProtocolError
from securevfl.privacy import Link, fan_out
from securevfl.training.active_role import ActiveRole
from securevfl.training.algorithm import Algorithm, Subsets
from securevfl.training.bookkeeping import Bookkeeping
from securevfl.training.fits import Fits
from securevfl.training.objectives import find_objective
from securevfl.training.passive_role import PassiveRole
from securevfl.training.plan import Budget, tree_budget
from securevfl.training.role import Role
from securevfl.training.setting import Setting
from securevfl.training.state import State, as_dict, as_tensor
from securevfl.training.tree_terms import fit_bin_count
from securevfl.transport import ACTIVE, PASSIVE, Exchange, Kind, Sight

__all__ = ["HybridTree"]

_BITS = 20
"""Fractional bits of the fixed-point numbers that gradients are summed in."""
_SEEN = Sight(of="labels", severity="leak", through="gradients of the loss")
_STANDS = Sight(of="labels", severity="leak", through="which rows stand in one node")
_UPPER = Sight(of="features", severity="leak", through="which rows lie in one leaf of its columns")
_VALUES = Sight(of="features", severity="leak", through="which rows lie in one leaf of its columns")
_BETWEEN = (
    "the gradients of two trees tell what was added in between: the value of each common row's leaf, and so which rows "
    "lie in one leaf of its columns"
)
_SIDES = Sight(of="features", severity="leak", through="which rows lie in one leaf of the sender's columns")


class HybridTree(Algorithm):
    """Boosting with upper layers of the active party's columns and lower layers of the passive parties'.

    Each epoch adds one tree, or one for each class with three or more classes.

    Attributes:
        lr: shrinkage of each tree.
        host_depth: layers of the active party.
        guest_depth: layers of each passive party below them.
        bins: most bins of a column; None for as many as fit the rows.
        l2: penalty λ of a leaf's square.
        min_hessian: least sum of second derivatives on either side of a split.
    """

    name: ClassVar[str] = "hybrid_tree"
    label: ClassVar[str] = "HybridTree"
    view: ClassVar[View] = "coded"
    fits: ClassVar[Fits] = Fits()
    uses_others: ClassVar[bool] = True
    subsets: ClassVar[Subsets] = "alone"
    chooses_by_loss: ClassVar[bool] = True
    reveals: ClassVar[str] = "sends the gradient of each common row to the passive parties"
    lr: Annotated[float, Meta(gt=0, le=1)] = 0.1
    host_depth: Annotated[int, Meta(ge=1, le=12)] = 3
    guest_depth: Annotated[int, Meta(ge=1, le=12)] = 2
    bins: Annotated[int, Meta(ge=2, le=255)] | None = None
    l2: Annotated[float, Meta(ge=0, le=1e6)] = 1.0
    min_hessian: Annotated[float, Meta(ge=0, le=1e6)] = 1.0

    def fit_budget(self, rows: int) -> Budget:
        return tree_budget(rows)

    @property
    def trainable(self) -> bool:
        return False

    def check_protection(self, protection: Protection) -> None:
        """See `Algorithm.check_protection`.

        Raises:
            InputError: the job asks for differential privacy, which this algorithm has nowhere.
        """
        super().check_protection(protection)
        if protection.dp is not None:
            raise InputError(
                f"{self.name} has no noise on gradients, nodes or leaves' values: leave dp out, or use boosting, which "
                "can draw labels"
            )

    def exchanges(self, protection: Protection, passive: int) -> tuple[Exchange, ...]:
        if not passive:
            return ()
        return (
            Exchange(
                "hybrid/gradients",
                Kind.GRADIENT,
                ACTIVE,
                PASSIVE,
                "gradients of the loss of each common row, and its leaf of the upper layers",
                reveals="the gradient of each row's loss, and with it the label; which rows lie in one leaf of its "
                "columns, in every tree",
                severity="leak",
                # Who knows the label and its own value computes from two gradients what the others added in between.
                of_others=_BETWEEN if passive > 1 else "",
                others_severity="leak" if passive > 1 else "ok",
                sights=(_SEEN, _STANDS, _UPPER),
                others_sights=(_VALUES,) if passive > 1 else (),
            ),
            Exchange(
                "hybrid/values",
                Kind.STATISTIC,
                PASSIVE,
                ACTIVE,
                "the value of each common row's leaf of the lower layers",
                reveals="which common rows lie in one leaf of the sender's columns, in every tree",
                severity="leak",
                sights=(_VALUES,),
            ),
            Exchange(
                "hybrid/leaves",
                Kind.CONTROL,
                ACTIVE,
                PASSIVE,
                "the leaf of the upper layers that each scored row stands in, tree by tree",
                reveals="which scored rows lie in one leaf of its columns, in every tree",
                severity="leak",
                sights=(_STANDS, _UPPER),
            ),
            Exchange(
                "hybrid/scores",
                Kind.STATISTIC,
                PASSIVE,
                ACTIVE,
                "the sum over trees of the values of each scored row's leaf",
                reveals="a number of each scored row that its sender's columns decide; between two epochs, which rows "
                "lie in one leaf of them",
                severity="leak",
                sights=(_SIDES,),
            ),
        )

    def rule(self, scales: tuple[float, float]) -> SplitRule:
        """The rule by which splits are chosen, at these scales of g and h."""
        return SplitRule(l1=0.0, l2=self.l2, min_gain=0.0, min_hessian=self.min_hessian, scales=scales)

    def active(self, setting: Setting) -> ActiveRole:
        return _Host(self, setting)

    def passive(self, setting: Setting) -> PassiveRole:
        return _Guest(self, setting)


async def grow_layers(
    config: HybridTree, bins: Bins, codes: np.ndarray, g: np.ndarray, h: np.ndarray, depth: int, output: int
) -> GrownTree:
    """Grow a tree of one party's columns, its leaves shrunk.

    Args:
        config: the algorithm.
        bins: of the columns.
        codes: of the rows, int16 (n, columns).
        g: first derivatives, (n,).
        h: second derivatives, (n,).
        depth: of the tree.
        output: of the raw score that it adds to.
    """
    (whole_g, unit_g), (whole_h, unit_h) = to_fixed_point(g, _BITS), to_fixed_point(h, _BITS)
    values = np.stack([whole_g, whole_h], axis=1)
    limits, sums = TreeLimits(depth=depth, leaves=0), OwnSums(bins, codes, values)
    grown = await grow_tree(values, (g, h), config.rule((unit_g, unit_h)), limits, sums, output=output)
    grown.tree.value = [config.lr * value for value in grown.tree.value]
    return grown


class _Books(Bookkeeping):
    """The upper layers also learn from rows that are not aligned."""

    def rows_to_learn_from(self) -> np.ndarray:
        return np.concatenate([self.role.table.split.train, self.role.table.rows_only_at(self.role.site.active)])


class _TreeRole(Role):
    """Base of both roles: columns in bins, and one batch of all training rows."""

    config: HybridTree

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


@dataclass
class _Upper:
    """The upper layers of all trees, a part of the host's role.

    Attributes:
        outputs: width of a raw score.
        columns: of the host.
        forget: called when the trees are replaced, because cached scores of rows came from the old ones.
        trees: tree by tree.
        taught: for each tree and node, whether common rows reached it, so that guests have layers below it.
        start: initial raw score of every row, (outputs,).
    """

    outputs: int
    columns: int
    forget: Callable[[], None]
    trees: list[Tree] = field(default_factory=list)
    taught: list[np.ndarray] = field(default_factory=list, repr=False)
    start: np.ndarray = field(default_factory=lambda: np.empty(0), repr=False)

    async def setup(self) -> None:
        """See `Part.setup`."""

    def snapshot(self) -> object:
        """See `Part.snapshot`."""
        taught = np.concatenate([np.empty(0, bool), *self.taught])
        return {
            "trees": write_trees(self.trees),
            "taught": torch.from_numpy(taught),
            "start": torch.from_numpy(self.start.copy()),
        }

    def restore(self, state: object) -> None:
        """See `Part.restore`.

        Raises:
            InputError: a damaged part.
        """
        kept = as_dict(state)
        trees = read_trees(as_dict(kept["trees"]), owners=0, outputs=self.outputs, columns=self.columns)
        taught, start = as_tensor(kept["taught"]).numpy(), as_tensor(kept["start"]).numpy().copy()
        sizes = [len(tree.owner) for tree in trees]
        if taught.dtype != bool or taught.shape != (sum(sizes),) or (trees and start.shape != (self.outputs,)):
            raise InputError("a part of HybridTree whose arrays have different lengths: it is damaged")
        self.trees, self.start = trees, start
        self.taught = np.split(taught.copy(), np.cumsum(sizes)[:-1]) if sizes else []
        self.forget()

    def get_state(self) -> State:
        """See `Part.get_state`."""
        return as_dict(self.snapshot())

    def load_state(self, state: State) -> None:
        """See `Part.load_state`."""
        self.restore(state)

    def leaves_of(self, x: np.ndarray, start: int) -> np.ndarray:
        """The leaf of each row in the trees from `start`, int32 (trees, n)."""
        found = [tree.leaves_of(x, {}, len(x)) for tree in self.trees[start:]]
        return np.stack(found).astype(np.int32) if found else np.empty((0, len(x)), np.int32)


class _Host(_TreeRole, ActiveRole):
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
        self.upper = _Upper(self.task.outputs, int(self.features.row_shape.numel()), self._forget_scores)
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

    def _passive_links(self) -> list[Link]:
        return [self.site.links[name] for name in self.site.passive]

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

        await fan_out(self._passive_links(), send)
        found = [
            await self._receive_numbers(link, "hybrid/values", "values", (len(leaf),)) for link in self._passive_links()
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

            await fan_out(self._passive_links(), send)
            shape = (len(rows), outputs)
            self.raw[rows] += np.mean(
                [await self._receive_numbers(link, "hybrid/scores", "scores", shape) for link in self._passive_links()],
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


@dataclass
class _Lower:
    """A guest's layers of all trees, a part of its role.

    Attributes:
        outputs: width of a raw score.
        columns: of the guest.
        trees: of each tree, the leaf of the upper layers → the subtree below it.
    """

    outputs: int
    columns: int
    trees: list[Mapping[int, Tree]] = field(default_factory=list)

    async def setup(self) -> None:
        """See `Part.setup`."""

    def snapshot(self) -> object:
        """See `Part.snapshot`."""
        flat = [(number, leaf, tree) for number, each in enumerate(self.trees) for leaf, tree in each.items()]
        return {
            "trees": write_trees([tree for *_, tree in flat]),
            "places": torch.tensor([[number, leaf] for number, leaf, _ in flat], dtype=torch.int64).reshape(-1, 2),
            "count": len(self.trees),
        }

    def restore(self, state: object) -> None:
        """See `Part.restore`.

        Raises:
            InputError: a damaged part.
        """
        kept = as_dict(state)
        flat = read_trees(as_dict(kept["trees"]), owners=0, outputs=self.outputs, columns=self.columns)
        places, count = as_tensor(kept["places"]).numpy(), kept["count"]
        if not isinstance(count, int) or places.shape != (len(flat), 2) or not 0 <= count <= max(len(flat), 0):
            raise InputError("a part of HybridTree whose arrays have different lengths: it is damaged")
        found: list[dict[int, Tree]] = [{} for _ in range(count)]
        for (number, leaf), tree in zip(places.tolist(), flat, strict=True):
            if not 0 <= number < count:
                raise InputError("a part of HybridTree has a subtree that belongs to no tree: it is damaged")
            found[number][leaf] = tree
        self.trees = [*found]

    def get_state(self) -> State:
        """See `Part.get_state`."""
        return as_dict(self.snapshot())

    def load_state(self, state: State) -> None:
        """See `Part.load_state`."""
        self.restore(state)


class _Guest(_TreeRole, PassiveRole):
    """A passive party: grows the lower layers below each leaf of the upper ones.

    Attributes:
        lower: its layers.
    """

    def build(self) -> None:
        outputs = 1 if self.table.classes <= 2 else self.table.classes
        self.lower = _Lower(outputs, int(self.features.row_shape.numel()))
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
