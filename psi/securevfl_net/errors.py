"""The toolkit's exceptions and their exit codes, which are those of `securevfl_net.exit_codes`.

Every message states the value found, the bound it broke and the cure.

```
SecureVFLError                exit 1
├── InputError                exit 2   what the user gave: tables, job files, names, options
│   └── UnknownNameError      exit 2   an unknown algorithm, protection, data set, key …
├── PolicyError               exit 3   a party's own policy forbids it; nothing was sent
│   ├── FewCommonRows         exit 3   fewer common rows than a party's policy requires
│   ├── RowsSpent             exit 3   a party answers nothing more about some rows
│   ├── Expired               exit 3   an agreement's time or attempts are used up
│   └── ProtectionInactive    exit 3   a requested protection had no effect
├── AlignmentError            exit 4   the parties do not agree on the common rows
│   └── NoCommonRows          exit 4   no row is common to all parties
├── ProtocolError             exit 5   a peer sent something that the protocol does not allow
│   ├── PeerEnded             exit 75  a peer ended before the run did
│   │   └── Parked            exit 75  a peer is gone; starting again resumes
│   ├── PeerSilent            exit 75  a peer showed no sign of life for too long
│   ├── PeerRefused           exit 3   a connection or an agreement was refused, with the named reason
│   └── WireError             exit 5   bytes that are not a message of this version
├── MachineFault              exit 75  a full disk or a killed gate: nobody's fault here
│   └── DiskFull              exit 75  starting again resumes, once there is room
├── PartyFailed               exit 6   a party's program ended with an error; `__cause__` is its error
├── RangeError                exit 7   a value left the fixed-point range that the job computed
└── AuditError                exit 8   a ledger that does not verify
```
"""

from __future__ import annotations

import difflib
import errno
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, ClassVar

from securevfl_net import exit_codes

__all__ = [
    "AlignmentError",
    "AuditError",
    "DiskFull",
    "Expired",
    "FewCommonRows",
    "InputError",
    "MachineFault",
    "NoCommonRows",
    "Parked",
    "PartyFailed",
    "PeerEnded",
    "PeerRefused",
    "PeerSilent",
    "PolicyError",
    "ProtectionInactive",
    "ProtocolError",
    "RangeError",
    "RowsSpent",
    "SecureVFLError",
    "UnknownNameError",
    "WireError",
    "exit_code_of",
    "fault_behind",
]


class SecureVFLError(Exception):
    """Base class of all errors that the toolkit raises deliberately.

    Attributes:
        exit_code: exit code of the command line.
        ledgers: the ledgers of all parties up to the failure, for the run that this error ended.
    """

    exit_code: ClassVar[int] = exit_codes.PROGRAM
    ledgers: tuple[Any, ...] = ()

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle for another process, whatever the constructor's arguments; the ledgers are left out."""
        state = {name: value for name, value in vars(self).items() if name != "ledgers"}
        return _rebuild_error, (type(self), self.args, state)


def _rebuild_error(kind: type[SecureVFLError], args: tuple[Any, ...], state: dict[str, Any]) -> SecureVFLError:
    error = kind.__new__(kind, *args)
    vars(error).update(state)
    return error


class InputError(SecureVFLError, ValueError):
    """The user's tables, job file, names or options are invalid."""

    exit_code = exit_codes.CONFIGURATION


class UnknownNameError(InputError):
    """An unknown name; suggests the nearest known one.

    Args:
        what: the kind of name, for example ``"protection"``.
        name: the name the user gave.
        known: the names that exist.
    """

    def __init__(self, what: str, name: object, known: Iterable[str]) -> None:
        names = sorted(known)
        near = difflib.get_close_matches(str(name).lower(), [n.lower() for n in names], n=1, cutoff=0.5)
        hint = next((f"; did you mean {n!r}?" for n in names if near and n.lower() == near[0]), "")
        super().__init__(f"unknown {what} {name!r}{hint} Known: {', '.join(names)}.".replace("' Known", "'. Known"))


class PolicyError(SecureVFLError):
    """The party's own policy forbids the next step; nothing was sent.

    Args:
        message: what it forbids, the bound and the cure.
        cause: a short name of the rule, for parties that may learn which one ended the job and nothing else.
    """

    exit_code = exit_codes.REFUSED

    def __init__(self, message: str = "", *, cause: str = "") -> None:
        super().__init__(message)
        self.cause = cause


class FewCommonRows(PolicyError):
    """Fewer common rows than a party's policy requires."""


class RowsSpent(PolicyError):
    """Parties answer nothing more about some rows: the asker has had as many numbers of each as it may, ever.

    Args:
        parties: party → about how many rows.
        spent: how many rows that are, each counted once.
        rows: how many rows there were.
    """

    def __init__(self, parties: Mapping[str, int], *, spent: int, rows: int) -> None:
        self.parties = dict(sorted(parties.items()))
        self.spent, self.rows = spent, rows
        who = " and ".join(f"{name!r} (about {count:,})" for name, count in self.parties.items())
        super().__init__(
            f"max_results: of {rows:,} rows, {spent:,} have had as many numbers as {who} may give of a row, ever; "
            f"nothing was asked: leave these {spent:,} rows out (--skip-spent), use answers that you hold, or ask "
            f"{' and '.join(map(repr, self.parties))} for a grant"
        )


class Expired(PolicyError):
    """The agreement's last day has passed, or its seconds or attempts are used up; make a new agreement."""


class ProtectionInactive(PolicyError):
    """A requested protection had no effect."""


class AlignmentError(SecureVFLError):
    """The parties have no or too few common rows, or disagree about them."""

    exit_code = exit_codes.ROWS


class NoCommonRows(AlignmentError):
    """No row is common to all parties."""


class ProtocolError(SecureVFLError):
    """A peer sent a message that the protocol does not allow at this point.

    Args:
        message: what was found and expected.
        party: who sent it; empty if the raising code does not know.
    """

    exit_code = exit_codes.EVIDENCE

    def __init__(self, message: str = "", *, party: str = "") -> None:
        super().__init__(message)
        self.party = party


class PeerEnded(ProtocolError):
    """A peer closed its links before the run was over; the peer's own error gives the reason."""

    exit_code = exit_codes.AGAIN


class PeerSilent(ProtocolError):
    """A peer showed no sign of life for too long: its program may be stopped or hang, or the link may be cut."""

    exit_code = exit_codes.AGAIN


class Parked(PeerEnded):
    """An attempt stopped because a peer is gone; the parties connect again and resume from their checkpoints."""


class PeerRefused(ProtocolError):
    """This party or its peer refused a connection or an agreement.

    Args:
        code: the reason's name, for example ``"unknown-ca"``.
        words: what was found, what was expected and the cure.
    """

    exit_code = exit_codes.REFUSED

    def __init__(self, code: str, words: str) -> None:
        self.code = code
        super().__init__(f"{words} ({code})")


class WireError(ProtocolError):
    """Bytes that are not a message of this version, or break a limit."""


class PartyFailed(SecureVFLError):
    """A party's program ended with an error, which ends the run. `__cause__` is that error."""

    exit_code = exit_codes.UNFORESEEN

    def __init__(self, party: str, cause: BaseException) -> None:
        self.party = party
        super().__init__(f"party {party!r} failed: {type(cause).__name__}: {cause}")


class MachineFault(SecureVFLError):
    """Something outside the job failed here: the disk is full, or the party's gate process was killed.

    Nothing is wrong with the job: starting again resumes it.
    """

    exit_code = exit_codes.AGAIN


class DiskFull(MachineFault, OSError):
    """A disk, or a quota, has no room for what must be written before the next step; that step was not taken.

    Args:
        number: errno of the system's error.
        reason: its text.
        path: the file.
    """

    _NUMBERS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})

    def __init__(self, number: int, reason: str, path: str) -> None:
        super().__init__(number, reason, path)

    def __str__(self) -> str:
        return (
            f"{self.filename} cannot be written: disk full ({self.strerror}). What depends on it was not sent: free "
            "space, then start again; the run resumes"
        )

    @classmethod
    def convert(cls, error: OSError, path: Path) -> OSError:
        """A `DiskFull` where `error` means that there is no room; otherwise `error` itself."""
        if isinstance(error, cls) or error.errno not in cls._NUMBERS:
            return error
        return cls(int(error.errno or 0), str(error.strerror), str(path))


class RangeError(SecureVFLError, ValueError):
    """A value left the fixed-point range that the job computed; continuing would wrap around."""

    exit_code = exit_codes.JOB


class AuditError(SecureVFLError):
    """A ledger that does not verify: a line is missing, changed or out of order.

    Attributes:
        flaws: all flaws found, each with file, line and party.
    """

    exit_code = exit_codes.LEDGER

    def __init__(self, text: str, *, flaws: Iterable[Any] = ()) -> None:
        self.flaws = tuple(flaws)
        super().__init__(text)


_MAY_HIDE_FAULTS = (exit_codes.CONFIGURATION, exit_codes.UNFORESEEN, exit_codes.PROGRAM)
"""Codes of errors that a full disk or a lost network may cause. A refusal or evidence stays what it is."""


def fault_behind(error: BaseException) -> OSError | None:
    """The fault of the machine that caused an error, so that starting again helps; None if there is none."""
    if isinstance(error, SecureVFLError) and error.exit_code not in _MAY_HIDE_FAULTS:
        return None
    return exit_codes.find_machine_fault(error)


def exit_code_of(error: BaseException) -> int:
    """The exit code of the command line after an error."""
    if isinstance(error, KeyboardInterrupt):
        return exit_codes.INTERRUPTED
    if fault_behind(error) is not None:
        return exit_codes.AGAIN
    if isinstance(error, SecureVFLError):
        return error.exit_code
    return exit_codes.CONFIGURATION if isinstance(error, OSError) else exit_codes.PROGRAM
