"""Paillier's cryptosystem with the short randomness of Damgård, Jurik and Nielsen.

I. Damgård, M. Jurik, J. B. Nielsen, "A generalization of Paillier's public-key system with applications to electronic
voting", Int. J. Inf. Secur. 9 (2010), section 4.2: n = p q with p ≡ q ≡ 3 mod 4 and gcd(p − 1, q − 1) = 2; h = −x²
mod n for a random x; h_s = hⁿ mod n²; a ciphertext of m is (1 + n m) h_s^α mod n² with α uniform of ⌈|n|/2⌉ bits. Its
security rests on decisional composite residuosity and on short exponents of h_s looking uniform (ibid.).

Plaintexts are integers modulo n, read as signed: those above n/2 are negative. Keys and ciphertexts are those of any
other Paillier with generator n + 1, python-paillier's among them.

Time: exponents that are secret (decryption) go through GMP's constant-time exponentiation. The table look-ups by
digits of α, multiplications and the Chinese remaindering are not constant in time: an adversary on the same machine is
outside the model.

What a public key cannot show: that h_s is an n-th residue of large order. A key owner who cheats here learns about the
exponents of those who use the key; `PaillierPublicKey` refuses the cases that show (see its checks), and no more.
"""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass, field

import gmpy2
from gmpy2 import mpz

from securevfl_crypto.errors import MalformedError, WeakKeyError

__all__ = ["MAX_BITS", "MIN_BITS", "PaillierPrivateKey", "PaillierPublicKey", "generate_keypair"]

MIN_BITS = 2048
"""Least modulus accepted: 112 bits of security (NIST SP 800-57 part 1, table 2). 3072 bits give 128."""
MAX_BITS = 8192
_WINDOW = 8
_SMALL_PRIMES = gmpy2.primorial(1 << 12)
_MAGIC = b"SVPK\x01"


class FixedBase:
    """Powers of one base modulo one modulus by table look-up, eight bits of the exponent at a time."""

    __slots__ = ("_modulus", "_next", "_rows")

    def __init__(self, base: mpz, modulus: mpz) -> None:
        self._modulus = modulus
        self._rows: list[list[mpz]] = []
        self._next = base

    def power(self, exponent: bytes) -> mpz:
        """base^exponent, the exponent little-endian."""
        modulus = self._modulus
        while len(self._rows) < len(exponent):
            row = [mpz(1)]
            for _ in range((1 << _WINDOW) - 1):
                row.append(row[-1] * self._next % modulus)
            self._rows.append(row)
            self._next = row[-1] * self._next % modulus
        result = mpz(1)
        for row, digit in zip(self._rows, exponent, strict=False):
            result = result * row[digit] % modulus
        return result


@dataclass(frozen=True, repr=False)
class PaillierPublicKey:
    """A public key.

    Attributes:
        n: the modulus.
        hs: the base h_s of the randomness, an n-th residue modulo n².

    Raises:
        WeakKeyError: a modulus below `MIN_BITS`, unless `unsafe_small_key`.
        MalformedError: numbers that cannot be a key.
    """

    n: mpz
    hs: mpz
    unsafe_small_key: bool = False
    n2: mpz = field(init=False)
    _table: FixedBase = field(init=False, compare=False)

    def __post_init__(self) -> None:
        n, hs = mpz(self.n), mpz(self.hs)
        bits = n.bit_length()
        if bits < MIN_BITS and not self.unsafe_small_key:
            raise WeakKeyError(f"a Paillier modulus of {bits} bits; at least {MIN_BITS} are accepted: use 3072")
        if bits > MAX_BITS:
            raise MalformedError(f"a Paillier modulus of {bits} bits; at most {MAX_BITS} are accepted")
        if n % 2 == 0 or n < 15 or gmpy2.is_prime(n) or gmpy2.is_square(n):
            raise MalformedError("the modulus is even, prime or a square: it is no product of two odd primes")
        if not self.unsafe_small_key and gmpy2.gcd(n, _SMALL_PRIMES) != 1:
            raise MalformedError("the modulus has a factor below 4096: it is no product of two large primes")
        n2 = n * n
        if not 1 < hs < n2 or gmpy2.gcd(hs, n) != 1:
            raise MalformedError("the base of the randomness is not a unit between 1 and n²: the key is damaged")
        # h = -x² and p ≡ q ≡ 3 mod 4: h_s has Jacobi symbol 1; of order 1 or 2 modulo n it would blind nothing.
        if gmpy2.jacobi(hs % n, n) != 1 or hs * hs % n == 1:
            raise MalformedError(
                "the base of the randomness is no n-th power of -x², or blinds nothing: refuse the key"
            )
        object.__setattr__(self, "n", n)
        object.__setattr__(self, "hs", hs)
        object.__setattr__(self, "n2", n2)
        object.__setattr__(self, "_table", FixedBase(hs, n2))

    def __repr__(self) -> str:
        return f"PaillierPublicKey({self.bits} bits, {self.fingerprint})"

    @property
    def bits(self) -> int:
        """Bits of the modulus."""
        return int(self.n.bit_length())

    @property
    def ciphertext_bytes(self) -> int:
        """Bytes of one ciphertext on the wire."""
        return (2 * self.bits + 7) // 8

    @property
    def plaintext_bytes(self) -> int:
        """Bytes of one integer modulo n on the wire."""
        return (self.bits + 7) // 8

    @property
    def randomness_bits(self) -> int:
        """Bits of the exponent α, ⌈|n|/2⌉ rounded up to whole bytes."""
        return -(-self.bits // 16) * 8

    @property
    def fingerprint(self) -> str:
        """First 16 bytes of SHA-256 of the serialised key, hexadecimal."""
        return hashlib.sha256(self.to_bytes()).hexdigest()[:32]

    def raw(self, m: mpz | int) -> mpz:
        """1 + n m mod n²: the ciphertext of m without randomness. It hides nothing until it is blinded."""
        return (1 + self.n * mpz(m)) % self.n2

    def blinding(self, extra_bits: int = 0) -> mpz:
        """A fresh encryption of zero, h_s^ρ with ρ uniform of `randomness_bits + extra_bits` bits.

        Whoever returns a product ``Π c_j^{x_j}`` to the key owner, who may know the α_j of its own ciphertexts, has
        to drown ``Σ α_j x_j``: with extra_bits = log₂ Σ|x_j| + 40 the exponents are within 2⁻⁴⁰ of independent of x.
        """
        return self._table.power(secrets.token_bytes((self.randomness_bits + extra_bits + 7) // 8))

    def encrypt(self, m: mpz | int) -> mpz:
        """A fresh ciphertext of m, any integer, read modulo n."""
        return self.raw(m) * self.blinding() % self.n2

    def to_bytes(self) -> bytes:
        """Version, bits, n, h_s; little-endian, fixed length for the size."""
        width = (self.bits + 7) // 8
        return (
            _MAGIC
            + self.bits.to_bytes(4, "little")
            + int(self.n).to_bytes(width, "little")
            + int(self.hs).to_bytes(2 * width, "little")
        )

    @classmethod
    def from_bytes(cls, data: bytes, *, unsafe_small_key: bool = False) -> PaillierPublicKey:
        """The key that `to_bytes` wrote.

        Raises:
            MalformedError: another format, a wrong length, or numbers that cannot be a key.
            WeakKeyError: a modulus below `MIN_BITS`.
        """
        head = len(_MAGIC) + 4
        if len(data) < head or data[: len(_MAGIC)] != _MAGIC:
            raise MalformedError(f"{len(data)} bytes that are no Paillier public key of version {_MAGIC[-1]}")
        bits = int.from_bytes(data[len(_MAGIC) : head], "little")
        if bits > MAX_BITS:
            raise MalformedError(f"a Paillier modulus of {bits} bits; at most {MAX_BITS} are accepted")
        width = (bits + 7) // 8
        if len(data) != head + 3 * width:
            raise MalformedError(f"a key of {bits} bits has {head + 3 * width} bytes; {len(data)} came")
        n = mpz(int.from_bytes(data[head : head + width], "little"))
        if n.bit_length() != bits:
            raise MalformedError(f"a modulus of {n.bit_length()} bits in a key that announces {bits}")
        return cls(n, mpz(int.from_bytes(data[head + width :], "little")), unsafe_small_key)


@dataclass(frozen=True, repr=False)
class PaillierPrivateKey:
    """A private key: the factors p and q of the public key's modulus."""

    public: PaillierPublicKey
    p: mpz
    q: mpz
    _crt: tuple[mpz, ...] = field(init=False, compare=False)
    _tables: tuple[FixedBase, FixedBase] = field(init=False, compare=False)

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
        hs = self.public.hs
        object.__setattr__(self, "_tables", (FixedBase(hs % p2, p2), FixedBase(hs % q2, q2)))

    def __repr__(self) -> str:
        return f"PaillierPrivateKey({self.public.bits} bits, {self.public.fingerprint}, secret)"

    def encrypt(self, m: mpz | int) -> mpz:
        """A fresh ciphertext of m, distributed as the public key's own, in less time: h_s^α modulo p² and modulo q².

        Both halves take the same α. Independent ones would leave the powers of h_s, and those who blind what they
        send back drown an integer α, not two of them.
        """
        p2, q2, *_, p2_inverse = self._crt
        alpha = secrets.token_bytes(self.public.randomness_bits // 8)
        modulo_p2, modulo_q2 = self._tables[0].power(alpha), self._tables[1].power(alpha)
        blinding = modulo_p2 + p2 * ((modulo_q2 - modulo_p2) * p2_inverse % q2)
        return self.public.raw(m) * blinding % self.public.n2

    def decrypt(self, c: mpz) -> mpz:
        """The plaintext of a unit modulo n², between −n/2 and n/2 (Paillier 1999, section 7, by CRT)."""
        p, q = self.p, self.q
        p2, q2, hp, hq, p_inverse, _ = self._crt
        mp = (gmpy2.powmod_sec(c % p2, p - 1, p2) - 1) // p * hp % p
        mq = (gmpy2.powmod_sec(c % q2, q - 1, q2) - 1) // q * hq % q
        m = mp + p * ((mq - mp) * p_inverse % q)
        return m - self.public.n if m > self.public.n // 2 else m


def _prime(bits: int) -> mpz:
    """A random prime ≡ 3 mod 4 of exactly `bits` bits, its two top bits set, from the operating system's randomness."""
    while True:
        candidate = mpz(secrets.randbits(bits)) | (mpz(3) << (bits - 2)) | 3
        if gmpy2.is_prime(candidate, 40):
            return candidate


def generate_keypair(bits: int = 3072, *, unsafe_small_key: bool = False) -> PaillierPrivateKey:
    """A fresh key whose modulus has exactly `bits` bits.

    Raises:
        WeakKeyError: fewer than `MIN_BITS`, unless `unsafe_small_key` (for tests).
    """
    if bits < MIN_BITS and not unsafe_small_key:
        raise WeakKeyError(f"a Paillier key of {bits} bits; at least {MIN_BITS} are accepted: use 3072")
    if bits > MAX_BITS or bits % 2 or bits < 64:
        raise WeakKeyError(f"a Paillier key of {bits} bits; even sizes from {MIN_BITS} to {MAX_BITS} are possible")
    while True:
        p, q = _prime(bits // 2), _prime(bits // 2)
        if p != q and gmpy2.gcd(p - 1, q - 1) == 2:
            break
    n = p * q
    while True:
        x = mpz(secrets.randbelow(int(n) - 2)) + 2
        if gmpy2.gcd(x, n) == 1:
            break
    h = -x * x % n
    public = PaillierPublicKey(n, gmpy2.powmod(h, n, n * n), unsafe_small_key)
    return PaillierPrivateKey(public, p, q)
