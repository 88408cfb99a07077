"""A passive party of few-shot VFL: a client without labels."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from securevfl.algorithms.field.few_shot_vfl.fixmatch import (
    augment_strongly,
    augment_weakly,
    cluster_directions,
    fixmatch_loss,
)
from securevfl.algorithms.field.few_shot_vfl.shots import FewShotRole
from securevfl.party_context import derive_seed
from securevfl.privacy import Noised, map_noised
from securevfl.training.networks import build_active_block, build_bottom
from securevfl.training.noise import FeatureNoise
from securevfl.training.passive_role import PassiveRole
from securevfl.training.received_tensors import checked_rows, read_tensor
from securevfl.training.seeding import seed_torch
from securevfl.training.state import State, as_flag, as_int, as_rows, kept_rows
from securevfl.transport import Kind

__all__ = ["FewShotClient"]


class FewShotClient(FewShotRole, PassiveRole):
    """A client without labels: uploads, groups its rows by their gradients, and trains locally.

    Attributes:
        sure: number of its other rows on which its last model is confident.
    """

    sure = 0

    def build(self) -> None:
        self.noise = FeatureNoise(self)
        with seed_torch(self.seed("model")):
            self.bottom, self.width = build_bottom(self.config.bottom, self.features.row_shape)
            self.bottom.to(self.plan.device)
        self.own = self.new_networks(self.bottom)
        self.parts["own"] = self.own
        if self.site.observer.listening:
            self.site.observer.network_built(self.site.name, self.site.active, self.bottom)

    async def setup(self) -> None:
        await super().setup()
        await self.upstream.send(Kind.CONTROL, "few_shot_vfl/width", meta={"width": self.width})

    async def begin_epoch(self, epoch: int) -> bool:
        if epoch == 1:
            await self.run_rounds()
        return False

    async def run_rounds(self) -> None:
        """Run all rounds, from the first to the last upload."""
        labelled = np.arange(0)
        await self.upload_representations(1, labelled)
        await self.train_on_gradients(1, labelled)
        await self.upload_representations(2, labelled)
        if self.config.few_shot:
            labelled = await self.receive_rows()
            await self.train_on_gradients(2, labelled)
            await self.upload_representations(3, labelled)
        self.met = True

    async def receive_rows(self) -> np.ndarray:
        """Receive which rows the classifier trains on: of this party's other rows, those that the active party
        labelled."""
        message = await self.upstream.receive(Kind.CONTROL, "few_shot_vfl/rows", "rows")
        self.chosen = checked_rows(message.arrays["rows"], self.table.total_count, self.upstream.peer)
        return self.chosen[np.isin(self.chosen, self.table.rows_only_at(self.site.name))]

    async def train_on_gradients(self, shot: int, labelled: np.ndarray) -> None:
        """Receive the gradient of each training row, group the rows by it, and train on the groups."""
        rows = np.concatenate([self.table.split.train, labelled])
        message = await self.upstream.receive(Kind.GRADIENT, "few_shot_vfl/gradient", "gradient")
        array = message.arrays["gradient"]
        gradient = read_tensor(array, (len(rows), self.width), self.upstream.peer, self.plan.device)
        if self.site.observer.listening:
            self.site.observer.values_opened(self.site.name, self.site.active, "gradient", gradient, train=True)
        seed = derive_seed(self.site.seed, "groups", self.site.name, shot)
        self.train_on_groups(rows, cluster_directions(gradient, self.table.classes, seed), shot)

    def train_on_groups(self, rows: np.ndarray, groups: torch.Tensor, shot: int) -> None:
        """Train the bottom by FixMatch: on these rows with their groups, on the others without."""
        config, table = self.config, self.table
        others = np.setdiff1d(table.rows_only_at(self.site.name), rows)
        mean = self.features(np.concatenate([table.split.train, table.rows_only_at(self.site.name)])).mean(
            dim=0, keepdim=True
        )
        generator = np.random.default_rng(self.seed("batches", shot))
        with seed_torch(self.seed("learn", shot)):
            model = nn.Sequential(self.bottom, build_active_block(self.width, table.classes)).to(self.plan.device)
            networks = self.new_networks(model)
            for _ in range(config.local_steps):
                some = generator.choice(len(rows), min(self.nominal_batch, len(rows)), replace=False)
                x = augment_weakly(self.features(rows[some]), mean, config.masked)
                more = self.features(generator.choice(others, min(self.nominal_batch, len(others)), replace=False))
                twins = (
                    augment_weakly(more, mean, config.masked),
                    augment_strongly(more, mean, config.masked, config.noise),
                )
                loss = fixmatch_loss(
                    model,
                    (x, groups[torch.from_numpy(some)]),
                    twins,
                    confidence=config.confidence,
                    weight=config.unlabelled,
                )
                networks.step(loss)
        with torch.no_grad():
            p = torch.softmax(model(self.features(table.rows_only_at(self.site.name))), dim=1)
        self.sure = int((p.amax(dim=1) >= config.confidence).sum()) if len(p) else 0

    def activations(self, rows: np.ndarray, *, train: bool) -> torch.Tensor | Noised[torch.Tensor]:
        """The representations of these rows, (n, d), clipped and noised if the job asks for it."""
        return self.noise(self.bottom(self.features(rows)), rows)

    async def upload_representations(self, shot: int, labelled: np.ndarray) -> None:
        """Send representations to train with."""
        rows = self.upload_rows(self.site.name, shot, labelled)
        self.site.observer.batch_begun(self.site.name, self.site.active, 1, rows)
        await self.hand_over("upload", rows, train=True)

    async def hand_over(self, step: str, rows: np.ndarray, *, train: bool) -> None:
        """Send the representations of these rows."""
        with torch.no_grad():
            h = map_noised(self.activations(rows, train=train), torch.Tensor.detach)
        await self.upstream.send(Kind.REPRESENTATION, f"few_shot_vfl/{step}", h=h)

    async def train_batch(self, rows: np.ndarray) -> None:
        """Does nothing: the active party already has all representations that it trains with."""

    async def answer(self, rows: np.ndarray) -> None:
        if not self.has_all(rows):
            await self.hand_over("answer", rows, train=False)

    def remember(self) -> State:
        return {"met": self.met, "sure": self.sure, "chosen": kept_rows(self.chosen)}

    def recall(self, memory: State) -> None:
        self.met, self.sure = as_flag(memory["met"]), as_int(memory["sure"])
        self.chosen = as_rows(memory["chosen"])

    def closing_notes(self) -> list[str]:
        others = len(self.table.rows_only_at(self.site.name))
        return [
            f"{self.site.name!r} is confident ({self.config.confidence:g} or more) in the group of {self.sure:,} of "
            f"its {others:,} other rows: these train its bottom without a label or a gradient of their own"
        ]
