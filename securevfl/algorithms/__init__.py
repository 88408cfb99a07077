"""The training algorithms. Adding one is one file here and one line in `ALGORITHMS`."""

from collections.abc import Mapping

from securevfl.algorithms.base import Plan, Table, Trained
from securevfl.algorithms.split import Split
from securevfl.algorithms.splitnn import SplitNN
from securevfl.algorithms.task import Task

ALGORITHMS: Mapping[str, type[SplitNN]] = {"splitnn": SplitNN}
"""Name in job files → configuration."""

__all__ = ["ALGORITHMS", "Plan", "Split", "SplitNN", "Table", "Task", "Trained"]
