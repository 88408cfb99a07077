"""Messages between parties: arrays and scalars, of one kind, under one guard.

What is no numpy array is a tensor, which brings its methods along. So a party that sends no tensor loads no torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from securevfl.transport.devices import HostCopy, on_host
from securevfl.transport.kinds import NO_GUARD, Guard, Kind, Scalar

if TYPE_CHECKING:
    import torch

__all__ = ["Array", "Message"]

Array: TypeAlias = "np.ndarray | torch.Tensor"
"""Content of a message: numpy arrays (bytes of ciphertexts, integers) or torch tensors (activations)."""


@dataclass(frozen=True, slots=True)
class Message:
    """One message.

    Attributes:
        kind: what sort of information it is.
        what: which step of which protocol it belongs to, for example ``"cut/forward"``.
        arrays: named arrays; in a simulation they pass by reference, so neither side may write to them after.
        meta: named scalars.
        guard: how the content is protected.
        here: whether all its arrays are in this machine's memory.
        numbers: name → the array as the wire has it, flat, once somebody has asked for them; see `wire.numbers`.
        finite: whether all its numbers are, once somebody has looked; likewise.
        copies: name → the array's `HostCopy`, once `wire.begin_copies` has begun them; of arrays on a device alone.
        written: size and SHA-256 of the wire codec's output, after the first `wire.measure_message`. Both ends of a
            channel in memory share the same object, so its content is hashed once.
        encoded: the wire codec's output of a small message, likewise: the bytes that were hashed are those that leave.
    """

    kind: Kind
    what: str
    arrays: Mapping[str, Array] = field(default_factory=lambda: MappingProxyType({}), repr=False)
    meta: Mapping[str, Scalar] = field(default_factory=lambda: MappingProxyType({}))
    guard: Guard = NO_GUARD
    written: tuple[int, str] | None = field(default=None, init=False, repr=False, compare=False)
    encoded: bytes | None = field(default=None, init=False, repr=False, compare=False)
    copies: Mapping[str, HostCopy] = field(
        default_factory=lambda: MappingProxyType({}), init=False, repr=False, compare=False
    )
    finite: bool | None = field(default=None, init=False, repr=False, compare=False)
    numbers: Mapping[str, np.ndarray] | None = field(default=None, init=False, repr=False, compare=False)
    here: bool = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "here", all(map(on_host, self.arrays.values())))
