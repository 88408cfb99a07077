"""Record linkage, at the data parties: normal forms, keyed encodings, hardening, blocking tokens."""

from __future__ import annotations

import datetime
import hashlib
import hmac
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from securevfl_psi import MalformedError, SetSizeError
from securevfl_psi.linkage import (
    Balanced,
    Blip,
    Code,
    Date,
    Encodings,
    Field,
    FieldKind,
    LinkageError,
    Number,
    Prefix,
    Schema,
    Soundex,
    Text,
    Whole,
    XorFold,
    blocking_tokens,
    dice,
    encode_records,
    hamming_tokens,
)
from securevfl_psi.linkage.blocking import soundex
from securevfl_psi.linkage.keys import bit_positions, derive_key, derive_permutation, hkdf

KEY = bytes(range(32))
NAME = Field(name="name", kind=Text())
BORN = Field(name="born", kind=Date())
ZIP = Field(name="zip", kind=Code())
PLAIN = Schema(fields=(NAME, BORN, ZIP), hardening=())
TABLE: dict[str, list[object]] = {
    "name": ["Ann Miller", "ann  MILLER", "Bob Stone", None],
    "born": ["1971-03-05", 19710305, datetime.date(1988, 11, 30), float("nan")],
    "zip": ["4223", 4223, "", "90210"],
}


def bits(encodings: Encodings) -> np.ndarray:
    return np.unpackbits(encodings.words.astype("<u8").view(np.uint8), axis=1, bitorder="little").astype(bool)


def similarity(one: object, other: object, kind: FieldKind, **options: Any) -> float:
    schema = Schema(fields=(Field(name="x", kind=kind),), hardening=(), **options)
    a, b = encode_records({"x": [one]}, schema, KEY), encode_records({"x": [other]}, schema, KEY)
    return float(dice(a, b, np.array([0]), np.array([0]))[0])


def test_hkdf_agrees_with_its_rfc() -> None:
    """RFC 5869, appendix A, test cases 1 and 3."""
    one = hkdf(bytes([0x0B] * 22), bytes(range(13)), bytes(range(0xF0, 0xFA)), 42)
    assert one.hex() == "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf34007208d5b887185865"
    three = hkdf(bytes([0x0B] * 22), b"", b"", 42)
    assert three.hex() == "8da4e775a563c18f715f802a063c5a31b8a11f5c5ee1879ec3454e5f3c738d2d9d201395faa4b61a96c8"


def test_keys_differ_by_every_part_and_its_bounds() -> None:
    assert (
        len(
            {derive_key(KEY, "a", "b"), derive_key(KEY, "ab"), derive_key(KEY, "a", "b", ""), derive_key(KEY, "b", "a")}
        )
        == 4
    )
    assert derive_key(KEY, "a") != derive_key(KEY[::-1], "a")
    for bad in (b"short", KEY[:31], "x" * 32):
        with pytest.raises(LinkageError, match="at least 32 random bytes"):
            derive_key(bad, "a")  # type: ignore[arg-type]


def test_positions_are_a_stretched_hmac_and_a_prefix_of_more() -> None:
    stream = hashlib.shake_256(hmac.new(KEY, b"token", hashlib.sha256).digest()).digest(40)
    expected = [int.from_bytes(stream[i : i + 4], "little") % 1000 for i in range(0, 40, 4)]
    assert bit_positions(KEY, b"token", 10, 1000).tolist() == expected
    assert bit_positions(KEY, b"token", 4, 1000).tolist() == expected[:4]
    assert sorted(derive_permutation(KEY, 100).tolist()) == list(range(100)) != derive_permutation(KEY, 100).tolist()


@pytest.mark.parametrize(
    ("kind", "value", "normal"),
    [
        (Text(), " José\tO'NEIL-Smith ", "jose o neil smith"),
        (Text(), "ＡＢ", "ab"),
        (Text(), "--", None),
        (Text(), 12.0, "12"),
        (Text(), "Straße", "strasse"),
        (Code(), " sw1a 1aa ", "sw1a1aa"),
        (Code(), 7, "7"),
        (Code(), "007", "007"),
        (Date(), "1971-03-05T10:00:00", "19710305"),
        (Date(), "5.3.1971", "19710305"),
        (Date(order="month first"), "3/5/1971", "19710305"),
        (Date(), np.datetime64("1971-03-05"), "19710305"),
        (Date(), np.datetime64("NaT"), None),
        (Date(), datetime.datetime(1971, 3, 5, 4), "19710305"),
        (Date(), datetime.date(71, 3, 5), "00710305"),
        (Date(), "19710299", "19710299"),
        (Date(), " ", None),
        (Number(step=0.5, reach=2), "10.26", "21"),
        (Number(step=1, reach=2), None, None),
        (Number(step=1, reach=2), np.float32("nan"), None),
    ],
)
def test_normal_forms(kind: FieldKind, value: object, normal: str | None) -> None:
    assert kind.normalise_value(value) == normal


@given(st.text(max_size=12), st.sampled_from([Text(), Text(q=3), Code(), Code(q=2, positional=False)]))
def test_normal_forms_are_normal_and_have_distinct_tokens(text: str, kind: FieldKind) -> None:
    normal = kind.normalise_value(text)
    if normal is not None:
        assert kind.normalise_value(normal) == normal
        tokens = kind.make_tokens(normal)
        assert tokens
        assert len(set(tokens)) == len(tokens)


def test_tokens_are_these() -> None:
    assert Text().make_tokens("abab") == ["\x02a", "ab", "ba", "b\x02"]
    assert Text(q=1).make_tokens("abab") == ["a", "b"]
    assert Code().make_tokens("4223") == ["0:4", "1:2", "2:2", "3:3"]
    assert Date().make_tokens("19710305")[-4:] == ["7:5", "y1971", "m03", "d05"]
    assert Number(step=1, reach=4).make_tokens("10") == ["8", "9", "10", "11", "12"]


def test_near_values_are_similar_and_far_ones_are_not() -> None:
    assert similarity("Catherine", "catherine ", Text()) == 1
    assert similarity("Catherine", "Katherine", Text()) > 0.6
    assert similarity("Catherine", "Dorothy", Text()) < 0.45
    assert similarity("1971-03-05", "1971-05-03", Date()) > 0.6
    assert similarity("1971-03-05", "2004-12-28", Date()) < 0.55
    near = [similarity(100, 100 + step, Number(step=1, reach=10), bits=4096) for step in (0, 2, 5, 8, 30)]
    assert near == sorted(near, reverse=True)
    assert near[0] == 1
    assert near[2] == pytest.approx(1 - 5 / 11, abs=0.12)


def reference(row: int, table: dict[str, list[object]], schema: Schema, key: bytes, context: str) -> set[int]:
    """Which bits one record sets before hardening, in obvious lines."""
    found = set()
    for field in schema.fields:
        normal = field.kind.normalise_value(table[field.name][row])
        if normal is None:
            continue
        salt = ""
        if field.salt:
            other = next(f for f in schema.fields if f.name == field.salt)
            salt = other.kind.normalise_value(table[field.salt][row]) or ""
            salt = salt[:4] if isinstance(other.kind, Date) else salt
        tokens = field.kind.make_tokens(normal)
        each = max(1, math.floor(schema.count_hashes(field) / len(tokens) + 0.5))
        secret = derive_key(key, "field", context, field.share or "." + field.name)
        for token in tokens:
            message = len(salt.encode()).to_bytes(4, "big") + salt.encode() + token.encode()
            found |= set(bit_positions(secret, message, each, schema.filter_bits).tolist())
    return found


@settings(max_examples=40)
@given(
    st.lists(
        st.tuples(st.text(max_size=6) | st.none(), st.sampled_from(["19710305", "1988-01-02", None]), st.just("x1")),
        min_size=1,
        max_size=5,
    ),
    st.sampled_from(["", "born"]),
    st.sampled_from([None, "both"]),
    st.sampled_from([0.3, 1.0, 3.0]),
)
def test_encodings_agree_with_the_slow_reference(
    rows: list[tuple[str | None, str | None, str]], salt: str, share: str | None, weight: float
) -> None:
    table: dict[str, list[object]] = dict(zip(("name", "born", "zip"), map(list, zip(*rows, strict=True)), strict=True))
    name = replace(NAME, salt=salt or None, share=share, weight=weight)
    schema = Schema(fields=(name, BORN, replace(ZIP, share=share)), bits=128, hardening=())
    got = bits(encode_records(table, schema, KEY, context="job"))
    for row in range(len(rows)):
        assert set(np.flatnonzero(got[row]).tolist()) == reference(row, table, schema, KEY, "job")


def test_many_records_are_encoded_as_each_alone() -> None:
    names = [f"name {i % 1500}" for i in range(2500)]
    schema = Schema(fields=(NAME,), hardening=(XorFold(), Balanced()))
    words = encode_records({"name": names}, schema, KEY).words
    assert (words[:1000] == words[1500:]).all()
    for row in (0, 1023, 1024, 2499):
        assert (encode_records({"name": [names[row]]}, schema, KEY).words[0] == words[row]).all()


def test_writings_of_one_value_are_equal_and_nulls_add_nothing() -> None:
    encoded = bits(encode_records(TABLE, PLAIN, KEY))
    assert (encoded[0] == encoded[1]).all()
    only_zip = bits(encode_records({"name": [None], "born": [""], "zip": ["90210"]}, PLAIN, KEY))
    assert (encoded[3] == only_zip[0]).all()


def test_key_context_field_and_schema_change_every_encoding() -> None:
    base = encode_records(TABLE, PLAIN, KEY)
    swapped = Schema(fields=(replace(NAME, name="other"), BORN, ZIP), hardening=())
    others = [
        encode_records(TABLE, PLAIN, KEY[::-1]),
        encode_records(TABLE, PLAIN, KEY, context="job"),
        encode_records({**TABLE, "other": TABLE["name"]}, swapped, KEY),
        encode_records(TABLE, replace(PLAIN, fill=0.31), KEY),
    ]
    assert len({base.tag, *(other.tag for other in others)}) == 5
    for other in others[:2]:
        assert dice(base, other, np.array([0]), np.array([0]))[0] < 0.5
    assert encode_records(TABLE, PLAIN, KEY).tag == base.tag


def test_the_tag_tells_schemas_apart() -> None:
    schemas = [
        PLAIN,
        replace(PLAIN, bits=512),
        replace(PLAIN, hardening=(XorFold(),)),
        replace(PLAIN, hardening=(Blip(0.1),)),
        replace(PLAIN, fields=(BORN, NAME, ZIP)),
        replace(PLAIN, fields=(replace(NAME, weight=2), BORN, ZIP)),
        replace(PLAIN, fields=(replace(NAME, kind=Text(q=3)), BORN, ZIP)),
        replace(PLAIN, fields=(replace(NAME, salt="born"), BORN, ZIP)),
    ]
    assert len({schema.tag() for schema in schemas}) == len(schemas)
    assert PLAIN.tag() == Schema(fields=(NAME, BORN, ZIP), hardening=()).tag()


def test_the_fill_is_as_declared_whatever_the_length_of_the_filter() -> None:
    table: dict[str, list[object]] = {
        "name": [f"{i * 7919 % 1000003:x} smith" for i in range(200)],
        "born": [f"{1900 + i % 100}0{1 + i % 9}1{i % 10}" for i in range(200)],
        "zip": [10000 + 37 * i for i in range(200)],
    }
    for size in (512, 2048):
        share = encode_records(table, replace(PLAIN, bits=size), KEY).count_ones().mean() / size
        assert share == pytest.approx(0.3, abs=0.02)


def test_weights_share_the_bits() -> None:
    fields = (replace(NAME, weight=3), BORN)
    schema = Schema(fields=fields, bits=4096, hardening=())
    only = [
        encode_records({"name": [a], "born": [b]}, schema, KEY).count_ones()[0]
        for a, b in (("catherine", None), (None, "19710305"))
    ]
    assert only[0] / only[1] == pytest.approx(3, rel=0.1)


def test_a_salt_takes_equal_names_apart_and_a_share_brings_fields_together() -> None:
    salted = Schema(fields=(replace(NAME, salt="born"), BORN), hardening=())
    table: dict[str, list[object]] = {"name": ["Ann Miller"] * 3, "born": ["1971-03-05", "1971-12-28", "1972-03-05"]}
    got = encode_records(table, salted, KEY)
    birth = [reference(0, {"name": [None], "born": [born]}, salted, KEY, "") for born in table["born"]]
    names = [set(np.flatnonzero(row).tolist()) - set().union(*birth) for row in bits(got)]
    assert len(names[0] & names[1]) > 0.9 * len(names[0])  # the same year
    assert len(names[0] & names[2]) < 0.3 * len(names[0])
    last = Field(name="last", kind=Text())
    apart = Schema(fields=(NAME, last), hardening=())
    together = Schema(fields=(replace(NAME, share="names"), replace(last, share="names")), hardening=())
    one, two = {"name": ["Ann"], "last": ["Miller"]}, {"name": ["Miller"], "last": ["Ann"]}
    score = [
        float(dice(encode_records(one, s, KEY), encode_records(two, s, KEY), np.array([0]), np.array([0]))[0])
        for s in (apart, together)
    ]
    assert score[0] < 0.6
    assert score[1] > 0.8


def test_hardening_does_what_it_says() -> None:
    filters = np.random.default_rng(0).random((50, 256)) < 0.3
    folded = XorFold().apply(filters, KEY)
    assert (folded == (filters[:, :128] != filters[:, 128:])).all()
    balanced = Balanced().apply(filters, KEY)
    assert (balanced.sum(axis=1) == 256).all()
    assert (balanced[:, np.argsort(derive_permutation(KEY, 512))][:, :256] == filters).all()
    flipped = Blip(0.1).apply(filters, KEY)
    assert 0.08 < (flipped != filters).mean() < 0.12
    assert (Blip(0.1).apply(filters, KEY) != flipped).any()
    assert Blip(0.1).epsilon_per_bit == pytest.approx(math.log(9))


@pytest.mark.parametrize(
    "hardening", [(), (XorFold(),), (Balanced(),), (XorFold(), Balanced()), (Balanced(), XorFold())]
)
def test_lengths_are_as_declared_under_every_hardening(hardening: Any) -> None:
    schema = Schema(fields=(NAME, BORN, ZIP), bits=512, hardening=hardening)
    assert encode_records(TABLE, schema, KEY).words.shape == (4, 8)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"name": TABLE["name"][:3]}, "different lengths"),
        ({"name": ["a", None, "b", "c"], "born": [None] * 4, "zip": [None] * 4}, "row 1 has no usable field"),
        ({"born": ["1971-03-05", "tomorrow", None, None]}, "'tomorrow' in row 1 of column 'born' is not a date"),
        ({"zip": ["1", b"2", None, "4"]}, "row 1 of column 'zip' is a bytes"),
        ({"zip": ["1", True, None, "4"]}, "row 1 of column 'zip' is a truth value"),
        ({"zip": ["1", 10**400, None, "4"]}, "beyond 2.64"),
        ({"name": ["a", "b", "c", "x" * 2000]}, "has 2000 characters; at most 1024"),
    ],
)
def test_unusable_records_are_named(change: dict[str, list[object]], match: str) -> None:
    with pytest.raises(LinkageError, match=match):
        encode_records({**TABLE, **change}, PLAIN, KEY)


def test_a_missing_column_and_a_number_off_the_grid_are_named() -> None:
    with pytest.raises(LinkageError, match="no column 'born'"):
        encode_records({"name": ["a"]}, PLAIN, KEY)
    number = Schema(fields=(Field(name="x", kind=Number(step=1, reach=2)),))
    for value in ("ten", "inf", 1e300):
        with pytest.raises(LinkageError, match="row 0 of column 'x' is not a number"):
            encode_records({"x": [value]}, number, KEY)


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: Schema(fields=()), "at least one"),
        (lambda: Schema(fields=(NAME, NAME)), "each name once"),
        (lambda: Schema(fields=(replace(NAME, salt="born"),)), "salted by 'born'"),
        (lambda: Schema(fields=(replace(NAME, salt="name"),)), "salted by 'name'"),
        (lambda: Schema(fields=(NAME,), bits=1000), "multiples of 64"),
        (lambda: Schema(fields=(NAME,), fill=0.9), "fill is 0.9"),
        (lambda: Schema(fields=(NAME,), bits=64, hardening=(Balanced(),)), "multiple of 128"),
        (lambda: Schema(fields=(NAME,), bits=65536, hardening=(XorFold(), XorFold())), "filter of 262144"),
        (lambda: replace(NAME, weight=float("nan")), "weight nan"),
        (lambda: replace(NAME, name=""), "has no name"),
        (lambda: Text(q=0), "q = 0"),
        (lambda: Code(q=9), "q = 9"),
        (lambda: Date(order="year first"), "year first"),  # type: ignore[arg-type]
        (lambda: Number(step=0, reach=1), "step 0"),
        (lambda: Number(step=1, reach=1000), "reach 1000"),
        (lambda: Blip(0.5), "below 0.5"),
        (lambda: Prefix(0), "prefix of 0"),
    ],
)
def test_declarations_that_cannot_be_used_are_refused(make: Any, match: str) -> None:
    with pytest.raises(LinkageError, match=match):
        make()


def test_encodings_travel_as_bytes() -> None:
    encoded = encode_records(TABLE, PLAIN, KEY)
    data = encoded.to_bytes()
    again = Encodings.from_bytes(data)
    assert (again.words == encoded.words).all()
    assert again.tag == encoded.tag
    with pytest.raises(SetSizeError, match="4 encodings; at most 3"):
        Encodings.from_bytes(data, max_rows=3)
    bad_bits = data[:28] + (100).to_bytes(4, "big") + data[32:]
    none = Encodings(encoded.words[:0], encoded.tag).to_bytes()
    assert len(Encodings.from_bytes(none)) == 0
    short, foreign = "bytes of encodings", "not encodings"
    broken_ones = [
        (data[:-1], short),
        (data + b"x", short),
        (b"x" + data, foreign),
        (data[:20], foreign),
        (none + b"x", short),
    ]
    for broken, match in [*broken_ones, (bad_bits, "encodings of 100 bits")]:
        with pytest.raises(MalformedError, match=match):
            Encodings.from_bytes(broken)


@given(st.binary(max_size=80))
def test_no_bytes_break_the_reader(data: bytes) -> None:
    with pytest.raises(MalformedError):
        Encodings.from_bytes(b"svfl-clk-v1\n" + data[:79])


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("robert", "R163"),
        ("rupert", "R163"),
        ("ashcraft", "A261"),
        ("tymczak", "T522"),
        ("pfister", "P236"),
        ("honeyman", "H555"),
        ("lee", "L000"),
        ("o neil", "O540"),
        ("日本", None),
    ],
)
def test_soundex_agrees_with_the_national_archives(name: str, code: str | None) -> None:
    """Examples of the US National Archives' page on the Soundex indexing system, and usual ones."""
    assert soundex(name) == code


def test_blocking_tokens_are_keyed_and_equal_where_keys_are() -> None:
    rules = [{"name": Soundex()}, {"born": Prefix(4), "zip": Whole()}]
    tokens = blocking_tokens(TABLE, PLAIN, rules, KEY)
    assert tokens.shape == (4, 2)
    assert tokens[0, 0] == tokens[1, 0] != tokens[2, 0]
    assert tokens[3, 0] == 0
    assert tokens[0, 1] == tokens[1, 1] != 0
    assert tokens[2, 1] == tokens[3, 1] == 0
    for other in (
        blocking_tokens(TABLE, PLAIN, rules, KEY[::-1]),
        blocking_tokens(TABLE, PLAIN, rules, KEY, context="x"),
    ):
        assert (other[0] != tokens[0]).all()
    flipped = blocking_tokens(TABLE, PLAIN, [rules[0], dict(reversed(rules[1].items()))], KEY)
    assert (flipped == tokens).all()
    for bad in ([], [{}], [{"age": Whole()}]):
        with pytest.raises(LinkageError, match="blocking rules"):
            blocking_tokens(TABLE, PLAIN, bad, KEY)


def test_hamming_tokens_are_sampled_bits() -> None:
    encoded = encode_records(TABLE, PLAIN, KEY)
    tokens = hamming_tokens(encoded, tables=5, bits=7)
    stream = hashlib.shake_256(b"securevfl linkage hamming v1").digest(4 * 35)
    places = [int.from_bytes(stream[i : i + 4], "little") % 1024 for i in range(0, 140, 4)]
    dense = bits(encoded)
    for row in range(4):
        for table in range(5):
            text = "".join(str(int(dense[row, place])) for place in places[7 * table : 7 * table + 7])
            assert int(tokens[row, table]) == int(text, 2) + 1
    with pytest.raises(LinkageError, match="1 to 48"):
        hamming_tokens(encoded, bits=60)
