"""Train both sides of a cut for some steps, over links that pass one declared message at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

import numpy as np
import torch

from securevfl.cut import CutSpec, Protection
from securevfl.party_context import PartyContext
from securevfl.privacy import Noised, NoiseShare, Policy, strip_noise_mark
from securevfl.testing.failure import CheckFailed
from securevfl.testing.linked_parties import link_in_memory

__all__ = ["SPEC", "WIDTHS", "CutBatch", "CutRun", "link_cut_parties", "make_batches", "run_concurrently", "run_cut"]

SPEC = CutSpec(width=3, lr=0.5, batch_size=16, activation_bound=8.0)
"""The cut that checks use, with a few fields changed per check."""
WIDTHS = {"p1": 4, "p2": 2, "p3": 3}
"""Passive party → width of its activations."""
_LONGEST = 120.0
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class CutBatch:
    """The inputs of one step.

    Attributes:
        activations: party → (rows, d_p).
        gradient: ∂L/∂z, in the shape of z.
        noise: party → its share of the noise on z; empty for none.
    """

    activations: Mapping[str, torch.Tensor | Noised[torch.Tensor]] = field(repr=False)
    gradient: torch.Tensor | Noised[torch.Tensor] = field(repr=False)
    noise: Mapping[str, NoiseShare] = field(default_factory=dict, repr=False)

    @property
    def rows(self) -> int:
        """How many rows every party feeds."""
        return len(next(strip_noise_mark(a) for a in self.activations.values()))

    @property
    def values(self) -> dict[str, torch.Tensor]:
        """Activations without their noise marks."""
        return {name: strip_noise_mark(a) for name, a in self.activations.items()}


@dataclass
class CutRun:
    """The observations of a run.

    Attributes:
        weights: party → W_p at the start of training, computed from the z of unit vectors.
        z: of each batch.
        back: party → ∂L/∂a_p of each batch.
        restored: z of the first batch after another step, and again after the snapshot before that step was restored
            and the step repeated.
        kept: z of the first batch when the snapshot was taken, and when it was restored.
        sites: the parties' contexts.
    """

    sites: dict[str, PartyContext]
    weights: dict[str, torch.Tensor] = field(default_factory=dict, repr=False)
    z: list[torch.Tensor] = field(default_factory=list, repr=False)
    back: dict[str, list[torch.Tensor | None]] = field(default_factory=dict, repr=False)
    restored: list[torch.Tensor] = field(default_factory=list, repr=False)
    kept: list[torch.Tensor] = field(default_factory=list, repr=False)


def make_batches(
    spec: CutSpec, passive: Sequence[str], *, sizes: Sequence[int] = (8, 5, 1), seed: int = 0
) -> list[CutBatch]:
    """Batches of standardised activations below 4 and of gradients of a mean loss, of these sizes."""
    rng = np.random.default_rng(seed)
    found = []
    for rows in sizes:
        shape = (rows, spec.width) if spec.reduce == "sum" else (len(passive), rows, spec.width)
        found.append(
            CutBatch(
                activations={
                    p: torch.from_numpy(np.clip(rng.normal(size=(rows, WIDTHS[p])), -3.9, 3.9)).float() for p in passive
                },
                gradient=torch.from_numpy(rng.normal(size=shape) / 8).float(),
            )
        )
    return found


def link_cut_parties(
    protection: Protection, spec: CutSpec, passive: Sequence[str], floor: Policy | None = None
) -> dict[str, PartyContext]:
    """Contexts under the protection's policy, whose links pass one message at a time and only declared ones."""
    return link_in_memory(
        passive=passive,
        policy=floor or protection.policy(),
        declared=protection.exchanges(spec.cut_use, len(passive)),
        window=1,
    )


def run_concurrently(programs: Sequence[Awaitable[T]], seconds: float | None = None) -> list[T]:
    """Run programs concurrently and return their results.

    Args:
        programs: of all parties.
        seconds: how long they may take; two minutes unless given.

    Raises:
        CheckFailed: they do not end in time.
    """
    limit = _LONGEST if seconds is None else seconds

    async def together() -> list[T]:
        return list(await asyncio.wait_for(asyncio.gather(*programs), limit))

    try:
        return asyncio.run(together())
    except TimeoutError as error:
        raise CheckFailed(
            f"the parties did not end within {limit:g} s: with one message at a time on each link, does each side "
            "read what the other one sends before it waits for something else?"
        ) from error


def run_cut(
    protection: Protection,
    spec: CutSpec,
    passive: Sequence[str],
    steps: Sequence[CutBatch],
    *,
    floor: Policy | None = None,
) -> CutRun:
    """Compute the weights, train on `steps`, take a snapshot, train on the first batch, restore, train on it again.

    Args:
        protection: makes both sides.
        spec: of the cut; `trainable`: whether bottoms have parameters.
        passive: the parties of `WIDTHS` that take part.
        steps: batches to train on.
        floor: policy of all parties, instead of the protection's.

    Raises:
        CheckFailed: the parties wait for each other.
    """
    world = link_cut_parties(protection, spec, passive, floor)
    run = CutRun(world, back={name: [] for name in passive})
    units = _unit_rows(passive)
    first = replace(steps[0], activations=steps[0].values, gradient=strip_noise_mark(steps[0].gradient), noise={})

    async def active() -> None:
        cut = protection.active_cut(world["a"], spec)
        await cut.setup()
        if cut.widths != {name: WIDTHS[name] for name in passive}:
            raise CheckFailed(f"after setup, widths are {cut.widths}; {WIDTHS} were announced")
        run.weights = _read_off(await cut.forward(len(next(iter(units.values()))), train=False), spec, passive)
        for batch in steps:
            run.z.append(await cut.forward(batch.rows, train=True))
            await cut.backward(batch.gradient)
        kept = cut.snapshot()
        run.kept.append(await cut.forward(first.rows, train=False))
        for again in (False, True):
            await cut.forward(first.rows, train=True)
            await cut.backward(first.gradient)
            run.restored.append(await cut.forward(first.rows, train=False))
            if not again:
                cut.restore(kept)
                run.kept.append(await cut.forward(first.rows, train=False))

    async def one(name: str) -> None:
        cut = protection.passive_cut(world[name], spec)
        await cut.setup(WIDTHS[name], trainable=spec.trainable is True)
        await cut.forward(units[name], train=False)
        for batch in steps:
            await cut.forward(batch.activations[name], train=True, noise=batch.noise.get(name))
            run.back[name].append(await cut.backward())
        kept, a = cut.snapshot(), first.activations[name]
        await cut.forward(a, train=False)
        for again in (False, True):
            await cut.forward(a, train=True)
            await cut.backward()
            await cut.forward(a, train=False)
            if not again:
                cut.restore(kept)
                await cut.forward(a, train=False)

    run_concurrently([active(), *(one(name) for name in passive)])
    return run


def _unit_rows(passive: Sequence[str]) -> dict[str, torch.Tensor]:
    """Party → rows of which each has a 1 in one column of one party, and 0 elsewhere."""
    sizes = [WIDTHS[name] for name in passive]
    return dict(zip(passive, torch.split_with_sizes(torch.eye(sum(sizes)), sizes, dim=1), strict=True))


def _read_off(z: torch.Tensor, spec: CutSpec, passive: Sequence[str]) -> dict[str, torch.Tensor]:
    """Party → W_p, from the z of `_unit_rows`."""
    rows = z if spec.reduce == "sum" else z.sum(dim=0)
    return dict(zip(passive, torch.split_with_sizes(rows, [WIDTHS[name] for name in passive]), strict=True))
