"""The active party's server: it collects questions into batches, asks the passive parties, and activates models."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NoReturn

from securevfl.durable import write_whole
from securevfl.errors import InputError, PeerEnded, PolicyError, ProtocolError
from securevfl.serving.answers import Answers
from securevfl.serving.exchanges import hear_answer
from securevfl.serving.groups import groups_of
from securevfl.serving.joint import JointScores, tell, tell_and_hear
from securevfl.serving.place import Place
from securevfl.serving.policy import Refusal
from securevfl.serving.questions import Ask, Batching, Command, ModelMismatch, Outcome, Questions, Unavailable
from securevfl.serving.session import LEDGER_LINES, Index, PartyServer
from securevfl.serving.shelf import Named
from securevfl.site import Site
from securevfl.training import ActiveProgram
from securevfl.transport import Mesh, Scalar

__all__ = ["ServeActive"]

_KEY_BYTES = 32


@dataclass
class _Session:
    """What lasts as long as a session, and what scores in it."""

    site: Site
    index: Index
    tags: Sequence[str]
    joint: JointScores | None = None


class ServeActive(PartyServer):
    """The active party's server. See `PartyServer`.

    Args:
        mesh: connections to all peers.
        place: where it serves.
        batching: how questions are collected.
        run: the model to begin with, where none was served before; the only one on the shelf unless given.

    Attributes:
        problem: why no model is served; empty where one is.
    """

    def __init__(self, mesh: Mesh, place: Place, batching: Batching | None = None, *, run: str = "") -> None:
        super().__init__(mesh, place)
        self.batching = batching or Batching()
        self.problem = ""
        self._run = run
        self._questions = Questions(self.batching)
        self._news = asyncio.Event()
        self._live: _Session | None = None
        self._refreshing: asyncio.Future[str] | None = None
        self._timer: asyncio.TimerHandle | None = None

    @property
    def ready(self) -> bool:
        """Whether all parties are there and a model is served."""
        return self._live is not None and self._live.joint is not None and not self.away

    @property
    def common(self) -> frozenset[str]:
        """Customers whom all parties hold; empty before the first alignment."""
        return frozenset() if self.index is None else self.index.known

    @property
    def aligned(self) -> bool:
        """Whether it is known whom all parties hold."""
        return self.index is not None

    @property
    def digest(self) -> str:
        """Of the served model; empty where there is none."""
        return "" if self.serving is None else self.serving.model.digest

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the classes of the served model; empty where there is none."""
        return () if self.serving is None else self.serving.classes

    def status(self) -> dict[str, object]:
        """What it does and waits for, without any identifier."""
        model, previous = self.shelf.committed, self.shelf.previous
        return {
            "ready": self.ready,
            "away": dict(sorted(self.away.items())),
            "waits": self.waits(),
            "problem": self.problem or self.failure,
            "model": None if model is None else {"run": model.run, "digest": model.digest},
            "previous": None if previous is None else {"run": previous.run, "digest": previous.digest},
            "runs": list(self.shelf.runs),
            "index": 0 if self.index is None else len(self.index.alignment.rows),
            "rows_today": self.counts.rows,
        }

    async def scores(self, customers: Sequence[str]) -> list[Outcome]:
        """Score customers whom all parties hold.

        Args:
            customers: identifiers as in the active party's table, none twice.

        Returns:
            One outcome for each.

        Raises:
            Unavailable: a party is away, or took too long.
            KeyError: one that not all parties hold.
        """
        joint = (await self._when_ready()).joint
        if joint is None:
            self._raise_unavailable()
        kept: dict[str, Outcome] = {}
        for name in customers:
            joint.at[name]
            answer = joint.kept(name)
            if answer is not None:
                kept[name] = answer
        rest = [name for name in customers if name not in kept]
        if rest:
            try:
                kept |= zip(rest, await self._questions.ask(rest), strict=True)
            except TimeoutError:
                self._raise_late()
        return [kept[name] for name in customers]

    async def activate(self, run: str) -> str:
        """Serve another model, in two phases; the old one is served until all have agreed.

        Returns:
            Its digest.

        Raises:
            ModelMismatch: a party does not have its part, or cannot use it.
            Unavailable: a party is away.
        """
        return await self._command("activate", run)

    async def roll_back(self) -> str:
        """Serve the model before this one again; see `activate`.

        Raises:
            ModelMismatch: there is none.
        """
        if self.shelf.previous is None:
            raise ModelMismatch("there is no model before this one to roll back to")
        return await self._command("activate", self.shelf.previous.run)

    async def refresh(self) -> int:
        """Let all parties read their tables again, and align them; the old index is used until that is done.

        Returns:
            Number of common rows.

        Raises:
            ModelMismatch: a party's new table cannot be used, or the tables cannot be aligned: the old ones stay.
            Unavailable: a party is away.
        """
        return int(await self._command("refresh"))

    async def begun(self) -> None:
        """Wait until a session has begun, with a model or without."""
        while self._live is None:
            self._news.clear()
            await self._news.wait()

    async def finish(self) -> None:
        """Let the session be the last one, for this party and for those that are there for it alone."""
        await self._command("finish")

    async def _command(self, do: str, run: str = "") -> str:
        await self._when_ready(model=False)
        try:
            return await self._questions.command(do, run)
        except TimeoutError:
            self._raise_late()

    async def _when_ready(self, *, model: bool = True) -> _Session:
        """The session, once there is one, within the time of grace."""
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
        raise self._unavailable()

    def _raise_late(self) -> NoReturn:
        names = self._awaited()
        who = f": {', '.join(names)} did not answer" if names else ""
        raise Unavailable(f"no answer within {self.batching.seconds:g} s{who}", names) from None

    def _unavailable(self) -> Unavailable:
        if self.away:
            who = ", ".join(f"{name} ({why})" for name, why in sorted(self.away.items()))
            return Unavailable(f"not connected: {who}", sorted(self.away), 2.0)
        if self.problem:
            return Unavailable(self.problem, (), 30.0)
        names = self.waits() or dict.fromkeys(self._awaited(), "an answer")
        what = ", ".join(f"{name} ({why})" for name, why in sorted(names.items()))
        return Unavailable(f"the parties begin a session{': waiting for ' + what if what else ''}", sorted(names), 1.0)

    def _awaited(self) -> list[str]:
        live = self._live
        return [] if live is None else [link.peer for link in live.site.others if link.awaits]

    def changed(self) -> None:
        """See `Gathered.changed`."""
        self._news.set()
        if self.away and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self.batching.grace, self._give_up)

    def _give_up(self) -> None:
        """Whoever waits for a peer that does not come back hears of it."""
        self._timer = None
        if self.away:
            self._questions.fail(self._unavailable())

    def refused(self, why: str) -> None:
        """See `PartyServer.refused`."""
        future, self._refreshing = self._refreshing, None
        if future is not None and not future.done():
            future.set_exception(ModelMismatch(f"{why}; the old ones stay"))

    async def serve(self, site: Site, index: Index) -> None:
        """See `PartyServer.serve`."""
        tags = [str((await hear_answer(link, 0))[1].get("table")) for link in site.others]
        live = _Session(site=site, index=index, tags=tags)
        try:
            await self._begin(live)
            self._live = live
            refreshing, self._refreshing = self._refreshing, None
            if refreshing is not None and not refreshing.done():
                refreshing.set_result(str(len(index.alignment.rows)))
            self.changed()
            while site.ledger.length < LEDGER_LINES and await self._one(live):
                pass
            await tell(site, "end", meta={"over": self.over})
        finally:
            self._live = None
            self.changed()

    async def _begin(self, live: _Session) -> None:
        """Use the model that the record says; where it says none, agree on the first one."""
        self.problem = ""
        try:
            if self.shelf.committed is not None:
                await self._use(live, self.shelf.committed)
                return
            runs = self.shelf.runs
            run = self._run or (runs[0] if len(runs) == 1 else "")
            if not run:
                raise ModelMismatch(f"{len(runs)} models are there and none was activated: activate one")
            await self._activate(live, run)
        except (InputError, PolicyError) as error:
            self.problem = f"no model is served: {error}"

    async def _one(self, live: _Session) -> bool:
        """Do what is asked for next; False where the session is to end after it."""
        item = await self._questions.next()
        if isinstance(item, Ask):
            await self._batch(live, item)
            return True
        try:
            if item.do == "finish":
                self.over = True
                _tell(item, "")
                return False
            if item.do == "refresh":
                await self._refresh(live)
                self._refreshing = item.done  # told in the session that follows
                return False
            _tell(item, await self._activate(live, item.run))
        except ModelMismatch as error:
            _tell(item, error)
        except BaseException as error:
            _tell(item, self._broken(error))
            raise
        return True

    def _broken(self, error: BaseException) -> Unavailable:
        if isinstance(error, PeerEnded | asyncio.CancelledError):
            return Unavailable(f"{self.why or error}; ask again", sorted(self.away))
        return Unavailable(f"it broke off ({type(error).__name__}); ask again")

    async def _batch(self, live: _Session, first: Ask) -> None:
        """Collect questions, and answer them."""
        asks = [first, *await self._questions.more(len(first.names))]
        try:
            if live.joint is None:
                raise ProtocolError("no model is served")
            known = live.joint.at
            async with asyncio.timeout(self.batching.seconds):
                found = await live.joint(sorted({name for ask in asks for name in ask.names if name in known}))
        except BaseException as error:
            for ask in asks:
                _tell(ask, self._broken(error))
            if isinstance(error, TimeoutError):
                names = ", ".join(self._awaited())
                raise ProtocolError(f"no answer within {self.batching.seconds:g} s from {names}") from None
            raise
        for ask in asks:
            _tell(ask, [found.get(name, self._moved) for name in ask.names])

    @property
    def _moved(self) -> Refusal:
        """For who asked before a refresh for a customer who is not common any more."""
        return Refusal(party=self.place.name, rule="index", words="the index changed; ask again", wait=1.0)

    async def _activate(self, live: _Session, run: str) -> str:
        """Prepare: every party says which part it holds. Commit: this party's record. Then all use it."""
        try:
            part = self.shelf.part(run)
            self.program(live.site, live.index, part)
        except (InputError, PolicyError) as error:
            raise ModelMismatch(str(error)) from None
        refusals, said = await tell_and_hear(live.site, "prepare", meta={"run": run})
        _raise_mismatch(refusals)
        parts = {self.place.name: part.digest} | {peer: str(meta.get("part")) for peer, meta in said.items()}
        model = Named.of(run, parts)
        self.shelf.commit(model)
        await self._use(live, model)
        return model.digest

    async def _use(self, live: _Session, model: Named) -> None:
        """Let all parties use a model that is committed.

        Raises:
            ModelMismatch: one cannot; no model is served then.
        """
        part = self.shelf.commit(model)
        program = self.program(live.site, live.index, part)
        named: dict[str, Scalar] = {f"part {name}": digest for name, digest in model.parts.items()}
        refusals, _ = await tell_and_hear(live.site, "use", meta={"run": model.run} | named)
        self._note(live.site)
        self.serving = live.joint = None
        if refusals:
            await tell(live.site, "skip")
            _raise_mismatch(refusals)
        await tell(live.site, "go")
        await self.come_back(program, live.index, model, part)
        live.joint = self._joint(live, program, model)
        self.problem = ""
        self.changed()

    def _joint(self, live: _Session, program: object, model: Named) -> JointScores:
        if not isinstance(program, ActiveProgram):
            raise ProtocolError(f"{self.place.name!r} is not the active party")
        dp, size = self.place.job.protection.dp, self.batching.padded
        noisy = dp is not None and dp.features is not None
        return JointScores(
            site=live.site,
            index=live.index,
            program=program,
            counts=self.counts,
            answers=Answers(self.place.folder / "answers", model.digest) if noisy else None,
            tags=live.tags,
            groups=groups_of(live.index.names, size, self._group_key()) if size else (),
        )

    async def _refresh(self, live: _Session) -> None:
        try:
            self.renew()
        except InputError as error:
            raise ModelMismatch(f"{self.place.name}: {error}") from None
        refusals, _ = await tell_and_hear(live.site, "refresh")
        if refusals:
            self._candidate = None
            await tell(live.site, "skip")
            _raise_mismatch(refusals)

    def _group_key(self) -> bytes:
        path = self.place.folder / "groups.key"
        if not path.exists():
            write_whole(path, os.urandom(_KEY_BYTES), private=True)
        return path.read_bytes()


def _raise_mismatch(refusals: Sequence[Refusal]) -> None:
    if refusals:
        raise ModelMismatch("; ".join(f"{refusal.party}: {refusal.words}" for refusal in refusals))


def _tell(item: Ask | Command, what: object) -> None:
    """Answer whoever still waits."""
    if item.done.done():
        return
    if isinstance(what, Exception):
        item.done.set_exception(what)
    else:
        item.done.set_result(what)  # type: ignore[arg-type]
