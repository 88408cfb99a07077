"""What an import loads. Modules are counted, not seconds: a machine may be slow, a list of modules is the same on all.

A heavy library that is not needed costs its users: torch 2 s and 250 MB, opacus 3 s, scikit-learn 2 s.
"""

from __future__ import annotations

import ast
import subprocess
import sys

import pytest
from opacus.accountants import PRVAccountant, RDPAccountant

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
    "tenseal",
    "torch",
    "torch._dynamo",
)


def _loaded(code: str) -> tuple[set[str], str]:
    """The heavy libraries that `code` loads in a fresh interpreter, and what it printed."""
    script = f"""
import sys
try:
    {code}
except SystemExit as end:
    assert not end.code, end.code
print("loaded:", *(name for name in {HEAVY!r} if name in sys.modules))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
    printed, names = done.stdout.rsplit("loaded:", 1)
    return set(names.split()), printed


def _command(*arguments: str) -> str:
    return f"from securevfl.cli import main; main({list(arguments)!r})"


@pytest.mark.parametrize(
    ("code", "allowed"),
    [
        ("import securevfl", set()),
        ("import securevfl as sv; sv.InputError; sv.UnknownNameError", set()),
        ("import securevfl as sv; sv.PartyTable; sv.Parties; sv.read_csv; sv.datasets.names()", set()),
        ("import securevfl as sv; sv.Job; sv.SplitNN; sv.Paillier; sv.BFV; sv.DP; sv.simulate; sv.audit", {"torch"}),
        (
            "from securevfl import *",
            {"torch", "sklearn", "scipy", "pandas", "pyarrow"},
        ),  # estimators are of scikit-learn
    ],
)
def test_names_load_no_more_than_they_need(code: str, allowed: set[str]) -> None:
    # A star is not allowed in a block.
    loaded, _ = _loaded(code.replace("from securevfl import *", "exec('from securevfl import *')"))
    assert loaded <= allowed


def test_training_loads_torch_and_its_accountant_scipy() -> None:
    """No scikit-learn, no pandas, none of Opacus but the accountants, and not torch's compiler."""
    code = """
    import securevfl as sv
    from securevfl.privacy import GaussianRelease, epsilon_prv, epsilon_rdp
    job = sv.Job(algorithm=sv.SplitNN(), protection=sv.Plain(), epochs=2, steps=3)
    sv.simulate(job, sv.datasets.breast_cancer())
    assert not {"scipy", "sklearn"} & sys.modules.keys(), "training"
    release = GaussianRelease(1.3, 200, 0.02)
    print(repr([epsilon_rdp(release, 1e-5), epsilon_prv(release, 1e-5)]))
"""
    loaded, printed = _loaded(code.strip())
    assert loaded == {"scipy", "torch"}
    rdp, prv = RDPAccountant(), PRVAccountant()
    rdp.history = prv.history = [(1.3, 0.02, 200)]
    orders = [*RDPAccountant.DEFAULT_ALPHAS, *range(64, 2048, 32)]
    expected = [rdp.get_epsilon(1e-5, alphas=orders), prv.get_epsilon(1e-5, eps_error=0.01, delta_error=1e-8)]
    assert ast.literal_eval(printed.strip().splitlines()[-1]) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("arguments", [["--version"], ["--help"], ["run", "--help"], ["psi", "--help"]])
def test_help_and_version_load_no_heavy_library(arguments: list[str]) -> None:
    loaded, printed = _loaded(_command(*arguments))
    assert printed.strip()
    assert not loaded


def test_the_psi_command_runs_without_torch(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("psi")
    for name in ("a", "b"):
        (folder / f"{name}.csv").write_text(f"id\nann\n{name}\n", encoding="utf-8")
    command = _command("psi", "compare", str(folder / "a.csv"), str(folder / "b.csv"), "--id", "id")
    loaded, printed = _loaded(command)
    assert "common" in printed
    assert "torch" not in loaded


def test_help_lists_the_psi_commands_under_the_name_that_they_have() -> None:
    from securevfl_psi_cli import app as commands

    from securevfl import cli

    stand_in = next(group for group in cli.app.registered_groups if group.name == "psi")
    assert stand_in.typer_instance is not None
    assert stand_in.typer_instance.info.help == commands.info.help
    _, printed = _loaded(_command("psi", "--help"))
    for command in commands.registered_commands:
        assert f"  {command.name}" in printed
