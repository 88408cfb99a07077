"""The contract of an algorithm, over all of them: the public checks, and what is held beyond them: how well they learn,
refusals by policies, how much of a budget is used, what a broken run forgets."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.helpers import low_overlap_parties, ready_keys
from support.small_algorithms import KINDS, SETTINGS, SEVERAL, make

import securevfl as sv
from securevfl.party_context import Keeper, PartySecret
from securevfl.privacy import READABLE_KINDS
from securevfl.run.checkpoint import make_keepers
from securevfl.run.receipt import check_recorded_protection
from securevfl.run.simulation import RunOutcome, join_parties, run_parties
from securevfl.testing import algorithm_training, checks
from securevfl.testing.trial import Trial
from securevfl.training import registered_algorithms

BOTTOMS = {"identity": (), "trainable": (4,)}
TALKING = [name for name in SETTINGS if name != "local"]
"""Those that exchange anything to train with."""
_NOT_PRIVATE = {
    "additive",
    "best",
    "best_with_trees",
    "boosted_residual",
    "boosting",
    "false_vfl",
    "hybrid_tree",
    "scorecard",
}
PRIVATE = [name for name in TALKING if name not in _NOT_PRIVATE]
"""Those that take noise: each model of an average would spend the whole budget, and sums and counts over bins take
none."""
REVEALING = [name for name in SETTINGS if KINDS[name].reveals]


def test_the_contract_is_over_all_algorithms() -> None:
    assert {*SETTINGS, SEVERAL.name} == set(registered_algorithms())


def every_check() -> Iterator[Any]:
    for algorithm in [*(make(name) for name in SETTINGS), SEVERAL]:
        for name, check in checks(algorithm):
            yield pytest.param(check, id=f"{algorithm.name}-{name}")


@pytest.mark.parametrize("check", list(every_check()))
def test_it_keeps_the_contract(check: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> None:
    """And learns three classes better than strangers' algorithms have to, in as many epochs as the job has."""
    ready_keys(monkeypatch)
    ask, run_one = algorithm_training._check_auc, Trial.run

    def run_counted(trial: Trial, work: sv.Job, people: sv.Parties) -> RunOutcome:
        ran = run_one(trial, work, people)
        assert {len(ran.trained[table.name].epochs) for table in people.label_owners} == {work.epochs}
        return ran

    def ask_more(trial: Trial, people: sv.Parties, what: str) -> None:
        monkeypatch.setattr(Trial, "run", run_counted)
        most = trial.class_counts[-1]
        if what == "of 2 classes" and most > 2 and trial.algorithm.asks_partner and trial.exchanges_messages:
            return  # the check "learning from others" is of two classes, and harder
        if what == f"of {most} classes" and trial.algorithm.name not in ALONE:
            monkeypatch.setattr(algorithm_training, "_LEAST_AUC", 0.85)
        ask(trial, people, what)

    monkeypatch.setattr(algorithm_training, "_check_auc", ask_more)
    check()


MIXED = {"fedcvt", "few_shot_vfl", "mftl", "plugvfl", "residual", "sfhtl"}
"""Those whose gradients come from losses or models with the exact labels of many rows in them: no noise there."""


def has_bottom(name: str, bottom: tuple[int, ...]) -> bool:
    """Whether the algorithm runs with such bottoms at all."""
    needs = {"fedcvt", "fedda", "fedhssl", "few_shot_vfl", "mftl", "sfhtl", "ssl"}
    return not (bottom and name in {"logistic_regression", "scorecard"}) and not (not bottom and name in needs)


def job(name: str, *, seed: int = 3, epochs: int = 4, protection: Any = None, **settings: Any) -> sv.Job:
    algorithm = make(name, **settings)
    plan = {"epochs": epochs, "batch_size": 32, "seed": seed, "protection": protection or sv.Plain()}
    return sv.Job(algorithm=algorithm, **plan)


def run(work: sv.Job, people: sv.Parties, keeping: Mapping[str, Keeper] | None = None) -> RunOutcome:
    alike = {name: PartySecret.from_seed(work.seed, name) for name in people}  # sealed runs too: they are compared
    resumed = any(keeper.load() is not None for keeper in (keeping or {}).values())
    ran = run_parties(work, people, join_parties(people, work), run="run", keepers=keeping, secrets=alike)
    check_recorded_protection(work, ran.ledgers, tuple(table.name for table in people.passive), resumed=resumed)
    return ran


@functools.cache
def people(passive: int = 1, rows: int = 140, classes: int = 2, overlap: float = 0.25) -> sv.Parties:
    return low_overlap_parties(passive, rows=rows, classes=classes, overlap=overlap)


def told(ran: RunOutcome) -> tuple[object, ...]:
    """All that the active party has to show, exactly."""
    trained = ran.trained["bank"]
    return [(e.loss, e.valid) for e in trained.epochs], trained.test, trained.best_epoch, trained.scores.tolist()


ALONE = ["apc_vfl", "distilled", "local"]
"""Those that score rows from the active party's columns, of which it has half beside one passive party, not two."""


@pytest.mark.parametrize("name", ALONE)
def test_one_that_scores_alone_learns_too(name: str) -> None:
    ran = run(job(name, epochs=12), people(rows=500, classes=3, overlap=0.4))
    assert len(ran.trained["bank"].epochs) == 12
    assert ran.trained["bank"].test["auc"] > 0.85


MANY = [name for name in SETTINGS if KINDS[name].most_passive is None]


@pytest.mark.parametrize("name", [name for name in SETTINGS if KINDS[name].most_passive is not None])
def test_more_parties_than_it_serves_are_refused(name: str) -> None:
    most = KINDS[name].most_passive or 0
    with pytest.raises(sv.InputError, match=f"is for one active and {most} passive part"):
        run(job(name), people(most + 1))


PACKED = ["best", "entity_augmentation", "laser", "residual", "risa", "scorecard"]
"""Those whose roles do most of their own around a cut; under BFV the check "sealing" is over all."""


@pytest.mark.parametrize("name", PACKED)
def test_sealed_equals_plain_in_the_same_integers(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Under Paillier with trainable bottoms and one passive party; the check "sealing" is under BFV, with two and for
    most with identity bottoms. SplitNN has both under Paillier in `test_simulate`."""
    ready_keys(monkeypatch)
    bottom = (2,) if has_bottom(name, (4,)) else ()
    work = job(name, epochs=2, hidden=2, top=(), bottom=bottom, **TINY.get(name, {}))
    work = work.replace(batch_size=16)
    table = low_overlap_parties(1 if bottom else 2, rows=44, width=2, overlap=0.5)
    plain = run(work.replace(protection=sv.Plain(fixed_point=True)), table)
    sealed = run(work.replace(protection=sv.Paillier(bits=2048)), table)
    assert told(plain) == told(sealed)
    readable = {e.what for ledger in sealed.ledgers.values() for e in ledger.entries if e.kind in READABLE_KINDS}
    assert not readable


TINY: dict[str, dict[str, Any]] = {
    "best": {"methods": ("residual",)},
    "distilled": {"teacher_steps": 3, "folds": 2},
    "risa": {"self_training": 1, "drop_every": 1, "uncertainty": 0.3, "confidence": 0.6},
    "ssl": {"pretraining": 3},
}


@pytest.mark.parametrize("name", REVEALING)
def test_what_reveals_by_design_is_refused_where_it_should_be_sealed(name: str) -> None:
    with pytest.raises(sv.PolicyError, match="cannot seal it"):
        job(name, protection=sv.Paillier(bits=2048))
    for party in ("bank", "shop1"):
        strict = job(name).replace(policies={party: sv.Policy(sealed=True)})
        with pytest.raises(sv.PolicyError, match="demands them sealed") as caught:
            run(strict, people())
        sent = {e.kind for ledger in caught.value.ledgers for e in ledger.entries if ledger.party == party}
        own = [e for ledger in caught.value.ledgers if ledger.party == party for e in ledger.entries if e.way == "sent"]
        assert sent
        assert not {e.kind for e in own} & READABLE_KINDS


NOISY: dict[str, dict[str, Any]] = {"fedhssl": {"aggregate": False}}
"""What has to be left out beside noise on features."""


NOISED = [
    pytest.param(name, bottom, steps, id=f"{name}-{kind}-{'one pass' if steps is None else 'steps'}")
    for name in PRIVATE
    for kind, bottom in BOTTOMS.items()
    for steps in (None, 9)
    if has_bottom(name, bottom)
    if steps is None or bottom or SETTINGS[name].get("bottom") or not has_bottom(name, (4,))
]
"""Algorithm, bottoms and steps; steps with the identity bottoms of `SETTINGS` are in the check of noise on features."""


@pytest.mark.parametrize(("name", "bottom", "steps"), NOISED)
def test_noise_on_activations_is_planned_as_it_is_spent(name: str, bottom: tuple[int, ...], steps: int | None) -> None:
    dp = sv.DP(features=sv.Gaussian(epsilon=20.0))
    work = job(name, protection=sv.Plain(dp=dp), bottom=bottom, **NOISY.get(name, {})).replace(steps=steps)
    passive = 2 if name in MANY else 1
    ran = run(work, people(passive))
    for shop in [f"shop{number + 1}" for number in range(passive)]:
        (spent,) = ran.trained[shop].spent
        assert spent.what == "activations"
        assert spent.times > 0
        assert spent.epsilon_rdp <= 20.0 + 1e-6
        if steps is None and name not in {"risa", "entity_augmentation"}:
            assert spent.epsilon_rdp > 20.0 * (0.5 if name == "fedda" else 0.9)
        for e in ran.ledgers[shop].entries:
            if e.way == "sent" and e.kind in READABLE_KINDS:
                assert e.noise == spent.noise_multiplier


@pytest.mark.parametrize("name", [name for name in SETTINGS if name in MIXED])
def test_noise_on_gradients_that_mix_rows_is_refused(name: str) -> None:
    with pytest.raises(sv.InputError, match="no differential privacy on gradients"):
        job(name, protection=sv.Plain(dp=sv.DP(labels=sv.Gaussian(epsilon=30.0))))


def test_noise_where_nothing_is_sent_is_refused() -> None:
    with pytest.raises(sv.InputError, match="noise would protect nobody"):
        job("local", protection=sv.Plain(dp=sv.DP(features=sv.Gaussian(), labels=sv.Gaussian())))
    sealed, plain = (run(job("local", protection=p), people()) for p in (sv.Paillier(bits=2048), sv.Plain()))
    assert told(sealed) == told(plain)


class Everything(Keeper):
    """Keeps all checkpoints of a party, and hands out one of them."""

    def __init__(self, start: int | None = None, kept: dict[int, dict[str, object]] | None = None) -> None:
        self.start = start
        self.kept = kept if kept is not None else {}

    def load(self) -> dict[str, object] | None:
        return None if self.start is None else self.kept[self.start]

    def is_due(self, epoch: int) -> bool:
        return self.start is None

    def save(self, epoch: int, state: dict[str, object], *, step: int = 0) -> None:
        self.kept[epoch] = state


def test_a_run_that_drops_rows_goes_on_too() -> None:
    """RISA leaves rows out from its fifth epoch on."""
    dict(checks(make("risa", uncertainty=0.05)))["resuming"]()


FEW = sv.Gaussian(epsilon=30.0)


AT_FIRST = {("fedhssl", "representations"), *(("distilled", what) for what in ("activations", "gradients"))}
"""What is released before the first epoch only, so that later ones add nothing."""


@pytest.mark.parametrize("name", PRIVATE)
def test_what_was_spent_is_not_forgotten(name: str, tmp_path: Path) -> None:
    """A run that goes on counts the releases before, too, and those of the epoch that is done again; through files."""
    dp = sv.Plain(dp=sv.DP(features=FEW, labels=None if name in {*MIXED, "apc_vfl"} else FEW))
    table = people(2 if name in MANY else 1)
    work = job(name, protection=dp, **NOISY.get(name, {}))
    whole = run(work, table, make_keepers(tmp_path, table, work.digest))
    for path in sorted(tmp_path.glob("*.epoch-4.*")):
        path.unlink()
    again = run(work, table, make_keepers(tmp_path, table, work.digest))
    for party, trained in whole.trained.items():
        for before, after in zip(trained.spent, again.trained[party].spent, strict=True):
            if (name, before.what) in AT_FIRST:
                assert after.times == before.times
                continue
            drawn_once = before.times == 1 or name == "few_shot_vfl"  # and remembered; its uploads are over in epoch 1
            assert before.times + (not drawn_once) <= after.times <= before.times + 2


def test_a_run_that_stopped_early_does_not_go_on() -> None:
    table = people()
    work = job("splitnn", epochs=40, lr=0.3).replace(patience=2)
    first = {party: Everything() for party in table}
    whole = run(work, table, first)
    last = len(whole.trained["bank"].epochs)
    assert last < 40
    keeping = {party: Everything(last, keeper.kept) for party, keeper in first.items()}
    again = run_parties(work, table, join_parties(table, work), run="again", keepers=keeping)
    assert told(again) == told(whole)
    assert again.trained["bank"].stopped == whole.trained["bank"].stopped


@pytest.mark.parametrize("name", [name for name in SETTINGS if KINDS[name].uses_others])
def test_rows_marked_for_the_test_do_not_train_where_no_other_party_holds_them(name: str) -> None:
    """The passive party loses some test rows: the active party still keeps them out."""
    table = people()
    bank, shop = table["bank"], table["shop1"]
    assert bank.fold is not None
    assert bank.label is not None
    tested = [identifier for identifier, fold in zip(bank.ids, bank.fold, strict=True) if fold == 2]
    gone = set(tested[: len(tested) // 2])
    keep = np.array([place for place, identifier in enumerate(shop.ids) if identifier not in gone])
    lost = shop.take(keep)
    other = np.array([1 - y if i in gone else y for i, y in zip(bank.ids, bank.label, strict=True)])
    one, two = (run(job(name), sv.Parties.of(replace(bank, label=y), lost)) for y in (bank.label, other))
    assert one.trained["bank"].epochs == two.trained["bank"].epochs


@pytest.mark.parametrize("name", ["risa", "fedda"])
def test_a_job_that_would_end_before_the_last_stage_is_refused(name: str) -> None:
    algorithm = make(name)
    with pytest.raises(sv.InputError, match="last stage"):
        run(job(name, epochs=algorithm.least_epochs - 1), people())


@pytest.mark.parametrize("name", [name for name in SETTINGS if KINDS[name].uses_book])
def test_labels_of_other_parties_rows_have_to_be_known(name: str) -> None:
    with pytest.raises(sv.InputError, match="no label book"):
        run(job(name), low_overlap_parties(1, rows=140, labels="own"))
    everything = low_overlap_parties(1, rows=140, overlap=1.0)
    assert everything["bank"].book is None
    assert run(job(name), everything).trained["bank"].test
