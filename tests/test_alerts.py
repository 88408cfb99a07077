"""Alert rules and the Grafana board: every metric in them exists, every rule is tested, and nothing names a person.

`promtool`, of Debian's package `prometheus`, evaluates the rules where it is installed.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from securevfl.process.metric_names import LABELS, METRICS, sample_names

DEPLOY = Path(__file__).parents[1] / "deploy"
RULES = DEPLOY / "prometheus" / "alerts.yaml"
RULES_TEST = DEPLOY / "prometheus" / "alerts_test.yaml"
BOARD: dict[str, Any] = json.loads((DEPLOY / "grafana" / "securevfl.json").read_text(encoding="utf-8"))
ALERTS: list[dict[str, Any]] = yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"][0]["rules"]
FOREIGN = {"up", "node_systemd_unit_state", "kube_job_failed"}
"""Of Prometheus itself, node_exporter and kube-state-metrics."""
WORDS = {
    *("and", "or", "on", "by", "sum", "min", "rate", "increase", "group_left", "histogram_quantile", "le", "instance"),
    *("job", "name", "state", "condition", "namespace"),
}
PROMTOOL = shutil.which("promtool")
needs_promtool = pytest.mark.skipif(PROMTOOL is None, reason="promtool is not installed (Debian: prometheus)")


def _names(expression: str) -> set[str]:
    """The metrics and labels that an expression names; texts and durations are none."""
    bare = re.sub(r"\[\w+\]", "", re.sub(r'"[^"]*"', "", expression))
    return set(re.findall(r"[a-z_]\w*", bare)) - WORDS - set(LABELS)


def _panels() -> Iterator[dict[str, Any]]:
    yield from (panel for panel in BOARD["panels"] if panel["type"] != "row")


def _expressions() -> list[str]:
    return [target["expr"] for panel in _panels() for target in panel["targets"]]


@pytest.mark.parametrize("expression", [*(rule["expr"] for rule in ALERTS), *_expressions()])
def test_every_metric_exists(expression: str) -> None:
    names = _names(expression)
    assert names
    assert names <= sample_names() | FOREIGN, names - sample_names() - FOREIGN


def test_a_metric_that_does_not_exist_would_be_found() -> None:
    assert not _names("rate(securevfl_step_total[5m]) == 0") <= sample_names() | FOREIGN


@pytest.mark.parametrize("rule", ALERTS, ids=lambda rule: rule["alert"])
def test_labels_are_those_of_the_metric_and_somebody_knows_what_to_do(rule: dict[str, Any]) -> None:
    named = _names(rule["expr"]) - FOREIGN
    shown = set(re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"]))
    known = {label for name in named for label in METRICS[_base(name)].labels} | {"instance"}
    assert shown <= known
    assert rule["labels"]["severity"] in ("warning", "critical")
    assert rule["annotations"]["action"].endswith(".")
    assert rule["alert"] in RULES_TEST.read_text(encoding="utf-8")


def _base(name: str) -> str:
    bare = name.removeprefix("securevfl_")
    return bare if bare in METRICS else re.sub(r"_(total|bucket|count|sum)$", "", bare)


def _run_promtool(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    assert PROMTOOL is not None
    return subprocess.run([PROMTOOL, *arguments], capture_output=True, text=True, timeout=60, check=False)


@needs_promtool
def test_promtool_accepts_and_tests_the_rules() -> None:
    for what, file in (("check", RULES), ("test", RULES_TEST)):
        done = _run_promtool(what, "rules", file)
        assert done.returncode == 0, done.stdout + done.stderr


@needs_promtool
@pytest.mark.parametrize("name", [rule["alert"] for rule in ALERTS if rule["alert"] != "SecureVFLAgreementEnds"])
def test_a_rule_that_never_alerts_fails_its_test(name: str, tmp_path: Path) -> None:
    whole = yaml.safe_load(RULES.read_text(encoding="utf-8"))
    (rule,) = (one for one in whole["groups"][0]["rules"] if one["alert"] == name)
    rule["expr"] = "vector(0) > 1"
    (tmp_path / "alerts.yaml").write_text(yaml.safe_dump(whole), encoding="utf-8")
    shutil.copy(RULES_TEST, tmp_path)
    assert _run_promtool("test", "rules", tmp_path / RULES_TEST.name).returncode != 0


@needs_promtool
def test_promtool_parses_the_boards_expressions(tmp_path: Path) -> None:
    rules = [{"record": f"board:{at}", "expr": one} for at, one in enumerate(_expressions())]
    file = tmp_path / "board.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "board", "rules": rules}]}), encoding="utf-8")
    done = _run_promtool("check", "rules", file)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_board_is_one_that_grafana_loads() -> None:
    """What Grafana demands of a board's JSON: an identifier and a source for each panel, and no overlap."""
    numbers = [panel["id"] for panel in BOARD["panels"]]
    assert len(set(numbers)) == len(numbers)
    variables = {one["name"] for one in BOARD["templating"]["list"]}
    assert set(re.findall(r"\$\{?(\w+)", json.dumps(BOARD))) == variables
    taken: set[tuple[int, int]] = set()
    for panel in BOARD["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        cells = {(place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])}
        assert not cells & taken, panel["title"]
        taken |= cells
    for panel in _panels():
        assert panel["type"] in ("stat", "timeseries")
        assert panel["description"].endswith(".")
        assert panel["datasource"] == {"type": "prometheus", "uid": "${source}"}
        for target in panel["targets"]:
            labels = {label for name in _names(target["expr"]) for label in METRICS[_base(name)].labels} | {"instance"}
            assert set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])) <= labels


def test_the_page_lists_every_metric() -> None:
    page = (DEPLOY.parent / "docs" / "howto" / "operate.md").read_text(encoding="utf-8")
    listed = set(re.findall(r"`(securevfl_\w+)", page))
    wanted = {f"securevfl_{name}{'_total' if one.kind == 'counter' else ''}" for name, one in METRICS.items()}
    assert wanted == listed
