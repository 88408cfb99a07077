"""The plain path in simulation against the same network as one module in plain torch, on the same batches.

    python -m benchmarks.plain_path [--epochs 30] [--threads 1 2] [--device cpu cuda] [--most 1e7] [--resume]

Before each epoch of a simulated run, ledgers on, plain torch trains one epoch of its own on the batches that the run is
about to take; the figure of a pair is the quotient of the two times, that of a setting the median over pairs. So both
meet the machine in the same state, and other work on it disturbs single pairs. Both begin with the same weights and
take the same optimisers (Adam; SGD for the passive parties' blocks of the cut); that they learn the same is checked by
the losses of the first epoch (later ones drift apart by rounding). A run's time is that of its training batches at all
parties, from drawing the order of the rows to the last party's last step; setup and validation are outside on both
sides.

Without bottoms the split network is a perceptron of the joined columns. Such a one, a single first layer and a single
Adam, is timed in the same rounds: it is what somebody writes who never thought of parties.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

import torch

from benchmarks import skip
from benchmarks.common import before, data, write
from benchmarks.made_rows import MadeRows, run_on
from benchmarks.plain_race import Race, figures_of, watched
from securevfl.algorithms import SplitNN
from securevfl.cut import Plain
from securevfl.data import Parties
from securevfl.data.datasets import load
from securevfl.party import Job
from securevfl.run import threads as limits
from securevfl.run.simulation import join_parties, run_parties

CREDIT = SplitNN(hidden=16, top=(16,), lr=0.005, cut_lr=1.0)
SETTINGS: Mapping[str, tuple[str, Mapping[str, object], Job, int]] = {
    "credit, 2 parties": (
        "limited_credit",
        {"parties": 2, "overlap": 1.0},
        Job(protection=Plain(), algorithm=CREDIT),
        30,
    ),
    "credit, 3 parties": ("default_credit", {}, Job(protection=Plain(), algorithm=CREDIT), 30),
    "credit, 3 parties, bottoms of 32": (
        "default_credit",
        {},
        Job(protection=Plain(), algorithm=CREDIT.replace(bottom=(32,), lr=0.003, cut_lr=0.1)),
        30,
    ),
    "MNIST halves, CNN": (
        "mnist",
        {"rows": 4000, "test_rows": 500, "overlap": 1.0},
        Job(
            protection=Plain(),
            algorithm=SplitNN(hidden=64, top=(64,), bottom="cnn", lr=0.001, cut_lr=0.1),
            batch_size=64,
        ),
        8,
    ),
}
"""Name → data set, its options, the job, epochs."""


MADE: Mapping[str, tuple[int, int, int]] = {
    "10^5 rows, batch 256": (10**5, 256, 10),
    "10^5 rows, batch 1024": (10**5, 1024, 12),
    "10^6 rows, batch 256": (10**6, 256, 4),
    "10^6 rows, batch 1024": (10**6, 1024, 5),
    "10^6 rows, batch 4096": (10**6, 4096, 6),
    "10^7 rows, batch 4096": (10**7, 4096, 3),
}
"""Name → rows, batch, epochs: 3 parties with 30 columns each, a cut of 16. `--most` leaves out what has more rows."""


def measure(parties: Parties, job: Job) -> dict[str, object]:
    """Both in one run, on a data set."""
    race = Race()
    job = job.replace(algorithm=watched(job.algorithm, race))
    ran = run_parties(job, parties, join_parties(parties, job), run="plain path")
    return figures_of(race, ran.trained[parties.active.name], len(parties), job.batch_size, ran.ledgers.values())


def measure_made(made: MadeRows, job: Job) -> dict[str, object]:
    """Both in one run, on made rows."""
    race = Race()
    active, ledgers = run_on(made, job.replace(algorithm=watched(job.algorithm, race)))
    return figures_of(race, active, made.parties, job.batch_size, ledgers.values())


def named(given: argparse.Namespace) -> Iterator[tuple[str, Callable[[str], Mapping[str, object] | None]]]:
    """Name → what measures it on a device; in the order in which they are written."""
    for name, (title, options, job, epochs) in SETTINGS.items():
        yield name, partial(_on_data, name, partial(load, title, **options), job, given.epochs or epochs)
    for name, (rows, batch, epochs) in MADE.items():
        if rows <= given.most:
            job = Job(protection=Plain(), algorithm=CREDIT, batch_size=batch, keep="last")
            yield name, partial(_on_made, rows, job, given.epochs or epochs)


def _on_data(
    name: str, load_it: Callable[[], Parties], job: Job, epochs: int, device: str
) -> Mapping[str, object] | None:
    parties = data(load_it, name)
    return None if parties is None else measure(parties, timed(job, epochs, device))


def _on_made(rows: int, job: Job, epochs: int, device: str) -> Mapping[str, object]:
    return measure_made(MadeRows(rows), timed(job, epochs, device))


def timed(job: Job, epochs: int, device: str) -> Job:
    """`job` for so many epochs, all of them, on a device."""
    return job.replace(epochs=epochs, device=device, patience=None)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure all settings, and write what was measured after each."""
    devices = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, help="of every setting; its own number if not given")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2], help="torch's threads on the CPU")
    parser.add_argument("--device", nargs="+", default=devices)
    parser.add_argument("--only", default="", help="settings whose name begins so")
    parser.add_argument("--most", type=float, default=1e6, help="most made rows; 10^7 take 9 GB and minutes")
    parser.add_argument("--resume", action="store_true", help="keep what was measured before")
    given = parser.parse_args(arguments)
    runs = [("cpu", n) for n in given.threads if "cpu" in given.device]
    runs += [(device, torch.get_num_threads()) for device in given.device if device != "cpu"]
    limits.CELLS = 0  # as many threads as a row says, for small batches too
    figures: dict[str, object] = before("plain_path") if given.resume else {}
    for name, measured in named(given):
        if not name.startswith(given.only):
            continue
        found: dict[str, object] = dict(figures.get(name, {}))  # type: ignore[call-overload]
        for device, threads in runs:
            where = f"{device}, {threads} thread{'s' if threads > 1 else ''}" if device == "cpu" else device
            if where in found:
                continue
            torch.set_num_threads(threads)
            one = measured(device)
            if one is None:
                break
            figures[name] = found = found | {where: one}
            write("plain_path", figures)
    if not figures:
        skip.skip("plain_path", "no setting was measured")


if __name__ == "__main__":
    main()
