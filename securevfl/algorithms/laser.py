"""LASER-VFL: one predictor for every subset of the parties (Valdeira et al., ICLR 2025, arXiv 2410.22564).

The predictors share their networks. Party k has a representation ``f_k``, whose last linear layer is the cut, and a
head ``g_k``. For a subset S of the parties, ``z_S`` is the mean of ``f_k(x_k)`` over k in S, and the head of each k in
S predicts from it. A row that the parties O have trains every predictor that it can,
``Σ_{∅≠S⊆O} 1/|S| Σ_{k∈S} ℓ(g_k(z_S), y)``, or an unbiased estimate of that sum by sampled subsets.

Here one party has the labels, so the active party trains all heads. A row that only the active party has trains its
head on its own representation. For each aligned row, one set P of passive parties is drawn. The cut opens
``Σ_{p∈P} f_p(x_p)``, which is enough for the subsets {a}, P and P ∪ {a}; the last two are weighted by one over the
probability of P. With one passive party these are all subsets, and the sum is exact. By default P is all passive
parties, so that no single party's part can be derived from the sums (see `masks`). The gradient sent back is that of
the sum, which scales it by 1/|S|.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import torch
from torch import nn

from securevfl.algorithms.subset_roles import OnSubsets, SubsetActive, SubsetPassive
from securevfl.cut import CutSpec
from securevfl.privacy.loss import CrossEntropy, Loss
from securevfl.training.active_role import ActiveRole
from securevfl.training.bottoms import Architecture
from securevfl.training.cut_noise import active_side
from securevfl.training.fits import Fits
from securevfl.training.networks import build_mlp
from securevfl.training.passive_role import PassiveRole
from securevfl.training.setting import Setting
from securevfl.training.state import as_dict, as_list, as_pair
from securevfl.training.subsets import Draw, SubsetHalf, one_of_a_random_size, times_unlikely

__all__ = ["LaserHalf", "LaserLoss", "LaserVFL", "term_weights"]


class LaserVFL(OnSubsets):
    """Configuration of LASER-VFL.

    Attributes:
        linear: whether each head is one linear layer; False for a ReLU, hidden layers of `top`'s widths, a linear one.
        top: widths of a head's hidden layers, if it is not linear.
        passive_heads: whether each passive party also has a head. It predicts rows in which that party takes part, and
            only trains that party's representation; it takes no part in scoring.
        normalise: whether every row has the same weight. False: a row of n parties weighs 2^n − 1 times as much as one
            of the active party alone, as in the paper's sum.
        masks: see `OnSubsets`. ``"together"`` leaves {a}, P and P ∪ {a} with P = all passive parties.
    """

    name: ClassVar[str] = "laser"
    label: ClassVar[str] = "LASER-VFL"
    fits: ClassVar[Fits] = Fits(dp={"joint", "stop"}, counts=True, goes_on=True)
    not_on_shares: ClassVar[str] = (
        "Its loss weighs several heads of each row by the set of parties that have it, and the network on shares has "
        "one head and takes all parties' inputs. "
    )
    linear: bool = True
    passive_heads: bool = True
    normalise: bool = False

    def subset_draw(self) -> Draw:
        return one_of_a_random_size

    def cut_spec(self, role: ActiveRole | PassiveRole, width: int) -> CutSpec:
        """As for SplitNN, with a gradient range enlarged by the largest weight of a row."""
        spec = super().cut_spec(role, width)
        # As for all parties of the job: integers of a checkpoint keep their scale after one has left.
        heaviest = max(1.0, float(self.weights_by_size(len(role.site.everyone)).sum(dim=1).max()))
        return replace(spec, gradient_bound=spec.gradient_bound * heaviest)

    def weights_by_size(self, passive: int) -> torch.Tensor:
        """`term_weights` of one row, for 0, 1, … passive parties that take part, (passive + 1, terms)."""
        present = torch.ones((passive + 1, passive)).tril(diagonal=-1).bool()
        return self.weigh_terms(present)

    def weigh_terms(self, present: torch.Tensor) -> torch.Tensor:
        """See `term_weights`."""
        together = self.masks == "together"
        return term_weights(present, passive_heads=self.passive_heads, normalise=self.normalise, sampled=not together)

    def active(self, setting: Setting) -> ActiveRole:
        return _Active(self, setting)

    def passive(self, setting: Setting) -> PassiveRole:
        return _Passive(self, setting)


def term_weights(present: torch.Tensor, *, passive_heads: bool, normalise: bool, sampled: bool = True) -> torch.Tensor:
    """Weights of the terms in each row's loss, (n, 2 + 2m).

    P is the set of passive parties (of m) that take part in the row. The terms, in order: the active party's head on
    {a}; the same head on P ∪ {a}; each passive party's head on P ∪ {a}; each passive party's head on P. Terms of heads
    outside the subset get weight zero.

    Args:
        present: P of each row, (n, m).
        passive_heads: see `LaserVFL`.
        normalise: see `LaserVFL`.
        sampled: whether P comes from `one_of_a_random_size`. False: P is all passive parties or none.
    """
    passive = present.shape[1]
    size = present.sum(dim=1, keepdim=True)
    drawn = [0.0, *(times_unlikely(passive, k) if sampled else 1.0 for k in range(1, passive + 1))]
    unlikely = torch.tensor(drawn, device=present.device)[size]
    with_own, without = unlikely / (size + 1), unlikely / size.clamp_min(1)
    theirs = [present * each * float(passive_heads) for each in (with_own, without)]
    found = torch.cat([torch.ones_like(with_own), with_own, *theirs], dim=1)
    if not normalise:
        return found
    subsets = 2 ** (passive + 1) - 1 if sampled else 3
    if passive_heads:
        whole = float(subsets)  # Σ_S 1
    elif sampled:
        whole = subsets / (passive + 1)  # Σ_{S∋a} 1/|S|
    else:
        whole = 1 + 1 / (passive + 1)
    return torch.where(size > 0, found / whole, found)


class LaserLoss(CrossEntropy):
    """The weighted sum of a row's cross entropies, one for each term; the plain cross entropy for logits without terms.

    Changing a label moves each term's gradient as far as that of a cross entropy, times the term's weight. It moves the
    gradient of all terms together that far times the norm of the weights, which is the sensitivity.

    Args:
        classes: number of classes.
        longest: the largest norm of one row's weights.

    Attributes:
        weights: the weights of the batch's rows, (n, terms).
    """

    def __init__(self, classes: int, longest: float) -> None:
        super().__init__(classes)
        self._longest = longest
        self.weights = torch.ones((0, 1))

    def __call__(self, logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        outputs = 1 if self.classes == 2 else self.classes
        terms = logits.shape[1] // outputs
        if terms == 1:
            return super().__call__(logits, targets)
        each = super().__call__(logits.reshape(-1, outputs), targets.repeat_interleave(terms, dim=0))
        return (each.reshape(-1, terms) * self.weights).sum(dim=1)

    @property
    def sensitivity(self) -> float | None:
        of_one = 1.0 if self.classes == 2 else math.sqrt(2.0)
        return of_one * max(1.0, self._longest)


class LaserHeads(nn.Module):
    """The networks above the cut: the active party's head, and for each passive party a head and the bias of its
    representation.

    Args:
        passive: names of the passive parties.
        width: h.
        head: builds a head.
    """

    def __init__(self, passive: Sequence[str], width: int, head: Callable[[], nn.Module]) -> None:
        super().__init__()
        keys = [name.encode().hex() for name in passive]  # a module's name has no dots
        self.own = head()
        self.passive = nn.ModuleDict({key: head() for key in keys})
        self.bias = nn.ParameterDict({key: nn.Parameter(torch.zeros(width)) for key in keys})

    @property
    def passive_biases(self) -> torch.Tensor:
        """Biases of the passive parties' representations, (parties, h)."""
        return torch.stack(list(self.bias.values()))


class LaserHalf(SubsetHalf):
    """The active party's half: its bottom, its block of the cut, and all heads."""

    top: LaserHeads

    def build_top(self, architecture: Architecture, passive: int, outputs: int) -> LaserHeads:
        """Build the heads and the biases."""
        hidden, widths = architecture.hidden, architecture.top

        def build_head() -> nn.Module:
            if widths is None:
                return nn.Linear(hidden, outputs)
            return nn.Sequential(nn.ReLU(), build_mlp([hidden, *widths, outputs]))

        return LaserHeads(self.passive, hidden, build_head)

    def join_parts(self, remote: torch.Tensor, own: torch.Tensor) -> torch.Tensor:
        """Logits (n, outputs) of the active party's head for rows with all parties."""
        z = remote + own
        if self.passive:
            z = (z + self.top.passive_biases.sum(dim=0)) / (1 + len(self.passive))
        out: torch.Tensor = self.top.own(z)
        return out

    def join_present(self, remote: torch.Tensor, own: torch.Tensor, present: torch.Tensor) -> torch.Tensor:
        """Logits of all terms, (n, terms · outputs), in the order of `term_weights`."""
        size = present.sum(dim=1, keepdim=True)
        theirs = remote + present.to(own.dtype) @ self.top.passive_biases if self.passive else remote
        together = (own + theirs) / (1 + size)
        apart = theirs / size.clamp_min(1)
        heads = self.top.passive.values()
        terms = [self.top.own(own), self.top.own(together)]
        terms += [head(together) for head in heads] + [head(apart) for head in heads]
        return torch.cat(terms, dim=1)

    def forward_alone(self, activations: torch.Tensor) -> torch.Tensor:
        """Logits (n, outputs) of the active party's head on its own representation."""
        out: torch.Tensor = self.top.own(self.own(activations))
        return out

    def restore(self, state: object) -> None:
        """See `Part.restore`. Skips heads and biases of passive parties that are no longer in the job."""
        weights, cut = as_pair(state)
        if isinstance(weights, Mapping):
            here = self.model.state_dict()
            weights = {name: value for name, value in weights.items() if name in here}
        super().restore((weights, cut))

    def load_state(self, state: Mapping[str, object]) -> None:
        """Resume from `state`, without the optimiser's moments of heads and biases of parties that left."""
        weights, optimizer = as_dict(state["weights"]), as_dict(state["optimizer"])
        here = self.model.state_dict()
        places = [place for place, name in enumerate(weights) if name in here]
        moments: dict[Any, object] = dict(as_dict(optimizer["state"]))
        kept = {new: moments[old] for new, old in enumerate(places) if old in moments}
        groups = [{**group, "params": list(range(len(places)))} for group in as_list(optimizer["param_groups"])]
        super().load_state({**state, "optimizer": {**optimizer, "state": kept, "param_groups": groups}})


class _Active(SubsetActive[LaserVFL]):
    """Trains all heads, on every subset that the opened sums allow."""

    config: LaserVFL
    half: LaserHalf

    def build_half(self, architecture: Architecture) -> LaserHalf:
        config = self.config
        architecture = replace(architecture, top=None if config.linear else config.top)
        spec = config.cut_spec(self, architecture.hidden)
        cut, passive = active_side(self, spec), self.site.passive
        return LaserHalf(architecture, cut, spec, passive, self.features.row_shape, self.task.outputs)

    def build_loss(self) -> Loss:
        weights = self.config.weights_by_size(len(self.site.passive))
        self.terms = LaserLoss(self.task.classes, float(weights.norm(dim=1).max()))
        return self.terms

    def set_present(self, present: np.ndarray) -> None:
        self.terms.weights = self.config.weigh_terms(torch.from_numpy(present).to(self.y.device))

    def correct_logits(self, logits: torch.Tensor) -> torch.Tensor:
        """Corrects the logits of each term separately; see `LabelNoise.correct_logits`."""
        return super().correct_logits(logits.reshape(-1, self.task.outputs)).reshape(logits.shape)


class _Passive(SubsetPassive[LaserVFL]):
    """Feeds its representation for the rows in which it takes part."""

    config: LaserVFL
