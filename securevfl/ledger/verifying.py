"""Verify the chains of one file: hashes, order, times and signatures, line by line."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise

from securevfl.errors import AuditError
from securevfl.ledger.keys import PublicSigningKey
from securevfl.ledger.lines import (
    CONNECTIONS,
    GENESIS,
    REFUSED,
    STOPPED,
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
    Word,
    Words,
    signed_kind,
    signed_part,
)
from securevfl.ledger.reading import Flaw, Located, Torn

__all__ = ["LedgerChain", "chains_of"]


@dataclass(kw_only=True, eq=False)
class LedgerChain:
    """A chain, as read from a file.

    Attributes:
        file: the file it was read from.
        opening: its first line.
        entries: its messages.
        at: line number of each entry.
        notes: the party's notes on the run.
        notes_at: line number of each note.
        peers: the peers and the keys that the party received.
        words: the peers' signed chain heads.
        outcome: how the run ended for the party; empty if the chain has no closing line.
        head: hash of the last line.
        attempt: number of the attempt at the job; 0 if the job has only one.
        view: digest of the processes and checkpoints of the attempt.
        broke_off: whether it has no closing line and a later attempt follows it.
        lost_end: whether its last lines may be lost without anybody's fault: it has no closing line, and either nothing
            follows it, or what follows records that the machine had stopped.
        settled: line number, peer and head, for each head that a peer signed during the run.
        head_sent: hash and message count just before the party first sent its head for closing lines.
        marks: hash and message count of each line signed during the run.
        first, last: line numbers of the opening line and of the last line.
        peers_at: line number of the roster.
        signed: number of the last line that a signature covers.
        torn: whether a part of a line follows its last one.
        flaws: everything that does not verify.
        last_time: time of its last line.
    """

    file: str
    opening: OpeningLine
    first: int
    last: int
    entries: list[Entry] = field(default_factory=list)
    at: list[int] = field(default_factory=list)
    notes: list[NoteLine] = field(default_factory=list)
    notes_at: list[int] = field(default_factory=list)
    peers: dict[str, Peer] = field(default_factory=dict)
    peers_at: int = 0
    words: dict[str, Word] = field(default_factory=dict)
    outcome: str = ""
    head: str = GENESIS
    attempt: int = 0
    view: str = ""
    broke_off: bool = False
    lost_end: bool = False
    settled: list[tuple[int, str, Word]] = field(default_factory=list)
    head_sent: tuple[str, int] | None = None
    marks: set[tuple[str, int]] = field(default_factory=set)
    signed: int = 0
    torn: bool = False
    flaws: list[Flaw] = field(default_factory=list)
    last_time: int = 0

    @property
    def party(self) -> str:
        """The chain's party."""
        return self.opening.party

    @property
    def run(self) -> str:
        """Name of the run."""
        return self.opening.run

    @property
    def between_attempts(self) -> bool:
        """Whether it records events between attempts; see `CONNECTIONS`."""
        return self.run.partition(" ")[0] == CONNECTIONS

    @property
    def key(self) -> PublicSigningKey:
        """The key that signed it."""
        return PublicSigningKey.from_hex(self.opening.key)

    @property
    def is_closed(self) -> bool:
        """Whether it has its closing line."""
        return bool(self.outcome)

    def add_flaw(self, line: int, text: str) -> None:
        """Record a flaw at a line of the file."""
        self.flaws.append(Flaw(self.file, line, self.party, text))

    def add_line(self, number: int, line: Line) -> None:
        """Verify and add the chain's next line."""
        self.last = number
        content = signed_part(line)
        head = hashlib.sha256(content).hexdigest()
        if head != line.hash:
            self.add_flaw(number, f"the line was changed: its hash is {head[:16]}…, but it records {line.hash[:16]}…")
        elif line.prev != self.head:
            self.add_flaw(number, "the line does not follow the line before it (a line was removed, added or moved)")
        if line.time < self.last_time:
            self.add_flaw(
                number, f"the line is {(self.last_time - line.time) / 1e6:.3f} s older than the line before it"
            )
        self.last_time = line.time
        if isinstance(line, OpeningLine | AttemptLine | Mark | Closing):
            self._check_signature(number, line, content)
        if isinstance(line, Entry):
            self._check_message(number, line)
        elif isinstance(line, AttemptLine | Words):
            self._of_attempt(number, line)
        elif isinstance(line, NoteLine):
            # Its peers do not vouch for a refusal that came after the head, and nothing depends on it.
            if self.head_sent is not None and line.note != REFUSED:
                self.add_flaw(number, f"note {line.note!r} was added after the party sent its peers its signed head")
            self.notes.append(line)
            self.notes_at.append(number)
        elif isinstance(line, PeersLine):
            if self.peers:
                self.add_flaw(number, "a second list of peers; a chain has one")
            self.peers, self.peers_at = dict(line.peers), number
        elif isinstance(line, Mark | Closing) and line.messages != len(self.entries):
            self.add_flaw(number, f"the line counts {line.messages} messages, but the chain has {len(self.entries)}")
        if isinstance(line, Mark):
            self.marks.add((line.hash, line.messages))
        if isinstance(line, Closing):
            self.outcome, self.words = line.outcome or "no outcome", dict(line.words)
        self.head = line.hash

    def _of_attempt(self, number: int, line: AttemptLine | Words) -> None:
        if isinstance(line, Words):
            self.settled += [(number, name, word) for name, word in line.words.items()]
            return
        if number != self.first + 1:
            self.add_flaw(number, "the attempt line does not directly follow the opening line")
        self.attempt, self.view = line.attempt, line.view

    def _check_message(self, number: int, line: Entry) -> None:
        # The head that peers put in their closing lines was taken before this message itself was recorded.
        if line.way == "sent" and line.what == "ledger/head" and self.head_sent is None:
            self.head_sent = self.head, len(self.entries)
        self.entries.append(line)
        self.at.append(number)
        if line.seq != len(self.entries) and not self.flaws:
            self.add_flaw(number, f"message {line.seq}; expected message {len(self.entries)}")

    def _check_signature(self, number: int, line: OpeningLine | AttemptLine | Mark | Closing, content: bytes) -> None:
        try:
            self.key.verify(signed_kind(line), content, line.signature)
        except AuditError as error:
            self.add_flaw(number, str(error))
        else:
            self.signed = number


def chains_of(lines: Iterable[Located], where: str) -> tuple[list[LedgerChain], list[Flaw]]:
    """Return the chains of one file with their flaws, and the flaws outside any chain.

    Args:
        lines: the file's lines.
        where: the file's name.
    """
    chains: list[LedgerChain] = []
    loose: list[Flaw] = []
    stray = False
    for number, line in lines:
        last = chains[-1] if chains else None
        if isinstance(line, Torn):
            if last is not None:  # without a chain the file is as good as empty
                last.torn = True
        elif isinstance(line, Flaw):
            loose.append(Flaw(line.file, line.line, last.party if last else "", line.text))
        elif isinstance(line, OpeningLine):
            stray = False
            chains.append(_open_chain(where, number, line))
        elif last is None or last.is_closed:
            if stray:
                continue  # one flaw covers all lines that follow
            stray = True
            party = last.party if last else ""
            text = "a line outside any chain: " + (
                f"it comes after the closing line {last.last}" if last else "the opening line before it is missing"
            )
            loose.append(Flaw(where, number, party, text))
        else:
            last.add_line(number, line)
    for before, chain in pairwise(chains):
        if before.is_closed:
            continue
        before.lost_end = any(note.note == STOPPED for note in chain.notes)
        # A chain without messages released nothing: its process was killed, and the next one begins it again.
        again = chain.run == before.run and not before.entries and not before.attempt
        begun = before.attempt > 0 or not before.entries
        before.broke_off = chain.attempt > before.attempt or (chain.between_attempts and begun) or again
        if not before.broke_off:
            text = f"the chain of run {before.run!r} has no closing line, but another chain follows it"
            before.add_flaw(before.last, text)
    if chains and not chains[-1].is_closed:
        chains[-1].lost_end = True
    return chains, loose


def _open_chain(where: str, number: int, line: OpeningLine) -> LedgerChain:
    chain = LedgerChain(file=where, opening=line, first=number, last=number)
    if line.version != VERSION:
        chain.add_flaw(number, f"ledger version {line.version}; this securevfl reads {VERSION}")
    try:
        PublicSigningKey.from_hex(line.key)
    except AuditError as error:
        chain.add_flaw(number, str(error))
    chain.add_line(number, line)
    return chain
