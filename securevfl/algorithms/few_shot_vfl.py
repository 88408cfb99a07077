"""One-shot and few-shot VFL: two or three uploads, one or two downloads (Sun et al., ICCV 2023, arXiv 2303.16270).

*One-shot*, for each passive party:

1. it uploads the representations of the aligned training rows by a bottom that has learned nothing yet;
2. the active party puts a classifier above them and hands back the gradient of its loss at each representation;
3. gradients of one class point alike: k-means gives each row a group, and groups stand for the labels that the party
   does not have;
4. it trains its bottom by itself, on the aligned rows towards their groups and on its other rows by FixMatch;
5. it uploads the representations once more, and the active party trains the classifier on them.

*Few-shot* goes on: the passive parties upload the representations of their other rows too, the active party estimates
what the other parties lack of them by attention over the aligned rows (SDPA), labels those on which a classifier of the
one party and a classifier of all of them agree with confidence, and hands back gradients for these rows as well. Steps
3 and 4 are done again on more rows, and a third upload follows.

In the paper a server has the labels and all parties are clients. Here the active party is the server and the client
that has the labels: it trains its own bottom on them, on all of its rows, and needs no groups.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, ClassVar

import numpy as np
import torch
from msgspec import Meta
from torch import nn

from securevfl.algorithms.fedcvt import attend
from securevfl.algorithms.fixmatch import cluster, fixmatch, purity, strong, weak
from securevfl.cut import Protection
from securevfl.cut.leakage import handed_over, labels_drawn
from securevfl.errors import InputError, ProtocolError
from securevfl.privacy import Noised, fan_out, mapped
from securevfl.site import derive_seed
from securevfl.training.algorithm import Algorithm, Looks, Subsets
from securevfl.training.halves import Networks
from securevfl.training.networks import Bottom, block, bottom_problems, build_bottom, mlp
from securevfl.training.noise import FeatureNoise
from securevfl.training.pseudo_labels import SelfTraining
from securevfl.training.received import checked_rows, received
from securevfl.training.role import ActiveRole, PassiveRole, Role, Setting, seeded
from securevfl.training.rows import Plan
from securevfl.training.state import State, as_dict, as_flag, as_int, as_list, as_rows, as_tensor, kept_rows
from securevfl.transport import ACTIVE, PASSIVE, Exchange, Kind

__all__ = ["FewShotVFL", "agreed"]

Share = Annotated[float, Meta(gt=0, le=1)]
Count = Annotated[int, Meta(ge=1, le=1_000_000)]
REPRESENTATIONS, GRADIENT = "representations, FedCVT", "gradient at the representations"
"""What ``measured.json`` calls such messages: the gate attacks those of FedCVT, which are of the same kind."""


class FewShotVFL(Algorithm):
    """Configuration of one-shot and few-shot VFL.

    Attributes:
        few_shot: whether there is a second round; False is the paper's one-shot VFL.
        bottom: of each party: widths, or the name of a convolutional one; needs parameters.
        top: widths of the classifier's hidden layers.
        lr: Adam's learning rate, everywhere.
        weight_decay: L2 penalty.
        local_steps: steps that each party trains its bottom by itself, in each round.
        confidence: τ of FixMatch at the passive parties.
        unlabelled: λ_u, the weight of rows without a group there.
        masked: share of a table's columns that the augmentation replaces by their means.
        noise: standard deviation of the strong augmentation, in units of standardised columns.
        agreement: t, least probability that each of two classifiers gives to a label of the active party's.
        temperature: T, by which similarities are divided before the softmax of the attention.
    """

    name: ClassVar[str] = "few_shot_vfl"
    label: ClassVar[str] = "few-shot VFL"
    uses_others: ClassVar[bool] = True
    subsets: ClassVar[Subsets] = "alone"
    reveals: ClassVar[str] = "hands the passive parties' representations to the active one"
    few_shot: bool = True
    bottom: Bottom = (64,)
    top: tuple[Annotated[int, Meta(ge=1, le=1 << 16)], ...] = ()
    lr: Annotated[float, Meta(gt=0, le=100)] = 0.003
    weight_decay: Annotated[float, Meta(ge=0, lt=1)] = 0.0
    local_steps: Count = 250
    confidence: Share = 0.95
    unlabelled: Annotated[float, Meta(ge=0, le=100)] = 1.0
    masked: Annotated[float, Meta(ge=0, lt=1)] = 0.2
    noise: Annotated[float, Meta(ge=0, le=100)] = 0.5
    agreement: Share = 0.9
    temperature: Annotated[float, Meta(gt=0, le=100)] = 1.0

    @property
    def title(self) -> str:
        return self.label if self.few_shot else "one-shot VFL"

    @property
    def uploads(self) -> int:
        """How often a passive party sends representations to train with: the most releases of a row."""
        return 3 if self.few_shot else 2

    def problems(self) -> list[str]:
        found = super().problems() + bottom_problems(self.bottom, f"{self.name}.bottom")
        if not self.bottom:
            found += [f"{self.name}.bottom is (); it would hand over the features themselves: give widths, or 'cnn'"]
        return found

    def check(self, protection: Protection) -> None:
        """See `Algorithm.check`.

        Raises:
            InputError: differential privacy on gradients.
        """
        super().check(protection)
        if protection.dp is not None and protection.dp.gradients is not None:
            raise InputError(
                f"{self.name} has no differential privacy on gradients, for those of the second round come from "
                "classifiers that are trained on exact labels: use sv.DP(features=sv.Gaussian(…)) without labels, for "
                "noise on representations, or labels=sv.RandomisedResponse(…)"
            )

    def looks(self, protection: Protection, plan: Plan, passive: int) -> Looks:
        return Looks(features=self.uploads, labels=self.uploads - 1)

    def exchanges(self, protection: Protection, passive: int) -> tuple[Exchange, ...]:
        if not passive:
            return ()
        dp = protection.dp
        noised = dp is not None and dp.activations is not None
        whose = "of its rows, aligned or not," if self.few_shot else "of its aligned rows"
        times = "three times" if self.few_shot else "twice"
        told = handed_over(dp, f"its representations {whose} {times}, and of each row that is scored", REPRESENTATIONS)
        what = "the gradient at its representations, for each training row once in a round"
        labels = labels_drawn(dp, what, GRADIENT, parties=passive)
        beside = "the gradient at its representations: it tells what a classifier makes of all parties' together"
        found = [
            Exchange("few_shot_vfl/width", Kind.CONTROL, PASSIVE, ACTIVE, "width of the representations"),
            *(
                Exchange(
                    f"few_shot_vfl/{step}",
                    Kind.REPRESENTATION,
                    PASSIVE,
                    ACTIVE,
                    words,
                    reveals=told.text,
                    severity=told.severity,
                    noised=noised,
                )
                for step, words in (("upload", "representations to train with"), ("answer", "representations to score"))
            ),
            Exchange(
                "few_shot_vfl/gradient",
                Kind.GRADIENT,
                ACTIVE,
                PASSIVE,
                "gradient at the representations",
                reveals=labels.text,
                severity=labels.severity,
                of_others=beside if passive > 1 else "",
                others_severity="leak" if passive > 1 else "ok",
            ),
        ]
        if self.few_shot:
            labelled = "which of its other rows were labelled with confidence; of the other parties' rows how many"
            found += [
                Exchange(
                    "few_shot_vfl/rows",
                    Kind.CONTROL,
                    ACTIVE,
                    PASSIVE,
                    "which rows train, and how many others",
                    reveals=labelled,
                    severity="note",
                )
            ]
        return tuple(found)

    def active(self, setting: Setting) -> ActiveRole:
        return _Active(self, setting)

    def passive(self, setting: Setting) -> PassiveRole:
        return _Passive(self, setting)


def agreed(one: np.ndarray, two: np.ndarray) -> np.ndarray:
    """What two classifiers say together: where both give a row the same class, the less sure probability of each class;
    zeros where they differ. Probabilities (n, k) each → (n, k), whose rows do not sum to one."""
    same = one.argmax(axis=1) == two.argmax(axis=1)
    found: np.ndarray = np.where(same[:, None], np.minimum(one, two), 0.0)
    return found


class _Shots(Role):
    """What both sides share.

    Attributes:
        met: whether the uploads are over; validation rows were part of the last one.
        chosen: rows that the classifier trains on, once the second round says so.
    """

    config: FewShotVFL
    met = False
    chosen: np.ndarray | None = None

    def new_networks(self, model: nn.Module) -> Networks:
        """A part of this party's that learns."""
        return Networks(model, self.config.lr, self.config.weight_decay, self.plan.device)

    def training_rows(self, epoch: int) -> np.ndarray:
        if self.chosen is not None:
            return self.chosen
        train, own = self.table.split.train, self.table.others(self.site.active)
        return np.concatenate([train, own]) if self.config.few_shot else train

    def activation_times(self, epochs: int) -> int:
        return self.config.uploads

    def uploaded(self, party: str, shot: int, labelled: np.ndarray) -> np.ndarray:
        """Numbers of the rows of a passive party's upload number `shot`, from 1: always the aligned ones that train; in
        the second of three its other rows; in the last those that were labelled, and the validation rows."""
        split = self.table.split
        if shot == self.config.uploads:
            return np.concatenate([split.train, labelled, split.valid])
        return np.concatenate([split.train, self.table.others(party)]) if shot == 2 else split.train

    def known(self, rows: np.ndarray) -> bool:
        """Whether the active party has all parties' representations of these rows already."""
        return self.met and bool(np.isin(rows, self.table.split.valid).all())


class _Active(_Shots, ActiveRole):
    """The server, and the client that has the labels.

    Attributes:
        h: party → its representations of all numbered rows, estimated where it lacks a row, (rows, d).
    """

    def build(self) -> None:
        with seeded(self.seed("model")):
            self.bottom, self.width = build_bottom(self.config.bottom, self.features.shape)
            self.head = block(self.width, self.task.outputs)
        self.own = self.new_networks(nn.ModuleList([self.bottom, self.head]))
        self.parts["own"] = self.own
        self.h: dict[str, torch.Tensor] = {}
        self.y = self.y.clone()
        self.tally = SelfTraining(self.config.agreement)
        self.pure: list[float] = []

    async def setup(self) -> None:
        await super().setup()
        self.widths = {self.site.active: self.width}
        for name in self.site.passive:
            message = await self.site.links[name].receive(Kind.CONTROL, "few_shot_vfl/width")
            width = message.meta.get("width")
            if not isinstance(width, int) or not 1 <= width <= 1 << 16:
                raise ProtocolError(f"{name!r} has representations {width!r} wide; 1 to {1 << 16} are possible")
            self.widths[name] = width
        self.classifier = self.build_classifier("classifier", list(self.widths))
        self.parts["classifier"] = self.classifier

    def build_classifier(self, label: str, parties: Sequence[str]) -> Networks:
        """A new classifier of these parties' representations, side by side."""
        with seeded(self.seed(label)):
            inputs = sum(self.widths[name] for name in parties)
            return self.new_networks(mlp([inputs, *self.config.top, self.task.outputs]))

    def joined(self, rows: np.ndarray, parties: Sequence[str] | None = None) -> torch.Tensor:
        """Representations of these rows, side by side, (n, sum of d)."""
        at = torch.from_numpy(rows).to(self.plan.device)
        return torch.cat([self.h[name][at] for name in parties or self.widths], dim=1)

    async def begin_epoch(self, epoch: int) -> bool:
        if epoch == 1:
            await self.meet()
        return False

    async def meet(self) -> None:
        """All rounds, the first to the last upload."""
        self.h = {
            name: torch.zeros(self.table.rows, width, device=self.plan.device) for name, width in self.widths.items()
        }
        none = {name: np.arange(0) for name in self.site.passive}
        self.represent()
        await self.take_uploads(1, none)
        await self.hand_back(1, none)
        self.learn()
        self.represent()
        await self.take_uploads(2, none)
        if self.config.few_shot:
            labelled = self.expand()
            self.chosen = np.concatenate([self.training_rows(1), *labelled.values()])
            told = {name: self.table.known_to(name, self.chosen) for name in self.site.passive}
            await fan_out(
                self.site.others, lambda link: link.send(Kind.CONTROL, "few_shot_vfl/rows", rows=told[link.peer])
            )
            await self.hand_back(2, labelled)
            await self.take_uploads(3, labelled)
            self.estimate()
        self.met = True

    def represent(self) -> None:
        """This party's own representations, of all rows that it has."""
        mine = self.features.own()
        mine = mine[mine < self.table.rows]
        with torch.no_grad():
            self.h[self.site.active][torch.from_numpy(mine)] = self.bottom(self.features(mine))

    async def take_uploads(self, shot: int, labelled: dict[str, np.ndarray]) -> None:
        """Receive upload number `shot` of each passive party into `h`."""
        for name in self.site.passive:
            rows = self.uploaded(name, shot, labelled[name])
            self.h[name][torch.from_numpy(rows)] = await self.receive(name, "upload", len(rows))

    async def receive(self, name: str, step: str, rows: int) -> torch.Tensor:
        """A party's representations of so many rows, (rows, d)."""
        message = await self.site.links[name].receive(Kind.REPRESENTATION, f"few_shot_vfl/{step}", "h")
        return received(message.arrays["h"], (rows, self.widths[name]), name, self.plan.device)

    async def hand_back(self, shot: int, labelled: dict[str, np.ndarray]) -> None:
        """The gradient of a new classifier's loss at each passive party's representations of its training rows. A new
        one, for it is as unsure of one row as of the other: what differs between gradients is the class."""
        classifier = self.build_classifier(f"gradient {shot}", list(self.widths)).model
        for name in self.site.passive:
            rows = np.concatenate([self.table.split.train, labelled[name]])
            at = torch.from_numpy(rows).to(self.plan.device)
            parts = {peer: self.h[peer][at].clone().requires_grad_() for peer in self.widths}
            logits = classifier(torch.cat(list(parts.values()), dim=1))
            loss = self.loss(self.label_noise.correct(logits), self.labels(rows)).sum()
            (gradient,) = torch.autograd.grad(loss, parts[name])
            seed = derive_seed(self.site.seed, "groups", name, shot)
            self.pure.append(purity(cluster(gradient, self.task.classes, seed), self.labels(rows)))
            await self.site.links[name].send(Kind.GRADIENT, "few_shot_vfl/gradient", gradient=gradient)

    def learn(self) -> None:
        """Train this party's bottom on all rows that it has labels of."""
        rows = np.concatenate([self.table.split.train, self.table.others(self.site.active)])
        self.fit(self.own, rows, lambda some: self.head(self.bottom(self.features(some))), "own")

    def fit(
        self, networks: Networks, rows: np.ndarray, model: Callable[[np.ndarray], torch.Tensor], label: str
    ) -> None:
        """Train on these rows and their labels for `local_steps` steps; `model` gives the logits of row numbers."""
        generator = np.random.default_rng(self.seed("batches", label))
        size = min(self.nominal_batch, len(rows))
        for _ in range(self.config.local_steps):
            some = generator.choice(rows, size, replace=False)
            logits = model(some)
            networks.step(self.loss(self.label_noise.correct(logits), self.labels(some)).mean())

    def estimate(self) -> None:
        """Estimate what each party lacks by attention from the party that has the row, over the aligned rows."""
        train = torch.from_numpy(self.table.split.train)
        for holder in self.widths:
            others = torch.from_numpy(self.table.others(holder))
            for lacking in self.widths:
                if lacking != holder and len(others):
                    query, keys, values = self.h[holder][others], self.h[holder][train], self.h[lacking][train]
                    self.h[lacking][others] = attend(query, keys, values, self.config.temperature)

    def expand(self) -> dict[str, np.ndarray]:
        """Label the passive parties' other rows where two classifiers agree; their numbers."""
        self.estimate()
        found = {}
        for name in self.site.passive:
            others = self.table.others(name)
            p = agreed(self.fitted([name], others), self.fitted(list(self.widths), others))
            sure = self.tally.look(p)
            found[name] = others[sure]
            self.y[torch.from_numpy(found[name])] = torch.from_numpy(p.argmax(axis=1)[sure]).to(self.y)
        return found

    def fitted(self, parties: Sequence[str], rows: np.ndarray) -> np.ndarray:
        """Probabilities (n, classes) of these rows by a classifier of these parties' representations that is trained
        on the aligned rows."""
        label = "+".join(parties)
        networks = self.build_classifier(label, parties)

        def logits(some: np.ndarray) -> torch.Tensor:
            found: torch.Tensor = networks.model(self.joined(some, parties))
            return found

        self.fit(networks, self.table.split.train, logits, label)
        with torch.no_grad():
            return self.task.probabilities(logits(rows))

    async def train_batch(self, rows: np.ndarray) -> torch.Tensor:
        logits = self.classifier.model(self.joined(rows))
        loss = self.loss(self.label_noise.correct(logits), self.labels(rows)).sum()
        self.classifier.step(loss / self.plan.batch_size)
        return loss.detach()

    async def score(self, rows: np.ndarray) -> torch.Tensor:
        if self.known(rows):
            found = self.joined(rows)
        else:
            with torch.no_grad():
                own = self.bottom(self.features(rows))
            found = torch.cat([own, *[await self.receive(name, "answer", len(rows)) for name in self.site.passive]], 1)
        with torch.no_grad():
            logits: torch.Tensor = self.classifier.model(found)
        return logits

    def score_alone(self, rows: np.ndarray) -> torch.Tensor:
        """Logits (n, outputs) by the active party's own classifier; no message."""
        with torch.no_grad():
            logits: torch.Tensor = self.head(self.bottom(self.features(rows)))
        return logits

    def remember(self) -> State:
        learned: State = {"y": self.y.clone(), "h": {name: h.clone() for name, h in self.h.items()}}
        learned |= {"chosen": kept_rows(self.chosen), "met": self.met}
        return learned | {"pure": list(self.pure), "tally": self.tally.state()}

    def recall(self, memory: State) -> None:
        self.y = as_tensor(memory["y"]).to(self.plan.device).clone()
        self.h = {name: as_tensor(h).to(self.plan.device) for name, h in as_dict(memory["h"]).items()}
        self.chosen, self.met = as_rows(memory["chosen"]), as_flag(memory["met"])
        self.pure = [float(share) for share in as_list(memory["pure"])]
        self.tally.load(as_dict(memory["tally"]))

    def self_training(self) -> SelfTraining | None:
        return self.tally if self.site.passive and self.config.few_shot else None

    def closing_notes(self) -> list[str]:
        if not self.pure:
            return []
        shares = ", ".join(f"{100 * share:.0f} %" for share in self.pure)
        return [
            "k-means of the gradients that went back groups the training rows by their labels: this share of them is "
            f"of the most frequent label of its group, for each message: {shares}"
        ]


class _Passive(_Shots, PassiveRole):
    """A client without labels: it uploads, groups its rows by the gradients, and trains by itself.

    Attributes:
        sure: in how many of its other rows the model that it trained last is confident.
    """

    sure = 0

    def build(self) -> None:
        self.noise = FeatureNoise(self)
        with seeded(self.seed("model")):
            self.bottom, self.width = build_bottom(self.config.bottom, self.features.shape)
            self.bottom.to(self.plan.device)
        self.own = self.new_networks(self.bottom)
        self.parts["own"] = self.own
        if self.site.observer.listening:
            self.site.observer.built(self.site.name, self.site.active, self.bottom)

    async def setup(self) -> None:
        await super().setup()
        await self.upstream.send(Kind.CONTROL, "few_shot_vfl/width", meta={"width": self.width})

    async def begin_epoch(self, epoch: int) -> bool:
        if epoch == 1:
            await self.meet()
        return False

    async def meet(self) -> None:
        """All rounds, the first to the last upload."""
        labelled = np.arange(0)
        await self.upload(1, labelled)
        await self.improve(1, labelled)
        await self.upload(2, labelled)
        if self.config.few_shot:
            labelled = await self.hear_rows()
            await self.improve(2, labelled)
            await self.upload(3, labelled)
        self.met = True

    async def hear_rows(self) -> np.ndarray:
        """Which rows the classifier trains on; of this party's others, those that the active party labelled."""
        message = await self.upstream.receive(Kind.CONTROL, "few_shot_vfl/rows", "rows")
        self.chosen = checked_rows(message.arrays["rows"], self.table.rows, self.upstream.peer)
        return self.chosen[np.isin(self.chosen, self.table.others(self.site.name))]

    async def improve(self, shot: int, labelled: np.ndarray) -> None:
        """Receive the gradient of each training row, group the rows by it, and train on the groups."""
        rows = np.concatenate([self.table.split.train, labelled])
        message = await self.upstream.receive(Kind.GRADIENT, "few_shot_vfl/gradient", "gradient")
        array = message.arrays["gradient"]
        gradient = received(array, (len(rows), self.width), self.upstream.peer, self.plan.device)
        if self.site.observer.listening:
            self.site.observer.opened(self.site.name, self.site.active, "gradient", gradient, train=True)
        seed = derive_seed(self.site.seed, "groups", self.site.name, shot)
        self.learn(rows, cluster(gradient, self.table.classes, seed), shot)

    def learn(self, rows: np.ndarray, groups: torch.Tensor, shot: int) -> None:
        """Train the bottom by FixMatch: towards the groups of these rows, and without groups on the others."""
        config, table = self.config, self.table
        others = np.setdiff1d(table.others(self.site.name), rows)
        mean = self.features(np.concatenate([table.split.train, table.others(self.site.name)])).mean(
            dim=0, keepdim=True
        )
        generator = np.random.default_rng(self.seed("batches", shot))
        with seeded(self.seed("learn", shot)):
            model = nn.Sequential(self.bottom, block(self.width, table.classes)).to(self.plan.device)
            networks = self.new_networks(model)
            for _ in range(config.local_steps):
                some = generator.choice(len(rows), min(self.nominal_batch, len(rows)), replace=False)
                x = weak(self.features(rows[some]), mean, config.masked)
                more = self.features(generator.choice(others, min(self.nominal_batch, len(others)), replace=False))
                twins = weak(more, mean, config.masked), strong(more, mean, config.masked, config.noise)
                loss = fixmatch(
                    model,
                    (x, groups[torch.from_numpy(some)]),
                    twins,
                    confidence=config.confidence,
                    weight=config.unlabelled,
                )
                networks.step(loss)
        with torch.no_grad():
            p = torch.softmax(model(self.features(table.others(self.site.name))), dim=1)
        self.sure = int((p.amax(dim=1) >= config.confidence).sum()) if len(p) else 0

    def activations(self, rows: np.ndarray) -> torch.Tensor | Noised[torch.Tensor]:
        """The representations of these rows, (n, d), clipped and noised where the job says so."""
        return self.noise(self.bottom(self.features(rows)), rows)

    async def upload(self, shot: int, labelled: np.ndarray) -> None:
        """Hand over representations to train with."""
        rows = self.uploaded(self.site.name, shot, labelled)
        self.site.observer.batch(self.site.name, self.site.active, 1, rows)
        await self.hand_over("upload", rows)

    async def hand_over(self, step: str, rows: np.ndarray) -> None:
        """Send the representations of these rows."""
        with torch.no_grad():
            h = mapped(self.activations(rows), torch.Tensor.detach)
        await self.upstream.send(Kind.REPRESENTATION, f"few_shot_vfl/{step}", h=h)

    async def train_batch(self, rows: np.ndarray) -> None:
        """Nothing: the active party has all that it trains with."""

    async def answer(self, rows: np.ndarray) -> None:
        if not self.known(rows):
            await self.hand_over("answer", rows)

    def remember(self) -> State:
        return {"met": self.met, "sure": self.sure, "chosen": kept_rows(self.chosen)}

    def recall(self, memory: State) -> None:
        self.met, self.sure = as_flag(memory["met"]), as_int(memory["sure"])
        self.chosen = as_rows(memory["chosen"])

    def closing_notes(self) -> list[str]:
        others = len(self.table.others(self.site.name))
        return [
            f"{self.site.name!r} is confident ({self.config.confidence:g} or more) in the group of {self.sure:,} of "
            f"its {others:,} other rows: these train its bottom without a label or a gradient of their own"
        ]
