"""Features from z without a known record: the attack's arithmetic, and the figures that the threat model shows."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "threat-model.md"
FIGURES = json.loads((ROOT / "benchmarks/results/attack_without_records.json").read_text(encoding="utf-8"))
WIDTHS = ("h = 16", "h = 32", "h = 64")


@pytest.fixture(scope="module")
def attack() -> Iterator[ModuleType]:
    """The example as a module."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(ROOT / "examples")
        yield importlib.import_module("attack_without_records")
    for name in ("attack_without_records", "attack_on_z"):
        sys.modules.pop(name, None)


def test_a_sample_of_the_distribution_is_enough_where_columns_are_not_normal(attack: ModuleType) -> None:
    """Positive control, and its limit: normal columns have no components to tell apart."""
    rng = np.random.default_rng(0)
    for columns, least, most in ((rng.exponential(size=(6000, 3)) * [1, 2, 3], 0.9, 1), (None, -1, 0.9)):
        x = rng.normal(size=(6000, 3)) if columns is None else columns
        x[:, 2] += x[:, 0] ** 2 / 4 if columns is not None else 0
        seen = x[:1000] @ rng.normal(size=(3, 5))
        found = attack.score(attack.by_components(seen, x[1000:]), x[:1000])["correlation"]
        assert least <= found <= most


def test_the_job_file_is_at_the_level_of_guessing_and_a_public_sample_is_not() -> None:
    for width in WIDTHS:
        found = FIGURES[width]
        for name in ("the job file, one look", "half of the first weights by the rule of 0.1, one look"):
            assert abs(found[name]["correlation"]) < 0.2
            assert found[name]["error"] > 1
        assert found["Gram matrix, public sample"]["correlation"] > 0.6


def test_the_page_shows_the_figures() -> None:
    text = PAGE.read_text(encoding="utf-8")
    for name in FIGURES["h = 32"]:
        cells = [
            f"{FIGURES[width][name]['correlation']:.2f}, {100 * FIGURES[width][name]['error']:.0f} %"
            if name in FIGURES[width]
            else "–"
            for width in WIDTHS
        ]
        assert f"| {name} | {' | '.join(cells)} |" in text
