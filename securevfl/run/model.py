"""A trained model: one file for each party's part, and prediction on new rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from securevfl.data import Parties
from securevfl.errors import InputError, UnknownNameError
from securevfl.export.drift import Drift
from securevfl.party import Job, answer_price
from securevfl.party_context import Observer
from securevfl.privacy import Ledger
from securevfl.run.drifting import NO_COUNTS, column_drift
from securevfl.run.exporting import check_exported, export_part
from securevfl.run.frames import scores_frame
from securevfl.run.joint_export import Exported, check_together
from securevfl.run.model_parts import PART, ModelPart, model_part, run_of, write_run
from securevfl.run.partial_scoring import Asking, ScoringStep, party_sets, score_by_sets
from securevfl.run.scored_labels import measure_scores
from securevfl.run.simulation import Aligned, consent_parties, result_books
from securevfl.run.store import tree_digest, write_tree

if TYPE_CHECKING:
    from pandas import DataFrame

__all__ = ["Model", "Prediction", "predict"]


@dataclass(frozen=True, kw_only=True)
class Model:
    """A trained model of all parties.

    Attributes:
        job: that it was trained by; predicting needs the same one.
        parts: party → its part: weights (or shares of them) and the encoding of its columns; also of a coordinator that
            computed on shares.
    """

    job: Job
    parts: Mapping[str, Mapping[str, Any]] = field(repr=False)

    def __repr__(self) -> str:
        return f"Model({self.job.algorithm.title}, {self.job.protection.title}; parts of {', '.join(self.parts)})"

    def part(self, party: str) -> ModelPart:
        """One party's part of the model, without anything of the others.

        Raises:
            UnknownNameError: no part of this party.
        """
        if party not in self.parts:
            raise UnknownNameError("party", party, self.parts)
        return ModelPart(
            party=party, job=self.job, run=self.digest, tree=model_part(self.job, party, self.parts[party])
        )

    @property
    def digest(self) -> str:
        """SHA-256 of all parts, hexadecimal: the name of their run, as in ``model.run``."""
        return run_of({name: tree_digest(model_part(self.job, name, part)) for name, part in self.parts.items()})

    @property
    def owners(self) -> list[str]:
        """The parties with data, in the order of their parts."""
        return [name for name in self.parts if name != self.coordinator]

    @property
    def coordinator(self) -> str:
        """Name of the party without data that takes part in predicting; empty if there is none."""
        with_data = [name for name, part in self.parts.items() if part.get("encoder", True)]
        return self.job.protection.coordinator_among(with_data)

    def save(self, folder: str | Path) -> Path:
        """Write each party's part to ``<party>.model.safetensors`` in `folder`, and the name of their run to
        ``model.run``; returns the folder."""
        target = Path(folder)
        whole = {party: model_part(self.job, party, part) for party, part in self.parts.items()}
        for party, part in whole.items():
            write_tree(target / f"{party}{PART}", part)
        write_run(target, self.digest)
        return target

    def export(self, folder: str | Path, parties: Parties | None = None) -> Exported:
        """Export each party's part for other scoring engines, to a folder of its name; with `parties`, check them.

        Args:
            folder: of the parties' folders.
            parties: tables whose rows the exported parts are compared on: each with the program, and all together with
                `predict`.

        Raises:
            InputError: under the job's protection a part is not in its party's hands; or see `export_part`.
        """
        parts = {name: export_part(self.part(name), Path(folder) / name) for name in self.owners}
        if parties is None:
            return Exported(parts=parts)
        gaps = {name: check_exported(parts[name], parties[name]) for name in parts}

        def score(aligned: Aligned) -> np.ndarray:
            return predict(self, parties, aligned=aligned).probabilities

        return Exported(parts=parts, differences=gaps, together=check_together(parts, parties, self.job, score))

    def drift(self, parties: Parties) -> dict[str, list[Drift]]:
        """Party → how far each of its columns moved since training, the farthest first. No message is sent.

        Args:
            parties: their new rows.

        Raises:
            InputError: a part without counts of its training rows.
        """
        found = {}
        for name, table in parties.items():
            drifts = column_drift(self.parts[name], table)
            if drifts is None:
                raise InputError(f"{name}: {NO_COUNTS}")
            found[name] = drifts
        return found

    @classmethod
    def load(cls, folder: str | Path, job: Job) -> Model:
        """The model that was saved to `folder`.

        Args:
            folder: where the parts are.
            job: that it was trained by.

        Raises:
            InputError: no parts, damaged ones, or parts that another job trained.
        """
        files = sorted(Path(folder).glob(f"*{PART}"))
        if not files:
            raise InputError(
                f"{folder} contains no model: no file is called <party>.model.safetensors; "
                "train one with `securevfl run JOB.toml`, which writes the folder's path at its end"
            )
        parts = {}
        for file in files:
            party = file.name.removesuffix(PART)
            part = ModelPart.load(file, party, job)
            parts[party], job = part.tree, part.job
        return cls(job=job, parts=parts)


@dataclass(frozen=True, kw_only=True, repr=False)
class Prediction:
    """Predictions as the active party receives them.

    Attributes:
        ids: its identifiers of the rows that were scored, the common ones first.
        probabilities: (n, classes), rows sum to one.
        classes: names of the classes, as texts, in the order of the columns.
        used: for each row the parties whose columns it was scored from, the active one first.
        steps: what each set of parties scored, what that took and who learned what by it.
        ledgers: party → what left it while the rows of all given parties were predicted.
        skipped: the active party's identifiers of rows that were left out, because a party answers nothing more about
            them.
        numbers: how many numbers of a row one answer costs; None where the algorithm does not count them.
        metrics: of the scored rows, where the active party's table has labels.
        unmeasured: why there are no metrics although there are labels; empty otherwise.
    """

    ids: Sequence[str]
    probabilities: np.ndarray = field(repr=False)
    classes: tuple[str, ...]
    used: tuple[tuple[str, ...], ...] = ()
    steps: tuple[ScoringStep, ...] = ()
    ledgers: Mapping[str, Ledger] = field(default_factory=dict)
    skipped: Sequence[str] = ()
    numbers: int | None = 1
    metrics: Mapping[str, float] = field(default_factory=dict)
    unmeasured: str = ""

    @property
    def kept(self) -> int:
        """How many rows were answered from what the active party holds, without asking."""
        return sum(step.kept for step in self.steps)

    @property
    def asked(self) -> int:
        """How many rows the parties were asked about."""
        return sum(len(step.rows) - step.kept for step in self.steps if len(step.parties) > 1)

    @property
    def refused(self) -> dict[str, int]:
        """Party → about how many rows it answers nothing more."""
        return dict(sum((Counter(step.refused) for step in self.steps), Counter()))

    def __repr__(self) -> str:
        what = f"of {', '.join(self.classes)}" if self.classes else "a number each"
        sets = " or ".join(dict.fromkeys(" + ".join(who) for who in self.used))
        figures = "".join(f", {name} {value:.4g}" for name, value in self.metrics.items())
        return f"Prediction({len(self.ids):,} rows, {what}{', from columns of ' + sets if sets else ''}{figures})"

    def to_pandas(self) -> DataFrame:
        """One row for each scored row, by the active party's identifier: one column for each class (or a single one for
        a number), and the parties whose columns it was scored from.

        Raises:
            InputError: pandas is not installed.
        """
        frame = scores_frame(self.ids, self.classes, {"score": self.probabilities})
        return frame.assign(**{"scored from": [" + ".join(who) for who in self.used]}) if self.used else frame


def predict(
    model: Model,
    parties: Parties,
    *,
    everyone: bool = False,
    calibrated: bool = True,
    aligned: Aligned | None = None,
    observers: Mapping[str, Observer] | None = None,
    results: str | Path | None = None,
    answers: str | Path | None = None,
    ask_again: bool = False,
    skip_spent: bool = False,
) -> Prediction:
    """Predict on new rows: align the parties' tables, encode them as in training and score the common rows. With
    `everyone`, score every row of the active party once, by the largest set of parties that has it.

    Args:
        model: what a run learned.
        parties: their new tables; the active one needs no labels (`Parties.of(…, active="bank")`). A passive party that
            left may be missing, where the algorithm allows it (`Algorithm.subsets`); the active party's table alone is
            scored whole, without any message.
        everyone: also score rows that some parties lack: by each set of parties that the algorithm allows, the largest
            first, and finally by the active party alone. Each set runs another alignment, which shows the active party
            and the passive ones of the set which of their rows they share; see `Prediction.steps`.
        calibrated: calibrate probabilities as training did on its validation rows: scores from all columns, and those
            from the active party's own. The report's figures are of these. Scores of other sets of parties are not
            calibrated.
        aligned: an alignment of these tables to use again.
        observers: party → receiver of its events.
        results: see `simulate`.
        answers: folder of the answers that the active party holds. A row is answered from there if the model, the
            party's own columns of the row and the tables of the others are the same; new answers are stored there.
        ask_again: ask about rows whose answers it holds, too: that costs numbers, see `Policy.max_results`.
        skip_spent: leave out the rows about which a party answers nothing more, instead of asking about none.

    Raises:
        InputError: other parties or other columns than in training, or an algorithm that is not fit for such rows.
        RowsSpent: a party answers nothing more about some rows; nothing was asked.
        PolicyError: a party's policy forbids that fewer than all parties align (`Policy.pairwise_intersections`).
        SecureVFLError: alignment or prediction failed.
    """
    active, job, helper, owners = parties.active.name, model.job, model.coordinator, model.owners
    passive = sorted(name for name in parties if name != active)
    trained_with = sorted(name for name in owners if name != active)
    who = f"the model belongs to {', '.join(owners)}; the tables to {', '.join(parties)}"
    if any(name not in owners for name in parties) or active not in owners:
        raise InputError(who)
    if helper and helper not in model.parts:
        raise InputError(
            f"{helper!r}, which has no data, takes part in predictions and has a part of this model: add "
            f"{helper}{PART} to the other parts"
        )
    try:
        job.algorithm.check_subset(passive, trained_with)
    except InputError as error:
        raise InputError(f"{who}: {error}") from None
    sets: list[tuple[str, ...]] = [tuple(passive)]
    if everyone:
        job.algorithm.check_subset((), trained_with)
        if job.protection.on_shares and not job.algorithm.alone_on_shares:
            raise InputError(
                "the model is in shares, so no party can score rows alone: leave everyone out, and predict "
                "the rows that all parties have"
            )
        sets = party_sets(job.algorithm.subsets, passive)
    if len(sets) > 2:
        consent_parties([job], parties, pairwise=True)
    parts = dict(model.parts)
    books = None if results is None else result_books(results, parties)
    if not calibrated:
        parts[active] = {
            name: value for name, value in parts[active].items() if name not in ("calibration", "temperature")
        }
    asking = Asking(skip_spent=skip_spent)
    if answers is not None:
        digest = Model(job=job, parts=parts).digest
        asking = Asking(answers=Path(answers), model=digest, again=ask_again, skip_spent=skip_spent)
    steps = tuple(
        score_by_sets(job, parts, parties, sets, aligned=aligned, observers=observers, results=books, asking=asking)
    )
    rows = np.concatenate([step.rows for step in steps])
    scores = np.concatenate([step.probabilities for step in steps])
    metrics, unmeasured = measure_scores(job, model.parts[active], parties.active, rows, scores)
    return Prediction(
        ids=parties.active.ids_of(rows),
        probabilities=scores,
        metrics=metrics,
        unmeasured=unmeasured,
        classes=tuple(model.parts[active]["names"]),
        used=tuple(step.parties for step in steps for _ in step.rows),
        steps=steps,
        numbers=answer_price(job, passive, len(model.parts[active]["names"])),
        skipped=parties.active.ids_of(np.concatenate([step.skipped for step in steps])),
        ledgers=next((found for run, found in steps[0].ledgers.items() if run.startswith("predict")), {}),
    )
