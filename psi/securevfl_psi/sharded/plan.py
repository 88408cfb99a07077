"""How many shards there are, and how far each is filled up.

The size of a shard would leak: how many identifiers of a set begin with certain bits is a fact about that set. So every
shard is filled up to the same size, the mean and eight standard deviations, by rows that match nothing. A set whose
shards do not fit is refused by its own party before anything is sent; for honest identifiers, whose hashes under a
fresh key are independent and uniform, that happens with probability 2^-40 at most, see `overflow_exponent`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from securevfl_psi.errors import DisagreementError, ShardError

__all__ = ["MOST_BITS", "PER_SHARD", "ShardPlan", "overflow_exponent", "padded_size", "shard_bits", "shard_count_bits"]

PER_SHARD = 1 << 20
"""Identifiers of the larger set in a shard, at most and on average, where nobody says otherwise."""
MOST_BITS = 16
_DEVIATIONS = 8
_EXPONENT = -40.0


def shard_bits(larger: int, per_shard: int = PER_SHARD) -> int:
    """The fewest bits such that a shard holds at most `per_shard` identifiers on average.

    Raises:
        ShardError: more than `MOST_BITS` would be needed.
    """
    bits = max(0, (max(1, -(-larger // per_shard)) - 1).bit_length())
    if bits > MOST_BITS:
        raise ShardError(f"{larger:,} rows; {per_shard << MOST_BITS:,} are possible in {1 << MOST_BITS} shards")
    return bits


def shard_count_bits(shards: int) -> int:
    """The bits of a number of shards.

    Raises:
        ShardError: no power of two, or above 2^`MOST_BITS`.
    """
    if shards < 1 or shards & (shards - 1) or shards > 1 << MOST_BITS:
        raise ShardError(f"{shards} shards; a power of two is possible, up to {1 << MOST_BITS}")
    return shards.bit_length() - 1


def overflow_exponent(rows: int, bits: int, size: int) -> float:
    """log2 of a bound on the probability that any of 2^bits shards of `rows` identifiers holds more than `size`.

    A union of Chernoff's bounds: each shard has Binomial(rows, p) identifiers, p = 2^-bits, and
    Pr[more than size] ≤ exp(-rows D(q ‖ p)) with q = (size + 1) / rows > p, D the relative entropy of two coins.
    """
    if size >= rows:
        return -math.inf
    p, q = 0.5**bits, (size + 1) / rows
    if q <= p:
        return float(bits)
    entropy = q * math.log(q / p) + ((1 - q) * math.log((1 - q) / (1 - p)) if q < 1 else 0.0)
    return bits - rows * entropy / math.log(2)


def padded_size(rows: int, bits: int) -> int:
    """To how many rows each shard of a set is filled up: the mean and eight deviations, rounded up, or the fewest for
    which `overflow_exponent` is at most -40, where that is more (in shards of a few hundred rows or fewer); never more
    than the whole set."""
    if bits == 0:
        return rows
    p = 0.5**bits
    size = math.ceil(rows * p + _DEVIATIONS * math.sqrt(rows * p * (1 - p)))
    while overflow_exponent(rows, bits, size) > _EXPONENT:
        size += 1
    return max(1, min(size, rows))


@dataclass(frozen=True, kw_only=True)
class ShardPlan:
    """What both parties compute from the two sizes that were announced.

    Attributes:
        bits: the shard is as many bits of the bucket hash.
        own, peer: rows that each announced.

    Raises:
        ShardError: bits that are not possible.
    """

    bits: int
    own: int
    peer: int

    def __post_init__(self) -> None:
        if not 0 <= self.bits <= MOST_BITS:
            raise ShardError(f"{self.bits} bits of a bucket hash; 0 to {MOST_BITS} are possible")

    @classmethod
    def agree(cls, own: int, peer: int, wanted: int | None, theirs: int | None) -> ShardPlan:
        """The plan of both.

        Args:
            own, peer: rows that each announced.
            wanted, theirs: bits that each asks for; None leaves it to the sizes, or to the other.

        Raises:
            DisagreementError: both ask, for different numbers.
            ShardError: bits that are not possible.
        """
        if wanted is not None and theirs is not None and wanted != theirs:
            raise DisagreementError(
                f"this party wants {1 << wanted} shards, the peer {theirs if theirs < 0 else 1 << min(theirs, 64)}: "
                "give the same number at both, or 'auto' at one"
            )
        chosen = wanted if wanted is not None else theirs
        return cls(bits=shard_bits(max(own, peer)) if chosen is None else chosen, own=own, peer=peer)

    @property
    def shards(self) -> int:
        """How many."""
        return 1 << self.bits

    @property
    def own_pad(self) -> int:
        """Rows that this party announces and sends in each shard."""
        return padded_size(self.own, self.bits)

    @property
    def peer_pad(self) -> int:
        """Rows that the peer announces and sends in each shard."""
        return padded_size(self.peer, self.bits)

    def require_fits(self, counts: np.ndarray) -> None:
        """Refuse a set with a shard above its padded size.

        Args:
            counts: own identifiers in each shard, int64 (shards,).

        Raises:
            ShardError: one is too large.
        """
        most = int(counts.max(initial=0))
        if most > self.own_pad:
            raise ShardError(
                f"shard {int(counts.argmax())} of {self.shards} holds {most:,} of {int(counts.sum()):,} identifiers; "
                f"{self.own_pad:,} fit, and its size must not be seen. By chance that has probability 2^"
                f"{overflow_exponent(self.own, self.bits, self.own_pad):.0f} at most. Nothing was sent: run again, "
                "which draws another key, or take half as many shards"
            )
