"""Frozen bottoms: features that a party draws from its own secret and never trains.

Random features stand for a kernel (Rahimi and Recht, "Random features for large-scale kernel machines", NIPS 2007):
``relu6(x R / √d + b)`` or ``√2 cos(x R / √d + u)`` with R, b and u of the party's own. What is above learns on them as
on any other columns. Under a sealed cut nothing goes back to a party whose bottom is not trained: neither a gradient
nor anything else that depends on labels. The features depend on no other party's data, so that they are computed once.

With `learned`, the same layer is first trained on the party's own rows without labels, as SimCLR does, and then frozen:
a choice of features that costs no message either.

What a frozen bottom does *not* do: z stays a linear image of it, and each look at a row is an equation more about that
row; see `securevfl.privacy.opened_values`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Annotated, ClassVar, Literal

import numpy as np
import torch
from msgspec import Meta
from torch import nn

from securevfl.config import Config
from securevfl.party_context import PartySecret
from securevfl.privacy.noise import draw_gaussian, draw_uniform
from securevfl.training.bookkeeping import BookedRole
from securevfl.training.self_supervised import pretrain

__all__ = ["Frozen", "FrozenBottom", "frozen_activations", "frozen_bottom", "rows_to_pretrain"]

FeatureKind = Literal["relu", "fourier"]

_CEILING = 6.0
"""Of ReLU6, as of all other bottoms: the sealed cut needs bounded activations."""

_SHIFT = 0.5
"""Deviation of b: where single features bend."""

_BATCH = 256
"""Rows of a step of `learned`."""


class Frozen(Config, kw_only=False):
    """A bottom of fixed features, drawn from each party's own secret: ``bottom=sv.Frozen(64)``, in files
    ``bottom = {width = 64, kind = "fourier"}``.

    The passive parties' bottoms are frozen. The active party, which gives nothing away by training, trains a perceptron
    of the same width in its place.

    Attributes:
        width: how many features.
        kind: ``"relu"``, between 0 and 6; or ``"fourier"``, between −√2 and √2.
        learned: ``"own rows"`` to train the layer on all rows of the party's own first, aligned or not, without labels
            and without a message; None for features as they were drawn.
        steps: of that training.
    """

    name: ClassVar[str] = "frozen"
    leading: ClassVar[int] = 2
    width: Annotated[int, Meta(ge=1, le=1 << 16)]
    kind: FeatureKind = "relu"
    learned: Literal["own rows"] | None = None
    steps: Annotated[int, Meta(ge=1, le=100_000)] = 600

    @property
    def title(self) -> str:
        """For tables and reports."""
        return f"frozen {self.kind} {self.width}{', learned on own rows' if self.learned else ''}"


class FrozenBottom(nn.Module):
    """Features without parameters: what they were drawn as is kept with the party's part of the model.

    Args:
        kind: of the features.
        weight: R / √d, (d, width).
        shift: b or u, (width,).
    """

    weight: torch.Tensor
    shift: torch.Tensor

    def __init__(self, kind: FeatureKind, weight: torch.Tensor, shift: torch.Tensor) -> None:
        super().__init__()
        self.kind = kind
        self.register_buffer("weight", weight)
        self.register_buffer("shift", shift)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Activations (n, width) of rows (n, …)."""
        return _features(self.kind, x, self.weight, self.shift)


class _Learning(nn.Module):
    """The same features while they are learned."""

    def __init__(self, drawn: FrozenBottom) -> None:
        super().__init__()
        self.kind = drawn.kind
        self.weight = nn.Parameter(drawn.weight.clone())
        self.shift = nn.Parameter(drawn.shift.clone())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return _features(self.kind, x, self.weight, self.shift)


def _features(kind: FeatureKind, x: torch.Tensor, weight: torch.Tensor, shift: torch.Tensor) -> torch.Tensor:
    inner = x.flatten(1) @ weight + shift
    if kind == "fourier":
        return math.sqrt(2) * torch.cos(inner)
    return inner.clamp(0.0, _CEILING)


def frozen_bottom(
    frozen: Frozen, secret: PartySecret, shape: Sequence[int], own_rows: torch.Tensor | None = None
) -> FrozenBottom:
    """A party's bottom, the same whenever it is made from the same secret and, where it is learned, the same rows.

    Args:
        frozen: what the job says.
        secret: the party's own.
        shape: of a row of its features.
        own_rows: features of all rows of its own that may train, (n, …), for `Frozen.learned`; None to leave that out,
            for whoever loads what was learned.
    """
    inputs, width = math.prod(shape), frozen.width

    def stream(what: str) -> Callable[[int], bytes]:
        return lambda count: secret.keystream(count, "frozen bottom", frozen.kind, what)

    weight = draw_gaussian((inputs, width), 1 / math.sqrt(max(inputs, 1)), stream("weights")).float()
    if frozen.kind == "fourier":
        shift = torch.from_numpy(draw_uniform((width,), stream("shift")) * 2 * math.pi).float()
    else:
        shift = draw_gaussian((width,), _SHIFT, stream("shift")).float()
    drawn = FrozenBottom(frozen.kind, weight, shift)
    if frozen.learned is None or own_rows is None or len(own_rows) < 2:
        return drawn
    learning = _Learning(drawn.to(own_rows.device))
    seed = secret.seed("frozen bottom", "own rows")
    pretrain(learning, width, own_rows, steps=frozen.steps, batch=_BATCH, seed=seed)
    return FrozenBottom(frozen.kind, learning.weight.detach(), learning.shift.detach())


def frozen_activations(
    frozen: Frozen, secret: PartySecret, x: torch.Tensor, own_rows: torch.Tensor | None = None
) -> torch.Tensor:
    """A party's frozen activations of rows, (n, width) float32, computed once: no other party's data goes into them.

    Args:
        frozen: what the job says.
        secret: the party's own.
        x: features, (n, …).
        own_rows: see `frozen_bottom`.
    """
    with torch.no_grad():
        found: torch.Tensor = frozen_bottom(frozen, secret, x.shape[1:], own_rows).to(x.device)(x)
    return found


def rows_to_pretrain(role: BookedRole) -> torch.Tensor | None:
    """Features of all rows of the party that may train, aligned or not, (n, …), for what it learns alone beforehand.

    None where it learns nothing alone, and in a prediction. A resumed run learns the same again.

    Args:
        role: the party's.
    """
    table = role.table
    if not role.config.learns_alone or not len(table.split.train):
        return None
    own = role.features(np.concatenate([table.split.train, table.rows_only_at(role.site.name)]))
    return own if table.spare is None else torch.cat([own, table.spare.to(own.device)])
