"""SplitNN, broken on purpose in one way each, for `check_algorithm` to find. The docstring of each says which."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from torch import nn

from securevfl.algorithms.splitnn import Active, Passive, SplitNN
from securevfl.cut import Protection
from securevfl.privacy import CrossEntropy, Finding, Loss, Noised, strip_noise_mark
from securevfl.training import ActiveRole, Algorithm, PassiveRole, Setting, Subsets
from securevfl.training.fits import Fits
from securevfl.training.state import State
from securevfl.transport import ACTIVE, PASSIVE, Exchange, Kind

__all__ = ["BROKEN"]

BROKEN: dict[type[Algorithm], str] = {}
"""What is broken → the check that finds it."""


def found_by(check: str) -> Callable[[type[Algorithm]], type[Algorithm]]:
    def note(kind: type[Algorithm]) -> type[Algorithm]:
        BROKEN[kind] = check
        return kind

    return note


class Broken(SplitNN):
    """SplitNN under another name; nothing is broken yet."""

    name: ClassVar[str] = "broken"
    fits: ClassVar[Fits] = Fits()
    sides: ClassVar[tuple[type[Active], type[Passive]]] = (Active, Passive)

    def active(self, setting: Setting) -> ActiveRole:
        return self.sides[0](self, setting)

    def passive(self, setting: Setting) -> PassiveRole:
        return self.sides[1](self, setting)


def message(step: str, **more: Any) -> Exchange:
    """From the active to the passive party."""
    return Exchange(step, **{"kind": Kind.CONTROL, "sender": ACTIVE, "receiver": PASSIVE, "words": "a test"} | more)


# Configurations and declarations.


@found_by("configuration")
class Forgetful(Broken):
    """It writes a part of its settings only."""

    bias: float

    def describe(self) -> dict[str, Any]:
        return {name: value for name, value in super().describe().items() if name != "bias"}


@found_by("registry")
class Nameless(Broken):
    """It has the name of the algorithm that it was copied from."""

    name: ClassVar[str] = "splitnn"


@found_by("declarations")
class Wordless(Broken):
    """Its message has no words."""

    def exchanges(self, protection: Protection, passive: int) -> tuple[Exchange, ...]:
        return (*super().exchanges(protection, passive), message("broken/word", words=""))


@found_by("declarations")
class Readable(Broken):
    """It hands over representations whatever the protection, and `reveals` does not say so."""

    def exchanges(self, protection: Protection, passive: int) -> tuple[Exchange, ...]:
        more = message("broken/rows", kind=Kind.REPRESENTATION, reveals="its rows", severity="leak")
        return (*super().exchanges(protection, passive), more)


@found_by("refusals")
class Careless(Broken):
    """It accepts what its base would refuse."""

    def check_protection(self, protection: Protection) -> None: ...


@found_by("findings")
class Silent(Broken):
    """It tells nobody who learns what."""

    def findings(self, protection: Protection, passive: Sequence[str], active: str) -> list[Finding]:
        return []


# Messages.


class Talkative(Active):
    async def setup(self) -> None:
        await super().setup()
        for link in self.site.other_links:
            await link.send(Kind.CONTROL, "broken/hello")


class Listening(Passive):
    async def setup(self) -> None:
        await super().setup()
        await self.upstream.receive(Kind.CONTROL, "broken/hello")


@found_by("messages")
class Undeclared(Broken):
    """It sends a message that nothing declares."""

    sides = (Talkative, Listening)


@found_by("messages")
class Promising(Broken):
    """It declares a message that it never sends."""

    def exchanges(self, protection: Protection, passive: int) -> tuple[Exchange, ...]:
        return (*super().exchanges(protection, passive), message("broken/never"))


class Shouting(Active):
    async def setup(self) -> None:
        await super().setup()
        for link in self.site.other_links:
            for _ in range(3):
                await link.send(Kind.CONTROL, "broken/shout")
            for _ in range(3):
                await link.receive(Kind.CONTROL, "broken/shout")


class ShoutingBack(Passive):
    async def setup(self) -> None:
        await super().setup()
        for _ in range(3):
            await self.upstream.send(Kind.CONTROL, "broken/shout")
        for _ in range(3):
            await self.upstream.receive(Kind.CONTROL, "broken/shout")


@found_by("window")
class Blocking(Broken):
    """Both ends send before they receive."""

    sides = (Shouting, ShoutingBack)

    def exchanges(self, protection: Protection, passive: int) -> tuple[Exchange, ...]:
        back = message("broken/shout", sender=PASSIVE, receiver=ACTIVE)
        return (*super().exchanges(protection, passive), message("broken/shout"), back)


# Training.


class Backwards(Passive):
    def training_rows(self, epoch: int) -> np.ndarray:
        return super().training_rows(epoch)[::-1]


@found_by("batches")
class OtherBatches(Broken):
    """One party trains on other rows in each step."""

    sides = (Active, Backwards)


class Shifted(Passive):
    def feed(self, rows: np.ndarray) -> np.ndarray:
        return np.roll(rows, 1)


@found_by("learning from others")
class WrongRows(Broken):
    """One party puts in another row than the batch says."""

    sides = (Active, Shifted)


class Unseeded(Active):
    def build(self) -> None:
        super().build()
        nn.init.normal_(self.half.own.weight, std=0.1)


@found_by("determinism")
class Moody(Broken):
    """Its weights are drawn without a seed."""

    sides = (Unseeded, Passive)


class Reversed(CrossEntropy):
    sensitivity = 1.5

    def __call__(self, logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.softplus(2 - super().__call__(logits, targets))


class Unlearning(Active):
    def build_loss(self) -> Loss:
        return Reversed(self.task.classes)


@found_by("learning")
class Contrary(Broken):
    """It goes up the loss."""

    sides = (Unlearning, Passive)


class Peeping(Active):
    def training_rows(self, epoch: int) -> np.ndarray:
        return np.concatenate([super().training_rows(epoch), self.table.split.test])


class PeepingToo(Passive):
    def training_rows(self, epoch: int) -> np.ndarray:
        return np.concatenate([super().training_rows(epoch), self.table.split.test])


@found_by("held-out rows")
class Cheating(Broken):
    """It trains on the test rows."""

    sides = (Peeping, PeepingToo)


class Counting(Active):
    """Weighs the loss by how many batches there were."""

    batches_seen = 0

    async def train_batch(self, rows: np.ndarray) -> float | torch.Tensor:
        self.batches_seen += 1
        return await super().train_batch(rows)

    def targets(self, rows: np.ndarray) -> torch.Tensor:
        sure = 0.5 + self.batches_seen / (2 * self.batches_seen + 20)
        return sure * self.task.one_hot(self.labels(rows)) + (1 - sure) / self.task.classes


@found_by("resuming")
class Amnesiac(Broken):
    """What later epochs depend on is not remembered."""

    sides = (Counting, Passive)


class Scaled(Active):
    """Divides logits by what it learned of the labels in training."""

    scale = 1.0

    async def begin_epoch(self, epoch: int) -> bool:
        self.scale = 1.5
        return False

    async def score(self, rows: np.ndarray) -> torch.Tensor:
        return await super().score(rows) / self.scale

    def remember(self) -> State:
        return {"scale": self.scale}

    def recall(self, memory: State) -> None:
        if len(self.table.split.train):
            self.scale = float(str(memory["scale"]))


@found_by("prediction")
class Estranged(Broken):
    """It recalls what it learned only where there are rows to train on."""

    sides = (Scaled, Passive)


class Remembering(Active):
    """Scores alone by what it remembers of training."""

    shift = 0.0

    async def begin_epoch(self, epoch: int) -> bool:
        self.shift = 0.5
        return False

    def score_alone(self, rows: np.ndarray) -> torch.Tensor:
        return super().score_alone(rows) + self.shift

    def remember(self) -> State:
        return {"shift": self.shift}

    def recall(self, memory: State) -> None:
        self.shift = float(str(memory["shift"]))


@found_by("subsets")
class Homesick(Broken):
    """It says that the active party can do without the others, and cannot once training is over."""

    subsets: ClassVar[Subsets] = "alone"
    sides = (Remembering, Passive)


class Dependent(Active):
    def build(self) -> None:
        super().build()
        self.first = self.site.passive[0]


@found_by("alone")
class Lonely(Broken):
    """It cannot be without a passive party."""

    sides = (Dependent, Passive)


class Paired(Active):
    def build(self) -> None:
        super().build()
        if self.site.passive:
            self.first, self.second = self.site.passive


@found_by("numbers of parties")
class Couple(Broken):
    """It is for two passive parties, and does not say so."""

    sides = (Paired, Passive)


# Privacy.


class ExactGradients(Active):
    async def train_batch(self, rows: np.ndarray) -> float | torch.Tensor:
        logits = await self.half.forward(self.activations(rows, train=True), train=True)
        loss = self.loss(logits, self.targets(rows)).sum()
        await self.half.backward(loss / self.plan.batch_size)
        return loss.detach()


@found_by("noise on labels")
class Bare(Broken):
    """It sends exact gradients where noise on labels was asked for."""

    sides = (ExactGradients, Passive)


class ExactActivations(Passive):
    def activations(self, rows: np.ndarray, *, train: bool) -> torch.Tensor | Noised[torch.Tensor]:
        return strip_noise_mark(super().activations(rows, train=train))


@found_by("noise on features")
class Unmarked(Broken):
    """It takes the mark of noise off what it sends."""

    sides = (Active, ExactActivations)


class Muted(Passive):
    def activations(self, rows: np.ndarray, *, train: bool) -> torch.Tensor | Noised[torch.Tensor]:
        noisy, exact = super().activations(rows, train=train), self.features(rows)
        return noisy.map(lambda value: exact + 0 * value) if isinstance(noisy, Noised) else noisy


@found_by("noise on features")
class Undone(Broken):
    """It marks exact activations as noised."""

    sides = (Active, Muted)


class Again(Active):
    def training_rows(self, epoch: int) -> np.ndarray:
        return np.tile(super().training_rows(epoch), 2)


class AgainToo(Passive):
    def training_rows(self, epoch: int) -> np.ndarray:
        return np.tile(super().training_rows(epoch), 2)


@found_by("noise on labels")
class Miscounted(Broken):
    """It uses each row twice in a pass, and plans for once."""

    sides = (Again, AgainToo)


class Understated(CrossEntropy):
    sensitivity = 0.25

    def __call__(self, logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return super().__call__(logits, targets)


class Modest(Active):
    def build_loss(self) -> Loss:
        return Understated(self.task.classes)


@found_by("loss")
class TooLittleNoise(Broken):
    """Its loss states a smaller sensitivity than it has."""

    sides = (Modest, Passive)


class MeanLoss(CrossEntropy):
    def __call__(self, logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return super().__call__(logits, targets).mean()


class Mean(Active):
    def build_loss(self) -> Loss:
        return MeanLoss(self.task.classes)


@found_by("loss")
class Averaged(Broken):
    """Its loss averages a batch: steps are smaller by the batch size, and a row has no loss of its own."""

    sides = (Mean, Passive)


@found_by("further protections")
class Boastful(Broken):
    """It says that it can have DP-SGD, and does nothing about it."""

    fits: ClassVar[Fits] = Fits(dp={"model"})


class Sloppy(Passive):
    def activations(self, rows: np.ndarray, *, train: bool) -> torch.Tensor | Noised[torch.Tensor]:
        found = super().activations(rows, train=train)
        return found if self.protection.is_sealed or isinstance(found, Noised) else found + 0.25


@found_by("sealing")
class TwoFaced(Broken):
    """It trains another model under encryption than in the clear."""

    sides = (Active, Sloppy)
