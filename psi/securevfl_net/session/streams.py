"""The two streams of parts of one view: outgoing parts are kept until acknowledged, incoming ones are granted room.
Each view has its own pair.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from securevfl_net.errors import InputError
from securevfl_net.session.frames import NO_VIEW, Position, data_head
from securevfl_net.session.limits import OVERHEAD, SessionLimits
from securevfl_net.session.refusal import SessionRefusal

__all__ = ["Incoming", "Outgoing"]

_SMALL = 16 << 10
"""Parts up to this many bytes are joined with their heads and neighbours: one write for all costs less than the copy.
"""

_Item = tuple[int, bytes, memoryview, str]
"""A part: its end position in the stream, its head, its bytes, its step."""


class Outgoing:
    """Parts on their way to the peer.

    Numbers go up by one; where part n ends is the sum of the costs of parts 1 to n. A part may leave once it ends
    within what the peer has granted. Parts that left stay in `unacked` until the peer has them; `rewind` puts them back
    before the others.

    Attributes:
        tag: of the view.
        opened: whether parts may leave.
        acked: number of the last part that the peer has.
        sent: number of the last part that left over the present connection, or over the last one.
        allowed: to where the peer has granted.
        held: bytes of parts that are stored here, with overhead.
    """

    __slots__ = ("_end", "_remaining", "acked", "allowed", "held", "opened", "queue", "sent", "tag", "unacked")

    def __init__(self, tag: bytes = NO_VIEW) -> None:
        self.tag = tag
        self.opened = False
        self.acked = self.sent = 0
        self.allowed = 0
        self.held = 0
        self.queue: deque[_Item] = deque()
        self.unacked: deque[_Item] = deque()
        self._end = 0
        self._remaining = 0

    def add_part(self, part: memoryview, total: int | None, step: str, limits: SessionLimits) -> None:
        """Queue a part.

        Raises:
            InputError: the part is empty, too long, or does not fit its message.
        """
        size = len(part)
        if not 0 < size <= limits.part:
            raise InputError(f"a part of {size} bytes; it has 1 to {limits.part}: cut the message with `in_parts`")
        if total is None:
            rest = self._remaining - size
            if rest < 0:
                raise InputError(f"a part of {size} bytes where {self._remaining} are left of the message")
        else:
            rest = total - size
            if self._remaining or rest < 0 or total > limits.message:
                raise InputError(
                    f"a message of {total} bytes begins with {size} while {self._remaining} are left of the one "
                    f"before; the limit is {limits.message}"
                )
        self._remaining = rest
        # Both ends count a part's overhead alike, since `next_limit` is a position in this sum.
        cost = size + OVERHEAD
        self._end += cost
        self.held += cost
        number = self.sent + len(self.queue) + 1
        self.queue.append((self._end, data_head(self.tag, number, size, total), part, step))

    @property
    def blocked_step(self) -> str | None:
        """The step of the next part if it waits for the peer to grant room; otherwise None."""
        queue = self.queue
        return queue[0][3] if queue and self.opened and queue[0][0] > self.allowed else None

    def take_frames(self, most: int, out: list[memoryview], before: Iterable[bytes] = ()) -> int:
        """Append what may leave now to `out`, as whole frames: about `most` bytes, at least one part.

        Args:
            most: bytes.
            out: buffers to write.
            before: frames that go before them.

        Returns:
            Bytes that were appended.
        """
        queue, unacked, allowed = self.queue, self.unacked, self.allowed
        taken = 0
        small: list[bytes | memoryview] = [*before]
        while queue:
            item = queue[0]
            end, head, part, _ = item
            if end > allowed:
                break
            size = len(head) + len(part)
            if taken and taken + size > most:
                break
            unacked.append(queue.popleft())
            taken += size
            if len(part) <= _SMALL:
                small += (head, part)
                continue
            small.append(head)
            out += (memoryview(b"".join(small)), part)
            small = []
        if small:
            out.append(memoryview(b"".join(small)))
        self.sent = self.acked + len(unacked)
        return taken

    def acknowledge(self, position: Position) -> None:
        """Take the peer's position.

        Raises:
            Refusal: it goes back, or acknowledges what was not sent.
        """
        received = position.received
        if not self.acked <= received <= self.sent:
            raise SessionRefusal(
                "broken-rule",
                f"the peer acknowledged part {received}, outside of {self.acked} (acknowledged before) to "
                f"{self.sent} (sent last)",
            )
        # What was granted may be in flight already, so a grant cannot be withdrawn.
        if position.allowed < self.allowed:
            raise SessionRefusal("broken-rule", f"the grant goes back from {self.allowed} to {position.allowed}")
        self.allowed = position.allowed
        self._drop_received(received)

    def rewind(self, position: Position) -> None:
        """Begin again behind what the peer has, over a new connection.

        Raises:
            Refusal: as `acknowledge`.
        """
        self.acknowledge(position)
        self.queue.extendleft(reversed(self.unacked))
        self.unacked.clear()
        self.sent = self.acked

    def _drop_received(self, received: int) -> None:
        unacked = self.unacked
        for _ in range(received - self.acked):
            self.held -= len(unacked.popleft()[2]) + OVERHEAD
        self.acked = received


class Incoming:
    """Parts from the peer.

    Attributes:
        view: of the stream; empty before the first.
        tag: its first bytes.
        received: number of the last part that arrived.
        arrived: where it ends in the stream.
        granted: limit to which the peer may send, as last announced.
        announced: `arrived` when it was last announced.
        window: bytes that the peer may be ahead of the program.
    """

    __slots__ = ("_consumed", "_remaining", "announced", "arrived", "granted", "received", "tag", "view", "window")

    def __init__(self, view: bytes = b"", window: int = 0) -> None:
        self.view = view
        self.tag = view[: len(NO_VIEW)] or NO_VIEW
        self.received = self.arrived = self.announced = self.granted = 0
        self.window = window
        self._consumed = 0
        self._remaining = 0

    @property
    def next_limit(self) -> int:
        """Limit to which the peer may now be allowed to send."""
        return self._consumed + self.window

    @property
    def unread_bytes(self) -> int:
        """Bytes of parts that arrived and that the program has not read, with overhead."""
        return self.arrived - self._consumed

    def announce_position(self) -> Position:
        """The position to announce to the peer. It counts as announced from then on."""
        self.granted = self.next_limit
        self.announced = self.arrived
        return Position(self.tag, self.received, self.granted)

    def admit_part(self, number: int, size: int, total: int | None, limits: SessionLimits) -> None:
        """Check a part by its head, before memory is allocated for it.

        Raises:
            Refusal: it is not the next one, is longer than it may be, or was not granted room.
        """
        if number != self.received + 1:
            raise SessionRefusal("broken-rule", f"part {number} follows part {self.received}")
        if size > limits.part:
            raise SessionRefusal("over-limit", f"a part of {size} bytes; the limit is {limits.part}")
        if self.arrived + size + OVERHEAD > self.granted:
            raise SessionRefusal(
                "over-limit", f"a part ends at {self.arrived + size + OVERHEAD}; granted: {self.granted}"
            )
        if total is None:
            if size > self._remaining:
                raise SessionRefusal(
                    "broken-rule", f"a part of {size} bytes where {self._remaining} are left of the message"
                )
        elif self._remaining:
            raise SessionRefusal(
                "broken-rule", f"a message begins while {self._remaining} bytes of the one before are left"
            )
        elif not size <= total <= limits.message:
            raise SessionRefusal(
                "over-limit", f"a message of {total} bytes begins with {size}; the limit is {limits.message}"
            )

    def count_part(self, size: int, total: int | None) -> bool:
        """Count a part that was admitted and is here now.

        Returns:
            Whether the message ends with it.
        """
        self.received += 1
        self.arrived += size + OVERHEAD
        self._remaining = (self._remaining if total is None else total) - size
        return not self._remaining

    def credit_window(self, cost: int) -> None:
        """Count bytes that the program has read, so that the peer may send as many more.

        Raises:
            InputError: more than arrived, or a negative number.
        """
        if not 0 <= cost <= self.arrived - self._consumed:
            raise InputError(f"the program credits {cost} bytes as read; {self.arrived - self._consumed} are unread")
        self._consumed += cost
