"""Settings of all tests."""

from __future__ import annotations

import os

for _library in ("OMP", "OPENBLAS", "MKL"):  # read when torch and NumPy are loaded: here, and by the processes of tests
    os.environ.setdefault(f"{_library}_NUM_THREADS", "1")

import torch  # noqa: E402
from hypothesis import settings  # noqa: E402

torch.set_num_threads(1)  # the tests run side by side, and their tensors are small

# Speed is never a test: no deadlines. CI repeats the same examples; at a desk every run draws new ones.
settings.register_profile("desk", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "desk")
