"""Sums of contrasts over rows on shares: ``d = Σ s r + noise``, opened to nobody here.

*Noise.* Each computing party adds its own draw to its own summand of the products, which takes no message. A party
knows its own draw; those of the other two add up to the noise that ε is stated for.

*Bounds.* ε holds only while |s| ≤ 1 and |r| ≤ 1 (‖r‖ ≤ √2 with more than two classes). A party that deals something
else could read one row through the noise. So contrasts and probabilities are dealt as bits that cannot exceed their
bounds (`ranged`), and the computing parties check on shares that they are bits: a random combination of b (b − 1) is
zero, with coefficients that are drawn once the bits are dealt. Of a word that is off by 2^k it misses one in
2^(64 − k), and a word beyond 2^47 pushes a residual of 13 bits out of the 64, which has four more behind it (of a
number, beyond 2^46, with five more). With several classes, a row's parts also have to add up to the party's cap.

Each check concerns what one party deals, never a sum over parties: whether y − Σ w p is within its bound would tell a
dealer, epoch by epoch, where another's part lies. All three learn whether everything holds, and nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from securevfl_crypto.replicated import Product, Share, concatenate
from securevfl_crypto.ring import Stream

from securevfl.shares.engine import Engine, compute_products

__all__ = ["SharedRows", "find_violations", "sum_contrasts"]

_SEED_WORDS = 4


@dataclass(frozen=True)
class SharedRows:
    """Some rows on shares.

    Attributes:
        bits: of the contrasts, (n, columns).
        residuals: r, (n, outputs).
    """

    bits: Share = field(repr=False)
    residuals: Share = field(repr=False)


async def sum_contrasts(engine: Engine, rows: Sequence[SharedRows], values: Share, noise: np.ndarray | None) -> Share:
    """Σ s r over all rows, (columns, outputs), two rounds and one more for each further group of rows.

    Args:
        engine: computes on shares.
        rows: in groups.
        values: u and v of each column, (2, columns).
        noise: this party's own, uint64 (columns, outputs); None for none.

    Raises:
        ValueError: no rows.
    """
    total: Share | None = None
    for group in rows:
        ones = engine.constant(np.ones((len(group.bits), 1), np.uint64))
        left = concatenate([ones, group.bits], axis=1).T
        (found,) = await compute_products(engine, [Product(left, group.residuals)])
        total = found if total is None else total + found
    if total is None:
        raise ValueError("sums over no rows")
    columns, outputs = values.shape[1], total.shape[1]
    # u (Σ r − Σ b r) + v Σ b r of each column, as one product of length two.
    above = total[1:]
    below = total[:1].broadcast_to((columns, outputs)) - above
    sums = concatenate([one.reshape(columns, 1, outputs) for one in (below, above)], axis=1)
    own = None if noise is None else noise.reshape(columns, 1, outputs)
    (done,) = await compute_products(engine, [Product(values.T.reshape(columns, 1, 2), sums, own=own)])
    return done.reshape(columns, outputs)


async def find_violations(engine: Engine, bits: Sequence[Share], zeros: Sequence[Share]) -> Share:
    """One word that is zero where all words `bits` are 0 or 1 and all words `zeros` are zero; of others it is zero with
    the small chance that this module states. Two rounds.

    Args:
        engine: computes on shares.
        bits: of any shapes.
        zeros: likewise.
    """
    stream = Stream((await engine.toss_coins(_SEED_WORDS)).tobytes())
    total = engine.constant(np.zeros(1, np.uint64))
    jobs = []
    for number, words in enumerate((*bits, *zeros)):
        scaled = words.reshape(-1) * stream.draw_words(number, words.size).view(np.int64)
        if number < len(bits):
            jobs.append(Product(scaled.reshape(1, -1), words.reshape(-1, 1)))
            total = total - scaled.sum(keepdims=True)
        else:
            total = total + scaled.sum(keepdims=True)
    for found in await compute_products(engine, jobs):
        total = total + found.reshape(1)
    return total
