"""Checkpoints: each party keeps its own state after an epoch, and a run that broke off goes on from the last epoch that
all parties have."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from securevfl.errors import InputError
from securevfl.jobs.store import read_tree, write_tree
from securevfl.site import Keeper

__all__ = ["FolderKeeper", "keepers"]

_KEPT = 2


class FolderKeeper(Keeper):
    """Keeps one party's checkpoints in a folder, the last two of them.

    Args:
        folder: of the run.
        party: whose.
        job: digest of the job; checkpoints of another job are refused.
        every: epochs between two checkpoints.
    """

    def __init__(self, folder: Path, party: str, job: str, *, every: int = 1) -> None:
        self.folder = folder
        self.party = party
        self.job = job
        self.every = every
        self.start: int | None = None

    def epochs(self) -> set[int]:
        """Epochs of which there is a checkpoint."""
        pattern = re.compile(re.escape(self.party) + r"\.epoch-(\d+)\.safetensors")
        found = (pattern.fullmatch(file.name) for file in self.folder.glob(f"{self.party}.epoch-*.safetensors"))
        return {int(match[1]) for match in found if match}

    def path(self, epoch: int) -> Path:
        """Where the checkpoint after `epoch` lies."""
        return self.folder / f"{self.party}.epoch-{epoch}.safetensors"

    def saved(self) -> dict[str, object] | None:
        """See `Keeper.saved`.

        Raises:
            InputError: the checkpoint is of another job, or damaged.
        """
        if self.start is None:
            return None
        tree = read_tree(self.path(self.start))
        if not isinstance(tree, dict) or not isinstance(tree.get("state"), dict):
            raise InputError(f"{self.path(self.start)} is damaged, or was not written by securevfl")
        if tree.get("job") != self.job or tree.get("party") != self.party:
            raise InputError(
                f"{self.path(self.start)} is of another job or party: use another folder for checkpoints, or the same "
                "job file as before"
            )
        state: dict[str, object] = tree["state"]
        return state

    def wants(self, epoch: int) -> bool:
        return epoch % self.every == 0

    def save(self, epoch: int, state: dict[str, object]) -> None:
        write_tree(self.path(epoch), {"job": self.job, "party": self.party, "epoch": epoch, "state": state})
        for old in sorted(self.epochs())[:-_KEPT]:
            self.path(old).unlink(missing_ok=True)


def keepers(folder: Path, parties: Iterable[str], job: str, *, every: int = 1) -> dict[str, FolderKeeper]:
    """One keeper for each party, set to the last epoch that all of them have."""
    found = {name: FolderKeeper(folder, name, job, every=every) for name in parties}
    common = set.intersection(*(keeper.epochs() for keeper in found.values()))
    for keeper in found.values():
        keeper.start = max(common, default=None)
    return found
