"""Split a column's name into words, and recognise names of identifiers: `customerID`, `Customer Id` and `customer_id`
are one name to those who guess.
"""

from __future__ import annotations

import re

__all__ = ["has_id_name", "has_part_name", "names_other_things", "split_words"]

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[^\W\d_A-Z]+|[A-Z]|\d+")
"""Capitals in a row (``ID``), a word with or without a capital, a number."""
_IDS = re.compile(
    r"ids?|key|ref|reference|uuid|guid|nr|no|num|number|client|customer|patient|user|account|iban|e?mail|phone|mobile|"
    r"telephone|tel|msisdn|imsi|ssn|nino|tin|vat|passport|mrn|nhs|isin|lei|kundennummer|kundennr|pid|uid"
)
_JOINED = re.compile(
    r"(customer|client|user|patient|account|member|person|passenger|employee|subscriber|household|cust|acct|loan|"
    r"policy|order|record|student|case)(id|no|nr|num|number|key|code|ref)"
)
"""Names of identifiers in one word: ``customerid``."""
_PARTS = re.compile(r"first|last|family|given|sur|name|surname|born|birth|dob|zip|postcode|street|year|month|day")
"""Words that names of columns begin with which make an identifier together."""
_PEOPLE = re.compile(
    r"client|customer|cust|patient|user|member|person|passenger|employee|subscriber|household|student|kunde"
)
_THINGS = re.compile(
    r"order|transaction|trans|tx|invoice|product|item|ticket|branch|store|shop|visit|call|session|loan|contract|policy|"
    r"claim|device|card|application"
)


def split_words(column: str) -> tuple[str, ...]:
    """The words of a column's name, in small letters: ``SalePrice`` → ``sale``, ``price``."""
    return tuple(word.casefold() for word in _WORD.findall(column))


def has_id_name(column: str) -> bool:
    """Whether a column is called as identifiers are."""
    return any(_IDS.fullmatch(word) or _JOINED.fullmatch(word) for word in split_words(column))


def has_part_name(column: str) -> bool:
    """Whether a column is called as parts of an identifier are: first name, day of birth, street."""
    return any(_PARTS.match(word) for word in split_words(column))


def names_other_things(one: str, other: str) -> bool:
    """Whether two names of identifiers speak of different things: an order's number and a customer's."""
    about, too = _subjects(one), _subjects(other)
    return about.isdisjoint(too) and any(subject != "person" for subject in about | too)


def _subjects(column: str) -> set[str]:
    """What a name speaks of: persons, orders, …"""
    words = set(split_words(column))
    words |= {found[1] for word in words if (found := _JOINED.fullmatch(word))}
    people = {"person" for word in words if _PEOPLE.fullmatch(word)}
    return people | {word for word in words if _THINGS.fullmatch(word)}
