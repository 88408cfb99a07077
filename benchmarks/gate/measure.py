"""One cell measured: its job runs with a recorder, attacks run on what each party saw, and what the job says of itself
stands beside what they got."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any
from unittest import mock

import msgspec
import numpy as np

from benchmarks.gate import on_cells, on_scorecards, on_sums, on_trees, on_two
from benchmarks.gate.cells import Cell
from benchmarks.gate.judge import SIGMAS, Audited, Figures, Got
from benchmarks.gate.on_shares import Attacked, Sorting, Wiretap, of_all, uneven
from benchmarks.gate.power import Ranked
from securevfl.attacks import Estimate, Known, PartyView, Transcript, feature_inference, label_inference
from securevfl.attacks.epsilon import bound_epsilon
from securevfl.attacks.learners import fit_classifier
from securevfl.attacks.measure import auc, auc_error, draw_known, r_squared, score_correlation, score_ranking
from securevfl.cut.leakage import DRAWN, features_view, labels_view
from securevfl.experiments.recorder import Recorder
from securevfl.party import rule_against
from securevfl.party_context import PartySecret
from securevfl.privacy import Policy, epsilon_rdp, noise, permitted_by
from securevfl.privacy.accountant import FEATURES, LABELS
from securevfl.run import join_parties
from securevfl.run.simulation import RunOutcome, run_parties
from securevfl.shares.exchanges import MASKED, PREDICTED
from securevfl.testing.trial import roles_begun
from securevfl.transport import COORDINATOR

__all__ = ["measure", "record", "same_sights"]

_KNOWN_LABELS, _KNOWN_RECORDS = 40, 72
_DELTA, _SHARES = 1e-9, (1.0, 0.2)
"""Audits compare ε at a δ far below their level divided by the rows, or δ alone would explain every guess; and make
few tests, for each one costs."""
_HANDED_OVER = ("fedcvt", "few_shot_vfl", "mftl", "sfhtl")
"""Algorithms whose passive parties hand over representations and get gradients at them."""
_VIEWS = {"features": MASKED, "predictions": PREDICTED}
"""What ``measured.json`` calls what is attacked on shares."""
_HIDDEN = ("part of z", "gradient at the cut")


def record(cell: Cell, rows: int) -> tuple[RunOutcome, Transcript]:
    """The cell's job, with a recorder at every party. Secrets come from the seed: a sealed cell and its exact twin
    begin alike.

    Args:
        cell: what runs.
        rows: of the credit table.
    """
    return _recorded(cell, rows, Recorder())


def _recorded(cell: Cell, rows: int, recorder: Recorder) -> tuple[RunOutcome, Transcript]:
    job, people = cell.job, cell.parties(rows)
    names = [*people, COORDINATOR]
    ran = run_parties(
        job,
        people,
        join_parties(people, job),
        run="gate",
        observers=dict.fromkeys(names, recorder),
        secrets={name: PartySecret.from_seed(job.seed, name) for name in names},
    )
    return ran, recorder.transcript()


def opened(view: PartyView) -> PartyView:
    """What of a view a sealed cut leaves: what is decrypted. Its exact twin computes the same integers in the clear."""
    return replace(view, observations={key: found for key, found in view.observations.items() if key[0] not in _HIDDEN})


def same_sights(one: Transcript, other: Transcript) -> bool:
    """Whether two transcripts have the same z and the same gradients at the activations, bit by bit, and any at all."""
    count = 0
    for key, view in one.views.items():
        mine, theirs = opened(view).observations, opened(other.views[key]).observations
        if mine.keys() != theirs.keys():
            return False
        for what, looks in mine.items():
            pairs = list(zip(looks.all, theirs[what].all, strict=True))
            count += len(pairs)
            if not all(np.array_equal(a.values, b.values) and np.array_equal(a.rows, b.rows) for a, b in pairs):
                return False
    return count > 0


def measure(cell: Cell, *, rows: int, tests: int, every_party: bool) -> Figures:
    """Run a cell and attack it.

    Args:
        cell: of the matrix.
        rows: of the credit table.
        tests: audits in the whole run, among which the level of 5 % is divided.
        every_party: attack the labels from each passive party, and each one's features; otherwise those of the first.
    """
    if cell.algorithm == "additive":
        return on_sums.measure(cell, rows, partial(_stated, cell, "bank", ("shop",)))
    if cell.job.protection.on_shares:
        return _measured_on_shares(cell, rows)
    if cell.trees:
        return on_trees.measure(cell, rows, lambda owner, passive: partial(_stated, cell, owner, tuple(passive)))
    with roles_begun() as begun, _noise_times(cell.noise):
        ran, transcript = record(cell, rows)
    owner = next(iter(transcript.truths))
    views = {name: opened(v) if cell.sealed else v for (name, of), v in transcript.views.items() if of == owner}
    bank = views[owner]
    passive = bank.passive if every_party else bank.passive[:1]
    truth = transcript.truth(owner)
    secret = cell.secret
    labels = _worst(_labels(cell, bank, views[name], truth.y) for name in passive)
    if cell.algorithm == "scorecard":
        roles = {role.site.name: role for role in begun}
        said = partial(_said, cell, bank)
        counts = [on_scorecards.by_evidence(views[one], roles[one], truth.y, cell.seed, said) for one in passive]
        noisy = cell.job.protection.dp is not None
        labels = _worst([labels, *(msgspec.structs.replace(got, view="") if noisy else got for got in counts)])
    features = _worst(_features(cell, bank, name, truth.x[name]) for name in passive)
    attribute = _worst(
        _attribute(cell, bank, name, bits) for name in passive for bits in _attributes(cell, truth.x[name])
    )
    audits = _audits(cell, ran, bank, views[passive[0]], truth.y, truth.x[passive[0]], tests) if secret else []
    ranked = list(_ranked_secrets(cell, bank, views[passive[0]], truth.y, truth.x[passive[0]])) if secret else []
    order = _order(cell, bank, passive[0], truth.others.get(passive[0])) if cell.data == "planted" else None
    twin = None
    if cell.protection == "bfv":
        twin = same_sights(transcript, record(replace(cell, protection="sealed"), rows)[1])
    control = cell.noise != 1
    return Figures(
        name=cell.name,
        data="control" if control else cell.data,
        algorithm=cell.algorithm,
        protection=cell.protection,
        seed=cell.seed,
        labels=labels,
        features=features,
        attribute=attribute,
        order=order,
        audits=audits,
        ranked=ranked,
        control=control,
        twin=twin,
    )


@contextmanager
def _noise_times(factor: float) -> Iterator[None]:
    """Gaussian noise is so many times what the job counts and reports; nothing changes where that is 1."""
    if factor == 1:
        yield
        return
    honest = noise.draw_gaussian

    def less(shape: tuple[int, ...], deviation: float, entropy: Any) -> Any:
        return honest(shape, factor * deviation, entropy)

    with mock.patch.object(noise, "draw_gaussian", less):
        yield


def _ranked_secrets(cell: Cell, bank: PartyView, passive: PartyView, y: np.ndarray, x: np.ndarray) -> Iterator[Ranked]:
    """Each planted secret that only noise hides, by each attack: coin labels at a passive party, attributes of its."""
    bound = _permitted(cell, bank, "labels")
    if bound < 1 and passive.gradients():
        known = draw_known(passive.train, y, _KNOWN_LABELS, cell.seed)
        yield from _each_ranked("labels", _label_scores(passive, known), known, y, bound)
    bound = _permitted(cell, bank, "features")
    rows, seen = feature_inference.stacked_observations(bank, passive.party, "trained")
    if bound < 1 and len(rows) and seen.size:
        for number, bits in enumerate(_attributes(cell, x)):
            known = draw_known(rows, bits, _KNOWN_RECORDS, cell.seed)
            scores = _attribute_scores(bank, passive.party, rows, seen, known)
            yield from _each_ranked("a rare attribute" if number else "an attribute", scores, known, bits, bound)


def _each_ranked(
    what: str, scores: dict[str, Estimate], known: Known, bits: np.ndarray, bound: float
) -> Iterator[Ranked]:
    for attack, estimate in scores.items():
        rest = estimate.exclude_rows(known.rows)
        positive = int((bits[rest.rows] == 1).sum())
        value, _ = score_ranking(rest, bits, 2)
        yield Ranked(
            what=what, attack=attack, value=value, bound=bound, positive=positive, negative=len(rest.rows) - positive
        )


def _measured_on_shares(cell: Cell, rows: int) -> Figures:
    """Every attack of every computing party on what each other has; the worst of each kind."""
    tap = Wiretap()
    people, protection = list(cell.parties(rows)), cell.job.protection
    computing = protection.computing_parties(people[0], people[1:], protection.coordinator_among(people))
    with (
        on_cells.watch(tap, computing) as summed,
        on_two.watch(computing) as looks,
        roles_begun() as begun,
    ):
        ran, transcript = _recorded(cell, rows, tap)
    owner = next(iter(transcript.truths))
    bank, truth = transcript.view(owner, owner), transcript.truth(owner)
    bits = {name: _bits(cell, x) for name, x in truth.x.items()}
    sort: Sorting | None = partial(on_cells.sort_rows, found=summed) if summed.steps else None
    unevenness = partial(uneven, tap)
    if protection.between_two:
        sort, unevenness = partial(on_two.sort_rows, looks=looks), partial(on_two.uneven, tap, looks)
    roles = {role.site.name: role for role in begun}
    sums, together = _sums_on_shares(cell, bank, tap, summed, computing, roles, truth.y)
    order = _order(cell, bank, bank.passive[0], truth.others.get(bank.passive[0])) if cell.data == "planted" else None
    found: dict[str, list[Got]] = {}
    scores = ran.trained[owner].scores
    for one in of_all(tap, transcript, owner, computing, scores, bits, cell.seed, sort):
        got = _got_on_shares(cell, bank, one)
        found.setdefault(one.about, []).append(msgspec.structs.replace(got, view=_VIEWS.get(one.about, "")))
    return Figures(
        name=cell.name,
        data=cell.data,
        algorithm=cell.algorithm,
        protection=cell.protection,
        seed=cell.seed,
        labels=_worst(found["labels"]),
        features=_worst(found["features"]),
        attribute=_worst(found["attribute"]),
        order=order,
        predictions=_worst(found["predictions"]),
        uneven=max(map(unevenness, computing)),
        sums=sums,
        together=together,
    )


def _sums_on_shares(
    cell: Cell,
    bank: PartyView,
    tap: Wiretap,
    summed: on_cells.Summed,
    computing: Sequence[str],
    roles: dict[str, Any],
    y: np.ndarray,
) -> tuple[Got | msgspec.UnsetType, float | msgspec.UnsetType]:
    """What sums by bin give away to one party, of trees the active one and of scorecards a passive one; and to two."""
    if not summed.steps:
        return msgspec.UNSET, msgspec.UNSET
    names, learned = (bank.party, *bank.passive), np.unique(bank.train)
    if cell.trees:
        columns = [roles[name].column_bins() for name in names]
        counts = [count + lacks for one in columns for count, lacks in zip(one.bins, one.missing, strict=True)]
        codes = np.concatenate([roles[name].encode_cells(learned) for name in names]).T
        theirs = slice(len(columns[0].bins), len(counts))
        value, without, together = on_cells.solve_sums(tap, summed, computing, codes, counts, theirs)
        attack, (severity, admitted) = on_trees.EQUATIONS, _said(cell, bank, bank.party, bank.passive[0])
    else:
        held, first = {}, 0
        for name in names:
            sizes = [len(cut) + 1 for cut in roles[name].cuts]
            codes = roles[name].find_bins(learned) + np.cumsum([0, *sizes])[:-1]
            positives = np.bincount(codes[y[learned] == 1].reshape(-1), minlength=sum(sizes)).astype(np.float64)
            if name in computing and name != bank.party:
                held[name] = slice(first, first + len(positives)), positives
            first += len(positives)
        value, without, together = on_cells.read_counts(tap, summed, computing, held)
        attack, (severity, admitted) = "labels: counts by own bins", _said(cell, bank, bank.passive[0], bank.party)
    got = Got(severity=severity, value=value, without=without, attack=attack, admitted=admitted)  # type: ignore[arg-type]
    return got, together


def _got_on_shares(cell: Cell, bank: PartyView, one: Attacked) -> Got:
    name, (value, without, error) = max(one.tried.items(), key=lambda item: _sure_gain(*item[1]))
    severity, admitted = _said(cell, bank, one.attacker, one.victim)
    return Got(
        severity=severity,  # type: ignore[arg-type]
        value=value,
        without=without,
        error=error,
        attack=f"{one.attacker} on {one.victim}, {name}",
        admitted=admitted,
    )


def _worst(found: Iterable[Got]) -> Got:
    return max(found, key=lambda got: _sure_gain(got.value, got.without, got.error))


def _sure_gain(value: float, without: float, error: float) -> float:
    """What an attack gained, less the judge's margin: what the worst is chosen by."""
    return value - max(without, 0.0) - SIGMAS * error


def _said(cell: Cell, bank: PartyView, learner: str, about: str) -> tuple[str, bool]:
    """The worst that the job says `learner` learns about `about`, and whether the latter's ``leaks = false`` admits
    it."""
    return _stated(cell, bank.party, bank.passive, learner, about)


def _stated(cell: Cell, owner: str, passive: tuple[str, ...], learner: str, about: str) -> tuple[str, bool]:
    job = cell.claimed
    found = job.algorithm.findings(job.planned_protection(len(passive)), passive, owner)
    mine = [f.severity for f in found if f.party == learner and f.about == about]
    worst = next((s for s in ("leak", "note", "ok") if s in mine), "ok")
    strict = job.replace(policies={about: Policy(leaks=False)})
    return worst, not rule_against(strict, about, active=owner, passive=passive, simulated=True)


def _permitted(cell: Cell, bank: PartyView, what: str) -> float:
    """The AUC that the planned ε permits of a secret that nothing else tells; 1 where something else does."""
    protection = cell.job.planned_protection(len(bank.passive))
    mechanism = None if protection.dp is None else getattr(protection.dp, what)
    if not cell.secret or mechanism is None:
        return 1.0
    return permitted_by(mechanism).auc


def _got(
    cell: Cell, bank: PartyView, tried: dict[str, tuple[float, float, float]], learner: str, about: str, what: str
) -> Got:
    """The attack that gains most of those tried: name → value, without, error."""
    if not tried:
        tried = {"nothing to attack": (0.5, 0.5, 0.0)}
    name, (value, without, error) = max(tried.items(), key=lambda item: _sure_gain(*item[1]))
    severity, admitted = _said(cell, bank, learner, about)
    return Got(
        severity=severity,  # type: ignore[arg-type]
        value=value,
        without=without,
        error=error,
        attack=name,
        view=_view(cell, labels=what == "labels"),
        bound=_permitted(cell, bank, what),
        admitted=admitted,
    )


def _view(cell: Cell, *, labels: bool) -> str:
    """What ``measured.json`` calls what the attacker saw; nothing where it carries noise."""
    if labels and cell.data == "credit" and cell.protection == "response 0.2":
        return DRAWN  # the draw tells next to nothing: what is left is the prediction
    if cell.job.protection.dp is not None or cell.protection == "bfv":
        return ""
    if cell.algorithm in _HANDED_OVER:
        return "gradient at the representations" if labels else "representations, FedCVT"
    handed = {"fedda": "representations, FedDA", "fedhssl": "projections, FedHSSL", "apc_vfl": "codes, APC-VFL"}
    if cell.algorithm in handed and not labels:
        return handed[cell.algorithm]
    algorithm = cell.job.algorithm
    if labels:
        return labels_view(sealed=cell.sealed, trainable=algorithm.trainable)
    frozen = algorithm.cut is not None and algorithm.cut.frozen
    return features_view(sealed=cell.sealed, trainable=algorithm.trainable, frozen=frozen)


def _labels(cell: Cell, bank: PartyView, view: PartyView, y: np.ndarray) -> Got:
    """Labels of training rows, from gradients at one passive party, with no label known and with 40. Of a number the
    AUC is that of *above its median*, and the best correlation stands beside it."""
    known = draw_known(view.train, y, _KNOWN_LABELS, cell.seed)
    baseline = label_inference.fit_on_own_columns(view, known).exclude_rows(known.rows)
    above = (y > np.median(y[view.train])).astype(np.int64) if cell.numeric else y
    floor = max(_ranked(view, baseline, above)[0], 0.5)
    tried, correlations = {}, [(score_correlation(baseline, y)[0], 0.0)] if cell.numeric else []
    if view.gradients():
        for name, estimate in _label_scores(view, known).items():
            rest = estimate.exclude_rows(known.rows)
            value, error = _ranked(view, rest, above)
            tried[name] = value, floor, error
            correlations += [score_correlation(rest, y)] if cell.numeric else []
    got = _got(cell, bank, tried, view.party, view.owner, "labels")
    if not cell.numeric:
        return got
    best = max(value for value, _ in correlations[1:]) if tried else 0.0
    return msgspec.structs.replace(got, correlation=best, correlation_without=max(correlations[0][0], 0.0))


def _ranked(view: PartyView, estimate: Estimate, classes: np.ndarray) -> tuple[float, float]:
    """AUC of an estimate of classes, or of a number that is above its median or not; and its standard error."""
    if not view.numeric:
        return score_ranking(estimate, classes, view.classes)
    flat = Estimate(estimate.rows, estimate.values.reshape(len(estimate.rows)), estimate.either_way)
    return score_ranking(flat, classes, 2)


def _label_scores(view: PartyView, known: Known) -> dict[str, Estimate]:
    return {
        "labels: norm": label_inference.score_by_norm(view),
        "labels: direction": label_inference.score_by_direction(view),
        "labels: spectral, all looks": label_inference.score_by_spectrum(view),
        "labels: learned from 40": label_inference.fit_on_gradients(view, known),
    }


def _features(cell: Cell, bank: PartyView, victim: str, x: np.ndarray) -> Got:
    """A passive party's columns, from all looks at its rows and 72 known records."""
    tried = {}
    for which in ("trained", "scored"):
        rows, seen = feature_inference.stacked_observations(bank, victim, which)  # type: ignore[arg-type]
        if len(rows) < _KNOWN_RECORDS + 20 or not seen.size:
            continue
        known = draw_known(rows, x, _KNOWN_RECORDS, cell.seed)
        own = _explained(feature_inference.infer_columns_baseline(bank, victim, known, which=which), known, x)  # type: ignore[arg-type]
        for learner in ("linear", "ridge"):
            for name, attack in (
                ("", feature_inference.infer_columns),
                (" with own columns", feature_inference.infer_columns_with_own),
            ):
                estimate = attack(bank, victim, known, learner=learner, which=which)  # type: ignore[arg-type]
                tried[f"features: {learner}{name}, {which} rows"] = _explained(estimate, known, x), own, 0.0
    return _got(cell, bank, tried, bank.party, victim, "features")


def _explained(estimate: Estimate, known: Known, x: np.ndarray) -> float:
    rest = estimate.exclude_rows(known.rows)
    return r_squared(rest.values, x[rest.rows])


def _bits(cell: Cell, x: np.ndarray) -> np.ndarray:
    """A yes-or-no attribute of each aligned row, (n,): the planted secret, or whether the first column is above its
    median."""
    return (x[:, 0] > (0.0 if cell.secret else np.median(x[:, 0]) + 1e-6)).astype(np.int64)


def _attributes(cell: Cell, x: np.ndarray) -> list[np.ndarray]:
    """The attributes that are attacked: `_bits`, and the rare category that is planted."""
    return [_bits(cell, x), (x[:, 1] > 0).astype(np.int64)] if cell.data == "planted" else [_bits(cell, x)]


def _attribute(cell: Cell, bank: PartyView, victim: str, bits: np.ndarray) -> Got:
    """The attribute of training rows, with 72 known ones and with none."""
    rows, seen = feature_inference.stacked_observations(bank, victim, "trained")
    tried = {}
    if len(rows) and seen.size:
        known = draw_known(rows, bits, _KNOWN_RECORDS, cell.seed)
        without = max(
            0.5,
            score_ranking(fit_classifier(rows, bank.own_columns(rows), known, 2).exclude_rows(known.rows), bits, 2)[0],
        )
        for name, estimate in _attribute_scores(bank, victim, rows, seen, known).items():
            value, error = score_ranking(estimate.exclude_rows(known.rows), bits, 2)
            tried[name] = value, without, error
    return _got(cell, bank, tried, bank.party, victim, "features")


def _attribute_scores(
    bank: PartyView, victim: str, rows: np.ndarray, seen: np.ndarray, known: Known
) -> dict[str, Estimate]:
    found = {
        "attribute: learned from 72": fit_classifier(rows, seen, known, 2),
        "attribute: learned from 72 with own columns": fit_classifier(
            rows, np.hstack([seen, bank.own_columns(rows)]), known, 2
        ),
    }
    kept, looks = bank.of_features(victim).training().of_rows(bank.train)
    if len(kept):
        total = np.zeros(len(kept))
        for look in np.moveaxis(looks, 1, 0):
            along = label_inference.project_on_first_singular(look - look.mean(axis=0))
            along = along / max(float(along.std()), 1e-300)
            total += -along if along @ total < 0 else along
        found["attribute: spectral, all looks"] = Estimate(kept, total, either_way=True)
    return found


def _order(cell: Cell, bank: PartyView, victim: str, others: np.ndarray | None) -> Got | None:
    """The secret that the victim's table is sorted by, from how its rows that are not aligned are numbered."""
    if others is None or len(others) < 50:
        return None
    bits = others[:, 0] > 0
    value = auc(bits, np.arange(len(bits)))
    value = max(value, 1 - value)
    error = auc_error(0.5, int(bits.sum()), int((~bits).sum()))
    return Got(severity="ok", value=value, without=0.5, error=error, attack="the numbers of its rows")


def _audits(
    cell: Cell, ran: RunOutcome, bank: PartyView, passive: PartyView, y: np.ndarray, x: np.ndarray, tests: int
) -> list[Audited]:
    """Bounds on ε of coin labels and of the coin among the features, where a run reports an ε of them."""
    found = []
    if (reported := _reported(ran, bank.party, LABELS)) is not None and passive.gradients():
        known = draw_known(passive.train, y, _KNOWN_LABELS, cell.seed)
        scores = _label_scores(passive, known)
        chosen = {name: scores[name] for name in ("labels: spectral, all looks", "labels: learned from 40")}
        found.append(Audited(what="labels", reported=reported, lower=_lower(chosen, known, y, tests)))
    if (reported := _reported(ran, passive.party, FEATURES)) is not None:
        bits = _bits(cell, x)
        rows, seen = feature_inference.stacked_observations(bank, passive.party, "trained")
        known = draw_known(rows, bits, _KNOWN_RECORDS, cell.seed)
        scores = _attribute_scores(bank, passive.party, rows, seen, known)
        found.append(Audited(what="features", reported=reported, lower=_lower(scores, known, bits, tests)))
    return found


def _reported(ran: RunOutcome, party: str, about: str) -> float | None:
    """ε of all that a party's accountant counted about labels or features, at the audit's δ; None where it counted
    nothing."""
    releases = [one.release for one in ran.trained[party].spent if about in one.protects]
    return epsilon_rdp(releases, _DELTA) if releases else None


def _lower(scores: dict[str, Estimate], known: Known, bits: np.ndarray, tests: int) -> float:
    """The best bound of several attacks, at 95 % over all of them and over all audits of the run."""
    level = 0.05 / (max(tests, 1) * len(scores))
    lowers = []
    for estimate in scores.values():
        rest = estimate.exclude_rows(known.rows)
        score = rest.values if rest.values.ndim == 1 else rest.values[:, 1]
        found = bound_epsilon(
            bits[rest.rows], score, delta=_DELTA, confidence=1 - level, either_way=rest.either_way, shares=_SHARES
        )
        lowers.append(found.lower)
    return max(lowers)
