"""The budget of looks: values of z that one row gives away, counted over jobs and predictions, and refused in time."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from support.helpers import low_overlap_parties, make_parties

import securevfl as sv
from securevfl.algorithms import LaserVFL, PartyDropout
from securevfl.errors import InputError, PolicyError
from securevfl.experiments.recorder import Recorder
from securevfl.party_context import Observer
from securevfl.privacy import DisclosureBook, NoteLine, OpenedValues, allowed_values
from securevfl.training import Algorithm, Plan, Split

SMALL = {"hidden": 2, "top": (4,), "lr": 0.02, "bottom": {"width": 6}}
PEOPLE = make_parties(rows=80)  # 3 columns each
NAMES = ("ann", "bob", "eve")


def job(kind: type[Algorithm] = sv.SplitNN, *, max_looks: float | None = None, **terms: object) -> sv.Job:
    policies = {} if max_looks is None else {"shop1": sv.Policy(max_looks=max_looks)}
    algorithm = kind.from_values({k: v for k, v in SMALL.items() if k in kind.__struct_fields__})
    return sv.Job(
        algorithm=algorithm, policies=policies, **({"protection": sv.Plain(), "epochs": 3, "batch_size": 16} | terms)
    )


def noted(result: sv.Result, party: str = "shop1") -> dict[str, object]:
    """What a party's ledger says of looks."""
    (one,) = [
        line for line in result.ledgers["plain"][party].lines if isinstance(line, NoteLine) and line.note == "looks"
    ]
    return dict(one.values)


# The count.


def test_values_are_looks_times_width_of_the_row_that_was_looked_at_most() -> None:
    looks = OpenedValues("shop", 10, NAMES)
    looks.count_opening(np.array([0, 1]), 4)
    looks.count_opening(np.array([1, 1, 2]), 1)
    assert looks.values_per_row.tolist() == [4, 6, 1]
    assert (looks.max_values, looks.openings_per_row.tolist()) == (6, [1, 3, 1])
    assert looks.ledger_facts() == {"looks": 3, "values": 6, "values with earlier runs": 6, "columns": 10, "rows": 3}


def test_looks_that_wait_are_counted_as_those_that_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("securevfl.privacy.opened_values._AT_ONCE", 7)
    generator = np.random.default_rng(1)
    looks, given, times = OpenedValues("shop", 10, [str(i) for i in range(9)]), np.zeros(9, int), np.zeros(9, int)
    for step in range(60):
        places, width = generator.integers(0, 9, generator.integers(0, 5)), int(generator.integers(1, 3))
        looks.count_opening(places, width)
        for place in places:
            given[place] += width
            times[place] += 1
        places[:] = 0  # the caller's own
        if step % 7 == 0:
            assert looks.values_per_row.tolist() == given.tolist()
            assert looks.max_values == given.max()
    assert looks.openings_per_row.tolist() == times.tolist()
    assert looks.values_per_row.tolist() == given.tolist()


@pytest.mark.parametrize(("most", "columns", "allowed"), [(0.5, 18, 9), (0.3, 10, 3), (1.0, 7, 7), (0.05, 18, 0)])
def test_the_unit_is_values_a_column(most: float, columns: int, allowed: int) -> None:
    assert allowed_values(most, columns) == allowed


def test_a_batch_that_would_pass_the_budget_is_refused_whole_and_counts_nothing() -> None:
    looks = OpenedValues("shop", 10, NAMES, most=0.5)
    looks.count_opening(np.array([0]), 4)
    with pytest.raises(PolicyError, match=r"4 values of z of one row of 'shop' beside the 4 .* 0\.5 allows 5: fewer"):
        looks.count_opening(np.array([2, 0]), 4)
    assert looks.values_per_row.tolist() == [4, 0, 0]
    assert looks.fits_budget(np.array([0, 1]), 2).tolist() == [False, True]
    looks.count_opening(np.array([0]), 1)


def test_a_plan_is_held_against_the_budget() -> None:
    looks = OpenedValues("shop", 10, NAMES, most=0.5)
    looks.check_plan(5)
    with pytest.raises(PolicyError, match="the job plans 6 values"):
        looks.check_plan(6)


# The book.


def test_a_book_remembers_rows_by_name_over_runs_and_processes(tmp_path: Path) -> None:
    path = tmp_path / "shop.looks.jsonl"
    first = OpenedValues("shop", 10, NAMES, most=1.0, book=DisclosureBook(path))
    first.count_opening(np.array([0, 2]), 3)
    again = OpenedValues("shop", 10, ("eve", "dan"), most=1.0, book=DisclosureBook(path))
    assert again.before.tolist() == [3, 0]
    again.count_opening(np.array([0, 1]), 5)
    assert DisclosureBook(path).count_opened(("ann", "bob", "eve", "dan")).tolist() == [3, 0, 8, 5]
    with pytest.raises(PolicyError, match="beside the 8 already opened"):
        first.count_opening(np.array([2]), 3)  # it sees what the other process counted since
    assert not any(name in path.read_text() for name in (*NAMES, "dan"))


def test_what_was_cut_off_as_it_was_written_did_not_leave(tmp_path: Path) -> None:
    path = tmp_path / "looks.jsonl"
    looks = OpenedValues("shop", 10, NAMES, book=DisclosureBook(path))
    looks.count_opening(np.array([0]), 3)
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"line":"looked","run":"')
    assert DisclosureBook(path).count_opened(NAMES).tolist() == [3, 0, 0]
    assert path.read_bytes() == whole


@pytest.mark.parametrize("spoil", [lambda b: b.replace(b"looked", b"lookef"), lambda b: b.split(b"\n", 1)[1]])
def test_a_damaged_book_is_refused(tmp_path: Path, spoil: object) -> None:
    path = tmp_path / "looks.jsonl"
    OpenedValues("shop", 10, NAMES, book=DisclosureBook(path)).count_opening(np.array([0]), 3)
    path.write_bytes(spoil(path.read_bytes()))  # type: ignore[operator]
    with pytest.raises(InputError, match=r"is damaged .* restore the file"):
        DisclosureBook(path)


def test_a_book_without_its_key_names_nobody(tmp_path: Path) -> None:
    path = tmp_path / "looks.jsonl"
    OpenedValues("shop", 10, NAMES, book=DisclosureBook(path)).count_opening(np.array([0]), 3)
    path.with_suffix(".key").unlink()
    with pytest.raises(InputError, match="cannot be matched to rows"):
        DisclosureBook(path).count_opened(NAMES)


# Jobs.


EXACT = (sv.SplitNN, sv.LogisticRegression, sv.RandomMatch, sv.EntityAugmentation, sv.Distilled)
MASKED = (LaserVFL, PartyDropout, sv.RISA)
"""Of some rows these feed a constant: the peer sees z of more rows than the party gave anything away of."""


@pytest.mark.parametrize("kind", [*EXACT, *MASKED], ids=lambda kind: kind.name)
def test_what_a_party_counts_is_what_its_peer_saw(kind: type[Algorithm]) -> None:
    """Every value that the active party's recorder has of a row: over training, validation and test."""
    more = {"self_training": 1} if kind is sv.RISA else {"teacher_steps": 4, "folds": 2} if kind is sv.Distilled else {}
    mine = job(kind).replace(algorithm=job(kind).algorithm.replace(**more))
    recorder = Recorder()
    people = low_overlap_parties(passive=2, rows=80, labels="all") if kind.uses_book else PEOPLE
    result = sv.simulate(mine, people, observers=dict.fromkeys(people, recorder))
    table = recorder._notes["shop1", "bank"].rows
    assert table is not None
    seen: dict[int, int] = {}
    for look in recorder.transcript().view("bank").observations["part of z", "shop1"].all:
        for row, values in zip(look.rows.tolist(), look.values, strict=True):
            if row < table.total_count and table.own_places(np.array([row]))[0] >= 0:
                seen[row] = seen.get(row, 0) + len(values)
    counted, most = noted(result)["values"], max(seen.values())
    assert counted == most if kind in EXACT else 0 < counted <= most
    if kind in EXACT[:2]:
        assert most == 3 * (2 if kind is sv.SplitNN else 1)


def test_a_plan_beyond_the_budget_is_refused_before_anything_is_sent() -> None:
    said: list[str] = []

    class Listens(Observer):
        listening = True

        def message_passed(self, party, peer, way, message) -> None:  # type: ignore[no-untyped-def]
            said.append(message.what)

    with pytest.raises(PolicyError, match=r"plans 6 values .* 3 columns max_looks = 1 allows 3: fewer epochs"):
        sv.simulate(job(max_looks=1.0), PEOPLE, observers=dict.fromkeys(PEOPLE, Listens()))
    assert not said
    sv.simulate(job(max_looks=2.0), PEOPLE)


def test_an_active_party_that_asks_for_more_than_was_planned_gets_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its side of the plan is not believed: the count is the passive party's own. Here it does not know the plan."""
    monkeypatch.setattr(OpenedValues, "check_plan", lambda self, values: None)
    monkeypatch.setattr(sv.SplitNN, "values_opened", lambda self, plan: 0)
    counts: list[int] = []
    add = OpenedValues.count_opening

    def counted(self: OpenedValues, places: np.ndarray, width: int) -> None:
        add(self, places, width)
        counts.append(self.max_values if self.most else 0)

    monkeypatch.setattr(OpenedValues, "count_opening", counted)
    with pytest.raises(PolicyError, match="this batch would open 2 values"):
        sv.simulate(job(max_looks=1.0), PEOPLE)
    assert max(counts) == 2  # of 3 that are allowed; the second look at a row would make 4


def test_algorithms_that_do_not_count_are_refused_where_there_is_a_budget() -> None:
    policies = {"shop1": sv.Policy(max_looks=1.0)}
    with pytest.raises(PolicyError, match="does not count the values it opens"):
        sv.simulate(
            sv.Job(protection=sv.Plain(), algorithm=sv.FedCVT(), policies=policies, epochs=3),
            make_parties(passive=1, rows=80),
        )


def test_jobs_and_predictions_add_up_in_a_folder(tmp_path: Path) -> None:
    folder, mine = tmp_path / "looks", job(max_looks=2.5)  # 7 values: one job of 6, or one and no more
    result = sv.simulate(mine, PEOPLE, looks=folder)
    assert noted(result)["values with earlier runs"] == 6
    with pytest.raises(PolicyError, match="beside the 6 already opened"):
        sv.simulate(mine, PEOPLE, looks=folder)
    with pytest.raises(PolicyError, match="beside the 6"):
        sv.predict(result.model(), PEOPLE, looks=folder)
    assert DisclosureBook(folder / "shop1.looks.jsonl").count_opened(PEOPLE["shop1"].ids).max() == 6
    assert DisclosureBook(folder / "bank.looks.jsonl").count_opened(PEOPLE["bank"].ids).max() == 0


def test_a_resumed_run_counts_what_it_had_given_away(tmp_path: Path) -> None:
    mine = job(max_looks=3.0, epochs=3)

    class Stops(Observer):
        def epoch(self, epoch: int, loss: float, valid: dict[str, float]) -> None:
            if epoch == 2 and math.isfinite(loss):
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        sv.simulate(mine, PEOPLE, checkpoints=tmp_path, observer=Stops())
    (file,) = tmp_path.rglob("shop1.looks.jsonl")
    assert DisclosureBook(file).count_opened(PEOPLE["shop1"].ids).max() == 4
    sv.simulate(mine, PEOPLE, checkpoints=tmp_path)
    assert DisclosureBook(file).count_opened(PEOPLE["shop1"].ids).max() >= 6


# Validation: seldom, and on few rows.


def test_validation_is_as_seldom_as_the_job_says() -> None:
    result = sv.simulate(job(epochs=5, valid_every=2), PEOPLE)
    told = [bool(epoch.valid) for epoch in result.record.runs[-1].epochs]
    assert told == [False, True, False, True, True]
    assert result.record.runs[-1].best_epoch in (2, 4, 5)


def test_validation_is_on_as_few_rows_as_the_job_says() -> None:
    whole = Split(np.arange(10), np.arange(10, 40), np.arange(40, 50))
    few = whole.with_valid(7, seed=1)
    assert len(few.valid) == 7
    assert set(few.valid) < set(whole.valid)
    assert few.train is whole.train
    assert whole.with_valid(30, seed=1) is whole
    recorder = Recorder()
    sv.simulate(job(valid_rows=3, epochs=2), PEOPLE, observers=dict.fromkeys(PEOPLE, recorder))
    view = recorder.transcript().view("bank")
    assert len(view.valid) == 3


def test_patience_waits_for_a_validation() -> None:
    with pytest.raises(InputError, match="patience is 2 and valid_every 3"):
        job(valid_every=3, patience=2)
    plan = Plan(epochs=7, batch_size=8, patience=None, valid_every=3)
    assert [epoch for epoch in range(1, 8) if plan.validates_after(epoch)] == [3, 6, 7]


def test_the_stricter_policy_wins() -> None:
    loose, strict = sv.Policy(max_looks=2.0), sv.Policy(max_looks=0.5)
    assert loose.combine_strictest(strict).max_looks == strict.combine_strictest(sv.Policy()).max_looks == 0.5
    assert "values of z of a row <= 0.5 a column" in strict.text()
    with pytest.raises(InputError, match=r"max_looks is 0"):
        sv.Policy(max_looks=0)
