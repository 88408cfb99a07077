"""One of the three computing parties: what it holds, what it sends, and the count of its rounds and bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from securevfl_crypto.replicated.functions import Functions
from securevfl_crypto.replicated.keys import Streams
from securevfl_crypto.replicated.opening import Opening, Openings, opened, same_digests
from securevfl_crypto.replicated.party import Party
from securevfl_crypto.replicated.product import Product, Result, additive
from securevfl_crypto.replicated.resharing import Reshare
from securevfl_crypto.replicated.share import U64, Dealt, Share
from securevfl_crypto.replicated.task import Task
from securevfl_crypto.replicated.truncation import behind_masks
from securevfl_crypto.replicated.wire import Wire
from securevfl_crypto.ring import FRACTION

__all__ = ["Computing"]


class Computing(Functions, Party):
    """Party `index` of three. All three make the same calls in the same order, with shares of the same shapes.

    Secure against one party that follows the protocol and looks at everything it receives; the page on the protocol of
    shares says what is detected beyond that.

    Args:
        index: 0, 1 or 2.
        wire: to the two others.
        streams: this party's randomness, fresh for this incarnation.
        fraction: bits behind the binary point.
        openings: what may be opened, by name: how often, or an `Opening`. Nothing else is ever opened.
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
        """A share of public words, uint64: x₀ is the words, x₁ and x₂ are zero."""
        zeros = np.zeros_like(words)
        return Share(words if self.index == 0 else zeros, words if self.index == 2 else zeros)

    def take(self, dealt: Dealt) -> Share:
        """The share in what a data party dealt to this party; `confirm` it before it is used."""
        return dealt.share()

    async def products(self, jobs: Sequence[Product]) -> list[Result]:
        """Products, each truncated and followed by a function as it asks; all of them share their rounds.

        One round without truncation, two with it, four with a comparison.

        Returns:
            For each job its share; with a comparison, the share and that of its gate bits.

        Raises:
            MalformedError: shapes do not match, or a peer sent something else.
            DisagreementError: a peer is at another operation.
        """
        self.begin()
        plain = Reshare(self, [additive(job, self.index) for job in jobs if not job.masked])
        tasks = [job.task(additive(job, self.index), self.fraction) for job in jobs if job.masked]
        behind, beside = await behind_masks(self, tasks, plain)
        masked, simple = iter(behind), iter(beside)
        return [job.result(next(masked) if job.masked else [next(simple)]) for job in jobs]

    async def behind(self, tasks: Sequence[Task]) -> list[list[Share]]:
        """Tasks of `truncation`, in their own rounds; see `Task`."""
        self.begin()
        return (await behind_masks(self, tasks))[0]

    def summand(self, x: Share) -> U64:
        """This party's additive summand of x: that of the three parties add up to x."""
        return x.mine

    async def open(self, name: str, x: Share, to: Sequence[int]) -> U64 | None:
        """Open x to the parties `to`, one round. The words at those, None at the others.

        Raises:
            UndeclaredOpening: the opening was not declared, or not so often, so large or to these; nothing was sent.
            DisagreementError: the two holders of the missing summand hold different ones.
        """
        self._openings.take(name, x, to)
        self.begin()
        return await opened(self, name, x, to)

    def stage(self, *names: str) -> None:
        """Begin a stage, such as an epoch: until the next one, of the openings that are counted by stages these are
        allowed, each `Opening.each` times. What an earlier stage did not use is lost.

        Raises:
            MalformedError: a name that was not declared, or is not counted by stages.
        """
        self._openings.stage(names)

    @property
    def openings_left(self) -> dict[str, int | Opening]:
        """The openings that remain, for the `Computing` of the next incarnation: a restart must not renew them."""
        return self._openings.left()

    async def confirm(self, label: str, *shares: Share) -> None:
        """Compare digests of what two parties both hold, one round.

        Raises:
            DisagreementError: they differ; names the pair.
        """
        self.begin()
        await same_digests(self, label, shares)

    async def refreshed(self, *shares: Share) -> list[Share]:
        """The same values in fresh shares, one round: for what was loaded from disk."""
        self.begin()
        reshare = Reshare(self, [share.mine for share in shares])
        await reshare.send()
        return await reshare.receive()
