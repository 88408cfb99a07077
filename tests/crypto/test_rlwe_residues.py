"""Long numbers to residues, and shares of zero in a ring of the caller's own."""

from __future__ import annotations

import secrets

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from securevfl_crypto import MalformedError, PairwiseMasks, ZeroShares
from securevfl_crypto.rlwe.keys import RlwePublicKey
from securevfl_crypto.rlwe.residues import Basis, read_residues, write_residues

BASIS = Basis(((1 << 60) - (1 << 14) + 1, (1 << 48) - 59))


@given(st.lists(st.lists(st.integers(0, 2**64 - 1), min_size=3, max_size=3), min_size=1, max_size=5))
def test_long_numbers_are_reduced_as_integers_are(rows: list[list[int]]) -> None:
    found = BASIS.reduce(np.array(rows, dtype=np.uint64))
    for number, words in enumerate(rows):
        value = sum(word << (64 * (2 - i)) for i, word in enumerate(words))
        assert [int(row[number]) for row in found] == [value % prime for prime in BASIS.primes]


@pytest.mark.parametrize("parties", [2, 3, 4])
def test_blocks_of_all_parties_add_up_to_zero(parties: int) -> None:
    seeds = {frozenset((i, j)): secrets.token_bytes(32) for i in range(parties) for j in range(i)}
    total = np.zeros((7, 3), dtype=object)
    for one in range(parties):
        pairs = [
            PairwiseMasks(seeds[frozenset((one, other))], positive=one < other)
            for other in range(parties)
            if other != one
        ]
        shares = ZeroShares(pairs)
        first = shares.draw_blocks(7, 3)
        again = shares.draw_blocks(7, 3)
        assert all((a[1] != b[1]).any() for a, b in zip(first, again, strict=True)), "no mask is used twice"
        for sign, block in first:
            total = total + sign * block.astype(object)
    assert not total.any()


@pytest.mark.parametrize("prime", [0, 1])
def test_residues_of_a_peer_that_are_not_below_their_prime_are_refused(prime: int) -> None:
    """The arithmetic is wrong above it, and a number would have two encodings."""
    largest = np.array([[modulus - 1] * 3 for modulus in BASIS.primes], dtype=np.uint64)
    widths = (8, 6)

    def back(residues: np.ndarray) -> np.ndarray:
        return read_residues(memoryview(write_residues(residues, widths)), BASIS.primes, widths, 3)

    assert np.array_equal(back(largest), largest)
    largest[prime, 2] += np.uint64(1)
    with pytest.raises(MalformedError, match="a residue is not below its prime"):
        back(largest)


def test_a_fingerprint_has_128_bits() -> None:
    """Of 256 public keys, no two fingerprints or tags agree, and each octet of them varies."""
    keys = [RlwePublicKey(scheme, (), ()) for scheme in range(256)]
    octets = np.array([list(bytes.fromhex(key.fingerprint)) for key in keys])
    assert octets.shape == (256, 16)
    assert (np.ptp(octets, axis=0) > 0).all()
    assert len({key.tag for key in keys}) == len({key.fingerprint for key in keys}) == 256
