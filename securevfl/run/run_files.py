"""File and note names of a run's folder: one ledger file for each party, and the digests of the other files."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path

from securevfl_net.durable import make_folder, write_atomic

from securevfl.ledger import file_of
from securevfl.privacy import Ledger, Ledgers

__all__ = [
    "ALIGNMENT",
    "BOUND",
    "LEDGERS",
    "LEDGER_FILE",
    "OLD_LEDGER",
    "OWN_RESULT",
    "RESULTS",
    "RESULT_FILE",
    "chain_digests",
    "file_digest",
    "sha256",
    "write_ledgers",
]

LEDGERS = "ledgers"
"""Folder of the ledgers in a run's folder: ``PARTY.jsonl`` contains the party's chains, one for each run."""

OLD_LEDGER = "ledger.jsonl"
"""Written by version 0.1: the chains of all parties, unsigned."""

ALIGNMENT = "alignment"
"""The first run, in which the parties find their common rows."""

RESULTS = "results"
"""The last chain of each party, without messages: digests of the run's files."""

RESULT_FILE = "result file"
"""The note in it that contains one digest."""

OWN_RESULT = "own result file"
"""The note in it with the digest of a file in the party's own ``report/``, if each party writes its own."""

LEDGER_FILE = "ledger file"
"""The note in it with the head of a party's ledger before this chain."""

BOUND = ("metrics.json", "scores.csv")
"""The files that are bound so; each model part is bound in its own party's chain of the run that trained it."""


def write_ledgers(ledgers: Sequence[Ledger], folder: str | Path) -> Path:
    """Write each party's chains to ``ledgers/PARTY.jsonl`` in `folder`, in their order; returns the folder of these
    files. Files of other parties go. Only their owner may read them (modes 0700 and 0600)."""
    target = Path(folder) / LEDGERS
    make_folder(target, private=True)
    content: dict[Path, bytes] = {}
    for ledger in ledgers:
        path = file_of(ledger.party, target)
        content[path] = content.get(path, b"") + ledger.to_jsonl()
    for path, data in content.items():
        write_atomic(path, data, private=True)
    for path in set(target.glob("*.jsonl")) - content.keys():
        path.unlink()  # of an earlier run
    return target


def chain_digests(signing: Ledgers, digests: Mapping[str, str]) -> list[Ledger]:
    """Make each party's closed chain with the digests of the run's files and the heads of all parties' ledgers.

    Args:
        signing: what opened the ledgers.
        digests: file → SHA-256, hexadecimal.
    """
    chains = [signing.open_branch(party, RESULTS) for party in signing.parties]
    for chain in chains:
        for name, digest in digests.items():
            chain.record_note(RESULT_FILE, {"name": name, "sha256": digest})
        for party, head in signing.heads.items():
            chain.record_note(LEDGER_FILE, {"party": party, "head": head})
        chain.close()
    return chains


def sha256(data: bytes) -> str:
    """SHA-256, hexadecimal."""
    return hashlib.sha256(data).hexdigest()


def file_digest(path: Path) -> str:
    """SHA-256 of a file, hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
