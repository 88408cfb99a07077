"""`securevfl init --card`: a second party's own file, drafted to fit the first one's card."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from securevfl_net.identity.making import Key, self_signed
from support.mistakes.making import say

import securevfl as sv
from securevfl.agreement import PartyCard, TableSchema, draft_party, read_party_file
from securevfl.agreement.cards import certificate_text
from securevfl.align.result import RULES
from securevfl.ledger import make_key

NOW = datetime.now(UTC)
LABELLED = TableSchema(numbers=("age", "income"), categories=("region",), label="late", classes=("0", "1"))


@pytest.fixture(scope="module")
def card(tmp_path_factory: pytest.TempPathFactory) -> PartyCard:
    folder = tmp_path_factory.mktemp("keys")
    return PartyCard(
        name="bank",
        role="active",
        signing_key=make_key("bank", folder).public_key.hex,
        certificates=(certificate_text(self_signed("bank", Key.generate(), NOW)),),
        table=LABELLED,
    )


def _table(folder: Path, header: str = "customer,age,spent,late") -> Path:
    rows = [f"P{i},{20 + i % 40},{i / 7:.2f},{i % 2}" for i in range(60)]
    (folder / "shop.csv").write_text("\n".join([header, *rows]) + "\n", encoding="utf-8")
    return folder / "shop.csv"


def test_a_draft_fits_the_card(card: PartyCard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    draft = draft_party(_table(tmp_path), [card], tmp_path, now=NOW)
    (tmp_path / "bank.card").write_bytes(card.encode())
    code, said = say("init shop.csv --card bank.card")
    assert code == 0, said
    assert all(note in said for note in draft.notes)
    assert (tmp_path / "shop.toml").read_text(encoding="utf-8") == draft.text
    assert len(draft.missing) == 1
    with pytest.raises(sv.InputError, match="dial is"):
        read_party_file(tmp_path / "shop.toml")
    (tmp_path / "shop.toml").write_text(draft.text.replace("FILL IN", "bank.example:7443"), encoding="utf-8")
    own = read_party_file(tmp_path / "shop.toml")
    assert own.party == "shop"
    assert own.data is not None
    assert (own.data.id, own.data.label, own.data.features) == ("customer", None, ("age", "spent"))
    assert own.policy.protections == frozenset(("bfv", "ckks", "paillier", "shares"))
    assert own.peers["bank"].dial == "bank.example:7443"
    assert own.peers["bank"].signed_by is None, "a fingerprint that a file brought is not confirmed"
    assert any("has the label 'late'" in note for note in draft.notes)
    assert any("same names: age, late" in note or "same names: age" in note for note in draft.notes)
    assert "column 'late' is left out: it is called as a peer's label is" in draft.notes


def test_a_party_with_the_label_listens_for_a_passive_card(card: PartyCard, tmp_path: Path) -> None:
    passive = card.replace(role="passive", table=TableSchema(numbers=3))
    draft = draft_party(_table(tmp_path), [passive], tmp_path, now=NOW)
    assert not draft.missing
    assert 'label = "late"' in draft.text
    assert 'listen = "0.0.0.0:7443"' in draft.text
    unsure = draft_party(_table(tmp_path, "customer,age,spent,flag"), [passive], tmp_path, now=NOW)
    assert "--label shop.flag" in unsure.missing[0]


@pytest.mark.parametrize(
    ("change", "options", "words"),
    [
        ({}, {"name": "bank"}, "two parties are called 'bank'"),
        ({}, {"label": ["late"]}, "'bank' has the label already"),
        ({}, {"id": ["customer", "age"]}, "--id names 2 columns .*of 1: name as many"),
        ({"identifiers": replace(RULES, columns=2).tag()}, {"id": ["customer"]}, "--id names 1 column .*of 2"),
        ({"identifiers": "v1/NFC"}, {}, "'bank' normalises identifiers by 'v1/NFC', this release by 'v2/NFKC/strip'"),
        (
            {},
            {"now": NOW + timedelta(days=4000)},
            "certificate in the card of 'bank' ended at .*securevfl certs rotate",
        ),
    ],
)
def test_what_does_not_fit_is_told_before_anything_is_written(
    card: PartyCard, tmp_path: Path, change: dict[str, str], options: dict[str, object], words: str
) -> None:
    other = card.replace(table=LABELLED.replace(**change))
    with pytest.raises(sv.InputError, match=words):
        draft_party(_table(tmp_path), [other], tmp_path, **({"now": NOW} | options))  # type: ignore[arg-type]


def test_identifiers_of_several_columns_are_asked_for(card: PartyCard, tmp_path: Path) -> None:
    two = card.replace(table=LABELLED.replace(identifiers=replace(RULES, columns=2).tag()))
    draft = draft_party(_table(tmp_path), [two], tmp_path, now=NOW)
    assert "the peers' identifiers are of 2 columns" in draft.missing[0]
    assert 'id = "FILL IN"' in draft.text
    named = draft_party(_table(tmp_path), [two], tmp_path, now=NOW, id=["customer", "age"])
    assert 'id = ["customer", "age"]' in named.text
