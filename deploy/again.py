#!/opt/securevfl/bin/python -I
"""Run a command in a container, and restart it while its exit code says so: restart policies cannot see exit codes.

A command that was killed, or ends with *start again*, is started again after 10 s, then 20 s, up to 5 min. Any other
code ends this program too, with that code. SIGTERM and SIGINT go to the command, which is then not started again.
"""

import os
import signal
import subprocess
import sys
import time
from types import FrameType

from securevfl_net.exit_codes import classify_exit, should_restart

FIRST, MOST, LONG = 10.0, 300.0, 600.0
"""Seconds: the first pause, the longest pause, and how long a run must last to reset the pause."""


def run_again(command: list[str], first: float = FIRST) -> int:
    """Run a command until it need not be started again; returns its last exit code, as a shell shows it."""
    stopped: list[int] = []
    child: list[subprocess.Popen[bytes]] = []

    def pass_on(number: int, _: FrameType | None) -> None:
        stopped.append(number)
        for one in child:
            one.send_signal(number)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, pass_on)
    pause = first
    while True:
        began = time.monotonic()
        child[:] = [subprocess.Popen(command)]  # noqa: S603 - the operator's own command
        code = child[0].wait()
        child.clear()
        shown = code if code >= 0 else 128 - code
        if stopped or not should_restart(code):
            why = "stopped by a signal" if stopped else classify_exit(code)
            print(f"again: exit code {shown}: {why}", file=sys.stderr, flush=True)
            return shown
        pause = first if time.monotonic() - began > LONG else pause
        print(f"again: exit code {shown}: {classify_exit(code)}, in {pause:g} s", file=sys.stderr, flush=True)
        end = time.monotonic() + pause
        while not stopped and time.monotonic() < end:
            time.sleep(min(0.2, pause))
        if stopped:
            return shown
        pause = min(2 * pause, MOST)


if __name__ == "__main__":
    sys.exit(run_again(sys.argv[1:], float(os.environ.get("AGAIN_FIRST", FIRST))))
