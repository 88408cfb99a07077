"""What a job's statistical hiding adds up to, counted as messages are sent and told in the report."""

from __future__ import annotations

import math

__all__ = ["HidingCount"]


class HidingCount:
    """One party's count, as one note of its site that grows.

    Flooded noise, drowned exponents, masks and shares of integers each hide a number up to a statistical distance of
    2^-sigma. By the union bound, a job's messages together are within the sum of these distances of messages that do
    not depend on what they hide.

    Args:
        notes: the notes of this party's site.
        party: its name.
        scheme: the scheme's name.
        sigma: bits, of each number.
    """

    def __init__(self, notes: list[str], party: str, scheme: str, sigma: int) -> None:
        self._notes, self._words, self._sigma = notes, f"of what {party!r} answered under {scheme},", sigma
        self._place: int | None = None
        self.numbers = 0

    @property
    def distance_bits(self) -> float:
        """−log₂ of the distance of all messages together; infinite before the first."""
        return self._sigma - math.log2(self.numbers) if self.numbers else math.inf

    def add(self, numbers: int) -> None:
        """Count so many more numbers."""
        if not numbers:
            return
        self.numbers += numbers
        text = (
            f"{self._words} {self.numbers:,} numbers are hidden to 2^-{self._sigma} each, and so to "
            f"2^-{self.distance_bits:.1f} all together"
        )
        if self._place is None:
            self._place = len(self._notes)
            self._notes.append(text)
        else:
            self._notes[self._place] = text
