"""From logits to scores inside an ONNX graph: probabilities with their calibration, or numbers in their units."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from securevfl.export.onnx_graph import Graph

__all__ = ["add_scores"]

_TINY = 1e-12
_STEEPEST = 50.0


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
