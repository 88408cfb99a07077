"""Job files and sweep files with random mistakes, for fuzz tests: sections of plain values, changed, and written as
TOML."""

from __future__ import annotations

import copy
import datetime
import json
import random
from collections.abc import Mapping
from typing import Any

__all__ = ["mutant", "toml"]

_ODD: tuple[Any, ...] = (
    *([], {}, "", "x", "é\u200b", 0, -1, 3, 2**62, 0.5, -0.0, 1e308, float("nan"), float("inf"), True, False),
    *([1], ["a", 1], [[]], [{}], {"name": "x"}, {"a": {"b": [1]}}, {"epsilon": 1}, [{"name": "a"}], ["splitnn"]),
    *(datetime.date(2020, 1, 1), datetime.datetime(2020, 1, 1, 12), datetime.time(1), "plain", "../../etc/passwd"),
)


def mutant(content: Mapping[str, Any], seed: int) -> str:
    """The text of a file with one to four random changes: values replaced, keys renamed, dropped, doubled or added;
    now and then a byte of the text."""
    luck = random.Random(seed)
    changed: dict[str, Any] = copy.deepcopy(dict(content))
    for _ in range(luck.randint(1, 4)):
        _change(changed, luck)
    text = toml(changed)
    if luck.random() < 0.1:
        at = luck.randrange(len(text) + 1)
        text = text[:at] + luck.choice("[]{}\"'=#\n\t,.0é") + text[at + luck.randint(0, 2) :]
    return text


def _change(content: dict[str, Any], luck: random.Random) -> None:
    nodes: list[Any] = [content]
    for node in nodes:
        nodes += [n for n in (node.values() if isinstance(node, dict) else node) if isinstance(n, dict | list)]
    node = luck.choice(nodes)
    odd = copy.deepcopy(luck.choice(_ODD))
    if isinstance(node, list):
        where = luck.randrange(len(node) + 1)
        node[where : where + luck.randint(0, 1)] = [odd]
        return
    key = luck.choice([*node, "zz", "name"])
    match luck.randint(0, 4):
        case 0 if key in node:
            del node[key]
        case 1 if key in node:
            node[key + luck.choice(["s", "x", ".", " "])] = node.pop(key)
        case 2 if key in node:
            node[key] = luck.choice([[node[key]], {"a": node[key]}])
        case _:
            node[key] = odd


def toml(content: Mapping[str, Any]) -> str:
    """A document of which every value is inline."""
    return "".join(f"{json.dumps(key)} = {_value(value)}\n" for key, value in content.items())


def _value(value: Any) -> str:
    match value:
        case bool():
            return str(value).lower()
        case str():
            return json.dumps(value)
        case dict():
            return "{" + ", ".join(f"{json.dumps(key)} = {_value(item)}" for key, item in value.items()) + "}"
        case list():
            return "[" + ", ".join(map(_value, value)) + "]"
        case datetime.date() | datetime.time():
            return value.isoformat()
        case _:
            return repr(value)
