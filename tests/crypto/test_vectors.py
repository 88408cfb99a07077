"""The test vectors in `crypto/vectors`: two implementations and every compiled path compute them, and find a wrong one.

A reviewer starts from these files, see `docs/engine/review.md`. They are in no wheel.
"""

from __future__ import annotations

import copy
import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from securevfl_crypto.engine.cpu import paths_of_this_cpu

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "crypto" / "vectors"
FILES = sorted(file.name for file in FOLDER.glob("*.json"))
COMPILED = [path.name for path in paths_of_this_cpu()]
"""Every path with kernels that this CPU runs. The path without kernels computes the files themselves."""
FASTEST = (*COMPILED, "cryptography")[0]
MANY = 10
"""Iterations of X25519 from which this file leaves a vector to `test_engine`, which takes each path through 1,000."""


def _load(file: Path) -> ModuleType:
    """A program of the repository, whose neighbours it imports by itself."""
    spec = importlib.util.spec_from_file_location(f"_{file.stem}_program", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", [str(file.parent), *sys.path])
        spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def second() -> ModuleType:
    """The second implementation."""
    return _load(FOLDER / "check.py")


@pytest.fixture(scope="module")
def maker() -> ModuleType:
    """What writes the files, and computes a test by the library."""
    return _load(ROOT / "tools" / "make_vectors.py")


def _read(name: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((FOLDER / name).read_text(encoding="utf-8"))
    return content


def _differences_of_library(maker: ModuleType, content: dict[str, Any], path: str) -> list[str]:
    """What a path computes otherwise than a file lists."""
    found = []
    for group in content["testGroups"]:
        for test in group["tests"]:
            if test.get("iterations", 0) > MANY:
                continue
            for name, value in maker.as_json(maker.COMPUTE[group["type"]](path, group, test)).items():
                if value != test[name]:
                    found.append(f"{path}: {group['type']}, test {test['tcId']}: {name}")
    return found


def _without_many(content: dict[str, Any]) -> dict[str, Any]:
    """The content without the 1,000 iterations, which `check.py` takes a second for; numbers are made to follow."""
    number = 0
    for group in content["testGroups"]:
        group["tests"] = [test for test in group["tests"] if test.get("iterations", 0) <= MANY]
        for test in group["tests"]:
            number += 1
            test["tcId"] = number
    return content | {"numberOfTests": number}


def test_the_files_are_there_and_small() -> None:
    assert set(FILES) == {
        "blake2s.json",
        "hash_to_curve.json",
        "masked.json",
        "modular.json",
        "oprf.json",
        "ot_rows.json",
        "paillier.json",
        "ring.json",
        "sha512.json",
        "x25519.json",
    }
    assert sum((FOLDER / name).stat().st_size for name in FILES) < 450_000


@pytest.mark.parametrize("name", FILES)
def test_a_file_is_the_one_that_this_version_writes_without_kernels(name: str, maker: ModuleType) -> None:
    assert maker.file_text(name) == (FOLDER / name).read_text(encoding="utf-8"), "run python tools/make_vectors.py"


@pytest.mark.parametrize("name", FILES)
def test_the_second_implementation_agrees_with_every_vector(name: str, second: ModuleType) -> None:
    assert list(second.differences(_without_many(_read(name)))) == []


@pytest.mark.parametrize("path", COMPILED)
@pytest.mark.parametrize("name", FILES)
def test_every_compiled_path_agrees_with_every_vector(name: str, path: str, maker: ModuleType) -> None:
    assert _differences_of_library(maker, _read(name), path) == []


@pytest.mark.parametrize("name", FILES)
def test_a_planted_wrong_vector_is_found_by_both(name: str, maker: ModuleType, second: ModuleType) -> None:
    """One output of each type of group is changed in turn."""
    content = _read(name)
    for group in content["testGroups"]:
        test = next(one for one in group["tests"] if one.get("iterations", 0) <= MANY and one.get("count") != 0)
        outputs = maker.as_json(maker.COMPUTE[group["type"]](FASTEST, group, test))
        field = sorted(outputs)[test["tcId"] % len(outputs)]
        wrong = copy.deepcopy(test)
        wrong[field] = _changed(test[field])
        planted = {**content, "numberOfTests": 1, "testGroups": [{**group, "tests": [{**wrong, "tcId": 1}]}]}
        assert _differences_of_library(maker, planted, FASTEST) == [f"{FASTEST}: {group['type']}, test 1: {field}"]
        (only,) = second.differences(planted)
        assert only.startswith(f"{group['type']}, test 1 ({test['comment']}): {field} is ")


def _changed(value: Any) -> Any:
    """The value with its last part changed a little."""
    if isinstance(value, list):
        return [*value[:-1], _changed(value[-1])]
    if isinstance(value, int):
        return value ^ 1
    if value in ("valid", "invalid"):
        return "invalid" if value == "valid" else "valid"
    return value[:-1] + ("1" if value[-1] == "0" else "0")


def test_the_second_implementation_runs_without_the_library_and_exits_with_1(tmp_path: Path) -> None:
    """Isolated mode, so that only what it brings itself can be imported; a file with one wrong digit ends it."""
    for file in FOLDER.glob("*.py"):
        text = file.read_text(encoding="utf-8")
        assert "import securevfl" not in text
        assert "from securevfl" not in text
        (tmp_path / file.name).write_text(text, encoding="utf-8")
    text = (FOLDER / "sha512.json").read_text(encoding="utf-8")
    digest = _read("sha512.json")["testGroups"][0]["tests"][0]["digest"]
    (tmp_path / "1.json").write_text(text, encoding="utf-8")
    (tmp_path / "2.json").write_text(text.replace(digest, _changed(digest)), encoding="utf-8")
    command = [sys.executable, "-I", str(tmp_path / "check.py"), "1.json", "2.json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert [line.split(":")[0] for line in done.stdout.splitlines()] == ["right  1.json", "WRONG  2.json"], done.stderr
    assert done.returncode == 1


def test_a_file_that_is_missing_is_no_success(
    second: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert list(second.FILES) == FILES
    monkeypatch.setattr(second, "FOLDER", tmp_path)
    assert second.main() == 1
    assert capsys.readouterr().out.startswith("WRONG  blake2s.json: it is not in ")
