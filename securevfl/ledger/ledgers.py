"""The ledgers of one call: each party's key and session, the expected runs, and the output files."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from securevfl_net.durable import make_folder

from securevfl.errors import InputError
from securevfl.ledger.chain import Ledger
from securevfl.ledger.keys import PrivateKey, PublicSigningKey
from securevfl.ledger.lines import VERSION

__all__ = ["Ledgers", "file_of"]


def file_of(party: str, folder: Path) -> Path:
    """Return the path of a party's ledger file in `folder`.

    Raises:
        InputError: the party's name cannot be a file name.
    """
    if not party or "/" in party or "\0" in party or party.startswith("."):
        raise InputError(f"the party name {party!r} cannot be used as a ledger file name: rename the party")
    return folder / f"{party}.jsonl"


class Ledgers:
    """Opens the ledgers of one call. A party's chains follow each other: each names the last line of the previous chain
    and all expected runs.

    Args:
        keys: party → its key; a party without one gets a new key, kept only in memory.
        runs: names of all expected runs, in order.
        software: name and version of the program that writes them.
        folder: folder of the parties' files, written during the runs; None keeps ledgers only in memory.

    Raises:
        InputError: the folder already contains ledgers.
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
                raise InputError(f"{old} already exists, and ledgers are never overwritten: choose another folder")

    def open(self, party: str, *, run: str, job: str, policy: str = "none", role: str = "") -> Ledger:
        """Open a party's ledger of one run, following its previous chain."""
        found = self._open_ledger(party, run, job, policy, role, self._folder)
        self._before[party] = found
        return found

    def open_branch(self, party: str, run: str) -> Ledger:
        """Open a ledger that follows the party's last chain but that no later chain follows: a branch for one results
        folder, of which there can be several.
        """
        return self._open_ledger(party, run, "", "none", "", None)

    def _open_ledger(self, party: str, run: str, job: str, policy: str, role: str, folder: Path | None) -> Ledger:
        before = self._before.get(party)
        if folder is not None:
            make_folder(folder, private=True)
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
            not_before=0 if before is None else before.last_time,
        )

    def following_ledgers(
        self, runs: Sequence[str], folder: Path | None = None, more: Mapping[str, PrivateKey] | None = None
    ) -> Ledgers:
        """Return ledgers for a later call that follow these, with the same keys and `more` for additional parties."""
        return Ledgers(
            dict(more or {}) | self._keys, runs=runs, software=self._software, folder=folder, before=self._before
        )

    def independent_ledgers(self) -> Ledgers:
        """Return independent ledgers with the same keys."""
        return Ledgers(self._keys, software=self._software)

    @property
    def keys(self) -> Mapping[str, PublicSigningKey]:
        """Party → public key, for every party with a ledger or a given key."""
        return {party: key.public_key for party, key in sorted(self._keys.items())}

    @property
    def parties(self) -> list[str]:
        """The parties that have opened a ledger."""
        return sorted(self._before)

    @property
    def heads(self) -> dict[str, str]:
        """Party → hash of the last line of its last ledger."""
        return {party: ledger.head for party, ledger in sorted(self._before.items())}

    @property
    def folder(self) -> Path | None:
        """The folder of the parties' files."""
        return self._folder
