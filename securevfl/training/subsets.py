"""Choose which passive parties take part for each row of a batch, in algorithms that train on subsets of them.

All parties draw the same from the job's seed, so nothing is sent. Rows in which no passive party takes part are not
exchanged. A party that is left out of a row feeds zeros for it if others exchange the row.

A sealed cut opens z_S, the sum over the parties of a row's subset S. If the same row is opened with two subsets while
the weights hardly change, the difference is the parts of the parties that are in only one of them, up to the small
change of the weights: a single party's part if the subsets differ by one party. So by default either all passive
parties take part in a row or none does; alternatively, each row keeps one subset for the whole run; see
`securevfl.algorithms.subset_roles`.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable

import numpy as np
import torch

from securevfl.cut import ActiveCut, CutSpec
from securevfl.party_context import derive_seed
from securevfl.training.bottoms import Architecture
from securevfl.training.halves import ActiveHalf

__all__ = [
    "Draw",
    "SubsetHalf",
    "Subsets",
    "drop_independently",
    "one_of_a_random_size",
    "scatter_rows",
    "times_unlikely",
]

Draw = Callable[[np.random.Generator, int, int], np.ndarray]
"""Draws which passive parties take part for each row: generator, rows, parties → (rows, parties) bool."""


def drop_independently(probability: float) -> Draw:
    """Leave each party out of a row with this probability, independently of the others."""

    def draw_subsets(generator: np.random.Generator, rows: int, parties: int) -> np.ndarray:
        present: np.ndarray = generator.random((rows, parties)) >= probability
        return present

    return draw_subsets


def one_of_a_random_size(generator: np.random.Generator, rows: int, parties: int) -> np.ndarray:
    """A `Draw`: all sizes from 1 to the number of parties are equally likely, and so are all subsets of one size."""
    sizes = generator.integers(1, parties + 1, size=(rows, 1))
    places = generator.random((rows, parties)).argsort(axis=1).argsort(axis=1)
    present: np.ndarray = places < sizes
    return present


def _as_one(draw: Draw) -> Draw:
    """A `Draw` that makes one decision by `draw` for all parties together."""

    def draw_together(generator: np.random.Generator, rows: int, parties: int) -> np.ndarray:
        return np.repeat(draw(generator, rows, 1), parties, axis=1)

    return draw_together


def times_unlikely(parties: int, size: int) -> float:
    """One over the probability that `one_of_a_random_size` draws a given subset of this size."""
    return float(parties * math.comb(parties, size))


class Subsets:
    """The subset of passive parties that takes part for each row, the same at all parties.

    Args:
        aligned: number of aligned rows; no passive party takes part for the others.
        parties: number of passive parties.
        draw: how subsets are drawn.
        seed: the job's.
        redraw: whether a row's subset is drawn again in each batch; False: one for the whole run.
        together: whether the parties are drawn as one, so that all of them take part or none.
    """

    def __init__(
        self, aligned: int, parties: int, draw: Draw, *, seed: int, redraw: bool, together: bool = False
    ) -> None:
        self._aligned = aligned
        self._parties = parties
        self._draw = _as_one(draw) if together else draw
        self._seed = seed
        self._fixed: np.ndarray | None = None
        if not redraw:
            generator = np.random.default_rng(derive_seed(seed, "subsets"))
            self._fixed = self._draw(generator, aligned, parties) if parties else np.zeros((aligned, 0), bool)

    def draw_for(self, rows: np.ndarray, epoch: int) -> np.ndarray:
        """Which passive parties, in their order, take part for numbered rows of a batch of `epoch`: (n, parties)."""
        present = np.zeros((len(rows), self._parties), bool)
        known = rows < self._aligned
        if self._fixed is not None:
            present[known] = self._fixed[rows[known]]
        elif self._parties:
            batch = hashlib.sha256(np.ascontiguousarray(rows, dtype="<i8").tobytes()).hexdigest()
            generator = np.random.default_rng(derive_seed(self._seed, "subsets", epoch, batch))
            present[known] = self._draw(generator, len(rows), self._parties)[known]
        return present


def scatter_rows(values: torch.Tensor, at: np.ndarray, rows: int) -> torch.Tensor:
    """`values` (k, d) at the places `at` (k,) of `rows` rows, exact zeros elsewhere; gradients flow to `values`."""
    places = torch.from_numpy(at).to(values.device)
    return values.new_zeros((rows, *values.shape[1:])).index_copy(0, places, values)


class SubsetHalf(ActiveHalf):
    """The active party's half of a split network that trains on subsets of the parties.

    Args:
        architecture: shapes and rates.
        cut: this party's side of the cut.
        spec: of the cut.
        passive: names of the passive parties.
        shape: of a row of the active party's features.
        outputs: width of the logits.
    """

    def __init__(
        self,
        architecture: Architecture,
        cut: ActiveCut,
        spec: CutSpec,
        passive: tuple[str, ...],
        shape: torch.Size,
        outputs: int,
    ) -> None:
        self.passive = passive
        self.width = spec.width
        super().__init__(architecture, cut, spec, len(passive), shape, outputs)

    async def forward_present(self, activations: torch.Tensor, present: np.ndarray) -> torch.Tensor:
        """The input of the loss, (n, …), for training rows of which only some are exchanged.

        Args:
            activations: of the active party, (n, d).
            present: which passive parties take part, (n, parties).
        """
        exchanged = np.flatnonzero(present.any(axis=1))
        own = self.own(activations)
        remote = own.new_empty((0, self.width))
        if len(exchanged):
            remote = await self.cut.forward(len(exchanged), train=True)
        self._remote = remote.requires_grad_()
        z = scatter_rows(self._remote, exchanged, len(present))
        return self.join_present(z, own, torch.from_numpy(present).to(own.device))

    @property
    def remote_sum(self) -> torch.Tensor:
        """The sum over the passive parties for the exchanged rows of the last training forward, (k, h).

        Raises:
            ValueError: there was no training forward.
        """
        if self._remote is None:
            raise ValueError("no training forward has run yet")
        return self._remote

    def join_present(self, remote: torch.Tensor, own: torch.Tensor, present: torch.Tensor) -> torch.Tensor:
        """The input of the loss: from the sum over the parties that take part, (n, h), zeros for rows without any; the
        active party's part, (n, h); and which parties take part, (n, parties)."""
        return self.join_parts(remote, own)

    def forward_alone(self, activations: torch.Tensor) -> torch.Tensor:
        """Logits (n, outputs) of rows from the active party's activations, with zeros for the others' part."""
        own = self.own(activations)
        return self.join_parts(torch.zeros_like(own), own)
