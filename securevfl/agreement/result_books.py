"""A party's result book as its officer sees it: what each partner was answered about, and grants of more."""

from __future__ import annotations

import getpass
import time
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from datetime import time as day_time

from securevfl.agreement.party_file import PartyFile
from securevfl.errors import InputError, UnknownNameError
from securevfl.privacy import Grant, ResultBook

__all__ = ["AskerResults", "give_grant", "last_day", "open_book", "read_results"]


@dataclass(frozen=True, kw_only=True)
class AskerResults:
    """What one asker was answered.

    Attributes:
        asker: the organisation.
        people: how many people it was answered about.
        most: numbers about the person of whom it has most.
        running: numbers over all people, ever.
        allowed: numbers of each person that it may have now, grants among them; None for any number.
        spent: how many people it may be answered nothing more about.
        grants: all that were given to it, in their order.
        granted: numbers that the grants in force add.
    """

    asker: str
    people: int
    most: int
    running: int
    allowed: int | None
    spent: int
    grants: tuple[Grant, ...]
    granted: int


def open_book(own: PartyFile) -> ResultBook:
    """The book that a party file names.

    Raises:
        InputError: it is damaged, or the signing key cannot be read.
    """
    return ResultBook(own.results, party=own.party, key=own.signing_key(), organisations=own.organisations)


def read_results(own: PartyFile, partner: str = "", *, now: float | None = None) -> list[AskerResults]:
    """What the book says of one partner, or of all that it names.

    Args:
        own: the party's file.
        partner: a party's name, or its organisation's.
        now: seconds since 1970, UTC.

    Raises:
        UnknownNameError: nobody of that name.
        InputError: the book is damaged.
    """
    book = open_book(own)
    askers = [_organisation_of(own, book, partner)] if partner else book.askers
    return [_results_of(own, book, asker, time.time() if now is None else now) for asker in askers]


def _results_of(own: PartyFile, book: ResultBook, asker: str, now: float) -> AskerResults:
    counts = book.count_people(asker)
    bound, granted = own.policy.allowed_numbers(0), book.granted(asker, now)
    allowed = None if bound is None else bound + granted
    return AskerResults(
        asker=asker,
        people=int((counts > 0).sum()),
        most=int(counts.max(initial=0)),
        running=book.running(asker),
        allowed=allowed,
        spent=0 if allowed is None else int((counts >= allowed).sum()),
        grants=tuple(book.grants(asker)),
        granted=granted,
    )


def give_grant(
    own: PartyFile,
    partner: str,
    *,
    results: int,
    reason: str,
    until: date,
    by: str = "",
    now: float | None = None,
) -> Grant:
    """Allow a partner more numbers of each row, by a line in the book that the party's key signs.

    Args:
        own: the party's file.
        partner: a party's name, or its organisation's.
        results: how many more numbers of each row.
        reason: why, for the record.
        until: the last day on which it counts, UTC.
        by: who gives it; the user of this machine unless given.
        now: seconds since 1970, UTC.

    Raises:
        UnknownNameError: nobody of that name.
        InputError: a day that is over, no number or no reason, or a damaged book.
    """
    end = datetime.combine(until + timedelta(days=1), day_time(), UTC).timestamp()
    if end <= (time.time() if now is None else now):
        raise InputError(f"the grant would end on {until}, which is over: give a later day")
    book = open_book(own)
    asker = _organisation_of(own, book, partner)
    return book.add_grant(asker, results=results, reason=reason, until=int(end), by=by or getpass.getuser())


def last_day(grant: Grant) -> date:
    """The last day on which a grant counts, UTC."""
    return datetime.fromtimestamp(grant.until - 1, UTC).date()


def _organisation_of(own: PartyFile, book: ResultBook, partner: str) -> str:
    """The organisation of a party, or the one that is called so.

    Raises:
        UnknownNameError: nobody is.
    """
    known = {*own.peers, *own.organisations, *own.organisations.values(), *book.askers}
    if partner not in known:
        raise UnknownNameError("partner", partner, known)
    return own.organisations.get(partner, partner)
