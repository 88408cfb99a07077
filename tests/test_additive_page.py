"""The page of the additive model, and the README's line, have the figures that were measured."""

from __future__ import annotations

import additive_page


def test_the_pages_have_the_figures_that_were_measured() -> None:
    for file in (additive_page.PAGE, additive_page.README):
        page = file.read_text(encoding="utf-8")
        assert "<!-- additive" in page
        assert page == additive_page.written(page), "run python tools/pages/additive_page.py"


def test_places_at_which_a_peer_is_ahead_are_named() -> None:
    cells = [
        {"table": "t", "rows": 10, "seed": 0, "method": name, "epsilon": epsilon, "auc": auc, "refused": refused}
        for name, epsilon, auc, refused in (
            ("additive", 1.0, 0.7, False),
            ("DP-EBM", 1.0, 0.72, False),
            ("additive", 0.5, 0.5, True),
            ("DP-EBM", 0.5, 0.6, False),
        )
    ]
    (line, *_) = [one for one in additive_page._standing(cells) if "DP-EBM" in one]
    assert "ahead at 0 of 1 places; behind it: t 10 at ε = 1 by 0.020" in line
