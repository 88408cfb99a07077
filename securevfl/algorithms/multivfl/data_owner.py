"""A data owner of Multi-VFL: it takes part in the training of every label owner, and averages its copies."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
import torch

from securevfl.algorithms.splitnn import Passive, SplitNN
from securevfl.party_context import Keeper, PartyContext
from securevfl.privacy import Journal, Spent, gather
from securevfl.privacy.releases import check_total_plan
from securevfl.training.passive_program import PassiveProgram
from securevfl.training.program import Program
from securevfl.training.rows import Trained
from securevfl.training.setting import Setting
from securevfl.training.state import State, as_dict, as_int, as_pair
from securevfl.transport import Kind

__all__ = ["DataOwner"]


class _CopyKeeper(Keeper):
    """Keeps the checkpoint of one copy in memory; the data owner writes all copies' together.

    Args:
        keeper: the data owner's.
        owner: the copy's label owner.
    """

    def __init__(self, keeper: Keeper, owner: str) -> None:
        self.held: State | None = None
        self.scope = owner
        self._keeper = keeper

    @cached_property
    def journal(self) -> Journal:
        return self._keeper.journal

    def load(self) -> State | None:
        return self.held

    def is_due(self, epoch: int) -> bool:
        return self._keeper.is_due(epoch)

    def save(self, epoch: int, state: State, *, step: int = 0) -> None:
        self.held = state


class DataOwner(Program):
    """One data owner: a passive side for each label owner, averaged after each round.

    Args:
        config: the algorithm.
        site: the data owner's, linked with all label owners.
        settings: label owner → this party's setting in its federation, in order.
    """

    def __init__(self, config: SplitNN, site: PartyContext, settings: Mapping[str, Setting]) -> None:
        self.site = site
        self.shelves = {owner: _CopyKeeper(site.keeper, owner) for owner in settings}
        self.copies: dict[str, Passive] = {}
        self.programs: dict[str, PassiveProgram] = {}
        for owner, setting in settings.items():
            own = replace(setting, site=replace(setting.site, keeper=self.shelves[owner]))
            self.copies[owner] = Passive(config, own)
            self.programs[owner] = PassiveProgram(self.copies[owner])
        check_total_plan(site.name, site.policy, [copy.releases for copy in self.copies.values()])
        self.first = next(iter(self.programs.values()))
        self.trained = Trained(split=self.first.role.table.split)

    async def run(self) -> Trained:
        role, split, observer = self.first.role, self.first.role.table.split, self.site.observer
        observer.phase("setup")
        self.site.clock.lap()
        before = self.site.keeper.load()
        for program in self.programs.values():
            program.checkpoints.begin_attempt(0 if before is None else as_int(before["epoch"]))
        for copy in self.copies.values():  # in the same order at all data owners, which share one link for all copies
            await copy.setup()
        self.trained.setup = self.site.clock.lap()
        saved = self.resume()
        if saved is None:
            self.average_copies()
        observer.phase("training")
        epoch = 0 if saved is None else as_int(saved["epoch"])
        kept = role.books.snapshot() if saved is None else saved["kept"]
        stop = saved is not None and self.first.checkpoints.is_finished(saved)
        while not stop:
            epoch += 1
            await self.train_epoch(epoch)
            self.average_copies()
            if role.plan.validates_after(epoch):
                await self.first.answer_all(split.valid)
            verdict = await role.upstream.receive(Kind.CONTROL, "train/epoch")
            self.trained.readings.append(self.site.clock.lap())
            if verdict.meta.get("best"):
                kept = role.books.snapshot()
            stop = bool(verdict.meta.get("stop")) or epoch >= role.plan.epochs
            self.end_epoch(epoch, kept, stop=stop)
            observer.epoch(epoch, math.nan, {})
            for program in self.programs.values():
                program.report_spent()
        role.books.restore(kept)
        observer.phase("test")
        await self.first.answer_all(split.test)
        return self.close_books()

    async def train_epoch(self, epoch: int) -> None:
        """Train with all label owners at once; the first error ends it for all."""
        await gather(*(program.train_epoch(epoch) for program in self.programs.values()))

    def average_copies(self) -> None:
        """``W_d ← Σ_k W_{d,k} / K`` for bottoms and for the weights of the cut, or for this party's shares of them."""
        snapshots = [_split_snapshot(copy.half.snapshot()) for copy in self.copies.values()]
        weights = {
            name: torch.stack([bottom[name].float() for bottom, _ in snapshots]).mean(dim=0).to(value.dtype)
            for name, value in snapshots[0][0].items()
        }
        blocks = [block for _, block in snapshots]
        mean: object
        if isinstance(blocks[0], torch.Tensor):
            mean = torch.stack(blocks).mean(dim=0)
        else:  # exact integers
            mean = sum(np.asarray(block, dtype=object) for block in blocks) // len(blocks)
        for copy in self.copies.values():
            copy.half.restore((weights, (mean, None)))

    def end_epoch(self, epoch: int, kept: object, *, stop: bool) -> None:
        """End `epoch`, and write one checkpoint with the state of all copies if the run keeps checkpoints."""
        for program in self.programs.values():
            program.checkpoints.end_epoch(epoch, {"stop": stop})
        if not self.site.keeper.is_due(epoch):
            return
        readings = [[r.compute, r.he, r.wait, r.sent] for r in self.trained.readings]
        where = {"epoch": epoch, "epochs": self.first.role.plan.epochs, "stop": stop, "secret": self.site.secret.to_hex}
        self.site.keeper.save(epoch, where | {"kept": kept, "copies": self._copies_state(), "readings": readings})

    def resume(self) -> State | None:
        """Restore the last checkpoint, if there is one, after the copies' setup."""
        saved = self.site.keeper.load()
        if saved is None:
            return None
        for owner, held in as_dict(saved["copies"]).items():
            self.shelves[owner].held = as_dict(held)
            self.programs[owner].checkpoints.resume()
        self.trained.restore_readings(saved["readings"])
        return saved

    def _copies_state(self) -> State:
        return {owner: shelf.held for owner, shelf in self.shelves.items()}

    def close_books(self) -> Trained:
        """Close the release accounts of all copies.

        Raises:
            ProtectionInactive: a release that needs noise got none.
        """
        trained = self.trained
        trained.finish = self.site.clock.lap()
        trained.model = self.first.role.books.part_of_model()
        for owner, copy in self.copies.items():
            trained.notes += copy.closing_notes()
            copy.releases.end_epoch()
            trained.spent += copy.releases.final_costs()
            trained.notes += copy.releases.interruption_notes(f"{self.site.name} with {owner}")
        return trained

    async def predict(self, model: State, rows: np.ndarray) -> np.ndarray:
        return await self.first.predict(model, rows)

    def privacy_spent(self) -> list[Spent]:
        return [spent for program in self.programs.values() for spent in program.privacy_spent()]


def _split_snapshot(state: object) -> tuple[Mapping[str, torch.Tensor], Any]:
    """A bottom's weights and a block of the cut, or a share of that block, from a snapshot of a passive half."""
    bottom, cut = as_pair(state)
    block: Any
    block, _ = as_pair(cut)  # the other is its velocity, which begins anew after a mean
    return bottom, block
