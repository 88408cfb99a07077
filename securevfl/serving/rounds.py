"""Questions on their way to the parties: gathered into batches, answered as soon as all rows have outcomes."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from securevfl.serving.joint import Batch, JointScores
from securevfl.serving.policy import Refusal
from securevfl.serving.questions import Ask, Outcome

__all__ = ["Rounds"]


@dataclass(eq=False)
class _Open:
    """A question that waits for outcomes."""

    ask: Ask
    found: dict[str, Outcome] = field(default_factory=dict)
    missing: int = 0
    started: bool = False


class Rounds:
    """Questions of one session that were taken from the queue.

    A customer about whom the parties are being asked is not asked about twice: all questions get the one outcome.

    Args:
        joint: scores them.
        moved: outcome of customers that are no longer common.
    """

    def __init__(self, joint: JointScores, moved: Refusal) -> None:
        self._joint = joint
        self._moved = moved
        self._batches: deque[Batch] = deque()
        self._waiting: dict[str, list[_Open]] = defaultdict(list)
        self._open: dict[_Open, None] = {}

    def add(self, asks: Iterable[Ask]) -> None:
        """Take questions, and cut the customers that nobody is being asked about into batches."""
        wanted: list[str] = []
        for ask in asks:
            one = _Open(ask)
            self._open[one] = None
            common = [name for name in dict.fromkeys(ask.names) if name in self._joint.at]
            one.found = dict.fromkeys((name for name in ask.names if name not in self._joint.at), self._moved)
            if not ask.again:
                one.found |= {name: held.values for name, held in self._joint.stored_answers(common).items()}
            for name in common:
                if name not in one.found:
                    if name not in self._waiting:
                        wanted.append(name)
                    self._waiting[name].append(one)
                    one.missing += 1
            self._resolve_complete(one)
        self._batches += self._joint.make_batches(wanted)

    def next_batch(self) -> Batch | None:
        """The next batch to score; None if all are scored, or on their way."""
        return self._batches.popleft() if self._batches else None

    def finish(self, batch: Batch) -> None:
        """Give a batch's outcomes to the questions that wait for them."""
        for row in batch.asked:
            name = self._joint.names[row]
            for one in self._waiting.pop(name, ()):
                one.found[name] = batch.found[row]
                one.missing -= 1
                self._resolve_complete(one)

    def fail(self, running: Iterable[Batch], outcome: Exception | Refusal) -> list[Ask]:
        """End all questions about customers of batches that were started; returns the other ones.

        Args:
            running: batches that parties were told of.
            outcome: of the questions that end.
        """
        for batch in running:
            for row in batch.asked if batch.started else ():
                for one in self._waiting.get(self._joint.names[row], ()):
                    one.started = True
        for one in self._open:
            if not one.started or one.ask.done.done():
                continue
            if isinstance(outcome, Exception):
                one.ask.done.set_exception(outcome)
            else:
                one.ask.done.set_result([one.found.get(name, outcome) for name in one.ask.names])
        return [one.ask for one in self._open if not one.ask.done.done()]

    def _resolve_complete(self, one: _Open) -> None:
        if one.missing:
            return
        del self._open[one]
        if not one.ask.done.done():  # its caller still waits
            one.ask.done.set_result([one.found[name] for name in one.ask.names])
