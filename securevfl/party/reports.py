"""Messages of the rendezvous, before training and after a party has come back: REPORT and READY.

A report lists the checkpoints from which a party can resume. It never changes: a party with new state, because it
trained in between, sends a report with another number. So a view, which is a digest of all reports, refers to one state
of each party.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

import msgspec
from msgspec import Meta

from securevfl.errors import ProtocolError

__all__ = ["REPORT_BYTES", "CheckpointKey", "Ready", "Report", "View", "decode_note", "encode_note", "view_of"]

REPORT_BYTES = 64 << 10
"""The longest note of this kind."""

_MARK = 16
_Count = Annotated[int, Meta(ge=0, lt=1 << 31)]
_Hex = Annotated[str, Meta(max_length=128, pattern="^[0-9a-f]*$")]
_Name = Annotated[str, Meta(max_length=256)]
_Incarnation = Annotated[str, Meta(max_length=64, pattern="^[0-9]{1,10}-[0-9a-f]{32}$")]


class CheckpointKey(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, order=True):
    """A checkpoint that a party has whole.

    Attributes:
        epoch: epochs that were done.
        step: batches of the epoch after it that were done too; 0 for a checkpoint between epochs.
        attempt: that wrote it. Checkpoints of one place by different attempts do not belong together.
        digest: of the party's own file; every party has another one.
    """

    epoch: _Count
    step: _Count
    attempt: _Count
    digest: _Hex = ""

    @property
    def position(self) -> tuple[int, int, int]:
        """The coordinates that checkpoints of one attempt share at all parties."""
        return self.epoch, self.step, self.attempt


class Report(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag="report"):
    """What one party has at one moment.

    Attributes:
        incarnation: of the party's process, as text: how often it was started, and 128 random bits.
        parks: reports that this process gave before this one.
        kept: checkpoints.
        agreed: number of the last attempt that it agreed to.
        begun: number of the last attempt that it began.
        alignment: mark of the view in which the party's stored alignment was made, hexadecimal; empty without one.
        approval: its signature of the agreement; empty while nobody approved.
        words: peer → hash of the last line of the peer's ledger that this party knows from a signed head.
        readmits: party whose folder was restored → this party's signature that admits it again.
        finished: mark of the view in which it finished and stored its result, hexadecimal; empty before it did.
    """

    incarnation: _Incarnation
    parks: _Count = 0
    kept: Annotated[tuple[CheckpointKey, ...], Meta(max_length=64)] = ()
    agreed: _Count = 0
    begun: _Count = 0
    alignment: _Hex = ""
    approval: Annotated[bytes, Meta(max_length=4096)] = b""
    words: Annotated[tuple[tuple[_Name, _Hex], ...], Meta(max_length=64)] = ()
    readmits: Annotated[tuple[tuple[_Name, Annotated[bytes, Meta(max_length=4096)]], ...], Meta(max_length=64)] = ()
    finished: _Hex = ""

    @property
    def start_count(self) -> int:
        """How often the party's process was started."""
        return int(self.incarnation.partition("-")[0])


class Ready(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag="ready"):
    """A party takes part in a view, and has written down that it does."""

    mark: Annotated[bytes, Meta(min_length=_MARK, max_length=_MARK)]


@dataclass(frozen=True)
class View:
    """The state from which all parties continue together.

    Attributes:
        mark: 16 bytes, a digest of all parties' reports; every message of training carries it.
        attempt: number of the attempt.
        start: epochs, batches of the next one, and the attempt that wrote the checkpoints; None to start from the
            beginning.
        alignment: mark of the alignment that all have; empty if they must align again.
    """

    mark: bytes
    attempt: int
    start: tuple[int, int, int] | None
    alignment: str


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Report | Ready)


def encode_note(said: Report | Ready) -> bytes:
    """The payload of a note."""
    return _encoder.encode(said)


def decode_note(peer: str, payload: bytes) -> Report | Ready:
    """Decode a peer's message.

    Raises:
        ProtocolError: it is neither a report nor a READY, or is not in canonical form.
    """
    if len(payload) > REPORT_BYTES:
        raise ProtocolError(f"{peer!r} sent a report of {len(payload)} bytes; at most {REPORT_BYTES} are allowed")
    try:
        said: Report | Ready = _decoder.decode(payload)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise ProtocolError(f"{peer!r} sent something else than a report: {error}") from None
    if _encoder.encode(said) != payload:
        raise ProtocolError(f"{peer!r} sent a report that is not in the one form that a report has")
    return said


def view_of(reports: Mapping[str, Report]) -> View:
    """The view that follows from all parties' reports, the same wherever it is computed.

    Args:
        reports: party → its report, of all parties.
    """
    every = sorted(reports.items())
    digests = [(name, hashlib.sha256(encode_note(report)).digest()) for name, report in every]
    mark = hashlib.sha256(_encoder.encode(["securevfl view v1", digests])).digest()[:_MARK]
    aligned = {report.alignment for _, report in every}
    alignment = aligned.pop() if len(aligned) == 1 else ""
    places = [{kept.position for kept in report.kept} for _, report in every]
    common = set.intersection(*places) if alignment else set()
    attempt = 1 + max(report.agreed for _, report in every)
    return View(mark, attempt, max(common, default=None), alignment)
