"""An algorithm is one file, and the file may lie anywhere: the one of the page "Add an algorithm", through all of the
toolkit."""

from __future__ import annotations

import importlib
import os
import re
import runpy
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from support.helpers import low_overlap_parties, make_parties
from support.processes import run_python

import securevfl as sv
from securevfl.privacy import Releases, RowRelease
from securevfl.training import Algorithm

OUTSIDE = Path(__file__).parent / "outside"
ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/howto/add-an-algorithm.md"
BLOCKS = re.compile(r'```(?:python|toml|text|ini) title="([\w.]+)"\n(.*?)```', re.DOTALL)
FILES = dict(BLOCKS.findall(PAGE.read_text(encoding="utf-8")))


@pytest.fixture(scope="module")
def smoothed() -> Iterator[ModuleType]:
    """The file, as whoever wrote it imports it."""
    sys.path.insert(0, str(OUTSIDE))
    yield importlib.import_module("smoothed")
    sys.path.remove(str(OUTSIDE))
    del sys.modules["smoothed"]


def small(smoothed: ModuleType, **settings: Any) -> Algorithm:
    found: Algorithm = smoothed.Smoothed(hidden=8, top=(8,), lr=0.02, **settings)
    return found


def test_the_file_is_the_pages() -> None:
    assert FILES["smoothed.py"] == (OUTSIDE / "smoothed.py").read_text(encoding="utf-8")


@pytest.mark.parametrize("value", [-0.1, 1.0, "much"])
def test_its_own_field_has_a_bound(smoothed: ModuleType, value: object) -> None:
    with pytest.raises(sv.InputError, match=r"smoothed\.smoothing is"):
        smoothed.Smoothed(smoothing=value)


def test_smoothing_is_the_mean_with_the_uniform_distribution(smoothed: ModuleType) -> None:
    for classes, outputs in ((2, 1), (3, 3)):
        logits = torch.randn(5, outputs, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        labels = torch.arange(5) % classes
        loss, exact = smoothed.SmoothedCrossEntropy(classes, 0.3), smoothed.SmoothedCrossEntropy(classes, 0.0)
        every = torch.stack([exact(logits, torch.full((5,), c)) for c in range(classes)]).mean(dim=0)
        assert torch.allclose(loss(logits, labels), 0.7 * exact(logits, labels) + 0.3 * every)


@pytest.mark.parametrize("protection", [sv.Plain(), sv.BFV()], ids=lambda protection: protection.name)
def test_the_report_has_its_title_and_its_findings(smoothed: ModuleType, protection: Any, tmp_path: Path) -> None:
    job = sv.Job(algorithm=small(smoothed, smoothing=0.25), protection=protection, epochs=1, batch_size=16)
    page = sv.simulate(job, low_overlap_parties(1, rows=60)).report(tmp_path).read_text(encoding="utf-8")
    text = re.sub(r"<[^>]*>|\s+", " ", page)
    assert "SplitNN, smoothed labels (0.25)" in text
    assert "how far it smoothed its labels, which bounds what a gradient tells of one" in text
    assert "how far labels are smoothed" in text
    assert "labels were smoothed by 0.25: probabilities are less extreme" in text


@pytest.mark.parametrize("clip", [0.2, 1.0])
def test_noise_is_sized_by_twice_the_clip_as_the_loss_states_no_sensitivity(
    smoothed: ModuleType, clip: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[RowRelease] = []
    rows = Releases.plan_rows

    def watched(self: Releases, *given: Any, **settings: Any) -> RowRelease:
        made.append(rows(self, *given, **settings))
        return made[-1]

    monkeypatch.setattr(Releases, "plan_rows", watched)
    protection = sv.Plain(dp=sv.DP(labels=sv.Gaussian(epsilon=8.0, clip=clip)))
    job = sv.Job(algorithm=small(smoothed), protection=protection, epochs=2, batch_size=16)
    result = sv.simulate(job, low_overlap_parties(1, rows=60))
    (release,) = made
    assert release.what == "gradients"
    assert release.sensitivity == 2 * clip
    (counted,) = result.run("plain-dp").epsilon
    assert 0 < counted.epsilon_rdp <= 8.0


def test_a_job_file_finds_it_by_its_entry_point(tmp_path: Path) -> None:
    (tmp_path / "smoothed.py").write_text(FILES["smoothed.py"], encoding="utf-8")
    (tmp_path / "job.toml").write_text(FILES["job.toml"], encoding="utf-8")
    installed = tmp_path / "smoothed-0.1.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: smoothed\nVersion: 0.1\n", encoding="utf-8")
    (installed / "entry_points.txt").write_text(FILES["entry_points.txt"], encoding="utf-8")
    paths = [str(tmp_path), *(os.environ.get("PYTHONPATH", "").split(os.pathsep)), str(ROOT)]
    done = run_python(
        ["-c", "from securevfl.cli import main; main()", "run", "job.toml"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
    )
    assert done.returncode == 0, done.stderr
    assert "SplitNN, smoothed labels (0.2)" in " ".join(done.stdout.split())


def test_the_pages_programs_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, smoothed: ModuleType) -> None:
    """`check_algorithm` passes the file, `checks` are parameters for pytest, and a job in Python trains it."""
    monkeypatch.chdir(tmp_path)
    for name in ("check_smoothed.py", "test_smoothed.py", "train_smoothed.py"):
        (tmp_path / name).write_text(FILES[name], encoding="utf-8")
    runpy.run_path("check_smoothed.py")
    (parametrised,) = runpy.run_path("test_smoothed.py")["test_smoothed"].pytestmark
    assert len(list(parametrised.args[1])) > 20
    result = runpy.run_path("train_smoothed.py")["result"]
    assert result.run("plain").test["auc"] > 0.5
    used_elsewhere = {"smoothed.py", "softened.py", "entry_points.txt", "job.toml"}
    assert set(FILES) == used_elsewhere | {path.name for path in tmp_path.iterdir()}


@pytest.mark.parametrize("protection", [sv.Shares(soft=True), sv.Plain()], ids=lambda protection: protection.name)
def test_smoothing_in_targets_trains_on_shares(
    protection: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "softened.py").write_text(FILES["softened.py"], encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    softened = importlib.import_module("softened")
    told: list[torch.Tensor] = []
    targets = softened.SoftenedActive.targets

    def watched(self: Any, rows: Any) -> torch.Tensor:
        told.append(targets(self, rows))
        return told[-1]

    monkeypatch.setattr(softened.SoftenedActive, "targets", watched)
    algorithm = softened.Softened(hidden=4, top=(4,), smoothing=0.2)
    result = sv.simulate(
        sv.Job(algorithm=algorithm, protection=protection, epochs=1, batch_size=16), make_parties(2, 120)
    )
    assert 0 < result.record.runs[-1].test["log_loss"] < 5
    assert {round(float(value), 6) for value in torch.cat(told).flatten()} == {0.1, 0.9}
