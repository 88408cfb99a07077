"""A party whose state folder is restored from a back-up comes back by its peers' signed grants, and by nothing else."""

from __future__ import annotations

import multiprocessing
import os
import re
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from multiprocessing.process import BaseProcess
from pathlib import Path

import msgspec
import pytest

import securevfl as sv
from securevfl import cli
from securevfl.errors import AuditError, InputError, SecureVFLError
from securevfl.ledger import (
    READMITTED,
    NoteLine,
    OwnLedgers,
    Readmission,
    ReadmissionRequest,
    chains_of,
    comparing,
    decode_readmission,
    encode_readmission,
    grant_readmission,
    read_lines,
    sign_request,
)
from securevfl.ledger.readmission import excused_attempts
from securevfl.party_context import Observer
from securevfl.privacy import Journal, PrivateKey
from securevfl.process.launch import read_start
from securevfl.process.readmission import accept_readmission, grant_request
from securevfl.process.state_folder import StateFolder
from securevfl.report import Record
from securevfl.testing.company import Company, create_company
from securevfl.testing.parties import make_parties

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="parties run as processes on Unix alone")

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "operate.md"
EPOCHS = 4


class BacksUp(Observer):
    """Copies the party's folder in the second epoch, and kills its process in the fourth."""

    def __init__(self, company: Company, name: str) -> None:
        self._state, self._copy = company.state_folder(name), company.folder / "back-up"

    def step(self, epoch: int, done: int, total: int) -> None:
        if (epoch, done) == (2, 1):
            shutil.copytree(self._state, self._copy)
        if (epoch, done) == (EPOCHS, 1):
            os.kill(os.getpid(), signal.SIGKILL)


def _take_part(company: Company, name: str, dies: bool) -> None:
    try:
        read_start(company.agreement_file, name).run(wait=120, hearers=[BacksUp(company, name)] if dies else [])
    except SecureVFLError as error:
        (company.folder / f"{name}.error").write_text(f"{type(error).__name__}: {error}")
        os._exit(error.exit_code)


@pytest.fixture
def company(tmp_path: Path) -> Company:
    noise = sv.DP(features=sv.Gaussian(epsilon=20.0))
    job = sv.Job(
        algorithm=sv.SplitNN(hidden=4, bottom=[3]), protection=sv.Plain(dp=noise), epochs=EPOCHS, batch_size=16, seed=3
    )
    people = make_parties(passive=1, rows=120)
    return create_company(tmp_path, people, job)


@pytest.fixture
def start(company: Company) -> Iterator[Callable[..., BaseProcess]]:
    running = []

    def start_party(name: str, *, dies: bool = False) -> BaseProcess:
        process = multiprocessing.get_context("fork").Process(target=_take_part, args=(company, name, dies))
        process.start()
        running.append(process)
        return process

    yield start_party
    for process in running:
        process.kill()
        process.join()


def _run_page(company: Company, monkeypatch: pytest.MonkeyPatch) -> int:
    """Run the page's commands of the re-admission, for the parties of the test; returns how many there are."""
    commands = re.findall(r"^\$ securevfl (readmit .*)$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    monkeypatch.chdir(company.folder)
    for command in commands:
        words = command.replace("shop", "shop1").split()
        with pytest.raises(SystemExit) as ended:
            cli.main([*words, *(["--yes"] if words[1] == "grant" else [])])
        assert not ended.value.code, command
    return len(commands) + 1  # the party's start


def _collect(company: Company) -> Path:
    folder = company.folder / "collected"
    folder.mkdir()
    for name in company.names:
        shutil.copy(company.state_folder(name) / "ledgers" / f"{name}.jsonl", folder)
    return folder


def test_a_restored_party_comes_back(
    company: Company,
    start: Callable[..., BaseProcess],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    bank, shop = start("bank"), start("shop1", dies=True)
    shop.join(120)
    assert shop.exitcode == -signal.SIGKILL
    state = company.state_folder("shop1")
    shutil.rmtree(state)
    (company.folder / "back-up").rename(state)
    shop = start("shop1")
    shop.join(120)
    assert (company.folder / "shop1.error").read_text().startswith("Restored: ")
    assert bank.is_alive()
    assert _run_page(company, monkeypatch) <= 5
    shop = start("shop1")
    for process in (shop, bank):
        process.join(120)
        assert process.exitcode == 0
    (record,) = Record.read(state / "report" / "metrics.json").runs
    told = max(line.releases for line in record.epsilon if line.party == "shop1")
    folder = _collect(company)
    assert told >= _count_releases(folder)
    found = sv.audit(folder)
    assert any(
        "'shop1''s state folder was restored from a back-up, and its peers admitted it" in x for x in found.incomplete
    )
    monkeypatch.setattr(comparing, "excused_attempts", lambda *given: None)  # as without the grants
    with pytest.raises(AuditError, match="recorded its signed head"):
        sv.audit(folder)


def _count_releases(folder: Path) -> int:
    """Epochs of activations that the peer received, over all attempts: each releases a row once."""
    chains, _ = chains_of(read_lines(folder / "bank.jsonl"), "bank")
    got = [sum(e.noise > 0 and e.way == "received" for e in chain.entries) for chain in chains if chain.attempt]
    assert len([n for n in got if n]) >= 2
    whole = max(got) / EPOCHS  # the last attempt, from the beginning or from a checkpoint, has at most all epochs
    return round(sum(got) / whole)


def _request(company: Company) -> ReadmissionRequest:
    key = read_start(company.agreement_file, "shop1").own.signing_key()
    return sign_request(company.agreement.digest, "shop1", 0, key)


def test_a_request_or_a_grant_that_was_changed_counts_for_nothing(company: Company) -> None:
    bank, shop = (read_start(company.agreement_file, name).own for name in ("bank", "shop1"))
    request = _request(company)
    grant = grant_request(company.agreement, bank, request)
    assert decode_readmission(encode_readmission(grant)) == grant
    with pytest.raises(InputError, match="changed by hand"):
        decode_readmission(encode_readmission(grant) + b" ")
    with pytest.raises(AuditError):
        grant_request(company.agreement, bank, _replace(request, attempts=7))
    with pytest.raises(InputError, match="a peer of the agreement asks its peers"):
        grant_request(company.agreement, shop, request)
    with StateFolder.lock(shop.state, party="shop1", agreement=company.agreement.digest) as state:
        state.store_readmission(encode_readmission(request), [])
    with pytest.raises(InputError, match="the grant of bank is missing"):
        accept_readmission(company.agreement, shop, [])
    with pytest.raises(AuditError):
        accept_readmission(company.agreement, shop, [_replace(grant, agreed=0, starts=9)])
    with pytest.raises(AuditError, match="granted another request"):
        accept_readmission(company.agreement, shop, [grant_request(company.agreement, bank, _request(company))])
    assert accept_readmission(company.agreement, shop, [grant]) == 0


_replace = msgspec.structs.replace


def test_accepting_takes_the_highest_counts_and_changes_nothing_twice(company: Company) -> None:
    bank, shop = (read_start(company.agreement_file, name).own for name in ("bank", "shop1"))
    digest = company.agreement.digest
    with StateFolder.lock(bank.state, party="bank", agreement=digest) as state:
        state.store_ready("aa", 0, 5)
        state.store_incarnation("shop1", f"7-{'00' * 16}")
    with StateFolder.lock(shop.state, party="shop1", agreement=digest) as state:
        state.count_start()
        state.store_ready("bb", 0, 2)
        request = sign_request(digest, "shop1", 2, shop.signing_key())
        state.store_readmission(encode_readmission(request), [])
        job = company.agreement.proposal.job_of()
        journal = Journal("shop1", job.digest, state.checkpoint_folder / "shop1.journal.jsonl")
        for attempt in (1, 2):
            journal.record_agreed(attempt)
        journal.begin_attempt(0)
    grant = grant_request(company.agreement, bank, request)
    assert (grant.agreed, grant.starts) == (5, 7)
    for _ in range(2):
        assert accept_readmission(company.agreement, shop, [grant]) == 4  # attempts 3, 4, 5, and 2 after the back-up
    with StateFolder.lock(shop.state, party="shop1", agreement=digest) as state:
        assert max(one.number for one in state.attempts) == 5
        assert state.count_start()[0] == 8
        again = Journal("shop1", job.digest, state.checkpoint_folder / "shop1.journal.jsonl")
    assert (again.agreed, again.lost_attempts, again.max_releases("opened sums", 3)) == (5, 4, 4)
    own = OwnLedgers("shop1", shop.signing_key(), shop.state / "ledgers" / "shop1.jsonl", readmitted=[grant])
    own.attempt_opener(6, "06" * 16).open("shop1", run="train 6", job="ab").close()
    assert "readmitted" in (shop.state / "ledgers" / "shop1.jsonl").read_text()
    assert isinstance(grant, Readmission)


def test_only_grants_of_all_peers_excuse_missing_lines(company: Company) -> None:
    bank = read_start(company.agreement_file, "bank").own
    grant = grant_request(company.agreement, bank, _request(company))
    key = bank.signing_key().public_key
    noted, agreed = [_note(grant)], {company.agreement.digest}
    assert excused_attempts("shop1", noted, {"bank": key}, agreed) == (
        1,
        0,
    )  # the peer saw no attempt: nothing is excused
    later = grant_readmission(_request(company), "bank", bank.signing_key(), agreed=4, starts=1, head="")
    assert excused_attempts("shop1", [_note(later)], {"bank": key}, agreed) == (1, 4)
    for notes, keys in (
        ([_note(later)], {"bank": PrivateKey.generate().public_key}),
        ([_note(later)], {"bank": key, "third": key}),
        ([_note(later)], {}),
        ([_note(_replace(later, agreed=9))], {"bank": key}),
        ([], {"bank": key}),
    ):
        assert excused_attempts("shop1", notes, keys, agreed) is None
    assert excused_attempts("shop1", [_note(later)], {"bank": key}, {"ab" * 32}) is None
    assert excused_attempts("bank", [_note(later)], {"bank": key}, agreed) is None


def _note(grant: Readmission) -> NoteLine:
    return NoteLine(time=0, prev="", note=READMITTED, values={grant.by: encode_readmission(grant).decode()})


def test_an_acceptance_that_was_interrupted_is_completed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = Journal("shop1", "ab", tmp_path / "journal.jsonl")
    with monkeypatch.context() as killed:
        killed.setattr(journal, "record_agreed", lambda attempt: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            journal.record_lost("01" * 16, 5)
    again = Journal("shop1", "ab", tmp_path / "journal.jsonl")
    again.record_lost("01" * 16, 5)
    assert (again.agreed, again.lost_attempts) == (5, 5)


def test_a_peer_cannot_claim_more_attempts_than_the_agreement_allows(company: Company) -> None:
    bank, shop = (read_start(company.agreement_file, name).own for name in ("bank", "shop1"))
    request = _request(company)
    with StateFolder.lock(shop.state, party="shop1", agreement=company.agreement.digest) as state:
        state.store_readmission(encode_readmission(request), [])
    most = company.agreement.proposal.limits.attempts
    for agreed in (most + 1, (1 << 31) - 1):
        grant = grant_readmission(request, "bank", bank.signing_key(), agreed=agreed, starts=1, head="")
        with pytest.raises(AuditError, match="the agreement allows"):
            accept_readmission(company.agreement, shop, [grant])
    with StateFolder.lock(shop.state, party="shop1", agreement=company.agreement.digest) as state:
        assert not state.attempts
