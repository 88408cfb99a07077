"""The server of a party without data that computes on shares: it stays connected and takes part in every batch that the
parties with data score. It learns the number of rows, but not which rows they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from securevfl.errors import InputError, PolicyError, ProtocolError
from securevfl.party import consent_party, helping_program
from securevfl.party.ledger_heads import exchange_ledger_heads
from securevfl.party.reports import View
from securevfl.party_context import PartyContext
from securevfl.privacy import Link
from securevfl.serving.exchanges import Agreed, finish_agreed, receive_command, send_acceptance, send_refusal
from securevfl.serving.policy import Refusal
from securevfl.serving.serving_context import ServingContext
from securevfl.serving.serving_sessions import SessionServer, describe_end
from securevfl.serving.shelf import ModelRecord, ModelShelf
from securevfl.training import HelperProgram
from securevfl.transport import Channel, Mesh, Scalar

__all__ = ["ServeHelper"]

_PART = "part "


class ServeHelper(SessionServer):
    """The session of a party without data; the active party sends it the same commands as to passive parties.

    Args:
        mesh: connections to all peers.
        place: where it serves.
        once: whether it ends with the active party: for one prediction.

    Raises:
        InputError: files of its folder that are damaged.
    """

    def __init__(self, mesh: Mesh, place: ServingContext, *, once: bool = False) -> None:
        super().__init__(mesh)
        self.place = place
        self.once = once
        self.shelf = ModelShelf(place.folder / "models", place.name, place.job)
        self._program: HelperProgram | None = None

    def alignment_mark(self) -> str:
        """None: the party has no rows, so the others align again in each session."""
        return ""

    async def serve_session(self, view: View, channels: Mapping[str, Channel]) -> None:
        """See `SessionServer.serve_session`."""
        site = self.place.session_context(f"serve-{view.mark.hex()}", channels)
        outcome = "ended"
        try:
            await consent_party(site, None, self.place.job, predicts=True)
            await self._serve_labels(site)
            await exchange_ledger_heads(site)
            outcome = "done"
        except BaseException as error:
            outcome = describe_end(error)
            raise
        finally:
            self._program = None
            site.ledger.close(outcome)

    async def _serve_labels(self, site: PartyContext) -> None:
        upstream = site.links[site.active]
        await send_acceptance(upstream, table="")
        agreed: Agreed | None = None
        while True:
            do, _, meta = await receive_command(upstream)
            if do == "score":
                agreed = await self._decide_batch(upstream)
            elif do == "use":
                agreed = await self._use_model(site, upstream, meta)
            elif do == "go" and agreed is not None:
                await finish_agreed(agreed)
                agreed = await self._decide_batch(upstream) if meta.get("then") == "score" else None
            elif do == "skip":
                agreed = None
            elif do == "prepare":
                await self._prepare_part(upstream, meta)
            elif do == "refresh":
                await send_acceptance(upstream)
            elif do == "end":
                if self.once and meta.get("over") is True:
                    self.note_over()
                return
            else:
                raise ProtocolError(f"{upstream.peer!r} sent an unknown command {do!r:.40}")

    async def _decide_batch(self, upstream: Link) -> Agreed:
        if self._program is None:
            raise ProtocolError(f"{upstream.peer!r} asks for scores before a model is used")
        await send_acceptance(upstream)
        return self._program.answer

    async def _prepare_part(self, upstream: Link, meta: Mapping[str, Scalar]) -> None:
        try:
            part = self.shelf.read_part(str(meta.get("run")))
        except InputError as error:
            await self._send_refusal(upstream, str(error))
            return
        await send_acceptance(upstream, part=part.digest)

    async def _use_model(self, site: PartyContext, upstream: Link, meta: Mapping[str, Scalar]) -> Agreed | None:
        parts = {name.removeprefix(_PART): str(value) for name, value in meta.items() if name.startswith(_PART)}
        self._program = None
        try:
            part = self.shelf.commit(ModelRecord.from_parts(str(meta.get("run")), parts))
            program = helping_program(site, self.place.job, part.tree)
        except (InputError, PolicyError) as error:
            await self._send_refusal(upstream, str(error))
            return None
        await send_acceptance(upstream)
        return partial(self._come_back, program, part.tree)

    async def _come_back(self, program: HelperProgram, tree: Mapping[str, object]) -> None:
        await program.come_back(dict(tree))
        self._program = program
        self.settled()

    async def _send_refusal(self, upstream: Link, words: str) -> None:
        await send_refusal(upstream, Refusal(party=self.place.name, rule="other", words=words))
