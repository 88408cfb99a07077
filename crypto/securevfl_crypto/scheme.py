"""The interface of a homomorphic scheme at a sealed cut: two masked products. Paillier, BFV and CKKS implement it.

Two parties share a block of weights W = U + V, (d, h). The *owner* has the key and the share V; the *holder* has rows x
and the share U (BlindFL, Fu et al., SIGMOD 2022, arXiv 2206.07975).

- Product: the owner sends ``[[V]]`` (`Owner.seal_weights`), the holder answers ``[[x (V + U) + extra + Z]]``
  (`Holder.answer_product`), the owner opens (`Owner.open_product`). With several holders Z are shares of zero, and the
  owner adds the holders' messages before it opens their sum, once.
- Gradient: the owner sends ``[[S]]`` (`Owner.seal_steps`), the holder answers ``[[xᵀS − Φ]]`` and keeps Φ
  (`Holder.answer_gradient`), the owner opens ``xᵀS − Φ`` (`Owner.open_gradient`).

The gradient with respect to the holder's rows, ``S Wᵀ``, is also a product, with the roles exchanged: the feature
holder owns a key and the share Uᵀ, and the other party holds S and Vᵀ.

The owner learns only the product from a holder's answer: the answer is masked and re-randomised, and its noise is
drowned. Messages are uint8 arrays. Every message from a peer is checked before it is used or sizes an allocation.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol, Self

import numpy as np

from securevfl_crypto.block import Block
from securevfl_crypto.masks import ZeroShares
from securevfl_crypto.pools.base import Pool

__all__ = ["Holder", "KeyScheme", "Owner", "PublicKey", "Ring", "Scheme", "SecretKey"]


@dataclass(frozen=True)
class Ring:
    """The ring that shares belong to.

    Attributes:
        modulus: shares are uniform integers from 0 to modulus − 1 and add modulo it. None: they are integers of any
            size, whose masks are ``sigma`` bits wider than the values they hide.
    """

    modulus: int | None = None

    def reduce(self, values: np.ndarray) -> np.ndarray:
        """Map integers, an object array, to their representatives in this ring."""
        return values if self.modulus is None else np.asarray(values % self.modulus, dtype=object)

    def to_signed(self, values: np.ndarray) -> np.ndarray:
        """Map numbers of the ring to integers around zero, an object array."""
        if self.modulus is None:
            return values
        reduced = values % self.modulus
        above = (reduced > self.modulus // 2).astype(object)
        return np.asarray(reduced - self.modulus * above, dtype=object)


class PublicKey(Protocol):
    """A public key that can be serialised.

    Attributes:
        bits: bits of the modulus: n for Paillier, q for BFV and CKKS.
        security: the estimated bits of security.
        fingerprint: the first 16 bytes of SHA-256 of the serialised key, hexadecimal.
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
        """The serialised key: version, parameters, key."""
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
        block: the sizes of the integers.
        ring: the ring of this block's shares.
        product_error: the largest error of an entry that `open_product` returns, for one holder (k times as much for
            k holders); 0 for exact schemes.
        gradient_error: the largest error of the sum of the two gradient shares; 0 for exact schemes.
    """

    block: Block
    ring: Ring
    product_error: int = 0
    gradient_error: int = 0

    @abstractmethod
    def seal_weights(self, share: np.ndarray) -> np.ndarray:
        """Encrypt the owner's share: the message ``[[V]]``, uint8, for V (d, h), an object array of the ring."""

    @abstractmethod
    def open_product(self, messages: Sequence[np.ndarray], rows: int) -> np.ndarray:
        """Add the holders' answers and decrypt ``Σ (x W + extra)``, (rows, h), int64 or object.

        Raises:
            MalformedError: a message does not belong to this scheme and block.
            OverflowRefused: an entry reaches a quarter of 2^z_bits, or the holders' masks do not cancel.
        """

    @abstractmethod
    def seal_steps(self, steps: np.ndarray) -> np.ndarray:
        """Encrypt the steps: the message ``[[S]]``, uint8, for S (rows, h), int64.

        Raises:
            OverflowRefused: a step reaches 2^s_bits.
        """

    @abstractmethod
    def open_gradient(self, message: np.ndarray) -> np.ndarray:
        """Decrypt the owner's share of the gradient, ``xᵀS − Φ``, (d, h), an object array of the ring.

        Raises:
            MalformedError: a message does not belong to this scheme and block.
            OverflowRefused: an entry is larger than any gradient and mask in range.
        """


class Holder(ABC):
    """The feature holder's half of one block.

    Attributes:
        block: the sizes of the integers.
        ring: the ring of this block's shares.
    """

    block: Block
    ring: Ring

    def statistical_masks(self, rows: int) -> tuple[int, int]:
        """Count the numbers that are hidden only statistically, each up to a distance of 2^-sigma.

        The distances add up over a job. The counts include each entry's randomness or noise and, if shares are
        integers, its mask and its new share.

        Returns:
            The count for a product of `rows` rows, and the count for a gradient with the new share that follows it.
        """
        entries = self.block.width_in * self.block.width_out
        return rows * self.block.width_out, entries * (3 if self.ring.modulus is None else 1)

    @abstractmethod
    def fresh_share(self) -> np.ndarray:
        """A random share (d, h), an object array: uniform in the ring, or uniform over ±2^share_bits."""

    @abstractmethod
    def answer_product(
        self, sealed: np.ndarray, x: np.ndarray, share: np.ndarray, *, extra: np.ndarray | None = None
    ) -> np.ndarray:
        """The answer ``[[x (V + U) + extra + Z]]``, re-randomised, a uint8 message.

        Args:
            sealed: the owner's message ``[[V]]``.
            x: (rows, d) int64.
            share: U (d, h), an object array of the ring.
            extra: (rows, h) int64, added to the product.

        Raises:
            MalformedError: a message does not belong to this scheme and block.
            OverflowRefused: a row reaches 2^x_bits.
        """

    @abstractmethod
    def answer_gradient(self, sealed: np.ndarray, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The answer ``[[xᵀS − Φ]]``, re-randomised, and the holder's share Φ (d, h), an object array of the ring.

        Args:
            sealed: the owner's message ``[[S]]``.
            x: (rows, d) int64, the rows that S belongs to.

        Raises:
            MalformedError: a message does not belong to this scheme and block.
            OverflowRefused: a row reaches 2^x_bits.
        """


class KeyScheme(ABC):
    """Makes and reads the keys of a scheme.

    Attributes:
        name: ``"paillier"``, ``"bfv"`` or ``"ckks"``.
    """

    name: ClassVar[str]

    @abstractmethod
    def generate_key(self) -> SecretKey:
        """A fresh key pair."""

    @abstractmethod
    def read_public(self, data: bytes) -> PublicKey:
        """Read the key that `PublicKey.to_bytes` wrote.

        Raises:
            MalformedError: the format, version or length differs, or the numbers cannot be a key.
            WeakKeyError: the key is weaker than this scheme's parameters require.
        """


class Scheme(KeyScheme):
    """A scheme that can seal a cut.

    Attributes:
        exact: whether products are exact.
        most_holders: the largest number of holders whose products can be added; None for any number.
    """

    exact: ClassVar[bool]
    most_holders: ClassVar[int | None] = None

    def with_pool(self, pool: Pool | None) -> Self:
        """This scheme with halves that run their long computations on a party's own workers.

        Messages and results stay the same. A scheme without such tasks returns itself: Paillier's kernels already use
        all cores of this machine.
        """
        return self

    @abstractmethod
    def create_owner(self, key: SecretKey, block: Block) -> Owner:
        """The owner's half of a block.

        Raises:
            OverflowRefused: the block's integers do not fit in this scheme's plaintexts.
        """

    @abstractmethod
    def create_holder(self, key: PublicKey, block: Block, zero: ZeroShares) -> Holder:
        """The holder's half of a block.

        Args:
            key: the owner's public key.
            block: the sizes of the integers.
            zero: this holder's shares of zero with the other holders; empty if there is no other.

        Raises:
            OverflowRefused: the block's integers do not fit in this scheme's plaintexts, or there are too many holders.
        """
