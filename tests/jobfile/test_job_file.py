"""Job files: what they say is what runs; what they get wrong is said with its place and the nearest name."""

from __future__ import annotations

from pathlib import Path

import pytest

import securevfl as sv
from securevfl.jobfile.toml_text import read_toml
from securevfl.transport import Kind

ROOT = Path(__file__).parents[2]
DATA = '[data]\nname = "breast_cancer"\n'


def _read(folder: Path, text: str) -> sv.jobfile.JobFile:
    path = folder / "job.toml"
    path.write_text(text, encoding="utf-8")
    return sv.read_job(path)


def test_the_example_is_what_it_says() -> None:
    file = sv.read_job(ROOT / "examples" / "credit.toml")
    assert file.name == "credit"
    assert file.baselines == ("alone", "pooled")
    assert file.job == sv.Job(
        protection=sv.Plain(),
        algorithm=sv.SplitNN(hidden=16, top=(16,), lr=0.005, cut_lr=1.0),
        epochs=5,
        batch_size=256,
        seed=0,
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
        ("[jop]\n" + DATA, "the file has no 'jop'; did you mean 'job'"),
        (DATA + "[job]\nepoch = 3", "job has no 'epoch'; did you mean 'epochs'"),
        (DATA + '[job]\nepochs = "3"', "job.epochs is '3'; a whole number from 1 to 100000 was expected"),
        (DATA + "[job]\nepochs = true", "job.epochs is True"),
        (DATA + "[job]\nepochs = 2.5", "job.epochs is 2.5; a whole number from 1"),
        (
            DATA + "[job]\nscale = 3",
            "job.scale is 3; one of 'auto', 'standard', 'quantile', 'robust', 'none' was expected",
        ),
        (DATA + '[job]\nclip = "5"', "job.clip is '5'; a number above 0 and below 8 was expected"),
        (DATA + "[job]\nvalid = 0.5\ntest = 0.5", "valid is 0.5 and test is 0.5; together they are less than 1"),
        (DATA + '[job]\ndevice = "tpu"', "device 'tpu' is not there"),
        (
            DATA + '[protection]\nname = "plain"\nfixed_point = 1',
            "protection.fixed_point is 1; true or false was expected",
        ),
        (DATA + "[job]\nepochs = 0", "job.epochs is 0"),
        (DATA + '[algorithm]\nname = "splitn"', "algorithm.name is 'splitn'; did you mean 'splitnn'"),
        (DATA + '[algorithm]\nname = ["splitnn"]', r"algorithm.name is \['splitnn'\]"),
        ("algorithm = []\n" + DATA, r"algorithm is \[\]"),
        (DATA + "[algorithm]\nhidden = 3", "algorithm has no name; add name = one of"),
        (DATA + '[protection]\nname = "pallier"', "protection.name is 'pallier'; did you mean 'paillier'"),
        (DATA + '[protection]\nname = "rot13"', "protection.name is 'rot13'; known: 'auto', 'bfv', 'ckks', 'paillier'"),
        (DATA + '[protection]\nname = "paillier"\nbitz = 3', "protection has no 'bitz'; did you mean 'bits'"),
        (DATA + '[protection]\nname = "paillier"\nbits = 1024', "from 2048 to 8192 was expected"),
        (
            DATA
            + '[protection]\nname = "plain"\n[protection.dp.labels]\nmechanism = "randomised_response"\nepsilom = 3',
            "protection.dp.labels has no 'epsilom'; did you mean 'epsilon'",
        ),
        (
            DATA + '[protection]\nname = "plain"\n[protection.dp.features]\nmechanism = "gaussian"\nepsilon = -1',
            "protection.dp.features.epsilon is -1; a number above 0 was expected",
        ),
        (DATA + '[protection]\nname = "plain"\n[protection.dp]\nepsilon = 3', "protection.dp has no 'epsilon'"),
        (DATA + "[policy.lab]\nsealt = true", "policy.lab has no 'sealt'; did you mean 'sealed'"),
        (DATA + "[policy.lab]\nmin_security = 300", "policy.lab.min_security is 300; a whole number from 0 to 256"),
        (
            DATA + '[policy.lab]\nforbidden = ["metrics"]',
            r"policy.lab.forbidden\[0\] is 'metrics'; did you mean 'metric'",
        ),
        (DATA + '[policy.lab]\nforbidden = ["control"]', "policy.lab: forbidden holds 'control'"),
        ("policy = 3\n" + DATA, "policy is 3; names with "),
        ('baselines = ["alon"]\n' + DATA, r"baselines\[0\] is 'alon'; did you mean 'alone'"),
        ('[data]\nname = "brest_cancer"', "data.name is 'brest_cancer'; did you mean 'breast_cancer'"),
        ("[data]\noverlap = 0.5", "data.name is None"),
        ('[data]\nname = ["breast_cancer"]', r"data.name is \['breast_cancer'\]"),
        (DATA + 'overlap = "most"', "data.overlap is 'most'; a number was expected"),
        (DATA + "overlp = 0.5", "data has no 'overlp'; did you mean 'overlap'"),
        ("[job]\nepochs = 2", "either a .data. section"),
        ('[party]\nname = "a"', "double brackets"),
        ('[[party]]\nname = "a"\nfile = "a.csv"', r"party\[0\].id is missing"),
        ('[[party]]\nname = "a"\nfile = "a.csv"\nid = "k"', r"party\[0\]: .*a.csv does not exist"),
        ('[[party]]\nname = "a"\nflie = "a.csv"', r"party\[0\] has no 'flie'; did you mean 'file'"),
        ('[[party]]\nname = "A B"\nfile = "a.csv"\nid = "k"', "names are lower-case words"),
        ('[[party]]\nname = "a"\nfile = "a.csv"\nid = "k"\nclasses = [[1]]', r"party\[0\].classes\[0\] is \[1\]"),
        (2 * '[[party]]\nname = "a"\nfile = "a.csv"\nid = "k"\n', "two parties are called 'a'"),
        (
            '[[party]]\nname = "a"\nfile = "a.csv"\nid = "k"\n[party.policy]\nsealed = true\n'
            "[policy.a]\nsealed = false",
            "'a' has two policies",
        ),
        ("party = [3]", r"party\[0\] is 3"),
        ('name = "a/b"\n' + DATA, "names the run's folder"),
        ('name = ".."\n' + DATA, "names the run's folder"),
        ("job = 3\n" + DATA, "job is 3; JobOptions"),
        ("[job\n", "is not TOML"),
    ],
)
def test_mistakes_are_named(tmp_path: Path, text: str, match: str) -> None:
    with pytest.raises(sv.InputError, match=match):
        _read(tmp_path, text)


def test_all_mistakes_are_told_at_once(tmp_path: Path) -> None:
    text = """
baselines = ["alon"]
[jop]
[job]
epochs = 0
clip = 9
[algorithm]
name = "splitnn"
hidden = -1
[protection]
name = "plain"
[protection.dp]
epsilon = 3
[policy.lab]
min_masking = -1
[data]
name = "breast_cancer"
seed = "x"
"""
    with pytest.raises(sv.InputError, match="has 8 mistakes") as raised:
        _read(tmp_path, text)
    for words in (
        "alon",
        "jop",
        "job.epochs",
        "job.clip",
        "algorithm.hidden",
        "protection.dp has no 'epsilon'",
        "policy.lab.min_masking",
    ):
        assert words in str(raised.value)
    assert "data.seed is 'x'; a whole number" in str(raised.value)


def test_every_table_that_does_not_load_is_named(tmp_path: Path) -> None:
    text = "".join(f'[[party]]\nname = "{name}"\nfile = "{name}.csv"\nid = "k"\n' for name in "ab")
    with pytest.raises(sv.InputError, match=r"(?s)a\.csv does not exist.*b\.csv does not exist"):
        _read(tmp_path, text)


def test_a_protection_that_the_algorithm_cannot_have_is_a_policy_error(tmp_path: Path) -> None:
    with pytest.raises(sv.PolicyError, match="cannot seal it"):
        _read(tmp_path, DATA + '[algorithm]\nname = "fedcvt"\n[protection]\nname = "bfv"')


def test_texts_that_only_look_like_toml(tmp_path: Path) -> None:
    with pytest.raises(sv.InputError, match=r"is not a job file: .*recursion"):
        _read(tmp_path, "x = " + "[" * 5_000)
    with pytest.raises(sv.InputError, match="more than 64 bits"):
        _read(tmp_path, "x = 0x" + "f" * 5_000)
    (tmp_path / "job.toml").write_bytes(b"x = '\xff'")
    with pytest.raises(sv.InputError, match="is not a job file"):
        sv.read_job(tmp_path / "job.toml")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(sv.InputError, match="does not exist"):
        sv.read_job(tmp_path / "none.toml")


def test_a_file_with_a_mark_of_its_encoding_is_read_and_others_say_what_they_are(tmp_path: Path) -> None:
    text = b'protection = "plain"\n[data]\nname = "credit"\n'
    (tmp_path / "job.toml").write_bytes(b"\xef\xbb\xbf" + text)
    assert read_toml(tmp_path / "job.toml", "job", "examples/credit.toml")["protection"] == "plain"
    (tmp_path / "job.toml").write_bytes(text + b"# \xe9\n")
    with pytest.raises(
        sv.InputError, match=rf"byte {len(text) + 2} of it is 0xe9, which is not UTF-8: save it as UTF-8"
    ):
        read_toml(tmp_path / "job.toml", "job", "examples/credit.toml")
    with pytest.raises(sv.InputError, match="is a folder: name a job file"):
        read_toml(tmp_path, "job", "examples/credit.toml")
