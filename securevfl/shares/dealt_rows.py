"""What a data party deals in training on shares: its rows as they enter the network; the active party, targets too."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Protocol

import numpy as np
import torch

from securevfl.errors import InputError, ProtocolError
from securevfl.shares.dp_steps import check_clipped, clip_below
from securevfl.shares.engine import ONE
from securevfl.shares.network_ranges import TARGET_BOUND
from securevfl.shares.share_party import input_words
from securevfl.training.active_role import ActiveRole
from securevfl.training.halves import ActiveHalf, PassiveHalf
from securevfl.training.role import Role

__all__ = [
    "DealtRows",
    "RowDealer",
    "count_rows",
    "find_places",
    "half_of",
    "refuse_ignored_hooks",
    "rows_to_learn",
    "target_words",
]

_NEVER_CALLED = ("build_loss", "setup", "activations", "adjust_logits", "train_batch", "score", "answer")
"""Hooks of roles in whose place the computing parties run the network that they share."""


def count_rows(parts: Sequence[np.ndarray]) -> list[int]:
    """How many rows each part has."""
    return [len(part) for part in parts]


class RowDealer(Protocol):
    """Encodes the rows that a party deals."""

    def width(self) -> int:
        """Columns of what it deals."""
        ...

    def encode_rows(self, rows: np.ndarray) -> np.ndarray:
        """Numbered rows as they are dealt."""
        ...


class DealtRows:
    """What a party deals of its rows: those that its role feeds, as they enter the shared network.

    Args:
        role: the party's.
        half: its half of the network, whose bottom is used where it has no parameters.
        trainable: whether the bottom is trained, and so on shares.

    Attributes:
        role: see above.
        half: see above.
        bound: the largest norm of a row that it deals; longer ones are scaled down. None for any.
    """

    def __init__(self, role: Role, half: ActiveHalf | PassiveHalf, trainable: bool) -> None:
        self.role = role
        self.half = half
        self._trainable = trainable
        self.bound: float | None = None

    def width(self) -> int:
        """Columns of what it deals."""
        return math.prod(self.role.features.row_shape) if self._trainable else self.entering_rows(np.arange(0)).shape[1]

    def encode_rows(self, rows: np.ndarray) -> np.ndarray:
        """Numbered rows in fixed point, uint64 (n, d)."""
        entering = self.entering_rows(rows)
        name = self.role.site.name
        if self.bound is None:
            return input_words(name, entering)
        words = input_words(name, clip_below(entering, self.bound))
        check_clipped(name, words, self.bound)
        return words

    def entering_rows(self, rows: np.ndarray) -> torch.Tensor:
        """Numbered rows as they enter the shared network, (n, d)."""
        features = self.role.features(rows)
        with torch.no_grad():
            entering = features if self._trainable else self.half.bottom(features)
        return entering.reshape(len(rows), math.prod(entering.shape[1:]))


def refuse_ignored_hooks(role: Role) -> None:
    """Refuse a role that overrides a hook of the split network that training on shares never calls.

    Raises:
        InputError: it does; the job would train without the change, and nothing would show it.
    """
    kind = type(role)
    # The class that makes the half is the split network's; what a class below it changes is the author's.
    network = next((base for base in reversed(kind.__mro__) if "build_half" in vars(base)), None)
    for hook in ("build_loss",) if network is None else _NEVER_CALLED:
        if getattr(kind, hook, None) not in (None, getattr(network or ActiveRole, hook, None)):
            raise InputError(
                f"{kind.__qualname__} overrides {hook}, which training on shares never calls: it calls begin_epoch, "
                "training_rows, feed and targets. Put the change there, take another protection, or leave shares=True "
                "out of the algorithm's fits"
            )


def half_of(role: Role) -> ActiveHalf | PassiveHalf:
    """The role's half of the split network.

    Raises:
        TypeError: it has none.
    """
    half = role.parts.get("half")
    if not isinstance(half, ActiveHalf | PassiveHalf):
        raise TypeError(f"a {type(role).__name__} has no half of a split network to train on shares")
    return half


def target_words(targets: torch.Tensor, classes: int, *, soft: bool = False) -> np.ndarray:
    """Classes (n,) or probabilities (n, classes), as what logits are trained towards, uint64 (n, outputs); or scaled
    numbers (n,).

    Args:
        targets: as the role gives them.
        classes: number of classes; 1 for a number.
        soft: whether mixtures of classes are allowed.

    Raises:
        RangeError: a number too far from the others.
        InputError: a mixture of classes.
    """
    values = targets.detach().cpu()
    if classes == 1:
        return input_words("the active party", values.double()[:, None], TARGET_BOUND)
    if values.ndim == 1:
        values = torch.nn.functional.one_hot(values, classes)
    wide = values.double()
    words = input_words("the active party", wide[:, 1:2] if classes == 2 else wide, 1.0)
    if not soft and not np.isin(words, (0, ONE)).all():
        raise InputError(
            "a target is a mixture of classes, and on shares a target is one class: declare mixes=True in the fits of "
            "an algorithm whose targets are mixtures, and set soft = true in the protection"
        )
    return words


def rows_to_learn(role: Role) -> np.ndarray:
    """Numbers of the rows that a job trains on, in order, each once, (n,): the same at all data parties."""
    return np.unique(role.training_rows(1))


def find_places(learned: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """The places of a batch's rows among `rows_to_learn`, (n,).

    Raises:
        ProtocolError: a row that is none of them: its target was not dealt.
    """
    places = np.searchsorted(learned, rows)
    if len(rows) and (places.max() >= len(learned) or not np.array_equal(learned[places], rows)):
        raise ProtocolError(
            "a batch has rows that the first epoch's training rows lack; on shares a job's targets are dealt once, so "
            "every epoch trains on the same rows"
        )
    return places
