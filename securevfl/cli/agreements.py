"""Commands about agreements: a party's card, a proposal, its approval."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from securevfl.cli import terminal
from securevfl.cli.application import app
from securevfl.errors import InputError

if TYPE_CHECKING:
    from securevfl.agreement.plain_words import Paragraph

__all__: list[str] = []

agreements = typer.Typer(help="Show an agreement, or compare two.", no_args_is_help=True, rich_markup_mode=None)
app.add_typer(agreements, name="agreement")

_FILE = "The party's own file, TOML; nobody else sees it."


def _say(line: str) -> None:
    terminal.out.print(line, markup=False, highlight=False, soft_wrap=True)


def _print_paragraphs(paragraphs: list[Paragraph]) -> None:
    for paragraph in paragraphs:
        terminal.out.print(paragraph.title, style="bold", markup=False, highlight=False, soft_wrap=True)
        for line in paragraph.lines:
            _say(f"  {line}")
        _say("")


@app.command("card")
def card_command(
    file: Annotated[Path, typer.Argument(help=_FILE)],
    out: Annotated[
        Path | None, typer.Option("-o", "--out", help="Where to write it; default: PARTY.card beside the file.")
    ] = None,
) -> None:
    """Write a party's card for the other parties: name, keys, certificate and columns, but no rows."""
    from securevfl_net.durable import write_atomic

    from securevfl.agreement import make_party_card, read_party_file

    own = read_party_file(file)
    card = make_party_card(own)
    target = out or own.folder / f"{card.name}.card"
    write_atomic(target, card.encode())
    _say(f"{target} contains {card.name}'s name, keys, certificate and columns: send it to the proposer.")
    _say(f"{card.name} signs with {card.public_key.fingerprint}: read this fingerprint to your peers in person.")


@app.command("propose")
def propose_command(
    job: Annotated[Path, typer.Argument(help="A job file, TOML. Its tables, policies and device are ignored.")],
    card: Annotated[list[Path], typer.Option(help="A party's card; once per party.")],
    purpose: Annotated[str, typer.Option(help="The purpose, which all parties read and sign.")],
    expires: Annotated[str, typer.Option(help="When it ends: 30d, 12h, 2026-12-31, or a time in UTC.")] = "30d",
    out: Annotated[Path, typer.Option("-o", "--out", help="Where to write it.")] = Path("agreement.toml"),
    attempts: Annotated[int, typer.Option(help="Maximum attempts at the job; each restart counts.")] = 20,
    hours: Annotated[float, typer.Option(help="Maximum hours of all attempts together.")] = 168.0,
    leaving_after: Annotated[
        str,
        typer.Option(help="With leaving = 'go-on' in the job: after 30m, 2h, 3d an absent party is gone; default 1h."),
    ] = "",
    epsilon: Annotated[
        list[str] | None,
        typer.Option(
            help="PARTY=ε or PARTY=ε@δ: bound on the party's releases in all attempts; default: twice the plan."
        ),
    ] = None,
    asks: Annotated[list[str] | None, typer.Option(help="A label owner that may request scores.")] = None,
    min_batch: Annotated[int, typer.Option(help="With --asks: minimum rows per request.")] = 1,
    start: Annotated[
        str,
        typer.Option(
            "--from",
            help="Go on from an earlier model: a state folder that has a part of it, or the digits of model.run.",
        ),
    ] = "",
    reasons: Annotated[bool, typer.Option("--reasons", help="With --asks: served answers come with reasons.")] = False,
    accept_leak: Annotated[bool, typer.Option("--accept-leak", help=terminal.ACCEPT_LEAK)] = False,
    protocol: Annotated[
        int | None, typer.Option(help="Protocol of the job, if a party has an older release; default: the newest.")
    ] = None,
) -> None:
    """Draft an agreement from a job file and the parties' cards. Nothing is signed yet."""
    from datetime import UTC, datetime

    from securevfl_net.durable import write_atomic

    from securevfl.agreement import ServingTerms, propose_job, read_card
    from securevfl.agreement.plain_words import describe_proposal
    from securevfl.agreement.proposing import parse_span

    if out.exists():
        raise InputError(f"{out} already exists and may be signed: choose another --out")
    proposal = propose_job(
        job,
        [read_card(path) for path in card],
        purpose=purpose,
        expires=expires,
        now=datetime.now(UTC),
        limits={
            "attempts": attempts,
            "seconds": max(round(hours * 3600), 1),
            "leaving_after": parse_span(leaving_after) if leaving_after else None,
        },
        epsilon=dict(_parse_bound(text) for text in epsilon or []),
        serving=ServingTerms(asks=tuple(asks), min_batch=min_batch, reasons=reasons) if asks else None,
        accept_leak=accept_leak,
        protocol=protocol,
        start=_read_run(start),
    )
    write_atomic(out, proposal.signed_bytes)
    _print_paragraphs(describe_proposal(proposal))
    _say(
        f"{out} is the proposal: send it to all parties. Each one runs: securevfl approve {out.name} --file PARTY.toml"
    )


def _read_run(start: str) -> str:
    """The run that --from names: its digits, or those beside a part of its model."""
    from securevfl.run.model_parts import RUN

    if not start or not Path(start).is_dir():
        return start
    place = Path(start) / "model" if (Path(start) / "model").is_dir() else Path(start)
    try:
        return (place / RUN).read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        raise InputError(
            f"--from is {start}, which has no {RUN}: name the state folder of a finished job that trained a model"
        ) from None


def _parse_bound(text: str) -> tuple[str, tuple[float, float]]:
    party, sign, rest = text.partition("=")
    value, _, delta = rest.partition("@")
    try:
        if not sign:
            raise ValueError
        return party, (float(value), float(delta or 1e-5))
    except ValueError:
        raise InputError(f"--epsilon is {text[:80]!r}; expected PARTY=ε or PARTY=ε@δ: bank=8@1e-5") from None


@app.command("approve")
def approve_command(
    agreement: Annotated[Path, typer.Argument(help="The file of `securevfl propose`.")],
    file: Annotated[Path, typer.Option(help=_FILE)],
    yes: Annotated[bool, typer.Option("--yes", help="Sign without asking.")] = False,
) -> None:
    """Show an agreement, check it against the party's own file and policy, and sign it."""
    from datetime import UTC, datetime

    from securevfl.agreement import approve_proposal, check_proposal, read_agreement, read_party_file, write_approval
    from securevfl.agreement.plain_words import describe_proposal

    own, proposal = read_party_file(file), read_agreement(agreement).proposal
    held = check_proposal(proposal, own, datetime.now(UTC))
    _print_paragraphs(describe_proposal(proposal, me=own.party))
    for note in held.notes:
        _say(note)
    held.raise_refusals()
    _say(f"It agrees with {file}: name, keys, certificate, columns, policy and budget.")
    if not yes:
        if not sys.stdin.isatty():
            raise InputError("this is not a terminal: read the agreement on one, or sign without a prompt with --yes")
        typer.confirm(f"Sign it as {own.party}?", abort=True)
    signed = approve_proposal(proposal, own, datetime.now(UTC))
    target = write_approval(agreement, signed)
    _say(f"{target} is {own.party}'s approval: the parties' processes exchange it when they meet, or send it before.")


@agreements.command("show")
def show_command(
    agreement: Annotated[Path, typer.Argument(help="The file of `securevfl propose`; approvals beside it are read.")],
    party: Annotated[str, typer.Option("--as", help="Mark this party.")] = "",
) -> None:
    """Explain an agreement in plain words, and list who has approved it."""
    from securevfl.agreement import read_agreement
    from securevfl.agreement.plain_words import describe_approvals, describe_proposal

    found = read_agreement(agreement)
    if party:
        found.proposal.card_of(party)
    _print_paragraphs([*describe_proposal(found.proposal, me=party), describe_approvals(found)])


@agreements.command("compare")
def compare_command(
    one: Annotated[Path, typer.Argument(help="An agreement.")],
    other: Annotated[Path, typer.Argument(help="Another.")],
) -> None:
    """List every field in which two agreements differ; exit code 2 if they do."""
    from securevfl.agreement import find_differences, read_agreement

    found = find_differences(read_agreement(one).proposal, read_agreement(other).proposal, me=str(one), peer=str(other))
    for line in found:
        _say(line)
    if found:
        raise typer.Exit(InputError.exit_code)
    _say("They are the same, byte for byte.")
