"""Functions of a shared value as short sums of waves, so that neither a comparison nor a truncation is needed.

A value z with 16 fractional bits is an angle: it turns once every 32. A function of z is written as

    f(z) ≈ Σ_k a_k sin(2πkz / 32)      or      f(z) ≈ Σ_k b_k cos(2πkz / 32),   k up to 8,

within |z| ≤ 12. If c = z + r modulo 32 is opened, for a random r of which both parties have shares of sin(2πkr/32) and
cos(2πkr/32), each party computes its share of f(z) from c alone, because sin(c − r) = sin c cos r − cos c sin r
(Boura, Chillotti, Gama, Jetchev, Peceny and Petric, Financial Cryptography 2018).

The public factors are whole numbers that both parties compute by integer arithmetic: a factor that differed in its last
bit at one of them would move the result by the largest words there are. The coefficients here were fitted once, for the
smallest largest error; the tests measure that error again.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import numpy as np

from securevfl_crypto.errors import MalformedError

__all__ = [
    "ANGLES",
    "ANGLE_BITS",
    "CLIPPED_ERROR",
    "CURVES",
    "HUBER",
    "PERIOD",
    "SIGMOID",
    "SOFTPLUS",
    "SQUARE",
    "WAVES",
    "WITHIN",
    "Curve",
    "Factors",
    "find_multiples",
    "find_sines",
]

PERIOD = 32
"""A value and the value plus this have one angle."""

FRACTION_BITS = 16
"""Fractional bits of a value's angle."""

ANGLE_BITS = FRACTION_BITS + 5
ANGLES = 1 << ANGLE_BITS
"""Different angles."""

WITHIN = 12.0
"""The functions are fitted for values up to this size."""

WAVES = 8
"""The highest multiple of the base frequency."""

_COEFFICIENT_BITS = 24
_SINE_BITS = 30
_SPARE = 10
_FINE_BITS = 10
_WORK_BITS = 90
_AT_ONCE = 1024
"""Angles of which all multiples are looked up at a time: their arrays stay in the cache."""
_PI = 314159265358979323846264338327950288419716939937510582097494459230781640628620899
_PI_DIGITS = 80


@dataclass(frozen=True, slots=True)
class Curve:
    """A function as a sum of waves.

    Attributes:
        name: in messages.
        coefficients: in units of 2^-24: of the sines of 1 to 8 times the angle, or of the cosines of 0 to 8 times it.
        even: whether these are cosines.
        error: the largest error for |z| ≤ 12.
        largest: the largest value for any z.
    """

    name: str
    coefficients: tuple[int, ...]
    even: bool
    error: float
    largest: float


SIGMOID = Curve("sigmoid", (10169362, -214374, 2337838, -161045, 693212, -25932, 163269, 45925), False, 0.0024, 0.5035)
"""1 / (1 + e^-z) − ½."""

CLIPPED_ERROR = Curve(
    "clipped error",
    (63541974, -5586200, 19322524, -8045667, 8647118, -6674515, 3063837, -3852728),
    False,
    0.084,
    4.06,
)
"""z where |z| ≤ 3, and ±3 beyond: the derivative of the Huber loss."""

SOFTPLUS = Curve(
    "softplus", (68006089, -52787942, 1430010, -4690386, 741781, -1064702, 230925, -221703, 12286), True, 0.0018, 7.71
)
"""log(1 + e^z) − z/2."""

SQUARE = Curve(
    "square", (3650591, -935580, -900195, -513701, -582775, -142591, -338047, -541, -176990), True, 0.0038, 0.28
)
"""(1 / (1 + e^-z) − ½)²."""

HUBER = Curve(
    "huber",
    (332398795, -318123320, 9532956, -28622934, 7058185, -6467121, 4039476, -1358058, 1648163),
    True,
    0.024,
    42.3,
)
"""z²/2 where |z| ≤ 3, and 3 |z| − 4.5 beyond."""

CURVES = (SIGMOID, CLIPPED_ERROR, SOFTPLUS, SQUARE, HUBER)


class Factors:
    """The public factors of one curve: integers, the same on every machine.

    Args:
        curve: the function.
        scale: what its values are multiplied by, exactly: a step's rate, for example.
        unit_bits: fractional bits of the result.
        bits: for k from 1, fractional bits of the two parties' sines of k times their angles; shares of the sine of k
            times the sum have as many as both.

    Raises:
        MalformedError: the result has too few bits for this scale, so that a factor would be rounded to nothing.
    """

    def __init__(self, curve: Curve, scale: float, unit_bits: int, bits: Sequence[tuple[int, int]]) -> None:
        self.curve = curve
        first = 0 if curve.even else 1
        self._bound = curve.largest
        for k, coefficient in enumerate(curve.coefficients, first):
            if not k:
                continue
            # Of the sum of two products, each of one sine of each party, which are off by 2^-own and by half of
            # 2^-other at most; and half a unit of a factor, times a sine.
            own, other = bits[k - 1]
            sine_error = 2.0**-own + 2.0**-other
            factor_error = 2.0 ** (own + other - unit_bits - 1) / abs(scale)
            self._bound += 2 * (abs(coefficient) * 2.0**-_COEFFICIENT_BITS * sine_error + factor_error)
        scaled = []
        for k, coefficient in enumerate(curve.coefficients, first):
            power = unit_bits - _COEFFICIENT_BITS + _SPARE - (sum(bits[k - 1]) if k else 0)
            scaled.append(round(Fraction(scale) * coefficient * Fraction(2) ** power))
        constant, waves = (scaled[0], scaled[1:]) if curve.even else (0, scaled)
        top = max(abs(factor) for factor in waves)
        if not 1 << (_SPARE + 3) <= top < 1 << 62 - _SINE_BITS:
            raise MalformedError(
                f"factors of the curve {curve.name!r} at the scale {scale:.4g} have {top.bit_length() - _SPARE} bits; "
                f"4 to {61 - _SINE_BITS - _SPARE} are possible"
            )
        self._constant = np.uint64((constant >> _SPARE) % (1 << 64))
        self._waves = np.array(waves, dtype=np.int64)[:, None]

    def bound_values(self) -> float:
        """The largest size of the computed curve, before it is scaled, for any opened angle and any mask: that of the
        curve, and what rounding of sines, shares and factors can add."""
        return self._bound

    def combine(self, opened: np.ndarray, sines: np.ndarray, cosines: np.ndarray, *, first: bool) -> np.ndarray:
        """This party's share of the scaled curve, uint64 (n,).

        Args:
            opened: the opened angles, int64 (n,), below 2^21.
            sines: this party's shares of the sines of k times the mask, uint64 (k, n).
            cosines: and of the cosines.
            first: whether this is the party that adds constants.
        """
        shift = _SINE_BITS + _SPARE
        factors = find_multiples(opened, [_SINE_BITS] * len(self._waves))
        factors *= self._waves
        factors += np.int64(1 << (shift - 1))
        factors >>= np.int64(shift)
        by_sine, by_cosine = factors.view(np.uint64)
        if self.curve.even:
            by_cosine *= cosines
            by_sine *= sines
            by_cosine += by_sine
            total: np.ndarray = by_cosine.sum(axis=0, dtype=np.uint64)
            return total + self._constant if first else total
        by_sine *= cosines
        by_cosine *= sines
        by_sine -= by_cosine
        return np.asarray(by_sine.sum(axis=0, dtype=np.uint64))


def find_multiples(angles: np.ndarray, bits: Sequence[int]) -> np.ndarray:
    """Sines and cosines of 1, 2, … times angles, as `find_sines` computes them: int64 (2, multiples, n).

    Args:
        angles: int64 (n,), in units of 2^-21 of a turn.
        bits: fractional bits for each multiple, at most 30.
    """
    found = np.empty((2, len(bits), angles.size), np.int64)
    multiples = np.arange(1, len(bits) + 1, dtype=np.int64)[:, None]
    shift = 2 * _SINE_BITS - np.array(bits, dtype=np.int64)[:, None]
    for start in range(0, angles.size, _AT_ONCE):
        part = slice(start, start + _AT_ONCE)
        found[:, :, part] = _look_up(multiples * angles[part], shift)
    return found


def find_sines(angles: np.ndarray, bits: int = _SINE_BITS) -> tuple[np.ndarray, np.ndarray]:
    """Sines and cosines of angles, int64 with so many fractional bits, by integer arithmetic alone.

    Args:
        angles: int64, in units of 2^-21 of a turn.
        bits: at most 30.
    """
    sine, cosine = _look_up(angles, np.int64(2 * _SINE_BITS - bits))
    return sine, cosine


def _look_up(angles: np.ndarray, shift: np.ndarray | np.int64) -> tuple[np.ndarray, np.ndarray]:
    """Sine and cosine of a coarse angle plus a fine one, with 60 bits, rounded to `shift` fewer."""
    coarse, fine = _tables()
    high, low = (angles >> _FINE_BITS) & (len(coarse[0]) - 1), angles & (len(fine[0]) - 1)
    a, b, c, d = coarse[0][high], coarse[1][high], fine[0][low], fine[1][low]
    half = np.int64(1) << (shift - np.int64(1))
    return (a * d + b * c + half) >> shift, (b * d - a * c + half) >> shift


@lru_cache(maxsize=1)
def _tables() -> tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]:
    """Sine and cosine of the multiples of 2^-11 of a turn, and of those of 2^-21 below it, with 30 bits."""
    return _make_table(1 << (ANGLE_BITS - _FINE_BITS), 1 << _FINE_BITS), _make_table(1 << _FINE_BITS, 1)


def _make_table(count: int, step: int) -> tuple[np.ndarray, np.ndarray]:
    pairs = [_sine_and_cosine(number * step) for number in range(count)]
    sines, cosines = (np.array(values, dtype=np.int64) for values in zip(*pairs, strict=True))
    return sines, cosines


def _sine_and_cosine(angle: int) -> tuple[int, int]:
    """An angle is reduced to at most an eighth of a turn first."""
    eighth = ANGLES >> 3
    octant, rest = divmod(angle, eighth)
    s, c = _sum_series(eighth - rest if octant % 2 else rest)
    quarter, second = divmod(octant, 2)
    if second:
        s, c = c, s
    for _ in range(quarter):
        s, c = c, -s
    return s, c


@lru_cache(maxsize=512)
def _sum_series(rest: int) -> tuple[int, int]:
    """Sine and cosine by Taylor's series, in whole numbers."""
    x = (2 * rest * _PI << _WORK_BITS) // (10**_PI_DIGITS * ANGLES)
    term, sine, cosine = 1 << _WORK_BITS, 0, 0
    n = 0
    while term:
        if n % 2:
            sine += term if n % 4 == 1 else -term
        else:
            cosine += term if n % 4 == 0 else -term
        n += 1
        term = (term * x >> _WORK_BITS) // n
    down = _WORK_BITS - _SINE_BITS
    return (sine + (1 << (down - 1))) >> down, (cosine + (1 << (down - 1))) >> down


def choose_wave_bits(curve: Curve, scale: float, unit_bits: int, most: int = 10) -> tuple[tuple[int, int], ...]:
    """How finely the two parties' sines are rounded, for k from 1: as fine as the factors leave room.

    Args:
        curve: what is computed.
        scale: see `Factors`.
        unit_bits: likewise.
        most: bits of the first party's sines of the largest wave.

    Returns:
        For each k, fractional bits of the first party's sines, and of the second one's.
    """
    first = 1 if curve.even else 0
    sizes = [max(abs(value), 1) for value in curve.coefficients[first:]]
    top = math.log2(max(sizes))
    room = unit_bits + math.log2(abs(scale) * max(sizes)) - _COEFFICIENT_BITS
    other = int(min(most - 1, max(4, room - most - 8)))
    return tuple((int(min(most, max(4, math.ceil(most + math.log2(size) - top)))), other) for size in sizes)
