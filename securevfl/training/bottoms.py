"""What a split network is made of, as a job names it: bottoms by widths, by name or frozen; shapes and rates.

Plain data, which a job is proposed and checked from; `networks` and `frozen` build it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from msgspec import Meta

from securevfl.config import Config
from securevfl.errors import UnknownNameError

__all__ = ["BOTTOMS", "HANDED_OVER", "Architecture", "Bottom", "FeatureKind", "Frozen", "bottom_problems"]

FeatureKind = Literal["relu", "fourier"]
"""Of a frozen bottom."""

BOTTOMS = ("cnn", "cnn-fedcvt", "cnn-multivfl", "resnet18", "resnet56")
"""Names of the convolutional bottoms."""


class Frozen(Config, kw_only=False):
    """A bottom of fixed features, drawn from each party's secret: ``bottom=sv.Frozen(64)``, in files
    ``bottom = {width = 64, kind = "fourier"}``.

    Only the passive parties' bottoms are frozen. The active party discloses nothing by training its bottom, so it
    trains a perceptron of the same width instead.

    Attributes:
        width: how many features.
        kind: ``"relu"``, between 0 and 6; or ``"fourier"``, between −√2 and √2.
        learned: ``"own rows"`` to train the layer first on all of the party's rows, aligned or not, without labels and
            without a message; None for the features as drawn.
        steps: number of steps of that training.
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


Bottom = tuple[Annotated[int, Meta(ge=1, le=1 << 16)], ...] | str | Frozen
"""Widths of a perceptron (``()`` for the identity), a name from `BOTTOMS`, or features that passive parties draw and
never train."""


HANDED_OVER = "the representations that it sends are trained by gradients that come back"
"""Why bottoms cannot be frozen in algorithms that exchange representations."""


@dataclass(frozen=True, kw_only=True)
class Architecture:
    """Shapes and learning rates of a split network.

    Attributes:
        hidden: width h of the cut.
        top: widths of the top model's hidden layers; None for no top model: z is the logits.
        bottom: each party's bottom.
        lr: Adam's learning rate, for bottoms, top and the active party's own block.
        weight_decay: L2 penalty of Adam's parameters.
    """

    hidden: int
    top: Sequence[int] | None
    bottom: Bottom
    lr: float
    weight_decay: float = 0.0


def bottom_problems(bottom: Bottom, where: str, *, not_frozen: str = "") -> list[str]:
    """Sentences about what is wrong with a bottom: a name that is not in `BOTTOMS`, or a frozen bottom that passive
    parties cannot have. The type of widths checks their bounds.

    Args:
        bottom: widths, a name or frozen.
        where: path of the field.
        not_frozen: why passive parties cannot have frozen bottoms here; empty if they can.
    """
    if isinstance(bottom, Frozen) and not_frozen:
        return [f"{where} is frozen, and {not_frozen}: give widths, such as [{bottom.width}]"]
    if isinstance(bottom, str) and bottom not in BOTTOMS:
        return [str(UnknownNameError(where, bottom, BOTTOMS))]
    return []
