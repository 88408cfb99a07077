"""``[link]``: linkage of records without a common identifier: which fields are compared, by whom, and how similar two
records of one person must be.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from msgspec import Meta

from securevfl.config import Config
from securevfl.privacy import Finding
from securevfl.transport import COORDINATOR, Sight

if TYPE_CHECKING:
    from securevfl_psi.linkage import FieldKind as Compared
    from securevfl_psi.linkage import Schema
    from securevfl_psi.linkage.blocking import BlockKey

__all__ = ["CodeField", "DateField", "LinkField", "Linkage", "NumberField", "TextField", "unknown_values"]

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_PART = re.compile(r"([A-Za-z0-9_-]{1,64})(?::(sound|[1-9][0-9]?))?")
_READ = "linkage fields of every record of its table, by encoding guesses under the key that both have"
_ATTACKED = (
    "keyed encodings of the linkage fields of every record of its table, of which known attacks read names; with a "
    "party's key all of them"
)
_LIKELY = (
    "of each of its own linked rows, how likely the link is true, which follows from how alike the two records are"
)


class LinkField(Config):
    """Content of a field, and its weight. See `securevfl_psi.linkage.Field`.

    Attributes:
        weight: how much the field counts beside the others.
        salt: another field that enters every hash of this one: against attacks by frequent values.
    """

    tag_field: ClassVar[str] = "kind"
    weight: Annotated[float, Meta(ge=0.05, le=20)] = 1.0
    salt: Annotated[str, Meta(min_length=1, max_length=64)] | None = None

    @classmethod
    def known_types(cls) -> Mapping[str, type[Config]]:
        """All kinds of fields; a concrete class returns itself."""
        return super().known_types() or {kind.tag(): kind for kind in (TextField, CodeField, DateField, NumberField)}

    @abstractmethod
    def comparison_rule(self) -> Compared:
        """How values become tokens."""


class TextField(LinkField):
    """Names and addresses, compared by their pairs of letters."""

    kind: ClassVar[str] = "text"

    def comparison_rule(self) -> Compared:
        from securevfl_psi.linkage import Text

        return Text()


class CodeField(LinkField):
    """Postcodes, numbers of houses and telephones, compared character by character."""

    kind: ClassVar[str] = "code"

    def comparison_rule(self) -> Compared:
        from securevfl_psi.linkage import Code

        return Code()


class DateField(LinkField):
    """Dates, compared by their digits and their parts.

    Attributes:
        order: of dates written with the year last.
    """

    kind: ClassVar[str] = "date"
    order: Literal["day first", "month first"] = "day first"

    def comparison_rule(self) -> Compared:
        from securevfl_psi.linkage import Date

        return Date(order=self.order)


class NumberField(LinkField):
    """Numbers, compared by how close they are.

    Attributes:
        step: of the grid that they are rounded to.
        reach: largest difference at which two numbers still count as somewhat alike.
    """

    kind: ClassVar[str] = "number"
    step: Annotated[float, Meta(gt=0)] = 1.0
    reach: Annotated[float, Meta(gt=0)] = 10.0

    def comparison_rule(self) -> Compared:
        from securevfl_psi.linkage import Number

        return Number(step=self.step, reach=self.reach)


class Linkage(Config):
    """How records without a common identifier are linked. All parties agree on it.

    Attributes:
        fields: field → its kind; each party names a column of its table for each, `PartyTable.link`.
        linker: who compares the encodings. ``"coordinator"``: a party without data, which lacks the key.
            ``"active"``: the active party, which has the key and can test any guess on the others' records.
        threshold: least similarity of linked records; None to choose it from the scores.
        precision: instead, the lowest threshold of at least this estimated precision.
        blocks: compare only pairs that share a block, each of which fields make: ``"surname:sound+born:4"`` is the
            sound of one and the first 4 characters of another (of a date, the year), ``"zip"`` a whole value. Empty for
            all pairs.
        witnesses: two sets of fields without overlap, written like `blocks`, each sufficient to identify a person:
            ``("surname+born", "first+phone")``. Then recall is estimated over all true pairs, and the threshold with
            it; empty for an estimate from the scores alone.
        deduplicate: whether each party leaves out rows that it finds to be one person twice.
        weights: whether the active party's rows count by the probability of their links to be true, in the loss and in
            metrics, on top of weights that its table has.
        bits: length of an encoding, a multiple of 64.
    """

    fields: Mapping[str, LinkField]
    linker: Literal["coordinator", "active"] = "coordinator"
    threshold: Annotated[float, Meta(ge=0, le=1)] | None = None
    precision: Annotated[float, Meta(gt=0, lt=1)] | None = None
    blocks: tuple[Annotated[str, Meta(min_length=1, max_length=200)], ...] = ()
    witnesses: tuple[Annotated[str, Meta(min_length=1, max_length=200)], ...] = ()
    deduplicate: bool = True
    weights: bool = False
    bits: Annotated[int, Meta(ge=256, le=8192)] = 1024

    @classmethod
    def section_path(cls) -> str:
        return "link"

    def problems(self) -> list[str]:
        found = super().problems()
        if not self.fields:
            found.append(
                "fields is empty; name what is compared, for example fields = {surname = 'text', born = 'date'}"
            )
        for name in self.fields:
            if _NAME.fullmatch(name) is None:
                found.append(f"fields has {name!r}; a name of letters, digits, '_' and '-' was expected, 64 at most")
        if self.threshold is not None and self.precision is not None:
            found.append(f"threshold is {self.threshold} and precision {self.precision}; give one of them, or neither")
        if self.bits % 64:
            found.append(f"bits is {self.bits}; a multiple of 64 was expected")
        for name, field in self.fields.items():
            if field.salt is not None and (field.salt not in self.fields or field.salt == name):
                found.append(f"fields.{name}.salt is {field.salt!r}; name another field")
        found += self._rule_problems("blocks", self.blocks) + self._rule_problems("witnesses", self.witnesses)
        if self.witnesses and not found:
            sets = [set(rule) for rule in self.witness_rules()]
            if len(sets) != 2 or sets[0] & sets[1]:
                found.append(
                    f"witnesses has {', '.join(map(repr, self.witnesses))}; two sets of fields were expected, and no "
                    "field in both, as ['surname+born', 'first+phone']"
                )
        return found

    def _rule_problems(self, name: str, rules: Sequence[str]) -> list[str]:
        found = []
        for rule in rules:
            parts = [_PART.fullmatch(part.strip()) for part in rule.split("+")]
            if any(known is None or known[1] not in self.fields for known in parts):
                found.append(
                    f"{name} has {rule!r}; fields joined by '+' were expected, each alone, with ':sound' or with a "
                    f"number of characters, as 'surname:sound+born:4' (fields: {', '.join(self.fields)})"
                )
        return found

    def psi_schema(self) -> Schema:
        """The schema of `securevfl_psi.linkage`, fields ordered by name."""
        from securevfl_psi.linkage import Field, Schema

        named = sorted(self.fields.items())
        fields = [Field(name=n, kind=f.comparison_rule(), weight=f.weight, salt=f.salt) for n, f in named]
        return Schema(fields=tuple(fields), bits=self.bits)

    def block_rules(self) -> list[dict[str, BlockKey]]:
        """The blocks likewise; empty where all pairs are compared."""
        return _parse_rules(self.blocks)

    def witness_rules(self) -> list[dict[str, BlockKey]]:
        """The sets of witnesses likewise; empty without."""
        return _parse_rules(self.witnesses)

    def needs_coordinator(self) -> bool:
        """Whether it takes a party without data."""
        return self.linker == "coordinator"

    def findings(self, passive: Sequence[str], active: str) -> list[Finding]:
        """Who could read what from encodings."""
        if self.linker == "active":
            sights = (Sight(of="rows", severity="leak", through="encodings whose key it has"),)
            return [Finding(active, name, _READ, "leak", sights) for name in passive]
        sights = (Sight(of="rows", severity="leak", through="keyed encodings"),)
        found = [Finding(COORDINATOR, name, _ATTACKED, "leak", sights) for name in (active, *passive)]
        if self.weights:
            sights = (Sight(of="rows", severity="note", through="probabilities of links"),)
            found += [Finding(active, name, _LIKELY, "note", sights) for name in passive]
        return found


def unknown_values(texts: Mapping[str, Sequence[object]]) -> list[str]:
    """Values in columns for linkage that may mean "unknown", one sentence each.

    Args:
        texts: field → its values in one table.
    """
    from securevfl_psi.linkage import find_placeholders

    return [str(one) for one in find_placeholders(texts, list(texts))]


def _parse_rules(rules: Sequence[str]) -> list[dict[str, BlockKey]]:
    from securevfl_psi.linkage import Prefix, Soundex, Whole

    found: list[dict[str, BlockKey]] = []
    for rule in rules:
        parts: dict[str, BlockKey] = {}
        for part in rule.split("+"):
            known = _PART.fullmatch(part.strip())
            if known is not None:
                how = known[2]
                parts[known[1]] = Whole() if how is None else Soundex() if how == "sound" else Prefix(int(how))
        found.append(parts)
    return found
