"""Limit the threads of a run's arithmetic to the number that helps.

OpenMP's threads synchronise after each operation and spin while they wait. On a busy machine, a waiting thread occupies
the core that the awaited one needs. So small work uses one thread: a second one saves at most a few percent on an idle
machine and makes steps several times slower on a busy one.
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
"""Fewest training rows for each thread of scikit-learn's trees."""

_lock = threading.Lock()
_inside: list[int] = []
"""Torch's threads before the first of the runs that are under way, then one entry more for each run."""


@contextmanager
def learning_threads(cells: int) -> Iterator[None]:
    """Use one torch thread in the block if a batch has fewer than `CELLS` numbers; restore the number afterwards.

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
    import sklearn.ensemble  # noqa: F401 - its OpenMP must be loaded before it can be limited
    from threadpoolctl import ThreadpoolController

    control = ThreadpoolController().select(user_api="openmp")
    most = max((one["num_threads"] for one in control.info()), default=1)
    with control.limit(limits=min(most, max(1, rows // ROWS))):
        yield
