"""Steps of the plain path on a device whose numbers nobody can read: torch's ``meta`` has shapes and no numbers, so
that every question about one raises: ``float``, ``bool``, ``.cpu()``, ``nonzero``, a mask as an index. And what waits
for a device, the ledger's lines and the checks of what came, on the CPU with copies that come late."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from support.helpers import low_overlap_parties
from support.small_algorithms import make

import securevfl as sv
from securevfl.ledger import chain
from securevfl.party import job as job_module
from securevfl.privacy import Ledger, link
from securevfl.run.simulation import join_parties, run_parties
from securevfl.testing import link_in_memory
from securevfl.training import ActiveProgram, PassiveProgram, Trained
from securevfl.training.active_program import to_floats
from securevfl.training.rows import Features, Numbers
from securevfl.transport import HostCopy, Kind, Message, on_host, to_device, wire
from securevfl.transport import message as messages

STEPS = 3
FREE = [
    "all_labels",
    "apc_vfl",
    "distilled",
    "entity_augmentation",
    "fedcvt",
    "fedda",
    "fedhssl",
    "laser",
    "local",
    "logistic_regression",
    "mftl",
    "party_dropout",
    "plugvfl",
    "random_match",
    "risa",
    "sfhtl",
    "splitnn",
    "ssl",
    "zero_imputation",
]
"""Algorithms none of whose training steps, nor what they do before their first epoch, reads a number off the device."""
FEW: dict[str, dict[str, int]] = {
    "apc_vfl": {"steps": 1, "student_steps": 1},
    "distilled": {"teacher_steps": 1},
    "fedhssl": {"rounds": 1, "cross_steps": 1, "local_steps": 1},
    "ssl": {"pretraining": 1},
}
"""Fewer steps before the first epoch than in other tests."""
ONE_OTHER = ("fedcvt", "fedda", "mftl")
"""Of these there is one passive party."""


class Unread:
    """Stands for a copy that is on its way for ever."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.there = torch.zeros(tensor.shape, dtype=tensor.dtype).numpy()

    def wait_array(self) -> np.ndarray:
        return self.there


@pytest.fixture
def far(monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs may run on ``meta``: they set up, begin an epoch and take a few steps of it."""

    async def steps(self: ActiveProgram | PassiveProgram) -> Trained:
        await self.prepare_training()
        await self.role.begin_epoch(1)
        for rows in self.role.batches(1)[:STEPS]:
            await self.role.train_batch(rows)
        return self.trained

    monkeypatch.setattr(job_module, "_is_usable", lambda _: True)
    monkeypatch.setattr(wire, "HostCopy", Unread)
    monkeypatch.setattr(ActiveProgram, "run", steps)
    monkeypatch.setattr(PassiveProgram, "run", steps)


def few_steps(name: str) -> sv.run.simulation.Ran:  # type: ignore[name-defined]
    algorithm = make(name, **FEW.get(name, {}))
    people = low_overlap_parties(1 if name in ONE_OTHER else 2, rows=120)
    epochs = max(algorithm.least_epochs, 2)
    job = sv.Job(protection=sv.Plain(), algorithm=algorithm, epochs=epochs, batch_size=16, seed=3, device="meta")
    return run_parties(job, people, join_parties(people, job), run="far")


@pytest.mark.usefixtures("far")
@pytest.mark.parametrize("name", FREE)
def test_no_step_asks_the_device_for_a_number(name: str) -> None:
    ran = few_steps(name)
    assert ran.ledgers["bank"].message_count > 0


@pytest.mark.usefixtures("far")
@pytest.mark.parametrize(
    "question",
    [
        lambda z: float(z.sum()),
        lambda z: bool((z > 0).any()),
        lambda z: z.cpu(),
        lambda z: z[z > 0],
        lambda z: z.nonzero(),
        lambda z: z.detach().numpy(),
    ],
)
def test_a_question_about_a_number_would_end_the_run(
    question: Callable[[torch.Tensor], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    from securevfl.training.halves import ActiveHalf

    join = ActiveHalf.join_parts

    def asks(self: ActiveHalf, z: torch.Tensor, own: torch.Tensor) -> torch.Tensor:
        question(z)
        return join(self, z, own)

    monkeypatch.setattr(ActiveHalf, "join_parts", asks)
    with pytest.raises(sv.PartyFailed, match="bank"):
        few_steps("splitnn")


def test_what_is_made_of_a_table_is_on_the_device_of_the_plan() -> None:
    from securevfl.training import NumberedRows, Split

    table = NumberedRows(x=torch.ones(4, 2), split=Split.without_rows(), name="shop", rest={"shop": 1, "bank": 2})
    features = Features(table, "meta")
    for rows in (np.arange(3), np.array([0, 5, 3]), np.arange(0)):
        assert features(rows).device.type == "meta"
        assert features(rows).shape == (len(rows), 2)
    assert features.mean_row(np.arange(2)).device.type == "meta"
    assert to_device(np.arange(3), "meta").device.type == "meta"


def test_losses_are_read_together_and_in_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    losses = [0.1, torch.tensor(0.2), torch.tensor(0.3, dtype=torch.float64), 4.0]
    assert to_floats(losses) == [0.1, float(torch.tensor(0.2)), 0.3, 4.0]
    assert to_floats([]) == []


def test_rows_without_names_are_named_by_their_places() -> None:
    names = Numbers(12)
    assert len(names) == 12
    assert names[-1] == "11"
    assert list(names)[:2] == names[:2] == ["0", "1"]


# What waits for a device.


class Late(HostCopy):
    """A copy on the CPU, taken at once, of which is noted when it is read."""

    read = 0

    def __init__(self, tensor: torch.Tensor) -> None:
        self.there = tensor.detach().clone().numpy()

    def wait_array(self) -> np.ndarray:
        Late.read += 1
        return self.there


@pytest.fixture
def away(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tensors of the CPU count as those of a device."""
    for module in (wire, messages):
        monkeypatch.setattr(module, "on_host", lambda array: not isinstance(array, torch.Tensor))
    monkeypatch.setattr(wire, "HostCopy", Late)
    Late.read = 0


def run() -> Any:
    people = low_overlap_parties(2, rows=120)
    job = sv.Job(protection=sv.Plain(), algorithm=make("splitnn"), epochs=2, batch_size=16, seed=3)
    return run_parties(job, people, join_parties(people, job), run="late")


def told(ledger: Ledger) -> list[tuple[object, ...]]:
    """Of the messages of training; others hold keys that are drawn."""
    return [(e.seq, e.way, e.peer, e.what, e.bytes, e.digest) for e in ledger.entries if e.what.startswith("cut/")]


def test_ledgers_of_a_device_hold_what_those_of_the_host_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    here = run()
    with pytest.MonkeyPatch.context() as patch:
        for module in (wire, messages):
            patch.setattr(module, "on_host", lambda array: not isinstance(array, torch.Tensor))
        patch.setattr(wire, "HostCopy", Late)
        there = run()
    assert {name: told(ledger) for name, ledger in there.ledgers.items()} == {
        name: told(ledger) for name, ledger in here.ledgers.items()
    }
    for ledger in there.ledgers.values():
        times = [line.time for line in ledger.lines]
        assert times == sorted(times)
        previous = None
        for line in ledger.lines:
            assert previous is None or line.prev == previous
            previous = line.hash
    assert [e.loss for e in there.trained["bank"].epochs] == [e.loss for e in here.trained["bank"].epochs]


@pytest.mark.usefixtures("away")
def test_a_line_waits_for_the_device_and_holds_what_was_sent() -> None:
    ledger = Ledger("bank", run="r", job="00")
    for i in range(chain.LAG):
        z = torch.full((2, 3), float(i))
        message = Message(Kind.ACTIVATION, "cut/forward", {"z": z})
        ledger.record("sent", "shop", message, 8)
        z.zero_()  # the device goes on
    assert Late.read == 0
    assert ledger.length == 1
    assert ledger.message_count == chain.LAG
    ledger.record("sent", "shop", Message(Kind.CONTROL, "train/epoch"), 8)  # in its place, not before them
    assert Late.read == 1
    ledger.record_note("epsilon", {"features": 1.0})
    assert [line.seq for line in ledger.entries] == list(range(1, chain.LAG + 2))
    assert len({line.digest for line in ledger.entries}) == chain.LAG + 1
    again = Message(Kind.ACTIVATION, "cut/forward", {"z": torch.full((2, 3), 5.0).numpy()})
    assert ledger.entries[5].digest == wire.measure_message(again)[1]


@pytest.mark.usefixtures("away")
@pytest.mark.parametrize("end", ["catch_up", "head", "close"])
def test_every_end_writes_what_waited(end: str) -> None:
    ledger = Ledger("bank", run="r", job="00")
    ledger.record("sent", "shop", Message(Kind.ACTIVATION, "cut/forward", {"z": torch.ones(2)}), 8)
    found = getattr(ledger, end)
    if end != "head":
        found()
    assert ledger.length == (3 if end == "close" else 2)


@pytest.mark.usefixtures("away")
@pytest.mark.parametrize(("sender", "receiver"), [("shop1", "bank"), ("bank", "shop")])
def test_numbers_that_are_not_finite_end_the_epoch_by_their_sender_s_name(
    sender: str, receiver: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    original, sent, epochs = link.Link.hand_over, [], []

    async def hands_over(self: link.Link, message: Message) -> None:
        if self.me == sender and message.what in ("cut/forward", "cut/backward"):
            sent.append(message)
            if len(sent) == 2:
                bad = {name: torch.full_like(array, float("nan")) for name, array in message.arrays.items()}  # type: ignore[arg-type]
                message = Message(message.kind, message.what, bad, message.meta, message.guard)
        await original(self, message)

    async def decides(self: ActiveProgram, *_: Any) -> None:
        epochs.append(1)

    monkeypatch.setattr(link.Link, "hand_over", hands_over)
    monkeypatch.setattr(ActiveProgram, "decide_epoch", decides)
    with pytest.raises(sv.ProtocolError, match=rf"'{sender}' sent numbers that are not finite to '{receiver}"):
        run()
    assert not epochs  # nothing was validated, chosen or kept


@pytest.mark.usefixtures("away")
def test_what_goes_over_a_wire_is_written_down_before_it_leaves() -> None:
    message = Message(Kind.ACTIVATION, "cut/forward", {"z": torch.ones(2)})
    host = wire.move_to_host(message)
    assert all(isinstance(array, np.ndarray) for array in host.arrays.values())
    assert wire.measure_message(host) == wire.measure_message(
        Message(Kind.ACTIVATION, "cut/forward", {"z": np.ones(2, np.float32)})
    )


needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU that torch can use")


@needs_gpu
@pytest.mark.parametrize("name", ["splitnn", "risa", "fedcvt", "fedda", "mftl"])
def test_training_on_a_gpu(name: str) -> None:
    people = low_overlap_parties(1, rows=160)
    algorithm = make(name)
    epochs = max(algorithm.least_epochs, 2)
    job = sv.Job(protection=sv.Plain(), algorithm=algorithm, epochs=epochs, batch_size=16, seed=3, device="cuda")
    ran = run_parties(job, people, join_parties(people, job), run="gpu")
    assert np.isfinite([epoch.loss for epoch in ran.trained["bank"].epochs]).all()
    if name == "splitnn":
        here = run_parties(job.replace(device="cpu"), people, join_parties(people, job), run="cpu")
        found, expected = ([e.loss for e in one.trained["bank"].epochs] for one in (ran, here))
        assert found == pytest.approx(expected, rel=1e-3)


@needs_gpu
def test_no_step_on_a_gpu_synchronises(monkeypatch: pytest.MonkeyPatch) -> None:
    from securevfl.algorithms.splitnn import Active

    steps, batch = [], Active.train_batch

    async def watched(self: Active, rows: np.ndarray) -> float | torch.Tensor:
        steps.append(len(rows))
        torch.cuda.set_sync_debug_mode("error" if len(steps) > 2 else "default")  # torch prepares itself at first
        try:
            return await batch(self, rows)  # and the passive parties' steps meanwhile
        finally:
            torch.cuda.set_sync_debug_mode("default")

    monkeypatch.setattr(Active, "train_batch", watched)
    people = low_overlap_parties(2, rows=160)
    job = sv.Job(protection=sv.Plain(), algorithm=make("splitnn"), epochs=2, batch_size=16, seed=3, device="cuda")
    run_parties(job, people, join_parties(people, job), run="gpu")
    assert len(steps) > 2


def test_arrays_of_numpy_and_of_the_cpu_are_on_the_host() -> None:
    assert on_host(np.ones(1))
    assert on_host(torch.ones(1))
    assert not on_host(torch.ones(1, device="meta"))
    assert link_in_memory(passive=("shop",))["a"].links["shop"].can_send
