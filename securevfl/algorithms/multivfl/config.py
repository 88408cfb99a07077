"""Multi-VFL: many data owners and many label owners (Mugunthan et al. 2021, arXiv 2106.05468, algorithm 1).

In a round each label owner trains with all data owners on its own rows; a data owner keeps a copy of its bottom for
each label owner. Then data owners average their copies, label owners send the change of their weights to a
coordinator, and a server optimiser (`servers`) makes the next round's weights.

No label owner's change is seen by anyone else. With ``aggregation="masked"`` label owners share pairwise secrets, and
the coordinator learns the changes' sum only (secure aggregation, Bonawitz et al. 2017, doi 10.1145/3133956.3133982, for
parties that all stay to the end). With ``"paillier"`` or ``"ckks"`` it adds ciphertexts and learns nothing at all. All
three give the same weights, see `averaging`. The mean of the changes is known to all label owners in the next weights.

Under a sealed cut nobody holds the weights W = U + V between data owner and label owner, but the mean over label owners
is linear: a data owner averages its shares U, the label owners theirs by the same aggregation. Shares are integers then
and each side rounds its own mean: the weights are within two units of their last place of the plain run's.

In the paper data owners send the output of a convolution, added up to 32 channels, and label owners have a convolution
and two linear layers. Here the parties' parts meet in the cut layer, which is linear, and perceptrons follow.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import torch
from securevfl_crypto.aggregation import Addends, Aggregation, PaillierAggregation

from securevfl.algorithms.averaging import Averaging, BlindAveraging, MaskedAveraging
from securevfl.algorithms.base import Course, Epoch, Plan, Table, Trained
from securevfl.algorithms.coordinators import BlindCoordinator, Coordinator, MaskedCoordinator
from securevfl.algorithms.halves import State, as_dict
from securevfl.algorithms.leakage import Finding
from securevfl.algorithms.servers import SERVERS, Server
from securevfl.algorithms.splitnn import Active, SplitNN
from securevfl.cut import CutSpec, Protection
from securevfl.errors import InputError, PolicyError, ProtocolError, UnknownNameError
from securevfl.privacy import DP, Link
from securevfl.site import Site
from securevfl.transport import Kind

__all__ = ["LabelOwner", "MultiVFL"]

_AGGREGATIONS = ("masked", "paillier", "ckks")
_SIGMA = 40


@dataclass(frozen=True, kw_only=True)
class MultiVFL(SplitNN):
    """Configuration of Multi-VFL; a job's epochs are rounds, its steps the batches of a round.

    Attributes:
        server: ``"fedavg"``, ``"fedadam"``, ``"fedyogi"`` or ``"feddemonadam"``.
        server_lr: η_s.
        beta1: decay of the server's momentum.
        beta2: decay of its second moment.
        tau: τ of the server.
        aggregation: how changes are added up: ``"masked"``, the coordinator learns the sum; ``"paillier"`` or
            ``"ckks"``, it learns nothing.
        paillier_bits: size of the modulus of that Paillier; 3072 gives 128-bit security.
    """

    name: ClassVar[str] = "multi_vfl"
    many_owners: ClassVar[bool] = True
    server: str = "fedavg"
    server_lr: float = 1e-3
    beta1: float = 0.9
    beta2: float = 0.99
    tau: float = 1e-3
    aggregation: str = "masked"
    paillier_bits: int = 3072

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.server not in SERVERS:
            raise UnknownNameError("multi_vfl.server", self.server, SERVERS)
        if self.aggregation not in _AGGREGATIONS:
            raise UnknownNameError("multi_vfl.aggregation", self.aggregation, _AGGREGATIONS)
        if not 2048 <= self.paillier_bits <= 8192 or self.paillier_bits % 64:
            raise InputError(
                f"multi_vfl.paillier_bits is {self.paillier_bits}; 2048 (112-bit security) is the least, 8192 the "
                "most, in steps of 64: use 3072 for 128-bit security"
            )
        if not (0 <= self.beta1 < 1 and 0 <= self.beta2 < 1 and 0 < self.tau <= 1 and 0 < self.server_lr <= 100):
            raise InputError(
                f"multi_vfl has beta1 {self.beta1}, beta2 {self.beta2}, tau {self.tau}, server_lr {self.server_lr}; "
                "betas lie from 0 to below 1, tau up to 1, the rate up to 100"
            )

    @property
    def title(self) -> str:
        how = "" if self.aggregation == "masked" else f", {self.aggregation} aggregation"
        return f"Multi-VFL, {self.server}{how}"

    @property
    def blind(self) -> bool:
        """Whether the coordinator learns nothing."""
        return self.aggregation != "masked"

    def check(self, protection: Protection) -> None:
        super().check(protection)
        floor = protection.policy()
        if floor.sealed and not self.blind:
            raise PolicyError(
                f"{self.title} averages the weights of the cut over label owners, and under {protection.name!r} nobody "
                "holds these weights, only shares, which are added up under encryption: use aggregation 'paillier' or "
                "'ckks', or protection 'plain'"
            )
        if self.aggregation == "paillier" and self.paillier_bits < floor.min_key_bits:
            raise PolicyError(
                f"the aggregation's Paillier key would have {self.paillier_bits} bits and {protection.name!r} demands "
                f"{floor.min_key_bits}: set paillier_bits to that"
            )

    def cut_spec(self, width: int, plan: Plan, dp: DP | None, times: int, label_times: int) -> CutSpec:
        return replace(super().cut_spec(width, plan, dp, times, label_times), integer_shares=self.blind)

    def scheme(self) -> Aggregation:
        """What adds changes up under encryption."""
        if self.aggregation == "paillier":
            return PaillierAggregation(self.paillier_bits)
        from securevfl_crypto.aggregation import CkksAggregation

        return CkksAggregation()

    def optimiser(self, plan: Plan) -> Server:
        """A server optimiser as it begins."""
        return Server(self.server, plan.epochs, self.server_lr, self.beta1, self.beta2, self.tau)

    def averaging(self, site: Site, server: Link, owners: Sequence[str], plan: Plan) -> Averaging:
        """A label owner's side of the aggregation."""
        if self.blind:
            return BlindAveraging(site, server, owners, self.scheme(), self.optimiser(plan))
        return MaskedAveraging(site, server, owners)

    def coordinator(self, site: Site, plan: Plan, owners: Sequence[str]) -> Coordinator:
        """The coordinator's program."""
        if self.blind:
            return BlindCoordinator(site, plan, owners, self.scheme())
        return MaskedCoordinator(site, plan, owners, self.optimiser(plan))

    def findings(self, protection: Protection, passive: Sequence[str], active: str) -> list[Finding]:
        mean = "in each round the mean over label owners of the change of their weights"
        sizes = "sizes and timing of ciphertexts; nothing of the weights, nor of their changes' sum"
        return [
            *super().findings(protection, passive, active),
            Finding("coordinator", active, sizes, "ok")
            if self.blind
            else Finding("coordinator", active, f"{mean}, and never its own alone", "note"),
            Finding("the other label owners", active, f"{mean}; of two, each can take its own off it", "note"),
        ]

    def notes(self, protection: Protection) -> list[str]:
        if not self.blind:
            return super().notes(protection)
        return [
            *super().notes(protection),
            "the first label owner has the key of the aggregation: should the coordinator give it single ciphertexts, "
            "it opens random numbers, for masks cancel in the sum of all label owners only",
        ]


class LabelOwner(Active):
    """One label owner: the active side of its own split network; the first one also validates and tests.

    Args:
        site: where the label owner and the data owners are, it being active.
        server: the link to the coordinator.
        owners: all label owners, in order.
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
        if self.plan.batch_size < self.nominal_batch and (
            protection.policy().sealed or getattr(protection, "fixed_point", False)
        ):
            raise InputError(
                f"{site.name!r} has {self.plan.batch_size} rows to train on, fewer than a batch of "
                f"{self.nominal_batch}; the fixed point of the cut depends on the batch, and weights are "
                "averaged: take a smaller batch"
            )
        self.server = server
        self.evaluates = site.name == owners[0]
        self.averaging = config.averaging(everyone, server, owners, plan)
        self.parties = len(owners)

    async def setup(self) -> None:
        await super().setup()
        self.put(await self.averaging.setup(self.vector(), self._shares()))

    def _shares(self) -> Addends | None:
        """Sizes of this side's shares of the weights of the cut; None where the data owners have the weights."""
        shares = self.half.cut.snapshot()
        if not isinstance(shares, dict):
            return None
        spec = self.config.cut_spec(self.config.hidden, self.plan, self.protection.dp, 1, 1)
        bits = spec.fixed_point.fw + 4 + _SIGMA + 1  # what is drawn to hide a weight, and the weight
        return Addends(count=sum(values.size for values, _ in shares.values()), bits=bits, parties=self.parties)

    async def average_shares(self) -> None:
        """Take the mean over label owners for this side's shares of the weights of the cut, where it has any."""
        shares = self.half.cut.snapshot()
        if not isinstance(shares, dict):
            return
        flat = np.concatenate([np.asarray(values, dtype=object).ravel() for values, _ in shares.values()])
        mean, at = await self.averaging.mean_shares(flat), 0
        for name, (values, _) in shares.items():
            shares[name] = mean[at : at + values.size].reshape(values.shape), None
            at += values.size
        self.half.cut.restore(shares)

    def vector(self) -> np.ndarray:
        """This party's weights, (d,) float64: its top model and the bias of the cut."""
        parts = [parameter.detach().double().ravel() for parameter in self.half.model.parameters()]
        return torch.cat(parts).cpu().numpy()

    def put(self, vector: np.ndarray) -> None:
        """Set the weights from a vector.

        Raises:
            ProtocolError: it has another length, or numbers that are not finite.
        """
        parameters = list(self.half.model.parameters())
        if vector.shape != (sum(p.numel() for p in parameters),) or not np.isfinite(vector).all():
            raise ProtocolError(f"the next weights have shape {vector.shape}, or are not finite: use one job file")
        at = 0
        with torch.no_grad():
            for p in parameters:
                p.copy_(torch.from_numpy(vector[at : at + p.numel()]).reshape(p.shape).to(p))
                at += p.numel()

    async def run(self) -> Trained:
        self.site.observer.phase("setup")
        saved = await self.prepare()
        self.site.observer.phase("training")
        if saved is None:
            await self.average_shares()
            course = Course(kept=self.snapshot())
        else:
            course = self._resumed(saved)
            self.averaging.load(as_dict(saved["averaging"]))
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
        self.put(await self.averaging.step(self.vector() - before))
        await self.average_shares()
        valid: dict[str, float] = {}
        if self.evaluates:
            valid = await self.evaluate(self.table.split.valid)
            await self.verdict(course, valid)
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

    def keep(self, epoch: int, more: State) -> None:
        super().keep(epoch, more | {"averaging": self.averaging.state()})

    def verdict_links(self) -> list[Link]:
        """Whom the evaluating label owner tells how it goes on."""
        return [*self.site.others, self.server]
