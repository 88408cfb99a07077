"""Two-party DH-PSI in one process, by phase, against OpenSSL's own X25519 on one core in the same run.

python -m benchmarks.psi [--ids 20000]
"""

from __future__ import annotations

import argparse
import re
import secrets
import shutil
import subprocess
import time

import securevfl_psi as psi

from benchmarks.common import write


def openssl() -> float | None:
    """X25519 operations a second of `openssl speed`, or None where it is not installed."""
    if shutil.which("openssl") is None:
        return None
    command = ["openssl", "speed", "-seconds", "2", "ecdhx25519"]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found = re.search(r"X25519\)\s+[\d.]+s\s+([\d.]+)", text)
    return float(found[1]) if found else None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ids", type=int, default=20_000, help="identifiers a side, half of them common")
    n = parser.parse_args().ids
    mine = [f"C-{i:09d}" for i in range(n)]
    theirs = [f"C-{i:09d}" for i in range(n // 2, n + n // 2)]
    session = psi.Session(names=("a", "b"), nonce=secrets.token_bytes(16), rules_tag="v1")
    clock: dict[str, float] = {}
    t = time.perf_counter()

    def phase(name: str) -> None:
        nonlocal t
        now = time.perf_counter()
        clock[name] = now - t
        t = now

    receiver, sender = psi.Receiver(mine, session), psi.Sender(theirs, session)
    phase("hash both sets to the curve")
    a, b = receiver.blinded(), sender.blinded()
    phase("blind both sets")
    doubled = sender.double(a)
    phase("double the receiver's set")
    matches = receiver.intersect(b, doubled)
    phase("double the sender's set and compare")
    rows = sender.rows(matches.sender_positions)
    assert [mine[i] for i in matches.receiver_rows] == [theirs[j] for j in rows]
    total = sum(clock.values())
    scalar = sum(list(clock.values())[1:])
    speed = openssl()
    write(
        "psi",
        {
            "identifiers a side": n,
            "common": len(rows),
            "seconds": clock,
            "seconds in all": total,
            "microseconds an identifier and side": total / (2 * n) * 1e6,
            "scalar products a second": 4 * n / scalar,
            "openssl speed ecdhx25519, operations a second": speed,
            "ratio to openssl": 4 * n / scalar / speed if speed else None,
        },
    )


if __name__ == "__main__":
    main()
