"""One party's part of a replicated secret sharing modulo 2^64, and the message with which a data party deals it.

x = x₀ + x₁ + x₂ modulo 2^64; party i has (xᵢ, xᵢ₊₁), so two parties have each summand and no party has all three
(Araki, Furukawa, Lindell, Nof and Ohara, CCS 2016, section 2.1, in the form of ABY3, CCS 2018). Linear operations need
no message.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from securevfl_crypto.errors import MalformedError
from securevfl_crypto.ring import Stream

__all__ = ["PARTIES", "U8", "U64", "Dealt", "Share", "concatenate", "deal_shares", "stack", "words_of"]

U64: TypeAlias = npt.NDArray[np.uint64]
U8: TypeAlias = npt.NDArray[np.uint8]

PARTIES = 3
_SEED = 32
_MODULUS = 1 << 64


def words_of(factor: int | np.ndarray) -> U64:
    """Convert public integers to words modulo 2^64.

    Raises:
        MalformedError: not integers; encode fractions with `securevfl_crypto.ring.encode_words`.
    """
    if isinstance(factor, int | np.integer):
        return np.asarray(int(factor) % _MODULUS, dtype=np.uint64)
    if isinstance(factor, np.ndarray) and factor.dtype.kind in "iub":
        return factor.astype(np.int64).view(np.uint64) if factor.dtype.kind == "i" else factor.astype(np.uint64)
    raise MalformedError(f"a share is multiplied by integers, not by {type(factor).__name__}; encode fractions first")


@dataclass(frozen=True, eq=False)
class Share:
    """Party i's part of x: `mine` is xᵢ, `next` is xᵢ₊₁, uint64 arrays of one shape.

    ``+``, ``-``, negation, ``*`` by public integers, indexing, `T`, `reshape` and `sum` are local; numpy broadcasts.

    Raises:
        MalformedError: the two arrays are not uint64, or differ in shape.
    """

    mine: U64 = field(repr=False)
    next: U64 = field(repr=False)

    __array_ufunc__ = None  # makes numpy call `__rmul__` for `array * share`

    def __post_init__(self) -> None:
        for words in (self.mine, self.next):
            if not isinstance(words, np.ndarray) or words.dtype != np.uint64:
                raise MalformedError(f"a share of {getattr(words, 'dtype', type(words).__name__)}; expected uint64")
        if self.mine.shape != self.next.shape:
            raise MalformedError(
                f"the parts of a share have shapes {self.mine.shape} and {self.next.shape}; expected one shape"
            )

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of x."""
        return self.mine.shape

    @property
    def size(self) -> int:
        """The number of values."""
        return self.mine.size

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return self.mine.ndim

    @property
    def T(self) -> Share:  # noqa: N802 (numpy's name)
        """The last two axes exchanged."""
        return self._map_words(lambda part: np.swapaxes(part, -1, -2))

    def __len__(self) -> int:
        return len(self.mine)

    def __add__(self, other: Share) -> Share:
        return Share(np.asarray(self.mine + other.mine), np.asarray(self.next + other.next))

    def __sub__(self, other: Share) -> Share:
        return Share(np.asarray(self.mine - other.mine), np.asarray(self.next - other.next))

    def __neg__(self) -> Share:
        return self._map_words(np.negative)

    def __mul__(self, factor: int | np.ndarray) -> Share:
        words = words_of(factor)
        return self._map_words(lambda part: part * words)

    __rmul__ = __mul__

    def __getitem__(self, index: Any) -> Share:
        return self._map_words(lambda part: part[index])

    def reshape(self, *shape: int) -> Share:
        """The same values in another shape."""
        return self._map_words(lambda part: part.reshape(*shape))

    def sum(self, axis: int | None = None, *, keepdims: bool = False) -> Share:
        """The sum along an axis, or of all values."""
        return self._map_words(lambda part: part.sum(axis=axis, keepdims=keepdims, dtype=np.uint64))

    def broadcast_to(self, shape: tuple[int, ...]) -> Share:
        """The values repeated as numpy broadcasts them."""
        return self._map_words(lambda part: np.broadcast_to(part, shape))

    def _map_words(self, change: Callable[[U64], np.ndarray]) -> Share:
        return Share(np.asarray(change(self.mine)), np.asarray(change(self.next)))


def concatenate(shares: Sequence[Share], axis: int = 0) -> Share:
    """Concatenate shares along an axis."""
    return Share(
        np.concatenate([share.mine for share in shares], axis), np.concatenate([share.next for share in shares], axis)
    )


def stack(shares: Sequence[Share], axis: int = 0) -> Share:
    """Stack shares of one shape along a new axis."""
    return Share(np.stack([share.mine for share in shares], axis), np.stack([share.next for share in shares], axis))


@dataclass(frozen=True, eq=False)
class Dealt:
    """A data party's message to computing party i: xᵢ and xᵢ₊₁, each as a seed of 32 bytes or as words.

    Attributes:
        shape: of x.
        parts: uint8 (32,) for a seed, uint64 of `shape` for words; first xᵢ, then xᵢ₊₁.

    Raises:
        MalformedError: a part is neither.
    """

    shape: tuple[int, ...]
    parts: tuple[np.ndarray, np.ndarray] = field(repr=False)

    def __post_init__(self) -> None:
        for part in self.parts:
            seed = part.dtype == np.uint8 and part.shape == (_SEED,)
            if not seed and not (part.dtype == np.uint64 and part.shape == self.shape):
                raise MalformedError(
                    f"a dealt part of {part.dtype} {part.shape}; expected a seed of uint8 ({_SEED},) or words of "
                    f"uint64 {self.shape}"
                )

    @classmethod
    def from_arrays(cls, arrays: Sequence[np.ndarray], shape: tuple[int, ...]) -> Dealt:
        """Rebuild the message from `arrays`.

        Raises:
            MalformedError: not two parts of this shape.
        """
        if len(arrays) != 2 or not all(isinstance(array, np.ndarray) for array in arrays):
            raise MalformedError(f"{len(arrays)} arrays dealt; expected two")
        return cls(tuple(shape), (arrays[0], arrays[1]))

    def arrays(self) -> list[np.ndarray]:
        """The two parts, for a message."""
        return list(self.parts)

    @property
    def nbytes(self) -> int:
        """Bytes on the wire."""
        return sum(part.nbytes for part in self.parts)

    def share(self) -> Share:
        """Expand the seeds and return the share."""
        mine, after = (Stream(part.tobytes()).draw_words(0, self.shape) if part.dtype == np.uint8 else part
                       for part in self.parts)  # fmt: skip
        return Share(mine, after)


def deal_shares(values: U64) -> tuple[Dealt, Dealt, Dealt]:
    """Share `values` among the three computing parties, with fresh randomness of the operating system.

    x₀ and x₁ each expand from a seed that only two parties get; x₂ is the rest of the values. Party 0 gets 64 bytes,
    the others 32 bytes and 8 a value. Each call draws fresh seeds, so two calls give unrelated shares.

    Args:
        values: uint64, of any shape.

    Raises:
        MalformedError: the values are not uint64.
    """
    if not isinstance(values, np.ndarray) or values.dtype != np.uint64:
        raise MalformedError(f"values of {getattr(values, 'dtype', type(values).__name__)} to deal; encode them first")
    seeds = [os.urandom(_SEED) for _ in range(2)]
    last = values - Stream(seeds[0]).draw_words(0, values.shape) - Stream(seeds[1]).draw_words(0, values.shape)
    first, second = (np.frombuffer(seed, np.uint8) for seed in seeds)
    summands = (first, second, np.asarray(last))
    zero, one, two = (Dealt(values.shape, (summands[i], summands[(i + 1) % PARTIES])) for i in range(PARTIES))
    return zero, one, two
