"""Files with random mistakes end in an InputError, never in another error. Seeds are fixed: a failure says which."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.toml_mutants import mutant, toml

import securevfl as sv
from securevfl.checks import check_file

TABLE = "k,x,y\n" + "".join(f"{i},{i % 7},{i % 2}\n" for i in range(40))
PARTIES: dict[str, Any] = {
    "name": "fuzz",
    "baselines": ["alone"],
    "job": {"epochs": 2, "batch_size": 8, "steps": 3, "patience": 2, "valid": 0.1, "clip": 4.0, "scale": "quantile"},
    "algorithm": {"name": "splitnn", "bottom": [4], "hidden": 4, "top": [4], "lr": 0.01},
    "protection": {
        "name": "plain",
        "dp": {
            "features": {"mechanism": "gaussian", "epsilon": 8.0},
            "labels": {"mechanism": "randomised_response", "epsilon": 2},
        },
    },
    "policy": {"a": {"sealed": False, "noised": ["gradient"], "max_epsilon": 9.0}},
    "party": [
        {"name": "a", "file": "a.csv", "id": "k", "label": "y", "features": ["x"], "classes": [0, 1]},
        {"name": "b", "file": "a.csv", "id": "k", "categorical": ["y"], "policy": {"min_intersection": 5}},
    ],
}
NAMED: dict[str, Any] = {
    "job": {"epochs": 1},
    "algorithm": "splitnn",
    "protection": {"name": "auto", "offers": ["bfv"], "mbit": 5.0},
    "data": {"name": "breast_cancer", "overlap": 0.9, "seed": 1, "shared": True},
}
SWEEP: dict[str, Any] = {
    "name": "tiny",
    "title": "Tiny",
    "seeds": [0, 1],
    "notes": ["a note"],
    "axis": {"name": "overlap", "option": "overlap", "unit": "%", "values": [0.1, 0.5]},
    "job": {"epochs": 2},
    "data": [
        {"name": "digits", "algorithm": {"hidden": 5}, "methods": {"RISA": {"hidden": 4}}},
        {"name": "limited_credit", "label": "credit", "options": {"rows": 400}, "only": ["vanilla"]},
    ],
    "method": [
        {"label": "vanilla", "algorithm": "splitnn", "protection": {"name": "plain"}, "job": {"clip": 4.0}},
        {"label": "RISA", "algorithm": "risa", "settings": {"self_training": 0}, "values": [0.5]},
    ],
    "claim": [{"text": "t", "source": "s", "data": "*", "better": "RISA", "worse": "vanilla", "at": [0.5]}],
    "paper": [{"data": "digits", "method": "RISA", "source": "s", "percent": {"0.1": 81.5}}],
}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "a.csv").write_text(TABLE, encoding="utf-8")
    return tmp_path / "job.toml"


@pytest.mark.parametrize("content", [PARTIES, NAMED])
def test_job_files(file: Path, content: dict[str, Any]) -> None:
    file.write_text(toml(content), encoding="utf-8")
    assert sv.read_job(file).job.epochs < 3
    refused = 0
    for seed in range(500):
        text = mutant(content, seed)
        file.write_text(text, encoding="utf-8")
        try:
            sv.read_job(file)
        except sv.InputError:
            refused += 1
        except Exception as error:
            raise AssertionError(f"seed {seed}: {type(error).__name__}: {error}\n{text}") from error
    assert refused > 200


def test_sweep_files(file: Path) -> None:
    file.write_text(toml(SWEEP), encoding="utf-8")
    assert len(sv.read_sweep(file).cells) == 10
    refused = 0
    for seed in range(300):
        text = mutant(SWEEP, seed)
        file.write_text(text, encoding="utf-8")
        try:
            for spec in sv.read_sweep(file).cells:
                assert spec.digest
        except sv.InputError:
            refused += 1
        except Exception as error:
            raise AssertionError(f"seed {seed}: {type(error).__name__}: {error}\n{text}") from error
    assert refused > 120


def test_check_never_raises(file: Path) -> None:
    """What `read_job` refuses, it lists; it lists more, for it goes on after the first."""
    for content in (PARTIES, SWEEP):
        for seed in range(150):
            text = mutant(content, seed)
            file.write_text(text, encoding="utf-8")
            try:
                found = check_file(file)
                refused = None
                try:
                    (sv.read_job if content is PARTIES else sv.read_sweep)(file)
                except sv.InputError as error:
                    refused = error
            except Exception as error:
                raise AssertionError(f"seed {seed}: {type(error).__name__}: {error}\n{text}") from error
            assert found.mistakes or refused is None, f"seed {seed}: {refused}\n{text}"
