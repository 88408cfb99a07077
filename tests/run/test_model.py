"""Checkpoints, models and predictions on new rows."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from support.helpers import make_parties, ready_keys

import securevfl as sv
from securevfl.data import datasets
from securevfl.party_context import PartySecret
from securevfl.privacy import read_lines, verify_chains
from securevfl.run.checkpoint import FolderKeeper, make_keepers

JOB = sv.Job(protection=sv.Plain(), algorithm=sv.SplitNN(hidden=4, top=(4,)), epochs=4, batch_size=32)
ALGORITHMS = [
    sv.SplitNN(hidden=4, top=(4,), bottom=(5,)),
    sv.LogisticRegression(),
    sv.FedCVT(bottom=(6,)),
    sv.RISA(hidden=4, bottom=(5,), self_training=2, drop_every=1),
    sv.FedDA(hidden=4, bottom=(5,), first=2, generator_steps=3),
    sv.EntityAugmentation(hidden=4),
]


class Fails(sv.Observer):
    """Ends the run after an epoch, as a power cut would."""

    def __init__(self, after: int) -> None:
        self.after = after

    def epoch(self, epoch: int, loss: float, valid: dict[str, float]) -> None:
        if epoch == self.after:
            raise OSError("the lights went out")


def limited(seed: int = 0) -> sv.Parties:
    return datasets.limited_credit(overlap=0.3, rows=400, parties=2, labels="all", seed=seed)


@pytest.mark.parametrize("algorithm", ALGORITHMS, ids=lambda a: a.name)
def test_a_run_that_broke_off_goes_on(algorithm: sv.SplitNN, tmp_path: Path) -> None:
    job, people = JOB.replace(algorithm=algorithm), limited()
    whole = sv.simulate(job, people)
    with pytest.raises(sv.PartyFailed, match="the lights went out"):
        sv.simulate(job, people, checkpoints=tmp_path, observer=Fails(3))
    kept = sorted(path.name for path in (tmp_path / "plain").glob("bank.*"))
    assert kept == ["bank.epoch-1.safetensors", "bank.epoch-2.safetensors", "bank.journal.jsonl"]
    again = sv.simulate(job, people, checkpoints=tmp_path)
    np.testing.assert_array_equal(again.scores["plain"], whole.scores["plain"])
    run = again.run("plain")
    assert [epoch.valid for epoch in run.epochs] == [epoch.valid for epoch in whole.run("plain").epochs]
    assert run.best_epoch == whole.run("plain").best_epoch


@pytest.mark.parametrize("protection", [sv.Plain(fixed_point=True), sv.Paillier(bits=2048)], ids=lambda p: p.name)
def test_so_does_one_in_exact_integers(
    protection: sv.Plain | sv.Paillier, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ready_keys(monkeypatch)
    job = JOB.replace(protection=protection, epochs=2, algorithm=JOB.algorithm.replace(bottom=(3,)))
    people, key = make_parties(passive=2, rows=40), protection.name
    begun = {name: PartySecret.generate() for name in people}
    whole = sv.simulate(job, people, secrets=begun)
    with pytest.raises(sv.PartyFailed):
        sv.simulate(job, people, checkpoints=tmp_path, observer=Fails(2), secrets=begun)
    again = sv.simulate(job, people, checkpoints=tmp_path)  # the checkpoints hold the secrets
    np.testing.assert_array_equal(again.scores[key], whole.scores[key])


def test_checkpoints_of_another_job_are_refused(tmp_path: Path) -> None:
    people = make_parties()
    sv.simulate(JOB, people, checkpoints=tmp_path)
    with pytest.raises(sv.InputError, match="another job or party"):
        sv.simulate(JOB.replace(seed=5), people, checkpoints=tmp_path)


def test_a_finished_run_is_not_trained_again(tmp_path: Path) -> None:
    people = make_parties()
    first = sv.simulate(JOB, people, checkpoints=tmp_path)
    seen: list[int] = []

    class Listens(sv.Observer):
        def epoch(self, epoch: int, loss: float, valid: dict[str, float]) -> None:
            seen.append(epoch)

    again = sv.simulate(JOB, people, checkpoints=tmp_path, observer=Listens())
    assert seen == []
    np.testing.assert_array_equal(again.scores["plain"], first.scores["plain"])


def test_parties_go_on_from_the_last_epoch_that_all_have(tmp_path: Path) -> None:
    for name, epochs in (("a", (1, 2)), ("b", (2, 3)), ("c", (1,))):
        keeper = FolderKeeper(tmp_path, name, "job")
        for epoch in epochs:
            keeper.save(epoch, {"epoch": epoch})
    found = make_keepers(tmp_path, ["a", "b"], "job")
    assert {keeper.start for keeper in found.values()} == {2}
    assert found["b"].load() == {"epoch": 2}
    with pytest.raises(
        sv.InputError,
        match=r"no epoch with an intact checkpoint of every party \(a: 1, 2; d: none\): bring the missing",
    ):
        make_keepers(tmp_path, ["a", "d"], "job")
    with pytest.raises(sv.InputError, match=r"'d' records 0 attempts at this run, that of 'c' 1"):
        make_keepers(tmp_path, ["c", "d"], "job")
    FolderKeeper(tmp_path, "d", "job").journal.begin_attempt(0)
    assert (
        make_keepers(tmp_path, ["c", "d"], "job")["c"].load() is None
    )  # it interrupted run of while the first ones were written


def test_names_that_begin_alike_are_kept_apart(tmp_path: Path) -> None:
    FolderKeeper(tmp_path, "a", "job").save(1, {})
    FolderKeeper(tmp_path, "a.epoch-1", "job").save(7, {})
    assert FolderKeeper(tmp_path, "a", "job").stored_epochs() == {1}


@pytest.mark.parametrize("algorithm", ALGORITHMS, ids=lambda a: a.name)
def test_a_saved_model_predicts_what_the_run_scored(algorithm: sv.SplitNN, tmp_path: Path) -> None:
    job, people = JOB.replace(algorithm=algorithm), limited()
    result = sv.simulate(job, people)
    folder = result.model().save(tmp_path / "model")
    assert sorted(path.name for path in folder.iterdir()) == [
        "bank.model.safetensors",
        "model.run",  # names the run, so that a party alone can tell whether its part belongs to its peers'
        "network.model.safetensors",
    ]
    found = sv.predict(sv.Model.load(folder, job), people)
    place = {name: row for row, name in enumerate(found.ids)}
    rows = [place[name] for name in result.test_ids]
    np.testing.assert_allclose(found.probabilities[rows], result.scores["plain"], atol=1e-6)
    np.testing.assert_allclose(found.probabilities.sum(axis=1), 1)
    assert found.classes == ("0", "1")


def test_new_rows_without_labels() -> None:
    people = make_parties(rows=400)
    result = sv.simulate(JOB.replace(epochs=25, algorithm=sv.SplitNN(hidden=8, top=(8,), lr=0.03)), people)
    fresh = make_parties(rows=90, seed=3)
    unlabelled = [replace(fresh["bank"], label=None, classes=()), *fresh.passive]
    found = sv.predict(result.model(), sv.Parties.of(*unlabelled, active="bank"))
    truth = dict(zip(fresh["bank"].ids, fresh["bank"].label.tolist(), strict=True))  # type: ignore[union-attr]
    right = [truth[name] == p.argmax() for name, p in zip(found.ids, found.probabilities, strict=True)]
    assert len(found.ids) >= 70
    assert np.mean(right) > 0.8
    sent = {entry.kind.value for entry in found.ledgers["shop1"].entries if entry.way == "sent"}
    assert sent == {"control", "activation"}  # nothing that training sends


def test_predicting_with_other_parties_or_columns_is_an_error() -> None:
    result = sv.simulate(JOB.replace(epochs=1), make_parties())
    with pytest.raises(sv.InputError, match="the model belongs to bank, shop1, shop2"):
        sv.predict(result.model(), make_parties(passive=1))
    with pytest.raises(sv.UnknownNameError, match=r"column of '(bank|shop1|shop2)'"):
        sv.predict(result.model(), make_parties(width=2))


def test_a_model_of_another_job_or_none_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(sv.InputError, match="contains no model"):
        sv.Model.load(tmp_path, JOB)
    sv.simulate(JOB.replace(epochs=1), make_parties()).model().save(tmp_path)
    with pytest.raises(sv.InputError, match="trained by another job"):
        sv.Model.load(tmp_path, JOB)
    (tmp_path / "bank.model.safetensors").write_bytes(b"no model")
    with pytest.raises(sv.InputError, match="damaged"):
        sv.Model.load(tmp_path, JOB.replace(epochs=1))


# differential privacy

NOISY = sv.DP(features=sv.Gaussian(epsilon=30.0))
AT_Z = sv.DP(features=sv.JointNoise(epsilon=30.0, weight_bound=20.0))


@pytest.mark.parametrize(
    ("bottom", "dp", "whole", "resumed"),
    [
        ((3,), NOISY, 3, 5),  # the passive parties had begun epoch 3 when the active one failed after epoch 2
        ((), AT_Z, 3, 5),
        ((), NOISY, 1, 1),  # drawn once, and the checkpoint remembers it
        ((3,), sv.DP(labels=sv.Gaussian(epsilon=30.0)), 3, 4),
    ],
    ids=["activations", "z", "once", "gradients"],
)
def test_what_a_broken_epoch_released_is_counted(
    bottom: tuple[int, ...], dp: sv.DP, whole: int, resumed: int, tmp_path: Path
) -> None:
    job = JOB.replace(algorithm=sv.SplitNN(hidden=4, top=(), bottom=bottom), protection=sv.Plain(dp=dp), epochs=3)
    people = make_parties()
    assert {e.releases for e in sv.simulate(job, people).run("plain-dp").epsilon} == {whole}
    with pytest.raises(sv.PartyFailed, match="the lights went out"):
        sv.simulate(job, people, checkpoints=tmp_path, observer=Fails(2))
    run = sv.simulate(job, people, checkpoints=tmp_path).run("plain-dp")
    assert {e.releases for e in run.epsilon} == {resumed}
    assert any("interrupted run" in note for note in run.notes) == (resumed > whole)


def test_each_break_counts_and_a_policy_can_refuse_to_go_on(tmp_path: Path) -> None:
    algorithm = sv.SplitNN(hidden=4, top=(), bottom=(3,))
    job, people = JOB.replace(algorithm=algorithm, protection=sv.Plain(dp=NOISY), epochs=3), make_parties()
    for _ in range(2):
        with pytest.raises(sv.PartyFailed):
            sv.simulate(job, people, checkpoints=tmp_path, observer=Fails(2))
    strict = job.replace(policies={"shop1": sv.Policy(max_epsilon=31.0)})
    with pytest.raises(sv.PolicyError, match="may have released a row 4 times more"):
        sv.simulate(strict, people, checkpoints=tmp_path)
    run = sv.simulate(job, people, checkpoints=tmp_path).run("plain-dp")
    assert max(e.releases for e in run.epsilon) >= 5
    assert max(e.epsilon_rdp for e in run.epsilon) > 31


@pytest.mark.parametrize("dp", [NOISY, AT_Z], ids=["once", "z"])
def test_each_prediction_is_one_more_release_and_the_ledger_says_so(dp: sv.DP, tmp_path: Path) -> None:
    job = JOB.replace(algorithm=sv.SplitNN(hidden=4, top=()), protection=sv.Plain(dp=dp), epochs=2)
    people = make_parties()
    result = sv.simulate(job, people)
    spent = result.run("plain-dp").epsilon[0]
    found = [sv.predict(result.model(), people) for _ in range(2)]
    same = np.array_equal(found[0].probabilities, found[1].probabilities)
    assert same is (dp is NOISY)  # noise on activations is the row's own; on z it is drawn anew
    for one in found:
        for name, ledger in one.ledgers.items():
            (tmp_path / "ledger.jsonl").write_bytes(ledger.to_jsonl())
            (chain,) = verify_chains(read_lines(tmp_path / "ledger.jsonl"))
            notes = [note.values for note in chain.notes if note.note == "epsilon"]
            assert [note["times"] for note in notes] == ([] if name == "bank" else [1])
            for note in notes:
                assert note["noise_multiplier"] == pytest.approx(spent.noise_multiplier)
                assert 0 < float(str(note["epsilon_rdp"])) <= spent.epsilon_rdp
    strict = job.replace(policies={"shop2": sv.Policy(max_epsilon=1.0)})
    with pytest.raises(sv.PolicyError, match=r"the policy allows 1"):
        sv.predict(replace(result.model(), job=strict), people)
