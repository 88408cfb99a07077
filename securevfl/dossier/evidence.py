"""The evidence of a dossier: what an agreement, verified ledgers, a report and attacks carry, with their sources.

Every getter returns a `Fact`: the value at a path, and that path as its source. A path that does not exist raises, so
that no document can cite what is not there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import msgspec

from securevfl.agreement import Agreement, PartyCard
from securevfl.auditing import Audit
from securevfl.dossier.sentences import Fact, Source
from securevfl.privacy import LedgerChain
from securevfl.report.attack_record import AttackRecord
from securevfl.report.card import Card
from securevfl.report.card_making import make_run_card
from securevfl.report.record import PartyRecord, Record, RunRecord
from securevfl.run.job_card import job_card
from securevfl.run.run_files import ALIGNMENT

__all__ = ["DossierEvidence", "DossierKind"]

DossierKind = Literal["simulation", "organisation", "agreement"]
"""A run of all parties in one process; one organisation's part of a run; an agreement under which nothing ran yet."""


@dataclass(frozen=True, kw_only=True)
class DossierEvidence:
    """What the documents may state.

    Attributes:
        place: the folder of the run, or the agreement's file.
        me: the organisation whose dossier it is; empty in a simulation in which none was named.
        agreement: with the approvals that verified; None in a simulation.
        record: the report's figures; None before a run.
        run_key: the run of the record that the documents are about; empty before a run.
        audit: the ledgers, verified; None before a run.
        attacks: on this job; None where none is there, or where they are on another job.
        other_attacks: title of the job that the attacks found are of, if it is another one.
        state: the organisation's state folder, where one is known.
    """

    place: Path
    me: str = ""
    agreement: Agreement | None = None
    record: Record | None = None
    run_key: str = ""
    audit: Audit | None = None
    attacks: AttackRecord | None = None
    other_attacks: str = ""
    state: Path | None = None

    @property
    def kind(self) -> DossierKind:
        """What the evidence is of."""
        if self.record is None:
            return "agreement"
        return "organisation" if self.record.known_to else "simulation"

    @property
    def run(self) -> RunRecord | None:
        """The run that the documents are about; None before a run."""
        if self.record is None:
            return None
        return next(run for run in self.record.runs if run.key == self.run_key)

    @property
    def origin(self) -> str:
        """Name of the folder that the report and the ledgers are from; of the agreement's file before a run."""
        return (self.state if self.state is not None and self.audit is not None else self.place).resolve().name

    @property
    def settings_known(self) -> bool:
        """Whether the record's settings are those of this run: a comparison records those of its first job alone."""
        if self.record is None:
            return True
        first = next((run for run in self.record.runs if not run.baseline), None)
        return first is not None and first.key == self.run_key

    @property
    def title(self) -> str:
        """What was trained, or will be, under which protection."""
        if self.run is not None:
            return self.run.title
        job = self._proposal.job_of()
        return f"{job.algorithm.title_for(job.number_loss)}, {job.protection.title}"

    @property
    def roles(self) -> dict[str, str]:
        """Party → ``"active"``, ``"passive"`` or ``"coordinator"``."""
        if self.agreement is not None:
            return {card.name: card.role for card in self._proposal.party}
        found = {party.name: party.role for party in self.record.parties} if self.record is not None else {}
        return found | {name: "coordinator" for name in self._helpers if name not in found}

    @property
    def _helpers(self) -> list[str]:
        run = self.run
        ends = [] if run is None else [name for link in run.links for name in (link.sender, link.receiver)]
        return list(dict.fromkeys(ends))

    @property
    def _proposal(self) -> Any:
        if self.agreement is None:
            raise LookupError("this evidence has no agreement")
        return self.agreement.proposal

    @cached_property
    def _trees(self) -> dict[str, Any]:
        """Plain values of the agreement and of the record, with parties and runs by name."""
        found: dict[str, Any] = {"agreement": {}, "report": {}}
        if self.agreement is not None:
            tree = self._proposal.to_tree()
            found["agreement"] = tree | {"party": {card.name: card.display_tree() for card in self._proposal.party}}
        if self.record is not None:
            tree = msgspec.to_builtins(self.record)
            tree["runs"] = {run["key"]: run for run in tree["runs"]}
            tree["parties"] = {party["name"]: party for party in tree["parties"]}
            tree["ledgers"] = {ledger["party"]: ledger for ledger in tree["ledgers"]}
            found["report"] = tree
        return found

    def agreed(self, path: str) -> Fact:
        """A term of the agreement: ``agreed("limits.expires")``.

        Raises:
            LookupError: there is no agreement, or no such term.
        """
        return Fact(_look_up(self._trees["agreement"], path), Source("agreement", path))

    def reported(self, path: str) -> Fact:
        """A figure of the report: ``reported("alignment.common")``.

        Raises:
            LookupError: there is no report, or no such figure.
        """
        return Fact(_look_up(self._trees["report"], path), Source("report", path))

    def of_run(self, path: str) -> Fact:
        """A figure of the run that the documents are about: ``of_run("test.auc")``."""
        return self.reported(f"runs.{self.run_key}.{path}")

    def setting(self, path: str) -> Fact:
        """An option of the job: ``setting("protection.name")``, from the report where there is one, else as agreed.

        Raises:
            LookupError: no such option, or the record has those of another run.
        """
        if not self.settings_known:
            raise LookupError(f"the record does not have the settings of {self.run_key!r}")
        if self.record is not None:
            return Fact(_look_up(self.record.job, path), Source("setting", path))
        section, _, name = path.partition(".")
        where = path if name else f"job.{section}"
        return Fact(_look_up(self._trees["agreement"], where), Source("agreement", where))

    def settings(self, section: str) -> list[tuple[str, Fact]]:
        """Every option of a section, name and fact; ``""`` for the job's own. Empty where they are not known."""
        if not self.settings_known:
            return []
        if self.record is not None:
            tree: Any = self.record.job if not section else self.record.job.get(section)
        else:
            tree = self._trees["agreement"].get(section or "job")
        if not isinstance(tree, Mapping):
            return []
        known = [name for name, value in tree.items() if not isinstance(value, Mapping)]
        return [(name, self.setting(f"{section}.{name}" if section else name)) for name in known]

    def chains(self, *, party: str = "", all_runs: bool = False) -> list[LedgerChain]:
        """The verified chains of the run and of its alignment, or of all runs."""
        if self.audit is None:
            return []
        # A run that was repeated with new noise has a chain for each draw: "dp", "dp 2", "dp 3".
        all_runs = all_runs or not self.run_key  # no report names a run: whatever crossed until now
        draws = 1 if self.run is None else self.run.draws
        mine = {ALIGNMENT, self.run_key, *(f"{self.run_key} {draw}" for draw in range(2, draws + 1))}
        return [chain for chain in self.audit.chains if party in ("", chain.party) and (all_runs or chain.run in mine)]

    @property
    def is_pinned(self) -> bool:
        """Whether an agreement fixes the keys of all ledgers here: else they show that nobody edited them since they
        were signed, and not who signed.
        """
        return self.audit is not None and {chain.party for chain in self.audit.chains} <= set(self.audit.pinned)

    def ledger_source(self, party: str) -> Source:
        """A party's verified ledger file: its messages and its last head."""
        chains = self.chains(party=party, all_runs=True)
        if not chains:
            raise LookupError(f"no ledger of {party!r} was verified")
        entries = sum(len(chain.entries) for chain in chains)
        return Source("ledger", f"{party}.jsonl, {entries:,} entries, head {chains[-1].head[:12]}…")

    @property
    def ledger_sources(self) -> tuple[Source, ...]:
        """One source for each ledger file that was verified."""
        parties = [] if self.audit is None else sorted({chain.party for chain in self.audit.chains})
        return tuple(map(self.ledger_source, parties))

    @property
    def basis(self) -> tuple[Source, ...]:
        """What the dossier as a whole rests on."""
        found = []
        if self.agreement is not None:
            found.append(Source("agreement", f"SHA-256 {self.agreement.digest[:16]}…"))
        if self.record is not None:
            found.append(Source("report", f"metrics.json of {self.record.created}"))
        return (*found, *self.ledger_sources)

    @cached_property
    def card(self) -> Card | None:
        """What each party could read of each other's data, at worst; None where no party has a peer."""
        if self.run is not None and self.record is not None:
            return make_run_card(self.run, self.record.parties, self.attacks)
        proposal = self._proposal
        columns = {card.name: card.table.columns for card in proposal.party if card.table is not None}
        return job_card(proposal.job_of(), proposal.owner_names, proposal.passive_names, self.attacks, columns=columns)

    @property
    def card_source(self) -> Source:
        """Source of the card: the run's, or the agreement's before a run."""
        return Source("card", f"of run {self.run_key!r}" if self.run_key else "of the agreement")

    def party_record(self, name: str) -> PartyRecord | None:
        """The report's record of a party's table; None where it has none."""
        parties: Sequence[PartyRecord] = () if self.record is None else self.record.parties
        return next((party for party in parties if party.name == name), None)

    def party_card(self, name: str) -> PartyCard | None:
        """The agreement's card of a party; None without an agreement."""
        if self.agreement is None:
            return None
        card: PartyCard = self._proposal.card_of(name)
        return card


def _look_up(tree: Any, path: str) -> Any:
    """The value at a path of names and list indexes, with dots between.

    Raises:
        LookupError: there is none.
    """
    rest = path
    while rest:
        if isinstance(tree, Mapping):
            # Names of runs and parties may contain dots: the longest name that is there wins.
            name = max((key for key in tree if rest == key or rest.startswith(f"{key}.")), key=len, default=None)
            if name is None:
                raise LookupError(f"nothing at {path!r}")
            tree, rest = tree[name], rest[len(name) + 1 :]
        elif isinstance(tree, Sequence) and not isinstance(tree, str):
            name, _, rest = rest.partition(".")
            tree = tree[int(name)]
        else:
            raise LookupError(f"nothing at {path!r}")
    return tree
