"""A passive party's server: it stays connected, checks every batch against its own serving policy, and answers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from functools import partial

import numpy as np

from securevfl.errors import InputError, PolicyError, ProtocolError
from securevfl.party_context import PartyContext
from securevfl.privacy import Link
from securevfl.run.model_parts import ModelPart
from securevfl.serving.day_book import CountedBatch
from securevfl.serving.exchanges import Agreed, finish_agreed, receive_command, send_acceptance, send_refusal
from securevfl.serving.policy import MOST_ROWS, Refusal
from securevfl.serving.serving_context import ServingContext
from securevfl.serving.session import Index, PartyServer, Serving
from securevfl.serving.shelf import ModelRecord
from securevfl.training import PassiveProgram, PassiveRole
from securevfl.transport import Mesh, Scalar

__all__ = ["ServePassive"]

_PART = "part "


class ServePassive(PartyServer):
    """A passive party's server. See `PartyServer`.

    Args:
        mesh: connections to all peers.
        place: where it serves.
        once: whether it ends with the active party: for one prediction.
    """

    def __init__(self, mesh: Mesh, place: ServingContext, *, once: bool = False) -> None:
        super().__init__(mesh, place)
        self.once = once
        self._counted: CountedBatch | None = None

    async def serve(self, site: PartyContext, index: Index) -> None:
        try:
            await self._follow_commands(site, index)
        finally:
            self._take_back()

    async def _follow_commands(self, site: PartyContext, index: Index) -> None:
        upstream = site.links[site.active]
        await send_acceptance(upstream, table=self.place.table_tag(index.digest))
        agreed: Agreed | None = None  # what happens once all parties agreed to it
        while True:
            do, rows, meta = await receive_command(upstream)
            if do == "score":
                agreed = await self._decide_batch(upstream, index, rows)
            elif do == "use":
                agreed = await self._use_model(site, upstream, index, meta)
            elif do == "go" and agreed is not None:
                await finish_agreed(agreed)
                agreed = await self._decide_batch(upstream, index, rows) if meta.get("then") == "score" else None
            elif do == "skip":
                self._take_back()
                agreed = self._candidate = None
            elif do == "prepare":
                await self._prepare_part(upstream, meta)
            elif do == "refresh":
                await self._refresh_table(upstream)
            elif do == "end":
                if self.once and meta.get("over") is True:
                    self.note_over()
                return
            else:
                raise ProtocolError(f"{upstream.peer!r} sent an unknown command {do!r:.40}")

    async def _decide_batch(self, upstream: Link, index: Index, rows: np.ndarray) -> Agreed | None:
        """Check a batch against the serving policy and send the decision."""
        common = len(index.alignment.rows)
        if not 0 < len(rows) <= MOST_ROWS or len(np.unique(rows)) < len(rows):
            raise ProtocolError(f"{upstream.peer!r} asks for {len(rows)} rows, or for one of them twice")
        if rows.min() < 0 or rows.max() >= common:
            raise ProtocolError(f"{upstream.peer!r} requested rows outside of the {common} common ones")
        if self.serving is None:
            raise ProtocolError(f"{upstream.peer!r} asks for scores before a model is used")
        self._take_back()
        counted = self._count_batch(self.serving, index, rows)
        if isinstance(counted, Refusal):
            await send_refusal(upstream, counted)
            return None
        self._counted = counted
        await send_acceptance(upstream)
        return partial(self._score_batch, rows)

    def _count_batch(self, serving: Serving, index: Index, rows: np.ndarray) -> CountedBatch | Refusal:
        """Count a batch that this party takes part in: what it says binds it, whatever its other processes count
        meanwhile.
        """
        releases = serving.program.role.releases
        fresh = releases.counts_as_release(rows)
        spent = np.flatnonzero(fresh & (releases.releases_left(rows) < 1))
        if len(spent):
            words = f"{len(spent)} of its rows have used up the releases that the model's noise was planned for"
            return Refusal(party=self.place.name, rule="releases", words=words, rows=tuple(spent.tolist()))
        role = serving.program.role
        if isinstance(role, PassiveRole):
            over = np.flatnonzero(~role.opened.fits_budget(role.features.find_places(rows), role.numbers_per_answer))
            if len(over):
                words = (
                    f"{len(over)} of its rows would be answered with more than the {role.opened.allowed} numbers that "
                    f"{role.opened.asker!r} may have of each, ever: use the answers that you hold, leave these rows "
                    f"out, or ask {self.place.name!r} for a grant"
                )
                return Refusal(party=self.place.name, rule="max_results", words=words, rows=tuple(over.tolist()))
        return self.counts.take(_names_of_rows(index, rows), fresh.tolist(), releases.epsilon_of_feeding)

    def _take_back(self) -> None:
        """Take a batch back that was counted and is not scored."""
        counted, self._counted = self._counted, None
        if counted is not None:
            self.counts.take_back(counted)

    async def _score_batch(self, rows: np.ndarray) -> None:
        """Take part in scoring a batch, once its counts are on the disk."""
        if self.serving is None or not isinstance(self.serving.program, PassiveProgram):
            raise ProtocolError("no model is used")
        program, began = self.serving.program, time.perf_counter()
        with program.role.count_answers_ahead(rows, synced=False):
            self._counted = None  # from here on something of its rows may leave
            # Both files at once, and in other threads: a disk takes milliseconds.
            await asyncio.gather(asyncio.to_thread(self.counts.sync), asyncio.to_thread(program.role.opened.sync))
            await program.answer_all(rows)
        self.news.batch_served(time.perf_counter() - began)

    async def _prepare_part(self, upstream: Link, meta: Mapping[str, Scalar]) -> None:
        """Check this party's part of a run and report its digest; nothing changes yet."""
        try:
            part = self.shelf.read_part(str(meta.get("run")))
        except InputError as error:
            await self._send_refusal(upstream, str(error))
            return
        await send_acceptance(upstream, part=part.digest)

    async def _use_model(
        self, site: PartyContext, upstream: Link, index: Index, meta: Mapping[str, Scalar]
    ) -> Agreed | None:
        """Serve the model that the active party has committed."""
        parts = {name.removeprefix(_PART): str(value) for name, value in meta.items() if name.startswith(_PART)}
        model = ModelRecord.from_parts(str(meta.get("run")), parts)
        try:
            part: ModelPart = self.shelf.commit(model)
            program = self.build_program(site, index, part)
        except (InputError, PolicyError) as error:
            await self._send_refusal(upstream, str(error))
            return None
        self._note_releases(site)
        self.serving = None
        await send_acceptance(upstream)
        return partial(self.come_back, program, index, model, part)

    async def _refresh_table(self, upstream: Link) -> None:
        try:
            self.renew_table()
        except InputError:  # the message can contain values of the table: it is for this party only
            await self._send_refusal(upstream, "its table cannot be used; see its log")
            return
        await send_acceptance(upstream)

    async def _send_refusal(self, upstream: Link, words: str) -> None:
        await send_refusal(upstream, Refusal(party=self.place.name, rule="other", words=words))


def _names_of_rows(index: Index, rows: np.ndarray) -> list[str]:
    return [index.table.ids[row] for row in index.alignment.rows[rows].tolist()]
