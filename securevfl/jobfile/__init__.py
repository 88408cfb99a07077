"""Read and write job files: TOML in, a job and its parties out.

- `job_file`, `toml_text`, `policy_file`: reading, with every mistake of a file in one error.
- `job_roster`: the parties and their roles, from the file and the tables' headers.
- `drafting`, `joining`: a first job file from tables, for `securevfl init`.
"""

from securevfl.jobfile.job_file import JobFile, read_job
from securevfl.jobfile.policy_file import read_policy

__all__ = [
    "JobFile",
    "read_job",
    "read_policy",
]
