"""Private set intersection of two parties by 2HashDH on Curve25519, as state machines over arrays of bytes.

The *client* blinds its identifiers, the *server* multiplies them by its key, and both end with the outputs of a
pseudo-random function at their own identifiers (Jarecki, Kiayias and Krawczyk, ASIACRYPT 2014; as a set intersection:
Jarecki and Liu, SCN 2010). H1 hashes to the group (RFC 9380), H2 is `oprf.finalise`, and `proofs` says what the three
parts of an output are for.

Client, secret a                        Server, secret k
a·H1(x), shuffled      chunks() →
                       ← chunks()       T(y), the tokens of its set, shuffled
                       ← answer()       k·(a·H1(x)), in the order in which they came
take_answers(…), take_tokens(…)
finish()               D(x) →           outputs.rows(…)
outputs.require_receipt(…)  ← receipt   outputs.receipt(…)

The client learns which of its rows the server has, and so does the server once it has the proofs. Both learn the size
of the other's set. Scalar products: 3n + m for a client of n and a server of m, so the smaller set had better ask.

A token binds identifier and point, so a server that answers with other points, or in another order, matches nothing,
and no message holds a digest that could be tried on guesses: each of them needs a point under k, which only the server
can make, one for each point that the client sent.

Sets go in chunks of 2^15 rows, so that memory is bounded and both sides compute while bytes move.

Security: in the random oracle model under the (one-more gap) Diffie–Hellman assumption on Curve25519, about 126 bits.
Whoever can enumerate identifiers can run the protocol on them: it hides what is not in the intersection only from
parties that use their own set. `docs/psi.md` says what a party can do that deviates.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator
from functools import cached_property

import numpy as np

from securevfl_psi.arrays import match
from securevfl_psi.blinding import MAX_SET_SIZE, Gathered, Party, Waiting
from securevfl_psi.chunks import check_points, require_rows, split
from securevfl_psi.errors import PSIError, SetSizeError
from securevfl_psi.group import TOKEN_BYTES, hash_to_group
from securevfl_psi.identifiers import IdRules, normalise_column
from securevfl_psi.oprf import finalise
from securevfl_psi.proofs import OUTPUT_BYTES, Outputs
from securevfl_psi.session import Session

__all__ = ["MAX_SET_SIZE", "TOKEN_BYTES", "Client", "Server", "Session", "intersect_in_process"]


class _End(Party):
    """What both ends have: outputs by the own rows, filled in as they become known."""

    _filled = 0

    @cached_property
    def _table(self) -> np.ndarray:
        return np.empty((len(self._ids), OUTPUT_BYTES), dtype=np.uint8)

    @property
    def complete(self) -> bool:
        """Whether the outputs at all own identifiers are known."""
        return self._filled == len(self._ids)

    @property
    def outputs(self) -> Outputs:
        """At the own identifiers.

        Raises:
            PSIError: asked for before all are known: what is not written yet must pass for no output.
        """
        if not self.complete:
            raise PSIError(f"outputs asked for when {self._filled} of {len(self._ids)} are known: wait for the rest")
        return Outputs(self._table, self._session.dst)

    def _fill(self, rows: np.ndarray, points: np.ndarray) -> None:
        """H2(x, k·H1(x)) of some own rows."""
        self._table[rows] = finalise(
            self._ids, rows.astype(np.int64), points, self._session.dst, OUTPUT_BYTES, self._by
        )
        self._filled += len(rows)


class Client(_End):
    """The party that asks, and compares."""

    _answered = 0
    _their_tokens: Gathered | None = None

    def take_answers(self, points: np.ndarray) -> None:
        """A chunk of what `Server.answer` made of this party's set, uint8 (k, 32), in the same order.

        Raises:
            PSIError: called before the set was sent.
            MalformedError: another type or shape, a bad coordinate, a point of small order, or the same point twice.
            SetSizeError: more than were sent.
        """
        what = "the answered set"
        self._require_sent("take_answers")
        check_points(points, what)
        if self._answered + len(points) > self.size:
            raise SetSizeError(f"{what} holds {self._answered + len(points)} points; {self.size} were sent")
        rows = self._order[self._answered : self._answered + len(points)]
        self._answered += len(points)
        own = rows < len(self._ids)  # the others only fill the set up
        self._fill(rows[own], self._key.divide(points, what)[own])

    def take_tokens(self, tokens: np.ndarray) -> None:
        """A chunk of the tokens of the server's set, uint8 (k, 16).

        Raises:
            MalformedError: another type or shape.
            SetSizeError: more than allowed.
        """
        what = "the server's set"
        require_rows(tokens, TOKEN_BYTES, what)
        if self._their_tokens is None:
            self._their_tokens = Gathered(TOKEN_BYTES, self._max, what)
        self._their_tokens.add(tokens)

    def finish(self, count: int | None = None) -> np.ndarray:
        """The own rows that the server has, ascending, int64 (k,).

        Args:
            count: how many tokens of the server were announced, if they were.

        Raises:
            PSIError: called before the own set was sent, or a second time.
            SetSizeError: another number than announced, or fewer answers than points that were sent.
            MalformedError: tokens that come twice.
        """
        self._require_sent("finish")
        self._once("finish")
        if self._answered != self.size:
            raise SetSizeError(f"the answered set holds {self._answered} points; {self.size} were sent")
        theirs = (self._their_tokens or Gathered(TOKEN_BYTES, 0, "the server's set")).whole(count)
        return match(self.outputs.tokens(), theirs)[0]


class Server(_End):
    """The party that holds the key; it learns the other set's size and which of its rows the client proves."""

    def chunks(self) -> Iterator[np.ndarray]:
        """T(y) of the own set in a secret order: parts of uint8 (k, 16), computed as they are asked for. Once.

        What fills the set up is random bytes, which equal no token.

        Raises:
            PSIError: asked for a second time.
        """
        self._once("chunks")
        self._sent = True
        for rows in split(self._order):
            own = rows < len(self._ids)
            tokens = np.frombuffer(secrets.token_bytes(TOKEN_BYTES * len(rows)), dtype=np.uint8).reshape(
                -1, TOKEN_BYTES
            )
            tokens = tokens.copy()
            hashed = hash_to_group(self._ids, self._session.dst, rows[own], self._by)
            self._fill(rows[own], self._key.multiply(hashed, "the own set"))
            tokens[own] = self._table[rows[own], :TOKEN_BYTES]
            yield tokens

    @cached_property
    def waiting(self) -> Waiting:
        """Chunks of the client's set that wait for their answer."""
        return Waiting(self._max, "the client's set")

    def take(self, points: np.ndarray) -> None:
        """A chunk of the client's set, uint8 (n, 32).

        Raises:
            MalformedError: another type or shape, a bad coordinate, a point of small order, or the same point twice.
            SetSizeError: more than allowed.
        """
        self.waiting.add(points)

    def answer(self) -> np.ndarray:
        """k times each point of the chunk that has waited longest, in its order: uint8 (n, 32).

        Raises:
            PSIError: none waits.
        """
        return self._key.multiply(self.waiting.first(), "the client's set")

    def rows(self, proofs: np.ndarray) -> np.ndarray:
        """The own rows that the client proved to have, in the order of its proofs: int64 (k,). Once.

        Raises:
            PSIError: called before all own tokens were sent, or a second time.
            MalformedError: a proof of no own row, or one that comes twice.
        """
        outputs = self.outputs
        self._once("rows")
        return outputs.rows(proofs)


def intersect_in_process(
    client_ids: Iterable[object], server_ids: Iterable[object], rules: IdRules | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Both ends in one process, for tests and examples: whoever calls it holds both sets, so it hides nothing.

    Args:
        client_ids: one identifier per row, see `normalise`.
        server_ids: likewise.
        rules: how to normalise; by default `IdRules()`.

    Returns:
        The client's rows, ascending, and the server's rows of the same identifiers, both int64 (k,).

    Raises:
        IdentifierError: identifiers that cannot be used.
    """
    rules = rules or IdRules()
    session = Session(names=("client", "server"), nonce=secrets.token_bytes(16), rules_tag=rules.tag())
    client = Client(normalise_column(client_ids, rules), session)
    server = Server(normalise_column(server_ids, rules), session)
    for part in client.chunks():
        server.take(part)
        client.take_answers(server.answer())
    for part in server.chunks():
        client.take_tokens(part)
    rows = client.finish()
    found = server.rows(client.outputs.proofs(rows))
    client.outputs.require_receipt([rows], server.outputs.receipt([found]))
    return rows, found
