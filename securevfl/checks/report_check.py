"""What a job file's section ``[report]`` asks for and its tables cannot give."""

from __future__ import annotations

from pathlib import Path

from securevfl.data import TableLimits
from securevfl.data.link_columns import table_columns
from securevfl.errors import InputError, UnknownNameError
from securevfl.jobfile.job_file import JobSections

__all__ = ["group_mistakes"]


def group_mistakes(sections: JobSections, folder: Path, owner: str) -> list[str]:
    """Mistakes in ``group``: a party or a column that does not exist. Tables that cannot be read are reported elsewhere.

    Args:
        sections: of the job file.
        folder: of the file.
        owner: the label owner.
    """
    where = sections.report.grouping(owner)
    if where is None or not sections.party:
        return []
    party, column = where
    section = next((one for one in sections.party if one.name == party), None)
    if section is None:
        return [str(UnknownNameError("party of report.group", party, [one.name for one in sections.party]))]
    try:
        columns = table_columns(section.path_from(folder), TableLimits())
    except InputError:
        return []
    if column in columns:
        return []
    return [str(UnknownNameError(f"column of {party!r} in report.group:", column, columns))]
