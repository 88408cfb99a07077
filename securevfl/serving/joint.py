"""Score rows with all parties: each checks the batch against its own policy, then all score it together."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from securevfl.party_context import PartyContext
from securevfl.privacy import fan_out
from securevfl.run.kept_answers import KeptAnswer, KeptAnswers
from securevfl.serving.daily import DailyCounts
from securevfl.serving.exchanges import NO_ROWS, receive_answer, send_command
from securevfl.serving.policy import MOST_ROWS, Refusal
from securevfl.serving.questions import Outcome
from securevfl.serving.session import Index
from securevfl.training import ActiveProgram
from securevfl.transport import COORDINATOR, Scalar

__all__ = ["JointScores", "collect_answers", "send_command_to_all"]

_TRIES = 3


async def send_command_to_all(
    site: PartyContext, do: str, rows: np.ndarray = NO_ROWS, meta: Mapping[str, Scalar] | None = None
) -> None:
    """Send the next command to all others, with its rows to those that have some."""
    some = {link: NO_ROWS if site.role_of(link.peer) == COORDINATOR else rows for link in site.other_links}
    await fan_out(site.other_links, lambda link: send_command(link, do, some[link], meta or {}))


async def collect_answers(
    site: PartyContext, do: str, rows: np.ndarray = NO_ROWS, meta: Mapping[str, Scalar] | None = None
) -> tuple[list[Refusal], dict[str, Mapping[str, Scalar]]]:
    """Send the next command and collect the answers: the refusals, and the other fields by party."""
    await send_command_to_all(site, do, rows, meta)
    answers = {link.peer: await receive_answer(link, len(rows)) for link in site.other_links}
    refusals = [refusal for refusal, _ in answers.values() if refusal is not None]
    return refusals, {peer: said for peer, (refusal, said) in answers.items() if refusal is None}


def _split_batches(rows: np.ndarray) -> list[np.ndarray]:
    return np.array_split(rows, -(-len(rows) // MOST_ROWS)) if len(rows) else []


@dataclass
class JointScores:
    """Scores common rows in one session, with one model.

    Attributes:
        site: the active party's.
        index: the common rows.
        program: the active party's.
        counts: of this party's serving policy.
        answers: what this party holds.
        groups: row numbers that are scored as a whole; empty where rows are scored as they are asked for.
    """

    site: PartyContext
    index: Index
    program: ActiveProgram
    counts: DailyCounts
    answers: KeptAnswers
    groups: Sequence[np.ndarray] = field(default=(), repr=False)

    def __post_init__(self) -> None:
        self.names = self.index.identifiers
        self.at = {name: row for row, name in enumerate(self.names)}
        self._group_of = {row: at for at, group in reversed(list(enumerate(self.groups))) for row in group.tolist()}

    def stored_answers(self, names: Sequence[str], *, current: bool = True) -> dict[str, KeptAnswer]:
        """Customer → the answer that this party holds, of those about whom it holds one.

        Args:
            names: the customers.
            current: only answers that were given on the partners' tables as they are now.
        """
        held = (
            (name, self.answers.get(key, current=current)) for name, key in zip(names, self._keys(names), strict=True)
        )
        return {name: answer for name, answer in held if answer is not None}

    async def find_refusals(self, names: Sequence[str]) -> dict[str, Outcome]:
        """Customer → refusal, of those about whom some party would not answer; nobody is scored."""
        wanted = np.array(sorted(self.at[name] for name in names), np.int64)
        found: dict[str, Outcome] = {}
        for rows in _split_batches(wanted):
            refusals = await self._collect_refusals(rows)
            if not refusals:
                await send_command_to_all(self.site, "skip")
            for refusal in refusals:
                places = refusal.rows or range(len(rows))
                found |= {self.names[int(rows[place])]: refusal for place in places}
        return found

    async def __call__(self, names: Sequence[str], *, again: Container[str] = ()) -> dict[str, Outcome]:
        """Customer → outcome; the customers must be common and without duplicates. Nobody is asked about those whose
        answers are kept, but for those in `again`.
        """
        held = self.stored_answers([name for name in names if name not in again])
        kept = {name: answer.values for name, answer in held.items()}
        return kept | await self._ask([name for name in names if name not in kept])

    async def _ask(self, names: Sequence[str]) -> dict[str, Outcome]:
        wanted = sorted(self.at[name] for name in names)
        found: dict[int, Outcome] = {}
        if self.groups:
            for at in sorted({self._group_of[row] for row in wanted}):
                found |= await self._score_batch(self.groups[at], whole=True)
        else:
            for rows in _split_batches(np.array(wanted, np.int64)):
                found |= await self._score_batch(rows, whole=False)
        return {self.names[row]: found[row] for row in wanted}

    async def _score_batch(self, rows: np.ndarray, *, whole: bool) -> dict[int, Outcome]:
        """Score rows, without those that a party's policy forbids.

        Args:
            rows: sorted.
            whole: whether to score either all of them or none.
        """
        found: dict[int, Outcome] = {}
        for _ in range(_TRIES):
            if not len(rows):
                return found
            refusals = await self._collect_refusals(rows)
            if not refusals:
                return found | dict(zip(rows.tolist(), await self._score_allowed(rows), strict=True))
            general = next((one for one in refusals if whole or not one.rows), None)
            if general is not None:
                return found | dict.fromkeys(rows.tolist(), general)
            for refusal in refusals:
                found |= {int(rows[place]): refusal for place in refusal.rows}
            rows = np.array([row for row in rows.tolist() if row not in found], np.int64)
        general = Refusal(party=self.site.name, rule="other", words="parties refuse other rows each time")
        return found | dict.fromkeys(rows.tolist(), general)

    async def _collect_refusals(self, rows: np.ndarray) -> list[Refusal]:
        """Refusals of a batch by the serving policies of this party and the others."""
        own = self.counts.find_refusal(self._names_of_rows(rows), [False] * len(rows), lambda times: 0.0)
        if own is not None:
            return [own]
        refusals, _ = await collect_answers(self.site, "score", rows)
        if refusals:
            await send_command_to_all(self.site, "skip")
        return refusals

    async def _score_allowed(self, rows: np.ndarray) -> np.ndarray:
        names = self._names_of_rows(rows)
        self.counts.count(names, [False] * len(rows))
        await send_command_to_all(self.site, "go")
        scores = await self.program.score_probabilities(rows)
        self.answers.put(self._keys(names), scores)
        return scores

    def _names_of_rows(self, rows: np.ndarray) -> list[str]:
        return [self.names[row] for row in rows.tolist()]

    def _keys(self, names: Sequence[str]) -> list[str]:
        rows = [self.at[name] for name in names]
        return self.answers.row_keys(names, self.program.role.table.x[rows].numpy())
