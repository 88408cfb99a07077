"""The command line: `securevfl demo | check | policy | run | predict | sweep | attack | report | audit | keys | psi`.

Exit codes: 0 done; 1 an error of the toolkit itself; 2 what the user gave; 3 a policy forbids it, a protection did
not act, or an attack got what a job calls ok; 4 the parties have no common rows or do not agree; 5 a peer broke the
protocol; 6 a party failed; 7 out of the fixed-point range; 8 a ledger does not verify or is incomplete; 130
interrupted (Ctrl-C), 143 ended by SIGTERM.

A command imports what it needs when it runs: the help is there at once, and `securevfl psi` never loads torch.
"""

from __future__ import annotations

import csv
import io
import os
import shlex
import sys
import webbrowser
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from typer.core import TyperGroup

import securevfl as sv
from securevfl.durable import make_folder, write_whole
from securevfl.errors import InputError, SecureVFLError

if TYPE_CHECKING:
    from securevfl.jobs.folder import RunFolder
    from securevfl.report.progress import RunBars

__all__ = ["app", "main"]

_OVERWRITE = "Replace the results of a finished run in the folder."

app = typer.Typer(
    name="securevfl",
    help="Vertical federated learning that is private, provable and fast.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _console(*, stderr: bool = False) -> Console:
    """A console; wide where nobody looks (a file, a pipe) unless COLUMNS says otherwise."""
    console = Console(stderr=stderr)
    return console if console.is_terminal or "COLUMNS" in os.environ else Console(stderr=stderr, width=120)


out = _console()
err = _console(stderr=True)


class _PSICommands(TyperGroup):
    """The commands of `securevfl_psi`, loaded when one of them, or their help, is asked for."""

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        """The context of the loaded group, which takes the place of this one."""
        from securevfl_psi.command import app as commands

        whole = typer.Typer(rich_markup_mode=None)
        whole.add_typer(commands, name="psi")
        group: Any = typer.main.get_group(whole).commands["psi"]
        return group.make_context(info_name, args, parent=parent, **extra)


app.add_typer(
    typer.Typer(cls=_PSICommands, help="Which rows do two tables have in common, without showing the others?"),
    name="psi",
)


policies = typer.Typer(help="A party's own policy, in a file of its own.", no_args_is_help=True, rich_markup_mode=None)
app.add_typer(policies, name="policy")


def _bars() -> AbstractContextManager[RunBars]:
    from securevfl.report.progress import run_bars

    return run_bars(err)


def _run_folder(folder: Path | None, name: str, *, overwrite: bool) -> AbstractContextManager[RunFolder]:
    """The folder that was asked for, or one called after the run, with a number where another run is in the way."""
    from securevfl.jobs.folder import RunFolder

    numbered = folder is None and not overwrite
    return RunFolder.take(folder or Path("runs") / name, overwrite=overwrite, numbered=numbered)


def _open(page: Path) -> None:
    """Show the page in the browser where a person sits in front of one."""
    display = sys.platform == "darwin" or "DISPLAY" in os.environ or "WAYLAND_DISPLAY" in os.environ
    if out.is_terminal and display:
        webbrowser.open(page.resolve().as_uri())


def _show(result: sv.Result, folder: Path, page: Path) -> Path:
    from securevfl.report import (
        comparison_table,
        learned_table,
        ledgers_text,
        receipt_table,
        self_training_text,
        warnings_text,
        worst_text,
    )

    out.print(worst_text(result.record), soft_wrap=True)
    out.print(comparison_table(result.record))
    federated = [run for run in result.record.runs if not run.baseline]
    if federated:
        out.print(learned_table(result.record))
    for run in federated:
        out.print(receipt_table(run))
    if (labelled := self_training_text(result.record)) is not None:
        out.print(labelled, soft_wrap=True)
    if (warnings := warnings_text(result.record)) is not None:
        out.print(warnings, soft_wrap=True)
    out.print(f"Report: {page}", soft_wrap=True, highlight=False)
    if (signed := ledgers_text(result.record, folder)) is not None:
        out.print(signed, soft_wrap=True)
    return page


@app.command("demo")
def demo_command(
    full: Annotated[bool, typer.Option("--full", help="The whole table of 30,000 clients.")] = False,
    folder: Annotated[
        Path | None, typer.Option("--out", help="Where the report goes; runs/credit, or runs/credit-2 …, if not given.")
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help=_OVERWRITE)] = False,
    seed: Annotated[int, typer.Option(help="Seed of the data split and of all that is learned.")] = 0,
    bits: Annotated[int, typer.Option(help="Size of the Paillier key.")] = 2048,
    epsilon: Annotated[float, typer.Option(help="Privacy budget of the DP run.")] = 8.0,
) -> None:
    """A bank, a network and a retailer learn who will default: alone, pooled, plain, sealed, and with DP."""
    with _run_folder(folder, "credit", overwrite=overwrite) as place, _bars() as bars:
        result = sv.demo(
            full=full,
            seed=seed,
            bits=bits,
            epsilon=epsilon,
            command=_command(),
            observer=bars,
            ledgers=place.ledgers,
        )
        page = result.report(place.path)
    _open(_show(result, place.path, page))


@app.command("check")
def check_command(
    file: Annotated[Path, typer.Argument(help="A job file or a sweep file, TOML.")],
    active: Annotated[str, typer.Option(help="The active party, if its new table has no labels: to predict.")] = "",
) -> None:
    """List everything in a job that would fail before it runs: its file, its tables, its parties, their policies."""
    from securevfl.jobs import check_file

    found = check_file(file, active=active)
    for line in (*found.mistakes, *found.refusals):
        out.print(line, markup=False, highlight=False, soft_wrap=True)
    if found.exit_code:
        raise typer.Exit(found.exit_code)
    out.print(f"{file}: nothing to correct. {found.summary}", markup=False, highlight=False, soft_wrap=True)


@policies.command("check")
def policy_check_command(
    job: Annotated[Path, typer.Argument(help="A job file, TOML.")],
    policy: Annotated[Path, typer.Argument(help='A policy file, TOML: party = "…" and what it demands.')],
    active: Annotated[str, typer.Option(help="The active party, if its new table has no labels: to predict.")] = "",
) -> None:
    """Say what of a job a party's policy would refuse, and which change of the job would satisfy all parties."""
    from securevfl.jobs import check_policy

    found = check_policy(job, policy, active=active)
    for line in found.refusals:
        out.print(line, markup=False, highlight=False, soft_wrap=True)
    if not found.refusals:
        out.print(f"{found.party!r} accepts {job}.", markup=False, highlight=False, soft_wrap=True)
        return
    if found.cures:
        out.print("All parties would accept the job with one of these in it:")
    for cure in found.cures:
        out.print(f"  {cure}", markup=False, highlight=False, soft_wrap=True)
    if not found.cures:
        out.print("No change of protection, noise or bottoms that was tried satisfies all parties.")
    raise typer.Exit(found.exit_code)


@app.command("run")
def run_command(
    job: Annotated[Path, typer.Argument(help="A job file, TOML.")],
    folder: Annotated[
        Path | None,
        typer.Option("--out", help="Where the report goes; runs/<name>, or runs/<name>-2 …, if not given."),
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help=_OVERWRITE)] = False,
    checkpoints: Annotated[
        Path | None, typer.Option(help="Folder for the parties' checkpoints; a run that broke off goes on from there.")
    ] = None,
    policy: Annotated[
        list[Path] | None, typer.Option(help="A party's policy file; once for each. Added to what the job file says.")
    ] = None,
    draws: Annotated[
        int, typer.Option(help="Runs of a job with differential privacy, each with fresh noise; for public data.")
    ] = 1,
    keys: Annotated[
        Path | None,
        typer.Option(
            help="Folder with each party's key, made by `securevfl keys`; new keys for this run if not given."
        ),
    ] = None,
) -> None:
    """Run a job file with all parties in this process; the model goes to model/ beside the report."""
    from securevfl.jobs.interrupts import resumable

    file = sv.read_job(job, policies=policy or ())
    again = _command() if checkpoints else ""
    with (
        resumable(again, _say),
        _run_folder(folder, file.name, overwrite=overwrite) as place,
        _bars() as bars,
    ):
        result = sv.simulate(
            file.job,
            file.parties,
            baselines=file.baselines,
            name=file.name,
            command=_command(),
            observer=bars,
            checkpoints=checkpoints,
            draws=draws,
            keys=keys,
            ledgers=place.ledgers,
        )
        page = place.keep(result)
    _show(result, place.path, page)
    out.print(f"Predict with: securevfl predict {job} {place.model}", soft_wrap=True, highlight=False)


@app.command("predict")
def predict_command(
    job: Annotated[Path, typer.Argument(help="The job file that trained the model, with the new tables in it.")],
    model: Annotated[Path, typer.Argument(help="The model's folder, runs/<name>/model.")],
    file: Annotated[Path, typer.Option("--out", help="Where the predictions go, CSV.")] = Path("predictions.csv"),
    active: Annotated[str, typer.Option(help="The active party, if its new table has no labels.")] = "",
) -> None:
    """Predict on new rows with a trained model, all parties in this process."""
    from securevfl.jobs.folder import ledgers_kept

    content = sv.read_job(job, active=active)
    trained = sv.Model.load(model, content.job)
    with ledgers_kept(file.parent), err.status("aligning and predicting"):
        found = sv.predict(trained, content.parties)
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow(["id", *found.classes])
    for name, row in zip(found.ids, found.probabilities.tolist(), strict=True):
        writer.writerow([name, *(f"{value:.6f}" for value in row)])
    make_folder(file.parent)
    write_whole(file, text.getvalue().encode())
    out.print(f"{len(found.ids):,} rows that all parties hold: {file}", soft_wrap=True, highlight=False)


@app.command("sweep")
def sweep_command(
    file: Annotated[Path, typer.Argument(help="A sweep file, TOML: see examples/experiments.")],
    folder: Annotated[
        Path | None, typer.Option("--out", help="Where the results go; runs/<name> if not given.")
    ] = None,
    workers: Annotated[int, typer.Option(help="Processes, one thread each.")] = 1,
    device: Annotated[str, typer.Option(help="Where plain tensors live: cpu or cuda.")] = "cpu",
) -> None:
    """Run a grid of data sets, methods, positions and seeds; go on where an earlier run broke off."""
    from securevfl.report import sweep_table, verdict_table
    from securevfl.report.progress import sweep_bar

    sweep = sv.read_sweep(file, device=device)
    folder = folder or Path("runs") / sweep.name
    with sweep_bar(err, len(sweep.specs)) as show:
        record = sv.run_sweep(sweep, folder, workers=workers, command=_command(), progress=show)
    for name in dict.fromkeys(cell.data for cell in record.cells):
        out.print(sweep_table(record, name))
    if record.claims:
        out.print(verdict_table(record))
    out.print(f"Report: {folder / 'report.html'}", soft_wrap=True, highlight=False)


@app.command("report")
def report_command(folder: Annotated[Path, typer.Argument(help="The folder of a finished run.")]) -> None:
    """Show a finished run again, and write its page again."""
    from securevfl.report import (
        Record,
        comparison_table,
        ledgers_text,
        self_training_text,
        warnings_text,
        worst_text,
        write,
    )

    record = Record.read(folder / "metrics.json")
    out.print(worst_text(record), soft_wrap=True)
    out.print(comparison_table(record))
    if (labelled := self_training_text(record)) is not None:
        out.print(labelled, soft_wrap=True)
    if (warnings := warnings_text(record)) is not None:
        out.print(warnings, soft_wrap=True)
    out.print(f"Report: {write(record, folder)}", soft_wrap=True, highlight=False)
    if (signed := ledgers_text(record, folder)) is not None:
        out.print(signed, soft_wrap=True)


@app.command("attack")
def attack_command(
    job: Annotated[Path, typer.Argument(help="A job file, TOML; its tables are what attacks are scored by.")],
    folder: Annotated[
        Path | None, typer.Option("--out", help="Where figures and page go; runs/<name>-attacks if not given.")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Fewer attacks, in seconds.")] = False,
    seeds: Annotated[int, typer.Option(help="Runs of the job, from its own seed on.", min=1, max=100)] = 1,
) -> None:
    """Run a job with a recorder at each party and attack what they saw: what was got, beside what the job states.

    For data that are public or simulated: it needs all tables in one place. Exit code 3 if an attack gets what the job
    calls ok.
    """
    file = sv.read_job(job)
    folder = folder or Path("runs") / f"{file.name}-attacks"
    with _bars() as bars:
        found = sv.attack(
            file.job,
            file.parties,
            seeds=range(file.job.seed, file.job.seed + seeds),
            quick=quick,
            name=file.name,
            command=_command(),
            observer=bars,
        )
    page = found.write(folder)
    out.print(found.table())
    for line in found.record.unstated:
        out.print(f"The job states nothing of this: {line}", style="yellow", markup=False, soft_wrap=True)
    for line in found.contradictions:
        out.print(f"The job calls this ok: {line}", style="red", markup=False, soft_wrap=True)
    out.print(f"Page: {page}", soft_wrap=True, highlight=False)
    if found.contradictions:
        raise typer.Exit(sv.PolicyError.exit_code)


@app.command("audit")
def audit_command(
    folder: Annotated[Path, typer.Argument(help="The folder of a finished run.")],
    party: Annotated[str, typer.Option(help="Show this party only.")] = "",
    run: Annotated[str, typer.Option(help="Show this run only.")] = "",
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object, for scripts.")] = False,
    pin: Annotated[
        list[str] | None, typer.Option(help="PARTY=FINGERPRINT: the party's ledger has to be signed with this key.")
    ] = None,
    keys: Annotated[Path | None, typer.Option(help="A folder of public keys, PARTY.pub, to the same end.")] = None,
) -> None:
    """Verify the ledgers of a run: what left each party, what came, how it was protected, what its receiver can
    compute from it, and ε."""
    from securevfl.jobs.audit_tables import audit_json, audit_tables, summary

    whole = sv.audit(folder, pins=_pins(pin or []), keys=keys)
    shown = whole.of(party=party, run=run)
    if as_json:
        print(audit_json(shown))
        if whole.incomplete:
            raise typer.Exit(sv.AuditError.exit_code)
        return
    for table in audit_tables(shown):
        out.print(table)
        out.print()
    for line in summary(whole):
        out.print(line, markup=False, highlight=False, soft_wrap=True)
    if whole.incomplete:
        raise typer.Exit(sv.AuditError.exit_code)


def _pins(given: list[str]) -> dict[str, str]:
    pins: dict[str, str] = {}
    for text in given:
        party, sign, fingerprint = text.partition("=")
        if not sign or not fingerprint.startswith("ed25519:"):
            raise InputError(f"--pin is {text!r}; PARTY=FINGERPRINT was expected, for example bank=ed25519:x3Fq…")
        if pins.setdefault(party, fingerprint) != fingerprint:
            raise InputError(f"two fingerprints are pinned for {party!r}: give one")
    return pins


@app.command("keys")
def keys_command(
    name: Annotated[str, typer.Argument(help="The party whose key it is.")] = "",
    folder: Annotated[Path, typer.Option("--out", help="Where the key goes; only you may enter.")] = Path("keys"),
    show: Annotated[Path | None, typer.Option(help="Show the fingerprint of this .key or .pub file instead.")] = None,
) -> None:
    """Make a party's key, which signs its ledgers, and print the fingerprint that its peers pin."""
    from securevfl.data.table import wrong_name
    from securevfl.privacy.ledger import make_key, read_private_key, read_public_key

    if bool(name) == (show is not None):
        raise InputError("give the name of a party, to make its key, or --show FILE")
    if show is not None:
        public = read_public_key(show) if show.suffix == ".pub" else read_private_key(show).public
        out.print(f"{show.stem}={public.fingerprint}", markup=False, highlight=False, soft_wrap=True)
        return
    mistake = wrong_name(name)
    if mistake:
        raise InputError(mistake)
    key = make_key(name, folder)
    for line in (
        f"{folder / name}.key signs {name}'s ledgers: keep it to yourself. {folder / name}.pub is for your peers.",
        f"{name}={key.public.fingerprint}",
    ):
        out.print(line, markup=False, highlight=False, soft_wrap=True)


@app.callback(invoke_without_command=True)
def _version(
    version: Annotated[bool, typer.Option("--version", help="Show the version and exit.", is_eager=True)] = False,
) -> None:
    if version:
        typer.echo(f"securevfl {sv.__version__}")
        raise typer.Exit


def _say(line: str) -> None:
    err.print(line, markup=False, highlight=False, soft_wrap=True)


def _command() -> str:
    return shlex.join(["securevfl", *sys.argv[1:]])


def main(arguments: list[str] | None = None) -> None:
    """Entry point: runs the command, turns errors into one message and an exit code."""
    try:
        app(args=arguments, standalone_mode=True)
    except SecureVFLError as error:
        public = next(kind.__name__ for kind in type(error).__mro__ if kind.__module__ == SecureVFLError.__module__)
        err.print(f"[bold red]{public}[/]: ", end="")
        err.print(str(error), markup=False, highlight=False, soft_wrap=True)
        for note in getattr(error, "__notes__", []):
            err.print(f"  ({note})", markup=False, highlight=False, soft_wrap=True)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        err.print("interrupted")
        sys.exit(130)
    except OSError as error:
        wrapped = InputError(f"{error.strerror or error}: {error.filename or ''}")
        err.print(f"[bold red]InputError[/]: {wrapped}", highlight=False, soft_wrap=True)
        sys.exit(wrapped.exit_code)
