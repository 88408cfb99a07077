"""Rows that are drawn, as many as are asked for, and a run on them without tables, identifiers or an alignment.

What is timed on them is training alone: they lie in memory as float32 from the start, 4 bytes a value.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
import torch

from securevfl.data import Parties, PartyTable
from securevfl.party import Job
from securevfl.party_context import PartyContext
from securevfl.privacy import Ledger
from securevfl.run.simulated_parties import Simulated
from securevfl.training import NumberedRows, Setting, Split, Trained

__all__ = ["MadeRows", "run_on"]

_ACTIVE = "bank"
_CHUNK = 1 << 18
_HELD_OUT = 2048


@dataclass(frozen=True)
class MadeRows:
    """Rows of several parties: normal columns, and a class that depends on all of them.

    Attributes:
        rows: that train; `_HELD_OUT` more validate and as many test.
        parties: with the active one.
        columns: of each party.
    """

    rows: int
    parties: int = 3
    columns: int = 30

    @property
    def names(self) -> tuple[str, ...]:
        """The parties, the active one first."""
        return (_ACTIVE, *(f"shop{i}" for i in range(1, self.parties)))

    @cached_property
    def split(self) -> Split:
        """The first rows train; validation and test come after them."""
        ends = np.cumsum([0, self.rows, _HELD_OUT, _HELD_OUT])
        return Split(*(np.arange(start, end) for start, end in pairwise(ends)))

    @cached_property
    def drawn(self) -> tuple[Mapping[str, torch.Tensor], torch.Tensor]:
        """Party → its features, (rows, columns) float32; and the classes, (rows,) int64."""
        count = self.rows + 2 * _HELD_OUT
        generator = torch.Generator().manual_seed(1)
        weights = torch.randn((self.parties, self.columns), generator=generator) / self.columns**0.5
        x = {name: torch.empty((count, self.columns)) for name in self.names}
        score = torch.empty(count)
        for start in range(0, count, _CHUNK):
            part = slice(start, min(start + _CHUNK, count))
            score[part].normal_(generator=generator)
            for own, weight in zip(x.values(), weights, strict=True):
                own[part].normal_(generator=generator)
                score[part] += own[part] @ weight
        return x, (score > 0).to(torch.int64)

    def table(self, name: str) -> NumberedRows:
        """A party's numbered rows."""
        x, y = self.drawn
        active = name == _ACTIVE
        return NumberedRows(
            x=x[name], split=self.split, name=name, columns=self.columns, y=y if active else None, classes=2
        )

    def tables(self) -> Parties:
        """Tables of two rows, for what makes the sites: nothing reads them."""
        ids, column = ["a", "b"], np.zeros(2)
        label = np.arange(2)
        active = PartyTable(name=_ACTIVE, ids=ids, columns={"x": column}, label=label, classes=(0, 1))
        return Parties.of(active, *(PartyTable(name=name, ids=ids, columns={"x": column}) for name in self.names[1:]))


def run_on(made: MadeRows, job: Job) -> tuple[Trained, Mapping[str, Ledger]]:
    """Train on made rows, each party as a task of its own, ledgers on.

    Returns:
        What the active party's program left, and party → its ledger.
    """
    tables = made.tables()

    async def program(site: PartyContext, table: PartyTable | None) -> Trained:
        plan = job.plan
        setting = Setting(site=site, plan=plan, protection=job.protection, table=made.table(site.name))
        return await job.protection.program(job.algorithm, site, plan, {site.active: setting}).run()

    trained, sites = Simulated(job=job, parties=tables, run="made rows").run_program(program)
    return trained[_ACTIVE], {name: site.ledger for name, site in sorted(sites.items())}
