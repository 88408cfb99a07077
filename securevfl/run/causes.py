"""What peers learn of the error that ended a job: its kind, and which party is at fault if it broke the protocol.

The message stays at the party because it may contain values of its data.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from securevfl.errors import (
    AlignmentError,
    Expired,
    InputError,
    PeerEnded,
    PeerRefused,
    PeerSilent,
    PolicyError,
    ProtocolError,
    RangeError,
    SecureVFLError,
)
from securevfl.party.attempts import Restored

__all__ = ["explain_abort", "name_cause"]


@dataclass(frozen=True)
class _Cause:
    """One kind of error.

    Attributes:
        kind: the errors that it stands for.
        words: of the peers' own error; `{who}` is the party at fault.
        make: makes that error; `kind` unless given.
    """

    kind: type[SecureVFLError]
    words: str
    make: Callable[[str], SecureVFLError] | None = None


_OTHERS = ("targets", "useless")
"""Causes that only `PolicyError.cause` names."""
_CAUSES = {
    "aligned": _Cause(AlignmentError, "the parties have no common rows, or do not agree which they are"),
    "expired": _Cause(Expired, "a bound of the agreement is reached"),
    "policy": _Cause(PolicyError, "its policy forbids continuing"),
    "restored": _Cause(
        Restored, "its state folder is older than what its peers saw of it: it was restored from a back-up"
    ),
    "refused": _Cause(
        PeerRefused,
        "it refused {who}, or was refused by it",
        lambda words: PeerRefused("refused", words),
    ),
    "silent": _Cause(
        PeerSilent, "it had no sign of life from {who} for too long; that party may be stopped, or the link cut"
    ),
    "ended": _Cause(PeerEnded, "{who} ended before the job did"),
    "protocol": _Cause(ProtocolError, "it reports that {who} sent what the protocol does not allow"),
    "range": _Cause(RangeError, "training diverged, or a value or a weight left the fixed-point range"),
    "targets": _Cause(PolicyError, "the computing parties checked the targets that were dealt, and refuse them"),
    "useless": _Cause(
        PolicyError,
        "the model does not predict better with the passive parties' columns than without, so it answers nothing",
    ),
    "input": _Cause(InputError, "it cannot use its table, its files or an option, and must correct them", PeerEnded),
    "failed": _Cause(SecureVFLError, "its program failed", PeerEnded),
}


def name_cause(error: BaseException, names: Iterable[str]) -> str:
    """The reason that peers receive: a name of this module's table, and the party at fault after a colon if the error
    names one.

    Args:
        error: what ended the job here.
        names: of all parties.
    """
    if isinstance(error, PolicyError) and error.cause in _OTHERS:
        return error.cause
    name = next((n for n, one in _CAUSES.items() if n not in _OTHERS and isinstance(error, one.kind)), "failed")
    party = _find_party(error, names) if isinstance(error, ProtocolError) else ""
    return f"{name}:{party}" if party else name


def _find_party(error: ProtocolError, names: Iterable[str]) -> str:
    """The party that the error is about: as recorded, or as its message begins."""
    every = sorted(names)
    if error.party:
        return error.party if error.party in every else ""
    return next((name for name in every if str(error).startswith(repr(name))), "")


def explain_abort(peer: str, reason: str, me: str, names: Iterable[str]) -> SecureVFLError:
    """This party's own error after a peer ended the job for all.

    Args:
        peer: who ended it, which need not be who is at fault.
        reason: as `name_cause` made it, written by somebody else.
        me: this party.
        names: of all parties.
    """
    name, _, party = reason.partition(":")
    cause = _CAUSES.get(name, _CAUSES["failed"])
    at_fault = party if party in set(names) else ""
    who = {"": "a peer", me: "this party", peer: "it"}.get(at_fault, repr(at_fault))
    words = cause.words.format(who=who)
    make = cause.make or cause.kind
    error = make(f"{peer!r} ended the job: {words}; see its log for the cause")
    if isinstance(error, ProtocolError):
        error.party = at_fault
    return error
