"""Paillier's public key: encryption, blinding, and checks of keys and ciphertexts that a peer sent.

`private_key` describes the cryptosystem and its timing; `modulus_proof` the proof that a serialised key includes.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise

import gmpy2
import numpy as np
from gmpy2 import mpz

from securevfl_crypto.errors import MalformedError, WeakKeyError
from securevfl_crypto.modular import Batch, FixedBase, Modulus, modular_arithmetic
from securevfl_crypto.paillier.answer_residues import BASES, residue_products
from securevfl_crypto.paillier.modulus_proof import SMALL_FACTORS, derive_base, proof_bytes, verify_modulus

__all__ = ["MAX_BITS", "MIN_BITS", "PaillierPublicKey", "random_exponents", "random_units"]

MIN_BITS = 2048
"""Least modulus accepted: 112 bits of security (NIST SP 800-57 part 1, table 2). 3072 bits give 128."""
MAX_BITS = 8192
"""Largest modulus accepted. A peer's key sizes allocations and tables, so it needs a bound."""
_STRENGTHS = ((0, 0), (1024, 80), (2048, 112), (3072, 128), (7680, 192), (15360, 256))
"""Bits of a modulus and bits of security (NIST SP 800-57 part 1 revision 5, table 2)."""
_SMALL_PRIMES = gmpy2.primorial(SMALL_FACTORS)
_MAGIC = b"SVPK\x02"
_HEAD = len(_MAGIC) + 4
_STEP = 64
"""Exponents are rounded up to a multiple of this many bits, so that few tables serve all of them."""


def random_exponents(count: int, bits: int) -> np.ndarray:
    """Uniform exponents of `bits` bits (a multiple of 8) from the operating system: uint8 (count, bits/8)."""
    return np.frombuffer(secrets.token_bytes(count * bits // 8), dtype=np.uint8).reshape(count, bits // 8)


def random_units(n: mpz, count: int) -> list[mpz]:
    """Uniform numbers from 1 to n − 1 that are units modulo n, from the operating system's randomness."""
    found: list[mpz] = []
    while len(found) < count:
        candidate = mpz(secrets.randbelow(int(n) - 1) + 1)
        if gmpy2.gcd(candidate, n) == 1:
            found.append(candidate)
    return found


@dataclass(frozen=True, repr=False)
class PaillierPublicKey:
    """A public key.

    Attributes:
        n: the modulus.
        hs: the base h_s of the randomness, an n-th residue modulo n². Generated keys, and keys read from bytes, derive
            it from n (`modulus_proof.derive_base`).
        unsafe_small_key: accept moduli shorter than `MIN_BITS`, for tests.
        proof: the proof that n is a Paillier modulus (`modulus_proof`). A key without one works in this process, but
            `from_bytes` refuses its serialised form.
        n2: n², the modulus of ciphertexts.

    Raises:
        WeakKeyError: the modulus is shorter than `MIN_BITS`, unless `unsafe_small_key`.
        MalformedError: the numbers cannot be a key.
    """

    n: mpz
    hs: mpz
    unsafe_small_key: bool = False
    proof: bytes = b""
    n2: mpz = field(init=False)
    _tables: dict[tuple[int, bool], FixedBase] = field(init=False, compare=False)

    def __post_init__(self) -> None:
        n, hs = mpz(self.n), mpz(self.hs)
        bits = n.bit_length()
        if bits < MIN_BITS and not self.unsafe_small_key:
            raise WeakKeyError(f"a Paillier modulus of {bits} bits; at least {MIN_BITS} are accepted: use 3072")
        if bits > MAX_BITS:
            raise MalformedError(f"a Paillier modulus of {bits} bits; at most {MAX_BITS} are accepted")
        if n % 2 == 0 or n < 15 or gmpy2.is_prime(n) or gmpy2.is_power(n):
            raise MalformedError("the modulus is even, prime or a power: it is not a product of two odd primes")
        if not self.unsafe_small_key and gmpy2.gcd(n, _SMALL_PRIMES) != 1:
            raise MalformedError("the modulus has a factor below 8192: it is not a product of two large primes")
        n2 = n * n
        if not 1 < hs < n2 or gmpy2.gcd(hs, n) != 1:
            raise MalformedError("the base of the randomness is not a unit between 1 and n²: the key is damaged")
        # h = -x² and p ≡ q ≡ 3 mod 4, so h_s has Jacobi symbol 1; with order 1 or 2 modulo n it would blind nothing.
        if gmpy2.jacobi(hs % n, n) != 1 or hs * hs % n == 1:
            raise MalformedError(
                "the base of the randomness is not an n-th power of -x², or blinds nothing: refuse the key"
            )
        object.__setattr__(self, "n", n)
        object.__setattr__(self, "hs", hs)
        object.__setattr__(self, "n2", n2)
        object.__setattr__(self, "_tables", {})

    def __repr__(self) -> str:
        return f"PaillierPublicKey({self.bits} bits, {self.fingerprint})"

    @property
    def bits(self) -> int:
        """Bits of the modulus."""
        return int(self.n.bit_length())

    @property
    def security(self) -> int:
        """Bits of security of a modulus of this size, interpolated linearly in NIST's table.

        The strength is concave in the size, so the line never overstates it.
        """
        for (bits, low), (most, high) in pairwise(_STRENGTHS):
            if self.bits <= most:
                return low + (high - low) * (self.bits - bits) // (most - bits)
        return _STRENGTHS[-1][1]

    @property
    def ciphertext_bytes(self) -> int:
        """Bytes of one ciphertext in a message."""
        return (2 * self.bits + 7) // 8

    @property
    def plaintext_bytes(self) -> int:
        """Bytes of one integer modulo n in a message."""
        return (self.bits + 7) // 8

    @property
    def randomness_bits(self) -> int:
        """Bits of the exponent α, ⌈|n|/2⌉ rounded up to whole bytes."""
        return -(-self.bits // 16) * 8

    @property
    def fingerprint(self) -> str:
        """The first 16 bytes of SHA-256 of the serialised key, hexadecimal."""
        return hashlib.sha256(self.to_bytes()).hexdigest()[:32]

    @cached_property
    def modulus(self) -> Modulus:
        """Arithmetic on batches of ciphertexts, modulo n²."""
        return modular_arithmetic(self.n2, root=self.n)

    def encode_plaintext(self, m: mpz | int) -> mpz:
        """1 + n m mod n²: the ciphertext of m without randomness. It hides nothing until a blinding multiplies it."""
        return 1 + self.n * (mpz(m) % self.n)

    def make_blinding(self, extra_bits: int = 0) -> mpz:
        """A fresh encryption of zero, h_s^ρ with ρ uniform of `randomness_bits + extra_bits` bits.

        It hides the plaintext of a fresh ciphertext from parties without the key. It does not hide a product of the
        owner's ciphertexts from the owner: `make_answer_blindings` does. Neither branches nor memory addresses depend
        on ρ.
        """
        exponent = secrets.token_bytes((self.randomness_bits + extra_bits + 7) // 8)
        return gmpy2.powmod_sec(self.hs, int.from_bytes(exponent, "little") or 1, self.n2)

    def encrypt(self, m: mpz | int) -> mpz:
        """A fresh ciphertext of m, any integer, read modulo n."""
        return self.encode_plaintext(m) * self.make_blinding() % self.n2

    def raw_batch(self, plaintexts: Sequence[int | mpz]) -> Batch:
        """`encode_plaintext` for each plaintext: ciphertexts without randomness."""
        return self.modulus.from_ints([self.encode_plaintext(m) for m in plaintexts])

    def make_blindings(
        self, count: int, extra_bits: int = 0, *, classical: bool = False, constant_time: bool = False
    ) -> Batch:
        """Fresh encryptions of zero, as by `make_blinding`, from tables; exponents may be up to 63 bits longer.

        Args:
            count: the number of encryptions.
            extra_bits: see `make_blinding`.
            classical: take rⁿ for uniform units r instead (Paillier 1999). It needs no assumption on short exponents
                and is many times slower.
            constant_time: read the whole table for each digit of ρ. Otherwise the digit is a memory address, which a
                process that shares this machine's caches can observe.
        """
        if classical:
            return self.modulus.power(self.modulus.from_ints(random_units(self.n, count)), self.n)
        bits = -(-(self.randomness_bits + extra_bits) // _STEP) * _STEP
        if (bits, constant_time) not in self._tables:
            self._tables[bits, constant_time] = self.modulus.fixed_base(self.hs, bits, scan=constant_time)
        return self._tables[bits, constant_time].raise_to(random_exponents(count, bits))

    def make_answer_blindings(self, count: int, *, classical: bool = False, constant_time: bool = False) -> Batch:
        """Fresh encryptions of zero that hide from the key's owner everything about a ciphertext but its plaintext.

        They are uniform among all n-th residues, to 2⁻⁶⁴ (`answer_residues`). Powers of h_s are not: see there.

        Args:
            count: the number of encryptions.
            classical: take rⁿ for uniform units r, which is exactly uniform.
            constant_time: the same, since its exponent is public and no memory address depends on r.
        """
        if classical or constant_time:
            return self.make_blindings(count, classical=True)
        if (0, False) not in self._tables:
            self._tables[0, False] = residue_products(self.modulus, self.n, random_units(self.n, BASES))
        table = self._tables[0, False]
        return table.raise_to(random_exponents(count, table.bits))

    def encrypt_batch(
        self, plaintexts: Sequence[int | mpz], *, classical: bool = False, constant_time: bool = False
    ) -> Batch:
        """Fresh ciphertexts of integers, read modulo n. Arguments as for `make_blindings`."""
        blindings = self.make_blindings(len(plaintexts), classical=classical, constant_time=constant_time)
        return self.modulus.mul(blindings, self.raw_batch(plaintexts))

    def store_ciphertexts(self, ciphertexts: Batch) -> np.ndarray:
        """Serialise ciphertexts: little-endian, uint8 (count, ciphertext_bytes)."""
        return self.modulus.store_bytes(ciphertexts)

    def load_ciphertexts(self, array: np.ndarray, count: int) -> Batch:
        """Read the `count` ciphertexts that `store_ciphertexts` wrote.

        Raises:
            MalformedError: the type, shape or count differs, or a number is not a unit modulo n².
        """
        shape = (count, self.ciphertext_bytes)
        if not isinstance(array, np.ndarray) or array.dtype != np.uint8 or array.shape != shape:
            what = f"{array.dtype} {array.shape}" if isinstance(array, np.ndarray) else type(array).__name__
            raise MalformedError(f"the ciphertexts are {what}; expected uint8 {shape}")
        ciphertexts = self.modulus.load_bytes(array)
        product = ciphertexts
        # One gcd serves all: a factor of n that divides one ciphertext divides their product; a zero makes it zero.
        while len(product) > 1:
            half = len(product) // 2
            places = np.arange(len(product))
            pairs = self.modulus.mul(
                self.modulus.take(product, places[:half]), self.modulus.take(product, places[half : 2 * half])
            )
            odd = [self.modulus.take(product, places[2 * half :])] if len(product) % 2 else []
            product = self.modulus.concat([pairs, *odd])
        if count and gmpy2.gcd(self.modulus.to_ints(product)[0], self.n) != 1:
            raise MalformedError("a ciphertext is zero or shares a factor with the modulus: it is not an encryption")
        return ciphertexts

    def check_symbols(self, array: np.ndarray) -> None:
        """Check that these ciphertexts have the Jacobi symbol 1, as all powers of h_s have.

        Each ciphertext is checked separately: the symbol of their product would be 1 if two of them had symbol −1.

        Args:
            array: ciphertexts that `load_ciphertexts` accepted, uint8 (count, ciphertext_bytes).

        Raises:
            MalformedError: a ciphertext has Jacobi symbol −1.
        """
        n = self.n
        for row in array:
            if gmpy2.jacobi(int.from_bytes(row.tobytes(), "little") % n, n) != 1:
                raise MalformedError(
                    "a ciphertext has Jacobi symbol -1: its randomness is not a power of h_s, so its owner does not "
                    "encrypt as agreed; set classical to the same value at both parties"
                )

    def at_least(self, bits: int) -> PaillierPublicKey:
        """This key, if its modulus has at least `bits` bits.

        Raises:
            WeakKeyError: the modulus has fewer.
        """
        if self.bits < bits:
            raise WeakKeyError(f"a Paillier modulus of {self.bits} bits; {bits} were agreed: make a key of that size")
        return self

    def to_bytes(self) -> bytes:
        """Serialise the key: version, bits, n, proof; little-endian. The length depends only on `bits`."""
        width = (self.bits + 7) // 8
        return _MAGIC + self.bits.to_bytes(4, "little") + int(self.n).to_bytes(width, "little") + self.proof

    @classmethod
    def from_bytes(cls, data: bytes, *, agreed: int | None = None, unsafe_small_key: bool = False) -> PaillierPublicKey:
        """Read the key that `to_bytes` wrote, and verify its proof. Lengths are checked before numbers are read.

        Args:
            data: as received.
            agreed: the bits that the modulus must have; None accepts `MIN_BITS` to `MAX_BITS`.
            unsafe_small_key: accept moduli shorter than `MIN_BITS`, for tests.

        Raises:
            MalformedError: the format or length is wrong, the modulus is longer than agreed, or the proof does not
                verify.
            WeakKeyError: the modulus is shorter than `MIN_BITS`, or than agreed.
        """
        if len(data) < _HEAD or data[: len(_MAGIC)] != _MAGIC:
            raise MalformedError(f"these {len(data)} bytes are not a Paillier public key of version {_MAGIC[-1]}")
        bits = int.from_bytes(data[len(_MAGIC) : _HEAD], "little")
        if bits > (agreed or MAX_BITS):
            raise MalformedError(
                f"a Paillier modulus of {bits} bits; {agreed} were agreed: make a key of that size"
                if agreed
                else f"a Paillier modulus of {bits} bits; at most {MAX_BITS} are accepted"
            )
        width = (bits + 7) // 8
        if len(data) != (length := _HEAD + width + proof_bytes(bits)):
            raise MalformedError(f"a key of {bits} bits has {length} bytes; received {len(data)}")
        if bits < (least := MIN_BITS if agreed is None else agreed) and not unsafe_small_key:
            raise WeakKeyError(
                f"a Paillier modulus of {bits} bits; "
                + (f"at least {least} are accepted: use 3072" if agreed is None else f"{least} were agreed")
            )
        n = mpz(int.from_bytes(data[_HEAD : _HEAD + width], "little"))
        if n.bit_length() != bits:
            raise MalformedError(f"the key announces {bits} bits, but its modulus has {n.bit_length()}")
        if not n & 1:
            raise MalformedError("the modulus is even: it is not a product of two odd primes")
        key = cls(n, derive_base(n), unsafe_small_key, data[_HEAD + width :])
        verify_modulus(n, key.proof)
        return key
