"""Checkpoints of one party's program: what is kept after an epoch, and how a run goes on from it."""

from __future__ import annotations

import numpy as np

from securevfl.training.role import Role
from securevfl.training.rows import Trained
from securevfl.training.state import State, as_dict, as_flag, as_int

__all__ = ["Checkpoints"]


class Checkpoints:
    """Keeps a role, its releases and its clock.

    Args:
        role: what is kept.
        trained: the history that goes with it.
    """

    def __init__(self, role: Role, trained: Trained) -> None:
        self._role = role
        self._trained = trained
        self._keeper = role.site.keeper

    def keep(self, epoch: int, more: State) -> None:
        """Write a checkpoint after `epoch`, where the run keeps any; `more` is what the program itself remembers."""
        if not self._keeper.wants(epoch):
            return
        role = self._role
        role.before_checkpoint()
        readings = [[r.compute, r.he, r.wait, r.sent] for r in self._trained.readings]
        kept = {"role": role.state(), "releases": role.releases.state(), "readings": readings}
        kept |= {"secret": role.site.secret.text}  # what is drawn from it later is drawn as if nothing had happened
        self._keeper.save(epoch, kept | {"epochs": role.plan.epochs, "epoch": epoch} | more)

    def resume(self) -> State | None:
        """Load the last checkpoint, after the role's `setup`; what the program remembered, or None to begin anew.

        Raises:
            PolicyError: the run that broke off may have released more than the party's policy allows.
        """
        saved = self._keeper.saved()
        if saved is None:
            return None
        self._role.load(as_dict(saved["role"]))
        self._trained.restore_readings(saved["readings"])
        self._role.releases.load(as_dict(saved["releases"]))
        self._count_broken(saved)
        return saved

    def over(self, saved: State) -> bool:
        """Whether the kept run has nothing left to do: it stopped early, or has had all epochs."""
        epoch, epochs = as_int(saved["epoch"]), self._role.plan.epochs
        return as_flag(saved["stop"]) and (epoch < as_int(saved["epochs"]) or epoch >= epochs)

    def _count_broken(self, saved: State) -> None:
        """Count what the run that wrote this checkpoint may have released after it, and write that into the checkpoint,
        for this run may break off too: of each row what the epochs up to the next checkpoint release, or, where
        training was over, one release of the test rows' features."""
        role, at = self._role, as_int(saved["epoch"])
        if not len(role.releases):
            return
        over, epochs = self.over(saved), 1
        while not over and at + epochs < role.plan.epochs and not self._keeper.wants(at + epochs):
            epochs += 1
        own = role.features.own()
        own = np.concatenate([own + start for start in range(0, role.release_rows(), role.table.rows)])
        labels = np.arange(role.release_rows())
        role.releases.lose(own, role.table.split.test, labels, role.plan.epochs, epochs, over)
        self._keeper.save(at, saved | {"releases": role.releases.state()})
