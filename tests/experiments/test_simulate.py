"""Whole jobs: every protection learns, is deterministic, is complete in its ledgers, and fails closed."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from securevfl_crypto import generate_keypair
from support.helpers import make_parties, ready_keys

import securevfl as sv
from securevfl.algorithms import splitnn
from securevfl.party_context import PartySecret
from securevfl.privacy import Policy, RowRelease
from securevfl.privacy.loss import CrossEntropy
from securevfl.run.simulation import Aligned, align_parties, run_parties
from securevfl.training import Task
from securevfl.transport import Kind, MemoryChannel, Message, decode_message, encode_message

PLAIN = sv.Job(
    protection=sv.Plain(), algorithm=sv.SplitNN(hidden=4, top=(), lr=0.05, cut_lr=1.0), epochs=4, batch_size=16, seed=5
)
PROTECTIONS = {
    "plain": sv.Plain(),
    "fixed point": sv.Plain(fixed_point=True),
    "paillier": sv.Paillier(bits=2048),
    "bfv": sv.BFV(),
    "ckks": sv.CKKS(),
    "dp": sv.Plain(dp=sv.DP(features=sv.Gaussian(epsilon=50.0, clip=4.0), labels=sv.Gaussian(epsilon=50.0))),
    "paillier + dp": sv.Paillier(
        bits=2048, dp=sv.DP(features=sv.Gaussian(epsilon=50.0, clip=4.0), labels=sv.Gaussian(epsilon=50.0))
    ),
}


@pytest.fixture
def _ready(monkeypatch: pytest.MonkeyPatch) -> None:
    ready_keys(monkeypatch)


@pytest.mark.usefixtures("_ready")
@pytest.mark.parametrize("protection", PROTECTIONS.values(), ids=PROTECTIONS.keys())
@pytest.mark.parametrize("bottom", [(), (3,)], ids=["identity", "trainable"])
def test_every_protection_trains_and_its_ledgers_verify(
    protection: sv.Plain | sv.Paillier, bottom: tuple[int, ...], tmp_path: Path
) -> None:
    job = PLAIN.replace(protection=protection, algorithm=PLAIN.algorithm.replace(bottom=bottom), epochs=2)
    result = sv.simulate(job, make_parties(rows=50))
    run = result.record.runs[0]
    assert len(run.epochs) == 2
    assert all(np.isfinite(epoch.train_loss) for epoch in run.epochs)
    assert 0 <= run.test["auc"] <= 1
    result.report(tmp_path)
    chains, lines = sv.audit(tmp_path)
    assert len(chains) == 9  # three parties: alignment, training and the digests of the results
    sent = {(line.sender, line.receiver): 0 for line in run.receipt}
    for line in run.receipt:
        sent[line.sender, line.receiver] += line.bytes
    assert sent == {(link.sender, link.receiver): link.bytes for link in run.links}
    kinds = {line.kind for line in lines if line.run != "alignment"}
    sealed = isinstance(protection, sv.cut.Sealed)
    assert (Kind.CIPHERTEXT in kinds) == sealed
    assert bool(kinds & {Kind.ACTIVATION, Kind.GRADIENT}) == (not sealed)
    assert bool(run.epsilon) == (protection.dp is not None)


@pytest.mark.usefixtures("_ready")
@pytest.mark.parametrize("protection", PROTECTIONS.values(), ids=PROTECTIONS.keys())
def test_the_bytes_that_are_counted_are_those_that_the_codec_writes(
    protection: sv.Plain | sv.Paillier, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each message of a whole run, written out: its length is what the ledgers say, and it comes back the same."""
    original, seen = MemoryChannel.send, 0

    async def writes(self: MemoryChannel, message: Message) -> int:
        nonlocal seen
        size, raw = await original(self, message), encode_message(message)
        assert size == len(raw)
        back = decode_message(raw)
        assert (back.kind, back.what, dict(back.meta)) == (message.kind, message.what, dict(message.meta))
        for name, array in message.arrays.items():
            assert np.array_equal(np.asarray(back.arrays[name]), np.asarray(array))
        seen += size
        return size

    monkeypatch.setattr(MemoryChannel, "send", writes)
    job = PLAIN.replace(protection=protection, algorithm=PLAIN.algorithm.replace(bottom=(3,)), epochs=1)
    record = sv.simulate(job, make_parties(rows=40)).record
    links = [*record.alignment.links, *record.runs[0].links]
    assert seen == sum(link.bytes for link in links)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")
@pytest.mark.parametrize("bottom", [(), (3,)], ids=["identity", "trainable"])
def test_a_gpu_trains_the_same_model(bottom: tuple[int, ...]) -> None:
    job = PLAIN.replace(algorithm=PLAIN.algorithm.replace(bottom=bottom))
    cpu, gpu = (sv.simulate(job.replace(device=device), make_parties()) for device in ("cpu", "cuda"))
    np.testing.assert_allclose(cpu.scores["plain"], gpu.scores["plain"], atol=1e-3)


@pytest.mark.parametrize(("classes", "bottom"), [(2, ()), (3, (4,))], ids=["identity", "trainable"])
def test_it_learns_what_one_party_cannot(classes: int, bottom: tuple[int, ...]) -> None:
    job = PLAIN.replace(epochs=12, algorithm=PLAIN.algorithm.replace(bottom=bottom, hidden=8, cut_lr=1.0))
    result = sv.simulate(job, make_parties(rows=900, classes=classes), baselines=("alone", "pooled"))
    auc = {run.key: run.test["auc"] for run in result.record.runs}
    assert auc["plain"] > auc["alone"] + 0.08
    assert auc["plain"] > 0.85
    assert abs(auc["plain"] - auc["pooled"]) < 0.08


def test_two_runs_with_one_seed_are_bit_identical_and_another_seed_differs() -> None:
    people = make_parties()
    one, two, other = (
        sv.simulate(PLAIN.replace(seed=seed, algorithm=PLAIN.algorithm.replace(bottom=(3,))), people)
        for seed in (5, 5, 6)
    )
    assert np.array_equal(one.scores["plain"], two.scores["plain"])
    assert one.test_ids == two.test_ids
    first, second = one.run("plain"), two.run("plain")
    assert first.test == second.test
    assert [(e.train_loss, e.valid, e.bytes) for e in first.epochs] == [
        (e.train_loss, e.valid, e.bytes) for e in second.epochs
    ]
    assert one.test_ids != other.test_ids


@pytest.mark.usefixtures("_ready")
@pytest.mark.parametrize(("passive", "bottom"), [(1, ()), (1, (3,)), (2, (3,)), (3, ())])
def test_sealed_training_equals_plain_training_in_the_same_integers(passive: int, bottom: tuple[int, ...]) -> None:
    job = PLAIN.replace(epochs=2, algorithm=PLAIN.algorithm.replace(bottom=bottom))
    people = make_parties(passive=passive, rows=44, width=2)
    result = sv.compare(
        {
            "exact": job.replace(protection=sv.Plain(fixed_point=True)),
            "sealed": job.replace(protection=sv.Paillier(bits=2048)),
            "float": job,
        },
        people,
        baselines=(),
        # From some first weights a gradient is so near zero that rounding takes it away; Adam makes a whole step of it.
        secrets={name: PartySecret.from_seed(1, name) for name in people},
    )
    assert np.array_equal(result.scores["exact"], result.scores["sealed"])
    assert [e.train_loss for e in result.run("exact").epochs] == [e.train_loss for e in result.run("sealed").epochs]
    np.testing.assert_allclose(result.scores["float"], result.scores["sealed"], atol=2e-3)


def test_a_real_key_end_to_end() -> None:
    job = PLAIN.replace(epochs=1, protection=sv.Paillier(bits=2048))
    people = make_parties(rows=40)
    begun = {name: PartySecret.generate() for name in people}
    result = sv.simulate(job, people, secrets=begun)
    exact = sv.simulate(job.replace(protection=sv.Plain(fixed_point=True)), people, secrets=begun)
    assert np.array_equal(result.scores["paillier"], exact.scores["plain"])
    text = result.receipt(width=160)
    assert "Paillier 2048 bits, key" in text
    assert "in the clear" not in text


def test_the_receipt_of_a_plain_run_says_what_was_readable() -> None:
    text = sv.simulate(PLAIN.replace(epochs=1), make_parties()).receipt(width=160)
    assert "activations at the cut" in text
    assert "in the clear" in text


def test_early_stopping_keeps_the_best_epochs_model() -> None:
    job = PLAIN.replace(epochs=40, patience=2, algorithm=PLAIN.algorithm.replace(lr=0.2))
    result = sv.simulate(job, make_parties(rows=200))
    run = result.run("plain")
    assert len(run.epochs) == run.best_epoch + 2 < 40
    assert run.stopped == "no gain on validation rows for 2 epochs"
    best = max(epoch.valid["auc"] for epoch in run.epochs)
    assert run.epochs[run.best_epoch - 1].valid["auc"] == best
    # training for exactly as long as the best epoch gives the same model
    again = sv.simulate(job.replace(epochs=run.best_epoch, patience=None), make_parties(rows=200))
    assert np.array_equal(again.scores["plain"], result.scores["plain"])


def test_differential_privacy_is_counted_as_it_happened() -> None:
    dp = sv.DP(features=sv.Gaussian(epsilon=3.0, delta=1e-6, clip=2.0), labels=sv.Gaussian(epsilon=3.0, delta=1e-6))
    fixed = sv.simulate(PLAIN.replace(protection=sv.Plain(dp=dp)), make_parties()).run("plain-dp")
    by_party = {(line.party, line.what): line for line in fixed.epsilon}
    assert set(by_party) == {("bank", "gradients"), ("shop1", "activations"), ("shop2", "activations")}
    assert by_party["shop1", "activations"].releases == 1  # the features do not change: noise is drawn once
    assert by_party["bank", "gradients"].releases == 4
    for line in fixed.epsilon:
        assert 2.9 < line.epsilon_rdp <= 3.0
        assert line.epsilon_prv <= line.epsilon_rdp
    moving = PLAIN.replace(protection=sv.Plain(dp=dp), algorithm=PLAIN.algorithm.replace(bottom=(3,)))
    trained = sv.simulate(moving, make_parties()).run("plain-dp")
    assert {line.releases for line in trained.epsilon} == {4}


def test_labels_reach_the_model_only_through_the_noised_release(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a release that gives nothing away, other labels of the training rows train the same model."""
    dp = sv.Plain(dp=sv.DP(labels=sv.Gaussian()))
    job = PLAIN.replace(protection=dp, epochs=2, algorithm=PLAIN.algorithm.replace(bottom=(3,)))
    original = RowRelease._add_noise
    monkeypatch.setattr(
        RowRelease, "_add_noise", lambda self, values, *more: original(self, values, *more).map(torch.ones_like)
    )
    people = make_parties(rows=80)
    true = sv.simulate(job, people)
    bank = people["bank"]
    assert bank.label is not None
    tested = set(true.test_ids)
    label = np.array([y if ref in tested else 1 - y for ref, y in zip(bank.ids, bank.label, strict=True)])
    flipped = sv.simulate(job, sv.Parties.of(replace(bank, label=label), *people.passive))
    assert true.run("plain-dp").epochs[0].train_loss != flipped.run("plain-dp").epochs[0].train_loss
    start = sv.simulate(job.replace(epochs=1), people)
    for result in (true, flipped):  # the kept epoch is chosen by validation labels, so compare the same one
        if result.run("plain-dp").best_epoch == 1:
            assert np.array_equal(result.scores["plain-dp"], start.scores["plain-dp"])
    again = sv.simulate(job.replace(epochs=1), sv.Parties.of(replace(bank, label=label), *people.passive))
    assert np.array_equal(start.scores["plain-dp"], again.scores["plain-dp"])


@pytest.mark.parametrize("classes", [2, 3, 5])
def test_a_label_moves_its_gradient_by_no_more_than_the_sensitivity(classes: int) -> None:
    task, loss = Task(classes), CrossEntropy(classes)
    logits = torch.randn(200, task.outputs, generator=torch.Generator().manual_seed(0)) * 5
    gradients = []
    for label in range(classes):
        leaf = logits.clone().requires_grad_()
        loss(leaf, torch.full((200,), label)).sum().backward()
        assert leaf.grad is not None
        gradients.append(leaf.grad)
    moves = [torch.linalg.vector_norm(a - b, dim=1).max() for a in gradients for b in gradients]
    assert float(max(moves)) == pytest.approx(loss.sensitivity, rel=1e-5)


def test_trainable_bottoms_with_noise_carry_a_note() -> None:
    job = PLAIN.replace(
        epochs=1,
        protection=sv.Plain(dp=sv.DP(features=sv.Gaussian(epsilon=50.0), labels=sv.Gaussian(epsilon=50.0))),
    )
    job = job.replace(policies=dict.fromkeys(("shop1", "shop2"), sv.Policy(max_results="unlimited")))
    assert sv.simulate(job, make_parties()).run("plain-dp").notes == []
    deep = job.replace(algorithm=job.algorithm.replace(bottom=(3,)))
    assert "through the bottoms' weights" in sv.simulate(deep, make_parties()).run("plain-dp").notes[0]


def test_a_budget_over_the_partys_bound_is_refused_before_training() -> None:
    dp = sv.Plain(dp=sv.DP(features=sv.Gaussian(epsilon=8.0), labels=sv.Gaussian(epsilon=8.0)))
    job = PLAIN.replace(protection=dp, policies={"shop1": sv.Policy(max_epsilon=2.0)})
    with pytest.raises(sv.PolicyError, match=r"spends ε = 8; the policy allows 2"):
        sv.simulate(job, make_parties())


def test_a_partys_own_policy_is_a_floor() -> None:
    job = PLAIN.replace(policies={"shop2": sv.Policy(sealed=True)})
    with pytest.raises(sv.PolicyError, match="demands them sealed") as caught:
        sv.simulate(job, make_parties())
    assert "raised at party 'shop2'" in "".join(caught.value.__notes__)
    with pytest.raises(sv.UnknownNameError, match="did you mean 'shop2'"):
        sv.simulate(PLAIN.replace(policies={"shop22": sv.Policy()}), make_parties())
    few = PLAIN.replace(policies={"bank": sv.Policy(min_intersection=10_000)})
    with pytest.raises(sv.PolicyError, match="the policy demands at least 10000"):
        sv.simulate(few, make_parties())


def test_rows_that_were_not_verified_are_not_trained_on() -> None:
    people = make_parties()
    aligned = align_parties(people, PLAIN)
    forged = replace(aligned.parties["shop1"], verified_by=("bank",))
    with pytest.raises(sv.AlignmentError, match="not verified with shop2"):
        run_parties(PLAIN, people, Aligned(alignments=aligned.alignments | {"shop1": {"bank": forged}}), run="x")


@pytest.mark.parametrize("failing", ["bank", "shop2"])
def test_when_a_party_fails_the_run_ends_with_its_cause(monkeypatch: pytest.MonkeyPatch, failing: str) -> None:
    role = splitnn.Active if failing == "bank" else splitnn.Passive
    original = role.train_batch
    calls = 0

    async def breaks(self: splitnn.Active, rows: np.ndarray) -> object:
        nonlocal calls
        if self.site.name == failing:
            calls += 1
            if calls == 3:
                raise OSError("disk full")
        return await original(self, rows)  # type: ignore[arg-type]

    monkeypatch.setattr(role, "train_batch", breaks)
    with pytest.raises(sv.PartyFailed, match=f"party '{failing}' failed: OSError: disk full") as caught:
        sv.simulate(PLAIN, make_parties())
    assert isinstance(caught.value.__cause__, OSError)


def test_a_protection_that_does_not_act_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """The job asks for Paillier; a broken build makes plain cuts, declares them, and has a lax policy. The ledgers
    tell."""
    job = PLAIN.replace(epochs=1, protection=sv.Paillier(bits=2048))
    plain = sv.Plain()
    monkeypatch.setattr(sv.Paillier, "active_cut", lambda self, site, spec: plain.active_cut(site, spec))
    monkeypatch.setattr(sv.Paillier, "passive_cut", lambda self, site, spec: plain.passive_cut(site, spec))
    with pytest.raises(sv.ProtocolError, match="which nothing in the job declares; nothing was sent"):
        sv.simulate(job, make_parties())
    monkeypatch.setattr(sv.Paillier, "exchanges", lambda self, use, passive: plain.exchanges(use, passive))
    with pytest.raises(sv.PolicyError, match="demands them sealed"):
        sv.simulate(job, make_parties())
    monkeypatch.setattr(sv.Paillier, "policy", lambda self: Policy())
    with pytest.raises(sv.ProtectionInactive, match="that their receiver can read"):
        sv.simulate(job, make_parties())


def test_a_weaker_key_than_asked_for_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """The active party's build makes short keys: its peers refuse them before they encrypt anything."""
    from securevfl_crypto.paillier import Paillier

    weak = generate_keypair(768, unsafe_small_key=True)
    monkeypatch.setattr(Paillier, "generate_key", lambda self: weak)
    job = PLAIN.replace(epochs=1, protection=sv.Paillier(bits=2048))
    with pytest.raises(sv.PolicyError, match=r"768 bits.*nothing was encrypted"):
        sv.simulate(job, make_parties())


def test_noise_that_was_forgotten_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    job = PLAIN.replace(epochs=1, protection=sv.Plain(dp=sv.DP(features=sv.Gaussian())))
    monkeypatch.setattr(
        splitnn.Passive, "activations", lambda self, rows, *, train: self.half.bottom(self.features(rows))
    )
    with pytest.raises(sv.PolicyError, match="contains activations without noise"):
        sv.simulate(job, make_parties())
    monkeypatch.setattr(sv.Plain, "policy", lambda self: Policy())
    with pytest.raises(sv.ProtectionInactive, match="nothing was released through it"):
        sv.simulate(job, make_parties())


def test_sealing_a_party_that_is_alone_is_an_error() -> None:
    alone = sv.Parties.of(make_parties()["bank"])
    with pytest.raises(sv.ProtectionInactive, match="nothing to seal"):
        sv.simulate(PLAIN.replace(protection=sv.Paillier(bits=2048)), alone)


def test_diverging_training_is_an_error_with_a_cure() -> None:
    wild = PLAIN.replace(algorithm=PLAIN.algorithm.replace(lr=100.0, cut_lr=100.0), epochs=30)
    with pytest.raises(sv.RangeError, match="lower the learning rates"):
        sv.simulate(wild.replace(protection=sv.Plain(fixed_point=True)), make_parties())


def test_it_runs_where_an_event_loop_runs_already() -> None:
    async def notebook() -> sv.Result:
        return sv.simulate(PLAIN.replace(epochs=1), make_parties())

    assert asyncio.run(notebook()).run("plain").epochs


def test_the_observer_hears_every_step() -> None:
    class Spy(sv.Observer):
        def __init__(self) -> None:
            self.heard: list[object] = []

        def run(self, title: str) -> None:
            self.heard.append(title)

        def phase(self, name: str) -> None:
            self.heard.append(name)

        def step(self, epoch: int, done: int, total: int) -> None:
            self.heard.append((epoch, done, total))

        def epoch(self, epoch: int, loss: float, valid: dict[str, float]) -> None:
            self.heard.append((epoch, sorted(valid)))

    spy = Spy()
    sv.simulate(PLAIN.replace(epochs=1), make_parties(rows=60), observer=spy)
    assert spy.heard[:2] == ["alignment by PSI", "alignment"]
    assert [h for h in spy.heard if isinstance(h, tuple) and len(h) == 3][-1] == (1, 3, 3)
    assert (1, ["accuracy", "auc", "ks", "log_loss"]) in spy.heard


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"protection": "palier"}, "protection.name is 'palier'; did you mean 'paillier'"),
        ({"protection": "tls"}, "protection.name is 'tls'; known: 'auto', 'bfv', 'ckks', 'paillier', 'plain'"),
        ({"protection": None}, "protection is None; "),
        ({"algorithm": "splitn"}, "algorithm.name is 'splitn'; did you mean 'splitnn'"),
        ({"algorithm": sv.SplitNN}, "algorithm is <class"),
        ({"epochs": 0}, "epochs is 0"),
        ({"batch_size": 2.5}, "batch_size is 2.5"),
        ({"seed": -1}, "seed is -1"),
        ({"patience": 0}, "patience is 0"),
        ({"valid": 0.6, "test": 0.5}, "together they are less than 1"),
        ({"clip": 9.0}, "clip is 9.0"),
        ({"scale": "log"}, "scale is 'log'; known: 'auto', 'none', 'quantile', 'robust', 'standard'"),
        ({"device": "cuda:77"}, "use device='cpu'"),
    ],
)
def test_impossible_jobs_are_refused(change: dict[str, object], match: str) -> None:
    with pytest.raises(sv.InputError, match=match):
        PLAIN.replace(**change)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "call",
    [
        lambda: sv.Paillier(bits=1024),
        lambda: sv.Paillier(bits=2049),
        lambda: sv.SplitNN(hidden=0),
        lambda: sv.SplitNN(top=(4, -1)),
        lambda: sv.SplitNN(lr=0),
        lambda: sv.SplitNN(cut_lr=float("nan")),
        lambda: sv.SplitNN(weight_decay=1.0),
    ],
)
def test_impossible_configurations_are_refused(call: object) -> None:
    with pytest.raises(sv.InputError):
        call()  # type: ignore[operator]


def test_names_stand_for_defaults() -> None:
    assert sv.Job(protection="paillier", algorithm="splitnn") == sv.Job(protection=sv.Paillier())  # type: ignore[arg-type]


def test_comparisons_are_of_the_same_rows() -> None:
    with pytest.raises(sv.InputError, match="differ in seed"):
        sv.compare({"a": PLAIN, "b": PLAIN.replace(seed=9)}, make_parties())
    with pytest.raises(sv.UnknownNameError, match="did you mean 'pooled'"):
        sv.simulate(PLAIN, make_parties(), baselines=("poled",))
    with pytest.raises(sv.InputError, match="cannot be the key"):
        sv.compare({"alone": PLAIN}, make_parties())
    with pytest.raises(sv.InputError, match="no job"):
        sv.compare({}, make_parties())
    with pytest.raises(sv.UnknownNameError, match="unknown run"):
        sv.simulate(PLAIN.replace(epochs=1), make_parties()).run("paillier")


def test_the_digest_of_a_job_covers_what_is_agreed_and_nothing_else() -> None:
    base = PLAIN.digest
    assert PLAIN.replace(policies={"bank": sv.Policy(min_key_bits=3072)}).digest == base
    changed = [
        PLAIN.replace(seed=6),
        PLAIN.replace(epochs=5),
        PLAIN.replace(protection=sv.Paillier()),
        PLAIN.replace(protection=sv.Plain(dp=sv.DP(features=sv.Gaussian(), labels=sv.Gaussian()))),
        PLAIN.replace(algorithm=PLAIN.algorithm.replace(hidden=5)),
    ]
    assert len({base, *(job.digest for job in changed)}) == 6


def test_parties_that_an_algorithm_cannot_serve_are_refused_before_anything_is_sent() -> None:
    class Listens(sv.Observer):
        def phase(self, name: str) -> None:
            raise AssertionError(f"{name} began")

    with pytest.raises(sv.InputError, match="for one active and 1 passive party; there are 2") as refused:
        sv.simulate(PLAIN.replace(algorithm=sv.FedCVT()), make_parties(passive=2), observer=Listens())
    assert refused.value.ledgers == ()
