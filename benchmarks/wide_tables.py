"""What a wide table costs to read: 1,000 rows of 30,000 columns of numbers, CSV and Parquet, beside pyarrow alone.

    python -m benchmarks.wide_tables [--quick]

CPU-seconds and the peak of memory of a process of its own, its imports left out. pyarrow reads the file into an Arrow
table with one thread: a CSV file as it does by default, and by blocks of 64 MiB, which suits wide rows better. The
library also makes the checked numeric columns of a `PartyTable`. The ways take turns; of each figure the least counts,
because other work on the machine only adds. Memory is what the process reached above what it had after its imports; the
block is that of the numbers as the table keeps them, 4 bytes each.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pa_parquet

from benchmarks.common import write

ROOT = Path(__file__).parents[1]
FOLDERS = (".", "psi", "crypto")
ROWS, COLUMNS = 1_000, 30_000
START = """
import re, sys, time
import numpy, pyarrow, pyarrow.csv, pyarrow.parquet
pyarrow.set_cpu_count(1)
def peak():
    return int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1])
file, columns = sys.argv[1], int(sys.argv[2])
"""
END = """
import json
print(json.dumps({"CPU-seconds": time.process_time() - begun, "MiB": (peak() - before) / 1024}))
"""
BEGIN = "before, begun = peak(), time.process_time()\n"
ALONE = (
    START
    + BEGIN
    + """
if file.endswith(".csv"):
    options = pyarrow.csv.ReadOptions(use_threads=False)
    options.block_size = int(sys.argv[3]) or options.block_size
    table = pyarrow.csv.read_csv(file, read_options=options)
else:
    table = pyarrow.parquet.read_table(file, use_threads=False)
if table.num_columns != columns + 1:
    raise SystemExit(f"{table.num_columns} columns of {columns + 1}")
"""
    + END
)
OURS = (
    START
    + """
import securevfl as sv
sv.read_table, sv.TableLimits
"""
    + BEGIN
    + """
table = sv.read_table(file, name="lab", id="id", limits=sv.TableLimits(max_columns=1 << 16))
if len(table.columns) != columns:
    raise SystemExit(f"{len(table.columns)} columns of {columns}")
"""
    + END
)


def make_files(folder: Path, rows: int, columns: int) -> dict[str, Path]:
    """Write one table in both formats: an identifier and numbers of four digits, as from a laboratory."""
    rng = np.random.default_rng(0)
    names = [f"gene {k}" for k in range(columns)]
    values = [pa.array(np.round(rng.normal(size=rows), 3)) for _ in names]
    table = pa.Table.from_arrays([pa.array([f"s{k}" for k in range(rows)]), *values], names=["id", *names])
    found = {"CSV": folder / "wide.csv", "Parquet": folder / "wide.parquet"}
    pa_csv.write_csv(table, found["CSV"])
    pa_parquet.write_table(table, found["Parquet"])
    return found


def measure_reader(code: str, file: Path, columns: int, block: int = 0) -> dict[str, float]:
    """CPU-seconds and MiB of one process."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    kept |= {"PYTHONPATH": os.pathsep.join(str(ROOT / name) for name in FOLDERS), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", code, str(file), str(columns), str(block)]
    done = subprocess.run(command, env=kept, stdout=subprocess.PIPE, check=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def main() -> None:
    """Measure both readers on both formats by turns, and write the least of each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--quick", action="store_true", help="a tenth of the columns, each figure once")
    options = parser.parse_args()
    columns = COLUMNS // 10 if options.quick else COLUMNS
    best: dict[str, dict[str, dict[str, float]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        files = make_files(Path(folder), ROWS, columns)
        for _ in range(1 if options.quick else 3):
            for kind, file in files.items():
                large = [("pyarrow, blocks of 64 MiB", ALONE, 1 << 26)] if kind == "CSV" else []
                for who, code, size in (("pyarrow", ALONE, 0), *large, ("securevfl", OURS, 0)):
                    figures = best.setdefault(kind, {}).setdefault(who, {})
                    for what, value in measure_reader(code, file, columns, size).items():
                        figures[what] = round(min(value, figures.get(what, value)), 3)
    block = 4 * ROWS * columns / (1 << 20)
    for found in best.values():
        found["ratio"] = {
            "CPU-seconds": round(found["securevfl"]["CPU-seconds"] / found["pyarrow"]["CPU-seconds"], 2),
            "memory over the block": round(found["securevfl"]["MiB"] / block, 2),
        }
    write("wide_tables", {"rows": ROWS, "columns": columns, "block MiB": round(block, 1), **best})


if __name__ == "__main__":
    main()
