"""Run many jobs and compare them.

- `comparison`: several jobs over the same parties, with `baselines`. `cross_validation`: one job, once per fold.
- `sweep`, `sweep_file`: grids of data sets, methods, positions and seeds. `own_sweep`: grids of settings over
  own tables.
- `search`: settings found by Optuna on validation rows. `selection_cost`: what trying several jobs costs in privacy.
- `attacking`, `recorder`: attacks on a job from what each party saw.
- `estimators`, `aligned_rows`: scikit-learn's conventions. `demonstration`: the demo.
"""

from securevfl.experiments.attacking import AttackResult, attack, record_job
from securevfl.experiments.baselines import BASELINES
from securevfl.experiments.comparison import compare, simulate
from securevfl.experiments.cross_validation import CrossValidation, cross_validate
from securevfl.experiments.demonstration import demo
from securevfl.experiments.sweep import run_sweep
from securevfl.experiments.sweep_file import Sweep, read_sweep

__all__ = [
    "BASELINES",
    "AttackResult",
    "CrossValidation",
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
