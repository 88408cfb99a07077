"""Oblivious pseudo-random function: the client learns F_k(x) for its identifiers; the server, with key k, nothing.

2HashDH (Jarecki, Kiayias and Krawczyk, ASIACRYPT 2014) on Curve25519: F_k(x) = H2(x, k·H1(x)).

Client                                Server
a·H1(x)               blind_set() →
                      ← evaluate(…)   k·a·H1(x)
compute_outputs(…) = H2(x, a⁻¹·k·a·H1(x))

The construction is that of RFC 9497's base mode. Different here: the group is Curve25519 by u-coordinates instead of
ristretto255 (H1 is RFC 9380's, the sign of y is lost on both sides alike, and scalars that are multiples of 8 remove
what is not in the subgroup of prime order); one blind serves all identifiers of a client instead of one each, so what
hides them is the decisional Diffie–Hellman assumption, in the random oracle model, instead of a uniform blind; the
output is cut to the length asked for; every hash is bound to a session's domain tag. As in the base mode nothing proves
which key the server used (RFC 9497's VOPRF mode does): semi-honest. What the client does not ask stays hidden under the
one-more gap Diffie–Hellman assumption; q evaluations by one key cost at most log2(q)/2 of its 126 bits (Brown and
Gallant 2004).

Sets of points travel in chunks, see `chunks`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from securevfl_crypto.engine import Engine, choose_engine

from securevfl_psi.chunks import PointStream, require_size, split
from securevfl_psi.errors import IdentifierError, PSIError, SetSizeError
from securevfl_psi.group import POINT_BYTES, Scalar, hash_to_group
from securevfl_psi.identifiers import Identifiers

__all__ = ["DEFAULT_MAX", "MAX_OUTPUT_BYTES", "OPRFClient", "OPRFServer", "encode_column", "finalise", "hash_items"]

MAX_OUTPUT_BYTES = 64  # of one SHA-512
DEFAULT_MAX = 1 << 28


def encode_column(ids: Sequence[str], max_set_size: int) -> Identifiers:
    """Encode identifiers as a column for hashing.

    Raises:
        SetSizeError: more than allowed.
        IdentifierError: duplicates, or an identifier that is not Unicode text.
    """
    if len(ids) > max_set_size:
        raise SetSizeError(f"a set of {len(ids)} identifiers; at most {max_set_size}: raise max_set_size")
    column = Identifiers.of_texts(ids)
    if column.find_duplicates():
        raise IdentifierError("identifiers are doubled; call normalise first: its error lists the rows")
    return column


def hash_items(
    column: Identifiers, rows: np.ndarray, head: bytes, tails: np.ndarray, length: int, by: Engine | None = None
) -> np.ndarray:
    """Hash `head`, the identifier's length (2 bytes), the identifier and its row of `tails` with SHA-512.

    Args:
        column: identifiers.
        rows: which of them, int64 (n,).
        head: first bytes, the same for all.
        tails: last bytes of each, uint8 (n, t).
        length: bytes of each digest that are kept.
        by: the engine; by default the fastest.

    Returns:
        uint8 (n, length).
    """
    out = np.empty((len(rows), length), dtype=np.uint8)
    for places, matrix in column.iter_matrices(rows):
        start = np.frombuffer(head + matrix.shape[1].to_bytes(2, "big"), dtype=np.uint8)
        block = np.concatenate([np.broadcast_to(start, (len(places), len(start))), matrix, tails[places]], axis=1)
        out[places] = (by or choose_engine()).sha512(block)[:, :length]
    return out


def finalise(
    column: Identifiers, rows: np.ndarray, points: np.ndarray, dst: bytes, length: int, by: Engine | None
) -> np.ndarray:
    """Compute H2, uint8 (n, length): domain tag, identifier, point, each with its length (RFC 9497, section 3.3.1)."""
    size, end = (np.frombuffer(part, dtype=np.uint8) for part in (POINT_BYTES.to_bytes(2, "big"), b"Finalize"))
    fixed = [np.broadcast_to(part, (len(points), len(part))) for part in (size, end)]
    tails = np.concatenate([fixed[0], points, fixed[1]], axis=1)
    return hash_items(column, rows, len(dst).to_bytes(2, "big") + dst, tails, length, by)


def _iter_parts(count: int) -> Iterator[np.ndarray]:
    return split(np.arange(count))


def _checked_length(length: int) -> int:
    if not 1 <= length <= MAX_OUTPUT_BYTES:
        raise PSIError(f"outputs of {length} bytes; expected 1 to {MAX_OUTPUT_BYTES}")
    return length


class OPRFClient:
    """The side that learns F_k at its identifiers.

    Args:
        ids: normalised and unique.
        dst: domain separation tag that both sides agreed on, 1 to 255 bytes; up to 45 bytes hash fastest.
        length: bytes of each output.
        servers: names of the servers that evaluate the one blinded set, each with its own key.
        max_set_size: most identifiers.
        by: the engine; by default the fastest.
    """

    def __init__(
        self,
        ids: Sequence[str],
        dst: bytes,
        *,
        length: int = 16,
        servers: Sequence[str] = ("server",),
        max_set_size: int = DEFAULT_MAX,
        by: Engine | None = None,
    ) -> None:
        self._column = encode_column(ids, max_set_size)
        self._dst = dst
        self._length = _checked_length(length)
        self._scalar = Scalar(by=by)
        self._by = by
        self._open = set(servers)
        self._sent = False

    def blind_set(self) -> Iterator[np.ndarray]:
        """a·H1(x) in the order of the identifiers, chunks of uint8 (n, 32); without a they look uniform.

        Raises:
            PSIError: called a second time.
        """
        if self._sent:
            raise PSIError("blind_set was called twice; one client serves one set")
        self._sent = True
        return self._blind_chunks()

    def _blind_chunks(self) -> Iterator[np.ndarray]:
        for rows in _iter_parts(len(self._column)):
            yield self._scalar.multiply(hash_to_group(self._column, self._dst, rows, self._by), "the own set")

    def compute_outputs(self, evaluated: Iterable[np.ndarray], server: str = "server") -> np.ndarray:
        """F_k(x) in the order of the identifiers, uint8 (n, length).

        Args:
            evaluated: the server's answer to `blind_set`, chunks of uint8 (n, 32).
            server: its name.

        Raises:
            PSIError: called before `blind_set`, for an unknown name, or a second time for one server.
            MalformedError: wrong type or shape, a bad coordinate, a point of small order, or the same point twice.
            SetSizeError: the number of points differs from the number sent.
        """
        if not self._sent:
            raise PSIError("compute_outputs was called out of order: call blind_set() first")
        if server not in self._open:
            raise PSIError(
                f"compute_outputs was called for {server!r} a second time, or {server!r} is not one of the servers"
            )
        self._open.remove(server)  # before the work: a server gets one try, also if its answer fails the checks
        out = np.empty((len(self._column), self._length), dtype=np.uint8)
        done = 0
        what = "the evaluated set"
        for chunk in PointStream(evaluated, len(self._column), what):
            rows = np.arange(done, done + len(chunk))
            points = self._scalar.divide(chunk, what)
            out[rows] = finalise(self._column, rows, points, self._dst, self._length, self._by)
            done += len(chunk)
        return out


class OPRFServer:
    """The side that has the key.

    Args:
        dst: the client's domain separation tag.
        key: by default a fresh one.
        length: bytes of each output.
        max_set_size: largest set, the client's or its own.
        by: the engine; by default the fastest.
    """

    def __init__(
        self,
        dst: bytes,
        key: Scalar | None = None,
        *,
        length: int = 16,
        max_set_size: int = DEFAULT_MAX,
        by: Engine | None = None,
    ) -> None:
        self._dst = dst
        self._key = key or Scalar(by=by)
        self._by = by
        self._length = _checked_length(length)
        self._max = max_set_size
        self._answered = False

    def evaluate(self, blinded: Iterable[np.ndarray], count: int) -> Iterator[np.ndarray]:
        """Multiply each point by k, in order of arrival, chunks of uint8 (n, 32).

        Args:
            blinded: the client's set, chunks of uint8 (n, 32).
            count: how many points were announced.

        Raises:
            PSIError: called a second time; a second set would allow the client more guesses.
            MalformedError: wrong type or shape, a bad coordinate, a point of small order, or the same point twice;
                possibly while the result is consumed.
            SetSizeError: more than allowed, or another number than announced.
        """
        what = "the blinded set"
        require_size(count, self._max, what)
        if self._answered:
            raise PSIError("evaluate was called twice; one server serves one set")
        self._answered = True
        return (self._key.multiply(chunk, what) for chunk in PointStream(blinded, count, what))

    def compute_outputs(self, ids: Sequence[str]) -> np.ndarray:
        """F_k of the server's identifiers, uint8 (n, length).

        Raises:
            SetSizeError: more than allowed.
            IdentifierError: duplicates, or an identifier that is not Unicode text.
        """
        column = encode_column(ids, self._max)
        out = np.empty((len(column), self._length), dtype=np.uint8)
        for rows in _iter_parts(len(column)):
            points = self._key.multiply(hash_to_group(column, self._dst, rows, self._by), "the own set")
            out[rows] = finalise(column, rows, points, self._dst, self._length, self._by)
        return out
