"""The day book: who was scored today for whom, in a folder that all serving processes of a party share.

One file a day, one line a batch. Whoever counts holds a file lock from reading to writing, so two processes cannot both
pass a limit. A line is in the file before anything of its rows leaves, and what a killed process wrote of a line is cut
off: its rows were not sent. Days are those of UTC. The file names nobody: people appear under a keyed digest whose key
never leaves the folder.

The folder is beside the result book, not in the state folder: a state folder that is restored from a back-up does not
lower the counts of the day.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import math
import os
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from pathlib import Path

from securevfl_net.durable import append_data, append_synced, lock_file, make_folder, sync_file, write_atomic

from securevfl.errors import InputError

__all__ = ["DAY", "MINUTE", "CountedBatch", "DayBook"]

DAY = 86400.0
MINUTE = 60.0
_KEY_BYTES = 32
_DIGEST = 12
"""Bytes of a person's digest: with 96 bits, no two of a billion people share one by chance."""
_EPOCH = date(1970, 1, 1).toordinal()


@dataclass(frozen=True, kw_only=True)
class CountedBatch:
    """A batch that was counted, so that it can be taken back if nothing of it left.

    Attributes:
        day: since 1970.
        time: seconds since 1970, UTC.
        people: digests of its people.
        released: of those whose content is released.
    """

    day: int
    time: float
    people: tuple[bytes, ...] = field(repr=False)
    released: tuple[bytes, ...] = field(repr=False)


class DayBook:
    """Counts of the day for one asker. Call what reads them inside `locked`.

    Args:
        folder: for these files only; created if missing.
        asker: the organisation whose batches are counted; lines of other askers are passed over.
        now: seconds since 1970, UTC.
        each: whether to remember how often each person was scored.
        minute: whether to remember the batches of the last minute.
        organisations: party → its organisation: what was counted today for the party's name, before its organisation
            was entered, belongs to the organisation.

    Attributes:
        rows: that were scored today.
        minutes: time and rows of each batch of the last minute, where they are remembered.

    Raises:
        InputError: a file is damaged, so its counts are lost.
    """

    def __init__(
        self,
        folder: Path,
        asker: str,
        *,
        now: Callable[[], float],
        each: bool = True,
        minute: bool = True,
        organisations: Mapping[str, str] | None = None,
    ) -> None:
        make_folder(folder, private=True)
        self.rows = 0
        self.minutes: deque[tuple[float, int]] = deque()
        self._folder, self._asker, self._clock = folder, asker, now
        self._each, self._minute = each, minute
        self._organisations = dict(organisations or {})
        self._scores: dict[bytes, int] = {}
        self._releases: dict[bytes, int] = {}
        self._latest = 0.0
        self._day, self._end, self._number = -1, 0, 0
        self._unsynced: Path | None = None
        self._older: dict[str, bytes] = {}
        with lock_file(self._lock):
            self._key = self._read_key()
            # Yesterday's for the last minute, and a day ahead of the clock's, if the clock was put back.
            for day in sorted(self._find_days())[-2:]:
                self._open_day(day)
                self._read_new()
            self._begin_day()

    @contextmanager
    def locked(self) -> Iterator[float]:
        """Hold the book: no other process counts, what others counted has been read. Yields the time.

        Raises:
            InputError: the file is damaged or gone, or cannot be locked.
        """
        with lock_file(self._lock):
            self._read_new()
            yield self._begin_day()

    def digest_people(self, names: Sequence[str]) -> list[bytes]:
        """The digests under which people are counted."""
        return [_digest(self._key, name) for name in names]

    def times_scored(self, names: Sequence[str]) -> list[int]:
        """How often each person was scored today, where that is remembered."""
        return self._look_up(self._scores, names)

    def times_released(self, names: Sequence[str]) -> list[int]:
        """How often content of each person was released today."""
        return self._look_up(self._releases, names)

    @property
    def most_released(self) -> int:
        """Releases of the person who was released most often today."""
        return max(self._releases.values(), default=0)

    def add(self, now: float, names: Sequence[str], released: Sequence[bool]) -> CountedBatch:
        """Count a batch; it is on the disk once `sync` returns. Call it inside `locked`.

        Raises:
            OSError: it could not be written: nothing may leave.
        """
        people = self.digest_people(names)
        new = [who for who, is_new in zip(people, released, strict=True) if is_new]
        found = CountedBatch(day=self._day, time=round(now, 3), people=tuple(people), released=tuple(new))
        self._append(_encode(found.time, self._asker, found.people, found.released))
        return found

    def take_back(self, counted: CountedBatch) -> None:
        """Take a batch back of which nothing left; does nothing after its day. Call it inside `locked`."""
        if counted.day == self._day:
            line = _encode(self._latest, self._asker, counted.people, counted.released, back=counted.time)
            self._append(line)

    def sync(self) -> None:
        """Return once all that was counted is on the disk; another thread may call it.

        Raises:
            OSError: the disk failed: nothing may leave.
        """
        if self._unsynced is not None:
            with suppress(FileNotFoundError):  # a day that has ended since: what it bounded is over
                sync_file(self._unsynced)

    def take_over(self, older: Path) -> None:
        """Take over the counts that an earlier version kept in another folder; each line counts once.

        Args:
            older: the folder; nothing happens where it has no counts.

        Raises:
            InputError: its files are damaged.
        """
        files = sorted(older.glob("counts-*.jsonl"))
        if not files:
            return
        secret = _read_secret(older / "people.key")
        with lock_file(self._lock):
            self._read_new()
            # A day ahead of the clock's was counted before the clock was put back.
            self._latest = max(self._latest, DAY * max(map(_day_of, files)))
            self._begin_day()
            name = hashlib.sha256(secret).hexdigest()[:16]
            for file in files:
                if _day_of(file) == self._day:
                    write_atomic(self._older_key(name), secret, private=True)
                    self._take_lines(file, name)
                file.unlink()
            self._read_new()

    def _take_lines(self, file: Path, name: str) -> None:
        """Add the lines of an earlier version's file that are not in this one yet."""
        path, more = self._file, []
        known = set(path.read_bytes().splitlines()) if path.exists() else set()
        for number, raw in enumerate(_whole_lines(file.read_bytes()).splitlines(), 1):
            time, line = _decode(raw, number, file)
            people, new = _read_digests(line, number, file)
            said = _encode(time, self._asker, people, new, key=name)
            if said.rstrip(b"\n") not in known:
                more.append(said)
        if more:
            append_synced(path, b"".join(more))

    def _look_up(self, counts: Mapping[bytes, int], names: Sequence[str]) -> list[int]:
        keys = [self._key, *self._older.values()]
        return [sum(counts.get(_digest(key, name), 0) for key in keys) for name in names]

    def _append(self, data: bytes) -> None:
        # In the file before in memory: if the write fails, the error ends the batch and nothing leaves.
        self._unsynced = self._file
        append_data(self._file, data)
        self._read_new()

    @property
    def _lock(self) -> Path:
        return self._folder / "counts.lock"

    @property
    def _file(self) -> Path:
        return self._folder / f"counts-{_show_day(self._day)}.jsonl"

    def _older_key(self, name: str) -> Path:
        return self._folder / f"older-{_show_day(self._day)}-{name}.key"

    def _find_days(self) -> list[int]:
        return [_day_of(file) for file in self._folder.glob("counts-*.jsonl")]

    def _begin_day(self) -> float:
        """Return the time, never earlier than before: setting the clock back must not start a day's counts again. If
        the day has changed, start its counts with those in its file, and delete the files of days before the last.
        """
        self._latest = max(self._latest, self._clock())
        day = math.floor(self._latest / DAY)
        if day != self._day:
            self._open_day(day)
            self._read_new()
            for file in self._folder.glob("counts-*.jsonl"):
                if _day_of(file) < day - 1:  # a process whose clock is behind may still count in the last one
                    file.unlink(missing_ok=True)
            for file in self._folder.glob("older-*.key"):
                if file.name < f"older-{_show_day(day - 1)}":
                    file.unlink(missing_ok=True)
        return self._latest

    def _open_day(self, day: int) -> None:
        """Read another day's file from its beginning; the last minute is kept over midnight."""
        self._day, self._end, self._number, self.rows = day, 0, 0, 0
        self._scores, self._releases, self._older = {}, {}, {}

    def _read_new(self) -> None:
        """Read what was written since. The folder is locked, so half a last line is a killed process's: nothing of its
        rows was sent, and it is cut off.
        """
        file = self._file
        try:
            size = file.stat().st_size
        except FileNotFoundError:
            size = 0
        if size == self._end:
            return
        if size < self._end:
            raise InputError(
                f"{file} is gone, or older than it was: what was scored today is unknown; restore the file"
            )
        with file.open("rb") as content:
            content.seek(self._end)
            data = content.read()
        whole = _whole_lines(data)
        for raw in whole.splitlines():
            self._number += 1
            self._take(raw, file)
        self._end += len(whole)
        if whole != data:
            with file.open("r+b") as content:
                content.truncate(self._end)
                os.fsync(content.fileno())

    def _take(self, raw: bytes, file: Path) -> None:
        time, line = _decode(raw, self._number, file)
        self._latest = max(self._latest, time)
        asker = str(line.get("asker", self._asker))
        if self._organisations.get(asker, asker) != self._asker:
            return
        people, new = _read_digests(line, self._number, file)
        key, back = str(line.get("key", "")), line.get("back")
        if key and key not in self._older:
            self._older[key] = _read_secret(self._older_key(key))
        sign = 1 if back is None else -1
        if self._each:
            _count(self._scores, people, sign)
        _count(self._releases, new, sign)
        self.rows += sign * len(people)
        if not self._minute:
            return
        if isinstance(back, float | int):
            with suppress(ValueError):
                self.minutes.remove((back, len(people)))
        else:
            self.minutes.append((time, len(people)))
        while self.minutes and self.minutes[0][0] <= self._latest - MINUTE:
            self.minutes.popleft()

    def _read_key(self) -> bytes:
        path = self._folder / "people.key"
        if not path.exists():
            if self._find_days():
                raise InputError(
                    f"{path} is missing, so the counts beside it are of nobody known: restore it from a backup, or "
                    "delete the folder to start the day's count at zero"
                )
            write_atomic(path, os.urandom(_KEY_BYTES), private=True)
        return _read_secret(path)


def _digest(key: bytes, name: str) -> bytes:
    return hmac.digest(key, name.encode(), "sha256")[:_DIGEST]


def _count(counts: dict[bytes, int], people: Sequence[bytes], sign: int) -> None:
    for who in people:
        counts[who] = counts.get(who, 0) + sign


def _read_secret(path: Path) -> bytes:
    try:
        key = path.read_bytes()
    except FileNotFoundError:
        raise InputError(f"{path} is missing: restore it from a backup") from None
    if len(key) != _KEY_BYTES:
        raise InputError(f"{path} contains {len(key)} bytes instead of {_KEY_BYTES}: restore it from a backup")
    return key


def _whole_lines(data: bytes) -> bytes:
    return data[: data.rfind(b"\n") + 1]


def _show_day(day: int) -> str:
    return f"{datetime.fromtimestamp(day * DAY, UTC):%Y-%m-%d}"


def _day_of(file: Path) -> int:
    """The day of a file, since 1970.

    Raises:
        InputError: its name is of no day.
    """
    try:
        return date.fromisoformat(file.stem.removeprefix("counts-")).toordinal() - _EPOCH
    except ValueError:
        raise InputError(f"{file} is no file of counts: move it elsewhere, this folder is for them alone") from None


def _encode(
    time: float, asker: str, people: Sequence[bytes], released: Sequence[bytes], *, key: str = "", back: float = -1.0
) -> bytes:
    """A batch's line; `key` names the key of its digests, `back` is the time of the batch that it takes back."""
    line: dict[str, object] = {"time": round(time, 3), "asker": asker}
    line |= {"scored": [who.hex() for who in people], "released": [who.hex() for who in released]}
    if key:
        line["key"] = key
    if back >= 0:
        line["back"] = back
    return json.dumps(line, separators=(",", ":")).encode() + b"\n"


def _decode(raw: bytes, number: int, file: Path) -> tuple[float, dict[str, object]]:
    """A line's time and fields.

    Raises:
        InputError: it is damaged.
    """
    try:
        line = json.loads(raw)
        time = float(line["time"])
        if not isinstance(line, dict) or not math.isfinite(time):
            raise ValueError("an invalid time")
    except (ValueError, KeyError, TypeError) as error:
        raise _damage_error(number, file, error) from None
    return time, line


def _read_digests(line: Mapping[str, object], number: int, file: Path) -> tuple[list[bytes], list[bytes]]:
    """The people of a line, and those whose content was released."""
    found = []
    for name in ("scored", "released"):
        value = line.get(name)
        try:
            if not isinstance(value, list):
                raise ValueError(f"{name} is no list")
            people = [bytes.fromhex(one) for one in value]
            if any(len(one) != _DIGEST for one in people):
                raise ValueError(f"expected digests of {2 * _DIGEST} characters")
        except (ValueError, TypeError) as error:
            raise _damage_error(number, file, error) from None
        found.append(people)
    return found[0], found[1]


def _damage_error(number: int, file: Path, why: Exception) -> InputError:
    return InputError(
        f"line {number} of {file} is damaged ({why}), so that day's scores cannot be counted: "
        "restore the file from a backup, or delete it to start the day's count at zero"
    )
