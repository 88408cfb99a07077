"""One run of parties with one fault: start them, harm them at the moment, restart them as their supervisor would."""

from __future__ import annotations

import heapq
import json
import os
import re
import resource
import shutil
import signal
import socket
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from benchmarks.faults.asking import ask_questions
from benchmarks.faults.expected import FAULTS, HOLD, REVOKED, SILENCE, STAY, WAIT, starts_again
from benchmarks.faults.links import Link, Links
from benchmarks.faults.party import Moment, Orders, run_party
from benchmarks.faults.spawning import open_files, run_copy

__all__ = ["Course", "Told"]

_RESTARTS = 6
_PAUSE = 0.1
_AFTER = 12.0
"""Seconds that peers have to end after a party ended for good."""


@dataclass
class Told:
    """What came of a run.

    Attributes:
        happened: whether the fault did.
        ended: whether everybody ended in time.
        seconds, cpu: of the run.
        codes: party → exit codes of its processes.
        texts: party → what its last process printed.
    """

    happened: bool = False
    ended: bool = False
    seconds: float = 0.0
    cpu: float = 0.0
    codes: dict[str, list[int]] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)
    left: list[str] = field(default_factory=list)


@dataclass
class _Party:
    """A party under its supervisor."""

    name: str
    file: str
    pid: int = 0
    starts: int = 0
    final: bool = False
    not_before: float = 0.0


class Course:
    """See the module.

    Args:
        source: folder with everything that the parties need; it is copied.
        folder: of this run.
        phase: whose command runs: ``"prediction"``, ``"serving"``, or any other for training.
        victim: whom the fault harms; empty for none.
        fault: its name.
        moment: when it happens.
        deadline: seconds in which everybody must end.
        patch: puts a known bug back, in every party.
    """

    def __init__(
        self,
        source: Path,
        folder: Path,
        *,
        phase: str,
        victim: str = "",
        fault: str = "",
        moment: Moment | None = None,
        deadline: float = 60.0,
        patch: Callable[[], None] | None = None,
    ) -> None:
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(source, folder)
        self.folder, self.phase, self.victim, self.fault = folder, phase, victim, fault
        self.moment, self.deadline, self.patch = moment, deadline, patch
        self.names = sorted(file.stem for file in folder.glob("*.csv") if (folder / f"{file.stem}.toml").exists())
        self._kept = open_files()
        self.links = Links()
        self.parties = {name: _Party(name, f"{name}.toml") for name in self.names}
        self.told = Told(codes={name: [] for name in self.names})
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0
        self._asker = 0
        self._others: list[int] = []
        self._set_ports()
        if fault == "folder restored":
            shutil.copytree(folder / f"{victim}.state", folder / "older")

    # --- before

    def _set_ports(self) -> None:
        ports = {name: _free_port() for name in self.names}
        for name in self.names:
            path = self.folder / f"{name}.toml"
            text = re.sub(
                r'^listen = ".*"', f'listen = "127.0.0.1:{ports[name]}"', path.read_text(), flags=re.MULTILINE
            )
            for peer in self.names:
                if peer < name:
                    link = self.links.add(name, peer, ports[peer])
                    text = re.sub(rf'(\[peer\.{peer}\]\ndial = )".*"', rf'\1"127.0.0.1:{link.port}"', text)
            path.write_text(text)
        self.http = _free_port()
        if self.phase == "serving":
            from securevfl.serving import make_token

            token = make_token(self.folder / "tokens.toml", "teller")
            self._ask = partial(ask_questions, self.folder, self.http, token)
            text = f'[http]\nlisten = "127.0.0.1:{self.http}"\nmetrics = "127.0.0.1:0"\ntokens = "tokens.toml"\n'
            (self.folder / "serving.toml").write_text(text)

    def _words(self, name: str, file: str) -> list[str]:
        if self.phase == "prediction":
            return ["predict", "agreement.toml", "--as", name, "--file", file, "--out", f"{name}.predictions.csv"]
        if self.phase == "serving":
            more = ["--serving", "serving.toml"] if name == "bank" else []
            return ["serve", "start", "agreement.toml", "--as", name, "--file", file, *more]
        more = ["--silence", str(SILENCE)] if self.fault == "program asleep" else []
        more += ["--wait", str(WAIT)] if self.fault.startswith("folder") or self.fault == "certificate revoked" else []
        more += ["--stay", str(STAY)] if self.fault == "certificate revoked" else []
        return ["party", "agreement.toml", "--as", name, "--file", file, *more]

    def _start(self, party: _Party) -> None:
        ours, theirs = socket.socketpair()
        struck = party.name == self.victim and not self.told.happened and party.file == f"{party.name}.toml"
        fault = FAULTS.get(self.fault)
        orders = Orders(
            name=party.name if party.file == f"{party.name}.toml" else f"{party.name}.copy",
            words=self._words(party.name, party.file),
            phase=self.phase if self.phase in ("prediction", "serving") else "",
            moment=self.moment if struck else None,
            fault=self.fault,
            files=self.folder,
            clock=0.0 if fault is None else fault.clock,
            patch=self.patch,
        )
        party.pid = run_party(orders, theirs, self._kept)
        party.starts += 1
        theirs.close()
        ours.setblocking(False)
        heard = bytearray()

        def read(_: int) -> None:
            try:
                data = ours.recv(4096)
            except BlockingIOError:
                return
            except OSError:
                data = b""
            if not data:
                self.links.selector.unregister(ours)
                ours.close()
                return
            heard.extend(data)
            while b"\n" in heard:
                line, _, rest = bytes(heard).partition(b"\n")
                heard[:] = rest
                self._harm(party, json.loads(line), ours)

        self.links.watch(ours, read)

    # --- the fault

    def _harm(self, party: _Party, asked: Mapping[str, object], sock: socket.socket) -> None:
        what, gate = str(asked["what"]), int(str(asked["gate"]))
        self.told.happened = True
        if what == "done itself":
            return

        def answer() -> None:
            with suppress(OSError):
                sock.send(b".")

        peer = str(asked["peer"]) or next(name for name in self.names if name != party.name)
        link = self.links.between(party.name, peer)
        if what in ("program stopped", "both stopped", "gate stopped", "program asleep"):
            stopped = [party.pid] if what == "program asleep" else []
            stopped += [party.pid] if what in ("program stopped", "both stopped") else []
            stopped += [gate] if what in ("gate stopped", "both stopped") else []
            for pid in stopped:
                with suppress(ProcessLookupError):  # at the last points of the end the gate is gone
                    os.kill(pid, signal.SIGSTOP)
            self._after(2 * SILENCE + 2 if what == "program asleep" else HOLD, partial(_continue, stopped))
            answer()
        elif what.startswith("link"):
            self._harm_link(what, link, party.name)
            answer()
        elif what == "disk full":
            party.not_before = time.monotonic() + HOLD
            self._after(HOLD, partial(_free_disk, party.pid))
            answer()
        elif what == "folder restored":
            os.kill(party.pid, signal.SIGKILL)
            state = self.folder / f"{party.name}.state"
            shutil.rmtree(state)
            shutil.copytree(self.folder / "older", state)
        elif what == "folder copied":
            self._start_copy(party)
            answer()
        elif what == "certificate deleted":
            for end in ("crt", "key"):
                (self.folder / "certs" / f"{party.name}.{end}").unlink()
            self.links.cut(link, 0.0)
            answer()
        elif what == "certificate rotated":
            words = ["certs", "rotate", party.name, "--signing-key", f"keys/{party.name}.key"]
            pid = run_copy(partial(_run_command, self.folder, [*words, "--agreement", "agreement.toml"]), self._kept)
            self._others.append(pid)
            self._when_ended(pid, answer)
        elif what == "certificate revoked":
            words = ["certs", "revoke", f"certs/{party.name}.crt", "--ca", "ca"]
            pid = run_copy(partial(_run_command, self.folder, words), self._kept)
            self._others.append(pid)
            self._when_ended(pid, partial(self._after, REVOKED, answer))
        else:
            raise ValueError(f"unknown fault {what!r}")

    def _harm_link(self, what: str, link: Link, name: str) -> None:
        if what == "link cut":
            self.links.cut(link, HOLD)
        elif what == "link torn":
            self.links.tear(link, 40)
        elif what == "link delayed":
            self.links.hold(link, HOLD)
        else:
            self.links.half_close(link, name)

    def _start_copy(self, party: _Party) -> None:
        """A second process of the party, on a copy of its folder, with files of its own."""
        shutil.copytree(self.folder / f"{party.name}.state", self.folder / f"{party.name}.copy.state")
        text = (self.folder / party.file).read_text()
        text = text.replace(f'state = "{party.name}.state"', f'state = "{party.name}.copy.state"')
        text = re.sub(r'listen = "127\.0\.0\.1:\d+"', f'listen = "127.0.0.1:{_free_port()}"', text)
        (self.folder / f"{party.name}.copy.toml").write_text(text)
        copy = _Party(party.name, f"{party.name}.copy.toml")
        self.parties[f"{party.name}.copy"] = copy
        self.told.codes[f"{party.name}.copy"] = []
        self._start(copy)

    # --- the run

    def run(self) -> Told:
        """Run until everybody ended, or the deadline."""
        began, used = time.monotonic(), _cpu_of_children()
        for party in self.parties.values():
            self._start(party)
        if self.phase == "serving":
            self._asker = run_copy(self._ask, self._kept)
        try:
            while not self.told.ended and time.monotonic() - began < self.deadline:
                self.links.run_once(0.02)
                self._run_timers()
                self._reap()
        finally:
            self._close()
        self.told.seconds = round(time.monotonic() - began, 2)
        self.told.cpu = round(_cpu_of_children() - used, 2)
        for name in self.told.codes:
            path = self.folder / f"{name}.out"
            self.told.texts[name] = path.read_text(errors="replace").rpartition("--- start")[2] if path.exists() else ""
        return self.told

    def _reap(self) -> None:
        now = time.monotonic()
        for name, party in self.parties.items():
            if party.pid:
                ended, status = os.waitpid(party.pid, os.WNOHANG)
                if ended:
                    code = os.waitstatus_to_exitcode(status)
                    party.pid = 0
                    self.told.codes[name].append(code)
                    self._decide(party, code, now)
            elif not party.final and now >= party.not_before:
                self._start(party)
        if self._asker:
            ended, status = os.waitpid(self._asker, os.WNOHANG)
            if ended:
                self._asker = 0
                for party in self.parties.values():
                    party.final = True
                    if party.pid:
                        os.kill(party.pid, signal.SIGTERM)
        legitimate = [self.parties[name] for name in self.names]
        down = [party for party in legitimate if party.final and not party.pid and self.told.codes[party.name][-1]]
        refused = bool(down) and self.fault in FAULTS and not FAULTS[self.fault].goes_on  # so nobody is answered
        # Somebody ended for good: its peers may wait for it, and are stopped after a time.
        if down and (refused or not self._asker):
            self._after_end()
        self.told.ended = not self._asker and all(party.final and not party.pid for party in self.parties.values())

    _ending = False

    def _after_end(self) -> None:
        if not self._ending:
            self._ending = True
            self._after(_AFTER, self._stop_rest)

    def _stop_rest(self) -> None:
        """Stop who still waits for a party that ended for good, as its operator would."""
        if self._asker:
            os.kill(self._asker, signal.SIGKILL)
        for name, party in self.parties.items():
            party.final = True
            if party.pid:
                self.told.left.append(name)
                os.kill(party.pid, signal.SIGTERM)

    def _decide(self, party: _Party, code: int, now: float) -> None:
        """What the unit of systemd does after an exit."""
        done = not starts_again(code) or code == 0 or party.final
        if done or party.starts > _RESTARTS:
            party.final = True
        else:
            party.not_before = max(party.not_before, now + _PAUSE)

    def _after(self, seconds: float, act: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._timers, (time.monotonic() + seconds, self._count, act))

    def _when_ended(self, pid: int, act: Callable[[], None]) -> None:
        if os.waitpid(pid, os.WNOHANG)[0]:
            self._others.remove(pid)
            act()
        else:
            self._after(0.02, partial(self._when_ended, pid, act))

    def _run_timers(self) -> None:
        while self._timers and self._timers[0][0] <= time.monotonic():
            heapq.heappop(self._timers)[2]()

    def _close(self) -> None:
        pids = [party.pid for party in self.parties.values() if party.pid]
        for pid in pids:
            with suppress(OSError):
                os.killpg(pid, signal.SIGKILL)
        for pid in [self._asker] if self._asker else []:
            os.kill(pid, signal.SIGKILL)
            pids.append(pid)
        for pid in [*pids, *self._others]:
            with suppress(ChildProcessError):
                os.waitpid(pid, 0)
        self.links.close()


def _continue(pids: list[int]) -> None:
    for pid in pids:
        with suppress(OSError):
            os.kill(pid, signal.SIGCONT)


def _free_disk(pid: int) -> None:
    with suppress(OSError):
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


def _run_command(folder: Path, words: list[str]) -> int:
    from securevfl import cli

    os.chdir(folder)
    with suppress(SystemExit):
        cli.main(words)
    return 0


def _cpu_of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])
