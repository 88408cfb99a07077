"""Products x R and xᵀ R' that stay shares: one party holds x, the other draws R and has the key, and nothing is opened.

The *owner* Q has a key and draws R (d, E) and R' (B, E), uniform words. The *holder* P has x (B, d) in the clear. After
one message each way, Q has q = x R − m and P has m, modulo 2^64, and likewise for xᵀ R'. Neither learns anything: the
one spends R to pad a shared vector that is to be multiplied by x, for each of E epochs a column.

    upload      [[R]] under Q's key, a seed and c0 for each tile               Q to P
    answer      c1, and those coefficients of c0 that hold results             P to Q

The scheme is BFV (`bfv`) with plaintext modulus 2^64 as it stands: R enters as round(q R / 2^64). x is laid out in
polynomials as in `tiling`; its entries are at most 2^13 in size.

What hides what:

- *R, from the holder*: uploads are fresh symmetric encryptions under a secret key, each with its own seed and noise:
  RLWE. Moreover R is random itself.
- *x and m, in c0*: the holder adds a mask that is uniform over all of Z_q to every coefficient that it sends; the
  others it does not send. So they are uniform, whatever x, the owner's noise and c1 are: this half is hidden perfectly
  and a flood is not needed. What the mask adds to the opened word is the holder's −m.
- *x, in c1*: Σ x c1 would show x to the owner, who chose c1. The holder adds u·a + e₁ with fresh ternary u and noise
  e₁ (Lyubashevsky, Peikert and Regev, EUROCRYPT 2010): pseudorandom under RLWE, *also for the owner*, who knows s but
  not u, as long as a is uniform. Nobody chooses a: both parties hash it from the session, which both contributed to,
  so an owner cannot plant one with a trapdoor or a zero.
- Masks, u and e₁ are AES-256-CTR under a key of the operating system (`held_random`), so "uniform" is as good as AES.

What is exact: q + m is x R or differs by one unit, ±1 of 2^64. The mask is rounded to words at both parties, and noise
of up to 2^36 (the layout sees to it) can move the owner's rounding over the next edge. It happens where the mask lies
within the noise of an edge: about one entry in 2^16 at B = 256. Where values have fractional bits this unit is the last
of them. Whoever learns *both* shares of such an entry to the last unit could compare Σ x e with a number: round what is
opened.

A session's randomness lives in memory. Halves are not copied, stored or used after a fork, nor by several threads.
Parties follow the protocol: a holder has no proof of R, an owner none of x; but what they send is checked in length,
header and range.
"""

from __future__ import annotations

import secrets

import numpy as np

from securevfl_crypto.errors import MalformedError, OverflowRefused
from securevfl_crypto.rlwe.held_half import HeldHalf, check_matrix
from securevfl_crypto.rlwe.held_layout import (
    BASIS,
    DEGREE,
    LARGEST,
    PAIR_BYTES,
    SEED_BYTES,
    HeldContent,
    read_pairs,
    write_pairs,
)
from securevfl_crypto.rlwe.held_random import expand_seed
from securevfl_crypto.rlwe.residues import lift_words, lower_words
from securevfl_crypto.transforms import TransformRing

__all__ = ["HeldHolder", "HeldOwner"]


class HeldOwner(HeldHalf):
    """The key owner's half, Q's. It generates its key; `public_key` goes to the holder. Arguments as for both halves:

    Args:
        batch: B, the most rows of x, up to 4,096, as the two sizes that follow.
        width: d, the columns of x.
        outputs: E, the columns of R and R': epochs, or classes times epochs.
        session: bytes that both parties know and that both contributed fresh randomness to, at least 16. Two owners of
            one session append their names.
        ring: the transforms; None: the fastest of this machine.

    Attributes:
        layout: the sizes.
        public_key: uint8 (bytes,).
    """

    def __init__(
        self, batch: int, width: int, outputs: int, *, session: bytes, ring: TransformRing | None = None
    ) -> None:
        super().__init__(batch, width, outputs, session=session, ring=ring)
        self._secret = self._ring.forward(self._random.ternary(1))
        body = write_pairs(self._encrypt(self._uniform[None], self._random.binomial(1))[0])
        self.public_key = self.layout.write_message(HeldContent.KEY, self._session_tag, [body])
        self._tag = self.name_key(body)

    def seal_weights(self, weights: np.ndarray) -> np.ndarray:
        """Encrypt R.

        Args:
            weights: R, uint64 (d, E), uniform; each is sealed once.

        Returns:
            the message for `HeldHolder.answer_product`, uint8 (bytes,).

        Raises:
            MalformedError: another type or shape.
        """
        return self._seal(HeldContent.WEIGHTS, weights, self.layout.width, 0)

    def seal_steps(self, steps: np.ndarray) -> np.ndarray:
        """Encrypt R'.

        Args:
            steps: R', uint64 (rows, E), for 1 to B rows.

        Returns:
            the message for `HeldHolder.answer_gradient`, uint8 (bytes,).

        Raises:
            MalformedError: another type or shape.
        """
        rows = len(steps) if isinstance(steps, np.ndarray) and steps.ndim else 0
        self.layout.check_rows(rows)
        return self._seal(HeldContent.STEPS, steps, rows, rows)

    def open_product(self, answer: np.ndarray, rows: int | None = None) -> np.ndarray:
        """This party's share of x R.

        Args:
            answer: of `HeldHolder.answer_product`.
            rows: of x; None: B.

        Returns:
            x R − m modulo 2^64, or one unit beside it: uint64 (rows, E).

        Raises:
            MalformedError: the answer is not one of this key, session and layout.
        """
        count = self.count_rows(rows)
        return self._open(HeldContent.PRODUCT, answer, count)

    def open_gradient(self, answer: np.ndarray) -> np.ndarray:
        """This party's share of xᵀ R'.

        Args:
            answer: of `HeldHolder.answer_gradient`.

        Returns:
            xᵀ R' − m' modulo 2^64, or one unit beside it: uint64 (d, E).

        Raises:
            MalformedError: the answer is not one of this key, session and layout.
        """
        return self._open(HeldContent.GRADIENT, answer, 0)

    def _encrypt(self, uniform: np.ndarray, values: np.ndarray) -> np.ndarray:
        """The transformed halves ``values − a s`` for transformed a, (n, 2, N); values are noise and message."""
        sealed = self._ring.forward(values)
        for first, a in zip(sealed, uniform, strict=True):
            minus = BASIS.negate(a, np.ones(a.shape, dtype=bool))
            self._ring.add_products(first, minus[None], self._secret)
        return sealed

    def _seal(self, content: HeldContent, words: np.ndarray, length: int, rows: int) -> np.ndarray:
        grid = self.layout.grid(content, rows)
        check_matrix(words, (length, self.layout.outputs))
        lifted = BASIS.negate(lift_words(BASIS, grid.flatten(words)), grid.negative).view(np.int64)
        noise = self._random.binomial(len(grid.tiles))
        values = np.repeat(noise[:, None], len(BASIS.primes), axis=1)
        for value, places, part in zip(values, grid.places, grid.parts, strict=True):
            value[:, places] += lifted[:, part]
        seeds = [secrets.token_bytes(SEED_BYTES) for _ in grid.tiles]
        sealed = self._encrypt(np.stack([expand_seed(seed) for seed in seeds]), values)
        parts = [part for seed, first in zip(seeds, sealed, strict=True) for part in (seed, write_pairs(first))]
        return self.layout.write_message(content, self._tag, parts, rows)

    def _open(self, content: HeldContent, answer: np.ndarray, rows: int) -> np.ndarray:
        body, grid = self.layout.read_message(content, self._tag, answer, rows), self.layout.grid(content, rows)
        products = np.zeros((len(grid.tiles), len(BASIS.primes), DEGREE), dtype=np.uint64)
        found = read_pairs(body[: PAIR_BYTES * len(grid.negative)])
        for index, product in enumerate(products):
            start = PAIR_BYTES * (len(grid.negative) + index * DEGREE)
            second = read_pairs(body[start : start + PAIR_BYTES * DEGREE])
            self._ring.add_products(product, second[None], self._secret)
        for product, places, part in zip(self._ring.inverse(products), grid.places, grid.parts, strict=True):
            found[:, part] = BASIS.add(found[:, part], product[:, places])
        return grid.unflatten(lower_words(BASIS, BASIS.negate(found, grid.negative)))


class HeldHolder(HeldHalf):
    """The data holder's half, P's. Arguments as for `HeldOwner`, and:

    Args:
        public_key: of the owner in the same session, as received.

    Raises:
        MalformedError: the key is malformed, or of another session or layout.
    """

    def __init__(
        self,
        batch: int,
        width: int,
        outputs: int,
        *,
        session: bytes,
        public_key: np.ndarray,
        ring: TransformRing | None = None,
    ) -> None:
        super().__init__(batch, width, outputs, session=session, ring=ring)
        body = self.layout.read_message(HeldContent.KEY, self._session_tag, public_key)
        self._tag = self.name_key(body)
        self._key = np.stack([read_pairs(body), self._uniform])
        self._tiles: tuple[np.ndarray, np.ndarray] = np.zeros((0, 0), dtype=np.int64), np.zeros(0)

    def answer_product(self, sealed: np.ndarray, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Multiply x by the owner's R.

        Args:
            sealed: of `HeldOwner.seal_weights`.
            x: int64 (rows, d), 1 to B rows, at most 2^13 in size.

        Returns:
            the answer for `HeldOwner.open_product`, and this party's share m, uint64 (rows, E).

        Raises:
            MalformedError: the message is not one of this key, session and layout; or x has another type or shape.
            OverflowRefused: an entry of x is too large.
        """
        plain = self._transform_rows(x)
        uploads = self._load(HeldContent.WEIGHTS, sealed, 0)
        return self._answer(HeldContent.PRODUCT, plain, uploads, len(x))

    def answer_gradient(self, sealed: np.ndarray, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Multiply xᵀ by the owner's R'.

        Args:
            sealed: of `HeldOwner.seal_steps`, for the rows of x.
            x: as for `answer_product`.

        Returns:
            the answer for `HeldOwner.open_gradient`, and this party's share m', uint64 (d, E).

        Raises:
            MalformedError, OverflowRefused: as for `answer_product`.
        """
        plain = self._transform_rows(x)
        uploads = self._load(HeldContent.STEPS, sealed, len(x))
        return self._answer(HeldContent.GRADIENT, plain.swapaxes(0, 1), uploads, 0)

    def _load(self, content: HeldContent, sealed: np.ndarray, rows: int) -> np.ndarray:
        """Both halves of the uploads, (2, tiles, output tiles, primes, N)."""
        body, size = self.layout.read_message(content, self._tag, sealed, rows), SEED_BYTES + DEGREE * PAIR_BYTES
        count = len(body) // size
        halves = np.empty((2, count, len(BASIS.primes), DEGREE), dtype=np.uint64)
        for index in range(count):
            part = body[index * size : (index + 1) * size]
            halves[0, index] = read_pairs(part[SEED_BYTES:])
            halves[1, index] = expand_seed(bytes(part[:SEED_BYTES]))
        outs = len(self.layout.output_tiles)
        return halves.reshape(2, count // outs, outs, *halves.shape[2:])

    def _transform_rows(self, x: np.ndarray) -> np.ndarray:
        """The tiles of x, transformed: (row tiles, column tiles, primes, N); kept until x changes."""
        layout = self.layout
        if not isinstance(x, np.ndarray) or x.dtype != np.int64 or x.ndim != 2 or x.shape[1] != layout.width:
            what = f"{x.dtype} {x.shape}" if isinstance(x, np.ndarray) else type(x).__name__
            raise MalformedError(f"x is {what}; expected int64 (rows, {layout.width})")
        layout.check_rows(len(x))
        # −min as a Python integer: numpy's abs of the smallest int64 is negative and would pass.
        largest = max(int(x.max()), -int(x.min()))
        if largest > LARGEST:
            raise OverflowRefused(f"an entry of x is {largest} in size; at most {LARGEST}: scale it down")
        if not np.array_equal(self._tiles[0], x):
            rows, columns = layout.row_tiles(len(x)), layout.column_tiles
            plain = np.zeros((len(rows), len(columns), DEGREE), dtype=np.int64)
            for a, down in enumerate(rows):
                for b, across in enumerate(columns):
                    tile = x[down, across]
                    places = layout.tiling.feature_places(*tile.shape)
                    plain[a, b, places.index] = np.where(places.negative, -tile.ravel(), tile.ravel())
            found = self._ring.forward(plain.reshape(-1, DEGREE))
            self._tiles = x.copy(), found.reshape(len(rows), len(columns), len(BASIS.primes), DEGREE)
        return self._tiles[1]

    def _answer(
        self, content: HeldContent, plain: np.ndarray, uploads: np.ndarray, rows: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Answers to Σ plain · uploads, masked and re-randomised, and this party's share."""
        grid, outs = self.layout.grid(content, rows), len(self.layout.output_tiles)
        totals = np.zeros((len(grid.tiles), 2, len(BASIS.primes), DEGREE), dtype=np.uint64)
        blinds = self._ring.forward(self._random.ternary(len(grid.tiles)))
        totals[:, 1] = self._ring.forward(self._random.binomial(len(grid.tiles)))
        for index, (total, blind) in enumerate(zip(totals, blinds, strict=True)):
            for half in (0, 1):
                self._ring.add_products(total[half], plain[index // outs], uploads[half, :, index % outs])
                self._ring.add_products(total[half], blind[None], self._key[half][None])
        mask = self._random.uniform(len(grid.negative))
        sent = BASIS.negate(mask, grid.negative)
        for first, places, part in zip(self._ring.inverse(totals[:, 0]), grid.places, grid.parts, strict=True):
            sent[:, part] = BASIS.add(sent[:, part], first[:, places])
        share = grid.unflatten(-lower_words(BASIS, mask))
        parts = [write_pairs(sent), *(write_pairs(total[1]) for total in totals)]
        return self.layout.write_message(content, self._tag, parts, rows), share
