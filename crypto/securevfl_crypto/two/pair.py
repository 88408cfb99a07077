"""Correlated randomness that two parties make between themselves: products under BFV, sines by oblivious transfer.

*Products.* Each party has keys of its own. It encrypts its pads R and R' and the other one, which holds the rows,
answers with X R and Xᵀ R', masked by numbers uniform over the whole ring of ciphertexts; see `rlwe.held`. Several uses
of a batch share one ciphertext: they are columns.

*Sines.* With r = a + b, a of party 0 and b of party 1,

    sin r = sin a cos b + cos a sin b,    cos r = cos a cos b − sin a sin b.

Party 0's rounded sines are numbers of 6 to 12 bits. Each bit is the choice of a transfer whose correlation is party 1's
pair (cos b, sin b), shifted to the bit's place; the sum over the bits gives both parties' summands of the products.
"""

from __future__ import annotations

import hashlib
import secrets
from collections import deque
from collections.abc import Sequence

import numpy as np

from securevfl_crypto.rlwe.held import HeldHolder, HeldOwner
from securevfl_crypto.rlwe.held_layout import HeldContent, HeldLayout
from securevfl_crypto.two.correlations import Correlations, Linear, LinearTask, Wave, WaveBits
from securevfl_crypto.two.curves import ANGLES, find_sines
from securevfl_crypto.two.transfers import ExtendedTransfers
from securevfl_crypto.two.wire import TwoWire, swap

__all__ = ["MOST_AT_ONCE", "PairCorrelations"]

MOST_AT_ONCE = 32
"""Columns that one ciphertext serves at most: classes times uses."""

_NONCE = 32


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
        k, found = task.outputs, []
        for i in range(uses):
            own_parts = {name: np.ascontiguousarray(part[:, i * k : (i + 1) * k]) for name, part in parts.items()}
            found.append(Linear(**(nothing | own_parts)))  # type: ignore[arg-type]
        return found

    async def make_waves(self, count: int, bits: WaveBits) -> Wave:
        angles = (_draw_words((count,)) % np.uint64(ANGLES)).astype(np.int64)
        if self._wire.me == 0:
            sines, cosines = await self._choose_products(angles, bits)
        else:
            sines, cosines = await self._give_products(angles, bits)
        return Wave(angles, sines, cosines)

    async def _choose_products(self, angles: np.ndarray, bits: WaveBits) -> tuple[np.ndarray, np.ndarray]:
        choices = []
        for k, (own, _) in enumerate(bits, 1):
            moved = np.stack(find_sines(k * angles, own)) + (1 << own)  # from −1 … 1 to 0 … 2
            places = np.arange(own + 2, dtype=np.int64)[:, None, None]
            choices.append(((moved[None] >> places) & 1).astype(np.uint8).reshape(-1))
        chosen = np.concatenate(choices)
        pads = await self.transfers.choose(chosen, 2)
        (deltas,) = await self._wire.receive("ahead sines", [(np.uint64, pads.shape)])
        pads += deltas * chosen.astype(np.uint64)[:, None]
        return _combine_products(_sum_places(pads, len(angles), bits))

    async def _give_products(self, angles: np.ndarray, bits: WaveBits) -> tuple[np.ndarray, np.ndarray]:
        count = len(angles)
        zeros, ones = await self.transfers.give(sum(2 * (own + 2) * count for own, _ in bits), 2)
        deltas = zeros - ones
        base = []
        start = 0
        for k, (own, other) in enumerate(bits, 1):
            sine, cosine = find_sines(k * angles, other)
            payload = np.stack([cosine, sine], axis=-1).view(np.uint64)
            size = 2 * (own + 2) * count
            part = deltas[start : start + size].reshape(own + 2, 2, count, 2)
            for place in range(own + 2):
                part[place] += payload << np.uint64(place)
            base.append(payload << np.uint64(own))
            start += size
        await self._wire.send("ahead sines", [deltas])
        sums = _sum_places(np.uint64(0) - zeros, count, bits)
        return _combine_products([one - moved for one, moved in zip(sums, base, strict=True)])

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


def _sum_places(words: np.ndarray, count: int, bits: WaveBits) -> list[np.ndarray]:
    """For each multiple the products of party 0's sine and cosine with party 1's pair, (2, count, 2)."""
    found, start = [], 0
    for own, _ in bits:
        size = 2 * (own + 2) * count
        found.append(words[start : start + size].reshape(own + 2, 2, count, 2).sum(axis=0, dtype=np.uint64))
        start += size
    return found


def _combine_products(products: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Shares of sine and cosine of the sums of angles, from those of the products (sine or cosine, count, pair)."""
    sines = np.stack([one[0, :, 0] + one[1, :, 1] for one in products])
    cosines = np.stack([one[1, :, 0] - one[0, :, 1] for one in products])
    return sines, cosines


def _draw_words(shape: tuple[int, ...]) -> np.ndarray:
    return np.frombuffer(bytearray(secrets.token_bytes(8 * int(np.prod(shape)))), np.uint64).reshape(shape)
