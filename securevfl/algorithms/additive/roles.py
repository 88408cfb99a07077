"""The roles of an additive model: each party's shapes, the exchange of what is public, training and scores."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch

from securevfl.algorithms.additive.channel import ActivePlainSums, PassivePlainSums, SumsChannel
from securevfl.algorithms.additive.columns import BinnedColumn, code_rows, read_columns, write_columns
from securevfl.algorithms.additive.own_columns import ColumnSource, bin_columns
from securevfl.algorithms.additive.sealed_keys import SealedKeys
from securevfl.algorithms.additive.sealed_scores import SealedScores
from securevfl.algorithms.additive.sealed_sums import SealedSums
from securevfl.algorithms.additive.settings import COLUMNS, START, TERMS, AdditiveSettings, spends_budget
from securevfl.algorithms.additive.shapes import OwnShapes, PublicPlan, to_logits
from securevfl.algorithms.additive.tables import shape_notes, shape_tables
from securevfl.algorithms.additive.units import PART_ONE, cap_parts, cap_slack, target_units
from securevfl.cut import Sealed
from securevfl.errors import InputError, ProtectionInactive, ProtocolError
from securevfl.privacy import fan_out
from securevfl.privacy.discrete_gaussian import draw_discrete_gaussian
from securevfl.privacy.sums_budget import SumsBudget, SumsUses
from securevfl.training.active_role import ActiveRole
from securevfl.training.passive_role import PassiveRole
from securevfl.training.regression import Regression
from securevfl.training.role import Role
from securevfl.training.state import State, as_dict, as_list, as_tensor
from securevfl.training.sum_plan import plan_sum_uses
from securevfl.transport import Kind

__all__ = ["MOST_COLUMNS", "AdditiveActive", "AdditivePassive", "ShapesPart"]

MOST_COLUMNS = 1 << 16
"""The most columns that a party may bring."""


class ShapesPart:
    """A party's part of the model: its columns, its shapes, and the start.

    Args:
        role: whose part it is.

    Attributes:
        columns: with their bins; the active party's begin with the intercept.
        values: of each bin, float64 (all bins, outputs).
        variance: of each bin's value from the noise alone, (all bins,).
        start: the prediction that training began with, (outputs,).
        training: the shapes with the training rows; None outside training.
    """

    def __init__(self, role: _AdditiveRole) -> None:
        self._role = role
        self.columns: list[BinnedColumn] = []
        self.start = np.zeros(role.outputs)
        self.training: OwnShapes | None = None
        self._values = np.zeros((0, role.outputs))
        self._variance = np.zeros(0)

    @property
    def values(self) -> np.ndarray:
        """Values of each bin, float64 (all bins, outputs)."""
        return self._values if self.training is None else self.training.values

    @property
    def variance(self) -> np.ndarray:
        """Variance of each bin's value, from the noise alone, (all bins,)."""
        return self._variance if self.training is None else self.training.variance

    async def setup(self) -> None:
        """Bin the columns and exchange what is public, before training; nothing in a prediction."""
        if len(self._role.table.split.train):
            await self._role.prepare()

    def begin(self, plan: PublicPlan, columns: Sequence[BinnedColumn], x: np.ndarray) -> None:
        """Begin training with flat shapes."""
        self.columns, self.start = list(columns), plan.start
        self.training = OwnShapes(self._role.site.name, plan, self._role.config.step_rule, columns, x)

    def sum_terms(self, x: np.ndarray) -> np.ndarray:
        """Sum of this party's shapes for each row, float64 (n, outputs); with the start at nobody.

        Args:
            x: its columns of the rows, float64 (n, columns without the intercept).
        """
        found = np.zeros((len(x), self._role.outputs))
        for codes in code_rows(self.columns, x).T:
            found += self.values[codes]
        return found

    def tables(self) -> list[State]:
        """The party's shapes as it reads them; see `shape_tables`."""
        return shape_tables(self.columns, self.values, self.variance)

    def snapshot(self) -> object:
        """See `Part.snapshot`."""
        return {
            "columns": write_columns(self.columns),
            "values": torch.from_numpy(self.values.copy()),
            "variance": torch.from_numpy(self.variance.copy()),
            "start": torch.from_numpy(self.start.copy()),
        }

    def restore(self, state: object) -> None:
        """See `Part.restore`."""
        kept, role = as_dict(state), self._role
        columns = read_columns(as_list(kept["columns"]))
        values, variance = as_tensor(kept["values"]).numpy().copy(), as_tensor(kept["variance"]).numpy().copy()
        start = as_tensor(kept["start"]).numpy().copy()
        bins = sum(one.bins for one in columns)
        own = sum(not one.is_intercept for one in columns)
        if (
            values.shape != (bins, role.outputs)
            or variance.shape != (bins,)
            or start.shape != (role.outputs,)
            or own != role.width
        ):
            raise InputError(f"the stored shapes of {role.site.name!r} do not fit its columns: the model is damaged")
        self.columns, self.start, self._values, self._variance = columns, start, values, variance
        if self.training is not None:
            x = role.columns_of(role.table.split.train)
            plan = self.training.plan
            self.begin(
                PublicPlan(
                    rows=plan.rows,
                    parties=plan.parties,
                    columns=plan.columns,
                    outputs=plan.outputs,
                    seed=plan.seed,
                    start=start,
                    noise=plan.noise,
                    slack=plan.slack,
                ),
                columns,
                x,
            )
            self.training.values, self.training.variance = values, variance

    def get_state(self) -> State:
        """See `Part.get_state`."""
        return as_dict(self.snapshot())

    def load_state(self, state: State) -> None:
        """See `Part.load_state`."""
        self.restore(state)


class _AdditiveRole(Role):
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


class AdditiveActive(_AdditiveRole, ActiveRole):
    """The active party: owns the labels and the intercept, and adds up scores."""

    def make_channel(self) -> SumsChannel:
        return ActivePlainSums([self.site.links[name] for name in self.site.passive])

    def scaled_targets(self, rows: np.ndarray) -> np.ndarray:
        """Targets of rows, (n,): classes, or numbers between 0 and 1 of the job's range."""
        labels, task = self.labels(rows), self.task
        if isinstance(task, Regression):
            found: np.ndarray = (task.make_targets(labels).double().cpu().numpy() + 1) / 2
            return found
        return labels.cpu().numpy()

    async def prepare(self) -> None:
        train = self.table.split.train
        self.targets = target_units(self.scaled_targets(train), self.outputs)
        counts = [1 + self.width]
        for name in self.site.passive:
            message = await self.site.links[name].receive(Kind.CONTROL, COLUMNS)
            count = message.meta.get("count")
            if isinstance(count, bool) or not isinstance(count, int) or not 0 <= count <= MOST_COLUMNS:
                raise ProtocolError(f"{name!r} sent {count!r:.20} as its number of columns")
            counts.append(count)
        self.plan_budget(counts)
        units = self._start_units()
        told = np.array(counts, dtype=np.int64)
        links = [self.site.links[name] for name in self.site.passive]
        await fan_out(links, lambda link: link.send(Kind.CONTROL, START, columns=told, start=units))
        own = [BinnedColumn.intercept(), *self.bin_own_columns()]
        self.shapes.begin(self.plan_training(counts, units / PART_ONE), own, self.columns_of(train))

    def _start_units(self) -> np.ndarray:
        """The prediction that training begins with: the mean target, noisy where a budget is spent."""
        found: np.ndarray
        if (kept := self.kept) is not None:
            found = np.rint(as_tensor(kept["start"]).numpy() * PART_ONE).astype(np.int64)
            return found
        sums = self.targets.sum(axis=0)
        if self.budget is not None:
            sums = sums + draw_discrete_gaussian(sums.shape, math.ceil(self.budget.start_sigma * PART_ONE))
        found = cap_parts(sums[None] / len(self.targets), PART_ONE)[0]
        return found

    async def train_batch(self, rows: np.ndarray) -> float:
        shapes = self.shapes.training
        if shapes is None:
            raise InputError("an epoch of an additive model without training rows")
        part = shapes.part()
        await self.run_epoch(self.epoch, self.targets - part)
        return self.channel.loss

    @property
    def has_loss(self) -> bool:
        return self.sealed is None

    def sum_shapes(self, rows: np.ndarray) -> np.ndarray:
        return super().sum_shapes(rows) + self.shapes.start

    async def score(self, rows: np.ndarray) -> torch.Tensor:
        sums = self.sum_shapes(rows)
        if self.scores is not None and self.site.links:
            sums = sums + await self.scores.receive(len(rows))
            return torch.from_numpy(to_logits(sums, numeric=self.task.is_numeric))
        for name in self.site.passive:
            message = await self.site.links[name].receive(Kind.ACTIVATION, TERMS, "terms")
            terms = np.asarray(message.arrays["terms"])
            if terms.dtype != np.float64 or terms.shape != sums.shape or not np.isfinite(terms).all():
                raise ProtocolError(f"{name!r} sent terms of {terms.dtype} {terms.shape} for {len(rows)} rows")
            sums = sums + terms
        return torch.from_numpy(to_logits(sums, numeric=self.task.is_numeric))


class AdditivePassive(_AdditiveRole, PassiveRole):
    """A passive party: owns the shapes of its columns."""

    answers_each_row = True

    def make_channel(self) -> SumsChannel:
        return PassivePlainSums(self.upstream)

    @property
    def opens_only_answers(self) -> bool:
        return self.protection.is_sealed

    @property
    def values_per_release(self) -> int:
        return 0 if self.protection.on_shares else self.outputs

    async def prepare(self) -> None:
        await self.upstream.send(Kind.CONTROL, COLUMNS, meta={"count": self.width})
        message = await self.upstream.receive(Kind.CONTROL, START, "columns", "start")
        counts, start = np.asarray(message.arrays["columns"]), np.asarray(message.arrays["start"])
        parties = 1 + len(self.trained_with)
        mine = 1 + list(self.trained_with).index(self.site.name)
        if (
            counts.dtype != np.int64
            or counts.shape != (parties,)
            or not ((counts >= 0) & (counts <= MOST_COLUMNS)).all()
            or counts[0] < 1
            or counts[mine] != self.width
        ):
            raise ProtocolError(f"{self.upstream.peer!r} sent a malformed list of the parties' columns")
        if start.dtype != np.int64 or start.shape != (self.outputs,) or not ((start >= 0) & (start <= PART_ONE)).all():
            raise ProtocolError(f"{self.upstream.peer!r} sent a malformed start of the predictions")
        self.plan_budget(counts.tolist())
        plan = self.plan_training(counts.tolist(), start / PART_ONE)
        self.shapes.begin(plan, self.bin_own_columns(), self.columns_of(self.table.split.train))

    async def train_batch(self, rows: np.ndarray) -> None:
        shapes = self.shapes.training
        if shapes is None:
            raise InputError("an epoch of an additive model without training rows")
        if not self.opens_only_answers:
            self.count_release(rows, self.outputs)
        await self.run_epoch(self.epoch, shapes.part())

    async def answer(self, rows: np.ndarray) -> None:
        self.count_release(rows, self.outputs)
        terms = self.shapes.sum_terms(self.columns_of(rows))
        if self.scores is not None:
            await self.scores.send(terms)
        else:
            await self.upstream.send(Kind.ACTIVATION, TERMS, terms=terms)
