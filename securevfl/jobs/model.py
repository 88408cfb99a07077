"""A trained model: each party's own part, kept in files of their own; and predicting on new rows with it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from securevfl.data import Parties
from securevfl.errors import InputError
from securevfl.jobs.parts import PART, ModelPart, model_part, run_of, write_run
from securevfl.jobs.simulation import Aligned, align_parties, predict_parties
from securevfl.jobs.store import tree_digest, write_tree
from securevfl.party import Job
from securevfl.privacy import Ledger
from securevfl.site import Observer

__all__ = ["Model", "Prediction", "predict"]


@dataclass(frozen=True, kw_only=True)
class Model:
    """What a run learned.

    Attributes:
        job: that it was trained by; predicting needs the same one.
        parts: party → its own part: weights (or shares of them) and how it encodes its columns.
    """

    job: Job
    parts: Mapping[str, Mapping[str, Any]]

    def save(self, folder: str | Path) -> Path:
        """Write each party's part to ``<party>.model.safetensors`` in `folder`, and the name of their run to
        ``model.run``; returns the folder."""
        target = Path(folder)
        whole = {party: model_part(self.job, party, part) for party, part in self.parts.items()}
        for party, part in whole.items():
            write_tree(target / f"{party}{PART}", part)
        write_run(target, run_of({party: tree_digest(part) for party, part in whole.items()}))
        return target

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
            raise InputError(f"{folder} holds no model: no file is called <party>.model.safetensors")
        parts = {}
        for file in files:
            party = file.name.removesuffix(PART)
            parts[party] = ModelPart.load(file, party, job).tree
        return cls(job=job, parts=parts)


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """What the active party learns by predicting.

    Attributes:
        ids: its identifiers of the common rows.
        probabilities: (n, classes), rows sum to one.
        classes: names of the classes, as texts, in the order of the columns.
        ledgers: party → what left it while predicting.
    """

    ids: tuple[str, ...]
    probabilities: np.ndarray
    classes: tuple[str, ...]
    ledgers: Mapping[str, Ledger] = field(default_factory=dict)


def predict(
    model: Model,
    parties: Parties,
    *,
    aligned: Aligned | None = None,
    observers: Mapping[str, Observer] | None = None,
) -> Prediction:
    """Predict on new rows: align the parties' tables, encode them as in training, score the common rows.

    Args:
        model: trained by the same parties.
        parties: their new tables; the active one needs no labels (`Parties.of(…, active="bank")`).
        aligned: an alignment of these tables to use again.
        observers: party → what hears of it.

    Raises:
        InputError: other parties or other columns than in training.
        SecureVFLError: whatever ended it.
    """
    if set(parties) != set(model.parts):
        raise InputError(f"the model belongs to {', '.join(model.parts)}; the tables to {', '.join(parties)}")
    aligned = aligned or align_parties(parties, model.job)
    scores, ledgers = predict_parties(model.job, parties, aligned, model.parts, run="predict", observers=observers)
    active = parties.active
    rows = aligned.parties[active.name].rows
    return Prediction(
        ids=tuple(active.ids[row] for row in rows.tolist()),
        probabilities=scores,
        classes=tuple(model.parts[active.name]["names"]),
        ledgers=ledgers,
    )
