"""Many small signed integers in one large plaintext, in slots of whole bytes.

A plaintext is ``Σ_k v_k 2^(8 k slot)``. Packing is linear: packed numbers add and scale slot by slot as long as no sum
leaves ±2^(8 slot − 1); a negative slot borrows from the next, and unpacking returns the loan. Slots are whole bytes so
that numpy packs a matrix by one copy: each value is shifted by half a slot to be non-negative, and the packed sum of
the shifts, a constant, is subtracted from the plaintext.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from gmpy2 import mpz

from securevfl_crypto.errors import MalformedError, OverflowRefused

__all__ = ["Packing"]

_OPENING = 8
"""Time of a decryption and a re-randomisation, in units of an encryption by the key's owner."""


@dataclass(frozen=True)
class Packing:
    """The layout of a matrix in plaintexts: several rows in each plaintext, or several plaintexts for each row.

    Attributes:
        slot: bytes of one signed value.
        columns: columns of the matrix.
        per: rows in one plaintext; 1 if a row needs several plaintexts.
        group: columns in one plaintext.
    """

    slot: int
    columns: int
    per: int
    group: int

    @classmethod
    def plan(cls, slot_bits: int, columns: int, room_bits: int, what: str, *, rows: int = 1, width: int = 1) -> Packing:
        """Plan the packing of a matrix with at most `rows` rows and values within ±2^(slot_bits − 1).

        With `per` rows in a plaintext, a product of (rows, width) with (width, columns) takes per·width encryptions
        and ⌈rows/per⌉ decryptions; the plan minimises their total cost.

        Args:
            slot_bits: bits of a value, with its sign.
            columns: columns of the matrix.
            room_bits: bits of a plaintext.
            what: names the matrix in the error.
            rows: the most rows.
            width: columns of the left factor.

        Raises:
            OverflowRefused: one value does not fit in a plaintext of `room_bits` bits.
        """
        slot = -(-slot_bits // 8)
        room = (room_bits - slot_bits) // (8 * slot) + 1  # the last slot has no other above it: it needs its bits only
        if room_bits < slot_bits:
            raise OverflowRefused(
                f"{what} needs {slot_bits} bits and a plaintext has room for {room_bits}: use a larger key, a larger "
                "learning rate at the cut or a smaller batch"
            )
        most = min(rows, max(1, room // columns))
        per = min(range(1, most + 1), key=lambda k: k * width + _OPENING * -(-rows // k))
        return cls(slot, columns, per, min(room, columns))

    @property
    def groups(self) -> int:
        """The number of plaintexts for one row."""
        return -(-self.columns // self.group)

    def plaintext_count(self, rows: int) -> int:
        """The number of plaintexts for a matrix of `rows` rows."""
        return -(-rows // self.per) * self.groups

    def shift_bits(self, place: int) -> int:
        """Bits by which the row at this place of a plaintext, from 0 to per − 1, is shifted."""
        return 8 * self.slot * self.columns * place

    def pack(self, values: np.ndarray) -> list[mpz]:
        """Pack a matrix, row by row and within a row group by group; missing rows at the end count as zero.

        Args:
            values: (rows, columns), int64, or an object array of integers of any size. An integer wider than its slot
                overflows into the next one, and only a sum with its counterpart cancels the overflow.

        Raises:
            OverflowRefused: an int64 is beyond ±2^(8 slot − 1).
        """
        table = self._slot_table(values)
        if values.dtype == object:
            return [_join_bytes(row.tolist(), 8 * self.slot) for row in table]
        count, low = table.shape[1], min(self.slot, 8)
        raw = (table.view(np.uint64) + np.uint64(1 << (8 * low - 1))).astype("<u8")
        if low < 8 and (raw >> np.uint64(8 * low)).any():
            raise OverflowRefused(f"a value beyond ±2^{8 * low - 1} in slots of {8 * low} bits: plan for wider ones")
        slots = np.zeros((len(table), count, self.slot), dtype=np.uint8)
        slots[:, :, :low] = raw.view(np.uint8).reshape(len(table), count, 8)[:, :, :low]
        data, width, bias = slots.tobytes(), count * self.slot, _bias_constant(self.slot, 8 * low - 1, count)
        return [mpz.from_bytes(data[i : i + width], "little") - bias for i in range(0, len(data), width)]

    def unpack(self, plaintexts: Sequence[mpz], rows: int) -> np.ndarray:
        """Unpack a matrix (rows, columns): int64 for slots of up to eight bytes, otherwise an object array.

        Raises:
            MalformedError: the number of plaintexts is wrong.
            OverflowRefused: a plaintext has content beyond the last slot or the last row.
        """
        if len(plaintexts) != self.plaintext_count(rows):
            raise MalformedError(f"{len(plaintexts)} plaintexts; {rows} rows take {self.plaintext_count(rows)}")
        count = self.per * self.group
        width, bias = count * self.slot, _bias_constant(self.slot, 8 * self.slot - 1, count)
        shifted = [plain + bias for plain in plaintexts]
        if any(value < 0 or value.bit_length() > 8 * width for value in shifted):
            raise self._overflow(f"a plaintext of {max(abs(p).bit_length() for p in plaintexts)} bits", 8 * width)
        data = b"".join([value.to_bytes(width, "little") for value in shifted])
        values = _split_slots(data, self.slot).reshape(-1, self.groups * self.group)
        table = values[:rows, : self.columns]
        if values[rows:].any() or values[:, self.columns :].any():
            raise self._overflow("a value in an unused slot", 0)
        return table

    def _overflow(self, what: str, fit: int) -> OverflowRefused:
        return OverflowRefused(
            f"{what}; {fit} bits fit: a value left its range, or the masks of the parties do not cancel (all parties "
            "must call in the same order)"
        )

    def _slot_table(self, values: np.ndarray) -> np.ndarray:
        """The slots of one plaintext in each row, zeros beyond the end of the matrix."""
        rows, full = -(-len(values) // self.per) * self.per, self.groups * self.group
        if values.shape != (rows, full):
            padded = np.zeros((rows, full), dtype=values.dtype)
            padded[: len(values), : self.columns] = values
            values = padded
        return np.ascontiguousarray(values).reshape(-1, self.per * self.group)


@lru_cache(maxsize=64)
def _bias_constant(slot: int, bits: int, count: int) -> mpz:
    """``Σ_k 2^(8 k slot + bits)`` for `count` slots: what shifts signed slots to be non-negative."""
    return _join_bytes([1 << bits] * count, 8 * slot)


def _split_slots(data: bytes, slot: int) -> np.ndarray:
    """The signed numbers in consecutive shifted slots, int64 or an object array."""
    if slot > 8:
        half, found = 1 << (8 * slot - 1), range(0, len(data), slot)
        result = np.empty(len(found), dtype=object)
        result[:] = [int.from_bytes(data[i : i + slot], "little") - half for i in found]
        return result
    wide = np.zeros((len(data) // slot, 8), dtype=np.uint8)
    wide[:, :slot] = np.frombuffer(data, dtype=np.uint8).reshape(-1, slot)
    return (wide.view("<u8")[:, 0] - np.uint64(1 << (8 * slot - 1))).astype(np.int64)


def _join_bytes(values: list[int], bits: int) -> mpz:
    packed = mpz(0)
    for value in reversed(values):
        packed = (packed << bits) + value
    return packed
