"""Keys of the lattice schemes: one pair for each chain of moduli that a scheme may use.

A public key is a fresh symmetric encryption of zero for each chain, ``(a s + e, −a)`` up to signs. a is expanded from a
seed, so that its owner could not choose it to hide a trapdoor.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from securevfl_crypto.errors import MalformedError
from securevfl_crypto.rlwe.parameters import DEGREE, SECURITY, Chain
from securevfl_crypto.rlwe.residues import read_residues, write_residues
from securevfl_crypto.rlwe.seal import SEED_BYTES, seal_context

__all__ = ["RlwePublicKey", "RlweSecretKey", "generate_keys", "read_public", "read_secret"]

_HEAD = struct.Struct("<4sBBHB3x")  # magic, version, scheme, N, chains
_MAGIC, _VERSION = b"SVRK", 1


@dataclass(frozen=True)
class RlwePublicKey:
    """A public key: an encryption of zero for each chain.

    Attributes:
        scheme: the number of the scheme.
        chains: the moduli.
        halves: for each chain, c0, uint64 (data primes, N), and the seed of c1.
    """

    scheme: int
    chains: tuple[Chain, ...]
    halves: tuple[tuple[np.ndarray, bytes], ...]

    @property
    def bits(self) -> int:
        """Bits of the largest modulus q of a ciphertext."""
        return max(chain.data_bits for chain in self.chains)

    @property
    def security(self) -> int:
        """Bits of security; every chain has at least as many."""
        return SECURITY

    @cached_property
    def fingerprint(self) -> str:
        """The first 16 bytes of SHA-256 of `to_bytes`, hexadecimal."""
        return hashlib.sha256(self.to_bytes()).hexdigest()[:32]

    @property
    def tag(self) -> bytes:
        """Eight bytes that name this key in messages."""
        return bytes.fromhex(self.fingerprint)[:8]

    def to_bytes(self) -> bytes:
        """Serialise the key: version, scheme, N, and for each chain its primes, the seed of c1, and c0."""
        parts = [_HEAD.pack(_MAGIC, _VERSION, self.scheme, DEGREE, len(self.chains))]
        for chain, (first, seed) in zip(self.chains, self.halves, strict=True):
            parts += [_chain_primes(chain), seed, write_residues(first, chain.widths)]
        return b"".join(parts)

    @cached_property
    def blinders(self) -> tuple[Any, ...]:
        """The encryptions of zero, as SEAL's transformed ciphertexts."""
        loaded = []
        for chain, (first, seed) in zip(self.chains, self.halves, strict=True):
            loaded.append(seal_context(chain).transform_ciphertext(seal_context(chain).expand_seeded(first, seed)))
        return tuple(loaded)


@dataclass(frozen=True, repr=False)
class RlweSecretKey:
    """A key pair; the secret half has no serialised form but for the owner's own workers.

    Attributes:
        public: the public half.
        sealers: for each chain, SEAL's encryptor under the secret key.
        openers: for each chain, the secret as a transformed plaintext modulo q'.
        secrets: for each chain, the secret itself, transformed, uint64 (all primes, N).
    """

    public: RlwePublicKey
    sealers: tuple[Any, ...]
    openers: tuple[Any, ...]
    secrets: tuple[np.ndarray, ...]

    def unsafe_to_bytes(self) -> bytes:
        """Both halves, for workers of the key's owner: whoever reads them opens whatever was sealed under this key."""
        public = self.public.to_bytes()
        parts = [secret.astype("<u8", copy=False).tobytes() for secret in self.secrets]
        return b"".join([struct.pack("<Q", len(public)), public, *parts])


def _chain_primes(chain: Chain) -> bytes:
    primes = seal_context(chain).data.primes
    return struct.pack(f"<B{len(primes)}Q", len(primes), *primes)


def generate_keys(scheme: int, chains: tuple[Chain, ...]) -> RlweSecretKey:
    """A fresh pair for each chain, with ternary secrets that SEAL draws from the operating system's randomness."""
    halves, secrets = [], []
    for chain in chains:
        own = seal_context(chain)
        secret = own.new_secret_key()
        halves.append(own.shrink_seeded(own.make_encryptor(secret).encrypt_zero_symmetric()))
        secrets.append(own.read_plaintext(secret, len(own.keys.primes)))
    return _make_pair(RlwePublicKey(scheme, chains, tuple(halves)), secrets)


def _make_pair(public: RlwePublicKey, secrets: Sequence[np.ndarray]) -> RlweSecretKey:
    """A key pair from the public key and, for each chain, the transformed secret."""
    sealers, openers = [], []
    for chain, residues in zip(public.chains, secrets, strict=True):
        own = seal_context(chain)
        sealers.append(own.make_encryptor(own.secret_key(residues)))
        openers.append(own.transformed_plaintext(residues[: len(own.kept.primes)]))
        own.clear_exchange_file()
    return RlweSecretKey(public, tuple(sealers), tuple(openers), tuple(secrets))


def read_secret(data: bytes, scheme: int, chains: tuple[Chain, ...]) -> RlweSecretKey:
    """Read the pair that `RlweSecretKey.unsafe_to_bytes` wrote.

    Raises:
        MalformedError: the length or the public half differs.
    """
    primes = [len(seal_context(chain).keys.primes) for chain in chains]
    size = int.from_bytes(data[:8], "little")
    if len(data) != 8 + size + 8 * DEGREE * sum(primes):
        raise MalformedError(f"a key pair of {len(data)} bytes; another length belongs to these parameters")
    public = read_public(data[8 : 8 + size], scheme, chains)
    residues = np.frombuffer(data, dtype="<u8", offset=8 + size).reshape(-1, DEGREE).astype(np.uint64)
    return _make_pair(public, np.split(residues, np.cumsum(primes)[:-1]))


def read_public(data: bytes, scheme: int, chains: tuple[Chain, ...]) -> RlwePublicKey:
    """Read the key that `RlwePublicKey.to_bytes` wrote.

    Raises:
        MalformedError: the format, version, length or parameters differ, or a residue is out of range.
    """
    sizes = [(_chain_primes(chain), DEGREE * sum(chain.widths)) for chain in chains]
    expected = _HEAD.size + sum(len(primes) + SEED_BYTES + size for primes, size in sizes)
    if len(data) != expected:
        raise MalformedError(f"a public key of {len(data)} bytes; {expected} belong to these parameters")
    head = _HEAD.pack(_MAGIC, _VERSION, scheme, DEGREE, len(chains))
    if data[: _HEAD.size] != head:
        raise MalformedError(
            f"a public key that begins with {data[: _HEAD.size].hex()}; {head.hex()} was expected: another scheme, "
            "version or ring"
        )
    rest, halves = memoryview(data)[_HEAD.size :], []
    for chain, (primes, size) in zip(chains, sizes, strict=True):
        if rest[: len(primes)] != primes:
            raise MalformedError("a public key for other primes; both sides have to use the same parameters")
        start = len(primes) + SEED_BYTES
        seed = bytes(rest[len(primes) : start])
        first = read_residues(rest[start : start + size], seal_context(chain).data.primes, chain.widths, DEGREE)
        halves.append((first, seed))
        rest = rest[start + size :]
    return RlwePublicKey(scheme, chains, tuple(halves))
