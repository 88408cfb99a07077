"""Identifiers by declared rules, and the digest of the ordered result."""

from __future__ import annotations

import hashlib
import hmac
import itertools
import re
from typing import Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from securevfl_psi import (
    IdentifierError,
    IdRules,
    PSIError,
    digests_equal,
    normalise,
    normalise_column,
    order_digest,
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
    assert IdRules().describe() == "Unicode NFKC, white space at both ends dropped, case kept"


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
        (["ＡB", "AB"], "doubled once normalised"),
        (["x" * 2000], "at most 1024"),
        (["é" * 513], "has 1026 bytes; at most 1024"),
        ([10**5000], "at most 1024 digits"),
        (["a", "\ud800"], "row 1, '.ud800', holds a lone surrogate"),
    ],
)
def test_unusable_identifiers_are_named(ids: list[object], match: str) -> None:
    with pytest.raises(IdentifierError, match=match):
        normalise(ids, IdRules())


def test_many_duplicates_are_summed_up() -> None:
    with pytest.raises(IdentifierError, match="and 5 more"):
        normalise(["a"] * 9, IdRules())


KEY = bytes(range(32))


def test_the_digest_is_an_hmac_of_length_prefixed_parts() -> None:
    """Known answer, written out from the definition."""
    parts = b"".join(len(p).to_bytes(4, "big") + p for p in (b"job", (2).to_bytes(8, "big"), b"a", "é".encode()))
    expected = hmac.new(KEY, b"securevfl order v1" + parts, hashlib.sha256).digest()
    assert order_digest(["a", "é"], KEY, "job") == expected


def test_order_boundaries_number_key_and_context_all_count() -> None:
    base = order_digest(["ab", "c"], KEY, "job")
    others = [
        order_digest(["c", "ab"], KEY, "job"),
        order_digest(["a", "bc"], KEY, "job"),
        order_digest(["ab", "c", ""], KEY, "job"),
        order_digest(["ab"], KEY, "job"),
        order_digest(["ab", "c"], bytes(32), "job"),
        order_digest(["ab", "c"], KEY, "jo"),
    ]
    assert len({base, *others}) == 7
    assert digests_equal(base, order_digest(["ab", "c"], KEY, "job"))
    assert not any(digests_equal(base, other) for other in others)
    with pytest.raises(PSIError, match="32 are needed"):
        order_digest([], b"short")
    with pytest.raises(IdentifierError, match="row 1"):
        order_digest(["a", "\ud800"], KEY)


def test_identifiers_of_just_the_largest_size_are_accepted() -> None:
    assert normalise(["x" * 1024, "é" * 512], IdRules()) == ["x" * 1024, "é" * 512]


def test_the_known_answer_of_the_digest() -> None:
    """Printed once by `openssl dgst -sha256 -mac HMAC` over the bytes that the definition gives."""
    expected = "01aaa467aaf3455a26848f9f50ff7d68e51c6280dbf5442e2bbaeab4444600ab"
    assert order_digest(["a", "é"], KEY, "job").hex() == expected


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
    with pytest.raises(IdentifierError, match=r"row 1 holds U\+0378, which Unicode .* does not assign"):
        normalise(["a", "b\u0378"], IdRules())
