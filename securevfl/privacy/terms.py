"""Check a job's terms against a party's policy before anything is sent, and refuse those that break it.

A party that refuses sends its peers one control message of step `REFUSED` with its name and the broken rule, and no
data.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from securevfl.errors import PolicyError
from securevfl.privacy.opened_values import describe_excess
from securevfl.privacy.policy import READABLE_KINDS, SCHEMES, SHARES, Policy, quote_names
from securevfl.transport import Guard, Kind, Message

__all__ = ["REFUSED", "Terms", "describe_broken_rule", "raise_refusal"]

REFUSED = "refused"
"""Protocol step of a refusal."""

_LONGEST = 500


@dataclass(frozen=True, kw_only=True)
class Terms:
    """What a job would do with one party's data, as far as is known before it begins.

    Attributes:
        protections: protections of the content that would be sent, by their names in job files; empty if no content is
            sent.
        key_bits: the Paillier modulus, 0 without.
        sends: kinds that the party would send.
        receives: kinds that the party would receive.
        opens: kinds that either side would decrypt: activations for z, gradients for the steps of bottoms with
            parameters.
        noised: kinds that would carry noise.
        epsilon: planned ε of what the party would release; infinite without noise, None if it releases nothing. If the
            number of releases depends on the rows, the smallest possible ε: the exact plan is checked against the
            policy before the first release.
        delta: δ with which that ε is counted.
        unbounded: what makes this ε infinite, with the cure; empty where the content itself would leave without noise.
        predictions: whether predictions of its rows would be opened beside that ε, which no noise covers.
        releases: what is released, in words.
        numbers: fewest numbers of one of its rows that the asker would get; None if they are not counted.
        columns: how many columns its table has; 0 if that is not known yet.
        asker: the organisation that gets them.
        simulated: whether one person sees all parties' data anyway: then the default bound of numbers refuses nothing,
            nor do the next two.
        few_rows: whether the job asks to train on shares with few rows.
        useless: whether a model on shares would answer without having proved useful.
        leaks: what others could read of its data.
        cure: how to prevent these leaks, in words.
        computing: parties that would receive secret shares of its data; empty without shares.
        pairwise: who would learn the pairwise intersection with it; empty for nobody.
    """

    protections: frozenset[str] = frozenset()
    key_bits: int = 0
    sends: frozenset[Kind] = frozenset()
    receives: frozenset[Kind] = frozenset()
    opens: frozenset[Kind] = frozenset()
    noised: frozenset[Kind] = frozenset()
    epsilon: float | None = None
    delta: float = 0.0
    unbounded: str = ""
    predictions: bool = False
    releases: str = "its content"
    numbers: int | None = 0
    columns: int = 0
    asker: str = ""
    simulated: bool = False
    few_rows: bool = False
    useless: bool = False
    leaks: tuple[str, ...] = ()
    cure: str = "another algorithm"
    pairwise: str = ""
    computing: tuple[str, ...] = ()


def describe_broken_rule(policy: Policy, terms: Terms, party: str) -> str:
    """Describe the first rule of `party`'s policy that these terms break, with the cure; empty if they break none."""
    readable = (terms.sends | terms.receives) & READABLE_KINDS if "plain" in terms.protections else frozenset()
    never = terms.sends & policy.forbidden
    bare = readable & policy.noised - terms.noised
    opened = terms.opens & policy.noised - terms.noised
    checks = (
        (bool(never), f"it would send messages of kind {_name_kinds(never)}, which the policy forbids"),
        (
            policy.sealed and bool(readable),
            f"{_name_kinds(readable, 's')} would be sent in the clear, but the policy demands them sealed; use "
            f"protection {quote_names(SCHEMES)}, and an algorithm that stays at the cut layer",
        ),
        (True, _about_protections(policy, terms)),
        (True, _about_computing(policy, terms)),
        (
            bool(bare),
            f"{_name_kinds(bare, 's')} would be sent without noise, but the policy demands differential privacy; add "
            "dp=… to the protection",
        ),
        (
            bool(opened),
            f"{_name_kinds(opened, 's')} would be decrypted without noise, but the policy demands differential "
            "privacy; add dp=… to the protection, which sealing does not replace",
        ),
        (terms.epsilon is not None, _about_epsilon(policy, terms)),
        (
            bool(terms.pairwise) and not policy.pairwise_intersections,
            f"{terms.pairwise!r} would learn the pairwise intersection with {party!r}, which the policy forbids; align "
            "without a label book, predict the rows of all parties alone, or set pairwise_intersections",
        ),
        (
            bool(terms.leaks) and not policy.leaks,
            f"the policy accepts no known leak, so the job needs {terms.cure}; by the threat model "
            f"{'; '.join(terms.leaks)}",
        ),
        (True, _about_results(policy, terms, party)),
        (
            terms.few_rows and not policy.few_rows and not terms.simulated,
            "the job may train on shares with fewer rows than 400, or validate on fewer than 200, and whoever knows "
            "that many rows of a column can train on it alone; leave few_rows out of the protection, or "
            f"{party!r} writes few_rows = true in its policy",
        ),
        (
            terms.useless and policy.useful != "off" and not terms.simulated,
            f"the model would answer without having proved that it predicts better with the columns of {party!r} than "
            'without (the job says useful = "off", or metrics = "none"): leave that out of the protection, or '
            f'{party!r} writes useful = "off" in its policy',
        ),
    )
    return next((rule for broken, rule in checks if broken and rule), "")


def _about_protections(policy: Policy, terms: Terms) -> str:
    for name in sorted(terms.protections):
        known = SCHEMES | {"plain", SHARES}
        if name not in known:
            return f"the policy does not know protection {name!r}; it knows {', '.join(sorted(known))}"
        if policy.protections is not None and name not in policy.protections:
            accepted = ", ".join(sorted(policy.protections)) or "nothing"
            return f"content would be protected by {name!r}, but the policy accepts {accepted}"
        if name == "paillier" and terms.key_bits < policy.paillier_bits:
            return (
                f"the job's Paillier key has {terms.key_bits} bits; the policy demands at least {policy.paillier_bits}"
            )
        if name in ("bfv", "ckks") and Guard(name, 1).security_bits < policy.min_security:
            security = Guard(name, 1).security_bits
            return f"{name.upper()} gives {security} bits of security; the policy demands {policy.min_security}"
    return ""


def _about_computing(policy: Policy, terms: Terms) -> str:
    if policy.computing is None or not terms.computing:
        return ""
    strangers = [name for name in terms.computing if name not in policy.computing]
    if not strangers:
        return ""
    return (
        f"its data would be secret-shared among {', '.join(terms.computing)}, any two of whom could read it "
        f"together, and the policy does not trust {' and '.join(strangers)} with shares: name other parties in "
        "the protection's computing"
    )


def _about_epsilon(policy: Policy, terms: Terms) -> str:
    if policy.max_epsilon is None or terms.epsilon is None:
        return ""
    if math.isinf(terms.epsilon) and terms.unbounded:
        return f"{terms.unbounded}; the policy allows ε = {policy.max_epsilon:.3g}"
    if math.isinf(terms.epsilon):
        return (
            f"{terms.releases} would be released without noise, which spends ε without bound; the policy allows "
            f"{policy.max_epsilon:.3g}: add dp=… to the protection"
        )
    try:
        policy.check_epsilon(terms.epsilon, terms.releases, terms.delta)
    except PolicyError as error:
        return str(error)
    if terms.predictions and policy.allowed_results is None:
        return (
            "ε covers the rows that train, and predictions of rows are opened without noise, counted by max_results "
            "and not by ε; the policy sets max_epsilon and leaves max_results 'unlimited': set max_results to a number"
        )
    return ""


def _about_results(policy: Policy, terms: Terms, party: str) -> str:
    allowed = policy.allowed_numbers(terms.columns)
    if allowed is None or (terms.simulated and not policy.writes_bound):
        return ""
    if terms.numbers is None:
        return (
            f"max_results: the algorithm does not count the numbers of a row that it opens, and {party!r} allows "
            f"{terms.asker!r} {allowed}: use one that counts them, for example splitnn, or write max_results = "
            f'"unlimited" in the policy of {party!r}'
        )
    if terms.numbers <= allowed:
        return ""
    return describe_excess(
        party,
        terms.asker,
        numbers=terms.numbers,
        had=0,
        allowed=allowed,
        written=policy.writes_bound,
        who="max_results: the job plans",
    )


def _name_kinds(kinds: Iterable[Kind], end: str = "") -> str:
    return " and ".join(sorted(kind.value + end for kind in kinds))


def raise_refusal(message: Message, peer: str) -> None:
    """Raise an error if `message` is a refusal.

    Raises:
        PolicyError: the message is a refusal; the error names its sender and the rule.
    """
    if message.kind is not Kind.CONTROL or message.what != REFUSED:
        return
    rule = str(message.meta.get("rule", ""))[:_LONGEST]
    # The rule is the peer's text: control characters could rewrite the reader's terminal.
    text = "".join(letter if letter.isprintable() else "?" for letter in rule)
    raise PolicyError(f"{peer!r} refuses the job: {text or 'no reason given'}")
