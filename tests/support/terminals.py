"""Type what a page says into the terminals of several companies, each in its own folder."""

from __future__ import annotations

import io
import json
import re
import shlex
import signal
import socket
import subprocess
import time
import urllib.request
from contextlib import chdir, redirect_stderr, redirect_stdout
from pathlib import Path

import pytest

from securevfl.cli import main
from support.processes import PythonProcess

__all__ = ["Terminals"]

_BLOCK = re.compile(r'^```(python|toml|console)(?: title="([^"]+)")?\n(.*?)^```', re.DOTALL | re.MULTILINE)
_TOGETHER = ("party", "predict")
"""Commands that all type at the same time, and wait for."""
_PATIENCE = 120


class Terminals:
    """The terminals of companies.

    Args:
        root: with a folder for each.
        ports: port of the page → a free one; found as pages need them.

    Attributes:
        said: the line as typed → what it said; of commands typed together ``"NAME command"``.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.said: dict[str, str] = {}
        self._ports: dict[str, str] = {}
        self._waiting: dict[str, PythonProcess] = {}
        self._serving: dict[str, PythonProcess] = {}
        self._run = ""

    def type_page(self, page: Path) -> None:
        """Type all blocks of a page in their order; files are written where their titles say."""
        for kind, title, text in _BLOCK.findall(page.read_text(encoding="utf-8")):
            content = re.sub(r"\b(7443|7444|8080|9465)\b", lambda found: self.free_port(found[1]), text)
            if kind == "toml":
                (self.root / title).write_text(content, encoding="utf-8")
            elif kind == "python":
                with chdir(self.root):
                    exec(compile(content, str(page), "exec"), {})  # noqa: S102 - the project's own page
            else:
                for line, shown in _split_lines(content):
                    self._type_line(line, shown)

    def close(self) -> None:
        """End what still runs."""
        for process in (*self._waiting.values(), *self._serving.values()):
            process.kill()
            process.wait()

    def free_port(self, name: str) -> str:
        """The port that stands for one of a page."""
        if name not in self._ports:
            with socket.socket() as found:
                found.bind(("127.0.0.1", 0))
                self._ports[name] = str(found.getsockname()[1])
        return self._ports[name]

    def _type_line(self, line: str, shown: list[str]) -> None:
        where, _, command = line.partition("$ ")
        words, folder = shlex.split(command), self.root / where
        if command == "^C":
            process = self._serving.pop(where)
            process.send_signal(signal.SIGINT)
            assert process.wait(_PATIENCE) == 75, self._read_said(where)
        elif words[0] == "curl":
            self.said[line] = _ask(words[2:], self._run)
        elif words[0] != "securevfl":
            subprocess.run(words, cwd=folder, check=True)
        elif words[1] == "serve" and words[2] != "add":
            self._serving[where] = _start(folder, words)
            self._await_served()
        elif words[1:3] == ["node", "run"]:
            self._serving[where] = _start(folder, words)
            self._await_line(where, '"listening"')
        elif words[1] in _TOGETHER:
            self._waiting[where] = _start(folder, words)
            if len(self._waiting) == 2:
                self._await_ends(words[1])
        else:
            self.said[line] = _type_until(folder, words, shown)
            if words[1:3] == ["serve", "add"]:
                self._run = self.said[line].split()[-1]
            if words[1:3] == ["certs", "rotate"] and where in self._serving:
                self._await_line(where, "is now in use")

    def _read_said(self, name: str) -> str:
        return (self.root / name / "said.txt").read_text(encoding="utf-8")

    def _await_served(self) -> None:
        """Wait until all that serve have a model, once two do."""
        end = time.monotonic() + _PATIENCE
        while len(self._serving) == 2 and not all("is served" in self._read_said(name) for name in self._serving):
            alive = all(process.poll() is None for process in self._serving.values())
            assert alive, [self._read_said(name) for name in self._serving]
            assert time.monotonic() < end, [self._read_said(name) for name in self._serving]
            time.sleep(0.1)

    def _await_line(self, name: str, words: str) -> None:
        end = time.monotonic() + _PATIENCE
        while words not in self._read_said(name):
            assert time.monotonic() < end, self._read_said(name)
            time.sleep(0.1)

    def _await_ends(self, command: str) -> None:
        running = dict(self._waiting)
        self._waiting.clear()
        deadline = time.monotonic() + _PATIENCE
        try:
            while any(process.poll() is None for process in running.values()):
                if time.monotonic() > deadline or any(process.poll() for process in running.values()):
                    break
                time.sleep(0.1)
            said = {name: self._read_said(name) for name in running}
            assert {name: process.poll() for name, process in running.items()} == dict.fromkeys(running, 0), said
        finally:
            for process in running.values():
                process.kill()
                process.wait()
        self.said |= {f"{name} {command}": text for name, text in said.items()}


def _type(folder: Path, words: list[str]) -> str:
    """A command in a folder, in this process; what it said."""
    said = io.StringIO()
    with chdir(folder), redirect_stdout(said), redirect_stderr(said), pytest.raises(SystemExit) as ended:
        main(words[1:])
    assert not ended.value.code, said.getvalue()
    return said.getvalue()


def _split_lines(text: str) -> list[tuple[str, list[str]]]:
    """The lines that somebody types, each with the lines that the page shows as its answer."""
    found: list[tuple[str, list[str]]] = []
    for line in text.splitlines():
        if re.match(r"\w*\$ ", line):
            found.append((line, []))
        else:
            found[-1][1].append(line)
    return found


def _type_until(folder: Path, words: list[str], shown: list[str]) -> str:
    """Type a command until it says what the page shows: the same words in a line, with more beside them perhaps.

    Only what looks at something is typed again.
    """
    end = time.monotonic() + 2 * _PATIENCE
    while True:
        said = _type(folder, words)
        lines = [set(line.split()) for line in said.splitlines()]
        if all(any(set(one.split()) <= line for line in lines) for one in shown):
            return said
        assert words[1:3] == ["node", "list"], said
        assert time.monotonic() < end, said
        time.sleep(0.2)


def _start(folder: Path, words: list[str]) -> PythonProcess:
    with (folder / "said.txt").open("wb") as file:
        return PythonProcess(["-m", *words], cwd=folder, output=file)


def _ask(words: list[str], run: str) -> str:
    """What ``curl -s`` prints: an address, perhaps with ``-H HEADER`` and ``-d BODY``; it must not be an error."""
    options = dict(zip(words[1::2], words[2::2], strict=True))
    body = options.get("-d", "").replace("RUN", run)
    assert not body or json.loads(body)
    name, _, value = options.get("-H", "accept: */*").partition(": ")
    asked = urllib.request.Request(words[0], data=body.encode() or None, headers={name: value})  # noqa: S310 - loopback
    with urllib.request.urlopen(asked, timeout=60) as answer:  # noqa: S310
        return str(answer.read().decode())
