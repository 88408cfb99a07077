"""Two processes of a party, real ones over TLS: the second waits for the state folder and takes over from the first."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from support.served_processes import Running, ask, federation, post, run

import securevfl as sv
from securevfl.agreement import ServingTerms
from securevfl.errors import InputError, Parked
from securevfl.privacy import ResultBook
from securevfl.serving.settings import read_serving_file
from securevfl.serving.standby import Standby
from securevfl.testing.company import create_company
from securevfl.testing.parties import make_parties

pytest.importorskip("uvicorn")
pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="parties run as processes on Unix alone")

ROOT = Path(__file__).parents[2]


@pytest.fixture
def tools(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(ROOT))
    from benchmarks import serving, serving_soak

    return serving, serving_soak


def near(expected: Any) -> Any:
    """An answer is printed with six decimals."""
    return pytest.approx(expected, rel=0, abs=1e-6)


def test_the_second_process_answers_the_same_numbers_and_counts_nothing_too_low(tmp_path: Path, tools: Any) -> None:
    where, expected, words = federation(tmp_path, tools[0])
    names = sorted(expected)[:16]
    with ExitStack() as held:

        def start(name: str, *more: str) -> Running:
            return held.enter_context(run([*words[name], *more]))

        shop, bank = start("shop1"), start("bank")
        port = int(bank.wait_for(r"Questions: http://127\.0\.0\.1:(\d+)"))
        assert {name: ask(port, name) for name in names[:4]} == near({n: expected[n] for n in names[:4]})
        second, other = start("bank", "--standby"), start("shop1", "--standby")
        waiting = int(second.wait_for(r"Standby answers 503 at 127\.0\.0\.1:(\d+)"))
        other.wait_for(rf"standby: .* is in use by process {shop.started.pid}; this process takes over")
        assert post(waiting, "/healthz") == (200, {"alive": True, "standby": True}, "")
        assert post(port, "/healthz")[1] == {"alive": True, "standby": False}
        status, content, again = post(waiting, "/readyz")
        assert (status, content["ready"], again) == (503, False, "2")
        status, content, again = post(waiting, "/v1/score", {"customer": names[0]})
        assert (status, again) == (503, "2")
        assert "stands by" in content["reason"]
        assert names[0] not in json.dumps(content)

        bank.kill()
        began = time.monotonic()
        second_port = int(second.wait_for(r"Questions: http://127\.0\.0\.1:(\d+)"))
        refused: list[int] = []
        assert ask(second_port, names[4], refused) == near(expected[names[4]])
        print(f"the bank's second process answers after {time.monotonic() - began:.1f} s")
        got = {name: ask(second_port, name) for name in names[:8]}
        assert got == near({name: expected[name] for name in names[:8]})

        shop.kill()
        began = time.monotonic()
        assert ask(second_port, names[8], refused) == near(expected[names[8]])
        print(f"the shop's second process answers after {time.monotonic() - began:.1f} s")
        got = {name: ask(second_port, name) for name in names}
        assert got == near({name: expected[name] for name in names})
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
    from securevfl.serving.listening import AddressTaken

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


def test_a_standby_whose_files_name_another_folder_is_started_again(tmp_path: Path) -> None:
    """It has locked the one before: two processes could be on the new one, or on another agreement."""
    from securevfl.process.state_folder import StateFolder
    from securevfl.serving.process import run_server

    job = sv.Job(algorithm=sv.SplitNN(hidden=4, bottom=(3,)), protection=sv.Plain(), epochs=1, batch_size=16, seed=3)
    people = make_parties(passive=1, rows=60)
    company = create_company(tmp_path, people, job, serving=ServingTerms(asks=(people.active.name,)))
    name = people.active.name
    own = tmp_path / f"{name}.toml"
    waits: list[str] = []

    async def main() -> None:
        with ExitStack() as first:
            digest = company.agreement.digest
            first.enter_context(StateFolder.lock(tmp_path / f"{name}.state", party=name, agreement=digest))

            class Waiting(Standby):
                async def wait(self, why: InputError) -> None:
                    waits.append(why.args[0])
                    self.waited = True
                    own.write_text(own.read_text().replace(f"{name}.state", "moved.state"))
                    first.close()

            standby = Waiting(
                name,
                read_serving_file(None),
                http=False,
                metrics=None,
                version="1",
                say=lambda line: None,
                end=asyncio.Event(),
            )
            with pytest.raises(Parked, match="changed while it stood by"):
                async with run_server(company.agreement_file, name, own, standby=standby):
                    pass

    asyncio.run(main())
    assert len(waits) == 1
    assert not (tmp_path / "moved.state" / "serving").exists()
