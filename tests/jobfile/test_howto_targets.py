"""docs/howto/targets.md: its code runs as it stands, and its job file is one."""

import re
import tomllib
from pathlib import Path

from securevfl.jobfile.job_file import JobSections

PAGE = (Path(__file__).parents[2] / "docs" / "howto" / "targets.md").read_text(encoding="utf-8")


def _blocks(kind: str) -> list[str]:
    return re.findall(rf"^```{kind}\n(.*?)^```", PAGE, re.S | re.M)


def test_the_code_runs_and_prints_what_the_page_says(capsys) -> None:
    names: dict[str, object] = {}
    for block in _blocks("python"):
        exec(block, names)  # noqa: S102 - the page that users read
    printed = capsys.readouterr().out.splitlines()
    assert printed[0] == "['deviance', 'mae', 'r2', 'rmse']"
    assert names["weighed"].evaluation.weighted  # type: ignore[attr-defined]
    assert names["found"].deviation["rmse"] > 0  # type: ignore[attr-defined]


def test_the_job_file_is_one() -> None:
    (text,) = _blocks("toml")
    sections = JobSections.from_values(tomllib.loads(text))
    job = sections.build_job()
    assert (job.task, job.loss, job.split_by, sections.folds) == ("regression", "poisson", "time", 5)
    assert sections.party[0].with_task(job.task).column_use.role_columns == {
        "label": "claims",
        "weight": "exposure",
        "time": "month",
    }
