"""The programs of training on shares. A role says which rows train and towards what, as under any protection; the
network that it would train at a cut is trained by the three computing parties, who learn nothing of it.

The active party counts the epochs, as elsewhere, and decides by rounded metrics that were computed on shares.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import numpy as np
import torch
from securevfl_crypto.errors import CryptoError
from securevfl_crypto.replicated import Opening

from securevfl.cut import Protection
from securevfl.cut.share_exchanges import EPOCH, PLAN, WIDTH
from securevfl.errors import ProtectionInactive, ProtocolError, RangeError
from securevfl.privacy import Gaussian, Link, SharedSteps, fan_out
from securevfl.shares import (
    Course,
    Handing,
    Member,
    Network,
    NetworkShape,
    Rule,
    StepNoise,
    Words,
    check_clipped,
    check_judged,
    check_logits,
    check_sizes,
    clipped,
    gradient_bound,
    input_words,
    named,
    row_bounds,
)
from securevfl.site import Site
from securevfl.training.halves import ActiveHalf, Architecture, PassiveHalf
from securevfl.training.program import ActiveProgram, PassiveProgram, Program, Progress
from securevfl.training.role import ActiveRole, PassiveRole, Role
from securevfl.training.rows import Plan, Trained
from securevfl.training.shared_model import SharedModel
from securevfl.training.split import chunks
from securevfl.training.state import State, as_dict, as_flag, as_int
from securevfl.transport import Kind, Message

__all__ = ["SharesActive", "SharesCoordinator", "SharesPassive", "Sharing", "rule_of"]

_LEFT_OUT = (
    "on shares no validation score is opened, so that scores are not calibrated, and no weight, so that the active "
    "party has no scores of its own columns alone; the training loss is not opened either"
)
_MOST_CLASSES = 1 << 10
_MOST_BATCHES = 1 << 20
_MOST_ROWS = 1 << 20
_MOST_WIDTH = 1 << 20


class OnShares(Protocol):
    """What the programs have to know of the algorithm."""

    @property
    def trainable(self) -> bool:
        """Whether bottoms have parameters."""
        ...

    def architecture(self, outputs: int) -> Architecture:
        """Shapes of the split network."""
        ...


@dataclass(frozen=True, kw_only=True)
class Sharing:
    """What all programs of a job on shares are made from.

    Attributes:
        algorithm: says the network.
        protection: names the computing parties and the optimiser.
        site: the party's place, linked with all.
        plan: of the job.
        trains: whether it trains; False where a trained model predicts.
    """

    algorithm: OnShares
    protection: Protection
    site: Site
    plan: Plan
    trains: bool = True

    @property
    def computing(self) -> tuple[str, ...]:
        """Names of the three."""
        return self.protection.computing_parties(self.site.active, self.site.passive, self.site.coordinator)

    def member(self, rows: int, classes: int, handed: NetworkShape | None = None) -> Member:
        """This party's part, and all that it lets be opened: one set of metrics and one bit in each epoch that is not
        done and validates, and predictions of so many rows, once; to the active party. Where the model is handed out,
        to each party its own part, once.

        Args:
            rows: that are tested, or predicted.
            classes: number of classes.
            handed: the network that is handed out at the end; None where it stays in shares.
        """
        saved, names = self.site.keeper.saved(), self.computing
        done = 0 if saved is None else as_int(saved["epoch"])
        left = sum(self.plan.validates(epoch) for epoch in range(done + 1, self.plan.epochs + 1))
        to, outputs = (names.index(self.site.active),), 1 if classes == 2 else classes
        most = self.plan.eval_rows
        openings = {
            "range": Opening(left, to, 1, each=1),
            "metrics": Opening(left, to, 3 if classes == 2 else 2, each=1),
            "predictions": Opening(-(-rows // most), to, min(rows, most) * outputs, total=rows * outputs),
        }
        if handed is not None:
            openings |= Handing.openings(handed, (self.site.active, *self.site.passive), names)
        return Member(self.site, names, openings)

    def handed(self, shape: NetworkShape) -> NetworkShape | None:
        """The network, where this run hands it out at its end."""
        return shape if self.trains and self.protection.hands_out else None

    def handing(self, member: Member, course: Course, shape: NetworkShape) -> Handing | None:
        """What hands the model out, and deals it again; None where it stays in shares."""
        return Handing(member, shape, course.network, course.begin_handing) if self.protection.hands_out else None

    def shape(self, widths: Sequence[int], classes: int) -> NetworkShape:
        """The network for inputs of these widths."""
        outputs = 1 if classes == 2 else classes
        found = self.algorithm.architecture(outputs)
        bottom = found.bottom if self.algorithm.trainable and isinstance(found.bottom, tuple) else ()
        hidden = () if found.top is None else (found.hidden, *found.top)
        return NetworkShape(tuple(widths), bottom, hidden, classes)

    @property
    def mechanism(self) -> Gaussian | None:
        """The noise on the model's steps."""
        return None if self.protection.dp is None else self.protection.dp.model

    def noise(self, shape: NetworkShape, times: int) -> StepNoise | None:
        """This party's part of that noise, where it computes.

        Args:
            shape: of the network.
            times: how often one row trains, as planned.
        """
        mechanism = self.mechanism
        if mechanism is None:
            return None
        return StepNoise(mechanism.sigma(times), 2 * gradient_bound(shape, mechanism.clip))

    def course(self, member: Member, shape: NetworkShape, batch_size: int, times: int) -> Course:
        """This party's way through training, with the network where it computes."""
        network = None
        if member.engine is not None:
            rule, noise = rule_of(self.protection), self.noise(shape, times)
            network = Network(shape, rule, batch_size, member.engine, self.site.seed, noise=noise)
        return Course(member, shape.inputs, shape.outputs, network)

    def counted(self, role: Role) -> SharedSteps | None:
        """Uses of a data party's rows in noisy steps; None without noise, and in a prediction."""
        mechanism = self.mechanism
        if mechanism is None or not len(role.training_rows(1)):
            return None
        return role.releases.shared_steps(mechanism, rows=role.release_rows(), times=role.times(role.plan.epochs))

    def check_noise(self, role: Role, shape: NetworkShape) -> None:
        """Refuse noise with which logits could wrap within the planned steps.

        Raises:
            InputError: they could.
        """
        plan, mechanism, noise = role.plan, self.mechanism, self.noise(shape, role.times(role.plan.epochs))
        if mechanism is None or noise is None or not len(role.training_rows(1)):
            return
        steps, rule = plan.epochs * len(role.batches(1)), rule_of(self.protection)
        check_logits(shape, rule, plan.batch_size, steps, self.site.seed, clip=mechanism.clip, noise=noise.largest)


def rule_of(protection: Protection) -> Rule:
    """The optimiser of a protection that trains on shares."""
    told = {name: float(getattr(protection, name)) for name in ("lr", "momentum", "weight_decay")}
    return Rule(told["lr"], told["momentum"], told["weight_decay"])


def _sizes(parts: Sequence[np.ndarray]) -> list[int]:
    return [len(part) for part in parts]


@contextmanager
def _by_name(computing: Sequence[str]) -> Iterator[None]:
    """What the engine finds wrong inside, with the names of the parties that it counts.

    Raises:
        ProtocolError: the computing parties do not agree, or one sent or asked for what it may not.
    """
    try:
        yield
    except CryptoError as error:
        who = ", ".join(f"{name!r} is {index}" for index, name in enumerate(computing))
        raise ProtocolError(f"on shares ({who}): {error}") from error


class _Fed:
    """What a party deals of its rows: those that its role feeds, as they enter the shared network.

    Args:
        role: the party's.
        half: its half of the network, whose bottom is used where it has no parameters.
        trainable: whether the bottom is trained, and so on shares.

    Attributes:
        bound: the largest norm of a row that it deals; longer ones are scaled down. None for any.
    """

    def __init__(self, role: Role, half: ActiveHalf | PassiveHalf, trainable: bool) -> None:
        self._role = role
        self._half = half
        self._trainable = trainable
        self.bound: float | None = None

    def width(self) -> int:
        """Columns of what it deals."""
        return math.prod(self._role.features.shape) if self._trainable else self._of(np.arange(0)).shape[1]

    def words(self, rows: np.ndarray) -> np.ndarray:
        """Numbered rows in fixed point, uint64 (n, d)."""
        entering = self._of(rows)
        name = self._role.site.name
        if self.bound is None:
            return input_words(name, entering)
        words = input_words(name, clipped(entering, self.bound))
        check_clipped(name, words, self.bound)
        return words

    def _of(self, rows: np.ndarray) -> torch.Tensor:
        features = self._role.features(rows)
        with torch.no_grad():
            entering = features if self._trainable else self._half.bottom(features)
        return entering.reshape(len(rows), math.prod(entering.shape[1:]))


def _half_of(role: Role) -> ActiveHalf | PassiveHalf:
    half = role.parts.get("half")
    if not isinstance(half, ActiveHalf | PassiveHalf):
        raise TypeError(f"a {type(role).__name__} has no half of a split network to train on shares")
    return half


class SharesActive(ActiveProgram):
    """The active party's program: it deals its rows and its labels, and is one of the computing parties."""

    goes_on_in_epochs = False

    def __init__(self, role: ActiveRole, sharing: Sharing) -> None:
        super().__init__(role)
        half = _half_of(role)
        self.sharing = sharing
        self.fed = _Fed(role, half, sharing.algorithm.trainable)
        self.half = half
        self.model = SharedModel()
        self.uses = sharing.counted(role)
        role.parts = {"shares": self.model}
        self.course: Course

    async def run(self) -> Trained:
        with _by_name(self.sharing.computing):
            return await super().run()

    async def predict(self, model: State, rows: np.ndarray) -> np.ndarray:
        with _by_name(self.sharing.computing):
            return await super().predict(model, rows)

    async def setup(self) -> None:
        """Learn the widths of all inputs, tell them, exchange keys, and share out the first weights."""
        site, role = self.sharing.site, self.role
        if self.sharing.trains:
            check_judged(site.name, len(role.table.split.valid))
        widths = [self.fed.width()]
        for name in site.passive:
            message = await site.links[name].receive(Kind.CONTROL, WIDTH)
            widths.append(_whole(message, name, "width", 0, _MOST_WIDTH))
        classes, rows = role.task.classes, len(role.table.split.test)
        told = np.array(widths, dtype=np.int64)
        meta = {"classes": classes, "batch_size": role.plan.batch_size, "test": rows, "times": _times(role)}
        await fan_out(self.followers(), lambda link: link.send(Kind.CONTROL, PLAN, meta=meta, widths=told))
        await self.begin(widths, classes, rows)

    async def begin(self, widths: Sequence[int], classes: int, rows: int) -> None:
        """Make the network, when the widths are known."""
        shape = self.sharing.shape(widths, classes)
        joined = {name: (shape.bottom[-1] if shape.bottom and w else w) for name, w in _named(self.sharing, widths)}
        cut = getattr(self.half, "cut", None)
        if cut is not None:
            cut.widths = joined
        _clip(self, shape, 0)
        member = self.sharing.member(rows, classes, self.sharing.handed(shape))
        await member.setup()
        self.course = self.sharing.course(member, shape, self.role.plan.batch_size, _times(self.role))
        self.model.network, self.model.handing = self.course.network, self.sharing.handing(member, self.course, shape)

    async def prepare(self) -> State | None:
        saved = await super().prepare()
        await self.model.freshen()
        return saved

    async def train_epoch(self, epoch: int) -> float:
        """One pass over an epoch's batches; the loss is not opened."""
        role, site = self.role, self.sharing.site
        self.course.begin_epoch(epoch, validates=role.plan.validates(epoch))
        batches = role.batches(epoch)
        await self._announce(batches, _sizes(list(chunks(role.table.split.valid, role.plan.eval_rows))))

        def words(number: int) -> list[np.ndarray]:
            rows = batches[number]
            site.observer.batch(site.name, site.active, epoch, rows)
            if self.uses is not None:
                self.uses.use(rows)
            return [self.fed.words(role.feed(rows)), self._targets(role, rows)]

        await self.course.train(_sizes(batches), words, told=lambda done: site.observer.step(epoch, done, len(batches)))
        self.trained.rows = role.rows_trained(epoch)
        return math.nan

    def _targets(self, role: ActiveRole, rows: np.ndarray) -> np.ndarray:
        return _target_words(getattr(role, "targets")(rows), role.task.classes)  # noqa: B009 - roles of split networks have it

    async def _announce(self, batches: Sequence[np.ndarray], later: Sequence[int]) -> None:
        """Tell a coordinator that computes, and has no rows, how many come."""
        site = self.sharing.site
        if site.coordinator in self.course.member.computing:
            sizes = np.array(_sizes(batches), dtype=np.int64)
            after = np.array(later, dtype=np.int64)
            await site.links[site.coordinator].send(Kind.CONTROL, EPOCH, train=sizes, score=after)

    async def evaluate(self, rows: np.ndarray, *, keep: bool = False, judge: bool = False) -> dict[str, float]:
        """Metrics of the model as it is on these rows: of validation rows from shares, rounded; of test rows from their
        predictions, which are opened.

        Raises:
            RangeError: weights left the range within which products on shares do not wrap.
        """
        if not judge:
            return await super().evaluate(rows, keep=keep)
        role, parts = self.role, list(chunks(rows, self.role.plan.eval_rows))
        labels = role.labels(rows).cpu().numpy()
        positive = int((labels == 1).sum()) if role.task.classes == 2 else 0
        pairs = positive * (len(labels) - positive)
        found = await self.course.validate(_sizes(parts), self._scored(parts), 0.5 / pairs if pairs else 0.0)
        if found is None or not found[0]:
            raise RangeError(
                "weights left the range within which products on shares do not wrap: lower lr in the protection; "
                "nothing of this epoch was opened but that"
            )
        return named(found[1:], pairs=bool(pairs))

    def _scored(self, parts: Sequence[np.ndarray]) -> Words:
        role = self.role

        def words(number: int) -> list[np.ndarray]:
            rows = parts[number]
            labels = role.labels(rows).clamp_min(0)  # of rows to predict, classes are not known and not used
            return [self.fed.words(rows), _target_words(labels, role.task.classes)]

        return words

    async def probabilities(self, rows: np.ndarray) -> np.ndarray:
        """Probabilities (n, classes) of numbered rows by the model as it is: their logits are opened here."""
        await self.model.freshen()
        parts = list(chunks(rows, self.role.plan.eval_rows))
        await self._announce([], _sizes(parts))
        logits = await self.course.predict(_sizes(parts), self._scored(parts))
        if logits is None:
            raise ProtocolError(f"nothing was opened to {self.role.site.name!r}")
        return self.role.task.probabilities(torch.from_numpy(logits))

    async def decide(self, progress: Progress, valid: dict[str, float]) -> None:
        self._valid_scores = np.empty((0, 0))
        await super().decide(progress, valid)

    async def after_test(self) -> None:
        await self.model.hand_out()

    def score_alone(self) -> None:
        """Not possible: the active party's own block is shared, too."""

    def calibrate(self) -> None:
        """Not possible: scores of the validation rows are not opened."""

    def followers(self) -> list[Link]:
        return self.sharing.site.others

    def ended(self) -> Trained:
        trained = super().ended()
        trained.notes += _notes(self.course, self.sharing)
        trained.notes.append(_LEFT_OUT)
        return trained

    async def come_back(self, model: State) -> None:
        await _come_back(self, model)


class SharesPassive(PassiveProgram):
    """A passive party's program: it deals its rows, and computes if it is one of the three."""

    goes_on_in_epochs = False

    def __init__(self, role: PassiveRole, sharing: Sharing) -> None:
        super().__init__(role)
        self.sharing = sharing
        self.fed = _Fed(role, _half_of(role), sharing.algorithm.trainable)
        self.model = SharedModel()
        self.uses = sharing.counted(role)
        role.parts = {"shares": self.model}
        self.course: Course

    async def run(self) -> Trained:
        with _by_name(self.sharing.computing):
            return await super().run()

    async def predict(self, model: State, rows: np.ndarray) -> np.ndarray:
        with _by_name(self.sharing.computing):
            return await super().predict(model, rows)

    async def setup(self) -> None:
        """Tell the width of this party's input, learn those of all, and exchange keys."""
        if self.sharing.trains:
            check_judged(self.role.site.name, len(self.role.table.split.valid))
        upstream, width = self.role.upstream, self.fed.width()
        await upstream.send(Kind.CONTROL, WIDTH, meta={"width": width})
        widths, classes, batch_size, rows, times = await _plan(upstream, len(self.sharing.site.passive) + 1)
        mine = dict(_named(self.sharing, widths))[self.role.site.name]
        table = self.role.table
        wanted = (width, table.classes, self.role.plan.batch_size, len(table.split.test), _times(self.role))
        if (mine, classes, batch_size, rows, times) != wanted:
            raise ProtocolError(
                f"{upstream.peer!r} plans {mine} columns of {self.role.site.name!r}, {classes} classes, batches of "
                f"{batch_size}, {rows} test rows and {times} uses of a row; {wanted} was expected: use one job file"
            )
        shape = self.sharing.shape(widths, classes)
        _clip(self, shape, 1 + self.sharing.site.passive.index(self.role.site.name))
        member = self.sharing.member(rows, classes, self.sharing.handed(shape))
        await member.setup()
        self.course = self.sharing.course(member, shape, batch_size, times)
        self.model.network, self.model.handing = self.course.network, self.sharing.handing(member, self.course, shape)

    async def prepare(self) -> State | None:
        saved = await super().prepare()
        await self.model.freshen()
        return saved

    async def train_epoch(self, epoch: int) -> None:
        """Take part in an epoch's batches."""
        role, site = self.role, self.role.site
        await role.begin_epoch(epoch)
        self.course.begin_epoch(epoch, validates=role.plan.validates(epoch))
        batches = role.batches(epoch)

        def words(number: int) -> list[np.ndarray]:
            site.observer.batch(site.name, site.active, epoch, batches[number])
            if self.uses is not None:
                self.uses.use(batches[number])
            return [self.fed.words(role.feed(batches[number]))]

        await self.course.train(_sizes(batches), words, told=lambda done: site.observer.step(epoch, done, len(batches)))

    async def answer_all(self, rows: np.ndarray, *, judge: bool = False) -> None:
        await self.model.freshen()
        parts = list(chunks(rows, self.role.plan.eval_rows))

        def words(number: int) -> list[np.ndarray]:
            return [self.fed.words(parts[number])]

        if judge:
            await self.course.validate(_sizes(parts), words, None)
            return
        self.role.looks.add(self.role.features.places(rows), self.course.outputs)
        await self.course.predict(_sizes(parts), words)

    async def after_test(self) -> None:
        await self.model.hand_out()

    def ended(self) -> Trained:
        trained = super().ended()
        trained.notes += _notes(self.course, self.sharing)
        return trained

    async def come_back(self, model: State) -> None:
        await _come_back(self, model)


class SharesCoordinator(Program):
    """The program of a computing party without data."""

    def __init__(self, sharing: Sharing) -> None:
        self.sharing = sharing
        self.trained = Trained()
        self.model = SharedModel()
        self.course: Course
        self._batch_size = 0
        self._classes = 0

    async def run(self) -> Trained:
        with _by_name(self.sharing.computing):
            return await self._run()

    async def predict(self, model: State, rows: np.ndarray) -> np.ndarray:
        """Take part in predicting; nothing comes back here, (0, 0).

        Args:
            model: this party's part of it.
            rows: none: the active party tells how many there are.
        """
        with _by_name(self.sharing.computing):
            await self.come_back(model)
            await self.answer()
        return np.empty((0, 0))

    async def come_back(self, model: State) -> None:
        """Set up, and take this party's shares of a trained model."""
        await self._setup()
        self.model.restore(as_dict(model["parts"])["shares"])

    async def answer(self) -> None:
        """Take part in scoring the rows that the active party announces."""
        await self.model.freshen()
        _, scored = await _epoch(self.sharing.site.links[self.sharing.site.active], self.sharing.plan)
        await self.course.predict(scored, None)

    async def _setup(self) -> None:
        sharing, site = self.sharing, self.sharing.site
        told = await _plan(site.links[site.active], len(site.passive) + 1)
        widths, self._classes, self._batch_size, rows, times = told
        shape = sharing.shape(widths, self._classes)
        member = sharing.member(rows, self._classes, sharing.handed(shape))
        await member.setup()
        self.course = sharing.course(member, shape, self._batch_size, times)
        self.model.network, self.model.handing = self.course.network, sharing.handing(member, self.course, shape)

    async def _run(self) -> Trained:
        sharing, site, trained = self.sharing, self.sharing.site, self.trained
        observer, chief = site.observer, site.links[site.active]
        observer.phase("setup")
        site.clock.lap()
        saved = site.keeper.saved()
        await self._setup()
        course = self.course
        epoch, stop, kept = 0, False, self.model.snapshot()
        if saved is not None:
            self.model.load(as_dict(saved["shares"]))
            epoch, stop, kept = as_int(saved["epoch"]), self._over(saved), saved["kept"]
            trained.restore_readings(saved["readings"])
        await self.model.freshen()
        trained.setup = site.clock.lap()
        observer.phase("training")
        while not stop:
            epoch += 1
            sizes, scored = await _epoch(chief, sharing.plan)
            course.begin_epoch(epoch, validates=sharing.plan.validates(epoch))
            await course.train(sizes, None, told=partial(observer.step, epoch, total=len(sizes)))
            if sharing.plan.validates(epoch):
                await course.validate(scored, None, None)
            verdict = await chief.receive(Kind.CONTROL, "train/epoch")
            trained.readings.append(site.clock.lap())
            if verdict.meta.get("best"):
                kept = self.model.snapshot()
            stop = bool(verdict.meta.get("stop")) or epoch >= sharing.plan.epochs
            self._keep(epoch, kept, stop=stop)
            observer.epoch(epoch, math.nan, {})
        self.model.restore(kept)
        observer.phase("test")
        await self.answer()
        await self.model.hand_out()
        trained.finish = site.clock.lap()
        trained.model = self._part()
        trained.notes += _notes(course, sharing)
        return trained

    def _part(self) -> State:
        """This party's part of the model: its shares. It has no columns to encode, and no names of classes."""
        part: State = {"parts": {"shares": self.model.snapshot()}, "batch_size": self._batch_size}
        part |= {"times": self.sharing.plan.epochs, "passive": list(self.sharing.site.passive)}
        return part | {"encoder": {}, "classes": self._classes, "names": []}

    def _keep(self, epoch: int, kept: object, *, stop: bool) -> None:
        keeper = self.sharing.site.keeper
        if keeper.wants(epoch):
            readings = [[r.compute, r.he, r.wait, r.sent] for r in self.trained.readings]
            where = {"epoch": epoch, "epochs": self.sharing.plan.epochs, "stop": stop, "readings": readings}
            keeper.save(epoch, where | {"shares": self.model.state(), "kept": kept})

    def _over(self, saved: Mapping[str, object]) -> bool:
        """Whether the kept run has nothing left to do: it stopped early, or has had all epochs."""
        epoch, epochs = as_int(saved["epoch"]), self.sharing.plan.epochs
        return as_flag(saved["stop"]) and (epoch < as_int(saved["epochs"]) or epoch >= epochs)


async def _come_back(program: SharesActive | SharesPassive, model: State) -> None:
    """Take this party's shares of a trained model, and draw them anew with the other computing parties."""
    await program.setup()
    program.role.restore(model["parts"])


def _times(role: Role) -> int:
    """How often one row trains, as planned."""
    return role.times(role.plan.epochs)


def _clip(program: SharesActive | SharesPassive, shape: NetworkShape, place: int) -> None:
    """Clip what this party deals, where the model's steps are noisy, and check that the noise leaves room.

    Args:
        program: the party's.
        shape: of the network.
        place: of the party among those that deal.
    """
    mechanism = program.sharing.mechanism
    if mechanism is not None:
        program.fed.bound = row_bounds(mechanism.clip, shape.inputs)[place]
        program.sharing.check_noise(program.role, shape)


def _named(sharing: Sharing, widths: Sequence[int]) -> list[tuple[str, int]]:
    return list(zip((sharing.site.active, *sharing.site.passive), widths, strict=True))


def _target_words(targets: torch.Tensor, classes: int) -> np.ndarray:
    """Classes (n,) or probabilities (n, classes), as what logits are trained towards, uint64 (n, outputs)."""
    values = targets.detach().cpu()
    if values.ndim == 1:
        values = torch.nn.functional.one_hot(values, classes)
    wide = values.double()
    return input_words("the active party", wide[:, 1:2] if classes == 2 else wide, 1.0)


async def _plan(link: Link, parties: int) -> tuple[list[int], int, int, int, int]:
    """Widths of the inputs, classes, rows of a batch and of the test, and uses of one row, as the active party tells
    them."""
    message = await link.receive(Kind.CONTROL, PLAN, "widths")
    widths = np.asarray(message.arrays["widths"])
    if widths.dtype != np.int64 or widths.shape != (parties,) or not ((widths >= 0) & (widths <= _MOST_WIDTH)).all():
        raise ProtocolError(f"{link.peer!r} tells widths {widths.dtype} {widths.shape}; {parties} were expected")
    classes = _whole(message, link.peer, "classes", 2, _MOST_CLASSES)
    batch_size = _whole(message, link.peer, "batch_size", 1, _MOST_ROWS)
    tested = _whole(message, link.peer, "test", 0, 1 << 24)
    return widths.tolist(), classes, batch_size, tested, _whole(message, link.peer, "times", 1, 1 << 24)


async def _epoch(link: Link, plan: Plan) -> tuple[list[int], list[int]]:
    """Rows of the batches that train and of the parts that are scored, at a coordinator; none above the job's sizes."""
    message = await link.receive(Kind.CONTROL, EPOCH, "train", "score")
    found = []
    for name, most in (("train", plan.batch_size), ("score", plan.eval_rows)):
        sizes = np.asarray(message.arrays[name])
        if sizes.dtype != np.int64 or sizes.ndim != 1 or len(sizes) > _MOST_BATCHES:
            raise ProtocolError(f"{link.peer!r} tells sizes of batches as {sizes.dtype} {sizes.shape}")
        listed = sizes.tolist()
        check_sizes(listed, most)
        found.append(listed)
    return found[0], found[1]


def _whole(message: Message, peer: str, what: str, low: int, high: int) -> int:
    value = message.meta.get(what)
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise ProtocolError(f"{peer!r} announces {what} {value!r:.20}; {low} to {high} are possible")
    return value


def _notes(course: Course, sharing: Sharing) -> list[str]:
    """What the report tells of this party's computing.

    Raises:
        ProtectionInactive: a step was taken without this party's noise.
    """
    again = course.repeated
    found = [
        f"{again} set{'s' * (again > 1)} of metrics or predictions were opened again, because an attempt that broke "
        "off may have opened them before: each is rounded by another chance"
    ] * bool(again)
    if course.network is None or not course.steps:
        return found
    noise = course.network.noise
    if sharing.mechanism is not None and (noise is None or noise.draws != course.steps):
        raise ProtectionInactive(f"{sharing.site.name!r} was to add noise to each of {course.steps} steps and did not")
    found += [] if noise is None else [_noise_note(noise, course, sharing)]
    return [
        f"{', '.join(sharing.computing)} computed on shares: {course.rounds / course.steps:.1f} rounds a step, of "
        f"which {sharing.site.name!r} sent {course.sent / course.steps / 1e6:.2f} MB",
        *found,
    ]


def _noise_note(noise: StepNoise, course: Course, sharing: Sharing) -> str:
    return (
        f"{sharing.site.name!r} added its own noise to each of {course.steps} steps: σ = {noise.sigma:.4g} over the "
        f"sensitivity {noise.sensitivity:.4g}, reached by any two of {', '.join(sharing.computing)}"
    )
