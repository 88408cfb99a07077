"""Write one party's ledger of one run.

A line records what was sent (kind, step, shapes, bytes, digest), when, how it was protected (cipher, key size, key,
noise) and the hash of the line before it. The party signs the opening line, a mark after every 1,024 messages and the
closing line; because lines are chained by hash, each signature covers all lines before it. If the ledger has a file, a
message's line is in it *before* the message leaves: a line means "may have left". Lines of messages that leave together
are written together, see `Ledger.commit`.

During a run a party can send its peers the signed head of its chain, and the peers record it. What the party sent and
read up to that head is then proven even if its process dies. Before it closes, each party sends every peer its signed
head; each closing line contains the peers' heads. A party that later rewrites its ledger with its own key contradicts
what its peers recorded.
"""

from __future__ import annotations

import hashlib
import math
import os
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from msgspec.structs import force_setattr

from securevfl.errors import AuditError, ProtocolError
from securevfl.ledger.entry_bytes import encode_entry, stored_shapes
from securevfl.ledger.keys import PrivateKey, PublicSigningKey
from securevfl.ledger.line_file import LineFile
from securevfl.ledger.lines import (
    GENESIS,
    LINE_BYTES,
    VERSION,
    AttemptLine,
    Closing,
    Entry,
    Line,
    Mark,
    NoteLine,
    OpeningLine,
    Peer,
    PeersLine,
    Way,
    Word,
    Words,
    decode_line,
    encode,
    signed_kind,
    signed_part,
    word_bytes,
)
from securevfl.transport import Message, Scalar, begin_copies, measure_message

__all__ = ["LAG", "MARK_EVERY", "Ledger"]

MARK_EVERY = 1024
"""Number of messages between signed marks."""

LAG = 64
"""Number of messages that may wait for a device before the oldest one is recorded."""

_LONGEST = 4000
"""Maximum characters of a note or an outcome; a longer text is cut and ends with its original length."""

_Late = tuple[int, int, Way, str, Message, int, Callable[[], None] | None]
"""A message waiting to be recorded: its number, its time and the arguments of `Ledger.record`."""


class Ledger:
    """One party's append-only chain. Kept in memory and, if `path` is given, in that file, line by line.

    Args:
        party: whose ledger it is.
        run: name of the run, unique in the party's file.
        job: digest of the job, in hex.
        policy: the party's policy, in words.
        role: the party's role in the run.
        key: the party's signing key; by default a new key that is never saved.
        runs: names of all runs that the party's file will contain; by default only this run.
        session: id of the call that these runs belong to, in hex; random by default.
        after: head of the party's previous chain.
        software: name and version of the program that writes it.
        path: file to append to; each line is written before the next one is made.
        pins: party → its public key in hex, if an agreement names it; `meet` rejects any other key.
        kept: whether to keep lines in memory as well. A process that trains for days keeps them only in its file.
        not_before: time of the previous chain's last line: a clock that was set back does not reorder chains.

    Attributes:
        length: number of lines.
    """

    def __init__(
        self,
        party: str,
        *,
        run: str,
        job: str,
        policy: str = "none",
        role: str = "",
        key: PrivateKey | None = None,
        runs: Sequence[str] = (),
        session: str = "",
        after: str = "",
        software: str = "",
        path: Path | None = None,
        kept: bool = True,
        pins: Mapping[str, str] | None = None,
        not_before: int = 0,
    ) -> None:
        self.party = party
        self.run = run
        self.length = 0
        self._lines: list[Line] | None = [] if kept or path is None else None
        self._path = path
        self._key = key or PrivateKey.generate()
        self._head = GENESIS
        self._time = not_before
        self._count = 0
        self._attempt = 0, ""
        self._last_message = 0, 0
        self._last: Line | bytes = b""
        self._late: deque[_Late] = deque()
        self._closed = False
        self._attested = False
        self._peers: dict[str, Peer] = {}
        self._pins = dict(pins or {})
        self._words: dict[str, Word] = {}
        self._file = None if path is None else LineFile(path)
        self._begin = 0 if self._file is None else self._file.end
        self.opening = OpeningLine(
            time=self._next_time(),
            party=party,
            role=role,
            run=run,
            runs=list(runs) or [run],
            job=job,
            policy=policy,
            software=software,
            key=self._key.public_key.hex,
            session=session or os.urandom(16).hex(),
            after=after,
            prev=GENESIS,
        )
        self._append_line(self.opening)

    def _next_time(self) -> int:
        self._time = max(self._time, time.time_ns() // 1000)
        return self._time

    def _append_line(self, line: Line) -> None:
        content = signed_part(line)
        force_setattr(line, "hash", hashlib.sha256(content).hexdigest())  # nobody else has seen the line yet
        if isinstance(line, OpeningLine | AttemptLine | Mark | Closing):
            force_setattr(line, "signature", self._key.sign(signed_kind(line), content))
        self._write_line(encode(line), line.hash)
        self._last = line
        if self._lines is not None:
            self._lines.append(line)

    def _write_line(self, encoded: bytes, found: str, *, grouped: bool = False) -> None:
        """Make a line with this hash the last one. If it cannot be written, the chain is as before."""
        if self._file is not None:
            raw = encoded + b"\n"
            if len(raw) > LINE_BYTES:
                raise AuditError(
                    f"{self.party!r}'s ledger line has {len(raw)} bytes; the limit is {LINE_BYTES}: use shorter names"
                )
            if grouped:
                self._file.put(raw)
            else:
                self._file.append(raw)
        self._head = found
        self.length += 1

    def record(
        self,
        way: Way,
        peer: str,
        message: Message,
        size: int,
        *,
        check: Callable[[], None] | None = None,
        grouped: bool = False,
    ) -> None:
        """Append one message of `size` bytes; call it for a sent message before the message leaves.

        Computing the digest of arrays on a device would block until the device is done. If the message contains such
        arrays and is passed by reference to another party in the same process, its line is written up to `LAG` messages
        later, with its original number and time. Waiting messages are written before any other line and by `catch_up`.

        Args:
            way: ``"sent"`` or ``"received"``.
            peer: the party at the other end.
            message: the message.
            size: its size in bytes on the wire.
            check: called once the arrays have arrived from the device; it may raise.
            grouped: False has the line in the file on return. True leaves that to `commit`, to be called before the
                message leaves.

        Raises:
            DiskFull: no room for a line; the message must not leave.
        """
        if message.here and not self._late:
            self._append_entry(self._count + 1, self._next_time(), way, peer, message, size, grouped=grouped)
            self._count += 1
            self._mark_messages()
            if check is not None:
                check()
            return
        # Start the copies now and hash them later, so that training does not wait for the device at each message.
        begin_copies(message)
        self._count += 1
        self._late.append((self._count, self._next_time(), way, peer, message, size, check))
        if len(self._late) > LAG:
            self._append_oldest()

    def commit(self) -> None:
        """Write the lines that `record` left to it, all with one write. They then outlast a killed process.

        Raises:
            DiskFull: no room for them; none of their messages may leave.
        """
        if self._file is not None and self._file.waiting:
            self._file.commit()

    def catch_up(self) -> None:
        """Record all waiting messages, run their checks, and write all lines.

        Raises:
            ProtocolError: a check of a message failed.
        """
        while self._late:
            self._append_oldest()
        self.commit()

    def drop_checks(self) -> None:
        """Record all waiting messages without their checks: of a training that diverged, whose numbers nobody uses."""
        while self._late:
            self._append_oldest(checked=False)

    def _append_oldest(self, *, checked: bool = True) -> None:
        """Record the message that waits longest; it stays if its line cannot be written."""
        seq, moment, way, peer, message, size, check = self._late[0]
        self._append_entry(seq, moment, way, peer, message, size)
        self._late.popleft()
        self._mark_messages()
        if checked and check is not None:
            check()

    def _append_entry(
        self, seq: int, moment: int, way: Way, peer: str, message: Message, size: int, *, grouped: bool = False
    ) -> None:
        digest, before = measure_message(message)[1], self._head
        encoded, found = encode_entry(way, peer, message, seq=seq, time=moment, size=size, digest=digest, prev=before)
        self._write_line(encoded, found, grouped=grouped)
        self._last_message = seq, moment
        self._last = encoded
        if self._lines is not None:
            guard = message.guard
            line = Entry(
                time=moment,
                prev=before,
                hash=found,
                seq=seq,
                way=way,
                peer=peer,
                kind=message.kind,
                what=message.what,
                shapes=stored_shapes(tuple([(name, array.shape) for name, array in message.arrays.items()])),
                bytes=size,
                digest=digest,
                cipher=guard.cipher,
                bits=guard.bits,
                key=guard.key,
                noise=guard.noise,
            )
            self._lines.append(line)

    def _mark_messages(self) -> None:
        seq, moment = self._last_message
        if seq % MARK_EVERY == 0:
            self._append_line(Mark(time=moment, messages=seq, prev=self._head))

    def record_attempt(self, attempt: int, view: str, *, epoch: int = 0, step: int = 0) -> None:
        """Append the attempt line, the chain's second line, and return once it is on disk.

        Args:
            attempt: its number, the same at all parties.
            view: digest of the processes and checkpoints that take part, in hex.
            epoch, step: epochs completed, and batches completed in the next epoch.
        """
        self._append_line(
            AttemptLine(time=self._next_time(), attempt=attempt, view=view, epoch=epoch, step=step, prev=self.head)
        )
        self._attempt = attempt, view
        self.sync()

    @property
    def attempt(self) -> tuple[int, str]:
        """The attempt's number and view, as `record_attempt` was given them; 0 and "" before, and in other runs."""
        return self._attempt

    def sync(self) -> None:
        """Return once all lines are on disk. Does nothing if there is no file."""
        if self._file is not None and not self._closed:
            self._file.sync()

    def record_note(self, note: str, values: Mapping[str, Scalar] | str) -> None:
        """Append a note on the run; a text is stored as ``{"text": …}``. Too slow for the hot path.

        Args:
            note: its name, for example ``"epsilon"``.
            values: named scalars; numbers that are not finite are stored as text, because JSON cannot express them.

        Raises:
            AuditError: the ledger is closed, or the party has sent its signed head.
            DiskFull: no room for the line.
        """
        if self._closed or self._attested:
            state = "closed" if self._closed else "attested"
            raise AuditError(f"{self.party!r}'s ledger of run {self.run!r} is {state}; add note {note!r} earlier")
        named = {"text": values} if isinstance(values, str) else values
        plain = {name: _plain_scalar(value) for name, value in named.items()}
        self._append_line(NoteLine(time=self._next_time(), note=note, values=plain, prev=self.head))

    @property
    def introduction(self) -> dict[str, Scalar]:
        """The ledger version, public key and session that the party sends its peers when a run begins."""
        return {"ledger": VERSION, "key": self.opening.key, "session": self.opening.session}

    @property
    def pins(self) -> Mapping[str, str]:
        """Party → its public key, hexadecimal, as agreed beforehand; empty without an agreement."""
        return self._pins

    def record_peers(self, peers: Mapping[str, tuple[str, Mapping[str, Scalar]]]) -> None:
        """Append the peers and the keys that they sent.

        Args:
            peers: name → its role and its `introduction`.

        Raises:
            ProtocolError: a peer writes another ledger version, sent no key, or sent a key other than the pinned one.
        """
        found: dict[str, Peer] = {}
        for name, (role, said) in sorted(peers.items()):
            key, session = str(said.get("key", "")), str(said.get("session", ""))
            if said.get("ledger") != VERSION:
                raise ProtocolError(
                    f"{name!r} writes ledger version {said.get('ledger')!r}, {self.party!r} writes version "
                    f"{VERSION}: install the same securevfl"
                )
            try:
                PublicSigningKey.from_hex(key)
            except AuditError as error:
                raise ProtocolError(f"{name!r} sent no valid ledger key: {error}") from None
            if self._pins.get(name, key) != key:
                raise ProtocolError(
                    f"{name!r} sent the key {PublicSigningKey.from_hex(key).fingerprint}, but the agreement names "
                    f"{PublicSigningKey.from_hex(self._pins[name]).fingerprint}: somebody may be impersonating it; "
                    "compare fingerprints with the party directly"
                )
            if len(session) != 32 or set(session) - set("0123456789abcdef"):
                raise ProtocolError(f"{name!r} sent the session {session[:80]!r}; expected 32 hexadecimal digits")
            found[name] = Peer(role=role, key=key, session=session)
        if found and found != self._peers:
            self._append_line(PeersLine(time=self._next_time(), peers=found, prev=self.head))
            self._peers = found

    def has_pinned(self, peer: str) -> bool:
        """Whether an agreement names this peer's key."""
        return peer in self._pins

    def sign_for_peers(self, kind: str, content: bytes) -> str:
        """Sign `content` of type `kind` with the party's key, for its peers."""
        return self._key.sign(kind, content)

    def check_vouched(self, peer: str, kind: str, content: bytes, signature: object) -> None:
        """Verify a peer's `sign_for_peers` signature with the key that the peer sent to `meet`.

        Raises:
            ProtocolError: `meet` has not seen the peer, or the peer did not sign this content.
        """
        known = self._peers.get(peer)
        try:
            if known is None or not isinstance(signature, str):
                raise AuditError("it has no signature, or this party has no key to check it with")
            PublicSigningKey.from_hex(known.key).verify(kind, content, signature)
        except AuditError as error:
            raise ProtocolError(
                f"a message to {self.party!r} in the name of {peer!r} is not signed by {peer!r}: {error}; "
                "somebody may be between the two"
            ) from None

    @property
    def is_closed(self) -> bool:
        """Whether the closing line is written."""
        return self._closed

    @property
    def peers(self) -> Mapping[str, Peer]:
        """The peers passed to `meet`."""
        return self._peers

    @property
    def head(self) -> str:
        """Hash of the last line, in hex."""
        if self._late:
            self.catch_up()
        return self._head

    @property
    def is_attested(self) -> bool:
        """Whether peers have this party's signed head for their closing lines: notes belong to a later chain then."""
        return self._attested

    def sign_head(self) -> dict[str, Scalar]:
        """The party's signed head for its peers' closing lines: the chain's last hash, its message count and the
        signature. Syncs the chain to disk first. Nothing but messages and the closing line may follow.
        """
        head = self._signed_head()
        self.sync()
        self._attested = True
        return head

    def _signed_head(self) -> dict[str, Scalar]:
        head, count = self.head, self._count
        mine = self.opening
        signature = self._key.sign(*word_bytes(mine.party, mine.run, mine.session, mine.job, head, count))
        return {"head": head, "messages": count, "signature": signature}

    def publish_head(self) -> dict[str, Scalar]:
        """The party's signed head during a run. Marks the chain and syncs it to disk first, so a restart cannot
        contradict it.
        """
        self._append_line(Mark(time=self._next_time(), messages=self._count, prev=self.head))
        self.sync()
        return self._signed_head()

    def record_head(self, peer: str, said: Mapping[str, Scalar]) -> None:
        """Record a peer's `publish_head` in a separate line and return once it is on disk. Once this party has sent its
        own head for closing lines, those of its peers follow and this one is not recorded.

        Raises:
            ProtocolError: see `take_head`.
        """
        word = self._check_word(peer, said)
        if not self._closed and not self._attested:
            self._append_line(Words(time=self._next_time(), words={peer: word}, prev=self.head))
            self.sync()

    def take_head(self, peer: str, said: Mapping[str, Scalar]) -> None:
        """Keep a peer's signed head for the closing line.

        Raises:
            ProtocolError: it is not signed with the key that the peer sent to `meet`.
        """
        self._words[peer] = self._check_word(peer, said)

    def _check_word(self, peer: str, said: Mapping[str, Scalar]) -> Word:
        known = self._peers.get(peer)
        head, messages, signature = said.get("head"), said.get("messages"), said.get("signature")
        if known is None or not isinstance(head, str) or not isinstance(signature, str) or type(messages) is not int:
            raise ProtocolError(f"{peer!r} sent no signed head of its ledger; expected a head, a count and a signature")
        content = word_bytes(peer, self.run, known.session, self.opening.job, head, messages)
        try:
            PublicSigningKey.from_hex(known.key).verify(*content, signature)
        except AuditError as error:
            raise ProtocolError(f"{peer!r}'s signed head of run {self.run!r} does not verify: {error}") from None
        return Word(head=head, messages=messages, signature=signature)

    def close(self, outcome: str = "done") -> None:
        """Append the closing line; nothing can be recorded after it. Closing twice does nothing.

        Raises:
            DiskFull: no room for the line; the chain stays open.
        """
        if self._closed:
            return
        self.drop_checks()  # the run is over
        words = dict(sorted(self._words.items()))
        self._append_line(
            Closing(
                time=self._next_time(),
                messages=self._count,
                outcome=_shorten_text(outcome),
                words=words,
                prev=self.head,
            )
        )
        self._closed = True
        if self._file is not None:
            self._file.sync()
            self._file.close()

    @property
    def last_time(self) -> int:
        """Time of the last line: a chain that follows begins no earlier."""
        return self._time

    @property
    def last_line(self) -> Line:
        """The last line."""
        self.catch_up()
        if self._lines:
            return self._lines[-1]
        return decode_line(self._last) if isinstance(self._last, bytes) else self._last

    @property
    def message_count(self) -> int:
        """Number of messages recorded."""
        return self._count

    @property
    def lines(self) -> list[Line]:
        """All lines in order, read from the file if they are not kept in memory."""
        self.catch_up()
        return list(self.iter_lines()) if self._lines is None else self._lines

    @property
    def entries(self) -> list[Entry]:
        """The message lines in order, without notes; see `lines`."""
        return list(self.iter_entries())

    def iter_entries(self) -> Iterator[Entry]:
        """Iterate over the message lines; if lines are not kept, only one is in memory at a time."""
        return (line for line in self.iter_lines() if isinstance(line, Entry))

    def iter_lines(self) -> Iterator[Line]:
        """Iterate over all lines; see `iter_entries`."""
        self.catch_up()
        if self._lines is not None or self._path is None:
            yield from self._lines or ()
            return
        with self._path.open("rb") as file:
            file.seek(self._begin)
            for raw, _ in zip(file, range(self.length), strict=False):  # a later chain may follow in the file
                yield decode_line(raw.removesuffix(b"\n"))

    def to_jsonl(self) -> bytes:
        """Return all lines as JSON Lines."""
        return b"".join(encode(line) + b"\n" for line in self.iter_lines())


def _shorten_text(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}… ({len(text):,} letters)"


def _plain_scalar(value: Scalar) -> Scalar:
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return _shorten_text(value) if isinstance(value, str) else value
