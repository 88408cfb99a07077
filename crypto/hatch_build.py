"""Compiles the kernels when securevfl-crypto is built or installed from its sources; hatchling runs it.

If a tool is missing, or on another system, the build prints a warning and makes a pure Python wheel without kernels.
Set ``SECUREVFL_KERNELS=required`` to make it fail instead, as a release does. ``SECUREVFL_KERNELS_FOR=aarch64`` makes
the wheel of another architecture than this machine's.
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import tempfile
import types
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

ROOT = Path(__file__).parent
FOLDER = Path("securevfl_crypto", "engine", "ahead")


class KernelBuildHook(BuildHookInterface[Any]):
    """Adds the libraries of all classes, and the tag of the platform that they are for."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Build the libraries before hatchling collects files."""
        machine, own = os.environ.get("SECUREVFL_KERNELS_FOR") or platform.machine(), platform.machine()
        # What this machine does not run stays out of the folder where its own engine looks.
        self._folder = None if machine == own else tempfile.TemporaryDirectory(prefix="kernels-")
        wanted = [] if self._folder is None else ["--for", machine, "--to", self._folder.name]
        # In a process of its own: pip's must not end up with modules of this source tree.
        done = subprocess.run(  # noqa: S603
            [sys.executable, __file__, *wanted], capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise RuntimeError(f"the kernels could not be compiled:\n{done.stderr}")
        if not done.stdout:
            if os.environ.get("SECUREVFL_KERNELS") == "required":
                raise RuntimeError(done.stderr)
            self.app.display_warning(done.stderr.strip())
            return
        # Nothing in a library depends on Python's version or its ABI, so one wheel serves all versions.
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-manylinux_2_28_{machine}"
        if self._folder is None:
            build_data["artifacts"].append(f"/{FOLDER.as_posix()}/*")
        else:
            build_data["force_include"][self._folder.name] = FOLDER.as_posix()

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Drop what was built for another machine."""
        if self._folder is not None:
            self._folder.cleanup()


def _make_bare_package(name: str) -> None:
    """Let modules of a package be imported without its ``__init__``: an isolated build has neither numpy nor gmpy2,
    which the emitters do not need."""
    module = types.ModuleType(name)
    module.__path__ = [str(ROOT.joinpath(*name.split(".")))]
    sys.modules[name] = module


def main() -> None:
    """Build in this process."""
    sys.path.insert(0, str(ROOT))
    for name in ("securevfl_crypto", "securevfl_crypto.engine"):
        _make_bare_package(name)
    from securevfl_crypto.engine import build

    build.main(sys.argv[1:])


if __name__ == "__main__":
    main()
