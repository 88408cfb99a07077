"""The cut layer, plain and sealed: the one place where protections live. Training and algorithms may import it; it
imports privacy, transport and sites."""

from __future__ import annotations

from typing import TYPE_CHECKING

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
from securevfl.lazy import load_on_use

if TYPE_CHECKING:  # the same names for type checkers and editors
    from securevfl.cut.base import ActiveCut, PassiveCut
    from securevfl.cut.bounded import BoundedCut
    from securevfl.cut.masking import agree_masks
    from securevfl.cut.observed_cut import ObservedCut, WrappedCut
    from securevfl.cut.opened_weights import HasShares, OpensWeights, read_share, share_bytes
    from securevfl.cut.spec import CutSpec, CutUse

_NAMES = {
    "securevfl.cut.base": "ActiveCut PassiveCut",
    "securevfl.cut.bounded": "BoundedCut",
    "securevfl.cut.masking": "agree_masks",
    "securevfl.cut.observed_cut": "ObservedCut WrappedCut",
    "securevfl.cut.opened_weights": "HasShares OpensWeights read_share share_bytes",
    "securevfl.cut.spec": "CutSpec CutUse",
}
"""Module → the names that it gives to this package, loaded when one of them is first used."""

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

if not TYPE_CHECKING:  # a type checker that saw this would take every name for a public one
    __getattr__ = load_on_use(__name__, _NAMES)
