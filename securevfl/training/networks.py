"""Bottom and top models: multi-layer perceptrons given by widths, convolutional ones by name.

A bottom ends in ReLU6: the sealed cut computes in integers whose range is planned beforehand, so activations have to be
bounded.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import torch
from torch import nn

from securevfl.errors import InputError
from securevfl.training.bottoms import Bottom, Frozen

__all__ = [
    "build_active_block",
    "build_bottom",
    "build_mlp",
    "resnet18_stem",
    "resnet56_stem",
]


def build_mlp(widths: Sequence[int], *, last: nn.Module | None = None) -> nn.Sequential:
    """Linear layers of these widths with ReLU between them, and `last` after the last."""
    layers: list[nn.Module] = []
    for i, (inputs, outputs) in enumerate(itertools.pairwise(widths)):
        layers += [nn.ReLU()] if i else []
        layers.append(nn.Linear(inputs, outputs))
    return nn.Sequential(*layers, *([last] if last is not None else []))


def _build_convolution(inputs: int, outputs: int, kernel: int = 3) -> list[nn.Module]:
    return [nn.Conv2d(inputs, outputs, kernel, padding=kernel // 2), nn.ReLU()]


def _build_small(channels: int) -> nn.Sequential:
    """Two convolutions with pooling: for small images on a CPU."""
    return nn.Sequential(
        *_build_convolution(channels, 16), nn.MaxPool2d(2), *_build_convolution(16, 32), nn.MaxPool2d(2), nn.Flatten()
    )


def _build_fedcvt(channels: int) -> nn.Sequential:
    """The CNN of FedCVT for CIFAR-10 halves: 32-32-pool-64-64-pool-128-128-pool (its section 6.3.3)."""
    layers: list[nn.Module] = []
    for inputs, outputs in ((channels, 32), (32, 64), (64, 128)):
        layers += [*_build_convolution(inputs, outputs), *_build_convolution(outputs, outputs), nn.MaxPool2d(2)]
    return nn.Sequential(*layers, nn.Flatten())


def _build_multivfl(channels: int) -> nn.Sequential:
    """The data owner's model of Multi-VFL: one convolution to 32 channels, kernel 3 (its section 4), then pooling."""
    return nn.Sequential(nn.Conv2d(channels, 32, 3), nn.ReLU(), nn.MaxPool2d((1, 2)), nn.Flatten())


class _Residual(nn.Module):
    """A basic block of ResNet (He et al. 2016), with group normalisation: it needs no statistics of other rows."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1, bias=False), nn.GroupNorm(8, outputs), nn.ReLU()
        )
        self.second = nn.Sequential(nn.Conv2d(outputs, outputs, 3, padding=1, bias=False), nn.GroupNorm(8, outputs))
        same = stride == 1 and inputs == outputs
        self.skip = nn.Identity() if same else nn.Conv2d(inputs, outputs, 1, stride=stride, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.second(self.first(x)) + self.skip(x))


def resnet18_stem(channels: int) -> nn.Sequential:
    """ResNet-18 for small images: 3 x 3 stem, four stages of two basic blocks, average pooling; 512 features."""
    layers: list[nn.Module] = [nn.Conv2d(channels, 64, 3, padding=1, bias=False), nn.GroupNorm(8, 64), nn.ReLU()]
    for inputs, outputs, stride in ((64, 64, 1), (64, 128, 2), (128, 256, 2), (256, 512, 2)):
        layers += [_Residual(inputs, outputs, stride), _Residual(outputs, outputs, 1)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())


class _Padded(nn.Module):
    """A basic block whose shortcut has no parameters: every other pixel, new channels zero (He et al., option A)."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1, bias=False),
            nn.GroupNorm(8, outputs),
            nn.ReLU(),
            nn.Conv2d(outputs, outputs, 3, padding=1, bias=False),
            nn.GroupNorm(8, outputs),
        )
        self.stride, self.more = stride, outputs - inputs

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        same = x[..., :: self.stride, :: self.stride]
        return torch.relu(self.body(x) + nn.functional.pad(same, (0, 0, 0, 0, 0, self.more)))


def resnet56_stem(channels: int) -> nn.Sequential:
    """ResNet-56 (He et al. 2016, section 4.2: 6n + 2 layers, n = 9) but for its last layer; 64 features.

    A 3 x 3 stem, three stages of nine basic blocks with 16, 32 and 64 channels, average pooling. Group normalisation
    has as many parameters as the paper's batch normalisation.
    """
    layers: list[nn.Module] = [nn.Conv2d(channels, 16, 3, padding=1, bias=False), nn.GroupNorm(8, 16), nn.ReLU()]
    for inputs, outputs, stride in ((16, 16, 1), (16, 32, 2), (32, 64, 2)):
        layers += [_Padded(inputs, outputs, stride), *(_Padded(outputs, outputs, 1) for _ in range(8))]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())


_CONVOLUTIONS = {
    "cnn": (_build_small, 64),
    "cnn-fedcvt": (_build_fedcvt, 64),
    "cnn-multivfl": (_build_multivfl, 0),
    "resnet18": (resnet18_stem, 0),
    "resnet56": (resnet56_stem, 0),
}
"""Name in `BOTTOMS` → convolutional layers, and the width of a linear layer after them (0 for none)."""


def build_bottom(bottom: Bottom, shape: Sequence[int], *, width: int = 0) -> tuple[nn.Module, int]:
    """A bottom model for one row's features of `shape`, and the width of its activations; 0 for no features.

    Args:
        bottom: widths or a name. For a frozen one, this builds the perceptron of the same width that the active party
            trains instead; `frozen_bottom` builds a passive party's.
        shape: (d,) for tables, (channels, height, width) for images.
        width: of a convolutional model's activations; 0 for the model's default.

    Raises:
        InputError: a convolutional model for features that are not images.
    """
    if math.prod(shape) == 0:
        return nn.Identity(), 0
    if isinstance(bottom, str):
        if len(shape) != 3:
            raise InputError(f"bottom {bottom!r} takes images; the features have shape {tuple(shape)}: give widths")
        make, default = _CONVOLUTIONS[bottom]
        body = make(shape[0])
        with torch.no_grad():
            try:
                flat = body(torch.zeros(1, *shape)).shape[1]
            except RuntimeError as error:
                raise InputError(f"images of shape {tuple(shape)} are too small for bottom {bottom!r}") from error
        out = width or default
        if not out:
            return nn.Sequential(body, nn.ReLU6()), flat
        return nn.Sequential(body, nn.Linear(flat, out), nn.ReLU6()), out
    if isinstance(bottom, Frozen):
        bottom = (bottom.width,)
    inputs = math.prod(shape)
    flatten: list[nn.Module] = [nn.Flatten()] if len(shape) > 1 else []
    if not bottom:
        return (flatten[0] if flatten else nn.Identity()), inputs
    return nn.Sequential(*flatten, *build_mlp([inputs, *bottom], last=nn.ReLU6())), bottom[-1]


def build_active_block(inputs: int, outputs: int) -> nn.Module:
    """The active party's own block of the cut with its bias: linear, or only the bias if it has no features."""
    return nn.Linear(inputs, outputs) if inputs else _Bias(outputs)


class _Bias(nn.Module):
    """A bias, for a party without features."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.bias.expand(len(x), -1)
