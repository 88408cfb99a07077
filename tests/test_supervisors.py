"""Supervisors follow the table of exit codes: the systemd unit, the wrapper in containers, and the Kubernetes Job.

Neither systemd nor a cluster is needed: the files' rules are applied to every code as their manuals describe.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml
from securevfl_net.exit_codes import CODES, ExitClass, classify_exit, stopping_codes
from support.charts import render_chart

from securevfl.cli import app
from securevfl.node.child import _KILL

ROOT = Path(__file__).parents[1]
DEPLOY = ROOT / "deploy"
KILLED = (134, 137, 139)
EVERY = tuple(one.number for one in CODES) + KILLED


def _unit(text: str) -> dict[str, str]:
    return dict(line.split("=", 1) for line in text.splitlines() if "=" in line and not line.startswith("#"))


def _systemd(unit: dict[str, str]) -> Callable[[int], bool]:
    """Whether systemd restarts a service after an exit code; see `systemd.service(5)`."""

    def codes(name: str) -> set[int]:
        return {int(word) for word in unit.get(name, "").split()}

    def restarts(code: int) -> bool:
        if code in codes("RestartPreventExitStatus"):
            return False
        if code in codes("RestartForceExitStatus"):
            return True
        return unit.get("Restart") == "on-failure" and code not in codes("SuccessExitStatus") | {0}

    return restarts


UNIT = (DEPLOY / "securevfl-party.service").read_text(encoding="utf-8")
UNITS = {path.stem.removeprefix("securevfl-"): path.read_text("utf-8") for path in sorted(DEPLOY.glob("*.service"))}


@pytest.mark.parametrize("name", UNITS)
@pytest.mark.parametrize("code", EVERY)
def test_systemd_follows_the_table(code: int, name: str) -> None:
    assert _systemd(_unit(UNITS[name]))(code) == (classify_exit(code) == ExitClass.AGAIN)


@pytest.mark.parametrize("name", UNITS)
def test_a_units_command_is_one_of_the_command_line(name: str) -> None:
    _, *words = _unit(UNITS[name])["ExecStart"].split()
    command: Any = typer.main.get_command(app)
    while words and words[0] in getattr(command, "commands", {}):
        command = command.commands[words.pop(0)]
    options = {option for one in command.params for option in one.opts if option.startswith("--")}
    assert {word for word in words if word.startswith("--")} <= options
    arguments = [one for one in command.params if one.param_type_name == "argument"]
    assert len(arguments) == 1
    assert not words[0].startswith("--")


def test_systemd_waits_until_a_node_has_killed_a_process_that_does_not_end() -> None:
    """And it asks the node alone, which asks each process once: a second time would end it at once."""
    unit = _unit(UNITS["node"])
    assert float(unit["TimeoutStopSec"]) > _KILL + 10
    assert unit["KillMode"] == "mixed"
    assert unit["StartLimitIntervalSec"] == "0"


def test_no_other_supervisor_runs_a_node() -> None:
    """Once Compose or a chart does, its rules belong beside those above."""
    others = [path for path in DEPLOY.rglob("*.yaml") if "node run" in path.read_text("utf-8")]
    assert not others


def test_the_pages_unit_is_the_same() -> None:
    page = (ROOT / "docs/howto/exit-codes.md").read_text(encoding="utf-8")
    (shown,) = re.findall(r"```ini\n(.*?)```", page, re.DOTALL)
    ours = _unit(UNIT)
    assert shown.count("=") > 5
    assert _unit(shown).items() <= ours.items()
    restarts = _systemd(_unit(shown))
    assert [code for code in EVERY if restarts(code)] == [c for c in EVERY if classify_exit(c) == ExitClass.AGAIN]


def _render(name: str) -> dict[str, Any]:
    return render_chart("securevfl-party")[name]


def _job_action(code: int) -> str:
    """What the Job does after the party's exit code: the first rule that matches; `Count` without one."""
    for rule in _render("job.yaml")["spec"]["podFailurePolicy"]["rules"]:
        on = rule.get("onExitCodes")
        if on is not None and on["operator"] == "In" and code in on["values"]:
            return str(rule["action"])
    return "Count"


@pytest.mark.parametrize("code", [code for code in EVERY if code])
def test_the_kubernetes_job_follows_the_table(code: int) -> None:
    expected = {ExitClass.AGAIN: "Ignore", ExitClass.ACT: "FailJob"}[classify_exit(code)]
    assert _job_action(code) == expected


def test_the_job_is_one_that_kubernetes_accepts() -> None:
    job = _render("job.yaml")
    spec, pod = job["spec"], job["spec"]["template"]["spec"]
    assert (job["apiVersion"], job["kind"]) == ("batch/v1", "Job")
    assert pod["restartPolicy"] == "Never"  # a pod failure policy demands it
    assert spec["podReplacementPolicy"] == "Failed"
    assert (spec["completions"], spec["parallelism"]) == (1, 1)
    names = {one["name"] for one in pod["containers"]}
    for rule in spec["podFailurePolicy"]["rules"]:
        assert len(set(rule) & {"onExitCodes", "onPodConditions"}) == 1
        if "onExitCodes" in rule:
            values = rule["onExitCodes"]["values"]
            assert rule["onExitCodes"]["containerName"] in names
            assert values == sorted(set(values))
            assert 0 not in values
    volumes = {one["name"] for one in pod["volumes"]}
    every = pod["containers"] + pod["initContainers"]
    assert {mount["name"] for one in every for mount in one["volumeMounts"]} == volumes
    for one in every:
        assert one["securityContext"]["readOnlyRootFilesystem"] is True
        assert one["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    claim = _render("state.yaml")
    assert claim["metadata"]["name"] in {one["persistentVolumeClaim"]["claimName"] for one in pod["volumes"][-2:-1]}


def test_the_jobs_command_is_one_of_the_command_line() -> None:
    (party,) = _render("job.yaml")["spec"]["template"]["spec"]["containers"]
    group: Any = typer.main.get_command(app)
    known = {option for parameter in group.commands["party"].params for option in parameter.opts}
    assert party["args"][0] == "party"
    assert {word for word in party["args"] if word.startswith("--")} <= known
    assert all(isinstance(word, str) for word in party["args"])


def _again(tmp_path: Path, *codes: int) -> tuple[int, int, str]:
    """Exit code of the wrapper, how often it ran the command, and what it said: the command ends with these codes."""
    script = (
        "import os, pathlib, signal\n"
        f"count = pathlib.Path({str(tmp_path / 'count')!r})\n"
        "at = len(count.read_text()) if count.exists() else 0\n"
        "count.write_text('.' * (at + 1))\n"
        f"code = {list(codes)}[at]\n"
        "os.kill(os.getpid(), -code) if code < 0 else os._exit(code)\n"
    )
    done = subprocess.run(
        [sys.executable, DEPLOY / "again.py", sys.executable, "-c", script],
        env=os.environ | {"AGAIN_FIRST": "0.01"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return done.returncode, len((tmp_path / "count").read_text()), done.stderr


@pytest.mark.parametrize(
    ("codes", "end", "runs"),
    [
        ((0,), 0, 1),
        ((75, 75, 0), 0, 3),
        ((-9, 0), 0, 2),
        ((75, 8, 0), 8, 2),
        *(((c, 0), c, 1) for c in stopping_codes()),
    ],
)
def test_the_wrapper_starts_again_what_may_be(codes: tuple[int, ...], end: int, runs: int, tmp_path: Path) -> None:
    code, count, said = _again(tmp_path, *codes)
    assert (code, count) == (end, runs), said
    assert said.count("start again") == runs - 1


def test_the_wrapper_passes_sigterm_on_and_then_ends() -> None:
    script = (
        "import signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(75))\n"
        "print('ready', flush=True)\n"
        "time.sleep(60)\n"
    )
    wrapper = subprocess.Popen(
        [sys.executable, DEPLOY / "again.py", sys.executable, "-c", script],
        env=os.environ | {"AGAIN_FIRST": "60"},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert wrapper.stdout is not None
        assert wrapper.stdout.readline() == "ready\n"
        began = time.monotonic()
        wrapper.send_signal(signal.SIGTERM)
        assert wrapper.wait(30) == 75
        assert time.monotonic() - began < 30
    finally:
        wrapper.kill()
        wrapper.communicate()


def test_compose_leaves_restarts_to_the_wrapper() -> None:
    compose = yaml.safe_load((DEPLOY / "compose.yaml").read_text(encoding="utf-8"))
    for name, service in compose["services"].items():
        if name != "relay":
            assert service["entrypoint"] == ["again", "securevfl"]
            assert service["restart"] == "no"
    assert "deploy/again.py /usr/local/bin/again" in (DEPLOY / "Dockerfile").read_text(encoding="utf-8")
