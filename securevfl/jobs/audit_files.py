"""Whether the files of a run are those that its ledgers name: results, model parts, and the ledgers themselves."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from securevfl.errors import InputError
from securevfl.jobs.parts import MODEL_PART, PART
from securevfl.jobs.store import read_tree, tree_digest
from securevfl.jobs.written import BOUND, LEDGER_FILE, LEDGERS, RESULT_FILE, RESULTS, file_digest
from securevfl.privacy import Chain
from securevfl.privacy.ledger import Flaw

__all__ = ["changed_files"]


def changed_files(chains: Sequence[Chain], folder: Path) -> Iterator[Flaw]:
    """Files of `folder` that are not those that the parties' chains name, each with the line that names it."""
    yield from _renamed(chains)
    for chain in chains:
        if chain.run == RESULTS:
            yield from _results(chain, chains, folder)
    yield from _parts(chains, folder / "model")


def _renamed(chains: Sequence[Chain]) -> Iterator[Flaw]:
    for chain in chains:
        if Path(chain.file).stem != chain.party:
            yield Flaw(chain.file, chain.first, chain.party, "the chain stands in a file with another party's name")


def _results(chain: Chain, chains: Sequence[Chain], folder: Path) -> Iterator[Flaw]:
    for at, note in zip(chain.notes_at, chain.notes, strict=True):
        if note.note == RESULT_FILE:
            text = _changed(folder, str(note.values.get("name")), str(note.values.get("sha256")))
        elif note.note == LEDGER_FILE:
            text = _other_ledger(chains, str(note.values.get("party")), str(note.values.get("head")))
        else:
            continue
        if text:
            yield Flaw(chain.file, at, chain.party, text)


def _changed(folder: Path, name: str, digest: str) -> str:
    if name not in BOUND:
        return f"the line names a file {name!r}; a run binds {', '.join(BOUND)}"
    path = folder / name
    if not path.is_file():
        return f"{path}, which the line names, is not there"
    found = file_digest(path)
    if found != digest:
        return f"{path} was changed: SHA-256 of it is {found[:16]}…, the line says {digest[:16]}…"
    return ""


def _other_ledger(chains: Sequence[Chain], party: str, head: str) -> str:
    own = [chain for chain in chains if chain.party == party]
    if not own:
        return f"the line names {party!r}'s ledger, and {LEDGERS}/{party}.jsonl is not there"
    if head not in {chain.head for chain in own}:
        last = own[-1]
        return f"the line says that {party!r}'s ledger was at {head[:16]}…; no chain ends so ({last.file}:{last.last})"
    return ""


def _parts(chains: Sequence[Chain], folder: Path) -> Iterator[Flaw]:
    """Model parts, each of a run that its party's ledger tells of."""
    named: dict[str, dict[str, tuple[Chain, int]]] = {}
    for chain in chains:
        for at, note in zip(chain.notes_at, chain.notes, strict=True):
            if note.note == MODEL_PART:
                named.setdefault(chain.party, {})[str(note.values.get("sha256"))] = chain, at
    there = {path.name.removesuffix(PART): path for path in sorted(folder.glob(f"*{PART}"))}
    for party, path in there.items():
        known = named.get(party, {})
        if not known:
            own = next((c for c in chains if c.party == party), None)
            if own is not None:
                yield Flaw(own.file, own.first, party, f"no run of this ledger names {path}")
            continue
        text = _part(path, set(known))
        if text:
            chain, at = next(reversed(known.values()))
            yield Flaw(chain.file, at, party, text)
    if there:
        for party in named.keys() - there.keys():
            chain, at = next(reversed(named[party].values()))
            yield Flaw(chain.file, at, party, f"{folder / (party + PART)} is not there, and other parties' parts are")


def _part(path: Path, known: set[str]) -> str:
    try:
        digest = tree_digest(read_tree(path))
    except InputError as error:
        return str(error)
    return "" if digest in known else f"{path} was changed: its content has the digest {digest[:16]}…, no run left it"
