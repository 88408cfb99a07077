"""Compile an annotation into the object that accepts its values."""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping, Sequence, Set
from enum import Enum
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from msgspec import Meta

from securevfl_net.fields.several import AcceptsList, AcceptsTuple, Either, Named
from securevfl_net.fields.single import Accepts, AcceptsChoice, AcceptsNumber, AcceptsText, Bounds, Exact, Whatever

__all__ = ["compile_annotation"]

Nested = Callable[[Sequence[type]], Accepts | None]
"""Makes the `Accepts` of configuration classes; None if the classes are not configurations."""

_SIMPLE: Mapping[object, Accepts] = {
    bool: Exact(bool, "true or false"),
    type(None): Exact(type(None), "None"),
    None: Exact(type(None), "None"),
    Any: Whatever(),
    object: Whatever(),
}


def compile_annotation(annotation: Any, nested: Nested) -> Accepts:
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
        return AcceptsNumber(annotation, _read_bounds(metas))
    if annotation is str:
        return AcceptsText(_read_lengths(metas))
    if annotation in _SIMPLE:
        return _SIMPLE[annotation]
    if get_origin(annotation) is None and isinstance(annotation, type):
        if issubclass(annotation, Enum):
            return AcceptsChoice({member.value: member for member in annotation}, annotation)
        return nested([annotation]) or Exact(annotation, f"a {annotation.__name__}")
    return _compile_generic(annotation, _read_lengths(metas), nested)


def _read_bounds(metas: Sequence[Meta]) -> Bounds:
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


def _read_lengths(metas: Sequence[Meta]) -> Bounds:
    low = next((meta.min_length for meta in metas if meta.min_length is not None), None)
    return Bounds(low, next((meta.max_length for meta in metas if meta.max_length is not None), None))


def _compile_union(parts: Sequence[Any], nested: Nested) -> Accepts:
    """Compile a union. Configurations among the members form one section; its tag selects the class."""
    classes = [part for part in parts if isinstance(part, type) and nested([part]) is not None]
    together = nested(classes) if classes else None
    members = [compile_annotation(part, nested) for part in parts if part not in classes and part is not type(None)]
    members = ([together] if together is not None else []) + members
    members += [_SIMPLE[None]] if type(None) in parts else []
    return members[0] if len(members) == 1 else Either(members)


def _compile_generic(annotation: Any, length: Bounds, nested: Nested) -> Accepts:
    """Compile unions, literals and containers."""
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin in (Union, types.UnionType):
        found = _compile_union(parts, nested)
    elif origin is Literal:
        found = AcceptsChoice({part: part for part in parts})
    elif origin is tuple and not (len(parts) == 2 and parts[1] is ...):
        found = AcceptsTuple([compile_annotation(part, nested) for part in parts])
    elif origin in (tuple, list, Sequence):
        found = AcceptsList(compile_annotation(parts[0], nested), tuple, length)
    elif origin in (frozenset, set, Set):
        found = AcceptsList(compile_annotation(parts[0], nested), frozenset, length)
    elif origin in (dict, Mapping):
        found = Named(compile_annotation(parts[1], nested))
    else:
        raise TypeError(f"a configuration's field cannot be a {annotation!r}")
    return found
