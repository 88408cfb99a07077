"""The exception tree of the toolkit, drawn once.

Every message gives three things: the value that was found, the bound that it broke, and the cure.

```
SecureVFLError                exit 1
├── InputError                exit 2   what the user gave: tables, job files, names, options
│   └── UnknownNameError      exit 2   an unknown algorithm, protection, data set, key …
├── PolicyError               exit 3   a party's own policy forbids it; nothing was sent
│   ├── FewCommonRows         exit 3   fewer common rows than a party's policy goes on with
│   ├── Expired               exit 3   an agreement's time or its attempts are used up
│   └── ProtectionInactive    exit 3   a protection was asked for and did not act
├── AlignmentError            exit 4   the parties do not agree on the common rows
│   └── NoCommonRows          exit 4   no row is held by all parties
├── ProtocolError             exit 5   a peer sent something that the protocol does not allow
│   ├── PeerEnded             exit 5   a peer ended before the run did
│   │   └── Parked            exit 75  a peer is gone; starting again goes on
│   ├── PeerRefused           exit 5   a connection or an agreement was refused, with the named reason
│   └── WireError             exit 5   bytes that are not a message of this version
├── PartyFailed               exit 6   a party's program ended with an error; `__cause__` is its error
├── RangeError                exit 7   a value left the fixed-point range that the job computed
└── AuditError                exit 8   a ledger that does not verify
```
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any, ClassVar

__all__ = [
    "AlignmentError",
    "AuditError",
    "Expired",
    "FewCommonRows",
    "InputError",
    "NoCommonRows",
    "Parked",
    "PartyFailed",
    "PeerEnded",
    "PeerRefused",
    "PolicyError",
    "ProtectionInactive",
    "ProtocolError",
    "RangeError",
    "SecureVFLError",
    "UnknownNameError",
    "WireError",
]


class SecureVFLError(Exception):
    """Base of all errors that the toolkit raises on purpose.

    Attributes:
        exit_code: the command line's.
        ledgers: the ledgers of the run that it ended, of all parties, as far as they go: what left before the failure.
    """

    exit_code: ClassVar[int] = 1
    ledgers: tuple[Any, ...] = ()

    def __reduce__(self) -> tuple[Any, ...]:
        """To and from another process, whatever the arguments of the class are; ledgers stay where they are."""
        state = {name: value for name, value in vars(self).items() if name != "ledgers"}
        return _again, (type(self), self.args, state)


def _again(kind: type[SecureVFLError], args: tuple[Any, ...], state: dict[str, Any]) -> SecureVFLError:
    error = kind.__new__(kind, *args)
    vars(error).update(state)
    return error


class InputError(SecureVFLError, ValueError):
    """The user's tables, job file, names or options cannot be used as they are."""

    exit_code = 2


class UnknownNameError(InputError):
    """A name that no registry has; suggests the nearest one.

    Args:
        what: what sort of name it is, for example ``"protection"``.
        name: the name as given.
        known: the names that exist.
    """

    def __init__(self, what: str, name: object, known: Iterable[str]) -> None:
        names = sorted(known)
        near = difflib.get_close_matches(str(name).lower(), [n.lower() for n in names], n=1, cutoff=0.5)
        hint = next((f"; did you mean {n!r}?" for n in names if near and n.lower() == near[0]), "")
        super().__init__(f"unknown {what} {name!r}{hint} Known: {', '.join(names)}.".replace("' Known", "'. Known"))


class PolicyError(SecureVFLError):
    """The party's own policy forbids what is about to happen; nothing was sent."""

    exit_code = 3


class FewCommonRows(PolicyError):
    """Fewer common rows than a party's policy goes on with."""


class Expired(PolicyError):
    """The agreement's last day, its seconds or its attempts are used up: agree anew."""


class ProtectionInactive(PolicyError):
    """A protection was asked for and did not act."""


class AlignmentError(SecureVFLError):
    """The parties have no common rows, too few, or do not agree which they are."""

    exit_code = 4


class NoCommonRows(AlignmentError):
    """No row is held by all parties."""


class ProtocolError(SecureVFLError):
    """A peer sent a message that the protocol does not allow at this point."""

    exit_code = 5


class PeerEnded(ProtocolError):
    """A peer closed its links before the run was over; its own error says why."""


class Parked(PeerEnded):
    """An attempt stopped because a peer is gone: the party gathers again with all, and goes on from what they kept.

    The exit code is ``EX_TEMPFAIL``: of a process that gave up waiting, and goes on when it is started again.
    """

    exit_code = 75


class PeerRefused(ProtocolError):
    """A connection or an agreement was refused, by this party or by its peer.

    Args:
        code: the reason's name, for example ``"unknown-ca"``.
        words: what was found, what was expected and the cure.
    """

    def __init__(self, code: str, words: str) -> None:
        self.code = code
        super().__init__(f"{words} ({code})")


class WireError(ProtocolError):
    """Bytes that are not a message of this version, or break a limit."""


class PartyFailed(SecureVFLError):
    """A party's program ended with an error; the run ends too. `__cause__` holds that error."""

    exit_code = 6

    def __init__(self, party: str, cause: BaseException) -> None:
        self.party = party
        super().__init__(f"party {party!r} failed: {type(cause).__name__}: {cause}")


class RangeError(SecureVFLError, ValueError):
    """A value left the fixed-point range that the job computed; going on would wrap."""

    exit_code = 7


class AuditError(SecureVFLError):
    """A ledger that does not verify: a line is missing, changed or out of order.

    Attributes:
        flaws: all that was found, each with its file, line and party.
    """

    exit_code = 8

    def __init__(self, text: str, *, flaws: Iterable[Any] = ()) -> None:
        self.flaws = tuple(flaws)
        super().__init__(text)
