"""The server of `ot`: checks the encoded set and sends the tokens of its set. See `common` for the protocol."""

from __future__ import annotations

import secrets
from collections.abc import Iterator

import numpy as np

from securevfl_psi import okvs
from securevfl_psi.arrays import secret_order
from securevfl_psi.chunks import split
from securevfl_psi.errors import MalformedError, PSIError
from securevfl_psi.oblivious.base import TRANSFERS, Chooser
from securevfl_psi.oblivious.common import TransferParty, row_count
from securevfl_psi.oblivious.extension import Decoder

__all__ = ["OTServer"]


class OTServer(TransferParty):
    """The party that has the secret; it learns the size of the client's set and which of its rows the client proves.

    See `End` for its arguments.
    """

    _chooser: Chooser | None = None
    _seed: bytes | None = None
    _decoder: Decoder | None = None
    _checked = False

    def take_message(self, message: bytes) -> None:
        """Take the client's `first_message`. Call it once.

        Raises:
            MalformedError: the bytes encode no point of the prime-order subgroup.
            PSIError: called a second time.
        """
        self._require_once("take_message")
        if len(message) != 32:
            raise MalformedError(f"a first message of {len(message)} bytes; expected 32")
        secret = np.frombuffer(secrets.token_bytes(TRANSFERS // 8), dtype=np.uint8)
        choices = (secret[:, None] >> np.arange(8, dtype=np.uint8) & np.uint8(1)).reshape(-1)
        self._chooser = Chooser(self._session.dst, choices, message)
        self._decoder = Decoder(secret, self._chooser.keys, row_count(self.peer_size), self._by)

    def prepare(self) -> None:
        """Hash this party's identifiers while the client encodes; `token_chunks` does it if nobody called this."""
        _ = self._hashed_ids

    def make_choices(self) -> bytes:
        """The chooser's answer, from which the client computes its keys, 16 KiB.

        Raises:
            PSIError: called before `take_message`.
        """
        if self._chooser is None:
            raise PSIError("make_choices was called out of order: take_message comes first")
        return self._chooser.answer

    def take_seed(self, seed: bytes) -> None:
        """Take the client's `seed`, 32 bytes. Call it once.

        Raises:
            MalformedError: a wrong length.
            PSIError: called a second time.
        """
        self._require_once("take_seed")
        if len(seed) != okvs.SEED_BYTES:
            raise MalformedError(f"a seed of {len(seed)} bytes; expected {okvs.SEED_BYTES}")
        self._seed = seed

    def take_rows(self, rows: np.ndarray) -> None:
        """Take a chunk of the encoded set, see `Decoder.take_chunk`."""
        self._require_decoder().take_chunk(rows)

    def _require_decoder(self) -> Decoder:
        if self._decoder is None or self._seed is None:
            raise PSIError("rows came out of order: the base transfers and the seed come first")
        return self._decoder

    @property
    def has_all_rows(self) -> bool:
        """Whether all rows of the client arrived."""
        return self._decoder is not None and self._decoder.is_complete

    def draw_challenge(self) -> bytes:
        """Draw the challenge that asks the client for sums, 32 bytes. Call it once.

        Raises:
            PSIError: called a second time.
            MalformedError: not all rows arrived.
        """
        self._require_once("draw_challenge")
        return self._require_decoder().draw_challenge()

    def check_answer(self, answer: bytes) -> None:
        """Raise unless the client's rows are codewords. Call it once.

        Raises:
            PSIError: called a second time.
            MalformedError: the sums do not fit codewords.
        """
        self._require_once("check_answer")
        self._require_decoder().check_answer(answer)
        self._checked = True

    def token_chunks(self) -> Iterator[np.ndarray]:
        """Yield T(y) of this party's set in a secret order: chunks of uint8 (k, `token_width`). Call it once.

        Padding is random bytes, which match no token.

        Raises:
            PSIError: called before `check_answer`, or a second time.
        """
        # Tokens of unchecked rows would show a deviating client bits of the secret, and so of other identifiers.
        if not self._checked or self._seed is None:
            raise PSIError("token_chunks was called out of order: check_answer comes first")
        self._require_once("token_chunks")
        decoder = self._require_decoder()
        self._compute_outputs(decoder.matrix, self._seed, self.peer_size, decoder.masked)
        self._decoder = None
        width = self.token_width
        own = self.outputs.cut_tokens()[:, :width]
        for rows in split(secret_order(self.size)):
            tokens = np.frombuffer(bytearray(secrets.token_bytes(width * len(rows))), dtype=np.uint8)
            tokens = tokens.reshape(-1, width)
            real = rows < len(own)
            tokens[real] = own[rows[real]]
            yield tokens

    def find_proven_rows(self, proofs: np.ndarray) -> np.ndarray:
        """Find the rows that the client proved to have, in the order of its proofs: int64 (k,). Call it once.

        Raises:
            PSIError: called before the tokens were computed, or a second time.
            MalformedError: a proof matches no row of this party, or two proofs are equal.
        """
        outputs = self.outputs
        self._require_once("find_proven_rows")
        return outputs.find_proven_rows(proofs)
