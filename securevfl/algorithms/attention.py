"""Attention between the rows of two parties: estimates what a row lacks from rows that have it.

FedCVT completes representations with it (equations 5 and 6), few-shot VFL pools the parties' views with it.
"""

from __future__ import annotations

import torch

__all__ = ["apply_attention", "apply_polynomial_attention"]


def apply_attention(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, temperature: float, *, same: int = 0
) -> torch.Tensor:
    """Scaled dot-product attention ``softmax(QKᵀ / (T √d)) V``; (n, d), (m, d), (m, e) → (n, e).

    Args:
        query: one row for each estimate.
        key: the rows to compare the queries with.
        value: what to average, one row for each key.
        temperature: T.
        same: the first `same` queries and keys belong to the same rows, in this order. Such a row is not among the keys
            of its estimate.
    """
    scores = query @ key.T / (temperature * key.shape[1] ** 0.5)
    if same > 1:  # a single key would leave its query without any
        scores = scores.masked_fill(_mask_own_keys(scores, same), -torch.inf)
    return torch.softmax(scores, dim=1) @ value


def apply_polynomial_attention(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *, same: int = 0
) -> torch.Tensor:
    """Attention with a square instead of the exponential: ``s_ij = (q_i · k_j)² / d``, ``Σ_j s_ij v_j / Σ_j s_ij``.

    With ``φ(k) = k ⊗ k`` the sums are ``φ(q) · Σ_j φ(k_j) v_jᵀ``: polynomials of degree five in the two parties'
    values, followed by one division for each row. Arguments as for `apply_attention`.
    """
    scores = (query @ key.T).square() / key.shape[1]
    if same > 1:
        scores = scores.masked_fill(_mask_own_keys(scores, same), 0.0)
    return scores @ value / scores.sum(dim=1, keepdim=True).clamp_min(torch.finfo(scores.dtype).eps)


def _mask_own_keys(scores: torch.Tensor, same: int) -> torch.Tensor:
    """True where a query meets the key of its own row: the first `same` places of the diagonal, (n, m) bool."""
    own = torch.eye(*scores.shape, dtype=torch.bool, device=scores.device)
    own[same:] = False
    return own
