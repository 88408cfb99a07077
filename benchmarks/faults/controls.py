"""Known bugs put back: each must be found by the cell that is made for it, or the matrix proves nothing."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from benchmarks.faults.cells import Cell

if TYPE_CHECKING:
    from benchmarks.faults.runs import Runs

__all__ = ["CONTROLS", "Control", "run_controls"]

_KIND = "logistic_regression plain"


@dataclass(frozen=True)
class Control:
    """A known bug.

    Attributes:
        name: what it is.
        patch: puts it into a party's process.
        cell: finds it.
        classes: of what must be broken, one of them.
    """

    name: str
    patch: Callable[[], None]
    cell: Cell
    classes: Sequence[str]


def _lose_finished() -> None:
    """A party does not hear that its peer has its result, and the peer's goodbye does not imply it."""
    from securevfl.run.runner import PartyRunner

    send = PartyRunner._send_statements

    async def lossy(runner: Any, peers: Any) -> None:
        if runner._mesh.me != "shop1":
            await send(runner, peers)

    async def forgetful(runner: Any, peer: str) -> None:
        runner._handle_departure(peer, "its process ended")

    PartyRunner._send_statements = lossy  # type: ignore[method-assign]
    PartyRunner._handle_goodbye = forgetful  # type: ignore[method-assign]


def _ignore_short_writes() -> None:
    """A line that was written in part counts as written, and what failed is forgotten."""
    from securevfl.ledger import chain

    def careless(file: Any, data: bytes) -> None:
        with suppress(OSError):
            os.write(file._handle, data)
        file.end = os.fstat(file._handle).st_size
        file._group.clear()
        file.waiting = 0

    chain.LineFile._store = careless  # type: ignore[method-assign]


def _forget_the_book() -> None:
    """The result book is not on the disk when an answer leaves."""
    from securevfl.privacy import ResultBook

    ResultBook.add = lambda *_, **__: None  # type: ignore[method-assign]


def _accept_stale_folders() -> None:
    """Peers accept an older start, and a folder that knows less than they do."""
    from securevfl_net.session import hello, meeting

    from securevfl.party import attempts
    from securevfl.process.attempt_store import StoredAttempts

    StoredAttempts._check_older = lambda *_: None  # type: ignore[method-assign]
    attempts.describe_lost_attempts = lambda _: ""
    hello.known_or_newer = meeting.known_or_newer = lambda *_: None  # type: ignore[attr-defined]


def _draw_other_batches() -> None:
    """A party that resumes draws another secret than the one that it began with."""
    from securevfl.party_context import PartySecret
    from securevfl.process.state_folder import StateFolder

    StateFolder.keep_secret = lambda _, fresh: PartySecret.generate()  # type: ignore[method-assign]


CONTROLS: Sequence[Control] = (
    Control(
        "the note of the end is lost",
        _lose_finished,
        Cell(_KIND, "finish", "link delayed", "first", 1),
        ("stuck",),
    ),
    Control(
        "a short write is ignored",
        _ignore_short_writes,
        Cell(_KIND, "training", "disk full", "middle", 1),
        ("audit", "counts"),
    ),
    Control(
        "answers are not counted on the disk",
        _forget_the_book,
        Cell(_KIND, "training", "program killed", "middle", 1),
        ("counts",),
    ),
    Control(
        "a resumed party draws another secret",
        _draw_other_batches,
        Cell(_KIND, "alignment", "program killed", "first", 1),
        ("model",),
    ),
    Control(
        "an older folder is accepted",
        _accept_stale_folders,
        Cell(_KIND, "training", "folder restored", "last", 1),
        ("accepted",),
    ),
)


def run_controls(runs: Runs) -> list[str]:
    """Run each; names of those that were not found."""
    missed = []
    for control in CONTROLS:
        found = runs.run_cell(control.cell, control.patch)
        hit = [line for line in found["broken"] if line.partition(":")[0] in control.classes]
        print(f"{found.get('seconds', 0):6.1f} s {found.get('cpu', 0):5.1f} CPU-s  control: {control.name}: ", end="")
        print(f"found: {hit[0]}" if hit else f"missed ({found['broken']})", flush=True)
        if not hit:
            missed.append(control.name)
    return missed
