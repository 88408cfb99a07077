"""Cores of a process: its affinity, and the quota of its control groups."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from securevfl_crypto.engine import quota as module
from securevfl_crypto.engine.cpu import _count_cores, thread_count
from securevfl_crypto.engine.quota import cpu_quota, usable_cores


def _group(root: Path, lines: str, files: dict[str, str]) -> float | None:
    for name, text in {"proc/self/cgroup": lines, **files}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, encoding="ascii")
    return cpu_quota(root)


V2 = "sys/fs/cgroup"


@pytest.mark.parametrize(
    ("lines", "files", "expected"),
    [
        ("0::/\n", {f"{V2}/cpu.max": "150000 100000\n"}, 1.5),
        ("0::/\n", {f"{V2}/cpu.max": "max 100000\n"}, None),
        ("0::/pod/box\n", {f"{V2}/pod/box/cpu.max": "max 100000\n", f"{V2}/pod/cpu.max": "400000 100000\n"}, 4.0),
        ("0::/pod/box\n", {f"{V2}/pod/box/cpu.max": "50000 100000\n", f"{V2}/pod/cpu.max": "400000 100000\n"}, 0.5),
        ("0::/elsewhere\n", {f"{V2}/cpu.max": "nonsense\n"}, None),
        (
            "5:memory:/m\n3:cpu,cpuacct:/box\n0::/\n",
            {
                f"{V2}/cpu/box/cpu.cfs_quota_us": "300000\n",
                f"{V2}/cpu/box/cpu.cfs_period_us": "100000\n",
                f"{V2}/cpu/cpu.cfs_quota_us": "-1\n",
                f"{V2}/cpu/cpu.cfs_period_us": "100000\n",
            },
            3.0,
        ),
        ("3:cpuset:/box\n", {f"{V2}/cpu/box/cpu.cfs_quota_us": "100\n"}, None),
    ],
)
def test_the_least_quota_of_the_groups_counts(
    tmp_path: Path, lines: str, files: dict[str, str], expected: float | None
) -> None:
    assert _group(tmp_path, lines, files) == expected


def test_no_control_groups_no_quota(tmp_path: Path) -> None:
    assert cpu_quota(tmp_path) is None


@pytest.mark.parametrize(("allowed", "expected"), [(None, 8), (2.5, 3), (0.1, 1), (64.0, 8)])
def test_threads_follow_the_quota(monkeypatch: pytest.MonkeyPatch, allowed: float | None, expected: int) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)
    monkeypatch.setattr(module, "cpu_quota", lambda: allowed)
    _count_cores.cache_clear()
    monkeypatch.delenv("SECUREVFL_THREADS", raising=False)
    assert usable_cores() == thread_count() == expected
    _count_cores.cache_clear()
