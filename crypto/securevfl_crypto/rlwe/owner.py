"""The key owner's half of a block, for any scheme whose messages are ring elements. `holder` explains what hides what.

An answer (c0, c1) whose c1 is not a combination of encryptions opens to c1 s: with a monomial for c1, to coefficients
of the secret key itself, within the range of z. So each product has `CHECKS` coefficients at which x V is zero by the
layout. The owner opens these as well and refuses a product if one of them is more than noise.

Coefficients of c1 s are signed permutations of the same products, each with its own coefficients of s, which are
independent and uniform over −1, 0 and 1. Multiplication by c1 is injective, so at k places it has rank k, and no choice
of c0 meets all of them with a probability above 3^-k (2^-50 here) once an entry of c1 s is larger than the noise. An
answer that passes thus moves z by about as much as honest noise may: not at all after rounding (BFV), or in the last
bits (CKKS). Gradients have no such places, as x S fills all of them; their opened values stay in the owner's share.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from securevfl_crypto.errors import MalformedError, OverflowRefused
from securevfl_crypto.rlwe.encoding import Encoding
from securevfl_crypto.rlwe.envelopes import Content, Envelope
from securevfl_crypto.rlwe.keys import RlweSecretKey
from securevfl_crypto.rlwe.parameters import MOST_HOLDERS
from securevfl_crypto.rlwe.plan import Plan, Tile, check_batch, check_integers, tile_length
from securevfl_crypto.rlwe.residues import Basis
from securevfl_crypto.rlwe.seal import SealContext
from securevfl_crypto.rlwe.tiling import CHECKS, PolynomialPlaces
from securevfl_crypto.scheme import Owner

__all__ = ["RlweOwner", "times_secret"]


class RlweOwner(Owner):
    """The key owner's half. See `Owner`.

    Args:
        key: the key pair.
        plan: the layout of the block.
    """

    def __init__(self, key: RlweSecretKey, plan: Plan) -> None:
        self.block, self.ring = plan.block, plan.ring
        self.product_error, self.gradient_error = plan.products.error, plan.gradients.error
        self._key, self._plan = key, plan

    def seal_weights(self, share: np.ndarray) -> np.ndarray:
        """See `Owner.seal_weights`."""
        block, plan = self.block, self._plan
        if share.shape != (block.width_in, block.width_out):
            raise MalformedError(f"a share has shape {share.shape}; expected {(block.width_in, block.width_out)}")
        return self.sealed_weights(plan.products.encode_integers(share))

    def sealed_weights(self, messages: np.ndarray) -> np.ndarray:
        """Encrypt ``[[V]]`` from messages of the encoding (…, rows of V, h), all rows or some that start with the first
        of a tile."""
        plan = self._plan
        columns = plan.column_tiles(messages.shape[-2])
        tiles = (
            (a, o, plan.tiling.weight_places(tile_length(a), tile_length(o)))
            for a in columns
            for o in plan.output_tiles
        )
        return self._seal_tiles(plan.create_envelope(Content.WEIGHTS, plan.products), plan.products, messages, tiles)

    def seal_steps(self, steps: np.ndarray) -> np.ndarray:
        """See `Owner.seal_steps`."""
        plan = self._plan
        check_integers(steps, self.block.width_out, self.block.s_bits, "a step")
        check_batch(len(steps), self.block.batch)
        return self.sealed_steps(plan.gradients.encode_integers(steps))

    def sealed_steps(self, messages: np.ndarray) -> np.ndarray:
        """Encrypt ``[[S]]`` from messages of the encoding (…, rows, h)."""
        plan, rows = self._plan, messages.shape[-2]
        tiles = (
            (d, o, plan.tiling.step_places(tile_length(d), tile_length(o)))
            for d in plan.row_tiles(rows)
            for o in plan.output_tiles
        )
        envelope = plan.create_envelope(Content.STEPS, plan.gradients, rows)
        return self._seal_tiles(envelope, plan.gradients, messages, tiles)

    def open_product(self, messages: Sequence[np.ndarray], rows: int) -> np.ndarray:
        """See `Owner.open_product`."""
        if not 1 <= len(messages) <= MOST_HOLDERS:
            raise MalformedError(f"a product from {len(messages)} parties; expected 1 to {MOST_HOLDERS}")
        if rows < 1:
            raise MalformedError(f"a product of {rows} rows; expected at least 1")
        product = self.opened_product(messages, rows)
        largest = max(int(product.max()), -int(product.min()))
        if largest >> (self.block.z_bits - 2):
            raise OverflowRefused(
                f"a product reaches {largest.bit_length()} bits, of {self.block.z_bits} with two to spare: the weights "
                "have grown too large, or the holders' masks do not cancel: lower the learning rate, or check the seeds"
            )
        return product

    def opened_product(self, messages: Sequence[np.ndarray], rows: int) -> np.ndarray:
        """The result of `open_product`, before the check of its bound."""
        tiles = list(self._plan.product_tiles(rows))
        envelope = self._plan.create_envelope(Content.PRODUCT, self._plan.products, rows)
        found = self._open_tiles(envelope, self._plan.products, messages, tiles, self._plan.tiling.check_places())
        return _assemble_tiles((rows, self.block.width_out), tiles, [self._plan.products.to_integers(f) for f in found])

    def open_gradient(self, message: np.ndarray) -> np.ndarray:
        """See `Owner.open_gradient`.

        Raises:
            MalformedError: the message does not belong to this scheme and block.
            OverflowRefused: an entry is larger than any gradient and mask in range.
        """
        block = self.block
        gradient = self.opened_gradient(message, block.width_in)
        if self.ring.modulus is not None:
            return gradient
        largest = max(abs(int(value)) for value in gradient.flat)
        if largest >> (block.phi_bits + 1):
            raise OverflowRefused(
                f"a masked gradient of {largest.bit_length()} bits; at most {block.phi_bits + 1} are possible: the "
                "holder's mask is wider than agreed"
            )
        return gradient

    def opened_gradient(self, message: np.ndarray, columns: int) -> np.ndarray:
        """The result of `open_gradient`, before the check of its bound; of all rows of W, or some that start with the
        first of a tile."""
        encoding, tiles = self._plan.gradients, list(self._plan.gradient_tiles(columns))
        found = self._open_tiles(self._plan.create_envelope(Content.GRADIENT, encoding), encoding, [message], tiles)
        shape = (columns, self.block.width_out)
        if self.ring.modulus is not None:
            return _assemble_tiles(shape, tiles, [encoding.to_numbers(f) for f in found])
        return _assemble_tiles(shape, tiles, [encoding.to_integers(f).astype(object) for f in found])

    def _seal_tiles(
        self, envelope: Envelope, encoding: Encoding, messages: np.ndarray, tiles: Iterator[Tile]
    ) -> np.ndarray:
        sealer, seal = self._key.sealers[envelope.chain], encoding.seal
        sealed = []
        for a, b, places in tiles:
            first, seed = seal.shrink_seeded(sealer.encrypt_zero_symmetric())
            tile = messages[..., a, b]
            lifted = seal.data.negate(encoding.lift_messages(tile.reshape(*tile.shape[:-2], -1)), places.negative)
            first[:, places.index] = seal.data.add(first[:, places.index], lifted)
            sealed.append((first, seed))
        return envelope.write_uploads(sealed)

    def _open_tiles(
        self,
        envelope: Envelope,
        encoding: Encoding,
        messages: Sequence[np.ndarray],
        tiles: list[Tile],
        checks: PolynomialPlaces | None = None,
    ) -> list[np.ndarray]:
        """Decrypt the messages of each tile, added up over the holders.

        Raises:
            MalformedError: a message does not belong to this scheme and block.
            OverflowRefused: a place of `checks` contains more than noise.
        """
        basis = encoding.seal.kept
        if checks is not None:
            tiles = [(a, b, places.and_then(checks)) for a, b, places in tiles]
        sizes = [len(places.index) for *_, places in tiles]
        total = envelope.read_answers(messages[0], sizes)
        for message in messages[1:]:
            more = envelope.read_answers(message, sizes)
            total = [(basis.add(a, c), basis.add(b, d)) for (a, b), (c, d) in zip(total, more, strict=True)]
        found = []
        for start in range(0, len(total), 2):  # one ciphertext multiplies the c1 of two answers by the secret
            pair = total[start : start + 2]
            secret = self._key.openers[envelope.chain]
            products = times_secret(encoding.seal, secret, [second for _, second in pair])
            for (first, _), product, (*_, places) in zip(pair, products, tiles[start:], strict=False):
                phase = basis.negate(basis.add(first, product[:, places.index]), places.negative)
                if checks is not None:
                    _check_noise(basis, phase[:, -CHECKS:], len(messages) * encoding.noise.answer_bound)
                    phase = phase[:, :-CHECKS]
                found.append(encoding.lower_phases(phase))
        return found


def _check_noise(basis: Basis, phases: np.ndarray, noise: int) -> None:
    """Check that places contain only noise.

    Raises:
        OverflowRefused: one contains more.
    """
    numbers = basis.to_integers(phases)
    largest = max(int(min(number, basis.modulus - number)) for number in numbers)
    if largest > noise:
        raise OverflowRefused(
            f"{largest.bit_length()} bits at an empty place of a product, where noise has at most "
            f"{noise.bit_length()}: the holders' masks do not cancel, or an answer opens something other than a "
            "product, such as the secret key. Nothing of it was used; check the seeds, or find out who sent it"
        )


def times_secret(seal: SealContext, secret: Any, seconds: list[np.ndarray]) -> list[np.ndarray]:
    """Compute c1 s in coefficients, for one or two c1.

    Args:
        seal: the context of the chain.
        secret: the secret as a transformed plaintext modulo q'.
        seconds: one or two c1, residues (kept primes, N).

    Raises:
        MalformedError: a c1 is zero.
    """
    other = seconds[1] if len(seconds) == 2 else np.zeros_like(seconds[0])
    ciphertext = seal.transform_ciphertext(seal.make_ciphertext(np.stack([other, seconds[0]])))
    halves = seal.read_ciphertext(seal.sum_products([ciphertext], [secret]))
    return [halves[1], halves[0]][: len(seconds)]


def _assemble_tiles(shape: tuple[int, int], tiles: list[Tile], found: list[np.ndarray]) -> np.ndarray:
    whole = np.empty(shape, dtype=found[0].dtype)
    for (a, b, _), part in zip(tiles, found, strict=True):
        whole[a, b] = part.reshape(tile_length(a), tile_length(b))
    return whole
