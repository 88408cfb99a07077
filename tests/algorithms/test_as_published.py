"""Rows of experiments that are called *as published* are what the classes call so."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

import securevfl as sv

FILES = sorted((Path(__file__).parents[2] / "examples" / "experiments").glob("*.toml"))
ROWS = [
    pytest.param(data, method, id=f"{file.stem}, {data['name']}")
    for file in FILES
    for content in [tomllib.loads(file.read_text("utf-8"))]
    for method in content["method"]
    if method.get("label") == "RISA as published"
    for data in content["data"]
]
PAPER = {"paper's λ, t, T for NUS-WIDE": "nus-wide", "paper's λ, t, T for Vehicle": "vehicle"}
PAPER["paper's λ, t, T for CIFAR-10"] = "cifar-10"


@pytest.mark.parametrize(("data", "method"), ROWS)
def test_rows_of_risa_as_published_have_its_values(data: dict[str, Any], method: dict[str, Any]) -> None:
    fields = sv.RISA.__struct_fields__
    general = {key: tuple(v) if isinstance(v, list) else v for key, v in data["algorithm"].items() if key in fields}
    row = sv.RISA.from_values({**data["algorithm"], **method["settings"]} if general else method["settings"], "method")
    assert row == sv.RISA.as_published(**general)


def test_there_are_such_rows() -> None:
    assert len(ROWS) >= 3


def test_rows_with_fedcvts_own_settings_have_them() -> None:
    content = tomllib.loads((FILES[0].parent / "fedcvt-ablation.toml").read_text("utf-8"))
    rows = {method["label"]: method for method in content["method"] if method["label"] in PAPER}
    assert rows.keys() == PAPER.keys()
    for label, data in PAPER.items():
        row, paper = sv.FedCVT.from_values(rows[label]["settings"], "method"), sv.FedCVT.as_published(data)  # type: ignore[arg-type]
        assert row == paper.replace(lr=row.lr)
    assert sv.FedCVT.as_published("nus-wide").lr == 0.005
