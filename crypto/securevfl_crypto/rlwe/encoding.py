"""Encodings of integers modulo a plaintext modulus: the only difference between BFV and CKKS."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np

from securevfl_crypto.errors import OverflowRefused
from securevfl_crypto.masks import ZeroShares
from securevfl_crypto.rlwe.noise import Noise
from securevfl_crypto.rlwe.seal import SealContext, seal_context

__all__ = ["Encoding", "overflow_error"]


class Encoding(ABC):
    """Converts between integers, messages and ring elements.

    A *message* is an array of numbers modulo `modulus`, in the form that a scheme computes with fastest. Its last axes
    are those of the integers; one axis may precede them.

    Args:
        noise: the noise bounds of answers.
        modulus: the modulus of messages.

    Attributes:
        noise: the noise bounds of answers.
        modulus: the modulus of messages.
        seal: the context of the chain.
        error: the largest error of one opened message.
    """

    error: int = 0

    def __init__(self, noise: Noise, modulus: int) -> None:
        self.noise, self.modulus = noise, modulus
        self.seal: SealContext = seal_context(noise.chain)

    @abstractmethod
    def encode_integers(self, integers: np.ndarray) -> np.ndarray:
        """The messages of integers, int64 or object, of either sign."""

    @abstractmethod
    def mask_product(self, x: np.ndarray, share: np.ndarray, extra: np.ndarray | None, zero: ZeroShares) -> np.ndarray:
        """The messages ``x U + extra + Z``, (rows, h), for x (rows, d), U (d, h) and fresh shares of zero Z."""

    @abstractmethod
    def lift_messages(self, messages: np.ndarray) -> np.ndarray:
        """The residues (data primes, n) that encode n messages when added to an encryption of zero."""

    @abstractmethod
    def lower_phases(self, phases: np.ndarray) -> np.ndarray:
        """Decode n messages from the phase ``c0 + c1 s``, residues (kept primes, n)."""

    @abstractmethod
    def to_numbers(self, messages: np.ndarray) -> np.ndarray:
        """The messages as integers from 0 to modulus − 1, an object array."""

    def to_integers(self, messages: np.ndarray) -> np.ndarray:
        """The messages as integers around zero, int64 or object."""
        found = self.to_numbers(messages)
        return np.where(found > self.modulus // 2, found - self.modulus, found)


def overflow_error(what: str, bits: int) -> OverflowRefused:
    """The error for a block that no chain has room for.

    Args:
        what: names the values.
        bits: the bits that they would need.
    """
    return OverflowRefused(
        f"{what} needs a modulus of about {bits} bits, more than any parameters here have: take a smaller batch, a "
        "higher learning rate at the cut or a smaller bound on activations, or use Paillier"
    )
