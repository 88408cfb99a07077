"""FedCVT: semi-supervised VFL with cross-view training (Kang et al. 2022, arXiv 2008.10838).

Each of two parties has two bottoms: R_u for what is unique to it, R_c for what both share; ``R = [R_c; R_u]``.
Attention over the representations of other rows estimates missing ones (equations 5 and 6). Three classifiers label the
passive party's other rows where all of them agree (section 5.3).

The passive party sends its representations to the active one, which computes all losses and returns the gradients. The
method therefore reveals representations by design. The paper leaves L_sim open: here it is the squared inner product of
a row's two representations. The product of the batch matrices, ‖R_uᵀR_c‖², drove both to zero in our trials.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Annotated, ClassVar, Literal

import numpy as np
import torch
from msgspec import Meta
from torch import nn
from torch.nn import functional

from securevfl.algorithms.attention import apply_attention, apply_polynomial_attention
from securevfl.cut import Protection
from securevfl.errors import InputError, ProtocolError
from securevfl.party_context import derive_seed
from securevfl.privacy import Noised, map_noised, strip_noise_mark
from securevfl.training.active_role import ActiveRole
from securevfl.training.algorithm import Algorithm, Subsets
from securevfl.training.bookkeeping import Bookkeeping
from securevfl.training.bottoms import HANDED_OVER, Bottom, bottom_problems
from securevfl.training.halves import Networks
from securevfl.training.networks import build_bottom
from securevfl.training.noise import FeatureNoise
from securevfl.training.passive_role import PassiveRole
from securevfl.training.pseudo_labels import SelfTraining
from securevfl.training.received_tensors import read_tensor
from securevfl.training.representations import handing_over
from securevfl.training.role import Role
from securevfl.training.seeding import seed_torch
from securevfl.training.setting import Setting
from securevfl.training.split import epoch_batches
from securevfl.training.state import State, as_dict, as_int
from securevfl.transport import Exchange, Kind

__all__ = ["FedCVT", "similarity_loss"]

Weight = Annotated[float, Meta(ge=0)]


class FedCVT(Algorithm):
    """Cross-view training of two parties, with estimated representations.

    Attributes:
        bottom: widths of each of a party's two networks, or the name of a convolutional network; not ``()``.
        lr: Adam's learning rate, at both parties.
        weight_decay: L2 penalty.
        weights: λ1 … λ5 of the objective (equation 12): L_diff^AB, L_diff^A, L_diff^B, L_sim^A, L_sim^B.
        confidence: t, least probability that each of the three classifiers gives to a pseudo-label.
        temperature: T; the attention divides similarities by it before the softmax.
        estimate: whether rows that are not aligned take part. False trains on aligned rows only, with L_diff and L_sim.
        cross_view: whether pseudo-labels are used.
        similarity: of two rows in the attention: ``"softmax"`` as in the paper, or ``"polynomial"``, the square of the
            inner product over the sum of these, without an exponential and without `temperature`.
        own_key: whether an aligned row is among the keys of its own estimate, so that the estimate is close to a copy.
            The paper does not say.
        representations: ``"both"``, or only the ``"unique"`` or ``"shared"`` ones, as in the paper's Table 4.
    """

    name: ClassVar[str] = "fedcvt"
    label: ClassVar[str] = "FedCVT"
    uses_others: ClassVar[bool] = True
    most_passive: ClassVar[int | None] = 1
    subsets: ClassVar[Subsets] = "alone"
    reveals: ClassVar[str] = "sends the passive party's representations to the active party"
    bottom: Bottom = (64,)
    lr: Annotated[float, Meta(gt=0, le=100)] = 0.002
    weight_decay: Annotated[float, Meta(ge=0, lt=1)] = 0.0
    weights: tuple[Weight, Weight, Weight, Weight, Weight] = (0.1, 0.01, 0.01, 0.1, 0.1)
    confidence: Annotated[float, Meta(gt=0, le=1)] = 0.9
    temperature: Annotated[float, Meta(gt=0, le=100)] = 0.1
    estimate: bool = True
    cross_view: bool = True
    similarity: Literal["softmax", "polynomial"] = "softmax"
    own_key: bool = False
    representations: Literal["both", "shared", "unique"] = "both"

    @classmethod
    def as_published(cls, data: Literal["nus-wide", "vehicle", "cifar-10"] = "nus-wide", **settings: object) -> FedCVT:
        """FedCVT with the λ, t, T and learning rate that its paper gives for a data set (section 6.1); other settings
        as given."""
        known: dict[str, dict[str, object]] = {
            "nus-wide": {"weights": (0.1, 0.1, 0.1, 0.1, 0.1), "confidence": 0.5, "temperature": 0.5, "lr": 0.005},
            "vehicle": {"weights": (0.1, 0.1, 0.1, 0.1, 0.1), "confidence": 0.5, "temperature": 1.0, "lr": 0.005},
            "cifar-10": {"weights": (0.1, 0.01, 0.01, 0.1, 0.1), "confidence": 0.6, "temperature": 0.1, "lr": 0.001},
        }
        return cls(**known[data] | settings)  # type: ignore[arg-type]

    def problems(self) -> list[str]:
        found = super().problems() + bottom_problems(self.bottom, "fedcvt.bottom", not_frozen=HANDED_OVER)
        if not self.bottom:
            found += ["fedcvt.bottom is (), which would send the features themselves: give widths, or 'cnn'"]
        return found

    def representation_mask(self, width: int) -> torch.Tensor:
        """Ones for the representations in use, zeros for the others, (2·width,): shared first, then unique."""
        shared, unique = (
            torch.full((width,), float(self.representations in ("both", w))) for w in ("shared", "unique")
        )
        return torch.cat([shared, unique])

    def check_protection(self, protection: Protection) -> None:
        """See `Algorithm.check_protection`.

        Raises:
            InputError: the job asks for noise on gradients, which depend on the labels of many rows.
        """
        super().check_protection(protection)
        if protection.dp is not None and protection.dp.gradient_noise is not None:
            raise InputError(
                "fedcvt has no differential privacy on gradients, because its losses mix the labels of many rows: use "
                "sv.DP(features=sv.Gaussian(…)) without labels, for noise on representations"
            )

    def exchanges(self, protection: Protection, passive: int) -> tuple[Exchange, ...]:
        if not passive:
            return ()
        handed = handing_over(
            self.name,
            protection.dp,
            features="its learned representations of each of its rows, aligned or not, in every step",
            labels="the gradient at its representations, for each row and step",
            width="setup",
        )
        return (*super().exchanges(protection, passive), *handed)

    def active(self, setting: Setting) -> ActiveRole:
        return _Active(self, setting)

    def passive(self, setting: Setting) -> PassiveRole:
        return _Passive(self, setting)


def similarity_loss(one: torch.Tensor, two: torch.Tensor) -> torch.Tensor:
    """L_sim: the mean squared inner product of a row's two representations, (n, d) each."""
    return (one * two).sum(dim=1).square().mean()


def _difference_loss(one: torch.Tensor, two: torch.Tensor) -> torch.Tensor:
    """The mean over rows of the squared distance."""
    return (one - two).square().sum(dim=1).mean()


class _Bottoms(Role):
    """Base of both roles: two bottoms, and the draw of rows that train beside the aligned ones, the same at both
    parties.

    Attributes:
        shared: the network of R_c.
        unique: the network of R_u.
        width: d of each.
        networks: all that the party trains.
    """

    config: FedCVT
    networks: Networks

    def build_bottoms(self) -> None:
        """Build `shared` and `unique`."""
        with seed_torch(self.seed("model")):
            self.shared, self.width = build_bottom(self.config.bottom, self.features.row_shape)
            self.unique, _ = build_bottom(self.config.bottom, self.features.row_shape)

    def train_networks(self, *more: nn.Module) -> None:
        """Train the bottoms and `more`."""
        model, config = nn.ModuleList([self.shared, self.unique, *more]), self.config
        self.networks = Networks(model, config.lr, config.weight_decay, self.plan.device)
        self.parts["networks"] = self.networks

    def other_batches(self, party: str, epoch: int) -> Iterator[np.ndarray]:
        """Batches of the rows that only `party` has, one for each step of an epoch."""
        others, steps = self.table.rows_only_at(party), len(self.batches(epoch))
        if not len(others) or not self.config.estimate:
            return iter([others[:0]] * steps)
        size = min(self.plan.batch_size, len(others))
        seed = derive_seed(self.site.seed, "fedcvt", party)
        return iter(epoch_batches(others, size, steps, seed=seed, epoch=epoch))


class _ActiveBooks(Bookkeeping):
    """An epoch also trains on the other rows that it drew, of both parties."""

    role: _Active

    def rows_trained(self, epoch: int) -> int:
        return super().rows_trained(epoch) + self.role.drawn


class _Active(_Bottoms, ActiveRole):
    """Party A: two bottoms, three classifiers, all losses.

    Attributes:
        classifiers: f^A, f^B and f^AB; alone f^A only.
        peer: the passive party; empty where there is none.
        drawn: number of rows that this epoch draws from those that are not aligned.
        tally: this epoch's counts of pseudo-labels; a row counts each time it is drawn.
    """

    bookkeeping = _ActiveBooks

    def build(self) -> None:
        self.build_bottoms()
        self.peer = self.site.passive[0] if self.site.passive else ""
        self.mask = self.config.representation_mask(self.width).to(self.plan.device)
        self.tally, self.drawn = SelfTraining(self.config.confidence), 0
        if self.peer and self.config.estimate and self.config.cross_view:
            self.books.tally = self._last_tally
        inputs = [2 * self.width, 2 * self.width, 4 * self.width] if self.trained_with else [2 * self.width]
        with seed_torch(self.seed("classifiers")):
            self.classifiers = nn.ModuleList([nn.Linear(wide, self.task.classes) for wide in inputs])
        self.train_networks(self.classifiers)

    async def setup(self) -> None:
        await super().setup()
        if not self.peer:
            return
        message = await self.site.links[self.peer].receive(Kind.CONTROL, "fedcvt/setup")
        width = message.meta.get("width")
        if width != self.width:
            raise ProtocolError(
                f"{self.peer!r} has representations {width!r} wide, {self.site.name!r} {self.width}: shared ones "
                "have to be as wide; give both the same bottom"
            )

    async def begin_epoch(self, epoch: int) -> bool:
        self.mine = self.other_batches(self.site.active, epoch)
        self.theirs = self.other_batches(self.peer, epoch)
        both = [*self.other_batches(self.site.active, epoch), *self.other_batches(self.peer, epoch)]
        self.drawn = len(np.unique(np.concatenate(both))) if both else 0
        self.tally = SelfTraining(self.config.confidence)
        return False

    async def train_batch(self, rows: np.ndarray) -> float | torch.Tensor:
        own, other = next(self.mine), next(self.theirs)
        x = self.features(np.concatenate([rows, own]))
        a_c, a_u = self.shared(x) * self.mask[: self.width], self.unique(x) * self.mask[self.width :]
        if not self.peer:
            y = self.labels(np.concatenate([rows, own]))
            loss = functional.cross_entropy(self.classifiers[0](torch.cat([a_c, a_u], dim=1)), y)
            loss = loss + self.config.weights[3] * similarity_loss(a_u, a_c)
            self.networks.step(loss)
            return loss.detach() * len(rows)
        r_b = (await self.receive_representations(len(rows) + len(other))).requires_grad_()
        used = r_b * self.mask
        b_c, b_u = used[:, : self.width], used[:, self.width :]
        loss = self.compute_objective((a_c, a_u), (b_c, b_u), len(rows), self.labels(rows), self.labels(own))
        self.networks.step(loss)
        if r_b.grad is not None:
            await self.site.links[self.peer].send(Kind.GRADIENT, "fedcvt/gradient", gradient=r_b.grad)
        return loss.detach() * len(rows)

    def compute_objective(
        self,
        a: tuple[torch.Tensor, torch.Tensor],
        b: tuple[torch.Tensor, torch.Tensor],
        n: int,
        y: torch.Tensor,
        y_own: torch.Tensor,
    ) -> torch.Tensor:
        """The objective (equation 12). The first n rows of `a` and `b` (shared, unique) are aligned, the others not."""
        (a_c, a_u), (b_c, b_u) = a, b
        weights = self.config.weights
        same = 0 if self.config.own_key else n
        estimated = partial(apply_attention, temperature=self.config.temperature, same=same)
        if self.config.similarity == "polynomial":
            estimated = partial(apply_polynomial_attention, same=same)
        shared_a, unique_a = estimated(b_c, a_c, a_c), estimated(b_u, b_u[:n], a_u[:n])
        shared_b, unique_b = estimated(a_c, b_c, b_c), estimated(a_u, a_u[:n], b_u[:n])
        estimate_a, estimate_b = torch.cat([shared_a, unique_a], dim=1), torch.cat([shared_b, unique_b], dim=1)
        r_a, r_b = torch.cat([a_c, a_u], dim=1), torch.cat([b_c, b_u], dim=1)
        labelled_a, labelled_b = [r_a[:n], r_a[n:]], [r_b[:n], estimate_b[n:]]
        labels, counted = [y, y_own], [r_a.new_ones(len(r_a))]  # weights instead of an index: a GPU would wait for it
        if self.config.cross_view and len(r_b) > n:
            keep, guessed = self.pseudo_labels(estimate_a[n:], r_b[n:])
            labelled_a.append(estimate_a[n:])
            labelled_b.append(r_b[n:])
            labels.append(guessed)
            counted.append(keep.to(r_b.dtype))
        whole_a, whole_b, target = torch.cat(labelled_a), torch.cat(labelled_b), torch.cat(labels)
        f_a, f_b, f_ab = self.classifiers
        views = ((f_a, whole_a), (f_b, whole_b), (f_ab, torch.cat([whole_b, whole_a], dim=1)))
        weight = torch.cat(counted)
        losses = [functional.cross_entropy(head(r), target, reduction="none") for head, r in views]
        loss = (torch.stack(losses) * weight).sum() / weight.sum()
        terms = (
            _difference_loss(a_c[:n], b_c[:n]),
            _difference_loss(estimate_a[:n], r_a[:n]),
            _difference_loss(estimate_b[:n], r_b[:n]),
            similarity_loss(a_u, a_c),
            similarity_loss(b_u, b_c),
        )
        total: torch.Tensor = loss + sum(factor * term for factor, term in zip(weights, terms, strict=True))
        return total

    @torch.no_grad()
    def pseudo_labels(self, r_a: torch.Tensor, r_b: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Which rows get the same confident label from all three classifiers, and the labels."""
        f_a, f_b, f_ab = self.classifiers
        views = ((f_a, r_a), (f_b, r_b), (f_ab, torch.cat([r_b, r_a], dim=1)))
        p = torch.stack([torch.softmax(head(r), dim=1) for head, r in views])
        sure, label = p.max(dim=2)
        keep = (label == label[0]).all(dim=0) & (sure > self.config.confidence).all(dim=0)
        self.tally.count_labels(keep, label[0], sure.min(dim=0).values)
        return keep, label[0]

    def _last_tally(self) -> SelfTraining:
        """That of the last epoch."""
        return self.tally.collect_counts()

    def remember(self) -> State:
        return {"tally": self.tally.get_state(), "drawn": self.drawn}

    def recall(self, memory: State) -> None:
        self.tally.load_state(as_dict(memory["tally"]))
        self.drawn = as_int(memory["drawn"])

    async def receive_representations(self, rows: int) -> torch.Tensor:
        """Receive the peer's representations of this many rows, (rows, 2d)."""
        message = await self.site.links[self.peer].receive(Kind.REPRESENTATION, "fedcvt/representations", "r")
        return read_tensor(message.arrays["r"], (rows, 2 * self.width), self.peer, self.plan.device)

    async def score(self, rows: np.ndarray) -> torch.Tensor:
        x = self.features(rows)
        theirs = [await self.receive_representations(len(rows)) * self.mask] if self.peer else []
        with torch.no_grad():
            own = torch.cat([self.shared(x), self.unique(x)], dim=1) * self.mask
            logits = self.classifiers[-1](torch.cat([*theirs, own], dim=1))
        return self.as_outputs(logits)

    def score_alone(self, rows: np.ndarray) -> torch.Tensor:
        """Logits by f^A, the classifier of party A's representations, which trains on all of its rows."""
        with torch.no_grad():
            x = self.features(rows)
            logits = self.classifiers[0](torch.cat([self.shared(x), self.unique(x)], dim=1) * self.mask)
        return self.as_outputs(logits)

    def as_outputs(self, logits: torch.Tensor) -> torch.Tensor:
        """Convert logits to the task's form, (n, outputs), with a single column for two classes."""
        return logits[:, 1:] - logits[:, :1] if self.task.outputs == 1 else logits


class _ConcatenatedBottoms(nn.Module):
    """``[R_c; R_u]`` of rows with these features, (n, 2d)."""

    def __init__(self, shared: nn.Module, unique: nn.Module) -> None:
        super().__init__()
        self.shared, self.unique = shared, unique

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat([self.shared(x), self.unique(x)], dim=1)


class _PassiveBooks(Bookkeeping):
    """One of the other rows may be handed over more often than an aligned one."""

    def activation_times(self, epochs: int) -> int:
        table, plan = self.role.table, self.role.plan
        steps = plan.steps or -(-len(table.split.train) // plan.batch_size)
        others = len(table.rows_only_at(self.role.site.name))
        passes = -(-steps // max(others // min(plan.batch_size, others), 1)) if others else 1
        return max(self.times(epochs), passes * epochs)


class _Passive(_Bottoms, PassiveRole):
    """Party B: two bottoms; it sends representations and receives their gradients."""

    bookkeeping = _PassiveBooks

    def build(self) -> None:
        self.noise = FeatureNoise(self)
        self.build_bottoms()
        self.train_networks()
        self.both = _ConcatenatedBottoms(self.shared, self.unique)
        if self.site.observer.listening:
            self.site.observer.network_built(self.site.name, self.site.active, self.both)

    async def setup(self) -> None:
        await super().setup()
        await self.upstream.send(Kind.CONTROL, "fedcvt/setup", meta={"width": self.width})

    async def begin_epoch(self, epoch: int) -> bool:
        self.mine = self.other_batches(self.site.name, epoch)
        return False

    def activations(self, rows: np.ndarray, *, train: bool) -> torch.Tensor | Noised[torch.Tensor]:
        """``[R_c; R_u]`` of these rows, (n, 2d), clipped and noised if the job asks for it."""
        return self.noise(self.both(self.features(rows)), rows)

    async def hand_over(self, r: torch.Tensor | Noised[torch.Tensor]) -> None:
        """Send representations, (n, 2d)."""
        cut_off = map_noised(r, torch.Tensor.detach)
        await self.upstream.send(Kind.REPRESENTATION, "fedcvt/representations", r=cut_off)

    async def train_batch(self, rows: np.ndarray) -> None:
        r = self.activations(np.concatenate([rows, next(self.mine)]), train=True)
        await self.hand_over(r)
        message = await self.upstream.receive(Kind.GRADIENT, "fedcvt/gradient", "gradient")
        shape = tuple(strip_noise_mark(r).shape)
        gradient = read_tensor(message.arrays["gradient"], shape, self.upstream.peer, self.plan.device)
        self.networks.step(strip_noise_mark(r), gradient)

    async def answer(self, rows: np.ndarray) -> None:
        with torch.no_grad():
            r = self.activations(rows, train=False)
        await self.hand_over(r)
