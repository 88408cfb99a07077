"""What an additive model answers, on shares: parties deal their own sums ``Σ g_j(x)`` of each row, which add up to a
probability, and the computing parties turn it into log-odds, of which answers, metrics and usefulness are made as of
any model's logits.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from securevfl_crypto.replicated import SLOPE_BITS, Curve, Share, Task, concatenate

from securevfl.shares.additive.noise import PartyNoise
from securevfl.shares.engine import ONE, Engine, compute_products, scaling_job
from securevfl.shares.network_ranges import NetworkShape
from securevfl.training.state import State

__all__ = ["ScoreSum"]

# Chords through the function at log-odds of ±5.29, ±5, and every half from there, less a slope of one, which goes on
# beyond both ends; changes of slope with `SLOPE_BITS`. They are constants because the three parties need the same
# values to the last bit.
_LOG_ODDS = Curve(
    (
        *(328, 439, 720, 1179, 1921, 3108, 4971, 7812, 11955, 17625, 24743, 32768, 40793, 47911, 53581, 57724),
        *(60565, 62428, 63615, 64357, 64816, 65097, 65208),
    ),
    (
        *(704935, -232269, -184186, -111771, -67739, -41031, -24784, -14857, -8721, -4815, -2134, 0, 2134, 4814),
        *(8723, 14856, 24784, 41030, 67741, 111769, 184188, 232267, -704934),
    ),
    start=-1421990849,
)
"""log(p / (1 − p)) − p of a probability with 16 fractional bits: error at most 0.031, half a unit of an answer."""

_LOGARITHM = Curve(
    (
        *(328, 427, 557, 725, 945, 1232, 1606, 2093, 2728, 3556, 4634, 6040, 7872, 10259, 13371, 17427, 22713),
        *(29602, 38581, 50284, 65536),
    ),
    (
        *(711109, -166396, -127611, -97839, -75305, -57775, -44292, -33975, -26078, -19999, -15344, -11775, -9033),
        *(-6930, -5319, -4081, -3131, -2402, -1843, -1415, -566),
    ),
    start=-1423337710,
)
"""log p − p, likewise: error at most 0.009."""


class ScoreSum:
    """The model as the computing parties have it: nothing but how parts of a score add up, as a `Trainee`.

    Args:
        shape: whose inputs are the outputs of the model, once for each data party.
        engine: computes on shares.
        noise: this party's part of the noise on the sums of training; None for none.
    """

    def __init__(self, shape: NetworkShape, engine: Engine, noise: PartyNoise | None = None) -> None:
        self.shape = shape
        self.engine = engine
        self.noise = noise

    async def forward(self, inputs: Sequence[Share]) -> Share:
        """Logits (n, outputs) with 16 fractional bits; of a number between −1 and 1, as its range is
        scaled.

        Log-odds below 0.005 and above 0.995 go on with a slope of one.

        Args:
            inputs: each data party's part of the rows' probabilities, or of a number between 0 and 1, (n, outputs) with
                16 fractional bits.
        """
        total = inputs[0]
        for part in inputs[1:]:
            total = total + part
        if self.shape.is_numeric:
            return total * 2 - self.engine.constant(np.full(total.shape, ONE, np.uint64))
        curve = _LOG_ODDS if self.shape.classes == 2 else _LOGARITHM
        ((bent,),) = await self.engine.run_masked([Task(self.engine.additive_summand(total), curve=curve)])
        wide = bent + total * (1 << SLOPE_BITS)
        (found,) = await compute_products(self.engine, [scaling_job(self.engine, wide, 1, SLOPE_BITS)])
        return found

    async def sum_others(self, inputs: Sequence[Share]) -> tuple[int, list[Share]]:
        """How many rows these are, and the sum of each passive party's parts, (1, outputs)."""
        return len(inputs[0]), [part.sum(axis=0, keepdims=True) for part in inputs[1:]]

    async def forward_averaged(self, inputs: Sequence[Share], averages: Sequence[Share]) -> tuple[Share, Share]:
        """Logits as they are, and with the passive parties' parts at their mean; (n, outputs) each."""
        n = len(inputs[0])
        means = [mean.broadcast_to(part.shape) for mean, part in zip(averages, inputs[1:], strict=True)]
        found = await self.forward(
            [concatenate([one, other]) for one, other in zip(inputs, [inputs[0], *means], strict=True)]
        )
        return found[:n], found[n:]

    async def out_of_range(self) -> Share:
        """One bit that is zero: no weight is on shares, and sums of parts do not wrap."""
        return self.engine.constant(np.zeros(1, np.uint64))

    def list_shares(self) -> list[Share]:
        """None: every shape is with the owner of its column."""
        return []

    def replace_shares(self, fresh: Sequence[Share]) -> None:
        """Nothing to replace."""

    def pack_model(self) -> State:
        """Empty."""
        return {}

    def unpack_model(self, state: State) -> None:
        """Nothing to take."""

    def pack_training(self) -> State:
        """Empty."""
        return {}

    def unpack_training(self, state: State) -> None:
        """Nothing to take."""
