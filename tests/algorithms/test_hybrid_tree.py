"""HybridTree: upper layers over all own rows, lower layers of guests, one message each way a tree."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch
from support.helpers import low_overlap_parties
from support.small_algorithms import make

import securevfl as sv
from securevfl.run.simulation import RunOutcome, join_parties, run_parties
from securevfl.testing.trial import roles_begun
from securevfl.training.objectives import find_objective

PEOPLE = low_overlap_parties(2, rows=150, overlap=0.4)
EPOCHS = 3


@pytest.fixture(scope="module")
def ran() -> tuple[RunOutcome, dict[str, Any]]:
    """A short run and its roles by party."""
    job = sv.Job(algorithm=make("hybrid_tree"), protection=sv.Plain(), epochs=EPOCHS, seed=3, keep="last")
    with roles_begun() as roles:
        found = run_parties(job, PEOPLE, join_parties(PEOPLE, job), run="run")
    return found, {role.site.name: role for role in roles}


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
