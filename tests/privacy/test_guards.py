"""The noise that a message claims: derived from what a release returned, and from nothing else."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest
import torch

from securevfl.errors import PolicyError
from securevfl.privacy import Clock, Gaussian, JointNoise, Ledger, Link, Noised, Policy, Releases
from securevfl.transport import Array, Guard, Kind, memory_pair

GRADIENTS = Policy(noised=frozenset({Kind.GRADIENT}))


def _links(policy: Policy) -> tuple[Link, Link, Ledger]:
    mine, theirs = memory_pair()
    ledger = Ledger("a", run="r", job="0")
    link = Link("a", "b", mine, ledger, policy, Clock())
    return link, Link("b", "a", theirs, Ledger("b", run="r", job="0"), Policy(), Clock()), ledger


def _released(multiplier: float) -> Noised[torch.Tensor]:
    mechanism = Gaussian(noise_multiplier=multiplier)
    return Releases("a", Policy()).plan_rows("gradients", mechanism, rows=3, times=1)(torch.ones(3, 2), np.arange(3))


def _sent(guard: Guard = Guard(), **arrays: Array | Noised[torch.Tensor]) -> float:  # noqa: B008
    link, peer, ledger = _links(Policy())
    kind = Kind.GRADIENT if guard.cipher == "none" else Kind.CIPHERTEXT
    asyncio.run(link.send(kind, "x", guard=guard, **arrays))
    message = asyncio.run(peer.receive(kind, "x", *arrays))
    for name, array in arrays.items():
        assert message.arrays[name] is (array.value if isinstance(array, Noised) else array)
    (entry,) = ledger.entries
    assert entry.noise == message.guard.noise
    assert (message.guard.cipher, message.guard.bits, message.guard.key) == (guard.cipher, guard.bits, guard.key)
    return message.guard.noise


def test_the_least_noise_of_all_arrays_is_what_the_message_claims() -> None:
    assert _sent(g=_released(2.0)) == 2.0
    assert _sent(g=_released(2.0), h=_released(1.5)) == 1.5
    assert _sent(g=_released(2.0), h=torch.zeros(3, 2)) == 0.0
    assert _sent(g=torch.zeros(3, 2)) == 0.0
    assert _sent() == 0.0


def test_ciphertexts_keep_the_noise_of_what_is_in_them() -> None:
    sealed = _released(2.0).map(lambda value: value.to(torch.uint8))
    assert _sent(Guard("paillier", 3072, "k"), c=sealed) == 2.0
    share = Releases("a", Policy()).plan_joint(
        JointNoise(noise_multiplier=3.0, weight_bound=1.0), rows=3, times=1, parties=2
    )
    sent = share.draw_share(np.arange(3), 2).add_to(lambda noise: noise.to(torch.uint8))
    assert _sent(Guard("paillier", 3072, "k"), c=sent) == 3.0


def test_noise_by_name_is_refused() -> None:
    link, _, ledger = _links(GRADIENTS)
    with pytest.raises(TypeError, match="claims noise"):
        asyncio.run(link.send(Kind.GRADIENT, "x", guard=Guard(noise=2.0), g=torch.zeros(3, 2)))
    with pytest.raises(TypeError, match="claims noise"):
        asyncio.run(link.send(Kind.GRADIENT, "x", guard=Guard(noise=2.0), g=_released(2.0)))
    with pytest.raises(PolicyError, match="without noise"):
        asyncio.run(link.send(Kind.GRADIENT, "x", g=torch.zeros(3, 2)))
    with pytest.raises(PolicyError, match="without noise"):
        asyncio.run(link.send(Kind.GRADIENT, "x", g=_released(2.0), labels=torch.zeros(3)))
    assert ledger.entries == []
    asyncio.run(link.send(Kind.GRADIENT, "x", g=_released(2.0)))


def test_noise_does_not_stand_in_for_sealing() -> None:
    link, _, ledger = _links(Policy(sealed=True))
    with pytest.raises(PolicyError, match="demands them sealed"):
        asyncio.run(link.send(Kind.GRADIENT, "x", g=_released(2.0)))
    assert ledger.entries == []
