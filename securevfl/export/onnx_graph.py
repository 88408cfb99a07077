"""Write an ONNX graph node by node; the package `onnx` is loaded when a graph is finished or evaluated."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from securevfl.errors import InputError

__all__ = ["Graph", "evaluate_graph", "find_free_name", "load_onnx"]

_OPSET, _ML_OPSET, _IR = 17, 2, 8
"""Versions that runtimes of 2022 and later read."""

_INNER = "/securevfl/"
"""Prefix of inner values, so that none has the name of a column."""

_NO_EXTRA = "an ONNX file needs the package onnx: pip install 'securevfl[export]'"


def load_onnx() -> Any:
    """The package `onnx`.

    Raises:
        InputError: it is not installed.
    """
    try:
        import onnx
    except ImportError:
        raise InputError(_NO_EXTRA) from None
    return onnx


def find_free_name(name: str, columns: Collection[str]) -> str:
    """The name, or it with underscores where a column has it already."""
    while name in columns:
        name += "_"
    return name


class Graph:
    """An ONNX graph that grows by a node at a time. Values are referred to by name."""

    def __init__(self) -> None:
        self._nodes: list[tuple[str, tuple[str, ...], str, str, dict[str, Any]]] = []
        self._constants: dict[str, np.ndarray] = {}
        self._inputs: list[tuple[str, str, tuple[int | str, ...]]] = []
        self._outputs: list[tuple[str, str, tuple[int | str, ...]]] = []
        self._uses_ml = False

    def add_input(self, name: str, kind: str, *shape: int) -> str:
        """An input with any number of rows.

        Args:
            name: of it.
            kind: ``"double"``, ``"float"`` or ``"string"``.
            shape: of a row.
        """
        self._inputs.append((name, kind, ("rows", *shape)))
        return name

    def add_output(self, value: str, name: str, kind: str, *shape: int) -> None:
        """Give a value out under a name; see `add_input`."""
        self._nodes.append(("Identity", (value,), name, "", {}))
        self._outputs.append((name, kind, ("rows", *shape)))

    def constant(self, values: Any, kind: Any = None) -> str:
        """A constant."""
        array = np.asarray(values, dtype=kind)
        digest = hashlib.sha256(f"{array.dtype} {array.shape} ".encode() + np.ascontiguousarray(array).tobytes())
        name = f"{_INNER}constant/{digest.hexdigest()[:16]}"
        self._constants[name] = array
        return name

    def add(self, operator: str, *inputs: str, ml: bool = False, **attributes: Any) -> str:
        """A node with one output; returns its name."""
        name = f"{_INNER}{len(self._nodes)}"
        self._uses_ml |= ml
        self._nodes.append((operator, inputs, name, "ai.onnx.ml" if ml else "", attributes))
        return name

    def cast(self, value: str, kind: str) -> str:
        """A value as another type: ``"float"``, ``"double"``, ``"int64"``, ``"bool"``."""
        onnx = load_onnx()
        return self.add("Cast", value, to=getattr(onnx.TensorProto, kind.upper()))

    def finish(self, facts: Mapping[str, str]) -> bytes:
        """The file's content.

        Args:
            facts: name → text, kept as the file's metadata.

        Raises:
            InputError: `onnx` is not installed.
        """
        onnx = load_onnx()
        helper, types = onnx.helper, onnx.TensorProto

        def describe(what: list[tuple[str, str, tuple[int | str, ...]]]) -> list[Any]:
            return [
                helper.make_tensor_value_info(name, getattr(types, kind.upper()), shape) for name, kind, shape in what
            ]

        nodes = [
            helper.make_node(operator, list(inputs), [output], domain=domain, **attributes)
            for operator, inputs, output, domain, attributes in self._nodes
        ]
        constants = [onnx.numpy_helper.from_array(array, name) for name, array in self._constants.items()]
        graph = helper.make_graph(nodes, "part", describe(self._inputs), describe(self._outputs), constants)
        opsets = [helper.make_opsetid("", _OPSET)] + [helper.make_opsetid("ai.onnx.ml", _ML_OPSET)] * self._uses_ml
        model = helper.make_model(graph, opset_imports=opsets, ir_version=_IR, producer_name="securevfl")
        helper.set_model_props(model, dict(facts))
        onnx.checker.check_model(model)
        found: bytes = model.SerializeToString()
        return found


def evaluate_graph(content: bytes, inputs: Mapping[str, np.ndarray]) -> np.ndarray:
    """The only output of a graph, by ONNX's own reference evaluator.

    Args:
        content: of the file.
        inputs: name → values.

    Raises:
        InputError: `onnx` is not installed.
    """
    onnx = load_onnx()
    from onnx.reference import ReferenceEvaluator

    names = {one.name for one in onnx.load_from_string(content).graph.input}
    evaluator = ReferenceEvaluator(content)
    (found,) = evaluator.run(None, {name: value for name, value in inputs.items() if name in names})
    return np.asarray(found)
