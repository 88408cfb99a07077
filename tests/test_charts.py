"""The Helm charts against the schemas of Kubernetes, and against each other and the command line.

No cluster and no Helm are needed: the charts use nothing but values. `kubernetes-validate` has the schemas.
"""

from __future__ import annotations

from typing import Any

import pytest
import typer
from support.charts import CHARTS, read_values, render_chart, used_values

from securevfl.cli import app

NAMES = sorted(path.name for path in CHARTS.iterdir())
VERSIONS = ("1.31", "1.34")
"""The oldest that the chart of a party needs, and a newer one."""


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("chart", NAMES)
def test_kubernetes_accepts_every_document(chart: str, version: str) -> None:
    checker = pytest.importorskip("kubernetes_validate", reason="kubernetes-validate is not installed")
    found = render_chart(chart, party="shop")
    assert found
    for document in found.values():
        checker.validate(document, version, strict=True)


@pytest.mark.parametrize(
    ("chart", "template", "path", "value"),
    [
        ("securevfl-party", "job.yaml", ("spec", "podReplacementPolicies"), "Failed"),
        ("securevfl-party", "job.yaml", ("spec", "completions"), "one"),
        ("securevfl-server", "deployment.yaml", ("spec", "strategy", "kind"), "Recreate"),
        ("securevfl-server", "service.yaml", ("spec", "ports"), 7443),
    ],
)
def test_the_checker_finds_mistakes(chart: str, template: str, path: tuple[str, ...], value: object) -> None:
    checker = pytest.importorskip("kubernetes_validate", reason="kubernetes-validate is not installed")
    document = at = render_chart(chart)[template]
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = value
    with pytest.raises(checker.ValidationError):
        checker.validate(document, VERSIONS[0], strict=True)


@pytest.mark.parametrize("chart", NAMES)
def test_every_value_is_used_and_there(chart: str) -> None:
    assert used_values(chart) == set(read_values(chart))


def _pod() -> dict[str, Any]:
    found: dict[str, Any] = render_chart("securevfl-server")["deployment.yaml"]["spec"]["template"]
    return found


def test_a_server_is_one_pod_that_can_write_its_state_alone() -> None:
    deployment, pod = render_chart("securevfl-server")["deployment.yaml"], _pod()
    assert deployment["spec"]["replicas"] == 1
    assert deployment["spec"]["strategy"]["rollingUpdate"] == {"maxSurge": 0, "maxUnavailable": 1}
    assert deployment["spec"]["selector"]["matchLabels"] == pod["metadata"]["labels"]
    assert pod["spec"]["securityContext"]["runAsNonRoot"] is True
    assert pod["spec"]["automountServiceAccountToken"] is False
    volumes = {one["name"] for one in pod["spec"]["volumes"]}
    every = pod["spec"]["containers"] + pod["spec"]["initContainers"]
    assert {mount["name"] for one in every for mount in one["volumeMounts"]} == volumes
    for one in every:
        assert one["securityContext"]["readOnlyRootFilesystem"] is True
        assert one["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    (server,) = pod["spec"]["containers"]
    writable = {mount["mountPath"] for mount in server["volumeMounts"] if not mount.get("readOnly")}
    assert writable == {"/state", "/tmp"}  # noqa: S108 - the container's own


def test_a_second_pod_stands_by_and_gets_no_requests() -> None:
    """It answers 503 and has metrics, which the liveness probe reads, but does not listen for peers."""
    (server,) = _pod()["spec"]["containers"]
    assert "--standby" in server["args"]
    assert server["readinessProbe"]["tcpSocket"] == {"port": "peers"}
    assert server["livenessProbe"]["exec"]["command"] == ["healthy"]
    assert server["args"][server["args"].index("--metrics") + 1] == "9464"


def test_a_service_leads_to_the_servers_ports() -> None:
    service = render_chart("securevfl-server")["service.yaml"]["spec"]
    assert service["selector"] == _pod()["metadata"]["labels"]
    ports = {one["name"] for one in _pod()["spec"]["containers"][0]["ports"]}
    assert {one["targetPort"] for one in service["ports"]} == ports


def test_the_servers_command_is_one_of_the_command_line() -> None:
    (server,) = _pod()["spec"]["containers"]
    group: Any = typer.main.get_command(app)
    known = {option for parameter in group.commands["serve"].commands["start"].params for option in parameter.opts}
    assert server["command"] == ["again", "securevfl"]
    assert server["args"][0] == "serve"
    assert {word for word in server["args"] if word.startswith("--")} <= known
