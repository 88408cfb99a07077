"""Training on subsets of the parties: LASER-VFL's sum against loops over all subsets, masked rows, rows that are not
exchanged, and what an active party can take apart that opens sums."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.helpers import low_overlap_parties
from support.small_algorithms import make
from torch import nn
from torch.nn import functional

import securevfl as sv
from securevfl.algorithms.field.plugvfl import estimate_information
from securevfl.algorithms.laser import LaserHalf, LaserHeads, LaserLoss, term_weights
from securevfl.party_context import PartySecret
from securevfl.run.simulation import RunOutcome, join_parties, run_parties
from securevfl.testing.trial import roles_begun
from securevfl.training.subsets import Subsets, drop_independently, one_of_a_random_size, scatter_rows, times_unlikely
from securevfl.transport import Array

SUBSETS = ["laser", "party_dropout"]


def half(passive: int, hidden: int = 5, outputs: int = 3, seed: int = 0) -> LaserHalf:
    """The heads of LASER-VFL over so many passive parties, without a cut."""
    torch.manual_seed(seed)
    found = LaserHalf.__new__(LaserHalf)
    found.passive = tuple(f"shop{p}" for p in range(passive))
    found.top = LaserHeads(found.passive, hidden, lambda: nn.Linear(hidden, outputs)).double()
    with torch.no_grad():
        for parameter in found.top.parameters():
            parameter.normal_()
    return found


def full_sum(model: LaserHalf, own: torch.Tensor, parts: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """``Σ_{∅≠S} 1/|S| Σ_{k∈S} ℓ(g_k(z_S), y)`` of one row, by loops; own (h,), parts (m, h)."""
    heads = [model.top.own, *model.top.passive.values()]
    f = [own, *(part + bias for part, bias in zip(parts, model.top.bias.values(), strict=True))]
    total = torch.zeros((), dtype=own.dtype)
    for size in range(1, len(f) + 1):
        for subset in itertools.combinations(range(len(f)), size):
            z = sum((f[k] for k in subset), torch.zeros_like(own)) / size
            for k in subset:
                total = total + functional.cross_entropy(heads[k](z)[None], y[None]) / size
    return total


@settings(max_examples=12, deadline=None)
@given(passive=st.integers(0, 4), seed=st.integers(0, 1000), normalise=st.booleans())
def test_the_expected_loss_is_the_sum_over_all_subsets(passive: int, seed: int, normalise: bool) -> None:
    """Over all sets that can be drawn, times their probability; and so is the gradient that goes back."""
    model = half(passive, seed=seed)
    own, parts = torch.randn(5).double(), torch.randn((passive, 5)).double().requires_grad_()
    y = torch.tensor(seed % 3)
    wanted = full_sum(model, own, parts, y) / (2 ** (passive + 1) - 1 if normalise else 1)
    found = torch.zeros((), dtype=own.dtype)
    drawn = 0.0
    for bits in itertools.product([False, True], repeat=passive):
        if passive and not any(bits):
            continue
        present = torch.tensor([bits], dtype=torch.bool).reshape(1, passive)
        probability = 1 / times_unlikely(passive, sum(bits)) if passive else 1.0
        loss = LaserLoss(3, 1.0)
        loss.weights = term_weights(present, passive_heads=True, normalise=normalise)
        z = (parts * present[0].double().unsqueeze(1)).sum(dim=0, keepdim=True)
        found = found + probability * loss(model.join_present(z, own[None], present), y[None])[0]
        drawn += probability
    assert math.isclose(drawn, 1.0)
    torch.testing.assert_close(found, wanted)
    if passive:
        exact, mean = (torch.autograd.grad(value, parts)[0] for value in (wanted, found))
        torch.testing.assert_close(mean, exact)


@pytest.mark.parametrize("passive", [1, 2, 4])
@pytest.mark.parametrize("passive_heads", [True, False])
def test_normalised_rows_weigh_one(passive: int, passive_heads: bool) -> None:
    """On average over what can be drawn; and a row of the active party alone always."""
    total = 0.0
    for bits in itertools.product([False, True], repeat=passive):
        weights = term_weights(torch.tensor([bits]), passive_heads=passive_heads, normalise=True)
        if any(bits):
            total += float(weights.sum()) / times_unlikely(passive, sum(bits))
        else:
            assert float(weights.sum()) == 1.0
        together = term_weights(torch.tensor([bits]), passive_heads=passive_heads, normalise=True, sampled=False)
        if all(bits):
            assert math.isclose(float(together.sum()), 1.0, rel_tol=1e-6)
    assert math.isclose(total, 1.0, rel_tol=1e-6)


def test_with_one_passive_party_the_loss_is_the_papers() -> None:
    """``ℓ(g_a(z_a)) + ½ ℓ(g_a(z_ap)) + ½ ℓ(g_p(z_ap)) + ℓ(g_p(z_p))``: 2² − 1 in all."""
    weights = term_weights(torch.tensor([[True], [False]]), passive_heads=True, normalise=False)
    assert weights.tolist() == [[1.0, 0.5, 0.5, 1.0], [1.0, 0.0, 0.0, 0.0]]


@pytest.mark.parametrize("masks", ["fixed", "together"])
@pytest.mark.parametrize("normalise", [True, False])
@pytest.mark.parametrize("passive", [1, 3])
@pytest.mark.parametrize("classes", [2, 4])
def test_what_the_loss_states_of_its_sensitivity_holds_for_all_terms(
    classes: int, passive: int, normalise: bool, masks: str
) -> None:
    """No other label moves the gradient of a row's terms further, whichever parties take part; and some do as far."""
    config = sv.LaserVFL(masks=masks, normalise=normalise)
    weights = config.weights_by_size(passive)
    loss = LaserLoss(classes, float(weights.norm(dim=1).max()))
    loss.weights = weights.double()
    outputs = 1 if classes == 2 else classes
    logits = torch.randn((passive + 1, weights.shape[1] * outputs), dtype=torch.float64).requires_grad_()
    gradients = [
        torch.autograd.grad(loss(logits, torch.full((passive + 1,), label)).sum(), logits)[0]
        for label in range(classes)
    ]
    moved = max(float((a - b).norm(dim=1).max()) for a, b in itertools.combinations(gradients, 2))
    assert loss.sensitivity is not None
    assert moved <= loss.sensitivity * (1 + 1e-6)
    if not normalise:
        assert moved >= loss.sensitivity * (1 - 1e-6)


def test_the_information_on_labels_is_an_upper_bound_where_the_reader_is_right() -> None:
    """With q the true posterior CLUB's estimate exceeds the mutual information; without information both are zero."""
    posterior = torch.tensor([[0.9, 0.1], [0.2, 0.8]])  # of a z with two values, as likely
    joint = posterior / 2
    marginal = joint.sum(dim=0)
    exact = float((joint * (posterior / marginal).log()).sum())
    z = torch.tensor([0] * 10 + [1] * 10)
    y = torch.tensor([0] * 9 + [1] * 1 + [0] * 2 + [1] * 8)
    assert float(estimate_information(posterior[z].log(), y).mean()) >= exact
    flat = torch.full((20, 2), 0.5)
    assert float(estimate_information(flat.log(), y).abs().max()) < 1e-6


def test_a_reader_of_labels_finds_less_where_passive_parties_train_against_it() -> None:
    people = low_overlap_parties(1, rows=160, overlap=0.8)
    found = {}
    for disguise in (1e-6, 20.0):
        with roles_begun() as roles:
            run(job("plugvfl", epochs=6, bottom=(6,), disguise=disguise, drop=0.0), people)
        active, passive = sorted(roles, key=lambda role: role.site.name)
        rows = active.table.split.train
        with torch.no_grad():
            a = passive.half.bottom(passive.features(rows))  # type: ignore[attr-defined]
            z = a @ passive.half.cut.snapshot()[0]  # type: ignore[attr-defined]
            log_q = active.reader.model(z).log_softmax(dim=1)  # type: ignore[attr-defined]
        found[disguise] = float(estimate_information(log_q, active.labels(rows)).mean())  # type: ignore[attr-defined]
    assert found[20.0] < 0.5 * found[1e-6]


def test_the_gradient_that_goes_back_is_scaled_by_the_size_of_the_subset() -> None:
    """With linear heads and one term, the derivative by z_S's sum is that by z_S over |S|."""
    model = half(3)
    own, z = torch.randn((1, 5)).double(), torch.randn((1, 5)).double().requires_grad_()
    present = torch.tensor([[True, False, True]])
    logits = model.join_present(z, own, present)[:, 3:6]  # the active party's head on P and itself
    biases = model.top.passive_biases[[0, 2]].sum(dim=0)
    mean = ((own + z.detach() + biases) / 3).requires_grad_()
    direct = model.top.own(mean)
    torch.testing.assert_close(logits, direct)
    (back,) = torch.autograd.grad(logits[0, 0], z)
    (at_mean,) = torch.autograd.grad(direct[0, 0], mean)
    torch.testing.assert_close(back, at_mean / 3)


@pytest.mark.parametrize("parties", [1, 2, 3, 5])
def test_subsets_are_drawn_as_often_as_they_are_weighed(parties: int) -> None:
    drawn = one_of_a_random_size(np.random.default_rng(0), 40_000, parties)
    assert drawn.any(axis=1).all()
    kinds, counts = np.unique(drawn, axis=0, return_counts=True)
    assert len(kinds) == 2**parties - 1
    for kind, count in zip(kinds, counts, strict=True):
        p = 1 / times_unlikely(parties, int(kind.sum()))
        assert abs(count - 40_000 * p) < 5 * math.sqrt(40_000 * p * (1 - p)) + 1e-9


@given(
    aligned=st.integers(0, 30),
    parties=st.integers(0, 4),
    redraw=st.booleans(),
    together=st.booleans(),
    seed=st.integers(0, 99),
)
def test_subsets_of_a_batch(aligned: int, parties: int, redraw: bool, together: bool, seed: int) -> None:
    """Others' rows have none; a row keeps its subset unless it is drawn anew; all parties draw the same."""
    make_one = lambda: Subsets(  # noqa: E731
        aligned, parties, drop_independently(0.4), seed=seed, redraw=redraw, together=together
    )
    one, two = make_one(), make_one()
    rows = np.random.default_rng(seed).permutation(aligned + 5)
    first = one.draw_for(rows, 1)
    assert np.array_equal(first, two.draw_for(rows, 1))
    assert not first[rows >= aligned].any()
    if together:
        assert (first.all(axis=1) | ~first.any(axis=1)).all()
    if not redraw:
        back = np.argsort(rows)
        again = one.draw_for(rows[back], 7)
        assert np.array_equal(first[back], again)


def test_places_that_are_not_given_are_exactly_zero() -> None:
    values = torch.full((2, 3), math.inf, requires_grad=True)
    found = scatter_rows(values, np.array([3, 1]), 5)
    assert found[[0, 2, 4]].eq(0).all()
    found[[0, 2, 4]].sum().backward()
    assert values.grad is not None
    assert values.grad.eq(0).all()


class Watching(sv.Observer):
    """What one active party opens, and what each passive one puts in, row by row."""

    listening = True

    def __init__(self) -> None:
        self.rows: dict[str, np.ndarray] = {}
        self.parts: dict[str, list[tuple[np.ndarray, np.ndarray]]] = {}
        self.z: list[tuple[int, np.ndarray, np.ndarray]] = []
        self.fed_zeros = 0
        self._epoch = 0

    def batch_begun(self, party: str, owner: str, epoch: int, rows: np.ndarray) -> None:
        if party == owner:
            self._epoch = epoch

    def activations_fed(self, party: str, owner: str, rows: np.ndarray, activations: Array) -> None:
        self.rows[party] = rows
        self.parts.setdefault(party, [])
        values = np.asarray(activations.detach() if isinstance(activations, torch.Tensor) else activations)
        self.fed_zeros += int((values == 0).all(axis=1).sum())

    def values_opened(
        self, party: str, owner: str, what: Literal["z", "gradient"], values: Array, *, train: bool
    ) -> None:
        if what == "z":
            rows = next(iter(self.rows.values()))
            self.z.append((self._epoch if train else 0, rows, np.asarray(values.detach().clone())))  # type: ignore[union-attr]

    def message_passed(self, party: str, peer: str, way: str, message: Any) -> None:
        if way == "received" and message.what == "cut/forward":
            values = np.asarray(message.arrays["z"].detach().clone())
            self.parts[peer].append((self.rows[peer], values))


def run(work: sv.Job, people: sv.Parties, **more: Any) -> RunOutcome:
    alike = {name: PartySecret.from_seed(work.seed, name) for name in people}
    return run_parties(work, people, join_parties(people, work), run="run", secrets=alike, **more)


def job(name: str, *, epochs: int = 2, **settings: Any) -> sv.Job:
    plan: Mapping[str, Any] = {"epochs": epochs, "batch_size": 32, "seed": 3}
    return sv.Job(algorithm=make(name, **settings), protection=sv.Plain(), **plan)


def watched(work: sv.Job, people: sv.Parties) -> tuple[Watching, RunOutcome]:
    """A run, and what its observer saw."""
    observer = Watching()
    return observer, run(work, people, observers=dict.fromkeys(people, observer))


@pytest.mark.parametrize("name", SUBSETS)
def test_rows_without_a_passive_party_are_not_exchanged(name: str) -> None:
    """z and gradients of the aligned rows that take part alone; zero imputation exchanges all."""
    people = low_overlap_parties(2, rows=160, overlap=0.25)
    exchanged: dict[str, int] = {}
    for kind in (name, "zero_imputation"):
        ran = run(job(kind), people)
        entries = [e for e in ran.ledgers["shop1"].entries if e.what == "cut/backward"]
        exchanged[kind] = sum(shape[0] for e in entries for shape in e.shapes.values())
    split = ran.split
    others = ran.trained["bank"].rows - len(split.train)
    assert exchanged["zero_imputation"] == 2 * (len(split.train) + others)
    assert exchanged[name] <= 2 * len(split.train)
    assert others >= len(split.train)


@pytest.mark.parametrize("name", SUBSETS)
def test_a_party_that_is_left_out_feeds_zeros_and_does_not_learn(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two passive parties one takes part in no row: its part of z is zero, and its weights stay as they began."""
    only_first = lambda generator, rows, parties: np.tile([True, False], (rows, 1))  # noqa: E731
    monkeypatch.setattr(type(make(name)), "subset_draw", lambda self: only_first)
    people = low_overlap_parties(2, rows=120, overlap=0.5)
    short, longer = (run(job(name, epochs=epochs, bottom=(4,), masks="fixed"), people) for epochs in (1, 3))
    for shop, learns in (("shop1", True), ("shop2", False)):
        one, two = (flat(ran.trained[shop].model["parts"]) for ran in (short, longer))
        assert np.array_equal(one, two) is not learns
    observer, _ = watched(job(name, epochs=1, masks="fixed"), people)
    trained = len(observer.parts["shop2"]) - 2  # without validation and test
    assert all((z == 0).all() for _, z in observer.parts["shop2"][:trained])


def flat(state: object) -> np.ndarray:
    """All numbers of a snapshot."""
    if isinstance(state, Mapping):
        state = tuple(state.values())
    if isinstance(state, tuple | list):
        return np.concatenate([flat(part) for part in state] or [np.zeros(0)])
    return np.zeros(0) if state is None else np.asarray(state, dtype=float).ravel()


@pytest.mark.parametrize("name", SUBSETS)
def test_validation_and_test_rows_are_opened_whole(name: str) -> None:
    observer, ran = watched(job(name), low_overlap_parties(2, rows=120, overlap=0.5))
    whole = {row for epoch, rows, _ in observer.z if not epoch for row in rows}
    assert whole == {*ran.split.valid, *ran.split.test}
    for shop in ("shop1", "shop2"):
        scored = [z for rows, z in observer.parts[shop] if set(rows) <= whole]
        assert len(scored) == 3
        assert all((np.abs(z).sum(axis=1) > 0).all() for z in scored)


def by_differences(observer: Watching, about: str) -> tuple[np.ndarray, np.ndarray]:
    """The attack: where the active party opened one row with a party and without it, the difference of the two sums
    nearest in time is the guess at that party's part; beside the guesses, the part that it did put in.

    It uses what the active party has: z, and who took part, which all parties draw from the job's seed.
    """
    opened: dict[int, list[tuple[int, frozenset[str], np.ndarray, np.ndarray]]] = {}
    for step, (epoch, rows, z) in enumerate(observer.z):
        if not epoch:
            continue
        parts = {shop: observer.parts[shop][step][1] for shop in observer.parts}
        for place, row in enumerate(rows):
            taking = frozenset(shop for shop, part in parts.items() if part[place].any())
            opened.setdefault(int(row), []).append((step, taking, z[place], parts[about][place]))
    guesses, truths = [], []
    for looks in opened.values():
        for step, taking, z, part in looks:
            if about not in taking or len(taking) == 1:
                continue
            without = [
                (abs(step - other), less) for other, less_taking, less, _ in looks if less_taking == taking - {about}
            ]
            if without:
                guesses.append(z - min(without, key=lambda look: look[0])[1])
                truths.append(part)
    return np.array(guesses), np.array(truths)


@pytest.mark.parametrize("name", SUBSETS)
def test_differences_of_two_sums_of_one_row_tell_a_partys_part(name: str) -> None:
    """The trap: with masks drawn anew the active party gets single parts out of sums. By default it never has one
    part by itself; with one subset a row for the whole run it has no two sums of a row that differ by a party."""
    people = low_overlap_parties(2, rows=160, overlap=0.6)
    settings: dict[str, Any] = {"epochs": 6, "bottom": (6,), "hidden": 4, "cut_lr": 0.05, "lr": 0.003}
    assert type(make(name))().masks == "together"
    observer, _ = watched(job(name, masks="redrawn", **settings), people)
    guesses, truths = by_differences(observer, "shop2")
    assert len(guesses) > 50
    assert np.corrcoef(guesses.ravel(), truths.ravel())[0, 1] > 0.98
    for masks in ("fixed", "together"):
        observer, _ = watched(job(name, masks=masks, **settings), people)
        guesses, _ = by_differences(observer, "shop2")
        assert not len(guesses)
        sets = [
            {bool(part.any()) for part in (parts[step][1][place] for parts in observer.parts.values())}
            for step, (epoch, rows, _) in enumerate(observer.z)
            if epoch
            for place in range(len(rows))
        ]
        assert ({True, False} in sets) is (masks == "fixed")


def test_findings_say_what_can_be_taken_apart() -> None:
    """Of three passive parties' sum under a sealed cut."""
    told: dict[str, list[str]] = {}
    for masks in ("fixed", "redrawn", "together"):
        found = make("laser", masks=masks).findings(sv.BFV(), ["a", "b", "c"], "bank")
        told[masks] = [finding.learns for finding in found if finding.party == "bank"]
    assert all("its part separately for rows where the others feed a constant" in text for text in told["fixed"])
    assert all("as their difference, its part separately" in text for text in told["redrawn"])
    assert all("never one party's part" in text for text in told["together"])


def trained(name: str, people: sv.Parties, **settings: Any) -> tuple[Watching, RunOutcome, sv.Model]:
    """A watched run, and its model."""
    work = job(name, **settings)
    observer, ran = watched(work, people)
    return observer, ran, sv.Model(job=work, parts={party: ran.trained[party].model for party in people})


@pytest.mark.parametrize("name", SUBSETS)
def test_a_model_scores_without_a_party_that_left(name: str) -> None:
    """As the formula says, with the parties that are left; without any, as training scored the test rows alone."""
    people = low_overlap_parties(2, rows=120, overlap=0.5)
    _, ran, model = trained(name, people, epochs=1, bottom=(4,), masks="fixed")
    fewer = sv.Parties.of(people["bank"], people["shop1"])
    found = sv.predict(model, fewer)
    assert set(found.used) == {("bank", "shop1")}
    assert np.isfinite(found.probabilities).all()
    whole = sv.predict(model, people)
    at = {one: place for place, one in enumerate(whole.ids)}
    both = [at[one] for one in found.ids if one in at]
    assert len(both) == len(whole.ids)
    assert not np.allclose(found.probabilities[: len(both)], whole.probabilities[both])
    alone = sv.predict(model, sv.Parties.of(people["bank"]))
    order = {one: place for place, one in enumerate(alone.ids)}
    aligned = join_parties(people, job(name))
    ids = np.array(people["bank"].ids)[aligned.parties["bank"].rows][ran.split.test]
    scored = alone.probabilities[[order[one] for one in ids]]
    np.testing.assert_allclose(scored, ran.trained["bank"].alone_scores, atol=1e-6)


def test_masks_together_are_not_fit_for_some_of_the_parties() -> None:
    people = low_overlap_parties(2, rows=120, overlap=0.5)
    _, _, model = trained("laser", people, epochs=1, masks="together")
    with pytest.raises(sv.InputError, match="is not fit for rows without the columns of shop2"):
        sv.predict(model, sv.Parties.of(people["bank"], people["shop1"]))
    assert set(sv.predict(model, people, everyone=True).used) == {("bank", "shop1", "shop2"), ("bank",)}


@pytest.mark.parametrize(("masks", "told"), [("fixed", True), ("together", False)])
def test_a_prediction_of_rows_that_trained_can_open_a_second_sum(masks: str, told: bool) -> None:
    """The trap once more: a row trained with one passive party, and predicted with both. With all of them together
    there is no such row."""
    people = low_overlap_parties(2, rows=160, overlap=0.6)
    settings: dict[str, Any] = {"epochs": 4, "bottom": (6,), "hidden": 4, "cut_lr": 0.05, "lr": 0.003}
    before, _, model = trained("laser", people, masks=masks, **settings)
    last: dict[int, tuple[frozenset[str], np.ndarray]] = {}
    for step, (epoch, rows, z) in enumerate(before.z):
        for place, row in enumerate(rows):
            if epoch:
                taking = frozenset(shop for shop in before.parts if before.parts[shop][step][1][place].any())
                last[int(row)] = taking, z[place]
    after = Watching()
    sv.predict(model, people, aligned=join_parties(people, model.job), observers=dict.fromkeys(people, after))
    ((_, rows, whole),) = after.z
    ((_, theirs),) = after.parts["shop2"]
    places = {int(row): place for place, row in enumerate(rows)}
    second = [(places[row], z) for row, (taking, z) in last.items() if taking == {"shop1"}]
    assert bool(second) is told
    if told:
        guesses = np.stack([whole[place] - z for place, z in second])
        truths = theirs[[place for place, _ in second]]
        assert np.corrcoef(guesses.ravel(), truths.ravel())[0, 1] > 0.98
