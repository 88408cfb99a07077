"""The feature holder's half of a block, for any scheme whose messages are ring elements.

- Product: the owner sends V tile by tile. The holder multiplies the encryptions by its tiles of x, adds the products
  over the features, and adds ``x U + extra + Z``.
- Gradient: the owner sends S tile by tile. The holder adds the products over the rows, and adds −Φ.

What hides what:

- The owner's messages are fresh symmetric encryptions: RLWE.
- The holder sends only the coefficients of c0 that contain results; the others would reveal sums of x V. For products
  it also sends a few empty ones, masked like results, for the owner to check (see `owner`).
- Several holders' products are masked by shares of zero, uniform modulo the plaintext modulus; gradients by Φ, uniform
  or, for integer shares, `sigma` bits wider than what it hides. A single holder's product is not masked: the
  owner is meant to learn it.
- The holder adds a fresh encryption of zero under the public key, with ternary u and noise, to both halves
  (Lyubashevsky, Peikert and Regev, EUROCRYPT 2010). Without it, c1 would be Σ x c1 for values c1 that the owner knows;
  with it c1 is pseudorandom.
- The noise in c0 is flooded (see `noise`): the owner, who knows key, message and c1, can compute it.

Finally the holder lowers the modulus of the answers to shorten them. Parties are assumed to follow the protocol: a
holder has no proof that the encrypted noise and messages are in range or that the key was generated correctly. The
holder skips tiles of x that are all zero, and the time saved is measurable.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from securevfl_crypto.errors import MalformedError
from securevfl_crypto.integers import uniform_masks
from securevfl_crypto.masks import ZeroShares
from securevfl_crypto.rlwe.encoding import Encoding
from securevfl_crypto.rlwe.envelopes import Content, Envelope
from securevfl_crypto.rlwe.keys import RlwePublicKey
from securevfl_crypto.rlwe.parameters import DEGREE, Chain
from securevfl_crypto.rlwe.plan import Plan, Tile, check_batch, check_integers
from securevfl_crypto.rlwe.sampling import sample_binomial, sample_flooding, sample_ternary, sample_uniform
from securevfl_crypto.rlwe.tiling import CHECKS, PolynomialPlaces
from securevfl_crypto.scheme import Holder

__all__ = ["RlweHolder"]


class RlweHolder(Holder):
    """The feature holder's half. See `Holder`.

    Args:
        key: the owner's public key.
        plan: the layout of the block.
        zero: this holder's shares of zero with the other holders; empty if there is no other.
    """

    def __init__(self, key: RlwePublicKey, plan: Plan, zero: ZeroShares) -> None:
        self.block, self.ring = plan.block, plan.ring
        self._key, self._plan, self._zero = key, plan, zero
        self._encoded: tuple[np.ndarray, dict[Chain, list[list[Any]]]] = (np.zeros((0, 0), dtype=np.int64), {})

    def statistical_masks(self, rows: int) -> tuple[int, int]:
        """See `Holder.statistical_masks`; the places that the owner checks are flooded like results."""
        product, gradient = super().statistical_masks(rows)
        return product + CHECKS * len(self._plan.row_tiles(rows)) * len(self._plan.output_tiles), gradient

    def fresh_share(self) -> np.ndarray:
        """See `Holder.fresh_share`."""
        return self._random_integers(self.block.share_bits)

    def _random_integers(self, bits: int) -> np.ndarray:
        shape = (self.block.width_in, self.block.width_out)
        return uniform_masks(shape, bits) if self.ring.modulus is None else sample_uniform(shape, self.ring.modulus)

    def answer_product(
        self, sealed: np.ndarray, x: np.ndarray, share: np.ndarray, *, extra: np.ndarray | None = None
    ) -> np.ndarray:
        """See `Holder.answer_product`."""
        block, encoding = self.block, self._plan.products
        check_integers(x, block.width_in, block.x_bits, "an activation")
        if share.shape != (block.width_in, block.width_out):
            raise MalformedError(f"a share has shape {share.shape}; expected {(block.width_in, block.width_out)}")
        if extra is not None:
            check_integers(extra, block.width_out, 63, "the summand of the product")
            if len(extra) != len(x):
                raise MalformedError(f"{len(extra)} rows to add to a product of {len(x)}")
        masks = encoding.mask_product(x, share, extra, self._zero)
        nothing = np.zeros((self._answer_count(len(x)), 1), dtype=np.int64), np.zeros((1, CHECKS), dtype=object)
        checks = encoding.mask_product(*nothing, None, self._zero)  # with several holders only their sum is zero
        return self.product_of(sealed, x, masks, checks)

    def _answer_count(self, rows: int) -> int:
        """The number of answers to a product of so many rows."""
        return len(self._plan.row_tiles(rows)) * len(self._plan.output_tiles)

    def product_of(self, sealed: np.ndarray, x: np.ndarray, masks: np.ndarray, checks: np.ndarray) -> np.ndarray:
        """Compute the answer ``[[x V + M]]``, the long part of `answer_product`.

        Args:
            sealed: the owner's message ``[[V]]``.
            x: (rows, d).
            masks: M (…, rows, h), messages of the encoding.
            checks: masks of the empty places (…, answers, CHECKS).
        """
        plan, encoding, outs = self._plan, self._plan.products, len(self._plan.output_tiles)
        envelope = plan.create_envelope(Content.WEIGHTS, encoding)
        weights = self._load_ciphertexts(envelope, sealed, len(plan.input_tiles) * outs)
        sums = (
            [(weights[across * outs + out], tile) for across, tile in enumerate(row)]
            for row in self._encode_tiles(x, encoding)
            for out in range(outs)
        )
        envelope = plan.create_envelope(Content.PRODUCT, encoding, len(x))
        return self._build_answer(envelope, encoding, sums, masks, plan.product_tiles(len(x)), checks)

    def answer_gradient(self, sealed: np.ndarray, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """See `Holder.answer_gradient`."""
        block, encoding = self.block, self._plan.gradients
        check_integers(x, block.width_in, block.x_bits, "an activation")
        check_batch(len(x), block.batch)
        phi = self._random_integers(block.phi_bits)
        return self.gradient_of(sealed, x, encoding.encode_integers(-phi)), phi

    def gradient_of(self, sealed: np.ndarray, x: np.ndarray, masks: np.ndarray) -> np.ndarray:
        """Compute ``[[xᵀS + M]]``, the long part of `answer_gradient`; x may have only some columns, starting with
        the first of a tile.

        Args:
            sealed: the owner's message ``[[S]]``.
            x: (rows, columns).
            masks: M (…, columns, h), messages of the encoding.
        """
        plan, encoding, outs = self._plan, self._plan.gradients, len(self._plan.output_tiles)
        envelope = plan.create_envelope(Content.STEPS, encoding, len(x))
        steps = self._load_ciphertexts(envelope, sealed, self._answer_count(len(x)))
        plain = self._encode_tiles(x, encoding)
        sums = (
            [(steps[down * outs + out], row[across]) for down, row in enumerate(plain)]
            for across in range(len(plain[0]))
            for out in range(outs)
        )
        envelope = plan.create_envelope(Content.GRADIENT, encoding)
        return self._build_answer(envelope, encoding, sums, masks, plan.gradient_tiles(x.shape[1]))

    def _load_ciphertexts(self, envelope: Envelope, sealed: np.ndarray, count: int) -> list[Any]:
        """Read the ciphertexts of a message and transform them."""
        seal, uploads = envelope.seal, envelope.read_uploads(sealed, count)
        return [seal.transform_ciphertext(seal.expand_seeded(first, seed)) for first, seed in uploads]

    def _encode_tiles(self, x: np.ndarray, encoding: Encoding) -> list[list[Any]]:
        """Encode the tiles of x as transformed plaintexts, None for a tile of zeros; cached until x changes."""
        chain, plan = encoding.noise.chain, self._plan
        if not np.array_equal(self._encoded[0], x):
            self._encoded = (x.copy(), {})
        known = self._encoded[1]
        if chain not in known:
            columns = plan.column_tiles(x.shape[1])
            known[chain] = [[self._encode_tile(x[a, b], encoding) for b in columns] for a in plan.row_tiles(len(x))]
        return known[chain]

    def _encode_tile(self, x: np.ndarray, encoding: Encoding) -> Any | None:
        if not x.any():
            return None
        places, coefficients = self._plan.tiling.feature_places(*x.shape), np.zeros(DEGREE, dtype=np.int64)
        coefficients[places.index] = np.where(places.negative, -x.ravel(), x.ravel())
        return encoding.seal.make_plaintext(coefficients)

    def _build_answer(
        self,
        envelope: Envelope,
        encoding: Encoding,
        sums: Iterator[list[tuple[Any, Any | None]]],
        masks: np.ndarray,
        tiles: Iterator[Tile],
        checks: np.ndarray | None = None,
    ) -> np.ndarray:
        """The answer: sums of products, masked, re-randomised, flooded and shortened; with the messages of each tile's
        checks, (…, tiles, CHECKS), for products.
        """
        seal, answers = encoding.seal, []
        for number, (terms, (a, b, own)) in enumerate(zip(sums, tiles, strict=True)):
            tile, places = masks[..., a, b], own
            messages = tile.reshape(*tile.shape[:-2], -1)
            if checks is not None:
                places = own.and_then(self._plan.tiling.check_places())
                messages = np.concatenate([messages, checks[..., number, :]], axis=-1)
            total = self._hide_sum(envelope.chain, encoding, terms, messages, places)
            # Last: `noise` bounds the flood at the full modulus, and lowering divides it by P.
            seal.evaluator.mod_switch_to_next_inplace(total)
            halves = seal.read_ciphertext(total)
            answers.append((halves[0][:, places.index], halves[1]))
        return envelope.write_answers(answers)

    def _hide_sum(
        self,
        chain: int,
        encoding: Encoding,
        terms: list[tuple[Any, Any | None]],
        mask: np.ndarray,
        places: PolynomialPlaces,
    ) -> Any:
        """Add up products and mask, re-randomise the sum, and flood its noise at the places that are sent."""
        seal = encoding.seal
        there = [(ciphertext, plain) for ciphertext, plain in terms if plain is not None]
        # Also if all tiles are zero: an answer without fresh randomness would show that.
        there.append((self._key.blinders[chain], seal.make_plaintext(sample_ternary())))
        total = seal.sum_products([c for c, _ in there], [p for _, p in there])
        lifted = seal.data.negate(encoding.lift_messages(mask), places.negative)
        noise = sample_flooding(seal.data, len(places.index), encoding.noise.flood_bits)
        added = np.zeros((2, len(seal.data.primes), DEGREE), dtype=np.uint64)
        added[0][:, places.index] = seal.data.add(lifted, noise)
        added[1] = seal.data.to_residues(sample_binomial())
        seal.evaluator.add_inplace(total, seal.make_ciphertext(added))
        return total
