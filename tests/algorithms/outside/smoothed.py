"""Label smoothing on SplitNN (Szegedy et al. 2016, arXiv 1512.00567, section 7)."""

from __future__ import annotations

from typing import Annotated, ClassVar

import torch
from msgspec import Meta
from torch.nn import functional

from securevfl.algorithms.splitnn import Active, Passive, SplitNN
from securevfl.cut import Protection
from securevfl.errors import ProtocolError
from securevfl.privacy import CrossEntropy, Loss, fan_out
from securevfl.training import ActiveRole, Fits, PassiveRole, Setting
from securevfl.transport import ACTIVE, PASSIVE, Exchange, Kind


class Smoothed(SplitNN):
    """SplitNN towards smoothed labels.

    Attributes:
        smoothing: share of a label that goes to all classes alike.
    """

    name: ClassVar[str] = "smoothed"
    label: ClassVar[str] = "SplitNN, smoothed labels"
    fits: ClassVar[Fits] = Fits(dp={"joint", "stop"}, counts=True)
    smoothing: Annotated[float, Meta(ge=0, lt=1, description="0.1 is usual")] = 0.1

    @property
    def title(self) -> str:
        return f"{self.label} ({self.smoothing:g})"

    def exchanges(self, protection: Protection, passive: int) -> tuple[Exchange, ...]:
        told = Exchange(
            "smoothed/labels",
            Kind.CONTROL,
            ACTIVE,
            PASSIVE,
            "how far labels are smoothed",
            reveals="how far it smoothed its labels, which bounds what a gradient tells of one",
        )
        return (*super().exchanges(protection, passive), *([told] if passive else []))

    def notes(self, protection: Protection) -> list[str]:
        told = f"labels were smoothed by {self.smoothing:g}: probabilities are less extreme"
        return [*super().notes(protection), told]

    def active(self, setting: Setting) -> ActiveRole:
        return SmoothedActive(self, setting)

    def passive(self, setting: Setting) -> PassiveRole:
        return SmoothedPassive(self, setting)


class SmoothedCrossEntropy(CrossEntropy):
    """Cross entropy towards ``(1 − s) y + s / k``."""

    def __init__(self, classes: int, smoothing: float) -> None:
        super().__init__(classes)
        self.smoothing = smoothing

    def __call__(self, logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        if targets.dtype == torch.int64:
            targets = functional.one_hot(targets, self.classes).to(logits.dtype)
        return super().__call__(logits, (1 - self.smoothing) * targets + self.smoothing / self.classes)


class SmoothedActive(Active):
    """Smooths its labels, and says so."""

    config: Smoothed

    def build_loss(self) -> Loss:
        return SmoothedCrossEntropy(self.task.classes, self.config.smoothing)

    async def setup(self) -> None:
        await super().setup()
        meta = {"smoothing": self.config.smoothing}
        await fan_out(self.site.other_links, lambda link: link.send(Kind.CONTROL, "smoothed/labels", meta=meta))


class SmoothedPassive(Passive):
    """Holds what it hears against its own configuration."""

    config: Smoothed

    async def setup(self) -> None:
        await super().setup()
        message = await self.upstream.receive(Kind.CONTROL, "smoothed/labels")
        if message.meta.get("smoothing") != self.config.smoothing:
            raise ProtocolError(f"{self.upstream.peer!r} smooths labels by {message.meta.get('smoothing')!r:.20}")
