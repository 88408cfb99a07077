"""The program and the active party's role of `BestWithTrees`: they average trees and networks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np
import torch

from securevfl.algorithms.best_roles import (
    BestActive,
    BestProgram,
    MemberWeighting,
    method_of,
    scores_alone,
)
from securevfl.training.plan import FEWEST_TO_CHOOSE
from securevfl.training.pooling import average_probabilities, fit_stacking_weights, log_loss
from securevfl.training.rows import Trained

__all__ = ["TreesActive", "TreesProgram"]

_TREES = "boosted_residual"
_TOGETHER, _ALONE = "pool", "pool alone"
_OPINIONS = {_TOGETHER: ("best", "trees", "own trees"), _ALONE: ("best", "own trees")}
"""Members of each pool: for rows of all parties, and for rows that the partners lack."""
_PULL = 3.0
"""α of `fit_stacking_weights`: the pull towards equal weights, less than among networks, which differ less."""
_TINY = 1e-12


class TreesWeighting(MemberWeighting):
    """Averages the networks' average with the trees, at the active party.

    Attributes:
        opinions: pool → the probabilities of each opinion: for common rows that it was not trained on, and for the test
            rows; (n, classes) each.
    """

    opinions: Mapping[str, tuple[list[np.ndarray], list[np.ndarray]]] = {}

    def write_to(self, trained: Trained, epochs: int) -> dict[str, float]:
        """See `MemberWeighting.write_to`; the weights of the two pools stand beside those of the networks."""
        weights = super().write_to(trained, epochs)
        split, labels = self.table.split, self.y[self.table.split.test]
        rows, _ = self.unseen_probabilities(_TREES)
        unseen = {
            _TOGETHER: [self._average_unseen(weights), *(self._trees_unseen(alone=one) for one in (False, True))],
            _ALONE: [self._alone_unseen(), self._trees_unseen(alone=True)],
        }
        trees = self.of_method(_TREES)
        own = np.mean([one.alone_scores for one in trees], axis=0)
        tested = {
            _TOGETHER: [trained.scores, np.mean([one.scores for one in trees], axis=0), own],
            _ALONE: [trained.alone_scores, own],
        }
        self.opinions = {pool: (unseen[pool], tested[pool]) for pool in _OPINIONS}
        pools: dict[str, np.ndarray] = {}
        for pool, names in _OPINIONS.items():
            found = self.fit_pool(unseen[pool], rows)
            weights |= {f"{pool}: {name}": weight for name, weight in zip(names, found, strict=True)}
            pools[pool] = average_probabilities(unseen[pool], found) if len(rows) else np.empty((0, self.task.classes))
            self._describe_pool(trained, pool, unseen[pool], found, pools[pool], rows)
            scores = average_probabilities(tested[pool], found)
            metrics = self.task.compute_metrics(scores, labels)
            if pool == _TOGETHER:
                trained.scores, trained.test = scores, metrics
                trained.valid_scores = pools[pool][np.searchsorted(rows, split.valid)]
            else:
                trained.alone_scores, trained.alone = scores, metrics
        return weights

    def fit_pool(self, unseen: Sequence[np.ndarray], rows: np.ndarray) -> list[float]:
        """Weights of opinions, which sum to one; equal ones where too few rows choose.

        Args:
            unseen: probabilities of each opinion, of rows that it was not trained on, (n, classes).
            rows: numbers of these rows, (n,).
        """
        if not self.choosing_rows(rows):
            return [1 / len(unseen)] * len(unseen)
        found: list[float] = fit_stacking_weights(unseen, self.y[rows], pull=_PULL).tolist()
        return found

    def _average_unseen(self, weights: Mapping[str, float]) -> np.ndarray:
        methods = self.config.methods
        judged = [self.unseen_probabilities(name)[1] for name in methods]
        return average_probabilities(judged, [weights[name] for name in methods])

    def _trees_unseen(self, *, alone: bool) -> np.ndarray:
        return self.unseen_probabilities(_TREES, alone=alone)[1]

    def _alone_unseen(self) -> np.ndarray:
        fit = [name for name in self.config.methods if scores_alone(self.config, name)]
        found: np.ndarray = np.mean([self.unseen_probabilities(name, alone=True)[1] for name in fit], axis=0)
        return found

    def _describe_pool(
        self,
        trained: Trained,
        pool: str,
        unseen: list[np.ndarray],
        weights: list[float],
        pooled: np.ndarray,
        rows: np.ndarray,
    ) -> None:
        y = self.y[rows]
        parts = [
            f"{weight:.2f} {name} (log-loss {log_loss(p, y):.3g})" if len(rows) else f"{weight:.2f} {name}"
            for name, weight, p in zip(_OPINIONS[pool], weights, unseen, strict=True)
        ]
        where = "of all parties' rows" if pool == _TOGETHER else "of rows that the partners lack"
        why = (
            f"chosen on {len(rows):,} common rows that the scoring members had not trained on"
            if self.choosing_rows(rows)
            else f"equal: {len(rows):,} common rows are too few to choose by (at least {FEWEST_TO_CHOOSE} are needed)"
            if self.config.stack
            else "equal, as the job file sets them"
        )
        told = f"; averaged {log_loss(pooled, y):.3g}" if len(rows) else ""
        trained.notes.append(f"probabilities {where} are averaged with weights {why}: {', '.join(parts)}{told}")
        trained.extra |= {
            f"{pool}: weight of {name}": weight for name, weight in zip(_OPINIONS[pool], weights, strict=True)
        }


class TreesProgram(BestProgram):
    """Trains all members one after the other. The active party then pools them."""

    weighting: ClassVar[type[MemberWeighting]] = TreesWeighting


class TreesActive(BestActive):
    """Scores rows at the active party by the pool of its members."""

    async def score(self, rows: np.ndarray) -> torch.Tensor:
        members = self.active_members()
        of_member = {name: self.task.compute_probabilities(await role.score(rows)) for name, role in members.items()}
        networks = {name: self.weights[name] for name in self.config.methods}
        best = self._probabilities_of(of_member, networks)
        trees = self._probabilities_of(of_member, {_TREES: 1.0})
        return self._pool_opinions([best, trees, self._own_trees(rows)], _TOGETHER)

    def score_alone(self, rows: np.ndarray) -> torch.Tensor:
        """Logits of the pool of the own trees and the networks that are trained for rows of the active party alone."""
        best = self.task.compute_probabilities(super().score_alone(rows))
        return self._pool_opinions([best, self._own_trees(rows)], _ALONE)

    def _own_trees(self, rows: np.ndarray) -> np.ndarray:
        found = [
            self.task.compute_probabilities(role.score_alone(rows))
            for name, role in self.active_members().items()
            if method_of(name) == _TREES
        ]
        mean: np.ndarray = np.mean(found, axis=0)
        return mean

    def _probabilities_of(self, of_member: Mapping[str, np.ndarray], weights: Mapping[str, float]) -> np.ndarray:
        return self.task.compute_probabilities(self._mean_logits(of_member, weights))

    def _pool_opinions(self, opinions: list[np.ndarray], pool: str) -> torch.Tensor:
        weights = [self.weights[f"{pool}: {name}"] for name in _OPINIONS[pool]]
        mean = average_probabilities(opinions, weights)
        logs = torch.from_numpy(mean).clamp_min(_TINY).log().to(self.plan.device)
        return logs if self.task.classes > 2 else logs[:, 1:] - logs[:, :1]
