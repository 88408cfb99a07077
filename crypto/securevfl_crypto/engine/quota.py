"""How many cores this process may use: those of its affinity, and no more than its control group's quota.

A container with two CPUs' worth of time on a machine of 64 cores may run on all 64, two of them at a time on average.
Sixty-four threads would use up its share in the first milliseconds of each period and stand still for the rest.
Sources: the kernel's admin guide, "Control Group v2", section cpu (`cpu.max`), and "CFS Bandwidth Control" (v1).
"""

from __future__ import annotations

import math
import os
from pathlib import Path

__all__ = ["cpu_quota", "usable_cores"]


def usable_cores() -> int:
    """Cores that this process may keep busy, at least 1."""
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    allowed = cpu_quota()
    return usable if allowed is None else max(1, min(usable, math.ceil(allowed)))


def cpu_quota(root: Path = Path("/")) -> float | None:
    """CPU time over time that this process's control groups allow, the least of them; None where nothing does.

    Args:
        root: of the file system, for tests.
    """
    try:
        lines = (root / "proc/self/cgroup").read_text(encoding="ascii").splitlines()
    except (OSError, ValueError):  # no Linux, or no /proc: there are no control groups that we could ask
        return None
    found = []
    for line in lines:
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if controllers == "":
            bases = [root / "sys/fs/cgroup"]
        elif "cpu" in controllers.split(","):
            bases = [root / "sys/fs/cgroup/cpu", root / "sys/fs/cgroup/cpu,cpuacct"]
        else:
            continue
        for base in bases:
            folder = base / path.lstrip("/")
            found += [_group_quota(place) for place in (folder, *folder.parents) if place.is_relative_to(base)]
    return min((one for one in found if one is not None), default=None)


def _group_quota(folder: Path) -> float | None:
    """The quota of one group."""
    try:
        if (folder / "cpu.max").exists():
            most, period = (folder / "cpu.max").read_text(encoding="ascii").split()
        else:
            most = (folder / "cpu.cfs_quota_us").read_text(encoding="ascii")
            period = (folder / "cpu.cfs_period_us").read_text(encoding="ascii")
        return int(most) / int(period) if int(most) > 0 and int(period) > 0 else None
    except (OSError, ValueError):  # "max", or not there: this group has none
        return None
