"""Certificates, keys and lists in files: what is made, what is refused, and that nothing private gets out."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import cache
from hashlib import sha256
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, PrivateFormat
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from securevfl_net.dialers import Address, Direct, Relay
from securevfl_net.identity import (
    Authority,
    Identity,
    PeerBook,
    Pin,
    Refusal,
    RefusalCode,
    RevocationList,
    read_certificates,
)
from securevfl_net.identity.certificate import Certificate
from securevfl_net.identity.files import write_new
from securevfl_net.identity.making import (
    Key,
    issue_certificate,
    make_authority,
    make_request,
    revocation_list,
    self_signed,
)
from securevfl_net.relay import Side, read_rendezvous, read_token
from support.identity_parties import NOW, World, by, pinned

from securevfl.cli import main
from securevfl.errors import InputError
from securevfl.ledger import read_public_key

DAY = timedelta(days=1)


def _run(*arguments: object) -> int:
    with pytest.raises(SystemExit) as ended:
        main([str(argument) for argument in arguments])
    return int(ended.value.code or 0)


# An own certificate


def test_an_identity_says_who_it_is(world: World) -> None:
    for kind, shown in (("p256", "P-256"), ("ed25519", "Ed25519")):
        found = world.own(f"bank-{kind}", kind=kind)
        assert found.name == f"bank-{kind}"
        assert found.certificate.kind == shown
        assert len(found.fingerprint) == 64
        assert (found.not_after - found.not_before) == 90 * DAY + timedelta(minutes=10)
        assert "PRIVATE" not in repr(found)


def test_own_files_that_cannot_be_used(world: World, tmp_path: Path) -> None:
    bank, shop, ca = world.own("bank"), world.own("shop"), world.authority()
    crt, key = bank.certificate_file, bank.key_file
    cases: list[tuple[Path, Path, str]] = [
        (tmp_path / "none.crt", key, "cannot be read"),
        (tmp_path, key, "expected a file of certificates"),
        (crt, tmp_path / "none.key", "cannot be read"),
        (crt, tmp_path, "not a regular file"),
        (crt, shop.key_file, "is not the key of"),
        (key, key, "contains 0 certificates"),
        (crt, crt, "other users could read"),
        (ca.file, key, "is not the key of"),
    ]
    for certificate, private, words in cases:
        with pytest.raises(InputError, match=words):
            Identity.load(certificate, private)
    with pytest.raises(InputError, match=r"valid from .* to .*, but this machine's clock reads"):
        Identity.load(crt, key, now=lambda: NOW + 91 * DAY)
    with pytest.raises(InputError, match="set the clock, or make a new one"):
        Identity.load(crt, key, now=lambda: NOW - DAY)
    key.chmod(0o640)
    with pytest.raises(InputError, match=r"has mode 0640: .* chmod 600"):
        Identity.load(crt, key)
    key.chmod(0o600)
    link = tmp_path / "link.key"
    link.symlink_to(key)
    with pytest.raises(InputError, match="a regular file"):
        Identity.load(crt, link)
    secret = BestAvailableEncryption(b"secret")
    key.write_bytes(Key.read(key.read_bytes()).private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, secret))
    with pytest.raises(InputError, match="without a password"):
        Identity.load(crt, key)


@pytest.mark.parametrize("kind", ["rsa", "p384", "sha224"])
def test_own_keys_that_are_weak_or_of_another_kind(world: World, kind: str) -> None:
    weak = world.weak(world.authority(), "bank", kind)
    with pytest.raises(InputError, match=r"whose key is|signed over") as found:
        Identity.load(weak.certificate_file, weak.key_file)
    assert "needed" in str(found.value)


def test_an_authority_cannot_pass_for_a_party(world: World) -> None:
    ca = world.authority()
    files = world.folder / "x.crt", world.folder / "x.key"
    files[0].write_bytes(ca.certificate.pem)
    write_new(files[1], ca.key.pem, private=True)
    with pytest.raises(InputError, match="names no party"):
        Identity.load(*files)


def test_the_newest_of_a_row_of_certificates_is_found(world: World) -> None:
    first = world.own("bank")
    assert first.find_newest() is first
    ninth, tenth = world.own("bank", file="bank.9"), world.own("bank", file="bank.10")
    world.own("bank", file="bank.old")  # no number: not one of them
    world.own("bank", file="banker.11")
    assert first.find_newest() == tenth
    assert ninth.find_newest() == tenth
    assert tenth.find_newest() is tenth
    assert (first.renewals, ninth.renewals, tenth.renewals) == (0, 9, 10)
    world.own("shop", file="bank.11")
    with pytest.raises(InputError, match="names 'shop'"):
        first.find_newest()


# Peers


def test_pins_and_authorities_are_held_against_the_agreement(world: World) -> None:
    bank, shop, ca = world.own("bank"), world.own("shop"), world.authority()
    assert Pin.from_files([bank.certificate_file], [bank.fingerprint]) == pinned(bank)
    with pytest.raises(InputError, match=f"has the fingerprint {shop.fingerprint}, which is not in the agreement"):
        Pin.from_files([shop.certificate_file], [bank.fingerprint])
    with pytest.raises(InputError, match=f"no file contains the agreed certificate {shop.fingerprint}"):
        Pin.from_files([bank.certificate_file], [bank.fingerprint, shop.fingerprint])
    with pytest.raises(InputError, match="is not an authority's certificate"):
        Authority.from_files(bank.certificate_file, ca.crl)
    with pytest.raises(InputError, match="the agreement names"):
        Authority.from_files(ca.file, ca.crl, bank.fingerprint)
    assert by(ca) == Authority.from_files(ca.file, ca.crl, ca.certificate.fingerprint)


def test_books_that_contradict_themselves(world: World) -> None:
    bank, shop, ca = world.own("bank"), world.own("shop"), world.authority()
    with pytest.raises(InputError, match="two parties have the same name"):
        PeerBook("bank", {"bank": pinned(shop)})
    with pytest.raises(InputError, match=r"pinned for 'net' names shop"):
        PeerBook("bank", {"net": pinned(shop)})
    unnamed = Pin((world.unnamed(ca).certificate,))
    with pytest.raises(InputError, match=r"have the same certificate, [0-9a-f]{64}: each party must make its own"):
        PeerBook("bank", {"net": unnamed, "shop": unnamed})
    with pytest.raises(InputError, match="cannot be read"):
        PeerBook("bank", {"shop": Authority(ca.certificate, world.folder / "none.crl")})
    assert PeerBook("shop", {"bank": pinned(bank)}).identify_peer(bank.certificate.der) == "bank"


def test_revocation_lists_that_cannot_be_used(world: World, tmp_path: Path) -> None:
    ca, other = world.authority(), world.authority("other")
    book = PeerBook("bank", {"shop": by(ca)})
    shop = world.issued(ca, "shop")
    older = ca.crl.read_bytes()
    ca.revoke(shop.certificate)
    book.reload()
    ca.crl.write_bytes(older)
    with pytest.raises(InputError, match="an older list would accept revoked certificates again"):
        book.reload()
    with pytest.raises(Refusal, match="revoked"):
        book.identify_peer(shop.certificate.der)
    for content, words in (
        (other.crl.read_bytes(), "not signed by the authority"),
        (b"", "not a revocation list"),
        (older[:200], "not a revocation list"),
        (ca.file.read_bytes(), "not a revocation list"),
        (bytes(20 << 20), "more than"),
    ):
        ca.crl.write_bytes(content)
        with pytest.raises(InputError, match=words):
            RevocationList.read(ca.crl, ca.certificate)
    with pytest.raises(InputError):
        book.reload()
    with pytest.raises(Refusal, match="revoked"):  # what was read before still counts
        book.identify_peer(shop.certificate.der)


def test_a_list_of_another_name_or_of_changes_alone_is_refused(world: World, tmp_path: Path) -> None:
    """Both are signed with the authority's key. A list of changes leaves out who was revoked before (RFC 5280, 5.2.4),
    and two authorities may share a key, but not their numbers of certificates."""
    ca, file = world.authority(), tmp_path / "list.crl"
    other = make_authority("other", ca.key, NOW)
    file.write_bytes(revocation_list(other, ca.key, [], NOW, number=9, days=30))
    with pytest.raises(InputError, match="not signed by the authority"):
        RevocationList.read(file, ca.certificate)
    whole = x509.CertificateRevocationListBuilder(ca.certificate.x509.subject, NOW, NOW + DAY)
    whole = whole.add_extension(x509.CRLNumber(9), critical=False)
    changes = whole.add_extension(x509.DeltaCRLIndicator(8), critical=True)
    file.write_bytes(changes.sign(ca.key.private, hashes.SHA256()).public_bytes(Encoding.DER))
    with pytest.raises(InputError, match=r"not a complete list \(critical extension 2\.5\.29\.27\)"):
        RevocationList.read(file, ca.certificate)
    file.write_bytes(whole.sign(ca.key.private, hashes.SHA256()).public_bytes(Encoding.DER))
    assert RevocationList.read(file, ca.certificate).number == 9


def test_a_party_issues_no_certificates() -> None:
    """Its key signs as well as an authority's, and here it is the same one of the same name; what makes an authority is
    its certificate."""
    key, request = Key.generate(), make_request("bank", Key.generate())
    authority, party = make_authority("shop", key, NOW), self_signed("shop", key, NOW)
    issued = issue_certificate(request, authority, key, NOW, name="bank")
    assert issued.issued_by(authority)
    assert not issued.issued_by(party)
    with pytest.raises(InputError, match="a party's, not an authority's"):
        issue_certificate(request, party, key, NOW, name="bank")


def test_a_list_of_the_future_means_a_wrong_clock(world: World) -> None:
    ca = world.authority()
    shop = world.issued(ca, "shop")
    book = PeerBook("bank", {"shop": by(ca)}, now=lambda: NOW)
    ca.publish(NOW + DAY)
    book.reload()
    with pytest.raises(Refusal, match="set the clock") as found:
        book.identify_peer(shop.certificate.der)
    assert found.value.code == RefusalCode.CRL_OUT_OF_DATE


# Hostile bytes


def test_ten_thousand_certificates_are_refused_before_they_are_read(world: World, tmp_path: Path) -> None:
    bank = world.own("bank")
    file = tmp_path / "many.crt"
    file.write_bytes(bank.certificate.pem * 10_000)
    began = time.process_time()
    with pytest.raises(InputError, match="more than 65536 bytes"):
        read_certificates(file, most=32)
    file.write_bytes(b"-----BEGIN CERTIFICATE-----\n" * 2000)
    with pytest.raises(InputError, match="contains 2000 certificates"):
        read_certificates(file, most=32)
    assert time.process_time() - began < 0.5
    with pytest.raises(InputError, match="the limit is 16384"):
        Certificate.from_der(bytes(1 << 20))


@given(st.data())
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_damaged_certificate_is_refused_and_raises_nothing_else(world: World, data: st.DataObject) -> None:
    book, good = _fuzzed(world)
    der = bytearray(good)
    for _ in range(data.draw(st.integers(1, 4))):
        der[data.draw(st.integers(0, 4095)) % len(der)] = data.draw(st.integers(0, 255))
    kept = bytes(der[: data.draw(st.integers(0, 4095)) % (len(der) + 1)]) if data.draw(st.booleans()) else bytes(der)
    if kept == good:
        return
    with pytest.raises(Refusal):  # any change breaks the authority's signature
        book.identify_peer(kept)


@cache
def _fuzzed(world: World) -> tuple[PeerBook, bytes]:
    ca = world.authority()
    return PeerBook("bank", {"shop": by(ca)}), world.issued(ca, "shop").certificate.der


@given(st.binary(max_size=3000))
@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_noise_is_no_file_of_anything(tmp_path: Path, noise: bytes) -> None:
    file = tmp_path / "noise"
    file.touch(mode=0o600)
    for content in (noise, b"-----BEGIN CERTIFICATE-----\n" + noise + b"\n-----END CERTIFICATE-----\n"):
        file.write_bytes(content)
        with pytest.raises(InputError):
            read_certificates(file)
        with pytest.raises(InputError):
            Key.read(content)


# Commands


def test_files_are_made_once_whole_and_private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    old = os.umask(0)
    try:
        assert _run("certs", "new", "bank") == 0
        assert _run("certs", "ca", "our ca") == 0
    finally:
        os.umask(old)
    for folder, name in (("certs", "bank"), ("ca", "ca")):
        assert stat.S_IMODE((tmp_path / folder / f"{name}.key").stat().st_mode) == 0o600
        assert stat.S_IMODE((tmp_path / folder / f"{name}.crt").stat().st_mode) == 0o644
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert _run("certs", "new", "bank") == 2
    assert _run("certs", "ca", "another") == 2
    assert before == {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert _run("certs", "new", "Bank") == 2
    assert _run("certs", "new", "../bank") == 2
    assert _run("certs", "new", "bank2", "--days", "0") == 2
    assert not list((tmp_path / "certs").glob("bank2*"))


def test_two_that_write_one_file_leave_it_to_the_first(tmp_path: Path) -> None:
    write_new(tmp_path / "x", b"first")
    with pytest.raises(InputError, match="never overwritten"):
        write_new(tmp_path / "x", b"second")
    assert [path.name for path in tmp_path.iterdir()] == ["x"]
    assert (tmp_path / "x").read_bytes() == b"first"
    with pytest.raises(InputError, match="cannot be written"):
        write_new(tmp_path / "none" / "x", b"")


def test_an_authority_issues_and_revokes_without_a_party_s_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    _run("certs", "new", "bank")
    _run("certs", "ca", "our ca")
    key = (tmp_path / "certs/bank.key").read_bytes()
    (tmp_path / "certs/bank.key").rename(tmp_path / "away")  # the authority never sees it
    assert _run("certs", "issue", "certs/bank.csr", "--name", "bank") == 0
    assert _run("certs", "issue", "certs/bank.csr", "--name", "bank") == 2  # never overwritten
    assert _run("certs", "issue", "certs/bank.csr", "--name", "shop", "--out", "x.crt") == 2
    assert "expected securevfl:party/shop" in " ".join(capsys.readouterr().err.split())
    (issued,) = read_certificates(tmp_path / "issued/bank.crt")
    (ca,) = read_certificates(tmp_path / "ca/ca.crt")
    assert issued.issued_by(ca)
    write_new(tmp_path / "issued/bank.key", key, private=True)
    assert Identity.load(tmp_path / "issued/bank.crt", tmp_path / "issued/bank.key").name == "bank"
    book = PeerBook("shop", {"bank": Authority.from_files(tmp_path / "ca/ca.crt", tmp_path / "ca/ca.crl")})
    assert book.identify_peer(issued.der) == "bank"
    assert _run("certs", "revoke", "certs/bank.crt") == 2  # signed by itself, not by this authority
    assert _run("certs", "revoke", "issued/bank.crt") == 0
    assert _run("certs", "revoke") == 0  # signed anew
    assert "ca/ca.crl is list 3: 1 revoked" in capsys.readouterr().out
    book.reload()
    with pytest.raises(Refusal, match="revoked"):
        book.identify_peer(issued.der)
    capsys.readouterr()
    assert _run("certs", "show", "issued/bank.crt", "certs/bank.csr", "ca/ca.crt") == 0
    shown = capsys.readouterr().out
    for words in (issued.fingerprint, "party bank, P-256", "90 days left", "rightly signed", "authority, P-256"):
        assert words in shown
    assert _run("certs", "show", "away") == 2
    assert _run("certs", "show", "issued/bank.key") == 2
    assert "PRIVATE" not in capsys.readouterr().out


def test_a_request_that_is_signed_by_another_key_or_asks_for_more(world: World, tmp_path: Path) -> None:
    ca, key = world.authority(), Key.generate()
    request = make_request("bank", key)
    for asked, words in (
        (b"", "not a signing request"),
        (request[:150], "not a signing request"),
        (make_request("shop", key), "securevfl:party/shop; expected securevfl:party/bank"),
    ):
        with pytest.raises(InputError, match=words):
            issue_certificate(asked, ca.certificate, ca.key, NOW, name="bank")
    with pytest.raises(InputError, match="does not match the authority's certificate"):
        issue_certificate(request, ca.certificate, Key.generate(), NOW, name="bank")
    with pytest.raises(InputError, match="beyond the authority's expiry"):
        issue_certificate(request, ca.certificate, ca.key, NOW + 3600 * DAY, name="bank", days=800)


def test_rotating_makes_the_next_of_a_row_with_an_endorsement(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    _run("keys", "bank")
    _run("certs", "new", "bank")
    (tmp_path / "agreement.toml").write_text("job", encoding="utf-8")
    command = ("certs", "rotate", "bank", "--signing-key", "keys/bank.key", "--agreement", "agreement.toml")
    assert _run(*command) == 0
    assert _run(*command) == 0
    assert _run(*command[:-2]) == 2
    assert _run("certs", "rotate", "shop") == 2
    (tmp_path / "other.toml").write_text("another job", encoding="utf-8")
    (tmp_path / "third.toml").write_text("a third one", encoding="utf-8")
    assert _run(*command, "--agreement", "other.toml") == 0
    endorse = ("certs", "endorse", "bank", "--signing-key", "keys/bank.key", "--agreement")
    assert _run(*endorse, "third.toml") == 0
    assert _run(*endorse, "third.toml") == 2
    made = sorted(path.name for path in (tmp_path / "certs").glob("bank.3.*endorsement"))
    digests = (sha256(text).hexdigest()[:8] for text in (b"another job", b"a third one"))
    assert made == sorted(["bank.3.endorsement", *(f"bank.3.{one}.endorsement" for one in digests)])
    for suffix in ("crt", "csr", "key", "endorsement"):
        (tmp_path / f"certs/bank.3.{suffix}").unlink()
    capsys.readouterr()
    assert _run("certs", "show", "certs/bank.2.endorsement") == 0
    assert f"endorsement 2 of bank for the agreement {sha256(b'job').hexdigest()}" in capsys.readouterr().out
    first = Identity.load(tmp_path / "certs/bank.crt", tmp_path / "certs/bank.key")
    assert first.find_newest().renewals == 2
    book = PeerBook(
        "shop",
        {"bank": pinned(first)},
        agreement=sha256(b"job").digest(),
        signers={"bank": read_public_key(tmp_path / "keys/bank.pub")},
    )
    for counter in (1, 2):
        book.accept_endorsement((tmp_path / f"certs/bank.{counter}.endorsement").read_bytes())
    assert book.identify_peer(first.find_newest().certificate.der) == "bank"


def test_rotating_what_an_authority_issued_asks_it_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    _run("certs", "ca", "our ca")
    _run("certs", "new", "bank", "--out", "made")
    _run("certs", "issue", "made/bank.csr", "--name", "bank", "--out", "made/issued.crt")
    (tmp_path / "made/bank.crt").unlink()
    (tmp_path / "made/issued.crt").rename(tmp_path / "made/bank.crt")
    assert _run("certs", "rotate", "bank", "--out", "made") == 0
    assert sorted(path.name for path in (tmp_path / "made").glob("bank.1.*")) == ["bank.1.csr", "bank.1.key"]
    first = Identity.load(tmp_path / "made/bank.crt", tmp_path / "made/bank.key")
    assert first.find_newest() is first
    assert _run("certs", "issue", "made/bank.1.csr", "--name", "bank", "--out", "made/bank.1.crt") == 0
    assert first.find_newest().renewals == 1


def test_the_relay_s_command_listens_serves_and_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert _run("relay", "--new-token", "bank") == 0
    made = capsys.readouterr()
    write_new(tmp_path / "tokens", made.out.splitlines()[-1].encode(), private=True)
    token = read_token(tmp_path / "bank.token")
    assert token.hex() not in made.out
    command = [sys.executable, "-m", "securevfl", "relay", "--listen", "127.0.0.1:0", "--tokens", "tokens"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            listening = json.loads(process.stderr.readline())
            assert listening["event"] == "listening"
            where = Direct(Address(listening["host"], listening["port"]))
            meeting = read_rendezvous(os.urandom(32).hex())
            with ThreadPoolExecutor(2) as pool:
                ends = [pool.submit(Relay(where, meeting, token, side).dial, 60.0) for side in Side]
                server, client = (end.result(60) for end in ends)
            client.sendall(b"secret words")
            assert server.recv(100) == b"secret words"
            client.close()
            server.close()
        finally:
            process.terminate()
        log = process.stderr.read()
        assert process.wait(60) == 0
    events = [json.loads(line)["event"] for line in log.splitlines()]
    assert events[0] == "paired"
    assert events[-1] == "stopped"
    assert "secret" not in log
    assert meeting.hex() not in log
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bank.token", "tokens"]  # nothing is kept
    assert _run("relay") == 2
    assert _run("relay", "--listen", "nowhere", "--tokens", "tokens") == 2
    assert _run("relay", "--new-token", "bank") == 2
