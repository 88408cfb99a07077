"""Route requests for customers: all parties score those that all have; the local model scores those that only this
party has.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from securevfl.data import PartyTable
from securevfl.errors import InputError
from securevfl.run.model_parts import ModelPart
from securevfl.serving.active import ServeActive
from securevfl.serving.local import LocalModel
from securevfl.serving.policy import Refusal
from securevfl.serving.questions import ModelMismatch, Unavailable
from securevfl.serving.reasons import ReasonsOfScore, ServedReasons

__all__ = ["Answer", "ScoringRouter", "UnknownCustomer"]


@dataclass(frozen=True, kw_only=True)
class Answer:
    """A customer's score.

    Attributes:
        model: which one scored it: ``"joint"``, from all parties' columns, or ``"local"``, from the active party's own.
        digest: of that model; of a local one, of the active party's part.
        classes: their names; of a regression the target's alone.
        probabilities: (classes,); of a regression the predicted number, (1,), in the target's units.
        numeric: whether it is a regression's.
        reasons: why it is what it is, where the agreement says that answers come with reasons; else None.
    """

    model: Literal["joint", "local"]
    digest: str
    classes: tuple[str, ...]
    probabilities: np.ndarray = field(repr=False)
    numeric: bool = False
    reasons: ReasonsOfScore | None = None


@dataclass(frozen=True, kw_only=True)
class UnknownCustomer:
    """Nobody can score a customer.

    Attributes:
        reason: in words, without the identifier.
    """

    reason: str


class ScoringRouter:
    """Answers for customers of the active party.

    Args:
        server: the active party's.
        local: its part of a model that needs no other party, for customers unknown to the others; None for none.
        away: whether that model also scores common customers while a party is away.

    Raises:
        InputError: see `LocalModel`; or one of both models predicts a number, and the other one classes.
    """

    def __init__(self, server: ServeActive, local: ModelPart | None = None, *, away: bool = False) -> None:
        self.server = server
        self._away = away
        self._part = local
        self._table = server.table
        self._local = None if local is None else LocalModel(local, server.table)
        self._numeric = server.place.job.number_loss is not None
        self._explained: tuple[str, PartyTable, ServedReasons] | None = None
        if local is not None and (local.job.number_loss is not None) != self._numeric:
            kinds = ("a number", "classes") if self._numeric else ("classes", "a number")
            raise InputError(
                f"the served model predicts {kinds[0]}, and the local model {kinds[1]}: name a local model of "
                "the same target, or none"
            )

    async def answers(self, customers: Sequence[str]) -> list[Answer | Refusal | UnknownCustomer]:
        """One answer for each customer, in the order of the request.

        Raises:
            Unavailable: a party needed for one of them is away, and no local model may replace it.
            ModelMismatch: the agreement says that answers come with reasons, and the served model has none.
        """
        found: dict[str, Answer | Refusal | UnknownCustomer] = {}
        try:
            if not self.server.is_aligned:
                await self.server.scores(())  # who is common is not known before the first alignment
            common = self.server.common_customers
            joint = list(dict.fromkeys(name for name in customers if name in common))
            outcomes = await self.server.scores(joint) if joint else []
        except Unavailable:
            if not self._away or self._part is None:
                raise
            joint, outcomes = [], []  # the answers name the model that gave them
        digest, classes = self.server.digest, self.server.classes
        reasons = self._explain({n: one for n, one in zip(joint, outcomes, strict=True) if isinstance(one, np.ndarray)})
        for name, outcome in zip(joint, outcomes, strict=True):
            found[name] = (
                outcome
                if isinstance(outcome, Refusal)
                else Answer(
                    model="joint",
                    digest=digest,
                    classes=classes,
                    probabilities=outcome,
                    numeric=self._numeric,
                    reasons=reasons.get(name),
                )
            )
        found |= self._score_alone([name for name in dict.fromkeys(customers) if name not in found])
        return [found[name] for name in customers]

    def _explain(self, answers: Mapping[str, np.ndarray]) -> dict[str, ReasonsOfScore]:
        """Customer → why its score is what it is, where the agreement says so."""
        server = self.server
        if not (server.place.reasons and answers and server.serving):
            return {}
        now = server.digest, server.table
        if self._explained is None or self._explained[0] != now[0] or self._explained[1] is not now[1]:
            part = server.shelf.read_part(server.serving.model.run)
            try:
                self._explained = (*now, ServedReasons(part, server.table))
            except InputError as error:
                raise ModelMismatch(f"the agreement says that answers come with reasons; {error}") from error
        found = self._explained[2].explain(list(answers), np.stack(list(answers.values())))
        return dict(zip(answers, found, strict=True)) if found else {}

    def _score_alone(self, customers: Sequence[str]) -> dict[str, Answer | Refusal | UnknownCustomer]:
        """Score customers that are not common, or for which the peers cannot be asked."""
        known = self.server.known_names
        found: dict[str, Answer | Refusal | UnknownCustomer] = {}
        names = [name for name in customers if name in known]
        for name in customers:
            if name not in known:
                found[name] = UnknownCustomer(reason=f"{self.server.place.name!r} has no row of this customer")
        local = self._current_model()
        if local is None:
            no = UnknownCustomer(reason="some party has no row of this customer, and there is no local model")
            return found | dict.fromkeys(names, no)
        if not names:
            return found
        counted = self.server.counts.take(names, [False] * len(names))
        if isinstance(counted, Refusal):
            return found | dict.fromkeys(names, counted)
        self.server.counts.sync()
        scores = local.scores(names)
        for name, row in zip(names, scores, strict=True):
            found[name] = Answer(
                model="local",
                digest=local.part.digest,
                classes=local.classes,
                probabilities=row,
                numeric=self._numeric,
            )
        return found

    def _current_model(self) -> LocalModel | None:
        """The local model over the table as it is now."""
        if self._part is not None and self._table is not self.server.table:
            self._table = self.server.table
            self._local = LocalModel(self._part, self._table)
        return self._local
