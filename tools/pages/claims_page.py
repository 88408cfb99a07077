"""docs/algorithms/claims.md: every claim of the papers, with what our runs say of it.

python tools/pages/claims_page.py    writes the tables into the page; a test holds that it has them.

The claims are in benchmarks/claims.toml, the runs in benchmarks/results. A claim's verdict is about its average over
places. Those verdicts, with the bounds of benchmarks/claim_bounds.py, are one family, the marks at single places
another, each at half of 5 %: so the chance of any false one on the page stays at 5 %. What to believe of each paper is
tools/pages/papers_page.py's.
"""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from statistics import fmean, median
from typing import Any

import msgspec
from fedda_pairs import count_pairs

from securevfl.report import SweepRecord
from securevfl.report.split_ratio import find_ratios
from securevfl.report.statistics import FEWEST, LEVEL, Judgement, Paired, judge_family, run_paired_test
from securevfl.report.sweep_record import dataset_names, format_tick, list_positions

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from benchmarks.claim_bounds import BOUND, DECIDED, MOST, ClaimJudgement, judge_claims  # noqa: E402 - not installed
from benchmarks.claim_tests import average_places, find_differences, find_largest_ratio, strip_calibration  # noqa: E402

__all__ = [
    "CLAIMS", "PAGE", "Row", "blocks", "hours", "list_rows", "needs", "overall", "points", "summary", "tests_of",
    "why_open", "with_calibration", "word", "written",
]  # fmt: skip

PAGE = ROOT / "docs" / "algorithms" / "claims.md"
CLAIMS = ROOT / "benchmarks" / "claims.toml"
RESULTS = ROOT / "benchmarks" / "results"

_WHOLE = {
    "holds": "reproduced",
    "does not hold": "contradicted",
    "no gain": f"no gain above {100 * BOUND:g} points",
    "no difference": f"no difference above {100 * BOUND:g} points",
    "undecided": "undecided",
}
"""A verdict of the tests → as the page says it."""

Line = tuple[str, Paired]
"""Where a claim was tried, and its differences."""


@cache
def _record(name: str, *, calibrated: bool = False) -> SweepRecord | None:
    file = RESULTS / f"sweep-{name}.json"
    if not file.exists():
        return None
    record = SweepRecord.read(file)
    return record if calibrated else msgspec.structs.replace(record, cells=strip_calibration(record.cells))


@dataclass(frozen=True, kw_only=True)
class Row:
    """A claim, its tests place by place and over all places, and what they say."""

    claim: Mapping[str, Any]
    record: SweepRecord | None
    lines: list[Line] = field(default_factory=list)
    marks: list[Judgement] = field(default_factory=list)
    count: int = 0
    sample: Paired | None = None
    judgement: ClaimJudgement | None = None

    @property
    def verdict(self) -> str:
        """A few words."""
        if "sweep" not in self.claim:
            return str(self.claim.get("verdict", "not testable here"))
        if not self.lines:
            return "not tried yet"
        whole = "undecided" if self.judgement is None else self.judgement.verdict
        return word([mark.verdict for mark in self.marks], whole)


@cache
def list_rows(*, calibrated: bool = False) -> list[Row]:
    """All claims, judged together, by scores as the models give them or by calibrated ones."""
    claims = tomllib.loads(CLAIMS.read_text("utf-8"))["claim"]
    records = [_record(claim["sweep"], calibrated=calibrated) if "sweep" in claim else None for claim in claims]
    pairs = list(zip(claims, records, strict=True))
    lines = [tests_of(claim, record) if "sweep" in claim else [] for claim, record in pairs]
    averages = [overall(claim, record) if "sweep" in claim else (0, None) for claim, record in pairs]
    marks = iter(judge_family([sample for tests in lines for _, sample in tests], level=LEVEL / 2))
    tried = [(claim, sample) for claim, (_, sample) in zip(claims, averages, strict=True) if sample is not None]
    bounds = [None if claim.get("measure") == "swing" else BOUND for claim, _ in tried]
    whole = iter(judge_claims([sample for _, sample in tried], bounds, level=LEVEL / 2))
    return [
        Row(
            claim=claim, record=record, lines=tests, marks=[next(marks) for _ in tests], count=count, sample=sample,
            judgement=None if sample is None else next(whole),
        )
        for (claim, record), tests, (count, sample) in zip(pairs, lines, averages, strict=True)
    ]  # fmt: skip


def tests_of(claim: Mapping[str, Any], record: SweepRecord | None) -> list[Line]:
    """One test for each pair of runs that the claim compares and that has run."""
    if record is None:
        return []
    ratios, places = find_ratios(record), _list_places(record)
    several = "at" not in claim and len({x for _, x in places}) > 1
    found = []
    for (better, worse), by_seed in find_differences(record.cells, claim, places, list_planned(record)).items():
        (data, _, x), other = better, worse[2]
        against = "" if x == other else f" less {format_tick(record, other)}"
        place = f"{data}, {format_tick(record, x)}{against}" if several else data
        found.append((place, _run_test(list(by_seed.values()), claim, ratios[data, x])))
    return found


def overall(claim: Mapping[str, Any], record: SweepRecord | None) -> tuple[int, Paired | None]:
    """The claim's own test, of its differences averaged over places, and over how many."""
    if record is None:
        return 0, None
    differences = find_differences(record.cells, claim, _list_places(record), list_planned(record))
    count, mean = average_places(differences)
    if not mean:
        return count, None
    return count, _run_test(list(mean.values()), claim, find_largest_ratio(differences, find_ratios(record)))


def list_planned(record: SweepRecord) -> list[int]:
    """The seeds that the sweep's file names."""
    seeds = record.job.get("seeds", ())
    return [int(seed) for seed in seeds] if isinstance(seeds, Sequence) else []


def _list_places(record: SweepRecord) -> list[tuple[str, float]]:
    return [(data, x) for data in dataset_names(record) for x in list_positions(record, data)]


def _run_test(differences: list[float], claim: Mapping[str, Any], ratio: float | None) -> Paired:
    return run_paired_test(differences, claim.get("margin", 0.0), ratio=ratio)


def word(verdicts: list[str], whole: str = "undecided") -> str:
    """A few words for a claim, from the verdict on the average over places and those at each place.

    The average comes first: ``undecided, reproduced in 1 of 6``. A place that dissents decides nothing about the claim.
    """
    held, fell, n = verdicts.count("holds"), verdicts.count("does not hold"), len(verdicts)
    if whole in ("holds", "no gain", "no difference"):
        text = _WHOLE[whole]
        other = f", reproduced in {held} of {n}" if held and whole != "holds" else ""
        return text + other + (f", contradicted in {fell} of {n}" if fell else "")
    if whole == "does not hold":
        return "contradicted" + (f", reproduced in {held} of {n}" if held else "")
    return ", ".join([
        "undecided",
        *([f"reproduced in {held} of {n}"] if held else []),
        *([f"contradicted in {fell} of {n}"] if fell else []),
    ])  # fmt: skip


def points(fraction: float) -> str:
    """A difference with its sign: ``+1.5``; ``0.0``."""
    text = f"{100 * fraction:+.1f}".replace("-", "−")
    return "0.0" if text[1:] == "0.0" else text


def _format_evidence(lines: Sequence[Line], found: Sequence[Judgement]) -> str:
    marks = {"holds": "✓", "does not hold": "✗", "undecided": "·", "no gain": "≤", "no difference": "≈"}
    parts = []
    for (place, sample), judgement in zip(lines, found, strict=True):
        half = "" if sample.half_width is None else f" ± {100 * sample.half_width:.1f}"
        parts.append(f"{place} {points(sample.mean)}{half} {marks[judgement.verdict]}")
    return "; ".join(parts)


def _format_power(sample: Paired | None, found: Judgement | None, lines: Sequence[Line]) -> str:
    if sample is None or found is None or found.seen is None:
        return f"none: {min(line.n for _, line in lines)} seeds"
    return f"{100 * found.seen:.1f}"


def needs(found: Judgement | None) -> str:
    """How many seeds would decide an undecided claim: ``8``, ``no number``, or ``no number, ≤ 12`` where 12 would show
    that there is no gain above the bound; empty for a decided one.
    """
    if found is None:
        return str(FEWEST)
    if found.verdict != "undecided":
        return ""
    bound = found.bound_seeds if isinstance(found, ClaimJudgement) else None
    return ("no number" if found.seeds is None else str(found.seeds)) + ("" if bound is None else f", ≤ {bound}")


def hours(
    claim: Mapping[str, Any], count: int, sample: Paired | None, found: Judgement | None, record: SweepRecord | None
) -> str:
    """CPU-hours to the fewest seeds that would decide, at the speed of the runs so far: ``0.3``; empty where none
    would, and where neither side has run. Below five seeds, those of five seeds at one place: ``0.1 a place``.
    """
    names = {claim["method"]} if "method" in claim else {claim["better"], claim["worse"]}
    took: dict[str, dict[tuple[str, float], list[float]]] = {}
    for cell in record.cells if record else ():
        if cell.method in names:
            took.setdefault(cell.method, {}).setdefault((cell.data, cell.x), []).append(cell.seconds)
    # a median over all runs would leave out what the few large places cost, which is most
    known = [fmean(median(seconds) for seconds in places.values()) for places in took.values()]
    if not known:
        return ""
    pair = 2 * sum(known) / len(known)
    if sample is None or found is None:
        return f"{FEWEST * pair / 3600:.2f} a place"
    seeds = found.fewest_seeds if isinstance(found, ClaimJudgement) else found.seeds
    if found.verdict != "undecided" or seeds is None:
        return ""
    return f"{max(seeds - sample.n, 0) * count * pair / 3600:.2f}"


def blocks() -> dict[str, str]:
    """Paper → its table."""
    rows: dict[str, list[str]] = {}
    for row in list_rows():
        claim, tests, sample, said = row.claim, row.lines, row.sample, row.judgement
        power = wanted = cost = ""
        if "sweep" not in claim:
            evidence = claim["why"].format(**count_pairs())
        elif tests:
            evidence = _format_evidence(tests, row.marks) + f" (`{claim['sweep']}`)"
            if sample is not None and said is not None and row.count > 1:
                evidence = f"**{_format_evidence([(f'mean of {row.count}', sample)], [said])}**; {evidence}"
            power, wanted = _format_power(sample, said, tests), needs(said)
            cost = hours(claim, row.count, sample, said, row.record)
        else:
            wanted, cost = needs(None), hours(claim, 0, None, None, row.record)
            evidence = f"`{claim['sweep']}.toml` has {'not run' if row.record is None else 'no such run'} yet"
        quote = f"“{claim['sentence']}” ({claim['where']})"
        cells = [quote, claim.get("meaning", ""), f"**{row.verdict}**", evidence, power, wanted, cost]
        rows.setdefault(claim["paper"], []).append(f"| {' | '.join(cells)} |")
    head = (
        "| the paper says | we compare | verdict | difference, in points | would have seen | seeds to decide | "
        "CPU-hours |\n|---|---|---|---|---|---|---|"
    )
    return {paper: "\n".join([head, *table]) for paper, table in rows.items()}


def summary() -> str:
    """How many claims are decided, in two sentences."""
    rows = list_rows()
    whole = [row.judgement.verdict for row in rows if row.judgement is not None]
    count = {verdict: whole.count(verdict) for verdict in DECIDED}
    small = count["no gain"] + count["no difference"]
    verdicts = [row.verdict for row in rows]
    still_open = sum(verdict.startswith("undecided") for verdict in verdicts)
    places = still_open - verdicts.count("undecided")
    untried = verdicts.count("not tried") + verdicts.count("not tried yet")
    return (
        f"Of {len(rows)} claims, {sum(count.values())} are decided on the mean over places: {count['holds']} "
        f"reproduced, {count['does not hold']} contradicted, and {small} with no gain or no difference above "
        f"{100 * BOUND:g} points. {still_open} are undecided, {places} of them with a verdict at single places; "
        f"{untried} {'is' if untried == 1 else 'are'} not tried, {verdicts.count('not testable here')} not testable "
        "here."
    )


def with_calibration() -> str:
    """The claims that calibrated scores would judge otherwise, and by how much their means move; a line each."""
    lines, moves = [], []
    for row, other in zip(list_rows(), list_rows(calibrated=True), strict=True):
        said, calibrated = row.judgement, other.judgement
        if said is None or calibrated is None or row.sample is None or other.sample is None:
            continue
        moves.append(abs(other.sample.mean - row.sample.mean))
        if said.verdict != calibrated.verdict:
            means = f"{points(row.sample.mean)} becomes {points(other.sample.mean)}"
            verdicts = f"{_WHOLE[said.verdict]}, with calibration {_WHOLE[calibrated.verdict]}"
            lines.append(f"- {row.claim['paper']}, {row.claim['where']}: {means}; {verdicts}.")
    head = (
        f"Calibration moves the mean of a claim by {100 * median(moves):.1f} points in the median, by "
        f"{100 * max(moves):.1f} at most. {len(lines)} of {len(moves)} verdicts would be others:"
    )
    return "\n".join([head, "", *lines]) if lines else head.replace(" 0 of", " None of").rstrip(":") + "."


def why_open() -> str:
    """A sentence for each claim that no number of seeds decides by its sign."""
    lines = []
    for row in list_rows():
        said, sample = row.judgement, row.sample
        if said is None or sample is None or said.verdict != "undecided" or said.seeds is not None or said.seen is None:
            continue
        means = [one.mean for _, one in row.lines]
        spread = f"{points(min(means))} to {points(max(means))} over places, " if len(means) > 1 else ""
        kind, claim = "difference" if sample.margin < 0 else "gain", row.claim
        small = "nor would they show" if said.bound_seeds is None else f"{said.bound_seeds} seeds would show"
        lines.append(
            f"- {claim['paper']}, {claim['where']} ({claim['meaning'].split(';')[0]}): the mean of "
            f"{points(sample.mean)} ({spread}{100 * (sample.deviation or 0):.1f} over seeds) lies "
            f"{100 * abs(sample.mean - sample.margin):.2f} from {points(sample.margin)}, and {MOST:,} seeds would see "
            f"no less than {100 * (said.limit or 0):.2f}; {small} a {kind} below {100 * BOUND:g} points."
        )
    return "\n".join(lines)


def written(text: str) -> str:
    """The page with its tables as they have to be.

    Raises:
        ValueError: it has no place for a paper's claims.
    """
    for paper, table in {**blocks(), "count": summary(), "open": why_open(), "calibrated": with_calibration()}.items():
        begin, end = f"<!-- claims: {paper} -->", "<!-- end -->"
        before, found, rest = text.partition(begin)
        if not found:
            raise ValueError(f"{PAGE} has no place for the claims of {paper}: {begin}")
        text = f"{before}{begin}\n\n{table}\n\n{end}{rest.partition(end)[2]}"
    return text


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text("utf-8")), "utf-8")
