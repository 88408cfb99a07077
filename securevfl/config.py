"""The base class of all configurations: algorithms, protections, differential privacy, jobs. Anything may import it; it
imports nothing of the toolkit but `errors` and `fields`.

A configuration is a frozen struct with its bounds in the annotations. It cannot exist with a value out of range, and
one error lists all mistakes, from Python and from job files alike.
"""

from __future__ import annotations

import abc
from collections.abc import Mapping, Sequence, Set
from enum import Enum
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar, dataclass_transform

import msgspec
from msgspec import structs
from securevfl_net.fields import Accepts, Mistaken, Mistakes, compile_annotation, format_value, suggest_nearest

from securevfl.errors import InputError

__all__ = ["Config", "ConfigMeta", "Mistaken", "plain_values", "take_all"]

_Class = TypeVar("_Class", bound="ConfigMeta")


class ConfigMeta(msgspec.StructMeta, abc.ABCMeta):
    """Makes configurations keyword-only, allows abstract methods, and reports unknown names."""

    def __new__(mcs: type[_Class], name: str, bases: tuple[type, ...], space: dict[str, Any], **options: Any) -> _Class:
        return super().__new__(mcs, name, bases, space, **({"kw_only": True} | options))

    if not TYPE_CHECKING:  # a type checker knows the fields better than this signature does

        def __call__(cls, *positional: object, **values: object) -> object:
            if len(positional) > cls.leading:
                many = "keywords only" if not cls.leading else f"{cls.leading} values at most without keywords"
                raise InputError(
                    f"{cls.__name__} takes {many}, but got {format_value(positional[cls.leading])} without one"
                )
            fields = _resolve_fields(cls)
            for name, value in zip(fields, positional, strict=False):
                if name in values:
                    raise InputError(
                        f"{cls.__name__} got {name} twice: as {format_value(value)} and {format_value(values[name])}"
                    )
                values[name] = value
            required = {name for name, item in fields.items() if item.required}
            if not cls.__abstractmethods__:
                cls.refuse_keywords(values)
                if not (required <= values.keys() <= fields.keys()):
                    raise Mistaken(cls.section_path(), take_all(cls, values, cls.section_path(), plain=False)[1])
            return super().__call__(**values)


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(msgspec.field,))
class Config(msgspec.Struct, frozen=True, metaclass=ConfigMeta):
    """A frozen configuration. Subclass it with annotated fields; `frozen` and `kw_only` are inherited.

    ```python
    class Ridge(Config):
        name: ClassVar[str] = "ridge"
        penalty: Annotated[float, Meta(ge=0, lt=10)] = 0.1
    ```

    Attributes:
        tag_field: key in a file's section that selects one of several classes.
        leading: number of first fields that may be given without a keyword; if it is above 0, also pass
            ``kw_only=False`` to the class, for type checkers.
        elsewhere: another library's name of a setting → its name here, for the message on an unknown field.

    Raises:
        InputError: the annotations or `problems` refuse values; the message lists all of them.
    """

    tag_field: ClassVar[str] = "name"
    leading: ClassVar[int] = 0
    elsewhere: ClassVar[Mapping[str, str]] = {}

    def __post_init__(self) -> None:
        kind, where = type(self), self.section_path()
        found: Mistakes = []
        for name, accept in _accepted_values(kind).items():
            value = getattr(self, name)
            taken = accept.convert_value(value, f"{where}.{name}", found, plain=False)
            if taken is not value:
                structs.force_setattr(self, name, taken)
        rules = self.problems() if not found else []
        if found or rules:
            raise Mistaken(where, found, rules)

    def problems(self) -> list[str]:
        """Check rules about several fields; returns a sentence per broken rule with the value, the bound and the cure.

        Called only after every single field is valid. A subclass adds to what its base returns.
        """
        return []

    @classmethod
    def tag(cls) -> str:
        """The class's name in files; empty if it has none."""
        tag = getattr(cls, cls.tag_field, "")
        return tag if isinstance(tag, str) else ""

    @classmethod
    def section_path(cls) -> str:
        """The configuration's name in messages if it has no path: its tag or its class."""
        return cls.tag() or cls.__name__.lower()

    @classmethod
    def known_types(cls) -> Mapping[str, type[Config]]:
        """Tag → class, for every class that a section for `cls` can select; a base class returns its registry."""
        return {cls.tag(): cls} if cls.tag() else {}

    @classmethod
    def refuse_keywords(cls, values: Mapping[str, object], where: str = "") -> None:
        """Hook to explain keywords that no longer exist, called before any check.

        Args:
            values: as given.
            where: path of the section in a file; empty for keywords in Python.

        Raises:
            InputError: what to write instead.
        """

    @classmethod
    def from_values(cls, values: object, where: str | None = None) -> Self:
        """Build a configuration from plain values, as read from a file.

        Args:
            values: key → value, including the class's tag if `cls` has several classes; or only the tag, for the
                defaults. Nested configurations are mappings as well.
            where: path of the section, for messages; empty for a complete file, whose sections have separate paths.

        Raises:
            InputError: lists every unknown key with the nearest known one, and every refused value.
        """
        where = cls.section_path() if where is None else where
        found: Mistakes = []
        made = _build_config(cls, [cls], values, where, found)
        if found or not isinstance(made, cls):
            raise Mistaken(where, found)
        return made

    def replace(self, **changes: Any) -> Self:
        """Return a copy with some fields changed, checked like a new one."""
        return type(self)(**({name: getattr(self, name) for name in self.__struct_fields__} | changes))

    def describe(self) -> dict[str, Any]:
        """Return plain values for JSON, the tag first; `from_values` reads them back."""
        tag = {self.tag_field: self.tag()} if self.tag() else {}
        return tag | {name: plain_values(getattr(self, name)) for name in self.__struct_fields__}

    def __repr__(self) -> str:
        parts = [
            f"{item.name}={_format_value(getattr(self, item.name))}"
            for item in _resolve_fields(type(self)).values()
            if item.required or getattr(self, item.name) != _field_default(item)
        ]
        return f"{type(self).__name__}({', '.join(parts)})"

    def __hash__(self) -> int:
        values = (getattr(self, name) for name in self.__struct_fields__)
        return hash((type(self), *(tuple(sorted(v.items())) if isinstance(v, Mapping) else v for v in values)))


def plain_values(value: object) -> Any:
    """Convert a field's value for JSON: configurations and mappings to dictionaries, tuples and sets to lists, members
    of enumerations to their values.
    """
    if isinstance(value, Config):
        return value.describe()
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return {name: plain_values(item) for name, item in sorted(value.items())}
    if isinstance(value, Set):
        return sorted(plain_values(item) for item in value)
    if isinstance(value, tuple | list):
        return [plain_values(item) for item in value]
    return value


def _format_value(value: object) -> str:
    return repr(dict(value) if isinstance(value, Mapping) else value)


def _field_default(item: structs.FieldInfo) -> object:
    return item.default if item.default_factory is msgspec.NODEFAULT else item.default_factory()


@lru_cache(maxsize=512)
def _resolve_fields(kind: type[Config]) -> dict[str, structs.FieldInfo]:
    """Return a class's fields by name, with resolved annotations."""
    return {item.name: item for item in structs.fields(kind)}


@lru_cache(maxsize=512)
def _accepted_values(kind: type[Config]) -> dict[str, Accepts]:
    """Return what each field of a class accepts."""
    return {name: compile_annotation(item.type, _accept_nested) for name, item in _resolve_fields(kind).items()}


def _accept_nested(kinds: Sequence[type]) -> Accepts | None:
    configs = [kind for kind in kinds if issubclass(kind, Config)]
    return _Section(configs) if configs and len(configs) == len(kinds) else None


class _Section:
    """A configuration of one of several classes: an object, a tag, or, in files, a mapping."""

    def __init__(self, kinds: Sequence[type[Config]]) -> None:
        self._kinds = tuple(kinds)

    @property
    def expected(self) -> str:
        tags = sorted(_find_tags(self._kinds))
        return " or ".join(f"{kind.__name__}(…)" for kind in self._kinds) + (f" ({', '.join(tags)})" if tags else "")

    def has_type(self, value: object, *, plain: bool) -> bool:
        return isinstance(value, (*self._kinds, str)) or (plain and isinstance(value, Mapping))

    def convert_value(self, value: object, path: str, found: Mistakes, *, plain: bool) -> object:
        if isinstance(value, self._kinds):
            return value
        if isinstance(value, str) or (plain and isinstance(value, Mapping)):
            return _build_config(self._kinds[0], self._kinds, value, path, found)
        found.append(f"{path} is {format_value(value)}; {self.expected} was expected")
        return value


def _find_tags(kinds: Sequence[type[Config]]) -> list[str]:
    """Return the tags of all classes that a section for these can select."""
    return [tag for kind in kinds for tag in kind.known_types()]


def _find_tagged(kinds: Sequence[type[Config]], tag: object) -> type[Config] | None:
    """Return the class of a tag, or None. No other class is looked up: each may have to be imported."""
    for kind in kinds:
        known = kind.known_types()
        if isinstance(tag, str) and tag in known and issubclass(known[tag], kind):
            return known[tag]
    return None


def _build_config(
    first: type[Config], kinds: Sequence[type[Config]], values: object, where: str, found: Mistakes
) -> Config | None:
    """Build a configuration from plain values; None if there were mistakes."""
    tags, key = _find_tags(kinds), first.tag_field
    if isinstance(values, str) and tags:
        values = {key: values}
    if not isinstance(values, Mapping):
        found.append(f"{where or 'the file'} is {format_value(values)}; a section of keys and values was expected")
        return None
    given = dict(values)
    tag = given.pop(key, None) if tags else None
    if tag is None and len(kinds) == 1 and not getattr(first, "__abstractmethods__", None):
        kind = first
    elif tag is None:
        found.append(f"{where} has no {key}; add {key} = one of {', '.join(map(repr, sorted(tags)))}")
        return None
    elif (tagged := _find_tagged(kinds, tag)) is not None:
        kind = tagged
    else:
        found.append(f"{where}.{key} is {format_value(tag)}{suggest_nearest(tag, tags)}")
        return None
    try:
        kind.refuse_keywords(given, where)
        taken, mistakes = take_all(kind, given, where, plain=True)
        found += mistakes
        return None if mistakes else kind(**taken)
    except Mistaken as error:
        found += error.at_path(where)
    except InputError as error:
        found.append(str(error))
    return None


def take_all(
    kind: type[Config], values: Mapping[str, Any], where: str, *, plain: bool
) -> tuple[dict[str, Any], Mistakes]:
    """Return the valid values in their fields' form, and all mistakes: unknown, missing and refused values.

    Args:
        kind: the class of the fields.
        values: field → value.
        where: path of the section, for messages; empty for a complete file.
        plain: whether the values come from a file.
    """
    fields = _resolve_fields(kind)
    at = {name: f"{where}.{name}" if where else name for name in fields}
    found = [
        f"{where or 'the file'} has no {name!r}"
        + (f"; here it is {kind.elsewhere[name]}" if name in kind.elsewhere else suggest_nearest(name, fields))
        for name in values
        if name not in fields
    ]
    found += [
        f"{at[name]} is missing; {_accepted_values(kind)[name].expected} was expected"
        for name, item in fields.items()
        if item.required and name not in values
    ]
    taken: dict[str, Any] = {}
    for name, accept in _accepted_values(kind).items():
        if name in values:
            mistakes: Mistakes = []
            value = accept.convert_value(values[name], at[name], mistakes, plain=plain)
            taken |= {} if mistakes else {name: value}
            found += mistakes
    return taken, found
