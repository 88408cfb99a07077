"""RISA: reliable imputed-sample assisted VFL (arXiv 2501.06429).

1. *Impute*: a party that lacks a row feeds the mean of its aligned rows. This takes no message.
2. *Self-training*: a first split network, the teacher, labels the passive parties' other rows where it is confident.
3. *Evidential VFL*: a second network, the student, trains on all of these rows. Each party forms an opinion, and the
   active party fuses the opinions (`opinions`).
4. During training, rows whose fused opinion stays uncertain are dropped.

The opinions cross the cut layer separately (``reduce="none"``): each party's last linear layer is its block of the cut.

Self-training is off by default, because no rule showed a gain in our runs (docs/algorithms/risa.md).
`RISA.as_published()` turns it on, as in the paper. The rules *calibrated* and *balanced* and the switches
`imputed_views`, `warm_start`, `party_loss` and `sum_logits` are our additions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import Annotated, ClassVar, Generic, TypeVar

import numpy as np
import torch
from msgspec import Meta

from securevfl.algorithms.opinions import Evidence, EvidentialHalf, OpinionLoss
from securevfl.algorithms.splitnn import Active, Passive, SplitNN
from securevfl.cut import CutUse, Protection
from securevfl.errors import InputError
from securevfl.party_context import derive_seed
from securevfl.privacy import fan_out
from securevfl.privacy.loss import Loss
from securevfl.training.active_role import ActiveRole
from securevfl.training.bookkeeping import Bookkeeping
from securevfl.training.bottoms import Architecture
from securevfl.training.cut_noise import active_side
from securevfl.training.fits import Fits
from securevfl.training.frozen import rows_to_pretrain
from securevfl.training.halves import ActiveHalf, PassiveHalf
from securevfl.training.passive_role import PassiveRole
from securevfl.training.plan import Plan
from securevfl.training.pseudo_labels import Labelling, SelfTraining, answer_rows, give_labels, score_rows
from securevfl.training.received_tensors import checked_rows
from securevfl.training.role import Role
from securevfl.training.seeding import seed_torch
from securevfl.training.setting import Setting
from securevfl.training.state import State, as_dict, as_rows, as_tensor, kept_rows
from securevfl.training.task import Task
from securevfl.transport import ACTIVE, PASSIVE, Exchange, Kind, Sight

__all__ = ["RISA", "threshold_at"]

Share = Annotated[float, Meta(gt=0, le=1)]


class RISA(SplitNN):
    """Evidential split learning with imputed rows.

    Attributes:
        self_training: epochs of the teacher (step 2); 0 leaves the passive parties' other rows out.
        labelling: the rule by which the teacher labels: ``"confidence"``, the paper's; ``"calibrated"``, the same with
            probabilities tempered to fit held-out rows; ``"balanced"``, the surest rows of each class.
        confidence: least probability of a pseudo-label, τ_p; the paper gives no value. How many rows it labels depends
            on the data: the report counts the labels, and how many of them are right on held-out rows.
        labelled_share: share of a passive party's other rows that the rule ``"balanced"`` labels.
        held_out: share of the aligned training rows that the teacher does not train on. It scores them by one passive
            party's columns, as it scores the rows that it labels. This measures how many labels are right and fits the
            temperature. The student trains on these rows.
        imputed_views: whether the teacher also trains on aligned rows with the columns of one party, and on the active
            party's other rows. The paper's teacher trains on complete aligned rows, and then labels imputed ones.
        warm_start: whether the student starts from the teacher's bottoms (without evidence, from the whole teacher).
            In the paper it starts from new weights.
        evidential: step 3; False adds up the parties' parts, as SplitNN does.
        sum_logits: without evidence, adds up the parties' logits, with no network above them: a control that shows the
            cost of fusing opinions.
        evidence: how outputs become evidence: ``"exp"``, ``"softplus"`` or ``"relu"``. The paper names none. ReLU gives
            no gradient to an output below zero and scored eight points less than the others with RISA as published.
        party_loss: weight of each party's own opinion in the loss; 0 in the paper.
        uncertainty: final threshold τ_0 above which rows are dropped (step 4); 1 drops none.
        drop_every: E, epochs between two rounds of dropping.
    """

    name: ClassVar[str] = "risa"
    label: ClassVar[str] = "RISA"
    fits: ClassVar[Fits] = Fits(counts=True)
    uses_others: ClassVar[bool] = True
    self_training: Annotated[int, Meta(ge=0)] = 0
    labelling: Labelling = "confidence"
    confidence: Share = 0.9
    labelled_share: Share = 0.5
    held_out: Annotated[float, Meta(ge=0, le=0.5)] = 0.2
    imputed_views: bool = True
    warm_start: bool = True
    evidential: bool = True
    sum_logits: bool = False
    evidence: Evidence = "exp"
    party_loss: Annotated[float, Meta(ge=0, le=100)] = 0.5
    uncertainty: Share = 0.7
    drop_every: Annotated[int, Meta(ge=1)] = 2

    @classmethod
    def as_published(cls, **settings: object) -> RISA:
        """RISA as in its paper; other settings as given.

        The paper's teacher trains on complete aligned rows, its student starts from new weights, and single parties
        have no losses. The paper names no evidence function, τ_p, τ_0, E or length of the teacher's training: these
        values are our choice.
        """
        chosen: dict[str, object] = {
            "self_training": 5,
            "labelling": "confidence",
            "confidence": 0.9,
            "held_out": 0.0,
            "imputed_views": False,
            "warm_start": False,
            "party_loss": 0.0,
            "evidence": "exp",
            "uncertainty": 0.7,
            "drop_every": 1,
        }
        return cls(**chosen | settings)  # type: ignore[arg-type]

    def problems(self) -> list[str]:
        found = super().problems()
        if self.sum_logits and self.evidential:
            found += ["risa.sum_logits is true and so is evidential: opinions are fused, not added; choose one"]
        if self.labelling == "calibrated" and self.self_training and not self.held_out:
            found += ["risa.labelling is 'calibrated' and held_out is 0; a temperature needs rows: give 0.2"]
        return found

    def check_protection(self, protection: Protection) -> None:
        """See `Algorithm.check_protection`.

        Raises:
            InputError: the job asks for noise on gradients, and the rule uses exact labels to choose rows.
        """
        super().check_protection(protection)
        noised = protection.dp is not None and protection.dp.gradient_noise is not None
        if noised and self.self_training and self.labelling != "confidence":
            raise InputError(
                f"risa's rule {self.labelling!r} looks at exact labels, and what it chooses is told to passive "
                "parties: noise on gradients does not cover that. Use labelling = 'confidence', or draw the labels by "
                "sv.DP(labels=sv.RandomisedResponse(…))"
            )

    @property
    def least_epochs(self) -> int:
        return self.self_training + 1

    @property
    def cut(self) -> CutUse:
        """The teacher trains on and labels rows of one passive party, for which the other parties feed means."""
        return replace(super().cut, together=not self.evidential, alone=self.self_training > 0)

    def exchanges(self, protection: Protection, passive: int) -> tuple[Exchange, ...]:
        found = super().exchanges(protection, passive)
        if self.self_training and self.evidential:
            # The teacher's cut adds up the parties' parts, and may need messages that the student's cut does not.
            known = {(exchange.step, exchange.sender, exchange.receiver) for exchange in found}
            teachers = protection.exchanges(super().cut, passive)
            found += tuple(e for e in teachers if (e.step, e.sender, e.receiver) not in known)
        return (*found, *([_ROWS] if passive else []))

    def values_opened(self, plan: Plan) -> int:
        return min(self.hidden, 1 if plan.steps else plan.epochs)

    def student_architecture(self, architecture: Architecture, outputs: int) -> Architecture:
        """The student's architecture if parts are added up; its cut is as wide as the logits if the parts are
        logits."""
        return replace(architecture, hidden=outputs, top=None) if self.sum_logits else architecture

    def active(self, setting: Setting) -> ActiveRole:
        return _Active(self, setting)

    def passive(self, setting: Setting) -> PassiveRole:
        return _Passive(self, setting)


_ROWS = Exchange(
    "risa/rows",
    Kind.CONTROL,
    ACTIVE,
    PASSIVE,
    "which of its rows train, and how many others",
    reveals="which of its other rows were labelled with confidence, and which are dropped as uncertain; of the other "
    "parties' rows how many",
    severity="note",
    sights=(Sight(of="rows", severity="note", through="which rows train"),),
)


def threshold_at(final: float, epoch: int, epochs: int) -> float:
    """``τ_t = τ_0^(t/T)``: from 1 down to the final threshold."""
    return float(final ** (epoch / epochs))


_Half = TypeVar("_Half", bound=ActiveHalf | PassiveHalf)


class _StagedRole(Role, Generic[_Half]):
    """Base of both roles: the stages of training and the rows of each stage.

    Attributes:
        teacher: the network of the first stage; None without self-training.
        student: the network of the second stage, whose predictions count.
        half: the network in use.
        chosen: numbers of the rows of the second stage, once it has started.
        visible: whether this party sees each aligned row in this epoch's training, (aligned,); None for all of them.
    """

    config: RISA
    teacher: _Half | None = None
    student: _Half
    half: _Half
    chosen: np.ndarray | None = None
    visible: np.ndarray | None = None

    def training_rows(self, epoch: int) -> np.ndarray:
        if self.chosen is not None:
            return self.chosen
        train, own = self.table.split.train, self.table.rows_only_at(self.site.active)
        if self.config.self_training:
            train = np.setdiff1d(train, self.held_out_rows, assume_unique=True)
        whole_only = self.config.self_training and not self.config.imputed_views
        return train if whole_only else np.concatenate([train, own])

    @cached_property
    def held_out_rows(self) -> np.ndarray:
        """Numbers of the aligned training rows that the teacher does not train on, the same at all parties."""
        train = self.table.split.train
        count = min(round(self.config.held_out * len(train)), len(train) - 1)
        if not self.config.self_training or count < 1:
            return train[:0]
        generator = np.random.default_rng(derive_seed(self.site.seed, "held out"))
        return np.sort(generator.choice(train, size=count, replace=False))

    def held_by(self, name: str) -> np.ndarray:
        """Numbers of the held-out rows that the teacher scores by this passive party's columns alone.

        Each row belongs to one party, so that no row is released twice.
        """
        return self.held_out_rows[self.site.passive.index(name) :: len(self.site.passive)]

    def feed(self, rows: np.ndarray) -> np.ndarray:
        """`rows`, with those withheld that this party does not feed in this epoch; see `Features`."""
        if self.visible is None:
            return rows
        aligned = rows < len(self.visible)
        hidden = aligned & ~self.visible[np.where(aligned, rows, 0)]
        return np.where(hidden, rows + self.table.total_count, rows)

    def set_present(self, epoch: int) -> None:
        """Use the network that `epoch` trains, on the views that it trains on."""
        teaching = epoch <= self.config.self_training
        self.half = self.teacher if teaching and self.teacher is not None else self.student
        self.visible = self._draw_views(epoch) if teaching and self.config.imputed_views else None

    def _draw_views(self, epoch: int) -> np.ndarray:
        """Draw which aligned rows this party feeds: each row has all parties or a single one, at random."""
        order = [self.site.active, *self.site.passive]
        generator = np.random.default_rng(derive_seed(self.site.seed, "views", epoch))
        seen = generator.integers(
            0, len(order) + 1, size=self.table.aligned_count
        )  # 0: all parties; k: the k-th party alone
        visible: np.ndarray = (seen == 0) | (seen == 1 + order.index(self.site.name))
        return visible

    def starts_second_stage(self, epoch: int) -> bool:
        """Whether the second stage starts with `epoch`; its rows are then chosen."""
        return epoch == self.config.self_training + 1

    def drops_uncertain(self, epoch: int) -> bool:
        """Whether uncertain rows are dropped before `epoch`."""
        into = epoch - self.config.self_training - 1
        dropping = self.config.evidential and self.config.uncertainty < 1
        return dropping and into > 0 and into % self.config.drop_every == 0

    def warm_up(self) -> None:
        """Start the student from the teacher's weights."""
        if self.teacher is None or not self.config.warm_start:
            return
        if self.config.evidential or self.config.sum_logits:
            self.student.bottom.load_state_dict(self.teacher.bottom.state_dict())
        else:
            self.student.restore(self.teacher.snapshot())


class _Active(_StagedRole[ActiveHalf], Active):
    """Labels rows with the teacher, fuses opinions, and announces which rows train."""

    config: RISA
    half: ActiveHalf

    def build(self) -> None:
        self.features.fill = self.features.mean_row(self.table.split.train)
        self.y = self.y.clone()
        # With so many rows, steps take as many passes over them as planned; fewer would mean more releases of each.
        limited = self.protection.dp is not None and self.plan.steps is not None
        self.least = len(self.training_rows(1)) if limited else 1
        self.doubt = torch.zeros(
            (2, self.table.total_count), device=self.plan.device
        )  # for each row: the sum of its uncertainties, and their count
        self.tally = SelfTraining(self.config.confidence, self.config.labelling, self.config.labelled_share)
        self.books.tally = lambda: self.tally if self.site.passive else None
        self.books.after_validation.append(self._assess_labels)
        if self.config.self_training:
            with seed_torch(self.seed("teacher")):
                self.teacher = super().build_half(self.config.build_architecture(self.task.outputs))
            self.parts["teacher"] = self.teacher
        super().build()
        self.student = self.half

    def build_half(self, architecture: Architecture) -> ActiveHalf:
        if not self.config.evidential:
            return super().build_half(self.config.student_architecture(architecture, self.task.outputs))
        classes, passive = self.task.classes, len(self.site.passive)
        spec = replace(self.config.cut_spec(self, classes), reduce="none")
        architecture, cut = replace(architecture, hidden=classes), active_side(self, spec)
        half = EvidentialHalf(architecture, cut, spec, passive, self.features.row_shape, classes)
        half.kind = self.config.evidence
        return half

    def build_loss(self) -> Loss:
        dp, weight = self.protection.dp, self.config.party_loss
        noised = dp is not None and dp.gradient_noise is not None and bool(self.site.passive)
        if noised or not weight or not self.config.evidential:
            return super().build_loss()
        return OpinionLoss(self.task.classes, weight, self._local_opinions)

    def _local_opinions(self) -> Sequence[torch.Tensor]:
        return self.half.opinions if isinstance(self.half, EvidentialHalf) else ()

    async def begin_epoch(self, epoch: int) -> bool:
        self.set_present(epoch)
        if self.starts_second_stage(epoch):
            await self.choose_rows()
            self.warm_up()
            return True
        if self.drops_uncertain(epoch):
            before = self.config.self_training
            await self.drop_uncertain_rows(
                threshold_at(self.config.uncertainty, epoch - before - 1, self.plan.epochs - before)
            )
        return False

    async def choose_rows(self) -> None:
        """Label the passive parties' other rows where the teacher is confident (step 2), and announce the training
        rows."""
        chosen = [self.table.split.train, self.table.rows_only_at(self.site.active)]
        if self.teacher is not None:
            self.half = self.teacher
            parts: tuple[list[np.ndarray], ...] = ([], [], [], [])
            held, held_p, others, p = parts
            for name in self.site.passive:
                held.append(self.held_by(name))
                held_p.append(
                    await score_rows(self, held[-1] + self.table.total_count)
                )  # as if the active party lacked them
                others.append(self.table.rows_only_at(name))
                p.append(await score_rows(self, others[-1]))
            self.half = self.student
            if self.site.passive:
                chosen.append(self.label_rows(*map(np.concatenate, parts)))
        await self.announce_rows(np.concatenate(chosen))

    def label_rows(self, held: np.ndarray, held_p: np.ndarray, rows: np.ndarray, p: np.ndarray) -> np.ndarray:
        """Label `rows` by the configuration's rule; return the numbers of the labelled ones.

        Args:
            held: numbers of held-out aligned rows, (m,).
            held_p: their probabilities by one passive party's columns, (m, classes).
            rows: numbers of rows without labels, (n,).
            p: their probabilities, (n, classes).
        """
        y = self.labels(held).cpu().numpy()
        known = (
            self.labels(np.concatenate([self.table.split.train, self.table.rows_only_at(self.site.active)]))
            .cpu()
            .numpy()
        )
        counts = np.bincount(known[known >= 0], minlength=self.task.classes)
        self.tally.shares = [float(share) for share in counts / max(counts.sum(), 1)]
        self.tally.calibrate(held_p, y)
        found = give_labels(self, rows, p, self.tally)
        self.tally.assess_held_out(held_p, y)
        return found

    async def drop_uncertain_rows(self, most: float) -> None:
        """Drop rows whose mean uncertainty since the last call exceeds `most` (step 4).

        Raises:
            ValueError: no rows are chosen yet.
        """
        if self.chosen is None:
            raise ValueError("rows are dropped before any are chosen")
        mean = (self.doubt[0] / self.doubt[1].clamp_min(1)).cpu().numpy()[self.chosen]
        floor = np.partition(mean, self.least - 1)[self.least - 1] if self.least <= len(mean) else np.inf
        self.doubt.zero_()
        certain = self.chosen[mean <= max(most, float(floor))]
        self.tally.dropped += len(self.chosen) - len(certain)
        await self.announce_rows(certain)

    async def announce_rows(self, rows: np.ndarray) -> None:
        """Train on these rows from now on, at all parties.

        Each party learns which of its own rows train, and how many rows of others.
        """
        self.chosen = rows
        told = {name: self.table.known_to(name, rows) for name in self.site.passive}
        await fan_out(self.site.other_links, lambda link: link.send(Kind.CONTROL, "risa/rows", rows=told[link.peer]))

    async def train_batch(self, rows: np.ndarray) -> float | torch.Tensor:
        loss = await super().train_batch(rows)
        if isinstance(self.half, EvidentialHalf):
            index = torch.from_numpy(rows).to(self.doubt.device, non_blocking=True)
            self.doubt[0, index] += self.half.uncertainty
            self.doubt[1, index] += 1
        return loss

    def remember(self) -> State:
        learned: State = {"y": self.y.clone(), "doubt": self.doubt.clone()}
        return learned | {"chosen": kept_rows(self.chosen), "tally": self.tally.get_state()}

    def recall(self, memory: State) -> None:
        self.y, self.doubt = (as_tensor(memory[name]).clone().to(self.plan.device) for name in ("y", "doubt"))
        self.chosen = as_rows(memory["chosen"])
        self.tally.load_state(as_dict(memory["tally"]))

    def _assess_labels(self, p: np.ndarray, labels: np.ndarray) -> None:
        if self.half is self.teacher:
            self.tally.assess_validation(p, labels)


class _PassiveBooks(Bookkeeping):
    """A withheld row has a second number; see `Features`."""

    def release_rows(self) -> int:
        return 2 * self.role.table.total_count


class _Passive(_StagedRole[PassiveHalf], Passive):
    """Forms an opinion of each row, and trains on the rows that the active party announces."""

    bookkeeping = _PassiveBooks
    config: RISA
    half: PassiveHalf

    def build(self) -> None:
        if self.config.self_training:
            with seed_torch(self.seed("teacher")):
                self.teacher = super().build_half(self.config.build_architecture(Task(self.table.classes).outputs))
            self.parts["teacher"] = self.teacher
        super().build()
        self.student = self.half
        if self.noise.release is None:  # with noise, zeros: an exact mean would be a further release of every row
            self.features.fill = self.features.mean_row(self.table.split.train)

    def build_half(self, architecture: Architecture) -> PassiveHalf:
        if not self.config.evidential:
            return super().build_half(self.config.student_architecture(architecture, Task(self.table.classes).outputs))
        spec = replace(self.config.cut_spec(self, self.table.classes), reduce="none")
        own = rows_to_pretrain(self)
        return PassiveHalf(architecture, self.site, spec, self.protection, self.features.row_shape, own)

    async def begin_epoch(self, epoch: int) -> bool:
        self.set_present(epoch)
        if self.starts_second_stage(epoch) and self.teacher is not None:
            self.half = self.teacher
            for name in self.site.passive:
                lacking = 0 if name == self.site.name else self.table.total_count
                await answer_rows(self, self.held_by(name) + lacking)
                await answer_rows(self, self.table.rows_only_at(name))
            self.half = self.student
        if self.starts_second_stage(epoch) or self.drops_uncertain(epoch):
            message = await self.upstream.receive(Kind.CONTROL, "risa/rows", "rows")
            self.chosen = checked_rows(message.arrays["rows"], self.table.total_count, self.upstream.peer)
        if self.starts_second_stage(epoch):
            self.warm_up()
        return False

    def remember(self) -> State:
        return {"chosen": kept_rows(self.chosen)}

    def recall(self, memory: State) -> None:
        self.chosen = as_rows(memory["chosen"])
