"""OT extension: from 128 base transfers to any number of random transfers whose choices the chooser chooses.

Ishai, Kilian, Nissim and Petrank (CRYPTO 2003). The *giver* has Δ, 128 secret bits, and of each pair of base keys the
one that its bit of Δ chose; the *chooser* has both. For a batch with choices x:

    t_i, t'_i  columns that the two keys of pair i expand to (AES-128 in counter mode)
    u_i = t_i ⊕ t'_i ⊕ x                              the chooser sends, 16 bytes a transfer
    q_i = t_i ⊕ Δ_i·x                                 the giver computes: from its key, and u_i where Δ_i is 1

so row j of the giver is q_j = t_j ⊕ x_j·Δ, and the pads are H(q_j, j), H(q_j ⊕ Δ, j) and, at the chooser, H(t_j, j). A
batch is one message, from the chooser to the giver. Streams and numbers of batches only advance.

**Check.** A chooser that puts different choices into different columns could learn bits of Δ from what the pads are
used for, and with Δ both pads of each transfer. So it also sends hashes h(x) and h(t_i) of whole columns, and the giver
compares h(q_i) with h(t_i) ⊕ Δ_i·h(x). h is linear, from GF(2)^m to GF(2^128): the polynomial hash of AES-GCM, under a
key that is a digest of the session, the batch and all columns. One block of random choices at the end hides h(x), and
h(t_i) follows from h(x) and what the giver knows, so the check reveals nothing.

It is the check of columns of Roy's SoftSpokenOT (CRYPTO 2022, eprint 2022/192) for one base transfer a column, which
the revised version of Keller, Orsini and Scholl (eprint 2015/546, figure 10) adopted. Their first version (CRYPTO 2015)
adds up *rows*. Its proof relied on a lemma that Roy refutes, with an attack that costs too much at common sizes; no
proof is known, so it is not used here.

**What is claimed.** The columns of two different choice vectors of m bits have the same hash with probability at most
(m/128 + 1)·2^-128, and 8,128 pairs of columns exist. Otherwise, all columns that pass without a guess contain the same
choices, and for each of the g others the chooser guessed a bit of Δ: it passes with probability 2^-g, then knows these
g bits, and 128 − g bits remain unknown. As the key is a digest (Fiat and Shamir), a chooser may try q batches
beforehand, which multiplies the first probability by q. So, with SHA-256 a random oracle, AES an ideal cipher, and
ideal base transfers, a chooser that deviates arbitrarily gets at most one pad of each transfer, but for q·m·2^-122 and
the hash's bound (`row_hash`). A giver sends nothing. The base transfers are proved against parties that follow the
protocol and in single games only (`base`), so the whole is *not* proved secure against deviating parties. What the pads
are used for is not checked either."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Iterator

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from securevfl_crypto.bits import BitLoops, bit_loops
from securevfl_crypto.errors import MalformedError, ReusedError
from securevfl_crypto.transfer.base import BaseChooser, BaseGiver
from securevfl_crypto.transfer.row_hash import PART, RowHash
from securevfl_crypto.transfer.unique import Unique

__all__ = ["COLUMNS", "MOST", "SUMS", "TransferChooser", "TransferGiver", "column_bytes"]

COLUMNS = 128
MOST = 1 << 16
"""Transfers of a batch: its columns, 1 MiB, stay in the second cache of most machines."""
SUMS = COLUMNS + 1
"""Hashes of a batch's check: that of the choices, and one of each column."""
_BASE = b"securevfl base transfer of 128 columns 1"
_BATCH = b"securevfl extended transfers 1"
_BLOCK = 128  # rows of one block of the polynomial hash
_SEGMENTS = 4  # 128 columns each, side by side in the transposition of 512 columns
_ROOM = 15  # the library asks for a block less one byte beyond the output
_NONCE = bytes(12)  # adds the same constant to all hashes of a batch, under a key that serves one batch


def column_bytes(count: int) -> int:
    """Bytes of a column of a batch: the choices in full blocks, and the block that hides their hash."""
    return (-(-count // _BLOCK) + 1) * _BLOCK // 8


class _Streams:
    """The columns that keys expand to. Each key serves one stream, so its counter may start at zero."""

    def __init__(self, keys: list[bytes]) -> None:
        self._streams = [Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor() for key in keys]

        self._buffer = np.empty((COLUMNS, _ROOM), dtype=np.uint8)

    def next_columns(self, size: int) -> np.ndarray:
        """The next bytes of all columns, uint8 (128, size), each contiguous; valid until the next call."""
        zeros = bytes(size)
        if self._buffer.shape[1] < size + _ROOM:  # fresh pages for each batch would cost as much as its AES
            self._buffer = np.empty((COLUMNS, size + _ROOM), dtype=np.uint8)
        for stream, column in zip(self._streams, self._buffer, strict=True):
            stream.update_into(zeros, column[: size + _ROOM].data)
        return self._buffer[:, :size]


def _transpose(columns: np.ndarray, by: BitLoops) -> np.ndarray:
    """Columns, uint8 (128, k), to rows, uint64 (at least 8 k, 2)."""
    size = columns.shape[1]
    quarter = -(-size // (64 * _SEGMENTS)) * 64  # the transposition takes columns of full 64 bytes
    segments = np.zeros((_SEGMENTS, COLUMNS, quarter), dtype=np.uint8)
    for start, segment in zip(range(0, size, quarter), segments, strict=False):
        part = columns[:, start : start + quarter]
        segment[:, : part.shape[1]] = part
    rows = by.transpose(segments.reshape(_SEGMENTS * COLUMNS, quarter))
    whole = rows.view(np.complex128)  # 16 bytes are copied at once, as they are
    return np.ascontiguousarray(whole.T).reshape(-1, 1).view(np.uint64)


def _iter_rows(columns: np.ndarray, count: int, by: BitLoops) -> Iterator[tuple[int, np.ndarray]]:
    """The first `count` rows in parts that stay in the cache: the number of the first one, and uint64 (k, 2)."""
    for start in range(0, count, PART):
        size = min(PART, count - start)
        yield start, _transpose(columns[:, start // 8 : -(-(start + size) // 8)], by)[:size]


class _ColumnHash:
    """h, and the key of the batch's row hash, from a digest of all that the batch consists of.

    Attributes:
        row_key: for `RowHash`, 16 bytes.
    """

    def __init__(self, tag: bytes, batch: int, count: int, columns: np.ndarray) -> None:
        digest = hashlib.sha256(_BATCH + len(tag).to_bytes(8, "big") + tag)
        digest.update(batch.to_bytes(8, "big") + count.to_bytes(8, "big"))
        digest.update(columns.data)
        key = digest.digest()
        self._gcm = AESGCM(key[:16])
        self.row_key = key[16:]
        self._zero = self._authenticate(np.zeros(columns.shape[1], dtype=np.uint8))

    def hash_choices(self, packed: np.ndarray) -> np.ndarray:
        """h without its constant, uint8 (16,)."""
        tags = np.frombuffer(self._authenticate(packed) + self._zero, dtype=np.uint8)
        return np.asarray(tags[:16] ^ tags[16:])

    def hash_columns(self, columns: np.ndarray) -> np.ndarray:
        """h of each column, with the same constant: uint8 (128, 16)."""
        return np.frombuffer(b"".join(map(self._authenticate, columns)), dtype=np.uint8).reshape(-1, 16)

    def _authenticate(self, column: np.ndarray) -> bytes:
        return self._gcm.encrypt(_NONCE, b"", column.data)  # of associated data alone: NIST SP 800-38D's GMAC


class TransferChooser(Unique):
    """The party that chooses. In the base transfers it is the giver.

    Args:
        tag: the session's tag, the same at both parties.
        path: code path of the transposition, one of `engine.PATHS`; by default the fastest.

    Attributes:
        first_message: for `TransferGiver`, 32 bytes.
    """

    def __init__(self, tag: bytes, *, path: str | None = None) -> None:
        super().__init__()
        self._tag, self._by, self._row_hash = tag, bit_loops(path), RowHash()
        self._base: BaseGiver | None = BaseGiver(tag, COLUMNS, domain=_BASE)
        self._streams: tuple[_Streams, _Streams] | None = None
        self._batch = 0
        self.first_message = self._base.message

    def take_answer(self, answer: bytes) -> None:
        """Take the giver's answer, 4 KiB. Call it once.

        Raises:
            MalformedError: a wrong length, bytes that encode no point, or a point of small order.
            ReusedError: called a second time.
        """
        self._require_process()
        if self._base is None:
            raise ReusedError("the base transfers were answered before; make a new TransferChooser")
        zeros, ones = self._base.derive_keys(answer)
        self._base = None
        self._streams = _Streams(zeros), _Streams(ones)

    def choose(self, choices: np.ndarray, words: int = 1) -> tuple[list[np.ndarray], np.ndarray]:
        """Make a batch.

        Args:
            choices: 0 or 1, uint8 (n,), n from 1 to 65,536.
            words: words of a pad.

        Returns:
            The message for the giver, columns uint8 (128, `column_bytes`) and hashes uint8 (129, 16); and the chosen
            pads, uint64 (n, words).

        Raises:
            MalformedError: choices of another type, shape or value.
            ReusedError: the base transfers are not answered, or this process is a fork.
        """
        self._require_process()
        if self._streams is None:
            raise ReusedError("choose was called out of order: take_answer comes first")
        count = len(check_choices(choices))
        _check_batch(count, words)
        size = column_bytes(count)
        packed = np.frombuffer(bytearray(secrets.token_bytes(size)), dtype=np.uint8)
        whole = count // 8
        packed[:whole] = np.packbits(choices[: 8 * whole], bitorder="little")
        if count % 8:
            mask = np.uint8((1 << count % 8) - 1)
            packed[whole] = packed[whole] & ~mask | np.packbits(choices[8 * whole :], bitorder="little")[0]
        own, other = (streams.next_columns(size) for streams in self._streams)
        columns = np.bitwise_xor(own, other, order="C")
        columns ^= packed
        check = _ColumnHash(self._tag, self._batch, count, columns)
        self._batch += 1
        sums = np.concatenate([check.hash_choices(packed)[None], check.hash_columns(own)])
        self._row_hash.rekey(check.row_key)
        pads = np.empty((count, words), dtype=np.uint64)
        for start, rows in _iter_rows(own, count, self._by):
            self._row_hash.hash_rows(rows, pads[start : start + len(rows)], start)
        return [columns, sums], pads


class TransferGiver(Unique):
    """The party that gets both pads of each transfer. In the base transfers it is the chooser.

    Args:
        tag: the session's tag, the same at both parties.
        first_message: of the `TransferChooser`, 32 bytes.
        path: code path of the transposition, one of `engine.PATHS`; by default the fastest.

    Attributes:
        answer: for `TransferChooser.take_answer`, 4 KiB.

    Raises:
        MalformedError: the message encodes no point of the prime-order subgroup.
    """

    def __init__(self, tag: bytes, first_message: bytes, *, path: str | None = None) -> None:
        super().__init__()
        self._tag, self._by, self._row_hash = tag, bit_loops(path), RowHash()
        delta = np.frombuffer(secrets.token_bytes(COLUMNS // 8), dtype=np.uint8)
        bits = np.unpackbits(delta, bitorder="little")
        base = BaseChooser(tag, bits, first_message, domain=_BASE)
        self.answer = base.answer
        self._shift = np.tile(delta.view(np.uint64), (PART, 1))  # Δ for each row of a part
        self._masks = (np.uint8(0) - bits)[:, None]  # selects without a branch
        self._streams: _Streams | None = _Streams(base.keys)
        self._batch = 0

    def give(self, message: list[np.ndarray], count: int, words: int = 1) -> tuple[np.ndarray, np.ndarray]:
        """Take a batch.

        Args:
            message: of `TransferChooser.choose`.
            count: of its choices.
            words: words of a pad.

        Returns:
            The pads of choice 0 and of choice 1, uint64 (count, words) each.

        Raises:
            MalformedError: arrays of other types or shapes; or the check failed: the chooser deviates. Then nothing
                was returned, and no later batch is taken, as a chooser that may guess again learns Δ bit by bit.
            ReusedError: a check failed before, or this process is a fork.
        """
        self._require_process()
        if self._streams is None:
            raise ReusedError("a batch of this chooser failed its check; set up transfers again, with a peer you trust")
        _check_batch(count, words)
        size = column_bytes(count)
        columns, sums = message
        for array, shape in ((columns, (COLUMNS, size)), (sums, (SUMS, 16))):
            if not isinstance(array, np.ndarray) or array.dtype != np.uint8 or array.shape != shape:
                raise MalformedError(f"a batch of {count} transfers contains an array that is not uint8 {shape}")
        columns = np.ascontiguousarray(columns)
        check = _ColumnHash(self._tag, self._batch, count, columns)
        self._batch += 1
        own = self._streams.next_columns(size)
        for few in range(0, COLUMNS, 16):  # temporary arrays of 128 KiB at most
            own[few : few + 16] ^= columns[few : few + 16] & self._masks[few : few + 16]
        expected = sums[1:] ^ (sums[0] & self._masks)
        if not hmac.compare_digest(check.hash_columns(own).tobytes(), expected.tobytes()):
            self._streams = None
            raise MalformedError("choices differ between columns; the peer does not follow the protocol")
        self._row_hash.rekey(check.row_key)
        zeros, ones = np.empty((2, count, words), dtype=np.uint64)
        for start, rows in _iter_rows(own, count, self._by):
            part = slice(start, start + len(rows))
            self._row_hash.hash_rows(rows, zeros[part], start)
            np.bitwise_xor(rows, self._shift[: len(rows)], out=rows)
            self._row_hash.hash_rows(rows, ones[part], start)
        return zeros, ones


def check_choices(choices: np.ndarray) -> np.ndarray:
    """The choices.

    Raises:
        MalformedError: they are not zeros and ones, uint8 (n,).
    """
    if not isinstance(choices, np.ndarray) or choices.dtype != np.uint8 or choices.ndim != 1:
        kind = f"{choices.dtype} {choices.shape}" if isinstance(choices, np.ndarray) else type(choices).__name__
        raise MalformedError(f"choices are {kind}; zeros and ones, uint8 (n,), were expected")
    if choices.size and choices.max() > 1:
        raise MalformedError(f"a choice is {choices.max()}; 0 and 1 are possible")
    return choices


def _check_batch(count: int, words: int) -> None:
    if not 1 <= count <= MOST:
        raise MalformedError(f"a batch of {count} transfers; 1 to {MOST} are possible: take several")
    if words < 1:
        raise MalformedError(f"pads of {words} words; at least 1 is needed")
