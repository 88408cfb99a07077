"""The view rule over all orders of events, with larger bounds than the tests have: how many states, and none wrong.

    python -m benchmarks.gathering [--quick] [--most 3000000]

What is driven is `securevfl.party.gathering.Gathering` itself. A search that finds more than `--most` states stops and
says that it is not complete. Two rules that are wrong have to be found so.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from benchmarks.common import write
from securevfl.party.gathering import Gathering
from securevfl.party.reports import Report, View, view_of
from securevfl.testing.gathering import Bounds, Search, Wrong

SEARCHES: dict[str, dict[str, Any]] = {
    "a crash and a cut, while they train": {"crashes": 1, "cuts": 1, "losses": True},
    "two crashes, while they train": {"crashes": 2, "torn": True},
    "two crashes since the first connection": {"first": True, "crashes": 2},
    "two crashes, checkpoints that come and go": {"crashes": 2, "torn": True, "grows": True, "back": True},
    "two crashes and a cut": {"crashes": 2, "cuts": 1},
    "two crashes, note by note": {"crashes": 2, "fine": True},
}


class OfAnyAttempt(Gathering):
    """Takes checkpoints of one epoch for each other's, whichever attempt wrote them."""

    @staticmethod
    def view_of(reports: Mapping[str, Report]) -> View:
        epochs = [{kept.epoch: kept.attempt for kept in report.kept} for report in reports.values()]
        start = max(set.intersection(*map(set, epochs)), default=0)
        return replace(view_of(reports), start=(start, 0, epochs[0][start]) if start else None)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="20,000 states of each")
    parser.add_argument("--most", type=int, default=3_000_000)
    given = parser.parse_args()
    most = 20_000 if given.quick else given.most
    found: dict[str, Any] = {}
    for what, bounds in SEARCHES.items():
        began = time.process_time()
        search = Search(Bounds(**bounds, most=most)).run()
        found[what] = {
            "states": search.states,
            "quiet": search.quiet,
            "complete": search.complete,
            "wrong": 0,  # one that is wrong ends the search with an error
            "seconds": round(time.process_time() - began, 1),
        }
        print(what, found[what], flush=True)
    if not given.quick:
        try:
            Search(Bounds(crashes=2, torn=True, grows=True, back=True), OfAnyAttempt).run()
        except Wrong as error:
            found["checkpoints of any attempt"] = f"found wrong: {error}"
        else:
            sys.exit("a rule that is wrong was not found")
    write("gathering", found)


if __name__ == "__main__":
    main()
