"""FedCVT: semi-supervised VFL with cross-view training (Kang et al. 2022, arXiv 2008.10838).

Each of two parties has two bottoms, for what is unique to it, R_u, and for what both share, R_c; ``R = [R_c; R_u]``.
Missing representations are estimated by attention over those that are there (equations 5 and 6), labels of the passive
party's other rows by three classifiers that have to agree (section 5.3).

The passive party hands its representations to the active one, which computes all losses and hands the gradients back:
so they are revealed, by design. Where the paper's sum leaves it open, L_sim of a row is here the squared inner product
of its two representations; the product of whole batch matrices, ‖R_uᵀR_c‖², drove both to zero in our trials.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from securevfl.algorithms.base import ActiveRole, Algorithm, PassiveRole, Plan, Table, seeded
from securevfl.algorithms.halves import State, as_dict
from securevfl.algorithms.leakage import Finding
from securevfl.algorithms.networks import Bottom, build_bottom, check_bottom
from securevfl.algorithms.split import epoch_batches
from securevfl.cut import Protection
from securevfl.errors import InputError, ProtocolError, UnknownNameError
from securevfl.site import Site, derive_seed
from securevfl.transport import Array, Guard, Kind

__all__ = ["FedCVT", "attend", "unlike"]


@dataclass(frozen=True, kw_only=True)
class FedCVT(Algorithm):
    """Configuration of FedCVT.

    Attributes:
        bottom: of each of a party's two networks: widths, or the name of a convolutional one; needs parameters.
        lr: Adam's learning rate, at both parties.
        weight_decay: L2 penalty.
        weights: λ1 … λ5 of the objective (equation 12): L_diff^AB, L_diff^A, L_diff^B, L_sim^A, L_sim^B.
        confidence: t, least probability that each of the three classifiers gives to a pseudo-label.
        temperature: T, by which similarities are divided before the softmax of the attention.
        estimate: whether rows that are not aligned take part at all; False leaves the aligned ones and L_diff, L_sim.
        cross_view: whether pseudo-labels are used.
        representations: ``"both"``, or only the ``"unique"`` or ``"shared"`` ones, as in the paper's Table 4.
    """

    name: ClassVar[str] = "fedcvt"
    uses_others: ClassVar[bool] = True
    most_passive: ClassVar[int | None] = 1
    reveals: ClassVar[str] = "hands the passive party's representations to the active one"
    bottom: Bottom = (64,)
    lr: float = 0.002
    weight_decay: float = 0.0
    weights: tuple[float, ...] = (0.1, 0.01, 0.01, 0.1, 0.1)
    confidence: float = 0.9
    temperature: float = 0.1
    estimate: bool = True
    cross_view: bool = True
    representations: str = "both"

    def __post_init__(self) -> None:
        object.__setattr__(self, "bottom", check_bottom(self.bottom, "fedcvt.bottom"))
        object.__setattr__(self, "weights", tuple(float(weight) for weight in self.weights))
        if not self.bottom:
            raise InputError("fedcvt.bottom is (); it would hand over the features themselves: give widths, or 'cnn'")
        if len(self.weights) != 5 or min(self.weights) < 0:
            raise InputError(f"fedcvt.weights is {self.weights}; five numbers from 0 were expected, λ1 to λ5")
        if not 0 < self.lr <= 100 or not 0 <= self.weight_decay < 1:
            raise InputError(f"fedcvt has lr {self.lr} and weight_decay {self.weight_decay}; up to 100, and below 1")
        if self.representations not in ("both", "shared", "unique"):
            raise UnknownNameError("fedcvt.representations", self.representations, ("both", "shared", "unique"))
        if not 0 < self.confidence <= 1 or not 0 < self.temperature <= 100:
            raise InputError(
                f"fedcvt has confidence {self.confidence} and temperature {self.temperature}; a probability, and a "
                "number up to 100"
            )

    @property
    def title(self) -> str:
        return "FedCVT"

    def mask(self, width: int) -> torch.Tensor:
        """Ones for the representations in use, zeros for the others, (2·width,): shared first, then unique."""
        ones, zeros = torch.ones(width), torch.zeros(width)
        return torch.cat(
            [zeros if self.representations == "unique" else ones, zeros if self.representations == "shared" else ones]
        )

    def check(self, protection: Protection) -> None:
        """See `Algorithm.check`.

        Raises:
            InputError: differential privacy on gradients, of which its losses mix the labels of many rows.
        """
        super().check(protection)
        if protection.dp is not None and protection.dp.gradients:
            raise InputError(
                "fedcvt has no differential privacy on gradients, for its losses mix the labels of many rows: use "
                "sv.DP(gradients=False) for noise on representations"
            )

    def active(self, site: Site, plan: Plan, protection: Protection, table: Table) -> ActiveRole:
        return _Active(self, site, plan, protection, table)

    def passive(self, site: Site, plan: Plan, protection: Protection, table: Table) -> PassiveRole:
        return _Passive(self, site, plan, protection, table)

    def findings(self, protection: Protection, passive: Sequence[str], active: str) -> list[Finding]:
        dp = protection.dp
        noisy = dp is not None and dp.activations
        what = "its learned representations of each of its rows, aligned or not, in every step"
        found = []
        for name in passive:
            text = f"{what}, with differentially private noise in them" if noisy else f"{what}, in the clear"
            found.append(Finding(active, name, text, "note" if noisy else "leak"))
            gradient = "the gradient at its representations, for each row and step: enough to tell labels apart"
            found.append(Finding(name, active, gradient, "leak"))
        return found


def attend(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, temperature: float) -> torch.Tensor:
    """Scaled dot-product attention ``softmax(QKᵀ / (T √d)) V``; (n, d), (m, d), (m, e) → (n, e)."""
    scores = query @ key.T / (temperature * key.shape[1] ** 0.5)
    return torch.softmax(scores, dim=1) @ value


def unlike(one: torch.Tensor, two: torch.Tensor) -> torch.Tensor:
    """L_sim: the mean squared inner product of a row's two representations, (n, d) each."""
    return (one * two).sum(dim=1).square().mean()


def _difference(one: torch.Tensor, two: torch.Tensor) -> torch.Tensor:
    """The mean over rows of the squared distance."""
    return (one - two).square().sum(dim=1).mean()


class _Steps:
    """Which rows a step uses, the same at both parties: aligned ones, the active party's others, the passive's."""

    site: Site
    plan: Plan
    table: Table
    config: FedCVT

    def other_batches(self, party: str, steps: int, epoch: int) -> list[np.ndarray]:
        others = self.table.others(party)
        if not len(others) or not self.config.estimate:
            return [others[:0]] * steps
        size = min(self.plan.batch_size, len(others))
        seed = derive_seed(self.site.seed, "fedcvt", party)
        return epoch_batches(others, size, steps, seed=seed, epoch=epoch)


class _Active(_Steps, ActiveRole):
    """Party A: two bottoms, three classifiers, all losses."""

    def __init__(self, config: FedCVT, site: Site, plan: Plan, protection: Protection, table: Table) -> None:
        self.config = config
        super().__init__(site, plan, protection, table)
        with seeded(self.seed("model")):
            self.shared, self.width = build_bottom(config.bottom, self.x.shape[1:])
            self.unique, _ = build_bottom(config.bottom, self.x.shape[1:])
        self.classifiers = nn.ModuleList()
        self.mask = config.mask(self.width).to(plan.device)
        self.peer = site.passive[0] if site.passive else ""
        self.pseudo = [0, 0]

    async def setup(self) -> None:
        inputs = [2 * self.width]
        if self.peer:
            message = await self.site.links[self.peer].receive(Kind.CONTROL, "fedcvt/setup")
            width = message.meta.get("width")
            if width != self.width:
                raise ProtocolError(
                    f"{self.peer!r} has representations {width!r} wide, {self.site.name!r} {self.width}: shared ones "
                    "have to be as wide; give both the same bottom"
                )
            inputs += [2 * self.width, 4 * self.width]
        with seeded(self.seed("classifiers")):
            self.classifiers = nn.ModuleList([nn.Linear(wide, self.task.classes) for wide in inputs])
        self.model = nn.ModuleList([self.shared, self.unique, self.classifiers]).to(self.plan.device)
        self.optimizer = torch.optim.Adam(
            self.model.parameters(), lr=self.config.lr, weight_decay=self.config.weight_decay
        )

    async def begin_epoch(self, epoch: int) -> bool:
        steps = len(self.batches(epoch))
        self.mine = iter(self.other_batches(self.site.active, steps, epoch))
        self.theirs = iter(self.other_batches(self.peer, steps, epoch))
        self.pseudo = [0, 0]
        return False

    async def train_batch(self, rows: np.ndarray) -> float:
        own, other = next(self.mine), next(self.theirs)
        n = len(rows)
        r_b = await self._receive(n + len(other)) if self.peer else None
        x = self.features(np.concatenate([rows, own]))
        a_c, a_u = self.shared(x) * self.mask[: self.width], self.unique(x) * self.mask[self.width :]
        if r_b is None:
            y = self.labels(np.concatenate([rows, own]))
            loss = functional.cross_entropy(self.classifiers[0](torch.cat([a_c, a_u], dim=1)), y)
            loss = loss + self.config.weights[3] * unlike(a_u, a_c)
        else:
            r_b.requires_grad_()
            used = r_b * self.mask
            b_c, b_u = used[:, : self.width], used[:, self.width :]
            loss = self._objective((a_c, a_u), (b_c, b_u), n, self.labels(rows), self.labels(own))
        self.optimizer.zero_grad(set_to_none=True)
        torch.autograd.backward(loss)
        if r_b is not None and r_b.grad is not None:
            await self.site.links[self.peer].send(Kind.GRADIENT, "fedcvt/gradient", gradient=r_b.grad)
        self.optimizer.step()
        return float(loss.detach()) * n

    def _objective(
        self,
        a: tuple[torch.Tensor, torch.Tensor],
        b: tuple[torch.Tensor, torch.Tensor],
        n: int,
        y: torch.Tensor,
        y_own: torch.Tensor,
    ) -> torch.Tensor:
        """Equation 12; the first n rows of `a` and `b` (shared, unique) are aligned, the others each party's own."""
        (a_c, a_u), (b_c, b_u) = a, b
        t, weights = self.config.temperature, self.config.weights
        estimate_a = torch.cat([attend(b_c, a_c, a_c, t), attend(b_u, b_u[:n], a_u[:n], t)], dim=1)
        estimate_b = torch.cat([attend(a_c, b_c, b_c, t), attend(a_u, a_u[:n], b_u[:n], t)], dim=1)
        r_a, r_b = torch.cat([a_c, a_u], dim=1), torch.cat([b_c, b_u], dim=1)
        labelled_a, labelled_b = [r_a[:n], r_a[n:]], [r_b[:n], estimate_b[n:]]
        labels = [y, y_own]
        if self.config.cross_view and len(r_b) > n:
            keep, guessed = self._pseudo_labels(estimate_a[n:], r_b[n:])
            labelled_a.append(estimate_a[n:][keep])
            labelled_b.append(r_b[n:][keep])
            labels.append(guessed[keep])
        whole_a, whole_b, target = torch.cat(labelled_a), torch.cat(labelled_b), torch.cat(labels)
        f_a, f_b, f_ab = self.classifiers
        views = ((f_a, whole_a), (f_b, whole_b), (f_ab, torch.cat([whole_b, whole_a], dim=1)))
        loss = torch.stack([functional.cross_entropy(head(r), target) for head, r in views]).sum()
        terms = (
            _difference(a_c[:n], b_c[:n]),
            _difference(estimate_a[:n], r_a[:n]),
            _difference(estimate_b[:n], r_b[:n]),
            unlike(a_u, a_c),
            unlike(b_u, b_c),
        )
        total: torch.Tensor = loss + sum(weight * term for weight, term in zip(weights, terms, strict=True))
        return total

    @torch.no_grad()
    def _pseudo_labels(self, r_a: torch.Tensor, r_b: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Which rows all three classifiers label alike, each with confidence, and the labels."""
        f_a, f_b, f_ab = self.classifiers
        views = ((f_a, r_a), (f_b, r_b), (f_ab, torch.cat([r_b, r_a], dim=1)))
        p = torch.stack([torch.softmax(head(r), dim=1) for head, r in views])
        sure, label = p.max(dim=2)
        keep = (label == label[0]).all(dim=0) & (sure > self.config.confidence).all(dim=0)
        self.pseudo[0] += int(keep.sum())
        self.pseudo[1] += len(keep)
        return keep, label[0]

    async def _receive(self, rows: int) -> torch.Tensor:
        message = await self.site.links[self.peer].receive(Kind.REPRESENTATION, "fedcvt/representations", "r")
        return received(message.arrays["r"], (rows, 2 * self.width), self.peer, self.plan.device)

    async def score(self, rows: np.ndarray) -> torch.Tensor:
        x = self.features(rows)
        theirs = [await self._receive(len(rows)) * self.mask] if self.peer else []
        with torch.no_grad():
            own = torch.cat([self.shared(x), self.unique(x)], dim=1) * self.mask
            logits = self.classifiers[-1](torch.cat([*theirs, own], dim=1))
        found: torch.Tensor = logits[:, 1:] - logits[:, :1] if self.task.outputs == 1 else logits
        return found

    def snapshot(self) -> object:
        return copy.deepcopy(self.model.state_dict())

    def restore(self, state: object) -> None:
        self.model.load_state_dict(as_dict(state))

    def state(self) -> State:
        return {"weights": self.snapshot(), "optimizer": copy.deepcopy(self.optimizer.state_dict())}

    def load(self, state: State) -> None:
        self.restore(state["weights"])
        self.optimizer.load_state_dict(as_dict(state["optimizer"]))


class _Passive(_Steps, PassiveRole):
    """Party B: two bottoms; it sends representations and receives their gradients."""

    def __init__(self, config: FedCVT, site: Site, plan: Plan, protection: Protection, table: Table) -> None:
        self.config = config
        super().__init__(site, plan, protection, table)
        dp = protection.dp
        self.guard = Guard()
        if dp is not None and dp.activations:
            self.release = self.row_release("activations", dp, clip=dp.clip_activations, times=self._times())
            self.guard = Guard(noise=self.release.sigma)
        with seeded(self.seed("model")):
            self.shared, self.width = build_bottom(config.bottom, self.x.shape[1:])
            self.unique, _ = build_bottom(config.bottom, self.x.shape[1:])
        self.model = nn.ModuleList([self.shared, self.unique]).to(plan.device)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=config.lr, weight_decay=config.weight_decay)

    def _times(self) -> int:
        """How often one row is handed over at most: an aligned one, or one of the others, drawn as often."""
        steps = self.plan.steps or -(-len(self.table.split.train) // self.plan.batch_size)
        others = len(self.table.others(self.site.name))
        passes = -(-steps // max(others // min(self.plan.batch_size, others), 1)) if others else 1
        return max(self.times(self.plan.epochs), passes * self.plan.epochs)

    async def setup(self) -> None:
        await self.site.links[self.site.active].send(Kind.CONTROL, "fedcvt/setup", meta={"width": self.width})

    async def begin_epoch(self, epoch: int) -> bool:
        self.mine = iter(self.other_batches(self.site.name, len(self.batches(epoch)), epoch))
        return False

    def representations(self, rows: np.ndarray) -> torch.Tensor:
        """``[R_c; R_u]`` of these rows, (n, 2d), clipped and noised where the job says so."""
        x = self.features(rows)
        r = torch.cat([self.shared(x), self.unique(x)], dim=1)
        return r if self.release is None else self.release(r, rows)

    async def train_batch(self, rows: np.ndarray) -> None:
        link = self.site.links[self.site.active]
        r = self.representations(np.concatenate([rows, next(self.mine)]))
        await link.send(Kind.REPRESENTATION, "fedcvt/representations", guard=self.guard, r=r.detach())
        message = await link.receive(Kind.GRADIENT, "fedcvt/gradient", "gradient")
        gradient = received(message.arrays["gradient"], tuple(r.shape), link.peer, self.plan.device)
        self.optimizer.zero_grad(set_to_none=True)
        torch.autograd.backward(r, gradient)
        self.optimizer.step()

    async def answer(self, rows: np.ndarray) -> None:
        with torch.no_grad():
            r = self.representations(rows)
        await self.site.links[self.site.active].send(
            Kind.REPRESENTATION, "fedcvt/representations", guard=self.guard, r=r
        )

    def snapshot(self) -> object:
        return copy.deepcopy(self.model.state_dict())

    def restore(self, state: object) -> None:
        self.model.load_state_dict(as_dict(state))

    def state(self) -> State:
        return {"weights": self.snapshot(), "optimizer": copy.deepcopy(self.optimizer.state_dict())}

    def load(self, state: State) -> None:
        self.restore(state["weights"])
        self.optimizer.load_state_dict(as_dict(state["optimizer"]))


def received(array: Array, shape: tuple[int, ...], sender: str, device: str) -> torch.Tensor:
    """A float tensor of this shape from a peer.

    Raises:
        ProtocolError: another shape or type, or numbers that are not finite.
    """
    value = array if isinstance(array, torch.Tensor) else torch.from_numpy(np.array(array))
    if tuple(value.shape) != shape or not value.is_floating_point():
        raise ProtocolError(
            f"{sender!r} sent {value.dtype} of shape {tuple(value.shape)}; floats {shape} were expected"
        )
    value = value.detach().to(device, torch.float32)
    if not bool(torch.isfinite(value).all()):
        raise ProtocolError(f"{sender!r} sent numbers that are not finite; did its training diverge? Lower lr")
    return value
