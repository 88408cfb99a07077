"""Sums of vectors under encryption: several parties seal, anyone adds, one party opens the sum. Exact.

One party makes a key. Every party seals its vector of integers under it, plus its share of zero, uniform over the whole
plaintexts; whoever has the public key adds the messages up, and the owner of the key opens what results. The shares of
zero cancel in the sum of all parties and in no other, so:

- Who adds has no key: ciphertexts tell it nothing, not even the sum.
- The owner of the key learns the sum. Should it get at single messages, or at a sum of some, it opens uniform numbers;
  only with all parties but one on its side does it learn that one's vector. (The idea of masks that cancel: Bonawitz et
  al. 2017, doi 10.1145/3133956.3133982. All parties have to stay.)
- Messages are sums of fresh encryptions, with no factor that depends on a vector: their randomness and noise tell
  nothing, and need no drowning.

What arrives is checked before it is used: its length, its key's fingerprint, how many parties are in it, and that its
content can be ciphertexts. What nobody can check is that a party's vector was in range, or sealed once.
"""

from __future__ import annotations

import hmac
import struct
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from securevfl_crypto.errors import MalformedError, OverflowRefused
from securevfl_crypto.masks import ZeroShares
from securevfl_crypto.modular import Batch
from securevfl_crypto.packing import Packing
from securevfl_crypto.paillier import PaillierPrivateKey, PaillierPublicKey, check_size, generate_keypair
from securevfl_crypto.scheme import KeyScheme, PublicKey, SecretKey

__all__ = ["Addends", "Aggregation", "Aggregator", "PaillierAggregation", "PaillierAggregator"]

_HEAD = struct.Struct("<4sB16sI")  # magic, version, fingerprint of the key, parties that are in the sum
_MAGIC, _VERSION = b"SVAG", 1


@dataclass(frozen=True, kw_only=True)
class Addends:
    """What is added up.

    Attributes:
        count: integers in a vector.
        bits: each is below 2^bits in magnitude.
        parties: that seal one vector each.
    """

    count: int
    bits: int
    parties: int

    def __post_init__(self) -> None:
        for name, most in (("count", 1 << 26), ("bits", 1 << 10), ("parties", 1 << 12)):
            if not 1 <= getattr(self, name) <= most:
                raise MalformedError(f"{name} is {getattr(self, name)}; 1 to {most} are possible")

    @property
    def sum_bits(self) -> int:
        """Magnitude of a sum over all parties."""
        return self.bits + (self.parties - 1).bit_length()

    def check(self, values: np.ndarray, parties: int = 1) -> None:
        """Whether this can be a vector, or the sum of so many.

        Raises:
            MalformedError: another type or length.
            OverflowRefused: an integer is out of range.
        """
        if values.dtype not in (np.int64, np.object_) or values.shape != (self.count,):
            raise MalformedError(f"a vector of {values.dtype} {values.shape}; {self.count} integers were agreed")
        largest = max(abs(int(values.max())), abs(int(values.min())))
        if largest >= parties << self.bits:
            raise OverflowRefused(
                f"an integer of {largest.bit_length()} bits in {'a vector' if parties == 1 else 'a sum of vectors'}; "
                f"each vector's are below 2^{self.bits}: agree on more bits, or find out whose masks do not cancel"
            )


class Aggregator(ABC):
    """What every party can do with the public key, and its owner with the secret one.

    Args:
        key: the public key.
        addends: what is added up.
    """

    def __init__(self, key: PublicKey, addends: Addends) -> None:
        self.key = key
        self.addends = addends
        self._tag = bytes.fromhex(key.fingerprint)

    @property
    def message_bytes(self) -> int:
        """Bytes of every message, of one vector or of a sum."""
        return _HEAD.size + self.body_bytes

    def seal(self, values: np.ndarray, zero: ZeroShares) -> np.ndarray:
        """``[[values + zero]]``, a uint8 message.

        Args:
            values: (count,), int64 or an object array of integers.
            zero: this party's shares of zero with the others; all parties seal equally often. Falsy for one party.

        Raises:
            MalformedError: another type or length, or no shares of zero among several parties.
            OverflowRefused: an integer reaches 2^bits.
        """
        self.addends.check(values)
        if self.addends.parties > 1 and not zero:
            raise MalformedError(
                f"a vector of one of {self.addends.parties} parties and no shares of zero: the owner of the key could "
                "read it; agree on pairwise seeds"
            )
        return self._message(self._seal(values, zero), 1)

    def add(self, messages: Sequence[np.ndarray]) -> np.ndarray:
        """The message of the sum; of sums, too.

        Raises:
            MalformedError: no message at all, one of another length, version or key, or of more parties together than
                were agreed; or content that is no ciphertext.
        """
        if not messages:
            raise MalformedError("no vector at all; at least one party has to send its own")
        read = [self._read(message) for message in messages]
        parties = sum(count for count, _ in read)
        if parties > self.addends.parties:
            raise MalformedError(f"vectors of {parties} parties; there is room for {self.addends.parties}")
        return self._message(self._add([body for _, body in read]), parties)

    def open(self, message: np.ndarray, key: SecretKey) -> np.ndarray:
        """The sum of all parties' vectors, (count,): int64 where `sum_bits` is below 64, else an object array.

        Raises:
            MalformedError: no message under this key, or not the sum of all parties.
            OverflowRefused: an integer that no sum in range can be: somebody's masks do not cancel, or its vector was
                out of range.
        """
        parties, body = self._read(message)
        if parties != self.addends.parties:
            raise MalformedError(f"a sum over {parties} parties; {self.addends.parties} were to be in it")
        if key.public.fingerprint != self.key.fingerprint:
            raise MalformedError(f"a secret key to {key.public.fingerprint}; {self.key.fingerprint} was agreed")
        found = self._open(body, key)
        self.addends.check(found, parties)
        return found.astype(np.int64 if self.addends.sum_bits < 64 else np.object_)

    def _message(self, body: bytes, parties: int) -> np.ndarray:
        return np.frombuffer(_HEAD.pack(_MAGIC, _VERSION, self._tag, parties) + body, dtype=np.uint8)

    def _read(self, message: np.ndarray) -> tuple[int, memoryview]:
        """How many parties are in a message, and its body."""
        size = self.message_bytes
        if not isinstance(message, np.ndarray) or message.dtype != np.uint8 or message.shape != (size,):
            what = f"{message.dtype} {message.shape}" if isinstance(message, np.ndarray) else type(message).__name__
            raise MalformedError(f"a sealed vector as {what}; uint8 ({size},) was expected")
        data = memoryview(message.tobytes())
        magic, version, tag, parties = _HEAD.unpack_from(data)
        if (magic, version) != (_MAGIC, _VERSION):
            raise MalformedError(f"{size} bytes that are no sealed vector of version {_VERSION}")
        if not hmac.compare_digest(tag, self._tag):
            raise MalformedError(f"a vector under key {tag.hex()}; {self._tag.hex()} was agreed")
        if not 1 <= parties <= self.addends.parties:
            raise MalformedError(f"a sum over {parties} parties; there are {self.addends.parties}")
        return parties, data[_HEAD.size :]

    @property
    @abstractmethod
    def body_bytes(self) -> int:
        """Bytes of a message without its head."""

    @abstractmethod
    def _seal(self, values: np.ndarray, zero: ZeroShares) -> bytes: ...

    @abstractmethod
    def _add(self, bodies: Sequence[memoryview]) -> bytes: ...

    @abstractmethod
    def _open(self, body: memoryview, key: SecretKey) -> np.ndarray: ...


class Aggregation(KeyScheme):
    """A scheme that adds vectors up."""

    @abstractmethod
    def aggregator(self, key: PublicKey, addends: Addends) -> Aggregator:
        """What seals, adds and opens such vectors.

        Raises:
            MalformedError: a key of another scheme.
            OverflowRefused: their sum does not fit in a plaintext.
        """


@dataclass(frozen=True)
class PaillierAggregation(Aggregation):
    """Under Paillier: integers side by side in plaintexts, each slot with room for the sum; masks modulo n.

    Attributes:
        bits: least bits of n.
    """

    name: ClassVar[str] = "paillier"
    bits: int = 3072

    def __post_init__(self) -> None:
        check_size(self.bits)

    def generate(self) -> PaillierPrivateKey:
        """A fresh key pair."""
        return generate_keypair(self.bits)

    def read_public(self, data: bytes) -> PaillierPublicKey:
        """See `KeyScheme.read_public`."""
        return PaillierPublicKey.from_bytes(data).at_least(self.bits)

    def aggregator(self, key: PublicKey, addends: Addends) -> PaillierAggregator:
        """See `Aggregation.aggregator`."""
        if not isinstance(key, PaillierPublicKey):
            raise MalformedError(f"a key of type {type(key).__name__}; a PaillierPublicKey is needed")
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
    def _plaintexts(self) -> int:
        """In one message."""
        return -(-self.addends.count // self._packing.columns)

    @property
    def body_bytes(self) -> int:
        return self._plaintexts * self.key.ciphertext_bytes

    def _seal(self, values: np.ndarray, zero: ZeroShares) -> bytes:
        table = np.zeros(self._plaintexts * self._packing.columns, dtype=values.dtype)
        table[: len(values)] = values
        packed = self._packing.pack(table.reshape(self._plaintexts, -1))
        masks = zero.next(len(packed), self.key.n)
        return self._store(self.key.encrypt_batch([value + mask for value, mask in zip(packed, masks, strict=True)]))

    def _add(self, bodies: Sequence[memoryview]) -> bytes:
        total = self._load(bodies[0])
        for body in bodies[1:]:
            total = self.key.modulus.mul(total, self._load(body))
        return self._store(total)

    def _open(self, body: memoryview, key: SecretKey) -> np.ndarray:
        if not isinstance(key, PaillierPrivateKey):
            raise MalformedError(f"a key of type {type(key).__name__}; a PaillierPrivateKey is needed")
        found = self._packing.unpack(key.decrypt_batch(self._load(body)), self._plaintexts).ravel()
        if found[self.addends.count :].any():
            raise OverflowRefused("a value behind the end of the vector: somebody's masks do not cancel")
        return found[: self.addends.count]

    def _load(self, body: memoryview) -> Batch:
        table = np.frombuffer(body, dtype=np.uint8).reshape(self._plaintexts, self.key.ciphertext_bytes)
        return self.key.load(table, self._plaintexts)

    def _store(self, ciphertexts: Batch) -> bytes:
        return self.key.store(ciphertexts).tobytes()
