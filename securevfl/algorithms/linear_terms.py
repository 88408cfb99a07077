"""The weights of a linear model's columns, as a party's part of the model has them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from securevfl.errors import InputError
from securevfl.training.objectives import LossOfNumber
from securevfl.training.state import as_dict, as_pair, as_tensor

__all__ = ["STAYS_IN_SHARES", "handed_out_blocks", "name_sum", "owns_start", "read_weights"]

SEALED = (
    "its weights are shared between it and the active party, and nobody has them whole (a sealed cut, or one in "
    "integers): sv.explain still splits scores among parties; a scorecard hands each party its own weights, and an "
    "additive model leaves them with their owner"
)
STAYS_IN_SHARES = (
    "the model stayed in shares, and nobody has a weight of it: train it with model = 'parts' (three parties compute), "
    "train an additive model, or let sv.explain split scores among parties"
)


def handed_out_blocks(shares: object) -> list[np.ndarray] | None:
    """The weights that a model on shares handed to this party, float64, block by block; None if it stayed in shares.

    Args:
        shares: of the party's part of the model.
    """
    kept = as_dict(shares).get("handed out")
    return None if kept is None else [as_tensor(block).double().numpy() for block in as_dict(kept).values()]


def name_sum(number: LossOfNumber | None) -> str:
    """The unit of a linear model's sum, for people.

    Args:
        number: how a numeric target is learned; None for classes.
    """
    if number is None:
        return "log-odds"
    return "log of the target" if number.name in ("poisson", "tweedie") else "scaled target"


def owns_start(part: Mapping[str, Any], party: str) -> bool:
    """Whether a part is the active party's, which has the bias."""
    return party not in map(str, part.get("passive", ()))


def read_weights(part: Mapping[str, Any], columns: int, party: str) -> tuple[np.ndarray, np.ndarray]:
    """A party's weights, (columns, outputs) float64, and what every row begins with at it, (outputs,).

    Args:
        part: the party's part of the model.
        columns: how many encoded ones it has.
        party: its name, for messages.

    Raises:
        InputError: the part does not contain them.
    """
    parts, active = as_dict(part["parts"]), owns_start(part, party)
    if "shares" in parts:
        blocks = handed_out_blocks(parts["shares"])
        if blocks is None:
            raise InputError(f"{party!r} cannot see the terms of its own columns: {STAYS_IN_SHARES}")
        own = [block for block in blocks if block.shape[0]]
        if active:  # its last block is the bias
            *own, bias = own
            return _join_blocks(own, columns, bias.shape[1], party), bias[0]
        outputs = own[0].shape[1] if own else 1
        return _join_blocks(own, columns, outputs, party), np.zeros(outputs)
    below, cut = as_pair(parts["half"])
    if active:
        state = as_dict(below)
        bias = as_tensor(state["1.bias"]).double().cpu().numpy()
        weights = as_tensor(state["1.weight"]).double().cpu().numpy().T if columns else np.zeros((0, len(bias)))
        return _join_blocks([weights], columns, len(bias), party), bias
    block = as_pair(cut)[0]
    if not isinstance(block, torch.Tensor):
        raise InputError(f"{party!r} cannot see the terms of its own columns: {SEALED}")
    found = block.double().cpu().numpy()
    return _join_blocks([found], columns, found.shape[1], party), np.zeros(found.shape[1])


def _join_blocks(blocks: list[np.ndarray], columns: int, outputs: int, party: str) -> np.ndarray:
    found = np.concatenate([np.zeros((0, outputs)), *blocks])
    if len(found) != columns:
        raise InputError(
            f"{party!r} has {columns} columns, and its part of the model has weights of {len(found)}: the part is "
            "damaged, or a bottom stands before them"
        )
    return found
