"""A proof that a modulus is suitable for Paillier, and the base of the randomness, which follows from the modulus.

S. Goldberg, L. Reyzin, O. Sagga, F. Baldimtsi, "Efficient Noninteractive Certification of RSA Moduli and Beyond"
(Asiacrypt 2019, eprint 2018/057): the owner, who knows the factors, answers challenges that are hashes of n.

- *Roots of degree n* show gcd(n, φ(n)) = 1: no square divides n, and no factor of n
  divides another one less one. Otherwise a prime r divides both, ``x ↦ xⁿ`` maps at least r units to each of its
  values, and at most one challenge in r has a root. Trial division shows r > 2^13, so `_ROOTS` challenges leave a
  chance of 2^-130.
- *Square roots* show that n has exactly two prime factors, both 3 modulo 4 (as J. van de Graaf and R. Peralta,
  Crypto '87): then of each ρ with Jacobi symbol 1 either ρ or −ρ is a square. With more factors, or with
  factors that are 1 modulo 4, at most half of them have that property: `_SQUARES` challenges leave 2^-128. Powers of
  h_s have both quadratic characters only modulo such an n, and the units are a product of two cyclic groups, which
  `answer_residues` uses.

The roots reveal nothing else: the root of degree n is unique, and of four square roots the proof has the one that is
itself a square. Both distributions can be drawn without the factors, together with their challenges (random oracle
model). Each n has exactly one proof: a second root of the same number would give the factors away.

*Not* proved: that the factors are random or large (a weak key harms its owner), that p − 1 and q − 1 share no factor
but 2, and that nobody chose the order of h_s. An owner can choose p − 1 and q − 1 with small factors only, and so
compute discrete logarithms; and since h follows from n, it can try moduli until h is an r-th power modulo p: for
r = 3 · 5 · 7 some hundred of them, a minute. Powers of h_s would then hide neither what a holder multiplies modulo r
nor, with smooth factors, any of it. So a holder blinds its answers by n-th residues that it draws itself, uniform among
all of them (`answer_residues`), and needs of this proof only what it shows.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache

import gmpy2
from gmpy2 import mpz

from securevfl_crypto.errors import MalformedError

__all__ = ["SMALL_FACTORS", "derive_base", "proof_bytes", "prove_modulus", "verify_modulus"]

SMALL_FACTORS = 1 << 13
"""A modulus has no prime factor below."""
_ROOTS = 10
"""2^(−13 · 10): see the module."""
_SQUARES = 128
_DOMAIN = b"securevfl paillier modulus v2"
_SLACK = 16
"""Bytes by which a hash is longer than n: reduced modulo n it is within 2^-128 of uniform."""


def proof_bytes(bits: int) -> int:
    """Bytes of the proof for a modulus of `bits` bits."""
    return (_ROOTS + _SQUARES) * _number_bytes(bits)


def derive_base(n: mpz) -> mpz:
    """``h_s = hⁿ mod n²`` with ``h = −x²`` for x that is a hash of n (Damgård, Jurik, Nielsen 2010, section 4.2).

    h follows from n, and whoever chooses n can try several: see the module for what that means. As in the paper h is
    public; x need not be secret, since a root of h reveals nothing about exponents.
    """
    x = _hash_to_number(n, b"base", 0)
    return gmpy2.powmod(-x * x % n, n, n * n)


def prove_modulus(p: mpz, q: mpz) -> bytes:
    """Prove n = p q; each call returns the same proof.

    Args:
        p, q: different primes, both 3 modulo 4; neither divides the other less one.
    """
    n = p * q
    degree = gmpy2.invert(n, (p - 1) * (q - 1))
    inverse = gmpy2.invert(p, q)

    def power(number: mpz, exponents: tuple[mpz, mpz]) -> mpz:
        # powmod_sec: the exponents follow from the factors, so the time must not depend on them.
        first = gmpy2.powmod_sec(number % p, exponents[0], p)
        return first + p * ((gmpy2.powmod_sec(number % q, exponents[1], q) - first) * inverse % q)

    roots = [power(_hash_to_number(n, b"root", i), (degree % (p - 1), degree % (q - 1))) for i in range(_ROOTS)]
    # For a square modulo p ≡ 3 mod 4, the power (p + 1)/4 is the root that is a square itself.
    quarter = (p + 1) // 4, (q + 1) // 4
    for i in range(_SQUARES):
        number = _symbol_one(n, i)
        roots.append(power(number if gmpy2.jacobi(number % p, p) == 1 else -number, quarter))
    return b"".join(int(root).to_bytes(_number_bytes(n.bit_length()), "little") for root in roots)


@lru_cache(maxsize=64)
def verify_modulus(n: mpz, proof: bytes) -> None:
    """Check the proof that `prove_modulus` wrote; a proof that was found right in this process is not checked again.

    Args:
        n: odd, not a prime, without factors below `SMALL_FACTORS`.
        proof: as received.

    Raises:
        MalformedError: it has a wrong length, or does not prove n.
    """
    width = _number_bytes(n.bit_length())
    if len(proof) != proof_bytes(n.bit_length()):
        raise MalformedError(f"a proof of {len(proof)} bytes; this modulus needs {proof_bytes(n.bit_length())}")
    roots = [mpz(int.from_bytes(proof[at : at + width], "little")) for at in range(0, len(proof), width)]
    if not all(0 < root < n for root in roots):
        raise MalformedError("a number in the proof of the modulus is not between 0 and n: the key is damaged")
    if n % 4 != 1:
        raise MalformedError("the modulus is 3 modulo 4: it is not a product of two primes that are 3 modulo 4")
    for i, root in enumerate(roots[_ROOTS:]):
        if root * root % n not in (number := _symbol_one(n, i), n - number):
            raise MalformedError(
                "a square root in the proof of the modulus is wrong: the modulus is not a product of two primes that "
                "are 3 modulo 4, or the key is damaged"
            )
    for i, root in enumerate(roots[:_ROOTS]):
        if gmpy2.powmod(root, n, n) != _hash_to_number(n, b"root", i):
            raise MalformedError(
                "a root of degree n in the proof of the modulus is wrong: the modulus has a factor in common with "
                "φ(n), or the key is damaged"
            )


def _number_bytes(bits: int) -> int:
    return (bits + 7) // 8


def _hash_to_number(n: mpz, purpose: bytes, number: int) -> mpz:
    """A number modulo n, by SHAKE-256 of n, the purpose and a number."""
    width = _number_bytes(n.bit_length())
    text = (
        _DOMAIN + width.to_bytes(4, "little") + int(n).to_bytes(width, "little") + purpose + number.to_bytes(4, "big")
    )
    return mpz(int.from_bytes(hashlib.shake_256(text).digest(width + _SLACK), "little")) % n


def _symbol_one(n: mpz, number: int) -> mpz:
    """The challenge of this number for a square root: the first of its hashes whose Jacobi symbol is 1."""
    attempt = 0
    while gmpy2.jacobi(found := _hash_to_number(n, b"square %d" % number, attempt), n) != 1:
        attempt += 1
    return found
