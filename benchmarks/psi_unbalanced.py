"""A small table against a large one as a job aligns them: `dh`, `ot`, `unbalanced` and that with a kept filter.

python -m benchmarks.psi_unbalanced [--small 1024] [--large 1048576] [--rounds 1] [--megabits 0 16 8 4]

Two processes over localhost TCP, measured as `psi_two_processes` says; here the scripts of a joint run move, which an
alignment drives over its links. The receiver has the small set, half of which is common. Each protocol runs in fresh
processes; `unbalanced, kept` is the run after `unbalanced` that finds the publication and the filter on its shelves.
With `--megabits`, the forwarder of `shaping` stands between them.
"""

from __future__ import annotations

import argparse
import os
import queue
import socket
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from securevfl_psi.identifiers import Identifiers
from securevfl_psi.joint import Joint, JointTerms
from securevfl_psi.joint.state import JointProtocol
from securevfl_psi.wire import FrameReader, FrameWriter

from benchmarks.common import write
from benchmarks.psi_two_processes import run_two_processes
from benchmarks.shaping import shaped
from securevfl.align.result import shared_order
from securevfl.align.shelf import FolderShelf

_SHELF = "SECUREVFL_BENCHMARK_SHELF"


def run_dh(role: str, sock: socket.socket, ids: Sequence[str]) -> np.ndarray:
    """By `dh`."""
    return _run(role, sock, ids, "dh")


def run_ot(role: str, sock: socket.socket, ids: Sequence[str]) -> np.ndarray:
    """By `ot`."""
    return _run(role, sock, ids, "ot")


def run_unbalanced(role: str, sock: socket.socket, ids: Sequence[str]) -> np.ndarray:
    """By `unbalanced`, with the shelves of the folder in the environment."""
    return _run(role, sock, ids, "unbalanced")


Party = Callable[[str, socket.socket, Sequence[str]], np.ndarray]

PARTIES: Mapping[str, Party] = {
    "dh": run_dh,
    "ot": run_ot,
    "unbalanced": run_unbalanced,
    "unbalanced, kept": run_unbalanced,
}
"""Name → what each process runs, in this order."""


def _run(role: str, sock: socket.socket, ids: Sequence[str], protocol: JointProtocol) -> np.ndarray:
    peer = "sender" if role == "receiver" else "receiver"
    column = Identifiers.of_texts(ids)
    terms = JointTerms(
        name=role,
        active="receiver",
        passive=("sender",),
        protocol=protocol,
        shelf=FolderShelf(Path(os.environ[_SHELF]) / role, 1),
    )
    joint = Joint(column, terms, order=lambda rows: shared_order(column, rows, 7), allow=lambda *_: None)
    news: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(sock, news), daemon=True).start()
    reader, writer = FrameReader(), FrameWriter()
    sending, hearing = joint.send_script(peer), joint.receive_script(peer)
    due = next(hearing, None)
    told, heard = False, False
    while not (told and heard):
        try:
            while not told and (frame := next(sending)) is not None:
                sock.sendall(writer.write(frame.kind, frame.payload))
                while not news.empty():
                    due, heard = _feed(hearing, reader, news.get(), due)
        except StopIteration:
            told = True
        if not heard and not joint.is_busy(peer):
            due, heard = _feed(hearing, reader, news.get(), due)
    return joint.result.rows


def _feed(hearing: Any, reader: FrameReader, data: bytes, due: Any) -> tuple[Any, bool]:
    if not data:
        raise RuntimeError("the peer hung up")
    try:
        for frame in reader.feed(data):
            while due is None:
                due = next(hearing)
            due = hearing.send(frame)
    except StopIteration:
        return None, True
    return due, False


def _listen(sock: socket.socket, news: queue.SimpleQueue[bytes]) -> None:
    while data := sock.recv(1 << 20):
        news.put(data)
    news.put(b"")


def over(megabits: float, small: int, large: int) -> dict[str, dict[str, Any]]:
    """Each of them once, over a line of so many megabits a second each way; 0 for none between the two."""
    line = partial(shaped, megabits=megabits, delay_ms=0.0) if megabits else None
    found: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory() as folder:
        os.environ[_SHELF] = folder
        for name, party in PARTIES.items():
            one = found[name] = run_two_processes(party, small, sender=large, line=line)
            both = [one[role] for role in ("receiver", "sender")]
            print(
                f"{megabits or 'no':>4} {name:18} {one['seconds']:7.2f} s  CPU {both[0]['CPU seconds']:6.2f} and "
                f"{both[1]['CPU seconds']:6.2f} s  {sum(b['bytes sent'] for b in both) / 1e6:8.2f} MB  "
                f"exact {one['exact']}",
                flush=True,
            )
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--small", type=int, default=1 << 10)
    parser.add_argument("--large", type=int, default=1 << 20)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--megabits", type=float, nargs="+", default=[0], help="lines to measure over; 0 for none")
    options = parser.parse_args()
    found: dict[str, dict[str, list[dict[str, Any]]]] = {}
    for _ in range(options.rounds):
        for megabits in options.megabits:
            runs = found.setdefault(f"{megabits:g} Mbit/s" if megabits else "no line", {})
            for name, one in over(megabits, options.small, options.large).items():
                runs.setdefault(name, []).append(one)
    write("psi_unbalanced", {"small": options.small, "large": options.large, "runs": found})


if __name__ == "__main__":
    main()
