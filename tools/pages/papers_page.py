"""What to believe of each of the five papers: three sentences in docs/algorithms/claims.md and on the papers' pages.

python tools/pages/papers_page.py    writes them; a test holds that the pages have them.

The sentences are in benchmarks/claims.toml. Their figures come from the records, and the last sentence from a verdict,
so that both change with the runs.
"""

from __future__ import annotations

import json
import string
import sys
import textwrap
import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(Path(__file__).parent))

import claims_page  # noqa: E402 - beside this file
from claims_page import CLAIMS, Row, list_rows, points  # noqa: E402
from fedda_pairs import count_pairs  # noqa: E402

from benchmarks.claim_bounds import BOUND  # noqa: E402

__all__ = ["FOLDER", "block", "count_rows", "describe_row", "pages", "read_readings", "sentences", "written"]

FOLDER = ROOT / "docs" / "algorithms"
_CLAIMS = ROOT / "benchmarks" / "results" / "sweep-claims.json"
_BEGIN, _END = "<!-- what to believe -->", "<!-- end -->"
_KINDS = {"holds": "holds", "does not hold": "falls", "no gain": "small", "no difference": "small", "undecided": "open"}


@cache
def read_readings() -> list[dict[str, Any]]:
    """The papers' sentences, as claims.toml has them."""
    found: list[dict[str, Any]] = tomllib.loads(CLAIMS.read_text("utf-8"))["reading"]
    return found


@cache
def count_rows() -> Mapping[str, str]:
    """Rows that the active parties train on in the sweep of the claims, and those of them that are aligned: ``25 to
    840``."""
    cells = json.loads(_CLAIMS.read_text("utf-8"))["cells"]
    trained = {
        name: sorted(int(cell["extra"]["rows trained"]) for cell in cells if cell["method"] == method)
        for name, method in (("own", "local"), ("aligned", "vanilla VFL"))
    }
    return {name: f"{rows[0]:,} to {rows[-1]:,}" for name, rows in trained.items()}


def describe_row(row: Row) -> str:
    """A claim's figures: ``+0.7 ± 3.2 points (8 places, 5 seeds, undecided)``; ``no runs yet``."""
    if not row.lines:
        return "no runs yet"
    if row.sample is None:
        low = min(sample.n for _, sample in row.lines)
        mean = sum(sample.mean for _, sample in row.lines) / len(row.lines)
        counts = f"{_format_count(len(row.lines), 'place')}, {_format_count(low, 'seed')}"
        return f"{points(mean)} points ({counts}: too few for a verdict)"
    half = "" if row.sample.half_width is None else f" ± {100 * row.sample.half_width:.1f}"
    counts = f"{_format_count(row.count, 'place')}, {_format_count(row.sample.n, 'seed')}"
    return f"{points(row.sample.mean)}{half} points ({counts}: {row.verdict})"


def _format_count(n: int, noun: str) -> str:
    return f"{n} {noun}" + ("s" if n != 1 else "")


def sentences(reading: Mapping[str, Any]) -> tuple[str, str, str]:
    """What the paper claims, what the runs show, what to believe.

    Raises:
        KeyError: a sentence names a claim that does not exist, or the verdict has no sentence.
    """
    rows = {row.claim["key"]: row for row in list_rows() if "key" in row.claim}
    named = [name for _, name, _, _ in string.Formatter().parse(reading["shows"]) if name]
    figures = {**count_pairs(), **{name: describe_row(rows[name]) for name in named if name in rows}}
    row = rows[reading["rests_on"]]
    kind = "untried" if not row.lines else _KINDS["undecided" if row.judgement is None else row.judgement.verdict]
    believe = reading["believe"][kind].replace("{bound}", f"{100 * BOUND:g} points")
    return reading["claims"], string.Formatter().vformat(reading["shows"], (), figures), believe


def block() -> str:
    """The section of the claims page: a paragraph for each paper, and how our runs differ."""
    parts = []
    for reading in read_readings():
        parts.append(_wrap_text(f"**[{reading['paper']}]({reading['page']}).** {' '.join(sentences(reading))}"))
        parts.append(_wrap_text(f"*Read with care:* {reading['care'].format(**count_rows())}"))
    return "\n\n".join(parts)


def pages() -> dict[Path, str]:
    """Each page with these sentences → what stands between its marks."""
    found = {claims_page.PAGE: block()}
    for reading in read_readings():
        link = "[What the papers claim](claims.md#what-to-believe-of-the-five-papers) shows how our runs differ."
        found[FOLDER / reading["page"]] = _wrap_text(f"{' '.join(sentences(reading))} {link}")
    return found


def _wrap_text(text: str) -> str:
    return textwrap.fill(text, 120, break_long_words=False, break_on_hyphens=False)


def written(page: str, text: str) -> str:
    """A page with its sentences as they have to be.

    Raises:
        ValueError: it has no place for them.
    """
    before, found, rest = page.partition(_BEGIN)
    if not found:
        raise ValueError(f"the page has no place for what to believe: {_BEGIN}")
    return f"{before}{_BEGIN}\n\n{text}\n\n{_END}{rest.partition(_END)[2]}"


if __name__ == "__main__":
    for path, between in pages().items():
        path.write_text(written(path.read_text("utf-8"), between), "utf-8")
