"""Statistics where a model is needed, or with settings that cannot be: each is refused with the cure, without a
traceback."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import securevfl as sv
from securevfl.cli import app
from securevfl.dossier import gather_evidence
from securevfl.testing.company import create_company

ROWS = 260
GENERATOR = np.random.default_rng(8)
BASE = GENERATOR.normal(size=ROWS)
LABEL = (BASE + GENERATOR.normal(size=ROWS) > 0).astype(int)
NOISY = sv.DP(model=sv.Gaussian(epsilon=30.0, delta=1e-5))


def people(shop: dict[str, np.ndarray], *, number: bool = False) -> sv.Parties:
    ids = [f"c{place}" for place in range(ROWS)]
    label = {"label": BASE} if number else {"label": LABEL, "classes": (0, 1)}
    words = frozenset(name for name, values in shop.items() if values.dtype == object)
    own = {"preparation": sv.Preparation(), "ids": ids}
    return sv.Parties.of(
        sv.PartyTable(name="bank", columns={"a": BASE}, label_name="y", **label, **own),
        sv.PartyTable(name="shop", columns=shop, categorical=words, **own),
    )


NUMBERS = {"x": BASE + GENERATOR.normal(size=ROWS)}
TOWNS = {"town": np.array([f"t{place % 3}" for place in range(ROWS)], dtype=object)}


def job(dp: sv.DP | None = None, task: str = "classification", **given: object) -> sv.Job:
    return sv.Job(algorithm=sv.Statistics(**given), protection=sv.Shares(computing=2, dp=dp), task=task, epochs=1)


def describe(parties: sv.Parties, asked: sv.Job) -> sv.Result:
    return sv.simulate(asked, parties, observer=sv.Observer())


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[sv.Result, Path]:
    result, place = describe(people(NUMBERS), job()), tmp_path_factory.mktemp("runs") / "described"
    result.report(place)
    return result, place


@pytest.mark.parametrize(
    ("asks", "words"),
    [
        (lambda parties: sv.sweep(job(), parties, {"algorithm.bins": [4, 5]}, seeds=1), "nothing to compare"),
        (lambda parties: sv.search(job(), parties, {"algorithm.bins": [4, 5]}, trials=1), "nothing to search for"),
        (lambda parties: sv.cross_validate(job(), parties, folds=2), "nothing to cross-validate"),
        (lambda parties: sv.attack(job(), parties, quick=True), "nothing to attack"),
        (
            lambda parties: sv.VerticalClassifier(sv.Statistics(), protection=sv.Shares(computing=2)).fit(
                sv.AlignedRows(parties)
            ),
            "nothing to fit",
        ),
    ],
)
def test_what_needs_a_model_refuses_statistics(asks: Callable[[sv.Parties], object], words: str) -> None:
    with pytest.raises(sv.InputError, match=f"Statistics train no model, and there is {words}.*logistic_regression"):
        asks(people(NUMBERS))


def test_a_run_of_statistics_has_no_model(finished: tuple[sv.Result, Path]) -> None:
    result, place = finished
    assert not any("pulled in" in note for note in result.record.runs[-1].notes)
    with pytest.raises(sv.InputError, match="leave no model"):
        result.model()
    with pytest.raises(sv.InputError, match="documents a model"):
        gather_evidence(place)
    for command in (["predict"], ["explain"], ["export"], ["drift"]):
        ended = CliRunner().invoke(app, [*command, str(place)])
        assert ended.exit_code != 0
        assert "which produce no model" in str(ended.exception or ended.output)


def test_no_partys_state_folder_of_statistics_has_a_model(tmp_path: Path) -> None:
    """The active party's has the figures, the other's has none: both computed statistics."""
    company = create_company(tmp_path, people(NUMBERS), job())
    company.over_memory()
    for name in company.names:
        assert (company.state_folder(name) / "report" / "statistics.json").exists() == (name == "bank")
        for command in ("predict", "explain", "export", "drift"):
            ended = CliRunner().invoke(app, [command, str(company.state_folder(name))])
            assert "has statistics of columns, which produce no model" in str(ended.exception)
        for command in ("export", "drift"):
            own = ["--file", str(tmp_path / f"{name}.toml")]
            ended = CliRunner().invoke(app, [command, str(company.agreement_file), *own])
            assert "Statistics train no model, and there is nothing to take a part of" in str(ended.exception)


def test_a_partys_state_folder_is_no_run(tmp_path: Path) -> None:
    """Of a job that trains, its part is exported with the agreement."""
    trains = sv.Job(algorithm="logistic_regression", protection=sv.Plain(), epochs=1, batch_size=64)
    company = create_company(tmp_path, people(NUMBERS), trains)
    company.over_memory()
    ended = CliRunner().invoke(app, ["export", str(company.state_folder("shop"))])
    assert "is a party's state folder: give the agreement, with the party's own file" in str(ended.exception)
    own = ["--file", str(tmp_path / "shop.toml"), "--out", str(tmp_path / "exported")]
    assert CliRunner().invoke(app, ["export", str(company.agreement_file), *own]).exit_code == 0


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"ranges": {"shop.x": (0.0, float("inf"))}}, "finite and far enough apart"),
        ({"ranges": {"shop.x": (1.0, 1.0)}}, "finite and far enough apart"),
        ({"ranges": {"x": (0.0, 1.0)}}, "write it as 'party.column'"),
        ({"levels": {"shop.town": ("t0", "t0")}}, "different names"),
        ({"levels": {"shop.town": tuple(map(str, range(300)))}}, "1 to 254"),
    ],
)
def test_ranges_and_levels_that_cannot_be_are_refused(given: dict[str, object], words: str) -> None:
    with pytest.raises(sv.InputError, match=words):
        sv.Statistics(**given)


def test_ranges_of_columns_that_no_party_has_are_told() -> None:
    asked = sv.Statistics(ranges={"shop.y": (0.0, 1.0), "lab.x": (0.0, 1.0)})
    found = asked.column_mistakes({"bank": ["a"], "shop": ["x"]})
    assert "statistics.ranges" in found[0]
    assert "no party is 'lab'" in found[1]


def test_noise_without_a_column_of_numbers_or_without_classes() -> None:
    """Both ended in an error of the program's own: no product of scores to add noise to, and no class to count."""
    levels = {"shop.town": ("t0", "t1", "t2")}
    towns = describe(people(TOWNS), job(NOISY, levels=levels)).record.runs[-1].statistics
    assert towns is not None
    assert [one.column for one in towns.columns] == ["a", "town"]
    asked = job(NOISY, task="regression", ranges={"shop.y": (0.0, 1.0)})
    run = describe(people(NUMBERS, number=True), asked).record.runs[-1]
    assert any("it has no such column" in note for note in run.notes)
    number = run.statistics
    assert number is not None
    assert abs(number.columns[-1].with_label or 0) > 0.2


@pytest.mark.parametrize("dp", [None, NOISY])
def test_parties_without_a_column_to_describe_are_told(dp: sv.DP | None) -> None:
    shop = {"rare": (np.arange(ROWS) < 9).astype(float)} if dp is None else TOWNS
    with pytest.raises(sv.InputError, match=r"no column of another party can be described.*levels"):
        describe(people(shop), job(dp))
