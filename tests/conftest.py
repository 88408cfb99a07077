"""Settings of all tests."""

from __future__ import annotations

import contextlib
import gc
import os
import tempfile
from pathlib import Path

for _library in ("OMP", "OPENBLAS", "MKL"):  # read when torch and NumPy are loaded: here, and by the processes of tests
    os.environ.setdefault(f"{_library}_NUM_THREADS", "1")

gc.disable()  # until all tests are collected: objects of modules and of tests are made, and hardly one is dropped

_cache = tempfile.TemporaryDirectory(prefix="securevfl-tests-")  # no test reads or fills the user's cache
os.environ["SECUREVFL_CACHE"] = _cache.name

import pytest  # noqa: E402
import torch  # noqa: E402
from hypothesis import settings  # noqa: E402

torch.set_num_threads(1)  # the tests run side by side, and their tensors are small

# Speed is never a test: no deadlines. CI repeats the same 25 examples; at a desk every run draws 50 new ones.
settings.register_profile("desk", deadline=None, max_examples=50)
settings.register_profile("ci", deadline=None, derandomize=True, max_examples=25)
settings.load_profile("ci" if os.environ.get("CI") else "desk")

CLOCKS = (
    "docs/test_docs_notebooks.py",
    "net/session/",
    "net/test_",
    "pools/",
    "process/test_agreed_choice_processes.py",
    "process/test_copied_folders.py",
    "process/test_end_of_job.py",
    "process/test_killed_parties.py",
    "process/test_leaving.py",
    "process/test_operations.py",
    "process/test_party_process.py",
    "process/test_shares_processes.py",
    "process/test_two_companies.py",
    "psi/test_channel.py",
    "psi/test_driver.py",
    "psi/test_net.py",
    "psi/test_several.py",
    "psi/test_sharded.py",
    "psi/test_unbalanced_command.py",
    "run/test_interrupts.py",
    "run/test_live_ledgers.py",
    "run/test_programs.py",
    "serving/test_leaving.py",
    "transport/",
)
"""Tests with processes and sockets of their own, which a machine that stands still for seconds can fail.

Each gets one more go, and the summary names those that took it, under `RERUN`. A mistake fails twice; a name that comes
up there again and again is a mistake too. No other test gets a second go.
"""


def pytest_configure(config: pytest.Config) -> None:
    """Share the work on test files that pytest has not yet rewritten."""
    from support.rewriting import rewrite_own_part

    with contextlib.suppress(AttributeError):  # pytest's own functions; it only saves time
        rewrite_own_part(config, Path(__file__).parent)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """One more go for the tests of `CLOCKS`."""
    here = Path(__file__).parent
    for item in items:
        if item.path.is_relative_to(here) and item.path.relative_to(here).as_posix().startswith(CLOCKS):
            item.add_marker(pytest.mark.flaky(reruns=1, reruns_delay=1))


def pytest_collection_finish() -> None:
    """Exempt what imports and collection made from the collector: it would walk over all of it again and again."""
    gc.collect()
    gc.freeze()
    gc.enable()
