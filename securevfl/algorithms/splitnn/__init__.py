"""SplitNN: vertical federated learning on the aligned rows (Ceballos et al. 2020, arXiv 2008.04137).

Every party has a bottom model from its features to its activations. The cut layer joins the activations,
``z = Σ_p a_p W_p + b``, and the active party's top model turns z into logits. With ``bottom=()`` the bottoms are the
identity, the cut is the model's first layer, and passive parties receive no gradients of their activations.

Other algorithms derive from `SplitNN`, and from its roles `Active` and `Passive`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from securevfl.algorithms.splitnn.config import SplitNN
from securevfl.algorithms.splitnn.settings import Rate, Width
from securevfl.lazy import load_on_use

if TYPE_CHECKING:  # the same names for type checkers and editors
    from securevfl.algorithms.splitnn.roles import Active, Passive

_NAMES = {"securevfl.algorithms.splitnn.roles": "Active Passive"}
"""Module → the names that it gives to this package, loaded when one of them is first used."""

__all__ = ["Active", "Passive", "Rate", "SplitNN", "Width"]

if not TYPE_CHECKING:  # a type checker that saw this would take every name for a public one
    __getattr__ = load_on_use(__name__, _NAMES)
