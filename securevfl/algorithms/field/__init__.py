"""Published methods to compare with, measured on few data sets only.

They train, resume and are scored like every other algorithm, and have the same public names and job-file names. But
most of them have run on Handwritten with two views only (`docs/few-rows.md`), so their pages make no recommendation.

Each file follows one paper. It imports the training room and the shared parts of the algorithms (`splitnn`,
`subset_roles`, `attention`, `boosting`); no algorithm outside this folder imports it.
"""

from securevfl.algorithms.field.apc_vfl import APCVFL
from securevfl.algorithms.field.distilled import Distilled
from securevfl.algorithms.field.false_vfl import FalseVFL
from securevfl.algorithms.field.fedhssl import FedHSSL
from securevfl.algorithms.field.few_shot_vfl import FewShotVFL
from securevfl.algorithms.field.hybrid_tree import HybridTree
from securevfl.algorithms.field.mftl import MFTL
from securevfl.algorithms.field.party_dropout import PartyDropout
from securevfl.algorithms.field.plugvfl import PlugVFL
from securevfl.algorithms.field.self_supervised import SelfSupervised
from securevfl.algorithms.field.sfhtl import SFHTL

__all__ = [
    "APCVFL",
    "MFTL",
    "SFHTL",
    "Distilled",
    "FalseVFL",
    "FedHSSL",
    "FewShotVFL",
    "HybridTree",
    "PartyDropout",
    "PlugVFL",
    "SelfSupervised",
]
