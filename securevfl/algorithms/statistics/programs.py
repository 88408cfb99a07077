"""The programs of statistics without a protection: the active party reads the passive parties' rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from securevfl.algorithms.statistics.settings import ROWS
from securevfl.errors import ProtocolError
from securevfl.training.crossing import begin_crossing
from securevfl.training.program import Program
from securevfl.training.rows import Trained
from securevfl.transport import Kind

__all__ = ["PlainActive", "PlainPassive"]


class _PlainProgram(Program):
    """Base of both programs.

    Args:
        role: the party's.
    """

    def __init__(self, role: Any) -> None:
        self.role = role


class PlainActive(_PlainProgram):
    """The active party's program."""

    async def run(self) -> Trained:
        """See `Program.run`.

        Raises:
            ProtocolError: a passive party sent other rows.
        """
        role = self.role
        plan = await begin_crossing(role, role.site.other_links)
        passive = []
        for name, layout in zip(role.site.passive, plan.layouts[1:], strict=True):
            message = await role.site.links[name].receive(Kind.ACTIVATION, ROWS, "rows")
            rows = np.asarray(message.arrays["rows"])
            if rows.dtype != np.int64 or rows.shape != (plan.rows, layout.width):
                raise ProtocolError(
                    f"{name!r} sent rows {rows.dtype} {rows.shape}; int64 {(plan.rows, layout.width)} was expected"
                )
            passive.append(rows)
        role.take_sums(plan.release_in_clear(plan.clear_products(role.matrix(), passive)))
        found: Trained = await role.finish()
        return found


class PlainPassive(_PlainProgram):
    """A passive party's program."""

    async def run(self) -> Trained:
        role = self.role
        await begin_crossing(role, role.site.other_links)
        await role.upstream.send(Kind.ACTIVATION, ROWS, rows=role.matrix())
        found: Trained = await role.finish()
        return found
