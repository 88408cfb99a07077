"""Search all orders of events around `Gathering` breadth first, in a model of parties, links, crashes and cuts.

The search runs the real class. The model around it is minimal: each party has a disk with checkpoints and numbers of
attempts, each direction of a link has a queue of notes, and training writes checkpoints from time to time. What a party
does with an event is computed once and cached.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from securevfl.party.rendezvous import Action, Began, Go, Park, Rendezvous, Say
from securevfl.party.reports import CheckpointKey, Ready, Report, View, decode_note

NAMES = ("a", "b", "c")
LINKS = ((0, 0, 1), (1, 0, 2), (2, 1, 0), (3, 1, 2), (4, 2, 0), (5, 2, 1))
"""Number of a queue, its sender, its receiver."""
INTO = tuple(tuple(k for k, _, j in LINKS if j == i) for i in range(3))


class Disk(NamedTuple):
    """What a party has on its disk.

    Attributes:
        kept: checkpoints, each with the view that wrote it.
        aside: those that were put aside; a crash can bring the last one back.
        agreed, begun: numbers of attempts.
        began: mark of the view of the last attempt that began.
        alignment: mark of the view that made it.
    """

    kept: tuple[tuple[int, int, bytes], ...] = ()
    aside: tuple[tuple[int, int, bytes], ...] = ()
    agreed: int = 0
    begun: int = 0
    began: bytes = b""
    alignment: str = ""


class Party(NamedTuple):
    """The state of a party: what its `Gathering` remembers, and its disk.

    What training writes has no effect until the party stops or dies, so the search decides only then how much it was.
    `ran` is the view that the party trains in until it has stopped.
    """

    state: Any
    disk: Disk
    ran: Any = None


class Wrong(AssertionError):
    """The search reached a forbidden state."""


@dataclass
class Bounds:
    """What can happen in one search.

    Attributes:
        crashes: of processes, at any moment.
        torn: whether a crash can take the newest checkpoint along.
        back: whether a crash can bring a checkpoint back that was put aside.
        cuts: of links.
        losses: whether a cut can lose messages of training, so that the session does not resume.
        grows: whether a party may have written a checkpoint in an attempt that ends.
        first: whether the parties begin without an alignment, and at their first connection; otherwise they train.
        fine: whether notes sent at once arrive one by one, and a party receives notes while it stops.
        most: states; a search that finds more is not complete.
    """

    crashes: int = 0
    torn: bool = False
    back: bool = False
    cuts: int = 0
    losses: bool = False
    grows: bool = False
    first: bool = False
    fine: bool = False
    most: int = 10_000_000


@dataclass
class Search:
    """Breadth first over all states.

    Args:
        bounds: what can happen.
        kind: the class under test.
    """

    bounds: Bounds
    kind: type[Rendezvous] = Rendezvous
    states: int = 0
    quiet: int = 0
    complete: bool = True
    _ids: dict[Hashable, int] = field(default_factory=dict)
    _things: list[Any] = field(default_factory=list)
    _memo: dict[tuple[int, ...], tuple[int, tuple[tuple[int, Any], ...]]] = field(default_factory=dict)
    _clean: dict[tuple[int, int], int] = field(default_factory=dict)
    _looks: dict[int, tuple[View | None, Disk]] = field(default_factory=dict)
    _of: dict[bytes, Mapping[str, Report]] = field(default_factory=dict)

    def run(self) -> Search:
        """Search.

        Raises:
            Wrong: a state that must not be.
        """
        start = self._first()
        seen, todo = {start}, deque([start])
        while todo:
            found = todo.popleft()
            quiet = True
            for after, counts in self._next(found):
                quiet = quiet and not counts
                if after not in seen:
                    seen.add(after)
                    todo.append(after)
            self._look(found, quiet)
            if len(seen) > self.bounds.most:
                self.complete = False
                break
        self.states = len(seen)
        return self

    # A state: three parties, six queues, crashes and cuts so far; parties, queues and notes are numbers.

    def _id(self, thing: Hashable) -> int:
        found = self._ids.get(thing)
        if found is None:
            found = self._ids[thing] = len(self._things)
            self._things.append(thing)
        return found

    def _first(self) -> tuple[int, ...]:
        digest = b"before"
        kept = () if self.bounds.first else ((4, 0, digest), (5, 0, digest))
        disk = Disk(kept=kept, alignment="" if self.bounds.first else digest.hex())
        parties = [self._started(i, disk, 0) for i in range(3)]
        now = (*parties, *[self._id(())] * 6, 0, 0)
        for i in range(3):
            now = self._meets(now, i, [0, 0, 0])
        while not self.bounds.first and any(self._things[queue] for queue in now[3:9]):
            now = next(self._next(now))[0]
        return now

    def _meets(self, now: tuple[int, ...], i: int, counts: list[int]) -> tuple[int, ...]:
        """Connect a new process to its peers at once. The moment makes no difference: it has sent nothing yet, and the
        search still varies when its peers receive its notes."""
        for j in range(3):
            if j != i:
                event = self._id((j, (("up", self._incarnation(j, counts[j]), False),), 0))
                now = self._does(now, i, event)
        return now

    @staticmethod
    def _incarnation(i: int, count: int) -> str:
        return f"{count}-{hashlib.sha256(f'{i}'.encode()).hexdigest()[:32]}"

    def _report(self, incarnation: str, disk: Disk) -> Report:
        kept = tuple(CheckpointKey(epoch, 0, attempt) for epoch, attempt, _ in disk.kept)
        return Report(incarnation, kept=kept, agreed=disk.agreed, begun=disk.begun, alignment=disk.alignment)

    def _started(self, i: int, disk: Disk, count: int) -> int:
        report = self._report(self._incarnation(i, count), disk)
        gathering = self.kind(NAMES[i], [name for name in NAMES if name != NAMES[i]], report)
        return self._id(Party(gathering.state, disk))

    def _next(self, now: tuple[int, ...]) -> Iterator[tuple[tuple[int, ...], bool]]:
        """The possible next states, and whether each follows without a fault."""
        things, bounds = self._things, self.bounds
        for k, i, j in LINKS:
            queue = things[now[3 + k]]
            if queue:
                popped = (*now[: 3 + k], self._id(queue[1:]), *now[4 + k :])
                for wrote in self._may_write(now[j]) if not bounds.fine else (0,):
                    yield self._does(popped, j, self._id((i, queue[0], wrote))), True
        for i in range(3):
            party = things[now[i]]
            if party.state.phase == "parking":
                for wrote in range(1 + (bounds.grows and party.ran is not None)):
                    yield self._does(now, i, self._id(("stopped", (), wrote))), True
        faults = now[9] + now[10]
        if now[9] < bounds.crashes:
            for i in range(3) if faults else (0,):  # the first party to fall can be called a
                yield from ((after, False) for after in self._crashes(now, i))
        if now[10] < bounds.cuts:
            for i, j in ((0, 1), (0, 2), (1, 2)) if faults else ((0, 1),):
                for resumed in (True, False) if bounds.losses else (True,):
                    yield self._cut(now, i, j, resumed), False

    def _may_write(self, party: int) -> tuple[int, ...]:
        """Whether a party that stops at once may have written a checkpoint before."""
        return (0, 1) if self.bounds.grows and self._things[party].state.phase == "going" else (0,)

    def _does(self, now: tuple[int, ...], i: int, event: int) -> tuple[int, ...]:
        key = (i, now[i], event)
        found = self._memo.get(key)
        if found is None:
            found = self._memo[key] = self._worked_out(i, self._things[now[i]], self._things[event])
        party, said = found
        after = [*now]
        after[i] = party
        for k, notes in said:
            queue = self._things[after[3 + k]]
            if not self.bounds.fine and len(queue) == 1 and queue[0][-1][0] == "up":
                queue = ((*queue[0], *notes),)  # a connection, and the first note on it
            else:
                queue = (*queue, notes)
            after[3 + k] = self._id(queue)
        if party != now[i]:
            for k in INTO[i]:
                after[3 + k] = self._cleaned(party, i, after[3 + k])
        return tuple(after)

    def _worked_out(self, i: int, party: Party, event: Any) -> tuple[int, tuple[tuple[int, Any], ...]]:
        """What a party does with an event: its next state, and the notes it sends to each peer."""
        state, disk, ran = party
        gathering = self.kind(NAMES[i], [name for name in NAMES if name != NAMES[i]], state.own)
        gathering.state = state
        who, notes, wrote = event
        said: list[tuple[int, Any]] = []
        todo: list[tuple[Any, ...]] = [("stopped",)] if who == "stopped" else [*notes]
        while todo:
            note = todo.pop(0)
            actions: list[Action]
            if note[0] == "stopped":
                disk = self._wrote(ran, disk) if wrote and ran is not None else disk
                actions, ran = gathering.on_parked(self._report(state.own.incarnation, disk)), None
            elif note[0] == "up":
                actions = gathering.on_connected(NAMES[who], *note[1:])
            else:
                actions = gathering.on_note(NAMES[who], note[1])
            for action in actions:
                if isinstance(action, Say):
                    j = NAMES.index(action.peer)
                    said.append((2 * i + j - (j > i), ("note", action.payload)))
                elif isinstance(action, Began):
                    self._of[action.view.mark] = action.reports
                    disk = disk._replace(agreed=max(disk.agreed, action.view.attempt))
                elif isinstance(action, Go):
                    disk, ran = self._gone(action.view, disk), action.view
                elif isinstance(action, Park) and not self.bounds.fine:
                    todo.insert(0, ("stopped",))
        ready = tuple(b"" if self._past(gathering.known_reports, mark) else mark for mark in gathering.state.ready)
        after = self._id(Party(replace(gathering.state, ready=ready), disk, ran))
        if self.bounds.fine:
            return after, tuple((k, (note,)) for k, note in said)
        return after, tuple((k, tuple(note for at, note in said if at == k)) for k in dict(said))

    def _cleaned(self, party: int, i: int, queue: int) -> int:
        """A queue without READYs to views that the receiver has left behind for good: they change nothing."""
        found = self._clean.get((party, queue))
        if found is None:
            reports = dict(zip([n for n in NAMES if n != NAMES[i]], self._things[party].state.known, strict=True))
            reports = {n: r for n, r in reports.items() if r is not None} | {NAMES[i]: self._things[party].state.own}
            bursts = [tuple(n for n in notes if not self._moot(reports, n)) for notes in self._things[queue]]
            found = self._clean[party, queue] = self._id(tuple(notes for notes in bursts if notes))
        return found

    def _moot(self, reports: Mapping[str, Report], note: Any) -> bool:
        said = decode_note("", note[1]) if note[0] == "note" else None
        return isinstance(said, Ready) and self._past(reports, said.mark)

    def _past(self, reports: Mapping[str, Report], mark: bytes) -> bool:
        """Whether one of these reports is newer than the view."""
        view = self._of.get(mark, {})
        return any(
            (r.start_count, r.parks) > (view[n].start_count, view[n].parks) for n, r in reports.items() if n in view
        )

    @staticmethod
    def _gone(view: View, disk: Disk) -> Disk:
        if view.mark == disk.began:
            raise Wrong("a party trains in one view twice")
        if view.attempt <= disk.begun:
            raise Wrong(f"attempt {view.attempt} begins again")
        if view.start is not None and not any((e, 0, attempt) == view.start for e, attempt, _ in disk.kept):
            raise Wrong(f"a party resumes from {view.start}, which it has not kept: {disk.kept}")
        epoch = view.start[0] if view.start else 0
        disk = disk._replace(begun=view.attempt, began=view.mark, kept=tuple(k for k in disk.kept if k[0] <= epoch))
        gone = tuple(k for k in disk.kept if k[0] > epoch)
        return disk._replace(aside=gone or disk.aside, alignment=view.alignment)

    @staticmethod
    def _wrote(view: View, disk: Disk) -> Disk:
        if not disk.alignment:
            return disk._replace(alignment=view.mark.hex())
        epoch = max((epoch for epoch, _, _ in disk.kept), default=0) + 1
        return disk._replace(kept=(*disk.kept, (epoch, view.attempt, view.mark))[-3:])

    def _crashes(self, now: tuple[int, ...], i: int) -> Iterator[tuple[int, ...]]:
        party = self._things[now[i]]
        count = party.state.own.start_count + 1
        counts = [self._things[now[j]].state.own.start_count for j in range(3)]
        ran = party.ran
        disks = {party.disk}
        if self.bounds.grows and ran is not None:
            disks.add(self._wrote(ran, party.disk))
        if self.bounds.torn and len(party.disk.kept) > 1:
            disks.add(party.disk._replace(kept=party.disk.kept[:-1]))
        newest = max((epoch for epoch, _, _ in party.disk.kept), default=0)
        if self.bounds.back and any(epoch > newest for epoch, _, _ in party.disk.aside):
            disks.add(party.disk._replace(kept=(*party.disk.kept, *party.disk.aside), aside=()))
        for disk in disks:
            after = [*now]
            after[i] = self._started(i, disk, count)
            after[9] += 1
            for k, one, other in LINKS:
                if one == i:
                    after[3 + k] = self._id(((("up", self._incarnation(i, count), False),),))
                elif other == i:
                    after[3 + k] = self._id(())
            yield self._meets(tuple(after), i, counts)

    def _cut(self, now: tuple[int, ...], i: int, j: int, resumed: bool) -> tuple[int, ...]:
        """Cut a connection: notes on their way are lost, but both ends remember that they were connected."""
        after = [*now]
        after[10] += 1
        for k, one, other in LINKS:
            if {one, other} != {i, j}:
                continue
            before = all(note[2] for notes in self._things[now[3 + k]] for note in notes if note[0] == "up")
            incarnation = self._things[now[one]].state.own.incarnation
            after[3 + k] = self._id(((("up", incarnation, resumed and before),),))
        return tuple(after)

    def _look(self, now: tuple[int, ...], quiet: bool) -> None:
        going: list[tuple[View, Disk]] = []
        for i in range(3):
            found = self._looks.get(now[i])
            if found is None:
                state, disk, _ = self._things[now[i]]
                found = self._looks[now[i]] = (state.view if state.phase == "going" else None, disk)
            view, disk = found
            if view is not None:
                going.append((view, disk))
        if quiet:
            self.quiet += 1
            if len(going) < 3 or len({view.mark for view, _ in going}) > 1:
                raise Wrong("no event is left, and the parties do not all train in one view")
        for n, (view, disk) in enumerate(going):
            for other, disk2 in going[:n]:
                if disk.begun == disk2.begun and disk.began != disk2.began:
                    raise Wrong("one number for two attempts")
                if view.mark == other.mark and self._crosses(view, disk, other, disk2):
                    raise Wrong(f"messages cross between {view}, {disk} and {other}, {disk2}")

    @staticmethod
    def _crosses(view: View, disk: Disk, other: View, disk2: Disk) -> bool:
        """Whether two parties that read each other's messages started from different checkpoints."""
        if (view.start, view.alignment, view.attempt) != (other.start, other.alignment, other.attempt):
            return True
        if view.start is None:
            return False
        epoch = view.start[0]
        return {k for k in disk.kept if k[0] == epoch} != {k for k in disk2.kept if k[0] == epoch}
