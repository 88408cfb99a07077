"""Three wheels of one repository: each has its own packages, their data and types, and the commands that belong to it.

``python tools/try_wheels.py`` installs them in fresh environments."""

from __future__ import annotations

import hashlib
import json
import platform
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest
from hatchling.builders.wheel import WheelBuilder
from securevfl_crypto.engine.build import reason_not_to_build
from securevfl_crypto.engine.library import MANIFEST

import securevfl

ROOT = Path(__file__).parents[1]
FOLDERS = {"securevfl-crypto": ROOT / "crypto", "securevfl-psi": ROOT / "psi", "securevfl": ROOT}
PACKAGES = {
    "securevfl-crypto": {"securevfl_crypto"},
    "securevfl-psi": {"securevfl_net", "securevfl_psi", "securevfl_psi_cli"},
    "securevfl": {"securevfl"},
}


def _project(name: str) -> dict[str, Any]:
    return tomllib.loads((FOLDERS[name] / "pyproject.toml").read_text(encoding="utf-8"))["project"]


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, zipfile.ZipFile]:
    folder = str(tmp_path_factory.mktemp("wheels"))
    return {
        name: zipfile.ZipFile(next(WheelBuilder(str(path)).build(directory=folder, versions=["standard"])))
        for name, path in FOLDERS.items()
    }


@pytest.mark.parametrize("name", FOLDERS)
def test_a_wheel_has_its_own_packages_and_no_other(name: str, wheels: dict[str, zipfile.ZipFile]) -> None:
    names = set(wheels[name].namelist())
    assert {one.split("/")[0] for one in names if not one.split("/")[0].endswith(".dist-info")} == PACKAGES[name]
    for package in PACKAGES[name]:
        sources = {path.relative_to(FOLDERS[name]).as_posix() for path in (FOLDERS[name] / package).rglob("*.py")}
        assert sources
        assert sources <= names
        assert f"{package}/py.typed" in names
    assert any(one.endswith("/licenses/LICENSE") for one in names)
    assert (FOLDERS[name] / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()


@pytest.mark.skipif(reason_not_to_build() is not None, reason=f"{reason_not_to_build()}")
def test_the_wheel_of_the_cryptography_has_the_kernels(wheels: dict[str, zipfile.ZipFile]) -> None:
    """And the others have none: each library is in one wheel."""
    folder = "securevfl_crypto/engine/ahead/"
    own = wheels["securevfl-crypto"]
    assert own.filename is not None
    assert own.filename.endswith(f"-py3-none-manylinux_2_28_{platform.machine()}.whl")
    manifest = json.loads(own.read(folder + "manifest.json"))
    files = {one["file"]: one["sha256"] for one in manifest["libraries"]}
    assert {one for one in own.namelist() if one.startswith(folder)} == {folder + name for name in (*files, MANIFEST)}
    for name, digest in files.items():
        assert hashlib.sha256(own.read(folder + name)).hexdigest() == digest
    for name in ("securevfl-psi", "securevfl"):
        assert not any(one.endswith(".so") for one in wheels[name].namelist())
        assert (wheels[name].filename or "").endswith("-py3-none-any.whl")


@pytest.mark.skipif(reason_not_to_build() is not None, reason=f"{reason_not_to_build()}")
def test_two_wheels_have_equal_bytes(wheels: dict[str, zipfile.ZipFile], tmp_path: Path) -> None:
    builder = WheelBuilder(str(FOLDERS["securevfl-crypto"]))
    again = Path(next(builder.build(directory=str(tmp_path), versions=["standard"])))
    first = Path(wheels["securevfl-crypto"].filename or "")
    assert again.name == first.name
    assert again.read_bytes() == first.read_bytes()


def test_without_its_tools_a_wheel_has_no_kernels_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As on a machine where ziglang does not install; a release asks for the kernels and fails."""
    (tmp_path / "sitecustomize.py").write_text("import platform\nplatform.machine = lambda: 'riscv64'\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    builder = WheelBuilder(str(FOLDERS["securevfl-crypto"]))
    wheel = next(builder.build(directory=str(tmp_path), versions=["standard"]))
    assert wheel.endswith("-py3-none-any.whl")
    assert not any("engine/ahead/" in one for one in zipfile.ZipFile(wheel).namelist())
    said = capsys.readouterr()
    assert (
        "No kernels are compiled (kernels exist for Linux on x86-64 and aarch64, not for Linux on riscv64)"
        in said.out + said.err
    )
    monkeypatch.setenv("SECUREVFL_KERNELS", "required")
    with pytest.raises(RuntimeError, match="No kernels are compiled"):
        next(builder.build(directory=str(tmp_path), versions=["standard"]))


def test_data_and_templates_are_in_the_wheel(wheels: dict[str, zipfile.ZipFile]) -> None:
    names = set(wheels["securevfl"].namelist())
    for name in (
        "securevfl/data/files/breast_cancer.csv.xz",
        "securevfl/data/files/default_credit.csv.xz",
        "securevfl/data/files/digits.csv.xz",
        "securevfl/data/files/README.md",
        "securevfl/report/templates/report.html.j2",
    ):
        assert name in names


def test_only_the_last_wheel_needs_torch(wheels: dict[str, zipfile.ZipFile]) -> None:
    needs = {}
    for name, wheel in wheels.items():
        info = next(one for one in wheel.namelist() if one.endswith("/METADATA"))
        about = wheel.read(info).decode().splitlines()
        required = [line.split(": ", 1)[1] for line in about if line.startswith("Requires-Dist:")]
        needs[name] = {one.split(">")[0].split("=")[0].strip() for one in required if ";" not in one}
    assert needs["securevfl-crypto"] == {"cryptography", "gmpy2", "numpy"}
    assert needs["securevfl-psi"] == {"cryptography", "msgspec", "numpy", "rich", "securevfl-crypto", "typer"}
    assert {"securevfl-crypto", "securevfl-psi", "torch"} <= needs["securevfl"]


def test_versions_and_bounds_agree() -> None:
    whole = _project("securevfl")
    version = securevfl.__version__  # the root's pyproject reads it from here
    for name in ("securevfl-crypto", "securevfl-psi"):
        own = _project(name)
        assert own["version"] == version
        pin = f"{name}=={version}"
        assert pin in whole["dependencies"]
        assert name == "securevfl-crypto" or f"securevfl-crypto=={version}" in own["dependencies"]
        bounds = {one.split(">")[0]: one for one in whole["dependencies"]}
        for one in own["dependencies"]:
            assert bounds.get(one.split(">")[0], one) == one, f"{name} and securevfl ask for different versions"


def test_each_command_belongs_to_one_wheel(wheels: dict[str, zipfile.ZipFile]) -> None:
    commands = {}
    for name, wheel in wheels.items():
        points = [one for one in wheel.namelist() if one.endswith("/entry_points.txt")]
        text = wheel.read(points[0]).decode() if points else ""
        commands[name] = {line.split(" = ")[0] for line in text.splitlines() if line.startswith("securevfl")}
    assert commands == {"securevfl-crypto": set(), "securevfl-psi": {"securevfl-psi"}, "securevfl": {"securevfl"}}
