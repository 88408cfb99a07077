"""Check that the files of a run are those that its ledgers name: results, model parts, and the ledgers themselves."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from securevfl.errors import InputError
from securevfl.ledger import Flaw
from securevfl.privacy import LedgerChain
from securevfl.run.model_parts import MODEL_PART, PART
from securevfl.run.run_files import BOUND, LEDGER_FILE, LEDGERS, OWN_RESULT, RESULT_FILE, RESULTS, file_digest
from securevfl.run.store import digest_stored_tree

__all__ = ["changed_files", "missing_files", "missing_parts"]

_OWNERS = frozenset({"scores.csv"})
"""Files that belong to the label owner alone: a passive party audits without them."""


def changed_files(chains: Sequence[LedgerChain], folder: Path) -> Iterator[Flaw]:
    """Files of `folder` that are not those that the parties' chains name, each with the line that names it."""
    yield from _find_renamed(chains)
    last = {chain.party: chain for chain in chains if chain.run == RESULTS}  # a party may have bound its own twice
    for chain in last.values():
        yield from _check_results(chain, chains, folder)
    yield from _find_unbound(chains, folder)
    yield from _check_parts(chains, folder / "model")


def missing_files(chains: Sequence[LedgerChain], folder: Path) -> list[str]:
    """Files that the chains name and a party may well not have, for they are the label owner's: not compared then."""
    named = {
        str(note.values.get("name"))
        for chain in chains
        if chain.run == RESULTS
        for note in chain.notes
        if note.note == RESULT_FILE
    }
    return sorted(name for name in named & _OWNERS if not (folder / name).is_file())


def missing_parts(chains: Sequence[LedgerChain], folder: Path) -> list[str]:
    """Model parts that the chains name where none is in `folder`: removed, or kept elsewhere. If some are there, a
    missing one is a flaw.
    """
    if any((folder / "model").glob(f"*{PART}")):
        return []
    named = {chain.party for chain in chains for note in chain.notes if note.note == MODEL_PART}
    return [f"model/{party}{PART}" for party in sorted(named)]


def _find_unbound(chains: Sequence[LedgerChain], folder: Path) -> Iterator[Flaw]:
    """Result files in the folder that no chain names."""
    bound = {chain.party for chain in chains if chain.run == RESULTS and chain.is_closed}
    there = [name for name in BOUND if (folder / name).is_file()]
    last = chains[-1]
    if there and not bound:
        yield Flaw(
            last.file,
            last.last,
            last.party,
            f"{' and '.join(str(folder / name) for name in there)} are in the folder, but no chain of "
            f"{RESULTS!r} names them: they were changed, or the ends of all ledgers were cut off",
        )


def _find_renamed(chains: Sequence[LedgerChain]) -> Iterator[Flaw]:
    for chain in chains:
        if Path(chain.file).stem != chain.party:
            yield Flaw(chain.file, chain.first, chain.party, "the chain is in a file with another party's name")


def _check_results(chain: LedgerChain, chains: Sequence[LedgerChain], folder: Path) -> Iterator[Flaw]:
    for at, note in zip(chain.notes_at, chain.notes, strict=True):
        if note.note == RESULT_FILE:
            text = _explain_change(folder, str(note.values.get("name")), str(note.values.get("sha256")))
        elif note.note == OWN_RESULT:
            text = _own_report(folder, str(note.values.get("name")), str(note.values.get("sha256")), chains)
        elif note.note == LEDGER_FILE:
            text = _other_ledger(chains, str(note.values.get("party")), str(note.values.get("head")))
        else:
            continue
        if text:
            yield Flaw(chain.file, at, chain.party, text)


def _explain_change(folder: Path, name: str, digest: str) -> str:
    if name not in BOUND:
        return f"the line names a file {name!r}; a run binds {', '.join(BOUND)}"
    path = folder / name
    if not path.is_file():
        return "" if name in _OWNERS else f"{path}, which the line names, is not there"
    found = file_digest(path)
    if found != digest:
        return f"{path} has changed: its SHA-256 is {found[:16]}…, the ledger recorded {digest[:16]}…"
    return ""


def _own_report(folder: Path, name: str, digest: str, chains: Sequence[LedgerChain]) -> str:
    """A file of a party's own report, in its own state folder; ledgers of several parties in one folder come without
    it.
    """
    path = folder / "report" / Path(name).name
    if len({chain.party for chain in chains}) > 1 or not path.parent.is_dir():
        return ""
    if not path.is_file():
        return f"{path}, which the line names, is not there"
    found = file_digest(path)
    return (
        ""
        if found == digest
        else f"{path} has changed: its SHA-256 is {found[:16]}…, the ledger recorded {digest[:16]}…"
    )


def _other_ledger(chains: Sequence[LedgerChain], party: str, head: str) -> str:
    own = [chain for chain in chains if chain.party == party]
    if not own:
        return f"the line names {party!r}'s ledger, and {LEDGERS}/{party}.jsonl is not there"
    if head not in {chain.head for chain in own}:
        last = own[-1]
        return (
            f"the line records {head[:16]}… as the head of {party!r}'s ledger, but no chain ends there "
            f"({last.file}:{last.last})"
        )
    return ""


def _check_parts(chains: Sequence[LedgerChain], folder: Path) -> Iterator[Flaw]:
    """Check model parts, each of a run in its party's ledger."""
    named: dict[str, dict[str, tuple[LedgerChain, int]]] = {}
    for chain in chains:
        for at, note in zip(chain.notes_at, chain.notes, strict=True):
            if note.note == MODEL_PART:
                named.setdefault(chain.party, {})[str(note.values.get("sha256"))] = chain, at
    there = {path.name.removesuffix(PART): path for path in sorted(folder.glob(f"*{PART}"))}
    for party, path in there.items():
        known = named.get(party, {})
        if not known:
            own = next((c for c in chains if c.party == party), chains[0])
            yield Flaw(own.file, own.first, party, f"no run of this party's ledger names {path}")
            continue
        text = _check_part(path, set(known))
        if text:
            chain, at = next(reversed(known.values()))
            yield Flaw(chain.file, at, party, text)
    yield from _find_mixed(named, there)
    if there:
        for party in named.keys() - there.keys():
            chain, at = list(named[party].values())[-1]
            yield Flaw(chain.file, at, party, f"{folder / (party + PART)} is not there, and other parties' parts are")


def _find_mixed(
    named: Mapping[str, Mapping[str, tuple[LedgerChain, int]]], there: Mapping[str, Path]
) -> Iterator[Flaw]:
    """Find intact parts of different runs in one folder."""
    runs: dict[str, set[str]] = {}
    for party, path in there.items():
        try:
            digest = digest_stored_tree(path)
        except InputError:
            continue  # reported by the check of the part itself
        runs[party] = {chain.run for mark, (chain, _) in named.get(party, {}).items() if mark == digest}
    if len(runs) > 1 and all(runs.values()) and not set.intersection(*runs.values()):
        party = sorted(runs)[0]
        chain, at = list(named[party].values())[-1]
        told = "; ".join(
            f"{name}'s is of run {', '.join(map(repr, sorted(own)))}" for name, own in sorted(runs.items())
        )
        yield Flaw(chain.file, at, party, f"the parts in {there[party].parent} are of different runs: {told}")


def _check_part(path: Path, known: set[str]) -> str:
    try:
        digest = digest_stored_tree(path)
    except InputError as error:
        return str(error)
    return "" if digest in known else f"{path} was changed: its content has the digest {digest[:16]}…, no run left it"
