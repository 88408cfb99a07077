"""A peer's heartbeat, as its gate and its program wrote it. It is untrusted input: check it before use."""

from __future__ import annotations

import math
import struct
from typing import Annotated

import msgspec
from msgspec import Meta

from securevfl_net.link_state import Beat
from securevfl_net.session import make_printable

__all__ = ["read_beat"]

_SEEN = struct.Struct("<fI")
_Count = Annotated[int, Meta(ge=0)]
_Name = Annotated[str, Meta(max_length=300)]
_BEAT = msgspec.msgpack.Decoder(tuple[_Count, _Count, _Count, _Name, _Name, Annotated[bytes, Meta(max_length=16)]])


def read_beat(body: bytes) -> tuple[Beat, bytes, float] | None:
    """Decode a heartbeat: what the peer's gate observed of its program, and what the program last reported.

    Args:
        body: seconds that the program was seen to compute (float32), milliseconds since its last report (uint32), and
            that report, if any: steps, messages sent and read, the peers and the step it waits for, and the view in
            which it closed its end.

    Returns:
        The beat, that view or nothing, and the seconds since the program's last sign of life; None if the bytes are
        not a sign of life.
    """
    if len(body) < _SEEN.size:
        return None
    worked, quiet = _SEEN.unpack_from(body)
    if not 0 <= worked < math.inf:
        return None
    if len(body) == _SEEN.size:
        return Beat(worked=worked), b"", quiet / 1e3
    try:
        steps, sent, read, awaits, step, closed = _BEAT.decode(body[_SEEN.size :])
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    awaits, step = (make_printable(text.encode(), 1200) for text in (awaits, step))
    return Beat(steps, sent, read, awaits, step, worked), closed, quiet / 1e3
