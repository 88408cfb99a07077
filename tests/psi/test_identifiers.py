"""Identifiers by declared rules, and the digest of a list of them."""

from __future__ import annotations

import hashlib
import itertools
import re
from typing import Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from securevfl_psi import (
    IdentifierError,
    Identifiers,
    IdRules,
    list_digest,
    normalise,
    normalise_column,
)


def test_rules_make_writings_of_one_identifier_equal() -> None:
    assert normalise([" ＡＢ１ ", "x\u0301"], IdRules()) == ["AB1", "x\u0301"]
    assert normalise(["e\u0301"], IdRules()) == ["é"]
    assert normalise(["Straße", "ＸY"], IdRules(casefold=True)) == ["strasse", "xy"]
    assert normalise([" a"], IdRules(strip=False)) == [" a"]
    assert normalise([7, np.int64(12)], IdRules()) == ["7", "12"]


FORMS: tuple[Literal["NFC"], Literal["NFKC"]] = ("NFC", "NFKC")


def test_the_tag_tells_rules_apart() -> None:
    every = [
        IdRules(form=form, strip=strip, casefold=casefold)
        for form in FORMS
        for strip in (False, True)
        for casefold in (False, True)
    ]
    assert len({rules.tag() for rules in every}) == len({rules.describe() for rules in every}) == 8
    assert IdRules().describe() == (
        "Unicode NFKC without invisible characters, white space at both ends dropped, case kept"
    )


@given(st.text(), st.sampled_from(["NFC", "NFKC"]), st.booleans(), st.booleans())
def test_what_is_normal_stays_as_it_is(text: str, form: Literal["NFC", "NFKC"], strip: bool, casefold: bool) -> None:
    rules = IdRules(form=form, strip=strip, casefold=casefold)
    once = rules.apply(text)
    assert rules.apply(once) == once


def test_one_text_is_not_a_column() -> None:
    for ids in ("abc", b"abc"):
        with pytest.raises(IdentifierError, match="not a column"):
            normalise(ids, IdRules())


@pytest.mark.parametrize(
    ("ids", "match"),
    [
        (["a", None], "row 1 is null"),
        (["a", float("nan")], "row 1 is null"),
        (["a", "  "], "row 1 is empty"),
        (["a", 1], "two types"),
        ([1.5, 2.5], "is a float"),
        ([True, False], "is a bool"),
        ([b"a"], "is a bytes"),
        (["a", "b", "a", "a"], "'a' in rows 0 and 2; 'a' in rows 0 and 3"),
        (["ＡB", "AB"], "occur more than once after normalisation"),
        (["x" * 2000], "at most 1024"),
        (["é" * 513], "has 1026 bytes; at most 1024"),
        ([10**5000], "at most 1024 digits"),
        (["a", "\ud800"], "row 1, '.ud800', contains a lone surrogate"),
    ],
)
def test_unusable_identifiers_are_named(ids: list[object], match: str) -> None:
    with pytest.raises(IdentifierError, match=match):
        normalise(ids, IdRules())


def test_many_duplicates_are_summed_up() -> None:
    with pytest.raises(IdentifierError, match="and 5 more"):
        normalise(["a"] * 9, IdRules())


def test_the_digest_of_a_list_is_of_length_prefixed_parts() -> None:
    """Known answer, written out from the definition."""
    parts = b"".join(len(p).to_bytes(4, "big") + p for p in (b"a", "é".encode()))
    expected = hashlib.sha512(b"securevfl order v2" + (2).to_bytes(8, "big") + parts).digest()
    assert list_digest(["a", "é"]) == expected
    assert list_digest(["x", "é", "a"], np.array([2, 1])) == expected


def test_order_boundaries_and_number_all_count() -> None:
    lists = [["ab", "c"], ["c", "ab"], ["a", "bc"], ["ab", "c", ""], ["ab"], []]
    assert len({list_digest(ids) for ids in lists}) == len(lists)
    with pytest.raises(IdentifierError, match="row 1"):
        list_digest(["a", "\ud800"])


def test_identifiers_of_just_the_largest_size_are_accepted() -> None:
    assert normalise(["x" * 1024, "é" * 512], IdRules()) == ["x" * 1024, "é" * 512]


@pytest.mark.parametrize(
    ("rules", "written", "normal"),
    [
        (IdRules(numeric=True), ["0042", "+7", "13.0", "0", "x07", "1.50", "-3", "5."], None),
        (IdRules(squeeze=True), ["a  b", "c\t\td", " e"], ["a b", "c d", "e"]),
        (IdRules(squeeze=True, casefold=True), ["A  B"], ["a b"]),
    ],
)
def test_rules_for_numbers_and_inner_space(rules: IdRules, written: list[str], normal: list[str] | None) -> None:
    wanted = normal or ["42", "7", "13", "0", "x07", "1.50", "-3", "5"]
    assert normalise(written, rules) == wanted
    assert list(normalise_column(written, rules)) == wanted


def test_tags_differ_exactly_where_rules_do() -> None:
    flags = ("strip", "casefold", "squeeze", "numeric")
    tags = {
        IdRules(form=form, **dict(zip(flags, bits, strict=True))).tag()  # type: ignore[arg-type]
        for form in ("NFC", "NFKC")
        for bits in itertools.product((False, True), repeat=4)
    }
    assert len(tags) == 32


@settings(max_examples=150)
@given(
    st.lists(st.text(st.characters(max_codepoint=140), max_size=5), max_size=6),
    st.fixed_dictionaries(dict.fromkeys(("strip", "casefold", "squeeze", "numeric"), st.booleans())),
)
def test_columns_are_normalised_as_texts_are(texts: list[str], flags: dict[str, bool]) -> None:
    rules = IdRules(**flags)  # type: ignore[arg-type]
    try:
        wanted = normalise(texts, rules)
    except IdentifierError as error:
        with pytest.raises(IdentifierError, match=re.escape(str(error))):
            normalise_column(texts, rules)
        return
    assert list(normalise_column(texts, rules)) == wanted


def test_code_points_that_unicode_does_not_assign_are_refused() -> None:
    with pytest.raises(IdentifierError, match=r"row 1 contains U\+0378, which Unicode .* does not assign"):
        normalise(["a", "b\u0378"], IdRules())


def test_long_numbers_are_looked_at_once() -> None:
    """Time that grows with the square of the length: this text took minutes."""
    with pytest.raises(IdentifierError, match="200001 bytes"):
        normalise(["0" * 200_000 + "x"], IdRules(numeric=True))
    numbers = {"0": "0", "000": "0", "+0.00": "0", "0070.": "70", "+": "+", "": "", "0x": "0x", "00.1": "00.1"}
    assert {text: IdRules(numeric=True).apply(text) for text in numbers} == numbers


def test_columns_in_lower_case_and_their_doubles() -> None:
    text = "".join(map(chr, range(33, 127)))
    assert list(normalise_column([text], IdRules(casefold=True))) == [text.casefold()]
    assert Identifiers.of_texts(["a", "b", "a", "b", "a", "a\0"]).find_duplicates() == [(0, 2), (1, 3), (0, 4)]
