"""A party's own part of a model and its own rows, from its party file: nobody else's files are needed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from securevfl.errors import InputError

if TYPE_CHECKING:
    import numpy as np

    from securevfl.agreement import PartyFile
    from securevfl.data import PartyTable
    from securevfl.run.model_parts import ModelPart
    from securevfl.serving.process_tasks import Scored

__all__ = ["common_scores", "own_drift_line", "own_part", "own_table", "read_own_table"]


def own_drift_line(agreement: Path, file: Path, party: str, data: Path | None, scores: np.ndarray | None = None) -> str:
    """How far a party's own columns moved since training, in a line, and at the active party the scores; empty at a
    party without a table, or if its part has no counts of training.

    Args:
        agreement: that the model was trained under.
        file: the party's own.
        party: its name.
        data: table in the place of the file's.
        scores: at the active party, of the rows that all parties have, (n, classes).
    """
    from securevfl.agreement import read_party_file
    from securevfl.run.drifting import column_drift, describe_drift, score_drift

    if read_party_file(file).data is None:
        return ""
    own, part = own_part(agreement, file, party)
    found = column_drift(part.tree, own_table(own, part, [] if data is None else [str(data)]))
    score = None if scores is None else score_drift(part.tree, scores)
    return "" if found is None else describe_drift(party, found, score)


def common_scores(found: Scored) -> np.ndarray:
    """Scores of the rows that all parties have, (n, classes): those of training were such rows."""
    import numpy as np

    most = max((len(names) for names in found.used), default=0)
    rows = [row for row, names in zip(found.probabilities, found.used, strict=True) if len(names) == most > 1]
    return np.array(rows)


def own_part(agreement: Path, file: Path, party: str) -> tuple[PartyFile, ModelPart]:
    """A party's own file, and its part of the model from its state folder.

    Args:
        agreement: that the model was trained under.
        file: the party's own.
        party: its name; that of the file if empty.

    Raises:
        InputError: another party's file, a job that trains no model, or no part of the agreement's model.
    """
    from securevfl.agreement import read_agreement, read_party_file
    from securevfl.party.eligibility import check_trains
    from securevfl.run.model_parts import ModelPart

    own, whole = read_party_file(file), read_agreement(agreement)
    if party and party != own.party:
        raise InputError(f"{file} is of {own.party!r} and --as is {party!r}: give the file of {party!r}")
    check_trains(whole.proposal.algorithm, "to take a part of")
    job = whole.proposal.job_of(policies={own.party: own.policy})
    return own, ModelPart.load(own.state / "model", own.party, job, run=whole.digest)


def own_table(own: PartyFile, part: ModelPart, data: list[str]) -> PartyTable:
    """A party's rows, without labels.

    Args:
        own: its file.
        part: its part of a model: it decides which columns are read.
        data: the table in place of the file's, as given on the command line; empty for the file's.

    Raises:
        InputError: no table, several, or one that cannot be read.
    """
    if own.data is None:
        raise InputError(f"{own.path} names no table: give [data]")
    if len(data) > 1:
        raise InputError(f"with --file, --data is one file; it was given {len(data)} times")
    bare = own.data.without_label(list(part.tree["encoder"]["columns"]))
    if data:
        return bare.replace(file=data[0].removeprefix(f"{own.party}=")).read_table(Path(), own.party)
    return bare.read_table(own.folder, own.party)


def read_own_table(party: str, data: list[str]) -> Path | None:
    """The new table of a party that scores or explains with --as: FILE, or PARTY=FILE; None for its file's."""
    if len(data) > 1:
        raise InputError(f"with --as, --data is one file, that of {party!r}; it was given {len(data)} times")
    return Path(data[0].removeprefix(f"{party}=")) if data else None
