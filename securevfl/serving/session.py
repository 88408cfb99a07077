"""What every party does in a session: it consents, aligns if necessary, and builds the program that scores."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from securevfl_net.durable import make_folder

from securevfl.align import Alignment
from securevfl.data import PartyTable
from securevfl.errors import InputError, ProtocolError, SecureVFLError
from securevfl.party import align_party, consent_party, note_spent, scoring_program
from securevfl.party.ledger_heads import exchange_ledger_heads
from securevfl.party.reports import View
from securevfl.party_context import PartyContext
from securevfl.run.model_parts import ModelPart
from securevfl.run.store import read_tree, write_tree
from securevfl.serving.serving_context import ServingContext, table_digest
from securevfl.serving.serving_sessions import SessionServer, describe_end
from securevfl.serving.shelf import ModelRecord, ModelShelf
from securevfl.training import ActiveProgram, PassiveProgram
from securevfl.transport import Channel, Mesh

__all__ = ["LEDGER_LINES", "Index", "PartyServer", "Serving"]

LEDGER_LINES = 50_000
"""Lines of a ledger after which a session ends and another one begins: a ledger is in memory as long as it is open."""


@dataclass(frozen=True, kw_only=True)
class Index:
    """A table and its common rows.

    Attributes:
        table: the party's own.
        digest: of the table.
        alignment: the party's own, of its rows.
        mark: of the view in which they were aligned, hexadecimal, the same at all parties.
    """

    table: PartyTable
    digest: str
    alignment: Alignment
    mark: str

    @cached_property
    def identifiers(self) -> list[str]:
        """The party's identifiers of the common rows, in their order."""
        return [self.table.ids[row] for row in self.alignment.rows.tolist()]

    @cached_property
    def known_names(self) -> frozenset[str]:
        """The same, to look up."""
        return frozenset(self.identifiers)


@dataclass(frozen=True, kw_only=True)
class Serving:
    """The program that scores in a session.

    Attributes:
        model: of all parties.
        program: this party's.
        key: what its noise that is drawn once belongs to: model and index.
        classes: names of the classes.
    """

    model: ModelRecord
    program: ActiveProgram | PassiveProgram
    key: tuple[str, str]
    classes: tuple[str, ...]


class PartyServer(SessionServer):
    """One party's server: the part that active and passive parties share.

    Args:
        mesh: connections to all peers.
        place: where it serves.

    Attributes:
        shelf: its parts of models.
        counts: scores of the day.
        index: table and common rows; None before the first alignment.

    Raises:
        InputError: files of its folder that are damaged.
    """

    def __init__(self, mesh: Mesh, place: ServingContext) -> None:
        super().__init__(mesh)
        if set(mesh.peers) != {*place.parties} - {place.name}:
            raise InputError(f"the peers of {place.name!r} are {', '.join(mesh.peers)}, which are not the job's")
        self.place = place
        self.shelf = ModelShelf(place.folder / "models", place.name, place.job)
        self.counts = place.count_days()
        self.index: Index | None = None
        self.serving: Serving | None = None
        self._table = place.read_table()
        self._digest = table_digest(self._table)
        self._candidate: PartyTable | None = None
        self._known: tuple[PartyTable, frozenset[str]] | None = None
        self._kept: tuple[tuple[str, str], dict[str, object]] | None = None
        self.index = self._load_index()

    @property
    def table(self) -> PartyTable:
        """The party's table, as it is served."""
        return self._table

    @property
    def known_names(self) -> frozenset[str]:
        """Identifiers of the party's table."""
        if self._known is None or self._known[0] is not self._table:
            self._known = self._table, frozenset(self._table.ids)
        return self._known[1]

    def alignment_mark(self) -> str:
        """See `SessionServer.alignment_mark`: empty if a new table waits to be aligned."""
        return "" if self._candidate is not None or self.index is None else self.index.mark

    @property
    def is_ready(self) -> bool:
        """Whether all parties are connected and a model is served."""
        return self.serving is not None and not self.away

    def epsilon_today(self) -> float | None:
        """ε of today's releases of the person with the most; None if features leave without noise or no model is
        served.
        """
        if self.serving is None:
            return None
        epsilon = self.serving.program.role.releases.epsilon_of_feeding(self.counts.most_released())
        return epsilon if math.isfinite(epsilon) else None

    @abstractmethod
    async def serve(self, site: PartyContext, index: Index) -> None:
        """Serve until the session ends; then exchange signed ledger heads with all parties."""

    async def serve_session(self, view: View, channels: Mapping[str, Channel]) -> None:
        site = self.place.session_context(f"serve-{view.mark.hex()}", channels)
        outcome = "ended"
        try:
            table, among = self._candidate or self._table, site.everyone if site.gone else ()
            await consent_party(site, table, self.place.job, among=among, predicts=True)
            index = await self._find_index(site, view)
            await self.serve(site, index)
            self._note_releases(site)
            await exchange_ledger_heads(site)
            outcome = "done"
        except BaseException as error:
            outcome = describe_end(error)
            self._note_releases(site)
            raise
        finally:
            self.serving = None
            site.ledger.close(outcome)

    def _note_releases(self, site: PartyContext) -> None:
        """Write into the ledger what was released, and keep the noise that was drawn once for the next session."""
        if self.serving is None:
            return
        releases = self.serving.program.role.releases
        note_spent(site.ledger, self.serving.program.privacy_spent())
        if len(releases):
            self._kept = self.serving.key, releases.get_state()

    async def _find_index(self, site: PartyContext, view: View) -> Index:
        """The common rows: stored ones that all parties still have, or those of a new alignment."""
        if self._candidate is None and self.index is not None and view.alignment == self.index.mark:
            return self.index
        table = self._candidate or self._table
        try:
            alignments = await align_party(site, table, self.place.job)
        except SecureVFLError as error:
            if self.index is None:
                raise
            self._candidate = None  # at every party: those that have not noticed the end learn that the others stopped
            self.refresh_refused(f"the tables could not be aligned: {error}")
            if isinstance(error, ProtocolError):
                raise
            raise ProtocolError(f"the tables could not be aligned: {error}") from error
        alignment, mark = alignments[self.place.active], view.mark.hex()
        digest = table_digest(table)
        tree = {"mark": mark, "table": digest, "digest": alignment.digest, "rows": alignment.rows}
        make_folder(self.place.folder, private=True)
        write_tree(self._index_file, tree | {"verified": list(alignment.verified_by)})
        self._table, self._digest, self._candidate = table, digest, None
        self.index = Index(table=table, digest=digest, alignment=alignment, mark=mark)
        return self.index

    def refresh_refused(self, why: str) -> None:
        """A refresh did not come about."""

    def renew_table(self) -> None:
        """Read the table again, to be aligned in the next session.

        Raises:
            InputError: it cannot be used; the one before stays.
        """
        self._candidate = self.place.read_table()

    def build_program(self, site: PartyContext, index: Index, part: ModelPart) -> ActiveProgram | PassiveProgram:
        """This party's program, before any message of it was exchanged."""
        return scoring_program(site, index.table, index.alignment, self.place.job, part.tree)

    async def come_back(
        self, program: ActiveProgram | PassiveProgram, index: Index, model: ModelRecord, part: ModelPart
    ) -> Serving:
        """Exchange keys and take the model's weights."""
        await program.come_back(dict(part.tree))
        key = (model.digest, index.mark)
        if self._kept is not None and self._kept[0] == key:
            program.role.releases.load_state(self._kept[1])
        self.serving = Serving(model=model, program=program, key=key, classes=tuple(map(str, part.tree["names"])))
        self.news.report_event("activated", f"model {model.digest[:16]} is served", model=model.digest)
        self.settled()
        self.peers_changed()
        return self.serving

    @property
    def _index_file(self) -> Path:
        return self.place.folder / "index.safetensors"

    def _load_index(self) -> Index | None:
        """The common rows of an earlier process, where they are of this table."""
        if not self._index_file.exists():
            return None
        tree: Any = read_tree(self._index_file)
        try:
            mark, table, digest, verified = (tree[name] for name in ("mark", "table", "digest", "verified"))
            rows = np.asarray(tree["rows"], np.int64)
        except (KeyError, TypeError, ValueError):
            raise InputError(f"{self._index_file} was written by another version. Delete it to align again") from None
        if table != self._digest or (len(rows) and not 0 <= rows.min() <= rows.max() < self._table.rows):
            return None
        alignment = Alignment(rows=rows, digest=digest, verified_by=tuple(verified), pairwise={})
        return Index(table=self._table, digest=table, alignment=alignment, mark=mark)
