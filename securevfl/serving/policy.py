"""A party's serving policy: how much of its rows may be scored, in units that protect individuals.

Each party has its own policy and checks every batch against it before anything of a row leaves. It shows nobody the
policy; a request that breaks a rule is answered with that rule.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from msgspec import Meta

from securevfl.config import Config
from securevfl.errors import PolicyError

__all__ = ["MOST_ROWS", "RULES", "SPENT", "Refusal", "ScoringRefused", "ServingPolicy"]

MOST_ROWS = 2048
"""Most rows of one batch, whatever a policy allows: parties score this many at a time."""

RULES = {
    "min_batch": False,
    "max_batch": False,
    "rows_per_minute": True,
    "rows_per_day": True,
    "scores_per_record": True,
    "epsilon_per_record": True,
    "releases": False,
    "max_results": False,
    "no_noise": False,
    "index": True,
    "other": False,
}
"""Each rule's name, and whether waiting helps: what passes with time is 429 over HTTP, the rest 403."""

SPENT = "max_results"
"""The rule by which a party answers nothing more about a row, ever: `Policy.max_results`."""

Count = Annotated[int, Meta(ge=1, le=1 << 31)]


class ServingPolicy(Config):
    """Limits of one party while a model is served. The party itself enforces each of them.

    Attributes:
        min_batch: fewest rows that may be asked for at once; with 1, a single person can be scored.
        max_batch: most rows at once.
        rows_per_minute: most rows in any 60 seconds, of whatever people.
        rows_per_day: most rows in a day, of whatever people.
        scores_per_record: how often one person may be scored in a day.
        epsilon_per_record: largest ε that one person's releases of a day may add up to. With a limit, content that
            leaves without noise is refused, because its ε is infinite.

    Days are those of UTC. Counts of the day are kept on the disk and survive a restart.
    """

    min_batch: Annotated[int, Meta(ge=1, le=MOST_ROWS)] = 1
    max_batch: Annotated[int, Meta(ge=1, le=MOST_ROWS)] = MOST_ROWS
    rows_per_minute: Count | None = None
    rows_per_day: Count | None = None
    scores_per_record: Count | None = None
    epsilon_per_record: Annotated[float, Meta(gt=0, description="leave it out for no bound")] | None = None

    @classmethod
    def section_path(cls) -> str:
        return "serving"

    def combine_strictest(self, other: ServingPolicy) -> ServingPolicy:
        """Both policies at once: on each point the stricter of the two."""

        def least_bound(name: str) -> Any:
            return min((bound for one in (self, other) if (bound := getattr(one, name)) is not None), default=None)

        bounds = ("max_batch", "rows_per_minute", "rows_per_day", "scores_per_record", "epsilon_per_record")
        return ServingPolicy(
            min_batch=max(self.min_batch, other.min_batch), **{name: least_bound(name) for name in bounds}
        )

    def problems(self) -> list[str]:
        found = super().problems()
        if self.min_batch > self.max_batch:
            found.append(f"min_batch is {self.min_batch} and max_batch {self.max_batch}: no batch would do")
        if self.rows_per_minute is not None and self.rows_per_minute < self.min_batch:
            found.append(
                f"rows_per_minute is {self.rows_per_minute} and min_batch {self.min_batch}: no batch would do; raise "
                "rows_per_minute"
            )
        return found


@dataclass(frozen=True, kw_only=True)
class Refusal:
    """Why a party will not score a batch.

    Attributes:
        party: whose rule it is.
        rule: its name, a key of `RULES`.
        words: with the value and the bound; no identifier, no value of a row.
        wait: seconds after which it may be asked again; 0 where waiting does not help.
        rows: places in the batch of the rows that it concerns; empty where it is the batch as a whole.
    """

    party: str
    rule: str
    words: str
    wait: float = 0.0
    rows: tuple[int, ...] = ()

    @property
    def is_temporary(self) -> bool:
        """Whether waiting lifts the refusal."""
        return RULES.get(self.rule, False)


class ScoringRefused(PolicyError):
    """A party's serving policy forbids a batch; nothing of a row was sent.

    Attributes:
        refusal: the rule.
    """

    def __init__(self, refusal: Refusal) -> None:
        self.refusal = refusal
        super().__init__(f"{refusal.party!r} does not score this batch ({refusal.rule}): {refusal.words}")
