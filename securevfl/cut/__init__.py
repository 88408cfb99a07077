"""The cut layer, plain and sealed: the one place where protection lives."""

from securevfl.cut.base import ActiveCut, CutSpec, PassiveCut
from securevfl.cut.masking import agree_masks
from securevfl.cut.protections import PROTECTIONS, Paillier, Plain, Protection

__all__ = ["PROTECTIONS", "ActiveCut", "CutSpec", "Paillier", "PassiveCut", "Plain", "Protection", "agree_masks"]
