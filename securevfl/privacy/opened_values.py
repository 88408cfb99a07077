"""Count how many numbers about each of its rows a party answers an asker, and enforce its bound.

A *number* is one real value that depends on a row, however it is rounded or noised: z of width h is h of them, logits
of K > 2 classes are K, the class alone or a number is 1. With fixed features (an identity or frozen bottom), every
opening of z gives h more equations about the same row, whatever the weights are. Columns correlate, so far fewer
equations than columns already reveal a lot: on the credit table, with 100 known records, 0.1 numbers a column gave R²
0.1 to 0.3, and 0.4 numbers 0.2 to 0.7 (``benchmarks/results/frozen_bottoms.json``). So a party counts numbers for each
row and asker over training, validation, test, predictions and serving, for ever. `Policy.max_results` bounds them.

Each passive party sets its own bound. It counts before it answers, and refuses a batch that would exceed the bound. A
noisy number counts like an exact one, because noise averages out over answers: to rely on ε, set `max_epsilon` as well.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from securevfl.errors import PolicyError
from securevfl.privacy.people_digests import all_differ, first_words
from securevfl.privacy.result_book import ResultBook

__all__ = ["OpenedValues", "describe_excess"]

_AT_ONCE = 1 << 15
"""How many row positions may wait before they are added up."""


def describe_excess(party: str, asker: str, *, numbers: int, had: int, allowed: int, written: bool, who: str) -> str:
    """A refusal, with the value, the bound and the cure.

    Args:
        party: whose rows.
        asker: the organisation that would be answered.
        numbers: how many numbers of one row it would get.
        had: how many it has.
        allowed: the bound.
        written: whether the party's policy writes the bound.
        who: what would answer: ``"the job plans"``.
    """
    earlier = f" beside the {had} already answered" if had else ""
    bound = f"max_results = {allowed}" if written else f"the default, max_results = {allowed},"
    least = numbers + had
    asked = f"{who} {numbers} numbers of one row of {party!r}{earlier} for {asker!r}; {bound} allows {allowed}, ever: "
    if had:
        return (
            f"{asked}leave the spent rows out, use the answers that {asker!r} holds, or ask {party!r} for a grant or "
            f"for this line in its policy: max_results = {least}"
        )
    return (
        f"{asked}protection 'shares' opens final answers alone, unless its metrics are 'rounded'; otherwise fewer "
        "epochs, a narrower cut (hidden), or "
        f"this line in the policy of {party!r}, whose features so many numbers can reveal: max_results = {least}, or "
        '"unlimited"'
    )


class OpenedValues:
    """Counts the numbers that one party answered about each of its rows.

    Args:
        party: whose rows.
        columns: how many columns its table has.
        names: the person of each of its rows, by position. Rows of one person count together.
        asker: the organisation that is answered.
        allowed: numbers of one row that the asker may have, ever; None for any number.
        written: whether the party's policy writes that bound.
        refuses: whether more are refused. Otherwise they are only counted: in simulations under the default bound.
        book: what earlier jobs and predictions answered.
        now: seconds since 1970, UTC; grants end by it.
    """

    def __init__(
        self,
        party: str,
        columns: int,
        names: Sequence[str],
        *,
        asker: str = "",
        allowed: int | None = None,
        written: bool = True,
        refuses: bool = True,
        book: ResultBook | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        self.party = party
        self.columns = columns
        self.asker = asker
        self.refuses = refuses
        self._written = written
        self._bound = allowed
        self._book = book or ResultBook()
        self._now = now
        self._run = ""
        self._waiting: list[np.ndarray] = []
        self._waits = 0
        self._width = 0
        self._seen: object = None
        self._granted = 0
        self._ahead: _CountedAhead | None = None
        with self._book.locked():
            self._people, self._person = _number_people(names, self._book)
            self._given, self._openings = np.zeros((2, len(self._people)), np.int64)
            self._before = self._given
            self._read_book()

    def _read_book(self) -> None:
        """Take in what others counted, and grants. Call it while the book is locked."""
        if self._seen is None or self._book.version != self._seen:
            before = self._book.count_opened(self._people, self.asker)
            self._before = before if self._seen is None else before - self._numbers_of_people()
            self._seen = self._book.version
        self._granted = self._book.granted(self.asker, self._now())

    @property
    def allowed(self) -> int | None:
        """Numbers of one row that the asker may have, ever, grants among them; None for any number."""
        return None if self._bound is None else self._bound + self._granted

    def check_plan(self, numbers: int, places: np.ndarray | None = None) -> None:
        """Check a plan against the bound before anything leaves.

        Args:
            numbers: most numbers that the plan opens of one row.
            places: positions of the rows that it opens numbers of, (n,); all rows unless given.

        Raises:
            PolicyError: they exceed what the bound leaves for a row of which most was opened.
        """
        had = self._before if places is None else self.before[places]
        before = int(had.max(initial=0))
        allowed = self.allowed
        if self.refuses and allowed is not None and numbers and before + numbers > allowed:
            raise PolicyError(self._describe_refusal("max_results: the job plans", numbers, before, allowed))

    def count_opening(self, places: np.ndarray, width: int) -> None:
        """Count one opening of `width` numbers for each of these rows. Call it before the numbers leave.

        Args:
            places: positions of the rows, (n,); one that appears twice counts twice.
            width: how many numbers of each row are opened.

        Raises:
            PolicyError: a row would exceed the bound; nothing was counted.
            OSError: the count could not be written; nothing may leave.
        """
        people = places if self._person is None else self._person[places]
        if self._ahead is not None and self._ahead.covers(people, width):
            return
        self._count_people(people, width, synced=True)

    @contextmanager
    def count_ahead(self, places: np.ndarray, width: int, *, synced: bool = True) -> Iterator[None]:
        """Count one opening of `width` numbers for each of these rows at once; during the block each of them may then
        be opened once, in any batches, without being counted again. Rows that the block does not open stay counted.

        Args:
            places: positions of the rows, (n,), each once.
            width: how many numbers of each row are opened.
            synced: False leaves the line to a later `sync`, before which nothing of these rows may leave.

        Raises:
            PolicyError: a row would exceed the bound; nothing was counted.
            OSError: the count could not be written; nothing may leave.
        """
        if self._ahead is not None:  # by whom the block around this one was counted
            yield
            return
        people = places if self._person is None else self._person[places]
        self._count_people(people, width, synced=synced)
        self._ahead = _CountedAhead(people, width, len(self._people))
        try:
            yield
        finally:
            self._ahead = None

    def sync(self) -> None:
        """Return once all that was counted is on the disk; another thread may call it.

        Raises:
            OSError: the disk failed: nothing may leave.
        """
        self._book.sync()

    def _count_people(self, people: np.ndarray, width: int, *, synced: bool) -> None:
        with self._book.locked():
            self._read_book()
            allowed = self.allowed
            if self.refuses and allowed is not None:
                self._check_bound(people, width, allowed)
            if self._book.path is not None:
                # In the file first: what is counted in memory alone would be lost in a crash.
                self._run = self._run or self._book.begin_run(self._people, self.asker)
                self._book.add(self._run, people, width, synced=synced)
                self._seen = self._book.version
        if width != self._width or self._waits >= _AT_ONCE:
            self._count_waiting()
            self._width = width
        self._waiting.append(people.copy())
        self._waits += len(people)

    def _count_waiting(self) -> None:
        """Add up the waiting counts. A batch's rows are scattered in memory, so many batches together take little
        longer than one.
        """
        if self._waiting:
            people = np.concatenate(self._waiting)
            np.add.at(self._given, people, self._width)
            np.add.at(self._openings, people, 1)
            self._waiting.clear()
            self._waits = 0

    def _numbers_of_people(self) -> np.ndarray:
        self._count_waiting()
        return self._given

    @property
    def before(self) -> np.ndarray:
        """Numbers that the asker had of each row before this run, (n,) int64."""
        return self._by_row(self._before)

    @property
    def numbers_per_row(self) -> np.ndarray:
        """Numbers of each row that were opened in this run, (n,) int64."""
        return self._by_row(self._numbers_of_people())

    @property
    def openings_per_row(self) -> np.ndarray:
        """How often each row was opened in this run, (n,) int64."""
        self._count_waiting()
        return self._by_row(self._openings)

    def _by_row(self, found: np.ndarray) -> np.ndarray:
        return found if self._person is None else found[self._person]

    def _check_bound(self, people: np.ndarray, width: int, allowed: int) -> None:
        """Refuse an opening of these people's rows that would exceed the bound."""
        rows, often = _count_each(people)
        after = self._before[rows] + self._numbers_of_people()[rows] + often * width
        if after.max(initial=0) > allowed:
            worst = int(after.argmax())
            had = int(after[worst]) - int(often[worst]) * width
            raise PolicyError(
                self._describe_refusal("max_results: this batch would open", int(often[worst]) * width, had, allowed)
            )

    def fits_budget(self, places: np.ndarray, width: int) -> np.ndarray:
        """Where one more opening of these rows (n,) would stay within the bound, (n,) bool. Of a person with several
        rows among them, the first ones fit.
        """
        with self._book.locked():
            self._read_book()
        if self.allowed is None or not self.refuses:
            return np.ones(len(places), bool)
        people = places if self._person is None else self._person[places]
        often = _count_earlier(people) + 1
        found: np.ndarray = self._before[people] + self._numbers_of_people()[people] + often * width <= self.allowed
        return found

    @property
    def max_numbers(self) -> int:
        """Numbers of the row of which most were opened in this run."""
        return int(self._numbers_of_people().max(initial=0))

    @property
    def max_total_numbers(self) -> int:
        """Numbers of the row of which most were opened, including earlier jobs and predictions."""
        return int((self._before + self._numbers_of_people()).max(initial=0))

    def ledger_facts(self) -> dict[str, int | float | str]:
        """Ledger entry: the most numbers opened of one row, for whom, and the number of rows with opened numbers."""
        self._count_waiting()
        found: dict[str, int | float | str] = {
            "asker": self.asker,
            "openings": int(self._openings.max(initial=0)),
            "numbers": self.max_numbers,
            "numbers with earlier runs": self.max_total_numbers,
            "columns": self.columns,
            "rows": int((self.numbers_per_row > 0).sum()),
        }
        if self._book.path is not None:
            found["running"] = self._book.running(self.asker)
        if self.refuses and self.allowed is not None:
            found["allowed"] = self.allowed
            found["bound"] = "written" if self._written else "default"
        return found

    def summary_sentence(self) -> str:
        """One sentence for reports."""
        self._count_waiting()
        share = self.max_total_numbers / max(self.columns, 1)
        openings = self._openings.max(initial=0)
        sentence = (
            f"at most {self.max_numbers} numbers of one row of {self.party!r} were opened, in {openings} openings"
        )
        if self.max_total_numbers > self.max_numbers:
            sentence += f", {self.max_total_numbers} with earlier runs"
        sentence += f": {share:.2g} for each of its {self.columns} columns"
        if self.refuses and self.allowed is not None:
            return f"{sentence} (its policy allows {self.allowed} for {self.asker!r}, ever)"
        return f"{sentence}; 0.1 reveals part of the features to somebody who knows some records, and 1 most of them"

    def excess_note(self) -> str:
        """What between organisations would have been refused, for reports of simulations; empty if nothing."""
        if self.refuses or self.allowed is None:
            return ""
        over = int((self.before + self.numbers_per_row > self.allowed).sum())
        if not over:
            return ""
        return (
            f"{over:,} rows of {self.party!r} were answered with more than {self.allowed} numbers each, up to "
            f"{self.max_total_numbers}: between organisations its policy has to allow that, with max_results = "
            f'{self.max_total_numbers} or "unlimited"'
        )

    def _describe_refusal(self, who: str, numbers: int, had: int, allowed: int) -> str:
        return describe_excess(
            self.party, self.asker, numbers=numbers, had=had, allowed=allowed, written=self._written, who=who
        )


class _CountedAhead:
    """Openings that were counted before they are made.

    Args:
        people: of the rows, (n,); one that appears twice may be opened twice.
        width: numbers of each opening.
        size: how many people there are.
    """

    def __init__(self, people: np.ndarray, width: int, size: int) -> None:
        self._width = width
        self._left = np.bincount(people, minlength=size)

    def covers(self, people: np.ndarray, width: int) -> bool:
        """Whether one more opening of each of these people was counted ahead; if so, it is used up."""
        if width != self._width or not len(people):
            return False
        rows, often = _count_each(people)
        left = self._left[rows] - often
        if left.min() < 0:
            return False
        self._left[rows] = left
        return True


def _number_people(names: Sequence[str], book: ResultBook) -> tuple[Sequence[str], np.ndarray | None]:
    """The people of these rows, each once, and the position of each row's person among them; None where no person has
    two rows.
    """
    # Digests are faster to compare than texts, and the book needs them.
    if all_differ(first_words(book.digest_names(names))):
        return names, None
    places = {name: place for place, name in enumerate(dict.fromkeys(names))}
    return tuple(places), np.fromiter((places[name] for name in names), np.int64, len(names))


def _count_each(people: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Each of these people once, and how often it stands among them. Sorted rows, the usual case, are not sorted."""
    if (people[1:] > people[:-1]).all():
        return people, np.ones(len(people), np.int64)
    rows, often = np.unique(people, return_counts=True)
    return rows, often


def _count_earlier(people: np.ndarray) -> np.ndarray:
    """For each position, how often its value stands at earlier positions."""
    order = np.argsort(people, kind="stable")
    ranked = people[order]
    first = np.flatnonzero(np.r_[True, ranked[1:] != ranked[:-1]]) if len(ranked) else order
    found = np.empty(len(people), np.int64)
    found[order] = np.arange(len(people)) - np.repeat(first, np.diff(np.r_[first, len(people)]))
    return found
