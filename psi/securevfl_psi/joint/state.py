"""State that the plans of a joint run share: this party's set, the agreed parameters and the common rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from securevfl_crypto.engine import Engine

from securevfl_psi.blinding import MAX_SET_SIZE
from securevfl_psi.circle import Circle
from securevfl_psi.errors import PSIError
from securevfl_psi.identifiers import Identifiers, IdRules
from securevfl_psi.joint.agreeing import RowComparison
from securevfl_psi.publication import RunStore
from securevfl_psi.speed import UNTOLD, Speed

__all__ = ["JOINT_PROTOCOLS", "JointProtocol", "JointTerms", "Order", "State"]

Order = Callable[[np.ndarray], np.ndarray]
JointProtocol = Literal["dh", "ot", "unbalanced", "auto", "unsafe_salted_hash"]
JOINT_PROTOCOLS: tuple[JointProtocol, ...] = ("dh", "ot", "unbalanced", "auto", "unsafe_salted_hash")


@dataclass(frozen=True, kw_only=True)
class JointTerms:
    """One party's side of the agreement.

    Attributes:
        name: of this party.
        active: the active party.
        passive: the passive ones.
        context: the purpose of the run, such as a job's digest; all must give the same.
        rules: how identifiers were normalised.
        max_set_size: largest set that a peer may announce.
        pairwise: at a passive party, whether the active one may learn a pairwise intersection among more than two.
        protocol: ``"dh"``: two parties at a time where there are two or the active one has a label book, else the
            multi-party protocol; ``"ot"``: two at a time, always; ``"auto"``: as ``"dh"``, and where that is two at a
            time `dh` or `ot` by sizes and link; ``"unbalanced"``: two at a time, by a filter of the larger set;
            ``"unsafe_salted_hash"``: two at a time, and not private.
        link: for ``"auto"``, megabits a second between the parties; None if the link is not the bottleneck.
        speed: for ``"auto"``, the figures that this party sends about its machine, or a function that returns them. It
            is called only where a pair chooses its protocol by them, so that others measure nothing.
        pad_to: announce and send this many identifiers, the missing ones random; None for no padding.
        shelf: for ``"unbalanced"``, stores publications and filters for later runs; None to store nothing.

    All parties must give the same protocol and link; put both into `context` to enforce that.

    Raises:
        PSIError: an unknown protocol or an impossible link.
    """

    name: str
    active: str
    passive: tuple[str, ...]
    context: str = ""
    rules: IdRules = field(default_factory=IdRules)
    max_set_size: int = MAX_SET_SIZE
    pairwise: bool = True
    protocol: JointProtocol = "dh"
    link: float | None = None
    speed: Speed | Callable[[], Speed] = UNTOLD
    pad_to: int | None = None
    shelf: RunStore | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if self.protocol not in JOINT_PROTOCOLS:
            raise PSIError(f"protocol {self.protocol!r} of a joint run; expected one of {', '.join(JOINT_PROTOCOLS)}")
        if self.link is not None and not 0 < self.link < math.inf:
            raise PSIError(f"link={self.link!r}; expected megabits a second, above 0")
        if self.pad_to is not None and self.protocol == "unbalanced":
            raise PSIError(
                f"pad_to={self.pad_to}: it pads all parties to one size, and 'unbalanced' is for unequal ones; "
                "leave it out, or take 'dh' or 'ot'"
            )

    @property
    def peers(self) -> tuple[str, ...]:
        """All parties but this one."""
        return tuple(name for name in (self.active, *self.passive) if name != self.name)

    def read_speed(self) -> Speed:
        """Return the figures of this party's machine."""
        return self.speed() if callable(self.speed) else self.speed


@dataclass(kw_only=True)
class State:
    """Of one party in one run.

    Attributes:
        terms: its own.
        ids: its identifiers; at the active party those of its table and, after them, of its label book.
        own: how many of them are of its table.
        held_out: rows of the table that are labelled for nobody.
        circle: what all parties agreed on.
        sizes: peer → how many rows it announced, if it announced that to this party.
        speeds: party → what it told of its machine, this one's too; those that ``auto`` weighs.
        labelled_run: whether the active party has a label book.
        order: puts row numbers into the order that all use.
        allow: refuses too few common rows, by raising: their number, what was found with each peer, all sizes.
        agreeing: the comparisons with all others; None where two parties prove all to each other.
        by: the engine.
        rows: the own numbers of the common rows, in the agreed order; None until they are known.
        labelled: peer (at a passive party, its own name) → rows that only the two of them know.
        pairwise: at the active party, passive party → size of the intersection with it, where it learns it.
    """

    terms: JointTerms
    ids: Identifiers
    own: int
    held_out: np.ndarray
    circle: Circle
    sizes: Mapping[str, int]
    speeds: Mapping[str, Speed]
    labelled_run: bool
    order: Order
    allow: Callable[[int, Mapping[str, int], Mapping[str, int]], None]
    agreeing: RowComparison | None = None
    by: Engine | None = None
    rows: np.ndarray | None = None
    labelled: dict[str, np.ndarray] = field(default_factory=dict)
    pairwise: dict[str, int] = field(default_factory=dict)

    def accept_rows(self, rows: np.ndarray) -> None:
        """The common rows are known.

        Raises:
            Exception: what `allow` raises where they are too few.
        """
        self.allow(len(rows), self.pairwise, self.sizes)
        self.rows = rows
        if self.agreeing is not None:
            self.agreeing.begin_comparison(self.ids, rows)

    @property
    def accepted_rows(self) -> np.ndarray:
        """The common rows.

        Raises:
            PSIError: asked for before they are known.
        """
        if self.rows is None:
            raise PSIError("the common rows are not known yet")
        return self.rows
