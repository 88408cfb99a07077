"""Both ends of an ONNX graph: raw columns in, encoded as `FeatureEncoder` does; scores out, calibration included."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from securevfl.errors import InputError
from securevfl.export.onnx_graph import Graph

__all__ = ["add_column_nodes", "add_scores", "graph_inputs"]

_CYCLES = {"month": (12.0, 1.0), "weekday": (7.0, 0.0), "hour": (24.0, 0.0)}
_FAR = 1e30
_TINY = 1e-12
_STEEPEST = 50.0


def add_column_nodes(graph: Graph, document: Mapping[str, Any], row_shape: tuple[int, ...]) -> str:
    """Add inputs for all columns, and return their encoded rows, float (rows, …).

    Args:
        graph: that grows.
        document: `columns` and `clip`, as in an exported part.
        row_shape: of an encoded row.

    Raises:
        InputError: hashed categories, which no ONNX operator computes.
    """
    parts = []
    for name, how in document["columns"].items():
        if how.get("buckets"):
            raise InputError(
                f"column {name!r} has salted hash buckets, which no ONNX operator computes: prepare it with "
                "categorical='onehot' or 'frequency', and train again"
            )
        parts.append(_ADDERS[how["how"]](graph, name, how))
    if not parts:
        raise InputError("the party has no columns, so there is nothing to export")
    joined = graph.add("Concat", *parts, axis=1) if len(parts) > 1 else parts[0]
    clip = float(document["clip"])
    clipped = graph.add("Clip", joined, graph.constant(-clip, np.float32), graph.constant(clip, np.float32))
    return graph.add("Reshape", clipped, graph.constant([-1, *row_shape], np.int64))


def graph_inputs(document: Mapping[str, Any], columns: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Raw columns, as `documents.raw_columns` gives them, in the shapes and types of the graph's inputs."""
    found = {}
    for name, how in document["columns"].items():
        values = columns[name]
        if how["how"] in ("onehot", "category"):
            found[name] = np.asarray(values, dtype=object).reshape(-1, 1)
        elif how["how"] == "block":
            found[name] = np.asarray(values, dtype=np.float32)
        else:
            found[name] = np.asarray(values, dtype=np.float64).reshape(-1, 1)
    return found


def _scale(graph: Graph, scaling: Mapping[str, Any], value: str) -> str:
    if scaling["how"] == "ranks":
        return _interpolate(graph, value, scaling["values"], scaling["scores"])
    if not scaling["spread"]:
        return graph.add("Mul", value, graph.constant(0.0, np.float64))
    moved = graph.add("Sub", value, graph.constant(scaling["centre"], np.float64))
    return graph.add("Div", moved, graph.constant(scaling["spread"], np.float64))


def _interpolate(graph: Graph, value: str, knots: list[float], scores: list[float]) -> str:
    """Piecewise linear between knots, constant beyond them, (rows, 1)."""
    if len(knots) == 1:
        return graph.add("Add", graph.add("Mul", value, graph.constant(0.0, np.float64)), graph.constant(scores[0]))
    slopes = np.diff(scores) / np.diff(knots)
    low, high = (graph.constant(one, np.float64) for one in (knots[0], knots[-1]))
    inside = graph.add("Min", graph.add("Max", value, low), high)
    # The first knot is passed by all, so that a row's interval is one fewer than the knots that it passed.
    passed = graph.cast(graph.add("LessOrEqual", graph.constant([knots[:-1]], np.float64), inside), "int64")
    passed = graph.add("ReduceSum", passed, graph.constant([1], np.int64), keepdims=1)
    passed = graph.add("Sub", passed, graph.constant(1, np.int64))

    def pick(values: Any) -> str:
        return graph.add("Gather", graph.constant(values, np.float64), passed, axis=0)

    beyond = graph.add("Sub", inside, pick(knots[:-1]))
    return graph.add("Add", graph.add("Mul", pick(slopes), beyond), pick(scores[:-1]))


def _add_scaled(graph: Graph, name: str, how: Mapping[str, Any]) -> str:
    return graph.cast(_scale(graph, how["scaling"], graph.add_input(name, "double", 1)), "float")


def _look_up(graph: Graph, name: str, levels: list[str], table: np.ndarray) -> str:
    """Rows of a table by a text: of the levels in their order, and the last one for all others."""
    text = graph.add_input(name, "string", 1)
    place = graph.add(
        "LabelEncoder",
        text,
        ml=True,
        keys_strings=levels,
        values_int64s=list(range(len(levels))),
        default_int64=len(levels),
    )
    flat = graph.add("Reshape", place, graph.constant([-1], np.int64))
    return graph.add("Gather", graph.constant(table, np.float32), flat, axis=0)


def _add_onehot(graph: Graph, name: str, how: Mapping[str, Any]) -> str:
    count = len(how["levels"])
    return _look_up(graph, name, how["levels"], np.eye(count + 1, count))


def _add_category(graph: Graph, name: str, how: Mapping[str, Any]) -> str:
    onehot, counted = how["onehot"], how["counted"]
    levels = [*onehot, *(level for level in counted if level not in set(onehot))]
    width = len(onehot) + how["other"]
    place = {level: i for i, level in enumerate(onehot)}
    table = np.zeros((len(levels) + 1, width + bool(counted)))
    shares = dict(zip(counted, how["frequency"], strict=True))
    for row, level in enumerate([*levels, None]):
        at = place.get(level, len(onehot))
        if at < width:
            table[row, at] = 1
        if counted:
            table[row, -1] = shares.get(level, how["unknown"])
    return _look_up(graph, name, levels, table)


def _add_block(graph: Graph, name: str, how: Mapping[str, Any]) -> str:
    value = graph.cast(graph.add_input(name, "float", *how["shape"]), "double")
    deviation = np.array(how["deviation"])
    moved = graph.add("Sub", value, graph.constant(how["mean"], np.float64))
    scaled = graph.add("Div", moved, graph.constant(np.where(deviation > 0, deviation, 1.0)))
    near = graph.add("Clip", scaled, graph.constant(-_FAR, np.float64), graph.constant(_FAR, np.float64))
    kept = graph.cast(graph.add("Mul", near, graph.constant((deviation > 0).astype(np.float64))), "float")
    return graph.add("Reshape", kept, graph.constant([-1, math.prod(how["shape"])], np.int64))


def _add_number(graph: Graph, name: str, how: Mapping[str, Any]) -> str:
    value = graph.add_input(name, "double", 1)
    missing = graph.add("IsNaN", value)
    if how["flag"]:
        zero = graph.add("Equal", value, graph.constant(0.0, np.float64))
        value = graph.add("Where", zero, graph.constant(0.0, np.float64), graph.constant(1.0, np.float64))
    filled = graph.add("Where", missing, graph.constant(how["fill"], np.float64), value)
    scaled = graph.cast(_scale(graph, how["scaling"], filled), "float")
    if not how["indicator"]:
        return scaled
    return graph.add("Concat", scaled, graph.cast(missing, "float"), axis=1)


def _add_date(graph: Graph, name: str, how: Mapping[str, Any]) -> str:
    value = graph.add_input(name, "double", 1)
    missing = graph.add("IsNaN", value)
    filled = graph.add("Where", missing, graph.constant(how["fill"], np.float64), value)
    since = graph.add("Sub", filled, graph.constant(how["reference"], np.float64))
    found = [_scale(graph, how["days"], since)]
    parts = _date_parts(graph, filled) if how["year"] is not None or how["cycles"] else {}
    if how["year"] is not None:
        found.append(_scale(graph, how["year"], parts["year"]))
    zero = graph.constant(0.0, np.float64)
    for cycle in how["cycles"]:
        length, first = _CYCLES[cycle]
        moved = graph.add("Sub", parts[cycle], graph.constant(first, np.float64))
        angle = graph.add("Mul", moved, graph.constant(2 * np.pi / length, np.float64))
        # Sine and cosine of doubles are missing from some runtimes; a float has enough digits for a float's result.
        for circle in ("Sin", "Cos"):
            wide = graph.cast(graph.add(circle, graph.cast(angle, "float")), "double")
            found.append(graph.add("Where", missing, zero, wide))
    if how["indicator"]:
        found.append(graph.cast(missing, "double"))
    return graph.cast(graph.add("Concat", *found, axis=1) if len(found) > 1 else found[0], "float")


def _date_parts(graph: Graph, days: str) -> dict[str, str]:
    """Year, month, weekday and hour of days since 1970-01-01, from the year 1 on, double (rows, 1).

    Whole-number arithmetic on years that begin in March, so that the leap day comes last (Hinnant, "chrono-compatible
    low-level date algorithms", 2013).
    """
    whole = graph.cast(graph.add("Floor", days), "int64")

    def number(value: int) -> str:
        return graph.constant(value, np.int64)

    def divide(value: str, by: int) -> str:
        return graph.add("Div", value, number(by))

    def times(value: str, by: int) -> str:
        return graph.add("Mul", value, number(by))

    def minus(value: str, other: str) -> str:
        return graph.add("Sub", value, other)

    def plus(value: str, by: int) -> str:
        return graph.add("Add", value, number(by))

    shifted = plus(whole, 719_468)
    era = divide(shifted, 146_097)
    day = minus(shifted, times(era, 146_097))
    year = minus(graph.add("Add", minus(day, divide(day, 1460)), divide(day, 36_524)), divide(day, 146_096))
    year = divide(year, 365)
    before = minus(graph.add("Add", times(year, 365), divide(year, 4)), divide(year, 100))
    march = divide(plus(times(minus(day, before), 5), 2), 153)
    early = graph.add("Less", march, number(10))
    month = graph.add("Where", early, plus(march, 3), plus(march, -9))
    calendar = graph.add("Add", year, times(era, 400))
    calendar = graph.add("Where", graph.add("Less", month, number(3)), plus(calendar, 1), calendar)
    # 1970-01-01 was a Thursday; 7 · 103,000 days more keep the dividend positive.
    week = plus(whole, 3 + 7 * 103_000)
    weekday = minus(week, times(divide(week, 7), 7))
    hour = graph.add("Mul", minus(days, graph.cast(whole, "double")), graph.constant(24.0, np.float64))
    found = {name: graph.cast(value, "double") for name, value in (("year", calendar), ("month", month))}
    return found | {"weekday": graph.cast(weekday, "double"), "hour": hour}


_ADDERS = {
    "scaled": _add_scaled,
    "onehot": _add_onehot,
    "block": _add_block,
    "number": _add_number,
    "date": _add_date,
    "category": _add_category,
}


def add_scores(graph: Graph, logits: str, link: Mapping[str, Any], name: str) -> None:
    """Give out the scores of logits, double (rows, outputs), as `reader.finish_scores` computes them.

    Args:
        graph: that grows.
        logits: name of the value.
        link: of the part's document.
        name: of the output.
    """
    if link["then"] == "number":
        value = logits
        if link["exponential"]:
            low, high = graph.constant(-_STEEPEST, np.float64), graph.constant(_STEEPEST, np.float64)
            value = graph.add("Exp", graph.add("Clip", logits, low, high))
        scaled = graph.add("Mul", value, graph.constant(link["scale"], np.float64))
        graph.add_output(graph.add("Add", scaled, graph.constant(link["centre"], np.float64)), name, "double", 1)
        return
    classes = len(link["classes"])
    if link["then"] == "labels":
        found = _add_sigmoid(graph, logits)
    elif link["then"] == "two classes":
        positive = _add_sigmoid(graph, logits)
        negative = graph.add("Sub", graph.constant(1.0, np.float64), positive)
        found = _correct(graph, graph.add("Concat", negative, positive, axis=1), link)
    else:
        found = _correct(graph, graph.add("Softmax", logits, axis=1), link)
    graph.add_output(found, name, "double", classes)


def _add_sigmoid(graph: Graph, value: str) -> str:
    one = graph.constant(1.0, np.float64)
    return graph.add("Div", one, graph.add("Add", one, graph.add("Exp", graph.add("Neg", value))))


def _correct(graph: Graph, probabilities: str, link: Mapping[str, Any]) -> str:
    """Apply the calibration: a temperature and an intercept for each class."""
    if link["temperature"] == 1.0 and not link["intercept"]:
        return probabilities
    logs = graph.add("Log", graph.add("Max", probabilities, graph.constant(_TINY, np.float64)))
    cooled = graph.add("Div", logs, graph.constant(link["temperature"], np.float64))
    intercept = graph.constant([link["intercept"] or [0.0]], np.float64)
    return graph.add("Softmax", graph.add("Add", cooled, intercept), axis=1)
