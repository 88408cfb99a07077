"""A party's durable record of how often it may have released each row, over all attempts at a run.

Before the first release of an epoch, a *reservation* with the attempt, the epoch and the most releases of a row is
synced to disk. At the end of the epoch a *close* replaces it with the exact count of each row. A process that is killed
leaves its reservation open, and an open reservation counts in full, for every row. So the sum over all attempts is
never less than what was released, and exceeds it by at most what interrupted attempts had reserved.

Lines are JSON, each with the SHA-256 of the line before it. A last line that was cut off while being written is
dropped, because the release it announces has not happened. The folder's owner can delete or rewrite the file: the
journal guards against accidents, not against its owner.
"""

from __future__ import annotations

import base64
import hashlib
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import numpy as np
from securevfl_net.durable import append_synced

from securevfl.errors import InputError
from securevfl.privacy.counts import EarlierCounts

__all__ = ["Journal", "describe_lost_attempts"]

VERSION = 1
_MOST_ROWS = 1 << 31


class _Opening(msgspec.Struct, frozen=True, kw_only=True, tag="open", tag_field="line", forbid_unknown_fields=True):
    """First line: the party and the job."""

    version: int = VERSION
    party: str
    job: str
    prev: str = ""
    hash: str = ""


class _Agreed(msgspec.Struct, frozen=True, kw_only=True, tag="agreed", tag_field="line", forbid_unknown_fields=True):
    """All parties with a journal agreed to this attempt; it has not started."""

    attempt: int
    prev: str = ""
    hash: str = ""


class _Attempt(msgspec.Struct, frozen=True, kw_only=True, tag="attempt", tag_field="line", forbid_unknown_fields=True):
    """A process started, or resumed after epoch `start`."""

    attempt: int
    start: int
    prev: str = ""
    hash: str = ""


class _Reserve(msgspec.Struct, frozen=True, kw_only=True, tag="reserve", tag_field="line", forbid_unknown_fields=True):
    """In this epoch each of `rows` rows may be released up to `most` times; counts until the epoch is closed."""

    attempt: int
    epoch: int
    release: str
    rows: int
    most: int
    prev: str = ""
    hash: str = ""


class _Close(msgspec.Struct, frozen=True, kw_only=True, tag="close", tag_field="line", forbid_unknown_fields=True):
    """How often each row was released in this epoch: the counts, or the digest of an earlier line with equal counts."""

    attempt: int
    epoch: int
    release: str
    rows: int
    digest: str
    counts: str = ""
    prev: str = ""
    hash: str = ""


class _Lost(msgspec.Struct, frozen=True, kw_only=True, tag="lost", tag_field="line", forbid_unknown_fields=True):
    """The file was restored from a back-up: so many attempts may have released all that the plan allows, uncounted."""

    nonce: str
    attempts: int
    prev: str = ""
    hash: str = ""


Line = _Opening | _Agreed | _Attempt | _Reserve | _Close | _Lost
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Line).decode


@dataclass
class _Epoch:
    """How often one attempt released each row in one epoch, at most: release → counts (rows,)."""

    attempt: int
    epoch: int
    counts: dict[str, np.ndarray] = field(default_factory=dict)


class Journal:
    """One party's journal. Without a path it exists in memory only.

    Args:
        party: whose it is.
        job: digest of the job.
        path: of the file; created when the first attempt is agreed on or begins.

    Attributes:
        attempt: number of the last attempt that began; 0 before the first.
        agreed: number of the last attempt that the parties agreed on, whether it began or not.
        lost_attempts: attempts that the file does not count because it was restored; each counts as a whole run.

    Raises:
        InputError: the file was altered, or belongs to another party or job.
    """

    def __init__(self, party: str = "", job: str = "", path: Path | None = None) -> None:
        self.path = path
        self.party = party
        self.job = job
        self.attempt = 0
        self.agreed = 0
        self.lost_attempts = 0
        self._readmissions: set[str] = set()
        self._head = ""
        self._known: dict[str, np.ndarray] = {}
        self._epochs: list[_Epoch] = []
        self._heads: set[str] = set()
        self._begun = False
        if path is not None and path.exists():
            self._read_file(path)

    @property
    def head(self) -> str:
        """Hash of the last line; empty before the first."""
        return self._head

    def has_line(self, head: str) -> bool:
        """Return True if the journal has a line with this hash. A checkpoint records the last line at its time."""
        return head in self._heads

    def record_agreed(self, attempt: int) -> None:
        """Record the number that all parties agreed on for the next attempt; see `securevfl.party.attempts`."""
        self._open()
        self._append_line(_Agreed(attempt=attempt))

    def record_lost(self, nonce: str, agreed: int) -> None:
        """Record that the file was restored, and that the party took part in up to `agreed` attempts. The last one
        that the file counts may have gone on after the back-up, and so counts among the lost ones. Counts
        nothing again for a `nonce` that it has recorded.
        """
        self._open()
        if nonce not in self._readmissions:
            lost = max(0, agreed - self.attempt) + (self.attempt > 0)
            self._append_line(_Lost(nonce=nonce, attempts=lost))
        # After a crash between the two lines the second one is still missing.
        if agreed > self.agreed:
            self.record_agreed(agreed)

    def begin_attempt(self, start: int) -> None:
        """Start an attempt that resumes after epoch `start`; 0 starts from scratch. Later calls on the same object do
        nothing.
        """
        if self._begun:
            return
        self._open()
        self._append_line(_Attempt(attempt=max(self.agreed, self.attempt + 1), start=start))
        self._begun = True

    def _open(self) -> None:
        if not self._head:
            self._append_line(_Opening(party=self.party, job=self.job))

    def reserve_releases(self, epoch: int, release: str, rows: int, most: int) -> None:
        """Write down, before it happens, that each of `rows` rows may be released up to `most` times in this epoch.

        Raises:
            OSError: it could not be written; nothing may be released then.
        """
        self._append_line(_Reserve(attempt=self.attempt, epoch=epoch, release=release, rows=rows, most=most))

    def close_epoch(self, epoch: int, release: str, counts: np.ndarray) -> None:
        """Replace this attempt's reservation for this epoch with the exact counts (rows,)."""
        raw = np.ascontiguousarray(counts, dtype="<u4").tobytes()
        digest = hashlib.sha256(raw).hexdigest()
        # Epochs with equal counts repeat: the counts are stored once and referred to by digest.
        packed = "" if digest in self._known else base64.b64encode(zlib.compress(raw, 1)).decode()
        line = _Close(
            attempt=self.attempt, epoch=epoch, release=release, rows=len(counts), digest=digest, counts=packed
        )
        self._append_line(line)

    def max_releases(self, release: str, epoch: int) -> int:
        """How often a release may have happened in this epoch, over all attempts, this one included; each lost attempt
        counts once.
        """
        found = (one.counts[release] for one in self._epochs if one.epoch == epoch and release in one.counts)
        return self.lost_attempts + sum(int(counts.max(initial=0)) for counts in found)

    def earlier_counts(self, release: str, rows: int, start: int) -> EarlierCounts:
        """What earlier attempts released, for a run that resumes after epoch `start`.

        Args:
            release: name of the release.
            rows: number of rows that it counts.
            start: the epoch; 0 for a run that starts from scratch.

        Raises:
            InputError: the journal counts another number of rows.
        """
        total, kept = np.zeros(rows, np.int64), np.zeros(rows, np.int64)
        last: dict[int, np.ndarray] = {}
        for one in self._epochs:
            if one.attempt >= self.attempt or release not in one.counts:
                continue
            found = one.counts[release]
            if len(found) != rows:
                raise InputError(f"{self.path or 'the journal'} counts {len(found)} rows of {release!r}, not {rows}")
            total += found
            if one.epoch <= start:
                last[one.epoch] = found
        for found in last.values():
            kept += found
        return EarlierCounts(kept, total - kept)

    def _append_line(self, line: Line) -> None:
        sealed = _chain_line(line, self._head)
        if self.path is not None:
            append_synced(self.path, _encode(sealed) + b"\n")
        self._count_line(sealed)

    def _count_line(self, line: Line) -> None:
        """Count a line that is on the disk."""
        self._head = line.hash
        self._heads.add(line.hash)
        if isinstance(line, _Agreed):
            self.agreed = line.attempt
        elif isinstance(line, _Lost):
            self.lost_attempts += line.attempts
            self._readmissions.add(line.nonce)
        elif isinstance(line, _Attempt):
            self.attempt, self.agreed = line.attempt, max(line.attempt, self.agreed)
        elif isinstance(line, _Reserve):
            self._epoch_of(line).counts[line.release] = np.broadcast_to(np.int64(line.most), _check_rows(line.rows))
        elif isinstance(line, _Close):
            if line.counts:
                raw = _unpack_counts(line)
                self._known[line.digest] = np.frombuffer(raw, dtype="<u4").astype(np.int64)
            self._epoch_of(line).counts[line.release] = self._known[line.digest]

    def _epoch_of(self, line: _Reserve | _Close) -> _Epoch:
        for one in reversed(self._epochs):
            if (one.attempt, one.epoch) == (line.attempt, line.epoch):
                return one
        self._epochs.append(_Epoch(line.attempt, line.epoch))
        return self._epochs[-1]

    def _read_file(self, path: Path) -> None:
        data = path.read_bytes()
        whole = data[: data.rfind(b"\n") + 1]
        for number, raw in enumerate(whole.splitlines(), 1):
            try:
                line = _decode(raw)
                right = line.prev == self._head and line.hash == _chain_line(line, self._head).hash
                if not right or isinstance(line, _Opening) != (number == 1):
                    raise ValueError("it was changed, or does not follow the line before it")
                if isinstance(line, _Opening):
                    self._check_opening(line, path)
                self._count_line(line)
            except (msgspec.DecodeError, ValueError, KeyError, zlib.error) as error:
                if isinstance(error, InputError):
                    raise
                raise InputError(
                    f"{path}, line {number}: {error}; without the releases it counts ε would be wrong: restore the file"
                ) from None
        if whole != data:  # cut off while being written: the release it announces did not happen
            with path.open("r+b") as file:
                file.truncate(len(whole))

    def _check_opening(self, line: _Opening, path: Path) -> None:
        if line.version != VERSION:
            raise InputError(f"{path} is a journal of version {line.version}; this version reads {VERSION}")
        if (line.party, line.job) != (self.party, self.job):
            raise InputError(
                f"{path} belongs to another job or party ({line.party!r}, job {line.job[:16]}…; this is "
                f"{self.party!r}, job {self.job[:16]}…): use another folder for checkpoints, or the same job "
                "file as before"
            )


def describe_lost_attempts(counts: Mapping[str, tuple[int, int]]) -> str:
    """Describe a journal that misses an attempt which another party began; empty if there is none.

    Args:
        counts: party → numbers of the last attempts that its journal agreed on and that it began.
    """
    if not counts:
        return ""
    ahead = max(sorted(counts), key=lambda name: counts[name][1])
    behind = min(sorted(counts), key=lambda name: counts[name][0])
    begun, agreed = counts[ahead][1], counts[behind][0]
    if agreed >= begun:
        return ""
    return (
        f"the journal of {behind!r} records {agreed} attempts at this run, that of {ahead!r} {begun}: the "
        "former is missing or outdated, and ε would leave out what its party released since; restore its "
        "files, or start from scratch in another folder at all parties and add what was released so far to ε "
        "yourself"
    )


def _chain_line(line: Line, head: str) -> Line:
    bare = msgspec.structs.replace(line, prev=head, hash="")
    return msgspec.structs.replace(bare, hash=hashlib.sha256(_encode(bare)).hexdigest())


def _check_rows(rows: int) -> int:
    """Return `rows` if it is a possible number of rows.

    Raises:
        ValueError: it is negative or above 2³¹.
    """
    if not 0 <= rows <= _MOST_ROWS:
        raise ValueError(f"it counts {rows} rows")
    return rows


def _unpack_counts(line: _Close) -> bytes:
    """The counts of a line.

    Raises:
        ValueError: the counts have another length or digest than recorded.
    """
    size = 4 * _check_rows(line.rows)
    inflate = zlib.decompressobj()
    # At most one byte more than expected is unpacked: a damaged or hostile line must not fill memory.
    raw = inflate.decompress(base64.b64decode(line.counts, validate=True), size + 1)
    if len(raw) != size or hashlib.sha256(raw).hexdigest() != line.digest:
        raise ValueError("its counts are damaged")
    return raw
