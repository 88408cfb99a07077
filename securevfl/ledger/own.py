"""The ledger file of a party with a process of its own: it goes on, chain after chain, over attempts and processes.

Each attempt at the job is a chain, which names the last line of the one before it, also where that one has no end, for
its process was killed. A last line that was cut off in the middle is taken away: it was to be there before its message
left, so the message did not leave.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from securevfl.errors import AuditError
from securevfl.ledger.chain import Ledger
from securevfl.ledger.keys import PrivateKey
from securevfl.ledger.lines import VERSION
from securevfl.ledger.reading import Flaw, raise_flaws, read
from securevfl.ledger.verifying import chains_of
from securevfl.transport import Scalar

__all__ = ["OpensLedgers", "OwnLedgers"]


class OpensLedgers(Protocol):
    """Opens ledgers of runs: `Ledgers` those of a call, `OwnLedgers.attempt` that of an attempt."""

    def open(self, party: str, *, run: str, job: str, policy: str = "none", role: str = "") -> Ledger:
        """A party's ledger of one run, after its last one."""
        ...


class OwnLedgers:
    """One party's file.

    Args:
        party: whose.
        key: the party's, the same over all processes.
        path: of the file; made by the first attempt.
        software: name and version of what keeps it.
        later: names of runs that are no attempts and come after them, for example what binds the results.
        pins: see `Ledger`.

    Attributes:
        dropped: bytes of a last line that was cut off, and is gone now.

    Raises:
        AuditError: the file does not verify, or is signed with another key.
    """

    def __init__(
        self,
        party: str,
        key: PrivateKey,
        path: Path,
        *,
        software: str = f"securevfl ledger {VERSION}",
        later: Sequence[str] = (),
        pins: Mapping[str, str] | None = None,
    ) -> None:
        self.party = party
        self.dropped = 0
        self._key = key
        self._path = path
        self._software = software
        self._later = tuple(later)
        self._pins = dict(pins or {})
        self._session = os.urandom(16).hex()
        self._attempt = 0
        self._before: Ledger | None = None
        self._after = ""
        self._given: set[str] = set()
        self._held: dict[str, str] = {}
        if path.exists():
            self._read()

    def _read(self) -> None:
        self.dropped = _cut_torn(self._path)
        chains, loose = chains_of(read(self._path), str(self._path))
        flaws = [*loose, *(flaw for chain in chains for flaw in chain.flaws)]
        mine = self._key.public.hex
        for before, chain in zip(["", *(chain.head for chain in chains)], chains, strict=False):
            if (chain.party, chain.opening.key) != (self.party, mine):
                text = f"the chain is of {chain.party!r}, signed with {chain.key.fingerprint}; this is {self.party!r}"
                flaws.append(Flaw(chain.file, chain.first, chain.party, f"{text}, {self._key.public.fingerprint}"))
            if chain.opening.after != before:
                flaws.append(Flaw(chain.file, chain.first, chain.party, "the chain before it is not there"))
        raise_flaws(flaws)
        if chains:
            self._session, self._after = chains[0].opening.session, chains[-1].head
            self._attempt = max(chain.attempt for chain in chains)
            self._given = {head for chain in chains for head, _ in chain.marks}
            self._given |= {chain.told[0] for chain in chains if chain.told is not None}
            for chain in chains:
                self._held |= {name: word.head for _, name, word in chain.settled}

    def gave(self, head: str) -> bool:
        """Whether the party gave its word on a chain with this last line. If a peer holds such a word and this file
        does not know of it, the file is an older copy."""
        return head in self._given

    @property
    def current(self) -> Ledger | None:
        """The ledger that this process opened last, unless it is closed."""
        return None if self._before is None or self._before.closed else self._before

    @property
    def held(self) -> dict[str, str]:
        """Peer → last line of its chain by the last word that it gave in mid-run."""
        return dict(self._held)

    def settle(self, ledger: Ledger, peer: str, said: Mapping[str, Scalar]) -> None:
        """See `Ledger.settle`; it is `held` from now on.

        Raises:
            ProtocolError: likewise.
        """
        ledger.settle(peer, said)
        self._held[peer] = str(said.get("head"))

    def give(self, ledger: Ledger) -> dict[str, Scalar]:
        """See `Ledger.word_so_far`; it is known from now on that it was given."""
        word = ledger.word_so_far()
        self._given.add(str(word["head"]))
        return word

    def attempt(self, attempt: int, view: str, *, epoch: int = 0, step: int = 0) -> OpensLedgers:
        """What opens the ledger of one attempt.

        Args:
            attempt: its number, larger than those before.
            view: of which processes and checkpoints, hexadecimal.
            epoch, step: epochs that were done, and batches of the next one.

        Raises:
            AuditError: the file tells of this attempt already.
        """
        if attempt <= self._attempt:
            raise AuditError(
                f"{self._path} tells of attempt {self._attempt}, so attempt {attempt} cannot begin: bring the state "
                "folder's other files back as they were when this one was written"
            )
        return _Attempt(self, attempt, view, epoch, step)

    def open(self, party: str, *, run: str, job: str, policy: str = "none", role: str = "") -> Ledger:
        """The ledger of a run that is no attempt, after the last one."""
        return self._open(None, party, run, job, policy, role)

    def _open(self, one: _Attempt | None, party: str, run: str, job: str, policy: str, role: str) -> Ledger:
        if party != self.party:
            raise AuditError(f"{self._path} is the ledger file of {self.party!r} and holds nothing of {party!r}")
        if self._before is not None:
            self._before.close("ended: another attempt begins")
        ledger = Ledger(
            self.party,
            run=run,
            job=job,
            policy=policy,
            role=role,
            key=self._key,
            runs=[run, *(name for name in self._later if name != run)],
            session=self._session,
            software=self._software,
            after=self._after if self._before is None else self._before.head,
            path=self._path,
            kept=False,
            pins=self._pins,
        )
        self._before = ledger
        if one is not None:
            ledger.attempt(one.attempt, one.view, epoch=one.epoch, step=one.step)
            self._attempt = one.attempt
        return ledger


@dataclass(frozen=True)
class _Attempt:
    own: OwnLedgers
    attempt: int
    view: str
    epoch: int
    step: int

    def open(self, party: str, *, run: str, job: str, policy: str = "none", role: str = "") -> Ledger:
        return self.own._open(self, party, run, job, policy, role)


def _cut_torn(path: Path) -> int:
    """Take the part after the last line feed off a file; how many bytes that were."""
    with path.open("r+b") as file:
        size = end = file.seek(0, os.SEEK_END)
        while end:
            begin = max(0, end - (1 << 16))
            file.seek(begin)
            at = file.read(end - begin).rfind(b"\n")
            if at >= 0:
                end = begin + at + 1
                break
            end = begin
        if end != size:
            file.truncate(end)
            os.fsync(file.fileno())
    return size - end
