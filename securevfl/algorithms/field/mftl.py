"""mFTL: federated transfer learning with a federated model on top, the baseline of FedCVT's paper.

FTL: Liu et al. 2020, arXiv 1812.03337. FedCVT: Kang et al. 2022, arXiv 2008.10838.

Each of two parties has a network into a common space, ``u = Net(x)``. FTL labels a row of the passive party B by its
likeness to the labelled rows of the active party A (equations 1 to 4 of FTL):

* ``φ(u_j^B) = (1/N_A) Σ_i y_i u_i^A · u_j^B``, with y of −1 and 1 and the sum over all rows of A;
* ``L₁ = Σ log(1 + exp(−y_j φ(u_j^B)))`` over the rows of B whose label A knows: the aligned ones;
* ``L₂ = Σ ‖u_i^A − u_i^B‖²`` over the aligned rows;
* ``L = L₁ + γ L₂ + (λ/2) L₃``, and L₃ is the squared size of the weights.

FTL trains a model for B alone. FedCVT's paper therefore adds "a federated model on top of local models of FTL": here a
linear classifier of ``[u^A; u^B]``, trained by cross entropy together with L.

FTL computes the Taylor expansion of L₁ under homomorphic encryption or on shares. Here B sends u^B of the aligned rows
to A and receives the gradient, both in the clear. The mathematics is the same, the protection is not.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Annotated, ClassVar

import numpy as np
import torch
from msgspec import Meta
from torch import nn
from torch.nn import functional

from securevfl.cut import Protection
from securevfl.errors import InputError, ProtocolError
from securevfl.privacy import Noised, map_noised, strip_noise_mark
from securevfl.training.active_role import ActiveRole
from securevfl.training.algorithm import Algorithm, ReleaseCounts
from securevfl.training.bottoms import HANDED_OVER, Bottom, bottom_problems
from securevfl.training.halves import Networks
from securevfl.training.networks import build_active_block, build_bottom
from securevfl.training.noise import FeatureNoise
from securevfl.training.passive_role import PassiveRole
from securevfl.training.plan import Plan
from securevfl.training.received_tensors import read_tensor
from securevfl.training.representations import handing_over
from securevfl.training.role import Role
from securevfl.training.seeding import seed_torch
from securevfl.training.setting import Setting
from securevfl.training.split import epoch_batches
from securevfl.transport import Exchange, Kind

__all__ = ["MFTL", "label_signs", "similarity_scores", "transfer_loss"]


class MFTL(Algorithm):
    """Transfer learning of two parties, with a joint classifier.

    Attributes:
        bottom: of each party, as wide as the other's: widths, or the name of a convolutional one; needs parameters.
        lr: Adam's learning rate, at both parties.
        transfer: weight of L₁ beside the federated model's cross entropy; 0 leaves that model and L₂.
        alignment: γ, the weight of L₂.
        weight_decay: λ.
        taylor: whether L₁ is its second-order expansion, as in FTL's encrypted training.
    """

    name: ClassVar[str] = "mftl"
    label: ClassVar[str] = "mFTL"
    uses_others: ClassVar[bool] = True
    most_passive: ClassVar[int | None] = 1
    reveals: ClassVar[str] = "sends the passive party's representations to the active party"
    bottom: Bottom = (64,)
    lr: Annotated[float, Meta(gt=0, le=100)] = 0.003
    transfer: Annotated[float, Meta(ge=0, le=1000)] = 1.0
    alignment: Annotated[float, Meta(ge=0, le=1000)] = 0.01
    weight_decay: Annotated[float, Meta(ge=0, lt=1)] = 0.0
    taylor: bool = False

    def problems(self) -> list[str]:
        found = super().problems() + bottom_problems(self.bottom, f"{self.name}.bottom", not_frozen=HANDED_OVER)
        if not self.bottom:
            found += [f"{self.name}.bottom is (), which would send the features themselves: give widths, or 'cnn'"]
        return found

    def check_protection(self, protection: Protection) -> None:
        """See `Algorithm.check_protection`.

        Raises:
            InputError: the job asks for noise on gradients; L₁ mixes the labels of many rows.
        """
        super().check_protection(protection)
        if protection.dp is not None and protection.dp.gradient_noise is not None:
            raise InputError(
                f"{self.name} has no differential privacy on gradients, for its losses mix the labels of many rows: "
                "use sv.DP(features=sv.Gaussian(…)) without labels, for noise on representations"
            )

    def max_releases(self, protection: Protection, plan: Plan, passive: int) -> ReleaseCounts:
        times = plan.epochs * (plan.steps or 1)
        return ReleaseCounts(features=times, labels=times)

    def exchanges(self, protection: Protection, passive: int) -> tuple[Exchange, ...]:
        if not passive:
            return ()
        return handing_over(
            self.name,
            protection.dp,
            features="its learned representations of aligned rows, in every step",
            labels="the gradient at its representations, for each row and step",
        )

    def active(self, setting: Setting) -> ActiveRole:
        return _Active(self, setting)

    def passive(self, setting: Setting) -> PassiveRole:
        return _Passive(self, setting)


def label_signs(y: torch.Tensor, classes: int) -> torch.Tensor:
    """Convert classes (n,) to FTL's labels −1 and 1, (n, k).

    Two classes give one column (1 for the second class), more give one column for each class against the rest.
    """
    one_hot = functional.one_hot(y, classes)[:, 1:] if classes == 2 else functional.one_hot(y, classes)
    return 2.0 * one_hot - 1.0


def similarity_scores(u_a: torch.Tensor, y_a: torch.Tensor, u_b: torch.Tensor) -> torch.Tensor:
    """φ of B's rows, (m, k): the mean of their inner products with A's rows, signed by A's labels.

    Args:
        u_a: A's representations, (n, d).
        y_a: labels from `label_signs`, (n, k).
        u_b: B's representations, (m, d).
    """
    return u_b @ (y_a.T @ u_a / len(u_a)).T


def transfer_loss(phi: torch.Tensor, y: torch.Tensor, *, taylor: bool) -> torch.Tensor:
    """L₁ of each row, (m,), summed over the columns: ``log(1 + exp(−y φ))``.

    The second-order expansion around φ = 0 is ``log 2 − y φ / 2 + φ² / 8``.

    Args:
        phi: φ, (m, k).
        y: labels from `label_signs`, (m, k).
        taylor: whether to use the expansion.
    """
    if taylor:
        return (math.log(2) - y * phi / 2 + phi.square() / 8).sum(dim=1)
    return functional.softplus(-y * phi).sum(dim=1)


class _Party(Role):
    """Base of both roles: a network into the common space.

    Attributes:
        bottom: Net.
        width: d of the common space.
        networks: all that the party trains.
    """

    config: MFTL
    networks: Networks

    def build_networks(self, *more: nn.Module) -> None:
        """Train the bottom and `more`."""
        model = nn.ModuleList([self.bottom, *more])
        self.networks = Networks(model, self.config.lr, self.config.weight_decay, self.plan.device)
        self.parts["networks"] = self.networks

    def build_bottom(self) -> None:
        """Make `bottom`."""
        with seed_torch(self.seed("model")):
            self.bottom, self.width = build_bottom(self.config.bottom, self.features.row_shape)


class _Active(_Party, ActiveRole):
    """Party A: it has the labels, and computes all losses.

    Attributes:
        peer: the passive party; empty where there is none.
        federated: the classifier of ``[u^A; u^B]``.
    """

    def build(self) -> None:
        self.build_bottom()
        self.peer = self.site.passive[0] if self.site.passive else ""
        with seed_torch(self.seed("federated")):
            self.federated = build_active_block(self.width * (2 if self.peer else 1), self.task.outputs)
        self.build_networks(self.federated)

    async def setup(self) -> None:
        await super().setup()
        if not self.peer:
            return
        message = await self.site.links[self.peer].receive(Kind.CONTROL, "mftl/width")
        width = message.meta.get("width")
        if width != self.width:
            raise ProtocolError(
                f"{self.peer!r} has representations {width!r} wide, {self.site.name!r} {self.width}: the common space "
                "has one width; give both the same bottom"
            )

    async def begin_epoch(self, epoch: int) -> bool:
        self.others = self.other_batches(epoch)
        return False

    def other_batches(self, epoch: int) -> Iterator[np.ndarray]:
        """Batches of the rows that only this party has, one for each step: the sum in φ includes them."""
        others, steps = self.table.rows_only_at(self.site.name), len(self.batches(epoch))
        size = min(self.nominal_batch, len(others))
        return iter(
            epoch_batches(others, size, steps, seed=self.seed("others"), epoch=epoch) if size else [others] * steps
        )

    async def train_batch(self, rows: np.ndarray) -> torch.Tensor:
        every = np.concatenate([rows, next(self.others)])
        u_a, y, n = self.bottom(self.features(every)), self.labels(every), len(rows)
        if not self.peer:
            loss = self.loss(self.label_noise.correct_logits(self.federated(u_a)), y).mean()
            self.networks.step(loss)
            return loss.detach() * n
        u_b = (await self.receive_representations(n)).requires_grad_()
        loss = self.compute_objective(u_a, u_b, y)
        self.networks.step(loss)
        if u_b.grad is not None:
            await self.site.links[self.peer].send(Kind.GRADIENT, "mftl/gradient", gradient=u_b.grad)
        return loss.detach() * n

    def compute_objective(self, u_a: torch.Tensor, u_b: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """The federated model's cross entropy, L₁ and γ L₂, means over rows.

        Args:
            u_a: A's representations, the m aligned rows first, (n, d).
            u_b: B's of the aligned rows, (m, d).
            y: classes of A's rows, (n,).
        """
        m, config = len(u_b), self.config
        logits = self.federated(torch.cat([u_a[:m], u_b], dim=1))
        label = label_signs(y, self.task.classes)
        transfer = transfer_loss(similarity_scores(u_a, label, u_b), label[:m], taylor=config.taylor)
        alignment = (u_a[:m] - u_b).square().sum(dim=1)
        together = self.loss(self.label_noise.correct_logits(logits), y[:m])
        total: torch.Tensor = (together + config.transfer * transfer + config.alignment * alignment).mean()
        return total

    async def receive_representations(self, rows: int) -> torch.Tensor:
        """The peer's representations of so many rows, (rows, d)."""
        message = await self.site.links[self.peer].receive(Kind.REPRESENTATION, "mftl/representations", "u")
        return read_tensor(message.arrays["u"], (rows, self.width), self.peer, self.plan.device)

    async def score(self, rows: np.ndarray) -> torch.Tensor:
        theirs = [await self.receive_representations(len(rows))] if self.peer else []
        with torch.no_grad():
            logits: torch.Tensor = self.federated(torch.cat([self.bottom(self.features(rows)), *theirs], dim=1))
        return logits


class _Passive(_Party, PassiveRole):
    """Party B: sends representations and receives their gradients."""

    def build(self) -> None:
        self.noise = FeatureNoise(self)
        self.build_bottom()
        self.build_networks()
        if self.site.observer.listening:
            self.site.observer.network_built(self.site.name, self.site.active, self.bottom)

    async def setup(self) -> None:
        await super().setup()
        await self.upstream.send(Kind.CONTROL, "mftl/width", meta={"width": self.width})

    def activations(self, rows: np.ndarray, *, train: bool) -> torch.Tensor | Noised[torch.Tensor]:
        """u^B of these rows, (n, d), clipped and noised where the job says so."""
        return self.noise(self.bottom(self.features(rows)), rows)

    async def hand_over(self, u: torch.Tensor | Noised[torch.Tensor]) -> None:
        """Send representations, (n, d)."""
        await self.upstream.send(Kind.REPRESENTATION, "mftl/representations", u=map_noised(u, torch.Tensor.detach))

    async def train_batch(self, rows: np.ndarray) -> None:
        u = self.activations(rows, train=True)
        await self.hand_over(u)
        message = await self.upstream.receive(Kind.GRADIENT, "mftl/gradient", "gradient")
        gradient = read_tensor(
            message.arrays["gradient"], tuple(strip_noise_mark(u).shape), self.upstream.peer, self.plan.device
        )
        if self.site.observer.listening:
            self.site.observer.values_opened(self.site.name, self.site.active, "gradient", gradient, train=True)
        self.networks.step(strip_noise_mark(u), gradient)

    async def answer(self, rows: np.ndarray) -> None:
        with torch.no_grad():
            u = self.activations(rows, train=False)
        await self.hand_over(u)
