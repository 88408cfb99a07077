"""The view rule over all orders of events: `support.rendezvous_search` drives `Gathering` itself."""

from __future__ import annotations

import gc
import hashlib
from collections.abc import Mapping
from dataclasses import replace

import pytest
from support.rendezvous_search import Bounds, Search, Wrong

from securevfl.errors import ProtocolError
from securevfl.party.rendezvous import Action, Began, Go, Park, Rendezvous, Say
from securevfl.party.reports import CheckpointKey, Ready, Report, View, decode_note, encode_note, view_of

NONCE = "0" * 32


@pytest.mark.parametrize(
    "bounds",
    [
        pytest.param(Bounds(crashes=2, torn=True), id="two crashes, with the newest checkpoint or without"),
        pytest.param(Bounds(first=True, fine=True, crashes=1), id="a crash at any moment since the first connection"),
        pytest.param(Bounds(first=True, crashes=1, torn=True, grows=True, back=True), id="checkpoints come and go"),
        pytest.param(Bounds(first=True, fine=True, cuts=1, losses=True), id="a cut at any moment"),
    ],
)
def test_all_orders_of_events(bounds: Bounds) -> None:
    gc.disable()  # states refer to no other ones: there is nothing to find, and millions to look through
    try:
        found = Search(bounds).run()
    finally:
        gc.enable()
    assert found.complete
    assert found.quiet  # there is an end, and all train there


class OfOwnAccord(Rendezvous):
    """Trains as soon as it knows all reports."""

    def _advance(self) -> list[Action]:
        actions = super()._advance()
        began = [action for action in actions if isinstance(action, Began)]
        if began and self.state.phase == "ready":
            self.state = replace(self.state, phase="going")
            actions.append(Go(began[0].view))
        return actions


class OnlyEpochs(Rendezvous):
    """Takes the newest epoch that all have for the view: not who has it, nor which attempt wrote it."""

    @staticmethod
    def view_of(reports: Mapping[str, Report]) -> View:
        found = view_of(reports)
        epochs = [{kept.epoch for kept in report.kept} for report in reports.values()]
        start = max(set.intersection(*epochs), default=0)
        mark = hashlib.sha256(str(start).encode()).digest()[:16]
        return View(mark, found.attempt, (start, 0, 0) if start else None, found.alignment)


class Deaf(Rendezvous):
    """Goes on training when a peer reports anew."""

    def _park(self, why: str) -> list[Action]:
        return []


class Forgetful(Rendezvous):
    """Says nothing again on a new connection."""

    def _repeat_report(self, peer: str) -> list[Action]:
        return super()._repeat_report(peer)[:1]


WRONG = [
    pytest.param(OfOwnAccord, Bounds(crashes=1, torn=True), id="without READY"),
    pytest.param(OnlyEpochs, Bounds(crashes=1), id="a view that is an epoch"),
    pytest.param(Deaf, Bounds(crashes=1), id="without parking"),
    pytest.param(Forgetful, Bounds(crashes=1, cuts=1), id="nothing said again"),
]


@pytest.mark.parametrize(("kind", "bounds"), WRONG)
def test_another_rule_is_found_wrong(kind: type[Rendezvous], bounds: Bounds) -> None:
    with pytest.raises(Wrong):
        Search(bounds, kind).run()


def gathering(**more: object) -> Rendezvous:
    return Rendezvous("a", ["b", "c"], Report(f"1-{NONCE}", alignment="aa", **more))  # type: ignore[arg-type]


def said_by(actions: list[Action], peer: str) -> list[Report | Ready]:
    return [decode_note("a", action.payload) for action in actions if isinstance(action, Say) and action.peer == peer]


def test_a_connection_that_comes_back_parks_nobody() -> None:
    one = gathering(kept=(CheckpointKey(3, 0, 1, "dd"),))
    for peer in ("b", "c"):
        one.on_connected(peer, f"1-{NONCE}", False)
        said = one.on_note(
            peer, encode_note(Report(f"1-{NONCE}", alignment="aa", kept=(CheckpointKey(3, 0, 1, "ee"),)))
        )
    (began,) = [action for action in said if isinstance(action, Began)]
    assert began.view.start == (3, 0, 1)  # digests differ: each party's file is its own
    one.on_note("b", encode_note(Ready(began.view.mark)))
    assert one.find_awaited() == {"c": "ready"}
    assert one.on_note("c", encode_note(Ready(began.view.mark))) == [Go(began.view)]
    assert one.on_disconnected("b") == []
    again = one.on_connected("b", f"1-{NONCE}", True)
    assert said_by(again, "b") == [one.state.own, Ready(began.view.mark)]
    assert one.state.phase == "going"
    assert (
        one.on_note("b", encode_note(Report(f"1-{NONCE}", alignment="aa", kept=(CheckpointKey(3, 0, 1, "ee"),)))) == []
    )
    assert [type(action) for action in one.on_connected("b", f"2-{NONCE}", False)] == [Park]


def test_alignments_of_different_views_are_none() -> None:
    kept = (CheckpointKey(3, 0, 1),)
    every = {n: Report(f"1-{NONCE}", kept=kept, alignment=mark) for n, mark in (("a", "aa"), ("b", "aa"), ("c", "bb"))}
    assert view_of(every).alignment == ""
    assert view_of(every).start is None
    every["c"] = Report(f"1-{NONCE}", kept=(CheckpointKey(3, 0, 2),), alignment="aa")
    assert view_of(every).start is None  # another attempt wrote it
    every["c"] = Report(f"1-{NONCE}", kept=kept, alignment="aa")
    assert (view_of(every).alignment, view_of(every).start) == ("aa", (3, 0, 1))


def test_what_a_peer_may_not_say() -> None:
    one = gathering()
    one.on_connected("b", f"1-{NONCE}", False)
    with pytest.raises(ProtocolError, match="reports for 2-"):
        one.on_note("b", encode_note(Report(f"2-{NONCE}")))
    one.on_note("b", encode_note(Report(f"1-{NONCE}")))
    with pytest.raises(ProtocolError, match="two different reports"):
        one.on_note("b", encode_note(Report(f"1-{NONCE}", agreed=1)))
    with pytest.raises(ProtocolError, match="not a party of this run"):
        one.on_connected("x", f"1-{NONCE}", False)


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"\xc1",
        encode_note(Ready(bytes(16)))[:-1],
        encode_note(Report("1-00")),
        encode_note(Report(f"1-{NONCE}", kept=(CheckpointKey(0, 0, 0),) * 65)),
        encode_note(Report(f"1-{NONCE}", approval=bytes(5000))),
        encode_note(Report(f"1-{NONCE}", agreed=-1)),
        b"\xdc\x00\x02" + encode_note(Ready(bytes(16)))[1:],  # the same in a longer form
        bytes(70_000),
    ],
)
def test_notes_that_are_no_reports(payload: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode_note("b", payload)


def test_who_does_not_admit_waits() -> None:
    one = Rendezvous("a", ["b"], Report(f"1-{NONCE}"), admits=lambda every: all(r.approval for r in every.values()))
    one.on_connected("b", f"1-{NONCE}", False)
    assert one.on_note("b", encode_note(Report(f"1-{NONCE}"))) == []
    assert said_by(one.on_parked(Report(f"1-{NONCE}", approval=b"yes")), "b") == [one.state.own]
    said = one.on_note("b", encode_note(Report(f"1-{NONCE}", parks=1, approval=b"yes")))
    assert [type(action) for action in said] == [Began, Say]
