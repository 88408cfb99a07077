"""A cell whose job trains on shares of two: what each of the two received of each row, and what its own summands make
of that. Nothing is dealt there; a step opens a masked angle of each row, and swaps padded errors.

An attacker of the gate computes with what it has. So every message is given to the attacks as it came, and with the
receiver's own summand added: then the sender's pad is all that hides an angle, or an error.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import numpy as np
from securevfl_crypto.two import online
from securevfl_crypto.two.curves import ANGLES, FRACTION_BITS
from securevfl_crypto.two.wire import swap

from benchmarks.gate.on_shares import CHI_SQUARE, LEAST, Sights, Wiretap
from securevfl.attacks import PartyView

__all__ = ["Looks", "sort_rows", "uneven", "watch"]

_PADDED = ("step ahead", "step errors", "step fresh", "ahead rows")
"""Messages of words that are uniform whatever else a party has."""


@dataclass
class Look:
    """What a party received of the rows of one function of shared values, with its own summands.

    Attributes:
        angles: as received, and with the receiver's summand, int64 (2, rows, outputs) below 2^21.
        errors: of a training step likewise, uint64 (2, rows, outputs); None elsewhere.
    """

    angles: np.ndarray
    errors: np.ndarray | None = None

    def columns(self) -> np.ndarray:
        """For attacks, float64 (rows, columns)."""
        found = [*(self.angles / ANGLES)]
        if self.errors is not None:
            found += [*(self.errors.view(np.int64) / 2.0**63), *((self.errors & np.uint64(0xFF)) / 256.0)]
        return np.hstack(found)


@dataclass
class Looks:
    """Computing party → its looks in order."""

    of: dict[str, list[Look]] = field(default_factory=lambda: defaultdict(list))


@contextmanager
def watch(computing: Sequence[str]) -> Iterator[Looks]:
    """Record what the two received in the jobs inside.

    Args:
        computing: their names, the active party first.
    """
    found, got = Looks(), dict[int, list[np.ndarray]]()
    open_angles, train_batch = online.TwoLinear._open_angles, online.TwoLinear.train_batch
    shares = dict[int, np.ndarray]()

    async def swapped(wire: Any, label: str, *rest: Any) -> list[np.ndarray]:
        got[wire.me] = await swap(wire, label, *rest)
        return got[wire.me]

    async def evaluated(self: Any, z: np.ndarray, *rest: Any) -> list[np.ndarray]:
        values = await open_angles(self, z, *rest)
        me = self.wire.me
        theirs = online._unpack_angles(got[me][0]).reshape(z.shape)
        own = (z >> np.uint64(online.LOGIT_BITS - FRACTION_BITS)).astype(np.int64)
        found.of[computing[me]].append(Look(np.stack([theirs, (theirs + own) % ANGLES])))
        shares[me] = values[0]
        return values

    async def trained(self: Any, *rest: Any) -> None:
        await train_batch(self, *rest)
        (theirs,), me = got[self.wire.me], self.wire.me
        found.of[computing[me]][-1].errors = np.stack([theirs, theirs + shares[me]])

    with (
        mock.patch.object(online, "swap", swapped),
        mock.patch.object(online.TwoLinear, "_open_angles", evaluated),
        mock.patch.object(online.TwoLinear, "train_batch", trained),
    ):
        yield found


def sort_rows(tap: Wiretap, party: str, view: PartyView, *, looks: Looks) -> Sights:
    """Sort what one of the two received by the rows that it is about: of training steps, of metrics of the validation
    rows, and, from a helper's jobs, the masked rows themselves.

    Args:
        tap: heard both.
        party: whose.
        view: of that party.
        looks: of the job.
    """
    found = Sights(defaultdict(lambda: defaultdict(list)))
    steps = [one for one in looks.of[party] if one.errors is not None]
    batches = tap.pending[party]
    if len(steps) != len(batches):
        raise ValueError(f"{party!r} took {len(steps)} steps with {len(batches)} batches")
    for rows, one in zip(batches, steps, strict=True):
        for row, value in zip(rows.tolist(), one.columns(), strict=True):
            found.of["rounds"][row].append(value)
    for one in looks.of[party]:
        if one.errors is None and one.angles.shape[1] == len(view.valid):
            for row, value in zip(view.valid.tolist(), one.columns(), strict=True):
                found.of["rounds"][row].append(value)
    first = {tuple(rows.tolist()): rows for rows in batches}
    for (peer, words), rows in zip(_masked_rows(tap, party), first.values(), strict=False):
        for row, value in zip(rows.tolist(), words.view(np.int64) / 2.0**63, strict=True):
            found.of[peer][row].append(value)
    found.opened = sum(
        np.asarray(array).size
        for _, message in tap.heard_by[party]
        if message.what.startswith("shares/open")
        for array in message.arrays.values()
    )
    return found


def _masked_rows(tap: Wiretap, party: str) -> Iterator[tuple[str, np.ndarray]]:
    for peer, message in tap.heard_by[party]:
        if message.meta.get("label") == "ahead rows":
            yield peer, np.asarray(message.arrays["0"])


def uneven(tap: Wiretap, looks: Looks, party: str) -> float:
    """How far what one of the two received, with its own summands or not, is from uniform: as `on_shares.uneven`."""
    counts: dict[tuple[str, int], np.ndarray] = defaultdict(lambda: np.zeros((8, 256)))

    def count(place: tuple[str, int], words: np.ndarray, octets: int) -> None:
        for octet, one in enumerate(np.ascontiguousarray(words).view(np.uint8).reshape(-1, 8).T[:octets]):
            counts[place][octet] += np.bincount(one, minlength=256)

    for _, message in tap.heard_by[party]:
        label = message.meta.get("label")
        if label in _PADDED:
            for array in map(np.asarray, message.arrays.values()):
                if array.dtype == np.uint64:
                    count((str(label), 0), array, 8)
    for one in looks.of[party]:
        for kind in (0, 1):
            # The upper 16 bits of 21, which the value moves: the lowest ones of z look random without a mask, too.
            count(("angle", kind), one.angles[kind] >> (FRACTION_BITS - 11), 2)
            if one.errors is not None:
                count(("error", kind), one.errors[kind], 8)
    worst = 0.0
    for found in counts.values():
        used = found[found.sum(axis=1) > 0]
        wanted = used.sum(axis=1, keepdims=True) / 256
        if wanted.size and wanted.min() >= LEAST:
            worst = max(worst, float(((used - wanted) ** 2 / wanted).sum(axis=1).max()) / CHI_SQUARE)
    return worst
