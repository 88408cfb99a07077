"""Events that a party's runner reports to its own user and tools. They never contain a value of anybody's data."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from securevfl_net.link_state import LinkState

from securevfl.transport import Scalar

__all__ = ["BoundsLeft", "RunEvents", "SeveralReceivers"]


@dataclass(frozen=True, kw_only=True)
class BoundsLeft:
    """What is left of a party's bounds. Times are seconds since 1970, UTC.

    Attributes:
        certificates: party → when its certificate ends, this party's own among them.
        lists: peer → until when the revocation list of its authority is valid.
        agreement: when the agreement ends.
        attempts: how many more may begin.
        seconds: how many more may be spent in attempts.
        epsilon: largest ε that each of the party's releases may reach; None for no bound.
        results: asker, a party → numbers that it may still be answered about the person of whom it has most.
        metric_sets: asker, a party → sets of validation metrics that were opened to it, over all jobs.
        disk: free bytes of the disk with the state folder, and all its bytes.
    """

    certificates: Mapping[str, float] = field(default_factory=dict)
    lists: Mapping[str, float] = field(default_factory=dict)
    agreement: float = math.inf
    attempts: int = 0
    seconds: float = 0.0
    epsilon: float | None = None
    results: Mapping[str, int] = field(default_factory=dict)
    metric_sets: Mapping[str, int] = field(default_factory=dict)
    disk: tuple[int, int] = (0, 0)


class RunEvents:
    """Callbacks for what happens in a party's run; the base class ignores every event."""

    def report_event(self, what: str, words: str, **values: Scalar) -> None:
        """Something happened.

        Args:
            what: its name, for tools: ``"up"``, ``"down"``, ``"refused"``, ``"waits"``, ``"attempt"``, ``"parked"``,
                ``"finished"``, ``"ended"``, ``"rotated"``.
            words: the same for people.
            values: its details.
        """

    def links_changed(self, links: Mapping[str, LinkState]) -> None:
        """Receive the state of all connections, about once a second.

        Args:
            links: peer → the state of its connection.
        """

    def bounds_changed(self, left: BoundsLeft) -> None:
        """Receive what is left of the party's bounds, about once a minute.

        Args:
            left: it.
        """

    def batch_served(self, seconds: float) -> None:
        """A server took part in scoring a batch.

        Args:
            seconds: from its first message to its answers.
        """


class SeveralReceivers(RunEvents):
    """Forward every event to several receivers.

    Args:
        hearers: in their order.
    """

    def __init__(self, hearers: Iterable[RunEvents]) -> None:
        self._hearers = tuple(hearers)

    def report_event(self, what: str, words: str, **values: Scalar) -> None:
        for one in self._hearers:
            one.report_event(what, words, **values)

    def links_changed(self, links: Mapping[str, LinkState]) -> None:
        for one in self._hearers:
            one.links_changed(links)

    def bounds_changed(self, left: BoundsLeft) -> None:
        for one in self._hearers:
            one.bounds_changed(left)

    def batch_served(self, seconds: float) -> None:
        for one in self._hearers:
            one.batch_served(seconds)
