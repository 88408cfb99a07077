"""Exit codes of the command line: may the command be started again as it is, or must a person act first?

This table is the only one. Errors take their codes from it, and tests compare it with the page for operators, the
systemd unit, the Compose file's wrapper and the Helm chart.
"""

from __future__ import annotations

import errno
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

__all__ = [
    "AGAIN",
    "CODES",
    "CONFIGURATION",
    "EVIDENCE",
    "INTERRUPTED",
    "JOB",
    "LEDGER",
    "PROGRAM",
    "REFUSED",
    "ROWS",
    "TERMINATED",
    "UNFORESEEN",
    "ExitClass",
    "ExitCode",
    "classify_exit",
    "find_machine_fault",
    "should_restart",
    "stopping_codes",
]


class ExitClass(StrEnum):
    """What to do with a command that ended."""

    DONE = "done"
    AGAIN = "start again"
    ACT = "a person must act"


@dataclass(frozen=True, kw_only=True)
class ExitCode:
    """One line of the table.

    Attributes:
        number: the code.
        kind: its class.
        topic: what it is about, in a word or two.
        meaning: what happened.
        cure: what to do.
    """

    number: int
    kind: ExitClass
    topic: str
    meaning: str
    cure: str


PROGRAM: Final = 1
CONFIGURATION: Final = 2
REFUSED: Final = 3
ROWS: Final = 4
EVIDENCE: Final = 5
UNFORESEEN: Final = 6
JOB: Final = 7
LEDGER: Final = 8
AGAIN: Final = 75
"""``EX_TEMPFAIL`` of ``sysexits.h``."""
INTERRUPTED: Final = 128 + signal.SIGINT
TERMINATED: Final = 128 + signal.SIGTERM

CODES: Final = tuple(
    ExitCode(number=number, kind=kind, topic=topic, meaning=meaning, cure=cure)
    for number, kind, topic, meaning, cure in (
        (0, ExitClass.DONE, "success", "done", "nothing"),
        (
            AGAIN,
            ExitClass.AGAIN,
            "waiting or a fault outside",
            "a peer is away, crashed or was silent; a link was cut; the disk was full; the program's own "
            "gate process was killed; or a signal ended `party` or `serve`",
            "start it again; it goes on where it stopped",
        ),
        (
            INTERRUPTED,
            ExitClass.AGAIN,
            "Ctrl-C",
            "you interrupted `run`, `predict`, `sweep` or `attack`",
            "the message gives the command that goes on",
        ),
        (TERMINATED, ExitClass.AGAIN, "SIGTERM", "the same, ended by SIGTERM", "the message gives the command"),
        (
            CONFIGURATION,
            ExitClass.ACT,
            "configuration or usage",
            "an unusable file, table, key, address or option",
            "correct it",
        ),
        (
            REFUSED,
            ExitClass.ACT,
            "refusal",
            "a policy, a bound of the agreement or its expiry; or a peer refused this party's certificate, version, "
            "agreement or state folder",
            "change the policy or the agreement, or what the peer names",
        ),
        (
            ROWS,
            ExitClass.ACT,
            "common rows",
            "no common rows, or the parties do not agree which they are",
            "look at identifiers and normalisation",
        ),
        (
            EVIDENCE,
            ExitClass.ACT,
            "evidence: protocol",
            "a peer sent something that the protocol does not allow; the message names it",
            "keep the ledgers, and ask that party",
        ),
        (
            JOB,
            ExitClass.ACT,
            "the job's numbers",
            "a value out of range, or training diverged",
            "change the job",
        ),
        (
            LEDGER,
            ExitClass.ACT,
            "evidence: ledger",
            "a ledger that does not verify, or lacks lines",
            "keep the folder, and look into it",
        ),
        (
            UNFORESEEN,
            ExitClass.ACT,
            "the program",
            "an unforeseen error in a party's program",
            "report it; start it once more if you must, because each attempt may spend ε",
        ),
        (PROGRAM, ExitClass.ACT, "the toolkit", "any other error of the toolkit", "read the message"),
    )
)

_KINDS = {one.number: one.kind for one in CODES}
_FAULT_NAMES = (
    *("EADDRINUSE", "EAGAIN", "ECONNABORTED", "ECONNREFUSED", "ECONNRESET", "EDQUOT", "EFBIG", "EHOSTUNREACH"),
    *("EIO", "EMFILE", "ENETDOWN", "ENETUNREACH", "ENFILE", "ENOMEM", "ENOSPC", "EPIPE", "ESTALE", "ETIMEDOUT"),
)
_FAULTS = frozenset(getattr(errno, name) for name in _FAULT_NAMES if hasattr(errno, name))
"""Errors of the system that pass, or that somebody ends who need not touch the job: a full disk, a lost network."""


def classify_exit(code: int) -> ExitClass:
    """The class of an exit code.

    Args:
        code: as a shell shows it, 128 + the signal for a process that a signal killed, or as Python does, the negative
            signal.
    """
    killed = code < 0 or 128 < code <= 128 + signal.NSIG
    return ExitClass.AGAIN if killed else _KINDS.get(code, ExitClass.ACT)


def should_restart(code: int) -> bool:
    """Whether a supervisor starts the command again."""
    return classify_exit(code) == ExitClass.AGAIN


def stopping_codes() -> tuple[int, ...]:
    """The codes after which a supervisor must not start the command again, in their order."""
    return tuple(sorted(one.number for one in CODES if one.kind == ExitClass.ACT))


def find_machine_fault(error: BaseException) -> OSError | None:
    """The full disk or lost network behind an error; None if there is none.

    A `MemoryError` does not count: a job that does not fit fails again, and each attempt may spend ε.

    Looks through everything that the error was raised from, also where a message replaced it (`raise … from None`).
    """
    for one in _chain_of(error):
        if isinstance(one, OSError) and one.errno in _FAULTS:
            return one
    return None


def _chain_of(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    following: BaseException | None = error
    while following is not None and id(following) not in seen:
        seen.add(id(following))
        yield following
        following = following.__cause__ or following.__context__
