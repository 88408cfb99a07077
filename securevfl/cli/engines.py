"""The command that shows the kernels of this machine."""

from __future__ import annotations

import typer

from securevfl.cli.application import app
from securevfl.errors import InputError

__all__: list[str] = []


@app.command("engine")
def engine_command() -> None:
    """Show which kernels compute here: the CPU's class, the path, the libraries' hashes, and the self-test's result."""
    from securevfl_crypto.errors import EngineError
    from securevfl_crypto.inspection import inspect_engine

    try:
        lines = inspect_engine()
    except EngineError as error:
        raise InputError(str(error)) from error
    width = max(len(label) for label, _ in lines)
    typer.echo("The engine of this machine")
    for label, text in lines:
        typer.echo(f"  {label.ljust(width)}  {text}")
