"""Nothing of anybody's rows moves before a party holds all approvals, whatever a peer says.

The peer here has the right certificate and is hostile: it speaks the protocol by hand.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

import securevfl as sv
from securevfl.agreement import Agreement, Approval, read_agreement, write_approval
from securevfl.agreement.approvals import SIGNED
from securevfl.errors import InputError, Parked, PeerRefused, SecureVFLError
from securevfl.ledger import Closing, OpeningLine, read_private_key
from securevfl.ledger import NoteLine as LedgerNote
from securevfl.party.reports import Ready, Report, decode_note, encode_note, view_of
from securevfl.privacy import PrivateKey, read_lines
from securevfl.process.launch import read_start
from securevfl.process.party_process import JobProcess
from securevfl.process.refused_connections import NOTE
from securevfl.process.state_folder import StateFolder
from securevfl.run.events import RunEvents
from securevfl.run.timeouts import Timeouts
from securevfl.testing.company import Company, create_company
from securevfl.testing.parties import make_parties
from securevfl.transport import Kind, MemoryHub, Message, NoteReceived, Scalar

ME, PEER = "bank", "shop1"
LIMIT = 120.0


@pytest.fixture
def company(tmp_path: Path) -> Company:
    return create_company(
        tmp_path,
        make_parties(passive=1, rows=60),
        sv.Job(protection=sv.Plain(), algorithm=sv.SplitNN(hidden=4), epochs=1),
    )


def _older(company: Company) -> bytes:
    """The peer's true approval of an older version of the proposal."""
    before = company.agreement.proposal.replace(purpose="another purpose")
    return Approval.sign(before, PEER, read_private_key(company.folder / "keys" / f"{PEER}.key")).file_bytes


def _relabelled(company: Company) -> bytes:
    return Approval.decode(_older(company)).replace(agreement=company.agreement.digest).file_bytes


def _forged(company: Company) -> bytes:
    made = company.agreement.proposal
    signature = PrivateKey.generate().sign(SIGNED, made.signed_bytes)
    return Approval(agreement=made.digest, party=PEER, signature=signature).file_bytes


ATTACKS: dict[str, tuple[Callable[[Company], bytes], str]] = {
    "no approval": (lambda company: b"", "did not come"),
    "an approval of an older version": (_older, "an approval of another one, or of an older version"),
    "its digest replaced": (_relabelled, "does not verify"),
    "signed with another key": (_forged, "does not verify"),
    "this party's own approval": (
        lambda company: company.agreement.approvals[ME].file_bytes,
        "each party sends its own",
    ),
    "an approval as this party's": (
        lambda company: company.agreement.approvals[PEER].replace(party=ME).file_bytes,
        "each party sends its own",
    ),
    "a stranger's": (
        lambda company: company.agreement.approvals[PEER].replace(party="else").file_bytes,
        "sends its own",
    ),
    "one more line": (lambda company: company.agreement.approvals[PEER].file_bytes + b"x = 1\n", "approval has no 'x'"),
    "other bytes": (lambda company: bytes(range(256)), "UTF-8"),
}


@dataclass
class Seen:
    """What came of it.

    Attributes:
        error: that ended this party's course.
        views: that this party told the peer it is ready for.
        parts: messages that the peer got.
    """

    error: SecureVFLError
    views: int
    parts: int


def _attacked(company: Company, approval: bytes, held: Agreement) -> Seen:
    """Let this party meet a peer that says it is ready for whatever view there is, and sends data at once."""

    async def peer(hub: MemoryHub, seen: list[int]) -> None:
        mesh = hub[PEER]
        own = Report(incarnation=str(mesh.incarnation), approval=approval)
        await mesh.send_note(ME, b"\x01" + encode_note(own))
        while True:
            event = await mesh.next_event()
            if not isinstance(event, NoteReceived) or event.payload[:1] != b"\x01":
                continue
            said = decode_note(ME, event.payload[1:])
            if isinstance(said, Ready):
                seen[0] += 1
                continue
            view = view_of({ME: said, PEER: own})
            await mesh.send_note(ME, b"\x01" + encode_note(Ready(view.mark)))
            channels = mesh.begin_view(view.mark)
            mesh.open_view()
            task = asyncio.ensure_future(channels[ME].send(Message(Kind.CONTROL, "party/consent")))
            with suppress(SecureVFLError, TimeoutError):
                await asyncio.wait_for(channels[ME].receive(), 0.2)
                seen[1] += 1
            task.cancel()

    async def meet(party: JobProcess) -> Seen:
        hub = MemoryHub((ME, PEER), incarnations={ME: party.incarnation})
        seen = [0, 0]
        hostile = asyncio.ensure_future(peer(hub, seen))
        with pytest.raises(SecureVFLError) as ended:
            await party.attend(hub[ME])
        hostile.cancel()
        await asyncio.gather(hostile, return_exceptions=True)
        return Seen(ended.value, *seen)

    start = read_start(company.agreement_file, ME)
    with StateFolder.lock(company.state_folder(ME), party=ME, agreement=held.digest) as state:
        party = JobProcess(
            state,
            held,
            ME,
            start.own.signing_key(),
            start.own.read_table(),
            policy=start.own.policy,
            patience=Timeouts(gather=0.5),
        )
        seen = asyncio.run(meet(party))
        assert not state.attempts
        assert state.read_alignment() is None
        _refused_in(state.ledger_file)
    return seen


def _refused_in(path: Path) -> list[str]:
    """The words of refused connections, which are all that a ledger holds."""
    lines = [line for _, line in read_lines(path)] if path.exists() else []
    notes = [line for line in lines if isinstance(line, LedgerNote)]
    assert [line for line in lines if not isinstance(line, OpeningLine | LedgerNote | Closing)] == []
    assert {note.note for note in notes} <= {NOTE}
    return [str(note.values["words"]) for note in notes]


@pytest.mark.parametrize("what", ATTACKS)
def test_nothing_moves_before_all_approvals_are_held(company: Company, what: str) -> None:
    made, words = ATTACKS[what]
    alone = Agreement(company.agreement.proposal, {ME: company.agreement.approvals[ME]})
    seen = _attacked(company, made(company), alone)
    assert (seen.views, seen.parts) == (0, 0)
    if what == "no approval":
        assert isinstance(seen.error, Parked)
    else:
        assert isinstance(seen.error, PeerRefused)
        assert words in str(seen.error)
        assert f"{PEER!r} sent an approval that is refused" in str(seen.error)


def test_with_the_peers_approval_the_same_peer_is_met(company: Company) -> None:
    """What the tests above would see if approvals were not looked at."""
    alone = Agreement(company.agreement.proposal, {ME: company.agreement.approvals[ME]})
    with pytest.raises(AssertionError):
        _attacked(company, company.agreement.approvals[PEER].file_bytes, alone)


def test_a_party_that_has_not_approved_does_not_start(company: Company) -> None:
    (company.folder / f"agreement.toml.{ME}.approval").unlink()
    with pytest.raises(InputError, match="has not approved"):
        read_start(company.agreement_file, ME)


def test_an_approval_beside_the_file_is_verified_at_every_start(company: Company) -> None:
    (company.folder / f"agreement.toml.{PEER}.approval").write_bytes(_older(company))
    with pytest.raises(SecureVFLError, match="older version"):
        read_start(company.agreement_file, ME)


def test_a_changed_agreement_has_no_state_and_no_approvals(company: Company) -> None:
    """A folder is of one agreement: another version begins nowhere, with nobody's approval."""
    with StateFolder.lock(company.state_folder(ME), party=ME, agreement=company.agreement.digest):
        pass
    other = company.agreement.proposal.replace(purpose="another purpose")
    company.agreement_file.write_bytes(other.signed_bytes)
    with pytest.raises(SecureVFLError, match="older version"):
        read_agreement(company.agreement_file)
    with (
        pytest.raises(InputError, match="give each agreement a separate state folder"),
        StateFolder.lock(company.state_folder(ME), party=ME, agreement=other.digest),
    ):
        pass


class _Heard(RunEvents):
    """Collects why connections were refused."""

    def __init__(self) -> None:
        self.words: list[str] = []
        self.told = asyncio.Event()

    def report_event(self, what: str, words: str, **values: Scalar) -> None:
        if what == "refused" and values["code"] == "other-agreement":
            self.words.append(words)
            self.told.set()


def test_other_agreements_are_refused_by_field_at_both_parties(company: Company) -> None:
    """Over sockets and TLS: the shop approved a version of its own, with more epochs."""
    made = company.agreement.proposal
    other = made.replace(id="1" * 32, job=made.job.replace(epochs=7, patience=2))
    key = read_private_key(company.folder / "keys" / f"{PEER}.key")
    theirs = company.folder / "other.toml"
    theirs.write_bytes(other.signed_bytes)
    write_approval(theirs, Approval.sign(other, PEER, key))
    starts = {
        ME: read_start(company.agreement_file, ME),
        PEER: read_start(theirs, PEER, company.folder / f"{PEER}.toml"),
    }
    heard = {name: _Heard() for name in starts}
    ended: dict[str, BaseException] = {}
    taking_part: list[JobProcess] = []

    async def take_part(name: str, held: StateFolder) -> None:
        start = starts[name]
        party = JobProcess(
            held,
            start.agreement,
            name,
            start.own.signing_key(),
            start.own.read_table(),
            policy=start.own.policy,
            patience=Timeouts(gather=LIMIT),
            hearers=[heard[name]],
        )
        taking_part.append(party)
        try:
            await start.run_connected(party, held)
        except SecureVFLError as error:
            ended[name] = error

    async def both(held: dict[str, StateFolder]) -> None:
        tasks = [asyncio.ensure_future(take_part(name, held[name])) for name in starts]
        for one in heard.values():
            await asyncio.wait_for(one.told.wait(), LIMIT)
        for party in taking_part:
            party.stop()
        await asyncio.gather(*tasks)

    with ExitStack() as stack:
        held = {
            name: stack.enter_context(
                StateFolder.lock(company.state_folder(name), party=name, agreement=start.agreement.digest)
            )
            for name, start in starts.items()
        }
        asyncio.run(both(held))
        for one in held.values():  # of the other party's agreement the ledger holds that it was refused, and no more
            words = _refused_in(one.ledger_file)
            assert words
            assert all("differ in job.epochs" in text for text in words)
    assert set(ended) == set(starts)
    for name in starts:
        assert isinstance(ended[name], Parked)
        assert all("differ in job.epochs" in words for words in heard[name].words)
        assert not any("7" in words.partition("differ in")[2] for words in heard[name].words)
