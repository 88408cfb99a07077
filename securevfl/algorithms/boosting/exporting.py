"""A party's splits, and the active party's trees, for another scoring engine."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from securevfl.algorithms.boosting.categories import NUMBER, code_flags
from securevfl.algorithms.boosting.trees import LEAF, OwnSplits, Tree, read_splits, read_trees
from securevfl.errors import InputError
from securevfl.export import ExportedModel, PartSource
from securevfl.training.state import as_dict, as_tensor

__all__ = ["export_trees"]


def export_trees(source: PartSource) -> ExportedModel:
    """The active party's nodes and leaves, or a passive party's own splits.

    A node that another party splits names its owner and the number of the split in the tree, and nothing else: columns
    and thresholds are in the owner's part alone.

    Raises:
        InputError: trees on shares.
    """
    if source.protection.on_shares:
        raise InputError(
            "the trees' leaves are in shares and no party has them, also where splits were handed out: predict and "
            "serve with the other parties, or train under Paillier or Plain to export"
        )
    forest = as_dict(as_dict(source.model["parts"])["forest"])
    width = len(source.encoder.column_names)
    if not source.is_active:
        return _export_splits(read_splits(forest, columns=width))
    names = [str(name) for name in source.model["passive"]]
    trees = read_trees(as_dict(forest["trees"]), owners=len(names), outputs=source.outputs, columns=width)
    own, start = list[Tree](), as_tensor(forest["start"]).numpy()
    if "own" in source.model["parts"]:
        kept = as_dict(as_dict(source.model["parts"])["own"])
        own = read_trees(as_dict(kept["trees"]), owners=0, outputs=source.outputs, columns=width)
        start = as_tensor(kept["start"]).numpy()
    model: dict[str, Any] = {"outputs": source.outputs, "start": start.tolist()}
    model |= {"own trees": [_describe_tree(tree, names) for tree in own]} if own else {}
    model["trees"] = [_describe_tree(tree, names) for tree in trees]
    counts = {name: sum(tree.splits_of(owner) for tree in trees) for owner, name in enumerate(names, 1)}

    def compute(x: np.ndarray, others: Mapping[str, np.ndarray]) -> np.ndarray:
        return _compute_scores(start, own, trees, x, [others[name] for name in names])

    return ExportedModel(kind="trees", model=model, compute=compute, others=counts)


def _compute_scores(
    start: np.ndarray, own: Sequence[Tree], trees: Sequence[Tree], x: np.ndarray, sides: Sequence[np.ndarray]
) -> np.ndarray:
    found, taken = np.tile(start, (len(x), 1)), [0] * len(sides)
    for tree in own:
        found[:, tree.output] += np.asarray(tree.value)[tree.leaves_of(x, {}, len(x))]
    for tree in trees:
        mine = {}
        for place, bits in enumerate(sides):
            count = tree.splits_of(place + 1)
            mine[place + 1] = bits[taken[place] : taken[place] + count]
            taken[place] += count
        found[:, tree.output] += np.asarray(tree.value)[tree.leaves_of(x, mine, len(x))]
    return found


def _export_splits(trees: Sequence[OwnSplits]) -> ExportedModel:
    splits = [
        {"tree": number, "split": place, **_describe_split(*one)}
        for number, tree in enumerate(trees)
        for place, one in enumerate(zip(tree.column, tree.threshold, tree.levels, tree.missing_left, strict=True))
    ]

    def compute(x: np.ndarray, others: Mapping[str, np.ndarray]) -> np.ndarray:
        return np.concatenate([np.empty((0, len(x)), dtype=bool), *(tree.goes_left(x) for tree in trees)])

    return ExportedModel(kind="splits", model={"splits": splits}, compute=compute)


def _describe_split(column: int, threshold: float, levels: int, missing_left: bool) -> dict[str, Any]:
    found: dict[str, Any] = {"column": column}
    if levels == NUMBER:
        found["threshold"] = threshold if math.isfinite(threshold) else None
    else:
        found["levels"] = np.flatnonzero(code_flags(levels)).tolist()
    return found | {"missing left": missing_left}


def _describe_tree(tree: Tree, names: Sequence[str]) -> dict[str, Any]:
    nodes: list[dict[str, Any]] = []
    for node, owner in enumerate(tree.owner):
        if owner == LEAF:
            nodes.append({"value": tree.value[node]})
            continue
        if owner:
            found: dict[str, Any] = {"owner": names[owner - 1], "split": tree.split[node]}
        else:
            found = _describe_split(tree.split[node], tree.threshold[node], tree.levels[node], tree.missing_left[node])
        nodes.append(found | {"left": tree.left[node], "right": tree.right[node]})
    return {"output": tree.output, "nodes": nodes}
