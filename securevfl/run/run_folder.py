"""A run's folder: created, probed and locked before anything runs, and written in the order that loses least in a
crash.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from itertools import count
from pathlib import Path
from uuid import uuid4

import numpy as np
from securevfl_net.durable import InUse, lock_folder, make_folder, write_atomic

from securevfl.data import FeatureEncoder, Parties
from securevfl.errors import InputError, SecureVFLError
from securevfl.run.partial_scoring import Asking
from securevfl.run.result import Result
from securevfl.run.run_files import LEDGERS, write_ledgers

__all__ = ["JOB_FILE", "RunFolder", "keep_ledgers", "keep_reported_answers"]

LEAST_FREE = 64 << 20
"""Bytes that must be free on the disk before a run begins."""

JOB_FILE = "job.toml"
"""The copy of the job file beside a model, for `securevfl predict RUN`."""

FINISHED = "metrics.json"
"""The file that makes a folder that of a finished run."""

_CURE = "wait for it to end, or give another folder with --out"


class RunFolder:
    """Folder of one run. Create it with `take`.

    Args:
        path: of the folder, which this process has locked.

    Attributes:
        path: of the folder.
        going: ``unfinished/``, or ``unfinished-2/`` and so on beside what runs that were killed left: what is written
            while the run goes. It goes away when the run ends well.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.going = _free_name(path, "unfinished")

    @classmethod
    @contextmanager
    def lock(cls, path: str | Path, *, overwrite: bool = False, numbered: bool = False) -> Iterator[RunFolder]:
        """Make, probe and lock a folder for one run, before the run does anything; unlock it at the end.

        If the run inside fails, what left before is written to ``failed/`` all the same. A folder in which nothing was
        written is removed.

        Args:
            path: of the folder.
            overwrite: whether results of a finished run that are there give way to new ones. They stay until the new
                run has ended well.
            numbered: whether the run takes ``NAME-2``, ``NAME-3`` and so on where a finished or a running one is in the
                way.

        Raises:
            InputError: a finished run is there; another process writes there; the folder cannot be written; or the
                disk is nearly full.
        """
        with ExitStack() as held:
            place = _prepare_folder(held, Path(path), overwrite=overwrite, numbered=numbered)
            folder = cls(place)
            with keep_ledgers(place, folder.going):
                yield folder
            folder.forget_going()

    def forget_going(self) -> None:
        """Remove what was written during the run. Final copies exist, so a file that cannot be removed does no harm."""
        shutil.rmtree(self.going, ignore_errors=True)

    @property
    def ledgers(self) -> Path:
        """Folder for the parties' ledgers while the run goes: ``securevfl audit`` reads `going` after a kill."""
        return self.going / LEDGERS

    @property
    def model(self) -> Path:
        """Folder of the model."""
        return self.path / "model"

    def write_result(self, result: Result, *, parties: Parties | None = None, job_file: bytes = b"") -> Path:
        """Write a finished run: the model, then ledgers, scores and figures, the page with its pictures at last.

        Args:
            result: of the run.
            parties: the tables that it was trained on: the test rows' scores are then answers that `predict` gives
                again.
            job_file: content of the job file, of which the model's folder gets a copy.

        Results of an earlier run go when the new model is on the disk. What was written stays when something after it
        cannot be.

        Returns:
            The page's path.

        Raises:
            InputError: the page could not be written; the message lists the files that were.
            OSError: something else could not.
        """
        if result.models:
            self._replace_model(result, parties, job_file)
        try:
            return result.report(self.path)
        except InputError:  # the page alone is missing
            self.forget_going()
            raise

    def _replace_model(self, result: Result, parties: Parties | None, job_file: bytes) -> None:
        """The model, whole or as it was before: parts of another run's parties do not stay beside the new ones."""
        new, old = self.path / f".model-{uuid4().hex}", self.path / f".model-{uuid4().hex}"
        try:
            result.model().save(new)
            if job_file:
                write_atomic(new / JOB_FILE, job_file, private=True)
            if parties is not None:
                keep_reported_answers(result, parties, new / "answers")
        except BaseException:
            shutil.rmtree(new, ignore_errors=True)  # a name that nothing else has; the error itself is raised
            raise
        (self.path / FINISHED).unlink(missing_ok=True)  # from here on it is a folder without a finished run
        if self.model.exists():
            os.replace(self.model, old)
        os.replace(new, self.model)
        shutil.rmtree(old, ignore_errors=True)


def _prepare_folder(held: ExitStack, path: Path, *, overwrite: bool, numbered: bool) -> Path:
    """Choose and prepare the run's folder; `held` releases its lock."""
    for number in count(1):
        place = path if number == 1 else path.with_name(f"{path.name}-{number}")
        with ExitStack() as trying:
            trying.callback(_remove_empty, [new for new in (place, *place.parents) if not new.exists()])
            make_folder(place, private=not place.exists())
            try:
                trying.enter_context(lock_folder(place, _CURE))
            except InUse:
                if numbered:
                    continue
                raise
            if overwrite or not (place / FINISHED).exists():
                _probe_folder(place)
                held.enter_context(trying.pop_all())
                return place
        if not numbered:
            break
    raise InputError(f"{path} contains a finished run: give another folder with --out, or --overwrite to replace it")


@contextmanager
def keep_ledgers(folder: Path, going: Path | None = None) -> Iterator[None]:
    """If the block fails or is interrupted, keep its ledgers in ``failed/`` (then ``failed-2/`` and so on): those
    written during the run, or those that the error carries.

    Args:
        folder: where.
        going: whose ``ledgers/`` were written while the run went.
    """
    try:
        yield
    except (SecureVFLError, KeyboardInterrupt) as error:
        place, carried = _free_name(folder, "failed"), getattr(error, "ledgers", ())
        try:
            if going is not None and any((going / LEDGERS).glob("*.jsonl")):
                os.replace(going, place)
            elif any(ledger.message_count for ledger in carried):
                write_ledgers(carried, place)
            elif going is not None:
                shutil.rmtree(going, ignore_errors=True)
        except OSError as second:  # a full disk, perhaps the one that ended the run
            error.add_note(f"what left before could not be written to {place / LEDGERS}: {second}")
        if place.exists():
            error.add_note(f"what left before is in {place / LEDGERS}")
        raise


def _free_name(folder: Path, name: str) -> Path:
    """A name in the folder that nothing has: with a number, where something has it."""
    names = (name if number == 1 else f"{name}-{number}" for number in count(1))
    return next(folder / one for one in names if not (folder / one).exists())


def _probe_folder(folder: Path) -> None:
    """Find out now, and not after training, that a folder cannot be written or the disk is full."""
    probe = folder / ".probe"
    try:
        free = shutil.disk_usage(folder).free
        probe.write_bytes(bytes(1 << 16))
    except OSError as error:
        raise InputError(f"{folder} cannot be written ({error.strerror}): choose another folder with --out") from None
    finally:
        with suppress(OSError):
            probe.unlink(missing_ok=True)
    if free < LEAST_FREE:
        raise InputError(
            f"{folder} is on a disk with {free >> 20} MiB left; a run begins with at least {LEAST_FREE >> 20} MiB: "
            "make room, or choose another folder with --out"
        )


def _remove_empty(folders: Sequence[Path]) -> None:
    """Remove folders in which nothing was written, the deepest first."""
    with suppress(OSError):
        for folder in folders:
            folder.rmdir()


def keep_reported_answers(result: Result, parties: Parties, folder: str | Path) -> int:
    """Keep the scores of a result's test rows as answers of its last model, beside which `predict` finds them.

    To score these rows again would cost numbers of the partners' rows a second time (`Policy.max_results`), and give
    other digits where an answer is rounded or noised at random: on secret shares, and under differential privacy.

    Args:
        result: of a finished run.
        parties: the tables that it was trained on.
        folder: of the model's answers.

    Returns:
        How many were kept; none where a model is not that of one label owner.
    """
    key = next(reversed(result.models), "")
    scores = result.scores.get(key)
    if scores is None or not len(scores) or len(parties.label_owners) != 1:
        return 0
    model, active = result.models[key], parties.active
    if active.name not in model.parts or any(name not in parties for name in model.owners):
        return 0
    who = (active.name, *sorted(name for name in model.owners if name != active.name))
    kept = Asking(answers=Path(folder), model=model.digest).open_answers(who, parties)
    if kept is None:
        return 0
    at = {name: row for row, name in enumerate(active.ids)}
    rows = np.array([at[name] for name in result.test_ids], dtype=np.int64)
    own = FeatureEncoder.from_state(model.parts[active.name]["encoder"]).transform(active, rows)
    kept.put(kept.row_keys(result.test_ids, own), scores)
    return len(scores)
