"""The audit of a run's ledgers: do they verify, and what do they say left each party."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from securevfl.jobs.result import LEDGER
from securevfl.privacy import Chain, read, verify
from securevfl.transport import Guard, Kind

__all__ = ["AuditLine", "audit"]


@dataclass(frozen=True, slots=True)
class AuditLine:
    """What one party sent to one peer under one protection in one run."""

    run: str
    party: str
    peer: str
    kind: Kind
    guard: Guard
    messages: int
    bytes: int

    @property
    def reveals(self) -> str:
        """What its receiver can compute from it."""
        if self.guard.cipher == "paillier":
            return Kind.CIPHERTEXT.reveals
        if self.guard.cipher == "masked":
            return Kind.MASKED_SHARE.reveals
        text = self.kind.reveals
        return f"{text}, up to the noise" if self.guard.noise else text


def audit(folder: str | Path) -> tuple[list[Chain], list[AuditLine]]:
    """Verify the ledgers of a run's folder and add up what was sent.

    Raises:
        InputError: the folder holds no ledger.
        AuditError: a ledger does not verify.
    """
    path = Path(folder) / LEDGER
    chains = verify(read(path), str(path))
    return chains, [line for chain in chains for line in _lines(chain)]


def _lines(chain: Chain) -> list[AuditLine]:
    tally: dict[tuple[str, Kind, Guard], list[int]] = {}
    for entry in chain.entries:
        if entry.way == "sent":
            pair = tally.setdefault((entry.peer, entry.kind, entry.guard), [0, 0])
            pair[0] += 1
            pair[1] += entry.bytes
    return _sorted(chain, tally)


def _sorted(chain: Chain, tally: Mapping[tuple[str, Kind, Guard], list[int]]) -> list[AuditLine]:
    return [
        AuditLine(chain.run, chain.party, peer, kind, guard, messages, size)
        for (peer, kind, guard), (messages, size) in sorted(tally.items(), key=lambda item: (item[0][0], item[0][1]))
    ]
