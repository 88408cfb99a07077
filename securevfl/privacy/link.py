"""A link: a channel guarded by the party's policy and recorded in its ledger. Protocols send through links only."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any, Literal, TypeVar

import numpy as np
from securevfl_net.link_state import Beat

from securevfl.errors import PeerEnded, ProtocolError
from securevfl.ledger import Ledger
from securevfl.privacy.clock import Clock
from securevfl.privacy.noise import Noised
from securevfl.privacy.outcomes import MOST_DROPPED, OUTCOME, NumbersNotFinite, PeerDiverged, is_outcome, read_outcome
from securevfl.privacy.policy import Policy
from securevfl.privacy.signed_keys import check_public_key, sign_public_key
from securevfl.privacy.terms import raise_refusal
from securevfl.transport import (
    NO_GUARD,
    Array,
    Channel,
    CommitsFirst,
    Exchange,
    Guard,
    Kind,
    MemoryChannel,
    Message,
    Scalar,
    measure_message,
    move_to_host,
    wire_arrays,
)
from securevfl.transport import encoded_size as wire_size

__all__ = ["Declared", "Link", "MessageObserver", "fan_out", "gather", "send_all"]

_EMPTY: Mapping[str, Scalar] = {}
_T = TypeVar("_T")

Declared = Mapping[tuple[str, Kind], Exchange]
"""(step, kind) → the exchange declared for one direction of a link."""

MessageObserver = Callable[[str, str, Literal["sent", "received"], Message], None]
"""Observer called for every message of a link, with the party, its peer, the direction and the message."""


class Link:
    """One party's connection to one peer.

    Before a message goes to the channel, the link checks that it was declared, checks it against `policy` and records
    it in `ledger`, in this order. A channel that `CommitsFirst` has the ledger write the lines before messages leave
    the process; for others each line is written before the message is handed over. A message that arrives is written to
    the ledger and then checked in the same way. Public keys are signed and checked as `signed_keys` describes.

    Attributes:
        awaits: what the program is waiting for on this link; empty if it is not waiting.
        sent: messages that were sent.
        received: messages that were read.

    Args:
        me: the party.
        peer: the party at the other end.
        channel: what moves messages.
        ledger: the party's own.
        policy: the party's own.
        clock: the party's own.
        sends: what this run declares from `me` to `peer`; None leaves declarations out, for protocols tried alone.
        takes: what it declares from `peer` to `me`; likewise.
        heard: called with each message after the ledger has recorded it; None for no observer.
    """

    __slots__ = (
        "_channel",
        "_clock",
        "_grouped",
        "_heard",
        "_ledger",
        "_outcome",
        "_part",
        "_sends",
        "_takes",
        "_tasks",
        "_unsent",
        "awaits",
        "me",
        "peer",
        "policy",
        "received",
        "sent",
    )

    def __init__(
        self,
        me: str,
        peer: str,
        channel: Channel,
        ledger: Ledger,
        policy: Policy,
        clock: Clock,
        *,
        sends: Declared | None = None,
        takes: Declared | None = None,
        heard: MessageObserver | None = None,
    ) -> None:
        self.me = me
        self.peer = peer
        self.policy = policy
        self._channel = channel
        self._ledger = ledger
        self._clock = clock
        self._sends = sends
        self._takes = takes
        self._heard = heard
        self._grouped = isinstance(channel, CommitsFirst)
        if isinstance(channel, CommitsFirst):
            channel.commit_first(ledger.commit)
        self._unsent: list[Message] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._outcome: Message | None = None
        self._part = ""
        self.awaits = ""
        self.sent = 0
        self.received = 0

    @property
    def can_send(self) -> bool:
        """Whether `send` would not wait now."""
        return self._channel.can_send

    async def send(
        self,
        kind: Kind,
        what: str,
        *,
        meta: Mapping[str, Scalar] = _EMPTY,
        guard: Guard = NO_GUARD,
        **arrays: Array | Noised[Any],
    ) -> None:
        """Send arrays and scalars as one message; waits while the peer has too much left to read.

        The message's noise is the least noise multiplier among its arrays: 0 where one of them is not `Noised`.

        Raises:
            TypeError: the guard claims noise; nothing was sent.
            PolicyError: the party's policy forbids it; nothing was sent.
            ProtocolError: nobody declared the message; nothing was sent. Or the channel was closed.
        """
        await self.hand_over(compose_message(kind, what, meta=meta, guard=guard, **arrays))

    async def hand_over(self, message: Message) -> None:
        """Send a message made by `composed`; the same object may go over several links. See `send`."""
        what = message.what
        if self._sends is not None and (what, message.kind) not in self._sends:
            raise ProtocolError(
                f"{self.me!r} was about to send {message.kind.value} {what!r} to {self.peer!r}, which nothing in the "
                "job declares; nothing was sent: declare it in the algorithm's exchanges"
            )
        if message.kind is Kind.PUBLIC_KEY:
            message = sign_public_key(self._ledger, message, self.peer)
        self.policy.check_message(message, self.peer)
        if not isinstance(self._channel, MemoryChannel):
            message = move_to_host(message)  # a wire carries bytes of the host, not of the GPU
        late = self._deferred_check(message, self.me, self.peer)
        # Recorded before it is sent: after a crash in between, the ledger may list too much, never too little.
        size = measure_message(message)[0] if late is None else wire_size(message)
        try:
            self._ledger.record("sent", self.peer, message, size, check=late, grouped=self._grouped)
        except NumbersNotFinite:  # of an earlier message, on a GPU
            self._unsent.append(message)
            raise
        if self._channel.can_send:
            size = await self._channel.send(message)
        else:
            start = time.perf_counter()
            self.awaits = f"room for {what!r}"
            try:
                size = await self._channel.send(message)
            except asyncio.CancelledError:
                self._unsent.append(message)  # the ledger has its line: `settle_part` still sends it
                raise
            finally:
                self.awaits = ""
            self._clock.add_waiting(time.perf_counter() - start)
        self._count_sent(message, size)

    def _count_sent(self, message: Message, size: int) -> None:
        self.sent += 1
        self._clock.add_sent(self.peer, size)
        if self._heard is not None:
            self._heard(self.me, self.peer, "sent", message)

    async def receive(self, kind: Kind, what: str, *names: str) -> Message:
        """Receive the next message, which must have this kind and step and carry exactly these arrays.

        Raises:
            PolicyError: the message is protected less than the party's policy demands, or the peer refuses the job.
            PeerDiverged: the peer ended the part of the job that is under way, because training diverged.
            ProtocolError: the peer sent another message, an undeclared one or numbers that are not finite, or it ended;
                or a public key is not signed by the peer.
                Numbers on a GPU are checked when the ledger writes them, at most `LAG` messages later and before an
                epoch ends: checking them here would wait for the GPU.
        """
        message, late = await self._read_next(repr(what))
        if message.kind != kind or message.what != what or message.arrays.keys() != set(names):
            raise_refusal(message, self.peer)
            if self._part and is_outcome(message):
                self._outcome = message
                if read_outcome(message, self.peer, self._part):
                    raise PeerDiverged(f"its training diverged, as {self.peer!r} noticed")
            raise ProtocolError(
                f"{self.me!r} expected {kind.value} {what!r} with arrays {sorted(names)} from {self.peer!r} and got "
                f"{message.kind.value} {message.what!r} with {sorted(message.arrays)}: do both run the same "
                "version and job?",
                party=self.peer,
            )
        if self._takes is not None and (what, kind) not in self._takes:
            raise ProtocolError(
                f"{self.peer!r} sent {kind.value} {what!r} to {self.me!r}, which nothing in the job declares: "
                "do both run the same version and job?",
                party=self.peer,
            )
        if late is None:
            _require_finite(message, self.peer, self.me)
        if kind is Kind.PUBLIC_KEY:
            check_public_key(self._ledger, message, self.peer)
        return message

    async def _read_next(self, awaits: str, *, drop: bool = False) -> tuple[Message, Callable[[], None] | None]:
        """The next message, recorded and allowed by the policy, and its deferred check; none of one to `drop`."""
        start = time.perf_counter()
        self.awaits = awaits
        try:
            message, size = await self._channel.receive()
        except ProtocolError as error:
            error.party = error.party or self.peer
            raise
        finally:
            self.awaits = ""
        self.received += 1
        self._clock.add_waiting(time.perf_counter() - start)
        late = None if drop else self._deferred_check(message, self.peer, self.me)
        # Recorded before any check, so that the ledger shows what a refused peer sent.
        self._ledger.record("received", self.peer, message, size, check=late)
        if self._heard is not None:
            self._heard(self.me, self.peer, "received", message)
        self.policy.check_received(message, self.peer)
        return message, late

    def _deferred_check(self, message: Message, sender: str, receiver: str) -> Callable[[], None] | None:
        """The deferred check of a message whose numbers are on a GPU; None if they are in host memory. Outgoing
        messages are checked as well: NaN spreads, and the first ledger entry that contains one shows which party
        introduced it.
        """
        if message.here:
            return None
        return partial(_require_finite, message, sender, receiver)

    async def exchange(self, outgoing: Awaitable[object], incoming: Awaitable[_T]) -> _T:
        """Send and receive at the same time, so that two parties that both send in bulk cannot block each other.

        Args:
            outgoing: sends over this link.
            incoming: receives over this link.

        Returns:
            What `incoming` returns.
        """
        receiving = asyncio.ensure_future(incoming)
        await gather(outgoing, receiving)
        return receiving.result()

    def send_behind(self, sending: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run `sending`, which sends over this link, beside the program. `settle_part` waits for it."""
        task = asyncio.create_task(sending)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def begin_part(self, part: str) -> None:
        """Begin a part of the job that may fail without ending the job. The peer may end it until `settle_part` has."""
        self._part = part

    async def settle_part(self, part: str, *, diverged: bool) -> bool:
        """End a part of the job at both ends: send its outcome, and read up to the peer's.

        What this end recorded as sent and a cancelled task did not hand over goes first, so both ledgers stay alike.
        What the peer sent before its outcome is recorded and dropped.

        Args:
            part: names it.
            diverged: whether it ends here because training diverged.

        Returns:
            Whether it ended at the peer because training diverged.

        Raises:
            PolicyError: the peer refuses the job.
            ProtocolError: the peer ends another part, or sent messages in it that nobody read although it ended well,
                undeclared ones or more than `MOST_DROPPED`.
        """
        dropped = await self.exchange(self._send_outcome(part, diverged=diverged), self._drop_to_outcome())
        message, self._outcome, self._part = self._outcome, None, ""
        if message is None:
            raise ProtocolError(f"{self.peer!r} sent no outcome of {part!r}", party=self.peer)
        found = read_outcome(message, self.peer, part)
        if dropped and not (diverged or found):
            raise ProtocolError(f"{self.peer!r} sent {dropped!r}, which nobody reads in {part!r}", party=self.peer)
        return found

    async def _send_outcome(self, part: str, *, diverged: bool) -> None:
        for task in tuple(self._tasks):
            await task
        while self._unsent:
            message = self._unsent.pop(0)
            self._count_sent(message, await self._channel.send(message))
        await self.send(Kind.CONTROL, OUTCOME, meta={"part": part, "diverged": diverged})

    async def _drop_to_outcome(self) -> str:
        """The step of the first message that was read before the peer's outcome; empty if there was none."""
        first, count = "", 0
        while self._outcome is None:
            message, _ = await self._read_next(repr(OUTCOME), drop=True)
            if is_outcome(message):
                self._outcome = message
                break
            raise_refusal(message, self.peer)
            first, count = first or message.what, count + 1
            declared = self._takes is None or (message.what, message.kind) in self._takes
            if not declared or count > MOST_DROPPED:
                why = f"{count} messages and no outcome" if declared else f"{message.what!r}, which nobody declared"
                raise ProtocolError(f"{self.peer!r} sent {why}, where a part of the job ends", party=self.peer)
        return first

    @property
    def steps(self) -> int:
        """Messages that were sent and read."""
        return self.sent + self.received

    @property
    def last_beat(self) -> Beat:
        """The peer's last sign of life."""
        return self._channel.last_beat

    def send_beat(self, beat: Beat) -> None:
        """Send the peer a sign of life."""
        self._channel.send_beat(beat)

    def close(self) -> None:
        """Tell the peer that nothing more will come."""
        self._channel.close()


def compose_message(
    kind: Kind,
    what: str,
    *,
    meta: Mapping[str, Scalar] = _EMPTY,
    guard: Guard = NO_GUARD,
    **arrays: Array | Noised[Any],
) -> Message:
    """Build the message that `Link.send` sends. Its noise is the smallest among its arrays.

    Raises:
        TypeError: a guard that claims noise.
    """
    noise = min(map(_noise_multiplier, arrays.values())) if arrays else 0.0
    if noise or guard.noise:
        guard = _with_noise(guard, noise)
    return Message(kind, what, {name: _unwrap_noised(array) for name, array in arrays.items()}, meta, guard)


def _require_finite(message: Message, sender: str, receiver: str) -> None:
    """Refuse numbers that are not finite. The result is cached on the message, which several parties of one process may
    share.
    """
    if message.finite is None:
        object.__setattr__(message, "finite", all(map(_are_finite, wire_arrays(message).values())))
    if not message.finite:
        raise NumbersNotFinite(
            f"{sender!r} sent numbers that are not finite to {receiver!r} ({message.what!r}, array "
            f"{' or '.join(map(repr, message.arrays))}): check the training and the tables of {sender!r}; lower "
            "the learning rates if it diverged",
            party=sender,
        )


def _are_finite(numbers: np.ndarray) -> bool:
    """Return True if all of these flat numbers are finite. A finite sum of squares proves it in one fast pass."""
    if numbers.dtype.kind != "f":
        return True
    if numbers.dtype.itemsize > 2 and math.isfinite(np.vdot(numbers, numbers)):  # `dot` would warn of an overflow
        return True
    return bool(np.isfinite(numbers).all())


def _noise_multiplier(array: Array | Noised[Any]) -> float:
    return array.multiplier if isinstance(array, Noised) else 0.0


def _unwrap_noised(array: Array | Noised[Any]) -> Array:
    value: Array = array.value if isinstance(array, Noised) else array
    return value


@lru_cache(maxsize=256)
def _with_noise(guard: Guard, noise: float) -> Guard:
    """The guard with its noise filled in. Equal inputs give one object, because `Policy` caches guards by identity."""
    if guard.noise:
        raise TypeError(
            f"a guard claims noise of σ/Δ = {guard.noise:.3g}; send what a release returned (a Noised) under a guard "
            "without noise: the link derives it"
        )
    return replace(guard, noise=noise) if noise else guard


async def fan_out(links: Iterable[Link], send: Callable[[Link], Coroutine[Any, Any, None]]) -> None:
    """Send over several links at once, so that a slow reader does not delay the others.

    Args:
        links: to whom.
        send: sends over one of them.
    """
    full = []
    for link in links:
        if link.can_send:
            await send(link)
        else:
            full.append(link)
    await gather(*(send(link) for link in full))


async def send_all(
    links: Iterable[Link],
    kind: Kind,
    what: str,
    *,
    meta: Mapping[str, Scalar] = _EMPTY,
    guard: Guard = NO_GUARD,
    **arrays: Array | Noised[Any],
) -> None:
    """Send one message over several links at once, as `Link.send` does; its digest is computed once."""
    message = compose_message(kind, what, meta=meta, guard=guard, **arrays)
    await fan_out(links, lambda link: link.hand_over(message))


async def gather(*work: Awaitable[object]) -> None:
    """Run all of these concurrently and wait for them. The first error cancels the others and is raised when they have
    ended.

    Errors of the others that the cancellation did not cause are added to it as notes.
    """
    tasks = [asyncio.ensure_future(one) for one in work]
    try:
        await asyncio.gather(*tasks)
    except BaseException as first:
        for task in tasks:
            task.cancel()
        for ended in await asyncio.gather(*tasks, return_exceptions=True):
            follows = ended is first or isinstance(ended, asyncio.CancelledError | PeerEnded)
            if isinstance(ended, BaseException) and not follows:
                first.add_note(f"besides: {type(ended).__name__}: {ended}")
        raise
