"""Algorithms that consist of others: sub-models train one after the other in one job, each as if it were alone.

Each has a context with its own seed and secret, derived from the party's by its name, so that sub-models differ and
each is reproducible. Links, ledger and clock are the party's, and checkpoints go into the job's. Only declared messages
of the sub-models are sent. One that exchanges nothing runs at the active party only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace

import numpy as np
import torch

from securevfl.party_context import Keeper, PartyContext, PartySecret, derive_seed
from securevfl.privacy import Journal, Reading
from securevfl.training.algorithm import Algorithm
from securevfl.training.plan import Plan
from securevfl.training.program import Program
from securevfl.training.rows import Epoch, Trained
from securevfl.training.setting import Setting
from securevfl.training.split import Split
from securevfl.training.state import State, as_dict, as_int, as_list, as_tensor
from securevfl.transport import PASSIVE

__all__ = ["SubModel", "SubModelKeeper", "SubModelResult", "submodel_context", "submodel_setting", "train_submodels"]


@dataclass(frozen=True, kw_only=True)
class SubModel:
    """One of the algorithms that a job consists of.

    Attributes:
        name: unique in the job, the same at all parties.
        algorithm: what it trains.
        split: which aligned rows train, validate and test; the same at all parties.
        talks: whether it exchanges messages; False: it runs at the active party only.
        epochs: most epochs of it; None for those of the plan.
    """

    name: str
    algorithm: Algorithm
    split: Split
    talks: bool
    epochs: int | None = None


@dataclass(frozen=True, kw_only=True)
class SubModelResult:
    """The result of a sub-model: the party's part of it and, at the active party, its scores.

    Attributes:
        name: of the member.
        model: see `Trained.model`.
        scores, valid_scores, alone_scores, alone_valid_scores: see `Trained`; (0, 0) where there are none.
        epochs: the history.
        readings: of the party's clock: before the first epoch, of each epoch, after the last.
        told: sentences for the report.
    """

    name: str
    model: State = field(repr=False)
    scores: np.ndarray = field(repr=False)
    valid_scores: np.ndarray = field(repr=False)
    alone_scores: np.ndarray = field(repr=False)
    alone_valid_scores: np.ndarray = field(repr=False)
    epochs: Sequence[Epoch]
    readings: Sequence[Reading]
    told: Sequence[str]

    @classmethod
    def from_trained(cls, name: str, trained: Trained) -> SubModelResult:
        """The result of a sub-model's program."""
        ends = [one for one in (trained.setup, trained.finish) if one is not None]
        return cls(
            name=name,
            model=trained.model,
            scores=trained.scores,
            valid_scores=trained.valid_scores,
            alone_scores=trained.alone_scores,
            alone_valid_scores=trained.alone_valid_scores,
            epochs=trained.epochs,
            readings=[*ends[:1], *trained.readings, *ends[1:]],
            told=[*trained.notes, *trained.warnings],
        )

    def get_state(self) -> State:
        """For a checkpoint."""
        kept: State = {"name": self.name, "model": self.model, "told": list(self.told)}
        scores = (self.scores, self.valid_scores, self.alone_scores, self.alone_valid_scores)
        kept["scores"] = [torch.from_numpy(one) for one in scores]
        kept["history"] = [[one.loss, one.valid] for one in self.epochs]
        kept["readings"] = [asdict(one) for one in self.readings]
        return kept

    @classmethod
    def from_state(cls, state: State) -> SubModelResult:
        """What `get_state` returned."""
        scores = [as_tensor(one).numpy() for one in as_list(state["scores"])]
        return cls(
            name=str(state["name"]),
            model=as_dict(state["model"]),
            scores=scores[0],
            valid_scores=scores[1],
            alone_scores=scores[2],
            alone_valid_scores=scores[3] if len(scores) > 3 else np.empty((0, 0)),  # older checkpoints lack it
            epochs=[Epoch(loss, valid) for loss, valid in as_list(state["history"])],
            readings=[Reading(**as_dict(one)) for one in as_list(state["readings"])],  # type: ignore[arg-type]
            told=[str(one) for one in as_list(state["told"])],
        )


class SubModelKeeper(Keeper):
    """A sub-model's checkpoints among those of the job: its epoch e is the job's ``number · span + e``. A checkpoint
    contains the results of the sub-models before it.

    Args:
        outer: the party's keeper.
        number: of the member, from 0.
        span: most epochs of a member.
        name: of the member, for its releases in the party's journal.
        secret: the party's, which a resumed run starts from.
        done: of the members before.
    """

    def __init__(
        self, outer: Keeper, number: int, span: int, name: str, secret: PartySecret, done: Sequence[SubModelResult]
    ) -> None:
        self._outer = outer
        self._first = number * span
        self._number = number
        self._secret = secret
        self._done = done
        self.steps = outer.steps
        self.scope = f"{outer.scope}{'/' if outer.scope else ''}{name}"

    @property
    def journal(self) -> Journal:
        """The party's."""
        return self._outer.journal

    def load(self) -> dict[str, object] | None:
        kept = self._outer.load()
        return as_dict(kept["state"]) if kept is not None and kept.get("member") == self._number else None

    def is_due(self, epoch: int) -> bool:
        return self._outer.is_due(self._first + epoch)

    def save(self, epoch: int, state: dict[str, object], *, step: int = 0) -> None:
        place = self._first + epoch
        kept: State = {"member": self._number, "state": state, "done": [one.get_state() for one in self._done]}
        kept |= {"secret": self._secret.to_hex, "epoch": place, "epochs": as_int(state["epochs"])}
        self._outer.save(place, kept | ({"step": step} if step else {}), step=step)


def submodel_context(
    site: PartyContext, name: str, *, keeper: Keeper | None = None, talks: bool = True
) -> PartyContext:
    """A sub-model's context at a party.

    Args:
        site: the party's.
        name: of the member.
        keeper: of its checkpoints; by default, none.
        talks: False for a sub-model without peers, at the active party only.
    """
    secret = PartySecret(int.from_bytes(site.secret.keystream(32, "member", name), "big"))
    own = replace(
        site, seed=derive_seed(site.seed, "member", name), secret=secret, keeper=keeper or Keeper(), notes=site.notes
    )
    return own if talks else replace(own, passive=(), links={})


def submodel_setting(setting: Setting, member: SubModel, site: PartyContext, plan: Plan) -> Setting:
    """A sub-model's setting: its context, plan, and split of the same rows."""
    table = replace(setting.table, split=member.split)
    if member.algorithm.view == "coded":
        table = table.name_numbers()
    if member.epochs is not None:
        plan = replace(plan, epochs=member.epochs)
    return replace(setting, site=site, plan=plan, table=table)


async def train_submodels(members: Sequence[SubModel], setting: Setting, plan: Plan) -> list[SubModelResult]:
    """Train all sub-models one after the other, except those that a checkpoint contains.

    Args:
        members: the same at all parties, in the same order.
        setting: of the job at this party.
        plan: of each sub-model.

    Returns:
        The result of each sub-model that ran here.
    """
    site = setting.site
    saved = site.keeper.load()
    site.keeper.journal.begin_attempt(site.keeper.start or 0)
    done = [] if saved is None else [SubModelResult.from_state(as_dict(one)) for one in as_list(saved["done"])]
    known = {one.name for one in done}
    span = max(plan.epochs, *(member.epochs or 0 for member in members))
    for number, member in enumerate(members):
        if member.name in known or (not member.talks and site.role == PASSIVE):
            continue
        shelf = SubModelKeeper(site.keeper, number, span, member.name, site.secret, done)
        place = submodel_context(site, member.name, keeper=shelf if member.talks else None, talks=member.talks)
        done = [*done, await _run_member(member, submodel_setting(setting, member, place, plan))]
    return done


async def _run_member(member: SubModel, setting: Setting) -> SubModelResult:
    program: Program = member.algorithm.program(setting.site, setting.plan, {setting.site.active: setting})
    return SubModelResult.from_trained(member.name, await program.run())


def sum_readings(readings: Sequence[Reading]) -> Reading:
    """The sum of a clock's readings."""
    sent: dict[str, int] = {}
    for one in readings:
        for peer, count in one.sent.items():
            sent[peer] = sent.get(peer, 0) + count
    return Reading(
        sum(one.compute for one in readings), sum(one.he for one in readings), sum(one.wait for one in readings), sent
    )
