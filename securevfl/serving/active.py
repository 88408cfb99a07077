"""The active party's server as its callers use it: request scores, another model, a new index, or its status."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import NoReturn

import numpy as np

from securevfl.serving.conducting import Conductor, Session
from securevfl.serving.questions import ModelMismatch, Outcome, Unavailable

__all__ = ["ServeActive"]


class ServeActive(Conductor):
    """The active party's server. See `PartyServer`.

    Args:
        mesh: connections to all peers.
        place: where it serves.
        batching: how questions are collected.
        run: the model to begin with if none was served before; by default the only one on the shelf.

    Attributes:
        problem: why no model is served; empty where one is.
    """

    @property
    def is_ready(self) -> bool:
        """Whether all parties are connected and a model is served."""
        return self._live is not None and self._live.joint is not None and not self.away

    @property
    def common_customers(self) -> frozenset[str]:
        """Customers that all parties have; empty before the first alignment."""
        return frozenset() if self.index is None else self.index.known_names

    @property
    def is_aligned(self) -> bool:
        """Whether the common customers are known."""
        return self.index is not None

    @property
    def digest(self) -> str:
        """Digest of the served model; empty if there is none."""
        return "" if self.serving is None else self.serving.model.digest

    @property
    def classes(self) -> tuple[str, ...]:
        """Class names of the served model; empty if there is none."""
        return () if self.serving is None else self.serving.classes

    def status(self) -> dict[str, object]:
        """What the server does and waits for, without any identifier."""
        model, previous = self.shelf.committed, self.shelf.previous
        return {
            "ready": self.is_ready,
            "away": dict(sorted(self.away.items())),
            "waits": self.waiting_reasons(),
            "problem": self.problem or self.failure,
            "model": None if model is None else {"run": model.run, "digest": model.digest},
            "previous": None if previous is None else {"run": previous.run, "digest": previous.digest},
            "runs": list(self.shelf.run_names),
            "index": 0 if self.index is None else len(self.index.alignment.rows),
            "rows_today": self.counts.rows,
        }

    def held_answers(self, customers: Sequence[str]) -> dict[str, tuple[np.ndarray, bool]]:
        """Customer → the answer that this party holds, (classes,), and whether a partner's table has changed since.

        Args:
            customers: that all parties have.
        """
        joint = None if self._live is None else self._live.joint
        if joint is None:
            return {}
        found = joint.stored_answers(customers, current=False)
        return {name: (one.values, one.tables != joint.answers.tables) for name, one in found.items()}

    def sync_answers(self) -> None:
        """Return once all answers that this party holds are on the disk."""
        if self._live is not None and self._live.joint is not None:
            self._live.joint.answers.sync()

    async def find_refusals(self, customers: Sequence[str]) -> dict[str, Outcome]:
        """Customer → refusal, of those about whom some party would not answer. Nobody is scored, and nothing is
        counted.

        Args:
            customers: that all parties have.

        Raises:
            Unavailable: a party is away, or took too long.
        """
        await self._when_ready()
        try:
            return await self._questions.find_refusals(customers)
        except TimeoutError:
            self._raise_late()

    async def scores(self, customers: Sequence[str], *, again: bool = False) -> list[Outcome]:
        """Score customers that all parties have; nobody is asked about those whose answers are kept.

        Args:
            customers: identifiers as in the active party's table, without duplicates.
            again: whether to ask about those as well.

        Returns:
            One outcome for each.

        Raises:
            Unavailable: a party is away, or took too long.
            KeyError: a customer that some party lacks.
        """
        joint = (await self._when_ready()).joint
        if joint is None:
            self._raise_unavailable()
        held = joint.stored_answers(customers)  # also refuses customers that are not common
        if not again and len(held) == len(customers):
            return [held[name].values for name in customers]
        try:
            # All of them, kept ones too: another model may be served when they are answered, and one request gets
            # the answers of one model.
            return await self._questions.ask(customers, again=again)
        except TimeoutError:
            self._raise_late()

    async def activate(self, run: str) -> str:
        """Serve another model, in two phases; the old one is served until all have agreed.

        Returns:
            Its digest.

        Raises:
            ModelMismatch: a party does not have its part, or cannot use it.
            Unavailable: a party is away.
        """
        return await self._run_command("activate", run)

    async def roll_back(self) -> str:
        """Serve the model before this one again; see `activate`.

        Raises:
            ModelMismatch: no model was served before this one.
        """
        if self.shelf.previous is None:
            raise ModelMismatch("no model was served before this one, so there is nothing to roll back to")
        return await self._run_command("activate", self.shelf.previous.run)

    async def refresh(self) -> int:
        """Let all parties read their tables again, and align them; the old index is used until that is done.

        Returns:
            Number of common rows.

        Raises:
            ModelMismatch: a party's new table cannot be used, or the tables cannot be aligned: the old ones stay.
            Unavailable: a party is away.
        """
        return int(await self._run_command("refresh"))

    async def wait_for_session(self) -> None:
        """Wait until a session has begun, with a model or without."""
        while self._live is None:
            self._news.clear()
            await self._news.wait()

    async def finish(self) -> None:
        """End serving after this session, for this party and for those that serve only for it."""
        await self._run_command("finish")

    async def _run_command(self, do: str, run: str = "") -> str:
        await self._when_ready(model=False)
        try:
            return await self._questions.run_command(do, run)
        except TimeoutError:
            self._raise_late()

    async def _when_ready(self, *, model: bool = True) -> Session:
        """Wait for the session, within the grace period."""
        try:
            async with asyncio.timeout(self.batching.grace):
                while True:
                    live = self._live
                    if live is not None and not self.away:
                        if live.joint is not None or not model:
                            return live
                        if self.problem:
                            break
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            pass
        self._raise_unavailable()

    def _raise_unavailable(self) -> NoReturn:
        raise self._explain_unavailable()

    def _raise_late(self) -> NoReturn:
        names = self._awaited_peers()
        who = f": {', '.join(names)} did not answer" if names else ""
        raise Unavailable(f"no answer within {self.batching.seconds:g} s{who}", names) from None

    def _explain_unavailable(self) -> Unavailable:
        if self.away:
            who = ", ".join(f"{name} ({why})" for name, why in sorted(self.away.items()))
            return Unavailable(f"not connected: {who}", sorted(self.away), 2.0)
        if self.problem:
            return Unavailable(self.problem, (), 30.0)
        names = self.waiting_reasons() or dict.fromkeys(self._awaited_peers(), "an answer")
        what = ", ".join(f"{name} ({why})" for name, why in sorted(names.items()))
        return Unavailable(f"the parties begin a session{': waiting for ' + what if what else ''}", sorted(names), 1.0)

    def peers_changed(self) -> None:
        """See `SessionServer.peers_changed`."""
        self._news.set()
        if self.away and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self.batching.grace, self._give_up)

    def _give_up(self) -> None:
        """Fail the requests that wait for a peer which does not come back."""
        self._timer = None
        if self.away:
            self._questions.fail_all(self._explain_unavailable())
