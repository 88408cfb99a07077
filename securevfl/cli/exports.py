"""Commands that follow a model into operation: export a party's part, and measure how far new rows have drifted."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from securevfl.cli import terminal
from securevfl.cli.application import app
from securevfl.cli.own_parts import own_part, own_table
from securevfl.cli.runs import find_model
from securevfl.errors import InputError

if TYPE_CHECKING:
    from securevfl.export.drift import Drift
    from securevfl.run.exporting import ExportedPart
    from securevfl.run.joint_export import JointCheck

__all__: list[str] = []

_JOB = "The folder of a run, or the job file that trained the model; with --file, the agreement."
_MODEL = "With a job file: the model's folder, runs/<name>/model."
_DATA = "A party's table, PARTY=FILE, in place of the job file's; once for each party. With --file: FILE."
_OWN = "The party's own file, TOML; its part of the model is in its state folder."


@app.command("export")
def export_command(
    job: Annotated[Path, typer.Argument(help=_JOB)],
    model: Annotated[Path | None, typer.Argument(help=_MODEL)] = None,
    party: Annotated[str, typer.Option("--as", help="Export this party's part alone.")] = "",
    folder: Annotated[Path, typer.Option("--out", help="Folder for the files.")] = Path("exported"),
    data: Annotated[list[str] | None, typer.Option(help=f"{_DATA} The files are checked on its rows.")] = None,
    own: Annotated[Path | None, typer.Option("--file", help=_OWN)] = None,
    check: Annotated[bool, typer.Option(help="Compare the files with the program on rows of the tables.")] = True,
) -> None:
    """Export each party's part of a model for its own scoring engine: ONNX for networks, JSON for trees, bins and
    regressions. No message is sent."""
    if own is not None:
        _export_own(job, own, party, folder, data or [], check=check)
        return
    import securevfl as sv
    from securevfl.jobfile.new_tables import read_trained_job, split_data_options
    from securevfl.run.exporting import check_exported, export_part

    written, place, kept = find_model(job, model)
    content, given = read_trained_job(written), split_data_options(data or [])
    trained = sv.Model.load(place, content.job)
    names = [party] if party else trained.owners
    check = check and all(content.has_table(name, given, kept=kept) for name in names)
    if party:
        one = export_part(trained.part(party), folder)
        table = content.read_party_table(trained, party, given, kept=kept) if check else None
        _show_part(one, None if table is None else check_exported(one, table))
    else:
        tables = content.read_tables(trained, given, labels=False, kept=kept).parties if check else None
        found = trained.export(folder, tables)
        for name, part in found.parts.items():
            _show_part(part, found.differences.get(name))
        if found.together is not None:
            _show_joint_check(found.together)
    if not check:
        _say(f"Not checked: to compare the files with the program, add {' '.join(f'--data {n}=FILE' for n in names)}")


def _export_own(agreement: Path, file: Path, party: str, folder: Path, data: list[str], *, check: bool) -> None:
    """Export the part that is in a party's state folder."""
    from securevfl.run.exporting import check_exported, export_part

    own, part = own_part(agreement, file, party)
    one = export_part(part, folder)
    _show_part(one, check_exported(one, own_table(own, part, data)) if check else None)
    if others := one.document.get("others"):
        _say(f"To score a row it also needs the values that the parts of {', '.join(others)} compute.")


@app.command("drift")
def drift_command(
    job: Annotated[Path, typer.Argument(help=_JOB)],
    model: Annotated[Path | None, typer.Argument(help=_MODEL)] = None,
    data: Annotated[list[str] | None, typer.Option(help=_DATA)] = None,
    party: Annotated[str, typer.Option("--as", help="With --file: the party.")] = "",
    own: Annotated[Path | None, typer.Option("--file", help=_OWN)] = None,
) -> None:
    """Compare columns of new rows with those of training, at each party alone: the population stability index, and how
    many values are missing. No message is sent."""
    from securevfl.run.drifting import NO_COUNTS, column_drift, describe_drift

    if own is not None:
        file, part = own_part(job, own, party)
        tables = {file.party: (part.tree, own_table(file, part, data or []))}
    else:
        import securevfl as sv
        from securevfl.jobfile.new_tables import read_trained_job, split_data_options

        written, place, kept = find_model(job, model)
        content, given = read_trained_job(written), split_data_options(data or [])
        trained = sv.Model.load(place, content.job)
        names = list(given) or trained.owners
        tables = {
            name: (trained.part(name).tree, content.read_party_table(trained, name, given, kept=kept)) for name in names
        }
    for name, (tree, table) in tables.items():
        found = column_drift(tree, table)
        if found is None:
            raise InputError(f"{name}: {NO_COUNTS}")
        _say(describe_drift(name, found))
        _show_columns(found)


def _say(line: str) -> None:
    terminal.out.print(line, markup=False, highlight=False, soft_wrap=True)


def _show_part(part: ExportedPart, difference: float | None) -> None:
    names = ", ".join(str(file) for file in part.files)
    count = len(part.document["columns"])
    checked = "" if difference is None else f"; at most {difference:.1g} from the program on its own rows"
    _say(f"{part.party}: {part.document['kind']} of {count} columns{checked}: {names}")


def _show_joint_check(found: JointCheck) -> None:
    rows, note = f"{found.rows:,} common rows", f" ({found.note})" if found.note else ""
    if found.difference != found.difference:
        _say(f"All parts together: the same class as predict for {found.same:.1%} of {rows}{note}")
        return
    _say(f"All parts together: the scores of predict on {rows}, off by at most {found.difference:.1g}{note}")


def _show_columns(found: list[Drift]) -> None:
    from rich.table import Table

    table = Table(box=None)
    for head in ("column", "PSI", "", "missing at training", "missing now"):
        table.add_column(head, justify="left" if head in ("column", "") else "right")
    for one in found:
        shares = [f"{share:.1%}" for share in (one.missing_before, one.missing_now)]
        table.add_row(one.column, f"{one.psi:.3f}", one.level, *shares)
    terminal.out.print(table)
