"""Training: what every algorithm is built from, without naming one.

- `algorithm`: the configuration that a job trains, and the registry of installed ones.
- `role`: the hooks of one party, which an algorithm's file overrides. `bookkeeping`: what programs ask beside them.
- `program`: epochs, validation and early stopping around a role. `checkpoints`: resuming.
- `rows`, `split`: numbered rows, batches. `noise`: what a role adds to what it releases.
- `halves`, `networks`, `frozen`, `task`: the two halves of a split network, their models, the metrics.
"""

from securevfl.training.active_program import ActiveProgram
from securevfl.training.active_role import ActiveRole
from securevfl.training.algorithm import Algorithm, ReleaseCounts, Subsets, find_algorithm, registered_algorithms
from securevfl.training.bookkeeping import Bookkeeping
from securevfl.training.fits import Fits
from securevfl.training.frozen import Frozen, frozen_activations, frozen_bottom
from securevfl.training.passive_program import PassiveProgram
from securevfl.training.passive_role import PassiveRole
from securevfl.training.program import HelperProgram, Program
from securevfl.training.rows import FEWEST_TO_CHOOSE, Epoch, Keep, NumberedRows, Plan, Trained
from securevfl.training.setting import Setting
from securevfl.training.split import Split
from securevfl.training.task import Task

__all__ = [
    "FEWEST_TO_CHOOSE",
    "ActiveProgram",
    "ActiveRole",
    "Algorithm",
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
