"""Start a party's process on the network from an agreement file and the party's own file."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from securevfl_net.gate import Address, Route
from securevfl_net.identity import Identity
from securevfl_net.incarnation import Incarnation
from securevfl_net.relay import read_token
from securevfl_net.session import DEFAULT_SESSION_LIMITS, SessionLimits

from securevfl.agreement import (
    Agreement,
    PartyFile,
    check_proposal,
    check_versions,
    field_digests,
    peer_book,
    read_agreement,
    read_party_file,
    require_peers,
    row_of,
)
from securevfl.agreement.party_file import Address as OwnAddress
from securevfl.errors import InputError
from securevfl.party_context import SILENCE, Observer
from securevfl.process.bounds_reader import BoundsReader, tell_bounds
from securevfl.process.certificate_renewal import renew_certificates
from securevfl.process.machine_lock import lock_party
from securevfl.process.party_process import JobProcess
from securevfl.process.state_folder import StateFolder
from securevfl.run.events import RunEvents
from securevfl.run.timeouts import STAY, Timeouts
from securevfl.transport.network_mesh import NetworkMesh

__all__ = ["Start", "read_start"]


@dataclass(frozen=True, kw_only=True)
class Start:
    """Everything a party's process starts with, checked for consistency.

    Attributes:
        agreement: with the approvals found beside it.
        own: the party's file.
        door: descriptor through which a node hands over callers, in place of listening; None without a node.
    """

    agreement: Agreement
    own: PartyFile
    door: int | None = None

    @property
    def peers(self) -> list[str]:
        """All other parties."""
        return [name for name in self.agreement.proposal.party_names if name != self.own.party]

    def run(
        self,
        *,
        wait: float | None = None,
        stay: float = STAY,
        silence: float = SILENCE,
        pool: str = "",
        hearers: Iterable[RunEvents | Observer] = (),
        command: str = "",
        stopping: Callable[[JobProcess], AbstractContextManager[object]] = lambda party: nullcontext(),
    ) -> JobProcess | None:
        """Take part until the job is done at all parties.

        Args:
            wait: seconds that the party waits for its peers while nothing runs; the agreement's unless given.
            stay: see `Timeouts.stay`.
            silence: see `PartyContext.silence`.
            pool: the party's own workers; those of its file unless given.
            hearers: of what happens.
            command: what makes the report again.
            stopping: entered in the event loop, as long as the party runs: for signals.

        Returns:
            The party; None if the job was finished before, and all peers had confirmed it.

        Raises:
            InUse: another process of the party runs, on this state folder or on a copy of it.
            Parked: the peers did not come, or the party was stopped: starting again resumes the run.
            SecureVFLError: whatever ended the job.
        """
        own, agreement = self.own, self.agreement
        with (
            StateFolder.lock(own.state, party=own.party, agreement=agreement.digest) as state,
            lock_party(agreement.digest, own.party, own.state),
        ):
            if state.outcome is not None and not state.outcome.get("unconfirmed"):
                return None
            limits = agreement.proposal.limits
            party = JobProcess(
                state,
                agreement,
                own.party,
                own.signing_key(),
                own.read_table(),
                policy=own.policy,
                budget=own.budget,
                device=own.device,
                pool=pool or own.pool,
                patience=Timeouts(
                    away=limits.reconnect,
                    leaving=limits.leaving_patience,
                    gather=limits.gather if wait is None else wait,
                    stay=stay,
                ),
                silence=silence,
                results=own.results,
                organisations=own.organisations,
                filters=own.filters,
                baselines=own.baselines,
                hearers=hearers,
                command=command,
                report=own.report,
                start=own.start,
            )
            asyncio.run(self.run_connected(party, state, stopping=stopping))
            return party

    async def run_connected(
        self,
        party: JobProcess,
        state: StateFolder,
        *,
        stopping: Callable[[JobProcess], AbstractContextManager[object]] = lambda party: nullcontext(),
    ) -> None:
        """Open the party's gate, and let it take part; see `run`."""
        row = row_of(self.agreement, self.own, note=state.path / "certificate")
        mesh = await self.start_mesh(
            row.shown,
            party.incarnation,
            folder=state.path,
            fields=field_digests(self.agreement.proposal),
            known=party.attempts.known_incarnations,
            limits=self._session_limits(),
        )
        for address in mesh.listening:
            party.news.report_event("listening", f"listening at {address}", host=address.host, port=address.port)
        try:
            with stopping(party):
                reader = BoundsReader(self.agreement, self.own, row, state, party.course.results)
                beside = [
                    asyncio.create_task(renew_certificates(row, mesh, party.news)),
                    asyncio.create_task(tell_bounds(reader, party.news.bounds_changed)),
                ]
                try:
                    await party.attend(mesh)
                finally:
                    for one in beside:
                        one.cancel()
        except BaseException:
            mesh.kill_gate()  # peers see a lost connection: whoever ended the job for all announced it before
            raise

    async def start_mesh(
        self,
        identity: Identity,
        incarnation: Incarnation,
        *,
        folder: Path,
        fields: Mapping[str, bytes] | None = None,
        known: Mapping[str, Incarnation] | None = None,
        limits: SessionLimits = DEFAULT_SESSION_LIMITS,
        without: Collection[str] = (),
        recalls: bool = False,
    ) -> NetworkMesh:
        """Open the party's gate to the peers of the agreement, as the party's file describes.

        Args:
            identity: the certificate that the party shows.
            incarnation: see `NetworkMesh.start`.
            folder: for the certificates that peers replace theirs by.
            fields: see `NetworkMesh.start`.
            known: see `NetworkMesh.start`.
            limits: see `NetworkMesh.start`.
            without: parties that left for good: nobody connects to them.
            recalls: see `NetworkMesh.start`.
        """
        listen = self.own.listen if self.door is None else None
        return await NetworkMesh.start(
            identity,
            peer_book(self.agreement, self.own, store=folder / "endorsements.json", without=without),
            agreement=bytes.fromhex(self.agreement.digest),
            fields=fields,
            incarnation=incarnation,
            listen=[] if listen is None else [Address(listen.host, listen.port)],
            routes={peer: route for peer, route in self.peer_routes().items() if peer not in set(without)},
            known=known,
            limits=limits,
            door=self.door,
            recalls=recalls,
        )

    def _session_limits(self) -> SessionLimits:
        """Limits of the sessions: the largest window that the party file gives any peer."""
        window = max((peer.window for peer in self.own.peers.values()), default=DEFAULT_SESSION_LIMITS.window)
        most = max(window, DEFAULT_SESSION_LIMITS.max_window)
        return replace(DEFAULT_SESSION_LIMITS, window=window, max_window=most)

    def peer_routes(self) -> dict[str, Route]:
        """Peer → how it is called; the others call this party.

        Raises:
            InputError: a relay's token that cannot be read.
        """
        found = {}
        for name, peer in require_peers(self.agreement, self.own).items():
            where = peer.dial or peer.relay
            if where is None:
                continue
            found[name] = Route(
                address=_gate_address(where),
                proxy=None if peer.proxy is None else _gate_address(peer.proxy),
                rendezvous=peer.rendezvous or "",
                token="" if peer.token is None else read_token(self.own.resolve_path(peer.token)).hex(),
                login="" if peer.proxy_login is None else str(self.own.resolve_path(peer.proxy_login).absolute()),
            )
        return found


def read_start(agreement: str | Path, name: str, own: str | Path | None = None) -> Start:
    """Read both files, and check the agreement against the party's own file.

    Args:
        agreement: the file of `securevfl propose`, with approvals beside it.
        name: the party.
        own: its file; ``NAME.toml`` beside the agreement unless given.

    Raises:
        InputError: files that cannot be used, or differences, each named by its field.
        PolicyError: the party's policy or budget refuses the agreement.
        AuditError: an approval that does not verify.
    """
    found = read_agreement(agreement)
    path = Path(agreement).with_name(f"{name}.toml") if own is None else Path(own)
    file = read_party_file(path)
    if file.party != name:
        raise InputError(f"{path} is the file of {file.party!r}, not of {name!r}: give the right one with --file")
    check_versions(found)
    check_proposal(found.proposal, file, datetime.now(UTC)).raise_refusals()
    require_peers(found, file)
    if name not in found.approvals:
        raise InputError(f"{name!r} has not approved {agreement}: run `securevfl approve` first")
    return Start(agreement=found, own=file)


def _gate_address(text: str) -> Address:
    found = OwnAddress.parse(text)
    return Address(found.host, found.port)
