"""A data owner of Multi-VFL: it takes part in the training of every label owner, and averages what came of it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from securevfl.algorithms.base import Plan, Trained
from securevfl.algorithms.halves import State, as_dict
from securevfl.algorithms.splitnn import Passive
from securevfl.site import Site
from securevfl.transport import Kind

__all__ = ["DataOwner"]


class DataOwner:
    """One data owner: a passive side for each label owner, averaged after each round.

    Args:
        copies: label owner → this party's side of its network, in order.
        site: the data owner's.
    """

    def __init__(self, copies: Mapping[str, Passive], site: Site, plan: Plan) -> None:
        self.copies = dict(copies)
        self.first = next(iter(self.copies.values()))
        self.site = site
        self.plan = plan
        self.trained = Trained()

    def average(self) -> None:
        """``W_d ← Σ_k W_{d,k} / K`` for bottoms and for the weights of the cut, or for this party's shares of them."""
        snapshots = [as_snapshot(copy.snapshot()) for copy in self.copies.values()]
        weights = {
            name: torch.stack([bottom[name].float() for bottom, _ in snapshots]).mean(dim=0).to(value.dtype)
            for name, value in snapshots[0][0].items()
        }
        shares = [cut[0] for _, cut in snapshots]
        mean: object
        if isinstance(shares[0], torch.Tensor):
            mean = torch.stack(shares).mean(dim=0)
        else:  # exact integers
            mean = sum(np.asarray(share, dtype=object) for share in shares) // len(shares)
        for copy in self.copies.values():
            copy.restore((weights, (mean, None)))

    async def run(self) -> Trained:
        self.site.clock.lap()
        for copy in self.copies.values():
            await copy.setup()
        self.trained.setup = self.site.clock.lap()
        saved = self.site.keeper.saved()
        if saved is None:
            self.average()
            epoch, kept, stop = 0, self.first.snapshot(), False
        else:
            self.load(saved)
            epoch, kept = int(str(saved["epoch"])), saved["kept"]
            stop = bool(saved["stop"])
        while not stop:
            epoch += 1
            await asyncio.gather(*(self._train(copy, epoch) for copy in self.copies.values()))
            self.average()
            await self.first.answer_all(self.first.table.split.valid)
            verdict = await self.site.links[self.first.site.active].receive(Kind.CONTROL, "train/epoch")
            self.trained.readings.append(self.site.clock.lap())
            if verdict.meta.get("best"):
                kept = self.first.snapshot()
            stop = bool(verdict.meta.get("stop")) or epoch >= self.plan.epochs
            self.keep(epoch, kept, stop=stop)
        self.first.restore(kept)
        await self.first.answer_all(self.first.table.split.test)
        self.trained.finish = self.site.clock.lap()
        self.trained.model = self.first.part()
        for copy in self.copies.values():
            if copy.release is not None:
                self.trained.spent.append(copy.release.spent)
        return self.trained

    async def _train(self, copy: Passive, epoch: int) -> None:
        await copy.begin_epoch(epoch)
        for rows in copy.batches(epoch):
            await copy.train_batch(rows)

    def keep(self, epoch: int, kept: object, *, stop: bool) -> None:
        """Write a checkpoint."""
        if not self.site.keeper.wants(epoch):
            return
        copies = {
            name: {"role": copy.state(), "release": None if copy.release is None else copy.release.state()}
            for name, copy in self.copies.items()
        }
        readings = [[r.compute, r.he, r.wait, r.sent] for r in self.trained.readings]
        state = {"epoch": epoch, "kept": kept, "stop": stop, "copies": copies, "readings": readings}
        self.site.keeper.save(epoch, state)

    def load(self, saved: State) -> None:
        """Come back to a checkpoint."""
        for name, kept in as_dict(saved["copies"]).items():
            copy, parts = self.copies[name], as_dict(kept)
            copy.load(as_dict(parts["role"]))
            if copy.release is not None:
                copy.release.load(as_dict(parts["release"]))
        self.trained.restore_readings(saved["readings"])


def as_snapshot(state: object) -> tuple[dict[str, torch.Tensor], Any]:
    """A snapshot of a passive side: its bottom's weights, and its side of the cut (weights and their velocity)."""
    if not isinstance(state, tuple | list) or len(state) != 2 or not isinstance(state[1], tuple | list):
        raise TypeError("not a snapshot of a passive side")
    return state[0], state[1]
