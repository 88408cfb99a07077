"""Files of signing keys: ``NAME.key`` contains the private half (PKCS #8, PEM), readable only by its owner;
``NAME.pub`` the public half (SubjectPublicKeyInfo, PEM), to share.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from pathlib import Path

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
    load_pem_public_key,
)

from securevfl.errors import InputError
from securevfl.ledger.keys import PrivateKey, PublicSigningKey

__all__ = ["make_key", "read_keys", "read_private_key", "read_public_key", "read_public_keys"]

_MOST = 8192
"""Maximum bytes of a key file; an Ed25519 key file has about 120."""


def make_key(name: str, folder: str | Path) -> PrivateKey:
    """Make a party's key: ``NAME.key``, readable by its owner alone, and ``NAME.pub`` in `folder`, which only its owner
    may enter.

    Raises:
        InputError: one of the files already exists, or other users may enter the folder.
    """
    target = Path(folder)
    target.mkdir(mode=0o700, parents=True, exist_ok=True)
    _require_private(target, target.stat(), "chmod 700")
    key = PrivateKey.generate()
    private = key.ed25519.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    public = key.ed25519.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    if (target / f"{name}.pub").exists():
        raise InputError(_explain_existing(target / f"{name}.pub"))
    _write_file(target / f"{name}.key", private, 0o600)
    _write_file(target / f"{name}.pub", public, 0o644)
    return key


def _explain_existing(path: Path) -> str:
    return f"{path} already exists, and keys are never overwritten: move it away, or choose another --out"


def _write_file(path: Path, content: bytes, mode: int) -> None:
    try:
        number = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode)
    except FileExistsError:
        raise InputError(_explain_existing(path)) from None
    with open(number, "wb") as file:
        os.fchmod(number, mode)  # whatever the umask is
        file.write(content)
        file.flush()
        os.fsync(number)


def _require_private(path: Path, found: os.stat_result, cure: str) -> None:
    """Refuse a file or folder that users other than its owner may read or enter."""
    if found.st_mode & 0o077:
        mode = stat.S_IMODE(found.st_mode)
        raise InputError(f"{path} has mode {mode:04o}: other users could read a private key; run {cure} {path}")
    if found.st_uid != os.geteuid():
        raise InputError(f"{path} belongs to user {found.st_uid}, this process to user {os.geteuid()}: make a new key")


def read_private_key(path: str | Path) -> PrivateKey:
    """Read a private key that `make_key` wrote.

    Raises:
        InputError: the file does not exist, is not a private Ed25519 key, or is readable by other users.
    """
    file = Path(path)
    try:
        number = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        folder = "" if file.parent == Path() else f" --out {file.parent}"
        raise InputError(f"{file} does not exist; make it with: securevfl keys {file.stem}{folder}") from None
    except OSError as error:
        raise InputError(f"{file} cannot be read: {error.strerror}; a key must be a regular file, not a link") from None
    found = os.fstat(number)
    if not stat.S_ISREG(found.st_mode):
        os.close(number)  # before it is opened as a file, which a folder cannot be
        raise InputError(f"{file} is not a regular file; name the .key file that `securevfl keys` made")
    with open(number, "rb") as stream:
        _require_private(file, found, "chmod 600")
        content = stream.read(_MOST + 1)
    try:
        key = load_pem_private_key(_check_length(file, content), password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        key = None  # the library's words may hold parts of the file
    if not isinstance(key, Ed25519PrivateKey):
        raise InputError(
            f"{file} does not contain an Ed25519 private key: name the .key file that `securevfl keys` made"
        )
    return PrivateKey.from_ed25519(key)


def read_public_key(path: str | Path) -> PublicSigningKey:
    """Read the public key in a ``.pub`` file.

    Raises:
        InputError: the file does not exist or is not a public Ed25519 key.
    """
    file = Path(path)
    try:
        with file.open("rb") as stream:
            content = stream.read(_MOST + 1)
    except OSError as error:
        raise InputError(f"{file} cannot be read: {error.strerror}; name a .pub file of `securevfl keys`") from None
    try:
        key = load_pem_public_key(_check_length(file, content))
    except (ValueError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, Ed25519PublicKey):
        raise InputError(f"{file} does not contain an Ed25519 public key: name a .pub file that `securevfl keys` made")
    return PublicSigningKey(key.public_bytes_raw())


def _check_length(file: Path, content: bytes) -> bytes:
    if len(content) > _MOST:
        raise InputError(f"{file} has more than {_MOST} bytes; a key has about 120: name a file of `securevfl keys`")
    return content


def read_keys(folder: str | Path, parties: Iterable[str]) -> dict[str, PrivateKey]:
    """Read the parties' private keys from a folder, one ``PARTY.key`` each.

    Raises:
        InputError: a party's file is missing, is not a key, or is readable by other users.
    """
    return {party: read_private_key(Path(folder) / f"{party}.key") for party in parties}


def read_public_keys(folder: str | Path) -> dict[str, PublicSigningKey]:
    """Read the public keys in a folder; the file name ``PARTY.pub`` gives the party.

    Raises:
        InputError: the folder contains no key file, or a file that is not a key.
    """
    found = {file.stem: read_public_key(file) for file in sorted(Path(folder).glob("*.pub"))}
    if not found:
        raise InputError(f"{folder} contains no public key: no file is named <party>.pub")
    return found
