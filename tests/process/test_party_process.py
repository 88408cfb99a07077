"""`securevfl party` as a process: ended by SIGTERM in mid-training, started again, and its status before and after."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
from pathlib import Path

import pytest
from support.processes import PythonProcess
from typer.testing import CliRunner

import securevfl as sv
from securevfl.cli import app
from securevfl.party_context import Observer, PartySecret
from securevfl.process.status import read_status
from securevfl.run.model_parts import model_part
from securevfl.run.store import read_tree, tree_digest
from securevfl.testing.company import Company, create_company
from securevfl.testing.parties import make_parties


class _Ends(Observer):
    """Sends SIGTERM to a process when an epoch ends, once."""

    def __init__(self, process: list[PythonProcess]) -> None:
        self._process = process
        self._sent = False

    def epoch(self, epoch: int, loss: float, valid: dict[str, float]) -> None:
        if epoch == 2 and not self._sent:
            self._sent = True
            os.kill(self._process[0].pid, signal.SIGTERM)


def test_a_party_that_is_ended_by_sigterm_goes_on(tmp_path: Path) -> None:
    job = sv.Job(protection=sv.Plain(), algorithm=sv.SplitNN(hidden=4), epochs=12, batch_size=16, seed=3)
    company = create_company(tmp_path, make_parties(passive=2, rows=120), job)
    secrets = {name: PartySecret.from_seed(7, name) for name in company.people}
    company.store_secrets(secrets)
    processes: list[PythonProcess] = []
    told: list[str] = []
    before: list[dict[str, object]] = []

    async def shop2() -> None:
        for _ in range(2):
            process = await asyncio.to_thread(PythonProcess, company.command("shop2")[1:])
            processes.append(process)
            out, err = await asyncio.to_thread(process.communicate)
            told.append(out + err)
            before.append(read_status(company.state_folder("shop2")))

    company.over_network(["bank", "shop1"], hearers={"bank": [_Ends(processes)]}, beside=shop2)
    assert [process.returncode for process in processes] == [75, 0], told
    assert (before[0]["phase"], before[0]["alive"]) == ("parked", False)
    assert before[1]["phase"] == "done"
    assert before[1]["attempt"] in (2, 3)  # a busy machine may lose a link once more
    assert "start it again" in told[0]
    assert re.search(r"attempt [23] begins, from epoch", told[1])
    alone = sv.simulate(job, company.people, secrets=secrets).model().parts
    for name in company.people:
        kept = read_tree(company.state_folder(name) / "model" / f"{name}.model.safetensors")
        assert tree_digest(kept) == tree_digest(model_part(job, name, alone[name]))
    _status(company)


def _status(company: Company) -> None:
    """What the command shows of a party that is done."""
    state = str(company.state_folder("shop2"))
    shown = CliRunner().invoke(app, ["status", state, "--json"])
    content = json.loads(shown.output)
    assert content["phase"] == "done"
    assert set(content["peers"]) == {"bank", "shop1"}
    assert all(peer["sent"] and peer["received"] for peer in content["peers"].values())


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["party", "none.toml", "--as", "bank"], "none.toml"),
        (["status", "nowhere"], "a party that was started; its process writes the file once"),
    ],
)
def test_mistakes_are_told(arguments: list[str], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    ended = CliRunner().invoke(app, arguments)
    assert isinstance(ended.exception, sv.InputError)
    assert says in str(ended.exception)
