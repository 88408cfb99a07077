"""One party of a joint run: greets all others, follows the plan and compares the common rows."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from securevfl_crypto.engine import Engine

from securevfl_psi.choosing import Choice
from securevfl_psi.circle import Circle
from securevfl_psi.conversations.scripts import Incoming, Outgoing
from securevfl_psi.errors import DisagreementError, PlanRefusedError, PSIError, SetSizeError
from securevfl_psi.identifiers import Identifiers
from securevfl_psi.joint.agreeing import RowComparison
from securevfl_psi.joint.composing import ComposingActive, ComposingPassive, choose_pair_protocol
from securevfl_psi.joint.greeting import PLANS, Greeting
from securevfl_psi.joint.leading import LeadingActive, LeadingPassive
from securevfl_psi.joint.state import JointTerms, Order, State
from securevfl_psi.speed import Speed
from securevfl_psi.wire import Frame, Kind

__all__ = ["Joint", "JointResult", "JointTerms"]

_COMPOSED, _GLOBAL, _TRANSFERS, _EITHER, _HASHED, _PUBLISHED = PLANS
_ALLOWED = {
    "dh": (_COMPOSED, _GLOBAL),
    "ot": (_TRANSFERS,),
    "auto": (_EITHER, _GLOBAL),
    "unsafe_salted_hash": (_HASHED,),
    "unbalanced": (_PUBLISHED,),
}
"""Plans that each protocol of the terms allows; the first is the plan of two parties."""
_NONCE_BYTES = 16


@dataclass(frozen=True, kw_only=True)
class JointResult:
    """One party's result of a joint run.

    Attributes:
        rows: this party's numbers of the common rows, in the order that all share, (n,) int64.
        labelled: passive party → rows common to it and the active party but not to all, in an order that both share: at
            the active party if it has a label book; at a passive party its own row numbers under its own name.
        pairwise: at the active party, passive party → size of their intersection; empty if it does not learn it.
        run: identifies this run: a hexadecimal digest of the agreed parameters (names, nonces, rules, context) and the
            number of common rows, the same at all parties. It reveals nothing about identifiers.
        protocols: passive party → the protocol that ran with it (at a passive party, under its own name), and why;
            empty if all ran the multi-party protocol.
    """

    rows: np.ndarray
    labelled: Mapping[str, np.ndarray]
    pairwise: Mapping[str, int]
    run: str
    protocols: Mapping[str, Choice] = field(default_factory=dict)


class Joint:
    """One party's scripts.

    Args:
        ids: normalised, unique identifiers; at the active party those of its table, then those of its label book.
        terms: its parameters and conditions.
        order: sorts row numbers into the order that all use; must depend on identifiers only.
        allow: raises if too few rows are common; gets their number, each peer's number, and all sizes.
        own: at the active party, how many of `ids` are its table's; all by default.
        held_out: at the active party, rows of the table that are never part of `labelled`.
        by: the engine; by default the fastest.

    Raises:
        SetSizeError: more identifiers than `pad_to`, or `pad_to` above the largest allowed set.
    """

    def __init__(
        self,
        ids: Identifiers,
        terms: JointTerms,
        *,
        order: Order,
        allow: Callable[[int, Mapping[str, int], Mapping[str, int]], None],
        own: int | None = None,
        held_out: Sequence[int] | np.ndarray = (),
        by: Engine | None = None,
    ) -> None:
        self.terms = terms
        self._ids, self._order, self._allow, self._by = _pad_identifiers(ids, terms), order, allow, by
        self._own = len(ids) if own is None else own
        self._labelled = self._own < len(ids)
        self._chosen: dict[str, Choice] = {}
        self._held_out = np.asarray(held_out, dtype=np.int64)
        self._nonce = secrets.token_bytes(_NONCE_BYTES)
        self._heard: dict[str, Greeting] = {}
        self._state: State | None = None
        self._plan: ComposingActive | ComposingPassive | LeadingActive | LeadingPassive | None = None
        self._ended: set[str] = set()

    @property
    def is_active(self) -> bool:
        """Whether this is the active party."""
        return self.terms.name == self.terms.active

    @property
    def result(self) -> JointResult:
        """The run's result for this party.

        Raises:
            PSIError: not all scripts have ended.
        """
        state = self._state
        if state is None or self._ended != set(self.terms.peers):
            raise PSIError("there is no result yet")
        named = b"securevfl-psi run" + state.circle.dst + len(state.accepted_rows).to_bytes(8, "big")
        return JointResult(
            rows=state.accepted_rows,
            labelled=state.labelled,
            pairwise=state.pairwise,
            run=hashlib.sha256(named).hexdigest(),
            protocols=dict(self._chosen),
        )

    def protocol_with(self, peer: str) -> str:
        """The protocol with a peer: ``"dh"``, ``"ot"``, ``"unbalanced"`` or ``"unsafe_salted_hash"``; ``""`` for the
        multi-party protocol, and before both parties know."""
        passive = peer if self.is_active else self.terms.name
        return self._chosen[passive].protocol if passive in self._chosen else ""

    def is_busy(self, peer: str) -> bool:
        """Whether `send_script` yielded None only to let other scripts run during a long computation."""
        return isinstance(self._plan, ComposingActive | ComposingPassive) and self._plan.is_busy(peer)

    def send_script(self, peer: str) -> Outgoing:
        """The script of frames for one peer."""
        while (greeting := self._make_greeting(peer)) is None:
            yield None
        yield Frame(Kind.HELLO, greeting.to_bytes())
        while self._state is None or self._plan is None:
            yield None
        yield from self._plan.send_script(peer)
        if self._state.agreeing is not None:
            yield from self._state.agreeing.send_script(peer)

    def receive_script(self, peer: str) -> Incoming:
        """The script of frames from one peer."""
        frame = yield Kind.HELLO
        self._take_greeting(peer, frame.payload)
        while self._state is None or self._plan is None:
            yield None
        yield from self._plan.receive_script(peer)
        if self._state.agreeing is not None:
            yield from self._state.agreeing.receive_script(peer)
        self._ended.add(peer)

    def _find_plan(self) -> tuple[str, bool] | None:
        """The plan, and whether there is a label book. The active party decides; its greeting informs the others."""
        if self.is_active:
            plans = _ALLOWED[self.terms.protocol]
            together = len(self.terms.passive) > 1 and not self._labelled and _GLOBAL in plans
            return (_GLOBAL if together else plans[0]), self._labelled
        heard = self._heard.get(self.terms.active)
        return None if heard is None else (heard.plan, heard.labelled)

    def _make_greeting(self, peer: str) -> Greeting | None:
        planned = self._find_plan()
        if planned is None:
            return None
        return Greeting(
            name=self.terms.name,
            plan=planned[0],
            rules=self.terms.rules.tag(),
            context=self.terms.context,
            labelled=planned[1],
            nonce=self._nonce,
            rows=len(self._ids) if self.is_active or peer == self.terms.active else None,
            speed=self.terms.read_speed() if self._tells_speed(planned[0], peer) else None,
        )

    def _tells_speed(self, plan: str, peer: str) -> bool:
        """Whether the pair of this party and a peer chooses its protocol by both speeds."""
        return self.terms.protocol == "auto" and plan != _GLOBAL and (self.is_active or peer == self.terms.active)

    def _take_greeting(self, peer: str, data: bytes) -> None:
        expected = {"rules": self.terms.rules.tag(), "context": self.terms.context}
        most = self.terms.max_set_size if self.is_active or peer == self.terms.active else None
        greeting = Greeting.from_bytes(data, peer, expected, most=most)
        several = len(self.terms.passive) > 1
        if greeting.plan not in _ALLOWED[self.terms.protocol]:
            raise DisagreementError(
                f"{peer!r} plans {greeting.plan!r}, but this party's terms name {self.terms.protocol!r}: use one job"
            )
        if peer == self.terms.active and several and greeting.plan != _GLOBAL and not self.terms.pairwise:
            raise PlanRefusedError(
                f"{peer!r} would learn the pairwise intersection with {self.terms.name!r}, which the policy forbids; "
                "align without a label book and by 'dh' or 'auto', or set pairwise_intersections"
            )
        self._heard[peer] = greeting
        planned = self._find_plan()
        if planned is None or len(self._heard) < len(self.terms.peers):
            return
        for one in self._heard.values():
            if (one.plan, one.labelled) != planned:
                raise DisagreementError(f"{one.name!r} plans {one.plan!r}, not {planned[0]!r}: use one job")
        self._begin_run(*planned)

    def _told_speeds(self, plan: str) -> dict[str, Speed]:
        told = {name: one.speed for name, one in self._heard.items() if one.speed is not None}
        if any(self._tells_speed(plan, peer) for peer in self.terms.peers):
            told[self.terms.name] = self.terms.read_speed()
        return told

    def _begin_run(self, plan: str, labelled: bool) -> None:
        names = (self.terms.active, *self.terms.passive)
        nonces = {name: greeting.nonce for name, greeting in self._heard.items()} | {self.terms.name: self._nonce}
        circle = Circle(
            names=names,
            nonce=b"".join(nonces[name] for name in names),
            rules_tag=f"{self.terms.rules.tag()}|{self.terms.context}",
        )
        self._state = state = State(
            terms=self.terms,
            ids=self._ids,
            own=self._own,
            held_out=self._held_out,
            circle=circle,
            sizes={name: one.rows for name, one in self._heard.items() if one.rows is not None},
            speeds=self._told_speeds(plan),
            labelled_run=labelled,
            order=self._order,
            allow=self._allow,
            agreeing=RowComparison(self.terms.name, circle.dst, self._by) if len(names) > 2 else None,
            by=self._by,
        )
        if plan != _GLOBAL:
            paired = self.terms.passive if self.is_active else (self.terms.name,)
            self._chosen = {name: choose_pair_protocol(state, name) for name in paired}
            self._plan = ComposingActive(state) if self.is_active else ComposingPassive(state)
        else:
            self._plan = LeadingActive(state) if self.is_active else LeadingPassive(state)


def _pad_identifiers(ids: Identifiers, terms: JointTerms) -> Identifiers:
    """Append random identifiers up to the terms' `pad_to`; no other party has any of them."""
    if terms.pad_to is None:
        return ids
    if not len(ids) <= terms.pad_to <= terms.max_set_size:
        raise SetSizeError(
            f"{len(ids)} identifiers, pad_to={terms.pad_to}, max_set_size={terms.max_set_size}: raise what is too small"
        )
    return ids.pad_to(terms.pad_to)
