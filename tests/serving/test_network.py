"""Three parties over TLS on loopback, from their files alone: they serve, and they predict."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from pathlib import Path

import httpx
import numpy as np
import pytest
from servers import JOB, trained, until

import securevfl as sv
from securevfl.data import PartyTable
from securevfl.errors import PolicyError
from securevfl.identity.making import Key, self_signed
from securevfl.jobs.agreement import (
    Proposal,
    ServingTerms,
    approve,
    card_of,
    propose,
    read_agreement,
    read_party_file,
    write_approval,
)
from securevfl.jobs.parts import ModelPart, model_part, write_run
from securevfl.jobs.store import write_tree
from securevfl.privacy.ledger import make_key
from securevfl.serving import ServeActive, make_token
from securevfl.serving.process import PartyProcess, at_work
from securevfl.serving.whole import answering, predict_all
from securevfl.testing.parties import parties

NAMES = ("bank", "shop1", "shop2")
Write = Callable[[str, Mapping[str, str]], Path]

JOB_FILE = """
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


def table_file(path: Path, table: PartyTable) -> None:
    names = [*table.columns, *(["late"] if table.label is not None else [])]
    columns = [*table.columns.values(), *([table.label] if table.label is not None else [])]
    lines = [",".join(["ref", *names])]
    lines += [",".join([name, *map(str, row)]) for name, row in zip(table.ids, zip(*columns, strict=True), strict=True)]
    path.write_text("\n".join(lines) + "\n")


class Folder:
    """Files of all parties, one folder each, as three companies would have them."""

    def __init__(self, folder: Path, serving: ServingTerms | None) -> None:
        self.folder = folder
        now = datetime.now(UTC)
        people = parties()
        for name in NAMES:
            place = folder / name
            place.mkdir(mode=0o700)
            make_key(name, place)
            key = Key.generate()
            (place / "tls.key").write_bytes(key.pem)
            (place / "tls.key").chmod(0o600)
            (place / "tls.crt").write_bytes(self_signed(name, key, now).pem)
            table_file(place / "table.csv", people[name])
            self.party_file(name, dict.fromkeys((one for one in NAMES if one != name), "listen = true"))
        files = {name: read_party_file(folder / name / "party.toml") for name in NAMES}
        (folder / "job.toml").write_text(JOB_FILE)
        proposal = propose(
            folder / "job.toml",
            [card_of(file) for file in files.values()],
            purpose="a test",
            expires="30d",
            now=now,
            serving=serving,
        )
        self.agreement = folder / "agreement.toml"
        self.agreement.write_bytes(proposal.raw)
        for file in files.values():
            write_approval(self.agreement, approve(proposal, file, now))
        self.proposal: Proposal = proposal

    def party_file(self, name: str, peers: Mapping[str, str]) -> Path:
        label = 'label = "late"\n' if name == "bank" else ""
        sections = "".join(f"\n[peer.{peer}]\n{how}\n" for peer, how in peers.items())
        path = self.folder / name / "party.toml"
        path.write_text(
            f'party = "{name}"\nlisten = "127.0.0.1:0"\n\n[data]\nfile = "table.csv"\nid = "ref"\n{label}\n'
            f'[keys]\nsigning = "{name}.key"\ncertificate = "tls.crt"\nkey = "tls.key"\n{sections}'
        )
        return path

    def put(self, parts: Mapping[str, ModelPart]) -> None:
        """What training under the agreement leaves in the parties' state folders."""
        for name, part in parts.items():
            model = self.folder / name / "state" / "model"
            tree = {key: value for key, value in part.tree.items() if key not in ("job", "party")}
            write_tree(model / f"{name}.model.safetensors", model_part(self.proposal.job_of(), name, tree))
            write_run(model, read_agreement(self.agreement).digest)

    async def start(self, held: AsyncExitStack, **more: object) -> dict[str, PartyProcess]:
        """All parties; each dials those that were started before."""
        found: dict[str, PartyProcess] = {}
        for name in NAMES:
            peers = {one: "listen = true" for one in NAMES if one != name}
            for peer, process in found.items():
                (address,) = process.server.mesh.listening  # type: ignore[attr-defined]
                peers[peer] = f'dial = "{address}"'
            file = self.party_file(name, peers)
            serving = self.folder / name / "serving.toml"
            found[name] = await held.enter_async_context(
                at_work(self.agreement, name, file, serving=serving if serving.exists() else None, **more)  # type: ignore[arg-type]
            )
        return found


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, ModelPart]:
    job = JOB.replace(algorithm=sv.SplitNN(hidden=4, top=(4,), bottom=(3,)))
    return trained(tmp_path_factory.mktemp("trained"), job)


def expected(parts: Mapping[str, ModelPart]) -> dict[str, np.ndarray]:
    model = sv.Model(job=JOB, parts={name: part.tree for name, part in parts.items()})
    found = sv.predict(model, parties())
    return dict(zip(found.ids, found.probabilities, strict=True))


def test_three_parties_serve_over_tls(tmp_path: Path, parts: Mapping[str, ModelPart]) -> None:
    where = Folder(tmp_path, ServingTerms(asks=("bank",)))
    where.put(parts)
    token = make_token(tmp_path / "bank" / "tokens.toml", "teller")
    (tmp_path / "bank" / "serving.toml").write_text(
        '[http]\nlisten = "127.0.0.1:0"\nmetrics = "127.0.0.1:0"\ntokens = "tokens.toml"\n'
    )
    (tmp_path / "shop2" / "serving.toml").write_text("[policy]\nscores_per_record = 1\n")

    async def main() -> None:
        async with AsyncExitStack() as held:
            processes = await where.start(held)
            tasks = [await held.enter_async_context(process.running()) for process in processes.values()]
            bank = processes["bank"].server
            assert isinstance(bank, ServeActive)
            await until(lambda: bank.ready or bool(bank.problem) or any(task.done() for task in tasks))
            assert bank.ready, (bank.status(), tasks)
            url, metrics = await held.enter_async_context(answering(bank, processes["bank"].file))
            async with httpx.AsyncClient() as client:
                name = min(bank.common)
                question, key = {"customer": name}, {"authorization": f"Bearer {token}"}
                assert (await client.post(f"{url}/v1/score", json=question)).status_code == 401
                found = await client.post(f"{url}/v1/score", json=question, headers=key)
                assert np.allclose(found.json()["probabilities"], expected(parts)[name], atol=1e-6)
                again = await client.post(f"{url}/v1/score", json=question, headers=key)
                assert (again.status_code, again.json()["party"]) == (429, "shop2")
                text = (await client.get(metrics)).text
                assert 'securevfl_peer_connected{peer="shop1"} 1.0' in text

    asyncio.run(main())
    for name in NAMES:
        ledgers = list((tmp_path / name / "state" / "serving" / "ledgers").rglob(f"{name}.jsonl"))
        assert ledgers
        assert b"serve/next" in ledgers[0].read_bytes()


def test_three_parties_predict_over_tls(tmp_path: Path, parts: Mapping[str, ModelPart]) -> None:
    where = Folder(tmp_path, ServingTerms(asks=("bank",)))
    where.put(parts)

    async def main() -> None:
        async with AsyncExitStack() as held:
            processes = await where.start(held, once=True)
            tasks = {name: await held.enter_async_context(process.running()) for name, process in processes.items()}
            async with asyncio.timeout(120):
                found = await asyncio.gather(*(predict_all(processes[name].server, tasks[name]) for name in NAMES))
        assert found[1:] == [None, None]
        assert found[0] is not None
        classes, rows = found[0]
        assert classes == ("0", "1")
        wanted = expected(parts)
        assert [name for name, _ in rows] == sorted(wanted)
        assert all(np.allclose(row, wanted[name], atol=1e-6) for name, row in rows)

    asyncio.run(main())


def test_an_agreement_about_training_alone_serves_nobody(tmp_path: Path, parts: Mapping[str, ModelPart]) -> None:
    where = Folder(tmp_path, None)
    where.put(parts)

    async def main() -> None:
        async with AsyncExitStack() as held:
            await where.start(held)

    with pytest.raises(PolicyError, match="does not let 'bank' ask"):
        asyncio.run(main())
