"""What both roles of an additive model do: bin their columns, count what training spends, and take part in epochs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from securevfl.algorithms.additive.channel import SumsChannel
from securevfl.algorithms.additive.columns import BinnedColumn, read_columns
from securevfl.algorithms.additive.own_columns import ColumnSource, bin_columns
from securevfl.algorithms.additive.sealed_keys import SealedKeys
from securevfl.algorithms.additive.sealed_scores import SealedScores
from securevfl.algorithms.additive.sealed_sums import SealedSums
from securevfl.algorithms.additive.settings import AdditiveSettings, spends_budget
from securevfl.algorithms.additive.shapes import PublicPlan
from securevfl.algorithms.additive.shapes_part import ShapesPart
from securevfl.algorithms.additive.tables import shape_notes
from securevfl.algorithms.additive.units import cap_slack
from securevfl.cut import Sealed
from securevfl.errors import InputError, ProtectionInactive
from securevfl.privacy.sums_budget import SumsBudget, SumsUses
from securevfl.training.role import Role
from securevfl.training.state import State, as_dict
from securevfl.training.sum_plan import plan_sum_uses

__all__ = ["AdditiveRole"]


class AdditiveRole(Role):
    """Base of both roles.

    Attributes:
        shapes: its part of the model.
        channel: its end of the sums.
        sealed: its end of the sums between two parties; None under another protection.
        scores: its end of sealed scores, likewise.
        uses: counts what training spends of each row; None without a budget, or in a prediction.
        budget: of training, once the parties' columns are known; None without one.
    """

    config: AdditiveSettings

    def build(self) -> None:
        self.uses: SumsUses | None = None
        self.budget: SumsBudget | None = None
        self.shapes = ShapesPart(self)
        self.parts["shapes"] = self.shapes
        self.books.model_facts["shape tables"] = self.shapes.tables
        self.sealed: SealedSums | None = None
        self.scores: SealedScores | None = None
        if isinstance(self.protection, Sealed):
            self._keys = SealedKeys(self.site, self.protection)
            self.sealed, self.scores = SealedSums(self._keys), SealedScores(self._keys, self.outputs)
            self._plan_uses()
        self.channel: SumsChannel = self.sealed or self.make_channel()

    def _plan_uses(self) -> None:
        """Plan what training between two parties spends of each row, where the job has a budget.

        Raises:
            PolicyError: the plan spends more than the party's policy allows.
        """
        dp, train = self.protection.dp, self.table.split.train
        if dp is None or dp.model is None or not len(train):
            return
        budget = self.config.plan_budget(
            self.protection, rows=len(train), outputs=self.outputs, columns=1, parties=2, epochs=self.plan.epochs
        )
        self.uses = plan_sum_uses(self, budget, dp.model)

    async def setup(self) -> None:
        trains = len(self.table.split.train) > 0
        if self.sealed is not None and self.scores is not None and self.site.links:
            await self._keys.exchange(both=trains)
            await self.scores.setup()
        await super().setup()
        shapes = self.shapes.training
        if self.sealed is not None and shapes is not None:
            self.sealed.begin(shapes.plan, self.budget)

    @property
    def party(self) -> str:
        """Name of the party."""
        return self.site.name

    @property
    def outputs(self) -> int:
        """K: 1 for two classes and for a number, else one for each class."""
        return 1 if self.table.classes <= 2 else self.table.classes

    @property
    def width(self) -> int:
        """Number of this party's columns."""
        return int(self.features.row_shape.numel())

    def make_channel(self) -> SumsChannel:
        """The party's end of the sums under this protection."""
        raise NotImplementedError

    async def prepare(self) -> None:
        """Bin the columns, and exchange what is public."""
        raise NotImplementedError

    def columns_of(self, rows: np.ndarray) -> np.ndarray:
        """This party's columns of numbered rows, float64 (n, columns)."""
        x = self.features(rows)
        return x.reshape(len(rows), -1).double().cpu().numpy() if x.numel() else np.empty((len(rows), self.width))

    def batches(self, epoch: int) -> list[np.ndarray]:
        """One batch with all training rows: each epoch's sums are over all of them."""
        return [self.training_rows(epoch)]

    def plan_budget(self, columns: Sequence[int]) -> None:
        """Set the budget of training, where the job has one, and count what comes before its first epoch.

        Args:
            columns: of each party, with the intercept.

        Raises:
            InputError: so few rows that the noise would drown what they tell.
        """
        train = self.table.split.train
        if not spends_budget(self.protection):
            return
        self.budget = self.config.plan_budget(
            self.protection,
            rows=len(train),
            outputs=self.outputs,
            columns=sum(columns),
            parties=len(columns),
            epochs=self.plan.epochs,
        )
        self.budget.check_worth()
        if self.uses is None:
            raise ProtectionInactive(f"{self.site.name!r} counts no use of its rows, and the job has a budget")
        if self.kept is None:
            self.uses.count_setup(train)

    @property
    def kept(self) -> State | None:
        """Its shapes in the checkpoint that training resumes from: bins and start are drawn once; None at first."""
        saved = self.site.keeper.load()
        return None if saved is None else as_dict(as_dict(as_dict(saved["role"])["parts"])["shapes"])

    def bin_own_columns(self) -> list[BinnedColumn]:
        """Bins of this party's columns; those of the checkpoint where training resumes."""
        if (kept := self.kept) is not None:
            return [one for one in read_columns(kept["columns"]) if not one.is_intercept]
        encoder, config = self.table.encoder, self.config
        levels: dict[str, tuple[str, ...]] = {} if encoder is None else encoder.level_names
        source = ColumnSource(
            self.site.name,
            self.table.encoded,
            self.table.codes,
            [levels.get(name, ()) for name in self.table.encoded],
            config.edges_for(self.protection),
            config.bins_for(self.protection),
            0.0 if self.budget is None else self.budget.mu_column,
        )
        return bin_columns(source, config, self.columns_of(self.table.split.train))

    def plan_training(self, columns: Sequence[int], start: np.ndarray) -> PublicPlan:
        """What all parties know of the training."""
        return PublicPlan(
            rows=len(self.table.split.train),
            parties=(self.site.active, *self.trained_with),
            columns=tuple(columns),
            outputs=self.outputs,
            seed=self.site.seed,
            start=start,
            noise=0.0 if self.budget is None else self.budget.total_sigma,
            slack=cap_slack(len(columns), self.outputs, budget=spends_budget(self.protection)),
        )

    async def run_epoch(self, epoch: int, part: np.ndarray) -> None:
        """One epoch: contrasts, sums, update.

        Args:
            epoch: from 1.
            part: as `SumsChannel.exchange`.
        """
        shapes = self.shapes.training
        if shapes is None:
            raise InputError("an epoch of an additive model without training rows")
        if self.uses is not None:
            self.uses.count_epoch(self.table.split.train)
        contrasts = shapes.draw(epoch)
        sums = await self.channel.exchange(epoch, shapes.contrast_rows(contrasts), part)
        shapes.update(contrasts, sums)

    @property
    def sum_counts(self) -> tuple[int, ...]:
        """How many sums of one output each data party gets, the active one first; none before training."""
        return () if self.shapes.training is None else self.shapes.training.plan.columns

    def sum_shapes(self, rows: np.ndarray) -> np.ndarray:
        """This party's part of the scores of numbered rows, float64 (n, outputs)."""
        return self.shapes.sum_terms(self.columns_of(rows))

    def closing_notes(self) -> list[str]:
        found = super().closing_notes()
        if self.shapes.training is not None:
            found += shape_notes(self.site.name, self.shapes.tables())
        if self.budget is not None:
            repeated = 0 if self.uses is None else self.uses.counts.max_lost
            self.site.ledger.record_note("budget of sums", self.budget.ledger_facts(repeated))
            found.append(self.budget.summary_sentence(repeated))
        return found

    async def begin_epoch(self, epoch: int) -> bool:
        self.epoch = epoch
        return False
