"""Commands of one job with all parties in this process: demo, check, run, predict, report."""

from __future__ import annotations

from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from securevfl_net.durable import make_folder, write_atomic

import securevfl as sv
from securevfl.cli import terminal
from securevfl.cli.application import app
from securevfl.cli.own_parts import read_own_table
from securevfl.cli.results import show_one_screen, show_run, show_statistics, show_tables
from securevfl.cli.scores import describe_answers, describe_skipped, format_figures, scores_as_csv
from securevfl.cli.serving import predict_as

if TYPE_CHECKING:
    from securevfl.jobfile.drafting import Draft
    from securevfl.jobfile.job_file import JobFile
    from securevfl.run.run_folder import RunFolder

__all__ = ["find_model"]

_STATE_MARK = "incarnation.json"
"""A file that every party's state folder has."""
_OVERWRITE = "Replace the results of a finished run in the folder."


def run_folder(folder: Path | None, name: str, *, overwrite: bool) -> AbstractContextManager[RunFolder]:
    """Return the requested folder, or one named after the run, numbered if another run is there."""
    from securevfl.run.run_folder import RunFolder

    numbered = folder is None and not overwrite
    return RunFolder.lock(folder or Path("runs") / name, overwrite=overwrite, numbered=numbered)


@app.command("demo")
def demo_command(
    full: Annotated[bool, typer.Option("--full", help="Use the full table of 30,000 clients.")] = False,
    every: Annotated[
        bool, typer.Option("--all", help="Also CKKS, BFV, Paillier and DP on networks; print every table.")
    ] = False,
    folder: Annotated[
        Path | None, typer.Option("--out", help="Folder for the report; default: runs/credit, or runs/credit-2 ….")
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help=_OVERWRITE)] = False,
    seed: Annotated[int, typer.Option(help="Seed of the data split and of training.")] = 0,
    bits: Annotated[int, typer.Option(help="Size of the Paillier key.")] = 2048,
    epsilon: Annotated[float, typer.Option(help="Privacy budget of the DP runs of --all.")] = 8.0,
) -> None:
    """A bank, a network and a retailer predict who will default: a network and boosted trees, each on secret shares and
    plain, and an additive model at ε = 1."""
    with run_folder(folder, "credit", overwrite=overwrite) as place, terminal.progress_bars() as bars:
        result = sv.demo(
            full=full,
            every=every,
            seed=seed,
            bits=bits,
            epsilon=epsilon,
            command=terminal.typed_command(),
            observer=bars,
            ledgers=place.ledgers,
        )
        page = result.report(place.path)
    if every:
        show_tables(result, place.path, page)
    else:
        show_one_screen(result, page)
    terminal.open_page(page)


@app.command("init")
def init_command(
    tables: Annotated[
        list[Path], typer.Argument(help="One table per party: CSV, Parquet or Arrow. With --card, only your own.")
    ],
    file: Annotated[
        Path | None, typer.Option("--out", help="The file to write; default: job.toml, or with --card PARTY.toml.")
    ] = None,
    id: Annotated[
        list[str] | None,
        typer.Option(
            "--id",
            help="The column that joins the tables, or PARTY.COLUMN for each; guessed by default. Repeat for several.",
        ),
    ] = None,
    label: Annotated[
        list[str] | None,
        typer.Option(
            "--label", help="The label, COLUMN or PARTY.COLUMN; guessed by default. Repeat for several labels."
        ),
    ] = None,
    algorithm: Annotated[
        str,
        typer.Option(
            help="What is trained, such as boosting; how long follows from it and the rows. Default: a scorecard for "
            "two tables of 4,000 rows or more and a label of two values, else a network."
        ),
    ] = "",
    card: Annotated[
        list[Path] | None,
        typer.Option("--card", help="Another party's card: draft your own party file to match it. Once per party."),
    ] = None,
    name: Annotated[str, typer.Option("--name", help="With --card: this party's name; default: the table's.")] = "",
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an existing file.")] = False,
) -> None:
    """Draft a job file from tables, or with --card your own party file: identifiers, label and preparation, each guess
    with its reason."""
    from securevfl.jobfile.drafting import draft_job

    if card:
        _init_party(tables, card, file, name=name, id=id, label=label, overwrite=overwrite)
        return
    if name:
        raise sv.InputError(f"--name {name} is this party's name, for --card; a job file names parties by their tables")
    file = file or Path("job.toml")
    _refuse_existing(file, overwrite=overwrite)
    _write_draft(draft_job(tables, file.parent, id=id or (), label=label or (), algorithm=algorithm), file)


def _init_party(
    tables: list[Path],
    cards: list[Path],
    file: Path | None,
    *,
    name: str,
    id: list[str] | None,
    label: list[str] | None,
    overwrite: bool,
) -> None:
    from datetime import UTC, datetime

    from securevfl.agreement import draft_party, read_card

    if len(tables) != 1:
        raise sv.InputError(f"{len(tables)} tables with --card: give this party's own; the others' stay with them")
    draft = draft_party(
        tables[0],
        [read_card(path) for path in cards],
        Path() if file is None else file.parent,
        now=datetime.now(UTC),
        name=name,
        id=id or (),
        label=label or (),
    )
    file = file or Path(f"{draft.party}.toml")
    _refuse_existing(file, overwrite=overwrite)
    for line in draft.notes:
        terminal.out.print(line, markup=False, highlight=False, soft_wrap=True)
    _write_draft(draft, file)


def _refuse_existing(file: Path, *, overwrite: bool) -> None:
    if file.exists() and not overwrite:
        raise sv.InputError(f"{file} already exists: choose another --out, or replace it with --overwrite")


def _write_draft(draft: Draft, file: Path) -> None:
    """Write a draft; print what was found and what to fill in."""
    write_atomic(file, draft.text.encode())
    for line in draft.found:
        terminal.out.print(line, markup=False, highlight=False, soft_wrap=True)
    for line in draft.missing:
        terminal.out.print(f"fill in: {line}", style="yellow", markup=False, highlight=False, soft_wrap=True)
    gaps = " It has FILL IN where nothing could be guessed." if draft.missing else ""
    wrote = f"Wrote {file}.{gaps} Read it, then: securevfl check {file}"
    terminal.out.print(wrote, markup=False, highlight=False, soft_wrap=True)


@app.command("check")
def check_command(
    file: Annotated[Path, typer.Argument(help="A job file, a sweep file, or a party's own file, TOML.")],
    active: Annotated[str, typer.Option(help="For prediction: the active party, if its new table has no labels.")] = "",
    accept_leak: Annotated[bool, typer.Option("--accept-leak", help=terminal.ACCEPT_LEAK)] = False,
) -> None:
    """Before a job runs, list everything that would fail: its file, tables, parties and policies."""
    from securevfl.checks import check_file

    found = check_file(file, active=active, accept_leak=accept_leak)
    if found.tables:
        from securevfl.report import overview_table

        terminal.out.print(overview_table(found.tables))
    for end in found.certificates:
        style = "yellow" if end.ends_soon else None
        terminal.out.print(str(end), style=style, markup=False, highlight=False, soft_wrap=True)
    for line in (*found.mistakes, *found.refusals):
        terminal.out.print(line, markup=False, highlight=False, soft_wrap=True)
    for line in found.hints:
        terminal.out.print(f"likely not meant: {line}", style="yellow", markup=False, highlight=False, soft_wrap=True)
    if found.exit_code:
        raise typer.Exit(found.exit_code)
    if found.card is not None:
        from securevfl.report import card_table

        terminal.out.print(card_table(found.card))
    terminal.out.print(f"{file}: nothing to correct. {found.summary}", markup=False, highlight=False, soft_wrap=True)


@app.command("run")
def run_command(
    job: Annotated[Path, typer.Argument(help="A job file, TOML.")],
    folder: Annotated[
        Path | None,
        typer.Option("--out", help="Folder for the report; default: runs/<name>, or runs/<name>-2 …."),
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help=_OVERWRITE)] = False,
    checkpoints: Annotated[
        Path | None, typer.Option(help="Folder for the parties' checkpoints; an interrupted run resumes from there.")
    ] = None,
    policy: Annotated[
        list[Path] | None, typer.Option(help="A party's policy file; once per party. Added to the job file's policies.")
    ] = None,
    draws: Annotated[
        int, typer.Option(help="Runs of a job with differential privacy, each with fresh noise; for public data.")
    ] = 1,
    keys: Annotated[
        Path | None,
        typer.Option(help="Folder with each party's key, made by `securevfl keys`; default: new keys for this run."),
    ] = None,
    pool: Annotated[str, typer.Option(help=f"{terminal.POOL} Default: the job file's.")] = "",
    folds: Annotated[
        int | None, typer.Option(help="Cross-validate with this many folds, 2 or more; default: the job file's.")
    ] = None,
    start: Annotated[
        Path | None, typer.Option("--from", help="The folder of an earlier run: training goes on from its model.")
    ] = None,
    accept_leak: Annotated[bool, typer.Option("--accept-leak", help=terminal.ACCEPT_LEAK)] = False,
    log_to: Annotated[list[str] | None, typer.Option("--log-to", help=terminal.LOG_TO)] = None,
) -> None:
    """Run a job file with all parties in this process; the model goes to model/ beside the report."""
    from securevfl.process.observers import SeveralObservers
    from securevfl.report.loggers import open_logger
    from securevfl.run.interrupts import handle_interrupts

    file, written = sv.read_job(job, policies=policy or (), accept_leak=accept_leak), job.read_bytes()
    again = terminal.typed_command() if checkpoints else ""
    if folds is not None or file.folds is not None:
        if start is not None:
            raise sv.InputError("--from goes on with one model, and cross-validation trains one a fold: leave one out")
        if log_to:
            raise sv.InputError(
                "--log-to follows one run, and folds are several: leave --log-to out, or run the job once"
            )
        _run_folds(file, folds or file.folds or 0, folder, overwrite, checkpoints, draws, keys, pool)
        return
    with (
        handle_interrupts(
            again, terminal.print_line, "a run with --checkpoints FOLDER resumes after its last completed epoch"
        ),
        run_folder(folder, file.name, overwrite=overwrite) as place,
        ExitStack() as logging,
        terminal.progress_bars() as bars,
    ):
        loggers = [logging.enter_context(open_logger(one)) for one in log_to or ()]
        result = sv.simulate(
            file.job.replace(pool=pool) if pool else file.job,
            file.parties,
            baselines=file.baselines,
            name=file.name,
            title=file.title,
            command=terminal.typed_command(),
            observer=SeveralObservers([bars, *loggers]) if loggers else bars,
            checkpoints=checkpoints,
            draws=draws,
            keys=keys,
            ledgers=place.ledgers,
            start=None if start is None else _load_start(start),
        )
        for one in loggers:
            one.log_record(result.record)
        page = place.write_result(result, parties=file.parties, job_file=written)
    if file.job.algorithm.describes:
        show_statistics(result, place.path, page)
        return
    show_run(result, place.path, page)
    terminal.out.print(f"Predict with: {_predict_line(file, place)}", soft_wrap=True, highlight=False, markup=False)


def _load_start(run: Path) -> sv.Model:
    """The model of an earlier run, from its folder."""
    from securevfl.jobfile.new_tables import read_trained_job

    written, place, _ = find_model(run, None)
    return sv.Model.load(place, read_trained_job(written).job)


def _predict_line(file: JobFile, place: RunFolder) -> str:
    """The command that scores new rows with a run's model."""
    if not all(table.source for table in file.parties.values()):
        return f"securevfl predict {place.path}"  # a named data set
    return f"securevfl predict {place.path} {' '.join(f'--data {name}=NEW' for name in file.parties)}"


def _run_folds(
    file: JobFile,
    folds: int,
    folder: Path | None,
    overwrite: bool,
    checkpoints: Path | None,
    draws: int,
    keys: Path | None,
    pool: str,
) -> None:
    """Cross-validate a job file and print the mean over its folds."""
    with run_folder(folder, file.name, overwrite=overwrite) as place, terminal.progress_bars() as bars:
        found = sv.cross_validate(
            file.job.replace(pool=pool) if pool else file.job,
            file.parties,
            folds=folds,
            baselines=file.baselines,
            name=file.name,
            title=file.title,
            command=terminal.typed_command(),
            observer=bars,
            checkpoints=checkpoints,
            draws=draws,
            keys=keys,
        )
        page = found.report(place.path)
    for table in found.tables():
        terminal.out.print(table)
    terminal.out.print(f"Report: {page}; that of each fold is beside it, in fold-1 to fold-{folds}", soft_wrap=True)


@app.command("predict")
def predict_command(
    job: Annotated[
        Path,
        typer.Argument(help="The folder of a run, or the job file that trained the model; with --as, the agreement."),
    ],
    model: Annotated[
        Path | None, typer.Argument(help="With a job file: the model's folder, runs/<name>/model; not with --as.")
    ] = None,
    file: Annotated[Path, typer.Option("--out", help="File for the predictions, CSV.")] = Path("predictions.csv"),
    data: Annotated[
        list[str] | None,
        typer.Option(
            help="A party's new table, PARTY=FILE, in place of the job file's; once for each party. "
            "It may lack the labels. With --as: FILE."
        ),
    ] = None,
    active: Annotated[str, typer.Option(help="The active party, if the job file names no label.")] = "",
    no_labels: Annotated[
        bool, typer.Option("--no-labels", help="Do not read labels that the new table has, so print no figures.")
    ] = False,
    party: Annotated[str, typer.Option("--as", help="Take part as only this party, over the network.")] = "",
    own: Annotated[
        Path | None,
        typer.Option("--file", help="With --as: the party's own file; default: NAME.toml beside the agreement."),
    ] = None,
    everyone: Annotated[
        bool,
        typer.Option(
            "--everyone",
            help="Score all rows of the active party, each by the parties that have it, listed in the column "
            "'parties'.",
        ),
    ] = False,
    skip_spent: Annotated[
        bool,
        typer.Option(
            "--skip-spent", help="Leave out the rows about which a party answers nothing more, and list them unscored."
        ),
    ] = False,
    ask_again: Annotated[
        bool,
        typer.Option(
            "--ask-again", help="Ask about rows whose answers you hold, too; that costs numbers as a new question does."
        ),
    ] = False,
) -> None:
    """Predict on new rows with a trained model: all parties in this process, or with --as one of them."""
    if party:
        table = read_own_table(party, data or [])
        if model is not None:
            raise sv.InputError(
                "--as takes the agreement and --file PARTY.toml; the model is in the party's state folder"
            )
        own = own or job.with_name(f"{party}.toml")
        predict_as(
            job,
            party,
            own,
            table,
            file,
            everyone=everyone,
            skip_spent=skip_spent,
            ask_again=ask_again,
            labels=not no_labels,
        )
        return
    if own is not None:
        raise sv.InputError("--file is a party's own file: name the party with --as, or leave --file out")
    from securevfl.jobfile.new_tables import read_trained_job, split_data_options
    from securevfl.run.interrupts import handle_interrupts
    from securevfl.run.run_folder import keep_ledgers

    written, place, kept = find_model(job, model)
    content, given = read_trained_job(written), split_data_options(data or [])
    trained = sv.Model.load(place, content.job)
    tables = content.read_tables(trained, given, active=active, labels=not no_labels, kept=kept)
    for line in tables.notes:
        terminal.err.print(line, style="yellow", markup=False, highlight=False, soft_wrap=True)
    with (
        handle_interrupts("", terminal.print_line, "no predictions were written; start it again"),
        keep_ledgers(file.parent),
        terminal.err.status("aligning and predicting"),
    ):
        found = sv.predict(
            trained,
            tables.parties,
            everyone=everyone,
            answers=place / "answers",
            results=place / "results" if any(one.writes_bound for one in content.job.policies.values()) else None,
            skip_spent=skip_spent,
            ask_again=ask_again,
        )
    make_folder(file.parent)
    used = found.used if everyone else None
    content_of_file = scores_as_csv(found.classes, found.ids, found.probabilities.tolist(), used, found.skipped)
    write_atomic(file, content_of_file)
    _show_prediction(found, file)
    _show_quality(found, tables.parties, content.job, place)
    _show_drift(trained, tables.parties, found)


def _show_drift(model: sv.Model, parties: sv.Parties, found: sv.Prediction) -> None:
    """Print a line a party: how many of its columns moved since training, and whether scores did."""
    from securevfl.run.drifting import column_drift, describe_drift, score_drift

    for name, table in parties.items():
        part = model.parts[name]
        score = score_drift(part, found.steps[0].probabilities) if name == parties.active.name else None
        drifted = column_drift(part, table)
        if drifted is not None:
            terminal.out.print(describe_drift(name, drifted, score), soft_wrap=True, highlight=False, markup=False)


def find_model(job: Path, model: Path | None) -> tuple[Path, Path, bool]:
    """Return the job file, the model's folder, and whether the file is the copy that a run left.

    Raises:
        InputError: neither a run's folder nor a job file and a model's.
    """
    from securevfl.run.run_folder import JOB_FILE

    if model is not None:
        return job, model, False
    if not job.is_dir():
        raise sv.InputError(
            f"give the folder of a run, or a job file and the model's folder, such as {job} runs/NAME/model; "
            "or the agreement with --as PARTY"
        )
    place = job / "model" if (job / "model").is_dir() else job
    if not (place / JOB_FILE).exists() and _has_statistics(job):
        raise sv.InputError(
            f"{job} has statistics of columns, which produce no model: name the run of an algorithm that trains one"
        )
    if not (place / JOB_FILE).exists() and (job / _STATE_MARK).exists():
        raise sv.InputError(
            f"{job} is a party's state folder: give the agreement, with the party's own file (--file PARTY.toml), or "
            "to predict with --as PARTY"
        )
    if not (place / JOB_FILE).exists():
        raise sv.InputError(
            f"{job} holds no {JOB_FILE}, which `securevfl run` leaves beside the model: name the job file and the "
            f"model's folder, job.toml {place}"
        )
    return place / JOB_FILE, place, True


def _has_statistics(folder: Path) -> bool:
    """Whether a run, or a party of it, computed statistics of columns: only the active party has their figures."""
    from securevfl.report import Record
    from securevfl.training.algorithm import find_algorithm

    for place in (folder, folder / "report"):
        try:
            algorithm = Record.read(place / "metrics.json").job.get("algorithm")
            return isinstance(algorithm, dict) and find_algorithm(str(algorithm.get("name"))).describes
        except sv.InputError:
            continue
    return False


def _show_prediction(found: sv.Prediction, file: Path) -> None:
    """Print what was scored by whom, at what cost, and figures where there are labels."""
    for step in found.steps:
        why = f" ({step.why})" if step.why else ""
        cost = f"; {step.messages:,} messages, {step.bytes:,} bytes: {step.tells}" if step.messages else ", no message"
        line = f"{len(step.rows):,} rows by {' and '.join(step.parties)}{cost}{why}"
        terminal.out.print(line, soft_wrap=True, highlight=False, markup=False)
    if found.metrics:
        figures = f"By the labels of these rows: {format_figures(found.metrics)}"
        terminal.out.print(figures, soft_wrap=True, highlight=False, markup=False)
    if found.unmeasured:
        terminal.print_line(found.unmeasured)
    terminal.out.print(f"{len(found.ids):,} rows: {file}", soft_wrap=True, highlight=False)
    if found.kept:
        terminal.print_line(describe_answers(found.kept, 0, found.asked, found.numbers))
    if found.skipped:
        terminal.print_line(describe_skipped(found.refused, len(found.skipped), file))


def _show_quality(found: sv.Prediction, parties: sv.Parties, job: sv.Job, model: Path) -> None:
    """Print how good the predictions are, where the tables have labels; at the cut-off that the model's run chose."""
    from securevfl.report.decision_words import evaluation_lines
    from securevfl.run.judging import judge_prediction, read_cutoff

    judged = judge_prediction(found, parties, job.report, cutoff=read_cutoff(model.parent))
    for line in [] if judged is None else evaluation_lines(judged):
        terminal.print_line(line)


@app.command("report")
def report_command(folder: Annotated[Path, typer.Argument(help="The folder of a finished run.")]) -> None:
    """Show a finished run and rewrite its page; with attacks.json in the folder, the card includes attack results."""
    from securevfl.report import (
        Record,
        attacks_beside,
        cards_text,
        choice_text,
        comparison_table,
        decision_text,
        importance_beside,
        ledgers_text,
        self_training_text,
        warnings_text,
        worst_text,
        write_report,
    )

    record = Record.read(folder / "metrics.json")
    attacked = attacks_beside(folder)
    page = write_report(
        record, folder, attacked, importance_beside(folder)
    )  # first: a reader such as `head` may close what is printed to
    terminal.out.print(cards_text(record, attacked))
    terminal.out.print(worst_text(record), soft_wrap=True)
    terminal.out.print(comparison_table(record))
    if (decided := decision_text(record)) is not None:
        terminal.out.print(decided, soft_wrap=True)
    if (chosen := choice_text(record)) is not None:
        terminal.out.print(chosen, soft_wrap=True)
    if (labelled := self_training_text(record)) is not None:
        terminal.out.print(labelled, soft_wrap=True)
    if (warnings := warnings_text(record)) is not None:
        terminal.out.print(warnings, soft_wrap=True)
    terminal.out.print(f"Report: {page}", soft_wrap=True, highlight=False)
    if (signed := ledgers_text(record, folder)) is not None:
        terminal.out.print(signed, soft_wrap=True)


@app.command("runs")
def runs_command(
    folders: Annotated[list[Path], typer.Argument(help="Folders of finished runs.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print the figures as JSON.")] = False,
    page: Annotated[
        Path | None, typer.Option("--html", help="Write a page; runs that differ only by seed share one line.")
    ] = None,
) -> None:
    """Compare finished runs, one line per run and folder."""
    import json

    from securevfl.report import Record
    from securevfl.report.runs_table import runs_rows, runs_table

    records, wrong, others = {}, [], []
    for folder in folders:
        if folder.exists() and not (folder / "metrics.json").exists():
            others.append(str(folder))  # of a sweep, a search, attacks: they lie among runs
            continue
        try:
            records[str(folder)] = Record.read(folder / "metrics.json")
        except sv.InputError as error:
            wrong.append(str(error))
    if not records and not wrong:
        raise sv.InputError(f"no metrics.json in {', '.join(others)}: name folders of finished runs, e.g. runs/credit")
    if wrong:
        raise sv.InputError("\n  ".join(wrong))
    if others:
        terminal.print_line(f"Skipped folders without a finished run: {', '.join(others)}")
    if as_json:
        terminal.out.print(json.dumps(runs_rows(records), indent=2), soft_wrap=True, highlight=False, markup=False)
    else:
        terminal.out.print(runs_table(records))
    if page is not None:
        from securevfl.report.runs_page import write_runs

        terminal.print_line(f"Page: {write_runs(records, page)}")
