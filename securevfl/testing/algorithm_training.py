"""Checks of training: an algorithm learns, is reproducible, resumes from a checkpoint, and predicts."""

from __future__ import annotations

import tempfile
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np

from securevfl.data import Parties
from securevfl.data.table import TEST
from securevfl.errors import SecureVFLError
from securevfl.party import Alone
from securevfl.party_context import Keeper
from securevfl.run.model import Model, predict
from securevfl.run.partial_scoring import party_sets
from securevfl.run.simulation import COORDINATOR, RunOutcome, join_parties
from securevfl.run.store import read_tree, write_tree
from securevfl.testing.failure import CheckFailed
from securevfl.testing.trial import Trial, check_equal_runs, results_of

__all__ = [
    "check_alone",
    "check_batches",
    "check_determinism",
    "check_held_out_rows",
    "check_learning",
    "check_learning_from_others",
    "check_numbers_of_parties",
    "check_prediction",
    "check_resuming",
    "check_subsets",
]

_LEAST_AUC = 0.65


def check_batches(trial: Trial) -> None:
    """Check that all parties take the same numbered rows in every step.

    A row that a party lacks may be replaced by another one that it lacks, so that it does not learn which.
    """
    if not trial.exchanges_messages:
        return
    with suppress(SecureVFLError):  # parties with other rows soon disagree on shapes, too
        _ = trial.plain_run
    taken, lacking = trial.batches
    for (owner, name), batches in taken.items():
        lacks = lacking[owner, name]
        for step, (mine, theirs) in enumerate(zip(batches, taken.get((owner, owner), []), strict=False), 1):
            stands = len(mine) == len(theirs) and np.array_equal(lacks[mine], lacks[theirs])
            if not stands or not np.array_equal(mine[~lacks[mine]], theirs[~lacks[theirs]]):
                raise CheckFailed(
                    f"in step {step} {name!r} takes rows {mine[:6].tolist()}… ({len(mine)}) and {owner!r} "
                    f"{theirs[:6].tolist()}… ({len(theirs)}): training_rows has to give the same at all parties; what "
                    "a party puts in for a row belongs in feed"
                )


def check_learning(trial: Trial) -> None:
    """Check that it learns on small parties with two and with three classes, and its loss stays finite."""
    for classes in trial.class_counts:
        people = trial.people(rows=400, classes=classes, overlap=0.4)
        _check_auc(trial, people, f"of {classes} classes")


def check_learning_from_others(trial: Trial) -> None:
    """Check that it learns from the passive parties' columns if only they depend on the class.

    An algorithm that scores rows from the active party's columns cannot; its model has to depend on theirs.
    """
    if trial.exchanges_messages and trial.algorithm.asks_partner:
        _check_auc(trial, trial.revealing_parties(), "which only the passive parties' columns depend on")
    elif trial.exchanges_messages:
        people = trial.people()
        changed = [
            replace(table, columns={column: -np.abs(values) for column, values in table.columns.items()})
            for table in people.passive
        ]
        if results_of(trial.run(trial.job(), Parties.of(people.active, *changed))) == results_of(trial.plain_run):
            raise CheckFailed(
                "other columns of the passive parties train the same model, bit by bit: does it use them?"
            )


def _check_auc(trial: Trial, people: Parties, what: str) -> None:
    ran = trial.run(trial.job(epochs=max(12, trial.algorithm.least_epochs + 6)), people)
    first = ran.trained[people.label_owners[0].name]
    if not first.epochs:
        raise CheckFailed("the active party has no epochs to show")
    if not all(np.isfinite(epoch.loss) for epoch in first.epochs):
        raise CheckFailed(f"its loss is not finite: {[epoch.loss for epoch in first.epochs]}")
    auc = first.test.get("auc", 0.0)
    if not auc >= _LEAST_AUC:
        raise CheckFailed(
            f"after {len(first.epochs)} epochs its AUC on test rows {what} is {auc:.3f}; {_LEAST_AUC} at least was "
            "expected: does every party feed the rows of the batch, and are the learning rates right?"
        )


def check_determinism(trial: Trial) -> None:
    """Check that two runs with one seed are equal bit by bit, and a run with another seed differs."""
    check_equal_runs(trial.plain_run, trial.run(trial.job()), "two runs with one seed")
    other = trial.run(trial.job(seed=4))
    if results_of(other) == results_of(trial.plain_run):
        raise CheckFailed("two runs with different seeds give the same bits: derive what is random from role.seed(…)")


def check_numbers_of_parties(trial: Trial) -> None:
    """Check that it runs with one, two and three passive parties, or as many of these as it allows."""
    most = trial.algorithm.most_passive
    for passive in range(1, 4 if most is None else min(most, 3) + 1):
        if passive != trial.passive:
            _check_tested(trial.run(trial.job(), trial.people(passive)), f"with {passive} passive parties")


def check_alone(trial: Trial) -> None:
    """Check that an active party without passive ones can train it, as baselines do."""
    if trial.algorithm.many_owners:
        return
    _check_tested(trial.run(trial.job(), Parties.of(replace(trial.people().active, book=None))), "alone")


def _check_tested(ran: RunOutcome, how: str) -> None:
    if not any(trained.test for trained in ran.trained.values()):
        raise CheckFailed(f"{how}, no party has metrics of the test rows")


_STEPS = 1
"""Batches from one checkpoint inside an epoch to the next."""


class _Kept(Keeper):
    """Keeps all checkpoints of a party in files, and loads one of them.

    Args:
        folder: where files are.
        party: whose.
        start: the epoch to resume from, and batches of the next one; None keeps every epoch.
        steps: see `Keeper.steps`.
    """

    def __init__(self, folder: Path, party: str, start: tuple[int, int] | None = None, *, steps: int = 0) -> None:
        self.start, self.step = (None, 0) if start is None else start
        self.steps = steps
        self._path = folder / party

    def load(self) -> dict[str, object] | None:
        if self.start is None:
            return None
        tree = read_tree(self._file(self.start, self.step))
        return tree if isinstance(tree, dict) else None

    def is_due(self, epoch: int) -> bool:
        return self.start is None

    def save(self, epoch: int, state: dict[str, object], *, step: int = 0) -> None:
        if self.start is None:
            write_tree(self._file(epoch, step), state)

    def _file(self, epoch: int, step: int) -> Path:
        return self._path.with_suffix(f".{epoch}-{step}.safetensors")

    def list_steps_within(self) -> list[tuple[int, int]]:
        """Stored checkpoints inside epochs: epoch and batch."""
        found = [file.name.split(".")[-2].split("-") for file in self._path.parent.glob(f"{self._path.name}.*-*.*")]
        return sorted((int(epoch), int(step)) for epoch, step in found if step != "0")


def check_resuming(trial: Trial) -> None:
    """Check that a run that resumes from any checkpoint, also inside an epoch if the algorithm can, gives the same bits
    as an uninterrupted one."""
    names = [*trial.people(), *([COORDINATOR] if trial.algorithm.many_owners else [])]
    with tempfile.TemporaryDirectory() as folder:
        work = trial.job()
        try:
            first = {name: _Kept(Path(folder), name, steps=_STEPS) for name in names}
            whole = trial.run(work, keepers=first)
        except TypeError as error:
            raise CheckFailed(f"its state cannot be kept: {error}") from error
        check_equal_runs(trial.plain_run, whole, "a run that keeps checkpoints, and one that does not")
        last = max(len(trained.epochs) for trained in whole.trained.values())
        places = [(epoch, 0) for epoch in range(1, last + 1)]
        within = sorted(set.intersection(*(set(one.list_steps_within()) for one in first.values())))
        for epoch, step in [*places, *within[len(within) // 2 :][:1]]:
            what = f"resumed after epoch {epoch} of {last} (does remember() return all that later epochs depend on?)"
            if step:
                what = f"resumed in epoch {epoch + 1} after {step} batches (can begin_epoch() be done again?)"
            kept = {name: _Kept(Path(folder), name, (epoch, step), steps=_STEPS) for name in names}
            try:
                again = trial.run(work, keepers=kept)
            except (SecureVFLError, TypeError) as error:
                raise CheckFailed(f"{what}, the run ends with {type(error).__name__}: {error}") from error
            check_equal_runs(whole, again, what)


def check_prediction(trial: Trial) -> None:
    """Check that a saved and loaded model predicts the test rows as training scored them."""
    work, ran, people = trial.job(), trial.plain_run, trial.people()
    owner = people.label_owners[0]
    members = Parties.of(owner, *people.passive)
    parts = {name: ran.trained[name].model for name in members if ran.trained[name].model}
    if set(parts) != set(members):
        raise CheckFailed(f"{sorted(set(members) - set(parts))} has no part of the model: is part_of_model() empty?")
    with tempfile.TemporaryDirectory() as folder:
        Model(job=work, parts=parts).save(folder)
        model = Model.load(folder, work)
    aligned = join_parties(members, work)
    found = predict(model, members, aligned=aligned)
    rows, wanted = ran.split.test, ran.trained[owner.name].scores
    gap = np.abs(found.probabilities[rows] - wanted).max() if len(rows) else 0.0
    if not gap <= 1e-5:
        raise CheckFailed(
            f"predicted probabilities of test rows are up to {gap:.3g} from those that training scored: is a part of "
            "the model missing in `parts` (what remember() returns is not in it, as it reveals rows), or does "
            "activations() change rows that are scored (train=False)?"
        )


def check_subsets(trial: Trial) -> None:
    """Check that its model scores rows from every set of parties that `subsets` allows; the active party alone as in
    training."""
    if trial.algorithm.subsets == "all" or trial.algorithm.many_owners:
        return
    work, ran, people = trial.job(), trial.plain_run, trial.people()
    owner, trained = people.active, ran.trained[people.active.name]
    parts = {name: found.model for name, found in ran.trained.items()}
    if not len(trained.alone_scores):
        raise CheckFailed(f"subsets is {trial.algorithm.subsets!r} and training scored no test rows alone: score_alone")
    rows = join_parties(people, work).parties[owner.name].rows[ran.split.test]
    gap = np.abs(Alone(owner, work, parts[owner.name]).scores(rows) - trained.alone_scores).max()
    if not gap <= 1e-5:
        raise CheckFailed(
            f"the active party alone scores test rows up to {gap:.3g} from what training scored alone: score_alone has "
            "to depend on the model's parts and the rows, and on nothing that training remembers"
        )
    for present in party_sets(trial.algorithm.subsets, sorted(table.name for table in people.passive)):
        some = Parties({name: people[name] for name in (owner.name, *present)}, active=owner.name)
        found = predict(Model(job=work, parts=parts), some, aligned=join_parties(some, work) if present else None)
        if not np.isfinite(found.probabilities).all():
            raise CheckFailed(f"with the columns of {', '.join(present) or 'nobody else'} scores are not finite")


def check_held_out_rows(trial: Trial) -> None:
    """Check that labels and features of the test rows do not change the trained model."""
    people = trial.people()
    owner = people.label_owners[0]
    if owner.fold is None or owner.label is None:
        return
    tested = {identifier for identifier, fold in zip(owner.ids, owner.fold, strict=True) if fold == TEST}
    flipped = replace(owner, label=np.where(owner.fold == TEST, 1 - owner.label, owner.label))
    changed = [
        replace(
            table,
            columns={
                column: np.where([identifier in tested for identifier in table.ids], 9.0, values)
                for column, values in table.columns.items()
            },
        )
        for table in people.passive
    ]
    others = [table for table in people.label_owners if table.name != owner.name]
    again = trial.run(trial.job(), Parties.of(flipped, *others, *changed))
    for name, trained in trial.plain_run.trained.items():
        if again.trained[name].epochs != trained.epochs:
            raise CheckFailed(f"with other labels and features in the test rows, {name!r} trains another model")
