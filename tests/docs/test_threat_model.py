"""The threat model page says what the code says, and what was measured."""

from __future__ import annotations

import json

import pytest
from page_tables import FIGURES, NAMES, NOISE_PAGE, PAGE, SEALED, blocks, noise_blocks, written

import securevfl as sv
from securevfl.algorithms import SplitNN
from securevfl.cut import Protection


@pytest.mark.parametrize("name", ["views", "cut", "algorithms", "beyond", "gate", "planted", "attack"])
def test_the_page_has_the_tables(name: str) -> None:
    page = written(PAGE.read_text(encoding="utf-8"))
    assert set(page) == set(blocks())
    assert page[name] == blocks()[name], "run python tools/pages/page_tables.py"


def test_the_page_about_noise_has_the_table_of_epsilon() -> None:
    assert written(NOISE_PAGE.read_text(encoding="utf-8")) == noise_blocks(), "run python tools/pages/page_tables.py"


def test_every_algorithm_is_in_the_page() -> None:
    table = blocks()["algorithms"]
    assert all(f"| `{name}` |" in table for name in NAMES)


@pytest.mark.parametrize("name", SEALED)
@pytest.mark.parametrize("bottom", [(), (4,)])
def test_all_that_seals_hides_the_same(name: str, bottom: tuple[int, ...]) -> None:
    algorithm = SplitNN(bottom=bottom)
    assert algorithm.findings(Protection.known_types()[name](), ["shop"], "bank") == algorithm.findings(
        sv.Paillier(), ["shop"], "bank"
    )


@pytest.mark.parametrize("evidential", [True, False])
def test_a_cut_that_opens_parts_one_by_one_does_not_claim_a_sum(evidential: bool) -> None:
    found = sv.RISA(evidential=evidential, self_training=5).findings(sv.Paillier(), ["shop", "lab"], "bank")
    told = [f.learns for f in found if f.party == "bank"]
    assert not any("never one party's part" in text for text in told), "the teacher opens single parts"
    assert any("its part separately for rows where the others feed a constant" in t for t in told) is not evidential
    own = "its part of z separately, not only the sum of all parties'"
    assert any(text.startswith(own) for text in told) is evidential


def test_the_figures_in_the_text_are_those_that_were_measured() -> None:
    found = json.loads(FIGURES.read_text(encoding="utf-8"))
    text = " ".join(PAGE.read_text(encoding="utf-8").split())
    trainable, private = (found[f"trainable bottoms (16){more}"]["8"] for more in ("", ", DP on labels, ε = 8"))
    lowest = min(trainable["label AUC from gradients"].values())
    assert f"with an AUC of {lowest:.2f} (both parties)" in text
    single = max(private["label AUC from gradients"].values())
    assert f"a single look at a row gives {single:.2f}, and" in text
    assert f"one look ranks labels with {single:.2f} instead of {lowest:.2f}" in text
    assert f"own AUC goes from {trainable['test AUC']:.2f} to {private['test AUC']:.2f}" in text
    best = min(trainable[kind]["72"] for kind in ("features, all looks", "features, transcript"))
    assert f"gets features to {100 * best:.0f} % instead of" in text
    assert f"has an AUC of {found['test AUC of the active party alone']:.2f} here" in text
    assert f"the deviation of `z` is {found['batches of 256']['8']['deviation of z']:.1f}" in text
    base, few = found["batches of 256"]["8"], found["h = 4"]["4"]
    assert f"10 known records get features to {100 * base['features, transcript']['10']:.0f} %" in text
    assert f"leave {100 * few['features, all looks']['72']:.0f} % (h = 4, 4 epochs)" in text
    narrow, once = found["logistic regression, h = 1"]["8"], found["batches of 256"]["1"]
    assert f"leave {100 * narrow['features, all looks']['72']:.0f} % (h = 1, 8 epochs)" in text
    assert f"or {100 * once['features, all looks']['72']:.0f} % (h = 16, one epoch)" in text
    weak = found["DP on features, ε = 50"]["8"]
    kept = min(weak[kind]["72"] for kind in ("features, all looks", "features, transcript"))
    assert f"At ε = 50 the attacker still has an error of {100 * kept:.0f} % with 72 known" in text
    noise = found["fresh noise on z, deviation 1"]["8"]
    hidden = min(noise[kind]["72"] for kind in ("features, all looks", "features, transcript"))
    assert f"leaves {100 * hidden:.0f} % with 72 known records" in text
    assert f"from {base['test AUC']:.2f} to {noise['test AUC']:.2f}" in text
