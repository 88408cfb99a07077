"""Two processes of a party, real ones over TLS: the second waits for the state folder and takes over from the first."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from support.companies import Companies
from support.servers import unlabelled

import securevfl as sv
from securevfl.agreement import ServingTerms
from securevfl.privacy import ResultBook
from securevfl.serving.settings import read_serving_file
from securevfl.testing.parties import make_parties

pytest.importorskip("uvicorn")
pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="parties run as processes on Unix alone")

ROOT = Path(__file__).parents[2]
PATIENCE = 300.0
"""Seconds; on an idle machine the test takes twenty."""


@pytest.fixture
def tools(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(ROOT))
    from benchmarks import serving, serving_soak

    return serving, serving_soak


class Running:
    """A process whose lines are read as they come."""

    def __init__(self, started: subprocess.Popen[str]) -> None:
        self.started = started
        self.lines: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        for line in self.started.stdout or ():
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
        if self.started.stdout is not None:
            self.started.stdout.close()

    def kill(self) -> None:
        os.kill(self.started.pid, signal.SIGKILL)
        self.started.wait()


@contextmanager
def run(words: list[str]) -> Iterator[Running]:
    environment = os.environ | {"PYTHONUNBUFFERED": "1", "OMP_NUM_THREADS": "1"}
    started = subprocess.Popen(
        [sys.executable, *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
    )
    running = Running(started)
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


def get(port: int, path: str, customer: str = "") -> tuple[int, dict[str, Any], str]:
    """Status, content and Retry-After; 0 where nobody listens."""
    data = json.dumps({"customer": customer}).encode() if customer else None
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}{path}", data=data, headers={"content-type": "application/json"}
    )
    try:
        with urllib.request.urlopen(request, timeout=60) as found:  # noqa: S310 - the test's own server
            return found.status, json.load(found), ""
    except urllib.error.HTTPError as error:
        return error.code, json.load(error), error.headers.get("Retry-After", "")
    except OSError:
        return 0, {}, ""


def ask(port: int, customer: str, refused: list[int] | None = None) -> float:
    """Ask until an answer comes; the answer."""
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        status, content, again = get(port, "/v1/score", customer)
        if status == 200:
            return float(content["probabilities"][1])
        assert status in (0, 503), content
        assert status == 0 or int(again) >= 1, "a client has to know when to ask again"
        if refused is not None:
            refused.append(status)
        time.sleep(0.05)
    raise AssertionError("no answer")


def federation(folder: Path, tools: Any) -> tuple[Companies, dict[str, float], dict[str, list[str]]]:
    """The companies, the score of each common customer, and the command of each party."""
    people = make_parties(passive=1, rows=200)
    where = Companies(folder, people, tools[0].KINDS["plain"], ServingTerms(asks=("bank",)))
    model = sv.simulate(where.proposal.job_of(), people).model()
    where.write_models(model.parts)
    wanted = sv.predict(model, sv.Parties(unlabelled(people), active="bank"))
    expected = dict(zip(wanted.ids, wanted.probabilities[:, 1].tolist(), strict=True))
    ports = tools[0].free_ports(where.names)
    words = {name: tools[0].party_command(where, name, ports) for name in where.names}
    return where, expected, words


def test_the_second_process_answers_the_same_numbers_and_counts_nothing_too_low(tmp_path: Path, tools: Any) -> None:
    where, expected, words = federation(tmp_path, tools)
    names = sorted(expected)[:16]
    with ExitStack() as held:

        def start(name: str, *more: str) -> Running:
            return held.enter_context(run([*words[name], *more]))

        shop, bank = start("shop1"), start("bank")
        port = int(bank.wait_for(r"Questions: http://127\.0\.0\.1:(\d+)"))
        assert {name: ask(port, name) for name in names[:4]} == pytest.approx({n: expected[n] for n in names[:4]})
        second, other = start("bank", "--standby"), start("shop1", "--standby")
        waiting = int(second.wait_for(r"Standby answers 503 at 127\.0\.0\.1:(\d+)"))
        other.wait_for(rf"standby: .* is in use by process {shop.started.pid}; this process takes over")
        assert get(waiting, "/healthz") == (200, {"alive": True, "standby": True}, "")
        assert get(port, "/healthz")[1] == {"alive": True, "standby": False}
        status, content, again = get(waiting, "/readyz")
        assert (status, content["ready"], again) == (503, False, "2")
        status, content, again = get(waiting, "/v1/score", names[0])
        assert (status, again) == (503, "2")
        assert "stands by" in content["reason"]
        assert names[0] not in json.dumps(content)

        bank.kill()
        began = time.monotonic()
        second_port = int(second.wait_for(r"Questions: http://127\.0\.0\.1:(\d+)"))
        refused: list[int] = []
        assert ask(second_port, names[4], refused) == pytest.approx(expected[names[4]])
        print(f"the bank's second process answers after {time.monotonic() - began:.1f} s")
        got = {name: ask(second_port, name) for name in names[:8]}
        assert got == pytest.approx({name: expected[name] for name in names[:8]})

        shop.kill()
        began = time.monotonic()
        assert ask(second_port, names[8], refused) == pytest.approx(expected[names[8]])
        print(f"the shop's second process answers after {time.monotonic() - began:.1f} s")
        got = {name: ask(second_port, name) for name in names}
        assert got == pytest.approx({name: expected[name] for name in names})
        other.wait_for("shop1 serves")

        # Every customer is in every count, each once, but for one that a kill may have cut off.
        for name in where.names:
            days = tools[1].count_days(tmp_path / name / f"{name}.results.days")
            assert len(days) == len(names)
            assert len(names) <= days.total() <= len(names) + 2
        book = ResultBook(tmp_path / "shop1" / "shop1.results.jsonl", party="shop1")
        found = book.count_opened(names, "bank")
        assert found.min() == 16, "as wide as the cut is"
        assert found.sum() in (16 * len(names), 16 * len(names) + 16)

        # A third one waits on; a signal ends it in good order, and another without the option is refused.
        third = start("bank", "--standby")
        third.wait_for("Standby answers 503")
        third.started.send_signal(signal.SIGTERM)
        assert third.started.wait(60) == 75
        refused_one = start("bank")
        assert refused_one.started.wait(120) != 0
        refused_one.wait_for("is in use by process")


def test_a_port_that_the_first_process_has_is_no_reason_to_end(tmp_path: Path) -> None:
    import socket

    from securevfl.errors import InputError
    from securevfl.serving.listening import AddressTaken
    from securevfl.serving.standby import Standby

    lines: list[str] = []

    async def main() -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            (tmp_path / "serving.toml").write_text(f'[http]\nlisten = "127.0.0.1:{port}"\n')
            file = read_serving_file(tmp_path / "serving.toml")
            shown = f"127.0.0.1:{port}"
            async with Standby(
                "bank", file, http=True, metrics=shown, version="1", say=lines.append, end=asyncio.Event()
            ) as standby:
                await standby.wait(InputError("state is in use by process 7: wait"))

    asyncio.run(main())
    assert lines[0] == "standby: state is in use by process 7; this process takes over when that one is gone"
    assert [line.partition(":")[0] for line in lines[1:]] == ["standby without metrics", "standby without HTTP"]
    assert issubclass(AddressTaken, InputError)


def test_a_waiting_process_shows_metrics_that_set_off_no_alert(tmp_path: Path) -> None:
    from securevfl.errors import InputError, Parked
    from securevfl.serving.standby import Standby

    async def main() -> None:
        end = asyncio.Event()
        async with Standby(
            "bank",
            read_serving_file(None),
            http=False,
            metrics="127.0.0.1:0",
            version="1",
            say=lambda line: None,
            end=end,
        ) as standby:
            await standby.wait(InputError("x"))
            families = {family.name: family.samples for family in standby._state.collect()}
            assert families["securevfl_standby"][0].value == 1
            assert "securevfl_ready" not in families
            end.set()
            with pytest.raises(Parked, match="while it stood by"):
                await standby.wait(InputError("x"))

    asyncio.run(main())
