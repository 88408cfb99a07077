"""Check a job against a party's policy file, and search for a change of the job that all parties' policies accept; a
party's own card: what the answers that its policy allows can give away of its table.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

from securevfl.agreement import PartyFile, read_party_file
from securevfl.agreement.result_books import open_book
from securevfl.cut import BFV, CKKS, Paillier
from securevfl.errors import InputError, PolicyError, UnknownNameError
from securevfl.jobfile.job_file import read_job_sections
from securevfl.jobfile.job_roster import policy_refusals, roster_of
from securevfl.jobfile.policy_file import read_policy, with_policies
from securevfl.jobfile.toml_text import raise_all, read_toml
from securevfl.party import Job, answer_price, planned_numbers, rule_against, with_default_protection
from securevfl.privacy import DP, Gaussian, Policy
from securevfl.report.record import OwnShareRecord
from securevfl.run.own_share import compute_own_share
from securevfl.run.roster import Roster

__all__ = ["PolicyCheck", "check_policy", "read_own_share"]

_EPSILONS = (8.0, 4.0, 2.0, 1.0, 0.5, 0.1)
"""Budgets that are tried, the largest that is accepted is proposed."""

_MOST = 3
"""Changes that are made at once, and proposals that are shown."""


@dataclass(frozen=True, kw_only=True)
class PolicyCheck:
    """Result of checking a job against a policy.

    Attributes:
        party: whose policy it is.
        refusals: what the policies of all parties refuse, this one's among them; empty where all accept the job.
        cures: changes of the job with each of which all policies accept it, the smallest first.
        results: how many numbers of each of the party's rows the job opens, and how many its policy allows, in words;
            empty for a party with labels.
    """

    party: str
    refusals: tuple[str, ...]
    cures: tuple[str, ...]
    results: str = ""

    @property
    def exit_code(self) -> int:
        """0 where all accept, 3 otherwise."""
        return PolicyError.exit_code if self.refusals else 0


def check_policy(job_file: str | Path, policy_file: str | Path, *, active: str = "") -> PolicyCheck:
    """Check a job file against a party's policy file; nothing runs.

    Args:
        job_file: TOML; its policies of other parties apply as well.
        policy_file: TOML, see `read_policy`.
        active: name of the active party, where no table has labels.

    Raises:
        InputError: a file with mistakes, or a party that the job does not name.
        PolicyError: a protection that the job's algorithm cannot have.
    """
    file = Path(job_file)
    party, _ = read_policy(policy_file)
    sections, _, mistakes = read_job_sections(file)
    roster, more = roster_of(sections, read_toml(file, "job", "examples/credit.toml"), active)
    raise_all(file, mistakes + more)
    if roster is None:
        raise InputError(f"{file} names no parties: give [data] or [[party]] sections")
    if party not in roster.names:
        raise UnknownNameError("party with a policy", party, roster.names)
    job = with_default_protection(sections.build_job().replace(accept_leak=True), roster.owners, roster.passive)
    job = job.replace(policies=with_policies(job.policies, [policy_file]))
    found = policy_refusals(job, roster, predicts=bool(active))
    numbers = [] if party in roster.owners else _refuse_numbers(job, party, roster, predicts=bool(active))
    return PolicyCheck(
        party=party,
        refusals=tuple(dict.fromkeys([*found, *numbers])),
        cures=tuple(_find_remedies(job, roster, predicts=bool(active))) if found else (),
        results="" if party in roster.owners else _describe_results(job, party, roster),
    )


def _refuse_numbers(job: Job, party: str, roster: Roster, *, predicts: bool) -> list[str]:
    """The refusal of more numbers of each row than the policy allows an asker, between organisations: the default
    bound holds there as a written one does."""
    alone = Policy(max_results=job.policy(party).max_results)
    bounded = job.replace(policies={party: alone})
    rules = (
        rule_against(bounded, party, active=owner, passive=roster.passive, predicts=predicts) for owner in roster.owners
    )
    return [f"{party!r} refuses the job: {rule}" for rule in rules if rule]


def _describe_results(job: Job, party: str, roster: Roster) -> str:
    """How many numbers of a row the job opens, and how many the policy allows."""
    planned, allowed = planned_numbers(job, party), job.policy(party).allowed_results
    answer = answer_price(job, [party], 0)
    bound = "any number" if allowed is None else f"{allowed} ever"
    if planned is None or answer is None:
        return f"Nobody counts the numbers of each row that it opens; {' and '.join(roster.owners)} may have {bound}."
    return (
        f"It opens at least {planned} number{'s' * (planned != 1)} of each row that it uses for "
        f"{' and '.join(roster.owners)}, who may have {bound}; each prediction later costs {answer} more."
    )


@dataclass(frozen=True)
class _Change:
    """One change of a job: its subject, its setting, and its description."""

    about: str
    value: Any
    text: str


def _list_changes(job: Job) -> Iterator[_Change]:
    """Possible changes, the cheapest first."""
    sealing = [kind for kind in (BFV(), CKKS(), Paillier()) if kind.name != job.protection.name]
    for kind in sealing:
        yield _Change("protection", kind, f'protection.name = "{kind.name}"')
    bottom = getattr(job.algorithm, "bottom", None)
    if isinstance(bottom, tuple):
        for layers in ((), (16,)):
            if layers != bottom:
                yield _Change("bottom", layers, f"algorithm.bottom = {list(layers)}")
    for about in ("features", "labels"):
        for epsilon in _EPSILONS:
            text = f'protection.dp.{about} = {{ mechanism = "gaussian", epsilon = {epsilon:g} }}'
            yield _Change(about, Gaussian(epsilon=epsilon), text)


def _apply_changes(job: Job, changes: Sequence[_Change]) -> Job | None:
    """The job with these changes; None if they exclude one another."""
    new = {change.about: change.value for change in changes}
    dp = job.protection.dp
    noise = {name: new.get(name, getattr(dp, name, None)) for name in ("features", "labels")}
    try:
        protection = new.get("protection", job.protection)
        if any(value is not None for value in noise.values()):
            protection = protection.replace(dp=DP(**noise))
        algorithm = job.algorithm.replace(bottom=new["bottom"]) if "bottom" in new else job.algorithm
        return job.replace(protection=protection, algorithm=algorithm)
    except (InputError, PolicyError):
        return None


def _find_remedies(job: Job, roster: Roster, *, predicts: bool) -> Iterator[str]:
    """The smallest changes that all policies accept, each in words; of the same kind of change, the mildest only."""
    all_changes = list(_list_changes(job))
    shown: list[frozenset[str]] = []
    for size in range(1, _MOST + 1):
        for changes in combinations(all_changes, size):
            about = frozenset(change.about for change in changes)
            if len(about) < size or any(earlier <= about for earlier in shown):
                continue
            changed = _apply_changes(job, changes)
            if changed is not None and not policy_refusals(changed, roster, predicts=predicts):
                shown.append(about)
                yield " and ".join(change.text for change in changes)
                if len(shown) == _MOST:
                    return


def read_own_share(
    party_file: str | Path, *, asker: str = "any one partner", numbers: int | None = None
) -> OwnShareRecord:
    """Compute a party's own card from its file. The table is read here; nothing is sent.

    Args:
        party_file: TOML; its policy bounds the numbers, and grants in its result book add to them.
        asker: who is answered: a party or its organisation. Of any other name, the partner that grants add most for.
        numbers: a bound to try in the place of the policy's and the grants'.

    Raises:
        InputError: a file with mistakes, a table that cannot be read, or a party without one.
    """
    own = read_party_file(party_file)
    if numbers is not None and numbers < 1:
        raise InputError(f"numbers is {numbers}; give 1 or more, or leave it out for the policy's own bound")
    table = own.read_table()
    if table is None:
        raise InputError(f"{own.path} names no table: only a party with one has something to give away")
    granted, used = _numbers_in_book(own, asker)
    bound = own.policy.allowed_numbers(len(table.feature_names))
    if numbers is not None or bound is None:
        return compute_own_share(table, asker, bound if numbers is None else numbers, used=used)
    return compute_own_share(table, asker, bound + granted, used=used, granted=granted)


def _numbers_in_book(own: PartyFile, asker: str) -> tuple[int, int | None]:
    """Numbers of each row that grants in force add for an asker, and how many it had of the row with most; None where
    nothing was counted. Of an asker that the book does not know, those of the partner that may have most."""
    if not own.results.exists():
        return 0, None
    book, now = open_book(own), time.time()
    known = {*book.askers, *book.grantees}
    one = own.organisations.get(asker, asker)
    names = [one] if one in known or asker in {*own.peers, *own.organisations} else sorted(known)
    granted = max((book.granted(name, now) for name in names), default=0)
    used = [int(book.count_people(name).max(initial=0)) for name in names if name in book.askers]
    return granted, max(used, default=None)
