"""Targets, validation, openings and predictions on shares: what is the same at all parties and for all models."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from securevfl_crypto.replicated import Product, Share, concatenate
from securevfl_crypto.ring import FRACTION, decode_words

from securevfl.errors import PolicyError, RangeError
from securevfl.shares.answers import RowAnswer
from securevfl.shares.engine import ONE, Engine, compute_products
from securevfl.shares.kept_targets import (
    BestFigure,
    KeptTargets,
    TargetRule,
    check_targets,
    decode_kept,
    explain_wrong_targets,
)
from securevfl.shares.least_rows import check_judged
from securevfl.shares.metrics import METRIC_BITS, SharedMetrics
from securevfl.shares.share_party import ShareParty
from securevfl.shares.trainee import Trainee
from securevfl.shares.usefulness import Usefulness, explain_useless
from securevfl.transport import PASSIVE

__all__ = ["DEALT", "SharedCourse", "Words"]

Words = Callable[[int], list[np.ndarray]]
"""Number of a batch → the arrays that this party deals: its inputs and, at the active party, targets that are dealt
anew for each batch."""

DEALT = 1 << 20
"""Words that are dealt in one message."""

MOST_OPENED = 3
"""How often all attempts at a run together may open the metrics of one epoch, or the final predictions: each attempt
rounds them with new randomness, so repeated openings sharpen the values."""


@dataclass
class SharedCourse(ABC):
    """One party's training on shares: what is opened, and when, whatever the model is.

    Attributes:
        step_name: what a step is called in reports.
        chooses_by_loss: whether the loss compares epochs of two classes, too, and not the AUC.
        loss_bits: by how many bits the opened loss of a number is finer than other metrics.
        range_cure: what left its range, and what helps.
        member: deals and computes for this party.
        widths: of the data parties' inputs, the active party's first.
        outputs: width of the targets.
        network: at a computing party.
        answer: what is opened of each row that is scored.
        mixes: whether targets are dealt anew for each batch.
        kept: at a computing party that trains, the targets.
        steps: training steps so far.
        rounds: of those steps.
        sent: bytes that this party sent as a computing one in those steps.
        epoch: the current one.
        repeated: openings that an interrupted attempt may have made before.
        opens_metrics: whether metrics of the validation rows are opened; otherwise these rows are not dealt.
        best: the best figure so far, where epochs are compared on shares.
    """

    step_name: ClassVar[str] = "step"
    chooses_by_loss: ClassVar[bool] = False
    loss_bits: ClassVar[int] = 0
    range_cure: ClassVar[str] = (
        "weights left the range within which products on shares do not wrap: lower lr in the protection"
    )
    member: ShareParty
    widths: tuple[int, ...]
    outputs: int
    network: Trainee | None
    answer: RowAnswer
    mixes: bool = False
    kept: KeptTargets | None = field(default=None, repr=False)
    steps: int = 0
    rounds: int = 0
    sent: int = 0
    epoch: int = 0
    repeated: int = 0
    opens_metrics: bool = True
    best: BestFigure = field(default_factory=BestFigure, repr=False)
    _in_range: bool = False
    _valid: list[tuple[Any, Share]] | None = field(default=None, repr=False)

    def begin_epoch(self, epoch: int, *, validates: bool) -> None:
        """Allow this epoch's openings: one check of the range and one set of metrics if it validates, else none."""
        self.epoch = epoch
        self._in_range = False
        opened = ("range", "metrics") if self.opens_metrics else ("range",)
        if self.network is not None:
            self.network.engine.begin_stage(*(opened if validates else ()))

    def _reserve_opening(self, what: str, epoch: int) -> None:
        """Reserve an opening in this party's journal before it happens: if this attempt is killed afterwards, the next
        one trains the epoch again and opens it again.

        Raises:
            PolicyError: interrupted attempts may have opened it so often that this party allows no more.
        """
        if self.network is None:
            return
        site = self.member.site
        journal, name = site.keeper.journal, f"opened {what}"
        journal.begin_attempt(site.keeper.start or 0)
        before = journal.max_releases(name, epoch)
        if before >= MOST_OPENED:
            of = f"{what} of epoch {epoch}" if epoch else what
            raise PolicyError(
                f"{site.name!r} refuses to open {of}: interrupted attempts may have opened it {before} times, and at "
                f"most {MOST_OPENED} are allowed. Nothing was opened: find out which party breaks off, and start again "
                "in another folder"
            )
        if before:
            self.repeated += 1
        journal.reserve_releases(epoch, name, 1, 1)

    def begin_release(self) -> None:
        """Reserve the release of the model, which is limited like the final predictions.

        Raises:
            PolicyError: interrupted attempts may have released it so often that this party allows no more.
        """
        self._reserve_opening("parts of the model", 0)

    @property
    def target_rule(self) -> TargetRule:
        """What targets may be, and how they are dealt."""
        return TargetRule.of(self.answer.classes)

    async def deal_targets(self, trained: int, valid: int, words: np.ndarray | None, *, counted: bool) -> None:
        """Deal the targets of the whole job, once, and check on shares that they are what they may be.

        Args:
            trained: rows that train.
            valid: validation rows.
            words: at the active party, `encode_kept` of both in this order; None elsewhere.
            counted: see `check_targets`.

        Raises:
            PolicyError: they are not.
        """
        active, most = self.member.site.active, max(DEALT // self.outputs, 1)
        found = []
        for start in range(0, trained + valid, most):
            rows = min(most, trained + valid - start)
            mine = None if words is None else [words[start : start + rows]]
            dealt = await self.member.share_arrays(mine, {active: [(rows, self.outputs)]})
            found += dealt.get(active, [])
        if self.network is None:
            return
        engine, rule = self.network.engine, self.target_rule
        if not found:  # mixtures are dealt with each batch, and no metrics are opened
            nothing = engine.constant(np.empty((0, self.outputs), np.uint64))
            self.kept = KeptTargets(nothing, nothing)
            return
        every = concatenate(found)
        if not await check_targets(engine, every, trained, rule, counted=counted):
            raise explain_wrong_targets(self.member.site.name, rule, counted=counted)
        values = decode_kept(every, rule)
        self.kept = KeptTargets(values[:trained], values[trained:])

    async def validate(self, sizes: Sequence[int], words: Words | None) -> np.ndarray | None:
        """Check that weights are in range, compute metrics on shares and open them, rounded, to the active party.

        Args:
            sizes: rows of each part.
            words: what this party deals; None at a coordinator.

        Returns:
            The metrics at the active party, or 1 or 0 where only that is opened: whether they are the best so far;
            nothing elsewhere, and where the job opens none.

        Raises:
            RangeError: weights are not in range; raised at all three computing parties before anything is opened.
        """
        if not self.opens_metrics:
            await self._check_range("range")
            return None
        check_judged(self.member.site.name, sum(sizes))
        if self.network is None:
            self._count_metrics()  # a party that only deals takes no part in the opening
        scores = None if self.network is None else SharedMetrics(self.network, self.loss_bits)
        async for inputs, targets in self.share_valid(sizes, words):
            if scores is not None:
                await scores.add_rows(inputs, targets)
        if scores is None or self.network is None:
            return None
        engine, to = self.network.engine, [self.member.computing.index(self.member.site.active)]
        found = await scores.compute_rounded()
        if self.member.compares:
            found = await self._compare_with_best(engine, found)
        self._reserve_opening("metrics", self.epoch)
        self._count_metrics()
        await self._check_range("range")
        metrics = await engine.open("metrics", found, to)
        if metrics is None:
            return None
        return decode_words(metrics, 0 if self.member.compares else METRIC_BITS).reshape(-1)

    async def _compare_with_best(self, engine: Engine, metrics: Share) -> Share:
        """Whether an epoch's metrics are better than those of all before it, a word 0 or 1, (1,): by the AUC of two
        classes unless `chooses_by_loss`, by the loss otherwise. The best figure stays in shares."""
        classes = self.answer.classes
        by_area = classes == 2 and not self.chooses_by_loss
        figure = metrics[2:3] if by_area else -metrics[min(classes - 1, 1) :][:1]
        figure = figure * (1 << (FRACTION - METRIC_BITS - (self.loss_bits if classes == 1 else 0)))
        if self.best.share is None:
            self.best.share = figure
            return engine.constant(np.ones(1, np.uint64))
        ahead = figure - self.best.share
        bit = (await engine.compare(ahead, (1 / ONE,))).reshape(1)
        (gain,) = await compute_products(engine, [Product(bit, ahead, "times")])
        self.best.share = self.best.share + gain
        return bit

    def _count_metrics(self) -> None:
        """Count one set of metrics in a passive party's book, before it is opened."""
        if self.member.site.role == PASSIVE:
            self.member.site.results.add_metrics(self.member.site.asker)

    async def _check_range(self, name: str) -> None:
        """Check, once for the same weights, that no product with them wraps; all three computing parties learn it.

        Raises:
            RangeError: one may.
        """
        if self.network is None or self._in_range:
            return
        if not await self.network.engine.is_zero(name, await self.network.out_of_range()):
            raise RangeError(f"{self.range_cure}; nothing of this model was opened but that")
        self._in_range = True

    async def judge_usefulness(self, sizes: Sequence[int], words: Words | None) -> list[str]:
        """Open, to all three computing parties, whether the passive parties' columns make the model better, and refuse
        every answer of one that they do not; see `securevfl.shares.usefulness`.

        Args:
            sizes: rows of each part of the validation rows.
            words: what this party deals; None at a coordinator.

        Returns:
            Warnings for the report, in a simulation.

        Raises:
            PolicyError: the model is not useful; raised at all three.
            RangeError: weights are not in range.
        """
        judge = None if self.network is None else Usefulness(self.network)
        async for inputs, _ in self.share_valid(sizes, words):
            if judge is not None:
                await judge.add_to_means(inputs)
        async for inputs, targets in self.share_valid(sizes, words):
            if judge is not None:
                await judge.add_rows(inputs, targets)
        if judge is None or self.network is None:
            return []
        bit = await judge.decide()
        self._reserve_opening("usefulness", 0)
        self._in_range = False
        await self._check_range("final range")
        opened = await self.network.engine.open("useful", bit, range(len(self.member.computing)))
        useful = opened is not None and int(opened[0]) == 1
        return [] if useful else [explain_useless(self.member.site, sum(sizes))]

    async def predict(self, sizes: Sequence[int], words: Words | None) -> np.ndarray | None:
        """Open what the model answers about rows to the active party.

        Args:
            sizes: rows of each part.
            words: what this party deals; None at a coordinator.

        Returns:
            Outputs of the network as `RowAnswer.decode` gives them, (n, outputs), at the active party; nothing
            elsewhere.

        Raises:
            RangeError: weights are not in range; nothing is opened.
        """
        found = []
        to = [self.member.computing.index(self.member.site.active)]
        if sizes:
            self._reserve_opening("predictions", 0)
            await self._check_range("final range")
        async for inputs, _ in self.share_rows(sizes, words):
            if self.network is None:
                continue
            engine = self.network.engine
            answered = await self.answer.compute(engine, await self.network.forward(inputs))
            opened = await engine.open("predictions", answered, to)
            if opened is not None:
                found.append(self.answer.decode(opened))
        return np.concatenate(found) if found else None

    async def share_valid(self, sizes: Sequence[int], words: Words | None) -> AsyncIterator[tuple[Any, Share]]:
        """The validation rows as shares, with their kept targets. They are dealt once, unless they are very many: who
        could deal others in the next epoch would see in its metrics what changed."""
        if self._valid is not None:
            for part in self._valid:
                yield part
            return
        ends = np.cumsum(sizes)
        places = [np.arange(end - size, end) for size, end in zip(sizes, ends, strict=True)]
        kept = None if self.kept is None else self.kept.valid
        found = []
        async for part in self.share_rows(sizes, words, kept=kept, places=places):
            found.append(part)
            yield part
        if self.keeps_valid(sum(sizes)):  # known to all, also to a party that only deals
            self._valid = found

    @abstractmethod
    async def deal_rows(self, rows: int, words: Words | None) -> None:
        """Deal what is dealt of the rows that train before the first step of this process.

        Args:
            rows: that train.
            words: what this party deals; None at a coordinator.
        """

    @abstractmethod
    async def train(
        self,
        sizes: Sequence[int],
        words: Words | None,
        places: Sequence[np.ndarray] = (),
        *,
        told: Callable[[int], None] = lambda done: None,
    ) -> None:
        """Take all steps of an epoch.

        Args:
            sizes: rows of each batch.
            words: what this party deals; None at a coordinator.
            places: at a computing party, of each batch the places of its rows' targets among those that were dealt;
                empty where targets are dealt anew.
            told: called with the number of finished steps.
        """

    @abstractmethod
    def keeps_valid(self, rows: int) -> bool:
        """Whether a computing party keeps so many validation rows, once they are dealt."""

    @abstractmethod
    def share_rows(
        self,
        sizes: Sequence[int],
        words: Words | None,
        *,
        kept: Share | None = None,
        places: Sequence[np.ndarray] = (),
    ) -> AsyncIterator[tuple[Any, Share]]:
        """Each batch as shares: inputs, as the model takes them, and targets; without any at a party that only deals.

        Args:
            sizes: rows of each batch.
            words: what this party deals.
            kept: targets that were dealt before; None for none.
            places: of each batch's rows among them.
        """
