"""The training algorithms: one file for each paper, `few_shot_vfl/`, `multivfl/` and `scorecard/` are folders.

Each is a configuration and its roles, and is found by its entry point (group ``securevfl.algorithms`` in
`pyproject.toml`), as an algorithm of another package is. These files import `training` and what is below; nothing in
`party`, `jobs`, `report` or the command line imports them.
"""

from securevfl.algorithms.apc_vfl import APCVFL
from securevfl.algorithms.baselines import AllLabels, Local, LogisticRegression, RandomMatch, ZeroImputation
from securevfl.algorithms.best import Best
from securevfl.algorithms.boosting import Boosting
from securevfl.algorithms.distilled import Distilled
from securevfl.algorithms.entity_augmentation import EntityAugmentation
from securevfl.algorithms.fedcvt import FedCVT
from securevfl.algorithms.fedda import FedDA
from securevfl.algorithms.fedhssl import FedHSSL
from securevfl.algorithms.few_shot_vfl import FewShotVFL
from securevfl.algorithms.laser import LaserVFL
from securevfl.algorithms.mftl import MFTL
from securevfl.algorithms.multivfl import MultiVFL
from securevfl.algorithms.party_dropout import PartyDropout
from securevfl.algorithms.plugvfl import PlugVFL
from securevfl.algorithms.residual import ResidualAtTheCut
from securevfl.algorithms.risa import RISA
from securevfl.algorithms.scorecard import Scorecard
from securevfl.algorithms.sfhtl import SFHTL
from securevfl.algorithms.splitnn import SplitNN
from securevfl.algorithms.ssl import SelfSupervised

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
