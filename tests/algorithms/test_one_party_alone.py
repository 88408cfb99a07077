"""*Never one party's part*: counted from what the passive parties really feed, over all algorithms."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from support.helpers import low_overlap_parties
from support.small_algorithms import KINDS, SETTINGS, SEVERAL, make

import securevfl as sv
from securevfl.cut import CutSpec, PassiveCut
from securevfl.party_context import PartyContext
from securevfl.privacy import Noised, NoiseShare, strip_noise_mark
from securevfl.run.simulation import join_parties, run_parties
from securevfl.testing.parties import make_label_owners
from securevfl.testing.trial import roles_begun
from securevfl.training import Algorithm
from securevfl.training.role import Role

FED: dict[str, list[np.ndarray]] = {}
"""Party and place of its cut → what it fed, call by call."""


class Recording:
    """A passive party's side of a cut, and what is fed to it."""

    def __init__(self, cut: PassiveCut, fed: list[np.ndarray]) -> None:
        self._cut = cut
        self._fed = fed

    async def forward(
        self, activations: torch.Tensor | Noised[torch.Tensor], *, train: bool, noise: NoiseShare | None = None
    ) -> None:
        self._fed.append(strip_noise_mark(activations).detach().numpy().copy())
        await self._cut.forward(activations, train=train, noise=noise)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cut, name)


class Watched(sv.Plain):
    """A cut whose passive sides are watched. What is fed does not depend on how it is protected."""

    def passive_cut(self, site: PartyContext, spec: CutSpec) -> PassiveCut:
        cuts = [key for key in FED if key.startswith(f"{site.name} {site.active} ")]
        fed = FED.setdefault(f"{site.name} {site.active} {len(cuts)}", [])
        return Recording(super().passive_cut(site, spec), fed)


def variants() -> Iterator[Algorithm]:
    for name in SETTINGS:
        if make(name).cut is None:  # nothing is summed
            continue
        if KINDS[name].most_passive is None and name not in ("local", "risa"):  # or there is one passive party at most
            yield make(name, **({"bottom": (5,)} if name == "ssl" else {}))  # of another width than the features
    yield SEVERAL
    for evidential in (True, False):
        for self_training in (0, 2):
            yield make("risa", evidential=evidential, self_training=self_training)


def alone(algorithm: Algorithm) -> tuple[int, int]:
    """How many rows were fed, and of how many exactly one passive party fed something that is no constant."""
    FED.clear()
    people = make_label_owners(2, 2) if algorithm.many_owners else low_overlap_parties(2, rows=330)
    job = sv.Job(
        algorithm=algorithm, protection=Watched(), epochs=algorithm.least_epochs + 1, batch_size=32, steps=4, seed=3
    )
    with roles_begun() as roles:
        run_parties(job, people, join_parties(people, job), run="watched")
    passive = {role.site.name: role for role in roles if role.site.role == "passive"}
    places = sorted({key.split(" ", 1)[1] for key in FED})
    rows = single = 0
    for place in places:
        calls = zip(*(FED[f"{name} {place}"] for name in sorted(passive)), strict=True)
        for call in calls:
            real = [~is_constant(passive[name], fed) for name, fed in zip(sorted(passive), call, strict=True)]
            contributors = np.sum(real, axis=0)
            rows += len(contributors)
            single += int((contributors == 1).sum())
    return rows, single


def is_constant(role: Role, fed: np.ndarray) -> np.ndarray:
    """Which rows are what stands in for rows that the party lacks, (n,) bool. Bottoms are the identity, but for those
    that are pretrained: there, what a third of a batch has in common."""
    fill = role.features.fill.numpy().ravel()
    if fed.shape[1] != len(fill):
        return np.array([(fed == row).all(axis=1).mean() > 1 / 3 for row in fed])
    return np.asarray((fed == fill).all(axis=1))


@pytest.mark.parametrize("algorithm", list(variants()), ids=lambda a: f"{a.name}-{a.describe()}"[:60])
def test_one_party_s_part_shows_only_where_the_findings_say_so(algorithm: Algorithm) -> None:
    rows, single = alone(algorithm)
    protection = sv.BFV()
    texts = [
        finding.learns
        for finding in algorithm.findings(protection, ["shop1", "shop2"], "bank")
        if finding.party == "bank" and ("z, the sum" in finding.learns or "its part of z" in finding.learns)
    ]
    assert rows > 100
    assert len(texts) >= 2 or algorithm.many_owners, "one for each passive party"
    says = any("separately" in text for text in texts)
    assert says or not single, f"{single} of {rows} rows are one party's part and a constant"
    assert says == any("never one party's part" not in text for text in texts)
    if algorithm.cut is not None and algorithm.cut.together:
        assert says == bool(single), "the findings warn of what does not happen"
