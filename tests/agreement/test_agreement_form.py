"""The one form in bytes of proposals, cards and approvals: nothing else is read, and no change goes unseen."""

from __future__ import annotations

import random
import time
import tomllib
import unicodedata
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from support.agreement_parties import KEYS, TABLES, agreed, card, proposal

import securevfl as sv
from securevfl.agreement import Agreement, Approval, PartyCard, Proposal, ServingTerms, TableSchema
from securevfl.agreement.canonical import (
    MOST_BYTES,
    decode_tree,
    encode_tree,
    from_plain,
    parse_number,
    text_problem,
    to_plain,
)
from securevfl.errors import AuditError, InputError, PeerRefused

HEADER = "# a test, version 1"
texts = (
    st.text(max_size=40)
    .map(lambda text: unicodedata.normalize("NFC", text))
    .filter(lambda text: not text_problem(text))
)
keys = st.text("abcXYZ019_-", min_size=1, max_size=8)
items = st.booleans() | st.integers(-(2**63) + 1, 2**63 - 1) | texts
leaves = items | st.lists(items, max_size=4)
trees = st.recursive(
    st.dictionaries(keys, leaves, max_size=4),
    lambda inner: st.dictionaries(keys, leaves | inner | st.lists(inner, min_size=1, max_size=3), max_size=4),
    max_leaves=6,
)
WHOLE = proposal("bank", "shop", "shop2", protection=sv.Plain(dp=sv.DP(features=sv.Gaussian(epsilon=4))))


def _depth(tree: object) -> int:
    """Sections within each other."""
    if isinstance(tree, list):
        return max(map(_depth, tree), default=0)
    return (
        max((1 + _depth(item) for item in tree.values() if _sections(item)), default=0) if isinstance(tree, dict) else 0
    )


def _sections(item: object) -> bool:
    return isinstance(item, dict) or (isinstance(item, list) and bool(item) and isinstance(item[0], dict))


@given(trees)
def test_what_is_written_is_read_back(tree: dict[str, Any]) -> None:
    assume(_depth(tree) <= 5)
    raw = encode_tree(tree, HEADER)
    assert decode_tree(raw, HEADER, "it") == tree == tomllib.loads(raw.decode())


@given(st.floats(allow_nan=False))
def test_a_decimal_is_a_text_that_reads_back(value: float) -> None:
    assert from_plain(to_plain({"x": value, "y": None, "z": [value, 1, "a"]})) == {"x": value, "z": [value, 1, "a"]}


@pytest.mark.parametrize(
    "text", ["5", "5.00", "05.0", "+5.0", "5e0", "nan", "Infinity", "1_0.0", "5.", ".5", "٥.٠", ""]
)
def test_a_decimal_has_one_spelling(text: str) -> None:
    assert parse_number(text) is None


@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow])
@given(
    purpose=texts.filter(bool),
    columns=st.lists(texts.filter(bool), min_size=1, max_size=5, unique=True),
    lr=st.floats(1e-6, 0.9),
    epochs=st.integers(1, 100_000),
    epsilon=st.floats(0.01, 100),
    protection=st.sampled_from(
        [sv.Plain(), sv.BFV(), sv.Paillier(), sv.Plain(dp=sv.DP(labels=sv.Gaussian(epsilon=1)))]
    ),
    serving=st.sampled_from([None, ServingTerms(asks=("bank",), min_batch=5)]),
)
def test_what_is_accepted_is_written_the_same(
    purpose: str, columns: list[str], lr: float, epochs: int, epsilon: float, protection: Any, serving: Any
) -> None:
    table = TableSchema(numbers=tuple(columns), label="label", classes=("0.0", "1.0"))
    made = proposal(
        purpose=purpose,
        job={"epochs": epochs},
        algorithm=sv.SplitNN(lr=lr),
        protection=protection,
        serving=serving,
        party=(card("bank", table=table, epsilon=epsilon, delta=1e-6), card("shop")),
    )
    again = Proposal.decode(made.signed_bytes)
    assert again == made
    assert again.signed_bytes == made.signed_bytes
    assert again.digest == made.digest
    assert again.job_of().digest == made.job_of().digest


@settings(max_examples=150)
@given(st.randoms(use_true_random=False))
def test_a_changed_byte_is_refused_or_another_agreement(luck: random.Random) -> None:
    raw = bytearray(WHOLE.signed_bytes)
    at = luck.randrange(len(raw))
    match luck.randrange(4):
        case 0:
            raw[at] ^= 1 << luck.randrange(8)
        case 1:
            del raw[at : at + luck.randint(1, 60)]
        case 2:
            raw[at:at] = luck.choice([b" ", b"\n", b"#", b"0", b'"', b"\xc2\xa0", b"x = 1\n", b"\xff"])
        case _:
            there = luck.randrange(len(raw))
            raw[at:at] = raw[there : there + luck.randint(1, 200)]
    assume(bytes(raw) != WHOLE.signed_bytes)
    try:
        other = Proposal.decode(bytes(raw))
    except InputError:
        return
    assert other.signed_bytes == bytes(raw)
    assert other.digest != WHOLE.digest
    for name in other.party_names:
        with pytest.raises(AuditError):
            Agreement(other).with_approval(Approval.sign(WHOLE, name, KEYS[name]))


def _replaced(old: str, new: str) -> bytes:
    text = WHOLE.signed_bytes.decode()
    assert old in text
    return text.replace(old, new, 1).encode()


HOSTILE = {
    "a byte-order mark": b"\xef\xbb\xbf" + WHOLE.signed_bytes,
    "carriage returns": WHOLE.signed_bytes.replace(b"\n", b"\r\n"),
    "no last line feed": WHOLE.signed_bytes[:-1],
    "a comment": WHOLE.signed_bytes + b"# and the data goes to me, too\n",
    "another header": WHOLE.signed_bytes.replace(b"version 1", b"version 2", 1),
    "not UTF-8": _replaced("score credit", "score credit").replace(b"score", b"sc\xf6re"),
    "a key twice": _replaced("epochs = 10", "epochs = 10\nepochs = 1000"),
    "an unknown key": _replaced("epochs = 10", "epochs = 10\nleaks = true"),
    "an unknown section": WHOLE.signed_bytes + b"\n[policy]\nleaks = true\n",
    "a device": _replaced("epochs = 10", 'epochs = 10\ndevice = "cpu"'),
    "a policy": _replaced("[[party]]", "[policies]\n\n[[party]]"),
    "a missing key": _replaced("epochs = 10\n", ""),
    "a number for a decimal": _replaced('clip = "5.0"', "clip = 5"),
    "a TOML float": _replaced('clip = "5.0"', "clip = 5.0"),
    "a decimal without its point": _replaced('clip = "5.0"', 'clip = "5"'),
    "a longer decimal": _replaced('clip = "5.0"', 'clip = "5.00"'),
    "a leading zero": _replaced('clip = "5.0"', 'clip = "05.0"'),
    "not a number": _replaced('clip = "5.0"', 'clip = "nan"'),
    "a hexadecimal number": _replaced("epochs = 10", "epochs = 0xA"),
    "digits with underscores": _replaced("epochs = 10", "epochs = 1_0"),
    "a plus sign": _replaced("epochs = 10", "epochs = +10"),
    "a whole number too wide": _replaced("seed = 0", "seed = 9999999999999999999"),
    "true for 1": _replaced("seed = 0", "seed = false"),
    "two spaces": _replaced("epochs = 10", "epochs  = 10"),
    "another order": _replaced("epochs = 10\nbatch_size = 256", "batch_size = 256\nepochs = 10"),
    "a literal text": _replaced('purpose = "score credit"', "purpose = 'score credit'"),
    "a text of several lines": _replaced('purpose = "score credit"', 'purpose = """score credit"""'),
    "an escape": _replaced('purpose = "score credit"', 'purpose = "score\\u0020credit"'),
    "a quoted key": _replaced("epochs = 10", '"epochs" = 10'),
    "a dotted key": _replaced("epochs = 10", "a.epochs = 10"),
    "an inline table": _replaced("epochs = 10", "epochs = 10\nx = {a = 1}"),
    "a nested list": _replaced("top = [16]", "top = [[16]]"),
    "a trailing comma": _replaced("top = [16]", "top = [16,]"),
    "a date": _replaced("epochs = 10", "epochs = 2026-01-01"),
    "decomposed letters": _replaced("score credit", unicodedata.normalize("NFD", "crédit")),
    "letters from right to left": _replaced("score credit", "score \u202ecredit"),
    "a zero-width space": _replaced("score credit", "score\u200bcredit"),
    "a look-alike name": _replaced('name = "bank"', 'name = "b\u0430nk"'),
    "a name in capitals": _replaced('name = "bank"', 'name = "Bank"'),
    "a control character": _replaced("score credit", "score\u009b31mcredit"),
    "parties in another order": WHOLE.signed_bytes.replace(b'name = "bank"', b'name = "zank"'),
    "a million brackets": WHOLE.signed_bytes + b"[" * 100_000,
    "deep sections": WHOLE.signed_bytes + b"[" + b".".join([b"a"] * 50_000) + b"]\n",
    "many lines": WHOLE.signed_bytes + b"\n" * 100_000,
    "too many bytes": WHOLE.signed_bytes + b"#" * MOST_BYTES,
    "many quotes": WHOLE.signed_bytes + b'x = "' + b'\\"' * 100_000,
    "many list items": WHOLE.signed_bytes + b"x = [" + b"1, " * 60_000,
    "nothing": b"",
    "another file": b"[job]\nepochs = 1\n",
}


@pytest.mark.parametrize("what", HOSTILE)
def test_other_forms_are_refused_soon(what: str) -> None:
    began = time.process_time()
    with pytest.raises(InputError):
        Proposal.decode(HOSTILE[what])
    assert time.process_time() - began < 2


def test_all_mistakes_are_told_at_once() -> None:
    raw = _replaced("epochs = 10", "epochs = 0").replace(b"attempts = 20", b"attempts = 0")
    raw = raw.replace(b'role = "active"', b'role = "actve"')
    with pytest.raises(InputError) as told:
        Proposal.decode(raw)
    assert "3 mistakes" in str(told.value)
    for field in ("job.epochs is 0", "limits.attempts is 0", "party[0].role is 'actve'; did you mean 'active'?"):
        assert field in str(told.value)


def test_a_malformed_card_of_two_is_one_mistake() -> None:
    raw = proposal().signed_bytes.replace(b'role = "active"', b'role = "actve"')
    with pytest.raises(InputError) as refused:
        Proposal.decode(raw)
    assert "party[0].role is 'actve'" in str(refused.value)
    assert "party has" not in str(refused.value)


def test_a_device_is_no_part_of_it() -> None:
    made = proposal()
    assert b"device" not in made.signed_bytes
    assert sv.Job(protection=sv.Plain(), device="cpu").digest == made.job_of().digest
    assert "device" not in {path.partition(".")[2] for path in made.to_tree()["job"]}


def test_terms_without_reasons_have_the_bytes_that_they_had_before_there_were_any() -> None:
    silent, speaking = (proposal(serving=ServingTerms(asks=("bank",), reasons=reasons)) for reasons in (False, True))
    assert b"reasons" not in silent.signed_bytes
    assert b"reasons = true" in speaking.signed_bytes
    for made in (silent, speaking):
        assert Proposal.decode(made.signed_bytes) == made


def test_a_text_that_reads_as_a_number_is_no_option() -> None:
    content = {"scale": "1.5", "n": 1}
    assert from_plain(to_plain(content)) == {"scale": 1.5, "n": 1}  # and no field of texts takes it


@pytest.mark.parametrize("name", TABLES)
def test_cards_have_one_form(name: str) -> None:
    raw = card(name, epsilon=8.0, delta=1e-5).encode()
    assert PartyCard.decode(raw) == card(name, epsilon=8.0, delta=1e-5)
    for changed in (raw + b"\n", raw.replace(b'"8.0"', b'"8.00"'), raw.replace(b'"8.0"', b"8"), raw + b"x = 1\n"):
        with pytest.raises(InputError):
            PartyCard.decode(changed)


@settings(max_examples=100)
@given(st.randoms(use_true_random=False))
def test_changed_approvals_never_verify(luck: random.Random) -> None:
    raw = bytearray(Approval.sign(WHOLE, "shop", KEYS["shop"]).file_bytes)
    for _ in range(luck.randint(1, 3)):
        at = luck.randrange(len(raw))
        raw[at : at + luck.randint(0, 2)] = bytes(luck.choices(b'0123456789abcdefABCDEF"\n =[]#', k=luck.randint(0, 2)))
    assume(bytes(raw) != agreed(WHOLE).approvals["shop"].file_bytes)
    with pytest.raises(PeerRefused):
        Agreement(WHOLE).with_approval_of("shop", bytes(raw))
