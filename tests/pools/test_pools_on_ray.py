"""What is particular to a pool on Ray: who may reach the cluster, nodes that are lost, what is left behind."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from concurrent.futures import Future
from pathlib import Path

import pytest
from securevfl_crypto.errors import PoolError, WorkerLost
from securevfl_crypto.pools import LocalPool, RayPool
from securevfl_crypto.pools.cluster import check_access, check_closed
from securevfl_crypto.pools.process import worker_environment

from tests.pools.conftest import RayCluster
from tests.psi.test_sharded import BANK, KEY, SHOP
from tests.psi.test_sharded import _check as check_shards
from tests.psi.test_sharded import _run as run_shards

TASKS = "securevfl_pool_tasks"
TLS = {
    "RAY_USE_TLS": "1",
    "RAY_TLS_SERVER_CERT": "c.pem",
    "RAY_TLS_SERVER_KEY": "k.pem",
    "RAY_TLS_CA_CERT": "ca.pem",
}
TOKEN = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "x"}


@pytest.mark.parametrize(
    ("address", "environment", "words"),
    [
        ("10.0.0.5:6379", {}, "no token is set"),
        ("10.0.0.5:6379", {"RAY_AUTH_MODE": "token"}, "no token is set"),
        ("10.0.0.5:6379", {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": "/nowhere"}, "no token is set"),
        ("10.0.0.5:6379", {"RAY_AUTH_MODE": "disabled", "RAY_AUTH_TOKEN": "x"}, "no token is set"),
        ("head:6379", {}, "no token is set"),
        ("8.8.8.8:6379", TLS, "no token is set"),
        ("8.8.8.8:6379", TOKEN, "without TLS"),
        ("head.example:6379", TOKEN, "without TLS"),
        ("8.8.8.8:6379", {**TOKEN, **TLS, "RAY_USE_TLS": "0"}, "without TLS"),
        ("8.8.8.8:6379", {**TOKEN, **TLS, "RAY_TLS_CA_CERT": ""}, "without TLS"),
        ("[2001:4860:4860::8888]:6379", TOKEN, "without TLS"),
    ],
)
def test_an_address_that_others_reach_needs_a_token_and_a_public_one_tls(
    address: str, environment: dict[str, str], words: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))  # no token of this user's own
    with pytest.raises(PoolError, match=words):
        check_access(address, environment)


@pytest.mark.parametrize(
    ("address", "environment"),
    [
        ("127.0.0.1:6379", {}),
        ("localhost:6379", {}),
        ("[::1]:6379", {}),
        ("192.168.0.7:6379", TOKEN),
        ("8.8.8.8:6379", {**TOKEN, **TLS}),
        ("head.example:6379", {**TOKEN, **TLS}),
    ],
)
def test_what_may_be_reached(address: str, environment: dict[str, str]) -> None:
    check_access(address, environment)


def test_a_token_in_a_file_counts(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("x")
    check_access("10.0.0.5:6379", {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(tmp_path / "token")})


def test_without_ray_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(PoolError, match=re.escape("pip install 'securevfl[ray]'")):
        RayPool()


def test_a_cluster_of_ones_own_is_never_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    with pytest.raises(PoolError, match=r"RAY_AUTH_MODE=disabled .* unset it"):
        RayPool()


def test_a_cluster_that_lets_anybody_in_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def answers(words: str) -> None:
        done = subprocess.CompletedProcess([], 0, stdout=f"{words}\n")
        monkeypatch.setattr(subprocess, "run", lambda *_, **__: done)

    answers("refused")
    check_closed("10.0.0.5:6379")
    answers("open")
    with pytest.raises(PoolError, match="admits clients without a token"):
        check_closed("10.0.0.5:6379")
    answers("connection timed out")
    with pytest.raises(PoolError, match=r"cannot reach a Ray cluster at 10.0.0.5:6379 \(connection timed out\)"):
        check_closed("10.0.0.5:6379")


def test_the_cluster_asks_for_a_token_and_reports_nothing(ray_cluster: RayCluster) -> None:
    """A process without the token is turned away; one with it joins the pool's own way, and gets its answers."""
    check_closed(ray_cluster.address)
    script = f"""
import json
from securevfl_crypto.pools import open_pool
with open_pool("ray:{ray_cluster.address}") as pool:
    answers = [pool.submit("{TASKS}:double", bytes([n])).result(60).hex() for n in range(4)]
    print(json.dumps([answers, pool.workers]))
"""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", script],
        env=worker_environment(),
        capture_output=True,
        text=True,
        timeout=90,
        check=True,
    )
    assert json.loads(done.stdout) == [["0000", "0101", "0202", "0303"], 2]
    assert done.stderr == ""
    dashboard = Path(ray_cluster.pool.folder or "") / "session_latest/logs/dashboard.log"
    assert "Usage reporting is disabled" in dashboard.read_text()
    assert "http server disabled" in dashboard.read_text()


def test_one_process_has_one_pool_on_ray(ray_cluster: RayCluster) -> None:
    with pytest.raises(PoolError, match="connected to a Ray cluster already"):
        RayPool()


def test_a_large_argument_crosses_once(ray_cluster: RayCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    import ray

    put, sizes = ray.put, []
    monkeypatch.setattr(ray, "put", lambda data: (sizes.append(len(data)), put(data))[1])
    data = os.urandom(200_000)
    for _ in range(3):
        assert ray_cluster.pool.submit(f"{TASKS}:double", data).result(60) == data + data
    assert sizes == [200_000]


def test_a_task_that_kills_its_worker_is_lost_and_named(ray_cluster: RayCluster, tmp_path: Path) -> None:
    with pytest.raises(WorkerLost, match=f"{TASKS}:die lost its worker or its machine"):
        ray_cluster.pool.submit(f"{TASKS}:die", str(tmp_path / "log")).result(90)
    assert (tmp_path / "log").read_bytes() == b"..."


def test_what_ray_says_goes_to_the_log_and_not_to_the_output(
    ray_cluster: RayCluster, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    """The way that its thread takes when a node is lost, which may be minutes later, amid the output of a command."""
    from ray._private import worker

    worker.print_to_stdstream({"lines": ["The node  was lost"], "pid": "raylet", "is_err": False}, ignore_prefix=False)
    assert capfd.readouterr() == ("", "")
    assert "Ray: The node was lost" in caplog.text


def test_a_node_is_killed_midway_and_all_answers_are_there(ray_cluster: RayCluster, tmp_path: Path) -> None:
    """Both nodes are busy when one is killed: its task runs again on the other."""
    pool, over = ray_cluster.pool, tmp_path / "over"
    waiting = [pool.submit(f"{TASKS}:wait_for", str(tmp_path / f"started {n}"), str(over)) for n in range(2)]
    more = [pool.submit(f"{TASKS}:double", bytes([n])) for n in range(12)]
    until = time.monotonic() + 60
    while not all((tmp_path / f"started {n}").exists() for n in range(2)):
        assert time.monotonic() < until
        time.sleep(0.01)
    ray_cluster.kill_node()
    over.touch()
    assert [future.result(90) for future in waiting] == [b"waited"] * 2
    assert [future.result(90) for future in more] == [bytes([n, n]) for n in range(12)]


class _OnCluster:
    """The cluster's pool, whose second node is killed when two shards are on their way; it outlives a run."""

    def __init__(self, cluster: RayCluster, *, kills: bool) -> None:
        self._cluster, self.workers, self._shards, self.kills = cluster, 2, 0, kills

    def submit(self, task: str, /, *arguments: bytes | str | int, cpus: int = 1) -> Future[bytes]:
        future = self._cluster.pool.submit(task, *arguments, cpus=cpus)
        self._shards += task.endswith("run_shard")
        if self.kills and self._shards == 2:
            self._cluster.kill_node()
            self.kills = False
        return future

    def close(self) -> None:
        return

    def __enter__(self) -> _OnCluster:
        return self

    def __exit__(self, *_: object) -> None:
        return


def test_a_node_is_killed_during_a_sharded_intersection_and_the_result_is_the_same(
    ray_cluster: RayCluster, tmp_path: Path
) -> None:
    """One party's shards run on the cluster. Under one key, rows and their order are those of an undisturbed run."""
    ray_cluster.join()
    usual, _ = check_shards(run_shards(tmp_path / "usual", BANK, SHOP, key=KEY), BANK, SHOP)
    pool = _OnCluster(ray_cluster, kills=True)
    disturbed = run_shards(tmp_path / "killed", BANK, SHOP, key=KEY, pools=(lambda: pool, LocalPool), timeout=90.0)
    found, _ = check_shards(disturbed, BANK, SHOP)
    assert not pool.kills
    assert [rows.tolist() for rows in found.state.read_results()] == [
        rows.tolist() for rows in usual.state.read_results()
    ]
