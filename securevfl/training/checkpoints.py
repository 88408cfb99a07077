"""Checkpoints of one party's program: what it writes after an epoch, and how a run resumes.

A sealed epoch can take hours, so a keeper may also ask for a checkpoint after every so many batches. All parties count
the same batches, so their checkpoints match without a message or a clock. An algorithm whose `begin_epoch` cannot be
repeated resumes at epochs only; see
`Bookkeeping.repeats_begin_epoch`.

The journal counts releases from one checkpoint to the next. With checkpoints inside epochs its lines name
``epoch << 20 | step`` in place of the epoch.
"""

from __future__ import annotations

from securevfl.errors import InputError
from securevfl.training.role import Role
from securevfl.training.rows import Trained
from securevfl.training.state import State, as_dict, as_flag, as_int

__all__ = ["Checkpoints", "step_of"]


_PLACES = 20


def step_of(saved: State) -> int:
    """Batches already done in the epoch after the stored one."""
    return as_int(saved.get("step", 0))


def _can_resume_within(role: Role) -> bool:
    """Whether the role does nothing at the beginning of an epoch, or nothing that it cannot do again."""
    return role.books.repeats_begin_epoch or type(role).begin_epoch is Role.begin_epoch


class Checkpoints:
    """Stores a role, its releases and its clock.

    Args:
        role: the party's.
        trained: its history.
        within: whether the program can resume inside an epoch.
    """

    def __init__(self, role: Role, trained: Trained, *, within: bool = False) -> None:
        self._role = role
        self._trained = trained
        self._keeper = role.site.keeper
        self._steps = self._keeper.steps if within and _can_resume_within(role) else 0

    def begin_attempt(self, start: int | None = None) -> None:
        """Begin an attempt, before anything is released: count what earlier attempts may have released.

        Args:
            start: the epoch after which the run resumes, 0 for a new run; by default, that of the last checkpoint.

        Raises:
            InputError: a checkpoint without its journal.
            PolicyError: earlier attempts may have released more than the party's policy allows.
        """
        if start is None:
            saved = self._keeper.load()
            start = 0 if saved is None else self._journal_place(as_int(saved["epoch"]), step_of(saved))
        releases, journal = self._role.releases, self._keeper.journal
        if start and len(releases) and not journal.head:
            raise InputError(
                f"{self._role.site.name!r} has a checkpoint but no journal of what was released before it, so ε is "
                "unknown: restore the journal, or start a new run and add the ε spent before yourself"
            )
        releases.begin_attempt(journal, start, self._keeper.scope)

    def count_earlier(self) -> None:
        """Count all that earlier attempts released, of a training that does not go on.

        Raises:
            InputError, PolicyError: see `begin_attempt`.
        """
        self.begin_attempt(self._journal_place(self._role.plan.epochs))

    def end_epoch(self, epoch: int, more: State) -> None:
        """End an epoch: close its count of releases, and write a checkpoint if one is due.

        Args:
            epoch: the one that ended, from 1.
            more: the program's own state.
        """
        role = self._role
        if not self._keeper.is_due(epoch):
            role.releases.end_epoch(self._journal_place(epoch))
            return
        self._save_checkpoint(epoch, 0, more)

    def is_checkpoint_due(self, step: int, steps: int) -> bool:
        """Whether a checkpoint is due after `step` of an epoch's `steps` batches."""
        return self._steps > 0 and step % self._steps == 0 and step < steps

    def keep_within(self, epoch: int, step: int, more: State) -> None:
        """Write a checkpoint inside an epoch.

        Args:
            epoch: the one under way, from 1.
            step: how many of its batches are done.
            more: the program's own state.
        """
        self._save_checkpoint(epoch - 1, step, more)

    def _journal_place(self, epoch: int, step: int = 0) -> int:
        """A checkpoint's place, as the journal counts it."""
        return epoch << _PLACES | step if self._steps else epoch

    def _save_checkpoint(self, epoch: int, step: int, more: State) -> None:
        role = self._role
        role.site.ledger.catch_up()  # every message up to here is checked before its effect is stored
        for prepare in role.books.before_checkpoint:
            prepare()
        role.releases.end_epoch(self._journal_place(epoch, step))
        readings = [[r.compute, r.he, r.wait, r.sent] for r in self._trained.readings]
        kept: State = {"role": role.books.get_state(), "releases": role.releases.get_state(), "readings": readings}
        kept |= {"passive": list(role.site.passive)}
        if "widest" in role.books.model_facts:
            kept["widest"] = role.books.model_facts["widest"]()
        kept |= {"secret": role.site.secret.to_hex}  # a resumed run draws what this one would have drawn
        kept |= {"epochs": role.plan.epochs, "epoch": epoch} | ({"step": step} if step else {})
        self._keeper.save(epoch, kept | more, step=step)

    def resume(self) -> State | None:
        """Load the last checkpoint, after the role's `setup`; return the program's own state, or None for a new run."""
        saved = self._keeper.load()
        if saved is None:
            return None
        self._role.books.load_state(as_dict(saved["role"]))
        self._trained.restore_readings(saved["readings"])
        self._role.releases.load_state(as_dict(saved["releases"]))
        return saved

    def has_fewer_parties(self, saved: State) -> bool:
        """Whether parties left since the checkpoint: its best epoch was scored with their columns."""
        return bool(self._role.site.gone) and saved.get("passive") != list(self._role.site.passive)

    def is_finished(self, saved: State) -> bool:
        """Whether the stored run is over: it stopped early, or has had all epochs."""
        epoch, epochs = as_int(saved["epoch"]), self._role.plan.epochs
        return as_flag(saved["stop"]) and (epoch < as_int(saved["epochs"]) or epoch >= epochs)
