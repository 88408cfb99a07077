"""The configuration of few-shot VFL and the declarations of its messages."""

from __future__ import annotations

from typing import Annotated, ClassVar

from msgspec import Meta

from securevfl.algorithms.field.few_shot_vfl.client import FewShotClient
from securevfl.algorithms.field.few_shot_vfl.server import FewShotServer
from securevfl.cut import Protection
from securevfl.errors import InputError
from securevfl.training.active_role import ActiveRole
from securevfl.training.algorithm import Algorithm, ReleaseCounts, Subsets
from securevfl.training.bottoms import HANDED_OVER, Bottom, bottom_problems
from securevfl.training.passive_role import PassiveRole
from securevfl.training.plan import Plan
from securevfl.training.representations import handing_over
from securevfl.training.setting import Setting
from securevfl.transport import ACTIVE, PASSIVE, Exchange, Kind, Sight

__all__ = ["FewShotVFL"]

Share = Annotated[float, Meta(gt=0, le=1)]
Count = Annotated[int, Meta(ge=1, le=1_000_000)]


class FewShotVFL(Algorithm):
    """One-shot and few-shot VFL: two or three uploads in all.

    Attributes:
        few_shot: whether there is a second round; False is the paper's one-shot VFL.
        bottom: of each party: widths, or the name of a convolutional one; needs parameters.
        top: widths of the classifier's hidden layers.
        lr: Adam's learning rate, everywhere.
        weight_decay: L2 penalty.
        local_steps: steps of each party's local training, in each round.
        confidence: τ of FixMatch at the passive parties.
        unlabelled: λ_u, the weight of rows without a group there.
        masked: share of a table's columns that the augmentation replaces by their means.
        noise: standard deviation of the strong augmentation, in units of standardised columns.
        agreement: t, least probability that each of two classifiers must give to a pseudo-label.
        temperature: T; the attention divides similarities by it before the softmax.
    """

    name: ClassVar[str] = "few_shot_vfl"
    label: ClassVar[str] = "few-shot VFL"
    uses_others: ClassVar[bool] = True
    subsets: ClassVar[Subsets] = "alone"
    reveals: ClassVar[str] = "sends the passive parties' representations to the active party"
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
    def upload_count(self) -> int:
        """Number of uploads of a passive party, which bounds the releases of a row."""
        return 3 if self.few_shot else 2

    def problems(self) -> list[str]:
        found = super().problems() + bottom_problems(self.bottom, f"{self.name}.bottom", not_frozen=HANDED_OVER)
        if not self.bottom:
            found += [f"{self.name}.bottom is (), which would send the features themselves: give widths, or 'cnn'"]
        return found

    def check_protection(self, protection: Protection) -> None:
        """See `Algorithm.check_protection`.

        Raises:
            InputError: the job asks for noise on gradients.
        """
        super().check_protection(protection)
        if protection.dp is not None and protection.dp.gradient_noise is not None:
            raise InputError(
                f"{self.name} has no differential privacy on gradients, for those of the second round come from "
                "classifiers that are trained on exact labels: use sv.DP(features=sv.Gaussian(…)) without labels, for "
                "noise on representations, or labels=sv.RandomisedResponse(…)"
            )

    def max_releases(self, protection: Protection, plan: Plan, passive: int) -> ReleaseCounts:
        return ReleaseCounts(features=self.upload_count, labels=self.upload_count - 1)

    def exchanges(self, protection: Protection, passive: int) -> tuple[Exchange, ...]:
        if not passive:
            return ()
        whose = "of its rows, aligned or not," if self.few_shot else "of its aligned rows"
        times = "three times" if self.few_shot else "twice"
        found = handing_over(
            self.name,
            protection.dp,
            features=f"its representations {whose} {times}, and of each row that is scored",
            labels="the gradient at its representations, for each training row once in a round",
            steps={"upload": "representations to train with", "answer": "representations to score"},
            passive=passive,
            beside="the gradient at its representations: it tells what a classifier makes of all parties' together",
        )
        if self.few_shot:
            labelled = "which of its other rows were labelled with confidence; of the other parties' rows how many"
            found += (
                Exchange(
                    "few_shot_vfl/rows",
                    Kind.CONTROL,
                    ACTIVE,
                    PASSIVE,
                    "which rows train, and how many others",
                    reveals=labelled,
                    severity="note",
                    sights=(Sight(of="rows", severity="note", through="which rows train"),),
                ),
            )
        return found

    def active(self, setting: Setting) -> ActiveRole:
        return FewShotServer(self, setting)

    def passive(self, setting: Setting) -> PassiveRole:
        return FewShotClient(self, setting)
