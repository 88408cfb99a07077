"""Membership inference: was a row used in training? From the final model's predictions, without shadow models.

Training rows have smaller losses (Yeom et al., "Privacy risk in machine learning", CSF 2018, section 3: the loss
threshold), and the modified entropy also accounts for confident wrong predictions (Song and Mittal, "Systematic
evaluation of privacy risks of machine learning models", USENIX Security 2021, equation 9). The attacker is anyone who
gets predictions and has the label; the parties already know which rows they trained on.
"""

from __future__ import annotations

import numpy as np

from securevfl.attacks.measure import Estimate

__all__ = ["error_threshold", "loss_threshold", "modified_entropy"]


def loss_threshold(rows: np.ndarray, scores: np.ndarray, labels: np.ndarray) -> Estimate:
    """Score rows by loss: the smaller, the likelier a member.

    Args:
        rows: numbers, (n,).
        scores: the model's class probabilities, (n, classes).
        labels: their classes, (n,).
    """
    own = scores[np.arange(len(rows)), labels]
    return Estimate(rows, np.log(np.clip(own, 1e-12, 1.0)))


def error_threshold(rows: np.ndarray, scores: np.ndarray, numbers: np.ndarray) -> Estimate:
    """Score rows by error, the smaller the likelier a member: `loss_threshold` for a numeric target.

    Args:
        rows: numbers of rows, (n,).
        scores: the model's predictions, (n, 1).
        numbers: their targets, (n,).
    """
    return Estimate(rows, -np.abs(scores[:, 0] - numbers))


def modified_entropy(rows: np.ndarray, scores: np.ndarray, labels: np.ndarray) -> Estimate:
    """Score rows by ``−(1 − p_y) log p_y − Σ_{i≠y} p_i log(1 − p_i)``: the smaller, the likelier a member; see
    `loss_threshold`.
    """
    p = np.clip(scores, 1e-12, 1 - 1e-12)
    at = np.arange(len(rows))
    own = p[at, labels]
    others = p * np.log(1 - p)
    others[at, labels] = 0.0
    return Estimate(rows, (1 - own) * np.log(own) + others.sum(axis=1))
