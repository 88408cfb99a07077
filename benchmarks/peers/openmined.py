"""openmined-psi (ECDH on P-256): the whole protocol in one process, by phase. Prints one line of JSON.

Run by the peers' interpreter (see benchmarks/peers-requirements.txt); imports nothing of this project:

    .venv-peers/bin/python benchmarks/peers/openmined.py 16384 [--structure raw]

The client learns which of its rows are common (`reveal_intersection`); the server learns the client's set size.
What counts as the protocol: all calls of the public API, including the protobuf messages that they make and parse.

`raw` sends the server's points whole and so is exact; it is the default. `gcs` and `bloom_filter` send 5 to 8 times
less in the setup message, save no time to speak of, and add false positives with probability `--false-positive-rate`
over the whole query. `gcs` cannot go below n²/2⁶³: it counts in int64, unchecked, and some calls beyond it fail.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import resource
import time
from pathlib import Path

import numpy as np
import private_set_intersection.python as openmined


def status_mib(field: str) -> float:
    """MiB in a field of /proc/self/status: VmHWM, the peak of this program image, or VmRSS, what it holds now.

    `ru_maxrss` starts at the parent's peak in a process made by fork and exec, so it is only the fallback.
    """
    status = Path("/proc/self/status")
    if status.exists():
        for line in status.read_text(encoding="ascii", errors="replace").splitlines():
            if line.startswith(field + ":"):
                return int(line.split()[1]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def identifiers(n: int, first: int, seed: int) -> list[str]:
    order = np.random.default_rng(seed).permutation(n) + first
    return [f"user-{i}@example.com" for i in order]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("n", type=int, help="identifiers a side, half of them common")
    parser.add_argument("--structure", choices=["raw", "gcs", "bloom_filter"], default="raw")
    parser.add_argument("--false-positive-rate", type=float, default=2.0**-20, help="for gcs and bloom_filter")
    options = parser.parse_args()
    n: int = options.n
    ours, theirs = identifiers(n, 0, seed=5), identifiers(n, n // 2, seed=6)
    structure = openmined.DataStructure[options.structure.upper()]
    before = status_mib("VmRSS")

    start_cpu = time.process_time()
    times = [time.perf_counter()]
    client, server = openmined.client.CreateWithNewKey(True), openmined.server.CreateWithNewKey(True)
    request = client.CreateRequest(ours)
    times.append(time.perf_counter())
    setup = server.CreateSetupMessage(options.false_positive_rate, n, theirs, structure)
    times.append(time.perf_counter())
    response = server.ProcessRequest(request)
    times.append(time.perf_counter())
    rows = client.GetIntersection(setup, response)
    times.append(time.perf_counter())
    cpu = time.process_time() - start_cpu

    common = set(theirs)
    expected = [row for row, identifier in enumerate(ours) if identifier in common]
    phases = ["client request", "server setup", "server response", "client intersection"]
    figures = {
        "peer": "openmined-psi",
        "version": importlib.metadata.version("openmined_psi"),
        "protocol": "ECDH P-256",
        "structure": options.structure,
        "n": n,
        "seconds": times[-1] - times[0],
        "seconds by phase": dict(zip(phases, np.diff(times).tolist(), strict=True)),
        "CPU seconds": cpu,
        "message bytes": {
            "request": request.ByteSize(),
            "setup": setup.ByteSize(),
            "response": response.ByteSize(),
        },
        "intersection": len(rows),
        "exact": sorted(rows) == expected,
        "MiB before": before,
        "peak MiB": status_mib("VmHWM"),
    }
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
