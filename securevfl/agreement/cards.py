"""What the parties of an agreement publish about themselves: name, role, keys and the columns of their tables."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any, Literal, Self

from msgspec import Meta
from securevfl_net.identity import Certificate

from securevfl.agreement.canonical import decode_tree, encode_tree, parse_number, text_problem, to_plain
from securevfl.align.result import RULES
from securevfl.config import Config
from securevfl.data import PartyTable
from securevfl.data.table import explain_bad_name
from securevfl.errors import AuditError, InputError
from securevfl.ledger import PublicSigningKey
from securevfl.transport import ACTIVE, COORDINATOR

__all__ = ["PartyCard", "TableSchema", "certificate_text"]

_HEADER = "# securevfl party card, version 1"
_MOST_COLUMNS = 16_384

Column = Annotated[str, Meta(min_length=1, max_length=256)]
Number = Annotated[int, Meta(ge=0, le=_MOST_COLUMNS)]
Der = Annotated[str, Meta(min_length=4, max_length=24_576)]
Names = Annotated[tuple[Column, ...], Meta(max_length=_MOST_COLUMNS)]


class TableSchema(Config):
    """What a party publishes about its table: names or counts, never values.

    Attributes:
        identifiers: how identifiers are normalised before they are compared, `IdRules.tag` of the PSI.
        numbers: the columns of numbers, in their order; or how many there are.
        categories: the columns of categories; likewise.
        label: the label's column; None at a passive party.
        classes: the label's values as texts, in the order of their indexes; or how many there are, 1 for a number.
        book: whether a label owner also has labels of people that its table lacks.
    """

    identifiers: Annotated[str, Meta(min_length=1, max_length=128)] = RULES.tag()
    numbers: Number | Names = 0
    categories: Number | Names = 0
    label: Column | None = None
    classes: Annotated[int, Meta(ge=1, le=_MOST_COLUMNS)] | Names | None = None
    book: bool = False

    @classmethod
    def section_path(cls) -> str:
        return "table"

    def problems(self) -> list[str]:
        found = super().problems()
        if (self.label is None) != (self.classes is None):
            found.append("label and classes go together: a label owner gives both, a passive party neither")
        if self.book and self.label is None:
            found.append("book is true: only a label owner has labels of other people")
        for what in ("numbers", "categories", "classes"):
            names = getattr(self, what)
            if isinstance(names, tuple) and len(set(names)) < len(names):
                found.append(f"{what} names a column or class twice")
        for text in (
            *_name_tuple(self.numbers),
            *_name_tuple(self.categories),
            *_name_tuple(self.classes),
            self.label or "-",
        ):
            rule = text_problem(text)
            if rule:
                found.append(f"an agreement cannot contain {ascii(text)[:80]}: {rule}")
        return found

    @property
    def columns(self) -> int:
        """Number of feature columns."""
        return _count_names(self.numbers) + _count_names(self.categories)

    @property
    def class_count(self) -> int:
        """Number of classes; 0 without a label."""
        return 0 if self.classes is None else _count_names(self.classes)

    @classmethod
    def of_table(cls, table: PartyTable, *, names: bool = True) -> Self:
        """The schema of a loaded table.

        Args:
            table: the party's.
            names: whether columns and classes are shown by their names, or only counted.
        """
        categories = tuple(name for name in table.columns if name in table.categorical or name in table.text_columns)
        numbers = tuple(name for name in table.columns if name not in categories)
        classes = tuple(map(str, table.classes))
        return cls(
            identifiers=replace(RULES, columns=max(1, len(table.id_columns))).tag(),
            numbers=numbers if names else len(numbers),
            categories=categories if names else len(categories),
            label=None if table.label is None else (table.label_name or "label") if names else "label",
            classes=None
            if table.label is None
            else 1
            if table.target == "number"
            else classes
            if names
            else len(classes),
            book=table.book is not None,
        )

    @property
    def shows_names(self) -> bool:
        """Whether columns are listed by name."""
        return isinstance(self.numbers, tuple)


def _name_tuple(names: int | tuple[str, ...] | None) -> tuple[str, ...]:
    return names if isinstance(names, tuple) else ()


def _count_names(names: int | tuple[str, ...]) -> int:
    return len(names) if isinstance(names, tuple) else names


def certificate_text(certificate: Certificate) -> str:
    """A certificate in a card's format: its DER in base64."""
    return base64.b64encode(certificate.der).decode("ascii")


def _read_certificate(text: str) -> Certificate:
    try:
        der = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise InputError("no base64 that can be read") from None
    if base64.b64encode(der).decode("ascii") != text:
        raise InputError("base64 in a non-canonical form")
    return Certificate.from_der(der)


class PartyCard(Config):
    """One party, as all parties of an agreement know it. Nothing in it is secret.

    Attributes:
        name: the party.
        role: ``"active"`` (it owns labels), ``"passive"`` or ``"coordinator"`` (no table).
        signing_key: its public Ed25519 key, 64 hexadecimal digits: it signs approvals, ledgers and new certificates.
        certificates: its TLS certificates, DER in base64, by which peers identify it. Or none, and
        authority: certificate of the authority that issues them, DER in base64: it is known by its name in them.
        epsilon: most ε that its own releases may add up to, over all attempts; None for no limit.
        delta: with which that is counted.
        table: what it publishes about its table; None at a coordinator.
    """

    name: Annotated[str, Meta(max_length=32)]
    role: Literal["active", "passive", "coordinator"]
    signing_key: Annotated[str, Meta(min_length=64, max_length=64)]
    certificates: Annotated[tuple[Der, ...], Meta(max_length=4)] = ()
    authority: Der | None = None
    epsilon: Annotated[float, Meta(gt=0, le=1e6)] | None = None
    delta: Annotated[float, Meta(gt=0, lt=1)] | None = None
    table: TableSchema | None = None

    @classmethod
    def section_path(cls) -> str:
        return "party"

    def problems(self) -> list[str]:
        found = super().problems()
        rule = explain_bad_name(self.name)
        found += [rule] if rule else []
        try:
            PublicSigningKey.from_hex(self.signing_key)
        except AuditError as error:
            found.append(f"signing_key: {error}")
        if (self.authority is None) == (not self.certificates):
            found.append("a party is known either by its certificates, or by the authority that issues them; give one")
        found += self._about_certificates()
        if (self.epsilon is None) != (self.delta is None):
            found.append("epsilon and delta go together; give both or neither")
        if (self.table is None) != (self.role == COORDINATOR):
            found.append(f"{self.name!r} is {self.role}: a coordinator has no table, every other party has one")
        labelled = self.table is not None and self.table.label is not None
        if self.table is not None and labelled != (self.role == ACTIVE):
            found.append(f"{self.name!r} is {self.role} and has {'a' if labelled else 'no'} label: active parties have")
        return found

    def _about_certificates(self) -> list[str]:
        try:
            for one in self.tls_certificates:
                if one.names != (self.name,) or one.authority:
                    return [f"certificate {one.fingerprint[:16]}… is not one of the party {self.name!r} alone"]
            issuer = self.issuer_certificate
        except InputError as error:
            return [f"a certificate cannot be used: {error}"]
        if issuer is not None and not issuer.authority:
            return [f"authority is the certificate {issuer.fingerprint[:16]}…, which may not issue certificates"]
        return []

    @property
    def public_key(self) -> PublicSigningKey:
        """The key that its signatures are checked with."""
        return PublicSigningKey.from_hex(self.signing_key)

    @property
    def tls_certificates(self) -> tuple[Certificate, ...]:
        """Its TLS certificates, if peers identify it by them."""
        return tuple(_read_certificate(text) for text in self.certificates)

    @property
    def issuer_certificate(self) -> Certificate | None:
        """Certificate of its authority, where it is known by that."""
        return None if self.authority is None else _read_certificate(self.authority)

    def to_tree(self) -> dict[str, Any]:
        """Plain values in their order, for `canonical.encode`, without None."""
        plain: dict[str, Any] = to_plain(self.describe())
        return plain

    def display_tree(self) -> dict[str, Any]:
        """`to_tree` for people: keys and certificates by their fingerprints."""
        issuer = self.issuer_certificate
        keys: dict[str, Any] = {"signing_key": self.public_key.fingerprint}
        keys |= {"certificates": [one.fingerprint for one in self.tls_certificates]} if issuer is None else {}
        keys |= {} if issuer is None else {"authority": issuer.fingerprint}
        return self.to_tree() | keys

    @classmethod
    def of_tree(cls, tree: object, where: str) -> Self:
        """Build a card from the plain values of `to_tree`.

        Args:
            tree: as TOML has it.
            where: path, for messages.

        Raises:
            InputError: values that a card cannot have, all of them in one message.
        """
        if isinstance(tree, Mapping):
            tree = {key: _to_number(value) if key in ("epsilon", "delta") else value for key, value in tree.items()}
        return cls.from_values(tree, where)

    def encode(self) -> bytes:
        """Encode as the bytes of a card file."""
        return encode_tree({"party": self.to_tree()}, _HEADER)

    @classmethod
    def decode(cls, raw: bytes) -> Self:
        """Decode the bytes of a card file.

        Raises:
            InputError: they are not a card, or not in canonical form.
        """
        content = decode_tree(raw, _HEADER, "a party card")
        if set(content) != {"party"}:
            raise InputError(f"a party card contains only [party]; this one contains {', '.join(sorted(content))[:80]}")
        card = cls.of_tree(content["party"], "party")
        if card.encode() != raw:
            raise InputError("the party card was changed by hand: take the file as `securevfl card` wrote it")
        return card


def _to_number(value: object) -> object:
    """A decimal's number; anything else as it is, and refused where a number is expected: 8 and "8" are no decimals."""
    found = parse_number(value) if isinstance(value, str) else None
    return str(value) if found is None else found
