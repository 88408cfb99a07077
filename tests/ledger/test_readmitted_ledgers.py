"""What signed re-admissions excuse in an audit, and what they do not: attempts to hide lines behind them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from securevfl.auditing.audit import audit
from securevfl.errors import AuditError
from securevfl.ledger import Ledger, OwnLedgers, PrivateKey, Readmission, grant_readmission, sign_request
from securevfl.transport import Kind, Message

NAMES = ("bank", "shop", "mill")
KEYS = {name: PrivateKey.generate() for name in NAMES}
AGREEMENT, OTHER = "a1" * 32, "b2" * 32


class Party:
    """A party's ledger file over several attempts."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name, self.path = name, folder / f"{name}.jsonl"
        self.ledger: Ledger
        self.start()

    def start(self, readmitted: tuple[Readmission, ...] = ()) -> None:
        self.own = OwnLedgers(self.name, KEYS[self.name], self.path, readmitted=readmitted)

    def begin(self, attempt: int) -> None:
        opener = self.own.attempt_opener(attempt, f"{attempt:02}" * 16)
        role = "active" if self.name == "bank" else "passive"
        self.ledger = opener.open(self.name, run=f"train {attempt}", job="ab", role=role)
        self.ledger.record_note("agreement", {"agreement": AGREEMENT})

    def stop(self) -> None:
        """What the system does with a killed process's file."""
        assert self.ledger._file is not None
        self.ledger._file.close()


def meet(parties: Mapping[str, Party], attempt: int) -> None:
    """All begin an attempt, and send each other one message."""
    for party in parties.values():
        party.begin(attempt)
    for party in parties.values():
        others = {one.name: one for one in parties.values() if one is not party}
        party.ledger.record_peers(
            {name: (one.ledger.opening.role, one.ledger.introduction) for name, one in others.items()}
        )
    for sender in parties.values():
        for receiver in parties.values():
            if sender is not receiver:
                say(sender, receiver, attempt)


def say(sender: Party, receiver: Party, value: float) -> None:
    message = Message(Kind.CONTROL, "consent/terms", {}, {"value": value})
    sender.ledger.record("sent", receiver.name, message, 10)
    receiver.ledger.record("received", sender.name, message, 10)


def publish_heads(parties: Mapping[str, Party]) -> None:
    """Each gives its signed head to all others, as at a checkpoint."""
    for giver in parties.values():
        word = giver.own.sign_head(giver.ledger)
        for taker in parties.values():
            if taker is not giver:
                taker.ledger.record_head(giver.name, word)


def grants_to(name: str, by: tuple[str, ...], *, agreement: str = AGREEMENT) -> tuple[Readmission, ...]:
    request = sign_request(agreement, name, 0, KEYS[name])
    return tuple(grant_readmission(request, one, KEYS[one], agreed=1, starts=1, head="") for one in by)


def run_parties(folder: Path, names: tuple[str, ...]) -> dict[str, Party]:
    """One attempt that was parked."""
    parties = {name: Party(name, folder) for name in names}
    meet(parties, 1)
    publish_heads(parties)
    return parties


def stop_all(parties: Mapping[str, Party], *, but: str) -> None:
    for party in parties.values():
        party.stop() if party.name == but else party.ledger.close("parked")


def come_back(parties: Mapping[str, Party], name: str, grants: tuple[Readmission, ...], kept: bytes = b"") -> None:
    """The party goes on with a file that contains `kept`, and all take part in a second attempt."""
    parties[name].path.write_bytes(kept) if kept else parties[name].path.unlink()
    parties[name].start(grants)
    meet(parties, 2)
    publish_heads(parties)
    for party in parties.values():
        party.ledger.close("parked")


@pytest.mark.parametrize("cut", [0, 2, 4])
def test_a_restored_party_lacks_lines_without_a_flaw(tmp_path: Path, cut: int) -> None:
    parties = run_parties(tmp_path, ("bank", "shop"))
    kept = b"".join(parties["shop"].path.read_bytes().splitlines(keepends=True)[:cut])
    stop_all(parties, but="shop")
    come_back(parties, "shop", grants_to("shop", ("bank",)), kept)
    assert any("its peers admitted it again" in line for line in audit(tmp_path).incomplete)


def test_grants_under_another_agreement_excuse_nothing(tmp_path: Path) -> None:
    parties = run_parties(tmp_path, ("bank", "shop"))
    stop_all(parties, but="shop")
    come_back(parties, "shop", grants_to("shop", ("bank",), agreement=OTHER))
    with pytest.raises(AuditError, match="it was removed"):
        audit(tmp_path)


def test_one_accomplice_excuses_nothing_towards_the_third(tmp_path: Path) -> None:
    """Shop and mill hide from the bank's audit that shop took part: its ledger names mill alone as a peer."""
    parties = run_parties(tmp_path, NAMES)
    stop_all(parties, but="shop")
    shop = parties["shop"]
    shop.path.unlink()
    shop.start(grants_to("shop", ("mill",)))
    shop.begin(2)
    shop.ledger.record_peers({"mill": ("passive", parties["mill"].ledger.introduction)})
    shop.ledger.close("parked")
    with pytest.raises(AuditError, match="it was removed"):
        audit(tmp_path)


def test_a_grant_excuses_no_rewritten_chain(tmp_path: Path) -> None:
    """The readmitted party writes the attempt again to its end, with another note, against the head that it signed."""
    parties = {name: Party(name, tmp_path) for name in ("bank", "shop")}
    meet(parties, 1)
    parties["shop"].ledger.record_note("opened values", {"numbers": 9000})
    publish_heads(parties)
    stop_all(parties, but="nobody")
    shop = parties["shop"]
    session, ways = shop.ledger.opening.session, [entry.way for entry in shop.ledger.entries]
    shop.path.unlink()
    forged = Ledger("shop", run="train 1", job="ab", role="passive", key=KEYS["shop"], path=shop.path, session=session)
    forged.record_attempt(1, "01" * 16)
    forged.record_note("agreement", {"agreement": AGREEMENT})
    forged.record_peers({"bank": ("active", parties["bank"].ledger.introduction)})
    for way in ways:
        forged.record(way, "bank", Message(Kind.CONTROL, "consent/terms", {}, {"value": 1}), 10)
    forged.record_note("opened values", {"numbers": 1})
    forged.close("parked")
    come_back(parties, "shop", grants_to("shop", ("bank",)), shop.path.read_bytes())
    with pytest.raises(AuditError, match="recorded its signed head"):
        audit(tmp_path)
