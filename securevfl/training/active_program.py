"""The active party's program: epochs, validation, early stopping, restoring the best epoch, the test, the report."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace

import numpy as np
import torch

from securevfl.errors import RangeError
from securevfl.privacy import Link, fan_out
from securevfl.training.active_role import ActiveRole
from securevfl.training.calibration import ALONE, WHOLE, Calibration, Correction, calibrate, correction_of
from securevfl.training.outcome import (
    check_labels,
    constant_metrics,
    ended_early,
    few_labels,
    few_rows,
    went_nowhere,
)
from securevfl.training.plan import FEWEST_TO_CHOOSE
from securevfl.training.program import RoleProgram
from securevfl.training.rows import Epoch, Trained
from securevfl.training.split import split_chunks
from securevfl.training.state import State, as_dict, as_int, as_list
from securevfl.transport import Kind

__all__ = ["ActiveProgram", "Progress", "to_floats"]

_LESS = 0.999
"""A validation loss below this part of the smallest one so far is a gain: training goes on."""


@dataclass
class Progress:
    """How far training has come, at the active party.

    Attributes:
        kept: the snapshot of the best epoch so far.
        scores: its probabilities of the validation rows, (n, classes); None where they are unknown.
        best: the best epoch's score; larger is better.
        least: the smallest validation loss so far.
        since: epochs without a gain of either.
        epoch: the one that ended last, from 1.
        stop: whether training is over.
    """

    kept: object = field(repr=False)
    scores: torch.Tensor | None = field(default=None, repr=False)
    best: float = -math.inf
    least: float = math.inf
    since: int = 0
    epoch: int = 0
    stop: bool = False

    def forget_best(self) -> None:
        """Compare no later epoch with those before it: what is trained has changed."""
        self.best, self.least, self.since = -math.inf, math.inf, 0


@dataclass
class EpochProgress:
    """How far an epoch has come, at the active party.

    Attributes:
        step: batches that are done.
        losses: the sum over the rows of each of these batches.
        rows: how many rows they contained.
    """

    step: int = 0
    losses: list[float] = field(default_factory=list)
    rows: int = 0


def to_floats(losses: Sequence[float | torch.Tensor]) -> list[float]:
    """Losses as numbers. Those on a device are read together, so it is waited for once."""
    there = [loss for loss in losses if isinstance(loss, torch.Tensor)]
    read = iter(torch.stack(there).tolist() if there else ())
    return [next(read) if isinstance(loss, torch.Tensor) else loss for loss in losses]


def _scores_alone(role: ActiveRole) -> bool:
    """Whether the role scores rows without the passive parties: it overrides `score_alone`, and has columns."""
    return type(role).score_alone is not ActiveRole.score_alone and role.features.row_shape.numel() > 0


class ActiveProgram(RoleProgram[ActiveRole]):
    """Counts the epochs and decides when training stops."""

    def __init__(self, role: ActiveRole) -> None:
        super().__init__(role)
        self.progress = Progress(kept=None)
        self._within = EpochProgress()
        self.correction = Correction()
        self._valid_scores = np.empty((0, 0))

    async def train(self) -> None:
        observer, role = self.role.site.observer, self.role
        check_labels(role.task, self.labels_of(role.books.rows_to_learn_from()), role.table.words)
        observer.phase("setup")
        saved = await self.prepare_training()
        observer.phase("training")
        self.progress = progress = Progress(kept=role.books.snapshot()) if saved is None else self.resume_from(saved)
        if saved is not None and self.checkpoints.has_fewer_parties(saved):
            progress.kept = await self.go_on_without(progress.kept, over=progress.stop)
        while not progress.stop:
            await self.one_epoch(progress)

    async def finish(self) -> Trained:
        role, progress = self.role, self.progress
        role.books.restore(progress.kept)
        role.site.observer.phase("test")
        self.trained.test = await self.evaluate_rows(role.table.split.test, keep=True)
        await self.after_test()
        self.trained.valid_scores = np.empty((0, 0)) if progress.scores is None else progress.scores.numpy()
        self.score_alone()
        self.calibrate()
        self.assess_outcome()
        trained = self.close_books()
        if trained.model and trained.calibration:
            trained.model["calibration"] = {
                whose: {"temperature": one.correction.temperature, "intercept": list(one.correction.intercept)}
                for whose, one in trained.calibration.items()
            }
        return trained

    def score_alone(self) -> None:
        """Also score the test rows without the passive parties, if the role can. No message is sent."""
        role, trained = self.role, self.trained
        if not (trained.test and _scores_alone(role)):
            return
        rows = role.table.split.test
        trained.alone_scores = self.probabilities_alone(rows)
        labels, weights = role.labels(rows).cpu().numpy(), role.table.row_weights(rows)
        trained.alone = role.task.compute_metrics(trained.alone_scores, labels, weights)
        if role.plan.judges_alone and role.plan.validates and len(role.table.split.valid):
            trained.alone_valid_scores = self.probabilities_alone(role.table.split.valid)

    def calibrate(self) -> None:
        """Calibrate the scores on the validation rows, if there are enough of them and their labels are exact. A model
        trained with DP-SGD is not calibrated: that would reveal something of these rows, without noise. Where classes
        have weights no intercept is fitted: it would take them back."""
        role, trained, dp = self.role, self.trained, self.role.protection.dp
        if (
            not (role.plan.validates and role.plan.calibrates)
            or role.task.is_numeric
            or role.task.is_multilabel
            or not trained.test
            or (dp is not None and (dp.model is not None or dp.label_draw is not None))
        ):
            return
        split = role.table.split
        found = {WHOLE: self.fit_calibration(trained.valid_scores, trained.scores)}
        if _scores_alone(role) and role.config.subsets != "all" and len(split.valid) >= FEWEST_TO_CHOOSE:
            found[ALONE] = self.fit_calibration(self.probabilities_alone(split.valid), trained.alone_scores)
        trained.calibration = {whose: one for whose, one in found.items() if one is not None}
        self.apply_calibration()

    def fit_calibration(self, valid: np.ndarray, test: np.ndarray) -> Calibration | None:
        """The calibration of scores (n, classes) of the validation rows and of the test rows; None if it helps none."""
        table = self.role.table
        labels = [self.role.labels(rows).cpu().numpy() for rows in (table.split.valid, table.split.test)]
        weight = table.row_weights(table.split.valid)
        return calibrate(valid, labels[0], test, labels[1], weight=weight, intercept=not self.role.plan.weighs_classes)

    def apply_calibration(self) -> None:
        """Replace the scores and the metrics by those of calibrated scores: those of every later prediction."""
        role, trained = self.role, self.trained
        rows = role.table.split.test
        labels, weights = role.labels(rows).cpu().numpy(), role.table.row_weights(rows)
        if WHOLE in trained.calibration:
            correction = trained.calibration[WHOLE].correction
            trained.valid_scores, trained.scores = map(correction.apply, (trained.valid_scores, trained.scores))
            trained.uncalibrated = trained.test
            trained.test = role.task.compute_metrics(trained.scores, labels, weights)
        if ALONE in trained.calibration:
            trained.alone_scores = trained.calibration[ALONE].correction.apply(trained.alone_scores)
            trained.alone = role.task.compute_metrics(trained.alone_scores, labels, weights)

    def probabilities_alone(self, rows: np.ndarray) -> np.ndarray:
        """Probabilities (n, classes) of numbered rows from the active party's own columns. The role has no links
        meanwhile, as in a prediction without peers."""
        role = self.role
        site, role.site = role.site, replace(role.site, passive=(), links={})
        try:
            logits = [role.score_alone(part) for part in split_chunks(rows, role.plan.eval_rows)]
        finally:
            role.site = site
        return role.task.compute_probabilities(torch.cat(logits))

    def labels_of(self, rows: np.ndarray) -> np.ndarray:
        """Labels of numbered rows, without those that the active party does not know."""
        return self.role.task.drop_unknown(self.role.labels(rows).cpu().numpy())

    def assess_outcome(self) -> None:
        """Say what a constant prediction would score, and what a user should be warned of."""
        role, task, split = self.role, self.role.task, self.role.table.split
        judged = split.valid if role.protection.opens_metrics and role.plan.validates else split.valid[:0]
        train, valid, test = (self.labels_of(rows) for rows in (split.train, judged, split.test))
        if not self.trained.test:
            return
        trained = self.trained
        weights = [role.table.row_weights(rows) for rows in (split.train, judged, split.test)]
        trained.constant = constant_metrics(task, train, test, weights[0], weights[2])
        parts = {"training": train, "validation": valid, "test": test}
        if not task.is_numeric:
            warn = few_labels if task.is_multilabel else few_rows
            trained.warnings += warn(task.classes, parts, role.table.words)
        on_valid = constant_metrics(task, train, valid, weights[0], weights[1])
        chooses = role.plan.chooses_best_epoch(len(valid))
        kept = trained.epochs[: trained.best_epoch] if chooses else trained.epochs
        trained.warnings += went_nowhere(kept, on_valid, trained.test, trained.constant, task.loss_name)
        if chooses and role.protection.dp is None:
            trained.warnings += ended_early(trained.epochs, trained.best_epoch, role.plan.epochs, task.loss_name)
        tally = self.role.books.tally()
        if tally is not None:
            trained.self_training = tally.summary_sentence
            trained.warnings += tally.warnings
            trained.extra |= tally.figures

    async def prepare_training(self) -> State | None:
        saved = await super().prepare_training()
        if saved is not None:
            self.role.y = self.role.label_noise.drawn_labels(self.role.y)  # the labels that were drawn at first
        return saved

    async def one_epoch(self, progress: Progress) -> None:
        """Train, validate, tell the others how it goes on, keep a checkpoint."""
        progress.epoch += 1
        if await self.role.begin_epoch(progress.epoch):
            progress.forget_best()
        loss = await self.train_epoch(progress.epoch)
        due = self.role.plan.validates_after(progress.epoch)
        valid = await self.evaluate_rows(self.role.table.split.valid, judge=True) if due else {}
        await self.decide_epoch(progress, valid)
        self.record_epoch(progress, loss, valid)

    async def train_epoch(self, epoch: int) -> float:
        """One pass over an epoch's batches; the mean loss.

        Raises:
            RangeError: the loss is not finite.
        """
        role = self.role
        batches = role.batches(epoch)
        first, self._within = self._within, EpochProgress()
        losses: list[float | torch.Tensor] = [*first.losses]
        count = first.rows
        site, observer = role.site, role.site.observer
        for done, rows in enumerate(batches[first.step :], first.step + 1):
            observer.batch_begun(site.name, site.active, epoch, rows)
            losses.append(await role.train_batch(rows))
            count += len(rows)
            observer.step(epoch, done, len(batches))
            if self.checkpoints.is_checkpoint_due(done, len(batches)):
                self.checkpoints.keep_within(
                    epoch, done, self.training_state(EpochProgress(done, to_floats(losses), count))
                )
        self.trained.rows = role.books.rows_trained(epoch)
        site.ledger.catch_up()
        mean = sum(to_floats(losses)) / max(count, 1)
        if role.has_loss and not math.isfinite(mean):
            raise RangeError(f"the loss of epoch {epoch} is {mean}; training diverged: lower the learning rates")
        return mean

    def score_epoch(self, progress: Progress, valid: dict[str, float]) -> float:
        """The figure of an epoch that chooses the best one; larger is better.

        Args:
            progress: of the epochs before it.
            valid: metrics of its validation rows; empty where it did not validate.
        """
        if not valid:
            return -math.inf
        task = self.role.task
        return -valid[task.loss_name] if self.role.config.chooses_by_loss else task.selection_score(valid)

    async def decide_epoch(self, progress: Progress, valid: dict[str, float]) -> None:
        """Decide whether this epoch's model is kept and whether training ends, and tell the others."""
        role, epoch = self.role, progress.epoch
        score = self.score_epoch(progress, valid)
        better = score > progress.best
        loss = valid.get(role.task.loss_name, math.inf)
        progress.since = 0 if better or loss < progress.least * _LESS else progress.since + 1
        progress.best, progress.least = max(score, progress.best), min(loss, progress.least)
        patience = role.plan.patience
        out_of_patience = bool(valid) and patience is not None and progress.since >= patience
        progress.stop = (out_of_patience and epoch >= role.config.least_epochs) or epoch >= role.plan.epochs
        keeps = better if role.plan.chooses_best_epoch(len(role.table.split.valid)) else progress.stop
        if keeps:
            progress.kept, progress.scores = role.books.snapshot(), torch.from_numpy(self._valid_scores)
            self.trained.best_epoch = epoch
        meta = {"epoch": epoch, "best": keeps, "stop": progress.stop}
        await fan_out(self.peers_to_notify(), lambda link: link.send(Kind.CONTROL, "train/epoch", meta=meta))
        if progress.stop:
            end = role.releases.end_of_plan or "all epochs done"
            waited = f"no gain on validation rows for {progress.since} epochs"
            self.trained.stopped = waited if out_of_patience else end

    def peers_to_notify(self) -> list[Link]:
        """Links to the parties that have to know whether training continues."""
        return self.role.site.other_links

    def record_epoch(self, progress: Progress, loss: float, valid: dict[str, float]) -> None:
        """Record an epoch in the history, and write a checkpoint if one is due."""
        self.trained.readings.append(self.lap_times())
        self.trained.epochs.append(Epoch(loss, valid))
        self.role.site.observer.epoch(progress.epoch, loss, valid)
        self.checkpoints.end_epoch(progress.epoch, self.training_state())
        self.report_spent()

    def training_state(self, within: EpochProgress | None = None) -> State:
        """The program's state for a checkpoint, with `within` if an epoch is under way."""
        progress = replace(self.progress, epoch=self.progress.epoch - (within is not None))
        history = [[item.loss, item.valid] for item in self.trained.epochs]
        more: State = {"progress": asdict(progress), "stop": progress.stop, "history": history}
        more |= {"best_epoch": self.trained.best_epoch, "stopped": self.trained.stopped}
        if within is not None:
            more["within"] = asdict(within)
        return more | self.program_state()

    def program_state(self) -> State:
        """What a subclass adds to the program's state."""
        return {}

    def resume_from(self, saved: State) -> Progress:
        """Restore the program's state from a checkpoint."""
        self.trained.best_epoch = as_int(saved["best_epoch"])
        self.trained.epochs = [Epoch(loss, valid) for loss, valid in as_list(saved["history"])]
        progress = Progress(**as_dict(saved["progress"]))  # type: ignore[arg-type]
        progress.stop = self.checkpoints.is_finished(saved)
        if self.checkpoints.has_fewer_parties(saved):
            progress.forget_best()
            progress.scores = None  # they have the columns of a party that left
        if "within" in saved:
            self._within = EpochProgress(**as_dict(saved["within"]))  # type: ignore[arg-type]
        self.trained.stopped = str(saved["stopped"]) if progress.stop else ""
        return progress

    async def come_back(self, model: State) -> None:
        """See `RoleProgram.come_back`. Scores are calibrated if all parties of the model take part."""
        await super().come_back(model)
        self.role.task = self.role.task.with_state(model.get("target"))
        everyone = set(self.role.site.passive) == set(self.role.trained_with)
        self.correction = correction_of(model, WHOLE) if everyone else Correction()

    async def predict(self, model: State, rows: np.ndarray) -> np.ndarray:
        """Probabilities (n, classes) of aligned rows by a trained model."""
        await self.come_back(model)
        return await self.score_probabilities(rows)

    async def score_probabilities(self, rows: np.ndarray) -> np.ndarray:
        """Probabilities (n, classes) of numbered rows by the model as it is."""
        site, logits = self.role.site, []
        for part in split_chunks(rows, self.role.plan.eval_rows):
            site.observer.batch_begun(site.name, site.active, 0, part)
            logits.append(await self.role.score(part))
        return self.correction.apply(self.role.task.compute_probabilities(torch.cat(logits)))

    async def evaluate_rows(self, rows: np.ndarray, *, keep: bool = False, judge: bool = False) -> dict[str, float]:
        """Metrics of the model as it is on these rows.

        Args:
            rows: numbers of aligned rows.
            keep: whether to store their scores as the run's.
            judge: whether they validate: `Bookkeeping.after_validation` is called.

        Raises:
            RangeError: a score is not finite.
        """
        scores, labels = await self.score_probabilities(rows), self.role.labels(rows).cpu().numpy()
        if not np.isfinite(scores).all():
            raise RangeError(
                f"{np.count_nonzero(~np.isfinite(scores).all(axis=1)):,} of {len(rows):,} scored rows have scores that "
                "are not finite; training diverged: lower the learning rates"
            )
        if keep:
            self.trained.scores = scores
        if judge:
            self._valid_scores = scores
            for hear in self.role.books.after_validation:
                hear(scores, labels)
        return self.role.task.compute_metrics(scores, labels, self.role.table.row_weights(rows))
