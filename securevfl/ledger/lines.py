"""The lines of a ledger, and their one form in bytes.

A line is one JSON object without spaces, its fields in the order below, and a line feed. `decode` takes no other form:
what it read is written again and has to be the same bytes, so that a doubled or unknown key, ``5.0`` for ``5``, an
escaped letter or a space is found, not overlooked.
"""

from __future__ import annotations

import hashlib
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from securevfl.errors import AuditError
from securevfl.transport import Guard, Kind

__all__ = [
    "GENESIS",
    "LINE_BYTES",
    "VERSION",
    "AttemptLine",
    "Closing",
    "Entry",
    "Line",
    "Mark",
    "Noted",
    "Opening",
    "Peer",
    "Roster",
    "Word",
    "Words",
    "decode",
    "encode",
    "hash_of",
    "signed_kind",
    "signed_part",
    "word_bytes",
]

CONNECTIONS = "connections"
"""How the run of a chain is called that holds what happened while no attempt ran; a number follows. It has no
messages."""

VERSION = 3
"""3 has keys, times, digests and signed heads. 1 and 2 had no keys: whoever computes hashes could have written them."""

LINE_BYTES = 1 << 16
"""The longest line, with its line feed."""

Name = Annotated[str, Meta(max_length=256)]
Text = Annotated[str, Meta(max_length=16_384)]
Hex = Annotated[str, Meta(max_length=128, pattern="^[0-9a-f]*$")]
Count = Annotated[int, Meta(ge=0, le=(1 << 53) - 1)]
Shape = Annotated[list[Count], Meta(max_length=32)]

GENESIS = hashlib.sha256(b"securevfl ledger v3").hexdigest()
"""What the first line of each chain follows."""


class _Line(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="line"):
    """What every line has."""

    time: Count
    """microseconds since 1970 in UTC; never less than that of the line before"""
    prev: Hex
    """hash of the line before"""
    hash: Hex = ""
    """SHA-256 of this line without hash and signature"""


class Opening(_Line, frozen=True, kw_only=True, tag="open"):
    """The first line of a chain: whose it is and what it belongs to. Signed."""

    version: Annotated[int, Meta(ge=0, le=1 << 16)] = VERSION
    party: Name
    role: Name
    run: Name
    runs: Annotated[list[Name], Meta(max_length=4096)]
    """the runs that this party's ledger is going to have, in their order, this one among them"""
    job: Hex
    """SHA-256 of the job that all parties agreed on"""
    policy: Text
    software: Name
    key: Hex
    """the party's public Ed25519 key"""
    session: Hex
    """128 random bits, drawn for this party and this call; in all its chains"""
    after: Hex
    """hash of the last line of the party's chain before this one; empty for the first"""
    signature: Hex = ""


class AttemptLine(_Line, frozen=True, kw_only=True, tag="attempt"):
    """The second line of a chain that is one of several attempts at a job, by parties that each keep a file of their
    own. Signed. A chain before it may have no end: its process was killed. Ledgers of simulations have none."""

    attempt: Count
    """number that all parties gave it"""
    view: Hex
    """which processes and checkpoints of all parties it is of"""
    epoch: Count
    """epochs that were done when it began"""
    step: Count
    """batches of the next epoch that were done"""
    signature: Hex = ""


class Peer(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a peer said of itself when the run began."""

    role: Name
    key: Hex
    session: Hex


class Roster(_Line, frozen=True, kw_only=True, tag="peers"):
    """The peers with their keys, as the party received them."""

    peers: Annotated[dict[Name, Peer], Meta(max_length=1024)]


class Entry(_Line, frozen=True, kw_only=True, tag="message", gc=False):
    """One message. `seq` counts from 1 within the chain. A line "sent" is written before the message leaves.

    A run has hundreds of thousands of them, none of which can be part of a cycle: Python's collector passes them by.
    """

    seq: Count
    way: Literal["sent", "received"]
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
        """How the message was protected."""
        return Guard(self.cipher, self.bits, self.key, self.noise)


class Noted(_Line, frozen=True, kw_only=True, tag="note"):
    """What the party says of the run, for example the ε that it spent."""

    note: Name
    """what it is about, for example ``"epsilon"``"""
    values: Annotated[dict[Name, Text | int | float | bool], Meta(max_length=64)]


class Mark(_Line, frozen=True, kw_only=True, tag="mark"):
    """Signed in mid-run, so that a ledger that was cut off is signed up to here."""

    messages: Count
    signature: Hex = ""


class Word(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A party's signed word on its own chain, as it gives it to every peer before it closes."""

    head: Hex
    """hash of its last line by then"""
    messages: Count
    """messages up to that line"""
    signature: Hex


class Words(_Line, frozen=True, kw_only=True, tag="words"):
    """Peers' words on their own chains in mid-run: what they sent and read up to there is settled."""

    words: Annotated[dict[Name, Word], Meta(max_length=1024)]


class Closing(_Line, frozen=True, kw_only=True, tag="close"):
    """The last line: how many messages went before it, how the run ended for this party, and its peers' words. Signed,
    and with it all that the chain holds."""

    messages: Count
    outcome: Text
    words: Annotated[dict[Name, Word], Meta(max_length=1024)]
    signature: Hex = ""


Line = Opening | AttemptLine | Roster | Entry | Noted | Mark | Words | Closing

encode = msgspec.json.Encoder().encode
_decoder = msgspec.json.Decoder(Line)


class _Version(msgspec.Struct, frozen=True):
    version: int = 0


def decode(raw: bytes) -> Line:
    """The line that these bytes are, without their line feed.

    Raises:
        AuditError: they are not a line of this version in the one form that it has.
    """
    if len(raw) >= LINE_BYTES:
        raise AuditError(f"has more than {LINE_BYTES - 1} bytes, which no line of a ledger has")
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
    if isinstance(line, Opening | AttemptLine | Mark | Closing):
        line = msgspec.structs.replace(line, hash="", signature="")
    elif line.hash:
        line = msgspec.structs.replace(line, hash="")
    return encode(line)


def signed_kind(line: Opening | AttemptLine | Mark | Closing) -> str:
    """The type under which a line is signed."""
    return f"application/vnd.securevfl.ledger.{line.__struct_config__.tag}+json;version={VERSION}"


def word_bytes(party: str, run: str, session: str, job: str, head: str, messages: int) -> tuple[str, bytes]:
    """Type and content of a party's word on its own chain of a run: what it signs for its peers."""
    content = encode([party, run, session, job, messages, head])
    return f"application/vnd.securevfl.ledger.head+json;version={VERSION}", content
