"""The ledger file of a party that runs as a separate process; chains accumulate over attempts and restarts.

Each attempt at the job is a chain that names the last line of the previous chain, even if that chain has no closing
line because its process was killed. A torn last line is removed: a line is complete before its message leaves, so that
message never left.
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
from securevfl.ledger.lines import READMITTED, STOPPED, VERSION
from securevfl.ledger.reading import Flaw, raise_flaws, read_lines
from securevfl.ledger.readmission import Readmission, encode_readmission, grants_in_note
from securevfl.ledger.verifying import chains_of
from securevfl.transport import Scalar

__all__ = ["OpensLedgers", "OwnLedgers"]


class OpensLedgers(Protocol):
    """Opens ledgers of runs: `Ledgers` for a call, `OwnLedgers.attempt_opener` for an attempt."""

    def open(self, party: str, *, run: str, job: str, policy: str = "none", role: str = "") -> Ledger:
        """Open a party's ledger of one run, following its previous chain."""
        ...


class OwnLedgers:
    """The ledger file of one party.

    Args:
        party: the party's name.
        key: the party's signing key, the same in every process.
        path: the file; the first attempt creates it.
        software: name and version of the program that writes it.
        later: names of runs after the attempts, for example the one that binds the results.
        pins: see `Ledger`.
        stopped: whether the machine, and not only the process, has stopped since the file was last written.
        readmitted: grants of its peers, after the file was restored; the next chain records them.

    Attributes:
        dropped: bytes of a torn last line, now removed.

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
        stopped: bool = False,
        readmitted: Sequence[Readmission] = (),
    ) -> None:
        self.party = party
        self.dropped = 0
        self._key = key
        self._path = path
        self._software = software
        self._later = tuple(later)
        self._pins = dict(pins or {})
        self._stopped = stopped
        self._readmitted = tuple(readmitted)
        self._session = os.urandom(16).hex()
        self._attempt = 0
        self._before: Ledger | None = None
        self._after = ""
        self._last_time = 0
        self._given: set[str] = set()
        self._held: dict[str, str] = {}
        if path.exists():
            self._read_chains()
        else:
            self._stopped = False
        self._given |= {grant.head for grant in self._readmitted if grant.head}

    def _read_chains(self) -> None:
        self.dropped = _cut_torn(self._path)
        chains, loose = chains_of(read_lines(self._path), str(self._path))
        flaws = [*loose, *(flaw for chain in chains for flaw in chain.flaws)]
        mine = self._key.public_key.hex
        for before, chain in zip(["", *(chain.head for chain in chains)], chains, strict=False):
            if (chain.party, chain.opening.key) != (self.party, mine):
                text = (
                    f"the chain belongs to {chain.party!r}, signed with {chain.key.fingerprint}; this party is "
                    f"{self.party!r}"
                )
                flaws.append(Flaw(chain.file, chain.first, chain.party, f"{text}, {self._key.public_key.fingerprint}"))
            if chain.opening.after != before:
                flaws.append(Flaw(chain.file, chain.first, chain.party, "the chain before it is missing"))
        raise_flaws(flaws)
        # Only a chain that was open can have lost lines: a closing line is synced.
        self._stopped = self._stopped and bool(chains) and not chains[-1].is_closed
        if chains:
            self._session, self._after = chains[0].opening.session, chains[-1].head
            self._last_time = chains[-1].last_time
            self._attempt = max(chain.attempt for chain in chains)
            self._given = {head for chain in chains for head, _ in chain.marks}
            self._given |= {chain.head_sent[0] for chain in chains if chain.head_sent is not None}
            known = [grant for chain in chains for note in chain.notes for grant in grants_in_note(note)]
            self._given |= {grant.head for grant in known if grant.head}
            if {grant.nonce for grant in self._readmitted} <= {grant.nonce for grant in known}:
                self._readmitted = ()
            for chain in chains:
                self._held |= {name: word.head for _, name, word in chain.settled}

    def has_signed(self, head: str) -> bool:
        """Return True if the party sent a signed head with this hash. If a peer recorded a head that this file lacks,
        the file is an older copy.
        """
        return head in self._given

    @property
    def current_ledger(self) -> Ledger | None:
        """The ledger that this process opened last, or None if it is closed."""
        return None if self._before is None or self._before.is_closed else self._before

    @property
    def peer_heads(self) -> dict[str, str]:
        """Peer → the latest chain head that it signed during a run."""
        return dict(self._held)

    def record_head(self, ledger: Ledger, peer: str, said: Mapping[str, Scalar]) -> None:
        """Call `Ledger.record_head` and add the head to `held`.

        Raises:
            ProtocolError: see `Ledger.take_head`.
        """
        ledger.record_head(peer, said)
        self._held[peer] = str(said.get("head"))

    def sign_head(self, ledger: Ledger) -> dict[str, Scalar]:
        """Return `Ledger.publish_head` and remember it for `gave`."""
        word = ledger.publish_head()
        self._given.add(str(word["head"]))
        return word

    def attempt_opener(self, attempt: int, view: str, *, epoch: int = 0, step: int = 0) -> OpensLedgers:
        """Return an opener for the ledger of one attempt.

        Args:
            attempt: its number, larger than all earlier ones.
            view: digest of the processes and checkpoints that take part, in hex.
            epoch, step: epochs completed, and batches completed in the next epoch.

        Raises:
            AuditError: the file already records this attempt.
        """
        if attempt <= self._attempt:
            raise AuditError(
                f"{self._path} already records attempt {self._attempt}, so attempt {attempt} cannot begin: "
                "restore the state folder's other files from the time when this file was written"
            )
        return _Attempt(self, attempt, view, epoch, step)

    def open(self, party: str, *, run: str, job: str, policy: str = "none", role: str = "") -> Ledger:
        """Open the ledger of a run that is not an attempt, following the last chain."""
        return self._open_chain(None, party, run, job, policy, role)

    def _open_chain(self, one: _Attempt | None, party: str, run: str, job: str, policy: str, role: str) -> Ledger:
        if party != self.party:
            raise AuditError(f"{self._path} is the ledger file of {self.party!r}; it cannot record {party!r}")
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
            not_before=self._last_time if self._before is None else self._before.last_time,
        )
        self._before = ledger
        if one is not None:
            ledger.record_attempt(one.attempt, one.view, epoch=one.epoch, step=one.step)
            self._attempt = one.attempt
        if self._stopped:
            ledger.record_note(STOPPED, {"before": self._after})
            self._stopped = False
        if self._readmitted:
            ledger.record_note(READMITTED, {one.by: encode_readmission(one).decode() for one in self._readmitted})
            self._readmitted = ()
        return ledger


@dataclass(frozen=True)
class _Attempt:
    own: OwnLedgers
    attempt: int
    view: str
    epoch: int
    step: int

    def open(self, party: str, *, run: str, job: str, policy: str = "none", role: str = "") -> Ledger:
        return self.own._open_chain(self, party, run, job, policy, role)


def _cut_torn(path: Path) -> int:
    """Truncate a file after its last line feed; return the number of bytes removed."""
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
