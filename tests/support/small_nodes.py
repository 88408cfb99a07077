"""A node whose agreements are one line each, and whose processes are shell scripts: its rules, in a moment.

Everything else is the node's own: the folder and its entries, the queue, processes, doors, what it keeps and shows.
"""

from __future__ import annotations

import asyncio
import hashlib
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from securevfl_net.durable import make_folder

from securevfl.agreement import Address
from securevfl.node import child, daemon, roster
from securevfl.node.daemon import Node
from securevfl.node.node_file import NodeEntry, NodeFile, NodeLimits, write_entry

__all__ = ["SmallNode", "run_small_node", "shown_as"]

PATIENCE = 60.0
RUNS = "exec sleep 60\n"
_SHELL = '#!/bin/sh\n[ "$3" = serve ] && where=$5 || where=$4\ncd "$(dirname "$where")" || exit 2\n'
_SHELL += 'echo "$3" >> starts.txt\nstate=$PWD/state\nserves() { [ "$1" = serve ]; }\n. ./act.sh\n'


def shown_as(phase: str) -> str:
    """Shell text that runs, and shows a phase in which the peer ``shop`` is away."""
    text = '{"format": 1, "pid": %s, "phase": "%s", "peers": {"shop": {"connected": false}}}'
    return f"mkdir -p state\nprintf '{text}' $$ {phase} > state/status.json\n{RUNS}"


def _read_files(entry: NodeEntry) -> tuple[Any, Any]:
    party, state = entry.file.read_text("utf-8").split()
    return (
        SimpleNamespace(digest=hashlib.sha256(entry.agreement.read_bytes()).hexdigest()),
        SimpleNamespace(party=party, state=Path(state)),
    )


class SmallNode:
    """A node's folder, and the daemon that runs there.

    Attributes:
        said: what the daemon said: event and words.
    """

    def __init__(self, root: Path, **limits: Any) -> None:
        self.root, self.folder = root, root / "node"
        make_folder(self.folder / "agreements", private=True)
        self.limits = NodeLimits(**limits)
        self.said: list[tuple[str, str]] = []
        self._node: Node | None = None

    @property
    def node(self) -> Node:
        assert self._node is not None
        return self._node

    def add(self, name: str, act: str, *, number: str = "", state: str = "", **more: Any) -> NodeEntry:
        """Add an agreement.

        Args:
            name: of the entry.
            act: shell text that is its process.
            number: what makes it another agreement than others; its name unless given.
            state: of the party's state folder; its own unless given.
            **more: see `NodeEntry`.
        """
        place = self.root / name
        place.mkdir(exist_ok=True)
        (place / "act.sh").write_text(act)
        (place / "agreement.toml").write_text(number or name)
        (place / "own").write_text(f"bank {state or place / 'state'}")
        entry = NodeEntry(name=name, agreement=place / "agreement.toml", file=place / "own", **more)
        write_entry(self.folder, entry)
        return entry

    def starts(self, name: str) -> list[str]:
        """What was started: ``"party"`` or ``"serve"``, for each start."""
        path = self.root / name / "starts.txt"
        return path.read_text().split() if path.exists() else []

    def row(self, name: str) -> dict[str, Any]:
        """What the daemon shows of an agreement; empty before it does."""
        rows: Any = self.node.status.get("agreements", {})
        return dict(rows.get(name, {}))

    def stages(self) -> dict[str, str]:
        rows: Any = self.node.status.get("agreements", {})
        return {name: row["stage"] for name, row in rows.items()}

    async def until(self, holds: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE
        while not holds():
            assert time.monotonic() < deadline, f"{self.node.status}\n{self.said}"
            await asyncio.sleep(0.01)

    @asynccontextmanager
    async def run(self) -> AsyncIterator[Node]:
        """The daemon, in this process, until the end of the block."""
        with _small(self.root):
            file = NodeFile(
                folder=self.folder,
                organisation="bank",
                listen=Address("127.0.0.1", 0),
                metrics=None,
                limits=self.limits,
            )
            self._node = node = Node(file, lambda event, words: self.said.append((event, words)))
            running = asyncio.create_task(node.run())
            try:
                yield node
                assert not running.done(), "the daemon ended"
            finally:
                node.stop()
                await running


@contextmanager
def _small(root: Path) -> Iterator[None]:
    shell = root / "shell"
    shell.write_text(_SHELL)
    shell.chmod(0o755)
    with (
        patch.object(NodeEntry, "read_files", _read_files),
        patch.object(child, "sys", SimpleNamespace(executable=str(shell), path=sys.path)),
        patch.object(daemon, "_LOOK", 0.01),
        patch.object(daemon, "_FIRST", 0.02),
        patch.object(roster, "_LATER", 0.05),
    ):
        yield


def run_small_node(root: str) -> None:
    """The daemon of `root`, in a process of its own, until it is killed."""

    async def work() -> None:
        async with SmallNode(Path(root), jobs=8).run():
            await asyncio.Event().wait()

    asyncio.run(work())
