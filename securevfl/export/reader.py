"""Read an exported part of a model and compute its values: numpy alone, and no other file of the toolkit.

`securevfl export` puts a copy of this file beside the parts it writes, so that a scoring engine can be checked against
it. A party's own values add up to a score with those of the other parties:

```python
bank, telco = read_part("bank.part.json"), read_part("telco.part.json")
bank.score(bank_columns, {"telco": telco.own(telco_columns)})  # probabilities, (n, classes)
```

Columns are given by name: numbers as float (a truth value as 0 or 1, a date as days since 1970-01-01, NaN for a missing
value), categories as text (empty for a missing value).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["FORMAT", "ReadPart", "encode_columns", "read_part"]

FORMAT = "securevfl part 1"
_TINY = 1e-12
_STEEPEST = 50.0
_CYCLES = {"month": (12.0, 1.0), "weekday": (7.0, 0.0), "hour": (24.0, 0.0)}

Columns = Mapping[str, Any]


def read_part(file: str | Path) -> ReadPart:
    """Read a part that `securevfl export` wrote.

    Raises:
        ValueError: another file, or a network, whose values its ONNX file computes.
    """
    document = json.loads(Path(file).read_text(encoding="utf-8"))
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise ValueError(f"{file} is not an exported part of this version ({FORMAT})")
    if document["kind"] == "network":
        raise ValueError(f"{file} describes a network: evaluate {document['model']['file']} with an ONNX runtime")
    return ReadPart(document)


class ReadPart:
    """One party's exported part.

    Args:
        document: the file's content.
    """

    def __init__(self, document: Mapping[str, Any]) -> None:
        self.document = document
        self.model = document["model"]

    def own(self, columns: Columns) -> np.ndarray:
        """What this party's columns add, by kind: terms of ``"bins"`` and ``"linear"``, (n, outputs); sides of
        ``"splits"``, bool (splits, n), tree by tree.

        Args:
            columns: name → values of the rows, (n,).
        """
        x = encode_columns(self.document, columns)
        if self.document["kind"] == "splits":
            return np.array([_goes_left(split, x) for split in self.model["splits"]], dtype=bool).reshape(-1, len(x))
        if self.document["kind"] == "trees":
            raise ValueError("the active party's trees need the sides of the others' splits: call score")
        if self.document["kind"] == "linear":
            return _linear_terms(self.model, x)
        return _bin_terms(self.model, x)

    def score(self, columns: Columns, others: Mapping[str, np.ndarray]) -> np.ndarray:
        """Probabilities (n, classes), or predicted numbers (n, 1), at the active party.

        Args:
            columns: name → values of the rows, (n,).
            others: passive party → its `own` values of the same rows.
        """
        names = self.document["others"]
        if sorted(others) != sorted(names):
            raise ValueError(f"values of {', '.join(sorted(others)) or 'nobody'}; those of {', '.join(names)} are due")
        if self.document["kind"] == "trees":
            outputs = _tree_outputs(self.document, encode_columns(self.document, columns), others)
        else:
            outputs = self.own(columns) + np.asarray(self.model["base"])
            for name in names:
                outputs = outputs + others[name]
        return finish_scores(self.document["link"], outputs)


def finish_scores(link: Mapping[str, Any], outputs: np.ndarray) -> np.ndarray:
    """Probabilities (n, classes), or predicted numbers (n, 1), of summed outputs, (n, outputs)."""
    found = np.asarray(outputs, dtype=np.float64)
    if link["sums are"] == "probabilities":
        clipped = np.clip(found, link["clip"], 1 - link["clip"])
        odds = clipped / (1 - clipped) if found.shape[1] == 1 else clipped
        found = np.log(odds) + (found - clipped)
    elif link["sums are"] == "between 0 and 1":
        found = 2 * found - 1
    if link["then"] == "number":
        if link["exponential"]:
            found = np.exp(np.clip(found, -_STEEPEST, _STEEPEST))
        numbers: np.ndarray = found * link["scale"] + link["centre"]
        return numbers
    if link["then"] == "labels":
        return 1 / (1 + np.exp(-found))
    if link["then"] == "two classes":
        positive = 1 / (1 + np.exp(-found[:, :1]))
        probabilities = np.concatenate([1 - positive, positive], axis=1)
    else:
        probabilities = _softmax(found)
    if link["temperature"] == 1.0 and not link["intercept"]:
        return probabilities
    intercept = np.array(link["intercept"] or [0.0])
    return _softmax(np.log(np.maximum(probabilities, _TINY)) / link["temperature"] + intercept)


def _softmax(logits: np.ndarray) -> np.ndarray:
    wide = np.exp(logits - logits.max(axis=1, keepdims=True))
    found: np.ndarray = wide / wide.sum(axis=1, keepdims=True)
    return found


# Columns.


def encode_columns(document: Mapping[str, Any], columns: Columns) -> np.ndarray:
    """Columns as the model reads them, (n, encoded columns): float32 for networks, float64 for trees.

    Raises:
        KeyError: a column is missing.
    """
    parts = []
    rows = len(next(iter(columns.values()))) if columns else 0
    for name, how in document["columns"].items():
        if name not in columns:
            raise KeyError(f"column {name!r} of {document['party']!r} is missing")
        parts.append(_ENCODERS[how["how"]](how, columns[name]))
    scaled = document["view"] == "network"
    found = np.concatenate(parts, axis=1) if parts else np.empty((rows, 0))
    if not scaled:
        return found.astype(np.float64)
    return np.clip(found.astype(np.float32), -document["clip"], document["clip"])


def _texts(values: Any) -> list[str]:
    return ["" if value is None else str(value) for value in np.asarray(values, dtype=object).tolist()]


def _numbers(values: Any) -> np.ndarray:
    return np.asarray(values, dtype=np.float64).reshape(-1)


def _scale(scaling: Mapping[str, Any], values: np.ndarray) -> np.ndarray:
    if scaling["how"] == "ranks":
        found: np.ndarray = np.interp(values, scaling["values"], scaling["scores"])
        return found
    moved: np.ndarray = values - scaling["centre"]
    return moved / scaling["spread"] if scaling["spread"] else moved * 0.0


def _encode_scaled(how: Mapping[str, Any], values: Any) -> np.ndarray:
    return _scale(how["scaling"], _numbers(values))[:, None]


def _encode_onehot(how: Mapping[str, Any], values: Any) -> np.ndarray:
    place = {level: i for i, level in enumerate(how["levels"])}
    at = [place.get(word, -1) for word in _texts(values)]
    found: np.ndarray = np.array(at)[:, None] == np.arange(len(place))
    return found.astype(np.float64)


def _encode_block(how: Mapping[str, Any], values: Any) -> np.ndarray:
    block = np.asarray(values, dtype=np.float64)
    deviation = np.array(how["deviation"])
    divisor = np.where(deviation > 0, deviation, 1.0)
    scaled: np.ndarray = np.clip((block - np.array(how["mean"])) / divisor, -1e30, 1e30) * (deviation > 0)
    return scaled.astype(np.float32).reshape(len(block), -1)


def _encode_number(how: Mapping[str, Any], values: Any) -> np.ndarray:
    numbers = _numbers(values)
    missing = np.isnan(numbers)
    if how["flag"]:
        numbers = np.where(missing, np.nan, numbers != 0)
    scaled = _scale(how["scaling"], np.where(missing, how["fill"], numbers))
    return np.stack([scaled, missing] if how["indicator"] else [scaled], axis=1).astype(np.float32)


def _date_parts(days: np.ndarray) -> dict[str, np.ndarray]:
    missing = np.isnan(days)
    whole = np.floor(np.where(missing, 0, days)).astype(np.int64)
    months = whole.astype("datetime64[D]").astype("datetime64[M]").astype(np.int64)
    hour = (np.where(missing, 0, days) - whole) * 24
    found = {"year": 1970 + months // 12, "month": months % 12 + 1, "weekday": (whole + 3) % 7, "hour": hour}
    return {name: np.where(missing, np.nan, values.astype(np.float64)) for name, values in found.items()}


def _encode_date(how: Mapping[str, Any], values: Any) -> np.ndarray:
    numbers = _numbers(values)
    missing = np.isnan(numbers)
    filled = np.where(missing, how["fill"], numbers)
    parts = _date_parts(filled)
    found = [_scale(how["days"], filled - how["reference"])]
    if how["year"] is not None:
        found.append(_scale(how["year"], parts["year"]))
    for cycle in how["cycles"]:
        length, first = _CYCLES[cycle]
        angle = (parts[cycle] - first) * (2 * np.pi / length)
        found += [np.where(missing, 0, np.sin(angle)), np.where(missing, 0, np.cos(angle))]
    if how["indicator"]:
        found.append(missing.astype(np.float64))
    return np.stack(found, axis=1).astype(np.float32)


def _encode_category(how: Mapping[str, Any], values: Any) -> np.ndarray:
    words = _texts(values)
    width = len(how["onehot"]) + how["other"]
    place = {level: i for i, level in enumerate(how["onehot"])}
    at = np.array([place.get(word, len(place)) for word in words], dtype=np.int64)
    found = [(at[:, None] == np.arange(width)).astype(np.float64)]
    if how["counted"]:
        shares = dict(zip(how["counted"], how["frequency"], strict=True))
        found.append(np.array([shares.get(word, how["unknown"]) for word in words])[:, None])
    if how["buckets"]:
        key = bytes.fromhex(how["salt"])
        digests = [hashlib.blake2b(word.encode(), key=key, digest_size=8).digest() for word in words]
        bucket = np.array([int.from_bytes(one, "little") % how["buckets"] for one in digests], dtype=np.int64)
        found.append((bucket[:, None] == np.arange(how["buckets"])).astype(np.float64))
    return np.concatenate(found, axis=1).astype(np.float32)


def _encode_codes(how: Mapping[str, Any], values: Any) -> np.ndarray:
    place = {level: float(i) for i, level in enumerate(how["levels"])} | {"": np.nan}
    return np.array([[place.get(word, len(how["levels"]))] for word in _texts(values)], dtype=np.float64)


def _encode_plain(how: Mapping[str, Any], values: Any) -> np.ndarray:
    numbers = _numbers(values)
    if how["flag"]:
        numbers = np.where(np.isnan(numbers), np.nan, numbers != 0)
    return numbers[:, None]


def _encode_plain_date(how: Mapping[str, Any], values: Any) -> np.ndarray:
    numbers = _numbers(values)
    parts = _date_parts(numbers)
    return np.stack([numbers - how["reference"], *(parts[name] for name in how["parts"])], axis=1)


_ENCODERS = {
    "scaled": _encode_scaled,
    "onehot": _encode_onehot,
    "block": _encode_block,
    "number": _encode_number,
    "date": _encode_date,
    "category": _encode_category,
    "codes": _encode_codes,
    "plain": _encode_plain,
    "plain date": _encode_plain_date,
}


# Models.


def _bin_terms(model: Mapping[str, Any], x: np.ndarray) -> np.ndarray:
    """A value a bin and output: bin b has ``edges[b−1] < x ≤ edges[b]``; the last is that of missing values if it is
    said to be."""
    found = np.zeros((len(x), model["outputs"]))
    for j, column in enumerate(model["bins"]):
        edges = np.array(column["edges"], dtype=x.dtype)
        place = np.searchsorted(edges, x[:, j], side="left")
        if column["missing"]:
            place = np.where(np.isnan(x[:, j]), len(column["values"]) - 1, place)
        found += np.array(column["values"])[place]
    return found


def _linear_terms(model: Mapping[str, Any], x: np.ndarray) -> np.ndarray:
    weights = np.array(model["weights"], dtype=np.float64).reshape(-1, model["outputs"])
    found: np.ndarray = x.astype(np.float64) @ weights
    return found


def _goes_left(split: Mapping[str, Any], x: np.ndarray) -> np.ndarray:
    values = x[:, split["column"]]
    missing = np.isnan(values)
    if "levels" in split:
        left = np.isin(np.where(missing, -1, values), split["levels"])
    else:
        left = values <= (np.inf if split["threshold"] is None else split["threshold"])
    found: np.ndarray = np.where(missing, split["missing left"], left)
    return found


def _tree_outputs(document: Mapping[str, Any], x: np.ndarray, others: Mapping[str, np.ndarray]) -> np.ndarray:
    model, taken = document["model"], dict.fromkeys(document["others"], 0)
    found = np.tile(np.array(model["start"], dtype=np.float64), (len(x), 1))
    for tree in model.get("own trees", ()):
        found[:, tree["output"]] += _leaf_values(tree, x, others, taken)
    for tree in model["trees"]:
        found[:, tree["output"]] += _leaf_values(tree, x, others, taken)
        for name in taken:
            taken[name] += sum(node.get("owner") == name for node in tree["nodes"])
    return found


def _leaf_values(
    tree: Mapping[str, Any], x: np.ndarray, others: Mapping[str, np.ndarray], taken: Mapping[str, int]
) -> np.ndarray:
    """The value of the leaf that each row reaches, (n,). Children follow their parents."""
    at, values = np.zeros(len(x), dtype=np.int64), np.zeros(len(x))
    for number, node in enumerate(tree["nodes"]):
        here = np.flatnonzero(at == number)
        if "value" in node:
            values[here] = node["value"]
            continue
        if "owner" in node:
            left = others[node["owner"]][taken[node["owner"]] + node["split"], here]
        else:
            left = _goes_left(node, x[here])
        at[here] = np.where(left, node["left"], node["right"])
    return values
