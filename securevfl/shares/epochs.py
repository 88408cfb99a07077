"""Training, validation and predictions on shares, batch by batch: the part that is the same at all parties.

One message deals the rows of several batches, so that steps rarely wait for rows.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from securevfl_crypto.replicated import Share
from securevfl_crypto.ring import FRACTION, decode_words

from securevfl.errors import PolicyError, ProtocolError
from securevfl.shares.engine import compute_products, scaling_job
from securevfl.shares.metrics import METRIC_BITS, SharedMetrics
from securevfl.shares.network import Network
from securevfl.shares.share_party import ShareParty

__all__ = ["FEWEST_JUDGED", "SharedTraining", "Words", "check_judged", "check_sizes"]

Words = Callable[[int], list[np.ndarray]]
"""Number of a batch → the arrays that this party deals: its inputs and, at the active party, the targets."""

_DEALT = 1 << 20
"""Words that are dealt in one message."""

_NOTHING = Share(np.empty(0, np.uint64), np.empty(0, np.uint64))

FEWEST_JUDGED = 8
"""Fewest rows whose metrics are opened. The metrics of one row reveal its logit, and those of a few rows reveal one
when the others are known."""

MOST_OPENED = 3
"""How often all attempts at a run together may open the metrics of one epoch, or the final predictions: each attempt
rounds them with new randomness, so repeated openings sharpen the values."""

PREDICTION_BITS = 8
"""Fractional bits of predictions that are opened."""


@dataclass
class SharedTraining:
    """One party's training on shares, from batch to batch.

    Attributes:
        member: deals and computes for this party.
        widths: of the data parties' inputs, the active party's first.
        outputs: width of the targets.
        network: at a computing party.
        steps: training steps so far.
        rounds: of those steps.
        sent: bytes that this party sent as a computing one in those steps.
        epoch: the current one.
        repeated: openings that an interrupted attempt may have made before.
        opens_metrics: whether metrics of the validation rows are opened; otherwise these rows are not dealt.
    """

    member: ShareParty
    widths: tuple[int, ...]
    outputs: int
    network: Network | None
    steps: int = 0
    rounds: int = 0
    sent: int = 0
    epoch: int = 0
    repeated: int = 0
    opens_metrics: bool = True

    def begin_epoch(self, epoch: int, *, validates: bool) -> None:
        """Allow this epoch's openings: one range bit and one set of metrics if it validates, otherwise none."""
        self.epoch = epoch
        if self.network is not None and self.opens_metrics:
            self.network.engine.begin_stage(*(("range", "metrics") if validates else ()))
        elif self.network is not None:
            self.network.engine.begin_stage(*(("range",) if validates else ()))

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

    async def train(
        self, sizes: Sequence[int], words: Words | None, *, told: Callable[[int], None] = lambda done: None
    ) -> None:
        """Take all steps of an epoch.

        Args:
            sizes: rows of each batch.
            words: what this party deals; None at a coordinator.
            told: called with the number of finished steps.
        """
        done = 0
        async for inputs, targets in self._share_batches(sizes, words):
            if self.network is not None:
                engine = self.network.engine
                before = engine.rounds, engine.sent
                await self.network.train_batch(inputs, targets)
                self.rounds += engine.rounds - before[0]
                self.sent += engine.sent - before[1]
            self.steps += 1
            done += 1
            told(done)

    async def validate(self, sizes: Sequence[int], words: Words | None, scale: float | None) -> np.ndarray | None:
        """Check that weights are in range, compute metrics on shares and open them, rounded, to the active party.

        Args:
            sizes: rows of each part.
            words: what this party deals; None at a coordinator.
            scale: at the active party, what makes an AUC of a count of pairs, see `Scores`.

        Returns:
            At the active party: whether weights are in range (1 or 0), then the metrics; nothing elsewhere.
        """
        check_judged(self.member.site.name, sum(sizes))
        active = self.member.site.active
        scores = None if self.network is None else SharedMetrics(self.network)
        async for inputs, targets in self._share_batches(sizes, words):
            if scores is not None:
                await scores.add_rows(inputs, targets)
        mine = None if scale is None else [SharedMetrics.scale_words(scale)]
        dealt = await self.member.share_arrays(mine, {active: [(1, 1)]})
        if scores is None or self.network is None:
            return None
        found = await scores.compute_rounded(dealt[active][0])
        self._reserve_opening("metrics", self.epoch)
        engine, to = self.network.engine, [self.member.computing.index(active)]
        in_range = await engine.open("range", await self.network.in_range(), to)
        if in_range is not None and not int(in_range[0]):
            return np.zeros(1)
        metrics = await engine.open("metrics", found, to)
        if metrics is None or in_range is None:
            return None
        return np.concatenate([np.ones(1), decode_words(metrics, METRIC_BITS).reshape(-1)])

    async def check_range(self) -> np.ndarray | None:
        """Check that weights are in range, where no metrics are opened.

        Returns:
            At the active party: whether they are (1 or 0); nothing elsewhere.
        """
        if self.network is None:
            return None
        engine, to = self.network.engine, [self.member.computing.index(self.member.site.active)]
        in_range = await engine.open("range", await self.network.in_range(), to)
        return None if in_range is None else np.array([float(bool(int(in_range[0])))])

    async def predict(self, sizes: Sequence[int], words: Words | None) -> np.ndarray | None:
        """Open the logits of rows to the active party, rounded at 2^-8.

        Args:
            sizes: rows of each part.
            words: what this party deals; None at a coordinator.

        Returns:
            (n, outputs) at the active party; nothing elsewhere.
        """
        found = []
        to = [self.member.computing.index(self.member.site.active)]
        if sizes:
            self._reserve_opening("predictions", 0)
        async for inputs, _ in self._share_batches(sizes, words):
            if self.network is None:
                continue
            engine = self.network.engine
            logits = await self.network.forward(inputs)
            (rounded,) = await compute_products(engine, [scaling_job(engine, logits, 1, FRACTION - PREDICTION_BITS)])
            opened = await engine.open("predictions", rounded, to)
            if opened is not None:
                found.append(decode_words(opened, PREDICTION_BITS))
        return np.concatenate(found) if found else None

    async def _share_batches(
        self, sizes: Sequence[int], words: Words | None
    ) -> AsyncIterator[tuple[list[Share], Share]]:
        """Each batch as shares: inputs of the data parties, and targets; without any at a party that only deals."""
        member, active = self.member, self.member.site.active
        for first, last in self._group_batches(sizes):
            rows = sum(sizes[first:last])
            shapes = {
                name: [(rows, width), *([(rows, self.outputs)] if name == active else [])]
                for name, width in zip(member.sources, self.widths, strict=True)
            }
            mine = None
            if words is not None:
                mine = [np.concatenate(parts) for parts in zip(*map(words, range(first, last)), strict=True)]
            dealt = await member.share_arrays(mine, shapes)
            start = 0
            for size in sizes[first:last]:
                here, start = slice(start, start + size), start + size
                if dealt:
                    yield [dealt[name][0][here] for name in member.sources], dealt[active][1][here]
                else:
                    yield [], _NOTHING

    def _group_batches(self, sizes: Sequence[int]) -> Iterator[tuple[int, int]]:
        """First and last of the batches that are dealt in one message."""
        most = max(_DEALT // (sum(self.widths) + self.outputs), 1)
        first, rows = 0, 0
        for number, size in enumerate(sizes):
            if rows and rows + size > most:
                yield first, number
                first, rows = number, 0
            rows += size
        if rows:
            yield first, len(sizes)


def check_judged(party: str, rows: int) -> None:
    """Refuse metrics of so few rows that they reveal single ones.

    Args:
        party: the refusing party.
        rows: number of validation rows.

    Raises:
        PolicyError: they are fewer than `FEWEST_JUDGED`.
    """
    if rows < FEWEST_JUDGED:
        raise PolicyError(
            f"{party!r} refuses to open metrics of {rows} validation rows, because they would reveal single rows. "
            f"Training on shares needs at least {FEWEST_JUDGED}: set valid to a larger part, or train on more common "
            "rows"
        )


def check_sizes(sizes: Sequence[int], most: int) -> None:
    """Refuse batch sizes outside the possible range.

    Raises:
        ProtocolError: a size below 1 or above `most`.
    """
    if any(not 1 <= size <= most for size in sizes):
        raise ProtocolError(f"batches of {min(sizes)} to {max(sizes)} rows were announced; 1 to {most} are possible")
