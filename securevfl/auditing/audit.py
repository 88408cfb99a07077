"""Audit a run's ledgers: verify them, and list what left and reached each party."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from securevfl.auditing.epsilon import Epsilon, find_wrong_epsilons, recompute_epsilons
from securevfl.auditing.files import changed_files, missing_files, missing_parts
from securevfl.auditing.leavings import find_departures, find_wrong_departures
from securevfl.auditing.lines import AuditLine, find_undeclared, sum_up_chain
from securevfl.errors import AuditError, InputError, UnknownNameError
from securevfl.ledger import describe_missing, raise_flaws, read_lines, read_public_keys, verify_files
from securevfl.privacy import LedgerChain
from securevfl.run.run_files import LEDGERS, OLD_LEDGER

__all__ = ["Audit", "AuditLine", "Epsilon", "audit"]


@dataclass(frozen=True, kw_only=True)
class Audit:
    """Verified ledgers and their content.

    Attributes:
        chains: one for each party and run.
        lines: what was sent and received, party by party.
        epsilons: ε of the run's releases.
        alone: (run, party) of each chain that names peers whose ledgers are not there to compare it with.
        incomplete: what is missing, as text: ends of chains, expected runs. A killed process leaves such gaps, and so
            does anybody who truncates files.
        pinned: parties whose keys were known beforehand.
        missing: files of the label owner's that the ledgers name and that are not here, so that they were not compared.
        parts: files of model parts that the ledgers name and that are not here, none of them.
        left: party that left the job for good → the epoch after which the others went on: all of them signed it.
        compared: links of which both ends were compared, over all runs.
    """

    chains: Sequence[LedgerChain]
    lines: Sequence[AuditLine]
    epsilons: Sequence[Epsilon]
    alone: Sequence[tuple[str, str]]
    incomplete: Sequence[str] = field(default=())
    pinned: Sequence[str] = field(default=())
    missing: Sequence[str] = field(default=())
    parts: Sequence[str] = field(default=())
    left: Mapping[str, int] = field(default_factory=dict)
    compared: int = 0

    def __iter__(self) -> Iterator[Any]:
        """``chains, lines = audit(…)``."""
        yield from (self.chains, self.lines)

    @property
    def messages(self) -> int:
        """Number of entries of all ledgers."""
        return sum(len(chain.entries) for chain in self.chains)

    @property
    def keys(self) -> dict[str, str]:
        """Party → fingerprint of the key that its ledger is signed with."""
        return {chain.party: chain.key.fingerprint for chain in self.chains}

    @property
    def is_complete(self) -> bool:
        """Whether every chain has its end, every expected run is there, and both ends of every link were compared."""
        return not self.alone and not self.incomplete

    def of(self, *, party: str = "", run: str = "") -> Audit:
        """The part that one party, one run or one party's part in one run is.

        Raises:
            InputError: no such party or run; names those that there are.
        """
        for what, given, known in (
            ("party", party, {chain.party for chain in self.chains}),
            ("run", run, {chain.run for chain in self.chains}),
        ):
            if given and given not in known:
                raise InputError(f"the ledgers contain no {what} {given!r}; they contain {', '.join(sorted(known))}")

        def is_selected(of_run: str, of_party: str) -> bool:
            return run in ("", of_run) and party in ("", of_party)

        return Audit(
            chains=[chain for chain in self.chains if is_selected(chain.run, chain.party)],
            lines=[line for line in self.lines if is_selected(line.run, line.party)],
            epsilons=[line for line in self.epsilons if is_selected(line.run, line.party)],
            alone=[pair for pair in self.alone if is_selected(*pair)],
            incomplete=self.incomplete,
            pinned=[name for name in self.pinned if party in ("", name)],
            missing=self.missing,
            parts=self.parts,
            left=self.left,
            compared=self.compared,
        )


def audit(folder: str | Path, *, pins: Mapping[str, str] | None = None, keys: str | Path | None = None) -> Audit:
    """Verify the ledgers of a run's folder and add up what was sent and received.

    Args:
        folder: of the run.
        pins: party → fingerprint of the key that must have signed its ledger.
        keys: a folder of public keys, ``PARTY.pub``, to the same end.

    Raises:
        InputError: the folder contains no ledger, or a pin names a party without one.
        AuditError: whatever does not verify: `AuditError.flaws` has each with its file, line and party.
    """
    files = _ledger_files(Path(folder))
    known = {} if keys is None else {party: key.fingerprint for party, key in read_public_keys(keys).items()}
    known |= pins or {}
    chains = verify_files({str(path): read_lines(path) for path in files}, known)
    if not chains:
        raise AuditError(f"{files[0]} is empty; the ledger of a run has one line for each message: it was cut off")
    parties = sorted({chain.party for chain in chains})
    for party in pins or {}:
        if party not in parties:
            raise UnknownNameError("party that is pinned", party, parties)
    raise_flaws(
        [
            *(flaw for chain in chains for flaw in (*find_undeclared(chain), *find_wrong_epsilons(chain))),
            *find_wrong_departures(chains),
            *changed_files(chains, Path(folder)),
        ]
    )
    left = find_departures(chains)
    there = {(chain.run, chain.party) for chain in chains}
    peers = {(c.run, c.party): {*c.peers, *(entry.peer for entry in c.entries)} for c in chains}
    pairs = {(run, *sorted((party, peer))) for (run, party), names in peers.items() for peer in names}
    return Audit(
        chains=chains,
        lines=[line for chain in chains for line in sum_up_chain(chain)],
        epsilons=[line for chain in chains for line in recompute_epsilons(chain)],
        alone=[
            (run, party) for (run, party), names in peers.items() if any((run, peer) not in there for peer in names)
        ],
        incomplete=[*describe_missing(chains, left), *_find_empty(files, chains)],
        pinned=tuple(party for party in parties if party in known),
        missing=missing_files(chains, Path(folder)),
        parts=missing_parts(chains, Path(folder)),
        left=left,
        compared=sum((run, one) in there and (run, other) in there for run, one, other in pairs),
    )


def _find_empty(files: Sequence[Path], chains: Sequence[LedgerChain]) -> list[str]:
    """Describe files without a whole line beside others' ledgers: of a process that was stopped as it began."""
    named = {chain.file for chain in chains}
    return [f"{path}:1: the file contains no whole line" for path in files if str(path) not in named]


def _ledger_files(folder: Path) -> list[Path]:
    """The ledger files of a run's folder.

    Raises:
        InputError: no ledger was found.
        AuditError: those of version 0.1, which are not signed.
    """
    found = sorted((folder / LEDGERS).glob("*.jsonl")) or _collected_files(folder)
    if found:
        return found
    if (folder / OLD_LEDGER).is_file():
        raise AuditError(
            f"{folder / OLD_LEDGER} is a ledger of version 0.1. It is not signed, so anybody can rewrite it "
            "and recompute its hashes: only securevfl 0.1 audits it"
        )
    left = sorted({path.parent.parent for path in folder.glob(f"*/{LEDGERS}/*.jsonl")})
    if left:
        raise InputError(
            f"{folder / LEDGERS} contains no ledger; runs that failed or were killed left some: name "
            f"{' or '.join(map(str, left))}"
        )
    raise InputError(f"{folder / LEDGERS} contains no ledger: name the folder of a finished run, e.g. runs/credit")


def _collected_files(folder: Path) -> list[Path]:
    """Ledger files that several parties put into one folder, each under its own name."""
    found = []
    for path in sorted(folder.glob("*.jsonl")):
        with path.open("rb") as file:
            if file.read(len(_OPENING)) == _OPENING:
                found.append(path)
    return found


_OPENING = b'{"line":"open","time":'
