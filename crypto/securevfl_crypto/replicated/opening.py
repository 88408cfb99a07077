"""Openings, within declared limits and checked against a second party; and digests of common shares."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from securevfl_crypto.errors import DisagreementError, MalformedError, UndeclaredOpening
from securevfl_crypto.replicated.party import Party
from securevfl_crypto.replicated.share import PARTIES, U64, Share

__all__ = ["Opening", "Openings", "compare_digests", "is_zero_everywhere", "open_share", "open_shares", "toss_coins"]

_DIGEST = 32
_ONE_WORD = np.zeros(1, np.uint64)


@dataclass(frozen=True)
class Opening:
    """The limits of the openings under one name.

    Attributes:
        times: most openings.
        to: the only parties that may get the values; any of the three if None.
        values: most values in one opening; any number if None.
        total: most values in all openings together; any number if None.
        each: most openings in one stage, see `Computing.begin_stage`; None if stages do not matter. An opening with
            `each` is refused before the first stage that names it.
    """

    times: int
    to: tuple[int, ...] | None = None
    values: int | None = None
    total: int | None = None
    each: int | None = None

    def __post_init__(self) -> None:
        for count in (self.times, self.values, self.total, self.each):
            if count is not None and count < 0:
                raise MalformedError(f"an opening of {count} times or values; a count must not be negative")


class Openings:
    """The declared openings of one incarnation, with their remaining counts."""

    def __init__(self, declared: Mapping[str, int | Opening]) -> None:
        self._declared = {name: Opening(item) if isinstance(item, int) else item for name, item in declared.items()}
        self._done = dict.fromkeys(declared, 0)
        self._values = dict.fromkeys(declared, 0)
        self._now: dict[str, int] = {}

    def begin_stage(self, names: Sequence[str]) -> None:
        """Begin a stage that allows these openings, each `Opening.each` times.

        Raises:
            MalformedError: a name that was not declared, or is not counted by stages.
        """
        found = {}
        for name in names:
            each = self._declared[name].each if name in self._declared else None
            if each is None:
                raise MalformedError(f"a stage allows {name!r}, which is not declared as an opening by stages")
            found[name] = each
        self._now = found

    def count_opening(self, name: str, x: Share, to: Sequence[int]) -> None:
        """Count one opening.

        Raises:
            UndeclaredOpening: the opening exceeds what was declared (name, number, size or parties).
            MalformedError: `to` is empty or names an unknown party.
        """
        if not to or any(party not in range(PARTIES) for party in to):
            raise MalformedError(f"an opening to parties {tuple(to)}; expected one or more of 0, 1 and 2")
        limit = self._declared.get(name)
        if limit is None:
            known = ", ".join(sorted(self._declared)) or "none"
            raise UndeclaredOpening(f"{name!r} is not among the declared openings ({known}); nothing was sent")
        if self._done[name] >= limit.times:
            raise UndeclaredOpening(f"{name!r} was declared to be opened {limit.times} times; nothing was sent")
        if limit.each is not None and not self._now.get(name):
            raise UndeclaredOpening(
                f"{name!r} was declared to be opened {limit.each} times in each stage that allows it, and this one "
                "allows no more; nothing was sent"
            )
        if limit.total is not None and self._values[name] + x.size > limit.total:
            raise UndeclaredOpening(
                f"{name!r} was declared with {limit.total} values in all, {self._values[name]} were opened and this "
                f"one has {x.size}; nothing was sent"
            )
        if limit.values is not None and x.size > limit.values:
            raise UndeclaredOpening(
                f"{name!r} was declared with {limit.values} values at most, this one has {x.size}; nothing was sent"
            )
        if limit.to is not None and not set(to) <= set(limit.to):
            raise UndeclaredOpening(f"{name!r} was declared for {limit.to}, not for {tuple(to)}; nothing was sent")
        self._done[name] += 1
        self._values[name] += x.size
        if limit.each is not None:
            self._now[name] -= 1

    def count_check(self, name: str) -> None:
        """Count one check of whether a value is zero, whose outcome all three parties learn.

        Raises:
            UndeclaredOpening: it exceeds what was declared.
        """
        self.count_opening(name, Share(_ONE_WORD, _ONE_WORD), range(PARTIES))

    def remaining_limits(self) -> dict[str, int | Opening]:
        """Return the remaining limits of each declaration."""
        return {
            name: replace(
                item,
                times=item.times - self._done[name],
                total=None if item.total is None else item.total - self._values[name],
            )
            for name, item in self._declared.items()
        }


def _hash_arrays(label: str, arrays: Sequence[U64]) -> np.ndarray:
    found = hashlib.sha256(len(label.encode()).to_bytes(4, "big") + label.encode())
    for array in arrays:
        found.update(repr(array.shape).encode())
        found.update(np.ascontiguousarray(array).view(np.uint8).tobytes())
    return np.frombuffer(found.digest(), np.uint8)


async def open_share(party: Party, name: str, x: Share, to: Sequence[int]) -> U64 | None:
    """Open x at each receiver i, which lacks summand i + 2: the next party sends it, the previous one its digest."""
    receivers = sorted(set(to))
    for receiver in receivers:
        await _send_summand(party, name, x, receiver)
    return await _read_summand(party, name, x) if party.index in receivers else None


async def _send_summand(party: Party, name: str, x: Share, receiver: int) -> None:
    label = f"open {name}"
    if party.index == (receiver + 1) % PARTIES:
        await party.send(receiver, label, [np.asarray(x.next, order="C")])
    elif party.index == (receiver + 2) % PARTIES:
        await party.send(receiver, label, [_hash_arrays(label, [x.mine])])


async def _read_summand(party: Party, name: str, x: Share) -> U64:
    label = f"open {name}"
    (missing,) = await party.receive(party.next_party, label, [(np.uint64, x.shape)])
    (digest,) = await party.receive(party.previous_party, label, [(np.uint8, (_DIGEST,))])
    # Two parties have each summand, so one party alone cannot change an opened value unnoticed.
    if not np.array_equal(digest, _hash_arrays(label, [missing])):
        raise DisagreementError(
            f"parties {party.next_party} and {party.previous_party} hold different shares of {name!r}; nothing was "
            "opened: restart all three from one checkpoint"
        )
    return np.asarray(x.mine + x.next + missing)


async def open_shares(party: Party, every: Sequence[tuple[str, Share, int]]) -> dict[str, U64]:
    """Open several values, each to one receiver, in one round: every party sends all that it has to send, then reads.

    Args:
        party: this one.
        every: name, value and receiver, in the same order at all three.
    """
    for name, x, receiver in every:
        await _send_summand(party, name, x, receiver)
    return {name: await _read_summand(party, name, x) for name, x, receiver in every if receiver == party.index}


async def toss_coins(party: Party, count: int) -> U64:
    """Public random words that nobody could foresee, (count,), one round: each party lacks the summand that the two
    others draw, and compares what both send."""
    drawn = {key: party.streams.draw_words(key, (count,)) for key in (party.index, party.next_party)}
    for other, key in ((party.previous_party, party.next_party), (party.next_party, party.index)):
        await party.send(other, "coins", [drawn[key]])
    (missing,), (again,) = [
        await party.receive(source, "coins", [(np.uint64, (count,))])
        for source in (party.next_party, party.previous_party)
    ]
    if not np.array_equal(missing, again):
        raise DisagreementError(
            f"parties {party.next_party} and {party.previous_party} send different coins: restart all three"
        )
    return np.asarray(drawn[party.index] + drawn[party.next_party] + missing)


async def compare_digests(party: Party, label: str, shares: Sequence[Share]) -> None:
    """Compare with each neighbour the summands that both have."""
    text = f"confirm {label}"
    own = {
        party.next_party: _hash_arrays(text, [share.next for share in shares]),
        party.previous_party: _hash_arrays(text, [share.mine for share in shares]),
    }
    # Digests alone cross: they hide the summands, which are uniform, and still show a difference.
    for other, digest in own.items():
        await party.send(other, text, [digest])
    for other, digest in own.items():
        (theirs,) = await party.receive(other, text, [(np.uint8, (_DIGEST,))])
        if not np.array_equal(theirs, digest):
            low, high = sorted((party.index, other))
            raise DisagreementError(
                f"parties {low} and {high} hold different summands at {label!r}: what was dealt or loaded is not one "
                "sharing; nothing was opened"
            )


async def is_zero_everywhere(party: Party, name: str, x: Share) -> bool:
    """Learn whether every word of x is zero; one round, and 64 bytes from each party. Whoever knows that x is one of a
    few values can find by its digest which: `Computing.is_zero` multiplies it by random odd numbers before.

    Each party lacks one summand. If x is zero, that summand is minus the sum of the two that it has, so a digest of it
    settles the question. Both parties that hold the summand send its digest.
    """
    label = f"confirm {name} is zero"
    first = (party.index + 1) % PARTIES
    second = (party.index + 2) % PARTIES
    await party.send(second, label, [_hash_arrays(label, [x.next])])  # `next` is what the previous party lacks
    await party.send(first, label, [_hash_arrays(label, [x.mine])])
    (one,) = await party.receive(first, label, [(np.uint8, (_DIGEST,))])
    (other,) = await party.receive(second, label, [(np.uint8, (_DIGEST,))])
    if not np.array_equal(one, other):
        raise DisagreementError(
            f"parties {first} and {second} hold different shares of {name!r}; nothing was opened: restart all three "
            "from one checkpoint"
        )
    return bool(np.array_equal(one, _hash_arrays(label, [np.uint64(0) - x.mine - x.next])))
