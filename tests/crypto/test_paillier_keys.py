"""Paillier keys from a peer: each kind of malformed modulus is refused, although its proof is as good as it can be."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Sequence

import gmpy2
import pytest
from gmpy2 import mpz
from securevfl_crypto import MalformedError, Paillier, PaillierPublicKey, WeakKeyError, generate_keypair
from securevfl_crypto.aggregation import PaillierAggregation
from securevfl_crypto.paillier import modulus_proof
from securevfl_crypto.paillier.modulus_proof import derive_base, proof_bytes, prove_modulus, verify_modulus

KEY = generate_keypair(512, unsafe_small_key=True)
HEAD, WIDTH = 9, 64


def prime(bits: int, rest: int, seed: int) -> mpz:
    """The prime of so many bits that is `rest` modulo 4, from a seed."""
    found = gmpy2.next_prime((mpz(3) << (bits - 2)) + 7919 * seed**3)
    while found % 4 != rest:
        found = gmpy2.next_prime(found)
    return found


def best_proof(factors: Sequence[tuple[mpz, int]]) -> bytes:
    """What somebody who knows the factors (prime, exponent) can prove: every root that exists, and 1 where none does.

    Roots modulo powers of primes are found one by one, by the order of each group; no shortcut of `prove` is shared.
    """
    n = gmpy2.mpz(1)
    for factor, times in factors:
        n *= factor**times
    roots: list[mpz] = []
    for i in range(modulus_proof._ROOTS):
        roots.append(_joined(factors, [_root(modulus_proof._hash_to_number(n, b"root", i), n, *f) for f in factors]))
    for i in range(modulus_proof._SQUARES):
        number = modulus_proof._symbol_one(n, i)
        either = (_joined(factors, [_square_root(sign * number, *f) for f in factors]) for sign in (1, -1))
        roots.append(next((root for root in either if root != 1), mpz(1)))
    return b"".join(int(root).to_bytes((n.bit_length() + 7) // 8, "little") for root in roots)


def _root(number: mpz, degree: mpz, factor: mpz, times: int) -> mpz | None:
    order, modulus = (factor - 1) * factor ** (times - 1), factor**times
    if gmpy2.gcd(degree, order) != 1:
        return None
    return gmpy2.powmod(number, gmpy2.invert(degree, order), modulus)


def _square_root(number: mpz, factor: mpz, times: int) -> mpz | None:
    """Of a unit modulo a power of a prime: by Cipolla's method modulo the prime, lifted by Newton's."""
    if gmpy2.jacobi(number % factor, factor) != 1:
        return None
    a = next(mpz(a) for a in itertools.count(1) if gmpy2.jacobi((a * a - number) % factor, factor) == -1)
    w, result, power = a * a - number, (mpz(1), mpz(0)), (a, mpz(1))
    exponent = (factor + 1) // 2
    while exponent:
        if exponent & 1:
            result = _times(result, power, w, factor)
        power, exponent = _times(power, power, w, factor), exponent >> 1
    root, modulus = result[0], factor
    for _ in range(times - 1):
        modulus *= factor
        root = (root - (root * root - number) * gmpy2.invert(2 * root, modulus)) % modulus
    return root


def _times(a: tuple[mpz, mpz], b: tuple[mpz, mpz], w: mpz, m: mpz) -> tuple[mpz, mpz]:
    return (a[0] * b[0] + a[1] * b[1] * w) % m, (a[0] * b[1] + a[1] * b[0]) % m


def _joined(factors: Sequence[tuple[mpz, int]], parts: Sequence[mpz | None]) -> mpz:
    total, modulus = mpz(0), mpz(1)
    for (factor, times), part in zip(factors, parts, strict=True):
        if part is None:
            return mpz(1)
        size = factor**times
        total += modulus * ((part - total) * gmpy2.invert(modulus, size) % size)
        modulus *= size
    return total


def read(n: mpz, proof: bytes) -> PaillierPublicKey:
    bits = int(n.bit_length())
    body = int(n).to_bytes((bits + 7) // 8, "little") + proof
    return PaillierPublicKey.from_bytes(b"SVPK\x02" + bits.to_bytes(4, "little") + body, unsafe_small_key=True)


P, Q, R = prime(256, 3, 1), prime(256, 3, 2), prime(256, 3, 3)
P1, Q1 = prime(256, 1, 1), prime(256, 1, 2)
DIVIDES = next(p for k in itertools.count(2, 4) if gmpy2.is_prime(p := k * Q + 1) and p % 4 == 3)  # Q divides it less 1
MALFORMED = {
    "a square of a prime times another": ([(P, 2), (Q1, 1)], "degree n"),
    "a square of a prime times another, 3 modulo 4": ([(P, 2), (Q, 1)], "not an n-th power of"),
    "a cube": ([(P, 3)], "a power"),
    "a fifth power": ([(prime(120, 3, 5), 5)], "a power"),
    "a square": ([(P, 2)], "a power"),
    "three primes": ([(P, 1), (Q, 1), (P1, 1)], "square root"),
    "three primes, 3 modulo 4": ([(P, 1), (Q, 1), (R, 1)], "not an n-th power of"),
    "four primes": ([(P, 1), (Q, 1), (R, 1), (prime(256, 3, 4), 1)], "square root"),
    "both primes 1 modulo 4": ([(P1, 1), (Q1, 1)], "square root"),
    "one prime 1 modulo 4": ([(P, 1), (Q1, 1)], "not an n-th power of"),
    "a prime that divides the other less one": ([(Q, 1), (DIVIDES, 1)], "degree n"),
    "one prime": ([(P, 1)], "prime"),
}


@pytest.mark.parametrize("kind", list(MALFORMED))
def test_a_malformed_modulus_is_refused(kind: str) -> None:
    factors, match = MALFORMED[kind]
    n = mpz(1)
    for factor, times in factors:
        n *= factor**times
    with pytest.raises(MalformedError, match=match):
        read(n, best_proof(factors))


def test_the_best_proof_of_a_sound_modulus_is_accepted() -> None:
    """The malformed ones are refused for what they are, and not for how their proofs were made."""
    for n, factors in ((P * Q, [(P, 1), (Q, 1)]), (P * R, [(P, 1), (R, 1)])):
        key = read(n, best_proof(factors))
        assert key.hs == derive_base(n)
        assert (
            read(n, prove_modulus(*(factor for factor, _ in factors))).proof != key.proof
        )  # other square roots are as good


def test_both_kinds_of_challenges_are_needed() -> None:
    """A modulus may pass one kind and fail the other."""
    roots = modulus_proof._ROOTS * ((P1 * Q1).bit_length() + 7 >> 3)
    proof = best_proof([(P1, 1), (Q1, 1)])
    width = roots // modulus_proof._ROOTS
    for i in range(modulus_proof._ROOTS):
        root = mpz(int.from_bytes(proof[i * width : (i + 1) * width], "little"))
        assert gmpy2.powmod(root, P1 * Q1, P1 * Q1) == modulus_proof._hash_to_number(P1 * Q1, b"root", i)
    ones = sum(proof[at : at + width] == (1).to_bytes(width, "little") for at in range(roots, len(proof), width))
    assert 40 < ones < 88, "about half of the challenges have no square root"


def test_the_base_of_the_randomness_is_what_the_hash_says() -> None:
    """Ten lines without the package: −x² to the power of n, for x = SHAKE-256 of n."""
    n = int(KEY.public.n)
    text = b"securevfl paillier modulus v2" + (64).to_bytes(4, "little") + n.to_bytes(64, "little") + b"base" + bytes(4)
    x = int.from_bytes(hashlib.shake_256(text).digest(80), "little") % n
    assert KEY.public.hs == pow(-x * x, n, n * n)
    assert read(KEY.public.n, KEY.public.proof).hs == KEY.public.hs


def test_a_peer_cannot_choose_the_base() -> None:
    """A base of order 3 hides two bits of an exponent; there is no place for it in the message."""
    raw = KEY.public.to_bytes()
    assert len(raw) == HEAD + WIDTH + proof_bytes(512) == HEAD + 139 * WIDTH
    old = b"SVPK\x01" + (512).to_bytes(4, "little") + raw[HEAD : HEAD + WIDTH] + bytes(127) + b"\1"
    with pytest.raises(MalformedError, match="not a Paillier public key of version 2"):
        PaillierPublicKey.from_bytes(old, unsafe_small_key=True)
    forged = PaillierPublicKey(KEY.public.n, gmpy2.powmod(KEY.public.hs, 3, KEY.public.n2), True, KEY.public.proof)
    assert PaillierPublicKey.from_bytes(forged.to_bytes(), unsafe_small_key=True) == KEY.public


def test_a_proof_that_is_cut_or_changed_or_anothers_is_refused() -> None:
    n, proof = KEY.public.n, KEY.public.proof
    other = generate_keypair(512, unsafe_small_key=True).public
    for bad in (b"", proof[:-1], proof + b"\0", proof[WIDTH:], other.proof, bytes(len(proof)), b"\xff" * len(proof)):
        with pytest.raises(MalformedError):
            verify_modulus(n, bad)
    for at in range(0, len(proof), WIDTH):  # every number of it counts
        changed = bytearray(proof)
        changed[at] ^= 1
        with pytest.raises(MalformedError, match="wrong"):
            verify_modulus(n, bytes(changed))
    swapped = proof[WIDTH : 2 * WIDTH] + proof[:WIDTH] + proof[2 * WIDTH :]
    with pytest.raises(MalformedError, match="degree n"):
        verify_modulus(n, swapped)
    with pytest.raises(MalformedError, match="bytes; "):
        PaillierPublicKey.from_bytes(PaillierPublicKey(n, KEY.public.hs, True).to_bytes(), unsafe_small_key=True)


def test_a_proof_is_the_same_every_time() -> None:
    """Two different square roots of one number would tell the factors."""
    assert prove_modulus(KEY.p, KEY.q) == prove_modulus(KEY.q, KEY.p) == KEY.public.proof


@pytest.mark.parametrize("scheme", [Paillier(2048), PaillierAggregation(2048)], ids=["cut", "aggregation"])
def test_a_key_of_another_size_than_agreed_is_refused_by_its_head_alone(scheme: Paillier | PaillierAggregation) -> None:
    """Every operation on a modulus of 8192 bits takes sixty times as long: what was agreed is the most, too."""
    for bits, error in ((8192, MalformedError), (2056, MalformedError), (1024, WeakKeyError)):
        size = HEAD + bits // 8 + proof_bytes(bits)
        with pytest.raises(error, match="2048 were agreed"):
            scheme.read_public((b"SVPK\x02" + bits.to_bytes(4, "little")).ljust(size, b"\xff"))
