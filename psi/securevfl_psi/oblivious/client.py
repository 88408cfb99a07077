"""The client of `ot`: encodes its set and compares tokens. See `common` for the protocol."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from functools import cached_property

import numpy as np
from securevfl_crypto.bits import HASH_BYTES

from securevfl_psi import okvs
from securevfl_psi.arrays import match_rows
from securevfl_psi.blinding import RowBuffer
from securevfl_psi.chunks import require_rows
from securevfl_psi.errors import MalformedError, PSIError
from securevfl_psi.group import TOKEN_BYTES
from securevfl_psi.oblivious.base import Giver
from securevfl_psi.oblivious.common import TransferParty
from securevfl_psi.oblivious.extension import Encoder

__all__ = ["OTClient"]


class OTClient(TransferParty):
    """The party that encodes its set and compares tokens. See `End` for its arguments."""

    _encodes = True
    _encoder: Encoder | None = None
    _seed: bytes | None = None
    _answered = False
    _theirs: RowBuffer | None = None

    @cached_property
    def _key_giver(self) -> Giver:
        return Giver(self._session.dst)

    @property
    def first_message(self) -> bytes:
        """The first message of the base transfers, 32 bytes."""
        return self._key_giver.message

    @cached_property
    def _store(self) -> okvs.SlotTable:
        """The key-value store: the identifiers' words under their keys, and random pairs as padding."""
        hashed = self._hashed_ids
        keys = np.ascontiguousarray(hashed[:, : okvs.KEY_BYTES])
        words = np.ascontiguousarray(hashed[:, okvs.KEY_BYTES :])
        more = self.size - len(self._ids)
        if more:
            filling = np.frombuffer(secrets.token_bytes(HASH_BYTES * more), dtype=np.uint8).reshape(more, -1)
            keys = np.concatenate([keys, filling[:, : okvs.KEY_BYTES]])
            words = np.concatenate([words, filling[:, okvs.KEY_BYTES :]])
        return okvs.encode_table(keys, words, self._by)

    @property
    def seed(self) -> bytes:
        """Seed of the key-value store's positions, 32 bytes; the first call encodes the set."""
        return self._store.seed if self._seed is None else self._seed

    def take_keys(self, choices: bytes) -> None:
        """Take the message of `OTServer.make_choices`. Call it once: the keys serve one set of rows.

        Raises:
            MalformedError: a wrong length, bytes that encode no point, or a point of small order.
            PSIError: called a second time.
        """
        self._require_once("take_keys")
        self._encoder = Encoder(self._key_giver.derive_keys(choices), self._store.slots, self._by)
        self._seed = self._store.seed
        del self._store  # the encoder has its slots now

    def encode_rows(self) -> Iterator[np.ndarray]:
        """Yield U, the encoded set, in chunks of uint8 (k, 64), computed on demand. Call it once.

        Raises:
            PSIError: called before `take_keys`, or a second time.
        """
        if self._encoder is None:
            raise PSIError("encode_rows was called out of order: take_keys comes first")
        self._require_once("encode_rows")
        yield from self._encoder.encode_rows()

    def answer_challenge(self, challenge: bytes) -> bytes:
        """Compute the sums that `OTServer.draw_challenge` asks for. Call it once.

        Raises:
            PSIError: called a second time.
            MalformedError: a wrong length, or a challenge before all rows were sent.
        """
        if self._encoder is None or not self._encoder.complete:
            raise MalformedError("a challenge came before the server had all rows")
        self._require_once("answer_challenge")
        self._answered = True
        return self._encoder.answer_challenge(challenge)

    def evaluate(self) -> None:
        """Compute this party's outputs. Needs no further message; `find_common_rows` calls it if nobody did before."""
        if not self._answered:
            raise PSIError("evaluate was called out of order: answer_challenge comes first")
        if self._encoder is not None:
            self._compute_outputs(self._encoder.matrix, self.seed, self.size, None)
            self._encoder = None

    def take_tokens(self, tokens: np.ndarray) -> None:
        """Take a chunk of the server's tokens, uint8 (k, `token_width`).

        Raises:
            MalformedError: wrong type or shape.
            SetSizeError: more than announced.
        """
        what = "the server's set"
        require_rows(tokens, self.token_width, what)
        if self._theirs is None:
            self._theirs = RowBuffer(TOKEN_BYTES, self.peer_size, what)
        self._theirs.add_rows(_widen_tokens(tokens))

    def find_common_rows(self) -> np.ndarray:
        """Return this party's rows that the server has, ascending, int64 (k,).

        Raises:
            PSIError: called before `answer_challenge`, or a second time.
            SetSizeError: fewer tokens than announced.
            MalformedError: two equal tokens.
        """
        self._require_once("find_common_rows")
        self.evaluate()
        theirs = (self._theirs or RowBuffer(TOKEN_BYTES, 0, "the server's set")).take_all(self.peer_size)
        own = self.outputs.cut_tokens()[:, : self.token_width]
        return match_rows(_widen_tokens(own), theirs)[0]


def _widen_tokens(tokens: np.ndarray) -> np.ndarray:
    """Append zeros up to 16 bytes, the width that `match` compares."""
    wide = np.zeros((len(tokens), TOKEN_BYTES), dtype=np.uint8)
    wide[:, : tokens.shape[1]] = tokens
    return wide
