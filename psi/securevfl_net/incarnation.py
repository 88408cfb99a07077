"""The incarnation of a party: which start of its program this is, and 128 random bits that no other start has."""

from __future__ import annotations

import secrets
from dataclasses import dataclass

from securevfl_net.errors import InputError

__all__ = ["NONCE", "Incarnation"]

NONCE = 16
"""Random bytes of an incarnation."""
_MOST = 1 << 63


@dataclass(frozen=True, slots=True, order=True)
class Incarnation:
    """One start of a party's program.

    A peer that comes back with the same incarnation still has what it was sent; with another one it lost all that was
    under way. The count is stored before any peer sees it, so that it only grows; the random bits distinguish a folder
    restored from a back-up from the original.

    Attributes:
        count: starts so far, from 1.
        nonce: 16 random bytes.

    Raises:
        InputError: a count or a nonce that no start has.
    """

    count: int
    nonce: bytes

    def __post_init__(self) -> None:
        if not 1 <= self.count < _MOST or len(self.nonce) != NONCE:
            raise InputError(
                f"an incarnation counts from 1 and has {NONCE} random bytes; got {self.count} and {len(self.nonce)} "
                "bytes: take the one that the state folder stored"
            )

    @classmethod
    def start_after(cls, count: int) -> Incarnation:
        """The start that follows `count` earlier ones; its nonce is fresh."""
        return cls(count + 1, secrets.token_bytes(NONCE))

    @classmethod
    def from_text(cls, text: str) -> Incarnation:
        """From its text form.

        Raises:
            InputError: not of this form.
        """
        count, _, nonce = text.partition("-")
        try:
            found = cls(int(count), bytes.fromhex(nonce))
        except ValueError:
            raise InputError(
                f"{text!r} is not an incarnation: expected a count and 32 digits, as in '12-00ff…'"
            ) from None
        if str(found) != text:
            raise InputError(f"{text!r} is not an incarnation: it should be written {found}")
        return found

    def __str__(self) -> str:
        return f"{self.count}-{self.nonce.hex()}"
