"""Own tables in a sweep file: ``[[party]]`` sections, as in a job file, in place of named data sets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from securevfl.experiments.sweep_sections import Axis, DataSection, SweepSections
from securevfl.jobfile.job_file import PartySection, doubled_parties
from securevfl.jobfile.job_roster import Roster, listed_roster

__all__ = ["OWN", "over_own_tables", "own_policies", "own_roster", "task_of"]

OWN = "tables"
"""Names own tables in a cell's source; beside it stands their digest."""
_TITLE = "own tables"


def task_of(sections: SweepSections) -> str:
    """The task of all jobs, by the file's ``[job]``."""
    task = sections.job.get("task", "classification")
    return task if isinstance(task, str) else "classification"


def over_own_tables(sections: SweepSections) -> SweepSections:
    """The sections with own tables as their only data set, called after the label, and with one position where the file
    has no axis."""
    labels = [party.label for party in sections.party if party.label]
    title = (labels[0] if isinstance(labels[0], str) else ", ".join(labels[0])) if labels else _TITLE
    axis = sections.axis
    if not axis.values and not axis.protection:
        axis = Axis(name="tables", unit="category", values=(_TITLE,))
    data = (DataSection(name=_TITLE, label=title[:80]),) if sections.party else ()
    return sections.replace(data=data, axis=axis)


def own_policies(parties: Sequence[PartySection]) -> Mapping[str, Any]:
    """What a cell holds of the parties' policies, in plain values; nothing where there are none."""
    held = {party.name: party.policy.describe() for party in parties if party.policy is not None}
    return {"policies": held} if held else {}


def own_roster(sections: SweepSections, content: Mapping[str, Any]) -> tuple[Roster | None, list[str]]:
    """Who takes part by ``[[party]]``, and what is wrong with that.

    Args:
        sections: of the file, as it is.
        content: of the file, as TOML.
    """
    found = doubled_parties(sections.party)
    if "data" in content:
        found.append("a sweep file has either [[data]] sections (named data sets) or [[party]] sections (own tables)")
    if sections.axis.values and not sections.axis.protection:
        found.append(
            f"axis.values are of the option {sections.axis.option!r} of named data sets, and own tables have none: "
            "give [axis.protection] a protection for each, leave [axis] out, or sweep settings of a job file: "
            "securevfl sweep job.toml --over SETTING=VALUES"
        )
    found += [
        f"method[{i}].data is for named data sets: leave it out" for i, one in enumerate(sections.method) if one.data
    ]
    found += [
        f"party[{i}].link: sweep files do not link; sweep the job file: securevfl sweep job.toml --over SETTING=VALUES"
        for i, one in enumerate(sections.party)
        if one.link
    ]
    if not isinstance(content["party"], list):
        return None, found
    roster, wrong = listed_roster(content["party"], "")
    return roster, found + wrong
