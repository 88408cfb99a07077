"""What is random at a sealed cut is fresh, wide and uniform: looked at in the messages and shares of the cut as it
ships, and compared with bounds that are computed here."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
import securevfl_crypto as crypto
import torch
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from gmpy2 import mpz
from scipy import stats
from securevfl_crypto.rlwe.seal import seal_context
from support.cuts import KITS, SEALED, Kit, link_in_memory

from securevfl.cut.masking import agree_masks
from securevfl.cut.sealed import SealedActive, SealedPassive
from securevfl.cut.spec import CutSpec
from securevfl.privacy import Link, strip_noise_mark

WIDTHS = {"p1": 40, "p2": 25}
SPEC = CutSpec(width=5, lr=0.5, batch_size=300)
REAL = {name: kit for name, kit in SEALED.items() if "no cipher" not in name}
BITS = 12 + (14 + 10) + 4
"""Bits of a weight: fractional ones, as many as activations (12) and steps (14 + ⌈log₂(300/0.5)⌉) have together, and 4
before the point. See "Exact integers" in docs/sealed-cut.md."""


@dataclass
class Run:
    """What crossed, and what both sides hold after each step."""

    sent: list[tuple[str, str, str, np.ndarray]] = field(default_factory=list)
    shares: dict[str, list[np.ndarray]] = field(default_factory=dict)

    def messages(self, what: str) -> list[np.ndarray]:
        return [array for _, _, step, array in self.sent if step == what]


def run(
    kit: Kit,
    spec: CutSpec,
    monkeypatch: pytest.MonkeyPatch,
    *,
    steps: int = 2,
    trainable: bool = False,
    widths: Mapping[str, int] = MappingProxyType(WIDTHS),
) -> Run:
    """A few steps with activations of one and the same value, so that nothing but the cut is random."""
    world, seen = link_in_memory(passive=tuple(widths)), Run()
    send = Link.send

    async def recorded(self: Link, kind: Any, what: str, **rest: Any) -> None:
        for name, value in rest.items():
            if name not in ("meta", "guard"):
                seen.sent.append((self.me, self.peer, what, np.asarray(strip_noise_mark(value))))
        await send(self, kind, what, **rest)

    async def active() -> None:
        cut = kit.active(world["a"], spec)
        await cut.setup()
        for _ in range(steps):
            await cut.forward(spec.batch_size, train=True)
            await cut.backward(torch.full((spec.batch_size, spec.width), 1e-3))
            assert isinstance(cut, SealedActive)
            for name, peer in cut._peers.items():
                seen.shares.setdefault(f"a {name}", []).append(peer.share.values)

    async def passive(name: str) -> None:
        cut = kit.passive(world[name], spec)
        await cut.setup(widths[name], trainable=trainable)
        for _ in range(steps):
            await cut.forward(torch.ones(spec.batch_size, widths[name]), train=True)
            await cut.backward()
            assert isinstance(cut, SealedPassive)
            seen.shares.setdefault(name, []).append(cut._after_setup.share.values)

    async def together() -> None:
        await asyncio.gather(active(), *(passive(name) for name in widths))

    with monkeypatch.context() as patch:
        patch.setattr(Link, "send", recorded)
        asyncio.run(together())
    return seen


def uniform(values: np.ndarray, low: float, width: float) -> bool:
    """Whether numbers fill [low, low + width) evenly: 2^-30 of runs fail that do."""
    found = [(float(v) - low) / width for v in values.flat]
    return bool(stats.kstest(found, "uniform").pvalue > 2**-30)


RULES = {"steps as they are": {}, "momentum": {"momentum": 0.9}}


@pytest.mark.parametrize("rule", list(RULES))
@pytest.mark.parametrize("kit", REAL.values(), ids=REAL.keys())
def test_the_active_partys_share_is_wide_and_uniform_after_a_step(
    kit: Kit, rule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both shares fill their range, 40 bits wider than weights or the whole ring, and are new at each step; and W = U +
    V is a weight."""
    found = run(kit, replace(SPEC, **RULES[rule]), monkeypatch)
    integers = rule == "momentum" or kit.name == "paillier"
    for name in WIDTHS:
        for step in range(2):
            mine, theirs = found.shares[f"a {name}"][step], found.shares[name][step]
            if integers:
                low, width = -(2.0 ** (BITS + 40)), 2.0 ** (BITS + 41)
                whole = mine + theirs
            else:
                modulus = {"bfv": 1 << 64}.get(kit.name) or _ckks_modulus()
                low, width = 0.0, float(modulus)
                whole = (mine + theirs) % modulus
                whole = np.where(whole > modulus // 2, whole - modulus, whole)
            assert uniform(theirs, low, width)
            assert uniform(mine, low, width)
            assert max(abs(int(v)) for v in whole.flat) < 1 << BITS
        one, other = (found.shares[name][step] for step in range(2))
        assert uniform((one - other) % (1 << 40), 0.0, 2.0**40), "a share is drawn anew, or stepped by a wide mask"
        assert len({int(v) for v in one.flat} & {int(v) for v in other.flat}) == 0


def _ckks_modulus() -> int:
    return seal_context(crypto.CKKS().chains[0]).kept.modulus


def _elements(message: np.ndarray) -> list[bytes]:
    """The ciphertexts of an upload: rows of Paillier; seed and c0 of ring elements, whose count ends the header."""
    if message[0, :4].tobytes() != b"SVRL":
        return [row.tobytes() for row in message]
    count = int.from_bytes(message[0, 32:36].tobytes(), "little")
    return [part.tobytes() for part in message[0, 36:].reshape(count, -1)]


UPLOADS = ("cut/weights", "cut/backward", "cut/passive share")


@pytest.mark.parametrize("kit", REAL.values(), ids=REAL.keys())
def test_uploads_are_pairwise_fresh_over_tiles_steps_and_parties(kit: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
    """Seeds of ring elements, and their c0 although tiles are alike; Paillier's randomness, whatever it encrypts."""
    spec, widths, keys = SPEC, WIDTHS, []
    if kit.name == "paillier":
        spec, widths, generate = replace(SPEC, batch_size=4), {"p1": 3, "p2": 2}, crypto.Paillier.generate_key
        monkeypatch.setattr(crypto.Paillier, "generate_key", lambda self: (keys.append(generate(self)), keys[-1])[1])
    found = run(kit, spec, monkeypatch, trainable=True, widths=widths)
    messages = {array.tobytes(): array for what in UPLOADS for array in found.messages(what)}
    assert len(messages) == 2 * 2 + 2 + 2 * 2, "weights and shares of two parties twice, steps once for both of them"
    elements = [element for message in messages.values() for element in _elements(message)]
    assert max(len(_elements(message)) for message in messages.values()) > 1, "one alone cannot be like another"
    if kit.name == "paillier":
        for key in keys:  # under another key it decrypts to something, and is as different
            _all_different([_randomness(key, element) for element in elements])
    else:
        _all_different([element[:64] for element in elements])  # seeds
        _all_different([element[64:] for element in elements])


def _all_different(found: list[bytes]) -> None:
    assert len(set(found)) == len(found)


def _randomness(key: crypto.PaillierPrivateKey, element: bytes) -> bytes:
    """c (1 − n m) mod n²: the ciphertext without its plaintext."""
    c, public = int.from_bytes(element, "little"), key.public
    return int(c * public.encode_plaintext(-key.decrypt(mpz(c))) % public.n2).to_bytes(
        public.ciphertext_bytes, "little"
    )


@pytest.mark.parametrize("kit", REAL.values(), ids=REAL.keys())
def test_what_the_active_party_opens_of_a_gradient_fills_the_mask(kit: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
    """Integer masks are 40 bits wider than the largest gradient: bits of x, of S, and of the rows of a batch."""
    spec, opened = replace(SPEC, momentum=0.9), []
    step = crypto.WeightShare.step
    monkeypatch.setattr(crypto.WeightShare, "step", lambda self, g: (opened.append(g), step(self, g))[1])
    run(kit, spec, monkeypatch, steps=1)
    bits = 15 + spec.fixed_point.s_bits + spec.batch_size.bit_length() + 40
    assert len(opened) == 2 * len(WIDTHS)
    for gradient in opened:  # the active party's and the passive one's part
        assert uniform(gradient, -(2.0**bits), 2.0 ** (bits + 1))


def test_the_keys_of_masks_are_new_in_each_setup_and_for_each_party(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same job, the same names, the same seeds: nobody can compute a mask's key from what the job says."""
    keys: list[bytes] = []
    for _ in range(2):
        found = run(KITS["modulo 2^59, no cipher"], SPEC, monkeypatch, steps=1)
        keys += [array.tobytes() for array in found.messages("cut/seed")]
    assert len(keys) == len(set(keys)) == 4
    guesses = [name.encode() for name in (*WIDTHS, "a", "j", "r")] + [bytes([n]) for n in range(200)]
    for guess in guesses:
        for secret in (hashlib.sha256(guess).digest(), guess.ljust(32, b"\0"), guess.rjust(32, b"\0")):
            assert X25519PrivateKey.from_private_bytes(secret).public_key().public_bytes_raw() not in keys


def _seeds(purpose: str, job: str, names: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> dict[str, bytes]:
    """What two parties with known keys derive."""
    world, seeds, found = link_in_memory(passive=names), dict[str, bytes](), iter([bytes([1] * 32), bytes([2] * 32)])
    fixed = classmethod(lambda cls: X25519PrivateKey.from_private_bytes(next(found)))

    async def one(name: str) -> None:
        (pair,) = await agree_masks(replace(world[name], job=job), names, purpose)
        seeds[name] = pair._seed

    async def together() -> None:
        await asyncio.gather(*(one(name) for name in names))

    with monkeypatch.context() as patch:
        patch.setattr(X25519PrivateKey, "generate", fixed)
        asyncio.run(together())
    return seeds


def test_seeds_of_masks_follow_from_purpose_job_names_and_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """RFC 5869 by HMAC alone, over a context with a length before each of its parts."""
    secrets = [X25519PrivateKey.from_private_bytes(bytes([n] * 32)) for n in (1, 2)]
    publics = [secret.public_key().public_bytes_raw() for secret in secrets]
    shared = secrets[0].exchange(X25519PublicKey.from_public_bytes(publics[1]))

    def expected(purpose: str, job: str, names: tuple[str, str]) -> bytes:
        parts = sorted(zip((name.encode() for name in names), publics, strict=True))
        context = b"".join(
            len(part).to_bytes(2, "big") + part for part in (job.encode(), *(part for pair in parts for part in pair))
        )
        extracted = hmac.digest(bytes(32), shared, "sha256")
        return hmac.digest(extracted, purpose.encode() + context + b"\x01", "sha256")

    cases = [
        ("masks", "j", ("p1", "p2")),
        ("other masks", "j", ("p1", "p2")),
        ("masks", "k", ("p1", "p2")),
        ("masks", "j", ("p1", "p3")),
        ("masks", "j", ("p1p", "2")),
    ]
    found = [_seeds(*case, monkeypatch) for case in cases]
    for case, seeds in zip(cases, found, strict=True):
        assert set(seeds.values()) == {expected(*case)}
    assert len({seed for seeds in found for seed in seeds.values()}) == len(cases)
