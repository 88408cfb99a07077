"""Diagrams of the parties: their columns, the overlap of their rows, and what each link carries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from securevfl.report.derived import active_name, human_bytes
from securevfl.report.record import PartyRecord, ReceiptLine, Record, RunRecord
from securevfl.report.svg_shapes import draw_arrow, draw_box, draw_picture, draw_text, shorten_text

__all__ = ["Holding", "draw_flow", "draw_overlap", "list_holdings"]

_LOCK, _OPEN = "#0f8a6d", "#c8401a"
_BESIDE = 74
"""Room for links between parties that are not active, to the right of them."""
_MOST = 12
"""Parties that a diagram has room for."""


@dataclass(frozen=True)
class Holding:
    """One party's table, as the page describes it.

    Attributes:
        name: of the party.
        role: ``"active"`` or ``"passive"``.
        rows: 0 where the writer of the report does not know.
        count: of its columns.
        columns: their names; empty where the report is another party's.
    """

    name: str
    role: str
    rows: int
    count: int
    columns: tuple[str, ...]


def list_holdings(record: Record) -> list[Holding]:
    """Each party's table; in a party's own report, other parties' columns are only counted."""
    return [
        Holding(
            party.name,
            party.role,
            party.rows,
            len(party.columns),
            tuple(party.columns) if not record.known_to or party.name == record.known_to else (),
        )
        for party in record.parties
    ]


def draw_overlap(record: Record) -> Markup | None:
    """A bar for each party's rows, with the share that all parties have; None if no party's rows are known."""
    known = [party for party in record.parties if party.rows]
    if len(record.parties) < 2 or not known or len(record.parties) > _MOST or not record.alignment.common:
        return None
    largest, common, parts = max(party.rows for party in known), record.alignment.common, []
    for i, party in enumerate(record.parties):
        top = 8 + 44 * i
        parts.append(draw_text(0, top + 10, shorten_text(party.name, 34), kind="strong"))
        if not party.rows:
            parts.append(draw_text(0, top + 28, "the writer of this report does not know the rows", kind="muted"))
            continue
        length = 200 * party.rows / largest
        shared = 200 * min(common, party.rows) / largest
        parts.append(draw_box(0, top + 16, length, 16, color="var(--rule)", title=f"{party.rows:,} rows"))
        parts.append(draw_box(0, top + 16, shared, 16, color="var(--accent)", title=f"{common:,} common rows"))
        parts.append(draw_text(length + 7, top + 29, f"{party.rows:,}, {common / party.rows:.0%} common", kind="muted"))
    return draw_picture(360, 12 + 44 * len(record.parties), parts, f"{common:,} common rows, in each party's rows")


def draw_flow(record: Record, run: RunRecord) -> Markup | None:
    """The active party, the others beside it, and between every two what went each way: with a lock where nothing
    readable did; None where the run has no receipt, or more parties than a picture holds. On secret shares most bytes
    go between the others; one without data, such as a coordinator, stands in the receipt alone."""
    if not run.receipt or len(record.parties) < 2:
        return None
    active = active_name(record)
    others = [party for party in record.parties if party.name != active]
    known = {party.name for party in record.parties}
    ends = dict.fromkeys(name for line in run.receipt for name in (line.sender, line.receiver))
    others += [PartyRecord(name=name, role="no data", rows=0, columns=[]) for name in ends if name not in known]
    if len(others) >= _MOST:
        return None
    parts: list[Markup] = []
    height = 62 * len(others)
    parts.append(draw_box(4, height / 2 - 22, 96, 44, color="var(--soft)", title=active, kind="edge"))
    parts.append(draw_text(52, height / 2 - 2, shorten_text(active, 13), anchor="middle", kind="strong"))
    parts.append(draw_text(52, height / 2 + 13, "active", anchor="middle", kind="muted"))
    for i, party in enumerate(others):
        middle = 62 * i + 31
        parts += _draw_party(party, middle)
        for way, (sender, receiver), shift in (
            ("out", (active, party.name), -9),
            ("back", (party.name, active), 9),
        ):
            lines = [line for line in run.receipt if (line.sender, line.receiver) == (sender, receiver)]
            if not lines:
                continue
            sealed = all(line.protected for line in lines)
            color = _LOCK if sealed else _OPEN
            start, end = (
                (100.0, height / 2 + min(14.0, 34 / len(others)) * (i - (len(others) - 1) / 2) + shift / 3),
                (258.0, middle + shift),
            )
            text = _describe_traffic(lines)
            tail, head = (start, end) if way == "out" else (end, start)
            parts.append(draw_arrow(tail[0], tail[1], head, color=color, title=text))
            at = 0.72
            x, y = start[0] + at * (end[0] - start[0]), start[1] + at * (end[1] - start[1])
            parts.append(_draw_lock(x, y, color, sealed=sealed))
    beside = _draw_links_beside(run, others)
    width = 360 + _BESIDE * bool(beside)
    return draw_picture(width, height, [*parts, *beside], f"What went over each link in {run.title}")


def _describe_traffic(lines: Sequence[ReceiptLine]) -> str:
    return f"{lines[0].sender} to {lines[0].receiver}: {human_bytes(sum(line.bytes for line in lines))}"


def _draw_links_beside(run: RunRecord, others: Sequence[PartyRecord]) -> list[Markup]:
    """Arcs to the right of the parties that are not active, one for every two of them that sent each other something;
    the farther apart they stand, the wider the arc."""
    found: list[Markup] = []
    for i, one in enumerate(others):
        for j in range(i + 1, len(others)):
            pairs = ((one.name, others[j].name), (others[j].name, one.name))
            ways = [[line for line in run.receipt if (line.sender, line.receiver) == pair] for pair in pairs]
            lines = [line for way in ways for line in way]
            if not lines:
                continue
            sealed = all(line.protected for line in lines)
            color, reach = _LOCK if sealed else _OPEN, 18 + (_BESIDE - 30) * (j - i) / (len(others) - 1)
            low, high, shift = 62 * i + 31, 62 * j + 31, 4 * (j - i)
            title = "; ".join(_describe_traffic(way) for way in ways if way)
            found.append(
                Markup(
                    '<path d="M357 {}C{} {} {} {} 357 {}" fill="none" style="stroke:{}" stroke-width="1.6">'
                    "<title>{}</title></path>"
                ).format(low + shift, f"{357 + reach:.1f}", low, f"{357 + reach:.1f}", high, high - shift, color, title)
            )
            found.append(_draw_lock(357 + 0.75 * reach, (low + high) / 2, color, sealed=sealed))
    return found


def _draw_party(party: PartyRecord, middle: float) -> list[Markup]:
    return [
        draw_box(260, middle - 22, 96, 44, color="var(--soft)", title=party.name, kind="edge"),
        draw_text(308, middle - 2, shorten_text(party.name, 13), anchor="middle", kind="strong"),
        draw_text(308, middle + 13, party.role, anchor="middle", kind="muted"),
    ]


def _draw_lock(x: float, y: float, color: str, *, sealed: bool) -> Markup:
    """A padlock, shut or open."""
    bow = "M-3 -1V-3.5A3 3 0 0 1 3 -3.5V-1" if sealed else "M-3 -1V-4.5A3 3 0 0 1 3 -4.5V-3.5"
    return Markup(
        '<g transform="translate({} {})"><circle r="8.5" style="fill:var(--page)"/>'
        '<path d="{}" fill="none" style="stroke:{}" stroke-width="1.6"/>'
        '<rect x="-4.5" y="-1" width="9" height="6.5" rx="1" style="fill:{}"/></g>'
    ).format(f"{x:.1f}", f"{y:.1f}", bow, color, color)
