"""Declarations of all alignment messages, and how each kind of `securevfl_psi` frame crosses a link."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from securevfl_psi.wire import Kind as FrameKind

from securevfl.align.options import Align
from securevfl.transport import NO_GUARD, Exchange, Guard, Kind
from securevfl.transport.exchange import ACTIVE, PASSIVE, PartyRole

__all__ = ["CROSSINGS", "EXCHANGES", "Crossing", "alignment_exchanges", "declarable_exchanges", "find_crossing"]

_BLINDED = Guard("blinded", 128, "Curve25519")
_TABLE = Guard("blinded", 128, "oblivious key-value store")
_TRANSFERRED = Guard("blinded", 128, "oblivious transfer")
_PROVED = Guard("masked", 128, "2HashDH")


@dataclass(frozen=True)
class Crossing:
    """A frame as a message.

    Attributes:
        step: the message's name.
        kind: what sort of information it is.
        name: of the one array with the frame's payload.
        width: bytes of each of its rows; 0 for a single row of any length.
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

_BY_TRANSFER: Mapping[FrameKind, Crossing] = {
    FrameKind.TRANSFERS: Crossing("psi/transfers", Kind.BLINDED_SET, "points", 32, _BLINDED),
    FrameKind.SEED: Crossing("psi/challenge", Kind.CONTROL, "seed"),
    FrameKind.ROWS: Crossing("psi/encoded", Kind.BLINDED_SET, "rows", 64, _TRANSFERRED),
    FrameKind.SUMS: Crossing("psi/sums", Kind.BLINDED_SET, "sums", 0, _TRANSFERRED),
    FrameKind.TOKENS: Crossing("psi/outputs", Kind.BLINDED_SET, "tokens", 0, _TRANSFERRED),
}
_BY_FILTER: Mapping[FrameKind, Crossing] = {
    FrameKind.OFFER: Crossing("psi/offer", Kind.CONTROL, "offer"),
    FrameKind.WANTED: Crossing("psi/wanted", Kind.CONTROL, "wanted"),
    FrameKind.FILTER: Crossing("psi/filter", Kind.BLINDED_SET, "filter", 0, _BLINDED),
}
_HASHED: Mapping[FrameKind, Crossing] = {
    FrameKind.TOKENS: Crossing("psi/hashes", Kind.ENCODED_SET, "digests", 16),
}
_OF_PROTOCOL = {"ot": _BY_TRANSFER, "unbalanced": _BY_FILTER, "unsafe_salted_hash": _HASHED}


def find_crossing(frame: FrameKind, protocol: str = "") -> Crossing:
    """How a kind of frame crosses between two parties that run a protocol.

    Args:
        frame: its kind.
        protocol: see `securevfl_psi.Joint.protocol_with`.

    Raises:
        KeyError: a kind that no joint run sends.
    """
    return _OF_PROTOCOL.get(protocol, {}).get(frame) or CROSSINGS[frame]


_BOTH: tuple[tuple[PartyRole, PartyRole], ...] = ((ACTIVE, PASSIVE), (PASSIVE, ACTIVE))
_ALL: tuple[tuple[PartyRole, PartyRole], ...] = (*_BOTH, (PASSIVE, PASSIVE))
_HELD = "which of its own rows all parties hold; with a label book also which of them are in the book"

# Where one passive party's set is the smaller one, it asks, and the frames of a client come from it.
_Declared = tuple[tuple[FrameKind, tuple[tuple[PartyRole, PartyRole], ...], str, str], ...]
_DECLARED: _Declared = (
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

_DECLARED_TRANSFER: _Declared = (
    (FrameKind.TRANSFERS, _BOTH, "base transfers", ""),
    (FrameKind.SEED, _BOTH, "seed of an encoded set, and of the sums that check it", ""),
    (FrameKind.ROWS, _BOTH, "identifiers, encoded", ""),
    (FrameKind.SUMS, _BOTH, "sums that check an encoded set", ""),
    (FrameKind.TOKENS, _BOTH, "tokens of its identifiers", "which of its own rows the sender has"),
)
_DECLARED_FILTER: _Declared = (
    (FrameKind.OFFER, _BOTH, "which filter of its tokens it offers", ""),
    (FrameKind.WANTED, _BOTH, "whether the filter has to come", ""),
    (FrameKind.FILTER, _BOTH, "filter of tokens of its identifiers", "which of its own rows the sender has"),
)
_DECLARED_KEPT: _Declared = (
    (FrameKind.OFFER, _BOTH, "which filter of its tokens it offers", "whether its table changed since an earlier job"),
    (FrameKind.WANTED, _BOTH, "whether the filter has to come", "whether it kept the filter of an earlier job"),
    *_DECLARED_FILTER[2:],
)
_DECLARED_HASHED: _Declared = (
    (
        FrameKind.TOKENS,
        ((PASSIVE, ACTIVE),),
        "salted hashes of its identifiers",
        "its whole set, by hashing all identifiers that there could be",
    ),
)
_TWO_PARTY = frozenset({FrameKind.POINTS, FrameKind.ANSWERS, FrameKind.TOKENS})


def _build_exchanges(declared: _Declared, protocol: str = "") -> tuple[Exchange, ...]:
    hashed = protocol == "unsafe_salted_hash"
    return tuple(
        Exchange(
            find_crossing(frame, protocol).step,
            find_crossing(frame, protocol).kind,
            sender,
            receiver,
            words,
            reveals,
            "leak" if hashed else "ok",
        )
        for frame, ways, words, reveals in declared
        for sender, receiver in ways
    )


EXCHANGES: tuple[Exchange, ...] = _build_exchanges(_DECLARED)
"""Messages of an alignment by `dh`, among any parties."""


def alignment_exchanges(passive: int, *, book: bool = False, align: Align | None = None) -> tuple[Exchange, ...]:
    """Messages of an alignment with `passive` passive parties.

    Args:
        passive: how many passive parties there are.
        book: whether the active party has a label book, so that parties align two at a time.
        align: how they align.
    """
    how = Align() if align is None else align
    if not passive:
        return ()
    found = EXCHANGES
    if how.runs_in_pairs(passive, book=book):  # shares of zero are for three or more parties at once
        found = tuple(exchange for exchange in found if exchange.kind is not Kind.PUBLIC_KEY)
    return (*_drop_unneeded(found, how), *_added_exchanges(how))


def _added_exchanges(align: Align) -> tuple[Exchange, ...]:
    """Additional messages of protocols other than `dh`."""
    if align.protocol in ("ot", "auto"):
        return _build_exchanges(_DECLARED_TRANSFER, "ot")
    if align.protocol == "unbalanced":
        return _build_exchanges(_DECLARED_KEPT if align.keep_days else _DECLARED_FILTER, "unbalanced")
    return _build_exchanges(_DECLARED_HASHED, "unsafe_salted_hash") if align.protocol == "unsafe_salted_hash" else ()


def _drop_unneeded(found: tuple[Exchange, ...], align: Align) -> tuple[Exchange, ...]:
    """Without what only `dh` sends, where it cannot run."""
    if align.protocol in ("dh", "auto"):
        return found
    dropped = {FrameKind.TOKENS} if align.protocol == "unbalanced" else _TWO_PARTY
    only = {CROSSINGS[frame].step for frame in (*dropped, FrameKind.SEED, FrameKind.SLOTS, FrameKind.KEY)}
    return tuple(exchange for exchange in found if exchange.step not in only)


def declarable_exchanges(align: Align) -> tuple[Exchange, ...]:
    """All that an alignment may send, whatever parties there are."""
    return (*_drop_unneeded(EXCHANGES, align), *_added_exchanges(align))
