"""Intersection of three or more parties' sets: the leader learns the global intersection and no pairwise one.

Kolesnikov, Matania, Pinkas, Rosulek and Trieu (CCS 2017), their variant for the augmented semi-honest model, with
unconditional zero-sharing, and with the programmable OPRF made of a Diffie–Hellman OPRF and an oblivious
key-value store. Party i has an OPRF key k_i and, for each pair, a seed r_ij known to nobody else.

    shares        s_i(x) = ⊕_{j ≠ i} AES_{r_ij}(digest(x)); over all parties they xor to zero
    party i       stores x → s_i(x) ⊕ F_{k_i}(x) for its own x, and sends the table
    leader        xors s_1(x) with each table's value at x and each F_{k_i}(x): zero exactly if all parties have x

PairwiseKeys: each party to each other, not through the leader: public_key (32 bytes)
Leader                                      Party i
a·H(x)                   blind_set() →      the same chunks to every party
                         ← evaluate(…)      k_i·a·H(x)
                         ← encode_table()   seed and slots
receive_answer(i, …), intersect()
D_i of common rows       announce_rows(i) → find_common_rows(…)

F_{k_i}(x) has 24 bytes: 8 mask the share, 16 are D_i(x), by which party i finds its row. `announce_rows` is optional:
without it only the leader learns the result. The leader draws the order of common rows at random, so the order reveals
nothing about how the leader sorts its table.

Who learns what (augmented semi-honest: parties follow the protocol, on a set of their choice):

- the leader: the sizes of all sets and the global intersection. At any other item it decodes random bits, however many
  parties have the item;
- party i: the leader's size and, if the leader announces, which of its rows are common to all;
- parties that collude without the leader: nothing beyond what each of them learns;
- the leader with parties C: the intersection of the sets of the leader and of all parties outside C. They could have
  learned the same by entering the leader's set as theirs. With three parties, the leader and one other party learn the
  pairwise intersection with the third. With two parties, the protocol is an ordinary intersection of two sets.

A share has 8 bytes: an item that is not common passes as common with probability 2^-64, any of 2^24 with 2^-40. AES
stands for a random function within n²/2^129, digests of 16 bytes collide with 2^-81 for 2^24 items.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
from securevfl_crypto.engine import Engine

from securevfl_psi import okvs, oprf
from securevfl_psi.arrays import count_duplicates, match_rows, secret_order
from securevfl_psi.chunks import join_chunks, require_size, split
from securevfl_psi.circle import Circle
from securevfl_psi.errors import MalformedError, PSIError, SetSizeError
from securevfl_psi.oprf import DEFAULT_MAX

__all__ = ["RESULT_BYTES", "SHARE_BYTES", "Follower", "Leader"]

SHARE_BYTES = 8
RESULT_BYTES = 16


class _CircleMember:
    """Base of leader and parties: digests of this party's identifiers, and its shares of zero."""

    def __init__(
        self,
        ids: Sequence[str],
        name: str,
        circle: Circle,
        seeds: Mapping[str, bytes],
        max_set_size: int,
        by: Engine | None,
    ) -> None:
        circle.require_party(name)
        if set(seeds) != set(circle.names) - {name}:
            raise PSIError(f"seeds with {sorted(seeds)}; each other party needs one: see PairwiseKeys.derive_seeds")
        if max_set_size > okvs.MAX_KEYS:
            raise SetSizeError(f"max_set_size {max_set_size}; at most {okvs.MAX_KEYS} are possible")
        self._ids = oprf.encode_column(ids, max_set_size)
        rows = np.arange(len(self._ids))
        head, tails = circle.dst + b"item", np.empty((len(rows), 0), dtype=np.uint8)
        self._digests = oprf.hash_items(self._ids, rows, head, tails, okvs.KEY_BYTES, by)
        self._circle = circle
        self._seeds = dict(seeds)
        self._max = max_set_size

    def _compute_shares(self) -> np.ndarray:
        """Compute s_i at each identifier, uint64 (n,)."""
        shares = np.zeros(len(self._digests), dtype=np.uint64)
        for seed in self._seeds.values():
            shares ^= okvs.prf(seed, self._digests).view(np.uint64)[:, 0]
        return shares


class Follower(_CircleMember):
    """Any party but the leader.

    Args:
        ids: normalised and unique.
        name: this party's name.
        circle: the parameters that all parties agreed on.
        seeds: from `PairwiseKeys.derive_seeds`.
        max_set_size: largest set, this party's or the leader's.
        by: the engine; by default the fastest.
    """

    def __init__(
        self,
        ids: Sequence[str],
        name: str,
        circle: Circle,
        seeds: Mapping[str, bytes],
        *,
        max_set_size: int = DEFAULT_MAX,
        by: Engine | None = None,
    ) -> None:
        if name == circle.leader:
            raise PSIError(f"{name!r} is the leader: use Leader")
        super().__init__(ids, name, circle, seeds, max_set_size, by)
        self._oprf = oprf.OPRFServer(circle.dst, length=SHARE_BYTES + RESULT_BYTES, max_set_size=max_set_size, by=by)
        self._own: np.ndarray | None = None
        self._asked = False

    def evaluate(self, blinded: Iterable[np.ndarray], count: int) -> Iterator[np.ndarray]:
        """Multiply the leader's points by k_i; see `oprf.Server.evaluate`."""
        return self._oprf.evaluate(blinded, count)

    def encode_table(self) -> okvs.SlotTable:
        """Encode x → s_i(x) ⊕ F_{k_i}(x) for this party's set; send the seed, and the slots in chunks (`chunks.split`).

        Raises:
            PSIError: called a second time; two tables of the same values decode alike at the party's own items and
                nowhere else, which would show the leader the pairwise intersection.
        """
        if self._own is not None:
            raise PSIError("encode_table was called twice; one party serves one session")
        outputs = self._oprf.compute_outputs(self._ids)
        self._own = outputs[:, SHARE_BYTES:].copy()
        values = _first_words(outputs) ^ self._compute_shares()
        return okvs.encode_table(self._digests, values.view(np.uint8).reshape(-1, SHARE_BYTES))

    def find_common_rows(self, announced: Iterable[np.ndarray], count: int) -> np.ndarray:
        """Find this party's rows of the global intersection, in the leader's order, int64 (k,).

        Args:
            announced: tokens from `Leader.announce_rows`, chunks of uint8 (k, 16).
            count: the announced number of rows.

        Raises:
            PSIError: called before `encode_table`, or a second time.
            SetSizeError: more rows than this party has, or another number than announced.
            MalformedError: wrong type or shape, two equal tokens, or a token of no row of this party.
        """
        if self._own is None or self._asked:
            raise PSIError("find_common_rows was called out of order or twice; it follows encode_table, once")
        self._asked = True
        what = "the announced intersection"
        require_size(count, len(self._own), what)
        return _find_places(self._own, join_chunks(announced, count, RESULT_BYTES, what))


class Leader(_CircleMember):
    """The party that learns the intersection; takes the arguments of `Follower`."""

    def __init__(
        self,
        ids: Sequence[str],
        circle: Circle,
        seeds: Mapping[str, bytes],
        *,
        max_set_size: int = DEFAULT_MAX,
        by: Engine | None = None,
    ) -> None:
        super().__init__(ids, circle.leader, circle, seeds, max_set_size, by)
        self._client = oprf.OPRFClient(
            self._ids,
            circle.dst,
            length=SHARE_BYTES + RESULT_BYTES,
            servers=circle.names[1:],
            max_set_size=max_set_size,
            by=by,
        )
        self._sum = self._compute_shares()
        self._results: dict[str, np.ndarray] = {}
        self._rows: np.ndarray | None = None

    def blind_set(self) -> Iterator[np.ndarray]:
        """Yield the leader's blinded set in chunks of uint8 (n, 32), for all parties. Once; then PSIError."""
        return self._client.blind_set()

    def receive_answer(
        self, name: str, evaluated: Iterable[np.ndarray], seed: bytes, slots: Iterable[np.ndarray], count: int
    ) -> None:
        """Take one party's answer.

        Args:
            name: the party.
            evaluated: points from `Party.evaluate`, chunks of uint8 (n, 32).
            seed: of its table.
            slots: of its table, chunks of uint8 (m, 8).
            count: its announced number of items.

        Raises:
            PSIError: called before `blind_set`, for an unknown name, or a second time for one party.
            MalformedError: wrong type or shape, a bad coordinate, a point of small order or a repeated point.
            SetSizeError: more items than allowed, or an unexpected number of points or slots.
        """
        require_size(count, self._max, f"the set of {name!r}")
        outputs = self._client.compute_outputs(evaluated, name)
        table = okvs.SlotTable(seed, join_chunks(slots, okvs.slots_for(count), SHARE_BYTES, f"the table of {name!r}"))
        self._sum ^= _first_words(outputs) ^ okvs.decode_table(table, self._digests).view(np.uint64)[:, 0]
        self._results[name] = outputs[:, SHARE_BYTES:].copy()

    def intersect(self) -> np.ndarray:
        """Find the leader's rows of the global intersection, int64 (k,), in a fresh secret order for all parties.

        Raises:
            PSIError: called before every party answered, or a second time.
        """
        missing = [name for name in self._circle.names[1:] if name not in self._results]
        if missing or self._rows is not None:
            raise PSIError(f"intersect was called twice, or before all parties answered; missing: {missing}")
        rows = np.flatnonzero(self._sum == 0)
        self._rows = rows[secret_order(len(rows))]
        return self._rows.copy()

    def announce_rows(self, name: str) -> Iterator[np.ndarray]:
        """Yield a party's tokens of the common rows in the agreed order: chunks of uint8 (k, 16).

        Raises:
            PSIError: called before `intersect`, for an unknown name, or a second time for one party.
        """
        if self._rows is None or name not in self._results:
            raise PSIError(
                f"announce_rows was called before intersect, or twice for {name!r}, or {name!r} is not a party"
            )
        return split(self._results.pop(name)[self._rows])


def _first_words(outputs: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(outputs[:, :SHARE_BYTES]).view(np.uint64)[:, 0]


def _find_places(own: np.ndarray, tokens: np.ndarray) -> np.ndarray:
    """Find the row of each token, int64 (k,)."""
    if count_duplicates(tokens):
        raise MalformedError("the announced intersection contains a token twice; a row can be common only once")
    found, known = match_rows(tokens, own)
    if len(found) != len(tokens):
        raise MalformedError(
            f"the announced intersection contains {len(tokens) - len(found)} tokens of no own row: the parties "
            "normalise differently, or the leader does not follow the protocol"
        )
    return known
