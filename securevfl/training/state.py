"""State that a party stores between runs: a tree of plain values and tensors, and typed readers for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

__all__ = ["State", "as_dict", "as_flag", "as_int", "as_list", "as_pair", "as_rows", "as_tensor", "kept_rows"]

State = dict[str, object]
"""A tree of dicts, lists, numbers, texts and tensors."""


def as_dict(state: object) -> dict[str, object]:
    """A dict.

    Raises:
        TypeError: something else.
    """
    if not isinstance(state, dict):
        raise TypeError(f"a {type(state).__name__} in place of a dict: this state belongs to another part")
    return state


def as_list(state: object) -> list[Any]:
    """A list.

    Raises:
        TypeError: something else.
    """
    if not isinstance(state, list):
        raise TypeError(f"a {type(state).__name__} in place of a list: this state belongs to another part")
    return state


def as_int(state: object) -> int:
    """A whole number.

    Raises:
        TypeError: something else.
    """
    if isinstance(state, bool) or not isinstance(state, int):
        raise TypeError(f"a {type(state).__name__} in place of a whole number: this state belongs to another part")
    return state


def as_flag(state: object) -> bool:
    """A truth value.

    Raises:
        TypeError: something else.
    """
    if not isinstance(state, bool):
        raise TypeError(f"a {type(state).__name__} in place of a truth value: this state belongs to another part")
    return state


def as_tensor(state: object) -> torch.Tensor:
    """A tensor.

    Raises:
        TypeError: something else.
    """
    if not isinstance(state, torch.Tensor):
        raise TypeError(f"a {type(state).__name__} in place of a tensor: this state belongs to another part")
    return state


def kept_rows(rows: np.ndarray | None) -> torch.Tensor | None:
    """Row numbers, (n,) int64, in the form that `as_rows` reads."""
    return None if rows is None else torch.from_numpy(rows)


def as_rows(state: object) -> np.ndarray | None:
    """Row numbers, (n,) int64, from `kept_rows`; None where none were chosen yet.

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
        raise TypeError(f"a {type(state).__name__} in place of weights and a cut: a snapshot of another half")
    return state[0], state[1]
