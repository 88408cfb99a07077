"""Which path is taken, what happens to one that computes wrongly, and that parties on different paths understand each
other."""

from __future__ import annotations

import itertools
import secrets
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import numpy as np
import pytest
from securevfl_crypto.engine import PATHS, Engine, available_paths, choice, choose_engine, compiled, cpu, vector
from securevfl_crypto.engine.compiled import Kernels
from securevfl_crypto.engine.scalar import ScalarEngine
from securevfl_crypto.errors import EngineError
from securevfl_psi import DHClient, DHServer, Session
from support.engines import runnable

VECTORS = [path.name for path in cpu.VECTOR_PATHS]


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """A process that has not chosen yet."""
    monkeypatch.delenv("SECUREVFL_ENGINE", raising=False)
    monkeypatch.setattr(choice, "_load_engine", choice._load_engine.__wrapped__)
    choice._fastest_engine.cache_clear()
    yield monkeypatch
    choice._fastest_engine.cache_clear()


def _best() -> str:
    return available_paths()[0]


def _need_vector() -> str:
    if _best() not in VECTORS:
        pytest.skip("this machine runs no compiled path")
    return _best()


def test_paths_in_their_order() -> None:
    assert PATHS == ("ifma", "avx512", "avx2", "neon", "libsodium", "cryptography")
    found = available_paths()
    assert found == runnable()  # none fails its self-test
    assert "cryptography" in found
    for path in found:
        assert choose_engine(path).name == path
        assert choose_engine(path) is choose_engine(path)


@pytest.mark.parametrize("value", ["", "auto", " Auto "])
def test_without_a_demand_the_fastest_is_taken(fresh: pytest.MonkeyPatch, value: str) -> None:
    fresh.setenv("SECUREVFL_ENGINE", value)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert choose_engine().name == _best()


@pytest.mark.parametrize("path", PATHS)
def test_the_environment_demands_a_path(fresh: pytest.MonkeyPatch, path: str) -> None:
    fresh.setenv("SECUREVFL_ENGINE", f" {path.upper()}")
    if path in available_paths():
        assert choose_engine().name == path
    else:
        with pytest.raises(EngineError, match=path):
            choose_engine()
    assert choose_engine("cryptography").name == "cryptography"  # an argument comes first


@pytest.mark.parametrize("name", ["sse2", "IFMA!", "ifma,avx2", "none"])
def test_unknown_paths_are_refused(fresh: pytest.MonkeyPatch, name: str) -> None:
    with pytest.raises(EngineError, match="one of ifma, avx512, avx2, neon, libsodium, cryptography is possible"):
        choose_engine(name)
    fresh.setenv("SECUREVFL_ENGINE", name)
    with pytest.raises(EngineError, match=r"SECUREVFL_ENGINE=.*one of auto, ifma"):
        choose_engine()


@pytest.mark.parametrize("path", cpu.VECTOR_PATHS, ids=VECTORS)
def test_a_demanded_path_needs_its_cpu(fresh: pytest.MonkeyPatch, path: cpu.VectorPath) -> None:
    fresh.setattr(cpu, "host_features", lambda: frozenset(path.needs[:-1]))
    with pytest.raises(EngineError, match=f"needs a CPU with {path.needs[-1]}"):
        choose_engine(path.name)
    fresh.setenv("SECUREVFL_ENGINE", path.name)
    with pytest.raises(EngineError, match=f"{path.name!r} needs a CPU"):
        choose_engine()


def test_a_lesser_cpu_takes_a_lesser_path_without_a_word(fresh: pytest.MonkeyPatch) -> None:
    scalar = next(path for path in available_paths() if path not in VECTORS)
    avx2 = set(next(path for path in cpu.VECTOR_PATHS if path.name == "avx2").needs)
    for features in ((), ("avx",), ("avx512f",), ("avx512f", "avx512ifma"), avx2 - {"bmi2"}):
        choice._fastest_engine.cache_clear()
        fresh.setattr(cpu, "host_features", lambda features=features: frozenset(features))
        assert choose_engine().name == scalar
    if "avx2" in available_paths():
        choice._fastest_engine.cache_clear()
        fresh.setattr(cpu, "host_features", lambda: frozenset({*avx2, "avx512f"}))
        assert choose_engine().name == "avx2"


def test_without_kernels_and_pynacl(fresh: pytest.MonkeyPatch) -> None:
    fresh.setattr(cpu, "host_features", frozenset)
    assert choose_engine().name in ("libsodium", "cryptography")
    for module in ("nacl", "nacl.bindings"):
        fresh.setitem(sys.modules, module, None)
    choice._fastest_engine.cache_clear()
    assert choose_engine().name == "cryptography"
    with pytest.raises(EngineError, match="pip install pynacl"):
        choose_engine("libsodium")
    assert available_paths() == ["cryptography"]


CPUINFO = """processor\t: 0
flags\t\t: fpu sse2 {first}

processor\t: 1
flags\t\t: fpu sse2 {second}
"""


_T = TypeVar("_T")


def _asked(monkeypatch: pytest.MonkeyPatch, text: str | None, ask: Callable[[], _T]) -> _T:
    """What `ask` says on a machine with this ``/proc/cpuinfo``; None: there is none."""

    def read_text(self: Path, **options: str) -> str:
        assert str(self) == "/proc/cpuinfo"
        if text is None:
            raise FileNotFoundError(self)
        return text

    monkeypatch.setattr(Path, "read_text", read_text)
    cpu._read_cpuinfo.cache_clear()
    try:
        return ask()
    finally:
        cpu._read_cpuinfo.cache_clear()


def _listed(monkeypatch: pytest.MonkeyPatch, text: str | None) -> frozenset[str]:
    return _asked(monkeypatch, text, cpu.host_features)


def test_features_are_those_that_all_cores_list(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = " ".join(cpu.FEATURES.values())
    assert _listed(monkeypatch, CPUINFO.format(first=whole, second=whole)) == frozenset(cpu.FEATURES)
    one = _listed(monkeypatch, CPUINFO.format(first=whole, second="avx2 bmi1 abm pni"))
    assert one == {"avx2", "bmi", "lzcnt", "sse3"}


@pytest.mark.parametrize("text", [None, "", "Features\t: fp asimd sve\n", "flags\n"])
def test_a_machine_without_a_list_of_features_has_none(monkeypatch: pytest.MonkeyPatch, text: str | None) -> None:
    assert _listed(monkeypatch, text) == frozenset()


@pytest.mark.parametrize(
    ("vendor", "family", "fast"),
    [
        ("AuthenticAMD", "21", False),  # Excavator
        ("AuthenticAMD", "23", False),  # Zen 1 and 2
        ("AuthenticAMD", "25", True),  # Zen 3 and 4
        ("AuthenticAMD", "26", True),
        ("HygonGenuine", "24", False),
        ("GenuineIntel", "6", True),
        ("GenuineIntel", "19", True),
        ("AuthenticAMD", "", True),
        ("AuthenticAMD", "unknown", True),
    ],
)
def test_amds_cpus_before_zen_3_have_a_slow_pext(
    monkeypatch: pytest.MonkeyPatch, vendor: str, family: str, fast: bool
) -> None:
    core = f"processor\t: 0\nvendor_id\t: {vendor}\ncpu family\t: {family}\nmodel\t\t: 49\nflags\t\t: fpu avx2 bmi2\n\n"
    for text in (core, core * 3, core.replace("flags", "cpu family mark\t: 1\nflags")):
        assert _asked(monkeypatch, text, cpu.has_fast_pext) == fast
        assert _listed(monkeypatch, text) == {"avx2", "bmi2"}


@pytest.mark.parametrize("text", [None, "", "vendor_id\n", "Features\t: fp asimd sve\n"])
def test_a_cpu_that_nobody_names_has_a_fast_pext(monkeypatch: pytest.MonkeyPatch, text: str | None) -> None:
    assert _asked(monkeypatch, text, cpu.has_fast_pext)


def test_the_list_of_the_cpu_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    reads = []

    def ask() -> None:
        read = Path.read_text
        monkeypatch.setattr(Path, "read_text", lambda self, **options: reads.append(self) or read(self, **options))
        for _ in range(3):
            cpu.host_features()
            cpu.has_fast_pext()

    _asked(monkeypatch, CPUINFO.format(first="avx2", second="avx2"), ask)
    assert len(reads) == 1


# Paths that compute wrongly

WRONG = {
    "x25519": "computes X25519 wrongly",
    "hash_to_u": "computes the hash to the curve wrongly",
    "sha512": "computes SHA-512 wrongly",
}


def _flipped(out: np.ndarray, row: int) -> np.ndarray:
    out = out.copy()
    out[row, 7] ^= 1
    return out


class _Broken(ScalarEngine):
    """Computes by `cryptography`, but one bit of one row of some operations is wrong."""

    def __init__(self, broken: set[str], row: int = -1) -> None:
        super().__init__("cryptography")
        self._broken, self._row = broken, row

    def _maybe(self, name: str, out: np.ndarray) -> np.ndarray:
        return _flipped(out, self._row) if name in self._broken else out

    def x25519(self, secret: bytes, points: np.ndarray) -> np.ndarray:
        return self._maybe("x25519", super().x25519(secret, points))

    def hash_to_u(self, messages: np.ndarray, dst: bytes) -> np.ndarray:
        return self._maybe("hash_to_u", super().hash_to_u(messages, dst))

    def sha512(self, rows: np.ndarray, prefix: bytes = b"") -> np.ndarray:
        return self._maybe("sha512", super().sha512(rows, prefix))


def test_a_right_engine_passes_the_self_test() -> None:
    choice.check_engine(_Broken(set()))


@pytest.mark.parametrize("row", [0, -1])
@pytest.mark.parametrize("name", WRONG)
def test_one_wrong_bit_fails_the_self_test(name: str, row: int) -> None:
    with pytest.raises(EngineError, match=WRONG[name]) as caught:
        choice.check_engine(_Broken({name}, row))
    assert "SECUREVFL_ENGINE=cryptography" in str(caught.value)


def test_the_self_test_names_all_that_is_wrong() -> None:
    with pytest.raises(EngineError, match="X25519 and the hash to the curve and SHA-512 wrongly"):
        choice.check_engine(_Broken(set(WRONG)))


def test_the_self_test_does_not_trust_a_wrong_library(monkeypatch: pytest.MonkeyPatch) -> None:
    """If what everything is compared with is wrong in the same way, the RFC's vector still is not."""
    right = ScalarEngine.x25519
    monkeypatch.setattr(ScalarEngine, "x25519", lambda self, secret, points: _flipped(right(self, secret, points), 0))
    with pytest.raises(EngineError, match="X25519"):
        choice.check_engine(ScalarEngine("cryptography"))


@pytest.mark.parametrize("name", WRONG)
def test_a_path_that_computes_wrongly_is_left_with_a_warning(fresh: pytest.MonkeyPatch, name: str) -> None:
    """The fastest path is broken, as on a machine with a faulty unit or compiler; the next one is taken."""
    first, second, *_ = available_paths()
    _need_vector()
    right = getattr(vector.VectorEngine, name)

    def wrong(self: Engine, *arguments: object) -> np.ndarray:
        out = right(self, *arguments)
        return _flipped(out, 0) if self.name == first else out

    fresh.setattr(vector.VectorEngine, name, wrong)
    with pytest.warns(RuntimeWarning, match=f"{first!r} {WRONG[name]}.*taking a slower path") as caught:
        assert choose_engine().name == second
    assert caught[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert choose_engine().name == second  # remembered, without another warning
    with pytest.raises(EngineError, match=WRONG[name]):
        choose_engine(first)  # who demands it is refused
    fresh.setenv("SECUREVFL_ENGINE", first)
    with pytest.raises(EngineError, match=WRONG[name]):
        choose_engine()


def test_a_library_that_computes_wrongly_is_left_with_a_warning(fresh: pytest.MonkeyPatch) -> None:
    if "libsodium" not in available_paths():
        pytest.skip("PyNaCl is not installed")
    right = ScalarEngine.sha512

    def wrong(self: Engine, *arguments: object) -> np.ndarray:
        out = right(self, *arguments)  # type: ignore[arg-type]
        return _flipped(out, 0) if self.name == "libsodium" else out

    fresh.setattr(ScalarEngine, "sha512", wrong)
    fresh.setattr(cpu, "host_features", frozenset)
    with pytest.warns(RuntimeWarning, match="'libsodium' computes SHA-512 wrongly"):
        assert choose_engine().name == "cryptography"


def test_a_path_whose_kernels_cannot_be_loaded_is_left_with_a_warning(fresh: pytest.MonkeyPatch) -> None:
    first, second, *_ = available_paths()
    _need_vector()
    right = compiled.curve_kernels

    def load(path: cpu.VectorPath) -> Kernels:
        if path.name == first:
            raise EngineError(f"the path {first!r} is broken")
        return right(path)

    fresh.setattr(compiled, "curve_kernels", load)
    with pytest.warns(RuntimeWarning, match=f"{first!r} is broken; taking a slower path"):
        assert choose_engine().name == second
    with pytest.raises(EngineError, match="is broken"):
        choose_engine(first)


# Parties on different machines


@pytest.mark.parametrize(("one", "other"), list(itertools.combinations(PATHS, 2)))
def test_parties_on_different_paths_find_the_same_rows(one: str, other: str) -> None:
    if not {one, other} <= set(available_paths()):
        pytest.skip(f"this machine cannot run {one} and {other}")
    mine, theirs = [f"id {k}" for k in range(0, 60, 2)], [f"id {k}" for k in range(0, 90, 3)]
    session = Session(names=("bank", "shop"), nonce=secrets.token_bytes(16), rules_tag="v1")
    client = DHClient(mine, session, by=choose_engine(one))
    server = DHServer(theirs, session, by=choose_engine(other))
    for points in client.blind_set():
        server.take_chunk(points)
        client.take_answers(server.answer_chunk())
    for tokens in server.token_chunks():
        client.take_tokens(tokens)
    found = client.find_common_rows()
    rows = server.find_proven_rows(client.outputs.prove_rows(found))
    assert [mine[row] for row in found] == [f"id {k}" for k in range(0, 60, 6)]
    assert [theirs[row] for row in rows] == [f"id {k}" for k in range(0, 60, 6)]


def test_a_wrong_number_of_threads_is_no_reason_to_take_another_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECUREVFL_THREADS", "many")
    choice._fastest_engine.cache_clear()
    with pytest.raises(EngineError, match="SECUREVFL_THREADS='many'; a number from 1 to 256"):
        choice.choose_engine()
    choice._fastest_engine.cache_clear()
