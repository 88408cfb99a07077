"""Logs of a party's process, by the standard library's `logging`: JSON lines for tools, or text for people.

JSON lines contain the fields of `securevfl.process.log_fields` and nothing else. Text is for the terminal of the person
who runs the party: it may quote the party's own files or its peers.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from io import TextIOWrapper
from logging.handlers import WatchedFileHandler
from pathlib import Path
from typing import Any, Literal, TextIO

from securevfl.errors import InputError
from securevfl.party_context import Observer
from securevfl.process.log_fields import EVENTS, LogFields
from securevfl.run.events import RunEvents
from securevfl.transport import Scalar

__all__ = ["EventLog", "LogNews", "LogObserver", "logging_to"]

NAME = "securevfl"
"""Name of the logger."""

Style = Literal["json", "text"]


class EventLog:
    """Writes events.

    Args:
        fields: what may be written.
        always: fields of every line, for example the agreement's first digits.
    """

    def __init__(self, fields: LogFields, **always: Scalar) -> None:
        self._fields = fields
        self._always = always
        self._logger = logging.getLogger(NAME)

    def write(self, event: str, words: str = "", *, level: int = logging.INFO, **values: Any) -> None:
        """Write one event.

        Args:
            event: one of `EVENTS`.
            words: for people; never in a JSON line.
            level: of `logging`.
            values: see `securevfl.process.log_fields`; what may not be written is left out and counted.
        """
        name = self._fields.known_event(event)
        line = {"event": name, "party": self._fields.party, **self._fields.filter_values({**self._always, **values})}
        self._logger.log(level, words or EVENTS[name], extra={"line": line})

    def write_error(self, error: BaseException, exit_code: int) -> None:
        """Write that an error ended the process: its class and exit code. Its words are for people."""
        words = f"{type(error).__name__}: {error}"
        self.write("error", words, level=logging.ERROR, error=type(error).__name__, exit_code=exit_code)


class LogNews(RunEvents):
    """News of a runner, as events.

    Args:
        log: where they go.
    """

    def __init__(self, log: EventLog) -> None:
        self._log = log

    def report_event(self, what: str, words: str, **values: Scalar) -> None:
        """See `RunEvents.report_event`."""
        warns = what in ("down", "refused", "parked", "alone", "leaving", "left")
        level = logging.WARNING if warns else logging.INFO
        if what in ("waits", "leaving", "left"):  # its values are for whom, of whom, and for what
            self._log.write(what, words, level=level, peers=list(values))
        else:
            self._log.write(what, words, level=level, **values)


class LogObserver(Observer):
    """Phases and epochs of a run, as events: never a loss or a metric, which are made of labels.

    Args:
        log: where they go.
    """

    def __init__(self, log: EventLog) -> None:
        self._log = log
        self._began = time.monotonic()
        self._steps = 0

    def phase(self, name: str) -> None:
        self._began = time.monotonic()  # the first epoch lasts from here, not from the start of the process
        self._log.write("phase", f"{name} begins", phase=name)

    def step(self, epoch: int, done: int, total: int) -> None:
        self._steps += 1

    def epoch(self, epoch: int, loss: float, valid: dict[str, float]) -> None:
        now = time.monotonic()
        seconds = round(now - self._began, 3)
        words = f"epoch {epoch} ended after {seconds:.1f} s, {self._steps} steps so far"
        self._log.write("epoch", words, epoch=epoch, seconds=seconds, steps=self._steps)
        self._began = now


class _JSONFormat(logging.Formatter):
    """One JSON object per line. Of a library's own lines it keeps only the logger's name: their text may contain
    anything.
    """

    def format(self, record: logging.LogRecord) -> str:
        """See `logging.Formatter.format`."""
        line = getattr(record, "line", None)
        written: Mapping[str, object] = line if isinstance(line, Mapping) else {"event": "library"}
        when = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        return json.dumps({"time": when, "level": record.levelname.lower(), **written})


class _TextFormat(logging.Formatter):
    """For people: the time and the text, without control characters, with which a peer could forge lines."""

    def format(self, record: logging.LogRecord) -> str:
        """See `logging.Formatter.format`."""
        words = "".join(sign if sign.isprintable() else "·" for sign in record.getMessage())
        return f"{datetime.fromtimestamp(record.created).astimezone():%H:%M:%S}  {words}"


class _WarningOnce(logging.Handler):
    """Logs one short warning if it cannot write. A full disk does not stop training."""

    broken = False

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802
        """See `logging.Handler.handleError`."""
        error = sys.exc_info()[1]
        if not self.broken and sys.stderr is not None:
            print(f"the log cannot be written: {error}", file=sys.stderr)
        self.broken = True


class _File(_WarningOnce, WatchedFileHandler):
    """A file that only its owner may read, reopened after a log rotation moved it."""

    def _open(self) -> TextIOWrapper:
        opener = lambda path, flags: os.open(path, flags, 0o600)  # noqa: E731
        return open(self.baseFilename, "a", encoding="utf-8", opener=opener)


class _Stream(_WarningOnce, logging.StreamHandler[TextIO]):
    pass


@contextmanager
def logging_to(*files: Path, screen: Style | None = "text", stream: TextIO | None = None) -> Iterator[None]:
    """Log as long as the block lasts.

    Args:
        files: receive JSON lines, appended.
        screen: format for standard error; None for no output.
        stream: in place of the standard error.

    Raises:
        InputError: a file cannot be written.
    """
    handlers: list[logging.Handler] = []
    for file in files:
        try:
            handlers.append(_File(file))
        except OSError as error:
            raise InputError(f"{file} cannot be written ({error.strerror}): choose another file for the log") from None
        handlers[-1].setFormatter(_JSONFormat())
    if screen is not None:
        shown = _Stream(stream or sys.stderr)
        shown.setFormatter(_JSONFormat() if screen == "json" else _TextFormat())
        handlers.append(shown)
    own, root = logging.getLogger(NAME), logging.getLogger()
    before = own.level, own.propagate
    own.setLevel(logging.INFO)
    own.propagate = False
    for handler in handlers:
        own.addHandler(handler)
        root.addHandler(handler)  # libraries' warnings
    try:
        yield
    finally:
        own.setLevel(before[0])
        own.propagate = before[1]
        for handler in handlers:
            own.removeHandler(handler)
            root.removeHandler(handler)
            with suppress(OSError):  # a full disk: a warning was printed when the first line could not be written
                handler.close()
