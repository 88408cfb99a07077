"""Commands about a party's policy."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from securevfl.cli import terminal
from securevfl.cli.application import app

__all__: list[str] = []

policies = typer.Typer(help="A party's own policy, in a separate file.", no_args_is_help=True, rich_markup_mode=None)
app.add_typer(policies, name="policy")


@policies.command("check")
def policy_check_command(
    job: Annotated[Path, typer.Argument(help="A job file, TOML.")],
    policy: Annotated[Path, typer.Argument(help='A policy file, TOML: party = "…" and its rules.')],
    active: Annotated[str, typer.Option(help="For prediction: the active party, if its new table has no labels.")] = "",
) -> None:
    """Check what a party's policy would refuse in a job, and suggest changes that satisfy all parties."""
    from securevfl.checks import check_policy

    found = check_policy(job, policy, active=active)
    for line in found.refusals:
        terminal.out.print(line, markup=False, highlight=False, soft_wrap=True)
    if not found.refusals:
        terminal.out.print(f"{found.party!r} accepts {job}.", markup=False, highlight=False, soft_wrap=True)
        return
    if found.cures:
        terminal.out.print("All parties would accept the job with one of these changes:")
    for cure in found.cures:
        terminal.out.print(f"  {cure}", markup=False, highlight=False, soft_wrap=True)
    if not found.cures:
        terminal.out.print("None of the tried changes of protection, noise or bottoms satisfies all parties.")
    raise typer.Exit(found.exit_code)


@policies.command("card")
def policy_card_command(
    party: Annotated[Path, typer.Argument(help="This party's own file, TOML; its table is read, and stays here.")],
    asker: Annotated[str, typer.Option(help="Who is answered.")] = "any one partner",
    numbers: Annotated[
        int | None, typer.Option(min=1, help="Numbers of each row to try; default: what the policy allows.")
    ] = None,
) -> None:
    """Show what the answers that the policy allows could give away of this party's own table. Sends nothing."""
    from securevfl.checks import read_own_share
    from securevfl.report import own_shares_text

    terminal.out.print(own_shares_text([read_own_share(party, asker=asker, numbers=numbers)]))
