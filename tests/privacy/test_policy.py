"""The policy: what it forbids is an error before a byte is sent."""

from __future__ import annotations

import asyncio
import json

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import securevfl as sv
from securevfl.errors import InputError, PolicyError, ProtocolError
from securevfl.privacy import READABLE_KINDS, SCHEMES, SHARES, Clock, Ledger, Link, Policy, protection_of
from securevfl.transport import Array, Guard, Kind, Message, memory_pair

Z = np.zeros((2, 2), np.float32)
C = np.zeros(8, np.uint8)
PAILLIER = Guard("paillier", 2048, "k")
BFV, CKKS = Guard("bfv", 218, "k"), Guard("ckks", 218, "k")
MASKED = Guard("masked", 40)


def _links(policy: Policy) -> tuple[Link, Link, Ledger]:
    mine, theirs = memory_pair()
    ledger = Ledger("a", run="r", job="0")
    link = Link("a", "b", mine, ledger, policy, Clock())
    return link, Link("b", "a", theirs, Ledger("b", run="r", job="0"), Policy(), Clock()), ledger


@pytest.mark.parametrize(
    ("policy", "kind", "guard", "match"),
    [
        (Policy(sealed=True), Kind.ACTIVATION, Guard(), "demands them sealed"),
        (Policy(sealed=True), Kind.GRADIENT, Guard(), "demands them sealed"),
        (Policy(sealed=True), Kind.REPRESENTATION, Guard(), "demands them sealed"),
        (Policy(noised=frozenset({Kind.GRADIENT})), Kind.GRADIENT, Guard(), "without noise"),
        (Policy(forbidden=frozenset({Kind.METRIC})), Kind.METRIC, Guard(), "forbids"),
        (Policy(min_key_bits=3072), Kind.CIPHERTEXT, PAILLIER, "2048 bits; the policy demands at least 3072"),
        (Policy(min_security=128), Kind.CIPHERTEXT, PAILLIER, "2048 bits; the policy demands at least 3072"),
        (Policy(), Kind.CIPHERTEXT, Guard("paillier", 1024, "k"), "1024 bits; the policy demands at least 2048"),
        (Policy(min_security=192), Kind.CIPHERTEXT, BFV, "gives 128 bits of security; the policy demands 192"),
        (Policy(), Kind.CIPHERTEXT, Guard("ckks", 1200, "k"), "gives 0 bits of security; the policy demands 112"),
        (Policy(), Kind.CIPHERTEXT, Guard("bfv", 0, "k"), "gives 0 bits of security"),
        (Policy(), Kind.MASKED_SHARE, Guard("masked", 20), "gives 20 bits of security; the policy demands 40"),
        (Policy(min_masking=64), Kind.MASKED_SHARE, MASKED, "gives 40 bits of security; the policy demands 64"),
        (Policy(), Kind.BLINDED_SET, Guard("blinded", 80, "toy curve"), "gives 80 bits of security"),
        (Policy(), Kind.CIPHERTEXT, Guard(), "is of kind ciphertext but is in the clear"),
        (Policy(), Kind.CIPHERTEXT, Guard("masked", 128), "is of kind ciphertext but is masked"),
        (Policy(), Kind.ACTIVATION, Guard("rot13", 4096, "k"), "under 'rot13', which the policy does not know"),
        (Policy(protections=frozenset({"bfv"})), Kind.CIPHERTEXT, CKKS, "the policy accepts bfv"),
        (Policy(protections=frozenset({"bfv"})), Kind.ACTIVATION, Guard(), "in the clear; the policy accepts bfv"),
        (Policy(protections=frozenset({"ckks"})), Kind.GRADIENT, PAILLIER, "the policy accepts ckks"),
    ],
)
def test_forbidden_messages_never_leave(policy: Policy, kind: Kind, guard: Guard, match: str) -> None:
    link, peer, ledger = _links(policy)
    for _ in range(2):  # what was refused once is not remembered as cleared
        with pytest.raises(PolicyError, match=match):
            asyncio.run(link.send(kind, "x", guard=guard, z=C))
    assert ledger.entries == []
    asyncio.run(link.send(Kind.CONTROL, "next"))
    message = asyncio.run(peer.receive(Kind.CONTROL, "next"))
    assert message.what == "next"  # nothing was queued before it


def test_allowed_messages_leave_and_are_written_down() -> None:
    link, _, ledger = _links(Policy(sealed=True, noised=frozenset({Kind.GRADIENT})))
    asyncio.run(link.send(Kind.CIPHERTEXT, "x", guard=PAILLIER, z=C))
    assert [(e.way, e.peer, e.cipher, e.bits) for e in ledger.entries] == [("sent", "b", "paillier", 2048)]


SEALED_IN_NAME: list[tuple[Guard, Array]] = [
    *((guard, array) for guard in (PAILLIER, BFV, CKKS) for array in (Z, Z.astype(np.int64), torch.zeros(2))),
    (PAILLIER, torch.zeros(2, dtype=torch.int64)),
    (PAILLIER, C.astype(bool)),
    (MASKED, Z),
    (MASKED, torch.zeros(2, dtype=torch.float64)),
    (MASKED, torch.zeros(2, dtype=torch.bool)),
]


@pytest.mark.parametrize(("guard", "array"), SEALED_IN_NAME)
@pytest.mark.parametrize("kind", [Kind.CIPHERTEXT, Kind.ACTIVATION, Kind.MASKED_SHARE])
def test_numbers_that_only_say_that_they_are_sealed_are_refused(kind: Kind, guard: Guard, array: Array) -> None:
    for check in (Policy().check_message, Policy().check_received):
        with pytest.raises(PolicyError, match="the content is in the clear"):
            check(Message(kind, "x", {"good": C, "z": array}, guard=guard), "b")


def test_what_ciphers_make_passes() -> None:
    policy = Policy(sealed=True)
    for guard in (PAILLIER, BFV, CKKS):
        policy.check_message(
            Message(Kind.CIPHERTEXT, "x", {"c": C, "d": torch.zeros(3, dtype=torch.uint8)}, guard=guard), "b"
        )
    for array in (C, Z.astype(np.int64), torch.zeros(3, dtype=torch.int32)):
        policy.check_message(Message(Kind.MASKED_SHARE, "x", {"c": array}, guard=MASKED), "b")
    policy.check_message(Message(Kind.MASKED_SHARE, "random numbers", {"w": Z}), "b")


@pytest.mark.parametrize(
    ("policy", "kind", "guard", "match"),
    [
        (Policy(sealed=True), Kind.ACTIVATION, Guard(), "from 'a' contains activations in the clear"),
        (Policy(noised=frozenset({Kind.GRADIENT})), Kind.GRADIENT, Guard(), "'a' contains gradients without noise"),
        (Policy(min_security=128), Kind.CIPHERTEXT, PAILLIER, "2048 bits; the policy demands at least 3072"),
        (Policy(protections=frozenset({"paillier"})), Kind.CIPHERTEXT, BFV, "the policy accepts paillier"),
        (Policy(), Kind.CIPHERTEXT, Guard("rot13", 9, "k"), "does not know"),
    ],
)
def test_what_arrives_is_held_against_the_receivers_policy(
    policy: Policy, kind: Kind, guard: Guard, match: str
) -> None:
    """The sender's own policy is lax, or its software is."""
    mine, theirs = memory_pair()
    ledger = Ledger("b", run="r", job="0")
    link = Link("b", "a", theirs, ledger, policy, Clock())
    asyncio.run(mine.send(Message(kind, "x", {"c": C}, guard=guard)))
    with pytest.raises(PolicyError, match=match):
        asyncio.run(link.receive(kind, "x", "c"))
    assert [entry.way for entry in ledger.entries] == ["received"]  # it did arrive, and the ledger says so


def test_what_may_not_leave_may_come() -> None:
    Policy(forbidden=frozenset({Kind.METRIC})).check_received(Message(Kind.METRIC, "x"), "b")


KINDS, CIPHERS = (
    st.sampled_from(list(Kind)),
    st.sampled_from(["none", "paillier", "bfv", "ckks", "masked", "blinded", "x"]),
)
GUARDS = st.builds(
    Guard, CIPHERS, st.sampled_from([0, 40, 128, 218, 1024, 2048, 3072]), st.just("k"), st.sampled_from([0.0, 1.0])
)
POLICIES = st.builds(
    Policy,
    sealed=st.booleans(),
    protections=st.none() | st.frozensets(st.sampled_from(sorted(SCHEMES | {"plain", SHARES}))),
    noised=st.frozensets(st.sampled_from(sorted(READABLE_KINDS))),
    forbidden=st.frozensets(st.sampled_from([Kind.METRIC, Kind.ACTIVATION])),
    min_key_bits=st.sampled_from([2048, 3072]),
    min_security=st.sampled_from([80, 112, 128]),
)


@given(POLICIES, POLICIES, KINDS, GUARDS, st.booleans())
def test_whatever_passes_is_what_the_rules_allow(
    one: Policy, other: Policy, kind: Kind, guard: Guard, sent: bool
) -> None:
    """Against a slow reading of the rules; and both policies together let through what each of them does."""

    def passes(policy: Policy) -> bool:
        try:
            (policy.check_message if sent else policy.check_received)(Message(kind, "x", {"c": C}, guard=guard), "b")
        except PolicyError:
            return False
        return True

    def allowed(policy: Policy) -> bool:
        content = kind in READABLE_KINDS or kind is Kind.SHARE or guard.cipher in SCHEMES
        named = SHARES if kind is Kind.SHARE else protection_of(guard.cipher)
        strong = {
            "none": True,
            "paillier": guard.bits >= max(policy.min_key_bits, 3072 if policy.min_security > 112 else 0),
            "masked": guard.bits >= 40,
        }.get(guard.cipher, guard.security_bits >= policy.min_security)
        return (
            guard.cipher != "x"
            and strong
            and (kind is not Kind.CIPHERTEXT or guard.cipher in SCHEMES)
            and (kind is not Kind.SHARE or guard.cipher == "masked")
            and not (sent and kind in policy.forbidden)
            and not (policy.sealed and kind in READABLE_KINDS and guard.cipher == "none")
            and not (kind in policy.noised and not guard.noise)
            and not (content and policy.protections is not None and named not in policy.protections)
        )

    assert passes(one) == allowed(one)
    assert passes(one) == allowed(one)  # and again, remembered
    assert passes(one.combine_strictest(other)) == (allowed(one) and allowed(other))


def test_what_passed_once_clears_nothing_else() -> None:
    """One policy, one message after the other: each is judged by its own kind, guard and way."""
    policy = Policy(min_key_bits=3072, noised=frozenset({Kind.GRADIENT}), forbidden=frozenset({Kind.METRIC}))
    noisy = Guard(noise=1.0)
    for _ in range(2):
        policy.check_message(Message(Kind.CIPHERTEXT, "x", {"c": C}, guard=Guard("paillier", 3072, "k")), "b")
        policy.check_message(Message(Kind.GRADIENT, "x", {"z": Z}, guard=noisy), "b")
        policy.check_message(Message(Kind.CONTROL, "x"), "b")
        policy.check_received(Message(Kind.METRIC, "x"), "b")
        for kind, guard in ((Kind.CIPHERTEXT, PAILLIER), (Kind.GRADIENT, Guard()), (Kind.METRIC, Guard())):
            with pytest.raises(PolicyError):
                policy.check_message(Message(kind, "x", {"c": C}, guard=guard), "b")
        good = Guard("bfv", 218, "k")
        policy.check_message(Message(Kind.CIPHERTEXT, "x", {"c": C}, guard=good), "b")
        with pytest.raises(PolicyError, match="the content is in the clear"):
            policy.check_message(Message(Kind.CIPHERTEXT, "x", {"c": Z}, guard=good), "b")


def test_what_is_remembered_stays_small() -> None:
    policy = Policy()
    for number in range(3000):
        policy.check_received(Message(Kind.CIPHERTEXT, "x", guard=Guard("bfv", 218, str(number))), "b")
    assert len(policy._passed_guards) <= 1024


@pytest.mark.parametrize(
    ("guard", "bits"),
    [
        (Guard(), 0),
        (Guard("paillier", 768), 0),
        (Guard("paillier", 1024), 80),
        (Guard("paillier", 2048), 112),
        (Guard("paillier", 3071), 112),
        (Guard("paillier", 3072), 128),
        (Guard("paillier", 7680), 192),
        (Guard("paillier", 15360), 256),
        (BFV, 128),
        (CKKS, 128),
        (Guard("bfv", 0), 0),
        (Guard("ckks", 882), 0),
        (MASKED, 40),
        (Guard("blinded", 128), 128),
        (Guard("masked", -1), 0),
        (Guard("rot13", 4096), 0),
    ],
)
def test_bits_of_security_are_derived(guard: Guard, bits: int) -> None:
    """Paillier: NIST SP 800-57 part 1 rev. 5, table 2."""
    assert guard.security_bits == bits


def test_labels_name_the_scheme() -> None:
    assert BFV.description == "BFV 218 bits, key k"
    assert CKKS.description == "CKKS 218 bits, key k"
    assert PAILLIER.description == "Paillier 2048 bits, key k"


@pytest.mark.parametrize(
    ("kind", "what", "names"),
    [(Kind.METRIC, "x", ["z"]), (Kind.CONTROL, "y", ["z"]), (Kind.CONTROL, "x", []), (Kind.CONTROL, "x", ["z", "y"])],
)
def test_the_unexpected_is_a_protocol_error(kind: Kind, what: str, names: list[str]) -> None:
    link, peer, _ = _links(Policy())
    asyncio.run(link.send(Kind.CONTROL, "x", z=Z))
    with pytest.raises(ProtocolError, match="expected"):
        asyncio.run(peer.receive(kind, what, *names))


def test_the_stricter_policy_takes_the_stricter_of_each() -> None:
    mine = Policy(sealed=True, min_key_bits=3072, max_epsilon=4.0, forbidden=frozenset({Kind.METRIC}))
    theirs = Policy(min_intersection=100, max_epsilon=2.0, noised=frozenset({Kind.GRADIENT}))
    both = mine.combine_strictest(theirs)
    assert both == theirs.combine_strictest(mine)
    assert (both.sealed, both.min_key_bits, both.min_intersection, both.max_epsilon) == (True, 3072, 100, 2.0)
    assert both.forbidden == {Kind.METRIC}
    assert both.noised == {Kind.GRADIENT}
    strict = Policy(protections=frozenset({"bfv"}), leaks=False, min_masking=64, min_security=128)
    assert Policy().combine_strictest(strict) == strict == strict.combine_strictest(Policy())
    assert strict.combine_strictest(Policy(protections=frozenset({"ckks"}))).protections == frozenset()
    for word in ("security >= 128", "keys >= 3072", "masks >= 64", "only bfv", "no known leak"):
        assert word in strict.text()
    for word in ("3072", "100", "sealed", "gradient", "metric", "2"):
        assert word in both.text()


def test_bounds_on_epsilon_and_on_the_intersection() -> None:
    policy = Policy(max_epsilon=1.0, min_intersection=50)
    policy.check_epsilon(1.0, "activations")
    policy.check_intersection(50)
    with pytest.raises(PolicyError, match=r"ε = 1\.5; the policy allows 1"):
        policy.check_epsilon(1.5, "activations")
    with pytest.raises(PolicyError, match="49 common rows"):
        policy.check_intersection(49)


def test_a_small_epsilon_at_a_large_delta_is_refused() -> None:
    policy = Policy(max_epsilon=0.5)
    policy.check_epsilon(0.5, "activations", 1e-5)
    Policy().check_epsilon(0.5, "activations", 0.99)  # who bounds no ε bounds no δ
    with pytest.raises(PolicyError, match=r"δ = 0\.99; the policy allows δ up to 0\.0001"):
        policy.check_epsilon(0.5, "activations", 0.99)
    both = policy.combine_strictest(Policy(max_delta=1e-6))
    assert both.max_delta == 1e-6
    assert "ε <= 0.5 at δ <= 1e-06" in both.text()
    job = sv.Job(policies={"lab": policy}, protection=sv.Plain(dp=sv.DP(features=sv.Gaussian(epsilon=0.5, delta=0.99))))
    with pytest.raises(PolicyError, match=r"'lab' refuses the job: .*δ = 0\.99"):
        sv.simulate(job, sv.datasets.breast_cancer(overlap=0.9, seed=1))


@pytest.mark.parametrize(
    "bad",
    [
        {"max_epsilon": 0.0},
        {"max_epsilon": float("nan")},
        {"min_intersection": 0},
        {"max_set_size": 0},
        {"min_key_bits": -1},
        {"min_key_bits": "2048"},
        {"min_security": 1000},
        {"min_security": 112.5},
        {"min_masking": True},
        {"forbidden": frozenset({Kind.CONTROL})},
    ],
)
def test_policies_that_make_no_sense(bad: dict[str, object]) -> None:
    with pytest.raises(InputError):
        Policy(**bad)  # type: ignore[arg-type]


def test_names_in_a_policy_are_known_ones() -> None:
    with pytest.raises(InputError, match=r"policy\.protections is 'palier'; did you mean 'paillier'"):
        Policy(protections=frozenset({"palier"}))  # type: ignore[arg-type]
    with pytest.raises(InputError, match="did you mean 'gradient'"):
        Policy(noised=frozenset({"gradients"}))  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"protections is 'bfv'; a list of one of .* was expected"):
        Policy(protections="bfv")  # type: ignore[arg-type]
    assert Policy(noised=["gradient"]) == Policy(noised=frozenset({Kind.GRADIENT}))  # type: ignore[arg-type]


def test_a_policy_is_a_configuration() -> None:
    policy = Policy(sealed=True, noised=frozenset({Kind.GRADIENT}), protections=frozenset({"bfv"}), max_epsilon=2)
    policy.check_message(Message(Kind.CONTROL, "x"), "b")  # what it remembers is no part of it
    assert Policy.from_values(json.loads(json.dumps(policy.describe()))) == policy
    with pytest.raises(InputError, match="has 2 mistakes"):
        Policy(min_security=1000, min_masking=-1)


FLOATS: list[Array] = [Z, Z.astype(np.float16), Z.astype(np.complex64), torch.zeros(2), torch.zeros(2).half()]
WHOLE: list[Array] = [C, np.zeros(2, np.int8), np.zeros(2, bool), torch.zeros(2, dtype=torch.int64)]
GUARDING = [Policy(sealed=True), Policy(leaks=False), Policy(noised=frozenset({Kind.GRADIENT}))]


@pytest.mark.parametrize("policy", GUARDING)
def test_content_does_not_travel_as_settings(policy: Policy) -> None:
    for check in (policy.check_message, policy.check_received):
        for array in WHOLE:  # what is allowed first must not clear the next
            check(Message(Kind.CONTROL, "x", {"rows": array}), "b")
        for array in FLOATS:
            with pytest.raises(PolicyError, match=r"'x' .* 'b' is a message of kind 'control', but its array 'z' is"):
                check(Message(Kind.CONTROL, "x", {"rows": C, "z": array}), "b")


@pytest.mark.parametrize("policy", [Policy(), Policy(max_epsilon=1.0), Policy(min_key_bits=3072)])
def test_settings_are_free_where_nothing_is_demanded_of_rows(policy: Policy) -> None:
    for array in (*WHOLE, *FLOATS):
        policy.check_message(Message(Kind.CONTROL, "x", {"z": array}), "b")
        policy.check_received(Message(Kind.CONTROL, "x", {"z": array}), "b")
