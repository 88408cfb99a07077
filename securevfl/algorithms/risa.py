"""RISA: reliable imputed-sample assisted VFL (arXiv 2501.06429).

1. *Impute*: of a row that it lacks, a party takes the mean of its own aligned rows. Nothing is sent for it.
2. *Self-training*: a split network, trained first, labels the passive parties' other rows where it is sure.
3. *Evidential VFL*: each party forms an opinion, the active party fuses them (`opinions`).
4. Rows whose opinion stays uncertain are dropped as training goes on.

The parties' opinions cross the cut layer one by one (``reduce="none"``): their last linear layer is the cut.

Beside the paper's method stand four switches: `imputed_views`, `warm_start`, `party_loss`, and evidence by ``exp``;
docs/figures.md has each of them switched off. `RISA.as_published()` is the paper's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import torch
from torch import nn

from securevfl.algorithms.base import ActiveRole, PassiveRole, Plan, Table, seeded
from securevfl.algorithms.halves import ActiveHalf, Architecture, PassiveHalf, State, as_dict, as_list, as_tensor
from securevfl.algorithms.leakage import Finding, at_the_cut
from securevfl.algorithms.opinions import EVIDENCE, evidence, fuse_all, opinion, probabilities
from securevfl.algorithms.splitnn import Active, Passive, SplitNN
from securevfl.cut import CutSpec, Protection
from securevfl.errors import InputError, ProtocolError, UnknownNameError
from securevfl.site import Site, derive_seed
from securevfl.transport import Kind

__all__ = ["RISA", "threshold"]


@dataclass(frozen=True, kw_only=True)
class RISA(SplitNN):
    """Configuration of RISA.

    Attributes:
        self_training: epochs of the network that labels (step 2); 0 leaves the passive parties' other rows out.
        confidence: least probability of a pseudo-label, the paper's τ_p.
        imputed_views: the labelling network also trains on aligned rows seen by one party only and on the active
            party's other rows; the paper's trains on whole aligned rows, and then labels imputed ones.
        warm_start: the second network begins with what the labelling one learned: its bottoms and, without evidence,
            the whole of it. In the paper it begins anew.
        evidential: step 3; False adds the parties' parts up as SplitNN does.
        evidence: ``"exp"``, ``"softplus"`` or ``"relu"``.
        party_loss: weight of each party's own opinion in the loss; 0 in the paper.
        uncertainty: final threshold τ_0 above which rows are dropped (step 4); 1 drops none.
        drop_every: epochs between two droppings, the paper's E.
    """

    name: ClassVar[str] = "risa"
    uses_others: ClassVar[bool] = True
    self_training: int = 5
    confidence: float = 0.98
    imputed_views: bool = True
    warm_start: bool = True
    evidential: bool = True
    evidence: str = "exp"
    party_loss: float = 0.5
    uncertainty: float = 0.7
    drop_every: int = 5

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.evidence not in EVIDENCE:
            raise UnknownNameError("risa.evidence", self.evidence, EVIDENCE)
        if self.self_training < 0 or self.drop_every < 1:
            raise InputError(
                f"risa.self_training is {self.self_training} and drop_every {self.drop_every}; epochs from 0 and from 1"
            )
        for name in ("confidence", "uncertainty"):
            if not 0 < getattr(self, name) <= 1:
                raise InputError(f"risa.{name} is {getattr(self, name)}; it lies between 0 and 1")
        if not 0 <= self.party_loss <= 100:
            raise InputError(f"risa.party_loss is {self.party_loss}; a weight lies between 0 and 100")

    @classmethod
    def as_published(cls, **settings: object) -> RISA:
        """RISA as its paper has it; other settings as given."""
        chosen = {"imputed_views": False, "warm_start": False, "party_loss": 0.0, "evidence": "relu"} | settings
        return cls(**chosen)  # type: ignore[arg-type]

    @property
    def title(self) -> str:
        return "RISA"

    @property
    def least_epochs(self) -> int:
        return self.self_training + 1

    def active(self, site: Site, plan: Plan, protection: Protection, table: Table) -> ActiveRole:
        return _Active(self, site, plan, protection, table)

    def passive(self, site: Site, plan: Plan, protection: Protection, table: Table) -> PassiveRole:
        return _Passive(self, site, plan, protection, table)

    def findings(self, protection: Protection, passive: Sequence[str], active: str) -> list[Finding]:
        found = at_the_cut(
            protection, active=active, passive=passive, trainable=self.trainable, together=not self.evidential
        )
        if self.evidential and len(passive) > 1 and protection.policy().sealed:
            found += [
                Finding(active, name, "its opinion of each row by itself, not only the sum of all parties'", "note")
                for name in passive
            ]
        chosen = "which of its other rows were labelled with confidence, and which are dropped as uncertain"
        return found + [Finding(name, active, chosen, "note") for name in passive]


def threshold(final: float, epoch: int, epochs: int) -> float:
    """``τ_t = τ_0^(t/T)``: from 1 down to the final threshold."""
    return float(final ** (epoch / epochs))


class _EvidentialHalf(ActiveHalf):
    """The active party's half, where each party's part of the cut is an opinion of its own."""

    kind: str = "exp"
    uncertainty: torch.Tensor
    parts: list[torch.Tensor]

    def build_top(self, architecture: Architecture, passive: int, outputs: int) -> nn.Module:
        """A bias for each passive party's evidence."""
        return nn.ParameterList([nn.Parameter(torch.zeros(architecture.hidden)) for _ in range(passive)])

    def join(self, remote: torch.Tensor, own: torch.Tensor) -> torch.Tensor:
        outputs = [own] + [part + bias for part, bias in zip(remote, self.top.parameters(), strict=True)]
        opinions = [opinion(evidence(output, self.kind)) for output in outputs]
        whole = fuse_all(opinions)
        self.uncertainty = whole[1].detach()
        self.parts = [_logits(probabilities(single)) for single in opinions]
        return _logits(probabilities(whole))


def _logits(p: torch.Tensor) -> torch.Tensor:
    """Numbers whose softmax (or, of two classes, sigmoid) is `p`; their cross entropy is equation 6."""
    log = torch.log(p.clamp_min(1e-12))
    return log if p.shape[-1] > 2 else log[..., 1:] - log[..., :1]


class _Stages:
    """What both roles share: which epochs are which stage, and which rows each trains on."""

    config: RISA
    table: Table
    site: Site
    half: ActiveHalf | PassiveHalf
    teacher: ActiveHalf | PassiveHalf | None
    learner: ActiveHalf | PassiveHalf
    chosen: np.ndarray | None = None

    def snapshot(self) -> object:
        return [self.half.snapshot(), None if self.teacher is None else self.teacher.snapshot()]

    def restore(self, state: object) -> None:
        half, teacher = as_list(state)
        self.half.restore(half)
        if self.teacher is not None:
            self.teacher.restore(teacher)
        self.learner = self.half

    def state(self) -> State:
        teacher = None if self.teacher is None else self.teacher.state()
        chosen = None if self.chosen is None else torch.from_numpy(self.chosen)
        return {"half": self.half.state(), "teacher": teacher, "chosen": chosen}

    def load(self, state: State) -> None:
        self.half.load(as_dict(state["half"]))
        if self.teacher is not None:
            self.teacher.load(as_dict(state["teacher"]))
        chosen = state["chosen"]
        self.chosen = chosen.numpy().copy() if isinstance(chosen, torch.Tensor) else None
        self.learner = self.half

    def begins(self, epoch: int) -> bool:
        return epoch == self.config.self_training + 1

    def teaching(self, epoch: int) -> bool:
        return epoch <= self.config.self_training

    def rows_of(self, table: Table, epoch: int) -> np.ndarray:
        if self.chosen is not None:
            return self.chosen
        own = table.others(self.site.active)
        whole_only = self.config.self_training and not self.config.imputed_views
        return table.split.train if whole_only else np.concatenate([table.split.train, own])

    def views(self, epoch: int) -> np.ndarray:
        """For each aligned row, which party sees it in the first stage: 0 for all, else the party's place."""
        order = [self.site.active, *self.site.passive]
        generator = np.random.default_rng(derive_seed(self.site.seed, "views", epoch))
        seen = generator.integers(0, len(order) + 1, size=self.table.aligned)
        mine = 1 + order.index(self.site.name)
        visible: np.ndarray = (seen == 0) | (seen == mine)
        return visible

    def warm_up(self, half: ActiveHalf | PassiveHalf, teacher: ActiveHalf | PassiveHalf | None) -> None:
        """Begin with what the labelling network learned."""
        if teacher is None or not self.config.warm_start:
            return
        if self.config.evidential:
            half.bottom.load_state_dict(teacher.bottom.state_dict())
        else:
            half.restore(teacher.snapshot())

    def imputed(self) -> list[tuple[str, np.ndarray]]:
        """The passive parties' other rows."""
        return [(name, self.table.others(name)) for name in self.site.passive]


class _Active(_Stages, Active):
    config: RISA
    half: ActiveHalf

    def __init__(self, config: RISA, site: Site, plan: Plan, protection: Protection, table: Table) -> None:
        self.config = config
        super().__init__(config, site, plan, protection, table)
        dp = protection.dp
        self.fill = self.x[torch.from_numpy(table.split.train)].mean(dim=0, keepdim=True)
        self.y = self.y.clone()
        # With so many rows, steps take as many passes over them as planned; fewer would mean more releases of each.
        self.least = len(self.rows_of(table, 1)) if dp is not None and plan.steps is not None else 1
        self.teacher: ActiveHalf | None = None
        noise = 0.0 if self.release is None else self.release.sigma
        if config.self_training:
            usual = SplitNN.architecture(config, self.task.outputs)
            times = self.activation_times(config.trainable)
            spec = config.cut_spec(usual.hidden, self.plan, dp, times, self.label_times())
            with seeded(self.seed("teacher")):
                self.teacher = ActiveHalf(usual, site, spec, protection, noise, self.x.shape[1:], self.task.outputs)
        self.doubt = torch.zeros((2, table.rows))

    def build_half(self, architecture: Architecture, spec: CutSpec, noise: float) -> ActiveHalf:
        if not self.config.evidential:
            return super().build_half(architecture, spec, noise)
        architecture, spec = _evidential(architecture, spec, self.table.classes)
        shape = self.x.shape[1:]
        half = _EvidentialHalf(architecture, self.site, spec, self.protection, noise, shape, self.table.classes)
        half.kind = self.config.evidence
        return half

    def training_rows(self, table: Table, epoch: int) -> np.ndarray:
        return self.rows_of(table, epoch)

    async def setup(self) -> None:
        if self.teacher is not None:
            await self.teacher.setup()
        await self.half.setup()

    def may_stop(self, epoch: int) -> bool:
        return not self.teaching(epoch)

    async def begin_epoch(self, epoch: int) -> bool:
        self.learner = self.teacher if self.teaching(epoch) and self.teacher is not None else self.half
        self.visible = self.views(epoch) if self.teaching(epoch) and self.config.imputed_views else None
        if self.begins(epoch):
            await self._choose()
            self.warm_up(self.half, self.teacher)
            return True
        into = epoch - self.config.self_training - 1
        last = self.plan.epochs - self.config.self_training
        if into > 0 and into % self.config.drop_every == 0 and self.config.uncertainty < 1 and self.config.evidential:
            await self._drop(threshold(self.config.uncertainty, into, last))
        return False

    async def _choose(self) -> None:
        """Label the passive parties' other rows where the teacher is sure (step 2), and tell which rows train."""
        rows = [self.table.split.train, self.table.others(self.site.active)]
        if self.teacher is not None:
            self.visible = None
            for _, others in self.imputed():
                for part in _chunks(others, self.plan.eval_rows):
                    with torch.no_grad():
                        a = self.teacher.bottom(self.features(part))
                    p = self.task.probabilities(await self.teacher.forward(a, train=False))
                    sure = p.max(axis=1) >= self.config.confidence
                    self.y[torch.from_numpy(part[sure])] = torch.from_numpy(p.argmax(axis=1)[sure]).to(self.y)
                    rows.append(part[sure])
        await self._tell(np.concatenate(rows))

    async def _drop(self, most: float) -> None:
        """Leave out rows whose uncertainty, on average since the last time, exceeds `most` (step 4)."""
        if self.chosen is None:
            raise ValueError("rows are left out before any were chosen")
        mean = (self.doubt[0] / self.doubt[1].clamp_min(1)).numpy()[self.chosen]
        floor = np.partition(mean, self.least - 1)[self.least - 1] if self.least <= len(mean) else np.inf
        self.doubt.zero_()
        await self._tell(self.chosen[mean <= max(most, float(floor))])

    async def _tell(self, rows: np.ndarray) -> None:
        self.chosen = rows
        for link in self.site.others:
            await link.send(Kind.CONTROL, "risa/rows", rows=rows)

    def activations(self, rows: np.ndarray) -> torch.Tensor:
        x = self.features(rows)
        if self.visible is not None:
            x = _hide(x, rows, self.visible, self.fill)
        a: torch.Tensor = self.learner.bottom(x)
        return a

    async def train_batch(self, rows: np.ndarray) -> float | torch.Tensor:
        half, self.half = self.half, self.learner
        try:
            loss = await super().train_batch(rows)
        finally:
            self.half = half
        if isinstance(self.learner, _EvidentialHalf):
            index = torch.from_numpy(rows)
            self.doubt[0, index] += self.learner.uncertainty.cpu()
            self.doubt[1, index] += 1
        return loss

    def losses(self, logits: torch.Tensor, rows: np.ndarray) -> torch.Tensor:
        losses = super().losses(logits, rows)
        if isinstance(self.learner, _EvidentialHalf) and self.config.party_loss and self.release is None:
            target = self.targets(rows)
            own = torch.stack([self.task.losses(part, target) for part in self.learner.parts])
            losses = losses + self.config.party_loss * own.sum(dim=0)
        return losses

    async def score(self, rows: np.ndarray) -> torch.Tensor:
        hidden, self.visible = self.visible, None
        with torch.no_grad():
            a = self.activations(rows)
        self.visible = hidden
        return await self.learner.forward(a, train=False)

    learner: ActiveHalf
    visible: np.ndarray | None = None

    def state(self) -> State:
        return {**super().state(), "y": self.y.clone(), "doubt": self.doubt.clone()}

    def load(self, state: State) -> None:
        super().load(state)
        y, doubt = as_tensor(state["y"]), as_tensor(state["doubt"])
        if len(y) == len(self.y):
            self.y, self.doubt = y.clone(), doubt.clone()
        else:  # a model that is used on other rows than it was trained on
            self.chosen = None


class _Passive(_Stages, Passive):
    config: RISA
    half: PassiveHalf

    def __init__(self, config: RISA, site: Site, plan: Plan, protection: Protection, table: Table) -> None:
        self.config = config
        super().__init__(config, site, plan, protection, table)
        if self.release is None:  # else zeros: a mean in the clear would be one more release of every row
            self.fill = self.x[torch.from_numpy(table.split.train)].mean(dim=0, keepdim=True)
        self.teacher: PassiveHalf | None = None
        if config.self_training:
            architecture, spec, noise = self._usual
            with seeded(self.seed("teacher")):
                self.teacher = PassiveHalf(architecture, site, spec, protection, noise, self.x.shape[1:])
        self.learner = self.half

    def build_half(self, architecture: Architecture, spec: CutSpec, noise: float) -> PassiveHalf:
        self._usual = (architecture, spec, noise)
        if self.config.evidential:
            architecture, spec = _evidential(architecture, spec, self.table.classes)
        return super().build_half(architecture, spec, noise)

    def training_rows(self, table: Table, epoch: int) -> np.ndarray:
        return self.rows_of(table, epoch)

    def release_rows(self) -> int:
        """Numbers of all rows, and as many again for the same rows hidden."""
        return 2 * self.table.rows

    async def setup(self) -> None:
        if self.teacher is not None:
            await self.teacher.setup()
        await self.half.setup()
        self.learner = self.half

    async def begin_epoch(self, epoch: int) -> bool:
        self.learner = self.teacher if self.teaching(epoch) and self.teacher is not None else self.half
        self.visible = self.views(epoch) if self.teaching(epoch) and self.config.imputed_views else None
        into = epoch - self.config.self_training - 1
        drops = into > 0 and into % self.config.drop_every == 0
        if self.begins(epoch):
            self.visible = None
            for _, others in self.imputed() if self.teacher is not None else ():
                for part in _chunks(others, self.plan.eval_rows):
                    self.learner = self.teacher or self.half
                    await self.answer(part)
            self.learner = self.half
        if self.begins(epoch) or (drops and self.config.uncertainty < 1 and self.config.evidential):
            message = await self.site.links[self.site.active].receive(Kind.CONTROL, "risa/rows", "rows")
            self.chosen = checked_rows(np.asarray(message.arrays["rows"]), self.table.rows, self.site.active)
        if self.begins(epoch):
            self.warm_up(self.half, self.teacher)
        return False

    def activations(self, rows: np.ndarray) -> torch.Tensor:
        x = self.features(rows)
        if self.visible is not None:
            x = _hide(x, rows, self.visible, self.fill)
        a: torch.Tensor = self.learner.bottom(x)
        if self.release is None:
            return a
        hidden = np.zeros(len(rows), bool) if self.visible is None else _hidden(rows, self.visible)
        return self.release(a, np.where(hidden, rows + self.table.rows, rows))

    async def train_batch(self, rows: np.ndarray) -> None:
        a = self.activations(rows)
        await self.learner.forward(a, train=True)
        await self.learner.backward(a)

    async def answer(self, rows: np.ndarray) -> None:
        hidden, self.visible = self.visible, None
        with torch.no_grad():
            a = self.activations(rows)
        self.visible = hidden
        await self.learner.forward(a, train=False)

    visible: np.ndarray | None = None


def _evidential(architecture: Architecture, spec: CutSpec, classes: int) -> tuple[Architecture, CutSpec]:
    """The cut as wide as the classes, each party's part by itself."""
    return replace(architecture, hidden=classes), replace(spec, width=classes, reduce="none")


def _hide(x: torch.Tensor, rows: np.ndarray, visible: np.ndarray, fill: torch.Tensor) -> torch.Tensor:
    """`x` with `fill` in the aligned rows that are not visible."""
    found = x.clone()
    found[torch.from_numpy(_hidden(rows, visible))] = fill
    return found


def _hidden(rows: np.ndarray, visible: np.ndarray) -> np.ndarray:
    aligned = rows < len(visible)
    hidden: np.ndarray = aligned & ~visible[np.where(aligned, rows, 0)]
    return hidden


def _chunks(rows: np.ndarray, size: int) -> list[np.ndarray]:
    return [rows[start : start + size] for start in range(0, len(rows), size)]


def checked_rows(rows: np.ndarray, count: int, sender: str) -> np.ndarray:
    """Row numbers from a peer.

    Raises:
        ProtocolError: something else, numbers that do not exist, or one twice.
    """
    if rows.dtype != np.int64 or rows.ndim != 1 or not len(rows) or rows.min() < 0 or rows.max() >= count:
        raise ProtocolError(f"{sender!r} names rows to train on that are no numbers from 0 to {count - 1}")
    if len(np.unique(rows)) != len(rows):
        raise ProtocolError(f"{sender!r} names a row to train on twice")
    return rows
