"""What one party can learn from what it receives, said plainly."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from securevfl.transport import Sight

__all__ = ["OTHER_OWNERS", "Finding"]

OTHER_OWNERS = "the other label owners"
"""Who learns, where a finding is about one label owner and the job does not say who the others are."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that one party can learn.

    Attributes:
        party: who learns; `OTHER_OWNERS` for all label owners but the one that it is about.
        about: whose data it is.
        learns: what, in words.
        severity: ``"ok"`` by design and harmless; ``"note"`` a known, limited leak; ``"leak"`` readable data.
        sights: the same, taken apart; empty: the severity holds for everything that `about` has.
    """

    party: str
    about: str
    learns: str
    severity: Literal["ok", "note", "leak"]
    sights: tuple[Sight, ...] = ()
