"""Whether noise is what its ε says: one-sided tests of AUCs, and what they would have found.

An AUC of n positive and m negative rows is normal enough about what ε permits, with the error of Hanley and McNeil
(1982) there. A test rejects at `LEVEL` divided by the number of tests in the run, so that an honest run fails once in a
hundred. A test that cannot reject proves nothing: each states the smallest excess over the permitted AUC that it finds
with probability `POWER`, and the gate fails where that is more than `EXCESS`, or `EXCESS_OF_RARE` for a secret of fewer
rows than `RARE`.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import NormalDist

import msgspec

from securevfl.attacks.measure import auc_error

__all__ = ["EXCESS", "EXCESS_OF_RARE", "LEVEL", "POWER", "Ranked", "broken_tests", "excess_found", "rejects"]

LEVEL = 0.01
POWER = 0.9
EXCESS = 0.1
EXCESS_OF_RARE = 0.2
RARE = 0.1
_CERTAIN = 0.9
"""A permitted AUC above which there is no room for an excess."""

_NORMAL = NormalDist()


class Ranked(msgspec.Struct, frozen=True, kw_only=True):
    """A secret that only noise hides, as one attack ranks it."""

    what: str
    """labels, or an attribute"""
    attack: str
    value: float
    """AUC; of the better sign where the attack leaves it open"""
    bound: float
    """AUC that ε permits"""
    positive: int
    """rows that have the secret"""
    negative: int

    @property
    def share(self) -> float:
        """Of the rarer kind of rows."""
        return min(self.positive, self.negative) / max(self.positive + self.negative, 1)


def _threshold(one: Ranked, tests: int) -> float:
    """The AUC above which the test rejects; two-sided, for attacks whose sign is open take the better of two."""
    sure = _NORMAL.inv_cdf(1 - LEVEL / (2 * max(tests, 1)))
    return one.bound + sure * auc_error(one.bound, one.positive, one.negative)


def rejects(one: Ranked, tests: int) -> bool:
    """Whether this AUC is more than chance makes of what ε permits.

    Args:
        one: as measured.
        tests: in the whole run.
    """
    return not one.value <= _threshold(one, tests)


def excess_found(one: Ranked, tests: int) -> float:
    """The smallest excess over the permitted AUC that the test finds with probability `POWER`.

    Args:
        one: its number of rows counts, not its value.
        tests: in the whole run.
    """
    least, low, high = _threshold(one, tests), 0.0, 1.0 - one.bound
    for _ in range(40):
        middle = (low + high) / 2
        true = min(one.bound + middle, 1.0)
        error = max(auc_error(true, one.positive, one.negative), 1e-9)
        if _NORMAL.cdf((true - least) / error) >= POWER:
            high = middle
        else:
            low = middle
    return high


def broken_tests(ranked: Sequence[tuple[str, Ranked]]) -> list[str]:
    """What is wrong with the noise of a run, and with the tests of it, in words.

    Args:
        ranked: cell's name and what was ranked in it, of all cells.
    """
    found = []
    for name, one in ranked:
        if rejects(one, len(ranked)):
            found.append(
                f"{name}: {one.attack} ranks {one.what} with AUC {one.value:.3f}, its ε permits {one.bound:.3f}, and "
                f"chance gives {_threshold(one, len(ranked)):.3f} once in {1 / LEVEL:.0f} runs"
            )
        excess = excess_found(one, len(ranked))
        most = EXCESS if one.share >= RARE else EXCESS_OF_RARE
        if one.bound < _CERTAIN and excess > most:
            found.append(
                f"{name}: the test of {one.what} by {one.attack} finds an excess of {excess:.2f} with probability "
                f"{POWER:g}, and {most:g} has to be found: it needs more rows than {one.positive} + {one.negative}"
            )
    return found
