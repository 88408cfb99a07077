"""Multi-VFL: many data owners and many label owners (Mugunthan et al. 2021, arXiv 2106.05468, algorithm 1).

In a round each label owner trains with all data owners on its own rows; a data owner keeps a copy of its bottom for
each label owner. Then data owners average their copies, label owners send the change of their weights to a
coordinator, and its server optimiser (`servers`) makes the next round's weights.

The changes are masked: label owners share pairwise secrets, and the coordinator learns their sum only (secure
aggregation, Bonawitz et al. 2017, doi 10.1145/3133956.3133982, for parties that all stay to the end). Masks are
integers modulo 2^128, so each change by itself looks random, at no cost in accuracy beyond 2^-40. The mean of the
changes is known to the coordinator and, in the next weights, to all label owners.

In the paper data owners send the output of a convolution, added up to 32 channels, and label owners have a convolution
and two linear layers. Here the parties' parts meet in the cut layer, which is linear, and perceptrons follow.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import gmpy2
import numpy as np
import securevfl_crypto as crypto
import torch

from securevfl.algorithms.base import Course, Epoch, Plan, Table, Trained
from securevfl.algorithms.halves import State, as_dict
from securevfl.algorithms.leakage import Finding
from securevfl.algorithms.servers import SERVERS, Server
from securevfl.algorithms.splitnn import Active, Passive, SplitNN
from securevfl.cut import Protection, agree_masks
from securevfl.errors import InputError, PolicyError, ProtocolError, UnknownNameError
from securevfl.party import Site
from securevfl.privacy import Link
from securevfl.transport import Guard, Kind

__all__ = ["Coordinator", "DataOwner", "LabelOwner", "MultiVFL", "masked", "unmasked_mean"]

_MODULUS = gmpy2.mpz(1) << 128
_SCALE = 1 << 40
_MASK = Guard("masked", 128)


@dataclass(frozen=True, kw_only=True)
class MultiVFL(SplitNN):
    """Configuration of Multi-VFL; a job's epochs are rounds, its steps the batches of a round.

    Attributes:
        server: ``"fedavg"``, ``"fedadam"``, ``"fedyogi"`` or ``"feddemonadam"``.
        server_lr: η_s.
        beta1: decay of the server's momentum.
        beta2: decay of its second moment.
        tau: τ of the server.
    """

    name: ClassVar[str] = "multi_vfl"
    many_owners: ClassVar[bool] = True
    server: str = "fedavg"
    server_lr: float = 1e-3
    beta1: float = 0.9
    beta2: float = 0.99
    tau: float = 1e-3

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.server not in SERVERS:
            raise UnknownNameError("multi_vfl.server", self.server, SERVERS)
        if not (0 <= self.beta1 < 1 and 0 <= self.beta2 < 1 and 0 < self.tau <= 1 and 0 < self.server_lr <= 100):
            raise InputError(
                f"multi_vfl has beta1 {self.beta1}, beta2 {self.beta2}, tau {self.tau}, server_lr {self.server_lr}; "
                "betas lie from 0 to below 1, tau up to 1, the rate up to 100"
            )

    @property
    def title(self) -> str:
        return f"Multi-VFL, {self.server}"

    def check(self, protection: Protection) -> None:
        super().check(protection)
        if protection.policy().sealed:
            raise PolicyError(
                f"{self.title} averages the data owners' weights of the cut over label owners, and under "
                f"{protection.name!r} nobody holds these weights: use protection 'plain', with or without dp"
            )

    def findings(self, protection: Protection, passive: Sequence[str], active: str) -> list[Finding]:
        mean = "in each round the mean over label owners of the change of their weights, and never its own alone"
        return [*super().findings(protection, passive, active), Finding("coordinator", active, mean, "note")]


def masked(values: np.ndarray, shares: crypto.ZeroShares) -> np.ndarray:
    """Fixed-point numbers plus this party's shares of zero, modulo 2^128, (16 n,) bytes.

    Raises:
        ProtocolError: a number that is not finite, or reaches 2^40.
    """
    if not np.isfinite(values).all() or (len(values) and np.abs(values).max() >= 1 << 40):
        raise ProtocolError("a change of weights is not finite or reaches 2^40; did training diverge? Lower lr")
    whole = [gmpy2.mpz(round(value * _SCALE)) for value in values.tolist()]
    zero = shares.next(len(whole), _MODULUS)
    parts = b"".join(int((a + b) % _MODULUS).to_bytes(16, "little") for a, b in zip(whole, zero, strict=True))
    return np.frombuffer(parts, dtype=np.uint8)


def unmasked_mean(parts: Sequence[np.ndarray], count: int) -> np.ndarray:
    """The mean of the parties' numbers, from what `masked` made of them, (count,) float64.

    Raises:
        ProtocolError: a part of another size.
    """
    total = [gmpy2.mpz(0)] * count
    for part in parts:
        if part.dtype != np.uint8 or part.shape != (16 * count,):
            raise ProtocolError(f"a masked change of {part.size} bytes; {16 * count} were expected")
        content = part.tobytes()
        total = [t + int.from_bytes(content[16 * i : 16 * i + 16], "little") for i, t in enumerate(total)]
    half = _MODULUS // 2
    signed = [int((t + half) % _MODULUS - half) for t in total]
    return np.array([value / _SCALE for value in signed]) / len(parts)


class LabelOwner(Active):
    """One label owner: the active side of its own split network; the first one also validates and tests.

    Args:
        site: where the label owner and the data owners are, it being active.
        server: the link to the coordinator.
        owners: all label owners, in order.
        masks: the pairwise secrets with the others; made in `setup`.
    """

    config: MultiVFL

    def __init__(
        self,
        config: MultiVFL,
        site: Site,
        plan: Plan,
        protection: Protection,
        table: Table,
        *,
        everyone: Site,
        server: Link,
        owners: Sequence[str],
    ) -> None:
        super().__init__(config, site, plan, protection, table)
        self.everyone = everyone
        self.server = server
        self.owners = owners
        self.evaluates = site.name == owners[0]

    async def setup(self) -> None:
        await super().setup()
        self.shares = crypto.ZeroShares(await agree_masks(self.everyone, self.owners, "securevfl aggregation v1"))
        if self.evaluates:
            self.server.send(Kind.STATISTIC, "multi/weights", weights=self.vector())
        await self.receive_weights()

    def vector(self) -> np.ndarray:
        """This party's weights, (d,) float64: its top model and the bias of the cut."""
        parts = [parameter.detach().double().ravel() for parameter in self.half.model.parameters()]
        return torch.cat(parts).cpu().numpy()

    async def receive_weights(self) -> None:
        message = await self.server.receive(Kind.STATISTIC, "multi/weights", "weights")
        self.put(np.asarray(message.arrays["weights"]))

    def put(self, vector: np.ndarray) -> None:
        """Set the weights from a vector.

        Raises:
            ProtocolError: it has another length, or numbers that are not finite.
        """
        parameters = list(self.half.model.parameters())
        if vector.shape != (sum(p.numel() for p in parameters),) or not np.isfinite(vector).all():
            raise ProtocolError(f"the coordinator sent weights of shape {vector.shape}, or not finite ones")
        at = 0
        with torch.no_grad():
            for p in parameters:
                p.copy_(torch.from_numpy(vector[at : at + p.numel()]).reshape(p.shape).to(p))
                at += p.numel()

    async def run(self) -> Trained:
        self.site.observer.phase("setup")
        saved = await self.prepare()
        self.site.observer.phase("training")
        course = Course(kept=self.snapshot()) if saved is None else self._resumed(saved)
        while not course.stop:
            await self._round(course)
        self.restore(course.kept)
        if self.evaluates:
            self.site.observer.phase("test")
            self.trained.test = await self.evaluate(self.table.split.test, keep=True)
        return self.ended()

    async def _round(self, course: Course) -> None:
        course.epoch += 1
        before = self.vector()
        loss = await self._epoch(course.epoch)
        change = masked(self.vector() - before, self.shares)
        self.server.send(Kind.MASKED_SHARE, "multi/change", guard=_MASK, change=change)
        await self.receive_weights()
        valid: dict[str, float] = {}
        if self.evaluates:
            valid = await self.evaluate(self.table.split.valid)
            self.verdict(course, valid)
        else:
            told = await self.server.receive(Kind.CONTROL, "train/epoch")
            course.stop = bool(told.meta.get("stop"))
            if told.meta.get("best"):
                course.kept = self.snapshot()
                self.trained.best_epoch = course.epoch
        self.trained.readings.append(self.lap())
        self.trained.epochs.append(Epoch(loss, valid))
        self.site.observer.epoch(course.epoch, loss, valid)
        self.note(course)

    def verdict_links(self) -> list[Link]:
        """Whom the evaluating label owner tells how it goes on."""
        return [*self.site.others, self.server]


class DataOwner:
    """One data owner: a passive side for each label owner, averaged after each round.

    Args:
        copies: label owner → this party's side of its network, in order.
        site: the data owner's.
    """

    def __init__(self, copies: Mapping[str, Passive], site: Site, plan: Plan) -> None:
        self.copies = dict(copies)
        self.first = next(iter(self.copies.values()))
        self.site = site
        self.plan = plan
        self.trained = Trained()

    def average(self) -> None:
        """``W_d ← Σ_k W_{d,k} / K`` for bottoms and for the weights of the cut."""
        snapshots = [as_snapshot(copy.snapshot()) for copy in self.copies.values()]
        weights = {
            name: torch.stack([bottom[name].float() for bottom, _ in snapshots]).mean(dim=0).to(value.dtype)
            for name, value in snapshots[0][0].items()
        }
        cuts = [cut for _, cut in snapshots]
        mean: object
        if isinstance(cuts[0], torch.Tensor):
            mean = torch.stack([cut for cut in cuts if isinstance(cut, torch.Tensor)]).mean(dim=0)
        else:  # exact integers
            mean = sum(np.asarray(cut, dtype=object) for cut in cuts) // len(cuts)
        for copy in self.copies.values():
            copy.restore((weights, mean))

    async def run(self) -> Trained:
        self.site.clock.lap()
        for copy in self.copies.values():
            await copy.setup()
        self.trained.setup = self.site.clock.lap()
        saved = self.site.keeper.saved()
        if saved is None:
            self.average()
            epoch, kept, stop = 0, self.first.snapshot(), False
        else:
            self.load(saved)
            epoch, kept = int(str(saved["epoch"])), saved["kept"]
            stop = bool(saved["stop"])
        while not stop:
            epoch += 1
            await asyncio.gather(*(self._train(copy, epoch) for copy in self.copies.values()))
            self.average()
            await self.first.answer_all(self.first.table.split.valid)
            verdict = await self.site.links[self.first.site.active].receive(Kind.CONTROL, "train/epoch")
            self.trained.readings.append(self.site.clock.lap())
            if verdict.meta.get("best"):
                kept = self.first.snapshot()
            stop = bool(verdict.meta.get("stop")) or epoch >= self.plan.epochs
            self.keep(epoch, kept, stop=stop)
        self.first.restore(kept)
        await self.first.answer_all(self.first.table.split.test)
        self.trained.finish = self.site.clock.lap()
        self.trained.model = self.first.part()
        for copy in self.copies.values():
            if copy.release is not None:
                self.trained.spent.append(copy.release.spent)
        return self.trained

    async def _train(self, copy: Passive, epoch: int) -> None:
        await copy.begin_epoch(epoch)
        for rows in copy.batches(epoch):
            await copy.train_batch(rows)

    def keep(self, epoch: int, kept: object, *, stop: bool) -> None:
        """Write a checkpoint."""
        if not self.site.keeper.wants(epoch):
            return
        copies = {
            name: {"role": copy.state(), "release": None if copy.release is None else copy.release.state()}
            for name, copy in self.copies.items()
        }
        readings = [[r.compute, r.he, r.wait, r.sent] for r in self.trained.readings]
        state = {"epoch": epoch, "kept": kept, "stop": stop, "copies": copies, "readings": readings}
        self.site.keeper.save(epoch, state)

    def load(self, saved: State) -> None:
        """Come back to a checkpoint."""
        for name, kept in as_dict(saved["copies"]).items():
            copy, parts = self.copies[name], as_dict(kept)
            copy.load(as_dict(parts["role"]))
            if copy.release is not None:
                copy.release.load(as_dict(parts["release"]))
        self.trained.restore_readings(saved["readings"])


def as_snapshot(state: object) -> tuple[dict[str, torch.Tensor], object]:
    """A snapshot of a passive side: its bottom's weights, and its side of the cut."""
    if not isinstance(state, tuple | list) or len(state) != 2:
        raise TypeError("not a snapshot of a passive side")
    return state[0], state[1]


class Coordinator:
    """Adds up masked changes, steps the server optimiser, and tells the label owners their new weights."""

    def __init__(self, config: MultiVFL, site: Site, plan: Plan, owners: Sequence[str]) -> None:
        self.site = site
        self.plan = plan
        self.owners = list(owners)
        self.server = Server(config.server, plan.epochs, config.server_lr, config.beta1, config.beta2, config.tau)
        self.trained = Trained()

    def tell(self, weights: np.ndarray) -> None:
        for name in self.owners:
            self.site.links[name].send(Kind.STATISTIC, "multi/weights", weights=weights)

    async def run(self) -> Trained:
        self.site.clock.lap()
        first = self.site.links[self.owners[0]]
        message = await first.receive(Kind.STATISTIC, "multi/weights", "weights")
        weights = np.asarray(message.arrays["weights"])
        if weights.ndim != 1 or weights.dtype != np.float64 or not np.isfinite(weights).all():
            raise ProtocolError(f"{self.owners[0]!r} sent initial weights that are no finite float64 (d,)")
        epoch, stop = 0, False
        saved = self.site.keeper.saved()
        if saved is not None:
            self.server.load(as_dict(saved["server"]))
            weights = np.asarray(saved["weights"])
            epoch, stop = int(str(saved["epoch"])), bool(saved["stop"])
            self.trained.restore_readings(saved["readings"])
        self.tell(weights)
        self.trained.setup = self.site.clock.lap()
        while not stop:
            epoch += 1
            parts = []
            for name in self.owners:
                part = await self.site.links[name].receive(Kind.MASKED_SHARE, "multi/change", "change")
                parts.append(np.asarray(part.arrays["change"]))
            weights = self.server.step(weights, unmasked_mean(parts, len(weights)))
            self.tell(weights)
            verdict = await first.receive(Kind.CONTROL, "train/epoch")
            stop = bool(verdict.meta.get("stop")) or epoch >= self.plan.epochs
            for name in self.owners[1:]:
                self.site.links[name].send(Kind.CONTROL, "train/epoch", meta=dict(verdict.meta))
            self.trained.readings.append(self.site.clock.lap())
            if self.site.keeper.wants(epoch):
                readings = [[r.compute, r.he, r.wait, r.sent] for r in self.trained.readings]
                state = {"epoch": epoch, "stop": stop, "weights": weights, "server": self.server.state()}
                self.site.keeper.save(epoch, {**state, "readings": readings})
        self.trained.finish = self.site.clock.lap()
        return self.trained
