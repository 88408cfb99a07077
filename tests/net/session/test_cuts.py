"""Five hundred cuts at random bytes: nothing lost, nothing doubled, all in order, in bounded memory."""

from __future__ import annotations

import random

from net.session.ends import SMALL, Pair, Pipe, pair
from securevfl_net.session import Blocked, MessagePart, Up


def _messages(luck: random.Random, count: int) -> list[bytes]:
    return [luck.randbytes(luck.choice((1, 30, 64, 65, 700))) for _ in range(count)]


def _send(both: Pair, side: int, waiting: list[bytes]) -> None:
    end = both.ends[side]
    while waiting and end.is_ready:
        message = waiting.pop(0)
        for at in range(0, len(message), SMALL.part):
            part = memoryview(message)[at : at + SMALL.part]
            end.send_part(part, first_total=None if at else len(message))


def _take(both: Pair, side: int, got: list[bytes], whole: list[bytes]) -> int:
    """Read all events; the number of times that the session came up."""
    ups = 0
    for event in both.ends[side].take_events():
        if isinstance(event, MessagePart):
            got.append(bytes(event.data))
            if event.last:
                whole.append(b"".join(got))
                got.clear()
            both.ends[side].credit_window(event.view, event.cost)
        elif isinstance(event, Up):
            ups += 1
            assert event.resumed or ups == 1
        else:
            assert isinstance(event, Blocked)
    assert both.ends[side].unread_bytes <= SMALL.window
    return ups


def test_five_hundred_cuts() -> None:
    luck = random.Random(13)
    both = pair()
    pipe: Pipe = both.meet()
    both.begin(1, pipe)
    for end in both.ends:
        end.take_events()
    said = [_messages(luck, 6_000) for _ in range(2)]
    waiting = [list(messages) for messages in said]
    parts: list[list[bytes]] = [[], []]
    whole: list[list[bytes]] = [[], []]
    cuts = ups = 0
    while len(whole[0]) < len(said[1]) or len(whole[1]) < len(said[0]):
        for side in (0, 1):
            _send(both, side, waiting[side])
            pipe.write(side, luck.choice((1, 300, 1 << 18)))
            way = len(pipe.ways[side])
            pipe.carry(side, luck.randint(0, way) if way and luck.random() < 0.3 else None)
            ups += _take(both, 1 - side, parts[1 - side], whole[1 - side])
        if cuts < 500 and luck.random() < 0.2:
            cuts += 1
            pipe.close()
            pipe = both.connect()
    assert cuts == 500
    assert ups > 500
    assert whole[0] == said[1]
    assert whole[1] == said[0]


def test_connections_are_replaced_while_both_send() -> None:
    """The newer connection takes over without a pause: nothing is lost with the older one, though it is not cut."""
    luck = random.Random(7)
    both = pair()
    pipes = [both.meet()]
    both.begin(1, *pipes)
    for end in both.ends:
        end.take_events()
    said = [_messages(luck, 1_500) for _ in range(2)]
    waiting = [list(messages) for messages in said]
    parts: list[list[bytes]] = [[], []]
    whole: list[list[bytes]] = [[], []]
    replaced = 0
    while len(whole[0]) < len(said[1]) or len(whole[1]) < len(said[0]):
        for pipe in luck.sample(pipes, len(pipes)):
            for side in (0, 1):
                _send(both, side, waiting[side])
                pipe.write(side, luck.choice((1, 300, 1 << 18)))
                way = len(pipe.ways[side])
                pipe.carry(side, luck.randint(0, way) if way and luck.random() < 0.5 else None)
                _take(both, 1 - side, parts[1 - side], whole[1 - side])
        if luck.random() < 0.2 and len(pipes) < 3:
            pipes.append(both.connect())
        done = [pipe for pipe in pipes if all(line.over for line in pipe.lines)]
        replaced += len(done)
        pipes = [pipe for pipe in pipes if pipe not in done]
    assert replaced > 50
    assert whole[0] == said[1]
    assert whole[1] == said[0]
