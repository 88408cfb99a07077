"""The picture of the house: rooms are folders and files, floors the layers of the import contract, arrows imports.

    python tools/house.py [--check] [--out docs/images/house.svg]

Everything is read from `pyproject.toml` and the source, so the picture cannot say what the code does not. Arrows that
follow from others are left out. Colours are chosen for a light and for a dark page.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import textwrap
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from html import escape
from pathlib import Path
from random import Random

sys.path.insert(0, str(Path(__file__).parent))

from imports import Source, circle, reduced

__all__ = ["PACKAGES", "House", "HouseError", "draw", "house", "layers", "read_repository"]

ROOT = Path(__file__).parents[1]
PACKAGES = ("securevfl", "psi/securevfl_net", "psi/securevfl_psi", "psi/securevfl_psi_cli", "crypto/securevfl_crypto")
PICTURE = ROOT / "docs/images/house.svg"
CONTRACT = "the layers point one way"

WIDTH, MARGIN = 900, 24
ROOMS = {1: 420, 2: 330}
NARROW, LANE, GAP, FLOOR_GAP = 252, 14, 22, 38
LINE, LETTER, PADDING, ROOF = 15, 6.3, 11, 60
BEGINNINGS = 60
COLOURS = {
    "securevfl": ("#e0e7ff", "#4f46e5"),
    "securevfl_net": ("#fce7f3", "#be185d"),
    "securevfl_psi": ("#ccfbf1", "#0d9488"),
    "securevfl_psi_cli": ("#e0f2fe", "#0369a1"),
    "securevfl_crypto": ("#fef3c7", "#b45309"),
}
"""Package → the fill and the edge of its rooms."""
INK, SOFT, ARROW = "#1e1b4b", "#475569", "#7c8798"


class HouseError(Exception):
    """The layers and the imports do not make a house: a room on no floor, a circle, an arrow that points up."""


@dataclass
class Item:
    """A room on a floor, or the lane of an arrow that passes the floor.

    Attributes:
        name: the unit, empty for a lane.
        width: in pixels.
        x: of its middle.
    """

    name: str
    width: int
    x: float = 0.0
    above: list[Item] = field(default_factory=list, repr=False)
    below: list[Item] = field(default_factory=list, repr=False)


@dataclass(frozen=True)
class House:
    """What the picture shows.

    Attributes:
        floors: the units of each floor, the highest floor first.
        arrows: unit → the units that its arrows point to.
        labels: unit → its name on the picture: ``jobs/`` for a folder, ``cli.py`` for a file.
        says: unit → the first sentence of its docstring.
        folders: unit → the names of the folders in it.
    """

    floors: Sequence[Sequence[str]]
    arrows: Mapping[str, frozenset[str]]
    labels: Mapping[str, str]
    says: Mapping[str, str]
    folders: Mapping[str, Sequence[str]]


def layers(project: Path) -> list[list[str]]:
    """The layers of the contract in a `pyproject.toml`, the highest first."""
    settings = tomllib.loads(project.read_text(encoding="utf-8"))["tool"]["importlinter"]
    contract = next(one for one in settings["contracts"] if one["name"] == CONTRACT)
    return [[unit.strip(" ()") for unit in layer.replace(":", "|").split("|")] for layer in contract["layers"]]


def house(floors: Sequence[Sequence[str]], source: Source) -> House:
    """The house of these floors.

    Raises:
        HouseError: a unit of the source is on no floor, or an arrow does not point down.
    """
    level = {unit: index for index, floor in enumerate(floors) for unit in floor}
    roots = sorted(name for name in source.packages if "." not in name)
    for root in roots:
        missing = [] if root in level else [unit for unit in source.units(root) if unit not in level]
        if missing:
            raise HouseError(f"{missing[0]} is on no floor: name it in the contract {CONTRACT!r} in pyproject.toml")
    graph = source.graph(level)
    if found := circle(graph):
        raise HouseError(f"imports go round in a circle: {' → '.join(found)}")
    for unit, targets in graph.items():
        for target in sorted(targets):
            if level[unit] >= level[target]:
                raise HouseError(f"{unit} imports {target}, which is on no lower floor")
    return House(
        floors=floors,
        arrows=reduced(graph),
        labels={unit: _label(unit, source) for unit in level},
        says={unit: source.summary(unit) for unit in level},
        folders={
            unit: [child.rpartition(".")[2] for child in source.units(unit) if child in source.packages]
            for unit in level
        },
    )


def _label(unit: str, source: Source) -> str:
    root, _, rest = unit.partition(".")
    if not rest:
        return root
    return f"{rest}/" if unit in source.packages else f"{rest}.py"


def spread(
    wanted: Sequence[float], apart: Sequence[float], low: float, high: float, weights: Sequence[float] | None = None
) -> list[float]:
    """Places in the given order, as near as can be (least squares) to those wanted.

    Args:
        wanted: where each would like to be.
        weights: how much each counts; the same for all if None.
        apart: least distance between each and the next; one less than `wanted`.
        low: the least place.
        high: the largest place.
    """
    offsets = list(itertools.accumulate(apart, initial=0.0))
    blocks: list[tuple[float, float, int]] = []  # mean, weight, count: pool adjacent violators
    for want, offset, weight in zip(wanted, offsets, weights or [1.0] * len(wanted), strict=True):
        block = (want - offset, weight, 1)
        while blocks and blocks[-1][0] > block[0]:
            mean, heavy, count = blocks.pop()
            both = heavy + block[1]
            block = ((mean * heavy + block[0] * block[1]) / both, both, count + block[2])
        blocks.append(block)
    level = [mean for mean, _, count in blocks for _ in range(count)]
    most = high - offsets[-1]
    return [min(max(value, low), most) + offset for value, offset in zip(level, offsets, strict=True)]


def _rows(plan: House) -> list[list[Item]]:
    """The items of each floor, joined along the arrows; an arrow over several floors gets a lane on each."""
    rooms = {unit: Item(unit, ROOMS.get(len(floor), NARROW)) for floor in plan.floors for unit in floor}
    rows = [[rooms[unit] for unit in floor] for floor in plan.floors]
    level = {unit: index for index, floor in enumerate(plan.floors) for unit in floor}
    for unit, room in rooms.items():
        for target in sorted(plan.arrows[unit], key=list(rooms).index):
            last = room
            for row in range(level[unit] + 1, level[target]):
                lane = Item("", LANE)
                rows[row].append(lane)
                last.below.append(lane)
                lane.above.append(last)
                last = lane
            last.below.append(rooms[target])
            rooms[target].above.append(last)
    for row, floor in zip(rows, plan.floors, strict=True):
        free = WIDTH - 2 * MARGIN - GAP * (len(row) - 1) - LANE * (len(row) - len(floor))
        for unit in floor:
            rooms[unit].width = min(rooms[unit].width, free // len(floor))
    return rows


def _places(row: Sequence[Item]) -> dict[int, float]:
    return {id(item): (place + 0.5) / len(row) for place, item in enumerate(row)}


def _sorted(row: Sequence[Item], above: dict[int, float], below: dict[int, float]) -> list[Item]:
    """The order of a floor in which its arrows cross least and are shortest.

    Args:
        row: its items.
        above: id of each item of the floor above → its place, from 0 to 1; likewise `below`. Empty: not looked at.
    """
    count = range(len(row))
    ends = [
        [[places[id(other)] for other in near] for places, near in ((above, item.above), (below, item.below)) if places]
        for item in row
    ]
    crossed = [[sum(x > y for s, t in zip(a, b, strict=True) for x in s for y in t) for b in ends] for a in ends]
    length = [
        [sum(abs((place + 0.5) / len(row) - x) for side in sides for x in side) for place in count] for sides in ends
    ]

    # The best order that begins with a set of items is the best order of that set, continued: n · 2^n steps, not n!.
    best: dict[int, tuple[int, float, tuple[int, ...]]] = {0: (0, 0.0, ())}
    over = {0: [0] * len(row)}  # a set of items → how often its arrows cross those of each item after it
    for place in count:
        longer: dict[int, tuple[int, float, tuple[int, ...]]] = {}
        for taken, (crossings, far, order) in best.items():
            if taken:
                first = taken & -taken
                more = crossed[first.bit_length() - 1]
                over[taken] = [a + b for a, b in zip(over[taken ^ first], more, strict=True)]
            for i in count:
                if not taken >> i & 1:
                    known, total = longer.get(taken | 1 << i), crossings + over[taken][i]
                    if known is None or total <= known[0]:
                        found = (total, round(far + length[i][place], 6), (*order, i))
                        longer[taken | 1 << i] = found if known is None else min(known, found)
        best = longer
    return [row[i] for i in best[(1 << len(row)) - 1][2]]


def _cost(rows: Sequence[Sequence[Item]]) -> float:
    """How hard a picture is to read: arrows that cross, and arrows that go far sideways."""
    crossings, length = 0, 0.0
    for row, under in itertools.pairwise(rows):
        here, there = _places(row), _places(under)
        arrows = [(here[id(item)], there[id(other)]) for item in row for other in item.below]
        crossings += sum((a[0] - b[0]) * (a[1] - b[1]) < 0 for a, b in itertools.combinations(arrows, 2))
        length += sum(abs(start - end) for start, end in arrows)
    return round(crossings + 2 * length, 6)


def _order(rows: list[list[Item]]) -> None:
    """Order the items of each floor so that few arrows cross and they stay short; the best of several beginnings."""
    best: tuple[float, list[list[Item]]] | None = None
    random = Random(0)  # noqa: S311 - places on a picture, the same every time
    floors = range(len(rows))
    known: dict[tuple[tuple[int, ...], ...], list[Item]] = {}  # beginnings soon lead to the same orders
    for beginning in range(BEGINNINGS):
        if beginning:
            for row in rows:
                random.shuffle(row)
        for index in (*floors, *reversed(floors)) * 2:
            near = [rows[other] if other in floors else [] for other in (index - 1, index + 1)]
            key = tuple(tuple(map(id, row)) for row in (rows[index], *near))
            if key not in known:
                known[key] = _sorted(rows[index], *map(_places, near))
            rows[index] = list(known[key])
        total = _cost(rows)
        if best is None or total < best[0]:
            best = (total, [list(row) for row in rows])
    if best is not None:
        rows[:] = best[1]


def _place(rows: list[list[Item]]) -> None:
    """Middle each item over its neighbours, as far as the others of its floor let it; above all, lanes are straight."""
    for row in rows:
        for index, item in enumerate(row):
            item.x = WIDTH * (index + 0.5) / len(row)
    for _ in range(150):
        for row in (*rows, *reversed(rows)):
            wanted, weights = [], []
            for item in row:
                pulls = [(other.x, 1.0 if item.name or other.name else 40.0) for other in (*item.above, *item.below)]
                if item.name:
                    pulls.append((WIDTH / 2, 1.0))
                weight = sum(pull for _, pull in pulls)
                wanted.append(sum(x * pull for x, pull in pulls) / weight)
                weights.append(weight)
            apart = [(a.width + b.width) / 2 + GAP for a, b in itertools.pairwise(row)]
            low, high = MARGIN + row[0].width / 2, WIDTH - MARGIN - row[-1].width / 2
            for item, x in zip(row, spread(wanted, apart, low, high, weights), strict=True):
                item.x = x


def _ports(item: Item, others: Sequence[Item]) -> dict[int, float]:
    """Where the arrows between a room and `others` touch it: over or under them where it reaches so far."""
    if not item.name or not others:
        return {id(other): item.x for other in others}
    ordered = sorted(others, key=lambda other: other.x)
    reach = item.width / 2 - 24
    wanted = []
    for other in ordered:
        low = max(item.x - reach, other.x - max(other.width / 2 - 24, 0))
        high = min(item.x + reach, other.x + max(other.width / 2 - 24, 0))
        wanted.append((low + high) / 2 if low <= high else min(max(other.x, item.x - reach), item.x + reach))
    places = spread(wanted, [20.0] * (len(ordered) - 1), item.x - reach, item.x + reach)
    return {id(other): place for other, place in zip(ordered, places, strict=True)}


def _text(plan: House, unit: str, width: float) -> list[str]:
    """The lines under a room's name."""
    most = int((width - 2 * PADDING) / LETTER)
    folders = ", ".join(f"{name}/" for name in plan.folders[unit])
    return [
        *textwrap.wrap(plan.says[unit].replace("`", ""), most, break_on_hyphens=False),
        *(textwrap.wrap(f"in it: {folders}", most) if folders else []),
    ]


def draw(plan: House) -> str:
    """The picture as SVG; the same house gives the same text."""
    rows = _rows(plan)
    _order(rows)
    _place(rows)
    lines = [max(len(_text(plan, item.name, item.width)) for item in row if item.name) for row in rows]
    heights = [2 * PADDING + LINE * (1 + count) for count in lines]
    tops = list(itertools.accumulate((height + FLOOR_GAP for height in heights[:-1]), initial=ROOF + 26.0))
    total = tops[-1] + heights[-1] + 62
    shapes = [
        f'<polygon points="{MARGIN // 2},{ROOF} {WIDTH / 2:.0f},10 {WIDTH - MARGIN // 2},{ROOF}" fill="none" '
        f'stroke="{ARROW}" stroke-width="2" stroke-linejoin="round"/>',
        f'<text x="{WIDTH / 2:.0f}" y="{ROOF - 14}" class="roof">securevfl</text>',
    ]
    for top, height in zip(tops, heights, strict=True):
        shapes.append(
            f'<rect x="{MARGIN // 2}" y="{top - 10:.0f}" width="{WIDTH - MARGIN}" height="{height + 20:.0f}" rx="6" '
            f'fill="{ARROW}" fill-opacity="0.10"/>'
        )
    shapes += _arrows(rows, tops, heights)
    for row, top, height in zip(rows, tops, heights, strict=True):
        for item in row:
            if item.name:
                shapes += _room(plan, item, top, height)
    for number, line in enumerate(
        (
            "A floor imports from the floors below it, never from above. An arrow means “imports”;",
            "arrows that follow from others are left out.",
        )
    ):
        shapes.append(f'<text x="{WIDTH / 2:.0f}" y="{total - 30 + 18 * number:.0f}" class="note">{line}</text>')
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {total:.0f}" width="{WIDTH}" '
            f'height="{total:.0f}" role="img" aria-label="The packages of securevfl and their imports">',
            "<style>",
            "text { font-family: system-ui, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif; text-anchor: middle }",
            f".name {{ font-size: 15px; font-weight: 600; fill: {INK} }}",
            f".says {{ font-size: 11.5px; fill: {SOFT} }}",
            f".note {{ font-size: 12.5px; fill: {ARROW} }}",
            f".roof {{ font-size: 18px; font-weight: 600; fill: {ARROW} }}",
            f".arrow {{ fill: none; stroke: {ARROW}; stroke-width: 1.8 }}",
            "</style>",
            '<marker id="tip" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" orient="auto">'
            f'<path d="M0 0 L10 5 L0 10 z" fill="{ARROW}"/></marker>',
            *shapes,
            "</svg>",
            "",
        ]
    )


def _arrows(rows: Sequence[Sequence[Item]], tops: Sequence[float], heights: Sequence[float]) -> list[str]:
    level = {id(item): index for index, row in enumerate(rows) for item in row}
    leave = {id(item): _ports(item, item.below) for row in rows for item in row}
    enter = {id(item): _ports(item, item.above) for row in rows for item in row}
    paths = []
    for room in (item for row in rows for item in row if item.name):
        for first in room.below:
            here, there = room, first
            y = tops[level[id(here)]] + heights[level[id(here)]]
            path = f"M{leave[id(here)][id(there)]:.1f} {y:.1f}"
            while True:
                start, end = leave[id(here)][id(there)], enter[id(there)][id(here)]
                index = level[id(there)]
                bottom = tops[index - 1] + heights[index - 1]
                top = tops[index] - (1 if there.name else 0)
                middle = (bottom + top) / 2
                path += f" C{start:.1f} {middle:.1f} {end:.1f} {middle:.1f} {end:.1f} {top:.1f}"
                if there.name:
                    break
                path += f" L{there.x:.1f} {tops[index] + heights[index]:.1f}"
                here, there = there, there.below[0]
            paths.append(f'<path class="arrow" d="{path}" marker-end="url(#tip)"/>')
    return paths


def _room(plan: House, item: Item, top: float, height: float) -> list[str]:
    fill, stroke = COLOURS.get(item.name.partition(".")[0], COLOURS["securevfl"])
    left = item.x - item.width / 2
    lines = _text(plan, item.name, item.width)
    first = top + (height - LINE * (1 + len(lines))) / 2 + LINE - 3
    return [
        f'<rect x="{left:.1f}" y="{top:.1f}" width="{item.width}" height="{height}" rx="6" fill="{fill}" '
        f'stroke="{stroke}" stroke-width="1.5"/>',
        f'<text x="{item.x:.1f}" y="{first:.1f}" class="name">{escape(plan.labels[item.name])}</text>',
        *(
            f'<text x="{item.x:.1f}" y="{first + LINE * number:.1f}" class="says">{escape(line)}</text>'
            for number, line in enumerate(lines, 1)
        ),
    ]


@cache
def read_repository(root: Path = ROOT) -> Source:
    """Read the packages of the repository at `root`, once in a process: this takes five seconds."""
    return Source(root / package for package in PACKAGES)


def picture(root: Path = ROOT) -> str:
    """The picture of the repository at `root`."""
    return draw(house(layers(root / "pyproject.toml"), read_repository(root)))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=PICTURE)
    parser.add_argument("--check", action="store_true", help="write nothing; fail if the picture is out of date")
    options = parser.parse_args()
    try:
        text = picture()
    except HouseError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    if options.check:
        current = options.out.is_file() and options.out.read_text(encoding="utf-8") == text
        if not current:
            print(f"{options.out} is out of date: run python tools/house.py", file=sys.stderr)
        return int(not current)
    options.out.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
