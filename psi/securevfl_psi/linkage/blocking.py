"""Which pairs are worth comparing: tokens that similar records probably have in common.

Tokens of two kinds. `blocking_tokens` are made by the data parties from what they know (sound of a surname, year of
birth), keyed; the linker sees which records share them, and so how frequent each is. `hamming_tokens` are made by the
linker from the encodings, and reveal nothing that it does not already have.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from securevfl_psi.errors import LinkageError
from securevfl_psi.linkage.clk import normal_columns
from securevfl_psi.linkage.encodings import Encodings
from securevfl_psi.linkage.keys import derive_key
from securevfl_psi.linkage.schema import Schema

__all__ = ["BlockKey", "Prefix", "Soundex", "Whole", "blocking_tokens", "hamming_tokens", "keyed_tokens", "soundex"]

_CODES = {
    letter: str(code)
    for code, letters in enumerate(("bfpv", "cgjkqsxz", "dt", "l", "mn", "r"), 1)
    for letter in letters
}


class BlockKey(Protocol):
    """What of a value has to be equal. Implementations are frozen dataclasses, so that their `repr` is a tag."""

    def derive_key(self, normal: str) -> str | None:
        """The key of a normal form, or None for no block."""


@dataclass(frozen=True)
class Whole:
    """The whole value."""

    def derive_key(self, normal: str) -> str | None:
        """See `BlockKey.derive_key`."""
        return normal


@dataclass(frozen=True)
class Prefix:
    """The first characters; of a date, whose normal form is YYYYMMDD, 4 are the year.

    Attributes:
        length: how many. A shorter value is its own key.
    """

    length: int

    def __post_init__(self) -> None:
        if not 1 <= self.length <= 64:
            raise LinkageError(f"a prefix of {self.length!r} characters; 1 to 64 are possible")

    def derive_key(self, normal: str) -> str | None:
        """See `BlockKey.derive_key`."""
        return normal[: self.length]


@dataclass(frozen=True)
class Soundex:
    """The sound of an English name (Russell and Odell 1918, as the US National Archives code it)."""

    def derive_key(self, normal: str) -> str | None:
        """See `BlockKey.derive_key`."""
        return soundex(normal)


def soundex(name: str) -> str | None:
    """A letter and three digits; None where no letter a to z is left."""
    letters = [c for c in name if "a" <= c <= "z"]
    if not letters:
        return None
    code, last = letters[0].upper(), _CODES.get(letters[0], "")
    for letter in letters[1:]:
        digit = _CODES.get(letter, "")
        if digit and digit != last:
            code += digit
        if letter not in "hw":  # these do not part letters of one code; vowels do
            last = digit
    return (code + "000")[:4]


def blocking_tokens(
    table: Mapping[str, Sequence[object]],
    schema: Schema,
    rules: Sequence[Mapping[str, BlockKey]],
    key: bytes,
    *,
    context: str = "",
) -> np.ndarray:
    """Keyed tokens of every record; both data parties do this, with the same schema, rules, key and context.

    Args:
        table: columns by name.
        schema: how the columns are normalised.
        rules: of each rule, which fields' keys have to be equal together: ``{"surname": Soundex(), "born":
        Prefix(4)}``.
            A record without one of them has no token of that rule.
        key: as for `encode`.
        context: as for `encode`.

    Returns:
        (n, rules) uint64; 0 for no token.

    Raises:
        LinkageError: no rules, an unknown field, or what `encode` refuses.
    """
    return keyed_tokens(table, schema, rules, key, context=context, purpose="block")


def keyed_tokens(
    table: Mapping[str, Sequence[object]],
    schema: Schema,
    rules: Sequence[Mapping[str, BlockKey]],
    key: bytes,
    *,
    context: str,
    purpose: str,
) -> np.ndarray:
    """`blocking_tokens`, for a purpose: tokens of two purposes cannot be compared."""
    fields = {field.name: field for field in schema.fields}
    if not rules or any(not rule or set(rule) - set(fields) for rule in rules):
        kind = "blocking" if purpose == "block" else purpose
        raise LinkageError(
            f"{kind} rules {rules}; one or more are needed, each of fields of the schema: {', '.join(fields)}"
        )
    columns = normal_columns(table, [(name, fields[name]) for name in dict.fromkeys(n for rule in rules for n in rule)])
    tokens = np.zeros((len(next(iter(columns.values()))), len(rules)), dtype=np.uint64)
    for number, rule in enumerate(rules):
        secret = derive_key(key, purpose, context, schema.tag(), str(number), repr(sorted(rule.items())))
        known: dict[tuple[str, ...], int] = {}
        for row, values in enumerate(zip(*(columns[name] for name in rule), strict=True)):
            keys = tuple(
                (None if value is None else how.derive_key(value))
                for value, how in zip(values, rule.values(), strict=True)
            )
            if any(part is None for part in keys):
                continue
            texts = tuple(str(part) for part in keys)
            if texts not in known:
                known[texts] = _hash_parts(secret, sorted(zip(rule, texts, strict=True)))
            tokens[row, number] = known[texts]
    return tokens


def _hash_parts(secret: bytes, parts: Sequence[tuple[str, str]]) -> int:
    message = b"".join(len(text.encode()).to_bytes(4, "big") + text.encode() for part in parts for text in part)
    return int.from_bytes(hmac.digest(secret, message, "sha256")[:8], "big") or 1


def hamming_tokens(encodings: Encodings, *, tables: int = 40, bits: int = 10) -> np.ndarray:
    """Locality-sensitive tokens: `bits` sampled positions of the encoding, `tables` times.

    Indyk and Motwani 1998; for record linkage Durham 2012. Records that differ in a share d of their positions meet in
    at least one table with probability ``1 - (1 - (1 - d)^bits)^tables``. The positions are the same for all, and
    public.

    Returns:
        (n, tables) uint64, never 0.

    Raises:
        LinkageError: sizes outside of 1 to 1000 tables and 1 to 48 bits.
    """
    if not (1 <= tables <= 1000 and 1 <= bits <= 48):
        raise LinkageError(f"{tables!r} tables of {bits!r} bits; 1 to 1000 of 1 to 48 are possible")
    stream = hashlib.shake_256(b"securevfl linkage hamming v1").digest(4 * tables * bits)
    places = (np.frombuffer(stream, dtype="<u4") % np.uint32(encodings.bits)).reshape(tables, bits).astype(np.uint64)
    tokens = np.zeros((len(encodings), tables), dtype=np.uint64)
    for place in places.T:
        bit = (encodings.words[:, place >> np.uint64(6)] >> (place & np.uint64(63))) & np.uint64(1)
        tokens = (tokens << np.uint64(1)) | bit
    return tokens + np.uint64(1)
