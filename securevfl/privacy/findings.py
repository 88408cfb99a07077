"""Findings: what one party can learn from the messages it receives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from securevfl.transport import Sight

__all__ = ["OTHER_OWNERS", "Finding"]

OTHER_OWNERS = "the other label owners"
"""Reader of a finding about one label owner when the job does not name the other label owners."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that one party can learn.

    Attributes:
        party: who learns; `OTHER_OWNERS` for all label owners but the one that it is about.
        about: whose data it is.
        learns: what, in words.
        severity: ``"ok"`` by design and harmless; ``"note"`` a known, limited leak; ``"leak"`` readable data.
        sights: the same finding in parts; empty: the severity applies to all data of `about`.
    """

    party: str
    about: str
    learns: str
    severity: Literal["ok", "note", "leak"]
    sights: tuple[Sight, ...] = ()
