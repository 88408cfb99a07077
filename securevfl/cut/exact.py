"""The plain cut in exact integers, rounded where the sealed cut rounds: the reference that sealed runs equal bit by
bit."""

from __future__ import annotations

import math

import numpy as np
import securevfl_crypto as crypto
import torch

from securevfl.cut.base import check_block, initial_weights
from securevfl.cut.handshake import announce_width, check_shape, read_snapshot, require_fed
from securevfl.cut.integers import (
    fixed_activations,
    fixed_noise,
    fixed_weights,
    input_gradient,
    scaled_gradient,
    to_float,
)
from securevfl.cut.plain import FloatActive, split_by_party
from securevfl.cut.spec import CutSpec
from securevfl.errors import RangeError
from securevfl.party_context import PartyContext
from securevfl.privacy import Link, Noised, NoiseShare, fan_out, map_noised, strip_noise_mark
from securevfl.transport import Kind

__all__ = ["FixedActive", "FixedPassive"]


class FixedActive(FloatActive):
    """The active party's side in exact integers, rounded where the sealed cut rounds."""

    protection = "plain, fixed point"

    async def forward(self, rows: int, *, train: bool) -> torch.Tensor:
        """See `ActiveCut.forward`."""
        shape = (rows, self._spec.width)
        point = self._spec.fixed_point
        parts = []
        for link in self._links:
            message = await link.receive(Kind.ACTIVATION, "cut/forward", "z")
            parts.append(np.asarray(check_shape(link.peer, message.arrays["z"], shape)).astype(object))
        if self._spec.reduce == "none":
            single = [to_float(part, point.z_fraction_bits, self._spec.device) for part in parts]
            return torch.stack(single) if single else torch.zeros((0, *shape))
        return to_float(sum(parts, np.zeros(shape, dtype=object)), point.z_fraction_bits, self._spec.device)

    async def backward(self, gradient: torch.Tensor | Noised[torch.Tensor]) -> None:
        """See `ActiveCut.backward`."""
        passive, point = self._site.passive, self._spec.fixed_point
        parts = split_by_party(gradient, passive) if self._spec.reduce == "none" else dict.fromkeys(passive, gradient)
        steps = {name: map_noised(part, lambda g: scaled_gradient(g, point)) for name, part in parts.items()}

        async def send_gradient(link: Link) -> None:
            await link.send(Kind.GRADIENT, "cut/backward", gradient=steps[link.peer])

        await fan_out(self._links, send_gradient)


class FixedPassive:
    """A passive party's side in exact integers."""

    protection = "plain, fixed point"

    def __init__(self, site: PartyContext, spec: CutSpec) -> None:
        self._site = site
        self._link = site.links[site.active]
        self._spec = spec
        self._trainable = False
        self._weights = crypto.WeightShare(crypto.Ring(), np.empty((0, 0), dtype=object), spec.optimiser_rule)
        self._fed: np.ndarray | None = None

    async def setup(self, width: int, *, trainable: bool) -> None:
        """See `PassiveCut.setup`."""
        self._trainable = trainable
        await announce_width(self._site, self._spec, self.protection, width, trainable)
        first = initial_weights(self._site, width, self._spec.width, self._spec.weight_bound)
        self._weights = crypto.WeightShare(
            crypto.Ring(), fixed_weights(first, self._spec.fixed_point), self._spec.optimiser_rule
        )

    async def forward(
        self, activations: torch.Tensor | Noised[torch.Tensor], *, train: bool, noise: NoiseShare | None = None
    ) -> None:
        """See `PassiveCut.forward`."""
        point = self._spec.fixed_point
        x = map_noised(activations, lambda a: fixed_activations(a, point))
        self._fed = strip_noise_mark(x) if train else None
        z = map_noised(x, lambda a: crypto.exact_product(a, self._weights.values))
        if noise is not None:
            part = strip_noise_mark(z)
            z = noise.add_to(lambda drawn: part + fixed_noise(drawn, point))
        await self._link.send(Kind.ACTIVATION, "cut/forward", z=map_noised(z, self._as_int64))

    def _as_int64(self, z: np.ndarray) -> np.ndarray:
        if max((abs(v) for v in z.flat), default=0) >= 1 << 62:
            raise RangeError(
                f"z does not fit in 62 bits, {self._spec.fixed_point.z_fraction_bits} of them behind the point: take a "
                "smaller batch or a higher learning rate at the cut, or a lower one where training diverges"
            )
        return z.astype(np.int64)

    async def backward(self) -> torch.Tensor | None:
        """See `PassiveCut.backward`."""
        message = await self._link.receive(Kind.GRADIENT, "cut/backward", "gradient")
        fed, self._fed = require_fed(self._fed), None
        array = check_shape(self._link.peer, message.arrays["gradient"], (len(fed), self._spec.width))
        step, weights = np.asarray(array), self._weights.values
        back = None
        if self._trainable:
            back = input_gradient(crypto.exact_product(step, weights.T), self._spec.fixed_point)
        self._weights.step(crypto.exact_product(np.ascontiguousarray(fed.T), step.astype(object)))
        if self._spec.weight_bound < math.inf:
            whole = self._weights.values.astype(np.float64) * 2.0**-self._spec.fixed_point.weight_fraction_bits
            check_block(whole, self._spec.weight_bound, self._site.active)
        return back

    def opened_weights(self, other: np.ndarray | None) -> np.ndarray:
        """See `OpensWeights.opened_weights`."""
        return np.asarray(self._weights.values.astype(np.float64) * 2.0**-self._spec.fixed_point.weight_fraction_bits)

    def snapshot(self) -> object:
        """See `PassiveCut.snapshot`."""
        return self._weights.state()

    def restore(self, state: object) -> None:
        """See `PassiveCut.restore`."""
        self._weights.load(*read_snapshot(state))
