"""A simulated plain run against the same network as one module in plain torch, epoch by epoch on the same batches.

`benchmarks.plain_path` and `benchmarks.gpu` run it; what is measured, and how, stands there.
"""

from __future__ import annotations

import asyncio
import copy
import statistics
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from securevfl.algorithms import SplitNN
from securevfl.algorithms.splitnn import Active, Passive
from securevfl.party_context import PartyContext
from securevfl.privacy import Ledger
from securevfl.training import ActiveProgram, Algorithm, PassiveProgram, Plan, Program, Setting, Trained
from securevfl.training.networks import build_mlp

__all__ = ["Race", "figures_of", "watched"]


class Whole(nn.Module):
    """The network of all parties in one module: a bottom and a block of the cut each, and the top."""

    def __init__(self, bottoms: Iterable[nn.Module], blocks: Iterable[nn.Module], top: nn.Module) -> None:
        super().__init__()
        self.bottoms = nn.ModuleList(bottoms)
        self.blocks = nn.ModuleList(blocks)
        self.top = top

    def forward(self, features: Sequence[torch.Tensor]) -> torch.Tensor:
        """Logits (n, outputs) of every party's features, the active party's first."""
        z = sum(block(bottom(x)) for x, bottom, block in zip(features, self.bottoms, self.blocks, strict=True))
        out: torch.Tensor = self.top(torch.relu(z))
        return out


class Torch:
    """Training of `Whole` as one writes it who has all columns in one place."""

    def __init__(self, active: Active, passive: Sequence[Passive]) -> None:
        config = active.config
        self.batch_size = active.plan.batch_size
        self.features = [role.features.x for role in (active, *passive)]
        blocks = [copy.deepcopy(active.half.own), *(block_of(role) for role in passive)]
        bottoms = [copy.deepcopy(active.half.bottom), *(copy.deepcopy(role.half.bottom) for role in passive)]
        self.model = Whole(bottoms, blocks, copy.deepcopy(active.half.top)).to(active.y.device)
        others = [p for block in blocks[1:] for p in block.parameters()]
        theirs = {id(p) for p in others}
        mine = [p for p in self.model.parameters() if id(p) not in theirs]
        self.optimizers = [
            torch.optim.Adam(mine, lr=config.lr, weight_decay=config.weight_decay),
            torch.optim.SGD(others, lr=config.cut_lr),
        ]
        self.binary = active.task.classes == 2
        self.labels = active.y.float()[:, None] if self.binary else active.y

    def take(self, x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        """Rows of a batch, as most people write it."""
        return x[index]

    def epoch(self, batches: Iterable[np.ndarray]) -> float:
        """Train on these batches; the mean loss of their rows."""
        total, count = 0.0, 0
        for rows in batches:
            index = torch.from_numpy(rows).to(self.labels.device)
            for optimizer in self.optimizers:
                optimizer.zero_grad()
            logits = self.model([self.take(x, index) for x in self.features])
            if self.binary:
                loss = functional.binary_cross_entropy_with_logits(logits, self.labels[index])
            else:
                loss = functional.cross_entropy(logits, self.labels[index])
            if len(rows) < self.batch_size:
                loss = loss * (len(rows) / self.batch_size)
            loss.backward()  # type: ignore[no-untyped-call]
            for optimizer in self.optimizers:
                optimizer.step()
            total += loss.item() * self.batch_size
            count += len(rows)
        return total / count


class Gathered(Torch):
    """The same, with rows taken as we take them: in a quarter of the time, of large batches."""

    def take(self, x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        """Rows of a batch, as few people write it."""
        return x.index_select(0, index)


class Perceptron(Torch):
    """Training of one perceptron of all columns, with weights of its own."""

    def __init__(self, active: Active, passive: Sequence[Passive]) -> None:
        super().__init__(active, passive)
        config, joined = active.config, torch.cat(self.features, dim=1)
        body = build_mlp([joined.shape[1], config.hidden, *config.top, active.task.outputs]).to(joined.device)
        self.features = [joined]
        self.optimizers = [torch.optim.Adam(body.parameters(), lr=config.lr, weight_decay=config.weight_decay)]
        self.model = Whole([nn.Identity()], [body[0]], body[2:])


def block_of(role: Passive) -> nn.Module:
    """A passive party's block of the cut as a linear layer with the weights that it has now."""
    state = role.half.cut.snapshot()
    weights = state[0] if isinstance(state, tuple) else state
    if not isinstance(weights, torch.Tensor):
        raise TypeError("the plain cut's snapshot begins with its block of weights")
    inputs, outputs = weights.shape
    layer = nn.Linear(inputs, outputs, bias=False)
    with torch.no_grad():
        layer.weight.copy_(weights.T)
    return layer


@dataclass
class Race:
    """What is measured in one run: seconds of each epoch, (wall, CPU)."""

    roles: list[Passive] = field(default_factory=list)
    torch: list[tuple[float, float]] = field(default_factory=list)
    gathered: list[tuple[float, float]] = field(default_factory=list)
    perceptron: list[tuple[float, float]] = field(default_factory=list)
    split: list[tuple[float, float]] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)
    end: tuple[float, float] = (0.0, 0.0)

    def ratios(self, against: list[tuple[float, float]], which: int, skip: int = 2) -> list[float]:
        """Speed of the split run over that of another, epoch by epoch; the first ones warm up."""
        pairs = zip(against[skip:], self.split[skip:], strict=True)
        return [one[which] / other[which] for one, other in pairs]


def now(device: torch.device) -> tuple[float, float]:
    """Wall and CPU time, after all that was asked of the device is done."""
    if device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter(), time.process_time()


class Watched(ActiveProgram):
    """The active party's program, which lets plain torch train on every epoch's batches first.

    Args:
        role: the active party's.
        race: what is measured.
    """

    def __init__(self, role: Active, race: Race) -> None:
        super().__init__(role)
        self._active = role
        self._race = race
        self._rivals: Sequence[tuple[Torch, list[tuple[float, float]]]] = ()

    async def train_epoch(self, epoch: int) -> float:
        """Let the others train this epoch, then train it."""
        race, role = self._race, self._active
        device = role.y.device
        if not self._rivals:
            await asyncio.sleep(0)  # the passive parties learn their weights
            passive = sorted(race.roles, key=lambda role: role.site.name)
            self._rivals = [(Torch(role, passive), race.torch), (Gathered(role, passive), race.gathered)]
            if not role.config.bottom:
                self._rivals.append((Perceptron(role, passive), race.perceptron))
        for rival, times in reversed(self._rivals):
            start = now(device)
            loss = rival.epoch(role.batches(epoch))
            end = now(device)
            times.append((end[0] - start[0], end[1] - start[1]))
        race.losses.append(loss)
        start = now(device)
        loss = await super().train_epoch(epoch)
        race.end = now(device)
        for _ in race.roles:  # the passive parties take their last step
            await asyncio.sleep(0)
        race.split.append((race.end[0] - start[0], race.end[1] - start[1]))
        return loss


class WatchedPassive(PassiveProgram):
    """A passive party's program, which says when it is done with an epoch.

    Args:
        role: the passive party's.
        race: what is measured.
    """

    def __init__(self, role: Passive, race: Race) -> None:
        super().__init__(role)
        self._race = race
        race.roles.append(role)

    async def answer_all(self, rows: np.ndarray, *, judge: bool = False) -> None:
        """Note the time, then answer."""
        self._race.end = now(self.role.features.x.device)
        await asyncio.sleep(0)
        await super().answer_all(rows, judge=judge)


def watched(config: Algorithm, race: Race) -> SplitNN:
    """`config`, whose parties are watched.

    Raises:
        TypeError: no SplitNN.
    """
    if not isinstance(config, SplitNN):
        raise TypeError(f"plain torch has the network of SplitNN, and not of {config.name}")

    class Configured(SplitNN):
        def program(self, site: PartyContext, plan: Plan, settings: Mapping[str, Setting]) -> Program:
            (setting,) = settings.values()
            if site.name == site.active:
                return Watched(Active(self, setting), race)
            return WatchedPassive(Passive(self, setting), race)

    return Configured(**{name: getattr(config, name) for name in SplitNN.__struct_fields__})


_APART = 2e-3
"""Share of a loss by which two trainings may differ after their first epoch: sums in another order drift apart over
thousands of steps."""


def figures_of(race: Race, active: Trained, parties: int, batch: int, ledgers: Iterable[Ledger]) -> dict[str, object]:
    """What a run's race showed.

    Args:
        race: the times.
        active: what the active party's program left.
        parties: how many took part.
        batch: rows of one.
        ledgers: of all parties.

    Raises:
        RuntimeError: the two learned something else, so that their times say nothing.
    """
    apart = abs(race.losses[0] - active.epochs[0].loss)
    if apart > _APART * abs(race.losses[0]):
        raise RuntimeError(f"the two learned something else: their losses of the first epoch are {apart} apart")
    steps = -(-active.rows // batch)
    skip = min(2, len(race.split) - 1)
    walls = race.ratios(race.torch, 0, skip)
    figures: dict[str, object] = {
        "parties": parties,
        "rows": active.rows,
        "batch": batch,
        "steps an epoch": steps,
        "pairs": len(walls),
        "plain torch, ms a step (fastest epoch)": milliseconds(race.torch, steps),
        "split, ms a step (fastest epoch)": milliseconds(race.split, steps),
        "time over plain torch's": round(statistics.median(1 / wall for wall in walls), 3),
        "time over plain torch's with index_select": round(
            statistics.median(1 / speed for speed in race.ratios(race.gathered, 0, skip)), 3
        ),
        "speed over plain torch's": round(statistics.median(walls), 3),
        "quartiles": quartiles(walls),
        "in CPU time": round(statistics.median(race.ratios(race.torch, 1, skip)), 3),
        "messages in ledgers": sum(ledger.message_count for ledger in ledgers),
        "losses of the first epoch apart": float(f"{apart:.2g}"),
    }
    if race.perceptron:
        figures["one perceptron, ms a step (fastest epoch)"] = milliseconds(race.perceptron, steps)
        figures["speed over one perceptron's"] = round(statistics.median(race.ratios(race.perceptron, 0, skip)), 3)
    return figures


def quartiles(values: list[float]) -> list[float]:
    """The first and the third; of less than two values, these."""
    return [round(q, 3) for q in (statistics.quantiles(values, n=4)[::2] if len(values) > 1 else values)]


def milliseconds(times: list[tuple[float, float]], steps: int) -> float:
    """Of a step in the fastest epoch, wall."""
    return round(1e3 * min(wall for wall, _ in times) / steps, 4)
