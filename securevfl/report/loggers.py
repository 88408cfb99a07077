"""Loggers of experiments: MLflow and TensorBoard receive what a report shows, while a run goes and at its end.

A logger gets numbers that the party's own report has: the loss and the validation metrics of each epoch, the settings
of the job, and the final figures. No identifier, score, label or other row of anybody reaches it. At a passive party,
whose report has no metrics, it gets settings, seconds, bytes and ε.
"""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol, Self

from securevfl.errors import InputError
from securevfl.party_context import Observer
from securevfl.report.derived import epsilon_of
from securevfl.report.record import Record, RunRecord

__all__ = ["Logger", "MLflow", "TensorBoard", "Writer", "open_logger"]

_LONGEST = 250
"""Most characters of a setting: what MLflow takes of a parameter."""


class Writer(Protocol):
    """Where one run's numbers go."""

    def write_number(self, name: str, value: float, step: int) -> None:
        """Write a finite number of an epoch, or with step 0 of the whole run."""

    def write_settings(self, settings: Mapping[str, str]) -> None:
        """Write the settings of the job, by name."""

    def close(self, *, failed: bool) -> None:
        """Write everything, and end; `failed` if the run did not end well."""


class Logger(Observer):
    """Receives the events of a run or of a comparison, and their record at the end; a writer for each run.

    A writer that fails ends nobody's training: one warning, and this logger writes no more.

    Use it as a context, which closes the writers:

    ```python
    with sv.loggers.TensorBoard("runs/board") as logger:
        logger.log_record(sv.simulate(job, parties, observer=logger).record)
    ```

    Args:
        open_writer: makes the writer of a run, by a name of letters, digits, ``-`` and ``_``.
    """

    def __init__(self, open_writer: Callable[[str], Writer]) -> None:
        self._open = open_writer
        self._writers: dict[str, Writer] = {}
        self._name = "train"
        self._live: set[str] = set()
        self._broken = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        self.close(failed=kind is not None)

    def run(self, title: str) -> None:
        self._name = _plain_name(title)

    def epoch(self, epoch: int, loss: float, valid: dict[str, float]) -> None:
        self._live.add(self._name)
        if not self._broken:  # a server that is gone would be waited for after each epoch
            with self._going_on():
                self._write_epoch(self._writer(self._name), epoch, loss, valid)

    def log_record(self, record: Record) -> None:
        """Write the settings and the final figures of every run; epochs, too, of runs that this logger did not follow.

        Args:
            record: of a result, or a party's own report.
        """
        settings = dict(_flatten(record.job))
        for run in record.runs:
            names = [name for name in (_plain_name(run.title), _plain_name(run.key)) if name in self._live]
            with self._going_on():
                writer = self._writer(names[0] if names else _plain_name(run.key))
                for one in () if names else run.epochs:
                    self._write_epoch(writer, one.epoch, one.train_loss, one.valid)
                writer.write_settings(settings | {"run": run.title[:_LONGEST], "record": record.title[:_LONGEST]})
                for figure, value in _final_figures(run):
                    if math.isfinite(value):
                        writer.write_number(figure, value, 0)

    def close(self, *, failed: bool = False) -> None:
        """Close the writers.

        Args:
            failed: whether the run did not end well.
        """
        for writer in self._writers.values():
            with self._going_on():
                writer.close(failed=failed)
        self._writers.clear()

    @contextmanager
    def _going_on(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # of any library: a full disk, a server that is gone
            if self._broken:
                return
            self._broken = True
            line = (str(error).splitlines() or [""])[0][:_LONGEST]
            warnings.warn(f"{type(self).__name__} logs no more: {type(error).__name__}: {line}", stacklevel=3)

    def _writer(self, name: str) -> Writer:
        if name not in self._writers:
            self._writers[name] = self._open(name)
        return self._writers[name]

    def _write_epoch(self, writer: Writer, epoch: int, loss: float | None, valid: Mapping[str, float]) -> None:
        known = math.nan if loss is None else loss
        for name, value in {"loss": known, **{f"valid/{name}": value for name, value in valid.items()}}.items():
            if math.isfinite(value):  # a party that learns no loss has none
                writer.write_number(name, value, epoch)


class TensorBoard(Logger):
    """Write for TensorBoard: ``tensorboard --logdir FOLDER``.

    Args:
        folder: for the event files, with a folder of its own for each run.

    Raises:
        InputError: the package is not installed.
    """

    def __init__(self, folder: str | Path) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise InputError('this logger needs TensorBoard: pip install "securevfl[tensorboard]"') from None
        place = Path(folder)
        super().__init__(lambda name: _BoardWriter(SummaryWriter(str(place / name))))


class MLflow(Logger):
    """Write to MLflow: a run of the experiment for each run.

    Args:
        uri: of the tracking server, or ``sqlite:///FILE``; what MLflow's environment names unless given.
        experiment: its name; made if it is not there.

    Raises:
        InputError: the package is not installed, or the server cannot be reached.
    """

    def __init__(self, uri: str = "", *, experiment: str = "securevfl") -> None:
        try:
            from mlflow import MlflowClient
            from mlflow.exceptions import MlflowException
        except ImportError:
            raise InputError('this logger needs MLflow: pip install "securevfl[mlflow]"') from None
        try:
            client = MlflowClient(tracking_uri=uri or None)
            found = client.get_experiment_by_name(experiment)
            number = client.create_experiment(experiment) if found is None else found.experiment_id
        except (MlflowException, OSError, ImportError) as error:
            line = (str(error).splitlines() or [type(error).__name__])[0]
            where = re.sub(r"//[^/@]*@", "//", uri) or "its default place"  # without a user's name and password
            line = line.replace(uri, where) if uri else line
            raise InputError(f"MLflow at {where} cannot be used: {line}") from None
        super().__init__(lambda name: _MLflowWriter(client, client.create_run(number, run_name=name).info.run_id))


def open_logger(where: str) -> Logger:
    """Make the logger of a command's option ``--log-to``.

    Args:
        where: ``tensorboard:FOLDER``, or ``mlflow:URI``.

    Raises:
        InputError: neither, or what the logger raises.
    """
    kind, _, place = where.partition(":")
    if kind == "tensorboard" and place:
        return TensorBoard(place)
    if kind == "mlflow":
        return MLflow(place)
    raise InputError(f"--log-to is {where!r}; expected tensorboard:FOLDER or mlflow:URI")


class _BoardWriter:
    def __init__(self, writer: Any) -> None:
        self._writer = writer

    def write_number(self, name: str, value: float, step: int) -> None:
        self._writer.add_scalar(name, value, step)

    def write_settings(self, settings: Mapping[str, str]) -> None:
        lines = [f"| {name} | {value} |" for name, value in settings.items()]
        self._writer.add_text("settings", "\n".join(["| setting | value |", "|---|---|", *lines]))

    def close(self, *, failed: bool) -> None:
        self._writer.close()


class _MLflowWriter:
    def __init__(self, client: Any, run: str) -> None:
        self._client, self._run = client, run

    def write_number(self, name: str, value: float, step: int) -> None:
        self._client.log_metric(self._run, name, value, step=step)

    def write_settings(self, settings: Mapping[str, str]) -> None:
        for name, value in settings.items():
            self._client.log_param(self._run, name, value)

    def close(self, *, failed: bool) -> None:
        self._client.set_terminated(self._run, status="FAILED" if failed else "FINISHED")


def _plain_name(title: str) -> str:
    return re.sub(r"[^A-Za-z0-9]+", "-", title).strip("-") or "run"


def _flatten(settings: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, str]]:
    """Name → text of each setting that is a number, a word or a list of them."""
    for name, value in settings.items():
        if isinstance(value, Mapping):
            yield from _flatten(value, f"{before}{name}.")
        elif value is not None and value != "":
            yield f"{before}{name}", str(value)[:_LONGEST]


def _final_figures(run: RunRecord) -> Iterator[tuple[str, float]]:
    for name, value in run.test.items():
        yield f"test/{name}", value
    yield "seconds", run.seconds
    yield "best epoch", run.best_epoch
    if run.links:
        yield "bytes", sum(link.bytes for link in run.links)
    epsilon = epsilon_of(run)
    if epsilon is not None:
        yield "epsilon", epsilon
