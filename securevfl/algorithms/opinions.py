"""Opinions of subjective logic, and how RISA fuses them (arXiv 2501.06429, section II-D).

An opinion on K classes is a pair of beliefs b (…, K) and an uncertainty u (…), all from 0 to 1, with ``Σ_k b_k + u
= 1`` (equation 2).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch.nn import functional

from securevfl.errors import UnknownNameError

__all__ = ["EVIDENCE", "Opinion", "evidence", "fuse", "fuse_all", "opinion", "probabilities"]

Opinion = tuple[torch.Tensor, torch.Tensor]

EVIDENCE = ("exp", "relu", "softplus")
"""How outputs of a network become evidence, which is not negative. ReLU is the usual choice in the literature, and
loses the gradient where evidence is zero."""


def evidence(outputs: torch.Tensor, kind: str) -> torch.Tensor:
    """Evidence e ≥ 0 from the outputs of a network, both (…, K)."""
    if kind == "exp":
        return torch.exp(outputs.clamp(max=10.0))
    if kind == "softplus":
        return functional.softplus(outputs)
    if kind == "relu":
        return functional.relu(outputs)
    raise UnknownNameError("evidence function", kind, EVIDENCE)


def opinion(e: torch.Tensor) -> Opinion:
    """``b_k = e_k / S``, ``u = K / S`` with ``S = Σ(e_k + 1)``."""
    classes = e.shape[-1]
    strength = e.sum(dim=-1) + classes
    return e / strength.unsqueeze(-1), classes / strength


def fuse(one: Opinion, two: Opinion) -> Opinion:
    """The reduced rule of Yager (definition 1, equation 3): agreement strengthens, conflict becomes uncertainty.

    ``C = Σ_{i≠j} b_i¹ b_j² = (Σ b¹)(Σ b²) − Σ_k b_k¹ b_k²``. Commutative; not associative.
    """
    (b1, u1), (b2, u2) = one, two
    agree = b1 * b2
    b = agree + b1 * u2.unsqueeze(-1) + b2 * u1.unsqueeze(-1)
    conflict = b1.sum(dim=-1) * b2.sum(dim=-1) - agree.sum(dim=-1)
    return b, u1 * u2 + conflict


def fuse_all(opinions: Sequence[Opinion]) -> Opinion:
    """Equation 4: from the first to the last; another order gives another result."""
    whole = opinions[0]
    for other in opinions[1:]:
        whole = fuse(whole, other)
    return whole


def probabilities(whole: Opinion) -> torch.Tensor:
    """``p_k = α_k / S`` with ``S = K/u`` and ``α_k = b_k S + 1`` (equation 5), that is ``b_k + u/K``."""
    b, u = whole
    return b + u.unsqueeze(-1) / b.shape[-1]
