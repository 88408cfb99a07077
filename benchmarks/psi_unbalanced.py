"""A small table against a large one as a job aligns them: `dh`, `ot`, `unbalanced` and that with a kept filter.

python -m benchmarks.psi_unbalanced [--small 1024] [--large 1048576] [--rounds 1]

Two processes over localhost TCP, measured as `psi_two_processes` says; here the scripts of a joint run move, which an
alignment drives over its links. The receiver has the small set, half of which is common. Each protocol runs in fresh
processes; `unbalanced, kept` is the run after `unbalanced` that finds the publication and the filter on its shelves.
"""

from __future__ import annotations

import argparse
import os
import queue
import socket
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from securevfl_psi.identifiers import Identifiers
from securevfl_psi.joint import Joint, JointTerms
from securevfl_psi.joint.state import JointProtocol
from securevfl_psi.wire import FrameReader, FrameWriter

from benchmarks.common import write
from benchmarks.psi_two_processes import run_two_processes
from securevfl.align.result import order
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
    joint = Joint(column, terms, order=lambda rows: order(column, rows, 7), allow=lambda *_: None)
    news: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(sock, news), daemon=True).start()
    reader, writer = FrameReader(), FrameWriter()
    sending, hearing = joint.sending(peer), joint.hearing(peer)
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
        if not heard and not joint.busy(peer):
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--small", type=int, default=1 << 10)
    parser.add_argument("--large", type=int, default=1 << 20)
    parser.add_argument("--rounds", type=int, default=1)
    options = parser.parse_args()
    found: dict[str, list[dict[str, Any]]] = {}
    for _ in range(options.rounds):
        with tempfile.TemporaryDirectory() as folder:
            os.environ[_SHELF] = folder
            for name, party in (
                ("dh", run_dh),
                ("ot", run_ot),
                ("unbalanced", run_unbalanced),
                ("unbalanced, kept", run_unbalanced),
            ):
                one = run_two_processes(party, options.small, sender=options.large)
                found.setdefault(name, []).append(one)
                both = [one[role] for role in ("receiver", "sender")]
                print(
                    f"{name:18} {one['seconds']:7.2f} s  CPU {both[0]['CPU seconds']:6.2f} and "
                    f"{both[1]['CPU seconds']:6.2f} s  {sum(b['bytes sent'] for b in both) / 1e6:8.2f} MB  "
                    f"exact {one['exact']}"
                )
    write("psi_unbalanced", {"small": options.small, "large": options.large, "runs": found})


if __name__ == "__main__":
    main()
