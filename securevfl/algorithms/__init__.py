"""The training algorithms. Adding one is one file here and one line in `ALGORITHMS`."""

from collections.abc import Mapping

from securevfl.algorithms.base import Algorithm, Plan, Table, Trained
from securevfl.algorithms.baselines import AllLabels, Local, LogisticRegression, RandomMatch, ZeroImputation
from securevfl.algorithms.entity_augmentation import EntityAugmentation
from securevfl.algorithms.fedcvt import FedCVT
from securevfl.algorithms.fedda import FedDA
from securevfl.algorithms.multivfl import MultiVFL
from securevfl.algorithms.risa import RISA
from securevfl.algorithms.split import Split
from securevfl.algorithms.splitnn import SplitNN
from securevfl.algorithms.ssl import SelfSupervised
from securevfl.algorithms.task import Task

ALGORITHMS: Mapping[str, type[Algorithm]] = {
    kind.name: kind
    for kind in (
        SplitNN,
        LogisticRegression,
        EntityAugmentation,
        FedCVT,
        FedDA,
        RISA,
        MultiVFL,
        Local,
        ZeroImputation,
        RandomMatch,
        AllLabels,
        SelfSupervised,
    )
}
"""Name in job files → configuration."""

__all__ = [
    "ALGORITHMS",
    "RISA",
    "Algorithm",
    "AllLabels",
    "EntityAugmentation",
    "FedCVT",
    "FedDA",
    "Local",
    "LogisticRegression",
    "MultiVFL",
    "Plan",
    "RandomMatch",
    "SelfSupervised",
    "Split",
    "SplitNN",
    "Table",
    "Task",
    "Trained",
    "ZeroImputation",
]
