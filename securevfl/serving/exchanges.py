"""Control messages between parties while a model is served; scoring declares its own messages.

The active party sends the next command and its rows; each passive party answers whether it takes part. Scores cross
after all have agreed, as the job's algorithm and protection declare them. The command that starts a batch can carry the
rows of the next one: parties answer whether they take part in it as soon as they have scored the first.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

import numpy as np

from securevfl.errors import InputError, PolicyError, ProtocolError
from securevfl.party import Job, job_exchanges
from securevfl.privacy import Link
from securevfl.serving.policy import RULES, Refusal
from securevfl.transport import ACTIVE, COORDINATOR, PASSIVE, Exchange, Exchanges, Kind, Scalar

__all__ = [
    "EXCHANGES",
    "NO_ROWS",
    "THEN_SCORE",
    "Agreed",
    "finish_agreed",
    "receive_answer",
    "receive_command",
    "send_acceptance",
    "send_command",
    "send_refusal",
    "serving_exchanges",
]

Agreed = Callable[[], Awaitable[object]]
"""What a party does once all parties have agreed to a command."""

NEXT = "serve/next"
ANSWER = "serve/answer"
EXCHANGES = (
    Exchange(
        NEXT,
        Kind.CONTROL,
        ACTIVE,
        PASSIVE,
        "what to do next: score these rows, prepare or use a model, align anew",
        "which aligned rows are scored, and when",
        "note",
    ),
    Exchange(ANSWER, Kind.CONTROL, PASSIVE, ACTIVE, "whether it takes part", "which rule of its serving policy holds"),
)
"""Beside what the job declares."""

_HELPING = (
    Exchange(NEXT, Kind.CONTROL, ACTIVE, COORDINATOR, "what to do next: score rows, prepare or use a model"),
    Exchange(ANSWER, Kind.CONTROL, COORDINATOR, ACTIVE, "whether it takes part"),
)
"""With a party without data that computes: it does not receive the row numbers."""

THEN_SCORE: Mapping[str, Scalar] = {"then": "score"}
"""Beside ``go``: the rows of the message are the batch after the one that it starts."""

NO_ROWS = np.empty(0, np.int64)
"""For messages without rows."""

_WORDS = 500


def serving_exchanges(job: Job, passive: int) -> Exchanges:
    """All messages of serving a model with `passive` passive parties; on shares also with a party without data."""
    return Exchanges([*job_exchanges(job, passive), *EXCHANGES, *(_HELPING if job.protection.on_shares else ())])


async def send_command(link: Link, do: str, rows: np.ndarray, meta: Mapping[str, Scalar]) -> None:
    """Send the active party's next command."""
    await link.send(Kind.CONTROL, NEXT, meta={"do": do, **meta}, rows=rows)


async def receive_command(link: Link) -> tuple[str, np.ndarray, Mapping[str, Scalar]]:
    """Receive the next command and its rows, (n,) int64.

    Raises:
        ProtocolError: the message is not a command.
    """
    message = await link.receive(Kind.CONTROL, NEXT, "rows")
    do = message.meta.get("do")
    if not isinstance(do, str):
        raise ProtocolError(f"{link.peer!r} sent no valid command")
    return do, _check_rows(message.arrays["rows"], link.peer), message.meta


async def send_acceptance(link: Link, **meta: Scalar) -> None:
    """A passive party takes part."""
    await link.send(Kind.CONTROL, ANSWER, meta={"ok": True, **meta}, rows=NO_ROWS)


async def send_refusal(link: Link, refusal: Refusal) -> None:
    """A passive party does not take part."""
    meta: dict[str, Scalar] = {"ok": False, "rule": refusal.rule, "words": refusal.words[:_WORDS]}
    meta["wait"] = round(refusal.wait * 1000)
    await link.send(Kind.CONTROL, ANSWER, meta=meta, rows=np.array(refusal.rows, np.int64))


async def receive_answer(link: Link, count: int) -> tuple[Refusal | None, Mapping[str, Scalar]]:
    """Receive a passive party's answer: its refusal, or None, and its other fields.

    Args:
        link: to it.
        count: rows that it was asked about.

    Raises:
        ProtocolError: the answer is malformed.
    """
    message = await link.receive(Kind.CONTROL, ANSWER, "rows")
    meta, rows = message.meta, _check_rows(message.arrays["rows"], link.peer)
    if meta.get("ok") is True:
        return None, meta
    rule, words, wait = meta.get("rule"), meta.get("words"), meta.get("wait")
    if not (isinstance(rule, str) and isinstance(words, str) and type(wait) is int and 0 <= wait <= 10**9):
        raise ProtocolError(f"{link.peer!r} returned a malformed answer")
    if len(words) > _WORDS or len(rows) > count or not all(0 <= row < count for row in rows.tolist()):
        raise ProtocolError(f"{link.peer!r} refused rows that it was not asked about")
    known = rule if rule in RULES else "other"
    refusal = Refusal(party=link.peer, rule=known, words=words, wait=wait / 1000, rows=tuple(map(int, rows.tolist())))
    return refusal, meta


async def finish_agreed(agreed: Agreed) -> None:
    """Do what all parties agreed to.

    Raises:
        ProtocolError: it failed at this party. The session ends with it and another one begins; the server stays.
    """
    try:
        await agreed()
    except (InputError, PolicyError) as error:
        raise ProtocolError(f"what all had agreed to failed: {error}") from error


def _check_rows(array: object, peer: str) -> np.ndarray:
    if not isinstance(array, np.ndarray) or array.dtype != np.int64 or array.ndim != 1:
        raise ProtocolError(f"{peer!r} sent malformed row numbers")
    return array
