"""Frozen bottoms: drawn in secret, bounded, never trained; and what goes back to a party that has one: nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from support.helpers import low_overlap_parties, make_parties
from torch import nn

import securevfl as sv
from securevfl.algorithms import PlugVFL
from securevfl.experiments.recorder import Recorder
from securevfl.party_context import PartySecret
from securevfl.run.context_building import draw_secret
from securevfl.testing import checks
from securevfl.training import Algorithm, frozen, frozen_activations, frozen_bottom

SMALL = {"hidden": 4, "top": (4,), "lr": 0.02}
FROZEN = sv.Frozen(6)
SECRET = PartySecret(7)
GRADIENTS = {"cut/input gradient", "cut/passive key", "cut/passive share"}
"""The messages by which a passive party gets ∂L/∂a_p under a sealed cut."""


def received(bottom: object) -> tuple[dict[str, int], set[str]]:
    """What a passive party received in a sealed job with this bottom, by step, and the steps that were declared."""
    algorithm = sv.SplitNN.from_values(SMALL | {"bottom": bottom})
    job = sv.Job(algorithm=algorithm, protection=sv.BFV(), epochs=1, steps=2, batch_size=16)
    ledger = sv.simulate(job, make_parties(passive=1, rows=80)).ledgers["bfv"]["shop1"]
    counts: dict[str, int] = {}
    for entry in ledger.entries:
        if entry.way == "received":
            counts[entry.what] = counts.get(entry.what, 0) + 1
    return counts, {exchange.step for exchange in algorithm.exchanges(job.protection, 1)}


def test_under_a_sealed_cut_no_gradient_comes_back_to_a_frozen_bottom() -> None:
    frozen, declared = received({"width": 6})
    trained, trained_declared = received([6])
    identity, identity_declared = received([])
    assert not declared & GRADIENTS
    assert declared == identity_declared
    assert trained_declared - declared == GRADIENTS | {"cut/reshare"}
    assert trained["cut/input gradient"] == 2  # one a step
    assert not frozen.keys() & GRADIENTS
    assert frozen["cut/backward"] == 2  # ciphertexts under a key that it does not have
    assert {step: n for step, n in frozen.items() if step.startswith("cut/")} == {
        step: n for step, n in identity.items() if step.startswith("cut/")
    }


@pytest.mark.parametrize("kind", ["relu", "fourier"])
def test_activations_are_bounded_whatever_the_features(kind: str) -> None:
    bottom = frozen_bottom(sv.Frozen.from_values({"width": 50, "kind": kind}), SECRET, (3,))
    a = bottom(torch.tensor([[1e6, -1e6, 3.0], [0.0, 0.0, 0.0], [-4e5, 1e-9, 1e30]]))
    assert a.shape == (3, 50)
    assert float(a.abs().max()) <= 6  # `CutSpec.activation_bound` is 8
    assert float(a.std()) > 0.1
    assert not list(bottom.parameters())


def test_a_bottom_comes_from_the_secret_and_from_nothing_else() -> None:
    x = torch.randn(40, 3)
    mine = frozen_activations(FROZEN, SECRET, x)
    torch.manual_seed(99)
    assert torch.equal(mine, frozen_activations(FROZEN, SECRET, x))
    other = frozen_activations(FROZEN, PartySecret(8), x)
    assert not np.isclose(mine.numpy(), other.numpy()).all(axis=0).any()
    assert torch.equal(mine, frozen_bottom(FROZEN, SECRET, (3,))(x))


def test_a_plain_run_draws_it_from_the_operating_system() -> None:
    """The job's seed is public: a bottom that came from it would be no secret."""
    job = sv.Job(protection=sv.Plain(), algorithm=sv.SplitNN(bottom=FROZEN, **SMALL), epochs=1, steps=1)
    kept = [weights_of(sv.simulate(job, make_parties(rows=80)), "shop1") for _ in range(2)]
    assert not torch.equal(*kept)
    derived = frozen_bottom(FROZEN, PartySecret.from_seed(job.seed, "shop1"), (len(kept[0]),)).weight
    assert not torch.isclose(kept[0], derived).any()
    assert draw_secret(job, "shop1") != PartySecret.from_seed(job.seed, "shop1")  # of a party's own process
    plain = job.replace(algorithm=sv.SplitNN())
    assert draw_secret(plain, "shop1") == PartySecret.from_seed(job.seed, "shop1")


def weights_of(result: sv.Result, party: str) -> torch.Tensor:
    """A party's frozen weights, from its part of the model."""
    model = next(iter(result.models.values()))
    weights, _ = model.parts[party]["parts"]["half"]
    found: torch.Tensor = weights["weight"]
    return found


def test_its_weights_stay_at_home_and_do_not_move() -> None:
    people = make_parties(rows=80)
    secrets = {name: PartySecret(number) for number, name in enumerate(people)}
    job = sv.Job(protection=sv.Plain(), algorithm=sv.SplitNN(bottom=FROZEN, **SMALL), epochs=2, steps=2)
    sent: list[np.ndarray] = []

    class Listens(Recorder):
        def message_passed(self, party, peer, way, message) -> None:  # type: ignore[no-untyped-def]
            sent.extend(np.asarray(array).ravel() for array in message.arrays.values() if way == "sent")

    result = sv.simulate(job, people, secrets=secrets, observers=dict.fromkeys(people, Listens()))
    weight = weights_of(result, "shop1")
    assert torch.equal(weight, frozen_bottom(FROZEN, secrets["shop1"], (len(weight),)).weight)
    numbers = np.concatenate([array.astype(np.float64) for array in sent])
    assert len(numbers) > 100
    assert not np.isin(weight.numpy().astype(np.float64), numbers).any()
    assert all("weight" not in key for part in ("bank",) for key in map(str, result.models["plain"].parts[part]))


def test_the_active_party_trains_its_own() -> None:
    job = sv.Job(protection=sv.Plain(), algorithm=sv.SplitNN(bottom=FROZEN, **SMALL), epochs=1, steps=1)
    (weights, _) = next(iter(sv.simulate(job, make_parties(rows=80)).models.values())).parts["bank"]["parts"]["half"]
    assert any(name.startswith("0.") and "weight" in name for name in weights)


def test_it_learns_from_all_own_rows_without_a_message(monkeypatch: pytest.MonkeyPatch) -> None:
    people = low_overlap_parties(rows=120, overlap=0.3)
    secrets = {name: PartySecret(number) for number, name in enumerate(people)}
    seen: list[int] = []
    pretrain = frozen.pretrain_bottom

    def counted(network: nn.Module, width: int, x: torch.Tensor, **more: Any) -> None:
        seen.append(len(x))
        pretrain(network, width, x, **more)

    monkeypatch.setattr(frozen, "pretrain_bottom", counted)

    def run(learned: str | None) -> sv.Result:
        bottom = sv.Frozen.from_values({"width": 6, "learned": learned, "steps": 5})
        job = sv.Job(protection=sv.Plain(), algorithm=sv.SplitNN(bottom=bottom, **SMALL), epochs=1, steps=1)
        return sv.simulate(job, people, secrets=secrets)

    one, two = run("own rows"), run(None)
    shared = set.intersection(*(set(people[name].ids) for name in people))
    held_out = int((people["bank"].fold > 0).sum())  # all parties hold those
    assert seen == [people[name].rows - held_out for name in ("shop1",)]
    assert min(seen) > len(shared) - held_out  # more than the aligned rows that train
    assert not torch.equal(weights_of(one, "shop1"), weights_of(two, "shop1"))
    steps = [[entry.what for entry in result.ledgers["plain"]["shop1"].entries] for result in (one, two)]
    assert steps[0] == steps[1]


def test_it_learns_where_every_row_is_aligned() -> None:
    bottom = sv.Frozen(6, learned="own rows", steps=2)
    sv.simulate(
        sv.Job(protection=sv.Plain(), algorithm=sv.SplitNN(bottom=bottom, **SMALL), epochs=1),
        low_overlap_parties(rows=60, overlap=1.0),
    )


@pytest.mark.parametrize("kind", [sv.SplitNN, sv.EntityAugmentation, PlugVFL], ids=lambda kind: kind.name)
@pytest.mark.parametrize("name", ["messages", "resuming", "prediction"])
def test_algorithms_at_the_cut_have_it(kind: type[Algorithm], name: str) -> None:
    if name == "messages" and kind is not sv.SplitNN:
        pytest.skip("encrypts; one is enough")
    dict(checks(kind.from_values(SMALL | {"bottom": {"width": 6, "learned": "own rows", "steps": 3}})))[name]()


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        (sv.SelfSupervised, "goes on training what it pretrained"),
        (sv.FedHSSL, "goes on training them"),
        (sv.FedDA, "representations that it sends are trained"),
        (sv.FedCVT, "representations that it sends are trained"),
        (sv.MFTL, "representations that it sends are trained"),
        (sv.SFHTL, "representations that it sends are trained"),
        (sv.FewShotVFL, "representations that it sends are trained"),
        (sv.APCVFL, "each party trains its encoder alone"),
        (sv.Best, "would release every row again"),
        (sv.MultiVFL, "averages bottoms"),
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_where_it_makes_no_sense_it_is_refused_with_the_reason(kind: type[Algorithm], why: str) -> None:
    with pytest.raises(sv.InputError, match=rf"{kind.name}\.bottom is frozen, and .*{why}.*give widths, such as \[6\]"):
        kind.from_values({"bottom": {"width": 6}})


def test_a_file_has_it_as_a_section() -> None:
    algorithm = sv.SplitNN.from_values({"bottom": {"name": "frozen", "width": 64, "kind": "fourier"}})
    assert algorithm.bottom == sv.Frozen(64, "fourier") == sv.Frozen(width=64, kind="fourier")
    assert sv.SplitNN.from_values(algorithm.describe()) == algorithm


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"width": 0}, r"splitnn\.bottom\.width is 0; a whole number from 1 to 65536"),
        ({"width": 8, "kind": "sine"}, r"splitnn\.bottom\.kind is 'sine'; known: 'fourier', 'relu'"),
        ({"width": 8, "learned": "labels"}, r"splitnn\.bottom\.learned is 'labels'"),
        ({"kind": "relu"}, r"splitnn\.bottom\.width is missing"),
    ],
)
def test_mistakes_are_named(given: dict[str, object], said: str) -> None:
    with pytest.raises(sv.InputError, match=said):
        sv.SplitNN.from_values({"bottom": given})


def test_values_without_keywords() -> None:
    with pytest.raises(sv.InputError, match="Frozen takes 2 values at most without keywords, but got 'own rows'"):
        sv.Frozen(8, "relu", "own rows")  # type: ignore[call-arg, unused-ignore]
    with pytest.raises(sv.InputError, match="Frozen got width twice"):
        sv.Frozen(8, width=9)  # type: ignore[misc]
    with pytest.raises(sv.InputError, match="SplitNN takes keywords only, but got 8"):
        sv.SplitNN(8)  # type: ignore[misc]
