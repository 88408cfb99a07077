"""Training on shares: what the parties deal to the three that compute, the network that these train, its metrics, and
what is opened. It imports `cut`, `privacy`, `transport` and `site`; the programs around it are in `training`."""

from securevfl.shares.course import Course, Words, check_judged, check_sizes
from securevfl.shares.dp_steps import StepNoise, check_clipped, check_logits, clipped, gradient_bound, row_bounds
from securevfl.shares.handing import Block, Handing, blocks
from securevfl.shares.member import Member, input_words
from securevfl.shares.metrics import Scores, named
from securevfl.shares.network import Network
from securevfl.shares.shape import ERROR_BOUND, INPUT_BOUND, TARGET_BOUND, Layer, NetworkShape, Rule

__all__ = [
    "ERROR_BOUND",
    "INPUT_BOUND",
    "TARGET_BOUND",
    "Block",
    "Course",
    "Handing",
    "Layer",
    "Member",
    "Network",
    "NetworkShape",
    "Rule",
    "Scores",
    "StepNoise",
    "Words",
    "blocks",
    "check_clipped",
    "check_judged",
    "check_logits",
    "check_sizes",
    "clipped",
    "gradient_bound",
    "input_words",
    "named",
    "row_bounds",
]
