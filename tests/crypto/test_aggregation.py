"""The contract of every scheme that adds vectors up: exact sums, and nothing for whoever sends something else."""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import lru_cache

import numpy as np
import pytest
import securevfl_crypto as crypto
from hypothesis import given, settings
from hypothesis import strategies as st
from securevfl_crypto.aggregation import (
    Addends,
    Aggregation,
    Aggregator,
    CkksAggregation,
    CkksAggregator,
    PaillierAggregation,
    PaillierAggregator,
)

SCHEMES: dict[str, Aggregation] = {"paillier": PaillierAggregation(2048), "ckks": CkksAggregation()}
HEAD = 25


@lru_cache
def key(name: str, number: int = 0) -> crypto.SecretKey:
    return SCHEMES[name].generate_key()


@pytest.fixture(params=list(SCHEMES))
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def zero_shares(parties: int) -> list[crypto.ZeroShares]:
    seeds = {(i, j): bytes([i, j] * 16) for i in range(parties) for j in range(i + 1, parties)}
    pairs = [
        [crypto.PairwiseMasks(seeds[min(i, j), max(i, j)], positive=i < j) for j in range(parties) if j != i]
        for i in range(parties)
    ]
    return [crypto.ZeroShares(own) for own in pairs]


def aggregator(name: str, count: int, bits: int = 56, parties: int = 3) -> Aggregator:
    """What a party makes of the key as it travels."""
    public = SCHEMES[name].read_public(key(name).public.to_bytes())
    return SCHEMES[name].create_aggregator(public, Addends(count=count, bits=bits, parties=parties))


def vectors(parties: int, count: int, bits: int, seed: int = 0) -> np.ndarray:
    """Integers over the whole range, its ends among them, (parties, count)."""
    rng = np.random.default_rng(seed)
    top = (1 << bits) - 1
    drawn = [int.from_bytes(rng.bytes(32), "little") % (2 * top + 1) - top for _ in range(parties * count)]
    flat = np.empty(parties * count, dtype=object)
    flat[:] = drawn
    values: np.ndarray = flat.reshape(parties, count)
    values[:, 0], values[:, -1] = top, -top
    return values if bits > 63 else values.astype(np.int64)


def total(values: np.ndarray) -> list[int]:
    return [int(v) for v in values.astype(object).sum(axis=0)]


@pytest.mark.parametrize(
    ("parties", "count", "bits"),
    [(1, 1, 1), (2, 37, 56), (3, 500, 56), (5, 40, 63), (3, 40, 90), (4, 8200, 20), (130, 5, 56)],
)
def test_sums_are_exact(name: str, parties: int, count: int, bits: int) -> None:
    own, values = aggregator(name, count, bits, parties), vectors(parties, count, bits)
    messages = [own.seal(v, zero) for v, zero in zip(values, zero_shares(parties), strict=True)]
    assert all(m.dtype == np.uint8 and m.shape == (own.message_bytes,) for m in messages)
    found = own.open(own.add(messages), key(name))
    assert found.tolist() == total(values)
    assert found.dtype == (np.int64 if own.addends.sum_bits < 64 else np.object_)


@given(data=st.data())
@settings(max_examples=10)
def test_any_sums_in_any_order_and_of_sums(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(list(SCHEMES)))
    count, bits, parties = data.draw(st.tuples(st.integers(1, 60), st.integers(1, 60), st.integers(2, 4)))
    small = st.integers(1 - (1 << bits), (1 << bits) - 1)
    values = data.draw(st.lists(st.lists(small, min_size=count, max_size=count), min_size=parties, max_size=parties))
    own, shares = aggregator(name, count, bits, parties), zero_shares(parties)
    for _ in range(2):  # masks are never the same again, and cancel again
        sealed = [own.seal(np.array(v, dtype=np.int64), zero) for v, zero in zip(values, shares, strict=True)]
        order = data.draw(st.permutations(sealed))
        found = own.open(own.add([own.add(order[:2]), *order[2:]]), key(name))
        assert found.tolist() == [sum(column) for column in zip(*values, strict=True)]


def test_sums_of_some_are_refused(name: str) -> None:
    own, values = aggregator(name, 60), vectors(3, 60, 56)
    sealed = [own.seal(v, zero) for v, zero in zip(values, zero_shares(3), strict=True)]
    for parties in (sealed[:1], sealed[:2]):
        few = own.add(parties)
        with pytest.raises(crypto.MalformedError, match="expected all 3"):
            own.open(few, key(name))
        forged = few.copy()
        forged[21:HEAD] = np.frombuffer(struct.pack("<I", 3), dtype=np.uint8)
        with pytest.raises(crypto.OverflowRefused, match="cancel"):
            own.open(forged, key(name))


@pytest.mark.parametrize("value", [0, 1, (1 << 56) - 1])
def test_to_the_owner_of_the_key_one_message_is_uniform(name: str, value: int) -> None:
    """High bits and low ones, whatever the vector."""
    own = aggregator(name, 3000)
    message = own.seal(np.full(3000, value), zero_shares(3)[0])
    body = memoryview(message[HEAD:].tobytes())
    if isinstance(own, CkksAggregator):
        modulus, seen = own._basis.modulus, [int(v) for v in own._phases(body, key(name))]
    else:
        assert isinstance(own, PaillierAggregator)
        secret = key(name)
        assert isinstance(secret, crypto.PaillierPrivateKey)
        modulus, seen = (
            int(own.key.n),
            [int(v) % int(own.key.n) for v in secret.decrypt_batch(own._load_ciphertexts(body))],
        )
    for part in (np.array([v / modulus for v in seen]), np.array([(v % 65536) / 65536 for v in seen])):
        assert abs(part.mean() - 0.5) < 6 * 0.289 / len(part) ** 0.5
        assert abs(part.std() - 0.289) < 6 * 0.13 / len(part) ** 0.5
    assert not np.array_equal(message, own.seal(np.full(3000, value), zero_shares(3)[0]))


def test_masks_are_needed_among_several(name: str) -> None:
    with pytest.raises(crypto.MalformedError, match="agree on pairwise seeds"):
        aggregator(name, 4).seal(np.zeros(4, dtype=np.int64), crypto.ZeroShares([]))
    alone = aggregator(name, 4, parties=1)
    sealed = alone.seal(np.arange(4), crypto.ZeroShares([]))
    assert alone.open(alone.add([sealed]), key(name)).tolist() == [0, 1, 2, 3]


def test_what_is_out_of_range_is_refused(name: str) -> None:
    own = aggregator(name, 3, bits=20)
    for bad in (1 << 20, -(1 << 20), 1 << 62):
        with pytest.raises(crypto.OverflowRefused, match=r"below 2\^20"):
            own.seal(np.array([0, bad, 0]), zero_shares(3)[0])
    shapes: list[np.ndarray] = [np.zeros(2, dtype=np.int64), np.zeros(3), np.zeros((3, 1), dtype=np.int64)]
    for shape in shapes:
        with pytest.raises(crypto.MalformedError, match="agreed on 3 integers"):
            own.seal(shape, zero_shares(3)[0])
    with pytest.raises(crypto.OverflowRefused):
        aggregator(name, 3, bits=1000, parties=4000 if name == "paillier" else 3).seal(
            np.array([1 << 1000] * 3, dtype=object), zero_shares(2)[0]
        )
    for wrong in ({"count": 0}, {"count": 1 << 27}, {"bits": 0}, {"bits": 2000}, {"parties": 0}, {"parties": 5000}):
        with pytest.raises(crypto.MalformedError, match="; expected 1 to "):
            Addends(**({"count": 1, "bits": 8, "parties": 2} | wrong))


def test_a_sum_out_of_range_is_noticed(name: str) -> None:
    """A party with another idea of the range: its slot has room, and the bound is still checked."""
    wide, own = aggregator(name, 3, bits=60), aggregator(name, 3, bits=57)
    assert wide.message_bytes == own.message_bytes
    shares = zero_shares(3)
    sealed = [
        side.seal(np.array([v, 1, 1]), zero)
        for side, v, zero in zip((wide, own, own), (1 << 59, 0, 0), shares, strict=True)
    ]
    with pytest.raises(crypto.OverflowRefused, match="sum of vectors"):
        own.open(own.add(sealed), key(name))


def test_too_many_parties_are_refused(name: str) -> None:
    own = aggregator(name, 4, parties=2)
    sealed = [own.seal(np.arange(4), zero) for zero in zero_shares(2)]
    with pytest.raises(crypto.MalformedError, match="cover 3 parties; at most 2 were agreed"):
        own.add([*sealed, sealed[0]])
    with pytest.raises(crypto.MalformedError, match="no party sent a vector"):
        own.add([])


def changed(at: int, value: int) -> Callable[[np.ndarray], object]:
    def change(message: np.ndarray) -> np.ndarray:
        other = message.copy()
        other[at] ^= value
        return other

    return change


HOSTILE: dict[str, Callable[[np.ndarray], object]] = {
    "cut short": lambda m: m[:-1],
    "too long": lambda m: np.append(m, np.uint8(0)),
    "empty": lambda m: m[:0],
    "another type": lambda m: m.astype(np.int64),
    "another shape": lambda m: m.reshape(1, -1),
    "no array": lambda m: m.tobytes(),
    "another magic": changed(0, 1),
    "another version": changed(4, 1),
    "another key": changed(5, 1),
    "no party": changed(21, 1),
    "too many parties": changed(23, 1),
    "all ones": lambda m: np.concatenate([m[:HEAD], np.full(len(m) - HEAD, 255, dtype=np.uint8)]),
    "all zeros": lambda m: np.concatenate([m[:HEAD], np.zeros(len(m) - HEAD, dtype=np.uint8)]),
}


@pytest.mark.parametrize("how", list(HOSTILE))
def test_hostile_bytes_are_refused(name: str, how: str) -> None:
    own = aggregator(name, 6, parties=2)
    good, other = (own.seal(np.arange(6), zero) for zero in zero_shares(2))
    bad: object = HOSTILE[how](good)
    with pytest.raises(crypto.MalformedError):
        own.add([other, bad])  # type: ignore[list-item]
    with pytest.raises(crypto.MalformedError):
        own.open(bad, key(name))  # type: ignore[arg-type]


@given(noise=st.binary(min_size=0, max_size=60))
@settings(max_examples=20)
def test_random_bytes_are_refused(noise: bytes) -> None:
    for name, scheme in SCHEMES.items():
        with pytest.raises(crypto.MalformedError):
            aggregator(name, 3, parties=2).add([np.frombuffer(noise, dtype=np.uint8)])
        with pytest.raises(crypto.CryptoError):
            scheme.read_public(noise)


def test_another_key_is_refused(name: str) -> None:
    own, stranger = aggregator(name, 3, parties=1), key(name, 1)
    there = SCHEMES[name].create_aggregator(stranger.public, own.addends)
    message = there.seal(np.arange(3), crypto.ZeroShares([]))
    with pytest.raises(crypto.MalformedError, match="sealed under key"):
        own.add([message])
    with pytest.raises(crypto.MalformedError, match="sealed under key"):
        own.open(message, key(name))
    with pytest.raises(crypto.MalformedError, match="secret key belongs to"):
        there.open(message, key(name))
    for other, scheme in SCHEMES.items():
        if other != name:
            with pytest.raises(crypto.MalformedError, match=r"expected (an?|one of this aggregation) "):
                scheme.create_aggregator(stranger.public, own.addends)
            with pytest.raises(crypto.MalformedError):
                scheme.read_public(stranger.public.to_bytes())


def test_ckks_notices_more_noise_than_there_can_be() -> None:
    """A multiple of a quarter of Δ on the first value: rounded away silently if nobody looked."""
    own = aggregator("ckks", 2, parties=1)
    assert isinstance(own, CkksAggregator)
    sealed = own.seal(np.array([5, -7]), crypto.ZeroShares([]))
    phases = own._phases(memoryview(sealed[HEAD:].tobytes()), key("ckks"))
    assert own._round_phases(phases).tolist() == [5, -7]
    phases[0] += 3 << (own._shift - 3)
    with pytest.raises(crypto.OverflowRefused, match="1 encryptions have less than 8192"):
        own._round_phases(phases)


def test_weak_keys_are_refused() -> None:
    with pytest.raises(crypto.WeakKeyError):
        PaillierAggregation(1024)
    with pytest.raises(crypto.WeakKeyError, match="3072 were agreed"):
        PaillierAggregation().read_public(key("paillier").public.to_bytes())


def test_what_does_not_fit_is_refused_before_anything_is_sealed() -> None:
    with pytest.raises(crypto.OverflowRefused, match="use fewer parties or bits, or Paillier"):
        aggregator("ckks", 3, bits=110)
    assert aggregator("ckks", 3, bits=95).addends.sum_bits == 97


def test_paillier_packs() -> None:
    """2048 bits have room for 31 sums of 64 bits, in 512 bytes."""
    own = aggregator("paillier", 310, bits=56, parties=128)
    assert own.message_bytes == HEAD + 10 * 512


def test_ckks_sends_no_more_of_the_first_half_than_it_uses() -> None:
    assert aggregator("ckks", 100).message_bytes == HEAD + (100 + 8192) * 16
    assert aggregator("ckks", 8200).message_bytes == HEAD + (8200 + 2 * 8192) * 16
