"""Pending requests: a queue from which batches are collected, and limits on how long a request waits."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from msgspec import Meta

from securevfl.config import Config
from securevfl.errors import InputError, SecureVFLError
from securevfl.serving.policy import MOST_ROWS, Refusal

__all__ = [
    "Ask",
    "Batching",
    "BrokenOff",
    "Check",
    "Command",
    "ModelMismatch",
    "Outcome",
    "Questions",
    "Unavailable",
]

Outcome = np.ndarray | Refusal
"""Of one customer: probabilities, (classes,), or a predicted number, (1,); or the refusal."""


class Batching(Config):
    """How requests are collected into batches, and how long they wait.

    While a batch is scored, all requests that come are collected into the next one.

    Attributes:
        rows: most rows of a batch, but for a request with more.
        milliseconds: how long a batch waits for more requests where none is being scored; 0 sends it at once.
        padded: rows of the fixed groups that are scored as a whole; 0 to score the rows that are asked for alone.
        seconds: most that an answer may take.
        grace: seconds that a peer may be away before questions are refused.
    """

    rows: Annotated[int, Meta(ge=1, le=MOST_ROWS)] = 512
    milliseconds: Annotated[float, Meta(ge=0, le=10_000)] = 0.0
    padded: Annotated[int, Meta(ge=0, le=MOST_ROWS)] = 0
    seconds: Annotated[float, Meta(gt=0, le=3600)] = 30.0
    grace: Annotated[float, Meta(ge=0, le=600)] = 3.0

    @classmethod
    def section_path(cls) -> str:
        return "batches"


class Unavailable(SecureVFLError):
    """Scores are unavailable for now; waiting is all it takes.

    Attributes:
        parties: that are waited for.
        wait: seconds after which it may be asked again.
    """

    def __init__(self, text: str, parties: Sequence[str] = (), wait: float = 1.0) -> None:
        self.parties = tuple(parties)
        self.wait = wait
        super().__init__(text)


class BrokenOff(Unavailable):
    """What was asked was not answered, because the session ended meanwhile: it may be asked again in the next one."""


class ModelMismatch(InputError):
    """Not every party has its part of the model, or its table; what was served stays."""


@dataclass(eq=False)
class Ask:
    """Customers that somebody waits for; `again` to ask the parties even if an answer is kept."""

    names: Sequence[str]
    done: asyncio.Future[list[Outcome]]
    again: bool = False


@dataclass(eq=False)
class Check:
    """Customers of whom somebody asks which would be refused."""

    names: Sequence[str]
    done: asyncio.Future[dict[str, Outcome]]


@dataclass(eq=False)
class Command:
    """A change of model, or of the index."""

    do: str
    run: str
    done: asyncio.Future[str]


Item = Ask | Check | Command


class Questions:
    """The queue of the active party.

    Args:
        batching: how questions are collected.
    """

    def __init__(self, batching: Batching) -> None:
        self.batching = batching
        self._items: deque[Item] = deque()
        self._came = asyncio.Event()
        self._pending: set[asyncio.Future[Any]] = set()

    async def ask(self, names: Sequence[str], *, again: bool = False) -> list[Outcome]:
        """One outcome for each customer.

        Args:
            names: the customers.
            again: whether to ask the parties about those whose answers are kept, too.

        Raises:
            TimeoutError: no outcome came in time.
            Unavailable: see `fail_all`.
        """
        done: asyncio.Future[list[Outcome]] = asyncio.get_running_loop().create_future()
        outcomes: list[Outcome] = await self._await_outcome(Ask(names, done, again))
        return outcomes

    async def find_refusals(self, names: Sequence[str]) -> dict[str, Outcome]:
        """Customer → refusal, of those that would be refused; nobody is scored. Raises the same errors as `ask`."""
        done: asyncio.Future[dict[str, Outcome]] = asyncio.get_running_loop().create_future()
        found: dict[str, Outcome] = await self._await_outcome(Check(names, done))
        return found

    async def run_command(self, do: str, run: str) -> str:
        """Execute a command and return its outcome; raises the same errors as `ask`."""
        return str(await self._await_outcome(Command(do, run, asyncio.get_running_loop().create_future())))

    async def next_question(self) -> Item:
        """The next question or command."""
        while True:
            while self._items:
                item = self._items.popleft()
                if not item.done.done():  # a caller still waits for it
                    return item
            self._came.clear()
            await self._came.wait()

    async def collect_more(self, rows: int) -> list[Ask]:
        """Questions that come within the time of a batch, until there are rows enough.

        Args:
            rows: of the batch so far.
        """
        found = self.take_waiting(rows)
        rows += sum(len(ask.names) for ask in found)
        end = asyncio.get_running_loop().time() + self.batching.milliseconds / 1000
        while self.batching.milliseconds and rows < self.batching.rows and not self._items:
            self._came.clear()
            try:
                async with asyncio.timeout_at(end):
                    await self._came.wait()
            except TimeoutError:
                break
            more = self.take_waiting(rows)
            found += more
            rows += sum(len(ask.names) for ask in more)
        return found

    def take_waiting(self, rows: int = 0) -> list[Ask]:
        """Questions that wait, up to the next command, until there are rows enough for a batch.

        Args:
            rows: of the batch so far.
        """
        found: list[Ask] = []
        while rows < self.batching.rows and self._items and isinstance(item := self._items[0], Ask):
            self._items.popleft()
            if not item.done.done():
                found.append(item)
                rows += len(item.names)
        return found

    def put_back(self, asks: Iterable[Ask]) -> None:
        """Let questions wait for the next session, before all others."""
        self._items.extendleft(reversed(list(asks)))
        self._came.set()

    def fail_all(self, error: Exception) -> None:
        """Fail all waiting requests with this error."""
        for future in self._pending:
            if not future.done():
                future.set_exception(error)

    async def _await_outcome(self, item: Item) -> Any:
        done: asyncio.Future[Any] = item.done
        self._pending.add(done)
        self._items.append(item)
        self._came.set()
        try:
            async with asyncio.timeout(self.batching.seconds):
                return await done
        finally:
            self._pending.discard(done)
            done.cancel()
