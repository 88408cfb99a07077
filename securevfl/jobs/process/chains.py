"""A party's chains over several attempts and processes, one after the other in its file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from securevfl.jobs.written import OWN_RESULT, RESULTS
from securevfl.party.reports import View
from securevfl.privacy import OpensLedgers, OwnLedgers, PrivateKey
from securevfl.privacy.ledger import file_of

__all__ = ["Chains"]


class Chains:
    """Opens the chains of one party.

    Args:
        party: whose.
        key: signs them.
        folder: of the file.
        software: name and version of what keeps them.

    Attributes:
        own: the party's file.
    """

    def __init__(self, party: str, key: PrivateKey, folder: Path, software: str) -> None:
        self._party = party
        self.own = OwnLedgers(party, key, file_of(party, folder), software=software, later=[RESULTS])

    def run(self, attempt: int) -> str:
        """Name of an attempt's chain."""
        return "train" if attempt == 1 else f"train {attempt}"

    def of(self, view: View) -> OpensLedgers:
        """What opens the chain of an attempt."""
        epoch, step = (0, 0) if view.start is None else view.start[:2]
        return self.own.attempt(view.attempt, view.mark.hex(), epoch=epoch, step=step)

    def bind(self, digests: Mapping[str, str]) -> None:
        """Write the chain that names the party's own results.

        Args:
            digests: file of the party's own report → SHA-256, hexadecimal.
        """
        chain = self.own.open(self._party, run=RESULTS, job="")
        for name, digest in sorted(digests.items()):
            chain.note(OWN_RESULT, {"name": name, "sha256": digest})
        chain.close()
