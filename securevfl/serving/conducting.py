"""The active party's side of a session: batches of questions follow each other, commands wait for their turn."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from dataclasses import dataclass

from securevfl_net.durable import write_atomic

from securevfl.errors import InputError, PeerEnded, PolicyError, ProtocolError
from securevfl.party_context import PartyContext
from securevfl.run.kept_answers import KeptAnswers
from securevfl.serving.exchanges import receive_answer
from securevfl.serving.groups import make_groups
from securevfl.serving.joint import Batch, JointScores, collect_answers, send_command_to_all
from securevfl.serving.policy import Refusal
from securevfl.serving.questions import Ask, Batching, BrokenOff, Check, Command, ModelMismatch, Questions, Unavailable
from securevfl.serving.rounds import Rounds
from securevfl.serving.serving_context import ServingContext
from securevfl.serving.session import LEDGER_LINES, Index, PartyServer
from securevfl.serving.shelf import ModelRecord
from securevfl.training import ActiveProgram
from securevfl.transport import Mesh, Scalar

__all__ = ["Conductor", "Session"]

_KEY_BYTES = 32
_PATIENCE = 3.0
"""Times the longest that an answer may take: as long, a session waits for a peer that is connected and says nothing. A
question that is late ends alone; after this, the session ends too.
"""


@dataclass
class Session:
    """The objects of one session, and what scores in it.

    Attributes:
        site: the active party's.
        index: the common rows.
        tags: of the passive parties' tables.
        joint: scores with the served model; None if no model is served.
    """

    site: PartyContext
    index: Index
    tags: Sequence[str]
    joint: JointScores | None = None


class Conductor(PartyServer):
    """What the active party does in its sessions. `ServeActive` is the interface for callers.

    Args:
        mesh: connections to all peers.
        place: where it serves.
        batching: how questions are collected.
        run: the model to begin with if none was served before; by default the only one on the shelf.

    Attributes:
        problem: why no model is served; empty where one is.
    """

    def __init__(self, mesh: Mesh, place: ServingContext, batching: Batching | None = None, *, run: str = "") -> None:
        super().__init__(mesh, place)
        self.batching = batching or Batching()
        self.problem = ""
        self._run = run
        self._questions = Questions(self.batching)
        self._news = asyncio.Event()
        self._live: Session | None = None
        self._refreshing: asyncio.Future[str] | None = None
        self._timer: asyncio.TimerHandle | None = None

    def _awaited_peers(self) -> list[str]:
        live = self._live
        return [] if live is None else [link.peer for link in live.site.other_links if link.awaits]

    def refresh_refused(self, why: str) -> None:
        """See `PartyServer.refresh_refused`."""
        future, self._refreshing = self._refreshing, None
        if future is not None and not future.done():
            future.set_exception(ModelMismatch(f"{why}; the old ones stay"))

    async def serve(self, site: PartyContext, index: Index) -> None:
        """See `PartyServer.serve`."""
        tags = [str((await receive_answer(link, 0))[1].get("table")) for link in site.other_links]
        live = Session(site=site, index=index, tags=tags)
        try:
            await self._agree_model(live)
            self._live = live
            refreshing, self._refreshing = self._refreshing, None
            if refreshing is not None and not refreshing.done():
                refreshing.set_result(str(len(index.alignment.rows)))
            self.peers_changed()
            while not self.over and site.ledger.length < LEDGER_LINES and await self._execute_next(live):
                pass
            await send_command_to_all(site, "end", meta={"over": self.over})
        finally:
            self._live = None
            self.peers_changed()

    async def _agree_model(self, live: Session) -> None:
        """Use the recorded model; if none is recorded, agree on the first one."""
        self.problem = ""
        try:
            if self.shelf.committed is not None:
                await self._use_model(live, self.shelf.committed)
                return
            runs = self.shelf.run_names
            run = self._run or (runs[0] if len(runs) == 1 else "")
            if not run:
                raise ModelMismatch(f"{len(runs)} models are available and none was activated: activate one")
            await self._activate_model(live, run)
        except (InputError, PolicyError) as error:
            self.problem = f"no model is served: {error}"

    async def _execute_next(self, live: Session) -> bool:
        """Do what is asked for next; False where the session is to end after it."""
        item = await self._questions.next_question()
        if isinstance(item, Ask):
            await self._answer_questions(live, item)
            return True
        if isinstance(item, Check):
            await self._answer_check(live, item)
            return True
        try:
            if item.do == "finish":
                self.note_over()
                _resolve_waiting(item, "")
                return False
            if item.do == "refresh":
                await self._refresh_tables(live)
                self._refreshing = item.done  # reported in the session that follows
                return False
            _resolve_waiting(item, await self._activate_model(live, item.run))
        except ModelMismatch as error:
            _resolve_waiting(item, error)
        except BaseException as error:
            _resolve_waiting(item, self._unavailable_after(error))
            raise
        return True

    def _unavailable_after(self, error: BaseException) -> BrokenOff:
        if isinstance(error, PeerEnded | asyncio.CancelledError):
            return BrokenOff(f"{self.why or error}; ask again", sorted(self.away))
        return BrokenOff(f"it broke off ({type(error).__name__}); ask again")

    async def _answer_questions(self, live: Session, first: Ask) -> None:
        """Answer questions batch by batch, until nobody asks or the queue holds something else."""
        if live.joint is None:
            _resolve_waiting(first, Unavailable(self.problem or "no model is served"))
            return
        rounds, running = Rounds(live.joint, self._answer_moved), list[Batch]()
        clock = asyncio.get_running_loop().time
        rounds.add([first, *await self._questions.collect_more(len(first.names))])
        try:
            async with asyncio.timeout(None) as limit:

                def take_next() -> Batch | None:
                    limit.reschedule(clock() + _PATIENCE * self.batching.seconds)
                    batch = rounds.next_batch()
                    if batch is None and live.site.ledger.length < LEDGER_LINES:
                        rounds.add(self._questions.take_waiting())
                        batch = rounds.next_batch()
                    if batch is not None:
                        batch.began = clock()
                        running.append(batch)
                    return batch

                def finish(batch: Batch) -> None:
                    running.remove(batch)
                    rounds.finish(batch)
                    self.news.batch_served(clock() - batch.began)

                if (batch := take_next()) is not None:
                    await live.joint.score_batches(batch, take_next, finish)
        except BaseException as error:
            refused = isinstance(error, InputError | PolicyError)
            outcome = self._answer_failed(error) if refused else self._unavailable_after(error)
            self._questions.put_back(rounds.fail(running, outcome))
            if refused:
                raise ProtocolError(f"a batch was not answered: {error}") from error
            if isinstance(error, TimeoutError):
                names = ", ".join(self._awaited_peers())
                raise ProtocolError(f"no answer from {names} for {_PATIENCE * self.batching.seconds:g} s") from None
            raise

    async def _answer_check(self, live: Session, item: Check) -> None:
        """Collect refusals, and score nobody."""
        try:
            if live.joint is None:
                raise ProtocolError("no model is served")
            async with asyncio.timeout(self.batching.seconds):
                _resolve_waiting(item, await live.joint.find_refusals(item.names))
        except BaseException as error:
            _resolve_waiting(item, self._unavailable_after(error))
            raise

    @property
    def _answer_moved(self) -> Refusal:
        """The answer to requests from before a refresh for a customer that is no longer common."""
        return Refusal(party=self.place.name, rule="index", words="the index changed; ask again", wait=1.0)

    def _answer_failed(self, error: BaseException) -> Refusal:
        """The answer to requests that this party's own part of a batch failed on."""
        return Refusal(party=self.place.name, rule="other", words=str(error))

    async def _activate_model(self, live: Session, run: str) -> str:
        """Prepare: every party reports which part it has. Commit: this party's record. Then all use the model."""
        try:
            part = self.shelf.read_part(run)
            self.build_program(live.site, live.index, part)
        except (InputError, PolicyError) as error:
            raise ModelMismatch(str(error)) from None
        refusals, said = await collect_answers(live.site, "prepare", meta={"run": run})
        _raise_mismatch(refusals)
        parts = {self.place.name: part.digest} | {peer: str(meta.get("part")) for peer, meta in said.items()}
        model = ModelRecord.from_parts(run, parts)
        self.shelf.commit(model)
        await self._use_model(live, model)
        return model.digest

    async def _use_model(self, live: Session, model: ModelRecord) -> None:
        """Let all parties use a model that is committed.

        Raises:
            ModelMismatch: one cannot; no model is served then.
        """
        part = self.shelf.commit(model)
        program = self.build_program(live.site, live.index, part)
        named: dict[str, Scalar] = {f"part {name}": digest for name, digest in model.parts.items()}
        refusals, _ = await collect_answers(live.site, "use", meta={"run": model.run} | named)
        self._note_releases(live.site)
        self.serving = live.joint = None
        if refusals:
            await send_command_to_all(live.site, "skip")
            _raise_mismatch(refusals)
        await send_command_to_all(live.site, "go")
        await self.come_back(program, live.index, model, part)
        live.joint = self._joint_scores(live, program, model)
        self.problem = ""
        self.peers_changed()

    def _joint_scores(self, live: Session, program: object, model: ModelRecord) -> JointScores:
        if not isinstance(program, ActiveProgram):
            raise ProtocolError(f"{self.place.name!r} is not the active party")
        dp, size = self.place.job.protection.dp, self.batching.padded
        noisy = dp is not None and dp.features is not None
        return JointScores(
            site=live.site,
            index=live.index,
            program=program,
            counts=self.counts,
            answers=KeptAnswers(self.place.folder / "answers", model.digest, live.tags, synced=noisy),
            groups=make_groups(live.index.identifiers, size, self._group_key()) if size else (),
        )

    async def _refresh_tables(self, live: Session) -> None:
        try:
            self.renew_table()
        except InputError as error:
            raise ModelMismatch(f"{self.place.name}: {error}") from None
        refusals, _ = await collect_answers(live.site, "refresh")
        if refusals:
            self._candidate = None
            await send_command_to_all(live.site, "skip")
            _raise_mismatch(refusals)

    def _group_key(self) -> bytes:
        path = self.place.folder / "groups.key"
        if not path.exists():
            write_atomic(path, os.urandom(_KEY_BYTES), private=True)
        return path.read_bytes()


def _raise_mismatch(refusals: Sequence[Refusal]) -> None:
    if refusals:
        raise ModelMismatch("; ".join(f"{refusal.party}: {refusal.words}" for refusal in refusals))


def _resolve_waiting(item: Ask | Check | Command, what: object) -> None:
    """Answer the requests that still wait."""
    if item.done.done():
        return
    if isinstance(what, Exception):
        item.done.set_exception(what)
    else:
        item.done.set_result(what)  # type: ignore[arg-type]
