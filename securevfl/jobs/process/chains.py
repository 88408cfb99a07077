"""A party's chains over several attempts and processes, one after the other in its file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from securevfl.jobs.written import OWN_RESULT, RESULTS
from securevfl.privacy import Ledgers, PrivateKey

__all__ = ["Chains"]


class Chains:
    """Opens the chains of one party.

    Args:
        party: whose.
        key: signs them.
        folder: of the file.
        software: name and version of what keeps them.
    """

    def __init__(self, party: str, key: PrivateKey, folder: Path, software: str) -> None:
        self._party = party
        self._key = key
        self._folder = folder
        self._software = software
        self._opened: Ledgers | None = None

    def run(self, attempt: int) -> str:
        """Name of an attempt's chain."""
        return "train" if attempt == 1 else f"train {attempt}"

    def ledgers(self) -> Ledgers:
        """What opens the next chain."""
        if self._opened is None:
            self._opened = Ledgers(
                {self._party: self._key}, runs=["train", RESULTS], software=self._software, folder=self._folder
            )
        return self._opened

    def bind(self, digests: Mapping[str, str]) -> None:
        """Write the chain that names the party's own results.

        Args:
            digests: file of the party's own report → SHA-256, hexadecimal.
        """
        chain = self.ledgers().open(self._party, run=RESULTS, job="")
        for name, digest in sorted(digests.items()):
            chain.note(OWN_RESULT, {"name": name, "sha256": digest})
        chain.close()
