"""What a party's runner tells the people and the tools at its own side: never a value of anybody's data."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from securevfl_net.link_state import LinkState

from securevfl.transport import Scalar

__all__ = ["News", "Several"]


class News:
    """Hears what happens to a party's run; the base class stays silent."""

    def happened(self, what: str, words: str, **values: Scalar) -> None:
        """Something happened.

        Args:
            what: its name, for tools: ``"up"``, ``"down"``, ``"refused"``, ``"waits"``, ``"attempt"``, ``"parked"``,
                ``"finished"``, ``"ended"``, ``"rotated"``.
            words: the same for people.
            values: its details.
        """

    def look(self, links: Mapping[str, LinkState]) -> None:
        """How the connections are, about each second.

        Args:
            links: peer → the state of its connection.
        """


class Several(News):
    """Tells several.

    Args:
        hearers: in their order.
    """

    def __init__(self, hearers: Iterable[News]) -> None:
        self._hearers = tuple(hearers)

    def happened(self, what: str, words: str, **values: Scalar) -> None:
        for one in self._hearers:
            one.happened(what, words, **values)

    def look(self, links: Mapping[str, LinkState]) -> None:
        for one in self._hearers:
            one.look(links)
