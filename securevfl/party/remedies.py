"""Changes that would make a job acceptable to a party that accepts no known leak; each was tried on the job.

Each candidate changes the job in one way and counts only if the changed job's own findings contain no leak about the
party. So a sealed job is never advised to seal its cut.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from securevfl.align import Align
from securevfl.cut import BFV
from securevfl.errors import SecureVFLError
from securevfl.party.job import Job
from securevfl.privacy import DP, Gaussian
from securevfl.privacy.mechanisms import Mechanism
from securevfl.privacy.severity import auc_of_mu, largest_epsilon, mu_of
from securevfl.training import Algorithm, find_algorithm

__all__ = ["find_remedies"]

_MOST = 2
"""How many changes an error names: the smallest first."""


def find_remedies(job: Job, party: str, *, active: str, passive: Sequence[str]) -> str:
    """Changes of the job after which nobody has a *leak* about this party's data, in words.

    Args:
        job: with a leak.
        party: whose data it is about.
        active: name of the active party, or of the label owner.
        passive: names of the passive parties.
    """
    found: dict[Job, str] = {}
    for words, change in _candidate_changes(party == active):
        try:
            changed = change(job)
        except SecureVFLError:
            continue  # what this algorithm or protection cannot have
        if changed not in (job, *found) and not _findings_against(changed, party, active, passive):
            found[changed] = words
        if len(found) == _MOST:
            break
    if not found:
        return "another algorithm, for no noise and no seal that this one can have prevents it"
    return ", or ".join(found.values())


def _findings_against(job: Job, party: str, active: str, passive: Sequence[str]) -> bool:
    found = job.findings(passive, active)
    return any(f.about == party and f.severity == "leak" for f in found)


def _candidate_changes(labels: bool) -> Iterator[tuple[str, Callable[[Job], Job]]]:
    """Candidate changes with their descriptions, the smallest first."""
    gaussian = Gaussian(epsilon=largest_epsilon(lambda epsilon: auc_of_mu(mu_of(epsilon, Gaussian().delta))))
    what = "labels" if labels else "features"
    noise = f"noise on {what}, dp=sv.DP({what}=sv.Gaussian(epsilon={gaussian.epsilon:g})) or less"
    yield "protocol 'dh' in [align] and identifiers in the place of [link]", _aligned_privately
    if not labels:
        yield noise, lambda job: _add_noise(job, what, gaussian)
        yield (
            f"{noise}, and protocol 'dh' in [align] and identifiers in the place of [link]",
            lambda job: _aligned_privately(_add_noise(job, what, gaussian)),
        )
        return
    yield "protection 'bfv'", _seal_cut
    yield "bottoms without parameters, bottom=()", _without_bottoms
    yield "protection 'bfv' over bottoms without parameters, bottom=()", lambda job: _without_bottoms(_seal_cut(job))
    yield noise, lambda job: _add_noise(job, what, gaussian)
    each = f"sv.Gaussian(epsilon={gaussian.epsilon:g})"
    both = f"noise on labels and features, dp=sv.DP(labels={each}, features={each})"
    yield f"{both} or less", lambda job: _add_noise(_add_noise(job, "features", gaussian), what, gaussian)
    yield (
        "algorithm 'splitnn'",
        lambda job: job.replace(algorithm=_build_splitnn()) if job.protection.is_sealed else job,
    )
    yield "algorithm 'splitnn' under protection 'bfv'", _sealed_splitnn


def _sealed_splitnn(job: Job) -> Job:
    return job if job.protection.is_sealed else _seal_cut(job.replace(algorithm=_build_splitnn()))


def _build_splitnn() -> Algorithm:
    return find_algorithm("splitnn")()


def _add_noise(job: Job, what: str, mechanism: Mechanism) -> Job:
    """Add a mechanism on labels or on features to the job."""
    had = job.protection.dp
    dp = DP.from_values({what: mechanism.describe()}) if had is None else had.replace(**{what: mechanism})
    return job.replace(protection=job.protection.replace(dp=dp))


def _aligned_privately(job: Job) -> Job:
    return job.replace(align=Align(), link=None)


def _seal_cut(job: Job) -> Job:
    if job.protection.is_sealed:
        return job
    return job.replace(protection=BFV(dp=job.protection.dp))


def _without_bottoms(job: Job) -> Job:
    if not hasattr(job.algorithm, "bottom"):
        return job
    return job.replace(algorithm=job.algorithm.replace(bottom=()))
