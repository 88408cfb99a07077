"""Commands of many runs: sweep, search, attack."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import securevfl as sv
from securevfl.cli import terminal
from securevfl.cli.application import app

if TYPE_CHECKING:
    from securevfl.report import SweepRecord

__all__: list[str] = []


@app.command("sweep")
def sweep_command(
    file: Annotated[
        Path, typer.Argument(help="A sweep file, TOML (see examples/experiments); or a job file, with --over.")
    ],
    folder: Annotated[Path | None, typer.Option("--out", help="Folder for the results; default: runs/<name>.")] = None,
    workers: Annotated[int, typer.Option(help="Processes, one thread each.")] = 1,
    pool: Annotated[
        str, typer.Option(help="Pool that runs cells instead of --workers: process:2, ray, ray:HOST:PORT.")
    ] = "",
    device: Annotated[str, typer.Option(help="Device of plain tensors: cpu or cuda.")] = "cpu",
    over: Annotated[
        list[str] | None,
        typer.Option(help="With a job file: a setting and its values, algorithm.lr=0.01,0.1; once per setting."),
    ] = None,
    seeds: Annotated[int, typer.Option(help="With a job file: number of seeds, starting at the job's own.")] = 5,
    axis: Annotated[str, typer.Option(help="With a job file: the setting to show in table columns.")] = "",
    accept_leak: Annotated[bool, typer.Option("--accept-leak", help=terminal.ACCEPT_LEAK)] = False,
) -> None:
    """Run a grid of data sets, methods, positions and seeds, or of a job file's settings over its own tables. Resumes
    an interrupted run.

    Exit code 1 if cells failed; the others ran, and the next run tries the failed ones again.
    """
    from securevfl.report.progress import sweep_bar
    from securevfl.run.interrupts import handle_interrupts

    if over:
        _sweep_settings(file, over, seeds, axis, folder, workers, pool, device, accept_leak)
        return
    sweep = sv.read_sweep(file, device=device)
    folder = folder or Path("runs") / sweep.name
    with (
        handle_interrupts(terminal.typed_command(), terminal.print_line),
        sweep_bar(terminal.err, len(sweep.cells)) as show,
    ):
        found = sv.run_sweep(sweep, folder, workers=workers, pool=pool, command=terminal.typed_command(), progress=show)
    _show_sweep(found.record, folder)


def _sweep_settings(
    file: Path,
    over: list[str],
    seeds: int,
    axis: str,
    folder: Path | None,
    workers: int,
    pool: str,
    device: str,
    accept_leak: bool,
) -> None:
    """Sweep settings of a job file over its own tables."""
    from securevfl.experiments.grid import grid_of, read_over
    from securevfl.report.progress import sweep_bar
    from securevfl.run.interrupts import handle_interrupts

    settings = read_over(over)
    job = sv.read_job(file, accept_leak=accept_leak)
    base = job.job if device == "cpu" else job.job.replace(device=device)
    folder = folder or Path("runs") / f"{job.name}-sweep"
    cells = len(grid_of(base, settings).points) * max(seeds, 1)
    with handle_interrupts(terminal.typed_command(), terminal.print_line), sweep_bar(terminal.err, cells) as show:
        found = sv.sweep(
            base,
            job.parties,
            settings,
            seeds=seeds,
            axis=axis or None,
            folder=folder,
            workers=workers,
            pool=pool,
            name=f"{job.name}-sweep",
            title=job.title and f"{job.title}: settings",
            command=terminal.typed_command(),
            progress=show,
        )
    if found.record.cells:
        best = ", ".join(f"{name} {value}" for name, value in found.best.settings.items())
        terminal.out.print(f"Best on the validation rows: {best}", markup=False, highlight=False, soft_wrap=True)
    for note in found.record.notes[1:]:
        terminal.out.print(note, style="yellow", markup=False, highlight=False, soft_wrap=True)
    _show_sweep(found.record, folder)


def _show_sweep(record: SweepRecord, folder: Path) -> None:
    """Print a sweep's results; exit with 1 if cells failed."""
    from securevfl.report import count_table, failures_text, sweep_table, verdict_table

    for name in dict.fromkeys(cell.data for cell in record.cells):
        terminal.out.print(sweep_table(record, name))
        if any(cell.alone is not None for cell in record.cells if cell.data == name):
            terminal.out.print(sweep_table(record, name, "alone"))
        if (counts := count_table(record, name)) is not None:
            terminal.out.print(counts)
    if record.claims:
        terminal.out.print(verdict_table(record))
    terminal.out.print(f"Report: {folder / 'report.html'}", soft_wrap=True, highlight=False)
    for line in failures_text(record):
        terminal.out.print(line, style="red", markup=False, soft_wrap=True)
    if record.failed:
        terminal.out.print(f"Errors: {folder / 'failures.log'}", soft_wrap=True, highlight=False)
        terminal.print_line(f"try them again with: {terminal.typed_command()}")
        raise typer.Exit(sv.SecureVFLError.exit_code)


@app.command("search")
def search_command(
    file: Annotated[Path, typer.Argument(help="A job file, TOML.")],
    space: Annotated[
        list[str],
        typer.Option(
            help="A setting and its possible values: algorithm.lr=0.0001..0.1:log, or batch_size=32,64; once per "
            "setting."
        ),
    ],
    trials: Annotated[int, typer.Option(help="Number of trials, including earlier ones in the folder.")] = 20,
    seeds: Annotated[int | None, typer.Option(help="Test runs of the winner; default: 5, or 1 with noise.")] = None,
    budget: Annotated[
        float | None, typer.Option(help="ε over all trials and the winner's runs; required if the job has noise.")
    ] = None,
    folder: Annotated[
        Path | None, typer.Option("--out", help="Folder for the trials; default: runs/<name>-search.")
    ] = None,
    workers: Annotated[int, typer.Option(help="Number of processes for trials, one thread each.")] = 1,
    pool: Annotated[
        str, typer.Option(help="Pool that runs trials instead of --workers: process:2, ray, ray:HOST:PORT.")
    ] = "",
    accept_leak: Annotated[bool, typer.Option("--accept-leak", help=terminal.ACCEPT_LEAK)] = False,
) -> None:
    """Search settings of a job file with Optuna, over its own tables, scored on validation rows. Resumes an interrupted
    search. Prints the winner as sections of a job file, and its metrics on the test rows.
    """
    from securevfl.experiments.search_space import read_space
    from securevfl.jobfile.toml_text import settings_text
    from securevfl.run.interrupts import handle_interrupts

    asked = read_space(space)
    job = sv.read_job(file, accept_leak=accept_leak)
    folder = folder or Path("runs") / f"{job.name}-search"
    with handle_interrupts(terminal.typed_command(), terminal.print_line), terminal.err.status("trying settings"):
        found = sv.search(
            job.job,
            job.parties,
            asked,
            trials=trials,
            seeds=seeds,
            budget=budget,
            folder=folder,
            workers=workers,
            pool=pool,
        )
    for table in found.tables():
        terminal.out.print(table)
    terminal.out.print(settings_text(found.best.settings), markup=False, highlight=False)
    for line in found.lines():
        terminal.out.print(line, markup=False, highlight=False, soft_wrap=True)


@app.command("attack")
def attack_command(
    job: Annotated[Path, typer.Argument(help="A job file, TOML; attacks are scored against its tables.")],
    folder: Annotated[
        Path | None, typer.Option("--out", help="Folder for results and page; default: runs/<name>-attacks.")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Fewer attacks; takes seconds.")] = False,
    seeds: Annotated[int, typer.Option(help="Runs of the job, starting at its own seed.", min=1, max=100)] = 1,
    accept_leak: Annotated[bool, typer.Option("--accept-leak", help=terminal.ACCEPT_LEAK)] = False,
) -> None:
    """Run a job with a recorder at each party, attack the recordings, and compare the results with the job's claims.

    For public or simulated data, because it needs all tables in one place. Exit code 3 if an attack succeeds where the
    job claims ok.
    """
    from securevfl.report import card_table
    from securevfl.run.interrupts import handle_interrupts

    file = sv.read_job(job, accept_leak=accept_leak)
    folder = folder or Path("runs") / f"{file.name}-attacks"
    with (
        handle_interrupts("", terminal.print_line, "attack results are saved only at the end; start again"),
        terminal.progress_bars() as bars,
    ):
        found = sv.attack(
            file.job,
            file.parties,
            seeds=range(file.job.seed, file.job.seed + seeds),
            quick=quick,
            name=file.name,
            command=terminal.typed_command(),
            observer=bars,
        )
    page = found.write(folder)
    if found.card is not None:
        terminal.out.print(card_table(found.card))
    terminal.out.print(found.table())
    for line in found.record.unstated:
        terminal.out.print(f"The job states nothing of this: {line}", style="yellow", markup=False, soft_wrap=True)
    for line in found.contradictions:
        terminal.out.print(f"The job calls this ok: {line}", style="red", markup=False, soft_wrap=True)
    terminal.out.print(f"Page: {page}", soft_wrap=True, highlight=False)
    if found.contradictions:
        raise typer.Exit(sv.PolicyError.exit_code)
