"""The card that a report opens with: no cell says less than the findings, whatever the algorithm and the protection."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from support.helpers import make_parties
from support.small_algorithms import KINDS, SETTINGS, SEVERAL, make
from typer.testing import CliRunner

import securevfl as sv
from securevfl.attacks import AttackScore
from securevfl.cli import app
from securevfl.cut import Protection
from securevfl.party import Job
from securevfl.privacy import Finding
from securevfl.privacy.severity import load_measured, severity_of_view
from securevfl.report import Card, Record, card_table, make_card, render_report, render_text
from securevfl.report.attack_record import AttackRecord
from securevfl.report.card import STANDINGS
from securevfl.report.card_making import rate_finding
from securevfl.report.derived import list_worst_findings, make_cards
from securevfl.report.record import LearnedRecord, PartyRecord, SightRecord
from securevfl.report.terminal import learned_table
from securevfl.run.job_card import job_card, merge_findings, refuse_unaccepted_leaks
from securevfl.shares.exchanges import MASKED, PREDICTED

PASSIVE = ["network", "retailer"]
THREE = [
    PartyRecord(name=name, role="passive" if i else "active", rows=9, columns=["x"])
    for i, name in enumerate(["bank", *PASSIVE])
]
ON_SHARES = {
    "all_labels",
    "boosted_residual",
    "boosting",
    "logistic_regression",
    "random_match",
    "scorecard",
    "splitnn",
    "zero_imputation",
}
"""Algorithms that train on shares, whose cards have no cell *reads it* while the parties' columns are not known."""
SHORT: dict[str, Any] = {"epochs": 1, "batch_size": 64}
NOISE = {
    "none": None,
    "0.5": sv.DP(features=sv.Gaussian(epsilon=0.5), labels=sv.Gaussian(epsilon=0.5)),
    "8": sv.DP(features=sv.Gaussian(epsilon=8.0), labels=sv.Gaussian(epsilon=8.0)),
}


def _pairs(name: str, protection: Protection) -> tuple[list[Finding], Card] | None:
    algorithm = make(name) if name in SETTINGS else SEVERAL if name == SEVERAL.name else KINDS[name]()
    try:
        job = Job(algorithm=algorithm, protection=protection)
    except (sv.PolicyError, sv.InputError):
        return None
    passive = PASSIVE[: algorithm.most_passive or 2]
    owners = ["bank", "store"] if algorithm.many_owners else ["bank"]
    card = job_card(job, owners, passive)
    found = [f for owner in owners for f in algorithm.findings(job.planned_protection(len(passive)), passive, owner)]
    return None if card is None else (found, card)


@pytest.mark.parametrize("noise", list(NOISE))
@pytest.mark.parametrize("protection", sorted(Protection.known_types()))
def test_every_leak_of_every_algorithm_stands_in_a_cell(protection: str, noise: str) -> None:
    seen = 0
    for name in KINDS:
        pair = _pairs(name, Protection.known_types()[protection](dp=NOISE[noise]))
        for finding in () if pair is None else pair[0]:
            if finding.severity != "leak" or finding.party == "the other label owners":
                continue
            card = pair[1] if pair else None
            assert card is not None
            cells = [cell for cell in card if (cell.reader, cell.about) == (finding.party, finding.about)]
            bounded = (noise != "none" and "ε =" in finding.learns) or any(sight.result for sight in finding.sights)
            allowed = {"reads it", "bounded", "not known yet"} if bounded else {"reads it"}  # no columns are counted
            assert {cell.standing for cell in cells} & allowed, (name, finding)
            seen += 1
    assert seen or noise != "none" or Protection.known_types()[protection].on_shares


@pytest.mark.parametrize("protection", sorted(Protection.known_types()))
def test_every_job_with_a_cell_that_is_read_asks_for_accept_leak(protection: str) -> None:
    """Whatever the algorithm, and whether its protection is named: between organisations it has to say so."""
    asked, quiet = [], []
    for name in KINDS:
        pair = _pairs(name, Protection.known_types()[protection]())
        if pair is None:
            continue
        refuse_unaccepted_leaks(pair[1], accepted=True)
        if not pair[1].read_cells:
            refuse_unaccepted_leaks(pair[1], accepted=False)
            assert not pair[1].asks
            quiet.append(name)
            continue
        with pytest.raises(sv.PolicyError, match="accept_leak = true under") as refused:
            refuse_unaccepted_leaks(pair[1], accepted=False)
        first = pair[1].read_cells[0]
        assert f"{first.reader} reads {first.of}" in str(refused.value)
        assert "accept_leak" in pair[1].asks
        asked.append(name)
    assert set(quiet) == (ON_SHARES if protection == "shares" else {"local"})
    assert not set(asked) & set(quiet)


def test_few_columns_ask_on_shares_too() -> None:
    job = Job(protection=sv.Shares())
    few, many = (job_card(job, ["bank"], PASSIVE, columns=dict.fromkeys(PASSIVE, d)) for d in (7, 8))
    with pytest.raises(sv.PolicyError, match="bank reads features of network from final predictions, at most 2 of 7"):
        refuse_unaccepted_leaks(few, accepted=False)
    refuse_unaccepted_leaks(many, accepted=False)


def test_trees_under_paillier_ask_and_show_how_many_cells_are_computed() -> None:
    card = job_card(Job(algorithm=sv.Boosting(), protection=sv.Paillier()), ["bank"], PASSIVE)
    assert card is not None
    cell = card.cell("bank", "network")
    assert cell.standing == "reads it"
    found = load_measured()["sums over bins"]
    assert found.got > 0.95 > found.without
    assert re.fullmatch(r"cells computed: (\d+ % after \d+, )+100 % after 100 trees \(\d+ % guessed\)", cell.figure)
    with pytest.raises(sv.PolicyError, match="bank reads features of network from sums of gradients"):
        refuse_unaccepted_leaks(card, accepted=False)
    shown = job_card(Job(algorithm=sv.Boosting(nodes="shown"), protection=sv.Paillier()), ["bank"], PASSIVE)
    assert shown is not None
    assert shown.cell("bank", "network").figure.startswith("cells computed: ")


def test_features_and_labels_stand_apart_and_bear_what_was_measured() -> None:
    sealed, plain = (job_card(Job(protection=kind), ["bank"], PASSIVE) for kind in (sv.BFV(), sv.Plain()))
    assert sealed is not None
    assert plain is not None
    assert sealed.cell("bank", "network").standing == "reads it"
    assert sealed.cell("bank", "network").figure == "R² 1.00 (0.00 without)"
    assert sealed.cell("network", "bank", "labels").standing == "nothing found"
    assert sealed.cell("network", "bank", "labels").figure == "AUC 0.50 (0.50 without)"
    assert sealed.cell("network", "retailer").says == "no message reveals it"
    assert plain.cell("network", "bank", "labels").figure == "AUC 1.00 (0.50 without)"
    assert plain.cell("network", "bank").figure == "R² 0.76 (0.10 without)"
    noisy = job_card(Job(protection=sv.Plain(dp=sv.DP(labels=sv.Gaussian(epsilon=0.5)))), ["bank"], PASSIVE)
    assert noisy is not None
    assert [noisy.cell("network", "bank", of).standing for of in ("features", "labels")] == ["reads it", "bounded"]
    assert plain.cell("network", "retailer").standing == plain.cell("network", "bank").standing == "reads it"
    assert (sealed.standing_counts()["reads it"], plain.standing_counts()["reads it"]) == (2, 8)


@pytest.mark.parametrize(("epsilon", "standing"), [(0.5, "bounded"), (8.0, "bounded"), (30.0, "reads it")])
def test_an_epsilon_bounds_only_where_it_permits_less_than_reading(epsilon: float, standing: str) -> None:
    noisy = sv.Plain(dp=sv.DP(features=sv.Gaussian(epsilon=epsilon)))
    card = job_card(Job(protection=noisy), ["bank"], PASSIVE)
    assert card is not None
    cell = card.cell("bank", "network")
    assert cell.standing == standing
    assert cell.figure.startswith(f"ε = {epsilon:g}: AUC at most")
    assert card.cell("network", "bank", "labels").standing == "reads it"


def test_a_multiplier_without_a_bound_on_looks_bounds_nothing() -> None:
    noise = sv.DP(features=sv.Gaussian(noise_multiplier=3.0))
    [line] = merge_findings(
        [f for f in sv.SplitNN().findings(sv.Plain(dp=noise), ["network"], "bank") if f.party == "bank"]
    )
    card = make_card([line], THREE[:2])
    assert card is not None
    assert card.cell("bank", "network").standing == "reads it"
    assert card.cell("bank", "network").figure == "ε grows with every release"


@pytest.mark.parametrize("severity", ["leak", "news"])
def test_a_finding_that_nobody_took_apart_is_of_all_that_the_other_has(severity: str) -> None:
    """As an installed algorithm may give it, or a record of an earlier version."""
    line = LearnedRecord(party="network", about="bank", learns="its book: all of it", severity=severity)
    card = make_card([line], THREE)
    assert card is not None
    assert {card.cell("network", "bank", of).standing for of in ("features", "labels")} == {"reads it"}
    assert card.cell("network", "bank").says == "from its book"
    assert card.cell("retailer", "bank", "labels").standing == "nothing found"


def _attacked(value: float) -> AttackRecord:
    one = AttackScore(
        attacker="network", victim="bank", attack="labels: norm", target="labels", metric="AUC", value=value,
        baseline=0.5, known=0, rows=400, seed=0, error=0.02,
    )  # fmt: skip
    return AttackRecord(
        name="a", title="SplitNN, BFV", created="", command="", versions={}, machine={}, job={}, seeds=[0], test={},
        seconds=1.0, claims=[], measured=[one], contradictions=[], unstated=[],
    )  # fmt: skip


@pytest.mark.parametrize(("most", "standing"), [(0.5, "bounded"), (1.0, "reads it")])
def test_max_looks_bounds_while_it_is_below_the_columns(most: float, standing: str) -> None:
    with pytest.warns(FutureWarning, match="write max_results"):
        job = Job(protection=sv.BFV(), policies={"network": sv.Policy(max_looks=most)})
    card = job_card(job, ["bank"], PASSIVE)
    assert card is not None
    assert card.cell("bank", "network").standing == standing
    assert ("max_looks = 0.5" in card.cell("bank", "network").figure) is (most < 1)
    assert card.cell("bank", "retailer").standing == "reads it"


def test_on_shares_the_result_tells_and_nothing_is_found_beyond_it() -> None:
    """Both are visible: what attacks got from final predictions, and from everything else."""
    card = job_card(Job(protection=sv.Shares()), ["bank"], PASSIVE)
    assert card is not None
    standings = {"reads it": 0, "not known yet": 2, "bounded": 0, "by design": 3, "nothing found": 6}
    assert card.standing_counts() == standings
    cell = card.cell("bank", "network")
    assert cell.says == (
        "from final predictions, at most 2 numbers of each row: what that bounds is not known before the columns are "
        "counted; beyond them nothing found"
    )
    counted = job_card(Job(protection=sv.Shares()), ["bank"], PASSIVE, columns={"network": 6, "retailer": 12})
    assert counted is not None
    assert [counted.cell("bank", name).standing for name in ("network", "retailer")] == ["reads it", "bounded"]
    assert counted.cell("bank", "network").says == (
        "from final predictions, at most 2 of 6 numbers of each row; beyond them nothing found"
    )
    told, rest = load_measured()[PREDICTED], load_measured()[MASKED]
    assert severity_of_view(PREDICTED) == "leak"
    assert rest.got - rest.without < 0.02
    assert cell.figure == (
        "each party's own card has its figure; one number elsewhere: "
        f"R² {told.got:.2f} ({max(told.without, 0):.2f} without); "
        f"beyond them R² {rest.got:.2f} ({max(rest.without, 0):.2f} without)"
    )
    assert card.cell("network", "bank").says == "no message reveals it"
    assert card.assumes.startswith("no two of bank, network and retailer")
    helped = job_card(Job(protection=sv.Shares(computing=("bank", "shop", "helper"))), ["bank"], ["shop"])
    assert helped is not None
    assert helped.cell("helper", "bank", "labels").standing == "nothing found"


def _on_shares(columns: int, *more: LearnedRecord, numbers: int | None = 2) -> Card:
    findings = sv.SplitNN().findings(sv.Shares(), ["network"], "bank")
    counted = [
        replace(one, sights=tuple(replace(s, numbers=numbers if s.result else None) for s in one.sights))
        for one in findings
    ]
    shop = PartyRecord(name="network", role="passive", rows=9, columns=[f"x{i}" for i in range(columns)])
    card = make_card([*merge_findings(counted), *more], [THREE[0], shop])
    assert card is not None
    return card


@pytest.mark.parametrize(
    ("numbers", "columns", "standing", "says"),
    [
        (1, 1, "reads it", "at most 1 of 1 numbers of each row"),
        (1, 3, "reads it", "at most 1 of 3 numbers of each row"),
        (1, 4, "bounded", "at most 1 of 4 numbers of each row"),
        (2, 7, "reads it", "at most 2 of 7 numbers of each row"),
        (2, 8, "bounded", "at most 2 of 8 numbers of each row"),
        (24, 18, "reads it", "at most 24 of 18 numbers of each row"),
        (None, 500, "reads it", "of each row as many numbers as are asked for"),
    ],
)
def test_answers_bound_while_their_numbers_are_few_beside_the_columns(
    numbers: int | None, columns: int, standing: str, says: str
) -> None:
    cell = _on_shares(columns, numbers=numbers).cell("bank", "network")
    assert cell.standing == standing
    assert says in cell.says


def test_no_card_has_a_figure_of_another_party_s_table() -> None:
    """An eigenvalue is a statistic of the table: whatever a party has, the shared card is the same."""
    [few, more] = (sv.simulate(Job(protection=sv.Shares(), **SHORT), make_parties(rows=900, seed=s)) for s in (1, 2))
    assert [cell.figure for cell in few.card] == [cell.figure for cell in more.card]
    assert "each party's own card has its figure" in few.card.cell("bank", "shop1").figure
    assert not few.record.own_shares


@pytest.mark.parametrize(
    ("more", "passive", "who", "standing", "says"),
    [
        ({}, ["network"], "bank", "by design", "which of its rows the other party has"),
        ({}, ["network"], "network", "by design", "which of its rows the other party has"),
        ({}, PASSIVE, "bank", "by design", "which of its rows all parties have"),
        ({"align": sv.Align(protocol="ot")}, PASSIVE, "bank", "by design", "party by party"),
        ({"align": sv.Align(protocol="ot")}, PASSIVE, "network", "by design", "which of its rows all parties have"),
        ({"align": sv.Align(protocol="unsafe_salted_hash")}, PASSIVE, "bank", "reads it", "common or not"),
    ],
)
def test_membership_has_its_own_column(
    more: dict[str, Any], passive: list[str], who: str, standing: str, says: str
) -> None:
    card = job_card(Job(protection=sv.BFV(), **more), ["bank"], passive)
    assert card is not None
    cell = card.cell(who, "", "membership")
    assert cell.standing == standing
    assert says in cell.says
    assert cell in set(card)
    assert "membership:" in repr(card)


def test_a_coordinator_learns_how_many_rows_are_common_but_not_which() -> None:
    helped = job_card(Job(protection=sv.Shares(computing=("bank", "shop", "helper"))), ["bank"], ["shop"])
    assert helped is not None
    assert helped.cell("helper", "", "membership").standing == "nothing found"


def test_the_line_below_the_card_says_the_same(result: sv.Result) -> None:
    learned = merge_findings(sv.SplitNN().findings(sv.Shares(), PASSIVE, "bank"))
    [run] = result.record.runs
    changed = msgspec.structs.replace(result.record, runs=[msgspec.structs.replace(run, learned=learned)])
    [(_, severity, sentence)] = list_worst_findings(changed)
    assert severity == "leak"
    assert sentence == "bank can estimate, from the result that it is given, data of network, retailer"


@pytest.mark.parametrize(
    ("numbers", "columns", "standing", "severity"),
    [
        (2, 8, "bounded", "note"),
        (3, 8, "reads it", "leak"),
        (None, 8, "reads it", "leak"),
        (2, 0, "not known yet", "note"),
    ],
)
def test_a_finding_has_the_colour_of_its_cell(
    numbers: int | None, columns: int, standing: str, severity: str, result: sv.Result
) -> None:
    sight = SightRecord(of="features", severity="leak", through="final predictions", result=True, numbers=numbers)
    told = LearnedRecord(party="bank", about="network", learns="scores", severity="leak", sights=[sight])
    [run] = result.record.runs
    parties = [
        PartyRecord(name="bank", role="active", rows=9, columns=["age"]),
        PartyRecord(name="network", role="passive", rows=9, columns=[f"c{j}" for j in range(columns)]),
    ]
    runs = [msgspec.structs.replace(run, learned=[told])]
    changed = msgspec.structs.replace(result.record, runs=runs, parties=parties)
    [card] = make_cards(changed).values()
    assert card.cell("bank", "network").standing == standing
    assert [found for _, found, _ in list_worst_findings(changed)] == [severity]
    page = render_report(changed)
    assert f'<td><span class="tag {severity}">{severity}</span></td><td>scores</td>' in page
    assert severity in render_text(learned_table(changed))
    bare = msgspec.structs.replace(told, sights=[])
    assert rate_finding(bare, {}) == "leak"


def test_the_result_does_not_hide_what_else_is_told() -> None:
    also = LearnedRecord(party="bank", about="network", learns="its hair", severity="note")
    cell = _on_shares(8, also).cell("bank", "network")
    assert "its hair" in cell.says
    worse = msgspec.structs.replace(also, severity="leak")
    assert _on_shares(8, worse).cell("bank", "network").standing == "reads it"


@pytest.mark.parametrize(("value", "standing"), [(0.53, "nothing found"), (0.9, "reads it")])
def test_an_attack_on_the_job_can_make_a_cell_worse(value: float, standing: str) -> None:
    card = job_card(Job(protection=sv.BFV()), ["bank"], PASSIVE, _attacked(value))
    assert card is not None
    cell = card.cell("network", "bank", "labels")
    assert (cell.standing, cell.source) == (standing, "attacks on this job")
    assert cell.figure == f"AUC {value:.2f} ± 0.02 (0.50 without)"


def test_many_parties_of_a_role_share_a_row_and_their_worst() -> None:
    names = [f"shop{i}" for i in range(9)]
    card = job_card(Job(protection=sv.Plain()), ["bank"], names)
    assert card is not None
    assert [group.title for group in card.rows] == ["bank", "9 passive parties"]
    assert card.cell("shop3", "shop4").standing == "reads it"
    quiet = make_card(
        [LearnedRecord(party="bank", about="shop7", learns="all", severity="leak")],
        [THREE[0], *(PartyRecord(name=name, role="passive", rows=9, columns=[]) for name in names)],
    )
    assert quiet is not None
    assert quiet.cell("bank", "shop2").standing == "reads it"
    assert quiet.cell("shop1", "bank", "labels").standing == "nothing found"


@pytest.fixture(scope="module")
def result() -> sv.Result:
    job = Job(algorithm=sv.SplitNN(hidden=4), protection=sv.Plain(), epochs=1, batch_size=64)
    return sv.simulate(job, make_parties(rows=200), name="a <b>bold</b> name")


def test_the_page_opens_with_the_card_and_no_cell_is_told_by_colour_alone(result: sv.Result) -> None:
    page = render_report(result.record)
    assert page.index("What could each party read, at worst?") < page.index("What was gained")
    body = page[page.index('<table class="matrix">') : page.index("</table>")]
    for cell in result.card:
        assert re.search(
            rf'<td class="{cell.standing.replace(" ", "-")}"[^>]*><b class="mark">{cell.standing}</b>', body
        )
        assert cell.says in body
        assert cell.figure in body
    assert body.count('<b class="mark">') == len(list(result.card))
    text = repr(result.card)
    assert all(cell.standing in text for cell in result.card)
    assert "What could each party read" in text
    found = result.card.to_dict()
    assert found == json.loads(json.dumps(found))
    assert found["worst"] == "reads it"
    assert {cell["standing"] for cell in found["cells"]} <= set(STANDINGS)


def test_a_record_without_sights_has_a_card_and_says_no_less(result: sv.Result) -> None:
    content = json.loads(result.record.to_json())
    for run in content["runs"]:
        del run["assumes"]
        for line in run["learned"]:
            del line["sights"]
    old = msgspec.json.decode(json.dumps(content), type=Record)
    [run] = old.runs
    from securevfl.report import make_run_card

    card = make_run_card(run, old.parties)
    assert card is not None
    assert {c.standing for c in card} == {"reads it", "by design"}
    assert "reads it" in render_text(card_table(card))


def test_a_brief_card_has_a_line_for_each_reader_and_each_cell_that_is_read(result: sv.Result) -> None:
    card = next(iter(make_cards(result.record).values()))
    text = render_text(card_table(card, brief=True), width=80)
    head, *lines = text.splitlines()
    assert head.startswith("What could each party read, at worst? ")
    for group, row in zip(card.rows, card.cells, strict=True):
        (line,) = (one for one in lines if one.startswith(f"{group.title} "))
        assert [line.count(one) for one in ("reads it", "nothing found", "bounded")] == [
            sum(cell.standing == one for cell in row) for one in ("reads it", "nothing found", "bounded")
        ]
    read = [cell for cell in card if cell.standing in ("reads it", "bounded")]
    assert read
    for cell in read:
        kind = f"{cell.of} of " if cell.about == "bank" else ""  # the label owner has two columns
        assert f" {cell.reader} of {kind}{cell.about}: {cell.says.split(';')[0]}" in text


def test_what_has_to_hold_besides_stands_below() -> None:
    line = LearnedRecord(party="bank", about="network", learns="metrics", severity="ok")
    card = make_card([line], THREE, assumes="no two of bank, network and retailer collude")
    assert card is not None
    assert "This holds if no two of bank, network and retailer" in " ".join(repr(card).split())


def test_a_party_alone_has_no_card() -> None:
    lone = sv.simulate(
        Job(epochs=1, batch_size=64, protection=sv.Plain()), sv.Parties.of(make_parties(rows=120)["bank"])
    )
    assert not lone.cards
    with pytest.raises(sv.InputError, match="no run had two parties"):
        _ = lone.card


def test_the_commands_open_with_it(result: sv.Result, tmp_path: Path) -> None:
    folder = str(tmp_path)
    result.report(folder)
    for arguments in (["report", folder], ["audit", folder]):
        text = CliRunner().invoke(app, arguments).stdout
        assert text.lstrip().startswith("What could each party read, at worst?")
        assert "● reads it" in text
