"""Boosting: its arithmetic against slow references and scikit-learn, vertical against pooled, sealed against plain."""

from __future__ import annotations

import asyncio
import re
import runpy
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from support.forests import Pooled, job, part, pooled_forest, run, same_trees
from support.helpers import low_overlap_parties, ready_keys

import securevfl as sv
from securevfl.algorithms.boosting.bins import fit_bins
from securevfl.algorithms.boosting.categories import NUMBER, pack_sets, unpack_sets
from securevfl.algorithms.boosting.directions import column_directions
from securevfl.algorithms.boosting.growing import TreeLimits, grow_tree
from securevfl.algorithms.boosting.histograms import merged_bins, plain_sums, to_fixed_point
from securevfl.algorithms.boosting.splits import SplitRule, best_split
from securevfl.algorithms.boosting.trees import (
    LEAF,
    OwnSplits,
    Tree,
    read_splits,
    read_trees,
    write_splits,
    write_trees,
)
from securevfl.testing.trial import roles_begun
from securevfl.transport import Kind

RULE = SplitRule(l1=0.0, l2=1.0, min_gain=0.0, min_hessian=0.01)


def table(rows: int = 600, columns: int = 5, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    x = generator.normal(size=(rows, columns))
    x[:, 1] = np.round(x[:, 1])
    logit = 1.5 * x[:, 0] - x[:, 1] * x[:, 2] + np.sin(3 * x[:, 3])
    return x, (generator.random(rows) < 1 / (1 + np.exp(-logit))).astype(np.int64)


@pytest.mark.parametrize(("depth", "leaves"), [(3, 0), (12, 9)])
@pytest.mark.parametrize("missing", [False, True])
def test_pooled_trees_are_those_of_scikit_learn(depth: int, leaves: int, missing: bool) -> None:
    from sklearn.ensemble import HistGradientBoostingClassifier

    x, y = table()
    if missing:
        x[np.random.default_rng(1).random(x.shape) < 0.15] = np.nan
    config = sv.Boosting(depth=depth, leaves=leaves, bins=32, l2=1.0, min_hessian=0.001, bits=24)
    _, raw, _ = pooled_forest(x, y, config, trees=8)
    theirs = HistGradientBoostingClassifier(
        learning_rate=0.1,
        max_iter=8,
        max_depth=depth,
        max_leaf_nodes=leaves or None,
        l2_regularization=1.0,
        min_samples_leaf=1,
        max_bins=32,
        early_stopping=False,
    ).fit(x, y)
    mine = 1 / (1 + np.exp(-raw[:, 0]))
    np.testing.assert_allclose(mine, theirs.predict_proba(x)[:, 1], atol=2e-4)


def with_levels(x: np.ndarray, seed: int = 3) -> tuple[np.ndarray, tuple[int, ...]]:
    """Two columns of levels beside numbers: one of 8 that matter by their parity, one of 30, most of them rare."""
    generator = np.random.default_rng(seed)
    rare = np.minimum(np.floor(generator.exponential(4, len(x))), 29)
    found = np.column_stack([x[:, 0], generator.integers(0, 8, len(x)), rare, x[:, 1]])
    return found, (0, 8, 30, 0)


@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("leaves", [0, 9])
def test_trees_over_categories_are_those_of_scikit_learn(missing: bool, leaves: int) -> None:
    """Subsets of levels, levels with few rows, missing values as one more level."""
    from sklearn.ensemble import HistGradientBoostingClassifier

    x, levels = with_levels(table(800)[0])
    generator = np.random.default_rng(1)
    logit = np.where(x[:, 1] % 2 == 0, 1.5, -1.5) + np.where(np.isin(x[:, 2], (1, 4, 7)), 1.0, -0.5) + x[:, 0]
    y = (generator.random(len(x)) < 1 / (1 + np.exp(-logit))).astype(np.int64)
    if missing:
        x[generator.random(x.shape) < 0.15] = np.nan
    config = sv.Boosting(depth=4, leaves=leaves, bins=32, l2=1.0, min_hessian=0.001, bits=24)
    forest, raw, start = pooled_forest(x, y, config, 8, levels)
    theirs = HistGradientBoostingClassifier(
        learning_rate=0.1,
        max_iter=8,
        max_depth=4,
        max_leaf_nodes=leaves or None,
        l2_regularization=1.0,
        min_samples_leaf=1,
        max_bins=32,
        early_stopping=False,
        categorical_features=[1, 2],
    ).fit(x, y)
    np.testing.assert_allclose(1 / (1 + np.exp(-raw[:, 0])), theirs.predict_proba(x)[:, 1], atol=2e-4)
    assert any(one > 0 for tree in forest for one in tree.levels)
    again = start + sum(np.asarray(tree.value)[tree.leaves_of(x, {}, len(x))] for tree in forest)
    np.testing.assert_allclose(again, raw[:, 0], rtol=0, atol=1e-12)


def test_levels_that_no_order_parts_are_parted_by_one_split() -> None:
    x, levels = with_levels(table(600)[0])
    y = (x[:, 1] % 2).astype(np.int64)
    (tree,), _, _ = pooled_forest(x, y, sv.Boosting(depth=1, bins=32, min_hessian=0.001), 1, levels)
    assert tree.split[0] == 1
    assert tree.levels[0] in (0b01010101, 0b10101010)
    assert read_trees(write_trees([tree]), owners=0, outputs=1, columns=4) == [tree]


def slow_category(sums: np.ndarray, rule: SplitRule, rows: int) -> float:
    """The best gain over one column of categories, as scikit-learn says it in words."""
    whole = sums.sum(axis=0).astype(float)

    def score(part: np.ndarray) -> float:
        return float(part[0] ** 2 / (part[1] + rule.l2)) if part[1] + rule.l2 > 0 else 0.0

    used = [c for c in range(len(sums)) if sums[c, 1] * rows / whole[1] >= 10 - 1e-6]
    used.sort(key=lambda c: sums[c, 0] / (sums[c, 1] + 10))
    best = 0.0
    for scan, most in ((used, (len(used) + 1) // 2), (used[::-1], (len(used) + 1) // 2 - 1)):
        for size in range(1, most + 1 if len(used) > 1 else 1):
            left = sums[scan[:size]].sum(axis=0).astype(float)
            if min(left[1], whole[1] - left[1]) >= rule.min_hessian:
                best = max(best, (score(left) + score(whole - left) - score(whole)) / 2)
    return best


@settings(max_examples=80, deadline=None)
@given(st.data(), st.sampled_from([0.0, 1.0]))
def test_the_best_set_of_levels_is_found(data: st.DataObject, l2: float) -> None:
    size = data.draw(st.integers(2, 7))
    h = data.draw(hnp.arrays(np.int64, size, elements=st.integers(0, 30)))
    g = np.where(h > 0, data.draw(hnp.arrays(np.int64, size, elements=st.integers(-30, 30))), 0)
    sums, rule = np.stack([g, h], axis=1), SplitRule(l1=0.0, l2=l2, min_gain=0.0, min_hessian=1.0)
    rows = int(h.sum())
    found = best_split(sums, [size], sums.sum(axis=0), rule, kinds=np.array([True]), rows=rows)
    assert (0.0 if found is None else found.gain) == pytest.approx(slow_category(sums, rule, rows) if rows else 0.0)
    if found is not None:
        left = [code for code in range(size) if found.codes >> code & 1]
        assert np.array_equal(sums[left].sum(axis=0), found.left)
        assert found.missing_left == (size - 1 in left)


@given(st.lists(st.one_of(st.just(NUMBER), st.integers(0, 2**255 - 1)), max_size=5))
def test_sets_are_read_as_they_were_packed(sets: list[int]) -> None:
    assert unpack_sets(pack_sets(sets)) == sets


def constrained(x: np.ndarray, y: np.ndarray, trees: int, directions: Sequence[int], leaves: int) -> list[Tree]:
    """Trees over a pooled table whose scores rise or fall along columns."""
    bins = fit_bins(x, 32)
    codes, raw, forest = bins.encode_rows(x), np.zeros(len(x)), []
    for _ in range(trees):
        p = 1 / (1 + np.exp(-raw))
        (g, gu), (h, hu) = to_fixed_point(p - y, 24), to_fixed_point(p * (1 - p), 24)
        values, rule = (
            np.stack([g, h], axis=1),
            SplitRule(l1=0.0, l2=1.0, min_gain=0.0, min_hessian=0.01, scales=(gu, hu)),
        )
        given, limits = np.asarray(directions, dtype=np.int64), TreeLimits(depth=4, leaves=leaves)
        source = Pooled(bins, codes, values)
        grown = asyncio.run(grow_tree(values, (p - y, p * (1 - p)), rule, limits, source, directions=given))
        raw += np.asarray(grown.tree.value)[grown.leaf]
        forest.append(grown.tree)
    return forest


def largest_step(forest: list[Tree], x: np.ndarray, column: int) -> float:
    """How far scores of these rows fall at most where one of their columns rises a little."""
    scores = []
    for value in np.linspace(-3, 3, 60):
        moved = x.copy()
        moved[:, column] = value
        scores.append(sum(np.asarray(tree.value)[tree.leaves_of(moved, {}, len(x))] for tree in forest))
    return float(-np.diff(np.stack(scores), axis=0).min())


@pytest.mark.parametrize("leaves", [0, 8])
def test_scores_rise_and_fall_where_columns_say_so(leaves: int) -> None:
    x, y = table()  # labels go up and down with columns 2 and 3
    free, rises, falls = (
        constrained(x, y, 8, directions, leaves) for directions in ([0] * 5, [0, 0, 1, 1, 0], [0, 0, -1, -1, 0])
    )
    for column in (2, 3):
        assert largest_step(free, x[:60], column) > 0.1
        assert largest_step(rises, x[:60], column) <= 1e-12
        assert largest_step(rises, x[:60], 1) > 0.1  # no direction was given for this one
        scores = [Tree(**{**vars(tree), "value": [-one for one in tree.value]}) for tree in falls]
        assert largest_step(scores, x[:60], column) <= 1e-12
    assert any(3 in tree.split for tree in rises)


def slow_split(codes: np.ndarray, counts: Sequence[int], values: np.ndarray, rule: SplitRule) -> float:
    """The largest gain of any split, by trying all of them row by row."""

    def score(rows: np.ndarray) -> float:
        g, h = values[rows].sum(axis=0).tolist() if rows.any() else (0, 0)
        shrunk = np.sign(g) * max(abs(g) - rule.l1, 0)
        return float(shrunk**2 / (h + rule.l2)) if h + rule.l2 > 0 else 0.0

    best, everyone = 0.0, np.ones(len(codes), dtype=bool)
    for j, count in enumerate(counts):
        for b in range(count - 1):
            for missing_left in (False, True):
                missing = codes[:, j] == count - 1
                left = np.where(missing, missing_left, codes[:, j] <= b)
                if min(values[left, 1].sum(), values[~left, 1].sum()) >= rule.min_hessian:
                    best = max(best, (score(left) + score(~left) - score(everyone)) / 2)
    return best


@settings(max_examples=80, deadline=None)
@given(st.data(), st.sampled_from([0.0, 2.0]), st.sampled_from([0.0, 1.0]), st.sampled_from([1.0, 4.0]))
def test_the_best_split_is_the_best_of_all(data: st.DataObject, l1: float, l2: float, least: float) -> None:
    rows, counts = data.draw(st.integers(2, 12)), data.draw(st.lists(st.integers(2, 5), min_size=1, max_size=3))
    codes = np.stack(
        [data.draw(hnp.arrays(np.int64, rows, elements=st.integers(0, count - 1))) for count in counts], axis=1
    )
    g = data.draw(hnp.arrays(np.int64, rows, elements=st.integers(-9, 9)))
    h = data.draw(hnp.arrays(np.int64, rows, elements=st.integers(1, 5)))
    values, rule = np.stack([g, h], axis=1), SplitRule(l1=l1, l2=l2, min_gain=0.0, min_hessian=least)
    sums = plain_sums(values, codes, counts, np.zeros(rows, dtype=np.int64), 1)[0]
    found = best_split(sums, counts, values.sum(axis=0), rule)
    assert (0.0 if found is None else found.gain) == pytest.approx(slow_split(codes, counts, values, rule))


@settings(max_examples=60, deadline=None)
@given(st.data(), st.integers(1, 6))
def test_no_group_of_merged_bins_has_fewer_rows_unless_the_node_has(data: st.DataObject, least: int) -> None:
    rows, counts = data.draw(st.integers(1, 30)), [6, 4]
    codes = np.stack(
        [data.draw(hnp.arrays(np.int64, rows, elements=st.integers(0, count - 1))) for count in counts], axis=1
    )
    merged = merged_bins(codes, counts, least)
    for j, count in enumerate(counts):
        sizes = np.bincount(merged.codes[:, j])
        assert sizes[sizes > 0].min() >= min(least, rows)
        for group, last in enumerate(merged.ends[j][:-1]):  # a split after a group is one after its last bin
            values = codes[:, j] < count - 1
            assert np.array_equal((merged.codes[:, j] <= group)[values], (codes[:, j] <= last)[values])


def test_codes_and_thresholds_say_the_same() -> None:
    x = np.round(np.random.default_rng(0).normal(size=(300, 2)), 1)
    x[::7, 1] = np.nan
    bins = fit_bins(x, 8)
    codes = bins.encode_rows(x)
    for column in range(2):
        assert codes[:, column].max() < bins.code_counts[column] <= 8 + 1
        for b in range(bins.code_counts[column] - 1):
            for missing_left in (False, True):
                told = OwnSplits([column], [bins.threshold(column, b)], [missing_left], [NUMBER])
                here = bins.goes_left(codes, column, b, missing_left=missing_left)
                assert np.array_equal(told.goes_left(x)[0], here)


@pytest.mark.parametrize("settings_", [{}, {"leaves": 5}, {"depth": 2, "l1": 0.5}], ids=["depth", "leaves", "l1"])
def test_vertical_trees_are_pooled_ones_split_by_split(settings_: dict[str, Any]) -> None:
    people, work = low_overlap_parties(2, rows=300, overlap=1.0), job(sv.Plain(), **settings_)
    with roles_begun() as roles:
        ran = run(work, people)
    train, order = ran.split.train, [people.active.name, *sorted(t.name for t in people.passive)]
    by_name: dict[str, Any] = {role.site.name: role for role in roles}
    columns = [by_name[name].columns_of(train) for name in order]
    owners = [(place, j) for place, x in enumerate(columns) for j in range(x.shape[1])]
    y = by_name[order[0]].labels(train).numpy()
    forest, _, _ = pooled_forest(
        np.concatenate(columns, axis=1), y, sv.Boosting.from_values(work.algorithm.describe()), 3
    )
    parts = {name: ran.trained[name].model["parts"]["forest"] for name in order}
    vertical = read_trees(parts[order[0]]["trees"], owners=2, outputs=1, columns=columns[0].shape[1])
    theirs = [read_splits(parts[name], columns=columns[k + 1].shape[1]) for k, name in enumerate(order[1:])]
    assert len(vertical) == len(forest) == 3
    for number, (mine, whole) in enumerate(zip(vertical, forest, strict=True)):
        assert mine.left == whole.left
        assert mine.value == whole.value
        for node, owner in enumerate(mine.owner):
            if owner == LEAF:
                continue
            found, threshold = owners[whole.split[node]], whole.threshold[node]
            if owner == 0:
                told = (0, mine.split[node]), mine.threshold[node]
            else:
                splits = theirs[owner - 1][number]
                told = (owner, splits.column[mine.split[node]]), splits.threshold[mine.split[node]]
            assert told == (found, threshold)


def mixed(rows: int, *, missing: bool = False) -> sv.Parties:
    """Two parties with numbers and levels; those of the shop matter by sets that no order parts."""
    generator = np.random.default_rng(4)
    ids = [f"c{i}" for i in range(rows)]
    level, colour = generator.integers(0, 6, rows), generator.integers(0, 9, rows)
    x = generator.normal(size=rows)
    logit = np.where(np.isin(colour, (0, 3, 4, 8)), 2.0, -2.0) + np.where(level % 2, 1.0, -1.0) + x
    label = (generator.random(rows) < 1 / (1 + np.exp(-logit))).astype(np.int64)
    names = [None if missing and c == 4 else f"colour {c}" for c in colour]
    bank = pd.DataFrame({"id": ids, "level": [f"level {n}" for n in level], "x": x, "y": label})
    shop = pd.DataFrame({"id": ids, "colour": names, "z": generator.normal(size=rows)})
    return sv.Parties.from_pandas({"bank": bank, "shop1": shop}, id="id", label="y")


@pytest.mark.parametrize("missing", [False, True])
def test_vertical_trees_over_categories_are_pooled_ones(missing: bool) -> None:
    people, work = mixed(400, missing=missing), job(sv.Plain(), bins=16)
    with roles_begun() as roles:
        ran = run(work, people)
    by_name: dict[str, Any] = {role.site.name: role for role in roles}
    train = ran.split.train
    columns = [by_name[name].columns_of(train) for name in ("bank", "shop1")]
    levels = [level for name in ("bank", "shop1") for level in by_name[name].table.codes]
    y = by_name["bank"].labels(train).numpy()
    config = sv.Boosting.from_values(work.algorithm.describe())
    forest, raw, start = pooled_forest(np.concatenate(columns, axis=1), y, config, 3, levels)
    mine = read_trees(part(ran, "bank")["trees"], owners=1, outputs=1, columns=columns[0].shape[1])
    theirs = read_splits(part(ran, "shop1"), columns=columns[1].shape[1])
    found = np.full(len(train), float(start[0]))
    for tree, whole, splits in zip(mine, forest, theirs, strict=True):
        assert tree.left == whole.left
        assert tree.value == whole.value
        found += np.asarray(tree.value)[tree.leaves_of(columns[0], {1: splits.goes_left(columns[1])}, len(train))]
    np.testing.assert_array_equal(found, raw[:, 0])
    assert any(one > 0 for splits in theirs for one in splits.levels)
    if missing:
        assert any(any(splits.missing_left) for splits in theirs)
    assert ran.trained["bank"].test["auc"] > 0.8


@pytest.mark.parametrize("nodes", ["hidden", "shown"])
def test_sealed_trees_over_categories_are_the_plain_ones(nodes: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ready_keys(monkeypatch)
    people = mixed(150, missing=True)
    plain = run(job(sv.Plain(), nodes=nodes, merge=6).replace(epochs=2), people)
    sealed = run(job(sv.Paillier(bits=2048), nodes=nodes, merge=6).replace(epochs=2), people)
    assert same_trees(plain, sealed)
    assert any(one > 0 for splits in read_splits(part(sealed, "shop1"), columns=2) for one in splits.levels)


@pytest.mark.parametrize("nodes", ["hidden", "shown"])
def test_sealed_constrained_trees_are_the_plain_ones(nodes: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ready_keys(monkeypatch)
    people = low_overlap_parties(2, rows=90, width=2, overlap=1.0)
    first = {name: f"{name}.{next(iter(people[name].columns))}" for name in ("bank", "shop1")}
    free = run(job(sv.Plain(), nodes=nodes, merge=4).replace(epochs=2), people)
    ways = {"falling": (first["shop1"],), "rising": (first["bank"],)}
    settings_: dict[str, Any] = {"nodes": nodes, "merge": 4, **ways}
    plain = run(job(sv.Plain(), **settings_).replace(epochs=2), people)
    sealed = run(job(sv.Paillier(bits=2048), **settings_).replace(epochs=2), people)
    assert same_trees(plain, sealed)
    assert not same_trees(plain, free)


def test_check_names_columns_of_constraints_that_are_not_there(tmp_path: Path) -> None:
    from securevfl.checks import check_file

    for name, frame in (("a", "k,amount,y\n1,2,0\n2,3,1\n3,1,0\n"), ("b", "k,spent\n1,5\n2,6\n3,9\n")):
        (tmp_path / f"{name}.csv").write_text(frame)
    text = """
[job]
epochs = 1
[algorithm]
name = "boosting"
rising = ["a.amonut", "c.spent", "b.spent"]
[protection]
name = "plain"
[[party]]
name = "a"
file = "a.csv"
id = "k"
label = "y"
[[party]]
name = "b"
file = "b.csv"
id = "k"
"""
    (tmp_path / "job.toml").write_text(text)
    found = check_file(tmp_path / "job.toml").mistakes
    assert any("'amonut'" in one and "amount" in one for one in found)
    assert any("no party is 'c'" in one for one in found)
    assert len(found) == 2
    (tmp_path / "job.toml").write_text(text.replace("a.amonut", "a.amount").replace('"c.spent", ', ""))
    assert not check_file(tmp_path / "job.toml").mistakes


@pytest.mark.parametrize("merge", [1, 8])
def test_where_bins_are_put_together_rows_go_where_their_groups_go(merge: int) -> None:
    """Scores of the training rows are those that trees give them when they are read again."""
    people, work = mixed(300, missing=True), job(sv.Plain(), nodes="shown", merge=merge)
    with roles_begun() as roles:
        ran = run(work, people)
    by_name: dict[str, Any] = {role.site.name: role for role in roles}
    train = ran.split.train
    bank, shop = (by_name[name].columns_of(train) for name in ("bank", "shop1"))
    trees = read_trees(part(ran, "bank")["trees"], owners=1, outputs=1, columns=2)
    found = np.full(len(train), float(part(ran, "bank")["start"][0]))
    for tree, splits in zip(trees, read_splits(part(ran, "shop1"), columns=2), strict=True):
        found += np.asarray(tree.value)[tree.leaves_of(bank, {1: splits.goes_left(shop)}, len(train))]
    np.testing.assert_array_equal(found, by_name["bank"].fitted[:, 0])


@pytest.mark.parametrize("nodes", ["hidden", "shown"])
@pytest.mark.parametrize("classes", [2, 3])
def test_sealed_trees_are_the_plain_ones(nodes: str, classes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    ready_keys(monkeypatch)
    people = low_overlap_parties(2, rows=90, classes=classes, width=2, overlap=1.0)
    plain = run(job(sv.Plain(), nodes=nodes, merge=4, rows=0.8).replace(epochs=2), people)
    sealed = run(job(sv.Paillier(bits=2048), nodes=nodes, merge=4, rows=0.8).replace(epochs=2), people)
    assert same_trees(plain, sealed)
    shops = [table.name for table in people.passive]
    assert any(len(tree) for name in shops for tree in read_splits(part(sealed, name), columns=99))
    told = {(entry.what, entry.kind) for entry in sealed.ledgers["bank"].entries if entry.way == "sent"}
    assert (("boost/nodes", Kind.CONTROL) in told) == (nodes == "shown")
    assert ("boost/gradients", Kind.GRADIENT) not in told


def test_hidden_passive_parties_get_the_same_number_of_ciphertexts_whatever_the_tree() -> None:
    """Rows outside the nodes that are summed are sent as zeros: all rows, each level."""
    from securevfl_crypto import generate_keypair
    from securevfl_crypto.sums import SumOwner, SumPlan

    key = generate_keypair(2048)
    owner = SumOwner(key, SumPlan(key_bits=2048, rows=40, bounds=(16, 16), nodes=2))
    values = np.ones((40, 2), dtype=np.int64)
    one, other = np.full(40, -1), np.arange(40) % 2
    assert owner.encrypt_rows(values, one).shape == owner.encrypt_rows(values, other).shape
    assert len({bytes(row) for row in owner.encrypt_rows(values, one)}) == 40  # zeros are fresh ciphertexts, too


@pytest.mark.parametrize(
    "changes", [{"goss": (0.2, 0.3)}, {"rows": 0.6, "columns": 0.5}, {"leaves": 4, "depth": 6}], ids=str
)
def test_what_thins_trees_out_still_learns(changes: dict[str, Any]) -> None:
    people = low_overlap_parties(2, rows=500, overlap=1.0)
    ran = run(job(sv.Plain(), **changes).replace(epochs=12), people)
    assert ran.trained["bank"].test["auc"] > 0.8
    trees = read_trees(part(ran, "bank")["trees"], owners=2, outputs=1, columns=99)
    if "leaves" in changes:
        assert max(tree.owner.count(LEAF) for tree in trees) <= 4


def test_a_tree_sees_the_share_of_rows_that_was_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that it does not see have no gradient."""
    from securevfl.algorithms.boosting import asking

    seen: list[tuple[int, int]] = []
    begin = asking.TreeQueries.begin_tree

    async def counted(self: Any, values: np.ndarray, rows: np.ndarray, *rest: Any) -> None:
        seen.append((int(rows.sum()), len(rows)))
        assert not values[~rows].any()
        await begin(self, values, rows, *rest)

    monkeypatch.setattr(asking.TreeQueries, "begin_tree", counted)
    run(job(sv.Plain(), rows=0.5), low_overlap_parties(1, rows=200, overlap=1.0))
    assert seen
    assert all(abs(count - total / 2) <= 1 for count, total in seen)


@pytest.mark.parametrize(
    ("protection", "words"),
    [
        (sv.BFV(), "built for Paillier alone"),
        (sv.Plain(fixed_point=True), "leave fixed_point out"),
        (sv.Plain(dp=sv.DP(features=sv.Gaussian(epsilon=8))), "no noise on features or gradients"),
    ],
)
def test_what_it_cannot_have_is_refused(protection: Any, words: str) -> None:
    with pytest.raises(sv.InputError, match=words):
        sv.Job(algorithm=sv.Boosting(), protection=protection)


@pytest.mark.parametrize(
    ("changes", "words"),
    [({"leaves": 1}, "splits nothing"), ({"goss": (0.8, 0.5)}, "two positive shares"), ({"depth": 0}, "depth")],
)
def test_settings_that_make_no_sense_are_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(sv.InputError, match=words):
        sv.Boosting(**changes)


def test_a_damaged_part_of_a_model_is_refused() -> None:
    tree = Tree(0)
    for _ in range(3):
        tree.add_leaf()
    tree.owner[0], tree.left[0], tree.right[0] = 1, 1, 2
    good = write_trees([tree])
    assert read_trees(good, owners=1, outputs=1, columns=0)[0].left == tree.left
    for name, value in (("left", 7), ("right", 0), ("owner", 3), ("split", 1), ("sizes", 9), ("outputs", 4)):
        bad = {key: kept.clone() for key, kept in good.items()}
        bad[name][0] = value
        with pytest.raises(sv.InputError, match="damaged"):
            read_trees(bad, owners=1, outputs=1, columns=0)
    own = write_splits([OwnSplits([1], [0.5], [False])])
    with pytest.raises(sv.InputError, match="damaged"):
        read_splits(own, columns=1)


def test_randomised_labels_are_what_trees_are_grown_from(monkeypatch: pytest.MonkeyPatch) -> None:
    ran = run(
        job(sv.Plain(dp=sv.DP(labels=sv.RandomisedResponse(epsilon=2.0)))),
        low_overlap_parties(1, rows=200, overlap=1.0),
    )
    spent = [one for one in ran.trained["bank"].spent if one.what == "labels"]
    assert [one.times for one in spent] == [1]


def test_the_code_of_the_page_runs(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs/algorithms/boosting.md").read_text(encoding="utf-8")
    code = "\n".join(re.findall(r"```python\n(.*?)```", page, re.DOTALL))
    script = tmp_path / "page.py"
    script.write_text(code.replace("rows=2_000", "rows=900").replace("epochs=10", "epochs=2"), encoding="utf-8")
    runpy.run_path(str(script))
    said = capsys.readouterr().out
    assert re.match(
        r"AUC 0\.[5-9]\d\nAUC on shares 0\.[5-9]\d\ntorch\.Size\(\[3, 7, \d+\]\) \d+\n\{'accuracy': ", said
    ), said


def numbers(rows: int = 300) -> sv.Parties:
    """A numeric target that both parties' columns tell, with gaps."""
    generator = np.random.default_rng(5)
    x = generator.normal(size=(rows, 4))
    y = 10 + 3 * x[:, 0] + 2 * np.abs(x[:, 2])
    ids = [f"id {i}" for i in range(rows)]
    gaps = x[:, 3].copy()
    gaps[::9] = np.nan
    bank = sv.PartyTable(name="bank", ids=ids, columns={"a": x[:, 0], "b": x[:, 1]}, label=y, label_name="amount")
    shop = sv.PartyTable(name="shop", ids=ids, columns={"c": x[:, 2], "d": gaps}, preparation=sv.Preparation())
    return sv.Parties.of(bank, shop)


def test_a_passive_party_keeps_the_direction_of_its_column() -> None:
    """The target falls and rises with the shop's column c; a job says that it may only rise."""
    config = sv.Boosting(depth=3, lr=0.3, rising=("shop.c",), falling=("bank.b",))
    plan = {"epochs": 6, "patience": None, "seed": 3, "task": "regression", "loss": "squared", "keep": "last"}
    own, theirs = np.random.default_rng(0).normal(size=(2, 50, 2))
    falls = {}
    for name, algorithm in {"held": config, "free": sv.Boosting(depth=3, lr=0.3)}.items():
        ran = run(sv.Job(algorithm=algorithm, protection=sv.Plain(), **plan), numbers())
        trees = read_trees(part(ran, "bank")["trees"], owners=1, outputs=1, columns=2)
        splits, scores = read_splits(part(ran, "shop"), columns=2), []
        for c in np.linspace(-3, 3, 40):
            theirs[:, 0] = c
            leaves = [t.leaves_of(own, {1: s.goes_left(theirs)}, 50) for t, s in zip(trees, splits, strict=True)]
            scores.append(sum(np.asarray(t.value)[leaf] for t, leaf in zip(trees, leaves, strict=True)))
        falls[name] = float(-np.diff(np.stack(scores), axis=0).min())
        assert any(0 in one.column for one in splits)
        columns = [column for one in splits for column in one.column]
        told, *_ = ran.trained["shop"].notes  # each party's own record has its own columns
        assert re.findall(r"([cd]) (\d+)", told)[0] in {("c", f"{columns.count(0)}"), ("d", f"{columns.count(1)}")}
        assert re.search(r"bank's columns with the most gain: a \d+%", " ".join(ran.trained["bank"].notes))
        assert not {"c", "d"} & set(re.findall(r"\w+", ran.trained["bank"].notes[-1]))
    assert falls["held"] <= 1e-12
    assert falls["free"] > 0.05


@pytest.mark.parametrize(
    ("name", "words"),
    [("shop.z", "no column 'z'"), ("mall.c", "no party is 'mall'"), ("c", "party.column")],
)
def test_directions_of_what_is_not_there_are_refused(name: str, words: str) -> None:
    plan = {"epochs": 1, "seed": 3, "task": "regression", "loss": "squared"}
    with pytest.raises(sv.InputError, match=words):
        run(sv.Job(algorithm=sv.Boosting(falling=(name,)), protection=sv.Plain(), **plan), numbers())


def test_categories_and_several_classes_have_no_direction() -> None:
    with pytest.raises(sv.InputError, match="categories"):
        column_directions("shop", ["a", "colour"], [0, 4], ["shop.colour"], [])
    people = low_overlap_parties(1, rows=60, classes=3, width=2, overlap=1.0)
    column = f"{people.active.name}.{next(iter(people.active.columns))}"
    with pytest.raises(sv.InputError, match="two classes or a number"):
        run(job(sv.Plain(), rising=(column,)), people)


@pytest.mark.parametrize("loss", ["squared", "poisson", "huber"])
def test_a_number_is_learned_with_gaps_in_the_columns(loss: str) -> None:
    people = numbers()
    plan = {"epochs": 25, "patience": None, "seed": 3, "task": "regression", "loss": loss}
    ran = run(sv.Job(algorithm=sv.Boosting(depth=3, lr=0.3), protection=sv.Plain(), **plan), people)
    assert ran.trained["bank"].test["r2"] > 0.7
    assert any(len(tree) for tree in read_splits(part(ran, "shop"), columns=2))


def test_rows_without_weight_are_as_if_they_were_not_there() -> None:
    """Weights multiply both derivatives: a tree of doubled rows is one of rows that count twice."""
    generator, (x, _) = np.random.default_rng(2), table(200)
    twice = generator.random(200) < 0.5
    bins = fit_bins(x, 16)
    codes = bins.encode_rows(x)
    g, h = (generator.normal(size=200), generator.random(200) + 0.1)

    def grown(rows: np.ndarray, weight: np.ndarray) -> Tree:
        values = np.stack([np.rint(1000 * g[rows] * weight), np.rint(1000 * h[rows] * weight)], axis=1).astype(np.int64)
        source = Pooled(bins, codes[rows], values)
        exact = (g[rows] * weight, h[rows] * weight)
        return asyncio.run(grow_tree(values, exact, RULE, TreeLimits(depth=3), source)).tree

    once = np.arange(200)
    repeated = np.concatenate([once, once[twice]])
    one, other = grown(once, 1.0 + twice), grown(repeated, np.ones(len(repeated)))
    assert one.threshold == other.threshold
    assert one.value == pytest.approx(other.value)


def read_cells(nodes: str, monkeypatch: pytest.MonkeyPatch) -> float:
    """The largest share of a passive party's cells that the active party reads from sums."""
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2]))
    from benchmarks.gate.on_trees import cells_read, watch

    people = low_overlap_parties(2, rows=300, overlap=1.0)
    with watch() as sights, roles_begun() as begun:
        run(job(sv.Plain(), nodes=nodes, merge=5, bins=32).replace(epochs=4), people)
    roles: dict[str, Any] = {role.site.name: role for role in begun}
    assert set(sights.sums) == {"shop1", "shop2"}
    return max(cells_read(sights, name, roles[name].codes, roles[name].bins.code_counts) for name in sights.sums)


def test_merged_bins_hide_the_single_rows_that_hidden_nodes_show(monkeypatch: pytest.MonkeyPatch) -> None:
    """The active party knows every row's gradients: a bin with one row's sums is that row's."""
    assert read_cells("hidden", monkeypatch) > 0.01
    assert read_cells("shown", monkeypatch) == 0.0


def test_a_class_that_counts_more_is_predicted_more() -> None:
    people = low_overlap_parties(1, rows=300, overlap=1.0)
    plain, heavy = (
        run(job(sv.Plain()).replace(class_weight=weight), people).trained["bank"].scores[:, 1].mean()
        for weight in (None, {"1": 5.0})
    )
    assert heavy > plain + 0.1
