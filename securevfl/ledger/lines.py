"""The lines of a ledger and their canonical bytes.

A line is one JSON object without spaces, its fields in the order below, and a line feed. `decode` accepts no other
form: it encodes what it read and compares bytes. This rejects a repeated or unknown key, ``5.0`` for ``5``, an escaped
letter or a space.
"""

from __future__ import annotations

import hashlib
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from securevfl.errors import AuditError
from securevfl.transport import Guard, Kind

__all__ = [
    "AGREEMENT",
    "CONNECTIONS",
    "GENESIS",
    "LEFT",
    "LINE_BYTES",
    "READMITTED",
    "REFUSED",
    "STOPPED",
    "VERSION",
    "AttemptLine",
    "Closing",
    "Entry",
    "Line",
    "Mark",
    "NoteLine",
    "OpeningLine",
    "Peer",
    "PeersLine",
    "Way",
    "Word",
    "Words",
    "decode_line",
    "encode",
    "hash_of",
    "signed_kind",
    "signed_part",
    "word_bytes",
]

AGREEMENT = "agreement"
"""Name of a note in each attempt of parties with an agreement: its digest, and the parties' signatures."""

CONNECTIONS = "connections"
"""Name, followed by a number, of a run that records events between attempts. It contains no messages."""

REFUSED = "refused connection"
"""Name of a note on connections that a party refused. It has no bearing on what a run released."""

READMITTED = "readmitted"
"""Name of a note in a party's first chain after its state folder was restored and its peers admitted it again."""

LEFT = "left"
"""Name of a note in each attempt without a party that left for good: the signed words of all that remain."""

STOPPED = "machine stopped"
"""Name of a note in a party's first chain after its machine, and not only its process, stopped without closing the
chain before: lines that had not reached the disk are lost."""

VERSION = 3
"""3 has keys, times, digests and signed heads. 1 and 2 had no keys, so anyone who can compute a hash could have written
them.
"""

LINE_BYTES = 1 << 16
"""Maximum bytes of a line, including its line feed."""

Way = Literal["sent", "received"]
"""Direction of a message."""
Name = Annotated[str, Meta(max_length=256)]
Text = Annotated[str, Meta(max_length=16_384)]
Hex = Annotated[str, Meta(max_length=128, pattern="^[0-9a-f]*$")]
Count = Annotated[int, Meta(ge=0, le=(1 << 53) - 1)]
Shape = Annotated[list[Count], Meta(max_length=32)]

GENESIS = hashlib.sha256(b"securevfl ledger v3").hexdigest()
"""The previous hash of each chain's first line."""


class _Line(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="line"):
    """Fields of every line."""

    time: Count
    """microseconds since 1970 in UTC; never less than in the previous line"""
    prev: Hex
    """hash of the previous line"""
    hash: Hex = ""
    """SHA-256 of this line with hash and signature empty"""


class OpeningLine(_Line, frozen=True, kw_only=True, tag="open"):
    """The first line of a chain: the party, the run and the job. Signed."""

    version: Annotated[int, Meta(ge=0, le=1 << 16)] = VERSION
    party: Name
    role: Name
    run: Name
    runs: Annotated[list[Name], Meta(max_length=4096)]
    """all runs that this party's ledger will contain, in order, including this one"""
    job: Hex
    """SHA-256 of the job that all parties agreed on"""
    policy: Text
    software: Name
    key: Hex
    """the party's public Ed25519 key"""
    session: Hex
    """128 random bits, drawn per party and call; the same in all its chains"""
    after: Hex
    """hash of the last line of the party's previous chain; empty for the first"""
    signature: Hex = ""


class AttemptLine(_Line, frozen=True, kw_only=True, tag="attempt"):
    """The second line of a chain that records one attempt at a job, in a file that one party writes. Signed. The
    previous chain may have no closing line if its process was killed. Ledgers of simulations have no attempt line.
    """

    attempt: Count
    """the attempt's number, the same at all parties"""
    view: Hex
    """digest of the processes and checkpoints of all parties that take part"""
    epoch: Count
    """epochs completed when it began"""
    step: Count
    """batches completed in the next epoch"""
    signature: Hex = ""


class Peer(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The role, key and session that a peer sent when the run began."""

    role: Name
    key: Hex
    session: Hex


class PeersLine(_Line, frozen=True, kw_only=True, tag="peers"):
    """The peers with their keys, as the party received them."""

    peers: Annotated[dict[Name, Peer], Meta(max_length=1024)]


class Entry(_Line, frozen=True, kw_only=True, tag="message", gc=False):
    """One message. `seq` counts from 1 within the chain. A line "sent" is written before the message leaves.

    A run has hundreds of thousands of them and none can be part of a reference cycle, so ``gc=False`` excludes them
    from Python's cycle collector.
    """

    seq: Count
    way: Way
    peer: Name
    kind: Kind
    what: Name
    shapes: Annotated[dict[Name, Shape], Meta(max_length=256)]
    bytes: Count
    digest: Hex
    """SHA-256 of the message as the wire codec writes it: names, types, shapes, content, guard"""
    cipher: Name
    bits: Annotated[int, Meta(ge=-(1 << 31), le=1 << 31)]
    key: Name
    noise: float

    @property
    def guard(self) -> Guard:
        """The message's protection."""
        return Guard(self.cipher, self.bits, self.key, self.noise)


class NoteLine(_Line, frozen=True, kw_only=True, tag="note"):
    """A party's note on the run, for example the ε spent."""

    note: Name
    """name of the note, for example ``"epsilon"``"""
    values: Annotated[dict[Name, Text | int | float | bool], Meta(max_length=64)]


class Mark(_Line, frozen=True, kw_only=True, tag="mark"):
    """A signed line during the run: if the ledger is cut off later, it is signed up to here."""

    messages: Count
    signature: Hex = ""


class Word(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A party's signed chain head, which it sends to every peer before it closes."""

    head: Hex
    """hash of its last line at that time"""
    messages: Count
    """messages up to that line"""
    signature: Hex


class Words(_Line, frozen=True, kw_only=True, tag="words"):
    """Peers' signed heads during a run: they prove what the peers sent and read up to there."""

    words: Annotated[dict[Name, Word], Meta(max_length=1024)]


class Closing(_Line, frozen=True, kw_only=True, tag="close"):
    """The last line: the number of messages, how the run ended for this party, and its peers' signed heads. Its
    signature covers the whole chain.
    """

    messages: Count
    outcome: Text
    words: Annotated[dict[Name, Word], Meta(max_length=1024)]
    signature: Hex = ""


Line = OpeningLine | AttemptLine | PeersLine | Entry | NoteLine | Mark | Words | Closing

encode = msgspec.json.Encoder().encode
_decoder = msgspec.json.Decoder(Line)


class _Version(msgspec.Struct, frozen=True):
    version: int = 0


def decode_line(raw: bytes) -> Line:
    """Parse a line from its bytes, without the line feed.

    Raises:
        AuditError: they are not the canonical bytes of a line of this version.
    """
    if len(raw) >= LINE_BYTES:
        raise AuditError(f"has more than {LINE_BYTES - 1} bytes, the limit of a ledger line")
    try:
        line: Line = _decoder.decode(raw)
        again = encode(line)
    except (msgspec.MsgspecError, UnicodeError, RecursionError, OverflowError) as error:
        raise AuditError(_other_version(raw) or f"is not a ledger line: {error}") from None
    if again != raw:
        raise AuditError("is not in the one form that a ledger line has (spaces, escapes, doubled keys, 1.0 for 1)")
    return line


def _other_version(raw: bytes) -> str:
    """What to say of an opening line of another version; empty where it is none."""
    try:
        version = msgspec.json.decode(raw, type=_Version).version
    except (msgspec.MsgspecError, UnicodeError, RecursionError, OverflowError):
        return ""
    if version in (0, VERSION):
        return ""
    return (
        f"is of ledger version {version}; {_CURE if version < VERSION else f'this securevfl reads {VERSION}: update'}"
    )


_CURE = "it is not signed, and whoever computes its hashes again can rewrite it: only securevfl 0.1 audits it"


def hash_of(line: Line) -> str:
    """SHA-256 of what a line says, hexadecimal: of all its fields but its hash and its signature."""
    return hashlib.sha256(signed_part(line)).hexdigest()


def signed_part(line: Line) -> bytes:
    """A line in bytes, its hash and its signature empty."""
    if isinstance(line, OpeningLine | AttemptLine | Mark | Closing):
        line = msgspec.structs.replace(line, hash="", signature="")
    elif line.hash:
        line = msgspec.structs.replace(line, hash="")
    return encode(line)


def signed_kind(line: OpeningLine | AttemptLine | Mark | Closing) -> str:
    """The type under which a line is signed."""
    return f"application/vnd.securevfl.ledger.{line.__struct_config__.tag}+json;version={VERSION}"


def word_bytes(party: str, run: str, session: str, job: str, head: str, messages: int) -> tuple[str, bytes]:
    """Type and content of a party's word on its own chain of a run: what it signs for its peers."""
    content = encode([party, run, session, job, messages, head])
    return f"application/vnd.securevfl.ledger.head+json;version={VERSION}", content
