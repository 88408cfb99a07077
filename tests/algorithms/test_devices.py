"""What a device other than the CPU would notice, as far as it shows without one: no step waits for a number, generators
come back as they were, what is restored goes where it belongs."""

from __future__ import annotations

import sys
from typing import Any

import pytest
import torch
from support.helpers import low_overlap_parties
from support.small_algorithms import make
from torch.utils._python_dispatch import TorchDispatchMode

import securevfl as sv
from securevfl.algorithms import fedcvt
from securevfl.cut import CutSpec
from securevfl.cut.plain import FloatPassive
from securevfl.privacy import link
from securevfl.training.seeding import seed_torch

WAITS = ("_local_scalar_dense", "nonzero", "masked_select", "is_nonzero", "equal", "unique", "bincount")


class Waits(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts operations of training steps for whose result a program would wait, but for those of optimisers, which
    count steps on the CPU."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.found: list[str] = []
        self.steps = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.__name__.split(".")[0]
        by_mask = name in ("index", "index_put_") and any(
            isinstance(one, torch.Tensor) and one.dtype == torch.bool for one in args[1] or ()
        )
        if name in WAITS or by_mask:
            running = _running()
            if "train_batch" in running and "torch/optim" not in running:
                self.found.append(name)
        elif name == "addmm":
            self.steps += "train_batch" in _running()
        return func(*args, **kwargs or {})


def _running() -> set[str]:
    """Functions that are under way; "torch/optim" stands for those of optimisers."""
    frame: Any = sys._getframe()
    found = set()
    while frame is not None:
        file = frame.f_code.co_filename
        steps = "torch/optim" in file or file.endswith("training/optimizers.py")
        found.add("torch/optim" if steps else frame.f_code.co_name)
        frame = frame.f_back
    return found


@pytest.mark.parametrize("name", ["splitnn", "risa", "fedcvt", "fedda", "zero_imputation"])
def test_no_step_of_training_waits_for_a_number(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # on a CPU, what came is looked at
    monkeypatch.setattr(fedcvt, "read_tensor", lambda array, *_: array.float())
    monkeypatch.setattr(link, "_are_finite", lambda _: True)
    waits, algorithm = Waits(), make(name)
    job = sv.Job(
        protection=sv.Plain(), algorithm=algorithm, epochs=algorithm.least_epochs + 1, steps=2, batch_size=16, seed=1
    )
    with waits:
        sv.simulate(job, low_overlap_parties(1, rows=120))
    assert waits.found == []
    assert waits.steps


def test_a_wait_would_be_seen() -> None:
    def train_batch() -> None:
        x = torch.ones(3)
        x[x > 2] = 0
        float(x.sum())

    waits = Waits()
    with waits:
        train_batch()
    assert waits.found == ["index_put_", "_local_scalar_dense"]


def test_generators_of_a_device_in_use_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[int]] = []
    fork = torch.random.fork_rng

    def fork_rng(devices: list[int]) -> Any:
        asked.append(devices)
        return fork(devices=[])

    monkeypatch.setattr(torch.random, "fork_rng", fork_rng)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    for in_use, devices in ((False, []), (True, [0, 1])):
        monkeypatch.setattr(torch.cuda, "is_initialized", lambda in_use=in_use: in_use)
        before = torch.random.get_rng_state()
        with seed_torch(3):
            torch.rand(1)
        assert asked.pop() == devices
        assert torch.equal(torch.random.get_rng_state(), before)


def test_restored_weights_go_to_the_device_of_the_cut() -> None:
    block: Any = object.__new__(FloatPassive)
    block._spec = CutSpec(width=2, lr=0.1, batch_size=4, device="meta")
    block.restore((torch.ones(3, 2), torch.ones(3, 2)))
    assert block._weights.device.type == block._velocity.device.type == "meta"
    block.restore((torch.ones(3, 2), None))
    assert block._velocity is None
