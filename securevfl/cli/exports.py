"""The command `export`: each party's part of a model for another scoring engine, checked against the program."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from securevfl.cli import terminal
from securevfl.cli.application import app
from securevfl.errors import InputError

if TYPE_CHECKING:
    from securevfl.run.exporting import ExportedPart
    from securevfl.run.joint_export import JointCheck

__all__: list[str] = []


@app.command("export")
def export_command(
    job: Annotated[
        Path, typer.Argument(help="The job file that trained the model; with --file, the agreement.")
    ],
    model: Annotated[Path | None, typer.Argument(help="The model's folder, runs/<name>/model; not with --file.")] = None,
    party: Annotated[str, typer.Option("--as", help="Export only this party's part.")] = "",
    folder: Annotated[Path, typer.Option("--out", help="Folder for the files.")] = Path("exported"),
    own: Annotated[
        Path | None,
        typer.Option("--file", help="The party's own file, TOML: export its part from its state folder. Needs --as."),
    ] = None,
    check: Annotated[bool, typer.Option(help="Compare the files with the program on rows of the tables.")] = True,
) -> None:
    """Export a party's part of a model for another scoring engine: ONNX for networks, JSON for trees, bins and
    regressions. No message is sent."""
    if own is not None:
        _export_own(job, party, own, folder, check=check)
        return
    if model is None:
        raise InputError(
            f"give the job file and the model's folder: securevfl export {job} runs/NAME/model; or the agreement with "
            "--as PARTY --file PARTY.toml"
        )
    import securevfl as sv
    from securevfl.run.exporting import check_part, export_part
    from securevfl.run.joint_export import export_model

    content = sv.read_job(job)
    trained = sv.Model.load(model, content.job)
    if party:
        one = export_part(trained.part(party), folder)
        _show_part(one, check_part(one, content.parties[party]) if check else None)
        return
    found = export_model(trained, folder, content.parties if check else None)
    for name, part in found.parts.items():
        _show_part(part, found.differences.get(name))
    if found.together is not None:
        _show_joint_check(found.together)


def _export_own(agreement: Path, party: str, file: Path, folder: Path, *, check: bool) -> None:
    """Export the part that is in a party's state folder."""
    from securevfl.agreement import read_agreement, read_party_file
    from securevfl.run.exporting import check_part, export_part
    from securevfl.run.model_parts import ModelPart

    own, whole = read_party_file(file), read_agreement(agreement)
    if party != own.party:
        raise InputError(f"{file} is of {own.party!r}: give --as {own.party}")
    job = whole.proposal.job_of(policies={party: own.policy})
    part = ModelPart.load(own.state / "model", party, job, run=whole.digest)
    one = export_part(part, folder)
    table = own.read_table() if check else None
    _show_part(one, None if table is None else check_part(one, table))
    if others := one.document.get("others"):
        _say(f"To score a row, it also needs the values that the parts of {', '.join(others)} compute from their columns.")


def _say(line: str) -> None:
    terminal.out.print(line, markup=False, highlight=False, soft_wrap=True)


def _show_part(part: ExportedPart, difference: float | None) -> None:
    names = ", ".join(str(file) for file in part.files)
    count = len(part.document["columns"])
    checked = "" if difference is None else f"; on its own rows at most {difference:.1g} from the program"
    _say(f"{part.party}: {part.document['kind']} of {count} columns{checked}: {names}")


def _show_joint_check(found: JointCheck) -> None:
    rows, note = f"{found.rows:,} common rows", f" ({found.note})" if found.note else ""
    if found.difference != found.difference:  # noqa: PLR0124 - NaN
        _say(f"All parts together: the same class as predict for {found.same:.1%} of {rows}{note}")
        return
    _say(f"All parts together: the scores of predict on {rows}, off by at most {found.difference:.1g}{note}")
