"""Signatures of an agreement: each is one party's, over one proposal, and nothing else passes for it."""

from __future__ import annotations

import secrets
from pathlib import Path

import pytest
from support.agreement_parties import CERTIFICATES, KEYS, agreed, card, proposal

import securevfl as sv
from securevfl.agreement import Agreement, Approval, TableSchema, approval_path, read_agreement, write_approval
from securevfl.agreement.approvals import SIGNED
from securevfl.errors import AuditError, InputError, PeerRefused, SecureVFLError
from securevfl.privacy import Ledger, PrivateKey


def test_an_agreement_is_complete_with_every_party() -> None:
    made = proposal("bank", "shop", "shop2")
    found = Agreement(made)
    assert found.missing_parties == ("bank", "shop", "shop2")
    for name in ("shop2", "bank", "shop"):
        with pytest.raises(InputError, match="not approved by"):
            found.require_all()
        found = found.with_approval_of(name, Approval.sign(made, name, KEYS[name]).file_bytes)
    found.require_all()
    assert found.is_complete
    assert set(found.ledger_note()) == {
        "agreement",
        "id",
        "signature of bank",
        "signature of shop",
        "signature of shop2",
    }
    assert all(len(text) < 4000 for text in found.ledger_note().values())


def test_the_note_fits_into_a_ledger() -> None:
    ledger = Ledger("bank", run="r", job="00")
    ledger.record_note("agreement", agreed(proposal("bank", "shop", "shop2")).ledger_note())
    assert "signature of shop2" in ledger.lines[-1].values  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "change",
    [
        {"purpose": "sell the data"},
        {"id": secrets.token_hex(16)},
        {"job": {"epochs": 11}},
        {"protection": sv.Plain(dp=sv.DP(features=sv.Gaussian(epsilon=4)))},
        {"algorithm": sv.SplitNN(lr=0.010000000000000002)},
        {"party": (card("bank"), card("shop", table=TableSchema(numbers=2)))},
        {"party": (card("bank"), card("shop", epsilon=8.0, delta=1e-5))},
    ],
)
def test_an_approval_is_of_one_proposal(change: dict[str, object]) -> None:
    first = proposal(id="0" * 32)
    second = proposal(**({"id": "0" * 32} | change))  # type: ignore[arg-type]
    assert first.digest != second.digest
    old = Approval.sign(first, "shop", KEYS["shop"])
    with pytest.raises(AuditError, match="approval of another one, or of an older version"):
        Agreement(second).with_approval(old)
    with pytest.raises(AuditError, match="does not verify"):  # its digest replaced, its signature kept
        Agreement(second).with_approval(old.replace(agreement=second.digest))


def test_signatures_cannot_be_transplanted() -> None:
    made = proposal("bank", "shop", "shop2")
    shops = Approval.sign(made, "shop", KEYS["shop"])
    with pytest.raises(AuditError, match="does not verify"):
        Agreement(made).with_approval(shops.replace(party="bank"))
    with pytest.raises(PeerRefused, match="each party sends its own") as refused:
        Agreement(made).with_approval_of("bank", shops.file_bytes)
    assert refused.value.code == "wrong-approval"
    with pytest.raises(AuditError, match="not a party of the agreement"):
        Agreement(made).with_approval(shops.replace(party="mallory"))
    with pytest.raises(AuditError, match="is listed under"):
        Agreement(made, {"bank": shops})


def test_a_signature_over_something_else_is_none() -> None:
    made, key = proposal(), KEYS["shop"]
    for kind, content in (
        (SIGNED + ";", made.signed_bytes),
        ("application/vnd.securevfl.ledger.head+json;version=3", made.signed_bytes),
        (SIGNED, made.digest.encode()),
        (SIGNED, bytes.fromhex(made.digest)),
        (SIGNED, made.signed_bytes + b"\n"),
    ):
        forged = Approval(agreement=made.digest, party="shop", signature=key.sign(kind, content))
        with pytest.raises(AuditError, match="does not verify"):
            Agreement(made).with_approval(forged)
    bare = key.ed25519.sign(made.signed_bytes).hex()
    with pytest.raises(AuditError, match="does not verify"):
        Agreement(made).with_approval(Approval(agreement=made.digest, party="shop", signature=bare))


def test_only_the_named_key_signs() -> None:
    with pytest.raises(InputError, match="sign with the key of the card"):
        Approval.sign(proposal(), "shop", PrivateKey.generate())
    with pytest.raises(InputError, match="party of the agreement"):
        Approval.sign(proposal(), "shop2", KEYS["shop2"])


@pytest.mark.parametrize(
    ("cards", "words"),
    [
        ((card("bank"), card("shop", signing_key=KEYS["bank"].public_key.hex)), "the same signing key"),
        ((card("bank"), card("bank")), "list each once"),
        ((card("shop"), card("bank")), "alphabetical"),
        ((card("shop"), card("shop2")), "no party is active"),
        ((card("bank"),), "2 to 60"),
    ],
)
def test_parties_are_told_apart(cards: tuple[object, ...], words: str) -> None:
    with pytest.raises(InputError, match=words):
        proposal(party=cards)


def test_a_certificate_names_its_party() -> None:
    with pytest.raises(InputError, match="not one of the party 'shop' alone"):
        card("shop", certificates=(CERTIFICATES["bank"],))


def test_names_that_look_alike_are_refused() -> None:
    from securevfl.agreement.proposal import _find_lookalikes

    for one, other in (("bank1", "bankl"), ("sh0p", "shop"), ("mi-x", "ml_x"), ("barn", "bam"), ("s5", "ss")):
        assert _find_lookalikes([one, other]) is not None
    assert _find_lookalikes(["bank", "shop", "shop2", "a", "b"]) is None


def test_files_are_read_beside_the_agreement(tmp_path: Path) -> None:
    made = proposal()
    file = tmp_path / "agreement.toml"
    file.write_bytes(made.signed_bytes)
    assert read_agreement(file).missing_parties == ("bank", "shop")
    for name in made.party_names:
        write_approval(file, Approval.sign(made, name, KEYS[name]))
    assert read_agreement(file).is_complete
    approval_path(file, "shop").write_bytes(Approval.sign(proposal(), "shop", KEYS["shop"]).file_bytes)
    with pytest.raises(AuditError, match=r"shop\.approval: 'shop' approved agreement"):
        read_agreement(file)
    approval_path(file, "shop").write_bytes(b"x" * 5000)
    with pytest.raises(SecureVFLError, match="more than 1,024 bytes"):
        read_agreement(file)
