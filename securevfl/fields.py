"""What one field of a configuration accepts, read off its annotation. Used by `config` and by nothing else.

An annotation is compiled once into an `Accepts`, which takes a value, turns it into the field's own form (lists into
tuples, whole numbers into floats, names into members of an enumeration) and notes every mistake with its path.
"""

from __future__ import annotations

import difflib
import math
import numbers
import operator
import types
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Any, Literal, Protocol, Union, get_args, get_origin

from msgspec import Meta

__all__ = ["Accepts", "Mistakes", "accepts", "nearest", "shown"]

Mistakes = list[str]
"""Sentences, each with the path, the value that was found and what was expected."""

_LONGEST = 80


class Accepts(Protocol):
    """Takes values of one annotation.

    Attributes:
        expected: what it takes, in words: ``"a whole number from 1 to 100"``.
    """

    @property
    def expected(self) -> str: ...

    def fits(self, value: object, *, plain: bool) -> bool:
        """Whether the value has the right type; its bounds are another matter."""
        ...

    def take(self, value: object, path: str, found: Mistakes, *, plain: bool) -> object:
        """The value in the field's own form.

        Args:
            value: as given.
            path: where it stands, for messages.
            found: mistakes are added here; the result means nothing then.
            plain: whether it comes from a file, where configurations are still mappings.
        """
        ...


def shown(value: object) -> str:
    """A value for a message, cut where it is long."""
    text = repr(value)
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"


def nearest(name: object, known: Iterable[str]) -> str:
    """``"; did you mean 'adam'? Known: 'adam', 'sgd'"``, without the question where nothing is near."""
    names = sorted(known)
    near = difflib.get_close_matches(str(name).lower(), [n.lower() for n in names], n=1, cutoff=0.5)
    listed = ", ".join(map(repr, names))
    return next((f"; did you mean {n!r}? Known: {listed}" for n in names if near and n.lower() == near[0]), "") or (
        f"; known: {listed}"
    )


class _Leaf:
    """Shared by what takes values without parts: one sentence for whatever does not fit."""

    expected: str

    def fits(self, value: object, *, plain: bool) -> bool:
        raise NotImplementedError

    def _refuse(self, value: object, path: str, found: Mistakes, reason: str = "") -> None:
        found.append(f"{path} is {shown(value)}; {self.expected} was expected" + (f": {reason}" if reason else ""))


@dataclass(frozen=True)
class _Bounds:
    """Of a number, or of a length."""

    low: float | None = None
    high: float | None = None
    above: float | None = None
    below: float | None = None
    reason: str = ""

    @property
    def any(self) -> bool:
        return (self.low, self.high, self.above, self.below) != (None, None, None, None)

    def hold(self, value: float) -> bool:
        """False for NaN wherever there is a bound."""
        return (
            (self.low is None or value >= self.low)
            and (self.high is None or value <= self.high)
            and (self.above is None or value > self.above)
            and (self.below is None or value < self.below)
        )

    def words(self, until: str = "up to") -> str:
        low = f" from {_number(self.low)}" if self.low is not None else ""
        low = f" above {_number(self.above)}" if self.above is not None else low
        high = f" below {_number(self.below)}" if self.below is not None else ""
        high = f" {'to' if low.startswith(' from') else until} {_number(self.high)}" if self.high is not None else high
        return low + (" and" if low and high and not high.startswith(" to ") else "") + high


def _number(value: float | None) -> str:
    return str(value) if isinstance(value, int) else f"{value:g}"


class _Number(_Leaf):
    """A whole number, or any finite one. Booleans are no numbers; numpy's scalars become Python's own."""

    def __init__(self, kind: type[int] | type[float], bounds: _Bounds) -> None:
        self._whole = kind is int
        self._bounds = bounds
        self.expected = ("a whole number" if self._whole else "a number") + bounds.words()

    def fits(self, value: object, *, plain: bool) -> bool:
        if isinstance(value, bool):
            return False
        return hasattr(value, "__index__") if self._whole else isinstance(value, numbers.Real)

    def take(self, value: object, path: str, found: Mistakes, *, plain: bool) -> object:
        if self.fits(value, plain=plain):
            try:
                number = operator.index(value) if self._whole else float(value)  # type: ignore[arg-type]
            except (OverflowError, TypeError):
                number = math.nan
            if not self._bounds.any or (math.isfinite(number) and self._bounds.hold(number)):
                return number
        self._refuse(value, path, found, self._bounds.reason)
        return value


class _Exact(_Leaf):
    """An object of a class, as it is."""

    def __init__(self, kind: type, expected: str) -> None:
        self._kind = kind
        self.expected = expected

    def fits(self, value: object, *, plain: bool) -> bool:
        return isinstance(value, self._kind)

    def take(self, value: object, path: str, found: Mistakes, *, plain: bool) -> object:
        if not self.fits(value, plain=plain):
            self._refuse(value, path, found)
        return value


class _Text(_Exact):
    """A text, of bounded length where the annotation says so."""

    def __init__(self, length: _Bounds) -> None:
        self._length = length
        super().__init__(str, "a text" + (f" of{length.words()} letters" if length.any else ""))

    def take(self, value: object, path: str, found: Mistakes, *, plain: bool) -> object:
        if not isinstance(value, str) or not self._length.hold(len(value)):
            self._refuse(value, path, found)
        return value


class _Choice(_Leaf):
    """One of the values of a `Literal`, or a member of an enumeration, by name of its value too."""

    def __init__(self, members: Mapping[object, object], enumeration: type[Enum] | None = None) -> None:
        self._members = members
        self._enumeration = enumeration
        self.expected = "one of " + ", ".join(map(repr, members))

    def fits(self, value: object, *, plain: bool) -> bool:
        return any(type(value) is type(known) for known in self._members) or self._is_member(value)

    def _is_member(self, value: object) -> bool:
        return self._enumeration is not None and isinstance(value, self._enumeration)

    def take(self, value: object, path: str, found: Mistakes, *, plain: bool) -> object:
        if self._is_member(value):
            return value
        for known, member in self._members.items():
            if type(value) is type(known) and value == known:
                return member
        texts = [known for known in self._members if isinstance(known, str)]
        if isinstance(value, str) and texts:
            found.append(f"{path} is {shown(value)}{nearest(value, texts)}")
        else:
            self._refuse(value, path, found)
        return value


class _Several:
    """A tuple of any length, or a set; given as any sequence or set but a text."""

    def __init__(self, item: Accepts, build: Callable[[Iterable[Any]], object], length: _Bounds) -> None:
        self._item = item
        self._build = build
        self._length = length
        self.expected = f"a list of {length.words().strip() + ' values, each ' if length.any else ''}{item.expected}"

    def fits(self, value: object, *, plain: bool) -> bool:
        return isinstance(value, Sequence | Set) and not isinstance(value, str | bytes | bytearray)

    def take(self, value: object, path: str, found: Mistakes, *, plain: bool) -> object:
        if not self.fits(value, plain=plain) or not isinstance(value, Sequence | Set):
            found.append(f"{path} is {shown(value)}; {self.expected} was expected")
            return value
        if not self._length.hold(len(value)):
            found.append(f"{path} holds {len(value)} values; {self.expected} was expected")
        where = (f"{path}[{i}]" if isinstance(value, Sequence) else path for i in range(len(value)))
        return self._build([self._item.take(v, at, found, plain=plain) for v, at in zip(value, where, strict=True)])


class _Record:
    """A tuple of so many values, each of its own kind."""

    def __init__(self, items: Sequence[Accepts]) -> None:
        self._items = items
        self.expected = f"a list of {len(items)} values: {', '.join(item.expected for item in items)}"

    def fits(self, value: object, *, plain: bool) -> bool:
        return isinstance(value, list | tuple)

    def take(self, value: object, path: str, found: Mistakes, *, plain: bool) -> object:
        if not isinstance(value, list | tuple) or len(value) != len(self._items):
            found.append(f"{path} is {shown(value)}; {self.expected} was expected")
            return value
        pairs = enumerate(zip(self._items, value, strict=True))
        return tuple(item.take(v, f"{path}[{i}]", found, plain=plain) for i, (item, v) in pairs)


class _Named:
    """A mapping from names to values of one kind; kept as a read-only copy."""

    def __init__(self, item: Accepts) -> None:
        self._item = item
        self.expected = f"names with {item.expected} for each"

    def fits(self, value: object, *, plain: bool) -> bool:
        return isinstance(value, Mapping)

    def take(self, value: object, path: str, found: Mistakes, *, plain: bool) -> object:
        if not isinstance(value, Mapping):
            found.append(f"{path} is {shown(value)}; {self.expected} was expected")
            return value
        taken = {}
        for name, content in value.items():
            if not isinstance(name, str):
                found.append(f"{path} has the key {shown(name)}; a text was expected")
                continue
            taken[name] = self._item.take(content, f"{path}.{name}", found, plain=plain)
        return types.MappingProxyType(taken)


class _Either:
    """A union: the first member that takes the value wins; where none does, the first of the right type complains."""

    def __init__(self, members: Sequence[Accepts]) -> None:
        self._members = members
        self.expected = " or ".join(member.expected for member in members)

    def fits(self, value: object, *, plain: bool) -> bool:
        return any(member.fits(value, plain=plain) for member in self._members)

    def take(self, value: object, path: str, found: Mistakes, *, plain: bool) -> object:
        best: Mistakes | None = None
        for member in self._members:
            if not member.fits(value, plain=plain):
                continue
            attempt: Mistakes = []
            taken = member.take(value, path, attempt, plain=plain)
            if not attempt:
                return taken
            best = best or attempt
        found.extend(best or [f"{path} is {shown(value)}; {self.expected} was expected"])
        return value


class _Whatever:
    """Anything."""

    expected = "anything"

    def fits(self, value: object, *, plain: bool) -> bool:
        return True

    def take(self, value: object, path: str, found: Mistakes, *, plain: bool) -> object:
        return value


Nested = Callable[[Sequence[type]], Accepts | None]
"""Makes the `Accepts` of configurations, or None where the classes are none."""

_SIMPLE: Mapping[object, Accepts] = {
    bool: _Exact(bool, "true or false"),
    type(None): _Exact(type(None), "None"),
    None: _Exact(type(None), "None"),
    Any: _Whatever(),
    object: _Whatever(),
}


def accepts(annotation: Any, nested: Nested) -> Accepts:
    """Compile an annotation.

    Args:
        annotation: as `msgspec.structs.fields` resolves it.
        nested: for configurations in it.

    Raises:
        TypeError: an annotation that configurations do not use; a mistake of the programmer.
    """
    metas: list[Meta] = []
    if get_origin(annotation) is Annotated:
        annotation, *notes = get_args(annotation)
        metas += [note for note in notes if isinstance(note, Meta)]
    if annotation in (int, float):
        return _Number(annotation, _bounds(metas))
    if annotation is str:
        return _Text(_lengths(metas))
    if annotation in _SIMPLE:
        return _SIMPLE[annotation]
    if get_origin(annotation) is None and isinstance(annotation, type):
        if issubclass(annotation, Enum):
            return _Choice({member.value: member for member in annotation}, annotation)
        return nested([annotation]) or _Exact(annotation, f"a {annotation.__name__}")
    return _generic(annotation, _lengths(metas), nested)


def _bounds(metas: Sequence[Meta]) -> _Bounds:
    found = _Bounds()
    for meta in metas:
        found = _Bounds(
            found.low if meta.ge is None else meta.ge,
            found.high if meta.le is None else meta.le,
            found.above if meta.gt is None else meta.gt,
            found.below if meta.lt is None else meta.lt,
            meta.description or found.reason,
        )
    return found


def _lengths(metas: Sequence[Meta]) -> _Bounds:
    low = next((meta.min_length for meta in metas if meta.min_length is not None), None)
    return _Bounds(low, next((meta.max_length for meta in metas if meta.max_length is not None), None))


def _union(parts: Sequence[Any], nested: Nested) -> Accepts:
    """Configurations among the members are taken together: their tag decides."""
    classes = [part for part in parts if isinstance(part, type) and nested([part]) is not None]
    together = nested(classes) if classes else None
    members = [accepts(part, nested) for part in parts if part not in classes and part is not type(None)]
    members = ([together] if together is not None else []) + members
    members += [_SIMPLE[None]] if type(None) in parts else []
    return members[0] if len(members) == 1 else _Either(members)


def _generic(annotation: Any, length: _Bounds, nested: Nested) -> Accepts:
    """Of unions, literals and containers."""
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin in (Union, types.UnionType):
        found = _union(parts, nested)
    elif origin is Literal:
        found = _Choice({part: part for part in parts})
    elif origin is tuple and not (len(parts) == 2 and parts[1] is ...):
        found = _Record([accepts(part, nested) for part in parts])
    elif origin in (tuple, list, Sequence):
        found = _Several(accepts(parts[0], nested), tuple, length)
    elif origin in (frozenset, set, Set):
        found = _Several(accepts(parts[0], nested), frozenset, length)
    elif origin in (dict, Mapping):
        found = _Named(accepts(parts[1], nested))
    else:
        raise TypeError(f"a configuration's field cannot be a {annotation!r}")
    return found
