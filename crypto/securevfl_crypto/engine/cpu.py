"""The code paths, the features of this CPU, and the settings from the environment.

``SECUREVFL_ENGINE`` forces one of `PATHS`, or compiles in memory (``jit``, for developers); ``SECUREVFL_THREADS`` sets
how many threads a batch may use.
"""

from __future__ import annotations

import os
import platform
import time
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from securevfl_crypto.engine.quota import usable_cores
from securevfl_crypto.errors import EngineError

__all__ = [
    "FEATURES",
    "JIT",
    "PATHS",
    "VECTOR_PATHS",
    "VectorPath",
    "check_cpu",
    "compiles_in_memory",
    "forced_path",
    "has_fast_pext",
    "host_features",
    "paths_of_this_cpu",
    "thread_count",
]

_V3 = {
    "avx": "avx",
    "avx2": "avx2",
    "bmi": "bmi1",
    "bmi2": "bmi2",
    "cx16": "cx16",
    "f16c": "f16c",
    "fma": "fma",
    "lzcnt": "abm",
    "movbe": "movbe",
    "popcnt": "popcnt",
    "sahf": "lahf_lm",
    "sse3": "pni",
    "sse4.1": "sse4_1",
    "sse4.2": "sse4_2",
    "ssse3": "ssse3",
    "xsave": "xsave",
}
_V4 = {name: name for name in ("avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl")}
_IFMA = {
    "avx512bitalg": "avx512_bitalg",
    "avx512ifma": "avx512ifma",
    "avx512vbmi": "avx512vbmi",
    "avx512vbmi2": "avx512_vbmi2",
    "avx512vnni": "avx512_vnni",
    "avx512vpopcntdq": "avx512_vpopcntdq",
}
_NEON = {"neon": "asimd"}
FEATURES = _V3 | _V4 | _IFMA | _NEON
"""The CPU features that compiled code may use: LLVM's name, and Linux's in ``/proc/cpuinfo``.

The x86-64 psABI defines the levels v3 and v4 by the first two groups. The third is what the kernels gain from beside
IFMA; Ice Lake, Zen 4 and later CPUs have all of it. Every CPU of 64-bit Arm that runs Linux has the last.
"""


@dataclass(frozen=True)
class VectorPath:
    """A way to compile the kernels, for one class of CPUs. A library of the class runs on every CPU with `needs`.

    Attributes:
        name: the name that the environment variable takes.
        lanes: 64-bit lanes of a vector.
        radix: bits of a limb of the curve's coordinates: 52 with IFMA's products, or 51 with products in doubles.
        cpu_class: the name of the class, and of its library's file.
        llvm_cpu: the psABI level in LLVM's spelling, or ``generic``. Never the host's CPU: a path has the same code on
            every machine.
        needs: the CPU features that the path needs, in LLVM's names. This one tuple feeds the compiler and the check of
            the CPU, so LLVM cannot emit an instruction that the check does not cover.
        machine: what the system calls the architecture: ``x86_64`` or ``aarch64``.
    """

    name: str
    lanes: int
    radix: int
    cpu_class: str
    llvm_cpu: str
    needs: tuple[str, ...]
    machine: str = "x86_64"

    @property
    def llvm_features(self) -> str:
        """What LLVM may use, in its syntax; vectors keep 512 bits, which level v4's tuning would halve."""
        tuning = ["-prefer-256-bit"] if self.machine == "x86_64" else []
        return ",".join([*(f"+{name}" for name in self.needs), *tuning])

    @property
    def has_pext(self) -> bool:
        """Whether residues have kernels with BMI2's ``pext``: without VBMI2, which does the same for whole rows."""
        return "bmi2" in self.needs and "avx512vbmi2" not in self.needs

    @property
    def has_long_numbers(self) -> bool:
        """Whether there are kernels of long numbers; two lanes are not known to be faster than GMP."""
        return self.lanes > 2


VECTOR_PATHS = (
    VectorPath("ifma", 8, 52, "x86_64_v4_ifma", "x86-64-v4", (*_V3, *_V4, *_IFMA)),
    VectorPath("avx512", 8, 51, "x86_64_v4", "x86-64-v4", (*_V3, *_V4)),
    VectorPath("avx2", 4, 51, "x86_64_v3", "x86-64-v3", tuple(_V3)),
    VectorPath("neon", 2, 51, "aarch64", "generic", tuple(_NEON), "aarch64"),
)
PATHS = (*(path.name for path in VECTOR_PATHS), "libsodium", "cryptography")
"""The names of all paths, from the fastest to the slowest; all give the same bytes. No machine runs all of them."""
JIT = "jit"
"""The setting that compiles the kernels of the CPU's best path in memory. Nothing but the setting chooses it."""
_VARIABLE = "SECUREVFL_ENGINE"
_ZEN3 = 25
"""AMD's family of Zen 3 and Zen 4."""


def compiles_in_memory() -> bool:
    """Whether ``SECUREVFL_ENGINE`` asks for kernels that are compiled in memory."""
    return os.environ.get(_VARIABLE, "").strip().lower() == JIT


def forced_path() -> str | None:
    """The path that ``SECUREVFL_ENGINE`` names, or None.

    Raises:
        EngineError: the name is unknown, or no vector path can run here and the setting is ``jit``.
    """
    name = os.environ.get(_VARIABLE, "auto").strip().lower()
    if name in ("", "auto"):
        return None
    if name == JIT:
        possible = paths_of_this_cpu()
        if not possible:
            raise EngineError(f"{_VARIABLE}={JIT}: this CPU runs none of the classes that kernels are compiled for")
        return possible[0].name
    if name not in PATHS:
        raise EngineError(f"{_VARIABLE}={name!r}; one of auto, {', '.join(PATHS)} is possible, or {JIT} for developers")
    return name


def host_features() -> frozenset[str]:
    """Which of `FEATURES` this machine has, in LLVM's names.

    Linux lists in ``/proc/cpuinfo`` what the CPU has and the system enabled: without saved registers of 256 or 512 bits
    it drops AVX and AVX-512 from the list. Empty where there is no such list, on other systems and CPUs too. On 64-bit
    Arm nothing is read: NEON belongs to the architecture.
    """
    if platform.machine() == "aarch64":
        return frozenset(_NEON)
    flags = _read_cpuinfo().flags
    return frozenset(name for name, flag in FEATURES.items() if flag in flags)


def has_fast_pext() -> bool:
    """Whether BMI2's ``pext`` is one operation on this CPU, as far as ``/proc/cpuinfo`` tells.

    AMD's CPUs before Zen 3 (families below 25; Zen 1 and 2 are family 23) and Hygon's, which descend from Zen 1, have
    it as microcode of up to some hundred operations. A virtual machine may name another CPU than it has: kernels are
    then slower, and still right.
    """
    return not _read_cpuinfo().slow_pext


@dataclass(frozen=True)
class _Cpuinfo:
    """What ``/proc/cpuinfo`` tells.

    Attributes:
        flags: those that all cores share; on machines with unlike cores a thread may move to any of them.
        slow_pext: whether the first core's vendor and family are known for a ``pext`` in microcode.
    """

    flags: frozenset[str]
    slow_pext: bool


@lru_cache(maxsize=1)
def _read_cpuinfo() -> _Cpuinfo:
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        text = ""
    fields: dict[str, list[str]] = {"flags": [], "vendor_id": [], "cpu family": []}
    for line in text.splitlines():
        name, _, value = line.partition(":")
        fields.get(name.strip(), []).append(value.strip())
    cores = [frozenset(flags.split()) for flags in fields["flags"]]
    vendor, family = ("".join(fields[name][:1]) for name in ("vendor_id", "cpu family"))
    return _Cpuinfo(
        flags=frozenset.intersection(*cores) if cores else frozenset(),
        slow_pext=vendor == "HygonGenuine"
        or (vendor == "AuthenticAMD" and family.isascii() and family.isdigit() and int(family) < _ZEN3),
    )


def paths_of_this_cpu() -> list[VectorPath]:
    """The vector paths that this CPU can run, fastest first."""
    features = host_features()
    return [path for path in VECTOR_PATHS if features.issuperset(path.needs)]


def check_cpu(path: VectorPath) -> None:
    """Check that this CPU has what a path needs.

    Raises:
        EngineError: it lacks a feature.
    """
    missing = sorted(set(path.needs) - host_features())
    if missing:
        raise EngineError(f"the path {path.name!r} needs a CPU with {', '.join(missing)}")


@lru_cache(maxsize=1)
def _count_cores(second: int) -> int:
    """`usable_cores`, asked at most once a second: it reads files, which takes as long as a small batch."""
    return usable_cores()


def thread_count() -> int:
    """The number of threads for a batch: ``SECUREVFL_THREADS``, or the cores that this process may use, at most 16; see
    `usable_cores`.

    Raises:
        EngineError: ``SECUREVFL_THREADS`` is not a number from 1 to 256.
    """
    text = os.environ.get("SECUREVFL_THREADS", "")
    if not text:
        return min(16, _count_cores(int(time.monotonic())))
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= 256:
        raise EngineError(f"SECUREVFL_THREADS={text!r}; a number from 1 to 256 is possible")
    return int(text)
