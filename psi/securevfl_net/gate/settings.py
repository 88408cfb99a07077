"""Settings that a program passes to its gate at the start."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from securevfl_net.dialers import Address, Dialer, Direct, Proxy, Relay
from securevfl_net.errors import InputError
from securevfl_net.identity import Authority, Certificate, Identity, PeerBook, Pin
from securevfl_net.relay import Side, read_rendezvous

if TYPE_CHECKING:
    from securevfl_net.identity import Endorsement

__all__ = ["Address", "BookSettings", "GateSettings", "Route", "Timing"]


class Route(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How to call a peer.

    Attributes:
        address: of the peer itself, or of the relay at which both meet.
        proxy: an HTTP proxy to use with CONNECT; None calls directly.
        rendezvous: 64 hexadecimal digits, a secret of the two parties; empty to call the peer itself.
        token: of this party at the relay, 64 hexadecimal digits.
        login: private file with the proxy's user:password; empty if it needs none.
    """

    address: Address
    proxy: Address | None = None
    rendezvous: str = ""
    token: str = ""
    login: str = ""

    def build_dialer(self, *, server: bool) -> Dialer:
        """Build the dialer for this route.

        Args:
            server: this party's role in TLS, which a relay needs.

        Raises:
            InputError: the meeting id or the token is invalid.
        """
        way: Dialer = Direct(self.address)
        if self.proxy is not None:
            way = Proxy(Direct(self.proxy), self.address, Path(self.login) if self.login else None)
        if not self.rendezvous:
            return way
        try:
            token = bytes.fromhex(self.token)
        except ValueError:
            token = b""
        if not token:
            raise InputError(f"the relay at {self.address} needs a token: make one with `securevfl relay --new-token`")
        return Relay(way, read_rendezvous(self.rendezvous), token, Side.SERVER if server else Side.CLIENT)


class Timing(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Times, in seconds unless noted.

    Attributes:
        handshake: time for a caller to identify itself; slower ones are disconnected.
        meeting: for which a call waits at a relay for the other party.
        ping: between two signs of life.
        silent: without a byte after which a connection counts as dead.
        first, most: pause after the first attempt to call that failed, and the longest one; the pauses between grow by
            half, and each is up to a quarter shorter, at random.
        age: after which a connection is replaced.
        volume: bytes, both ways together, after which it is replaced.
        reload: between two looks at revocation lists.
        farewell: for which a party that is done waits for peers that are away.
        strangers: callers that may be in their handshake at once, shared between the networks that they call from.
    """

    handshake: float = 10.0
    meeting: float = 45.0
    ping: float = 2.0
    silent: float = 20.0
    first: float = 0.1
    most: float = 15.0
    age: float = 3600.0
    volume: int = 64 << 30
    reload: float = 60.0
    farewell: float = 10.0
    strangers: int = 128


class BookSettings(msgspec.Struct, frozen=True):
    """A peer book, as it goes to the gate: a gate checks certificates; endorsements were checked by the program.

    Attributes:
        pins: party → DER of its certificates.
        authorities: party → DER of the authority's certificate, and the path of its revocation list.
        endorsed: endorsements that were taken, and the fingerprint where the new certificate was seen.
        grace: seconds for which a revocation list counts after its nextUpdate.
    """

    pins: dict[str, list[bytes]]
    authorities: dict[str, tuple[bytes, str]]
    endorsed: list[tuple[bytes, str]]
    grace: float

    @classmethod
    def from_book(cls, book: PeerBook) -> BookSettings:
        """Copy the program's settings."""
        pins = {p: [c.der for c in rule.certificates] for p, rule in book.peers.items() if isinstance(rule, Pin)}
        authorities = {
            party: (rule.certificate.der, str(rule.crl.absolute()))
            for party, rule in book.peers.items()
            if isinstance(rule, Authority)
        }
        return cls(pins, authorities, book.newest_endorsements(), book.grace.total_seconds())

    def build_book(self, me: str, agreement: bytes) -> PeerBook:
        """The gate's.

        Raises:
            InputError: a revocation list cannot be used.
        """
        rules: dict[str, Pin | Authority] = {
            party: Pin(tuple(Certificate.from_der(der) for der in ders)) for party, ders in self.pins.items()
        }
        rules |= {
            party: Authority(Certificate.from_der(der), Path(crl)) for party, (der, crl) in self.authorities.items()
        }
        made = PeerBook(
            me,
            rules,
            agreement=agreement,
            signers=dict.fromkeys(rules, _Checked()),
            grace=timedelta(seconds=self.grace),
        )
        for payload, seen in self.endorsed:
            found: Endorsement = made.accept_endorsement(payload)
            if seen:
                made.record_use(found.party, seen)
        return made


class _Checked:
    """Takes the place of a signing key in the gate: the program verified the endorsement before it passed it on."""

    def verify(self, kind: str, content: bytes, signature: str) -> None:
        """See `Verifier.verify`."""


class GateSettings(msgspec.Struct, frozen=True):
    """All settings of a gate.

    Attributes:
        me: the party.
        peers: its peers, sorted.
        agreement: SHA-256 of the proposal.
        fields: of the agreement, name → digest of its value.
        incarnation: the party's own, as text.
        known: newest incarnation that was seen of each peer, as text.
        certificate, key: paths of the party's own.
        book: whom it lets in.
        listen: where it listens.
        routes: peer → how it is called; without one, it calls.
        limits: `SessionLimits`, by name.
        timing: see there.
        door: descriptor through which a node hands over callers; see `Door`.
        recalls: whether peers that left in good order are called again: servers, which are started again.
    """

    me: str
    peers: list[str]
    agreement: bytes
    fields: dict[str, bytes]
    incarnation: str
    known: dict[str, str]
    certificate: str
    key: str
    book: BookSettings
    listen: list[Address]
    routes: dict[str, Route]
    limits: dict[str, int]
    timing: Timing
    door: int | None = None
    recalls: bool = False

    def load_identity(self) -> Identity:
        """The party's own certificate.

        Raises:
            InputError: it cannot be used.
        """
        return Identity.load(self.certificate, self.key)
