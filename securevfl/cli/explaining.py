"""The command that explains scores: all parties in this process, or one party its own columns, without any message."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

import securevfl as sv
from securevfl.cli import terminal
from securevfl.cli.application import app
from securevfl.cli.own_parts import read_own_table
from securevfl.cli.runs import find_model

if TYPE_CHECKING:
    from securevfl.data.column_terms import Direction
    from securevfl.run import Explanation

__all__: list[str] = []


@app.command("explain")
def explain_command(
    job: Annotated[
        Path,
        typer.Argument(help="The folder of a run, or the job file that trained the model; with --as, the agreement."),
    ],
    model: Annotated[
        Path | None,
        typer.Argument(help="With a job file: the run's folder, or its model/; not with --as."),
    ] = None,
    file: Annotated[
        Path, typer.Option("--out", help="The active party's file, CSV; each party's own reasons go beside it.")
    ] = Path("reasons.csv"),
    ids: Annotated[
        str, typer.Option(help="Persons: identifiers with commas between, or a file with one a line. Default: all.")
    ] = "",
    output: Annotated[
        str,
        typer.Option(
            "--class",
            help="Class whose score is explained; default: the second of two. Passive parties give its number, from 0.",
        ),
    ] = "",
    most: Annotated[int, typer.Option(help="Reasons of each person, in each party's own file.", min=1)] = 3,
    way: Annotated[
        Literal["down", "up", "both"], typer.Option("--reasons", help="What lowers the score, what raises it, or both.")
    ] = "down",
    method: Annotated[
        Literal["auto", "terms", "shapley"],
        typer.Option(help="Exact terms of a sum, Shapley values of parties, or terms where the model has them."),
    ] = "auto",
    background: Annotated[
        int, typer.Option(help="Shapley values: how many other persons a row is compared with.", min=1)
    ] = 16,
    active: Annotated[str, typer.Option(help="The active party, if its new table has no labels.")] = "",
    party: Annotated[str, typer.Option("--as", help="Explain as only this party, by its own columns.")] = "",
    own: Annotated[
        Path | None,
        typer.Option("--file", help="With --as: the party's own file; default: NAME.toml beside the agreement."),
    ] = None,
    data: Annotated[
        list[str] | None,
        typer.Option(
            help="A party's new table, PARTY=FILE, in place of the job file's; once for each party. "
            "It may lack the labels. With --as: FILE."
        ),
    ] = None,
) -> None:
    """Explain scores: what each party added, and which of its own columns moved each score most."""
    wanted = _read_ids(ids)
    if party:
        if model is not None:
            raise sv.InputError("--as takes the agreement alone; the model is in the party's state folder")
        table = read_own_table(party, data or [])
        _explain_own(job, party, own or job.with_name(f"{party}.toml"), table, file, wanted, most, way, output)
        return
    if own is not None:
        raise sv.InputError("--file is a party's own file: name the party with --as, or leave --file out")
    from securevfl.jobfile.new_tables import read_trained_job, split_data_options

    written, folder, kept = find_model(job, model)
    folder = folder / "model" if (folder / "model").is_dir() else folder
    content, given = read_trained_job(written), split_data_options(data or [])
    trained = sv.Model.load(folder, content.job)
    tables = content.read_tables(trained, given, active=active, labels=False, kept=kept)
    for line in tables.notes:
        terminal.err.print(line, style="yellow", markup=False, highlight=False, soft_wrap=True)
    bounded = any(one.writes_bound for one in content.job.policies.values())
    with terminal.err.status("aligning and explaining"):
        found = sv.explain(
            trained,
            tables.parties,
            wanted,
            output=output,
            method=method,
            background=background,
            results=folder / "results" if bounded else None,
        )
    files = found.write(file, most=most, direction=way)
    _show_explanation(found, files)
    if given:  # the report is about the rows that trained and tested
        return
    page = _add_to_report(found, folder.parent)
    if page is not None:
        terminal.out.print(f"Report, with what moves scores: {page}", soft_wrap=True, highlight=False, markup=False)


def _read_ids(text: str) -> list[str] | None:
    """The persons of --ids; None for all."""
    if not text:
        return None
    file = Path(text)
    if not file.is_file():
        return [one.strip() for one in text.split(",") if one.strip()]
    lines = [line.partition(",")[0].strip() for line in file.read_text(encoding="utf-8").splitlines()]
    return [line for line in lines[1 if lines and lines[0] == "id" else 0 :] if line]


def _show_explanation(found: Explanation, files: list[Path]) -> None:
    how = (
        "exact, by the terms of the model"
        if found.method == "terms"
        else f"Shapley values of parties, against {found.background} other persons"
    )
    what = f"the score of {found.output!r}" if found.output else "the predicted number"
    lines = [f"{len(found.ids):,} rows: {what}, {how}. An average row has {found.baseline:.4g} ({found.unit})."]
    lines += [f"{name} moves it by {size:.4g} on average" for name, size in found.importance.items()]
    if found.method == "shapley":
        most = max(found.answers.values(), default=0)
        lines.append(f"Each row took part in up to {most:,} answers. Why not by terms: {found.why}")
    lines.append(f"{files[0]}: what each party added")
    lines += [f"{file}: for {party} alone" for party, file in zip(found.own, files[1:], strict=True)]
    for line in lines:
        terminal.out.print(line, soft_wrap=True, highlight=False, markup=False)


def _add_to_report(found: Explanation, folder: Path) -> Path | None:
    """Put importance into the report of the model's run; returns its page, None where there is no report."""
    from securevfl_net.durable import write_atomic

    from securevfl.report import Record, attacks_beside, write_report
    from securevfl.report.importance import FILE

    if not (folder / "metrics.json").exists():
        return None
    record = found.record()
    write_atomic(folder / FILE, record.to_json(), private=True)
    return write_report(Record.read(folder / "metrics.json"), folder, attacks_beside(folder), record)


def _explain_own(
    agreement: Path,
    party: str,
    own_file: Path,
    data: Path | None,
    file: Path,
    ids: list[str] | None,
    most: int,
    way: Direction,
    output: str,
) -> None:
    """Write one party's reasons from its own columns; nothing is sent."""
    from securevfl_net.durable import make_folder, write_atomic

    from securevfl.data.column_terms import find_reasons
    from securevfl.run.explained.explanation import reasons_as_csv
    from securevfl.run.explained.own_terms import find_own_terms, find_rows
    from securevfl.serving.process import read_own_part

    part, table = read_own_part(agreement, party, own_file, data)
    classes = int(part.tree["classes"])
    names = [str(name) for name in part.tree["names"]] or [str(number) for number in range(classes)]
    if output and output not in names:
        raise sv.UnknownNameError("class", output, names)
    if classes > 2 and not output:
        raise sv.InputError(f"the model has {classes} classes: name one with --class, of {', '.join(names)}")
    wanted = list(table.ids) if ids is None else ids
    terms = find_own_terms(part, table, find_rows(table, wanted))
    if classes == 2 and output == names[0]:
        terms = terms.flip()
    place = names.index(output) if classes > 2 else 0
    reasons = {
        name: find_reasons(terms, row, most=most, direction=way, output=place) for row, name in enumerate(wanted)
    }
    make_folder(file.parent)
    write_atomic(file, reasons_as_csv(reasons, terms), private=True)
    for name, size in [*terms.importance(place).items()][:5]:
        terminal.out.print(f"{name} moves scores by {size:.4g} on average", highlight=False, markup=False)
    terminal.print_line(f"{file}: reasons from {party}'s own columns, for {party} alone; nothing was sent")
