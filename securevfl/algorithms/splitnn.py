"""SplitNN: vertical federated learning on the aligned rows (Ceballos et al. 2020, arXiv 2008.04137).

Every party has a bottom model from its features to its activations; the cut layer joins them,
``z = Σ_p a_p W_p + b``; the active party's top model turns z into logits. With ``bottom=()`` the bottoms are the
identity, the cut is the model's first layer, and a passive party receives no gradient of its own at all.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch

from securevfl.algorithms.base import ActiveRole, Algorithm, PassiveRole, Plan, Table, Trained, cut_spec, seeded
from securevfl.algorithms.halves import ActiveHalf, Architecture, PassiveHalf, State, as_dict
from securevfl.algorithms.networks import Bottom, check_bottom
from securevfl.algorithms.split import chunks
from securevfl.algorithms.task import Task
from securevfl.algorithms.watched import BoundedCut, PerturbedCut
from securevfl.cut import CutSpec, Protection
from securevfl.errors import InputError, ProtectionInactive
from securevfl.privacy import DP, JointRelease, Marvell
from securevfl.privacy.joint import largest_norm
from securevfl.site import Site

__all__ = ["Active", "Passive", "SplitNN"]


@dataclass(frozen=True, kw_only=True)
class SplitNN(Algorithm):
    """Configuration of SplitNN.

    Attributes:
        hidden: width h of the cut, the first hidden layer that all parties share.
        top: widths of the top model's hidden layers.
        bottom: widths of each party's bottom model, the last one being its activations; ``()`` for the identity; or
            the name of a convolutional one: ``"cnn"``, ``"cnn-fedcvt"``, ``"cnn-multivfl"``, ``"resnet18"``.
        lr: Adam's learning rate, for bottoms, top and the active party's own block of the cut.
        cut_lr: SGD's learning rate η, for the passive parties' blocks of the cut.
        cut_momentum: μ, of that SGD.
        cut_weight_decay: λ, of that SGD.
        weight_decay: L2 penalty of Adam's parameters.
    """

    name: ClassVar[str] = "splitnn"
    protects: ClassVar[frozenset[str]] = frozenset({"marvell", "stop", "z"})
    hidden: int = 16
    top: tuple[int, ...] = (16,)
    bottom: Bottom = ()
    lr: float = 0.01
    cut_lr: float = 0.5
    cut_momentum: float = 0.0
    cut_weight_decay: float = 0.0
    weight_decay: float = 0.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "bottom", check_bottom(self.bottom, f"{self.name}.bottom"))
        top = check_bottom(tuple(self.top), f"{self.name}.top")
        object.__setattr__(self, "top", top)
        check_bottom((self.hidden,), f"{self.name}.hidden")
        for name in ("lr", "cut_lr"):
            if not 0 < getattr(self, name) <= 100:
                raise InputError(f"{self.name}.{name} is {getattr(self, name)}; a learning rate lies between 0 and 100")
        for name in ("weight_decay", "cut_weight_decay"):
            if not 0 <= getattr(self, name) < 1:
                raise InputError(f"{self.name}.{name} is {getattr(self, name)}; it lies between 0 and 1")
        if not 0 <= self.cut_momentum <= 0.99:
            raise InputError(f"{self.name}.cut_momentum is {self.cut_momentum}; it lies from 0 to 0.99")

    @property
    def title(self) -> str:
        return "SplitNN"

    @property
    def trainable(self) -> bool:
        return bool(self.bottom)

    def architecture(self, outputs: int) -> Architecture:
        """Shapes and rates of the split network."""
        return Architecture(
            hidden=self.hidden, top=self.top, bottom=self.bottom, lr=self.lr, weight_decay=self.weight_decay
        )

    def cut_spec(self, width: int, plan: Plan, dp: DP | None, times: int, label_times: int) -> CutSpec:
        """What both sides of the cut agree on; see `base.cut_spec`."""
        return cut_spec(
            width,
            self.cut_lr,
            plan,
            dp,
            times,
            label_times,
            momentum=self.cut_momentum,
            weight_decay=self.cut_weight_decay,
            trainable=self.trainable,
        )

    def active(self, site: Site, plan: Plan, protection: Protection, table: Table) -> ActiveRole:
        return Active(self, site, plan, protection, table)

    def passive(self, site: Site, plan: Plan, protection: Protection, table: Table) -> PassiveRole:
        return Passive(self, site, plan, protection, table)

    def notes(self, protection: Protection) -> list[str]:
        dp = protection.dp
        found = []
        if dp is not None and dp.activations and dp.where == "activations" and self.bottom:
            found += [
                "ε of activations covers a row's own releases, not what the bottoms' weights carry of it into other "
                "rows' activations"
            ]
        if dp is not None and dp.activations and dp.where == "z":
            found += [
                f"ε of z holds as long as the cut's weights stay below the declared norm of {dp.weight_bound:g}, which "
                "nobody can check",
                "ε of z covers a row's own releases given the weights, not what the weights of the cut"
                f"{' and of the bottoms' if self.bottom else ''}, trained on exact features, carry of it into other "
                "rows' z",
            ]
        if dp is not None and dp.labels == "marvell":
            found += [
                "Marvell is no differential privacy: it bounds the leak AUC of one look at a row's gradient under a "
                "Gaussian model, and the top model learns from exact labels"
            ]
        return found


class Active(ActiveRole):
    """Owns the labels, its own bottom and block of the cut, and the top model."""

    def __init__(self, config: SplitNN, site: Site, plan: Plan, protection: Protection, table: Table) -> None:
        super().__init__(site, plan, protection, table)
        self.config = config
        dp = protection.dp
        self.keep_within_budget(config.trainable, config.least_epochs)
        noise = 0.0
        if dp is not None and dp.gradients and site.passive:
            self.release = self.row_release(
                "gradients",
                dp,
                clip=dp.clip_gradients,
                times=self.label_times(),
                sensitivity=self.task.label_sensitivity,
            )
            noise = self.release.sigma
        architecture = config.architecture(self.task.outputs)
        times = self.activation_times(config.trainable)
        spec = config.cut_spec(architecture.hidden, self.plan, dp, times, self.label_times())
        with seeded(self.seed("model")):
            self.half = self.build_half(architecture, spec, noise)
        if dp is not None and dp.activations and dp.where == "z" and site.passive:
            sigma, parties = dp.sigma(times), len(site.passive)
            bound = largest_norm(
                clip=dp.clip_activations,
                weight_bound=dp.weight_bound,
                parties=parties,
                sigma=sigma * (parties / noisy_parties(protection, parties)) ** 0.5,
                width=architecture.hidden,
            )
            self.half.cut = BoundedCut(self.half.cut, bound)
        self.perturbed: PerturbedCut | None = None
        if dp is not None and dp.labels == "marvell" and site.passive:
            self.half.cut = self.perturbed = PerturbedCut(self.half.cut, Marvell(dp.power))
            if self.task.classes != 2:
                raise InputError(f"dp.labels 'marvell' is for two classes and there are {self.task.classes}")

    def build_half(self, architecture: Architecture, spec: CutSpec, noise: float) -> ActiveHalf:
        """This party's half of the network."""
        return ActiveHalf(architecture, self.site, spec, self.protection, noise, self.x.shape[1:], self.task.outputs)

    async def setup(self) -> None:
        await self.half.setup()

    def activations(self, rows: np.ndarray) -> torch.Tensor:
        """The active party's own activations of these rows, (n, d)."""
        a: torch.Tensor = self.half.bottom(self.features(rows))
        return a

    def targets(self, rows: np.ndarray) -> torch.Tensor:
        """What the rows of a batch are trained towards: classes (n,), or probabilities of the classes (n, classes)."""
        return self.labels(rows)

    async def train_batch(self, rows: np.ndarray) -> float | torch.Tensor:
        logits = await self.half.forward(self.activations(self.feed(rows)), train=True)
        losses = self.losses(logits, rows)
        loss = losses.sum()
        if self.perturbed is not None:
            self.perturbed.labels = self.labels(rows)
        if self.release is None:
            await self.half.backward(loss / self.plan.batch_size)
        else:
            # Labels enter here and nowhere else: everything below learns from the noised gradient at the logits.
            (exact,) = torch.autograd.grad(loss, logits)
            first, *also = map(self.table.people, self.labelled_by(rows))
            await self.half.backward(logits, self.release(exact, first, also=also) / self.plan.batch_size)
        return loss.detach()

    def losses(self, logits: torch.Tensor, rows: np.ndarray) -> torch.Tensor:
        """Loss of each row of a batch, (n,)."""
        return self.task.losses(logits if self.drawn is None else self.drawn.correct(logits), self.targets(rows))

    def labelled_by(self, rows: np.ndarray) -> list[np.ndarray]:
        """Numbers of the rows whose labels a batch uses: one array, or one for each party that gives a label."""
        return [rows]

    async def score(self, rows: np.ndarray) -> torch.Tensor:
        with torch.no_grad():
            a = self.activations(rows)
        return await self.half.forward(a, train=False)

    def ended(self) -> Trained:
        if self.perturbed is not None:
            marvell = self.perturbed.marvell
            if not marvell.batches:
                raise ProtectionInactive("Marvell's noise was asked for and no gradient went through it")
            self.trained.notes.append(
                f"the largest bound that Marvell gives the leak AUC of a batch's gradients: {marvell.worst:.3g}"
            )
        return super().ended()

    def snapshot(self) -> object:
        return self.half.snapshot()

    def restore(self, state: object) -> None:
        self.half.restore(state)

    def state(self) -> State:
        return {"half": self.half.state()}

    def load(self, state: State) -> None:
        self.half.load(as_dict(state["half"]))


def noisy_parties(protection: Protection, parties: int) -> int:
    """Among how many parties the noise on z is shared: each adds all of it where its part can be read."""
    return parties if protection.policy().sealed else 1


class Passive(PassiveRole):
    """Owns features and a bottom model; its block of the cut is its own (plain) or shared with the active party
    (sealed)."""

    def __init__(self, config: SplitNN, site: Site, plan: Plan, protection: Protection, table: Table) -> None:
        super().__init__(site, plan, protection, table)
        self.config = config
        dp = protection.dp
        self.keep_within_budget(config.trainable, config.least_epochs)
        times = self.activation_times(config.trainable)
        noise = 0.0
        self.joint: JointRelease | None = None
        if dp is not None and dp.activations and dp.where == "z":
            self.joint = JointRelease(
                rows=self.release_rows(),
                times=times,
                sigma=dp.sigma(times),
                clip=dp.clip_activations,
                weight_bound=dp.weight_bound,
                parties=noisy_parties(protection, len(site.passive)),
                delta=dp.delta,
            )
            self.plan_release(self.joint, dp)
            self.further.append(self.joint)
            noise = self.joint.sigma
        elif dp is not None and dp.activations:
            self.release = self.row_release(
                "activations", dp, clip=dp.clip_activations, times=times, once=not config.trainable
            )
            noise = self.release.sigma
        architecture = config.architecture(Task(table.classes).outputs)
        self._width = architecture.hidden
        spec = config.cut_spec(architecture.hidden, self.plan, dp, times, self.label_times())
        with seeded(self.seed("model")):
            self.half = self.build_half(architecture, spec, noise)

    def build_half(self, architecture: Architecture, spec: CutSpec, noise: float) -> PassiveHalf:
        """This party's half of the network."""
        return PassiveHalf(architecture, self.site, spec, self.protection, noise, self.x.shape[1:])

    async def setup(self) -> None:
        await self.half.setup()

    def activations(self, rows: np.ndarray) -> torch.Tensor:
        """a_p of these rows, clipped and noised where the job says so."""
        a: torch.Tensor = self.half.bottom(self.features(rows))
        if self.joint is not None:
            return self.joint.clipped(a)
        return a if self.release is None else self.release(a, rows)

    async def hand_over(self, activations: torch.Tensor, rows: np.ndarray, *, train: bool) -> None:
        """Feed the cut, with this party's share of the noise on z where the job says so."""
        if self.joint is None:
            await self.half.forward(activations, train=train)
        else:
            noise = self.joint.noise(rows, self._width)
            await self.half.cut.forward(activations.detach(), train=train, noise=noise)

    def keep(self, epoch: int, more: State) -> None:
        """See `Role.keep`. Noise that is drawn once is drawn for all aligned rows before the first checkpoint: what is
        drawn later and forgotten would be drawn again, and be one more release."""
        if self.release is not None and self.release.once and self.site.keeper.wants(epoch):
            split = self.table.split
            aligned = np.intersect1d(np.concatenate([split.train, split.valid, split.test]), self.own_rows())
            with torch.no_grad():
                for rows in chunks(aligned, self.plan.eval_rows):
                    self.activations(rows)
        super().keep(epoch, more)

    async def train_batch(self, rows: np.ndarray) -> None:
        fed = self.feed(rows)
        a = self.activations(fed)
        await self.hand_over(a, fed, train=True)
        await self.half.backward(a)

    async def answer(self, rows: np.ndarray) -> None:
        with torch.no_grad():
            a = self.activations(rows)
        await self.hand_over(a, rows, train=False)

    def snapshot(self) -> object:
        return self.half.snapshot()

    def restore(self, state: object) -> None:
        self.half.restore(state)

    def state(self) -> State:
        return {"half": self.half.state()}

    def load(self, state: State) -> None:
        self.half.load(as_dict(state["half"]))
