"""Oblivious key-value store: a table of random-looking slots that decodes stored keys to values and hides the keys.

Garimella, Pinkas, Rosulek, Trieu and Yanai (CRYPTO 2021, definition 2 and section 4); the three-position rows with a
few dense columns are those of Raghuraman and Rindal (CCS 2022, section 5). A key's row over GF(2) has a one in each of
three segments of the table, and `DENSE` random bits in the dense columns; its value is the xor of the slots where its
row is one. To encode is to solve that system: nearly all of it by peeling (a slot that one key alone touches can be set
last), the rest, the core, by elimination. Every slot that the system leaves free is filled with the operating system's
randomness, so for uniform values the table is uniform and independent of the keys.

Positions are pseudo-random: AES of the key under a seed that is drawn for each table and sent with it.

**Failure.** The system is singular only if a set of keys has rows that xor to zero. Their expected number is

    E(n) = Σ_{s even} C(n, s) p(s)³,   p(s) = Pr[s balls in w bins: each bin holds an even number],

for segments of w slots, and each such set also has to agree in the dense columns: Pr[singular] ≤ 2^-DENSE E(n).
`failure_exponent` evaluates this bound; with w = ⌈1.3 n / 3⌉ + 16 it is below 2^-40.6 for every n, and 2^-53 at 2^20.
A second event would be a core of more than `MAX_CORE` keys, too many to eliminate. It cannot happen for n ≤ `MAX_CORE`;
above, 1.3 slots a key are 6 % more than peeling needs (1.222), and the fluctuation of what it needs shrinks with √n: at
8192 keys the margin is ten standard deviations, 2^-79 (finite-size scaling: Dembo and Montanari, Annals of Applied
Probability 2008, whose constant was measured; this is an extrapolation, not a proof).

**Another seed.** `encode` tries another seed when one fails. Failed seeds are never sent, so an observer learns only
that the seed it sees did not fail for this set: the seed's distribution is within the failure probability, 2^-40, of
uniform. A table without dense columns would not have this property: it fails with probability about 0.7/n, so its seed
would noticeably exclude some sets.
"""

from __future__ import annotations

import math
import secrets
from dataclasses import dataclass

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from securevfl_crypto.bits import BitLoops, bit_loops
from securevfl_crypto.bits.portable import PortableBitLoops

from securevfl_psi.errors import MalformedError, PSIError, SetSizeError

__all__ = [
    "DENSE",
    "KEY_BYTES",
    "MAX_CORE",
    "MAX_KEYS",
    "SEED_BYTES",
    "SlotTable",
    "decode_table",
    "encode_table",
    "failure_exponent",
    "prf",
    "scale_fractions",
    "slot_positions",
    "slots_for",
]

# A block of AES, which maps keys to positions.
KEY_BYTES = 16
SEED_BYTES = 32
DENSE = 40
"""Dense columns; a multiple of 8."""
MAX_KEYS = 1 << 28
"""Slots are counted in 32 bits, which would do for eight times as many."""
MAX_CORE = 1 << 13
# Four seeds fail together with probability below 2^-160, so a fifth would only hide broken randomness.
_ATTEMPTS = 4
_SMALL = 1 << 15  # keys up to which compiling kernels takes longer than it saves
_CHUNK = 1 << 15  # keys decoded at a time: their words stay in the cache
_MAX_VALUE_BYTES = 64


def prf(key: bytes, blocks: np.ndarray) -> np.ndarray:
    """AES of each 16-byte row, uint8 (n, 16): a permutation, within n²/2^129 of a random function on n rows."""
    # One block for each input is what a block cipher is; ECB leaks equal inputs, and these are digests, all different.
    aes = Cipher(algorithms.AES(key), modes.ECB()).encryptor()  # noqa: S305
    return np.frombuffer(aes.update(np.ascontiguousarray(blocks).data), dtype=np.uint8).reshape(-1, 16)


def _segment_length(count: int) -> int:
    # A third of 1.3 slots a key; peeling needs 1.222 asymptotically. The 16 keep small sets below 2^-40 as well.
    return -(-13 * count // 30) + 16


def slots_for(count: int) -> int:
    """Number of slots in a table of `count` keys."""
    return 3 * _segment_length(count) + DENSE


@dataclass(frozen=True)
class SlotTable:
    """An encoded set, as it goes to the peer.

    Attributes:
        seed: determines the positions; `SEED_BYTES` bytes.
        slots: uint8 (`slots_for(count)`, L); the last `DENSE` are the dense columns.

    Raises:
        MalformedError: the seed or the slots have the wrong type or size.
    """

    seed: bytes
    slots: np.ndarray

    def __post_init__(self) -> None:
        if not isinstance(self.seed, bytes) or len(self.seed) != SEED_BYTES:
            raise MalformedError(f"a table's seed is {type(self.seed).__name__}; expected {SEED_BYTES} bytes")
        _require_values(self.slots, "a table's slots")
        sparse = len(self.slots) - DENSE
        if sparse < 3 * _segment_length(0) or sparse % 3 or len(self.slots) > slots_for(MAX_KEYS):
            raise MalformedError(
                f"a table of {len(self.slots)} slots; expected {DENSE} and three equal segments, {slots_for(0)} to "
                f"{slots_for(MAX_KEYS)} in all"
            )


def encode_table(keys: np.ndarray, values: np.ndarray, by: BitLoops | None = None) -> SlotTable:
    """Encode values under their keys.

    Args:
        keys: uint8 (n, 16), all different; the table hides them if the values are uniform to its reader.
        values: uint8 (n, L), L a multiple of 8 up to 64.
        by: the loops; by default the fastest for this many keys.

    Raises:
        MalformedError: keys or values of the wrong type or shape.
        SetSizeError: more than `MAX_KEYS` keys, or a different number of values.
        PSIError: two equal keys, which no table can encode.
    """
    _require_keys(keys)
    _require_values(values, "values")
    if len(keys) > MAX_KEYS or len(values) != len(keys):
        raise SetSizeError(f"{len(keys)} keys and {len(values)} values; the numbers must be equal, at most {MAX_KEYS}")
    words = np.ascontiguousarray(values).view(np.uint64)
    for _ in range(_ATTEMPTS):
        seed = secrets.token_bytes(SEED_BYTES)
        slots = _solve_slots(keys, words, seed) if by is None else _solve_slots(keys, words, seed, by)
        if slots is not None:
            return SlotTable(seed, slots.view(np.uint8))
    # Checked only after failures: equal keys fail under every seed, and sorting all keys is slow.
    if len(np.unique(keys, axis=0)) != len(keys):
        raise PSIError("two keys are equal; a table encodes one value for each key: drop duplicates first")
    raise PSIError(
        f"no table for {len(keys)} keys in {_ATTEMPTS} attempts, an event of probability 2^-160: "
        "the operating system's randomness is broken"
    )


def decode_table(table: SlotTable, keys: np.ndarray) -> np.ndarray:
    """Look up the value of each key, uint8 (n, L); a key that was not stored gives bytes that depend on the table only.

    Raises:
        MalformedError: keys of the wrong type or shape.
    """
    _require_keys(keys)
    slots = np.ascontiguousarray(table.slots).view(np.uint64)
    segment = (len(slots) - DENSE) // 3
    dense = _dense_tables(slots[-DENSE:])
    out = np.empty((len(keys), slots.shape[1]), dtype=np.uint64)
    for start in range(0, len(keys), _CHUNK):
        rows, bits = _hash_rows(keys[start : start + _CHUNK], table.seed, segment)
        value = _dense_part(dense, bits)
        for row in rows.T:
            value ^= slots.take(row, axis=0)
        out[start : start + _CHUNK] = value
    return out.view(np.uint8)


def failure_exponent(count: int) -> float:
    """log2 of the bound on the probability that one seed fails: 2^-DENSE E(n), see above.

    p(s) = s! [x^s] (cosh x)^w / w^s is at most s! (cosh x)^w / (x w)^s for every x > 0, as all coefficients are
    positive; the x taken solves x tanh x = s / w, the saddle point. O(n) memory.
    """
    if count < 2:
        return -math.inf
    w = _segment_length(count)
    s = np.arange(2, count + 1, 2)
    load = s / w
    x = np.where(load < 1, np.sqrt(load), load)
    for _ in range(12):  # Newton
        t = np.tanh(x)
        x = np.maximum(x - (x * t - load) / (t + x * (1 - t * t)), 1e-9)
    log_factorial = np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, count + 1)))])
    log_cosh = x + np.log1p(np.exp(-2 * x)) - math.log(2)
    even = np.minimum(0.0, log_factorial[s] - s * np.log(x * w) + w * log_cosh)
    terms = log_factorial[count] - log_factorial[s] - log_factorial[count - s] + 3 * even
    top = float(terms.max())
    return (top + math.log(float(np.exp(terms - top).sum()))) / math.log(2) - DENSE


def _require_keys(keys: np.ndarray) -> None:
    if not isinstance(keys, np.ndarray) or keys.dtype != np.uint8 or keys.ndim != 2 or keys.shape[1] != KEY_BYTES:
        raise MalformedError(f"keys are {_describe_array(keys)}; expected uint8 (n, {KEY_BYTES})")


def _require_values(values: np.ndarray, what: str) -> None:
    width = values.shape[1] if isinstance(values, np.ndarray) and values.ndim == 2 else 0
    if width == 0 or width % 8 or width > _MAX_VALUE_BYTES or values.dtype != np.uint8:
        raise MalformedError(
            f"{what} are {_describe_array(values)}; expected uint8 (n, L) with L a multiple of 8 up to "
            f"{_MAX_VALUE_BYTES}"
        )


def _describe_array(array: object) -> str:
    return f"{array.dtype} {array.shape}" if isinstance(array, np.ndarray) else f"a {type(array).__name__}"


def slot_positions(keys: np.ndarray, seed: bytes, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Each key's row in a table of `count` keys: its three slots, uint32 (n, 3), its dense bits, uint8 (n, DENSE / 8).

    A position is ⌊h w / 2^40⌋ for 40 bits h: within a factor 1 ± w/2^40 of uniform.
    """
    return _hash_rows(keys, seed, _segment_length(count))


def scale_fractions(fractions: np.ndarray, count: int) -> np.ndarray:
    """⌊h count / 2^40⌋ of 40 bits h, uint64 (n,), for counts up to 2^43: h is multiplied in two halves of 20 bits, as
    the whole product would pass 2^64 from a count of 2^24 on."""
    high, low = fractions >> np.uint64(20), fractions & np.uint64((1 << 20) - 1)
    return (high * np.uint64(count) + ((low * np.uint64(count)) >> np.uint64(20))) >> np.uint64(20)


def _hash_rows(keys: np.ndarray, seed: bytes, segment: int) -> tuple[np.ndarray, np.ndarray]:
    rows = np.empty((len(keys), 3), dtype=np.uint32)
    bits = np.empty((len(keys), DENSE // 8), dtype=np.uint8)
    for start in range(0, len(keys), _CHUNK):
        part = slice(start, start + _CHUNK)
        # Two AES keys give 256 bits a row: three words for the positions, of which 40 bits count, and the dense bits.
        low, high = prf(seed[:16], keys[part]), prf(seed[16:], keys[part])
        words = (low.view("<u8")[:, 0], low.view("<u8")[:, 1], high.view("<u8")[:, 0])
        for j, word in enumerate(words):
            place = scale_fractions(word >> np.uint64(24), segment)
            rows[part, j] = place + np.uint64(j * segment)
        bits[part] = high[:, 8 : 8 + DENSE // 8]
    return rows, bits


def _dense_tables(columns: np.ndarray) -> np.ndarray:
    """For each byte of dense bits the xor of the columns it selects: uint64 (DENSE / 8, 256, W)."""
    tables = np.zeros((DENSE // 8, 256, columns.shape[1]), dtype=np.uint64)
    for i, column in enumerate(columns):
        bit = 1 << (i % 8)
        tables[i // 8, bit : 2 * bit] = tables[i // 8, :bit] ^ column
    return tables


def _dense_part(tables: np.ndarray, bits: np.ndarray) -> np.ndarray:
    value: np.ndarray = tables[0].take(bits[:, 0], axis=0)
    for i in range(1, len(tables)):
        value ^= tables[i].take(bits[:, i], axis=0)
    return value


def _solve_slots(keys: np.ndarray, values: np.ndarray, seed: bytes, by: BitLoops | None = None) -> np.ndarray | None:
    """The slots, uint64 (m, W), or None where this seed's system is singular or its core too large."""
    count, width = values.shape
    size, segment = slots_for(count), _segment_length(count)
    rows, bits = _hash_rows(keys, seed, segment)
    by = by or (bit_loops() if count > _SMALL else PortableBitLoops())
    peeled = by.peel(rows, 3 * segment)
    core = peeled.core
    if len(core) > MAX_CORE:
        return None  # too large to eliminate in reasonable time: try another seed
    # Random first: slots that the system leaves free must be uniform, or the table would show which keys it encodes.
    slots = np.frombuffer(bytearray(secrets.token_bytes(8 * size * width)), dtype=np.uint64).reshape(size, width)
    if len(core) and not _eliminate_core(rows[core].T.astype(np.int64), bits[core], values[core], slots):
        return None
    # The core sets the dense columns, so it is solved before the peeled rows, which read them.
    tables = _dense_tables(slots[-DENSE:])
    rest = np.empty_like(values)
    for start in range(0, count, _CHUNK):
        part = slice(start, start + _CHUNK)
        rest[part] = values[part] ^ _dense_part(tables, bits[part])
    peeled.substitute(rest, slots)
    return slots


def _eliminate_core(rows: np.ndarray, bits: np.ndarray, values: np.ndarray, slots: np.ndarray) -> bool:
    """Solve the core by Gaussian elimination over GF(2), rows as whole numbers; sets its slots and the dense ones.

    Columns that no pivot takes keep their random content, so the solution is uniform among all. The dense columns are
    the lowest bits, so that they are pivots only where the sparse ones do not suffice.

    Returns:
        Whether the rows are independent.
    """
    columns, inverse = np.unique(rows, return_inverse=True)
    index = np.reshape(inverse, (3, -1)).T.tolist()
    dense = [int.from_bytes(row.tobytes(), "little") for row in bits]
    width = 8 * values.shape[1]
    pivots: dict[int, tuple[int, int]] = {}
    for places, low, value in zip(index, dense, values, strict=True):
        row, right = low, int.from_bytes(value.tobytes(), "little")
        for place in places:
            row ^= 1 << (DENSE + place)
        while row and (top := row.bit_length() - 1) in pivots:
            row ^= pivots[top][0]
            right ^= pivots[top][1]
        if not row:
            return False
        pivots[row.bit_length() - 1] = (row, right)
    where = np.concatenate([np.arange(len(slots) - DENSE, len(slots)), columns])
    solution = [int.from_bytes(slot.tobytes(), "little") for slot in slots[where]]
    for top in sorted(pivots):  # from the lowest: a row has ones only below its pivot, and those are solved by then
        row, right = pivots[top]
        row ^= 1 << top
        while row:
            lowest = row & -row
            right ^= solution[lowest.bit_length() - 1]
            row ^= lowest
        solution[top] = right
    packed = b"".join(number.to_bytes(width, "little") for number in solution)
    slots[where] = np.frombuffer(packed, dtype=np.uint64).reshape(-1, values.shape[1])
    return True
