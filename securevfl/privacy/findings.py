"""What one party can learn from what it receives, said plainly."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["Finding"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that one party can learn.

    Attributes:
        party: who learns.
        about: whose data it is.
        learns: what, in words.
        severity: ``"ok"`` by design and harmless; ``"note"`` a known, limited leak; ``"leak"`` readable data.
    """

    party: str
    about: str
    learns: str
    severity: Literal["ok", "note", "leak"]
