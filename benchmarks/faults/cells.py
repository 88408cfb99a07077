"""The cells of the matrix, by rule: every fault at every phase of every job; and which cannot be, with the reason."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

from benchmarks.faults.expected import FAULTS, PHASES
from benchmarks.faults.jobs import ALGORITHMS, KINDS, PROTECTIONS, explain_no_job

__all__ = ["PLACES", "Cell", "cells", "impossible", "quick_cells"]

PLACES = ("first", "middle", "last")
"""Which point of a phase the fault happens at."""


@dataclass(frozen=True, order=True)
class Cell:
    """One fault.

    Attributes:
        kind: name of the job.
        phase, fault: of the matrix.
        place: which point of the phase.
        victim: index of the harmed party, by name.
    """

    kind: str
    phase: str
    fault: str
    place: str
    victim: int

    @property
    def name(self) -> str:
        """The cell in a few words; it identifies it in the results."""
        return f"{self.kind}, {self.phase}, {self.fault}, {self.place} point, party {self.victim + 1}"


def impossible() -> Mapping[str, str]:
    """Part of the product that cannot be → why, in the package's words where it refuses a job."""
    found = {
        f"{algorithm} {protection}, every phase and fault": reason
        for algorithm in ALGORITHMS
        for protection in PROTECTIONS
        if (reason := explain_no_job(algorithm, protection))
    }
    return found | {
        "folder restored, in the first attempt's consent": "no older copy exists before a party's first start",
    }


def cells() -> list[Cell]:
    """All cells: first every fault at every phase of every job at one point, then at the others. Points and victims
    rotate through the product by rule, so that each fault meets each of them. Jobs, phases and faults are mixed: a part
    is a sample.
    """
    found = []
    for number in range(len(PLACES)):
        here = []
        for kind in KINDS.values():
            for phase in PHASES:
                for fault in FAULTS:
                    if fault == "folder restored" and phase == "consent":
                        continue
                    turn = _turn(kind.name, phase, fault) + number
                    place, victim = PLACES[turn % len(PLACES)], turn % (kind.passive + 1)
                    here.append(Cell(kind.name, phase, fault, place, victim))
        found += sorted(here, key=lambda cell: _turn(cell.name))
    return found


def quick_cells() -> list[Cell]:
    """A few cells of the cheapest job, of each kind of fault and each phase."""
    kind = "logistic_regression plain"
    pairs = [
        ("program killed", "training", "middle", 1),
        ("gate killed", "alignment", "first", 0),
        ("both killed", "checkpoint", "middle", 0),
        ("program stopped", "consent", "first", 1),
        ("link torn", "training", "middle", 0),
        ("link half closed", "finish", "first", 1),
        ("disk full", "training", "middle", 1),
        ("folder restored", "training", "last", 1),
        ("program killed", "prediction", "middle", 1),
        ("link cut", "serving", "middle", 0),
    ]
    return [Cell(kind, phase, fault, place, victim) for fault, phase, place, victim in pairs]


def _turn(*words: str) -> int:
    return int.from_bytes(hashlib.sha256(" ".join(words).encode()).digest()[:4], "big")
