"""Training: what every algorithm is built from, without naming one.

- `algorithm`: the configuration that a job trains, and the registry of installed ones.
- `role`: the hooks of one party, which an algorithm's file overrides. `bookkeeping`: what programs ask beside them.
- `program`: epochs, validation and early stopping around a role. `checkpoints`: resuming.
- `rows`, `split`: numbered rows, batches. `noise`: what a role adds to what it releases.
- `halves`, `networks`, `frozen`, `task`: the two halves of a split network, their models, the metrics.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from securevfl.lazy import load_on_use

if TYPE_CHECKING:  # the same names for type checkers and editors
    from securevfl.training.active_program import ActiveProgram
    from securevfl.training.active_role import ActiveRole
    from securevfl.training.algorithm import Algorithm, ReleaseCounts, Subsets, find_algorithm, registered_algorithms
    from securevfl.training.auto_algorithm import AutoAlgorithm
    from securevfl.training.bookkeeping import Bookkeeping
    from securevfl.training.bottoms import Frozen
    from securevfl.training.fits import Fits
    from securevfl.training.frozen import frozen_activations, frozen_bottom
    from securevfl.training.passive_program import PassiveProgram
    from securevfl.training.passive_role import PassiveRole
    from securevfl.training.plan import FEWEST_TO_CHOOSE, Keep, Plan
    from securevfl.training.program import HelperProgram, Program
    from securevfl.training.rows import Epoch, NumberedRows, Trained
    from securevfl.training.setting import Setting
    from securevfl.training.split import Split
    from securevfl.training.task import Task

_NAMES = {
    "securevfl.training.active_program": "ActiveProgram",
    "securevfl.training.active_role": "ActiveRole",
    "securevfl.training.algorithm": "Algorithm ReleaseCounts Subsets find_algorithm registered_algorithms",
    "securevfl.training.auto_algorithm": "AutoAlgorithm",
    "securevfl.training.bookkeeping": "Bookkeeping",
    "securevfl.training.fits": "Fits",
    "securevfl.training.bottoms": "Frozen",
    "securevfl.training.frozen": "frozen_activations frozen_bottom",
    "securevfl.training.passive_program": "PassiveProgram",
    "securevfl.training.passive_role": "PassiveRole",
    "securevfl.training.program": "HelperProgram Program",
    "securevfl.training.plan": "FEWEST_TO_CHOOSE Keep Plan",
    "securevfl.training.rows": "Epoch NumberedRows Trained",
    "securevfl.training.setting": "Setting",
    "securevfl.training.split": "Split",
    "securevfl.training.task": "Task",
}
"""Module → the names that it gives to this package, loaded when one of them is first used."""

__all__ = [
    "FEWEST_TO_CHOOSE",
    "ActiveProgram",
    "ActiveRole",
    "Algorithm",
    "AutoAlgorithm",
    "Bookkeeping",
    "Epoch",
    "Fits",
    "Frozen",
    "HelperProgram",
    "Keep",
    "NumberedRows",
    "PassiveProgram",
    "PassiveRole",
    "Plan",
    "Program",
    "ReleaseCounts",
    "Setting",
    "Split",
    "Subsets",
    "Task",
    "Trained",
    "find_algorithm",
    "frozen_activations",
    "frozen_bottom",
    "registered_algorithms",
]

if not TYPE_CHECKING:  # a type checker that saw this would take every name for a public one
    __getattr__ = load_on_use(__name__, _NAMES)
