"""What sealed cuts have beyond the contract of a cut (see `test_check_protection`): bits, masks, shares; and noise."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import securevfl_crypto as crypto
import torch
from support.clear_scheme import Clear
from support.cuts import KITS, SEALED, Kit, link_in_memory

from securevfl.cut.base import initial_weights
from securevfl.cut.plain import FloatPassive
from securevfl.cut.sealed import SealedActive, SealedPassive
from securevfl.cut.spec import CutSpec
from securevfl.errors import PolicyError, RangeError
from securevfl.party_context import PartyContext
from securevfl.privacy import NoiseShare, Policy
from securevfl.privacy.noise import noise_share
from securevfl.transport import Kind

WIDTHS = {"p1": 4, "p2": 2}
SPEC = CutSpec(width=3, lr=0.5, batch_size=8)


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
    sites: dict[str, PartyContext]


def steady_share(rows: int, width: int = SPEC.width) -> NoiseShare:
    """A share of noise that is the same every time: its entropy is one byte over and over."""
    return noise_share((rows, width), sigma=1.0, sensitivity=0.5, parties=len(WIDTHS), entropy=lambda n: b"\xb0" * n)


def drive(kit: Kit, batches: Batches, *, trainable: bool = True, spec: CutSpec = SPEC, noisy: bool = False) -> Seen:
    """Train on all batches, then score the first again."""
    world = link_in_memory()
    z: list[torch.Tensor] = []
    back: dict[str, list[torch.Tensor | None]] = {p: [] for p in WIDTHS}

    async def active() -> torch.Tensor:
        cut = kit.active(world["a"], spec)
        await cut.setup()
        for rows, gradient in zip(batches.rows, batches.g, strict=True):
            z.append(await cut.forward(rows, train=True))
            await cut.backward(gradient)
        await cut.forward(batches.rows[0], train=False)
        return await cut.forward(batches.rows[0], train=False)

    async def passive(name: str) -> None:
        cut = kit.passive(world[name], spec)
        await cut.setup(WIDTHS[name], trainable=trainable)
        for a in batches.a:
            await cut.forward(a[name], train=True, noise=steady_share(len(a[name])) if noisy else None)
            back[name].append(await cut.backward())
        await cut.forward(batches.a[0][name], train=False)
        await cut.forward(batches.a[0][name], train=False)

    async def together() -> torch.Tensor:
        after, *_ = await asyncio.gather(active(), *(passive(name) for name in WIDTHS))
        return after

    return Seen(z, back, asyncio.run(together()), world)


@pytest.mark.parametrize("trainable", [True, False])
@pytest.mark.parametrize("kit", SEALED.values(), ids=SEALED.keys())
def test_sealed_equals_fixed_point(kit: Kit, trainable: bool) -> None:
    """Bit by bit for exact schemes; within the scheme's bound, far below float32's precision of z, for CKKS."""
    batches = Batches()
    sealed = drive(kit, batches, trainable=trainable)
    plain = drive(KITS["fixed point"], batches, trainable=trainable)
    for one, other in zip([*sealed.z, sealed.after], [*plain.z, plain.after], strict=True):
        assert torch.allclose(one, other, rtol=0, atol=kit.error)
    for p in WIDTHS:
        for mine, theirs in zip(sealed.back[p], plain.back[p], strict=True):
            if trainable:
                assert mine is not None
                assert theirs is not None
                assert torch.allclose(mine, theirs, rtol=0, atol=kit.error)
            else:
                assert mine is None
                assert theirs is None


RULES = [
    *((name, rule) for name in SEALED if "no cipher" in name for rule in ((0.9, 0.0), (0.0, 0.1))),
    *((name, (0.8, 0.01)) for name in SEALED),
]
"""Sealed cut, momentum and weight decay: a rule is arithmetic on shares, which a cipher meets only in its results."""


@pytest.mark.parametrize(("kit", "rule"), RULES)
def test_momentum_and_weight_decay_on_shares(kit: str, rule: tuple[float, float]) -> None:
    """Each side rounds its own share of a step: z is within the precision of float32 after few steps."""
    spec = replace(SPEC, momentum=rule[0], weight_decay=rule[1])
    batches = Batches()
    exact = drive(KITS["fixed point"], batches, spec=spec)
    found = drive(SEALED[kit], batches, spec=spec)
    error = (
        2 * SEALED[kit].error + 1e-6
    )  # momentum adds the errors of steps up: 4e-6 to 8e-6 under CKKS, now and then 1.1e-5
    for one, other in zip([*found.z, found.after], [*exact.z, exact.after], strict=True):
        assert torch.allclose(one, other, rtol=0, atol=error)
    plain = drive(KITS["fixed point"], batches)
    assert not torch.allclose(plain.after, exact.after, atol=1e-3), "the rule has no effect"


@pytest.mark.parametrize("kit", [KITS["fixed point"], KITS["plain"]], ids=["fixed point", "plain"])
def test_momentum_and_weight_decay_are_torch_s(kit: Kit) -> None:
    spec = replace(SPEC, momentum=0.9, weight_decay=0.02)
    batches = Batches()
    world = link_in_memory()
    w = {p: torch.from_numpy(initial_weights(world[p], width, 3)).requires_grad_() for p, width in WIDTHS.items()}
    optimizer = torch.optim.SGD(w.values(), lr=spec.lr, momentum=0.9, weight_decay=0.02)
    for a, g in zip(batches.a, batches.g, strict=True):
        for p in WIDTHS:
            w[p].grad = a[p].double().T @ g.double()
        optimizer.step()
    after = sum((batches.a[0][p].double() @ w[p].detach() for p in WIDTHS), torch.zeros(()))
    assert torch.allclose(drive(kit, batches, spec=spec).after.double(), after, atol=5e-3)


@pytest.mark.parametrize("kit", KITS.values(), ids=KITS.keys())
def test_noise_is_added_to_z_before_anything_leaves(kit: Kit) -> None:
    quiet, loud = drive(kit, Batches(1)), drive(kit, Batches(1), noisy=True)
    added = steady_share(8).noise.float() * len(WIDTHS)
    assert added.min() > 0.2
    assert torch.allclose(loud.z[0] - quiet.z[0], added, atol=1e-5)
    for name in WIDTHS:
        entries = [e for e in loud.sites[name].ledger.entries if e.way == "sent"]
        assert [e.noise for e in entries if e.what == "cut/forward"] == [1.0, 0.0, 0.0], "a share came once"
        assert not any(e.noise for e in entries if e.what != "cut/forward")


@pytest.mark.parametrize("kit", SEALED.values(), ids=SEALED.keys())
def test_a_sealed_cut_sends_nothing_readable_and_with_identity_bottoms_no_gradient_at_all(kit: Kit) -> None:
    for trainable in (True, False):
        world = drive(kit, Batches(), trainable=trainable).sites
        for site in world.values():
            for entry in site.ledger.entries:
                assert entry.kind in {Kind.CONTROL, Kind.PUBLIC_KEY, Kind.CIPHERTEXT, Kind.MASKED_SHARE}
                if entry.kind is Kind.CIPHERTEXT:
                    assert entry.cipher == kit.name
                    assert entry.bits > 0
        keys = {entry.key for entry in world["a"].ledger.entries if entry.what == "cut/input gradient"}
        assert len(keys) == (len(WIDTHS) if trainable else 0), "each party's gradient is under its own key"
        shares = {entry.key for entry in world["a"].ledger.entries if entry.what == "cut/passive share"}
        assert shares == keys, "and so is its share"


@pytest.mark.parametrize("kit", SEALED.values(), ids=SEALED.keys())
def test_the_active_party_can_open_the_sum_and_no_partys_part(kit: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has the key: what keeps a party's part from it are the masks, which cancel in the sum only."""
    refused, opened = 0, 0
    original = SealedActive.forward

    async def forward(self: SealedActive, rows: int, *, train: bool) -> torch.Tensor:
        for peer in self._peers.values():
            monkeypatch.setattr(peer.owner, "open_product", curious(type(peer.owner).open_product, peer.owner))
        return await original(self, rows, train=train)

    def curious(open_product: Any, owner: Any) -> Any:
        def each_by_itself(messages: list[np.ndarray], rows: int) -> np.ndarray:
            nonlocal refused, opened
            for message in messages:
                with pytest.raises(crypto.OverflowRefused):
                    open_product(owner, [message], rows)
                refused += 1
            opened += 1
            found: np.ndarray = open_product(owner, messages, rows)
            return found

        return each_by_itself

    monkeypatch.setattr(SealedActive, "forward", forward)
    drive(kit, Batches(2), trainable=False)
    assert (refused, opened) == (8, 4)


def test_integer_shares_stay_small_however_long_training_lasts() -> None:
    """Without re-sharing, |U| grows with every step; with it, it keeps to its range."""
    seen: list[int] = []

    class Spy(SealedPassive):
        async def backward(self) -> torch.Tensor | None:
            back = await super().backward()
            seen.append(max(abs(int(v)).bit_length() for v in self._after_setup.share.values.flat))
            assert seen[-1] <= self._after_setup.holder.block.share_bits
            return back

    kit = Kit(KITS["integers, no cipher"].active, lambda s, c: Spy(s, c, Clear()), 0)
    drive(kit, Batches())
    assert len(seen) == 8


@pytest.mark.parametrize("kind", ["fixed point", "integers, no cipher"])
@pytest.mark.parametrize("value", [8.0, -9.5, float("nan"), float("inf")])
def test_activations_out_of_range_stop_before_anything_is_sent(kind: str, value: float) -> None:
    batches = Batches(steps=1)
    batches.a[0]["p2"][3, 1] = value
    with pytest.raises(RangeError, match="activations reach"):
        drive(KITS[kind], batches)


@pytest.mark.parametrize("kind", ["fixed point", "integers, no cipher"])
def test_exploding_gradients_stop(kind: str) -> None:
    batches = Batches(steps=1)
    batches.g[0][2, 1] = 1e4
    with pytest.raises(RangeError, match="lower the learning rates"):
        drive(KITS[kind], batches)


def test_a_policy_that_demands_sealing_stops_a_plain_cut() -> None:
    world = link_in_memory(policy=Policy(sealed=True))

    async def passive() -> None:
        cut = FloatPassive(world["p1"], SPEC)
        cut._weights = torch.zeros(4, 3)
        await cut.forward(torch.zeros(2, 4), train=True)

    with pytest.raises(PolicyError, match="demands them sealed"):
        asyncio.run(passive())
