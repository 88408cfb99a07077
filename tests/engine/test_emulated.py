"""The library for aarch64: compiled here, and run under qemu against the vectors, each array before a guarded page."""

from __future__ import annotations

import dataclasses
import hashlib
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from emulated.contracts import parameter_names
from emulated.machine import Image, KernelProcess, build_driver, missing_tool
from securevfl_crypto.engine import cpu
from securevfl_crypto.engine.build import (
    check_shared_object,
    is_current,
    list_parts,
    main,
    paths_for,
    reason_not_to_build,
)
from securevfl_crypto.engine.compiled_ring import ring_part
from securevfl_crypto.engine.cpu import VectorPath
from securevfl_crypto.engine.library import read_manifest
from securevfl_crypto.engine.llvm import target_machine
from securevfl_crypto.engine.parts import symbol

ROOT = Path(__file__).parents[2]
(ARM,) = paths_for("aarch64")
builds = pytest.mark.skipif(reason_not_to_build() is not None, reason=f"{reason_not_to_build()}")
emulates = pytest.mark.skipif(missing_tool("qemu-aarch64") is not None, reason=f"{missing_tool('qemu-aarch64')}")


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file that `--for aarch64` writes."""
    folder = tmp_path_factory.mktemp("aarch64")
    main(["--for", "aarch64", "--to", str(folder)])
    return folder / "svfl_aarch64.so"


@builds
def test_a_library_of_another_architecture_is_built_into_a_folder_of_its_own(
    library: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """By default a machine builds what it runs; what it does not run must not take that one's place."""
    data, manifest = library.read_bytes(), read_manifest(library.parent)
    assert manifest is not None
    (one,) = manifest.libraries
    assert (one.cpu_class, one.sha256) == ("aarch64", hashlib.sha256(data).hexdigest())
    assert is_current(library.parent, [ARM])
    assert not is_current(library.parent, paths_for("x86_64"))
    names = {symbol(part.name, kernel) for part in list_parts(ARM) for kernel in part.kernels}
    assert {name.split("_")[1] for name in names} == {"curve", "ring", "transforms", "bits"}
    assert not any("pext" in name or "52" in name for name in names)
    check_shared_object(data, names)
    assert data[18:20] == b"\xb7\0"  # ELF's number of aarch64
    other = next(one for one in ("x86_64", "aarch64") if one != platform.machine())
    with pytest.raises(SystemExit):
        main(["--for", other])
    assert f"of this {platform.machine()} machine looks in" in capsys.readouterr().err
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    assert cpu.host_features() == {"neon"}
    assert cpu.paths_of_this_cpu() == [ARM]
    assert reason_not_to_build() is None
    assert is_current(library.parent)  # what this machine would build by default


def test_objects_for_arm_have_only_instructions_that_every_cpu_of_it_has() -> None:
    """Neither SVE nor the optional instructions for hashes, atomics and dot products."""
    from llvmlite import binding

    text, bare = ring_part(ARM).text(), dataclasses.replace(ARM, needs=())
    emitted = [target_machine(path).emit_assembly(binding.parse_assembly(text)) for path in (ARM, bare)]
    assert emitted[0] == emitted[1]  # NEON is no addition
    assert ".16b" in emitted[0]
    for instruction in ("\tz0", "ptrue", "sha256", "sha512", "aese", "pmull", "udot", "ldadd", "\tcas"):
        assert instruction not in emitted[0]


@builds
@emulates
def test_the_library_for_arm_computes_every_vector(library: Path) -> None:
    """RFC 7748's, RFC 9380's and all others but Paillier's; and the self-tests, on fresh random input."""
    command = [sys.executable, str(ROOT / "tools" / "emulate.py"), "--quick", "--library", str(library)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, (done.stdout, done.stderr)
    lines = done.stdout.splitlines()
    assert lines[0] == "neon: the self-tests of four groups passed"
    assert sum(line.startswith("right ") for line in lines) == 8
    ran = {name for name in Image(library.read_bytes()).symbols if f"{name} " in lines[-2]}
    assert ran == set(Image(library.read_bytes()).symbols)


# What runs a library elsewhere


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The driver for this machine."""
    return build_driver(platform.machine(), tmp_path_factory.mktemp("driver"))


def _counting(library: Path, driver: Path, **changed: Any) -> np.ndarray:
    """`count_zeros` of three rows, in a process."""
    given: dict[str, Any] = {
        "out": np.zeros(3, dtype=np.uint64),
        "one": np.zeros((3, 64), dtype=np.uint8),
        "other": np.zeros((3, 64), dtype=np.uint8),
        "n": 3,
        **changed,
    }
    with KernelProcess(library.read_bytes(), [driver]) as process:
        process.call("svfl_ring_count_zeros", {name: given[name] for name in ("out", "one", "other", "n")})
    found: np.ndarray = given["out"]
    return found


HERE = cpu.paths_of_this_cpu()


@builds
@pytest.mark.skipif(not HERE, reason="this CPU runs no kernels")
def test_a_kernel_that_leaves_its_arrays_ends_its_process(tmp_path: Path, driver: Path) -> None:
    from securevfl_crypto.engine.build import build_library

    path: VectorPath = HERE[-1]
    part = ring_part(path)
    assert parameter_names(part.text(), "count_zeros") == ["out", "one", "other", "n"]
    library = tmp_path / "library"
    library.write_bytes(build_library(path, [part]))
    assert _counting(library, driver).tolist() == [64, 64, 64]
    for changed in ({"n": 4}, {"one": np.zeros(191, dtype=np.uint8)}, {"out": np.zeros(2, dtype=np.uint64)}):
        with pytest.raises(RuntimeError, match="svfl_ring_count_zeros ended the process with status -11"):
            _counting(library, driver, **changed)
