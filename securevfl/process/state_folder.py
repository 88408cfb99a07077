"""A party's state folder: everything that its process needs after a restart.

Nobody but its owner may read it: folders have mode 0700, files 0600. Each file is written whole and synced before what
depends on it happens, and carries the SHA-256 of its content, so that a torn or changed one is found and never taken
for an older state.

```
state/
  job.json         which agreement and party the folder is of
  incarnation.json how often this party's process was started, and its random name
  attempts.json    attempts that were begun, in their order
  peers.json       the newest incarnation of each peer
  used.json        seconds that this party spent on the job
  readmission.json what peers signed when they admitted a restored folder again
  secret.json      the party's secret
  finished.json    the parties' signed statements that they have finished
  left.json        the parties' signed words on who left for good
  alignment.safetensors           its rows of the alignment
  ledgers/NAME.jsonl  checkpoints/  model/  report/
  status.json, log.jsonl          for people and tools; nothing reads them to go on
```
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from securevfl_net.durable import lock_folder, make_folder, write_atomic

from securevfl.align import Alignment
from securevfl.errors import DiskFull, InputError
from securevfl.ledger import Readmission, ReadmissionRequest, decode_readmission
from securevfl.party import Alignments
from securevfl.party.finish import Statement, decode_statements, encode_statements
from securevfl.party.leaving import Departures, LeavingWord, decode_words, encode_words
from securevfl.party_context import PartySecret
from securevfl.run.run_files import LEDGERS
from securevfl.run.store import read_tree, write_tree

__all__ = ["Attempt", "StateFolder", "StoredAlignment"]

FORMAT = 1
_BUSY = "another process of this party is running; wait for it to end, or give another state folder"
_NONCE = 16


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """An attempt that this party was ready for.

    Attributes:
        number: that all parties gave it.
        view: which processes and checkpoints it is of, hexadecimal.
        start: epoch to resume after; 0 starts from the beginning.
        begun: whether all parties were ready.
    """

    number: int
    view: str
    start: int
    begun: bool = False


@dataclass(frozen=True, kw_only=True)
class StoredAlignment:
    """An alignment and the attempt in which it was made.

    Attributes:
        digest: the same at all parties that made it together, hexadecimal.
        table: SHA-256 of the table whose rows it numbers; empty at a party without one.
        alignments: the party's own.
    """

    digest: str
    table: str
    alignments: Alignments


class StateFolder:
    """One party's state folder, locked by this process. Use `take`.

    Args:
        path: of the folder.
        party: whose it is.
        agreement: SHA-256 of the proposal, hexadecimal.

    Attributes:
        machine_stopped: whether the machine was started since the party's last process, as `count_start` finds.
    """

    def __init__(self, path: Path, party: str, agreement: str) -> None:
        self.path = path
        self.party = party
        self.agreement = agreement
        self.machine_stopped = False

    @classmethod
    @contextmanager
    def lock(cls, path: str | Path, *, party: str, agreement: str) -> Iterator[StateFolder]:
        """Make or open the folder, and lock it for the duration of the block.

        Args:
            path: of the folder.
            party: whose it is.
            agreement: SHA-256 of the proposal that it is for, hexadecimal.

        Raises:
            InUse: another process has locked it.
            InputError: it is of another party or agreement, damaged, or cannot be written.
        """
        place = Path(path)
        make_folder(place, private=True)
        with lock_folder(place, _BUSY):
            folder = cls(place, party, agreement)
            folder._claim_folder()
            yield folder

    def _claim_folder(self) -> None:
        mine: dict[str, object] = {"format": FORMAT, "party": self.party, "agreement": self.agreement}
        found = self._read_json("job.json")
        if found is None:
            self._write_json("job.json", mine)
        elif found != mine:
            raise InputError(
                f"{self.path} is the state of {found.get('party')!r} in the agreement "
                f"{str(found.get('agreement'))[:16]}…, not of {self.party!r} in {self.agreement[:16]}…: give "
                "each agreement a separate state folder"
            )
        for name in (LEDGERS, "checkpoints", "model", "report"):
            make_folder(self.path / name, private=True)

    @property
    def ledger_file(self) -> Path:
        """File of the party's chains."""
        return self.path / LEDGERS / f"{self.party}.jsonl"

    @property
    def checkpoint_folder(self) -> Path:
        """Folder of the party's checkpoints and of its journal."""
        return self.path / "checkpoints"

    @property
    def model_folder(self) -> Path:
        """Folder of the party's part of the model."""
        return self.path / "model"

    @property
    def report_folder(self) -> Path:
        """Folder of the party's own report."""
        return self.path / "report"

    @property
    def status_file(self) -> Path:
        """Path of the file that `securevfl status` shows."""
        return self.path / "status.json"

    @property
    def log_file(self) -> Path:
        """The party's log, one JSON object a line."""
        return self.path / "log.jsonl"

    def count_start(self) -> tuple[int, bytes]:
        """Count one more start of this party's process; returns when that is on the disk.

        Returns:
            How often it was started, from 1, and 16 random bytes: nobody else has this pair, not even a process that
            was started from a copy of the folder.
        """
        found = self._read_json("incarnation.json")
        count = 1 if found is None else _read_count(found, "count") + 1
        # A restored copy of the folder counts the same starts again; the nonce tells the two processes apart.
        nonce, boot = secrets.token_bytes(_NONCE), read_boot_id()
        # Without an id of the boot nobody can tell a stopped machine from a killed process.
        self.machine_stopped = found is not None and (not boot or found.get("boot") != boot)
        self._write_json("incarnation.json", {"count": count, "nonce": nonce.hex(), "boot": boot})
        return count, nonce

    @property
    def known_incarnations(self) -> dict[str, str]:
        """Peer → the newest incarnation of it that was seen, as text."""
        found = self._read_json("peers.json")
        return {} if found is None else {str(peer): str(text) for peer, text in found.items()}

    def store_incarnation(self, peer: str, incarnation: str) -> None:
        """Keep a peer's newest incarnation: an older one is refused from now on."""
        known = self.known_incarnations
        if known.get(peer) != incarnation:
            self._write_json("peers.json", known | {peer: incarnation})

    @property
    def attempts(self) -> list[Attempt]:
        """Attempts that this party was ready for, the oldest first."""
        found = self._read_json("attempts.json")
        items = [] if found is None else found.get("attempts")
        if not isinstance(items, list):
            raise self._damage_error("attempts.json", "it lists no attempts")
        try:
            return [
                Attempt(number=int(o["number"]), view=str(o["view"]), start=int(o["start"]), begun=o["begun"] is True)
                for o in items
            ]
        except (TypeError, KeyError, ValueError):
            raise self._damage_error("attempts.json", "its attempts are malformed") from None

    def store_ready(self, view: str, start: int, number: int) -> int:
        """Store that this party is ready for an attempt, before it announces it; returns the number of views for which
        it was ready.
        """
        return self._store_attempts([*self.attempts, Attempt(number=number, view=view, start=start)])

    def store_begun(self, view: str) -> int:
        """Store that all were ready; returns how many attempts began."""
        now = [replace(one, begun=one.begun or one.view == view) for one in self.attempts]
        self._store_attempts(now)
        return sum(one.begun for one in now)

    def _store_attempts(self, attempts: list[Attempt]) -> int:
        items = [asdict(one) for one in attempts]
        self._write_json("attempts.json", {"attempts": items})
        return len(attempts)

    def raise_counts(self, *, starts: int, attempts: int) -> None:
        """After a re-admission: count as many starts and attempts as the peers saw, where that is more."""
        found = self._read_json("incarnation.json") or {"count": 0, "nonce": ""}
        if _read_count(found, "count") < starts:
            self._write_json("incarnation.json", found | {"count": starts})
        known = self.attempts
        if max((one.number for one in known), default=0) < attempts:
            self._store_attempts([*known, Attempt(number=attempts, view="", start=0, begun=True)])

    def store_readmission(self, request: bytes, grants: Sequence[bytes]) -> None:
        """Keep a request to be admitted again, and what the peers answered."""
        texts = {"request": request.decode(), "grants": [grant.decode() for grant in grants]}
        self._write_json("readmission.json", texts)

    @property
    def readmission_request(self) -> ReadmissionRequest:
        """The last request.

        Raises:
            InputError: there is none.
        """
        found = decode_readmission(str((self._read_json("readmission.json") or {}).get("request", "")).encode())
        if not isinstance(found, ReadmissionRequest):
            raise self._damage_error("readmission.json", "it contains no request")
        return found

    @property
    def readmissions(self) -> list[Readmission]:
        """The peers' grants of the last request; the ledger records them."""
        grants = (self._read_json("readmission.json") or {}).get("grants", [])
        found = [decode_readmission(str(text).encode()) for text in grants]
        return [grant for grant in found if isinstance(grant, Readmission)]

    @property
    def seconds_used(self) -> float:
        """Seconds that this party spent on the job, over all its processes."""
        found = self._read_json("used.json")
        value = 0.0 if found is None else found.get("seconds")
        if isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
            raise self._damage_error("used.json", f"seconds is {value!r}")
        return float(value)

    def add_seconds(self, seconds: float) -> None:
        """Add to `seconds_used`."""
        self._write_json("used.json", {"seconds": self.seconds_used + max(seconds, 0.0)})

    def keep_secret(self, fresh: PartySecret) -> PartySecret:
        """The party's secret: the one that is kept, or `fresh`, which is kept from now on."""
        found = self._read_json("secret.json")
        if found is None:
            self._write_json("secret.json", {"secret": fresh.to_hex})
            return fresh
        text = found.get("secret")
        if not isinstance(text, str) or len(text) != 64 or not set(text) <= set("0123456789abcdef"):
            raise self._damage_error("secret.json", "it contains no secret")
        return PartySecret(int(text, 16))

    @property
    def outcome(self) -> Mapping[str, Any] | None:
        """How the job ended at this party; None before its end."""
        return self._read_json("outcome.json")

    def store_outcome(self, outcome: Mapping[str, object]) -> None:
        """Store how the job ended."""
        self._write_json("outcome.json", dict(outcome))

    @property
    def statements(self) -> list[Statement]:
        """Signed statements of the job's end that this party has, its own and its peers'."""
        found = self._read_json("finished.json")
        try:
            return [] if found is None else decode_statements(bytes.fromhex(found["statements"]))
        except (KeyError, TypeError, ValueError) as error:
            raise self._damage_error("finished.json", str(error)) from None

    def store_statements(self, statements: Iterable[Statement]) -> None:
        """Store signed statements of the job's end; returns when they are on the disk."""
        new = list(statements)
        if new != self.statements:
            self._write_json("finished.json", {"statements": encode_statements(new).hex()})

    @property
    def leaving_words(self) -> list[LeavingWord]:
        """Signed words on who left for good, its own and its peers'."""
        found = self._read_json("left.json")
        try:
            return [] if found is None else decode_words(bytes.fromhex(found["words"]))
        except (KeyError, TypeError, ValueError) as error:
            raise self._damage_error("left.json", str(error)) from None

    def find_gone(self, parties: Iterable[str], owners: Collection[str]) -> tuple[str, ...]:
        """Parties without whom the job went on.

        Args:
            parties: all of the agreement.
            owners: those with labels.
        """
        peers = set(parties) - {self.party}
        return Departures(self.party, peers, owners, known=self.leaving_words).gone

    def store_leaving_words(self, words: Iterable[LeavingWord]) -> None:
        """Store signed words on who left; returns when they are on the disk."""
        new = list(words)
        if new != self.leaving_words:
            self._write_json("left.json", {"words": encode_words(new).hex()})

    def store_alignment(self, found: StoredAlignment) -> None:
        """Keep an alignment for further attempts."""
        items = {
            owner: {
                "rows": one.rows,
                "digest": one.digest,
                "verified by": list(one.verified_by),
                "pairwise": dict(one.pairwise),
                "labelled": dict(one.labelled),
                "protocol": one.protocol,
                **({} if one.weights is None else {"weights": one.weights}),
            }
            for owner, one in found.alignments.items()
        }
        tree = {"format": FORMAT, "party": self.party, "agreement": self.agreement}
        tree |= {"digest": found.digest, "table": found.table, "alignments": items}
        write_tree(self.path / "alignment.safetensors", tree)

    def read_alignment(self) -> StoredAlignment | None:
        """The stored alignment; None before there is one.

        Raises:
            InputError: it is damaged, or of another party or agreement.
        """
        path = self.path / "alignment.safetensors"
        if not path.exists():
            return None
        tree = read_tree(path)
        if not isinstance(tree, dict) or (tree.get("party"), tree.get("agreement")) != (self.party, self.agreement):
            raise InputError(f"{path} is of another party or agreement: give each agreement a separate state folder")
        items: dict[str, dict[str, Any]] = tree["alignments"]
        alignments = {
            owner: Alignment(
                rows=one["rows"],
                digest=one["digest"],
                verified_by=tuple(one["verified by"]),
                pairwise=one["pairwise"],
                labelled=one["labelled"],
                protocol=str(one.get("protocol", "")),
                weights=one.get("weights"),
            )
            for owner, one in items.items()
        }
        return StoredAlignment(digest=tree["digest"], table=tree["table"], alignments=alignments)

    def forget_alignment(self) -> None:
        """Remove the alignment: not all parties have this one."""
        (self.path / "alignment.safetensors").unlink(missing_ok=True)

    def _write_json(self, name: str, content: Mapping[str, object]) -> None:
        text = json.dumps(content, sort_keys=True, separators=(",", ":"))
        digest = hashlib.sha256(text.encode()).hexdigest()
        write_atomic(self.path / name, f'{{"content":{text},"sha256":"{digest}"}}\n'.encode(), private=True)

    def _read_json(self, name: str) -> dict[str, Any] | None:
        try:
            raw = (self.path / name).read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise InputError(f"{self.path / name} cannot be read ({error.strerror})") from None
        try:
            found = json.loads(raw)
            content, digest = found["content"], found["sha256"]
            text = json.dumps(content, sort_keys=True, separators=(",", ":"))
            if not isinstance(content, dict) or hashlib.sha256(text.encode()).hexdigest() != digest:
                raise ValueError("its content is not what was written")
        except (ValueError, KeyError, TypeError) as error:
            raise self._damage_error(name, str(error)) from None
        return content

    def _damage_error(self, name: str, why: str) -> InputError:
        return InputError(
            f"{self.path / name} is damaged ({why}): bring the folder back from a back-up, which all peers "
            "must then approve, or start from the beginning with another folder and a new agreement"
        )


def read_boot_id() -> str:
    """The random id of this start of the machine; empty where the system has none."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return ""


def _read_count(found: Mapping[str, Any], name: str) -> int:
    value = found.get(name)
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise InputError(f"{name} is {value!r}; a whole number was expected: the state folder is damaged")
    return value


def show_status(path: Path, status: Mapping[str, object]) -> None:
    """Put a new status in the place of the last one, whole, for its owner alone.

    It is not synced to the disk: after a crash of the machine an older one is as good, and so it is on a full disk.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with open(handle, "wb") as file:
            file.write(json.dumps(status, indent=1).encode() + b"\n")
        os.replace(temporary, path)
    except OSError as error:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        if not isinstance(DiskFull.convert(error, path), DiskFull):
            raise
