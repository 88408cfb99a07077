"""Protections as configurations, and what they declare: every message of their cut, before anything is sent."""

from __future__ import annotations

from typing import Any

import pytest

import securevfl as sv
from securevfl.cut import CutUse, Protection, Sealed
from securevfl.transport import ACTIVE, PASSIVE, Exchanges, Kind, PartyRole

USUAL: frozenset[Kind] = frozenset({Kind.CONTROL})
KEY, SHARE, CIPHER = Kind.PUBLIC_KEY, Kind.MASKED_SHARE, Kind.CIPHERTEXT
Row = tuple[Protection, CutUse, int, set[Kind], set[Kind], set[Kind]]


def _use(trainable: bool, **asked: bool) -> CutUse:
    return CutUse(trainable=trainable, **asked)


# Protection, use, passive parties; kinds from the active party, from a passive one to it, and between passive ones.
KINDS: list[Row] = [
    (sv.Plain(), _use(True), 1, {Kind.GRADIENT}, {Kind.ACTIVATION}, set()),
    (sv.Plain(fixed_point=True), _use(False), 2, {Kind.GRADIENT}, {Kind.ACTIVATION}, set()),
    (sv.Paillier(), _use(False), 1, {CIPHER, KEY}, {CIPHER, SHARE}, set()),
    (sv.Paillier(), _use(False), 2, {CIPHER, KEY}, {CIPHER, SHARE}, {KEY}),
    (sv.Paillier(), _use(False, together=False), 2, {CIPHER, KEY}, {CIPHER, SHARE}, set()),
    (sv.Paillier(), _use(True), 1, {CIPHER, KEY}, {CIPHER, SHARE, KEY}, set()),
    (sv.BFV(), _use(False), 1, {CIPHER, KEY}, {CIPHER}, set()),
    (sv.BFV(), _use(False), 3, {CIPHER, KEY}, {CIPHER}, {KEY}),
    (sv.BFV(), _use(False, rounds=True), 1, {CIPHER, KEY}, {CIPHER, SHARE}, set()),
    (sv.CKKS(), _use(False, integer_shares=True), 1, {CIPHER, KEY}, {CIPHER, SHARE}, set()),
    (sv.CKKS(), _use(True), 2, {CIPHER, KEY}, {CIPHER, SHARE, KEY}, {KEY}),
    (sv.Auto(), _use(False), 1, {CIPHER, KEY}, {CIPHER, SHARE}, set()),
    (sv.Auto(offers=("bfv", "ckks")), _use(False), 1, {CIPHER, KEY}, {CIPHER}, set()),
    (sv.Auto(), _use(True), 2, {CIPHER, KEY}, {CIPHER, SHARE, KEY}, {KEY}),
]


def _kinds(declared: Exchanges, sender: PartyRole, receiver: PartyRole) -> set[Kind]:
    return {kind for _, kind in declared.declared_between(sender, receiver)} - USUAL


@pytest.mark.parametrize(("protection", "use", "passive", "down", "up", "among"), KINDS)
def test_kinds_that_are_declared(
    protection: Protection, use: CutUse, passive: int, down: set[Kind], up: set[Kind], among: set[Kind]
) -> None:
    declared = Exchanges(protection.exchanges(use, passive))
    assert _kinds(declared, ACTIVE, PASSIVE) == down
    assert _kinds(declared, PASSIVE, ACTIVE) == up
    assert _kinds(declared, PASSIVE, PASSIVE) == among


@pytest.mark.parametrize("kind", Protection.known_types().values(), ids=Protection.known_types())
def test_what_is_opened_and_under_which_ciphers(kind: type[Protection]) -> None:
    protection = kind()
    for trainable in (True, False):
        declared = protection.exchanges(_use(trainable), 2)
        opened = {exchange.opened for exchange in declared} - {None}
        wanted = {Kind.ACTIVATION, Kind.GRADIENT} if trainable else {Kind.ACTIVATION}
        assert opened == (wanted if protection.is_sealed and not protection.on_shares else set())
        for exchange in declared:
            sealed = exchange.kind is Kind.CIPHERTEXT
            assert exchange.ciphers == (protection.ciphers if sealed else frozenset())
            assert exchange.key_bits == (protection.key_bits if sealed else 0)
    assert not protection.exchanges(_use(True), 0)


def test_sizes_of_keys() -> None:
    assert sv.Paillier(bits=2048).key_bits == 2048
    assert sv.Auto(bits=2048).key_bits == 2048
    assert sv.Auto(bits=2048, offers=("bfv",)).key_bits == sv.BFV().key_bits == sv.Plain().key_bits == 0


GAUSSIAN = sv.DP(features=sv.Gaussian(), labels=sv.Gaussian())
STRONG = sv.DP(features=sv.Gaussian(epsilon=0.5), labels=sv.Gaussian(epsilon=0.5))
JOINT = sv.DP(features=sv.JointNoise(weight_bound=1.0))
LINEAR = (
    "a linear image of its features; after a few epochs the active party can compute the features up to a rotation, "
    "and, with about as many known records as columns, the features themselves"
)
CURVED = "a changing, nonlinear image of its features"
NOISY = "with differentially private noise (ε = 8): a yes-or-no attribute ranked with AUC at most 0.87"
BOUNDED = f"{NOISY}, as long as its weights stay below 1"
NOISY_LABELS = "with differentially private noise (ε = 8): labels ranked with AUC at most 0.87"
HIDDEN = "with differentially private noise (ε = 0.5): a yes-or-no attribute ranked with AUC at most 0.54"
HIDDEN_LABELS = "with differentially private noise (ε = 0.5): labels ranked with AUC at most 0.54"
RANDOMISED = (
    "computed from labels drawn by randomised response (ε = 2): labels ranked with AUC at most 0.89 "
    "by the draw; without noise, it also reveals what the model predicts for the row"
)
CUT, BOTTOM = "the gradient at the cut, for each row and step", "the gradient at its activations, for each row and step"
TOLD = "in practice the reader can tell the labels apart"
COLUMNS = "; it also reveals the label owner's own columns"
BARE = ", which noise on labels does not hide"


@pytest.mark.parametrize(
    ("protection", "use", "passive", "features", "labels"),
    [
        (
            sv.Plain(),
            _use(False),
            2,
            (
                "cut/forward",
                "leak",
                "its part of z in the clear, for each row and step: a linear image of its features, from which the "
                "active party can estimate them",
            ),
            ("cut/backward", "leak", f"{CUT}: {TOLD}{COLUMNS}"),
        ),
        (
            sv.Plain(dp=GAUSSIAN),
            _use(True),
            2,
            ("cut/forward", "leak", f"its part of z in the clear, for each row and step: {CURVED}, {NOISY}"),
            ("cut/backward", "leak", f"{CUT}, {NOISY_LABELS}{COLUMNS}{BARE}"),
        ),
        (
            sv.Plain(dp=sv.DP(labels=sv.RandomisedResponse(epsilon=2))),
            _use(True),
            1,
            (
                "cut/forward",
                "leak",
                f"its part of z in the clear, for each row and step: {CURVED}, from which the active party can "
                "estimate them",
            ),
            ("cut/backward", "leak", f"{CUT}, {RANDOMISED}{COLUMNS}{BARE}"),
        ),
        (
            sv.BFV(),
            _use(False),
            1,
            ("cut/forward", "leak", f"its part of z, for each row and step: {LINEAR}"),
            ("cut/backward", "ok", "sizes, timing and the number of steps; nothing about labels"),
        ),
        (
            sv.Paillier(dp=JOINT),
            _use(False),
            3,
            (
                "cut/forward",
                "leak",
                "z, the sum over 3 parties and never one party's part, for each row and step: a linear image of its "
                f"features, {BOUNDED}",
            ),
            ("cut/backward", "ok", "sizes, timing and the number of steps; nothing about labels"),
        ),
        (
            sv.CKKS(dp=sv.DP(labels=sv.RandomisedResponse(epsilon=2))),
            _use(True, together=False),
            2,
            (
                "cut/forward",
                "leak",
                f"its part of z separately, not only the sum of all parties', for each row and step: {CURVED}, "
                "from which the active party can estimate them",
            ),
            ("cut/input gradient", "leak", f"{BOTTOM}, {RANDOMISED}{COLUMNS}{BARE}"),
        ),
        (
            sv.Auto(dp=STRONG),
            _use(True),
            1,
            ("cut/forward", "note", f"its part of z, for each row and step: {CURVED}, {HIDDEN}"),
            ("cut/input gradient", "leak", f"{BOTTOM}, {HIDDEN_LABELS}{COLUMNS}{BARE}"),
        ),
    ],
)
def test_what_receivers_learn(
    protection: Protection, use: CutUse, passive: int, features: tuple[str, ...], labels: tuple[str, ...]
) -> None:
    told = [e for e in protection.exchanges(use, passive) if e.reveals]
    assert [(e.step, e.severity, e.reveals) for e in told if e.receiver == ACTIVE] == [features]
    assert [(e.step, e.severity, e.reveals) for e in told if e.receiver == PASSIVE] == [labels]


def test_noise_is_declared_where_the_job_asks_for_it() -> None:
    def noised(protection: Protection) -> set[str]:
        return {e.step for e in protection.exchanges(_use(True), 2) if e.noised}

    assert noised(sv.Plain(dp=GAUSSIAN)) == {"cut/forward", "cut/backward"}
    assert noised(sv.BFV(dp=GAUSSIAN)) == {"cut/forward", "cut/backward", "cut/input gradient"}
    assert noised(sv.BFV(dp=JOINT)) == {"cut/forward"}
    assert noised(sv.BFV(dp=sv.DP(labels=sv.RandomisedResponse()))) == set()
    assert sv.Plain(dp=GAUSSIAN).policy().noised == {Kind.ACTIVATION, Kind.REPRESENTATION, Kind.GRADIENT}
    assert sv.BFV(dp=JOINT).policy().noised == {Kind.ACTIVATION, Kind.REPRESENTATION}


def test_titles_and_descriptions() -> None:
    assert sv.Plain().title == "plain"
    assert sv.Plain(dp=sv.DP(features=sv.Gaussian(epsilon=4))).title == "DP on features, ε = 4"
    assert sv.Plain(fixed_point=True).title == "plain, fixed point"
    assert sv.Paillier(bits=2048, dp=sv.DP(labels=sv.Gaussian())).title == "Paillier 2048 + DP on labels, ε = 8"
    for kind in Protection.known_types().values():
        made = kind(dp=GAUSSIAN)
        assert Protection.from_values(made.describe()) == made
        assert Protection.from_values(kind.name) == kind()
    assert Sealed.from_values("bfv") == sv.BFV()


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"name": "palier"}, "protection.name is 'palier'; did you mean 'paillier'"),
        ({"name": "paillier", "bits": 1024}, "protection.bits is 1024; a whole number from 2048 to 8192"),
        ({"name": "paillier", "bits": 2050}, "multiple of 64"),
        ({"name": "bfv", "bits": 3072}, "protection has no 'bits'"),
        ({"name": "plain", "fixed_point": 1}, "protection.fixed_point is 1; true or false was expected"),
        ({}, "add name = one of 'auto', 'bfv', 'ckks', 'paillier', 'plain'"),
    ],
)
def test_mistakes_are_named(values: dict[str, Any], words: str) -> None:
    with pytest.raises(sv.InputError) as caught:
        Protection.from_values(values, "protection")
    assert words in str(caught.value)


def test_protections_that_seal() -> None:
    assert {name: kind().is_sealed for name, kind in Protection.known_types().items()} == {
        "auto": True,
        "bfv": True,
        "ckks": True,
        "paillier": True,
        "plain": False,
        "shares": True,
    }
    assert [sv.Plain().uses_integers, sv.Plain(fixed_point=True).uses_integers, sv.BFV().uses_integers] == [
        False,
        True,
        True,
    ]
