"""The pages have the figures of ten public tables that were measured."""

from __future__ import annotations

import json

import ten_tables_page


def test_the_pages_have_the_figures_that_were_measured() -> None:
    for file in ten_tables_page.PAGES:
        page = file.read_text(encoding="utf-8")
        assert "<!-- ten tables" in page
        assert page == ten_tables_page.written(page), "run python tools/pages/ten_tables_page.py"


def test_sealed_runs_have_the_figures_of_those_without_encryption() -> None:
    """As the page claims of every sealed run, to the last digit."""
    cells = json.loads(ten_tables_page.MEASURED.read_text(encoding="utf-8"))["cells"]
    sealed = {key.removeprefix("boosting, "): cell for key, cell in cells.items() if key.startswith("boosting, ")}
    assert len(sealed) >= 2
    for key, cell in sealed.items():
        assert cell["ours"]["metric"] == cells[f"unsealed, {key}"]["ours"]["metric"], key


def test_the_worst_table_is_named_for_both_peers() -> None:
    def one(gap: float, like: float) -> dict[str, float | None]:
        return {"gap": gap, "error of the gap": 0.001, "gap to like": like, "error of the gap to like": None}

    tables = {"films": one(-0.25, 0.5), "loans": one(0.25, -0.125)}
    found = {"tables": tables, "worst": "films", "mean gap": 0.0}
    assert ten_tables_page.describe_way("trees", {"trees": found}) == (
        "Over 2 tables the mean gap to pooled boosted trees is +0.0000, the worst -0.2500 ± 0.0010 (films). To pooled "
        "trees of like settings, over 2 tables, the mean gap is +0.1875, the worst -0.1250 (loans)."
    )
