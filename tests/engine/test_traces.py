"""What qemu and memcheck see of secrets: nothing in kernels of this machine's library, and each planted mistake.

`python tools/branch_traces.py` is the whole gate; this runs a few kernels, and a small one with the mistakes.
"""

from __future__ import annotations

import dataclasses
from functools import partial
from pathlib import Path

import branch_traces
import numpy as np
import pytest
from emulated.contracts import parameter_names
from emulated.jobs import Job, list_jobs
from emulated.machine import build_driver, missing_tool
from emulated.traces import PLANTS, Reports, block_trace, count_reports, plant
from securevfl_crypto.engine.build import build_library, list_parts, reason_not_to_build
from securevfl_crypto.engine.cpu import VECTOR_PATHS
from securevfl_crypto.engine.emitter import Function
from securevfl_crypto.engine.library import FOLDER, library_file
from securevfl_crypto.engine.parts import Part, argument_types

AVX2 = next(path for path in VECTOR_PATHS if path.name == "avx2")
PARAMETERS = "ptr noalias %out, ptr noalias %flags, i64 %n"
LIBRARY = FOLDER / library_file(AVX2.cpu_class)
_MISSING = reason_not_to_build() or missing_tool("qemu-x86_64")
traces = pytest.mark.skipif(_MISSING is not None, reason=f"{_MISSING}")
_UNSEEN = reason_not_to_build() or missing_tool("valgrind")
reports = pytest.mark.skipif(_UNSEEN is not None, reason=f"{_UNSEEN}")
built = pytest.mark.skipif(not LIBRARY.exists(), reason="no kernels were compiled ahead here")


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_driver("x86_64", tmp_path_factory.mktemp("driver"))


def _chosen_text() -> str:
    """A kernel that chooses between two numbers by secret flags, as the ladder does."""
    f = Function("choose", PARAMETERS, AVX2.lanes)

    def body(index: str, _: object) -> list[object]:
        f.store(f.select(f.load_flag("%flags", index), f.constant(7), f.constant(9)), "%out", index)
        return []

    f.loop("%n", body)
    return f.to_text()


def _library(text: str) -> bytes:
    return build_library(AVX2, [Part("curve", partial(str, text), argument_types({"choose": PARAMETERS}))])


def _arguments(flags: list[int]) -> dict[str, int | np.ndarray]:
    out = np.zeros((len(flags), AVX2.lanes), dtype=np.uint64)
    return {"out": out, "flags": np.array(flags, dtype=np.uint8), "n": len(flags)}


@traces
def test_a_branch_on_a_secret_changes_the_blocks_and_a_look_up_does_not(driver: Path) -> None:
    several = {}
    for what in (None, "a branch", "a look-up"):
        library = _library(_chosen_text() if what is None else plant(_chosen_text(), what))
        found = []
        for flags in ([0, 0, 0, 0], [1, 0, 0, 0], [0, 1, 1, 0]):
            given = _arguments(flags)
            found.append(block_trace("x86_64", driver, library, "svfl_curve_choose", given))
            assert given["out"][:, 0].tolist() == [7 if flag else 9 for flag in flags]  # it ran
        several[what] = len(set(found))
        assert {blocks for blocks, _ in found} != {0}
    assert several == {None: 1, "a branch": 3, "a look-up": 1}


@reports
@pytest.mark.parametrize(
    ("what", "expected"),
    [
        (None, Reports(0, 0)),
        ("a branch that no tried secret takes", Reports(1, 0)),
        ("a look-up", Reports(0, 1)),
    ],
)
def test_memcheck_sees_branches_that_are_not_taken_and_look_ups(
    driver: Path, what: str | None, expected: Reports
) -> None:
    library = _library(_chosen_text() if what is None else plant(_chosen_text(), what))
    given = _arguments([0, 1, 1, 0])
    assert count_reports(driver, library, "svfl_curve_choose", given, ["flags"]) == expected
    assert given["out"][:, 0].tolist() == [9, 7, 7, 9]


def _job(kernel: str) -> tuple[Job, list[str]]:
    job = next(one for one in list_jobs(AVX2) if one.kernel == kernel)
    part = next(part for part in list_parts(AVX2) if part.name == job.part)
    return job, parameter_names(part.text(), kernel)


@built
@traces
def test_the_ladder_runs_the_same_blocks_for_all_scalars(driver: Path) -> None:
    job, names = _job("ladder")
    runs = {
        block_trace("x86_64", driver, LIBRARY.read_bytes(), job.symbol, job.arguments(names, seed)) for seed in (0, 1)
    }
    ((blocks, _),) = runs
    assert blocks > 2 * 255


@built
@reports
def test_memcheck_sees_nothing_of_a_comparison_and_where_residues_go(driver: Path) -> None:
    for kernel, claimed in (("masked_comparison_0", True), ("residues_67_pext", False)):
        job, names = _job(kernel)
        assert job.claimed == claimed
        found = count_reports(driver, LIBRARY.read_bytes(), job.symbol, job.arguments(names, 1), tuple(job.secrets))
        assert found == (Reports(0, 0) if claimed else Reports(0, 8))


def test_secrets_differ_between_runs_and_nothing_else_does() -> None:
    for job in list_jobs(AVX2):
        names = [*job.sizes, *job.numbers]
        first, again, other = (job.arguments(names, seed) for seed in (1, 1, 2))
        for name in names:
            assert np.array_equal(first[name], again[name])
            assert np.array_equal(first[name], other[name]) == (name not in job.secrets)
        assert set(job.secrets) <= set(job.sizes)


def test_measured_times_are_compared_after_the_slowest_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2]))
    from benchmarks.timing import FOUND, welch

    draw = np.random.default_rng(1)
    classes = draw.integers(0, 2, 10_000)
    times = 86_000 + draw.normal(0, 200, 10_000) + 1e6 * (draw.random(10_000) < 0.05)  # interrupts
    assert welch(times, classes) < 4.5
    assert welch(times + 80 * classes, classes) > FOUND
    assert welch(times + 1e5 * classes, classes) > FOUND  # the fastest are of one class


def test_the_gate_fails_for_what_it_finds(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Both tools replaced: other blocks for other secrets, a branch; and a tool that sees nothing that is planted."""
    monkeypatch.setattr(branch_traces, "missing_tool", lambda *names: None)
    runs = iter(range(100))
    monkeypatch.setattr(branch_traces, "block_trace", lambda *given: (9, f"{next(runs)}"))
    monkeypatch.setattr(branch_traces, "count_reports", lambda *given: Reports(1, 0))
    gate = branch_traces.Gate(AVX2, tmp_path)
    job = list_jobs(AVX2)[0]
    gate.check(job, b"")
    assert [line.split(": ", 1)[1] for line in gate.problems] == [
        "svfl_curve_ladder runs other blocks for other secrets",
        "memcheck reports svfl_curve_ladder: Reports(branches=1, addresses=0)",
    ]
    gate.problems.clear()
    gate.check(dataclasses.replace(job, claimed=False), b"")
    assert gate.problems[-1].endswith("memcheck does not see the addresses of svfl_curve_ladder")
    gate.problems.clear()
    monkeypatch.setattr(branch_traces, "block_trace", lambda *given: (9, "same"))
    monkeypatch.setattr(branch_traces, "count_reports", lambda *given: Reports(0, 0))
    monkeypatch.setattr(branch_traces, "build_library", lambda path, parts: b"")
    gate.check_plants(job)
    assert len(gate.problems) == len(PLANTS) + 1
    with pytest.raises(ValueError, match="no flag to plant"):
        plant("define void @f() {}", "a branch")
