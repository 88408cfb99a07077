"""Piecewise linear fits of the smooth functions, as integers.

Knots are dense where the curvature is large. Values come from a linear programme that minimises the largest error over
a fine grid; slopes are rounded to their bits, and the rounding error of each is carried to the next. They are constants
because the three parties need the same values to the last bit, and a solver's result may differ between machines.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TypeAlias

from securevfl_crypto.errors import MalformedError
from securevfl_crypto.replicated.curves import Curve

__all__ = [
    "INVERSE_BITS",
    "SLOPE_BITS",
    "WIDEST",
    "exponential_curve",
    "logarithm_curve",
    "reciprocal_curve",
    "sigmoid_curve",
    "softplus_curve",
]

SLOPE_BITS = 12
"""Fractional bits that a smooth curve adds to those of its argument."""
INVERSE_BITS = 16
"""The same for `reciprocal_curve`."""
WIDEST = 64
"""The largest argument of `reciprocal_curve` and `logarithm_curve`, and so the most values that a softmax takes."""

_UNITS = 16  # fractional bits of the thresholds below

_Knots: TypeAlias = tuple[tuple[int, ...], tuple[int, ...]]  # thresholds; changes of slope in units of 2^-SLOPE_BITS

# fmt: off
_SIGMOID: _Knots = (
    (
        -392971, -247073, -176234, -125742, -82532, -37548, 37548, 82532, 125742, 176234, 247073, 392971,
    ),
    (
        37, 119, 185, 237, 254, 184, -184, -254, -237, -185, -119, -37,
    ),
)

_SOFTPLUS: _Knots = (
    (
        -491520, -343583, -275409, -230317, -196321, -168807, -145504, -125121, -106849, -90145, -74622,
        -59992, -46030, -32552, -19404, -6447, 6447, 19404, 32552, 46030, 59992, 74622, 90145, 106849, 125121,
        145504, 168807, 196321, 230317, 275409, 343583, 491520,
    ),
    (
        8, 31, 47, 67, 87, 102, 120, 136, 148, 162, 173, 182, 189, 196, 202, 195, 204, 199, 196, 189, 182, 173,
        162, 149, 134, 120, 104, 85, 69, 47, 29, 9,
    ),
)

_EXPONENTIAL: _Knots = (
    (
        -458752, -288228, -216505, -170401, -136359, -109359, -86980, -67871, -51196, -36405, -23114, -11048,
        0,
    ),
    (
        16, 75, 128, 179, 235, 287, 342, 393, 450, 545, 460, 715, -3825,
    ),
)

_INVERSE: _Knots = (
    (
        65536, 74632, 84990, 96785, 110218, 125515, 142935, 162773, 185364, 211090, 240387, 273750, 311744,
        355010, 404281, 460391, 524288, 597053, 679917, 774282, 881744, 1004120, 1143480, 1302182, 1482910,
        1688722, 1923097, 2190001, 2493948, 2840080, 3234251, 3683128, 4194304,
    ),
    (
        -58790, 15505, 8325, 9223, 4953, 5146, 3572, 2768, 2123, 1646, 1263, 979, 750, 583, 445, 347, 265, 206,
        158, 122, 94, 73, 55, 44, 33, 25, 21, 14, 13, 8, 8, 4, 19,
    ),
)

_LOGARITHM: _Knots = (
    (
        65536, 72911, 81116, 90244, 100399, 111697, 124266, 138250, 153808, 171116, 190372, 211795, 235628,
        262144, 291643, 324463, 360975, 401596, 446788, 497066, 553001, 615231, 684464, 761488, 847179, 942514,
        1048576, 1166574, 1297850, 1443899, 1606383, 1787152, 1988263, 2212005, 2460925, 2737856, 3045951,
        3388717, 3770054, 4194304,
    ),
    (
        3882, -394, -352, -317, -285, -257, -230, -207, -186, -167, -151, -135, -122, -108, -99, -88, -79, -72,
        -63, -59, -51, -46, -43, -37, -33, -31, -28, -24, -22, -20, -17, -17, -14, -13, -12, -10, -9, -9, -8,
        -67,
    ),
)
# fmt: on
_LOGARITHM_AT_ONE = 190513  # in units of 2^-(16 + SLOPE_BITS)


@lru_cache
def sigmoid_curve(fraction: int) -> Curve:
    """1 / (1 + exp(−y)) in thirteen pieces: error at most 0.0027, exact at 0, 0 below −6 and 1 above 6."""
    return _curve_through(_SIGMOID, fraction)


@lru_cache
def softplus_curve(fraction: int) -> Curve:
    """log(1 + exp(y)) in 33 pieces: error at most 0.0009."""
    return _curve_through(_SOFTPLUS, fraction)


@lru_cache
def exponential_curve(fraction: int) -> Curve:
    """exp(y) for y ≤ 0 in thirteen pieces: error at most 0.0024, 1 at 0, 0 below −7."""
    return _curve_through(_EXPONENTIAL, fraction)


@lru_cache
def reciprocal_curve(fraction: int, largest: int) -> Curve:
    """1 / y for 1 ≤ y ≤ largest ≤ 64: relative error at most 0.0031 up to 16 and 0.0065 beyond, exact at 1.

    It adds `INVERSE_BITS` fractional bits.
    """
    return _curve_through(_knots_up_to(_INVERSE, largest), fraction, 1 << (fraction + INVERSE_BITS))


@lru_cache
def logarithm_curve(fraction: int, largest: int) -> Curve:
    """log(y) for 1 ≤ y ≤ largest ≤ 64: error at most 0.0011."""
    return _curve_through(_knots_up_to(_LOGARITHM, largest), fraction, _scale_units(_LOGARITHM_AT_ONE, fraction))


def _knots_up_to(knots: _Knots, largest: int) -> _Knots:
    if not 1 <= largest <= WIDEST:
        raise MalformedError(f"an argument up to {largest}; expected 1 to {WIDEST}")
    count = sum(threshold < max(largest, 2) << _UNITS for threshold in knots[0])
    return knots[0][:count], knots[1][:count]


def _curve_through(knots: _Knots, fraction: int, start: int = 0) -> Curve:
    return Curve(tuple(_scale_units(threshold, fraction) for threshold in knots[0]), knots[1], start=start)


def _scale_units(units: int, fraction: int) -> int:
    more = fraction - _UNITS
    return units << more if more >= 0 else (units + (1 << (-more - 1))) >> -more
