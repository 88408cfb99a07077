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
from securevfl_crypto.two.wire import Expected, TwoWire, swap

__all__ = ["MOST_AT_ONCE", "PairCorrelations"]

MOST_AT_ONCE = 32
"""Columns that one ciphertext serves at most: classes times uses."""

_TOGETHER = 8
"""Batches whose messages cross together, in two exchanges."""
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
        found: list[deque[Linear]] = [deque() for _ in tasks]
        parts = [
            (number, task, min(at_once, uses - start))
            for number, task in enumerate(tasks)
            for at_once in [max(MOST_AT_ONCE // task.outputs, 1)]
            for start in range(0, uses, at_once)
        ]
        for first in range(0, len(parts), _TOGETHER):
            making = [
                (number, _Making(task, some, *await self._halves_of(task, task.outputs * some)))
                for number, task, some in parts[first : first + _TOGETHER]
            ]
            for _, one in making:
                await self._wire.send("ahead pads", one.seal_pads())
            for _, one in making:
                await self._wire.send("ahead products", one.answer(await self._wire.receive("ahead pads", one.asked)))
            for number, one in making:
                found[number].extend(one.open(await self._wire.receive("ahead products", one.answered)))
        return found

    async def make_waves(self, count: int, bits: WaveBits) -> Wave:
        angles = (_draw_words((count,)) % np.uint64(ANGLES)).astype(np.int64)
        each = max(MOST // _count_transfers(1, bits), 1)
        pieces = [angles[start : start + each] for start in range(0, count, each)]
        make = self._choose_products if self._wire.me == 0 else self._give_products
        found = await make(pieces, bits)
        sines, cosines = (np.concatenate(part, axis=1) for part in zip(*found, strict=True))
        return Wave(angles, sines, cosines)

    async def _choose_products(
        self, pieces: Sequence[np.ndarray], bits: WaveBits
    ) -> list[tuple[np.ndarray, np.ndarray]]:
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

    async def _give_products(self, pieces: Sequence[np.ndarray], bits: WaveBits) -> list[tuple[np.ndarray, np.ndarray]]:
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

    async def _halves_of(self, task: LinearTask, width: int) -> tuple[HeldOwner | None, HeldHolder | None]:
        """This party's keys for the other one's rows, and the other one's for its own; a pair for each size."""
        rows = 1 << max(len(task.rows) - 1, 0).bit_length()  # so that questions of all sizes need few keys
        own, other = task.rows.shape[1], task.other
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


class _Making:
    """Some uses of one batch while they are made: pads leave, the other party's come and are answered, answers come.

    Args:
        task: the batch.
        uses: how many.
        owner: this party's keys; None where the other party has no columns.
        holder: the other party's; None where this one has none.

    Attributes:
        asked: types and shapes of the other party's pads.
        answered: and of its answers.
    """

    def __init__(self, task: LinearTask, uses: int, owner: HeldOwner | None, holder: HeldHolder | None) -> None:
        self._task, self._uses, self._owner, self._holder = task, uses, owner, holder
        rows, width = len(task.rows), task.outputs * uses
        self._parts = {
            "mask": np.zeros((rows, width), np.uint64),
            "pad": _draw_words((task.other, width)),
            "share": np.zeros((rows, width), np.uint64),
        }
        if task.backward:
            self._parts |= {
                "mask_back": np.zeros((task.rows.shape[1], width), np.uint64),
                "pad_back": _draw_words((rows, width)),
                "share_back": np.zeros((task.other, width), np.uint64),
            }
        asked = [HeldContent.WEIGHTS, HeldContent.STEPS][: 1 + task.backward]
        answered = [HeldContent.PRODUCT, HeldContent.GRADIENT][: 1 + task.backward]
        self.asked: Expected = [] if holder is None else [(np.uint8, (holder.message_size(c, rows),)) for c in asked]
        self.answered: Expected = (
            [] if owner is None else [(np.uint8, (owner.message_size(c, rows),)) for c in answered]
        )

    def seal_pads(self) -> list[np.ndarray]:
        """This party's pads, encrypted."""
        if self._owner is None:
            return []
        sealed = [self._owner.seal_weights(self._parts["pad"])]
        if self._task.backward:
            sealed.append(self._owner.seal_steps(self._parts["pad_back"]))
        return sealed

    def answer(self, asked: list[np.ndarray]) -> list[np.ndarray]:
        """Multiply the own rows by the other party's pads."""
        if self._holder is None:
            return []
        rows = self._task.rows.astype(np.int64)
        answer, self._parts["mask"] = self._holder.answer_product(asked[0], rows)
        answers = [answer]
        if self._task.backward:
            answer, self._parts["mask_back"] = self._holder.answer_gradient(asked[1], rows)
            answers.append(answer)
        return answers

    def open(self, answers: list[np.ndarray]) -> Iterator[Linear]:
        """Open this party's summands; all uses."""
        if self._owner is not None:
            self._parts["share"] = self._owner.open_product(answers[0], len(self._task.rows))
            if self._task.backward:
                self._parts["share_back"] = self._owner.open_gradient(answers[1])
        apart: dict[str, np.ndarray | None] = {"mask_back": None, "pad_back": None, "share_back": None}
        uses = {
            name: np.ascontiguousarray(part.reshape(len(part), self._uses, -1).swapaxes(0, 1))
            for name, part in self._parts.items()
            if part.size
        }
        for number in range(self._uses):
            yield Linear(**(apart | {name: self._take(name, uses, number) for name in self._parts}))  # type: ignore[arg-type]

    def _take(self, name: str, uses: dict[str, np.ndarray], number: int) -> np.ndarray:
        if name in uses:
            return np.asarray(uses[name][number])
        return np.zeros((len(self._parts[name]), self._task.outputs), np.uint64)


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
