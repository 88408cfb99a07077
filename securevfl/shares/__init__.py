"""Training on secret shares: three computing parties train the whole network on shares of every party's rows.

- `protection`: the protection that a job names. `exchanges`, `release_exchanges`: every message, declared.
- `programs`, `coordinator`: what each party runs. `sharing`: what they are made from.
- `network`, `epochs`, `metrics`, `dp_steps`, `model_release`: the computation on shares.
- `kept_targets`, `least_rows`, `usefulness`, `answers`: what the active party may ask.

It imports `training`, `cut`, `privacy` and `transport`. Jobs find it by its entry point; no room below it imports it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from securevfl.lazy import load_on_use

if TYPE_CHECKING:  # the same names for type checkers and editors
    from securevfl.shares.answers import RowAnswer
    from securevfl.shares.dp_steps import StepNoise, check_clipped, check_logits, clip_below, gradient_bound, row_bounds
    from securevfl.shares.epochs import SharedTraining, Words, check_sizes
    from securevfl.shares.kept_targets import check_targets
    from securevfl.shares.least_rows import FEWEST_JUDGED, LEAST_TRAINING, LEAST_VALIDATION
    from securevfl.shares.metrics import SharedMetrics, name_metrics
    from securevfl.shares.model_release import ModelRelease, WeightBlock, split_weights
    from securevfl.shares.network import Network
    from securevfl.shares.network_ranges import (
        ERROR_BOUND,
        INPUT_BOUND,
        TARGET_BOUND,
        Layer,
        NetworkShape,
        OptimiserConstants,
    )
    from securevfl.shares.protection import Shares
    from securevfl.shares.share_party import ShareParty, input_words
    from securevfl.shares.usefulness import Usefulness

_NAMES = {
    "securevfl.shares.dp_steps": "StepNoise check_clipped check_logits clip_below gradient_bound row_bounds",
    "securevfl.shares.answers": "RowAnswer",
    "securevfl.shares.epochs": "SharedTraining Words check_sizes",
    "securevfl.shares.kept_targets": "check_targets",
    "securevfl.shares.least_rows": "FEWEST_JUDGED LEAST_TRAINING LEAST_VALIDATION",
    "securevfl.shares.metrics": "SharedMetrics name_metrics",
    "securevfl.shares.model_release": "ModelRelease WeightBlock split_weights",
    "securevfl.shares.network": "Network",
    "securevfl.shares.network_ranges": "ERROR_BOUND INPUT_BOUND TARGET_BOUND Layer NetworkShape OptimiserConstants",
    "securevfl.shares.protection": "Shares",
    "securevfl.shares.share_party": "ShareParty input_words",
    "securevfl.shares.usefulness": "Usefulness",
}
"""Module → the names that it gives to this package, loaded when one of them is first used."""

__all__ = [
    "ERROR_BOUND",
    "FEWEST_JUDGED",
    "INPUT_BOUND",
    "LEAST_TRAINING",
    "LEAST_VALIDATION",
    "TARGET_BOUND",
    "Layer",
    "ModelRelease",
    "Network",
    "NetworkShape",
    "OptimiserConstants",
    "RowAnswer",
    "ShareParty",
    "SharedMetrics",
    "SharedTraining",
    "Shares",
    "StepNoise",
    "Usefulness",
    "WeightBlock",
    "Words",
    "check_clipped",
    "check_logits",
    "check_sizes",
    "check_targets",
    "clip_below",
    "gradient_bound",
    "input_words",
    "name_metrics",
    "row_bounds",
    "split_weights",
]

if not TYPE_CHECKING:  # a type checker that saw this would take every name for a public one
    __getattr__ = load_on_use(__name__, _NAMES)
