"""What is left of a party's bounds: in metrics from a closed list, in its status, and warned of in time."""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from prometheus_client.exposition import generate_latest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import CollectorRegistry
from securevfl_net.identity.certificate import describe_end
from securevfl_net.identity.making import Key, self_signed
from securevfl_net.link_state import LinkState
from typer.testing import CliRunner

import securevfl as sv
from securevfl.cli import app
from securevfl.process.metric_names import LABELS, METRICS, sample_names
from securevfl.process.metrics import TrainingMetrics
from securevfl.process.status import Status, read_status
from securevfl.process.status_table import status_lines
from securevfl.run.events import BoundsLeft, RunEvents
from securevfl.testing.company import create_company
from securevfl.testing.parties import make_parties

MARK = "MARKED-4711"
DAY = 86_400.0


def _shown(metrics: TrainingMetrics) -> str:
    registry = CollectorRegistry()
    registry.register(metrics)
    return generate_latest(registry).decode()


def _samples(text: str) -> dict[tuple[str, ...], float]:
    return {
        (one.name.removeprefix("securevfl_"), *one.labels.values()): one.value
        for family in text_string_to_metric_families(text)
        for one in family.samples
    }


def _left(**more: object) -> BoundsLeft:
    now = time.time()
    found = BoundsLeft(
        certificates={"bank": now + 20 * DAY, "shop": now - DAY},
        lists={"shop": now + 3 * DAY},
        agreement=now + 50 * DAY,
        attempts=3,
        seconds=1000.0,
        epsilon=4.0,
        results={"bank": 2},
        metric_sets={"bank": 7},
        disk=(10, 100),
    )
    return replace(found, **more)  # type: ignore[arg-type]


def test_metrics_show_what_is_left_now() -> None:
    metrics = TrainingMetrics("bank", "0.2.0")
    before = _samples(_shown(metrics))
    assert not {name for name, *_ in before} & {"certificate_seconds", "attempts_left", "epsilon_left"}
    metrics.bounds_changed(_left())
    metrics.epsilon_spent("bank", {"features": 1.5})
    metrics.phase("alignment")
    found = _samples(_shown(metrics))
    assert found["certificate_seconds", "bank"] == pytest.approx(20 * DAY, abs=60)
    assert found["certificate_seconds", "shop"] == pytest.approx(-DAY, abs=60)
    assert found["revocation_list_seconds", "shop"] == pytest.approx(3 * DAY, abs=60)
    assert found["agreement_seconds",] == pytest.approx(50 * DAY, abs=60)
    assert 0 <= found["phase_seconds", "alignment"] < 60
    exact = {
        ("attempts_left",): 3,
        ("attempt_seconds_left",): 1000,
        ("epsilon", "features"): 1.5,
        ("epsilon_bound",): 4,
        ("epsilon_left", "features"): 2.5,
        ("results_left", "bank"): 2,
        ("metric_sets", "bank"): 7,
        ("disk_free_bytes",): 10,
        ("disk_bytes",): 100,
    }
    assert exact.items() <= found.items()


def test_metrics_are_a_closed_list_and_labels_have_a_shape() -> None:
    """A party's name is offered that is none, a release, a phase and a code: none of them is shown."""
    metrics = TrainingMetrics(MARK, MARK)
    metrics.links_changed({MARK: LinkState(connected=True, silent=4711.5), "shop": LinkState()})
    metrics.epsilon_spent("bank", {MARK: 4711.25, "features": 1.0})
    metrics.bounds_changed(_left(certificates={MARK: 1.0}, lists={MARK: 1.0}, results={MARK: 1}, metric_sets={MARK: 1}))
    metrics.phase(MARK)
    metrics.report_event("refused", MARK, peer=MARK, code=MARK)
    metrics.report_event("ended", MARK, **{MARK: MARK})
    metrics.epoch(1, 4711.75, {"auc": 4711.125})
    text = _shown(metrics)
    assert MARK not in text
    assert "4711" not in text
    for family in text_string_to_metric_families(text):
        for one in family.samples:
            assert one.name in sample_names()
            assert all(name == "le" or LABELS[name](value) is not None for name, value in one.labels.items())


def test_every_label_is_listed_and_no_metric_is_about_data() -> None:
    assert {label for one in METRICS.values() for label in one.labels} <= set(LABELS)
    assert not [name for name in METRICS if any(word in name for word in ("loss", "auc", "class", "score", "weight"))]


class _Keeps(RunEvents):
    def __init__(self) -> None:
        self.left: list[BoundsLeft] = []

    def bounds_changed(self, left: BoundsLeft) -> None:
        self.left.append(left)


def test_a_party_reads_its_own_bounds_and_its_status_warns(tmp_path: Path) -> None:
    """Over TLS, with certificates, an agreement and result books that are real."""
    noise = sv.DP(features=sv.Gaussian(epsilon=8.0))
    job = sv.Job(protection=sv.Plain(dp=noise), algorithm=sv.SplitNN(hidden=4), epochs=1, batch_size=32, seed=3)
    company = create_company(
        tmp_path, make_parties(passive=1, rows=120), job, policies={"shop1": sv.Policy(max_results=500)}, attempts=5
    )
    keeps, metrics = _Keeps(), TrainingMetrics("shop1", "0")
    company.over_network(hearers={"shop1": [keeps, metrics]})
    first = keeps.left[0]
    assert set(first.certificates) == {"bank", "shop1"}
    assert first.attempts == 5
    assert 0 < first.seconds <= 7 * DAY
    assert first.agreement > time.time()
    assert first.disk[0] > 0
    now, state = time.time(), company.state_folder("shop1")
    found = read_status(state)
    assert set(found["certificates"]) == {"bank", "shop1"}
    assert not [line for line in status_lines(found, now) if "WARNING" in line]  # the job is done
    found |= {"phase": "training"}
    later = max(found["certificates"].values()) - 10 * DAY
    said = [line for line in status_lines(found, later) if line.startswith("WARNING")]
    assert [line.partition(":")[0] for line in said] == ["WARNING"] * 2
    assert "bank has to rotate it" in said[0]
    assert "run securevfl certs rotate shop1" in said[1]
    assert "ends in 10 days" in said[0]
    assert "shop1" in CliRunner().invoke(app, ["status", str(state)]).output


def test_a_status_of_an_older_version_is_shown() -> None:
    found = Status("bank", "active", "a job", "ab" * 32).file_content({}) | {"alive": True}
    assert found.pop("certificates") == {}
    assert status_lines(found)


@pytest.mark.parametrize(("days", "words"), [(31, ""), (29, "ends in 29 days"), (0, "ends in 0 days"), (-2, "ended 2")])
def test_an_end_within_30_days_is_warned_of(days: float, words: str) -> None:
    said = describe_end(days * DAY)
    assert said.startswith(words)
    assert bool(said) == bool(words)


@pytest.mark.parametrize(("days", "warned"), [(90, False), (20, True)])
def test_certs_show_warns(days: int, warned: bool, tmp_path: Path) -> None:
    file = tmp_path / "bank.crt"
    file.write_bytes(self_signed("bank", Key.generate(), datetime.now(UTC), days=days).pem)
    said = CliRunner().invoke(app, ["certs", "show", str(file)]).output
    assert ("WARNING: it ends in" in said) == warned
    assert ("securevfl certs rotate" in said) == warned
