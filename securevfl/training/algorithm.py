"""What a job trains: an algorithm's configuration, which makes each party's program; and the registry of algorithms.

Job files name algorithms, and names are entry points (group ``securevfl.algorithms``), so that an installed package can
add one. Python code needs no names: a job takes any `Algorithm`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any, ClassVar, Literal

from securevfl.config import Config
from securevfl.cut import CutUse, Protection
from securevfl.data import View
from securevfl.errors import InputError, PolicyError, UnknownNameError
from securevfl.privacy import DP, OTHER_OWNERS, Finding
from securevfl.site import Site
from securevfl.training import program as programs
from securevfl.training.halves import Architecture
from securevfl.training.objectives import LossOfNumber
from securevfl.training.on_shares import SharesActive, SharesPassive
from securevfl.training.program import ActiveProgram, PassiveProgram, Program
from securevfl.training.role import ActiveRole, PassiveRole, Setting
from securevfl.training.rows import Plan
from securevfl.training.shares_coordinator import SharesCoordinator
from securevfl.training.sharing import Sharing
from securevfl.transport import ACTIVE, COORDINATOR, PASSIVE, Exchange, PartyRole, Sight

__all__ = ["GROUP", "Algorithm", "Looks", "Subsets", "algorithms", "find_algorithm"]

GROUP = "securevfl.algorithms"
"""The group of entry points that algorithms register in."""

_DELTAS_ON_SHARES = (0.5, 10.0)

Subsets = Literal["all", "alone", "any"]
"""Whose columns a trained model scores rows from; see `Algorithm.subsets`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Looks:
    """How often training releases one row, at most.

    Attributes:
        features: its activations at a passive party; None where that depends on the rows.
        labels: the gradient of its label; likewise.
    """

    features: int | None = None
    labels: int | None = None


class Algorithm(Config):
    """What a job trains: the configuration, which makes each party's program. Subclass it; fields carry their bounds
    in their annotations.

    Attributes:
        name: as in job files.
        label: for tables and reports; `title` adds what distinguishes a configuration.
        uses_others: whether rows that are not aligned take part in training.
        uses_book: whether the labels that the active party knows of other parties' rows are used.
        subsets: which rows a trained model is fit to score: ``"all"``, those that every party holds; ``"alone"``, also
            those of the active party, by its own columns; ``"any"``, those of the active party with the columns of any
            set of the passive parties. Training has shown it such rows; see `ActiveRole.score_alone`.
        most_passive: largest number of passive parties, or None for no bound.
        most_classes: largest number of classes, or None for no bound.
        many_owners: whether several parties own labels, and a coordinator without data stands between them.
        asks_partner: whether passive parties take part in scoring a common row; False where the active party scores it
            from its own columns.
        reveals: what the algorithm hands to the peer in the clear by design; not empty: it cannot be sealed.
        on_shares: whether the algorithm is one split network, trained on the rows that its roles feed towards their
            targets, and nothing else: then it can be trained on shares as it is. Each class says it anew.
        protects: what of `DP` it can do beside noise on activations and gradients: ``"marvell"``, ``"joint"``,
            ``"model"``, ``"stop"``; each class says it anew.
        learns: what it can beside classes that count alike: ``"numbers"``, a numeric target; ``"labels"``, several of a
            row; ``"weights"``, of rows and classes; each class says it anew.
        counts_looks: whether a passive party counts all that it hands over of its rows, so that `Policy.max_looks` can
            bound it; each class says it anew.
        view: what it learns from: scaled numbers for a ``"network"``, or ``"coded"`` columns for trees; see
            `FeatureEncoder`.
    """

    name: ClassVar[str]
    label: ClassVar[str]
    uses_others: ClassVar[bool] = False
    uses_book: ClassVar[bool] = False
    subsets: ClassVar[Subsets] = "all"
    most_passive: ClassVar[int | None] = None
    most_classes: ClassVar[int | None] = None
    many_owners: ClassVar[bool] = False
    asks_partner: ClassVar[bool] = True
    reveals: ClassVar[str] = ""
    on_shares: ClassVar[bool] = False
    protects: ClassVar[frozenset[str]] = frozenset()
    counts_looks: ClassVar[bool] = False
    learns: ClassVar[frozenset[str]] = frozenset()
    view: ClassVar[View] = "network"

    @classmethod
    def known(cls) -> Mapping[str, type[Config]]:
        """All installed algorithms, or a class itself where it has a name."""
        return super().known() or {name: find_algorithm(name) for name in algorithms()}

    @abstractmethod
    def active(self, setting: Setting) -> ActiveRole:
        """The active party's role."""

    @abstractmethod
    def passive(self, setting: Setting) -> PassiveRole:
        """A passive party's role."""

    @property
    def title(self) -> str:
        """For tables and reports."""
        return self.label

    @property
    def least_epochs(self) -> int:
        """Fewest epochs in which the algorithm gets to its last stage."""
        return 1

    @property
    def trainable(self) -> bool:
        """Whether passive parties' bottoms have parameters."""
        return True

    @property
    def draws_secretly(self) -> bool:
        """Whether a party's secret hides features, so that it comes from the operating system under any protection."""
        return False

    @property
    def learns_alone(self) -> bool:
        """Whether passive parties learn from rows of their own that are not aligned and that the algorithm does not
        number: nobody but the party knows of it."""
        return False

    @property
    def cut(self) -> CutUse | None:
        """What the algorithm asks of the cut layer; None if it does not use one."""
        return None

    def exchanges(self, protection: Protection, passive: int) -> tuple[Exchange, ...]:
        """Every message of the algorithm's training: those of the cut, and what a subclass adds.

        Args:
            protection: of the job.
            passive: how many passive parties there are.
        """
        return () if self.cut is None else protection.exchanges(self.cut, passive)

    def declared(self, protection: Protection, passive: int) -> tuple[Exchange, ...]:
        """`exchanges`, and what the programs around the roles say."""
        return (*self.exchanges(protection, passive), *programs.EXCHANGES)

    def program(self, site: Site, plan: Plan, settings: Mapping[str, Setting]) -> Program:
        """What the party at `site` runs.

        Args:
            site: the party's place, linked with all its peers.
            plan: of the job, as all parties have it.
            settings: label owner → the party's setting in that owner's federation; one entry unless `many_owners`,
                and none at a coordinator.
        """
        setting = next(iter(settings.values()))
        if site.role == PASSIVE:
            return PassiveProgram(self.passive(setting))
        return ActiveProgram(self.active(setting))

    def architecture(self, outputs: int) -> Architecture:
        """Shapes and rates of the split network, of an algorithm that is one.

        Args:
            outputs: width of the logits.

        Raises:
            InputError: it is none.
        """
        raise InputError(f"{self.title} is no single split network")

    def under(self, protection: Protection, site: Site, plan: Plan, settings: Mapping[str, Setting]) -> Program:
        """What the party at `site` runs under a protection: `program`, or training on shares. Arguments as there."""
        if not protection.computing_parties(site.active, site.passive, site.coordinator):
            return self.program(site, plan, settings)
        sharing = Sharing(algorithm=self, protection=protection, site=site, plan=plan)
        if site.role == COORDINATOR:
            return SharesCoordinator(sharing)
        setting = next(iter(settings.values()))
        if site.role == PASSIVE:
            return SharesPassive(self.passive(setting), sharing)
        return SharesActive(self.active(setting), sharing)

    def scorer(self, site: Site, setting: Setting, model: Mapping[str, Any]) -> ActiveProgram | PassiveProgram:
        """What scores rows by a trained model at the party at `site`, before it has come back to it.

        Args:
            site: the party's place, linked with all its peers: one that computes without data, too.
            setting: the party's among those with data, with the rows to score.
            model: the party's part of the model.
        """
        protection = setting.protection
        if not protection.on_shares:
            mine = PassiveProgram(self.passive(setting)) if site.role == PASSIVE else None
            return mine or ActiveProgram(self.active(setting))
        sharing = Sharing(algorithm=self, protection=protection, site=site, plan=setting.plan, trains=False)
        if site.role == PASSIVE:
            return SharesPassive(self.passive(setting), sharing)
        return SharesActive(self.active(setting), sharing)

    def helper(self, site: Site, protection: Protection, plan: Plan) -> SharesCoordinator:
        """What takes part in scoring rows at a party without data, before it has come back to the model.

        Args:
            site: its place, linked with all parties.
            protection: of the job that trained the model.
            plan: of that job.

        Raises:
            InputError: a protection under which such a party has no part of a model.
        """
        if not protection.on_shares:
            raise InputError(f"under {protection.title} a party without data has no part of a model to predict with")
        return SharesCoordinator(Sharing(algorithm=self, protection=protection, site=site, plan=plan, trains=False))

    def check(self, protection: Protection) -> None:
        """Refuse a protection that this algorithm cannot have.

        Raises:
            PolicyError: it hands over by design what the protection would seal.
            InputError: a kind of differential privacy that it cannot have.
        """
        able = type(self).__dict__.get("protects", frozenset()) | ({"model"} if protection.on_shares else frozenset())
        for kind in sorted(_wanted(protection.dp) - able):
            raise InputError(
                f"{self.title} has no dp with {_KINDS[kind]}; leave it out, or use an algorithm that has it"
            )
        if protection.on_shares and not type(self).__dict__.get("on_shares", False):
            raise InputError(
                f"{self.title} is not one split network that is trained on the rows which its parties feed, and cannot "
                "be trained on shares: use splitnn, logistic_regression, zero_imputation, random_match, all_labels or "
                "entity_augmentation, or a protection of the cut ('bfv')"
            )
        dp = protection.dp
        if protection.on_shares and dp is not None:
            self._check_noise_on_shares(dp)
        if self.reveals and protection.sealed:
            raise PolicyError(
                f"{self.title} {self.reveals}, so {protection.name!r} cannot seal it: use protection "
                "'plain', with dp=sv.DP(features=sv.Gaussian()) for noise on what is handed over, or an algorithm that "
                "stays at the cut layer (splitnn, entity_augmentation, risa)"
            )

    def check_number(self, number: LossOfNumber, protection: Protection) -> None:
        """Refuse to learn a number where this algorithm, or the protection, is for classes.

        Args:
            number: how it would be learned.
            protection: of the job.

        Raises:
            InputError: says what to use.
        """
        if "numbers" not in type(self).__dict__.get("learns", frozenset()):
            able = sorted(name for name in algorithms() if "numbers" in find_algorithm(name).__dict__.get("learns", ()))
            raise InputError(
                f"{self.title} learns classes, and task is 'regression': use an algorithm that learns a number "
                f"({', '.join(able)}), or make classes of the label"
            )
        if protection.on_shares:
            _check_number_on_shares(number)
        dp = protection.dp
        if dp is None:
            return
        if dp.randomised is not None or dp.marvell is not None:
            kind = "a randomised response" if dp.randomised is not None else "'marvell'"
            raise InputError(
                f"dp.labels is {kind}, for classes; a numeric target takes sv.Gaussian(…) with target_range"
            )
        noisy = dp.gradients is not None or dp.model is not None
        if noisy and number.range is None:
            raise InputError(
                "noise on labels, or on the model, is sized by how far one row's target can move its gradient, and "
                "without a range nothing bounds that: the target's own mean and spread come from all rows' exact "
                "values. Say which targets count, known to all: target_range=(low, high) in the job"
            )

    def check_several(self, protection: Protection) -> None:
        """Refuse several labels of a row where this algorithm, or the protection, is for one.

        Args:
            protection: of the job.

        Raises:
            InputError: says what to use.
        """
        if "labels" not in type(self).__dict__.get("learns", frozenset()):
            able = sorted(name for name in algorithms() if "labels" in find_algorithm(name).__dict__.get("learns", ()))
            raise InputError(
                f"{self.title} learns one label, and task is 'multilabel': use an algorithm that learns several "
                f"({', '.join(able)}), or train one job for each label"
            )
        if protection.on_shares:
            raise InputError(
                "several labels cannot be trained on shares: the classes of a row exclude each other there. Name a "
                "protection of the cut ('bfv', 'ckks', 'paillier'), or train one job for each label"
            )
        dp = protection.dp
        if dp is not None and (dp.randomised is not None or dp.marvell is not None):
            kind = "a randomised response" if dp.randomised is not None else "'marvell'"
            raise InputError(f"dp.labels is {kind}, for classes; several labels take sv.Gaussian(…)")

    def check_weights(self, why: str, protection: Protection) -> None:
        """Refuse weights of classes or rows where nothing multiplies losses, or noise is sized without them.

        Args:
            why: what asks for weights, for the message.
            protection: of the job.

        Raises:
            InputError: says what to use.
        """
        if "weights" not in type(self).__dict__.get("learns", frozenset()):
            able = sorted(name for name in algorithms() if "weights" in find_algorithm(name).__dict__.get("learns", ()))
            raise InputError(
                f"{why}, and {self.title} counts all rows alike: use an algorithm that weighs rows ({', '.join(able)}) "
                "or leave weights out"
            )
        if protection.on_shares:
            raise InputError(
                f"{why}, and on shares all rows count alike: name a protection of the cut ('bfv', 'ckks', 'paillier'), "
                "or leave weights out"
            )
        dp = protection.dp
        if dp is not None and (dp.labels is not None or dp.model is not None):
            raise InputError(
                f"{why}, and the noise on labels, or on the model, is sized for rows that count alike: a weight "
                "follows from exact labels, or is a row's own, and ε would not cover it. Leave weights, or noise, out"
            )

    def called(self, number: LossOfNumber | None) -> str:
        """`title`, by what is learned.

        Args:
            number: how a number is; None for classes.
        """
        return self.title

    def _check_noise_on_shares(self, dp: DP) -> None:
        """Refuse noise that cannot be on shares.

        Raises:
            InputError: noise on what nobody sends, or on a model whose gradients nobody can bound.
        """
        if dp.model is None:
            if dp.randomised is None or dp.features:
                raise InputError(
                    "on shares nothing of a row is sent that could carry noise: leave dp out, draw labels by "
                    "dp=sv.DP(labels=sv.RandomisedResponse(…)), or add noise to the steps of the model by "
                    "dp=sv.DP(model=sv.Gaussian(…))"
                )
            return
        if self.uses_book or self.trainable or self.architecture(1).top is not None:
            raise InputError(
                f"{self.title} cannot train on shares with dp.model: noise is sized by the largest gradient of one "
                "row, which follows from the row's norm in a model of one layer. With hidden layers the bound has the "
                "norms of all weights above as factors, and on shares nobody can clip a gradient: use "
                "logistic_regression"
            )
        if self.learns_alone:
            raise InputError(
                "dp.model covers what is trained on shares, and not features that a party learned from its rows alone: "
                "leave learned out of sv.Frozen"
            )

    def check_subset(self, present: Sequence[str], everyone: Sequence[str]) -> None:
        """Refuse to score rows by the columns of the active party and of some passive ones only.

        Args:
            present: the passive parties whose columns there are.
            everyone: all passive parties that the model was trained with.

        Raises:
            InputError: training has not shown the model such rows; says what to do.
        """
        missing = [name for name in everyone if name not in present]
        if not missing or self.subsets == "any" or (self.subsets == "alone" and not present):
            return
        without = f"{self.title} is not fit for rows without the columns of {', '.join(missing)}"
        if self.subsets == "alone":
            raise InputError(
                f"{without} and with those of {', '.join(present)}: give the tables of all parties, or the active "
                "party's alone"
            )
        fit = [name for name in algorithms() if find_algorithm(name).subsets != "all"]
        raise InputError(
            f"{without}, for it was trained on rows of all parties: predict those, or train "
            f"an algorithm that is fit for the others, too ({', '.join(fit)})"
        )

    def findings(self, protection: Protection, passive: Sequence[str], active: str) -> list[Finding]:
        """Who learns what from the messages of this algorithm under `protection`, as its exchanges declare it.

        Args:
            protection: of the job.
            passive: names of the passive parties.
            active: name of the active party, or of one label owner.
        """
        names: dict[PartyRole, list[str]] = {ACTIVE: [active], PASSIVE: list(passive), COORDINATOR: ["coordinator"]}
        found = []
        declared = self.exchanges(protection, len(passive))
        for exchange in declared:
            if exchange.of_others:
                found += [
                    Finding(receiver, other, exchange.of_others, exchange.others_severity, exchange.others_sights)
                    for receiver in names[exchange.receiver]
                    for other in names[exchange.receiver]
                    if other != receiver
                ]
            if not exchange.reveals:
                continue
            among_owners = exchange.sender == exchange.receiver == ACTIVE
            receivers = [OTHER_OWNERS] if among_owners else names[exchange.receiver]
            found += [
                Finding(receiver, sender, exchange.reveals, exchange.severity, exchange.sights)
                for sender in names[exchange.sender]
                for receiver in receivers
                if sender != receiver
            ]
        if self.uses_book:
            known = Sight(of="rows", severity="note", through="the label book")
            whom, which = (
                "which of the people that it has labels for it knows",
                "for which of its rows labels are known",
            )
            found += [Finding(active, name, whom, "note", (known,)) for name in passive]
            found += [Finding(name, active, which, "note", (known,)) for name in passive]
        if not declared:
            found += [
                Finding(active, name, "which rows are common, and nothing from training", "ok") for name in passive
            ]
        return found

    def looks(self, protection: Protection, plan: Plan, passive: int) -> Looks:
        """How often training releases one row at most, as far as that is known before any rows are: noise whose
        multiplier the job gives is weighed by it. What depends on the rows is None, the default of both.

        Args:
            protection: of the job.
            plan: of the job.
            passive: how many passive parties there are.
        """
        return Looks()

    def values_opened(self, plan: Plan) -> int:
        """How many values training plans to give away of one row of a passive party that is looked at, at least, as far
        as that is known before any rows are; see `Policy.max_looks`.

        Args:
            plan: of the job.
        """
        return 0

    def fewest_looks(self, protection: Protection, plan: Plan, passive: int) -> Looks:
        """How often training plans to release one row at least, whatever rows there are. Policies are held against that
        before anything is sent, for noise whose multiplier the job gives, and against the exact plan once the rows are
        known.

        Args:
            protection: of the job.
            plan: of the job.
            passive: how many passive parties there are.
        """
        exact = plan.steps is None and not self.uses_book  # else passes in an epoch, or rows of a person, are not known
        dp = protection.dp

        def after(epochs: int) -> Looks:
            return self.looks(protection, replace(plan, epochs=epochs), passive)

        epochs = plan.epochs
        if dp is not None and dp.stops():
            low, high = 1, epochs if exact else 1
            while low < high:  # the last epoch that the budgets allow
                middle = (low + high + 1) // 2
                looks = after(middle)
                allowed = dp.affords(features=looks.features, labels=looks.labels)
                low, high = (middle, high) if allowed else (low, middle - 1)
            epochs = low
        most = after(epochs)
        features, labels = (1 if n is None else n if exact else min(n, epochs) for n in (most.features, most.labels))
        return Looks(features=features, labels=labels)

    def planned(self, protection: Protection, plan: Plan, passive: int) -> Protection:
        """The protection with the ε that `plan` spends in the place of noise multipliers: what findings are made from.

        Args:
            protection: of the job.
            plan: of the job.
            passive: how many passive parties there are.
        """
        dp = protection.dp
        if dp is None:
            return protection
        looks = self.looks(protection, plan, passive)
        return protection.replace(dp=dp.planned(features=looks.features, labels=looks.labels))

    def notes(self, protection: Protection) -> list[str]:
        """What a reader of the figures has to know."""
        return []

    def column_mistakes(self, columns: Mapping[str, Sequence[str]]) -> list[str]:
        """What settings name of parties' feature columns, `columns`, and is not there."""
        return []


_KINDS = {
    "model": "model=… (DP-SGD; only 'local' trains a model that a party has by itself, and logistic_regression on "
    "shares one that nobody has)",
    "marvell": "labels=sv.Marvell(…) (for gradients at the cut of two classes, whose labels are used nowhere else)",
    "stop": "on_budget='stop' (all parties have to find the same last epoch from what is public)",
    "joint": "features=sv.JointNoise(…) (noise inside the ciphertext, on the sum over the parties)",
}


def _wanted(dp: DP | None) -> set[str]:
    """What of `_KINDS` this asks for."""
    if dp is None:
        return set()
    stops = any(getattr(mechanism, "on_budget", "") == "stop" for mechanism in (dp.features, dp.labels, dp.model))
    asked = {"model": dp.model, "marvell": dp.marvell, "stop": stops or None, "joint": dp.joint}
    return {kind for kind, wanted in asked.items() if wanted is not None}


@cache
def algorithms() -> Mapping[str, EntryPoint]:
    """Name in job files → where the algorithm lives; nothing is imported yet.

    Raises:
        InputError: two installed packages give the same name to different algorithms.
    """
    found: dict[str, EntryPoint] = {}
    for entry in entry_points(group=GROUP):
        if found.setdefault(entry.name, entry).value != entry.value:
            raise InputError(
                f"two algorithms are called {entry.name!r}: {found[entry.name].value} and {entry.value}; uninstall one"
            )
    return dict(sorted(found.items()))


def _check_number_on_shares(number: LossOfNumber) -> None:
    """Refuse what the computing parties cannot learn a number by.

    Raises:
        InputError: another loss than Huber's, or a δ that numbers of 16 fractional bits are too coarse for.
    """
    if number.name != "huber":
        raise InputError(
            f"loss is {number.name!r}, and on shares a number is learned by the Huber loss, whose gradient is bounded "
            "whatever the weights are, so that no product wraps: take loss 'auto' (errors beyond 3 deviations count "
            "linearly there) or 'huber', or a protection of the cut ('bfv', 'ckks', 'paillier')"
        )
    low, high = _DELTAS_ON_SHARES
    if not low <= number.delta <= high:
        raise InputError(
            f"huber_delta is {number.delta:g}, and on shares {low:g} to {high:g} deviations are possible: outside, "
            "numbers with 16 fractional bits are too coarse"
        )


def find_algorithm(name: str) -> type[Algorithm]:
    """The algorithm of this name.

    Raises:
        UnknownNameError: no installed package has one.
        InputError: what is registered is no `Algorithm`, has another name, or cannot be imported.
    """
    known = algorithms()
    if name not in known:
        raise UnknownNameError("algorithm", name, known)
    try:
        kind = known[name].load()
    except (ImportError, AttributeError) as error:
        raise InputError(
            f"algorithm {name!r} is registered as {known[name].value} and does not load: {error}"
        ) from error
    if not isinstance(kind, type) or not issubclass(kind, Algorithm) or kind.name != name:
        raise InputError(
            f"algorithm {name!r} is registered as {known[name].value}, which is no Algorithm of that name: its class "
            "has name = " + repr(getattr(kind, "name", None))
        )
    return kind
