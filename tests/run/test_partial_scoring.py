"""Scores for every customer of the active party: each row once, by the largest set that holds it."""

from __future__ import annotations

import asyncio
import csv
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from support.helpers import make_parties
from typer.testing import CliRunner

import securevfl as sv
from securevfl.algorithms.splitnn import Active
from securevfl.cli import app
from securevfl.cut import Protection
from securevfl.ledger.lines import NoteLine
from securevfl.party import Alone
from securevfl.party.program import FEWER
from securevfl.party_context import PartySecret
from securevfl.run.partial_scoring import party_sets
from securevfl.run.simulation import join_parties, run_parties
from securevfl.training import ActiveRole, Plan, Setting, Subsets
from securevfl.transport import Kind

PLAIN = sv.Plain()
SMALL: dict[str, Any] = {"hidden": 4, "top": (4,), "bottom": (4,)}


class Zeros(sv.SplitNN):
    """SplitNN that may be scored with any parties: zeros in z stand for the columns of the others."""

    name: ClassVar[str] = "test_zeros"
    label: ClassVar[str] = "zeros"
    subsets: ClassVar[Subsets] = "any"


def _job(algorithm: sv.SplitNN, **options: Any) -> sv.Job:
    return sv.Job(**{"algorithm": algorithm, "protection": sv.Plain(), "epochs": 2, "batch_size": 32, **options})


ANY, LOCAL, ALL = Zeros(**SMALL), sv.Local(**SMALL), sv.SplitNN(**SMALL)


@cache
def _model(algorithm: sv.SplitNN, protection: Protection = PLAIN, passive: int = 2) -> tuple[sv.Model, sv.Parties]:
    """A model of a bank and shops, and the tables that it was trained on."""
    job, people = _job(algorithm, protection=protection), make_parties(passive, rows=100)
    secrets = {name: PartySecret.from_seed(5, name) for name in people}
    ran = run_parties(job, people, join_parties(people, job), run="test", secrets=secrets)
    return sv.Model(job=job, parts={name: trained.model for name, trained in ran.trained.items()}), people


def _tables(**rows: range) -> sv.Parties:
    """New tables of the same columns, with these people each; the bank's has no labels."""
    whole, tables = make_parties(len(rows) - 1, rows=60, seed=3), []
    for name, chosen in rows.items():
        place = {person: row for row, person in enumerate(whole[name].ids)}
        wanted = [place[person] for number in chosen if (person := f"p{number:04d}") in place]
        tables.append(whole[name].take(wanted))
    first = replace(tables[0], label=None, classes=())
    return sv.Parties.of(first, *tables[1:], active="bank")


NEW = {"bank": range(50), "shop1": range(35), "shop2": range(15, 60)}
"""Some people are at all three, some at two, some at the bank alone."""


def _holders(people: sv.Parties, person: str) -> tuple[str, ...]:
    return tuple(name for name, table in people.items() if person in set(table.ids))


@pytest.mark.parametrize("passive", [0, 1, 2, 3])
def test_every_set_comes_once_and_the_largest_first(passive: int) -> None:
    names = [f"shop{number + 1}" for number in range(passive)]
    found = party_sets("any", names)
    assert len(set(found)) == len(found) == 2**passive
    assert [len(one) for one in found] == sorted((len(one) for one in found), reverse=True)
    assert party_sets("alone", names) == ([tuple(names), ()] if names else [()])


def test_each_row_is_scored_once_by_the_largest_set_that_holds_it() -> None:
    (model, _), new = _model(ANY), _tables(**NEW)
    found = sv.predict(model, new, everyone=True)
    assert sorted(found.ids) == sorted(new["bank"].ids)
    assert [set(used) for used in found.used] == [set(_holders(new, person)) for person in found.ids]
    assert {len(used) for used in found.used} == {1, 2, 3}
    np.testing.assert_allclose(found.probabilities.sum(axis=1), 1)
    assert [len(step.parties) for step in found.steps] == [3, 2, 2, 1]
    assert [len(step.rows) for step in found.steps] == [found.used.count(step.parties) for step in found.steps]
    for step in found.steps[1:3]:
        other = next(name for name in ("shop1", "shop2") if name not in step.parties)
        for ledgers in step.ledgers.values():
            assert set(ledgers) == set(step.parties)  # whoever has none of the rows hears of nothing
            lines = [line for ledger in ledgers.values() for line in ledger.lines if isinstance(line, NoteLine)]
            assert [line.values["without"] for line in lines if line.note == FEWER] == [other, other]


def test_a_row_gets_the_score_that_its_set_gives_by_itself() -> None:
    (model, _), new = _model(ANY), _tables(**NEW)
    whole = sv.predict(model, new, everyone=True)
    of = dict(zip(whole.ids, whole.probabilities, strict=True))
    used = dict(zip(whole.ids, whole.used, strict=True))
    for names in (("bank", "shop1", "shop2"), ("bank", "shop1"), ("bank", "shop2"), ("bank",)):
        some = sv.Parties({name: new[name] for name in names}, active="bank")
        single = sv.predict(model, some)
        same = [place for place, person in enumerate(single.ids) if used[person] == names]
        assert same
        for place in same:
            np.testing.assert_allclose(single.probabilities[place], of[single.ids[place]], atol=1e-6)


def test_a_sealed_model_scores_the_rows_of_fewer_parties_as_the_integers_do() -> None:
    """Shares of a party that is not there stay unused, also where the widest party is the one that is missing."""
    new, made = _tables(**NEW), []
    for one in (sv.Plain(fixed_point=True), sv.BFV()):
        made.append(sv.predict(_model(ANY, one)[0], new, everyone=True))
    plain, sealed = made
    assert sealed.ids == plain.ids
    assert sealed.used == plain.used
    np.testing.assert_allclose(sealed.probabilities, plain.probabilities, atol=1e-5)


def test_the_active_party_scores_the_others_in_silence() -> None:
    (model, _), new = _model(LOCAL), _tables(**NEW)
    found = sv.predict(model, new, everyone=True)
    assert sorted(found.ids) == sorted(new["bank"].ids)
    common, alone = found.steps
    assert (common.parties, alone.parties) == (("bank", "shop1", "shop2"), ("bank",))
    assert common.messages > 0
    ledger = alone.ledgers["predict alone"]["bank"]
    assert (alone.messages, ledger.message_count, list(ledger.entries)) == (0, 0, [])
    assert ledger.is_closed
    single = sv.predict(model, sv.Parties.of(new["bank"], active="bank"))
    assert (single.ids, set(single.used)) == (tuple(new["bank"].ids), {("bank",)})
    assert all(
        ledger.message_count == 0 for step in single.steps for one in step.ledgers.values() for ledger in one.values()
    )


class _Tells(Active):
    """Tries to say something while it scores by itself."""

    def score_alone(self, rows: np.ndarray) -> torch.Tensor:
        link = self.site.links["shop1"]
        told = link.send(Kind.CONTROL, "train/epoch", meta={"epoch": 0, "best": False, "stop": True})
        self.said = asyncio.ensure_future(told)
        return super().score_alone(rows)


class Tells(Zeros):
    """The algorithm of it."""

    name: ClassVar[str] = "test_tells"

    def active(self, setting: Setting) -> ActiveRole:
        return _Tells(self, setting)


def test_an_algorithm_that_speaks_while_it_scores_alone_is_caught() -> None:
    """It has no link to anybody, neither in a prediction nor after training."""
    model, _ = _model(ANY)
    with pytest.raises(KeyError, match="shop1"):
        sv.predict(replace(model, job=_job(Tells(**SMALL))), sv.Parties.of(_tables(**NEW)["bank"], active="bank"))
    with pytest.raises(sv.PartyFailed, match="KeyError: 'shop1'"):
        _model(Tells(**SMALL))


def test_training_scores_the_test_rows_alone_as_a_prediction_does() -> None:
    for algorithm in (ANY, LOCAL, sv.ZeroImputation(**SMALL)):
        job, people = _job(algorithm), make_parties(rows=100)
        aligned = join_parties(people, job)
        ran = run_parties(job, people, aligned, run="test")
        trained = ran.trained["bank"]
        rows = aligned.parties["bank"].rows[ran.split.test]
        np.testing.assert_allclose(
            Alone(people["bank"], job, trained.model).scores(rows), trained.alone_scores, atol=1e-6
        )
        assert set(trained.alone) == set(trained.test)
        assert trained.valid_scores.shape == (len(ran.split.valid), 2)


def test_scores_of_validation_rows_are_those_of_the_kept_epoch() -> None:
    """Without another message: with patience, later epochs were scored after it."""
    people = make_parties(rows=200)
    found = {}
    for keep in ("best", "last"):
        job = _job(sv.SplitNN(hidden=4, lr=0.2), keep=keep).replace(epochs=6)
        ran = run_parties(job, people, join_parties(people, job), run="test")
        trained = ran.trained["bank"]
        chosen = trained.epochs[trained.best_epoch - 1].valid
        labels = people["bank"].label[join_parties(people, job).parties["bank"].rows[ran.split.valid]]  # type: ignore[index]
        assert chosen["accuracy"] == float((trained.valid_scores.argmax(axis=1) == labels).mean())
        found[keep] = trained.best_epoch, sum(ledger.message_count for ledger in ran.ledgers.values())
    assert found["last"][0] == 6 > found["best"][0]
    assert found["last"][1] == found["best"][1]


def test_few_validation_rows_choose_no_epoch() -> None:
    assert [Plan(epochs=1, batch_size=1, patience=None, keep="auto").chooses_best_epoch(rows) for rows in (49, 50)] == [
        False,
        True,
    ]
    assert [
        Plan(epochs=1, batch_size=1, patience=None, keep=keep).chooses_best_epoch(1) for keep in ("best", "last")
    ] == [
        True,
        False,
    ]


def test_a_run_that_keeps_the_last_epoch_goes_on_after_a_break(tmp_path: Path) -> None:
    job, people = _job(ALL, keep="last").replace(epochs=3), make_parties(rows=100)
    whole = sv.simulate(job, people)
    with pytest.raises(sv.PartyFailed, match="the lights went out"):
        sv.simulate(job, people, checkpoints=tmp_path, observer=_Dark())
    again = sv.simulate(job, people, checkpoints=tmp_path)
    np.testing.assert_array_equal(again.scores["plain"], whole.scores["plain"])
    assert again.run("plain").best_epoch == 3


class _Dark(sv.Observer):
    def epoch(self, epoch: int, loss: float, valid: dict[str, float]) -> None:
        if epoch == 2:
            raise OSError("the lights went out")


def test_what_is_not_fit_for_the_rows_of_one_party_refuses_with_the_cure() -> None:
    (whole, _), (alone, _), new = _model(ALL), _model(LOCAL), _tables(**NEW)
    single = sv.Parties.of(new["bank"], active="bank")
    two = sv.Parties.of(new["bank"], new["shop1"], active="bank")
    cure = r"train an algorithm that can also score others \(.*local.*zero_imputation"
    for people, everyone, match in (
        (new, True, f"without the columns of shop1, shop2: .*{cure}"),
        (single, False, "the model belongs to .* the tables to bank: SplitNN is not fit"),
        (two, False, "without the columns of shop2"),
    ):
        with pytest.raises(sv.InputError, match=match):
            sv.predict(whole, people, everyone=everyone)
    with pytest.raises(sv.InputError, match="give the tables of all parties, or only the active party's"):
        sv.predict(alone, two)
    with pytest.raises(sv.InputError, match="'shop1' is not the active party"):
        Alone(new["shop1"], alone.job, {**alone.parts["shop1"], "passive": ["shop1"]})


def test_a_party_that_forbids_pairwise_intersections_is_aligned_with_all_or_not_at_all() -> None:
    model, _ = _model(ANY)
    strict = replace(model, job=model.job.replace(policies={"shop2": sv.Policy(pairwise_intersections=False)}))
    new = _tables(**NEW)
    assert sv.predict(strict, new).steps[0].parties == ("bank", "shop1", "shop2")
    two = sv.Parties({name: new[name] for name in ("bank", "shop2")}, active="bank")
    for people, everyone in ((new, True), (two, False)):
        with pytest.raises(sv.PolicyError, match="'bank' would learn the pairwise intersection with 'shop2'") as caught:
            sv.predict(strict, people, everyone=everyone)
        kinds = {entry.kind for ledger in caught.value.ledgers for entry in ledger.entries}
        assert kinds == {Kind.CONTROL}  # nothing else was sent


def test_a_set_with_too_few_rows_leaves_them_to_smaller_ones() -> None:
    model, _ = _model(ANY)
    new = _tables(bank=range(40), shop1=range(33, 40), shop2=range(30))
    found = sv.predict(model, new, everyone=True)
    assert sorted(found.ids) == sorted(new["bank"].ids)
    assert [bool(step.why) for step in found.steps] == [True, True, False, False]
    assert "no row is common to all parties" in found.steps[0].why
    assert "common rows; the policy demands at least 10" in found.steps[1].why
    assert found.steps[0].messages > 0
    with pytest.raises(sv.NoCommonRows):
        sv.predict(model, new)


def test_the_command_line_scores_everyone(tmp_path: Path) -> None:
    people = make_parties(rows=80)
    sections = []
    for name, table in people.items():
        columns: dict[str, list[Any]] = {
            "id": list(table.ids),
            **{key: values.tolist() for key, values in table.columns.items()},
        }
        if table.label is not None:
            columns["label"] = table.label.tolist()
        rows = [",".join(columns), *(",".join(map(str, row)) for row in zip(*columns.values(), strict=True))]
        (tmp_path / f"{name}.csv").write_text("\n".join(rows) + "\n")
        label = 'label = "label"\n' if table.label is not None else ""
        sections.append(f'[[party]]\nname = "{name}"\nfile = "{name}.csv"\nid = "id"\n{label}')
    for algorithm in ("splitnn", "local"):
        text = f'[job]\nepochs = 1\n[protection]\nname = "plain"\n[algorithm]\nname = "{algorithm}"\n' + "\n".join(
            sections
        )
        (tmp_path / f"{algorithm}.toml").write_text(text)
        ran = CliRunner().invoke(app, ["run", str(tmp_path / f"{algorithm}.toml"), "--out", str(tmp_path / algorithm)])
        assert ran.exit_code == 0, ran.output
    out = tmp_path / "scores.csv"
    new = [f"--data={name}={tmp_path / name}.csv" for name in people]
    ask = ["predict", str(tmp_path / "local"), *new, "--out", str(out), "--everyone"]
    told = CliRunner().invoke(app, ask)
    assert told.exit_code == 0, told.output
    header, *lines = list(csv.reader(out.read_text().splitlines()))
    assert header == ["id", "0", "1", "parties"]
    assert sorted(line[0] for line in lines) == sorted(people["bank"].ids)
    assert {line[3] for line in lines} == {"bank", "bank shop1 shop2"}
    assert "rows by bank, no message" in told.output
    ask[1 : 2 + len(new)] = [str(tmp_path / "splitnn.toml"), str(tmp_path / "splitnn" / "model")]
    refused = CliRunner().invoke(app, ask)
    assert isinstance(refused.exception, sv.InputError)
    assert "SplitNN is not fit for rows without the columns of shop1, shop2" in str(refused.exception)
