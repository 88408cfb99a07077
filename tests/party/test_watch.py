"""Silence: a peer that hangs, a message that is lost, a task that is cancelled end a run soon, and who is named."""

from __future__ import annotations

import asyncio
import time
import warnings
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from securevfl_net.link_state import Beat
from support.helpers import make_parties

import securevfl as sv
from securevfl.party.liveness import _LivenessMonitor
from securevfl.party_context import PartyContext
from securevfl.privacy import Link
from securevfl.run import in_memory as together
from securevfl.run import simulated_parties as simulated
from securevfl.run.blocking import run_blocking
from securevfl.run.context_building import build_context
from securevfl.run.roster import Roster
from securevfl.transport import MemoryChannel, Message

JOB = sv.Job(protection=sv.Plain(), algorithm=sv.SplitNN(hidden=4, top=(), bottom=(3,)), epochs=2, batch_size=32)


@pytest.fixture
def sites(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The sites of each run, with little patience; whatever hangs all the same fails."""
    found: list[Any] = []

    def impatient(job: sv.Job, roster: Roster, name: str, *given: Any, **named: Any) -> PartyContext:
        if not found or name in found[-1]:
            found.append({})
        found[-1][name] = build_context(job, roster, name, *given, **named | {"silence": 0.4})
        return found[-1][name]

    def bounded(main: Any) -> Any:
        async def within() -> Any:
            return await asyncio.wait_for(main(), 20)

        return run_blocking(within)

    monkeypatch.setattr(simulated, "build_context", impatient)
    monkeypatch.setattr(together, "run_blocking", bounded)
    return found


def _at(monkeypatch: pytest.MonkeyPatch, party: str, step: str, does: Any) -> None:
    """What `party` does where it would receive this step for the second time."""
    original, seen = Link.receive, [0]

    async def receive(self: Link, kind: Any, what: str, *names: str) -> Any:
        if self.me == party and what == step:
            seen[0] += 1
            if seen[0] == 2:
                await does()
        return await original(self, kind, what, *names)

    monkeypatch.setattr(Link, "receive", receive)


async def _hang() -> None:
    await asyncio.Event().wait()


async def _cancelled() -> None:
    raise asyncio.CancelledError


@pytest.mark.parametrize(("party", "step"), [("bank", "cut/forward"), ("shop1", "cut/backward")])
def test_a_party_that_hangs_is_named_by_those_who_wait_for_it(
    party: str, step: str, sites: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    _at(monkeypatch, party, step, _hang)
    with pytest.raises(sv.ProtocolError, match=rf"has waited .* s for '{party}' \('cut/\w+'\), which showed no sign"):
        sv.simulate(JOB, make_parties(rows=60))
    assert all(site.links[peer]._channel._out.closed for site in sites[-1].values() for peer in site.links)


def test_a_lost_message_is_told_apart_from_a_silent_party(sites: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    original, seen = MemoryChannel.send, [0]

    async def drops(self: MemoryChannel, message: Any) -> int:
        if message.what == "cut/forward":
            seen[0] += 1
            if seen[0] == 3:
                return 100
        return await original(self, message)

    monkeypatch.setattr(MemoryChannel, "send", drops)
    with pytest.raises(sv.ProtocolError, match=r"which itself waits for .*reports \d+ messages sent.*; a message was"):
        sv.simulate(JOB, make_parties(passive=1, rows=60))


@pytest.mark.parametrize("party", ["bank", "shop2"])
def test_a_cancelled_task_ends_the_run(party: str, sites: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    _at(monkeypatch, party, "cut/forward" if party == "bank" else "cut/backward", _cancelled)
    with pytest.raises(sv.PartyFailed, match=f"party '{party}' failed: CancelledError") as caught:
        sv.simulate(JOB, make_parties(rows=60))
    assert {ledger.party for ledger in caught.value.ledgers} == {"bank", "shop1", "shop2"}
    assert all(site.links[peer]._channel._out.closed for site in sites[-1].values() for peer in site.links)


def test_a_party_that_computes_for_long_is_not_called_silent(sites: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    async def computes() -> None:
        time.sleep(1.5)  # noqa: ASYNC251 - as a long step does

    _at(monkeypatch, "shop1", "cut/backward", computes)
    sv.simulate(JOB, make_parties(rows=60))


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize(("sender", "step"), [("shop1", "cut/forward"), ("bank", "cut/backward")])
def test_numbers_that_are_not_finite_are_their_senders(
    value: float, sender: str, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = Link.hand_over

    async def hands_over(self: Link, message: Message) -> None:
        if self.me == sender and message.what == step:
            arrays = {k: torch.full_like(v, value) for k, v in message.arrays.items() if isinstance(v, torch.Tensor)}
            message = replace(message, arrays=arrays)
        await original(self, message)

    monkeypatch.setattr(Link, "hand_over", hands_over)
    with pytest.raises(sv.ProtocolError, match=rf"'{sender}' sent numbers that are not finite to .*'{step}'"):
        sv.simulate(JOB, make_parties(rows=60))


def test_large_numbers_whose_sum_overflows_are_finite() -> None:
    from securevfl.privacy.link import _are_finite

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert _are_finite(np.full(9, 3e38, np.float32))
        assert _are_finite(np.full(9, -6e4, np.float16))
        assert not _are_finite(np.array([1.0, np.inf, -np.inf]))
        assert not _are_finite(np.array([1e300, np.nan]))


def _monitor(beat: Beat, *, sent: int = 3, received: int = 3) -> sv.ProtocolError:
    """What a party says of a peer that it has waited for."""
    link = SimpleNamespace(me="bank", peer="shop", awaits="'cut/forward'", sent=sent, received=received)
    monitor = _LivenessMonitor(SimpleNamespace(links={"shop": link, "web": None}), None)  # type: ignore[arg-type]
    monitor._silent = {"shop": 600.0}
    return monitor._explain_silence(link, beat)  # type: ignore[arg-type]


def test_a_stopped_program_is_not_called_a_lost_message() -> None:
    """Its last report says that it waits for this party, and is as old as its silence."""
    stopped = Beat(steps=6, sent=4, read=3, awaits="bank", step="'cut/backward'", at=time.monotonic() - 590)
    found = _monitor(stopped)
    assert isinstance(found, sv.PeerSilent)
    assert "no sign of life from 'shop' for 590 s; it may be stopped, or the link cut" in str(found)
    assert (found.party, found.exit_code) == ("shop", 75)
    alive = _monitor(replace(stopped, at=time.monotonic()))
    assert not isinstance(alive, sv.PeerSilent)
    assert "a message was lost on the way" in str(alive)


def test_who_waits_for_a_third_party_is_not_the_silent_one() -> None:
    found = _monitor(Beat(awaits="web", step="'x'", at=time.monotonic()))
    assert isinstance(found, sv.PeerSilent)
    assert found.party == "web"
    assert _monitor(Beat(awaits="nobody", at=time.monotonic())).party == ""
