"""Paillier at a sealed cut: rows packed into plaintexts, products as powers of ciphertexts. Shares are integers.

Following BlindFL (Fu et al., SIGMOD 2022, arXiv 2206.07975), section 4. Notation: ``[[m]]`` is an encryption of m under
the owner's key; ``[[m]]^e`` encrypts m e, and a product of ciphertexts the sum.

- Product: the owner sends V row by row, each row packed (`packing`). If a plaintext of the result holds several rows,
  each row of V is sent once for each of their places, shifted to it. ``Π_j [[W_j]]^{x_j}`` is a packed row of x W.
- Gradient: the owner sends S row by row; ``Π_i [[S_i]]^{x_i}`` over the rows of the batch is a packed row of xᵀS.

What hides what:

- The owner's messages are fresh encryptions.
- Several holders' products are masked by shares of zero that are uniform modulo n: a sum of all but one is uniform.
  A single holder's product is not masked: the owner is meant to learn it.
- Gradients are masked by integers `sigma` bits wider than they are.
- Both answers are multiplied by fresh encryptions of zero. The owner knows α_j of each ciphertext that it sent, and
  ``Σ_j α_j x_j`` would confirm a guess of x. The randomness of these encryptions is uniform among all n-th residues
  (`answer_residues`), so an answer shows its plaintext and nothing else, whatever the owner sent and however it chose
  its key.
- A holder without `classical` refuses ciphertexts of Jacobi symbol −1, which no power of h_s has: their owner does not
  encrypt as agreed.

Limits: parties are assumed to follow the protocol, since a holder has no proof that the encrypted values are in range.
A holder's computing time is not constant: it depends on the digits of x, and another process on the same machine can
measure it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from gmpy2 import mpz

from securevfl_crypto.block import Block
from securevfl_crypto.errors import MalformedError, OverflowRefused
from securevfl_crypto.integers import uniform_masks
from securevfl_crypto.masks import ZeroShares
from securevfl_crypto.modular import Batch
from securevfl_crypto.paillier.packing import Packing
from securevfl_crypto.paillier.private_key import PaillierPrivateKey, check_size, generate_keypair
from securevfl_crypto.paillier.public_key import PaillierPublicKey
from securevfl_crypto.scheme import Holder, Owner, PublicKey, Ring, Scheme, SecretKey

__all__ = ["Paillier", "PaillierHolder", "PaillierOwner"]

_MOST_ROWS = 1 << 24
"""The most rows of a product."""


@dataclass(frozen=True)
class Paillier(Scheme):
    """Paillier with keys of `bits` bits.

    Attributes:
        bits: bits of n, of keys that are generated and of keys that are read.
        classical: whether this party's randomness is rⁿ (Paillier 1999) instead of a short power of h_s (Damgård,
            Jurik and Nielsen 2010). It needs no assumption on short exponents and takes many times as long. Both
            parties must set the same value: half of a classical owner's ciphertexts have Jacobi symbol −1, and a holder
            without `classical` refuses them.
        constant_time: whether no memory address depends on randomness: the whole table is read for each digit of a
            short exponent, and answers are blinded by rⁿ.

    Raises:
        WeakKeyError: no key can have this many bits.
    """

    name: ClassVar[str] = "paillier"
    exact: ClassVar[bool] = True

    bits: int = 3072
    classical: bool = False
    constant_time: bool = False

    def __post_init__(self) -> None:
        check_size(self.bits)

    def generate_key(self) -> PaillierPrivateKey:
        """A fresh key pair."""
        return generate_keypair(self.bits)

    def read_public(self, data: bytes) -> PaillierPublicKey:
        """See `Scheme.read_public`."""
        return PaillierPublicKey.from_bytes(data, agreed=self.bits)

    def create_owner(self, key: SecretKey, block: Block) -> PaillierOwner:
        """See `Scheme.create_owner`.

        Raises:
            MalformedError: the key belongs to another scheme.
            WeakKeyError: the key has fewer bits.
            OverflowRefused: a value of the block does not fit in a plaintext.
        """
        if not isinstance(key, PaillierPrivateKey):
            raise MalformedError(f"the key is a {type(key).__name__}; expected a PaillierPrivateKey")
        key.public.at_least(self.bits)
        return PaillierOwner(self, key, block)

    def create_holder(self, key: PublicKey, block: Block, zero: ZeroShares) -> PaillierHolder:
        """See `Scheme.create_holder`; raises what `create_owner` raises."""
        if not isinstance(key, PaillierPublicKey):
            raise MalformedError(f"the key is a {type(key).__name__}; expected a PaillierPublicKey")
        return PaillierHolder(self, key.at_least(self.bits), block, zero)


class _Half:
    """The layout of a block, which both halves derive without a message."""

    def __init__(self, key: PaillierPublicKey, block: Block) -> None:
        self.block, self.ring = block, Ring(None)
        room = key.bits - 2  # plaintexts are read as signed, between −n/2 and n/2
        # Masks of products are uniform modulo n and need no room; masks of gradients are integers and need a bit.
        self.products = Packing.plan(
            block.z_bits + 1, block.width_out, room, "a product", rows=block.batch, width=block.widest or block.width_in
        )
        self.gradients = Packing.plan(block.phi_bits + 2, block.width_out, room, "a masked gradient")

    @property
    def sealed_weights(self) -> int:
        """The number of ciphertexts of a share of the weights."""
        return self.products.per * self.block.width_in * self.products.groups

    def pack_weights(self, share: np.ndarray) -> list[mpz]:
        """Pack the rows of a share (d, h): all of them at the first place of a plaintext, then at the second, ..."""
        _check_shape(share, (self.block.width_in, self.block.width_out), "the share")
        rows = replace(self.products, per=1).pack(share.astype(object))
        return [row << self.products.shift_bits(place) for place in range(self.products.per) for row in rows]


def _check_rows(array: np.ndarray, columns: int, bits: int, what: str) -> int:
    """Check an int64 array (1 or more rows, columns) with entries below 2^bits; returns the number of rows."""
    if array.dtype != np.int64 or array.ndim != 2 or array.shape[1] != columns or not len(array):
        raise MalformedError(f"{what} is {array.dtype} {array.shape}; expected int64 (rows, {columns})")
    _check_bound(array, bits, what)
    return len(array)


def _check_count(rows: int, most: int) -> None:
    if not 1 <= rows <= most:
        raise MalformedError(f"the batch has {rows} rows; the plan allows 1 to {most}")


def _check_shape(array: np.ndarray, shape: tuple[int, ...], what: str) -> None:
    if array.shape != shape:
        raise MalformedError(f"{what} has shape {array.shape}; expected {shape}")


def _check_bound(array: np.ndarray, bits: int, what: str) -> None:
    largest = max(int(array.max()), -int(array.min()))
    if largest >> max(bits, 0):
        raise OverflowRefused(
            f"{what} reaches {largest.bit_length()} bits; {bits} fit: lower the learning rates or the clip"
        )


class PaillierOwner(Owner):
    """The key owner's half. See `Owner`.

    Args:
        scheme: the choice of randomness.
        key: the private key.
        block: the sizes of the integers.
    """

    def __init__(self, scheme: Paillier, key: PaillierPrivateKey, block: Block) -> None:
        self.block, self.ring = block, Ring(None)
        self._key, self._scheme, self._half = key, scheme, _Half(key.public, block)

    def seal_weights(self, share: np.ndarray) -> np.ndarray:
        """``[[V]]``, (per · d · groups, ciphertext_bytes)."""
        return self._seal(self._half.pack_weights(share))

    def open_product(self, messages: Sequence[np.ndarray], rows: int) -> np.ndarray:
        """See `Owner.open_product`."""
        _check_count(rows, _MOST_ROWS)
        if not messages:
            raise MalformedError("no party sent its part of the product; at least one must")
        public, count = self._key.public, self._half.products.plaintext_count(rows)
        total = public.load_ciphertexts(messages[0], count)
        for message in messages[1:]:
            total = public.modulus.mul(total, public.load_ciphertexts(message, count))
        product = self._half.products.unpack(self._key.decrypt_batch(total), rows)
        _check_bound(product, self.block.z_bits - 2, "the product")
        return product

    def seal_steps(self, steps: np.ndarray) -> np.ndarray:
        """``[[S]]``, (rows · groups, ciphertext_bytes)."""
        _check_count(_check_rows(steps, self.block.width_out, self.block.s_bits, "a step"), self.block.batch)
        return self._seal(self._half.gradients.pack(steps))

    def open_gradient(self, message: np.ndarray) -> np.ndarray:
        """See `Owner.open_gradient`.

        Raises:
            MalformedError: the message does not belong to this scheme and block.
            OverflowRefused: an entry is larger than any gradient and mask in range.
        """
        packing, d = self._half.gradients, self.block.width_in
        ciphertexts = self._key.public.load_ciphertexts(message, packing.plaintext_count(d))
        found = packing.unpack(self._key.decrypt_batch(ciphertexts), d).astype(object)
        _check_bound(found, self.block.phi_bits + 1, "a masked gradient")
        return found

    def _seal(self, plaintexts: list[mpz]) -> np.ndarray:
        scheme = self._scheme
        sealed = self._key.encrypt_batch(plaintexts, classical=scheme.classical, constant_time=scheme.constant_time)
        return self._key.public.store_ciphertexts(sealed)


class PaillierHolder(Holder):
    """The feature holder's half. See `Holder`.

    Args:
        scheme: the choice of randomness.
        key: the owner's public key.
        block: the sizes of the integers.
        zero: this holder's shares of zero with the other holders; empty if there is no other.
    """

    def __init__(self, scheme: Paillier, key: PaillierPublicKey, block: Block, zero: ZeroShares) -> None:
        self.block, self.ring = block, Ring(None)
        self._key, self._scheme, self._half, self._zero = key, scheme, _Half(key, block), zero

    def statistical_masks(self, rows: int) -> tuple[int, int]:
        """See `Holder.statistical_masks`. One residue hides one ciphertext; a `classical` one hides it perfectly."""
        drowned = 0 if self._scheme.classical or self._scheme.constant_time else 1
        integers = 2 * self.block.width_in * self.block.width_out
        half = self._half
        return (
            drowned * half.products.plaintext_count(rows),
            drowned * half.gradients.plaintext_count(self.block.width_in) + integers,
        )

    def fresh_share(self) -> np.ndarray:
        """A share (d, h) uniform over ±2^share_bits, which hides a weight to 2^-sigma."""
        return uniform_masks((self.block.width_in, self.block.width_out), self.block.share_bits)

    def answer_product(
        self, sealed: np.ndarray, x: np.ndarray, share: np.ndarray, *, extra: np.ndarray | None = None
    ) -> np.ndarray:
        """See `Holder.answer_product`: (plaintexts of the rows, ciphertext_bytes).

        Raises:
            MalformedError: the message does not belong to this scheme and block.
            OverflowRefused: a row reaches 2^x_bits, or `extra` 2^z_bits.
        """
        half, packing, d, h = self._half, self._half.products, self.block.width_in, self.block.width_out
        rows, arithmetic = _check_rows(x, d, self.block.x_bits, "an activation"), self._key.modulus
        own = self._key.raw_batch(half.pack_weights(share))
        weights = arithmetic.mul(self._load_sealed(sealed, half.sealed_weights), own)
        blocks = -(-rows // packing.per)
        wide = np.zeros((blocks * packing.per, d), dtype=np.int64)
        wide[:rows] = x
        products = self._power_products(weights, wide.reshape(blocks, packing.per * d), packing.groups)
        masks = self._zero.draw_shares(blocks * packing.groups, self._key.n)
        if extra is not None:
            _check_shape(extra, (rows, h), "what is added to the product")
            _check_rows(extra, h, self.block.z_bits, "what is added to the product")
            masks = [mask + more for mask, more in zip(masks, packing.pack(extra), strict=True)]
        return self._blind_answer(products, masks)

    def answer_gradient(self, sealed: np.ndarray, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """See `Holder.answer_gradient`: the message is (d · groups, ciphertext_bytes).

        Raises:
            MalformedError: the message does not belong to this scheme and block.
            OverflowRefused: a row reaches 2^x_bits, the bound that sizes Φ and ρ.
        """
        packing, d = self._half.gradients, self.block.width_in
        rows = _check_rows(x, d, self.block.x_bits, "an activation")
        _check_count(rows, self.block.batch)
        steps = self._load_sealed(sealed, packing.plaintext_count(rows))
        phi = uniform_masks((d, self.block.width_out), self.block.phi_bits)
        products = self._power_products(steps, np.ascontiguousarray(x.T), packing.groups)
        return self._blind_answer(products, packing.pack(-phi)), phi

    def _load_sealed(self, sealed: np.ndarray, count: int) -> Batch:
        """The owner's ciphertexts, units modulo n² of the symbol that its randomness must have."""
        ciphertexts = self._key.load_ciphertexts(sealed, count)
        if not self._scheme.classical:
            self._key.check_symbols(sealed)
        return ciphertexts

    def _power_products(self, bases: Batch, exponents: np.ndarray, groups: int) -> Batch:
        """Row by row, and within a row group by group: ``Π_j bases[j, group]^exponents[row, j]``."""
        arithmetic, places = self._key.modulus, np.arange(len(bases))
        found = [arithmetic.power_products(arithmetic.take(bases, places[g::groups]), exponents) for g in range(groups)]
        order = np.arange(groups * len(exponents)).reshape(groups, -1).T
        return arithmetic.take(arithmetic.concat(found), np.ascontiguousarray(order).ravel())

    def _blind_answer(self, products: Batch, plaintexts: list[mpz]) -> np.ndarray:
        """Products plus plaintexts, re-randomised and serialised."""
        key, scheme = self._key, self._scheme
        fresh = key.make_answer_blindings(len(products), classical=scheme.classical, constant_time=scheme.constant_time)
        masked = key.modulus.mul(products, key.raw_batch(plaintexts))
        return key.store_ciphertexts(key.modulus.mul(masked, fresh))
