"""The bound of numbers of a row: counted for each asker over jobs and predictions, and refused in time."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from support.helpers import low_overlap_parties, make_parties

import securevfl as sv
from securevfl.algorithms import LaserVFL, PartyDropout
from securevfl.errors import InputError, PartyFailed, PolicyError
from securevfl.experiments.recorder import Recorder
from securevfl.party import planned_numbers, rule_against
from securevfl.party_context import Observer
from securevfl.privacy import DEFAULT_RESULTS, NoteLine, OpenedValues, ResultBook
from securevfl.training import Algorithm, Plan, Split

SMALL = {"hidden": 2, "top": (4,), "lr": 0.02, "bottom": {"width": 6}}
PEOPLE = make_parties(rows=80)  # 3 columns each
MANY = make_parties(rows=200)
NAMES = ("ann", "bob", "eve")


def job(kind: type[Algorithm] = sv.SplitNN, *, most: object = None, **terms: object) -> sv.Job:
    policies = {} if most is None else {"shop1": sv.Policy(max_results=most)}
    algorithm = kind.from_values({k: v for k, v in SMALL.items() if k in kind.__struct_fields__})
    return sv.Job(
        algorithm=algorithm, policies=policies, **({"protection": sv.Plain(), "epochs": 3, "batch_size": 16} | terms)
    )


def noted(result: sv.Result, party: str = "shop1", run: str = "plain") -> dict[str, object]:
    """What a party's ledger says of numbers."""
    lines = result.ledgers[run][party].lines
    (one,) = [line for line in lines if isinstance(line, NoteLine) and line.note == "results"]
    return dict(one.values)


# The count.


def test_numbers_are_openings_times_width_of_the_row_that_was_opened_most() -> None:
    opened = OpenedValues("shop", 10, NAMES, asker="bank")
    opened.count_opening(np.array([0, 1]), 4)
    opened.count_opening(np.array([1, 1, 2]), 1)
    assert opened.numbers_per_row.tolist() == [4, 6, 1]
    assert (opened.max_numbers, opened.openings_per_row.tolist()) == (6, [1, 3, 1])
    assert opened.ledger_facts() == {
        "asker": "bank",
        "openings": 3,
        "numbers": 6,
        "numbers with earlier runs": 6,
        "columns": 10,
        "rows": 3,
    }


def test_openings_that_wait_are_counted_as_those_that_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("securevfl.privacy.opened_values._AT_ONCE", 7)
    generator = np.random.default_rng(1)
    opened, given, times = OpenedValues("shop", 10, [str(i) for i in range(9)]), np.zeros(9, int), np.zeros(9, int)
    for step in range(60):
        places, width = generator.integers(0, 9, generator.integers(0, 5)), int(generator.integers(1, 3))
        opened.count_opening(places, width)
        for place in places:
            given[place] += width
            times[place] += 1
        places[:] = 0  # the caller's own
        if step % 7 == 0:
            assert opened.numbers_per_row.tolist() == given.tolist()
            assert opened.max_numbers == given.max()
    assert opened.openings_per_row.tolist() == times.tolist()
    assert opened.numbers_per_row.tolist() == given.tolist()


def test_a_batch_that_would_pass_the_bound_is_refused_whole_and_counts_nothing() -> None:
    opened = OpenedValues("shop", 10, NAMES, asker="bank", allowed=5)
    opened.count_opening(np.array([0]), 4)
    words = r"4 numbers of one row of 'shop' beside the 4 .* for 'bank'; max_results = 5 allows 5, ever: leave .* = 8"
    with pytest.raises(PolicyError, match=words):
        opened.count_opening(np.array([2, 0]), 4)
    assert opened.numbers_per_row.tolist() == [4, 0, 0]
    assert opened.fits_budget(np.array([0, 1]), 2).tolist() == [False, True]
    opened.count_opening(np.array([0]), 1)


def test_a_plan_is_held_against_the_bound() -> None:
    opened = OpenedValues("shop", 10, NAMES, allowed=5)
    opened.check_plan(5)
    with pytest.raises(PolicyError, match="the job plans 6 numbers"):
        opened.check_plan(6)


def test_the_default_bound_only_counts_where_it_does_not_refuse() -> None:
    opened = OpenedValues("shop", 10, NAMES, asker="bank", allowed=2, written=False, refuses=False)
    opened.check_plan(100)
    opened.count_opening(np.array([0, 1]), 2)
    assert opened.excess_note() == ""
    opened.count_opening(np.array([0, 1]), 1)
    assert "2 rows of 'shop' were answered with more than 2 numbers each, up to 3" in opened.excess_note()
    assert opened.fits_budget(np.array([0]), 9).all()
    assert "allowed" not in opened.ledger_facts()


def test_rows_of_one_person_count_together() -> None:
    opened = OpenedValues("shop", 10, ("ann", "bob", "ann", "ann"), asker="bank", allowed=3)
    opened.count_opening(np.array([0, 1, 2]), 1)
    assert opened.numbers_per_row.tolist() == [2, 1, 2, 2]
    assert opened.fits_budget(np.array([3, 1, 0]), 1).tolist() == [True, True, False]
    with pytest.raises(PolicyError, match="2 numbers of one row of 'shop' beside the 2 already"):
        opened.count_opening(np.array([0, 3]), 1)


def test_what_is_counted_ahead_is_opened_once_without_being_counted_again(tmp_path: Path) -> None:
    """Of a person with two rows each counts; what exceeds the group, in rows or in width, counts as ever."""
    book = ResultBook(tmp_path / "results.jsonl", party="shop")
    opened = OpenedValues("shop", 10, ("ann", "bob", "ann", "eve"), asker="bank", allowed=4, book=book)
    with opened.count_ahead(np.array([0, 1, 2]), 1, synced=False):
        opened.sync()
        assert ResultBook(book.path, party="shop").count_opened(NAMES, "bank").tolist() == [2, 1, 0]
        lines = book.path.read_bytes().count(b"\n")  # type: ignore[union-attr]
        opened.count_opening(np.array([2, 1]), 1)
        opened.count_opening(np.array([0]), 1)
        assert book.path.read_bytes().count(b"\n") == lines  # type: ignore[union-attr]
        assert book.count_opened(NAMES, "bank").tolist() == [2, 1, 0]
        opened.count_opening(np.array([1]), 1)  # a second time
        opened.count_opening(np.array([1]), 2)  # wider
        opened.count_opening(np.array([3]), 1)  # another row
        assert book.count_opened(NAMES, "bank").tolist() == [2, 4, 1]
    opened.count_opening(np.array([3]), 1)
    assert book.count_opened(NAMES, "bank").tolist() == [2, 4, 2]
    assert opened.numbers_per_row.tolist() == [2, 4, 2, 2]
    with pytest.raises(PolicyError, match="max_results"), opened.count_ahead(np.array([0, 1]), 1):
        raise AssertionError("it was counted")
    assert book.count_opened(NAMES, "bank").tolist() == [2, 4, 2], "a refused group counted something"


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
    counted, most = noted(result)["numbers"], max(seen.values())
    assert counted == most if kind in EXACT else 0 < counted <= most
    if kind in EXACT[:2]:
        assert most == 3 * (2 if kind is sv.SplitNN else 1)


def test_a_plan_beyond_the_bound_is_refused_before_anything_is_sent() -> None:
    said: list[str] = []

    class Listens(Observer):
        listening = True

        def message_passed(self, party, peer, way, message) -> None:  # type: ignore[no-untyped-def]
            said.append(message.what)

    with pytest.raises(PolicyError, match=r"plans 6 numbers .* max_results = 3 allows 3, ever: .*fewer epochs"):
        sv.simulate(job(most=3), PEOPLE, observers=dict.fromkeys(PEOPLE, Listens()))
    assert not said
    sv.simulate(job(most=6), PEOPLE)


def test_an_active_party_that_asks_for_more_than_was_planned_gets_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its side of the plan is not believed: the count is the passive party's own. Here it does not know the plan."""
    monkeypatch.setattr(OpenedValues, "check_plan", lambda self, numbers, places=None: None)
    monkeypatch.setattr(sv.SplitNN, "values_opened", lambda self, plan: 0)
    counts: list[int] = []
    add = OpenedValues.count_opening

    def counted(self: OpenedValues, places: np.ndarray, width: int) -> None:
        add(self, places, width)
        counts.append(self.max_numbers if self.refuses else 0)

    monkeypatch.setattr(OpenedValues, "count_opening", counted)
    with pytest.raises(PolicyError, match="this batch would open 2 numbers"):
        sv.simulate(job(most=3), PEOPLE)
    assert max(counts) == 2  # of 3 that are allowed; the second opening of a row would make 4


def test_algorithms_that_do_not_count_are_refused_where_a_bound_is_written_and_noted_elsewhere() -> None:
    people, mine = make_parties(passive=1, rows=80), sv.Job(protection=sv.Plain(), algorithm=sv.FedCVT(), epochs=3)
    with pytest.raises(PolicyError, match="does not count the numbers"):
        sv.simulate(mine.replace(policies={"shop1": sv.Policy(max_results=1)}), people)
    notes = sv.simulate(mine, people).record.runs[-1].notes
    assert any("does not count the numbers of a row" in note for note in notes)


def test_in_a_simulation_the_default_bound_is_noted_and_a_written_one_refuses() -> None:
    notes = sv.simulate(job(), PEOPLE).record.runs[-1].notes
    (note,) = [note for note in notes if "rows of 'shop1' were answered with more than 2 numbers" in note]
    assert 'max_results = 6 or "unlimited"' in note
    free = sv.simulate(job(most="unlimited"), PEOPLE).record.runs[-1].notes
    assert not [note for note in free if "'shop1' were answered with more" in note]
    with pytest.raises(PolicyError, match="max_results"):
        sv.simulate(job(most=2), PEOPLE)


def test_between_organisations_the_default_refuses_and_names_the_line_to_write() -> None:
    def rule(mine: sv.Job, **more: object) -> str:
        return rule_against(mine, "shop1", active="bank", passive=["shop1", "shop2"], **more)  # type: ignore[arg-type]

    refused = rule(job())
    assert "plans 6 numbers of one row of 'shop1' for 'bank'; the default, max_results = 2, allows 2" in refused
    assert "this line in the policy of 'shop1', whose features so many numbers can reveal: max_results = 6" in refused
    assert len(refused) < 500
    assert rule(job(), simulated=True) == rule(job(most="unlimited")) == rule(job(most=6)) == ""
    assert "for 'Big Bank'" in rule(job(), asker="Big Bank")
    shares = job(protection=sv.Shares())
    assert rule(shares) == rule(shares, classes=2) == rule(shares, classes=1) == ""
    assert rule(shares, classes=3) == ""  # the class alone
    assert "plans 3 numbers" in rule(job(protection=sv.Shares(answers="probabilities")), classes=3)
    assert "does not count" in rule(sv.Job(protection=sv.Plain(), algorithm=sv.FedCVT()))


def test_a_plan_counts_what_the_job_opens() -> None:
    assert planned_numbers(job(epochs=7), "shop1") == 14
    assert planned_numbers(job(sv.LogisticRegression, epochs=7), "shop1") == 7
    shares = job(protection=sv.Shares())
    assert [planned_numbers(shares, "shop1", classes) for classes in (0, 1, 2, 3, 24)] == [1, 1, 1, 1, 1]
    every = job(protection=sv.Shares(answers="probabilities"))
    assert [planned_numbers(every, "shop1", classes) for classes in (0, 1, 2, 3, 24)] == [1, 1, 1, 3, 24]
    assert planned_numbers(shares.replace(protection=sv.Shares(model="parts")), "shop1", 2, columns=18) == 18
    assert planned_numbers(sv.Job(protection=sv.Plain(), algorithm=sv.FedCVT()), "shop1") is None


def test_jobs_and_predictions_add_up_in_a_folder(tmp_path: Path) -> None:
    folder, mine = tmp_path / "results", job(most=7)  # one job of 6, or one and no more
    result = sv.simulate(mine, PEOPLE, results=folder)
    assert noted(result)["numbers with earlier runs"] == 6
    with pytest.raises(PolicyError, match="beside the 6 already answered"):
        sv.simulate(mine, PEOPLE, results=folder)
    with pytest.raises(PolicyError, match=r"of .* rows, .* have had as many numbers as 'shop1'"):
        sv.predict(result.model(), PEOPLE, results=folder)
    assert ResultBook(folder / "shop1.results.jsonl").count_opened(PEOPLE["shop1"].ids, "bank").max() == 6
    assert not (folder / "bank.results.jsonl").exists()


class Listening(Observer):
    """Keeps the steps that a party sent."""

    listening = True

    def __init__(self) -> None:
        self.sent: list[str] = []

    def message_passed(self, party, peer, way, message) -> None:  # type: ignore[no-untyped-def]
        if party == "shop1" and way == "sent":
            self.sent.append(message.what)


@pytest.mark.parametrize("protection", [sv.Plain(), sv.Shares()], ids=lambda one: one.name)
def test_what_cannot_be_counted_is_not_dealt(
    protection: sv.cut.Protection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The count comes first: with a full disk, nothing of a row leaves."""
    model = sv.simulate(job(sv.LogisticRegression, protection=protection, epochs=1), MANY).model()

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    heard = Listening()
    monkeypatch.setattr("securevfl.privacy.result_book.append_synced", full)
    with pytest.raises(PartyFailed, match="No space"):
        sv.predict(model, MANY, results=tmp_path, observers=dict.fromkeys(MANY, heard))
    assert not {"cut/forward", "shares/input"} & set(heard.sent)
    monkeypatch.undo()
    sv.predict(model, MANY, results=tmp_path, observers=dict.fromkeys(MANY, heard))
    assert {"cut/forward", "shares/input"} & set(heard.sent)
    assert ResultBook(tmp_path / "shop1.results.jsonl").count_opened(MANY["shop1"].ids, "bank").max() == 1


def test_an_answer_of_several_classes_counts_each(tmp_path: Path) -> None:
    people = make_parties(rows=200, classes=3)
    shares = sv.Shares(answers="probabilities")
    result = sv.simulate(job(sv.LogisticRegression, protection=shares, epochs=1), people)
    assert noted(result, run="shares")["numbers"] == 3
    assert any("answered with more than 2 numbers each, up to 3" in note for note in result.record.runs[-1].notes)


def test_a_resumed_run_counts_what_it_had_given_away(tmp_path: Path) -> None:
    mine = job(most=9, epochs=3)

    class Stops(Observer):
        def epoch(self, epoch: int, loss: float, valid: dict[str, float]) -> None:
            if epoch == 2 and math.isfinite(loss):
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        sv.simulate(mine, PEOPLE, checkpoints=tmp_path, observer=Stops())
    (file,) = tmp_path.rglob("shop1.results.jsonl")
    assert ResultBook(file).count_opened(PEOPLE["shop1"].ids, "bank").max() == 4
    sv.simulate(mine, PEOPLE, checkpoints=tmp_path)
    assert ResultBook(file).count_opened(PEOPLE["shop1"].ids, "bank").max() >= 6


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


# Policies.


def test_the_stricter_policy_wins() -> None:
    loose, strict, none = sv.Policy(max_results="unlimited"), sv.Policy(max_results=5), sv.Policy()
    assert loose.combine_strictest(strict).max_results == strict.combine_strictest(none).max_results == 5
    assert strict.combine_strictest(sv.Policy(max_results=3)).max_results == 3
    assert none.combine_strictest(loose).allowed_results is None
    assert none.combine_strictest(none).allowed_results == DEFAULT_RESULTS == 2
    assert (none.writes_bound, loose.writes_bound, strict.writes_bound) == (False, True, True)
    assert "numbers of a row <= 5" in strict.text()
    assert "default" not in strict.text()
    assert "numbers of a row <= 2 (default)" in sv.Policy().text()
    assert "numbers of a row without limit" in loose.text()
    for wrong in (0, "no limit", 2.5):
        with pytest.raises(InputError, match=r"max_results is"):
            sv.Policy(max_results=wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize(("most", "columns", "allowed"), [(0.5, 18, 9), (0.3, 10, 3), (1.0, 7, 7), (0.05, 18, 0)])
def test_max_looks_is_read_once_more_as_numbers_of_a_row_with_a_warning(
    most: float, columns: int, allowed: int, tmp_path: Path
) -> None:
    with pytest.warns(FutureWarning, match="write max_results") as caught:
        policy = sv.Policy.from_values({"max_looks": most})
    assert len(caught) == 1
    assert policy.allowed_numbers(columns) == allowed
    assert policy.combine_strictest(sv.Policy(max_results=5)).allowed_numbers(columns) == min(5, allowed)
    assert policy.combine_strictest(sv.Policy(max_results="unlimited")).allowed_numbers(columns) == allowed
    assert policy.allowed_numbers(0) is None
    assert policy.writes_bound


def test_a_job_under_max_looks_is_refused_as_before() -> None:
    with pytest.warns(FutureWarning):
        policies = {"shop1": sv.Policy(max_looks=1.0)}
    with pytest.raises(PolicyError, match=r"plans 6 numbers .* allows 3"):
        sv.simulate(job().replace(policies=policies), PEOPLE)


def test_a_plan_is_held_against_the_bound_of_the_rows_that_it_opens(tmp_path: Path) -> None:
    """A row that is spent does not end a job that opens nothing of it."""
    book = ResultBook(tmp_path / "shop.results.jsonl", party="shop")
    OpenedValues("shop", 10, NAMES, asker="bank", allowed=2, book=book).count_opening(np.array([0]), 2)
    again = OpenedValues("shop", 10, NAMES, asker="bank", allowed=2, book=book)
    again.check_plan(1, np.array([1, 2]))
    for places in (None, np.array([2, 0])):
        with pytest.raises(PolicyError, match="the job plans 1 numbers"):
            again.check_plan(1, places)
