"""SFHTL: semi-supervised federated heterogeneous transfer learning (Feng et al., Knowledge-Based Systems 252, 109384,
2022), which RISA's paper compares with.

We had the paper's abstract only, without any equation. It states that parties differ in rows and features, that aligned
rows alone overfit, and that the unlabelled rows of *all* parties expand the training set of *each* party and improve
its local model. This is the simplest method that does so; the equations are ours:

1. every party has an encoder e_p into one common space, and a decoder g_p back to its features;
2. ``R_p = mean ‖g_p(e_p(x)) − x‖²`` over all rows of the party, labelled or not, computed locally;
3. ``D = mean Σ_p ‖e_a(x) − e_p(x)‖²`` over the aligned rows, between the active party a and each passive one;
4. one classifier f of the common space labels a row from each party's view of it, and from the mean of all views:
   ``C = mean over views of −log f(y)``;
5. after `first` epochs, f labels the passive parties' other rows from their own views where it is confident, and these
   rows also train.

The loss is ``C + δ D + ρ Σ R_p``. The mean of the available views scores a row.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, ClassVar

import numpy as np
import torch
from msgspec import Meta
from torch import nn

from securevfl.cut import Protection
from securevfl.errors import InputError, ProtocolError
from securevfl.privacy import Noised, fan_out, map_noised, strip_noise_mark
from securevfl.training.active_role import ActiveRole
from securevfl.training.algorithm import Algorithm, Subsets
from securevfl.training.bottoms import HANDED_OVER, Bottom, bottom_problems
from securevfl.training.halves import Networks
from securevfl.training.networks import build_active_block, build_bottom, build_mlp
from securevfl.training.noise import FeatureNoise
from securevfl.training.passive_role import PassiveRole
from securevfl.training.pseudo_labels import SelfTraining, give_labels
from securevfl.training.received_tensors import checked_rows, read_tensor
from securevfl.training.representations import handing_over
from securevfl.training.role import Role
from securevfl.training.seeding import seed_torch
from securevfl.training.setting import Setting
from securevfl.training.split import split_chunks
from securevfl.training.state import State, as_dict, as_rows, as_tensor, kept_rows
from securevfl.transport import ACTIVE, PASSIVE, Exchange, Kind, Sight, to_device

__all__ = ["SFHTL", "mean_view"]

Weight = Annotated[float, Meta(ge=0, le=1000)]


class SFHTL(Algorithm):
    """Semi-supervised transfer learning in a space common to all parties.

    Attributes:
        bottom: each party's encoder, as wide as the others': widths, or the name of a convolutional one; needs
            parameters.
        lr: Adam's learning rate, everywhere.
        weight_decay: L2 penalty.
        distance: δ, the weight of the distance between the views of a row.
        reconstruction: ρ, the weight of each party's reconstruction.
        first: epochs before the passive parties' other rows are labelled; 0 labels none.
        confidence: least probability of such a label.
    """

    name: ClassVar[str] = "sfhtl"
    label: ClassVar[str] = "SFHTL"
    uses_others: ClassVar[bool] = True
    subsets: ClassVar[Subsets] = "alone"
    reveals: ClassVar[str] = "sends the passive parties' representations to the active party"
    bottom: Bottom = (64,)
    lr: Annotated[float, Meta(gt=0, le=100)] = 0.003
    weight_decay: Annotated[float, Meta(ge=0, lt=1)] = 0.0
    distance: Weight = 0.01
    reconstruction: Weight = 0.1
    first: Annotated[int, Meta(ge=0, le=1_000_000)] = 5
    confidence: Annotated[float, Meta(gt=0, le=1)] = 0.9

    def problems(self) -> list[str]:
        found = super().problems() + bottom_problems(self.bottom, f"{self.name}.bottom", not_frozen=HANDED_OVER)
        if not self.bottom:
            found += [f"{self.name}.bottom is (), which would send the features themselves: give widths, or 'cnn'"]
        return found

    @property
    def least_epochs(self) -> int:
        return self.first + 1

    def check_protection(self, protection: Protection) -> None:
        """See `Algorithm.check_protection`.

        Raises:
            InputError: the job asks for noise on gradients, which depend on the labels in two ways.
        """
        super().check_protection(protection)
        if protection.dp is not None and protection.dp.gradient_noise is not None:
            raise InputError(
                f"{self.name} has no differential privacy on gradients, for its classifier trains on exact labels "
                "before gradients go back: use sv.DP(features=sv.Gaussian(…)) without labels, for noise on "
                "representations, or labels=sv.RandomisedResponse(…)"
            )

    def exchanges(self, protection: Protection, passive: int) -> tuple[Exchange, ...]:
        if not passive:
            return ()
        features = "its learned representations of each of its rows that trains, in every step, and of its others once"
        gradient = "the gradient at its representations, for each row and step"
        found = handing_over(
            self.name,
            protection.dp,
            features=features,
            labels=gradient,
            passive=passive,
            beside=f"{gradient}: it tells of the mean of all parties' representations",
        )
        if self.first:
            labelled = "which of its other rows were labelled with confidence; of the other parties' rows how many"
            words = "which rows train, and how many others"
            seen = Sight(of="rows", severity="note", through="which rows train")
            found += (
                Exchange(
                    "sfhtl/rows",
                    Kind.CONTROL,
                    ACTIVE,
                    PASSIVE,
                    words,
                    reveals=labelled,
                    severity="note",
                    sights=(seen,),
                ),
            )
        return found

    def active(self, setting: Setting) -> ActiveRole:
        return _Active(self, setting)

    def passive(self, setting: Setting) -> PassiveRole:
        return _Passive(self, setting)


def mean_view(views: Sequence[torch.Tensor], there: Sequence[torch.Tensor]) -> torch.Tensor:
    """The mean of each row's available views, (n, d).

    Args:
        views: each party's representations, (n, d), anything where it lacks the row.
        there: for each party whether it has each row, (n,) bool; some party has it.
    """
    count = torch.stack(list(there)).sum(dim=0)
    held = [torch.where(has[:, None], view, 0.0) for view, has in zip(views, there, strict=True)]
    return torch.stack(held).sum(dim=0) / count[:, None]


class _Party(Role):
    """Base of all roles: an encoder, a decoder, and the draw of the same rows.

    Attributes:
        bottom: the encoder.
        decoder: back to the features, flat.
        width: d of the common space.
        networks: all that the party trains.
        chosen: training rows, once the passive parties' other rows are labelled.
    """

    config: SFHTL
    networks: Networks
    chosen: np.ndarray | None = None

    def training_rows(self, epoch: int) -> np.ndarray:
        if self.chosen is not None:
            return self.chosen
        return np.concatenate([self.table.split.train, self.table.rows_only_at(self.site.active)])

    def labels_others(self, epoch: int) -> bool:
        """Whether the passive parties' other rows are labelled before `epoch`."""
        return bool(self.config.first and self.site.passive) and epoch == self.config.first + 1

    def has_rows(self, party: str, rows: np.ndarray) -> np.ndarray:
        """Which of these rows `party` has, (n,) bool."""
        found: np.ndarray = (rows < self.table.aligned_count) | np.isin(rows, self.table.rows_only_at(party))
        return found

    def build_networks(self, *more: nn.Module) -> None:
        """Make encoder and decoder, and train them and `more`."""
        with seed_torch(self.seed("model")):
            self.bottom, self.width = build_bottom(self.config.bottom, self.features.row_shape)
            self.decoder = build_mlp([self.width, self.features.row_shape.numel()]) if self.width else nn.Identity()
        model = nn.ModuleList([self.bottom, self.decoder, *more])
        self.networks = Networks(model, self.config.lr, self.config.weight_decay, self.plan.device)
        self.parts["networks"] = self.networks

    def draw_rows(self, epoch: int) -> None:
        """Start an epoch's draws of rows to reconstruct."""
        self.rows = np.concatenate([self.table.split.train, self.table.rows_only_at(self.site.name)])
        self.generator = np.random.default_rng(self.seed("reconstruction", epoch))

    def reconstruction_loss(self) -> torch.Tensor:
        """ρ R_p of some of this party's rows."""
        if not self.width or not self.config.reconstruction:
            return torch.zeros((), device=self.plan.device)
        x = self.features(self.generator.choice(self.rows, min(self.nominal_batch, len(self.rows)), replace=False))
        error: torch.Tensor = (self.decoder(self.bottom(x)) - x.flatten(1)).square().mean()
        return self.config.reconstruction * error


class _Active(_Party, ActiveRole):
    """Has the labels and the classifier, and computes C and D.

    Attributes:
        classifier: f.
        seen: passive party → its views of the rows scored last, by their numbers, (rows, d).
    """

    def build(self) -> None:
        super().build_networks()
        self.y = self.y.clone()
        self.tally = SelfTraining(self.config.confidence)
        self.books.tally = lambda: self.tally if self.site.passive and self.config.first else None
        empty = torch.zeros(self.table.total_count, self.width, device=self.plan.device)
        self.seen = {name: empty.clone() for name in self.site.passive}
        with seed_torch(self.seed("classifier")):
            classifier = build_active_block(self.width, self.task.outputs)
        self.classifier = Networks(classifier, self.config.lr, self.config.weight_decay, self.plan.device)
        self.parts["classifier"] = self.classifier

    async def setup(self) -> None:
        await super().setup()
        for name in self.site.passive:
            message = await self.site.links[name].receive(Kind.CONTROL, "sfhtl/width")
            width = message.meta.get("width")
            if width != self.width:
                raise ProtocolError(
                    f"{name!r} has representations {width!r} wide, {self.site.name!r} {self.width}: the common space "
                    "has one width; give all the same bottom"
                )

    async def begin_epoch(self, epoch: int) -> bool:
        if self.labels_others(epoch):
            await self.label_others()
        self.draw_rows(epoch)
        return False

    async def label_others(self) -> None:
        """Label the passive parties' other rows from their own views where the classifier is confident (step 5).

        Validation rows, scored from the same views, measure how many labels are right.
        """
        found, valid = [self.training_rows(1)], self.table.split.valid
        for name in self.site.passive:
            for part in split_chunks(self.table.rows_only_at(name), self.plan.eval_rows):
                p = self.classify_view(await self.receive_representations(name, len(part)))
                found.append(give_labels(self, part, p, self.tally))
            self.tally.assess_held_out(self.classify_view(self.seen[name][valid]), self.labels(valid).cpu().numpy())
        self.chosen = np.concatenate(found)
        told = {name: self.table.known_to(name, self.chosen) for name in self.site.passive}
        await fan_out(self.site.other_links, lambda link: link.send(Kind.CONTROL, "sfhtl/rows", rows=told[link.peer]))

    def classify_view(self, view: torch.Tensor) -> np.ndarray:
        """Probabilities (n, classes) by the classifier of one party's view, (n, d)."""
        with torch.no_grad():
            return self.task.compute_probabilities(self.classifier.model(view))

    async def train_batch(self, rows: np.ndarray) -> torch.Tensor:
        views, there = [self.bottom(self.features(rows))], [self.has_rows(self.site.name, rows)]
        received = {}
        for name in self.site.passive:
            has = self.has_rows(name, rows)
            if has.any():
                theirs = (await self.receive_representations(name, int(has.sum()))).requires_grad_()
                received[name] = theirs
                at = to_device(np.maximum(np.cumsum(has) - 1, 0), theirs.device)
                views.append(theirs[at])
                there.append(has)
        loss = self.compute_objective(views, there, self.labels(rows))
        self.networks.optimizer.zero_grad(set_to_none=True)
        self.classifier.step(loss + self.reconstruction_loss())
        self.networks.optimizer.step()
        for name, theirs in received.items():
            gradient = torch.zeros_like(theirs) if theirs.grad is None else theirs.grad
            await self.site.links[name].send(Kind.GRADIENT, "sfhtl/gradient", gradient=gradient)
        return loss.detach() * len(rows)

    def compute_objective(self, views: list[torch.Tensor], there: list[np.ndarray], y: torch.Tensor) -> torch.Tensor:
        """``C + δ D``, means over rows.

        Args:
            views: each party's representations, (n, d), the active party's first.
            there: for each party whether it has each row, (n,) bool, on the host: a GPU would wait for each mask.
            y: classes, (n,).
        """
        together = np.stack(there).sum(axis=0) > 1
        masks = [to_device(has, y.device) for has in there]
        seen = [*zip(views, there, strict=True), (mean_view(views, masks), together)]
        total = torch.zeros((), device=y.device)
        for view, has in seen:
            if has.any():
                at = to_device(np.flatnonzero(has), y.device)
                logits = self.classifier.model(view[at])
                total = total + self.loss(self.label_noise.correct_logits(logits), y[at]).sum()
        total = total / sum(int(has.sum()) for _, has in seen)
        for view, has in zip(views[1:], there[1:], strict=True):
            both = has & there[0]
            if both.any():
                apart = (view - views[0])[to_device(np.flatnonzero(both), y.device)]
                total = total + self.config.distance * apart.square().sum(dim=1).mean()
        return total

    async def receive_representations(self, name: str, rows: int) -> torch.Tensor:
        """Receive a party's representations of this many rows, (rows, d)."""
        message = await self.site.links[name].receive(Kind.REPRESENTATION, "sfhtl/representations", "e")
        return read_tensor(message.arrays["e"], (rows, self.width), name, self.plan.device)

    async def score(self, rows: np.ndarray) -> torch.Tensor:
        theirs = {name: await self.receive_representations(name, len(rows)) for name in self.site.passive}
        if self.chosen is None:
            for name, view in theirs.items():
                self.seen[name][torch.from_numpy(rows).to(view.device)] = view
        with torch.no_grad():
            views = [self.bottom(self.features(rows)), *theirs.values()]
            logits: torch.Tensor = self.classifier.model(torch.stack(views).mean(dim=0))
        return logits

    def score_alone(self, rows: np.ndarray) -> torch.Tensor:
        """Logits (n, outputs) from the active party's own view, without any message."""
        with torch.no_grad():
            logits: torch.Tensor = self.classifier.model(self.bottom(self.features(rows)))
        return logits

    def remember(self) -> State:
        learned: State = {"y": self.y.clone(), "chosen": kept_rows(self.chosen), "tally": self.tally.get_state()}
        valid = self.table.split.valid
        return learned | {"seen": {name: view[valid].clone() for name, view in self.seen.items()}}

    def recall(self, memory: State) -> None:
        self.y = as_tensor(memory["y"]).to(self.plan.device).clone()
        for name, view in as_dict(memory["seen"]).items():
            self.seen[name][self.table.split.valid] = as_tensor(view).to(self.plan.device)
        self.chosen = as_rows(memory["chosen"])
        self.tally.load_state(as_dict(memory["tally"]))


class _Passive(_Party, PassiveRole):
    """Sends its view of the rows that it has, and receives the gradient."""

    def build(self) -> None:
        self.noise = FeatureNoise(self)
        self.build_networks()
        if self.site.observer.listening:
            self.site.observer.network_built(self.site.name, self.site.active, self.bottom)

    async def setup(self) -> None:
        await super().setup()
        await self.upstream.send(Kind.CONTROL, "sfhtl/width", meta={"width": self.width})

    async def begin_epoch(self, epoch: int) -> bool:
        if self.labels_others(epoch):
            for part in split_chunks(self.table.rows_only_at(self.site.name), self.plan.eval_rows):
                await self.answer(part)
            message = await self.upstream.receive(Kind.CONTROL, "sfhtl/rows", "rows")
            self.chosen = checked_rows(message.arrays["rows"], self.table.total_count, self.upstream.peer)
        self.draw_rows(epoch)
        return False

    def activations(self, rows: np.ndarray, *, train: bool) -> torch.Tensor | Noised[torch.Tensor]:
        """This party's view of these rows, (n, d), clipped and noised where the job says so."""
        return self.noise(self.bottom(self.features(rows)), rows)

    async def hand_over(self, e: torch.Tensor | Noised[torch.Tensor]) -> None:
        """Send representations, (n, d)."""
        await self.upstream.send(Kind.REPRESENTATION, "sfhtl/representations", e=map_noised(e, torch.Tensor.detach))

    async def train_batch(self, rows: np.ndarray) -> None:
        mine = rows[self.has_rows(self.site.name, rows)]
        loss = self.reconstruction_loss()
        if len(mine):
            e = self.activations(mine, train=True)
            await self.hand_over(e)
            message = await self.upstream.receive(Kind.GRADIENT, "sfhtl/gradient", "gradient")
            shape = tuple(strip_noise_mark(e).shape)
            gradient = read_tensor(message.arrays["gradient"], shape, self.upstream.peer, self.plan.device)
            if self.site.observer.listening:
                self.site.observer.values_opened(self.site.name, self.site.active, "gradient", gradient, train=True)
            loss = loss + (strip_noise_mark(e) * gradient).sum()
        if loss.requires_grad:
            self.networks.step(loss)

    async def answer(self, rows: np.ndarray) -> None:
        with torch.no_grad():
            e = self.activations(rows, train=False)
        await self.hand_over(e)

    def remember(self) -> State:
        return {"chosen": kept_rows(self.chosen)}

    def recall(self, memory: State) -> None:
        self.chosen = as_rows(memory["chosen"])
