"""The recorder: it changes nothing, it sees exactly what the ledgers list, and each party's view holds only its own."""

from __future__ import annotations

import numpy as np
import pytest

import securevfl as sv
from securevfl.attacks import Observations, PartyView, Transcript
from securevfl.data import hold_out, label_owners
from securevfl.experiments import simulate
from securevfl.experiments.recorder import Recorder
from securevfl.party_context import Observer, PartySecret
from securevfl.run import join_parties, predict

SMALL = {"hidden": 4, "top": (4,), "lr": 0.01}


def _job(protection: sv.cut.Protection | None = None, **algorithm: object) -> sv.Job:
    return sv.Job(
        algorithm=sv.SplitNN(**(SMALL | algorithm)),  # type: ignore[arg-type]
        protection=protection or sv.Plain(),
        epochs=2,
        batch_size=64,
    )


def _recorded(job: sv.Job, parties: sv.Parties) -> tuple[sv.Result, Transcript]:
    recorder = Recorder()
    names = [*parties, "coordinator"]
    result = simulate(
        job,
        parties,
        aligned=join_parties(parties, job),
        observers=dict.fromkeys(names, recorder),
        name="recorded",
        secrets=_alike(parties),
    )
    return result, recorder.transcript()


def _alike(parties: sv.Parties) -> dict[str, PartySecret]:
    """Secrets with which two sealed runs begin alike."""
    return {name: PartySecret.from_seed(0, name) for name in parties}


def _credit(parties: int = 3, rows: int = 320) -> sv.Parties:
    return sv.datasets.limited_credit(overlap=0.5, seed=0, rows=rows, parties=parties, labels="all")


JOBS = {
    "splitnn": (3, _job(bottom=(4,))),
    "splitnn, in integers": (3, _job(sv.Plain(fixed_point=True))),
    "splitnn, sealed": (3, _job(sv.BFV(), bottom=(4,))),
    "entity augmentation": (3, _job().replace(algorithm=sv.EntityAugmentation(bottom=(4,), **SMALL))),  # type: ignore[arg-type]
    "risa": (3, _job().replace(algorithm=sv.RISA(bottom=(4,), self_training=1, confidence=0.5, **SMALL))),  # type: ignore[arg-type]
    "fedcvt": (2, _job().replace(algorithm=sv.FedCVT(bottom=(4,)))),
    "fedda": (2, _job().replace(algorithm=sv.FedDA(bottom=(4,), first=1, generator_steps=3, **SMALL))),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("name", JOBS)
def test_a_recorder_changes_nothing_and_sees_what_the_ledgers_list(name: str) -> None:
    count, job = JOBS[name]
    parties = _credit(count)
    plain = simulate(job, parties, aligned=join_parties(parties, job), name="recorded", secrets=_alike(parties))
    recorded, transcript = _recorded(job, parties)
    key = next(iter(plain.scores))
    assert np.array_equal(plain.scores[key], recorded.scores[key])
    for party, ledger in recorded.ledgers[key].items():
        view = transcript.view(party)
        seen = [(m.way, m.peer, m.kind, m.step) for m in view.messages]
        assert seen == [(e.way, e.peer, e.kind.value, e.what) for e in ledger.entries]
        unheard = plain.ledgers[key][party].entries
        assert [(e.way, e.peer, e.what) for e in unheard] == [(w, p, s) for w, p, _, s in seen]


@pytest.mark.parametrize("name", JOBS)
def test_looks_are_of_the_rows_that_were_fed(name: str) -> None:
    """Each observation has as many values as rows, of rows that its party has; training ones come epoch by epoch."""
    count, job = JOBS[name]
    parties = _credit(count)
    _, transcript = _recorded(job, parties)
    for view in transcript.views.values():
        for (what, about), found in view.observations.items():
            assert about == (view.party if "gradient" in what else about)
            assert about in transcript.truth().x
            epochs = [one.epoch for one in found.training().all]
            assert epochs == sorted(epochs)
            for one in found.all:
                assert one.values.shape[0] == len(one.rows)
                assert np.isfinite(one.values).all()
                assert one.rows.min() >= 0
    chief = next(view for view in transcript.views.values() if view.active)
    assert any(chief.of_features(name).training() for name in chief.passive)


def test_a_look_at_identity_features_is_their_linear_image() -> None:
    """The row numbers are right: with a planted map, what was seen of a row is that map of that row's features."""
    parties = _credit()
    _, transcript = _recorded(_job(), parties)
    view, truth = transcript.view("bank"), transcript.truth()
    for name in view.passive:
        for one in view.observations["part of z", name].all:
            x = truth.x[name][one.rows]
            if len(one.rows) > 2 * x.shape[1]:
                weights, *_ = np.linalg.lstsq(x, one.values, rcond=None)
                assert np.abs(x @ weights - one.values).max() < 1e-4
    wrong = truth.x[view.passive[0]][::-1][view.train]  # of other rows: no map fits
    rows, seen = view.observations["part of z", view.passive[0]].training().of_rows(view.train)
    assert np.linalg.lstsq(wrong, seen[:, 0], rcond=None)[1].max() > 1.0
    assert np.array_equal(rows, np.sort(view.train))


def test_a_view_holds_nothing_of_others() -> None:
    """A passive party's view has its own columns, no labels, and no observation that only the active party had."""
    parties = _credit()
    _, transcript = _recorded(_job(bottom=(4,)), parties)
    truth = transcript.truth()
    for name in ("network", "retailer"):
        view: PartyView = transcript.view(name)
        assert view.y is None
        assert view.scores is None
        assert not view.steps
        assert view.rule is None
        assert np.array_equal(view.x, truth.x[name])
        assert {what for what, _ in view.observations} == {"gradient at the cut", "gradient at the activations"}
        assert {about for _, about in view.observations} == {name}
        assert view.embed is not None
        assert view.embed(view.x).shape == (view.aligned, 4)
    assert transcript.view("bank").embed is None


def test_under_a_seal_only_what_was_opened_is_seen() -> None:
    parties = _credit()
    _, plain = _recorded(_job(sv.Plain(fixed_point=True), bottom=(4,)), parties)
    _, sealed = _recorded(_job(sv.BFV(), bottom=(4,)), parties)
    assert {what for what, _ in sealed.view("bank").observations} == {"z"}
    assert {what for what, _ in sealed.view("network").observations} == {"gradient at the activations"}
    for name in ("network", "retailer"):
        one = plain.view(name).observations["gradient at the activations", name]
        other = sealed.view(name).observations["gradient at the activations", name]
        assert _equal(one, other)
        assert _equal(plain.view("bank").observations["z", name], sealed.view("bank").observations["z", name])


def _equal(one: Observations, other: Observations) -> bool:
    pairs = zip(one.all, other.all, strict=True)
    return all(np.array_equal(a.rows, b.rows) and np.array_equal(a.values, b.values) for a, b in pairs)


def test_predictions_are_recorded_too() -> None:
    parties, recorder = _credit(), Recorder()
    job = _job()
    aligned = join_parties(parties, job)
    model = simulate(job, parties, aligned=aligned).model()
    predict(model, parties, aligned=aligned, observers=dict.fromkeys(parties, recorder))
    view = recorder.transcript().view("bank")
    assert sum(len(one.rows) for one in view.observations["part of z", "network"].all) == aligned.common_rows
    assert not view.observations["part of z", "network"].training()


def test_several_label_owners_have_a_view_each() -> None:
    draw = np.random.default_rng(0)
    x = draw.normal(size=(1200, 6))
    table = sv.PartyTable(
        name="all",
        ids=[f"p{i}" for i in range(1200)],
        columns={f"c{i}": x[:, i] for i in range(6)},
        label=(x.sum(axis=1) > 0).astype(np.int64),
        classes=(0, 1),
    )
    blocks = {"clinic": ["c0", "c1"], "lab": ["c2", "c3"], "shop": ["c4", "c5"]}
    held = hold_out(1200, valid=0.1, test=0.2, seed=0)
    parties = label_owners(table, blocks, held, owners=2, rows=200, scenario="iid", seed=0)
    job = _job().replace(algorithm=sv.MultiVFL(hidden=4, top=(4,), bottom=(4,), lr=0.01, cut_lr=0.2), steps=3)
    _, transcript = _recorded(job, parties)
    owners = [owner.name for owner in parties.label_owners]
    assert set(transcript.truths) == set(owners)
    for owner in owners:
        for name in transcript.view(owner, owner).passive:
            assert transcript.view(owner, owner).of_features(name).training()
            assert transcript.view(name, owner).gradients().training()


def test_nobody_listening_is_told_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    events = ("message_passed", "rows_numbered", "activations_fed", "cut_joined", "values_opened", "steps_handed")
    for event in (*events, "network_built"):
        monkeypatch.setattr(Observer, event, lambda *_, event=event, **__: pytest.fail(f"{event} was called"))
    parties = _credit()
    simulate(_job(bottom=(4,)), parties, aligned=join_parties(parties, _job()))
