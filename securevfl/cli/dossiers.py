"""The command that writes an officer's file about a run or an agreement."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from securevfl.cli import terminal
from securevfl.cli.application import app

__all__: list[str] = []


@app.command("dossier")
def dossier_command(
    source: Annotated[
        Path, typer.Argument(help="The folder of a finished run, a party's state folder, or an agreement's file.")
    ],
    out: Annotated[Path, typer.Option("--out", help="Folder for the documents.")] = Path("dossier"),
    party: Annotated[
        str, typer.Option("--as", help="Whose dossier it is. With an agreement, its state folder is read.")
    ] = "",
    file: Annotated[
        Path | None, typer.Option("--file", help="The party's own file; default: NAME.toml beside the agreement.")
    ] = None,
    run: Annotated[str, typer.Option(help="Which run of a comparison; default: its first joint one.")] = "",
    attacks: Annotated[
        Path | None, typer.Option(help="Folder or file of securevfl attack; default: attacks.json in the run's folder.")
    ] = None,
    docx: Annotated[
        bool | None, typer.Option("--docx/--no-docx", help="Also as DOCX; default: if python-docx is installed.")
    ] = None,
) -> None:
    """Write an officer's file: drafts of the impact assessment, the record of processing, the AI Act's Annex IV, a
    model document, a model card, and a bill of materials.

    Each sentence has its source: agreement, verified ledger, report, attack. What a person must fill in is marked, and
    answered in fill-in.toml. No legal advice. Exit code 8 if a ledger does not verify.
    """
    from securevfl.dossier import gather_evidence, write_dossier
    from securevfl.dossier.pages import count_places
    from securevfl.dossier.word import has_word

    evidence = gather_evidence(source, me=party, run=run, party_file=file, attacks=attacks)
    written = write_dossier(evidence, out, docx=docx)
    lines = [f"{out / document.name}.html: {count_places(document.places)}" for document in written.documents]
    lines.append(f"{out / 'sbom.cdx.json'}: packages of this installation")
    lines.append(f"{out / 'index.html'}: {count_places(written.places)}, each counted once")
    for line in lines:
        terminal.out.print(line, markup=False, highlight=False, soft_wrap=True)
    if written.documents[0].warning is not None:
        terminal.print_line(written.documents[0].warning.text)
    if docx is None and not has_word():
        terminal.print_line("No DOCX: pip install 'securevfl[dossier]' to have it, too.")
    if written.places:
        terminal.print_line(f"Answer them in {out / 'fill-in.toml'} and run this again.")
