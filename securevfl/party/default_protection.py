"""The protection of a job that names none: a default must not leak features.

- Even in the clear no value would be disclosed, or there is nobody to disclose it to: `Plain`.
- Three parties or more, and an algorithm that can train on shares: protection ``"shares"``.
- Two parties and nobody else, and a model of one layer: ``"shares"`` of these two.
- Otherwise the job is refused. The error lists who would read what, and how to accept it with ``accept_leak``.

For other models, two parties get a refusal rather than frozen bottoms. These hide labels, but they hide features only
while fewer values of a row are opened than it has columns. A default job opens 16 values of a row 10 times; tables have
tens of columns.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from securevfl.cut import Auto, Plain, Protection, Unnamed, find_protection
from securevfl.errors import InputError, PolicyError
from securevfl.party.candidates import expand_candidates, possible_candidates
from securevfl.party.eligibility import wrong_parties
from securevfl.party.job import Job
from securevfl.privacy import DP, Finding

__all__ = ["choose_protection", "possible_defaults", "refuse_unnamed", "with_default_protection"]

_SEALED = ("bfv", "paillier")
"""Protections that encrypt what crosses, in the order in which a refusal suggests one."""


def with_default_protection(job: Job, owners: Sequence[str], passive: Sequence[str], coordinator: str = "") -> Job:
    """The job with its protection, or the default for these parties if it names none.

    Args:
        job: with or without a protection.
        owners: names of the label owners.
        passive: names of the passive parties.
        coordinator: name of a coordinator without data; empty if there is none.

    Raises:
        PolicyError: the job names no protection, every default leaks, and it does not accept that.
    """
    if isinstance(job.protection, Auto):
        return job.replace(protection=choose_protection(job, owners, passive, coordinator)[0])
    if not isinstance(job.protection, Unnamed):
        return job
    plain = job.replace(protection=Plain())
    leaks = [f for owner in owners for f in _leaking_findings(plain, passive, owner)] if passive else []
    if not leaks:
        return plain
    two = len(owners) == len(passive) == 1 and not coordinator
    shares, why_not = _on_shares(job, owners, passive, coordinator, _protection_by_shares(two=two))
    if shares is not None:
        return shares
    if job.accept_leak:
        return plain
    raise PolicyError(_compose_refusal(leaks, why_not, _list_choices(job, owners, passive)))


def choose_protection(
    job: Job, owners: Sequence[str], passive: Sequence[str], coordinator: str = ""
) -> tuple[Protection, str]:
    """What `Auto` chooses where it offers shares, and the reason as text; other protections unchanged. Arguments as for
    `settled`.
    """
    kind = job.protection
    if not isinstance(kind, Auto) or not passive:
        return kind, ""
    shares, _ = _on_shares(job, owners, passive, coordinator, _protection_by_shares(dp=kind.dp))
    return kind.choose(job.batch_size, on_shares=shares is not None)


def possible_defaults(job: Job) -> Iterator[Job]:
    """All results that `with_default_protection`, and then a choice among algorithms, can give for a job, whatever the
    parties: to find out which of them a saved model belongs to.
    """
    for one in _possible_protections(job):
        yield from possible_candidates(one) if one.algorithm.chooses else (one,)


def _possible_protections(job: Job) -> Iterator[Job]:
    if isinstance(job.protection, Auto):
        for on_shares in (True, False):
            yield job.replace(protection=job.protection.choose(job.batch_size, on_shares=on_shares)[0])
        return
    if not isinstance(job.protection, Unnamed):
        yield job
        return
    yield job.replace(protection=Plain())
    for two in (False, True):
        if not _why_refused(job, _protection_by_shares(two=two)):
            yield job.replace(protection=_protection_by_shares(two=two))


def refuse_unnamed(job: Job, passive: Sequence[str]) -> None:
    """Keep a job without a protection from training with somebody.

    Raises:
        PolicyError: nothing has settled its protection.
    """
    if passive and isinstance(job.protection, Unnamed):
        raise PolicyError("the job names no protection and has no default yet: give it one, for example sv.Shares()")


def _protection_by_shares(dp: DP | None = None, *, two: bool = False) -> Protection:
    """Training on shares, of three parties or of two, which nothing here imports."""
    return find_protection("shares")(dp=dp, **({"computing": 2} if two else {}))


def _leaking_findings(job: Job, passive: Sequence[str], owner: str) -> list[Finding]:
    return [f for f in job.algorithm.findings(job.protection, passive, owner) if f.severity == "leak"]


def _why_refused(job: Job, protection: Protection) -> str:
    """Why the algorithm cannot have this protection; empty if it can."""
    try:
        job.replace(protection=protection)
    except (PolicyError, InputError) as error:
        return str(error)
    return ""


def _on_shares(
    job: Job, owners: Sequence[str], passive: Sequence[str], coordinator: str, shares: Protection
) -> tuple[Job | None, str]:
    """The job on shares, or the reason why shares are impossible."""
    if why := _why_refused(job, shares):
        return None, why
    try:
        shares.computing_parties(owners[0], sorted(passive), coordinator)
    except InputError as error:
        return None, str(error)
    found = _without_leaking_candidates(job.replace(protection=shares), passive, owners[0])
    training = _leaks_of_training(found, passive, owners[0])
    if training:
        return None, f"on shares {training[0].party!r} would still read, in training, {training[0].learns}"
    return found, ""


def _leaks_of_training(job: Job, passive: Sequence[str], owner: str) -> list[Finding]:
    """Leaks beside what any model answers."""
    return [f for f in _leaking_findings(job, passive, owner) if not all(sight.result for sight in f.sights)]


def _without_leaking_candidates(job: Job, passive: Sequence[str], owner: str) -> Job:
    """A choice among algorithms without those that leak in training, where others are left: no default leaks."""
    if not job.algorithm.chooses:
        return job
    tried = expand_candidates(job).jobs
    names = tuple(name for name, one in tried.items() if not _leaks_of_training(one, passive, owner))
    if not names or names == tuple(one.name for one in job.algorithm.candidates_under(job.protection)):
        return job
    return job.replace(algorithm=job.algorithm.replace(methods=names))


def _list_choices(job: Job, owners: Sequence[str], passive: Sequence[str]) -> list[str]:
    """Protections that this job can name, in words: none that would be refused for it."""
    found = []
    shares = _protection_by_shares()
    if len(passive) == 1 and not _why_refused(job, shares):
        found.append("'shares' with three computing parties, of which one may be a coordinator without data")
    for name in _SEALED:
        sealed = find_protection(name)()
        if not _why_refused(job, sealed) and not wrong_parties(job.algorithm, owners, passive, sealed):
            found.append(f"{name!r} (its report lists what it discloses)")
            break
    return found


def _compose_refusal(leaks: Sequence[Finding], why_not: str, choices: Sequence[str]) -> str:
    """Compose the refusal: who would read what, and what to do about it."""
    told: dict[str, str] = {}
    for finding in leaks:
        for sight in finding.sights:
            if sight.severity == "leak" and sight.of != "rows":
                told.setdefault(
                    sight.of, f"{finding.party!r} reads {sight.of} of {finding.about!r} from {sight.through}"
                )
        if not finding.sights:
            told.setdefault("data", f"{finding.party!r} learns of {finding.about!r} {finding.learns}")
    kinds = " and ".join(sorted(told)) or "data"
    cure = f"Name a protection, for example {', or '.join(choices)}; or accept" if choices else "Accept"
    return (
        f"the job names no protection, and {kinds} leak: {'; '.join(told.values())}. By default a job trains "
        f"on secret shares, but here it cannot: {why_not}. {cure} the leak: --accept-leak, accept_leak=True, in a job "
        "file accept_leak = true under [job]"
    )
