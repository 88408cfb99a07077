"""Reasons beside a served score: they add up to what the model added up to, name no other party's column, and are there
only if the agreement says so."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import httpx
import numpy as np
import pytest
from support.servers import JOB, ready, served, trained

import securevfl as sv
from securevfl.run.explained.own_terms import sum_of_answers
from securevfl.run.model_parts import ModelPart
from securevfl.serving.access import AccessControl
from securevfl.serving.http import application
from securevfl.serving.metrics import ServingMetrics
from securevfl.serving.reasons import ServedReasons
from securevfl.serving.scoring import ScoringRouter
from securevfl.testing.parties import make_parties
from securevfl.training.calibration import Correction

ADDITIVE = JOB.replace(algorithm=sv.Additive(), protection=sv.Plain(), epochs=6)


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, ModelPart]:
    return trained(tmp_path_factory.mktemp("additive"), ADDITIVE)


@pytest.mark.parametrize("agreed", [True, False])
def test_an_answer_has_reasons_if_the_agreement_says_so(
    tmp_path: Path, parts: Mapping[str, ModelPart], agreed: bool
) -> None:
    async def main() -> None:
        places = ready(tmp_path, parts, job=ADDITIVE)
        places = {name: replace(place, reasons=agreed) for name, place in places.items()}
        async with served(places) as running:
            front = AccessControl(ScoringRouter(running.bank), ServingMetrics(running.bank))
            transport = httpx.ASGITransport(application(front))
            async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as http:
                await running.bank.scores(())
                names = sorted(running.bank.common_customers)[:2]
                one = (await http.post("/v1/score", json={"customer": names[0]})).json()
                many = (await http.post("/v1/scores", json={"customers": names})).json()["answers"]
        assert ("explained" in one) == ("explained" in many[1]["score"]) == agreed
        if not agreed:
            return
        found = one["explained"]
        assert found == many[0]["score"]["explained"]
        assert [(line["party"], line["column"]) for line in found["reasons"][-1:]] == [("shop1 + shop2", None)]
        assert sorted(line["column"] for line in found["reasons"][:-1]) == ["f0", "f1", "f2"]
        assert {line["party"] for line in found["reasons"][:-1]} == {"bank"}
        total = found["baseline"] + sum(line["adds"] for line in found["reasons"])
        assert found["unit"] == "probability"
        assert total == pytest.approx(one["probabilities"][1], abs=1e-4)

    asyncio.run(main())


def test_the_others_sum_is_what_their_own_terms_add_up_to(parts: Mapping[str, ModelPart]) -> None:
    people = make_parties()
    model = sv.Model(job=parts["bank"].job, parts={name: part.tree for name, part in parts.items()})
    exact = sv.explain(model, people)
    answers = np.stack([1 - exact.scores, exact.scores], axis=1)
    found = ServedReasons(parts["bank"], people["bank"]).explain(exact.ids, answers)
    others = [
        sum(float(exact.own[name].start[0]) for name in ("shop1", "shop2")) + row[1:].sum() for row in exact.totals
    ]
    assert [one.others for one in found] == pytest.approx(others, abs=1e-9)


@pytest.mark.parametrize("name", ["additive", "logistic_regression"])
def test_calibration_is_undone_before_an_answer_is_split(parts: Mapping[str, ModelPart], name: str) -> None:
    algorithm = {"additive": sv.Additive(), "logistic_regression": sv.LogisticRegression()}[name]
    job, sums = parts["bank"].job.replace(algorithm=algorithm), np.linspace(-0.1, 1.2, 40)[:, None]
    p = 1 / (1 + np.exp(-algorithm.sums_to_logits(sums, numeric=False)))
    correction = Correction(1.7, (-0.4, 0.4))
    fitted = {"whole": {"temperature": 1.7, "intercept": [-0.4, 0.4]}}
    answers = correction.apply(np.hstack([1 - p, p]))
    found = sum_of_answers(job, {**parts["bank"].tree, "calibration": fitted}, answers)
    assert found == pytest.approx(sums[:, 0], abs=1e-9)


def test_a_model_that_is_no_sum_has_no_reasons(plain: Mapping[str, ModelPart]) -> None:
    with pytest.raises(sv.InputError, match="not a sum of terms"):
        ServedReasons(plain["bank"], make_parties()["bank"])
