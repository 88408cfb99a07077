"""Whatever a peer sends, an end answers it or refuses it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from securevfl_psi.endpoint import Endpoint
from securevfl_psi.errors import MalformedError, PSIError
from securevfl_psi.terms import PROTOCOLS, Protocol, Role
from securevfl_psi.wire import HEADER_BYTES, TAG_BYTES, FrameWriter, Kind
from support.psi_ends import BANK, SHOP, ends, terms

PAYLOADS = [b"", b"\0", bytes(8), bytes(16), bytes(32), bytes(64), b"\xff" * 8, b"\xff" * 32, b"[" * 4000, b"{}"]


def _changes(draw: Any, kind: Kind, payload: bytes) -> Iterator[tuple[Kind, bytes]]:
    """A frame left out, sent twice, cut, made longer, filled with other bytes or of another kind."""
    what = draw(st.sampled_from(["drop", "twice", "cut", "grow", "other bytes", "other kind", "flip", "new"]))
    if what == "twice":
        yield from ((kind, payload), (kind, payload))
    elif what == "cut":
        yield kind, payload[: draw(st.integers(0, len(payload)))]
    elif what == "grow":
        yield kind, payload + draw(st.sampled_from([payload, *PAYLOADS]))
    elif what == "other bytes":
        yield kind, draw(st.sampled_from(PAYLOADS))
    elif what == "other kind":
        yield draw(st.sampled_from(Kind)), payload
    elif what == "flip" and payload:
        place = draw(st.integers(0, len(payload) - 1))
        yield kind, payload[:place] + bytes([payload[place] ^ draw(st.integers(1, 255))]) + payload[place + 1 :]
    elif what == "new":
        yield kind, payload
        yield draw(st.sampled_from(Kind)), draw(st.sampled_from(PAYLOADS))


@settings(max_examples=80, deadline=None)
@given(st.sampled_from(PROTOCOLS), st.sampled_from(["receiver", "sender"]), st.data())
def test_whatever_a_peer_sends_is_answered_or_refused(protocol: Protocol, role: Role, data: st.DataObject) -> None:
    """Frames with the right number and tag, but another content: an error of this package, or a sound result."""
    learns = data.draw(st.sampled_from(["both", "receiver"]))
    bank = Endpoint(["ann", "bob", "eve"], terms("receiver", protocol, learns=learns))
    shop = Endpoint(["eve", "zoe"], terms("sender", protocol, learns=learns))
    target, liar = (bank, shop) if role == "receiver" else (shop, bank)
    writer, lied = FrameWriter(), data.draw(st.sets(st.integers(0, 4), max_size=2))
    for number in range(30):
        try:
            if frame := target.next_frame():
                liar.feed(frame)
        except PSIError:
            return  # the liar's own end is confused by what its lies led to
        if not (frame := liar.next_frame()):
            continue
        sent = [(Kind(frame[5]), frame[HEADER_BYTES:])]
        for kind, payload in _changes(data.draw, *sent[0]) if number in lied else sent:
            try:
                raw = writer.write(kind, payload)
            except MalformedError:
                continue
            try:
                target.feed(raw)
            except PSIError:
                refusal = target.next_frame()
                assert refusal is None or refusal[5] == Kind.REFUSED
                assert target.next_frame() is None
                assert not target.done
                return
            if target._talk is not None:
                other = "sender" if role == "receiver" else "receiver"
                writer.tag = hashlib.sha512(target._talk.session.dst + other.encode()).digest()[:TAG_BYTES]
    if target.done and target.result.rows is not None:
        assert set(target.result.rows.tolist()) <= set(range(3 if role == "receiver" else 2))


@settings(max_examples=30, deadline=None)
@given(st.sampled_from(PROTOCOLS), st.integers(0, 12), st.data())
def test_any_changed_byte_of_a_run_is_an_error_or_changes_nothing(protocol: Protocol, number: int, data: Any) -> None:
    """Fuzzing both ends: whatever happens to a frame, an end raises an error of this package or ends right."""
    bank, shop = ends(BANK, SHOP, protocol)
    count = 0
    try:
        while not (bank.done and shop.done):
            moved = False
            for source, target in ((bank, shop), (shop, bank)):
                frame = source.next_frame()
                if frame is None:
                    continue
                moved = True
                if count == number:
                    place = data.draw(st.integers(0, len(frame) - 1))
                    frame = frame[:place] + bytes([frame[place] ^ data.draw(st.integers(1, 255))]) + frame[place + 1 :]
                count += 1
                target.feed(frame)
            if not moved:
                return  # a length was changed: an end waits for bytes that never come
    except PSIError:
        return
    assert bank.result.count in (0, 1, 2) if protocol != "dh" else bank.result.count is not None
