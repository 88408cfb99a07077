"""Paillier's cryptosystem with the short randomness of Damgård, Jurik and Nielsen: the private key.

I. Damgård, M. Jurik, J. B. Nielsen, "A generalization of Paillier's public-key system with applications to electronic
voting", Int. J. Inf. Secur. 9 (2010), section 4.2: n = p q with p ≡ q ≡ 3 mod 4 and gcd(p − 1, q − 1) = 2; h = −x²
mod n for a random x (here a hash of n); h_s = hⁿ mod n²; a ciphertext of m is (1 + n m) h_s^α mod n² with α uniform of
⌈|n|/2⌉ bits. It is secure if composite residuosity is hard to decide and powers of h_s with short exponents look
uniform (ibid.).

Plaintexts are signed integers modulo n: those above n/2 stand for negative ones. Keys and ciphertexts are compatible
with every Paillier implementation whose generator is n + 1, such as python-paillier.

Timing: exponentiation by key material (decryption, and the factors in classical encryption) has no branches or memory
addresses that depend on the exponent; neither has a single encryption. Batches look up powers of h_s in tables by the
digits of α, and read whole tables only if `constant_time` is set: each α is used once, and only a process on the same
machine that watches the cache could see parts of it. Chinese remaindering uses GMP's ordinary arithmetic.

A public key includes a proof that n is a product of two primes of this kind, and x is a hash of n. `modulus_proof`
describes the proof and its limits; what a holder blinds its answers with does not depend on h_s (`answer_residues`).
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import gmpy2
from gmpy2 import mpz

from securevfl_crypto.errors import MalformedError, WeakKeyError
from securevfl_crypto.modular import Batch, FixedBase, Modulus, modular_arithmetic
from securevfl_crypto.paillier.modulus_proof import derive_base, prove_modulus
from securevfl_crypto.paillier.public_key import MAX_BITS, MIN_BITS, PaillierPublicKey, random_exponents, random_units

__all__ = ["PaillierPrivateKey", "check_size", "generate_keypair"]


@dataclass(frozen=True, repr=False)
class PaillierPrivateKey:
    """A private key.

    Attributes:
        public: the public key.
        p, q: the prime factors of its modulus.

    Raises:
        MalformedError: p and q are not the factors of the modulus.
    """

    public: PaillierPublicKey
    p: mpz
    q: mpz
    _crt: tuple[mpz, ...] = field(init=False, compare=False)
    _tables: dict[tuple[bool, int | None], tuple[FixedBase, FixedBase]] = field(init=False, compare=False)

    def __post_init__(self) -> None:
        p, q, n = mpz(self.p), mpz(self.q), self.public.n
        if p * q != n or p == q:
            raise MalformedError("p and q are not the factors of the public key's modulus")
        p2, q2 = p * p, q * q
        # L_p((1 + n)^(p-1) mod p²) = (p - 1) q = -q mod p: its inverse turns L into the plaintext modulo p.
        hp = gmpy2.invert(-q % p, p)
        hq = gmpy2.invert(-p % q, q)
        object.__setattr__(self, "p", p)
        object.__setattr__(self, "q", q)
        object.__setattr__(self, "_crt", (p2, q2, hp, hq, gmpy2.invert(p, q), gmpy2.invert(p2, q2)))
        object.__setattr__(self, "_tables", {})

    def __repr__(self) -> str:
        return f"PaillierPrivateKey({self.public.bits} bits, {self.public.fingerprint}, secret)"

    @cached_property
    def _halves(self) -> tuple[Modulus, Modulus]:
        """Arithmetic modulo p² and modulo q²."""
        return (
            modular_arithmetic(self._crt[0], secret=True, root=self.p),
            modular_arithmetic(self._crt[1], secret=True, root=self.q),
        )

    def encrypt(self, m: mpz | int) -> mpz:
        """A fresh ciphertext of m, distributed as with the public key but faster: h_s^α modulo p² and modulo q².

        Both halves use the same α. With independent ones the result would not be a power of h_s, and a party that
        blinds its answers drowns one integer α, not two.
        """
        p2, q2, hs = self._crt[0], self._crt[1], self.public.hs
        # `or 1`: powmod_sec takes no exponent zero, which has probability 2^-bits.
        alpha = int.from_bytes(secrets.token_bytes(self.public.randomness_bits // 8), "little") or 1
        halves = gmpy2.powmod_sec(hs % p2, alpha, p2), gmpy2.powmod_sec(hs % q2, alpha, q2)
        return self.public.encode_plaintext(m) * self._combine_remainders(*halves) % self.public.n2

    def encrypt_batch(
        self, plaintexts: Sequence[int | mpz], *, classical: bool = False, constant_time: bool = False
    ) -> Batch:
        """Fresh ciphertexts of integers, as by `encrypt`, from tables modulo p² and q².

        Args:
            plaintexts: integers, read modulo n.
            classical: uniform n-th residues instead of powers of h_s, as r_p^p modulo p² and r_q^q modulo q² with
                independent uniform units. rⁿ for a uniform r has that distribution, since n and φ(n) have no common
                factor.
            constant_time: whether whole tables are read for each digit of α.
        """
        blindings = self.make_blindings(len(plaintexts), classical=classical, constant_time=constant_time)
        return self.public.modulus.mul(blindings, self.public.raw_batch(plaintexts))

    def make_blindings(
        self, count: int, *, classical: bool = False, constant_time: bool = False, window: int | None = None
    ) -> Batch:
        """Make fresh encryptions of zero. They need no plaintext, so they can be made in advance, each for one use.

        Args:
            count: the number of encryptions.
            classical, constant_time: see `encrypt_batch`.
            window: bits of a digit of α in tables; see `Modulus.fixed_base`.
        """
        public = self.public
        first, second = self._halves
        if classical:
            powers = (
                first.power(first.from_ints(random_units(self.p, count)), self.p),
                second.power(second.from_ints(random_units(self.q, count)), self.q),
            )
        else:
            alphas = random_exponents(count, public.randomness_bits)
            kind = constant_time, window
            if kind not in self._tables:
                bits = public.randomness_bits
                self._tables[kind] = (
                    first.fixed_base(public.hs, bits, scan=constant_time, window=window),
                    second.fixed_base(public.hs, bits, scan=constant_time, window=window),
                )
            tables = self._tables[kind]
            powers = tables[0].raise_to(alphas), tables[1].raise_to(alphas)
        # The number with remainders a and b is a (q⁻² mod p²) q² + b (p⁻² mod q²) p²; inverses multiply in the halves.
        p2, q2 = self._crt[:2]
        a = first.to_ints(first.mul(powers[0], first.from_ints([gmpy2.invert(q2, p2)])))
        b = second.to_ints(second.mul(powers[1], second.from_ints([self._crt[-1]])))
        return public.modulus.from_ints([x * q2 + y * p2 for x, y in zip(a, b, strict=True)])

    def decrypt(self, c: mpz) -> mpz:
        """The plaintext of a unit modulo n², between −n/2 and n/2 (Paillier 1999, section 7, by CRT)."""
        p2, q2 = self._crt[0], self._crt[1]
        return self._plaintext(gmpy2.powmod_sec(c % p2, self.p - 1, p2), gmpy2.powmod_sec(c % q2, self.q - 1, q2))

    def decrypt_batch(self, ciphertexts: Batch) -> list[mpz]:
        """The plaintexts of units modulo n², between −n/2 and n/2."""
        numbers = self.public.modulus.to_ints(ciphertexts)
        first, second = self._halves
        modulo_p2 = first.to_ints(first.power(first.from_ints(numbers), self.p - 1))
        modulo_q2 = second.to_ints(second.power(second.from_ints(numbers), self.q - 1))
        return [self._plaintext(a, b) for a, b in zip(modulo_p2, modulo_q2, strict=True)]

    def _combine_remainders(self, modulo_p2: mpz, modulo_q2: mpz) -> mpz:
        """The number modulo n² with these remainders (Garner's algorithm)."""
        p2, q2, *_, p2_inverse = self._crt
        return modulo_p2 + p2 * ((modulo_q2 - modulo_p2) * p2_inverse % q2)

    def _plaintext(self, modulo_p2: mpz, modulo_q2: mpz) -> mpz:
        """The plaintext of c from c^(p−1) modulo p² and c^(q−1) modulo q²."""
        p, q, n = self.p, self.q, self.public.n
        hp, hq, p_inverse = self._crt[2:5]
        mp = (modulo_p2 - 1) // p * hp % p
        mq = (modulo_q2 - 1) // q * hq % q
        m = mp + p * ((mq - mp) * p_inverse % q)
        return m - n if m > n // 2 else m


def _random_prime(bits: int) -> mpz:
    """A random prime ≡ 3 mod 4 of exactly `bits` bits, its two top bits set, from the operating system's randomness."""
    while True:
        candidate = mpz(secrets.randbits(bits)) | (mpz(3) << (bits - 2)) | 3
        # The two top bits make the product of two such primes have exactly twice their bits.
        if gmpy2.is_prime(candidate, 40):
            return candidate


def check_size(bits: int, *, unsafe_small_key: bool = False) -> None:
    """Check that a key of `bits` bits can be generated.

    Raises:
        WeakKeyError: fewer than `MIN_BITS` bits (unless `unsafe_small_key`), more than `MAX_BITS`, or an odd number.
    """
    if bits < MIN_BITS and not unsafe_small_key:
        raise WeakKeyError(f"a Paillier key of {bits} bits; at least {MIN_BITS} are accepted: use 3072")
    if bits > MAX_BITS or bits % 2 or bits < 64:
        raise WeakKeyError(f"a Paillier key of {bits} bits; expected an even size from {MIN_BITS} to {MAX_BITS}")


def generate_keypair(bits: int = 3072, *, unsafe_small_key: bool = False) -> PaillierPrivateKey:
    """A fresh key whose modulus has exactly `bits` bits.

    Raises:
        WeakKeyError: fewer than `MIN_BITS` bits (unless `unsafe_small_key`, for tests), more than `MAX_BITS`, or an odd
            number.
    """
    check_size(bits, unsafe_small_key=unsafe_small_key)
    while True:
        p, q = _random_prime(bits // 2), _random_prime(bits // 2)
        # gcd(p − 1, q − 1) = 2 is a condition of Damgård, Jurik and Nielsen, section 4.2.
        if p != q and gmpy2.gcd(p - 1, q - 1) == 2:
            break
    n = p * q
    return PaillierPrivateKey(PaillierPublicKey(n, derive_base(n), unsafe_small_key, prove_modulus(p, q)), p, q)
