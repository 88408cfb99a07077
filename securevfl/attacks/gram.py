"""Reconstruct features up to a rotation without known records, from z, the returned gradients and the public update
rule.

X (rows, d) are the concatenated features of all passive parties, W (d, h) their weights at the cut, and z = X W of a
batch. With identity bottoms the step is ``W ← W − XᵀS`` with S = η ∂L/∂z, so that ``z_t − z_{t+1} = X XᵀS_t``: linear
in the Gram matrix of the rows. That matrix gives all distances and angles between clients; a few known records resolve
the remaining rotation.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field, replace

import numpy as np

from securevfl.attacks.transcript import CutRule, Observation, Observations, PartyView

__all__ = ["GramObservations", "factor_gram", "full_batch", "gram_error", "observations_of", "symmetric_fit"]


@dataclass(frozen=True)
class GramObservations:
    """The active party's observations after a job with identity bottoms: T steps on n rows, E observations of m others.

    Attributes:
        batches: T arrays of row numbers below n.
        z: T arrays (B, h).
        steps: T arrays (B, h), η ∂L/∂z.
        scored_z: z of the rows scored after each epoch, numbered from n, (E, m, h).
        rule: the update rule of the weights.
        width: d, columns of all passive parties together.
        order: number of each row of the estimate, (n + m,).
    """

    batches: list[np.ndarray] = field(repr=False)
    z: list[np.ndarray] = field(repr=False)
    steps: list[np.ndarray] = field(repr=False)
    scored_z: np.ndarray = field(repr=False)
    rule: CutRule
    width: int
    order: np.ndarray = field(repr=False)

    @property
    def training_rows(self) -> int:
        """Number of training rows."""
        return len(self.order) - int(self.scored_z.shape[1])

    @property
    def per_epoch(self) -> int:
        """Steps per epoch."""
        return len(self.z) // len(self.scored_z)

    @property
    def is_solvable(self) -> bool:
        """Whether there are enough observations: the numbers of E − 1 of them for d columns."""
        return len(self.scored_z) > 1 and (len(self.scored_z) - 1) * self.scored_z.shape[2] >= self.width

    def after_epochs(self, epochs: int) -> GramObservations:
        """Return the observations of a job that ended after `epochs` epochs."""
        end = epochs * self.per_epoch
        return replace(
            self, batches=self.batches[:end], z=self.z[:end], steps=self.steps[:end], scored_z=self.scored_z[:epochs]
        )

    def stack_observations(self) -> np.ndarray:
        """Return all observations of each row, concatenated, (n + m, E h)."""
        h = self.scored_z.shape[2]
        found = np.zeros((len(self.order), len(self.scored_z) * h))
        for t, (rows, z) in enumerate(zip(self.batches, self.z, strict=True)):
            at = t // self.per_epoch * h
            found[rows, at : at + h] = z
        found[self.training_rows :] = np.hstack(list(self.scored_z))
        return found


def observations_of(view: PartyView) -> GramObservations | None:
    """Extract the input of these attacks from an active party's view; None if the view does not fit.

    It fits if all passive parties used the same rows, z is their sum, and each epoch used every training row once and
    then scored the validation rows.
    """
    if view.rule is None or not view.passive or not len(view.valid):
        return None
    first, *others = view.passive
    seen, returned = view.observations.get(("z", first), Observations()), view.steps.get(first, Observations())
    trained = seen.training().all
    for name in others:
        other = view.observations.get(("z", name), Observations()).all
        if len(other) != len(seen.all) or not all(
            _subspace_overlap(a, b) for a, b in zip(seen.all, other, strict=True)
        ):
            return None
    if len({one.values.shape[1] for one in seen.all}) != 1:  # stages of different widths
        return None
    epochs = max((one.epoch for one in trained), default=0)
    once = np.sort(view.train)
    for epoch in range(1, epochs + 1):
        rows = [one.rows for one in trained if one.epoch == epoch]
        if not rows or not np.array_equal(np.sort(np.concatenate(rows)), once):
            return None
    held = [one for one in seen.scoring().all if np.isin(one.rows, view.valid).all()]
    whole = np.concatenate([one.values for one in held]) if held else np.empty((0, 1))
    numbers = np.concatenate([one.rows for one in held]) if held else np.arange(0)
    if len(returned.all) != len(trained) or len(whole) < epochs * len(view.valid):
        return None
    scored_z = whole[: epochs * len(view.valid)].reshape(epochs, len(view.valid), -1)
    order = np.concatenate([view.train, numbers[: len(view.valid)]])
    place = np.full(view.aligned, -1)
    place[order] = np.arange(len(order))
    return GramObservations(
        batches=[place[one.rows] for one in trained],
        z=[one.values for one in trained],
        steps=[one.values for one in returned.all],
        scored_z=scored_z,
        rule=view.rule,
        width=sum(view.widths.values()),
        order=order,
    )


def _subspace_overlap(one: Observation, other: Observation) -> bool:
    return (
        np.array_equal(one.rows, other.rows)
        and one.values.shape == other.values.shape
        and bool((one.values == other.values).all())
    )


def symmetric_fit(c: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return the positive semidefinite P (d, d) nearest to the least-squares solution of P C = Y, (d, k) each."""
    p = np.linalg.lstsq(c.T, y.T, rcond=None)[0]
    value, v = np.linalg.eigh((p + p.T) / 2)
    return np.asarray((v * np.maximum(value, 0)) @ v.T)


def full_batch(seen: GramObservations) -> np.ndarray:
    """Return rows X̂ (n, d) with X̂ X̂ᵀ ≈ X Xᵀ, if each step uses all rows and the rule is plain SGD.

    In the space U that all z_t span, U P Uᵀ S = ΔZ gives P, and X Xᵀ = U P Uᵀ.
    """
    order = [np.argsort(rows) for rows in seen.batches]
    z = [part[rows] for part, rows in zip(seen.z, order, strict=True)]
    steps = np.hstack([part[rows] for part, rows in zip(seen.steps, order, strict=True)][:-1])
    u = np.linalg.svd(np.hstack(z), full_matrices=False)[0][:, : seen.width]
    change = np.hstack([one - two for one, two in itertools.pairwise(z)])
    return np.asarray(u @ _square_root(symmetric_fit(u.T @ steps, u.T @ change)))


def _square_root(p: np.ndarray) -> np.ndarray:
    """Return L with L Lᵀ = P."""
    value, v = np.linalg.eigh(p)
    return np.asarray(v * np.sqrt(np.maximum(value, 0)))


def factor_gram(seen: GramObservations, turns: int = 60) -> tuple[np.ndarray, float]:
    """Return rows X̂ (n + m, d) with X̂ X̂ᵀ ≈ X Xᵀ from mini-batches, and the rms of the unexplained part of z.

    After an epoch all validation rows are observed with the same weights: the concatenated observations have rank d,
    and their singular vectors give X R and R⁻¹W_e for some unknown R (d, d). Weights inside an epoch are first assumed
    to move evenly. Then alternating least squares: each training row from all its observations; P = R⁻¹R⁻ᵀ from the
    change of weights over each epoch, R⁻¹(W_e − W_{e+1}) = P Σ_t (X R)ᵀS_t; then the weights inside the epochs, step by
    step.
    """
    n, d, per = seen.training_rows, seen.width, seen.per_epoch
    epochs, _, h = seen.scored_z.shape
    u, s, v = np.linalg.svd(np.hstack(list(seen.scored_z)), full_matrices=False)
    ends = v[:d].reshape(d, epochs, h).transpose(1, 0, 2)
    x = np.zeros((len(seen.order), d))
    x[n:] = u[:, :d] * s[:d]
    share = np.arange(per)[:, None, None] / per
    before = np.concatenate([2 * ends[:1] - ends[1:2], ends])  # the first by extrapolating backwards
    path = np.concatenate([a + share * (b - a) for a, b in itertools.pairwise(before)])
    size = float(np.sqrt(sum((z**2).sum() for z in seen.z)))
    p, best = np.zeros((d, d)), (np.inf, x)
    for turn in range(turns):
        x[:n] = _solve_rows(seen, path)
        parts = zip(seen.batches, path, seen.z, strict=True)
        left = float(np.sqrt(sum(((x[rows] @ w - z) ** 2).sum() for rows, w, z in parts))) / size
        if turn and left < best[0]:
            best = left, x @ _square_root(p)
        if turn and left < 1e-7:  # z has the 24 bits of a float32
            break
        moved, decayed = np.zeros((d, h)), np.zeros((d, h))
        through_p, beside = [], []  # the change of weights in each step is P times the first plus the second
        for rows, step, w in zip(seen.batches, seen.steps, path, strict=True):
            moved = seen.rule.momentum * moved + x[rows].T @ step
            decayed = seen.rule.momentum * decayed + seen.rule.decay * w
            through_p.append(moved)
            beside.append(decayed)
        a, b = (np.stack(part).reshape(epochs, per, d, h) for part in (through_p, beside))
        change = ends[:-1] - ends[1:] - b[1:].sum(axis=1)
        p = symmetric_fit(np.hstack(list(a[1:].sum(axis=1))), np.hstack(list(change)))
        step = p @ a + b
        after = np.cumsum(step[:, ::-1], axis=1)[:, ::-1]  # from before each step to the end of its epoch
        path = ends[:, None] + after
        path[1:] += (ends[:-1] - ends[1:] - after[1:, 0])[:, None] * (1 - share)
        path = path.reshape(-1, d, h)
    return best[1], best[0]


def _solve_rows(seen: GramObservations, path: np.ndarray) -> np.ndarray:
    """Solve for each training row from its observations at these weights, (n, d)."""
    n, d = seen.training_rows, seen.width
    square, right = np.zeros((n, d, d)), np.zeros((n, d, 1))
    for rows, z, w in zip(seen.batches, seen.z, path, strict=True):
        square[rows] += w @ w.T
        right[rows] += (z @ w.T)[:, :, None]
    square += 1e-13 * np.trace(square, axis1=1, axis2=2)[:, None, None] * np.eye(d)
    return np.asarray(np.linalg.solve(square, right)[:, :, 0])


def gram_error(found: np.ndarray, truth: np.ndarray) -> float:
    """‖X̂X̂ᵀ − XXᵀ‖ / ‖XXᵀ‖ without building either product; both arguments are (n, d)."""
    cross, own, true = found.T @ truth, found.T @ found, truth.T @ truth
    return float(np.sqrt(max((own**2).sum() + (true**2).sum() - 2 * (cross**2).sum(), 0)) / np.linalg.norm(true))
