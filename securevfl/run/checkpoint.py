"""Checkpoints: each party saves its own state after an epoch; an interrupted run resumes from the last epoch that all
parties saved intact.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path

from securevfl_net.durable import lock_folder, make_folder, write_atomic

from securevfl.errors import InputError
from securevfl.party_context import Keeper
from securevfl.privacy import Journal, ResultBook, describe_lost_attempts
from securevfl.run.store import read_tree, write_tree

__all__ = ["FolderKeeper", "lock_keepers", "make_keepers"]

_KEPT = 3
"""Checkpoints of a party: with one damaged and one that the others do not have yet, one is left."""


class FolderKeeper(Keeper):
    """Keeps one party's checkpoints in a folder, the last three of them, and its journal beside them.

    Args:
        folder: of the run.
        party: whose.
        job: digest of the job; checkpoints of another job are refused.
        data: what else a checkpoint belongs to → its digest; see `data_digests`.
        every: epochs between two checkpoints.
        steps: see `Keeper.steps`.
        ends: where a job trains several models one after the other, the epochs after which each is over: the last three
            checkpoints of each are kept.

    Attributes:
        start, step: the epoch to resume from, and the number of batches of the next one; None to start from the
            beginning.
        attempt: that checkpoints are written in, where the parties number their attempts.
        notes: remarks for the report on how the run resumed.
        saving: called when a checkpoint is on the disk.
    """

    def __init__(
        self,
        folder: Path,
        party: str,
        job: str,
        *,
        data: Mapping[str, str] | None = None,
        every: int = 1,
        steps: int = 0,
        ends: Sequence[int] = (),
    ) -> None:
        self.folder = folder
        self.party = party
        self.job = job
        self.data = dict(data or {})
        self.every = every
        self.steps = steps
        self.ends = tuple(ends)
        self.start: int | None = None
        self.attempt = 0
        self.notes: list[str] = []
        self.saving: Callable[[], None] = lambda: None

    @cached_property
    def journal(self) -> Journal:
        """Open the party's journal, ``<party>.journal.jsonl``.

        Raises:
            InputError: it was changed, or is of another party or job.
        """
        return Journal(self.party, self.job, self.folder / f"{self.party}.journal.jsonl")

    @cached_property
    def results(self) -> ResultBook:
        """Open the party's book of answered numbers, ``<party>.results.jsonl``.

        Raises:
            InputError: it is damaged.
        """
        return ResultBook(self.folder / f"{self.party}.results.jsonl", party=self.party)

    def stored_epochs(self) -> set[int]:
        """Epochs with a checkpoint file, intact or damaged."""
        pattern = re.compile(re.escape(self.party) + r"\.epoch-(\d+)\.safetensors")
        found = (pattern.fullmatch(file.name) for file in self.folder.glob(f"{self.party}.epoch-*.safetensors"))
        return {int(match[1]) for match in found if match}

    def stored_positions(self) -> set[tuple[int, int]]:
        """Epochs, and batches of the following epoch, with a checkpoint file, intact or damaged."""
        pattern = re.compile(re.escape(self.party) + r"\.epoch-(\d+)(?:-step-(\d+))?\.safetensors")
        found = (pattern.fullmatch(file.name) for file in self.folder.glob(f"{self.party}.epoch-*.safetensors"))
        return {(int(match[1]), int(match[2] or 0)) for match in found if match}

    def path_of(self, epoch: int, step: int = 0) -> Path:
        """Path of the checkpoint after `epoch` and `step` batches of the next one."""
        within = f"-step-{step}" if step else ""
        return self.folder / f"{self.party}.epoch-{epoch}{within}.safetensors"

    def read_state(self, epoch: int, step: int = 0) -> dict[str, object]:
        """The state after `epoch` and `step` batches of the next one; see `_read_tree`."""
        state: dict[str, object] = self._read_tree(epoch, step)["state"]  # type: ignore[assignment]
        return state

    def find_intact(self) -> dict[tuple[int, int], int]:
        """Epoch and batches of the next one of each whole checkpoint → the attempt that wrote it. A damaged one is left
        out.

        Raises:
            InputError: see `_read_tree`.
        """
        found = {}
        for epoch, step in sorted(self.stored_positions()):
            try:
                attempt = self._read_tree(epoch, step).get("attempt")
            except Damaged:
                continue
            found[epoch, step] = attempt if isinstance(attempt, int) else 0
        return found

    def resume_from(self, attempt: int, start: tuple[int, int] | None) -> None:
        """Begin an attempt: from now on what was released before it counts as released by earlier ones.

        Args:
            attempt: its number.
            start: the epoch to resume after, and the number of batches of the next one; None to start from the
                beginning.
        """
        make_folder(self.folder, private=True)
        self.__dict__.pop("journal", None)  # read again: what this process released before is an earlier attempt's
        self.attempt = attempt
        self.start, self.step = (None, 0) if start is None else start
        self.forget_after(self.start or 0, self.step)

    def _read_tree(self, epoch: int, step: int = 0) -> dict[str, object]:
        """Build the content of a checkpoint.

        Raises:
            Damaged: the file's bits changed, or it is not a checkpoint.
            InputError: it is of another job, party, table, alignment or epoch, or the journal that goes with it is not
                there.
        """
        path = self.path_of(epoch, step)
        try:
            tree = read_tree(path)
        except InputError as error:
            raise Damaged(str(error)) from None
        if not isinstance(tree, dict) or not isinstance(tree.get("state"), dict):
            raise Damaged(f"{path} is damaged, or was not written by securevfl")
        if tree.get("job") != self.job or tree.get("party") != self.party:
            raise InputError(
                f"{path} is of another job or party: use another folder for checkpoints, or the same job file as before"
            )
        if (tree.get("epoch"), tree.get("step", 0)) != (epoch, step):
            within = f", step {tree['step']}" if tree.get("step") else ""
            raise InputError(f"{path} contains a checkpoint of epoch {tree.get('epoch')}{within}: rename the file back")
        data = tree.get("data")
        for what, digest in self.data.items():
            kept = data.get(what) if isinstance(data, dict) else None
            if kept != digest:
                raise InputError(
                    f"{path} was written with another {what} of {self.party!r} (SHA-256 {str(kept)[:16]}…; "
                    f"this one has {digest[:16]}…): resume with the same data, or start from the beginning in "
                    "another folder"
                )
        if not self.journal.has_line(str(tree.get("journal"))):
            raise InputError(
                f"{path} goes with a journal that is not there, or not as long as it was ({self.journal.path}): it "
                "counts what was released, and without it ε would be wrong; bring it back"
            )
        return tree

    def load(self) -> dict[str, object] | None:
        """See `Keeper.load`.

        Raises:
            InputError: see `read_state`.
        """
        return None if self.start is None else self.read_state(self.start, self.step)

    def last_position(self, after: int, most: int) -> tuple[int, int] | None:
        if self.start is None:
            return None
        begin, end = (after, 1), min((most, 0), (self.start, self.step))
        return max((place for place in self.stored_positions() if begin <= place <= end), default=None)

    def load_from(self, epoch: int, step: int) -> dict[str, object]:
        return self.read_state(epoch, step)

    def store_row_counts(self, counts: Mapping[str, tuple[int, int]]) -> None:
        if counts == self.read_row_counts():
            return
        make_folder(self.folder, private=True)
        text = json.dumps({name: list(pair) for name, pair in counts.items()})
        write_atomic(self._row_counts_file, text.encode(), private=True)

    def read_row_counts(self) -> Mapping[str, tuple[int, int]]:
        """See `Keeper.read_row_counts`.

        Raises:
            InputError: the file is damaged.
        """
        if not self._row_counts_file.exists():
            return {}
        try:
            found = json.loads(self._row_counts_file.read_bytes())
            return {str(name): (int(rows), int(labelled)) for name, (rows, labelled) in found.items()}
        except (ValueError, TypeError, AttributeError) as error:
            raise InputError(f"{self._row_counts_file} is damaged ({error}): bring it back from a back-up") from None

    @property
    def _row_counts_file(self) -> Path:
        return self.folder / f"{self.party}.rows.json"

    def store_diverged(self, candidates: Mapping[str, str]) -> None:
        make_folder(self.folder, private=True)
        text = json.dumps({"job": self.job, "diverged": dict(candidates)})
        write_atomic(self._diverged_file, text.encode(), private=True)

    def read_diverged(self) -> Mapping[str, str]:
        """See `Keeper.read_diverged`.

        Raises:
            InputError: the file is damaged, or of another job.
        """
        if not self._diverged_file.exists():
            return {}
        try:
            found = json.loads(self._diverged_file.read_bytes())
            job, why = found["job"], {str(name): str(text) for name, text in found["diverged"].items()}
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise InputError(f"{self._diverged_file} is damaged ({error}): bring it back from a back-up") from None
        if job != self.job:
            raise InputError(f"{self._diverged_file} is of another job: use another folder for checkpoints")
        return why

    @property
    def _diverged_file(self) -> Path:
        return self.folder / f"{self.party}.diverged.json"

    def is_due(self, epoch: int) -> bool:
        return epoch % self.every == 0

    def save(self, epoch: int, state: dict[str, object], *, step: int = 0) -> None:
        make_folder(self.folder, private=True)
        self.journal.begin_attempt(self.start or 0)
        where: dict[str, object] = {
            "job": self.job,
            "party": self.party,
            "epoch": epoch,
            "data": self.data,
            "journal": self.journal.head,
        }
        where |= {"attempt": self.attempt, "step": step}
        write_tree(self.path_of(epoch, step), where | {"state": state})
        now = self._stage_of((epoch, step))
        stage = sorted(place for place in self.stored_positions() if self._stage_of(place) == now)
        for old in stage[:-_KEPT]:
            self.path_of(*old).unlink(missing_ok=True)
        self.saving()

    def _stage_of(self, place: tuple[int, int]) -> int:
        """The number of the model that a checkpoint belongs to; 0 if there is only one."""
        return bisect_left(self.ends, place[0] + (place[1] > 0))

    def forget_after(self, start: int, step: int = 0) -> None:
        """Put aside checkpoints after epoch `start` and `step` batches of the next one. They are of an attempt that
        broke off before all parties had them, and must not be mistaken for files of this attempt."""
        for place in self.stored_positions():
            if place > (start, step):
                self.path_of(*place).replace(self.path_of(*place).with_suffix(".left"))


class Damaged(InputError):
    """A checkpoint file's bits changed, or the file is not a checkpoint."""


def make_keepers(
    folder: Path,
    parties: Iterable[str],
    job: str,
    *,
    data: Mapping[str, Mapping[str, str]] | None = None,
    every: int = 1,
) -> dict[str, FolderKeeper]:
    """Make one keeper for each party, set to the last epoch that all of them saved intact.

    Args:
        folder: of the run.
        parties: who keep checkpoints.
        job: digest of the job.
        data: party → what its checkpoints belong to; see `data_digests`.
        every: epochs between two checkpoints.

    Raises:
        InputError: checkpoints are of another job or other data, were renamed, or lack their journal; no epoch is
            intact at every party (unless the run stopped while writing the first ones); or a party's journal lacks an
            attempt that another's records.
    """
    found = {name: FolderKeeper(folder, name, job, data=(data or {}).get(name), every=every) for name in parties}
    damaged: list[str] = []
    whole: dict[str, set[int]] = {name: set() for name in found}
    for name, keeper in found.items():
        for epoch in keeper.stored_epochs():
            try:
                keeper.read_state(epoch)
                whole[name].add(epoch)
            except Damaged as error:
                damaged.append(str(error))
    common = set.intersection(*whole.values())
    start = max(common, default=None)
    if start is None and (damaged or any(epochs - {every} for epochs in whole.values())):
        have = "; ".join(f"{name}: {', '.join(map(str, sorted(e))) or 'none'}" for name, e in sorted(whole.items()))
        raise InputError(
            f"{folder} has no epoch with an intact checkpoint of every party ({have}): bring the missing "
            "files back, or start from the beginning in another folder and add to ε yourself what was "
            "released so far" + "".join(f"; {text}" for text in damaged)
        )
    lost = describe_lost_attempts(
        {name: (keeper.journal.agreed, keeper.journal.attempt) for name, keeper in found.items()}
    )
    if lost:
        raise InputError(f"{folder}: {lost}")
    for keeper in found.values():
        keeper.start = start
        keeper.notes = [
            f"{text}; the run resumed from epoch {start}, which all parties saved intact" for text in damaged
        ]
        keeper.forget_after(start or 0)
    return found


@contextmanager
def lock_keepers(
    folder: Path, parties: Iterable[str], job: str, data: Mapping[str, Mapping[str, str]]
) -> Iterator[dict[str, FolderKeeper]]:
    """Yield `keepers` of a folder that this process locks and that only its owner can read.

    Raises:
        InputError: another process keeps its checkpoints there; or see `keepers`.
    """
    make_folder(folder, private=True)
    with lock_folder(folder, "a run keeps its checkpoints there; wait for it to end, or give another folder"):
        yield make_keepers(folder, parties, job, data=data)
