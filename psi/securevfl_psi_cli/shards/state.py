"""The folder of a run: what both agreed on, shards, results. An interrupted run continues from it."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from securevfl_psi.errors import ShardError
from securevfl_psi.identifiers import IdRules
from securevfl_psi.session import Session
from securevfl_psi.sharded.bucket import KEY_BYTES
from securevfl_psi.sharded.plan import ShardPlan
from securevfl_psi.terms import Learns, Protocol, Role

from securevfl_psi_cli.shards.files import read_digest, read_result, write_pieces

__all__ = ["RunState", "Settings", "run_key", "run_tag", "session_digest"]

_SETTINGS = "run.json"
_VERSION = 1
_FILES = ("shard-*", "result-*", "digest-*")


def run_key(session: Session) -> bytes:
    """The key of the bucket hash that follows from a handshake: both nonces are in it, so it is fresh."""
    return hashlib.sha512(b"securevfl-psi shards key 1" + session.dst).digest()[:KEY_BYTES]


def run_tag(session: Session, plan: ShardPlan, key: bytes) -> bytes:
    """16 bytes for the run: of the handshake, the number of shards, both padded sizes (in the order of `Session.names`
    they would differ between the parties, so in ascending order) and the key."""
    sizes = sorted((plan.own_pad, plan.peer_pad))
    numbers = b"".join(number.to_bytes(8, "big") for number in (plan.bits, *sizes))
    return hashlib.sha512(b"securevfl-psi shards run 1" + session.dst + numbers + key).digest()[:16]


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What every task of a run needs to know; all of it is the party's own or agreed.

    Attributes:
        name, peer, role, protocol, learns: as in `Terms`; the protocol is settled.
        form, strip, casefold, squeeze, numeric, columns: of `IdRules`.
        tag: of the run, in hexadecimal.
        key: of the bucket hash, in hexadecimal.
        bits: of it that make a shard.
        own, peer_rows: rows that each announced.
        own_pad, peer_pad: rows of each in every shard.
        source: digest of what the identifiers were read from.
        version: of this form.
    """

    name: str
    peer: str
    role: Role
    protocol: Protocol
    learns: Learns
    form: str
    strip: bool
    casefold: bool
    squeeze: bool
    numeric: bool
    columns: int
    tag: str
    key: str
    bits: int
    own: int
    peer_rows: int
    own_pad: int
    peer_pad: int
    source: str
    version: int = _VERSION

    @property
    def shards(self) -> int:
        """How many."""
        return 1 << self.bits

    @property
    def run_tag(self) -> bytes:
        """The tag's 16 bytes."""
        return bytes.fromhex(self.tag)

    @property
    def rules(self) -> IdRules:
        """How identifiers were normalised."""
        return IdRules(
            form=self.form,  # type: ignore[arg-type]
            strip=self.strip,
            casefold=self.casefold,
            squeeze=self.squeeze,
            numeric=self.numeric,
            columns=self.columns,
        )

    def shard_context(self, shard: int) -> str:
        """What the session of a shard is bound to: its number, how many there are, and the run."""
        return f"shard {shard} of {self.shards} {self.tag}"


class RunState:
    """The files of one run at one party.

    Args:
        folder: of the run, reached by all its workers.

    Attributes:
        settings: what was agreed on.

    Raises:
        ShardError: the folder contains no run, or one of another version.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        try:
            found = json.loads((folder / _SETTINGS).read_bytes())
            if found["version"] != _VERSION:
                raise ShardError(f"{folder} contains a run of another version: delete it, and run again")
            self.settings = Settings(**found)
        except (OSError, ValueError, TypeError, KeyError):
            raise ShardError(f"{folder} contains no sharded run: begin a new one") from None

    @classmethod
    def begin(cls, folder: Path, settings: Settings) -> RunState:
        """Keep a run once its rows are partitioned; what other runs left there is deleted."""
        for old in [one for name in _FILES for one in folder.glob(name)]:
            old.unlink(missing_ok=True)
        write_pieces(folder / _SETTINGS, [json.dumps(asdict(settings), indent=1).encode()])
        return cls(folder)

    @classmethod
    def find(cls, folder: Path) -> RunState | None:
        """The run in a folder, or None."""
        try:
            return cls(folder)
        except ShardError:
            return None

    def parts_folder(self) -> Path:
        """Folder of the parts, before they are sorted."""
        return self.folder / "parts"

    def shard_file(self, number: int) -> Path:
        """File of a shard's identifiers."""
        return self.folder / f"shard-{number:05d}"

    def result_path(self, number: int) -> Path:
        """File of its common rows."""
        return self.folder / f"result-{number:05d}"

    def digest_path(self, number: int) -> Path:
        """File of the digest of the session that found them."""
        return self.folder / f"digest-{number:05d}"

    def read_digests(self) -> np.ndarray:
        """Digests of the sessions of all shards, uint8 (shards, 32); zeros where one is not done, or a file of its was
        damaged: it is run again then."""
        out = np.zeros((self.settings.shards, 32), dtype=np.uint8)
        for number in range(len(out)):
            try:
                read_result(self.result_path(number), self.settings.run_tag, number)
                digest = read_digest(self.digest_path(number), self.settings.run_tag, number)
            except ShardError:
                continue
            out[number] = np.frombuffer(digest, dtype=np.uint8)
        return out

    def read_results(self) -> Iterator[np.ndarray]:
        """Common rows by shards, int64 (k,) each: one after the other they are in ascending order of bucket hashes,
        which is the same order of identifiers at both parties.

        Raises:
            ShardError: a shard is not done.
        """
        for number in range(self.settings.shards):
            yield read_result(self.result_path(number), self.settings.run_tag, number)

    def clear(self) -> None:
        """Delete what the run wrote, identifiers among it."""
        shutil.rmtree(self.parts_folder(), ignore_errors=True)
        for old in (*(one for name in _FILES for one in self.folder.glob(name)), self.folder / _SETTINGS):
            old.unlink(missing_ok=True)


def session_digest(digests: np.ndarray, tag: bytes) -> bytes:
    """One digest for all sessions of a run, in the order of their shards: 32 bytes."""
    return hashlib.sha512(b"securevfl-psi shards done 1" + tag + np.ascontiguousarray(digests).tobytes()).digest()[:32]
