"""The programs of statistics on shares of three."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from typing import Any

import numpy as np
from securevfl_crypto.replicated import Opening, Share

from securevfl.errors import ProtocolError
from securevfl.shares.crossing.computing import OPENING, choose_cells, draw_noise, multiply_part
from securevfl.shares.share_party import ShareParty
from securevfl.shares.sharing import Sharing, name_parties_in_errors
from securevfl.training.crossing import LAYOUT, CrossedRole, CrossPlan, begin_crossing, read_layouts
from securevfl.training.program import HelperProgram, Program
from securevfl.training.rows import Trained
from securevfl.training.state import State
from securevfl.transport import Kind

__all__ = ["CrossingCoordinator", "CrossingData", "CrossingProgram", "receive_plan"]

_MOST = {"rows": 1 << 26, "classes": 1 << 16}
"""Sizes that a party without data believes are below this."""

_DEALT = 1 << 21
"""Words that one message deals."""


class _Crossing:
    """One party's way through the products.

    Args:
        sharing: of the job.
    """

    def __init__(self, sharing: Sharing) -> None:
        self.sharing = sharing

    async def compute(self, plan: CrossPlan, matrix: np.ndarray | None) -> tuple[np.ndarray | None, ShareParty]:
        """Deal, multiply, choose, open.

        Args:
            plan: of the job.
            matrix: this party's rows; None at a coordinator.

        Returns:
            At the active party what is opened, int64 (released,); and this party's part.
        """
        names, site = self.sharing.computing_parties, self.sharing.site
        count, to = len(plan.release.released), names.index(site.active)
        member = ShareParty(site, names, {OPENING: Opening(1, (to,), count)})
        await member.setup()
        engine = member.engine
        if engine is not None:
            await engine.confirm(f"layout {plan!r}")
        widths = [plan.active_width, *(one.width for one in plan.layouts[1:])]
        total: Share | None = None
        for part in _split_rows(plan.rows, sum(widths)):
            words = None if matrix is None else [np.ascontiguousarray(matrix[part]).view(np.uint64)]
            rows = part.stop - part.start
            shapes = {name: [(rows, width)] for name, width in zip(member.sources, widths, strict=True)}
            dealt = await member.share_arrays(words, shapes)
            if engine is not None:
                found = await multiply_part(engine, plan, [dealt[name][0] for name in member.sources])
                total = found if total is None else total + found
        if engine is None or total is None:
            return None, member
        # The active party reads the result, and knows what it adds itself: the two others reach all of the noise.
        noise = None if site.name == site.active else draw_noise(plan, 0.5)
        cells = await choose_cells(engine, plan, total, noise)
        opened = await engine.open(OPENING, cells, (to,))
        return None if opened is None else opened.view(np.int64), member


def _split_rows(rows: int, width: int) -> Iterator[slice]:
    most = max(_DEALT // max(width, 1), 1)
    for start in range(0, rows, most):
        yield slice(start, min(start + most, rows))


class CrossingProgram(Program):
    """Base of the programs of parties with a table.

    Args:
        role: the party's.
        sharing: of the job.
    """

    def __init__(self, role: CrossedRole, sharing: Sharing) -> None:
        self.role = role
        self.sharing = sharing

    @abstractmethod
    async def compute(self) -> tuple[np.ndarray | None, list[str]]:
        """Compute the sums with the others.

        Returns:
            At the active party what is opened, int64 (released,); and notes for the report.
        """

    async def run(self) -> Trained:
        with name_parties_in_errors(self.sharing.computing_parties):
            opened, notes = await self.compute()
        if opened is not None:
            self.role.take_sums(opened)
        self.role.trained.notes += notes
        return await self.role.finish()

    def privacy_spent(self) -> list[Any]:
        return [] if self.role.uses is None or not self.role.uses.counts.max_releases else [self.role.uses.cost_so_far]


class CrossingData(CrossingProgram):
    """The program of a party with a table, of three that compute."""

    async def compute(self) -> tuple[np.ndarray | None, list[str]]:
        plan = await begin_crossing(self.role, self.sharing.site.other_links)
        opened, member = await _Crossing(self.sharing).compute(plan, self.role.matrix())
        return opened, describe_computing(member, plan)


class CrossingCoordinator(HelperProgram):
    """The program of a computing party without data.

    Args:
        sharing: of the job.
    """

    def __init__(self, sharing: Sharing) -> None:
        self.sharing = sharing

    async def run(self) -> Trained:
        with name_parties_in_errors(self.sharing.computing_parties):
            plan = await receive_plan(self.sharing)
            _, member = await _Crossing(self.sharing).compute(plan, None)
        return Trained(notes=describe_computing(member, plan))

    async def come_back(self, model: State) -> None:
        """Not possible: there is no model.

        Raises:
            ProtocolError: always.
        """
        raise ProtocolError("statistics leave no model to score rows with")

    async def answer(self) -> None:
        """Likewise."""
        await self.come_back({})


async def receive_plan(sharing: Sharing) -> CrossPlan:
    """Receive the plan from the active party, at a party without data.

    Raises:
        ProtocolError: impossible sizes.
    """
    site = sharing.site
    link = site.links[site.active]
    message = await link.receive(Kind.CONTROL, LAYOUT)
    layouts = read_layouts(message.meta.get("layouts"), link.peer, 1 + len(site.passive))
    told = {name: message.meta.get(name) for name in _MOST}
    if not all(type(one) is int and 0 <= one < _MOST[name] for name, one in told.items()):
        raise ProtocolError(f"{link.peer!r} sent impossible sizes {told}")
    planner: Any = sharing.algorithm
    found: CrossPlan = planner.plan_products(sharing.protection, **told, layouts=layouts)
    return found


def describe_computing(member: ShareParty, plan: CrossPlan) -> list[str]:
    """Describe a computing party's work, for the report."""
    engine = member.engine
    if engine is None:
        return []
    return [
        f"{member.site.name!r} multiplied {plan.rows:,} rows on shares in {engine.rounds} rounds; "
        f"{len(plan.release.released):,} numbers were opened, each zero where it was withheld"
    ]
