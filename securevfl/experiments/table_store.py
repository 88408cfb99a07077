"""Parties' tables in one file for the workers of a pool: no pickles, for its owner alone, with a digest of all of it.

A sweep over own tables writes the file before its cells run and deletes it after them. See `securevfl.run.store`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any, cast

import numpy as np

from securevfl.data import Categories, LabelBook, Names, Parties, PartyTable, Preparation
from securevfl.data.categories import Column
from securevfl.errors import InputError
from securevfl.run.digests import data_digests
from securevfl.run.store import read_tree, write_tree

__all__ = ["digest_tables", "load_tables", "store_tables"]

_NONE, _NAN = -1, -2
"""In the place of a text's length: there is none, or not a number stands there."""
_ROLES = ("label", "fold", "weight", "group", "time")


def digest_tables(parties: Parties) -> str:
    """SHA-256 of all tables and of who is active, hexadecimal."""
    parts = [f"{name} {data_digests(table, {})['table']}" for name, table in parties.items()]
    owners = [table.name for table in parties.label_owners]
    return hashlib.sha256("\n".join([*parts, *owners]).encode()).hexdigest()


def store_tables(parties: Parties, file: Path) -> None:
    """Write the tables, readable by the owner alone (mode 0600).

    Raises:
        InputError: a column holds something else than numbers, texts, truth values and dates.
        OSError: it could not be written.
    """
    owners = [table.name for table in parties.label_owners]
    tree = {
        "tables": [_pack_table(table) for table in parties.values()],
        "active": owners[0] if len(owners) == 1 else "",
        "description": parties.description,
    }
    write_tree(file, tree)


def load_tables(file: Path) -> Parties:
    """The tables that `store_tables` wrote.

    Raises:
        InputError: no such file, or it is damaged.
    """
    tree = cast(Mapping[str, Any], read_tree(file))
    tables = [_unpack_table(part) for part in tree["tables"]]
    return Parties.of(*tables, description=tree["description"], active=tree["active"])


def _pack_table(table: PartyTable) -> dict[str, object]:
    return {
        "name": table.name,
        "ids": _pack_texts(table.ids),
        "columns": {name: _pack_column(f"column {name!r} of {table.name!r}", v) for name, v in table.columns.items()},
        "categorical": sorted(table.categorical),
        **{role: None if (values := getattr(table, role)) is None else _pack_array(role, values) for role in _ROLES},
        "classes": [_to_plain("classes", one) for one in table.classes],
        "label_name": table.label_name,
        "source": table.source,
        "book": None
        if table.book is None
        else {"ids": _pack_texts(table.book.ids), "label": _pack_array("book", table.book.label)},
        "preparation": None if table.preparation is None else table.preparation.describe(),
        "persons": _pack_texts(table.persons),
        "link": {name: [_to_plain(f"linkage field {name!r}", one) for one in v] for name, v in table.link.items()},
    }


def _unpack_table(tree: Mapping[str, Any]) -> PartyTable:
    book = tree["book"]
    return PartyTable(
        name=tree["name"],
        ids=_unpack_names(tree["ids"]),
        columns={name: _as_column(packed) for name, packed in tree["columns"].items()},
        categorical=frozenset(tree["categorical"]),
        **_unpack_roles(tree),
        classes=tuple(_as_plain(one) for one in tree["classes"]),
        label_name=tree["label_name"],
        source=tree["source"],
        book=None if book is None else LabelBook(ids=tuple(_unpack_names(book["ids"])), label=_as_array(book["label"])),
        preparation=None if tree["preparation"] is None else Preparation.from_values(tree["preparation"]),
        persons=_unpack_names(tree["persons"]),
        link={name: [_as_plain(one) for one in values] for name, values in tree["link"].items()},
    )


def _unpack_roles(tree: Mapping[str, Any]) -> dict[str, Any]:
    return {role: None if tree[role] is None else _as_array(tree[role]) for role in _ROLES}


def _pack_column(where: str, values: Column) -> dict[str, object]:
    if isinstance(values, Categories):
        return {"codes": values.codes, "words": _pack_texts(values.words)}
    return _pack_array(where, values)


def _as_column(packed: Mapping[str, Any]) -> Column:
    if "codes" in packed:
        return Categories(packed["codes"], tuple(_unpack_names(packed["words"])))
    return _as_array(packed)


def _pack_array(where: str, values: np.ndarray) -> dict[str, object]:
    kind = values.dtype.kind
    if kind in "biuf":
        return {"numbers": np.ascontiguousarray(values)}
    if kind in "mM":
        return {"times": values.astype(np.int64), "unit": values.dtype.str}
    if kind == "U":
        return {"width": values.dtype.str, "texts": _pack_texts(values.tolist())}
    items = values.tolist()
    if kind == "O" and all(isinstance(one, str) or one is None or one != one for one in items):  # noqa: PLR0124 - nan
        return {"width": "O", "texts": _pack_texts(items)}
    return {"objects": [_to_plain(where, one) for one in items]}


def _as_array(packed: Mapping[str, Any]) -> np.ndarray:
    if "numbers" in packed:
        return cast(np.ndarray, packed["numbers"])
    if "times" in packed:
        return cast(np.ndarray, packed["times"].astype(packed["unit"]))
    if "texts" in packed:
        texts = _unpack_texts(packed["texts"])
        if packed["width"] != "O":
            return np.array(texts, dtype=packed["width"])
    else:
        texts = [_as_plain(one) for one in packed["objects"]]
    found = np.empty(len(texts), dtype=object)
    found[:] = texts
    return found


def _pack_texts(values: Sequence[Any]) -> dict[str, np.ndarray]:
    """Texts as their bytes, one after the other, and their lengths: a list would be a header of many megabytes."""
    words = [one.encode("utf-8", "surrogatepass") if isinstance(one, str) else one for one in values]
    lengths = [len(one) if isinstance(one, bytes) else _NONE if one is None else _NAN for one in words]
    whole = b"".join(one for one in words if isinstance(one, bytes))
    return {"bytes": np.frombuffer(bytearray(whole), dtype=np.uint8), "lengths": np.array(lengths, dtype=np.int64)}


def _unpack_texts(packed: Mapping[str, np.ndarray]) -> list[Any]:
    data, at = packed["bytes"].tobytes(), 0
    found: list[Any] = []
    for length in packed["lengths"].tolist():
        if length < 0:
            found.append(None if length == _NONE else float("nan"))
            continue
        found.append(data[at : at + length].decode("utf-8", "surrogatepass"))
        at += length
    return found


def _unpack_names(packed: Mapping[str, np.ndarray]) -> Names:
    return Names.from_texts(_unpack_texts(packed))


def _to_plain(where: str, value: Any) -> object:
    """A value as a tree holds it; dates as texts, marked."""
    value = value.item() if isinstance(value, np.generic) else value
    if isinstance(value, date):
        return {"date": value.isoformat()}
    if value is None or isinstance(value, str | bool | int | float):
        return value
    raise InputError(f"{where} holds a {type(value).__name__}; workers take numbers, texts, truth values and dates")


def _as_plain(value: Any) -> Any:
    return date.fromisoformat(value["date"]) if isinstance(value, Mapping) else value
