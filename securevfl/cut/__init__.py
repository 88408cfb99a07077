"""The cut layer, plain and sealed: the one place where protection lives."""

from securevfl.cut.base import ActiveCut, CutSpec, PassiveCut
from securevfl.cut.masking import agree_masks
from securevfl.cut.protections import BFV, CKKS, PROTECTIONS, Auto, Paillier, Plain, Protection, Sealed

__all__ = [
    "BFV",
    "CKKS",
    "PROTECTIONS",
    "ActiveCut",
    "Auto",
    "CutSpec",
    "Paillier",
    "PassiveCut",
    "Plain",
    "Protection",
    "Sealed",
    "agree_masks",
]
