"""The ledgers of one call: each party's key and session, the runs that are to come, and the file that they go to."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from securevfl.errors import InputError
from securevfl.ledger.chain import Ledger
from securevfl.ledger.keys import PrivateKey, PublicKey
from securevfl.ledger.lines import VERSION

__all__ = ["Ledgers", "file_of"]


def file_of(party: str, folder: Path) -> Path:
    """The file of a party's ledgers in `folder`.

    Raises:
        InputError: a name that cannot be one of a file.
    """
    if not party or "/" in party or "\0" in party or party.startswith("."):
        raise InputError(f"the ledger of {party!r} cannot be a file of this name: rename the party")
    return folder / f"{party}.jsonl"


class Ledgers:
    """Opens the ledgers of one call, one after the other for each party: every chain names the last line of the one
    before it, and all runs that are expected.

    Args:
        keys: party → its key; whoever has none gets a new one, which stays in memory.
        runs: names of all runs to come, in their order.
        software: name and version of what keeps them.
        folder: where each party's file is, written while the runs go on; None keeps ledgers in memory alone.

    Raises:
        InputError: the folder holds ledgers already.
    """

    def __init__(
        self,
        keys: Mapping[str, PrivateKey] | None = None,
        *,
        runs: Sequence[str] = (),
        software: str = f"securevfl ledger {VERSION}",
        folder: Path | None = None,
        before: Mapping[str, Ledger] | None = None,
    ) -> None:
        self._keys = dict(keys or {})
        self._runs = tuple(runs)
        self._software = software
        self._folder = folder
        self._before = dict(before or {})
        self._sessions: dict[str, str] = {}
        if folder is not None:
            old = next(folder.glob("*.jsonl"), None)
            if old is not None:
                raise InputError(f"{old} is there already, and a ledger is never overwritten: give another folder")

    def open(self, party: str, *, run: str, job: str, policy: str = "none", role: str = "") -> Ledger:
        """A party's ledger of one run, after its last one."""
        found = self._open(party, run, job, policy, role, self._folder)
        self._before[party] = found
        return found

    def apart(self, party: str, run: str) -> Ledger:
        """A ledger after the party's last one that the next one does not follow: what is said of a folder of results,
        of which there can be several."""
        return self._open(party, run, "", "none", "", None)

    def _open(self, party: str, run: str, job: str, policy: str, role: str, folder: Path | None) -> Ledger:
        before = self._before.get(party)
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
        return Ledger(
            party,
            run=run,
            job=job,
            policy=policy,
            role=role,
            key=self._keys.setdefault(party, PrivateKey.generate()),
            runs=self._runs,
            session=self._sessions.setdefault(party, os.urandom(16).hex()),
            software=self._software,
            after="" if before is None else before.head,
            path=None if folder is None else file_of(party, folder),
        )

    def then(
        self, runs: Sequence[str], folder: Path | None = None, more: Mapping[str, PrivateKey] | None = None
    ) -> Ledgers:
        """The ledgers of a later call with the same keys, and `more` for further parties, after these."""
        return Ledgers(
            dict(more or {}) | self._keys, runs=runs, software=self._software, folder=folder, before=self._before
        )

    def beside(self) -> Ledgers:
        """Ledgers with the same keys that stand for themselves."""
        return Ledgers(self._keys, software=self._software)

    @property
    def keys(self) -> Mapping[str, PublicKey]:
        """Party → the public half of its key, of all that have opened a ledger or were given a key."""
        return {party: key.public for party, key in sorted(self._keys.items())}

    @property
    def parties(self) -> list[str]:
        """Who has opened a ledger."""
        return sorted(self._before)

    @property
    def heads(self) -> dict[str, str]:
        """Party → hash of the last line of its last ledger."""
        return {party: ledger.head for party, ledger in sorted(self._before.items())}

    @property
    def folder(self) -> Path | None:
        """Where the parties' files are."""
        return self._folder
