"""A party's process that serves or predicts, from its files: the agreement, its party file, its serving file."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from securevfl_net.durable import InUse
from securevfl_net.incarnation import Incarnation

from securevfl.agreement import Agreement, PartyFile, check_versions, read_agreement, read_party_file, row_of
from securevfl.data import PartyTable
from securevfl.errors import Expired, InputError, MachineFault, Parked, PolicyError
from securevfl.jobfile.job_file import read_job
from securevfl.party import Job, check_trains
from securevfl.party.reports import Report
from securevfl.process.bounds_reader import BoundsReader
from securevfl.process.certificate_renewal import renew_certificates
from securevfl.process.launch import Start
from securevfl.process.machine_lock import lock_party
from securevfl.process.state_folder import StateFolder
from securevfl.run.events import RunEvents
from securevfl.run.machine import software_version
from securevfl.run.model_parts import PART, ModelPart
from securevfl.serving.active import ServeActive
from securevfl.serving.end_mark import EndMark
from securevfl.serving.helper import ServeHelper
from securevfl.serving.passive import ServePassive
from securevfl.serving.policy import ServingPolicy
from securevfl.serving.questions import Batching
from securevfl.serving.serving_context import ServingContext
from securevfl.serving.settings import ServingFile, read_serving_file
from securevfl.serving.shelf import ModelShelf
from securevfl.serving.standby import Standby, wait_for_port

__all__ = ["ServingProcess", "local_part", "put_part", "read_own_part", "run_server"]


class Admission:
    """Whether a party may serve in a view: all have approved, and the agreement has not expired.

    Args:
        agreement: with this party's own approval.
        party: this one.
    """

    def __init__(self, agreement: Agreement, party: str) -> None:
        if party not in agreement.approvals:
            raise InputError(f"{party!r} has not approved the agreement: run `securevfl approve` first")
        self.agreement = agreement
        self.approval = agreement.approvals[party].file_bytes

    def __call__(self, reports: Mapping[str, Report]) -> bool:
        """See `Rendezvous`.

        Raises:
            Expired: the agreement has ended.
        """
        self.check()
        for name, report in sorted(reports.items()):
            if report.approval and name not in self.agreement.approvals:
                self.agreement = self.agreement.with_approval_of(name, report.approval)
        return self.agreement.is_complete

    def check(self) -> None:
        """See `__call__`."""
        limits = self.agreement.proposal.limits
        if limits.is_over(datetime.now(UTC)):
            raise Expired(f"agreement {self.agreement.digest[:16]} ended at {limits.expires}: propose a new one")


@dataclass(frozen=True, kw_only=True)
class ServingProcess:
    """A party at work.

    Attributes:
        server: the party's, not yet running.
        file: its serving file.
        agreement: SHA-256 of the proposal, hexadecimal.
        renew: takes up newer certificates of the party until cancelled; reports to what it is given.
        bounds: reads what is left of the party's bounds.
    """

    server: ServeActive | ServePassive | ServeHelper
    file: ServingFile
    agreement: str
    renew: Callable[[RunEvents], Coroutine[None, None, None]]
    bounds: BoundsReader

    @asynccontextmanager
    async def running(self) -> AsyncIterator[asyncio.Task[None]]:
        """Serve as long as the block lasts; yields the server's task, which ends when it fails."""
        task = asyncio.ensure_future(self.server.run())
        renewing = asyncio.ensure_future(self.renew(self.server.news))
        try:
            yield task
        finally:
            renewing.cancel()
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


@asynccontextmanager
async def run_server(
    agreement: Path,
    party: str,
    own_file: Path,
    *,
    serving: Path | None = None,
    data: Path | None = None,
    once: bool = False,
    run: str = "",
    door: int | None = None,
    standby: Standby | None = None,
) -> AsyncIterator[ServingProcess]:
    """Run a party's server over the network; the block locks its state folder and runs its gate.

    Args:
        agreement: file of the agreement.
        party: its name.
        own_file: its party file.
        serving: its serving file; None for the defaults.
        data: table in the place of the one that the party file names.
        once: whether it is for one prediction, and not to stay.
        run: the model to begin with; the one of the state folder unless given.
        door: see `Start.door`.
        standby: waits while another process has the state folder; without it, that is an error.

    Raises:
        Parked: it was stopped while it waited, or what it locked is no more what its files name: it is started again.
        InputError: files that cannot be used.
        InUse: another process of the party runs, on this state folder or on a copy of it.
        PolicyError: the agreement is about training alone, or does not let the active party ask.
        Expired: the agreement has ended.
    """
    read = partial(_read_files, agreement, party, own_file, serving)
    own, whole, file = read()
    async with AsyncExitStack() as held:
        state = await _lock_folder(held, own.state, party, whole.digest, standby)
        held.enter_context(lock_party(whole.digest, party, own.state))
        if standby is not None and standby.waited:
            locked = own.state.resolve(), whole.digest
            own, whole, file = read()  # what has changed while it waited
            if (own.state.resolve(), whole.digest) != locked:
                raise Parked(f"the agreement or the state folder of {party!r} was changed while it stood by")
            await wait_for_port(own.listen)
        terms = _agreed_policy(whole)
        admission = Admission(whole, party)
        admission.check()
        proposal = whole.proposal
        job = proposal.job_of(device=own.device, pool=own.pool, policies={party: own.policy})
        folder = own.state / "serving"
        gone = state.find_gone(proposal.party_names, proposal.owner_names)
        if party in gone:
            raise InputError(f"the job went on without {party!r}: it has no part of the model that the others serve")
        first = put_part(folder, state.model_folder, party, job, run=whole.digest)
        job = first.job  # of the algorithm that was kept, where the agreement names several
        place = ServingContext(
            name=party,
            active=proposal.owner_names[0],
            passive=tuple(name for name in proposal.passive_names if name not in gone),
            gone=gone,
            job=job,
            load=partial(_read_table, own, data, first),
            folder=folder,
            policy=file.policy.combine_strictest(terms),
            key=own.signing_key(),
            pins=proposal.public_keys,
            results=own.results,
            days=own.days,
            organisations=own.organisations,
            coordinator=proposal.coordinator_name,
            software=software_version(),
            reasons=proposal.serving is not None and proposal.serving.reasons,
        )
        certificates = row_of(whole, own, note=own.state / "certificate")
        mesh = await Start(agreement=whole, own=own, door=door).start_mesh(
            certificates.shown,
            Incarnation(*state.count_start()),
            folder=own.state,
            known={peer: Incarnation.from_text(text) for peer, text in state.known_incarnations.items()},
            without=gone,
            recalls=True,
        )
        held.push_async_callback(mesh.close)
        batching = Batching(seconds=3600.0, grace=600.0) if once else file.batches
        server: ServeActive | ServePassive | ServeHelper
        if place.name == place.active:
            server = ServeActive(mesh, place, batching, run=run or first.run)
        elif place.name == place.coordinator:
            server = ServeHelper(mesh, place, once=once)
        else:
            server = ServePassive(mesh, place, once=once)
        server.approval, server.admits = admission.approval, admission
        server.seen = lambda peer, incarnation: state.store_incarnation(peer, str(incarnation))
        found = ServingProcess(
            server=server,
            file=file,
            agreement=whole.digest,
            renew=partial(renew_certificates, certificates, mesh),
            bounds=BoundsReader(whole, own, certificates, state, place.book),
        )
        if not once:
            yield found
            return
        mark = server.end_mark = EndMark(folder)
        try:
            yield found
        except (Parked, MachineFault):  # it is started again, as after a kill
            raise
        except BaseException:
            mark.clear()
            raise
        mark.clear()


def _read_files(
    agreement: Path, party: str, own_file: Path, serving: Path | None
) -> tuple[PartyFile, Agreement, ServingFile]:
    """The party file, the agreement and the serving file, checked before the party does anything."""
    own, whole, file = read_party_file(own_file), read_agreement(agreement), read_serving_file(serving)
    if own.party != party:
        raise InputError(f"{own_file} is the file of {own.party!r}, but --as names {party!r}")
    check_versions(whole)
    _agreed_policy(whole)
    Admission(whole, party).check()
    return own, whole, file


async def _lock_folder(
    held: AsyncExitStack, path: Path, party: str, agreement: str, standby: Standby | None
) -> StateFolder:
    """Lock the state folder as long as `held` lasts; with `standby`, once no other process has it."""
    while True:
        try:
            return held.enter_context(StateFolder.lock(path, party=party, agreement=agreement))
        except InUse as error:
            if standby is None:
                raise
            await standby.wait(error)


def put_part(folder: Path, place: Path, party: str, job: Job, *, run: str = "") -> ModelPart:
    """Put a part where a party serves from, so that its model can be activated.

    Args:
        folder: where the party serves, ``serving/`` in its state folder.
        place: the part's file, or the folder that it is in.
        party: whose.
        job: that trained it.
        run: names the run, where nothing beside the part does.

    Raises:
        InputError: no part there, or one that cannot be served.
    """
    if place.is_dir() and not (place / f"{party}{PART}").exists():
        raise InputError(f"{place} contains no part of a model: train one first, with `securevfl party`")
    part = ModelPart.load(place, party, job, run=run)
    ModelShelf(folder / "models", party, part.job).put_part(part)
    return part


def read_own_part(
    agreement: Path, party: str, own_file: Path, data: Path | None = None
) -> tuple[ModelPart, PartyTable]:
    """A party's part of the model that it trained, and its table, to explain scores by its own columns alone.

    Args:
        agreement: file of the agreement.
        party: its name.
        own_file: its party file.
        data: table in the place of the one that the party file names.

    Raises:
        InputError: files that cannot be used, no model yet, or a job that trains none.
    """
    own, whole = read_party_file(own_file), read_agreement(agreement)
    if own.party != party:
        raise InputError(f"{own_file} is the file of {own.party!r}, but --as names {party!r}")
    check_versions(whole)
    check_trains(whole.proposal.algorithm, "to explain")
    place = own.state / "model"
    if not (place / f"{party}{PART}").exists():
        raise InputError(f"{place} contains no part of a model: train one first, with `securevfl party`")
    job = whole.proposal.job_of(device=own.device, pool=own.pool, policies={party: own.policy})
    part = ModelPart.load(place, party, job, run=whole.digest)
    return part, _read_table(own, data, part)


def local_part(file: ServingFile, party: str) -> ModelPart | None:
    """The active party's own model, where its serving file names one.

    Raises:
        InputError: it cannot be used.
    """
    if file.local is None:
        return None
    job = read_job(file.folder / file.local.job).job
    return ModelPart.load(file.folder / file.local.model, party, job)


def _agreed_policy(agreement: Agreement) -> ServingPolicy:
    """The terms that all parties agreed on; they limit each party's own policy."""
    proposal = agreement.proposal
    check_trains(proposal.algorithm, "to ask for scores")
    if len(proposal.owner_names) != 1:
        raise InputError("a model of several label owners cannot be served yet; each scores its rows in training")
    terms = proposal.serving
    if terms is None or proposal.owner_names[0] not in terms.asks:
        raise PolicyError(
            f"the agreement does not let {proposal.owner_names[0]!r} ask for scores: propose one with --asks "
            f"{proposal.owner_names[0]}"
        )
    return ServingPolicy(
        min_batch=terms.min_batch, rows_per_day=terms.rows_per_day, scores_per_record=terms.scores_per_record
    )


def _read_table(own: PartyFile, data: Path | None, part: ModelPart) -> PartyTable:
    """The party's table, without labels, with the columns that its model takes."""
    section = own.data
    if section is None:
        raise InputError(f"{own.path} names no table: give [data]")
    columns = tuple(map(str, part.tree["encoder"]["columns"]))
    bare = section.without_label(columns)
    if data is not None:
        return bare.replace(file=str(data)).read_table(Path(), own.party)
    return bare.read_table(own.folder, own.party)
