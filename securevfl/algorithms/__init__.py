"""The training algorithms, one file or folder for each paper.

An algorithm is a configuration and its two roles. The toolkit finds it by its entry point (group
``securevfl.algorithms`` in `pyproject.toml`), exactly as it finds an algorithm of another package: nothing in `run`,
`party` or the command line imports this package, and nothing here imports them. `field` contains published methods to
compare with.
"""

from securevfl.algorithms.baselines import AllLabels, Local, LogisticRegression, RandomMatch, ZeroImputation
from securevfl.algorithms.best import Best
from securevfl.algorithms.boosting import Boosting
from securevfl.algorithms.entity_augmentation import EntityAugmentation
from securevfl.algorithms.fedcvt import FedCVT
from securevfl.algorithms.fedda import FedDA
from securevfl.algorithms.field import (
    APCVFL,
    MFTL,
    SFHTL,
    Distilled,
    FedHSSL,
    FewShotVFL,
    PartyDropout,
    PlugVFL,
    SelfSupervised,
)
from securevfl.algorithms.laser import LaserVFL
from securevfl.algorithms.multivfl import MultiVFL
from securevfl.algorithms.residual import ResidualAtTheCut
from securevfl.algorithms.risa import RISA
from securevfl.algorithms.scorecard import Scorecard
from securevfl.algorithms.splitnn import SplitNN

__all__ = [
    "APCVFL",
    "MFTL",
    "RISA",
    "SFHTL",
    "AllLabels",
    "Best",
    "Boosting",
    "Distilled",
    "EntityAugmentation",
    "FedCVT",
    "FedDA",
    "FedHSSL",
    "FewShotVFL",
    "LaserVFL",
    "Local",
    "LogisticRegression",
    "MultiVFL",
    "PartyDropout",
    "PlugVFL",
    "RandomMatch",
    "ResidualAtTheCut",
    "Scorecard",
    "SelfSupervised",
    "SplitNN",
    "ZeroImputation",
]
