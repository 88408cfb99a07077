"""Ordinary faults convict nobody: a kill at each write of a ledger, a full disk, a power loss, a clock that is set
back, a stranger's call at the end. Real tampering with the same ledgers is found."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from securevfl.auditing import Audit, audit
from securevfl.errors import AuditError, DiskFull
from securevfl.ledger import Ledger, OwnLedgers, line_file
from securevfl.ledger.line_file import LineFile
from securevfl.privacy import PrivateKey
from securevfl.process.chains import Chains
from securevfl.process.refused_connections import NOTE, Refusals
from securevfl.transport import Kind, Message

if sys.platform != "win32":
    import resource

KEYS = {name: PrivateKey.generate() for name in ("bank", "shop")}


class Killed(BaseException):
    """Stands for SIGKILL: nothing of the process runs after it."""


class Party:
    """A party whose process can be killed and started again."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name, self.folder, self.starts = name, folder, 0
        self.path = folder / f"{name}.jsonl"
        self.start()

    def start(self, *, stopped: bool = False) -> None:
        """A new process; `stopped` after a power loss."""
        self.starts += 1
        self.chains = Chains(self.name, KEYS[self.name], self.folder, "test", {}, stopped=stopped)
        self.own: OwnLedgers = self.chains.own
        self.refusals = Refusals(self.chains, self.starts)

    def begin(self, attempt: int) -> None:
        opened = self.own.attempt_opener(attempt, f"{attempt:02}" * 16, epoch=attempt - 1)
        role = "active" if self.name == "bank" else "passive"
        self.ledger: Ledger = opened.open(self.name, run=f"train {attempt}", job="ab", role=role)

    def call_from_a_stranger(self) -> None:
        self.refusals.report_event("refused", "a stranger was refused", peer="", code="no-certificate")


def train(one: Party, other: Party, attempt: int) -> None:
    """An attempt with a few messages, heads in between and at the end, as the runner makes them."""
    pairs = ((one, other), (other, one))
    for party in (one, other):
        party.begin(attempt)
    for party, peer in pairs:
        party.ledger.record_peers({peer.name: (peer.ledger.opening.role, peer.ledger.introduction)})
    for value in range(3):
        for sender, receiver in pairs:
            _send(sender, receiver, Message(Kind.CONTROL, "consent/terms", {}, {"value": float(value)}))
    for giver, taker in pairs:
        taker.own.record_head(taker.ledger, giver.name, giver.own.sign_head(giver.ledger))
    _send(one, other, Message(Kind.CONTROL, "consent/terms", {}, {"value": 9.0}))
    heads = {party.name: party.ledger.sign_head() for party in (one, other)}
    last = {name: Message(Kind.CONTROL, "ledger/head", {}, head) for name, head in heads.items()}
    for sender, receiver in pairs:
        sender.ledger.record("sent", receiver.name, last[sender.name], 10)
    for sender, receiver in pairs:
        receiver.ledger.record("received", sender.name, last[sender.name], 10)
        receiver.ledger.take_head(sender.name, heads[sender.name])
    for party in (one, other):
        party.ledger.close()
    for party in (one, other):
        party.chains.bind_results({"metrics.json": "ab" * 32})


def _send(sender: Party, receiver: Party, message: Message) -> None:
    sender.ledger.record("sent", receiver.name, message, 10)
    receiver.ledger.record("received", sender.name, message, 10)


def park(party: Party) -> None:
    """What a party does whose peer is gone."""
    if party.own.current_ledger is not None:
        party.own.current_ledger.close("cancelled: another party failed, or the run was interrupted")


def check_clean(found: Audit) -> None:
    assert (list(found.incomplete), found.is_complete) == ([], True)


def is_whole(path: Path) -> bool:
    return path.read_bytes().endswith(b"\n")


@contextmanager
def kill_at(count: int, part: float) -> Iterator[list[Path]]:
    """Kill whoever makes the write of this number, after a part of its line; yields whose file it was."""
    append, writes, hit = LineFile.append, [0], []

    def write(self: LineFile, line: bytes) -> None:
        writes[0] += 1
        if writes[0] == count:
            with self.path.open("ab") as file:
                file.write(line[: round(part * len(line))])
            hit.append(self.path)
            raise Killed
        append(self, line)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LineFile, "append", write)
        yield hit


@pytest.mark.parametrize(
    ("part", "called"),
    [(0.0, False), (0.5, True), (1.0, False), (1.0, True)],
    ids=["before", "in mid-line, and a refusal before the next attempt", "after", "after, and a refusal"],
)
def test_a_kill_at_each_write_of_a_ledger_convicts_nobody(part: float, called: bool, tmp_path: Path) -> None:
    count = 0
    while True:
        count += 1
        folder = tmp_path / str(count)
        folder.mkdir()
        one, other = Party("bank", folder), Party("shop", folder)
        with kill_at(count, part) as hit, suppress(Killed):
            train(one, other, 1)
        if not hit:
            break
        killed, left = (one, other) if hit == [one.path] else (other, one)
        park(left)
        killed.start()
        if called:
            killed.call_from_a_stranger()
            killed.refusals.record_rest()
            killed.start()
        train(one, other, 2)
        check_clean(audit(folder))
    assert count > 30


def test_before_a_killed_party_is_started_again_the_audit_names_nobody(tmp_path: Path) -> None:
    """Beside the peer's file: a file that ends in mid-line, also in the first line of a chain."""
    for count in range(1, 40):
        folder = tmp_path / str(count)
        folder.mkdir()
        one, other = Party("bank", folder), Party("shop", folder)
        with kill_at(count, 0.5) as hit, suppress(Killed):
            train(one, other, 1)
        left = other if hit == [one.path] else one
        park(left)
        if any(path.stat().st_size and path.read_bytes().count(b"\n") for path in folder.glob("*.jsonl")):
            found = audit(folder)
            assert found.incomplete or not hit


@contextmanager
def largest_file(size: int) -> Iterator[None]:
    """Let no file grow beyond `size`: a write stores what fits and reports how much, the next one fails."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.skipif(sys.platform == "win32", reason="there are no such limits")
@pytest.mark.parametrize("restarted", [True, False], ids=["started again", "the same process"])
def test_a_full_disk_at_any_byte_stops_the_party_and_leaves_an_unbroken_chain(restarted: bool, tmp_path: Path) -> None:
    (tmp_path / "whole").mkdir()
    one, other = Party("bank", tmp_path / "whole"), Party("shop", tmp_path / "whole")
    train(one, other, 1)
    lines = [len(line) for line in other.path.read_bytes().splitlines(keepends=True)]
    ends = {sum(lines[:n]) for n in range(len(lines))}
    sizes = {*range(1, sum(lines), 397), *ends, *(end - 1 for end in ends if end)}
    for size in sorted(sizes):
        folder = tmp_path / str(size)
        folder.mkdir()
        one, other = Party("bank", folder), Party("shop", folder)
        with largest_file(size), pytest.raises(DiskFull, match="disk full"):
            train(one, other, 1)
        for party in (one, other):
            assert not party.path.exists() or not party.path.stat().st_size or is_whole(party.path)
            if restarted:
                party.start()
            else:
                park(party)
        train(one, other, 2)
        check_clean(audit(folder))


def test_a_line_that_does_not_fit_is_not_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever part of it was stored: the ledger goes on as if the message had never been."""
    one, other = Party("bank", tmp_path), Party("shop", tmp_path)
    for party in (one, other):
        party.begin(1)
    message = Message(Kind.CONTROL, "consent/terms", {}, {"value": 1.0})
    before = one.path.read_bytes(), one.ledger.head, one.ledger.message_count, one.ledger.length
    write, asked = line_file.os.write, [0]
    for room in range(0, 400, 7):
        left = [room]

        def fill(handle: int, data: bytes, left: list[int] = left) -> int:
            asked[0] += 1
            if not left[0]:
                raise OSError(28, "No space left on device")
            done = write(handle, data[: left[0]])
            left[0] -= done
            return done

        monkeypatch.setattr(line_file.os, "write", fill)
        with pytest.raises(DiskFull, match=r"bank\.jsonl cannot be written: disk full \(No space left on device\)"):
            one.ledger.record("sent", "shop", message, 10)
        monkeypatch.setattr(line_file.os, "write", write)
        assert (one.path.read_bytes(), one.ledger.head, one.ledger.message_count, one.ledger.length) == before
    assert asked[0] > 100
    one.ledger.record("sent", "shop", message, 10)
    assert one.ledger.message_count == 1


def test_a_disk_that_failed_to_sync_is_not_believed_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second fsync would succeed without having written anything."""
    file = LineFile(tmp_path / "a.jsonl")
    file.append(b"{}\n")

    def fail(handle: int) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(line_file, "flush_to_disk", fail)
        with pytest.raises(OSError, match="Input/output error"):
            file.sync()
    with pytest.raises(AuditError, match="start the party again"):
        file.append(b"{}\n")


@contextmanager
def power_loss_at(count: int) -> Iterator[list[Path]]:
    """As `kill_at`, and what was not synced is lost."""
    synced: dict[Path, int] = {}
    sync = LineFile.sync

    def keep(self: LineFile) -> None:
        sync(self)
        synced[self.path] = self.end

    with kill_at(count, 0.0) as hit, pytest.MonkeyPatch.context() as patch:
        patch.setattr(LineFile, "sync", keep)
        try:
            yield hit
        finally:
            for path in hit:
                path.write_bytes(path.read_bytes()[: synced.get(path, 0)])


@pytest.mark.parametrize("owned", [True, False], ids=["recorded", "lines cut without a record"])
def test_a_power_loss_at_each_write_convicts_nobody(owned: bool, tmp_path: Path) -> None:
    """The party's next chain records that its machine had stopped; without that record cut lines are tampering."""
    count, lost, convicted = 0, 0, 0
    while True:
        count += 1
        folder = tmp_path / str(count)
        folder.mkdir()
        one, other = Party("bank", folder), Party("shop", folder)
        with suppress(Killed), power_loss_at(count) as hit:
            train(one, other, 1)
        if not hit:
            break
        killed, left = (one, other) if hit == [one.path] else (other, one)
        park(left)
        killed.start(stopped=owned)
        train(one, other, 2)
        if not owned and _was_cut(folder, killed.path):
            convicted += 1
            continue
        found = audit(folder)
        lost += bool(found.incomplete)
        assert all("the machine stopped before they were on its disk" in line for line in found.incomplete)
    assert lost if owned else convicted


def _was_cut(folder: Path, path: Path) -> bool:
    """Whether the audit finds that this ledger lacks what its peer received."""
    with suppress(AuditError):
        audit(folder)
        return False
    with pytest.raises(AuditError, match=re.escape(f"whose ledger ({path}:")):
        audit(folder)
    return True


def test_a_clock_that_is_set_back_convicts_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = Party("bank", tmp_path), Party("shop", tmp_path)
    real, steps = time.time_ns, iter(range(1, 1000))
    monkeypatch.setattr(time, "time_ns", lambda: real() - next(steps) * 3_600_000_000_000)
    train(one, other, 1)
    one.start()
    train(one, other, 2)
    monkeypatch.setattr(time, "time_ns", lambda: -5)
    other.start()
    train(one, other, 3)
    check_clean(audit(tmp_path))


@pytest.mark.parametrize("at", ["before the heads", "after the heads"])
def test_a_stranger_s_call_at_the_end_convicts_nobody(at: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = Party("bank", tmp_path), Party("shop", tmp_path)
    take = Ledger.take_head if at == "after the heads" else Ledger.sign_head

    def disturbed(self: Ledger, *given: object) -> object:
        (one if self is one.ledger else other).call_from_a_stranger()
        return take(self, *given)  # type: ignore[arg-type]

    monkeypatch.setattr(Ledger, take.__name__, disturbed)
    train(one, other, 1)
    for party in (one, other):
        party.refusals.record_rest()
    found = audit(tmp_path)
    check_clean(found)
    notes = [(chain.party, note.values["times"]) for chain in found.chains for note in chain.notes if note.note == NOTE]
    assert notes == [("bank", 1), ("shop", 1)]


def test_heads_in_mid_run_that_come_late_convict_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A peer's head of its last checkpoint, and this party's own one, fall between its final head and its message."""
    one, other = Party("bank", tmp_path), Party("shop", tmp_path)
    sign = Ledger.sign_head

    def disturbed(self: Ledger) -> object:
        party, peer = (one, other) if self is one.ledger else (other, one)
        late = peer.chains.signed_head()
        head = sign(self)
        if late:
            party.chains.store_head(peer.name, late)
        assert party.chains.signed_head() == b""
        return head

    monkeypatch.setattr(Ledger, "sign_head", disturbed)
    train(one, other, 1)
    check_clean(audit(tmp_path))


def test_a_party_that_was_done_and_one_that_was_not_go_on(tmp_path: Path) -> None:
    """One had its peer's head and closed; the other lost the connection a moment before."""
    one, other = Party("bank", tmp_path), Party("shop", tmp_path)
    close = Ledger.close
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Ledger, "close", lambda self, *said: close(self) if self is one.ledger else close(self, "parked"))
        train(one, other, 1)
    assert audit(tmp_path).incomplete
    train(one, other, 2)
    check_clean(audit(tmp_path))


def _edit(path: Path, change: Callable[[list[bytes]], list[bytes]]) -> None:
    path.write_bytes(b"".join(change(path.read_bytes().splitlines(keepends=True))))


def _is_message(line: bytes) -> bool:
    return b'"line":"message"' in line


TAMPERINGS: dict[str, Callable[[list[bytes]], list[bytes]]] = {
    "edited": lambda lines: [line.replace(b'"bytes":10', b'"bytes":90') for line in lines],
    "a message dropped": lambda lines: [line for line in lines if line is not next(filter(_is_message, lines))],
    "cut behind the first message": lambda lines: lines[: next(n for n, x in enumerate(lines) if _is_message(x)) + 1],
    "swapped": lambda lines: [*lines[:4], lines[5], lines[4], *lines[6:]],
    "doubled": lambda lines: [*lines[:5], lines[4], *lines[5:]],
    "the second attempt dropped": lambda lines: lines[: [b'"open"' in x[:20] for x in lines].index(True, 1)],
    "the first attempt dropped": lambda lines: lines[[b'"open"' in x[:20] for x in lines].index(True, 1) :],
    "the first attempt cut": lambda lines: [*lines[:8], *lines[[b'"open"' in x[:20] for x in lines].index(True, 1) :]],
    "a head replaced": lambda lines: [
        line.replace(b'"messages":6,"signature":"', b'"messages":5,"signature":"') for line in lines
    ],
}


@pytest.mark.parametrize("change", TAMPERINGS.values(), ids=TAMPERINGS)
def test_tampering_after_ordinary_faults_is_found(change: Callable[[list[bytes]], list[bytes]], tmp_path: Path) -> None:
    one, other = Party("bank", tmp_path), Party("shop", tmp_path)
    with kill_at(30, 0.5) as hit, suppress(Killed):
        train(one, other, 1)
    assert hit
    killed, left = (one, other) if hit == [one.path] else (other, one)
    park(left)
    killed.start()
    train(one, other, 2)
    check_clean(audit(tmp_path))
    _edit(one.path, change)
    with pytest.raises(AuditError, match="bank"):
        audit(tmp_path)
