"""The plain path in simulation against the same network as one module in plain torch, on the same batches.

    python -m benchmarks.plain_path [--epochs 30] [--threads 1 2] [--device cpu cuda]

Before each epoch of a simulated run, ledgers on, plain torch trains one epoch of its own on the batches that the run is
about to take; the figure of a pair is the quotient of the two times, that of a setting the median over pairs. So both
meet the machine in the same state, and other work on it disturbs single pairs. Both begin with the same weights and
take the same optimisers (Adam; SGD for the passive parties' blocks of the cut); that they learn the same is checked by
the losses of the first epoch (later ones drift apart by rounding). A run's time is that of its training batches at all
parties, from drawing the order of the rows to the last party's last step; setup and validation are outside on both
sides.

Without bottoms the split network is a perceptron of the joined columns. Such a one, a single first layer and a single
Adam, is timed in the same rounds: it is what somebody writes who never thought of parties.
"""

from __future__ import annotations

import argparse
import asyncio
import copy
import statistics
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from benchmarks import skip
from benchmarks.common import data, write
from securevfl.algorithms import SplitNN
from securevfl.algorithms.splitnn import Active, Passive
from securevfl.cut import Plain
from securevfl.data import Parties
from securevfl.data.datasets import load
from securevfl.jobs import Job
from securevfl.jobs.simulation import join_parties, run_parties
from securevfl.site import Site
from securevfl.training import ActiveProgram, PassiveProgram, Plan, Program, Setting
from securevfl.training.networks import mlp


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

    def epoch(self, batches: Iterable[np.ndarray]) -> float:
        """Train on these batches; the mean loss of their rows."""
        total, count = 0.0, 0
        for rows in batches:
            index = torch.from_numpy(rows).to(self.labels.device)
            for optimizer in self.optimizers:
                optimizer.zero_grad()
            logits = self.model([x[index] for x in self.features])
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


class Perceptron(Torch):
    """Training of one perceptron of all columns, with weights of its own."""

    def __init__(self, active: Active, passive: Sequence[Passive]) -> None:
        super().__init__(active, passive)
        config, joined = active.config, torch.cat(self.features, dim=1)
        body = mlp([joined.shape[1], config.hidden, *config.top, active.task.outputs]).to(joined.device)
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
            self._rivals = [(Torch(role, passive), race.torch)]
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

    async def answer_all(self, rows: np.ndarray) -> None:
        """Note the time, then answer."""
        self._race.end = now(self.role.features.x.device)
        await asyncio.sleep(0)
        await super().answer_all(rows)


def watched(config: SplitNN, race: Race) -> SplitNN:
    """`config`, whose parties are watched."""

    class Configured(SplitNN):
        def program(self, site: Site, plan: Plan, settings: Mapping[str, Setting]) -> Program:
            (setting,) = settings.values()
            if site.name == site.active:
                return Watched(Active(self, setting), race)
            return WatchedPassive(Passive(self, setting), race)

    return Configured(**{name: getattr(config, name) for name in SplitNN.__struct_fields__})


CREDIT = SplitNN(hidden=16, top=(16,), lr=0.005, cut_lr=1.0)
SETTINGS: Mapping[str, tuple[str, Mapping[str, object], Job, int]] = {
    "credit, 2 parties": (
        "limited_credit",
        {"parties": 2, "overlap": 1.0},
        Job(protection=Plain(), algorithm=CREDIT),
        30,
    ),
    "credit, 3 parties": ("default_credit", {}, Job(protection=Plain(), algorithm=CREDIT), 30),
    "credit, 3 parties, bottoms of 32": (
        "default_credit",
        {},
        Job(protection=Plain(), algorithm=CREDIT.replace(bottom=(32,), lr=0.003, cut_lr=0.1)),
        30,
    ),
    "MNIST halves, CNN": (
        "mnist",
        {"rows": 4000, "test_rows": 500, "overlap": 1.0},
        Job(
            protection=Plain(),
            algorithm=SplitNN(hidden=64, top=(64,), bottom="cnn", lr=0.001, cut_lr=0.1),
            batch_size=64,
        ),
        8,
    ),
}
"""Name → data set, its options, the job, epochs."""


def measure(parties: Parties, job: Job, config: SplitNN) -> dict[str, object]:
    """Both in one run."""
    race = Race()
    job = job.replace(algorithm=watched(config, race))
    ran = run_parties(job, parties, join_parties(parties, job), run="plain path")
    active = ran.trained[parties.active.name]
    apart = abs(race.losses[0] - active.epochs[0].loss)
    if apart > 1e-4 * abs(race.losses[0]):
        raise RuntimeError(f"the two learned something else: their losses of the first epoch are {apart} apart")
    steps = -(-active.rows // job.batch_size)
    walls = race.ratios(race.torch, 0)
    figures: dict[str, object] = {
        "parties": len(parties),
        "rows": active.rows,
        "batch": job.batch_size,
        "steps an epoch": steps,
        "pairs": len(walls),
        "plain torch, ms a step (fastest epoch)": milliseconds(race.torch, steps),
        "split, ms a step (fastest epoch)": milliseconds(race.split, steps),
        "speed over plain torch's": round(statistics.median(walls), 3),
        "quartiles": [round(q, 3) for q in statistics.quantiles(walls, n=4)[::2]],
        "in CPU time": round(statistics.median(race.ratios(race.torch, 1)), 3),
        "messages in ledgers": sum(len(ledger.entries) for ledger in ran.ledgers.values()),
        "losses of the first epoch apart": float(f"{apart:.2g}"),
    }
    if race.perceptron:
        figures["one perceptron, ms a step (fastest epoch)"] = milliseconds(race.perceptron, steps)
        figures["speed over one perceptron's"] = round(statistics.median(race.ratios(race.perceptron, 0)), 3)
    return figures


def milliseconds(times: list[tuple[float, float]], steps: int) -> float:
    """Of a step in the fastest epoch, wall."""
    return round(1e3 * min(wall for wall, _ in times) / steps, 4)


def main() -> None:
    devices = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, help="of every setting; its own number if not given")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2], help="torch's threads on the CPU")
    parser.add_argument("--device", nargs="+", default=devices)
    parser.add_argument("--only", default="", help="settings whose name begins so")
    given = parser.parse_args()
    runs = [("cpu", n) for n in given.threads if "cpu" in given.device]
    runs += [(device, torch.get_num_threads()) for device in given.device if device != "cpu"]
    figures: dict[str, dict[str, object]] = {}
    for name, (title, options, job, epochs) in SETTINGS.items():
        if not name.startswith(given.only):
            continue
        parties = data(partial(load, title, **options), name)
        if parties is None:
            continue
        config = job.algorithm
        if not isinstance(config, SplitNN):
            raise TypeError("the settings are SplitNN's")
        for device, threads in runs:
            torch.set_num_threads(threads)
            timed = job.replace(epochs=given.epochs or epochs, device=device)
            where = f"{device}, {threads} thread{'s' if threads > 1 else ''}" if device == "cpu" else device
            figures.setdefault(name, {})[where] = measure(parties, timed, config)
    if not figures:
        skip.skip("plain_path", "no setting was measured")
    write("plain_path", dict(figures))


if __name__ == "__main__":
    main()
