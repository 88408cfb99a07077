"""Identifiers by declared rules, and the digest of the ordered result."""

from __future__ import annotations

import hashlib
import hmac

import numpy as np
import pytest
from securevfl_psi import IdentifierError, IdRules, PSIError, digests_equal, normalise, order_digest


def test_rules_make_writings_of_one_identifier_equal() -> None:
    assert normalise([" ＡＢ１ ", "x\u0301"], IdRules()) == ["AB1", "x\u0301"]
    assert normalise(["e\u0301"], IdRules()) == ["é"]
    assert normalise(["Straße", "ＸY"], IdRules(casefold=True)) == ["strasse", "xy"]
    assert normalise([" a"], IdRules(strip=False)) == [" a"]
    assert normalise([7, np.int64(12)], IdRules()) == ["7", "12"]


def test_the_tag_tells_rules_apart() -> None:
    tags = {IdRules(form=f, strip=s, casefold=c).tag() for f in ("NFC", "NFKC") for s in (0, 1) for c in (0, 1)}
    assert len(tags) == 8


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
