"""The ε that a job of the additive model states, beside an independent accountant's for the same releases.

python -m benchmarks.additive --only epsilon
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import securevfl as sv
from securevfl.algorithms.additive.units import SUM_ONE

__all__ = ["account_jobs"]

_SCRIPT = Path(__file__).parent / "peers" / "dp_epsilon.py"
_ROWS, _COLUMNS = 18_000, 24
_PROTECTIONS = {"three computing parties": sv.Shares, "two parties": sv.BFV}
_STRENGTHS = {"three computing parties": (8.0, 3.0, 1.0, 0.5), "two parties": (8.0, 1.0)}


def account_jobs(python: Path, delta: float, epochs: int) -> list[dict[str, Any]]:
    """Account for jobs of 18,000 rows and 23 columns with private edges.

    The releases are the start, each column's counts and each epoch's sums, with σ as noise is drawn: rounded up to
    whole units, and without the noise of the party that looks.

    Args:
        python: an interpreter that has dp_accounting.
        delta: δ.
        epochs: of each job.
    """
    found, jobs = [], []
    for adders, protection in _PROTECTIONS.items():
        for epsilon in _STRENGTHS[adders]:
            dp = sv.DP(model=sv.Gaussian(epsilon=epsilon, delta=delta))
            made: Any = protection(dp=dp, metrics="none") if protection is sv.Shares else protection(dp=dp)
            budget = sv.Additive().plan_budget(
                made,
                rows=_ROWS,
                outputs=1,
                columns=_COLUMNS,
                parties=3 if protection is sv.Shares else 2,
                epochs=epochs,
            )
            others = 2 if protection is sv.Shares else 1
            sigma = budget.own_units(SUM_ONE) / SUM_ONE * others**0.5
            releases = [(budget.mu_start, 1), (budget.mu_column, _COLUMNS - 1), (budget.sensitivity / sigma, epochs)]
            jobs.append({"delta": delta, "releases": releases})
            found.append({"adders": adders, "epochs": epochs, "stated": budget.spent_epsilon()})
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "jobs.json"
        file.write_text(json.dumps(jobs), encoding="utf-8")
        ran = subprocess.run([str(python), str(_SCRIPT), str(file)], capture_output=True, text=True, check=False)
    if ran.returncode:
        raise RuntimeError(f"dp_accounting failed: {ran.stderr[-800:]}")
    lines = map(json.loads, ran.stdout.splitlines())
    return [{**one, **told, "difference": told["PLD"] - one["stated"]} for one, told in zip(found, lines, strict=True)]
