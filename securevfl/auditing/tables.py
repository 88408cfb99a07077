"""Show the audit of a run: as tables for a terminal, and as JSON for scripts."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from rich import box
from rich.table import Table
from rich.text import Text

from securevfl.auditing.audit import Audit, AuditLine, Epsilon
from securevfl.privacy import LedgerChain
from securevfl.report.derived import human_bytes
from securevfl.run.run_files import RESULTS
from securevfl.transport import Kind

__all__ = ["audit_json", "audit_tables", "summarise_audit"]

_FORMAT = 1
"""Version of the JSON object, for scripts that read it."""


@dataclass(frozen=True, kw_only=True)
class _Row:
    """A row of a table: lines of one direction with the same kind, protection and consequence. Peers whose lines are
    all equal share a row."""

    peers: tuple[str, ...]
    lines: tuple[AuditLine, ...]


def audit_tables(found: Audit) -> Iterator[Table]:
    """Yield one table for each party and run with messages; at 80 columns or more, no text is cut off."""
    for party in sorted({chain.party for chain in found.chains}):
        for chain in found.chains:
            if chain.party == party and chain.run != RESULTS:
                lines = [line for line in found.lines if (line.run, line.party) == (chain.run, party)]
                spent = [line for line in found.epsilons if (line.run, line.party) == (chain.run, party)]
                yield _ledger_table(chain, lines, spent)


def _ledger_table(chain: LedgerChain, lines: Sequence[AuditLine], spent: Sequence[Epsilon]) -> Table:
    table = Table(
        title=Text.assemble((chain.party, "bold"), f", run {chain.run}"),
        title_justify="left",
        header_style="bold",
        box=box.SIMPLE_HEAD,
        collapse_padding=True,
        pad_edge=False,
        show_edge=False,
        expand=True,
        caption=_format_caption(chain, lines, spent),
        caption_justify="left",
    )
    table.add_column("", overflow="fold", min_width=8, ratio=19)
    table.add_column("what", overflow="fold", min_width=10, ratio=24)
    table.add_column("mes-\nsages", justify="right", no_wrap=True)
    table.add_column("size", justify="right", no_wrap=True)
    table.add_column("protection", overflow="fold", min_width=10, ratio=20)
    table.add_column("the receiver can compute", overflow="fold", min_width=16, ratio=40)
    for way, arrow in (("sent", "→"), ("received", "←")):
        rows = list(_merge_rows([line for line in lines if line.way == way]))
        for row in rows:
            first = row.lines[0]
            table.add_row(
                Text(f"{arrow} {', '.join(row.peers)}"),
                Text("; ".join(dict.fromkeys(line.words for line in row.lines))),
                f"{sum(line.messages for line in row.lines):,}",
                human_bytes(sum(line.bytes for line in row.lines)),
                Text(first.protection, "red" if first.is_readable and first.guard.is_readable else ""),
                Text(first.reveals),
            )
        if rows and way == "sent":
            table.add_section()
    return table


def _merge_rows(lines: Sequence[AuditLine]) -> Iterator[_Row]:
    """Merge equal lines of one peer, then peers with equal lines."""
    single: dict[tuple[str, str, str, str], list[AuditLine]] = {}
    for line in lines:
        single.setdefault((line.peer, line.kind.value, line.protection, line.reveals), []).append(line)
    alike: dict[tuple[object, ...], list[AuditLine]] = {}
    for (_, *same), group in single.items():
        alike.setdefault((*same, *sorted(line.what for line in group)), []).extend(group)
    for group in alike.values():
        yield _Row(peers=tuple(dict.fromkeys(line.peer for line in group)), lines=tuple(group))


def _format_caption(chain: LedgerChain, lines: Sequence[AuditLine], spent: Sequence[Epsilon]) -> Text:
    parts = [describe_epsilon(line) for line in spent]
    if not parts:
        sealed = any(line.way == "sent" and line.kind is Kind.CIPHERTEXT for line in lines)
        parts = ["none counted: it sent its content encrypted, without noise" if sealed else "none: it sent no content"]
    return Text(f"ε: {'; '.join(parts)}\nits policy: {chain.opening.policy}", justify="left")


def describe_epsilon(line: Epsilon) -> str:
    """Describe one release's cost."""
    if math.isinf(line.epsilon):
        return f"{line.what} without noise: no bound"
    times = "once" if line.releases == 1 else f"{line.releases} times"
    return f"{line.what} {line.epsilon:.2f} at δ = {line.delta:g} (each row released at most {times})"


def summarise_audit(found: Audit) -> list[str]:
    """Summarise what was verified, what could not be, and which parties did not end normally."""
    ends = "both ends of every link agree" if not found.alone else "both ends of every compared link agree"
    if not found.compared:
        ends = "no link was compared, because that takes both parties' ledgers"
    kept = "chains unbroken as far as they go" if found.incomplete else "chains unbroken and signed"
    text = [f"{len(found.chains)} ledgers verified, {found.messages:,} entries: {kept}, {ends}."]
    if found.alone:
        names = ", ".join(f"{party} ({run})" for run, party in found.alone)
        text.append(f"Not compared, because the other party's ledger is missing: links of {names}.")
    if found.missing:
        text.append(f"Not compared, because only the label owner has it: {', '.join(found.missing)}.")
    if found.parts:
        text.append(f"Not compared, because not in the folder: {', '.join(found.parts)}; the ledgers name them.")
    text.append("Not covered by any signature: report.html. `securevfl report` renders it again from metrics.json.")
    text += [
        f"{chain.run}: {chain.party} ended with: {chain.outcome}"
        for chain in found.chains
        if chain.is_closed and chain.outcome != "done"
    ]
    text += [
        f"{chain.file}:{chain.last}: attempt {chain.attempt} of {chain.party} broke off, and a later one continued"
        for chain in found.chains
        if chain.broke_off
    ]
    text += [
        f"{party} left for good: all others signed that they go on without it, from epoch {epoch}"
        for party, epoch in sorted(found.left.items())
    ]
    return [*text, *_summarise_keys(found), *(f"Incomplete: {line}." for line in found.incomplete)]


def _summarise_keys(found: Audit) -> list[str]:
    """List the key that signed each party's ledgers, and the parties whose key was not pinned."""
    text = [
        f"{party} signed with {key}" + (", as pinned" if party in found.pinned else "")
        for party, key in sorted(found.keys.items())
    ]
    unpinned = [party for party in sorted(found.keys) if party not in found.pinned]
    if unpinned:
        text.append(
            f"Not pinned: {', '.join(unpinned)}. Without --pin PARTY=FINGERPRINT or --keys FOLDER, this audit cannot "
            "notice that somebody replaced all ledgers and signed them with other keys."
        )
    return text


def audit_json(found: Audit) -> str:
    """One JSON object: chains, lines, epsilons, and whether everything was there to be compared."""
    return json.dumps(
        {
            "format": _FORMAT,
            "verified": True,
            "complete": found.is_complete,
            "incomplete": list(found.incomplete),
            "compared": found.compared,
            "missing": [*found.missing, *found.parts],
            "keys": [
                {"party": party, "fingerprint": key, "pinned": party in found.pinned}
                for party, key in sorted(found.keys.items())
            ],
            "alone": [{"run": run, "party": party} for run, party in found.alone],
            "chains": [
                {
                    "run": chain.run,
                    "party": chain.party,
                    "job": chain.opening.job,
                    "policy": chain.opening.policy,
                    "messages": len(chain.entries),
                    "outcome": chain.outcome,
                    "began": _format_time(chain.opening.time),
                    "cross_signed_by": [name for name in sorted(chain.peers) if _is_cross_signed(found, name, chain)],
                    "notes": [{"note": note.note, **note.values} for note in chain.notes],
                }
                for chain in found.chains
            ],
            "lines": [_line_as_json(line) for line in found.lines],
            "epsilons": [
                {
                    "run": line.run,
                    "party": line.party,
                    "what": line.what,
                    "epsilon": line.epsilon if line.epsilon < float("inf") else None,  # JSON has no infinity
                    "delta": line.delta,
                    "releases": line.releases,
                    "source": line.source,
                }
                for line in found.epsilons
            ],
        },
        indent=2,
        ensure_ascii=False,
    )


def _is_cross_signed(found: Audit, peer: str, chain: LedgerChain) -> bool:
    """Return True if the peer's closing line in this run contains the head of this chain, signed by its party."""
    return any(c.party == peer and c.run == chain.run and chain.party in c.words for c in found.chains)


def _format_time(time: int) -> str:
    return datetime.fromtimestamp(time / 1e6, UTC).isoformat(timespec="milliseconds")


def _line_as_json(line: AuditLine) -> dict[str, object]:
    return {
        "run": line.run,
        "party": line.party,
        "way": line.way,
        "peer": line.peer,
        "kind": line.kind.value,
        "what": line.what,
        "messages": line.messages,
        "bytes": line.bytes,
        "cipher": line.guard.cipher,
        "bits": line.guard.bits,
        "security": line.guard.security_bits,
        "key": line.guard.key,
        "noise": line.guard.noise,
        "protection": line.protection,
        "reveals": line.reveals,
        "readable": line.is_readable,
    }
