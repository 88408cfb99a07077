"""One-layer models of two parties: logistic and linear regression on columns that stay where they are.

Both parties hold shares of all weights, modulo 2^64, and each holds its own rows in the clear. Rows have 10 fractional
bits, weights 45, their product 55: nothing is rescaled, so nothing is truncated in a step. A step takes two exchanges:

1. Each party has its share of z = Σ X w from what the other one sent before the epoch (`begin_epoch`). It sends bits 39
   to 59 of that share plus its angle modulo 2^21; the sum of the two angles hides z.
2. Both compute their share of the error, times rate over batch size, from the opened angle (`curves`); the party with
   labels subtracts them. Each sends its share of the error minus a pad, and moves its share of the weights.

What a party sends is padded by a number that it drew itself and uses once, so it is uniform whatever the other party
does. The party that holds no labels needs none of the other's values: its share of the *other* party's weights changes
by its own numbers alone, so all messages of an epoch that depend on weights are known, and sent, before its first step.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from securevfl_crypto.errors import DisagreementError, MalformedError, ReusedError
from securevfl_crypto.ring import matmul
from securevfl_crypto.two.correlations import Correlations, Linear, LinearTask, Wave, WaveBits
from securevfl_crypto.two.curves import ANGLE_BITS, ANGLES, FRACTION_BITS, Curve, Factors, choose_wave_bits
from securevfl_crypto.two.wire import TwoWire, swap

__all__ = ["ERROR_BITS", "LARGEST_ROW", "LOGIT_BITS", "ROW_BITS", "WEIGHT_BITS", "StepRule", "TwoLinear", "encode_rows"]

ROW_BITS = 10
"""Fractional bits of a value of a row."""

LARGEST_ROW = 8.0
"""Largest size of a value of a row."""

ERROR_BITS = 35
"""Fractional bits of the error times the rate over the batch size."""

WEIGHT_BITS = ROW_BITS + ERROR_BITS
LOGIT_BITS = ROW_BITS + WEIGHT_BITS
"""Fractional bits of weights, and of the values that they give."""

_ANGLE_SHIFT = np.uint64(LOGIT_BITS - FRACTION_BITS)
_ANGLE_BYTES = 3
_WAVES_AT_ONCE = 4096
"""Angles that are made at once, for the steps to come: 0.6 MB at each party, and 8 MB while transfers make them."""

Noise = Callable[[tuple[int, ...]], np.ndarray]
"""Draws one party's noise on a sum of gradients, uint64 words with `WEIGHT_BITS`."""


def encode_rows(values: np.ndarray) -> np.ndarray:
    """Rows as int64 with `ROW_BITS`, rounded to nearest.

    Args:
        values: float64 (n, d), at most `LARGEST_ROW` in size.

    Raises:
        MalformedError: a value is not finite, or larger.
    """
    if values.size and not np.abs(values).max() <= LARGEST_ROW:
        raise MalformedError(f"a value of a row is not finite or above {LARGEST_ROW:g} in size; scale the columns")
    found: np.ndarray = np.rint(np.ldexp(values, ROW_BITS)).astype(np.int64)
    return found


@dataclass(frozen=True)
class StepRule:
    """How a batch moves the weights: w ← w − rate · Xᵀ f(z − y), with f a curve.

    Attributes:
        curve: f: the sigmoid less ½, or an error that is clipped.
        rate: the learning rate over the batch size, times what the curve is scaled by.
        most_bits: bits of the finest sines.
    """

    curve: Curve
    rate: float
    most_bits: int = 10
    bits: WaveBits = field(init=False)
    factors: Factors = field(init=False, repr=False)

    def __post_init__(self) -> None:
        bits = choose_wave_bits(self.curve, self.rate, ERROR_BITS, self.most_bits)
        object.__setattr__(self, "bits", bits)
        object.__setattr__(self, "factors", Factors(self.curve, self.rate, ERROR_BITS, bits))


class TwoLinear:
    """One party's half of a one-layer model that is trained and used by two.

    Args:
        wire: to the other party.
        source: of correlated randomness.
        columns: of party 0 and of party 1.
        outputs: columns of the weights.
        noise: this party's noise on each sum of gradients; None for none.

    Attributes:
        own: this party's summands of the weights of its own columns, uint64 (d, outputs).
        other: and of the other party's.
        exchanges: how often both parties sent at once, so far.
    """

    def __init__(
        self,
        wire: TwoWire,
        source: Correlations,
        columns: tuple[int, int],
        outputs: int,
        *,
        noise: Noise | None = None,
    ) -> None:
        self.wire, self.source, self.outputs, self._noise = wire, source, outputs, noise
        mine, theirs = columns[wire.me], columns[1 - wire.me]
        self.own = np.zeros((mine, outputs), np.uint64)
        self.other = np.zeros((theirs, outputs), np.uint64)
        self.exchanges = 0
        self._ahead: deque[tuple[Linear, np.ndarray]] = deque()
        self._waves: deque[tuple[WaveBits, Wave]] = deque()

    async def refresh_shares(self, sharing: bytes = b"") -> None:
        """Replace the shares of all weights by fresh ones of the same weights, with one pad of each party.

        Args:
            sharing: names the sharing that the summands are of: two that were made apart add up to nothing.

        Raises:
            DisagreementError: the other party has summands of another sharing.
        """
        shapes = [self.own.shape, self.other.shape]
        pads, tag = [_draw_words(shape) for shape in shapes], np.frombuffer(hashlib.sha256(sharing).digest(), np.uint8)
        expect: list[tuple[type[np.generic], tuple[int, ...]]] = [(np.uint64, shape) for shape in reversed(shapes)]
        expect.append((np.uint8, tag.shape))
        *theirs, other = await swap(self.wire, "step fresh", [*pads, tag], expect)
        self.exchanges += 1
        if not np.array_equal(tag, other):
            raise DisagreementError(
                "the two parties have parts of different models, or of one model at different attempts, which add up "
                "to random numbers: take both from the same run; a run whose parties kept different attempts starts "
                "again in another folder"
            )
        self.own = self.own - pads[0] + theirs[1]
        self.other = self.other - pads[1] + theirs[0]

    async def begin_epoch(self, uses: Sequence[Linear]) -> None:
        """Send, and take, what the steps of an epoch need of the weights; one use of each batch, in order.

        Raises:
            ReusedError: the epoch before is not finished.
        """
        if self._ahead:
            raise ReusedError(f"an epoch begins with {len(self._ahead)} steps of the one before not done")
        if not uses:
            return
        sent = np.empty((len(uses), *self.other.shape), np.uint64)
        for number, use in enumerate(uses):
            sent[number] = self.other - use.pad
            _wipe(use.pad)
            if use.share_back is not None:
                self.other = self.other - use.share_back
                _wipe(use.share_back)
                if self._noise is not None:
                    self.other = self.other - self._noise(self.other.shape)
        (got,) = await swap(self.wire, "step ahead", [sent], [(np.uint64, (len(uses), *self.own.shape))])
        self.exchanges += 1
        self._ahead.extend(zip(uses, got, strict=True))

    async def train_batch(self, rows: np.ndarray, targets: np.ndarray | None, rule: StepRule) -> None:
        """Take one step.

        Args:
            rows: this party's, int64 (n, d).
            targets: at the party with labels, float64 (n, outputs): 0 or 1, or numbers; None at the other.
            rule: of the step, the same at both.

        Raises:
            ReusedError: no correlation is left.
        """
        use, z = self._take_logits(rows)
        if targets is not None and rule.curve.name != "sigmoid":
            z = z - encode_values(targets, LOGIT_BITS)
        (mine,) = await self._open_angles(z, await self._take_wave(z.size, rule.bits), [rule.factors])
        if targets is not None and rule.curve.name == "sigmoid":
            mine = mine + encode_values((0.5 - targets) * rule.rate, ERROR_BITS)
        if use.mask_back is None or use.pad_back is None:
            raise MalformedError("a step was taken with a correlation that only goes forward")
        padded = mine - use.pad_back
        _wipe(use.pad_back, use.mask, use.share)
        (theirs,) = await swap(self.wire, "step errors", [padded])
        self.exchanges += 1
        words = np.ascontiguousarray(rows.T).view(np.uint64)
        if self.own.size:
            self.own = self.own - matmul(words, mine + theirs) - use.mask_back
            _wipe(use.mask_back)
            if self._noise is not None:
                self.own = self.own - self._noise(self.own.shape)

    def compute_logits(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """This party's shares of what its own columns and the other party's add to the values of some rows, uint64
        (n, outputs) each with `LOGIT_BITS`; no message.

        Args:
            rows: this party's, int64 (n, d): those of the next correlation.
        """
        use, own = self._take_logits(rows)
        share = use.share.copy()
        _wipe(use.mask, use.share)
        return own - share, share

    def _take_logits(self, rows: np.ndarray) -> tuple[Linear, np.ndarray]:
        if not self._ahead:
            raise ReusedError("no correlation is left for these rows; nothing was sent")
        use, ahead = self._ahead.popleft()
        if use.mask.shape != (len(rows), self.outputs):
            raise MalformedError(f"{len(rows)} rows meet a correlation of {len(use.mask)}")
        z = use.mask + use.share
        if rows.shape[1]:
            z = z + matmul(np.ascontiguousarray(rows).view(np.uint64), self.own + ahead)
        return use, z

    async def evaluate(self, z: np.ndarray, factors: Sequence[Factors], bits: WaveBits) -> list[np.ndarray]:
        """Shares of functions of shared values: one exchange of 3 bytes a value.

        Args:
            z: this party's share, uint64 (n, outputs) with `LOGIT_BITS`.
            factors: of each function.
            bits: of the waves.

        Returns:
            For each function uint64 (n, outputs).
        """
        return await self._open_angles(z, await self.source.make_waves(z.size, bits), factors)

    async def _open_angles(self, z: np.ndarray, wave: Wave, factors: Sequence[Factors]) -> list[np.ndarray]:
        mine = ((z.reshape(-1) >> _ANGLE_SHIFT).astype(np.int64) + wave.angles) & (ANGLES - 1)
        (theirs,) = await swap(self.wire, "step angles", [_pack_angles(mine)])
        self.exchanges += 1
        opened = (mine + _unpack_angles(theirs)) & (ANGLES - 1)
        first = self.wire.me == 0
        return [one.combine(opened, wave.sines, wave.cosines, first=first).reshape(z.shape) for one in factors]

    async def _take_wave(self, count: int, bits: WaveBits) -> Wave:
        """Angles for one step. They are made for some steps at once, which the uses that are left foretell at both
        parties alike, so that no step waits for messages that make them."""
        if not self._waves or self._waves[0][0] != bits or self._waves[0][1].angles.size != count:
            sizes = [count, *(use.mask.size for use, _ in self._ahead)]
            ends = np.cumsum(sizes)
            ends = ends[: max(int(np.searchsorted(ends, _WAVES_AT_ONCE, side="right")), 1)]
            made = await self.source.make_waves(int(ends[-1]), bits)
            self._waves.clear()
            for start, end in zip([0, *ends[:-1]], ends, strict=True):
                part = slice(int(start), int(end))
                self._waves.append((bits, Wave(made.angles[part], made.sines[:, part], made.cosines[:, part])))
        return self._waves.popleft()[1]

    async def prepare(self, tasks: Sequence[LinearTask], uses: int) -> list[deque[Linear]]:
        """Make correlations; see `Correlations.make_linear`."""
        return await self.source.make_linear(tasks, uses)


def encode_values(values: np.ndarray, bits: int) -> np.ndarray:
    """Real numbers with many fractional bits as words, rounded to nearest: small numbers, at most 2^(62 − bits)."""
    limit = 2.0 ** (62 - bits)
    if values.size and not np.abs(values).max() < limit:
        raise MalformedError(f"a value is not finite or above {limit:g}; with {bits} fractional bits it would wrap")
    found: np.ndarray = np.rint(np.ldexp(np.asarray(values, np.float64), bits)).astype(np.int64).view(np.uint64)
    return found


def _pack_angles(angles: np.ndarray) -> np.ndarray:
    octets = angles.astype("<u4").view(np.uint8).reshape(-1, 4)
    return np.ascontiguousarray(octets[:, :_ANGLE_BYTES])


def _unpack_angles(packed: np.ndarray) -> np.ndarray:
    """Read angles.

    Raises:
        MalformedError: a number of more than 21 bits.
    """
    wide = np.zeros((len(packed), 4), np.uint8)
    wide[:, :_ANGLE_BYTES] = packed
    found = wide.view("<u4").reshape(-1).astype(np.int64)
    if found.size and found.max() >= 1 << ANGLE_BITS:
        raise MalformedError(f"an angle has more than {ANGLE_BITS} bits; nothing was computed from it")
    return found


def _wipe(*spent: np.ndarray) -> None:
    for words in spent:
        words.fill(0)


def _draw_words(shape: tuple[int, ...]) -> np.ndarray:
    import os

    size = int(np.prod(shape))
    return np.frombuffer(os.urandom(8 * size), np.uint64).reshape(shape)
