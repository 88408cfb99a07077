"""What an import loads. Modules are counted, not seconds: a machine may be slow, a list of modules is the same on all.

A heavy library that is not needed costs its users: torch 2 s and 250 MB, opacus 3 s, scikit-learn 2 s.
"""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
from pathlib import Path

import pytest
from opacus.accountants import PRVAccountant, RDPAccountant
from support.processes import run_python

HEAVY = (
    "jinja2",
    "llvmlite",
    "matplotlib",
    "opacus",
    "optuna",
    "pandas",
    "pyarrow",
    "scipy",
    "sklearn",
    "sympy",
    "tenseal",
    "torch",
    "torch._dynamo",
)


def _loaded_by_each(*pieces: str) -> list[tuple[set[str], str]]:
    """The heavy libraries that are loaded after each piece of code, one after another in a fresh interpreter, and what
    it printed: a piece that loads more than those before it had loaded says so, whatever comes after it."""
    script = f"""
import sys
for piece in {list(pieces)!r}:
    try:
        exec(piece)
    except SystemExit as end:
        assert not end.code, (piece, end.code)
    print("loaded:", *(name for name in {HEAVY!r} if name in sys.modules), end=chr(0))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
    printed = [piece.rsplit("loaded:", 1) for piece in done.stdout.split(chr(0))[:-1]]
    assert len(printed) == len(pieces)
    return [(set(names.split()), text) for text, names in printed]


def _loaded(code: str) -> tuple[set[str], str]:
    return _loaded_by_each(code)[0]


def _command(*arguments: str) -> str:
    return f"from securevfl.cli import main; main({list(arguments)!r})"


NAMED = {
    "import securevfl": set[str](),
    "import securevfl as sv; sv.InputError; sv.UnknownNameError": set(),
    "import securevfl as sv; sv.PartyTable; sv.Parties; sv.read_csv; sv.datasets.names()": set(),
    "import securevfl as sv; sv.DP(features=sv.Gaussian(epsilon=4.0)); sv.Policy(); sv.Align(); sv.audit": set(),
    "import securevfl as sv; sv.Frozen(8); sv.Linkage; sv.Observer; sv.read_job": set(),
    "import securevfl as sv; sv.Job(); sv.SplitNN(); sv.Shares(); sv.Paillier(); sv.BFV(); sv.Auto()": {"pyarrow"},
    "import securevfl as sv; sv.simulate": {"torch", "pyarrow"},
    # Estimators are of scikit-learn.
    "from securevfl import *": {"torch", "sklearn", "scipy", "pandas", "pyarrow"},
}
"""Code → what it may load, the least first."""


def test_names_load_no_more_than_they_need() -> None:
    for (code, allowed), (loaded, _) in zip(NAMED.items(), _loaded_by_each(*NAMED), strict=True):
        assert loaded <= allowed, code


def test_training_loads_torch_and_its_accountant_scipy() -> None:
    """No scikit-learn, no pandas, none of Opacus but the accountants, and neither torch's compiler nor its symbolic
    shapes, which are sympy."""
    code = """
import securevfl as sv
from securevfl.privacy import GaussianRelease, epsilon_prv, epsilon_rdp
for algorithm in (sv.SplitNN(bottom=(4,)), sv.algorithms.ResidualAtTheCut(folds=2)):
    job = sv.Job(algorithm=algorithm, protection=sv.Plain(), epochs=2, steps=3)
    sv.simulate(job, sv.datasets.breast_cancer())
assert not {"scipy", "sklearn"} & sys.modules.keys(), "training"
release = GaussianRelease(1.3, 200, 0.02)
print(repr([epsilon_rdp(release, 1e-5), epsilon_prv(release, 1e-5)]))
"""
    loaded, printed = _loaded(code)
    assert loaded == {"scipy", "torch"}
    rdp, prv = RDPAccountant(), PRVAccountant()
    rdp.history = prv.history = [(1.3, 0.02, 200)]
    orders = [*RDPAccountant.DEFAULT_ALPHAS, *range(64, 2048, 32)]
    expected = [rdp.get_epsilon(1e-5, alphas=orders), prv.get_epsilon(1e-5, eps_error=0.01, delta_error=1e-8)]
    assert ast.literal_eval(printed.strip().splitlines()[-1]) == pytest.approx(expected, rel=1e-12)


def test_help_and_version_load_no_heavy_library() -> None:
    asked = ["--version"], ["--help"], ["run", "--help"], ["psi", "--help"]
    for arguments, (loaded, printed) in zip(asked, _loaded_by_each(*(_command(*one) for one in asked)), strict=True):
        assert printed.strip(), arguments
        assert not loaded, arguments


PARTIES = {
    "bank": ("ref,age,region,late\n", "r{0},{0},north,{1}\n", "id = 'ref'\nlabel = 'late'\ncategorical = ['region']"),
    "shop": ("customer,basket,visits\n", "r{0},{0}.5,{1}\n", "id = 'customer'"),
}
JOB = """
[job]
accept_leak = true
[protection]
name = "plain"
[protection.dp.features]
mechanism = "gaussian"
epsilon = 4.0
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
COMPUTES = {"matplotlib", "opacus", "pandas", "scipy", "sklearn", "tenseal", "torch"}
"""What a command that only describes must not load."""


DESCRIBING = """
keys --show keys/bank.pub
card bank.toml
propose job.toml --card bank.card --card shop.card --purpose credit -o other.toml
approve agreement.toml --file bank.toml --yes
agreement show agreement.toml
agreement compare agreement.toml agreement.toml
policy check job.toml policy.toml
"""


def test_a_command_that_only_describes_loads_nothing_that_computes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a folder with two parties' keys, tables, party files and cards, a proposal with noise, and a policy."""
    monkeypatch.chdir(tmp_path)
    for name, (head, row, columns) in PARTIES.items():
        rows = "".join(row.format(k, k % 2) for k in range(40))
        Path(f"{name}.csv").write_text(head + rows, encoding="utf-8")
        keys = f"signing = 'keys/{name}.key'\ncertificate = 'certs/{name}.crt'\nkey = 'certs/{name}.key'"
        text = f"party = '{name}'\n[data]\nfile = '{name}.csv'\n{columns}\n[keys]\n{keys}\n"
        Path(f"{name}.toml").write_text(text, encoding="utf-8")
    Path("job.toml").write_text(JOB, encoding="utf-8")
    Path("policy.toml").write_text("party = 'shop'\nmax_epsilon = 5.0\nmax_results = 'unlimited'\n", encoding="utf-8")
    before = [[*words, name] for name in PARTIES for words in (["keys"], ["certs", "new"])]
    before += [["card", f"{name}.toml"] for name in PARTIES]
    before += [["propose", "job.toml", "--card", "bank.card", "--card", "shop.card", "--purpose", "credit"]]
    commands = [*before, *(line.split() for line in DESCRIBING.strip().splitlines())]
    for command, (loaded, printed) in zip(
        commands, _loaded_by_each(*(_command(*one) for one in commands)), strict=True
    ):
        assert printed.strip(), command
        assert not loaded & COMPUTES, command


def test_an_audit_of_a_run_with_its_model_loads_nothing_that_computes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    text = "protection = 'plain'\n[job]\nepochs = 1\nsteps = 1\n[data]\nname = 'breast_cancer'\n"
    (tmp_path / "job.toml").write_text(text, encoding="utf-8")
    assert run_python(["-m", "securevfl", "run", "job.toml", "--out", "run"]).returncode == 0
    assert list((tmp_path / "run/model").glob("*.safetensors"))
    loaded, printed = _loaded(_command("audit", "run"))
    assert "ledgers verified" in printed
    assert not loaded & COMPUTES


def test_a_job_file_that_names_one_algorithm_loads_no_other() -> None:
    code = """
import securevfl as sv
from securevfl.training import Algorithm
Algorithm.from_values("splitnn")
print(*(name for name in sys.modules if name.startswith("securevfl.algorithms.")))
"""
    _, printed = _loaded(code)
    assert {name.split(".")[2] for name in printed.split()} == {"splitnn"}


@pytest.mark.parametrize(
    "package", ["align", "algorithms", "cut", "experiments", "ledger", "party", "privacy", "run", "shares", "training"]
)
def test_a_package_that_loads_names_on_use_has_those_that_it_states(package: str) -> None:
    """The names for type checkers, the table and `__all__` are the same; each comes from the module that has it."""
    module = importlib.import_module(f"securevfl.{package}")
    tree = ast.parse(Path(module.__file__ or "").read_text(encoding="utf-8"))
    block = next(node for node in tree.body if isinstance(node, ast.If))
    stated = {
        alias.name: node.module for node in block.body if isinstance(node, ast.ImportFrom) for alias in node.names
    }
    table = {name: home for home, names in module._NAMES.items() for name in names.split()}
    assert stated == table
    assert set(table) <= set(module.__all__)
    for name, home in table.items():
        assert getattr(module, name) is getattr(importlib.import_module(home), name)
    with pytest.raises(AttributeError, match=f"'securevfl.{package}' has no attribute 'nothing'"):
        module.nothing  # noqa: B018


def test_the_psi_command_runs_without_torch(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("psi")
    for name in ("a", "b"):
        (folder / f"{name}.csv").write_text(f"id\nann\n{name}\n", encoding="utf-8")
    command = _command("psi", "compare", str(folder / "a.csv"), str(folder / "b.csv"), "--id", "id")
    loaded, printed = _loaded(command)
    assert "common" in printed
    assert "torch" not in loaded


def test_help_lists_the_psi_commands_under_the_name_that_they_have() -> None:
    from securevfl_psi_cli.app import app as commands

    from securevfl import cli

    stand_in = next(group for group in cli.app.registered_groups if group.name == "psi")
    assert stand_in.typer_instance is not None
    assert stand_in.typer_instance.info.help == commands.info.help
    _, printed = _loaded(_command("psi", "--help"))
    for command in commands.registered_commands:
        assert f"  {command.name}" in printed
