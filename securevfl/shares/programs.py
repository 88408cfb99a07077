"""The programs of training on shares. A role says which rows train and towards what, as under any protection; the
network that it would train at a cut is trained by the three computing parties, who learn nothing of it.

The active party counts the epochs, as elsewhere, and decides by rounded metrics that were computed on shares.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar, TypeVar

import numpy as np
import torch

from securevfl.errors import ProtocolError
from securevfl.privacy import Link, fan_out
from securevfl.shares.course import SharedCourse, Words
from securevfl.shares.coverage import Coverage
from securevfl.shares.dealt_rows import (
    DealtRows,
    RowDealer,
    count_rows,
    find_places,
    half_of,
    refuse_ignored_hooks,
    rows_to_learn,
    target_words,
)
from securevfl.shares.dp_steps import row_bounds
from securevfl.shares.exchanges import EPOCH, PLAN, WIDTH
from securevfl.shares.kept_targets import encode_kept
from securevfl.shares.metrics import name_metrics
from securevfl.shares.network_ranges import ERROR_BOUND, NetworkShape
from securevfl.shares.shared_model import SharedModel
from securevfl.shares.sharing import (
    MOST_WIDTH,
    SharedPlan,
    Sharing,
    computing_notes,
    name_parties_in_errors,
    read_integer,
    receive_plan,
)
from securevfl.training.active_program import ActiveProgram, Progress
from securevfl.training.active_role import ActiveRole
from securevfl.training.passive_program import PassiveProgram
from securevfl.training.passive_role import PassiveRole
from securevfl.training.regression import Regression
from securevfl.training.role import Role
from securevfl.training.rows import Trained
from securevfl.training.split import split_chunks
from securevfl.training.state import State, as_int
from securevfl.transport import Kind

__all__ = ["SharesActive", "SharesPassive", "bound_rows", "deal_inputs"]

Rows = TypeVar("Rows", bound=DealtRows)

BEST = "best_so_far"
"""What is opened in the place of metrics where epochs are compared on shares: 1 or 0."""

_LEFT_OUT = "on shares no validation score is opened, so that scores are not calibrated; neither is the training loss"
_NOT_ALONE = "no weight is opened on shares, so that the active party has no scores of its own columns alone"


class SharesActive(ActiveProgram):
    """The active party's program: it deals its rows and its labels, and is one of the computing parties."""

    resumes_within_epochs = False
    deals_targets_again: ClassVar[bool] = False
    """Whether targets are dealt by each process anew, because no checkpoint has them."""

    def __init__(self, role: ActiveRole, sharing: Sharing) -> None:
        super().__init__(role)
        role.task = role.task.clipped_at(ERROR_BOUND) if isinstance(role.task, Regression) else role.task
        self.sharing = sharing
        self.fed = self.make_dealer()
        self.model = SharedModel()
        self.uses = sharing.plan_releases(role)
        role.parts = {"shares": self.model}
        self.course: SharedCourse
        self.learned = np.arange(0)

    def make_dealer(self) -> RowDealer:
        """Make what encodes the rows that this party deals.

        Raises:
            InputError: a role that trains otherwise than on shares it would.
        """
        return deal_inputs(self.role, self.sharing, DealtRows)

    async def train(self) -> None:
        with name_parties_in_errors(self.sharing.computing_parties):
            await super().train()

    async def finish(self) -> Trained:
        with name_parties_in_errors(self.sharing.computing_parties):
            return await super().finish()

    async def predict(self, model: State, rows: np.ndarray) -> np.ndarray:
        with name_parties_in_errors(self.sharing.computing_parties):
            return await super().predict(model, rows)

    async def setup(self) -> None:
        """Learn the widths of all inputs, tell them, exchange keys, and share out the first weights."""
        site, role, split = self.sharing.site, self.role, self.role.table.split
        widths = [self.fed.width()]
        if self.sharing.trains:
            self.trained.warnings += self.sharing.check_rows(len(split.train), len(split.valid))
            self.learned = rows_to_learn(role)
        for name in site.passive:
            message = await site.links[name].receive(Kind.CONTROL, WIDTH)
            widths.append(read_integer(message, name, "width", 0, MOST_WIDTH))
        sizes = _plan_sizes(self.sharing, role, widths, role.task.classes, self.learned)
        told = np.array(widths, dtype=np.int64)
        await fan_out(
            self.peers_to_notify(), lambda link: link.send(Kind.CONTROL, PLAN, meta=sizes.meta(), widths=told)
        )
        await self.make_network(sizes)

    async def make_network(self, sizes: SharedPlan) -> None:
        """Make the network, when the widths are known."""
        widths, classes, rows = sizes.widths, sizes.classes, sizes.test
        shape = self.sharing.network_shape(widths, classes)
        joined = {
            name: (shape.bottom[-1] if shape.bottom and w else w) for name, w in _name_widths(self.sharing, widths)
        }
        cut = getattr(getattr(self.fed, "half", None), "cut", None)
        if cut is not None:
            cut.widths = joined
        bound_rows(self, shape, 0)
        member = self.sharing.make_party(rows, classes, self.sharing.shape_if_released(shape))
        await member.setup()
        course = self.sharing.make_training(member, shape, self.role.plan.batch_size, _planned_times(self.role))
        self.course, self.model.network = course, course.network
        self.model.handing = self.sharing.make_release(member, course, shape)

    async def prepare_training(self) -> State | None:
        saved = await super().prepare_training()
        await self.model.refresh_shares()
        if saved is None or self.deals_targets_again:
            role, valid = self.role, self.role.table.split.valid if self.sharing.judges else np.arange(0)
            nothing = np.empty((0, self.course.outputs), np.uint64)
            words = [nothing if self.sharing.mixes else self._encode_targets(role, self.learned)]
            words.append(self._valid_targets(valid) if len(valid) else nothing)
            await self.course.deal_targets(
                len(words[0]),
                len(valid),
                encode_kept(np.concatenate(words), self.course.target_rule),
                counted=self.sharing.counts_classes,
            )
            self.model.kept = self.course.kept
        self.course.kept, self.course.best = self.model.kept, self.model.best
        await self.course.deal_rows(len(self.learned), self._words_to_score([self.learned]))
        return saved

    def _valid_targets(self, rows: np.ndarray) -> np.ndarray:
        role = self.role
        labels = role.labels(rows)
        known = role.task.make_targets(labels).nan_to_num() if role.task.is_numeric else labels.clamp_min(0)
        return target_words(known, role.task.classes)

    async def train_epoch(self, epoch: int) -> float:
        """One pass over an epoch's batches; the loss is not opened."""
        role, site = self.role, self.sharing.site
        self.course.begin_epoch(epoch, validates=role.plan.validates_after(epoch))
        batches = role.batches(epoch)
        mixes = self.sharing.mixes
        places = [] if mixes else [find_places(self.learned, rows) for rows in batches]
        judged = role.table.split.valid if self.course.opens_metrics else role.table.split.valid[:0]
        await self.announce_sizes(batches, count_rows(list(split_chunks(judged, role.plan.eval_rows))), places)

        def encode_batch(number: int) -> list[np.ndarray]:
            rows = batches[number]
            site.observer.batch_begun(site.name, site.active, epoch, rows)
            fed = role.feed(rows)
            if self.uses is not None:
                self.uses.count_use(np.concatenate([fed, np.setdiff1d(rows, fed)]))  # labels are those of `rows`
            words = [self.fed.encode_rows(fed)]
            return [*words, self._encode_targets(role, rows)] if mixes else words

        await self.course.train(
            count_rows(batches), encode_batch, places, told=lambda done: site.observer.step(epoch, done, len(batches))
        )
        self.trained.rows = role.books.rows_trained(epoch)
        return math.nan

    def _encode_targets(self, role: ActiveRole, rows: np.ndarray) -> np.ndarray:
        targets = getattr(role, "targets")(rows)  # noqa: B009 - roles of split networks have it
        return target_words(targets, role.task.classes, soft=self.sharing.mixes)

    async def announce_sizes(
        self, batches: Sequence[np.ndarray], later: Sequence[int], places: Sequence[np.ndarray] = ()
    ) -> None:
        """Tell a coordinator that computes, and has no rows, how many come, and which targets are theirs."""
        site = self.sharing.site
        if site.coordinator in self.course.member.computing:
            sizes = np.array(count_rows(batches), dtype=np.int64)
            after = np.array(later, dtype=np.int64)
            which = np.concatenate([*places, np.arange(0)]).astype(np.uint32)
            await site.links[site.coordinator].send(Kind.CONTROL, EPOCH, train=sizes, score=after, places=which)

    async def evaluate_rows(self, rows: np.ndarray, *, keep: bool = False, judge: bool = False) -> dict[str, float]:
        """Metrics of the model as it is on these rows: of validation rows from shares, rounded; of test rows from their
        predictions, which are opened.

        Raises:
            RangeError: weights left the range within which products on shares do not wrap.
        """
        if not judge:
            tested = await super().evaluate_rows(rows, keep=keep)
            alone = self.course.answer.kind == "class"  # then no metric of probabilities exists
            return {"accuracy": tested["accuracy"]} if alone else tested
        role, parts = self.role, list(split_chunks(rows, self.role.plan.eval_rows))
        found = await self.course.validate(count_rows(parts), self._words_to_score(parts))
        if not self.course.opens_metrics:
            return {}
        if found is None:
            raise ProtocolError(f"no metrics were opened to {role.site.name!r}")
        if self.course.member.compares:
            return {BEST: float(found[0])}
        if isinstance(role.task, Regression):
            return self.name_loss(float(found[0]), role.task)
        labels = role.labels(rows).cpu().numpy()
        positive = int((labels == 1).sum())
        return name_metrics(found, pairs=role.task.classes == 2 and 0 < positive < len(labels))

    def name_loss(self, opened: float, task: Regression) -> dict[str, float]:
        """The metric of validation rows whose target is a number, by its name, from the opened mean loss.

        Args:
            opened: in squares of the target's scale, 2^`SharedCourse.loss_bits` times.
            task: with the scale.
        """
        return {"huber": opened * task.scale**2}

    def _words_to_score(self, parts: Sequence[np.ndarray]) -> Words:
        return lambda number: [self.fed.encode_rows(parts[number])]

    async def score_probabilities(self, rows: np.ndarray) -> np.ndarray:
        """Probabilities (n, classes) of numbered rows by the model as it is: what it answers is opened here.

        Raises:
            PolicyError: the passive parties' columns do not make the model better, and nothing is answered.
        """
        await self.model.refresh_shares()
        parts = list(split_chunks(rows, self.role.plan.eval_rows))
        await self.announce_sizes([], count_rows(parts))
        if self.sharing.judges_usefulness:
            valid = list(split_chunks(self.role.table.split.valid, self.role.plan.eval_rows))
            self.trained.warnings += await self.course.judge_usefulness(count_rows(valid), self._words_to_score(valid))
        logits = await self.course.predict(count_rows(parts), self._words_to_score(parts))
        if logits is None:
            raise ProtocolError(f"nothing was opened to {self.role.site.name!r}")
        return self.role.task.compute_probabilities(torch.from_numpy(logits))

    def score_epoch(self, progress: Progress, valid: dict[str, float]) -> float:
        """Where epochs are compared on shares, an epoch that is the best so far is one better than all before."""
        if BEST not in valid:
            return super().score_epoch(progress, valid)
        return max(progress.best, 0.0) + 1 if valid[BEST] else -math.inf

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
        trained.notes += [_LEFT_OUT] if trained.alone else [_LEFT_OUT, _NOT_ALONE]
        return trained

    async def come_back(self, model: State) -> None:
        await _come_back(self, model)
        self.role.task = self.role.task.with_state(model.get("target"))


class SharesPassive(PassiveProgram):
    """A passive party's program: it deals its rows, and computes if it is one of the three."""

    resumes_within_epochs = False
    deals_targets_again: ClassVar[bool] = False

    def __init__(self, role: PassiveRole, sharing: Sharing) -> None:
        super().__init__(role)
        self.sharing = sharing
        self.fed = self.make_dealer()
        self.model = SharedModel()
        self.uses = sharing.plan_releases(role)
        role.parts = {"shares": self.model}
        self.course: SharedCourse
        self.learned = np.arange(0)
        self._counted = False

    def make_dealer(self) -> RowDealer:
        """Make what encodes the rows that this party deals.

        Raises:
            InputError: a role that trains otherwise than on shares it would.
        """
        return deal_inputs(self.role, self.sharing, DealtRows)

    async def train(self) -> None:
        with name_parties_in_errors(self.sharing.computing_parties):
            await super().train()

    async def finish(self) -> Trained:
        with name_parties_in_errors(self.sharing.computing_parties):
            return await super().finish()

    async def predict(self, model: State, rows: np.ndarray) -> np.ndarray:
        with name_parties_in_errors(self.sharing.computing_parties):
            return await super().predict(model, rows)

    async def setup(self) -> None:
        """Tell the width of this party's input, learn those of all, and exchange keys."""
        role, split = self.role, self.role.table.split
        if self.sharing.trains:
            self.sharing.check_rows(len(split.train), len(split.valid))
            self.learned = rows_to_learn(role)
        upstream, width = role.upstream, self.fed.width()
        await upstream.send(Kind.CONTROL, WIDTH, meta={"width": width})
        sizes = await receive_plan(upstream, len(self.sharing.site.passive) + 1, numeric=role.plan.number is not None)
        mine = dict(_name_widths(self.sharing, sizes.widths))[role.site.name]
        wanted = _plan_sizes(self.sharing, role, sizes.widths, role.table.classes, self.learned)
        if mine != width or sizes != wanted:
            raise ProtocolError(
                f"{upstream.peer!r} plans {mine} columns of {role.site.name!r} and {sizes.meta()}; {width} and "
                f"{wanted.meta()} were expected: use one job file"
            )
        await self.make_network(sizes)

    async def make_network(self, sizes: SharedPlan) -> None:
        """Make the network, when the widths are known."""
        widths, classes, rows = sizes.widths, sizes.classes, sizes.test
        shape = self.sharing.network_shape(widths, classes)
        bound_rows(self, shape, 1 + self.sharing.site.passive.index(self.role.site.name))
        member = self.sharing.make_party(rows, classes, self.sharing.shape_if_released(shape))
        await member.setup()
        course = self.sharing.make_training(member, shape, sizes.batch_size, sizes.times)
        self.course, self.model.network = course, course.network
        self.model.handing = self.sharing.make_release(member, course, shape)

    async def prepare_training(self) -> State | None:
        saved = await super().prepare_training()
        await self.model.refresh_shares()
        if saved is None or self.deals_targets_again:  # who only deals keeps none, and must not count them again
            trained = 0 if self.sharing.mixes else len(self.learned)
            counted = self.sharing.counts_classes
            valid = self.role.table.split.valid if self.sharing.judges else np.arange(0)
            price = self.sharing.protection.numbers_of_metrics(self.sharing.count_sets())
            if saved is None:
                self.role.opened.check_plan(price, self.role.features.find_places(valid))  # counted as they are dealt
            await self.course.deal_targets(trained, len(valid), None, counted=counted)
            self.model.kept = self.course.kept
        self.course.kept, self.course.best = self.model.kept, self.model.best
        await self.course.deal_rows(len(self.learned), self._words_to_score([self.learned]))
        done = 0 if saved is None else as_int(saved["epoch"])
        self._counted = any(self.role.plan.validates_after(epoch) for epoch in range(1, done + 1))
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

        places = [] if self.sharing.mixes else [find_places(self.learned, rows) for rows in batches]
        await self.course.train(
            count_rows(batches), encode_batch, places, told=lambda done: site.observer.step(epoch, done, len(batches))
        )

    async def answer_all(self, rows: np.ndarray, *, judge: bool = False) -> None:
        await self.model.refresh_shares()
        parts = list(split_chunks(rows, self.role.plan.eval_rows))
        if judge:
            # Before anything of them is dealt. Figures tell of a row each time, bits together at most what one does.
            if self.sharing.protection.numbers_of_metrics(2) > 1 or (self.sharing.judges and not self._counted):
                self.role.count_metrics(rows)
                self._counted = True
            await self.course.validate(count_rows(parts), self._words_to_score(parts))
            return
        # Counted first, for a model that turns out useless, too: each try counts.
        self.role.count_answer(rows)
        if self.sharing.judges_usefulness:
            valid = list(split_chunks(self.role.table.split.valid, self.role.plan.eval_rows))
            await self.course.judge_usefulness(count_rows(valid), self._words_to_score(valid))
        await self.course.predict(count_rows(parts), self._words_to_score(parts))

    def _words_to_score(self, parts: Sequence[np.ndarray]) -> Words:
        return lambda number: [self.fed.encode_rows(parts[number])]

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


def deal_inputs(role: Role, sharing: Sharing, kind: type[Rows]) -> Rows:
    """What a party deals of its rows to a shared network.

    Args:
        role: the party's.
        sharing: of the job.
        kind: the class of what encodes them.

    Raises:
        InputError: a role that trains otherwise than on shares it would.
    """
    refuse_ignored_hooks(role)
    return kind(role, half_of(role), sharing.algorithm.trainable)


def _plan_sizes(sharing: Sharing, role: Role, widths: Sequence[int], classes: int, learned: np.ndarray) -> SharedPlan:
    """The sizes of the job at a data party, which all have to agree on."""
    split = role.table.split
    return SharedPlan(
        widths=tuple(widths),
        classes=classes,
        batch_size=role.plan.batch_size,
        test=len(split.test),
        times=_planned_times(role),
        epochs=role.plan.epochs,
        learned=len(learned),
        valid=len(split.valid) if sharing.judges else 0,
    )


def _record_coverage(program: SharesActive | SharesPassive, trained: Trained) -> Coverage | None:
    """Write into the party's ledger what ε of this run covers; None without noise on the model."""
    course = program.course
    found = Coverage.from_costs(
        trained.spent,
        opens_metrics=course.opens_metrics,
        numbers=course.answer.width,
        exact=program.role.releases.is_exact,
    )
    if found is not None:
        program.sharing.site.ledger.record_note("epsilon covers", found.ledger_facts())
    return found


def _planned_times(role: Role) -> int:
    """How often one row trains, as planned."""
    return role.books.times(role.plan.epochs)


def bound_rows(program: SharesActive | SharesPassive, shape: NetworkShape, place: int) -> None:
    """Clip what this party deals, where the model's steps are noisy, and check that the noise leaves room.

    Args:
        program: the party's.
        shape: of the network.
        place: of the party among those that deal.
    """
    mechanism = program.sharing.step_mechanism
    if mechanism is not None and isinstance(program.fed, DealtRows):
        program.fed.bound = row_bounds(mechanism.clip, shape.inputs)[place]
        if not program.sharing.protection.between_two:  # whose errors are bounded for every logit
            program.sharing.check_noise(program.role, shape)


def _name_widths(sharing: Sharing, widths: Sequence[int]) -> list[tuple[str, int]]:
    return list(zip((sharing.site.active, *sharing.site.passive), widths, strict=True))
