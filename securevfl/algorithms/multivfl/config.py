"""The configuration of Multi-VFL, and which program each party runs."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Annotated, ClassVar, Literal

from msgspec import Meta
from securevfl_crypto.aggregation import Aggregation, CkksAggregation, PaillierAggregation

from securevfl.algorithms.multivfl.averaging import Averaging, BlindAveraging, MaskedAveraging
from securevfl.algorithms.multivfl.convolution import ConvolvedSplitNN
from securevfl.algorithms.multivfl.coordinators import BlindCoordinator, Coordinator, MaskedCoordinator
from securevfl.algorithms.multivfl.data_owner import DataOwner
from securevfl.algorithms.multivfl.declared import MEAN, blind_exchanges, masked_exchanges
from securevfl.algorithms.multivfl.label_owner import LabelOwner, LabelOwnerProgram
from securevfl.algorithms.multivfl.servers import DemonReading, ServerName, ServerOptimiser
from securevfl.algorithms.splitnn import Rate
from securevfl.cut import CutSpec, CutUse, Protection
from securevfl.errors import PolicyError
from securevfl.party_context import PartyContext
from securevfl.privacy import OTHER_OWNERS, Finding
from securevfl.training.active_role import ActiveRole
from securevfl.training.fits import Fits
from securevfl.training.passive_role import PassiveRole
from securevfl.training.plan import Plan
from securevfl.training.program import Program
from securevfl.training.setting import Setting
from securevfl.transport import COORDINATOR, PASSIVE, Exchange

__all__ = ["MultiVFL"]

Beta = Annotated[float, Meta(ge=0, lt=1)]


class MultiVFL(ConvolvedSplitNN):
    """Configuration of Multi-VFL; a job's epochs are rounds, its steps the batches of a round.

    Attributes:
        server: ``"fedavg"``, ``"fedadam"``, ``"fedyogi"`` or ``"feddemonadam"``.
        server_lr: η_s; None for 1 with FedAvg, which then takes the mean, and for the paper's 0.001 with the others.
        beta1: decay of the server's momentum.
        beta2: decay of its second moment.
        tau: τ of the server.
        demon: variant of FedDemonAdam: ``"printed"``, the paper's algorithm line by line, whose decay of β1 compounds;
            ``"closed"``, Chen et al.'s decay, without a correction by 1 − β1^r.
        aggregation: how changes are added up: ``"masked"``, the coordinator learns the sum; ``"paillier"`` or
            ``"ckks"``, it learns nothing.
        paillier_bits: size of the modulus of that Paillier; 3072 gives 128-bit security.
    """

    name: ClassVar[str] = "multi_vfl"
    label: ClassVar[str] = "Multi-VFL"
    fits: ClassVar[Fits] = Fits()
    not_frozen: ClassVar[str] = "multi_vfl averages bottoms that every label owner trains"
    many_owners: ClassVar[bool] = True
    server: ServerName = "fedavg"
    server_lr: Rate | None = None
    beta1: Beta = 0.9
    beta2: Beta = 0.99
    tau: Annotated[float, Meta(gt=0, le=1)] = 1e-3
    demon: DemonReading = "printed"
    aggregation: Literal["masked", "paillier", "ckks"] = "masked"
    paillier_bits: Annotated[
        int, Meta(ge=2048, le=8192, description="2048 gives 112-bit security; use 3072 for 128-bit security")
    ] = 3072

    def problems(self) -> list[str]:
        found = super().problems()
        if self.paillier_bits % 64:
            found += [f"{self.name}.paillier_bits is {self.paillier_bits}; a modulus has a multiple of 64: use 3072"]
        return found

    @property
    def title(self) -> str:
        how = f", {self.aggregation} aggregation" if self.is_blind else ""
        return f"{self.label}, {self.server}{how}"

    @property
    def is_blind(self) -> bool:
        """Whether the coordinator learns nothing."""
        return self.aggregation != "masked"

    @property
    def cut(self) -> CutUse:
        return dataclasses.replace(super().cut, integer_shares=self.is_blind)

    def cut_spec(self, role: ActiveRole | PassiveRole, width: int) -> CutSpec:
        return dataclasses.replace(super().cut_spec(role, width), integer_shares=self.is_blind)

    # What runs where.

    def program(self, site: PartyContext, plan: Plan, settings: Mapping[str, Setting]) -> Program:
        if site.role == COORDINATOR:
            return self.make_coordinator(site, plan)
        if not site.coordinator:  # a prediction: one federation by itself, and nothing to bring together
            return super().program(site, plan, settings)
        if site.role == PASSIVE:
            return DataOwner(self, site, settings)
        (setting,) = settings.values()
        return LabelOwnerProgram(LabelOwner(self, setting), site, self.make_averaging(site, plan))

    def make_coordinator(self, site: PartyContext, plan: Plan) -> Coordinator:
        """The coordinator's program."""
        if self.is_blind:
            return BlindCoordinator(site, plan, self.make_scheme())
        return MaskedCoordinator(site, plan, self.make_optimiser(plan))

    def make_averaging(self, site: PartyContext, plan: Plan) -> Averaging:
        """A label owner's side of the aggregation."""
        if self.is_blind:
            return BlindAveraging(site, self.make_scheme(), self.make_optimiser(plan))
        return MaskedAveraging(site)

    def make_optimiser(self, plan: Plan) -> ServerOptimiser:
        """A new server optimiser."""
        return ServerOptimiser(self.server, plan.epochs, self.server_lr, self.beta1, self.beta2, self.tau, self.demon)

    def make_scheme(self) -> Aggregation:
        """The scheme that adds up changes under encryption."""
        if self.aggregation == "paillier":
            return PaillierAggregation(self.paillier_bits)
        return CkksAggregation()

    # What is sent, and what it tells.

    def exchanges(self, protection: Protection, passive: int) -> tuple[Exchange, ...]:
        if not self.is_blind:
            return (*super().exchanges(protection, passive), *masked_exchanges())
        key_bits = self.paillier_bits if self.aggregation == "paillier" else 0
        added = blind_exchanges(self.aggregation, key_bits, shares=protection.is_sealed)
        return (*super().exchanges(protection, passive), *added)

    def check_protection(self, protection: Protection) -> None:
        """See `Algorithm.check_protection`.

        Raises:
            PolicyError: masked aggregation of a sealed cut, or a Paillier key that is too small for the protection.
        """
        super().check_protection(protection)
        if protection.is_sealed and not self.is_blind:
            raise PolicyError(
                f"{self.title} averages the weights of the cut over label owners, and under {protection.name!r} nobody "
                "holds these weights, only shares, which are added up under encryption: use aggregation 'paillier' or "
                "'ckks', or protection 'plain'"
            )
        least = protection.policy().min_key_bits
        if self.aggregation == "paillier" and self.paillier_bits < least:
            raise PolicyError(
                f"the aggregation's Paillier key would have {self.paillier_bits} bits and {protection.name!r} demands "
                f"{least}: set paillier_bits to that"
            )

    def findings(self, protection: Protection, passive: Sequence[str], active: str) -> list[Finding]:
        found = super().findings(protection, passive, active)
        if (
            not self.is_blind
        ):  # the coordinator tells the mean, as the next weights: no message between label owners does
            found += [Finding(OTHER_OWNERS, active, MEAN, "leak")]
        return found

    def notes(self, protection: Protection) -> list[str]:
        if not self.is_blind:
            return super().notes(protection)
        return [
            *super().notes(protection),
            "the first label owner has the key of the aggregation: should the coordinator give it single ciphertexts, "
            "it opens random numbers, for masks cancel in the sum of all label owners only",
        ]
