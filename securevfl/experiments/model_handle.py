"""A handle of a trained model: where its parts are and what they are, without their weights.

It is what a fitted estimator becomes when it is dumped or sent to another process.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from securevfl.errors import InputError
from securevfl.party import Job
from securevfl.run.model import Model

__all__ = ["ModelHandle", "save_under"]


@dataclass(frozen=True)
class ModelHandle:
    """A path and a digest.

    Attributes:
        folder: absolute path of the model's folder.
        digest: see `Model.digest`.
        terms: the job's fields, see `Job`.
    """

    folder: str
    digest: str
    terms: Mapping[str, Any] = field(repr=False)

    def load(self) -> Model:
        """Read the model, and check that it is the one that was saved.

        Raises:
            InputError: the folder is gone, damaged, or contains another model.
        """
        if not Path(self.folder).is_dir():
            raise InputError(
                f"the model of this estimator was saved in {self.folder}, which is gone: restore the folder, or train "
                "again; estimator.save(FOLDER) before a dump keeps the model where you say"
            )
        found = Model.load(self.folder, Job(**self.terms))
        if found.digest != self.digest:
            raise InputError(
                f"{self.folder} has changed: its model is {found.digest[:16]}, this estimator's was {self.digest[:16]}"
            )
        return found


def save_under(model: Model, folder: str | Path | None) -> Path:
    """Save a model in a folder named by its digest, unless it is there; return that folder.

    Args:
        model: the model.
        folder: to save under; a private temporary folder of this process unless given, which is not removed at its end:
            processes that got a handle outlive each other.
    """
    place = (_temporary_folder() if folder is None else Path(folder).absolute()) / model.digest[:32]
    if not place.is_dir():
        model.save(place)
    return place


@cache
def _temporary_folder() -> Path:
    return Path(tempfile.mkdtemp(prefix="securevfl-models-"))
