"""Adam with torch's results, to the last bit, for networks so small that torch's bookkeeping dominates.

On a CPU `torch.optim.Adam` steps one parameter after the other, with nine operations each. Here one buffer contains the
first moments of all parameters of a group and another the second moments, so most operations run once: for a top model
of 300 weights a step takes an eighth of the time. Torch still does everything but plain Adam of float32 on a CPU.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch

__all__ = ["Adam", "backpropagate", "forget_gradients"]

_UNUSUAL = ("amsgrad", "maximize", "foreach", "capturable", "differentiable", "fused", "decoupled_weight_decay")
"""If any of these settings is on, torch takes the step."""


class Adam(torch.optim.Adam):
    """`torch.optim.Adam` (Kingma and Ba 2015, arXiv 1412.6980, algorithm 1), with its arguments, its states and, bit by
    bit, its results."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self._moments: dict[int, _Moments] = {}

    # Torch wraps these so that its compiler leaves them alone, and imports the compiler at the first call of one: 1.9
    # CPU-seconds in every process that trains.
    add_param_group = inspect.unwrap(torch.optim.Adam.add_param_group)
    load_state_dict = inspect.unwrap(torch.optim.Adam.load_state_dict)
    state_dict = inspect.unwrap(torch.optim.Adam.state_dict)
    zero_grad = inspect.unwrap(torch.optim.Adam.zero_grad)
    _torch_step = inspect.unwrap(torch.optim.Adam.step)

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """One step on the gradients that the parameters have; see `torch.optim.Adam.step`."""
        groups = (
            [] if closure is not None else [self._ready_moments(i, group) for i, group in enumerate(self.param_groups)]
        )
        ready = [moments for moments in groups if moments is not None]
        if not ready or len(ready) < len(self.param_groups):
            self._moments.clear()  # torch counts the steps of each parameter separately
            if closure is not None or any(group["differentiable"] for group in self.param_groups):
                return super().step(closure)
            with torch.no_grad():
                return self._torch_step()
        with torch.no_grad():
            for moments, group in zip(ready, self.param_groups, strict=True):
                moments.step(group)
        return None

    step.hooked = True  # type: ignore[attr-defined]  # otherwise torch wraps each step in a profiler mark

    def _ready_moments(self, number: int, group: dict[str, Any]) -> _Moments | None:
        """The moments of a group; None if torch has to step, as in the first step."""
        kept = self._moments.get(number)
        states = [self.state[parameter] for parameter in group["params"]]
        if kept is None or not kept.are_of(states):
            usual = isinstance(group["lr"], float) and not any(group[name] for name in _UNUSUAL)
            kept = _Moments.from_torch(group["params"], states) if usual else None
            if kept is None:
                return None
            self._moments[number] = kept
        return kept if kept.has_gradients() else None


class _Moments:
    """Both moments of a group's parameters, in one buffer each. The optimiser's states are views of them, so saving and
    loading states works as in torch.

    Args:
        parameters: all of them float32, on the CPU.
        states: of the optimiser.
        count: number of steps taken.
    """

    def __init__(self, parameters: list[torch.Tensor], states: list[dict[str, torch.Tensor]], count: float) -> None:
        self._parameters = parameters
        self._count = count
        self._sizes = [parameter.numel() for parameter in parameters]
        self._steps = torch.full((len(parameters),), count)
        self._first = torch.cat([state["exp_avg"].reshape(-1) for state in states])
        self._second = torch.cat([state["exp_avg_sq"].reshape(-1) for state in states])
        self._gradient, self._root = torch.empty_like(self._first), torch.empty_like(self._first)
        self._firsts, self._roots = self._split_views(self._first), self._split_views(self._root)
        places = zip(states, self._steps.unbind(), self._firsts, self._split_views(self._second), strict=True)
        for state, step, first, second in places:
            state.update(step=step, exp_avg=first, exp_avg_sq=second)

    @classmethod
    def from_torch(cls, parameters: list[torch.Tensor], states: list[dict[str, torch.Tensor]]) -> _Moments | None:
        """Take over the moments that torch made; None if there are none yet, or torch has to step them."""
        for parameter, state in zip(parameters, states, strict=True):
            if state.keys() != {"step", "exp_avg", "exp_avg_sq"}:
                return None
            if parameter.dtype != torch.float32 or parameter.device.type != "cpu" or not parameter.is_contiguous():
                return None
        counts = {float(state["step"]) for state in states}
        return cls(parameters, states, counts.pop()) if len(counts) == 1 else None

    def _split_views(self, flat: torch.Tensor) -> list[torch.Tensor]:
        parts = torch.split(flat, self._sizes)
        return [part.view(parameter.shape) for part, parameter in zip(parts, self._parameters, strict=True)]

    def are_of(self, states: list[dict[str, torch.Tensor]]) -> bool:
        """Whether these states are still views of the buffers: loading a state replaces them by new tensors."""
        return all(state.get("exp_avg") is first for state, first in zip(states, self._firsts, strict=True))

    def has_gradients(self) -> bool:
        """Whether every parameter has a gradient: torch skips those without and counts steps of each separately."""
        return all(parameter.grad is not None for parameter in self._parameters)

    def step(self, group: dict[str, Any]) -> None:
        """Take one step, with the operations of torch's ``_single_tensor_adam`` in the same order."""
        rate, decay, eps, (beta1, beta2) = group["lr"], group["weight_decay"], group["eps"], group["betas"]
        first, second, gradient, root = self._first, self._second, self._gradient, self._root
        gradients = [parameter.grad.reshape(-1) for parameter in self._parameters if parameter.grad is not None]
        torch.cat(gradients, out=gradient)
        if decay:
            gradient.add_(torch.cat([parameter.reshape(-1) for parameter in self._parameters]), alpha=decay)
        self._steps.add_(1)
        self._count += 1
        first.lerp_(gradient, 1 - beta1)
        second.mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
        torch.sqrt(second, out=root)
        root.div_((1 - beta2**self._count) ** 0.5).add_(eps)
        size = rate / (1 - beta1**self._count)
        torch._foreach_addcdiv_(self._parameters, self._firsts, self._roots, -size)


def forget_gradients(optimizer: torch.optim.Optimizer) -> None:
    """Do what `zero_grad(set_to_none=True)` does, without the bookkeeping that takes most of a step's Python time."""
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            parameter.grad = None


def backpropagate(outputs: torch.Tensor, gradient: torch.Tensor | None) -> None:
    """Do what `torch.autograd.backward` does, bit by bit, without the symbolic shapes that torch loads to compare two
    shapes: half a CPU-second in every process that trains.

    Args:
        outputs: of networks, of any shape; a loss, one number, if `gradient` is None.
        gradient: the loss's derivative with respect to `outputs`, of their shape.

    Raises:
        ValueError: `gradient` has another shape.
    """
    if gradient is None:
        torch.autograd.backward(outputs)
        return
    if gradient.shape != outputs.shape:
        raise ValueError(f"the gradient has shape {tuple(gradient.shape)}, and the outputs {tuple(outputs.shape)}")
    torch.autograd.backward((outputs * gradient).sum())  # whose derivative is 1 · gradient
