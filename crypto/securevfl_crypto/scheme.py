"""What a homomorphic scheme has to offer to serve a sealed cut: two products, masked. Paillier, BFV and CKKS do.

A block of weights W = U + V, (d, h), lies between two parties: the *owner* has the key and the share V, the *holder*
has rows x and the share U (BlindFL, Fu et al., SIGMOD 2022, arXiv 2206.07975).

- Product: the owner sends ``[[V]]`` (`Owner.seal_weights`), the holder answers ``[[x (V + U) + extra + Z]]``
  (`Holder.product`), the owner opens (`Owner.open_product`). With several holders Z are shares of zero, and the owner
  adds the holders' messages before it opens their sum, once.
- Gradient: the owner sends ``[[S]]`` (`Owner.seal_steps`), the holder answers ``[[xᵀS − Φ]]`` and keeps Φ
  (`Holder.gradient`), the owner opens ``xᵀS − Φ`` (`Owner.open_gradient`).

The gradient at the holder's rows, ``S Wᵀ``, is a product too, with the roles exchanged: there the holder of features
owns a key and the share Uᵀ, and the other party holds S and Vᵀ.

What a holder returns tells the owner nothing but the product: it is masked, re-randomised, and its noise is drowned.
Messages are uint8 arrays; what comes from a peer is checked before anything is allocated or computed by it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np

from securevfl_crypto.block import Block
from securevfl_crypto.masks import ZeroShares

__all__ = ["Holder", "KeyScheme", "Owner", "PublicKey", "Ring", "Scheme", "SecretKey"]


@dataclass(frozen=True)
class Ring:
    """What shares are numbers of.

    Attributes:
        modulus: shares are integers from 0 to below it, uniform, and add modulo it; None: they are integers of
            any size, whose masks are ``sigma`` bits wider than what they hide.
    """

    modulus: int | None = None

    def reduce(self, values: np.ndarray) -> np.ndarray:
        """Integers (object array) as numbers of this ring."""
        return values if self.modulus is None else np.asarray(values % self.modulus, dtype=object)

    def signed(self, values: np.ndarray) -> np.ndarray:
        """Numbers of the ring as integers around zero."""
        if self.modulus is None:
            return values
        reduced = values % self.modulus
        above = (reduced > self.modulus // 2).astype(object)
        return np.asarray(reduced - self.modulus * above, dtype=object)


class PublicKey(Protocol):
    """A public key as it travels.

    Attributes:
        bits: of the modulus, as ledgers state it: n for Paillier, q for BFV and CKKS.
        security: bits of security that the parameters are believed to have.
        fingerprint: first 16 bytes of SHA-256 of the serialised key, hexadecimal.
    """

    @property
    def bits(self) -> int:
        """Bits of the modulus."""
        ...

    @property
    def security(self) -> int:
        """Bits of security."""
        ...

    @property
    def fingerprint(self) -> str:
        """The first 16 bytes of SHA-256 of `to_bytes`, hexadecimal."""
        ...

    def to_bytes(self) -> bytes:
        """Version, parameters, key."""
        ...


class SecretKey(Protocol):
    """A key pair; the secret half has no serialised form."""

    @property
    def public(self) -> PublicKey:
        """The public half."""
        ...


class Owner(ABC):
    """The key owner's half of one block.

    Attributes:
        block: sizes.
        ring: of the shares of this block.
        product_error: how far an entry of what `open_product` gives can be from the exact integer, for one holder
            (k holders: k times); 0 for exact schemes.
        gradient_error: likewise for the sum of the two shares of the gradient.
    """

    block: Block
    ring: Ring
    product_error: int = 0
    gradient_error: int = 0

    @abstractmethod
    def seal_weights(self, share: np.ndarray) -> np.ndarray:
        """``[[V]]`` for V (d, h), an object array of the ring."""

    @abstractmethod
    def open_product(self, messages: Sequence[np.ndarray], rows: int) -> np.ndarray:
        """The sum over the holders of ``x W + extra``, (rows, h) integers, int64 or object.

        Raises:
            MalformedError: a message that is none of this scheme and block.
            OverflowRefused: it reaches a quarter of 2^z_bits, or the holders' masks do not cancel.
        """

    @abstractmethod
    def seal_steps(self, steps: np.ndarray) -> np.ndarray:
        """``[[S]]`` for S (rows, h), int64.

        Raises:
            OverflowRefused: a step reaches 2^s_bits.
        """

    @abstractmethod
    def open_gradient(self, message: np.ndarray) -> np.ndarray:
        """``xᵀS − Φ``, (d, h), an object array of the ring."""


class Holder(ABC):
    """The feature holder's half of one block.

    Attributes:
        block: sizes.
        ring: of the shares of this block.
    """

    block: Block
    ring: Ring

    @abstractmethod
    def fresh_share(self) -> np.ndarray:
        """A share (d, h), object array: uniform in the ring, or over ±2^share_bits."""

    @abstractmethod
    def product(
        self, sealed: np.ndarray, x: np.ndarray, share: np.ndarray, *, extra: np.ndarray | None = None
    ) -> np.ndarray:
        """``[[x (V + U) + extra + Z]]``, re-randomised, for x (rows, d) int64, U (d, h) and extra (rows, h) int64.

        Raises:
            MalformedError: a message that is none of this scheme and block.
            OverflowRefused: a row reaches 2^x_bits.
        """

    @abstractmethod
    def gradient(self, sealed: np.ndarray, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(``[[xᵀS − Φ]]`` re-randomised, Φ): Φ (d, h), object array of the ring, is the holder's share of xᵀS."""


class KeyScheme(ABC):
    """What makes and reads the keys of a scheme with its parameters.

    Attributes:
        name: ``"paillier"``, ``"bfv"`` or ``"ckks"``.
    """

    name: ClassVar[str]

    @abstractmethod
    def generate(self) -> SecretKey:
        """A fresh key pair."""

    @abstractmethod
    def read_public(self, data: bytes) -> PublicKey:
        """The key that `PublicKey.to_bytes` wrote.

        Raises:
            MalformedError: another format, version or length, or numbers that cannot be a key.
            WeakKeyError: weaker than this scheme's parameters demand.
        """


class Scheme(KeyScheme):
    """A scheme that can seal a cut.

    Attributes:
        exact: whether products are exact.
        most_holders: how many holders' products can be added up, or None for any number.
    """

    exact: ClassVar[bool]
    most_holders: ClassVar[int | None] = None

    @abstractmethod
    def owner(self, key: SecretKey, block: Block) -> Owner:
        """The owner's half of a block.

        Raises:
            OverflowRefused: the block's integers do not fit in this scheme's plaintexts.
        """

    @abstractmethod
    def holder(self, key: PublicKey, block: Block, zero: ZeroShares) -> Holder:
        """The holder's half of a block; `zero`: its shares of zero with the other holders, falsy if there is none."""
