"""The schema of a linkage: the fields to compare and their encoding. Both parties agree on it before they encode."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass

from securevfl_psi.errors import LinkageError
from securevfl_psi.linkage.hardening import Hardening, XorFold
from securevfl_psi.linkage.kinds import FieldKind

__all__ = ["Field", "Schema"]

_VERSION = "clk v1"


@dataclass(frozen=True, kw_only=True)
class Field:
    """One column of a record.

    Attributes:
        name: the column's name at both parties.
        kind: how values become tokens: `Text`, `Code`, `Date`, `Number`.
        weight: the field's influence: a value of any length sets `weight` times `Schema.bits_per_weight` bits, before
            collisions.
        salt: the name of another field whose normal form (for a date: the year) enters every hash of this one. Equal
            values then have different bits if the salts differ, which hides the frequencies of names from an attacker.
            A record whose salt is wrong or missing at one party has nothing in common in this field. Proposed by
            Niedermeyer et al. (2014) against their own attack.
        share: fields with the same `share` are hashed with one key, so that a given name written as a surname still
            counts. In return, an attacker can compare the tokens of these fields with each other.
    """

    name: str
    kind: FieldKind
    weight: float = 1.0
    salt: str | None = None
    share: str | None = None

    def __post_init__(self) -> None:
        if not self.name:
            raise LinkageError("a field has no name; give it the name of its column")
        if not 0.05 <= self.weight <= 20:  # also nan
            raise LinkageError(f"weight {self.weight!r} of field {self.name!r}; expected 0.05 to 20")


@dataclass(frozen=True, kw_only=True)
class Schema:
    """How records are encoded.

    Attributes:
        fields: the fields to compare.
        bits: the length of an encoding as it is sent, a multiple of 64.
        fill: the expected share of ones in the filter of a complete record, before hardening, 0.05 to 0.7. It
            determines the number of hash functions for a unit of weight: more ones compare more finely, until
            collisions dominate.
        hardening: the hardenings, applied to the filter in this order; ``()`` for none.

    Raises:
        LinkageError: there are no fields, two have one name, a salt is unknown, or the length or fill is out of range.
    """

    fields: tuple[Field, ...]
    bits: int = 1024
    fill: float = 0.3
    hardening: tuple[Hardening, ...] = (XorFold(),)

    def __post_init__(self) -> None:
        names = [field.name for field in self.fields]
        if not names or len(set(names)) != len(names):
            raise LinkageError(f"fields {names}; at least one, and each name once")
        for field in self.fields:
            if field.salt is not None and (field.salt not in names or field.salt == field.name):
                raise LinkageError(
                    f"field {field.name!r} is salted by {field.salt!r}; name another field of the schema"
                )
        if not (64 <= self.bits <= 1 << 16 and self.bits % 64 == 0):
            raise LinkageError(f"encodings of {self.bits} bits; expected 64 to 65536 in multiples of 64")
        if not 0.05 <= self.fill <= 0.7:
            raise LinkageError(f"fill is {self.fill!r}; expected 0.05 to 0.7")
        if self.filter_bits < 64 or self.filter_bits > 1 << 17:
            raise LinkageError(
                f"{self.bits} bits need a filter of {self.filter_bits} by {self.hardening}; 64 to 131072"
            )

    @property
    def filter_bits(self) -> int:
        """Length of the Bloom filter before hardening."""
        length = self.bits
        for step in reversed(self.hardening):
            length = step.input_length(length)
        return length

    def count_hashes(self, field: Field) -> int:
        """The number of bits that a value of the field sets, before collisions.

        The field's share of the number that fills `fill` of the filter: n random bits fill ``1 - exp(-n / length)``.
        """
        total = -math.log1p(-self.fill) * self.filter_bits
        return max(1, round(total * field.weight / sum(f.weight for f in self.fields)))

    def tag(self) -> str:
        """32 hexadecimal digits that are equal exactly if the schemas are, for the parties to compare."""
        return hashlib.sha256(f"{_VERSION} {self!r}".encode()).hexdigest()[:32]
