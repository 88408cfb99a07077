"""Arithmetic, layout and messages of the lattice schemes, against Python's integers and the plainest loops."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from securevfl_crypto.errors import EngineError, MalformedError, OverflowRefused, WeakKeyError
from securevfl_crypto.rlwe.envelopes import Content, Envelope
from securevfl_crypto.rlwe.parameters import DEGREE, Chain
from securevfl_crypto.rlwe.residues import (
    Basis,
    divide_words,
    multiply_high,
    multiply_words,
    read_residues,
    write_residues,
)
from securevfl_crypto.rlwe.sampling import sample_binomial, sample_flooding, sample_ternary, sample_uniform
from securevfl_crypto.rlwe.seal import seal_context
from securevfl_crypto.rlwe.tiling import PolynomialPlaces, Tiling

PRIMES = (1099510054913, 72057594037616641, 1152921504606748673)  # 40, 56 and 60 bits
words = st.integers(0, 2**64 - 1)


@given(st.lists(words, min_size=1, max_size=20), words, st.sampled_from(PRIMES))
def test_products_of_words(values: list[int], factor: int, prime: int) -> None:
    a = np.array(values, dtype=np.uint64)
    assert multiply_high(a, factor).tolist() == [value * factor >> 64 for value in values]
    assert multiply_words(a, factor, prime).tolist() == [value * factor % prime for value in values]


@given(st.lists(words, min_size=1, max_size=20), st.sampled_from(PRIMES))
def test_fractions_of_a_prime(values: list[int], prime: int) -> None:
    values = [value % prime for value in [*values, 0, prime - 1]]
    whole, left = divide_words(np.array(values, dtype=np.uint64), prime)
    assert whole.tolist() == [(value << 64) // prime for value in values]
    assert np.allclose(left, [((value << 64) % prime) / prime for value in values], atol=1e-12)


@given(st.lists(st.integers(-(2**150), 2**150), min_size=1, max_size=10))
def test_residues_and_back(values: list[int]) -> None:
    basis, array = Basis(PRIMES), np.array(values, dtype=object)
    residues = basis.to_residues(array)
    assert basis.to_integers(residues).tolist() == [value % basis.modulus for value in values]
    twice = basis.add(residues, residues)
    assert np.array_equal(twice, basis.scale(residues, 2))
    zero = basis.add(residues, basis.negate(residues, np.ones(len(values), dtype=bool)))
    assert not zero.any()
    raw = write_residues(residues, (5, 7, 8))
    assert np.array_equal(read_residues(memoryview(raw), PRIMES, (5, 7, 8), len(values)), residues)
    for bad in (raw[:-1], raw + b"\0", raw[:-8] + b"\xff" * 8):
        with pytest.raises(MalformedError):
            read_residues(memoryview(bad), PRIMES, (5, 7, 8), len(values))


def polynomial(places: PolynomialPlaces, values: np.ndarray) -> np.ndarray:
    found = np.zeros(DEGREE, dtype=object)
    assert len(np.unique(places.index)) == places.index.size
    found[places.index] = np.where(places.negative, -values.ravel(), values.ravel())
    return found


def multiply(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Modulo X^N + 1, term by term."""
    found = np.zeros(DEGREE, dtype=object)
    for i in np.flatnonzero(a):
        found[i:] += a[i] * b[: DEGREE - i]
        found[:i] -= a[i] * b[DEGREE - i :]
    return found


def take(found: np.ndarray, places: PolynomialPlaces) -> np.ndarray:
    return np.where(places.negative, -found[places.index], found[places.index])


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_a_product_of_polynomials_holds_both_products_of_matrices(data: st.DataObject) -> None:
    """Full and part-filled tiles, also those that fill all coefficients, where exponents wrap around."""
    features = data.draw(st.integers(1, 40))
    outputs = data.draw(st.integers(1, 40))
    rows = data.draw(st.integers(1, min(DEGREE // (features * outputs), 60)) | st.just(DEGREE // (features * outputs)))
    rows = min(rows, 4096 // features)
    tiling = Tiling(rows, features, outputs)
    d, h, n = (data.draw(st.integers(1, most)) for most in (features, outputs, rows))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    x, v, s = (rng.integers(-9, 10, shape).astype(object) for shape in ((n, d), (d, h), (n, h)))
    encoded = polynomial(tiling.feature_places(n, d), x)
    product = multiply(polynomial(tiling.weight_places(d, h), v), encoded)
    assert np.array_equal(take(product, tiling.product_places(n, h)).reshape(n, h), x @ v)
    gradient = multiply(polynomial(tiling.step_places(n, h), s), encoded)
    assert np.array_equal(take(gradient, tiling.gradient_places(d, h)).reshape(d, h), x.T @ s)


@given(st.integers(1, 5000), st.integers(1, 700), st.integers(1, 300))
def test_tiles_fit_and_are_no_larger_than_the_block(batch: int, width_in: int, width_out: int) -> None:
    tiling = Tiling.plan(batch, width_in, width_out)
    assert tiling.rows * tiling.features * tiling.outputs <= DEGREE
    assert tiling.rows <= batch
    assert tiling.features <= width_in
    assert tiling.outputs <= width_out


def test_the_plan_balances_uploads_and_answers() -> None:
    assert Tiling.plan(256, 32, 16) == Tiling(43, 11, 16)
    assert Tiling.plan(1, 1, 20000).outputs <= DEGREE
    with pytest.raises(OverflowRefused):
        Tiling.plan(8, 1 << 21, 1)


def test_parameters_below_128_bits_of_security_are_refused() -> None:
    assert sum(Chain((58, 60), 60, 40).sizes) == 218
    with pytest.raises(WeakKeyError):
        Chain((59, 60), 60, 40)


def test_random_polynomials_have_their_distributions() -> None:
    signs = np.concatenate([sample_ternary() for _ in range(8)])
    assert np.unique(signs).tolist() == [-1, 0, 1]
    assert np.abs(np.bincount(signs + 1) / len(signs) - 1 / 3).max() < 0.02
    noise = np.concatenate([sample_binomial() for _ in range(8)])
    assert abs(noise.mean()) < 0.1
    assert abs(noise.std() - np.sqrt(10.5)) < 0.1
    assert np.abs(noise).max() <= 21
    assert {int(v) >> 70 for v in sample_uniform((200,), 3 << 70)} == {0, 1, 2}
    assert max(sample_uniform((200,), 1 << 64)) >> 60 == 15


@pytest.mark.parametrize("bits", [10, 62, 63, 64, 71, 127, 140])
def test_the_flood_fills_its_range(bits: int) -> None:
    basis = Basis(PRIMES)
    values = basis.to_integers(sample_flooding(basis, 4000, bits))
    values = np.where(values > basis.modulus // 2, values - basis.modulus, values)
    scaled = np.array([int(v) / 2.0**bits for v in values])
    assert -1 <= scaled.min() < -0.98
    assert 0.98 < scaled.max() < 1
    assert abs(scaled.mean()) < 0.05
    assert abs(scaled.std() - 1 / np.sqrt(3)) < 0.03


def envelope(kind: Content = Content.STEPS, tag: bytes = b"12345678", rows: int = 5) -> Envelope:
    return Envelope(kind, 1, 0, tag, Tiling(4, 3, 2), rows, seal_context(Chain((48, 40), 56)))


def test_messages_travel_and_name_what_they_are() -> None:
    own = envelope()
    first = np.stack(
        [np.array([secrets.randbelow(p) for _ in range(DEGREE)], dtype=np.uint64) for p in own.seal.data.primes]
    )
    message = own.write_uploads([(first, b"s" * 64)])
    ((back, seed),) = own.read_uploads(message, 1)
    assert np.array_equal(back, first)
    assert seed == b"s" * 64
    assert message.shape == (1, 36 + 64 + DEGREE * 18)
    for other in (envelope(Content.WEIGHTS), envelope(tag=b"12345679"), envelope(rows=6)):
        with pytest.raises(MalformedError, match="begins with"):
            other.read_uploads(message, 1)
    with pytest.raises(MalformedError, match="expected uint8"):
        own.read_uploads(message, 2)
    large = message.copy()
    large[0, -7:] = 255
    with pytest.raises(MalformedError, match="below its prime"):
        own.read_uploads(large, 1)


def test_an_answer_carries_no_coefficient_but_those_asked_for() -> None:
    own = envelope(Content.GRADIENT)
    answers = [
        (np.full((2, size), 7 + size, dtype=np.uint64), np.full((2, DEGREE), 3, dtype=np.uint64)) for size in (6, 2)
    ]
    message = own.write_answers(answers)
    assert message.size == 36 + 11 * (2 * DEGREE + 8)
    for (a, b), (c, d) in zip(own.read_answers(message, [6, 2]), answers, strict=True):
        assert np.array_equal(a, c)
        assert np.array_equal(b, d)
    with pytest.raises(MalformedError):
        own.read_answers(message, [6, 3])


def test_seal_reads_back_what_it_wrote_and_refuses_zeros() -> None:
    own = seal_context(Chain((48, 40), 56))
    rng = np.random.default_rng(1)
    halves = np.stack([[rng.integers(0, p, DEGREE, dtype=np.uint64) for p in own.data.primes] for _ in range(2)])
    assert np.array_equal(own.read_ciphertext(own.make_ciphertext(halves)), halves)
    with pytest.raises(MalformedError, match="ring element"):
        own.make_ciphertext(np.full_like(halves, 2**63))
    with pytest.raises(MalformedError, match="not an encryption"):
        own.transform_ciphertext(own.make_ciphertext(np.zeros_like(halves)))
    with pytest.raises(MalformedError, match="were all inputs encryptions"):
        own.sum_products(
            [own.transform_ciphertext(own.make_ciphertext(halves))],
            [own.make_plaintext(np.zeros(DEGREE, dtype=np.int64))],
        )


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
def test_processes_that_were_forked_share_no_file_with_seal() -> None:
    """Through it pass secret keys; processes that shared it also wrote over each other's objects."""
    context = seal_context(Chain((48, 40), 56))
    read, write = os.pipe()
    mine = context.new_secret_key()
    child = os.fork()
    if not child:
        os.close(read)
        try:
            context.make_ciphertext(np.zeros((2, len(context.data.primes), DEGREE), np.uint64))
            os.write(write, Path(context._file.path).stat().st_ino.to_bytes(8, "big"))
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        theirs = int.from_bytes(pipe.read(), "big")
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert theirs not in (0, Path(context._file.path).stat().st_ino)
    assert context.make_encryptor(mine)


_NO_FILE_LEFT = """
import os, sys
import numpy as np
from securevfl_crypto.errors import EngineError
from securevfl_crypto.rlwe.parameters import DEGREE, Chain
from securevfl_crypto.rlwe.seal import seal_context

context = seal_context(Chain((48, 40), 56))
zeros = np.zeros((2, len(context.data.primes), DEGREE), np.uint64)
context.make_ciphertext(zeros)
mine = os.stat(context._file.path).st_ino
make = os.memfd_create

def fail(*given):
    raise OSError(24, "Too many open files")

os.memfd_create = fail
child = os.fork()
if child:
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
try:
    context.make_ciphertext(zeros)
except EngineError as error:
    if "file in memory cannot be made" not in str(error):
        os._exit(5)
else:
    os._exit(6)
os.memfd_create = make
context.make_ciphertext(zeros)
os._exit(7 if os.stat(context._file.path).st_ino == mine else 0)
"""


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="the system has no files in memory")
def test_a_forked_process_without_a_file_to_be_had_does_not_use_its_parents() -> None:
    """Python ignores errors of what runs after a fork: the child went on with the file of its parent."""
    assert subprocess.run([sys.executable, "-c", _NO_FILE_LEFT], check=False).returncode == 0


def test_a_machine_without_memory_is_no_fault_of_the_peers_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    context = seal_context(Chain((48, 40), 56))
    monkeypatch.setattr(os, "pwritev", lambda *given: 0)
    with pytest.raises(EngineError, match="no memory left"):
        context.make_ciphertext(np.zeros((2, len(context.data.primes), DEGREE), np.uint64))
