"""Private set intersection of two parties by Diffie–Hellman on Curve25519, as state machines over arrays of bytes.

Meadows 1986; Huberman, Franklin and Hogg 1999. Each party blinds ``H(id)`` with a secret scalar; blinding commutes,
so doubly blinded identifiers of both parties can be compared. The *receiver* learns which of its rows the sender
holds; the *sender* learns what the receiver tells it. Both learn the size of the other's set.

Receiver                              Sender
                    ← blinded()       b·H(y), shuffled
a·H(x), shuffled      blinded() →
                    ← double(…)       tokens of b·a·H(x), in the order they came
intersect(…)          positions →     rows(positions)

Semi-honest security in the random oracle model under the (one-more gap) Diffie–Hellman assumption on Curve25519, about
126 bits. Whoever can enumerate identifiers can run the protocol on them: it hides what is not in the intersection only
from parties that use their own set.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

from securevfl_psi.errors import IdentifierError, MalformedError, PSIError, SetSizeError
from securevfl_psi.hash_to_curve import P, hash_many_to_u
from securevfl_psi.identifiers import IdRules, encode, normalise

__all__ = ["TOKEN_BYTES", "Matches", "Receiver", "Sender", "Session", "intersect_in_process"]

TOKEN_BYTES = 16
"""Length of a doubly blinded identifier's digest: two of 2^40 collide with probability 2^-48."""
_PROTOCOL = b"securevfl-psi-dh-"
_DEFAULT_MAX = 1 << 24


@dataclass(frozen=True, kw_only=True)
class Session:
    """What both parties agree on before they begin; every hash is bound to it, so tokens of two sessions cannot be
    joined.

    Attributes:
        names: receiver and sender.
        nonce: fresh random bytes, at least 16.
        rules_tag: how identifiers are normalised, `IdRules.tag`.
        version: of the protocol, up to 16 letters and digits.

    Raises:
        PSIError: a nonce that is too short or not bytes, or another form of version.
    """

    names: tuple[str, str]
    nonce: bytes
    rules_tag: str
    version: str = "v1"

    def __post_init__(self) -> None:
        if not isinstance(self.nonce, bytes) or len(self.nonce) < 16:
            raise PSIError(
                f"a session nonce of {len(self.nonce)} {type(self.nonce).__name__} elements; at least 16 random bytes "
                "are needed: secrets.token_bytes(16)"
            )
        if not (self.version.isascii() and self.version.isalnum() and len(self.version) <= 16):
            raise PSIError(f"protocol version {self.version!r}; 1 to 16 ASCII letters and digits are possible")

    @property
    def dst(self) -> bytes:
        """Domain separation tag: version, and a digest of names, nonce and rules."""
        parts = [self.names[0].encode(), self.names[1].encode(), self.nonce, self.rules_tag.encode()]
        framed = b"".join(len(part).to_bytes(4, "big") + part for part in parts)
        return _PROTOCOL + self.version.encode() + b"-" + hashlib.sha256(framed).digest()


@dataclass(frozen=True)
class Matches:
    """What the receiver learns, one entry for each common identifier, by the receiver's rows.

    Attributes:
        receiver_rows: the receiver's own row numbers, ascending, (n,) int64.
        sender_positions: where the same identifiers stand in the sender's blinded set, (n,) int64.
    """

    receiver_rows: np.ndarray
    sender_positions: np.ndarray


def _permutation(count: int) -> np.ndarray:
    """A uniformly random order from the operating system's randomness."""
    order = np.arange(count, dtype=np.int64)
    secrets.SystemRandom().shuffle(order)  # type: ignore[arg-type]
    return order


def _exchange(key: X25519PrivateKey, points: Sequence[bytes], what: str) -> list[bytes]:
    """Multiples of the points; refuses those of small order.

    `X25519PrivateKey.exchange` raises on an all-zero result, as RFC 7748, section 6.1, allows.
    """
    try:
        return [key.exchange(X25519PublicKey.from_public_bytes(point)) for point in points]
    except ValueError:
        raise MalformedError(f"{what} holds a point of small order; the peer does not follow the protocol") from None


def _checked(array: np.ndarray, count: int | None, max_set_size: int, what: str) -> list[bytes]:
    """The points of a received blinded set.

    Raises:
        SetSizeError: more than allowed, or not as many as announced.
        MalformedError: another type or shape, a number that is no canonical coordinate, or the same point twice.
    """
    _require_bytes(array, 32, what)
    if len(array) > max_set_size:
        raise SetSizeError(f"{what} holds {len(array)} points; at most {max_set_size} are accepted: raise max_set_size")
    if count is not None and len(array) != count:
        raise SetSizeError(f"{what} holds {len(array)} points; {count} were announced")
    raw = np.ascontiguousarray(array).tobytes()
    points = [raw[i : i + 32] for i in range(0, len(raw), 32)]
    for i in np.flatnonzero(array[:, 31] >= 0x7F).tolist():  # no other can reach 2^255 - 19
        if int.from_bytes(points[i], "little") >= P:
            raise MalformedError(f"{what} holds a coordinate that is not below 2^255 - 19: it was not made by X25519")
    if len(set(points)) != len(points):
        raise MalformedError(f"{what} holds {len(points) - len(set(points))} points twice; every identifier is unique")
    return points


def _require_bytes(array: np.ndarray, width: int, what: str) -> None:
    if not isinstance(array, np.ndarray):
        raise MalformedError(f"{what} is a {type(array).__name__}; an array, uint8 (n, {width}), was expected")
    if array.dtype != np.uint8 or array.ndim != 2 or array.shape[1] != width:
        raise MalformedError(f"{what} is {array.dtype} {array.shape}; uint8 (n, {width}) was expected")


def _require_unique(tokens: Sequence[bytes], what: str) -> None:
    """Different points may have one dual: Q and Q + T with T of small order, which clamped scalars remove."""
    if len(set(tokens)) != len(tokens):
        raise MalformedError(f"tokens of {what} come twice; the peer does not follow the protocol")


class _Party:
    """What both roles share: own identifiers, hashed and blinded in a secret order."""

    def __init__(self, ids: Sequence[str], session: Session, *, max_set_size: int = _DEFAULT_MAX) -> None:
        if len(ids) > max_set_size:
            raise SetSizeError(f"a set of {len(ids)} identifiers; at most {max_set_size}: raise max_set_size")
        if len(set(ids)) != len(ids):
            raise IdentifierError("identifiers are doubled; normalise them first, which says which")
        self._session = session
        self._max = max_set_size
        self._key = X25519PrivateKey.generate()
        self._order = _permutation(len(ids))
        self._hashed = hash_many_to_u([encode(ids[row], row) for row in self._order.tolist()], session.dst)
        self._blinded: np.ndarray | None = None
        self._step = 0

    def blinded(self) -> np.ndarray:
        """The party's set, blinded, in a secret order: uint8 (n, 32), read-only; the same however often it is asked."""
        if self._blinded is None:
            points = _exchange(self._key, self._hashed, "the own set")
            self._blinded = np.frombuffer(b"".join(points), dtype=np.uint8).reshape(-1, 32)
            self._hashed = []
        return self._blinded

    def _tokens(self, points: Sequence[bytes], what: str) -> list[bytes]:
        prefix = self._session.dst + b"token"
        tokens = [hashlib.sha256(prefix + dual).digest()[:TOKEN_BYTES] for dual in _exchange(self._key, points, what)]
        _require_unique(tokens, what)
        return tokens

    def _once(self, step: int, what: str) -> None:
        if self._step != step:
            raise PSIError(f"{what} was called out of order or twice; one session serves one intersection")
        self._step = step + 1

    def _require_sent(self, what: str) -> None:
        if self._blinded is None:
            raise PSIError(f"{what} was called out of order: the peer answers to blinded(), which was not called")


class Sender(_Party):
    """The party that answers; it learns the other set's size and what the receiver tells it."""

    def double(self, blinded: np.ndarray, count: int | None = None) -> np.ndarray:
        """Tokens of the receiver's blinded set, in the order it came: uint8 (n, 16).

        Args:
            blinded: the receiver's set, uint8 (n, 32).
            count: how many were announced, if they were.

        Raises:
            PSIError: called a second time; a second set would be an oracle for more guesses.
            MalformedError: another type or shape, a bad coordinate, a point of small order, or the same point twice.
            SetSizeError: more than allowed, or not as many as announced.
        """
        self._once(0, "double")
        what = "the receiver's blinded set"
        tokens = self._tokens(_checked(blinded, count, self._max, what), what)
        return np.frombuffer(b"".join(tokens), dtype=np.uint8).reshape(-1, TOKEN_BYTES)

    def rows(self, positions: np.ndarray) -> np.ndarray:
        """The party's own row numbers at these positions of its blinded set.

        Args:
            positions: what the receiver found, in the order that it chose, int64 (k,).

        Raises:
            PSIError: called before `blinded` and `double`, or a second time.
            MalformedError: another type, a position that does not exist or one that comes twice.
        """
        self._require_sent("rows")
        self._once(1, "rows")
        if not isinstance(positions, np.ndarray):
            raise MalformedError(f"positions are a {type(positions).__name__}; an array, int64 (n,), was expected")
        if positions.dtype != np.int64 or positions.ndim != 1:
            raise MalformedError(f"positions are {positions.dtype} {positions.shape}; int64 (n,) was expected")
        if len(positions) and (positions.min() < 0 or positions.max() >= len(self._order)):
            raise MalformedError(f"a position is outside the set of {len(self._order)} rows")
        if len(np.unique(positions)) != len(positions):
            raise MalformedError("a position comes twice; every row is common once")
        rows: np.ndarray = self._order[positions]
        return rows


class Receiver(_Party):
    """The party that learns the intersection."""

    def intersect(self, sender_blinded: np.ndarray, doubled: np.ndarray, count: int | None = None) -> Matches:
        """Compare doubly blinded identifiers.

        Args:
            sender_blinded: the sender's set, uint8 (m, 32).
            doubled: what `Sender.double` made of this party's set, uint8 (n, 16).
            count: how many points of the sender were announced, if they were.

        Raises:
            PSIError: called before `blinded`, or a second time.
            MalformedError: another type or shape, a bad coordinate, a point of small order, or tokens that come twice.
            SetSizeError: more than allowed, or not as many as announced.
        """
        self._require_sent("intersect")
        self._once(0, "intersect")
        _require_bytes(doubled, TOKEN_BYTES, "the doubled set")
        if len(doubled) != len(self._order):
            raise SetSizeError(f"the doubled set holds {len(doubled)} tokens; {len(self._order)} points were sent")
        raw = np.ascontiguousarray(doubled).tobytes()
        mine = [raw[i : i + TOKEN_BYTES] for i in range(0, len(raw), TOKEN_BYTES)]
        _require_unique(mine, "the doubled set")
        what = "the sender's blinded set"
        theirs = self._tokens(_checked(sender_blinded, count, self._max, what), what)
        place = {token: position for position, token in enumerate(theirs)}
        pairs = sorted((int(self._order[i]), place[token]) for i, token in enumerate(mine) if token in place)
        found = np.array(pairs, dtype=np.int64).reshape(-1, 2)
        return Matches(found[:, 0].copy(), found[:, 1].copy())


def intersect_in_process(
    receiver_ids: Iterable[object], sender_ids: Iterable[object], rules: IdRules | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Both roles in one process, for tests and examples: whoever calls it holds both sets, so it hides nothing.

    Args:
        receiver_ids: one identifier per row, see `normalise`.
        sender_ids: likewise.
        rules: how to normalise; by default `IdRules()`.

    Returns:
        The receiver's rows, ascending, and the sender's rows of the same identifiers, both int64 (k,).

    Raises:
        IdentifierError: identifiers that cannot be used.
    """
    rules = rules or IdRules()
    session = Session(names=("receiver", "sender"), nonce=secrets.token_bytes(16), rules_tag=rules.tag())
    receiver = Receiver(normalise(receiver_ids, rules), session)
    sender = Sender(normalise(sender_ids, rules), session)
    matches = receiver.intersect(sender.blinded(), sender.double(receiver.blinded()))
    return matches.receiver_rows, sender.rows(matches.sender_positions)
