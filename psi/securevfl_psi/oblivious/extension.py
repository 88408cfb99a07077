"""OT extension with a linear code: from 512 base transfers to a million rows.

Orrù, Orsini and Scholl (CT-RSA 2017), over the code of `code`. The *encoder* has words D_j of 80 bits, the *decoder*
has s, 512 secret bits. The encoder has both keys of each column, the decoder the one that its bit of s chose:

    T_j, T'_j  rows of what the two keys of each column expand to (AES-128 in counter mode)
    U_j = T_j ⊕ T'_j ⊕ C(D_j)                        the encoder sends
    Q_j = T_j ⊕ (C(D_j) ∧ s)                         the decoder computes

So Q is linear in T and D, and where D_j ≠ D'_j, C(D_j) ∧ s and C(D'_j) ∧ s differ in 128 bits that the encoder does not
know. Keys serve one set of rows.

**Check.** A deviating encoder could send rows that are not codewords, and learn bits of s from the decoder's later
messages. So the decoder, once it has all rows, draws coefficients; the encoder answers with the sums ΣD_j and ΣT_j for
40 sets of them, and the decoder compares ΣQ_j with ΣT_j ⊕ (C(ΣD_j) ∧ s). 80 rows of random words at the end hide the
sums of D, as do the 88 or more slots that a key-value store leaves free and random: a sum of sums reveals something
only if it leaves out all of these rows and is a sum of the store's equations, for one of the 2^40 with probability at
most 2^(40 − 80 − 88). Rows that are not codewords pass if all 40 sums leave them out, 2^-40, or if the encoder guessed
the bits of s that they touch: g bits with probability 2^-g, and then it knows these g bits.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from securevfl_crypto.bits import CODE_BYTES, COLUMNS, ROW_BYTES, SUM_BYTES, BitLoops

from securevfl_psi.errors import MalformedError, SetSizeError
from securevfl_psi.oblivious.code import code_tables

__all__ = ["ANSWER_BYTES", "CHALLENGE_BYTES", "EXTRA", "ROWS", "Decoder", "Encoder", "round_to_blocks"]

ROWS = 1 << 15
"""Rows in one message."""
EXTRA = 80
"""Rows of random words that hide the sums."""
CHALLENGE_BYTES = 32
_SUMS = 8 * SUM_BYTES
ANSWER_BYTES = _SUMS * (CODE_BYTES + ROW_BYTES)
_OFF_STRIDE = 64  # without it, columns would be 4 KiB apart and compete for the same few cache lines


def round_to_blocks(count: int) -> int:
    """Round a number of rows up to full blocks of the transposition."""
    return -(-count // COLUMNS) * COLUMNS


class _Columns:
    """The pseudo-random columns that the keys expand to, read some rows at a time."""

    def __init__(self, keys: list[bytes], by: BitLoops) -> None:
        self._by = by
        # A counter from zero is safe: each key serves one stream.
        self._streams = [Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor() for key in keys]
        self._buffer = np.empty((COLUMNS, ROWS // 8 + _OFF_STRIDE), dtype=np.uint8)

    def next_rows(self, rows: int) -> np.ndarray:
        """Return the next rows of all columns, uint8 (512, rows / 8); valid until the next call."""
        size = rows // 8
        zeros = bytes(size)
        for stream, column in zip(self._streams, self._buffer, strict=True):
            stream.update_into(zeros, column[: size + 15].data)  # the library asks for a block less one byte of room
        return self._buffer[:, :size]


def _iter_chunks(count: int) -> Iterator[tuple[int, int]]:
    for start in range(0, count, ROWS):
        yield start, min(ROWS, count - start)


def _sum_rows(rows: np.ndarray, challenge: bytes, count: int, by: BitLoops) -> np.ndarray:
    """Compute 40 sums of the first `count` rows with a challenge's coefficients; pads narrower rows with zeros."""
    stream = Cipher(algorithms.AES(challenge[:16]), modes.CTR(challenge[16:])).encryptor()
    total = np.zeros((_SUMS, ROW_BYTES), dtype=np.uint8)
    wide = np.zeros((ROWS, ROW_BYTES), dtype=np.uint8)
    for start, size in _iter_chunks(count):
        coefficients = np.frombuffer(stream.update(bytes(SUM_BYTES * size)), dtype=np.uint8).reshape(-1, SUM_BYTES)
        part = rows[start : start + size]
        if part.shape[1] < ROW_BYTES:
            wide[:size, : part.shape[1]] = part
            part = wide[:size]
        total ^= by.sum_rows(part, coefficients)
    return total


class Encoder:
    """The party that has the words.

    Args:
        keys: both keys of each column, 512 of 16 bytes each.
        words: uint8 (m, at least 10), of which the first 10 bytes count.
        by: the loops.

    Attributes:
        matrix: T, uint8 (at least m + 80, 64), filled as far as rows were sent.
        count: number of rows to send, m + 80.
        complete: whether `encode_rows` yielded all of them.
    """

    def __init__(self, keys: tuple[list[bytes], list[bytes]], words: np.ndarray, by: BitLoops) -> None:
        self._by = by
        more = np.frombuffer(secrets.token_bytes(EXTRA * words.shape[1]), dtype=np.uint8).reshape(EXTRA, -1)
        self._words: np.ndarray | None = np.concatenate([words, more])
        self.count = len(words) + EXTRA
        self._columns = [_Columns(part, by) for part in keys]
        self.matrix = np.empty((round_to_blocks(self.count), ROW_BYTES), dtype=np.uint8)
        self.complete = False

    def encode_rows(self) -> Iterator[np.ndarray]:
        """Yield U in chunks of uint8 (at most 32768, 64)."""
        words = self._require_words()
        for start, size in _iter_chunks(self.count):
            block = round_to_blocks(size)
            one, other = (columns.next_rows(block) for columns in self._columns)
            np.bitwise_xor(one, other, out=other)
            self.matrix[start : start + block] = self._by.transpose(one)
            sent = self._by.transpose(other)[:size]
            self._by.encode(words[start : start + size], code_tables(), sent)
            self.complete = start + size == self.count
            yield sent

    def _require_words(self) -> np.ndarray:
        if self._words is None:
            raise MalformedError("a second challenge came; the words serve one, which was answered")
        return self._words

    def answer_challenge(self, challenge: bytes) -> bytes:
        """Compute the requested sums. Call it once: two sets of sums would show more of the words.

        Raises:
            MalformedError: a wrong length, or a second challenge.
        """
        words = self._require_words()
        if len(challenge) != CHALLENGE_BYTES:
            raise MalformedError(f"a challenge of {len(challenge)} bytes; expected {CHALLENGE_BYTES}")
        self._words = None  # makes a second challenge fail in `_require_words`
        of_words = _sum_rows(words, challenge, self.count, self._by)[:, :CODE_BYTES]
        return of_words.tobytes() + _sum_rows(self.matrix, challenge, self.count, self._by).tobytes()


class Decoder:
    """The party that has the secret.

    Args:
        secret: s, uint8 (64,).
        keys: the key of each column that its bit of s chose.
        count: number of rows to receive, m + 80.
        by: the loops.

    Attributes:
        matrix: Q, uint8 (at least m + 80, 64), filled as far as rows arrived.
        masked: tables of the code's words ∧ s, for `Loops.encode`.
    """

    def __init__(self, secret: np.ndarray, keys: list[bytes], count: int, by: BitLoops) -> None:
        self._secret, self._count, self._by = secret, count, by
        self._columns = _Columns(keys, by)
        self._challenge: bytes | None = None
        self.matrix = np.empty((count, ROW_BYTES), dtype=np.uint8)  # unwritten pages take no memory
        self.done = 0
        self.masked = code_tables() & secret

    def take_chunk(self, rows: np.ndarray) -> None:
        """Take the next chunk of U, uint8 (k, 64): full, unless it is the last.

        Raises:
            MalformedError: wrong type, shape or number of rows.
            SetSizeError: more than announced.
        """
        if not isinstance(rows, np.ndarray) or rows.dtype != np.uint8 or rows.ndim != 2 or rows.shape[1] != ROW_BYTES:
            raise MalformedError(f"a part of the encoded set is not uint8 (n, {ROW_BYTES})")
        if self.done + len(rows) > self._count:
            raise SetSizeError(f"the encoded set contains {self.done + len(rows)} rows or more; {self._count} are due")
        due = min(ROWS, self._count - self.done)
        if len(rows) != due:
            raise MalformedError(f"the encoded set contains a chunk of {len(rows)} rows where {due} are due: use split")
        part = self.matrix[self.done : self.done + due]
        np.bitwise_and(rows, self._secret, out=part)
        part ^= self._by.transpose(self._columns.next_rows(round_to_blocks(due)))[:due]
        self.done += due

    @property
    def is_complete(self) -> bool:
        """Whether all rows arrived."""
        return self.done == self._count

    def draw_challenge(self) -> bytes:
        """Draw the challenge that asks the encoder for sums, 32 bytes.

        Raises:
            MalformedError: not all rows arrived.
        """
        # Drawn only now: an encoder that knew the coefficients could send wrong rows that cancel in every sum.
        if not self.is_complete:
            raise MalformedError(f"the encoded set ended after {self.done} of {self._count} rows")
        self._challenge = secrets.token_bytes(CHALLENGE_BYTES)
        return self._challenge

    def check_answer(self, answer: bytes) -> None:
        """Raise unless the answer shows that the rows are codewords.

        Raises:
            MalformedError: wrong sums, sums of a wrong length, or an answer before the challenge.
        """
        if self._challenge is None or len(answer) != ANSWER_BYTES:
            raise MalformedError(f"sums of {len(answer)} bytes; expected {ANSWER_BYTES}, after the challenge")
        octets = np.frombuffer(answer, dtype=np.uint8)
        words = np.ascontiguousarray(octets[: _SUMS * CODE_BYTES].reshape(_SUMS, CODE_BYTES))
        right = octets[_SUMS * CODE_BYTES :].reshape(_SUMS, ROW_BYTES).copy()
        self._by.encode(words, self.masked, right)
        own = _sum_rows(self.matrix, self._challenge, self._count, self._by)
        if not np.array_equal(own, right):
            raise MalformedError("the encoded set is not made of codewords; the peer does not follow the protocol")
