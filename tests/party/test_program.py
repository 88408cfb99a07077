"""A party's program stands alone: N of them over memory are a simulation, and each sees its own table only."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support.helpers import low_overlap_parties, make_parties

import securevfl as sv
from securevfl.data import Parties, PartyTable
from securevfl.errors import InputError, PolicyError, ProtocolError
from securevfl.party import Job, run_party
from securevfl.party_context import PartyContext
from securevfl.privacy import Policy
from securevfl.run.simulated_parties import Simulated
from securevfl.training import Trained
from securevfl.transport import Kind

PLAIN = sv.Job(
    protection=sv.Plain(), algorithm=sv.SplitNN(hidden=4, top=(4,), bottom=(3,)), epochs=2, batch_size=32, seed=5
)


def together(job: Job, people: Parties, *, window: int = 1 << 25) -> Any:
    """Every party's whole program, from consent to the model, each over its own table and links."""

    async def program(site: PartyContext, table: PartyTable | None) -> Trained:
        return await run_party(site, table, job)

    return Simulated(job=job, parties=people, run="whole", window=window).run_program(program)


@pytest.mark.parametrize("passive", [1, 2])
def test_whole_programs_over_memory_are_the_simulation(passive: int) -> None:
    people = make_parties(passive=passive)
    found, sites = together(PLAIN, people)
    result = sv.simulate(PLAIN, people)
    assert np.array_equal(found["bank"].scores, result.scores["plain"])
    assert found["bank"].test == result.record.runs[0].test
    steps = {entry.what for entry in sites["shop1"].ledger.entries}
    assert {"party/consent", "psi/hello", "train/rows", "train/start", "cut/forward", "train/epoch"} <= steps


@pytest.mark.parametrize("window", [1, 1 << 25])
@pytest.mark.parametrize(
    "algorithm",
    [
        PLAIN.algorithm,
        sv.RISA(hidden=4, bottom=(3,), self_training=1),
        sv.FedCVT(bottom=(4,)),
        sv.FedDA(hidden=4, bottom=(4,), first=1, generator_steps=2),
        sv.EntityAugmentation(hidden=4),
    ],
    ids=lambda algorithm: algorithm.name,
)
def test_a_window_of_one_message_changes_nothing(algorithm: sv.Algorithm, window: int) -> None:
    job = PLAIN.replace(algorithm=algorithm, epochs=3)
    found, _ = together(job, low_overlap_parties(1, rows=160, width=2), window=window)
    reference, _ = together(job, low_overlap_parties(1, rows=160, width=2))
    assert np.array_equal(found["bank"].scores, reference["bank"].scores)


def test_the_marked_split_reaches_the_passive_parties_as_a_message() -> None:
    people = low_overlap_parties(1, rows=160, width=2)  # its active table marks which rows validate and test
    found, sites = together(PLAIN, people)
    (start,) = [e for e in sites["shop1"].ledger.entries if e.what == "train/start"]
    common = len(found["bank"].split.train) + len(found["bank"].split.valid) + len(found["bank"].split.test)
    assert start.kind is Kind.CONTROL
    assert start.shapes == {"fold": [common]}
    one, two = found["bank"].split, found["shop1"].split
    assert all(np.array_equal(getattr(one, part), getattr(two, part)) for part in ("train", "valid", "test"))


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"classes": 1}, "announces classes 1"),
        ({"split": "train"}, "by 'seed' or 'mark', with"),
        ({"shared": 9}, "announces shared 9"),
        ({"split": "moon"}, "splits"),
        ({"rows shop1": 3}, "sent other counts"),
        ({"rows bank": True}, "announces"),
    ],
)
def test_a_passive_party_checks_what_it_is_told(
    change: dict[str, Any], match: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from securevfl.privacy import Link

    original = Link.send

    async def lies(self: Link, kind: Kind, what: str, **more: Any) -> None:
        if what == "train/start":
            more["meta"] = dict(more["meta"]) | change
        await original(self, kind, what, **more)

    monkeypatch.setattr(Link, "send", lies)
    with pytest.raises(ProtocolError, match=match):
        together(PLAIN, make_parties(passive=1))


def test_a_party_that_refuses_says_so_and_all_end() -> None:
    job = PLAIN.replace(policies={"shop2": Policy(sealed=True)})
    with pytest.raises(PolicyError, match="'shop2' refuses the job") as caught:
        together(job, make_parties(passive=2))
    sent = {entry.what for ledger in caught.value.ledgers for entry in ledger.entries}
    assert sent <= {"party/consent", "refused"}


def test_parties_with_different_jobs_end_at_consent() -> None:
    """Nothing of a table is used: what a party agreed to is its own job alone."""
    people = make_parties(passive=1)

    async def program(site: PartyContext, table: PartyTable | None) -> Trained:
        if site.name == "shop1":
            object.__setattr__(site, "job", "another" + site.job)
        return await run_party(site, table, PLAIN)

    with pytest.raises(ProtocolError, match=r"'(bank|shop1)' runs job .*: use one job file") as caught:
        Simulated(job=PLAIN, parties=people, run="two jobs", window=1 << 25).run_program(program)
    assert {entry.what for ledger in caught.value.ledgers for entry in ledger.entries} <= {"party/consent", "refused"}


def test_labels_of_others_rows_need_a_book_and_only_alignment_tells() -> None:
    job = PLAIN.replace(algorithm=sv.AllLabels(hidden=4))
    with pytest.raises(InputError, match="no label book"):
        together(job, make_parties(passive=1))


def test_no_program_sees_another_partys_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each party's task touches one table: its own."""
    import asyncio

    touched: dict[str, set[str]] = {}
    original = PartyTable.__getattribute__

    def watched(self: PartyTable, name: str) -> Any:
        try:
            task = asyncio.current_task()
        except RuntimeError:
            task = None
        if task is not None and name in ("ids", "columns", "label", "fold", "book"):
            touched.setdefault(task.get_name(), set()).add(original(self, "name"))
        return original(self, name)

    monkeypatch.setattr(PartyTable, "__getattribute__", watched)
    people = make_parties(passive=2)
    together(PLAIN, people)
    own = {task: names for task, names in touched.items() if task in people}
    assert own == {name: {name} for name in people}


def test_it_returns_what_training_returns() -> None:
    found, _ = together(PLAIN, make_parties(passive=1))
    assert isinstance(found["shop1"], Trained)
    assert found["shop1"].model["classes"] == 2


def test_targets_that_are_no_probabilities_get_no_noise_sized_for_them() -> None:
    """Ten times the label would move the gradient ten times as far as the loss states."""
    import torch

    from securevfl.privacy.loss import _are_probabilities

    assert _are_probabilities(torch.tensor([[0.25, 0.75], [1.0, 0.0]]))
    assert not _are_probabilities(torch.tensor([[0.0, 10.0]]))
    assert not _are_probabilities(torch.tensor([[-1.0, 2.0]]))


@pytest.mark.parametrize("steps", [None, 6])
def test_a_prediction_plans_the_releases_that_training_planned(steps: int | None) -> None:
    dp = sv.DP(features=sv.Gaussian(epsilon=8, noise_multiplier=3.0))
    policy = {"shop1": Policy(max_epsilon=8.0)}
    job = PLAIN.replace(protection=sv.Plain(dp=dp), steps=steps, policies=policy)
    people = make_parties(passive=1)
    result = sv.simulate(job, people)
    spent = result.record.runs[0].epsilon[0]
    prediction = sv.predict(result.model(), people)
    notes = [n.values for n in prediction.ledgers["shop1"].lines if getattr(n, "note", "") == "epsilon"]
    assert [note["noise_multiplier"] for note in notes] == [spent.noise_multiplier]
