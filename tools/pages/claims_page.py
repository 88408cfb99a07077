"""docs/algorithms/claims.md: every claim of the papers, with what our runs say of it.

python tools/pages/claims_page.py    writes the tables into the page; a test holds that it has them.

The claims are in benchmarks/claims.toml, the runs in benchmarks/results. A claim's verdict is about its average over
places. Those verdicts are one family under Holm's correction, the marks at single places another, each at half of 5 %:
so the chance of any false one on the page stays at 5 %.
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
from securevfl.report.statistics import FEWEST, LEVEL, Judgement, Paired, judge_family, run_paired_test
from securevfl.report.sweep_record import dataset_names, format_tick, list_positions

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from benchmarks.claim_tests import average_places, find_differences  # noqa: E402 - benchmarks are not installed

__all__ = ["CLAIMS", "PAGE", "blocks", "hours", "needs", "overall", "summary", "tests_of", "word", "written"]

PAGE = ROOT / "docs" / "algorithms" / "claims.md"
CLAIMS = ROOT / "benchmarks" / "claims.toml"
RESULTS = ROOT / "benchmarks" / "results"

Line = tuple[str, Paired]
"""Where a claim was tried, and its differences."""


@cache
def _record(name: str) -> SweepRecord | None:
    file = RESULTS / f"sweep-{name}.json"
    return SweepRecord.read(file) if file.exists() else None


def tests_of(claim: Mapping[str, Any], record: SweepRecord | None) -> list[Line]:
    """One test for each pair of runs that the claim compares and that has run."""
    if record is None:
        return []
    ratios, places = find_ratios(record), _places(record)
    several = "at" not in claim and len({x for _, x in places}) > 1
    found = []
    for (better, worse), by_seed in find_differences(record.cells, claim, places).items():
        (data, _, x), other = better, worse[2]
        against = "" if x == other else f" less {format_tick(record, other)}"
        place = f"{data}, {format_tick(record, x)}{against}" if several else data
        found.append((place, _test(list(by_seed.values()), claim, ratios[data, x])))
    return found


def overall(claim: Mapping[str, Any], record: SweepRecord | None) -> tuple[int, Paired | None]:
    """The claim's own test, of its differences averaged over places, and over how many."""
    if record is None:
        return 0, None
    differences = find_differences(record.cells, claim, _places(record))
    count, mean = average_places(differences)
    if not mean:
        return count, None
    ratios = find_ratios(record)
    known = [ratios[data, x] for (data, _, x), _ in differences]
    ratio = None if None in known else max(one for one in known if one is not None)
    return count, _test(list(mean.values()), claim, ratio)


def _places(record: SweepRecord) -> list[tuple[str, float]]:
    return [(data, x) for data in dataset_names(record) for x in list_positions(record, data)]


def _test(differences: list[float], claim: Mapping[str, Any], ratio: float | None) -> Paired:
    return run_paired_test(differences, claim.get("margin", 0.0), ratio=ratio)


def word(verdicts: list[str], whole: str = "undecided") -> str:
    """A few words for a claim, from the verdict on the average over places and those at each place."""
    held, fell, n = verdicts.count("holds"), verdicts.count("does not hold"), len(verdicts)
    if whole == "holds":
        return "reproduced" + (f", contradicted in {fell} of {n}" if fell else "")
    if whole == "does not hold":
        return "contradicted" + (f", reproduced in {held} of {n}" if held else "")
    if held and fell:
        return f"reproduced in {held} of {n}, contradicted in {fell}"
    if held or fell:
        verdict = "reproduced" if held else "contradicted"
        return verdict if held + fell == n else f"{verdict} in {held + fell} of {n}"
    return "undecided"


def _points(fraction: float) -> str:
    text = f"{100 * fraction:+.1f}".replace("-", "−")
    return "0.0" if text[1:] == "0.0" else text


def _evidence(lines: list[Line], found: list[Judgement]) -> str:
    marks = {"holds": "✓", "does not hold": "✗", "undecided": "·"}
    parts = []
    for (place, sample), judgement in zip(lines, found, strict=True):
        half = "" if sample.half_width is None else f" ± {100 * sample.half_width:.1f}"
        parts.append(f"{place} {_points(sample.mean)}{half} {marks[judgement.verdict]}")
    return "; ".join(parts)


def _power(sample: Paired | None, found: Judgement | None, lines: list[Line]) -> str:
    if sample is None or found is None or found.seen is None:
        return f"none: {min(line.n for _, line in lines)} seeds"
    return f"{100 * found.seen:.1f}"


def needs(found: Judgement | None) -> str:
    """How many seeds would decide an undecided claim: ``8``, or ``no number``; empty for a decided one."""
    if found is None:
        return str(FEWEST)
    if found.verdict != "undecided":
        return ""
    return "no number" if found.seeds is None else str(found.seeds)


def hours(
    claim: Mapping[str, Any], count: int, sample: Paired | None, found: Judgement | None, record: SweepRecord | None
) -> str:
    """CPU-hours to the number of seeds that would decide, at the speed of the runs so far: ``0.3``; empty where none
    would, and where neither side has run. Below five seeds, those of five seeds at one place: ``0.1 a place``.
    """
    names = {claim["method"]} if "method" in claim else {claim["better"], claim["worse"]}
    took = {name: [cell.seconds for cell in record.cells if cell.method == name] for name in names} if record else {}
    known = [median(seconds) for seconds in took.values() if seconds]
    if not known:
        return ""
    pair = 2 * sum(known) / len(known)
    if sample is None or found is None:
        return f"{FEWEST * pair / 3600:.2f} a place"
    if found.verdict != "undecided" or found.seeds is None:
        return ""
    return f"{max(found.seeds - sample.n, 0) * count * pair / 3600:.2f}"


def blocks() -> dict[str, str]:
    """Paper → its table."""
    claims = tomllib.loads(CLAIMS.read_text("utf-8"))["claim"]
    records = [_record(claim["sweep"]) if "sweep" in claim else None for claim in claims]
    lines = [tests_of(claim, record) if "sweep" in claim else [] for claim, record in zip(claims, records, strict=True)]
    averages = [
        overall(claim, record) if "sweep" in claim else (0, None) for claim, record in zip(claims, records, strict=True)
    ]
    judged = iter(judge_family([sample for tests in lines for _, sample in tests], level=LEVEL / 2))
    whole = iter(judge_family([sample for _, sample in averages if sample is not None], level=LEVEL / 2))
    rows: dict[str, list[str]] = {}
    for claim, record, tests, (count, sample) in zip(claims, records, lines, averages, strict=True):
        found, said = [next(judged) for _ in tests], None if sample is None else next(whole)
        power = wanted = cost = ""
        if "sweep" not in claim:
            verdict, evidence = claim.get("verdict", "not testable here"), claim["why"]
        elif tests:
            verdict = word([judgement.verdict for judgement in found], "undecided" if said is None else said.verdict)
            evidence = _evidence(tests, found) + f" (`{claim['sweep']}`)"
            if sample is not None and said is not None and count > 1:
                evidence = f"**{_evidence([(f'mean of {count}', sample)], [said])}**; {evidence}"
            power, wanted = _power(sample, said, tests), needs(said)
            cost = hours(claim, count, sample, said, record)
        else:
            verdict, wanted, cost = "not tried yet", needs(None), hours(claim, 0, None, None, record)
            evidence = f"`{claim['sweep']}.toml` has {'not run' if record is None else 'no such run'} yet"
        quote = f"“{claim['sentence']}” ({claim['where']})"
        cells = [quote, claim.get("meaning", ""), f"**{verdict}**", evidence, power, wanted, cost]
        rows.setdefault(claim["paper"], []).append(f"| {' | '.join(cells)} |")
    head = (
        "| the paper says | we compare | verdict | difference, in points | would have seen | seeds to decide | "
        "CPU-hours |\n|---|---|---|---|---|---|---|"
    )
    return {paper: "\n".join([head, *table]) for paper, table in rows.items()}


def summary() -> str:
    """How many claims are decided, in a sentence."""
    verdicts = [row.split("**")[1] for table in blocks().values() for row in table.splitlines()[2:]]
    decided = sum(verdict.startswith(("reproduced", "contradicted")) for verdict in verdicts)
    count = {word: verdicts.count(word) for word in ("undecided", "not tried", "not tried yet", "not testable here")}
    tried = f"{count['not tried'] + count['not tried yet']} not tried, {count['not testable here']} not testable here"
    decided_text = f"{decided} are decided at one place or more, {count['undecided']} undecided"
    return f"Of {len(verdicts)} claims, {decided_text}, {tried}."


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
