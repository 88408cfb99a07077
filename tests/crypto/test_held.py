"""Products that stay shares: right up to one unit, uniform whatever x is, bound to session, key and sizes."""

from __future__ import annotations

import copy
import itertools
import math
import pickle
import secrets
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from securevfl_crypto.errors import MalformedError, OverflowRefused, ReusedError
from securevfl_crypto.ring import streams
from securevfl_crypto.rlwe.held import HeldHolder, HeldOwner
from securevfl_crypto.rlwe.held_layout import (
    BASIS,
    DEGREE,
    LARGEST,
    PAIR_BYTES,
    SEED_BYTES,
    HeldContent,
    HeldLayout,
    read_pairs,
    write_pairs,
)
from securevfl_crypto.rlwe.held_random import HeldRandom, expand_seed, hash_session
from securevfl_crypto.rlwe.residues import lift_words, lower_words
from securevfl_crypto.transforms import TransformRing
from securevfl_crypto.transforms.portable import PortableTransformLoops

SESSION = secrets.token_bytes(16)
RING = TransformRing(BASIS.primes, DEGREE)
HEAD = 28
EXTREMES = np.array([0, 1, 2**63 - 1, 2**63, 2**64 - 1, 0x5555555555555555], dtype=np.uint64)


def _pair(batch: int, width: int, outputs: int, session: bytes = SESSION) -> tuple[HeldOwner, HeldHolder]:
    owner = HeldOwner(batch, width, outputs, session=session)
    return owner, HeldHolder(batch, width, outputs, session=session, public_key=owner.public_key)


@cache
def _small() -> tuple[HeldOwner, HeldHolder]:
    return _pair(40, 6, 3)


def _words(*shape: int) -> np.ndarray:
    return np.frombuffer(secrets.token_bytes(8 * math.prod(shape)), dtype=np.uint64).reshape(shape)


def _run(
    owner: HeldOwner, holder: HeldHolder, x: np.ndarray, weights: np.ndarray, steps: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """By how many units both results are off, int64."""
    answer, mask = holder.answer_product(owner.seal_weights(weights), x)
    product = owner.open_product(answer, len(x)) + mask - x.view(np.uint64) @ weights
    answer, mask = holder.answer_gradient(owner.seal_steps(steps), x)
    gradient = owner.open_gradient(answer) + mask - np.ascontiguousarray(x.T).view(np.uint64) @ steps
    return product.view(np.int64), gradient.view(np.int64)


# Results


@settings(max_examples=40, deadline=None)
@given(
    st.integers(1, 70), st.integers(1, 40), st.integers(1, 32), st.integers(1, 70), st.integers(0, 2**32), st.booleans()
)
def test_shares_add_up_to_one_unit(batch: int, width: int, outputs: int, rows: int, seed: int, extreme: bool) -> None:
    random, rows = np.random.default_rng(seed), min(rows, batch)
    owner, holder = _pair(batch, width, outputs)
    x = random.integers(-LARGEST, LARGEST + 1, (rows, width))
    weights, steps = _words(width, outputs), _words(rows, outputs)
    if extreme:
        x = random.choice(np.array([-LARGEST, 0, LARGEST]), (rows, width))
        weights, steps = random.choice(EXTREMES, (width, outputs)), random.choice(EXTREMES, (rows, outputs))
    for off in _run(owner, holder, x, weights, steps):
        assert np.abs(off).max() <= 1
        assert np.count_nonzero(off) <= 2 + off.size // 500  # about one in 100,000


@pytest.mark.parametrize(("batch", "width", "outputs"), [(256, 16, 8), (1024, 1024, 2), (1024, 24, 32), (1, 1, 1)])
def test_the_largest_sums_add_up_to_one_unit(batch: int, width: int, outputs: int) -> None:
    owner, holder = _pair(batch, width, outputs)
    ones = np.full((width, outputs), 2**64 - 1, dtype=np.uint64)
    for sign in (1, -1):
        x = np.full((batch, width), sign * LARGEST)
        for off in _run(owner, holder, x, ones, np.full((batch, outputs), 2**63, dtype=np.uint64)):
            assert np.abs(off).max() <= 1


def test_parties_on_different_paths_understand_each_other() -> None:
    """One has kernels, the other numpy alone: messages are the same numbers."""
    portable = TransformRing(BASIS.primes, DEGREE, PortableTransformLoops())
    for first, second in ((RING, portable), (portable, RING)):
        owner = HeldOwner(64, 9, 3, session=SESSION, ring=first)
        holder = HeldHolder(64, 9, 3, session=SESSION, public_key=owner.public_key, ring=second)
        x = np.random.default_rng(4).integers(-LARGEST, LARGEST + 1, (64, 9))
        for off in _run(owner, holder, x, _words(9, 3), _words(64, 3)):
            assert np.abs(off).max() <= 1


def test_one_in_some_ten_thousand_is_off_and_by_one() -> None:
    owner, holder = _pair(1024, 64, 32)
    x = np.random.default_rng(1).integers(-LARGEST, LARGEST + 1, (1024, 64))
    off = np.concatenate([part.ravel() for part in _run(owner, holder, x, _words(64, 32), _words(1024, 32))])
    assert np.abs(off).max() <= 1
    assert np.count_nonzero(off) < off.size / 2000


def test_the_worst_noise_is_below_one_unit() -> None:
    for batch, width, outputs in itertools.product((1, 64, 1024, 2048, 4096), (1, 16, 1024, 4096), (1, 2, 32, 4096)):
        layout = HeldLayout(batch, width, outputs)
        tiling, unit = layout.tiling, BASIS.modulus >> 64
        assert tiling.rows * tiling.features * tiling.outputs <= DEGREE
        for terms in (tiling.rows * width, tiling.features * batch):
            assert terms * LARGEST * 22 + 2 * DEGREE * 22 < unit


# What each party sees


def _answer_parts(owner: HeldOwner, content: HeldContent, answer: np.ndarray, rows: int) -> list[np.ndarray]:
    """c0 at its places and c1 of each answer, and the phases at the places, in turn."""
    body, parts, grid = memoryview(answer.tobytes())[HEAD:], [], owner.layout.grid(content, rows)
    firsts = read_pairs(body[: PAIR_BYTES * len(grid.negative)])
    for index, (places, part) in enumerate(zip(grid.places, grid.parts, strict=True)):
        start = PAIR_BYTES * (len(grid.negative) + index * DEGREE)
        second = read_pairs(body[start : start + PAIR_BYTES * DEGREE])
        product = np.zeros((2, DEGREE), dtype=np.uint64)
        RING.add_products(product, second[None], owner._secret)
        phase = BASIS.add(firsts[:, part], RING.inverse(product[None])[0][:, places])
        parts += [firsts[:, part], second, BASIS.negate(phase, grid.negative[part])]
    return parts


def _check_uniform(numbers: np.ndarray) -> None:
    """Numbers from 0 to 1 are uniform: no gap of the distribution, nor of its lower digits, above what chance gives."""
    for scale in (1, 1 << 8, 1 << 16):
        points = np.sort(numbers.astype(np.float64) * scale % 1)
        steps = np.arange(1, len(points) + 1) / len(points)
        assert np.abs(points - steps).max() < 3 / math.sqrt(len(points))


@pytest.mark.parametrize("large", [False, True])
def test_answers_are_uniform_over_all_of_the_modulus(large: bool) -> None:
    owner, holder = _pair(64, 4, 16)
    x = np.full((64, 4), LARGEST if large else 0)
    weights, steps = (np.full((n, 16), 2**64 - 1 if large else 0, dtype=np.uint64) for n in (4, 64))
    product, _ = holder.answer_product(owner.seal_weights(weights), x)
    gradients = [holder.answer_gradient(owner.seal_steps(steps), x)[0] for _ in range(16)]
    parts = [_answer_parts(owner, HeldContent.PRODUCT, product, 64)]
    parts.append([part for one in gradients for part in _answer_parts(owner, HeldContent.GRADIENT, one, 0)])
    for some in parts:
        for kind in range(3):  # c0, c1 and the phase that the owner computes from both
            found = np.concatenate(some[kind::3], axis=1)
            assert found.shape[1] >= 1024
            for row, prime in zip(found, BASIS.primes, strict=True):
                _check_uniform(row.astype(np.float64) / prime)
        phases = BASIS.to_integers(np.concatenate(some[2::3], axis=1))
        unit = BASIS.modulus / 2**64
        _check_uniform(np.array([float(phase) / BASIS.modulus for phase in phases]))
        # Within a unit of the word, too: only there would noise, and with it x, show.
        _check_uniform(np.array([float(phase * 2**64 % BASIS.modulus) / BASIS.modulus for phase in phases]))
        assert unit > 2**35


def test_two_answers_to_one_message_have_nothing_in_common() -> None:
    owner, holder = _small()
    sealed, x = owner.seal_weights(_words(6, 3)), np.full((40, 6), 5)
    first, second = (holder.answer_product(sealed, x) for _ in range(2))
    assert np.mean(first[0][HEAD:] == second[0][HEAD:]) < 0.05
    assert not np.any(first[1] == second[1])


def test_tiles_of_one_answer_have_masks_of_their_own() -> None:
    owner, holder = _pair(256, 16, 8)
    x, steps = np.zeros((256, 16), dtype=np.int64), np.zeros((256, 8), dtype=np.uint64)
    answer, mask = holder.answer_gradient(owner.seal_steps(steps), x)
    assert len(owner.layout.grid(HeldContent.GRADIENT).tiles) > 1
    assert len(np.unique(mask)) == mask.size
    assert len(np.unique(owner.open_gradient(answer))) == mask.size


class _Recorder(HeldRandom):
    def __init__(self) -> None:
        super().__init__()
        self.drawn: dict[str, list[np.ndarray]] = {"ternary": [], "binomial": [], "uniform": []}

    def ternary(self, count: int) -> np.ndarray:
        self.drawn["ternary"].append(super().ternary(count))
        return self.drawn["ternary"][-1]

    def binomial(self, count: int) -> np.ndarray:
        self.drawn["binomial"].append(super().binomial(count))
        return self.drawn["binomial"][-1]


def _centred(residues: np.ndarray) -> np.ndarray:
    """Small numbers from their residues modulo both primes."""
    found = [
        np.where(row > prime // 2, row.astype(np.int64) - prime, row.astype(np.int64))
        for row, prime in zip(residues, BASIS.primes, strict=True)
    ]
    assert np.array_equal(*found)
    return found[0]


def _check_noise(noise: np.ndarray) -> None:
    assert np.abs(noise).max() <= 21
    assert 8.5 < noise.var() < 12.5
    assert abs(noise.mean()) < 0.3


def test_the_second_half_of_an_answer_is_a_fresh_sample_of_rlwe() -> None:
    owner, holder = _pair(64, 4, 4)
    holder._random = recorder = _Recorder()
    x = np.random.default_rng(2).integers(-LARGEST, LARGEST + 1, (64, 4))
    sealed = owner.seal_weights(_words(4, 4))
    answer, _ = holder.answer_product(sealed, x)
    ((_, second, _),) = [_answer_parts(owner, HeldContent.PRODUCT, answer, 64)]
    seed = bytes(sealed[HEAD : HEAD + SEED_BYTES])
    places = owner.layout.tiling.feature_places(64, 4)
    tile = np.zeros((1, DEGREE), dtype=np.int64)
    tile[0, places.index] = np.where(places.negative, -x.ravel(), x.ravel())
    minus_x = RING.forward(-tile)
    left = second.copy()
    RING.add_products(left, minus_x, expand_seed(seed)[None])
    spread = RING.inverse(left[None])[0]
    assert all(row.max() > prime // 2 for row, prime in zip(spread, BASIS.primes, strict=True))
    (blind,) = recorder.drawn["ternary"]
    assert 0.29 < np.mean(blind == 0) < 0.38
    assert 0.29 < np.mean(blind == 1) < 0.38
    RING.add_products(left, RING.forward(-blind), hash_session(SESSION)[None])
    _check_noise(_centred(RING.inverse(left[None])[0]))


def test_tiles_of_one_answer_have_blinds_of_their_own() -> None:
    """With rows of zeros, c1 is the blind alone: that of one tile must not tell that of another."""
    owner, holder = _pair(256, 16, 8)
    x, steps = np.zeros((256, 16), dtype=np.int64), np.zeros((256, 8), dtype=np.uint64)
    answer, _ = holder.answer_gradient(owner.seal_steps(steps), x)
    seconds = _answer_parts(owner, HeldContent.GRADIENT, answer, 0)[1::3]
    assert len(seconds) > 1
    for first, second in itertools.combinations(seconds, 2):
        for sign in (-1, 1):
            other = np.ones((2, DEGREE), dtype=bool) if sign < 0 else np.zeros((2, DEGREE), dtype=bool)
            spread = RING.inverse(BASIS.add(first, BASIS.negate(second, other))[None])[0]
            for row, prime in zip(spread, BASIS.primes, strict=True):
                _check_uniform(row.astype(np.float64) / prime)


def test_uploads_and_keys_are_fresh_encryptions() -> None:
    owner, _ = _pair(64, 4, 4)
    weights = _words(4, 4)
    messages = [owner.seal_weights(weights) for _ in range(2)]
    seeds = [bytes(message[HEAD : HEAD + SEED_BYTES]) for message in messages]
    assert seeds[0] != seeds[1]
    grid = owner.layout.grid(HeldContent.WEIGHTS)
    (places,) = grid.places
    lifted = np.zeros((2, DEGREE), dtype=np.uint64)
    lifted[:, places] = BASIS.negate(lift_words(BASIS, weights.ravel()), ~grid.negative)
    found = []
    for message, seed in zip(messages, seeds, strict=True):
        total = read_pairs(memoryview(message.tobytes())[HEAD + SEED_BYTES :])
        RING.add_products(total, expand_seed(seed)[None], owner._secret)
        found.append(_centred(BASIS.add(RING.inverse(total[None])[0], lifted)))
        _check_noise(found[-1])
    assert not np.array_equal(*found)
    key = read_pairs(memoryview(owner.public_key.tobytes())[HEAD:])
    RING.add_products(key, hash_session(SESSION)[None], owner._secret)
    _check_noise(_centred(RING.inverse(key[None])[0]))
    secret = _centred(RING.inverse(owner._secret)[0])
    assert set(secret.tolist()) == {-1, 0, 1}


def test_uploads_of_several_tiles_have_seeds_and_noise_of_their_own() -> None:
    owner, _ = _pair(256, 16, 8)
    steps = np.zeros((256, 8), dtype=np.uint64)
    message, size = owner.seal_steps(steps), SEED_BYTES + PAIR_BYTES * DEGREE
    parts = np.split(message[HEAD:], (len(message) - HEAD) // size)
    assert len(parts) > 2
    assert len({bytes(part[:SEED_BYTES]) for part in parts}) == len(parts)
    noises = []
    for part in parts:
        total = read_pairs(memoryview(part.tobytes())[SEED_BYTES:])
        RING.add_products(total, expand_seed(bytes(part[:SEED_BYTES]))[None], owner._secret)
        noises.append(_centred(RING.inverse(total[None])[0]).tobytes())
        _check_noise(np.frombuffer(noises[-1], dtype=np.int64))
    assert len(set(noises)) == len(parts)


def test_the_uniform_half_of_a_key_is_hashed_from_the_session() -> None:
    first, second = _pair(8, 2, 1, b"a" * 16)[1], _pair(8, 2, 1, b"b" * 16)[1]
    assert np.array_equal(first._key[1], hash_session(b"a" * 16))
    assert np.mean(first._key[1] == second._key[1]) < 0.01
    for row, prime in zip(first._key[1], BASIS.primes, strict=True):
        assert row.max() < prime
        _check_uniform(row.astype(np.float64) / prime)


# Hostile messages


def _messages() -> list[tuple[str, np.ndarray]]:
    owner, holder = _small()
    x = np.ones((40, 6), dtype=np.int64)
    weights, steps = owner.seal_weights(_words(6, 3)), owner.seal_steps(_words(40, 3))
    return [
        ("key", owner.public_key),
        ("weights", weights),
        ("steps", steps),
        ("product", holder.answer_product(weights, x)[0]),
        ("gradient", holder.answer_gradient(steps, x)[0]),
    ]


def _give(kind: str, message: np.ndarray) -> None:
    owner, holder = _small()
    x = np.ones((40, 6), dtype=np.int64)
    match kind:
        case "key":
            HeldHolder(40, 6, 3, session=SESSION, public_key=message)
        case "weights":
            holder.answer_product(message, x)
        case "steps":
            holder.answer_gradient(message, x)
        case "product":
            owner.open_product(message)
        case "gradient":
            owner.open_gradient(message)


KINDS = ["key", "weights", "steps", "product", "gradient"]


@pytest.mark.parametrize("kind", KINDS)
def test_malformed_messages_are_refused(kind: str) -> None:
    message = dict(_messages())[kind]
    _give(kind, message)  # as it is, it is taken
    assert message.dtype == np.uint8
    wrong = [message[:-1], np.concatenate([message, message[:1]]), message[None], message.astype(np.int64), message[:0]]
    for place in range(HEAD):
        wrong.append(message.copy())
        wrong[-1][place] ^= 1
    others: list[Any] = [*wrong, message.tobytes(), None]
    for one in others:
        with pytest.raises(MalformedError):
            _give(kind, one)
    for other, found in _messages():
        if other != kind:
            with pytest.raises(MalformedError):
                _give(kind, found)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("which", [0, 1])
def test_residues_out_of_range_are_refused(kind: str, which: int) -> None:
    message, start = dict(_messages())[kind], HEAD + (SEED_BYTES if kind in ("weights", "steps") else 0)
    for place in (start, len(message) - PAIR_BYTES):
        for value in (BASIS.primes[which], (1 << 50) - 1 if which == 0 else (1 << 54) - 1):
            other = BASIS.primes[1] - 1 if which == 0 else 0
            pair = (value | other << 50) if which == 0 else value << 50
            bad = message.copy()
            bad[place : place + PAIR_BYTES] = np.frombuffer(pair.to_bytes(PAIR_BYTES, "little"), dtype=np.uint8)
            with pytest.raises(MalformedError, match="not below its prime"):
                _give(kind, bad)


@pytest.mark.parametrize("kind", KINDS)
def test_messages_of_another_session_key_or_layout_are_refused(kind: str) -> None:
    others = [_pair(40, 6, 3, secrets.token_bytes(16)), _pair(41, 6, 3)]
    if kind != "key":
        others.append(_pair(40, 6, 3))  # the same session and layout, and another key
    for owner, holder in others:
        rows = owner.layout.batch
        x = np.ones((rows, 6), dtype=np.int64)
        weights, steps = owner.seal_weights(_words(6, 3)), owner.seal_steps(_words(rows, 3))
        messages = {
            "key": owner.public_key,
            "weights": weights,
            "steps": steps,
            "product": holder.answer_product(weights, x)[0],
            "gradient": holder.answer_gradient(steps, x)[0],
        }
        with pytest.raises(MalformedError):
            _give(kind, messages[kind])


def test_messages_for_another_number_of_rows_are_refused() -> None:
    owner, holder = _small()
    x = np.ones((39, 6), dtype=np.int64)
    answer, _ = holder.answer_product(owner.seal_weights(_words(6, 3)), x)
    with pytest.raises(MalformedError):
        owner.open_product(answer)
    assert owner.open_product(answer, 39).shape == (39, 3)
    with pytest.raises(MalformedError):
        holder.answer_gradient(owner.seal_steps(_words(40, 3)), x)


@pytest.mark.parametrize("kind", KINDS)
def test_receivers_know_the_size_of_every_message(kind: str) -> None:
    owner, holder = _small()
    message = dict(_messages())[kind]
    content = HeldContent[kind.upper()]
    assert owner.message_size(content) == holder.message_size(content, 40) == len(message)
    with pytest.raises(MalformedError):
        owner.message_size(content, 41)


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 200), st.integers(0, 2**32))
def test_pairs_are_written_and_read(count: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    pairs = np.stack([random.integers(0, prime, count, dtype=np.uint64) for prime in BASIS.primes])
    pairs[:, 0] = np.array(BASIS.primes, dtype=np.uint64) - np.uint64(1)
    raw = write_pairs(pairs)
    assert len(raw) == count * PAIR_BYTES
    assert np.array_equal(read_pairs(memoryview(raw)), pairs)


@settings(max_examples=20, deadline=None)
@given(st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=30))
def test_words_are_lifted_and_lowered(values: list[int]) -> None:
    words, q = np.array(values, dtype=np.uint64), BASIS.modulus
    lifted = BASIS.to_integers(lift_words(BASIS, words))
    assert lifted.tolist() == [(2 * q * value + 2**64) // 2**65 % q for value in values]
    assert np.array_equal(lower_words(BASIS, BASIS.to_residues(lifted)), words)


# Arguments


def test_arguments_out_of_range_are_refused() -> None:
    owner, holder = _small()
    weights: list[Any] = [_words(6, 2), _words(5, 3), _words(6), _words(6, 3).view(np.int64), [[1]]]
    for bad in weights:
        with pytest.raises(MalformedError):
            owner.seal_weights(bad)
    steps: list[Any] = [_words(41, 3), _words(0, 3), _words(4, 2), _words(4, 3).astype(object), None]
    for bad in steps:
        with pytest.raises(MalformedError):
            owner.seal_steps(bad)
    sealed = owner.seal_weights(_words(6, 3))
    for rows in (np.ones((4, 5), dtype=np.int64), np.ones((4, 6)), np.ones((41, 6), dtype=np.int64), np.ones(6, int)):
        with pytest.raises(MalformedError):
            holder.answer_product(sealed, rows)
    for value in (LARGEST + 1, -LARGEST - 1, -(2**63)):
        x = np.zeros((4, 6), dtype=np.int64)
        x[3, 5] = value
        with pytest.raises(OverflowRefused, match="at most 8192"):
            holder.answer_product(sealed, x)
    for sizes in ((0, 1, 1), (1, 5000, 1), (1, 1, -1), (2.0, 1, 1)):
        with pytest.raises(MalformedError):
            HeldOwner(*sizes, session=SESSION)
    for session in (b"short", "a text of some length", bytes(15)):
        with pytest.raises(MalformedError, match="session"):
            HeldOwner(1, 1, 1, session=session)  # type: ignore[arg-type]


def test_rows_are_not_taken_from_the_batch_before() -> None:
    owner, holder = _pair(32, 4, 2)
    weights = _words(4, 2)
    x = np.random.default_rng(3).integers(-LARGEST, LARGEST, (32, 4))
    for _ in range(3):
        for off in _run(owner, holder, x, weights, _words(32, 2)):
            assert np.abs(off).max() <= 1
        x[5, 1] += 1  # in place: the holder must notice


def test_halves_are_not_copied_stored_or_used_after_a_fork(monkeypatch: pytest.MonkeyPatch) -> None:
    owner, holder = _pair(8, 2, 1)
    for half in (owner, holder):
        for way in (copy.copy, copy.deepcopy, pickle.dumps):
            with pytest.raises(ReusedError):
                way(half)
    sealed = owner.seal_weights(_words(2, 1))
    monkeypatch.setattr(streams, "_forks", streams._forks + 1)
    with pytest.raises(ReusedError):
        owner.seal_weights(_words(2, 1))
    with pytest.raises(ReusedError):
        holder.answer_product(sealed, np.ones((8, 2), dtype=np.int64))


def test_nothing_of_a_half_is_drawn_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    used: list[int] = []
    begin = streams.Stream._begin_use

    def note(own: streams.Stream, use: int) -> None:
        used.append(use)
        begin(own, use)

    monkeypatch.setattr(streams.Stream, "_begin_use", note)
    random = HeldRandom()
    assert not np.array_equal(random.binomial(1), random.binomial(1))
    assert not np.array_equal(random.ternary(1), random.ternary(1))
    assert not np.array_equal(random.uniform(4), random.uniform(4))
    assert used == sorted(set(used))
