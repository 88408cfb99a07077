"""The course of a party over a mesh: cut connections, deaths, starts anew, errors, and ends in good order."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import pytest
from securevfl_net.errors import exit_code_of

from securevfl.errors import (
    AlignmentError,
    InputError,
    MachineFault,
    Parked,
    PartyFailed,
    PeerEnded,
    PeerRefused,
    PeerSilent,
    PolicyError,
    ProtocolError,
    RangeError,
    SecureVFLError,
)
from securevfl.party.attempts import Attempts
from securevfl.party.reports import View
from securevfl.run import runner as module
from securevfl.run.events import RunEvents
from securevfl.run.runner import PartyRunner
from securevfl.run.timeouts import Timeouts
from securevfl.shares.kept_targets import TargetRule, explain_wrong_targets
from securevfl.transport import Channel, Kind, MemoryHub, Message, Scalar

NAMES = ("bank", "shop", "web")
LIMIT = 60.0
"""Seconds that no test needs, so that a loaded machine passes."""

Work = Callable[[str, View, Mapping[str, Channel]], Awaitable[str]]


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_LOOK", 0.02)
    monkeypatch.setattr(module, "_LAST_WORDS", 0.2)


class Heard(RunEvents):
    """What happened, by name, and an event for each name."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self._changed = asyncio.Event()

    def report_event(self, what: str, words: str, **values: Scalar) -> None:
        self.events.append(what)
        self._changed.set()

    async def until(self, what: str, times: int = 1) -> None:
        """Wait until something happened so often."""
        while self.events.count(what) < times:
            self._changed.clear()
            await self._changed.wait()


class Everybody:
    """Runners of all parties over one hub."""

    def __init__(self, work: Work, patience: Timeouts | None = None) -> None:
        self.hub = MemoryHub(NAMES)
        self.work = work
        self.patience = patience
        self.kept = {name: Attempts(self.hub[name].incarnation) for name in NAMES}
        self.heard = {name: Heard() for name in NAMES}
        self.runners: dict[str, PartyRunner[str]] = {}
        self.tasks: dict[str, asyncio.Task[str | None]] = {}
        for name in NAMES:
            self.start(name)

    def start(self, name: str) -> None:
        """Start a party, with what it kept."""
        mesh = self.hub[name]
        self.kept[name].incarnation = mesh.incarnation

        def program(view: View, channels: Mapping[str, Channel]) -> Awaitable[str]:
            return self.work(name, view, channels)

        runner = PartyRunner(mesh, self.kept[name], program, patience=self.patience, news=self.heard[name])
        self.runners[name] = runner
        self.tasks[name] = asyncio.ensure_future(runner.run())

    def kill(self, name: str) -> None:
        """End a party without a word."""
        self.hub.crash(name)
        self.tasks.pop(name).cancel()

    async def results(self) -> dict[str, Any]:
        """Each party's result or error."""
        found = await asyncio.gather(*self.tasks.values(), return_exceptions=True)
        return dict(zip(self.tasks, found, strict=True))


def run(main: Callable[[], Awaitable[None]]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(LIMIT):
            await main()

    asyncio.run(limited())


async def _talk(name: str, channels: Mapping[str, Channel], rounds: int = 3) -> None:
    """Every party says something to every other, and hears from all, some times."""
    for number in range(rounds):
        for channel in channels.values():
            await channel.send(Message(Kind.CONTROL, f"{number}", {}, {"from": name}))
        for peer, channel in channels.items():
            message, _ = await channel.receive()
            assert (message.what, message.meta["from"]) == (f"{number}", peer)


def test_all_have_their_results_at_the_end() -> None:
    async def work(name: str, view: View, channels: Mapping[str, Channel]) -> str:
        await _talk(name, channels)
        return f"{name} {view.attempt}"

    async def main() -> None:
        assert await Everybody(work).results() == {name: f"{name} 1" for name in NAMES}

    run(main)


def test_a_party_alone() -> None:
    async def main() -> None:
        hub = MemoryHub(["bank"])

        async def program(view: View, channels: Mapping[str, Channel]) -> int:
            return len(channels)

        assert await PartyRunner(hub["bank"], Attempts(hub["bank"].incarnation), program).run() == 0

    run(main)


def test_a_connection_that_breaks_and_comes_back_is_not_noticed() -> None:
    cut, starts = asyncio.Event(), []

    async def work(name: str, view: View, channels: Mapping[str, Channel]) -> str:
        starts.append(name)
        await _talk(name, channels)
        if name == "bank":
            cut.set()
        await _talk(name, channels)
        return "done"

    async def main() -> None:
        all_of_them = Everybody(work)
        await cut.wait()
        all_of_them.hub.cut("bank", "shop")
        await all_of_them.heard["bank"].until("down")
        all_of_them.hub.mend("bank", "shop")
        assert set((await all_of_them.results()).values()) == {"done"}
        assert sorted(starts) == sorted(NAMES)
        assert "parked" not in all_of_them.heard["bank"].events

    run(main)


def test_a_connection_that_stays_away_parks_the_attempt() -> None:
    middle, attempts = asyncio.Event(), dict[str, list[int]]()

    async def work(name: str, view: View, channels: Mapping[str, Channel]) -> str:
        attempts.setdefault(name, []).append(view.attempt)
        if view.attempt == 1:
            middle.set()
            await asyncio.Event().wait()
        await _talk(name, channels)
        return "done"

    async def main() -> None:
        all_of_them = Everybody(work, Timeouts(away=0.1))
        await middle.wait()
        all_of_them.hub.cut("bank", "shop")
        await all_of_them.heard["bank"].until("parked")
        all_of_them.hub.mend("bank", "shop")
        assert set((await all_of_them.results()).values()) == {"done"}
        assert {name: numbers[0] for name, numbers in attempts.items()} == dict.fromkeys(NAMES, 1)
        assert len({numbers[-1] for numbers in attempts.values()}) == 1

    run(main)


@pytest.mark.parametrize("dies", NAMES)
@pytest.mark.parametrize("when", ["before", "during", "after"])
def test_a_party_that_dies_is_started_again_and_all_go_on(dies: str, when: str) -> None:
    """Before it says a word in the attempt, in the middle, and when it has said its last word but not kept its result:
    the others have theirs by then, and take part once more."""
    moment = asyncio.Event()

    async def work(name: str, view: View, channels: Mapping[str, Channel]) -> str:
        first = view.attempt == 1 and name == dies
        if first and when == "before":
            moment.set()
            await asyncio.Event().wait()
        await _talk(name, channels)
        if first and when == "during":
            moment.set()
            await asyncio.Event().wait()
        await _talk(name, channels)
        if first and when == "after":
            moment.set()
            await asyncio.Event().wait()
        return f"{view.attempt}"

    async def main() -> None:
        all_of_them = Everybody(work)
        await moment.wait()
        if when == "after":
            await asyncio.gather(*(all_of_them.heard[n].until("finished") for n in NAMES if n != dies))
        all_of_them.kill(dies)
        all_of_them.hub.start(dies)
        all_of_them.start(dies)
        found = await all_of_them.results()
        assert len(set(found.values())) == 1
        assert int(found["bank"]) > 1

    run(main)


def test_an_error_ends_the_job_at_all_and_tells_no_values() -> None:
    async def work(name: str, view: View, channels: Mapping[str, Channel]) -> str:
        if name == "shop":
            raise AlignmentError("identifier 'p0042' is there twice")
        await _talk(name, channels)
        return "never"

    async def main() -> None:
        found = await Everybody(work).results()
        assert str(found["shop"]) == "identifier 'p0042' is there twice"
        for name in ("bank", "web"):
            assert isinstance(found[name], AlignmentError)
            assert "'shop' ended the job" in str(found[name])
            assert "p0042" not in str(found[name])

    run(main)


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (
            explain_wrong_targets("shop", TargetRule.of(2), counted=True),
            "checked the targets that were dealt, and refuse them",
        ),
        (PolicyError("p0042", cause="useless"), "does not predict better with the passive parties' columns"),
        (RangeError("p0042"), "a weight left the fixed-point range"),
        (PolicyError("p0042"), "its policy forbids continuing"),
        (PolicyError("p0042", cause="p0042"), "its policy forbids continuing"),
    ],
)
def test_a_party_that_only_deals_learns_which_verdict_ended_the_job(error: SecureVFLError, words: str) -> None:
    """Parties that compute on shares learn the verdicts; of the others, none takes part in them."""

    async def work(name: str, view: View, channels: Mapping[str, Channel]) -> str:
        if name == "shop":
            raise error
        await asyncio.Event().wait()
        return "never"

    async def main() -> None:
        found = (await Everybody(work).results())["web"]
        assert type(found) is type(error)
        assert words in str(found)
        assert "p0042" not in str(found)

    run(main)


@pytest.mark.parametrize(
    ("error", "there", "elsewhere"),
    [(RuntimeError("p0042"), PartyFailed, PeerEnded), (InputError("p0042"), InputError, PeerEnded)],
)
def test_a_failure_that_nobody_foresaw(
    error: Exception, there: type[SecureVFLError], elsewhere: type[SecureVFLError]
) -> None:
    async def work(name: str, view: View, channels: Mapping[str, Channel]) -> str:
        if name == "web":
            raise error
        await asyncio.Event().wait()
        return "never"

    async def main() -> None:
        found = await Everybody(work).results()
        assert isinstance(found["web"], there)
        for name in ("bank", "shop"):
            assert isinstance(found[name], elsewhere)
            assert "p0042" not in str(found[name])

    run(main)


def test_who_waits_too_long_can_be_started_again() -> None:
    async def work(name: str, view: View, channels: Mapping[str, Channel]) -> str:
        return "done"

    async def main() -> None:
        hub = MemoryHub(NAMES)
        hub.crash("web")

        async def program(view: View, channels: Mapping[str, Channel]) -> str:
            return "never"

        runner = PartyRunner(hub["bank"], Attempts(hub["bank"].incarnation), program, patience=Timeouts(gather=0.1))
        with pytest.raises(Parked, match=r"web \(a connection\)") as caught:
            await runner.run()
        assert caught.value.exit_code == 75

    run(main)


def test_who_is_told_to_end_parks_the_others_and_comes_back() -> None:
    middle = asyncio.Event()

    async def work(name: str, view: View, channels: Mapping[str, Channel]) -> str:
        if view.attempt == 1:
            middle.set()
            await asyncio.Event().wait()
        await _talk(name, channels)
        return "done"

    async def main() -> None:
        all_of_them = Everybody(work)
        await middle.wait()
        all_of_them.runners["shop"].stop()
        with pytest.raises(Parked):
            await all_of_them.tasks["shop"]
        all_of_them.hub.crash("shop")
        all_of_them.hub.start("shop")
        all_of_them.start("shop")
        assert set((await all_of_them.results()).values()) == {"done"}

    run(main)


@pytest.mark.parametrize(
    ("error", "kind", "words", "code"),
    [
        (ProtocolError("p0042", party="web"), ProtocolError, "'shop' ended the job: it reports that 'web' sent", 5),
        (ProtocolError("'web' sent p0042"), ProtocolError, "it reports that 'web' sent what the protocol", 5),
        (ProtocolError("p0042"), ProtocolError, "it reports that a peer sent what the protocol", 5),
        (ProtocolError("p0042", party="p0042"), ProtocolError, "it reports that a peer sent", 5),
        (PeerSilent("p0042", party="web"), PeerSilent, "it had no sign of life from 'web' for too long", 75),
        (PeerRefused("revoked", "'web' p0042"), PeerRefused, "it refused 'web', or was refused by it", 3),
    ],
)
def test_third_parties_learn_who_is_at_fault_and_not_who_told_them(
    error: SecureVFLError, kind: type[SecureVFLError], words: str, code: int
) -> None:
    async def work(name: str, view: View, channels: Mapping[str, Channel]) -> str:
        if name == "shop":
            raise error
        await asyncio.Event().wait()
        return "never"

    async def main() -> None:
        found = await Everybody(work).results()
        assert type(found["bank"]) is kind
        assert words in str(found["bank"])
        assert "p0042" not in str(found["bank"])
        assert found["bank"].exit_code == code
        assert words.replace("'web'", "this party") in str(found["web"])

    run(main)


@pytest.mark.parametrize("fault", [OSError(errno.ENOSPC, "No space left on device"), "nested"])
def test_a_full_disk_ends_one_process_and_not_the_job(fault: Any) -> None:
    """The victim is started again when there is room; nobody else ends, and all go on."""
    full = asyncio.Event()

    async def work(name: str, view: View, channels: Mapping[str, Channel]) -> str:
        if name == "web" and view.attempt == 1:
            full.set()
            if fault == "nested":
                try:
                    raise OSError(errno.EDQUOT, "Disk quota exceeded")
                except OSError:
                    raise InputError("the folder cannot be written (Disk quota exceeded)") from None
            raise fault
        await _talk(name, channels)
        return "done"

    async def main() -> None:
        all_of_them = Everybody(work)
        await full.wait()
        with pytest.raises(MachineFault, match=r"'web' cannot go on here: .*start the party again") as caught:
            await all_of_them.tasks["web"]
        assert exit_code_of(caught.value) == 75
        all_of_them.kill("web")
        assert not all_of_them.tasks["bank"].done()
        all_of_them.hub.start("web")
        all_of_them.start("web")
        assert set((await all_of_them.results()).values()) == {"done"}

    run(main)
