"""Services around a party's process for its operator: logs, metrics, and clean stopping."""

from __future__ import annotations

import asyncio
import gc
import signal
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
from securevfl_crypto.engine import usable_cores

from securevfl.party_context import Observer
from securevfl.process.log_fields import LogFields
from securevfl.process.logs import EventLog, LogNews, LogObserver, Style, logging_to
from securevfl.process.metrics import TrainingMetrics, serve_metrics
from securevfl.process.traces import open_traces
from securevfl.run.events import RunEvents
from securevfl.run.machine import package_versions

__all__ = ["OperatorOutputs", "keep_to_quota", "open_outputs", "stop_on_signals"]

_DIGITS = 16
"""Digits of the agreement's digest in each log line."""


@dataclass(frozen=True)
class OperatorOutputs:
    """Outputs of a process for its operator.

    Attributes:
        log: for events that no receiver or observer reports.
        hearers: receivers of events, for callers that report events or need an observer.
        port: where metrics are; 0 where nobody asked for them.
    """

    log: EventLog
    hearers: tuple[RunEvents | Observer, ...]
    port: int


@contextmanager
def open_outputs(
    party: str,
    peers: Iterable[str],
    agreement: str,
    *,
    files: Iterable[Path] = (),
    screen: Style | None = "text",
    port: int | None = None,
    trace: bool = False,
) -> Iterator[OperatorOutputs]:
    """Log, show metrics and export traces as long as the block lasts.

    Args:
        party: whose process it is.
        peers: all others in the agreement.
        agreement: SHA-256 of the proposal, hexadecimal.
        files: for JSON lines; see `logging_to`.
        screen: format for standard error; None for no output.
        port: of metrics on the loopback address, 0 for a free one; None for no metrics.
        trace: whether to export traces; see `open_traces`.

    Raises:
        InputError: a file cannot be written, the port not be opened, or traces not be exported.
    """
    version = package_versions().get("securevfl", "0")
    fields = LogFields(party, peers)
    log = EventLog(fields, agreement=agreement[:_DIGITS])
    with ExitStack() as held:
        held.enter_context(logging_to(*files, screen=screen))
        metrics = None if port is None else TrainingMetrics(party, version)
        opened = 0 if metrics is None or port is None else held.enter_context(serve_metrics(metrics, port))
        if metrics is not None:
            log.write("listening", f"metrics are at http://127.0.0.1:{opened}/metrics", port=opened)
        more: list[RunEvents | Observer] = [] if metrics is None else [metrics]
        if trace:
            more.append(held.enter_context(open_traces(fields, agreement[:_DIGITS], version)))
        yield OperatorOutputs(log, (LogNews(log), LogObserver(log), *more), opened)


@contextmanager
def stop_on_signals(stop: Callable[[], None], log: EventLog | None = None) -> Iterator[list[signal.Signals]]:
    """SIGTERM and Ctrl-C call `stop` in the running event loop, once; another one of them ends the process as ever.

    Args:
        stop: ends the program in good order.
        log: receives the signal as an event.

    Returns:
        The signals that came.
    """
    loop, came, ours = asyncio.get_running_loop(), list[signal.Signals](), (signal.SIGTERM, signal.SIGINT)

    def end_on_signal(number: signal.Signals) -> None:
        came.append(number)
        for one in ours:
            loop.remove_signal_handler(one)
        if log is not None:
            log.write("stopping", f"{number.name}: the ledger is written, then the process ends", signal=number.name)
        stop()

    for one in ours:
        loop.add_signal_handler(one, end_on_signal, one)
    try:
        yield came
    finally:
        for one in ours:
            loop.remove_signal_handler(one)


def settle_collector() -> None:
    """Let the garbage collector leave alone what is there now, once a process has all that it will need for long.

    A collection of everything takes a tenth of a second, in which nobody is answered. Garbage is collected first.
    """
    gc.unfreeze()
    gc.collect()
    gc.freeze()


def keep_to_quota() -> int:
    """Let torch use no more threads than this process's control group has cores for; returns how many it uses."""
    torch.set_num_threads(min(torch.get_num_threads(), usable_cores()))
    return torch.get_num_threads()
