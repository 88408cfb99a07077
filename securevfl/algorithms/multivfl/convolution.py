"""The label owner's network of Multi-VFL: one convolution and linear layers above the cut (its section 4)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar

from torch import nn

from securevfl.algorithms.splitnn import Active, SplitNN, Width
from securevfl.cut import ActiveCut, CutSpec
from securevfl.training.active_role import ActiveRole
from securevfl.training.bottoms import Architecture
from securevfl.training.cut_noise import active_side
from securevfl.training.fits import Fits
from securevfl.training.halves import ActiveHalf
from securevfl.training.setting import Setting

__all__ = ["ConvolvedActive", "ConvolvedSplitNN"]


class ConvolvedSplitNN(SplitNN):
    """SplitNN whose active party may have a convolution above the cut.

    Attributes:
        convolution: channels, height and width that the first hidden layer z is read as, for a 3 x 3 convolution with
            as many channels, below the top's linear layers; their product is `hidden`. ``()`` for none.
    """

    fits: ClassVar[Fits] = Fits(counts=True)

    convolution: tuple[Width, ...] = ()

    def problems(self) -> list[str]:
        found = super().problems()
        if self.convolution and (len(self.convolution) != 3 or math.prod(self.convolution) != self.hidden):
            found += [
                f"{self.name}.convolution is {self.convolution}; give channels, height and width whose product is "
                f"hidden, {self.hidden}, or () for no convolution"
            ]
        return found

    def active(self, setting: Setting) -> ActiveRole:
        return ConvolvedActive(self, setting)


class ConvolvedActive(Active):
    """SplitNN's active party, with the convolution that its configuration asks for."""

    config: ConvolvedSplitNN

    def build_half(self, architecture: Architecture) -> ActiveHalf:
        if not self.config.convolution:
            return super().build_half(architecture)
        spec = self.config.cut_spec(self, architecture.hidden)
        passive, outputs = len(self.site.passive), self.task.outputs
        cut, shape = active_side(self, spec), self.features.row_shape
        return _ConvolvedHalf(architecture, cut, spec, passive, shape, outputs, self.config.convolution)


class _ConvolvedHalf(ActiveHalf):
    """The half of the network above the cut, where z is read as an image.

    Args:
        image: channels, height and width; the others as for `ActiveHalf`.
    """

    def __init__(
        self,
        architecture: Architecture,
        cut: ActiveCut,
        spec: CutSpec,
        passive: int,
        shape: Sequence[int],
        outputs: int,
        image: tuple[int, ...],
    ) -> None:
        self.image = image
        super().__init__(architecture, cut, spec, passive, shape, outputs)

    def build_top(self, architecture: Architecture, passive: int, outputs: int) -> nn.Module:
        channels = self.image[0]
        convolution = nn.Conv2d(channels, channels, 3, padding=1)
        linear = super().build_top(architecture, passive, outputs)
        return nn.Sequential(nn.Unflatten(1, self.image), convolution, nn.ReLU(), nn.Flatten(), linear)
