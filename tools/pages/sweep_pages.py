"""Tables and the picture in the docs that are made from sweeps: benchmarks/results/sweep-*.json.

python tools/pages/sweep_pages.py    writes them into the pages; a test holds that they have them.

A page says where: ``<!-- sweep: few-rows | means | MNIST halves -->``, then ``<!-- end -->``. The first word is the
sweep, the second the table (see `KINDS`), the third a data set where the table is of one. A sweep that has not run says
so; one that has run in part gives its part. Two sweeps with a plus sign between them give one table of the places of
both. "uncalibrated" after a sweep gives the figures before calibration.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import msgspec
import sweep_picture
import sweep_sentences as sentences
import sweep_tables as tables
from sweep_history import history
from sweep_levels import Levels
from sweep_places import tabulate_places
from sweep_ranks import ranks

from securevfl.report import SweepRecord
from securevfl.report.sweep_record import dataset_names, list_positions

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from benchmarks.claim_tests import strip_calibration  # noqa: E402 - not installed

__all__ = ["KINDS", "PICTURE", "pages", "written"]

DOCS = ROOT / "docs"
RESULTS = ROOT / "benchmarks" / "results"
FILES = ROOT / "examples" / "experiments"
PICTURE = DOCS / "images" / "few-rows.png"

_BEFORE = " uncalibrated"
_BLOCK = re.compile(r"(<!-- sweep: ([^>]*?) -->).*?(<!-- end -->)", flags=re.DOTALL)

KINDS: dict[str, Callable[[Levels, str], str]] = {
    "means": lambda found, data: _means(found.record, data),
    "alone": lambda found, data: _each(found.record, data, lambda name: tables.means(found.record, name, "alone")),
    "levels": lambda found, data: _each(found.record, data, lambda name: tables.levels(found, name)),
    "claims": lambda found, _: tables.claims(found),
    "places": lambda found, rows: tabulate_places(found.record, "alone" if rows == "alone" else "common"),
    "ranks": lambda found, _: ranks(found.record),
    "tallies": lambda found, _: tables.tallies(found),
    "labelled": lambda found, _: tables.labelled(found.record),
    "history": lambda found, data: _each(found.record, data, lambda name: history(found.record, name)),
    "papers": lambda found, _: tables.papers(found.record),
    "failed": lambda found, _: tables.failed(found.record),
    "run": lambda found, _: tables.run(found.record),
    "scope": lambda found, _: sentences.scope(found.record),
    "rule": lambda found, _: sentences.describe_rule(found.record),
    "short": lambda found, _: sentences.short(found),
    "alone losses": lambda found, _: sentences.alone_losses(found),
    "advice": lambda found, _: sentences.advice(found),
    "tests": lambda found, _: f"This family has {found.size} tests.",
}


def _means(record: SweepRecord, data: str) -> str:
    if not data and record.cells and all(len(list_positions(record, name)) == 1 for name in dataset_names(record)):
        return tables.across(record)
    return _each(record, data, lambda name: tables.means(record, name))


def _each(record: SweepRecord, data: str, table: Callable[[str], str]) -> str:
    """Of one data set, or of each with its name above."""
    return table(data) if data else "\n\n".join(f"**{name}**\n\n{table(name)}" for name in dataset_names(record))


@cache
def _levels(name: str) -> Levels | None:
    plain = name.removesuffix(_BEFORE)
    files = [RESULTS / f"sweep-{one.strip()}.json" for one in plain.split("+")]
    if not all(file.exists() for file in files):
        return None
    first, *others = (SweepRecord.read(file) for file in files)
    cells = [*first.cells, *(cell for one in others for cell in one.cells)]
    return Levels(msgspec.structs.replace(first, cells=cells if plain == name else strip_calibration(cells)))


def _block(words: str) -> str:
    name, kind, *data = (word.strip() for word in words.split("|"))
    found = _levels(name)
    if kind not in KINDS:
        raise ValueError(f"a page asks for the table {kind!r} of the sweep {name!r}; there are {', '.join(KINDS)}")
    if found is None:
        if not (FILES / f"{name.removesuffix(_BEFORE)}.toml").exists():
            raise ValueError(f"a page asks for the sweep {name!r}, which has not run, and there is no such file")
        return f"*`{name}.toml` has not run yet.*"
    return KINDS[kind](found, data[0] if data else "")


def written(page: str) -> str:
    """The page with its tables as they have to be.

    Raises:
        ValueError: it asks for a table that there is not.
    """
    return _BLOCK.sub(lambda found: f"{found[1]}\n\n{_block(found[2])}\n\n{found[3]}", page)


def pages() -> Iterator[Path]:
    """The pages that have such tables."""
    for path in sorted(DOCS.rglob("*.md")):
        if "<!-- sweep: " in path.read_text(encoding="utf-8"):
            yield path


def main() -> None:
    for path in pages():
        path.write_text(written(path.read_text(encoding="utf-8")), encoding="utf-8")
    found = _levels("few-rows")
    if found is not None:
        sweep_picture.draw(found.record, PICTURE)


if __name__ == "__main__":
    main()
