"""The papers' networks: how many parameters and layers they have, and what goes through them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import securevfl as sv
from securevfl.training.networks import build_bottom, resnet18_stem, resnet56_stem


def parameters(model: nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())


def test_resnet56_has_the_papers_layers_and_parameters() -> None:
    """He et al. 2016, Table 6: 0.85 million; by layers: stem, 3 stages of 18 convolutions, norms, 64 x 10 + 10."""
    stem = resnet56_stem(3)
    convolutions = [m for m in stem.modules() if isinstance(m, nn.Conv2d)]
    assert len(convolutions) + 1 == 56  # and the last, linear one
    wide = {width: 17 * (9 * width**2 + 2 * width) for width in (16, 32, 64)}
    first = {width: 9 * width * inputs + 2 * width for width, inputs in ((16, 16), (32, 16), (64, 32))}
    expected = 9 * 3 * 16 + 2 * 16 + sum(wide.values()) + sum(first.values())
    assert parameters(stem) == expected
    assert parameters(stem) + parameters(nn.Linear(64, 10)) == 853_018


def test_resnet56_keeps_what_a_block_leaves_alone() -> None:
    """With all last convolutions at zero a block is its shortcut: subsampled, and padded with channels of zeros."""
    stem = resnet56_stem(1)
    block: Any = stem[12]  # the first of the second stage
    nn.init.zeros_(block.body[3].weight)
    x = torch.rand(2, 16, 8, 8)
    expected = torch.cat([x[..., ::2, ::2], torch.zeros(2, 16, 4, 4)], dim=1)
    torch.testing.assert_close(block(x), expected)


@pytest.mark.parametrize(("name", "features"), [("resnet18", 512), ("resnet56", 64)])
def test_each_half_of_an_image_has_a_network_of_its_own(name: str, features: int) -> None:
    """As in Entity Augmentation's section 5.2: each guest has the convolutions, and its half of the first linear
    layer is its block of the cut."""
    bottom, width = build_bottom(name, (3, 32, 16))
    assert width == features
    out = bottom(torch.rand(2, 3, 32, 16))
    assert out.shape == (2, features)
    assert out.max() <= 6
    sv.SplitNN(bottom=name)


def test_resnet18_has_its_eighteen_layers() -> None:
    kernels = [m.kernel_size for m in resnet18_stem(3).modules() if isinstance(m, nn.Conv2d)]
    assert kernels.count((3, 3)) + 1 == 18
    assert kernels.count((1, 1)) == 3
