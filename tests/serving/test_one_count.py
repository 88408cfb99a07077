"""One book for all that is answered about a person: by the job, by a server, by the process that stands by, and by
predictions. The last number that a policy allows is the last, whoever asks for it by which way."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from support.servers import JOB, ready, served, unlabelled

import securevfl as sv
from securevfl.data import Parties
from securevfl.privacy import ResultBook
from securevfl.run.model_parts import PART, ModelPart
from securevfl.serving import Refusal, ServingContext
from securevfl.testing.parties import make_parties

WIDTH = 4
"""Numbers of an answer at this cut."""


def _bounded(most: int) -> sv.Job:
    return JOB.replace(policies={"shop1": sv.Policy(max_results=most), "shop2": sv.Policy(max_results="unlimited")})


def _counts(books: Path, names: list[str]) -> list[int]:
    book = ResultBook(books / "shop1.results.jsonl", party="shop1")
    return [int(one) for one in book.count_opened(names, "bank")]


def _places(folder: Path, parts: Mapping[str, ModelPart], job: sv.Job, books: Path) -> dict[str, ServingContext]:
    """A process of each party: a state folder of its own, the party's one book and its one day book."""
    return {
        name: replace(place, results=books / f"{name}.results.jsonl", days=books / f"{name}.results.days")
        for name, place in ready(folder, parts, job=job).items()
    }


def test_test_rows_servers_a_standby_and_predictions_are_one_count(tmp_path: Path) -> None:
    people, first = make_parties(), tmp_path / "first"
    sv.simulate(_bounded(1000), people, results=first)
    common = sorted(set(people["shop1"].ids) & set(people["bank"].ids) & set(people["shop2"].ids))
    planned = max(_counts(first, common))
    assert planned

    job, books = _bounded(planned + 3 * WIDTH), tmp_path / "books"
    model = sv.simulate(job, people, results=books).model()
    model.save(tmp_path / "model")
    parts = {name: ModelPart.load(tmp_path / "model" / f"{name}{PART}", name, job) for name in people}
    asked = Parties(unlabelled(people), active="bank")
    person = next(name for name, count in zip(common, _counts(books, common), strict=True) if count == planned)

    async def ask(process: str) -> object:
        async with served(_places(tmp_path / process, parts, job, books)) as running:
            (found,) = await running.bank.scores([person], again=True)
            return found

    assert not isinstance(asyncio.run(ask("server")), Refusal)
    assert not isinstance(asyncio.run(ask("standby")), Refusal)
    assert _counts(books, [person]) == [planned + 2 * WIDTH]
    sv.predict(model, asked, results=books)
    assert _counts(books, [person]) == [planned + 3 * WIDTH]
    for process in ("server", "standby"):
        refused = asyncio.run(ask(process))
        assert isinstance(refused, Refusal)
        assert (refused.party, refused.rule) == ("shop1", "max_results")
    with pytest.raises(sv.PolicyError, match=r"max_results"):
        sv.predict(model, asked, results=books)
    with pytest.raises(sv.PolicyError, match=r"max_results"):
        sv.simulate(job, people, results=books)
    assert _counts(books, [person]) == [planned + 3 * WIDTH]
