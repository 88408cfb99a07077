"""A job weaker than a party's policy is refused before anything but consent and refusals crosses any channel."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from support.helpers import low_overlap_parties, make_parties, ready_keys

import securevfl as sv
from securevfl.data import LabelBook, hold_out
from securevfl.errors import PolicyError
from securevfl.party import rule_against, terms_of_job
from securevfl.party_context import PartyContext
from securevfl.privacy import REFUSED, Clock, Ledger, Link, Policy, raise_refusal, verify_chains
from securevfl.run import simulation
from securevfl.run.simulation import align_parties, consent_parties, join_parties, run_parties
from securevfl.transport import Kind, MemoryChannel, Message, memory_pair

JOB = sv.Job(protection=sv.Plain(), algorithm=sv.SplitNN(hidden=2, top=()), epochs=1, batch_size=64)
DP = sv.DP(features=sv.Gaussian(epsilon=8.0), labels=sv.Gaussian(epsilon=8.0))
HIDES = sv.DP(features=sv.Gaussian(epsilon=0.5), labels=sv.Gaussian(epsilon=0.5))


@pytest.fixture
def crossed(monkeypatch: pytest.MonkeyPatch) -> list[Message]:
    """All that any channel is given, in order."""
    seen: list[Message] = []
    original = MemoryChannel.send

    async def send(self: MemoryChannel, message: Message) -> int:
        seen.append(message)
        return await original(self, message)

    monkeypatch.setattr(MemoryChannel, "send", send)
    return seen


def _only_refusals(crossed: list[Message], count: int) -> list[Message]:
    """So many refusals crossed, and beside them what parties that accept say, which is nothing about data."""
    allowed = {
        REFUSED: {"rule"},
        "party/consent": {"job", "book", "ledger", "key", "session"},
        "ledger/head": {"head", "messages", "signature"},
    }
    for message in crossed:
        assert message.kind is Kind.CONTROL
        assert not message.arrays
        assert set(message.meta) == allowed[message.what]
    refusals = [message for message in crossed if message.what == REFUSED]
    assert len(refusals) == count
    return refusals


def plain(dp: sv.DP | None = None, **policies: Policy) -> sv.Job:
    return JOB.replace(protection=sv.Plain(dp=dp), policies=policies)


def sealed(**policies: Policy) -> sv.Job:
    return JOB.replace(protection=sv.Paillier(bits=2048), policies=policies)


REFUSALS: dict[str, tuple[sv.Job, str]] = {
    "sealed, passive": (plain(shop1=Policy(sealed=True)), "activations and gradients would be sent in the clear"),
    "sealed, active": (plain(bank=Policy(sealed=True)), "demands them sealed"),
    "protections": (
        plain(shop2=Policy(protections=frozenset({"paillier"}))),
        "'plain', but the policy accepts paillier",
    ),
    "no protection": (plain(shop2=Policy(protections=frozenset())), "the policy accepts nothing"),
    "another scheme": (sealed(bank=Policy(protections=frozenset({"bfv", "plain"}))), "accepts bfv, plain"),
    "a scheme that may be chosen": (
        sealed(bank=Policy(protections=frozenset({"bfv", "ckks"}))).replace(protection=sv.cut.Auto()),
        "'paillier', but the policy accepts bfv, ckks",
    ),
    "BFV": (sealed(bank=Policy(min_security=192)).replace(protection=sv.cut.BFV()), "BFV gives 128 bits of security"),
    "key": (sealed(shop1=Policy(min_key_bits=3072)), "key has 2048 bits; the policy demands at least 3072"),
    "security": (sealed(shop1=Policy(min_security=128)), "key has 2048 bits; the policy demands at least 3072"),
    "noise sent": (plain(shop1=Policy(noised=frozenset({Kind.ACTIVATION}))), "activations would be sent without noise"),
    "noise received": (plain(shop1=Policy(noised=frozenset({Kind.GRADIENT}))), "gradients would be sent without noise"),
    "noise on labels only": (
        plain(sv.DP(labels=sv.Gaussian()), bank=Policy(noised=frozenset({Kind.ACTIVATION}))),
        "activations would be sent without noise",
    ),
    "ε": (plain(DP, shop1=Policy(max_epsilon=2.0)), "spends ε = 8; the policy allows 2"),
    "ε without noise": (plain(shop1=Policy(max_epsilon=2.0)), "activations would be released without noise"),
    "ε without noise on labels": (
        plain(sv.DP(features=sv.Gaussian()), bank=Policy(max_epsilon=50.0)),
        "gradients would be released without noise",
    ),
    "ε, sealed": (sealed(shop1=Policy(max_epsilon=2.0)), "without noise, which spends ε without bound"),
    "kind": (plain(shop1=Policy(forbidden=frozenset({Kind.ACTIVATION}))), "messages of kind activation"),
    "shares drawn anew": (
        sealed(shop1=Policy(forbidden=frozenset({Kind.MASKED_SHARE}))),
        "messages of kind masked share",
    ),
    "shares drawn anew, momentum": (
        sealed(shop2=Policy(forbidden=frozenset({Kind.MASKED_SHARE}))).replace(
            protection=sv.cut.BFV(),
            algorithm=sv.SplitNN(hidden=2, top=(), cut_momentum=0.5),
        ),
        "messages of kind masked share",
    ),
    "shares drawn anew, if chosen": (
        sealed(shop1=Policy(forbidden=frozenset({Kind.MASKED_SHARE}))).replace(protection=sv.cut.Auto()),
        "messages of kind masked share",
    ),
    "noise under a seal": (
        sealed(shop1=Policy(noised=frozenset({Kind.ACTIVATION}))),
        "activations would be decrypted without noise",
    ),
    "noise under a seal, gradients": (
        sealed(bank=Policy(noised=frozenset({Kind.GRADIENT}))).replace(
            algorithm=sv.SplitNN(hidden=2, top=(), bottom=(2,)),
        ),
        "gradients would be decrypted without noise",
    ),
    "kind of alignment": (plain(shop1=Policy(forbidden=frozenset({Kind.BLINDED_SET}))), "of kind blinded set"),
    "leak": (plain(shop1=Policy(leaks=False)), "'bank' learns its part of z in the clear"),
    "leak, labels": (plain(bank=Policy(leaks=False)), "'shop1' and 'shop2' learn the gradient at the cut"),
    "leak, noise that hides little": (
        plain(DP, shop1=Policy(leaks=False)),
        "(ε = 8): a yes-or-no attribute ranked with AUC at most 0.87",
    ),
    "leak, ε = 1000": (
        plain(sv.DP(labels=sv.Gaussian(epsilon=1000.0)), bank=Policy(leaks=False)),
        "(ε = 1e+03): labels ranked with AUC at most 1.00",
    ),
    "leak, σ/Δ = 0.1": (
        plain(sv.DP(labels=sv.Gaussian(noise_multiplier=0.1)), bank=Policy(leaks=False)),
        "(ε = 96.1): labels ranked with AUC at most 1.00",
    ),
    "ε, σ/Δ = 0.1": (
        plain(sv.DP(features=sv.Gaussian(noise_multiplier=0.1)), shop1=Policy(max_epsilon=1.0)),
        "spends ε = 96.1; the policy allows 1",
    ),
    "ε, σ/Δ = 3, ten epochs": (
        plain(sv.DP(labels=sv.Gaussian(noise_multiplier=3.0)), bank=Policy(max_epsilon=2.0)).replace(epochs=10),
        "releasing gradients as planned spends ε = 5.02",
    ),
    "ε, σ/Δ = 0.1, on z": (
        sealed(shop1=Policy(max_epsilon=1.0)).replace(
            protection=sv.Paillier(bits=2048, dp=sv.DP(features=sv.JointNoise(noise_multiplier=0.1, weight_bound=1.0)))
        ),
        "spends ε = 96.1; the policy allows 1",
    ),
    "ε, σ/Δ = 2, up to ε = 8": (
        plain(
            sv.DP(labels=sv.Gaussian(epsilon=8.0, noise_multiplier=2.0, on_budget="stop")), bank=Policy(max_epsilon=3.0)
        ).replace(epochs=50),
        "the policy allows 3",
    ),
    "ε, σ/Δ = 0.1, steps": (
        plain(sv.DP(labels=sv.Gaussian(noise_multiplier=0.1)), bank=Policy(max_epsilon=1.0)).replace(steps=3),
        "spends ε = 96.1; the policy allows 1",
    ),
    "δ, σ/Δ = 1": (
        plain(sv.DP(labels=sv.Gaussian(noise_multiplier=1.0, delta=0.9)), bank=Policy(max_epsilon=1.0)),
        "counts ε at δ = 0.9; the policy allows δ up to 0.0001",
    ),
    "leak, drawn labels": (
        plain(sv.DP(labels=sv.RandomisedResponse(epsilon=20.0)), bank=Policy(leaks=False)),
        "(ε = 20): labels ranked with AUC at most 1.00",
    ),
    "leak, sealed over trainable bottoms": (
        sealed(shop1=Policy(leaks=False)).replace(algorithm=sv.SplitNN(hidden=2, top=(), bottom=(2,))),
        "a changing, nonlinear image of its features, from which the active party can estimate them",
    ),
}


@pytest.mark.parametrize(("job", "words"), REFUSALS.values(), ids=REFUSALS)
def test_a_refused_job_sends_its_refusal_and_nothing_else(job: sv.Job, words: str, crossed: list[Message]) -> None:
    (name,) = job.policies
    with pytest.raises(PolicyError) as caught:
        sv.simulate(job, make_parties())
    assert words in str(caught.value)
    assert str(caught.value).startswith(f"{name!r} refuses the job: ")
    one, other = (str(message.meta["rule"]) for message in _only_refusals(crossed, 2))
    assert one == other
    assert words in one


ACCEPTED: dict[str, sv.Job] = {
    "sealed": sealed(shop1=Policy(sealed=True, protections=frozenset({"paillier"}), min_security=112)),
    "no shares drawn anew": sealed(shop1=Policy(forbidden=frozenset({Kind.MASKED_SHARE}))).replace(
        protection=sv.cut.CKKS()
    ),
    "gradients that nobody opens": sealed(bank=Policy(noised=frozenset({Kind.GRADIENT}))),
    "noise under a seal": sealed(shop1=Policy(noised=frozenset({Kind.ACTIVATION, Kind.GRADIENT}))).replace(
        protection=sv.Paillier(bits=2048, dp=DP),
        algorithm=sv.SplitNN(hidden=2, top=(), bottom=(2,)),
    ),
    "no leak that is known": sealed(bank=Policy(leaks=False)),
    "noise": plain(DP, shop1=Policy(noised=frozenset({Kind.ACTIVATION}), max_epsilon=8.0)),
    "noise that hides": plain(HIDES, shop1=Policy(noised=frozenset({Kind.ACTIVATION}), max_epsilon=8.0, leaks=False)),
    "noise on labels": plain(HIDES, bank=Policy(max_epsilon=8.0, leaks=False)),
    "noise by its multiplier": plain(sv.DP(features=sv.Gaussian(noise_multiplier=30.0)), shop1=Policy(leaks=False)),
    "drawn labels": plain(sv.DP(labels=sv.RandomisedResponse()), bank=Policy(max_epsilon=8.0)),
    "any scheme": sealed(shop1=Policy(min_security=128)).replace(protection=sv.cut.Auto()),
    "a noise multiplier": plain(
        sv.DP(features=sv.Gaussian(noise_multiplier=3.0), labels=sv.Gaussian(noise_multiplier=3.0)),
        shop1=Policy(max_epsilon=2.0),
    ),
    "a noise multiplier that ends training within ε": plain(
        sv.DP(labels=sv.Gaussian(epsilon=3.0, noise_multiplier=3.0, on_budget="stop")), bank=Policy(max_epsilon=3.0)
    ).replace(epochs=50),
    "steps, whose passes depend on the rows": plain(
        sv.DP(labels=sv.Gaussian(noise_multiplier=3.0)), bank=Policy(max_epsilon=2.0)
    ).replace(steps=30),
    "plain": plain(shop1=Policy(protections=frozenset({"plain"}), forbidden=frozenset({Kind.METRIC}))),
    "nothing crosses": plain(shop1=Policy(sealed=True, max_epsilon=1.0)).replace(algorithm=sv.Local(hidden=2)),
}


@pytest.mark.parametrize("job", ACCEPTED.values(), ids=ACCEPTED)
def test_a_job_that_meets_all_policies_is_not_refused(job: sv.Job, crossed: list[Message]) -> None:
    consent_parties([job], make_parties())
    assert {message.what for message in crossed} == {"party/consent", "ledger/head"}
    assert len(crossed) == 12  # each of three tells two that it takes part, and signs for two how it ended
    _only_refusals(crossed, 0)


@pytest.mark.parametrize("stop", [False, True])
@pytest.mark.parametrize("steps", [None, 3])
@pytest.mark.parametrize("bottom", [(), (2,)])
@pytest.mark.parametrize("algorithm", [sv.SplitNN, sv.EntityAugmentation, sv.RISA])
def test_what_is_held_against_policies_before_a_run_is_never_more_than_its_plan(
    algorithm: type[sv.SplitNN], bottom: tuple[int, ...], steps: int | None, stop: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    noise = sv.Gaussian(noise_multiplier=3.0, epsilon=4.0, on_budget="stop" if stop else "refuse")
    try:
        job = JOB.replace(
            algorithm=algorithm(hidden=2, bottom=bottom),
            protection=sv.Plain(dp=sv.DP(features=noise, labels=noise)),
            epochs=6,
            steps=steps,
            batch_size=32,
        )
    except sv.SecureVFLError as error:
        pytest.skip(str(error))
    people = low_overlap_parties()
    planned: dict[str, float] = {}
    monkeypatch.setattr(Policy, "check_epsilon", lambda s, epsilon, what, delta=0.0: planned.update({what: epsilon}))
    run_parties(job, people, join_parties(people, job), run="x")
    monkeypatch.undo()
    names = [table.name for table in people.passive]
    active = people.active.name
    for name, what in ((active, "gradients"), (names[0], "activations")):
        told = terms_of_job(job, name, active=active, passive=names).epsilon
        assert told is not None
        assert any(what in each for each in planned), planned
        assert told <= next(epsilon for each, epsilon in planned.items() if what in each) * (1 + 1e-9)
        if algorithm is sv.SplitNN and steps is None:
            assert told == pytest.approx(next(epsilon for each, epsilon in planned.items() if what in each))


def test_every_way_into_a_run_asks_first(crossed: list[Message]) -> None:
    people, job = make_parties(), plain(shop2=Policy(sealed=True))
    aligned = join_parties(people, job)
    model = sv.Model(job=job, parts={name: {} for name in people})
    ways: list[Callable[[], object]] = [
        lambda: align_parties(people, job),
        lambda: run_parties(job, people, aligned, run="x"),
        lambda: sv.simulate(job, people, aligned=aligned),
        lambda: sv.predict(model, people, aligned=aligned),
        lambda: sv.predict(model, people),
    ]
    for way in ways:
        crossed.clear()
        with pytest.raises(PolicyError, match="'shop2' refuses the job"):
            way()
        _only_refusals(crossed, 2)


def test_a_later_job_of_a_comparison_is_refused_before_the_first_one_runs(crossed: list[Message]) -> None:
    jobs = {"first": plain(), "second": plain(shop1=Policy(sealed=True))}
    with pytest.raises(PolicyError, match="'shop1' refuses the job"):
        sv.compare(jobs, make_parties())
    _only_refusals(crossed, 2)


def test_several_label_owners_are_asked_before_the_first_federation_aligns(crossed: list[Message]) -> None:
    people = make_parties(passive=1)
    bank = people["bank"]
    two = sv.Parties.of(bank, replace(bank, name="lender"), people["shop1"])
    job = sv.Job(protection=sv.Plain(), algorithm=sv.MultiVFL(), policies={"lender": Policy(sealed=True)})
    with pytest.raises(PolicyError, match="'lender' refuses the job"):
        align_parties(two, job)
    _only_refusals(crossed, 2)


def test_a_label_book_that_shows_pairwise_intersections_is_refused(crossed: list[Message]) -> None:
    people = make_parties()
    book = LabelBook(("k1", "k2"), np.array([0, 1]))
    shown = sv.Parties.of(replace(people["bank"], book=book), people["shop1"], people["shop2"])
    job = plain(shop2=Policy(pairwise_intersections=False))
    with pytest.raises(PolicyError, match="'bank' would learn the pairwise intersection with 'shop2'"):
        align_parties(shown, job)
    _only_refusals(crossed, 2)
    consent_parties([job], people)


def test_all_ledgers_tell_of_the_refusal_and_how_each_party_ended(crossed: list[Message]) -> None:
    job = plain(shop1=Policy(sealed=True), shop2=Policy(max_epsilon=1.0))
    with pytest.raises(PolicyError) as caught:
        sv.simulate(job, make_parties())
    assert "raised at party 'shop1'" in "".join(caught.value.__notes__)
    _only_refusals(crossed, 4)
    lines = [line for ledger in caught.value.ledgers for line in ledger.lines]
    chains = {chain.party: chain for chain in verify_chains(enumerate(lines, 1))}
    assert {entry.what for chain in chains.values() for entry in chain.entries} == {"party/consent", REFUSED}
    assert "refuses the job: activations " in chains["bank"].outcome  # whichever refusal it read first
    assert chains["bank"].outcome.startswith("failed: PolicyError: 'shop")
    assert "'shop2' refuses the job" in chains["shop2"].outcome


def test_a_scheme_that_nobody_knows_is_refused(monkeypatch: pytest.MonkeyPatch, crossed: list[Message]) -> None:
    monkeypatch.setattr(sv.Paillier, "name", "rot13")
    with pytest.raises(PolicyError, match="the policy does not know protection 'rot13'"):
        sv.simulate(sealed(), make_parties())
    _only_refusals(crossed, 2)  # the label owner's: it speaks first, and whoever hears it ends
    for name in ("bank", "shop1", "shop2"):
        rule = rule_against(sealed(), name, active="bank", passive=["shop1", "shop2"])
        assert "the policy does not know protection 'rot13'" in rule


def test_an_algorithm_that_hands_over_representations_is_judged_by_them() -> None:
    kinds = {}
    for algorithm in (sv.SplitNN(), sv.FedDA(), sv.FedCVT()):
        job = sv.Job(protection=sv.Plain(), algorithm=algorithm, epochs=20)
        passive = terms_of_job(job, "shop1", active="bank", passive=["shop1"])
        active = terms_of_job(job, "bank", active="bank", passive=["shop1"])
        assert passive.receives <= active.sends
        assert active.receives <= passive.sends
        kinds[algorithm.name] = {kind.value for kind in passive.sends | passive.receives}
    assert {"activation", "gradient"} <= kinds["splitnn"]
    assert "representation" not in kinds["splitnn"]
    assert {"activation", "gradient", "representation"} <= kinds["fedda"]
    assert "activation" not in kinds["fedcvt"]
    job = sv.Job(
        protection=sv.Plain(),
        algorithm=sv.FedCVT(),
        policies={"shop1": Policy(forbidden=frozenset({Kind.REPRESENTATION}))},
    )
    with pytest.raises(PolicyError, match="messages of kind representation"):
        consent_parties([job], low_overlap_parties())


TRAINABLE = sv.SplitNN(hidden=2, top=(), bottom=(2,))
PROMISED: dict[str, tuple[sv.Job, int]] = {
    "plain": (plain(), 2),
    "plain, trainable": (plain().replace(algorithm=TRAINABLE), 1),
    "Paillier": (sealed(), 1),
    "BFV": (sealed().replace(protection=sv.cut.BFV()), 2),
    "BFV, trainable": (sealed().replace(protection=sv.cut.BFV(), algorithm=TRAINABLE), 1),
    "CKKS, momentum": (
        sealed().replace(protection=sv.cut.CKKS(), algorithm=sv.SplitNN(hidden=2, top=(), cut_momentum=0.5)),
        1,
    ),
    "auto": (sealed().replace(protection=sv.cut.Auto(offers=("bfv",), mbit=100.0)), 1),
    "FedCVT": (sv.Job(protection=sv.Plain(), algorithm=sv.FedCVT(), epochs=2, batch_size=64), 1),
}


def _sent(found: sv.Result, party: str) -> set[Kind]:
    """Kinds that a party sent, in all runs."""
    ledgers = [run[party] for run in found.ledgers.values() if party in run]
    return {entry.kind for ledger in ledgers for entry in ledger.entries if entry.way == "sent"}


@pytest.mark.parametrize(("job", "passive"), PROMISED.values(), ids=PROMISED)
def test_no_party_sends_a_kind_that_its_terms_do_not_name(
    job: sv.Job, passive: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    ready_keys(monkeypatch)
    found = sv.simulate(job, low_overlap_parties() if isinstance(job.algorithm, sv.FedCVT) else make_parties(passive))
    names = [f"shop{number + 1}" for number in range(passive)]
    for name in ("bank", *names):
        promised = terms_of_job(job, name, active="bank", passive=names).sends
        sent = _sent(found, name)
        assert sent <= promised, name


@pytest.mark.parametrize("aggregation", ["masked", "ckks"])
def test_no_label_owner_sends_a_kind_that_its_terms_do_not_name(aggregation: str) -> None:
    people = make_parties(passive=1)
    bank = people["bank"]
    bank = replace(bank, fold=hold_out(len(bank.ids), valid=0.2, test=0.2, seed=0))
    two = sv.Parties.of(bank, replace(bank, name="lender"), people["shop1"])
    algorithm = sv.MultiVFL(hidden=2, top=(), bottom=(), aggregation=aggregation)
    protection = sv.Plain() if aggregation == "masked" else sv.cut.BFV()
    job = sv.Job(algorithm=algorithm, protection=protection, epochs=1, steps=1, batch_size=16)
    found = sv.simulate(job, two)
    for name, active in (("bank", "bank"), ("lender", "lender"), ("shop1", "bank")):
        promised = terms_of_job(job, name, active=active, passive=["shop1"]).sends
        sent = _sent(found, name)
        assert Kind.MASKED_SHARE in sent or name != "bank"
        assert sent <= promised, name


def test_without_consent_alignment_would_have_begun(monkeypatch: pytest.MonkeyPatch, crossed: list[Message]) -> None:
    """That the tests above would notice: the messages' own checks come later."""

    async def agrees(site: PartyContext, table: object, job: sv.Job, **more: object) -> None:
        pass

    monkeypatch.setattr(simulation, "consent_party", agrees)
    with pytest.raises(PolicyError, match="demands them sealed"):
        run_parties(plain(shop1=Policy(sealed=True)), make_parties(), align_parties(make_parties(), plain()), run="x")
    assert {"psi/hello", "psi/blinded"} <= {message.what for message in crossed}


def test_a_refusal_in_place_of_anything_else_ends_the_wait(crossed: list[Message]) -> None:
    mine, theirs = memory_pair()
    link = Link("a", "b", mine, Ledger("a", run="r", job="0"), Policy(), Clock())
    refusal = Message(Kind.CONTROL, REFUSED, meta={"rule": "keys\x1b[31m too short" + "!" * 2000})
    asyncio.run(theirs.send(refusal))
    with pytest.raises(PolicyError, match=r"'b' refuses the job: keys\?\[31m too short!{10}") as caught:
        asyncio.run(link.receive(Kind.CONTROL, "psi/hello"))
    assert len(str(caught.value)) < 600
    raise_refusal(Message(Kind.CONTROL, "psi/hello"), "b")
    raise_refusal(Message(Kind.METRIC, REFUSED), "b")
