"""Commands that admit a party again whose state folder was restored from a back-up."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from securevfl.cli import terminal
from securevfl.cli.application import app
from securevfl.errors import InputError

if TYPE_CHECKING:
    from securevfl.agreement import Agreement, PartyFile

__all__: list[str] = []

readmit = typer.Typer(
    help="Admit a party again whose state folder was restored from a back-up.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
app.add_typer(readmit, name="readmit")

_Agreement = Annotated[Path, typer.Argument(help="The agreement, with approvals beside it.")]
_File = Annotated[Path, typer.Option(help="The party's own file, TOML; nobody else sees it.")]


def _read_both(agreement: Path, file: Path) -> tuple[Agreement, PartyFile]:
    from securevfl.agreement import read_agreement, read_party_file

    return read_agreement(agreement), read_party_file(file)


@readmit.command("ask")
def ask_command(agreement: _Agreement, file: _File) -> None:
    """At the restored party: write PARTY.readmit, a signed request to all peers."""
    from securevfl_net.durable import write_atomic

    from securevfl.process.readmission import ask_readmission

    found, own = _read_both(agreement, file)
    target = agreement.with_name(f"{own.party}.readmit")
    write_atomic(target, ask_readmission(found, own))
    terminal.print_line(f"{target}: send it to every peer. Ask only with the newest folder that you have.")


@readmit.command("grant")
def grant_command(
    agreement: _Agreement,
    request: Annotated[Path, typer.Argument(help="The restored party's PARTY.readmit.")],
    file: _File,
    yes: Annotated[bool, typer.Option("--yes", help="Sign without asking.")] = False,
) -> None:
    """At each peer: sign that the party is admitted again, and what this party saw of it."""
    from securevfl_net.durable import write_atomic

    from securevfl.ledger import ReadmissionRequest, encode_readmission
    from securevfl.process.readmission import grant_request, read_readmission

    found, own = _read_both(agreement, file)
    asked = read_readmission(request)
    if not isinstance(asked, ReadmissionRequest):
        raise InputError(f"{request} is a grant; give the request, {asked.party}.readmit")
    grant = grant_request(found, own, asked)
    terminal.print_line(
        f"{asked.party}'s folder records {asked.attempts} attempts; {own.party} saw {grant.agreed}, and "
        f"{grant.starts} starts. Ask {asked.party} by another way whether it restored a back-up: somebody with a copy "
        "of its folder and keys could ask as well."
    )
    if not yes:
        if not sys.stdin.isatty():
            raise InputError("this is not a terminal: sign on one, or without a prompt with --yes")
        typer.confirm(f"Admit {asked.party} again, as {own.party}?", abort=True)
    target = request.with_name(f"{asked.party}.readmit.{own.party}")
    write_atomic(target, encode_readmission(grant))
    terminal.print_line(f"{target}: send it to {asked.party}.")


@readmit.command("accept")
def accept_command(
    agreement: _Agreement,
    grants: Annotated[list[Path], typer.Argument(help="PARTY.readmit.PEER of every peer.")],
    file: _File,
) -> None:
    """At the restored party: take over the counts that all peers signed. Then start the party."""
    from securevfl.ledger import Readmission
    from securevfl.process.readmission import accept_readmission, read_readmission

    found, own = _read_both(agreement, file)
    read = [read_readmission(path) for path in grants]
    lost = accept_readmission(found, own, [grant for grant in read if isinstance(grant, Readmission)])
    terminal.print_line(
        f"{own.party} is admitted again; its ledger records what the peers signed. Attempts that count as whole runs "
        f"in ε, because they may have gone on after the back-up: {lost}."
    )
