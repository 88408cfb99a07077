"""Many label owners: the server optimisers, the masked sum, the topology."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import securevfl_crypto as crypto
from hypothesis import given
from hypothesis import strategies as st
from securevfl_crypto.aggregation import Aggregator, PaillierAggregator
from support.keys import ready_keys

import securevfl as sv
from securevfl.algorithms.multivfl import averaging
from securevfl.algorithms.multivfl.averaging import mask_values, unmasked_mean
from securevfl.algorithms.multivfl.servers import SERVERS, ServerName, ServerOptimiser, demon_momentum
from securevfl.data import hold_out, label_owners
from securevfl.party_context import PartySecret
from securevfl.privacy import Entry, Ledger
from securevfl.run import align_parties, join_parties
from securevfl.transport import MemoryHub

CONFIG = sv.MultiVFL(hidden=8, top=(8,), bottom=(6,), lr=0.01, cut_lr=0.2)
JOB = sv.Job(protection=sv.Plain(), algorithm=CONFIG, epochs=6, steps=10, batch_size=32)


def people(owners: int = 3, rows: int = 100, scenario: str = "iid", seed: int = 0) -> sv.Parties:
    rng = np.random.default_rng(seed)
    n = owners * rows * 3
    x = rng.normal(size=(n, 6))
    score = x.sum(axis=1)
    label = np.digitize(score, np.quantile(score, [0.25, 0.5, 0.75])).astype(np.int64)
    table = sv.PartyTable(
        name="all",
        ids=[f"p{i}" for i in range(n)],
        columns={f"c{i}": x[:, i] for i in range(6)},
        label=label,
        classes=(0, 1, 2, 3),
    )
    columns = {"clinic": ["c0", "c1"], "lab": ["c2", "c3"], "shop": ["c4", "c5"]}
    fold = hold_out(n, valid=0.1, test=0.2, seed=seed)
    return label_owners(table, columns, fold, owners=owners, rows=rows, scenario=scenario, seed=seed)


def run(job: sv.Job, parties: sv.Parties, **options: Any) -> sv.Result:
    """Simulated over an alignment without the protocol, which has tests of its own."""
    alike = {name: PartySecret.from_seed(job.seed, name) for name in parties}  # sealed runs too: they are compared
    return sv.simulate(job, parties, aligned=join_parties(parties, job), secrets=alike, **options)


@functools.cache
def trained() -> sv.Result:
    """`JOB` run once for the tests that only look at what came of it."""
    return run(JOB, people())


def entries(ledger: Ledger) -> list[Entry]:
    """What was sent and received between consent to the job and the words on the ledgers."""
    return [entry for entry in ledger.entries if entry.what not in ("party/consent", "ledger/head")]


class Fails(sv.Observer):
    """Ends a run after an epoch."""

    def __init__(self, after: int) -> None:
        self.after = after

    def epoch(self, epoch: int, loss: float, valid: dict[str, float]) -> None:
        if epoch == self.after:
            raise OSError("the lights went out")


def test_demon_falls_from_beta_to_zero() -> None:
    assert demon_momentum(0.9, 0.0) == pytest.approx(0.9)
    assert demon_momentum(0.9, 1.0) == 0.0
    assert demon_momentum(0.9, 0.5) == pytest.approx(0.9 * 0.5 / (0.1 + 0.45))
    values = [demon_momentum(0.9, done) for done in np.linspace(0, 1, 20)]
    assert all(a > b for a, b in itertools.pairwise(values))


def test_fedavg_takes_the_mean() -> None:
    server = ServerOptimiser("fedavg", 5)
    np.testing.assert_array_equal(server.step_weights(np.array([1.0, 2.0]), np.array([0.5, -1.0])), [1.5, 1.0])


def test_fedavg_has_a_rate_too() -> None:
    server = ServerOptimiser("fedavg", 5, 0.5)
    np.testing.assert_array_equal(server.step_weights(np.array([1.0, 2.0]), np.array([0.5, -1.0])), [1.25, 1.5])
    assert sv.MultiVFL(server="fedavg").make_optimiser(JOB.plan).rate == 1
    assert sv.MultiVFL(server="feddemonadam").make_optimiser(JOB.plan).rate == 1e-3


CHANGES = [0.3, -0.1, 0.2, 0.05]
B1, B2, TAU, LR = 0.9, 0.99, 1e-3, 0.1


def adam(changes: Sequence[float], *, yogi: bool) -> list[float]:
    """FedAdam and FedYogi in ten lines, on one number."""
    w, m, v, found = 1.0, 0.0, 0.0, []
    for r, g in enumerate(changes, 1):
        m = B1 * m + (1 - B1) * g
        v = v - (1 - B2) * g * g * np.sign(v - g * g) if yogi else B2 * v + (1 - B2) * g * g
        w += LR * (m / (1 - B1**r)) / (np.sqrt(v / (1 - B2**r)) + TAU)
        found.append(w)
    return found


def printed(changes: Sequence[float]) -> list[float]:
    """Algorithm 1's ServerAggregation with opt = demon, line by line, on one number."""
    w, m, v, beta, rounds, found = 1.0, 0.0, 0.0, B1, len(changes), []
    for r, t in enumerate(changes, 1):
        beta = beta * (1 - r / rounds) / ((1 - beta) + beta * (1 - r / rounds))
        m = beta * m + t
        v = B2 * v + (1 - B2) * m**2
        w = w + np.sqrt(1 - B2**r) / (1 - beta**r) * LR * m / (np.sqrt(v) + TAU)
        found.append(w)
    return found


def closed(changes: Sequence[float]) -> list[float]:
    """Chen et al.'s DemonAdam, on one number: the decay from the first beta, no correction of the momentum."""
    w, m, v, rounds, found = 1.0, 0.0, 0.0, len(changes), []
    for r, g in enumerate(changes):
        left = 1 - r / rounds
        m = B1 * left / ((1 - B1) + B1 * left) * m + g
        v = B2 * v + (1 - B2) * g * g
        w += LR * m / (np.sqrt(v / (1 - B2 ** (r + 1))) + TAU)
        found.append(w)
    return found


EXPECTED = {
    "fedadam": adam(CHANGES, yogi=False),
    "fedyogi": adam(CHANGES, yogi=True),
    "feddemonadam": printed(CHANGES),
    "feddemonadam, closed": closed(CHANGES),
}


@pytest.mark.parametrize("name", EXPECTED)
def test_adaptive_servers_against_a_loop_on_one_number(name: str) -> None:
    kind, _, reading = name.partition(", ")
    how: Any = reading or "printed"

    def made() -> ServerOptimiser:
        return ServerOptimiser(kind, len(CHANGES), LR, B1, B2, TAU, how)

    server, found = made(), [np.array([1.0])]
    for g in CHANGES[:3]:
        found.append(server.step_weights(found[-1], np.array([g])))
    again = made()
    again.load_state(server.get_state())
    for going in (server, again):
        np.testing.assert_allclose(
            [*found[1:], going.step_weights(found[-1], np.array([CHANGES[3]]))], np.array(EXPECTED[name])[:, None]
        )


def test_the_printed_decay_compounds() -> None:
    """Odds of beta fall by the product of 1 - r/R, not by its last factor."""
    server, rounds = ServerOptimiser("feddemonadam", 20), 20
    for r in range(1, 7):
        server.step_weights(np.zeros(1), np.ones(1))
        odds = 9 * np.prod([1 - i / rounds for i in range(1, r + 1)])
        assert server.decay == pytest.approx(odds / (1 + odds))


def zero_shares(names: int) -> list[crypto.ZeroShares]:
    seeds = {(i, j): bytes([i, j] * 16) for i in range(names) for j in range(i + 1, names)}
    return [
        crypto.ZeroShares(
            [crypto.PairwiseMasks(seeds[min(i, j), max(i, j)], positive=i < j) for j in range(names) if j != i]
        )
        for i in range(names)
    ]


@given(values=st.lists(st.lists(st.floats(-1e6, 1e6), min_size=3, max_size=3), min_size=1, max_size=4))
def test_masked_changes_add_up(values: list[list[float]]) -> None:
    parts = [mask_values(np.array(v), shares) for v, shares in zip(values, zero_shares(len(values)), strict=True)]
    np.testing.assert_allclose(unmasked_mean(parts, 3), np.mean(values, axis=0), atol=2**-39)


def test_one_masked_change_tells_nothing() -> None:
    shares = zero_shares(2)
    zeros, ones = mask_values(np.zeros(2000), shares[0]), mask_values(np.ones(2000), zero_shares(2)[0])
    for part in (zeros, ones):
        assert len(np.unique(part.reshape(-1, 16), axis=0)) == 2000
        assert abs(part.mean() - 127.5) < 1.5  # uniform bytes
    assert not np.array_equal(
        mask_values(np.zeros(5), shares[0]), mask_values(np.zeros(5), shares[0])
    )  # never the same mask


def test_changes_that_cannot_be_added_are_refused() -> None:
    share = zero_shares(1)[0]
    for bad in (np.nan, np.inf, 2.0**41):
        with pytest.raises(sv.ProtocolError, match="did training diverge"):
            mask_values(np.array([bad]), share)
    with pytest.raises(sv.ProtocolError, match="32 were expected"):
        unmasked_mean([np.zeros(31, dtype=np.uint8)], 2)


@pytest.mark.parametrize("server", SERVERS)
def test_it_learns(server: ServerName) -> None:
    rate = {"fedavg": 1.0, "feddemonadam": 0.005}.get(server, 0.03)
    job = JOB.replace(epochs=10, algorithm=CONFIG.replace(server=server, server_lr=rate))
    assert run(job, people()).run("plain").test["accuracy"] > 0.4  # of four classes


def test_label_owners_can_have_a_convolution() -> None:
    config = CONFIG.replace(hidden=12, convolution=(3, 2, 2), aggregation="ckks")
    plain, sealed = (
        run(JOB.replace(epochs=2, steps=2, batch_size=16, algorithm=config, protection=kind), people(owners=2, rows=30))
        for kind in (sv.Plain(fixed_point=True), sv.BFV())
    )
    np.testing.assert_allclose(sealed.scores["bfv"], plain.scores["plain"], atol=1e-5)
    whole = plain.model().parts["owner1"]["parts"]["half"][0]
    assert [tuple(w.shape) for name, w in whole.items() if name.startswith("2.1.")] == [(3, 3, 3, 3), (3,)]
    for wrong in ((3, 2), (3, 2, 3)):
        with pytest.raises(sv.InputError, match="whose product is hidden, 12"):
            config.replace(convolution=wrong)


@pytest.mark.parametrize("convolution", [(), (2, 2, 2)])
def test_all_copies_and_owners_end_alike(convolution: tuple[int, ...]) -> None:
    job = JOB.replace(epochs=2, steps=4, algorithm=CONFIG.replace(convolution=convolution))
    result = run(job, people()) if convolution else trained()
    model = result.model()
    assert sorted(model.parts) == ["clinic", "lab", "owner1", "shop"]
    whole = sv.Parties.of(people()["owner1"], *people().passive)
    predicted = sv.predict(model, whole)
    place = {name: row for row, name in enumerate(predicted.ids)}
    rows = [place[name] for name in result.test_ids]
    np.testing.assert_allclose(predicted.probabilities[rows], result.scores["plain"], atol=1e-6)


def test_one_label_owner_with_fedavg_and_plain_splitnn_are_the_same_model() -> None:
    """With K = 1 the average is the identity; batches differ, so compare what it learns, not bits."""
    one = people(owners=1, rows=300)
    multi = run(JOB.replace(epochs=8), one).run("plain").test["accuracy"]
    whole = sv.Parties.of(*one.values())
    split = JOB.replace(epochs=8, algorithm=sv.SplitNN(hidden=8, top=(8,), bottom=(6,), lr=0.01, cut_lr=0.2))
    assert sv.simulate(split, whole).run("plain").test["accuracy"] == pytest.approx(multi, abs=0.12)


def test_one_seed_gives_one_result_and_another_another() -> None:
    job = JOB.replace(epochs=2, steps=3)
    one, same, other = (run(kind, people()).scores["plain"] for kind in (job, job, job.replace(seed=1)))
    np.testing.assert_array_equal(one, same)
    assert not np.array_equal(one, other)


def test_a_run_that_broke_off_goes_on(tmp_path: Path) -> None:
    job = JOB.replace(steps=3, algorithm=CONFIG.replace(server="fedyogi", server_lr=0.03))
    whole = run(job, people())
    with pytest.raises(sv.PartyFailed):
        run(job, people(), checkpoints=tmp_path, observer=Fails(after=4))
    assert "coordinator.epoch-3.safetensors" in {path.name for path in (tmp_path / "plain").iterdir()}
    again = run(job, people(), checkpoints=tmp_path)
    np.testing.assert_array_equal(again.scores["plain"], whole.scores["plain"])


def test_the_coordinator_gets_masked_changes_and_nothing_of_rows() -> None:
    ledgers = trained().ledgers["plain"]
    got = {(e.kind.value, e.what) for e in entries(ledgers["coordinator"]) if e.way == "received"}
    assert got == {
        ("statistic", "multi/weights"),  # the initial ones, from the first label owner
        ("masked share", "multi/change"),
        ("control", "train/epoch"),
    }
    for name, ledger in ledgers.items():
        for entry in ledger.entries:
            if entry.way == "sent":
                twin = [e for e in ledgers[entry.peer].entries if e.way == "received" and e.peer == name]
                assert any(e.what == entry.what and e.bytes == entry.bytes for e in twin)


def test_label_owners_align_by_the_protocol_too() -> None:
    parties = people(rows=30)
    aligned, joined = align_parties(parties, JOB), join_parties(parties, JOB)
    owners = {table.name: aligned.alignments[table.name] for table in parties.label_owners}
    assert {name: len(found[name].rows) for name, found in owners.items()} == {
        "owner1": 111,
        "owner2": 30,
        "owner3": 30,
    }
    assert {name: set(found) for name, found in owners.items()} == {name: {name} for name in owners}
    for name, found in aligned.alignments.items():
        for owner, one in found.items():
            np.testing.assert_array_equal(one.rows, joined.alignments[name][owner].rows)


def test_label_owners_see_no_other_ones_rows_and_activations_only_of_their_own() -> None:
    for entry in entries(trained().ledgers["plain"]["owner2"]):
        if entry.peer.startswith("owner"):
            assert entry.kind.value == "public key"


def test_what_it_cannot_do_is_refused() -> None:
    for protection in (sv.Paillier(), sv.BFV(), sv.CKKS(), sv.Auto()):
        with pytest.raises(sv.PolicyError, match="use aggregation 'paillier' or 'ckks'"):
            JOB.replace(protection=protection)
    with pytest.raises(sv.PolicyError, match="set paillier_bits to that"):
        JOB.replace(algorithm=CONFIG.replace(aggregation="paillier"), protection=sv.Paillier(bits=4096))
    with pytest.raises(sv.InputError, match="aggregation"):
        CONFIG.replace(aggregation="bfv")
    for bits in (1024, 2050, 16384):
        with pytest.raises(sv.InputError, match="use 3072"):
            CONFIG.replace(paillier_bits=bits)
    with pytest.raises(sv.InputError, match="take a smaller batch"):
        run(JOB.replace(batch_size=64, protection=sv.Plain(fixed_point=True)), people(rows=40))
    with pytest.raises(sv.InputError, match="baselines are for one"):
        sv.simulate(JOB, people(), baselines=["alone"])
    with pytest.raises(sv.InputError, match="has one label owner"):
        sv.simulate(JOB.replace(algorithm=sv.SplitNN()), people())
    bare = people()
    first = replace(bare["owner1"], fold=None)
    with pytest.raises(sv.InputError, match="mark its rows"):
        sv.simulate(JOB, sv.Parties.of(first, *(t for n, t in bare.items() if n != "owner1")))
    named = sv.Parties.of(*bare.label_owners, *(replace(t, name="coordinator") for t in bare.passive[:1]))
    with pytest.raises(sv.InputError, match="'coordinator'"):
        sv.simulate(JOB, named)


BLIND = {
    name: JOB.replace(
        steps=3,
        algorithm=CONFIG.replace(server="fedyogi", server_lr=0.03, aggregation=name, paillier_bits=2048),
    )
    for name in ("masked", "paillier", "ckks")
}


@pytest.mark.parametrize("name", ["paillier", "ckks"])
def test_the_coordinator_can_be_blind_and_nothing_changes(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ready_keys(monkeypatch)
    job, parties = BLIND[name].replace(epochs=3, patience=1), people(rows=40)
    result = run(job, parties)
    as_masked = run(BLIND["masked"].replace(epochs=3, patience=1), parties)
    np.testing.assert_array_equal(result.scores["plain"], as_masked.scores["plain"])
    assert result.run("plain").test == as_masked.run("plain").test
    ledgers = result.ledgers["plain"]
    got = {(e.kind.value, e.what, e.peer) for e in entries(ledgers["coordinator"]) if e.way == "received"}
    assert got == {
        ("public key", "multi/key", "owner1"),
        ("control", "train/epoch", "owner1"),
        *(("ciphertext", "multi/change", f"owner{k}") for k in (1, 2, 3)),
    }
    told = {(e.kind.value, e.what, e.peer) for e in entries(ledgers["coordinator"]) if e.way == "sent"}
    control = {("control", "train/epoch", "owner2"), ("control", "train/epoch", "owner3")}
    assert told == {("ciphertext", "multi/change sum", "owner1"), *control}
    sealed = [e.guard for ledger in ledgers.values() for e in ledger.entries if e.kind.value == "ciphertext"]
    assert {guard.cipher for guard in sealed} == {name}
    assert len({guard.key for guard in sealed}) == 1
    assert all(guard.security_bits >= 112 for guard in sealed)
    heard = {(e.peer, e.what) for e in entries(ledgers["owner2"]) if e.way == "received" and e.peer == "owner1"}
    assert heard == {("owner1", what) for what in ("multi/seed", "multi/key", "multi/weights", "multi/mean")}
    found = result.run("plain")
    assert {line.protected for line in found.receipt if line.what == "change of the weights, masked"} == {True}
    (learned,) = [item.learns for item in found.learned if item.party == "coordinator"]
    assert "nothing of the weights" in learned
    assert any("the first label owner has the key" in note for note in found.notes)


def test_a_blind_run_that_broke_off_goes_on(tmp_path: Path) -> None:
    job = BLIND["ckks"].replace(epochs=4)
    parties = people(rows=40)
    whole = run(job, parties)
    with pytest.raises(sv.PartyFailed):
        run(job, parties, checkpoints=tmp_path, observer=Fails(after=3))
    again = run(job, parties, checkpoints=tmp_path)
    np.testing.assert_array_equal(again.scores["plain"], whole.scores["plain"])
    one, two = ([(e.train_loss, e.valid) for e in r.run("plain").epochs] for r in (again, whole))
    assert one == two


@pytest.mark.parametrize(("parties", "match"), [(1, "expected all 3"), (3, "cancel")])
def test_a_coordinator_that_gives_single_changes_gets_nothing(
    monkeypatch: pytest.MonkeyPatch, parties: int, match: str
) -> None:
    honest = PaillierAggregator.add

    def add(self: PaillierAggregator, messages: Sequence[np.ndarray]) -> np.ndarray:
        return np.concatenate(
            [honest(self, messages[1:2])[:21], np.array([parties, 0, 0, 0], dtype=np.uint8), messages[1][25:]]
        )

    monkeypatch.setattr(PaillierAggregator, "add", add)
    with pytest.raises(sv.ProtocolError, match=match):
        run(BLIND["paillier"].replace(epochs=1), people(rows=40))


def test_a_coordinator_takes_no_nonsense(monkeypatch: pytest.MonkeyPatch) -> None:
    def seal(self: Aggregator, values: np.ndarray, zero: crypto.ZeroShares) -> np.ndarray:
        return np.zeros(7, dtype=np.uint8)

    monkeypatch.setattr(Aggregator, "seal", seal)
    with pytest.raises(sv.ProtocolError, match="sealed vector is uint8"):
        run(BLIND["ckks"].replace(epochs=1), people(rows=40))


def test_weights_that_cannot_be_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(averaging, "_divide_sums", lambda sums, parties: np.full(len(sums), np.nan))
    with pytest.raises(sv.ProtocolError, match="not finite"):
        run(BLIND["ckks"].replace(epochs=1), people(rows=40))


@pytest.mark.parametrize(
    ("protection", "aggregation", "bottom", "rounding"),
    [(sv.BFV(), "ckks", (), 3), (sv.BFV(), "paillier", (4,), 3), (sv.CKKS(), "ckks", (), 1 << 14)],
)
def test_a_sealed_cut_is_averaged_in_shares(
    protection: Any, aggregation: str, bottom: tuple[int, ...], rounding: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Within units of the last place of the weights' fixed point: those of two means, or CKKS's own error."""
    ready_keys(monkeypatch)
    config = CONFIG.replace(aggregation=aggregation, bottom=bottom, hidden=4, paillier_bits=2048)
    job, parties = JOB.replace(epochs=2, steps=2, batch_size=16, algorithm=config), people(owners=2, rows=30)
    found = {}
    for kind in (sv.Plain(fixed_point=True), protection):
        result = run(job.replace(protection=kind), parties)
        found[kind.name] = result
    plain, sealed = found["plain"].model().parts, found[protection.name].model().parts
    for name in ("clinic", "lab", "shop"):
        whole = plain[name]["parts"]["half"][1][0]
        mine, theirs = (
            sealed[name]["parts"]["half"][1][0],
            sealed["owner1"]["parts"]["half"][1][name][0],
        )
        assert np.abs((mine + theirs - whole).astype(np.int64)).max() <= rounding
        assert np.abs(mine.astype(np.float64)).max() > np.abs(whole.astype(np.float64)).max() * 1e9  # it hides them
    one, two = (r.scores[key] for r in found.values() for key in r.scores)
    np.testing.assert_allclose(two, one, atol=1e-5)
    received = [
        e for e in entries(found[protection.name].ledgers[protection.name]["coordinator"]) if e.way == "received"
    ]
    assert {e.what for e in received if e.kind.value == "ciphertext"} == {"multi/change", "multi/shares"}
    assert {e.kind.value for e in received} == {"ciphertext", "control", "public key"}


def test_noise_on_gradients_is_spent() -> None:
    job = JOB.replace(epochs=2, protection=sv.Plain(dp=sv.DP(labels=sv.Gaussian(epsilon=8.0))))
    spent = run(job, people()).record.runs[-1].epsilon
    assert {item.party for item in spent} == {"owner1", "owner2", "owner3"}
    assert all(item.epsilon_rdp <= 8.0 * (1 + 1e-6) for item in spent)


@pytest.mark.parametrize(
    ("aggregation", "protection"), [("masked", sv.Plain()), ("ckks", sv.Plain()), ("paillier", sv.BFV())]
)
def test_links_that_hold_one_message_block_nobody_and_carry_what_is_declared(
    monkeypatch: pytest.MonkeyPatch, aggregation: str, protection: Any
) -> None:
    ready_keys(monkeypatch)
    monkeypatch.setattr("securevfl.run.in_memory.MemoryHub", lambda names, **_: MemoryHub(names, window=1))
    config = CONFIG.replace(aggregation=aggregation, hidden=4, paillier_bits=2048)
    job = JOB.replace(epochs=2, steps=2, batch_size=16, algorithm=config, protection=protection)
    result = run(job, people(owners=2, rows=30))
    declared = {e.step for e in config.exchanges(protection, 3) if e.step.startswith("multi/")}
    sent = {e.what for ledger in result.ledgers[protection.name].values() for e in entries(ledger)}
    assert {what for what in sent if what.startswith("multi/")} == declared


def test_a_data_owner_counts_what_a_broken_run_may_have_released(tmp_path: Path) -> None:
    job = JOB.replace(epochs=4, steps=3, protection=sv.Plain(dp=sv.DP(features=sv.Gaussian(epsilon=8.0))))
    whole = run(job, people()).record.runs[-1].epsilon
    with pytest.raises(sv.PartyFailed):
        run(job, people(), checkpoints=tmp_path, observer=Fails(after=3))
    again = run(job, people(), checkpoints=tmp_path).record.runs[-1]
    assert len(again.epsilon) == len(whole) == 9  # of each of three data owners, for each label owner
    assert all(more.epsilon_rdp > once.epsilon_rdp for more, once in zip(again.epsilon, whole, strict=True))
    for owner in ("owner1", "owner2", "owner3"):
        start = f"this run resumed an interrupted run of 'clinic with {owner}'"
        assert any(note.startswith(start) for note in again.notes)
