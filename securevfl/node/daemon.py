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
from pathlib import Path

from securevfl_net.dialers import Address
from securevfl_net.durable import is_held, make_folder
from securevfl_net.exit_codes import should_restart
from securevfl_net.front import Front

from securevfl.errors import InputError, SecureVFLError
from securevfl.node.child import Child, describe_signal, start_child
from securevfl.node.node_file import NodeFile, read_entries
from securevfl.node.queue import QueuedJob, choose_starts, choose_yields
from securevfl.node.record import HostedRecord, Stage, read_records, write_records
from securevfl.node.roster import EntryRoster, Hosted
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
_CALLS, _PART = 20.0, 0.25
"""Seconds for which a peer's call means that it calls now; and which part of its turn a training then has that waits in
vain: the peer runs the other agreement, and two nodes must not swap in step.
"""
_VAIN = 8
"""Turns in vain that make the next one longer."""
_WAITS = (Stage.QUEUED, Stage.AGAIN)


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
        self._stored: object = None
        self._wrong: dict[str, str] = {}
        self._stopping = asyncio.Event()
        self._logs = file.folder / "logs"
        make_folder(self._logs, private=True)
        self.front = Front([Address(file.listen.host, file.listen.port)], called=self._note_call)
        self.roster = EntryRoster(self.records, say, opened=self._open_entrance, closed=self._close_entrance)
        self._hosted = self.roster.hosted
        self.status: dict[str, object] = {}

    def stop(self) -> None:
        """Stop all children in good order, then end."""
        self._stopping.set()

    async def run(self) -> None:
        """Run until `stop`.

        While what it must keep cannot be stored, it starts nothing, and what runs goes on.
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
            self._store()

    def _open_entrance(self, entrance: str) -> None:
        self.front.doors.setdefault(entrance, None)

    def _close_entrance(self, entrance: str) -> None:
        self.front.doors.pop(entrance, None)

    async def _look(self) -> None:
        try:
            self.roster.take(read_entries(self.file.folder))
            self._say_once("entries", "")
        except InputError as error:  # whatever runs goes on
            self._say_once("entries", str(error))
        for name, hosted in self._hosted.items():
            self._tend(name, hosted)
        jobs = self._list_jobs()
        self._yield_places(jobs)
        if self._store():
            for name in choose_starts(jobs, places=self.file.limits.jobs, memory=self.file.limits.memory):
                await self._start(name, self._hosted[name])
            self._store()
        self._show()

    def _say_once(self, about: str, words: str) -> None:
        """Say what is wrong with something when that changes; no words if nothing is."""
        if words and self._wrong.get(about) != words:
            self._say("trouble", words)
        self._wrong[about] = words

    def _fail(self, name: str, record: HostedRecord, code: int, reason: str) -> None:
        record.failed, record.code, record.reason = True, code, reason
        self._say("person", f"{name} needs a person (exit code {code}): {reason}")

    # --- children

    def _tend(self, name: str, hosted: Hosted) -> None:
        child, record = hosted.child, self.records[name]
        if child is None:
            return
        if child.code is None:
            child.limit_log()
            if hosted.entry.paused or child.stopping:
                child.stop()
            return
        child.door.close()
        hosted.child = None
        self.front.doors[hosted.entrance] = None
        self._take_end(name, hosted, record, child)

    def _take_end(self, name: str, hosted: Hosted, record: HostedRecord, child: Child) -> None:
        code = child.code or 0
        record.code, record.reason = code, child.last_words() or describe_signal(code)
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
        hosted.waits, hosted.vain = 0.0, hosted.vain + 1 if child.yields else 0
        if child.yields or record.failures > _KEEPS:
            record.place = self.roster.last_place() + 1  # behind those that wait

    async def _start(self, name: str, hosted: Hosted) -> None:
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
        # ever wider at random, so that two nodes that wait for each other's next agreement do not swap forever
        hosted.turn = self.file.limits.turn * random.uniform(1.0, 2.0 + min(hosted.vain, _VAIN))  # noqa: S311
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
        calls = any(one.child is None and now - one.called < _CALLS for one in self._hosted.values() if one.called)
        for name, hosted in self._hosted.items():
            record = self.records[name]
            soon = now < hosted.again and record.failures <= _KEEPS
            running = hosted.child is not None or is_used(hosted.state) or soon  # it keeps its place while it ends
            away = hosted.leaves or name in self.roster.faults or self.roster.stage(name) not in _WAITS
            if hosted.child is None and away:
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
                    called=record.failures <= _KEEPS and bool(hosted.called) and now - hosted.called < _CALLED,
                    vain=hosted.vain,
                    late=self._seconds_late(hosted, now, calls=calls),
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

    def _seconds_late(self, hosted: Hosted, now: float, *, calls: bool) -> float:
        """Seconds for which a training has waited for its peers beyond its turn; its start does not count.

        Args:
            hosted: the agreement.
            now: on the monotonic clock.
            calls: whether a peer of one that waits calls now: then a part of the turn is enough.
        """
        child = hosted.child
        if child is None or child.serves or child.stopping:
            return 0.0
        status = self._status_of(hosted)
        if status.get("pid") != child.process.pid or status.get("phase") not in ("connecting", "parked"):
            hosted.waits = 0.0
            return 0.0
        hosted.waits = hosted.waits or now
        return max(0.0, now - hosted.waits - hosted.turn * (_PART if calls else 1.0))

    def _note_call(self, entrance: str) -> None:
        for hosted in self._hosted.values():
            if hosted.entrance == entrance:
                hosted.called = time.monotonic()

    # --- what others see

    def _status_of(self, hosted: Hosted) -> dict[str, object]:
        with suppress(SecureVFLError, OSError):
            return read_status(hosted.state)
        return {}

    def _store(self) -> bool:
        """Store what must outlive this process; whether that is stored now."""
        content = {name: repr(record) for name, record in self.records.items()}
        if content != self._stored:
            try:
                write_records(self.file.folder, self.records)
            except OSError as error:
                self._say_once("records", f"nothing is started until state.json can be written: {error}")
                return False
            self._stored = content
        self._say_once("records", "")
        return True

    def _show(self) -> None:
        rows = {}
        for name, record in sorted(self.records.items(), key=lambda one: one[1].place):
            hosted, fault = self._hosted.get(name), self.roster.faults.get(name)
            status = {} if hosted is None or hosted.child is None else self._status_of(hosted)
            rows[name] = {
                "stage": str(self.roster.stage(name)),
                "place": record.place,
                "party": "" if hosted is None else hosted.party,
                "agreement": "" if hosted is None else hosted.digest,
                "process": 0 if hosted is None or hosted.child is None else hosted.child.process.pid,
                "phase": status.get("phase", ""),
                "waits": sorted(_away_peers(status)),
                "starts": record.starts,
                "code": record.code if fault is None else fault.code,
                "reason": self._describe_wait(name, hosted) or (record.reason if fault is None else fault.reason),
            }
        self.status = {
            "written": time.time(),
            "organisation": self.file.organisation,
            "listening": [str(one) for one in self.front.addresses],
            "calls": {"handed over": self.front.handed, "refused": dict(self.front.refused)},
            "agreements": rows,
        }
        try:
            show_status(self.file.folder / "status.json", self.status)
            self._say_once("status", "")
        except OSError as error:
            self._say_once("status", f"status.json cannot be written ({error.strerror}): the list is an old one")

    def _describe_wait(self, name: str, hosted: Hosted | None) -> str:
        if hosted is None or self.roster.stage(name) not in _WAITS or not is_used(hosted.state):
            return ""
        return f"{hosted.state} is in use by another process: it starts once that has ended"


def is_used(state: Path) -> bool:
    """Whether a process, of an earlier daemon perhaps, still has a state folder; False where nobody here can tell."""
    try:
        return is_held(state)
    except OSError:  # it is not there yet, or the party's process will say what is wrong with it
        return False


def _away_peers(status: dict[str, object]) -> list[str]:
    peers = status.get("peers")
    if not isinstance(peers, dict):
        return []
    return [name for name, link in peers.items() if isinstance(link, dict) and not link.get("connected")]
