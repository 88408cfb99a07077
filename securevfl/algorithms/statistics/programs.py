"""The programs of statistics without a protection: the active party reads the passive parties' rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from securevfl.algorithms.statistics.settings import ROWS
from securevfl.errors import ProtocolError
from securevfl.training.program import Program
from securevfl.training.rows import Trained
from securevfl.transport import Kind

__all__ = ["PlainActive", "PlainPassive"]


class PlainActive(Program):
    """The active party's program.

    Args:
        role: its role.
    """

    def __init__(self, role: Any) -> None:
        self.role = role

    async def run(self) -> Trained:
        role = self.role
        plan = await role.agree_layout(role.site.other_links)
        role.begin_release()
        await role.tell_own()
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


class PlainPassive(Program):
    """A passive party's program.

    Args:
        role: its role.
    """

    def __init__(self, role: Any) -> None:
        self.role = role

    async def run(self) -> Trained:
        role = self.role
        await role.agree_layout(role.site.other_links)
        role.begin_release()
        await role.tell_own()
        await role.upstream.send(Kind.ACTIVATION, ROWS, rows=role.matrix())
        found: Trained = await role.finish()
        return found
