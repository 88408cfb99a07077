"""The command that runs what is missing: cells once, kept one by one, what serves most first, whatever they show."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from securevfl.errors import InputError
from securevfl.experiments.cells import CellError
from securevfl.report import CellFigures, SweepRecord

ROOT = Path(__file__).parents[1]
SWEEP = """
name = "{name}"
seeds = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]
[axis]
values = [0.05, 0.2]
[job]
epochs = {epochs}
steps = 2
batch_size = 16
[[data]]
name = "digits"
label = "digits"
algorithm = {{ bottom = [], hidden = 4, top = [4] }}
[[method]]
label = "local"
algorithm = "local"
[[method]]
label = "vanilla"
algorithm = "splitnn"
[[method]]
label = "other"
algorithm = "zero_imputation"
"""
CLAIMS = """
[[claim]]
paper = "P"
where = "Table 1"
sentence = "s"
sweep = "one"
at = [0.05]
better = "local"
worse = "vanilla"
"""


@pytest.fixture(autouse=True)
def _importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "one.toml").write_text(SWEEP.format(name="one", epochs=1), "utf-8")
    (tmp_path / "two.toml").write_text(SWEEP.format(name="two", epochs=1), "utf-8")
    (tmp_path / "claims.toml").write_text(CLAIMS, "utf-8")
    return tmp_path


def _read(folder: Path, *names: str):  # type: ignore[no-untyped-def]
    from benchmarks.evidence_plan import Evidence

    return Evidence(names or ("one", "two"), files=folder, results=folder, claims=folder / "claims.toml")


def _figures(cell, value: float) -> CellFigures:  # type: ignore[no-untyped-def]
    return CellFigures(
        data=cell.data, method=cell.method, x=cell.x, seed=cell.seed, value=0.99, uncalibrated=value, valid=0.5,
        metric="accuracy", epochs=1, best_epoch=1, seconds=2.0, test_ratio=0.25, history=[0.1, 0.5, 0.4],
    )  # fmt: skip


def _fill(evidence, values, seeds=range(5)) -> None:  # type: ignore[no-untyped-def]
    for cell in evidence.tables[0].sweep.cells:
        if (cell.method, cell.x) in values and cell.seed in seeds:
            evidence.add(cell, _figures(cell, values[cell.method, cell.x](cell.seed)))


def test_cells_run_once_are_kept_one_by_one_and_shared(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from benchmarks.evidence import compare_again, run_for

    assert run_for(_read(folder), 5, limit=2) == 2
    said = capsys.readouterr().out.splitlines()
    assert all(line.startswith("digits, ") and ", 0.05, seed " in line for line in said)  # what the claim needs
    records = [SweepRecord.read(folder / f"sweep-{name}.json") for name in ("one", "two")]
    assert [len(record.cells) for record in records] == [2, 2]
    again = _read(folder)
    assert len(again.plan()) == 2 * 16 + 4 * 5 - 2  # the claim's seeds, five of everything else, what has run left out
    assert compare_again(again, 1) == []
    wrong = msgspec.structs.replace(records[0].cells[0], value=0.01)
    for table in again.tables:
        table.figures = dict.fromkeys(table.figures, wrong)
    assert len(compare_again(again, 1)) == 1


def test_a_claim_wants_runs_whose_record_lacks_the_metric_before_calibration(folder: Path) -> None:
    evidence = _read(folder, "one")
    _fill(evidence, {("local", 0.05): lambda _: 0.8, ("vanilla", 0.05): lambda _: 0.7, ("other", 0.05): lambda _: 0.7})
    table = evidence.tables[0]
    table.figures = {
        digest: msgspec.structs.replace(one, uncalibrated=None if one.seed == 3 else one.uncalibrated)
        for digest, one in table.figures.items()
    }
    (line,) = (line for line in evidence.list_lines() if line.claim is not None)
    assert line.sample is None  # four seeds have the metric
    again = {(cell.method, cell.seed) for cell in evidence.plan() if cell.digest in table.figures}
    assert again == {("local", 3), ("vanilla", 3)}  # no claim is about the other one


def test_only_the_chosen_methods_run(folder: Path) -> None:
    from benchmarks.evidence import run_for

    evidence = _read(folder, "one")
    assert run_for(evidence, 5, limit=2, methods=["other"], data=["digits"]) == 2
    assert {figures.method for figures in evidence.tables[0].figures.values()} == {"other"}
    with pytest.raises(InputError, match=r"--methods names 'othr', .* other"):
        run_for(evidence, 5, methods=["othr"])
    with pytest.raises(InputError, match="--data names 'mnist'"):
        run_for(evidence, 5, data=["mnist"])


def test_cells_of_other_settings_run_again(folder: Path) -> None:
    first = _read(folder, "one")
    _fill(first, {("local", 0.05): lambda seed: 0.8})
    assert len(_read(folder, "one").tables[0].figures) == 5
    (folder / "one.toml").write_text(SWEEP.format(name="one", epochs=2), "utf-8")
    assert not _read(folder, "one").tables[0].figures


@pytest.mark.parametrize("spread", [0.001, 0.022, 0.1])
def test_the_number_of_seeds_does_not_depend_on_what_they_show(folder: Path, spread: float) -> None:
    """To stop where a verdict is reached would test again and again."""
    evidence = _read(folder, "one")
    _fill(evidence, {("local", 0.05): lambda seed: 0.80 + spread * (seed % 3), ("vanilla", 0.05): lambda _: 0.78})
    assert {c.seed for c in evidence.plan() if c.x == 0.05 and c.method != "other"} == set(range(5, 16))


def test_a_claim_is_judged_by_five_seeds_or_by_all(folder: Path) -> None:
    def judged(seeds: range) -> tuple[int, str]:
        evidence = _read(folder, "one")
        values = {("local", 0.05): lambda seed: 0.80 + 0.03 * (seed % 3), ("vanilla", 0.05): lambda _: 0.78}
        _fill(evidence, values, seeds)
        (line,) = (line for line in evidence.list_lines() if line.claim is not None)
        assert line.sample is not None
        return line.sample.n, line.verdict

    assert judged(range(5)) == (5, "undecided")
    assert judged(range(15)) == (5, "undecided")  # one seed is missing
    assert judged(range(16)) == (16, "holds")


def test_what_decides_for_less_time_comes_first(folder: Path) -> None:
    (folder / "claims.toml").write_text(CLAIMS + CLAIMS.replace("0.05", "0.2").replace("vanilla", "other"), "utf-8")
    evidence = _read(folder, "one")
    _fill(evidence, {("local", 0.2): lambda _: 0.8})
    first = evidence.plan()[:5]
    assert {(cell.method, cell.x) for cell in first} == {("other", 0.2)}


def test_a_cell_that_fails_is_listed_and_stops_nothing(folder: Path) -> None:
    evidence = _read(folder, "one")
    cell = evidence.plan()[0]
    evidence.add(cell, CellError("no such thing", "trace"))
    record = SweepRecord.read(folder / "sweep-one.json")
    assert [one.error for one in record.failed] == ["no such thing"]
    assert cell.digest not in {one.digest for one in evidence.plan()}
    assert cell.digest in {one.digest for one in _read(folder, "one").plan()}  # the next call tries it again


def test_a_data_set_that_is_not_here_is_skipped_and_no_failure(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from benchmarks.evidence import run_for

    monkeypatch.setenv("SECUREVFL_DATA", str(folder))
    monkeypatch.chdir(folder)
    text = SWEEP.format(name="one", epochs=1).replace('name = "digits"', 'name = "mnist"')
    (folder / "one.toml").write_text(text, "utf-8")
    assert run_for(_read(folder, "one"), 1) == 0
    assert "skipped: digits, because mnist is not here" in capsys.readouterr().err
    assert not (folder / "sweep-one.json").exists()


def test_the_list_counts_cells_hours_and_verdicts(folder: Path) -> None:
    from benchmarks.evidence import list_missing

    evidence = _read(folder, "one")
    assert "P, Table 1: not tried, 0 of 1 places; 32 cells, 0.09 h would say more" in list_missing(evidence)
    _fill(evidence, {("local", 0.05): lambda seed: 0.8 + 0.001 * seed, ("vanilla", 0.05): lambda _: 0.6})
    text = list_missing(evidence)
    assert "P, Table 1: holds, 1 of 1 places" in text
    (line,) = (line for line in text.splitlines() if line.startswith("one "))
    assert line.split() == ["one", "96", "10", "42", "0.05"]


def test_claims_are_measured_by_value_speed_or_swing() -> None:
    from benchmarks.claim_tests import list_pairs, measure_run

    cell = CellFigures(
        data="d", method="m", x=0.0, seed=0, value=0.7, valid=0.5, metric="accuracy", epochs=4, best_epoch=1,
        seconds=1.0, history=[0.0, 0.5, 0.6, 0.4], alone=0.3,
    )  # fmt: skip
    assert measure_run(cell, {}) == 0.7
    assert measure_run(cell, {"rows": "alone"}) == 0.3
    assert measure_run(cell, {"measure": "speed"}) == pytest.approx(0.375)
    assert measure_run(cell, {"measure": "swing"}) == pytest.approx(0.2)
    assert measure_run(msgspec.structs.replace(cell, history=[]), {"measure": "swing"}) is None
    with pytest.raises(ValueError, match="measure 'sped'"):
        measure_run(cell, {"measure": "sped"})
    places = [("d", 0.0), ("d", 1.0), ("e", 0.0)]
    assert list_pairs({"method": "m", "positions": [[0, 1]]}, places) == [
        (("d", "m", 0.0), ("d", "m", 1.0)),
        (("e", "m", 0.0), ("e", "m", 1.0)),
    ]


def test_the_claims_ask_for_sweeps_that_the_command_knows() -> None:
    import tomllib

    from benchmarks.evidence_plan import CLAIMS as FILE
    from benchmarks.evidence_plan import FILES, SWEEPS

    claims = tomllib.loads(FILE.read_text("utf-8"))["claim"]
    assert {claim["sweep"] for claim in claims if "sweep" in claim} <= set(SWEEPS)
    small = {file.stem for file in FILES.glob("*.toml") if not file.stem.startswith("paper-")}
    assert small == set(SWEEPS)
