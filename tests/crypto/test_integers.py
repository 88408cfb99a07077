"""Packing, big integers on the wire, masks and products of powers, each against ten obvious lines."""

from __future__ import annotations

import gmpy2
import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from gmpy2 import mpz
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from securevfl_crypto import (
    CryptoError,
    MalformedError,
    OverflowRefused,
    PairwiseMasks,
    ZeroShares,
    bigints_from_bytes,
    bigints_to_bytes,
    exact_product,
    uniform_masks,
)
from securevfl_crypto.modular.multi_exponentiation import many_bases, shared_tables


@given(st.lists(st.integers(-(2**95), 2**95 - 1), min_size=1, max_size=9))
def test_big_integers_come_back_from_bytes(values: list[int]) -> None:
    array = np.array(values, dtype=object)
    raw = bigints_to_bytes(array, 12)
    assert raw.shape == (len(values), 12)
    assert list(bigints_from_bytes(raw, array.shape, 12)) == values


def test_big_integers_are_checked() -> None:
    with pytest.raises(OverflowRefused, match="97 bits; 95 fit"):
        bigints_to_bytes(np.array([2**96], dtype=object), 12)
    for bad in (np.zeros((2, 11), np.uint8), np.zeros((2, 12), np.int8), np.zeros((3, 12), np.uint8)):
        with pytest.raises(MalformedError):
            bigints_from_bytes(bad, (2,), 12)


@pytest.mark.parametrize("bits", [5, 63, 83, 130])
def test_masks_are_uniform_over_their_whole_range(bits: int) -> None:
    masks = uniform_masks((60, 50), bits)
    scaled = [(int(m) + (1 << bits)) / (1 << (bits + 1)) for m in masks.flat]
    assert 0 <= min(scaled) < 0.05
    assert 0.95 < max(scaled) < 1
    if bits > 20:
        assert stats.kstest(scaled, "uniform").pvalue > 1e-6


def _zero_shares(parties: int) -> list[ZeroShares]:
    pairs: dict[int, list[PairwiseMasks]] = {i: [] for i in range(parties)}
    for i in range(parties):
        for j in range(i + 1, parties):
            seed = bytes([i, j] * 16)
            pairs[i].append(PairwiseMasks(seed, positive=True))
            pairs[j].append(PairwiseMasks(seed, positive=False))
    return [ZeroShares(pairs[i]) for i in range(parties)]


@pytest.mark.parametrize("parties", [2, 3, 5])
def test_masks_cancel_over_the_parties_and_are_new_each_time(parties: int) -> None:
    modulus = mpz(2) ** 200 + 235
    shares = _zero_shares(parties)
    seen = set()
    for count in (4, 1, 7):
        blocks = [share.draw_shares(count, modulus) for share in shares]
        for column in zip(*blocks, strict=True):
            assert sum(column) % modulus == 0
        seen.update(value for block in blocks for value in block)
    assert len(seen) == parties * 12


def test_masks_span_the_modulus_evenly() -> None:
    modulus = mpz(3) ** 120
    masks = PairwiseMasks(bytes(32), positive=True).draw_masks(1, 3000, modulus)
    assert stats.kstest([float(m / modulus) for m in masks], "uniform").pvalue > 1e-6


@pytest.mark.parametrize("bits", [1, 13, 63, 64])
@pytest.mark.parametrize("parties", [2, 3, 5])
def test_masks_of_words_cancel_and_are_new_each_time(parties: int, bits: int) -> None:
    zeros, seen = _zero_shares(parties), []
    for _ in range(3):
        shares = [zero.draw_words(200, bits) for zero in zeros]
        assert all(share.dtype == np.uint64 for share in shares)
        assert all(int(share.max()) >> bits == 0 for share in shares)
        assert not (np.add.reduce(shares) & np.uint64((1 << bits) - 1)).any()
        assert all(
            int(share.max()) > (1 << bits) * 0.9 - 1 and int(share.min()) < (1 << bits) * 0.1 for share in shares
        )
        seen += [share.tobytes() for share in shares]
    assert len(set(seen)) == (3 if (parties, bits) == (2, 1) else 3 * parties)  # modulo 2, −m is m


def test_masks_of_words_are_chacha20() -> None:
    """RFC 8439's block function, nonce = counter: the words are its stream, little-endian; no block serves twice."""
    for positive in (True, False):
        stream = Cipher(algorithms.ChaCha20(bytes(32), bytes(8) + (3).to_bytes(8, "little")), mode=None).encryptor()
        expected = np.frombuffer(stream.update(bytes(80)), dtype="<u8").astype(object) * (1 if positive else -1)
        pair = PairwiseMasks(bytes(32), positive=positive)
        assert pair.draw_words(3, 10).tolist() == (expected % 2**64).tolist()
        with pytest.raises(CryptoError, match="never used twice"):
            pair.draw_words(3, 10)
        with pytest.raises(CryptoError, match="never used twice"):
            pair.draw_masks(3, 1, mpz(7))


def test_every_bit_of_a_counter_makes_other_masks() -> None:
    """A counter that were cut would give the masks of an earlier message again."""
    pair = PairwiseMasks(bytes(32), positive=True)
    drawn = [pair.draw_words(counter, 4) for counter in (0, *(1 << bit for bit in range(64)), 2**64 - 1)]
    assert len(np.unique(np.concatenate(drawn))) == 4 * 66


def test_no_number_of_a_mask_is_left_out_or_comes_twice() -> None:
    """One that is 0 shows what it should hide."""
    pair = PairwiseMasks(bytes(32), positive=True)
    for drawn in (pair.draw_words(1, 6000), pair.draw_blocks(2, 3000, 2)[1], pair.draw_masks(3, 6000, mpz(2) ** 64)):
        found = {int(number) for number in np.asarray(drawn).flat}
        assert len(found) == 6000
        assert 0 not in found


def test_shares_of_zero_of_both_kinds_count_together() -> None:
    one, other = _zero_shares(2)
    for zero in (one, other):
        zero.draw_shares(2, mpz(1 << 90))
    assert not (one.draw_words(5, 64) + other.draw_words(5, 64)).any()
    one.draw_words(5, 64)
    assert (one.draw_words(5, 64) + other.draw_words(5, 64)).any()  # out of step
    assert not ZeroShares([]).draw_words(3, 64).any()
    for bits in (0, 65):
        with pytest.raises(MalformedError, match="1 to 64"):
            one.draw_words(3, bits)


def _numbers(ends: list[int], count: int) -> st.SearchStrategy[list[int]]:
    return st.lists(st.one_of(st.sampled_from(ends), st.integers(*ends)), min_size=count, max_size=count)


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_exact_products_are_exact(data: st.DataObject) -> None:
    rows, d, h = data.draw(st.integers(0, 4)), data.draw(st.integers(0, 9)), data.draw(st.integers(1, 3))
    small, wide = data.draw(st.sampled_from([1, 15, 30, 45, 63])), data.draw(st.sampled_from([1, 31, 32, 63, 64, 200]))
    extremes = [-(2**small), 2**small - 1]
    x = np.array(
        data.draw(
            st.lists(st.one_of(st.sampled_from(extremes), st.integers(*extremes)), min_size=rows * d, max_size=rows * d)
        ),
        dtype=np.int64,
    ).reshape(rows, d)
    bounds = [-(2**wide), 2**wide - 1]
    u = np.array(
        data.draw(_numbers(bounds, d * h)),
        dtype=object,
    ).reshape(d, h)
    found = exact_product(x, u)
    assert found.shape == (rows, h)
    for i in range(rows):
        for k in range(h):
            assert found[i, k] == sum(int(x[i, j]) * u[j, k] for j in range(d))


@pytest.mark.parametrize("d", [1, 3, 15])
def test_exact_products_of_the_largest_numbers(d: int) -> None:
    """All limbs full and all signs alike: the sums that int64 has to hold are as large as they can become."""
    for bits in range(64):
        for x in (2**bits - 1, -(2**bits)):
            for u in (2**96 - 1, -(2**95), 2**64 - 1):
                if -(2**63) <= x < 2**63:
                    found = exact_product(np.full((1, d), x, dtype=np.int64), np.full((d, 1), u, dtype=object))
                    assert found[0, 0] == d * x * u


def test_exact_products_of_another_type_or_shape_are_refused() -> None:
    x, u = np.ones((2, 3), dtype=np.int64), np.ones((3, 2), dtype=object)
    for a, b in ((x, u.T), (x.astype(float), u), (x[0], u), (x, u[0])):
        with pytest.raises(MalformedError, match="; expected int64"):
            exact_product(a, b)


def test_a_mask_counter_is_never_used_twice() -> None:
    pair = PairwiseMasks(bytes(32), positive=True)
    pair.draw_masks(3, 2, mpz(101))
    for counter in (3, 2):
        with pytest.raises(CryptoError, match="never used twice"):
            pair.draw_masks(counter, 2, mpz(101))
    with pytest.raises(CryptoError, match="32 are needed"):
        PairwiseMasks(b"short", positive=True)


MODULUS = mpz(2) ** 127 - 1


def _slow(bases: list[mpz], exponents: np.ndarray) -> list[mpz]:
    out = []
    for row in exponents:
        value = mpz(1)
        for base, exponent in zip(bases, row, strict=True):
            value = value * gmpy2.powmod(base, int(exponent), MODULUS) % MODULUS
        out.append(value)
    return out


bases_lists = st.lists(st.integers(2, 2**120), min_size=1, max_size=7).map(lambda xs: [mpz(x) for x in xs])


@settings(max_examples=60, deadline=None)
@given(bases_lists, st.integers(1, 5), st.sampled_from([1, 4, 15, 40, 90]), st.data())
def test_shared_tables_equal_the_definition(bases: list[mpz], rows: int, bits: int, data: st.DataObject) -> None:
    exponent = st.integers(-(2**bits), 2**bits)
    matrix = np.array([[data.draw(exponent) for _ in bases] for _ in range(rows)], dtype=object).reshape(
        rows, len(bases)
    )
    assert shared_tables(bases, matrix, MODULUS) == _slow(bases, matrix)


@settings(max_examples=60, deadline=None)
@given(bases_lists, st.integers(1, 4), st.sampled_from([1, 2, 15, 16, 39]), st.data())
def test_many_bases_equals_the_definition(bases: list[mpz], rows: int, bits: int, data: st.DataObject) -> None:
    exponent = st.integers(-(2**bits) + 1, 2**bits - 1)
    matrix = np.array([[data.draw(exponent) for _ in bases] for _ in range(rows)], dtype=np.int64)
    assert many_bases(bases, matrix, MODULUS) == _slow(bases, matrix)


def test_products_of_nothing_are_one() -> None:
    zeros = np.zeros((2, 3), dtype=np.int64)
    bases = [mpz(5), mpz(7), mpz(11)]
    assert many_bases(bases, zeros, MODULUS) == shared_tables(bases, zeros, MODULUS) == [1, 1]
