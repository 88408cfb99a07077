"""Opinions of subjective logic and their fusion in RISA (arXiv 2501.06429, section II-D).

An opinion on K classes is a pair of beliefs b (…, K) and an uncertainty u (…), all from 0 to 1, with
``Σ_k b_k + u = 1`` (equation 2).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal, get_args

import torch
from torch import nn
from torch.nn import functional

from securevfl.errors import UnknownNameError
from securevfl.privacy.loss import CrossEntropy
from securevfl.training.bottoms import Architecture
from securevfl.training.halves import ActiveHalf

__all__ = [
    "EVIDENCE",
    "Evidence",
    "EvidentialHalf",
    "Opinion",
    "OpinionLoss",
    "as_logits",
    "evidence_to_opinion",
    "fuse_all",
    "fuse_opinions",
    "opinion_to_probabilities",
    "outputs_to_evidence",
]

Opinion = tuple[torch.Tensor, torch.Tensor]
"""Beliefs b (…, K) and uncertainty u (…)."""

Evidence = Literal["exp", "relu", "softplus"]
"""Names of the functions from a network's outputs to evidence ≥ 0. ReLU is usual in the literature, but has no gradient
below zero."""

EVIDENCE: tuple[Evidence, ...] = get_args(Evidence)

_FUNCTIONS: Mapping[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "exp": lambda outputs: torch.exp(outputs.clamp(max=10.0)),
    "relu": functional.relu,
    "softplus": functional.softplus,
}


def outputs_to_evidence(outputs: torch.Tensor, kind: str) -> torch.Tensor:
    """Evidence e ≥ 0 from a network's outputs, both (…, K).

    Raises:
        UnknownNameError: `kind` is not in `EVIDENCE`.
    """
    if kind not in _FUNCTIONS:
        raise UnknownNameError("evidence function", kind, EVIDENCE)
    return _FUNCTIONS[kind](outputs)


def evidence_to_opinion(e: torch.Tensor) -> Opinion:
    """Opinion from evidence (…, K): ``b_k = e_k / S``, ``u = K / S`` with ``S = Σ(e_k + 1)``."""
    classes = e.shape[-1]
    strength = e.sum(dim=-1) + classes
    return e / strength.unsqueeze(-1), classes / strength


def fuse_opinions(one: Opinion, two: Opinion) -> Opinion:
    """Fuse two opinions by Yager's reduced rule (definition 1, equation 3): conflict becomes uncertainty.

    ``C = Σ_{i≠j} b_i¹ b_j² = (Σ b¹)(Σ b²) − Σ_k b_k¹ b_k²``. The rule is commutative, not associative.
    """
    (b1, u1), (b2, u2) = one, two
    agree = b1 * b2
    b = agree + b1 * u2.unsqueeze(-1) + b2 * u1.unsqueeze(-1)
    conflict = b1.sum(dim=-1) * b2.sum(dim=-1) - agree.sum(dim=-1)
    return b, u1 * u2 + conflict


def fuse_all(opinions: Sequence[Opinion]) -> Opinion:
    """Fuse opinions from the first to the last (equation 4). The order changes the result."""
    whole = opinions[0]
    for other in opinions[1:]:
        whole = fuse_opinions(whole, other)
    return whole


def opinion_to_probabilities(whole: Opinion) -> torch.Tensor:
    """Probabilities (…, K) of an opinion: ``p_k = α_k / S`` with ``S = K/u``, ``α_k = b_k S + 1`` (equation 5).

    This equals ``b_k + u/K``.
    """
    b, u = whole
    return b + u.unsqueeze(-1) / b.shape[-1]


def as_logits(whole: Opinion) -> torch.Tensor:
    """Logits of an opinion's probabilities: (…, K) for softmax, or (…, 1) for sigmoid with two classes.

    Their cross entropy is the loss of equation 6.
    """
    log = torch.log(opinion_to_probabilities(whole).clamp_min(1e-12))
    return log if log.shape[-1] > 2 else log[..., 1:] - log[..., :1]


class EvidentialHalf(ActiveHalf):
    """The active party's half of a network in which each party's part of the cut is a separate opinion.

    Attributes:
        kind: name of the evidence function in `EVIDENCE`.
        uncertainty: of the fused opinions of the last batch, (n,).
        opinions: each party's opinion of these rows as logits, (n, outputs) each.
    """

    kind: Evidence = "exp"
    uncertainty: torch.Tensor
    opinions: Sequence[torch.Tensor] = ()

    def build_top(self, architecture: Architecture, passive: int, outputs: int) -> nn.Module:
        """Build a bias for each passive party's evidence."""
        return nn.ParameterList([nn.Parameter(torch.zeros(architecture.hidden)) for _ in range(passive)])

    def join_parts(self, remote: torch.Tensor, own: torch.Tensor) -> torch.Tensor:
        """Logits of the fused opinion, (n, outputs). `remote` contains each passive party's part separately."""
        outputs = [own] + [part + bias for part, bias in zip(remote, self.top.parameters(), strict=True)]
        opinions = [evidence_to_opinion(outputs_to_evidence(output, self.kind)) for output in outputs]
        whole = fuse_all(opinions)
        self.uncertainty = whole[1].detach()
        self.opinions = [as_logits(single) for single in opinions]
        return as_logits(whole)

    def forward_alone(self, activations: torch.Tensor) -> torch.Tensor:
        """Logits of the active party's own opinion, (n, outputs), which fusing with vacuous opinions (u = 1) leaves
        unchanged."""
        with torch.no_grad():
            return as_logits(evidence_to_opinion(outputs_to_evidence(self.own(activations), self.kind)))


class OpinionLoss(CrossEntropy):
    """The cross entropy of the fused opinion (equation 6), plus that of each party's opinion.

    Its sensitivity is unknown, so it declares none.

    Args:
        classes: number of classes.
        weight: weight of the single parties' opinions.
        opinions: returns them as logits, (n, outputs) each; none where the parties' parts are added up.
    """

    def __init__(self, classes: int, weight: float, opinions: Callable[[], Sequence[torch.Tensor]]) -> None:
        super().__init__(classes)
        self._weight = weight
        self._opinions = opinions

    def __call__(self, logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        of_one, opinions = super().__call__, self._opinions()
        losses = of_one(logits, targets)
        if not opinions:
            return losses
        own = torch.stack([of_one(single, targets) for single in opinions])
        return losses + self._weight * own.sum(dim=0)
