"""One Ray cluster of two nodes for all tests of pools: a head that the pool starts, and a node that joins it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from securevfl_crypto.pools import RayPool
from securevfl_crypto.pools.process import worker_environment


@dataclass
class RayCluster:
    """A pool, and the second of its two nodes, of one core each."""

    pool: RayPool
    node: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        import ray

        return str(ray.get_runtime_context().gcs_address)

    def join(self) -> None:
        """A second node, where there is none."""
        if self.node is not None and self.node.poll() is None:
            return
        before = self._nodes()
        arguments = [f"--address={self.address}", "--num-cpus=1", "--object-store-memory=80000000", "--block"]
        self.node = subprocess.Popen(
            [sys.executable, "-m", "ray.scripts.scripts", "start", *arguments],
            env=worker_environment(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        until = time.monotonic() + 90
        while not self._nodes() - before or self.pool.workers < 2:
            assert self.node.poll() is None
            assert time.monotonic() < until
            time.sleep(0.05)

    @staticmethod
    def _nodes() -> set[str]:
        import ray

        return {str(node["NodeID"]) for node in ray.nodes() if node["Alive"]}

    def kill_node(self) -> None:
        """All processes of the second node at once, as when its plug is pulled."""
        if self.node is None:
            return
        if self.node.poll() is None:
            os.killpg(self.node.pid, signal.SIGKILL)
        self.node.wait(60)


@pytest.fixture(scope="package")
def ray_cluster() -> Iterator[RayCluster]:
    """It ends with the last test of this folder: its servers take time of all tests while they live."""
    with RayPool(workers=1) as pool:
        cluster = RayCluster(pool)
        try:
            cluster.join()
            yield cluster
        finally:
            cluster.kill_node()
            folder = pool.folder or ""
    left = _processes_with(folder)
    assert folder
    assert not Path(folder).exists()
    assert not left, left  # neither servers nor workers outlive the pool


def _processes_with(words: str) -> list[str]:
    """Command lines that hold these words."""
    found = []
    for line in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            found.append(line.read_bytes().replace(b"\0", b" ").decode(errors="replace"))
    return [line for line in found if words in line]
