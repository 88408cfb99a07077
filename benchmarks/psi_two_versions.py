"""Compare two-party PSI of two checkouts of this repository, in one run.

python -m benchmarks.psi_two_versions --old ../before [--ids 1048576] [--protocols dh ot] [--rounds 2] [--command]

Each measurement is `benchmarks.psi_two_processes` of that checkout, in a fresh process. The order is A B B A in each
round, so that a machine that slows down or warms up slows both versions alike. With ``--command``, each measurement
starts the command line at both parties instead: reading CSV, connecting and writing count, imports too.

Before the first round, each version runs once with few identifiers, which compiles what it compiles.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

_WARM = 1 << 12  # identifiers of the run that compiles
_LIBRARY = """
import json, sys
from benchmarks import psi_party, psi_two_processes
party = {"dh": psi_party.run_party, "ot": psi_party.run_transfer}[sys.argv[1]]
if __name__ == "__main__":
    print(json.dumps(psi_two_processes.run_two_processes(party, int(sys.argv[2]))))
"""


def _environment(checkout: Path) -> dict[str, str]:
    folders = [str(checkout / part) for part in ("crypto", "psi", ".")]
    return os.environ | {"PYTHONPATH": os.pathsep.join(folders), "PYTHONDONTWRITEBYTECODE": "1"}


def measure_library(checkout: Path, protocol: str, n: int) -> dict[str, Any]:
    """Wall seconds, and by party: CPU seconds, bytes sent, peak MiB.

    Raises:
        RuntimeError: the result is not exact.
    """
    done = subprocess.run(
        [sys.executable, "-c", _LIBRARY, protocol, str(n)],
        cwd=checkout,
        env=_environment(checkout),
        check=True,
        stdout=subprocess.PIPE,
    )
    found = json.loads(done.stdout)
    if not found["exact"]:
        raise RuntimeError(f"{checkout}: the intersection by {protocol} is wrong")
    parties = {
        role: {what: found[role][what] for what in ("CPU seconds", "bytes sent", "peak MiB")}
        for role in ("receiver", "sender")
    }
    return {"seconds": found["seconds"], **parties}


def measure_command(checkout: Path, protocol: str, n: int) -> dict[str, Any]:
    """Wall seconds, and by party: CPU seconds, bytes sent, peak MiB. Both parties are processes of the command."""
    module = "securevfl_psi_cli" if (checkout / "psi" / "securevfl_psi_cli").is_dir() else "securevfl_psi"
    with tempfile.TemporaryDirectory() as folder, socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        taken.close()
        started, processes = time.perf_counter(), {}
        names = ("receiver", "sender")
        for role, verb, peer, first in (("receiver", "listen", "sender", 0), ("sender", "connect", "receiver", n // 2)):
            table = Path(folder) / f"{role}.csv"
            table.write_text("id\n" + "".join(f"user-{first + i * 7 % n}@example.com\n" for i in range(n)))
            line = [sys.executable, "-m", module, verb, str(table), "--id", "id", "--name", role, "--peer", peer]
            line += ["--port", str(port), "--protocol", protocol, "--json", "--out", f"{folder}/{role}-out.csv"]
            processes[role] = line
        started = time.perf_counter()
        running = {
            role: subprocess.Popen(
                processes[role], env=_environment(checkout), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
            )
            for role in names
        }
        found: dict[str, Any] = {}
        for role, process in running.items():
            assert process.stdout is not None
            text = process.stdout.read()
            _, status, used = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
            if process.returncode:
                raise RuntimeError(f"{checkout}: {role} ended with {process.returncode}: {text.decode()[-500:]}")
            found[role] = _figures(json.loads(text), used)
        found["seconds"] = time.perf_counter() - started
        if any((Path(folder) / f"{role}-out.csv").read_text().count("\n") != n - n // 2 + 1 for role in names):
            raise RuntimeError(f"{checkout}: the intersection by {protocol} is wrong")
    return found


def _figures(summary: dict[str, Any], used: resource.struct_rusage) -> dict[str, float]:
    return {
        "CPU seconds": used.ru_utime + used.ru_stime,
        "bytes sent": summary["sent"],
        "peak MiB": used.ru_maxrss / 1024,
    }


def compare(old: Path, new: Path, protocol: str, n: int, rounds: int, *, command: bool = False) -> dict[str, Any]:
    """Measure both checkouts in turns.

    Returns:
        All measurements, and of each figure the new median over the old one.
    """
    measure = measure_command if command else measure_library
    checkouts = {"old": old, "new": new}
    for checkout in checkouts.values():
        measure(checkout, protocol, _WARM)
    runs: dict[str, list[dict[str, Any]]] = {"old": [], "new": []}
    for _ in range(rounds):
        for version in ("old", "new", "new", "old"):
            runs[version].append(measure(checkouts[version], protocol, n))
            print(f"{protocol} {version}: {runs[version][-1]}", flush=True)

    def ratio(*path: str) -> float:
        medians = {}
        for version, some in runs.items():
            values = []
            for one in some:
                value: Any = one
                for step in path:
                    value = value[step]
                values.append(value)
            medians[version] = statistics.median(values)
        return float(medians["new"] / medians["old"])

    ratios = {"seconds": ratio("seconds")}
    ratios |= {
        f"{role}: {what}": ratio(role, what)
        for role in ("receiver", "sender")
        for what in ("CPU seconds", "bytes sent", "peak MiB")
    }
    return {"n": n, "runs": runs, "new over old": ratios}


def main() -> None:
    from benchmarks.common import write

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--old", type=Path, required=True, help="a checkout of the version before")
    parser.add_argument("--new", type=Path, default=Path(__file__).parents[1], help="this checkout, unless given")
    parser.add_argument("--ids", type=int, default=1 << 20, help="identifiers a side, half of them common")
    parser.add_argument("--protocols", nargs="+", choices=("dh", "ot"), default=["dh", "ot"])
    parser.add_argument("--rounds", type=int, default=2, help="of old, new, new, old")
    parser.add_argument("--command", action="store_true", help="measure the command line, with its reading of tables")
    options = parser.parse_args()
    old, new = options.old.resolve(), options.new.resolve()
    figures: dict[str, object] = {
        protocol: compare(old, new, protocol, options.ids, options.rounds, command=options.command)
        for protocol in options.protocols
    }
    write("psi_two_versions_command" if options.command else "psi_two_versions", figures)


if __name__ == "__main__":
    main()
