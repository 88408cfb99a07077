"""A job that names no protection does not leak by itself: it trains on shares, or it is refused and says what leaks."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from support.helpers import make_parties
from support.small_algorithms import KINDS, SETTINGS, make
from typer.testing import CliRunner

import securevfl as sv
from securevfl.checks import check_file
from securevfl.cli import app
from securevfl.cut import Unnamed
from securevfl.cut.costs import COSTS
from securevfl.party import choose_protection, with_default_protection
from securevfl.run.job_card import job_card
from securevfl.run.simulation import join_parties, run_parties

SMALL = {"hidden": 4, "top": (), "lr": 0.02}
TWO, THREE = ["shop"], ["network", "retailer"]


def _two() -> sv.Parties:
    found = make_parties(rows=160)
    return sv.Parties.of(found["bank"], next(table for name, table in found.items() if name != "bank"))


def test_a_protection_that_is_named_runs_as_it_is() -> None:
    for protection in (sv.Plain(), sv.BFV()):
        job = sv.Job(protection=protection)
        assert with_default_protection(job, ["bank"], TWO) is job


@pytest.mark.parametrize("name", [name for name in KINDS if name in SETTINGS])
@pytest.mark.parametrize("passive", [TWO, THREE], ids=["two parties", "three parties"])
def test_what_nobody_asked_for_reads_nothing(name: str, passive: list[str]) -> None:
    """Of every algorithm: whatever the default settles on, no cell of its card is read; else it is refused."""
    algorithm = make(name)
    if len(passive) > (algorithm.most_passive or 2):
        return
    job = sv.Job(algorithm=algorithm)
    refused = ""
    try:
        found = with_default_protection(job, ["bank"], passive)
    except sv.PolicyError as error:
        refused = str(error)
    if refused:
        assert "leak: " in refused
        assert "--accept-leak" in refused
        assert with_default_protection(job.replace(accept_leak=True), ["bank"], passive).protection == sv.Plain()
        return
    card = job_card(found, ["bank"], passive)
    assert card is None or card.worst_standing != "reads it"
    assert not isinstance(found.protection, Unnamed)


def test_two_parties_train_one_layer_on_shares_of_their_own() -> None:
    job = sv.Job(algorithm=sv.LogisticRegression())
    assert with_default_protection(job, ["bank"], TWO).protection == sv.Shares(computing=2)
    assert with_default_protection(job, ["bank"], TWO, "notary").protection == sv.Shares()
    assert with_default_protection(job, ["bank"], THREE).protection == sv.Shares()
    card = sv.Job(algorithm=sv.Scorecard())
    assert with_default_protection(card, ["bank"], TWO).protection == sv.Shares(computing=2)
    trees = sv.Job(algorithm=sv.Boosting(), accept_leak=True)
    assert with_default_protection(trees, ["bank"], TWO).protection == sv.Plain()


def test_the_refusal_says_who_reads_what_and_how_to_go_on() -> None:
    with pytest.raises(sv.PolicyError) as caught:
        sv.simulate(sv.Job(algorithm=sv.SplitNN(**SMALL), epochs=1), _two())
    text = str(caught.value)
    assert "features and labels leak: 'bank' reads features of " in text
    assert "reads labels of 'bank' from gradients" in text
    for cure in ("accept_leak=True", "accept_leak = true under [job]", "--accept-leak", "'shares'"):
        assert cure in text


def test_a_leak_that_is_accepted_runs_in_the_clear_and_the_card_says_so() -> None:
    result = sv.simulate(sv.Job(algorithm=sv.SplitNN(**SMALL), epochs=1, accept_leak=True), _two())
    assert result.record.runs[0].protection == "plain"
    assert result.card.worst_standing == "reads it"


def test_a_job_whose_protection_nobody_settled_trains_with_nobody() -> None:
    job, people = sv.Job(algorithm=sv.SplitNN(**SMALL), epochs=1), _two()
    with pytest.raises(sv.PolicyError, match="names no protection"):
        run_parties(job, people, join_parties(people, job), run="run")
    lone = sv.Parties.of(people["bank"])
    assert sv.simulate(job, lone).record.runs[0].protection == "none"


def test_accepting_a_leak_is_no_part_of_what_parties_agree_on() -> None:
    assert sv.Job(protection=sv.Plain(), accept_leak=True).digest == sv.Job(protection=sv.Plain()).digest
    assert sv.Job(protection=sv.Plain()).digest != sv.Job().digest


def test_a_saved_model_is_found_again_by_the_job_without_a_protection(tmp_path: Path) -> None:
    job = sv.Job(algorithm=sv.SplitNN(**SMALL), epochs=1, accept_leak=True)
    sv.simulate(job, _two()).model().save(tmp_path)
    found = sv.Model.load(tmp_path, job.replace(accept_leak=False))
    assert found.job.protection == sv.Plain()
    with pytest.raises(sv.InputError, match="trained by another job"):
        sv.Model.load(tmp_path, job.replace(protection=sv.BFV()))


FILE = """
[job]
epochs = 1
{accept}
[algorithm]
name = "splitnn"
hidden = 4
[data]
name = "limited_credit"
parties = {parties}
rows = 300
"""


def test_commands_refuse_and_accept(tmp_path: Path) -> None:
    file = tmp_path / "job.toml"
    file.write_text(FILE.format(accept="", parties=2))
    refused = CliRunner().invoke(app, ["check", str(file)])
    assert refused.exit_code == 3
    assert "features and labels leak" in refused.stdout
    accepted = CliRunner().invoke(app, ["check", str(file), "--accept-leak"])
    assert accepted.exit_code == 0
    assert "● reads it" in accepted.stdout
    assert "SplitNN, plain" in accepted.stdout
    file.write_text(FILE.format(accept="accept_leak = true", parties=2))
    assert check_file(file).exit_code == 0
    assert sv.read_job(file, accept_leak=False).job.accept_leak


def test_three_parties_train_on_shares(tmp_path: Path) -> None:
    found = with_default_protection(sv.Job(), ["bank"], THREE)
    assert found.protection.name == "shares"
    file = tmp_path / "job.toml"
    file.write_text(FILE.format(accept="", parties=3))
    shown = CliRunner().invoke(app, ["check", str(file)])
    assert shown.exit_code == 0
    assert "needs accept_leak" in " ".join(shown.stdout.split())  # two numbers of a row say much of six columns
    assert "This holds if no two of" in " ".join(shown.stdout.split())


FOUR = ("shares", "ckks", "bfv", "paillier")


@pytest.mark.parametrize(
    ("latency", "mbit", "took"),
    [(0.1, 1000.0, "shares"), (2.0, 1000.0, "shares"), (20.0, 1000.0, "auto"), (80.0, 100.0, "auto")],
)
def test_auto_takes_shares_where_links_answer_quickly(latency: float, mbit: float, took: str) -> None:
    job = sv.Job(protection=sv.Auto(offers=FOUR, mbit=mbit, latency_ms=latency))
    assert with_default_protection(job, ["bank"], THREE).protection.name == took
    protection, why = choose_protection(job, ["bank"], THREE)
    assert protection.name == took
    assert f"took {'shares' if took == 'shares' else 'ckks'}: " in why or mbit < 1000
    for word in (*FOUR, f"{latency:g} ms", f"{mbit:g} Mbit/s"):
        assert word in why


def test_auto_takes_no_shares_that_the_job_does_not_offer_or_cannot_have() -> None:
    fast = {"mbit": 1000.0, "latency_ms": 0.1}
    assert with_default_protection(sv.Job(protection=sv.Auto(**fast)), ["bank"], THREE).protection == sv.Auto(**fast)
    offered = sv.Auto(offers=FOUR, **fast)
    assert with_default_protection(sv.Job(protection=offered), ["bank"], TWO).protection == sv.Auto(
        offers=FOUR[1:], **fast
    )
    teacher = make("risa")
    assert (
        with_default_protection(sv.Job(algorithm=teacher, protection=offered), ["bank"], THREE).protection.name
        == "auto"
    )
    with pytest.raises(sv.InputError, match="give mbit"):
        sv.Auto(offers=FOUR)
    with pytest.raises(sv.InputError, match="name the protection 'shares' itself"):
        sv.Auto(offers=("shares",), mbit=1.0)


def test_costs_are_those_of_the_record_and_their_break_even_is_as_said() -> None:
    record = json.loads((Path(__file__).parents[2] / "benchmarks/results/shares_step.json").read_text())
    step = record["B=256 d=32 h=16 top=16"]
    assert COSTS["shares"].rounds == step["shares"]["rounds"]
    for name in ("bfv", "ckks"):
        ratio = step["sealed cut to shares, median of the pairs"][name.upper()]
        assert COSTS[name].work / COSTS["shares"].work == pytest.approx(ratio, rel=0.5)
    even = (COSTS["ckks"].work - COSTS["shares"].work) / (COSTS["shares"].rounds - COSTS["ckks"].rounds)
    assert 1e3 * even == pytest.approx(7, abs=1)


@pytest.mark.parametrize("name", ["boosting", "splitnn", "laser", "additive"])
@pytest.mark.parametrize("passive", [1, 2])
def test_a_refusal_names_only_protections_that_the_job_can_have(name: str, passive: int) -> None:
    """Boosting of two parties was told to take BFV, which is refused for it."""
    job, others = sv.Job(algorithm=name), [f"shop{k}" for k in range(passive)]
    try:
        with_default_protection(job, ["bank"], others)
    except sv.PolicyError as error:
        told = str(error).partition("for example ")[2].partition("accept the leak")[0]
        named = set(re.findall("'(bfv|ckks|paillier|shares)'", told))
        assert named == {kind for kind in named if _is_able(job, kind)}
        assert bool(named) == any(_is_able(job, kind) for kind in ("bfv", "paillier", *["shares"] * (passive == 1)))
    else:
        assert (name, passive) in {("boosting", 2), ("splitnn", 2)}


def _is_able(job: sv.Job, protection: str) -> bool:
    try:
        job.replace(protection=protection)
    except (sv.PolicyError, sv.InputError):
        return False
    return True
