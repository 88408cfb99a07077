"""A state folder that was restored from a back-up: its peers saw more of the party than it knows, and it is refused."""

from __future__ import annotations

import shutil
from pathlib import Path

import msgspec
import pytest

import securevfl as sv
from securevfl.agreement import Agreement
from securevfl.errors import PeerRefused
from securevfl.party.attempts import Restored
from securevfl.party.finish import Statement
from securevfl.party.reports import Report
from securevfl.privacy import read_lines
from securevfl.process.attempt_store import FINISHED, StoredAttempts
from securevfl.process.launch import read_start
from securevfl.process.party_process import JobProcess
from securevfl.process.state_folder import StateFolder
from securevfl.testing.company import Company, create_company
from securevfl.testing.parties import make_parties


@pytest.fixture(scope="module")
def company(tmp_path_factory: pytest.TempPathFactory) -> Company:
    """Two parties that trained three epochs."""
    people = make_parties(passive=1, rows=80)
    job = sv.Job(protection=sv.Plain(), algorithm=sv.SplitNN(hidden=4), epochs=3, batch_size=16, seed=3)
    made = create_company(tmp_path_factory.mktemp("company"), people, job)
    made.over_memory()
    return made


def _words(path: Path) -> list[tuple[str, str]]:
    """Peer and head of each word that a party wrote down in mid-run."""
    return [(name, word.head) for _, line in read_lines(path) for name, word in getattr(line, "words", {}).items()]


def _attending(company: Company, name: str, state: StateFolder) -> JobProcess:
    start = read_start(company.agreement_file, name)
    own = Agreement(company.agreement.proposal, {name: company.agreement.approvals[name]})
    return JobProcess(state, own, name, start.own.signing_key(), start.own.read_table(), policy=start.own.policy)


def _reports(company: Company, folder: Path, name: str) -> tuple[StoredAttempts, dict[str, Report]]:
    """What a party keeps in a folder, and what both would report now."""
    reports = {}
    with StateFolder.lock(folder, party=name, agreement=company.agreement.digest) as state:
        mine = _attending(company, name, state).attempts
        reports[name] = mine.current_report()
    for peer in company.names:
        if peer != name:
            taken = StateFolder.lock(company.state_folder(peer), party=peer, agreement=company.agreement.digest)
            with taken as state:
                reports[peer] = _attending(company, peer, state).attempts.current_report()
    return mine, reports


def test_words_are_given_in_mid_run(company: Company) -> None:
    for name in company.names:
        words = [peer for peer, _ in _words(company.state_folder(name) / "ledgers" / f"{name}.jsonl") if peer != name]
        assert len(words) >= 2  # three checkpoints; words that come after the last epoch find a closed ledger
        sv.audit(company.state_folder(name))


def test_the_newest_folder_is_admitted(company: Company) -> None:
    for name in company.names:
        mine, reports = _reports(company, company.state_folder(name), name)
        assert mine.admits(reports)


@pytest.mark.parametrize("older", ["the ledger", "the attempts", "both"])
def test_an_older_folder_is_refused(older: str, company: Company, tmp_path: Path) -> None:
    copy = tmp_path / "bank.state"
    shutil.copytree(company.state_folder("bank"), copy)
    ledger = copy / "ledgers" / "bank.jsonl"
    if older != "the attempts":
        lines = ledger.read_bytes().splitlines(keepends=True)
        ledger.write_bytes(b"".join(lines[: next(i for i, line in enumerate(lines) if b'"line":"mark"' in line)]))
    if older != "the ledger":
        (copy / "attempts.json").unlink()
    mine, reports = _reports(company, copy, "bank")
    with pytest.raises(Restored, match="restored from a back-up") as caught:
        mine.admits(reports)
    assert isinstance(caught.value, PeerRefused)
    assert caught.value.code == "restored"


def test_only_a_party_itself_states_under_this_agreement_that_it_finished(company: Company) -> None:
    """The check that processes use: the party's own key, over every field, for this agreement."""
    digest = company.agreement.digest
    keys = {name: read_start(company.agreement_file, name).own.signing_key() for name in company.names}

    def state_end(party: str, signer: str, agreement: str = digest) -> Statement:
        one = Statement(party, agreement, 1, b"m" * 16, head="12", model="34")
        return msgspec.structs.replace(one, signature=keys[signer].sign(FINISHED, one.signed_content))

    with StateFolder.lock(company.state_folder("bank"), party="bank", agreement=digest) as state:
        check = _attending(company, "bank", state).attempts._check_statement
        check(state_end("shop1", "shop1"))
        other = state_end("shop1", "shop1")
        for wrong in (
            state_end("shop1", "bank"),
            state_end("shop1", "shop1", "0" * 64),
            msgspec.structs.replace(other, attempt=2),
            msgspec.structs.replace(other, model="35"),
            msgspec.structs.replace(other, signature=""),
            msgspec.structs.replace(other, party="nobody"),
        ):
            with pytest.raises(ValueError, match=r"the statement of|finished another agreement"):
                check(wrong)
