"""Fit the cut to a job's noise: the ranges that both sides plan for, and the active party's side."""

from __future__ import annotations

import math
from dataclasses import replace

from securevfl.cut import ActiveCut, BoundedCut, CutSpec, ObservedCut
from securevfl.privacy.joint import largest_norm
from securevfl.training.active_role import ActiveRole
from securevfl.training.noise import noisy_parties
from securevfl.training.role import Role

__all__ = ["active_side", "widen_ranges"]

_TAIL = 8.5
"""|Φ⁻¹| of 52 random bits is below 8.3."""

_FAR = 4.0
"""Factor on the range at the cut for numeric targets, whose errors are unbounded, unlike those of classes. It suffices
for targets some hundred standard deviations away; beyond, the loss 'huber' bounds errors."""


def widen_ranges(spec: CutSpec, role: Role) -> CutSpec:
    """`spec` with ranges wide enough for clipped values plus noise; the same at all parties.

    Args:
        spec: of the cut, with the ranges of exact values.
        role: its job and plan determine the amount of noise.
    """
    dp, plan = role.protection.dp, role.plan
    activations = spec.activation_bound
    gradients = spec.gradient_bound * (1 if plan.number is None else _FAR) * max(plan.heaviest, 1.0)
    gradients *= math.sqrt(role.table.classes) if plan.several else 1.0
    if dp is not None and dp.features is not None:
        scale = max(dp.joint_noise.weight_bound, 1.0) if dp.joint_noise is not None else 1.0
        sigma = dp.features.sigma(role.books.activation_times(plan.epochs))
        activations = max(activations, dp.features.clip * (1 + 2 * _TAIL * sigma * scale))
    if dp is not None and dp.gradient_noise is not None:
        gradients *= dp.gradient_noise.clip * (
            1 + 2 * _TAIL * dp.gradient_noise.sigma(role.books.label_times(plan.epochs))
        )
    return replace(
        spec,
        batch_size=plan.batch_size,
        device=plan.device,
        trainable=role.config.trainable,
        widest=role.books.widest,
        weight_bound=math.inf if dp is None or dp.joint_noise is None else dp.joint_noise.weight_bound,
        activation_bound=activations,
        gradient_bound=gradients,
    )


def active_side(role: ActiveRole, spec: CutSpec) -> ActiveCut:
    """The active party's side of the cut, which also bounds z if the job asks for noise on z."""
    site, dp = role.site, role.protection.dp
    cut = role.protection.active_cut(site, spec)
    if site.observer.listening:
        cut = ObservedCut(cut, site, spec)
    if dp is None or not site.passive:
        return cut
    if dp.joint_noise is not None:
        parties, sigma = len(site.passive), dp.joint_noise.sigma(role.books.activation_times(role.plan.epochs))
        bound = largest_norm(
            clip=dp.joint_noise.clip,
            weight_bound=dp.joint_noise.weight_bound,
            parties=parties,
            sigma=sigma * (parties / noisy_parties(role.protection, parties)) ** 0.5,
            width=spec.width,
        )
        cut = BoundedCut(cut, spec, clip=dp.joint_noise.clip, longest=bound, notes=site.notes)
    return cut
