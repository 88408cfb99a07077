"""The handshake: each party's parameters and conditions, and the session that both derive from them."""

from __future__ import annotations

import hmac
import json
import math
import secrets
from dataclasses import dataclass, field
from typing import Final, Literal

from securevfl_psi.blinding import MAX_SET_SIZE
from securevfl_psi.choosing import choose_protocol
from securevfl_psi.errors import DisagreementError, MalformedError, PSIError, SetSizeError
from securevfl_psi.group import Scalar
from securevfl_psi.identifiers import IdRules
from securevfl_psi.session import Session
from securevfl_psi.speed import UNTOLD, Speed
from securevfl_psi.wire import VERSION

__all__ = ["PROTOCOLS", "LastingKey", "Learns", "Protocol", "RequestedProtocol", "Role", "Terms"]

Role = Literal["receiver", "sender"]
Protocol = Literal["dh", "cardinality", "pseudonyms", "ot", "unsafe_salted_hash"]
RequestedProtocol = Literal["dh", "cardinality", "pseudonyms", "ot", "unsafe_salted_hash", "auto"]
"""A protocol, or ``auto``: `dh` or `ot`, see `choosing`."""
Learns = Literal["both", "receiver"]
PROTOCOLS: tuple[Protocol, ...] = ("dh", "cardinality", "pseudonyms", "ot", "unsafe_salted_hash")
_NAME = 64
_AUTO: Final = "auto"
_LASTING = b"securevfl-psi lasting 1\n"


@dataclass(frozen=True, kw_only=True)
class LastingKey:
    """A stored key that gives a party the same pseudonyms in later runs with the same peer.

    Pseudonyms repeat as long as both parties keep their keys; then each can also recognise rows that return. Store it
    as carefully as any key: with it and the peer's answers, any identifier can be tested.

    Attributes:
        secret: the blinding scalar, 32 bytes.
        nonce: replaces this party's fresh contribution to the session's nonce, 16 bytes.

    Raises:
        PSIError: a wrong length.
    """

    secret: bytes = field(default_factory=lambda: Scalar().to_bytes(), repr=False)
    nonce: bytes = field(default_factory=lambda: secrets.token_bytes(16))

    def __post_init__(self) -> None:
        if (len(self.secret), len(self.nonce)) != (32, 16):
            raise PSIError(f"a lasting key of {len(self.secret)} and {len(self.nonce)} bytes; 32 and 16 are needed")

    def to_bytes(self) -> bytes:
        """Encode for storage, with a version."""
        return _LASTING + self.secret + self.nonce

    @classmethod
    def from_bytes(cls, data: bytes) -> LastingKey:
        """Decode what `to_bytes` returned.

        Raises:
            MalformedError: other bytes.
        """
        if len(data) != len(_LASTING) + 48 or not data.startswith(_LASTING):
            raise MalformedError(f"{len(data)} bytes are not a lasting key of this version")
        return cls(secret=data[len(_LASTING) : len(_LASTING) + 32], nonce=data[-16:])


@dataclass(frozen=True, kw_only=True)
class Terms:
    """One party's side of the agreement.

    Attributes:
        name: this party's name, up to 64 characters.
        peer: the name that the peer must give.
        role: ``receiver`` compares; one party must be the receiver, the other the sender.
        protocol: one of `PROTOCOLS`; or ``auto``, which lets the peer choose `dh` or `ot`, or the sizes if the peer
            also has ``auto`` (see `choosing`).
        learns: ``both``, or only the ``receiver`` learns the result.
        rules: how identifiers were normalised.
        context: the purpose of the run, such as a job's name; both must give the same.
        max_set_size: largest set that the peer may announce.
        min_intersection: fewer common identifiers are an error. The asking party raises it before its peer learns
            which; the other party raises it when it learns the result, which its peer knows by then.
        pad_to: announce and send this many points, see `Party`.
        salt: for ``unsafe_salted_hash``, known to both.
        lasting: the stored key, for ``pseudonyms`` that are the same in later runs.
        link: for ``auto``, megabits a second to the peer. If both parties give one, the smaller counts; None means that
            the link is not the bottleneck.
        speed: for ``auto``, the figures that this party sends about its machine; `securevfl_psi_cli.calibration`
            measures them.
        nonce: this party's contribution to the session's nonce.

    Raises:
        PSIError: a malformed value.
    """

    name: str
    peer: str
    role: Role
    protocol: RequestedProtocol = "dh"
    learns: Learns = "both"
    rules: IdRules = IdRules()  # noqa: RUF009 - frozen
    context: str = ""
    max_set_size: int = MAX_SET_SIZE
    min_intersection: int = 1
    pad_to: int | None = None
    salt: bytes = b""
    lasting: LastingKey | None = None
    link: float | None = None
    speed: Speed = UNTOLD
    nonce: bytes = field(default_factory=lambda: secrets.token_bytes(16))

    def __post_init__(self) -> None:
        if self.role not in ("receiver", "sender"):
            raise PSIError(f"role {self.role!r}; expected 'receiver' or 'sender'")
        if self.protocol not in (*PROTOCOLS, _AUTO):
            raise PSIError(f"protocol {self.protocol!r}; expected one of {', '.join((*PROTOCOLS, _AUTO))}")
        if self.link is not None and (self.protocol != _AUTO or not _is_link(self.link)):
            raise PSIError(
                f"link={self.link!r} with protocol {self.protocol!r}; expected megabits a second, above 0, and only "
                "with 'auto'"
            )
        if self.learns not in ("both", "receiver"):
            raise PSIError(f"learns={self.learns!r}; expected 'both' or 'receiver'")
        for what in ("name", "peer"):
            text = getattr(self, what)
            if not 1 <= len(text) <= _NAME:
                raise PSIError(f"{what} {text!r}; expected 1 to {_NAME} characters")
        if any("\ud800" <= char <= "\udfff" for char in self.name + self.peer + self.context):
            raise PSIError("name, peer or context contains a lone surrogate, so it is not Unicode text")
        if self.name == self.peer:
            raise PSIError(f"both parties are called {self.name!r}; give them different names")
        if self.lasting is not None and self.protocol != "pseudonyms":
            raise PSIError(f"a lasting key is for protocol 'pseudonyms'; {self.protocol!r} draws fresh ones")
        if len(self.context) > _NAME:
            raise PSIError(f"a context of {len(self.context)} characters; at most {_NAME} are possible")
        if len(self.nonce) != 16:
            raise PSIError(f"a nonce of {len(self.nonce)} bytes; 16 are needed")
        if self.protocol == "unsafe_salted_hash" and len(self.salt) < 16:
            raise PSIError(f"a salt of {len(self.salt)} bytes; unsafe_salted_hash needs a shared salt of at least 16")
        if self.protocol == "unsafe_salted_hash" and self.pad_to is not None:
            raise PSIError(f"pad_to={self.pad_to}: unsafe_salted_hash does not pad; leave it out")

    def is_client(self, own_size: int, peer_size: int) -> bool:
        """Return True if this party is the client of `dh` or `ot`, given both announced sizes.

        If only the receiver learns, it asks, because the client compares and so always learns. If both learn, the party
        with the smaller set asks, which saves up to a quarter of the work of `dh` and most of the bytes of `ot`; with
        equal sizes, the receiver asks.
        """
        if self.learns == "receiver" or own_size == peer_size:
            return self.role == "receiver"
        return own_size < peer_size

    def encode_hello(self, size: int) -> bytes:
        """Encode this party's first message: its terms and its number of rows, as JSON."""
        nonce = self._own_nonce()
        fields = self._shared_fields() | {"name": self.name, "role": self.role, "rows": size, "nonce": nonce.hex()}
        if self.protocol == _AUTO:
            fields |= {"link": self.link, "speed": self.speed.to_json()}
        if self.protocol == "unsafe_salted_hash":
            fields["salt"] = self._prove_salt(nonce)
        return json.dumps(fields, sort_keys=True).encode()

    def _prove_salt(self, nonce: bytes) -> str:
        """Prove that this party has the salt: with different salts nothing would match, without any hint why."""
        return hmac.digest(self.salt, b"securevfl-psi salt" + nonce, "sha256").hex()

    def _own_nonce(self) -> bytes:
        return self.nonce if self.lasting is None else self.lasting.nonce

    def _shared_fields(self) -> dict[str, object]:
        return {
            "protocol": self.protocol,
            "version": VERSION,
            "rules": self.rules.tag(),
            "learns": self.learns,
            "context": self.context,
            "lasting": self.lasting is not None,
        }

    def _choose_protocol(self, theirs: dict[str, object], own_size: int | None, rows: int) -> tuple[Protocol, str]:
        """Return the protocol to run and, if one party had ``auto``, the reason."""
        if self.protocol != _AUTO:
            return self.protocol, "" if theirs["protocol"] != _AUTO else f"{self.name} wants it"
        if theirs["protocol"] != _AUTO:
            return ("ot" if theirs["protocol"] == "ot" else "dh"), f"{self.peer} wants it"
        links = [link for link in (self.link, theirs.get("link")) if link is not None]
        if own_size is None or not all(map(_is_link, links)):
            raise MalformedError(f"a link of {str(theirs.get('link'))[:40]!r} Mbit/s; a number above 0 was expected")
        link = min(map(float, links), default=None)  # type: ignore[arg-type]
        mine, other = self.speed, Speed.from_json(theirs.get("speed"), self.peer)
        if self.is_client(own_size, rows):
            chosen = choose_protocol(own_size, rows, link, speeds=(mine, other))
        else:
            chosen = choose_protocol(rows, own_size, link, speeds=(other, mine))
        return ("ot" if chosen.protocol == "ot" else "dh"), chosen.why

    def accept_hello(self, hello: bytes, own_size: int | None = None) -> tuple[Session, int]:
        """Check the peer's hello against these terms; return the session and the peer's announced size.

        Args:
            hello: the peer's hello.
            own_size: this party's announced size; only ``auto`` needs it.

        Raises:
            MalformedError: a malformed hello.
            DisagreementError: the peer has other terms, or is another party.
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
                "one party keeps its key for pseudonyms that last (--lasting), the other draws a fresh one: use one "
                f"setting at both; the peer {'keeps' if fields['lasting'] else 'does not keep'} its key"
            )
        expected = self._shared_fields()
        if {self.protocol, str(fields.get("protocol"))} in ({_AUTO, "dh"}, {_AUTO, "ot"}):
            expected["protocol"] = fields["protocol"]
        for key, mine in (expected | {"name": self.peer, "role": _other_role(self.role)}).items():
            if fields.get(key) != mine:
                raise DisagreementError(f"the peer has {key} {str(fields.get(key))[:80]!r}; {mine!r} was expected")
        rows, nonce = fields.get("rows"), parse_nonce(fields.get("nonce"))
        if self.protocol == "unsafe_salted_hash" and fields.get("salt") != self._prove_salt(nonce):
            raise DisagreementError("the peer has another salt; both need the same")
        if isinstance(rows, bool) or not isinstance(rows, int) or rows < 0:
            raise MalformedError(f"the peer announces {str(rows)[:40]!r} rows; expected a whole number")
        if rows > self.max_set_size:
            raise SetSizeError(f"the peer announces {rows} rows; at most {self.max_set_size}: raise max_set_size")
        both = [(self.name, self._own_nonce()), (self.peer, nonce)]
        protocol, why = self._choose_protocol(fields, own_size, rows)
        receiver, sender = both if self.role == "receiver" else both[::-1]
        # A reflected nonce would let the peer alone decide the session's tag.
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


def _other_role(role: Role) -> Role:
    return "sender" if role == "receiver" else "receiver"


def parse_nonce(text: object) -> bytes:
    """Parse a party's nonce from hexadecimal.

    Raises:
        MalformedError: not 16 bytes in hexadecimal.
    """
    try:
        nonce = bytes.fromhex(text) if isinstance(text, str) else b""
    except ValueError:
        nonce = b""
    if len(nonce) != 16:
        raise MalformedError("the peer's nonce is not 16 bytes in hexadecimal")
    return nonce
