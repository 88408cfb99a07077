"""The command by which a party leaves a job for good."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from securevfl.cli import terminal
from securevfl.cli.application import app
from securevfl.errors import InputError

__all__: list[str] = []


@app.command("leave")
def leave_command(
    agreement: Annotated[Path, typer.Argument(help="The agreement, with approvals beside it.")],
    file: Annotated[Path, typer.Option(help="The party's own file, TOML; nobody else sees it.")],
    yes: Annotated[bool, typer.Option("--yes", help="Sign without asking.")] = False,
) -> None:
    """Leave a job for good, if its agreement lets it go on without this party. Stop the party's process before."""
    from securevfl.agreement import read_agreement, read_party_file
    from securevfl.process.leaving import leave_job

    found, own = read_agreement(agreement), read_party_file(file)
    terminal.print_line(
        f"{own.party} takes part in nothing more of this job, and nobody can take that back. What it released stays "
        "released, and counts in its ε."
    )
    if not yes:
        if not sys.stdin.isatty():
            raise InputError("this is not a terminal: sign on one, or without a prompt with --yes")
        typer.confirm(f"Leave for good, as {own.party}?", abort=True)
    leave_job(found, own)
    terminal.print_line(
        f"{own.party} has signed that it leaves. Now start `securevfl party {agreement} --as {own.party}` once more: "
        "it tells the others, and ends when they go on without it."
    )
