"""The contract of a cut, over every protection: the same steps as one matrix product with plain SGD."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from helpers import small_keys

from securevfl.cut.base import ActiveCut, CutSpec, PassiveCut, initial_share
from securevfl.cut.exact import FixedActive, FixedPassive
from securevfl.cut.plain import FloatActive, FloatPassive
from securevfl.cut.sealed import SealedActive, SealedPassive
from securevfl.errors import PolicyError, ProtocolError, RangeError
from securevfl.party import Site
from securevfl.privacy import Clock, Ledger, Link, Policy
from securevfl.transport import Kind, MemoryChannel, memory_pair

WIDTHS = {"p1": 4, "p2": 2}
SPEC = CutSpec(width=3, lr=0.5, batch_size=8)


@dataclass(frozen=True)
class Kit:
    """How to make both sides of one kind of cut, and how exactly it agrees with floats."""

    active: Callable[[Site, CutSpec], ActiveCut]
    passive: Callable[[Site, CutSpec], PassiveCut]
    tolerance: float


KITS = {
    "plain": Kit(FloatActive, FloatPassive, 1e-5),
    "fixed point": Kit(FixedActive, FixedPassive, 5e-3),
    "paillier": Kit(lambda s, c: SealedActive(s, c, bits=768), lambda s, c: SealedPassive(s, c, bits=768), 5e-3),
}


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    small_keys(monkeypatch)


def sites(policy: Policy | None = None, passive: tuple[str, ...] = ("p1", "p2")) -> dict[str, Site]:
    names = ["a", *passive]
    ends: dict[tuple[str, str], MemoryChannel] = {}
    for i, one in enumerate(names):
        for other in names[i + 1 :]:
            ends[one, other], ends[other, one] = memory_pair()
    made = {}
    for number, name in enumerate(names):
        ledger, clock = Ledger(name, run="r", job="j"), Clock()
        rule = policy or Policy(min_key_bits=512)
        made[name] = Site(
            name=name,
            role="active" if name == "a" else "passive",
            active="a",
            passive=passive,
            links={peer: Link(name, peer, ends[name, peer], ledger, rule, clock) for peer in names if peer != name},
            ledger=ledger,
            policy=rule,
            clock=clock,
            job="j",
            seed=1,
            private_seed=100 + number,
        )
    return made


class Batches:
    """What all kinds of cut are fed: activations of two parties and gradients, step after step."""

    def __init__(self, steps: int = 4, seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        self.steps = steps
        self.rows = [8, 8, 5, 1][:steps]
        self.a = [{p: torch.from_numpy(rng.normal(size=(n, w))).float() for p, w in WIDTHS.items()} for n in self.rows]
        self.g = [torch.from_numpy(rng.normal(size=(n, SPEC.width)) / 8).float() for n in self.rows]


@dataclass
class Seen:
    z: list[torch.Tensor]
    back: dict[str, list[torch.Tensor | None]]
    after: torch.Tensor
    sites: dict[str, Site]


def drive(kit: Kit, batches: Batches, *, trainable: bool = True) -> Seen:
    """Train on all batches, then score the first again."""
    world = sites()
    z: list[torch.Tensor] = []
    back: dict[str, list[torch.Tensor | None]] = {p: [] for p in WIDTHS}

    async def active() -> torch.Tensor:
        cut = kit.active(world["a"], SPEC)
        await cut.setup()
        for rows, gradient in zip(batches.rows, batches.g, strict=True):
            z.append(await cut.forward(rows, train=True))
            await cut.backward(gradient)
        await cut.forward(batches.rows[0], train=False)
        return await cut.forward(batches.rows[0], train=False)

    async def passive(name: str) -> None:
        cut = kit.passive(world[name], SPEC)
        await cut.setup(WIDTHS[name], trainable=trainable)
        for a in batches.a:
            await cut.forward(a[name], train=True)
            back[name].append(await cut.backward())
        await cut.forward(batches.a[0][name], train=False)
        await cut.forward(batches.a[0][name], train=False)

    async def together() -> torch.Tensor:
        after, *_ = await asyncio.gather(active(), *(passive(name) for name in WIDTHS))
        return after

    return Seen(z, back, asyncio.run(together()), world)


def reference(batches: Batches) -> Seen:
    """The same in one process, float64, by hand."""
    w = {
        p: torch.from_numpy(initial_share(100, p, width, SPEC.width) + initial_share(101 + i, p, width, SPEC.width))
        for i, (p, width) in enumerate(WIDTHS.items())
    }
    z: list[torch.Tensor] = []
    back: dict[str, list[torch.Tensor | None]] = {p: [] for p in WIDTHS}
    for a, g in zip(batches.a, batches.g, strict=True):
        z.append(sum((a[p].double() @ w[p] for p in WIDTHS), torch.zeros(())))
        for p in WIDTHS:
            back[p].append(g.double() @ w[p].T)
            w[p] = w[p] - SPEC.lr * a[p].double().T @ g.double()
    after = sum((batches.a[0][p].double() @ w[p] for p in WIDTHS), torch.zeros(()))
    return Seen(z, back, after, {})


@pytest.mark.parametrize("kit", KITS.values(), ids=KITS.keys())
def test_every_cut_steps_like_plain_sgd(kit: Kit) -> None:
    batches = Batches()
    seen, expected = drive(kit, batches), reference(batches)
    pairs: list[tuple[Any, Any]] = list(zip(seen.z, expected.z, strict=True))
    pairs += [(seen.after, expected.after)]
    pairs += [pair for p in WIDTHS for pair in zip(seen.back[p], expected.back[p], strict=True)]
    for found, wanted in pairs:
        assert found.dtype == torch.float32
        assert torch.allclose(found.double(), wanted, atol=kit.tolerance)


@pytest.mark.parametrize("trainable", [True, False])
def test_sealed_equals_fixed_point_bit_by_bit(trainable: bool) -> None:
    batches = Batches()
    sealed = drive(KITS["paillier"], batches, trainable=trainable)
    plain = drive(KITS["fixed point"], batches, trainable=trainable)
    for one, other in zip(sealed.z, plain.z, strict=True):
        assert torch.equal(one, other)
    assert torch.equal(sealed.after, plain.after)
    for p in WIDTHS:
        for mine, theirs in zip(sealed.back[p], plain.back[p], strict=True):
            if trainable:
                assert mine is not None
                assert theirs is not None
                assert torch.equal(mine, theirs)
            else:
                assert mine is None
                assert theirs is None


def test_a_sealed_cut_sends_nothing_readable_and_with_identity_bottoms_no_gradient_at_all() -> None:
    for trainable in (True, False):
        world = drive(KITS["paillier"], Batches(), trainable=trainable).sites
        for site in world.values():
            for entry in site.ledger.entries:
                assert entry.kind in {Kind.CONTROL, Kind.PUBLIC_KEY, Kind.CIPHERTEXT, Kind.MASKED_SHARE}
                if entry.kind is Kind.CIPHERTEXT:
                    assert (entry.cipher, entry.bits) == ("paillier", 768)
        steps = {entry.what for entry in world["a"].ledger.entries}
        assert ("cut/input gradient share" in steps) == trainable


def test_shares_stay_small_however_long_training_lasts() -> None:
    """Without re-sharing, |U| grows with every step; with it, it keeps to its range."""
    seen: list[int] = []

    class Spy(SealedPassive):
        async def backward(self) -> torch.Tensor | None:
            back = await super().backward()
            seen.append(max(abs(int(v)).bit_length() for v in self._share.flat))
            assert self._holder is not None
            assert seen[-1] <= self._holder.ranges.share_bits
            return back

    kit = Kit(KITS["paillier"].active, lambda s, c: Spy(s, c, bits=768), 0)
    drive(kit, Batches())
    assert len(seen) == 8


@pytest.mark.parametrize("kit", KITS.values(), ids=KITS.keys())
def test_a_restored_snapshot_scores_as_before(kit: Kit) -> None:
    batches = Batches()
    world = sites()

    async def active() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        cut = kit.active(world["a"], SPEC)
        await cut.setup()
        await cut.forward(8, train=True)
        await cut.backward(batches.g[0])
        before = await cut.forward(8, train=False)
        kept = cut.snapshot()
        await cut.forward(8, train=True)
        await cut.backward(batches.g[1])
        moved = await cut.forward(8, train=False)
        cut.restore(kept)
        return before, moved, await cut.forward(8, train=False)

    async def passive(name: str) -> None:
        cut = kit.passive(world[name], SPEC)
        await cut.setup(WIDTHS[name], trainable=False)
        a = batches.a[0][name]
        for step in range(2):
            await cut.forward(a, train=True)
            await cut.backward()
            await cut.forward(a, train=False)
            if step == 0:
                kept = cut.snapshot()
        cut.restore(kept)
        await cut.forward(a, train=False)

    async def together() -> tuple[torch.Tensor, ...]:
        found, *_ = await asyncio.gather(active(), *(passive(name) for name in WIDTHS))
        return found

    before, moved, again = asyncio.run(together())
    assert torch.equal(before, again)
    assert not torch.allclose(before, moved)


@pytest.mark.parametrize("kind", ["fixed point", "paillier"])
@pytest.mark.parametrize("value", [8.0, -9.5, float("nan"), float("inf")])
def test_activations_out_of_range_stop_before_anything_is_sent(kind: str, value: float) -> None:
    batches = Batches(steps=1)
    batches.a[0]["p2"][3, 1] = value
    with pytest.raises(RangeError, match="activations reach"):
        drive(KITS[kind], batches)


@pytest.mark.parametrize("kind", ["fixed point", "paillier"])
def test_exploding_gradients_stop(kind: str) -> None:
    batches = Batches(steps=1)
    batches.g[0][2, 1] = 1e4
    with pytest.raises(RangeError, match="lower the learning rates"):
        drive(KITS[kind], batches)


def test_a_weaker_key_than_the_job_demands_is_refused_by_the_passive_party() -> None:
    kit = Kit(KITS["paillier"].active, lambda s, c: SealedPassive(s, c, bits=1024), 0)
    with pytest.raises(PolicyError, match="768 bits; the job demands 1024"):
        drive(kit, Batches(steps=1))


def test_a_policy_that_demands_sealing_stops_a_plain_cut() -> None:
    world = sites(Policy(sealed=True))

    async def passive() -> None:
        cut = FloatPassive(world["p1"], SPEC)
        cut._weights = torch.zeros(4, 3)
        await cut.forward(torch.zeros(2, 4), train=True)

    with pytest.raises(PolicyError, match="demands them sealed"):
        asyncio.run(passive())


@pytest.mark.parametrize("kit", KITS.values(), ids=KITS.keys())
def test_parties_with_different_jobs_do_not_begin(kit: Kit) -> None:
    world = sites(passive=("p1",))
    other = CutSpec(width=5, lr=0.5, batch_size=8)

    async def together() -> None:
        active, passive = kit.active(world["a"], SPEC), kit.passive(world["p1"], other)
        await asyncio.gather(active.setup(), asyncio.wait_for(passive.setup(4, trainable=False), 5))

    with pytest.raises(ProtocolError, match="use one job file"):
        asyncio.run(together())


@pytest.mark.parametrize("kit", KITS.values(), ids=KITS.keys())
def test_backward_without_forward_is_a_protocol_error(kit: Kit) -> None:
    world = sites(passive=("p1",))

    async def active() -> None:
        cut = kit.active(world["a"], SPEC)
        await cut.setup()
        await cut.forward(8, train=False)
        await cut.backward(Batches(1).g[0])

    async def passive() -> None:
        cut = kit.passive(world["p1"], SPEC)
        await cut.setup(4, trainable=False)
        await cut.forward(torch.zeros(8, 4), train=False)
        await cut.backward()

    async def together() -> None:
        task = asyncio.create_task(active())
        try:
            await passive()
        finally:
            task.cancel()

    with pytest.raises(ProtocolError, match="without a training forward"):
        asyncio.run(together())


def test_the_halves_of_the_initial_weights_are_independent_and_of_usual_size() -> None:
    mine, theirs = initial_share(1, "p", 2000, 3), initial_share(2, "p", 2000, 3)
    assert (mine + theirs).std() * np.sqrt(2000) == pytest.approx(1, rel=0.05)
    assert abs(np.corrcoef(mine.ravel(), theirs.ravel())[0, 1]) < 0.05
