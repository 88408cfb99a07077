"""The bound R on the weights of the cut, which noise on z is sized by: the active party's part in holding it.

Nobody has the weights of a sealed cut, so nobody can measure their norm. It is held by what each side knows. Every
passive party begins with a block of norm R/2 at most. A step moves block p by ``a_pᵀ S`` with ``S = η ∂L/∂z``; rows of
a_p are clipped to norm C, and the active party knows S, so that it knows a bound on how far the block moves:

    ‖a_pᵀ S‖ ≤ C · min(√n ‖S‖, Σ_i ‖S_i‖)        (n rows: ‖a_p‖ ≤ √n C, and the triangle inequality)

It adds these up, with what rounding and an approximate scheme can add, and shortens S where the sum would pass R. Decay
shrinks the sum: ``1 − ηλ`` of it is left after a step. Momentum μ carries a step on, ``1/(1 − μ)`` of it altogether.

This holds R whatever the rows are, and rests on the active party's doing it. Where a passive party has its block in the
clear (`plain`), it also looks at the norm itself; under a sealed cut it cannot.
"""

from __future__ import annotations

import math

import numpy as np
import torch

from securevfl.cut.base import ActiveCut
from securevfl.cut.observed_cut import WrappedCut
from securevfl.cut.spec import CutSpec
from securevfl.errors import InputError, RangeError
from securevfl.privacy import Noised, map_noised
from securevfl.privacy.joint import check_norms

__all__ = ["BoundedCut"]

_SWING = 1.25
"""With momentum and decay, weights that decay swing past zero: |W| stays below this much of where it began (measured
over all rates; the largest found is 1.09)."""
_KEPT_BACK = 1 / 64
"""Of R, which steps do not use: it is for what rounding adds once they have used up the rest."""


class BoundedCut(WrappedCut):
    """Shortens steps so that the weights stay within their bound, and stops where z is longer than that allows.

    Args:
        cut: the side itself.
        spec: of the cut; `weight_bound` is R.
        clip: C, largest norm of a row of one party's activations.
        longest: largest norm of a row of z, see `securevfl.privacy.joint.largest_norm`.
        notes: of the party's site; tells how many steps were shortened.

    Attributes:
        reached: what the norm of every block stays below, R at most.
        shortened: how many steps were.
    """

    def __init__(self, cut: ActiveCut, spec: CutSpec, *, clip: float, longest: float, notes: list[str]) -> None:
        super().__init__(cut)
        self.reached = 0.0
        self.shortened = 0
        self._spec = spec
        self._clip = clip
        self._longest = longest
        self._notes = notes
        self._told: int | None = None
        self._spread = 0.0

    async def setup(self) -> None:
        """See `ActiveCut.setup`.

        Raises:
            InputError: a bound so small that the fixed point's rounding passes it.
        """
        await super().setup()
        bound = self._spec.weight_bound
        self._spread = math.sqrt(max(self.widths.values(), default=1) * self._spec.width)
        rounded = self._spread * 2.0**-25
        both = self._spec.momentum > 0 and self._spec.weight_decay > 0
        self.reached = (bound / 2 + rounded) * (_SWING if both else 1.0)
        if not self.reached <= bound * (1 - _KEPT_BACK):
            raise InputError(
                f"weight_bound is {bound:.4g}, and rounding alone moves the weights of the cut by {rounded:.2g}: "
                "declare a larger bound"
            )

    async def forward(self, rows: int, *, train: bool) -> torch.Tensor:
        """See `ActiveCut.forward`.

        Raises:
            RangeError: a row of z is longer than the bound allows: a passive party did not keep to it.
        """
        z = await super().forward(rows, train=train)
        check_norms(z, self._longest)
        return z

    async def backward(self, gradient: torch.Tensor | Noised[torch.Tensor]) -> None:
        """See `ActiveCut.backward`; the gradient is shortened where the weights could pass their bound.

        Raises:
            RangeError: a gradient that is not finite, or a bound that rounding could pass even without a step.
        """
        await super().backward(map_noised(gradient, self._shorten_gradient))

    def _shorten_gradient(self, gradient: torch.Tensor) -> torch.Tensor:
        """`gradient`, (n, h) or (parties, n, h), times what is left of the bound over what it could use."""
        spec, bound = self._spec, self._spec.weight_bound
        steps = spec.lr * gradient.detach().double().cpu().numpy()
        if not np.isfinite(steps).all():
            raise RangeError("a gradient at the cut is not finite: training diverged; lower the learning rates")
        carried = 1 / (1 - spec.momentum)
        before = self.reached * (1.0 if spec.momentum else 1 - spec.lr * spec.weight_decay)
        before += carried * self._spread * (bound * 2.0**-24 + self.step_error)
        rounded = carried * self._clip * gradient.shape[-2] * math.sqrt(spec.width) * 2.0 ** -(spec.fixed_point.fs + 1)
        moved = carried * self._clip * _bound_movement(steps)
        room = bound * (1 - _KEPT_BACK) - before - rounded
        if moved <= room:
            self.reached = before + rounded + moved
            return gradient
        if not before <= bound:
            raise RangeError(
                f"weight_bound is {bound:.4g}, and rounding could pass it now, so that ε would not hold: declare a "
                "larger bound, or take a lower learning rate at the cut, or fewer epochs"
            )
        self._count_shortened_step()
        if room <= 0:
            self.reached = before
            return torch.zeros_like(gradient)
        self.reached = before + rounded + room
        return gradient * (room / moved)

    def _count_shortened_step(self) -> None:
        self.shortened += 1
        text = (
            f"to hold weight_bound = {self._spec.weight_bound:g}, {self.shortened} steps of the cut's weights were "
            "shortened: a larger bound, a lower cut_lr or more cut_weight_decay leaves them more room"
        )
        if self._told is None:
            self._told = len(self._notes)
            self._notes.append(text)
        self._notes[self._told] = text

    def snapshot(self) -> object:
        """See `ActiveCut.snapshot`."""
        return {"cut": super().snapshot(), "reached": self.reached}

    def restore(self, state: object) -> None:
        """See `ActiveCut.restore`."""
        if not isinstance(state, dict) or not isinstance(state.get("reached"), float):
            raise TypeError("not a snapshot of this cut")
        super().restore(state["cut"])
        self.reached = state["reached"]


def _bound_movement(steps: np.ndarray) -> float:
    """``min(√n ‖S‖, Σ_i ‖S_i‖)``, the largest over the parties: how far rows of norm 1 can move a block."""
    parts = steps[None] if steps.ndim == 2 else steps
    found = (
        min(math.sqrt(len(s)) * float(np.linalg.norm(s, 2)), float(np.linalg.norm(s, axis=1).sum())) for s in parts
    )
    return max(found, default=0.0)
