"""Refused connections stand in the ledger of the party that saw them, with their names, and fill no disk."""

from __future__ import annotations

from pathlib import Path

import pytest

from securevfl.auditing.audit import audit
from securevfl.errors import AuditError
from securevfl.ledger import NoteLine
from securevfl.party.reports import View
from securevfl.privacy import PrivateKey, read_lines
from securevfl.process.chains import Chains
from securevfl.process.refused_connections import NOTE, Refusals
from securevfl.transport import Kind, Message

KEY = PrivateKey.generate()


def _chains(folder: Path) -> Chains:
    (folder / "ledgers").mkdir(exist_ok=True)
    return Chains("bank", KEY, folder / "ledgers", "securevfl test", {})


def _told(folder: Path) -> list[tuple[str, str, int]]:
    lines = [line for _, line in read_lines(folder / "ledgers" / "bank.jsonl")]
    notes = [line.values for line in lines if isinstance(line, NoteLine) and line.note == NOTE]
    return [(str(note["peer"]), str(note["code"]), int(note["times"])) for note in notes]


def _refuse(refusals: Refusals, peer: str, code: str, times: int = 1) -> None:
    for _ in range(times):
        refusals.report_event("refused", f"{peer} was refused", peer=peer, code=code)


def test_refusals_before_any_attempt_are_kept_and_the_file_goes_on(tmp_path: Path) -> None:
    first = Refusals(_chains(tmp_path), 1)
    _refuse(first, "shop", "expired", 3)
    _refuse(first, "", "unknown-ca")
    first.report_event("up", "shop is connected", peer="shop")
    first.record_rest()
    assert _told(tmp_path) == [("shop", "expired", 3), ("", "unknown-ca", 1)]
    second = Refusals(_chains(tmp_path), 2)
    _refuse(second, "shop", "revoked")
    second.record_rest()
    second.record_rest()
    assert _told(tmp_path)[2:] == [("shop", "revoked", 1)]
    assert [(c.run, c.flaws) for c in audit(tmp_path).chains] == [("connections 1", []), ("connections 2", [])]


def test_a_port_scan_of_ten_thousand_calls_takes_a_few_lines(tmp_path: Path) -> None:
    chains = _chains(tmp_path)
    refusals = Refusals(chains, 1)
    view = View(mark=bytes(16), attempt=1, start=None, alignment="")
    ledger = chains.attempt_ledgers(view).open("bank", run="train", job="ab", role="active")
    _refuse(refusals, "", "no-certificate", 10_000)
    assert len(_told(tmp_path)) < 8
    for number in range(200):
        _refuse(refusals, "", f"code {number}")
    refusals.write_to(ledger)
    ledger.close()
    refusals.record_rest()
    assert sum(times for _, _, times in _told(tmp_path)) == 10_200
    assert len(_told(tmp_path)) < 90


@pytest.mark.parametrize("at_once", [True, False])
def test_a_refusal_is_on_disk_at_once_where_a_chain_is_open(tmp_path: Path, at_once: bool) -> None:
    chains = _chains(tmp_path)
    refusals = Refusals(chains, 1)
    view = View(mark=bytes(16), attempt=1, start=None, alignment="")
    opened = chains.attempt_ledgers(view)
    if not at_once:
        _refuse(refusals, "shop", "other-name")
    ledger = opened.open("bank", run="train", job="ab", role="active")
    refusals.write_to(ledger)
    if at_once:
        _refuse(refusals, "shop", "other-name")
    assert _told(tmp_path) == [("shop", "other-name", 1)]
    ledger.close()


def test_a_chain_of_no_attempt_may_hold_no_message(tmp_path: Path) -> None:
    """Or a party could keep what it sent out of the chains that its peers know."""
    chains = _chains(tmp_path)
    chain = chains.open_separate("connections 1")
    chain.record("sent", "shop", Message(Kind.CONTROL, "party/consent", {}, {}), 10)
    chain.close()
    with pytest.raises(AuditError, match="run 'connections 1' belongs to no attempt but contains messages"):
        audit(tmp_path)


def test_a_start_in_vain_after_a_kill_is_no_tampering(tmp_path: Path) -> None:
    chains = _chains(tmp_path)
    view = View(mark=bytes(16), attempt=1, start=None, alignment="")
    killed = chains.attempt_ledgers(view).open("bank", run="train", job="ab", role="active")
    assert killed._file is not None
    killed._file.close()
    second = Refusals(_chains(tmp_path), 2)
    _refuse(second, "shop", "expired")
    second.record_rest()
    assert [(c.run, c.broke_off, c.flaws) for c in audit(tmp_path).chains] == [
        ("train", True, []),
        ("connections 2", False, []),
    ]
