"""All breaks, by part of the code."""

from mutations.base import Break
from mutations.breaks import (
    additive_two,
    asked,
    crypto,
    cut,
    endings,
    engine,
    few_rows,
    identity,
    ledgers,
    links,
    metrics,
    noise,
    psi,
    results,
    ring,
    session,
    shares,
    shares_additive,
    shares_noise,
    shares_trees,
    sums,
)

__all__ = ["BREAKS"]

BREAKS: tuple[Break, ...] = (
    *additive_two.BREAKS,
    *endings.BREAKS,
    *psi.BREAKS,
    *noise.BREAKS,
    *links.BREAKS,
    *crypto.BREAKS,
    *engine.BREAKS,
    *ring.BREAKS,
    *shares.BREAKS,
    *shares_additive.BREAKS,
    *shares_noise.BREAKS,
    *shares_trees.BREAKS,
    *cut.BREAKS,
    *few_rows.BREAKS,
    *ledgers.BREAKS,
    *metrics.BREAKS,
    *identity.BREAKS,
    *session.BREAKS,
    *sums.BREAKS,
    *results.BREAKS,
    *asked.BREAKS,
)
