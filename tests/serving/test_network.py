"""Three parties over TLS on loopback, from their files alone: they serve, and they predict."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

import httpx
import numpy as np
import pytest
from support.companies import Companies
from support.servers import JOB, forget_answers, trained, until

import securevfl as sv
from securevfl.agreement import ServingTerms
from securevfl.data import Parties
from securevfl.errors import PolicyError
from securevfl.run.model_parts import ModelPart
from securevfl.serving import ServeActive, make_token
from securevfl.serving.process import ServingProcess, run_server
from securevfl.serving.process_tasks import predict_all, serve_http
from securevfl.testing.parties import make_parties

NAMES = ("bank", "shop1", "shop2")
Parts = Mapping[str, ModelPart]

JOB_FILE = """
protection = "plain"

[job]
epochs = 1
batch_size = 32
seed = 5

[algorithm]
name = "splitnn"
hidden = 4
top = [4]
bottom = [3]
"""


async def start(where: Companies, held: AsyncExitStack, *, once: bool = False) -> dict[str, ServingProcess]:
    """All parties; each dials those that were started before."""
    found: dict[str, ServingProcess] = {}
    for name in NAMES:
        dials = {peer: str(process.server.mesh.listening[0]) for peer, process in found.items()}  # type: ignore[attr-defined]
        file = where.party_file(name, dials)
        serving = where.folder / name / "serving.toml"
        work = run_server(where.agreement, name, file, serving=serving if serving.exists() else None, once=once)
        found[name] = await held.enter_async_context(work)
    return found


def companies(
    folder: Path, parts: Parts, serving: ServingTerms | None, people: Parties | None = None, job: str = JOB_FILE
) -> Companies:
    where = Companies(folder, people or make_parties(), job, serving)
    where.write_models({name: part.tree for name, part in parts.items()})
    return where


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> Parts:
    job = JOB.replace(algorithm=sv.SplitNN(hidden=4, top=(4,), bottom=(3,)))
    return trained(tmp_path_factory.mktemp("trained"), job)


def expected(parts: Parts) -> dict[str, np.ndarray]:
    model = sv.Model(job=JOB, parts={name: part.tree for name, part in parts.items()})
    found = sv.predict(model, make_parties())
    return dict(zip(found.ids, found.probabilities, strict=True))


def test_three_parties_serve_over_tls(tmp_path: Path, parts: Parts) -> None:
    where = companies(tmp_path, parts, ServingTerms(asks=("bank",)))
    token = make_token(tmp_path / "bank" / "tokens.toml", "teller")
    (tmp_path / "bank" / "serving.toml").write_text(
        '[http]\nlisten = "127.0.0.1:0"\nmetrics = "127.0.0.1:0"\ntokens = "tokens.toml"\n'
    )
    (tmp_path / "shop2" / "serving.toml").write_text("[policy]\nscores_per_record = 1\n")

    async def main() -> None:
        async with AsyncExitStack() as held:
            processes = await start(where, held)
            tasks = [await held.enter_async_context(process.running()) for process in processes.values()]
            bank = processes["bank"].server
            assert isinstance(bank, ServeActive)
            await until(lambda: bank.is_ready or bool(bank.problem) or any(task.done() for task in tasks))
            assert bank.is_ready, (bank.status(), tasks)
            url, metrics = await held.enter_async_context(serve_http(bank, processes["bank"].file))
            async with httpx.AsyncClient() as client:
                name = min(bank.common_customers)
                question, key = {"customer": name}, {"authorization": f"Bearer {token}"}
                assert (await client.post(f"{url}/v1/score", json=question)).status_code == 401
                found = await client.post(f"{url}/v1/score", json=question, headers=key)
                assert np.allclose(found.json()["probabilities"], expected(parts)[name], atol=1e-6)
                forget_answers(bank)
                again = await client.post(f"{url}/v1/score", json=question, headers=key)
                assert (again.status_code, again.json()["party"]) == (429, "shop2")
                text = (await client.get(metrics)).text
                assert 'securevfl_connected{peer="shop1"} 1.0' in text

    asyncio.run(main())
    for name in NAMES:
        ledgers = list((tmp_path / name / "state" / "serving" / "ledgers").rglob(f"{name}.jsonl"))
        assert ledgers
        assert b"serve/next" in ledgers[0].read_bytes()


def test_three_parties_predict_over_tls(tmp_path: Path, parts: Parts) -> None:
    where = companies(tmp_path, parts, ServingTerms(asks=("bank",)))

    async def main() -> None:
        async with AsyncExitStack() as held:
            processes = await start(where, held, once=True)
            tasks = {name: await held.enter_async_context(process.running()) for name, process in processes.items()}
            async with asyncio.timeout(120):
                found = await asyncio.gather(*(predict_all(processes[name].server, tasks[name]) for name in NAMES))
        assert found[1:] == [None, None]
        assert found[0] is not None
        scored = found[0]
        assert scored.classes == ("0", "1")
        wanted = expected(parts)
        assert list(scored.ids) == sorted(wanted)
        rows = zip(scored.ids, scored.probabilities, strict=True)
        assert all(np.allclose(row, wanted[name], atol=1e-6) for name, row in rows)
        assert set(scored.used) == {("bank", "shop1", "shop2")}

    asyncio.run(main())


def test_a_number_is_predicted_over_tls(tmp_path: Path) -> None:
    whole = make_parties()
    bank = whole["bank"]
    amounts = 10_000 + 1000 * np.array(list(bank.columns.values())).sum(axis=0)
    people = Parties.of(replace(bank, label=amounts, label_name="label", classes=()), *whole.passive)
    job = JOB.replace(task="regression")
    parts = trained(tmp_path / "model", job, people)
    file = JOB_FILE.replace("epochs = 1", 'epochs = 1\ntask = "regression"')
    where = companies(tmp_path, parts, ServingTerms(asks=("bank",)), people, file)

    async def main() -> None:
        async with AsyncExitStack() as held:
            processes = await start(where, held, once=True)
            tasks = {name: await held.enter_async_context(process.running()) for name, process in processes.items()}
            async with asyncio.timeout(120):
                found = await asyncio.gather(*(predict_all(processes[name].server, tasks[name]) for name in NAMES))
        assert found[0] is not None
        assert found[0].classes == ("label",)
        model = sv.Model(job=job, parts={name: part.tree for name, part in parts.items()})
        wanted = sv.predict(model, people)
        truth = dict(zip(wanted.ids, wanted.probabilities[:, 0], strict=True))
        assert {name: row[0] for name, row in zip(found[0].ids, found[0].probabilities, strict=True)} == pytest.approx(
            truth, rel=1e-5
        )
        assert min(truth.values()) > 3000, "in the target's units"

    asyncio.run(main())


def test_an_agreement_about_training_alone_serves_nobody(tmp_path: Path, parts: Parts) -> None:
    where = companies(tmp_path, parts, None)

    async def main() -> None:
        async with AsyncExitStack() as held:
            await start(where, held)

    with pytest.raises(PolicyError, match="does not let 'bank' ask"):
        asyncio.run(main())
