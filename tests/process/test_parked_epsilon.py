"""ε of a party whose process lives on while a peer dies: what it released in the attempt that was parked counts too."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import securevfl as sv
from securevfl.agreement import Agreement
from securevfl.party_context import Observer
from securevfl.privacy import RowRelease
from securevfl.process.launch import read_start
from securevfl.process.party_process import JobProcess
from securevfl.process.state_folder import StateFolder
from securevfl.testing.company import Company, create_company
from securevfl.testing.parties import make_parties
from securevfl.transport import MemoryHub

EPOCHS = 3


class Dying(Observer):
    """Tells when its party is in the middle of an epoch."""

    def __init__(self) -> None:
        self.now = asyncio.Event()

    def step(self, epoch: int, done: int, total: int) -> None:
        if epoch == 2 and done == 2:
            self.now.set()


def _attending(company: Company, name: str, state: StateFolder, *hearers: Observer) -> JobProcess:
    start = read_start(company.agreement_file, name)
    own = Agreement(company.agreement.proposal, {name: company.agreement.approvals[name]})
    key, table = start.own.signing_key(), start.own.read_table()
    return JobProcess(state, own, name, key, table, policy=start.own.policy, hearers=hearers)


async def _train(company: Company, states: dict[str, StateFolder], dies: str) -> dict[str, JobProcess]:
    dying = Dying()
    every = {n: _attending(company, n, states[n], *([dying] if n == dies else [])) for n in company.names}
    hub = MemoryHub(company.names, incarnations={name: party.incarnation for name, party in every.items()})
    tasks = {name: asyncio.ensure_future(party.attend(hub[name])) for name, party in every.items()}
    await asyncio.wait({asyncio.ensure_future(dying.now.wait()), *tasks.values()}, return_when="FIRST_COMPLETED")
    hub.crash(dies)
    tasks[dies].cancel()
    with suppress(BaseException):
        await tasks[dies]
    every[dies] = _attending(company, dies, states[dies])
    tasks[dies] = asyncio.ensure_future(every[dies].attend(hub.start(dies, every[dies].incarnation)))
    await asyncio.gather(*tasks.values())
    return every


@pytest.mark.parametrize("dies", ["bank", "shop2"])
def test_what_was_released_before_it_parked_counts(dies: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dp = sv.DP(features=sv.Gaussian(epsilon=30.0))
    job = sv.Job(
        algorithm=sv.SplitNN(hidden=4, bottom=[3]), protection=sv.Plain(dp=dp), epochs=EPOCHS, batch_size=12, seed=3
    )
    company = create_company(tmp_path, make_parties(passive=2, rows=80), job)
    made: dict[tuple[str, int], int] = {}
    call = RowRelease.__call__

    def counted(self: RowRelease, values: Any, rows: np.ndarray, **more: Any) -> Any:
        reserve: Any = self.counts._reserve
        for row in rows.tolist():
            key = (reserve.func.__self__.party, row)
            made[key] = made.get(key, 0) + 1
        return call(self, values, rows, **more)

    monkeypatch.setattr(RowRelease, "__call__", counted)
    with ExitStack() as held:
        states = {
            name: held.enter_context(
                StateFolder.lock(company.state_folder(name), party=name, agreement=company.agreement.digest)
            )
            for name in company.names
        }
        every = asyncio.run(_train(company, states, dies))
    for name in ("shop1", "shop2"):
        finished = every[name].finished
        assert finished is not None
        (spent,) = [one for one in finished.trained.spent if one.what == "activations"]
        most = max(count for (party, _), count in made.items() if party == name)
        assert most > EPOCHS  # batches of the second epoch were done again
        assert most <= spent.times <= most + 1
