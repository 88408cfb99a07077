"""Split a column's name into words, and tell names of identifiers, so that `customerID`, `Customer Id` and `customer_id`
are one name to those who guess.
"""

from __future__ import annotations

import re

__all__ = ["has_id_name", "has_part_name", "names_other_things", "split_name"]

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[^\W\d_A-Z]+|[A-Z]|\d+")
"""Capitals in a row (``ID``), a word with or without a capital, a number."""
_IDS = frozenset(
    "id ids key ref reference uuid guid nr no number num client customer patient user account iban email mail phone "
    "mobile telephone tel msisdn imsi ssn nino tin vat passport mrn nhs isin lei kundennummer kundennr pid uid".split()
)
_JOINED = re.compile(
    r"(customer|client|user|patient|account|member|person|passenger|employee|subscriber|household|cust|acct|loan|"
    r"policy|order|record|student|case)(id|no|nr|num|number|key|code|ref)"
)
"""Names of identifiers in one word: ``customerid``."""
_PARTS = re.compile(r"first|last|family|given|sur|name|surname|born|birth|dob|zip|postcode|street|year|month|day")
"""Words that names of columns begin with which make an identifier together."""
_PEOPLE = frozenset(
    "client customer patient user member person passenger employee subscriber household cust student kunde".split()
)
_THINGS = frozenset(
    "order transaction trans tx invoice product item ticket branch store shop visit call session loan contract policy "
    "claim device card application".split()
)


def split_name(column: str) -> tuple[str, ...]:
    """The words of a column's name, in small letters: ``SalePrice`` → ``sale``, ``price``."""
    return tuple(word.casefold() for word in _WORD.findall(column))


def has_id_name(column: str) -> bool:
    """Whether a column is called as identifiers are."""
    words = split_name(column)
    return bool(_IDS & set(words)) or any(_JOINED.fullmatch(word) for word in words)


def has_part_name(column: str) -> bool:
    """Whether a column is called as parts of an identifier are: first name, day of birth, street."""
    return any(_PARTS.match(word) for word in split_name(column))


def names_other_things(one: str, other: str) -> bool:
    """Whether two names of identifiers speak of different things: an order's number and a customer's."""
    about, too = (_about(name) for name in (one, other))
    return bool(about ^ too) and not about & too and bool((about | too) & _THINGS)


def _about(column: str) -> set[str]:
    words = set(split_name(column))
    words |= {found[1] for word in words if (found := _JOINED.fullmatch(word))}
    return (words & _THINGS) | ({"person"} if words & _PEOPLE else set())
