"""Ranks over tables: mean ranks by hand, Nemenyi's distance as printed, and the level on methods that are equal."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import studentized_range

from securevfl.errors import InputError
from securevfl.report.ranks import rank_methods


def test_mean_ranks_share_ties_and_are_in_order() -> None:
    found = rank_methods({"a": [0.9, 0.8, 0.7], "b": [0.9, 0.7, 0.6], "c": [0.5, 0.9, 0.8]})
    assert dict(found.ranks) == pytest.approx({"a": (1.5 + 2 + 2) / 3, "b": (1.5 + 3 + 3) / 3, "c": (3 + 1 + 1) / 3})
    assert list(found.ranks) == ["c", "a", "b"]
    assert found.tables == 3


@pytest.mark.parametrize(("methods", "tables", "distance"), [(4, 14, 1.25), (5, 30, 1.11), (10, 20, 3.03)])
def test_the_distance_is_that_of_demsar(methods: int, tables: int, distance: float) -> None:
    """2.569, 2.728 and 3.164 (Demšar 2006, Table 5a), times √(k (k + 1) / 6 N)."""
    values = np.random.default_rng(0).normal(size=(methods, tables)).tolist()
    found = rank_methods({str(i): row for i, row in enumerate(values)})
    assert found.distance == pytest.approx(distance, abs=0.005)


def test_nemenyi_is_that_of_scikit_posthocs() -> None:
    """p = 0.0485 between ranks 28/6 and 13/6 of five methods on six tables, by `posthoc_nemenyi_friedman` 0.17.1."""
    values = np.random.default_rng(4).normal(size=(6, 5)) + np.arange(5) * 0.8
    found = rank_methods({str(i): values[:, i].tolist() for i in range(5)})
    gap = found.ranks["0"] - found.ranks["4"]
    assert gap == pytest.approx(2.5)
    assert studentized_range.sf(gap * np.sqrt(2) / np.sqrt(5 * 6 / 36), 5, np.inf) == pytest.approx(0.0485, abs=5e-5)
    assert gap > found.distance > gap - 0.02


def test_equal_methods_differ_in_five_of_a_hundred() -> None:
    rng = np.random.default_rng(3)
    tests = far = 0
    for _ in range(1_000):
        found = rank_methods({str(i): row for i, row in enumerate(rng.normal(size=(5, 8)).tolist())})
        ranks = list(found.ranks.values())
        tests += found.p <= 0.05
        far += ranks[-1] - ranks[0] > found.distance
    assert 30 <= tests <= 72  # 50, and three standard errors
    assert far <= 72
    rising = {str(i): (rng.normal(size=8) + 2 * i).tolist() for i in range(5)}
    assert rank_methods(rising).p < 1e-6
    assert rank_methods({name: [0.5, 0.6] for name in "abc"}).p == 1.0
    assert rank_methods({name: [k, k] for k, name in enumerate("abc")}).p == 0.0


@pytest.mark.parametrize(
    "figures",
    [{"a": [0.1, 0.2], "b": [0.1, 0.2]}, {n: [0.1] for n in "abc"}, {"a": [0.1, 0.2], "b": [0.1], "c": [0.1, 0.3]},
     {"a": [0.1, float("nan")], "b": [0.1, 0.2], "c": [0.1, 0.3]}],
)  # fmt: skip
def test_what_cannot_be_ranked_is_told(figures: dict[str, list[float]]) -> None:
    with pytest.raises(InputError, match=r"three or more methods|not finite"):
        rank_methods(figures)
