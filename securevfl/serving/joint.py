"""Score rows with all parties: each checks the batch against its own policy, then all score it together."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from securevfl.party_context import PartyContext
from securevfl.privacy import fan_out
from securevfl.run.kept_answers import KeptAnswer, KeptAnswers
from securevfl.serving.daily import DailyCounts
from securevfl.serving.exchanges import NO_ROWS, THEN_SCORE, receive_answer, send_command
from securevfl.serving.policy import MOST_ROWS, Refusal
from securevfl.serving.questions import Outcome
from securevfl.serving.session import Index
from securevfl.training import ActiveProgram
from securevfl.transport import COORDINATOR, Scalar

__all__ = ["Batch", "JointScores", "collect_answers", "send_command_to_all"]

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


async def collect_refusals(site: PartyContext, count: int) -> list[Refusal]:
    """The refusals among the answers of all others about `count` rows."""
    answers = [await receive_answer(link, count) for link in site.other_links]
    return [refusal for refusal, _ in answers if refusal is not None]


def _split_batches(rows: np.ndarray) -> list[np.ndarray]:
    return np.array_split(rows, -(-len(rows) // MOST_ROWS)) if len(rows) else []


@dataclass(eq=False)
class Batch:
    """Rows that are scored at once.

    Attributes:
        rows: their numbers, sorted; without those that were refused, once all parties have answered.
        whole: whether all of them are scored or none.
        found: row → its outcome, as far as it is known.
        started: whether all parties were told to score it.
        began: when it was taken, on the event loop's clock.
    """

    rows: np.ndarray = field(repr=False)
    whole: bool = False
    found: dict[int, Outcome] = field(default_factory=dict, repr=False)
    started: bool = False
    began: float = 0.0

    def __post_init__(self) -> None:
        self.asked = self.rows.tolist()

    def refuse(self, refusal: Refusal) -> None:
        """Let a refusal be the outcome of all rows that have none."""
        self.found |= dict.fromkeys(self.rows.tolist(), refusal)
        self.rows = NO_ROWS


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
        self._key_of: dict[str, str] = {}
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
            batch = Batch(rows)
            refusals = [] if self._refuse_own(batch) else await self._ask_others(rows)
            found |= {self.names[row]: refusal for row, refusal in batch.found.items()}
            if not batch.found:
                await send_command_to_all(self.site, "skip")
            for refusal in refusals:
                places = refusal.rows or range(len(rows))
                found |= {self.names[int(rows[place])]: refusal for place in places}
        return found

    def make_batches(self, names: Iterable[str]) -> list[Batch]:
        """The batches in which customers are scored: their fixed groups, or the rows that are asked for alone.

        Args:
            names: common customers.
        """
        wanted = sorted(self.at[name] for name in names)
        if self.groups:
            return [Batch(self.groups[at], whole=True) for at in sorted({self._group_of[row] for row in wanted})]
        return [Batch(rows) for rows in _split_batches(np.array(wanted, np.int64))]

    async def score_batches(
        self, first: Batch, following: Callable[[], Batch | None], answered: Callable[[Batch], None]
    ) -> None:
        """Score batches in their order, without the rows that a party's policy forbids.

        The message that starts a batch carries the rows of the next one, so that batches which follow each other cost
        one round trip each, and a single one two.

        Args:
            first: the first batch.
            following: the batch after it, if somebody waits for one.
            answered: called with each batch once every row has an outcome.
        """
        batch: Batch | None = first
        await self._agree_batch(first, asked=False)
        while batch is not None:
            if not len(batch.rows):
                answered(batch)
                batch = following()
                if batch is not None:
                    await self._agree_batch(batch, asked=False)
                continue
            names = self._names_of_rows(batch.rows)
            # Written before anything is asked for, and on the disk before any answer leaves this party.
            counted = self.counts.take(names, [False] * len(names))
            if isinstance(counted, Refusal):  # another process of this party has counted since the batch was agreed on
                await send_command_to_all(self.site, "skip")
                batch.refuse(counted)
                continue
            next_batch = following()
            while next_batch is not None and self._refuse_own(next_batch):
                answered(next_batch)
                next_batch = following()
            rows, more = (NO_ROWS, {}) if next_batch is None else (next_batch.rows, THEN_SCORE)
            await send_command_to_all(self.site, "go", rows, more)
            batch.started = True
            syncing = asyncio.ensure_future(asyncio.to_thread(self.counts.sync))
            try:
                scores = await self.program.score_probabilities(batch.rows)
            finally:
                await syncing
            self.answers.put(self._keys(names), scores)
            batch.found |= zip(batch.rows.tolist(), scores, strict=True)
            answered(batch)
            batch = next_batch
            if batch is not None:
                await self._agree_batch(batch, asked=True)

    async def _agree_batch(self, batch: Batch, *, asked: bool) -> None:
        """Take the rows out of a batch that some party refuses.

        Args:
            batch: the batch.
            asked: whether the other parties have been asked about all of its rows.
        """
        for _ in range(_TRIES):
            rows = batch.rows
            if not len(rows):
                return
            if not asked and self._refuse_own(batch):
                return
            refusals = await (collect_refusals(self.site, len(rows)) if asked else self._ask_others(rows))
            if not refusals:
                return
            await send_command_to_all(self.site, "skip")
            asked = False
            general = next((one for one in refusals if batch.whole or not one.rows), None)
            if general is not None:
                batch.refuse(general)
                return
            for refusal in refusals:
                batch.found |= {int(rows[place]): refusal for place in refusal.rows}
            batch.rows = np.array([row for row in rows.tolist() if row not in batch.found], np.int64)
        batch.refuse(Refusal(party=self.site.name, rule="other", words="parties refuse other rows each time"))

    def _refuse_own(self, batch: Batch) -> bool:
        """Whether this party's own serving policy refuses a batch, whose rows then have their outcome."""
        count = len(batch.rows)
        own = self.counts.find_refusal(self._names_of_rows(batch.rows), [False] * count)
        if own is not None:
            batch.refuse(own)
        return own is not None

    async def _ask_others(self, rows: np.ndarray) -> list[Refusal]:
        await send_command_to_all(self.site, "score", rows)
        return await collect_refusals(self.site, len(rows))

    def _names_of_rows(self, rows: np.ndarray) -> list[str]:
        return [self.names[row] for row in rows.tolist()]

    def _keys(self, names: Sequence[str]) -> list[str]:
        new = [name for name in names if name not in self._key_of]
        if new:
            own = self.program.role.table.x.numpy()[[self.at[name] for name in new]]
            self._key_of |= zip(new, self.answers.row_keys(new, own), strict=True)
        return [self._key_of[name] for name in names]
