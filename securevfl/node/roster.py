"""The agreements of a node: which entries its folder has, and what is known of each.

Nothing that happens to one entry is a matter of another, and a mistake in a file lasts as long as the file: an entry
that cannot be used is looked at again, so that a volume mounted late or a half written file need no person.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from securevfl_net.entrance import name_entrance
from securevfl_net.errors import exit_code_of
from securevfl_net.exit_codes import UNFORESEEN, should_restart

from securevfl.errors import InputError, SecureVFLError
from securevfl.node.child import Child
from securevfl.node.node_file import NodeEntry
from securevfl.node.record import HostedRecord, Stage

__all__ = ["EntryRoster", "Hosted"]

_GONE = 2
"""Looks in a row without an entry's file until it counts as removed: an editor may put a new file in its place."""
_LATER = 10.0
"""Seconds between two looks at the files of an entry that could not be used."""


@dataclass(kw_only=True)
class Hosted:
    """An agreement of which the files could be read.

    Attributes:
        entry: as it was last read.
        party: this one's name in the agreement.
        digest: of the agreement.
        state: the party's state folder.
        entrance: how callers name the party, see `name_entrance`.
        child: its process; None while there is none.
        again: when it may start, on the monotonic clock.
        called: when a peer called it last; 0 before.
        turn: seconds that its process may wait for its peers.
        waits: since when its process does, on the monotonic clock; 0 while it does not.
        vain: turns in a row in which it waited in vain.
        leaves: whether its process must end, and none must start, because its entry is gone or is another agreement's.
    """

    entry: NodeEntry
    party: str
    digest: str
    state: Path
    entrance: str
    child: Child | None = None
    again: float = 0.0
    called: float = 0.0
    turn: float = 0.0
    waits: float = 0.0
    vain: int = 0
    leaves: bool = False

    @property
    def running(self) -> Child | None:
        """Its process, while that runs."""
        return None if self.child is None or self.child.code is not None else self.child


@dataclass(frozen=True, kw_only=True)
class _Fault:
    """Why an entry cannot be used.

    Attributes:
        code: exit code that a command would end with.
        reason: in words.
        until: when to look again, on the monotonic clock.
    """

    code: int
    reason: str
    until: float


class EntryRoster:
    """The entries of a node's folder.

    Args:
        records: what was known before.
        say: receives a line about whatever happens: event and words.

    Attributes:
        hosted: name → agreement.
        records: name → what is known of it.
        faults: name → why its files cannot be used now. A process that runs goes on.
        opened, closed: are called with an entrance that callers may name from now on, or no longer.
    """

    def __init__(
        self,
        records: dict[str, HostedRecord],
        say: Callable[[str, str], None],
        *,
        opened: Callable[[str], None] = lambda name: None,
        closed: Callable[[str], None] = lambda name: None,
    ) -> None:
        self.hosted: dict[str, Hosted] = {}
        self.records = records
        self.faults: dict[str, _Fault] = {}
        self._say, self._opened, self._closed = say, opened, closed
        self._seen: dict[str, NodeEntry] = {}
        self._missing: Counter[str] = Counter()

    def take(self, entries: dict[str, NodeEntry | InputError]) -> None:
        """Take what the folder has now; the entries of before come first, in their order."""
        for name in {**self.hosted, **self.records}:
            self._missing[name] = 0 if name in entries else self._missing[name] + 1
            if self._missing[name] >= _GONE:
                self._drop(name)
        for name in sorted(entries, key=self._rank):
            entry, record = entries[name], self.records.get(name)
            if record is None:
                record = self.records[name] = HostedRecord(place=self.last_place() + 1)
                self._say("added", f"{name} is in the queue")
            fault = self.faults.get(name)
            if name in self.hosted:
                self.hosted[name].leaves = False
            if isinstance(entry, InputError):
                self._seen.pop(name, None)
                self._note_fault(name, entry)
                continue
            if entry.resumed != record.resumed:
                record.resumed, record.failed, record.failures, record.reason = entry.resumed, False, 0, ""
                self._seen.pop(name, None)
            if self._seen.get(name) == entry and (fault is None or time.monotonic() < fault.until):
                continue
            self._take_entry(name, entry)

    def last_place(self) -> int:
        """The largest place in the queue."""
        return max((record.place for record in self.records.values()), default=0)

    def stage(self, name: str) -> Stage:
        """Where an agreement is."""
        hosted, record, fault = self.hosted.get(name), self.records[name], self.faults.get(name)
        if hosted is not None and hosted.child is not None:
            return Stage.SERVING if hosted.child.serves else Stage.RUNNING
        if record.failed or (fault is not None and not should_restart(fault.code)):
            return Stage.PERSON
        if fault is None and hosted is not None and hosted.entry.paused:
            return Stage.PAUSED
        if fault is None and hosted is not None and record.trained and not hosted.entry.serve:
            return Stage.FINISHED
        return Stage.AGAIN if record.failures or fault is not None else Stage.QUEUED

    def _rank(self, name: str) -> tuple[bool, int]:
        """Those that were accepted before come first, so that no entry takes another's agreement or state folder."""
        record = self.records.get(name)
        return (True, 0) if record is None else (not record.entrance, record.place)

    def _take_entry(self, name: str, entry: NodeEntry) -> None:
        before, record = self.hosted.get(name), self.records[name]
        self._seen[name] = entry
        try:
            agreement, own = entry.read_files()
            entrance = name_entrance(bytes.fromhex(agreement.digest), own.party)
            self._require_own(name, own.state, entrance)
        except Exception as error:
            self._note_fault(name, error)
            return
        self.faults.pop(name, None)
        if record.entrance not in ("", entrance):  # the name stands for another agreement from now on
            if before is not None and (running := before.running) is not None:
                before.leaves = True
                running.stop()
                del self._seen[name]  # look again once it has ended
                return
            self._forget(name)
            before, record = None, HostedRecord(place=self.last_place() + 1, resumed=entry.resumed)
            self.records[name] = record
            self._say("added", f"{name} is another agreement now, and in the queue")
        record.entrance = entrance
        if before is None:
            self.hosted[name] = Hosted(
                entry=entry, party=own.party, digest=agreement.digest, state=own.state, entrance=entrance
            )
            self._opened(entrance)
        else:
            before.entry, before.state = entry, own.state

    def _require_own(self, name: str, state: Path, entrance: str) -> None:
        for other, hosted in self.hosted.items():
            if other == name:
                continue
            if hosted.entrance == entrance:
                raise InputError(
                    f"{other!r} takes part in this agreement as {hosted.party!r} already: remove one of the two"
                )
            if os.path.realpath(hosted.state) == os.path.realpath(state):
                raise InputError(f"{state} is the state folder of {other!r} as well: give each agreement its own")

    def _note_fault(self, name: str, error: Exception) -> None:
        code, reason = exit_code_of(error), str(error)
        if not isinstance(error, SecureVFLError | OSError):  # one entry must not end the node
            code, reason = UNFORESEEN, f"{type(error).__name__}: {error}"
        before = self.faults.get(name)
        self.faults[name] = _Fault(code=code, reason=reason, until=time.monotonic() + _LATER)
        if before is None or before.reason != reason:
            what = "is tried again" if should_restart(code) else f"needs a person (exit code {code})"
            self._say("person" if not should_restart(code) else "ended", f"{name} {what}: {reason}")

    def _drop(self, name: str) -> None:
        """Forget an entry that is gone, once its process has ended."""
        hosted = self.hosted.get(name)
        if hosted is not None and (running := hosted.running) is not None:
            hosted.leaves = True
            running.stop()
            return
        self._forget(name)
        del self._missing[name]
        if self.records.pop(name, None) is not None:
            self._say("removed", f"{name} is removed; its files are where they were")

    def _forget(self, name: str) -> None:
        hosted = self.hosted.pop(name, None)
        if hosted is not None:
            self._closed(hosted.entrance)
            if hosted.child is not None:
                hosted.child.door.close()
        self._seen.pop(name, None)
        self.faults.pop(name, None)
