"""Simulates two files of people in households, with the true links, to test a schema and a threshold.

Files without households are too easy. Members of one household share surname, address and phone; twins also share the
birthday, and a son may have his father's name. Names are invented syllables with frequencies that fall like 1 / rank,
so some strangers have the same name. Between the files people move and marry, and values are mistyped.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from securevfl_psi.errors import LinkageError

__all__ = ["Families", "FamilyErrors", "simulate_families"]

FIELDS = ("given_name", "surname", "street_number", "street", "suburb", "postcode", "phone", "date_of_birth")
_SYLLABLES = [a + b for a in "bdfghjklmnprstvw" for b in ("a", "e", "i", "o", "u", "an", "er")]
_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_SIZES = (0.30, 0.32, 0.15, 0.15, 0.08)
"""Share of households of one to five members, about those of a European census."""


@dataclass(frozen=True, kw_only=True)
class FamilyErrors:
    """The rates of errors and changes in the second file; each is a share from 0 to 1, except `uneven`.

    Attributes:
        typo: of values with one error (letter inserted, dropped, replaced, or two exchanged); half as many have two.
        missing: of values lost; name fields are never lost both.
        swapped: of records whose given name and surname, and of records whose day and month are exchanged.
        household_moves: of households with another address and phone.
        member_moves: of people who left the household: another address and phone.
        marries: of adults who have another surname.
        duplicates: of people who are in a file twice, the second time with independent errors.
        uneven: the variance between records: each record's `typo`, `missing` and `swapped` are multiplied by a gamma
            variable of mean 1 and this variance. With 0, errors in two fields are independent.
    """

    typo: float = 0.12
    missing: float = 0.04
    swapped: float = 0.01
    household_moves: float = 0.04
    member_moves: float = 0.04
    marries: float = 0.02
    duplicates: float = 0.0
    uneven: float = 0.0

    def __post_init__(self) -> None:
        for name in self.__dataclass_fields__:
            share = getattr(self, name)
            if name == "uneven" and 0 <= share <= 10:
                continue
            if not 0 <= share <= 1:
                raise LinkageError(f"{name} is {share!r}; expected a share from 0 to 1")


@dataclass(frozen=True, eq=False)
class Families:
    """Two files and their true people.

    Attributes:
        tables: for each file, the columns by name; None for a missing value.
        people: for each file, the person's number in every row, (n,) int64.
        households: for each file, the household's number in every row, (n,) int64.
    """

    tables: tuple[dict[str, list[str | None]], dict[str, list[str | None]]]
    people: tuple[np.ndarray, np.ndarray]
    households: tuple[np.ndarray, np.ndarray]


def simulate_families(
    rows: int, *, common: float = 0.5, together: float = 0.8, errors: FamilyErrors | None = None, seed: int = 0
) -> Families:
    """Simulate two files of about `rows` people each.

    Args:
        rows: the number of people in a file, 20 to 10^6.
        common: the share of them that is also in the other file, 0.02 to 1.
        together: the probability that a member is in the same files as the household: 0 means independent members, 1
            means that all are in the same files. Below 1, a household often has one member in one file and another in
            the other: the pairs that are hardest to refuse.
        errors: the errors of the second file. The first has a quarter of its typing errors and missing values.
        seed: the seed of all random choices.

    Raises:
        LinkageError: a number is out of range.
    """
    if not (20 <= rows <= 10**6 and 0.02 <= common <= 1 and 0 <= together <= 1):
        raise LinkageError(
            f"{rows!r} rows, common {common!r}, together {together!r}; expected 20 to 10^6, 0.02 to 1 and 0 to 1"
        )
    rng, errors = np.random.default_rng(seed), errors or FamilyErrors()
    names = _Names(rng, rows)
    # Of people in any file, these shares are in the first only, in both, in the second only.
    shares = np.array([1 - common, common, 1 - common]) / (2 - common)
    wanted = round(rows * (2 - common))
    records: list[list[str]] = []
    household, where = [], []
    while len(records) < wanted:
        family = names.make_family(int(rng.choice(5, p=_SIZES)) + 1)
        fate = int(rng.choice(3, p=shares))
        for member in family:
            records.append(member)
            household.append(names.families)
            where.append(fate if rng.random() < together else int(rng.choice(3, p=shares)))
    place, homes = np.array(where), np.array(household)
    second = _move_and_marry(records, homes, names, errors, rng)
    sides = []
    for side, (source, share) in enumerate(((records, 0.25), (second, 1.0))):
        who = np.flatnonzero(place <= 1) if side == 0 else np.flatnonzero(place >= 1)
        again = who[rng.random(len(who)) < errors.duplicates]
        who = rng.permutation(np.r_[who, again])
        spoilt = [_with_errors(source[person], errors, share, rng) for person in who.tolist()]
        sides.append((dict(zip(FIELDS, map(list, zip(*spoilt, strict=True)), strict=True)), who))
    (table_a, a), (table_b, b) = sides
    return Families((table_a, table_b), (a, b), (homes[a], homes[b]))


class _Names:
    """Invented names, streets and places, and households of them."""

    def __init__(self, rng: np.random.Generator, rows: int):
        self.rng, self.families = rng, 0
        self.given = self._make_words(400, 2, 3)
        self.surnames = self._make_words(max(200, min(5000, rows // 4)), 2, 4)
        self.streets = self._make_words(max(100, min(3000, rows // 8)), 2, 4)
        self.suburbs = self._make_words(max(20, min(600, rows // 40)), 2, 4)

    def _make_words(self, count: int, least: int, most: int) -> list[str]:
        words: dict[str, None] = {}
        while len(words) < count:
            words["".join(self.rng.choice(_SYLLABLES, size=self.rng.integers(least, most + 1)))] = None
        return list(words)

    def choose_frequent(self, words: list[str]) -> str:
        """A word with probability falling like 1 / (rank + 10)."""
        top = np.log((len(words) + 10) / 10)
        return words[min(int(10 * (np.exp(self.rng.random() * top) - 1)), len(words) - 1)]

    def make_address(self) -> list[str]:
        suburb = int(self.rng.integers(len(self.suburbs)))
        number = str(int(self.rng.integers(1, 200)))
        phone = "0" + "".join(str(d) for d in self.rng.integers(0, 10, 8))
        return [number, self.choose_frequent(self.streets), self.suburbs[suburb], str(2000 + 7 * suburb), phone]

    def make_birthday(self, first: int, last: int) -> str:
        year, month, day = (int(self.rng.integers(*bounds)) for bounds in ((first, last + 1), (1, 13), (1, 29)))
        return f"{year}{month:02d}{day:02d}"

    def make_family(self, size: int) -> list[list[str]]:
        """Records in the order of `FIELDS`: one or two adults, then children; twins and juniors among them."""
        self.families += 1
        address, surname = self.make_address(), self.choose_frequent(self.surnames)
        adults = 1 if size == 1 or (size > 2 and self.rng.random() < 0.15) else 2
        year = int(self.rng.integers(1935, 1985))
        members: list[list[str]] = []
        for number in range(size):
            given, name, born = self.choose_frequent(self.given), surname, self.make_birthday(year, year + 6)
            if number == 1 and adults == 2 and self.rng.random() < 0.15:
                name = self.choose_frequent(self.surnames)  # a couple with two surnames
            if number >= adults:
                born = self.make_birthday(year + 24, year + 38)
                if number > adults and self.rng.random() < 0.06:
                    born = members[-1][7]  # twins
                elif number == adults and self.rng.random() < 0.08:
                    given = members[0][0]  # a junior
            while any(given == member[0] and born == member[7] for member in members):
                given = self.choose_frequent(self.given)
            members.append([given, name, *address, born])
        return members


def _move_and_marry(
    records: list[list[str]], homes: np.ndarray, names: _Names, errors: FamilyErrors, rng: np.random.Generator
) -> list[list[str]]:
    """The same people at the time of the second file, after moves and marriages."""
    moved = {int(home): names.make_address() for home in np.unique(homes) if rng.random() < errors.household_moves}
    after = []
    for record, home in zip(records, homes.tolist(), strict=True):
        address = names.make_address() if rng.random() < errors.member_moves else moved.get(home, record[2:7])
        adult = record[7] < "1990"
        name = names.choose_frequent(names.surnames) if adult and rng.random() < errors.marries else record[1]
        after.append([record[0], name, *address, record[7]])
    return after


def _with_errors(record: list[str], errors: FamilyErrors, share: float, rng: np.random.Generator) -> list[str | None]:
    values: list[str | None] = list(record)
    if errors.uneven:
        share *= rng.gamma(1 / errors.uneven, errors.uneven)
    if rng.random() < errors.swapped * share:
        values[0], values[1] = values[1], values[0]
    if rng.random() < errors.swapped * share:
        born = record[7]
        values[7] = born[:4] + born[6:] + born[4:6]
    for place, value in enumerate(values):
        if value is None:
            continue
        chance = rng.random()
        if chance < errors.missing * share and not (place == 1 and values[0] is None):
            values[place] = None
        elif chance > 1 - errors.typo * share:
            once = _make_typo(value, rng)
            values[place] = _make_typo(once, rng) if chance > 1 - errors.typo * share / 3 else once
    return values


def _make_typo(value: str, rng: np.random.Generator) -> str:
    """Make one of the four errors that Damerau (1964) found to be 80 % of all; a date keeps its eight digits."""
    at, letter = (
        int(rng.integers(len(value))),
        (str(rng.integers(10)) if value.isdigit() else rng.choice(list(_LETTERS))),
    )
    kind = int(rng.integers(4))
    if value.isdigit() and len(value) == 8:
        kind = 2 + kind % 2
    if kind == 0:
        return value[:at] + str(letter) + value[at:]
    if kind == 1 and len(value) > 1:
        return value[:at] + value[at + 1 :]
    if kind == 2 or at + 1 == len(value):
        return value[:at] + str(letter) + value[at + 1 :]
    return value[:at] + value[at + 1] + value[at] + value[at + 2 :]
