"""The parties that a job file names, and the rules of their policies that a job breaks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from securevfl_net.fields import suggest_nearest

from securevfl.errors import InputError
from securevfl.jobfile.job_file import JobSections
from securevfl.party import Job, rule_against
from securevfl.run.roster import Roster

__all__ = ["listed_roster", "policy_refusals", "roster_of"]


_PREDICT = "; to predict without them, name it with --active"


def listed_roster(sections: Sequence[object], active: str) -> tuple[Roster | None, list[str]]:
    """The parties by ``[[party]]``, including sections with mistakes, and the problems found."""
    named = [one for one in sections if isinstance(one, Mapping) and isinstance(one.get("name"), str)]
    names = [str(one["name"]) for one in named]
    if active and active not in names:
        return None, [f"--active is {active!r}{suggest_nearest(active, names)}"]
    owners = [active] if active else [str(one["name"]) for one in named if "label" in one]
    if not owners:
        return None, [f"none of {len(names)} parties owns labels; give label = … for the one that does{_PREDICT}"]
    return Roster(owners=tuple(owners), passive=tuple(name for name in names if name not in owners)), []


def policy_refusals(job: Job, roster: Roster, *, predicts: bool = False) -> list[str]:
    """The rules of the parties' policies that the job breaks.

    Args:
        job: the job.
        roster: its parties.
        predicts: whether the job is trained, and rows are predicted by its model.
    """
    found = []
    for name in [*roster.owners, *roster.passive]:
        for owner in [name] if name in roster.owners else roster.owners:
            rule = rule_against(
                job,
                name,
                active=owner,
                passive=roster.passive,
                pairwise=owner in roster.books,
                predicts=predicts,
                simulated=True,
            )
            found += [f"{name!r} refuses the job: {rule}"] if rule else []
    return found


def roster_of(sections: JobSections, content: Mapping[str, Any], active: str = "") -> tuple[Roster | None, list[str]]:
    """The parties of a job file (None if they cannot be determined), and the problems found.

    Args:
        sections: of the file.
        content: of the file, as TOML.
        active: name of the active party, where no table has labels: to predict.
    """
    if isinstance(content.get("party"), list):
        return listed_roster(content["party"], active)
    if sections.data is None or sections.data_mistakes():
        return None, []
    try:
        return _load_dataset(sections), []
    except InputError as error:
        return None, [f"data: {error}"]


def _load_dataset(sections: JobSections) -> Roster:
    """The parties of a named data set.

    Raises:
        InputError: it cannot be loaded.
    """
    return Roster.from_tables(sections.load_parties(Path(), ""))
