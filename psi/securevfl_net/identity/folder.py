"""Manage a party's or an authority's files in a folder: ``bank.key``, ``bank.crt``, ``bank.csr``, ``bank.1.crt`` …"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Literal

from cryptography import x509

from securevfl_net.durable import make_folder, write_atomic
from securevfl_net.errors import InputError
from securevfl_net.fields.names import explain_bad_name
from securevfl_net.identity.certificate import Certificate, read_certificates, utc_now
from securevfl_net.identity.endorsement import Endorsement, Signer, name_endorsement
from securevfl_net.identity.files import read_bounded, read_private, write_new
from securevfl_net.identity.making import (
    DAYS,
    LIST_DAYS,
    Key,
    issue_certificate,
    make_authority,
    make_request,
    revocation_list,
    self_signed,
)
from securevfl_net.identity.own import rotation_number, series_files
from securevfl_net.identity.revocation import RevocationList

__all__ = [
    "Rotated",
    "endorse_certificate",
    "issue_to",
    "new_authority",
    "new_party",
    "new_request",
    "read_private_key",
    "read_request",
    "revoke_certificate",
    "rotate_certificate",
]

_KEY = 8 << 10
_NUMBERED = r"%s\.([1-9][0-9]{0,8})\.key"
_REQUEST = 64 << 10


@dataclass(frozen=True)
class Rotated:
    """Result of `rotate_certificate`.

    Attributes:
        file: path of the new certificate.
        certificate: the new certificate; None if an authority must issue it.
        endorsements: files of the endorsements, one for each agreement.
    """

    file: Path
    certificate: Certificate | None
    endorsements: tuple[Path, ...]


def read_private_key(path: Path) -> Key:
    """Read a private key that `securevfl certs` made.

    Raises:
        InputError: other users may read it, or it is not a private key.
    """
    content = read_private(path, _KEY, "a private key of `securevfl certs` (PEM)")
    try:
        return Key.read(content)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None


def new_party(
    name: str,
    folder: Path,
    *,
    kind: Literal["p256", "ed25519"] = "p256",
    days: int = DAYS,
    now: Callable[[], datetime] = utc_now,
    request: bool = True,
) -> Certificate:
    """Make ``NAME.key``, readable only by its owner, the self-signed ``NAME.crt``, and ``NAME.csr``.

    Args:
        name: the party's.
        folder: for the files; made if it is missing.
        kind: of the key.
        days: that the certificate is valid.
        now: this machine's clock.
        request: whether ``NAME.csr`` is made; a certificate that peers pin needs no authority.

    Raises:
        InputError: an invalid party name, days out of bounds, or one of the files already exists.
    """
    return _write_party(name, name, folder, Key.generate(kind), days, now, request=request)


def _write_party(
    name: str,
    stem: str,
    folder: Path,
    key: Key,
    days: int,
    now: Callable[[], datetime],
    *,
    by_authority: bool = False,
    request: bool = True,
) -> Certificate:
    found = self_signed(name, key, now(), days)
    make_folder(folder)
    suffixes = ("key", "crt", "csr") if request else ("key", "crt")
    files = {suffix: folder / f"{stem}.{suffix}" for suffix in suffixes}
    if there := [path for path in files.values() if path.exists()]:
        raise InputError(f"{there[0]} already exists and is never overwritten: move it away, or name another folder")
    write_new(files["key"], key.pem, private=True)
    if request:
        write_new(files["csr"], make_request(name, key))
    if not by_authority:
        write_new(files["crt"], found.pem)
    return found


def new_request(name: str, key: Path, out: Path) -> None:
    """Make a signing request for an existing key.

    Raises:
        InputError: the key cannot be used, or `out` already exists.
    """
    write_new(out, make_request(name, read_private_key(key)))


def rotate_certificate(
    name: str,
    folder: Path,
    *,
    days: int = DAYS,
    signer: Signer | None = None,
    agreements: Sequence[bytes] = (),
    kind: Literal["p256", "ed25519"] = "p256",
    now: Callable[[], datetime] = utc_now,
) -> Rotated:
    """Make a party's next key and certificate, ``NAME.1.crt``, ``NAME.2.crt`` …, and ``NAME.N.endorsement``.

    Endorsements for further agreements have the names that `name_endorsement` gives.

    If an authority issued the current certificate, it must also issue the next one; then a request for it is written.

    Args:
        name: the party's name; ``NAME.crt`` is in the folder.
        folder: the folder with the party's files.
        days: validity of the new certificate.
        signer: the party's signing key; without it, no endorsement is made.
        agreements: SHA-256 of each proposal that an endorsement is made for, 32 bytes.
        kind: type of the new key.
        now: this machine's clock.

    Raises:
        InputError: the folder contains no certificate of the party, or files cannot be written.
    """
    if mistake := explain_bad_name(name):
        raise InputError(mistake)
    first = folder / f"{name}.crt"
    (known,) = read_certificates(first)
    numbers = [int(one[1]) for path in folder.iterdir() if (one := re.fullmatch(_NUMBERED % name, path.name))]
    counter = max(numbers, default=0) + 1
    stem = f"{name}.{counter}"
    by_authority = not known.self_signed
    if by_authority and signer is not None:
        raise InputError(f"{first} was issued by an authority, which peers trust: rotate without an endorsement")
    found = _write_party(name, stem, folder, Key.generate(kind), days, now, by_authority=by_authority)
    file = folder / f"{stem}.crt"
    made: list[Path] = []
    for agreement in agreements:
        if signer is None:
            raise InputError("an endorsement needs the party's signing key")
        out = name_endorsement(file, agreement) if made else file.with_suffix(".endorsement")
        write_new(out, Endorsement(name, counter, agreement, found).to_signed_bytes(signer))
        made.append(out)
    return Rotated(file, None if by_authority else found, tuple(made))


def endorse_certificate(name: str, folder: Path, signer: Signer, agreement: bytes) -> Path:
    """Endorse a party's newest certificate for one more agreement.

    Args:
        name: the party's name; ``NAME.crt`` is in the folder.
        folder: the folder with the party's files.
        signer: the party's signing key.
        agreement: SHA-256 of the proposal, 32 bytes.

    Returns:
        The file of the endorsement.

    Raises:
        InputError: the certificate was not rotated, an authority issued it, or it is endorsed for this agreement.
    """
    newest = series_files(folder / f"{name}.crt")[0]
    (found,) = read_certificates(newest)
    if not found.self_signed:
        raise InputError(f"{newest} was issued by an authority, which peers trust: it needs no endorsement")
    counter = rotation_number(newest)
    if counter == 0:
        raise InputError(f"{newest} was never rotated: it needs no endorsement where the agreement names it")
    out = name_endorsement(newest, agreement)
    write_new(out, Endorsement(name, counter, agreement, found).to_signed_bytes(signer))
    return out


def new_authority(name: str, folder: Path, *, now: Callable[[], datetime] = utc_now) -> Certificate:
    """Make an authority for development: ``ca.key``, ``ca.crt`` and an empty revocation list, ``ca.crl``.

    Raises:
        InputError: an invalid name, or one of the files already exists.
    """
    key = Key.generate()
    found = make_authority(name, key, now())
    make_folder(folder)
    if there := [path for suffix in ("key", "crt", "crl") if (path := folder / f"ca.{suffix}").exists()]:
        raise InputError(f"{there[0]} already exists and is never overwritten: name another folder")
    write_new(folder / "ca.key", key.pem, private=True)
    write_new(folder / "ca.crt", found.pem)
    write_new(folder / "ca.crl", revocation_list(found, key, (), now(), number=1))
    return found


def issue_to(
    name: str,
    request: Path,
    folder: Path,
    out: Path,
    *,
    days: int = DAYS,
    now: Callable[[], datetime] = utc_now,
) -> Certificate:
    """Issue a certificate for a party's request.

    Args:
        name: the party's name, which the authority has checked.
        request: file with the request.
        folder: the authority's folder.
        out: file for the certificate; must not exist yet.
        days: validity of the certificate.
        now: this machine's clock.

    Raises:
        InputError: a request for another name, a file that cannot be used, or `out` already exists.
    """
    authority = _read_authority(folder)
    key = read_private_key(folder / "ca.key")
    content = read_bounded(request, _REQUEST, "a signing request (PEM)")
    try:
        found = issue_certificate(content, authority, key, now(), name=name, days=days)
    except InputError as error:
        raise InputError(f"{request}: {error}") from None
    make_folder(out.parent)
    write_new(out, found.pem)
    return found


def revoke_certificate(
    folder: Path,
    certificate: Path | None = None,
    *,
    days: int = LIST_DAYS,
    now: Callable[[], datetime] = utc_now,
) -> RevocationList:
    """Sign the authority's next revocation list, with one more certificate.

    Args:
        folder: the authority's folder.
        certificate: file of the certificate to revoke; None renews the list before it is due.
        days: until the next list is due.
        now: this machine's clock.

    Raises:
        InputError: another authority issued the certificate, or a file cannot be used.
    """
    authority = _read_authority(folder)
    key = read_private_key(folder / "ca.key")
    path = folder / "ca.crl"
    known = RevocationList.read(path, authority)
    revoked = list(known.revocation_times)
    if certificate is not None:
        (found,) = read_certificates(certificate)
        if not found.issued_by(authority):
            raise InputError(f"{certificate} was not issued by the authority in {folder}: ask the one that issued it")
        if found.x509.serial_number not in {serial for serial, _ in revoked}:
            revoked.append((found.x509.serial_number, now()))
    write_atomic(path, revocation_list(authority, key, revoked, now(), number=known.number + 1, days=days))
    return RevocationList.read(path, authority)


def _read_authority(folder: Path) -> Certificate:
    (found,) = read_certificates(folder / "ca.crt")
    if not found.authority:
        raise InputError(f"{folder / 'ca.crt'} is not an authority's certificate: name the folder that `certs ca` made")
    return found


def read_request(path: Path) -> x509.CertificateSigningRequest:
    """Read a signing request in PEM.

    Raises:
        InputError: it is not a signing request.
    """
    try:
        return x509.load_pem_x509_csr(read_bounded(path, _REQUEST, "a signing request (PEM)"))
    except ValueError:
        raise InputError(f"{path} is not a signing request in PEM") from None
