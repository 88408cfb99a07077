"""Which of several trained candidates is kept, and how the parties of an agreement train and choose them.

The candidates train one after the other over the same links, on the same rows. The active party compares them by a
metric of the validation rows and tells the others only which one it keeps. Only that one is tested: of the others no
test row is scored.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from securevfl.errors import InputError, PolicyError, ProtocolError
from securevfl.party.candidates import KEPT
from securevfl.party.job import Job
from securevfl.party_context import PartyContext
from securevfl.privacy import Link, Policy, fan_out
from securevfl.training import Trained
from securevfl.training.program import StagedProgram
from securevfl.training.rows import ChosenModel, TriedModel
from securevfl.transport import ACTIVE, Kind

__all__ = [
    "Candidate",
    "Choice",
    "agree_choice",
    "find_common_metric",
    "kept_metrics",
    "leave_epsilon",
    "rank_candidates",
]

_PREFERRED = ("auc", "log_loss", "accuracy")
_PREFERRED_MANY = ("log_loss", "accuracy", "auc")
_PREFERRED_NUMBER = ("r2", "rmse", "huber")
_SMALLER_IS_BETTER = frozenset({"log_loss", "rmse", "huber", "deviance"})
_ROUNDING = 1e-5
"""How far a candidate's ε may lie beside its share by the accountants' rounding alone."""


@dataclass
class Candidate:
    """One candidate at one party.

    Attributes:
        job: it alone, with its share of ε.
        program: that trains it, and tests it if it is kept.
        notes: for the report, if it is kept.
    """

    job: Job
    program: StagedProgram
    notes: list[str] = field(default_factory=list)

    @property
    def trained(self) -> Trained:
        """Its program's result so far."""
        return self.program.trained

    async def train(self) -> None:
        """Train it to the end, or take it from its last checkpoint."""
        await self.program.train()

    def figures(self, valid: float | None) -> TriedModel:
        """Its entry in the report.

        Args:
            valid: its metric of the validation rows; None where this party does not know it.
        """
        readings = self.trained.readings
        return TriedModel(
            title=self.job.algorithm.title,
            valid=valid,
            epochs=len(readings),
            best_epoch=self.trained.best_epoch,
            seconds=sum(one.compute + one.he + one.wait for one in readings),
            bytes=sum(sum(one.sent.values()) for one in readings),
        )


@dataclass(frozen=True)
class Choice:
    """The choice, as one party knows it.

    Attributes:
        kept: the name of the candidate that is kept.
        candidates: name → each of them, in the order of the agreement.
        metric: at the active party: of the validation rows, by which they were compared.
        valid: at the active party: name → that metric, the best first.
        left_out: name → why, of those whose training diverged.
    """

    kept: str
    candidates: Mapping[str, Candidate] = field(repr=False)
    metric: str = ""
    valid: Mapping[str, float] = field(default_factory=dict)
    left_out: Mapping[str, str] = field(default_factory=dict)

    @property
    def summary(self) -> ChosenModel:
        """The choice for the report, with the name by which the kept one's job is found."""
        order = [*self.valid, *(name for name in self.candidates if name not in self.valid)]
        tried = {name: self.candidates[name].figures(self.valid.get(name)) for name in order}
        return ChosenModel(kept=self.kept, metric=self.metric, tried=tried, left_out=self.left_out)


def leave_epsilon(policy: Policy, shares: Sequence[float], spent: Sequence[float]) -> Policy:
    """The policy that binds the next candidate: it has what the others leave of the party's ε. An interrupted attempt
    may have cost one of them more than its share.

    Args:
        policy: the party's own.
        shares: ε that each candidate plans, in their order; infinite where consent has judged it.
        spent: ε of those before it, with what interrupted attempts may have released.

    Raises:
        PolicyError: they leave less than its share.
    """
    if policy.max_epsilon is None or np.inf in shares:
        return policy
    number = len(spent)
    before = sum(one if one > share * (1 + _ROUNDING) else share for one, share in zip(spent, shares, strict=False))
    left = policy.max_epsilon - before - sum(shares[number + 1 :])
    if left < shares[number] * (1 - _ROUNDING):
        raise PolicyError(
            f"the candidates before may have spent ε = {before:.3g}, with what interrupted attempts released, and "
            f"those to come plan {sum(shares[number:]):.3g}; the policy allows {policy.max_epsilon:.3g}: to resume, it "
            "must allow that as well (a new run spends more)"
        )
    return policy.replace(max_epsilon=max(left, shares[number]))


async def agree_choice(
    site: PartyContext,
    candidates: Mapping[str, Candidate],
    *,
    classes: int,
    links: Sequence[Link],
    left_out: Mapping[str, str],
) -> Choice:
    """Choose at the active party, and send the choice to the others.

    Args:
        site: the party's context.
        candidates: name → each, trained.
        classes: of the label; 1 for a number.
        links: to the others that train.
        left_out: name → why, of candidates whose training diverged.

    Raises:
        InputError: the candidates have no metric of the validation rows in common.
        ProtocolError: the active party keeps an algorithm that the agreement does not name, or one that diverged as
            another party told this one alone.
    """
    if site.role == ACTIVE:
        choice = replace(_choose_best(candidates, classes), left_out=left_out)
        await fan_out(links, lambda link: link.send(Kind.CONTROL, KEPT, meta={"kept": choice.kept}))
        return choice
    told = (await site.links[site.active].receive(Kind.CONTROL, KEPT)).meta.get("kept")
    if isinstance(told, str) and told in left_out:
        raise ProtocolError(
            f"the active party keeps {told!r}, and here {left_out[told]}: a party told its peers different outcomes; "
            "compare the 'train/outcome' messages in their ledgers"
        )
    if not isinstance(told, str) or told not in candidates:
        raise ProtocolError(
            f"{site.active!r} keeps {told!r:.40}, and the agreement names {', '.join(candidates)}", party=site.active
        )
    return Choice(told, candidates, left_out=left_out)


def _choose_best(candidates: Mapping[str, Candidate], classes: int) -> Choice:
    figures = {name: kept_metrics(one.trained) for name, one in candidates.items()}
    number = next(iter(candidates.values())).job.number_loss is not None
    metric = find_common_metric(figures, classes, number=number)
    ranked = rank_candidates(metric, figures)
    return Choice(ranked[0], candidates, metric, {name: figures[name][metric] for name in ranked})


def kept_metrics(trained: Trained) -> Mapping[str, float]:
    """The validation metrics of the epoch that a training keeps; empty where none was validated."""
    if not trained.epochs:
        return {}
    return trained.epochs[trained.best_epoch - 1 if trained.best_epoch else -1].valid


def find_common_metric(figures: Mapping[str, Mapping[str, float]], classes: int, *, number: bool) -> str:
    """The metric of the validation rows by which candidates are compared: the AUC of two classes, the log-loss of more,
    R² of a number; or the next best that all of them have.

    Args:
        figures: candidate → its metrics.
        classes: of the label.
        number: whether the label is a number.

    Raises:
        InputError: they have none in common.
    """
    names: Sequence[str] = _PREFERRED_NUMBER if number else _PREFERRED if classes == 2 else _PREFERRED_MANY
    for name in names:
        if all(np.isfinite(metrics.get(name, np.nan)) for metrics in figures.values()):
            return name
    raise InputError(
        "algorithm is 'auto', and the candidates have no metric of the validation rows in common: give more rows "
        "that validate (valid = …), or name one algorithm"
    )


def rank_candidates(metric: str, figures: Mapping[str, Mapping[str, float]]) -> list[str]:
    """The candidates by a metric, the best first; of equal ones, the first named."""
    sign = -1 if metric in _SMALLER_IS_BETTER else 1
    return sorted(figures, key=lambda name: sign * figures[name][metric], reverse=True)
