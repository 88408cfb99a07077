"""Two ends of a session and a network between them that tests cut where they like."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

from securevfl_net.session import Incarnation, Line, SessionEnd, SessionLimits

__all__ = ["AGREEMENT", "SMALL", "Pair", "Pipe", "incarnation", "pair", "view"]

AGREEMENT = hashlib.sha256(b"proposal").digest()
SMALL = SessionLimits(part=64, window=2048, max_window=8192, message=1000)


def view(number: int) -> bytes:
    """A view of that number."""
    return hashlib.sha256(b"view %d" % number).digest()[:16]


def incarnation(count: int, party: str) -> Incarnation:
    """A party's start of that number."""
    return Incarnation(count, hashlib.sha256(f"{party} {count}".encode()).digest()[:16])


@dataclass
class Pipe:
    """One connection: a line at either end, and the bytes on their way."""

    lines: tuple[Line, Line]
    ways: tuple[bytearray, bytearray] = field(default_factory=lambda: (bytearray(), bytearray()))
    """From the first end to the second, and back."""

    def write(self, side: int, most: int = 1 << 18) -> int:
        """Let an end write once; bytes that it wrote."""
        data = b"".join(self.lines[side].pull_bytes(most))
        self.ways[side].extend(data)
        return len(data)

    def carry(self, side: int, count: int | None = None) -> int:
        """Deliver what an end wrote, or the first bytes of it, to the other; bytes that were delivered."""
        way = self.ways[side]
        data = bytes(way if count is None else way[:count])
        del way[: len(data)]
        if data:
            self.lines[1 - side].feed(data)
        return len(data)

    def close(self) -> None:
        """Cut it: what is on its way is lost."""
        for line in self.lines:
            line.mark_closed()
        for way in self.ways:
            way.clear()


@dataclass
class Pair:
    """Two ends, the first of the smaller name."""

    ends: tuple[SessionEnd, SessionEnd]

    def connect(self) -> Pipe:
        """A fresh connection."""
        return Pipe((self.ends[0].open_line(), self.ends[1].open_line()))

    def settle(self, *pipes: Pipe) -> None:
        """Carry everything until nothing moves."""
        while sum(p.write(s) + p.carry(s) for p in pipes for s in (0, 1)):
            pass

    def meet(self) -> Pipe:
        """A connection whose handshake is done."""
        pipe = self.connect()
        self.settle(pipe)
        return pipe

    def begin(self, number: int, *pipes: Pipe) -> None:
        """Both begin a view and open it."""
        for end in self.ends:
            end.begin_view(view(number))
            end.open_view()
        self.settle(*pipes)


def pair(limits: SessionLimits = SMALL, counts: tuple[int, int] = (1, 1)) -> Pair:
    """Two ends that have not met."""
    names = ("bank", "shop")
    first, second = (
        SessionEnd(me, peer, agreement=AGREEMENT, own=incarnation(count, me), limits=limits)
        for me, peer, count in zip(names, reversed(names), counts, strict=True)
    )
    return Pair((first, second))
