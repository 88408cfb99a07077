"""Commands of a party that predicts or serves with its partners: predict --as, serve, serve token, serve add."""

from __future__ import annotations

import asyncio
from contextlib import nullcontext
from dataclasses import replace
from datetime import date
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from securevfl_net.durable import make_folder, write_atomic
from typer.core import TyperGroup

from securevfl.cli import terminal
from securevfl.cli.application import app
from securevfl.cli.own_parts import common_scores, own_drift_line
from securevfl.cli.scores import describe_answers, describe_skipped, format_figures, scores_as_csv
from securevfl.errors import InputError, Parked

if TYPE_CHECKING:
    from securevfl.agreement import Agreement
    from securevfl.process.logs import EventLog
    from securevfl.serving.process import ServingProcess
    from securevfl.serving.process_tasks import Scored
    from securevfl.serving.standby import Standby

__all__ = ["predict_as"]

_FILE = "The party's own file, TOML; nobody else sees it."
_LOOK = 0.5


class _Serve(TyperGroup):
    """``securevfl serve AGREEMENT …`` is ``securevfl serve start AGREEMENT …``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Insert the default command name if none is given."""
        if args and args[0] not in self.commands and args[0] != "--help":
            args = ["start", *args]
        return super().parse_args(ctx, args)


serve = typer.Typer(
    cls=_Serve,
    help="Serve a trained model with the other parties: securevfl serve AGREEMENT --as PARTY --file PARTY.toml",
    no_args_is_help=True,
    rich_markup_mode=None,
)
app.add_typer(serve, name="serve")


def _say(line: str) -> None:
    terminal.out.print(line, markup=False, highlight=False, soft_wrap=True)


@serve.command("start")
def start_command(
    agreement: Annotated[Path, typer.Argument(help="The agreement of the model's training.")],
    party: Annotated[str, typer.Option("--as", help="The party to run.")],
    file: Annotated[Path, typer.Option(help=_FILE)],
    serving: Annotated[Path | None, typer.Option(help="The party's serving file, TOML: policy, HTTP, limits.")] = None,
    run: Annotated[str, typer.Option(help="The run of the first model to serve; default: the agreement's.")] = "",
    metrics: Annotated[
        int | None,
        typer.Option(help="Local port for Prometheus, 0 for any; at the active party in place of [http] metrics."),
    ] = None,
    trace: Annotated[
        bool, typer.Option("--trace", help="Export OpenTelemetry traces without values, as the OTEL_… variables say.")
    ] = False,
    standby: Annotated[
        bool,
        typer.Option("--standby", help="Wait while another process has the state folder; take over when it is gone."),
    ] = False,
    door: Annotated[int | None, typer.Option(hidden=True, help="Of the node that started it.")] = None,
) -> None:
    """Stay connected and take part in scoring; the active party answers HTTP. Ends with Ctrl-C or SIGTERM."""
    signals = asyncio.run(_start(agreement, party, file, serving, run, metrics, door, trace=trace, standby=standby))
    if signals:
        raise typer.Exit(Parked.exit_code)


async def _start(
    agreement: Path,
    party: str,
    file: Path,
    serving: Path | None,
    run: str,
    metrics: int | None,
    door: int | None,
    *,
    trace: bool,
    standby: bool,
) -> list[Any]:
    from securevfl.agreement import read_agreement, read_party_file
    from securevfl.process.door import follow_node
    from securevfl.process.operations import keep_to_quota, open_outputs, settle_collector, stop_on_signals
    from securevfl.run.events import RunEvents, SeveralReceivers
    from securevfl.serving.process import run_server

    keep_to_quota()
    whole, state = read_agreement(agreement), read_party_file(file).state
    make_folder(state, private=True)
    end = asyncio.Event()
    peers = [name for name in whole.proposal.party_names if name != party]
    with (
        open_outputs(party, peers, whole.digest, files=[state / "serving.jsonl"], screen="text", trace=trace) as told,
        stop_on_signals(end.set, told.log) as came,
    ):
        waiting = _stand_by(party, whole, serving, metrics, told.log, end) if standby else None
        async with (
            nullcontext() if waiting is None else waiting,
            run_server(
                agreement, party, file, serving=serving, run=run, door=follow_node(door), standby=waiting
            ) as process,
        ):
            if waiting is not None:
                await waiting.close()
            process.server.news = SeveralReceivers([one for one in told.hearers if isinstance(one, RunEvents)])
            process.server.settled = settle_collector
            await _serve_until_signal(process, end, metrics)
    return came


def _stand_by(
    party: str, agreement: Agreement, serving: Path | None, metrics: int | None, log: EventLog, end: asyncio.Event
) -> Standby:
    """What the process shows while another one has the state folder."""
    from securevfl.run.machine import package_versions
    from securevfl.serving.settings import read_serving_file
    from securevfl.serving.standby import Standby

    file, http = read_serving_file(serving), party == agreement.proposal.owner_names[0]
    shown = f"127.0.0.1:{metrics}" if metrics is not None else file.http.metrics if http else None
    version = package_versions().get("securevfl", "0")
    say = partial(log.write, "standby")
    return Standby(party, file, http=http, metrics=shown, version=version, say=say, end=end)


async def _serve_until_signal(process: ServingProcess, end: asyncio.Event, metrics: int | None) -> None:
    """Serve until a signal arrives or the server fails; requests in flight finish first."""
    from securevfl.serving.active import ServeActive
    from securevfl.serving.process_tasks import serve_http, show_metrics

    server = process.server
    listening = ", ".join(str(one) for one in getattr(server.mesh, "listening", ()))
    _say(f"{server.place.name} serves{f', and peers reach it at {listening}' if listening else ''}; Ctrl-C ends it.")
    async with process.running() as task:
        if isinstance(server, ServeActive):
            file = process.file
            if metrics is not None:
                file = replace(file, http=file.http.replace(metrics=f"127.0.0.1:{metrics}"))
            async with serve_http(server, file, process.bounds) as (address, shown):
                _say(f"Questions: {address}")
                if shown:
                    _say(f"Metrics: {shown}")
                await _wait_for_either(task, end)
        elif metrics is not None:
            async with show_metrics(server, metrics, process.bounds) as shown:
                _say(f"Metrics: {shown}")
                await _wait_for_either(task, end)
        else:
            await _wait_for_either(task, end)


async def _wait_for_either(task: asyncio.Task[None], end: asyncio.Event) -> None:
    waiting = asyncio.ensure_future(end.wait())
    try:
        await asyncio.wait({task, waiting}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        waiting.cancel()
    if task.done():
        task.result()


@serve.command("token")
def token_command(
    client: Annotated[str, typer.Argument(help="The client that will use it: a lower-case word.")],
    file: Annotated[Path, typer.Option(help="The file with the digests of tokens.")] = Path("tokens.toml"),
    scope: Annotated[list[str] | None, typer.Option(help="score, status or admin; default: score.")] = None,
    expires: Annotated[str, typer.Option(help="Its last valid day: 2027-03-31.")] = "",
) -> None:
    """Make a client's token and print it once; the file contains only its digest."""
    from securevfl.serving.tokens import SCOPES, make_token

    wrong = [one for one in scope or () if one not in SCOPES]
    if wrong:
        raise InputError(f"--scope is {wrong[0]!r}; one of {', '.join(SCOPES)} was expected")
    try:
        last = date.fromisoformat(expires) if expires else None
    except ValueError:
        raise InputError(f"--expires is {expires!r}; expected a day: 2027-03-31") from None
    scopes = tuple(one for one in SCOPES if one in (scope or ["score"]))
    token = make_token(file, client, scopes, expires=last)
    print(token)
    terminal.print_line(
        f"{file} contains its digest. It is shown only once: give it to {client!r} over a secure channel."
    )


@serve.command("add")
def add_command(
    part: Annotated[Path, typer.Argument(help="The party's part of a new model, or its folder.")],
    agreement: Annotated[Path, typer.Option(help="The agreement under which the party serves.")],
    file: Annotated[Path, typer.Option(help=_FILE)],
) -> None:
    """Add the party's part of a new model next to the one being served; activate it over HTTP once all parties have
    theirs.
    """
    from securevfl.agreement import read_agreement, read_party_file
    from securevfl.serving.process import put_part

    own = read_party_file(file)
    job = read_agreement(agreement).proposal.job_of()
    found = put_part(own.state / "serving", part, own.party, job)
    _say(f"{own.party} has its part of run {found.run}")


def predict_as(
    agreement: Path,
    party: str,
    file: Path,
    data: Path | None,
    out: Path,
    *,
    everyone: bool = False,
    skip_spent: bool = False,
    ask_again: bool = False,
    labels: bool = True,
) -> None:
    """Take part in a prediction as one party. The active party writes the scores to `out`; with `everyone`, also those
    of its other rows, which it scores alone. With `labels`, figures are printed if its table has labels. See
    `predict_all` for the other options.
    """

    def write_scores(found: Scored) -> None:
        make_folder(out.parent)
        used = found.used if everyone else None
        content = scores_as_csv(found.classes, found.ids, found.probabilities, used, found.skipped)
        write_atomic(out, content, private=True)

    found, was_over = asyncio.run(
        _predict_rows(
            agreement,
            party,
            file,
            data,
            everyone=everyone,
            skip_spent=skip_spent,
            ask_again=ask_again,
            deliver=write_scores,
        )
    )
    if was_over:
        _say(f"The prediction was over when the process of {party} was killed; if it asked, {out} has the scores.")
        return
    scored = None if found is None else common_scores(found)
    if drifted := own_drift_line(agreement, file, party, data, scored):
        _say(drifted)
    if found is None:
        _say(f"{party} took part; the active party has the scores.")
        return
    alone = sum(len(names) == 1 for names in found.used)
    more = f" that all parties have, and {alone:,} scored by {party} alone" if everyone else " that all parties have"
    together = len(found.ids) - alone
    _say(f"{together:,} {'row' if together == 1 else 'rows'}{more}: {out}")
    _say(describe_answers(found.kept, found.older, found.asked, found.numbers))
    if found.skipped:
        _say(describe_skipped(found.refused, len(found.skipped), out))
    if labels:
        _show_own_figures(agreement, party, file, data, found)


def _show_own_figures(agreement: Path, party: str, file: Path, data: Path | None, found: Scored) -> None:
    """Print figures of scored rows by the labels of the party's own table, if it has some."""
    import numpy as np

    from securevfl.agreement import read_agreement, read_party_file
    from securevfl.jobfile.new_tables import read_own_labels
    from securevfl.report.decision_words import evaluation_lines
    from securevfl.run.judging import judge_scores, read_cutoff
    from securevfl.run.scored_labels import measure_scores

    own, job = read_party_file(file), read_agreement(agreement).proposal.job_of()
    section, grouping = None if own.data is None else own.data.with_task(job.task), own.report.grouping(party)
    if section is None or not found.ids:
        return
    try:
        table = read_own_labels(section, data, own.folder, party, beside="" if grouping is None else grouping[1])
    except (
        InputError
    ) as error:  # the scores are written, and were counted: labels that are not known yet are no failure
        _say(f"No figures by the labels of these rows: {error}")
        return
    if table is None:
        return
    at = {name: row for row, name in enumerate(table.ids)}
    rows, scores = np.array([at[name] for name in found.ids], dtype=np.int64), np.array(found.probabilities)
    figures, why = measure_scores(job, {"names": found.classes}, table, rows, scores)
    _say(f"By the labels of these rows: {format_figures(figures)}" if figures else why)
    if not figures:
        return
    cutoff = read_cutoff(own.state / "report")
    judged = judge_scores(found.classes, found.ids, scores, table, own.report, cutoff=cutoff)
    for line in [] if judged is None else evaluation_lines(judged):
        _say(line)


async def _predict_rows(
    agreement: Path, party: str, file: Path, data: Path | None, **options: Any
) -> tuple[Scored | None, bool]:
    """The scores, and whether the prediction was over before this process began."""
    from securevfl.process.operations import keep_to_quota, stop_on_signals
    from securevfl.serving.process import run_server
    from securevfl.serving.process_tasks import predict_all

    keep_to_quota()
    end = asyncio.Event()
    with stop_on_signals(end.set):
        async with run_server(agreement, party, file, data=data, once=True) as process, process.running() as task:
            working = asyncio.ensure_future(predict_all(process.server, task, **options))
            waiting = asyncio.ensure_future(end.wait())
            await asyncio.wait({working, waiting}, return_when=asyncio.FIRST_COMPLETED)
            waiting.cancel()
            if not working.done():
                working.cancel()
                raise Parked(f"{party!r} was stopped before the prediction was done; start it again")
            return working.result(), process.server.was_over
