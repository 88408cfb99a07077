"""The ledger: each message that a party sent or received, one line each, in a chain of hashes.

A line holds what was sent (kind, step, shapes, bytes), how it was protected (cipher, key size, key, noise) and the hash
of the line before it: SHA-256 over that hash and the line itself. Between them stand notes: what a party says of the
run, such as the ε that its releases spent. A line that is changed, dropped or moved breaks
the chain, and a ledger that was cut off lacks its closing line. The chain proves that the ledger was not edited
after the fact by somebody who does not own it; a party that forges its own ledger from the start is found by
comparing it with its peers' (`verify` does that too).
"""

from __future__ import annotations

import hashlib
import hmac
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from securevfl.errors import AuditError, InputError
from securevfl.transport import Guard, Kind, Message, Scalar

__all__ = ["Chain", "Entry", "Ledger", "Noted", "Opening", "read", "verify"]

VERSION = 2
"""2 has notes; 1 is read, too."""

_READ = (1, 2)


class Opening(msgspec.Struct, frozen=True, kw_only=True, tag="open", tag_field="line"):
    """The first line of a chain: whose it is and what it belongs to."""

    version: int = VERSION
    party: str
    run: str
    job: str
    """SHA-256 of the job that all parties agreed on, hexadecimal"""
    policy: str
    prev: str
    hash: str = ""


class Entry(msgspec.Struct, frozen=True, kw_only=True, tag="message", tag_field="line"):
    """One message. `seq` counts from 1 within the chain."""

    seq: int
    way: Literal["sent", "received"]
    peer: str
    kind: Kind
    what: str
    shapes: dict[str, list[int]]
    bytes: int
    cipher: str
    bits: int
    key: str
    noise: float
    prev: str
    hash: str = ""

    @property
    def guard(self) -> Guard:
        """How the message was protected."""
        return Guard(self.cipher, self.bits, self.key, self.noise)


class Noted(msgspec.Struct, frozen=True, kw_only=True, tag="note", tag_field="line"):
    """What the party says of the run, for example the ε that it spent."""

    note: str
    """what it is about, for example ``"epsilon"``"""
    values: dict[str, Scalar]
    prev: str
    hash: str = ""


class Closing(msgspec.Struct, frozen=True, kw_only=True, tag="close", tag_field="line"):
    """The last line: how many messages went before it, and how the run ended for this party."""

    messages: int
    outcome: str
    prev: str
    hash: str = ""


Line = Opening | Entry | Noted | Closing
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Line).decode
_GENESIS = hashlib.sha256(b"securevfl ledger v1").hexdigest()


def _hash(line: Line) -> str:
    return hashlib.sha256(_encode(msgspec.structs.replace(line, hash="") if line.hash else line)).hexdigest()


class Ledger:
    """One party's append-only chain. Kept in memory and, if `path` is given, written line by line.

    Args:
        party: whose ledger it is.
        run: name of the run, unique in the file.
        job: digest of the job.
        policy: the party's policy, in words.
        path: file to append to.
    """

    def __init__(self, party: str, *, run: str, job: str, policy: str = "none", path: Path | None = None) -> None:
        self.party = party
        self.run = run
        self.lines: list[Line] = []
        self._head = _GENESIS
        self._count = 0
        self._closed = False
        self._file = path.open("ab") if path is not None else None
        self._append(Opening(party=party, run=run, job=job, policy=policy, prev=self._head))

    def _append(self, line: Line) -> None:
        self._head = _hash(line)
        msgspec.structs.force_setattr(line, "hash", self._head)  # nobody else has seen the line yet
        self.lines.append(line)
        if self._file is not None:
            self._file.write(_encode(line) + b"\n")

    def record(self, way: Literal["sent", "received"], peer: str, message: Message, size: int) -> None:
        """Append one message of `size` bytes."""
        self._count += 1
        guard = message.guard
        self._append(
            Entry(
                seq=self._count,
                way=way,
                peer=peer,
                kind=message.kind,
                what=message.what,
                shapes={name: list(array.shape) for name, array in message.arrays.items()},
                bytes=size,
                cipher=guard.cipher,
                bits=guard.bits,
                key=guard.key,
                noise=guard.noise,
                prev=self._head,
            )
        )

    def note(self, note: str, values: Mapping[str, Scalar] | str) -> None:
        """Append what the party says of the run; a text stands for ``{"text": …}``. Not for the hot path.

        Args:
            note: what it is about, for example ``"epsilon"``.
            values: named scalars; numbers that are not finite become texts, for JSON has none.

        Raises:
            AuditError: the ledger was closed.
        """
        if self._closed:
            raise AuditError(f"{self.party!r}'s ledger of run {self.run!r} is closed; note {note!r} before that")
        named = {"text": values} if isinstance(values, str) else values
        plain = {
            name: str(value) if isinstance(value, float) and not math.isfinite(value) else value
            for name, value in named.items()
        }
        self._append(Noted(note=note, values=plain, prev=self._head))

    def close(self, outcome: str = "done") -> None:
        """Append the closing line; nothing can be recorded after it. Closing twice does nothing."""
        if self._closed:
            return
        self._closed = True
        self._append(Closing(messages=self._count, outcome=outcome, prev=self._head))
        if self._file is not None:
            self._file.close()

    @property
    def entries(self) -> list[Entry]:
        """The messages, without notes, in their order."""
        return [line for line in self.lines if isinstance(line, Entry)]

    def to_jsonl(self) -> bytes:
        """All lines, one JSON object each."""
        return b"".join(_encode(line) + b"\n" for line in self.lines)


class Chain(msgspec.Struct, frozen=True, kw_only=True):
    """A verified chain, as read from a file."""

    opening: Opening
    entries: list[Entry]
    outcome: str
    notes: list[Noted] = []

    @property
    def party(self) -> str:
        """Whose chain it is."""
        return self.opening.party

    @property
    def run(self) -> str:
        """Name of the run."""
        return self.opening.run


def read(path: Path) -> Iterator[tuple[int, Line]]:
    """Lines of a ledger file with their numbers, from 1.

    Raises:
        InputError: no such file.
        AuditError: a line that is not a ledger line.
    """
    try:
        with path.open("rb") as file:
            for number, raw in enumerate(file, 1):
                try:
                    yield number, _decode(raw)
                except (msgspec.DecodeError, UnicodeDecodeError) as error:
                    raise AuditError(f"{path}, line {number} is not a ledger line: {error}") from None
    except FileNotFoundError:
        raise InputError(f"{path} does not exist: name the folder of a finished run, e.g. runs/credit") from None


def verify(lines: Iterable[tuple[int, Line]], where: str = "ledger") -> list[Chain]:
    """Check the chains of one file (a simulation writes those of all parties into one) and compare both ends of
    each link.

    Raises:
        AuditError: a line changed, missing, doubled or out of order; a chain without an end; or two
            parties whose ledgers tell different stories of the link between them.
    """
    chains: list[Chain] = []
    opening: Opening | None = None
    entries: list[Entry] = []
    notes: list[Noted] = []
    head = _GENESIS
    for number, line in lines:
        at = f"{where}, line {number}"
        if isinstance(line, Opening):
            _check_opening(line, opening, at)
            opening, entries, notes, head = line, [], [], _GENESIS
        elif opening is None:
            raise AuditError(f"{at}: a line outside any chain; the opening line before it is missing")
        if line.prev != head:
            raise AuditError(f"{at} does not follow the line before it (a line was removed, added or moved)")
        head = _hash(line)
        if not hmac.compare_digest(head, line.hash):
            raise AuditError(f"{at} was changed: its hash is {head[:16]}…, it says {line.hash[:16]}…")
        if isinstance(line, Entry):
            entries.append(line)
            if line.seq != len(entries):
                raise AuditError(f"{at}: message {line.seq} where {len(entries)} was expected")
        elif isinstance(line, Noted):
            if opening is not None and opening.version < 2:
                raise AuditError(f"{at}: a note in a ledger of version {opening.version}, which has none")
            notes.append(line)
        elif isinstance(line, Closing):
            if line.messages != len(entries):
                raise AuditError(f"{at}: closes {line.messages} messages, {len(entries)} are there")
            if opening is not None:
                chains.append(Chain(opening=opening, entries=entries, outcome=line.outcome, notes=notes))
            opening = None
    if opening is not None:
        raise AuditError(f"{where} ends inside {opening.party!r}'s chain of run {opening.run!r}: it was cut off")
    _compare_ends(chains)
    return chains


def _check_opening(line: Opening, before: Opening | None, at: str) -> None:
    if before is not None:
        raise AuditError(f"{at}: {before.party!r}'s chain of run {before.run!r} has no closing line")
    if line.version not in _READ:
        raise AuditError(f"{at}: ledger version {line.version}, this version reads {', '.join(map(str, _READ))}")


def _compare_ends(chains: Sequence[Chain]) -> None:
    """What one party says that it sent is what the other says that it received, in the same order."""
    by_name = {(chain.run, chain.party): chain for chain in chains}
    if len(by_name) != len(chains):
        raise AuditError("one party has two chains of the same run: a chain was copied into the file")
    openings: dict[str, Opening] = {}
    for opening in (chain.opening for chain in chains):
        first = openings.setdefault(opening.run, opening)
        if first.job != opening.job:
            raise AuditError(
                f"run {opening.run!r}: {first.party!r} ran job {first.job[:16]}…, {opening.party!r} ran job "
                f"{opening.job[:16]}…"
            )
    for (run, party), chain in by_name.items():
        for peer in sorted({entry.peer for entry in chain.entries}):
            other = by_name.get((run, peer))
            if other is None or "done" not in (chain.outcome, other.outcome):
                continue
            sent = [_story(e) for e in chain.entries if e.peer == peer and e.way == "sent"]
            got = [_story(e) for e in other.entries if e.peer == party and e.way == "received"]
            complete = chain.outcome == other.outcome == "done"
            if sent[: len(got)] != got or (complete and len(sent) != len(got)):
                raise AuditError(
                    f"run {run!r}: {party!r} says that it sent {len(sent)} messages to {peer!r}, whose ledger "
                    f"has {len(got)} received ones, and they differ"
                )


def _story(entry: Entry) -> tuple[object, ...]:
    return entry.kind, entry.what, entry.bytes, entry.cipher, entry.bits, entry.key, entry.noise
