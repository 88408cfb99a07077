"""Commands about ledgers and the keys that sign them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

import securevfl as sv
from securevfl.cli import terminal
from securevfl.cli.application import app
from securevfl.errors import InputError

__all__: list[str] = []


@app.command("audit")
def audit_command(
    folder: Annotated[Path, typer.Argument(help="The folder of a finished run.")],
    party: Annotated[str, typer.Option(help="Show only this party.")] = "",
    run: Annotated[str, typer.Option(help="Show only this run.")] = "",
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object, for scripts.")] = False,
    pin: Annotated[
        list[str] | None, typer.Option(help="PARTY=FINGERPRINT: require this key's signature on the party's ledger.")
    ] = None,
    keys: Annotated[Path | None, typer.Option(help="A folder of public keys, PARTY.pub, to require likewise.")] = None,
) -> None:
    """Verify the ledgers of a run, and show what each party sent and received, its protection, what the receiver can
    compute from it, and ε.
    """
    from securevfl.auditing.tables import audit_json, audit_tables, summarise_audit

    whole = sv.audit(folder, pins=_parse_pins(pin or []), keys=keys)
    shown = whole.of(party=party, run=run)
    if as_json:
        print(audit_json(shown))
        if whole.incomplete:
            raise typer.Exit(sv.AuditError.exit_code)
        return
    if (folder / "metrics.json").is_file():
        from securevfl.report import Record, cards_text

        terminal.out.print(cards_text(Record.read(folder / "metrics.json")))
        terminal.out.print()
    for table in audit_tables(shown):
        terminal.out.print(table)
        terminal.out.print()
    for line in summarise_audit(whole):
        terminal.out.print(line, markup=False, highlight=False, soft_wrap=True)
    if whole.incomplete:
        raise typer.Exit(sv.AuditError.exit_code)


def _parse_pins(given: list[str]) -> dict[str, str]:
    pins: dict[str, str] = {}
    for text in given:
        party, sign, fingerprint = text.partition("=")
        if not sign or not fingerprint.startswith("ed25519:"):
            raise InputError(f"--pin is {text!r}; expected PARTY=FINGERPRINT, for example bank=ed25519:x3Fq…")
        if pins.setdefault(party, fingerprint) != fingerprint:
            raise InputError(f"two fingerprints are pinned for {party!r}: give one")
    return pins


@app.command("keys")
def keys_command(
    name: Annotated[str, typer.Argument(help="The party.")] = "",
    folder: Annotated[Path, typer.Option("--out", help="Folder for the key, accessible only to you.")] = Path("keys"),
    show: Annotated[Path | None, typer.Option(help="Show the fingerprint of this .key or .pub file instead.")] = None,
) -> None:
    """Make a party's key, which signs its ledgers, and print the fingerprint that its peers pin."""
    from securevfl.data.table import explain_bad_name
    from securevfl.ledger import make_key, read_private_key, read_public_key

    if bool(name) == (show is not None):
        raise InputError("give a party's name to make its key, or --show FILE")
    if show is not None:
        public = read_public_key(show) if show.suffix == ".pub" else read_private_key(show).public_key
        terminal.out.print(f"{show.stem}={public.fingerprint}", markup=False, highlight=False, soft_wrap=True)
        return
    mistake = explain_bad_name(name)
    if mistake:
        raise InputError(mistake)
    key = make_key(name, folder)
    for line in (
        f"{folder / name}.key signs {name}'s ledgers: keep it to yourself. {folder / name}.pub is for your peers.",
        f"{name}={key.public_key.fingerprint}",
    ):
        terminal.out.print(line, markup=False, highlight=False, soft_wrap=True)
