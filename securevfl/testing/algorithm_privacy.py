"""Checks of an algorithm under protections: sealed and plain runs are equal, noise is added, and ε is counted."""

from __future__ import annotations

import itertools

import torch

from securevfl.cut import Plain, Protection
from securevfl.errors import PolicyError
from securevfl.party import Job
from securevfl.privacy import DP, READABLE_KINDS, Gaussian, RandomisedResponse
from securevfl.run.simulation import RunOutcome
from securevfl.testing.algorithm_configuration import KINDS, is_accepted
from securevfl.testing.failure import CheckFailed
from securevfl.testing.trial import Trial, check_equal_runs, results_of, roles_begun
from securevfl.training.active_role import ActiveRole
from securevfl.transport import ACTIVE, PASSIVE, Kind, PartyRole

__all__ = [
    "check_further_protections",
    "check_loss",
    "check_noise_on_features",
    "check_noise_on_labels",
    "check_randomised_labels",
    "check_sealing",
]

_EPSILON = 20.0
_LOGITS = 64


def check_sealing(trial: Trial) -> None:
    """Check that sealed runs equal plain runs in the same integers bit by bit; with `reveals`, sealing is refused."""
    algorithm, sealed = trial.algorithm, trial.sealing_protection
    takes = is_accepted(algorithm, sealed)
    if algorithm.reveals:
        if takes:
            raise CheckFailed(f"it {algorithm.reveals}, and check() accepts {sealed!r}: PolicyError was expected")
        _check_refused(trial, sealed)
        return
    if not takes:
        _check_refused(trial, sealed)
        return
    if not algorithm.opens_only_answers(sealed):  # rounded answers, and no metrics of an epoch
        check_equal_runs(
            trial.run(trial.few_job(trial.exact_protection), trial.few_people),
            trial.sealed_run,
            "plain in fixed point, and sealed",
        )
    for name, ledger in trial.sealed_run.ledgers.items():
        readable = {entry.what for entry in ledger.entries if entry.kind in READABLE_KINDS - {Kind.STATISTIC}}
        if readable:
            raise CheckFailed(f"sealed, {sorted(readable)} still crosses readably at {name!r}")


def _check_refused(trial: Trial, sealed: Protection) -> None:
    try:
        trial.algorithm.check_protection(sealed)
    except PolicyError:
        return
    except Exception as error:
        raise CheckFailed(f"it refuses {sealed!r} by {type(error).__name__}; PolicyError was expected") from error


def check_noise_on_features(trial: Trial) -> None:
    """Check that with noise on features, each passive party adds it to all values that it sends, and counts its ε."""
    protection = Plain(dp=DP(features=Gaussian(epsilon=_EPSILON)))
    if trial.exchanges_messages and is_accepted(trial.algorithm, protection):
        for steps in (None, 5):
            _check_noise(trial, trial.job(protection, steps=steps), PASSIVE)


def check_noise_on_labels(trial: Trial) -> None:
    """Check that with noise on labels, the active party adds it to all gradients that it sends, and counts its ε."""
    protection = Plain(dp=DP(labels=Gaussian(epsilon=_EPSILON)))
    if trial.exchanges_messages and is_accepted(trial.algorithm, protection):
        for steps in (None, 5):
            _check_noise(trial, trial.job(protection, steps=steps), ACTIVE)


def _check_noise(trial: Trial, job: Job, side: PartyRole) -> None:
    ran = _run_protected(trial, job)
    owners = {table.name for table in trial.people().label_owners}
    parties = owners if side == ACTIVE else {table.name for table in trial.people().passive}
    noised = {(e.step, e.kind) for e in trial.declared_exchanges(job.protection) if e.noised and e.sender == side}
    if not noised:
        raise CheckFailed(
            f"check() accepts {job.protection!r}, but no message of the {side} party is declared noised: declare those "
            "that carry noise, or refuse the protection in check()"
        )
    for name in parties:
        spent = ran.trained[name].spent
        if not spent:
            raise CheckFailed(f"{name!r} was to add noise, and no release of it was counted: use role.releases")
        for one in spent:
            if not 0 < one.epsilon_rdp <= _EPSILON * (1 + 1e-6):
                raise CheckFailed(
                    f"{name!r} spent ε = {one.epsilon_rdp:.4g} on {one.what} (released {one.times} times); above 0 and "
                    f"up to {_EPSILON:g} was expected: do activation_times and label_times of its Bookkeeping count "
                    "all releases of a row?"
                )
        multipliers = {one.noise_multiplier for one in spent}
        sent = [e for e in ran.ledgers[name].entries if e.way == "sent" and (e.what, e.kind) in noised]
        if not sent or any(entry.noise not in multipliers for entry in sent):
            found = sorted({entry.noise for entry in sent})
            raise CheckFailed(
                f"{name!r} sent {len(sent)} messages with noise of σ/Δ {found}; its releases have {sorted(multipliers)}"
            )
    if side == ACTIVE and any(ran.trained[table.name].spent for table in trial.people().passive):
        raise CheckFailed("noise on labels was asked for, and a passive party counts releases")
    if job.steps is None and results_of(ran) == results_of(_run_protected(trial, job)):
        raise CheckFailed("two runs with noise give the same bits: noise comes from the operating system, and must act")


def _run_protected(trial: Trial, job: Job) -> RunOutcome:
    try:
        return trial.run(job)
    except PolicyError as error:
        raise CheckFailed(
            f"with {job.protection.dp!r}, the run is refused or shows no protection: {error}. If a row is released "
            "more often than planned: do times, activation_times and label_times of its Bookkeeping count all of them?"
        ) from error


def check_randomised_labels(trial: Trial) -> None:
    """Check that with randomised response, the active party trains on drawn labels and counts ε once."""
    protection = Plain(dp=DP(labels=RandomisedResponse(epsilon=2.0)))
    if not trial.exchanges_messages or not is_accepted(trial.algorithm, protection):
        return
    ran = _run_protected(trial, trial.job(protection))
    for table in trial.people().label_owners:
        spent = [one for one in ran.trained[table.name].spent if one.what == "labels"]
        if [one.times for one in spent] != [1] or not 0 < spent[0].epsilon_rdp <= 2.0 + 1e-6:
            raise CheckFailed(f"{table.name!r} counts {spent} for labels that are drawn once with ε = 2")


def check_further_protections(trial: Trial) -> None:
    """Check that it runs under each kind of differential privacy in `fits.dp`."""
    algorithm = trial.algorithm
    for kind in sorted(algorithm.fits.dp):
        for dp in KINDS[kind]:
            if not is_accepted(algorithm, Plain(dp=dp)):
                continue
            ran = _run_protected(trial, trial.job(Plain(dp=dp)))
            spent = [one for trained in ran.trained.values() for one in trained.spent]
            if not spent or any(one.epsilon_rdp > _EPSILON * (1 + 1e-6) for one in spent):
                raise CheckFailed(f"with {dp!r}, parties count {spent}; ε up to {_EPSILON:g} was asked for")


def check_loss(trial: Trial) -> None:
    """Check the sensitivity that its loss states: no other label of a row changes the row's gradient by more."""
    for classes in trial.class_counts:
        with roles_begun() as roles:
            trial.run(trial.job(epochs=max(1, trial.algorithm.least_epochs)), trial.people(classes=classes))
        for role in roles:
            if isinstance(role, ActiveRole) and role.loss.sensitivity is not None:
                _check_sensitivity(role, role.loss.sensitivity)


def _check_sensitivity(role: ActiveRole, stated: float) -> None:
    generator = torch.Generator().manual_seed(0)
    logits = 3 * torch.randn((_LOGITS, role.task.outputs), generator=generator, dtype=torch.float64)
    gradients = []
    for label in range(role.task.classes):
        at = logits.clone().requires_grad_()
        loss = role.loss(at, torch.full((_LOGITS,), label))
        if loss.shape != (_LOGITS,):
            raise CheckFailed(f"{type(role.loss).__name__} of {_LOGITS} rows has shape {tuple(loss.shape)}")
        (gradient,) = torch.autograd.grad(loss.sum(), at)
        gradients.append(gradient)
    moved = max(float((a - b).norm(dim=1).max()) for a, b in itertools.combinations(gradients, 2))
    if moved > stated * (1 + 1e-9):
        raise CheckFailed(
            f"{type(role.loss).__name__} states a sensitivity of {stated:.4g}, and another label moves the gradient of "
            f"a row by {moved:.4g}: noise would be too small; state the right one, or None"
        )
