"""What the programs of training on shares are made from, and what the active party tells the others: the network's
widths, and how many rows come. What is told is checked before room is made for it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from securevfl_crypto.errors import CryptoError
from securevfl_crypto.replicated import WIDEST, Opening

from securevfl.cut import Protection
from securevfl.errors import ProtectionInactive, ProtocolError
from securevfl.party_context import PartyContext
from securevfl.privacy import Gaussian, Link
from securevfl.shares.answers import RowAnswer
from securevfl.shares.course import SharedCourse
from securevfl.shares.dp_steps import StepNoise, check_logits, gradient_bound
from securevfl.shares.epochs import SharedTraining, check_sizes
from securevfl.shares.exchanges import EPOCH, PLAN
from securevfl.shares.least_rows import check_metric_sets, check_rows
from securevfl.shares.model_release import ModelRelease
from securevfl.shares.network import Network
from securevfl.shares.network_ranges import NetworkShape, OptimiserConstants
from securevfl.shares.share_party import ShareParty
from securevfl.shares.shared_steps import SharedSteps
from securevfl.shares.trainee import AddedNoise
from securevfl.training.bottoms import Architecture
from securevfl.training.fits import Fits
from securevfl.training.passive_role import PassiveRole
from securevfl.training.plan import Plan
from securevfl.training.role import Role
from securevfl.training.state import as_int
from securevfl.training.task import Task
from securevfl.transport import Kind, Message, Scalar

__all__ = [
    "MOST_WIDTH",
    "SharedPlan",
    "Sharing",
    "computing_notes",
    "name_parties_in_errors",
    "optimiser_of",
    "read_integer",
    "receive_epoch",
    "receive_plan",
]

_MOST_BATCHES = 1 << 20
_MOST_ROWS = 1 << 20
MOST_WIDTH = 1 << 20


class OnShares(Protocol):
    """What the programs have to know of the algorithm."""

    @property
    def trainable(self) -> bool:
        """Whether bottoms have parameters."""
        ...

    @property
    def fits(self) -> Fits:
        """What it declares."""
        ...

    def build_architecture(self, outputs: int) -> Architecture:
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
    site: PartyContext
    plan: Plan
    trains: bool = True

    @property
    def computing_parties(self) -> tuple[str, ...]:
        """Names of the three."""
        return self.protection.computing_parties(self.site.active, self.site.passive, self.site.coordinator)

    def make_party(self, rows: int, classes: int, handed: NetworkShape | None = None) -> ShareParty:
        """This party's part, and all that it lets be opened: one set of metrics in each epoch that is not done and
        validates, and answers about so many rows, once; to the active party. Where the model is handed out, to each
        party its own part, once. And to all three what they check: targets once, the range of the weights before
        anything of a model is opened, and once whether the model is useful.

        Args:
            rows: that are tested, or predicted.
            classes: number of classes; 1 stands for a number.
            handed: the network that is handed out at the end; None where it stays in shares.
        """
        names, left = self.computing_parties, self.count_validations()
        to, width = (names.index(self.site.active),), self.answer(classes).width
        most, figures = self.plan.eval_rows, 1 if self.compares else {1: 1, 2: 3}.get(classes, 2)
        openings = {
            "targets": Opening(int(self.trains), None, 1),
            "range": Opening(left, None, 1, each=1),
            "final range": Opening(1 + self.trains, None, 1),
            "useful": Opening(int(self.judges_usefulness), None, 1),
            "metrics": Opening(left, to, figures, each=1),
            # A server answers questions of any size: as many openings as rows, and no row more than there are.
            "predictions": Opening(
                -(-rows // most) if self.trains else rows, to, min(rows, most) * width, total=rows * width
            ),
        }
        if not self.protection.opens_metrics:
            del openings["metrics"]
        if handed is not None:
            openings |= ModelRelease.openings(handed, (self.site.active, *self.site.passive), names)
        party = ShareParty(self.site, names, openings)
        party.compares = self.compares
        return party

    @property
    def compares(self) -> bool:
        """Whether of an epoch's metrics only one bit is opened."""
        return self.protection.compares_epochs(simulated=self.site.simulated)

    def count_validations(self) -> int:
        """How many epochs that are not done validate; refuses too many sets of metrics.

        Raises:
            PolicyError: a party allows fewer sets.
        """
        saved = self.site.keeper.load()
        done = 0 if saved is None else as_int(saved["epoch"])
        left = self.count_sets(done) if self.trains else 0  # a prediction opens no metrics
        self.site.notes.extend(check_metric_sets(self.site, left * self.protection.opens_metrics))
        return left

    def answer(self, classes: int) -> RowAnswer:
        """What the job opens of each row that is scored."""
        return RowAnswer.of(getattr(self.protection, "answers", None), classes)

    @property
    def mixes(self) -> bool:
        """Whether targets are mixtures, dealt anew for each batch."""
        return self.algorithm.fits.mixes

    def count_sets(self, done: int = 0) -> int:
        """Sets of metrics that the job opens after so many epochs."""
        return sum(self.plan.validates_after(epoch) for epoch in range(done + 1, self.plan.epochs + 1))

    @property
    def judges_usefulness(self) -> bool:
        """Whether the model has to prove useful before it answers."""
        return self.trains and not self.protection.answers_useless

    @property
    def counts_classes(self) -> bool:
        """Whether the validation rows need a number of rows of each class. In a simulation the report warns."""
        return self.judges and not (self.protection.takes_few_rows or self.site.simulated)

    def check_rows(self, train: int, valid: int) -> list[str]:
        """See `least_rows.check_rows`, by what the job says.

        Args:
            train: training rows that all parties have.
            valid: validation rows.
        """
        few_rows = self.protection.takes_few_rows
        return check_rows(self.site, train, valid if self.judges else None, few_rows=few_rows)

    def shape_if_released(self, shape: NetworkShape) -> NetworkShape | None:
        """The network, where this run hands it out at its end."""
        return shape if self.trains and self.protection.hands_out else None

    def make_release(self, member: ShareParty, course: SharedTraining, shape: NetworkShape) -> ModelRelease | None:
        """What hands the model out, and deals it again; None where it stays in shares."""
        return ModelRelease(member, shape, course.network, course.begin_release) if self.protection.hands_out else None

    def network_shape(self, widths: Sequence[int], classes: int) -> NetworkShape:
        """The network for inputs of these widths."""
        found = self.algorithm.build_architecture(Task(classes).outputs)
        bottom = found.bottom if self.algorithm.trainable and isinstance(found.bottom, tuple) else ()
        hidden = () if found.top is None else (found.hidden, *found.top)
        return NetworkShape(tuple(widths), bottom, hidden, classes)

    @property
    def step_mechanism(self) -> Gaussian | None:
        """The noise on the model's steps."""
        return None if self.protection.dp is None else self.protection.dp.model

    def step_noise(self, shape: NetworkShape, times: int) -> StepNoise | None:
        """This party's part of that noise, where it computes.

        Args:
            shape: of the network.
            times: how often one row trains, as planned.
        """
        mechanism = self.step_mechanism
        if mechanism is None:
            return None
        return StepNoise(mechanism.sigma(times), 2 * gradient_bound(shape, mechanism.clip))

    def make_training(self, member: ShareParty, shape: NetworkShape, batch_size: int, times: int) -> SharedTraining:
        """This party's way through training, with the network where it computes."""
        network = None
        if member.engine is not None:
            rule, noise = optimiser_of(self.protection), self.step_noise(shape, times)
            network = Network(shape, rule, batch_size, member.engine, self.site.seed, noise=noise)
        return SharedTraining(
            member,
            shape.inputs,
            shape.outputs,
            network,
            self.answer(shape.classes),
            mixes=self.mixes,
            opens_metrics=self.protection.opens_metrics,
        )

    @property
    def judges(self) -> bool:
        """Whether metrics of validation rows are opened: in training, unless the protection opens none."""
        return self.trains and self.protection.opens_metrics

    def plan_releases(self, role: Role) -> SharedSteps | None:
        """Uses of a data party's rows in noisy steps; None without noise, and in a prediction.

        Raises:
            PolicyError: the plan spends more than the job or the party's policy allows.
        """
        mechanism = self.step_mechanism
        if mechanism is None or not len(role.training_rows(1)):
            return None
        times = role.books.times(role.plan.epochs)
        sigma, delta = mechanism.sigma(times), mechanism.delta
        split = role.table.split
        steps = SharedSteps(
            rows=role.books.release_rows(),
            times=times,
            sigma=sigma,
            clip=mechanism.clip,
            delta=delta,
            scored=np.concatenate([split.valid, split.test]),
        )
        role.releases.plan_release(steps, mechanism)
        if isinstance(role, PassiveRole):
            role.releases.compose_over_jobs(role.spending, split.train, role.features.find_places(split.train))
        return steps

    def check_noise(self, role: Role, shape: NetworkShape) -> None:
        """Refuse noise with which logits could wrap within the planned steps.

        Raises:
            InputError: they could.
        """
        plan, mechanism, noise = (
            role.plan,
            self.step_mechanism,
            self.step_noise(shape, role.books.times(role.plan.epochs)),
        )
        if mechanism is None or noise is None or not len(role.training_rows(1)):
            return
        steps, rule = plan.epochs * len(role.batches(1)), optimiser_of(self.protection)
        check_logits(shape, rule, plan.batch_size, steps, self.site.seed, clip=mechanism.clip, noise=noise.largest)


def optimiser_of(protection: Protection) -> OptimiserConstants:
    """The optimiser of a protection that trains on shares."""
    told = {name: float(getattr(protection, name)) for name in ("lr", "momentum", "weight_decay")}
    return OptimiserConstants(told["lr"], told["momentum"], told["weight_decay"])


@contextmanager
def name_parties_in_errors(computing: Sequence[str]) -> Iterator[None]:
    """What the engine finds wrong inside, with the names of the parties that it counts.

    Raises:
        ProtocolError: the computing parties do not agree, or one sent or asked for what it may not.
    """
    try:
        yield
    except CryptoError as error:
        who = ", ".join(f"{name!r} is {index}" for index, name in enumerate(computing))
        raise ProtocolError(f"on shares ({who}): {error}") from error


@dataclass(frozen=True, kw_only=True)
class SharedPlan:
    """Sizes of a job, as the active party tells them.

    Attributes:
        widths: columns of each data party's input, the active party's first.
        classes: number of classes; 1 where the job learns a number.
        batch_size: rows of a batch.
        test: rows that are tested or predicted.
        times: uses of one row.
        epochs: how many are trained at most: fewer than the job's where a budget of ε ends training sooner. The last
            one validates.
        learned: rows whose targets are dealt for training; 0 where a trained model predicts.
        valid: validation rows; likewise.
    """

    widths: tuple[int, ...]
    classes: int
    batch_size: int
    test: int
    times: int
    epochs: int
    learned: int
    valid: int

    def meta(self) -> dict[str, Scalar]:
        """What the message says beside the widths."""
        return {name: getattr(self, name) for name in _TOLD}


_TOLD = {
    "classes": (1, WIDEST),
    "batch_size": (1, _MOST_ROWS),
    "test": (0, 1 << 24),
    "times": (1, 1 << 24),
    "epochs": (1, 1 << 24),
    "learned": (0, 1 << 24),
    "valid": (0, 1 << 24),
}
"""Numbers of a plan, with the least and the most that is possible."""


async def receive_plan(link: Link, parties: int, *, numeric: bool) -> SharedPlan:
    """The sizes of a job; one class where it learns a number."""
    message = await link.receive(Kind.CONTROL, PLAN, "widths")
    widths = np.asarray(message.arrays["widths"])
    if widths.dtype != np.int64 or widths.shape != (parties,) or not ((widths >= 0) & (widths <= MOST_WIDTH)).all():
        raise ProtocolError(f"{link.peer!r} tells widths {widths.dtype} {widths.shape}; {parties} were expected")
    ranges = _TOLD | {"classes": (1, 1) if numeric else (2, WIDEST)}
    told = {name: read_integer(message, link.peer, name, *bounds) for name, bounds in ranges.items()}
    return SharedPlan(widths=tuple(widths.tolist()), **told)


async def receive_epoch(link: Link, plan: Plan, learned: int) -> tuple[list[int], list[int], list[np.ndarray]]:
    """Rows of the batches that train and of the parts that are scored, at a coordinator, and the places of the batches'
    rows among the targets that were dealt; none above the job's sizes.

    Args:
        link: to the active party.
        plan: of the job.
        learned: how many targets were dealt for training; 0 where places are not told.
    """
    message = await link.receive(Kind.CONTROL, EPOCH, "train", "score", "places")
    found = []
    for name, most in (("train", plan.batch_size), ("score", plan.eval_rows)):
        sizes = np.asarray(message.arrays[name])
        if sizes.dtype != np.int64 or sizes.ndim != 1 or len(sizes) > _MOST_BATCHES:
            raise ProtocolError(f"{link.peer!r} tells sizes of batches as {sizes.dtype} {sizes.shape}")
        listed = sizes.tolist()
        check_sizes(listed, most)
        found.append(listed)
    train, score = found
    places = np.asarray(message.arrays["places"])
    wanted = sum(train) if learned else 0
    if places.dtype != np.uint32 or places.shape != (wanted,) or (wanted and places.max() >= learned):
        raise ProtocolError(
            f"{link.peer!r} tells places of {places.dtype} {places.shape} for {wanted} rows among {learned} targets"
        )
    return train, score, np.split(places, np.cumsum(train)[:-1]) if wanted else []


def read_integer(message: Message, peer: str, what: str, low: int, high: int) -> int:
    """The whole number that a message announces under a name.

    Args:
        message: of the peer.
        peer: its name, for the error.
        what: the number's name in the message.
        low: least that is possible.
        high: most that is possible.

    Raises:
        ProtocolError: it is none, or outside these.
    """
    value = message.meta.get(what)
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise ProtocolError(f"{peer!r} announces {what} {value!r:.20}; {low} to {high} are possible")
    return value


def computing_notes(course: SharedCourse, sharing: Sharing) -> list[str]:
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
    if sharing.step_mechanism is not None and (noise is None or noise.draws != course.steps):
        raise ProtectionInactive(
            f"{sharing.site.name!r} had to add noise to each of {course.steps} steps, and added it to "
            f"{0 if noise is None else noise.draws}"
        )
    found += [] if noise is None else [_noise_note(noise, course, sharing)]
    return [
        f"{', '.join(sharing.computing_parties)} computed on shares: {course.rounds / course.steps:.1f} rounds a "
        f"{course.step_name}, of which {sharing.site.name!r} sent {course.sent / course.steps / 1e6:.2f} MB",
        *found,
    ]


def _noise_note(noise: AddedNoise, course: SharedCourse, sharing: Sharing) -> str:
    two = sharing.protection.between_two
    who = "each of the two alone" if two else f"any two of {', '.join(sharing.computing_parties)}"
    return (
        f"{sharing.site.name!r} added its own noise to each of {course.steps} steps: σ = {noise.sigma:.4g} over the "
        f"sensitivity {noise.sensitivity:.4g}, reached by {who}"
    )
