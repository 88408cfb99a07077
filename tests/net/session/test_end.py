"""The session between two ends, step by step."""

from __future__ import annotations

from net.session.ends import pair, view
from securevfl_net.session import MessagePart, Up


def test_a_message_in_parts_arrives_once_and_in_order() -> None:
    both = pair()
    pipe = both.meet()
    assert [type(event) for event in both.ends[0].take_events()] == [Up]
    both.begin(1, pipe)
    first, second = both.ends
    second.take_events()
    first.send_part(memoryview(b"a" * 64), first_total=100)
    first.send_part(memoryview(b"b" * 36), first_total=None)
    both.settle(pipe)
    parts = [event for event in second.take_events() if isinstance(event, MessagePart)]
    assert [(part.view, part.total, bytes(part.data), part.last) for part in parts] == [
        (view(1), 100, b"a" * 64, False),
        (view(1), None, b"b" * 36, True),
    ]
    assert not first.held_bytes
