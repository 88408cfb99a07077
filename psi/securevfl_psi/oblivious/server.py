"""The server of `ot`: it checks the encoded set, and sends tokens of its own. See `common` for the protocol."""

from __future__ import annotations

import secrets
from collections.abc import Iterator

import numpy as np

from securevfl_psi import okvs
from securevfl_psi.arrays import secret_order
from securevfl_psi.chunks import split
from securevfl_psi.errors import MalformedError, PSIError
from securevfl_psi.oblivious.base import TRANSFERS, Chooser
from securevfl_psi.oblivious.common import End, row_count, token_bytes
from securevfl_psi.oblivious.extension import Decoder

__all__ = ["Server"]


class Server(End):
    """The party with the secret; it learns the other set's size and which of its rows the client proves.

    See `End` for its arguments.
    """

    _chooser: Chooser | None = None
    _seed: bytes | None = None
    _decoder: Decoder | None = None
    _checked = False

    def take_message(self, message: bytes) -> None:
        """The client's `message`. Once.

        Raises:
            MalformedError: bytes that are no point of the subgroup of prime order.
            PSIError: called a second time.
        """
        self._once("take_message")
        if len(message) != 32:
            raise MalformedError(f"a first message of {len(message)} bytes; 32 were expected")
        secret = np.frombuffer(secrets.token_bytes(TRANSFERS // 8), dtype=np.uint8)
        choices = (secret[:, None] >> np.arange(8, dtype=np.uint8) & np.uint8(1)).reshape(-1)
        self._chooser = Chooser(self._session.dst, choices, message)
        self._decoder = Decoder(secret, self._chooser.keys, row_count(self.peer_size), self._by)

    def prepare(self) -> None:
        """Hashes the own identifiers, which needs nothing of the client's; `chunks` does if this was not called."""
        _ = self._hashed

    def choices(self) -> bytes:
        """What the client needs to make its keys, 16 KiB.

        Raises:
            PSIError: before `take_message`.
        """
        if self._chooser is None:
            raise PSIError("choices was called out of order: take_message comes first")
        return self._chooser.answer

    def take_seed(self, seed: bytes) -> None:
        """The client's `seed`, 32 bytes. Once.

        Raises:
            MalformedError: another length.
            PSIError: called a second time.
        """
        self._once("take_seed")
        if len(seed) != okvs.SEED_BYTES:
            raise MalformedError(f"a seed of {len(seed)} bytes; {okvs.SEED_BYTES} were expected")
        self._seed = seed

    def take_rows(self, rows: np.ndarray) -> None:
        """A part of the encoded set, see `Decoder.take`."""
        self._transfer().take(rows)

    def _transfer(self) -> Decoder:
        if self._decoder is None or self._seed is None:
            raise PSIError("rows came out of order: the base transfers and the seed come first")
        return self._decoder

    @property
    def encoded(self) -> bool:
        """Whether all rows of the client came."""
        return self._decoder is not None and self._decoder.complete

    def challenge(self) -> bytes:
        """Which sums the client has to give, 32 bytes. Once.

        Raises:
            PSIError: called a second time.
            MalformedError: before all rows came.
        """
        self._once("challenge")
        return self._transfer().challenge()

    def check(self, answer: bytes) -> None:
        """Refuses a client whose rows are no codewords. Once.

        Raises:
            PSIError: called a second time.
            MalformedError: other sums than those of codewords.
        """
        self._once("check")
        self._transfer().check(answer)
        self._checked = True

    def chunks(self) -> Iterator[np.ndarray]:
        """T(y) of the own set in a secret order: parts of uint8 (k, `token_bytes`). Once.

        What fills the set up is random bytes, which equal no token.

        Raises:
            PSIError: before `check`, without which a client could learn the secret; or for a second time.
        """
        if not self._checked or self._seed is None:
            raise PSIError("chunks was called out of order: check comes first")
        self._once("chunks")
        decoder = self._transfer()
        self._compute(decoder.matrix, self._seed, self.peer_size, decoder.masked)
        self._decoder = None
        width = token_bytes(self.size, self.peer_size)
        own = self.outputs.tokens()[:, :width]
        for rows in split(secret_order(self.size)):
            tokens = np.frombuffer(bytearray(secrets.token_bytes(width * len(rows))), dtype=np.uint8)
            tokens = tokens.reshape(-1, width)
            real = rows < len(own)
            tokens[real] = own[rows[real]]
            yield tokens

    def rows(self, proofs: np.ndarray) -> np.ndarray:
        """The own rows that the client proved to have, in the order of its proofs: int64 (k,). Once.

        Raises:
            PSIError: called before the tokens were made, or a second time.
            MalformedError: a proof of no own row, or one that comes twice.
        """
        outputs = self.outputs
        self._once("rows")
        return outputs.rows(proofs)
