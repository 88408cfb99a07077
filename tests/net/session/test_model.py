"""Two ends, any number of connections, cuts at any byte, views and restarts in any order: against a plain model."""

from __future__ import annotations

import inspect
import random
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from net.session.ends import AGREEMENT, SMALL, incarnation, view
from securevfl_net.session import OVERHEAD, ConnectionBroken, Line, MessagePart, Refused, SessionEnd, Up
from securevfl_net.session.frames import PREFIX, FrameKind

NAMES = ("bank", "shop")
SIDES = st.integers(0, 1)
SELDOM = st.integers(0, 3)


@dataclass
class Connection:
    """What both ends know of one connection, and the bytes on their way."""

    lines: list[Line | None] = field(default_factory=lambda: [None, None])
    ways: tuple[bytearray, bytearray] = field(default_factory=lambda: (bytearray(), bytearray()))
    kinds: tuple[list[int], list[int]] = field(default_factory=lambda: ([], []))
    """Kinds of the frames that each side wrote."""
    delivered: list[int] = field(default_factory=lambda: [0, 0])
    """Bytes that each side has received."""
    accepted_at: int = -1
    """Bytes to the second side after which it has the whole ACCEPT."""
    written: list[int] = field(default_factory=lambda: [0, 0])


class Sessions(RuleBasedStateMachine):
    """Exact, in order, nothing lost or doubled; room never overdrawn; no DATA before the acceptance."""

    def __init__(self) -> None:
        super().__init__()
        self.starts = [1, 1]
        self.ends = [self.fresh(0), self.fresh(1)]
        self.connections: list[Connection] = []
        self.said: defaultdict[tuple[int, bytes], list[bytes]] = defaultdict(list)
        self.heard: defaultdict[tuple[int, bytes], list[bytes]] = defaultdict(list)
        self.unread: list[list[MessagePart]] = [[], []]
        self.views = 0
        self.serial = 0
        self.left: list[int] = [0, 0]

    @initialize(begun=st.sampled_from([0, 1, 1, 1]))
    def sets_out(self, begun: int) -> None:
        """Mostly from a connection that stands and a view that both are in."""
        self.views = begun
        if begun:
            for side in (0, 1):
                self.left[side] = 1
                self.ends[side].begin_view(view(1))
                self.ends[side].open_view()
            self.meets()

    def fresh(self, side: int) -> SessionEnd:
        me, peer = NAMES[side], NAMES[1 - side]
        return SessionEnd(me, peer, agreement=AGREEMENT, own=incarnation(self.starts[side], me), limits=SMALL)

    def look(self, side: int) -> None:
        for event in self.ends[side].take_events():
            if isinstance(event, MessagePart):
                assert event.view == self.ends[side].view
                self.heard[side, event.view].append(bytes(event.data))
                self.unread[side].append(event)
            assert not isinstance(event, ConnectionBroken), event
            if isinstance(event, Refused):  # a hello of the process before the present one was still on its way
                assert event.code == "stale-incarnation", event
                assert self.starts[NAMES.index(event.party)] > 1
            if isinstance(event, Up) and not event.resumed:
                assert not self.ends[side].view or not self.heard[side, self.ends[side].view]

    # --- the network

    @rule()
    def connects(self) -> None:
        if len(self.connections) < 6:
            self.connections.append(Connection())

    @rule(side=SIDES, which=st.integers(0, 5))
    def takes(self, side: int, which: int) -> None:
        if which < len(self.connections) and self.connections[which].lines[side] is None:
            self.connections[which].lines[side] = self.ends[side].open_line()

    @rule(side=SIDES, which=st.integers(0, 5), most=st.sampled_from([1, 100, 1000, 1 << 18]))
    def writes(self, side: int, which: int, most: int) -> None:
        if which >= len(self.connections):
            return
        connection = self.connections[which]
        line = connection.lines[side]
        if line is None:
            return
        data = b"".join(line.pull_bytes(most))
        self.inspect(connection, side, data)
        connection.ways[side].extend(data)

    def inspect(self, connection: Connection, side: int, data: bytes) -> None:
        at = 0
        while at < len(data):
            kind, _, _, length = PREFIX.unpack_from(data, at)
            at += 8 + length
            before = connection.kinds[side]
            if side == 0 and kind == FrameKind.ACCEPT:
                assert FrameKind.ACCEPT not in before
                connection.accepted_at = connection.written[0] + at
            if kind not in (FrameKind.HELLO, FrameKind.ACCEPT, FrameKind.REFUSE):
                if side == 0:
                    assert before[:1] == [FrameKind.HELLO]
                    assert FrameKind.ACCEPT in before
                else:
                    assert 0 <= connection.accepted_at <= connection.delivered[1], "a frame before the acceptance"
            before.append(kind)
        connection.written[side] += at

    @rule(side=SIDES, which=st.integers(0, 5), share=st.sampled_from([0.0, 0.3, 0.9, 1.0, 1.0]))
    def carries(self, side: int, which: int, share: float) -> None:
        """Some of what a side wrote reaches the other: at least a byte."""
        if which >= len(self.connections):
            return
        connection = self.connections[which]
        line, way = connection.lines[1 - side], connection.ways[side]
        if line is None or not way:
            return
        data = bytes(way[: max(1, int(share * len(way)))])
        del way[: len(data)]
        connection.delivered[1 - side] += len(data)
        line.feed(data)
        self.look(1 - side)

    @rule()
    def meets(self) -> None:
        """A connection that works from the beginning."""
        if len(self.connections) < 6:
            self.connections.append(Connection(lines=[end.open_line() for end in self.ends]))
            self.flows(len(self.connections) - 1)

    @rule(which=st.integers(0, 5))
    def flows(self, which: int) -> None:
        """A connection carries all that either side writes, until nothing more comes; nobody reads meanwhile."""
        while which < len(self.connections):
            before = sum(self.connections[which].written)
            for side in (0, 1):
                self.writes(side, which, 1 << 18)
                while self.connections[which].ways[side] and self.connections[which].lines[1 - side] is not None:
                    self.carries(side, which, 1.0)
            if sum(self.connections[which].written) == before:
                return

    @rule(side=SIDES, which=st.integers(0, 5))
    def notices_a_cut(self, side: int, which: int) -> None:
        """One end closes; the other may still receive what was on its way, unless it closes too."""
        if which < len(self.connections):
            connection = self.connections[which]
            if connection.lines[side] is not None:
                connection.lines[side].mark_closed()
            if all(line is not None and line.over for line in connection.lines):
                del self.connections[which]

    @rule(which=st.integers(0, 5))
    def is_cut(self, which: int) -> None:
        if which < len(self.connections):
            for line in self.connections.pop(which).lines:
                if line is not None:
                    line.mark_closed()

    # --- the programs

    @rule(side=SIDES, ahead=st.booleans(), luck=SELDOM)
    def begins(self, side: int, ahead: bool, luck: int) -> None:
        """The next view, or the one that the other is in already."""
        number = self.views + ahead
        if number > self.left[side] and (not luck or not self.ends[side].view):
            self.views = max(self.views, number)
            self.left[side] = number
            self.unread[side].clear()
            self.ends[side].begin_view(view(number))

    @rule(side=SIDES)
    def opens(self, side: int) -> None:
        if self.ends[side].view:
            self.ends[side].open_view()

    @rule(side=SIDES, luck=SELDOM)
    def parks(self, side: int, luck: int) -> None:
        if not luck:
            self.ends[side].leave_view()
            self.unread[side].clear()

    @rule(side=SIDES, length=st.sampled_from([1, 63, 64, 65, 200, 1000]))
    def sends(self, side: int, length: int) -> None:
        end = self.ends[side]
        if not end.view or not end.is_ready:
            return
        self.serial += 1
        message = (self.serial.to_bytes(8, "big") * 125)[:length]
        for at in range(0, length, 64):
            part = message[at : at + 64]
            end.send_part(memoryview(part), first_total=None if at else length)
            self.said[side, end.view].append(part)

    @rule(side=SIDES, count=st.integers(1, 9))
    def reads(self, side: int, count: int) -> None:
        for part in self.unread[side][:count]:
            self.ends[side].credit_window(part.view, part.cost)
        del self.unread[side][:count]

    @rule(side=SIDES)
    def says(self, side: int) -> None:
        self.ends[side].send_note(b"a note")
        self.ends[side].send_ping(b"a beat")

    @rule(side=SIDES)
    def ticks(self, side: int) -> None:
        self.ends[side].tick()
        self.look(side)

    @rule(side=SIDES, gone=st.booleans(), luck=SELDOM)
    def starts_again(self, side: int, gone: bool, luck: int) -> None:
        """A process dies and is started again; its connections end at once, or the other end finds out later."""
        if luck:
            return
        for connection in self.connections:
            line, other = connection.lines[side], connection.lines[1 - side]
            if line is not None:
                line.mark_closed()
                if gone and other is not None:
                    other.mark_closed()
        self.connections = [] if gone else [one for one in self.connections if one.lines[side] is not None]
        self.starts[side] += 1
        self.ends[side] = self.fresh(side)
        self.unread[side].clear()

    # --- what holds

    @invariant()
    def exact_and_in_order(self) -> None:
        for (side, of), parts in self.heard.items():
            assert parts == self.said[1 - side, of][: len(parts)]

    @invariant()
    def bounded(self) -> None:
        for end in self.ends:
            assert 0 <= end.unread_bytes <= end.window <= SMALL.max_window
            assert end.last_received >= 0
            assert end.held_bytes <= SMALL.window + 1000 + 16 * OVERHEAD

    def teardown(self) -> None:
        """With one more connection, and programs that read, everything that was said in a common view arrives."""
        for connection in self.connections:
            for line in connection.lines:
                if line is not None:
                    line.mark_closed()
        lines = [end.open_line() for end in self.ends]
        for _ in range(400):
            moved = 0
            for side in (0, 1):
                data = b"".join(lines[side].pull_bytes())
                moved += len(data)
                lines[1 - side].feed(data)
                for one in (0, 1):
                    self.look(one)
                    self.reads(one, len(self.unread[one]))
            if not moved:
                break
        assert self.ends[0].is_up
        assert self.ends[1].is_up
        first, second = self.ends
        if first.view and first.view == second.view:
            for side in (0, 1):
                if self.ends[1 - side]._out.opened:
                    assert self.heard[side, first.view] == self.said[1 - side, first.view]


_WEIGHTS = {
    "sends": 8,
    "reads": 6,
    "writes": 8,
    "carries": 8,
    "flows": 1,
    "connects": 1,
    "takes": 4,
    "meets": 2,
    "is_cut": 2,
    "notices_a_cut": 1,
    "opens": 2,
    "begins": 2,
    "says": 1,
    "ticks": 1,
    "parks": 0.05,
    "starts_again": 0.05,
}


@pytest.mark.parametrize("seed", range(10))
def test_long_walks(seed: int) -> None:
    """The same rules by weight, so that far more is under way than examples that are to be shrunk reach."""
    luck = random.Random(seed)
    for _ in range(6):
        model = Sessions()
        model.sets_out(luck.randrange(2))
        for _ in range(350):
            name = luck.choices(list(_WEIGHTS), list(_WEIGHTS.values()))[0]
            side, which = luck.randrange(2), luck.randrange(max(1, len(model.connections)))
            values: dict[str, Any] = {
                "side": side,
                "which": which,
                "most": luck.choice((1, 100, 1000, 1 << 18)),
                "share": luck.choice((0.0, 0.3, 0.9, 1.0, 1.0)),
                "ahead": model.left[0] == model.left[1] and luck.random() < 0.05,
                "luck": 0,
                "length": luck.choice((1, 63, 64, 65, 200, 1000)),
                "count": luck.randint(1, 9),
                "gone": luck.random() < 0.5,
            }
            rule_ = getattr(model, name)
            rule_(**{key: values[key] for key in inspect.signature(rule_).parameters})
            model.exact_and_in_order()
            model.bounded()
        model.teardown()


TestSessions = Sessions.TestCase
TestSessions.settings = settings(max_examples=20, stateful_step_count=50, deadline=None)
