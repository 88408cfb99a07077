"""What the project promises outside: names, the wheel's content, examples and pages that run."""

from __future__ import annotations

import ast
import doctest
import importlib
import pkgutil
import re
import tomllib
from pathlib import Path

import pytest
import securevfl_crypto
import securevfl_psi
from support.processes import run_python

import securevfl

ROOT = Path(__file__).parents[1]
ELSEWHERE = {
    "docs/algorithms/boosting.md": "algorithms/test_boosting.py",
    "docs/algorithms/scorecard.md": "algorithms/test_scorecard.py",
    "docs/howto/frozen-bottoms.md": "privacy/test_howto_frozen.py",
    "docs/howto/notebooks.md": "report/test_notebooks.py",
    "docs/howto/scikit-learn.md": "experiments/test_estimators.py",
    "docs/howto/targets.md": "jobfile/test_howto_targets.py",
    "docs/psi-shards.md": "psi/test_shard_command.py",
    "docs/sealed-sums.md": "crypto/test_sums.py",
}
"""Page → the tests that run all of its Python and look at what came of it."""
PAGES = sorted(
    page.relative_to(ROOT).as_posix()
    for page in [*ROOT.glob("docs/**/*.md"), ROOT / "README.md"]
    if "```python" in page.read_text(encoding="utf-8")
    and page.parent.name != "notebooks"  # a page made of a notebook, whose cells `test_docs_notebooks` runs
    and page.relative_to(ROOT).as_posix() not in ELSEWHERE
)


@pytest.mark.parametrize("package", [securevfl, securevfl_psi, securevfl_crypto])
def test_exported_names_exist_once(package: object) -> None:
    names: list[str] = package.__all__  # type: ignore[attr-defined]
    assert len(names) == len(set(names))
    for name in names:
        assert hasattr(package, name)


def _static_names() -> dict[str, str]:
    """Name → module, of the imports that only type checkers and editors see."""
    tree = ast.parse((ROOT / "securevfl/__init__.py").read_text(encoding="utf-8"))
    block = next(node for node in tree.body if isinstance(node, ast.If))
    return {
        alias.name: node.module or "" for node in block.body if isinstance(node, ast.ImportFrom) for alias in node.names
    }


def test_the_public_names_are_those_of_the_table() -> None:
    """`__all__` freezes the names; the lazy table and the static imports hold the same ones, from the same modules."""
    assert {*securevfl._MODULES, "__version__"} == set(securevfl.__all__)
    assert _static_names() == securevfl._MODULES
    assert set(securevfl.__all__) <= set(dir(securevfl))
    for name, module in securevfl._MODULES.items():
        assert getattr(securevfl, name) is getattr(importlib.import_module(module), name)


def test_no_public_name_is_a_folder_too() -> None:
    """Importing such a folder would put it in the place of the name."""
    folders = {module.name for module in pkgutil.iter_modules(securevfl.__path__)}
    assert not folders & set(securevfl.__all__)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="'securevfl' has no attribute 'Jobb'"):
        securevfl.Jobb  # type: ignore[attr-defined]  # noqa: B018


def test_every_public_name_is_in_the_reference() -> None:
    pages = [*(ROOT / "docs/reference").glob("*.md"), *(ROOT / "docs/algorithms").glob("*.md")]
    text = "\n".join(page.read_text(encoding="utf-8") for page in pages)
    missing = [name for name in securevfl.__all__ if name != "__version__" and not re.search(rf"\b{name}\b", text)]
    assert not missing


def test_every_error_is_in_the_reference_with_its_exit_code() -> None:
    page = (ROOT / "docs/reference/errors.md").read_text(encoding="utf-8")
    for name in importlib.import_module("securevfl.errors").__all__:
        code = getattr(securevfl, name).exit_code
        assert re.search(rf"`{name}`[^|]*\| {code} \|", page), f"{name} with exit code {code} is not in errors.md"


@pytest.mark.parametrize("module", ["securevfl", "securevfl_psi"])
def test_docstrings_run(module: str) -> None:
    assert doctest.testmod(importlib.import_module(module)).failed == 0


SMALLER = {
    "docs/tutorials/cost-of-encryption.md": {"rows=800": "rows=240"},
    "docs/tutorials/five-percent.md": {
        "rows=4_000": "rows=2_000",
        "steps=15": "steps=4",
        "generator_steps=40": "generator_steps=6",
        "steps = 10": "steps = 3",
    },
    "docs/tutorials/three-parties.md": {"rows=1_500": "rows=400"},
}
"""Page → what it runs on → what the test does: fewer rows and steps, in all of the page's code."""


@pytest.mark.parametrize("page", PAGES)
def test_pages_run(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The python blocks of a page, one after the other, as a reader would paste them."""
    monkeypatch.chdir(tmp_path)
    text = (ROOT / page).read_text(encoding="utf-8")
    for size, smaller in SMALLER.get(page, {}).items():
        assert size in text
        text = text.replace(size, smaller)
    blocks = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    scope: dict[str, object] = {"__name__": "__main__"}
    for number, block in enumerate(blocks, 1):
        exec(compile(block, f"{page}, block {number}", "exec"), scope)  # noqa: S102


@pytest.mark.parametrize(("page", "tests"), ELSEWHERE.items())
def test_pages_that_run_elsewhere_do(page: str, tests: str) -> None:
    assert "```python" in (ROOT / page).read_text(encoding="utf-8")
    text = (ROOT / "tests" / tests).read_text(encoding="utf-8")
    assert Path(page).name in text
    assert "findall(r" in text
    assert "exec(" in text or "runpy.run_path(" in text


def test_job_files_in_pages_are_readable(tmp_path: Path) -> None:
    blocks = re.findall(r"```toml\n(.*?)```", (ROOT / "docs/howto/job-file.md").read_text(encoding="utf-8"), re.DOTALL)
    assert blocks[0] == (ROOT / "examples/credit.toml").read_text(encoding="utf-8")
    for block in blocks[1:]:
        if "[[party]]" in block:
            continue
        path = tmp_path / "job.toml"
        path.write_text('[data]\nname = "breast_cancer"\n' + block, encoding="utf-8")
        securevfl.read_job(path)


def test_examples_run(tmp_path: Path) -> None:
    script = ROOT / "examples/with_and_without_encryption.py"
    done = run_python([str(script), "--rows", "200", "--out", "out"], cwd=tmp_path, timeout=200)
    assert done.returncode == 0, done.stderr
    assert "equal, bit by bit" in done.stdout
    assert (tmp_path / "out" / "report.html").exists()


@pytest.mark.parametrize(
    ("name", "options", "says"),
    [
        (
            "boosting_on_shares",
            ["--rows", "400", "--trees", "2"],
            "shares - bank reads of network: from final predictions",
        ),
        ("additive_model", ["--rows", "2000"], "ε = 8 (δ = 1e-05) of a common row"),
    ],
)
def test_examples_of_models_on_shares_run(tmp_path: Path, name: str, options: list[str], says: str) -> None:
    done = run_python([str(ROOT / "examples" / f"{name}.py"), *options], cwd=tmp_path, timeout=200)
    assert done.returncode == 0, done.stderr
    assert says in done.stdout


def test_versions_agree() -> None:
    version = securevfl.__version__
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert settings["project"]["dynamic"] == ["version"]
    assert settings["tool"]["hatch"]["version"]["path"] == "securevfl/__init__.py"
    projects = [settings["project"]]
    for part in ("psi", "crypto"):
        projects.append(tomllib.loads((ROOT / part / "pyproject.toml").read_text(encoding="utf-8"))["project"])
        assert projects[-1]["version"] == version, part
    own = [line for project in projects for line in project["dependencies"] if line.startswith("securevfl-")]
    assert sorted(own) == [f"securevfl-crypto=={version}"] * 2 + [f"securevfl-psi=={version}"]
    assert f"\nversion: {version}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"\n## [{version}]" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    deployed = (ROOT / "deploy" / "compose.yaml").read_text(encoding="utf-8")
    assert set(re.findall(r"SECUREVFL_VERSION:-([^}]+)", deployed)) == {version}
    pins = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    assert "torch==2.13.0" in pins
    for line in pins.splitlines():
        assert line.startswith("#") or re.fullmatch(r"[A-Za-z0-9_.-]+==[^=\s]+", line), line


def test_the_bill_of_materials_lists_each_runtime_dependency(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    sbom = importlib.import_module("sbom")
    found = sbom.make_sbom()
    assert found == sbom.make_sbom()
    assert (found["bomFormat"], found["specVersion"], found["version"]) == ("CycloneDX", "1.6", 1)
    assert re.fullmatch(r"urn:uuid:[0-9a-f-]{36}", found["serialNumber"])
    assert found["metadata"]["component"]["name"] == "securevfl"
    for component in found["components"]:
        assert component["type"] == "library"
        assert component["version"], component
        assert component["purl"] == component["bom-ref"] == f"pkg:pypi/{component['name']}@{component['version']}"
    refs = {component["bom-ref"] for component in (*found["components"], found["metadata"]["component"])}
    assert {link["ref"] for link in found["dependencies"]} == refs
    assert {one for link in found["dependencies"] for one in link["dependsOn"]} <= refs
    names = {component["name"] for component in found["components"]}
    for folder in ("", "psi", "crypto"):
        lines = tomllib.loads((ROOT / folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]["dependencies"]
        assert {re.split(r"[<>=!\[ ]", line)[0] for line in lines} <= names


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        ("Marvell", "sv.RandomisedResponse"),
        ("CrossValidation", "sv.Study"),
        ("SearchResult", "sv.Study"),
        ("SweepResult", "sv.Study"),
        ("jobs", "securevfl.run"),
        ("scale", "securevfl_crypto.pools"),
    ],
)
def test_a_public_name_of_before_gives_an_error_with_the_new_one(name: str, remedy: str) -> None:
    with pytest.raises(AttributeError, match=re.escape(remedy)):
        getattr(securevfl, name)


@pytest.mark.parametrize(
    ("section", "words"),
    [
        ("[protection.dp.labels]\nmechanism = 'marvell'", "known: 'gaussian', 'randomised_response'"),
        ("[protection.dp]\nepsilon = 3.0", "known: 'features', 'labels', 'model'"),
        ("[protection.dp]\nactivations = true", "known: 'features', 'labels', 'model'"),
    ],
)
def test_a_job_file_of_before_gives_an_error_with_the_spellings_of_today(
    section: str, words: str, tmp_path: Path
) -> None:
    text = (ROOT / "examples" / "credit.toml").read_text(encoding="utf-8")
    file = tmp_path / "job.toml"
    file.write_text(text.replace('[protection]\nname = "plain"', f'[protection]\nname = "plain"\n{section}'))
    with pytest.raises(securevfl.InputError, match=re.escape(words)):
        securevfl.read_job(file)
