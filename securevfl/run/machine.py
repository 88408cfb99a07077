"""Describe the machine that the figures were measured on."""

from __future__ import annotations

import os
import platform
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch
from securevfl_crypto.engine import describe_kernels, usable_cores

__all__ = ["describe_machine", "package_versions", "software_version"]

_FEATURES = ("avx2", "avx512f", "avx512ifma", "vaes", "sha_ni")


def package_versions() -> dict[str, str]:
    """Versions of Python and of the packages that the figures depend on."""
    names = ("securevfl", "torch", "numpy", "gmpy2", "cryptography", "opacus", "scikit-learn")
    found = {name: _installed_version(name) for name in names}
    return {"python": platform.python_version()} | {name: one for name, one in found.items() if one}


@cache
def _installed_version(name: str) -> str:
    """The version of an installed package; empty if it is not there. Asking takes a millisecond: each job asks."""
    try:
        return version(name)
    except PackageNotFoundError:
        return ""


def software_version() -> str:
    """Name and version of this package, for ledgers."""
    return f"securevfl {_installed_version('securevfl')}".rstrip()


def describe_machine(device: str = "cpu") -> dict[str, str]:
    """Processor, cores, CPU features, the kernels' class and hash, memory and accelerator."""
    info = _read_cpuinfo()
    flags = set(info.get("flags", "").split())
    found = {
        "cpu": info.get("model name") or platform.processor() or platform.machine(),
        "cores": str(usable_cores()),
        "cpu features": " ".join(name for name in _FEATURES if name in flags) or "unknown",
        **describe_kernels(),
        "system": platform.system(),
    }
    if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        found["memory"] = f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.0f} GiB"
    found["device"] = torch.cuda.get_device_name() if device.startswith("cuda") else "cpu"
    return found


def _read_cpuinfo() -> dict[str, str]:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return {}
    pairs = (line.split(":", 1) for line in lines if ":" in line)
    return {key.strip(): value.strip() for key, value in pairs}
