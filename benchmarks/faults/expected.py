"""The faults of the matrix, and what must come of each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from securevfl_net.exit_codes import should_restart

__all__ = ["FAULTS", "HOLD", "PHASES", "REVOKED", "SILENCE", "WAIT", "Fault", "starts_again"]

PHASES = ("consent", "alignment", "training", "checkpoint", "finish", "prediction", "serving")
HOLD = 0.7
"""Seconds that a process is stopped, a link delayed or closed, or a disk full."""
SILENCE = 2.0
"""Seconds of `securevfl party --silence` for a program that sleeps longer than its peers wait."""

REVOKED = 3.0
"""Seconds in which all gates read the list of revoked certificates again: here every half second, not each minute."""

WAIT = 6.0
"""Seconds of `securevfl party --wait` where somebody is refused, and so awaited in vain."""

STAY = 5.0
"""Seconds of `securevfl party --stay` where a refused peer cannot confirm that it has its result."""

GONE = 10.0
"""Seconds after which who needs nobody ends, where all peers are gone; a half minute outside of the matrix."""


@dataclass(frozen=True, kw_only=True)
class Fault:
    """What happens to a party or to one of its links.

    Attributes:
        goes_on: whether everybody must reach its result; otherwise somebody refuses.
        harms: ``"party"`` or ``"link"``: whom messages may name, the party or both ends.
        words: one of them must be in the last message of the party that is refused.
        may_end: phases in which who is refused may have its result already, and needs nobody.
        then_goes_on: phases in which who was refused by name may go on once it is started again.
        clock: seconds by which its clock is off.
        promise: what the documentation promises.
    """

    goes_on: bool = True
    harms: str = "party"
    words: tuple[str, ...] = ()
    may_end: tuple[str, ...] = ()
    then_goes_on: tuple[str, ...] = ()
    clock: float = 0.0
    promise: str


FAULTS: Mapping[str, Fault] = {
    "program killed": Fault(promise="The party resumes from the last checkpoint that all have."),
    "gate killed": Fault(promise="The program ends, is started again and resumes."),
    "both killed": Fault(promise="As for the program."),
    "program stopped": Fault(promise="The peers wait."),
    "gate stopped": Fault(promise="The peers wait."),
    "both stopped": Fault(promise="The peers wait."),
    "link cut": Fault(harms="link", promise="The session continues over the next connection; no message is lost."),
    "link torn": Fault(harms="link", promise="As for a cut; the message is sent again from where it was torn."),
    "link delayed": Fault(harms="link", promise="The parties wait."),
    "link half closed": Fault(harms="link", promise="As for a cut."),
    "disk full": Fault(promise="The party ends before anything leaves that is not written down, and resumes."),
    "clock ahead": Fault(clock=3600.0, promise="Nothing happens; times in the ledger jump."),
    "clock behind": Fault(clock=-3600.0, promise="Nothing happens; times in the ledger stand still for an hour."),
    "folder restored": Fault(
        goes_on=False,
        words=("stale-incarnation", "twin-incarnation", "two processes", "(restored)", "restored from a back-up"),
        then_goes_on=("prediction", "serving"),
        promise="The older folder is refused by name, unless peers have no newer head. One whose number of starts is "
        "the newest may predict and serve: what these count is beside it.",
    ),
    "folder copied": Fault(
        words=("stale-incarnation", "twin-incarnation", "copied", "copy"),
        promise="The job goes on for one of the two; the other one is refused by name.",
    ),
    "certificate rotated": Fault(promise="Peers take the endorsed certificate; the run goes on."),
    "certificate revoked": Fault(
        goes_on=False,
        words=("revoked",),
        may_end=("finish", "prediction"),
        promise="The party is refused by name within the minute in which lists are read again; others wait for it.",
    ),
    "certificate deleted": Fault(promise="A process that runs has loaded it, and goes on."),
}


def starts_again(code: int) -> bool:
    """Whether a supervisor starts a party again after this exit code; a negative one is the signal that killed it."""
    return should_restart(code)
