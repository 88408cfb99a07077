"""The report on a finished run: who learned what, what was moved, whether both agree."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from securevfl_psi.terms import Learns, Protocol, Role

__all__ = ["RunSummary", "format_bytes", "format_count"]


@dataclass(frozen=True, kw_only=True)
class RunSummary:
    """One party's view of a finished run.

    Attributes:
        name, peer: the parties.
        role: this party's.
        protocol: which one was run.
        why: it was chosen, where that was left open.
        learns: who learned the result.
        rows: identifiers of this party.
        dropped: rows of its table without one.
        announced: rows that the peer saw, with padding.
        peer_rows: rows that the peer announced, with its padding.
        common: common rows; None where this party is not told.
        verified: the peer proved each of the common rows.
        sent, received: bytes of messages.
        seconds: from the connection to the end.
        engine: the code path of the arithmetic.
        channel: how bytes were protected on their way.
        out: the file that was written, or None.
    """

    name: str
    peer: str
    role: Role
    protocol: Protocol
    learns: Learns
    rows: int
    dropped: int
    announced: int
    peer_rows: int
    common: int | None
    verified: bool
    sent: int
    received: int
    seconds: float
    engine: str
    channel: str
    out: str | None
    why: str = ""

    def as_json(self) -> str:
        """All fields as one JSON object."""
        return json.dumps(asdict(self) | {"seconds": round(self.seconds, 3)}, indent=2)

    def format_title(self) -> str:
        """The result in one line."""
        if self.common is None:
            return f"Done; {self.name} is not told what is common"
        return f"{format_count(self.common, 'common row')} of {self.rows:,} here and {self.peer_rows:,} at {self.peer}"

    def format_lines(self) -> list[tuple[str, str]]:
        """Label and text of each line of the summary."""
        checked = f"{self.peer} proved each of the common rows" if self.verified else _explain_unverified(self)
        return [
            (f"{self.name} learned", self._describe_learned(self.role == "receiver", self.peer, self.peer_rows)),
            (f"{self.peer} learned", self._describe_learned(self.role != "receiver", self.name, self.announced)),
            ("verified", checked),
            *([("ran", f"{self.protocol}: {self.why}")] if self.why else []),
            ("moved", f"{format_bytes(self.sent)} sent, {format_bytes(self.received)} received"),
            ("took", f"{self.seconds:.2f} s, engine {self.engine}"),
            ("channel", self.channel),
            *([("left out", f"{format_count(self.dropped, 'row')} without an identifier")] if self.dropped else []),
            *([("written", self.out)] if self.out else []),
        ]

    def _describe_learned(self, receiver: bool, other: str, size: int) -> str:
        told = receiver or self.learns == "both"
        # A receiver can blind each identifier by a scalar of its own, and recognise the answers.
        number = "how many rows are common, " + ("and which, if it deviated" if receiver else "not which")
        texts: dict[Protocol, str] = {
            "dh": f"which of its rows {other} has" if told else "nothing more",
            "ot": f"which of its rows {other} has" if told else "nothing more",
            "cardinality": number if told else "nothing more",
            "pseudonyms": f"which of its rows {other} has, and a pseudonym of every row of both"
            if receiver
            else "a pseudonym of each of its own rows",
            "unsafe_salted_hash": f"which of its rows {other} has, and digests of {other}'s set, which it can try "
            "identifiers on"
            if receiver
            else (f"which of its rows {other} has" if told else "nothing more"),
        }
        return f"that {other} sent {format_count(size, 'row')}; {texts[self.protocol]}"


def _explain_unverified(run: RunSummary) -> str:
    if run.protocol in ("dh", "ot", "unsafe_salted_hash"):
        return "no: this party is not told what is common"
    return "no: this protocol gives the parties no common list of rows"


def format_count(number: int, what: str) -> str:
    """A number with its noun."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def format_bytes(count: int) -> str:
    """Bytes for people."""
    for unit, size in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count} bytes"
