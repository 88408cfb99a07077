"""Kernels compiled ahead: they give the words of those compiled in memory and of libraries; a file that is wrong,
missing or of another class is not run; and a process that may not make memory executable computes with them."""

from __future__ import annotations

import _ctypes
import dataclasses
import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from gmpy2 import mpz
from securevfl_crypto.bits import bit_loops
from securevfl_crypto.bits import paths as bit_paths
from securevfl_crypto.bits.compiled import CompiledBitLoops
from securevfl_crypto.bits.portable import PortableBitLoops
from securevfl_crypto.engine import choice, choose_engine, cpu, library, paths
from securevfl_crypto.engine.build import (
    build_library,
    check_shared_object,
    is_current,
    list_parts,
    paths_for,
    reason_not_to_build,
)
from securevfl_crypto.engine.compiled import Kernels, curve_part
from securevfl_crypto.engine.compiled_bits import BitKernels, bits_part
from securevfl_crypto.engine.compiled_long import LongKernels, long_part
from securevfl_crypto.engine.compiled_ring import RingKernels, ring_part
from securevfl_crypto.engine.cpu import VECTOR_PATHS, VectorPath, paths_of_this_cpu
from securevfl_crypto.engine.elf import read_shared_object
from securevfl_crypto.engine.library import FOLDER, MANIFEST, load_part, read_manifest
from securevfl_crypto.engine.llvm import compile_in_memory, emit_object, target_machine
from securevfl_crypto.engine.parts import LoadedPart, Part, symbol
from securevfl_crypto.engine.scalar import ScalarEngine
from securevfl_crypto.engine.vector import VectorEngine
from securevfl_crypto.errors import EngineError, WrongLibraryError
from securevfl_crypto.modular import choice as modular_choice
from securevfl_crypto.modular import modular_arithmetic
from securevfl_crypto.modular.gmp import GmpModulus
from securevfl_crypto.modular.vector import VectorModulus
from securevfl_crypto.ring import paths as ring_paths
from securevfl_crypto.ring.compiled import CompiledRingLoops
from securevfl_crypto.ring.paths import ring_loops
from securevfl_crypto.ring.portable import PortableRingLoops
from securevfl_crypto.transforms import paths as transform_paths
from securevfl_crypto.transforms import transform_loops
from support.hardened import REFUSES, run_filtered
from support.kernel_words import agree, bit_words, curve_words, long_words, ring_words

HERE = paths_of_this_cpu()
BUILT_PATHS = paths_for(platform.machine())
X86 = paths_for("x86_64")
BUILT = read_manifest(FOLDER) is not None
built = pytest.mark.skipif(not BUILT, reason="no kernels were compiled ahead here")
runs_kernels = pytest.mark.skipif(not (BUILT and HERE), reason="this machine runs no kernels that were compiled ahead")
builds = pytest.mark.skipif(reason_not_to_build() is not None, reason=f"{reason_not_to_build()}")
PRIME = (mpz(1) << 1279) - 1
_Load = Callable[[Part, VectorPath], LoadedPart]
WAYS = [
    *(pytest.param(path, load_part, id=f"{path.name}-ahead") for path in HERE),
    *(pytest.param(path, compile_in_memory, id=f"{path.name}-in memory") for path in HERE[-1:]),
]
"""Every path as it was compiled ahead; in memory, which is the same emitters and LLVM, the slowest one."""


# The words of all kernels


@runs_kernels
@pytest.mark.parametrize(("path", "load"), WAYS)
def test_kernels_give_the_words_of_libraries(path: VectorPath, load: _Load) -> None:
    curve = VectorEngine(Kernels(path, load(curve_part(path), path)))
    assert agree(curve_words(curve), curve_words(ScalarEngine("cryptography")))
    bits = CompiledBitLoops(BitKernels(path, load(bits_part(), path)))
    assert agree(bit_words(bits), bit_words(PortableBitLoops()))
    ring = CompiledRingLoops(RingKernels(path, load(ring_part(path), path)))
    assert agree(ring_words(ring), ring_words(PortableRingLoops()))


@runs_kernels
@pytest.mark.parametrize(("path", "load"), WAYS)
def test_kernels_of_long_numbers_give_the_words_of_gmp(path: VectorPath, load: _Load) -> None:
    for m, root in ((PRIME, None), (PRIME**2, PRIME)):
        kernels = LongKernels(path, load(long_part(path, squares=root is not None), path))
        assert long_words(VectorModulus(m, kernels, root)) == long_words(GmpModulus(m))


# What a library is


@built
def test_the_libraries_are_those_of_the_sources() -> None:
    """Red after a change of an emitter: `make kernels` compiles again."""
    manifest = read_manifest(FOLDER)
    assert manifest is not None
    assert [one.cpu_class for one in manifest.libraries] == [path.cpu_class for path in BUILT_PATHS]
    for path, one in zip(BUILT_PATHS, manifest.libraries, strict=True):
        emitted = {part.name: hashlib.sha256(part.text().encode()).hexdigest() for part in list_parts(path)}
        assert one.parts == emitted, "the kernels were compiled from other sources: run `make kernels`"


@built
def test_the_manifest_has_neither_time_nor_path() -> None:
    content = json.loads((FOLDER / MANIFEST).read_text(encoding="ascii"))
    assert set(content) == {"libraries", "llvmlite", "ziglang"}
    for one in content["libraries"]:
        assert set(one) == {"class", "file", "sha256", "parts"}
        assert "/" not in one["file"]


@built
@pytest.mark.parametrize("path", BUILT_PATHS, ids=lambda path: path.name)
def test_a_library_offers_called_kernels_and_asks_for_nothing(path: VectorPath) -> None:
    data = (FOLDER / library.library_file(path.cpu_class)).read_bytes()
    names = {symbol(part.name, kernel) for part in list_parts(path) for kernel in part.kernels}
    check_shared_object(data, names)
    with pytest.raises(EngineError, match=r"other symbols than the kernels: \['svfl_curve_inversion'\]"):
        check_shared_object(data, names | {"svfl_curve_inversion"})  # hidden: only other kernels call it


def test_an_ordinary_library_is_refused() -> None:
    data = Path(_ctypes.__file__).read_bytes()
    with pytest.raises(EngineError, match=r"needs symbols of others.*needs other libraries") as caught:
        check_shared_object(data, set(read_shared_object(data).defined))
    assert "runs code when it is loaded" in str(caught.value)


@pytest.mark.parametrize("data", [b"", b"MZ" + bytes(62), b"\x7fELF\x02\x01" + bytes(58)])
def test_what_is_no_shared_object_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="not a 64-bit little-endian ELF shared object"):
        read_shared_object(data)


@built
@builds
def test_another_build_has_equal_bytes() -> None:
    """In another process, whose sets have another order."""
    if not is_current(FOLDER):
        pytest.skip("the kernels here were built with other tools")
    path = BUILT_PATHS[0]
    code = (
        "import hashlib\n"
        "from securevfl_crypto.engine.build import build_library, list_parts, paths_for\n"
        f"path = paths_for({platform.machine()!r})[0]\n"
        "print(hashlib.sha256(build_library(path, list_parts(path))).hexdigest())\n"
    )
    manifest = read_manifest(FOLDER)
    assert manifest is not None
    assert _run(code, PYTHONHASHSEED="7") == next(
        one.sha256 for one in manifest.libraries if one.cpu_class == path.cpu_class
    )


@builds
@pytest.mark.parametrize("path", [X86[-1], VECTOR_PATHS[-1]], ids=lambda path: path.name)
def test_a_symbol_that_nobody_defines_fails_the_build(path: VectorPath) -> None:
    text = "declare void @other(ptr)\ndefine void @copy(ptr %a) {\n  call void @other(ptr %a)\n  ret void\n}"
    with pytest.raises(EngineError, match="undefined symbol: other"):
        build_library(path, [Part("curve", lambda: text, {"copy": []})])


# Classes of CPUs


@pytest.mark.parametrize("path", VECTOR_PATHS, ids=lambda path: path.name)
def test_a_path_needs_every_feature_that_its_compiler_may_use(
    path: VectorPath, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each feature that LLVM is given is one that the check of the CPU asks for; without it nothing is loaded."""
    given = {one[1:] for one in path.llvm_features.split(",") if one.startswith("+")}
    assert given == set(path.needs)
    for name in path.needs:
        monkeypatch.setattr(cpu, "host_features", lambda name=name: frozenset(cpu.FEATURES) - {name})
        with pytest.raises(EngineError, match=f"needs a CPU with {name}$"):
            load_part(bits_part(), path)
        assert path not in paths_of_this_cpu()


def test_the_classes_are_those_of_the_psabi() -> None:
    """Given features add nothing to the level's own, so the table lists no feature that the level lacks."""
    for path in X86[1:]:
        own = target_machine(path)
        bare = target_machine(dataclasses.replace(path, needs=()))
        text = ring_part(path).text()  # parsed twice: LLVM changes a module while it emits it
        assert own.emit_assembly(_parsed(text)) == bare.emit_assembly(_parsed(text))
    assert set(X86[2].needs) < set(X86[1].needs) < set(X86[0].needs)


def _parsed(text: str) -> Any:
    from llvmlite import binding

    return binding.parse_assembly(text)


@pytest.mark.parametrize("path", X86, ids=lambda path: path.name)
def test_objects_have_only_instructions_of_their_class(path: VectorPath) -> None:
    """Registers and instructions that a lesser class lacks, as a check of the compiler's settings."""
    machine = target_machine(path)
    text = "".join(machine.emit_assembly(_parsed(part.text())) for part in (ring_part(path), bits_part()))
    assert ("%zmm" in text or "zmm" in text) == (path.lanes == 8)
    assert ("vpmadd52" in text) == (path.name == "ifma")
    assert ("vpcompressb" in text) == (path.name == "ifma")
    assert ("\tpextq" in text) == (path.name != "ifma")
    for instruction in ("gf2p8", "vaesenc", "sha256", "vpclmul", "adcx", "adox"):
        assert instruction not in text


def test_an_object_is_the_same_twice() -> None:
    path = X86[-1]
    assert emit_object(ring_part(path), path) == emit_object(ring_part(path), path)


# Files that are wrong or missing


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A copy of the libraries, in a process that has loaded and chosen nothing."""
    copy = tmp_path / "ahead"
    shutil.copytree(FOLDER, copy)
    monkeypatch.setattr(library, "FOLDER", copy)
    monkeypatch.setattr(paths, "_warned", False)
    monkeypatch.delenv("SECUREVFL_ENGINE", raising=False)
    from securevfl_crypto.engine import compiled, compiled_bits, compiled_long, compiled_ring
    from securevfl_crypto.engine.transforms import compiled as compiled_transforms

    caches = [
        choice._fastest_engine,
        choice._load_engine,
        bit_paths._chosen,
        bit_paths._load,
        ring_paths._chosen,
        ring_paths._load,
        modular_choice._cached_modulus,
        modular_choice._test_kernels,
        compiled.curve_kernels,
        compiled_bits.bit_kernels,
        compiled_ring.ring_kernels,
        transform_paths._chosen,
        transform_paths._load,
        compiled_transforms.transform_kernels,
        compiled_long.long_kernels,
    ]
    for cache in caches:
        cache.cache_clear()
    yield copy
    for cache in caches:
        cache.cache_clear()


def _best_file(folder: Path) -> Path:
    return folder / library.library_file(HERE[0].cpu_class)


CHOICES: list[Callable[[], Any]] = [
    choose_engine,
    bit_loops,
    ring_loops,
    transform_loops,
    lambda: modular_arithmetic(PRIME),
]


@runs_kernels
@pytest.mark.parametrize("choose", CHOICES, ids=["curve", "bits", "ring", "transforms", "long"])
def test_one_flipped_byte_is_an_error_and_no_warning(folder: Path, choose: Callable[[], Any]) -> None:
    file = _best_file(folder)
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    with pytest.raises(WrongLibraryError, match="is not the library of its manifest") as caught:
        choose()
    assert str(file) in str(caught.value)
    assert "make kernels" in str(caught.value)
    assert isinstance(caught.value, EngineError)


@runs_kernels
def test_a_manifest_of_another_build_is_an_error(folder: Path) -> None:
    content = json.loads((folder / MANIFEST).read_text(encoding="ascii"))
    for one in content["libraries"]:
        one["sha256"] = hashlib.sha256(b"another build").hexdigest()
    (folder / MANIFEST).write_text(json.dumps(content), encoding="ascii")
    with pytest.raises(WrongLibraryError, match="the manifest lists"):
        choose_engine()


@runs_kernels
@pytest.mark.parametrize(
    "change",
    [
        lambda content: content.clear(),
        lambda content: content["libraries"][0].pop("sha256"),
        lambda content: content["libraries"].append(7),
        lambda content: content["libraries"][0].update({"class": "x86_64_v3"}),
        lambda content: content["libraries"][0].update({"file": "../libc.so"}),
    ],
)
def test_what_is_no_manifest_is_an_error(folder: Path, change: Callable[[Any], Any]) -> None:
    content = json.loads((folder / MANIFEST).read_text(encoding="ascii"))
    change(content)
    (folder / MANIFEST).write_text(json.dumps(content), encoding="ascii")
    with pytest.raises(WrongLibraryError, match="is not a manifest of kernels"):
        choose_engine()
    (folder / MANIFEST).write_bytes(b"{")
    with pytest.raises(WrongLibraryError, match="is not a manifest of kernels"):
        choose_engine()


@runs_kernels
def test_reports_name_the_class_and_the_manifests_hash(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    digest = hashlib.sha256((folder / MANIFEST).read_bytes()).hexdigest()
    monkeypatch.delenv("SECUREVFL_ENGINE", raising=False)
    assert library.describe_kernels() == {"cpu class": HERE[0].cpu_class, "kernels": f"manifest {digest}"}
    for path in HERE:
        monkeypatch.setenv("SECUREVFL_ENGINE", path.name)
        assert library.describe_kernels()["cpu class"] == path.cpu_class
    monkeypatch.setenv("SECUREVFL_ENGINE", "cryptography")
    assert library.describe_kernels()["cpu class"] == "none"
    (folder / MANIFEST).write_bytes(b"{")
    assert library.describe_kernels()["kernels"] == "unreadable manifest"
    (folder / MANIFEST).unlink()
    assert library.describe_kernels()["kernels"] == "none"


@runs_kernels
def test_a_library_without_a_kernel_is_an_error(folder: Path) -> None:
    part = Part("curve", lambda: "", {"no_such_kernel": []})
    with pytest.raises(WrongLibraryError, match="has no kernel svfl_curve_no_such_kernel"):
        load_part(part, HERE[0])


@runs_kernels
def test_missing_libraries_are_one_warning_and_libraries_compute(folder: Path) -> None:
    shutil.rmtree(folder)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        names = [choose().name for choose in (choose_engine, bit_loops, ring_loops)]
        assert isinstance(modular_arithmetic(PRIME), GmpModulus)
    assert names[0] in ("libsodium", "cryptography")
    assert names[1:] == ["numpy", "numpy"]
    (one,) = seen
    assert issubclass(one.category, RuntimeWarning)
    for words in (str(folder), "several times as long", "make kernels"):
        assert words in str(one.message)


@runs_kernels
def test_a_missing_class_leaves_the_lesser_ones(folder: Path) -> None:
    _best_file(folder).unlink()
    lesser = HERE[1].name if len(HERE) > 1 else choice.available_paths()[0]
    with pytest.warns(RuntimeWarning, match="cannot be read"):
        assert choose_engine().name == lesser
    assert bit_loops().name == (lesser if len(HERE) > 1 else "numpy")  # another warning would be an error
    with pytest.raises(EngineError, match="cannot be read"):
        choose_engine(HERE[0].name)


@runs_kernels
def test_a_file_system_that_executes_nothing_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(name: str) -> None:
        raise OSError(f"{name}: failed to map segment from shared object")

    monkeypatch.setattr(library.ctypes, "CDLL", refuse)
    with pytest.warns(RuntimeWarning, match=r"does not load the compiled kernels \(.*failed to map segment") as seen:
        assert choose_engine().name in ("libsodium", "cryptography")
    assert len(seen) == 1


# Compiled in memory


@pytest.mark.skipif(not HERE, reason="this CPU runs no kernels")
def test_jit_compiles_for_the_best_class(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.rmtree(folder)
    monkeypatch.setenv("SECUREVFL_ENGINE", " JIT")
    assert bit_loops().name == HERE[0].name
    monkeypatch.setitem(sys.modules, "securevfl_crypto.engine.llvm", None)
    with pytest.raises(EngineError, match=r"pip install 'securevfl-crypto\[jit\]'"):
        choose_engine()
    monkeypatch.setattr(cpu, "host_features", frozenset)
    with pytest.raises(EngineError, match="SECUREVFL_ENGINE=jit: this CPU runs none of the classes"):
        ring_loops()


def test_text_that_llvm_rejects_names_the_remedy() -> None:
    with pytest.raises(EngineError, match=r"cannot be compiled \(LLVM IR parsing error\); install llvmlite"):
        compile_in_memory(Part("curve", lambda: "nonsense", {}), X86[-1])


# Processes of their own


def _run(code: str, **settings: str) -> str:
    kept = {name: value for name, value in os.environ.items() if name != "SECUREVFL_ENGINE"}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        env={**kept, "PYTHONPATH": os.pathsep.join(sys.path), **settings},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, (done.returncode, done.stderr)
    return done.stdout.strip()


SWITCH = """
import ctypes, sys
libc = ctypes.CDLL(None, use_errno=True)
PR_SET_MDWE, PR_MDWE_REFUSE_EXEC_GAIN = 65, 1
if libc.prctl(PR_SET_MDWE, PR_MDWE_REFUSE_EXEC_GAIN, 0, 0, 0) != 0:
    print("unsupported")  # before Linux 6.3
    sys.exit()
"""
HARDENED = """
import mmap, sys
try:
    mmap.mmap(-1, 4096, prot=mmap.PROT_WRITE | mmap.PROT_EXEC)
    raise SystemExit("memory was executable")
except PermissionError:
    pass
sys.modules["llvmlite"] = None
import secrets
from securevfl_crypto.bits import bit_loops
from securevfl_crypto.engine import choose_engine
from securevfl_crypto.modular import modular_arithmetic
from securevfl_crypto.ring.paths import ring_loops
from securevfl_psi import DHClient, DHServer, Session
session = Session(names=("bank", "shop"), nonce=secrets.token_bytes(16), rules_tag="v1")
client = DHClient([f"id {k}" for k in range(0, 60, 2)], session)
server = DHServer([f"id {k}" for k in range(0, 90, 3)], session)
for points in client.blind_set():
    server.take_chunk(points)
    client.take_answers(server.answer_chunk())
for tokens in server.token_chunks():
    client.take_tokens(tokens)
assert len(client.find_common_rows(server.size)) == 10
print(choose_engine().name, bit_loops().name, ring_loops().name, modular_arithmetic(2**1279 - 1).kernels.path.name)
"""


@runs_kernels
def test_a_process_that_may_not_make_memory_executable_computes_with_kernels() -> None:
    """Under Linux's PR_SET_MDWE, and without llvmlite: an intersection, and every group of kernels."""
    said = _run(SWITCH + HARDENED)
    if said == "unsupported":
        pytest.skip("this kernel has no PR_SET_MDWE")
    assert said.split() == [HERE[0].name] * 4


SHARES = """
import sys
import securevfl as sv
computing = ("clinic", "lab", "helper")
job = sv.Job(algorithm=sv.SplitNN(hidden=4, top=()), protection=sv.Shares(computing=computing), epochs=1, steps=1)
assert sv.simulate(job, sv.datasets.breast_cancer()).record.runs[0].test["auc"] > 0
assert "llvmlite" not in sys.modules
print("trained")
"""
PSI = """
import pathlib
from securevfl_psi_cli import main
for name in ("a", "b"):
    rows = "".join(f"id {k}\\n" for k in range(0, 90, 2 if name == "a" else 3))
    pathlib.Path(f"{name}.csv").write_text("id\\n" + rows)
main(["compare", "a.csv", "b.csv", "--id", "id"])
"""


def _run_filtered(code: str, folder: Path) -> str:
    kept = {name: value for name, value in os.environ.items() if name != "SECUREVFL_ENGINE"}
    done = run_filtered(["-c", code], env={**kept, "PYTHONPATH": os.pathsep.join(sys.path)}, cwd=folder, timeout=300)
    if done.stdout.startswith("unsupported"):
        pytest.skip(done.stdout.strip())
    assert done.returncode == 0, (done.returncode, done.stdout, done.stderr)
    return done.stdout.strip()


def test_the_filter_refuses_every_way_to_executable_memory(tmp_path: Path) -> None:
    """Without it, each of them is there: the test of the filter can fail."""
    assert _run_filtered(REFUSES, tmp_path) == ""
    assert len(_run(REFUSES).split(";")) == 3


@runs_kernels
def test_kernels_compute_where_no_memory_was_executable_from_the_first_instruction(tmp_path: Path) -> None:
    """Under a seccomp filter that was there before Python was, as systemd's MemoryDenyWriteExecute=yes makes one."""
    assert _run_filtered(HARDENED, tmp_path).split() == [HERE[0].name] * 4


@pytest.mark.parametrize(("code", "said"), [(SHARES, "trained"), (PSI, "15")], ids=["a job on shares", "securevfl-psi"])
def test_a_whole_process_runs_where_no_memory_may_become_executable(code: str, said: str, tmp_path: Path) -> None:
    assert said in _run_filtered(code, tmp_path)
