"""A scheme that hides nothing, to test what moves its messages: as exact as Paillier and BFV, and quick.

Ciphertexts are integers of 32 bytes behind a tag of the key, so that a message under another key is noticed.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import securevfl_crypto as crypto

__all__ = ["Clear"]

_WIDTH = 32


@dataclass(frozen=True)
class Key:
    """Both halves of a key pair: there is no secret."""

    name: bytes

    @property
    def public(self) -> Key:
        return self

    bits = 2048
    security = 128

    @property
    def fingerprint(self) -> str:
        return hashlib.sha256(self.name).hexdigest()[:32]

    def to_bytes(self) -> bytes:
        return self.name


def _write(key: Key, values: np.ndarray) -> np.ndarray:
    raw = crypto.bigints_to_bytes(np.asarray(values, dtype=object), _WIDTH).tobytes()
    return np.frombuffer(key.name + raw, dtype=np.uint8)


def _read(key: Key, message: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    size = 16 + _WIDTH * int(np.prod(shape))
    if message.dtype != np.uint8 or message.shape != (size,) or message[:16].tobytes() != key.name:
        raise crypto.MalformedError(f"{message.size} bytes are no message under this key")
    return crypto.bigints_from_bytes(message[16:].reshape(*shape, _WIDTH), shape, _WIDTH)


class ClearOwner(crypto.Owner):
    def __init__(self, key: Key, block: crypto.Block, ring: crypto.Ring) -> None:
        self.key, self.block, self.ring = key, block, ring

    def seal_weights(self, share: np.ndarray) -> np.ndarray:
        return _write(self.key, share)

    def open_product(self, messages: Sequence[np.ndarray], rows: int) -> np.ndarray:
        shape = (rows, self.block.width_out)
        total = sum((_read(self.key, m, shape) for m in messages), np.zeros(shape, dtype=object))
        if self.ring.modulus is None:  # masks are modulo 2^200, as a plaintext of Paillier is modulo n
            total = (total + (1 << 199)) % (1 << 200) - (1 << 199)
        z: np.ndarray = self.ring.to_signed(self.ring.reduce(total))
        if max(abs(int(v)) for v in z.flat) >> (self.block.z_bits - 2):
            raise crypto.OverflowRefused("z reaches a quarter of its range, or masks do not cancel")
        return z

    def seal_steps(self, steps: np.ndarray) -> np.ndarray:
        return _write(self.key, steps)

    def open_gradient(self, message: np.ndarray) -> np.ndarray:
        return _read(self.key, message, (self.block.width_in, self.block.width_out))


class ClearHolder(crypto.Holder):
    def __init__(self, key: Key, block: crypto.Block, ring: crypto.Ring, zero: crypto.ZeroShares) -> None:
        self.key, self.block, self.ring, self.zero = key, block, ring, zero

    def _random(self, bits: int) -> np.ndarray:
        shape = (self.block.width_in, self.block.width_out)
        if self.ring.modulus is None:
            return crypto.uniform_masks(shape, bits)
        found = np.empty(shape, dtype=object)
        found[...] = [[secrets.randbelow(self.ring.modulus) for _ in range(shape[1])] for _ in range(shape[0])]
        return found

    def fresh_share(self) -> np.ndarray:
        return self._random(self.block.share_bits)

    def answer_product(
        self, sealed: np.ndarray, x: np.ndarray, share: np.ndarray, *, extra: np.ndarray | None = None
    ) -> np.ndarray:
        weights = _read(self.key, sealed, (self.block.width_in, self.block.width_out)) + share
        z = x.astype(object) @ weights
        if extra is not None:
            z = z + extra
        if self.zero:
            modulus = self.ring.modulus or 1 << 200
            z = z + np.array([int(m) for m in self.zero.draw_shares(z.size, modulus)], dtype=object).reshape(z.shape)
            if self.ring.modulus is None:  # as a plaintext modulo n, read as signed
                z = (z + modulus // 2) % modulus - modulus // 2
        return _write(self.key, self.ring.reduce(z))

    def answer_gradient(self, sealed: np.ndarray, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        steps = _read(self.key, sealed, (len(x), self.block.width_out))
        phi = self._random(self.block.phi_bits)
        return _write(self.key, self.ring.reduce(x.T.astype(object) @ steps - phi)), phi


@dataclass(frozen=True)
class Clear(crypto.Scheme):
    """Shares of this modulus, or integers."""

    modulus: int | None = None
    name = "paillier"
    exact = True

    def generate_key(self) -> Key:
        return Key(secrets.token_bytes(16))

    def read_public(self, data: bytes) -> Key:
        if len(data) != 16:
            raise crypto.MalformedError(f"{len(data)} bytes are no key")
        return Key(data)

    def _ring(self, block: crypto.Block) -> crypto.Ring:
        return crypto.Ring(None if block.integer_shares else self.modulus)

    def create_owner(self, key: crypto.SecretKey, block: crypto.Block) -> ClearOwner:
        assert isinstance(key, Key)
        return ClearOwner(key, block, self._ring(block))

    def create_holder(self, key: crypto.PublicKey, block: crypto.Block, zero: crypto.ZeroShares) -> ClearHolder:
        assert isinstance(key, Key)
        return ClearHolder(key, block, self._ring(block), zero)
