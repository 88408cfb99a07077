"""Exact sums of integer vectors under encryption: several parties seal, anyone adds, one party opens the sum.

One party generates a key. Every party encrypts its vector plus its share of zero, which is uniform over the whole
plaintext space. Anyone with the public key adds the messages, and the key's owner opens the sum. The shares of zero
cancel only in the sum over all parties. Therefore:

- The party that adds has no secret key and learns nothing, not even the sum.
- The key's owner learns the sum. A single message, or a sum of some, decrypts to uniform numbers. It learns one party's
  vector only if all other parties collude with it. (Masks that cancel: Bonawitz et al. 2017,
  doi 10.1145/3133956.3133982. Unlike there, no party may drop out.)
- Messages are sums of fresh encryptions; no factor depends on a vector. So their randomness and noise reveal nothing
  and need no drowning.

Every message is checked before use: its length, the fingerprint of its key, the number of parties in it, and that its
content can be ciphertexts. No party can check that another's vector was in range, or that it sealed only one vector.
"""

from __future__ import annotations

import hmac
import struct
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from securevfl_crypto.errors import MalformedError, OverflowRefused
from securevfl_crypto.masks import ZeroShares
from securevfl_crypto.scheme import KeyScheme, PublicKey, SecretKey

__all__ = ["Addends", "Aggregation", "Aggregator"]

_HEAD = struct.Struct("<4sB16sI")  # magic, version, fingerprint of the key, parties that are in the sum
_MAGIC, _VERSION = b"SVAG", 1


@dataclass(frozen=True, kw_only=True)
class Addends:
    """The sizes of the vectors to add, which all parties agree on.

    Attributes:
        count: integers in a vector.
        bits: each integer is below 2^bits in magnitude.
        parties: the number of parties, each with one vector.

    Raises:
        MalformedError: a number is out of range.
    """

    count: int
    bits: int
    parties: int

    def __post_init__(self) -> None:
        for name, most in (("count", 1 << 26), ("bits", 1 << 10), ("parties", 1 << 12)):
            if not 1 <= getattr(self, name) <= most:
                raise MalformedError(f"{name} is {getattr(self, name)}; expected 1 to {most}")

    @property
    def sum_bits(self) -> int:
        """Bits of the magnitude of a sum over all parties."""
        return self.bits + (self.parties - 1).bit_length()

    def check_values(self, values: np.ndarray, parties: int = 1) -> None:
        """Check a vector, or the sum of the vectors of `parties` parties.

        Raises:
            MalformedError: the type or length differs.
            OverflowRefused: an integer is out of range.
        """
        if values.dtype not in (np.int64, np.object_) or values.shape != (self.count,):
            raise MalformedError(
                f"the vector is {values.dtype} {values.shape}; the parties agreed on {self.count} integers"
            )
        largest = max(abs(int(values.max())), abs(int(values.min())))
        if largest >= parties << self.bits:
            raise OverflowRefused(
                f"an integer of {largest.bit_length()} bits in {'a vector' if parties == 1 else 'a sum of vectors'}; "
                f"each vector's are below 2^{self.bits}: agree on more bits, or find out whose masks do not cancel"
            )


class Aggregator(ABC):
    """Seals and adds with the public key, opens with the secret one.

    Args:
        key: the public key.
        addends: the sizes of the vectors.
    """

    def __init__(self, key: PublicKey, addends: Addends) -> None:
        self.key = key
        self.addends = addends
        self._tag = bytes.fromhex(key.fingerprint)

    @property
    def message_bytes(self) -> int:
        """Bytes of a message, whether of one vector or of a sum."""
        return _HEAD.size + self.body_bytes

    def seal(self, values: np.ndarray, zero: ZeroShares) -> np.ndarray:
        """Encrypt a vector: ``[[values + zero]]``, a uint8 message.

        Args:
            values: (count,), int64 or an object array of integers.
            zero: this party's shares of zero with the others, empty for a single party. All parties must seal equally
                often.

        Raises:
            MalformedError: the type or length differs, or several parties have no shares of zero.
            OverflowRefused: an integer reaches 2^bits.
        """
        self.addends.check_values(values)
        if self.addends.parties > 1 and not zero:
            raise MalformedError(
                f"a vector of one of {self.addends.parties} parties and no shares of zero: the owner of the key could "
                "read it; agree on pairwise seeds"
            )
        return self._write_message(self._seal(values, zero), 1)

    def add(self, messages: Sequence[np.ndarray]) -> np.ndarray:
        """Add messages, of vectors or of sums; returns the message of their sum.

        Raises:
            MalformedError: there is no message; one has another length, version or key; they cover more parties than
                were agreed; or the content is not a ciphertext.
        """
        if not messages:
            raise MalformedError("no party sent a vector; at least one must")
        read = [self._read_message(message) for message in messages]
        parties = sum(count for count, _ in read)
        if parties > self.addends.parties:
            raise MalformedError(f"the messages cover {parties} parties; at most {self.addends.parties} were agreed")
        return self._write_message(self._add([body for _, body in read]), parties)

    def open(self, message: np.ndarray, key: SecretKey) -> np.ndarray:
        """Decrypt the sum of all parties' vectors, (count,): int64 if `sum_bits` is below 64, else an object array.

        Raises:
            MalformedError: the message is not under this key, or not the sum of all parties.
            OverflowRefused: an integer is out of the range of a sum: a party's masks do not cancel, or its vector was
                out of range.
        """
        parties, body = self._read_message(message)
        if parties != self.addends.parties:
            raise MalformedError(f"the sum covers {parties} parties; expected all {self.addends.parties}")
        if key.public.fingerprint != self.key.fingerprint:
            raise MalformedError(f"the secret key belongs to {key.public.fingerprint}; expected {self.key.fingerprint}")
        found = self._open(body, key)
        self.addends.check_values(found, parties)
        return found.astype(np.int64 if self.addends.sum_bits < 64 else np.object_)

    def _write_message(self, body: bytes, parties: int) -> np.ndarray:
        return np.frombuffer(_HEAD.pack(_MAGIC, _VERSION, self._tag, parties) + body, dtype=np.uint8)

    def _read_message(self, message: np.ndarray) -> tuple[int, memoryview]:
        """Check a message's header; return the number of parties in it, and its body."""
        size = self.message_bytes
        if not isinstance(message, np.ndarray) or message.dtype != np.uint8 or message.shape != (size,):
            what = f"{message.dtype} {message.shape}" if isinstance(message, np.ndarray) else type(message).__name__
            raise MalformedError(f"the sealed vector is {what}; expected uint8 ({size},)")
        data = memoryview(message.tobytes())
        magic, version, tag, parties = _HEAD.unpack_from(data)
        if (magic, version) != (_MAGIC, _VERSION):
            raise MalformedError(f"these {size} bytes are not a sealed vector of version {_VERSION}")
        if not hmac.compare_digest(tag, self._tag):
            raise MalformedError(f"the vector is sealed under key {tag.hex()}; expected {self._tag.hex()}")
        if not 1 <= parties <= self.addends.parties:
            raise MalformedError(f"the message covers {parties} parties; expected 1 to {self.addends.parties}")
        return parties, data[_HEAD.size :]

    @property
    @abstractmethod
    def body_bytes(self) -> int:
        """Bytes of a message without its header."""

    @abstractmethod
    def _seal(self, values: np.ndarray, zero: ZeroShares) -> bytes: ...

    @abstractmethod
    def _add(self, bodies: Sequence[memoryview]) -> bytes: ...

    @abstractmethod
    def _open(self, body: memoryview, key: SecretKey) -> np.ndarray: ...


class Aggregation(KeyScheme):
    """A scheme that can add vectors under encryption."""

    @abstractmethod
    def create_aggregator(self, key: PublicKey, addends: Addends) -> Aggregator:
        """Create the aggregator of vectors of these sizes.

        Raises:
            MalformedError: the key belongs to another scheme.
            OverflowRefused: the sum does not fit in a plaintext.
        """
