"""What each party of a real job saw, and, sealed off from it, what the others wanted to keep.

An attack is given a `View`: one party's own rows and labels, and what reached it. Only a score is given the `Truth`.
Row numbers are those that all parties agreed on (`securevfl.training.NumberedRows`); a batch's are drawn from the job's
seed, so every party knows them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

__all__ = ["Look", "Looks", "Message", "Rule", "Seen", "Transcript", "Truth", "View"]

Seen = Literal["z", "part of z", "representations", "gradient at the cut", "gradient at the activations"]
"""What a look at rows shows: their z (summed over the parties, or each party's part as it opened it), the part that a
party sent in the clear, representations that it handed over; or a gradient."""


@dataclass(frozen=True, slots=True)
class Message:
    """One message as a party noted it, without its content; the ledger has the same list.

    Attributes:
        way: ``"sent"`` or ``"received"``.
        peer: whom it went to or came from.
        kind: see `securevfl.transport.Kind`.
        step: of which protocol.
    """

    way: Literal["sent", "received"]
    peer: str
    kind: str
    step: str


@dataclass(frozen=True, slots=True)
class Look:
    """One sight of the rows of one batch.

    Attributes:
        rows: their numbers, (n,).
        values: what was seen of each, (n, width), float64.
        epoch: from 1, or 0 where the rows were scored only (validation, test, prediction).
    """

    rows: np.ndarray = field(repr=False)
    values: np.ndarray = field(repr=False)
    epoch: int


@dataclass(frozen=True)
class Looks:
    """All sights of one kind, in their order.

    Attributes:
        all: the looks; widths may differ from one stage of an algorithm to the next.
    """

    all: Sequence[Look] = ()

    def __bool__(self) -> bool:
        return bool(self.all)

    def training(self) -> Looks:
        """Those of training steps."""
        return Looks([look for look in self.all if look.epoch])

    def scoring(self) -> Looks:
        """Those of validation, test and prediction."""
        return Looks([look for look in self.all if not look.epoch])

    def widest_stage(self) -> Looks:
        """Those of one width: the width that most numbers were seen in."""
        sizes: dict[int, int] = defaultdict(int)
        for look in self.all:
            sizes[look.values.shape[1]] += look.values.size
        width = max(sizes, key=lambda w: (sizes[w], w), default=0)
        return Looks([look for look in self.all if look.values.shape[1] == width])

    def of(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Sights of one width of those of `rows` that were seen at all, as often each as the one seen least often.

        Args:
            rows: numbers.

        Returns:
            The rows that were seen, (n,), and their last sights in order, (n, looks, width). Nothing where none was.
        """
        wanted = set(rows.tolist())
        found: dict[int, list[np.ndarray]] = defaultdict(list)
        for look in self.widest_stage().all:
            for row, value in zip(look.rows.tolist(), look.values, strict=True):
                if row in wanted:
                    found[row].append(value)
        if not found:
            return rows[:0], np.empty((0, 0, 0))
        counts = np.array([len(sights) for sights in found.values()])
        # A few rows that a stage left out early must not cost all the others their looks.
        least = int(np.quantile(counts, 0.02, method="lower"))
        kept = np.array(sorted(row for row, sights in found.items() if len(sights) >= least))
        return kept, np.stack([np.stack(found[row][-least:]) for row in kept.tolist()])

    def shuffled(self, seed: int) -> Looks:
        """The same with normal noise in place of every sight: what an attack must get nothing from."""
        draw = np.random.default_rng(seed)
        return Looks([replace(look, values=draw.normal(size=look.values.shape)) for look in self.all])


@dataclass(frozen=True, slots=True)
class Rule:
    """The public rule of the cut's weights: ``M ← μ M + η (∂L/∂W + λ W)``, ``W ← W − M``.

    Attributes:
        lr: η.
        momentum: μ.
        decay: η λ.
    """

    lr: float
    momentum: float
    decay: float


@dataclass(frozen=True, kw_only=True)
class View:
    """What one party has after a job, in one label owner's federation.

    Attributes:
        party: whose view it is.
        owner: the label owner of the federation.
        passive: names of its passive parties, sorted.
        widths: passive party → columns after encoding; their number is public.
        aligned: how many rows are aligned: those numbered from 0.
        x: the party's own features of the aligned rows, (aligned, d).
        y: their classes, or numbers, (aligned,), where the party owns labels.
        classes: number of classes; 1 stands for a number.
        train: numbers of the training rows; likewise `valid` and `test`.
        valid: see `train`.
        test: see `train`.
        looks: what it saw → about whom (the active party: of a passive party's rows; a passive one: of its own).
        steps: at the active party, η ∂L/∂z that it handed back, step by step, as looks at a passive party's rows.
        rule: at the active party, the rule of the cut's weights.
        embed: at a passive party, its trained bottom: features (n, d) → activations (n, width).
        scores: at the active party, probabilities of the test rows, (test, classes), or predicted numbers, (test, 1).
        messages: every message, in order.
    """

    party: str
    owner: str
    passive: tuple[str, ...]
    widths: Mapping[str, int]
    aligned: int
    x: np.ndarray = field(repr=False)
    y: np.ndarray | None = field(repr=False)
    classes: int
    train: np.ndarray = field(repr=False)
    valid: np.ndarray = field(repr=False)
    test: np.ndarray = field(repr=False)
    looks: Mapping[tuple[Seen, str], Looks] = field(default_factory=dict)
    steps: Mapping[str, Looks] = field(default_factory=dict)
    rule: Rule | None = None
    embed: Callable[[np.ndarray], np.ndarray] | None = field(default=None, repr=False)
    scores: np.ndarray | None = field(default=None, repr=False)
    messages: Sequence[Message] = ()

    @property
    def active(self) -> bool:
        """Whether it is a label owner's."""
        return self.party == self.owner

    def seen(self, whats: Iterable[Seen], about: str) -> Looks:
        """The first of these sights that there is any of."""
        return next((found for what in whats if (found := self.looks.get((what, about), Looks()))), Looks())

    def of_features(self, party: str) -> Looks:
        """What this party saw of `party`'s features, the most telling sight that it has."""
        return self.seen(("part of z", "representations", "z"), party)

    def gradients(self) -> Looks:
        """The gradients that this party was given, of its own rows."""
        return self.seen(("gradient at the cut", "gradient at the activations"), self.party)

    def own(self, rows: np.ndarray) -> np.ndarray:
        """The party's own columns of aligned rows, and beside them its labels where it has any, see `told`: (n, d [+
        classes])."""
        return self.x[rows] if self.y is None else np.hstack([self.x[rows], self.told(self.y, rows)])

    def told(self, labels: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Labels as columns for a learner, (n, classes): a column of ones and zeros a class, or the number.

        Args:
            labels: of all aligned rows, (aligned,).
            rows: which.
        """
        return labels[rows, None] if self.numeric else np.eye(self.classes)[labels[rows]]

    @property
    def numeric(self) -> bool:
        """Whether the target is a number."""
        return self.classes == 1

    def blinded(self, seed: int) -> View:
        """The same with noise in place of all that was seen: the negative control of every attack."""
        return replace(self, looks={key: looks.shuffled(seed) for key, looks in self.looks.items()})


@dataclass(frozen=True, kw_only=True)
class Truth:
    """What attacks are scored by, and never given.

    Attributes:
        x: party → its features of the aligned rows, (aligned, d).
        y: classes, or numbers, of the aligned rows as the label owner's table has them, (aligned,).
        others: party → its features of its rows that are not aligned, (n, d), in the order of their numbers.
    """

    x: Mapping[str, np.ndarray] = field(repr=False)
    y: np.ndarray = field(repr=False)
    others: Mapping[str, np.ndarray] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, kw_only=True)
class Transcript:
    """What all parties of a job saw.

    Attributes:
        views: (party, label owner) → view.
        truths: label owner → what attacks in its federation are scored by.
    """

    views: Mapping[tuple[str, str], View]
    truths: Mapping[str, Truth]

    def view(self, party: str, owner: str = "") -> View:
        """The view of one party, in the first federation that it is a member of unless named."""
        return next(v for (name, of), v in self.views.items() if name == party and owner in ("", of))

    def truth(self, owner: str = "") -> Truth:
        """What attacks are scored by, in the first federation unless named."""
        return self.truths[owner or next(iter(self.truths))]
