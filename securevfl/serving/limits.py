"""Limits per client and per customer: a token bucket each, refilled at a steady rate."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from typing import Annotated, Generic, TypeVar

from msgspec import Meta

from securevfl.config import Config

__all__ = ["Buckets", "RequestLimits"]

Key = TypeVar("Key", bound=Hashable)
Rate = Annotated[float, Meta(gt=0, le=1e9)]
Count = Annotated[int, Meta(ge=1, le=1 << 16)]


class RequestLimits(Config):
    """Limits on each client's and each address's requests, and on requests for each customer.

    Attributes:
        client_requests_per_second: requests that one client may send in a second, over time; twice as many at once.
        address_requests_per_second: the same for one network address, before anybody is identified: of a proxy in front
            of the server, all clients of it.
        address_connections: connections that one address may have open.
        connections: connections that all may have open.
        client_rows_per_minute: rows that one client may ask for in a minute, over time.
        client_burst: rows that one client may ask for at once after a pause.
        customer_scores_per_minute: how often a customer may be asked about in a minute, over time, by whomever.
        customer_burst: how often at once after a pause.
    """

    client_requests_per_second: Rate = 100.0
    address_requests_per_second: Rate = 1000.0
    address_connections: Count = 256
    connections: Count = 1024
    client_rows_per_minute: Rate = 6000.0
    client_burst: Rate = 2048.0
    customer_scores_per_minute: Rate = 60.0
    customer_burst: Rate = 20.0

    @classmethod
    def section_path(cls) -> str:
        return "limits"


class Buckets(Generic[Key]):
    """A bucket of tokens for each key.

    Buckets that are full again are forgotten, so that memory is bounded by who asked lately; where `most` are not full,
    the emptiest stay and others go: forgetting one gives its key a full bucket.

    Args:
        rate: tokens a second.
        burst: tokens of a full bucket.
        now: seconds of a clock that never goes back.
        most: buckets to remember.
    """

    def __init__(self, rate: float, burst: float, *, now: Callable[[], float], most: int = 1 << 18) -> None:
        self._rate = rate
        self._burst = burst
        self._now = now
        self._most = most
        self._buckets: dict[Key, tuple[float, float]] = {}

    def seconds_until(self, key: Key, tokens: float = 1.0) -> float:
        """Seconds until `key` has this many tokens; 0 if it has them now, infinite if they exceed its bucket. Takes
        nothing.
        """
        if tokens > self._burst:
            return math.inf
        return max((tokens - self._token_level(key)) / self._rate, 0.0)

    def take(self, key: Key, tokens: float = 1.0) -> float:
        """Take all tokens if available, otherwise none; returns the seconds to wait."""
        wait = self.seconds_until(key, tokens)
        if wait == 0.0:
            if len(self._buckets) >= self._most:
                self._forget_idle()
            self._buckets[key] = (self._token_level(key) - tokens, self._now())
        return wait

    def give_back(self, key: Key, tokens: float = 1.0) -> None:
        """Put tokens back that were taken for nothing."""
        self._buckets[key] = (min(self._token_level(key) + tokens, self._burst), self._now())

    def __len__(self) -> int:
        return len(self._buckets)

    def _token_level(self, key: Key) -> float:
        level, since = self._buckets.get(key, (self._burst, 0.0))
        return min(level + (self._now() - since) * self._rate, self._burst) if key in self._buckets else self._burst

    def _forget_idle(self) -> None:
        levels = {key: self._token_level(key) for key in self._buckets}
        for key, level in levels.items():
            if level >= self._burst:
                del self._buckets[key]
        if len(self._buckets) >= self._most:
            fullest = sorted(self._buckets, key=lambda key: -levels[key])
            for key in fullest[: max(self._most // 8, 1)]:
                del self._buckets[key]
