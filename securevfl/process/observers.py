"""Combine several observers of one party's program."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal

from securevfl.party_context import Observer
from securevfl.transport import Kind

__all__ = ["SeveralObservers"]


class SeveralObservers(Observer):
    """Forward progress events to each observer; what the party sees of its peers' data goes to none of them.

    Args:
        observers: in their order.
    """

    accounting = True

    def __init__(self, observers: Iterable[Observer]) -> None:
        self._observers = tuple(observers)
        self._counting = tuple(one for one in self._observers if one.counting)
        self.counting = bool(self._counting)

    def run(self, title: str) -> None:
        for one in self._observers:
            one.run(title)

    def end(self) -> None:
        for one in self._observers:
            one.end()

    def phase(self, name: str) -> None:
        for one in self._observers:
            one.phase(name)

    def step(self, epoch: int, done: int, total: int) -> None:
        for one in self._observers:
            one.step(epoch, done, total)

    def epoch(self, epoch: int, loss: float, valid: dict[str, float]) -> None:
        for one in self._observers:
            one.epoch(epoch, loss, valid)

    def epsilon_spent(self, party: str, epsilon: Mapping[str, float]) -> None:
        for one in self._observers:
            one.epsilon_spent(party, epsilon)

    def message_counted(self, peer: str, way: Literal["sent", "received"], kind: Kind) -> None:
        for one in self._counting:
            one.message_counted(peer, way, kind)
