"""Frozen bottoms: random features that a party draws from its secret and never trains.

Random features approximate a kernel (Rahimi and Recht, "Random features for large-scale kernel machines", NIPS 2007):
``relu6(x R / √d + b)`` or ``√2 cos(x R / √d + u)`` with random R, b and u. The layers above learn on them as on any
other columns. Under a sealed cut, a party with a frozen bottom receives no gradient nor anything else that depends on
labels. The features do not depend on another party's data, so they are computed once.

With `learned`, the layer is first trained on the party's own rows without labels, as SimCLR does, and then frozen. This
sends no message either.

What a frozen bottom does *not* do: z remains a linear image of the features, and each opened value of a row is one more
equation about that row; see `securevfl.privacy.opened_values`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import nn

from securevfl.party_context import PartySecret
from securevfl.privacy.noise import draw_gaussian, draw_uniform
from securevfl.training.bookkeeping import BookedRole
from securevfl.training.bottoms import FeatureKind, Frozen
from securevfl.training.self_supervised import pretrain_bottom

__all__ = ["FrozenBottom", "frozen_activations", "frozen_bottom", "rows_to_pretrain"]

_CEILING = 6.0
"""Bound of ReLU6, as in all other bottoms: the sealed cut needs bounded activations."""

_SHIFT = 0.5
"""Standard deviation of b, which places the kinks of the features."""

_BATCH = 256
"""Rows per step of `learned`."""


class FrozenBottom(nn.Module):
    """Fixed features; the drawn weights are stored with the party's part of the model.

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
        return _compute_features(self.kind, x, self.weight, self.shift)


class _Learning(nn.Module):
    """The same features with trainable parameters, for `Frozen.learned`."""

    def __init__(self, drawn: FrozenBottom) -> None:
        super().__init__()
        self.kind = drawn.kind
        self.weight = nn.Parameter(drawn.weight.clone())
        self.shift = nn.Parameter(drawn.shift.clone())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return _compute_features(self.kind, x, self.weight, self.shift)


def _compute_features(kind: FeatureKind, x: torch.Tensor, weight: torch.Tensor, shift: torch.Tensor) -> torch.Tensor:
    inner = x.flatten(1) @ weight + shift
    if kind == "fourier":
        return math.sqrt(2) * torch.cos(inner)
    return inner.clamp(0.0, _CEILING)


def frozen_bottom(
    frozen: Frozen, secret: PartySecret, shape: Sequence[int], own_rows: torch.Tensor | None = None
) -> FrozenBottom:
    """Build a party's bottom: always the same from the same secret and, if it is learned, the same rows.

    Args:
        frozen: the job's setting.
        secret: the party's.
        shape: of a row of its features.
        own_rows: features of all of its rows that may train, (n, …), for `Frozen.learned`; None to skip this training,
            when learned weights are loaded afterwards.
    """
    inputs, width = math.prod(shape), frozen.width

    def keyed_stream(what: str) -> Callable[[int], bytes]:
        return lambda count: secret.keystream(count, "frozen bottom", frozen.kind, what)

    weight = draw_gaussian((inputs, width), 1 / math.sqrt(max(inputs, 1)), keyed_stream("weights")).float()
    if frozen.kind == "fourier":
        shift = torch.from_numpy(draw_uniform((width,), keyed_stream("shift")) * 2 * math.pi).float()
    else:
        shift = draw_gaussian((width,), _SHIFT, keyed_stream("shift")).float()
    drawn = FrozenBottom(frozen.kind, weight, shift)
    if frozen.learned is None or own_rows is None or len(own_rows) < 2:
        return drawn
    learning = _Learning(drawn.to(own_rows.device))
    seed = secret.derive_seed("frozen bottom", "own rows")
    pretrain_bottom(learning, width, own_rows, steps=frozen.steps, batch=_BATCH, seed=seed)
    return FrozenBottom(frozen.kind, learning.weight.detach(), learning.shift.detach())


def frozen_activations(
    frozen: Frozen, secret: PartySecret, x: torch.Tensor, own_rows: torch.Tensor | None = None
) -> torch.Tensor:
    """A party's frozen activations of rows, (n, width) float32. They do not depend on another party's data.

    Args:
        frozen: the job's setting.
        secret: the party's.
        x: features, (n, …).
        own_rows: see `frozen_bottom`.
    """
    with torch.no_grad():
        found: torch.Tensor = frozen_bottom(frozen, secret, x.shape[1:], own_rows).to(x.device)(x)
    return found


def rows_to_pretrain(role: BookedRole) -> torch.Tensor | None:
    """Features of all rows of the party that may train, aligned or not, (n, …), for `Frozen.learned`.

    None if the job does not use it, and in a prediction. A resumed run learns the same again.

    Args:
        role: the party's.
    """
    table = role.table
    if not role.config.learns_alone or not len(table.split.train):
        return None
    own = role.features(np.concatenate([table.split.train, table.rows_only_at(role.site.name)]))
    return own if table.spare is None else torch.cat([own, table.spare.to(own.device)])
