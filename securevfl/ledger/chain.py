"""One party's ledger of one run, as it is written.

A line holds what was sent (kind, step, shapes, bytes, digest), when, how it was protected (cipher, key size, key,
noise) and the hash of the line before it. The opening line, a mark after every 1,024 messages and the closing line are
signed with the party's key: a signature over a line's hash is one over all before it. A message's line is written, and
on disk where the ledger has a file, *before* the message leaves: it means "may have left".

In mid-run a party may give its peers its signed word on its chain so far; they write it down. What it sent and read up
to there is settled, whatever happens to its process. Before it closes, each party gives every peer its signed word on
its own chain; the closing lines hold the peers' words. So a party that rewrites its own ledger afterwards, with its own
key, disagrees with what its peers hold.
"""

from __future__ import annotations

import hashlib
import math
import os
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Literal

from msgspec.structs import force_setattr

from securevfl.errors import AuditError, ProtocolError
from securevfl.ledger.keys import PrivateKey, PublicKey
from securevfl.ledger.lines import (
    GENESIS,
    LINE_BYTES,
    VERSION,
    AttemptLine,
    Closing,
    Entry,
    Line,
    Mark,
    Noted,
    Opening,
    Peer,
    Roster,
    Word,
    Words,
    decode,
    encode,
    signed_kind,
    signed_part,
    word_bytes,
)
from securevfl.transport import Message, Scalar, begin_copies, measure

__all__ = ["LAG", "MARK_EVERY", "Ledger"]

MARK_EVERY = 1024
"""Messages from one signed mark to the next."""

LAG = 64
"""Messages that may wait for a device before the oldest is written down."""

_LONGEST = 4000
"""Letters of a note or an outcome; longer ones are cut, and say so."""


Way = Literal["sent", "received"]

_Late = tuple[int, int, Way, str, Message, int, Callable[[], None] | None]
"""A message to be written down: its number and time, and what `Ledger.record` was given."""


@lru_cache(maxsize=256)
def _shapes(arrays: tuple[tuple[str, tuple[int, ...]], ...]) -> dict[str, list[int]]:
    """As an `Entry` has them; one object for equal ones, of which most lines have one of a few."""
    return {name: list(shape) for name, shape in arrays}


class Ledger:
    """One party's append-only chain. Kept in memory and, if `path` is given, in that file, line by line.

    Args:
        party: whose ledger it is.
        run: name of the run, unique in the party's file.
        job: digest of the job, hexadecimal.
        policy: the party's policy, in words.
        role: the party's in the run.
        key: the party's; a new one that is never written down, unless given.
        runs: names of all runs that the party's file is going to have; this one alone unless given.
        session: of the call that these runs belong to, hexadecimal; drawn unless given.
        after: head of the party's chain before this one.
        software: name and version of what keeps it.
        path: file to append to; each line is there before the next is made.
        pins: party → its public key, hexadecimal, where an agreement names it; `meet` takes no other one.
        kept: whether lines stay in memory, too. A process that trains for days keeps them in its file alone.

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
    ) -> None:
        self.party = party
        self.run = run
        self.length = 0
        self._lines: list[Line] | None = [] if kept or path is None else None
        self._path = path
        self._begin = path.stat().st_size if path is not None and path.exists() else 0
        self._key = key or PrivateKey.generate()
        self._head = GENESIS
        self._time = 0
        self._count = 0
        self._late: deque[_Late] = deque()
        self._closed = False
        self._peers: dict[str, Peer] = {}
        self._pins = dict(pins or {})
        self._words: dict[str, Word] = {}
        self._file = path.open("ab", buffering=0) if path is not None else None
        self.opening = Opening(
            time=self._now(),
            party=party,
            role=role,
            run=run,
            runs=list(runs) or [run],
            job=job,
            policy=policy,
            software=software,
            key=self._key.public.hex,
            session=session or os.urandom(16).hex(),
            after=after,
            prev=GENESIS,
        )
        self._append(self.opening)

    def _now(self) -> int:
        self._time = max(self._time, time.time_ns() // 1000)
        return self._time

    def _append(self, line: Line) -> None:
        content = signed_part(line)
        self._chain(line, content)
        if isinstance(line, Opening | AttemptLine | Mark | Closing):
            force_setattr(line, "signature", self._key.sign(signed_kind(line), content))
        self._write(line)

    def _chain(self, line: Line, content: bytes) -> None:
        """Make `line` the head; `content` is what it says, without hash and signature."""
        self._head = hashlib.sha256(content).hexdigest()
        force_setattr(line, "hash", self._head)  # nobody else has seen the line yet

    def _write(self, line: Line) -> None:
        if self._lines is not None:
            self._lines.append(line)
        self._last = line
        self.length += 1
        if self._file is not None:
            raw = encode(line) + b"\n"
            if len(raw) > LINE_BYTES:
                raise AuditError(
                    f"{self.party!r}'s ledger cannot hold a line of {len(raw)} bytes; {LINE_BYTES} are the most: use "
                    "shorter names"
                )
            self._file.write(raw)

    def record(
        self,
        way: Way,
        peer: str,
        message: Message,
        size: int,
        *,
        check: Callable[[], None] | None = None,
    ) -> None:
        """Append one message of `size` bytes; a sent one before it leaves.

        The digest of numbers on a device would have to wait for it. A message that holds some, and passes to another
        party of the same process by reference, is written down up to `LAG` messages later, in its place, with the time
        of now; before any other line, and when `catch_up` is called.

        Args:
            way: whether it was sent or received.
            peer: the party at the other end.
            message: it.
            size: its bytes.
            check: what is to be looked at once the numbers are here; it may raise.
        """
        self._count += 1
        if message.here and not self._late:
            self._enter(self._count, self._now(), way, peer, message, size, check)
            return
        begin_copies(message)
        self._late.append((self._count, self._now(), way, peer, message, size, check))
        if len(self._late) > LAG:
            self._enter(*self._late.popleft())

    def catch_up(self) -> None:
        """Write down what waits for a device, and look at what had to be looked at there.

        Raises:
            ProtocolError: a check of a message failed.
        """
        while self._late:
            self._enter(*self._late.popleft())

    def _enter(
        self, seq: int, moment: int, way: Way, peer: str, message: Message, size: int, check: Callable[[], None] | None
    ) -> None:
        guard = message.guard
        line = Entry(
            seq=seq,
            time=moment,
            way=way,
            peer=peer,
            kind=message.kind,
            what=message.what,
            shapes=_shapes(tuple((name, array.shape) for name, array in message.arrays.items())),
            bytes=size,
            digest=measure(message)[1],
            cipher=guard.cipher,
            bits=guard.bits,
            key=guard.key,
            noise=guard.noise,
            prev=self._head,
        )
        self._chain(line, encode(line))  # no `_append`: it has no hash yet and is never signed
        self._write(line)
        if seq % MARK_EVERY == 0:
            self._append(Mark(time=moment, messages=seq, prev=self._head))
        if check is not None:
            check()

    def attempt(self, attempt: int, view: str, *, epoch: int = 0, step: int = 0) -> None:
        """Append, as the second line, which attempt at the job this chain is of; returns when that is on the disk.

        Args:
            attempt: its number, the same at all parties.
            view: of which processes and checkpoints, hexadecimal.
            epoch, step: epochs that were done, and batches of the next one.
        """
        self._append(AttemptLine(time=self._now(), attempt=attempt, view=view, epoch=epoch, step=step, prev=self.head))
        self.sync()

    def sync(self) -> None:
        """Returns when all lines are on the disk; does nothing where there is no file."""
        if self._file is not None and not self._closed:
            os.fsync(self._file.fileno())

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
        plain = {name: _plain(value) for name, value in named.items()}
        self._append(Noted(time=self._now(), note=note, values=plain, prev=self.head))

    @property
    def introduction(self) -> dict[str, Scalar]:
        """What the party tells its peers of its ledger when a run begins."""
        return {"ledger": VERSION, "key": self.opening.key, "session": self.opening.session}

    def meet(self, peers: Mapping[str, tuple[str, Mapping[str, Scalar]]]) -> None:
        """Append the peers with the keys that they sent.

        Args:
            peers: name → its role and its `introduction`.

        Raises:
            ProtocolError: a peer has a ledger of another version, or sent no key, or not the one that is pinned.
        """
        found: dict[str, Peer] = {}
        for name, (role, said) in sorted(peers.items()):
            key, session = str(said.get("key", "")), str(said.get("session", ""))
            if said.get("ledger") != VERSION:
                raise ProtocolError(
                    f"{name!r} keeps a ledger of version {said.get('ledger')!r}, {self.party!r} of version {VERSION}: "
                    "install the same securevfl"
                )
            try:
                PublicKey.from_hex(key)
            except AuditError as error:
                raise ProtocolError(f"{name!r} introduced itself without a key: {error}") from None
            if self._pins.get(name, key) != key:
                raise ProtocolError(
                    f"{name!r} introduced itself with the key {PublicKey.from_hex(key).fingerprint}, and the agreement "
                    f"names {PublicKey.from_hex(self._pins[name]).fingerprint}: somebody else may stand in its place; "
                    "compare fingerprints with the party itself"
                )
            if len(session) != 32 or set(session) - set("0123456789abcdef"):
                raise ProtocolError(f"{name!r} sent the session {session[:80]!r}; 32 hexadecimal digits were expected")
            found[name] = Peer(role=role, key=key, session=session)
        if found and found != self._peers:
            self._peers = found
            self._append(Roster(time=self._now(), peers=found, prev=self.head))

    def vouch(self, kind: str, content: bytes) -> str:
        """The party's signature over `content` of a `kind`, for its peers."""
        return self._key.sign(kind, content)

    def check_vouched(self, peer: str, kind: str, content: bytes, signature: object) -> None:
        """Check a peer's `vouch` by the key that it introduced itself with.

        Raises:
            ProtocolError: nobody met the peer, or it did not sign this.
        """
        known = self._peers.get(peer)
        try:
            if known is None or not isinstance(signature, str):
                raise AuditError("there is no signature, or no key to check it by")
            PublicKey.from_hex(known.key).verify(kind, content, signature)
        except AuditError as error:
            raise ProtocolError(
                f"what {peer!r} is said to have sent {self.party!r} is not signed by it: {error}; somebody may stand "
                "between the two"
            ) from None

    @property
    def closed(self) -> bool:
        """Whether it has its closing line."""
        return self._closed

    @property
    def peers(self) -> Mapping[str, Peer]:
        """The peers that `meet` was told of."""
        return self._peers

    @property
    def head(self) -> str:
        """Hash of the last line, hexadecimal."""
        if self._late:
            self.catch_up()
        return self._head

    def word(self) -> dict[str, Scalar]:
        """The party's signed word on its chain so far, for its peers."""
        head, count = self.head, self._count
        mine = self.opening
        signature = self._key.sign(*word_bytes(mine.party, mine.run, mine.session, mine.job, head, count))
        return {"head": head, "messages": count, "signature": signature}

    def word_so_far(self) -> dict[str, Scalar]:
        """The party's word in mid-run, for its peers, when everything up to it is signed and on the disk."""
        self._append(Mark(time=self._now(), messages=self._count, prev=self.head))
        self.sync()
        return self.word()

    def settle(self, peer: str, said: Mapping[str, Scalar]) -> None:
        """Keep a peer's `word_so_far` in a line of its own; returns when that is on the disk.

        Raises:
            ProtocolError: see `take_word`.
        """
        word = self._checked(peer, said)
        if not self._closed:
            self._append(Words(time=self._now(), words={peer: word}, prev=self.head))
            self.sync()

    def take_word(self, peer: str, said: Mapping[str, Scalar]) -> None:
        """Keep a peer's word on its chain, for the closing line.

        Raises:
            ProtocolError: it is not signed with the key that the peer introduced itself with.
        """
        self._words[peer] = self._checked(peer, said)

    def _checked(self, peer: str, said: Mapping[str, Scalar]) -> Word:
        known = self._peers.get(peer)
        head, messages, signature = said.get("head"), said.get("messages"), said.get("signature")
        if known is None or not isinstance(head, str) or not isinstance(signature, str) or type(messages) is not int:
            raise ProtocolError(f"{peer!r} gave no word on its ledger; a head, a count and a signature were expected")
        content = word_bytes(peer, self.run, known.session, self.opening.job, head, messages)
        try:
            PublicKey.from_hex(known.key).verify(*content, signature)
        except AuditError as error:
            raise ProtocolError(f"{peer!r}'s word on its ledger of run {self.run!r} does not verify: {error}") from None
        return Word(head=head, messages=messages, signature=signature)

    def close(self, outcome: str = "done") -> None:
        """Append the closing line; nothing can be recorded after it. Closing twice does nothing."""
        if self._closed:
            return
        while self._late:  # the run is over: what its end did not wait for is written, and no more looked at
            self._enter(*self._late.popleft()[:-1], None)
        self._closed = True
        words = dict(sorted(self._words.items()))
        self._append(
            Closing(time=self._now(), messages=self._count, outcome=_cut(outcome), words=words, prev=self.head)
        )
        if self._file is not None:
            os.fsync(self._file.fileno())
            self._file.close()

    @property
    def last(self) -> Line:
        """The last line."""
        self.catch_up()
        return self._lines[-1] if self._lines else self._last

    @property
    def messages(self) -> int:
        """How many messages were recorded."""
        return self._count

    @property
    def lines(self) -> list[Line]:
        """All lines, in their order; read from the file where they are not kept in memory."""
        self.catch_up()
        return list(self.each_line()) if self._lines is None else self._lines

    @property
    def entries(self) -> list[Entry]:
        """The messages, without notes, in their order; see `lines`."""
        return list(self.each_entry())

    def each_entry(self) -> Iterator[Entry]:
        """The messages one by one, in no more memory than one takes where lines are not kept."""
        return (line for line in self.each_line() if isinstance(line, Entry))

    def each_line(self) -> Iterator[Line]:
        """All lines one by one; likewise."""
        self.catch_up()
        if self._lines is not None or self._path is None:
            yield from self._lines or ()
            return
        with self._path.open("rb") as file:
            file.seek(self._begin)
            for raw, _ in zip(file, range(self.length), strict=False):  # a later chain may follow in the file
                yield decode(raw.removesuffix(b"\n"))

    def to_jsonl(self) -> bytes:
        """All lines, one JSON object each."""
        return b"".join(encode(line) + b"\n" for line in self.each_line())


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}… ({len(text):,} letters)"


def _plain(value: Scalar) -> Scalar:
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return _cut(value) if isinstance(value, str) else value
