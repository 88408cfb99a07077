"""The policy: what it forbids is an error before a byte is sent."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

from securevfl.errors import InputError, PolicyError, ProtocolError
from securevfl.privacy import Clock, Ledger, Link, Policy
from securevfl.transport import Guard, Kind, memory_pair

Z = np.zeros((2, 2), np.float32)
PAILLIER = Guard("paillier", 2048, "k")


def _links(policy: Policy) -> tuple[Link, Link, Ledger]:
    mine, theirs = memory_pair()
    ledger = Ledger("a", run="r", job="0")
    link = Link("a", "b", mine, ledger, policy, Clock())
    return link, Link("b", "a", theirs, Ledger("b", run="r", job="0"), Policy(), Clock()), ledger


@pytest.mark.parametrize(
    ("policy", "kind", "guard", "match"),
    [
        (Policy(sealed=True), Kind.ACTIVATION, Guard(), "demands them sealed"),
        (Policy(sealed=True), Kind.GRADIENT, Guard(noise=2.0), "demands them sealed"),
        (Policy(sealed=True), Kind.REPRESENTATION, Guard(), "demands them sealed"),
        (Policy(noised=frozenset({Kind.GRADIENT})), Kind.GRADIENT, Guard(), "without noise"),
        (Policy(forbidden=frozenset({Kind.METRIC})), Kind.METRIC, Guard(), "forbids"),
        (Policy(min_key_bits=3072), Kind.CIPHERTEXT, PAILLIER, "2048 bits; the policy demands at least 3072"),
    ],
)
def test_forbidden_messages_never_leave(policy: Policy, kind: Kind, guard: Guard, match: str) -> None:
    link, peer, ledger = _links(policy)
    with pytest.raises(PolicyError, match=match):
        link.send(kind, "x", guard=guard, z=Z)
    assert ledger.entries == []
    link.send(Kind.CONTROL, "next")
    message = asyncio.run(peer.receive(Kind.CONTROL, "next"))
    assert message.what == "next"  # nothing was queued before it


def test_allowed_messages_leave_and_are_written_down() -> None:
    link, _, ledger = _links(Policy(sealed=True, noised=frozenset({Kind.GRADIENT})))
    link.send(Kind.CIPHERTEXT, "x", guard=PAILLIER, z=Z)
    assert [(e.way, e.peer, e.cipher, e.bits) for e in ledger.entries] == [("sent", "b", "paillier", 2048)]


@pytest.mark.parametrize(
    ("kind", "what", "names"),
    [(Kind.METRIC, "x", ["z"]), (Kind.CONTROL, "y", ["z"]), (Kind.CONTROL, "x", []), (Kind.CONTROL, "x", ["z", "y"])],
)
def test_the_unexpected_is_a_protocol_error(kind: Kind, what: str, names: list[str]) -> None:
    link, peer, _ = _links(Policy())
    link.send(Kind.CONTROL, "x", z=Z)
    with pytest.raises(ProtocolError, match="expected"):
        asyncio.run(peer.receive(kind, what, *names))


def test_the_stricter_policy_takes_the_stricter_of_each() -> None:
    mine = Policy(sealed=True, min_key_bits=3072, max_epsilon=4.0, forbidden=frozenset({Kind.METRIC}))
    theirs = Policy(min_intersection=100, max_epsilon=2.0, noised=frozenset({Kind.GRADIENT}))
    both = mine.stricter(theirs)
    assert both == theirs.stricter(mine)
    assert (both.sealed, both.min_key_bits, both.min_intersection, both.max_epsilon) == (True, 3072, 100, 2.0)
    assert both.forbidden == {Kind.METRIC}
    assert both.noised == {Kind.GRADIENT}
    for word in ("3072", "100", "sealed", "gradient", "metric", "2"):
        assert word in both.describe()


def test_bounds_on_epsilon_and_on_the_intersection() -> None:
    policy = Policy(max_epsilon=1.0, min_intersection=50)
    policy.check_epsilon(1.0, "activations")
    policy.check_intersection(50)
    with pytest.raises(PolicyError, match=r"ε = 1\.5; the policy allows 1"):
        policy.check_epsilon(1.5, "activations")
    with pytest.raises(PolicyError, match="49 common rows"):
        policy.check_intersection(49)
    for bad in ({"max_epsilon": 0.0}, {"min_intersection": 0}):
        with pytest.raises(InputError):
            Policy(**bad)
