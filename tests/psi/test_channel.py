"""Connections between two parties: loopback or not, and certificates that are pinned to the byte."""

from __future__ import annotations

import datetime
import os
import socket
import ssl
import stat
import threading
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from securevfl_net.identity import URI
from securevfl_net.identity.files import write_new
from securevfl_psi.errors import CertificateError, ConnectionLost, InputError, PSIError
from securevfl_psi_cli.channel import Address, connect, hanging_up, is_local, secure_connection
from securevfl_psi_cli.credentials import Pins, make_certificate, wrong_input
from securevfl_psi_cli.listening import PeerListener

PEM = serialization.Encoding.PEM


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("keys")
    for name in ("bank", "shop", "eve"):
        make_certificate(name, folder, 30)
    return folder


def _pins(keys: Path, own: str, peer: str) -> Pins:
    return Pins.load(keys / f"{own}.crt", keys / f"{own}.key", {peer: keys / f"{peer}.crt"})


def _meet(bank: Pins | None, shop: Pins | None) -> tuple[object, object]:
    """What listener and caller get: what the other said, or the error; for a stranger's the wait is one second."""
    outcomes: dict[str, object] = {}

    def talk(name: str, sock: socket.socket) -> None:
        sock.sendall(f"SPSI, {name} says hello".encode())
        outcomes[name] = sock.recv(64).decode(errors="replace")[6:10]
        if isinstance(sock, ssl.SSLSocket):
            assert sock.version() == "TLSv1.3"

    def listen(listener: PeerListener) -> None:
        try:
            sock, _ = listener.accept_peer(1)
            with hanging_up(sock):
                talk("bank", sock)
        except PSIError as error:
            outcomes["bank"] = error

    with PeerListener(Address("127.0.0.1", 0), bank, timeout=5) as listener:
        port = int(listener.where.rsplit(":", 1)[1])
        thread = threading.Thread(target=listen, args=(listener,), daemon=True)
        thread.start()
        try:
            with secure_connection(connect(Address("127.0.0.1", port), 5), shop, timeout=5) as sock:
                talk("shop", sock)
        except (PSIError, OSError) as error:
            outcomes["shop"] = error
        thread.join(10)
        assert not thread.is_alive()
    return outcomes["bank"], outcomes.get("shop")


def test_pinned_certificates_open_the_channel(keys: Path) -> None:
    assert _meet(_pins(keys, "bank", "shop"), _pins(keys, "shop", "bank")) == ("shop", "bank")
    assert _meet(None, None) == ("shop", "bank")


def test_a_stranger_is_refused_by_either_side(keys: Path) -> None:
    bank, eve = _meet(_pins(keys, "bank", "shop"), _pins(keys, "eve", "bank"))
    assert isinstance(bank, CertificateError)
    assert "another certificate than" in str(bank)
    assert "shop.crt" in str(bank)
    assert isinstance(eve, CertificateError)
    assert "does not accept this party's certificate" in str(eve)

    eve, shop = _meet(_pins(keys, "eve", "shop"), _pins(keys, "shop", "bank"))
    assert isinstance(shop, CertificateError)
    assert "bank.crt" in str(shop)
    assert isinstance(eve, CertificateError)


def test_one_known_party_is_not_taken_for_another(keys: Path) -> None:
    """Where a party calls one of its peers, it accepts no other of them at that address."""
    both = {name: keys / f"{name}.crt" for name in ("shop", "eve")}
    bank = Pins.load(keys / "bank.crt", keys / "bank.key", both)
    met = [_meet(bank.restrict_to(called), _pins(keys, "eve", "bank")) for called in ("eve", "shop")]
    assert not any(isinstance(end, Exception) for end in met[0])
    assert any(isinstance(end, CertificateError) for end in met[1])


def test_plain_text_and_tls_do_not_meet(keys: Path) -> None:
    bank, _ = _meet(_pins(keys, "bank", "shop"), None)
    assert isinstance(bank, ConnectionLost)
    assert "does it run with --cert, too?" in str(bank)
    _, shop = _meet(None, _pins(keys, "shop", "bank"))
    assert isinstance(shop, ConnectionLost)


def _port(listener: PeerListener) -> int:
    return int(listener.where.rsplit(":", 1)[1])


def test_strangers_do_not_end_the_wait(keys: Path) -> None:
    """A port scan, a browser, silent ones, a wrong certificate: each is noted, and the peer still gets through."""
    said: list[str] = []
    with PeerListener(Address("127.0.0.1", 0), _pins(keys, "bank", "shop"), timeout=5, refused=said.append) as listener:
        where = ("127.0.0.1", _port(listener))
        silent = [socket.create_connection(where) for _ in range(3)]
        socket.create_connection(where).close()
        silent[0].sendall(b"GET / HTTP/1.1\r\n\r\n")
        found: list[socket.socket] = []
        thread = threading.Thread(target=lambda: found.append(listener.accept_peer(10)[0]), daemon=True)
        thread.start()
        with (
            pytest.raises(CertificateError, match="does not accept this party's certificate"),
            secure_connection(connect(Address(*where), 5), _pins(keys, "eve", "bank"), timeout=5),
        ):
            pass
        with secure_connection(connect(Address(*where), 5), _pins(keys, "shop", "bank"), timeout=5) as sock:
            sock.sendall(b"it is me")
            thread.join(10)
            assert found[0].recv(8) == b"it is me"
            found[0].close()
        for one in silent:
            one.close()
    counts = [sum(words in line for line in said) for words in ("another certificate than", "no TLS 1.3")]
    assert counts == [1, 2], said
    assert all(line.startswith("Refused 127.0.0.1:") and line.endswith("; listening on") for line in said)


def test_silent_strangers_are_given_up_and_make_room() -> None:
    said: list[str] = []
    with PeerListener(Address("127.0.0.1", 0), None, timeout=20, refused=said.append) as listener:
        found: list[socket.socket] = []
        thread = threading.Thread(target=lambda: found.append(listener.accept_peer(20)[0]), daemon=True)
        thread.start()
        where = ("127.0.0.1", _port(listener))
        silent = [socket.create_connection(where) for _ in range(20)]
        silent[7].sendall(b"SP")
        with socket.create_connection(where) as peer:
            peer.sendall(b"SPSI and so on")
            thread.join(20)
            assert found[0].recv(4) == b"SPSI"
            found[0].close()
    assert len(said) == 5
    assert all("it showed nothing while many others called" in line for line in said)
    with PeerListener(Address("127.0.0.1", 0), None, timeout=0.1, refused=said.append) as listener:
        silent.append(socket.create_connection(("127.0.0.1", _port(listener))))
        match = r"did not connect within 0.6 s: .*1 connection refused, the last because it did not show who it is"
        with pytest.raises(ConnectionLost, match=match):
            listener.accept_peer(0.6)
    for one in silent:
        one.close()


def _signed(folder: Path, name: str, issuer: str = "", *, authority: bool = True, **times: datetime.datetime) -> None:
    """A P-256 certificate, its own authority or signed by another's key."""
    key = ec.generate_private_key(ec.SECP256R1())
    signer = serialization.load_pem_private_key((folder / f"{issuer}.key").read_bytes(), None) if issuer else key
    subject, by = (x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, n)]) for n in (name, issuer or name))
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder(by, subject, key.public_key(), x509.random_serial_number())
        .not_valid_before(times.get("begin", now - datetime.timedelta(days=1)))
        .not_valid_after(times.get("end", now + datetime.timedelta(days=1)))
        .add_extension(x509.BasicConstraints(ca=not issuer and authority, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([x509.UniformResourceIdentifier(URI + name)]), critical=False)
        .sign(signer, hashes.SHA256())  # type: ignore[arg-type]
    )
    private = serialization.PrivateFormat.PKCS8
    (folder / f"{name}.key").write_bytes(key.private_bytes(PEM, private, serialization.NoEncryption()))
    (folder / f"{name}.key").chmod(0o600)
    (folder / f"{name}.crt").write_bytes(certificate.public_bytes(PEM))


def test_what_the_pinned_certificate_has_signed_is_not_the_pinned_certificate(keys: Path, tmp_path: Path) -> None:
    for name in ("bank.crt", "bank.key"):
        (tmp_path / name).write_bytes((keys / name).read_bytes())
        (tmp_path / name).chmod(0o600)
    _signed(tmp_path, "shop", authority=False)
    assert _meet(_pins(tmp_path, "bank", "shop"), _pins(tmp_path, "shop", "bank")) == ("shop", "bank")
    _signed(tmp_path, "shop")  # an authority's certificate, pinned like any other
    _signed(tmp_path, "branch", issuer="shop")
    bank, branch = _meet(_pins(tmp_path, "bank", "shop"), _pins(tmp_path, "branch", "bank"))
    assert isinstance(bank, CertificateError)
    assert "is it who you think it is?" in str(bank)
    assert isinstance(branch, CertificateError)


def test_files_that_cannot_be_used(keys: Path, tmp_path: Path) -> None:
    long_ago = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)
    _signed(tmp_path, "old", begin=long_ago, end=long_ago + datetime.timedelta(days=9))
    two = tmp_path / "two.crt"
    two.write_bytes((keys / "bank.crt").read_bytes() + (keys / "eve.crt").read_bytes())
    locked = tmp_path / "locked.key"
    secret = serialization.load_pem_private_key((keys / "bank.key").read_bytes(), None)
    how = serialization.BestAvailableEncryption(b"secret")
    locked.touch(mode=0o600)
    locked.write_bytes(secret.private_bytes(PEM, serialization.PrivateFormat.PKCS8, how))
    bank, key, shop = keys / "bank.crt", keys / "bank.key", keys / "shop.crt"
    for files, words in (
        ((bank, key, keys / "none.crt"), "none.crt cannot be read (No such file"),
        ((bank, key, key), "bank.key contains 0 certificates"),
        ((bank, key, two), "contains 2 certificates"),
        ((bank, key, bank), "are one certificate"),
        ((bank, keys / "shop.key", shop), "is not the key of"),
        ((bank, locked, shop), "without a password"),
        ((bank, keys / "none.key", shop), "No such file"),
        ((bank, key, tmp_path / "old.crt"), "is valid from 2020-01-01 00:00 UTC to 2020-01-10 00:00 UTC"),
    ):
        with pytest.raises(InputError) as caught:
            Pins.load(files[0], files[1], {"peer": files[2]})
        assert words in str(caught.value)


def test_a_key_is_its_owners_and_nothing_is_overwritten(tmp_path: Path) -> None:
    certificate, key, digits = make_certificate("bank", tmp_path / "new", 3)
    if os.name == "posix":
        assert stat.S_IMODE(key.stat().st_mode) == 0o600
    found = x509.load_pem_x509_certificate(certificate.read_bytes())
    assert found.fingerprint(hashes.SHA256()).hex() == digits.replace(" ", "")
    before = key.read_bytes()
    with pytest.raises(InputError, match="already exists"):
        make_certificate("bank", tmp_path / "new", 3)
    with pytest.raises(InputError, match="already exists"), wrong_input():
        write_new(key, b"other", private=True)
    assert key.read_bytes() == before
    for name, days in (("", 3), ("../bank", 3), ("a\nb", 3), ("x" * 65, 3), ("shop", 0), ("shop", 10**6)):
        with pytest.raises(InputError):
            make_certificate(name, tmp_path / "new", days)
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == ["bank.crt", "bank.key"]


@pytest.mark.parametrize(("host", "local"), [("127.0.0.1", True), ("127.9.9.9", True), ("0.0.0.0", False)])  # noqa: S104
def test_loopback_is_told_from_networks(host: str, local: bool) -> None:
    assert is_local(Address(host, 1)) is local


def test_nobody_there() -> None:
    with (
        PeerListener(Address("127.0.0.1", 0), None, timeout=1) as listener,
        pytest.raises(ConnectionLost, match=r"nobody connected within 0\.1 s"),
    ):
        listener.accept_peer(0.1)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(InputError, match=r"cannot listen at 127.0.0.1:\d+ \("):
            PeerListener(Address("127.0.0.1", port), None, timeout=1)
    with pytest.raises(ConnectionLost, match=r"nobody answers at 127\.0\.0\.1"):
        connect(Address("127.0.0.1", port), 0.1)
    with pytest.raises(InputError, match="is unknown"):
        connect(Address("x" * 70, 1), 0.1)
    assert str(Address("::1", 9)) == "[::1]:9"


def test_what_was_said_last_arrives_though_the_peer_still_talks() -> None:
    """Closing with bytes unread resets the connection, and the refusal would be lost."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        caller = connect(Address("127.0.0.1", listener.getsockname()[1]), 5)
        answering, _ = listener.accept()

        def refuse() -> None:
            with hanging_up(answering):
                answering.sendall(b"no")

        thread = threading.Thread(target=refuse, daemon=True)
        thread.start()
        with caller:
            caller.settimeout(5)
            caller.sendall(bytes(8_000_000))
            assert caller.recv(8) == b"no"
            assert caller.recv(8) == b""
        thread.join(5)
        assert not thread.is_alive()
        assert answering.fileno() == -1
