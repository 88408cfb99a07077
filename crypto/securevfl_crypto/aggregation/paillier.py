"""Exact sums of vectors under Paillier: several integers side by side in each plaintext, masked modulo n."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from securevfl_crypto.aggregation.base import Addends, Aggregation, Aggregator
from securevfl_crypto.errors import MalformedError, OverflowRefused
from securevfl_crypto.masks import ZeroShares
from securevfl_crypto.modular import Batch
from securevfl_crypto.paillier.packing import Packing
from securevfl_crypto.paillier.private_key import PaillierPrivateKey, check_size, generate_keypair
from securevfl_crypto.paillier.public_key import PaillierPublicKey
from securevfl_crypto.scheme import PublicKey, SecretKey

__all__ = ["PaillierAggregation", "PaillierAggregator"]


@dataclass(frozen=True)
class PaillierAggregation(Aggregation):
    """Aggregation under Paillier: several integers in a plaintext, each slot with room for the sum; masks modulo n.

    Attributes:
        bits: bits of n.

    Raises:
        WeakKeyError: no key can have this many bits.
    """

    name: ClassVar[str] = "paillier"
    bits: int = 3072

    def __post_init__(self) -> None:
        check_size(self.bits)

    def generate_key(self) -> PaillierPrivateKey:
        """A fresh key pair."""
        return generate_keypair(self.bits)

    def read_public(self, data: bytes) -> PaillierPublicKey:
        """See `KeyScheme.read_public`."""
        return PaillierPublicKey.from_bytes(data, agreed=self.bits)

    def create_aggregator(self, key: PublicKey, addends: Addends) -> PaillierAggregator:
        """See `Aggregation.create_aggregator`."""
        if not isinstance(key, PaillierPublicKey):
            raise MalformedError(f"the key is a {type(key).__name__}; expected a PaillierPublicKey")
        return PaillierAggregator(key, addends)


class PaillierAggregator(Aggregator):
    """See `Aggregator` and `PaillierAggregation`."""

    key: PaillierPublicKey

    def __init__(self, key: PaillierPublicKey, addends: Addends) -> None:
        super().__init__(key, addends)
        room = key.bits - 2  # plaintexts are read as signed, between −n/2 and n/2
        slot_bits = addends.sum_bits + 1
        columns = min(addends.count, max(1, room // (8 * -(-slot_bits // 8))))
        self._packing = Packing.plan(slot_bits, columns, room, "a sum of vectors")

    @cached_property
    def _plaintext_count(self) -> int:
        """The number of plaintexts in one message."""
        return -(-self.addends.count // self._packing.columns)

    @property
    def body_bytes(self) -> int:
        """Bytes of a message without its header: one ciphertext for each plaintext."""
        return self._plaintext_count * self.key.ciphertext_bytes

    def _seal(self, values: np.ndarray, zero: ZeroShares) -> bytes:
        table = np.zeros(self._plaintext_count * self._packing.columns, dtype=values.dtype)
        table[: len(values)] = values
        packed = self._packing.pack(table.reshape(self._plaintext_count, -1))
        masks = zero.draw_shares(len(packed), self.key.n)
        return self._store_ciphertexts(
            self.key.encrypt_batch([value + mask for value, mask in zip(packed, masks, strict=True)])
        )

    def _add(self, bodies: Sequence[memoryview]) -> bytes:
        total = self._load_ciphertexts(bodies[0])
        for body in bodies[1:]:
            total = self.key.modulus.mul(total, self._load_ciphertexts(body))
        return self._store_ciphertexts(total)

    def _open(self, body: memoryview, key: SecretKey) -> np.ndarray:
        if not isinstance(key, PaillierPrivateKey):
            raise MalformedError(f"the key is a {type(key).__name__}; expected a PaillierPrivateKey")
        found = self._packing.unpack(key.decrypt_batch(self._load_ciphertexts(body)), self._plaintext_count).ravel()
        if found[self.addends.count :].any():
            raise OverflowRefused(
                "a value beyond the end of the vector: a party's masks do not cancel; all must seal equally often"
            )
        return found[: self.addends.count]

    def _load_ciphertexts(self, body: memoryview) -> Batch:
        table = np.frombuffer(body, dtype=np.uint8).reshape(self._plaintext_count, self.key.ciphertext_bytes)
        return self.key.load_ciphertexts(table, self._plaintext_count)

    def _store_ciphertexts(self, ciphertexts: Batch) -> bytes:
        return self.key.store_ciphertexts(ciphertexts).tobytes()
