"""A split network on shares: forward, backward and the optimiser's step, for whatever computes on shares.

Every product is followed by a truncation in the same rounds. Products that do not wait for each other share rounds: a
layer's weight gradient and the gradient at its input, the bottoms of all parties.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
from securevfl_crypto.replicated import Product, Share, concatenate
from securevfl_crypto.ring import FRACTION

from securevfl.shares.dp_steps import StepNoise
from securevfl.shares.engine import (
    ONE,
    Engine,
    compute_products,
    excess_of_quarters,
    quarter_job,
    scaling_job,
)
from securevfl.shares.network_ranges import ERROR_BOUND, Layer, NetworkShape, OptimiserConstants
from securevfl.shares.packed_shares import pack_shares, unpack_shares
from securevfl.training.state import State, as_dict

__all__ = ["Network", "Tape"]

_LARGEST_SUM = 61


@dataclass
class Tape:
    """What a forward pass leaves for the backward one.

    Attributes:
        entered: layer → its input with a column of ones, (n, inputs + 1).
        gates: layer → bits of where its ReLU passes, (n, outputs).
    """

    entered: dict[str, Share] = field(repr=False)
    gates: dict[str, Share] = field(repr=False)


class Network:
    """The weights, as shares, and what moves them.

    Args:
        shape: layers.
        rule: of the optimiser.
        batch_size: nominal rows in a batch.
        engine: computes on shares.
        seed: the job's; the first weights follow from it.
        noise: this party's part of the noise on each sum of gradients, or None for none.

    Attributes:
        weights: layer → (inputs + 1, outputs), the bias last, 16 fractional bits.
        moving: layer → the momentum M, likewise.
    """

    def __init__(
        self,
        shape: NetworkShape,
        rule: OptimiserConstants,
        batch_size: int,
        engine: Engine,
        seed: int,
        *,
        noise: StepNoise | None = None,
    ) -> None:
        self.shape = shape
        self.engine = engine
        self.noise = noise
        self._steps = shape.layer_steps(rule, batch_size, 0.0 if noise is None else noise.largest)
        first = shape.first_weights(seed)
        self.weights = {name: engine.constant(words) for name, words in first.items()}
        self.moving = {name: engine.constant(np.zeros_like(words)) for name, words in first.items()}

    async def forward(
        self,
        inputs: Sequence[Share],
        *,
        tape: Tape | None = None,
        last: Literal["sigmoid", "relu6"] | None = None,
        beside: Share | None = None,
    ) -> Share:
        """Logits (n, outputs), or a function of them: the sigmoid with `NetworkShape.extra_bits` more fractional bits.

        Args:
            inputs: each data party's, (n, d_p); parties without columns have (n, 0).
            tape: is filled where `backward` follows.
            last: the function.
            beside: added to the logits before the function, (n, outputs).
        """
        shape = self.shape
        parts = {f"{party}": one for party, one in enumerate(inputs) if shape.inputs[party]}
        for level in shape.bottom_layers():
            entering = [self._with_ones(parts[_party_of(layer)]) for layer in level]
            jobs = [self._forward_job(layer, x) for layer, x in zip(level, entering, strict=True)]
            for layer, x, done in zip(level, entering, await self.engine.compute_products(jobs), strict=True):
                parts[_party_of(layer)] = _record_layer(tape, layer, x, done)
        a = concatenate(list(parts.values()), axis=1)
        for layer in shape.top_layers():
            x = self._with_ones(a)
            job = self._forward_job(layer, x)
            if last is not None and layer == shape.top_layers()[-1]:
                job = replace(job, then=last, add=None if beside is None else beside * ONE)
            (done,) = await self.engine.compute_products([job])
            a = _record_layer(tape, layer, x, done)
        return a

    async def train_batch(self, inputs: Sequence[Share], targets: Share) -> None:
        """One step on a batch.

        Args:
            inputs: as for `forward`.
            targets: probabilities of the classes (n, outputs): of the second class where there are two; or scaled
                numbers, (n, 1).
        """
        tape = Tape({}, {})
        if self.shape.is_numeric:  # min(max(f − y, −3), 3) by one ReLU6 behind the last product: no round more
            bound = _share_constant(self.engine, ERROR_BOUND, targets.size).reshape(*targets.shape)
            found = await self.forward(inputs, tape=tape, last="relu6", beside=bound - targets)
            await self.backward(tape, found - bound)
            return
        if self.shape.classes == 2:  # the sigmoid's comparisons share the rounds of the last product
            found = await self.forward(inputs, tape=tape, last="sigmoid")
        else:
            found = await self.engine.softmax(await self.forward(inputs, tape=tape))
        await self.backward(tape, found - targets * (1 << self.shape.extra_bits))

    async def backward(self, tape: Tape, gradient: Share) -> None:
        """Step all weights by the gradient at the logits, (n, outputs), with `NetworkShape.extra_bits` more bits.

        Those bits are cut off while the gradient goes down one layer, so that the last layer steps one level later.
        """
        tops, levels = self.shape.top_layers(), self.shape.bottom_layers()
        finer = self.shape.extra_bits
        waiting: list[tuple[Layer, Share]] = []
        for number in reversed(range(len(tops))):
            layer = tops[number]
            gate = tape.gates.get(tops[number - 1].name) if number else None
            if number == 0 and levels:
                gate = concatenate([tape.gates[one.name] for one in levels[-1]], axis=1)
            jobs = [self._step_job(one, tape, above) for one, above in waiting]
            jobs.append(
                scaling_job(self.engine, gradient, 1, finer) if finer else self._step_job(layer, tape, gradient)
            )
            if gate is not None:
                jobs.append(self._back_job(layer, gradient, gate, finer))
            done = await compute_products(self.engine, jobs)
            for (one, _), moved in zip(waiting, done, strict=False):
                self._apply_step(one, moved)
            own = done[len(waiting)]
            waiting = [(layer, own)] if finer else []
            if not finer:
                self._apply_step(layer, own)
            finer = 0
            if gate is not None:
                gradient = done[-1]
        if levels or waiting:
            await self._back_through_bottoms(tape, gradient, waiting)

    async def _back_through_bottoms(self, tape: Tape, joined: Share, waiting: list[tuple[Layer, Share]]) -> None:
        """Step the bottoms by the gradient at their joined activations, and layers above that wait to step."""
        levels = self.shape.bottom_layers()
        width = self.shape.bottom[-1] if levels else 0
        gradients = {
            _party_of(one): joined[:, i * width : (i + 1) * width] for i, one in enumerate((levels or [[]])[-1])
        }
        for number in reversed(range(max(len(levels), 1))):
            level = levels[number] if levels else []
            stepping = waiting + [(layer, gradients[_party_of(layer)]) for layer in level]
            jobs = [self._step_job(layer, tape, gradient) for layer, gradient in stepping]
            if number:
                jobs += [
                    self._back_job(layer, gradients[_party_of(layer)], tape.gates[below.name])
                    for layer, below in zip(level, levels[number - 1], strict=True)
                ]
            done = await compute_products(self.engine, jobs)
            for (layer, _), moved in zip(stepping, done, strict=False):
                self._apply_step(layer, moved)
            gradients = {_party_of(layer): one for layer, one in zip(level, done[len(stepping) :], strict=False)}
            waiting = []

    def _with_ones(self, x: Share) -> Share:
        ones = self.engine.constant(np.full((len(x), 1), ONE, dtype=np.uint64))
        return concatenate([x, ones], axis=1)

    def _forward_job(self, layer: Layer, x: Share) -> Product:
        return Product(x, self.weights[layer.name], shift=FRACTION, then=layer.then or None)

    def _step_job(self, layer: Layer, tape: Tape, gradient: Share) -> Product:
        step, name = self._steps[layer.name], layer.name
        kept = self.moving[name] * step.keep
        if step.decay:
            kept = kept + self.weights[name] * step.decay
        own = None
        if self.noise is not None:  # before the truncation, so that all that follows is computed from the noisy sum
            own = self.noise.draw_words((layer.inputs + 1, layer.outputs)) * np.uint64(step.factor)
        return Product((tape.entered[name] * step.factor).T, gradient, shift=step.shift, add=kept, own=own)

    def _back_job(self, layer: Layer, gradient: Share, gate: Share, finer: int = 0) -> Product:
        return Product(gradient, self.weights[layer.name][:-1].T, shift=FRACTION + finer, gate=gate)

    def _apply_step(self, layer: Layer, moved: Share) -> None:
        self.moving[layer.name] = moved
        self.weights[layer.name] = self.weights[layer.name] - moved

    async def out_of_range(self) -> Share:
        """Bits that are all zero where every layer's weights are within their norm, and every weight too, so that the
        norm itself was computed without a wrap. Six rounds: norms and weights share them.

        The squares of a wide layer are added up in parts, each so short that its sum cannot wrap.
        """
        engine, layers = self.engine, self.shape.all_layers()
        flat = {layer.name: self.weights[layer.name].reshape(-1, 1) for layer in layers}
        jobs, owners = [], []
        for layer in layers:
            words, most = flat[layer.name], _squares_at_once(layer.max_norm)
            for start in range(0, len(words), most):
                part = words[start : start + most]
                jobs.append(Product(part.T, part, shift=FRACTION))
                owners.append(layer.name)
        words = concatenate([flat[layer.name].reshape(-1) for layer in layers])
        *products, quarter = await compute_products(engine, [*jobs, quarter_job(engine, words)])
        squares: dict[str, Share] = {}
        for name, square in zip(owners, products, strict=True):
            found = square.reshape(-1)
            squares[name] = squares[name] + found if name in squares else found
        norms = [squares[layer.name] - _share_constant(engine, layer.max_norm**2, 1) for layer in layers]
        bounds = [np.full(flat[layer.name].size, round(layer.max_norm * ONE), np.int64) for layer in layers]
        excess = excess_of_quarters(engine, quarter, np.concatenate(bounds))
        return (await engine.compare(concatenate([*norms, excess]))).reshape(-1)

    async def sum_others(self, inputs: Sequence[Share]) -> tuple[int, list[Share]]:
        """How many rows these are, and the sum of each passive party's inputs, (1, d)."""
        return len(inputs[0]), [part.sum(axis=0, keepdims=True) for part in inputs[1:]]

    async def forward_averaged(self, inputs: Sequence[Share], averages: Sequence[Share]) -> tuple[Share, Share]:
        """Outputs as they are, and with the passive parties' rows at their mean; (n, outputs) each."""
        n = len(inputs[0])
        means = [mean.broadcast_to(part.shape) for mean, part in zip(averages, inputs[1:], strict=True)]
        both = [concatenate([one, other]) for one, other in zip(inputs, [inputs[0], *means], strict=True)]
        outputs = await self.forward(both)
        return outputs[:n], outputs[n:]

    def list_shares(self) -> list[Share]:
        """All shares that a checkpoint keeps."""
        return [*self.weights.values(), *self.moving.values()]

    def replace_shares(self, fresh: Sequence[Share]) -> None:
        """Take other shares of the same values, in the order of `list_shares`."""
        taken = iter(fresh)
        self.weights = {name: next(taken) for name in self.weights}
        self.moving = {name: next(taken) for name in self.moving}

    def pack_model(self) -> State:
        """The weights."""
        return pack_shares(self.weights)

    def unpack_model(self, state: State) -> None:
        """Go back to a snapshot; the momentum begins anew.

        Raises:
            InputError: shares of another network.
        """
        self.weights = unpack_shares(state, self.weights)
        zero = {name: np.zeros(one.shape, dtype=np.uint64) for name, one in self.weights.items()}
        self.moving = {name: self.engine.constant(words) for name, words in zero.items()}

    def pack_training(self) -> State:
        """The weights, and their momentum."""
        return {"weights": self.pack_model(), "moving": pack_shares(self.moving)}

    def unpack_training(self, state: State) -> None:
        """Resume from a state.

        Raises:
            InputError: shares of another network.
        """
        self.unpack_model(as_dict(state["weights"]))
        self.moving = unpack_shares(as_dict(state["moving"]), self.moving)


def _party_of(layer: Layer) -> str:
    """``"0"`` of ``"bottom 0.1"``."""
    return layer.name.removeprefix("bottom ").split(".")[0]


def _record_layer(tape: Tape | None, layer: Layer, x: Share, done: Share | tuple[Share, Share]) -> Share:
    a, gate = done if isinstance(done, tuple) else (done, None)
    if tape is not None:
        tape.entered[layer.name] = x
        if gate is not None:
            tape.gates[layer.name] = gate
    return a


def _squares_at_once(largest: float) -> int:
    """How many squares of weights up to `largest` add up, with 32 fractional bits, to less than 2^61."""
    return max(1, int(2.0 ** (_LARGEST_SUM - 2 * FRACTION) / largest**2))


def _share_constant(engine: Engine, value: float, count: int) -> Share:
    return engine.constant(np.full(count, round(value * ONE), dtype=np.uint64))
