"""Pages have the tables that the sweeps make; firsts, levels and counts are those of planted figures."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import best_page
import msgspec
import numpy as np
import pytest
import sweep_pages
import sweep_picture
import sweep_places
import sweep_sentences as sentences
import sweep_tables as tables
from sweep_history import first_at, history, roughness
from sweep_levels import Levels
from sweep_ranks import figures_by_table, ranks

from securevfl.report import CellFigures, Claim, SweepRecord


def _record(
    means: Mapping[str, float],
    *,
    seeds: int = 5,
    spread: float = 0.002,
    xs: tuple[float, ...] = (0.01, 0.2),
    ratio: float = 0.0,
) -> SweepRecord:
    """A sweep with these means on each of two data sets; without the partner all are ten points lower."""
    rng = np.random.default_rng(5)
    cells = []
    for data in ("digits", "credit"):
        for x in xs:
            for seed in range(seeds):
                split = rng.normal(0, 0.02)
                for method, mean in means.items():
                    value = float(mean + split + rng.normal(0, spread))
                    effort = {"epochs": 1, "best_epoch": 1, "seconds": 1.0}
                    other = {"valid": 0.5, "metric": "accuracy", "test_ratio": ratio, **effort}
                    cells.append(
                        CellFigures(data=data, method=method, x=x, seed=seed, value=value, alone=value - 0.1, **other)
                    )
    claims = [Claim(text="best is better", source="ours", data="*", better="best", worse="local")]
    settings = dict.fromkeys(("name", "title", "created", "command", "size", "axis"), "overlap")
    return SweepRecord(cells=cells, claims=claims, versions={}, machine={}, axis_unit="%", **settings)


MEANS = {"local": 0.70, "RISA": 0.80, "best": 0.7999, "residual": 0.74, "LASER-VFL": 0.60, "all labels": 0.90}


def test_first_level_behind_and_below_are_told_apart() -> None:
    found = Levels(_record(MEANS))
    assert {line.first for line in found.lines} <= {"RISA", "best"}
    best, residual, laser = (found.tally(name, "common") for name in ("best", "residual", "LASER-VFL"))
    assert (best.places, residual.places) == (4, 4)
    assert best.level == best.near == best.shown_near == best.no_worse == 4
    assert (best.below, best.below_mean) == (0, 0)
    assert (residual.first, residual.level, residual.near, residual.shown_near, residual.below) == (0, 0, 0, 0, 0)
    assert residual.worst == pytest.approx(0.06, abs=0.006)
    assert (laser.level, laser.below, laser.below_mean, laser.no_worse) == (0, 4, 4, 0)
    assert found.tally("best", "alone").places == 4
    text = tables.tallies(found)
    assert "| `best` | all columns | 4 |" in text
    assert "4 (100 %)" in text
    assert "| `LASER-VFL` | without the partner | 4 | 0 (0 %) | 0 (0 %) | −2" in text
    line = tables.levels(found, "digits")
    assert "behind" in line
    assert "✗" in line


def test_level_without_power_is_seen_in_the_power() -> None:
    """Noise hides four points: level, and the table says that no less than tens of points would have been seen."""
    found = Levels(_record(MEANS | {"residual": 0.76}, spread=0.04))
    tally = found.tally("residual", "common")
    assert tally.level == 4
    assert (tally.sees or 0) > 0.1
    assert tally.no_worse < 4


def test_rows_in_common_widen_what_a_test_sees() -> None:
    (narrow, *_), (wide, *_) = (
        [line.behind for line in Levels(_record(MEANS, ratio=ratio)).lines if line.method == "residual"]
        for ratio in (0.0, 0.25)
    )
    assert narrow is not None
    assert wide is not None
    assert (wide[1].seen or 0) > 1.2 * (narrow[1].seen or 1.0)
    assert (wide[0].half_width or 0) == pytest.approx(1.5 * (narrow[0].half_width or 0))


def test_a_control_shows_what_level_cannot_see() -> None:
    """With five seeds and much noise a method that is twenty points behind is level in three of four places."""
    found = Levels(_record(MEANS | {"vanilla VFL": 0.60}, spread=0.06, ratio=0.25))
    text = tables.tallies(found)
    (line,) = (line for line in text.splitlines() if line.startswith("| *vanilla VFL* | all columns"))
    cells = [cell.strip() for cell in line.strip("|").split("|")]
    assert cells[7] == "3 (75 %)"  # first or level
    assert cells[4] == cells[6] == "0 (0 %)"  # within a point, and shown so
    assert float(cells[5].replace("−", "-")) < -15  # the worst
    assert "vanilla VFL" not in tables.tallies(Levels(_record(MEANS)))


def test_the_first_has_to_show_that_it_is_near_too() -> None:
    noisy = Levels(_record({"local": 0.70, "best": 0.80, "RISA": 0.79}, spread=0.05)).tally("best", "common")
    clear = Levels(_record({"local": 0.70, "best": 0.90, "RISA": 0.80})).tally("best", "common")
    assert (clear.first, clear.shown_near) == (4, 4)
    assert noisy.first >= 2
    assert noisy.shown_near == 0


def test_ranks_count_each_table_once() -> None:
    record = _record(MEANS)
    job = {"data": [{"name": "handwritten", "label": "digits"}, {"name": "limited_credit", "label": "credit"}]}
    figures = figures_by_table(msgspec.structs.replace(record, job=job), "common")
    assert set(figures) == {"local", "RISA", "best", "residual", "LASER-VFL"}  # "all labels" knows more
    digits = [c.value for c in record.cells if (c.data, c.method) == ("digits", "local")]
    assert figures["local"] == pytest.approx(
        [np.mean(digits), np.mean([c.value for c in record.cells if (c.data, c.method) == ("credit", "local")])]
    )
    one = {"data": [{"name": "handwritten", "label": "digits"}, {"name": "handwritten", "label": "credit"}]}
    assert len(figures_by_table(msgspec.structs.replace(record, job=one), "common")["local"]) == 1
    few = [c for c in record.cells if (c.method, c.data, c.seed) != ("best", "credit", 4)]
    assert "best" not in figures_by_table(msgspec.structs.replace(record, cells=few), "common")
    text = ranks(record)
    assert "| LASER-VFL | 5.0 | 5.0 |" in text
    assert "5 methods on 2 tables" in text
    assert "Fewer than three methods" in ranks(_record({"local": 0.7}))


def test_the_family_has_all_tests_of_the_page() -> None:
    found = Levels(_record(MEANS))
    firsts = sum(line.behind is None for line in found.lines)
    assert found.size == 4 * len(found.lines) - firsts + 4  # first, near, local, margin; and the claim at four places
    assert [len(tests) for tests in found.claims()] == [4]
    assert all(judgement.verdict == "holds" for *_, judgement in found.claims()[0])
    assert all((judgement.adjusted or 0) >= (sample.p or 0) for *_, sample, judgement in found.claims()[0])


def test_fewer_than_five_seeds_and_other_labels_are_never_first() -> None:
    assert not Levels(_record(MEANS, seeds=4)).lines
    assert "Fewer than five seeds" in tables.levels(Levels(_record(MEANS, seeds=4)), "digits")
    assert all(line.first != "all labels" for line in Levels(_record(MEANS)).lines)
    table = tables.means(_record(MEANS), "digits")
    assert table.splitlines()[-1].startswith("| *all labels* |")
    assert "**" not in table.splitlines()[-1]


@pytest.mark.parametrize("keep", [0, 1, 7, 29])
def test_tables_and_picture_come_from_any_part_of_a_sweep(keep: int, tmp_path: Path) -> None:
    whole = _record(MEANS)
    record = SweepRecord(
        **{name: getattr(whole, name) for name in whole.__struct_fields__} | {"cells": whole.cells[:keep]}
    )
    found = Levels(record)
    for table in sweep_pages.KINDS.values():
        assert isinstance(table(found, ""), str)
    sweep_picture.draw(record, tmp_path / "few.png")
    assert sweep_picture.digest(record).encode() in (tmp_path / "few.png").read_bytes()


def test_pages_have_the_tables_that_the_sweeps_make() -> None:
    for path in sweep_pages.pages():
        page = path.read_text(encoding="utf-8")
        assert sweep_pages.written(page) == page, f"{path}: run python tools/pages/sweep_pages.py"


def test_the_picture_is_of_the_sweep() -> None:
    found = sweep_pages._levels("few-rows")
    if found is None:
        assert not sweep_pages.PICTURE.exists()
        return
    assert sweep_picture.digest(found.record).encode() in sweep_pages.PICTURE.read_bytes()


def test_places_where_few_methods_have_run_do_not_count_for_ranks() -> None:
    whole = _record(MEANS)
    more = [msgspec.structs.replace(c, data="new") for c in whole.cells if c.method == "local" and c.data == "credit"]
    record = msgspec.structs.replace(whole, cells=[*whole.cells, *more])
    assert figures_by_table(record, "common") == figures_by_table(whole, "common")


def test_unknown_tables_are_told() -> None:
    with pytest.raises(ValueError, match="asks for the table 'meens'"):
        sweep_pages.written("<!-- sweep: few-rows | meens -->\n<!-- end -->")
    with pytest.raises(ValueError, match="asks for the sweep 'never', which has not run"):
        sweep_pages.written("<!-- sweep: never | means -->\nold\n<!-- end -->")


def test_a_sweep_without_a_record_has_not_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sweep_pages, "RESULTS", tmp_path)
    sweep_pages._levels.cache_clear()
    page = sweep_pages.written("<!-- sweep: multi-vfl | means -->\nold\n<!-- end -->")
    assert "*`multi-vfl.toml` has not run yet.*" in page
    (tmp_path / "sweep-multi-vfl.json").write_bytes(_record(MEANS).to_json())
    sweep_pages._levels.cache_clear()
    assert "not run" not in sweep_pages.written(page)
    sweep_pages._levels.cache_clear()


def test_histories_are_timed_to_a_level_that_the_slowest_reaches() -> None:
    rising = [0.1, 0.5, 0.9, 1.0]
    assert (first_at(rising, 0.6), first_at(rising, 1.1)) == (3, None)
    assert roughness([0.0, 0.0, 0.5, 0.4]) == pytest.approx(0.3)
    record = _record({"fast": 0.8, "slow": 0.7}, seeds=2, xs=(1.0,))
    by_epoch = {"fast": [0.6, 0.8, 0.8, 0.8], "slow": [0.2, 0.4, 0.6, 0.7]}
    cells = [msgspec.structs.replace(cell, history=by_epoch[cell.method]) for cell in record.cells]
    text = history(msgspec.structs.replace(record, cells=cells), "digits")
    assert "| fast | 60.0 | 80.0 | 80.0 | 80.0 | 2.0 | 0.0 |" in text
    assert "| slow | 20.0 | 40.0 | 60.0 | 70.0 | 4.0 | 15.0 |" in text


def test_rows_labelled_stand_under_their_share() -> None:
    record = _record({"RISA": 0.8}, seeds=2, xs=(0.01, 0.05, 0.2))
    counted = [
        msgspec.structs.replace(cell, extra={"rows labelled": 7.0 + cell.x})
        for cell in record.cells
        if cell.data == "credit" or cell.x == 0.05
    ]
    first, last = tables.labelled(msgspec.structs.replace(record, cells=counted)).splitlines()[-2:]
    assert first == "| digits | RISA | – | 7 / – | – |"
    assert last == "| credit | RISA | 7 / – | 7 / – | 7 / – |"


def test_what_has_not_run_is_never_said_of_what_has(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    whole = _record({"best": 0.8, "RISA": 0.8, "local": 0.7})
    cells = frozenset((cell.data, cell.method, cell.x, cell.seed) for cell in whole.cells)
    monkeypatch.setattr(sentences, "_read_cells", lambda name: cells)
    monkeypatch.setattr(sentences, "RESULTS", tmp_path)
    assert sentences.scope(whole) == f"The file configures {len(cells)} runs.\n`few-rows-beside.toml` has not run."
    (tmp_path / "sweep-few-rows-beside.json").touch()
    assert sentences.scope(whole) == f"The file configures {len(cells)} runs."
    few = [c for c in whole.cells if c.x == 0.2 or c.data == "digits"]
    few = [c for c in few if c.method != "RISA" or c.data == "credit"]
    text = sentences.scope(msgspec.structs.replace(whole, cells=[c for c in few if c.method != "best"]))
    assert "At 20 % only: credit." in text
    assert "On credit only: RISA." in text
    assert "Not run: best." in text


def test_sentences_follow_the_figures() -> None:
    data = {"digits": "MNIST halves", "credit": "Default of credit"}

    def of(means: Mapping[str, float]) -> Levels:
        record = _record(means)
        cells = [msgspec.structs.replace(cell, data=data[cell.data]) for cell in record.cells]
        return Levels(msgspec.structs.replace(record, cells=cells))

    good = of(MEANS | {"best": 0.85, "vanilla VFL": 0.60})
    assert "highest mean in 4 of 4 places" in sentences.short(good)
    assert "`best` gains 15 points" in sentences.short(good)
    assert "On images its mean is below the active party alone in 0 of 2 places." in sentences.short(good)
    assert "no method is significantly better" in sentences.advice(good)
    assert "scores 10 points below" in sentences.alone_losses(good)
    bad = of(MEANS | {"best": 0.62, "residual": 0.6, "vanilla VFL": 0.60})
    assert "highest mean in 0 of 4 places" in sentences.short(bad)
    assert "in 2 of 2 places" in sentences.short(bad)
    assert "another method is significantly better than it in 4 of 4 places" in sentences.advice(bad)
    assert not sentences.parts_of(bad)["best gains on credit everywhere"]


def test_the_advice_of_the_page_rests_on_its_record() -> None:
    found = sweep_pages._levels("few-rows")
    assert found is not None
    assert all(sentences.parts_of(found).values()), "write the advice of docs/few-rows.md anew"


def test_a_way_s_worst_place_is_against_other_ways_and_no_single_opinion() -> None:
    """Planted: the log-odds are two points behind the mean at one place, the trees alone are far ahead of both."""
    cells = [
        {"data": data, "overlap": 0.05, "seed": 0, "rows": 60, "ways": {"trees": 0.9, "mean": 0.7, "log-odds": odds}}
        for data, odds in (("Default of credit, 2 parties", 0.72), ("Parkinson's speech", 0.68))
    ]
    lines = best_page.tabulate_opinions(cells, "ways").splitlines()
    assert lines[0].startswith("|  | credit, weak 5 % (60) | speech 5 % (60) | mean |")
    assert lines[2:5] == [
        "| trees | 90.0 | 90.0 | 90.0 | – |",
        "| mean | 70.0 | 70.0 | 70.0 | 2.0 |",
        "| log-odds | 72.0 | 68.0 | 70.0 | 2.0 |",
    ]


def test_the_rule_takes_trees_on_tables_and_networks_on_images() -> None:
    """Planted: on images trees are far ahead, which the rule does not take there."""
    means = {"local": 0.7, "boosting alone": 0.8, "best": 0.78, "best with trees": 0.805, "vanilla VFL": 0.815}
    record = _record(means)
    cells = [
        msgspec.structs.replace(c, data={"digits": "MNIST halves", "credit": "credit"}[c.data]) for c in record.cells
    ]
    found = sweep_places.compare_places(msgspec.structs.replace(record, cells=cells), "common")
    gaps = found[sweep_places.RULE].gaps
    assert [round(gaps[data, 0.2], 3) for data in ("MNIST halves", "credit")] == [0.035, 0.01]
    assert (found["best"].near, found["best with trees"].near, found[sweep_places.RULE].near) == (0, 4, 2)
    worst = found["best"].worst_place
    assert worst is not None
    assert worst[1].mean == pytest.approx(-0.02, abs=0.002)
    assert found["best"].shown == 4  # the spread is a tenth of the distance
    assert found["best with trees"].shown == 0
    assert (found["best"].below, found["best with trees"].below) == (4, 0)
    assert found[sweep_places.RULE].shown == 2
    noisy = sweep_places.compare_places(_record(means, spread=0.05), "common")
    assert noisy["best"].shown == 0
    assert "*15 tests" not in sweep_places.tabulate_places(record)
    assert "*16 tests against boosting alone" in sweep_places.tabulate_places(record)  # four methods, four places
    assert "No place has five seeds" in sweep_places.tabulate_places(_record({"local": 0.7, "best": 0.8}))


def test_costs_are_the_counted_ones() -> None:
    import json

    cells = json.loads(sentences.COSTS.read_text(encoding="utf-8"))["cells"]
    ratios = [c["methods"]["best"]["bytes, active"] / c["methods"]["laser"]["bytes, active"] for c in cells]
    text = sentences.costs()
    assert f"{min(ratios):.0f} to {max(ratios):.0f} times its bytes from the active party" in text
    assert text.count("`best`") == len(cells)
