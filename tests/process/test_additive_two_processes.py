"""Two companies train an additive model as two processes over the network, and nobody else takes part."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import numpy as np
import pytest
from support.processes import PythonProcess

import securevfl as sv
from securevfl.algorithms.additive.sealed_keys import KEY
from securevfl.algorithms.additive.sealed_sums import ANSWER, OPENED, PART
from securevfl.party_context import PartySecret
from securevfl.run.store import read_tree
from securevfl.testing.company import create_company
from securevfl.testing.parties import make_parties


@pytest.mark.skipif(sys.platform == "win32", reason="real parties run on Linux")
def test_two_processes_get_the_shapes_of_a_simulation(tmp_path: Path) -> None:
    job = sv.Job(algorithm=sv.Additive(), protection=sv.BFV(), epochs=2, keep="last", seed=3)
    company = create_company(tmp_path, make_parties(passive=1, rows=120), job)
    secrets = {name: PartySecret.from_seed(7, name) for name in company.people}
    company.store_secrets(secrets)
    told: list[tuple[int | None, str]] = []

    async def shop() -> None:
        process = await asyncio.to_thread(PythonProcess, company.command("shop1")[1:])
        out, err = await asyncio.to_thread(process.communicate)
        told.append((process.returncode, out + err))

    company.over_network(["bank"], beside=shop)
    assert told[0][0] == 0, told
    alone = sv.simulate(job, company.people, secrets=secrets).model().parts
    for name in company.people:
        kept = read_tree(company.state_folder(name) / "model" / f"{name}.model.safetensors")["parts"]["shapes"]
        assert np.array_equal(kept["values"].numpy(), alone[name]["parts"]["shapes"]["values"].numpy())
        assert np.abs(kept["values"].numpy()).max() > 0
    texts = b"".join(path.read_bytes() for path in company.state_folder("bank").rglob("*.jsonl"))
    assert all(step.encode() in texts for step in (KEY, PART, ANSWER, OPENED))
