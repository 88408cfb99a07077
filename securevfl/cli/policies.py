"""Commands about a party's policy, and about the numbers of its rows that partners were answered."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from securevfl.cli import terminal
from securevfl.cli.application import app
from securevfl.errors import InputError

if TYPE_CHECKING:
    from rich.table import Table

    from securevfl.agreement.party_file import PartyFile
    from securevfl.agreement.result_books import AskerResults
    from securevfl.privacy import Grant

__all__: list[str] = []

policies = typer.Typer(
    help="A party's own policy, and what its partners were answered.", no_args_is_help=True, rich_markup_mode=None
)
app.add_typer(policies, name="policy")

_FILE = typer.Option("--file", help="The party's own file, TOML; nobody else sees it.")


def _say(line: str) -> None:
    terminal.out.print(line, markup=False, highlight=False, soft_wrap=True)


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
        _say(line)
    if not found.refusals:
        _say(f"{found.party!r} accepts {job}.")
        if found.results:
            _say(found.results)
        return
    if found.cures:
        terminal.out.print("All parties would accept the job with one of these changes:")
    for cure in found.cures:
        _say(f"  {cure}")
    if not found.cures and not all(": max_results:" in line for line in found.refusals):
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


@policies.command("show")
def policy_show_command(file: Annotated[Path, _FILE]) -> None:
    """Show a party's policy, and the grants that add to it."""
    from securevfl.agreement import read_party_file
    from securevfl.agreement.result_books import open_book

    own = read_party_file(file)
    book = open_book(own)
    _say(f"{own.party}: {own.policy.text()}")
    _say(_describe_bound(own))
    given = [grant for asker in book.grantees for grant in book.grants(asker)]
    for grant in given:
        _say(_describe_grant(grant))
    if not given:
        _say("No grants.")


@policies.command("results")
def policy_results_command(
    file: Annotated[Path, _FILE],
    partner: Annotated[str, typer.Argument(help="A party or its organisation; all unless given.")] = "",
) -> None:
    """Show what the party's book holds: of each asker, the people it was answered about, and how often."""
    from securevfl.agreement import read_party_file
    from securevfl.agreement.result_books import read_results

    own = read_party_file(file)
    found = read_results(own, partner)
    _say(f"{own.results}: {_describe_bound(own)}")
    if not found:
        _say("Nobody was answered about any row.")
        return
    terminal.out.print(_results_table(found))
    for one in found:
        for grant in one.grants:
            _say(_describe_grant(grant))


@policies.command("grant")
def policy_grant_command(
    partner: Annotated[str, typer.Argument(help="The party, or its organisation, that may be answered more.")],
    file: Annotated[Path, _FILE],
    results: Annotated[int, typer.Option(help="How many more numbers of each row.", min=1)],
    reason: Annotated[str, typer.Option(help="Why, for the record.")],
    until: Annotated[str, typer.Option(help="The last day on which it counts: 2027-03-31.")],
    by: Annotated[str, typer.Option(help="Who gives it; default: the user of this machine.")] = "",
) -> None:
    """Allow a partner more numbers of each row, by a line in the party's book that its key signs."""
    from securevfl.agreement import read_party_file
    from securevfl.agreement.result_books import give_grant, read_results

    own = read_party_file(file)
    try:
        day = date.fromisoformat(until)
    except ValueError:
        raise InputError(f"--until is {until!r}; expected a day: 2027-03-31") from None
    given = give_grant(own, partner, results=results, reason=reason, until=day, by=by)
    (now,) = read_results(own, partner)
    _say(_describe_grant(given))
    if now.allowed is not None:
        _say(f"{given.asker} may now have {now.allowed} numbers of each row of {own.party}.")


def _describe_bound(own: PartyFile) -> str:
    allowed = own.policy.allowed_numbers(0)
    if allowed is None:
        return "its policy bounds the numbers of a row for nobody" + (
            " but by max_looks" if own.policy.max_looks is not None else ""
        )
    why = "" if own.policy.writes_bound else ", the default"
    return f"each partner may have {allowed} numbers of each row, ever{why}"


def _describe_grant(grant: Grant) -> str:
    from datetime import UTC, datetime

    from securevfl.agreement.result_books import last_day

    over = ", which is over" if datetime.now(UTC).timestamp() >= grant.until else ""
    more = f"{grant.results} more number{'s' * (grant.results != 1)} of each row"
    return f"grant {grant.grant}: {grant.asker} has {more} until {last_day(grant)}{over}; by {grant.by}: {grant.reason}"


def _results_table(found: list[AskerResults]) -> Table:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE)
    table.add_column("asker")
    for title in ("people", "most numbers of one", "running number", "may have", "people spent"):
        table.add_column(title, justify="right")
    for one in found:
        allowed = "any number" if one.allowed is None else f"{one.allowed:,}"
        table.add_row(one.asker, *(f"{n:,}" for n in (one.people, one.most, one.running)), allowed, f"{one.spent:,}")
    return table
