"""All rows about a GPU, by one command: ``python -m benchmarks.gpu``; nothing else is needed but the data sets.

    python -m benchmarks.gpu [--only rows methods ring shares sweep images sealed] [--most 1e6] [--resume]
                             [--stand-in cpu --quick]

- *rows*: a plain epoch of SplitNN against the same network in plain torch on the same batches, 10⁵ to 10⁷ made rows.
- *methods*: seconds of an epoch of SplitNN and of the five published methods on made tables, on the GPU and on the CPU,
  and how often a step waited for the GPU.
- *ring*: products modulo 2^64 of 2^21 to 2^33 multiplications, on the GPU with and without the words' way there and
  back, and by this CPU's kernels. The smallest that gains is what `ring.LEAST` should be.
- *shares*: an epoch on shares with wide layers, its large products on the GPU and on the CPU.
- *sweep*: six jobs on the credit table, in this process, on the GPU and on the CPU.
- *images*: MNIST halves with a convolutional bottom at each party, as `benchmarks.plain_path` has them.
- *sealed*: an epoch under CKKS with everything plain on the GPU and on the CPU; products under encryption stay on the
  CPU, so this says what the GPU saves of such an epoch.

Written after each row with the device's name, driver and torch's version. Without a GPU it says so in one line and ends
with `skip.STATUS`. ``--stand-in cpu`` runs the same code on a CPU, to see that it works: its figures say nothing about
a GPU and go to another file. Several GPUs for one party's bottom (`DistributedDataParallel`) are not covered.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

import torch
from securevfl_crypto.ring import Stream
from securevfl_crypto.ring.paths import ring_loops

from benchmarks import skip
from benchmarks.common import before, data, seconds, write
from benchmarks.made_rows import MadeRows
from benchmarks.plain_path import CREDIT, MADE, SETTINGS, measure, measure_made, timed
from securevfl.algorithms import SplitNN
from securevfl.cut import CKKS, Plain, Protection
from securevfl.data.datasets import limited_credit, load
from securevfl.experiments.sweep import sweep
from securevfl.party import Job
from securevfl.run.simulation import join_parties, run_parties
from securevfl.shares import Shares
from securevfl.shares.torch_product import TorchProduct
from securevfl.testing.parties import low_overlap_parties
from securevfl.training import find_algorithm

Row = Callable[[], Mapping[str, object] | None]

PARTS = ("rows", "methods", "ring", "shares", "sweep", "images", "sealed")
METHODS = ("splitnn", "fedcvt", "fedda", "mftl", "risa", "sfhtl")
"""SplitNN and five published methods, each with one passive party, for which all of them are made."""


def device_facts(device: str) -> dict[str, object]:
    """Name, driver and versions of what is measured."""
    found: dict[str, object] = {"device": device, "torch": torch.__version__}
    if device != "cuda":
        return found | {"stand-in": "a CPU: these figures say nothing about a GPU"}
    properties = torch.cuda.get_device_properties(0)
    return found | {
        "device": properties.name,
        "memory, GiB": round(properties.total_memory / 2**30, 1),
        "cuda": torch.version.cuda,
        "driver": driver(),
    }


def driver() -> str:
    """Version of the GPU's driver; empty where nobody says."""
    try:
        said = subprocess.run(
            ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"],
            capture_output=True,
            text=True,
            timeout=30,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return said.stdout.strip().splitlines()[0] if said.stdout.strip() else ""


def epoch_seconds(job: Job, rows: int, *, passive: int = 1, width: int = 4) -> dict[str, object]:
    """Seconds of the fastest epoch on made tables, after the first, with validation; and synchronisations in the run.

    Args:
        job: with its device.
        rows: of all parties together.
        passive: how many passive parties there are.
        width: columns of each party.
    """
    people = low_overlap_parties(passive, rows=rows, overlap=0.5, width=width)
    aligned = join_parties(people, job)
    waits = 0
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        if job.device == "cuda":
            torch.cuda.set_sync_debug_mode("warn")
        start = time.perf_counter()
        ran = run_parties(job, people, aligned, run="gpu")
        whole = time.perf_counter() - start
        if job.device == "cuda":
            torch.cuda.set_sync_debug_mode("default")
        waits = sum("synchroniz" in str(one.message) for one in seen)
    readings = ran.trained[people.active.name].readings
    epochs = [one.compute + one.he + one.wait for one in readings]
    found: dict[str, object] = {
        "seconds of an epoch": round(min(epochs[1:] or epochs), 4),
        "seconds of the run": round(whole, 2),
        "epochs": len(epochs),
    }
    return found | ({"synchronisations in the run": waits} if job.device == "cuda" else {})


def method(name: str, devices: Sequence[str], rows: int, epochs: int, protection: Protection) -> dict[str, object]:
    """One algorithm on each device; the ratio where there are two."""
    found: dict[str, object] = {"rows": rows}
    seconds = []
    for device in devices:
        algorithm = find_algorithm(name)()
        count = max(epochs, algorithm.least_epochs)
        job = Job(protection=protection, algorithm=algorithm, batch_size=min(1024, rows), epochs=count, patience=None)
        found[device] = one = epoch_seconds(job.replace(device=device), rows)
        seconds.append(float(str(one["seconds of an epoch"])))
    return found | ({"GPU over CPU, time": round(seconds[0] / seconds[-1], 3)} if len(seconds) > 1 else {})


def ring_product(k: int, device: str) -> dict[str, object]:
    """Milliseconds of one product of k × k words on the device and by the kernels; wrong words raise ValueError."""
    stream, product, kernels = Stream.with_fresh_key(), TorchProduct(device), ring_loops()
    a, b = stream.draw_words(0, (k, k)), stream.draw_words(1, (k, k))
    if (product(a, b) != kernels.product(a, b)).any():
        raise ValueError(f"{device} multiplies {k} x {k} words wrongly")
    left, right = product.send(a), product.send(b)

    def there() -> None:
        product.multiply(left, right)
        if device == "cuda":
            torch.cuda.synchronize()

    times = {
        "with transfers": seconds(lambda: product(a, b)),
        "words on the device": seconds(there),
        "kernels of the CPU": seconds(lambda: kernels.product(a, b)),
    }
    ratio = times["with transfers"] / times["kernels of the CPU"]
    found: dict[str, object] = {"milliseconds": {name: round(1e3 * one, 4) for name, one in times.items()}}
    return found | {"multiplications": k**3, "device with transfers over kernels, time": round(ratio, 3)}


def shares_epoch(devices: Sequence[str], rows: int, width: int, hidden: int, batch: int) -> dict[str, object]:
    """An epoch on shares at three parties with `width` columns each, its large products on each device in turn."""
    found: dict[str, object] = {"rows": rows, "columns": 3 * width, "hidden": hidden}
    algorithm = SplitNN(hidden=hidden, top=(hidden // 2,))
    for device in devices:
        job = Job(protection=Shares(), algorithm=algorithm, batch_size=batch, epochs=3, patience=None, device=device)
        found[device] = epoch_seconds(job, rows, passive=2, width=width)
    return found


def sweep_seconds(devices: Sequence[str], *, rows: int, epochs: int, seeds: int) -> Mapping[str, object] | None:
    """Seconds of a sweep over two widths and some seeds on each device, in this process."""
    parties = data(partial(limited_credit, parties=2, rows=rows, overlap=0.5), "the credit table")
    if parties is None:
        return None
    found: dict[str, object] = {"jobs": 2 * seeds, "rows": rows, "epochs": epochs}
    for device in devices:
        job = Job(protection=Plain(), algorithm="splitnn", epochs=epochs, patience=None, device=device)
        start = time.perf_counter()
        study = sweep(job, parties, {"algorithm.hidden": [16, 64]}, seeds=seeds)
        found[device] = round(time.perf_counter() - start, 2)
        if study.record.failed:
            raise ValueError(f"{len(study.record.failed)} jobs of the sweep failed on {device}")
    return found


def table(device: str, most: float, *, quick: bool) -> Iterator[tuple[str, str, Row]]:
    """Part, name and what measures it, of every row."""
    both = [device, *(["cpu"] if device != "cpu" else [])]
    made = {"500 rows, batch 64": (500, 64, 2)} if quick else MADE
    for name, (rows, batch, epochs) in made.items():
        if rows <= most:
            job = Job(protection=Plain(), algorithm=CREDIT, batch_size=batch, keep="last")
            yield "rows", name, partial(measure_made, MadeRows(rows), timed(job, epochs, device))
    size, epochs = (240, 2) if quick else (40_000, 4)
    for name in METHODS[:1] if quick else METHODS:
        yield "methods", name, partial(method, name, both, size, epochs, Plain())
    for k in (16,) if quick else (128, 256, 512, 1024, 2048):
        yield "ring", f"{k} x {k} x {k}", partial(ring_product, k, device)
    sizes = (240, 4, 4, 32) if quick else (8_192, 512, 128, 512)
    yield "shares", "three parties, wide layers", partial(shares_epoch, both, *sizes)
    rows, epochs, seeds = (200, 1, 1) if quick else (8_000, 10, 3)
    yield "sweep", "credit", partial(sweep_seconds, both, rows=rows, epochs=epochs, seeds=seeds)
    if not quick:
        title, options, job, _ = SETTINGS["MNIST halves, CNN"]

        def images() -> Mapping[str, object] | None:
            parties = data(partial(load, title, **options), "MNIST halves")
            return None if parties is None else measure(parties, timed(job, 6, device))

        yield "images", "MNIST halves, CNN", images
    size, epochs = (120, 1) if quick else (5_000, 2)
    yield "sealed", "SplitNN, CKKS", partial(method, "splitnn", both, size, epochs, CKKS())


def main(arguments: Sequence[str] | None = None) -> None:
    """Fill all rows, writing after each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=PARTS, help="these parts")
    parser.add_argument("--most", type=float, default=1e6, help="most made rows; 1e7 takes minutes")
    parser.add_argument("--resume", action="store_true", help="keep the rows that were measured before")
    parser.add_argument("--stand-in", choices=["cpu"], help="run the code on a CPU in place of a GPU")
    parser.add_argument("--quick", action="store_true", help="small sizes")
    given = parser.parse_args(arguments)
    if not (given.stand_in or torch.cuda.is_available()):
        skip.skip("gpu", "torch sees no CUDA device here")
    device = given.stand_in or "cuda"
    name = "gpu" if device == "cuda" else "gpu-stand-in"
    figures: dict[str, object] = before(name) if given.resume else {}
    figures["gpu"] = device_facts(device)
    for part, row, measured in table(device, given.most, quick=given.quick):
        done: dict[str, object] = dict(figures.get(part, {}))  # type: ignore[call-overload]
        if (given.only and part not in given.only) or row in done:
            continue
        print(f"{part}: {row}", file=sys.stderr, flush=True)
        one = measured()
        if one is not None:
            figures[part] = done | {row: one}
            write(name, figures)


if __name__ == "__main__":
    main()
