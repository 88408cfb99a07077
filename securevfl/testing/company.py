"""Parties with an agreement, in one folder, with every file that each would have on its machine: for tests, benchmarks.

The folder contains tables, keys, certificates, the agreement and its approvals. The parties run over memory, over gates
in one process, or as separate processes.
"""

from __future__ import annotations

import asyncio
import csv
import json
import socket
import sys
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from securevfl_net.durable import make_folder, write_atomic
from securevfl_net.identity.folder import issue_to, new_authority
from securevfl_net.identity.making import Key, make_request, self_signed

from securevfl.agreement import (
    AgreedLimits,
    Agreement,
    Proposal,
    ServingTerms,
    Versions,
    approve_proposal,
    make_party_card,
    read_agreement,
    read_party_file,
    write_approval,
)
from securevfl.data import Parties, PartyTable
from securevfl.ledger import make_key
from securevfl.party import Job, JobTerms
from securevfl.party_context import Observer, PartySecret
from securevfl.privacy import Policy
from securevfl.process.launch import read_start
from securevfl.process.party_process import JobProcess
from securevfl.process.state_folder import StateFolder
from securevfl.run.events import RunEvents
from securevfl.run.simulated_parties import coordinator_of
from securevfl.transport import MemoryHub

__all__ = ["Company", "create_company"]


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


def _write_table(table: PartyTable, path: Path) -> list[str]:
    """A table as CSV, and the lines of its ``[data]`` section."""
    lines = [f'file = "{path.name}"', 'id = "id"']
    names = list(table.columns)
    head = ["id", *names]
    columns: list[list[Any]] = [list(table.ids)]
    columns += [[repr(float(value)) for value in table.columns[name]] for name in names]
    if table.label is not None:
        number = table.target == "number"
        if table.target == "labels":
            lines.append(f"label = {json.dumps(table.classes)}")
            head += map(str, table.classes)
            columns += table.label.T.tolist()
        else:
            lines += ['label = "label"', 'target = "number"' if number else f"classes = {list(table.classes)}"]
            head.append("label")
            columns.append([repr(float(y)) for y in table.label] if number else [table.classes[i] for i in table.label])
        for role in ("weight", "group", "time"):
            values = getattr(table, role)
            if values is not None:
                lines.append(f'{role} = "{role}"')
                head.append(role)
                columns.append([repr(value) for value in values.tolist()])
        if not names:
            lines.append("features = []")
    if table.link:
        lines.append("link = {" + ", ".join(f'{name} = "link {name}"' for name in table.link) + "}")
        head += [f"link {name}" for name in table.link]
        columns += [["" if value is None else value for value in values] for values in table.link.values()]
    if table.fold is not None:
        lines.append('fold = "fold"')
        head.append("fold")
        columns.append(list(table.fold))
    if table.book is not None:
        lines.append(f'book = "{path.stem}.book.csv"')
        with path.with_name(f"{path.stem}.book.csv").open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["id", "label"])
            writer.writerows([name, table.classes[i]] for name, i in zip(table.book.ids, table.book.label, strict=True))
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(head)
        writer.writerows(zip(*columns, strict=True))
    return lines


@dataclass(frozen=True)
class Company:
    """Parties with an agreement, in one folder.

    Attributes:
        folder: with everything.
        names: of all parties.
        agreement: with all approvals.
        people: the tables, as they are read back from the files.
    """

    folder: Path
    names: tuple[str, ...]
    agreement: Agreement
    people: Parties

    @property
    def agreement_file(self) -> Path:
        """The agreement."""
        return self.folder / "agreement.toml"

    def state_folder(self, name: str) -> Path:
        """A party's state folder."""
        return self.folder / f"{name}.state"

    def store_secrets(self, secrets: Mapping[str, PartySecret]) -> None:
        """Store secrets that the parties start with."""
        for name, secret in secrets.items():
            with StateFolder.lock(self.state_folder(name), party=name, agreement=self.agreement.digest) as state:
                state.keep_secret(secret)

    @contextmanager
    def _open_processes(
        self, names: Iterable[str], hearers: Mapping[str, Sequence[RunEvents | Observer]]
    ) -> Iterator[dict[str, JobProcess]]:
        """Open the parties' state folders; each party has only its own approval."""
        with ExitStack() as held:
            parties = {}
            for name in names:
                taken = StateFolder.lock(self.state_folder(name), party=name, agreement=self.agreement.digest)
                own = read_start(self.agreement_file, name).own
                parties[name] = JobProcess(
                    held.enter_context(taken),
                    Agreement(self.agreement.proposal, {name: self.agreement.approvals[name]}),
                    name,
                    own.signing_key(),
                    own.read_table(),
                    policy=own.policy,
                    results=own.results,
                    organisations=own.organisations,
                    filters=own.filters,
                    baselines=own.baselines,
                    hearers=hearers.get(name, ()),
                    report=own.report,
                    start=own.start,
                )
            yield parties

    def over_memory(self) -> dict[str, JobProcess]:
        """Run all parties in this process, over memory."""
        with self._open_processes(self.names, {}) as parties:

            async def everybody() -> None:
                hub = MemoryHub(self.names, incarnations={n: party.incarnation for n, party in parties.items()})
                async with asyncio.TaskGroup() as group:
                    for name, party in parties.items():
                        group.create_task(party.attend(hub[name]))

            asyncio.run(everybody())
            return parties

    def over_network(
        self,
        names: Iterable[str] = (),
        *,
        hearers: Mapping[str, Sequence[RunEvents | Observer]] | None = None,
        beside: Callable[[], Coroutine[Any, Any, None]] | None = None,
    ) -> dict[str, JobProcess]:
        """Run parties in this process, each with its own gate: sockets, TLS and certificates are real.

        Args:
            names: of the parties; all unless given.
            hearers: party → receiver of its events.
            beside: runs in the same event loop.
        """
        with self._open_processes(names or self.names, hearers or {}) as parties:

            async def everybody() -> None:
                async with asyncio.TaskGroup() as group:
                    if beside is not None:
                        group.create_task(beside())
                    for name, party in parties.items():
                        group.create_task(read_start(self.agreement_file, name).run_connected(party, party.state))

            asyncio.run(everybody())
            return parties

    def command(self, name: str) -> list[str]:
        """The command that starts a party as a separate process."""
        return [sys.executable, "-m", "securevfl", "party", str(self.agreement_file), "--as", name]


def _policy_lines(policy: Policy) -> list[str]:
    """A policy as lines of a party file: what differs from the default."""
    usual = Policy().describe()
    return [f"{name} = {json.dumps(value)}" for name, value in policy.describe().items() if value != usual[name]]


def create_company(
    folder: Path,
    people: Parties,
    job: Job,
    *,
    policies: Mapping[str, Policy] | None = None,
    serving: ServingTerms | None = None,
    authority: bool = False,
    baselines: bool = False,
    **limits: object,
) -> Company:
    """Create everything that parties need to train a job over loopback, as they would themselves.

    Args:
        folder: of all parties.
        people: their tables.
        job: what they train.
        policies: party → its policy; one that bounds no numbers of its rows unless given.
        serving: the agreement's terms for scores; None for training only.
        authority: whether an authority in the folder ``ca`` issues the certificates; otherwise the agreement pins them.
        baselines: whether the label owner's report says what it has alone.
        limits: of the agreement.
    """
    helper = coordinator_of(job, people, linking=True)
    names = tuple(sorted([*people, *([helper] if helper else [])]))
    folder.mkdir(parents=True, exist_ok=True)
    ports = {name: _free_port() for name in names}
    if authority:
        new_authority("authority", folder / "ca")
    for name in names:
        key = Key.generate()
        make_folder(folder / "certs", private=True)
        write_atomic(folder / "certs" / f"{name}.key", key.pem, private=True)
        certificate = folder / "certs" / f"{name}.crt"
        if authority:
            request = folder / "certs" / f"{name}.csr"
            write_atomic(request, make_request(name, key))
            issue_to(name, request, folder / "ca", certificate)
        else:
            write_atomic(certificate, self_signed(name, key, datetime.now(UTC)).pem)
        make_key(name, folder / "keys")
        lines = [f'party = "{name}"', f'state = "{name}.state"', f'filters = "{name}.filters"']
        lines += [] if baselines else ["baselines = false"]
        lines += [f'listen = "127.0.0.1:{ports[name]}"']
        if name in people:
            lines += ["[data]", *_write_table(people[name], folder / f"{name}.csv")]
            lines += ["[policy]", *_policy_lines((policies or {}).get(name, Policy(max_results="unlimited")))]
        lines += ["[keys]", f'signing = "keys/{name}.key"']
        lines += [f'certificate = "certs/{name}.crt"', f'key = "certs/{name}.key"']
        lines += ['authority = "ca/ca.crt"'] if authority else []
        for peer in names:
            if peer != name:
                how = f'dial = "127.0.0.1:{ports[peer]}"' if peer < name else "listen = true"
                lines += [f"[peer.{peer}]", how, *(['crl = "ca/ca.crl"'] if authority else [])]
        (folder / f"{name}.toml").write_text("\n".join(lines) + "\n", encoding="utf-8")
    files = {name: read_party_file(folder / f"{name}.toml") for name in names}
    proposal = Proposal(
        id="0" * 32,
        purpose="a test",
        limits=AgreedLimits(**{"expires": "2126-01-01T00:00:00Z"} | limits),  # type: ignore[arg-type]
        versions=Versions.read_installed(),
        job=JobTerms(**{name: getattr(job, name) for name in JobTerms.__struct_fields__}),
        algorithm=job.algorithm,
        protection=job.protection,
        align=job.align,
        link=job.link,
        serving=serving,
        party=tuple(make_party_card(files[name]) for name in names),
    )
    path = folder / "agreement.toml"
    path.write_bytes(proposal.signed_bytes)
    for name in names:
        write_approval(path, approve_proposal(proposal, files[name], datetime.now(UTC)))
    tables = [table for name in names if (table := files[name].read_table()) is not None]
    return Company(folder, names, read_agreement(path), Parties.of(*tables))
