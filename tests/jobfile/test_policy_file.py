"""Policies in files of their own: read, held against jobs, and the changes that all parties accept."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

import securevfl as sv
from securevfl import cli
from securevfl.checks import check_policy
from securevfl.jobfile import read_job, read_policy
from securevfl.jobfile.policy_file import with_policies

PAGE = Path(__file__).parents[2] / "docs/howto/policy-file.md"
BLOCK = re.compile(r"```(toml|console)\n(.*?)```", re.DOTALL)

JOB = """
[job]
epochs = 2
[algorithm]
name = "splitnn"
bottom = [8]
[data]
name = "breast_cancer"
"""


def _files(folder: Path, policy: str, job: str = JOB) -> tuple[Path, Path]:
    (folder / "job.toml").write_text(job, encoding="utf-8")
    (folder / "lab.toml").write_text(policy, encoding="utf-8")
    return folder / "job.toml", folder / "lab.toml"


def test_the_page_does_what_it_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(cli.terminal, "out", cli.Console(width=200))
    monkeypatch.setattr(cli.terminal, "err", cli.Console(stderr=True, width=200))
    code, ran, said = 0, 0, ""
    for kind, content in BLOCK.findall(PAGE.read_text(encoding="utf-8")):
        if kind == "toml":
            name = "lab.toml" if content.startswith("party") else "job.toml"
            Path(name).write_text(content, encoding="utf-8")
            continue
        for line in content.splitlines():
            if line == "$ echo $?":
                said = str(code)
            elif line.startswith("$ securevfl "):
                with pytest.raises(SystemExit) as ended:
                    cli.main(shlex.split(line)[2:])
                code, captured = int(str(ended.value.code or 0)), capsys.readouterr()
                said, ran = captured.out + captured.err, ran + 1
            else:
                assert line in said, f"{line!r} is on the page and was not said: {said}"
    assert ran == 3


def test_each_proposed_change_is_accepted_and_the_job_as_it_is_is_not(tmp_path: Path) -> None:
    job, lab = _files(tmp_path, 'party = "lab"\nleaks = false\nmax_results = "unlimited"\n')
    found = check_policy(job, lab)
    assert found.exit_code == 3
    assert found.refusals
    assert found.cures
    for cure in found.cures:
        content = JOB + "[protection]\nname = 'plain'\n"
        for line in cure.split(" and "):
            section, _, rest = line.partition(".")
            if rest.startswith("name"):
                content = content.replace("name = 'plain'", rest)
            elif section == "protection":
                content += rest + "\n"
            else:
                content = content.replace("bottom = [8]", rest)
        changed, _ = _files(tmp_path, lab.read_text(), content)
        assert check_policy(changed, lab).exit_code == 0, cure


def test_proposals_satisfy_the_other_party_s_policy_too(tmp_path: Path) -> None:
    both = JOB + '[policy.clinic]\nprotections = ["plain"]\nmax_epsilon = 2.0\n'
    job, lab = _files(tmp_path, 'party = "lab"\nmax_epsilon = 1.0\n', both)
    [cure, *_] = check_policy(job, lab).cures
    assert "dp.features" in cure
    assert "epsilon = 1 " in cure
    assert "dp.labels" in cure
    assert "epsilon = 2 " in cure
    assert "bfv" not in cure


SHARED = """
[job]
epochs = 2
[algorithm]
name = "logistic_regression"
[data]
name = "default_credit"
rows = 600
[protection]
name = "shares"
"""


def test_a_job_is_held_against_the_numbers_of_a_row_that_the_policy_allows(tmp_path: Path) -> None:
    job, lab = _files(tmp_path, 'party = "lab"\n')
    (refusal,) = check_policy(job, lab).refusals
    assert re.search(r"max_results: the job plans 32 numbers of one row .* default, max_results = 2, allows 2", refusal)
    _, lab = _files(tmp_path, 'party = "lab"\nmax_results = 32\n')
    found = check_policy(job, lab)
    assert found.exit_code == 0
    assert found.results == (
        "It opens at least 32 numbers of each row that it uses for clinic, who may have 32 ever; each prediction later "
        "costs 16 more."
    )
    _, lab = _files(tmp_path, 'party = "lab"\nmax_results = 31\n')
    assert "max_results = 31 allows 31" in check_policy(job, lab).refusals[0]
    _, lab = _files(tmp_path, 'party = "lab"\nmax_results = 16\n')
    assert check_policy(job, lab, active="clinic").exit_code == 0  # a prediction by its model
    shared, network = _files(tmp_path, 'party = "network"\nmax_results = 1\n', SHARED)
    found = check_policy(shared, network)
    assert (found.exit_code, found.results.split(" for ")[0]) == (
        0,
        "It opens at least 1 number of each row that it uses",
    )


def test_what_no_change_satisfies_proposes_nothing(tmp_path: Path) -> None:
    job, lab = _files(tmp_path, 'party = "lab"\nprotections = ["paillier"]\nforbidden = ["ciphertext"]\n')
    found = check_policy(job, lab)
    assert found.refusals
    assert not found.cures


def test_every_mistake_of_a_policy_file_is_told_at_once(tmp_path: Path) -> None:
    _, lab = _files(tmp_path, "leeks = false\nmax_epsilon = -1\n")
    with pytest.raises(sv.InputError) as raised:
        read_policy(lab)
    for words in ("it does not name its party", "'leeks'; did you mean 'leaks'", "policy.max_epsilon is -1"):
        assert words in str(raised.value)


@pytest.mark.parametrize(
    ("content", "words"),
    [("party = 3", "does not name its party"), ("party = ", "not TOML"), ("", "does not name its party")],
)
def test_a_file_that_is_no_policy(tmp_path: Path, content: str, words: str) -> None:
    with pytest.raises(sv.InputError, match=words):
        read_policy(_files(tmp_path, content)[1])


def test_a_policy_of_nobody_is_refused_with_the_nearest_name(tmp_path: Path) -> None:
    job, lab = _files(tmp_path, 'party = "labs"\n')
    with pytest.raises(sv.UnknownNameError, match="lab"):
        check_policy(job, lab)


def test_a_party_with_two_policies_gets_the_stricter_on_each_point(tmp_path: Path) -> None:
    _, lab = _files(tmp_path, 'party = "lab"\nmax_epsilon = 4.0\nmin_intersection = 5\n')
    joined = with_policies({"lab": sv.Policy(max_epsilon=8.0, min_intersection=50)}, [lab])
    assert joined["lab"].max_epsilon == 4.0
    assert joined["lab"].min_intersection == 50


def test_a_run_holds_the_policy_file(tmp_path: Path) -> None:
    job, lab = _files(tmp_path, 'party = "lab"\nsealed = true\n')
    file = read_job(job, policies=[lab], accept_leak=True)
    with pytest.raises(sv.PolicyError, match="'lab' refuses the job"):
        sv.simulate(file.job, file.parties)
