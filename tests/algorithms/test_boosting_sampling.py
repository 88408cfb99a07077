"""Rows that a tree does not see cost nothing, where passive parties may know which these are."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import pytest
from securevfl_crypto.sums import SumHolder, SumOwner
from support.forests import job, part, pooled_forest, run, same_trees
from support.helpers import low_overlap_parties, ready_keys

import securevfl as sv
from securevfl.algorithms.boosting import answering
from securevfl.algorithms.boosting.histograms import merged_bins
from securevfl.algorithms.boosting.sampling import hear_columns, receive_rows
from securevfl.algorithms.boosting.trees import read_splits, read_trees
from securevfl.attacks.measure import auc
from securevfl.testing.trial import roles_begun
from securevfl.training.tree_terms import draw_rows


@dataclass
class Work:
    """What sealed jobs did: rows encrypted, and factors multiplied for sums of bins."""

    rows: list[int] = field(default_factory=list)
    factors: int = 0


@contextmanager
def counted() -> Iterator[Work]:
    work, encrypt, packed = Work(), SumOwner.encrypt_rows, SumHolder._pack_sums

    def encrypted(self: Any, values: np.ndarray, node: np.ndarray | None = None) -> np.ndarray:
        work.rows.append(len(values))
        return encrypt(self, values, node)

    def multiplied(self: Any, batch: Any, groups: np.ndarray, count: int) -> np.ndarray:
        work.factors += int((groups >= 0).sum())
        return packed(self, batch, groups, count)

    with mock.patch.object(SumOwner, "encrypt_rows", encrypted), mock.patch.object(SumHolder, "_pack_sums", multiplied):
        yield work


@contextmanager
def rows_known() -> Iterator[dict[str, list[np.ndarray]]]:
    """Passive party → the rows that it sums, tree by tree."""
    known: dict[str, list[np.ndarray]] = {}
    seen = answering.TreeAnswers._receive_summed_rows

    async def watched(self: Any) -> np.ndarray:
        rows = await seen(self)
        known.setdefault(self._role.site.name, []).append(rows)
        return rows

    with mock.patch.object(answering.TreeAnswers, "_receive_summed_rows", watched):
        yield known


@pytest.mark.parametrize(("leaves", "share"), [(0, 1.0), (5, 0.5)])
def test_vertical_trees_of_some_rows_are_those_over_a_pooled_table_of_these_rows(leaves: int, share: float) -> None:
    people = low_overlap_parties(2, rows=300, overlap=1.0)
    work = job(sv.Plain(), rows=0.4, leaves=leaves, columns=share)
    with roles_begun() as roles:
        ran = run(work, people)
    train, names = ran.split.train, [people.active.name, *sorted(t.name for t in people.passive)]
    by_name: dict[str, Any] = {role.site.name: role for role in roles}
    columns = [by_name[name].columns_of(train) for name in names]
    y = by_name["bank"].labels(train).numpy()
    samples = [draw_rows(by_name["bank"].site.seed, k, len(train), 0.4) for k in range(3)]
    assert len({len(np.intersect1d(one, samples[0])) for one in samples}) > 1
    config = sv.Boosting.from_values(work.algorithm.describe())
    allowed = [by_name["bank"].allowed_columns(k) for k in range(3)] if share < 1 else ()
    x = np.concatenate(columns, axis=1)
    forest, raw, _ = pooled_forest(x, y, config, 3, samples=samples, allowed=allowed)
    mine = read_trees(part(ran, "bank")["trees"], owners=2, outputs=1, columns=columns[0].shape[1])
    assert [tree.left for tree in mine] == [tree.left for tree in forest]
    assert [tree.value for tree in mine] == [tree.value for tree in forest]
    np.testing.assert_array_equal(by_name["bank"].fitted, raw)  # those that no tree saw are in leaves, too
    assert any(len(one) for name in names[1:] for one in read_splits(part(ran, name), columns=99))


@pytest.mark.parametrize(
    ("nodes", "changes", "share"),
    [
        ("hidden", {"rows": 0.4, "columns": 0.5}, 0.4),
        ("shown", {"rows": 0.4}, 0.4),
        ("shown", {"goss": (0.2, 0.2)}, 0.4),
        ("hidden", {"goss": (0.2, 0.2)}, 1.0),  # hidden from those who would add up less
    ],
    ids=["hidden rows", "shown rows", "shown goss", "hidden goss"],
)
def test_only_rows_that_a_tree_sees_are_encrypted_and_added_up(
    nodes: str, changes: dict[str, Any], share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    ready_keys(monkeypatch)
    people = low_overlap_parties(1, rows=150, width=2, overlap=1.0)
    settings: dict[str, Any] = {"nodes": nodes, "merge": 4, "depth": 2, **changes}
    plain = run(job(sv.Plain(), **settings).replace(epochs=2), people)
    with counted() as work:
        sealed = run(job(sv.Paillier(bits=2048), **settings).replace(epochs=2), people)
    assert same_trees(plain, sealed)
    trees = read_trees(part(sealed, "bank")["trees"], owners=1, outputs=1, columns=99)
    assert any(tree.splits_of(1) for tree in trees)
    rows, levels = len(sealed.split.train), 1 if nodes == "shown" else 2
    seen = round(share * rows)
    assert work.rows == [seen] * (2 * levels)
    # each row of the tree is a factor in at most one bin of each column, of the tree's first level and of its second
    columns = len(people["shop1"].columns)
    assert 0 < work.factors <= 2 * 2 * seen * columns
    sent = [
        tuple(entry.shapes["c"])
        for entry in sealed.ledgers["bank"].entries
        if entry.way == "sent" and entry.what == "boost/gradients"
    ]
    assert sent == [(seen, 512)] * (2 * levels)


@pytest.mark.parametrize("nodes", ["hidden", "shown"])
def test_columns_that_a_tree_does_not_see_are_not_added_up(nodes: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With two of six columns a tree, some trees see none of a party's."""
    ready_keys(monkeypatch)
    people = low_overlap_parties(2, rows=120, width=2, overlap=1.0)
    settings: dict[str, Any] = {"nodes": nodes, "merge": 4, "depth": 1, "columns": 0.34}
    plain = run(job(sv.Plain(), **settings).replace(epochs=4), people)
    with counted() as work, roles_begun() as begun:
        sealed = run(job(sv.Paillier(bits=2048), **settings).replace(epochs=4), people)
    assert same_trees(plain, sealed)
    (bank,) = (role for role in begun if role.site.name == "bank")
    own = bank.width
    drawn = [bank.allowed_columns(number) for number in range(4)]  # type: ignore[attr-defined]
    theirs = [int(one[own:].sum()) for one in drawn]
    assert min(theirs) < max(theirs)
    assert any(not one[own : own + 2].any() for one in drawn) or any(not one[own + 2 :].any() for one in drawn)
    rows = len(sealed.split.train)
    assert 0 < work.factors <= rows * sum(theirs)  # of all columns, the fullest bin of each is left out
    for number, name in enumerate(("shop1", "shop2")):
        for tree, one in zip(read_splits(part(sealed, name), columns=2), drawn, strict=True):
            assert all(one[own + 2 * number + column] for column in tree.column)


def test_a_draw_by_chance_knows_no_labels_and_one_by_gradients_tells_them() -> None:
    """A passive party ranks labels by how often a row is among those that it sums: what it sees beside splits."""
    people = low_overlap_parties(1, rows=400, overlap=1.0)
    label = np.random.default_rng(1).permutation(np.asarray(people.active.label))
    other = sv.Parties.of(replace(people.active, label=label), *people.passive)
    found: dict[str, float] = {}
    for name, changes in {"rows": {"rows": 0.4}, "goss": {"goss": (0.2, 0.2)}}.items():
        with rows_known() as known, roles_begun() as begun:
            ran = run(job(sv.Plain(), **changes), people)
        with rows_known() as again:
            run(job(sv.Plain(), **changes), other)
        roles: dict[str, Any] = {role.site.name: role for role in begun}
        y = roles["bank"].labels(ran.split.train).numpy()
        times = sum(np.bincount(rows, minlength=len(y)) for rows in known["shop1"])
        found[name] = auc(y == 1, times.astype(float))
        alike = all(np.array_equal(a, b) for a, b in zip(known["shop1"], again["shop1"], strict=True))
        assert alike == (name == "rows")
    assert abs(found["rows"] - 0.5) < 0.1
    assert abs(found["goss"] - 0.5) > 0.15


def test_hidden_nodes_hide_what_goss_draws() -> None:
    for nodes, protection, told in (
        ("hidden", sv.Paillier(), False),
        ("shown", sv.Paillier(), True),
        ("hidden", sv.Plain(), True),
    ):
        config = sv.Boosting(goss=(0.2, 0.1), nodes=nodes)
        assert config.tells_rows(protection) == told
        declared = {one.step: one for one in config.exchanges(protection, 1)}
        assert ("boost/rows" in declared) == told
        if told:
            assert declared["boost/rows"].severity == "leak"
            assert [one.of for one in declared["boost/rows"].sights] == ["labels"]
        notes = " ".join(config.notes(protection))
        assert ("saves no work" in notes) == (not told)
        by_chance = config.replace(goss=None, rows=0.3)
        assert by_chance.tells_rows(protection)
        assert "boost/rows" not in {one.step for one in by_chance.exchanges(protection, 1)}


@pytest.mark.parametrize(("rows", "shared"), [(1.0, 5), (0.3, 5)])
def test_merged_bins_have_enough_rows_that_the_tree_sees(
    rows: float, shared: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A row that a tree does not see has no gradient: it hides no other row of its bin."""
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2]))
    from benchmarks.gate.on_trees import cells_read, watch

    people = low_overlap_parties(2, rows=400, overlap=1.0)
    with watch() as sights, roles_begun() as begun:
        run(job(sv.Plain(), nodes="shown", merge=shared, bins=32, rows=rows), people)
    roles: dict[str, Any] = {role.site.name: role for role in begun}
    assert set(sights.sums) == {"shop1", "shop2"}
    for name in sights.sums:
        assert cells_read(sights, name, roles[name].codes, roles[name].bins.code_counts) == 0.0


@pytest.mark.parametrize("nodes", ["hidden", "shown"])
def test_sums_of_many_trees_tell_every_row_s_bin_and_findings_say_so(
    nodes: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The active party solves for the rows of each bin, also where none is of fewer than ten rows."""
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2]))
    from benchmarks.gate.on_trees import cells_read, cells_solved, watch

    people, trees = low_overlap_parties(1, rows=100, overlap=1.0), 40
    with watch() as sights, roles_begun() as begun:
        ran = run(job(sv.Plain(), nodes=nodes, merge=10).replace(epochs=trees), people)
    (shop,) = (role for role in begun if role.site.name == "shop1")
    codes, counts = shop.codes, shop.bins.code_counts  # type: ignore[attr-defined]
    if nodes == "shown":
        codes = merged_bins(codes, counts, 10).codes
        assert cells_read(sights, "shop1", shop.codes, counts) == 0.0  # type: ignore[attr-defined]
    most = np.mean([np.bincount(column).max() / len(column) for column in codes.T])
    solved = cells_solved(sights, "shop1", codes, counts, merged=nodes == "shown")
    assert most < 0.3
    assert solved > 0.85
    used = [slot for _, slot, _ in sights.sums["shop1"] if nodes == "hidden" or (slot == 0).all()]
    read = 2 * sum(slot.max() + 1 for slot in used)
    said = f"read {read} sums of each bin of 'shop1', of {len(codes)} rows"
    assert any(said in note for note in ran.trained["shop1"].notes)
    for protection in (sv.Plain(), sv.Paillier()):
        (sums,) = (one for one in sv.Boosting(nodes=nodes).exchanges(protection, 1) if one.step == "boost/sums")
        assert sums.severity == "leak"
        assert [(one.of, one.severity) for one in sums.sights] == [("features", "leak")]
        assert "every row" in sums.reveals


def test_sides_that_are_not_those_of_the_sums_are_refused() -> None:
    """A party that answers a split with one row on the other side does not go on."""
    packed = np.packbits

    def turned(bits: np.ndarray, **rest: Any) -> np.ndarray:
        return packed(np.concatenate([~bits[:, :1], bits[:, 1:]], axis=1), **rest)

    with (
        mock.patch.object(answering, "np", SimpleNamespace(**{**vars(np), "packbits": turned})),
        pytest.raises(sv.ProtocolError, match="on the left of a split by passive party 1"),
    ):
        run(job(sv.Plain()), low_overlap_parties(1, rows=200, overlap=1.0))


@pytest.mark.parametrize("columns", [[2, 1], [0, 3], [-1, 0], [0.0, 1.0], [[0, 1]]], ids=str)
def test_columns_of_a_tree_that_are_none_are_refused(columns: list[Any]) -> None:
    async def receive(*_: Any) -> Any:
        return SimpleNamespace(arrays={"columns": np.array(columns)})

    link: Any = SimpleNamespace(peer="bank", receive=receive)
    with pytest.raises(sv.ProtocolError, match="int64 numbers below 3 in rising order"):
        asyncio.run(hear_columns(link, 3))


@pytest.mark.parametrize(
    "bits", [np.zeros(13, np.uint8), np.full(12, 255, np.uint8), np.full(13, 1, np.int64)], ids=["none", "few", "wide"]
)
def test_rows_of_a_tree_that_are_none_are_refused(bits: np.ndarray) -> None:
    async def receive(*_: Any) -> Any:
        return SimpleNamespace(arrays={"bits": bits})

    link: Any = SimpleNamespace(peer="bank", receive=receive)
    with pytest.raises(sv.ProtocolError, match="malformed mask of the 100 rows"):
        asyncio.run(receive_rows(link, 100))
