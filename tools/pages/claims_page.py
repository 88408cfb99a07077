"""docs/algorithms/claims.md: every claim of the papers, with what our runs say of it.

python tools/pages/claims_page.py    writes the tables into the page; a test holds that it has them.

The claims are in benchmarks/claims.toml, the runs in benchmarks/results. All tests of the page are one family: Holm's
correction keeps the chance of any false verdict on it at 5 %.
"""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from statistics import median
from typing import Any

from securevfl.report import SweepRecord
from securevfl.report.split_ratio import find_ratios
from securevfl.report.statistics import Judgement, Paired, judge_family, run_paired_test
from securevfl.report.sweep_record import dataset_names, format_tick, list_positions

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from benchmarks.claim_tests import list_pairs, value_by_seed  # noqa: E402 - benchmarks are not installed

__all__ = ["CLAIMS", "PAGE", "blocks", "hours", "needs", "tests_of", "word", "written"]

PAGE = ROOT / "docs" / "algorithms" / "claims.md"
CLAIMS = ROOT / "benchmarks" / "claims.toml"
RESULTS = ROOT / "benchmarks" / "results"

Line = tuple[str, Paired]
"""Where a claim was tried, and its differences."""
_UNKNOWN_SECONDS = 10.0
"""What a run of a sweep is reckoned to take before one has run."""


@cache
def _record(name: str) -> SweepRecord | None:
    file = RESULTS / f"sweep-{name}.json"
    return SweepRecord.read(file) if file.exists() else None


def tests_of(claim: Mapping[str, Any], record: SweepRecord | None) -> list[Line]:
    """One test for each pair of runs that the claim compares and that has run."""
    if record is None:
        return []
    seeds, ratios = value_by_seed(record.cells, claim), find_ratios(record)
    places = [(data, x) for data in dataset_names(record) for x in list_positions(record, data)]
    several = "at" not in claim and len({x for _, x in places}) > 1
    found = []
    for better, worse in list_pairs(claim, places):
        pairs = [value - seeds[worse][s] for s, value in seeds.get(better, {}).items() if s in seeds.get(worse, {})]
        if pairs:
            (data, _, x), other = better, worse[2]
            against = "" if x == other else f" less {format_tick(record, other)}"
            place = f"{data}, {format_tick(record, x)}{against}" if several else data
            found.append((place, run_paired_test(pairs, claim.get("margin", 0.0), ratio=ratios[data, x])))
    return found


def word(verdicts: list[str]) -> str:
    """One word for the verdicts of a claim at all places."""
    held, fell = verdicts.count("holds"), verdicts.count("does not hold")
    if held and fell:
        return f"reproduced in {held} of {len(verdicts)}, contradicted in {fell}"
    if held or fell:
        verdict = "reproduced" if held else "contradicted"
        return verdict if held + fell == len(verdicts) else f"{verdict} in {held + fell} of {len(verdicts)}"
    return "undecided"


def _points(fraction: float) -> str:
    return f"{100 * fraction:+.1f}".replace("-", "−")


def _evidence(lines: list[Line], found: list[Judgement]) -> str:
    marks = {"holds": "✓", "does not hold": "✗", "undecided": "·"}
    parts = []
    for (place, sample), judgement in zip(lines, found, strict=True):
        half = "" if sample.half_width is None else f" ± {100 * sample.half_width:.1f}"
        parts.append(f"{place} {_points(sample.mean)}{half} {marks[judgement.verdict]}")
    return "; ".join(parts)


def _power(lines: list[Line], found: list[Judgement]) -> str:
    seen = sorted(judgement.seen for judgement in found if judgement.seen is not None)
    if not seen:
        return f"none: {min(sample.n for _, sample in lines)} seeds"
    low, high = 100 * seen[0], 100 * seen[-1]
    return f"{low:.1f}" if len(seen) == 1 else f"{low:.1f} to {high:.1f}"


def needs(found: list[Judgement]) -> str:
    """How many seeds would decide the undecided tests of a claim: ``8``, or ``7 to 27; 3 of 7 by none``."""
    undecided = [judgement.seeds for judgement in found if judgement.verdict == "undecided"]
    seeds = sorted(one for one in undecided if one is not None)
    if not undecided:
        return ""
    if not seeds:
        return "no number" if len(undecided) == 1 else f"no number in {len(undecided)}"
    text = str(seeds[0]) if seeds[0] == seeds[-1] else f"{seeds[0]} to {seeds[-1]}"
    missing = len(undecided) - len(seeds)
    return f"{text}; no number in {missing} of {len(undecided)}" if missing else text


def hours(claim: Mapping[str, Any], lines: list[Line], found: list[Judgement], record: SweepRecord | None) -> str:
    """CPU-hours to the number of seeds that would decide, at the speed of the runs so far: ``0.3``.

    Places that no number of seeds decides are not in it. Where nothing has run, five seeds of each method on one data
    set: ``0.1 a data set``.
    """
    names = {claim["method"]} if "method" in claim else {claim["better"], claim["worse"]}
    took = {name: [cell.seconds for cell in record.cells if cell.method == name] for name in names} if record else {}
    known = [median(seconds) for seconds in took.values() if seconds]
    pair = sum(known) / len(known) * 2 if known else 2 * _UNKNOWN_SECONDS
    if not lines:
        return f"{5 * pair / 3600:.2f} a data set"
    more = [one.seeds - sample.n for (_, sample), one in zip(lines, found, strict=True) if one.seeds is not None]
    return f"{sum(max(count, 0) for count in more) * pair / 3600:.2f}" if more else ""


def blocks() -> dict[str, str]:
    """Paper → its table."""
    claims = tomllib.loads(CLAIMS.read_text("utf-8"))["claim"]
    lines = [tests_of(claim, _record(claim["sweep"])) if "sweep" in claim else [] for claim in claims]
    judged = iter(judge_family([sample for tests in lines for _, sample in tests]))
    rows: dict[str, list[str]] = {}
    for claim, tests in zip(claims, lines, strict=True):
        found = [next(judged) for _ in tests]
        if tests:
            verdict = word([judgement.verdict for judgement in found])
            evidence = _evidence(tests, found) + f" (`{claim['sweep']}`)"
            power, wanted = _power(tests, found), needs(found)
            cost = hours(claim, tests, found, _record(claim["sweep"]))
        elif "sweep" in claim:
            verdict, power, wanted = "not tried yet", "", ""
            ran = _record(claim["sweep"]) is not None
            evidence = f"`{claim['sweep']}.toml` has {'no such run' if ran else 'not run'} yet"
            cost = hours(claim, [], [], _record(claim["sweep"]))
        else:
            verdict, evidence, power, wanted = claim.get("verdict", "not testable here"), claim["why"], "", ""
            cost = ""
        said = f"“{claim['sentence']}” ({claim['where']})"
        cells = [said, claim.get("meaning", ""), f"**{verdict}**", evidence, power, wanted, cost]
        rows.setdefault(claim["paper"], []).append(f"| {' | '.join(cells)} |")
    head = (
        "| the paper says | we compare | verdict | difference, in points | would have seen | seeds to decide | CPU-hours |\n"
        "|---|---|---|---|---|---|---|"
    )
    return {paper: "\n".join([head, *table]) for paper, table in rows.items()}


def summary() -> str:
    """How many claims are decided, in a sentence."""
    verdicts = [row.split("**")[1] for table in blocks().values() for row in table.splitlines()[2:]]
    decided = sum(verdict.startswith(("reproduced", "contradicted")) for verdict in verdicts)
    count = {word: verdicts.count(word) for word in ("undecided", "not tried", "not tried yet", "not testable here")}
    tried = f"{count['not tried'] + count['not tried yet']} not tried, {count['not testable here']} not testable here"
    return f"Of {len(verdicts)} claims, {decided} are decided at one place or more, {count['undecided']} undecided, {tried}."


def written(text: str) -> str:
    """The page with its tables as they have to be.

    Raises:
        ValueError: it has no place for a paper's claims.
    """
    for paper, table in {**blocks(), "count": summary()}.items():
        begin, end = f"<!-- claims: {paper} -->", "<!-- end -->"
        before, found, rest = text.partition(begin)
        if not found:
            raise ValueError(f"{PAGE} has no place for the claims of {paper}: {begin}")
        text = f"{before}{begin}\n\n{table}\n\n{end}{rest.partition(end)[2]}"
    return text


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text("utf-8")), "utf-8")
