"""A regression is served as classes are: the number in the target's units, over HTTP, by the bank alone, as a file."""

from __future__ import annotations

import asyncio
import csv
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import httpx
import numpy as np
import pytest
from support.servers import JOB, Served, ready, served, trained, unlabelled

import securevfl as sv
from securevfl.cli.scores import scores_as_csv
from securevfl.data import Parties
from securevfl.run.model_parts import ModelPart
from securevfl.serving import Batching
from securevfl.serving.access import AccessControl
from securevfl.serving.guards import Guarded
from securevfl.serving.http import application
from securevfl.serving.metrics import ServingMetrics
from securevfl.serving.process_tasks import predict_all
from securevfl.serving.scoring import ScoringRouter
from securevfl.testing.parties import make_parties

Parts = Mapping[str, ModelPart]

OPTIONS: dict[str, tuple[int, ...]] = {"top": (4,), "bottom": (3,)}
SEALED = JOB.replace(task="regression", protection=sv.BFV(), epochs=2)
ZERO = SEALED.replace(protection=sv.Plain(), algorithm=sv.ZeroImputation(hidden=4, **OPTIONS))


def people() -> Parties:
    """The parties of all tests of serving; the bank's target is an amount, 7,000 and more."""
    found = make_parties()
    bank = found["bank"]
    amounts = 10_000 + 1000 * np.array(list(bank.columns.values())).sum(axis=0)
    assert amounts.min() > 3000
    return Parties.of(replace(bank, label=amounts, label_name="amount", classes=()), *found.passive)


@pytest.fixture(scope="module")
def sealed(tmp_path_factory: pytest.TempPathFactory) -> Parts:
    return trained(tmp_path_factory.mktemp("number"), SEALED, people())


@pytest.fixture(scope="module")
def zero(tmp_path_factory: pytest.TempPathFactory) -> Parts:
    return trained(tmp_path_factory.mktemp("zero"), ZERO, people())


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> ModelPart:
    job = ZERO.replace(algorithm=sv.Local(hidden=4, **OPTIONS))
    return trained(tmp_path_factory.mktemp("local"), job, people())["bank"]


def expected(parts: Parts, job: sv.Job, *, everyone: bool = False) -> dict[str, float]:
    model = sv.Model(job=job, parts={name: part.tree for name, part in parts.items()})
    found = sv.predict(model, Parties(unlabelled(people()), active="bank"), everyone=everyone)
    return dict(zip(found.ids, found.probabilities[:, 0].tolist(), strict=True))


def client(running: Served, local: ModelPart | None = None) -> httpx.AsyncClient:
    front = AccessControl(ScoringRouter(running.bank, local), ServingMetrics(running.bank))
    transport = httpx.ASGITransport(Guarded(application(front), hosts=("localhost",)))
    return httpx.AsyncClient(transport=transport, base_url="http://localhost")


def test_http_answers_with_the_number_in_its_units(tmp_path: Path, sealed: Parts, local: ModelPart) -> None:
    wanted = expected(sealed, SEALED)

    async def main() -> None:
        places = ready(tmp_path, sealed, job=SEALED, people=people())
        async with served(places, Batching(grace=0.05)) as running, client(running, local) as http:
            names = sorted(wanted)[:3]
            one = await http.post("/v1/score", json={"customer": names[0]})
            assert one.status_code == 200, one.text
            content = one.json()
            assert set(content) == {"model", "digest", "target", "predicted"}
            assert (content["model"], content["target"]) == ("joint", "amount")
            assert content["predicted"] == pytest.approx(wanted[names[0]], rel=1e-3)
            assert content["predicted"] > 3000, "in the target's units"
            alone = next(name for name in people()["bank"].ids if name not in wanted)
            many = (await http.post("/v1/scores", json={"customers": [*names, alone, "nobody"]})).json()["answers"]
            assert [item["status"] for item in many] == [200, 200, 200, 200, 404]
            found = [item["score"]["predicted"] for item in many[:3]]
            np.testing.assert_allclose(found, [wanted[name] for name in names], rtol=1e-3)
            assert many[3]["score"]["model"] == "local"
            assert many[3]["score"]["predicted"] > 3000

    asyncio.run(main())


def test_a_local_model_of_another_kind_of_target_is_refused(
    tmp_path: Path, sealed: Parts, plain: Parts, local: ModelPart, tmp_path_factory: pytest.TempPathFactory
) -> None:
    classes = trained(tmp_path_factory.mktemp("classes"), JOB.replace(algorithm=sv.Local(hidden=4, **OPTIONS)))["bank"]

    async def main() -> None:
        async with served(ready(tmp_path / "a", sealed, job=SEALED, people=people())) as running:
            with pytest.raises(sv.InputError, match=r"predicts a number, and the local model classes.*or none"):
                ScoringRouter(running.bank, classes)
        async with served(ready(tmp_path / "b", plain)) as running:
            with pytest.raises(sv.InputError, match="predicts classes, and the local model a number"):
                ScoringRouter(running.bank, local)

    asyncio.run(main())


def test_processes_predict_numbers_of_everyone_and_write_them_in_their_units(tmp_path: Path, zero: Parts) -> None:
    wanted = expected(zero, ZERO, everyone=True)

    async def main() -> bytes:
        async with served(ready(tmp_path, zero, job=ZERO, people=people())) as running:
            found = await predict_all(running.bank, running.tasks["bank"], everyone=True)
            assert found is not None
            return scores_as_csv(found.classes, found.ids, found.probabilities, found.used)

    rows = list(csv.DictReader(asyncio.run(main()).decode().splitlines()))
    assert list(rows[0]) == ["id", "amount", "parties"]
    assert {row["id"] for row in rows} == set(people()["bank"].ids)
    for row in rows:
        assert float(row["amount"]) == pytest.approx(wanted[row["id"]], rel=1e-5)


def test_small_numbers_keep_their_digits_in_a_file() -> None:
    line = scores_as_csv(("rate",), ("a",), [[1.23456789e-7]]).decode().splitlines()[1]
    assert float(line.split(",")[1]) == pytest.approx(1.23456789e-7)
    assert scores_as_csv(("no", "yes"), ("a",), [[0.25, 0.75]]).decode().splitlines()[1] == "a,0.250000,0.750000"
