"""Every message of the alignment, declared; and how each kind of frame of `securevfl_psi` crosses a link."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from securevfl_psi.wire import Kind as FrameKind

from securevfl.transport import NO_GUARD, Exchange, Guard, Kind
from securevfl.transport.exchange import ACTIVE, PASSIVE, PartyRole

__all__ = ["CROSSINGS", "EXCHANGES", "Crossing", "exchanges"]

_BLINDED = Guard("blinded", 128, "Curve25519")
_TABLE = Guard("blinded", 128, "oblivious key-value store")
_PROVED = Guard("masked", 128, "2HashDH")


@dataclass(frozen=True)
class Crossing:
    """A frame as a message.

    Attributes:
        step: the message's name.
        kind: what sort of information it is.
        name: of the one array that holds the frame's payload.
        width: bytes of each of its rows; 0 where it is one row of any length.
        guard: how the content is protected.
    """

    step: str
    kind: Kind
    name: str
    width: int = 0
    guard: Guard = NO_GUARD


CROSSINGS: Mapping[FrameKind, Crossing] = {
    FrameKind.HELLO: Crossing("psi/hello", Kind.CONTROL, "greeting"),
    FrameKind.KEY: Crossing("psi/seed", Kind.PUBLIC_KEY, "key"),
    FrameKind.POINTS: Crossing("psi/blinded", Kind.BLINDED_SET, "points", 32, _BLINDED),
    FrameKind.ANSWERS: Crossing("psi/doubled", Kind.BLINDED_SET, "points", 32, _BLINDED),
    FrameKind.TOKENS: Crossing("psi/tokens", Kind.BLINDED_SET, "tokens", 16, _BLINDED),
    FrameKind.SEED: Crossing("psi/table", Kind.BLINDED_SET, "seed", 0, _TABLE),
    FrameKind.SLOTS: Crossing("psi/slots", Kind.BLINDED_SET, "slots", 8, _TABLE),
    FrameKind.COUNT: Crossing("psi/common", Kind.INTERSECTION, "counts"),
    FrameKind.PROOFS: Crossing("psi/rows", Kind.INTERSECTION, "tokens", 16),
    FrameKind.RECEIPT: Crossing("psi/receipt", Kind.STATISTIC, "receipt", 0, _PROVED),
    FrameKind.SHARE: Crossing("psi/compare", Kind.STATISTIC, "share", 0, _BLINDED),
    FrameKind.CONFIRMATION: Crossing("psi/confirm", Kind.STATISTIC, "confirmation", 0, _PROVED),
}

_BOTH: tuple[tuple[PartyRole, PartyRole], ...] = ((ACTIVE, PASSIVE), (PASSIVE, ACTIVE))
_ALL: tuple[tuple[PartyRole, PartyRole], ...] = (*_BOTH, (PASSIVE, PASSIVE))
_HELD = "which of its own rows all parties hold; with a label book also which of them are in the book"

# Where one passive party's set is the smaller one, it asks, and the frames of a client come from it.
_DECLARED: tuple[tuple[FrameKind, tuple[tuple[PartyRole, PartyRole], ...], str, str], ...] = (
    (FrameKind.HELLO, _ALL, "session, number of rows", ""),
    (FrameKind.KEY, _ALL, "public key for shares of zero", ""),
    (FrameKind.POINTS, _BOTH, "identifiers, blinded", ""),
    (FrameKind.ANSWERS, _BOTH, "identifiers, blinded twice", ""),
    (FrameKind.TOKENS, _BOTH, "tokens of its identifiers", "which of its own rows the sender has"),
    (FrameKind.SEED, ((PASSIVE, ACTIVE),), "seed of a table of masked shares of zero", ""),
    (
        FrameKind.SLOTS,
        ((PASSIVE, ACTIVE),),
        "shares of zero, masked",
        "which of its rows the sender has, only where all others have them too",
    ),
    (FrameKind.COUNT, _BOTH, "how many rows are common", "how many rows are common"),
    (FrameKind.PROOFS, _BOTH, "proofs of the common rows", _HELD),
    (FrameKind.RECEIPT, _BOTH, "receipt for the common rows", "whether both have the same common rows"),
    (FrameKind.SHARE, _ALL, "share of a comparison of the common rows", ""),
    (FrameKind.CONFIRMATION, _ALL, "confirmation of the common rows", "whether both have the same common rows"),
)

EXCHANGES: tuple[Exchange, ...] = tuple(
    Exchange(CROSSINGS[frame].step, CROSSINGS[frame].kind, sender, receiver, words, reveals)
    for frame, ways, words, reveals in _DECLARED
    for sender, receiver in ways
)


def exchanges(passive: int, *, book: bool = False) -> tuple[Exchange, ...]:
    """What an alignment with so many passive parties may send.

    Args:
        passive: how many passive parties there are.
        book: whether the active party has a label book, so that parties align two at a time.
    """
    if not passive:
        return ()
    shares = passive > 1 and not book  # shares of zero are for three or more parties at once
    return tuple(exchange for exchange in EXCHANGES if shares or exchange.kind is not Kind.PUBLIC_KEY)
