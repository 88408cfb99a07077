"""A prediction whose partner is restarted in the middle asks again, and only about what was not answered."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import numpy as np
import pytest

from securevfl.serving.active import ServeActive
from securevfl.serving.process_tasks import _ask_rest, _repeat
from securevfl.serving.questions import BrokenOff, Outcome, Unavailable


class Server:
    """Answers half of a question, then its partner is restarted, as often as it is told."""

    def __init__(self, breaks: int) -> None:
        self.breaks = breaks
        self.asked: list[list[str]] = []
        self.answered: dict[str, np.ndarray] = {}
        self.sessions = 1

    def held_answers(self, names: Sequence[str]) -> dict[str, tuple[np.ndarray, bool]]:
        return {name: (self.answered[name], False) for name in names if name in self.answered}

    async def scores(self, names: Sequence[str], *, again: bool) -> list[Outcome]:
        assert again
        self.asked.append(list(names))
        done = names[: len(names) // 2] if self.breaks else names
        self.answered |= {name: np.array([1.0]) for name in done}
        if self.breaks:
            self.breaks -= 1
            raise BrokenOff("'shop' was restarted; ask again")
        return [self.answered[name] for name in names]

    async def wait_for_session(self) -> None:
        self.sessions += 1


def _ask(server: Server, *, anew: bool = False) -> dict[str, Outcome]:
    fake: ServeActive = server  # type: ignore[assignment]
    return asyncio.run(_repeat(fake, lambda: _ask_rest(fake, list("abcd"), anew=anew)))


def test_only_what_was_not_answered_is_asked_again() -> None:
    server = Server(breaks=2)
    assert set(_ask(server)) == set("abcd")
    assert server.asked == [list("abcd"), list("cd"), list("d")]
    assert server.sessions == 3


def test_who_asks_anew_takes_no_held_answer() -> None:
    server = Server(breaks=1)
    assert set(_ask(server, anew=True)) == set("abcd")
    assert server.asked == [list("abcd")] * 2


def test_it_ends_if_partners_are_restarted_for_ever_or_stay_away() -> None:
    server = Server(breaks=10**6)
    with pytest.raises(BrokenOff):
        _ask(server, anew=True)
    assert len(server.asked) == 11

    class Away(Server):
        async def scores(self, names: Sequence[str], *, again: bool) -> list[Outcome]:
            raise Unavailable("not connected: shop")

    with pytest.raises(Unavailable, match="not connected"):
        _ask(Away(0))
