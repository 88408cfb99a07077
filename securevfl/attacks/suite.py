"""Run every attack that applies to a party's view, scored next to an attacker without observations."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import msgspec
import numpy as np

from securevfl.attacks import feature_inference, gram, label_inference
from securevfl.attacks.learners import standardise
from securevfl.attacks.measure import AttackScore, Estimate, Known, draw_known, r_squared, score_labels
from securevfl.attacks.transcript import PartyView, Transcript, Truth

__all__ = ["FULL", "QUICK", "Effort", "run_suite", "score_columns"]

_LI = "Li et al., ICLR 2022, arXiv 2102.08504"
_SUN = "Sun et al. 2022, arXiv 2203.01451"
_LUO = "Luo et al., ICDE 2021, arXiv 2010.10152"
_FU = "Fu et al., USENIX Security 2022"


@dataclass(frozen=True, kw_only=True)
class Effort:
    """How much an attacker knows and how many attempts it gets.

    Attributes:
        labels: numbers of known labels to try; 0 for attacks that need none.
        records: numbers of a victim's known records to try.
        draws: number of random draws of the known data; the median counts.
        perceptron: whether to try a perceptron in addition to ridge.
        attributes: number of columns per victim for attribute inference.
    """

    labels: tuple[int, ...] = (0, 40, 200)
    records: tuple[int, ...] = (36, 72, 300)
    draws: int = 3
    perceptron: bool = True
    attributes: int = 2


FULL = Effort()
QUICK = Effort(labels=(0, 40), records=(72,), draws=1, perceptron=False, attributes=1)
"""A suite that finishes in seconds."""


def run_suite(transcript: Transcript, effort: Effort = FULL, *, seed: int = 0) -> list[AttackScore]:
    """Run all attacks of all parties on each other.

    Args:
        transcript: of a job.
        effort: see `Effort`.
        seed: seed of the job; also seeds the draws of what attackers know.
    """
    found: list[AttackScore] = []
    for (_, owner), view in transcript.views.items():
        truth = transcript.truths[owner]
        if view.active:
            for victim in view.passive:
                found += _attack_features(view, truth, victim, effort, seed)
                found += _attack_attributes(view, truth, victim, effort, seed)
            found += _attack_geometry(view, truth, seed)
        else:
            found += _attack_labels(view, truth, effort, seed)
            found += _attack_by_completion(view, truth, effort, seed)
            found += _attack_columns(view, truth, effort, seed)
    return found


def _median_results(tries: Sequence[AttackScore]) -> Iterator[AttackScore]:
    """Yield the median result over several draws of the attacker's known data."""
    if tries:
        value = statistics.median(one.value for one in tries)
        baseline = statistics.median(one.baseline for one in tries)
        yield msgspec.structs.replace(tries[0], value=value, baseline=baseline)


def _attack_labels(view: PartyView, truth: Truth, effort: Effort, seed: int) -> Iterator[AttackScore]:
    gradients = view.gradients().training()
    if not gradients:
        return
    seen = next(what for (what, _), found in view.observations.items() if found and "gradient" in what)

    def score(name: str, estimate: Estimate, source: str, **more: Known | Estimate | None) -> AttackScore:
        return score_labels(
            f"labels: {name}",
            estimate,
            truth.y,
            view.classes,
            attacker=view.party,
            victim=view.owner,
            seed=seed,
            seen=seen,
            source=source,
            **more,  # type: ignore[arg-type]
        )

    if 0 in effort.labels:
        yield score("norm", label_inference.score_by_norm(view), _LI)
        yield score("direction", label_inference.score_by_direction(view), _LI)
        yield score("spectral, one look", label_inference.score_single_observations(view), _SUN)
        yield score("spectral, looks added", label_inference.score_by_spectrum(view), _SUN)
    for count in _fitting_counts(effort.labels, len(view.train)):
        tries = []
        for draw in range(effort.draws):
            known = draw_known(view.train, truth.y, count, seed + draw)
            estimate, baseline = (
                label_inference.fit_on_gradients(view, known),
                label_inference.fit_on_own_columns(view, known),
            )
            tries.append(score("learned", estimate, _SUN, known=known, baseline=baseline))
        yield from _median_results(tries)


def _attack_by_completion(view: PartyView, truth: Truth, effort: Effort, seed: int) -> Iterator[AttackScore]:
    for count in _fitting_counts(effort.labels, len(view.train)):
        tries = []
        for draw in range(effort.draws):
            known = draw_known(view.train, truth.y, count, seed + draw)
            estimate = label_inference.complete_model(view, known)
            if estimate is None:
                return
            tries.append(
                score_labels(
                    "labels: model completion",
                    estimate,
                    truth.y,
                    view.classes,
                    attacker=view.party,
                    victim=view.owner,
                    baseline=label_inference.complete_model_baseline(view, known),
                    known=known,
                    seed=seed,
                    seen="its own trained bottom",
                    source=_FU,
                )
            )
        yield from _median_results(tries)


def score_columns(
    attack: str,
    estimate: Estimate,
    truth: np.ndarray,
    known: Known,
    baseline: Estimate | None,
    *,
    attacker: str,
    victim: str,
    seed: int,
    target: str = "features",
    seen: str = "",
    source: str = "",
) -> AttackScore:
    """Score an estimate of columns by R² on rows that the attacker did not know; the baseline is at least the mean.

    Args:
        attack: name.
        estimate: of the attack, (n, d).
        truth: of all numbered rows, (N, d).
        known: the attacker's known records.
        baseline: estimate of the same learner without observations; None for the mean.
        attacker: the attacking party.
        victim: the party whose columns are attacked.
        seed: of the job.
        target: name of the columns.
        seen: the observations the attack used.
        source: its publication.
    """
    rest = estimate.exclude_rows(known.rows)
    without = 0.0
    if baseline is not None:
        other = baseline.exclude_rows(known.rows)
        without = max(0.0, r_squared(other.values, truth[other.rows]))
    return AttackScore(
        attack=attack,
        attacker=attacker,
        victim=victim,
        target=target,
        metric="R²",
        value=r_squared(rest.values, truth[rest.rows]),
        baseline=without,
        known=len(known),
        rows=len(rest.rows),
        seed=seed,
        seen=seen,
        source=source,
    )


def _attack_features(view: PartyView, truth: Truth, victim: str, effort: Effort, seed: int) -> Iterator[AttackScore]:
    x = standardise(truth.x[victim])
    seen = next((what for what in ("part of z", "representations", "z") if view.observations.get((what, victim))), "")
    tried: list[tuple[str, feature_inference.Which, str, Callable[..., Estimate], tuple[int, ...]]] = [
        ("ridge", "trained", "ridge", feature_inference.infer_columns, effort.records),
        ("ridge beside own columns", "trained", "ridge", feature_inference.infer_columns_with_own, effort.records),
        ("linear system, scored rows", "scored", "linear", feature_inference.infer_columns, effort.records),
    ]
    if effort.perceptron:
        most = effort.records[-1:]
        tried.append(
            ("perceptron beside own columns", "trained", "perceptron", feature_inference.infer_columns_with_own, most)
        )
    for name, which, learner, attack, records in tried:
        rows, _ = feature_inference.stacked_observations(view, victim, which)
        for count in _fitting_counts(records, len(rows)):
            tries = []
            for draw in range(effort.draws if learner != "perceptron" else 1):
                known = draw_known(rows, x, count, seed + draw)
                tries.append(
                    score_columns(
                        f"features: {name}",
                        attack(view, victim, known, learner=learner, which=which),
                        x,
                        known,
                        feature_inference.infer_columns_baseline(view, victim, known, learner="ridge", which=which),
                        attacker=view.party,
                        victim=victim,
                        seed=seed,
                        seen=seen,
                        source=_LUO,
                    )
                )
            yield from _median_results(tries)


def _attack_geometry(view: PartyView, truth: Truth, seed: int) -> Iterator[AttackScore]:
    """Recover distances between clients from z of identity bottoms, without known records."""
    shown = gram.observations_of(view)
    if shown is None or not shown.is_solvable or len(shown.order) * shown.width > 200_000:
        return
    found, _ = gram.factor_gram(shown)
    if not np.isfinite(found).all():
        return
    x = np.hstack([truth.x[name] for name in view.passive])[shown.order]
    error = gram.gram_error(found, x)
    yield AttackScore(
        attack="features: distances between rows",
        attacker=view.party,
        victim=", ".join(view.passive),
        target="Gram matrix",
        metric="R²",
        value=max(0.0, 1 - error**2),
        baseline=0.0,
        known=0,
        rows=len(shown.order),
        seed=seed,
        seen="z and its own gradients",
        source="alternating least squares, see attacks/gram.py",
    )


def _attack_attributes(view: PartyView, truth: Truth, victim: str, effort: Effort, seed: int) -> Iterator[AttackScore]:
    count = min(effort.records, key=lambda k: abs(k - 72))
    for column, yes in feature_inference.binary_columns(truth.x[victim], effort.attributes).items():
        rows, _ = feature_inference.stacked_observations(view, victim, "trained")
        ways: list[tuple[str, np.ndarray, Callable[[Known], Estimate | None]]] = [
            ("from z", rows, partial(feature_inference.infer_attribute, view, victim)),
            ("from predictions", view.test, partial(feature_inference.infer_attribute_from_predictions, view)),
        ]
        for name, among, attack in ways:
            if not _fitting_counts((count,), len(among)) or len(np.unique(yes[among])) < 2:
                continue
            tries = []
            for draw in range(effort.draws):
                known = draw_known(among, yes, count, seed + draw)
                estimate = attack(known)
                if estimate is None:
                    break
                tries.append(
                    score_labels(
                        f"attribute: {name}",
                        estimate,
                        yes,
                        2,
                        attacker=view.party,
                        victim=victim,
                        baseline=feature_inference.infer_attribute_baseline(view, among, known),
                        known=known,
                        seed=seed,
                        target=f"column {column}",
                        seen=name.removeprefix("from "),
                        source=_LUO,
                    )
                )
            yield from _median_results(tries)


def _attack_columns(view: PartyView, truth: Truth, effort: Effort, seed: int) -> Iterator[AttackScore]:
    """Attack the columns of the label owner and of the other passive parties, from a passive party's view."""
    count = max(effort.records)
    if not view.gradients().training() or not _fitting_counts((count,), len(view.train)):
        return
    for victim in (view.owner, *(name for name in view.passive if name != view.party)):
        x = standardise(truth.x[victim])
        each: list[AttackScore] = []
        for column in _many_valued(truth.x[victim]):
            one = np.zeros_like(x[:, :1])
            one[:] = x[:, column : column + 1]
            known = draw_known(view.train, one, count, seed)
            estimate = feature_inference.infer_columns_from_gradients(view, truth.y, known)
            if estimate is None:
                return
            each.append(
                score_columns(
                    "others' columns: from gradients",
                    estimate,
                    one,
                    known,
                    feature_inference.infer_from_gradients_baseline(view, truth.y, known),
                    attacker=view.party,
                    victim=victim,
                    seed=seed,
                    target=f"column {column}",
                    seen="p in the gradient",
                )
            )
        if each:  # the column that gains most
            yield max(each, key=lambda one: one.gain)


def _many_valued(x: np.ndarray, most: int = 4) -> list[int]:
    """Return the first columns with more than ten values."""
    return [j for j in range(x.shape[1]) if len(np.unique(x[:, j])) > 10][:most]


def _fitting_counts(counts: Sequence[int], rows: int) -> list[int]:
    """Return the counts of known rows that leave at least as many rows for scoring."""
    return [count for count in counts if 0 < count <= rows // 2]


def negative_control(transcript: Transcript, seed: int = 0) -> Transcript:
    """Replace all observations in a transcript with noise: the negative control, on which attacks must fail."""
    return replace(transcript, views={key: view.replace_with_noise(seed) for key, view in transcript.views.items()})
