"""A helper that deals random numbers to two parties and receives nothing but sizes.

Each party gets a seed from it, once, from which it draws most of its part; the rest comes as corrections. The helper
knows everything that it deals, so that *together with one of the two* it reads everything; alone it sees nothing.

For a batch of rows X of party P, under a key that names the batch:

- the helper and P draw a mask U from P's seed; P sends X − U to the other party Q, once a job;
- for each use, Q draws the pads R and R' from its seed, P its summands m and m'; the helper sends Q the corrections
  U R − m and Uᵀ R' − m', to which Q adds (X − U) R and (X − U)ᵀ R'.

What the parties make of it, and how they check it, is in `dealt`.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import numpy as np

from securevfl_crypto.errors import MalformedError
from securevfl_crypto.ring import Stream, matmul
from securevfl_crypto.two.correlations import WaveBits, wave_places
from securevfl_crypto.two.curves import ANGLES, find_multiples

__all__ = ["Ask", "Dealer", "Drawer", "MemoryHelper", "Request", "multiply_matrices", "transpose_words"]

LINEAR, WAVES, TRANSFERS = 1, 2, 3
SEED_BYTES = 32
MOST_WORDS = 1 << 27
"""Words that one request may make the helper compute: 1 GiB."""

_KINDS = {LINEAR: 7, WAVES: 17, TRANSFERS: 3}
_MOST_BITS = 14


@dataclass(frozen=True, slots=True)
class Request:
    """What the helper is asked for: sizes alone.

    Attributes:
        kind: `LINEAR`, `WAVES` or `TRANSFERS`.
        sizes: of linear correlations: key, rows, columns of party 0 and 1, outputs, uses, 1 if backward; of waves:
            count, then the bits of each multiple; of transfers: the giver, count, words.
    """

    kind: int
    sizes: tuple[int, ...]

    def pack(self) -> np.ndarray:
        """As it is sent, int64."""
        return np.array([self.kind, *self.sizes], dtype=np.int64)

    @classmethod
    def unpack(cls, message: np.ndarray) -> Request:
        """Read and check a message.

        Raises:
            MalformedError: an unknown kind, or sizes out of range.
        """
        if message.dtype != np.int64 or message.ndim != 1 or not 2 <= len(message) <= 32:
            raise MalformedError(f"a request to a helper is {message.dtype} {message.shape}; int64 (sizes,) is needed")
        kind, *sizes = (int(value) for value in message)
        request = cls(kind, tuple(sizes))
        request.check()
        return request

    def check(self) -> None:
        """Refuse what no honest party asks for.

        Raises:
            MalformedError: an unknown kind, or sizes out of range.
        """
        if _KINDS.get(self.kind) != len(self.sizes) or min(self.sizes) < 0:
            raise MalformedError(f"a helper was asked for kind {self.kind} with {len(self.sizes)} sizes")
        words = self.count_words()
        if words > MOST_WORDS:
            raise MalformedError(f"a helper was asked for {words} words at once; {MOST_WORDS} are possible")

    def count_words(self) -> int:
        """How many words the answer has, about."""
        if self.kind == LINEAR:
            _, rows, one, other, outputs, uses, _ = self.sizes
            return (rows + one + other) * (outputs * uses + one + other)
        if self.kind == WAVES:
            if max(self.sizes[1:]) > _MOST_BITS:
                raise MalformedError(f"sines of {max(self.sizes[1:])} bits were asked for; {_MOST_BITS} are possible")
            return len(self.sizes) * self.sizes[0]
        giver, count, words = self.sizes
        if giver > 1 or not 1 <= words <= 4:
            raise MalformedError(f"transfers of {words} words by party {giver} were asked for")
        return 3 * count * words

    @property
    def wave_bits(self) -> WaveBits:
        """Of waves."""
        flat = self.sizes[1:]
        return tuple((flat[i], flat[i + 1]) for i in range(0, len(flat), 2))

    def shapes(self, party: int) -> list[tuple[int, ...]]:
        """Shapes of the corrections that a party gets."""
        if self.kind == LINEAR:
            _, rows, one, other, outputs, uses, backward = self.sizes
            there, width = (other, one)[party], outputs * uses
            return [(rows, width), *([(there, width)] if backward else [])]
        if self.kind == WAVES:
            return [(2, len(self.wave_bits), self.sizes[0])] if party else []
        giver, count, words = self.sizes
        return [] if party == giver else [(count, words)]


class Drawer:
    """A party's stream, which the helper and the party read in the same order.

    Args:
        seed: 32 bytes.
    """

    def __init__(self, seed: bytes) -> None:
        self._seed = seed
        self._stream = Stream(seed)
        self._place = 0

    def draw_words(self, *shape: int) -> np.ndarray:
        """The next words, uint64 of this shape."""
        self._place += 1
        return self._stream.draw_words(self._place - 1, shape)

    def draw_angles(self, count: int) -> np.ndarray:
        """The next angles modulo 2^21, int64 (count,)."""
        return (self.draw_words(count) % np.uint64(ANGLES)).astype(np.int64)

    def draw_choices(self, count: int) -> np.ndarray:
        """The next choices, zeros and ones, uint8 (count,)."""
        return (self.draw_words(count) & np.uint64(1)).astype(np.uint8)

    def mask_rows(self, key: int, rows: int, columns: int) -> np.ndarray:
        """U of a batch: the same whenever it is drawn, as it always hides the same rows."""
        if not rows * columns:
            return np.zeros((rows, columns), np.uint64)
        derived = hmac.digest(self._seed, b"securevfl two rows 1" + key.to_bytes(8, "big"), hashlib.sha256)
        return Stream(derived).draw_words(0, (rows, columns))


def transpose_words(x: np.ndarray) -> np.ndarray:
    """A matrix's transpose, in C order."""
    return np.ascontiguousarray(x.T)


class Dealer:
    """The helper's side: deals in the order in which it is asked.

    Args:
        seeds: of party 0 and party 1, 32 bytes each; fresh from the operating system by default.
    """

    def __init__(self, seeds: tuple[bytes, bytes] | None = None) -> None:
        self.seeds = (secrets.token_bytes(SEED_BYTES), secrets.token_bytes(SEED_BYTES)) if seeds is None else seeds
        self._drawers = tuple(Drawer(seed) for seed in self.seeds)

    def deal(self, request: Request) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """The corrections of both parties.

        Raises:
            MalformedError: sizes out of range.
        """
        request.check()
        return {LINEAR: self._deal_linear, WAVES: self._deal_waves, TRANSFERS: self._deal_transfers}[request.kind](
            request
        )

    def _deal_linear(self, request: Request) -> tuple[list[np.ndarray], list[np.ndarray]]:
        key, rows, *columns, outputs, uses, backward = request.sizes
        width = outputs * uses
        found: tuple[list[np.ndarray], list[np.ndarray]] = [], []
        for holder in (0, 1):
            mine, theirs = self._drawers[holder], self._drawers[1 - holder]
            here = columns[holder]
            mask = mine.mask_rows(key, rows, here)
            product = multiply_matrices(mask, theirs.draw_words(here, width))
            found[1 - holder].append(product - mine.draw_words(rows, width))
            if backward:
                product = multiply_matrices(transpose_words(mask), theirs.draw_words(rows, width))
                found[1 - holder].append(product - mine.draw_words(here, width))
        return found

    def _deal_waves(self, request: Request) -> tuple[list[np.ndarray], list[np.ndarray]]:
        count, bits = request.sizes[0], request.wave_bits
        angles = self._drawers[0].draw_angles(count) + self._drawers[1].draw_angles(count)
        both = find_multiples(angles, wave_places(bits)).view(np.uint64)
        return [], [both - self._drawers[0].draw_words(*both.shape)]

    def _deal_transfers(self, request: Request) -> tuple[list[np.ndarray], list[np.ndarray]]:
        giver, count, words = request.sizes
        pads = self._drawers[giver].draw_words(2, count, words)
        choices = self._drawers[1 - giver].draw_choices(count)
        # Both pads are read, and one is taken without a branch.
        chosen = pads[0] ^ ((pads[0] ^ pads[1]) & (np.uint64(0) - choices.astype(np.uint64))[:, None])
        return ([], [chosen]) if giver == 0 else ([chosen], [])


def multiply_matrices(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """a b modulo 2^64 for words, (m, k) and (k, n); any of these may be 0."""
    if not a.size or not b.size:
        return np.zeros((a.shape[0], b.shape[1]), np.uint64)
    return matmul(np.ascontiguousarray(a), np.ascontiguousarray(b))


Ask = Callable[[Request], Awaitable[list[np.ndarray]]]
"""Asks the helper, and gives this party's corrections; at party 1, only the latter."""


class MemoryHelper:
    """A helper in the same process, for simulations and tests: both parties ask it.

    Args:
        dealer: deals.
    """

    def __init__(self, dealer: Dealer | None = None) -> None:
        self.dealer = Dealer() if dealer is None else dealer
        self._waiting: tuple[deque[tuple[Request, list[np.ndarray]]], ...] = (deque(), deque())

    def ask_as(self, party: int) -> Ask:
        """The function by which a party asks."""

        async def ask(request: Request) -> list[np.ndarray]:
            if self._waiting[party]:
                asked, dealt = self._waiting[party].popleft()
                if asked != request:
                    raise MalformedError(f"the parties ask the helper for different numbers: {asked} and {request}")
                return dealt
            both = self.dealer.deal(request)
            self._waiting[1 - party].append((request, both[1 - party]))
            return both[party]

        return ask
