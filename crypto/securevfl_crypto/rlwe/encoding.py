"""What a scheme makes of integers modulo its plaintext modulus: the one thing in which BFV and CKKS differ."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np

from securevfl_crypto.errors import OverflowRefused
from securevfl_crypto.masks import ZeroShares
from securevfl_crypto.rlwe.noise import Noise
from securevfl_crypto.rlwe.seal import SealContext, seal_context

__all__ = ["Encoding", "refuse"]


class Encoding(ABC):
    """Messages: arrays of numbers modulo `modulus`, in whatever form a scheme computes fastest with. Their last axes
    are those of the integers; there may be one before.

    Args:
        noise: bounds of the answers that carry them.
        modulus: of messages.

    Attributes:
        noise: as given.
        modulus: as given.
        seal: the context of the chain.
        error: how far one opened message can be from the exact one.
    """

    error: int = 0

    def __init__(self, noise: Noise, modulus: int) -> None:
        self.noise, self.modulus = noise, modulus
        self.seal: SealContext = seal_context(noise.chain)

    @abstractmethod
    def messages(self, integers: np.ndarray) -> np.ndarray:
        """Of integers, int64 or object, of any sign."""

    @abstractmethod
    def masked(self, x: np.ndarray, share: np.ndarray, extra: np.ndarray | None, zero: ZeroShares) -> np.ndarray:
        """Messages ``x U + extra + Z``, (rows, h), for x (rows, d), U (d, h), and fresh shares of zero Z."""

    @abstractmethod
    def lift(self, messages: np.ndarray) -> np.ndarray:
        """What is added to an encryption of zero: residues (data primes, n) for n messages."""

    @abstractmethod
    def lower(self, phases: np.ndarray) -> np.ndarray:
        """n messages from ``c0 + c1 s``, residues (kept primes, n)."""

    @abstractmethod
    def numbers(self, messages: np.ndarray) -> np.ndarray:
        """From 0 to below the modulus, an object array."""

    def integers(self, messages: np.ndarray) -> np.ndarray:
        """Around zero, int64 or object."""
        found = self.numbers(messages)
        return np.where(found > self.modulus // 2, found - self.modulus, found)


def refuse(what: str, bits: int) -> OverflowRefused:
    """No chain has room."""
    return OverflowRefused(
        f"{what} needs a modulus of about {bits} bits, more than any parameters here have: take a smaller batch, a "
        "higher learning rate at the cut or a smaller bound on activations, or use Paillier"
    )
