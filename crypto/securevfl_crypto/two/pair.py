"""Correlated randomness that two parties make between themselves: products under BFV, sines by oblivious transfer.

*Products.* Each party has keys of its own. It encrypts its pads R and R' and the other one, which holds the rows,
answers with X R and Xᵀ R', masked by numbers uniform over the whole ring of ciphertexts; see `rlwe.held`. Several uses
of a batch share one ciphertext: they are columns.

*Sines.* With r = a + b, a of party 0 and b of party 1,

    sin r = sin a cos b + cos a sin b,    cos r = cos a cos b − sin a sin b.

Party 0 rounds its sines to odd multiples of 2^-4 to 2^-10, numbers of 4 to 10 bits. Each bit is the choice of a
transfer whose correlation is party 1's pair (cos b, sin b), shifted to the bit's place; the sum over the bits gives
both parties' summands of the products.
"""

from __future__ import annotations

import hashlib
import secrets
from collections import deque
from collections.abc import Iterator, Sequence

import numpy as np

from securevfl_crypto.rlwe.held import HeldHolder, HeldOwner
from securevfl_crypto.rlwe.held_layout import HeldContent, HeldLayout
from securevfl_crypto.transfer.extension import MOST
from securevfl_crypto.two.correlations import Correlations, Linear, LinearTask, Wave, WaveBits
from securevfl_crypto.two.curves import ANGLES, find_multiples
from securevfl_crypto.two.transfers import ExtendedTransfers
from securevfl_crypto.two.wire import TwoWire, swap

__all__ = ["MOST_AT_ONCE", "PairCorrelations"]

MOST_AT_ONCE = 32
"""Columns that one ciphertext serves at most: classes times uses."""

_NONCE = 32
_FINE = 30
"""Fractional bits of sines before they are rounded."""


class PairCorrelations(Correlations):
    """One party's side of randomness that the two make between themselves.

    Args:
        wire: to the other party.
        tag: of the session: names of job, run and parties, the same at both.
    """

    def __init__(self, wire: TwoWire, tag: bytes = b"") -> None:
        self._wire, self._tag = wire, tag
        self._session = b""
        self._halves: dict[tuple[int, ...], tuple[HeldOwner | None, HeldHolder | None]] = {}
        self.transfers: ExtendedTransfers

    async def setup(self) -> None:
        """Exchange fresh numbers, to which all keys are bound, and make the base transfers: three exchanges."""
        mine = np.frombuffer(secrets.token_bytes(_NONCE), np.uint8)
        (theirs,) = await swap(self._wire, "keys session", [mine])
        both = (mine, theirs) if self._wire.me == 0 else (theirs, mine)
        parts = (b"securevfl two parties 1", self._tag, *(one.tobytes() for one in both))
        self._session = hashlib.sha256(b"".join(len(part).to_bytes(4, "big") + part for part in parts)).digest()
        self.transfers = ExtendedTransfers(self._wire, self._session)
        await self.transfers.setup()

    async def make_linear(self, tasks: Sequence[LinearTask], uses: int) -> list[deque[Linear]]:
        return [await self._make_task(task, uses) for task in tasks]

    async def _make_task(self, task: LinearTask, uses: int) -> deque[Linear]:
        at_once = max(MOST_AT_ONCE // task.outputs, 1)
        found: deque[Linear] = deque()
        for start in range(0, uses, at_once):
            found.extend(await self._make_uses(task, min(at_once, uses - start)))
        return found

    async def _make_uses(self, task: LinearTask, uses: int) -> list[Linear]:
        rows, own, width = len(task.rows), task.rows.shape[1], task.outputs * uses
        owner, holder = await self._halves_of(rows, own, task.other, width)
        pad, pad_back = _draw_words((task.other, width)), _draw_words((rows, width))
        share, share_back = np.zeros((rows, width), np.uint64), np.zeros((task.other, width), np.uint64)
        mask, mask_back = np.zeros((rows, width), np.uint64), np.zeros((own, width), np.uint64)
        contents = [HeldContent.WEIGHTS, *([HeldContent.STEPS] if task.backward else [])]
        answers = [HeldContent.PRODUCT, *([HeldContent.GRADIENT] if task.backward else [])]
        sealed: list[np.ndarray] = []
        if owner is not None:
            sealed = [owner.seal_weights(pad), *([owner.seal_steps(pad_back)] if task.backward else [])]
        expect = [] if holder is None else [(np.uint8, (holder.message_size(one, rows),)) for one in contents]
        asked = await swap(self._wire, "ahead pads", sealed, expect)
        replies: list[np.ndarray] = []
        if holder is not None:
            answer, mask = holder.answer_product(asked[0], task.rows.astype(np.int64))
            replies.append(answer)
            if task.backward:
                answer, mask_back = holder.answer_gradient(asked[1], task.rows.astype(np.int64))
                replies.append(answer)
        expect = [] if owner is None else [(np.uint8, (owner.message_size(one, rows),)) for one in answers]
        got = await swap(self._wire, "ahead products", replies, expect)
        if owner is not None:
            share = owner.open_product(got[0], rows)
            if task.backward:
                share_back = owner.open_gradient(got[1])
        parts = {"mask": mask, "pad": pad, "share": share}
        nothing: dict[str, np.ndarray | None] = {"mask_back": None, "pad_back": None, "share_back": None}
        if task.backward:
            parts |= {"mask_back": mask_back, "pad_back": pad_back, "share_back": share_back}
        k = task.outputs
        return [
            Linear(
                **(nothing | {name: np.ascontiguousarray(part[:, i * k : (i + 1) * k]) for name, part in parts.items()})
            )  # type: ignore[arg-type]
            for i in range(uses)
        ]

    async def make_waves(self, count: int, bits: WaveBits) -> Wave:
        angles = (_draw_words((count,)) % np.uint64(ANGLES)).astype(np.int64)
        each = max(MOST // _count_transfers(1, bits), 1)
        pieces = [angles[start : start + each] for start in range(0, count, each)]
        make = self._choose_products if self._wire.me == 0 else self._give_products
        found = await make(pieces, bits)
        sines, cosines = (np.concatenate(part, axis=1) for part in zip(*found, strict=True))
        return Wave(angles, sines, cosines)

    async def _choose_products(self, pieces: Sequence[np.ndarray], bits: WaveBits) -> list[tuple[np.ndarray, ...]]:
        """Party 0's side. All choices leave at once, so that pieces cost one exchange together."""
        waiting = []
        for angles in pieces:
            choices = _find_choices(angles, bits)
            waiting.append((len(angles), choices, await self.transfers.choose(choices, 2)))
        found = []
        for count, choices, pads in waiting:
            (deltas,) = await self._wire.receive("ahead sines", [(np.uint64, pads.shape)])
            # Taken by a mask, so that choices decide nothing else.
            deltas = deltas & (np.uint64(0) - choices.astype(np.uint64))[:, None]
            deltas += pads
            found.append(_combine_products(_sum_places(deltas, count, bits)))
        return found

    async def _give_products(self, pieces: Sequence[np.ndarray], bits: WaveBits) -> list[tuple[np.ndarray, ...]]:
        """Party 1's side."""
        found = []
        for angles in pieces:
            count = len(angles)
            zeros, deltas = await self.transfers.give(_count_transfers(count, bits), 2)
            np.subtract(zeros, deltas, out=deltas)
            sine, cosine = find_multiples(angles, [other for _, other in bits]).view(np.uint64)
            payload = np.stack([cosine, sine], axis=-1)
            sums = np.uint64(0) - _sum_places(zeros, count, bits)
            for k, (part, (own, _)) in enumerate(zip(_split_multiples(deltas, count, bits), bits, strict=True)):
                places = np.arange(1, own + 1, dtype=np.uint64)[:, None, None]
                np.add(part, (payload[k] << places)[:, None], out=part)
                sums[k] -= payload[k] * np.uint64((1 << own) - 1)
            await self._wire.send("ahead sines", [deltas])
            found.append(_combine_products(sums))
        return found

    async def _halves_of(
        self, rows: int, own: int, other: int, width: int
    ) -> tuple[HeldOwner | None, HeldHolder | None]:
        """This party's keys for the other one's rows, and the other one's for its own; a pair for each size."""
        rows = 1 << max(rows - 1, 0).bit_length()  # so that questions of all sizes need few keys
        sizes = (rows, own, other, width)
        if sizes not in self._halves:
            me = self._wire.me
            names = [self._session + f" key of {party} for {rows} {width}".encode() for party in (me, 1 - me)]
            owner = HeldOwner(rows, other, width, session=names[0]) if other else None
            expect = []
            if own:
                probe = HeldLayout(rows, own, width).message_size(HeldContent.KEY, rows)
                expect = [(np.uint8, (probe,))]
            got = await swap(self._wire, "keys products", [] if owner is None else [owner.public_key], expect)
            holder = HeldHolder(rows, own, width, session=names[1], public_key=got[0]) if own else None
            self._halves[sizes] = owner, holder
        return self._halves[sizes]


def _count_transfers(count: int, bits: WaveBits) -> int:
    return sum(2 * own for own, _ in bits) * count


def _find_choices(angles: np.ndarray, bits: WaveBits) -> np.ndarray:
    """The bits of party 0's sines, uint8 (transfers,): by multiple and place, of all sines and then of all cosines.

    A sine is rounded to the nearest odd multiple of 2^-own, −2^own + 1 + 2 m for an m of `own` bits.
    """
    fine = find_multiples(angles, [_FINE] * len(bits)) + (1 << _FINE)
    parts = []
    for k, (own, _) in enumerate(bits):
        m = np.minimum(fine[:, k] >> (_FINE + 1 - own), (1 << own) - 1).astype(np.uint16)
        places = np.arange(own, dtype=np.uint16)[:, None, None]
        parts.append(((m >> places) & np.uint16(1)).astype(np.uint8).reshape(-1))
    return np.concatenate(parts)


def _split_multiples(words: np.ndarray, count: int, bits: WaveBits) -> Iterator[np.ndarray]:
    """Views of the words of transfers for each multiple: (places, sine or cosine, count, pair)."""
    start = 0
    for own, _ in bits:
        end = start + 2 * own * count
        yield words[start:end].reshape(own, 2, count, 2)
        start = end


def _sum_places(words: np.ndarray, count: int, bits: WaveBits) -> np.ndarray:
    """Products of party 0's sine and cosine with party 1's pair: (multiples, sine or cosine, count, pair)."""
    found = np.empty((len(bits), 2, count, 2), np.uint64)
    for one, part in zip(found, _split_multiples(words, count, bits), strict=True):
        part.sum(axis=0, dtype=np.uint64, out=one)
    return found


def _combine_products(products: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Shares of sine and cosine of the sums of angles, from those of the products."""
    return products[:, 0, :, 0] + products[:, 1, :, 1], products[:, 1, :, 0] - products[:, 0, :, 1]


def _draw_words(shape: tuple[int, ...]) -> np.ndarray:
    return np.frombuffer(bytearray(secrets.token_bytes(8 * int(np.prod(shape)))), np.uint64).reshape(shape)
