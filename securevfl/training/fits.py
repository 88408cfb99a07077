"""What a class of algorithms declares that it can do. A job that asks for more is refused."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal, get_args

from securevfl_net.fields import suggest_nearest

from securevfl.errors import InputError

__all__ = ["UNDECLARED", "Fits", "LearnsKind", "NoiseKind", "SharesKind"]

NoiseKind = Literal["joint", "model", "stop"]
"""Kinds of differential privacy beside Gaussian noise on activations and gradients; see `DP`."""

LearnsKind = Literal["labels", "numbers", "weights"]
"""Targets beside classes that count alike: several labels of a row, numbers, weights of rows and classes."""

SharesKind = Literal["network", "trees", "scorecard", "additive", "statistics"]
"""What the computing parties train on shares: one split network, boosted trees, counts and weights of evidence with a
logistic regression, or an additive model; or statistics of columns, without a model."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Fits:
    """What a class of algorithms was written and checked to do. The default is the minimum: plain or sealed training on
    classes, with Gaussian noise.

    A declaration applies to its class only, not to subclasses: a changed algorithm has to declare what still applies.

    Attributes:
        dp: kinds of differential privacy that it supports; see `NoiseKind`.
        learns: targets that it can learn; see `LearnsKind`.
        shares: what it trains on shares, where it can; see `SharesKind`. True stands for one split network, trained on
            the rows that its roles feed towards their targets, and nothing else: it can be trained on shares as it is.
        counts: whether a passive party counts every value of a row that it sends, so that `Policy.max_looks` can
            bound it.
        mixes: whether targets are mixtures of several rows' targets, drawn anew for each batch. On shares such a job
            has to say ``soft = true``: elsewhere targets are dealt once and checked to be one class each.
        goes_on: whether training can go on from a checkpoint without a passive party: its roles load the checkpoint of
            a model with more passive parties; see `Role.go_on_without`.
        starts: whether training can begin from an earlier model; see `Role.begin_from`.
        exports: whether a party's part can be exported; see `Algorithm.export_model`.

    Raises:
        InputError: an unknown kind.
    """

    dp: Collection[NoiseKind] = frozenset()
    learns: Collection[LearnsKind] = frozenset()
    shares: bool | SharesKind = False
    counts: bool = False
    mixes: bool = False
    goes_on: bool = False
    exports: bool = False
    starts: bool = False

    def __post_init__(self) -> None:
        for field, known in (("dp", get_args(NoiseKind)), ("learns", get_args(LearnsKind))):
            given = getattr(self, field)
            if isinstance(given, str):
                raise InputError(f"fits.{field} is {given!r}: give a set of names, {{{given!r}}}")
            for name in given:
                if name not in known:
                    raise InputError(f"fits.{field} names {name!r}{suggest_nearest(str(name), known)}")
            object.__setattr__(self, field, frozenset(given))
        if isinstance(self.shares, str) and self.shares not in get_args(SharesKind):
            raise InputError(f"fits.shares names {self.shares!r}{suggest_nearest(self.shares, get_args(SharesKind))}")

    @property
    def shares_kind(self) -> SharesKind | None:
        """What it trains on shares; None where it cannot."""
        if isinstance(self.shares, bool):
            return "network" if self.shares else None
        return self.shares


UNDECLARED = Fits()
"""The minimum, for a class that declares nothing. Refusals compare by identity, to distinguish an author who left
`fits` out from one who declared ``Fits()``."""
