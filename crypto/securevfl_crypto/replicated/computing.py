"""One of the three computing parties: its shares, its messages, and its counts of rounds and bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from securevfl_crypto.replicated.functions import Functions
from securevfl_crypto.replicated.keys import Streams
from securevfl_crypto.replicated.opening import (
    Opening,
    Openings,
    compare_digests,
    is_zero_everywhere,
    open_share,
    open_shares,
    toss_coins,
)
from securevfl_crypto.replicated.party import Party
from securevfl_crypto.replicated.product import Product, Result, product_summand
from securevfl_crypto.replicated.resharing import Reshare
from securevfl_crypto.replicated.share import U64, Dealt, Share
from securevfl_crypto.replicated.task import Task
from securevfl_crypto.replicated.truncation import run_masked_tasks
from securevfl_crypto.replicated.wire import Wire
from securevfl_crypto.ring import FRACTION

__all__ = ["Computing"]


class Computing(Functions, Party):
    """Party `index` of three. All three make the same calls in the same order, with shares of the same shapes.

    Secure against one party that follows the protocol and reads everything it receives; the page on the protocol of
    shares lists the deviations that it detects.

    Args:
        index: 0, 1 or 2.
        wire: links to the two others.
        streams: this party's randomness, fresh for this incarnation.
        fraction: bits behind the binary point.
        openings: the allowed openings, by name: how often, or an `Opening`. The party refuses every other opening.
    """

    def __init__(
        self,
        index: int,
        wire: Wire,
        streams: Streams,
        *,
        fraction: int = FRACTION,
        openings: Mapping[str, int | Opening] | None = None,
    ) -> None:
        Functions.__init__(self, fraction)
        Party.__init__(self, index, wire, streams)
        self._openings = Openings(openings or {})

    def constant(self, words: np.ndarray) -> Share:
        """Share public words, uint64, without a message: x₀ is the words, x₁ and x₂ are zero."""
        zeros = np.zeros_like(words)
        return Share(words if self.index == 0 else zeros, words if self.index == 2 else zeros)

    def read_dealt(self, dealt: Dealt) -> Share:
        """Read the share that a data party dealt to this party. Call `confirm` before you use it."""
        return dealt.share()

    async def compute_products(self, jobs: Sequence[Product]) -> list[Result]:
        """Compute products, each with its truncation and function; all of them share their rounds.

        One round without truncation, two with it, four with a comparison.

        Returns:
            The share of each job's result; with a comparison, also the share of its gate bits.

        Raises:
            MalformedError: shapes do not match, or a peer sent a malformed message.
            DisagreementError: a peer is at another operation.
        """
        self.begin_operation()
        plain = Reshare(self, [product_summand(job, self.index) for job in jobs if not job.needs_mask])
        tasks = [job.following_task(product_summand(job, self.index), self.fraction) for job in jobs if job.needs_mask]
        behind, beside = await run_masked_tasks(self, tasks, plain)
        masked, simple = iter(behind), iter(beside)
        return [job.arrange_result(next(masked) if job.needs_mask else [next(simple)]) for job in jobs]

    async def run_masked(self, tasks: Sequence[Task]) -> list[list[Share]]:
        """Run tasks of `truncation` in separate rounds; see `Task`."""
        self.begin_operation()
        return (await run_masked_tasks(self, tasks))[0]

    def additive_summand(self, x: Share) -> U64:
        """This party's additive summand of x; those of the three parties add up to x."""
        return x.mine

    async def open(self, name: str, x: Share, to: Sequence[int]) -> U64 | None:
        """Open x to the parties `to`, one round. Returns the words at these parties and None at the others.

        Raises:
            UndeclaredOpening: the opening exceeds what was declared (name, number, size or parties); nothing was sent.
            DisagreementError: the two parties with the missing summand have different ones.
        """
        # Counted before anything is sent: a party that fails halfway must not open the same value again.
        self._openings.count_opening(name, x, to)
        self.begin_operation()
        return await open_share(self, name, x, to)

    async def open_each(self, every: Sequence[tuple[str, Share, int]]) -> dict[str, U64]:
        """Open several values in one round, each to one party.

        Args:
            every: name, value and receiver, in the same order at all three parties.

        Returns:
            Name → the words of the values that this party receives.

        Raises:
            UndeclaredOpening: one of them exceeds what was declared; nothing was sent.
            DisagreementError: the two parties with a missing summand have different ones.
        """
        for name, x, to in every:
            self._openings.count_opening(name, x, (to,))
        self.begin_operation()
        return await open_shares(self, every)

    async def is_zero(self, name: str, x: Share) -> bool:
        """Tell all three parties whether every word of x is zero, and nothing else of x; two rounds.

        Each word is first multiplied by a random odd number that nobody knows: a word that is not zero stays so, modulo
        2^64, and its digest cannot be found by trying likely words. Of such a word, its trailing zeros alone show.
        It counts as an opening of one value to all three.

        Raises:
            UndeclaredOpening: the opening exceeds what was declared; nothing was sent.
            DisagreementError: two parties have different summands.
        """
        self._openings.count_check(name)
        drawn = Share(*(self.streams.draw_words(key, x.shape) for key in (self.index, self.next_party)))
        odd = drawn * 2 + self.constant(np.ones(x.shape, np.uint64))
        hidden = await self.multiply(x, odd)
        self.begin_operation()
        return await is_zero_everywhere(self, name, hidden)

    async def toss_coins(self, count: int) -> U64:
        """Draw public random words (count,) that no party alone could foresee or choose, one round.

        Raises:
            DisagreementError: two parties send different ones.
        """
        self.begin_operation()
        return await toss_coins(self, count)

    def begin_stage(self, *names: str) -> None:
        """Begin a stage, such as an epoch, in which these openings are allowed, each `Opening.each` times.

        Concerns openings that are counted by stages. Openings that an earlier stage did not use are lost.

        Raises:
            MalformedError: a name that was not declared, or is not counted by stages.
        """
        self._openings.begin_stage(names)

    @property
    def openings_left(self) -> dict[str, int | Opening]:
        """The remaining openings, for the `Computing` of the next incarnation: a restart must not renew them."""
        return self._openings.remaining_limits()

    async def confirm(self, label: str, *shares: Share) -> None:
        """Compare digests of the summands that two parties share, one round.

        Raises:
            DisagreementError: they differ; names the pair.
        """
        self.begin_operation()
        await compare_digests(self, label, shares)

    async def refresh(self, *shares: Share) -> list[Share]:
        """Return the same values in fresh shares, one round. Use it for shares that were loaded from disk."""
        self.begin_operation()
        reshare = Reshare(self, [share.mine for share in shares])
        await reshare.send()
        return await reshare.receive()
