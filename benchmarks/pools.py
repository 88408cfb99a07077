"""A sealed epoch on one core, on two, and on a Ray cluster of two nodes of one core each on this machine: seconds, and
how much of twice the speed that is.

    python -m benchmarks.pools [--quick] [--rows 100000] [--batches 8] [--again]

Owner and holder of one block run in this process, one after the other, and hand their work to the same workers: so what
is measured is the work of both parties, and two cores could halve it. A whole epoch takes minutes on each, so the time
is that of `batches` batches, times the batches of the epoch. Each of them has other rows. Cells that are in the results
already are not run again.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import securevfl_crypto as crypto
from securevfl_crypto.pools import LocalPool, Pool, ProcessPool, RayPool
from securevfl_crypto.pools.process import worker_environment

from benchmarks.common import RESULTS, write
from benchmarks.cut import Shape, Step

WHERE = {
    "one core": "this process",
    "2 processes": "two processes of this machine",
    "Ray, 2 nodes": "a Ray cluster on this machine: two nodes of one core each",
}


@contextmanager
def ray_cluster() -> Iterator[Pool]:
    """A head of one core, and a second node of one core that joins it."""
    with RayPool(workers=1) as pool:
        import ray

        address = ray.get_runtime_context().gcs_address
        node = subprocess.Popen(
            [sys.executable, "-m", "ray.scripts.scripts", "start", f"--address={address}", "--num-cpus=1", "--block"],
            env=worker_environment(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            until = time.monotonic() + 120
            while pool.workers < 2:
                if node.poll() is not None or time.monotonic() > until:
                    raise RuntimeError("the second node did not join")
                time.sleep(0.1)
            yield pool
        finally:
            os.killpg(node.pid, signal.SIGKILL)
            node.wait()


@contextmanager
def opened(where: str) -> Iterator[Pool]:
    """The workers of one row of the table."""
    if where == "one core":
        with LocalPool() as local:
            yield local
    elif where == "2 processes":
        with ProcessPool(2) as processes:
            yield processes
    else:
        with ray_cluster() as cluster:
            yield cluster


def seconds_of(scheme: crypto.Scheme, shape: Shape, batches: int) -> float:
    """The median time of a batch, forward and backward, all parties; fresh rows in each."""
    step, rng = Step(scheme, shape), np.random.default_rng(1)
    step.run()  # libraries, keys
    found = []
    for _ in range(batches):
        step.xs = [rng.integers(-(2**13), 2**13, size=x.shape) for x in step.xs]
        found.append(sum(step.run()[0].values()))  # without the check against the exact product
    return statistics.median(found)


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--batch", type=int, default=1024)
    parser.add_argument("--columns", type=int, default=32)
    parser.add_argument("--batches", type=int, default=8)
    parser.add_argument("--quick", action="store_true", help="two small batches, no Ray, no file")
    parser.add_argument("--again", action="store_true", help="forget earlier results")
    given = parser.parse_args()
    os.environ["SECUREVFL_THREADS"] = "1"
    if given.quick:
        given.batch, given.columns, given.batches = 256, 8, 2
    shape = Shape(rows=given.batch, columns=given.columns)
    file, settings = RESULTS / "pools.json", [given.rows, given.batch, given.columns, given.batches]
    known = json.loads(file.read_text()) if file.exists() and not given.again and not given.quick else {}
    rows = known.get("rows", []) if known.get("settings") == settings else []
    for where, words in WHERE.items():
        names = [kind.name for kind in (crypto.CKKS, crypto.BFV)]
        if (given.quick and "Ray" in where) or {row["scheme"] for row in rows if row["where"] == where} == set(names):
            continue
        rows = [row for row in rows if row["where"] != where]
        with opened(where) as pool:
            for scheme in (crypto.CKKS(), crypto.BFV()):
                batch = seconds_of(scheme.with_pool(pool), shape, given.batches)
                epoch = batch * -(-given.rows // given.batch)
                alone = [row for row in rows if row["where"] == "one core" and row["scheme"] == scheme.name]
                one = alone[0]["epoch_s"] if alone else epoch
                rows.append(
                    {
                        "where": where,
                        "means": words,
                        "scheme": scheme.name,
                        "workers": pool.workers,
                        "batch_s": round(batch, 4),
                        "epoch_s": round(epoch, 2),
                        "times": round(one / epoch, 2),
                        "efficiency": round(one / epoch / pool.workers, 2),
                    }
                )
                print(json.dumps(rows[-1]), flush=True)
        if not given.quick:
            write("pools", {"settings": settings, "rows": rows})


if __name__ == "__main__":
    main()
