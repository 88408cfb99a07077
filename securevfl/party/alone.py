"""The active party alone: it scores rows of its table with its own part of a model and sends nothing.

Its context has no links, so no algorithm can send a message here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from securevfl.cut import Plain
from securevfl.data import FeatureEncoder, PartyTable
from securevfl.errors import InputError
from securevfl.party.job import Job
from securevfl.party.numbering import coded_columns
from securevfl.party_context import PartyContext, PartySecret
from securevfl.privacy import Clock, Ledger, Policy
from securevfl.training import ActiveProgram, NumberedRows, Setting, Split
from securevfl.training.calibration import ALONE, correction_of
from securevfl.training.split import split_chunks

__all__ = ["Alone"]


class Alone:
    """Scores of the active party's rows from its own columns.

    Args:
        table: the active party's; it needs no labels.
        job: that trained the model.
        model: the active party's part of it.
        run: name, for the ledger.

    Attributes:
        ledger: records the scoring; it contains no message.
        site: the party's context, without links.

    Raises:
        InputError: an algorithm that is not fit for such rows, a part that is not the active party's, or other columns
            than in training.
    """

    def __init__(self, table: PartyTable, job: Job, model: Mapping[str, Any], *, run: str = "alone") -> None:
        name = table.name
        trained_with = tuple(map(str, model.get("passive", ())))
        if name in trained_with:
            raise InputError(f"{name!r} is not the active party of the model, so it cannot score rows alone")
        job.algorithm.check_subset((), trained_with)
        if job.protection.on_shares and not job.algorithm.alone_on_shares:
            raise InputError(
                "the model is in shares, so no party can score rows alone: predict the rows that all parties have"
            )
        self.ledger = Ledger(name, run=run, job=job.digest)
        self.site = PartyContext(
            name=name,
            active=name,
            passive=(),
            links={},
            ledger=self.ledger,
            policy=job.policies.get(name, Policy()),
            clock=Clock(),
            job=job.digest,
            seed=job.seed,
            secret=PartySecret.generate(),
        )
        every = np.arange(table.rows)
        encoder = FeatureEncoder.from_state(model["encoder"])
        x = torch.from_numpy(encoder.transform(table, every))
        mine = NumberedRows(
            x=x,
            **coded_columns(encoder),
            split=Split(every[:0], every[:0], every),
            name=name,
            y=torch.full((len(x),), -1),
            classes=int(model["classes"]),
        )
        plan = replace(job.plan, batch_size=int(model["batch_size"]), epochs=int(model["times"]), steps=None)
        # Nothing crosses a cut here: neither keys nor noise are for anybody.
        setting = Setting(
            site=self.site,
            plan=plan,
            protection=job.protection if job.protection.on_shares else Plain(),
            table=mine,
            trained_with=trained_with,
            widest=int(model.get("widest", 0)),
        )
        program = job.algorithm.scorer(self.site, setting, model)
        if not isinstance(program, ActiveProgram):
            raise InputError(f"{name!r} is not the active party of the model, so it cannot score rows alone")
        self._role = program.role
        self._role.books.restore(model["parts"])
        self._role.task = self._role.task.with_state(model.get("target"))
        self._correction = correction_of(model, ALONE)

    def scores(self, rows: np.ndarray) -> np.ndarray:
        """Probabilities (n, classes), or predicted numbers (n, 1), of rows of the table, by their numbers."""
        role = self._role
        if not len(rows):
            return np.empty((0, role.table.classes))
        logits = [role.score_alone(part) for part in split_chunks(rows, role.plan.eval_rows)]
        return self._correction.apply(role.task.compute_probabilities(torch.cat(logits)))
