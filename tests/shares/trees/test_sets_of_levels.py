"""Categories with few levels are split into any two sets of them, in one split and without an order; what all parties
are told of that is checked before anything is made of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from securevfl_crypto.replicated import Clear
from support.shared_trees import BinnedTable, boost, opened, run_clear

import securevfl as sv
from securevfl.algorithms.boosting.on_shares import KeptBins
from securevfl.data import Parties
from securevfl.errors import InputError, ProtocolError
from securevfl.shares.trees import CellLayout, SharedTree, TreeRule, programs
from securevfl.training.tree_terms import CELLS, count_sets, fits_sets
from securevfl.transport import Kind, Message

RULE = TreeRule(depth=1, l2=1.0, min_hessian=0.0, min_gain=0.0, rate=0.3, gradient_bits=16, rows=600)


@pytest.mark.parametrize("lacks", [False, True])
def test_levels_that_no_order_parts_are_parted_by_one_split(lacks: bool) -> None:
    """Even levels go one way, odd ones the other, and missing values with the odd ones."""
    layout = CellLayout((6,), (lacks,), (0,), (0,), parted=(True,))
    table = BinnedTable.draw(layout, 600)
    labels = ((table.bins[0] % 2 == 1) | (table.bins[0] == 6)).astype(float)[:, None]

    async def program(engine: Clear) -> SharedTree:
        grown, _, _ = await boost(engine, table, "logistic", np.zeros((1, 600)), labels, RULE)
        return grown[0][0]

    tree = run_clear(program)
    assert opened(tree.chosen[0]).sum() == 1
    assert opened(tree.sides[0])[0].tolist() == [1, 0, 1, 0, 1, 0, *([0] if lacks else [])]


def test_sets_are_no_more_candidates_than_a_number_has() -> None:
    assert [count_sets(cells) for cells in (1, 2, 3, 7)] == [0, 1, 3, 63]
    assert [max(cells for cells in range(1, 300) if fits_sets(cells, bins)) for bins in (2, 8, 16, 32, 255)] == [
        3,
        5,
        6,
        7,
        9,
    ]
    assert not fits_sets(1 << 40, 32)  # without a number of that many bits
    assert CellLayout((5, 4), (True, False), (0, 0), (0, 0), parted=(True, False)).candidates == (31, 3)
    with pytest.raises(InputError, match="no direction"):
        CellLayout((3,), (False,), (1,), (0,), parted=(True,))


def test_a_party_parts_its_categories_with_few_levels() -> None:
    """Seven cells at 32 bins, that of missing values among them; numbers and more levels keep their order."""
    n = 4000
    generator = np.random.default_rng(0)
    levels = (7, 7, 8, 0)
    x = np.stack([generator.integers(0, many or 7, n).astype(float) for many in levels], axis=1)
    x[:5, 1] = np.nan
    kept = KeptBins()
    kept.fit(x, 32, levels, np.zeros(4, np.int64))
    assert kept.columns.parted == (True, False, False, False)
    again = KeptBins()
    again.restore(kept.snapshot())
    assert again.columns == kept.columns


def _told(**changed: Any) -> Message:
    arrays = {"counts": [2], "bins": [4, 3], "missing": [1, 0], "directions": [0, 1], "parted": [1, 0]} | changed
    return Message(Kind.CONTROL, CELLS, {name: np.array(values, np.int64) for name, values in arrays.items()})


def test_a_column_with_too_many_sets_is_refused_before_any_is_made() -> None:
    (found,) = programs._read_columns(_told(), "shop", 1, 16)
    assert found.parted == (True, False)
    for changed in (
        {"parted": [1, 1]},  # the second has a direction
        {"bins": [16, 3]},  # 2^16 − 1 sets
        {"parted": [2, 0]},
        {"parted": [1]},
    ):
        with pytest.raises(ProtocolError, match="'shop' tells"):
            programs._read_columns(_told(**changed), "shop", 1, 16)


@pytest.fixture(scope="module")
def people() -> Parties:
    """Labels follow a passive party's colours by sets that no order parts."""
    generator = np.random.default_rng(1)
    ids = [f"c{i}" for i in range(1500)]
    colour = generator.integers(0, 6, 1500)
    label = np.where(generator.random(1500) < 0.9, colour % 2, 1 - colour % 2)
    noise = generator.normal(size=(1500, 3))
    bank = pd.DataFrame({"id": ids, "x": noise[:, 0], "y": label})
    shop1 = pd.DataFrame({"id": ids, "colour": [f"colour {n}" for n in colour], "z": noise[:, 1]})
    shop2 = pd.DataFrame({"id": ids, "w": noise[:, 2]})
    return Parties.from_pandas({"bank": bank, "shop1": shop1, "shop2": shop2}, id="id", label="y")


@pytest.mark.parametrize("model", ["shares", "parts"])
def test_a_job_learns_in_one_split_from_levels_without_an_order(people: Parties, model: Any) -> None:
    """The labels allow 0.9; the best split by an order of the levels has 0.63."""
    algorithm = sv.Boosting(depth=1, bins=16, lr=0.5)
    job = sv.Job(algorithm=algorithm, protection=sv.Shares(model=model), epochs=1, keep="last", seed=2)
    result = sv.simulate(job, people)
    assert result.record.runs[-1].test["auc"] > 0.85
    predicted = sv.predict(result.model(), people)
    by_id = {
        one: int(name[-1]) for one, name in zip(people["shop1"].ids, people["shop1"].columns["colour"], strict=True)
    }
    odd = np.array([by_id[one] % 2 for one in predicted.ids])
    p = predicted.probabilities[:, 1]
    assert p[odd == 1].min() > p[odd == 0].max()
