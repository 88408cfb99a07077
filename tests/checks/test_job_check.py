"""`securevfl check`: everything in a job that would fail before it runs, in one go, and nothing that would not."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pa_parquet
import pytest

import securevfl as sv
from securevfl import cli
from securevfl.checks import check_file
from securevfl.data.sample import SAMPLE, table_mistakes
from securevfl.jobfile.job_file import PartySection, read_job_sections

GOOD = """
protection = "plain"
[job]
epochs = 2
[[party]]
name = "bank"
file = "bank.csv"
id = "ref"
label = "late"
categorical = ["region"]
[[party]]
name = "shop"
file = "shop.csv"
id = "customer"
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    bank = "".join(f"P{i},{i % 50},{'NSEW'[i % 4]},{i % 2}\n" for i in range(30))
    (tmp_path / "bank.csv").write_text("ref,age,region,late\n" + bank, encoding="utf-8")
    shop = "".join(f"P{i},{i / 7:.2f}\n" for i in range(30))
    (tmp_path / "shop.csv").write_text("customer,spent\n" + shop, encoding="utf-8")
    return tmp_path


def _check(folder: Path, text: str, **options: str) -> tuple[list[str], list[str], int]:
    (folder / "job.toml").write_text(text, encoding="utf-8")
    found = check_file(folder / "job.toml", **options)
    return list(found.mistakes), list(found.refusals), found.exit_code


def test_a_job_without_mistakes(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _check(folder, GOOD) == ([], [], 0)
    cli.app(["check", str(folder / "job.toml")], standalone_mode=False)
    said = capsys.readouterr().out
    assert "nothing to correct. SplitNN, plain, 2 epochs; bank with labels, shop without" in said
    assert not (folder / "runs").exists()


THREE = """
protection = "shares"
[job]
epochs = 1
[algorithm]
name = "{algorithm}"
"""
TABLES = """
[[party]]
name = "bank"
file = "bank.csv"
id = "ref"
label = "late"
categorical = ["region"]
[[party]]
name = "shop"
file = "shop.csv"
id = "customer"
[[party]]
name = "network"
file = "network.csv"
id = "line"
"""


@pytest.mark.parametrize("algorithm", ["splitnn", "boosting"])
def test_cells_are_rated_by_the_columns_of_the_tables_as_run_rates_them(folder: Path, algorithm: str) -> None:
    """Two numbers of each row are more than a quarter of one column, and not of nine."""
    draw = np.random.default_rng(0)
    for name, key, columns in (("shop", "customer", 1), ("network", "line", 9), ("bank", "ref", 1)):
        head = [key, *(f"c{k}" for k in range(columns)), *(["region", "late"] if name == "bank" else [])]
        lines = [",".join(head)]
        for i in range(500):
            tail = ["NSEW"[i % 4], str(int(draw.random() < 0.4))] if name == "bank" else []
            lines.append(",".join([f"P{i}", *(f"{value:.3f}" for value in draw.normal(size=columns)), *tail]))
        (folder / f"{name}.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    file = folder / "job.toml"
    file.write_text(THREE.format(algorithm=algorithm) + TABLES, encoding="utf-8")
    card = check_file(file, accept_leak=True).card
    assert card is not None
    assert card.cell("bank", "shop").standing == "reads it"
    assert "at most 2 of 1 numbers" in card.cell("bank", "shop").says
    assert card.cell("bank", "network").standing == "bounded"
    assert "at most 2 of 9 numbers" in card.cell("bank", "network").says
    sections, _, _ = read_job_sections(file)
    ran = sv.simulate(sections.build_job(), sections.load_parties(folder, ""), observer=sv.Observer()).card
    assert ran is not None
    assert [(one.reader, one.about, one.of, one.standing) for one in card] == [
        (one.reader, one.about, one.of, one.standing) for one in ran
    ]


def test_without_tables_a_number_of_answers_is_not_said_to_bound_anything(folder: Path) -> None:
    job = THREE.format(algorithm="boosting") + "[data]\nname = 'default_credit'\n"
    (folder / "job.toml").write_text(job, encoding="utf-8")
    counted = check_file(folder / "job.toml").card
    assert counted is not None
    assert [counted.cell("bank", name).standing for name in ("network", "retailer")] == ["reads it", "bounded"]
    (folder / "job.toml").write_text(THREE.format(algorithm="boosting") + TABLES, encoding="utf-8")
    unread = check_file(folder / "job.toml").card  # there is no network.csv
    assert unread is not None
    assert unread.cell("bank", "shop").standing == "not known yet"
    assert "not known before the columns are counted" in unread.cell("bank", "shop").says
    assert unread.worst_standing == "not known yet"


BUDGET = """
[job]
epochs = 20
keep = "last"
[algorithm]
name = "additive"
ranges = { "bank.age" = [0.0, 50.0] }
levels = { "bank.region" = ["N", "S", "E", "W"] }
[protection]
name = "bfv"
[protection.dp.model]
mechanism = "gaussian"
epsilon = 1.0
"""


def test_columns_of_a_budget_that_are_not_declared(folder: Path) -> None:
    job = BUDGET + GOOD.partition("epochs = 2\n")[2]
    mistakes, _, code = _check(folder, job)
    assert code == 2
    assert [one.partition("add ")[2] for one in mistakes] == ["'shop.spent'"]
    declared = job.replace("50.0] }", '50.0], "shop.spent" = [0.0, 5.0] }')
    assert _check(folder, declared) == ([], [], 0)
    assert _check(folder, job.partition("[protection.dp.model]")[0] + GOOD.partition("epochs = 2\n")[2])[0] == []
    named = BUDGET.replace('"bank.age"', '"clinic.age"').replace("levels", "# levels")
    assert "'lab." in _check(folder, f'{named}\n[data]\nname = "breast_cancer"\n')[0][-1]


TEN = """
baselines = ["alon"]
[job]
epochs = 0
[algorithm]
name = "splitnn"
hiden = 3
[protection]
name = "plain"
[policy.shopp]
sealed = true
[[party]]
name = "bank"
file = "bank.csv"
id = "reff"
label = "late"
[[party]]
name = "shop"
file = "shop.csv"
id = "customer"
[[party]]
name = "network"
file = "none.csv"
id = "k"
[[party]]
name = "lab"
file = "lab.parquet"
id = "k"
label = "y"
classes = ["a", "b"]
"""


def test_ten_mistakes_of_ten_sorts_are_listed_in_one_run(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "shop.csv").write_text("customer,spent,note\nP1,1.0,x\nP1,nan,y\n", encoding="utf-8")
    lab = {"k": ["a", None], "x": [1.0, float("inf")], "y": ["a", "c"]}
    pa_parquet.write_table(pa.table(lab), folder / "lab.parquet")
    (folder / "job.toml").write_text(TEN, encoding="utf-8")
    monkeypatch.chdir(folder)
    with pytest.raises(SystemExit) as ended:
        cli.main(["check", "job.toml"])
    assert ended.value.code == 2
    lines = capsys.readouterr().out.splitlines()
    expected = [
        "baselines[0] is 'alon'; did you mean 'alone'",
        "job.epochs is 0; a whole number from 1 to 100000 was expected",
        "algorithm has no 'hiden'; did you mean 'hidden'",
        "unknown id column of bank.csv: 'reff'; did you mean 'ref'",
        "bank.csv: column 'region' holds text, 'N' in row 1; list it in categorical",
        "shop.csv: repeated identifiers: 'P1' in rows 1 and 2",
        "shop.csv: column 'spent' is null or NaN in 1 of 2 rows",
        "shop.csv: column 'note' holds text, 'x' in row 1",
        "none.csv does not exist",
        "lab.parquet: id column 'k' is null or empty in 1 rows",
        "lab.parquet: column 'x' is infinite in 1 of 2 rows",
        "lab.parquet: the label in row 2 is 'c'; the classes are ['a', 'b']",
        "policy.shopp is the policy of nobody; did you mean 'shop'",
    ]
    for words in expected:
        assert [line for line in lines if words in line], words
    assert len(check_file("job.toml").mistakes) == len(expected)  # beside them, lines say what tables hold


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (('label = "late"', ""), "none of 2 parties owns labels"),
        (("epochs = 2", "epochs = 2\ndevice = 'cuda:99'"), "device 'cuda:99' is not there"),
        (('label = "late"', 'label = "lat"'), "unknown label column of"),
        (('label = "late"', 'label = "late"\nclasses = [0, 2]'), "the label in row 2 is 1; the classes are [0, 2]"),
        (('id = "customer"', 'id = "customer"\nfeatures = ["spend"]'), "did you mean 'spent'"),
        (('id = "customer"', 'id = "customer"\nlabel = "spent"'), "has one label owner, and bank, shop own labels"),
        (('file = "shop.csv"', 'file = "job.toml"'), "unknown id column of"),
        (('file = "shop.csv"', 'file = "."'), "does not exist, or is neither a file"),
        (("[job]\nepochs = 2", '[algorithm]\nname = "risa"\nself_training = 3\n[job]\nepochs = 2'), "give it more"),
        (
            ("[job]\nepochs = 2", 'baselines = ["alone"]\nalgorithm = "multi_vfl"\n[job]\nepochs = 2'),
            "baselines are for one",
        ),
    ],
)
def test_what_would_fail_is_named(folder: Path, change: tuple[str, str], words: str) -> None:
    assert change[0] in GOOD
    mistakes, refusals, code = _check(folder, GOOD.replace(*change))
    assert not refusals
    assert code == 2
    assert words in " ".join(mistakes)


def test_too_many_passive_parties(folder: Path) -> None:
    third = '[[party]]\nname = "third"\nfile = "shop.csv"\nid = "customer"\n'
    mistakes, _, _ = _check(folder, 'algorithm = "fedcvt"\n' + GOOD + third)
    assert "is for one active and 1 passive party; there are 2 passive ones (shop, third)" in mistakes[0]


def test_refusals_alone_have_a_code_of_their_own(folder: Path) -> None:
    policies = "[policy.bank]\nsealed = true\n[policy.shop]\nmax_epsilon = 1.0\n"
    mistakes, refusals, code = _check(folder, GOOD + policies)
    assert (mistakes, code) == ([], 3)
    assert refusals[0].startswith("'bank' refuses the job: activations and gradients would be sent in the clear")
    assert "'shop' refuses the job" in refusals[1]
    assert "without noise" in refusals[1]
    assert _check(folder, GOOD + policies + "min_masking = -1")[2] == 2
    sealed = GOOD.replace('protection = "plain"', 'algorithm = "fedcvt"\nprotection = "bfv"')
    assert _check(folder, sealed)[2] == 3


def test_a_book_of_labels_shows_pairwise_intersections(folder: Path) -> None:
    text = '[data]\nname = "limited_credit"\nlabels = "all"\nrows = 200\noverlap = 0.3\n'
    assert _check(folder, text) == ([], [], 0)
    _, refusals, code = _check(folder, text + "[policy.network]\npairwise_intersections = false\n")
    assert code == 3
    assert "'network' refuses the job: 'bank' would learn the pairwise intersection" in refusals[0]


def test_named_data_sets_are_tried(folder: Path) -> None:
    mistakes, _, _ = _check(folder, '[data]\nname = "mnist"\npath = "nowhere"\n')
    assert "file or folder 'nowhere' does not exist" in mistakes[0]
    mistakes, _, _ = _check(folder, '[data]\nname = "default_credit"\nrows = 3\n')
    assert mistakes == ["data: rows is 3; the table has 30000: give a whole number from 20 to 30000"]


def test_predicting_needs_no_labels(folder: Path) -> None:
    text = GOOD.replace('label = "late"\n', 'features = ["age", "region"]\n')
    assert _check(folder, text, active="bank") == ([], [], 0)
    assert "did you mean 'bank'" in _check(folder, text, active="bnk")[0][0]


def test_only_a_sample_is_read(folder: Path) -> None:
    rows = "".join(f"P{i},{i}\n" for i in range(SAMPLE))
    (folder / "shop.csv").write_text("customer,spent\n" + rows + "P0,x\n", encoding="utf-8")
    use = PartySection(name="shop", file="shop.csv", id="customer")
    assert table_mistakes(folder / "shop.csv", use.column_use) != []  # pyarrow takes the type from its first block
    (folder / "shop.csv").write_text("customer,spent\n" + rows + "P0,1\n", encoding="utf-8")
    assert table_mistakes(folder / "shop.csv", use.column_use) == []
    (folder / "shop.csv").write_text("customer,spent\nP1,1\nP1,2\n" + rows, encoding="utf-8")
    found = table_mistakes(folder / "shop.csv", use.column_use)
    assert "shop.csv, first 1,000 rows: repeated identifiers: 'P1' in rows 1 and 2" in found[0]


def test_tables_that_are_none_are_mistakes(folder: Path) -> None:
    use = PartySection(name="shop", file="t", id="k", label="y").column_use
    texts = {
        "empty.csv": b"",
        "header.csv": b"k,x,y\n",
        "cp1252.csv": b"k,x\x81,y\n1,2,0\n",  # no UTF-8, and 0x81 stands for nothing in cp1252
        "short.csv": b"k,x,y\n1,2\n",
        "doubled.csv": b"k,x,x,y\n1,2,3,0\n",
        "not.parquet": b"PAR1 no",
        "zip.csv.gz": b"no gzip",
    }
    for name, content in texts.items():
        (folder / name).write_bytes(content)
        assert table_mistakes(folder / name, use), name
    nested = pa.table({"k": ["a"], "x": [[1.0]], "y": [{"a": 1}]})
    pa_parquet.write_table(nested, folder / "nested.parquet")
    assert len(table_mistakes(folder / "nested.parquet", use)) == 2
    broken = pa.table({"k": pa.array([b"\xff"]).view(pa.string()), "x": np.ones(1), "y": [1]})
    pa_parquet.write_table(broken, folder / "broken.parquet")
    assert "not UTF-8" in table_mistakes(folder / "broken.parquet", use)[0]


def test_sweeps_are_checked_too(folder: Path) -> None:
    sweep = '[axis]\nvalues = [0.1]\n[[data]]\nname = "digits"\n[[method]]\nalgorithm = "splitnn"\n'
    assert _check(folder, sweep) == ([], [], 0)
    mistakes, _, code = _check(folder, sweep.replace("0.1", "nan").replace("splitnn", "splitn"))
    assert (len(mistakes), code) == (2, 2)


def test_what_is_no_file_is_a_mistake(tmp_path: Path) -> None:
    assert "does not exist" in check_file(tmp_path / "none.toml").mistakes[0]
    assert "is not TOML" in _check(tmp_path, "[")[0][0]
