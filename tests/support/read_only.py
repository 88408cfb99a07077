"""Run a program where one folder can be written and nothing else, as in a container with a read-only root.

A new mount namespace makes every mount read-only but the folder; the program keeps no capability and gains no
privilege. Needs Linux and root.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

__all__ = ["reason_not_here", "run_read_only"]

_SCRIPT = r"""
set -e
mount --make-rprivate /
mount --bind "$1" "$1"
while read -r _ place _; do
    case "$place" in
        "$1"|/proc|/proc/*|/sys|/sys/*|/dev|/dev/*) ;;
        *) mount -o remount,bind,ro "$(printf %b "$place")" 2>/dev/null || true ;;
    esac
done < /proc/self/mounts
mount -o remount,bind,rw "$1"
shift
exec setpriv --no-new-privs --bounding-set=-all --inh-caps=-all -- "$@"
"""


def run_read_only(
    command: Sequence[str | Path],
    writable: Path,
    *,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    timeout: float = 300,
) -> subprocess.CompletedProcess[str]:
    """Run a command that can write in `writable` alone.

    Args:
        command: the program and its arguments.
        writable: the folder; a place for temporary files is made in it.
        cwd: the folder that the command starts in.
        env: settings beside those of this process.
        timeout: seconds.
    """
    temporary = writable / "tmp"
    temporary.mkdir(exist_ok=True)
    settings = {"TMPDIR": str(temporary), "HOME": str(temporary), "MPLCONFIGDIR": str(temporary / "matplotlib")}
    return subprocess.run(
        ["unshare", "--mount", "sh", "-c", _SCRIPT, "sh", str(writable), *map(str, command)],
        cwd=cwd,
        env=os.environ | settings | {"PYTHONDONTWRITEBYTECODE": "1"} | (env or {}),
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


def reason_not_here(writable: Path) -> str:
    """Why this machine cannot do it; empty if it can. Checks that a write elsewhere is refused."""
    if sys.platform != "linux":
        return "needs Linux"
    probe = "import pathlib, sys; pathlib.Path(sys.argv[1]).write_text('x'); pathlib.Path(sys.argv[2]).write_text('x')"
    inside, outside = writable / "inside", writable.parent / "outside"
    try:
        done = run_read_only([sys.executable, "-c", probe, inside, outside], writable, timeout=60)
    except OSError as error:
        return f"unshare is missing: {error}"
    if not inside.exists():
        return f"no mount namespace: {done.stderr.strip()[-200:]}"
    inside.unlink()
    if outside.exists() or "Read-only file system" not in done.stderr:
        return "a write elsewhere was not refused"
    return ""
