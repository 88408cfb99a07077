"""The residual at the cut, this toolkit's own method for few common rows.

The active party first trains a model on its own columns and all of its labelled rows. The parties then train a
correction of that model's logits together:

    logits(x) = log p_local(x_a) + top(a_a W_a + b + Σ_p a_p W_p),

The correction's last layer starts at zero, so training starts at the local model. The few common rows only have to
teach what the passive parties' columns add. Three properties make it work:

- *Out-of-fold offsets.* The local model was trained on the labels of the common rows. Its error on them is too small,
  and a correction of that error would learn nothing. So each common training row gets the log-probabilities of a model
  that was trained without its fold. All other rows (validation, test, prediction) get those of the model of all rows.
- *A linear join.* The passive parties' parts are summed at the cut and nowhere else, so the method runs under a sealed
  cut exactly like SplitNN.
- *No further messages.* The local models and the folds never leave the active party. Without passive parties, the
  method is the local model.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, ClassVar

import numpy as np
import torch
from msgspec import Meta
from torch import nn

from securevfl.algorithms.splitnn import Active, Passive, SplitNN
from securevfl.cut import Protection
from securevfl.errors import InputError
from securevfl.training.active_role import ActiveRole
from securevfl.training.algorithm import Subsets
from securevfl.training.bookkeeping import Bookkeeping
from securevfl.training.bottoms import Architecture
from securevfl.training.cut_noise import active_side
from securevfl.training.fits import Fits
from securevfl.training.halves import ActiveHalf, Networks
from securevfl.training.networks import build_active_block, build_bottom, build_mlp
from securevfl.training.parallel_networks import ParallelNetworks
from securevfl.training.passive_role import PassiveRole
from securevfl.training.plan import FEWEST_TO_CHOOSE
from securevfl.training.seeding import seed_torch
from securevfl.training.setting import Setting
from securevfl.training.split import epoch_batches, split_chunks
from securevfl.training.state import State, as_tensor

__all__ = ["ResidualAtTheCut"]

_FLOOR = 1e-4
"""Smallest probability of an offset. The correction can still repair a row on which the local model is confidently
wrong."""


class ResidualAtTheCut(SplitNN):
    """Configuration of the residual at the cut.

    Attributes:
        weight_decay: L2 penalty of the correction.
        cut_weight_decay: L2 penalty of the passive parties' blocks of the correction.
        local_weight_decay: L2 penalty of the local model.
        folds: number of parts of the common training rows; a local model trained without a part scores it.
        out_of_fold: False takes the offsets from the local model of all rows, which was trained on these rows' labels.
            For ablations.
        active_part: whether the correction also uses the active party's columns.
        zero_start: False starts the correction's last layer at random. For ablations.
    """

    name: ClassVar[str] = "residual"
    label: ClassVar[str] = "residual at the cut"
    fits: ClassVar[Fits] = Fits(dp={"joint", "stop"}, counts=True)
    uses_others: ClassVar[bool] = True
    subsets: ClassVar[Subsets] = "alone"
    not_on_shares: ClassVar[str] = (
        "Offsets of a network could be dealt as boosted_residual deals those of trees; that is not built. "
    )
    weight_decay: Annotated[float, Meta(ge=0, lt=1)] = 1e-3
    local_weight_decay: Annotated[float, Meta(ge=0, lt=1)] = 1e-4
    folds: Annotated[int, Meta(ge=2, le=20)] = 4
    out_of_fold: bool = True
    active_part: bool = True
    zero_start: bool = True

    @property
    def title(self) -> str:
        changed = {
            "offsets in sample": not self.out_of_fold,
            "passive part alone": not self.active_part,
            "random start": not self.zero_start,
        }
        words = [what for what, is_so in changed.items() if is_so]
        return self.label + (f" ({' and '.join(words)})" if words else "")

    def check_protection(self, protection: Protection) -> None:
        """See `Algorithm.check_protection`.

        Raises:
            InputError: the job asks for noise on gradients, which would not cover the labels in the local model.
        """
        super().check_protection(protection)
        if protection.dp is not None and protection.dp.gradient_noise is not None:
            raise InputError(
                f"{self.title} has no differential privacy on gradients: through the local model, a row's gradient "
                "depends on the labels of other rows, and the noise covers only its own. Use "
                "sv.DP(labels=sv.RandomisedResponse(…)) instead; the local model then learns from the same drawn labels"
            )

    def notes(self, protection: Protection) -> list[str]:
        found = super().notes(protection)
        if not self.out_of_fold:
            found += ["in-sample offsets: the correction learns from errors that are too small (for ablations only)"]
        return found

    def active(self, setting: Setting) -> ActiveRole:
        return _ResidualActive(self, setting)

    def passive(self, setting: Setting) -> PassiveRole:
        return Passive(self, setting)


class _Books(Bookkeeping):
    """The local model also learns from rows that are not aligned."""

    repeats_begin_epoch = True  # `remember` keeps what `begin_epoch` computes

    def rows_to_learn_from(self) -> np.ndarray:
        table = self.role.table
        return np.concatenate([table.split.train, table.rows_only_at(self.role.site.active)])


class _ResidualActive(Active):
    """Trains the local models, then this party's part of the correction."""

    bookkeeping = _Books
    config: ResidualAtTheCut

    def __init__(self, config: ResidualAtTheCut, setting: Setting) -> None:
        super().__init__(config, setting)
        self._asked = setting.plan  # the plan before a privacy budget shortened it: the local model spends none of it
        self._offsets: torch.Tensor | None = None  # of the training rows, in their order, (n, outputs)
        self._told = ""

    def build(self) -> None:
        config, network = self.config, self._local_network(self.seed("model"))
        self.local = Networks(network, config.lr, config.local_weight_decay, self.plan.device)
        self.parts["local"] = self.local
        super().build()

    def build_half(self, architecture: Architecture) -> ActiveHalf:
        spec, passive = self.config.cut_spec(self, architecture.hidden), len(self.site.passive)
        shape = self.features.row_shape if self.config.active_part else (0,)
        half = ActiveHalf(architecture, active_side(self, spec), spec, passive, shape, self.task.outputs)
        if self.config.zero_start:
            last = half.top[-1]  # type: ignore[index]
            nn.init.zeros_(last.weight)
            nn.init.zeros_(last.bias)
        return half

    # The local model.

    def _local_network(self, seed: int) -> nn.Module:
        """The network that `Local` trains with these settings."""
        config = self.config
        with seed_torch(seed):
            bottom, width = build_bottom(config.bottom, self.features.row_shape)
            own = build_active_block(width, config.hidden)
            top = build_mlp([config.hidden, *config.top, self.task.outputs])
        return nn.Sequential(bottom, own, nn.ReLU(), top).to(self.plan.device)

    def _train_local(self, rows: np.ndarray, epochs: int) -> None:
        """Train the local model on these rows, with the batches of a job of `Local`."""
        size = min(self.nominal_batch, len(rows))
        for epoch in range(1, epochs + 1):
            for batch in epoch_batches(rows, size, self._asked.steps, seed=self.site.seed, epoch=epoch):
                logits = self.label_noise.correct_logits(self.local.model(self.features(batch)))
                self.local.step(self.loss(logits, self.labels(batch)).sum() / size)

    def _local_logits(self, rows: np.ndarray) -> torch.Tensor:
        """The local model's logits of numbered rows, (n, outputs)."""
        with torch.no_grad():
            parts = [self.local.model(self.features(part)) for part in split_chunks(rows, self.plan.eval_rows)]
        return torch.cat(parts) if parts else torch.empty((0, self.task.outputs), device=self.plan.device)

    def _mean_loss(self, logits: torch.Tensor, rows: np.ndarray) -> float:
        """Mean loss of these rows, given their logits."""
        return float(self.loss(self.label_noise.correct_logits(logits), self.labels(rows)).mean())

    async def begin_epoch(self, epoch: int) -> bool:
        if self._offsets is None:
            self._fit_local_models()
        return False

    def _fit_local_models(self) -> None:
        """Train one local model without each fold, which gives the offsets and the number of epochs, then one on all
        rows."""
        train, others = self.table.split.train, self.table.rows_only_at(self.site.active)
        epochs, folds = self._asked.epochs, min(self.config.folds, len(train))
        if not self.config.out_of_fold or folds < 2:
            self._train_local(np.concatenate([train, others]), epochs)
            self._offsets = self._local_logits(train)
            self._told = f"in-sample offsets, loss {self._mean_loss(self._offsets, train):.4g}"
            return
        found = self._out_of_fold(train, others, epochs, folds)
        losses = [self._mean_loss(logits, train) for logits in found]
        best = int(np.argmin(losses)) if len(train) >= FEWEST_TO_CHOOSE else epochs - 1
        self._train_local(np.concatenate([train, others]), best + 1)
        self._offsets = found[best]
        self._told = (
            f"the local model learned from {len(train):,} common and {len(others):,} other rows for {best + 1} of "
            f"{epochs} epochs; its loss on the common ones is {losses[best]:.4g} out of fold, "
            f"{self._mean_loss(self._local_logits(train), train):.4g} in sample"
        )

    def _out_of_fold(self, train: np.ndarray, others: np.ndarray, epochs: int, folds: int) -> torch.Tensor:
        """Out-of-fold logits of the training rows after each epoch, (epochs, n, outputs)."""
        found = torch.empty((epochs, len(train), self.task.outputs), device=self.plan.device)
        fold = np.random.default_rng(self.seed("folds")).permutation(np.arange(len(train)) % folds)
        models = [self._local_network(self.seed("local", number)) for number in range(folds)]
        local = ParallelNetworks(models, self.config.lr, self.config.local_weight_decay)
        rows = [np.concatenate([train[fold != number], others]) for number in range(folds)]
        size = min(self.nominal_batch, *map(len, rows))
        for epoch in range(1, epochs + 1):
            each = (epoch_batches(own, size, self._asked.steps, seed=self.site.seed, epoch=epoch) for own in rows)
            for batches in zip(*each, strict=False):
                self._step_all(local, batches, size)
            for number in range(folds):
                out = fold == number
                for places in split_chunks(np.flatnonzero(out), self.plan.eval_rows):
                    found[epoch - 1, torch.from_numpy(places)] = local.evaluate_one(
                        number, self.features(train[places])
                    )
        return found

    def _step_all(self, local: ParallelNetworks, batches: Sequence[np.ndarray], size: int) -> None:
        """Take a step of each model on its own batch.

        The last batch of a pass is as long as the shortest fold's.
        """
        rows = np.stack([batch[: min(map(len, batches))] for batch in batches])
        flat = rows.reshape(-1)
        x = self.features(flat)
        logits = self.label_noise.correct_logits(local(x.reshape(*rows.shape, *x.shape[1:])).flatten(0, 1))
        local.step(self.loss(logits, self.labels(flat)).sum() / size)

    # The correction.

    def adjust_logits(self, logits: torch.Tensor, rows: np.ndarray, *, train: bool) -> torch.Tensor:
        local = self._out_of_fold_of(rows) if train else self.score_alone(rows)
        if not self.site.passive:
            return local
        return self._offsets_of(local) + logits

    def _offsets_of(self, logits: torch.Tensor) -> torch.Tensor:
        """Offsets from a local model's logits: log-probabilities, or the logit of the second of two classes.

        No probability is below the floor.
        """
        if self.task.outputs == 1:
            bound = math.log((1 - _FLOOR) / _FLOOR)
            return logits.clamp(-bound, bound)
        return torch.log_softmax(logits, dim=1).clamp_min(math.log(_FLOOR))

    def _out_of_fold_of(self, rows: np.ndarray) -> torch.Tensor:
        if self._offsets is None:
            raise ValueError("the correction trains before the local model is trained")
        place = np.full(self.table.aligned_count, -1)
        place[self.table.split.train] = np.arange(len(self.table.split.train))
        return self._offsets[torch.from_numpy(place[rows])]

    async def train_batch(self, rows: np.ndarray) -> float | torch.Tensor:
        if not self.site.passive:  # no correction without passive parties
            return self.loss(self._out_of_fold_of(rows), self.labels(rows)).sum()
        return await super().train_batch(rows)

    def score_alone(self, rows: np.ndarray) -> torch.Tensor:
        """The local model's logits of numbered rows, (n, outputs), without any message."""
        return self._local_logits(rows)

    def remember(self) -> State:
        return {"offsets": self._offsets, "told": self._told}

    def recall(self, memory: State) -> None:
        kept = memory["offsets"]
        self._offsets = None if kept is None else as_tensor(kept).to(self.plan.device)
        self._told = str(memory["told"])

    def closing_notes(self) -> list[str]:
        return [*super().closing_notes(), *([self._told] if self._told else [])]
