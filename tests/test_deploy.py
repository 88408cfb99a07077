"""What the deployment files promise: nobody is root, nothing but state is written, parties see the relay alone.

No image is built here; the files are read. Their commands are held against the command line's own help.
"""

from __future__ import annotations

import re
import shlex
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from securevfl.cli import app

ROOT = Path(__file__).parents[1]
DOCKERFILE = (ROOT / "deploy" / "Dockerfile").read_text(encoding="utf-8")
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "deploy" / "compose.yaml").read_text(encoding="utf-8"))
SERVICES: dict[str, Any] = COMPOSE["services"]
PARTIES = [name for name in SERVICES if name != "relay"]


def _stages() -> list[list[tuple[str, str]]]:
    """Instructions of each stage."""
    text = re.sub(r"\\\n", " ", "\n".join(line for line in DOCKERFILE.splitlines() if not line.startswith("#")))
    stages: list[list[tuple[str, str]]] = [[]]
    for line in filter(str.strip, text.splitlines()):
        word, _, rest = line.partition(" ")
        if word == "FROM":
            stages.append([])
        stages[-1].append((word, rest.strip()))
    return stages


def test_the_image_has_no_root_and_no_compiler() -> None:
    _, build, run = _stages()
    words = [word for word, _ in run]
    assert [rest for word, rest in run if word == "USER"] == ["10001:10001"]
    assert words.index("USER") > max(i for i, word in enumerate(words) if word in ("RUN", "COPY"))
    assert {"HEALTHCHECK", "ENTRYPOINT", "STOPSIGNAL"} <= set(words)
    installs = [rest for word, rest in run if word == "RUN"]
    assert not re.search(r"apt|pip|gcc|g\+\+|build-essential|curl|wget", " ".join(installs))
    assert next(rest for word, rest in run if word == "COPY").startswith("--from=build /opt/securevfl ")
    assert run[0][1].startswith(build[0][1].split()[0])  # both from one base
    installs = [rest for word, rest in build if word == "RUN" and " install " in rest]
    assert installs
    assert all("--constraint constraints.txt" in rest for rest in installs)
    kept = next(rest for word, rest in run if word == "ENV")
    assert "PYTHONDONTWRITEBYTECODE=1" in kept


def test_what_is_copied_exists_and_keys_are_not() -> None:
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    assert ignored[1] == "*"
    let_in = {line.removeprefix("!") for line in ignored if line.startswith("!")}
    assert {"**/*.key", "**/*.pem"} <= set(ignored)
    for word, rest in (one for stage in _stages() for one in stage):
        if word == "COPY" and "--from=" not in rest:
            *sources, _ = [part for part in rest.split() if not part.startswith("--")]
            for source in sources:
                assert (ROOT / source).exists(), source
                assert source in let_in, source


@pytest.mark.parametrize("name", list(SERVICES))
def test_every_service_can_write_its_state_and_nothing_else(name: str) -> None:
    service = SERVICES[name]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["user"].startswith("${SECUREVFL_UID")
    assert "ports" not in service  # nothing is open to the outside
    assert "privileged" not in service
    assert "network_mode" not in service
    writable = [one["target"] for one in service.get("volumes", []) if not one.get("read_only")]
    assert writable == ([] if name == "relay" else ["/state"])
    assert {"pids_limit", "mem_limit", "cpus"} <= set(service)


def test_parties_see_the_relay_alone() -> None:
    assert all(network == {"internal": True} for network in COMPOSE["networks"].values())
    for name in PARTIES:
        assert SERVICES[name]["networks"] == [name]
        others = [one for other in PARTIES if other != name for one in SERVICES[other]["networks"]]
        assert name not in others
        mounts = SERVICES[name]["volumes"]
        assert {one["source"] for one in mounts} == {f"./{name}", f"{name}-state"}
        assert all(secret.startswith(f"{name}_") for secret in SERVICES[name]["secrets"])
    assert SERVICES["relay"]["networks"] == list(COMPOSE["networks"])
    assert "volumes" not in SERVICES["relay"]  # it keeps nothing
    assert set(COMPOSE["volumes"]) == {f"{name}-state" for name in PARTIES}
    used = [secret for service in SERVICES.values() for secret in service["secrets"]]
    assert sorted(used) == sorted(COMPOSE["secrets"])
    assert all(set(secret) == {"file"} for secret in COMPOSE["secrets"].values())
    assert "environment" not in SERVICES["bank"]  # no secret in it


@pytest.mark.parametrize("name", list(SERVICES))
def test_commands_are_those_of_the_command_line(name: str) -> None:
    command, *arguments = map(str, SERVICES[name]["command"])
    group: Any = typer.main.get_command(app)
    known = {option for parameter in group.commands[command].params for option in parameter.opts}
    given = {word for word in arguments if word.startswith("--")}
    assert given <= known, given - known


@pytest.fixture
def listening() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def test_the_health_check_tells(listening: int, tmp_path: Path) -> None:
    script = ROOT / "deploy" / "healthy.py"
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        closed = unused.getsockname()[1]
        for port, code in ((listening, 0), (closed, 1)):
            done = subprocess.run(
                [sys.executable, "-I", script], env={"HEALTH": f"tcp://127.0.0.1:{port}"}, check=False
            )
            assert done.returncode == code
    (_, command), *_ = [one for stage in _stages() for one in stage if one[0] == "HEALTHCHECK"]
    assert shlex.split(command.partition("CMD ")[2].strip("[]")) == ["healthy"]
