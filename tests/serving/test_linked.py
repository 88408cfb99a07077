"""A model of linked records is served: the parties link when they meet, and score people by the bank's identifiers."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

import httpx
import numpy as np
from securevfl_psi.linkage import FamilyErrors, simulate_families
from support.companies import Companies
from support.servers import until

import securevfl as sv
from securevfl.agreement import ServingTerms
from securevfl.serving import ServeActive, make_token
from securevfl.serving.process import ServingProcess, run_server
from securevfl.serving.process_tasks import serve_http

FIELDS = ("given_name", "surname", "phone", "date_of_birth")
JOB = """
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

[link]
linker = "active"
fields = {given_name = "text", surname = "text", phone = "code", date_of_birth = "date"}
"""


def test_the_active_party_links_and_serves(tmp_path: Path) -> None:
    files = simulate_families(120, common=0.8, together=1.0, errors=FamilyErrors(typo=0.05), seed=4)
    real = np.random.default_rng(9).normal(size=(2000, 2))
    tables = []
    for side, name in enumerate(("bank", "shop")):
        rows = files.people[side]
        late = {"label": (real[rows, 0] > 0).astype(np.int64), "classes": (0, 1)} if side == 0 else {}
        link = {field: files.tables[side][field] for field in FIELDS}
        ids = [f"{name}-{number}" for number in range(len(rows))]
        tables.append(sv.PartyTable(name=name, ids=ids, columns={f"x_{name}": real[rows, side]}, link=link, **late))
    people = sv.Parties.of(*tables)
    where = Companies(tmp_path, people, JOB, ServingTerms(asks=("bank",)))
    job = where.proposal.job_of()
    model = sv.simulate(job, people, baselines=()).model()
    where.write_models(model.parts)
    found = sv.predict(model, people)
    expected = dict(zip(found.ids, found.probabilities, strict=True))
    token = make_token(tmp_path / "bank" / "tokens.toml", "teller")
    (tmp_path / "bank" / "serving.toml").write_text(
        '[http]\nlisten = "127.0.0.1:0"\nmetrics = "127.0.0.1:0"\ntokens = "tokens.toml"\n'
    )
    right: list[bool] = []
    served: list[str] = []

    async def main() -> None:
        async with AsyncExitStack() as held:
            made: dict[str, ServingProcess] = {}
            for name in where.names:
                dials = {peer: str(one.server.mesh.listening[0]) for peer, one in made.items()}  # type: ignore[attr-defined]
                file, serving = where.party_file(name, dials), tmp_path / name / "serving.toml"
                work = run_server(where.agreement, name, file, serving=serving if serving.exists() else None)
                made[name] = await held.enter_async_context(work)
            tasks = [await held.enter_async_context(one.running()) for one in made.values()]
            bank = made["bank"].server
            assert isinstance(bank, ServeActive)
            await until(lambda: bank.is_ready or bool(bank.problem) or any(task.done() for task in tasks))
            assert bank.is_ready, (bank.status(), tasks)
            url, _ = await held.enter_async_context(serve_http(bank, made["bank"].file))
            async with httpx.AsyncClient() as client:
                for name in sorted(set(bank.common_customers) & set(expected))[:8]:
                    question, key = {"customer": name}, {"authorization": f"Bearer {token}"}
                    found = (await client.post(f"{url}/v1/score", json=question, headers=key)).json()
                    right.append(np.allclose(found["probabilities"], expected[name], atol=1e-6))
            served.extend(bank.common_customers)

    asyncio.run(main())
    assert len(served) > 0.7 * len(files.people[0])
    assert sum(right) >= 7, right  # the key is drawn anew, and a doubtful pair can come out another way
