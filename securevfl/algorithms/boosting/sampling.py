"""Which rows a tree sees: a share of them by chance, or those of large gradients and some others."""

from __future__ import annotations

import numpy as np

from securevfl.site import derive_seed

__all__ = ["drawn_rows", "one_sided"]


def drawn_rows(seed: int, number: int, rows: int, share: float) -> np.ndarray:
    """The training rows of a tree, drawn by the job's seed: all parties draw the same, and labels have no part in it.

    Args:
        seed: the job's.
        number: of the tree, from 0.
        rows: how many training rows there are.
        share: of them that a tree sees.

    Returns:
        Their places among the training rows in rising order, int64 (n,): at least 2, where there are as many.
    """
    if share == 1:
        return np.arange(rows)
    generator = np.random.default_rng(derive_seed(seed, "rows of a tree", number))
    return np.sort(generator.permutation(rows)[: max(2, round(share * rows))])


def one_sided(size: np.ndarray, large: float, other: float, generator: np.random.Generator) -> np.ndarray:
    """How much each row counts by gradient-based one-side sampling (Ke et al. 2017, algorithm 2), float64 (rows,).

    Those of the largest gradients count once, some of the others for all of the others, and the rest not at all.

    Args:
        size: of the rows' gradients, (rows,).
        large: share of the rows that count for their large gradients.
        other: share of the rows that is drawn from the others.
        generator: what draws them.
    """
    rows = len(size)
    top, more = max(1, round(large * rows)), max(1, round(other * rows))
    order = np.argsort(-size, kind="stable")
    weight = np.zeros(rows)
    weight[order[:top]] = 1.0
    weight[generator.permutation(order[top:])[:more]] = (1 - large) / other
    return weight
