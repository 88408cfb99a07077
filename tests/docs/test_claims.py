"""The page of the papers' claims says what the runs say, and quotes what the papers say."""

from __future__ import annotations

import dataclasses
import re
import tomllib
from pathlib import Path
from statistics import fmean

import claims_page
import papers_page
import pytest

import securevfl as sv  # noqa: F401 - the page's figures come through it
from benchmarks.claim_bounds import DECIDED, ClaimJudgement
from securevfl.report import CellFigures, SweepRecord
from securevfl.report.statistics import Judgement, run_paired_test

PAPERS = Path(__file__).parents[3] / "shared" / "papers"


def test_the_page_has_the_tables_that_the_runs_make() -> None:
    page = claims_page.PAGE.read_text("utf-8")
    assert claims_page.written(page) == page, "run: python tools/pages/claims_page.py"


@pytest.mark.skipif(not PAPERS.exists(), reason="the papers are not here")
def test_every_sentence_is_in_its_paper() -> None:
    claims = tomllib.loads(claims_page.CLAIMS.read_text("utf-8"))["claim"]
    assert {claim["paper"] for claim in claims} == {"RISA", "FedCVT", "FedDA", "Entity Augmentation", "Multi-VFL"}
    for claim in claims:
        text = (PAPERS / f"{claim['paper'].lower().replace(' ', '-')}.txt").read_text("utf-8")
        plain = re.sub(r"\s+", " ", text.replace("’", "'"))
        assert re.sub(r"\s+", " ", claim["sentence"]) in plain, claim["sentence"]


@pytest.mark.skipif(not PAPERS.exists(), reason="the papers are not here")
def test_every_figure_of_a_paper_is_in_it() -> None:
    """Decimal figures in what we say of the papers: percentages, rates, numbers of sections."""
    data = tomllib.loads(claims_page.CLAIMS.read_text("utf-8"))
    said: dict[str, str] = {}
    for one in data["reading"]:
        said[one["paper"]] = f"{one['claims']} {one['care']} {' '.join(one['believe'].values())}"
    for one in data["claim"]:
        said[one["paper"]] += f" {one['where']} {one.get('meaning', '')} {one.get('why', '')}"
    for paper, text in said.items():
        whole = (PAPERS / f"{paper.lower().replace(' ', '-')}.txt").read_text("utf-8")
        for figure in re.findall(r"\d+(?:\.\d+)+", text):
            assert figure in whole, (paper, figure)


def test_the_pages_have_the_sentences_that_the_runs_make() -> None:
    pages = papers_page.pages()
    assert len(pages) == 6
    for path, text in pages.items():
        page = path.read_text("utf-8")
        assert papers_page.written(page, text) == page, "run: python tools/pages/papers_page.py"


def test_each_paper_has_three_sentences_for_every_verdict() -> None:
    keys = {row.claim["key"] for row in claims_page.list_rows() if "key" in row.claim}
    readings = papers_page.read_readings()
    papers = dict.fromkeys(row.claim["paper"] for row in claims_page.list_rows())
    assert [one["paper"] for one in readings] == list(papers)
    for reading in readings:
        assert reading["rests_on"] in keys
        assert set(reading["believe"]) == {"holds", "falls", "small", "open", "untried"}
        for sentence in (*papers_page.sentences(reading), *reading["believe"].values()):
            assert sentence.endswith(".")
            assert not re.search(r"[.!?] [A-Z]", sentence), sentence
        assert not re.search(r"\d\.\d|±", reading["shows"]), "figures come from the records"


def test_sentences_move_with_the_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    reading = next(one for one in papers_page.read_readings() if one["paper"] == "RISA")
    rows = claims_page.list_rows()

    def shown(verdict: str, mean: float) -> tuple[str, str, str]:
        sample = run_paired_test([mean + 0.001 * step for step in (-1, 0, 0, 0, 1)], ratio=0.25)
        said = ClaimJudgement(
            verdict=verdict, adjusted=0.01, seen=0.1, seeds=None, below_bound=False, above_bound=False, bound_seeds=None
        )
        changed = [
            dataclasses.replace(row, sample=sample, judgement=said) if row.claim.get("key") == "risa-zeros" else row
            for row in rows
        ]
        monkeypatch.setattr(papers_page, "list_rows", lambda: changed)
        return papers_page.sentences(reading)

    for verdict, kind in (("holds", "holds"), ("does not hold", "falls"), ("no gain", "small"), ("undecided", "open")):
        _, shows, believe = shown(verdict, 0.0321)
        assert "+3.2 ± 0.1 points" in shows
        assert believe == reading["believe"][kind].replace("{bound}", "2 points")
    empty = [dataclasses.replace(row, lines=[], sample=None, judgement=None) for row in rows]
    monkeypatch.setattr(papers_page, "list_rows", lambda: empty)
    assert papers_page.sentences(reading)[2] == reading["believe"]["untried"]


def test_an_open_claim_says_why_no_number_of_seeds_decides_it() -> None:
    lines = claims_page.why_open().splitlines()
    wanting = [
        row for row in claims_page.list_rows()
        if row.judgement is not None and row.judgement.verdict == "undecided" and row.judgement.seeds is None
    ]  # fmt: skip
    assert len(lines) == len(wanting)
    for line, row in zip(lines, wanting, strict=True):
        assert f"{row.claim['paper']}, {row.claim['where']}" in line
        assert row.judgement is not None
        assert (f"{row.judgement.bound_seeds} seeds" in line) == (row.judgement.bound_seeds is not None)


def test_a_claim_is_reproduced_only_where_it_holds() -> None:
    holds, falls, open_ = "holds", "does not hold", "undecided"
    assert claims_page.word([holds, holds]) == "undecided, reproduced in 2 of 2"
    assert claims_page.word([falls]) == "undecided, contradicted in 1 of 1"
    assert claims_page.word([open_, open_]) == "undecided"
    assert claims_page.word([holds, open_]) == "undecided, reproduced in 1 of 2"
    assert claims_page.word([holds, falls, open_]) == "undecided, reproduced in 1 of 3, contradicted in 1 of 3"


def test_a_place_alone_decides_no_claim() -> None:
    rows = claims_page.list_rows()
    decided = [row for row in rows if row.judgement is not None and row.judgement.verdict in DECIDED]
    wanting = [row for row in rows if row.verdict.startswith("undecided")]
    assert f"{len(decided)} are decided on the mean" in claims_page.summary()
    assert f"{len(wanting)} are undecided" in claims_page.summary()
    assert all(row.judgement is None or row.judgement.verdict == "undecided" for row in wanting)
    assert not {id(row) for row in decided} & {id(row) for row in wanting}


def test_the_average_over_places_decides_and_places_can_dissent() -> None:
    holds, falls, open_ = "holds", "does not hold", "undecided"
    assert claims_page.word([open_, open_], holds) == "reproduced"
    assert claims_page.word([holds, falls], holds) == "reproduced, contradicted in 1 of 2"
    assert claims_page.word([holds, open_], falls) == "contradicted, reproduced in 1 of 2"
    small = "no gain above 2 points, reproduced in 1 of 2, contradicted in 1 of 2"
    assert claims_page.word([holds, falls], "no gain") == small
    assert claims_page.word([open_, open_], "no difference") == "no difference above 2 points"


def test_undecided_claims_say_how_many_seeds_would_decide() -> None:
    def judged(verdict: str, seeds: int | None) -> Judgement:
        return Judgement(verdict=verdict, adjusted=None, seen=None, seeds=seeds)

    assert claims_page.needs(judged("holds", None)) == ""
    assert claims_page.needs(judged("undecided", 7)) == "7"
    assert claims_page.needs(judged("undecided", None)) == "no number"
    assert claims_page.needs(None) == "5"
    bounded = ClaimJudgement(
        verdict="undecided", adjusted=1.0, seen=0.1, seeds=None, below_bound=False, above_bound=False, bound_seeds=12
    )
    assert claims_page.needs(bounded) == "no number, ≤ 12"
    assert claims_page.needs(dataclasses.replace(bounded, seeds=40, bound_seeds=None)) == "40"


def test_differences_are_by_seed() -> None:
    def cell(method: str, seed: int, value: float) -> CellFigures:
        return CellFigures(
            data="d", method=method, x=0.05, seed=seed, value=value, valid=0.0, metric="auc", epochs=1, best_epoch=1,
            seconds=0.0, test_ratio=0.0,
        )  # fmt: skip

    cells = [cell("a", 0, 0.8), cell("a", 1, 0.6), cell("b", 0, 0.7), cell("b", 1, 0.4), cell("b", 2, 0.9)]
    record = SweepRecord(
        name="n", title="t", created="", command="", versions={}, machine={}, size="quick", axis="overlap",
        axis_unit="%", cells=cells,
    )  # fmt: skip
    ((place, sample),) = claims_page.tests_of({"better": "a", "worse": "b"}, record)
    assert (place, sample.n) == ("d", 2)
    assert sample.mean == pytest.approx(0.15)


def test_a_claim_can_compare_one_method_at_two_positions() -> None:
    def cell(x: float, seed: int, value: float) -> CellFigures:
        return CellFigures(
            data="d", method="a", x=x, seed=seed, value=value, valid=0.0, metric="auc", epochs=1, best_epoch=1,
            seconds=36.0, test_ratio=0.0,
        )  # fmt: skip

    cells = [cell(x, seed, 0.8 - 0.1 * x + 0.01 * seed * x) for x in (0.0, 1.0) for seed in range(5)]
    record = SweepRecord(
        name="n", title="t", created="", command="", versions={}, machine={}, size="quick", axis="scenario",
        axis_unit="category", ticks={"0.0": "iid", "1.0": "1niid"}, cells=cells,
    )  # fmt: skip
    claim = {"method": "a", "positions": [[0, 1], [0, 2]]}
    ((place, sample),) = claims_page.tests_of(claim, record)  # position 2 has not run
    assert place == "d, iid less 1niid"
    assert (sample.n, sample.mean) == (5, pytest.approx(0.08))
    wanting = Judgement(verdict="undecided", adjusted=None, seen=None, seeds=15)
    count, mean = claims_page.overall(claim, record)
    assert (count, mean) == (1, sample)
    assert claims_page.hours(claim, 3, sample, wanting, record) == "0.60"  # ten seeds of two runs of 36 s at 3 places
    assert claims_page.hours(claim, 0, None, None, record) == "0.10 a place"
    assert claims_page.hours(claim, 3, sample, dataclasses.replace(wanting, seeds=None), record) == ""


def test_hours_count_the_large_places_too() -> None:
    cells = [
        CellFigures(
            data=data, method="a", x=x, seed=seed, value=0.5, valid=0.0, metric="auc", epochs=1, best_epoch=1,
            seconds=seconds, test_ratio=0.0,
        )
        for data, seconds in (("d", 1.0), ("e", 1.0), ("f", 358.0))
        for x in (0.0, 1.0)
        for seed in range(5)
    ]  # fmt: skip
    record = SweepRecord(
        name="n", title="t", created="", command="", versions={}, machine={}, size="quick", axis="scenario",
        axis_unit="category", ticks={}, cells=cells,
    )  # fmt: skip
    claim = {"method": "a", "positions": [[0, 1]]}
    wanting = Judgement(verdict="undecided", adjusted=None, seen=None, seeds=15)
    _, sample = claims_page.overall(claim, record)
    # ten seeds at three places, two runs each: 20 × (1 + 1 + 358) s; the median of all runs is 1 s
    assert claims_page.hours(claim, 3, sample, wanting, record) == "2.00"


def test_a_place_that_is_not_averaged_does_not_choose_the_ratio() -> None:
    from benchmarks.claim_tests import find_largest_ratio

    def pair(data: str):  # type: ignore[no-untyped-def]
        return (data, "a", 0.0), (data, "b", 0.0)

    five = dict.fromkeys(range(5), 0.1)
    found = {pair("x"): five, pair("y"): five, pair("z"): {0: 0.1}}
    assert find_largest_ratio(found, {("x", 0.0): 0.1, ("y", 0.0): 0.25, ("z", 0.0): 0.5}) == 0.25
    assert find_largest_ratio(found, {("x", 0.0): 0.1, ("y", 0.0): 0.25, ("z", 0.0): None}) == 0.25
    assert find_largest_ratio(found, {("x", 0.0): 0.1, ("y", 0.0): None, ("z", 0.0): 0.5}) is None


def test_places_are_averaged_seed_by_seed() -> None:
    from benchmarks.claim_tests import average_places

    def pair(data: str):  # type: ignore[no-untyped-def]
        return (data, "a", 0.0), (data, "b", 0.0)

    six = {seed: 0.1 * seed for seed in range(6)}
    five = {seed: 0.3 * seed for seed in (5, 4, 3, 2, 1)}
    count, mean = average_places({pair("x"): six, pair("y"): five, pair("z"): {0: 9.0}})
    assert count == 2  # one seed is too few
    assert mean == pytest.approx({seed: 0.2 * seed for seed in range(1, 6)})
    assert average_places({pair("z"): {0: 9.0}}) == (0, {})


def test_a_sweep_that_has_run_is_not_said_to_have_none() -> None:
    for table in claims_page.blocks().values():
        for row in table.splitlines():
            if "has not run" in row:
                name = row.split("has not run")[0].split("`")[-2].removesuffix(".toml")
                assert not (claims_page.RESULTS / f"sweep-{name}.json").exists()


def test_claims_are_about_scores_before_calibration() -> None:
    """The intercepts of classes take back what label owners of two classes do to the model; no paper has them."""
    from benchmarks.claim_tests import measure_run, strip_calibration

    def cell(metric: str, **more: float) -> CellFigures:
        return CellFigures(
            data="d", method="a", x=0.0, seed=0, value=0.7, valid=0.0, metric=metric, epochs=1, best_epoch=1,
            seconds=0.0, **more,  # type: ignore[arg-type]
        )  # fmt: skip

    assert [one.value for one in strip_calibration([cell("accuracy", uncalibrated=0.6)])] == [0.6]
    assert strip_calibration([cell("accuracy")]) == []  # an old record: it has to run again
    assert [one.value for one in strip_calibration([cell("auc")])] == [0.7]  # calibration keeps the order of rows
    with pytest.raises(ValueError, match="before calibration"):
        measure_run(cell("auc"), {"paper": "P", "rows": "alone"})
    of = {"multi-vfl": ("Fashion-MNIST strips", 4.0, 0.05), "claims": ("MNIST halves", 0.05, 0.0)}
    for name, (data, x, least) in of.items():
        cells = SweepRecord.read(claims_page.RESULTS / f"sweep-{name}.json").cells
        plain = claims_page._record(name)
        assert plain is not None
        judged = {(one.data, one.method, one.x, one.seed): one.value for one in plain.cells}
        gains = [
            one.value - judged[one.data, one.method, one.x, one.seed]
            for one in cells
            if (one.data, one.x) == (data, x) and (one.data, one.method, one.x, one.seed) in judged
        ]
        assert len(gains) >= 5
        assert sum(gains) / len(gains) >= least


def test_the_page_says_what_calibration_adds_to_multi_vfl() -> None:
    """Fitted on rows of all classes, it lifts the plain mean above every server without it."""
    cells = SweepRecord.read(claims_page.RESULTS / "sweep-multi-vfl.json").cells
    gains, above = [], []
    for data in ("Fashion-MNIST strips", "MNIST strips"):
        here = [one for one in cells if (one.data, one.x) == (data, 4.0)]
        assert all(one.uncalibrated is not None for one in here)
        methods = dict.fromkeys(one.method for one in here)
        plain = {name: fmean(one.uncalibrated or 0.0 for one in here if one.method == name) for name in methods}
        after = {name: fmean(one.value for one in here if one.method == name) for name in methods}
        gains += [after[name] - plain[name] for name in methods]
        above.append(after["FedAvg, mean"] - max(plain.values()))
        assert sorted(plain, key=plain.__getitem__) != sorted(after, key=after.__getitem__)
    assert [round(100 * one) for one in (min(gains), max(gains))] == [4, 9]
    assert all(one > 0 for one in above)
    assert round(100 * above[1], 1) == 0.5  # over FedDemonAdam
    page = (claims_page.PAGE.parent / "multi-vfl.md").read_text("utf-8").replace("\n", " ")
    assert "calibration adds 4 to 9 points. The plain mean with it has a higher accuracy than any server" in page
    assert "on MNIST by 0.5 points over FedDemonAdam, which can be chance" in page
