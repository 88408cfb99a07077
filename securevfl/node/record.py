"""What a node knows of its agreements, kept over restarts: a file that is written whole and synced, when it changes."""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path

import msgspec
from securevfl_net.durable import write_atomic

from securevfl.errors import InputError

__all__ = ["HostedRecord", "Stage", "read_records", "write_records"]

FORMAT = 1


class Stage(StrEnum):
    """Where an agreement is."""

    QUEUED = "queued"
    RUNNING = "running"
    SERVING = "serving"
    AGAIN = "starts again"
    FINISHED = "finished"
    PERSON = "a person must act"
    PAUSED = "paused"


class HostedRecord(msgspec.Struct, kw_only=True):
    """One agreement.

    Attributes:
        place: in the queue: the smallest starts first.
        trained: whether the party's training is done.
        code: exit code of the last process that ended; None before.
        reason: why it waits or needs a person.
        failed: whether it needs a person.
        failures: starts in a row that ended early.
        starts: of processes.
        resumed: see `NodeEntry.resumed`, when it was last looked at.
        entrance: of the agreement and party that all this is about, see `name_entrance`; empty before they were read.
    """

    place: int = 0
    trained: bool = False
    code: int | None = None
    reason: str = ""
    failed: bool = False
    failures: int = 0
    starts: int = 0
    resumed: int = 0
    entrance: str = ""


class _File(msgspec.Struct):
    format: int
    agreements: dict[str, HostedRecord]


def read_records(folder: Path) -> dict[str, HostedRecord]:
    """Name → what the node knew when it was last written; empty for a new node.

    Raises:
        InputError: the file cannot be read.
    """
    path = folder / "state.json"
    try:
        found = msgspec.json.decode(path.read_bytes(), type=_File)
    except FileNotFoundError:
        return {}
    except (OSError, msgspec.MsgspecError) as error:
        raise InputError(
            f"{path} cannot be read ({error}): remove it; the node then starts every agreement anew, and those that "
            "are done end at once"
        ) from None
    if found.format != FORMAT:
        raise InputError(f"{path} has format {found.format}; {FORMAT} was expected: run the securevfl that wrote it")
    return found.agreements


def write_records(folder: Path, records: dict[str, HostedRecord]) -> None:
    """Write them; returns when they are on the disk.

    Raises:
        DiskFull: no room; the file is as before.
    """
    content = json.loads(msgspec.json.encode(_File(FORMAT, records)))
    write_atomic(folder / "state.json", json.dumps(content, indent=1).encode() + b"\n", private=True)
