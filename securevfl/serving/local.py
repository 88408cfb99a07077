"""The active party's own model, for customers whom nobody else knows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from securevfl.align import Alignment
from securevfl.data import PartyTable
from securevfl.errors import InputError
from securevfl.jobs.parts import ModelPart
from securevfl.party import scoring_program
from securevfl.privacy import Clock, Ledger, Policy
from securevfl.site import PartySecret, Site
from securevfl.training import ActiveProgram

__all__ = ["LocalModel"]


class LocalModel:
    """A model that scores the active party's rows without any peer.

    Args:
        part: of a model that the active party trained alone, for example with `Local`.
        table: the party's own.

    Raises:
        InputError: a model that needs other parties, or other columns than in training.
    """

    def __init__(self, part: ModelPart, table: PartyTable) -> None:
        job, name = part.job, part.party
        if job.algorithm.exchanges(job.protection, 1):
            raise InputError(
                f"the local model was trained by {job.algorithm.title}, which needs other parties to score: train one "
                "with the algorithm 'local'"
            )
        rows = np.arange(table.rows)
        site = Site(
            name=name,
            active=name,
            passive=(),
            links={},
            ledger=Ledger(name, run="local", job=job.digest),
            policy=job.policies.get(name, Policy()),
            clock=Clock(),
            job=job.digest,
            seed=job.seed,
            secret=PartySecret.fresh(),
        )
        alone = Alignment(rows=rows, digest="", verified_by=(), pairwise={})
        program = scoring_program(site, table, alone, job, part.tree)
        if not isinstance(program, ActiveProgram):
            raise InputError(f"{name!r} is not the active party of the local model")
        self.part = part
        self.classes = tuple(map(str, part.tree["names"]))
        self._program = program
        self._ready = False
        self._at = {one: row for row, one in enumerate(table.ids)}

    async def scores(self, customers: Sequence[str]) -> np.ndarray:
        """Probabilities (n, classes) of customers in the party's table.

        Raises:
            KeyError: one that is not.
        """
        if not self._ready:
            await self._program.come_back(dict(self.part.tree))
            self._ready = True
        return await self._program.probabilities(np.array([self._at[one] for one in customers], np.int64))
