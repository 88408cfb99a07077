"""The tables of docs/reference/faults.md, from what the matrix promises and what its last run found.

python tools/pages/faults_page.py    writes them into the page; a test holds that it has them.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from benchmarks.faults.cells import cells  # noqa: E402
from benchmarks.faults.expected import FAULTS, PHASES  # noqa: E402
from benchmarks.faults.known import find_remaining, read_remains  # noqa: E402

__all__ = ["PAGE", "blocks", "main", "written"]

PAGE = ROOT / "docs" / "reference" / "faults.md"
RESULTS = ROOT / "benchmarks" / "results" / "faults.json"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    line = lambda cells: f"| {' | '.join(cells)} |"  # noqa: E731
    return "\n".join([line(head), "|" + "---|" * len(head), *map(line, rows)])


def _state(cell: Mapping[str, Any], remains: Sequence[dict[str, str]]) -> str:
    if not cell["broken"]:
        return "kept" if cell["happened"] else "none"
    return "open" if find_remaining(cell, remains) is None else "remains"


def blocks() -> dict[str, str]:
    """Name → table, as the page should have it."""
    content = json.loads(RESULTS.read_text(encoding="utf-8"))
    remains = read_remains()
    states = [(cell, _state(cell, remains)) for cell in content["cells"]]

    def counts(chosen: Sequence[str]) -> list[str]:
        ran = sum(state != "none" for state in chosen)
        return [f"{ran:,}", *(f"{chosen.count(state):,}" for state in ("kept", "remains", "open"))]

    promises = [
        [fault, found.promise, *counts([state for cell, state in states if cell["fault"] == fault])]
        for fault, found in FAULTS.items()
    ]
    promises.append(["**all**", "", *counts([state for _, state in states])])
    phases = [
        [kind, *(_phase_cell([s for c, s in states if (c["kind"], c["phase"]) == (kind, phase)]) for phase in PHASES)]
        for kind in sorted({cell["kind"] for cell, _ in states})
    ]
    whole = len(cells())
    return {
        "size": f"{len(states):,} of the {whole:,} cells of the matrix have run so far, on the machine that "
        "`benchmarks/results/faults.json` names.",
        "promises": _table(["fault", "what happens", "faults", "as promised", "remains", "open"], promises),
        "phases": _table(["job", *PHASES], phases),
        "impossible": _table(["not in the matrix", "why"], [[*one] for one in sorted(content["impossible"].items())]),
    }


def _phase_cell(states: Sequence[str]) -> str:
    ran = sum(state != "none" for state in states)
    return f"{states.count('kept')} of {ran}" if ran else "–"


def written(page: str) -> dict[str, str]:
    """Name → table, as the page has it."""
    found = re.findall(r"<!-- table: (\w+) -->\n(.*?)\n<!-- end -->", page, flags=re.DOTALL)
    return {name: text.strip() for name, text in found}


def main() -> None:
    """Write the tables into the page."""
    page = PAGE.read_text(encoding="utf-8")
    for name, text in blocks().items():
        start = page.index(f"<!-- table: {name} -->")
        end = page.index("<!-- end -->", start)
        page = f"{page[:start]}<!-- table: {name} -->\n\n{text}\n\n{page[end:]}"
    PAGE.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
