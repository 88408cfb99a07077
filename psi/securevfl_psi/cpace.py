"""Compare two secrets, one at each party, so that neither party can search for the other's off line.

A digest of something guessable, keyed or not, lets whoever has the key try all guesses. CPace (Abdalla, Haase and
Hesse, ASIACRYPT 2021; draft-irtf-cfrg-cpace, recommendations X25519 and SHA-512), a password-authenticated key
exchange, prevents that. Here the compared list replaces the password: both parties map it to a generator G of the
group, exchange multiples of G, and confirm that they derived the same key.

    G = H1(list of what is compared, both names, session)
    A → B: Y_A = a·G          B → A: Y_B = b·G
    K = a·Y_B = b·Y_A, ISK = SHA-512("…ISK", session, K, transcript)
    A → B: HMAC(ISK, Y_A, A)  B → A: HMAC(ISK, Y_B, B)

A party whose list differs learns only that it differs: its message committed it to one list, and the run tested that
one. An eavesdropper learns nothing. So each run allows one guess of the *whole* list.

As in the draft: length-prefixed fields, the neutral element is refused, and each party confirms its own message and
name (section on explicit key confirmation). Different here: G uses RFC 9380's hash to the curve with two maps instead
of one, computed by the constant-time batch engine; and the transcript is ordered by name.
"""

from __future__ import annotations

import hashlib
import hmac

import numpy as np
from securevfl_crypto.engine import Engine

from securevfl_psi.chunks import check_points
from securevfl_psi.errors import MalformedError, PSIError, RowsDifferError
from securevfl_psi.group import POINT_BYTES, Scalar, hash_to_group

__all__ = ["CONFIRMATION_BYTES", "SHARE_BYTES", "Comparison"]

SHARE_BYTES = POINT_BYTES
CONFIRMATION_BYTES = 64
_DOMAIN = b"securevfl-psi CPace X25519 v1"
_DST = b"securevfl-psi compare H1"


def _frame_parts(*parts: bytes) -> bytes:
    return b"".join(len(part).to_bytes(4, "big") + part for part in parts)


class Comparison:
    """One party's side of a comparison with one peer.

    Args:
        secret: the value to compare, or a digest of it.
        name: this party.
        peer: the other party.
        session: a fresh tag of the run that both parties know.
        by: the engine; by default the fastest.
    """

    def __init__(self, secret: bytes, name: str, peer: str, session: bytes, *, by: Engine | None = None) -> None:
        if name == peer:
            raise PSIError(f"both parties are called {name!r}; give them different names")
        self._name, self._peer, self._session = name.encode(), peer.encode(), session
        self._scalar = Scalar(by=by)
        named = sorted((self._name, self._peer))  # by name, as neither party is first; both must hash the same bytes
        generator = hashlib.sha512(_frame_parts(_DOMAIN, secret, *named, session)).digest()
        self._own = self._scalar.multiply(hash_to_group([generator], _DST, by=by), "the own share")
        self._key: bytes | None = None
        self._theirs = b""

    @property
    def share(self) -> bytes:
        """Y, 32 bytes, for the peer."""
        return self._own.tobytes()

    def make_confirmation(self, share: bytes) -> bytes:
        """This party's key confirmation for the peer, 64 bytes. Call it once.

        Args:
            share: the peer's, 32 bytes.

        Raises:
            PSIError: called a second time; a second share would allow the peer a second guess.
            MalformedError: a wrong length, a point of small order, a bad coordinate, or this party's own share.
        """
        if self._key is not None:
            raise PSIError("make_confirmation was called twice; one comparison allows one guess")
        # A reflected share would let a peer confirm with this party's own tag, without knowing the secret.
        if len(share) != SHARE_BYTES or share == self.share:
            raise MalformedError(f"a share of {len(share)} bytes, or this party's own; expected 32 bytes of the peer's")
        point = np.frombuffer(share, dtype=np.uint8).reshape(1, -1)
        check_points(point, "the peer's share")
        common = self._scalar.multiply(point, "the peer's share").tobytes()
        ends = sorted([(self._name, self.share), (self._peer, share)])
        transcript = _frame_parts(*(part for end in ends for part in end))
        self._key = hashlib.sha512(_frame_parts(_DOMAIN + b" ISK", self._session, common) + transcript).digest()
        self._theirs = share
        return self._compute_tag(self.share, self._name)

    def require_equal(self, confirmation: bytes) -> None:
        """Raise unless the peer confirmed the same secret.

        Raises:
            PSIError: called before `make_confirmation`.
            RowsDifferError: the peer's secret differs.
        """
        if self._key is None:
            raise PSIError("require_equal was called out of order: call make_confirmation first, with the peer's share")
        if not hmac.compare_digest(self._compute_tag(self._theirs, self._peer), confirmation):
            raise RowsDifferError("the parties do not have the same common rows in the same order; no row is used")

    def _compute_tag(self, share: bytes, name: bytes) -> bytes:
        key = hashlib.sha512(_frame_parts(_DOMAIN + b" MAC", self._key or b"")).digest()
        return hmac.digest(key, _frame_parts(share, name), "sha512")
