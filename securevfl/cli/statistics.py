"""The command that computes statistics of columns before a model, with all parties in this process."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from securevfl_net.durable import write_atomic

import securevfl as sv
from securevfl.cli import terminal
from securevfl.cli.application import app
from securevfl.cli.results import show_statistics
from securevfl.cli.runs import run_folder

if TYPE_CHECKING:
    from securevfl.jobfile.job_file import JobFile

__all__: list[str] = []

_JOB, _DELTA = "statistics", 1e-5


@app.command("stats")
def stats_command(
    sources: Annotated[
        list[Path], typer.Argument(help="A job file, TOML; or one table per party: CSV, Parquet or Arrow.")
    ],
    folder: Annotated[
        Path | None, typer.Option("--out", help="Folder for the report; default: runs/<name>, or runs/<name>-2 ….")
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the results of a finished run.")] = False,
    id: Annotated[list[str] | None, typer.Option("--id", help="With tables: the column that joins them.")] = None,
    label: Annotated[list[str] | None, typer.Option("--label", help="With tables: the label's column.")] = None,
    epsilon: Annotated[
        float | None, typer.Option(help="Add noise: ε of a person's columns at the passive parties.")
    ] = None,
    delta: Annotated[float, typer.Option(help="δ, with --epsilon.")] = _DELTA,
    bins: Annotated[int | None, typer.Option(help="Most bins of a column; default: 10.")] = None,
    least: Annotated[
        int | None, typer.Option(help="Fewest rows of each class in a bin that is shown; default: 20.")
    ] = None,
    vif: Annotated[
        bool, typer.Option("--vif/--no-vif", help="Whether passive parties send correlations among their own columns.")
    ] = True,
    computing: Annotated[
        int | None, typer.Option(help="Parties that compute on shares: 3, or 2; default: by the number of parties.")
    ] = None,
    clear: Annotated[
        bool, typer.Option("--clear", help="Compute in the clear: the active party reads rows of the others.")
    ] = False,
) -> None:
    """Before a model: missing values, means by class, correlations, weights of evidence and VIF of all parties'
    columns, computed on secret shares."""
    file = _read_sources(sources, id or [], label or [])
    job = _describing_job(
        file, epsilon=epsilon, delta=delta, bins=bins, least=least, vif=vif, computing=computing, clear=clear
    )
    with run_folder(folder, f"{file.name}-statistics", overwrite=overwrite) as place, terminal.progress_bars() as bars:
        result = sv.simulate(
            job,
            file.parties,
            name=file.name,
            title=f"{file.title or file.name}: statistics before a model",
            command=terminal.typed_command(),
            observer=bars,
            ledgers=place.ledgers,
        )
        page = place.write_result(result)
    show_statistics(result, place.path, page)


def _read_sources(sources: list[Path], id: list[str], label: list[str]) -> JobFile:
    """The job file, or one drafted from tables.

    Raises:
        InputError: the draft leaves something to fill in.
    """
    if len(sources) == 1 and sources[0].suffix == ".toml":
        if id or label:
            raise sv.InputError("--id and --label are for tables: a job file names both")
        return sv.read_job(sources[0], accept_leak=True)
    from securevfl.jobfile.drafting import draft_job

    with tempfile.TemporaryDirectory() as folder:
        draft = draft_job(sources, Path(folder), id=id, label=label, algorithm=_JOB)
        if draft.missing:
            raise sv.InputError(f"cannot guess from these tables: {'; '.join(draft.missing)}")
        written = Path(folder) / "job.toml"
        write_atomic(written, draft.text.encode())
        return sv.read_job(written, accept_leak=True)


def _describing_job(
    file: JobFile,
    *,
    computing: int | None,
    clear: bool,
    epsilon: float | None,
    delta: float,
    bins: int | None,
    least: int | None,
    vif: bool,
) -> sv.Job:
    """Replace the model of a file's job by statistics."""
    given = file.job.algorithm if isinstance(file.job.algorithm, sv.Statistics) else sv.Statistics()
    changed: dict[str, Any] = {"bins": bins, "least": least}
    algorithm = given.replace(**{name: value for name, value in changed.items() if value is not None})
    if not vif:
        algorithm = algorithm.replace(vif=False)
    protection = file.job.protection
    if clear or computing is not None or epsilon is not None or not isinstance(file.job.algorithm, sv.Statistics):
        if clear:
            protection = sv.Plain()
        elif computing is not None or not protection.on_shares:
            two = computing == 2 or (computing is None and len(file.parties) == 2)
            protection = sv.Shares(computing=2 if two else 3)
        else:
            protection = protection.replace(dp=None)
    if epsilon is not None:
        protection = protection.replace(dp=sv.DP(model=sv.Gaussian(epsilon=epsilon, delta=delta)))
    job = file.job.replace(algorithm=algorithm, protection=protection)
    return job
