"""Best: members are whole algorithms, each as if it had the job alone; what weighs them has not seen what they learned;
nothing crosses beside what they exchange."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar
from unittest import mock

import best_page
import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from support.helpers import low_overlap_parties
from support.small_algorithms import SIZES, make

import securevfl as sv
from securevfl.algorithms import best, best_roles
from securevfl.party_context import Keeper, PartyContext, PartySecret
from securevfl.run.simulation import RunOutcome, join_parties, run_parties
from securevfl.training import Plan, Setting
from securevfl.training.pooling import average_probabilities, fit_stacking_weights, log_loss
from securevfl.training.program import Program
from securevfl.training.split import Split
from securevfl.training.submodels import submodel_context, submodel_setting

PEOPLE = low_overlap_parties(1, rows=140, overlap=0.4)
FEW = low_overlap_parties(1, rows=100, overlap=0.25)
METHODS = ("residual", "local")


def run(
    algorithm: sv.Best, people: sv.Parties = FEW, keepers: Mapping[str, Keeper] | None = None, **terms: Any
) -> RunOutcome:
    job = sv.Job(algorithm=algorithm, **{"protection": sv.Plain(), "epochs": 2, "batch_size": 32, "seed": 3, **terms})
    alike = {name: PartySecret.from_seed(3, name) for name in people}
    return run_parties(job, people, join_parties(people, job), run="run", secrets=alike, keepers=keepers)


def small(**settings: Any) -> sv.Best:
    return sv.Best(**{**SIZES, "folds": 2, "methods": METHODS, **settings})


class Single(sv.Best):
    """One member's algorithm, run by itself in the member's place.

    Attributes:
        wanted: the member's name.
    """

    name: ClassVar[str] = "single"
    wanted: str = ""

    def program(self, site: PartyContext, plan: Plan, settings: Mapping[str, Setting]) -> Program:
        setting = settings[site.active]
        every = self.list_members(setting.table, site.seed, setting.protection, len(site.passive))
        member = next(one for one in every if one.name == self.wanted)
        place = submodel_context(site, member.name, talks=True)
        own = submodel_setting(setting, member, place, replace(plan, keep="auto"))
        return member.algorithm.program(own.site, own.plan, {site.active: own})


def single(wanted: str) -> Single:
    return Single(**{**SIZES, "folds": 2, "methods": METHODS, "wanted": wanted})


def test_a_member_is_what_its_algorithm_is_alone() -> None:
    """The same bits at both parties, whichever members ran before it; and the same messages, and no other ones."""
    whole = run(small())
    sent: Counter[tuple[str, str, str]] = Counter()
    for name in ("residual 1", "residual 2"):
        alone = run(single(name))
        for party, trained in alone.trained.items():
            member = whole.trained[party].model["parts"]["members"][name]  # type: ignore[index]
            assert equal(member["parts"], trained.model["parts"])
        sent += messages(alone)
    assert messages(whole) == sent
    assert equal(
        whole.trained["bank"].model["parts"]["members"]["local 2"]["parts"],  # type: ignore[index]
        run(single("local 2")).trained["bank"].model["parts"],
    )
    assert set(whole.trained["shop1"].model["parts"]["members"]) == {"residual 1", "residual 2"}  # type: ignore[index]
    assert whole.trained["shop1"].model["parts"]["weights"] == {}  # type: ignore[index]


def test_its_note_names_the_bytes_that_its_members_sent() -> None:
    trained = run(small()).trained["bank"]
    clocks = [trained.setup, *trained.readings, trained.finish]
    sent = sum(sum(one.sent.values()) for one in clocks if one is not None)
    (note,) = (note for note in trained.notes if "one model of residual" in note)
    assert f"bank sent {sent:,} bytes while they trained, 2.0 times those of one model of residual" in note
    assert "of local" not in note


def messages(ran: RunOutcome) -> Counter[tuple[str, str, str]]:
    """What training sent, and how often."""
    sent = [(name, e) for name, ledger in ran.ledgers.items() for e in ledger.entries if e.way == "sent"]
    return Counter((name, e.what, e.kind.value) for name, e in sent if e.what.startswith(("cut/", "train/epoch")))


def equal(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor):
        return torch.equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(equal(one[key], other[key]) for key in one)
    if isinstance(one, tuple | list):
        return len(one) == len(other) and all(map(equal, one, other))
    return bool(np.all(one == other))


class Everything(Keeper):
    """Keeps all checkpoints, or hands out one."""

    def __init__(self, place: tuple[int, int] | None, kept: dict[tuple[int, int], dict[str, object]]) -> None:
        self.start, self.step = (None, 0) if place is None else place
        self.steps = 1
        self.kept = kept

    def load(self) -> dict[str, object] | None:
        return None if self.start is None else self.kept[self.start, self.step]

    def is_due(self, epoch: int) -> bool:
        return True

    def save(self, epoch: int, state: dict[str, object], *, step: int = 0) -> None:
        self.kept.setdefault((epoch, step), state)


def test_a_run_goes_on_inside_and_between_members() -> None:
    kept: dict[str, dict[tuple[int, int], dict[str, object]]] = {name: {} for name in FEW}
    algorithm = small(folds=2)
    whole = run(algorithm, keepers={name: Everything(None, kept[name]) for name in FEW}, steps=2)
    places = sorted(set(kept["bank"]) & set(kept["shop1"]))
    assert places == [(0, 1), (1, 0), (1, 1), (2, 0), (2, 1), (3, 0), (3, 1), (4, 0)]  # two epochs of two members
    for place in [(1, 1), (2, 0), (3, 0), (4, 0)]:
        again = run(algorithm, keepers={name: Everything(place, kept[name]) for name in FEW}, steps=2)
        assert np.array_equal(again.trained["bank"].scores, whole.trained["bank"].scores)
        assert again.trained["bank"].epochs == whole.trained["bank"].epochs
        assert len(messages(again)) > 0
        assert sum(messages(again).values()) < sum(messages(whole).values())
        for party, trained in whole.trained.items():
            assert equal(again.trained[party].model["parts"], trained.model["parts"])


@contextmanager
def judged() -> Iterator[list[tuple[np.ndarray, dict[str, np.ndarray]]]]:
    """The rows that weigh the methods of runs inside, and their probabilities."""
    found = []
    weights = best_roles.MemberWeighting.weigh_methods

    def heard(self: Any, judged: Mapping[str, np.ndarray], rows: np.ndarray) -> dict[str, float]:
        found.append((rows, dict(judged)))
        return weights(self, judged, rows)

    with mock.patch.object(best_roles.MemberWeighting, "weigh_methods", heard):
        yield found


FOLDS = best.folds_of


def seeing_all(split: Split, folds: int, seed: int) -> list[Split]:
    """A mistake: what validates a member trains it, too."""
    return [replace(part, train=split.train) for part in FOLDS(split, folds, seed)]


@pytest.mark.parametrize("method", ["laser", "residual", "local"])
@pytest.mark.parametrize("leaks", [False, True], ids=["out of fold", "mutant"])
def test_what_weighs_a_row_has_not_seen_its_label(method: str, leaks: bool) -> None:
    """Another label of a common row changes no probability that the row is judged by; were folds leaky, it would."""
    algorithm = small(methods=(method,))
    job = sv.Job(protection=sv.Plain(), algorithm=algorithm, epochs=2, batch_size=32, seed=3)
    aligned = join_parties(FEW, job).alignments["bank"]["bank"].rows
    bank = FEW["bank"]
    assert bank.label is not None
    folds: Callable[..., list[Split]] = seeing_all if leaks else FOLDS
    with judged() as found, mock.patch.object(best, "folds_of", folds):
        first = run(algorithm)
        row = int(first.split.train[4])
        label = bank.label.copy()
        label[aligned[row]] = 1 - label[aligned[row]]
        run(algorithm, sv.Parties.of(replace(bank, label=label), *FEW.passive))
    (rows, one), (again, other) = found
    assert np.array_equal(rows, again)
    assert sorted(rows) == sorted([*first.split.train, *first.split.valid])
    moved = np.abs(one[method] - other[method]).max(axis=1)
    assert (moved > 0).any()
    assert (moved[rows == row] > 0) == leaks


def opinions(rows: int, skills: list[float], seed: int = 0) -> tuple[list[np.ndarray], np.ndarray]:
    """Probabilities of models, each right about as far as its skill says, and the classes."""
    generator = np.random.default_rng(seed)
    labels = generator.integers(0, 3, size=rows)
    logits = [skill * np.eye(3)[labels] + generator.normal(size=(rows, 3)) for skill in skills]
    return [np.exp(one) / np.exp(one).sum(axis=1, keepdims=True) for one in logits], labels


@pytest.mark.parametrize("pull", [0.5, 10.0])
def test_weights_are_the_minimum_that_they_are_said_to_be(pull: float) -> None:
    found, labels = opinions(200, [0.5, 1.5, 1.8])
    weights = fit_stacking_weights(found, labels, pull=pull)

    def objective(w: np.ndarray) -> float:
        return len(labels) * log_loss(average_probabilities(found, list(w)), labels) - pull * float(np.log(w).sum())

    reference = minimize(
        objective,
        np.full(3, 1 / 3),
        method="SLSQP",
        bounds=[(1e-9, 1)] * 3,
        constraints={"type": "eq", "fun": lambda w: w.sum() - 1},
        options={"ftol": 1e-12},
    )
    assert weights.sum() == pytest.approx(1)
    assert np.abs(weights - reference.x).max() < 1e-3
    assert objective(weights) <= objective(reference.x) + 1e-6


def test_rows_find_out_a_model_that_is_sure_and_wrong() -> None:
    found, labels = opinions(400, [2.0, 2.0])
    wrong = np.full_like(found[0], 0.01)
    wrong[np.arange(400), (labels + 1) % 3] = 0.98
    weights = fit_stacking_weights([*found, wrong], labels, pull=best_roles._PULL)
    assert weights[2] < 0.05
    assert min(weights[:2]) > 0.3


def test_models_that_are_as_good_stay_equal() -> None:
    found, labels = opinions(100, [1.0])
    assert fit_stacking_weights(found * 3, labels, pull=best_roles._PULL) == pytest.approx(np.full(3, 1 / 3))
    far = [
        np.abs(fit_stacking_weights(*opinions(60, [1.0] * 3, seed), pull=best_roles._PULL) - 1 / 3).max()
        for seed in range(20)
    ]
    assert max(far) < 0.25


def test_few_rows_choose_nothing_and_more_do() -> None:
    few, many = run(small()), run(small(folds=3), PEOPLE, epochs=1)
    weights = few.trained["bank"].model["parts"]["weights"]  # type: ignore[index]
    assert weights == dict.fromkeys(METHODS, 0.5)
    (note,) = [note for note in few.trained["bank"].notes if note.startswith("weights")]
    assert "too few to choose by" in note
    chosen = many.trained["bank"].model["parts"]["weights"]  # type: ignore[index]
    assert len(set(chosen.values())) == 2
    assert sum(chosen.values()) == pytest.approx(1)
    told = "\n".join(many.trained["bank"].notes)
    assert f"weights chosen on {len(many.split.train) + len(many.split.valid)} common rows" in told
    assert "3 times the steps" in told
    assert set(run(small(stack=False), PEOPLE, epochs=1).trained["bank"].model["parts"]["weights"].values()) == {0.5}  # type: ignore[index]


def test_without_the_partner_it_is_the_mean_of_those_that_are_fit(tmp_path: Path) -> None:
    """After saving and loading; the local model counts once, though the residual falls back to one too."""
    algorithm = small(methods=("laser", "residual", "local"))
    job = sv.Job(protection=sv.Plain(), algorithm=algorithm, epochs=2, batch_size=32, seed=3)
    ran = run(algorithm)
    parts = {name: trained.model for name, trained in ran.trained.items()}
    model = sv.Model.load(sv.Model(job=job, parts=parts).save(tmp_path), job)
    found = sv.predict(model, FEW, everyone=True)
    assert len(found.probabilities) == FEW["bank"].rows
    at = dict(zip(found.ids, found.probabilities, strict=True))
    aligned = join_parties(FEW, job).alignments["bank"]["bank"].rows
    tested = [FEW["bank"].ids[row] for row in aligned[ran.split.test].tolist()]
    assert np.abs(np.array([at[one] for one in tested]) - ran.trained["bank"].scores).max() < 1e-5
    without = sv.predict(model, sv.Parties.of(FEW["bank"], active="bank"), everyone=True)
    at = dict(zip(without.ids, without.probabilities, strict=True))
    assert np.abs(np.array([at[one] for one in tested]) - ran.trained["bank"].alone_scores).max() < 1e-5
    only = [run(small(methods=(name,))).trained["bank"].alone_scores for name in ("laser", "local")]
    assert np.abs(np.mean(only, axis=0) - ran.trained["bank"].alone_scores).max() < 1e-6


def test_differential_privacy_is_refused_with_the_cure() -> None:
    with pytest.raises(sv.InputError, match=r"trains 4 models on the same rows.*Train a single method"):
        sv.Job(algorithm=small(), protection=sv.Plain(dp=sv.DP(features=sv.Gaussian())))


@pytest.mark.parametrize("methods", [(), ("local", "local"), ("fedcvt",), ("multi_vfl",), ("best",), ("all_labels",)])
def test_methods_that_cannot_be_averaged_are_refused(methods: tuple[str, ...]) -> None:
    with pytest.raises(sv.InputError, match=r"best\.methods"):
        small(methods=methods)


def test_all_methods_get_the_same_widths() -> None:
    every = make("best", methods=("laser", "residual", "local"), weight_decay=0.01).list_algorithms()
    assert {each.hidden for each in every.values()} == {8}
    assert every["residual"].local_weight_decay == 0.01
    assert every["residual"].weight_decay == 1e-3


def test_the_page_has_the_table_that_the_benchmark_makes() -> None:
    page = best_page.PAGE.read_text(encoding="utf-8")
    assert "<!-- best members -->" in page
    assert page == best_page.written(page)
