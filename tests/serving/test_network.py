"""Three parties over TLS on loopback, from their files alone: they serve, and they predict."""

from __future__ import annotations

import asyncio
import errno
import io
import shutil
from collections.abc import Mapping
from contextlib import AsyncExitStack, redirect_stderr, redirect_stdout
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from hashlib import sha256
from pathlib import Path

import httpx
import numpy as np
import pytest
from securevfl_net.gate.settings import Timing
from securevfl_net.identity import Endorsement
from securevfl_net.identity.files import write_new
from securevfl_net.identity.making import Key, self_signed
from support.companies import Companies
from support.servers import JOB, forget_answers, trained, until

import securevfl as sv
from securevfl.agreement import ServingTerms
from securevfl.cli import main
from securevfl.data import Parties
from securevfl.errors import DiskFull, Parked, PolicyError, SecureVFLError
from securevfl.ledger import read_private_key
from securevfl.party.attempts import Superseded
from securevfl.party_context import PartyContext
from securevfl.process import certificate_renewal
from securevfl.run.events import RunEvents
from securevfl.run.model_parts import ModelPart
from securevfl.serving import ServeActive, make_token, serving_sessions, session
from securevfl.serving.end_mark import EndMark
from securevfl.serving.policy import Refusal
from securevfl.serving.process import ServingProcess, run_server
from securevfl.serving.process_tasks import Scored, predict_all, serve_http
from securevfl.testing.parties import make_parties
from securevfl.transport import network_mesh

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


@pytest.fixture(autouse=True)
def _short_farewell(monkeypatch: pytest.MonkeyPatch) -> None:
    """A party that is done waits a second, and not ten, for peers that are gone."""
    monkeypatch.setattr(network_mesh, "Timing", partial(Timing, farewell=1.0))


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


def test_a_certificate_is_rotated_while_they_serve(
    tmp_path: Path, parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(certificate_renewal, "_LOOK", 0.05)
    where = companies(tmp_path, parts, ServingTerms(asks=("bank",)))
    heard: list[str] = []

    class Heard(RunEvents):
        def report_event(self, what: str, words: str, **values: object) -> None:
            heard.append(f"{what}: {words}")

    async def main() -> None:
        async with AsyncExitStack() as held:
            processes = await start(where, held)
            processes["shop1"].server.news = Heard()
            for process in processes.values():
                await held.enter_async_context(process.running())
            bank = processes["bank"].server
            assert isinstance(bank, ServeActive)
            await until(lambda: bank.is_ready)
            first, *others = sorted(bank.common_customers)
            assert not isinstance((await bank.scores([first]))[0], Refusal)
            rotate(tmp_path / "shop1", "shop1", where.agreement)
            await until(lambda: any("tls.1.crt is now in use" in words for words in heard))
            await until(lambda: bank.away == {} and bank.is_ready)
            for name in others[:3]:
                found = (await bank.scores([name]))[0]
                assert not isinstance(found, Refusal)
                assert np.allclose(found, expected(parts)[name], atol=1e-6)
        async with AsyncExitStack() as held:  # a restarted party goes on with it
            processes = await start(where, held)
            for process in processes.values():
                await held.enter_async_context(process.running())
            bank = processes["bank"].server
            assert isinstance(bank, ServeActive)
            await until(lambda: bank.is_ready)

    asyncio.run(main())
    for peer in ("bank", "shop2"):
        assert (tmp_path / peer / "state" / "endorsements.json").exists()
    assert (tmp_path / "shop1" / "state" / "certificate").read_text() == "tls.1.crt"


def test_a_party_whose_certificate_cannot_be_used_comes_back_with_an_endorsement_by_mail(
    tmp_path: Path, parts: Parts
) -> None:
    where = companies(tmp_path, parts, ServingTerms(asks=("bank",)))
    rotate(tmp_path / "shop1", "shop1", where.agreement)
    (tmp_path / "shop1" / "tls.key").unlink()  # as if it had expired
    mail = tmp_path / "shop1" / "tls.1.endorsement"
    for peer in ("bank", "shop2"):
        own = where.party_file(peer, {})
        said = run_command("certs", "accept", mail, "--agreement", where.agreement, "--file", own)
        assert f"{peer} accepts this certificate of shop1 from now on" in said
    damaged = tmp_path / "damaged.endorsement"
    damaged.write_bytes(mail.read_bytes()[:-1] + bytes([mail.read_bytes()[-1] ^ 1]))
    again = ("certs", "accept", damaged, "--agreement", where.agreement, "--file", tmp_path / "bank" / "party.toml")
    assert "wrong-endorsement" in run_command(*again, code=2)

    async def work() -> None:
        async with AsyncExitStack() as held:
            processes = await start(where, held)
            for process in processes.values():
                await held.enter_async_context(process.running())
            bank = processes["bank"].server
            assert isinstance(bank, ServeActive)
            await until(lambda: bank.is_ready)

    asyncio.run(work())


def test_an_older_folder_is_refused_by_servers_that_saw_a_newer_start(tmp_path: Path, parts: Parts) -> None:
    """The number of starts tells: `stale-incarnation` where it is lower, `twin-incarnation` where it is the same."""
    where = companies(tmp_path, parts, ServingTerms(asks=("bank",)))
    state, back_up = tmp_path / "shop2" / "state", tmp_path / "back-up"

    async def serve_once() -> None:
        async with AsyncExitStack() as held:
            for process in (processes := await start(where, held)).values():
                await held.enter_async_context(process.running())
            bank = processes["bank"].server
            assert isinstance(bank, ServeActive)
            await until(lambda: bank.is_ready)

    async def serve_older() -> None:
        async with AsyncExitStack() as held:
            processes = await start(where, held)
            tasks = {name: await held.enter_async_context(one.running()) for name, one in processes.items()}
            await until(tasks["shop2"].done)
            assert not tasks["bank"].done()
            assert not tasks["shop1"].done()

    def come_back(error: type[SecureVFLError], words: str) -> None:
        shutil.rmtree(state)
        shutil.copytree(back_up, state)
        with pytest.raises(error, match=words):
            asyncio.run(serve_older())

    asyncio.run(serve_once())
    shutil.copytree(state, back_up)
    asyncio.run(serve_once())
    come_back(Parked, "start it again, under a new number")  # both are its second start
    asyncio.run(serve_once())  # its third
    come_back(Superseded, "is start 2, start 3 has been seen")


def test_a_server_that_was_stopped_and_started_is_called_again(tmp_path: Path, parts: Parts) -> None:
    """The bank says goodbye, and calls nobody: its partners call it."""
    where = companies(tmp_path, parts, ServingTerms(asks=("bank",)))

    async def main() -> None:
        async with AsyncExitStack() as held:
            async with AsyncExitStack() as first:
                bank = await first.enter_async_context(
                    run_server(where.agreement, "bank", where.party_file("bank", {}))
                )
                address = str(bank.server.mesh.listening[0])  # type: ignore[attr-defined]
                await first.enter_async_context(bank.running())
                dials = {"bank": address}
                for name in ("shop1", "shop2"):
                    file = where.party_file(name, dials)
                    process = await held.enter_async_context(run_server(where.agreement, name, file))
                    await held.enter_async_context(process.running())
                    dials[name] = str(process.server.mesh.listening[0])  # type: ignore[attr-defined]
                assert isinstance(bank.server, ServeActive)
                await until(lambda: bank.server.is_ready)  # type: ignore[union-attr]
            file = where.party_file("bank", {}, listen=address)
            again = await held.enter_async_context(run_server(where.agreement, "bank", file))
            await held.enter_async_context(again.running())
            assert isinstance(again.server, ServeActive)
            await until(lambda: again.server.is_ready)  # type: ignore[union-attr]

    asyncio.run(main())


def run_command(*words: object, code: int = 0) -> str:
    """A command in this process; what it said."""
    said = io.StringIO()
    with redirect_stdout(said), redirect_stderr(said), pytest.raises(SystemExit) as ended:
        main([str(word) for word in words])
    assert (ended.value.code or 0) == code, said.getvalue()
    return said.getvalue()


def rotate(folder: Path, name: str, agreement: Path) -> None:
    """What `securevfl certs rotate` leaves, where the certificate is named ``tls.crt``."""
    key = Key.generate()
    made = self_signed(name, key, datetime.now(UTC))
    payload = Endorsement(name, 1, sha256(agreement.read_bytes()).digest(), made).to_signed_bytes(
        read_private_key(folder / f"{name}.key")
    )
    write_new(folder / "tls.1.endorsement", payload)
    write_new(folder / "tls.1.key", key.pem, private=True)
    write_new(folder / "tls.1.crt", made.pem)


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


@pytest.mark.parametrize("killed", ["bank", "shop1"])
def test_who_is_killed_at_the_end_of_a_prediction_waits_for_nobody(
    tmp_path: Path, parts: Parts, monkeypatch: pytest.MonkeyPatch, killed: str
) -> None:
    """It is killed after it has noted that the prediction is over; the others have ended before it is started again."""
    monkeypatch.setattr(serving_sessions, "_GONE", 0.5)
    where = companies(tmp_path, parts, ServingTerms(asks=("bank",)))
    mark = EndMark(tmp_path / killed / "state" / "serving")
    delivered: list[Scored] = []
    marked: list[bool] = []

    def deliver(scored: Scored) -> None:
        delivered.append(scored)
        marked.append(EndMark(tmp_path / "bank" / "state" / "serving").is_there)

    async def predict() -> None:
        async with AsyncExitStack() as held:
            processes = await start(where, held, once=True)
            tasks = {name: await held.enter_async_context(process.running()) for name, process in processes.items()}
            async with asyncio.timeout(120):
                found = await asyncio.gather(
                    *(predict_all(processes[name].server, tasks[name], deliver=deliver) for name in NAMES)
                )
            assert mark.is_there
            assert found[0] is delivered[-1]

    async def start_again() -> None:
        file = where.party_file(killed, {peer: "127.0.0.1:9" for peer in NAMES if peer < killed})
        async with run_server(where.agreement, killed, file, once=True) as process, process.running() as task:
            assert await asyncio.wait_for(predict_all(process.server, task), 60) is None
            assert process.server.was_over

    asyncio.run(predict())
    assert not mark.is_there  # it ended in order
    asyncio.run(predict())  # so the next prediction is a new one
    mark.write()
    asyncio.run(start_again())
    assert not mark.is_there
    mark.write()
    asyncio.run(predict())  # whose peers are there is met
    assert len(delivered) == 3
    assert marked[:2] == [False, False]


@pytest.mark.parametrize("waits", [False, True])
def test_who_has_the_scores_does_not_wait_for_partners_that_ended(
    tmp_path: Path, parts: Parts, monkeypatch: pytest.MonkeyPatch, waits: bool
) -> None:
    """The connection breaks before the bank has the shops' last messages, and the shops are gone.

    Its session ends, or it waits for the connection to come back.
    """
    monkeypatch.setattr(serving_sessions, "_GONE", 0.5)
    monkeypatch.setattr(serving_sessions, "_LOOK", 0.1)
    where = companies(tmp_path, parts, ServingTerms(asks=("bank",)))
    exchange = session.exchange_ledger_heads

    async def break_off(site: PartyContext) -> None:
        await exchange(site)
        if site.name == "bank" and waits:
            await asyncio.Event().wait()
        elif site.name == "bank":
            raise Parked("the link was cut")

    monkeypatch.setattr(session, "exchange_ledger_heads", break_off)

    async def predict() -> None:
        async with AsyncExitStack() as held:
            processes = await start(where, held, once=True)
            tasks = {name: await held.enter_async_context(process.running()) for name, process in processes.items()}
            asking = asyncio.ensure_future(predict_all(processes["bank"].server, tasks["bank"]))
            await asyncio.gather(tasks["shop1"], tasks["shop2"])
            for name in ("shop1", "shop2"):
                processes[name].server.mesh.kill_gate()  # type: ignore[attr-defined]
            scored = await asyncio.wait_for(asking, 60)
            assert scored is not None
            assert scored.ids

    asyncio.run(predict())


def test_a_prediction_ends_where_the_disk_is_full(
    tmp_path: Path, parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = companies(tmp_path, parts, ServingTerms(asks=("bank",)))

    async def find_no_room(site: PartyContext) -> None:
        raise DiskFull(errno.ENOSPC, "No space left on device", "shop1.jsonl")

    monkeypatch.setattr(session, "exchange_ledger_heads", find_no_room)

    async def predict() -> None:
        async with AsyncExitStack() as held:
            processes = await start(where, held, once=True)
            tasks = {name: await held.enter_async_context(process.running()) for name, process in processes.items()}
            await asyncio.gather(
                *(asyncio.wait_for(predict_all(processes[name].server, tasks[name]), 60) for name in NAMES)
            )

    with pytest.raises(DiskFull) as raised:
        asyncio.run(predict())
    assert raised.value.exit_code == 75
    assert EndMark(tmp_path / "bank" / "state" / "serving").is_there  # its scores are written


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
