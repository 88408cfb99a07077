"""`ot` and `dh` over lines of a given width and delay, with SPU's RR22 and ECDH over the same lines.

python -m benchmarks.psi_links [--ids 1048576] [--lines LINE …] [--peers-python PATH] [--quick]

Each protocol runs in two processes, CSV to CSV, as in `psi_two_processes` and for SPU in benchmarks/peers/spu_ecdh.py.
Between the two stands the forwarder of `shaping`, which delays each byte and limits bytes a second, each way. SPU opens
a connection in each direction, so there are two forwarders, one to each of its ports.

The lines: none (the processes alone), 1 Gbit/s, 100 Mbit/s, 100 Mbit/s with 20 ms one way, 50, 20 and 10 Mbit/s;
`--lines` names some, and keeps what was measured of the others. Runs of one line follow each other, so that they see
the same machine. `auto` stands beside them: what it takes, told the width of the line.
"""

from __future__ import annotations

import argparse
import contextlib
import socket
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from securevfl_psi.choosing import choose_protocol
from securevfl_psi_cli.calibration import load_speed

from benchmarks import skip
from benchmarks.psi_party import run_party, run_transfer
from benchmarks.psi_peers import peers_python, run_spu
from benchmarks.psi_two_processes import run_two_processes
from benchmarks.shaping import shaped

LINES = {
    "none": None,
    "1 Gbit/s": (1000.0, 0.0),
    "100 Mbit/s": (100.0, 0.0),
    "100 Mbit/s, 20 ms": (100.0, 20.0),
    "50 Mbit/s": (50.0, 0.0),
    "20 Mbit/s": (20.0, 0.0),
    "10 Mbit/s": (10.0, 0.0),
}
"""Megabits a second each way, and milliseconds one way."""


@contextlib.contextmanager
def _both(megabits: float, delay_ms: float) -> Iterator[tuple[list[int], list[int]]]:
    """Two free ports to listen at, and those of a forwarder to each."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(2)]
        for sock in sockets:
            sock.bind(("127.0.0.1", 0))
        ports = [sock.getsockname()[1] for sock in sockets]
    with contextlib.ExitStack() as stack:
        yield ports, [stack.enter_context(shaped(port, delay_ms=delay_ms, megabits=megabits)) for port in ports]


def over(line: tuple[float, float] | None, n: int, python: Path | None) -> dict[str, Any]:
    """All protocols over one line."""
    between = None if line is None else partial(shaped, megabits=line[0], delay_ms=line[1])
    found: dict[str, Any] = {
        name: run_two_processes(party, n, line=between) for name, party in (("ot", run_transfer), ("dh", run_party))
    }
    for name in ("rr22", "ecdh"):
        with contextlib.nullcontext() if line is None else _both(*line) as ports:
            found[f"spu {name}"] = run_spu(python, n, name, ports=ports)
    speed = load_speed()
    choice = choose_protocol(n, n, None if line is None else line[0], speeds=(speed, speed))
    return {**found, "auto takes": choice.protocol, "why": choice.why}


def main() -> None:
    # Here, so that the spawned processes, which import this module, stay as small as the protocol is.
    from benchmarks.common import before, write

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--ids", type=int, default=1 << 20, help="identifiers a side, half of them common")
    parser.add_argument("--peers-python", help="interpreter that has the peers")
    parser.add_argument("--quick", action="store_true", help="few identifiers, to see that it works")
    parser.add_argument("--lines", nargs="+", choices=LINES, help="all of them unless given")
    options = parser.parse_args()
    python = peers_python(options.peers_python)
    if python is None:
        skip.note("SPU", "no interpreter has it: see benchmarks/peers-requirements.txt")
    n = 1 << 14 if options.quick else options.ids
    kept = before("psi_links") if options.lines else {}
    write("psi_links", kept | {name: over(LINES[name], n, python) for name in options.lines or LINES})


if __name__ == "__main__":
    main()
