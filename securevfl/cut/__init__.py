"""The cut layer, plain and sealed: the one place where protections live. Training and algorithms may import it; it
imports privacy, transport and sites."""

from securevfl.cut.base import ActiveCut, CutSpec, CutUse, PassiveCut
from securevfl.cut.bounded import BoundedCut
from securevfl.cut.masking import agree_masks
from securevfl.cut.observed_cut import ObservedCut, WrappedCut
from securevfl.cut.opened_weights import HasShares, OpensWeights, read_share, share_bytes
from securevfl.cut.protections import (
    BFV,
    CKKS,
    Auto,
    KeyBits,
    Paillier,
    Plain,
    Protection,
    Sealed,
    Unnamed,
    find_protection,
    protections,
    sealing_protections,
)

__all__ = [
    "BFV",
    "CKKS",
    "ActiveCut",
    "Auto",
    "BoundedCut",
    "CutSpec",
    "CutUse",
    "HasShares",
    "KeyBits",
    "ObservedCut",
    "OpensWeights",
    "Paillier",
    "PassiveCut",
    "Plain",
    "Protection",
    "Sealed",
    "Unnamed",
    "WrappedCut",
    "agree_masks",
    "find_protection",
    "protections",
    "read_share",
    "sealing_protections",
    "share_bytes",
]
