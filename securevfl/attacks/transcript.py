"""The observations of each party in a real job, and separately the ground truth that others kept private.

An attack gets a `View`: one party's own rows and labels, and the messages that reached it. Only scoring gets the
`Truth`. Row numbers are the ones that all parties agreed on (`securevfl.training.NumberedRows`). Batches are drawn from
the job's seed, so every party can compute them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

__all__ = ["CutRule", "Observation", "Observations", "ObservedMessage", "PartyView", "Seen", "Transcript", "Truth"]

Seen = Literal["z", "part of z", "representations", "gradient at the cut", "gradient at the activations"]
"""Kind of an observation: z (summed over the parties, or each party's part as opened), a part sent in the clear,
representations that a party sent, or a gradient.
"""


@dataclass(frozen=True, slots=True)
class ObservedMessage:
    """One message as a party recorded it, without its content; the ledger has the same list.

    Attributes:
        way: ``"sent"`` or ``"received"``.
        peer: its receiver or sender.
        kind: see `securevfl.transport.Kind`.
        step: the protocol step.
    """

    way: Literal["sent", "received"]
    peer: str
    kind: str
    step: str


@dataclass(frozen=True, slots=True)
class Observation:
    """One observation of the rows of a batch.

    Attributes:
        rows: their numbers, (n,).
        values: the observed values, (n, width), float64.
        epoch: from 1; 0 if the rows were only scored (validation, test, prediction).
    """

    rows: np.ndarray = field(repr=False)
    values: np.ndarray = field(repr=False)
    epoch: int


@dataclass(frozen=True)
class Observations:
    """All observations of one kind, in order.

    Attributes:
        all: the observations; widths may differ from one stage of an algorithm to the next.
    """

    all: Sequence[Observation] = ()

    def __bool__(self) -> bool:
        return bool(self.all)

    def training(self) -> Observations:
        """The observations from training steps."""
        return Observations([one for one in self.all if one.epoch])

    def scoring(self) -> Observations:
        """The observations from validation, test and prediction."""
        return Observations([one for one in self.all if not one.epoch])

    def widest_stage(self) -> Observations:
        """The observations of the width with the most numbers."""
        sizes: dict[int, int] = defaultdict(int)
        for one in self.all:
            sizes[one.values.shape[1]] += one.values.size
        width = max(sizes, key=lambda w: (sizes[w], w), default=0)
        return Observations([one for one in self.all if one.values.shape[1] == width])

    def of_rows(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return observations of one width for those of `rows` that were observed, equally many for each row.

        Args:
            rows: numbers.

        Returns:
            The observed rows, (n,), and their last observations in order, (n, observations, width); empty if none was
                observed.
        """
        wanted = set(rows.tolist())
        found: dict[int, list[np.ndarray]] = defaultdict(list)
        for one in self.widest_stage().all:
            for row, value in zip(one.rows.tolist(), one.values, strict=True):
                if row in wanted:
                    found[row].append(value)
        if not found:
            return rows[:0], np.empty((0, 0, 0))
        counts = np.array([len(sights) for sights in found.values()])
        # A few rows that a stage left out early must not reduce the number of observations for all others.
        least = int(np.quantile(counts, 0.02, method="lower"))
        kept = np.array(sorted(row for row, sights in found.items() if len(sights) >= least))
        return kept, np.stack([np.stack(found[row][-least:]) for row in kept.tolist()])

    def replace_with_noise(self, seed: int) -> Observations:
        """Replace every observation with normal noise: the negative control, on which an attack must fail."""
        draw = np.random.default_rng(seed)
        return Observations([replace(one, values=draw.normal(size=one.values.shape)) for one in self.all])


@dataclass(frozen=True, slots=True)
class CutRule:
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
class PartyView:
    """One party's data after a job, in one label owner's federation.

    Attributes:
        party: the party's name.
        owner: the label owner of the federation.
        passive: names of its passive parties, sorted.
        widths: passive party → number of encoded columns, which is public.
        aligned: number of aligned rows; they have the numbers from 0.
        x: the party's own features of the aligned rows, (aligned, d).
        y: their classes or numbers, (aligned,), if the party owns labels.
        classes: number of classes; 1 means a numeric target.
        train: numbers of the training rows.
        valid: numbers of the validation rows.
        test: numbers of the test rows.
        observations: (kind, party) → its observations; an active party observes passive parties' rows, a passive party
            its own.
        steps: at the active party, the η ∂L/∂z that it returned in each step, as observations of a passive party's
            rows.
        rule: at the active party, the update rule of the cut's weights.
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
    observations: Mapping[tuple[Seen, str], Observations] = field(default_factory=dict)
    steps: Mapping[str, Observations] = field(default_factory=dict)
    rule: CutRule | None = None
    embed: Callable[[np.ndarray], np.ndarray] | None = field(default=None, repr=False)
    scores: np.ndarray | None = field(default=None, repr=False)
    messages: Sequence[ObservedMessage] = ()

    @property
    def active(self) -> bool:
        """Whether the party is the label owner."""
        return self.party == self.owner

    def first_seen(self, whats: Iterable[Seen], about: str) -> Observations:
        """Return the first of these kinds of observation that exists."""
        return next(
            (found for what in whats if (found := self.observations.get((what, about), Observations()))), Observations()
        )

    def of_features(self, party: str) -> Observations:
        """Return this party's most revealing observations of `party`'s features."""
        return self.first_seen(("part of z", "representations", "z"), party)

    def gradients(self) -> Observations:
        """The gradients that this party received for its own rows."""
        return self.first_seen(("gradient at the cut", "gradient at the activations"), self.party)

    def own_columns(self, rows: np.ndarray) -> np.ndarray:
        """Return the party's columns of aligned rows and, if it has labels, those of `encode_labels`: (n, d) or
        (n, d + classes).
        """
        return self.x[rows] if self.y is None else np.hstack([self.x[rows], self.encode_labels(self.y, rows)])

    def encode_labels(self, labels: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Encode labels for a learner, (n, classes): one-hot columns, or the number.

        Args:
            labels: of all aligned rows, (aligned,).
            rows: the rows to return.
        """
        return labels[rows, None] if self.numeric else np.eye(self.classes)[labels[rows]]

    @property
    def numeric(self) -> bool:
        """Whether the target is numeric."""
        return self.classes == 1

    def replace_with_noise(self, seed: int) -> PartyView:
        """Replace all observations with noise: the negative control of every attack."""
        noise = {key: found.replace_with_noise(seed) for key, found in self.observations.items()}
        return replace(self, observations=noise)


@dataclass(frozen=True, kw_only=True)
class Truth:
    """The ground truth for scoring, which attacks never get.

    Attributes:
        x: party → its features of the aligned rows, (aligned, d).
        y: classes or numbers of the aligned rows in the label owner's table, (aligned,).
        others: party → its features of its rows that are not aligned, (n, d), in the order of their numbers.
    """

    x: Mapping[str, np.ndarray] = field(repr=False)
    y: np.ndarray = field(repr=False)
    others: Mapping[str, np.ndarray] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, kw_only=True)
class Transcript:
    """The observations of all parties of a job.

    Attributes:
        views: (party, label owner) → view.
        truths: label owner → ground truth for attacks in its federation.
    """

    views: Mapping[tuple[str, str], PartyView]
    truths: Mapping[str, Truth]

    def view(self, party: str, owner: str = "") -> PartyView:
        """Return the view of one party, by default in the first federation that it belongs to."""
        return next(v for (name, of), v in self.views.items() if name == party and owner in ("", of))

    def truth(self, owner: str = "") -> Truth:
        """Return the ground truth, by default of the first federation."""
        return self.truths[owner or next(iter(self.truths))]
