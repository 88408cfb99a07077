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

import numpy as np

from securevfl_crypto.errors import MalformedError, OverflowRefused
from securevfl_crypto.masks import ZeroShares
from securevfl_crypto.scheme import KeyScheme, PublicKey, SecretKey

__all__ = ["Addends", "Aggregation", "Aggregator"]

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
