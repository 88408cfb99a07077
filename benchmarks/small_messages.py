"""What a small message costs: codec, digest and ledger at both ends; round trips beside a bare TLS socket.

    python -m benchmarks.small_messages [--quick]

*Steps*: CPU time of one process, each step by the difference to the ones before it, of the fastest repetition: other
work on the machine only adds. A sender encodes a message and hashes it, writes its line to the ledger's file and hands
it to its gate over a socket pair; a receiver takes it from there, decodes it and writes its line. *Round trips*:
`benchmarks.session_trips`, whose longest message shows what is left of it in bulk. A minute.
"""

from __future__ import annotations

import argparse
import gc
import socket
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from securevfl_net.gate.frames import Bulk, Frames, Inbox, Outbox
from securevfl_net.session import DEFAULT_SESSION_LIMITS

from benchmarks.common import write
from benchmarks.session_trips import measure_trips
from securevfl.ledger import Ledger
from securevfl.privacy import Clock, Link, Policy
from securevfl.transport import (
    NO_GUARD,
    Array,
    Guard,
    Kind,
    Message,
    Scalar,
    decode_message,
    encode_message,
    encode_parts,
    measure_message,
)
from securevfl.transport.network_channel import NetworkChannel
from securevfl.transport.wire import DEFAULT_LIMITS

Content = tuple[Kind, str, Mapping[str, Array], Mapping[str, Scalar], Guard]
"""Kind, step, arrays, settings, guard."""
_SHARE = Guard("masked", 128)

MESSAGES: Mapping[str, Content] = {
    "activations, 64 B, torch": (Kind.ACTIVATION, "cut/forward", {"z": torch.ones(4, 4)}, {}, NO_GUARD),
    "activations, 1 KiB, torch": (Kind.ACTIVATION, "cut/forward", {"z": torch.ones(16, 16)}, {}, NO_GUARD),
    "shares, 256 B": (Kind.SHARE, "shares/open", {"masked": np.arange(32, dtype=np.uint64)}, {}, _SHARE),
    "shares, 1 KiB": (Kind.SHARE, "shares/open", {"masked": np.arange(128, dtype=np.uint64)}, {}, _SHARE),
    "command": (Kind.CONTROL, "epoch/next", {}, {"epoch": 3, "go": True}, NO_GUARD),
}
SIZES = {"64 B": 16, "1 KiB": 256, "1 MiB": 1 << 18}
GROUP = 8
"""Messages that leave at the same time, where lines are written together."""
BOUND = 15.0
"""Most microseconds of codec, digest and ledger at the sender."""


class _Gate:
    """The program's end of a gate, and a gate that only takes bytes; a `Carrier`."""

    def __init__(self) -> None:
        self.outbox = Outbox()
        self._commit: Callable[[], object] = int
        self.program, self.gate = socket.socketpair()
        self._inbox = Inbox(lambda frame: None, lambda *head: None)
        for end in (self.program, self.gate):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)

    def wake_writer(self) -> None:
        """Wait for `write`, as a mesh waits for the end of the loop's turn."""

    def return_credit(self, index: int, generation: int, cost: int) -> None:
        """Drop it."""

    def commit_first(self, commit: Callable[[], None]) -> None:
        """Let `write` call it."""
        self._commit = commit

    def write(self) -> None:
        """Write what waits, its lines before it."""
        self._commit()
        self.outbox.write(self.program)

    def drain(self) -> None:
        """Take what was written, unmeasured."""
        self.gate.setblocking(False)
        self._inbox.read(self.gate)


def _least(
    work: Callable[[int], object], count: int, repeat: int, between: Callable[[], object] | None = None
) -> float:
    """CPU microseconds of one call of the fastest repetition; `between` repetitions, something unmeasured."""
    found = []
    for _ in range(repeat):
        start = time.process_time()
        work(count)
        found.append((time.process_time() - start) / count)
        if between is not None:
            between()
    return 1e6 * min(found)


def _steps(names: list[str], whole: list[float]) -> dict[str, float]:
    return {name: round(after - before, 2) for name, before, after in zip(names, whole, whole[1:], strict=False)}


def measure_sender(content: Content, folder: Path, count: int, repeat: int) -> dict[str, float]:
    """CPU microseconds of each step at the sender, in the order in which a link takes them."""
    kind, what, arrays, meta, guard = content
    ledger = Ledger("a", run="sends", job="", path=folder / "a.jsonl", kept=False)
    gate = _Gate()
    channel = _channel(gate)

    def compose(count: int) -> None:
        for _ in range(count):
            Message(kind, what, arrays, meta, guard)

    def digest(count: int) -> None:
        for _ in range(count):
            measure_message(Message(kind, what, arrays, meta, guard))

    def record(count: int, group: int = 1, encodes: bool = False) -> None:
        for number in range(count):
            message = Message(kind, what, arrays, meta, guard)
            ledger.record("sent", "b", message, measure_message(message)[0], grouped=True)
            if encodes:
                encode_parts(message)
            if number % group == 0:
                ledger.commit()

    def hand_over(count: int) -> None:
        for _ in range(count):
            message = Message(kind, what, arrays, meta, guard)
            ledger.record("sent", "b", message, measure_message(message)[0], grouped=True)
            ledger.commit()
            _run(channel.send(message))
            gate.write()

    def drain() -> None:
        gate.drain()
        channel.add_room(channel._out)

    encode = partial(record, encodes=True)
    whole = [_least(work, count, repeat) for work in (compose, digest, record, encode)]
    whole.append(_least(hand_over, count, repeat, drain))
    found = _steps(["header and digest", "ledger line", "bytes for the channel", "hand-over to the gate"], whole)
    found["codec, digest and ledger"] = round(whole[3] - whole[0], 2)
    grouped = _least(partial(record, group=GROUP, encodes=True), count, repeat)
    found["codec, digest and ledger, lines in groups"] = round(grouped - whole[0], 2)
    found["all, by a link"] = round(_measure_link(content, folder, count, repeat), 2)
    ledger.close()
    return found


def _measure_link(content: Content, folder: Path, count: int, repeat: int) -> float:
    """The whole of `Link.send`: declarations and policy included."""
    kind, what, arrays, meta, guard = content
    gate = _Gate()
    channel = _channel(gate)
    ledger = Ledger("a", run="links", job="", path=folder / "link.jsonl", kept=False)
    link = Link("a", "b", channel, ledger, Policy(), Clock())

    def send(count: int) -> None:
        for _ in range(count):
            _run(link.send(kind, what, meta=meta, guard=guard, **arrays))
            gate.write()

    def drain() -> None:
        gate.drain()
        channel.add_room(channel._out)

    found = _least(send, count, repeat, drain)
    ledger.close()
    return found


def measure_receiver(content: Content, folder: Path, count: int, repeat: int) -> dict[str, float]:
    """CPU microseconds of each step at the receiver."""
    kind, what, arrays, meta, guard = content
    raw = encode_message(Message(kind, what, arrays, meta, guard))
    ledger = Ledger("b", run="reads", job="", path=folder / "b.jsonl", kept=False)
    gate = _Gate()
    channel = _channel(gate)
    inbox = Inbox(channel.take_parts, lambda *head: None)
    gate.program.setblocking(False)

    def fill() -> None:
        outbox = Outbox()
        for _ in range(count):
            bulk = Bulk(Frames.PART, 1, 0, len(raw))
            outbox.put_bulk(bulk)
            outbox.add_part(bulk, memoryview(raw))
        gate.gate.setblocking(True)
        outbox.write(gate.gate)

    def take(count: int) -> None:
        inbox.read(gate.program)

    def receive(count: int) -> None:
        for _ in range(count):
            _run(channel.receive())

    def record(count: int) -> None:
        for message in messages:
            ledger.record("received", "a", message, len(raw))

    taken, received, recorded = [], [], []
    for _ in range(repeat):
        fill()
        taken.append(_least(take, count, 1))
        received.append(_least(receive, count, 1))
        messages = [decode_message(raw, DEFAULT_LIMITS) for _ in range(count)]
        recorded.append(_least(record, count, 1))  # with a digest, which the channel has computed
    digest = _least(lambda count: [measure_message(decode_message(raw)) for _ in range(count)], count, repeat)
    digest -= _least(lambda count: [decode_message(raw) for _ in range(count)], count, repeat)
    ledger.close()
    return {
        "part and digest": round(min(taken), 2),
        "decode": round(min(received), 2),
        "ledger line": round(min(recorded) - digest, 2),
    }


def _channel(gate: _Gate) -> NetworkChannel:
    limits = DEFAULT_SESSION_LIMITS
    return NetworkChannel(gate, 0, bytes(16), 1, window=limits.window, part=limits.part, limits=DEFAULT_LIMITS)


def _run(work: Awaitable[Any]) -> None:
    """Run what need not wait, without a loop."""
    try:
        work.__await__().__next__()
    except StopIteration:
        return
    raise RuntimeError("it waits: the window or the socket is full")


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="few repetitions, to see that it works")
    options = parser.parse_args()
    torch.set_num_threads(1)
    count, repeat = (100, 5) if options.quick else (200, 60)
    found: dict[str, dict[str, object]] = {}
    gc.disable()
    with tempfile.TemporaryDirectory() as place:
        for name, content in MESSAGES.items():
            folder = Path(place) / str(len(found))
            folder.mkdir()
            found[name] = {
                "bytes": len(encode_message(Message(*content))),
                "sender": measure_sender(content, folder, count, repeat),
                "receiver": measure_receiver(content, folder, count, repeat),
            }
    gc.enable()
    rounds, trips = (2, 50) if options.quick else (15, 400)
    trip = measure_trips(SIZES, rounds=rounds, trips=trips)
    write(
        "small_messages",
        {
            "CPU microseconds a message": found,
            "bound at the sender": BOUND,
            "lines of a group": GROUP,
            "round trips": trip,
        },
    )


if __name__ == "__main__":
    main()
