"""One cell of the growth table, in a process of its own: with this version, or with 0.1, by the path that is set.

    python cell.py FOLDER {psi,plain,ckks,bfv} STEPS

Reads the three parties' tables of a folder, then aligns them by PSI (`psi`), or joins them in the clear and trains an
epoch. The run is stopped after STEPS batches, with -1 after all of
the epoch; with 0 it validates and tests, too. Prints its figures as JSON on the last line.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from pathlib import Path
from typing import Any


class Stopped(Exception):
    """Enough batches were counted."""


def main(folder: Path, what: str, steps: int) -> dict[str, Any]:
    """The figures of the cell: seconds by part, batches counted and in an epoch, peak memory in bytes."""
    import torch

    import securevfl as sv
    from securevfl.cut import BFV, CKKS, Plain
    from securevfl.data import Parties, read_parquet
    from securevfl.party_context import Observer
    from securevfl.run.simulation import align_parties, join_parties, run_parties

    class Watch(Observer):
        def __init__(self) -> None:
            self.at: dict[str, float] = {}
            self.done = self.total = 0

        def phase(self, name: str) -> None:
            self.at.setdefault(name, time.perf_counter())

        def step(self, epoch: int, done: int, total: int) -> None:
            self.done, self.total = done, total
            self.at["step"] = time.perf_counter()
            if done == (steps if steps >= 0 else total):
                raise Stopped

    # What torch and Arrow load at first use is no part of any figure.
    torch.optim.Adam([torch.zeros(1, requires_grad=True)])

    found: dict[str, Any] = {"version": str(Path(sv.__file__).parents[1])}

    def clocked(name: str, work: Any) -> Any:
        start = time.perf_counter()
        result = work()
        found[name] = time.perf_counter() - start
        note()
        return result

    def note() -> None:
        found["peak"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        print(json.dumps(found), flush=True)

    def table(name: str) -> Any:
        return read_parquet(folder / f"{name}.parquet", name=name, id="id", label="late" if name == "bank" else None)

    parties = clocked("read", lambda: Parties.of(*map(table, ("bank", "network", "shop"))))
    protection = {"psi": Plain, "plain": Plain, "ckks": CKKS, "bfv": BFV}[what]()
    job = sv.Job(algorithm=sv.SplitNN(hidden=16), protection=protection, epochs=1)
    if what == "psi":
        clocked("psi", lambda: align_parties(parties, job))
        return found
    aligned = clocked("join", lambda: join_parties(parties, job))
    watch = Watch()
    start = time.perf_counter()
    try:
        run_parties(job, parties, aligned, run="growth", observer=watch)
    except Exception as error:
        if not isinstance(error.__cause__, Stopped):
            raise
    else:
        found["run"] = time.perf_counter() - start
    found["setup"] = watch.at["training"] - start
    found["batches"], found["of"] = watch.done, watch.total
    found["epoch"] = (watch.at["step"] - watch.at["training"]) * watch.total / watch.done
    note()
    return found


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
