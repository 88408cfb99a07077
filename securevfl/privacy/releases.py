"""One party's noisy releases: the plan, its cost so far, and what interrupted attempts may have cost in addition.

A role requests each release from `Releases`. The plan is counted and checked against the party's policy at that time,
before anything leaves; at the end, `final_costs` checks that every planned release happened.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
import torch
from torch import nn

from securevfl.errors import PolicyError, ProtectionInactive
from securevfl.privacy.accountant import FEATURES, Accountant, GaussianRelease, Release
from securevfl.privacy.epsilon_budget import EpsilonBudget
from securevfl.privacy.joint import JointRelease
from securevfl.privacy.journal import Journal
from securevfl.privacy.labels import LabelRelease
from securevfl.privacy.mechanisms import Gaussian, GaussianNoise, JointNoise, RandomisedResponse
from securevfl.privacy.noise import Entropy
from securevfl.privacy.policy import Policy
from securevfl.privacy.repeated import RepeatedNoise
from securevfl.privacy.rows import GaussianRows, RowRelease
from securevfl.privacy.sgd import PrivateSteps
from securevfl.privacy.spent import Counted, Spent, depends_on
from securevfl.privacy.sums_budget import SumsUses

__all__ = ["Releases", "check_total_plan"]


class Releases:
    """One party's releases, in the order in which the role requested them.

    Args:
        party: whose they are.
        policy: the party's own.
        entropy: source of random bytes for all of them.
        repeated: for predictions: gives a row the same noise each time it is predicted; None to draw new noise.

    Attributes:
        end_of_plan: why `epochs_within` shortened the plan, in words; empty if it did not.
    """

    def __init__(
        self, party: str, policy: Policy, entropy: Entropy = os.urandom, *, repeated: RepeatedNoise | None = None
    ) -> None:
        self.party = party
        self.end_of_plan = ""
        self._policy = policy
        self._entropy = entropy
        self._repeated = repeated
        self._every: list[Counted] = []
        self._planned: list[tuple[Release, tuple[str, ...]]] = []
        self._delta = 1.0
        self._exact = True
        self._journal = Journal(party)
        self._epoch = 1
        self._scope = ""
        self._over_jobs: _OverJobs | None = None

    def plan_rows(
        self,
        what: str,
        mechanism: Gaussian,
        *,
        rows: int,
        times: int,
        sensitivity: float | None = None,
        once: bool = False,
    ) -> RowRelease:
        """Plan a release of rows. Calling the release clips and noises rows and returns a `Noised`.

        Args:
            what: is released, as in `PROTECTS`.
            mechanism: the budget and the clipping norm C.
            rows: number of rows that exist; releases are counted per row number.
            times: planned number of releases of one row.
            sensitivity: Δ if it is known to be less than 2C: for gradients, the loss's `sensitivity`; see `Loss`.
            once: draw a row's noise once and release the same noisy row every time; see `RowRelease`.

        Raises:
            PolicyError: the plan costs more than the party's policy allows, or more than the mechanism's budget if that
                budget ends training.
        """
        release = RowRelease(
            what,
            rows=rows,
            times=times,
            sigma=mechanism.sigma(times),
            clip=mechanism.clip,
            delta=mechanism.delta,
            sensitivity=sensitivity,
            once=once,
            entropy=self._entropy,
            repeated=self._repeated,
        )
        self.plan_release(release, mechanism)
        return release

    def plan_joint(self, mechanism: JointNoise, *, rows: int, times: int, parties: int) -> JointRelease:
        """Plan this party's shares of the noise on z; `JointRelease.draw_share` returns a `NoiseShare`.

        Args:
            mechanism: the budget, the clipping norm and the declared bound on the weights.
            rows: number of rows that exist.
            times: planned number of releases of one row.
            parties: how many parties add noise that the active party does not know; see `JointRelease`.

        Raises:
            PolicyError: see `rows`.
        """
        release = JointRelease(
            rows=rows,
            times=times,
            sigma=mechanism.sigma(times),
            clip=mechanism.clip,
            weight_bound=mechanism.weight_bound,
            parties=parties,
            delta=mechanism.delta,
            entropy=self._entropy,
        )
        self.plan_release(release, mechanism)
        return release

    def plan_labels(
        self,
        mechanism: RandomisedResponse,
        y: torch.Tensor,
        training: np.ndarray,
        classes: int,
        person: np.ndarray | None = None,
    ) -> LabelRelease:
        """Labels drawn once by randomised response, for each person.

        Args:
            mechanism: the price of one label.
            y: class of each numbered row, (rows,) int64, −1 where it is unknown.
            training: numbers of the rows to draw for, (n,).
            classes: number of classes.
            person: for each numbered row the first number of the same person, or None where all differ.

        Raises:
            PolicyError: the price is more than the party's policy allows.
        """
        release = LabelRelease(
            y,
            training,
            classes=classes,
            epsilon=mechanism.epsilon,
            delta=mechanism.delta,
            person=person,
            entropy=self._entropy,
        )
        self.plan_release(release, mechanism)
        return release

    def plan_steps(self, mechanism: Gaussian, model: nn.Module, *, rows: int, times: int) -> PrivateSteps:
        """Plan DP-SGD for a model that this party trains alone.

        Args:
            mechanism: the budget and the clipping norm of a row's gradient.
            model: see `PrivateSteps`.
            rows: number of rows that exist.
            times: planned number of uses of one row.

        Raises:
            InputError: a layer mixes rows, such as batch normalisation.
            PolicyError: see `rows`.
        """
        release = PrivateSteps(
            model,
            rows=rows,
            times=times,
            sigma=mechanism.sigma(times),
            clip=mechanism.clip,
            delta=mechanism.delta,
            entropy=self._entropy,
        )
        self.plan_release(release, mechanism)
        return release

    def epochs_within(
        self,
        mechanisms: Iterable[Gaussian | JointNoise],
        times_of: Callable[[int], list[int]],
        epochs: int,
        least: int,
    ) -> int:
        """Number of epochs, at most `epochs`, that all budgets with ``on_budget="stop"`` allow.

        All parties compute the same number: it depends only on the job and the numbers of rows.

        Args:
            mechanisms: of the whole job, including other parties' mechanisms.
            times_of: given a number of epochs, how often each of the mechanisms releases one row, in their order.
            epochs: planned number.
            least: fewest epochs that the algorithm needs.

        Raises:
            PolicyError: the budgets do not allow `least` epochs.
        """
        every = list(mechanisms)
        if not any(mechanism.on_budget == "stop" for mechanism in every):
            return epochs

        def mechanisms_over(count: int) -> list[Gaussian | JointNoise]:
            pairs = zip(every, times_of(count), strict=True)
            return [m for m, times in pairs if m.on_budget == "stop" and not m.affords(times)]

        low, high = 0, epochs  # the budgets allow `low` epochs
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (low, middle - 1) if mechanisms_over(middle) else (middle, high)
        if low == epochs and low >= least:
            return epochs
        (first, *_) = mechanisms_over(low + 1) or [next(m for m in every if m.on_budget == "stop")]
        if low < least:
            raise PolicyError(
                f"dp.epsilon = {first.epsilon:g} with noise multiplier {first.noise_multiplier} allows {low} epochs, "
                f"and {least} are needed: more noise, or a larger budget"
            )
        self.end_of_plan = f"the privacy budget ε = {first.epsilon:g} is spent after {low} of {epochs} epochs"
        return low

    def plan_release(self, release: Counted, mechanism: GaussianNoise | RandomisedResponse) -> None:
        """Count a planned release and check the whole plan against the policy.

        Args:
            release: counts its own uses; `final_costs` and `costs_so_far` report it from now on.
            mechanism: whose budget it draws on.

        Raises:
            PolicyError: the plan spends more than the mechanism's budget, or than the party's policy allows.
        """
        times = release.planned_release.times
        if isinstance(mechanism, GaussianNoise) and mechanism.on_budget == "stop" and not mechanism.affords(times):
            raise PolicyError(
                f"releasing {release.what} {times} times with noise multiplier {mechanism.noise_multiplier} spends "
                f"more than dp.epsilon = {mechanism.epsilon:g}: more noise, or a larger budget"
            )
        self._delta = min(self._delta, mechanism.delta)
        self._exact = self._exact and isinstance(release, SumsUses)
        self._count_release(release.planned_release, release.what)
        self._every.append(release)

    def _count_release(self, release: Release, what: str) -> None:
        """Count a release and check the new sum against the policy: by RDP, from which other noise is sized, or exactly
        where all noise is sized by the exact formula."""
        subjects = depends_on(what)
        self._planned.append((release, subjects))
        for epsilon in self._epsilon_about(subjects):
            self._policy.check_epsilon(epsilon, what, self._delta)

    def _epsilon_about(self, subjects: Iterable[str]) -> list[float]:
        """ε of all that is planned, and of what was lost, about each of these."""
        accountant = Accountant(self.party, self._delta)
        for planned, of_release in self._planned:
            accountant.add(planned, of_release)
        return [accountant.epsilon_exact(about) if self._exact else accountant.epsilon_rdp(about) for about in subjects]

    @property
    def planned_epsilon(self) -> float:
        """ε of the plan, and of what interrupted attempts may have released beside it: of features or of labels, which
        is more. 0 without a plan."""
        subjects = {about for _, each in self._planned for about in each}
        return max(self._epsilon_about(subjects)) if subjects else 0.0

    def compose_over_jobs(self, budget: EpsilonBudget, rows: np.ndarray, places: np.ndarray) -> None:
        """Hold Gaussian releases against what earlier jobs released of the same rows, too.

        Args:
            budget: of these rows, over all jobs.
            rows: numbers of the rows that are released, (n,).
            places: their positions in the budget, (n,).
        """
        self._over_jobs = _OverJobs(budget, rows, places)

    def begin_attempt(self, journal: Journal, start: int, scope: str = "") -> None:
        """Start an attempt: count what earlier attempts may have released, and reserve later releases in the journal.
        The plan does not change, because all parties must share it, so ε can exceed the planned value; the report then
        gives the actual one.

        Args:
            journal: the party's own.
            start: the epoch after which the run resumes, or another number that grows from checkpoint to checkpoint; 0
                for a run that starts from scratch.
            scope: receiver of these releases, if a party keeps several lists of releases in one journal.

        Raises:
            PolicyError: together with what earlier attempts, or earlier jobs, may have released, the plan exceeds the
                party's policy.
            InputError: the journal counts another number of rows.
        """
        journal.begin_attempt(start)
        self._journal, self._epoch, self._scope = journal, start + 1, scope
        for name, release in self._name_releases():
            before = journal.earlier_counts(name, release.counts.rows, start)
            if journal.lost_attempts:  # of an attempt that nobody counted, each row may have had all planned releases
                before = before.add_lost(journal.lost_attempts * release.counts.times)
            release.counts.begin_attempt(before, partial(self._reserve_releases, name, release))
            self._check_lost(release)
            if self._over_jobs is not None:
                self._over_jobs.check_plan(release, self._delta)
        if start == 0:
            for release in self._every:
                if isinstance(release, LabelRelease):
                    release.draw_counted()

    def end_epoch(self, place: int | None = None) -> None:
        """Replace the ended epoch's reservations with exact counts. Also called for releases after the last epoch.

        Args:
            place: number of the checkpoint being written, counted as `start` of `begin_attempt`; the next epoch by
                default.
        """
        for name, release in self._name_releases():
            counts = release.counts.end_epoch()
            if counts.any():
                self._journal.close_epoch(self._epoch, name, counts)
        self._epoch = self._epoch + 1 if place is None else place + 1

    def _name_releases(self) -> Iterator[tuple[str, Counted]]:
        """Yield each release with its name in the journal; names are the same in every attempt."""
        for number, release in enumerate(self._every):
            yield f"{self._scope}{'/' if self._scope else ''}{number} {release.what}", release

    def _reserve_releases(self, name: str, release: Counted, most: int) -> None:
        if self._over_jobs is not None:
            self._over_jobs.count_releases(release, self._epoch, most, self._delta)
        self._journal.reserve_releases(self._epoch, name, release.counts.rows, most)

    def _check_lost(self, release: Counted) -> None:
        """Check the plan plus what interrupted attempts may have released against the policy."""
        lost, planned = release.counts.max_lost, release.planned_release
        if not lost:
            return
        try:
            self._count_release(replace(planned, times=lost), release.what)
        except PolicyError as error:
            raise PolicyError(
                f"{error}; an interrupted run may have released a row {lost} times more than planned: to "
                f"resume, {self.party!r} must allow that as well (a new run spends more)"
            ) from error

    def costs_so_far(self) -> list[Spent]:
        """The releases made so far and their cost, without those that did not happen."""
        return [spent for spent in (release.cost_so_far for release in self._every) if spent.times]

    def epsilon(self) -> dict[str, float]:
        """``"features"`` or ``"labels"`` of one row → ε of all releases so far together, by RDP alone."""
        accountant, subjects = Accountant(self.party, self._delta), dict[str, None]()
        for release in self._every:
            if release.counts.max_releases:
                about = depends_on(release.what)
                accountant.add(replace(release.planned_release, times=release.counts.max_releases), about)
                subjects |= dict.fromkeys(about)
        return {about: accountant.epsilon_rdp(about) for about in subjects}

    def final_costs(self) -> list[Spent]:
        """Check that every planned release happened and return what all of them cost.

        Raises:
            ProtectionInactive: a planned release never happened.
        """
        found = [release.cost_so_far for release in self._every]
        for spent in found:
            if spent.times == 0:
                raise ProtectionInactive(
                    f"differential privacy on {spent.what} was requested, but nothing was released through it"
                )
        return found

    @property
    def over_jobs(self) -> EpsilonBudget | None:
        """ε of the same rows over all jobs; None where it is not composed."""
        return None if self._over_jobs is None else self._over_jobs.budget

    def interruption_notes(self, name: str = "") -> list[str]:
        """Notes for a report: releases of interrupted attempts that ε includes.

        Args:
            name: of the party, for the sentence; its own unless given.
        """
        return [
            f"this run resumed an interrupted run of {name or self.party!r}: its ε counts up to "
            f"{release.counts.max_lost} releases of a row's {release.what} by interrupted attempts besides the "
            f"{release.planned_release.times} planned ones"
            for release in self._every
            if release.counts.max_lost
        ]

    def counts_as_release(self, rows: np.ndarray) -> np.ndarray:
        """Where feeding these rows (n,) once more would be one more release of the row, (n,) bool."""
        found = np.zeros(len(rows), bool)
        for release in self._of_features():
            found |= release.counts_as_release(rows)
        return found

    def releases_left(self, rows: np.ndarray) -> np.ndarray:
        """Number of releases that the plan has left for each of these rows (n,), (n,) int64. A row with none left is
        refused if `fresh` is True for it.
        """
        found = np.full(len(rows), np.iinfo(np.int64).max)
        for release in self._of_features():
            found = np.minimum(found, release.counts.releases_left(rows))
        return found

    def epsilon_of_feeding(self, times: int) -> float:
        """ε of feeding one row `times` times, by RDP at `delta`; infinite if features leave without noise."""
        gaussian = self._of_features()
        if not gaussian:
            return math.inf
        accountant = Accountant(self.party, self._delta)
        for release in gaussian:
            accountant.add(replace(release.planned_release, times=times), (FEATURES,))
        return accountant.epsilon_rdp(FEATURES)

    def _of_features(self) -> list[GaussianRows]:
        return [one for one in self._every if isinstance(one, GaussianRows) and FEATURES in depends_on(one.what)]

    def get_state(self) -> dict[str, object]:
        """What each release needs to resume, without the counts, which are in the journal."""
        return {"releases": [[release.what, release.get_state()] for release in self._every]}

    def load_state(self, state: Mapping[str, object]) -> None:
        """Restore a `state` of the same releases, requested in the same order.

        Raises:
            TypeError: the state belongs to other releases.
        """
        kept = state.get("releases")
        if not isinstance(kept, list) or [what for what, _ in kept] != [release.what for release in self._every]:
            raise TypeError("not a state of these releases")
        for release, (_, own) in zip(self._every, kept, strict=True):
            release.load_state(own)

    @property
    def planned_releases(self) -> tuple[tuple[Release, tuple[str, ...]], ...]:
        """The planned releases, each with the part of a row it depends on."""
        return tuple(self._planned)

    @property
    def is_exact(self) -> bool:
        """Whether all noise is sized by the exact formula of Gaussian releases, and not by RDP."""
        return self._exact and bool(self._every)

    @property
    def delta(self) -> float:
        """The smallest δ of all mechanisms; 1 without any."""
        return self._delta

    def __len__(self) -> int:
        return len(self._every)


@dataclass
class _OverJobs:
    """Which of the budget's rows are released, and how many releases of an epoch it has."""

    budget: EpsilonBudget
    rows: np.ndarray = field(repr=False)
    places: np.ndarray = field(repr=False)
    booked: dict[tuple[str, int], int] = field(default_factory=dict)

    def check_plan(self, release: Counted, delta: float) -> None:
        planned = release.planned_release
        if not isinstance(planned, GaussianRelease):
            return
        left = int(release.counts.releases_left(self.rows).max(initial=0))
        if left:
            self.budget.check_plan(self.places, replace(planned, times=left), delta)

    def count_releases(self, release: Counted, epoch: int, most: int, delta: float) -> None:
        planned, key = release.planned_release, (release.what, epoch)
        if not isinstance(planned, GaussianRelease):
            return
        self.budget.count_releases(self.places, planned.noise_multiplier, most - self.booked.get(key, 0), delta)
        self.booked[key] = most


def check_total_plan(party: str, policy: Policy, every: Sequence[Releases]) -> None:
    """Check what several `Releases` of one party plan together against its policy.

    Args:
        party: whose they are.
        policy: the party's own.
        every: for example, one for each label owner that a data owner trains with.

    Raises:
        PolicyError: they add up to more than the policy allows.
    """
    planned = [item for releases in every for item in releases.planned_releases]
    if not planned:
        return
    accountant = Accountant(party, min(releases.delta for releases in every))
    for release, subjects in planned:
        accountant.add(release, subjects)
    for about in {about for _, subjects in planned for about in subjects}:
        policy.check_epsilon(accountant.epsilon_rdp(about), f"{about} to all label owners")
