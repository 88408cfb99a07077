"""Signing keys: what a signature is good for; who may read their files, and that nothing else is taken for one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from securevfl.errors import AuditError, InputError
from securevfl.ledger import PrivateKey, make_key, read_keys, read_private_key, read_public_key, read_public_keys

OTHER = X25519PrivateKey.generate()
PRIVATE = OTHER.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
PUBLIC = OTHER.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


def _mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def test_a_signature_is_of_one_kind_of_content_and_has_one_form() -> None:
    """Of one kind it would pass for another; in two forms, one line of a ledger would have two hashes."""
    key = PrivateKey.generate()
    signature = key.sign("opening", b"of a run")
    key.public_key.verify("opening", b"of a run", signature)
    for kind, content in (
        ("closing", b"of a run"),
        ("", b"of a run"),
        ("opening", b"of a ru"),
        ("openin", b"gof a run"),
    ):
        with pytest.raises(AuditError, match="not made by"):
            key.public_key.verify(kind, content, signature)
    for form in (signature.upper(), f" {signature}", f"{signature[:64]} {signature[64:]}", signature[:-2], ""):
        with pytest.raises(AuditError, match="not made by"):
            key.public_key.verify("opening", b"of a run", form)


def test_a_key_is_its_owner_s_alone_whatever_the_umask_is(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        key = make_key("bank", tmp_path / "keys")
    finally:
        os.umask(before)
    assert _mode(tmp_path / "keys") == 0o700
    assert _mode(tmp_path / "keys/bank.key") == 0o600
    assert _mode(tmp_path / "keys/bank.pub") == 0o644
    assert read_private_key(tmp_path / "keys/bank.key").public_key == key.public_key
    assert read_public_keys(tmp_path / "keys") == {"bank": key.public_key}
    assert read_keys(tmp_path / "keys", ["bank"])["bank"].public_key == key.public_key


def test_none_is_overwritten(tmp_path: Path) -> None:
    folder = tmp_path / "keys"
    make_key("bank", folder)
    for name in ("bank.key", "bank.pub"):
        content = (folder / name).read_bytes()
        other = folder / ("bank.pub" if name == "bank.key" else "bank.key")
        other.rename(tmp_path / "away")
        with pytest.raises(InputError, match=f"{name} already exists, and keys are never overwritten"):
            make_key("bank", folder)
        assert (folder / name).read_bytes() == content
        assert not other.exists()
        (tmp_path / "away").rename(other)


CONTENTS = ("nothing", "text", "public", "private", "cut", "long")  # keys are new in each process


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o602, 0o610])
def test_a_key_that_others_may_read_or_write_is_refused(mode: int, tmp_path: Path) -> None:
    make_key("bank", tmp_path / "keys")
    file = tmp_path / "keys/bank.key"
    file.chmod(mode)
    with pytest.raises(InputError, match=rf"has mode {mode:04o}: .*; run chmod 600"):
        read_private_key(file)


@pytest.mark.parametrize("mode", [0o755, 0o710, 0o701])
def test_no_key_is_made_where_others_may_enter(mode: int, tmp_path: Path) -> None:
    folder = tmp_path / "keys"
    folder.mkdir()
    folder.chmod(mode)
    with pytest.raises(InputError, match=rf"has mode {mode:04o}: .*; run chmod 700"):
        make_key("bank", folder)
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("content", [b"", b"no key", PUBLIC, PRIVATE, PRIVATE[:60], bytes(9000)], ids=CONTENTS)
def test_other_contents_are_no_private_key_and_are_not_repeated(content: bytes, tmp_path: Path) -> None:
    file = tmp_path / "bank.key"
    file.write_bytes(content)
    file.chmod(0o600)
    with pytest.raises(InputError, match=r"does not contain an Ed25519 private key|has more than 8192 bytes") as caught:
        read_private_key(file)
    secret = PRIVATE.splitlines()[1].decode()
    assert secret not in str(caught.value)
    assert caught.value.__cause__ is None


@pytest.mark.parametrize("content", [b"", b"no key", PUBLIC, PRIVATE, PUBLIC[:60], bytes(9000)], ids=CONTENTS)
def test_other_contents_are_no_public_key(content: bytes, tmp_path: Path) -> None:
    file = tmp_path / "bank.pub"
    file.write_bytes(content)
    with pytest.raises(InputError, match=r"does not contain an Ed25519 public key|has more than 8192 bytes"):
        read_public_key(file)


def test_links_pipes_folders_and_nothing_are_no_key(tmp_path: Path) -> None:
    make_key("bank", tmp_path / "keys")
    (tmp_path / "link.key").symlink_to(tmp_path / "keys/bank.key")
    os.mkfifo(tmp_path / "pipe.key", 0o600)
    for name, words in (
        ("link.key", "a key must be a regular file, not a link"),
        ("pipe.key", "is not a regular file"),
        ("keys", "is not a regular file"),
        ("none.key", "does not exist; make it with: securevfl keys none --out"),
    ):
        with pytest.raises(InputError, match=words):
            read_private_key(tmp_path / name)
    with pytest.raises(InputError, match=r"contains no public key: no file is named <party>.pub"):
        read_public_keys(tmp_path)
