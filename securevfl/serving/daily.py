"""Count on disk how often each person was scored today, before anything about the row is sent.

A line is appended for each batch, and synced before anything about its rows leaves. A restart reads the day's lines
again, so it resets nothing. The file names nobody: people appear under a keyed digest whose key never leaves the
folder.
"""

from __future__ import annotations

import hmac
import json
import math
import os
from collections import Counter, deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from securevfl_net.durable import append_data, make_folder, sync_file, write_atomic

from securevfl.errors import InputError
from securevfl.serving.policy import Refusal, ServingPolicy

__all__ = ["DAY", "MINUTE", "DailyCounts"]

DAY = 86400.0
MINUTE = 60.0
_KEY_BYTES = 32
_DIGEST = 24
"""Hexadecimal digits of a person's digest: with 96 bits, no two of a billion people share one by chance."""


class DailyCounts:
    """Scores and releases of the day, of one party.

    Args:
        folder: a folder for these files only; created if missing.
        party: this party's name, which refusals quote.
        policy: what the party allows.
        now: seconds since 1970, UTC.

    Raises:
        InputError: a file is damaged, so its counts are lost.
    """

    def __init__(self, folder: Path, party: str, policy: ServingPolicy, *, now: Callable[[], float]) -> None:
        make_folder(folder, private=True)
        self.party = party
        self.policy = policy
        self._folder = folder
        self._clock = now
        self._key = self._read_key()
        self._scores: Counter[str] = Counter()
        self._releases: Counter[str] = Counter()
        self._rows = 0
        self._minute: deque[tuple[float, int]] = deque()
        self._latest = 0.0
        self._day = -1
        self._unsynced: Path | None = None
        files = sorted(folder.glob("counts-*.jsonl"))
        for file in files:
            self._load_counts(file)
        self._begin_day(self._read_clock())

    def find_refusal(
        self,
        names: Sequence[str],
        released: Sequence[bool],
        epsilon: Callable[[int], float],
    ) -> Refusal | None:
        """The first rule that scoring this batch would break; None if it may be scored. Counts nothing.

        Args:
            names: identifiers of the rows, without duplicates.
            released: for each row, whether scoring it sends content of the row that was not sent before.
            epsilon: number of releases of one row → their ε; infinite if content is sent without noise.
        """
        now, policy, count = self._read_clock(), self.policy, len(names)
        self._begin_day(now)
        if count < policy.min_batch:
            return self._make_refusal(
                "min_batch", f"it has {count} rows; a batch must have at least {policy.min_batch}"
            )
        if count > policy.max_batch:
            return self._make_refusal("max_batch", f"it has {count} rows; a batch may have at most {policy.max_batch}")
        if policy.rows_per_minute is not None:
            wait = self._seconds_until(now, count, policy.rows_per_minute)
            if wait:
                words = f"its {count} rows exceed what is left of the {policy.rows_per_minute} rows allowed in a minute"
                return self._make_refusal("rows_per_minute", words, wait)
        if policy.rows_per_day is not None and self._rows + count > policy.rows_per_day:
            words = f"{self._rows} rows were scored today; at most {policy.rows_per_day} are allowed"
            return self._make_refusal("rows_per_day", words, self._until_midnight(now))
        return self._refusal_by_person(names, released, epsilon, now)

    def _refusal_by_person(
        self, names: Sequence[str], released: Sequence[bool], epsilon: Callable[[int], float], now: float
    ) -> Refusal | None:
        policy, most = self.policy, self.policy.scores_per_record
        if most is None and policy.epsilon_per_record is None:
            return None
        people = [self._digest_person(name) for name in names]
        if most is not None:
            over = tuple(place for place, who in enumerate(people) if self._scores[who] + 1 > most)
            if over:
                words = f"{len(over)} of its rows were scored {most} times today, which is the limit"
                return self._make_refusal("scores_per_record", words, self._until_midnight(now), over)
        bound = policy.epsilon_per_record
        if bound is None:
            return None
        # Checked before any counts: no number of releases without noise fits a bound on ε.
        if math.isinf(epsilon(1)):
            words = f"content would be sent without noise, so ε has no bound; at most {bound:g} a day is allowed"
            return self._make_refusal("no_noise", words)
        known: dict[int, bool] = {}

        def too_much(times: int) -> bool:
            if times not in known:
                # The tolerance absorbs rounding where a bound is set to exactly the ε of some releases.
                known[times] = epsilon(times) > bound * (1 + 1e-9)
            return known[times]

        over = tuple(
            place
            for place, (who, new) in enumerate(zip(people, released, strict=True))
            if new and too_much(self._releases[who] + 1)
        )
        if not over:
            return None
        words = f"{len(over)} of its rows would exceed the ε of {bound:g} that a row may spend in a day"
        return self._make_refusal("epsilon_per_record", words, self._until_midnight(now), over)

    def count(self, names: Sequence[str], released: Sequence[bool]) -> None:
        """Count a batch; it is on the disk when this returns. Call it before anything of the rows leaves.

        Raises:
            OSError: it could not be written: nothing may leave.
        """
        self.write_batch(names, released)
        self.sync()

    def write_batch(self, names: Sequence[str], released: Sequence[bool]) -> None:
        """Count a batch, which is on the disk once `sync` returns: nothing of its rows may leave before.

        Raises:
            OSError: it could not be written: nothing may leave.
        """
        now = self._read_clock()
        self._begin_day(now)
        people = [self._digest_person(name) for name in names]
        new = [who for who, is_new in zip(people, released, strict=True) if is_new]
        line = {"time": round(now, 3), "scored": people, "released": new}
        # In the file before in memory: if the write fails, the error ends the batch and nothing leaves.
        self._unsynced = self._counts_file
        append_data(self._unsynced, json.dumps(line, separators=(",", ":")).encode() + b"\n")
        self._add_rows(now, people, new)

    def sync(self) -> None:
        """Return once all batches that were counted are on the disk; another thread may call it.

        Raises:
            OSError: the disk failed: nothing may leave.
        """
        if self._unsynced is not None:
            with suppress(FileNotFoundError):  # a day that has ended since: what it bounded is over
                sync_file(self._unsynced)

    @property
    def rows(self) -> int:
        """Rows that were scored today."""
        self._begin_day(self._read_clock())
        return self._rows

    def most_released(self) -> int:
        """Releases of today of the person who was released most often."""
        self._begin_day(self._read_clock())
        return max(self._releases.values(), default=0)

    def _add_rows(self, now: float, people: Sequence[str], new: Sequence[str]) -> None:
        self._scores.update(people)
        self._releases.update(new)
        self._rows += len(people)
        self._minute.append((now, len(people)))

    def _make_refusal(self, rule: str, words: str, wait: float = 0.0, rows: tuple[int, ...] = ()) -> Refusal:
        return Refusal(party=self.party, rule=rule, words=words, wait=wait, rows=rows)

    def _read_clock(self) -> float:
        """Return the time, never earlier than before: setting the clock back must not start a day's counts again."""
        self._latest = max(self._latest, self._clock())
        return self._latest

    def _seconds_until(self, now: float, count: int, most: int) -> float:
        """Seconds until `count` more rows fit the limit of `most` in 60 s: 0 if they fit now, 60 if they never do."""
        while self._minute and self._minute[0][0] <= now - MINUTE:
            self._minute.popleft()
        used = sum(rows for _, rows in self._minute)
        if used + count <= most:
            return 0.0
        for time, rows in self._minute:
            used -= rows
            if used + count <= most:
                return max(time + MINUTE - now, 0.001)
        return MINUTE

    def _until_midnight(self, now: float) -> float:
        return (math.floor(now / DAY) + 1) * DAY - now

    @property
    def _counts_file(self) -> Path:
        return self._folder / f"counts-{datetime.fromtimestamp(self._day * DAY, UTC):%Y-%m-%d}.jsonl"

    def _begin_day(self, now: float) -> None:
        """If the day has changed, start its counts at zero, or at those in its file, and delete earlier days' files."""
        day = math.floor(now / DAY)
        if day == self._day:
            return
        self._day = day
        old = [file for file in self._folder.glob("counts-*.jsonl") if file != self._counts_file]
        self._scores, self._releases, self._rows = Counter(), Counter(), 0
        minute, self._minute = self._minute, deque()  # kept below, so that midnight does not reset the minute's limit
        if self._counts_file.exists():
            self._load_counts(self._counts_file)
        else:
            self._minute = minute
        for file in old:
            file.unlink(missing_ok=True)

    def _load_counts(self, file: Path) -> None:
        """Read a day's lines. A crash may leave half a last line: nothing of its rows was sent, so it is removed."""
        data = file.read_bytes()
        whole = data[: data.rfind(b"\n") + 1]
        self._scores, self._releases, self._rows = Counter(), Counter(), 0
        self._minute.clear()
        for number, raw in enumerate(whole.splitlines(), 1):
            try:
                line = json.loads(raw)
                time, people, new = (
                    float(line["time"]),
                    _check_digests(line["scored"]),
                    _check_digests(line["released"]),
                )
                if not math.isfinite(time):
                    raise ValueError("an invalid time")
            except (ValueError, KeyError, TypeError) as error:
                raise InputError(
                    f"line {number} of {file} is damaged ({error}), so that day's scores cannot be counted: "
                    "restore the file from a backup, or delete it to start the day's count at zero"
                ) from None
            self._latest = max(self._latest, time)
            self._add_rows(time, people, new)
        if whole != data:
            write_atomic(file, whole, private=True)

    def _read_key(self) -> bytes:
        path = self._folder / "people.key"
        if not path.exists():
            write_atomic(path, os.urandom(_KEY_BYTES), private=True)
        key = path.read_bytes()
        if len(key) != _KEY_BYTES:
            raise InputError(f"{path} contains {len(key)} bytes instead of {_KEY_BYTES}: restore it from a backup")
        return key

    def _digest_person(self, name: str) -> str:
        return hmac.digest(self._key, name.encode(), "sha256").hex()[:_DIGEST]


def _check_digests(value: object) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(one, str) and len(one) == _DIGEST for one in value):
        raise ValueError(f"expected a list of digests of {_DIGEST} characters")
    return value
