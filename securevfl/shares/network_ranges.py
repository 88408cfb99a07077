"""The network that is trained on shares: its layers, its first weights, and the ranges within which no product wraps.

Values are fixed point with 16 bits behind the point, modulo 2^64. A product of two has 32, and is right as long as it
stays below 2^62 in size. Norms prove it: with Frobenius norm N_k of layer k (bias included) and ‖x_0‖ at most
8·sqrt(d + 1), ‖x_k+1‖ is at most N_k ‖x_k‖ + 1. The norms are checked once an epoch, on shares, and one bit of it is
opened; between two checks they may double, and the ranges here are those of doubled norms.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from securevfl_crypto.replicated import SLOPE_BITS
from securevfl_crypto.ring import FRACTION, encode_words

from securevfl.errors import InputError
from securevfl.party_context import derive_seed

__all__ = [
    "CURVATURE_BITS",
    "ERROR_BOUND",
    "INPUT_BOUND",
    "TARGET_BOUND",
    "Layer",
    "NetworkShape",
    "OptimiserConstants",
]

INPUT_BOUND = 8.0
"""Largest size of an input of the first layer: clipped features are below it, and ReLU6 ends at 6."""

ERROR_BOUND = 3.0
"""Largest error of a number that counts as it is: δ of its Huber loss, in units of the scaled target. A ReLU6 clips the
error on both sides, once this is added to it."""

CURVATURE_BITS = 2
"""The error of a number times 2^-2 is its gradient, as at a cut: `securevfl.privacy.loss.CURVATURE`."""

TARGET_BOUND = 1024.0
"""Largest size of a scaled target."""

_SLACK = 2.0
_LARGEST = 62
_RATE_BITS = 8
_LONGEST = 44
Then = Literal["", "relu", "relu6"]


@dataclass(frozen=True, slots=True)
class Layer:
    """A dense layer; its weights are (inputs + 1, outputs), the bias in the last row.

    Attributes:
        name: in checkpoints.
        inputs: columns that enter it.
        outputs: columns that leave it.
        then: what follows.
    """

    name: str
    inputs: int
    outputs: int
    then: Then = ""

    @property
    def max_norm(self) -> float:
        """The largest Frobenius norm that its weights may have when they are checked."""
        return max(16.0, 4 * math.sqrt(self.outputs))


@dataclass(frozen=True, slots=True)
class OptimiserConstants:
    """SGD with momentum: ``M ← μ M + η (∂L/∂W + λ W)``, ``W ← W − M``.

    Attributes:
        lr: η.
        momentum: μ.
        decay: λ.
    """

    lr: float
    momentum: float
    decay: float


@dataclass(frozen=True, slots=True)
class Step:
    """One layer's step in integers: ``M ← (factor · XᵀΔ + keep · M + decay · W) >> shift``."""

    factor: int
    keep: int
    decay: int
    shift: int


@dataclass(frozen=True)
class NetworkShape:
    """A split network as one: each party's bottom, and above them the layers that all share.

    Attributes:
        inputs: width of each data party's input, the active party's first.
        bottom: widths of every bottom, the last one under ReLU6; empty for none.
        hidden: widths of the layers with ReLU above the joined bottoms.
        classes: number of classes; two have one output, and so has one, which stands for a number.

    Raises:
        InputError: a network whose products could wrap.
    """

    inputs: tuple[int, ...]
    bottom: tuple[int, ...]
    hidden: tuple[int, ...]
    classes: int

    def __post_init__(self) -> None:
        self.layer_ranges()

    @property
    def outputs(self) -> int:
        """Width of the logits."""
        return 1 if self.is_numeric or self.classes == 2 else self.classes

    @property
    def is_numeric(self) -> bool:
        """Whether it learns a number."""
        return self.classes == 1

    @property
    def extra_bits(self) -> int:
        """Fractional bits that the gradient at the logits has beyond the others."""
        if self.is_numeric:
            return CURVATURE_BITS
        return SLOPE_BITS if self.classes == 2 else 0

    def bottom_layers(self) -> list[list[Layer]]:
        """For each level of the bottoms, every party's layer; a party without columns has none."""
        levels = []
        widths = list(self.inputs)
        for level, width in enumerate(self.bottom):
            then: Then = "relu6" if level == len(self.bottom) - 1 else "relu"
            levels.append(
                [Layer(f"bottom {p}.{level}", inputs, width, then) for p, inputs in enumerate(widths) if inputs]
            )
            widths = [width if inputs else 0 for inputs in widths]
        return levels

    def top_layers(self) -> list[Layer]:
        """The layers above: from the joined bottoms to the logits."""
        joined = sum(self.bottom[-1] if self.bottom and width else width for width in self.inputs)
        widths = [joined, *self.hidden, self.outputs]
        last = len(widths) - 2
        return [Layer(f"layer {i}", widths[i], widths[i + 1], "" if i == last else "relu") for i in range(last + 1)]

    def all_layers(self) -> list[Layer]:
        """All of them."""
        return [layer for level in self.bottom_layers() for layer in level] + self.top_layers()

    def first_weights(self, seed: int) -> dict[str, np.ndarray]:
        """Layer → weights as training begins, uint64; N(0, 1/inputs), N(0, 2/inputs) after a ReLU, zero in the last
        layer, and zero biases.

        All parties know them: they say nothing of anybody's rows. The last layer is zero for that reason. From a model
        that hardly moved, known weights would make each answer a known equation in the row's columns: an untrained
        job with 24 classes gave all 18 columns of a party away, without one known record.

        Args:
            seed: the job's.
        """
        found = {}
        first = {layer.name for layer in (self.bottom_layers() or [self.top_layers()])[0]}
        last = self.top_layers()[-1].name
        for layer in self.all_layers():
            generator = np.random.default_rng(derive_seed(seed, "weights on shares", layer.name))
            gain = 0.0 if layer.name == last else 1.0 if layer.name in first else 2.0
            weights = generator.normal(0, math.sqrt(gain / max(layer.inputs, 1)), (layer.inputs, layer.outputs))
            found[layer.name] = encode_words(np.vstack([weights, np.zeros((1, layer.outputs))]))
        return found

    def layer_ranges(self) -> dict[str, tuple[float, float]]:
        """Layer → bounds on the norm of one row of its input and of one row of the gradient at its output.

        Raises:
            InputError: a product could be 2^62 or more; says which, and what to make smaller.
        """
        forward: dict[str, float] = {}
        reached = []
        for party, width in enumerate(self.inputs):
            bound = INPUT_BOUND * math.sqrt(width)
            for layer in (
                one for level in self.bottom_layers() for one in level if one.name.startswith(f"bottom {party}.")
            ):
                forward[layer.name] = math.hypot(bound, 1)
                bound = forward[layer.name] * layer.max_norm * _SLACK
                if layer.then == "relu6":
                    bound = min(bound, 6 * math.sqrt(layer.outputs))
            reached.append(bound)
        bound = math.hypot(*reached) if reached else 0.0
        largest = 0.0
        for layer in self.top_layers():
            forward[layer.name] = math.hypot(bound, 1)
            bound = forward[layer.name] * layer.max_norm * _SLACK
            largest = max(largest, bound)
        largest = max([largest, *(forward[layer.name] * layer.max_norm * _SLACK for layer in self.all_layers())])
        back: dict[str, float] = {}
        gradient = math.sqrt(2)
        for layer in reversed(self.top_layers()):
            back[layer.name] = gradient
            gradient *= layer.max_norm * _SLACK
        for level in reversed(self.bottom_layers()):
            for layer in level:
                back[layer.name] = gradient
            gradient *= max(layer.max_norm for layer in level) * _SLACK
        largest = max(largest, gradient)
        if largest * 2.0 ** (2 * FRACTION) >= 2.0**_LARGEST:
            raise InputError(
                f"a value of this network could reach 2^{math.log2(largest):.1f} on shares, and its product with 32 "
                f"fractional bits 2^{math.log2(largest) + 2 * FRACTION:.1f}; below 2^{_LARGEST} nothing wraps: take "
                "fewer or narrower layers"
            )
        return {name: (forward[name], back[name]) for name in forward}

    def layer_steps(self, rule: OptimiserConstants, batch_size: int, noise: float = 0.0) -> dict[str, Step]:
        """Layer → its step in integers.

        Args:
            rule: of the optimiser.
            batch_size: nominal rows in a batch: the loss is the sum over a batch divided by it.
            noise: the largest size of the noise that is added to a sum over a batch.

        Raises:
            InputError: a batch so large, or a rate so small or large, that a step could wrap.
        """
        rate = rule.lr / batch_size
        norms = {layer.name: layer.max_norm for layer in self.all_layers()}
        found = {}
        for name, (entering, back) in self.layer_ranges().items():
            sums = math.log2(batch_size * entering * back + noise)
            room = _LARGEST - 1 - 2 * FRACTION - math.ceil(sums)
            # what is kept: while weights are within twice their norm N, |M| ≤ 4 N, for M is how far they moved
            kept = norms[name] * _SLACK * (2 * rule.momentum + rule.lr * rule.decay)
            most = _LARGEST - 1 - FRACTION - math.ceil(math.log2(kept)) if kept else _LONGEST
            bits = min(room, _RATE_BITS, min(most, _LONGEST) - FRACTION + 1 + math.floor(math.log2(rate)))
            more = bits - 1 - math.floor(math.log2(rate))
            shift = FRACTION + more
            if room >= 1 and bits < 1:
                raise InputError(
                    f"on shares lr {rule.lr:g} with batches of {batch_size} is too small a step for {name}: lr over "
                    f"the batch size is 2^{math.log2(rate):.1f}, and numbers have {FRACTION} fractional bits: take a "
                    "larger lr, or smaller batches"
                )
            if bits < 1 or not FRACTION <= shift <= _LONGEST:
                raise InputError(
                    f"on shares a step of {name} with {batch_size} rows and lr {rule.lr:g} could wrap: the sum over "
                    f"the batch may reach 2^{sums:.1f}, and lr over the batch size "
                    f"is 2^{math.log2(rate):.1f}: take smaller batches, or a network with fewer layers"
                )
            factor = round(rate * 2.0**more)
            found[name] = Step(
                factor=factor,
                keep=round(rule.momentum * 2.0**shift),
                decay=round(rule.lr * rule.decay * 2.0**shift),
                shift=shift,
            )
        return found
