"""The page "Serve predictions": its files, commands and questions do what it shows."""

from __future__ import annotations

import asyncio
import json
import re
import shlex
from collections.abc import Mapping
from pathlib import Path

import httpx
import pytest
from support.servers import JOB, ready, served

from securevfl import cli
from securevfl.run.model_parts import ModelPart
from securevfl.serving import ServingPolicy, TokenFile
from securevfl.serving.policy import RULES
from securevfl.serving.process_tasks import serve_http
from securevfl.serving.settings import read_serving_file

PAGE = Path(__file__).parents[2] / "docs/howto/serve.md"
BLOCK = re.compile(r"```(toml|console|text)\n(.*?)```", re.DOTALL)


def shown_by(found: object, shown: object) -> bool:
    """Whether an answer has what the page shows; an ellipsis stands for anything."""
    if shown in ("…", ["…"]):
        return bool(found)
    if isinstance(shown, dict):
        return isinstance(found, dict) and all(shown_by(found.get(name), value) for name, value in shown.items())
    if isinstance(shown, list):
        return isinstance(found, list) and len(found) == len(shown) and all(map(shown_by, found, shown))
    return found == shown


async def curl(command: str, bank: str, token: str) -> object:
    words = shlex.split(command.replace("$BANK", bank).replace("$TOKEN", token))
    headers = dict(words[i + 1].split(": ") for i, word in enumerate(words) if word == "-H")
    body = next((words[i + 1] for i, word in enumerate(words) if word == "-d"), None)
    (url,) = [word for word in words if word.startswith("http")]
    async with httpx.AsyncClient() as client:
        answer = await client.request("GET" if body is None else "POST", url, content=body, headers=headers)
    return answer.json()


def test_the_page_does_what_it_shows(
    tmp_path: Path,
    plain: Mapping[str, ModelPart],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = BLOCK.findall(PAGE.read_text(encoding="utf-8"))
    bank, shop, local = (content for kind, content in blocks if kind == "toml")
    Path("bank.toml").write_text(re.sub(r"127\.0\.0\.1:\d+", "127.0.0.1:0", bank))
    Path("shop.toml").write_text(shop)
    Path("local.toml").write_text(local)
    assert read_serving_file("local.toml").local is not None
    consoles = [content for kind, content in blocks if kind == "console"]
    tokens = []
    for line in consoles[0].splitlines():
        with pytest.raises(SystemExit) as ended:
            cli.main(shlex.split(line.removeprefix("$ securevfl ")))
        assert not ended.value.code
        tokens.append(capsys.readouterr().out.strip())
    file = TokenFile("tokens.toml")
    assert [sorted(client.scopes) for token in tokens if (client := file.find_client(token))] == [
        ["score"],
        ["admin", "status"],
    ]

    async def main() -> int:
        asked = 0
        policies = {"shop1": read_serving_file("shop.toml").policy}
        async with (
            served(ready(tmp_path / "state", plain, policies, JOB)) as running,
            serve_http(running.bank, read_serving_file("bank.toml")) as (url, metrics),
        ):
            assert metrics
            found: object = None
            for line in consoles[1].splitlines():
                if line.startswith("$ "):
                    found, asked = await curl(line.removeprefix("$ "), url, tokens[0]), asked + 1
                else:
                    assert shown_by(found, json.loads(line)), f"{line} is on the page and the answer was {found}"
        return asked

    assert asyncio.run(main()) == 3


def test_the_page_names_what_the_policy_has() -> None:
    text = PAGE.read_text(encoding="utf-8")
    for name in ServingPolicy.__struct_fields__:
        assert name in text, name
        assert name in RULES


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('[http]\nlisten = "0.0.0.0:8080"\n', "where others can ask"),
        ('[http]\nlisten = "0.0.0.0:8080"\ntokens = "tokens.toml"\n', "where others can ask"),
        ('[http]\nlisten = "bank"\n', "no address"),
        ('[http]\nclients = "ca.crt"\n', "this server has no certificate"),
        ("[policy]\nmin_batch = 5\nmax_batch = 4\n", "no batch would do"),
        ("[policy]\nmin_batsh = 5\n", "min_batch"),
        ("[bathces]\n", "batches"),
    ],
)
def test_a_serving_file_with_mistakes_is_refused(text: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "serving.toml"
    path.write_text(text)
    with pytest.raises(Exception, match=words) as caught:
        read_serving_file(path)
    assert type(caught.value).__name__ in ("InputError", "Mistaken")
