"""What n numbers about each row give away of a table: known answers, and what never changes."""

from __future__ import annotations

import numpy as np
import pytest

from securevfl.attacks.learned_share import LEAST_ROWS, LearnedShare, compute_share, compute_shares


def _normal(rows: int, columns: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(rows, columns))


def test_two_equal_columns_are_one_number() -> None:
    one = _normal(3000, 1)
    assert compute_share(np.hstack([one, one]), 1).share == 1.0
    assert compute_share(np.hstack([one, -3 * one + 5]), 1).share == 1.0


@pytest.mark.parametrize("numbers", [1, 2])
def test_of_independent_columns_a_number_is_one(numbers: int) -> None:
    found = compute_share(_normal(3000, 5), numbers)
    assert numbers / 5 <= found.share <= numbers / 5 + 0.1
    assert (found.columns, found.known, found.judged) == (5, 1000, 2000)


def test_the_share_never_falls_and_is_at_most_one() -> None:
    mixed = _normal(300, 6) @ _normal(6, 6, seed=1)
    shares = [one.share for one in compute_shares(mixed, [1, 2, 3, 4, 5, 6, 20])]
    assert shares == sorted(shares)
    assert shares[-1] == 1.0
    assert all((20 * share) == pytest.approx(round(20 * share)) for share in shares)


def test_trees_find_what_no_eigenvalue_tells() -> None:
    """Columns that are functions of one number, uncorrelated with each other."""
    x = np.random.default_rng(0).uniform(-1, 1, 4000)
    waves = np.column_stack([np.cos(k * np.pi * x) for k in (1, 2, 3, 4)] + [x])
    spectrum = np.linalg.eigvalsh(np.corrcoef(waves.T))
    assert spectrum[-1] / len(spectrum) < 0.4
    assert compute_share(waves, 1).share >= 0.9


def test_one_number_packs_eight_columns_of_two_values() -> None:
    bits = np.random.default_rng(0).integers(0, 2, (600, 8))
    assert compute_share(bits, 1).share == 1.0
    assert compute_share(np.hstack([bits, _normal(600, 8)]), 1).share == pytest.approx(0.5, abs=0.1)
    codes = np.random.default_rng(0).integers(0, 16, (1000, 4))
    assert compute_share(codes, 1).share == pytest.approx(0.5, abs=0.1)


def test_a_category_counts_as_one_column() -> None:
    kind = np.random.default_rng(0).integers(0, 5, 3000)
    table = np.hstack([np.eye(5)[kind], _normal(3000, 4)])
    found = compute_share(table, 1, columns=[0] * 5 + [1, 2, 3, 4])
    assert found.columns == 5
    assert found.share == pytest.approx(0.25, abs=0.06)


def test_small_tables_and_columns_without_spread() -> None:
    constant = np.hstack([_normal(500, 6), np.ones((500, 3))])
    found = compute_share(constant, 1)
    assert (found.columns, found.known, found.judged) == (6, 250, 250)
    assert compute_share(_normal(500, 1), 1) == LearnedShare(1.0, 1, 1, 250, 250)
    assert compute_share(_normal(LEAST_ROWS - 1, 6), 1).share == 1.0


def test_one_outlier_is_not_the_column() -> None:
    table = _normal(1000, 6)
    table[0] = 1e9
    assert compute_share(table, 1).share < 0.5


def test_what_is_no_table_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        compute_share(_normal(100, 3), 0)
    with pytest.raises(ValueError, match="that rise"):
        compute_shares(_normal(100, 3), [2, 1])
    with pytest.raises(ValueError, match="finite"):
        compute_share(np.full((100, 3), np.nan), 1)


def test_the_same_table_gives_the_same_share() -> None:
    table = _normal(300, 4)
    assert compute_share(table, 2) == compute_share(table.copy(), 2)
