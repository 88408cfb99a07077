"""HybridTree: upper layers over all own rows, lower layers of guests, one message each way a tree."""

from __future__ import annotations

import asyncio
from collections import Counter
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from support.helpers import low_overlap_parties
from support.small_algorithms import make

import securevfl as sv
from securevfl.privacy import Link
from securevfl.run.simulation import RunOutcome, join_parties, run_parties
from securevfl.testing.trial import roles_begun
from securevfl.training.objectives import find_objective
from securevfl.transport import Kind

PEOPLE = low_overlap_parties(2, rows=150, overlap=0.4)
EPOCHS = 3


SEEN: dict[str, list[np.ndarray]] = {}
"""Receiver, or sender, and array → it, message by message."""


@pytest.fixture(scope="module")
def ran() -> tuple[RunOutcome, dict[str, Any]]:
    """A short run and its roles by party."""
    job = sv.Job(algorithm=make("hybrid_tree"), protection=sv.Plain(), epochs=EPOCHS, seed=3, keep="last")
    send = Link.send

    async def spy(self: Link, kind: Kind, what: str, **content: Any) -> None:
        if what in {"hybrid/gradients", "hybrid/values"}:
            guest = self.peer if what == "hybrid/gradients" else self.me
            for name in content.keys() & {"g", "leaf", "values"}:
                SEEN.setdefault(f"{guest} {name}", []).append(np.array(content[name]))
        await send(self, kind, what, **content)

    with roles_begun() as roles, pytest.MonkeyPatch.context() as patch:
        patch.setattr(Link, "send", spy)
        found = run_parties(job, PEOPLE, join_parties(PEOPLE, job), run="run")
    return found, {role.site.name: role for role in roles}


def test_what_a_guest_reads_of_the_others_is_declared(ran: tuple[RunOutcome, dict[str, Any]]) -> None:
    """From gradients of two trees and its own values it computes another guest's, and so who shares its leaf."""
    (first, second, *_), own = (one[:, 0] for one in SEEN["shop1 g"]), SEEN["shop1 values"][0]
    label = first < 0
    was, now = (np.log((g + label) / (1 - g - label)) for g in (first, second))
    np.testing.assert_allclose(2 * (now - was) - own, SEEN["shop2 values"][0], atol=1e-6)
    told = sv.Job(algorithm=make("hybrid_tree"), protection=sv.Plain()).findings(["shop1", "shop2"], "bank")
    of_shop2 = [one for one in told if (one.party, one.about) == ("shop1", "shop2")]
    assert [one.severity for one in of_shop2] == ["leak"]
    assert {sight.of for sight in of_shop2[0].sights} == {"features"}
    # and leaves of the upper layers are of the host's columns
    of_bank = [one for one in told if (one.party, one.about) == ("shop1", "bank")]
    assert [{sight.of for sight in one.sights} for one in of_bank] == [{"labels", "features"}] * 2
    assert len(np.unique(SEEN["shop1 leaf"][0])) > 1
    alone = sv.Job(algorithm=make("hybrid_tree"), protection=sv.Plain()).findings(["shop1"], "bank")
    assert {(one.party, one.about) for one in alone} == {("shop1", "bank"), ("bank", "shop1")}


def test_a_tree_takes_one_message_each_way(ran: tuple[RunOutcome, dict[str, Any]]) -> None:
    sent = Counter(e.what for e in ran[0].ledgers["bank"].entries if e.way == "sent" and e.peer == "shop1")
    got = Counter(e.what for e in ran[0].ledgers["bank"].entries if e.way == "received" and e.peer == "shop1")
    assert sent["hybrid/gradients"] == got["hybrid/values"] == EPOCHS
    assert sent["hybrid/leaves"] == got["hybrid/scores"] == EPOCHS + 1  # a validation each, and the test


def test_scores_are_the_sum_of_leaves(ran: tuple[RunOutcome, dict[str, Any]]) -> None:
    """Computed slowly from the parties' parts: guests' mean below leaves that common rows taught, else own."""
    found, roles = ran
    host, rows = roles["bank"], found.split.test
    upper, x = host.upper, host.columns_of(rows)
    slow = np.tile(upper.start, (len(rows), 1)).astype(float)
    for number, tree in enumerate(upper.trees):
        leaf = tree.leaves_of(x, {}, len(x))
        for row in range(len(rows)):
            value = tree.value[leaf[row]]
            if upper.taught[number][leaf[row]]:
                below = []
                for name in ("shop1", "shop2"):
                    under = roles[name].lower.trees[number][int(leaf[row])]
                    theirs = roles[name].columns_of(rows[row : row + 1])
                    below.append(under.value[under.leaves_of(theirs, {}, 1)[0]])
                value = np.mean(below)
            slow[row, tree.output] += value
    probabilities = host.task.compute_probabilities(torch.from_numpy(slow))
    np.testing.assert_allclose(found.trained["bank"].scores, probabilities, atol=1e-9)


def test_the_first_tree_s_upper_layers_are_boosting_s_of_all_own_rows(ran: tuple[RunOutcome, dict[str, Any]]) -> None:
    """Their values are −η Σg / (Σh + λ) over all labelled rows of the bank, those without a partner included."""
    host = ran[1]["bank"]
    assert len(host.rows) > len(ran[0].split.train)
    y, config = host.labels(host.rows).numpy(), host.config
    objective = find_objective("logistic")
    g, h = objective.compute_derivatives(np.tile(objective.initial_score(y, np.ones(len(y))), (len(y), 1)), y)
    tree = host.upper.trees[0]
    leaf = tree.leaves_of(host.columns_of(host.rows), {}, len(host.rows))
    assert len(np.unique(leaf)) > 1
    for node in np.unique(leaf):
        here = leaf == node
        assert tree.value[node] == pytest.approx(-config.lr * g[here].sum() / (h[here].sum() + config.l2))


def test_rows_without_a_partner_take_the_upper_layers(ran: tuple[RunOutcome, dict[str, Any]]) -> None:
    host, rows = ran[1]["bank"], ran[0].split.test
    alone = host.score_alone(rows).numpy()
    assert np.abs(alone - host.raw[rows]).max() > 0.01
    slow = host.upper.start + sum(
        np.asarray(tree.value)[leaf][:, None]
        for tree, leaf in zip(host.upper.trees, host.upper.leaves_of(host.columns_of(rows), 0), strict=True)
    )
    np.testing.assert_allclose(alone, slow)


def test_it_is_refused_where_nothing_may_be_read() -> None:
    with pytest.raises(sv.PolicyError, match="gradient of each common row"):
        sv.Job(algorithm=make("hybrid_tree"), protection=sv.Paillier())
    with pytest.raises(sv.InputError, match="no noise on gradients, nodes"):
        sv.Job(algorithm=make("hybrid_tree"), protection=sv.Plain(dp=sv.DP(features=sv.Gaussian(epsilon=1.0))))


def test_a_leaf_without_common_rows_keeps_its_own_value(ran: tuple[RunOutcome, dict[str, Any]]) -> None:
    """Guests have nothing below it, and what they return for it is zero."""
    host = ran[1]["bank"]
    train = ran[0].split.train
    taught = [np.unique(leaf) for leaf in host.upper.leaves_of(host.columns_of(train), 0)]
    for number, leaves in enumerate(taught):
        assert np.flatnonzero(host.upper.taught[number]).tolist() == leaves.tolist()
        assert sorted(ran[1]["shop1"].lower.trees[number]) == leaves.tolist()


@pytest.mark.parametrize("wrong", ["trees", "rows", "type"])
def test_a_guest_refuses_leaves_of_other_sizes(wrong: str, ran: tuple[RunOutcome, dict[str, Any]]) -> None:
    guest = ran[1]["shop1"]
    trees = len(guest.lower.trees) + (wrong == "trees")
    leaves = np.zeros((trees, 3 + (wrong == "rows")), np.float64 if wrong == "type" else np.int32)

    class Told:
        peer = "bank"

        async def receive(self, *names: object) -> Any:
            return SimpleNamespace(arrays={"leaves": leaves})

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(guest), "upstream", Told())
        with pytest.raises(sv.ProtocolError, match="sent leaves as"):
            asyncio.run(guest.answer(np.arange(3)))
