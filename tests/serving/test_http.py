"""The HTTP side: statuses, authentication, limits, metrics, and that nothing names a customer."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path

import httpx
import numpy as np
import pytest
from prometheus_client import generate_latest
from securevfl_net.identity.making import Key, issue_certificate, make_authority, make_request, self_signed
from support.servers import JOB, Served, forget_answers, put, ready, served, trained, until

import securevfl as sv
from securevfl.run.model_parts import ModelPart
from securevfl.serving import Batching, RequestLimits, ServingPolicy, TokenFile, make_token
from securevfl.serving.access import AccessControl
from securevfl.serving.guards import Guarded
from securevfl.serving.http import application
from securevfl.serving.metrics import ServingMetrics
from securevfl.serving.process_tasks import serve_http
from securevfl.serving.scoring import ScoringRouter
from securevfl.serving.settings import read_serving_file
from securevfl.serving.strict_http import CERTIFICATE
from securevfl.testing.parties import make_parties

Parts = Mapping[str, ModelPart]


@dataclass
class Asked:
    """A client of a served model."""

    http: httpx.AsyncClient
    running: Served
    metrics: ServingMetrics

    async def score(self, name: str, **more: object) -> httpx.Response:
        return await self.http.post("/v1/score", json={"customer": name}, **more)  # type: ignore[arg-type]


@asynccontextmanager
async def asked(
    folder: Path,
    parts: Parts,
    *,
    policies: Mapping[str, ServingPolicy] | None = None,
    tokens: TokenFile | None = None,
    limits: RequestLimits | None = None,
    local: ModelPart | None = None,
    away: bool = False,
) -> AsyncIterator[Asked]:
    async with served(ready(folder, parts, policies), Batching(grace=0.05)) as running:
        metrics = ServingMetrics(running.bank)
        front = AccessControl(ScoringRouter(running.bank, local, away=away), metrics, tokens=tokens, limits=limits)
        hosts = ("localhost",) if tokens is None else None
        transport = httpx.ASGITransport(Guarded(application(front), hosts=hosts))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as http:
            yield Asked(http, running, metrics)


def test_a_customer_a_batch_and_what_is_served(tmp_path: Path, plain: Parts) -> None:
    async def main() -> None:
        async with asked(tmp_path, plain) as client:
            common = sorted(client.running.bank.common_customers)
            one = await client.score(common[0])
            assert one.status_code == 200
            content = one.json()
            assert content["model"] == "joint"
            assert content["digest"] == client.running.bank.digest
            assert len(content["classes"]) == len(content["probabilities"]) == 2
            assert np.isclose(sum(content["probabilities"]), 1)
            assert one.headers["cache-control"] == "no-store"
            many = await client.http.post("/v1/scores", json={"customers": [common[0], "nobody", common[0]]})
            items = many.json()["answers"]
            assert [item["status"] for item in items] == [200, 404, 200]
            assert items[0]["score"] == content == items[2]["score"]
            assert "nobody" not in many.text
            status = (await client.http.get("/v1/status")).json()
            assert status["model"]["digest"] == content["digest"]
            assert status["index"] == len(common)
            assert (await client.http.get("/healthz")).status_code == 200
            assert (await client.http.get("/readyz")).json() == {"ready": True, "waiting_for": {}, "problem": ""}
            page = await client.http.get("/docs")
            assert "/v1/score" in page.text
            assert "http://" not in page.text.replace("http://localhost", "")
            assert "https://" not in page.text

    asyncio.run(main())


@pytest.mark.parametrize(
    ("method", "path", "content", "headers", "status"),
    [
        ("POST", "/v1/score", b'{"customer": 5}', {}, 422),
        ("POST", "/v1/score", b'{"customer": ""}', {}, 422),
        ("POST", "/v1/score", b'{"customer": "p1", "more": 1}', {}, 422),
        ("POST", "/v1/score", b"{", {}, 422),
        ("POST", "/v1/scores", b'{"customers": []}', {}, 422),
        ("POST", "/v1/score", b'{"customer": "p1"}', {"content-type": "text/plain"}, 415),
        ("POST", "/v1/score", b'{"customer": "p1"}', {"host": "evil.example"}, 421),
        ("POST", "/v1/score", b"x" * ((1 << 20) + 1), {}, 413),
        ("GET", "/v1/score", b"", {}, 405),
        ("POST", "/v1/models/activate", b'{"run": "../../etc"}', {}, 422),
        ("POST", "/v1/models/activate", b'{"run": "00112233445566778899aabbccddeeff"}', {}, 409),
        ("POST", "/v1/models/rollback", b"{}", {}, 409),
    ],
)
def test_what_is_wrong_is_said(
    method: str, path: str, content: bytes, headers: dict[str, str], status: int, tmp_path: Path, plain: Parts
) -> None:
    async def main() -> None:
        async with asked(tmp_path, plain) as client:
            sent = {"content-type": "application/json"} | headers
            found = await client.http.request(method, path, content=content, headers=sent)
            assert found.status_code == status, found.text
            assert len(found.content) < 2000

    asyncio.run(main())


def test_a_party_that_is_away_is_named(tmp_path: Path, plain: Parts) -> None:
    async def main() -> None:
        async with asked(tmp_path, plain) as client:
            name = min(client.running.bank.common_customers)
            client.running.crash("shop2")
            found = await client.score(name)
            assert found.status_code == 503
            assert found.json()["party"] == "shop2"
            assert int(found.headers["retry-after"]) >= 1
            state = await client.http.get("/readyz")
            assert state.status_code == 503
            assert "shop2" in state.json()["waiting_for"]
            assert (await client.http.get("/healthz")).status_code == 200
            await client.running.again("shop2")
            assert (await client.score(name)).status_code == 200

    asyncio.run(main())


def test_a_serving_policys_rule_reaches_the_client(tmp_path: Path, plain: Parts) -> None:
    policies = {"shop1": ServingPolicy(scores_per_record=1), "shop2": ServingPolicy(max_batch=2)}

    async def main() -> None:
        async with asked(tmp_path, plain, policies=policies) as client:
            one, two, three = sorted(client.running.bank.common_customers)[:3]
            assert (await client.score(one)).status_code == 200
            forget_answers(client.running.bank)
            again = await client.score(one)
            assert again.status_code == 429
            assert (again.json()["party"], again.json()["rule"]) == ("shop1", "scores_per_record")
            assert int(again.headers["retry-after"]) <= 86400
            found = await client.http.post("/v1/scores", json={"customers": [one, two, three]})
            statuses = [item["status"] for item in found.json()["answers"]]
            assert statuses == [403] * 3
            assert found.json()["answers"][1]["problem"]["rule"] == "max_batch"
            text = generate_latest(client.metrics.registry).decode()
            assert 'securevfl_refusals_total{party="shop1",rule="scores_per_record"} 1.0' in text

    asyncio.run(main())


def test_limits_of_clients_and_customers(tmp_path: Path, plain: Parts) -> None:
    limits = RequestLimits(client_rows_per_minute=1, client_burst=4, customer_scores_per_minute=1, customer_burst=2)

    async def main() -> None:
        async with asked(tmp_path, plain, limits=limits) as client:
            one, two = sorted(client.running.bank.common_customers)[:2]
            assert [(await client.score(one)).status_code for _ in range(2)] == [200, 200]
            often = await client.score(one)
            assert (often.status_code, often.json()["rule"]) == (429, "customer")
            assert 1 <= int(often.headers["retry-after"]) <= 60
            assert (await client.score(two)).status_code == 200
            much = await client.score(two)
            assert (much.status_code, much.json()["rule"]) == (429, "client")
            assert 1 <= int(much.headers["retry-after"]) <= 60

    asyncio.run(main())


def test_tokens_and_certificates_say_who_may_do_what(tmp_path: Path, plain: Parts) -> None:
    file = tmp_path / "tokens.toml"
    teller = make_token(file, "teller")
    keeper = make_token(file, "keeper", ("admin", "status"))
    old = make_token(file, "old", expires=date(2020, 1, 1))
    der = b"a certificate"
    with file.open("a") as more:
        digest = hashlib.sha256(der).hexdigest()
        more.write(f'\n[[token]]\nclient = "machine"\nkind = "certificate"\nsha256 = "{digest}"\n')

    async def main() -> None:
        async with asked(tmp_path / "state", plain, tokens=TokenFile(file)) as client:
            name = min(client.running.bank.common_customers)

            async def ask(token: str) -> int:
                return (await client.score(name, headers={"authorization": f"Bearer {token}"})).status_code

            assert (await client.score(name)).status_code == 401
            assert [await ask(token) for token in (teller, keeper, old, teller[:-1], "")] == [200, 403, 401, 401, 401]
            state = await client.http.get("/v1/status", headers={"authorization": f"Bearer {teller}"})
            assert state.status_code == 403
            state = await client.http.get("/v1/status", headers={"authorization": f"Bearer {keeper}"})
            assert state.status_code == 200
            app = client.http._transport.app  # type: ignore[attr-defined]

            async def shown(scope: dict[str, object], receive: object, send: object) -> None:
                scope[CERTIFICATE] = der
                await app(scope, receive, send)

            transport = httpx.ASGITransport(shown)  # type: ignore[arg-type]
            async with httpx.AsyncClient(transport=transport, base_url="http://bank.example") as machine:
                assert (await machine.post("/v1/score", json={"customer": name})).status_code == 200

    asyncio.run(main())


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> ModelPart:
    """The bank's own model."""
    job = JOB.replace(algorithm=sv.Local(hidden=4, top=(4,), bottom=(3,)))
    return trained(tmp_path_factory.mktemp("local"), job)["bank"]


def test_whom_nobody_else_knows_the_local_model_scores(tmp_path: Path, plain: Parts, local: ModelPart) -> None:
    table = make_parties()["bank"]

    async def main() -> None:
        async with asked(tmp_path / "with", plain, local=local) as client:
            common = client.running.bank.common_customers
            alone = next(name for name in table.ids if name not in common)
            found = (await client.score(alone)).json()
            assert (found["model"], found["digest"]) == ("local", local.digest)
            both = await client.http.post("/v1/scores", json={"customers": [min(common), alone, "who"]})
            answers = both.json()["answers"]
            assert [item["status"] for item in answers] == [200, 200, 404]
            assert [item["score"]["model"] for item in answers[:2]] == ["joint", "local"]
            client.running.crash("shop1")
            assert (await client.score(alone)).status_code == 200, "nobody else is needed"
        async with asked(tmp_path / "without", plain) as client:
            found = await client.score(alone)
            assert found.status_code == 404
            assert "no local model" in found.json()["reason"]

    asyncio.run(main())


def test_while_a_party_is_away_the_local_model_answers_where_the_bank_says_so(
    tmp_path: Path, plain: Parts, local: ModelPart
) -> None:
    async def main() -> None:
        for away in (True, False):
            async with asked(tmp_path / str(away), plain, local=local, away=away) as client:
                name = min(client.running.bank.common_customers)
                assert (await client.score(name)).json()["model"] == "joint"
                client.running.crash("shop1")
                await until(lambda: "shop1" in client.running.bank.away)
                found = await client.score(name)
                assert found.status_code == (200 if away else 503)
                if away:
                    assert (found.json()["model"], found.json()["digest"]) == ("local", local.digest)

    asyncio.run(main())


def test_a_local_model_needs_nobody(tmp_path: Path, plain: Parts) -> None:
    async def main() -> None:
        async with served(ready(tmp_path, plain)) as running:
            with pytest.raises(sv.InputError, match="needs other parties"):
                ScoringRouter(running.bank, plain["bank"])

    asyncio.run(main())


def test_neither_logs_nor_metrics_nor_files_name_a_customer(
    tmp_path: Path, plain: Parts, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every identifier of every table is looked for in all that was logged, counted and written while serving."""
    caplog.set_level(logging.DEBUG)
    policies = {name: ServingPolicy(scores_per_record=2) for name in ("bank", "shop1", "shop2")}

    async def main() -> str:
        async with asked(tmp_path / "state", plain, policies=policies) as client:
            names = sorted(client.running.bank.common_customers)
            for name in [*names[:3], names[0], names[0], "p9999"]:
                await client.score(name)
            await client.http.post("/v1/scores", json={"customers": names[:5]})
            await client.http.post("/v1/score", json={"customer": 5, names[0]: 1})

            async def broken(asked: list[str]) -> None:
                raise RuntimeError(f"about {asked}")

            monkeypatch.setattr(client.running.bank, "scores", broken)
            unforeseen = await client.score(names[7])
            assert unforeseen.status_code == 500
            assert names[7] not in unforeseen.text
            client.running.crash("shop1")
            return generate_latest(client.metrics.registry).decode() + str(client.running.bank.status())

    shown = asyncio.run(main())
    assert "securevfl_requests_total" in shown
    written = b"".join(path.read_bytes() for path in sorted((tmp_path / "state").rglob("*")) if path.is_file())
    assert b"scored" in written
    people = {name for table in make_parties().values() for name in table.ids}
    for name in people | {"p9999"}:
        assert name not in shown
        assert name not in caplog.text
        assert name.encode() not in written
    for word in ("class", "probabilit"):
        assert word not in shown.replace("classes", "")


def test_clients_show_certificates_over_tls(tmp_path: Path, plain: Parts) -> None:
    """A client of the authority who is listed gets a score; one who is not listed, or of nobody, gets none."""
    now = datetime.now(UTC)
    authority_key, key = Key.generate(), Key.generate()
    authority = make_authority("clients", authority_key, now)
    (tmp_path / "clients.crt").write_bytes(authority.pem)
    (tmp_path / "bank.key").write_bytes(key.pem)
    (tmp_path / "bank.crt").write_bytes(self_signed("bank", key, now).pem)
    contexts = {}
    for name in ("teller", "other", "stranger"):
        own = Key.generate()
        certificate = (
            self_signed(name, own, now)
            if name == "stranger"
            else issue_certificate(make_request(name, own), authority, authority_key, now, name=name)
        )
        (tmp_path / f"{name}.key").write_bytes(own.pem)
        (tmp_path / f"{name}.crt").write_bytes(certificate.pem)
        context = ssl.create_default_context(cafile=str(tmp_path / "bank.crt"))
        context.check_hostname = False  # the certificate of the test names a party, not a host
        context.load_cert_chain(tmp_path / f"{name}.crt", tmp_path / f"{name}.key")
        contexts[name] = context
        if name == "teller":
            digest = hashlib.sha256(certificate.der).hexdigest()
            listed = f'[[token]]\nclient = "teller"\nkind = "certificate"\nsha256 = "{digest}"\n'
            (tmp_path / "tokens.toml").write_text(listed)
    (tmp_path / "serving.toml").write_text(
        '[http]\nlisten = "127.0.0.1:0"\nmetrics = "127.0.0.1:0"\ntokens = "tokens.toml"\n'
        'certificate = "bank.crt"\nkey = "bank.key"\nclients = "clients.crt"\n'
    )

    async def main() -> None:
        async with (
            served(ready(tmp_path / "state", plain)) as running,
            serve_http(running.bank, read_serving_file(tmp_path / "serving.toml")) as (url, _),
        ):
            assert url.startswith("https://")
            question = {"customer": min(running.bank.common_customers)}
            for name, status in (("teller", 200), ("other", 401)):
                async with httpx.AsyncClient(verify=contexts[name]) as client:
                    assert (await client.post(f"{url}/v1/score", json=question)).status_code == status
            async with httpx.AsyncClient(verify=contexts["stranger"]) as client:
                with pytest.raises(httpx.TransportError):
                    await client.post(f"{url}/v1/score", json=question)

    asyncio.run(main())


def test_the_index_and_models_are_managed(tmp_path: Path, plain: Parts) -> None:
    more = trained(tmp_path / "second", JOB, make_parties(seed=3))

    async def main() -> None:
        async with asked(tmp_path / "state", plain) as client:
            bank = client.running.bank
            rows = (await client.http.post("/v1/index/refresh", json={})).json()["rows"]
            assert rows == len(bank.common_customers)
            before, run = bank.digest, more["bank"].run
            missing = await client.http.post("/v1/models/activate", json={"run": run})
            assert missing.status_code == 409
            for name, server in client.running.servers.items():
                put(server.place, more[name])
            found = await client.http.post("/v1/models/activate", json={"run": run})
            assert found.status_code == 200
            assert found.json()["digest"] == bank.digest != before
            assert (await client.http.post("/v1/models/rollback", json={})).json()["digest"] == before

    asyncio.run(main())
