"""Job files: what they say is what runs; what they get wrong is said with its place and the nearest name."""

from __future__ import annotations

from pathlib import Path

import pytest

import securevfl as sv
from securevfl.transport import Kind

ROOT = Path(__file__).parents[2]
DATA = '[data]\nname = "breast_cancer"\n'


def _read(folder: Path, text: str) -> sv.jobs.JobFile:
    path = folder / "job.toml"
    path.write_text(text, encoding="utf-8")
    return sv.read_job(path)


def test_the_example_is_what_it_says() -> None:
    file = sv.read_job(ROOT / "examples" / "credit.toml")
    assert file.name == "credit"
    assert file.baselines == ("alone", "pooled")
    assert file.job == sv.Job(
        algorithm=sv.SplitNN(hidden=16, top=(16,), lr=0.005, cut_lr=1.0), epochs=5, batch_size=256, seed=0
    )
    assert set(file.parties) == {"bank", "network", "retailer"}


def test_everything_can_be_said_in_a_file(tmp_path: Path) -> None:
    file = _read(
        tmp_path,
        DATA
        + """
overlap = 0.95
[job]
epochs = 3
patience = 2
clip = 4.0
scale = "quantile"
[algorithm]
name = "splitnn"
bottom = [8]
weight_decay = 0.001
[protection]
name = "paillier"
bits = 3072
[protection.dp.labels]
mechanism = "gaussian"
epsilon = 4.0
[policy.lab]
sealed = true
forbidden = ["metric"]
max_epsilon = 5
""",
    )
    job = file.job
    assert file.name == "job"
    assert job.protection == sv.Paillier(bits=3072, dp=sv.DP(labels=sv.Gaussian(epsilon=4.0)))
    assert (job.epochs, job.patience, job.clip, job.scale) == (3, 2, 4.0, "quantile")
    assert job.algorithm == sv.SplitNN(bottom=(8,), weight_decay=0.001)
    assert job.policies["lab"] == sv.Policy(sealed=True, forbidden=frozenset({Kind.METRIC}), max_epsilon=5)


def test_tables_are_found_beside_the_job_file(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("k,x,y\n1,2,0\n2,3,1\n", encoding="utf-8")
    (tmp_path / "b.csv").write_text("k,z\n1,5\n2,6\n", encoding="utf-8")
    file = _read(
        tmp_path,
        """
[[party]]
name = "a"
file = "a.csv"
id = "k"
label = "y"
[[party]]
name = "b"
file = "b.csv"
id = "k"
""",
    )
    assert file.parties.active.name == "a"
    assert file.parties["b"].ids == ("1", "2")


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("[jop]\n" + DATA, "unknown section 'jop'; did you mean 'job'"),
        (DATA + "[job]\nepoch = 3", r"unknown key in \[job\] 'epoch'; did you mean 'epochs'"),
        (DATA + '[job]\nepochs = "3"', "job.epochs is '3'; a whole number was expected"),
        (DATA + "[job]\nepochs = true", "job.epochs is True"),
        (DATA + "[job]\nepochs = 2.5", "job.epochs is 2.5; a whole number was expected"),
        (DATA + "[job]\nscale = 3", "job.scale is 3; a text was expected"),
        (DATA + '[job]\nclip = "5"', "job.clip is '5'; a number was expected"),
        (DATA + '[protection]\nname = "plain"\nfixed_point = 1', "true or false was expected, like false"),
        (DATA + "[job]\nepochs = 0", "epochs is 0"),
        (DATA + '[algorithm]\nname = "splitn"', "unknown algorithm 'splitn'; did you mean 'splitnn'"),
        (DATA + "[algorithm]\nhidden = 3", "names none; add name"),
        (DATA + '[protection]\nname = "pallier"', "unknown protection 'pallier'; did you mean 'paillier'"),
        (DATA + '[protection]\nname = "rot13"', "unknown protection 'rot13'. Known: auto, bfv, ckks, paillier, plain"),
        (DATA + '[protection]\nname = "paillier"\nbitz = 3', "did you mean 'bits'"),
        (DATA + '[protection]\nname = "paillier"\nbits = 1024', "2048 .* is the least"),
        (
            DATA + '[protection]\nname = "plain"\n[protection.dp.labels]\nmechanism = "marvell"\npowr = 3',
            "did you mean 'power'",
        ),
        (DATA + '[protection]\nname = "plain"\n[protection.dp]\nepsilon = 3', "takes mechanisms now"),
        (DATA + "[policy.lab]\nsealt = true", "did you mean 'sealed'"),
        (DATA + '[policy.lab]\nforbidden = ["metrics"]', "unknown message kind 'metrics'; did you mean 'metric'"),
        ('baselines = ["alon"]\n' + DATA, "unknown baseline 'alon'; did you mean 'alone'"),
        ('[data]\nname = "brest_cancer"', "did you mean 'breast_cancer'"),
        ("[data]\noverlap = 0.5", "data.name is None"),
        ("[job]\nepochs = 2", "either a .data. section"),
        ('[party]\nname = "a"', "double brackets"),
        ('[[party]]\nname = "a"\nfile = "a.csv"', "names no id column"),
        ('[[party]]\nname = "a"\nfile = "a.csv"\nid = "k"', "a.csv does not exist"),
        ('[[party]]\nname = "a"\nflie = "a.csv"', "did you mean 'file'"),
        ('name = "a/b"\n' + DATA, "names the run's folder"),
        ("job = 3\n" + DATA, "job is 3; it has to be a section"),
        ("[job\n", "is not TOML"),
    ],
)
def test_mistakes_are_named(tmp_path: Path, text: str, match: str) -> None:
    with pytest.raises(sv.InputError, match=match):
        _read(tmp_path, text)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(sv.InputError, match="does not exist"):
        sv.read_job(tmp_path / "none.toml")
