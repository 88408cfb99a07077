"""The command `securevfl-psi` in tests: two tables, in this process and in others."""

from __future__ import annotations

import os

import pytest
from securevfl_psi_cli import main

from support.processes import PythonProcess

__all__ = ["BANK", "SHOP", "port", "run", "start"]

BANK = "customer,city\nann,Rome\nbob,Oslo\neve,Bern\n"
SHOP = "spend,client\n3, eve\n4,zoe\n9,ann\n"


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main([str(argument) for argument in arguments])
    return int(ended.value.code or 0)


def start(*arguments: str) -> PythonProcess:
    environment = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    return PythonProcess(["-m", "securevfl_psi_cli", *arguments], env=environment)


def port(process: PythonProcess) -> str:
    assert process.stderr is not None
    line = next((line for line in process.stderr if line.startswith("Listening")), "")
    return line.strip().rsplit(":", 1)[-1]
