"""The roles of `Best`: a program trains the members one after the other, and roles score rows with all of them."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import ClassVar, Protocol

import numpy as np
import torch

from securevfl.algorithms.residual import ResidualAtTheCut
from securevfl.cut import Protection
from securevfl.training.active_role import ActiveRole
from securevfl.training.algorithm import Algorithm
from securevfl.training.bookkeeping import Bookkeeping
from securevfl.training.outcome import constant_metrics, few_rows, went_nowhere
from securevfl.training.passive_role import PassiveRole
from securevfl.training.plan import FEWEST_TO_CHOOSE, Plan
from securevfl.training.pooling import average_probabilities, fit_stacking_weights, log_loss
from securevfl.training.program import Program
from securevfl.training.role import Role
from securevfl.training.rows import Epoch, NumberedRows, Trained
from securevfl.training.setting import Configuration, Setting
from securevfl.training.state import State, as_dict, as_int
from securevfl.training.submodels import SubModel, SubModelResult, submodel_context, sum_readings, train_submodels
from securevfl.training.task import Task
from securevfl.transport import PASSIVE

__all__ = [
    "AveragedConfiguration",
    "BestActive",
    "BestPassive",
    "BestProgram",
    "MemberWeighting",
    "method_of",
    "scores_alone",
]

_TINY = 1e-12

_PULL = 10.0
"""α of `securevfl.training.pooling`: the pull towards equal weights counts as much as this many rows for each
method."""


class AveragedConfiguration(Configuration, Protocol):
    """The part of `securevfl.algorithms.best.Best` that these roles use."""

    @property
    def methods(self) -> tuple[str, ...]:
        """Names of the averaged methods."""
        ...

    @property
    def stack(self) -> bool:
        """Whether validation rows choose the methods' weights, if there are enough."""
        ...

    @property
    def judges_alone(self) -> bool:
        """Whether members also score rows that they did not train on without the passive parties."""
        ...

    def list_algorithms(self) -> Mapping[str, Algorithm]:
        """Method → its algorithm."""
        ...

    def list_members(self, table: NumberedRows, seed: int, protection: Protection, passive: int) -> list[SubModel]:
        """All members, in the order in which they train."""
        ...


def method_of(member: str) -> str:
    """The name of the method that a member trains."""
    return member.rpartition(" ")[0]


class MemberWeighting:
    """Weights the methods, scores the rows and explains the weights, at the active party.

    Args:
        config: the algorithm.
        setting: the job's.
        members: all members.
        done: the outcome of each member.
    """

    def __init__(
        self,
        config: AveragedConfiguration,
        setting: Setting,
        members: Sequence[SubModel],
        done: Sequence[SubModelResult],
    ) -> None:
        if setting.table.y is None:
            raise ValueError("the active party's table has no labels")
        self.config = config
        self.table = setting.table
        self.y = setting.table.y.numpy()
        self.task = Task(setting.table.classes)
        self.members = {member.name: member for member in members}
        self.done = done

    def of_method(self, name: str) -> list[SubModelResult]:
        """Outcomes of the members of one method."""
        return [one for one in self.done if method_of(one.name) == name]

    def unseen_probabilities(self, name: str, *, alone: bool = False) -> tuple[np.ndarray, np.ndarray]:
        """The rows that validated a method's members, (n,), and its probabilities for them, (n, classes).

        The probabilities come from members that did not train on the row; their mean, if there are several.

        Args:
            name: of the method.
            alone: take the members' scores without the passive parties.
        """
        total = np.zeros((self.table.aligned_count, self.task.classes))
        count = np.zeros(self.table.aligned_count, np.int64)
        for one in self.of_method(name):
            rows = self.members[one.name].split.valid
            total[rows] += one.alone_valid_scores if alone else one.valid_scores
            count[rows] += 1
        rows = np.flatnonzero(count)
        return rows, total[rows] / count[rows, None]

    def write_to(self, trained: Trained, epochs: int) -> dict[str, float]:
        """Write scores, metrics, history and explanations into `trained`; return the weight of each method."""
        methods, split = self.config.methods, self.table.split
        rows = self.unseen_probabilities(methods[0])[0]
        judged = {name: self.unseen_probabilities(name)[1] for name in methods}
        weights = self.weigh_methods(judged, rows)
        mean = {name: np.mean([one.scores for one in self.of_method(name)], axis=0) for name in methods}
        trained.scores = average_probabilities([mean[name] for name in methods], [weights[name] for name in methods])
        trained.valid_scores = _select_rows(
            split.valid, rows, average_probabilities(list(judged.values()), list(weights.values()))
        )
        labels = self.y[split.test]
        trained.test = self.task.compute_metrics(trained.scores, labels)
        averaged = [one for one in self.done if method_of(one.name) in methods]
        alone = [one.alone_scores for one in averaged if scores_alone(self.config, method_of(one.name))]
        if alone and all(len(one) for one in alone):
            trained.alone_scores = np.mean(alone, axis=0)
            trained.alone = self.task.compute_metrics(trained.alone_scores, labels)
        trained.epochs = [_mean_epoch([one.epochs[number] for one in averaged]) for number in range(epochs)]
        trained.best_epoch, trained.stopped = epochs, f"all {len(self.done)} members are trained"
        trained.rows = len(split.train) + len(self.table.rows_only_at(self.table.name))
        self.assess_outcome(trained, judged, weights, rows)
        return weights

    def weigh_methods(self, judged: Mapping[str, np.ndarray], rows: np.ndarray) -> dict[str, float]:
        """Method → its weight; equal weights if too few rows validate."""
        if not self.config.stack or len(rows) < FEWEST_TO_CHOOSE:
            return dict.fromkeys(judged, 1 / len(judged))
        found = fit_stacking_weights(list(judged.values()), self.y[rows], pull=_PULL)
        return dict(zip(judged, map(float, found), strict=True))

    def assess_outcome(
        self, trained: Trained, judged: Mapping[str, np.ndarray], weights: Mapping[str, float], rows: np.ndarray
    ) -> None:
        """Record how the weights were chosen, the score of a constant prediction, and warnings for the user."""
        train, valid, test = (self.y[part] for part in (self.table.split.train, rows, self.table.split.test))
        trained.constant = constant_metrics(self.task, train, test)
        trained.warnings += few_rows(self.task.classes, {"training": train, "test": test})
        trained.warnings += went_nowhere([], {}, trained.test, trained.constant)
        losses = {name: log_loss(p, valid) if len(rows) else float("nan") for name, p in judged.items()}
        together = (
            log_loss(average_probabilities(list(judged.values()), list(weights.values())), valid)
            if len(rows)
            else float("nan")
        )
        trained.extra |= {f"weight of {name}": weight for name, weight in weights.items()}
        trained.extra |= {f"log-loss of {name}": loss for name, loss in losses.items()}
        trained.extra |= {"rows that chose": float(len(rows) if self.choosing_rows(rows) else 0)}
        listed = ", ".join(f"{weights[name]:.2f} {name} (log-loss {losses[name]:.3g})" for name in judged)
        why = (
            f"chosen on {len(rows):,} common rows that the scoring members had not trained on"
            if self.choosing_rows(rows)
            else f"equal: {len(rows):,} common rows are too few to choose by (at least {FEWEST_TO_CHOOSE} are needed)"
            if self.config.stack
            else "equal, as the job file sets them"
        )
        trained.notes += [f"weights {why}: {listed}; averaged {together:.3g}"]
        talking = sum(member.talks for member in self.members.values())
        trained.notes += [
            f"{talking} members trained with the passive parties, one after the other; {len(self.done) - talking} "
            f"at the active party only. This costs {talking} times the steps and about {talking} times the messages of "
            f"one method{self.describe_bytes()}"
        ]

    def describe_bytes(self) -> str:
        """How many bytes this party sent for all members, and for one model of each method; empty if it sent none."""
        sent = {name: [_count_sent(one) for one in self.of_method(name)] for name in self.config.methods}
        whole = sum(map(sum, sent.values()))
        if not whole:
            return ""
        ratios = [
            f"{whole / statistics.fmean(counts):.1f} times those of one model of {name}"
            for name, counts in sent.items()
            if sum(counts)
        ]
        return f"; {self.table.name} sent {whole:,} bytes while they trained, {' and '.join(ratios)}"

    def choosing_rows(self, rows: np.ndarray) -> bool:
        """Return True if there are enough rows to choose the weights."""
        return self.config.stack and len(rows) >= FEWEST_TO_CHOOSE


class BestProgram(Program):
    """Trains all members one after the other. The active party then weights their methods.

    Args:
        config: the algorithm.
        setting: the job's, at this party.
        plan: the job's. Members run all epochs, and keep the best one if enough rows validate them. Their scores are
            averaged as they are, not calibrated.
    """

    weighting: ClassVar[type[MemberWeighting]] = MemberWeighting

    def __init__(self, config: AveragedConfiguration, setting: Setting, plan: Plan) -> None:
        self.config = config
        self.setting = setting
        keep = "auto" if plan.keep == "best" else plan.keep
        self.plan = replace(plan, patience=None, keep=keep, calibrates=False, judges_alone=config.judges_alone)
        site = setting.site
        self.members = config.list_members(setting.table, site.seed, setting.protection, len(site.passive))

    async def run(self) -> Trained:
        site, table = self.setting.site, self.setting.table
        done = await train_submodels(self.members, self.setting, self.plan)
        trained = Trained(split=table.split)
        self.add_readings(trained, done)
        weights: dict[str, float] = {}
        if site.role != PASSIVE:
            weighting = self.weighting(self.config, self.setting, self.members, done)
            weights = weighting.write_to(trained, self.plan.epochs)
        parts: State = {"members": {one.name: one.model for one in done}, "weights": dict(weights)}
        trained.model = {"parts": parts, "batch_size": self.plan.batch_size, "times": 1}
        trained.model["passive"] = list(site.passive)
        return trained

    def add_readings(self, trained: Trained, done: Sequence[SubModelResult]) -> None:
        """Add up the members' clock readings, epoch by epoch."""
        trained.setup = sum_readings([one.readings[0] for one in done])
        epochs, last = [one.readings[1:-1] for one in done], self.plan.epochs
        trained.readings = [
            sum_readings([each[epoch] for each in epochs if epoch < len(each)]) for epoch in range(last)
        ]
        rest = [reading for each in epochs for reading in each[last:]]  # of members with more epochs than the job
        trained.finish = sum_readings([one.readings[-1] for one in done] + rest)


def scores_alone(config: AveragedConfiguration, method: str) -> bool:
    """True if a method's score counts for a row that the partner lacks.

    It must be trained for such rows, and must not just repeat the local model.
    """
    every = config.list_algorithms()
    repeats = "local" in every and isinstance(every[method], ResidualAtTheCut)
    return every[method].subsets != "all" and not repeats


def _select_rows(wanted: np.ndarray, rows: np.ndarray, values: np.ndarray) -> np.ndarray:
    """The values (n, …) of the `wanted` rows, looked up in sorted `rows`."""
    found: np.ndarray = values[np.searchsorted(rows, wanted)]
    return found


def _count_sent(member: SubModelResult) -> int:
    """Bytes that this party sent while a member trained."""
    return sum(count for reading in member.readings for count in reading.sent.values())


def _mean_epoch(epochs: Sequence[Epoch]) -> Epoch:
    """One epoch's mean over the members: of their losses, and of each metric where it is defined."""
    names = dict.fromkeys(name for one in epochs for name in one.valid)
    valid = {name: statistics.fmean(one.valid[name] for one in epochs if name in one.valid) for name in names}
    return Epoch(statistics.fmean(one.loss for one in epochs), valid)


class _Books(Bookkeeping):
    """A model contains each member's parts."""

    def restore(self, state: object) -> None:
        members = as_dict(as_dict(state)["members"])
        for name, part in self.role.parts.items():
            part.restore(as_dict(members[name])["parts"])


class _ActiveBooks(_Books):
    """At the active party it also contains the members' weights."""

    role: BestActive

    def restore(self, state: object) -> None:
        super().restore(state)
        kept = as_dict(as_dict(state)["weights"])
        self.role.weights = {name: float(str(weight)) for name, weight in kept.items()}


class _ScoringRole(Role):
    """Base of both roles: it has a role for each member that takes part at this party.

    Args:
        config: the algorithm.
        setting: with the rows to score.
        models: member → this party's part of its model.
    """

    bookkeeping: ClassVar[type[Bookkeeping]] = _Books

    def __init__(self, config: AveragedConfiguration, setting: Setting, models: Mapping[str, object]) -> None:
        super().__init__(config, setting)
        self.config: AveragedConfiguration = config
        self._setting = setting
        self._models = models
        self.roles: dict[str, Role] = {}

    def build(self) -> None:
        algorithms, passive = self.config.list_algorithms(), len(self.site.passive)
        for name in self._models:
            algorithm = algorithms[method_of(name)]
            talks = bool(passive and algorithm.exchanges(self.protection, passive))
            self.roles[name] = self.build_member(algorithm, self._member_setting(name, talks=talks))
            self.roles[name].plan_and_build()
            self.parts[name] = _Member(self.roles[name])

    def _member_setting(self, name: str, *, talks: bool) -> Setting:
        """The setting of a member's role: its links and the batch size that its cut was made for."""
        model = as_dict(self._models[name])
        plan = replace(self.plan, batch_size=as_int(model["batch_size"]), epochs=as_int(model["times"]))
        site = submodel_context(self.site, name, talks=talks)
        table = self._setting.table
        if self.config.list_algorithms()[method_of(name)].view == "coded":
            table = table.name_numbers()
        return replace(self._setting, site=site, plan=plan, table=table, widest=as_int(model.get("widest", 0)))

    def build_member(self, algorithm: Algorithm, setting: Setting) -> Role:
        """Build the role of a member."""
        raise TypeError(f"{type(self).__name__} has no members")


class BestActive(_ScoringRole, ActiveRole):
    """Scores rows at the active party by the weighted mean of its members' probabilities."""

    bookkeeping = _ActiveBooks
    weights: Mapping[str, float]

    def build_member(self, algorithm: Algorithm, setting: Setting) -> ActiveRole:
        return algorithm.active(setting)

    def active_members(self) -> Mapping[str, ActiveRole]:
        """Name of the member → its role."""
        return {name: role for name, role in self.roles.items() if isinstance(role, ActiveRole)}

    async def train_batch(self, rows: np.ndarray) -> float | torch.Tensor:
        raise TypeError("members are trained by programs of their own")

    async def score(self, rows: np.ndarray) -> torch.Tensor:
        of_member = {
            name: self.task.compute_probabilities(await role.score(rows))
            for name, role in self.active_members().items()
        }
        return self._mean_logits(of_member, self.weights)

    def score_alone(self, rows: np.ndarray) -> torch.Tensor:
        """Logits of the mean over members that are trained for rows of the active party alone."""
        fit = [name for name in self.config.methods if scores_alone(self.config, name)]
        of_member = {
            name: self.task.compute_probabilities(role.score_alone(rows))
            for name, role in self.active_members().items()
            if method_of(name) in fit
        }
        return self._mean_logits(of_member, dict.fromkeys(fit, 1 / len(fit)))

    def _mean_logits(self, of_member: Mapping[str, np.ndarray], weights: Mapping[str, float]) -> torch.Tensor:
        """Logits, float64, of the weighted mean over methods of the mean over their members."""
        mean = [np.mean([p for one, p in of_member.items() if method_of(one) == name], axis=0) for name in weights]
        logs = (
            torch.from_numpy(average_probabilities(mean, list(weights.values())))
            .clamp_min(_TINY)
            .log()
            .to(self.plan.device)
        )
        return logs if self.task.classes > 2 else logs[:, 1:] - logs[:, :1]


class BestPassive(_ScoringRole, PassiveRole):
    """Answers the active party's questions for each member that exchanges messages."""

    def build_member(self, algorithm: Algorithm, setting: Setting) -> PassiveRole:
        return algorithm.passive(setting)

    async def train_batch(self, rows: np.ndarray) -> None:
        raise TypeError("members are trained by programs of their own")

    async def answer(self, rows: np.ndarray) -> None:
        for role in self.roles.values():
            if isinstance(role, PassiveRole):
                await role.answer(rows)


class _Member:
    """A member's role, wrapped as a part of the role that scores with all members.

    Args:
        role: the member's.
    """

    def __init__(self, role: Role) -> None:
        self._role = role

    async def setup(self) -> None:
        """See `Part.setup`."""
        await self._role.setup()

    def snapshot(self) -> object:
        """See `Part.snapshot`."""
        return self._role.books.snapshot()

    def restore(self, state: object) -> None:
        """See `Part.restore`."""
        self._role.books.restore(state)

    def get_state(self) -> State:
        """See `Part.get_state`."""
        return self._role.books.get_state()

    def load_state(self, state: State) -> None:
        """See `Part.load_state`."""
        self._role.books.load_state(state)
