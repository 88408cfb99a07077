"""Records as hardened, keyed Bloom filters: cryptographic long-term keys.

Schnell, Bachteler and Reiher, "A novel error-tolerant anonymous linking code", 2011: all fields of a record set bits of
one filter, a field's weight is how many. The hashes are HMACs by keys of their own for every field, derived from one
secret of the data parties; whoever has that secret can try values (a dictionary attack), whoever lacks it sees bits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from securevfl_psi.errors import LinkageError
from securevfl_psi.linkage.encodings import Encodings
from securevfl_psi.linkage.keys import bit_positions, derive_key
from securevfl_psi.linkage.kinds import Date
from securevfl_psi.linkage.schema import Field, Schema

__all__ = ["encode_records", "normal_columns"]

_ROWS = 1024
"""Records of which filters are held as one byte a bit."""
_Column = list[str | None]


def encode_records(
    table: Mapping[str, Sequence[object]], schema: Schema, key: bytes, *, context: str = ""
) -> Encodings:
    """One encoding for every record; both data parties do this, with the same schema, key and context.

    Args:
        table: columns by name, of equal length; those that the schema does not name are not read. A null (None, NaN, an
            empty text) adds nothing to its record.
        schema: what is compared.
        key: at least 32 random bytes of the data parties, which the linker must never have.
        context: what the encodings are for, for example a job: those of two contexts cannot be compared.

    Raises:
        LinkageError: a column that is missing or of another length, a value that its kind cannot read, a record without
            a usable field, a key that is too short; rows are counted from 0.
    """
    tag = derive_key(key, "tag", context, schema.tag())[:16]
    columns = normal_columns(table, [(field.name, field) for field in schema.fields])
    rows = len(columns[schema.fields[0].name])
    for row in range(rows):
        if all(column[row] is None for column in columns.values()):
            raise LinkageError(
                f"row {row} has no usable field (of {', '.join(columns)}): all are null; fill one or drop the row"
            )
    plans = []
    for field in schema.fields:
        field_key = derive_key(key, "field", context, field.share or "." + field.name)
        plans.append(_Plan.from_field(field, schema, columns, field_key))
    steps = [
        (step, derive_key(key, "hardening", context, str(number), repr(step)))
        for number, step in enumerate(schema.hardening)
    ]
    words = np.empty((rows, schema.bits // 64), dtype=np.uint64)
    for start in range(0, rows, _ROWS):
        stop = min(start + _ROWS, rows)
        filters = np.zeros((stop - start, schema.filter_bits), dtype=bool)
        for plan in plans:
            plan.set_bits(filters, start, stop)
        for step, step_key in steps:
            filters = step.apply(filters, step_key)
        words[start:stop] = np.ascontiguousarray(np.packbits(filters, axis=1, bitorder="little")).view("<u8")
    return Encodings(words=words, tag=tag)


class _Plan:
    """Where a field's values set bits: for each distinct value its tokens, for each distinct token its positions."""

    def __init__(self, of_row: np.ndarray, first: np.ndarray, tokens: np.ndarray, take: np.ndarray, table: np.ndarray):
        self.of_row = of_row  # (rows,) which value, -1 for none
        self.first = first  # (values + 1,) where a value's tokens begin
        self.tokens = tokens  # which token
        self.take = take  # how many of the token's positions this value uses
        self.table = table  # (tokens, longest take) positions

    @staticmethod
    def from_field(field: Field, schema: Schema, columns: Mapping[str, _Column], key: bytes) -> _Plan:
        budget = schema.count_hashes(field)
        column = columns[field.name]
        salts = _find_salts(field, schema, columns)
        values: dict[tuple[str, str], int] = {}
        of_row = np.full(len(column), -1, dtype=np.int64)
        for row, (normal, salt) in enumerate(zip(column, salts, strict=True)):
            if normal is not None:
                of_row[row] = values.setdefault((salt, normal), len(values))
        known: dict[tuple[str, str], int] = {}
        tokens: list[int] = []
        first = np.zeros(len(values) + 1, dtype=np.int64)
        for number, (salt, normal) in enumerate(values):
            tokens += [known.setdefault((salt, token), len(known)) for token in field.kind.make_tokens(normal)]
            first[number + 1] = len(tokens)
        counts = np.diff(first)
        take = np.repeat(np.maximum(1, (2 * budget + counts) // (2 * counts)), counts)  # budget / count, rounded
        wanted = np.zeros(len(known), dtype=np.int64)
        np.maximum.at(wanted, tokens, take)
        table = np.zeros((len(known), int(take.max(initial=0))), dtype=np.int64)
        for (salt, token), number in known.items():
            message = len(salt.encode()).to_bytes(4, "big") + salt.encode() + token.encode()
            table[number, : wanted[number]] = bit_positions(key, message, int(wanted[number]), schema.filter_bits)
        return _Plan(of_row, first, np.array(tokens, dtype=np.int64), take, table)

    def set_bits(self, filters: np.ndarray, start: int, stop: int) -> None:
        """Set this field's bits of the records start to stop in `filters`, (stop - start, length) bool."""
        rows = np.flatnonzero(self.of_row[start:stop] >= 0)
        values = self.of_row[start:stop][rows]
        counts = self.first[values + 1] - self.first[values]
        if not counts.sum():
            return
        ends = np.cumsum(counts)
        at = np.arange(ends[-1]) - np.repeat(ends - counts, counts) + np.repeat(self.first[values], counts)
        used = np.arange(self.table.shape[1]) < self.take[at, None]
        where = self.table[self.tokens[at]]
        filters[np.broadcast_to(np.repeat(rows, counts)[:, None], where.shape)[used], where[used]] = True


def _find_salts(field: Field, schema: Schema, columns: Mapping[str, _Column]) -> list[str]:
    if field.salt is None:
        return [""] * len(columns[field.name])
    kind = next(other.kind for other in schema.fields if other.name == field.salt)
    cut = 4 if isinstance(kind, Date) else None
    return [(salt or "")[:cut] for salt in columns[field.salt]]


def normal_columns(table: Mapping[str, Sequence[object]], wanted: Sequence[tuple[str, Field]]) -> dict[str, _Column]:
    """Normal forms of the columns that are wanted; errors name the column and the row."""
    columns: dict[str, _Column] = {}
    for name, field in wanted:
        if name not in table:
            raise LinkageError(f"the table has no column {name!r}; the schema needs it (columns: {', '.join(table)})")
        column, seen = [], {}
        for row, value in enumerate(table[name]):
            try:
                if isinstance(value, str):
                    if value not in seen:
                        seen[value] = field.kind.normalise_value(value)
                    column.append(seen[value])
                else:
                    column.append(field.kind.normalise_value(value))
            except LinkageError as error:
                raise LinkageError(f"{value!r:.60} in row {row} of column {name!r} {error}") from None
        columns[name] = column
    lengths = {name: len(column) for name, column in columns.items()}
    if len(set(lengths.values())) > 1:
        raise LinkageError(f"columns of different lengths: {lengths}; a record has one value, or None, in each")
    return columns
