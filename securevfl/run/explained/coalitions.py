"""Split a score among parties by Shapley values, from scores of rows that mix persons.

The players are the parties (grouped Shapley values: Owen 1977 and Lundberg & Lee 2017, arXiv 1705.07874, with all
columns of a party as one player). What a set S of parties is worth for a row x is the mean score of the rows in which
the parties of S have the columns of x, and all others those of a background person z, over B persons z:
``v(S) = mean_z f(x_S, z_rest)``. That is the interventional value function (Janzing et al. 2020, arXiv 1910.13413): a
background person gives the columns of all absent parties together, whatever the present ones have. Party p's value is
the mean of ``v(S ∪ p) − v(S)`` over all orders in which parties can join (Shapley 1953), computed exactly from all 2^P
sets. The values add up to ``f(x) − mean_z f(z)``.

A mixed row is a row to score like any other, so every protection and every count of answers is that of a prediction.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import factorial

import numpy as np

from securevfl.errors import InputError

__all__ = ["MOST_PARTIES", "Coalitions", "draw_background"]

MOST_PARTIES = 6
"""Most parties: of more, 2^P sets are too many to score."""


@dataclass(frozen=True, kw_only=True)
class Coalitions:
    """The mixed rows that explain some rows.

    Attributes:
        players: names of the parties.
        explained: positions of the rows to explain among the aligned rows, int64 (n,).
        background: positions of the background persons, (B,), each once.

    Raises:
        InputError: more parties than `MOST_PARTIES`, or no background.
    """

    players: tuple[str, ...]
    explained: np.ndarray = field(repr=False)
    background: np.ndarray = field(repr=False)

    def __post_init__(self) -> None:
        if len(self.players) > MOST_PARTIES:
            raise InputError(
                f"{len(self.players)} parties have 2^{len(self.players)} sets, and scores are split among at most "
                f"{MOST_PARTIES} parties: explain an additive model, a scorecard or a logistic regression by its terms"
            )
        if not len(self.background):
            raise InputError("background is 0; a score is compared with that of at least 1 other person")

    @property
    def _sets(self) -> range:
        """Proper sets with a member, as bits: those whose rows mix persons."""
        return range(1, (1 << len(self.players)) - 1)

    @property
    def rows(self) -> int:
        """How many rows are scored."""
        return len(self.explained) * (1 + len(self._sets) * len(self.background)) + len(self.background)

    def answers(self, player: str) -> tuple[int, int]:
        """How often the columns of an explained row, and of a background person, are scored at one party.

        A row that is both is scored as often as the two together.
        """
        bit = 1 << self.players.index(player)
        present = sum(bool(chosen & bit) for chosen in self._sets)
        absent = len(self._sets) - present
        return 1 + present * len(self.background), 1 + absent * len(self.explained)

    def places(self, player: str) -> np.ndarray:
        """Whose columns a party brings to each scored row: positions among the aligned rows, int64 (rows,).

        First come the explained rows as they are, then the background, then each set's mixed rows: of each explained
        row, one with each background person.
        """
        bit, count = 1 << self.players.index(player), len(self.background)
        own, other = np.repeat(self.explained, count), np.tile(self.background, len(self.explained))
        mixed = [own if chosen & bit else other for chosen in self._sets]
        return np.concatenate([self.explained, self.background, *mixed]).astype(np.int64)

    def split(self, scores: np.ndarray) -> tuple[np.ndarray, float]:
        """Each party's value in each explained row, (n, players), and the baseline: the mean score of the background.

        Args:
            scores: of all rows, in the order of `places`, (rows,).
        """
        n, count, parties = len(self.explained), len(self.background), len(self.players)
        whole, background, mixed = np.split(np.asarray(scores, np.float64), [n, n + count])
        baseline = float(background.mean())
        worth = np.empty((1 << parties, n))
        worth[0], worth[-1] = baseline, whole
        if len(self._sets):
            worth[1:-1] = mixed.reshape(len(self._sets), n, count).mean(axis=2)
        found = np.zeros((n, parties))
        for chosen in range(1 << parties):
            size = chosen.bit_count()
            for player in range(parties):
                if not chosen >> player & 1:
                    share = factorial(size) * factorial(parties - size - 1) / factorial(parties)
                    found[:, player] += share * (worth[chosen | 1 << player] - worth[chosen])
        return found, baseline


def draw_background(count: int, common: int, seed: int, explained: Sequence[int]) -> np.ndarray:
    """Draw background persons among the aligned rows; those that are explained only where too few others are there.

    Args:
        count: how many at most.
        common: number of aligned rows.
        seed: of the job.
        explained: positions of explained rows.
    """
    drawn = np.random.default_rng([seed, common]).permutation(common)
    last = np.isin(drawn, np.asarray(explained, np.int64))
    return np.sort(np.concatenate([drawn[~last], drawn[last]])[:count])
