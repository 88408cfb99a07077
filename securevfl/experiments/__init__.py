"""Run many jobs and compare them.

- `cells`: what runs, a table of cells. `pool`: where cells run. `study`: the result.
- `sweep`, `sweep_file`, `grid`: grids of data sets, methods, positions and seeds, or of settings over own tables.
- `cross_validation`: one job, once per fold. `search`: settings found by Optuna on validation rows.
- `comparison`: several jobs over the same parties, with `baselines`.
- `privacy_cost`: what trying several jobs costs in privacy. `differences`: which points differ by more than chance.
- `attacking`, `recorder`: attacks on a job from what each party saw.
- `estimators`, `aligned_rows`: scikit-learn's conventions. `demonstration`: the demo.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from securevfl.lazy import load_on_use

if TYPE_CHECKING:  # the same names for type checkers and editors
    from securevfl.experiments.attacking import AttackResult, attack, record_job
    from securevfl.experiments.baselines import BASELINES
    from securevfl.experiments.cells import Sweep
    from securevfl.experiments.comparison import compare, simulate
    from securevfl.experiments.cross_validation import cross_validate
    from securevfl.experiments.demonstration import demo
    from securevfl.experiments.study import Study
    from securevfl.experiments.sweep import run_sweep
    from securevfl.experiments.sweep_file import read_sweep

_NAMES = {
    "securevfl.experiments.attacking": "AttackResult attack record_job",
    "securevfl.experiments.baselines": "BASELINES",
    "securevfl.experiments.cells": "Sweep",
    "securevfl.experiments.comparison": "compare simulate",
    "securevfl.experiments.cross_validation": "cross_validate",
    "securevfl.experiments.demonstration": "demo",
    "securevfl.experiments.study": "Study",
    "securevfl.experiments.sweep": "run_sweep",
    "securevfl.experiments.sweep_file": "read_sweep",
}
"""Module → the names that it gives to this package, loaded when one of them is first used."""

__all__ = [
    "BASELINES",
    "AttackResult",
    "Study",
    "Sweep",
    "attack",
    "compare",
    "cross_validate",
    "demo",
    "read_sweep",
    "record_job",
    "run_sweep",
    "simulate",
]

if not TYPE_CHECKING:  # a type checker that saw this would take every name for a public one
    __getattr__ = load_on_use(__name__, _NAMES)
