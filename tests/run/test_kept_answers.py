"""Answers that the asker holds: given again without asking, and asked for anew where the question is another one."""

from __future__ import annotations

import stat
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from support.helpers import make_parties

import securevfl as sv
from securevfl.cli.scores import describe_answers, scores_as_csv
from securevfl.data import Parties, PartyTable
from securevfl.errors import InputError, RowsSpent
from securevfl.run.kept_answers import KeptAnswers
from securevfl.run.partial_scoring import Asking

NAMES = ["ann", "bob", "eve"]
OWN = np.arange(6, dtype=np.float32).reshape(3, 2)
ANSWERS = np.array([[0.1, 0.9], [0.25, 0.75], [1 / 3, 2 / 3]])


def _filled(folder: Path, model: str = "a" * 64, tables: tuple[str, ...] = ("t",)) -> KeptAnswers:
    kept = KeptAnswers(folder, model, tables)
    kept.put(kept.row_keys(NAMES, OWN), ANSWERS)
    return kept


# The store.


def test_an_answer_is_found_by_model_row_and_own_columns_alone(tmp_path: Path) -> None:
    _filled(tmp_path)
    again = KeptAnswers(tmp_path, "a" * 64, ("t",))
    assert len(again) == 3
    found = [again.get(key) for key in again.row_keys(NAMES, OWN)]
    assert [one.values.tolist() for one in found if one is not None] == ANSWERS.tolist()
    changed = OWN.copy()
    changed[1, 0] += 1e-6
    assert [again.get(key) is None for key in again.row_keys(NAMES, changed)] == [False, True, False]
    assert [again.get(key) is None for key in again.row_keys(["ann", "bob2", "eve"], OWN)] == [False, True, False]
    assert not len(KeptAnswers(tmp_path, "b" * 64, ("t",)))


def test_an_answer_knows_whether_the_partners_tables_are_the_same(tmp_path: Path) -> None:
    _filled(tmp_path)
    later = KeptAnswers(tmp_path, "a" * 64, ("another",))
    (key, *_) = later.row_keys(NAMES, OWN)
    answer = later.get(key)
    assert answer is not None
    assert answer.tables != later.tables
    assert later.get(key, current=True) is None
    later.put([key], ANSWERS[2:])
    assert later.get(key, current=True) is not None
    assert [one.values.tolist() for one in [later.get(key)] if one is not None] == ANSWERS[2:].tolist()


def test_the_file_is_private_and_names_nobody(tmp_path: Path) -> None:
    kept = _filled(tmp_path / "answers")
    unsynced = KeptAnswers(tmp_path / "answers", "c" * 64, synced=False)
    unsynced.put(unsynced.row_keys(NAMES, OWN), ANSWERS)
    for path in (kept.path, unsynced.path, kept.path.with_name("answers.key")):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert not any(name.encode() in path.read_bytes() for name in NAMES)
    assert stat.S_IMODE(kept.path.parent.stat().st_mode) == 0o700


def test_what_was_cut_off_is_dropped_and_what_is_damaged_refused(tmp_path: Path) -> None:
    path = _filled(tmp_path).path
    whole = path.read_bytes()
    path.write_bytes(whole + whole[:40])
    assert len(KeptAnswers(tmp_path, "a" * 64)) == 3
    assert path.read_bytes() == whole
    for broken in (whole.replace(b'"rows"', b'"rowz"'), whole.replace(b"[[", b"[", 1), b"\x80\n", b'{"a":1}\n'):
        path.write_bytes(broken)
        with pytest.raises(InputError, match=r"line 1 of .* is damaged .* for a number each"):
            KeptAnswers(tmp_path, "a" * 64)


def test_each_set_of_parties_has_a_file_of_its_own(tmp_path: Path) -> None:
    """Otherwise an answer from fewer columns would hide the one from all, which would cost another number."""
    people, asking = make_parties(2, rows=40), Asking(answers=tmp_path, model="a" * 64)
    sets = (("bank", "shop1", "shop2"), ("bank", "shop1"), ("bank", "shop2"))
    found = [asking.open_answers(names, people) for names in sets]
    assert len({one.path for one in found if one is not None}) == 3


# A simulation.


@cache
def _model() -> tuple[sv.Model, Parties]:
    people = make_parties(2, rows=60)
    job = sv.Job(algorithm=sv.SplitNN(hidden=4, top=(4,), bottom=(4,)), protection=sv.Plain(), epochs=1, batch_size=32)
    return sv.simulate(job, people).model(), people


def _fresh(**changed: PartyTable) -> Parties:
    people = dict(_model()[1])
    bank = changed.pop("bank", people["bank"])
    people |= changed | {"bank": replace(bank, label=None, classes=(), label_name="", fold=None)}
    return Parties(people, active="bank")


def _with_change(table: PartyTable, row: int) -> PartyTable:
    column = next(iter(table.columns))
    values = np.array(table.columns[column])
    values[row] += 0.5
    return replace(table, columns={**table.columns, column: values})


def test_a_second_prediction_asks_nothing_and_says_the_same(tmp_path: Path) -> None:
    model, _ = _model()
    first = sv.predict(model, _fresh(), answers=tmp_path)
    assert (first.kept, first.asked) == (0, len(first.ids))
    again = sv.predict(model, _fresh(), answers=tmp_path)
    assert (again.kept, again.asked) == (len(first.ids), 0)
    assert again.ids == first.ids
    assert np.array_equal(again.probabilities, first.probabilities)
    assert not again.ledgers
    assert again.steps[0].messages == sum(
        1 for ledger in first.steps[0].ledgers["alignment"].values() for line in ledger.entries if line.way == "sent"
    )
    anew = sv.predict(model, _fresh(), answers=tmp_path, ask_again=True)
    assert (anew.kept, anew.asked) == (0, len(first.ids))
    without = sv.predict(model, _fresh())
    np.testing.assert_allclose(without.probabilities, first.probabilities, atol=1e-6)


def test_own_columns_that_changed_are_a_new_question(tmp_path: Path) -> None:
    model, people = _model()
    first = sv.predict(model, _fresh(), answers=tmp_path)
    row = people["bank"].ids.index(first.ids[3])
    changed = sv.predict(model, _fresh(bank=_with_change(people["bank"], row)), answers=tmp_path)
    assert (changed.kept, changed.asked) == (len(first.ids) - 1, 1)
    assert changed.ids == first.ids
    differs = np.abs(changed.probabilities - first.probabilities).max(axis=1) > 1e-7
    assert np.flatnonzero(differs).tolist() == [3]


def test_another_model_and_other_tables_of_partners_are_new_questions(tmp_path: Path) -> None:
    model, people = _model()
    rows = len(sv.predict(model, _fresh(), answers=tmp_path).ids)
    other = sv.Model(job=model.job, parts={**model.parts, "bank": {**model.parts["bank"], "calibration": np.ones(2)}})
    parts = dict(model.parts)
    parts["bank"] = {**parts["bank"], "more": "of another run"}
    assert sv.predict(replace(other, parts=parts), _fresh(), answers=tmp_path).asked == rows
    assert sv.predict(model, _fresh(shop1=_with_change(people["shop1"], 0)), answers=tmp_path).asked == rows
    assert sv.predict(model, _fresh(), answers=tmp_path).asked == rows  # the newest answer is of other tables


def test_answers_of_one_set_of_parties_are_none_of_another(tmp_path: Path) -> None:
    people = make_parties(2, rows=60)
    job = sv.Job(algorithm=sv.ZeroImputation(hidden=4, top=(4,)), protection=sv.Plain(), epochs=1, batch_size=32)
    model = sv.simulate(job, people).model()
    bank = replace(people["bank"], label=None, classes=(), label_name="", fold=None)
    some = Parties({"bank": bank, "shop1": people["shop1"], "shop2": people["shop2"].take(range(20))}, active="bank")
    whole = sv.predict(model, some, everyone=True, answers=tmp_path)
    again = sv.predict(model, some, everyone=True, answers=tmp_path)
    assert again.ids == whole.ids
    assert (again.asked, again.kept) == (0, whole.asked)
    np.testing.assert_array_equal(again.probabilities, whole.probabilities)


# Bounds that the policy writes hold in a simulation, too.


def _bounded() -> tuple[sv.Model, int]:
    model, _ = _model()
    policies = {"shop1": sv.Policy(max_results=4)}  # one opening of z at this cut
    return replace(model, job=model.job.replace(policies=policies)), 4


def test_spent_rows_are_refused_before_anything_is_asked_and_left_out_if_so_wished(tmp_path: Path) -> None:
    (model, price), books = _bounded(), tmp_path / "books"
    people = _model()[1]
    some = people["bank"].take(range(20))
    first = sv.predict(model, _fresh(bank=some), results=books, answers=tmp_path / "some")
    assert (first.numbers, first.kept, first.skipped) == (price, 0, ())
    before = (books / "shop1.results.jsonl").read_bytes()
    with pytest.raises(RowsSpent, match="--skip-spent") as caught:
        sv.predict(model, _fresh(), results=books)
    assert caught.value.parties == {"shop1": len(first.ids)}
    assert (books / "shop1.results.jsonl").read_bytes() == before, "a number was spent on a prediction that nobody got"
    rest = sv.predict(model, _fresh(), results=books, skip_spent=True)
    assert set(rest.skipped) == set(first.ids)
    assert rest.refused == {"shop1": len(first.ids)}
    assert not set(rest.ids) & set(first.ids)
    whole = sv.predict(model, _fresh(), answers=tmp_path / "some", results=books, skip_spent=True)
    assert sorted(whole.ids) == sorted(first.ids)  # from the store; the others are spent by now
    assert whole.kept == len(first.ids)
    assert set(whole.skipped) == set(rest.ids)


def test_skipped_rows_are_scored_by_no_other_set_of_parties(tmp_path: Path) -> None:
    """The difference of two sums over other parties would be one party's part of a row."""
    people = make_parties(2, rows=60)
    job = sv.Job(algorithm=sv.ZeroImputation(hidden=4, top=(4,)), protection=sv.Plain(), epochs=1, batch_size=32)
    model = sv.simulate(job, people).model()
    model = replace(model, job=job.replace(policies={"shop1": sv.Policy(max_results=4)}))
    bank = replace(people["bank"], label=None, classes=(), label_name="", fold=None)
    tables = Parties({**people, "bank": bank}, active="bank")
    first = sv.predict(model, tables, everyone=True, results=tmp_path)
    again = sv.predict(model, tables, everyone=True, results=tmp_path, skip_spent=True)
    common = [name for name, used in zip(first.ids, first.used, strict=True) if len(used) == 3]
    assert set(again.skipped) == set(common)
    assert not set(again.ids) & set(common)
    assert sorted((*again.ids, *again.skipped)) == sorted(first.ids)


def test_skipped_rows_stand_in_the_file_without_a_score() -> None:
    lines = scores_as_csv(("no", "yes"), ("a",), [[0.25, 0.75]], [("bank",)], ["b", "c"]).decode().splitlines()
    assert lines == ["id,no,yes,parties", "a,0.250000,0.750000,bank", "b,,,", "c,,,"]
    assert describe_answers(0, 0, 1200, 1) == (
        "0 rows were answered from the store, 1,200 were asked about: 1 number of each row"
    )
    assert describe_answers(3, 2, 0, None).endswith(
        "--ask-again asks about these as well, for numbers that nobody counts"
    )
    assert "2 answers of the store are from before a partner's table changed" in describe_answers(3, 2, 0, 4)
