"""`make bench`: all benchmarks are in its list; what lacks a file is skipped with the reason; what breaks is seen."""

from __future__ import annotations

import json
import re
from pathlib import Path

import classes_page
import pytest

ROOT = Path(__file__).parents[1]
PARTS = {
    "claim_tests",
    "everything",
    "evidence",
    "evidence_plan",
    "kills_run",
    "linkage_peer",
    "psi_peers",
    "psi_two_processes",
    "psi_two_versions",
    "rules_cost",
    "shaping",
}
"""Modules that other benchmarks run, those that compare two checkouts, the one that runs all, and the one that goes on
with sweeps for as long as it is told."""

STUBS = {
    "whole": "print('figures')",
    "partly": "from benchmarks import skip; skip.note('the peer', 'it is not\\n installed'); print('figures')",
    "lacking": "from benchmarks import skip; skip.skip('images', 'mnist.npz is not here')",
    "peerless": "from benchmarks import skip; skip.needed('no_such_peer', 'peerless')",
    "broken": "raise ValueError('17 is not 18')",
    "sized": "import sys; print('arguments', sys.argv[1:])",
    "folder": "import os; print('results in', os.environ['SECUREVFL_BENCHMARKS'])",
}


@pytest.fixture(autouse=True)
def _importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT))


@pytest.fixture
def stubs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, code in STUBS.items():
        (tmp_path / f"stub_{name}.py").write_text(code, encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{ROOT}")


def _everything(*names: str, arguments: tuple[str, ...] = ()) -> int:
    from benchmarks.everything import Benchmark, main

    return main(arguments, [Benchmark(f"stub_{name}", ("--full",), ("--small",)) for name in names])


@pytest.mark.usefixtures("stubs")
def test_what_is_missing_is_skipped_with_the_reason(capfd: pytest.CaptureFixture[str]) -> None:
    assert _everything("whole", "partly", "lacking", "peerless") == 0
    output = capfd.readouterr().out
    assert output.count("figures") == 2
    summary = re.sub(r"after \d+ s", "after N s", output.partition("== summary\n")[2]).splitlines()
    assert summary == [
        "stub_whole --full: done after N s",
        "stub_partly --full: done after N s",
        "  skipped: the peer, because it is not installed",
        "stub_lacking --full: skipped: images, because mnist.npz is not here",
        "stub_peerless --full: skipped: peerless, because the package 'no_such_peer' is not installed",
    ]


@pytest.mark.usefixtures("stubs")
def test_a_benchmark_that_breaks_fails_the_whole_after_the_others_ran(capfd: pytest.CaptureFixture[str]) -> None:
    assert _everything("broken", "whole") == 1
    output = capfd.readouterr()
    assert "17 is not 18" in output.err
    assert "stub_broken --full: broke with exit status 1" in output.out
    assert "stub_whole --full: done" in output.out


@pytest.mark.usefixtures("stubs")
def test_small_sizes_leave_the_figures_of_the_full_ones_alone(
    capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert _everything("sized", "folder", arguments=("--quick",)) == 0
    output = capfd.readouterr().out
    assert "arguments ['--small']" in output
    assert f"results in {tmp_path / 'runs/benchmarks-quick'}" in output
    assert _everything("sized", "folder") == 0
    output = capfd.readouterr().out
    assert "arguments ['--full']" in output
    from benchmarks.folders import RESULTS

    assert f"results in {RESULTS}" in output


def test_each_class_of_cpus_has_a_folder_of_its_own() -> None:
    from benchmarks.folders import COMMITTED, folder_of_class

    classes = ["x86_64_v4_ifma", "x86_64_v4", "x86_64_v3", "none"]
    assert len({folder_of_class(one) for one in classes}) == len(classes)
    assert folder_of_class("x86_64_v4_ifma") == COMMITTED == ROOT / "benchmarks/results"
    assert folder_of_class("x86_64_v3") == COMMITTED / "x86_64_v3"


def test_the_page_has_the_figures_of_each_class_and_none_of_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = classes_page.PAGE.read_text(encoding="utf-8")
    assert "<!-- classes of CPUs -->" in page
    assert page == classes_page.written(page)
    ratios = {"ifma": 6.25, "avx2": 3.75}
    (tmp_path / "psi.json").write_text(json.dumps({"engine": {"ratio to openssl, median of rounds": ratios}}))
    monkeypatch.setattr(classes_page, "folder_of_class", lambda one: tmp_path / {"x86_64_v3": "v3"}.get(one, ""))
    assert "| X25519, over OpenSSL | 6.2 × | not measured |" in classes_page.block()
    (tmp_path / "v3").mkdir()
    (tmp_path / "psi.json").rename(tmp_path / "v3" / "psi.json")
    assert "| X25519, over OpenSSL | not measured | 3.8 × |" in classes_page.block()


def test_the_list_is_complete() -> None:
    from benchmarks.everything import BENCHMARKS

    listed = {benchmark.module.removeprefix("benchmarks.") for benchmark in BENCHMARKS}
    runnable = {
        file.stem for file in (ROOT / "benchmarks").glob("*.py") if "__main__" in file.read_text(encoding="utf-8")
    } | {file.parent.name for file in (ROOT / "benchmarks").glob("*/__main__.py")}
    assert listed == runnable - PARTS


def test_every_benchmark_that_a_page_names_is_there() -> None:
    pages = [*(ROOT / "docs").rglob("*.md"), ROOT / "README.md", *(ROOT / "examples" / "experiments").glob("*.toml")]
    named = {
        (page.relative_to(ROOT), name)
        for page in pages
        for name in re.findall(r"python -m benchmarks\.([\w.]+\w)", page.read_text(encoding="utf-8"))
    }
    assert len(named) > 50
    folder = ROOT / "benchmarks"
    missing = [
        (page, name)
        for page, name in named
        for path in [folder.joinpath(*name.split("."))]
        if not (path.with_suffix(".py").exists() or (path / "__main__.py").exists())
    ]
    assert not missing


def test_a_data_set_that_is_not_here_is_noted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from benchmarks.common import data
    from securevfl.data import datasets
    from securevfl.errors import InputError

    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SECUREVFL_DATA", raising=False)
    assert data(datasets.mnist, "MNIST halves") is None
    assert capsys.readouterr().err.startswith("skipped: MNIST halves, because mnist is not here: none of mnist.npz")

    def broken() -> None:
        raise InputError("17 rows are too few")

    with pytest.raises(InputError, match="17 rows"):  # any other mistake stays one
        data(broken, "MNIST halves")


def test_the_gpu_s_benchmark_runs_on_a_stand_in_and_says_where_there_is_no_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import torch

    from benchmarks import common, gpu, skip

    monkeypatch.setattr(common, "RESULTS", tmp_path)
    gpu.main(["--stand-in", "cpu", "--quick", "--only", "rows", "methods", "ring", "shares", "sweep"])
    figures = json.loads((tmp_path / "gpu-stand-in.json").read_text(encoding="utf-8"))
    assert "say nothing about a GPU" in figures["gpu"]["stand-in"]
    (row,) = figures["rows"].values()
    assert row["losses of the first epoch apart"] < 1e-4
    assert row["time over plain torch's"] > 0
    assert figures["methods"]["splitnn"]["cpu"]["epochs"] == 2
    assert figures["ring"]["16 x 16 x 16"]["multiplications"] == 4096
    assert figures["shares"]["three parties, wide layers"]["cpu"]["epochs"] == 3
    assert figures["sweep"]["credit"]["jobs"] == 2
    assert not (tmp_path / "gpu.json").exists()
    capsys.readouterr()
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(SystemExit) as caught:
        gpu.main([])
    assert caught.value.code == skip.STATUS
    assert capsys.readouterr().err == "skipped: gpu, because torch sees no CUDA device here\n"
