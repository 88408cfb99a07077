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

from typing import Annotated, ClassVar

from msgspec import Meta

from securevfl.algorithms.boosting.splits import SplitRule
from securevfl.cut import Protection
from securevfl.data import View
from securevfl.errors import InputError
from securevfl.training.algorithm import Algorithm, Subsets
from securevfl.training.plan import Budget, tree_budget
from securevfl.transport import ACTIVE, PASSIVE, Exchange, Kind, Sight

__all__ = ["HybridSettings"]

_SEEN = Sight(of="labels", severity="leak", through="gradients of the loss")
_STANDS = Sight(of="labels", severity="leak", through="which rows stand in one node")
_UPPER = Sight(of="features", severity="leak", through="which rows lie in one leaf of its columns")
_VALUES = Sight(of="features", severity="leak", through="which rows lie in one leaf of its columns")
_BETWEEN = (
    "the gradients of two trees tell what was added in between: the value of each common row's leaf, and so which rows "
    "lie in one leaf of its columns"
)
_SIDES = Sight(of="features", severity="leak", through="which rows lie in one leaf of the sender's columns")


class HybridSettings(Algorithm):
    """The settings and messages of HybridTree, as roles use them: see `HybridTree`."""

    view: ClassVar[View] = "coded"
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
            InputError: the job asks for differential privacy, which this algorithm does not have.
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
