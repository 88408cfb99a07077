"""Which agreements start now, and which training gives up its place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["QueuedJob", "choose_starts", "choose_yields"]


@dataclass(frozen=True, kw_only=True)
class QueuedJob:
    """An agreement as the queue sees it.

    Attributes:
        name: of the entry.
        place: the smallest goes first.
        serves: whether its model is served, or about to be: that takes no place among trainings.
        memory: gigabytes.
        running: whether its process runs.
        called: whether a peer called it lately; such a one goes before others that waited in vain as often.
        vain: turns in a row in which it waited for its peers in vain. Those with fewer go first: whoever can call must
            not keep others from their turns.
        late: seconds for which its process has waited for its peers beyond its turn; 0 if they are there.
    """

    name: str
    place: int
    serves: bool = False
    memory: float = 0.0
    running: bool = False
    called: bool = False
    vain: int = 0
    late: float = 0.0


def choose_starts(jobs: Sequence[QueuedJob], *, places: int, memory: float | None) -> list[str]:
    """The agreements to start now, in order.

    A training whose memory is not free yet keeps its turn: no later one overtakes it, so that large ones start at last.

    Args:
        jobs: those that run and those that could.
        places: trainings at once.
        memory: gigabytes for all; None for no limit. An agreement that needs more runs alone.
    """
    running = [job for job in jobs if job.running]
    free = places - sum(not job.serves for job in running)
    used = sum(job.memory for job in running)
    count, found = len(running), []
    for job in _in_turn(jobs):
        if not job.serves and free <= 0:
            continue
        if memory is not None and count and used + job.memory > memory:
            break
        free -= not job.serves
        used, count = used + job.memory, count + 1
        found.append(job.name)
    return found


def choose_yields(jobs: Sequence[QueuedJob], *, places: int) -> list[str]:
    """Trainings whose peers have not come in their turn, while others wait for a place: as many as wait."""
    running = [job for job in jobs if job.running and not job.serves]
    waiting = [job for job in jobs if not job.running and not job.serves]
    late = sorted((job for job in running if job.late > 0), key=lambda job: -job.late)
    return [job.name for job in late[: len(waiting)]] if len(running) >= places else []


def _in_turn(jobs: Sequence[QueuedJob]) -> list[QueuedJob]:
    waiting = (job for job in jobs if not job.running)
    return sorted(waiting, key=lambda job: (not job.serves, job.vain, not job.called, job.place))
