"""Commands of one party: take part in an agreement as a separate process, and show its status."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from securevfl.cli import terminal
from securevfl.cli.application import app

if TYPE_CHECKING:
    from securevfl.party_context import Observer
    from securevfl.process.launch import Start
    from securevfl.process.party_process import JobProcess
    from securevfl.report import Record
    from securevfl.run.events import RunEvents

__all__: list[str] = []


@app.command("party")
def party_command(
    agreement: Annotated[Path, typer.Argument(help="The agreement, with the approvals of all parties beside it.")],
    name: Annotated[str, typer.Option("--as", help="The party to run.")],
    file: Annotated[
        Path | None, typer.Option("--file", help="The party's own file; default: NAME.toml beside the agreement.")
    ] = None,
    wait: Annotated[
        float | None, typer.Option(help="Seconds to wait for peers while nothing runs; default: as agreed.")
    ] = None,
    stay: Annotated[
        float,
        typer.Option(help="Seconds that a party with its result stays for peers that have not confirmed it.", min=0),
    ] = 600.0,
    silence: Annotated[
        float, typer.Option(help="Seconds without a sign of life after which a peer counts as lost.", min=1)
    ] = 600.0,
    pool: Annotated[str, typer.Option(help=f"{terminal.POOL} Default: the party file's.")] = "",
    log: Annotated[
        Literal["text", "json"] | None, typer.Option(help="Print log lines instead of progress bars, as text or JSON.")
    ] = None,
    log_file: Annotated[
        Path | None, typer.Option(help="Additional file for JSON lines; the state folder always has log.jsonl.")
    ] = None,
    metrics: Annotated[int | None, typer.Option(help="Local port for Prometheus; 0 for any free port.")] = None,
    trace: Annotated[
        bool, typer.Option("--trace", help="Export OpenTelemetry traces without values, as the OTEL_… variables say.")
    ] = False,
    log_to: Annotated[list[str] | None, typer.Option("--log-to", help=terminal.LOG_TO)] = None,
    door: Annotated[int | None, typer.Option(hidden=True, help="Of the node that started it.")] = None,
) -> None:
    """Take part in an agreement: connect, agree, align, train. Start it again to resume.

    Exit code 0 when this party has its result, 75 when it stopped early and can be started again, and others when a
    person must act.
    """
    from dataclasses import replace

    from securevfl.process.door import follow_node
    from securevfl.process.launch import read_start
    from securevfl.process.operations import keep_to_quota, open_outputs
    from securevfl.report.loggers import open_logger

    keep_to_quota()
    start = replace(read_start(agreement, name, file), door=follow_node(door))
    style = log or (None if terminal.err.is_terminal else "text")
    state = start.own.state
    with (
        open_outputs(
            name,
            start.peers,
            start.agreement.digest,
            files=_log_files(state, log_file),
            screen=style,
            port=metrics,
            trace=trace,
        ) as told,
        _progress(bars=style is None) as bars,
        ExitStack() as logging,
    ):
        loggers = [logging.enter_context(open_logger(one)) for one in log_to or ()]
        party = start.run(
            wait=wait,
            stay=stay,
            silence=silence,
            pool=pool,
            hearers=[*told.hearers, *bars, *loggers],
            command=terminal.typed_command(),
            stopping=_stop_on_signal(told.log),
        )
        for one in loggers:
            if party is not None and party.record is not None:
                one.log_record(party.record)
    _say_results(start, party)


def _log_files(state: Path, other: Path | None) -> list[Path]:
    """Return the log files: the state folder's (created if missing) and the requested one."""
    from securevfl_net.durable import make_folder

    make_folder(state, private=True)
    return [state / "log.jsonl", *([] if other is None else [other])]


def _stop_on_signal(log: Any) -> Any:
    from securevfl.process.operations import stop_on_signals

    def stop_inside(party: JobProcess) -> AbstractContextManager[object]:
        return stop_on_signals(party.stop, log)

    return stop_inside


@contextmanager
def _progress(*, bars: bool) -> Iterator[list[RunEvents | Observer]]:
    """Show progress bars on a terminal; nothing if log lines are printed."""
    if not bars:
        yield []
        return
    from securevfl.process.progress import party_bars

    with party_bars(terminal.err) as shown:
        yield [shown]


def _say_results(start: Start, party: JobProcess | None) -> None:
    state, name = start.own.state, start.own.party
    if party is None:
        terminal.print_line(f"{name} already has its results, in {state}; another job needs another agreement.")
        return
    record = party.record
    for line in [] if record is None else _describe_quality(record):
        terminal.out.print(line, markup=False, highlight=False, soft_wrap=True)
    for line in (
        f"Report: {state / 'report' / 'report.html'}",
        f"Ledger: {state / 'ledgers' / f'{name}.jsonl'}",
        *([f"Model: {state / 'model' / f'{name}.model.safetensors'}"] if any((state / "model").iterdir()) else []),
    ):
        terminal.out.print(line, markup=False, highlight=False, soft_wrap=True)
    if party.unconfirmed:
        names = ", ".join(party.unconfirmed)
        terminal.print_line(f"Not confirmed by: {names}. If they still need {name}, start this command again.")


def _describe_quality(record: Record) -> list[str]:
    """Figures of the joint model on the test rows, and what joining was worth; empty at a party that has neither.

    Baselines come first in a record, so its first run is not the job's.
    """
    from securevfl.report.joined import joined_sentence

    joint = next((run for run in record.runs if not run.baseline and run.test), None)
    if joint is None:
        return []
    shown = ", ".join(f"{metric} {value:.4f}" for metric, value in joint.test.items())
    return [f"Test: {shown}", *filter(None, [joined_sentence(record)])]


@app.command("status")
def status_command(
    state: Annotated[Path, typer.Argument(help="The party's state folder.")],
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object, for scripts.")] = False,
) -> None:
    """Show a party's status: phase, peers, bytes, ε, and what it waits for. Also works after its end."""
    from securevfl.process.status import read_status
    from securevfl.process.status_table import status_lines, status_table

    found = read_status(state)
    if as_json:
        print(json.dumps(found, indent=1))
        return
    for line in status_lines(found):
        terminal.out.print(line, markup=False, highlight=False, soft_wrap=True)
    terminal.out.print(status_table(found))
