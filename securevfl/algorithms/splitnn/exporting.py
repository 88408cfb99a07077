"""A party's half of a split network for another scoring engine: its bottom and block of the cut, or the top model.

In plain each party has its half. Under a sealed cut nobody has the block of a passive party's columns: it is in two
shares. On shares nobody has any weight, unless the job hands the model out: then each party has the rows of the first
layer that its own columns enter by, and the active party the layers above.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

from securevfl.cut import Protection
from securevfl.errors import InputError
from securevfl.export import ExportedModel, PartSource
from securevfl.export.documents import describe_encodings
from securevfl.export.onnx_columns import add_column_nodes, add_scores
from securevfl.export.onnx_graph import Graph, find_free_name
from securevfl.training.bottoms import Architecture, Frozen
from securevfl.training.frozen import FrozenBottom
from securevfl.training.networks import build_active_block, build_bottom, build_mlp
from securevfl.training.state import as_dict, as_list, as_pair, as_tensor

__all__ = ["check_in_hand", "export_half"]

OTHERS, SCORES, VALUES = "others", "scores", "z"
"""In a graph: the sum of the other parties' values and the scores, at the active party; a passive party's values."""

Layers = Sequence[nn.Module]


def check_in_hand(protection: Protection) -> None:
    """Check that each party has its own half.

    Raises:
        InputError: weights are in shares.
    """
    if protection.on_shares:
        if not protection.hands_out:
            raise InputError(
                "the model is in shares and no party has weights of it: predict and serve with the other parties, or "
                "let three parties compute and train with model = 'parts', which hands each its own part at the end"
            )
    elif protection.is_sealed:
        raise InputError(
            f"under {protection.title} the weights by which a passive party's columns enter are in two shares, of "
            "which each party has one, and only both together multiply by them: predict and serve with the other "
            "parties, or train under Plain to export"
        )
    elif protection.uses_integers:
        raise InputError("fixed_point = true is for comparisons with a sealed cut: leave it out to export")


def export_half(source: PartSource, architecture: Architecture) -> ExportedModel:
    """The party's half.

    Raises:
        InputError: it is not in its hands, or has layers that are not exported.
    """
    check_in_hand(source.protection)
    if source.protection.on_shares:
        below, block, above = _read_handed_out(source)
    else:
        below, block, above = _read_half(source, architecture)
    has_columns = bool(source.encoder.columns)
    graph, width = Graph(), _width_of(block)
    own = ""
    if has_columns:
        document = {"columns": describe_encodings(source.encoder), "clip": source.encoder.clip}
        own = _add_layers(graph, add_column_nodes(graph, document, source.encoder.row_shape), [*below, block])

    def compute(x: np.ndarray, others: Mapping[str, np.ndarray]) -> np.ndarray:
        with torch.no_grad():
            z = block(_apply(below, torch.from_numpy(x)))
            for name in source.head.others or ():
                z = z + torch.from_numpy(others[name])
            return np.asarray(_apply(above, z).double() if source.is_active else z)

    gives = find_free_name(SCORES if source.is_active else VALUES, source.encoder.columns)
    if source.is_active:
        name = find_free_name(OTHERS, source.encoder.columns)
        others = graph.add_input(name, "float", width)
        z = graph.add("Add", others, own or _bias_of(graph, block))
        add_scores(graph, graph.cast(_add_layers(graph, z, above), "double"), source.link, gives)
        model: dict[str, Any] = {"gives": gives, "takes": name, "width": width}
    else:
        graph.add_output(own or graph.constant(np.zeros((1, width), np.float32)), gives, "float", width)
        model = {"gives": gives, "width": width}
    found = ExportedModel(
        kind="network",
        model=model,
        compute=compute,
        others=dict.fromkeys(source.head.others or (), width),
        graph=graph,
    )
    if below or above or not isinstance(block, nn.Linear):
        return found
    return _as_linear(source, found, block)


def _as_linear(source: PartSource, found: ExportedModel, block: nn.Linear) -> ExportedModel:
    """A regression without layers is a table of weights, too."""
    weights = block.weight.detach().double().numpy().T
    base = np.zeros(block.out_features) if block.bias is None else block.bias.detach().double().numpy()
    model = {**found.model, "outputs": block.out_features, "weights": weights.tolist(), "base": base.tolist()}
    return ExportedModel(kind="linear", model=model, compute=found.compute, others=found.others, graph=found.graph)


def _read_half(source: PartSource, architecture: Architecture) -> tuple[Layers, nn.Module, Layers]:
    """The layers below the cut, the block of the cut, and the layers above it, with their trained weights."""
    weights, cut = as_pair(as_dict(source.model["parts"])["half"])
    shape, bottom_kind = source.encoder.row_shape, architecture.bottom
    if not source.is_active and isinstance(bottom_kind, Frozen):
        bottom: nn.Module = FrozenBottom(bottom_kind.kind, weights["weight"], weights["shift"])
        width = bottom_kind.width
    else:
        bottom, width = build_bottom(bottom_kind, shape)
    if not source.is_active:
        bottom.load_state_dict(weights)
        block = _make_linear(as_tensor(as_list(list(cut))[0]))  # type: ignore[call-overload]
        return _list_layers(bottom), block, []
    own = build_active_block(width, architecture.hidden)
    top: nn.Module = nn.Identity()
    if architecture.top is not None:
        top = build_mlp([architecture.hidden, *architecture.top, source.outputs])
    nn.ModuleList([bottom, own, top]).load_state_dict(weights)
    above = [] if isinstance(top, nn.Identity) else [nn.ReLU(), *_list_layers(top)]
    return _list_layers(bottom), own, above


def _read_handed_out(source: PartSource) -> tuple[Layers, nn.Module, Layers]:
    """The same of a network that was handed out: rows of its first layer, and the layers above."""
    blocks = {
        str(name): as_tensor(one)
        for name, one in as_dict(as_dict(as_dict(source.model["parts"])["shares"])["handed out"]).items()
    }
    if any(name.startswith("bottom") for name in blocks):
        raise InputError(
            "a network with bottoms that was handed out from shares is not exported: train with bottom = () to export"
        )
    layers: dict[str, list[torch.Tensor]] = {}
    for name, one in blocks.items():
        layers.setdefault(name.split(",")[0], []).append(one.float())
    if not source.is_active:
        return [], _make_linear(torch.cat(next(iter(layers.values())))), []
    first, *above = (torch.cat(parts) for parts in layers.values())
    block = _make_linear(first[:-1], first[-1])
    return [], block, [layer for one in above for layer in (nn.ReLU(), _make_linear(one[:-1], one[-1]))]


def _make_linear(weights: torch.Tensor, bias: torch.Tensor | None = None) -> nn.Linear:
    """A layer that multiplies rows by weights (inputs, outputs)."""
    made = nn.Linear(weights.shape[0], weights.shape[1], bias=bias is not None)
    with torch.no_grad():
        made.weight.copy_(weights.T)
        if bias is not None:
            made.bias.copy_(bias)
    return made


def _list_layers(module: nn.Module) -> list[nn.Module]:
    if isinstance(module, nn.Sequential):
        return [layer for one in module for layer in _list_layers(one)]
    return [] if isinstance(module, nn.Identity) else [module]


def _apply(layers: Layers, x: torch.Tensor) -> torch.Tensor:
    for layer in layers:
        x = layer(x)
    return x


def _width_of(block: nn.Module) -> int:
    return block.out_features if isinstance(block, nn.Linear) else int(next(block.parameters()).numel())


def _bias_of(graph: Graph, block: nn.Module) -> str:
    """The block of a party without columns: a bias alone."""
    return graph.constant(next(block.parameters()).detach().numpy()[None], np.float32)


def _add_layers(graph: Graph, value: str, layers: Layers) -> str:
    for layer in layers:
        for kind, add in _ADDERS.items():
            if isinstance(layer, kind):
                value = add(graph, value, layer)
                break
        else:
            names = "linear and convolutional layers with ReLU"
            raise InputError(f"a bottom with {type(layer).__name__} layers is not exported: {names} are")
    return value


def _add_linear(graph: Graph, value: str, layer: Any) -> str:
    product = graph.add("MatMul", value, graph.constant(layer.weight.detach().numpy().T, np.float32))
    if layer.bias is None:
        return product
    return graph.add("Add", product, graph.constant(layer.bias.detach().numpy(), np.float32))


def _add_convolution(graph: Graph, value: str, layer: Any) -> str:
    weights = [
        graph.constant(one.detach().numpy(), np.float32) for one in (layer.weight, layer.bias) if one is not None
    ]
    return graph.add("Conv", value, *weights, strides=list(layer.stride), pads=[*layer.padding, *layer.padding])


def _add_pooling(graph: Graph, value: str, layer: Any) -> str:
    size = layer.kernel_size if isinstance(layer.kernel_size, tuple) else (layer.kernel_size,) * 2
    return graph.add("MaxPool", value, kernel_shape=list(size), strides=list(size))


def _add_frozen(graph: Graph, value: str, layer: Any) -> str:
    flat = graph.add("Flatten", value, axis=1)
    product = graph.add("MatMul", flat, graph.constant(layer.weight.numpy(), np.float32))
    inner = graph.add("Add", product, graph.constant(layer.shift.numpy(), np.float32))
    if layer.kind == "fourier":
        return graph.add("Mul", graph.add("Cos", inner), graph.constant(math.sqrt(2), np.float32))
    return _add_relu6(graph, inner, layer)


def _add_relu6(graph: Graph, value: str, layer: Any) -> str:
    return graph.add("Clip", value, graph.constant(0.0, np.float32), graph.constant(6.0, np.float32))


_ADDERS: Mapping[type[nn.Module], Callable[[Graph, str, Any], str]] = {
    nn.Linear: _add_linear,
    nn.ReLU: lambda graph, value, layer: graph.add("Relu", value),
    nn.ReLU6: _add_relu6,
    nn.Flatten: lambda graph, value, layer: graph.add("Flatten", value, axis=1),
    nn.Conv2d: _add_convolution,
    nn.MaxPool2d: _add_pooling,
    FrozenBottom: _add_frozen,
}
