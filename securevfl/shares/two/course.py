"""Training, validation and predictions of two parties on shares: what happens when, the same at both."""

from __future__ import annotations

import hashlib
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import numpy as np
from securevfl_crypto.replicated import Share
from securevfl_crypto.two.bits import compare
from securevfl_crypto.two.correlations import Linear, LinearTask
from securevfl_crypto.two.multiply import bits_to_words, select

from securevfl.errors import InputError, RangeError
from securevfl.shares.answers import RowAnswer
from securevfl.shares.course import SharedCourse, Words
from securevfl.shares.kept_targets import FEWEST_OF_CLASS, TargetRule, explain_wrong_targets
from securevfl.shares.least_rows import check_judged
from securevfl.shares.two.answering import compute_answers
from securevfl.shares.two.judging import compute_metrics, count_outside, metric_scales, metric_sizes, round_figure
from securevfl.shares.two.network import TwoNetwork, find_scale, with_ones
from securevfl.shares.two.parties import TwoParty
from securevfl.shares.two.useful import decide_usefulness
from securevfl.shares.usefulness import explain_useless
from securevfl.transport import PASSIVE

__all__ = ["LARGEST_BATCH", "MOST_TARGET", "TwoCourse"]

LARGEST_BATCH = 1024
"""Rows that are multiplied at once."""

MOST_TARGET = 8.0
"""A number counts as at most so many of its scales from zero: beyond, its error would leave the wave."""

_FIGURE_BITS = 40
"""Of a difference of two figures in units of 2^-10."""

_LOT = 8
"""Epochs for which random numbers are made at once."""

_VALID, _SCORED = 1 << 40, 1 << 41
"""Where the numbers of batches begin that validate, and that are scored."""


class TwoCourse(SharedCourse):
    """One party's training with one other.

    Rows that train are multiplied where they are, so nothing is dealt; the active party keeps the targets. A batch has
    the same rows in every epoch.

    Args:
        party: one of the two.
        network: its summands of the model.
        answer: what is opened of each row that is scored.
        epochs: that may be trained.
        opens_metrics: whether metrics of the validation rows are opened.
    """

    step_name = "step"
    range_cure = (
        "more than one logit in a hundred of the validation rows is above 12 in size, where two parties compute no "
        "probabilities: lower lr in the protection, or the largest values of the columns"
    )

    def __init__(
        self, party: TwoParty, network: TwoNetwork, answer: RowAnswer, epochs: int, *, opens_metrics: bool = True
    ) -> None:
        shape = network.shape
        super().__init__(
            member=party,  # type: ignore[arg-type]
            widths=shape.inputs,
            outputs=shape.outputs,
            network=network,  # type: ignore[arg-type]
            answer=answer,
            opens_metrics=opens_metrics,
        )
        self.party, self.model, self.epochs = party, network, epochs
        self._targets: tuple[np.ndarray, np.ndarray] | None = None
        self._batches: dict[bytes, int] = {}
        self._rows: dict[int, np.ndarray] = {}
        self._uses: dict[int, deque[Linear]] = {}
        self._scored = 0

    async def refresh_shares(self) -> None:
        """Replace the shares of loaded weights by fresh ones."""
        await self.model.refresh_shares()

    def begin_epoch(self, epoch: int, *, validates: bool) -> None:
        """See `SharedCourse`."""
        self.epoch = epoch
        self._in_range = False
        self.party.begin_stage(["metrics"] if validates and self.opens_metrics else [])

    @property
    def target_rule(self) -> TargetRule:
        """What targets may be."""
        return TargetRule.of(self.answer.classes)

    async def deal_targets(self, trained: int, valid: int, words: np.ndarray | None, *, counted: bool) -> None:
        """Keep the targets at the active party; nothing is sent.

        Raises:
            PolicyError: the validation rows have too few of a class.
        """
        if words is None:
            return
        rule = self.target_rule
        values = words.view(np.int64).astype(np.float64) * (rule.unit * 2.0**-16)
        if rule.classes == 1:
            values = np.clip(values, -MOST_TARGET, MOST_TARGET)
        elif counted:
            counts = values[trained:].sum(axis=0)
            counts = np.array([counts[0], valid - counts[0]]) if rule.classes == 2 else counts
            if (counts >= FEWEST_OF_CLASS).sum() < 2:
                raise explain_wrong_targets(self.party.site.name, rule, counted=counted)
        self._targets = values[:trained], values[trained:]

    async def deal_rows(self, rows: int, words: Words | None) -> None:
        """See `SharedCourse`; rows stay where they are."""

    async def train(
        self,
        sizes: Sequence[int],
        words: Words | None,
        places: Sequence[np.ndarray] = (),
        *,
        told: Callable[[int], None] = lambda done: None,
    ) -> None:
        """See `SharedCourse`.

        Raises:
            InputError: a batch has rows, or values of rows, that it did not have in the epoch before.
        """
        if words is None or len(places) != len(sizes):
            raise InputError("two parties train on fixed batches of rows whose places are known")
        before = self.model.linear.exchanges, self.party.wire.octets
        given = [words(number)[0] for number in range(len(sizes))]
        if not self.model.scale:  # with noise, nothing of the model may follow from rows without it
            noisy = self.model.noise is not None
            self.model.scale = 1.0 if noisy else find_scale(np.concatenate(given), self.model.rate)
        keys = [self._keep_batch(here, rows) for here, rows in zip(places, given, strict=True)]
        needed = Counter(keys)  # an epoch of more steps than batches uses some twice
        if any(len(self._uses.get(key, ())) < count for key, count in needed.items()):
            uses = max(needed.values()) * min(_LOT, self.epochs - self.epoch + 1)
            await self._make_uses(list(needed), uses, backward=True)
        await self.model.linear.begin_epoch([self._uses[key].popleft() for key in keys])
        for done, (key, here) in enumerate(zip(keys, places, strict=True), 1):
            targets = None if self._targets is None else self._targets[0][here]
            await self.model.train_batch(self._rows[key].astype(np.int64), targets)
            self.steps += 1
            told(done)
        self.rounds += self.model.linear.exchanges - before[0]
        self.sent += self.party.wire.octets - before[1]

    def _scale_rows(self, rows: np.ndarray) -> np.ndarray:
        """This party's rows as the model takes them, int16 (n, d); with a column of ones at the active party."""
        return with_ones(self.party, np.rint(rows / (self.model.scale or 1.0)).astype(np.int16))

    def _keep_batch(self, places: np.ndarray, rows: np.ndarray) -> int:
        """The number of a batch, whose rows are kept: the masks that hide them are used in every epoch."""
        name = hashlib.sha256(np.ascontiguousarray(places, dtype=np.int64).tobytes()).digest()
        key = self._batches.setdefault(name, len(self._batches))
        own = self._scale_rows(rows)
        if key not in self._rows:
            self._rows[key] = own
        elif not np.array_equal(self._rows[key], own):
            raise InputError("rows of a batch changed between two epochs; two parties train on fixed values")
        return key

    async def _make_uses(self, keys: Sequence[int], uses: int, *, backward: bool) -> None:
        tasks = [self._task(key, backward=backward) for key in keys]
        for key, made in zip(keys, await self.party.source.make_linear(tasks, uses), strict=True):
            self._uses.setdefault(key, deque()).extend(made)

    def _task(self, key: int, *, backward: bool = False) -> LinearTask:
        other = self.widths[1] if self.party.is_active else self.widths[0] + 1
        return LinearTask(key, self._rows[key], other, self.outputs, backward)

    async def _compute_logits(self, keys: Sequence[int], uses: int = 1) -> tuple[np.ndarray, np.ndarray]:
        """Shares of what each party's columns add to the outputs, the own ones first, (n, outputs) each."""
        if not all(self._uses.get(key) for key in keys):
            await self._make_uses(keys, uses, backward=False)
        taken = [self._uses[key].popleft() for key in keys]
        found = await self.model.compute_logits([self._rows[key].astype(np.int64) for key in keys], taken)
        own, other = zip(*found, strict=True)
        return np.concatenate(own), np.concatenate(other)

    def _keep_valid(self, sizes: Sequence[int], words: Words | None) -> list[int]:
        """Numbers of the parts of the validation rows."""
        if words is None:
            raise InputError("a party without rows does not validate")
        keys = []
        for number in range(len(sizes)):
            key = _VALID + number * LARGEST_BATCH
            if key not in self._rows:
                rows = self._scale_rows(words(number)[0])
                for offset, start in enumerate(range(0, len(rows), LARGEST_BATCH)):
                    self._rows[key + offset] = rows[start : start + LARGEST_BATCH]
            keys += [key + offset for offset in range(-(-sizes[number] // LARGEST_BATCH))]
        return keys

    async def validate(self, sizes: Sequence[int], words: Words | None) -> np.ndarray | None:
        """See `SharedCourse`."""
        if not self.opens_metrics:
            return None
        site, rows = self.party.site, sum(sizes)
        check_judged(site.name, rows)
        left = min(_LOT, self.epochs - self.epoch + 1) + 1
        own, other = await self._compute_logits(self._keep_valid(sizes, words), left)
        logits, targets = own + other, None if self._targets is None else self._targets[1]
        shares = await compute_metrics(self.party, self.model, logits, targets)
        better = await self._compare_figures(shares, rows) if self.party.compares else shares
        self._reserve_opening("metrics", self.epoch)
        self._count_metrics()
        await self._check_logits(logits)
        shifts, units = metric_scales(rows, self.model.shape)
        bits = metric_sizes(self.model.shape)
        if self.party.compares:
            shares, shifts, units, bits = better, [0], [1.0], [2]
        opened = await self.party.open_words("metrics", shares.reshape(1, -1), shifts, bits)
        return None if opened is None else opened[0] * np.array(units)

    async def _compare_figures(self, shares: np.ndarray, rows: int) -> np.ndarray:
        """Shares of whether an epoch's metrics are better than those of all before it, a word 0 or 1, (1,). The best
        figure stays in shares."""
        wire, transfers = self.party.wire, self.party.transfers
        figure = await round_figure(self.party, shares, rows, self.model.shape)
        if self.best.words is None:
            self.best.words = figure
            return np.array([int(self.party.is_active)], np.uint64)
        ahead = figure - self.best.words
        bit = await compare(wire, transfers, ahead - np.uint64(self.party.is_active), _FIGURE_BITS)
        self.best.words = self.best.words + await select(wire, transfers, bit, ahead)
        return await bits_to_words(wire, transfers, bit)

    async def _check_logits(self, logits: np.ndarray) -> None:
        """Check, once for the same weights, that the waves stand for what they should; both learn it.

        Raises:
            RangeError: they do not.
        """
        if self._in_range:
            return
        if await self.party.open_bit("range", await count_outside(self.party, logits)):
            raise RangeError(f"{self.range_cure}; nothing of this model was opened but that")
        self._in_range = True

    async def judge_usefulness(self, sizes: Sequence[int], words: Words | None) -> list[str]:
        """See `SharedCourse`."""
        keys = self._keep_valid(sizes, words)
        own, other = await self._compute_logits(keys)
        mean = await self._compute_mean(keys)
        with_ = own + other
        bare = (own if self.party.is_active else other) + mean
        targets = None if self._targets is None else self._targets[1]
        bit = await decide_usefulness(self.party, self.model, with_, bare, targets)
        self._reserve_opening("usefulness", 0)
        self._in_range = False
        await self._check_logits(with_)
        useful = await self.party.open_bit("useful", bit)
        return [] if useful else [explain_useless(self.party.site, sum(sizes))]

    async def _compute_mean(self, keys: Sequence[int]) -> np.ndarray:
        """Shares of what the passive party's columns add at their mean over the validation rows, (1, outputs)."""
        rows = np.concatenate([self._rows[key] for key in keys])
        mean = np.rint(rows.mean(axis=0, keepdims=True)).astype(np.int16)
        self._rows[_VALID - 1] = mean if self.party.site.role == PASSIVE else np.zeros_like(mean)
        own, other = await self._compute_logits([_VALID - 1])
        return np.asarray(own + other)

    async def predict(self, sizes: Sequence[int], words: Words | None) -> np.ndarray | None:
        """See `SharedCourse`."""
        if words is None:
            raise InputError("a party without rows does not score")
        found = []
        if sizes:
            self._reserve_opening("predictions", 0)
        for number in range(len(sizes)):
            rows = self._scale_rows(words(number)[0])
            for start in range(0, len(rows), LARGEST_BATCH):
                opened = await self._answer_rows(rows[start : start + LARGEST_BATCH])
                if opened is not None:
                    found.append(self.answer.decode(opened))
        return np.concatenate(found) if found else None

    async def _answer_rows(self, rows: np.ndarray) -> np.ndarray | None:
        """The words that are opened of some rows, at the active party."""
        key = _SCORED + self._scored
        self._scored += 1
        self._rows[key] = rows
        try:
            own, other = await self._compute_logits([key])
        finally:
            self._rows.pop(key)
            self._uses.pop(key, None)
            self.party.source.forget_rows(key)
        words, shift, size = await compute_answers(self.party, self.answer, own + other)
        width = words.shape[1]
        opened = await self.party.open_words("predictions", words, [shift] * width, [size] * width)
        return None if opened is None else opened.view(np.uint64)

    def keeps_valid(self, rows: int) -> bool:
        """See `SharedCourse`."""
        return True

    def share_rows(
        self,
        sizes: Sequence[int],
        words: Words | None,
        *,
        kept: Share | None = None,
        places: Sequence[np.ndarray] = (),
    ) -> AsyncIterator[tuple[Any, Share]]:
        """Nothing is dealt between two parties."""
        raise NotImplementedError
