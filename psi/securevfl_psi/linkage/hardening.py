"""What is done to a Bloom filter before it leaves: each step named, with what it stops and what it costs.

None of these makes an encoding safe to publish; they raise the cost of the attacks in docs/howto/linkage.md.
"""

from __future__ import annotations

import math
import secrets
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from securevfl_psi.errors import LinkageError
from securevfl_psi.linkage.keys import derive_permutation

__all__ = ["Balanced", "Blip", "Hardening", "XorFold"]


class Hardening(Protocol):
    """One step. Implementations are frozen dataclasses, so that their `repr` is a tag."""

    def input_length(self, bits: int) -> int:
        """Length of what this step takes, for `bits` of what it gives."""

    def apply(self, filters: np.ndarray, key: bytes) -> np.ndarray:
        """Filters, (n, length) bool, hardened. `key` is derived for this step; both parties have the same."""


@dataclass(frozen=True)
class XorFold:
    """The filter's halves, combined by exclusive or (Schnell and Borgs, "XOR-folding for Bloom filter-based
    encryptions", 2016).

    Stops: reading a q-gram's pattern of ones: a position shows the sum of two unrelated ones, and a set bit no longer
    proves that some token was there. Costs: some similarity, since a differing bit spoils its partner; least where fill
    is low. Does not stop: re-identification of whole records whose encodings repeat.
    """

    def input_length(self, bits: int) -> int:
        """See `Hardening.input_length`."""
        return 2 * bits

    def apply(self, filters: np.ndarray, key: bytes) -> np.ndarray:
        """See `Hardening.apply`."""
        half = filters.shape[1] // 2
        folded: np.ndarray = filters[:, :half] ^ filters[:, half:]
        return folded


@dataclass(frozen=True)
class Balanced:
    """The filter beside its complement, in a keyed order (Schnell and Borgs, "Randomized response and balanced Bloom
    filters for privacy preserving record linkage", 2016).

    Stops: telling records by their number of ones, which betrays lengths of names and missing fields. Costs: half of
    the length, and the length's weight in the similarity (records with missing fields score lower). Does not stop:
    finding the pairs of complements again by their correlation, and going on from there.
    """

    def input_length(self, bits: int) -> int:
        """See `Hardening.input_length`."""
        if bits % 128:
            raise LinkageError(f"a balanced encoding of {bits} bits; a multiple of 128 is needed")
        return bits // 2

    def apply(self, filters: np.ndarray, key: bytes) -> np.ndarray:
        """See `Hardening.apply`."""
        both = np.concatenate([filters, ~filters], axis=1)
        return both[:, derive_permutation(key, both.shape[1])]


@dataclass(frozen=True)
class Blip:
    """Each bit flipped with a small probability, independently, by the operating system's randomness (Alaggan, Gambs
    and Kermarrec, "BLIP", 2012; permanent randomised response).

    Stops: exact repetition: equal records no longer have equal encodings, and rare patterns are blurred. Costs:
    similarity, of true pairs most. A *bit* is (ln((1 - flip) / flip))-differentially private; a record is not in any
    useful sense, since it sets hundreds of bits.

    Attributes:
        flip: probability of each bit to be flipped, above 0 and below 0.5.
    """

    flip: float = 0.02

    def __post_init__(self) -> None:
        if not 0 < self.flip < 0.5:
            raise LinkageError(f"bits flipped with probability {self.flip!r}; above 0 and below 0.5 are possible")

    @property
    def epsilon_per_bit(self) -> float:
        """The differential privacy of one bit."""
        return math.log((1 - self.flip) / self.flip)

    def input_length(self, bits: int) -> int:
        """See `Hardening.input_length`."""
        return bits

    def apply(self, filters: np.ndarray, key: bytes) -> np.ndarray:
        """See `Hardening.apply`."""
        draws = np.frombuffer(secrets.token_bytes(4 * filters.size), dtype="<u4").reshape(filters.shape)
        flipped: np.ndarray = filters ^ (draws < round(self.flip * 2**32))
        return flipped
