"""What programs ask of a role beside training: how often rows are released, what a checkpoint and a model contain.

An algorithm changes little of this. Where one does, it overrides a formula in a subclass of `Bookkeeping`, which its
role names as `bookkeeping`; or its `build` adds to what `Bookkeeping` lists: `before_checkpoint`, `after_validation`,
`model_facts`, `tally`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar
from typing import Protocol as Interface

import numpy as np

from securevfl.cut import Protection
from securevfl.party_context import PartyContext
from securevfl.privacy.repeated import RepeatedNoise
from securevfl.training.plan import Plan
from securevfl.training.rows import Features, NumberedRows
from securevfl.training.setting import Configuration, Part, Setting, Tally
from securevfl.training.state import State, as_dict

__all__ = ["BookedRole", "Bookkeeping"]


class BookedRole(Interface):
    """What bookkeeping reads of its role; see `securevfl.training.role.Role`."""

    parts: dict[str, Part]

    @property
    def config(self) -> Configuration:
        """The algorithm."""
        ...

    @property
    def site(self) -> PartyContext:
        """The party's context."""
        ...

    @property
    def plan(self) -> Plan:
        """How long and on what to train."""
        ...

    @property
    def protection(self) -> Protection:
        """Of what crosses the cut."""
        ...

    @property
    def table(self) -> NumberedRows:
        """The party's numbered rows."""
        ...

    @property
    def features(self) -> Features:
        """Features of the party's rows."""
        ...

    @property
    def trained_with(self) -> tuple[str, ...]:
        """Names of all passive parties of the model."""
        ...

    def training_rows(self, epoch: int) -> np.ndarray:
        """Numbers of the rows that an epoch trains on."""
        ...

    def remember(self) -> State:
        """What later epochs depend on beside the parts."""
        ...

    def recall(self, memory: State) -> None:
        """Restore what `remember` returned."""
        ...


class Bookkeeping:
    """The books of one role.

    Args:
        role: whose books they are.
        setting: that the role was given.

    Attributes:
        repeats_begin_epoch: whether a resumed run may call the role's `begin_epoch` again for an epoch that was under
            way; see `Checkpoints`.
        widest: see `Setting`.
        before_checkpoint: called before each checkpoint.
        after_validation: called after each validation, with probabilities (n, classes) and classes (n,).
        model_facts: name → what else a prediction needs beside the parts; called when training ends.
        tally: returns what labelling rows did, for the report; None where the algorithm labels none.
    """

    repeats_begin_epoch: ClassVar[bool] = False
    role: BookedRole

    def __init__(self, role: BookedRole, setting: Setting) -> None:
        self.role = role
        self.widest = setting.widest
        self.before_checkpoint: list[Callable[[], None]] = []
        self.after_validation: list[Callable[[np.ndarray, np.ndarray], None]] = []
        self.model_facts: dict[str, Callable[[], object]] = {}
        self.tally: Callable[[], Tally | None] = lambda: None

    # How often a row is released: noise and budgets are sized by it, so each is an upper bound.

    def times(self, epochs: int) -> int:
        """How often `epochs` epochs use one training row, at most."""
        plan = self.role.plan
        if plan.steps is None:
            return epochs
        full = max(len(self.role.training_rows(1)) // plan.batch_size, 1)
        return epochs * -(-plan.steps // full)

    def activation_times(self, epochs: int) -> int:
        """How often `epochs` epochs release one row's activations, at most; the same at all parties."""
        dp = self.role.protection.dp
        # Noise on fixed features is drawn once. Noise on z is not: the weights move, and with them what it hides.
        moves = self.role.config.trainable or (dp is not None and dp.joint_noise is not None)
        return self.times(epochs) if moves else 1

    def label_times(self, epochs: int) -> int:
        """How often `epochs` epochs release the gradient of one row's label, at most; the same at all parties."""
        return self.times(epochs) * self.role.table.shared

    def opening_times(self, epochs: int) -> int:
        """How often `epochs` epochs open values of one row of a passive party, as far as that is known beforehand."""
        return self.times(epochs) if epochs else 0

    def release_rows(self) -> int:
        """How many row numbers releases are counted by."""
        return self.role.table.total_count

    # Which rows.

    def rows_trained(self, epoch: int) -> int:
        """How many rows `epoch` trains on, for the report."""
        return len(self.role.training_rows(epoch))

    def rows_to_learn_from(self) -> np.ndarray:
        """Numbers of the rows whose labels the first epoch learns from: with one class among them, it cannot learn."""
        return self.role.training_rows(1)

    def labelled_by(self, rows: np.ndarray) -> list[np.ndarray]:
        """Numbers of the rows whose labels a batch uses: one array, or one for each party that gives a label."""
        return [rows]

    # What is kept.

    def snapshot(self) -> object:
        """This party's part of the model."""
        return {name: part.snapshot() for name, part in self.role.parts.items()}

    def restore(self, state: object) -> None:
        """Go back to a snapshot."""
        kept = as_dict(state)
        for name, part in self.role.parts.items():
            part.restore(kept[name])

    def get_state(self) -> State:
        """All that training needs to resume."""
        parts = {name: part.get_state() for name, part in self.role.parts.items()}
        return {"parts": parts, "memory": self.role.remember()}

    def load_state(self, state: State) -> None:
        """Resume from a state, after the role's `setup`."""
        kept = as_dict(state["parts"])
        for name, part in self.role.parts.items():
            part.load_state(as_dict(kept[name]))
        self.role.recall(as_dict(state["memory"]))

    def part_of_model(self) -> State:
        """This party's part of the trained model, to predict with: what its parts learned, and `model_facts`.

        Nothing that training remembers is in it, because that reveals rows: labels, which rows were chosen, what a peer
        handed over, an optimiser's last steps.
        """
        role = self.role
        times = self.times(role.plan.epochs)
        part: State = {"parts": self.snapshot(), "batch_size": role.plan.batch_size, "times": times}
        part["passive"] = list(role.trained_with)
        dp = role.protection.dp
        if dp is not None and dp.activation_noise is not None:
            part["noise key"] = RepeatedNoise.draw_key().hex()
        return part | {name: fact() for name, fact in self.model_facts.items()}
