"""Values that stand for "unknown" are found in a party's own table, and told before anything is compared."""

from __future__ import annotations

import numpy as np
import pytest
from securevfl_psi.linkage import (
    Date,
    Field,
    LinkageError,
    Linked,
    Schema,
    Text,
    encode_records,
    find_placeholders,
    link_records,
    simulate_families,
)

KEY = bytes(range(32))
KINDS = {"given_name": Text(), "surname": Text(), "date_of_birth": Date()}
SCHEMA = Schema(fields=tuple(Field(name=name, kind=kind) for name, kind in KINDS.items()))


def _column(*counts: int, others: int = 200) -> list[object]:
    values: list[object] = [f"p{at}" for at, count in enumerate(counts) for _ in range(count)]
    return values + [f"v{number}" for number in range(others)]


def test_a_value_far_more_frequent_than_others_is_one() -> None:
    (one,) = find_placeholders({"phone": [*_column(60), None, "", " ", " p0 "]}, ["phone"])
    assert (one.field, one.value, one.rows, one.filled) == ("phone", "p0", 61, 261)
    assert "phone: 61 of 261 values are 'p0', more than 5 times as many as of others" in str(one)
    assert "leave it empty" in str(one)


@pytest.mark.parametrize(
    ("column", "found"),
    [
        (_column(60, 50, 40, 30), ["p0", "p1", "p2", "p3"]),  # several of them
        (_column(60, 50, 40, 30, 20), []),  # a field of few frequent values, as suburbs are
        (_column(19), []),  # few rows
        (_column(30, others=3000), []),  # a small share
        (_column(900, 20, others=30), []),  # a country
        ([], []),
        ([None] * 300, []),
        ([1.5] * 90 + list(range(60)), ["1.5"]),
    ],
)
def test_what_is_one_and_what_is_none(column: list[object], found: list[str]) -> None:
    assert [one.value for one in find_placeholders({"x": column}, ["x"])] == found


def test_names_of_people_are_none_and_a_long_value_is_cut() -> None:
    files = simulate_families(2000, seed=2)
    for table in files.tables:
        assert find_placeholders(table, ["given_name", "surname", "date_of_birth", "phone", "suburb", "postcode"]) == []
    (one,) = find_placeholders({"x": ["u" * 500] * 90 + list(range(90))}, ["x"])
    assert len(str(one)) < 300


def test_with_them_a_linkage_believes_what_it_refuses_without() -> None:
    """What the message says: with birthdays of 1900 in most rows wrong pairs agree, and the scores do not tell."""
    files = simulate_families(1500, common=0.1, seed=11)

    def linked(value: str | None) -> Linked:
        tables = []
        for side, table in enumerate(files.tables):
            days, gone = table["date_of_birth"], np.random.default_rng(side).random(len(table["surname"])) < 0.9
            born = [value if lost else day for day, lost in zip(days, gone.tolist(), strict=True)]
            tables.append({**table, "date_of_birth": born})
        assert [one.value for one in find_placeholders(tables[0], list(KINDS))] == ([value] if value else [])
        a, b = (encode_records({name: table[name] for name in KINDS}, SCHEMA, KEY) for table in tables)
        return link_records(a, b, precision=0.8)

    found = linked("1900-01-01")
    right = files.people[0][found.rows_a] == files.people[1][found.rows_b]
    assert found.precision >= 0.8
    assert right.mean() < 0.65
    with pytest.raises(LinkageError, match=r"the best precision is about 0\.[56]"):
        linked(None)
