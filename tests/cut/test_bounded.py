"""The bound on the weights that noise on z is sized by: whatever a step does, no block's norm passes it."""

from __future__ import annotations

import asyncio
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from support.cuts import KITS, Kit, link_in_memory

import securevfl as sv
from securevfl.cut import ActiveCut, BoundedCut
from securevfl.cut.base import check_block, initial_weights
from securevfl.cut.bounded import _SWING
from securevfl.cut.plain import FloatPassive
from securevfl.cut.sealed import SealedActive, SealedPassive
from securevfl.cut.spec import CutSpec
from securevfl.errors import InputError, RangeError
from securevfl.run.simulation import join_parties, run_parties
from securevfl.testing.parties import make_parties

WIDTH, CLIP, BOUND = 4, 1.0, 2.0
SPEC = CutSpec(width=3, lr=2.0, batch_size=8, weight_bound=BOUND)


class Run:
    """Steps that push all rows the same way, as far as they can, under a cut that holds the bound or does not."""

    def __init__(
        self, kit: Kit, spec: CutSpec = SPEC, *, steps: int = 12, held: bool = True, size: float = 1.0
    ) -> None:
        self.kit, self.spec, self.steps, self.held = kit, spec, steps, held
        self.notes: list[str] = []
        self.norms: list[float] = []
        self.reached: list[float] = []
        self.z: list[torch.Tensor] = []
        self.gradient = -size * torch.ones(8, 3) / 8
        self.a = CLIP * torch.ones(8, WIDTH) / WIDTH**0.5
        self.world = link_in_memory(passive=("p1",))
        asyncio.run(self.together())

    async def active(self) -> None:
        cut: ActiveCut = self.kit.active(self.world["a"], self.spec)
        if self.held:
            cut = BoundedCut(cut, self.spec, clip=CLIP, longest=math.inf, notes=self.notes)
        await cut.setup()
        for _ in range(self.steps):
            self.z.append(await cut.forward(8, train=True))
            await cut.backward(self.gradient)
            self.norms.append(await self.norm(cut))
            self.reached.append(cut.reached if isinstance(cut, BoundedCut) else math.inf)

    async def norm(self, cut: ActiveCut) -> float:
        """Of the block, read off the z of unit vectors."""
        return float(np.linalg.norm((await cut.forward(WIDTH, train=False)).double().numpy(), 2))

    async def passive(self) -> None:
        cut = self.kit.passive(self.world["p1"], self.spec)
        await cut.setup(WIDTH, trainable=False)
        for _ in range(self.steps):
            await cut.forward(self.a, train=True)
            await cut.backward()
            await cut.forward(torch.eye(WIDTH), train=False)

    async def together(self) -> None:
        await asyncio.gather(self.active(), self.passive())


RULES = {"sgd": (0.0, 0.0), "momentum": (0.9, 0.0), "decay": (0.0, 0.1), "both": (0.8, 0.05)}


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
@pytest.mark.parametrize("kind", ["plain", "fixed point", "integers, no cipher"])
def test_no_block_passes_its_bound_whatever_the_steps_are(kind: str, rule: tuple[float, float]) -> None:
    momentum, decay = rule
    spec = replace(SPEC, momentum=momentum, weight_decay=decay)
    run = Run(KITS[kind], spec)
    assert all(norm <= reached <= BOUND for norm, reached in zip(run.norms, run.reached, strict=True))
    assert max(run.reached) > 0.95 * BOUND, "all of the bound is used before a step is shortened"
    assert len(run.notes) == 1
    assert "steps of the cut's weights were shortened" in run.notes[0]
    wild = Run(KITS[kind], replace(spec, weight_bound=math.inf), held=False)
    assert max(wild.norms) > 2 * BOUND, "the steps would have passed it"


@pytest.mark.parametrize("kind", ["bfv", "ckks"])
def test_it_is_held_under_encryption(kind: str) -> None:
    run = Run(KITS[kind], steps=3)
    assert all(norm <= reached <= BOUND for norm, reached in zip(run.norms, run.reached, strict=True))
    assert run.notes
    twin = Run(KITS["fixed point"], steps=3)
    for one, other in zip(run.z, twin.z, strict=True):
        assert torch.allclose(one, other, rtol=0, atol=KITS[kind].error), "shortened alike: the sealed run has its twin"


def test_steps_within_the_bound_are_left_alone() -> None:
    spec = replace(SPEC, lr=0.01, weight_bound=40.0)
    held, free = Run(KITS["plain"], spec), Run(KITS["plain"], replace(spec, weight_bound=math.inf), held=False)
    assert not held.notes
    assert all(torch.equal(one, other) for one, other in zip(held.z, free.z, strict=True))


@pytest.mark.parametrize("kind", ["plain", "fixed point"])
def test_a_party_that_has_its_block_in_the_clear_does_not_rely_on_the_active_one(kind: str) -> None:
    with pytest.raises(RangeError, match=r"weight_bound is 2, and ε rests on it: 'a' did not shorten"):
        Run(KITS[kind], held=False)
    with pytest.raises(RangeError, match="has norm nan"):
        check_block(np.full((2, 2), np.nan), 1.0, "a")


def test_momentum_carries_a_step_no_further_than_it_is_counted() -> None:
    """One step of 1 moves |W| to 1/(1 − μ) at most; weights of 1 stay within 1, or 1.25 with momentum and decay."""
    for momentum in np.linspace(0, 0.99, 34):
        for decay in [0.0, *np.geomspace(1e-5, 0.999, 40)]:
            for weight, step in ((1.0, 0.0), (0.0, 1.0)):
                w, m, most = weight, 0.0, abs(weight)
                for t in range(400):
                    m = momentum * m + (step if t == 0 else 0.0) + decay * w
                    w -= m
                    most = max(most, abs(w))
                held = _SWING if momentum and decay else 1.0
                assert most <= (held if weight else 1 / (1 - momentum)) + 1e-9, (momentum, decay)


def test_the_first_weights_are_scaled_to_half_of_the_bound() -> None:
    site = link_in_memory()["p1"]
    free = initial_weights(site, 6, 16)
    assert np.linalg.norm(free, 2) > 2
    held = initial_weights(site, 6, 16, 2.0)
    assert np.linalg.norm(held, 2) == pytest.approx(1.0)
    np.testing.assert_allclose(held / np.linalg.norm(held), free / np.linalg.norm(free))
    assert (initial_weights(site, 6, 16, 100.0) == free).all()


def test_a_bound_that_rounding_passes_is_refused_and_so_is_a_gradient_that_is_not_finite() -> None:
    with pytest.raises(InputError, match=r"weight_bound is 1e-07, and rounding alone .*: declare a larger bound"):
        Run(KITS["plain"], replace(SPEC, weight_bound=1e-7))
    with pytest.raises(RangeError, match="not finite: training diverged"):
        Run(KITS["plain"], size=math.nan)


def test_a_snapshot_keeps_what_the_norm_reached() -> None:
    cut = BoundedCut(KITS["plain"].active(link_in_memory(passive=())["a"], SPEC), SPEC, clip=1, longest=1, notes=[])
    asyncio.run(cut.setup())
    state, first = cut.snapshot(), cut.reached
    asyncio.run(cut.backward(torch.full((8, 3), 0.01)))
    assert cut.reached > first
    cut.restore(state)
    assert cut.reached == first
    with pytest.raises(TypeError):
        cut.restore(None)


@pytest.mark.parametrize("sealed", [False, True], ids=["plain", "bfv"])
def test_a_job_with_noise_on_z_and_a_high_rate_keeps_every_norm_below_its_bound(
    sealed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the wiring that ships. Version 0.1 began above the bound and grew to four times of it."""
    norms: list[float] = []
    shares: dict[str, np.ndarray] = {}
    feed, look = FloatPassive.backward, SealedPassive.backward
    step = SealedActive.backward

    async def plain(self: FloatPassive) -> torch.Tensor | None:
        norms.append(float(torch.linalg.matrix_norm(self._weights, 2)))
        found = await feed(self)
        norms.append(float(torch.linalg.matrix_norm(self._weights, 2)))
        return found

    async def passive(self: SealedPassive) -> torch.Tensor | None:
        found = await look(self)
        shares[self._site.name] = self._after_setup.share.values
        return found

    async def active(self: SealedActive, gradient: torch.Tensor) -> None:
        await step(self, gradient)
        for name, peer in self._peers.items():
            whole = (peer.share.values + shares[name] + (1 << 63)) % (1 << 64) - (1 << 63)
            norms.append(
                float(np.linalg.norm(whole.astype(np.float64) * 2.0**-self._spec.fixed_point.weight_fraction_bits, 2))
            )

    monkeypatch.setattr(FloatPassive, "backward", plain)
    monkeypatch.setattr(SealedPassive, "backward", passive)
    monkeypatch.setattr(SealedActive, "backward", active)
    dp = sv.DP(features=sv.JointNoise(noise_multiplier=0.5, weight_bound=BOUND))
    protection = sv.BFV(dp=dp) if sealed else sv.Plain(dp=dp)
    algorithm = sv.SplitNN(hidden=16, top=(), lr=0.05, cut_lr=2.0)
    job = sv.Job(algorithm=algorithm, protection=protection, epochs=3 if sealed else 30, steps=3, batch_size=32, seed=1)
    people = make_parties(passive=2, rows=100, width=6)
    ran = run_parties(job, people, join_parties(people, job), run="run")
    assert len(norms) >= 2 * 9
    assert max(norms) <= BOUND
    if not sealed:
        assert any("were shortened" in note for note in ran.trained["bank"].notes)
