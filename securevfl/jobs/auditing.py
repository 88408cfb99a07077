"""The audit of a run's ledgers: do they verify, and what do they say left each party and came to it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from securevfl.errors import AuditError, InputError
from securevfl.jobs.result import LEDGER
from securevfl.privacy import READABLE_KINDS, SCHEMES, Chain, Entry, Noted, read, verify
from securevfl.report import Record
from securevfl.transport import Guard, Kind, Scalar

__all__ = ["Audit", "AuditLine", "Epsilon", "audit"]

_NOTHING = "it has the key, and what it opens tells it nothing: numbers under the sender's mask"


@dataclass(frozen=True, slots=True)
class AuditLine:
    """What one party sent to, or received from, one peer in one step under one protection in one run.

    Attributes:
        run: name of the run in the ledgers.
        party: whose ledger tells.
        way: ``"sent"`` or ``"received"``.
        peer: to or from whom.
        kind: of the messages.
        what: the step of the protocol that they belong to.
        guard: how they were protected.
        opens: whether the receiver has the key.
        messages: how many.
        bytes: how many, as the wire codec writes them.
        words: the step, in words, as the run declared it.
        declared: what the run declared that its receiver learns; empty for nothing, or where nothing was declared.
    """

    run: str
    party: str
    way: str
    peer: str
    kind: Kind
    what: str
    guard: Guard
    opens: bool
    messages: int
    bytes: int
    words: str
    declared: str

    @property
    def protection(self) -> str:
        """How it was protected, in words."""
        if self.guard.cipher == "none" and not self.guard.noise and self.kind not in READABLE_KINDS:
            return "none needed" if self.kind in (Kind.CONTROL, Kind.PUBLIC_KEY, Kind.MASKED_SHARE) else "none"
        return self.guard.label

    @property
    def reveals(self) -> str:
        """What its receiver can compute from it."""
        if self.guard.cipher in SCHEMES:
            text = Kind.CIPHERTEXT.reveals
            if self.opens:
                text = f"it has the key: {self.declared}" if self.declared else _NOTHING
        elif self.declared:
            text = self.declared
        elif self.guard.cipher == "masked":
            text = Kind.MASKED_SHARE.reveals
        else:
            text = self.kind.reveals
        return f"{text}, up to the noise" if self.guard.noise and (self.opens or self.readable) else text

    @property
    def readable(self) -> bool:
        """Whether the receiver reads row-level content itself, noise or not."""
        return self.kind in READABLE_KINDS and self.guard.cipher == "none"


@dataclass(frozen=True, slots=True)
class Epsilon:
    """What one party's releases of one kind cost in one run; one row's content is replaced.

    Attributes:
        run: name of the run.
        party: whose data it protects.
        what: ``"activations"`` or ``"gradients"``.
        epsilon: ε; infinite where content was released without noise.
        delta: δ.
        releases: of the row that was released most often.
        source: ``"ledger"``, ``"metrics.json"`` for a ledger that holds none, or ``"no noise"``.
    """

    run: str
    party: str
    what: str
    epsilon: float
    delta: float
    releases: int
    source: str


@dataclass(frozen=True, kw_only=True)
class Audit:
    """Ledgers that verified, and what they tell.

    Attributes:
        chains: one for each party and run.
        lines: what was sent and received, party by party.
        epsilons: what it cost.
        alone: (run, party) of each chain that names peers whose ledgers are not there to compare it with.
    """

    chains: Sequence[Chain]
    lines: Sequence[AuditLine]
    epsilons: Sequence[Epsilon]
    alone: Sequence[tuple[str, str]]

    def __iter__(self) -> Iterator[Any]:
        """``chains, lines = audit(…)``."""
        yield from (self.chains, self.lines)

    @property
    def messages(self) -> int:
        """Number of entries of all ledgers."""
        return sum(len(chain.entries) for chain in self.chains)

    @property
    def complete(self) -> bool:
        """Whether both ends of every link were there to be compared."""
        return not self.alone

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
                raise InputError(f"the ledgers tell of no {what} {given!r}; they tell of {', '.join(sorted(known))}")

        def asked(of_run: str, of_party: str) -> bool:
            return run in ("", of_run) and party in ("", of_party)

        return Audit(
            chains=[chain for chain in self.chains if asked(chain.run, chain.party)],
            lines=[line for line in self.lines if asked(line.run, line.party)],
            epsilons=[line for line in self.epsilons if asked(line.run, line.party)],
            alone=[pair for pair in self.alone if asked(*pair)],
        )


def audit(folder: str | Path) -> Audit:
    """Verify the ledgers of a run's folder and add up what was sent and received.

    Raises:
        InputError: the folder holds no ledger.
        AuditError: a ledger does not verify, or holds nothing.
    """
    path = Path(folder) / LEDGER
    if not path.is_file():
        raise InputError(f"{path} does not exist: name the folder of a finished run, e.g. runs/credit")
    chains = verify(read(path), str(path))
    if not chains:
        raise AuditError(f"{path} is empty; the ledger of a run has one line for each message: it was cut off")
    there = {(chain.run, chain.party) for chain in chains}
    peers = {(chain.run, chain.party): {entry.peer for entry in chain.entries} for chain in chains}
    return Audit(
        chains=chains,
        lines=[line for chain in chains for line in _lines(chain)],
        epsilons=list(_epsilons(chains, Path(folder) / "metrics.json")),
        alone=[
            (run, party) for (run, party), names in peers.items() if any((run, peer) not in there for peer in names)
        ],
    )


def _lines(chain: Chain) -> list[AuditLine]:
    owners, declared = _key_owners(chain), _declared(chain)
    tally: dict[tuple[str, str, Kind, str, Guard], list[int]] = {}
    for entry in chain.entries:
        pair = tally.setdefault((entry.way, entry.peer, entry.kind, entry.what, entry.guard), [0, 0])
        pair[0] += 1
        pair[1] += entry.bytes
    return [
        AuditLine(
            run=chain.run,
            party=chain.party,
            way=way,
            peer=peer,
            kind=kind,
            what=what,
            guard=guard,
            opens=owners.get(guard.key) == (peer if way == "sent" else chain.party),
            messages=messages,
            bytes=size,
            words=str(declared.get((what, kind.value), {}).get("words", what)),
            declared=str(declared.get((what, kind.value), {}).get("reveals", "")),
        )
        for (way, peer, kind, what, guard), (messages, size) in sorted(
            tally.items(), key=lambda item: item[0][0] != "sent"
        )
    ]


def _declared(chain: Chain) -> dict[tuple[str, str], Mapping[str, Scalar]]:
    """What the ledger says that the run declares, by step and kind.

    Raises:
        AuditError: a message that the run did not declare.
    """
    found: dict[tuple[str, str], Mapping[str, Scalar]] = {
        (str(n.values.get("step")), str(n.values.get("kind"))): n.values for n in chain.notes if n.note == "exchange"
    }
    strange = [e for e in chain.entries if found and (e.what, e.kind.value) not in found]
    if strange:
        raise AuditError(
            f"{chain.party!r}'s ledger of run {chain.run!r} has {strange[0].kind.value} {strange[0].what!r}, which the "
            "run did not declare"
        )
    return found


def _key_owners(chain: Chain) -> dict[str, str]:
    """Key → who has the secret key: whoever sends under it first, for in each protocol here the owner begins."""
    owners: dict[str, str] = {}
    for entry in chain.entries:
        if entry.cipher in SCHEMES:
            owners.setdefault(entry.key, chain.party if entry.way == "sent" else entry.peer)
    return owners


def _epsilons(chains: Iterable[Chain], metrics: Path) -> Iterator[Epsilon]:
    """ε from the ledgers' notes; of ledgers of version 1, from the run's figures; infinite where content left without
    noise."""
    record = None
    for chain in chains:
        notes = [note for note in chain.notes if note.note == "epsilon"]
        yield from (_noted(chain, note) for note in notes)
        if chain.opening.version == 1 and any(entry.noise > 0 for entry in chain.entries):
            record = record or _record(metrics)
            for line in (e for run in (record.runs if record else ()) if run.key == chain.run for e in run.epsilon):
                if line.party == chain.party:
                    yield Epsilon(
                        chain.run, chain.party, line.what, line.epsilon_rdp, line.delta, line.releases, "metrics.json"
                    )
        bare = {f"{entry.kind.value}s" for entry in chain.entries if entry.way == "sent" and _bare(entry)}
        if any(note.values.get("what") == "labels" for note in notes):
            bare.discard("gradients")  # they were computed from labels that randomised response had drawn
        yield from (Epsilon(chain.run, chain.party, what, float("inf"), 0.0, 0, "no noise") for what in sorted(bare))


def _noted(chain: Chain, note: Noted) -> Epsilon:
    values = note.values
    epsilon = next((values[name] for name in ("epsilon", "epsilon_rdp", "epsilon_prv") if name in values), "inf")
    releases = next((values[name] for name in ("releases", "times") if name in values), 0)
    try:
        numbers = float(epsilon), float(values.get("delta", 0.0)), int(releases)
    except ValueError:
        raise AuditError(
            f"{chain.party!r}'s ledger of run {chain.run!r} has a note of ε that holds no numbers"
        ) from None
    return Epsilon(chain.run, chain.party, str(values.get("what", "")), *numbers, "ledger")


def _record(path: Path) -> Record | None:
    try:
        return Record.read(path)
    except InputError:
        return None


def _bare(entry: Entry) -> bool:
    return entry.kind in READABLE_KINDS and entry.guard.readable
