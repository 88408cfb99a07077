"""Other people's PSI on this machine: openmined-psi and SecretFlow's SPU, and OpenSSL's X25519, one after the other.

python -m benchmarks.psi_peers [--peers-python PATH] [--openmined-ids 262144] [--spu-ids 1048576]

The peers need packages that conflict with the project's, so they run as scripts (benchmarks/peers) of an interpreter of
their own: --peers-python, else $SECUREVFL_PEERS_PYTHON, else .venv-peers/bin/python (see peers-requirements.txt).
What each figure covers stands in the scripts' docstrings. A peer that is not there or fails has "seconds": None and a
"reason"; a peer whose result was wrong has "exact": False and its time must not be compared with anything.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any

SCRIPTS = Path(__file__).parent / "peers"
ENVIRONMENT = Path(__file__).parent.parent / ".venv-peers/bin/python"
SPU_PROTOCOLS = ("ecdh", "ecdh-elligator", "kkrt", "rr22")


def peers_python(argument: str | None = None) -> Path | None:
    """The interpreter that has the peers, or None; raises FileNotFoundError where one was named that is not there."""
    named = argument or os.environ.get("SECUREVFL_PEERS_PYTHON")
    if named:
        if not Path(named).is_file():
            raise FileNotFoundError(f"no interpreter at {named}; see benchmarks/peers-requirements.txt")
        return Path(named)
    return ENVIRONMENT if ENVIRONMENT.is_file() else None


def run_openmined(python: Path | None, n: int, structure: str = "raw", timeout: float = 900.0) -> dict[str, Any]:
    """Figures of benchmarks/peers/openmined.py with `n` identifiers a side; 2¹⁸ take about 75 s."""
    return _run(python, "private_set_intersection", ["openmined.py", str(n), "--structure", structure], timeout)


def run_spu(
    python: Path | None,
    n: int,
    protocol: str = "ecdh",
    check_duplicates: bool = False,
    timeout: float = 900.0,
    ports: tuple[list[int], list[int]] | None = None,
) -> dict[str, Any]:
    """Figures of benchmarks/peers/spu_ecdh.py with `n` identifiers a side and a protocol of `SPU_PROTOCOLS`.

    `ports`: where both listen, and where each is reached by the other.
    """
    arguments = ["spu_ecdh.py", str(n), "--protocol", protocol, "--timeout", str(timeout)]
    for name, given in zip(("--ports", "--seen"), ports or (), strict=False):
        arguments += [name, *map(str, given)]
    return _run(python, "spu", [*arguments, *["--check-duplicates"][: int(check_duplicates)]], timeout + 60)


def openssl_speed() -> float | None:
    """X25519 operations a second of `openssl speed` on one core, or None where it is not installed."""
    if shutil.which("openssl") is None:
        return None
    command = ["openssl", "speed", "-seconds", "2", "ecdhx25519"]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found = re.search(r"X25519\)\s+[\d.]+s\s+([\d.]+)", text)
    return float(found[1]) if found else None


def _run(python: Path | None, module: str, arguments: list[str], timeout: float) -> dict[str, Any]:
    if python is None or not _installed(python, module):
        return {"seconds": None, "reason": "not installed"}
    command = [str(python), str(SCRIPTS / arguments[0]), *arguments[1:]]
    load = os.getloadavg()[0]  # what else runs here distorts wall time far more than CPU time
    # A session of its own, so that the script's own processes go too when it takes too long.
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=_environment(), start_new_session=True
    ) as process:
        try:
            output, errors = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            return {"seconds": None, "reason": f"stopped after {timeout:.0f} s"}
    if process.returncode != 0:
        return {"seconds": None, "reason": f"exit status {process.returncode}: " + "\n".join(errors.splitlines()[-5:])}
    figures: dict[str, Any] = json.loads(output.splitlines()[-1])
    return {**figures, "load average before": load}


def _installed(python: Path, module: str) -> bool:
    code = f"import importlib.util, sys; sys.exit(importlib.util.find_spec({module!r}) is None)"
    return subprocess.run([str(python), "-c", code], check=False, env=_environment()).returncode == 0


def _environment() -> dict[str, str]:
    """This environment without what would let the peers' interpreter see the project's packages."""
    return {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}


def main() -> None:
    # Here, so that processes spawned by who imports this module stay small.
    from benchmarks.common import write

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--peers-python", help="interpreter with the peers' packages")
    parser.add_argument("--openmined-ids", type=int, default=1 << 18, help="identifiers a side, half common; 0: skip")
    parser.add_argument("--spu-ids", type=int, default=1 << 20, help="identifiers a side, half common; 0: skip")
    parser.add_argument("--protocols", nargs="+", choices=SPU_PROTOCOLS, default=["ecdh", "kkrt", "rr22"])
    options = parser.parse_args()
    python = peers_python(options.peers_python)
    figures: dict[str, object] = {"openssl speed ecdhx25519, operations a second": openssl_speed()}
    if options.openmined_ids:
        figures["openmined"] = run_openmined(python, options.openmined_ids)
    if options.spu_ids:
        for protocol in options.protocols:
            figures[f"spu {protocol}"] = run_spu(python, options.spu_ids, protocol)
    write("psi_peers", figures)


if __name__ == "__main__":
    main()
