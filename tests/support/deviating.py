"""One computing party that deviates: it adds numbers of its choice to the results of chosen products on shares.

All deviations of one party come to this. A product's result has a summand that the deviating party computes alone, and
whatever it puts there is a number that it adds to the result; digests and counters do not notice, because all copies of
the result agree. It does not learn the result by it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from securevfl_crypto.replicated import Opening, deal_shares, run_three, truncation
from securevfl_crypto.ring import FRACTION, decode_words, encode_words

from securevfl.shares import Network, NetworkShape, OptimiserConstants
from securevfl.shares.engine import compute_products, scaling_job

__all__ = ["Deviation", "Reading", "deviating_party", "read_by_deviating"]

_Words = np.ndarray


@dataclass
class Deviation:
    """What a party adds where it is told to.

    Attributes:
        party: which one: 0, 1 or 2.
        added: size of a result, in words → what it adds to a result of this size while `now` is set.
        shifted: as for `added`, before truncation and comparison: what party 2 adds where it cannot to the result.
        now: set by the party's own program around the products to change.
    """

    party: int
    added: dict[int, _Words] = field(default_factory=dict)
    shifted: dict[int, _Words] = field(default_factory=dict)
    now: bool = False

    def change(self, words: _Words, index: int, sign: int = 1) -> _Words:
        """The words that the party hands on."""
        if not self.now or index != self.party or len(words) not in self.added:
            return words
        extra = self.added[len(words)]
        return words + extra if sign > 0 else words - extra


@contextmanager
def deviating_party(deviation: Deviation) -> Iterator[None]:
    """Let one of three parties deviate, in the engine."""
    summands = truncation._OpeningParty._result_summands
    mask_words = truncation._MaskParty._mask_words

    def changed_summands(self: Any, opened: Any) -> _Words:
        return deviation.change(summands(self, opened), self._party.index)

    def changed_masks(self: Any, masks: Any) -> _Words:
        words = mask_words(self, masks)
        half = len(words) // 2  # of a truncation without a gate: r ≫ f, which is subtracted, and the top bits
        return np.concatenate([deviation.change(words[:half], 2, sign=-1), words[half:]])

    begin = truncation._MaskParty.__init__

    def changed_opening(self: Any, party: Any, work: Any) -> None:
        begin(self, party, work)
        if deviation.now and deviation.party == 2:
            self._opening = self._opening + deviation.shifted.get(len(self._opening), np.uint64(0))

    truncation._OpeningParty._result_summands = changed_summands  # type: ignore[method-assign]
    truncation._MaskParty.__init__ = changed_opening  # type: ignore[method-assign]
    truncation._MaskParty._mask_words = changed_masks  # type: ignore[method-assign]
    try:
        yield
    finally:
        truncation._OpeningParty._result_summands = summands  # type: ignore[method-assign]
        truncation._MaskParty._mask_words = mask_words  # type: ignore[method-assign]
        truncation._MaskParty.__init__ = begin  # type: ignore[method-assign]


def _forge_checks(place: int, width: int) -> tuple[dict[int, _Words], dict[int, _Words]]:
    """What hides a weight that is too large from the check of the range, before and behind a comparison.

    Args:
        place: of the weight among all.
        width: number of weights.
    """
    size = 1 + 2 * width  # the norm of the layer, and whether each weight is above or below its bound
    behind, before = np.zeros(size, np.uint64), np.zeros(size, np.uint64)
    for at in (0, 1 + place):
        behind[at] = (1 << 64) - 1  # the bit is one, and has to be zero
        before[at] = (1 << 64) - (1 << 40)  # far below the bound
    return {size: behind}, {size: before}


@dataclass(frozen=True)
class Reading:
    """What came of a training with a deviating party.

    Attributes:
        bits: whether weights are in range, as each of the three parties learns after training, 1 or 0.
        logits: the final predictions as the active party opens them, (n,).
    """

    bits: tuple[int, int, int]
    logits: np.ndarray


def read_by_deviating(
    own: np.ndarray,
    theirs: np.ndarray,
    labels: np.ndarray,
    weights: np.ndarray | None,
    *,
    party: int = 0,
    rate: float = 0.5,
    forges: bool = False,
    bits: int = 8,
) -> Reading:
    """Train a logistic regression on shares, twelve steps, while a party adds to the weights in the last of them.

    Args:
        own, theirs: columns of the active and of the passive party, (n, d).
        labels: 0 or 1, (n,).
        weights: what it adds to the passive party's weights, (d,); None for a party that does not deviate.
        party: which of the computing parties deviates; the active party is party 0.
        rate: η.
        forges: whether it adds to the check of the range as well, so that it says "in range".
        bits: behind the point of opened predictions.
    """
    shape = NetworkShape((own.shape[1], theirs.shape[1]), (), (), 2)
    rule = OptimiserConstants(lr=rate, momentum=0.0, decay=0.0)
    dealt = [deal_shares(encode_words(one)) for one in (own, theirs, labels.reshape(-1, 1).astype(float))]
    width, rows = own.shape[1] + theirs.shape[1] + 1, len(own)
    deviation, extra = Deviation(party), np.zeros(width, np.uint64)
    if weights is not None:
        extra[own.shape[1] : width - 1] = encode_words(-weights)  # the step is subtracted from the weights
        deviation.added[width] = extra

    async def program(engine: Any) -> tuple[int, np.ndarray | None]:
        network = Network(shape, rule, rows // 4, engine, seed=1)
        mine, other, targets = (engine.read_dealt(one[engine.index]) for one in dealt)
        await engine.confirm("inputs", mine, other, targets)
        for step in range(12):
            here = slice(rows // 4 * (step % 4), rows // 4 * (step % 4 + 1))
            if engine.index == party:
                deviation.now = step == 11
            await network.train_batch([mine[here], other[here]], targets[here])
        if engine.index == party:
            deviation.now = forges
            deviation.added, deviation.shifted = _forge_checks(own.shape[1] + ATTACKED, width)
        in_range = await engine.is_zero("range", await network.out_of_range())
        if engine.index == party:
            deviation.now = False
        logits = await network.forward([mine, other])
        (rounded,) = await compute_products(engine, [scaling_job(engine, logits, 1, FRACTION - bits)])
        opened = await engine.open("predictions", rounded, (0,))
        return int(in_range), None if opened is None else decode_words(opened, bits).ravel()

    openings = {"range": Opening(1, None, 1), "predictions": Opening(1, (0,), rows, total=rows)}
    with deviating_party(deviation):
        found = run_three(program, openings=openings).results
    logits = found[0][1]
    assert logits is not None
    return Reading((found[0][0], found[1][0], found[2][0]), logits)


ATTACKED = 2
"""The column of the passive party that is an income."""


def draw_tables(rows: int = 256) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Columns of the active party (n, 4), of the passive one (n, 6), and labels that follow from all of them."""
    rng = np.random.default_rng(3)
    own, theirs = (rng.normal(size=(rows, width)).clip(-5, 5) for width in (4, 6))
    theirs[:, ATTACKED] = rng.lognormal(10, 1, rows).round().clip(1, 400000) / 50000
    labels = np.c_[own, theirs] @ rng.normal(size=10) + rng.normal(size=rows) * 0.3 > 0
    return own, theirs, labels.astype(float)


def column_weights(size: float) -> np.ndarray:
    """What to add so that logits follow the income."""
    return np.eye(6)[ATTACKED] * size


def packed_columns(columns: int, bits: int, rows: int = 256) -> tuple[np.ndarray, np.ndarray, tuple[int, int, int]]:
    """Read columns of yes and no from one number a row, with weights 8, 4, 2, … that stay within the range.

    Returns:
        The columns (n, columns), the active party's reading of them, and the range bits.
    """
    rng = np.random.default_rng(4)
    own, yes = rng.normal(size=(rows, 4)).clip(-5, 5), rng.integers(0, 2, (rows, columns)).astype(float)
    (first,) = map(decode_words, NetworkShape((4, columns), (), (), 2).first_weights(1).values())  # all know the seed
    sizes = 2.0 ** (3 - np.arange(columns))
    wanted = sizes - first[4:-1, 0]
    labels = (own[:, 0] > 0).astype(float)
    found = read_by_deviating(own, yes, labels, wanted, rate=2**-14, bits=bits)
    number = np.round((found.logits - own @ first[:4, 0] - first[-1, 0]) / sizes[-1]).astype(int)
    read = (number[:, None] >> np.arange(columns - 1, -1, -1)) & 1
    return yes, read.astype(float), found.bits
