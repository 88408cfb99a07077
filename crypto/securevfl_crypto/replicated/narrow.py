"""Shares of small words, modulo 2^32 or 2^8: what a data party deals of a table that is multiplied many times.

Two ways to deal a matrix x = x₀ + x₁ + x₂, of which party i gets (xᵢ, xᵢ₊₁) as in `share`:

- `deal_narrow`, by any data party: two seeds of 32 bytes and one array of words.
- `deal_owned`, by a data party that computes as party o and so knows x anyway. The summand xₒ₊₂, which both others
  hold, is zero **by the protocol** and never sent: party o + 1 gets a seed of xₒ₊₁, party o − 1 the words
  xₒ = x − xₒ₊₁. Each of them sees uniform words alone, independent of x. Words in the place of the zero would be an
  input that nobody agreed on, so a message has room for one part only.

The low bits of shares modulo 2^64 are shares modulo 2^32 and 2^8 (`NarrowShare.low_words`), so that each party computes
its summand of a product of x and such a y without a message:

    owned by o    party o: x (yₒ + yₒ₊₁)    party o + 1: xₒ₊₁ yₒ₊₂    party o − 1: xₒ yₒ₊₂
    dealt         party 0: (x₀ + x₁)(y₀ + y₁)    party 1: x₁ y₂ + x₂ (y₁ + y₂)    party 2: x₂ y₀ + x₀ y₂
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import numpy as np

from securevfl_crypto.errors import MalformedError
from securevfl_crypto.replicated.share import PARTIES, U8, U64, Share
from securevfl_crypto.ring import NarrowMatrix, OneHotMatrix, Stream

__all__ = [
    "DealtNarrow",
    "DealtOwned",
    "NarrowBits",
    "NarrowShare",
    "NarrowTerm",
    "combine_summand",
    "deal_narrow",
    "deal_owned",
    "dealt_terms",
    "owned_term",
    "owner_term",
    "sum_summand",
]

NarrowBits: TypeAlias = Literal[8, 32]
Words: TypeAlias = np.ndarray[Any, np.dtype[Any]]

_SEED = 32
_KINDS: dict[int, np.dtype[Any]] = {8: np.dtype(np.uint8), 32: np.dtype(np.uint32)}
_SENT: dict[int, np.dtype[Any]] = {8: np.dtype(np.uint8), 32: np.dtype("<u4")}


@dataclass(frozen=True, eq=False)
class NarrowShare:
    """Party i's part of x modulo 2^32 or 2^8: `mine` is xᵢ, `next` is xᵢ₊₁, uint32 or uint8 arrays of one shape.

    Raises:
        MalformedError: the two arrays differ in type or shape, or are of another type.
    """

    mine: Words = field(repr=False)
    next: Words = field(repr=False)

    def __post_init__(self) -> None:
        if self.mine.dtype not in _KINDS.values() or self.mine.dtype != self.next.dtype:
            raise MalformedError(f"a narrow share of {self.mine.dtype} and {self.next.dtype}; expected uint32 or uint8")
        if self.mine.shape != self.next.shape:
            raise MalformedError(
                f"the parts of a narrow share have shapes {self.mine.shape} and {self.next.shape}; expected one shape"
            )

    @classmethod
    def low_words(cls, x: Share, bits: NarrowBits) -> NarrowShare:
        """The same values modulo 2^32 or 2^8, from shares modulo 2^64."""
        return cls(x.mine.astype(_KINDS[bits]), x.next.astype(_KINDS[bits]))

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of x."""
        shape: tuple[int, ...] = self.mine.shape
        return shape

    @property
    def bits(self) -> int:
        """32 or 8: x counts modulo two to this."""
        return 8 * self.mine.itemsize

    @property
    def T(self) -> NarrowShare:  # noqa: N802 (numpy's name)
        """The last two axes exchanged."""
        return NarrowShare(np.swapaxes(self.mine, -1, -2), np.swapaxes(self.next, -1, -2))

    def __getitem__(self, index: Any) -> NarrowShare:
        return NarrowShare(self.mine[index], self.next[index])

    def as_words(self) -> Share:
        """The bytes of both parts as words of 64 bits, flat and filled up with zeros, for `Computing.confirm`."""

        def pack(part: Words) -> U64:
            raw = np.ascontiguousarray(part).reshape(-1).view(np.uint8)
            return np.concatenate([raw, np.zeros(-raw.size % 8, np.uint8)]).view(np.uint64)

        return Share(pack(self.mine), pack(self.next))


def _expand_seed(seed: bytes, shape: tuple[int, ...], bits: int) -> Words:
    kind = _KINDS[bits]
    octets = Stream(seed).draw_octets(0, int(np.prod(shape, dtype=np.int64)) * kind.itemsize)
    return octets.view(_SENT[bits]).astype(kind, copy=False).reshape(shape)


def _check_part(part: Any, *, seed: bool, shape: tuple[int, ...], bits: int, what: str) -> None:
    kind, size = (np.dtype(np.uint8), (_SEED,)) if seed else (_KINDS.get(bits), shape)
    if kind is None:
        raise MalformedError(f"words of {bits} bits; expected 8 or 32")
    if not isinstance(part, np.ndarray) or part.dtype != kind or part.shape != size:
        raise MalformedError(
            f"{what} is {getattr(part, 'dtype', type(part).__name__)} {getattr(part, 'shape', '')}; expected "
            f"{'a seed of' if seed else 'words of'} {kind} {size}"
        )


def _check_index(index: int) -> None:
    if index not in range(PARTIES):
        raise MalformedError(f"computing party {index}; expected 0, 1 or 2")


@dataclass(frozen=True, eq=False)
class DealtNarrow:
    """A data party's message to computing party `index`: its two summands, each a seed or words.

    Attributes:
        index: 0, 1 or 2. Parties 0 and 1 hold summand x₁, parties 0 and 2 summand x₀, both from seeds; x₂ is words.
        shape: of x.
        bits: 32 or 8.
        parts: first xᵢ, then xᵢ₊₁.

    Raises:
        MalformedError: a part is of another type or shape, or a seed in the place of words.
    """

    index: int
    shape: tuple[int, ...]
    bits: NarrowBits
    parts: tuple[np.ndarray, ...] = field(repr=False)

    def __post_init__(self) -> None:
        _check_index(self.index)
        if len(self.parts) != 2:
            raise MalformedError(f"{len(self.parts)} parts dealt to party {self.index}; expected 2")
        for k, part in enumerate(self.parts):
            seed = (self.index + k) % PARTIES != PARTIES - 1
            _check_part(part, seed=seed, shape=self.shape, bits=self.bits, what="a dealt part")

    @property
    def nbytes(self) -> int:
        """Bytes on the wire."""
        return sum(part.nbytes for part in self.parts)

    def share(self) -> NarrowShare:
        """Expand the seeds and return the share. Call `Computing.confirm` before you use it."""
        mine, after = (
            part if (self.index + k) % PARTIES == PARTIES - 1 else _expand_seed(part.tobytes(), self.shape, self.bits)
            for k, part in enumerate(self.parts)
        )
        return NarrowShare(mine, after)


@dataclass(frozen=True, eq=False)
class DealtOwned:
    """The message of computing party `owner`, which knows x, to party `index`: the one summand that this party lacks.

    Attributes:
        owner: 0, 1 or 2.
        index: the receiver, one of the two others.
        shape: of x.
        bits: 32 or 8.
        parts: one array: party owner + 1 gets a seed, party owner − 1 words. Its other summand is zero and not sent.

    Raises:
        MalformedError: a part is of another type or shape, a seed in the place of words, or there is another part:
            words in the place of the zero.
    """

    owner: int
    index: int
    shape: tuple[int, ...]
    bits: NarrowBits
    parts: tuple[np.ndarray, ...] = field(repr=False)

    def __post_init__(self) -> None:
        _check_index(self.owner)
        _check_index(self.index)
        if self.index == self.owner:
            raise MalformedError(f"party {self.owner} deals its own table to itself; it knows it")
        if len(self.parts) != 1:
            raise MalformedError(
                f"{len(self.parts)} parts of a table of party {self.owner}; expected 1: the summand that both others "
                "hold is zero and is not sent"
            )
        _check_part(self.parts[0], seed=self.has_seed, shape=self.shape, bits=self.bits, what="the dealt part")

    @property
    def has_seed(self) -> bool:
        """Whether the receiver holds summand xₒ₊₁, from a seed, and not xₒ, as words."""
        return self.index == (self.owner + 1) % PARTIES

    @property
    def nbytes(self) -> int:
        """Bytes on the wire."""
        return sum(part.nbytes for part in self.parts)

    def words(self) -> Words:
        """The summand that was dealt."""
        (part,) = self.parts
        return _expand_seed(part.tobytes(), self.shape, self.bits) if self.has_seed else part


def _check_values(values: Any) -> NarrowBits:
    if isinstance(values, np.ndarray) and values.dtype in _KINDS.values():
        return 8 if values.dtype == np.uint8 else 32
    raise MalformedError(f"values of {getattr(values, 'dtype', type(values).__name__)}; expected uint32 or uint8")


def deal_narrow(values: Words) -> tuple[DealtNarrow, DealtNarrow, DealtNarrow]:
    """Share small words among the three computing parties, as `deal_shares` does modulo 2^64.

    Each call draws fresh seeds of the operating system, so that two calls give unrelated shares.

    Args:
        values: uint32 or uint8, of any shape.

    Raises:
        MalformedError: another type.
    """
    bits = _check_values(values)
    seeds = [os.urandom(_SEED) for _ in range(2)]
    last = values - _expand_seed(seeds[0], values.shape, bits) - _expand_seed(seeds[1], values.shape, bits)
    summands = (*(np.frombuffer(seed, np.uint8) for seed in seeds), np.asarray(last))
    zero, one, two = (
        DealtNarrow(i, values.shape, bits, (summands[i], summands[(i + 1) % PARTIES])) for i in range(PARTIES)
    )
    return zero, one, two


def deal_owned(values: Words, owner: int) -> tuple[DealtOwned, DealtOwned]:
    """Share small words that computing party `owner` knows, with a fresh seed of the operating system.

    Args:
        values: uint32 or uint8, of any shape.
        owner: the party that knows them.

    Returns:
        The messages to the next party and to the previous one.

    Raises:
        MalformedError: another type, or no computing party.
    """
    bits = _check_values(values)
    _check_index(owner)
    seed = os.urandom(_SEED)
    rest = values - _expand_seed(seed, values.shape, bits)
    after, before = (owner + 1) % PARTIES, (owner - 1) % PARTIES
    return (
        DealtOwned(owner, after, values.shape, bits, (np.frombuffer(seed, np.uint8),)),
        DealtOwned(owner, before, values.shape, bits, (np.asarray(rest),)),
    )


@dataclass(frozen=True, eq=False)
class NarrowTerm:
    """One product that a party computes: a matrix that it knows, by one of its summands of the other factor.

    Attributes:
        matrix: (cells, n).
        by: the party's own summand `mine`, its summand `next`, or the sum of both.
    """

    matrix: NarrowMatrix | OneHotMatrix
    by: Literal["mine", "next", "both"]

    def pick(self, factor: Share | NarrowShare) -> np.ndarray:
        """This party's words of the other factor."""
        if self.by == "both":
            return np.asarray(factor.mine + factor.next)
        return factor.mine if self.by == "mine" else factor.next


def owner_term(matrix: OneHotMatrix) -> NarrowTerm:
    """What the owner of a matrix multiplies; also the reference in the clear, which knows all of both factors."""
    return NarrowTerm(matrix, "both")


def owned_term(dealt: DealtOwned) -> NarrowTerm:
    """What another party multiplies of a matrix that its owner dealt."""
    return NarrowTerm(NarrowMatrix(dealt.words()), "next" if dealt.has_seed else "mine")


def dealt_terms(share: NarrowShare, index: int) -> list[NarrowTerm]:
    """What party `index` multiplies of a matrix that `deal_narrow` dealt: five products of the nine, over all three."""
    _check_index(index)
    if index == 0:
        return [NarrowTerm(NarrowMatrix(np.asarray(share.mine + share.next)), "both")]
    return [
        NarrowTerm(NarrowMatrix(share.mine), "next"),
        NarrowTerm(NarrowMatrix(share.next), "both" if index == 1 else "mine"),
    ]


def sum_summand(terms: Sequence[NarrowTerm], values: Share) -> np.ndarray:
    """This party's summand of matrix · values modulo 2^32, uint32 (cells, k), not yet masked; values are (n, k)."""
    first, *rest = (term.matrix.sum_rows(term.pick(values)) for term in terms)
    return np.asarray(sum(rest, first))


def combine_summand(terms: Sequence[NarrowTerm], factors: Share | NarrowShare) -> U8:
    """This party's summand of factors · matrix modulo 2^8, uint8 (k, n), not yet masked; factors are (k, cells)."""
    first, *rest = (term.matrix.combine_cells(term.pick(factors)) for term in terms)
    return np.asarray(sum(rest, first))
