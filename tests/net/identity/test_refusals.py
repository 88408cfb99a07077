"""Each reason to refuse a peer is told by name on both sides, whichever of them refuses."""

from __future__ import annotations

import socket
import ssl
import threading
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta

import pytest
from securevfl_net.identity import (
    Accepted,
    Handshake,
    Identity,
    PeerBook,
    Refusal,
    RefusalCode,
    Want,
    make_tls_context,
    run_handshake,
)
from support.identity_parties import HOUR, LIMIT, NOW, Side, World, by, meet, pinned

DAY = timedelta(days=1)


def _both(
    client: Side, server: Side, code: RefusalCode, here: str, there: str, *, refuser: str
) -> tuple[Refusal, Refusal]:
    """One side refuses with the words `here`, and the other one hears the words `there`."""
    results = meet(client, server)
    first, second = results if refuser == "client" else results[::-1]
    assert isinstance(first, Refusal), first
    assert isinstance(second, Refusal), second
    assert (first.code, first.by, second.code, second.by) == (code, "here", code, "peer"), (first, second)
    assert here in str(first)
    assert there in str(second)
    assert str(second).startswith("the peer refuses: ")
    assert str(second).endswith(f"({code})")
    return first, second


def _plain(
    book: PeerBook,
    shown: Identity | None,
    *,
    server: bool = False,
    alpn: bool = True,
    version: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3,
) -> ssl.SSLContext:
    """TLS of a party that shows what it should not, or nothing."""
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if server else ssl.PROTOCOL_TLS_CLIENT)
    made.maximum_version = version
    made.check_hostname = False
    made.verify_mode = ssl.CERT_REQUIRED
    made.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    for der in book.trust_anchors():
        made.load_verify_locations(cadata=der)
    if alpn:
        made.set_alpn_protocols(["svfl/1"])
    if shown:
        made.load_cert_chain(shown.certificate_file, shown.key_file)
    return made


class Trio:
    """bank (the server), shop (the client) and an authority that both know."""

    def __init__(self, world: World) -> None:
        self.world, self.ca = world, world.authority()
        self.bank, self.shop = world.issued(self.ca, "bank"), world.issued(self.ca, "shop")
        self.banks = PeerBook("bank", {"shop": by(self.ca), "net": by(self.ca)})
        self.shops = PeerBook("shop", {"bank": by(self.ca), "net": by(self.ca)})

    def sides(self, refuser: str, other: Identity, book: PeerBook, **more: object) -> tuple[Side, Side]:
        """Client and server; the one that does not refuse shows `other` and looks into `book`."""
        odd = Side(other, book, **more)  # type: ignore[arg-type]
        return (odd, Side(self.bank, self.banks)) if refuser == "server" else (Side(self.shop, self.shops), odd)

    def odd(self, refuser: str) -> str:
        """Name of the party that is refused."""
        return "shop" if refuser == "server" else "bank"

    def odds(self, refuser: str) -> PeerBook:
        """Its book."""
        return self.shops if refuser == "server" else self.banks


@pytest.fixture
def trio(world: World) -> Trio:
    return Trio(world)


both_ways = pytest.mark.parametrize("refuser", ["server", "client"])


@pytest.mark.parametrize("kind", ["p256", "ed25519"])
@pytest.mark.parametrize("means", ["pin", "authority", "mixed"])
def test_parties_that_know_each_other_let_each_other_in(world: World, means: str, kind: str) -> None:
    ca = world.authority()
    bank = world.own("bank", kind=kind) if means != "authority" else world.issued(ca, "bank")
    shop = world.own("shop", kind=kind) if means == "pin" else world.issued(ca, "shop")
    banks = PeerBook("bank", {"shop": pinned(shop) if means == "pin" else by(ca)})
    shops = PeerBook("shop", {"bank": by(ca) if means == "authority" else pinned(bank)})
    client, server = meet(Side(shop, shops, "bank"), Side(bank, banks))
    assert isinstance(client, Accepted), client
    assert isinstance(server, Accepted), server
    assert (client.party, server.party) == ("bank", "shop")
    assert client.certificate == bank.certificate
    assert abs(client.clock_ahead) < timedelta(minutes=1)


@both_ways
def test_unknown_authority(trio: Trio, refuser: str) -> None:
    name = trio.odd(refuser)
    for other in (
        trio.world.own(name, file="own"),
        trio.world.issued(trio.world.authority("ca"), name, file="namesake"),  # an authority of the same name
    ):
        sides = trio.sides(refuser, other, trio.odds(refuser))
        heard = "it has not pinned this party's certificate and does not trust its issuer"
        _both(
            *sides, RefusalCode.UNKNOWN_CA, "if the peer has replaced it, get its endorsement", heard, refuser=refuser
        )


@both_ways
def test_other_name(trio: Trio, refuser: str) -> None:
    net = trio.world.issued(trio.ca, "net")
    client, server = trio.sides(refuser, net, PeerBook("net", {"bank": by(trio.ca), "shop": by(trio.ca)}))
    called = "bank" if refuser == "client" else "shop"
    if refuser == "client":
        client = replace(client, expected=called)
    else:
        server = replace(server, expected=called)
    words = f"dialed '{called}', but 'net' answers"
    _both(client, server, RefusalCode.OTHER_NAME, words, words, refuser=refuser)


@both_ways
def test_a_certificate_without_a_party_s_name(trio: Trio, refuser: str) -> None:
    nobody = trio.world.unnamed(trio.ca)
    book = trio.odds(refuser)
    sides = trio.sides(refuser, nobody, book, tls=lambda: _plain(book, nobody, server=refuser == "client"))
    words = "names no party; one SAN URI securevfl:party/NAME is needed"
    _both(*sides, RefusalCode.OTHER_NAME, words, words, refuser=refuser)


@both_ways
def test_expired(trio: Trio, refuser: str) -> None:
    name = trio.odd(refuser)
    old = trio.world.issued(trio.ca, name, now=NOW - 20 * DAY, days=10, file="old")
    past = PeerBook(name, trio.odds(refuser).peers, now=lambda: NOW - 15 * DAY)
    sides = trio.sides(
        refuser, old, trio.odds(refuser), tls=lambda: make_tls_context(old, past, server=refuser == "client")
    )
    words = f"'{name}' shows a certificate valid until {NOW - 10 * DAY:%Y-%m-%d %H:%M} UTC; this machine's clock reads "
    first, second = _both(*sides, RefusalCode.EXPIRED, words, words, refuser=refuser)
    for refusal in (first, second):
        assert "tolerance 5 min" in str(refusal)
        assert "the clocks of both sides agree: the file is the cause, not a clock" in str(refusal)


@both_ways
@pytest.mark.parametrize("third", ["none", "with this one", "with the peer"])
def test_not_yet_valid_where_the_peer_s_clock_is_an_hour_ahead(trio: Trio, refuser: str, third: str) -> None:
    """Its certificate is fresh, and for the other side from the future."""
    name = trio.odd(refuser)
    early = trio.world.issued(trio.ca, name, now=NOW + HOUR, file="early")
    book = PeerBook(name, trio.odds(refuser).peers, now=lambda: NOW + HOUR)
    keeper = trio.banks if refuser == "server" else trio.shops
    keeper.now = lambda: NOW
    cure_here, cure_there = "one of the two is wrong, compare both with a time server", "one of the two is wrong"
    if third == "with this one":
        keeper.clocks["net"], book.clocks["net"] = timedelta(seconds=3), -HOUR
        cure_here, cure_there = (
            "which agrees with net: the peer has to set its clock",
            "so is that of net: set the clock here",
        )
    if third == "with the peer":
        keeper.clocks["net"], book.clocks["net"] = HOUR, timedelta(seconds=3)
        cure_here, cure_there = (
            "so is that of net: set the clock here",
            "which agrees with net: the peer has to set its",
        )
    sides = trio.sides(refuser, early, book)
    words = f"'{name}' shows a certificate valid from {NOW + HOUR - timedelta(minutes=10):%Y-%m-%d %H:%M} UTC"
    first, second = _both(*sides, RefusalCode.NOT_YET_VALID, words, words, refuser=refuser)
    assert "the peer's clock is 60 min ahead of this one" in str(first)
    assert cure_here in str(first)
    assert "the peer's clock is 60 min behind this one" in str(second)
    assert cure_there in str(second)


@both_ways
def test_expired_where_the_clock_here_is_an_hour_ahead(trio: Trio, refuser: str) -> None:
    name = trio.odd(refuser)
    ending = trio.world.issued(trio.ca, name, now=NOW - DAY + HOUR / 2, days=1, file="ending")
    book = PeerBook(name, trio.odds(refuser).peers, now=lambda: NOW)
    keeper = trio.banks if refuser == "server" else trio.shops
    keeper.now = lambda: NOW + HOUR
    sides = trio.sides(refuser, ending, book)
    first, second = _both(*sides, RefusalCode.EXPIRED, "valid until", "valid until", refuser=refuser)
    assert "the peer's clock is 60 min behind this one" in str(first)
    assert "the peer's clock is 60 min ahead of this one" in str(second)


@pytest.mark.parametrize("minutes", [-4, 4])
def test_clocks_a_little_apart_are_tolerated(trio: Trio, minutes: int) -> None:
    """Certificates are valid from 10 min before they are made, and 5 min of difference are tolerated on top."""
    here = NOW + timedelta(minutes=minutes)
    fresh = trio.world.issued(trio.ca, "shop", now=NOW + timedelta(minutes=11), file="fresh")
    trio.banks.now = lambda: here
    _, server = meet(
        Side(fresh, PeerBook("shop", trio.shops.peers, now=lambda: NOW + timedelta(minutes=11))),
        Side(trio.bank, trio.banks),
    )
    assert isinstance(server, Accepted), server
    assert round(server.clock_ahead.total_seconds() / 60) == 11 - minutes


@both_ways
def test_revoked(trio: Trio, refuser: str) -> None:
    name = trio.odd(refuser)
    lost = trio.shop if refuser == "server" else trio.bank
    fine = trio.sides(refuser, lost, trio.odds(refuser))
    assert all(isinstance(end, Accepted) for end in meet(*fine))
    trio.ca.revoke(lost.certificate)
    keeper = trio.banks if refuser == "server" else trio.shops
    assert keeper.identify_peer(lost.certificate.der) == name  # not read yet
    keeper.reload()
    with pytest.raises(Refusal, match=r"the authority revoked the certificate .* its party needs a new one") as found:
        keeper.identify_peer(lost.certificate.der)  # what is asked of a connection that lives
    assert found.value.code == RefusalCode.REVOKED
    sides = trio.sides(refuser, lost, trio.odds(refuser))
    _both(*sides, RefusalCode.REVOKED, "the authority revoked", "the authority revoked", refuser=refuser)


def test_a_revoked_client_cannot_come_back_with_a_ticket(trio: Trio) -> None:
    made = make_tls_context(trio.shop, trio.shops, server=False)
    sessions: list[ssl.SSLSession | None] = []

    def dial(sock: socket.socket, session: ssl.SSLSession | None) -> Accepted | Refusal:
        sock.setblocking(False)
        tls = made.wrap_socket(sock, do_handshake_on_connect=False, session=session)
        with tls:
            try:
                return run_handshake(tls, Handshake(tls, trio.shops), LIMIT)
            except Refusal as refusal:
                return refusal
            finally:
                sessions.append(tls.session)

    def once(session: ssl.SSLSession | None) -> tuple[Accepted | Refusal, Accepted | Refusal]:
        found: list[Accepted | Refusal] = []
        with socket.create_server(("127.0.0.1", 0)) as listener:
            caller = socket.create_connection(listener.getsockname(), timeout=LIMIT)
            called, _ = listener.accept()
            side = Side(trio.bank, trio.banks)
            thread = threading.Thread(target=lambda: found.append(side.open(called, server=True)))
            thread.start()
            mine = dial(caller, session)
            thread.join(LIMIT)
        return mine, found[0]

    assert all(isinstance(end, Accepted) for end in once(None))
    kept = sessions[-1]
    assert kept is None or not kept.has_ticket
    trio.ca.revoke(trio.shop.certificate)
    trio.banks.reload()
    for end in once(kept):
        assert isinstance(end, Refusal)
        assert end.code == RefusalCode.REVOKED


def test_no_certificate(trio: Trio) -> None:
    """Of a client: a TLS server always shows one."""
    odd = Side(trio.shop, trio.shops, tls=lambda: _plain(trio.shops, None))
    heard = "it requires a certificate, but this side showed none"
    _both(
        odd,
        Side(trio.bank, trio.banks),
        RefusalCode.NO_CERTIFICATE,
        "the peer showed no certificate",
        heard,
        refuser="server",
    )


def test_tls_1_2_of_a_client(trio: Trio) -> None:
    odd = Side(
        trio.shop,
        trio.shops,
        tls=lambda: _plain(trio.shops, trio.shop, version=ssl.TLSVersion.TLSv1_2),
    )
    heard = "share no TLS version; 1.3 is needed"
    _both(odd, Side(trio.bank, trio.banks), RefusalCode.TLS_VERSION, "does not offer TLS 1.3", heard, refuser="server")


def test_tls_1_2_of_a_server(trio: Trio) -> None:
    def old() -> ssl.SSLContext:
        return _plain(trio.banks, trio.bank, server=True, version=ssl.TLSVersion.TLSv1_2)

    client, server = meet(Side(trio.shop, trio.shops), Side(trio.bank, trio.banks, tls=old))
    assert isinstance(client, Refusal)
    assert isinstance(server, Refusal)
    assert client.code == server.code == RefusalCode.TLS_VERSION
    assert "1.3 is needed" in str(client)


@both_ways
def test_a_party_of_this_party_s_name(trio: Trio, refuser: str) -> None:
    own = "bank" if refuser == "server" else "shop"
    twin = trio.world.issued(trio.ca, own, file="twin")
    book = PeerBook("net", {"bank": by(trio.ca), "shop": by(trio.ca)})
    words = f"shows a certificate of '{own}', which is this party: two parties have the same name"
    _both(
        *trio.sides(refuser, twin, book),
        RefusalCode.TWO_OF_ONE_NAME,
        words,
        "two parties have the same name",
        refuser=refuser,
    )


@both_ways
def test_a_second_party_under_the_name_of_a_connected_one(trio: Trio, refuser: str) -> None:
    name = trio.odd(refuser)
    first = trio.shop if refuser == "server" else trio.bank
    second = trio.world.issued(trio.ca, name, file="second")
    client, server = trio.sides(refuser, second, trio.odds(refuser))
    live = {name: first.fingerprint}
    client, server = (
        (replace(client, live=live), server) if refuser == "client" else (client, replace(server, live=live))
    )
    words = f"'{name}' is connected with the certificate {first.fingerprint[:16]}…, and another connection shows"
    _both(client, server, RefusalCode.TWO_OF_ONE_NAME, words, words, refuser=refuser)
    again = trio.sides(refuser, first, trio.odds(refuser))
    assert all(isinstance(end, Accepted) for end in meet(*again))  # the same one connects again


@both_ways
def test_not_in_the_agreement(trio: Trio, refuser: str) -> None:
    eve = trio.world.issued(trio.ca, "eve")
    book = PeerBook("eve", {"bank": by(trio.ca), "shop": by(trio.ca)})
    words = "'eve' is not a party of this job"
    _both(*trio.sides(refuser, eve, book), RefusalCode.NOT_IN_AGREEMENT, words, words, refuser=refuser)


@both_ways
def test_a_revocation_list_past_its_time_counts_for_the_grace_and_no_longer(trio: Trio, refuser: str) -> None:
    trio.ca.publish(NOW - 40 * DAY, days=39)  # due a day ago
    keeper = trio.banks if refuser == "server" else trio.shops
    keeper._lists.clear()
    keeper.reload()
    other = trio.shop if refuser == "server" else trio.bank
    keeper.now = lambda: NOW
    assert all(isinstance(end, Accepted) for end in meet(*trio.sides(refuser, other, trio.odds(refuser))))
    keeper.now = lambda: NOW + timedelta(minutes=6)
    first, _ = _both(
        *trio.sides(refuser, other, trio.odds(refuser)),
        RefusalCode.CRL_OUT_OF_DATE,
        f"was due for replacement {NOW - DAY:%Y-%m-%d %H:%M} UTC, and the grace period of 24 h is over",
        "this party's revocation list was due",
        refuser=refuser,
    )
    assert first.party == trio.odd(refuser)


@both_ways
@pytest.mark.parametrize("kind", ["rsa", "p384", "sha224"])
def test_a_key_or_a_signature_that_does_not_fit(trio: Trio, refuser: str, kind: str) -> None:
    weak = trio.world.weak(trio.ca, trio.odd(refuser), kind)
    book = trio.odds(refuser)

    sides = trio.sides(refuser, weak, book, tls=lambda: _plain(book, weak, server=refuser == "client"))
    results = meet(*sides)
    first, second = results if refuser == "client" else results[::-1]
    assert isinstance(first, Refusal)
    assert isinstance(second, Refusal)
    assert (first.code, second.code) == (RefusalCode.UNFIT, RefusalCode.UNFIT), (first, second)
    assert (first.by, second.by) == ("here", "peer")


def test_another_protocol(trio: Trio) -> None:
    odd = Side(trio.shop, trio.shops, tls=lambda: _plain(trio.shops, trio.shop, alpn=False))
    client, server = meet(odd, Side(trio.bank, trio.banks))
    for end in (client, server):
        assert isinstance(end, Refusal)
        assert end.code == RefusalCode.OTHER_PROTOCOL
        assert "the peer does not speak svfl/1" in str(end)


@pytest.mark.parametrize(
    ("said", "code"),
    [
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", RefusalCode.NOT_TLS),
        (b"\x00" * 4096, RefusalCode.NOT_TLS),
        (b"SSH-2.0-OpenSSH_9.2\r\n", RefusalCode.NOT_TLS),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(600), RefusalCode.NOT_TLS),  # a ClientHello of zeros
        (b"\x15\x03\x03\x00\x02\x02\x28", RefusalCode.NOT_TLS),  # an alert as the first word
        (b"", RefusalCode.HUNG_UP),
        (b"\x16\x03\x01", RefusalCode.HUNG_UP),
    ],
    ids=["http", "zeros", "ssh", "hello of zeros", "alert", "nothing", "half a record"],
)
def test_what_is_no_party_is_named_too(trio: Trio, said: bytes, code: RefusalCode) -> None:
    near, far = socket.socketpair()
    with far:
        far.sendall(said)
        far.shutdown(socket.SHUT_WR)
        found = Side(trio.bank, trio.banks).open(near, server=True)
    assert isinstance(found, Refusal)
    assert found.code == code, found


def test_a_peer_that_says_nothing_is_given_up(trio: Trio) -> None:
    near, far = socket.socketpair()
    near.setblocking(False)
    with (
        far,
        make_tls_context(trio.bank, trio.banks, server=True).wrap_socket(
            near, server_side=True, do_handshake_on_connect=False
        ) as tls,
    ):
        handshake = Handshake(tls, trio.banks)
        assert handshake.step() is Want.READ
        assert handshake.outcome is None
        handshake.time_is_up()
        assert isinstance(handshake.outcome, Refusal)
        assert handshake.outcome.code == RefusalCode.NO_ANSWER
        assert handshake.step() is Want.DONE
        with pytest.raises(Refusal, match="no-answer"):
            run_handshake(tls, Handshake(tls, trio.banks), 0.01)


def test_a_refused_peer_that_says_nothing_more_is_refused_by_name_all_the_same(trio: Trio) -> None:
    trio.ca.revoke(trio.shop.certificate)
    trio.banks.reload()
    near, far = socket.socketpair()
    for end in (near, far):
        end.setblocking(False)
    server = make_tls_context(trio.bank, trio.banks, server=True).wrap_socket(
        near, server_side=True, do_handshake_on_connect=False
    )
    client = make_tls_context(trio.shop, trio.shops, server=False).wrap_socket(far, do_handshake_on_connect=False)
    with server, client:
        handshake = Handshake(server, trio.banks)
        for _ in range(10):
            with suppress(ssl.SSLWantReadError):
                client.do_handshake()
            handshake.step()
        assert handshake.step() is Want.READ  # it waits for the client's verdict and its clock
        handshake.time_is_up()
    assert isinstance(handshake.outcome, Refusal)
    assert handshake.outcome.code == RefusalCode.REVOKED


def test_words_of_a_peer_cannot_paint_the_terminal(trio: Trio) -> None:
    """Escape sequences and a wrong code come from a peer whose certificate is in order."""

    class Rude(Handshake):
        def _send_verdict(self, refusal: Refusal | None):  # type: ignore[no-untyped-def]
            odd = Refusal(RefusalCode.REVOKED, "\x1b[2J\nall is well \u202e" + "x" * 300)
            odd.code = "nonsense"  # type: ignore[assignment]
            return super()._send_verdict(odd)

    class RudeSide(Side):
        def open(self, sock: socket.socket, *, server: bool) -> Accepted | Refusal:
            sock.setblocking(False)
            tls = make_tls_context(self.identity, self.book, server=server).wrap_socket(
                sock, server_side=server, do_handshake_on_connect=False
            )
            with tls:
                try:
                    return run_handshake(tls, Rude(tls, self.book), LIMIT)
                except Refusal as refusal:
                    return refusal

    _, server = meet(RudeSide(trio.shop, trio.shops), Side(trio.bank, trio.banks))
    assert isinstance(server, Refusal)
    assert server.code == RefusalCode.OTHER_PROTOCOL
    assert str(server).startswith("the peer refuses: ?[2J?all is well ?xxx")
    assert len(server.words.encode()) <= 200


def test_memory_bios_carry_the_same_handshake(trio: Trio) -> None:
    """TLS inside TLS, as with a proxy that is reached over HTTPS: the caller moves the bytes."""
    ends = {}
    for name, server in (("shop", False), ("bank", True)):
        identity, book = (trio.bank, trio.banks) if server else (trio.shop, trio.shops)
        come, go = ssl.MemoryBIO(), ssl.MemoryBIO()
        tls = make_tls_context(identity, book, server=server).wrap_bio(come, go, server_side=server)
        ends[name] = (Handshake(tls, book), come, go)
    for _ in range(20):
        for name, other in (("shop", "bank"), ("bank", "shop")):
            handshake, _, go = ends[name]
            handshake.step()
            ends[other][1].write(go.read())
    outcomes = {name: end[0].outcome for name, end in ends.items()}
    assert all(isinstance(outcome, Accepted) for outcome in outcomes.values()), outcomes
