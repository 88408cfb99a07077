"""Counts by bin from encrypted labels.

The active party sends each training row's label, encrypted under its key. Passive parties return encrypted counts of
their bins. The active party sends back how many rows of each bin are of the second class.

One ciphertext contains both counts of a bin, so only the number of bins crosses in the clear. A passive party shuffles
its columns and each column's bins, so the active party does not know their order. The active party sends no counts of
bins with fewer rows than the job's `least`.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import securevfl_crypto as crypto
from securevfl_crypto.sums import SealedSums, SumHolder, SumOwner, SumPlan

from securevfl.cut.handshake import read_key
from securevfl.errors import InputError, PolicyError, ProtocolError
from securevfl.privacy import Clock, Link, fan_out
from securevfl.transport import Guard, Kind

__all__ = ["COUNTS", "KEY", "POSITIVES", "SIZES", "request_counts", "tell_all"]

KEY, LABELS, SIZES, COUNTS, POSITIVES = (
    "scorecard/key",
    "scorecard/labels",
    "scorecard/bins",
    "scorecard/counts",
    "scorecard/positives",
)
_MOST_COLUMNS = 1 << 16


@contextmanager
def _count_as_encryption(clock: Clock) -> Iterator[None]:
    """Count as homomorphic encryption, and turn the cryptography's errors into the toolkit's."""
    with clock.time_encryption():
        try:
            yield
        except crypto.WeakKeyError as error:
            raise PolicyError(f"{error}: nothing was encrypted") from error
        except crypto.CryptoError as error:
            raise ProtocolError(str(error)) from error


def _plan_sums(bits: int, rows: int) -> SumPlan:
    return SumPlan(key_bits=bits, rows=rows, bounds=(1, 1))


async def tell_all(links: Sequence[Link], labels: np.ndarray, bits: int, bins: int, least: int, clock: Clock) -> int:
    """The active party's half.

    Args:
        links: to the passive parties.
        labels: 0 or 1 of each training row, int64 (n,).
        bits: of the key.
        bins: the most bins of a column.
        least: the fewest rows of a bin that anything is told of.
        clock: the party's.

    Returns:
        The most independent counts of labels that a party was told, 0 without parties: each is a linear equation, and
        as many as rows give every label.

    Raises:
        ProtocolError: a party answers with bins that the job does not allow, or with no counts.
    """
    with _count_as_encryption(clock):
        key = crypto.Paillier(bits=bits).generate_key()
        guard = Guard("paillier", key.public.bits, key.public.fingerprint)
        owner = SumOwner(key, _plan_sums(key.public.bits, len(labels)))
        rows = np.stack([np.ones(len(labels), dtype=np.int64), labels], axis=1)
        sealed = owner.encrypt_rows(rows)
    public = np.frombuffer(key.public.to_bytes(), dtype=np.uint8)
    totals = rows.sum(axis=0, keepdims=True)
    told = [0]

    async def send_counts(link: Link) -> None:
        await link.send(Kind.PUBLIC_KEY, KEY, key=public)
        await link.send(Kind.CIPHERTEXT, LABELS, guard=guard, labels=sealed)
        message = await link.receive(Kind.CONTROL, SIZES, "bins", "omitted")
        sizes = np.asarray(message.arrays["bins"])
        if sizes.dtype != np.int64 or sizes.ndim != 1 or not 1 <= len(sizes) <= _MOST_COLUMNS:
            raise ProtocolError(
                f"{link.peer!r} sent numbers of bins as {sizes.dtype} {sizes.shape}; int64 (columns,) is needed"
            )
        if sizes.min() < 1 or sizes.max() > bins:
            raise ProtocolError(
                f"{link.peer!r} has columns of {sizes.min()} to {sizes.max()} bins; the job says {bins}"
            )
        answer = await link.receive(Kind.CIPHERTEXT, COUNTS, "counts")
        with _count_as_encryption(clock):
            if (np.asarray(message.arrays["omitted"]) < 0).any():  # bins would then not have to add up to all rows
                raise ProtocolError(f"{link.peer!r} does not leave out one bin of each column")
            sums = SealedSums(np.asarray(answer.arrays["counts"]), np.asarray(message.arrays["omitted"]))
            found = owner.open_sums(sums, sizes.tolist(), totals)[0]
        count, positives = found[:, 0], found[:, 1]
        alone = np.repeat(sizes == 1, sizes)
        if (positives < 0).any() or (positives > count).any():
            raise ProtocolError(f"{link.peer!r} returned counts that do not match these labels")
        if (count[~alone] < least).any():
            raise ProtocolError(
                f"{link.peer!r} asks for a bin of {count[~alone].min()} rows; the job says at least {least}: nothing "
                "was sent of its bins"
            )
        await link.send(Kind.STATISTIC, POSITIVES, positives=positives.astype(np.int64))
        told.append(int((sizes - 1).sum()) + 1)  # the bins of every column have the same sum

    await fan_out(links, send_counts)
    return max(told)


async def request_counts(
    link: Link, codes: np.ndarray, sizes: Sequence[int], bits: int, clock: Clock
) -> list[np.ndarray]:
    """A passive party's half: how many rows of each bin are of the second class, int64 for each column.

    Args:
        link: to the active party.
        codes: each training row's bin in each column, int64 (n, columns).
        sizes: bins of each column.
        bits: least bits of the key.
        clock: the party's.

    Raises:
        ProtocolError: the active party sends other labels or counts than its own rows have.
        PolicyError: its key is shorter than the job says.
    """
    order = np.random.default_rng(secrets.randbits(256))  # not from the job's seed, which the active party knows
    columns = order.permutation(len(sizes))
    bins = [order.permutation(sizes[j]) for j in columns]  # of column j, bin b is asked for as bins[j][b]
    message = await link.receive(Kind.PUBLIC_KEY, KEY, "key")
    with _count_as_encryption(clock):
        key = crypto.Paillier(bits=bits).read_public(read_key(link.peer, message.arrays["key"]))
    guard = Guard("paillier", key.bits, key.fingerprint)
    message = await link.receive(Kind.CIPHERTEXT, LABELS, "labels")
    with _count_as_encryption(clock):
        holder = SumHolder(key, _plan_sums(key.bits, len(codes)))
        labels = holder.load_rows(np.asarray(message.arrays["labels"]))
        shuffled = np.stack([new[codes[:, j]] for j, new in zip(columns, bins, strict=True)], axis=1)
        answer = holder.compute_sums(labels, shuffled, [sizes[j] for j in columns])
    asked = np.array([sizes[j] for j in columns], dtype=np.int64)
    await link.send(Kind.CONTROL, SIZES, bins=asked, omitted=answer.omitted)
    await link.send(Kind.CIPHERTEXT, COUNTS, guard=guard, counts=answer.ciphertexts)
    message = await link.receive(Kind.STATISTIC, POSITIVES, "positives")
    positives = np.asarray(message.arrays["positives"])
    if positives.dtype != np.int64 or positives.shape != (sum(sizes),):
        raise ProtocolError(
            f"{link.peer!r} sent counts as {positives.dtype} {positives.shape}; int64 ({sum(sizes)},) was needed"
        )
    if (positives < 0).any() or (positives > len(codes)).any():
        raise ProtocolError(
            f"{link.peer!r} sent counts from {positives.min()} to {positives.max()}; 0 to {len(codes)} are possible"
        )
    found = [np.empty(0, dtype=np.int64)] * len(sizes)
    start = 0
    for j, new in zip(columns.tolist(), bins, strict=True):
        found[j] = positives[start : start + sizes[j]][new]
        if (found[j] > np.bincount(codes[:, j], minlength=sizes[j])).any():
            raise ProtocolError(f"{link.peer!r} sent more rows of the second class than a bin has rows")
        start += sizes[j]
    return found


def check_features(shape: Sequence[int], party: str) -> None:
    """Refuse features that are not columns.

    Raises:
        InputError: images, or a passive party without columns.
    """
    if len(shape) != 1:
        raise InputError(
            f"{party!r} has features of shape {tuple(shape)}; a scorecard cuts columns: use splitnn for images"
        )
