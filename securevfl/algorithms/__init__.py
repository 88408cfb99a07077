"""The training algorithms, one file or folder for each paper.

An algorithm is a configuration and its two roles. The toolkit finds it by its entry point (group
``securevfl.algorithms`` in `pyproject.toml`), exactly as it finds an algorithm of another package: nothing in `run`,
`party` or the command line imports this package, and nothing here imports them. `field` contains published methods to
compare with.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from securevfl.lazy import load_on_use

if TYPE_CHECKING:  # the same names for type checkers and editors
    from securevfl.algorithms.additive import Additive
    from securevfl.algorithms.automatic import AutoAlgorithm
    from securevfl.algorithms.baselines import AllLabels, Local, LogisticRegression, RandomMatch, ZeroImputation
    from securevfl.algorithms.best import Best
    from securevfl.algorithms.best_with_trees import BestWithTrees
    from securevfl.algorithms.boosting import BoostedResidual, Boosting
    from securevfl.algorithms.entity_augmentation import EntityAugmentation
    from securevfl.algorithms.fedcvt import FedCVT
    from securevfl.algorithms.fedda import FedDA
    from securevfl.algorithms.field import (
        APCVFL,
        MFTL,
        SFHTL,
        Distilled,
        FalseVFL,
        FedHSSL,
        FewShotVFL,
        HybridTree,
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
    from securevfl.algorithms.statistics import Statistics

_NAMES = {
    "securevfl.algorithms.additive": "Additive",
    "securevfl.algorithms.automatic": "AutoAlgorithm",
    "securevfl.algorithms.baselines": "AllLabels Local LogisticRegression RandomMatch ZeroImputation",
    "securevfl.algorithms.best": "Best",
    "securevfl.algorithms.best_with_trees": "BestWithTrees",
    "securevfl.algorithms.boosting": "BoostedResidual Boosting",
    "securevfl.algorithms.entity_augmentation": "EntityAugmentation",
    "securevfl.algorithms.fedcvt": "FedCVT",
    "securevfl.algorithms.fedda": "FedDA",
    "securevfl.algorithms.field": (
        "APCVFL MFTL SFHTL Distilled FalseVFL FedHSSL FewShotVFL HybridTree PartyDropout PlugVFL SelfSupervised"
    ),
    "securevfl.algorithms.laser": "LaserVFL",
    "securevfl.algorithms.multivfl": "MultiVFL",
    "securevfl.algorithms.residual": "ResidualAtTheCut",
    "securevfl.algorithms.risa": "RISA",
    "securevfl.algorithms.scorecard": "Scorecard",
    "securevfl.algorithms.splitnn": "SplitNN",
    "securevfl.algorithms.statistics": "Statistics",
}
"""Module → the names that it gives to this package, loaded when one of them is first used."""

__all__ = [
    "APCVFL",
    "MFTL",
    "RISA",
    "SFHTL",
    "Additive",
    "AllLabels",
    "AutoAlgorithm",
    "Best",
    "BestWithTrees",
    "BoostedResidual",
    "Boosting",
    "Distilled",
    "EntityAugmentation",
    "FalseVFL",
    "FedCVT",
    "FedDA",
    "FedHSSL",
    "FewShotVFL",
    "HybridTree",
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
    "Statistics",
    "ZeroImputation",
]

if not TYPE_CHECKING:  # a type checker that saw this would take every name for a public one
    __getattr__ = load_on_use(__name__, _NAMES)
