"""Where figures go: one folder for each class of CPUs, so that no class's figures replace another's."""

from __future__ import annotations

import os
from pathlib import Path

from securevfl_crypto.engine import describe_kernels

__all__ = ["COMMITTED", "FIRST_CLASS", "RESULTS", "folder_of_class"]

COMMITTED = Path(__file__).parent / "results"
FIRST_CLASS = "x86_64_v4_ifma"
"""The class whose figures lie in `COMMITTED` itself, with all figures that no class changes."""


def folder_of_class(cpu_class: str) -> Path:
    """The folder of the figures of one class: `COMMITTED` for the first, a folder of its own in it for each other."""
    return COMMITTED if cpu_class == FIRST_CLASS else COMMITTED / cpu_class


RESULTS = Path(os.environ.get("SECUREVFL_BENCHMARKS") or folder_of_class(describe_kernels()["cpu class"]))
"""The folder of this process: of the class that computes here, which ``SECUREVFL_ENGINE`` may force."""
