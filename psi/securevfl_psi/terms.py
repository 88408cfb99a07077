"""The handshake: what a party brings, what it demands of the peer, and the session that follows from both."""

from __future__ import annotations

import hmac
import json
import math
import secrets
from dataclasses import dataclass, field
from typing import Final, Literal

from securevfl_psi.blinding import MAX_SET_SIZE
from securevfl_psi.choosing import choose
from securevfl_psi.errors import DisagreementError, MalformedError, PSIError, SetSizeError
from securevfl_psi.group import Scalar
from securevfl_psi.identifiers import IdRules
from securevfl_psi.session import Session
from securevfl_psi.wire import VERSION

__all__ = ["PROTOCOLS", "Lasting", "Learns", "Protocol", "Role", "Terms", "Wanted"]

Role = Literal["receiver", "sender"]
Protocol = Literal["dh", "cardinality", "pseudonyms", "ot", "unsafe_salted_hash"]
Wanted = Literal["dh", "cardinality", "pseudonyms", "ot", "unsafe_salted_hash", "auto"]
"""A protocol, or ``auto``: `dh` or `ot`, see `choosing`."""
Learns = Literal["both", "receiver"]
PROTOCOLS: tuple[Protocol, ...] = ("dh", "cardinality", "pseudonyms", "ot", "unsafe_salted_hash")
_NAME = 64
_AUTO: Final = "auto"
_LASTING = b"securevfl-psi lasting 1\n"


@dataclass(frozen=True, kw_only=True)
class Lasting:
    """What a party keeps so that its pseudonyms in later runs with the same peer are those of this one.

    They are equal as long as both parties keep theirs; then each can also tell which rows come back. Keep it as
    carefully as any key: with it and the peer's answers any identifier can be tested.

    Attributes:
        secret: the blinding scalar, 32 bytes.
        nonce: what stands for this party's contribution to the session, 16 bytes.

    Raises:
        PSIError: another length.
    """

    secret: bytes = field(default_factory=lambda: Scalar().to_bytes(), repr=False)
    nonce: bytes = field(default_factory=lambda: secrets.token_bytes(16))

    def __post_init__(self) -> None:
        if (len(self.secret), len(self.nonce)) != (32, 16):
            raise PSIError(f"a lasting key of {len(self.secret)} and {len(self.nonce)} bytes; 32 and 16 are needed")

    def to_bytes(self) -> bytes:
        """To be stored, with a version."""
        return _LASTING + self.secret + self.nonce

    @classmethod
    def from_bytes(cls, data: bytes) -> Lasting:
        """What `to_bytes` gave.

        Raises:
            MalformedError: anything else.
        """
        if len(data) != len(_LASTING) + 48 or not data.startswith(_LASTING):
            raise MalformedError(f"{len(data)} bytes that are no lasting key of this version")
        return cls(secret=data[len(_LASTING) : len(_LASTING) + 32], nonce=data[-16:])


@dataclass(frozen=True, kw_only=True)
class Terms:
    """One party's side of the agreement.

    Attributes:
        name: of this party, up to 64 characters.
        peer: name that the peer must give; any other is refused.
        role: the receiver compares; one of the two must be it.
        protocol: one of `PROTOCOLS`; or ``auto``, which leaves it to the peer whether `dh` or `ot` is run, or to the
            sizes where the peer says ``auto``, too (see `choosing`).
        learns: whether the sender is told the result, too.
        rules: how identifiers were normalised.
        context: what the run is for, a job's name; both must give the same.
        max_set_size: largest set that the peer may announce.
        min_intersection: fewer common identifiers are an error: at the party that asks before its peer learns which,
            at the other one when it is told, and its peer knows the result by then.
        pad_to: announce and send this many points, see `Party`.
        salt: for ``unsafe_salted_hash``, known to both.
        lasting: for ``pseudonyms`` that are the same in later runs.
        link: for ``auto``, megabits a second to the peer; of two that are given the smaller one counts, and none means
            that the link is not what limits.
        nonce: this party's contribution to the session's.

    Raises:
        PSIError: a value of another form.
    """

    name: str
    peer: str
    role: Role
    protocol: Wanted = "dh"
    learns: Learns = "both"
    rules: IdRules = IdRules()  # noqa: RUF009 - frozen
    context: str = ""
    max_set_size: int = MAX_SET_SIZE
    min_intersection: int = 1
    pad_to: int | None = None
    salt: bytes = b""
    lasting: Lasting | None = None
    link: float | None = None
    nonce: bytes = field(default_factory=lambda: secrets.token_bytes(16))

    def __post_init__(self) -> None:
        if self.role not in ("receiver", "sender"):
            raise PSIError(f"role {self.role!r}; 'receiver' and 'sender' are possible")
        if self.protocol not in (*PROTOCOLS, _AUTO):
            raise PSIError(f"protocol {self.protocol!r}; one of {', '.join((*PROTOCOLS, _AUTO))} is possible")
        if self.link is not None and (self.protocol != _AUTO or not _is_link(self.link)):
            raise PSIError(
                f"link={self.link!r} with protocol {self.protocol!r}; megabits a second, above 0, for 'auto'"
            )
        if self.learns not in ("both", "receiver"):
            raise PSIError(f"learns={self.learns!r}; 'both' and 'receiver' are possible")
        for what in ("name", "peer"):
            text = getattr(self, what)
            if not 1 <= len(text) <= _NAME:
                raise PSIError(f"{what} {text!r}; 1 to {_NAME} characters are possible")
        if any("\ud800" <= char <= "\udfff" for char in self.name + self.peer + self.context):
            raise PSIError("name, peer or context hold a lone surrogate, so they are no Unicode text")
        if self.name == self.peer:
            raise PSIError(f"both parties are called {self.name!r}; give them different names")
        if self.lasting is not None and self.protocol != "pseudonyms":
            raise PSIError(f"a lasting key is for protocol 'pseudonyms'; {self.protocol!r} draws fresh ones")
        if len(self.context) > _NAME:
            raise PSIError(f"a context of {len(self.context)} characters; at most {_NAME} are possible")
        if len(self.nonce) != 16:
            raise PSIError(f"a nonce of {len(self.nonce)} bytes; 16 are needed")
        if self.protocol == "unsafe_salted_hash" and len(self.salt) < 16:
            raise PSIError(f"a salt of {len(self.salt)} bytes; unsafe_salted_hash needs at least 16 that both know")
        if self.protocol == "unsafe_salted_hash" and self.pad_to is not None:
            raise PSIError(f"pad_to={self.pad_to}: unsafe_salted_hash does not pad; leave it out")

    def asks(self, own_size: int, peer_size: int) -> bool:
        """Whether this party is the client of `dh` or `ot`, by the sizes that both announced.

        Where only the receiver learns, it asks: the client compares, so it learns in any case. Where both learn, the
        smaller set asks, which saves up to a quarter of the work of `dh`, and most of the bytes of `ot`; of two equal
        ones the receiver's does.
        """
        if self.learns == "receiver" or own_size == peer_size:
            return self.role == "receiver"
        return own_size < peer_size

    def hello(self, size: int) -> bytes:
        """This party's first message: its terms and how many rows it will send, as JSON."""
        nonce = self._own_nonce()
        fields = self._agreed() | {"name": self.name, "role": self.role, "rows": size, "nonce": nonce.hex()}
        if self.protocol == _AUTO:
            fields["link"] = self.link
        if self.protocol == "unsafe_salted_hash":
            fields["salt"] = self._proof(nonce)
        return json.dumps(fields, sort_keys=True).encode()

    def _proof(self, nonce: bytes) -> str:
        """That a party has the salt: with two different ones nothing would be common, and nobody would know why."""
        return hmac.digest(self.salt, b"securevfl-psi salt" + nonce, "sha256").hex()

    def _own_nonce(self) -> bytes:
        return self.nonce if self.lasting is None else self.lasting.nonce

    def _agreed(self) -> dict[str, object]:
        return {
            "protocol": self.protocol,
            "version": VERSION,
            "rules": self.rules.tag(),
            "learns": self.learns,
            "context": self.context,
            "lasting": self.lasting is not None,
        }

    def _settled(self, theirs: dict[str, object], own_size: int | None, rows: int) -> tuple[Protocol, str]:
        """What is run, and why where that was open; the protocols agree, or one of them is ``auto``."""
        if self.protocol != _AUTO:
            return self.protocol, "" if theirs["protocol"] != _AUTO else f"{self.name} wants it"
        if theirs["protocol"] != _AUTO:
            return ("ot" if theirs["protocol"] == "ot" else "dh"), f"{self.peer} wants it"
        links = [link for link in (self.link, theirs.get("link")) if link is not None]
        if own_size is None or not all(map(_is_link, links)):
            raise MalformedError(f"a link of {str(theirs.get('link'))[:40]!r} Mbit/s; a number above 0 was expected")
        sizes = (own_size, rows) if self.asks(own_size, rows) else (rows, own_size)
        chosen = choose(*sizes, min(map(float, links), default=None))  # type: ignore[arg-type]
        return ("ot" if chosen.protocol == "ot" else "dh"), chosen.why

    def agree(self, hello: bytes, own_size: int | None = None) -> tuple[Session, int]:
        """The session and the peer's announced size.

        Args:
            hello: the peer's.
            own_size: as this party's says; needed for ``auto`` alone.

        Raises:
            MalformedError: a hello of another form.
            DisagreementError: the peer runs something else, or is another party.
            SetSizeError: the peer announces more than `max_set_size`.
        """
        try:
            fields = json.loads(hello)
        except (ValueError, RecursionError):
            raise MalformedError("the peer's hello is not JSON, or nested too deeply") from None
        if not isinstance(fields, dict):
            raise MalformedError("the peer's hello is not a JSON object")
        if isinstance(fields.get("lasting"), bool) and fields["lasting"] != (self.lasting is not None):
            raise DisagreementError(
                "one party keeps its key for pseudonyms that last (--lasting), the other draws a fresh one: both keep "
                f"theirs, or neither does; the peer {'keeps' if fields['lasting'] else 'does not keep'} its key"
            )
        expected = self._agreed()
        if {self.protocol, str(fields.get("protocol"))} in ({_AUTO, "dh"}, {_AUTO, "ot"}):
            expected["protocol"] = fields["protocol"]
        for key, mine in (expected | {"name": self.peer, "role": _other(self.role)}).items():
            if fields.get(key) != mine:
                raise DisagreementError(f"the peer has {key} {str(fields.get(key))[:80]!r}; {mine!r} was expected")
        rows, nonce = fields.get("rows"), parse_nonce(fields.get("nonce"))
        if self.protocol == "unsafe_salted_hash" and fields.get("salt") != self._proof(nonce):
            raise DisagreementError("the peer has another salt; both need the same")
        if isinstance(rows, bool) or not isinstance(rows, int) or rows < 0:
            raise MalformedError(f"the peer announces {str(rows)[:40]!r} rows; a whole number was expected")
        if rows > self.max_set_size:
            raise SetSizeError(f"the peer announces {rows} rows; at most {self.max_set_size}: raise max_set_size")
        both = [(self.name, self._own_nonce()), (self.peer, nonce)]
        protocol, why = self._settled(fields, own_size, rows)
        receiver, sender = both if self.role == "receiver" else both[::-1]
        if receiver[1] == sender[1]:
            raise MalformedError("the peer repeats this party's nonce")
        session = Session(
            names=(receiver[0], sender[0]),
            nonce=receiver[1] + sender[1],
            rules_tag=self.rules.tag() + "|" + self.context,
            protocol=protocol,
            why=why,
        )
        return session, rows


def _is_link(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < math.inf


def _other(role: Role) -> Role:
    return "sender" if role == "receiver" else "receiver"


def parse_nonce(text: object) -> bytes:
    """A session's nonce from its hexadecimal form.

    Raises:
        MalformedError: no hexadecimal text, or too few bytes.
    """
    try:
        nonce = bytes.fromhex(text) if isinstance(text, str) else b""
    except ValueError:
        nonce = b""
    if len(nonce) != 16:
        raise MalformedError("the peer's nonce is not 16 bytes in hexadecimal")
    return nonce
