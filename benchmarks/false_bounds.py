"""How often a claim's tests give a false verdict, if methods are equal or differ by exactly the bound.

    python -m benchmarks.false_bounds [--quick] [--repeats 200] [--only TABLE …]

Methods and tables are those of `benchmarks.false_verdicts`: on average no method is better. To their differences on a
page, 0, the bound or minus the bound is added, which are then the true differences; each of them makes another
hypothesis of `benchmarks.claim_bounds` true. Reported: how often a single one-sided test denies a true difference at
the bound, at 5 %; how often a page has any false statement after the correction, with all true differences at 0, all at
the bound, and in turn at 0, the bound and minus the bound; how often it rightly shows that equal methods are close.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from benchmarks.claim_bounds import BOUND, ClaimJudgement, judge_claims, run_bound_tests
from benchmarks.common import before, data, write
from benchmarks.false_verdicts import AVERAGED, CASES, SEEDS, differences, read_table
from securevfl.report.statistics import LEVEL, run_paired_test

__all__ = ["CHOSEN", "MEAN", "TRUTHS", "count_false", "is_false", "measure"]

CHOSEN = (
    "breast cancer",
    "breast cancer, a third trains",
    "Parkinson's speech",
    "Parkinson's speech, a fifth trains",
    "Handwritten",
    "Handwritten, 5 % train",
    "credit, 5 % train",
    "credit, 6,000 of 30,000 clients",
    "credit",
)
"""Cases of `benchmarks.false_verdicts`."""
MEAN = f"mean of {len(AVERAGED)} tables"
TRUTHS: Mapping[str, tuple[float, ...]] = {
    "equal": (0.0,),
    "at the bound": (BOUND,),
    "mixed": (0.0, BOUND, -BOUND),
}
"""The true differences of a page, in turn."""


def is_false(judgement: ClaimJudgement, truth: float) -> bool:
    """Return True if any verdict on a difference contradicts the truth.

    Args:
        judgement: of the difference, against a margin of 0.
        truth: the true difference.
    """
    return (
        (judgement.verdict == "holds" and truth <= 0)
        or (judgement.verdict == "does not hold" and truth >= 0)
        or (judgement.below_bound and truth >= BOUND)
        or (judgement.above_bound and truth <= -BOUND)
    )


def count_false(pages: Sequence[np.ndarray], ratio: float, truths: Sequence[float]) -> tuple[float, float]:
    """The share of pages with a false statement, and of claims shown to differ by less than the bound.

    Args:
        pages: differences between equal methods, (claims, seeds) each.
        ratio: see `run_paired_test`.
        truths: differences to add to them, in turn.
    """
    false = small = claims = 0
    for page in pages:
        shifts = [truths[i % len(truths)] for i in range(len(page))]
        family = [run_paired_test((one + shift).tolist(), ratio=ratio) for one, shift in zip(page, shifts, strict=True)]
        judged = judge_claims(family)
        false += any(is_false(one, shift) for one, shift in zip(judged, shifts, strict=True))
        small += sum(one.below_bound and one.above_bound for one in judged)
        claims += len(page)
    return false / len(pages), small / claims


def measure(pages: Sequence[np.ndarray], ratio: float, seeds: Sequence[int] = SEEDS) -> dict[str, object]:
    """Shares of single tests and pages that are false, by number of seeds.

    Args:
        pages: differences between equal methods, (claims, seeds) each.
        ratio: see `run_paired_test`.
        seeds: numbers of seeds to look at; as many as the pages have, at most.
    """
    found: dict[str, object] = {"repeats": len(pages), "ratio": ratio}
    for n in seeds:
        cut = [page[:, :n] for page in pages]
        single = [
            run_bound_tests(run_paired_test((one + BOUND).tolist(), ratio=ratio), BOUND)[0] <= LEVEL
            for page in cut
            for one in (*page, *-page)  # the same pair of methods, either way round
        ]
        line: dict[str, float] = {"single": float(np.mean(single))}
        for name, truths in TRUTHS.items():
            line[name], small = count_false(cut, ratio, truths)
            if name == "equal":
                line["shown small"] = small
        found[f"{n} seeds"] = line
    return found


def run(repeats: int, only: Sequence[str], seeds: Sequence[int] = SEEDS) -> Iterator[tuple[str, dict[str, object]]]:
    """Each case whose files are here, and the mean of tables: its name and figures."""
    kept: dict[str, list[np.ndarray]] = {}
    for name in CHOSEN:
        if only and name not in only and not (MEAN in only and name in AVERAGED):
            continue
        case = CASES[name]
        table = data(lambda wanted=case.name: read_table(wanted), name)  # type: ignore[misc]
        if table is None:
            continue
        kept[name] = [differences(case, table, repeat, max(seeds)) for repeat in range(repeats)]
        yield name, measure(kept[name], case.ratio, seeds)
    if all(name in kept for name in AVERAGED):
        ratio = max(CASES[name].ratio for name in AVERAGED)
        every = [np.mean(pages, axis=0) for pages in zip(*(kept[name] for name in AVERAGED), strict=True)]
        yield MEAN, measure(every, ratio, seeds)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--quick", action="store_true", help="20 pages of one table")
    options.add_argument("--repeats", type=int, default=200, help="pages of each table")
    options.add_argument("--only", nargs="+", default=[], help="tables")
    given = options.parse_args()
    for name, found in run(20 if given.quick else given.repeats, ["breast cancer"] if given.quick else given.only):
        print(name, found, flush=True)
        write("false_bounds", before("false_bounds") | {name: found}, show=False)


if __name__ == "__main__":
    main()
