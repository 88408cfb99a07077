"""Servers of all parties as real processes over TLS, and a client that asks them over HTTP."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

import securevfl as sv
from securevfl.agreement import ServingTerms
from securevfl.testing.parties import make_parties
from support.companies import Companies
from support.processes import PythonProcess
from support.servers import unlabelled

PATIENCE = 300.0
"""Seconds that a test waits at most, on however busy a machine."""


class Running:
    """A process whose lines are read as they come."""

    def __init__(self, started: PythonProcess, output: TextIO) -> None:
        self.started = started
        self.lines: list[str] = []
        self._output = output
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        for line in self._output:
            self.lines.append(line)

    def wait_for(self, pattern: str) -> str:
        """The first group of the first line that matches."""
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until:
            for line in list(self.lines):
                if found := re.search(pattern, line):
                    return found.group(1) if found.groups() else line
            if self.started.poll() is not None and not self._reader.is_alive():
                break
            time.sleep(0.05)
        raise AssertionError(f"no line {pattern!r} in {''.join(self.lines)}")

    def close(self) -> None:
        self._reader.join(30)
        self._output.close()

    def kill(self) -> None:
        os.kill(self.started.pid, signal.SIGKILL)
        self.started.wait()


@contextmanager
def run(words: Sequence[str]) -> Iterator[Running]:
    environment = os.environ | {"PYTHONUNBUFFERED": "1", "OMP_NUM_THREADS": "1"}
    output, written = os.pipe()
    with os.fdopen(written, "wb") as file:
        started = PythonProcess(list(words), output=file, env=environment)
    running = Running(started, os.fdopen(output, encoding="utf-8"))
    try:
        yield running
    finally:
        if started.poll() is None:
            started.terminate()
            try:
                started.wait(30)
            except subprocess.TimeoutExpired:
                started.kill()
                started.wait()
        running.close()


def post(port: int, path: str, content: object = None) -> tuple[int, dict[str, Any], str]:
    """Status, content and Retry-After; 0 where nobody listens. Asks with GET where there is nothing to send."""
    data = None if content is None else json.dumps(content).encode()
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}{path}", data=data, headers={"content-type": "application/json"}
    )
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE) as found:  # noqa: S310
            return found.status, json.load(found), ""
    except urllib.error.HTTPError as error:
        return error.code, json.load(error), error.headers.get("Retry-After", "")
    except OSError:
        return 0, {}, ""


def ask(port: int, customer: str, refused: list[int] | None = None) -> float:
    """Ask until an answer comes; the answer."""
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        status, content, again = post(port, "/v1/score", {"customer": customer})
        if status == 200:
            return float(content["probabilities"][1])
        assert status in (0, 503), content
        assert status == 0 or int(again) >= 1, "a client has to know when to ask again"
        if refused is not None:
            refused.append(status)
        time.sleep(0.05)
    raise AssertionError("no answer")


def scores_of_model(model: sv.Model, people: sv.Parties) -> dict[str, float]:
    """Customer that all parties have → the model's score, computed in one process."""
    wanted = sv.predict(model, sv.Parties(unlabelled(people), active="bank"))
    return dict(zip(wanted.ids, wanted.probabilities[:, 1].tolist(), strict=True))


def federation(folder: Path, tools: Any, rows: int = 200) -> tuple[Companies, dict[str, float], dict[str, list[str]]]:
    """The companies, the score of each common customer, and the command of each party.

    Args:
        folder: for all of it.
        tools: `benchmarks.serving`.
        rows: customers of the active party.
    """
    people = make_parties(passive=1, rows=rows)
    where = Companies(folder, people, tools.KINDS["plain"], ServingTerms(asks=("bank",)))
    model = sv.simulate(where.proposal.job_of(), people).model()
    where.write_models(model.parts)
    ports = tools.free_ports(where.names)
    words = {name: tools.party_command(where, name, ports) for name in where.names}
    return where, scores_of_model(model, people), words
