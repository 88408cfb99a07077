"""The files of separate companies under one agreement: for tests and benchmarks."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

from securevfl_net.durable import make_folder
from securevfl_net.identity.making import Key, self_signed

from securevfl.agreement import (
    ServingTerms,
    approve_proposal,
    make_party_card,
    propose_job,
    read_agreement,
    read_party_file,
    write_approval,
)
from securevfl.data import Parties, PartyTable
from securevfl.ledger import make_key
from securevfl.run.model_parts import PART, model_part, write_run
from securevfl.run.store import write_tree

__all__ = ["Companies"]


class Companies:
    """One folder for each party: keys, certificate, table, party file; and an agreement that all have approved.

    Args:
        folder: for all of it.
        people: the parties' tables.
        job: text of a job file, without tables.
        serving: the agreement's terms for scores; None for training only.
    """

    def __init__(self, folder: Path, people: Parties, job: str, serving: ServingTerms | None) -> None:
        self.folder = folder
        self.names = tuple(people)
        self._number = people[self.names[0]].target == "number"
        self._link = tuple(people[self.names[0]].link)
        self.agreement = folder / "agreement.toml"
        now = datetime.now(UTC)
        for name, table in people.items():
            place = folder / name
            make_folder(place, private=True)
            make_key(name, place)
            key = Key.generate()
            (place / "tls.key").write_bytes(key.pem)
            (place / "tls.key").chmod(0o600)
            (place / "tls.crt").write_bytes(self_signed(name, key, now).pem)
            _write_table(place / "table.csv", table)
            self.party_file(name, {})
        files = {name: read_party_file(folder / name / "party.toml") for name in self.names}
        (folder / "job.toml").write_text(job, encoding="utf-8")
        self.proposal = propose_job(
            folder / "job.toml",
            [make_party_card(file) for file in files.values()],
            purpose="a trial",
            expires="30d",
            now=now,
            serving=serving,
            accept_leak=True,
        )
        self.agreement.write_bytes(self.proposal.signed_bytes)
        for file in files.values():
            write_approval(self.agreement, approve_proposal(self.proposal, file, now))

    def party_file(self, name: str, dials: Mapping[str, str], listen: str = "127.0.0.1:0") -> Path:
        """Write a party's file.

        Args:
            name: the party.
            dials: peer → address at which it is dialled; all others dial this party.
            listen: where the party listens.
        """
        target = 'target = "number"\n' if self._number else ""
        label = f'label = "late"\n{target}' if name == self.names[0] else ""
        label += f"link = {{{', '.join(f'{field} = {field!r}' for field in self._link)}}}\n" if self._link else ""
        ways = {peer: "listen = true" for peer in self.names if peer != name}
        ways |= {peer: f'dial = "{address}"' for peer, address in dials.items()}
        sections = "".join(f"\n[peer.{peer}]\n{how}\n" for peer, how in ways.items())
        sections += '[policy]\nmax_results = "unlimited"\n'
        path = self.folder / name / "party.toml"
        path.write_text(
            f'party = "{name}"\nbaselines = false\n'
            f'listen = "{listen}"\n\n[data]\nfile = "table.csv"\nid = "ref"\n{label}\n'
            f'[keys]\nsigning = "{name}.key"\ncertificate = "tls.crt"\nkey = "tls.key"\n{sections}',
            encoding="utf-8",
        )
        return path

    def write_models(self, parts: Mapping[str, Mapping[str, object]]) -> None:
        """Write what training leaves in the parties' state folders.

        Args:
            parts: party → its part of a model.
        """
        for name, part in parts.items():
            model = self.folder / name / "state" / "model"
            tree = {key: value for key, value in part.items() if key not in ("job", "party")}
            write_tree(model / f"{name}{PART}", model_part(self.proposal.job_of(), name, tree))
            write_run(model, read_agreement(self.agreement).digest)


def _write_table(path: Path, table: PartyTable) -> None:
    label = [] if table.label is None else [table.label]
    names = [*table.columns, *["late" for _ in label], *table.link]
    rows = zip(table.ids, zip(*table.columns.values(), *label, *table.link.values(), strict=True), strict=True)
    cells = ([name, *("" if value is None else str(value) for value in row)] for name, row in rows)
    lines = [",".join(["ref", *names]), *map(",".join, cells)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
