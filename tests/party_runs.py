"""Parties of an agreement as tests need them: cards, keys and approvals, and their runners over memory."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

from securevfl.data import Parties
from securevfl.jobs.agreement import Agreement, Approval, Limits, PartyCard, Proposal, TableSchema, Versions
from securevfl.jobs.process.attend import Attending
from securevfl.jobs.runner.simulated import COORDINATOR
from securevfl.jobs.state import StateFolder
from securevfl.party import Job, JobTerms
from securevfl.privacy import PrivateKey
from securevfl.transport import MemoryHub

KEYS = {name: PrivateKey.generate() for name in ("bank", "shop1", "shop2", "owner1", "owner2", COORDINATOR)}


def agreement_of(job: Job, people: Parties, **limits: object) -> Agreement:
    """An agreement on a job that all parties approved."""
    names = sorted([*people, *([COORDINATOR] if job.algorithm.many_owners else [])])
    roles = {table.name: table.role for table in people.values()} | {COORDINATOR: "coordinator"}
    cards = tuple(
        PartyCard(
            name=name,
            role=roles[name],  # type: ignore[arg-type]
            signing_key=KEYS[name].public.hex,
            certificates=(f"sha256:{i:064x}",),
            table=TableSchema.of_table(people[name]) if name in people else None,
        )
        for i, name in enumerate(names)
    )
    proposal = Proposal(
        id="0" * 32,
        purpose="a test",
        limits=Limits(**{"expires": "2126-01-01T00:00:00Z"} | limits),  # type: ignore[arg-type]
        versions=Versions.own(),
        job=JobTerms(**{name: getattr(job, name) for name in JobTerms.__struct_fields__}),
        algorithm=job.algorithm,
        protection=job.protection,
        party=cards,
    )
    approvals = {name: Approval.sign(proposal, name, KEYS[name]) for name in names}
    return Agreement(proposal, approvals)


def run_over_memory(
    agreement: Agreement, people: Parties, folder: Path, secrets: Mapping[str, object] | None = None
) -> dict[str, Attending]:
    """Run all parties of an agreement in this process, each with its own state folder."""
    names = agreement.proposal.names
    with ExitStack() as held:
        states = {
            name: held.enter_context(StateFolder.take(folder / name, party=name, agreement=agreement.digest))
            for name in names
        }
        for name, secret in (secrets or {}).items():
            states[name].secret(secret)  # type: ignore[arg-type]
        parties = {
            name: Attending(
                states[name],
                Agreement(agreement.proposal, {name: agreement.approvals[name]}),
                name,
                KEYS[name],
                people.get(name),
            )
            for name in names
        }

        async def all_of_them() -> None:
            hub = MemoryHub(names, incarnations={name: party.incarnation for name, party in parties.items()})
            async with asyncio.TaskGroup() as group:
                for name, party in parties.items():
                    group.create_task(party.attend(hub[name]))

        asyncio.run(all_of_them())
    return parties
