"""The daemon: it keeps the agreements of a folder running, each as a child process, behind one port.

Children end with the daemon, in good order: also when it is killed, because each sees its door close. The next daemon
starts them again once they have ended, and each goes on where it stopped.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from securevfl_net.dialers import Address
from securevfl_net.durable import is_held, make_folder
from securevfl_net.entrance import name_entrance
from securevfl_net.errors import exit_code_of
from securevfl_net.exit_codes import should_restart
from securevfl_net.front import Front

from securevfl.errors import DiskFull, InputError, SecureVFLError
from securevfl.node.child import Child, start_child
from securevfl.node.node_file import NodeEntry, NodeFile, read_entries
from securevfl.node.queue import QueuedJob, choose_starts, choose_yields
from securevfl.node.record import HostedRecord, Stage, read_records, write_records
from securevfl.process.state_folder import show_status
from securevfl.process.status import read_status

__all__ = ["Node"]

_LOOK = 0.5
"""Seconds between two looks at the folder and the children."""
_FIRST, _MOST = 1.0, 60.0
"""Seconds until a process that ended early starts again: the first time, and at most."""
_KEEPS = 3
"""Starts in a row that may end early before others have an agreement's place while it waits for the next."""
_LONG = 120.0
"""Seconds after which a process that ends early counts as one that had begun well."""
_CALLED = 60.0
"""Seconds for which a peer's call gives an agreement its turn before others."""


@dataclass(kw_only=True)
class _Hosted:
    """An agreement of which the files could be read."""

    entry: NodeEntry
    party: str
    digest: str
    state: Path
    entrance: str
    child: Child | None = None
    again: float = 0.0
    called: float = 0.0
    turn: float = 0.0


class Node:
    """A node.

    Args:
        file: its ``node.toml``.
        say: receives a line about whatever happens: event and words.

    Raises:
        InputError: what it kept cannot be read, or it cannot listen.
    """

    def __init__(self, file: NodeFile, say: Callable[[str, str], None]) -> None:
        self.file = file
        self._say = say
        self.records = read_records(file.folder)
        self._hosted: dict[str, _Hosted] = {}
        self._seen: dict[str, object] = {}
        self._stored: object = None
        self._stopping = asyncio.Event()
        self._logs = file.folder / "logs"
        make_folder(self._logs, private=True)
        self.front = Front([Address(file.listen.host, file.listen.port)], called=self._note_call)
        self.status: dict[str, object] = {}

    def stop(self) -> None:
        """Stop all children in good order, then end."""
        self._stopping.set()

    async def run(self) -> None:
        """Run until `stop`.

        Raises:
            DiskFull: what it must keep cannot be stored; starting again goes on.
        """
        front = asyncio.create_task(self.front.run())
        for address in self.front.addresses:
            self._say("listening", f"all agreements are reached at {address}")
        try:
            while not self._stopping.is_set():
                await self._look()
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._stopping.wait(), _LOOK)
        finally:
            await self._stop_children()
            front.cancel()
            await asyncio.gather(front, return_exceptions=True)
            with suppress(DiskFull):
                self._store()

    async def _look(self) -> None:
        entries = read_entries(self.file.folder)
        self._take_entries(entries)
        for name, hosted in self._hosted.items():
            await self._tend(name, hosted)
        jobs = self._list_jobs()
        self._yield_places(jobs)
        for name in choose_starts(jobs, places=self.file.limits.jobs, memory=self.file.limits.memory):
            await self._start(name, self._hosted[name])
        self._store()
        self._show()

    # --- entries

    def _take_entries(self, entries: dict[str, NodeEntry | InputError]) -> None:
        for name in {**self._hosted, **self.records}:
            if name not in entries:
                self._drop(name)
        for name, entry in entries.items():
            record = self.records.get(name)
            if record is None:
                record = self.records[name] = HostedRecord(place=self._last_place() + 1)
                self._say("added", f"{name} is in the queue")
            if isinstance(entry, NodeEntry) and entry.resumed != record.resumed:
                record.resumed, record.failed, record.failures, record.reason = entry.resumed, False, 0, ""
                self._seen.pop(name, None)
            if self._seen.get(name) == (seen := entry if isinstance(entry, NodeEntry) else str(entry)):
                continue
            self._seen[name] = seen
            self._take_entry(name, entry, record)

    def _take_entry(self, name: str, entry: NodeEntry | InputError, record: HostedRecord) -> None:
        before = self._hosted.get(name)
        try:
            if not isinstance(entry, NodeEntry):
                raise entry
            agreement, own = entry.read_files()
            self._require_own_state(name, own.state)
        except (SecureVFLError, OSError) as error:
            self._fail(name, record, exit_code_of(error), str(error))
            return
        entrance = name_entrance(bytes.fromhex(agreement.digest), own.party)
        hosted = _Hosted(entry=entry, party=own.party, digest=agreement.digest, state=own.state, entrance=entrance)
        if before is not None:
            hosted.child, hosted.again, hosted.turn = before.child, before.again, before.turn
            if before.entrance != entrance:
                self.front.doors.pop(before.entrance, None)
        self._hosted[name] = hosted
        self.front.doors.setdefault(entrance, None)

    def _require_own_state(self, name: str, state: Path) -> None:
        for other, hosted in self._hosted.items():
            if other != name and hosted.state.absolute() == state.absolute():
                raise InputError(f"{state} is the state folder of {other!r} as well: give each agreement its own")

    def _drop(self, name: str) -> None:
        """Forget an entry that is gone, once its process has ended."""
        hosted = self._hosted.get(name)
        if hosted is not None and hosted.child is not None and hosted.child.code is None:
            hosted.child.stop()
            return
        if hosted is not None:
            self.front.doors.pop(hosted.entrance, None)
            if hosted.child is not None:
                hosted.child.door.close()
            del self._hosted[name]
        self._seen.pop(name, None)
        if self.records.pop(name, None) is not None:
            self._say("removed", f"{name} is removed; its files are where they were")

    def _last_place(self) -> int:
        return max((record.place for record in self.records.values()), default=0)

    def _fail(self, name: str, record: HostedRecord, code: int, reason: str) -> None:
        record.failed, record.code, record.reason = True, code, reason
        self._say("person", f"{name} needs a person (exit code {code}): {reason}")

    # --- children

    async def _tend(self, name: str, hosted: _Hosted) -> None:
        child, record = hosted.child, self.records[name]
        if child is None:
            return
        if child.code is None:
            child.limit_log()
            if hosted.entry.paused or child.stopping or name not in self._seen:
                child.stop()
            return
        child.door.close()
        hosted.child = None
        self.front.doors[hosted.entrance] = None
        self._take_end(name, hosted, record, child)

    def _take_end(self, name: str, hosted: _Hosted, record: HostedRecord, child: Child) -> None:
        code = child.code or 0
        record.code, record.reason = code, child.last_words()
        if code == 0 and not child.serves:
            record.trained, record.failures, record.reason = True, 0, ""
            self._say("finished", f"{name} is trained")
        elif code == 0 or should_restart(code):
            well = child.stopping or time.monotonic() - child.began > _LONG
            record.failures = 0 if well else record.failures + 1
            pause = 0.0 if child.stopping else min(_FIRST * 2 ** min(max(record.failures - 1, 0), 10), _MOST)
            hosted.again = time.monotonic() + pause * random.uniform(0.75, 1.0)  # noqa: S311  # no secret
            self._say("ended", f"{name} ended with {code} and starts again: {record.reason}")
        else:
            self._fail(name, record, code, record.reason)
        if child.yields or record.failures > _KEEPS:
            record.place = self._last_place() + 1  # behind those that wait

    async def _start(self, name: str, hosted: _Hosted) -> None:
        record = self.records[name]
        try:
            hosted.child = await start_child(self._logs, hosted.entry, hosted.party, serves=record.trained)
        except OSError as error:
            hosted.again = time.monotonic() + _MOST
            record.reason = f"it cannot be started: {error.strerror}"
            self._say("ended", f"{name}: {record.reason}")
            return
        record.starts += 1
        record.reason = ""
        hosted.turn = self.file.limits.turn * random.uniform(1.0, 2.0)  # noqa: S311  # so that two nodes do not swap forever
        self.front.doors[hosted.entrance] = hosted.child.door
        self._say("started", f"{name} is started, process {hosted.child.process.pid}")

    async def _stop_children(self) -> None:
        """SIGTERM to all; whoever does not end in time is killed."""
        running = [one.child for one in self._hosted.values() if one.child is not None]
        while any(child.code is None for child in running):
            for child in running:
                if child.code is None:
                    child.stop()
            await asyncio.sleep(0.1)
        for child in running:
            child.door.close()

    # --- the queue

    def _list_jobs(self) -> list[QueuedJob]:
        now, found = time.monotonic(), []
        for name, hosted in self._hosted.items():
            record = self.records[name]
            soon = now < hosted.again and record.failures <= _KEEPS
            running = hosted.child is not None or is_used(hosted.state) or soon  # it keeps its place while it ends
            if hosted.child is None and self._stage(name) not in (Stage.QUEUED, Stage.AGAIN):
                continue
            if not running and now < hosted.again:
                continue
            found.append(
                QueuedJob(
                    name=name,
                    place=record.place,
                    serves=record.trained,
                    memory=hosted.entry.memory,
                    running=running,
                    called=bool(hosted.called) and now - hosted.called < _CALLED,
                    late=self._seconds_late(hosted, now),
                )
            )
        return found

    def _yield_places(self, jobs: list[QueuedJob]) -> None:
        """Let trainings go whose peers do not come, so that others have their turn."""
        for name in choose_yields(jobs, places=self.file.limits.jobs):
            child = self._hosted[name].child
            if child is not None:
                self._say("yields", f"{name} waits for its peers; another agreement has its turn")
                child.yields = True
                child.stop()

    def _seconds_late(self, hosted: _Hosted, now: float) -> float:
        """Seconds for which a training has waited for its peers beyond its turn."""
        child = hosted.child
        if child is None or child.serves or child.stopping or now - child.began <= hosted.turn:
            return 0.0
        status = self._status_of(hosted)
        waits = status.get("pid") == child.process.pid and status.get("phase") in ("connecting", "parked")
        return now - child.began - hosted.turn if waits else 0.0

    def _note_call(self, entrance: str) -> None:
        for hosted in self._hosted.values():
            if hosted.entrance == entrance:
                hosted.called = time.monotonic()

    # --- what others see

    def _status_of(self, hosted: _Hosted) -> dict[str, object]:
        with suppress(SecureVFLError, OSError):
            return read_status(hosted.state)
        return {}

    def _stage(self, name: str) -> Stage:
        hosted, record = self._hosted.get(name), self.records[name]
        if hosted is not None and hosted.child is not None:
            return Stage.SERVING if hosted.child.serves else Stage.RUNNING
        if record.failed or hosted is None:
            return Stage.PERSON
        if hosted.entry.paused:
            return Stage.PAUSED
        if record.trained and not hosted.entry.serve:
            return Stage.FINISHED
        return Stage.AGAIN if record.failures else Stage.QUEUED

    def _store(self) -> None:
        content = {name: repr(record) for name, record in self.records.items()}
        if content != self._stored:
            write_records(self.file.folder, self.records)
            self._stored = content

    def _show(self) -> None:
        rows = {}
        for name, record in sorted(self.records.items(), key=lambda one: one[1].place):
            hosted = self._hosted.get(name)
            status = {} if hosted is None or hosted.child is None else self._status_of(hosted)
            rows[name] = {
                "stage": str(self._stage(name)),
                "place": record.place,
                "party": "" if hosted is None else hosted.party,
                "agreement": "" if hosted is None else hosted.digest,
                "process": 0 if hosted is None or hosted.child is None else hosted.child.process.pid,
                "phase": status.get("phase", ""),
                "waits": sorted(_away_peers(status)),
                "starts": record.starts,
                "code": record.code,
                "reason": record.reason,
            }
        self.status = {
            "written": time.time(),
            "organisation": self.file.organisation,
            "listening": [str(one) for one in self.front.addresses],
            "calls": {"handed over": self.front.handed, "refused": dict(self.front.refused)},
            "agreements": rows,
        }
        show_status(self.file.folder / "status.json", self.status)


def is_used(state: Path) -> bool:
    """Whether a process, of an earlier daemon perhaps, still has a state folder."""
    return state.is_dir() and is_held(state)


def _away_peers(status: dict[str, object]) -> list[str]:
    peers = status.get("peers")
    if not isinstance(peers, dict):
        return []
    return [name for name, link in peers.items() if not link["connected"]]
