"""Checkpoints of one party's program: what is kept after an epoch, and how a run goes on from it.

A sealed epoch can take hours. So a keeper may ask for checkpoints inside epochs too, after every so many batches. All
parties count the same batches, so all have the same places, without a word about it and without a clock. An algorithm
that does something at the beginning of an epoch which cannot be done again goes on from epochs alone; see
`Bookkeeping.repeats_begin_epoch`.

The journal counts what was released from one checkpoint to the next. Where there are some inside epochs, its lines name
places, ``epoch << 20 | step``, in place of epochs.
"""

from __future__ import annotations

from securevfl.errors import InputError
from securevfl.training.role import Role
from securevfl.training.rows import Trained
from securevfl.training.state import State, as_dict, as_flag, as_int

__all__ = ["Checkpoints", "step_of"]


_PLACES = 20


def step_of(saved: State) -> int:
    """Batches of the epoch after a kept one that were done too."""
    return as_int(saved.get("step", 0))


def _can_resume_within(role: Role) -> bool:
    """Whether the role does nothing at the beginning of an epoch, or nothing that it cannot do again."""
    return role.books.repeats_begin_epoch or type(role).begin_epoch is Role.begin_epoch


class Checkpoints:
    """Keeps a role, its releases and its clock.

    Args:
        role: what is kept.
        trained: the history that goes with it.
        within: whether the program can go on from a checkpoint inside an epoch.
    """

    def __init__(self, role: Role, trained: Trained, *, within: bool = False) -> None:
        self._role = role
        self._trained = trained
        self._keeper = role.site.keeper
        self._steps = self._keeper.steps if within and _can_resume_within(role) else 0

    def begin(self, start: int | None = None) -> None:
        """Begin an attempt, before anything is released: count what earlier ones may have released.

        Args:
            start: the epoch after which the run goes on, 0 for one that begins anew; what the keeper says unless given.

        Raises:
            InputError: a checkpoint without the journal that goes with it.
            PolicyError: earlier attempts may have released more than the party's policy allows.
        """
        if start is None:
            saved = self._keeper.load()
            start = 0 if saved is None else self._place(as_int(saved["epoch"]), step_of(saved))
        releases, journal = self._role.releases, self._keeper.journal
        if start and len(releases) and not journal.head:
            raise InputError(
                f"{self._role.site.name!r} has a checkpoint and no journal of what was released before it, so that "
                "nobody can say what ε is: bring the journal back, or begin anew and add what was spent before yourself"
            )
        releases.begin_attempt(journal, start, self._keeper.scope)

    def keep(self, epoch: int, more: State) -> None:
        """End an epoch: close its count of releases, and write a checkpoint where the run keeps any.

        Args:
            epoch: that ended, from 1.
            more: what the program itself remembers.
        """
        role = self._role
        if not self._keeper.is_due(epoch):
            role.releases.end_epoch(self._place(epoch))
            return
        self._save(epoch, 0, more)

    def is_checkpoint_due(self, step: int, steps: int) -> bool:
        """Whether a checkpoint is kept after `step` of an epoch's `steps` batches."""
        return self._steps > 0 and step % self._steps == 0 and step < steps

    def keep_within(self, epoch: int, step: int, more: State) -> None:
        """Write a checkpoint inside an epoch.

        Args:
            epoch: that runs, from 1.
            step: batches of it that are done.
            more: what the program itself remembers.
        """
        self._save(epoch - 1, step, more)

    def _place(self, epoch: int, step: int = 0) -> int:
        """A checkpoint's place, as the journal counts it."""
        return epoch << _PLACES | step if self._steps else epoch

    def _save(self, epoch: int, step: int, more: State) -> None:
        role = self._role
        role.site.ledger.catch_up()  # what is kept was looked at
        for prepare in role.books.before_checkpoint:
            prepare()
        role.releases.end_epoch(self._place(epoch, step))
        readings = [[r.compute, r.he, r.wait, r.sent] for r in self._trained.readings]
        kept: State = {"role": role.books.state(), "releases": role.releases.state(), "readings": readings}
        kept |= {"secret": role.site.secret.text}  # what is drawn from it later is drawn as if nothing had happened
        kept |= {"epochs": role.plan.epochs, "epoch": epoch} | ({"step": step} if step else {})
        self._keeper.save(epoch, kept | more, step=step)

    def resume(self) -> State | None:
        """Load the last checkpoint, after the role's `setup`; what the program remembered, or None to begin anew."""
        saved = self._keeper.load()
        if saved is None:
            return None
        self._role.books.load(as_dict(saved["role"]))
        self._trained.restore_readings(saved["readings"])
        self._role.releases.load(as_dict(saved["releases"]))
        return saved

    def is_finished(self, saved: State) -> bool:
        """Whether the kept run has nothing left to do: it stopped early, or has had all epochs."""
        epoch, epochs = as_int(saved["epoch"]), self._role.plan.epochs
        return as_flag(saved["stop"]) and (epoch < as_int(saved["epochs"]) or epoch >= epochs)
