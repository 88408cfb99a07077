"""Measure where a party's time goes (computing, homomorphic encryption, waiting) and how much it sends to whom."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

__all__ = ["Clock", "Reading"]


@dataclass(frozen=True, slots=True)
class Reading:
    """Seconds and bytes between two calls of `Clock.lap`."""

    compute: float
    he: float
    wait: float
    sent: dict[str, int] = field(default_factory=dict)
    """peer → bytes"""


class Clock:
    """A party's stopwatch. Time that is neither homomorphic encryption nor waiting counts as computing."""

    __slots__ = ("_he", "_sent", "_start", "_wait")

    def __init__(self) -> None:
        self._reset()

    def _reset(self) -> None:
        self._start = time.perf_counter()
        self._he = 0.0
        self._wait = 0.0
        self._sent: dict[str, int] = {}

    @contextmanager
    def time_encryption(self) -> Iterator[None]:
        """Count the time spent in this context as homomorphic encryption. Do not wait for peers inside it."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self._he += time.perf_counter() - start

    def add_waiting(self, seconds: float) -> None:
        """Count time spent waiting for a peer."""
        self._wait += seconds

    def add_sent(self, peer: str, size: int) -> None:
        """Count bytes sent."""
        self._sent[peer] = self._sent.get(peer, 0) + size

    def lap(self) -> Reading:
        """Return what was counted since the last lap and start the next one."""
        total = time.perf_counter() - self._start
        reading = Reading(max(total - self._he - self._wait, 0.0), self._he, self._wait, self._sent)
        self._reset()
        return reading
