"""`--field` and `--block` of the command `link`: what is compared, and which pairs."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from securevfl_psi.errors import InputError, LinkageError
from securevfl_psi.linkage import Code, Date, Field, FieldKind, Number, Prefix, Schema, Soundex, Text, Whole
from securevfl_psi.linkage.blocking import BlockKey

from securevfl_psi_cli.several import parse_named

__all__ = ["blocks_of", "schema_of"]

_KINDS: Mapping[str, FieldKind] = {
    "text": Text(),
    "code": Code(),
    "date": Date(),
    "date-month-first": Date(order="month first"),
    "number": Number(step=1.0, reach=10.0),
}
_PART = re.compile(r"(.+?)(?::(sound|[1-9][0-9]?))?")
_FORM = "NAME=KIND, NAME=KIND:WEIGHT or NAME=KIND:WEIGHT,salt=OTHER,step=STEP,reach=REACH"


def schema_of(fields: Sequence[str], bits: int = 1024) -> Schema:
    """From texts ``NAME=KIND`` or ``NAME=KIND:WEIGHT``, in the order of their names. Behind them ``salt=OTHER``, a
    field that enters every hash of this one, and of numbers ``step=STEP`` of the grid and ``reach=REACH`` of likeness.

    Raises:
        InputError: texts of another form.
    """
    found = [_parse_field(name, text) for name, text in sorted(parse_named(fields, "--field", _FORM).items())]
    try:
        return Schema(fields=tuple(found), bits=bits)
    except LinkageError as error:
        raise InputError(f"--field: {error}") from None


def _parse_field(name: str, text: str) -> Field:
    first, *rest = text.split(",")
    kind, _, weight = first.partition(":")
    begin = f"--field {name}={text}: "
    if kind not in _KINDS:
        raise InputError(f"{begin}kind {kind!r}; one of {', '.join(_KINDS)} is possible")
    possible = {"salt", "step", "reach"} if kind == "number" else {"salt"}
    more: dict[str, str] = {}
    for part in rest:
        option, _, value = part.partition("=")
        if option not in possible or not value or option in more:
            raise InputError(
                f"{begin}{part!r}; a {kind} can have {', '.join(f'{one}=…' for one in sorted(possible))}, each once"
            )
        more[option] = value
    salt = more.pop("salt", None)
    try:
        weighs = float(weight or 1)
    except ValueError:
        raise InputError(f"{begin}weight {weight!r}; a number from 0.05 to 20 is possible") from None
    how = _KINDS[kind]
    if isinstance(how, Number):
        how = _parse_number(how, more, begin)
    try:
        return Field(name=name, kind=how, weight=weighs, salt=salt)
    except LinkageError:
        raise InputError(f"{begin}weight {weight!r}; a number from 0.05 to 20 is possible") from None


def _parse_number(usual: Number, more: Mapping[str, str], begin: str) -> Number:
    try:
        given = {option: float(value) for option, value in more.items()}
    except ValueError:
        raise InputError(f"{begin}step and reach are numbers, as step=100,reach=1000") from None
    step = given.get("step", usual.step)
    try:
        return Number(step=step, reach=given.get("reach", usual.reach * step))
    except LinkageError as error:
        raise InputError(f"{begin}{error}") from None


def blocks_of(texts: Sequence[str], schema: Schema, option: str = "--block") -> tuple[dict[str, BlockKey], ...]:
    """From texts as ``surname:sound+born:4``: fields that are joined by ``+``, whole, by sound, or by first characters.

    Raises:
        InputError: texts of another form, or fields that are not compared.
    """
    known, found = {one.name for one in schema.fields}, []
    for text in texts:
        rule: dict[str, BlockKey] = {}
        for part in text.split("+"):
            match = _PART.fullmatch(part.strip())
            if match is None or match[1] not in known:
                raise InputError(
                    f"{option} {text!r}; names of fields joined by '+' are needed, each alone, with ':sound', or with "
                    f"a number of characters (fields: {', '.join(sorted(known))})"
                )
            rule[match[1]] = (
                Whole() if match[2] is None else Soundex() if match[2] == "sound" else Prefix(int(match[2]))
            )
        found.append(rule)
    return tuple(found)
