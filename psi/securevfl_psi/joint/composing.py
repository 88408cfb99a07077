"""Joint run two parties at a time: the active party intersects with each passive one and composes the results.

The active party learns each pairwise intersection. A passive party learns the rows common to all and, if the active
party has a label book, its rows in that book; the active party proves each of them. With one passive party and no label
book both learn the same, so the smaller set asks. Otherwise the active party asks, because the asking party learns the
pairwise intersection. With salted hashes the active party compares, so passive parties send their digests.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from securevfl_psi.choosing import Choice, choose_protocol
from securevfl_psi.conversations.asking import Answering, Asking
from securevfl_psi.conversations.encoding import Decoding, Encoding
from securevfl_psi.conversations.hashing import DigestReceiver, DigestSender
from securevfl_psi.conversations.publishing import LookupClient, LookupParameters, LookupServer
from securevfl_psi.conversations.scripts import Incoming, Outgoing
from securevfl_psi.dh import DHClient, DHServer
from securevfl_psi.errors import MalformedError
from securevfl_psi.joint.state import State
from securevfl_psi.oblivious import OTClient as TransferClient
from securevfl_psi.oblivious import OTServer as TransferServer
from securevfl_psi.salted_hash import UnsafeSaltedHash
from securevfl_psi.session import Session

__all__ = ["ComposingActive", "ComposingPassive", "choose_pair_protocol"]

_Part = Answering | Asking | DigestReceiver | Decoding | Encoding | LookupClient | LookupServer | DigestSender
_COMPARES = Asking | DigestReceiver | Encoding | LookupClient
_MOST_WAITING = 4
"""Chunks of a peer's points that may wait for their answers: 4 MiB."""


def choose_pair_protocol(state: State, passive: str) -> Choice:
    """Choose the protocol of the active party and one passive party, by the terms and, for ``auto``, both sizes."""
    active = state.terms.active
    sizes = {**state.sizes, state.terms.name: len(state.ids)}
    asks, answers = active, passive
    if _passive_asks(state, sizes[active], sizes[passive]):
        asks, answers = passive, active
    if state.terms.protocol == "auto":
        if not {asks, answers} <= state.speeds.keys():
            raise MalformedError(f"the peer of {state.terms.name!r} told no speed of its machine, which 'auto' weighs")
        speeds = state.speeds[asks], state.speeds[answers]
        return choose_protocol(sizes[asks], sizes[answers], state.terms.link, speeds=speeds)
    return Choice(state.terms.protocol, "the terms name it")


def _pairwise_session(state: State, passive: str, protocol: str) -> Session:
    circle = state.circle
    return Session(
        names=(circle.leader, passive), nonce=circle.nonce, rules_tag=circle.rules_tag, protocol=f"joint {protocol}"
    )


def _lookup_conversation(state: State, passive: str, protocol: str, *, asks: bool) -> LookupParameters:
    server, client = passive, state.terms.active
    if asks == (state.terms.name == passive):
        server, client = client, server
    rules = state.terms.rules.tag()

    def make_session(nonce: bytes) -> Session:
        return Session(names=(server, client), nonce=nonce, rules_tag=rules, protocol=f"joint {protocol}, published")

    tag = _pairwise_session(state, passive, protocol).dst
    return LookupParameters(
        session=make_session, tag=tag, most=state.terms.max_set_size, by=state.by, shelf=state.terms.shelf
    )


def _passive_asks(state: State, active_rows: int, passive_rows: int) -> bool:
    alone = len(state.terms.passive) == 1 and not state.labelled_run
    return alone and passive_rows < active_rows and state.terms.protocol != "unsafe_salted_hash"


def _make_asking(
    state: State, passive: str, peer_size: int, found: Callable[[np.ndarray], None]
) -> Asking | Encoding | DigestReceiver | LookupClient:
    protocol, limit = choose_pair_protocol(state, passive).protocol, state.terms.max_set_size
    session = _pairwise_session(state, passive, protocol)
    if protocol == "ot":
        path = None if state.by is None else state.by.name
        return Encoding(TransferClient(state.ids, session, peer_size, max_set_size=limit, path=path), peer_size, found)
    if protocol == "unsafe_salted_hash":
        return DigestReceiver(UnsafeSaltedHash(state.ids, session.dst, max_set_size=limit), peer_size, found)
    if protocol == "unbalanced":
        return LookupClient(state.ids, _lookup_conversation(state, passive, protocol, asks=True), peer_size, found)
    return Asking(DHClient(state.ids, session, max_set_size=limit, by=state.by), peer_size, found)


def _make_answering(
    state: State, passive: str, peer_size: int, lists: int, found: Callable[[list[np.ndarray]], None]
) -> Answering | Decoding | LookupServer | DigestSender:
    protocol, limit = choose_pair_protocol(state, passive).protocol, state.terms.max_set_size
    session = _pairwise_session(state, passive, protocol)
    if protocol == "ot":
        path = None if state.by is None else state.by.name
        server = TransferServer(state.ids, session, peer_size, max_set_size=limit, path=path)
        return Decoding(server, peer_size, lists, found)
    if protocol == "unsafe_salted_hash":
        return DigestSender(UnsafeSaltedHash(state.ids, session.dst, max_set_size=limit), len(state.ids), lists, found)
    if protocol == "unbalanced":
        how = _lookup_conversation(state, passive, protocol, asks=False)
        return LookupServer(state.ids, how, peer_size, lists, found)
    server_dh = DHServer(state.ids, session, max_set_size=limit, by=state.by)
    return Answering(server_dh, peer_size, lists, found, most_waiting=_MOST_WAITING)


class ComposingActive:
    """The active party's part."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._found: dict[str, np.ndarray] = {}
        self._parts: dict[str, _Part] = {}
        for name in state.terms.passive:
            size = state.sizes[name]
            if _passive_asks(state, len(state.ids), size):
                self._parts[name] = _make_answering(state, name, size, 1, partial(self._handle_proven, name))
            else:
                self._parts[name] = _make_asking(state, name, size, partial(self._handle_matched, name))

    def send_script(self, peer: str) -> Outgoing:
        """To a passive party."""
        return self._parts[peer].send_script()

    def receive_script(self, peer: str) -> Incoming:
        """From a passive party."""
        return self._parts[peer].receive_script()

    def is_busy(self, peer: str) -> bool:
        """See `Joint.is_busy`."""
        part = self._parts[peer]
        return isinstance(part, LookupServer) and part.busy

    def _handle_proven(self, name: str, lists: list[np.ndarray]) -> None:
        (rows,) = lists
        self._state.pairwise[name] = len(rows)
        self._state.accept_rows(rows)

    def _handle_matched(self, name: str, rows: np.ndarray) -> None:
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
        state.accept_rows(state.order(np.flatnonzero(common)))
        taken = common.copy()
        taken[state.held_out] = True
        for one, part in self._parts.items():
            lists = [state.accepted_rows]
            if state.labelled_run:
                state.labelled[one] = state.order(np.flatnonzero(held[one] & ~taken))
                lists.append(state.labelled[one])
            if isinstance(part, _COMPARES):
                part.proving.lists = lists


class ComposingPassive:
    """A passive party's part; with other passive parties it has nothing to do here."""

    def __init__(self, state: State) -> None:
        self._state = state
        active, name = state.terms.active, state.terms.name
        size = state.sizes[active]
        self._part: _Part
        if _passive_asks(state, size, len(state.ids)):
            self._part = _make_asking(state, name, size, self._handle_matched)
        else:
            self._part = _make_answering(state, name, size, 2 if state.labelled_run else 1, self._handle_proven)

    def send_script(self, peer: str) -> Outgoing:
        """To the active party."""
        return self._part.send_script() if peer == self._state.terms.active else iter(())

    def receive_script(self, peer: str) -> Incoming:
        """From the active party."""
        if peer == self._state.terms.active:
            yield from self._part.receive_script()

    def is_busy(self, peer: str) -> bool:
        """See `Joint.is_busy`."""
        return peer == self._state.terms.active and isinstance(self._part, LookupServer) and self._part.busy

    def _handle_matched(self, rows: np.ndarray) -> None:
        self._state.accept_rows(self._state.order(rows))
        if isinstance(self._part, _COMPARES):
            self._part.proving.lists = [self._state.accepted_rows]

    def _handle_proven(self, lists: list[np.ndarray]) -> None:
        rows, *labelled = lists
        if labelled and len(labelled[0]):
            self._state.labelled[self._state.terms.name] = labelled[0]
        self._state.accept_rows(rows)
