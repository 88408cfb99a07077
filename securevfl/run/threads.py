"""How many threads the arithmetic of a run takes: no more than help.

Threads of OpenMP meet after each operation, and while they wait they spin. On a machine that does other work, too, the
one that waits takes the core of the one it waits for. So small work stays on one thread: a second one saves at
most a few percent there on an idle machine and makes steps several times slower on a busy one.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch

__all__ = ["CELLS", "ROWS", "learning_threads", "tree_threads"]

CELLS = 32_768
"""Numbers of a batch, rows × columns of all parties, from which torch may use its threads; torch parts work so, too
(`at::internal::GRAIN_SIZE`)."""
ROWS = 50_000
"""Training rows that each thread of scikit-learn's trees has at least."""

_lock = threading.Lock()
_inside: list[int] = []
"""Torch's threads before the first of the runs that are under way, then one entry more for each run."""


@contextmanager
def learning_threads(cells: int) -> Iterator[None]:
    """One thread of torch for the block where a batch has fewer than `CELLS` numbers; as many as before after it.

    Torch's setting is the process's: the last of several runs in one process sets it back.

    Args:
        cells: rows of a batch × columns of all parties.
    """
    if cells >= CELLS:
        yield
        return
    with _lock:
        _inside.append(_inside[0] if _inside else torch.get_num_threads())
        torch.set_num_threads(1)
    try:
        yield
    finally:
        with _lock:
            before = _inside.pop()
            if not _inside:
                torch.set_num_threads(before)


@contextmanager
def tree_threads(rows: int) -> Iterator[None]:
    """A thread of OpenMP for each `ROWS` training rows, and no more than there are, for the block.

    Args:
        rows: that train.
    """
    import sklearn.ensemble  # noqa: F401 - its OpenMP has to be loaded before it can be limited
    from threadpoolctl import ThreadpoolController

    control = ThreadpoolController().select(user_api="openmp")
    most = max((one["num_threads"] for one in control.info()), default=1)
    with control.limit(limits=min(most, max(1, rows // ROWS))):
        yield
