"""ε of Gaussian releases by accountants of dp_accounting: privacy loss distributions, and Rényi. Prints a line of JSON
for each job.

Run by an interpreter that has it (see benchmarks/peers-dp-requirements.txt); imports nothing of this project:

    .venv-dp/bin/python benchmarks/peers/dp_epsilon.py JOBS.json

JOBS.json is a list of jobs, each {"delta": δ, "releases": [[μ, how often], …]}: a release with Gaussian noise has
μ = Δ/σ.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from dp_accounting import dp_event
from dp_accounting.pld import privacy_loss_distribution as pld
from dp_accounting.rdp import RdpAccountant

STEP = 1e-4
"""Privacy losses are multiples of this; the bound is from above."""


def convolve(releases, delta):
    """ε by composing the discretised privacy loss of each release, one by one."""
    whole = None
    for mu, times in releases:
        one = pld.from_gaussian_mechanism(1 / mu, value_discretization_interval=STEP).self_compose(times)
        whole = one if whole is None else whole.compose(one)
    return float(whole.get_epsilon_for_delta(delta))


def main():
    """Account for each job."""
    for job in json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")):
        moments = RdpAccountant()
        for mu, times in job["releases"]:
            moments.compose(dp_event.GaussianDpEvent(1 / mu), times)
        found = {"PLD": convolve(job["releases"], job["delta"]), "RDP": float(moments.get_epsilon(job["delta"]))}
        print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
