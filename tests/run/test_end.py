"""The end of a run: lost notes, parties killed as they finish, stragglers, and goodbyes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import pytest

from securevfl.errors import Parked, PeerRefused
from securevfl.party.attempts import Attempts
from securevfl.party.reports import View
from securevfl.run import runner as module
from securevfl.run.events import RunEvents
from securevfl.run.runner import PartyRunner
from securevfl.run.timeouts import Timeouts
from securevfl.transport import Channel, ConnectionRefused, MemoryHub, Scalar

NAMES = ("bank", "shop", "web")
LIMIT = 120.0
"""Seconds that no test needs, so that a loaded machine passes."""
FINISHED = b"\x02"


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_LOOK", 0.02)
    monkeypatch.setattr(module, "_REPEAT", 0.05)


class Heard(RunEvents):
    """What happened, in words."""

    def __init__(self) -> None:
        self.words: list[str] = []
        self.names: list[str] = []

    def report_event(self, what: str, words: str, **values: Scalar) -> None:
        self.names.append(what)
        self.words.append(words)


class World:
    """Parties over one hub. Each keeps its `Attempts` over a restart, as a state folder does; `lost` swallows notes."""

    def __init__(self, names: tuple[str, ...] = NAMES, *, stay: float = LIMIT) -> None:
        self.hub = MemoryHub(names)
        self.kept = {name: Attempts(self.hub[name].incarnation) for name in names}
        self.heard = {name: Heard() for name in names}
        self.runs: dict[str, int] = dict.fromkeys(names, 0)
        self.lost: Callable[[str, str, bytes], bool] = lambda sender, receiver, payload: False
        self.patience = Timeouts(stay=stay)
        self.runners: dict[str, PartyRunner[str]] = {}
        self.tasks: dict[str, asyncio.Task[str | None]] = {}

    def start(self, *names: str) -> None:
        for name in names:
            mesh = self.hub[name]
            send = mesh.send_note

            async def send_or_lose(peer: str, payload: bytes, name: str = name, send: Any = send) -> None:
                if not self.lost(name, peer, payload):
                    await send(peer, payload)

            mesh.send_note = send_or_lose  # type: ignore[method-assign]
            self.kept[name].incarnation = mesh.incarnation
            self.runners[name] = PartyRunner(
                mesh, self.kept[name], self._program(name), patience=self.patience, news=self.heard[name]
            )
            self.tasks[name] = asyncio.ensure_future(self.runners[name].run())

    def _program(self, name: str) -> Callable[[View, Mapping[str, Channel]], Awaitable[str]]:
        async def work(view: View, channels: Mapping[str, Channel]) -> str:
            self.runs[name] += 1
            return f"{name}'s result"

        return work

    def kill(self, name: str) -> None:
        """End a party without a word."""
        self.hub.crash(name)
        self.tasks.pop(name).cancel()

    def start_again(self, name: str) -> None:
        self.hub.start(name)
        self.start(name)

    async def until(self, name: str, what: str) -> None:
        while what not in self.heard[name].names:  # noqa: ASYNC110
            await asyncio.sleep(0.005)

    async def results(self) -> dict[str, Any]:
        found = await asyncio.gather(*self.tasks.values(), return_exceptions=True)
        return dict(zip(self.tasks, found, strict=True))


def run(main: Callable[[], Awaitable[None]]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(LIMIT):
            await main()

    asyncio.run(limited())


def test_a_lost_note_is_replaced_by_the_word_of_a_third_party() -> None:
    async def main() -> None:
        world = World()
        world.lost = lambda sender, receiver, payload: payload[:1] == FINISHED and {sender, receiver} == {"bank", "web"}
        world.start(*NAMES)
        # The two never confirm each other directly, so a goodbye must do where the statement came over the third.
        await asyncio.wait({world.tasks["shop"]})
        world.lost = lambda *_: False
        assert await world.results() == {name: f"{name}'s result" for name in NAMES}
        assert all(runner.is_complete for runner in world.runners.values())

    run(main)


def test_the_first_lost_note_is_sent_again() -> None:
    swallowed: list[str] = []

    def lose_first(sender: str, receiver: str, payload: bytes) -> bool:
        lost = payload[:1] == FINISHED and f"{sender}-{receiver}" not in swallowed
        if lost:
            swallowed.append(f"{sender}-{receiver}")
        return lost

    async def main() -> None:
        world = World(("bank", "shop"))
        world.lost = lose_first
        world.start("bank", "shop")
        assert await world.results() == {"bank": "bank's result", "shop": "shop's result"}
        assert set(swallowed) == {"bank-shop", "shop-bank"}

    run(main)


def test_a_goodbye_implies_the_end() -> None:
    """Every statement of the bank is lost; it stays as long as it said, then leaves, and the shop need not wait."""

    async def main() -> None:
        world = World(("bank", "shop"), stay=0.3)
        world.lost = lambda sender, receiver, payload: payload[:1] == FINISHED and sender == "bank"
        world.start("bank")
        world.patience = Timeouts(stay=LIMIT)
        world.start("shop")
        assert await world.results() == {"bank": "bank's result", "shop": "shop's result"}
        assert world.runners["bank"].unconfirmed == ("shop",)
        assert world.runners["shop"].is_complete
        assert world.runners["shop"].unconfirmed == ()

    run(main)


@pytest.mark.parametrize("killed", [("web",), ("bank", "web"), NAMES])
def test_who_was_killed_after_its_statement_ends_without_training_again(killed: tuple[str, ...]) -> None:
    async def main() -> None:
        world = World()
        # Nothing of the end reaches anybody before they die.
        world.lost = lambda sender, receiver, payload: payload[:1] == FINISHED and sender in killed
        world.start(*NAMES)
        await asyncio.gather(*(world.until(name, "finished") for name in NAMES))
        for name in killed:
            world.kill(name)
        world.lost = lambda *_: False
        for name in killed:
            world.start_again(name)
        found = await world.results()
        assert found == {name: None if name in killed else f"{name}'s result" for name in NAMES}
        assert all(runner.is_complete and not runner.unconfirmed for runner in world.runners.values())
        assert set(world.runs.values()) == {1}

    run(main)


def test_a_straggler_is_answered_by_who_still_stays() -> None:
    async def main() -> None:
        world = World()
        world.lost = lambda sender, receiver, payload: payload[:1] == FINISHED and receiver == "web"
        world.start(*NAMES)
        await asyncio.gather(*(world.until(name, "finished") for name in NAMES))
        world.kill("web")
        while not world.runners["bank"].is_complete or not world.runners["shop"].is_complete:  # noqa: ASYNC110
            await asyncio.sleep(0.005)
        world.kill("shop")  # the bank alone has to answer, also for the shop
        world.lost = lambda *_: False
        assert not world.tasks["bank"].done()
        world.start_again("web")
        while not world.runners["web"].is_complete:  # noqa: ASYNC110
            await asyncio.sleep(0.005)
        world.start_again("shop")
        assert await world.results() == {"bank": "bank's result", "web": None, "shop": None}
        assert set(world.runs.values()) == {1}

    run(main)


def test_who_stayed_long_enough_leaves_and_names_who_is_missing() -> None:
    async def main() -> None:
        world = World(stay=0.3)
        world.lost = lambda sender, receiver, payload: payload[:1] == FINISHED and sender == "web"
        world.start(*NAMES)
        await asyncio.gather(*(world.until(name, "finished") for name in NAMES))
        world.kill("web")
        found = await world.results()
        assert found == {"bank": "bank's result", "shop": "shop's result"}
        assert "web" in world.runners["bank"].unconfirmed
        assert not world.runners["bank"].is_complete
        assert any("staying 0 s for: " in words and "web" in words for words in world.heard["bank"].words)

    run(main)


def test_a_peer_that_comes_and_goes_holds_nobody_for_ever() -> None:
    """It confirms nothing, and each of its arrivals begins the stated time anew, six times in all."""

    async def main() -> None:
        world = World(("bank", "shop"), stay=0.4)
        world.lost = lambda sender, receiver, payload: payload[:1] == FINISHED and sender == "shop"
        world.start("bank", "shop")
        await asyncio.gather(*(world.until(name, "finished") for name in ("bank", "shop")))

        async def come_and_go() -> None:
            while True:
                world.kill("shop")
                world.start_again("shop")
                await asyncio.sleep(0.1)

        flapping = asyncio.create_task(come_and_go())
        try:
            assert await asyncio.wait_for(asyncio.shield(world.tasks["bank"]), 20) == "bank's result"
        finally:
            flapping.cancel()
            world.kill("shop")
        assert world.runners["bank"].unconfirmed == ("shop",)

    run(main)


def test_who_reported_that_it_must_train_again_is_waited_for_beyond_the_stay() -> None:
    async def main() -> None:
        world = World(stay=0.5)
        world.lost = lambda sender, receiver, payload: payload[:1] == FINISHED and sender == "web"
        world.start(*NAMES)
        await asyncio.gather(*(world.until(name, "finished") for name in NAMES))
        world.kill("web")
        world.kill("shop")
        world.kept["web"] = Attempts(world.hub["web"].incarnation)  # it had not stored its end
        world.kept["web"].agreed = world.kept["web"].begun = 1
        world.lost = lambda *_: False
        world.start_again("web")
        await asyncio.sleep(1.0)
        assert not world.tasks["bank"].done()
        world.start_again("shop")
        assert await world.results() == {name: f"{name}'s result" for name in ("bank", "web", "shop")}
        assert set(world.runs.values()) == {2}

    run(main)


def test_who_is_stopped_while_it_stays_is_done_once_all_have_finished() -> None:
    async def main() -> None:
        world = World(("bank", "shop"))
        world.lost = lambda sender, receiver, payload: payload[:1] == FINISHED and receiver == "shop"
        world.start("bank", "shop")
        while not world.runners["bank"].is_complete:  # noqa: ASYNC110
            await asyncio.sleep(0.005)
        world.runners["shop"].stop()
        with pytest.raises(Parked):
            await world.tasks["shop"]
        world.runners["bank"].stop()
        assert await world.tasks["bank"] == "bank's result"

    run(main)


def test_a_party_says_once_for_whom_it_stays() -> None:
    async def main() -> None:
        world = World()
        world.start(*NAMES)
        await world.results()
        for heard in world.heard.values():
            stays = [words for words in heard.words if "staying" in words]
            assert len(stays) == len(set(stays)) > 0

    run(main)


def test_a_refusal_that_ends_a_party_names_the_peer() -> None:
    async def main() -> None:
        world = World(("bank", "shop"))
        world.patience = Timeouts(gather=1.5)
        world.start("bank")
        await asyncio.sleep(0.05)
        world.hub["bank"].put_event(ConnectionRefused("shop", "revoked", "its certificate is on the list"))
        found = (await world.results())["bank"]
        assert isinstance(found, PeerRefused)
        assert "'shop'" in str(found)
        assert found.exit_code == 3

    run(main)
