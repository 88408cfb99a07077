"""Two parties at a time: an intersection (2HashDH) of the active party with each passive one, which it composes.

It learns each pairwise intersection. A passive party learns the rows that all hold and, where the active party has a
label book, those of its rows that are in it; each of them is proved to it. With one passive party and no label book
both learn the same, so the smaller set asks; otherwise the active party does, since whoever asks learns the pairwise
intersection.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from securevfl_psi.conversations.asking import Answering, Asking
from securevfl_psi.conversations.scripts import Incoming, Outgoing
from securevfl_psi.dh import Client, Server
from securevfl_psi.joint.state import State
from securevfl_psi.session import Session

__all__ = ["ComposingActive", "ComposingPassive"]

_MOST_WAITING = 4
"""Chunks of a peer's points that may wait for their answers: 4 MiB."""


def _session(state: State, passive: str) -> Session:
    circle = state.circle
    return Session(names=(circle.leader, passive), nonce=circle.nonce, rules_tag=circle.rules_tag, protocol="joint dh")


def _client(state: State, passive: str) -> Client:
    return Client(state.ids, _session(state, passive), max_set_size=state.terms.max_set_size, by=state.by)


def _server(state: State, passive: str) -> Server:
    return Server(state.ids, _session(state, passive), max_set_size=state.terms.max_set_size, by=state.by)


def _passive_asks(state: State, active_rows: int, passive_rows: int) -> bool:
    return len(state.terms.passive) == 1 and not state.labelled_run and passive_rows < active_rows


class ComposingActive:
    """The active party's part."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._found: dict[str, np.ndarray] = {}
        self._parts: dict[str, Asking | Answering] = {}
        for name in state.terms.passive:
            size = state.sizes[name]
            if _passive_asks(state, len(state.ids), size):
                self._parts[name] = Answering(
                    _server(state, name), size, 1, partial(self._proved, name), most_waiting=_MOST_WAITING
                )
            else:
                self._parts[name] = Asking(_client(state, name), size, partial(self._matched, name))

    def sending(self, peer: str) -> Outgoing:
        """To a passive party."""
        return self._parts[peer].sending()

    def hearing(self, peer: str) -> Incoming:
        """From a passive party."""
        return self._parts[peer].hearing()

    def _proved(self, name: str, lists: list[np.ndarray]) -> None:
        (rows,) = lists
        self._state.pairwise[name] = len(rows)
        self._state.accept(rows)

    def _matched(self, name: str, rows: np.ndarray) -> None:
        state = self._state
        self._found[name] = rows
        state.pairwise[name] = len(rows)
        if len(self._found) < len(state.terms.passive):
            return
        held = {}
        for one, numbers in self._found.items():
            held[one] = np.zeros(len(state.ids), dtype=np.bool_)
            held[one][numbers] = True
        common = np.logical_and.reduce(list(held.values()))
        common[state.own :] = False
        state.accept(state.order(np.flatnonzero(common)))
        taken = common.copy()
        taken[state.held_out] = True
        for one, part in self._parts.items():
            lists = [state.accepted]
            if state.labelled_run:
                state.labelled[one] = state.order(np.flatnonzero(held[one] & ~taken))
                lists.append(state.labelled[one])
            if isinstance(part, Asking):
                part.proving.lists = lists


class ComposingPassive:
    """A passive party's part; with other passive parties it has nothing to do here."""

    def __init__(self, state: State) -> None:
        self._state = state
        active, name = state.terms.active, state.terms.name
        size = state.sizes[active]
        self._part: Asking | Answering
        if _passive_asks(state, size, len(state.ids)):
            self._part = Asking(_client(state, name), size, self._matched)
        else:
            lists = 2 if state.labelled_run else 1
            self._part = Answering(_server(state, name), size, lists, self._proved, most_waiting=_MOST_WAITING)

    def sending(self, peer: str) -> Outgoing:
        """To the active party."""
        return self._part.sending() if peer == self._state.terms.active else iter(())

    def hearing(self, peer: str) -> Incoming:
        """From the active party."""
        if peer == self._state.terms.active:
            yield from self._part.hearing()

    def _matched(self, rows: np.ndarray) -> None:
        self._state.accept(self._state.order(rows))
        if isinstance(self._part, Asking):
            self._part.proving.lists = [self._state.accepted]

    def _proved(self, lists: list[np.ndarray]) -> None:
        rows, *labelled = lists
        if labelled and len(labelled[0]):
            self._state.labelled[self._state.terms.name] = labelled[0]
        self._state.accept(rows)
