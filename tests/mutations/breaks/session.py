"""Breaks of the session: the handshake, numbers, room."""

from mutations.base import Break

__all__ = ["BREAKS"]

_END = "psi/securevfl_net/session/end.py"
_MEETING = "psi/securevfl_net/session/meeting.py"
_HELLO = "psi/securevfl_net/session/hello.py"
_LINE = "psi/securevfl_net/session/line.py"
_STREAMS = "psi/securevfl_net/session/streams.py"
_TESTS = ("tests/net/session",)
_MODEL = ("tests/net/session/test_model.py",)
_FLOW = ("tests/net/session/test_flow.py",)
_HANDSHAKE = ("tests/net/session/test_handshake.py",)

BREAKS: tuple[Break, ...] = (
    Break(
        name="DATA leaves before the acceptance",
        file=_MEETING,
        old="hello_frame(self._build_hello(line, hello.id, self._in.announce_position())))\n",
        new="hello_frame(self._build_hello(line, hello.id, self._in.announce_position())))\n"
        "        self._line, line.up = line, True\n",
        tests=_MODEL,
    ),
    Break(
        name="frames are taken before the handshake",
        file=_LINE,
        old="        if kind != due:\n",
        new="        if kind != due and kind == FrameKind.ACCEPT:\n",
        tests=_HANDSHAKE,
    ),
    Break(
        name="a stale process is let in",
        file=_HELLO,
        old="    if known is None or found == known or found.count > known.count:\n",
        new="    if known is None or found == known or found.count != known.count:\n",
        tests=_HANDSHAKE,
    ),
    Break(
        name="a twin is let in",
        file=_HELLO,
        old="    if known is None or found == known or found.count > known.count:\n",
        new="    if known is None or found.count >= known.count:\n",
        tests=_HANDSHAKE,
    ),
    Break(
        name="a recorded hello is let in",
        file=_MEETING,
        old="        if hello.connection in numbers or hello.connection <= last - _REMEMBERED:\n",
        new="        if hello.connection <= last - _REMEMBERED:\n",
        tests=_HANDSHAKE,
    ),
    Break(
        name="an answer to another connection's hello is let in",
        file=_HELLO,
        old="        if self.answers != answers:\n",
        new="        if len(self.answers) != len(answers):\n",
        tests=_HANDSHAKE,
    ),
    Break(
        name="the acceptance of another connection is taken",
        file=_MEETING,
        old="        if self._first or greeting is None or body[:NONCE] != line.id:\n",
        new="        if self._first or greeting is None:\n",
        tests=_HANDSHAKE,
    ),
    Break(
        name="bytes of an earlier connection are taken",
        file=_MEETING,
        old="            if older is not None and older is not line and (older.up or older.greeted):\n",
        new="            if older is not None and older is not line and older.greeted and not older.up:\n",
        tests=_TESTS,
    ),
    Break(
        name="a new process of the peer goes on with the old one's streams",
        file=_MEETING,
        old="        if self._met is not None and peer != self._met:\n            self._void_view()\n",
        new="",
        tests=_TESTS,
    ),
    Break(
        name="the older of two connections is used",
        file=_MEETING,
        old="        return hello.connection > last\n",
        new="        return True\n",
        tests=_TESTS,
    ),
    Break(
        name="what was not acknowledged is not sent again",
        file=_STREAMS,
        old="        self.queue.extendleft(reversed(self.unacked))\n",
        new="",
        tests=_MODEL,
    ),
    Break(
        name="all that left is sent again, also what the peer has",
        file=_STREAMS,
        old="        self.acknowledge(position)\n",
        new="        self.allowed = position.allowed\n",
        tests=_MODEL,
    ),
    Break(
        name="an acknowledgement of what was never sent is taken",
        file=_STREAMS,
        old="        if not self.acked <= received <= self.sent:\n",
        new="        if not self.acked <= received:\n",
        tests=_TESTS,
    ),
    Break(
        name="parts leave without room",
        file=_STREAMS,
        old="            if end > allowed:\n                break\n",
        new="",
        tests=_FLOW,
    ),
    Break(
        name="a peer that overdraws its room is not refused",
        file=_STREAMS,
        old="        if self.arrived + size + OVERHEAD > self.granted:\n",
        new="        if self.arrived + size > self.granted + self.window:\n",
        tests=_FLOW,
    ),
    Break(
        name="a part counts as received with its head",
        file=_STREAMS,
        old="        if number != self.received + 1:\n",
        new="        if number < self.received + 1:\n",
        tests=_TESTS,
    ),
    Break(
        name="parts of a view that was left are delivered",
        file=_MEETING,
        old="        if incoming is None or incoming is not self._in:\n            return\n",
        new="        if incoming is None:\n            return\n",
        tests=_FLOW,
    ),
    Break(
        name="a part leaves in a view that the peer has left",
        file=_MEETING,
        old="                    self._out.allowed = 0  # the peer has left this view, or has not begun it\n",
        new="",
        tests=_FLOW,
    ),
    Break(
        name="the peer's room in a view that it began first is forgotten",
        file=_END,
        old="        if self._grant.tag == tag:\n            self._out.allowed = self._grant.allowed\n",
        new="",
        tests=_FLOW,
    ),
    Break(
        name="a blocked peer is not answered",
        file=_END,
        old="        if self._theirs is not None or incoming.next_limit - incoming.granted >= incoming.window >> 2:\n",
        new="        if incoming.next_limit - incoming.granted > incoming.window:\n",
        tests=_FLOW,
    ),
    Break(
        name="the window does not grow where both are blocked",
        file=_END,
        old="            self._in.window = min(2 * self._in.window, self.limits.max_window)\n",
        new="",
        tests=_FLOW,
    ),
    Break(
        name="bulk goes before signs of life",
        file=_END,
        old="            self._write_urgent(urgent)\n        size",
        new="            self._write_urgent(urgent if not self._out.queue else [])\n        size",
        tests=_FLOW,
    ),
    Break(
        name="goodbye before everything was acknowledged",
        file=_END,
        old="        if line.up and self._bye and not self._bye_sent and not self._out.held:\n",
        new="        if line.up and self._bye and not self._bye_sent and not self._out.queue:\n",
        tests=_FLOW,
    ),
    Break(
        name="a flood takes the places of other addresses",
        file="psi/securevfl_net/gate/handshakes.py",
        old="            return not spared, counts[where], one.phase == Phase.PEEK",
        new="            return not spared, 0, one.phase == Phase.PEEK",
        tests=("tests/net/test_handshakes.py",),
    ),
    Break(
        name="a known network keeps any number of places",
        file="psi/securevfl_net/gate/handshakes.py",
        old="where in self._known and counts[where] <= _SPARED",
        new="where in self._known",
        tests=("tests/net/test_handshakes.py",),
    ),
    Break(
        name="a copy takes the place of a process that shows signs of life",
        file="psi/securevfl_net/session/meeting.py",
        old="        self._refuse_beside_running(hello.incarnation)\n",
        new="        pass\n",
        tests=("tests/net/session/test_handshake.py",),
    ),
)
