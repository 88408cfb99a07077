"""FedDA on images (WCMC 2022, 6596925, algorithm 1): a generator of right halves from left ones, and its critic.

The paper does not describe its networks. These are our own, small enough for one core; v is half an image's width:

* Generator, (c, h, v) → (c, h, v): a convolution (kernel 3, stride 2) to ``width`` channels, two linear layers with
  8 ``width`` between them, so that all of the left half speaks to all of the right one, then two convolutions that also
  see the left half *mirrored*, where what adjoins the cut lies beside its continuation; pixel shuffle, tanh. As in the
  paper no noise enters.
* Critic, (c, h, 2 v) → 1: a convolution (kernel 4, stride 4) to 2 ``width`` channels, then linear layers of 8 ``width``
  and 1, LeakyReLU 0.2 between them. No normalisation over a batch: the penalty is on the gradient of each row.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn

from securevfl.algorithms.fedda import gradient_penalty
from securevfl.training.seeding import seed_torch


@dataclass(frozen=True, kw_only=True)
class Training:
    """How generator and critic are trained.

    Attributes:
        steps: of the generator.
        lr: Adam's rate α of both (the paper: 1e-4).
        falls: whether the rate falls linearly to nothing (not in the paper).
        width: channels of the generator's convolutions; the other sizes are multiples of it.
        batch: rows in a batch.
        penalty: λ.
        critic_steps: n_critic.
    """

    steps: int
    lr: float
    falls: bool
    width: int
    batch: int
    penalty: float = 10.0
    critic_steps: int = 5


class Generator(nn.Module):
    """Right halves from left halves, (n, c, h, v) with values from -1 to 1; h and v even."""

    def __init__(self, shape: tuple[int, int, int], width: int) -> None:
        super().__init__()
        c, h, v = shape
        grid = (width, h // 2, v // 2)
        flat = width * (h // 2) * (v // 2)
        self.across = nn.Sequential(
            nn.Conv2d(c, width, 3, stride=2, padding=1),
            nn.LeakyReLU(0.2),
            nn.Flatten(),
            nn.Linear(flat, 8 * width),
            nn.ReLU(),
            nn.Linear(8 * width, flat),
            nn.ReLU(),
            nn.Unflatten(1, grid),
        )
        self.join = nn.Sequential(
            nn.Conv2d(width + 4 * c, width, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(width, 4 * c, 3, padding=1),
            nn.PixelShuffle(2),
            nn.Tanh(),
        )

    def forward(self, left: torch.Tensor) -> torch.Tensor:
        mirrored = nn.functional.pixel_unshuffle(left.flip(3), 2)
        right: torch.Tensor = self.join(torch.cat([self.across(left), mirrored], dim=1))
        return right


class Patches(nn.Module):
    """Images, given as rows of c·h·w values, cut into patches of 4 x 4: (n, h/4 · w/4, 16 c).

    A linear layer after it is a convolution of kernel 4 and stride 4, whose second derivative, which the gradient
    penalty needs, takes half the time on a CPU.
    """

    def __init__(self, shape: tuple[int, int, int]) -> None:
        super().__init__()
        self.shape = shape

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        c, h, w = self.shape
        cut = rows.unflatten(1, (c, h // 4, 4, w // 4, 4)).permute(0, 2, 4, 1, 3, 5)
        return cut.reshape(len(rows), (h // 4) * (w // 4), 16 * c)


def critic(shape: tuple[int, int, int], width: int) -> nn.Sequential:
    """The critic of images of `shape` (c, h, w), h and w multiples of 4; takes them as rows (n, c·h·w)."""
    c, h, w = shape
    return nn.Sequential(
        Patches(shape),
        nn.Linear(16 * c, 2 * width),
        nn.LeakyReLU(0.2),
        nn.Flatten(),
        nn.Linear(2 * width * (h // 4) * (w // 4), 8 * width),
        nn.LeakyReLU(0.2),
        nn.Linear(8 * width, 1),
    )


def completed(generator: nn.Module, left: torch.Tensor) -> torch.Tensor:
    """Whole images ``[left; G(left)]`` (equations 6 and 7)."""
    return torch.cat([left, generator(left)], dim=3)


def train(
    aligned: torch.Tensor, lefts: torch.Tensor, how: Training, *, seed: int, watch: Callable[[int, Generator], None]
) -> Generator:
    """Algorithm 1 of the paper on images: equations 8 and 9 in turn.

    Args:
        aligned: whole images of aligned rows, (n, c, h, 2 v): the real pairs.
        lefts: left halves (m, c, h, v) that the generator completes: the fake pairs.
        how: steps and rates.
        seed: of weights and batches.
        watch: called after each step of the generator with the step's number, from 1.
    """
    c, h, v = (int(size) for size in lefts.shape[1:])
    device = aligned.device
    with seed_torch(seed):
        generator, judge = Generator((c, h, v), how.width).to(device), critic((c, h, 2 * v), how.width).to(device)
    steps = [torch.optim.Adam(net.parameters(), lr=how.lr, betas=(0.0, 0.9), fused=True) for net in (generator, judge)]
    draw = torch.Generator(device).manual_seed(seed)

    def some(images: torch.Tensor) -> torch.Tensor:
        return images[torch.randint(len(images), (how.batch,), generator=draw, device=device)]

    def descend(loss: torch.Tensor, step: torch.optim.Optimizer) -> None:
        step.zero_grad(set_to_none=True)
        loss.backward()
        step.step()

    for number in range(1, how.steps + 1):
        for group in (group for step in steps for group in step.param_groups):
            group["lr"] = how.lr * (1 - (number - 1) / how.steps if how.falls else 1)
        for _ in range(how.critic_steps):
            real = some(aligned).flatten(1)
            with torch.no_grad():
                fake = completed(generator, some(lefts)).flatten(1)
            mix = torch.rand(how.batch, 1, generator=draw, device=device)
            penalty = gradient_penalty(judge, real, fake, mix)
            descend(judge(fake).mean() - judge(real).mean() + how.penalty * penalty, steps[1])
        judge.requires_grad_(False)
        descend(-judge(completed(generator, some(lefts)).flatten(1)).mean(), steps[0])
        judge.requires_grad_(True)
        watch(number, generator)
    return generator
