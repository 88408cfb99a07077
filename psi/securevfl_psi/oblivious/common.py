"""Private set intersection of two parties by oblivious transfer, as state machines over arrays of bytes.

Pinkas, Rosulek, Trieu and Yanai, PaXoS (EUROCRYPT 2020). The *client* encodes its set, the *server* answers with the
tokens of its set. As in `dh`, each ends with the outputs F(x) of a pseudo-random function at its own identifiers, which
`proofs` cuts into token, proof and receipt, and the client compares.

Client                                         Server, secret s
first_message           →                      base transfers, see `base`
take_keys(…)            ← make_choices()
seed, encode_rows() U   →                      take_seed(…), take_rows(…)
answer_challenge(…)     ← draw_challenge()     see `extension`
                        → check_answer(…)
take_tokens(…)          ← token_chunks()       T(y), the tokens of its set, shuffled
find_common_rows()

Each identifier is hashed to a key of 16 bytes and a word of 10. The client stores its words under their keys in a
key-value store D (`okvs`) and transfers the rows of D: the server gets Q_j = T_j ⊕ (C(D_j) ∧ s). Decoding is linear, so

    decode(T, x) = decode(Q, x) ⊕ (C(word of x) ∧ s)    for x in the client's set,

which both hash, with the key of x, to F(x). For any other x the two differ by C(w) ∧ s with w ≠ 0, at least 128 bits
that only the server knows. So the client can compute F only at its own identifiers, and the server everywhere.

What decides which identifiers match:

- tokens are cut to `token_bytes`: two different ones are equal anywhere in a run with probability 2^-40 at most;
- another identifier decodes to its own word with probability 2^-80, for a server of 2^24 in all 2^-56;
- keys of 16 bytes of all identifiers differ, but for 2^-80 at 2^24 a side.

Security: against parties that follow the protocol, computational with 128 bits: the Diffie–Hellman assumption for the
base transfers (about 126 bits), AES-128 as a pseudo-random generator, BLAKE2s as a correlation-robust hash.
`docs/psi.md` describes what a deviating party can do.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import cached_property

import numpy as np
from securevfl_crypto.bits import HASH_BYTES, ROW_BYTES, BitLoops, bit_loops, byte_tables

from securevfl_psi import okvs
from securevfl_psi.blinding import MAX_SET_SIZE
from securevfl_psi.chunks import split
from securevfl_psi.errors import IdentifierError, PSIError, SetSizeError
from securevfl_psi.group import TOKEN_BYTES
from securevfl_psi.identifiers import Identifiers
from securevfl_psi.oblivious.extension import EXTRA
from securevfl_psi.proofs import OUTPUT_BYTES, Outputs
from securevfl_psi.session import Session

__all__ = ["TransferParty", "hashed_identifiers", "row_count", "token_bytes"]

_WORD = 16  # bytes of a word in the key-value store, of which 10 count
_PART = 1 << 13  # rows decoded at a time: half a megabyte
_IDENTIFIERS, _TOKEN, _RECEIPT = 2, 0, 1  # node offsets of BLAKE2s, which separate the hash's three uses


def token_bytes(client: int, server: int, shards: int = 1) -> int:
    """Bytes of a token on the wire, 8 to 16.

    With sets of these sizes, any two different identifiers, of one set or both, share a token with probability at most
    2^-40; in a run of this many shards, anywhere in it.
    """
    count = max(2, client + server)
    pairs = count * (count - 1) // 2 * shards
    return min(TOKEN_BYTES, max(8, -(-(40 + (pairs - 1).bit_length()) // 8)))


def row_count(client: int) -> int:
    """Number of rows that a client of this size sends."""
    return okvs.slots_for(client) + EXTRA


def hashed_identifiers(ids: Identifiers, tag: bytes, by: BitLoops) -> np.ndarray:
    """Hash each identifier with BLAKE2s, salted by the session's tag: uint8 (n, 32), 16 bytes key and 10 bytes word."""
    salt = hashlib.sha512(b"securevfl-psi identifiers" + tag).digest()[:16]
    salted = np.frombuffer(salt, dtype=np.uint8)
    out = np.empty((len(ids), HASH_BYTES), dtype=np.uint8)
    for rows in split(np.arange(len(ids))):
        for places, matrix in ids.iter_matrices(rows):
            length = matrix.shape[1]
            if length <= ROW_BYTES:
                messages = np.zeros((len(places), ROW_BYTES), dtype=np.uint8)
                messages[:, :length] = matrix
                out[rows[places]] = by.hash_rows(messages, length, salted, _IDENTIFIERS)
                continue
            for place, row in zip(places, matrix, strict=True):
                digest = hashlib.blake2s(row.tobytes(), salt=salt[:8], person=salt[8:], node_offset=_IDENTIFIERS)
                out[rows[place]] = np.frombuffer(digest.digest(), dtype=np.uint8)
    return out


class TransferParty:
    """Base of both ends: this party's hashed identifiers and their outputs.

    Args:
        ids: normalised, unique identifiers.
        session: the session that both parties agreed on.
        peer_size: size of the peer's set, as announced.
        max_set_size: largest set, own or peer's.
        pad_to: fill the set with random rows up to this size, so that the peer learns only a bound.
        path: code path of the loops, one of `engine.PATHS`; by default the fastest.

    Raises:
        SetSizeError: more identifiers than `max_set_size` or `pad_to`, or too many for the client's key-value store.
        IdentifierError: duplicate identifiers.
    """

    _encodes = False

    def __init__(
        self,
        ids: Sequence[str],
        session: Session,
        peer_size: int,
        *,
        max_set_size: int = MAX_SET_SIZE,
        pad_to: int | None = None,
        path: str | None = None,
    ) -> None:
        self.size = max(len(ids), pad_to or 0)
        """Number of rows that this party announces, padding included."""
        if max(self.size, peer_size) > max_set_size:
            raise SetSizeError(f"sets of {self.size} and {peer_size}; at most {max_set_size}: raise max_set_size")
        encoded = self.size if self._encodes else peer_size
        if encoded > okvs.MAX_KEYS:
            raise SetSizeError(
                f"a set of {encoded} identifiers to be encoded; at most {okvs.MAX_KEYS}: cut the sets into shards by a "
                "hash, or take 'dh'"
            )
        if pad_to is not None and len(ids) > pad_to:
            raise SetSizeError(f"{len(ids)} identifiers do not fit into pad_to={pad_to}: raise pad_to")
        self._ids = Identifiers.of_texts(ids)
        if self._ids.find_duplicates():
            raise IdentifierError("identifiers are doubled; call normalise first: its error lists the rows")
        self.peer_size, self._session = peer_size, session
        self.token_width = token_bytes(self.size, peer_size, session.shards)
        """Bytes of a token."""
        self._by = bit_loops(path)
        self._outputs: Outputs | None = None
        self._done: set[str] = set()

    @cached_property
    def _hashed_ids(self) -> np.ndarray:
        return hashed_identifiers(self._ids, self._session.dst, self._by)

    def _require_once(self, step: str) -> None:
        if step in self._done:
            raise PSIError(f"{step} was called out of order or twice; one session serves one intersection")
        self._done.add(step)

    @property
    def outputs(self) -> Outputs:
        """The outputs of this party's identifiers.

        Raises:
            PSIError: not known yet.
        """
        if self._outputs is None:
            raise PSIError("outputs were read before they are known: wait for the transfer")
        return self._outputs

    @property
    def is_complete(self) -> bool:
        """Whether the outputs of all this party's identifiers are known."""
        return self._outputs is not None

    def _compute_outputs(self, matrix: np.ndarray, seed: bytes, count: int, masked: np.ndarray | None) -> None:
        """Compute the outputs from T, or from Q and the tables of the code's words ∧ s."""
        slots = matrix[: okvs.slots_for(count)]
        dense = byte_tables(slots[-okvs.DENSE :])
        table = np.empty((len(self._ids), OUTPUT_BYTES), dtype=np.uint8)
        for start in range(0, len(table), _PART):
            hashed = self._hashed_ids[start : start + _PART]
            keys = np.ascontiguousarray(hashed[:, : okvs.KEY_BYTES])
            places, bits = okvs.slot_positions(keys, seed, count)
            rows = np.zeros((len(keys), ROW_BYTES), dtype=np.uint8)
            self._by.decode(places, bits, dense, slots, rows)
            if masked is not None:
                self._by.encode(hashed[:, okvs.KEY_BYTES :], masked, rows)
            part = table[start : start + _PART]
            part[:, :HASH_BYTES] = self._by.hash_rows(rows, ROW_BYTES, keys, _TOKEN)
            part[:, HASH_BYTES:] = self._by.hash_rows(rows, ROW_BYTES, keys, _RECEIPT)[:, : OUTPUT_BYTES - HASH_BYTES]
        self.__dict__.pop("_hashed_ids", None)  # 32 bytes an identifier that nothing reads again
        self._outputs = Outputs(table, self._session.dst)
