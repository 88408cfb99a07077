"""Trees whose splits are handed out to the owners of the columns: what is opened, and that the model predicts what the
same trees predict on shares."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from securevfl_crypto.replicated import Computing, NarrowShare, run_three
from securevfl_crypto.ring import encode_words
from support.helpers import make_parties

import securevfl as sv
from securevfl.data import Parties
from securevfl.errors import InputError
from securevfl.run import Result
from securevfl.shares.shared_model import SharedModel
from securevfl.shares.trees import CellLayout
from securevfl.shares.trees.forest import DealtSides, ForestShape, KeptTree, ScoredRows, SharedForest
from securevfl.shares.trees.handed_out import ForestModel, ForestRelease, find_own_sides
from securevfl.shares.trees.owned_cells import NarrowCells
from securevfl.training.tree_terms import SPLITS

PARTS = sv.Shares(model="parts")
ROUNDS, DEPTH, NODES = 3, 3, 7
LAYOUT = CellLayout(bins=(4, 3, 5), missing=(False, True, False), directions=(0, 0, 0), owners=(0, 1, 1))
ROWS, TREES = 60, 4


def _job(protection: sv.Shares | None = None, *, epochs: int = ROUNDS) -> sv.Job:
    algorithm = sv.Boosting(depth=DEPTH, bins=8, lr=0.3)
    return sv.Job(algorithm=algorithm, protection=protection or sv.Shares(), epochs=epochs, seed=3)


def _entries(result: Result, party: str) -> list[Any]:
    (ledgers,) = [kept for key, kept in result.ledgers.items() if key != "alignment"]
    return list(ledgers[party].iter_entries())


def _opened_bytes(parts: Sequence[Any]) -> np.ndarray:
    """The sides of a tree, from all three parties' parts."""
    return np.asarray(sum(part[0].numpy() for part in parts))


class _Stops(sv.Observer):
    """Ends the run in its second round."""

    def epoch(self, epoch: int, loss: float, valid: dict[str, float]) -> None:
        if epoch == 2:
            raise RuntimeError("the power failed")


def _gap(result: Result, predicted: sv.Prediction) -> float:
    again = dict(zip(predicted.ids, predicted.probabilities[:, -1], strict=True))
    (scores,) = result.scores.values()
    return float(max(abs(again[name] - p) for name, p in zip(result.test_ids, scores[:, -1], strict=True)))


def _part(model: sv.Model, name: str) -> Any:
    return model.parts[name]["parts"]["shares"]


@pytest.fixture(scope="module")
def people() -> Parties:
    return make_parties(2, 400)


@pytest.fixture(scope="module")
def stored() -> dict[str, dict[str, Any]]:
    """What each party had as shares before splits were handed out, by name."""
    return {}


@pytest.fixture(scope="module")
def parted(people: Parties, stored: dict[str, dict[str, Any]]) -> Result:
    hand_out = ForestModel.hand_out

    async def watched(model: ForestModel) -> None:
        assert model.release is not None
        stored[model.release.member.site.name] = dict(SharedModel.snapshot(model))  # type: ignore[call-overload]
        await hand_out(model)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(ForestModel, "hand_out", watched)
        return sv.simulate(_job(PARTS), people)


def test_each_party_has_its_own_splits_and_nothing_of_the_others(
    parted: Result, people: Parties, stored: dict[str, dict[str, Any]]
) -> None:
    model, start = parted.model(), 0
    sides = [_opened_bytes(three) for three in zip(*(_sides(stored[name]) for name in people), strict=True)]
    every = np.stack(sides)
    for name in people:
        own = _part(model, name)["handed out"][SPLITS].numpy()
        assert own.dtype == np.uint8
        assert own.shape[:2] == (parted.record.runs[-1].best_epoch, NODES)
        np.testing.assert_array_equal(own, every[:, :, start : start + own.shape[2]])
        start += own.shape[2]
        assert all(tree["sides"][0].shape == (NODES, 0) for tree in _part(model, name)["leaves"]["trees"])
    assert start == every.shape[2]
    split = [_part(model, name)["handed out"][SPLITS].any(dim=2) for name in people]
    assert int(torch.stack(split).sum(dim=0).max()) == 1  # no node has two owners
    assert min(int(one.sum()) for one in split) > 0


def _sides(part: dict[str, Any]) -> list[Any]:
    return [tree["sides"] for tree in part["trees"]]


def test_splits_open_once_and_to_their_owner_alone(parted: Result, people: Parties) -> None:
    model = parted.model()
    for name in people:
        own = _part(model, name)["handed out"][SPLITS].numpy()
        opened = [e for e in _entries(parted, name) if e.way == "received" and e.what == "shares/open part"]
        assert sorted(shape for e in opened for shape in e.shapes.values()) == sorted([[3], [3], [32], [own.size]])
    steps = {e.what for e in _entries(parted, people.active.name) if e.what.startswith("shares/open")}
    assert steps == {"shares/open part", "shares/open metrics", "shares/open useful", "shares/open predictions"}


def test_predictions_are_those_of_the_same_trees_on_shares(
    parted: Result, people: Parties, stored: dict[str, dict[str, Any]]
) -> None:
    model = parted.model()
    kept = {name: part | {"parts": part["parts"] | {"shares": stored[name]}} for name, part in model.parts.items()}
    on_shares = sv.predict(sv.Model(job=_job(), parts=kept), people)
    by_parts = sv.predict(model, people)
    assert on_shares.ids == by_parts.ids
    assert np.abs(on_shares.probabilities - by_parts.probabilities).max() < 0.016  # rounded at 2^-4, each by chance
    assert _gap(parted, by_parts) < 0.016

    def count_rounds(found: sv.Prediction) -> int:
        entries = [e for ledger in found.ledgers.values() for e in ledger.iter_entries()]
        return sum(1 for e in entries if e.way == "sent" and e.what == "shares/round")

    assert count_rounds(by_parts) < count_rounds(on_shares)


def _draw_codes() -> np.ndarray:
    draw = np.random.default_rng(3)
    return np.stack([draw.integers(0, size, ROWS) for size in LAYOUT.sizes]).astype(np.uint8)


def _draw_splits() -> np.ndarray:
    """Sides (trees, nodes, cells); one node in five has no split."""
    draw = np.random.default_rng(4)
    splits = np.zeros((TREES, NODES, LAYOUT.cells), np.uint8)
    for node in splits.reshape(-1, LAYOUT.cells):
        column = draw.integers(0, 3)
        start, size = LAYOUT.starts[column], LAYOUT.bins[column]
        node[start : start + draw.integers(1, size)] = draw.random() > 0.2
    return splits


async def _scored_both_ways(engine: Computing) -> tuple[np.ndarray, np.ndarray, int, int]:
    splits, codes, first = _draw_splits(), _draw_codes(), LAYOUT.sizes[0]
    forest = SharedForest(ForestShape(LAYOUT, DEPTH, 2, own=1), engine)
    forest.start = engine.constant(encode_words(np.full(1, -0.5)))
    for tree, leaves in zip(splits, np.random.default_rng(5).normal(0, 0.5, (TREES, NODES + 1)), strict=True):
        sides = NarrowShare.low_words(engine.constant(tree.astype(np.uint64)), 8)
        forest.trees.append(KeptTree(sides, engine.constant(encode_words(leaves))))
    one_hot = np.zeros((LAYOUT.cells, ROWS), np.uint64)
    for start, row in zip(LAYOUT.starts, codes, strict=True):
        one_hot[start + row.astype(int), np.arange(ROWS)] = 1
    cells = NarrowShare.low_words(engine.constant(one_hot), 8)
    own = [
        engine.constant(find_own_sides(splits[:, :, :first], codes[:1], LAYOUT.sizes[:1])),
        engine.constant(find_own_sides(splits[:, :, first:], codes[1:], LAYOUT.sizes[1:])),
    ]
    by_cells = NarrowCells(LAYOUT, [cells[:first], cells[first:]], engine.index)
    found, counts = [], []
    for rows in (by_cells, DealtSides(ROWS, [own[0] + own[1]])):
        before = engine.rounds
        found.append((await forest.forward(ScoredRows(rows))).mine)
        counts.append(engine.rounds - before)
    return found[0], found[1], counts[0], counts[1]


def test_outputs_by_dealt_sides_equal_those_by_cells_word_for_word_in_fewer_rounds() -> None:
    results = run_three(_scored_both_ways, seed=bytes(32)).results
    by_cells, by_sides = (np.asarray(sum(one[k] for one in results)) for k in (0, 1))
    np.testing.assert_array_equal(by_cells, by_sides)
    assert by_cells.any()
    cells, sides = results[0][2:]
    assert sides == cells - 2


def test_own_sides_are_those_of_each_rows_cell() -> None:
    splits, codes = _draw_splits(), _draw_codes()
    found = find_own_sides(splits, codes, LAYOUT.sizes).reshape(ROWS, TREES, NODES)
    for row in range(ROWS):
        cells = [start + cell for start, cell in zip(LAYOUT.starts, codes[:, row].tolist(), strict=True)]
        np.testing.assert_array_equal(found[row], splits[:, :, cells].sum(axis=2))


@pytest.mark.parametrize(
    ("algorithm", "changes"),
    [
        (sv.Boosting(depth=2, bins=8, lr=0.3, rising=("shop1.c0",)), {}),
        (sv.BoostedResidual(depth=2, bins=8, own_trees=3, own_depth=2), {}),
        (sv.Boosting(depth=3, bins=8, lr=0.3), {"patience": 1, "epochs": 12}),
    ],
    ids=["rising", "on the own model", "stopped early"],
)
@pytest.mark.parametrize("computing", ["all", "with a helper", "a fourth only deals"])
def test_all_kinds_of_trees_and_of_parties_hand_splits_out(
    algorithm: sv.Algorithm, changes: dict[str, Any], computing: str
) -> None:
    people = make_parties({"all": 2, "with a helper": 1, "a fourth only deals": 3}[computing], 240)
    names = (people.active.name, *(table.name for table in people.passive))
    if getattr(algorithm, "rising", ()):
        column = next(iter(people[names[1]].columns))
        algorithm = algorithm.replace(rising=(f"{names[1]}.{column}",))
    three = {"all": (), "with a helper": (*names, "helper"), "a fourth only deals": (names[0], *names[2:])}[computing]
    job = sv.Job(algorithm=algorithm, protection=sv.Shares(model="parts", computing=three), epochs=2, seed=3)
    found = sv.simulate(job.replace(**changes), people)
    assert _gap(found, sv.predict(found.model(), people)) < 0.016
    trees = {_part(found.model(), name)["handed out"][SPLITS].shape[0] for name in names}
    assert trees == {found.record.runs[-1].best_epoch}
    if computing == "with a helper":
        assert _part(found.model(), "helper")["handed out"] == {}


def test_a_run_that_broke_off_goes_on_and_hands_out(people: Parties, tmp_path: Path) -> None:
    job = _job(PARTS).replace(keep="last", valid_every=1)
    with pytest.raises(sv.PartyFailed):
        sv.simulate(job, people, checkpoints=tmp_path / "kept", observer=_Stops())
    found = sv.simulate(job, people, checkpoints=tmp_path / "kept")
    assert len(found.record.runs[-1].epochs) == ROUNDS
    folder = found.model().save(tmp_path / "model")
    assert _gap(found, sv.predict(sv.Model.load(folder, job), people)) < 0.016


def test_the_card_has_the_leak_and_a_party_must_accept_it(parted: Result, people: Parties) -> None:
    names = [table.name for table in people.passive]
    told = [
        one
        for one in sv.Boosting().findings(PARTS, names, people.active.name)
        if "the splits of the reader's own columns" in one.learns
    ]
    assert {one.party: one.severity for one in told} == dict.fromkeys([people.active.name, *names], "leak")
    assert parted.card is not None
    before = sv.simulate(_job(epochs=1), people).card
    assert before is not None
    for reader, about, of in ((names[0], people.active.name, "labels"), (names[0], names[1], "features")):
        assert parted.card.cell(reader, about, of).standing == "reads it"
        assert "its own splits" in parted.card.cell(reader, about, of).says
        assert before.cell(reader, about, of).standing == "nothing found"
    policies = {people.active.name: sv.Policy(leaks=False)}
    with pytest.raises(sv.SecureVFLError, match=r"accepts no known leak.*the splits of the reader's own columns"):
        sv.simulate(_job(PARTS).replace(policies=policies), people)


@pytest.mark.parametrize(
    "own",
    [
        {},
        {SPLITS: torch.zeros((2, NODES, 5), dtype=torch.uint8)},
        {SPLITS: torch.zeros((2, NODES, 4), dtype=torch.float64)},
        {SPLITS: torch.full((2, NODES, 4), 2, dtype=torch.uint8)},
    ],
    ids=["nothing", "other columns", "other words", "no sides"],
)
def test_a_part_of_another_model_is_refused(own: dict[str, Any]) -> None:
    model = ForestModel()
    model.own = own
    with pytest.raises(InputError, match="take the part that training saved"):
        model.own_splits(ForestShape(LAYOUT, 3, 2, own=1), 4)


def test_more_trees_than_the_job_has_are_not_handed_out(people: Parties, monkeypatch: pytest.MonkeyPatch) -> None:
    hand_out = ForestRelease.hand_out

    async def doubled(release: ForestRelease) -> dict[str, np.ndarray]:
        if release.forest is not None:
            release.forest.trees = release.forest.trees * (ROUNDS + 1)
        return await hand_out(release)

    monkeypatch.setattr(ForestRelease, "hand_out", doubled)
    with pytest.raises(sv.SecureVFLError, match="was declared with"):
        sv.simulate(_job(PARTS), people)


def test_sides_beyond_zero_and_one_are_refused_by_their_owner(people: Parties, monkeypatch: pytest.MonkeyPatch) -> None:
    from securevfl.shares.trees import handed_out

    taken = handed_out._top_bytes

    def shifted(sides: Sequence[Any], cells: slice) -> Any:
        return taken(sides, cells) * 2

    monkeypatch.setattr(handed_out, "_top_bytes", shifted)
    with pytest.raises(sv.SecureVFLError, match="no splits of trees"):
        sv.simulate(_job(PARTS), people)
