"""Prepared tables through whole jobs: trained, predicted from files, reported, and what peers hear of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import securevfl as sv
from securevfl.agreement.party_file import PartyDataSection
from securevfl.data import FeatureEncoder
from securevfl.jobfile.job_file import read_job
from securevfl.party.numbering import coded_columns, encode_features
from securevfl.party_context import PartySecret
from securevfl.privacy import Link
from securevfl.report.html import render_report
from securevfl.run import Model
from securevfl.run.model_parts import ModelPart
from securevfl.serving.process import _read_table

ROWS = 360
JOB = """
baselines = ["pooled"]
[job]
epochs = 12
batch_size = 64
[algorithm]
name = "splitnn"
hidden = 4
[protection]
name = "plain"
[[party]]
name = "bank"
file = "bank.csv"
id = "id"
label = "late"
prepare = "auto"
[[party]]
name = "shop"
file = "shop.csv"
id = "id"
[party.prepare]
scale = "auto"
[party.prepare.columns.branch]
categorical = "hash"
buckets = 8
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two tables as companies have them, and a job."""
    place, rng = tmp_path_factory.mktemp("prepared"), np.random.default_rng(1)
    wealth = rng.normal(size=ROWS)
    bank, shop = ["id,late,age,member,since,always"], ["id,spent,branch,visit,note"]
    for i in range(ROWS):
        day = np.datetime64("2015-01-01") + int(rng.integers(2000))
        late = int(wealth[i] + 0.4 * rng.normal() < 0)
        bank.append(f"C{i},{late},{'' if i % 5 == 0 else rng.integers(18, 90)},{'ja' if i % 3 else 'nein'},{day},1")
        spent = f"{np.exp(2 * wealth[i]) * 100:,.2f} €".translate(str.maketrans(".,", ",."))
        shop.append(f'C{i},"{"" if i % 7 == 0 else spent}",b{rng.integers(300)},{i % 28 + 1:02d}.03.2021,')
    (place / "bank.csv").write_text("\n".join(bank) + "\n", encoding="utf-8")
    (place / "shop.csv").write_text("\n".join(shop) + "\n", encoding="utf-8")
    (place / "job.toml").write_text(JOB, encoding="utf-8")
    return place


@pytest.fixture(scope="module")
def result(folder: Path) -> Any:
    file = read_job(folder / "job.toml")
    return sv.simulate(file.job, file.parties, baselines=file.baselines)


def test_a_job_learns_from_tables_that_nobody_edited(result: Any) -> None:
    assert result.run("plain").test["auc"] > 0.8  # spent tells it, and is a text with gaps
    assert result.run("pooled").test["auc"] > 0.8


def test_the_report_says_how_columns_were_prepared_and_no_value(result: Any) -> None:
    prepared = result.run("plain").prepared
    assert {name: [line.column for line in lines if not line.width] for name, lines in prepared.items()} == {
        "bank": ["always"],
        "shop": ["note"],
    }
    page = render_report(result.record)
    assert "How columns were prepared" in page
    assert "8 salted buckets" in page
    assert "2015" not in page.split("How columns were prepared")[1].split("Alignment")[0]


def test_new_rows_are_predicted_by_what_was_fitted(folder: Path, result: Any, tmp_path: Path) -> None:
    result.model("plain").save(tmp_path)
    file = read_job(folder / "job.toml")
    model = Model.load(tmp_path, file.job)
    some = file.parties["shop"].take(np.arange(20))
    few = sv.Parties.of(file.parties["bank"].take(np.arange(20)), some)
    whole, part = sv.predict(model, file.parties), sv.predict(model, few)
    scores = dict(zip(whole.ids, whole.probabilities.tolist(), strict=True))
    np.testing.assert_allclose([scores[name] for name in part.ids], part.probabilities, atol=1e-6)
    new = np.array(some.columns["branch"])
    new[:] = "a branch that opened today"
    opened = sv.PartyTable(
        name="shop", ids=some.ids, columns={**some.columns, "branch": new}, preparation=some.preparation
    )
    assert np.isfinite(sv.predict(model, sv.Parties.of(few["bank"], opened)).probabilities).all()


def test_a_part_is_served_from_a_table_without_what_was_dropped(folder: Path, result: Any, tmp_path: Path) -> None:
    result.model("plain").save(tmp_path)
    job = read_job(folder / "job.toml").job
    lines = (folder / "shop.csv").read_text(encoding="utf-8").splitlines()
    (tmp_path / "new.csv").write_text("\n".join(line.removesuffix(",").removesuffix(",note") for line in lines[:9]))
    section = PartyDataSection.from_values(
        {"file": "new.csv", "id": "id", "prepare": {"columns": {"branch": {"kind": "category"}}}}
    )

    class Own:
        data, folder, party, path = section, tmp_path, "shop", tmp_path / "party.toml"

    table = _read_table(Own, None, ModelPart.load(tmp_path, "shop", job))  # type: ignore[arg-type]
    assert set(table.columns) == {"spent", "branch", "visit"}
    assert table.categorical == {"branch"}


@pytest.mark.parametrize(("bottom", "widths"), [((), [3, 7]), ((5,), [5, 5])])
def test_the_width_that_peers_hear_counts_levels_unless_there_is_a_bottom(
    bottom: tuple[int, ...], widths: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The attack that the page names: of tables with one column of categories each, the active party reads off the
    width how many levels that has; a bottom model's width is the same for both. No column's name crosses."""
    told: list[Any] = []
    send = Link.send

    async def listened(self: Link, kind: Any, step: str, *rest: Any, **content: Any) -> Any:
        told.append((step, dict(content.get("meta") or {})))
        return await send(self, kind, step, *rest, **content)

    monkeypatch.setattr(Link, "send", listened)
    rng, ids = np.random.default_rng(0), [f"i{i}" for i in range(90)]
    label = np.arange(90) % 2
    bank = sv.PartyTable(
        name="bank", ids=ids, columns={"x": rng.normal(size=90)}, label=label, classes=(0, 1), label_name="y"
    )
    job = sv.Job(algorithm=sv.SplitNN(hidden=2, bottom=bottom), protection=sv.Plain(), epochs=1)
    found = []
    for levels in (3, 7):
        secretly = np.array([f"level{i % levels}" for i in range(90)])
        shop = sv.PartyTable(name="shop", ids=ids, columns={"secretly": secretly}, preparation=sv.Preparation())
        told.clear()
        sv.simulate(job, sv.Parties.of(bank, shop))
        found.append(next(meta["width"] for step, meta in told if step == "cut/setup"))
        assert not any(word in str(told) for word in ("secretly", "level"))
    assert found == widths


def test_an_algorithm_for_trees_gets_coded_columns(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In training and when it predicts: by the class attribute `view`, and from the stored part."""
    table = read_job(folder / "job.toml").parties["shop"]
    monkeypatch.setattr(sv.SplitNN, "view", "coded")
    encoder = encode_features(table, np.arange(200), sv.Job(protection=sv.Plain()), PartySecret.generate())
    assert (encoder.view, FeatureEncoder.from_state(encoder.state()).view) == ("coded", "coded")
    columns = coded_columns(encoder)
    assert columns["encoded"][:2] == ("spent", "branch")
    assert columns["codes"][0] == 0 < columns["codes"][1]
    monkeypatch.undo()
    assert (
        coded_columns(encode_features(table, np.arange(200), sv.Job(protection=sv.Plain()), PartySecret.generate()))
        == {}
    )
