"""Events that a party's runner reports to its own user and tools. They never contain a value of anybody's data."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from securevfl_net.link_state import LinkState

from securevfl.transport import Scalar

__all__ = ["RunEvents", "SeveralReceivers"]


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
