"""The settings of SplitNN, and what follows from them: plain data, which a job is proposed and checked from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar

from msgspec import Meta

from securevfl.cut import CutSpec, CutUse, Protection
from securevfl.training.algorithm import Algorithm, ReleaseCounts
from securevfl.training.bottoms import Architecture, Bottom, Frozen, bottom_problems
from securevfl.training.plan import Plan

if TYPE_CHECKING:
    from securevfl.training.active_role import ActiveRole
    from securevfl.training.passive_role import PassiveRole

__all__ = ["Rate", "SplitNNSettings", "Width"]

Width = Annotated[int, Meta(ge=1, le=1 << 16)]
Rate = Annotated[float, Meta(gt=0, le=100)]
Decay = Annotated[float, Meta(ge=0, lt=1)]


class SplitNNSettings(Algorithm):
    """The fields of `securevfl.SplitNN`, which describes them."""

    not_frozen: ClassVar[str] = ""
    hidden: Width = 16
    top: tuple[Width, ...] = (16,)
    bottom: Bottom = ()
    lr: Rate = 0.01
    cut_lr: Rate = 0.5
    cut_momentum: Annotated[float, Meta(ge=0, le=0.99)] = 0.0
    cut_weight_decay: Decay = 0.0
    weight_decay: Decay = 0.0

    def problems(self) -> list[str]:
        found = bottom_problems(self.bottom, f"{self.name}.bottom", not_frozen=self.not_frozen)
        return super().problems() + found

    @property
    def trainable(self) -> bool:
        return bool(self.bottom) and not isinstance(self.bottom, Frozen)

    @property
    def draws_secretly(self) -> bool:
        return isinstance(self.bottom, Frozen)

    @property
    def learns_alone(self) -> bool:
        return isinstance(self.bottom, Frozen) and self.bottom.learned is not None

    @property
    def cut(self) -> CutUse:
        rounds = bool(self.cut_momentum or self.cut_weight_decay)
        return CutUse(trainable=self.trainable, frozen=isinstance(self.bottom, Frozen), rounds=rounds)

    def max_releases(self, protection: Protection, plan: Plan, passive: int) -> ReleaseCounts:
        times = plan.epochs * (
            plan.steps or 1
        )  # the number of rows is unknown here, so each of `steps` may be a pass over all of them
        moves = self.trainable or (protection.dp is not None and protection.dp.joint_noise is not None)
        numbers = (
            1 + passive if self.uses_book else 1
        )  # a person in a label book has a row at each party, see `NumberedRows.shared`
        return ReleaseCounts(features=times if moves else 1, labels=times * numbers)

    def values_opened(self, plan: Plan) -> int:
        return self.hidden * (plan.epochs if plan.steps is None else 1)

    def build_architecture(self, outputs: int) -> Architecture:
        """Shapes and rates of the split network.

        Args:
            outputs: width of the logits.
        """
        return Architecture(
            hidden=self.hidden, top=self.top, bottom=self.bottom, lr=self.lr, weight_decay=self.weight_decay
        )

    def cut_spec(self, role: ActiveRole | PassiveRole, width: int) -> CutSpec:
        """The parameters that both sides of a cut of this width agree on."""
        spec = CutSpec(
            width=width,
            lr=self.cut_lr,
            batch_size=role.plan.batch_size,
            momentum=self.cut_momentum,
            weight_decay=self.cut_weight_decay,
        )
        from securevfl.training.cut_noise import widen_ranges

        return widen_ranges(spec, role)

    def notes(self, protection: Protection) -> list[str]:
        dp = protection.dp
        found = []
        if dp is not None and dp.activation_noise is not None and self.trainable:
            found += [
                "ε of activations covers a row's own releases. It does not cover the row's influence on other rows' "
                "activations through the bottoms' weights"
            ]
        if dp is not None and dp.joint_noise is not None:
            found += [
                "ε of z is valid while the norm of the cut's weights is below the declared "
                f"{dp.joint_noise.weight_bound:g}: passive parties start at half of it, and the active party shortens "
                "its steps; under a sealed cut nobody can check that it does",
                "ε of z covers a row's own releases, given the weights. It does not cover the row's influence on other "
                f"rows' z through the weights of the cut{' and of the bottoms' if self.trainable else ''}, which train "
                "on exact features",
            ]
        if dp is not None and dp.model is not None and protection.on_shares:
            scored = (
                "Validation metrics and test predictions use the noisy model, but the validation and test rows "
                "themselves get no noise"
                if protection.opens_metrics
                else "Test predictions use the noisy model, but the test rows themselves get no noise"
            )
            found += [f"ε of the model covers the training rows. {scored}"]
        return found
