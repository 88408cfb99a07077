"""Limits of the day: whether a party's serving policy lets a batch be scored, and its count, before anything leaves.

Checking and counting are one step under the lock of the day book, so processes of a party that share a folder share
each limit. A batch that was counted and of which nothing left is taken back.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from securevfl.serving.day_book import DAY, MINUTE, CountedBatch, DayBook
from securevfl.serving.policy import Refusal, ServingPolicy

__all__ = ["DAY", "MINUTE", "DailyCounts"]


def _spend_nothing(times: int) -> float:
    return 0.0


class DailyCounts:
    """Scores and releases of the day, of one party for one asker.

    Args:
        folder: a folder for these files only; created if missing. Other processes of the party may count there, too.
        party: this party's name, which refusals quote.
        policy: what the party allows.
        now: seconds since 1970, UTC.
        asker: the organisation that is answered.
        older: folder in which an earlier version kept the counts, which are taken over; None for none.
        organisations: see `DayBook`.

    Raises:
        InputError: a file is damaged, so its counts are lost.
    """

    def __init__(
        self,
        folder: Path,
        party: str,
        policy: ServingPolicy,
        *,
        now: Callable[[], float],
        asker: str = "",
        older: Path | None = None,
        organisations: Mapping[str, str] | None = None,
    ) -> None:
        self.party = party
        self.policy = policy
        each, minute = policy.scores_per_record is not None, policy.rows_per_minute is not None
        self._book = DayBook(folder, asker, now=now, each=each, minute=minute, organisations=organisations)
        if older is not None:
            self._book.take_over(older)

    def find_refusal(
        self,
        names: Sequence[str],
        released: Sequence[bool],
        epsilon: Callable[[int], float] = _spend_nothing,
    ) -> Refusal | None:
        """The first rule that scoring this batch would break; None if it may be scored now. Counts nothing.

        Args:
            names: identifiers of the rows, without duplicates.
            released: for each row, whether scoring it sends content of the row that was not sent before.
            epsilon: number of releases of one row → their ε; infinite if content is sent without noise.
        """
        with self._book.locked() as now:
            return self._find_rule(now, names, released, epsilon)

    def take(
        self,
        names: Sequence[str],
        released: Sequence[bool],
        epsilon: Callable[[int], float] = _spend_nothing,
    ) -> CountedBatch | Refusal:
        """Count a batch, or return the first rule that it would break. No other process counts in between.

        The count is on the disk once `sync` returns: nothing of the rows may leave before. See `find_refusal` for the
        arguments.

        Raises:
            OSError: it could not be written: nothing may leave.
        """
        with self._book.locked() as now:
            refusal = self._find_rule(now, names, released, epsilon)
            return refusal or self._book.add(now, names, released)

    def take_back(self, counted: CountedBatch) -> None:
        """Take a batch back that was counted and of which nothing left.

        Raises:
            OSError: it could not be written; the batch stays counted.
        """
        with self._book.locked():
            self._book.take_back(counted)

    def sync(self) -> None:
        """Return once all batches that were counted are on the disk; another thread may call it.

        Raises:
            OSError: the disk failed: nothing may leave.
        """
        self._book.sync()

    @property
    def rows(self) -> int:
        """Rows that were scored today."""
        with self._book.locked():
            return self._book.rows

    def most_released(self) -> int:
        """Releases of today of the person who was released most often."""
        with self._book.locked():
            return self._book.most_released

    def _find_rule(
        self, now: float, names: Sequence[str], released: Sequence[bool], epsilon: Callable[[int], float]
    ) -> Refusal | None:
        policy, count, rows = self.policy, len(names), self._book.rows
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
        if policy.rows_per_day is not None and rows + count > policy.rows_per_day:
            words = f"{rows} rows were scored today; at most {policy.rows_per_day} are allowed"
            return self._make_refusal("rows_per_day", words, _until_midnight(now))
        return self._refusal_by_person(now, names, released, epsilon)

    def _refusal_by_person(
        self, now: float, names: Sequence[str], released: Sequence[bool], epsilon: Callable[[int], float]
    ) -> Refusal | None:
        most, bound = self.policy.scores_per_record, self.policy.epsilon_per_record
        if most is not None:
            over = tuple(place for place, had in enumerate(self._book.times_scored(names)) if had + 1 > most)
            if over:
                words = f"{len(over)} of its rows were scored {most} times today, which is the limit"
                return self._make_refusal("scores_per_record", words, _until_midnight(now), over)
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
            for place, (had, new) in enumerate(zip(self._book.times_released(names), released, strict=True))
            if new and too_much(had + 1)
        )
        if not over:
            return None
        words = f"{len(over)} of its rows would exceed the ε of {bound:g} that a row may spend in a day"
        return self._make_refusal("epsilon_per_record", words, _until_midnight(now), over)

    def _make_refusal(self, rule: str, words: str, wait: float = 0.0, rows: tuple[int, ...] = ()) -> Refusal:
        return Refusal(party=self.party, rule=rule, words=words, wait=wait, rows=rows)

    def _seconds_until(self, now: float, count: int, most: int) -> float:
        """Seconds until `count` more rows fit the limit of `most` in 60 s: 0 if they fit now, 60 if they never do."""
        recent = [(time, rows) for time, rows in self._book.minutes if time > now - MINUTE]
        used = sum(rows for _, rows in recent)
        if used + count <= most:
            return 0.0
        for time, rows in recent:
            used -= rows
            if used + count <= most:
                return max(time + MINUTE - now, 0.001)
        return MINUTE


def _until_midnight(now: float) -> float:
    return (math.floor(now / DAY) + 1) * DAY - now
