"""Compile an annotation into the object that accepts its values."""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping, Sequence, Set
from enum import Enum
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from msgspec import Meta

from securevfl_net.fields.several import Either, Named, Record, Several
from securevfl_net.fields.single import Accepts, Bounds, Choice, Exact, Number, Text, Whatever

__all__ = ["accepts"]

Nested = Callable[[Sequence[type]], Accepts | None]
"""Makes the `Accepts` of configuration classes; None if the classes are not configurations."""

_SIMPLE: Mapping[object, Accepts] = {
    bool: Exact(bool, "true or false"),
    type(None): Exact(type(None), "None"),
    None: Exact(type(None), "None"),
    Any: Whatever(),
    object: Whatever(),
}


def accepts(annotation: Any, nested: Nested) -> Accepts:
    """Compile an annotation.

    Args:
        annotation: as `msgspec.structs.fields` resolves it.
        nested: handles configurations in it.

    Raises:
        TypeError: an unsupported annotation; a programming error.
    """
    metas: list[Meta] = []
    if get_origin(annotation) is Annotated:
        annotation, *notes = get_args(annotation)
        metas += [note for note in notes if isinstance(note, Meta)]
    if annotation in (int, float):
        return Number(annotation, _bounds(metas))
    if annotation is str:
        return Text(_lengths(metas))
    if annotation in _SIMPLE:
        return _SIMPLE[annotation]
    if get_origin(annotation) is None and isinstance(annotation, type):
        if issubclass(annotation, Enum):
            return Choice({member.value: member for member in annotation}, annotation)
        return nested([annotation]) or Exact(annotation, f"a {annotation.__name__}")
    return _generic(annotation, _lengths(metas), nested)


def _bounds(metas: Sequence[Meta]) -> Bounds:
    found = Bounds()
    for meta in metas:
        found = Bounds(
            found.low if meta.ge is None else meta.ge,
            found.high if meta.le is None else meta.le,
            found.above if meta.gt is None else meta.gt,
            found.below if meta.lt is None else meta.lt,
            meta.description or found.reason,
        )
    return found


def _lengths(metas: Sequence[Meta]) -> Bounds:
    low = next((meta.min_length for meta in metas if meta.min_length is not None), None)
    return Bounds(low, next((meta.max_length for meta in metas if meta.max_length is not None), None))


def _union(parts: Sequence[Any], nested: Nested) -> Accepts:
    """Compile a union. Configurations among the members form one section; its tag selects the class."""
    classes = [part for part in parts if isinstance(part, type) and nested([part]) is not None]
    together = nested(classes) if classes else None
    members = [accepts(part, nested) for part in parts if part not in classes and part is not type(None)]
    members = ([together] if together is not None else []) + members
    members += [_SIMPLE[None]] if type(None) in parts else []
    return members[0] if len(members) == 1 else Either(members)


def _generic(annotation: Any, length: Bounds, nested: Nested) -> Accepts:
    """Compile unions, literals and containers."""
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin in (Union, types.UnionType):
        found = _union(parts, nested)
    elif origin is Literal:
        found = Choice({part: part for part in parts})
    elif origin is tuple and not (len(parts) == 2 and parts[1] is ...):
        found = Record([accepts(part, nested) for part in parts])
    elif origin in (tuple, list, Sequence):
        found = Several(accepts(parts[0], nested), tuple, length)
    elif origin in (frozenset, set, Set):
        found = Several(accepts(parts[0], nested), frozenset, length)
    elif origin in (dict, Mapping):
        found = Named(accepts(parts[1], nested))
    else:
        raise TypeError(f"a configuration's field cannot be a {annotation!r}")
    return found
