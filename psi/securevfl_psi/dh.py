"""Private set intersection of two parties by 2HashDH on Curve25519, as state machines over arrays of bytes.

The *client* blinds its identifiers, the *server* multiplies them by its key, and both end with the outputs of a
pseudo-random function at their own identifiers (Jarecki, Kiayias and Krawczyk, ASIACRYPT 2014; as a set intersection:
Jarecki and Liu, SCN 2010). H1 hashes to the group (RFC 9380), H2 is `oprf.finalise`, and `proofs` explains the three
parts of an output.

Client, secret a                        Server, secret k
a·H1(x), shuffled      blind_set() →
                       ← token_chunks() T(y), the tokens of its set, shuffled
                       ← answer_chunk() k·(a·H1(x)), in the order in which they came
take_answers(…), take_tokens(…)
find_common_rows()     D(x) →           outputs.find_proven_rows(…)
outputs.require_receipt(…)  ← receipt   outputs.make_receipt(…)

The client learns which of its rows the server has; the server learns the same from the proofs. Both learn the size of
the other's set. Scalar products: 3n + m for a client of n and a server of m, so the smaller set should ask.

A token binds identifier and point. So a server that answers with other points, or in another order, matches nothing.
No message contains a digest that could be tested on guesses: each test needs a point under k, which only the server can
compute, and it computes one for each point that the client sent.

Sets travel in chunks of 2^15 rows, which bounds memory and lets both sides compute while bytes move.

Security: in the random oracle model under the (one-more gap) Diffie–Hellman assumption on Curve25519, about 126 bits.
A party that can enumerate identifiers can run the protocol on all of them: the protocol hides identifiers outside the
intersection only from parties that enter their real set. `docs/psi.md` describes what a deviating party can do.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator
from functools import cached_property

import numpy as np

from securevfl_psi.arrays import match_rows
from securevfl_psi.blinding import MAX_SET_SIZE, BlindingParty, ChunkQueue, RowBuffer
from securevfl_psi.chunks import check_points, require_rows, split
from securevfl_psi.errors import PSIError, SetSizeError
from securevfl_psi.group import TOKEN_BYTES, hash_to_group
from securevfl_psi.identifiers import IdRules, normalise_column
from securevfl_psi.oprf import finalise
from securevfl_psi.proofs import OUTPUT_BYTES, Outputs
from securevfl_psi.session import Session

__all__ = ["MAX_SET_SIZE", "TOKEN_BYTES", "DHClient", "DHServer", "Session", "intersect_in_process"]


class _Side(BlindingParty):
    """Base of both ends: the outputs of this party's rows, filled in as they become known."""

    _filled = 0

    @cached_property
    def _output_table(self) -> np.ndarray:
        return np.empty((len(self._ids), OUTPUT_BYTES), dtype=np.uint8)

    @property
    def is_complete(self) -> bool:
        """Whether the outputs of all this party's identifiers are known."""
        return self._filled == len(self._ids)

    @property
    def outputs(self) -> Outputs:
        """The outputs of this party's identifiers.

        Raises:
            PSIError: not all are known yet; the unwritten part of the table must not pass for an output.
        """
        if not self.is_complete:
            raise PSIError(f"outputs were read when {self._filled} of {len(self._ids)} are known: wait for the rest")
        return Outputs(self._output_table, self._session.dst)

    def _fill_outputs(self, rows: np.ndarray, points: np.ndarray) -> None:
        """H2(x, k·H1(x)) of some own rows."""
        self._output_table[rows] = finalise(
            self._ids, rows.astype(np.int64), points, self._session.dst, OUTPUT_BYTES, self._by
        )
        self._filled += len(rows)


class DHClient(_Side):
    """The party that asks and compares tokens."""

    _answered = 0
    _their_tokens: RowBuffer | None = None

    def take_answers(self, points: np.ndarray) -> None:
        """Take a chunk of this party's set from `DHServer.answer_chunk`, uint8 (k, 32), in the order sent.

        Raises:
            PSIError: called before the set was sent.
            MalformedError: wrong type or shape, a bad coordinate, a point of small order, or the same point twice.
            SetSizeError: more points than were sent.
        """
        what = "the answered set"
        self._require_sent("take_answers")
        check_points(points, what)
        if self._answered + len(points) > self.size:
            raise SetSizeError(f"{what} contains {self._answered + len(points)} points; {self.size} were sent")
        rows = self._order[self._answered : self._answered + len(points)]
        self._answered += len(points)
        own = rows < len(self._ids)  # the others are padding
        self._fill_outputs(rows[own], self._key.divide(points, what)[own])

    def take_tokens(self, tokens: np.ndarray) -> None:
        """A chunk of the tokens of the server's set, uint8 (k, 16).

        Raises:
            MalformedError: another type or shape.
            SetSizeError: more than allowed.
        """
        what = "the server's set"
        require_rows(tokens, TOKEN_BYTES, what)
        if self._their_tokens is None:
            self._their_tokens = RowBuffer(TOKEN_BYTES, self._max, what)
        self._their_tokens.add_rows(tokens)

    def find_common_rows(self, count: int | None = None) -> np.ndarray:
        """Return this party's rows that the server has, ascending, int64 (k,).

        Args:
            count: the number of tokens that the server announced, or None.

        Raises:
            PSIError: called before this party's set was sent, or a second time.
            SetSizeError: another number than announced, or fewer answers than points sent.
            MalformedError: two equal tokens.
        """
        self._require_sent("finish")
        self._require_once("find_common_rows")
        if self._answered != self.size:
            raise SetSizeError(f"the answered set contains {self._answered} points; {self.size} were sent")
        theirs = (self._their_tokens or RowBuffer(TOKEN_BYTES, 0, "the server's set")).take_all(count)
        return match_rows(self.outputs.cut_tokens(), theirs)[0]


class DHServer(_Side):
    """The party that has the key; it learns the size of the client's set and which of its rows the client proves."""

    def token_chunks(self) -> Iterator[np.ndarray]:
        """Yield T(y) of this party's set in a secret order: chunks of uint8 (k, 16), computed on demand. Call it once.

        Padding is random bytes, which match no token.

        Raises:
            PSIError: called a second time.
        """
        self._require_once("token_chunks")
        self._sent = True
        for rows in split(self._order):
            own = rows < len(self._ids)
            tokens = np.frombuffer(secrets.token_bytes(TOKEN_BYTES * len(rows)), dtype=np.uint8).reshape(
                -1, TOKEN_BYTES
            )
            tokens = tokens.copy()
            hashed = hash_to_group(self._ids, self._session.dst, rows[own], self._by)
            self._fill_outputs(rows[own], self._key.multiply(hashed, "the own set"))
            tokens[own] = self._output_table[rows[own], :TOKEN_BYTES]
            yield tokens

    @cached_property
    def waiting_chunks(self) -> ChunkQueue:
        """Chunks of the client's set that were not answered yet."""
        return ChunkQueue(self._max, "the client's set")

    def take_chunk(self, points: np.ndarray) -> None:
        """A chunk of the client's set, uint8 (n, 32).

        Raises:
            MalformedError: another type or shape, a bad coordinate, a point of small order, or the same point twice.
            SetSizeError: more than allowed.
        """
        self.waiting_chunks.add_chunk(points)

    def answer_chunk(self) -> np.ndarray:
        """Multiply each point of the oldest waiting chunk by k, in its order: uint8 (n, 32).

        Raises:
            PSIError: no chunk waits.
        """
        return self._key.multiply(self.waiting_chunks.pop_first(), "the client's set")

    def find_proven_rows(self, proofs: np.ndarray) -> np.ndarray:
        """Find the rows that the client proved to have, in the order of its proofs: int64 (k,). Call it once.

        Raises:
            PSIError: called before all tokens were sent, or a second time.
            MalformedError: a proof matches no row of this party, or two proofs are equal.
        """
        outputs = self.outputs
        self._require_once("find_proven_rows")
        return outputs.find_proven_rows(proofs)


def intersect_in_process(
    client_ids: Iterable[object], server_ids: Iterable[object], rules: IdRules | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Run both ends in one process, for tests and examples. The caller has both sets, so this hides nothing.

    Args:
        client_ids: one identifier per row, see `normalise`.
        server_ids: likewise.
        rules: how to normalise; by default `IdRules()`.

    Returns:
        The client's rows, ascending, and the server's rows of the same identifiers, both int64 (k,).

    Raises:
        IdentifierError: unusable identifiers, see `normalise`.
    """
    rules = rules or IdRules()
    session = Session(names=("client", "server"), nonce=secrets.token_bytes(16), rules_tag=rules.tag())
    client = DHClient(normalise_column(client_ids, rules), session)
    server = DHServer(normalise_column(server_ids, rules), session)
    for part in client.blind_set():
        server.take_chunk(part)
        client.take_answers(server.answer_chunk())
    for part in server.token_chunks():
        client.take_tokens(part)
    rows = client.find_common_rows()
    found = server.find_proven_rows(client.outputs.prove_rows(rows))
    client.outputs.require_receipt([rows], server.outputs.make_receipt([found]))
    return rows, found
