"""Statements of the end: who may make one, what counts, and what a note may contain."""

from __future__ import annotations

import msgspec
import pytest
from securevfl_net.incarnation import Incarnation

from securevfl.errors import AuditError, ProtocolError
from securevfl.party.attempts import Attempts
from securevfl.party.finish import Finish, Statement, decode_statements, encode_statements
from securevfl.party.reports import Report
from securevfl.privacy import PrivateKey

KEYS = {name: PrivateKey.generate() for name in ("bank", "shop", "web")}
PEERS = ("shop", "web")
AGREEMENT = "ab" * 32
MARK, OTHER = b"m" * 16, b"o" * 16


def signed(
    party: str, mark: bytes = MARK, *, signer: str = "", attempt: int = 1, agreement: str = AGREEMENT
) -> Statement:
    one = Statement(party, agreement, attempt, mark, head="12", model="34")
    return msgspec.structs.replace(one, signature=KEYS[signer or party].sign("finished", one.signed_content))


def check(one: Statement) -> None:
    if one.agreement != AGREEMENT:
        raise ValueError("another agreement")
    try:
        KEYS[one.party].public_key.verify("finished", one.signed_content, one.signature)
    except AuditError as error:
        raise ValueError(str(error)) from None


def finished() -> Finish:
    found = Finish("bank", PEERS, check=check)
    found.state_own(signed("bank"))
    return found


def test_statements_count_for_one_attempt_only() -> None:
    found = Finish("bank", PEERS, check=check)
    assert not found.take_note("shop", encode_statements([signed("shop")]))
    found.state_own(signed("bank"))
    assert set(found.statements) == {"bank", "shop"}  # it came before this party had finished
    assert not found.take_note("web", encode_statements([signed("web", OTHER)]))
    assert found.unfinished == ("web",)
    assert found.take_note("shop", encode_statements([signed("shop"), signed("web", attempt=2)]))
    assert found.is_complete
    found.withdraw()
    assert not found.is_complete
    assert found.statements == {}


def test_only_everybodys_statements_confirm() -> None:
    found = finished()
    found.take_note("shop", encode_statements([signed("shop"), signed("web")]))
    assert found.is_complete
    assert [*found.unconfirmed] == [*PEERS]
    found.take_note("shop", encode_statements([signed("bank"), signed("shop"), signed("web", OTHER)]))
    assert [*found.unconfirmed] == [*PEERS]
    found.take_note("shop", encode_statements([signed("bank"), signed("shop"), signed("web")]))
    assert [*found.unconfirmed] == ["web"]
    found.take_goodbye("web")
    assert not found.unconfirmed
    found.take_arrival("web")
    assert [*found.unconfirmed] == ["web"]


@pytest.mark.parametrize(
    "forged",
    [
        signed("web", signer="shop"),
        msgspec.structs.replace(signed("web"), attempt=2),
        msgspec.structs.replace(signed("web"), model="35"),
        msgspec.structs.replace(signed("web"), head=""),
        msgspec.structs.replace(signed("web"), mark=OTHER),
        msgspec.structs.replace(signed("web"), signature=""),
        signed("web", agreement="cd" * 32),
    ],
)
def test_nobody_states_the_end_of_another(forged: Statement) -> None:
    found = finished()
    with pytest.raises(ProtocolError, match="'shop' sent no valid statement of its end") as caught:
        found.take_note("shop", encode_statements([signed("shop"), forged]))
    assert caught.value.party == "shop"
    assert "web" in found.unfinished


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"\xc1",
        encode_statements([signed("shop")])[:-1],
        encode_statements([signed("shop"), signed("shop")]),
        encode_statements([msgspec.structs.replace(signed("web"), party="nobody")]),
        encode_statements([msgspec.structs.replace(signed("web"), mark=b"short")]),
        encode_statements([signed("shop")] * 65),
    ],
)
def test_what_is_no_list_of_statements_is_refused(payload: bytes) -> None:
    with pytest.raises(ProtocolError, match="no valid statement"):
        finished().take_note("shop", payload)


def test_a_statement_that_this_party_has_forgotten_shows_that_files_are_missing() -> None:
    note = encode_statements([signed("bank", attempt=3), signed("shop", attempt=3)])
    found = Finish("bank", PEERS, check=check)
    found.take_note("shop", note)
    assert found.find_later(note, begun=2) == 3
    assert found.find_later(note, begun=3) == 0
    assert {one.party for one in decode_statements(note)} == {"bank", "shop"}


@pytest.mark.parametrize(
    ("marks", "admitted"), [(("", ""), True), (("6d", "6d"), False), (("6d", ""), True), (("6d", "6f"), True)]
)
def test_who_finished_together_takes_part_in_no_attempt(marks: tuple[str, str], admitted: bool) -> None:
    """Also where all reports arrive before any statement."""
    own = Incarnation.start_after(0)
    reports = {
        name: Report(incarnation=str(own), finished=mark) for name, mark in zip(("bank", "shop"), marks, strict=True)
    }
    assert Attempts(own).admits(reports) is admitted
