"""The programs of training on shares. A role says which rows train and towards what, as under any protection; the
network that it would train at a cut is trained by the three computing parties, who learn nothing of it.

The active party counts the epochs, as elsewhere, and decides by rounded metrics that were computed on shares.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch

from securevfl.errors import InputError, ProtocolError, RangeError
from securevfl.privacy import Link, fan_out
from securevfl.shares.coverage import Coverage
from securevfl.shares.dp_steps import check_clipped, clip_below, row_bounds
from securevfl.shares.epochs import SharedTraining, Words, check_judged
from securevfl.shares.exchanges import EPOCH, PLAN, WIDTH
from securevfl.shares.metrics import name_metrics
from securevfl.shares.network_ranges import ERROR_BOUND, TARGET_BOUND, NetworkShape
from securevfl.shares.share_party import input_words
from securevfl.shares.shared_model import SharedModel
from securevfl.shares.sharing import (
    MOST_WIDTH,
    Sharing,
    computing_notes,
    name_parties_in_errors,
    read_integer,
    receive_plan,
)
from securevfl.training.active_program import ActiveProgram, Progress
from securevfl.training.active_role import ActiveRole
from securevfl.training.halves import ActiveHalf, PassiveHalf
from securevfl.training.passive_program import PassiveProgram
from securevfl.training.passive_role import PassiveRole
from securevfl.training.regression import Regression
from securevfl.training.role import Role
from securevfl.training.rows import Trained
from securevfl.training.split import split_chunks
from securevfl.training.state import State
from securevfl.transport import Kind

__all__ = ["SharesActive", "SharesPassive"]

_LEFT_OUT = (
    "on shares no validation score is opened, so that scores are not calibrated, and no weight, so that the active "
    "party has no scores of its own columns alone; the training loss is not opened either"
)


_NEVER_CALLED = ("build_loss", "setup", "activations", "adjust_logits", "train_batch", "score", "answer")
"""Hooks of roles in whose place the computing parties run the network that they share."""


def _count_rows(parts: Sequence[np.ndarray]) -> list[int]:
    return [len(part) for part in parts]


class _DealtRows:
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
        return (
            math.prod(self._role.features.row_shape) if self._trainable else self._entering_rows(np.arange(0)).shape[1]
        )

    def encode_rows(self, rows: np.ndarray) -> np.ndarray:
        """Numbered rows in fixed point, uint64 (n, d)."""
        entering = self._entering_rows(rows)
        name = self._role.site.name
        if self.bound is None:
            return input_words(name, entering)
        words = input_words(name, clip_below(entering, self.bound))
        check_clipped(name, words, self.bound)
        return words

    def _entering_rows(self, rows: np.ndarray) -> torch.Tensor:
        features = self._role.features(rows)
        with torch.no_grad():
            entering = features if self._trainable else self._half.bottom(features)
        return entering.reshape(len(rows), math.prod(entering.shape[1:]))


def _refuse_ignored_hooks(role: Role) -> None:
    """Refuse a role that overrides a hook of the split network that training on shares never calls.

    Raises:
        InputError: it does; the job would train without the change, and nothing would show it.
    """
    kind = type(role)
    # The class that makes the half is the split network's; what a class below it changes is the author's.
    network = next((base for base in reversed(kind.__mro__) if "build_half" in vars(base)), None)
    for hook in ("build_loss",) if network is None else _NEVER_CALLED:
        if getattr(kind, hook, None) not in (None, getattr(network or ActiveRole, hook, None)):
            raise InputError(
                f"{kind.__qualname__} overrides {hook}, which training on shares never calls: it calls begin_epoch, "
                "training_rows, feed and targets. Put the change there, take another protection, or leave shares=True "
                "out of the algorithm's fits"
            )


def _half_of(role: Role) -> ActiveHalf | PassiveHalf:
    half = role.parts.get("half")
    if not isinstance(half, ActiveHalf | PassiveHalf):
        raise TypeError(f"a {type(role).__name__} has no half of a split network to train on shares")
    return half


class SharesActive(ActiveProgram):
    """The active party's program: it deals its rows and its labels, and is one of the computing parties."""

    resumes_within_epochs = False

    def __init__(self, role: ActiveRole, sharing: Sharing) -> None:
        super().__init__(role)
        _refuse_ignored_hooks(role)
        half = _half_of(role)
        role.task = role.task.clipped_at(ERROR_BOUND) if isinstance(role.task, Regression) else role.task
        self.sharing = sharing
        self.fed = _DealtRows(role, half, sharing.algorithm.trainable)
        self.half = half
        self.model = SharedModel()
        self.uses = sharing.plan_releases(role)
        role.parts = {"shares": self.model}
        self.course: SharedTraining

    async def run(self) -> Trained:
        with name_parties_in_errors(self.sharing.computing_parties):
            return await super().run()

    async def predict(self, model: State, rows: np.ndarray) -> np.ndarray:
        with name_parties_in_errors(self.sharing.computing_parties):
            return await super().predict(model, rows)

    async def setup(self) -> None:
        """Learn the widths of all inputs, tell them, exchange keys, and share out the first weights."""
        site, role = self.sharing.site, self.role
        if self.sharing.judges:
            check_judged(site.name, len(role.table.split.valid))
        widths = [self.fed.width()]
        for name in site.passive:
            message = await site.links[name].receive(Kind.CONTROL, WIDTH)
            widths.append(read_integer(message, name, "width", 0, MOST_WIDTH))
        classes, rows = role.task.classes, len(role.table.split.test)
        told = np.array(widths, dtype=np.int64)
        meta = {"classes": classes, "batch_size": role.plan.batch_size, "test": rows, "times": _planned_times(role)}
        await fan_out(self.peers_to_notify(), lambda link: link.send(Kind.CONTROL, PLAN, meta=meta, widths=told))
        await self.make_network(widths, classes, rows)

    async def make_network(self, widths: Sequence[int], classes: int, rows: int) -> None:
        """Make the network, when the widths are known."""
        shape = self.sharing.network_shape(widths, classes)
        joined = {
            name: (shape.bottom[-1] if shape.bottom and w else w) for name, w in _name_widths(self.sharing, widths)
        }
        cut = getattr(self.half, "cut", None)
        if cut is not None:
            cut.widths = joined
        _bound_rows(self, shape, 0)
        member = self.sharing.make_party(rows, classes, self.sharing.shape_if_released(shape))
        await member.setup()
        self.course = self.sharing.make_training(member, shape, self.role.plan.batch_size, _planned_times(self.role))
        self.model.network, self.model.handing = (
            self.course.network,
            self.sharing.make_release(member, self.course, shape),
        )

    async def prepare_training(self) -> State | None:
        saved = await super().prepare_training()
        await self.model.refresh_shares()
        return saved

    async def train_epoch(self, epoch: int) -> float:
        """One pass over an epoch's batches; the loss is not opened."""
        role, site = self.role, self.sharing.site
        self.course.begin_epoch(epoch, validates=role.plan.validates_after(epoch))
        batches = role.batches(epoch)
        judged = role.table.split.valid if self.course.opens_metrics else role.table.split.valid[:0]
        await self._announce_sizes(batches, _count_rows(list(split_chunks(judged, role.plan.eval_rows))))

        def encode_batch(number: int) -> list[np.ndarray]:
            rows = batches[number]
            site.observer.batch_begun(site.name, site.active, epoch, rows)
            fed = role.feed(rows)
            if self.uses is not None:
                self.uses.count_use(np.concatenate([fed, np.setdiff1d(rows, fed)]))  # labels are those of `rows`
            return [self.fed.encode_rows(fed), self._encode_targets(role, rows)]

        await self.course.train(
            _count_rows(batches), encode_batch, told=lambda done: site.observer.step(epoch, done, len(batches))
        )
        self.trained.rows = role.books.rows_trained(epoch)
        return math.nan

    def _encode_targets(self, role: ActiveRole, rows: np.ndarray) -> np.ndarray:
        return _target_words(getattr(role, "targets")(rows), role.task.classes)  # noqa: B009 - roles of split networks have it

    async def _announce_sizes(self, batches: Sequence[np.ndarray], later: Sequence[int]) -> None:
        """Tell a coordinator that computes, and has no rows, how many come."""
        site = self.sharing.site
        if site.coordinator in self.course.member.computing:
            sizes = np.array(_count_rows(batches), dtype=np.int64)
            after = np.array(later, dtype=np.int64)
            await site.links[site.coordinator].send(Kind.CONTROL, EPOCH, train=sizes, score=after)

    async def evaluate_rows(self, rows: np.ndarray, *, keep: bool = False, judge: bool = False) -> dict[str, float]:
        """Metrics of the model as it is on these rows: of validation rows from shares, rounded; of test rows from their
        predictions, which are opened.

        Raises:
            RangeError: weights left the range within which products on shares do not wrap.
        """
        if not judge:
            return await super().evaluate_rows(rows, keep=keep)
        if not self.course.opens_metrics:
            _require_range(await self.course.check_range())
            return {}
        role, parts = self.role, list(split_chunks(rows, self.role.plan.eval_rows))
        labels = role.labels(rows).cpu().numpy()
        positive = int((labels == 1).sum()) if role.task.classes == 2 else 0
        pairs = positive * (len(labels) - positive)
        found = _require_range(
            await self.course.validate(_count_rows(parts), self._words_to_score(parts), 0.5 / pairs if pairs else 0.0)
        )
        if isinstance(role.task, Regression):
            return {"huber": float(found[1]) * role.task.scale**2}
        return name_metrics(found[1:], pairs=bool(pairs))

    def _words_to_score(self, parts: Sequence[np.ndarray]) -> Words:
        role = self.role

        def encode_batch(number: int) -> list[np.ndarray]:
            rows = parts[number]
            labels = role.labels(rows)  # of rows to predict they are not known and not used
            known = role.task.make_targets(labels).nan_to_num() if role.task.is_numeric else labels.clamp_min(0)
            return [self.fed.encode_rows(rows), _target_words(known, role.task.classes)]

        return encode_batch

    async def score_probabilities(self, rows: np.ndarray) -> np.ndarray:
        """Probabilities (n, classes) of numbered rows by the model as it is: their logits are opened here."""
        await self.model.refresh_shares()
        parts = list(split_chunks(rows, self.role.plan.eval_rows))
        await self._announce_sizes([], _count_rows(parts))
        logits = await self.course.predict(_count_rows(parts), self._words_to_score(parts))
        if logits is None:
            raise ProtocolError(f"nothing was opened to {self.role.site.name!r}")
        return self.role.task.compute_probabilities(torch.from_numpy(logits))

    async def decide_epoch(self, progress: Progress, valid: dict[str, float]) -> None:
        self._valid_scores = np.empty((0, 0))
        await super().decide_epoch(progress, valid)

    async def after_test(self) -> None:
        await self.model.hand_out()

    def score_alone(self) -> None:
        """Not possible: the active party's own block is shared, too."""

    def calibrate(self) -> None:
        """Not possible: scores of the validation rows are not opened."""

    def peers_to_notify(self) -> list[Link]:
        return self.sharing.site.other_links

    def close_books(self) -> Trained:
        trained = super().close_books()
        trained.notes += computing_notes(self.course, self.sharing)
        covered = _record_coverage(self, trained)
        trained.notes += [] if covered is None else [covered.summary_sentence()]
        trained.notes.append(_LEFT_OUT)
        return trained

    async def come_back(self, model: State) -> None:
        await _come_back(self, model)
        self.role.task = self.role.task.with_state(model.get("target"))


class SharesPassive(PassiveProgram):
    """A passive party's program: it deals its rows, and computes if it is one of the three."""

    resumes_within_epochs = False

    def __init__(self, role: PassiveRole, sharing: Sharing) -> None:
        super().__init__(role)
        _refuse_ignored_hooks(role)
        self.sharing = sharing
        self.fed = _DealtRows(role, _half_of(role), sharing.algorithm.trainable)
        self.model = SharedModel()
        self.uses = sharing.plan_releases(role)
        role.parts = {"shares": self.model}
        self.course: SharedTraining

    async def run(self) -> Trained:
        with name_parties_in_errors(self.sharing.computing_parties):
            return await super().run()

    async def predict(self, model: State, rows: np.ndarray) -> np.ndarray:
        with name_parties_in_errors(self.sharing.computing_parties):
            return await super().predict(model, rows)

    async def setup(self) -> None:
        """Tell the width of this party's input, learn those of all, and exchange keys."""
        if self.sharing.judges:
            check_judged(self.role.site.name, len(self.role.table.split.valid))
        upstream, width = self.role.upstream, self.fed.width()
        await upstream.send(Kind.CONTROL, WIDTH, meta={"width": width})
        widths, classes, batch_size, rows, times = await receive_plan(
            upstream, len(self.sharing.site.passive) + 1, numeric=self.role.plan.number is not None
        )
        mine = dict(_name_widths(self.sharing, widths))[self.role.site.name]
        table = self.role.table
        wanted = (width, table.classes, self.role.plan.batch_size, len(table.split.test), _planned_times(self.role))
        if (mine, classes, batch_size, rows, times) != wanted:
            raise ProtocolError(
                f"{upstream.peer!r} plans {mine} columns of {self.role.site.name!r}, {classes} classes, batches of "
                f"{batch_size}, {rows} test rows and {times} uses of a row; {wanted} was expected: use one job file"
            )
        shape = self.sharing.network_shape(widths, classes)
        _bound_rows(self, shape, 1 + self.sharing.site.passive.index(self.role.site.name))
        member = self.sharing.make_party(rows, classes, self.sharing.shape_if_released(shape))
        await member.setup()
        self.course = self.sharing.make_training(member, shape, batch_size, times)
        self.model.network, self.model.handing = (
            self.course.network,
            self.sharing.make_release(member, self.course, shape),
        )

    async def prepare_training(self) -> State | None:
        saved = await super().prepare_training()
        await self.model.refresh_shares()
        return saved

    async def train_epoch(self, epoch: int) -> None:
        """Take part in an epoch's batches."""
        role, site = self.role, self.role.site
        await role.begin_epoch(epoch)
        self.course.begin_epoch(epoch, validates=role.plan.validates_after(epoch))
        batches = role.batches(epoch)

        def encode_batch(number: int) -> list[np.ndarray]:
            site.observer.batch_begun(site.name, site.active, epoch, batches[number])
            fed = role.feed(batches[number])
            if self.uses is not None:
                self.uses.count_use(fed)
            return [self.fed.encode_rows(fed)]

        await self.course.train(
            _count_rows(batches), encode_batch, told=lambda done: site.observer.step(epoch, done, len(batches))
        )

    async def answer_all(self, rows: np.ndarray, *, judge: bool = False) -> None:
        await self.model.refresh_shares()
        parts = list(split_chunks(rows, self.role.plan.eval_rows))

        def encode_batch(number: int) -> list[np.ndarray]:
            return [self.fed.encode_rows(parts[number])]

        if judge and not self.course.opens_metrics:
            await self.course.check_range()
            return
        if judge:
            await self.course.validate(_count_rows(parts), encode_batch, None)
            return
        self.role.count_answer(rows)
        await self.course.predict(_count_rows(parts), encode_batch)

    async def after_test(self) -> None:
        if self.sharing.protection.hands_out:
            self.role.count_model()
        await self.model.hand_out()

    def close_books(self) -> Trained:
        trained = super().close_books()
        trained.notes += computing_notes(self.course, self.sharing)
        _record_coverage(self, trained)
        spending = self.role.spending
        if spending.ledger_facts():
            self.role.site.ledger.record_note("epsilon over jobs", spending.ledger_facts())
            trained.notes.append(spending.summary_sentence())
        return trained

    async def come_back(self, model: State) -> None:
        await _come_back(self, model)


async def _come_back(program: SharesActive | SharesPassive, model: State) -> None:
    """Take this party's shares of a trained model, and draw them anew with the other computing parties."""
    await program.setup()
    program.role.books.restore(model["parts"])


def _record_coverage(program: SharesActive | SharesPassive, trained: Trained) -> Coverage | None:
    """Write into the party's ledger what ε of this run covers; None without noise on the model."""
    found = Coverage.from_costs(
        trained.spent, opens_metrics=program.course.opens_metrics, numbers=program.course.outputs
    )
    if found is not None:
        program.sharing.site.ledger.record_note("epsilon covers", found.ledger_facts())
    return found


def _require_range(found: np.ndarray | None) -> np.ndarray:
    """Return what was opened, the range bit first, if that bit is set.

    Raises:
        RangeError: it is not.
    """
    if found is None or not found[0]:
        raise RangeError(
            "weights left the range within which products on shares do not wrap: lower lr in the protection; "
            "nothing of this epoch was opened but that"
        )
    return found


def _planned_times(role: Role) -> int:
    """How often one row trains, as planned."""
    return role.books.times(role.plan.epochs)


def _bound_rows(program: SharesActive | SharesPassive, shape: NetworkShape, place: int) -> None:
    """Clip what this party deals, where the model's steps are noisy, and check that the noise leaves room.

    Args:
        program: the party's.
        shape: of the network.
        place: of the party among those that deal.
    """
    mechanism = program.sharing.step_mechanism
    if mechanism is not None:
        program.fed.bound = row_bounds(mechanism.clip, shape.inputs)[place]
        program.sharing.check_noise(program.role, shape)


def _name_widths(sharing: Sharing, widths: Sequence[int]) -> list[tuple[str, int]]:
    return list(zip((sharing.site.active, *sharing.site.passive), widths, strict=True))


def _target_words(targets: torch.Tensor, classes: int) -> np.ndarray:
    """Classes (n,) or probabilities (n, classes), as what logits are trained towards, uint64 (n, outputs); or scaled
    numbers (n,).

    Raises:
        RangeError: a number too far from the others.
    """
    values = targets.detach().cpu()
    if classes == 1:
        return input_words("the active party", values.double()[:, None], TARGET_BOUND)
    if values.ndim == 1:
        values = torch.nn.functional.one_hot(values, classes)
    wide = values.double()
    return input_words("the active party", wide[:, 1:2] if classes == 2 else wide, 1.0)
