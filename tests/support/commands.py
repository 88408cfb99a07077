"""The command `securevfl-psi` in tests: two tables, in this process and in others."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest
from securevfl_psi_cli import main

__all__ = ["BANK", "SHOP", "port", "run", "start"]

BANK = "customer,city\nann,Rome\nbob,Oslo\neve,Bern\n"
SHOP = "spend,client\n3, eve\n4,zoe\n9,ann\n"


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main([str(argument) for argument in arguments])
    return int(ended.value.code or 0)


def _heed_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def start(*arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "securevfl_psi_cli", *arguments]
    environment = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    return subprocess.Popen(  # a background job's children begin with SIGINT ignored
        command,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
        preexec_fn=_heed_interrupts,  # noqa: PLW1509
    )


def port(process: subprocess.Popen[str]) -> str:
    assert process.stderr is not None
    line = next((line for line in process.stderr if line.startswith("Listening")), "")
    return line.strip().rsplit(":", 1)[-1]
