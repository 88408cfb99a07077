"""Format a party's status for people: a few lines, and a row for each peer."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

from rich import box
from rich.table import Table
from rich.text import Text
from securevfl_net.identity.certificate import describe_end

from securevfl.report.derived import human_bytes, human_seconds

__all__ = ["status_lines", "status_table"]


def status_lines(found: Mapping[str, Any], now: float | None = None) -> list[str]:
    """Describe the result of `read_status`.

    Args:
        found: it.
        now: seconds since 1970; the clock's unless given.
    """
    now = time.time() if now is None else now
    age = max(now - float(found["written"]), 0.0)
    alive = f"process {found['pid']}"
    if found["phase"] == "done":
        alive = "done"
    elif not found["alive"]:
        alive = f"no process: it ended or was killed {human_seconds(age)} ago; start it again to resume"
        if found["phase"] == "ended":
            alive = f"ended {human_seconds(age)} ago: {found['cause']}"
    lines = [
        f"{found['party']} ({found['role']}), {found['job']}, agreement {str(found['agreement'])[:16]}: {alive}",
        f"phase: {_format_phase(found)}; attempt {found['attempt']}",
    ]
    if found["epsilon"]:
        spent = ", ".join(f"{about} ε = {value:.3g}" for about, value in sorted(found["epsilon"].items()))
        lines.append(f"spent so far: {spent}")
    if found["waits"] and found["alive"]:
        lines.append("waits for " + ", ".join(f"{peer} ({what})" for peer, what in sorted(found["waits"].items())))
    if found["phase"] not in ("done", "ended"):
        lines += warn_certificates(found.get("certificates", {}), found["party"], now)
    return [*lines, *(f"  {line}" for line in found["last"])]


def warn_certificates(ends: Mapping[str, float], party: str, now: float) -> Iterator[str]:
    """A line for each certificate that ends soon, and what helps.

    Args:
        ends: party → when its certificate ends, seconds since 1970.
        party: whose status it is.
        now: seconds since 1970.
    """
    for name, end in sorted(ends.items()):
        words = describe_end(end - now)
        if words:
            cure = f"run securevfl certs rotate {name}" if name == party else f"{name} has to rotate it"
            yield f"WARNING: the certificate of {name} {words}: {cure}"


def _format_phase(found: Mapping[str, Any]) -> str:
    if not found["epoch"]:
        return str(found["phase"])
    return f"{found['phase']}, epoch {found['epoch']}, step {found['step']} of {found['steps']}"


def status_table(found: Mapping[str, Any]) -> Table:
    """One row for each peer."""
    table = Table(box=box.SIMPLE_HEAD, header_style="bold", pad_edge=False)
    table.add_column("peer", overflow="fold")
    for column in ("connected", "round trip", "last seen", "steps", "waits for", "sent", "received"):
        table.add_column(column, justify="right")
    for peer, link in sorted(found["peers"].items()):
        since = human_seconds(float(link["since"]))
        up = f"since {since}" if link["connected"] else f"no, for {since}"
        table.add_row(
            Text(peer),
            up + (", blocked" if link["blocked"] else ""),
            "–" if link["round trip"] is None else human_seconds(float(link["round trip"])),
            "–" if link["silent"] is None else f"{human_seconds(float(link['silent']))} ago",
            f"{link['steps']:,}",
            Text(str(link["awaits"]) or "–"),
            human_bytes(link["sent"]),
            human_bytes(link["received"]),
        )
    return table
