"""Joint runs of several parties as scripts, moved by hand: any interleaving gives the same, and forgeries end it."""

from __future__ import annotations

import hashlib
import json
import random
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import securevfl_psi as psi
from securevfl_psi.conversations.scripts import Incoming, Outgoing
from securevfl_psi.wire import Frame, Kind

Change = Callable[[str, str, Frame], Frame]


def _joints(
    sets: dict[str, list[str]], own: int | None = None, held_out: Sequence[int] = (), **terms: Any
) -> dict[str, psi.Joint]:
    """The first is the active party."""
    active, *passive = sets
    joints = {}
    for name, ids in sets.items():

        def order(rows: np.ndarray, ids: list[str] = ids) -> np.ndarray:
            ordered = sorted(rows.tolist(), key=lambda row: hashlib.sha256(ids[row].encode()).digest())
            return np.array(ordered, dtype=np.int64)

        joints[name] = psi.Joint(
            psi.Identifiers.of_texts(ids),
            psi.JointTerms(name=name, active=active, passive=tuple(passive), **terms),
            order=order,
            allow=lambda *_: None,
            own=own if name == active else None,
            held_out=held_out if name == active else (),
        )
    return joints


class _Wires:
    """Every pair of parties, with a queue each way; `draw` chooses who moves next."""

    def __init__(self, joints: dict[str, psi.Joint], draw: random.Random, change: Change, window: int) -> None:
        ways = [(a, b) for a in joints for b in joints if a != b]
        self.draw, self.change, self.window = draw, change, window
        self.queues: dict[tuple[str, str], deque[Frame]] = {way: deque() for way in ways}
        self.sending: dict[tuple[str, str], Outgoing] = {(a, b): joints[a].send_script(b) for a, b in ways}
        self.hearing: dict[tuple[str, str], Incoming] = {(a, b): joints[b].receive_script(a) for a, b in ways}
        self.due = {way: next(script, None) for way, script in self.hearing.items()}
        self.kinds: set[tuple[str, str, Kind]] = set()

    def run(self) -> None:
        idle = 0
        while (self.sending or self.hearing) and idle < 200:
            ways = list(self.queues)
            self.draw.shuffle(ways)
            moved = [self._send(way) | self._hear(way) for way in ways]
            idle = 0 if any(moved) else idle + 1
        if self.sending or self.hearing:
            raise AssertionError(f"the parties wait for each other: {sorted(self.hearing)}")

    def _send(self, way: tuple[str, str]) -> bool:
        if way not in self.sending or len(self.queues[way]) >= self.window or self.draw.random() < 0.3:
            return False
        try:
            frame = next(self.sending[way])
        except StopIteration:
            del self.sending[way]
            return True
        if frame is None:
            return False
        self.kinds.add((*way, frame.kind))
        self.queues[way].append(self.change(*way, frame))
        return True

    def _hear(self, way: tuple[str, str]) -> bool:
        if way not in self.hearing:
            return False
        try:
            if self.due[way] is None:
                self.due[way] = next(self.hearing[way])
                return self.due[way] is not None
            if not self.queues[way] or self.draw.random() < 0.3:
                return False
            frame = self.queues[way].popleft()
            assert frame.kind == self.due[way]
            self.due[way] = self.hearing[way].send(frame)
        except StopIteration:
            del self.hearing[way]
        return True


def _run(
    sets: dict[str, list[str]],
    own: int | None = None,
    held_out: Sequence[int] = (),
    *,
    seed: int = 0,
    window: int = 3,
    change: Change = lambda _a, _b, frame: frame,
    **terms: Any,
) -> tuple[dict[str, psi.JointResult], _Wires]:
    joints = _joints(sets, own, held_out, **terms)
    wires = _Wires(joints, random.Random(seed), change, window)
    wires.run()
    return {name: joint.result for name, joint in joints.items()}, wires


IDS = [f"i{number:02d}" for number in range(30)]
TWO = {"bank": IDS[:20], "shop": [*IDS[10:], "x"]}
SMALL = {"bank": IDS, "shop": IDS[25:][::-1]}
THREE = {"bank": IDS[:20], "clinic": IDS[5:][::-1], "shop": [*IDS[::2], "x"]}


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("sets", [TWO, SMALL, THREE], ids=["two", "smaller", "three"])
def test_any_interleaving_and_any_window_gives_the_same(
    monkeypatch: pytest.MonkeyPatch, seed: int, sets: dict[str, list[str]]
) -> None:
    monkeypatch.setattr("securevfl_psi.chunks.CHUNK", 4)
    found, _ = _run(sets, seed=seed, window=1 + seed)
    common = set.intersection(*map(set, sets.values()))
    lists = [[sets[name][row] for row in result.rows] for name, result in found.items()]
    assert set(lists[0]) == common
    assert all(one == lists[0] for one in lists)
    assert len({result.run for result in found.values()}) == 1
    assert found["bank"].pairwise == ({"shop": len(common)} if len(sets) == 2 else {})


def test_a_label_book_is_told_to_each_passive_party_apart() -> None:
    sets = {**THREE, "bank": IDS[:24]}
    found, wires = _run(sets, own=16, held_out=[6, 7])
    bank, common = found["bank"], {"i06", "i08", "i10", "i12", "i14"}
    assert {IDS[row] for row in bank.rows} == common
    for name in ("clinic", "shop"):
        mine = [sets["bank"][row] for row in bank.labelled[name]]
        assert mine == [sets[name][row] for row in found[name].labelled[name]]
        assert set(mine) == (set(sets["bank"]) & set(sets[name])) - common - {"i06", "i07"}
    assert bank.pairwise == {name: len(set(sets["bank"]) & set(sets[name])) for name in ("clinic", "shop")}
    between = {kind for a, b, kind in wires.kinds if "bank" not in (a, b)}
    assert between == {Kind.HELLO, Kind.SHARE, Kind.CONFIRMATION}


def test_two_parties_prove_all_and_compare_nothing_else() -> None:
    _, wires = _run(TWO)
    assert {(a, kind) for a, _, kind in wires.kinds} == {
        *((name, Kind.HELLO) for name in TWO),
        *(("bank", kind) for kind in (Kind.POINTS, Kind.COUNT, Kind.PROOFS)),
        *(("shop", kind) for kind in (Kind.TOKENS, Kind.ANSWERS, Kind.RECEIPT)),
    }


@pytest.mark.parametrize("kind", [Kind.RECEIPT, Kind.PROOFS, Kind.ANSWERS, Kind.TOKENS])
def test_forged_frames_end_a_run_or_lose_matches(kind: Kind) -> None:
    def forge(_a: str, _b: str, frame: Frame) -> Frame:
        return Frame(kind, bytes([frame.payload[0] ^ 1]) + frame.payload[1:]) if frame.kind == kind else frame

    if kind in (Kind.RECEIPT, Kind.PROOFS):
        with pytest.raises((psi.RowsDifferError, psi.MalformedError), match=r"same common rows|belong to no row"):
            _run(TWO, change=forge)
        return
    found, _ = _run(TWO, change=forge)
    assert {TWO["bank"][row] for row in found["bank"].rows} <= set(TWO["bank"]) & set(TWO["shop"])


@pytest.mark.parametrize("kind", [Kind.SHARE, Kind.CONFIRMATION])
@pytest.mark.parametrize("own", [None, 16])
def test_a_comparison_that_fails_between_any_two_ends_the_run(kind: Kind, own: int | None) -> None:
    other = psi.Comparison(b"another list", "clinic", "shop", b"").share

    def forge(a: str, b: str, frame: Frame) -> Frame:
        if frame.kind != kind or (a, b) != ("clinic", "shop"):
            return frame
        return Frame(kind, other if kind == Kind.SHARE else bytes(64))

    with pytest.raises(psi.RowsDifferError, match="same common rows in the same order"):
        _run(THREE, own=own, change=forge)


def test_a_passive_party_may_refuse_pairwise_intersections() -> None:
    terms = psi.JointTerms(name="shop", active="bank", passive=("clinic", "shop"), pairwise=False)
    strict = psi.Joint(psi.Identifiers.of_texts(IDS), terms, order=lambda rows: rows, allow=lambda *_: None)
    for own, refused in ((16, True), (None, False)):
        bank = _joints(THREE, own)["bank"]
        script = strict.receive_script("bank")
        assert next(script) == Kind.HELLO
        hello = next(bank.send_script("shop"))
        assert hello is not None
        if refused:
            with pytest.raises(psi.PlanRefusedError, match="pairwise intersection with 'shop'"):
                script.send(hello)
        else:
            script.send(hello)


def test_there_is_no_result_before_the_end() -> None:
    for joint in _joints(THREE).values():
        with pytest.raises(psi.PSIError, match="no result yet"):
            _ = joint.result


def test_sizes_are_for_the_active_party_and_its_own_for_all() -> None:
    joints = _joints(THREE)
    clinic, shop = joints["clinic"], joints["shop"]
    hello = next(joints["bank"].send_script("clinic"))
    assert hello is not None
    assert b'"rows": 20' in hello.payload
    assert next(clinic.send_script("shop")) is None  # it does not know the plan yet
    script = clinic.receive_script("bank")
    next(script)
    script.send(hello)
    told = {name: next(clinic.send_script(name)) for name in ("bank", "shop")}
    assert told["bank"] is not None
    assert told["shop"] is not None
    assert b'"rows": 25' in told["bank"].payload
    assert b'"rows": null' in told["shop"].payload
    assert next(shop.receive_script("clinic")) == Kind.HELLO


@pytest.mark.parametrize("sets", [TWO, SMALL, THREE], ids=["two", "smaller", "three"])
@pytest.mark.parametrize("protocol", ["ot", "unbalanced", "unsafe_salted_hash"])
def test_other_protocols_find_the_same_rows_two_parties_at_a_time(sets: dict[str, list[str]], protocol: str) -> None:
    found, wires = _run(sets, protocol=protocol, pad_to=None if protocol == "unbalanced" else 40)
    common = set.intersection(*map(set, sets.values()))
    lists = [[sets[name][row] for row in result.rows] for name, result in found.items()]
    assert set(lists[0]) == common
    assert all(one == lists[0] for one in lists)
    bank = found["bank"]
    assert bank.pairwise == {name: len(set(sets["bank"]) & set(sets[name])) for name in list(sets)[1:]}
    assert {name: choice.protocol for name, choice in bank.protocols.items()} == dict.fromkeys(list(sets)[1:], protocol)
    kinds = {kind for *_, kind in wires.kinds}
    assert (Kind.POINTS in kinds) is (Kind.FILTER in kinds) is (protocol == "unbalanced")


def test_a_label_book_works_by_transfer_too() -> None:
    found, _ = _run({**THREE, "bank": IDS[:24]}, own=16, held_out=[6, 7], protocol="ot", pad_to=50)
    again, _ = _run({**THREE, "bank": IDS[:24]}, own=16, held_out=[6, 7])
    for name in THREE:
        assert found[name].rows.tolist() == again[name].rows.tolist()
        assert {k: v.tolist() for k, v in found[name].labelled.items()} == {
            k: v.tolist() for k, v in again[name].labelled.items()
        }


@pytest.mark.parametrize("sets", [TWO, SMALL], ids=["the active party asks", "the smaller set asks"])
def test_auto_weighs_what_each_party_told_in_its_part(sets: dict[str, list[str]]) -> None:
    """`ot` is quick if one encodes and the other looks up, and takes minutes the other way round."""
    asks = "shop" if sets is SMALL else "bank"
    quick = psi.Speed(product=90, encode=0, look_up=93, transfers=0, cores=1)
    other = psi.Speed(product=90, encode=93, look_up=0, transfers=0, cores=1)
    for encodes_quickly, expected in ((asks, "ot"), (next(name for name in sets if name != asks), "dh")):
        joints = _joints(sets, protocol="auto")
        for name, joint in joints.items():
            joint.terms = replace(joint.terms, speed=quick if name == encodes_quickly else other)
        _Wires(joints, random.Random(0), lambda _a, _b, frame: frame, 3).run()
        assert joints["bank"].protocol_with("shop") == joints["shop"].protocol_with("bank") == expected


def test_a_peer_that_tells_no_speed_where_auto_weighs_it_is_refused() -> None:
    def silent(_a: str, b: str, frame: Frame) -> Frame:
        fields = json.loads(frame.payload) if frame.kind == Kind.HELLO else {}
        if b != "bank" or "speed" not in fields:
            return frame
        del fields["speed"]
        return Frame(frame.kind, json.dumps(fields).encode())

    with pytest.raises(psi.MalformedError, match="told no speed of its machine"):
        _run(TWO, protocol="auto", change=silent)


def test_auto_weighs_both_sizes_and_says_why() -> None:
    found, _ = _run(TWO, protocol="auto")
    assert {name: one.protocols["shop"].protocol for name, one in found.items()} == {"bank": "dh", "shop": "dh"}
    assert "20 identifiers ask 21: dh about" in found["bank"].protocols["shop"].why
    found, wires = _run(THREE, protocol="auto")
    assert found["bank"].protocols == {}  # the multi-party protocol
    assert Kind.SLOTS in {kind for *_, kind in wires.kinds}


@pytest.mark.parametrize("sets", [TWO, THREE], ids=["two", "three"])
def test_padding_shows_the_bound_and_not_the_sizes(sets: dict[str, list[str]]) -> None:
    seen: dict[str, set[int]] = {}

    def look(a: str, _b: str, frame: Frame) -> Frame:
        if frame.kind == Kind.HELLO and b'"rows": null' not in frame.payload:
            seen.setdefault(a, set()).add(json.loads(frame.payload)["rows"])
        return frame

    found, _ = _run(sets, pad_to=64, change=look)
    assert seen == {name: {64} for name in sets}
    assert {sets["bank"][row] for row in found["bank"].rows} == set.intersection(*map(set, sets.values()))
    with pytest.raises(psi.SetSizeError, match="30 identifiers, pad_to=29"):
        _joints({"bank": IDS, "shop": IDS}, pad_to=29)


def test_an_active_party_cannot_make_others_show_more_than_their_terms_say() -> None:
    """A leader that plans salted hashes, where the job of the others says `dh`, would get their digests."""
    for mine, theirs in (
        ("unsafe_salted_hash", "dh"),
        ("ot", "dh"),
        ("unsafe_salted_hash", "auto"),
        ("dh", "ot"),
        ("unbalanced", "dh"),
    ):
        bank, shop = (_joints(TWO, protocol=one)[name] for one, name in ((mine, "bank"), (theirs, "shop")))
        hello = next(bank.send_script("shop"))
        assert hello is not None
        script = shop.receive_script("bank")
        next(script)
        with pytest.raises(psi.DisagreementError, match=f"this party's terms name '{theirs}'"):
            script.send(hello)
        assert next(shop.send_script("bank")) is None  # nothing leaves


def test_transfers_by_a_joint_run_may_be_forbidden_as_pairwise_intersections() -> None:
    shop = _joints(THREE, protocol="ot", pairwise=False)["shop"]
    hello = next(_joints(THREE, protocol="ot")["bank"].send_script("shop"))
    assert hello is not None
    script = shop.receive_script("bank")
    next(script)
    with pytest.raises(psi.PlanRefusedError, match="pairwise intersection with 'shop'"):
        script.send(hello)
