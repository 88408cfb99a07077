"""What a party keeps between runs: a tree of plain values and tensors, and typed ways to read it.

Anything above may import this; it imports nothing of the toolkit.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

__all__ = ["State", "as_dict", "as_flag", "as_int", "as_list", "as_pair", "as_rows", "as_tensor", "kept_rows"]

State = dict[str, object]
"""What a part of a program has learned and remembers; a tree of dicts, lists, numbers, texts and tensors."""


def as_dict(state: object) -> dict[str, object]:
    """A dict.

    Raises:
        TypeError: something else.
    """
    if not isinstance(state, dict):
        raise TypeError(f"a {type(state).__name__} stands where a dict belongs: not a state of this part")
    return state


def as_list(state: object) -> list[Any]:
    """A list.

    Raises:
        TypeError: something else.
    """
    if not isinstance(state, list):
        raise TypeError(f"a {type(state).__name__} stands where a list belongs: not a state of this part")
    return state


def as_int(state: object) -> int:
    """A whole number.

    Raises:
        TypeError: something else.
    """
    if isinstance(state, bool) or not isinstance(state, int):
        raise TypeError(f"a {type(state).__name__} stands where a whole number belongs: not a state of this part")
    return state


def as_flag(state: object) -> bool:
    """A truth value.

    Raises:
        TypeError: something else.
    """
    if not isinstance(state, bool):
        raise TypeError(f"a {type(state).__name__} stands where a truth value belongs: not a state of this part")
    return state


def as_tensor(state: object) -> torch.Tensor:
    """A tensor.

    Raises:
        TypeError: something else.
    """
    if not isinstance(state, torch.Tensor):
        raise TypeError(f"a {type(state).__name__} stands where a tensor belongs: not a state of this part")
    return state


def kept_rows(rows: np.ndarray | None) -> torch.Tensor | None:
    """Row numbers, (n,) int64, as a state keeps them: what `as_rows` reads."""
    return None if rows is None else torch.from_numpy(rows)


def as_rows(state: object) -> np.ndarray | None:
    """Row numbers, (n,) int64, that were kept as a tensor; None where none were chosen yet.

    Raises:
        TypeError: something else.
    """
    return None if state is None else as_tensor(state).numpy().copy()


def as_pair(state: object) -> tuple[Mapping[str, torch.Tensor], object]:
    """A snapshot of a half: its networks' weights and its side of the cut.

    Raises:
        TypeError: something else.
    """
    if not isinstance(state, tuple | list) or len(state) != 2:
        raise TypeError(f"a {type(state).__name__} stands where weights and a cut belong: not a snapshot of this half")
    return state[0], state[1]
