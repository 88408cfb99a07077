"""An algorithm's configuration, which makes each party's program. It is plain data: the methods that make something
import what computes.

Job files name algorithms; in Python a job takes any `Algorithm`, registered or not.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

from securevfl.config import Config
from securevfl.cut import Protection
from securevfl.data import View
from securevfl.errors import InputError
from securevfl.privacy import OTHER_OWNERS, Finding
from securevfl.registry import FoundByName
from securevfl.training.abilities import Abilities, Subsets
from securevfl.training.objectives import LossOfNumber
from securevfl.training.plan import EXCHANGES, Budget, Plan, network_budget
from securevfl.training.registry import load_registered, registered_algorithms, selectable_algorithms
from securevfl.transport import ACTIVE, COORDINATOR, PASSIVE, Exchange, PartyRole, Sight

if TYPE_CHECKING:
    import numpy as np

    from securevfl.data.column_terms import ColumnTerms
    from securevfl.export import ExportedModel, PartSource
    from securevfl.party_context import PartyContext
    from securevfl.training.active_program import ActiveProgram
    from securevfl.training.active_role import ActiveRole
    from securevfl.training.passive_program import PassiveProgram
    from securevfl.training.passive_role import PassiveRole
    from securevfl.training.program import Program
    from securevfl.training.setting import Setting

__all__ = ["Algorithm", "ReleaseCounts", "Subsets", "find_algorithm", "registered_algorithms"]


@dataclass(frozen=True, kw_only=True, slots=True)
class ReleaseCounts:
    """How often training releases one row: bounds.

    Attributes:
        features: its activations at a passive party; None if that depends on the rows.
        labels: the gradient of its label; likewise.
    """

    features: int | None = None
    labels: int | None = None


class Algorithm(Abilities):
    """The configuration that a job trains. It makes each party's program.

    Subclass it; fields carry their bounds in their annotations. `Abilities` has what it is fit for.

    Attributes:
        uses_others: whether rows that are not aligned also train.
        most_passive: largest number of passive parties, or None for no bound.
        most_classes: largest number of classes, or None for no bound.
        many_owners: whether several parties own labels, with a coordinator without data between them.
        asks_partner: whether passive parties take part in scoring a common row; False where the active party scores it
            from its own columns.
        chooses_by_loss: whether the loss of the validation rows chooses the best epoch even where the AUC would: one
            tree can rank few rows well by chance, while all their probabilities are still near the base rate.
        chooses: whether it is a choice among algorithms; see `AutoAlgorithm`.
        describes: whether it computes statistics of columns and trains no model.
        view: the columns it takes: scaled numbers for a ``"network"``, or ``"coded"`` ones for trees; see
            `FeatureEncoder`.
    """

    uses_others: ClassVar[bool] = False
    most_passive: ClassVar[int | None] = None
    most_classes: ClassVar[int | None] = None
    many_owners: ClassVar[bool] = False
    asks_partner: ClassVar[bool] = True
    chooses_by_loss: ClassVar[bool] = False
    chooses: ClassVar[bool] = False
    describes: ClassVar[bool] = False
    view: ClassVar[View] = "network"

    @classmethod
    def known_types(cls) -> Mapping[str, type[Config]]:
        """All installed algorithms, each imported when it is asked for; or a class itself where it has a name."""
        return super().known_types() or FoundByName(selectable_algorithms(), find_algorithm)

    @abstractmethod
    def active(self, setting: Setting) -> ActiveRole:
        """The active party's role."""

    @abstractmethod
    def passive(self, setting: Setting) -> PassiveRole:
        """A passive party's role."""

    @property
    def least_epochs(self) -> int:
        """Fewest epochs that reach the algorithm's last stage. Training does not stop early before them."""
        return 1

    def fit_budget(self, rows: int) -> Budget:
        """How long to train on so many rows, as `securevfl init` drafts it; jobs state their own budget."""
        return network_budget(rows)

    def candidates_under(self, protection: Protection) -> Sequence[Algorithm]:
        """The algorithms that are tried in this one's place; empty for one that trains. See `AutoAlgorithm`.

        Args:
            protection: of the job.
        """
        return ()

    @property
    def draws_secretly(self) -> bool:
        """Whether a party's secret hides features. It then comes from the operating system under any protection."""
        return False

    def exchanges(self, protection: Protection, passive: int) -> tuple[Exchange, ...]:
        """Every message of training: those of the cut, and those that a subclass adds.

        Args:
            protection: of the job.
            passive: how many passive parties there are.
        """
        return () if self.cut is None else protection.exchanges(self.cut, passive)

    def all_exchanges(self, protection: Protection, passive: int) -> tuple[Exchange, ...]:
        """`exchanges`, and the messages of the programs around the roles."""
        return (*self.exchanges(protection, passive), *EXCHANGES)

    def program(self, site: PartyContext, plan: Plan, settings: Mapping[str, Setting]) -> Program:
        """The program of the party at `site`. A protection that trains the model itself makes its own programs: jobs
        call `Protection.program`.

        Args:
            site: the party's place, linked with all its peers.
            plan: of the job, as all parties have it.
            settings: label owner → the party's setting in that owner's federation; one entry unless `many_owners`,
                and none at a coordinator.
        """
        from securevfl.training.active_program import ActiveProgram
        from securevfl.training.passive_program import PassiveProgram

        setting = next(iter(settings.values()))
        if site.role == PASSIVE:
            return PassiveProgram(self.passive(setting))
        return ActiveProgram(self.active(setting))

    def scorer(self, site: PartyContext, setting: Setting, model: Mapping[str, Any]) -> ActiveProgram | PassiveProgram:
        """The program that scores rows at the party at `site`, with no model loaded yet.

        Args:
            site: the party's place, linked with all its peers, also with those that compute without data.
            setting: the party's, with the rows to score.
            model: the party's part of the model.
        """
        from securevfl.training.active_program import ActiveProgram
        from securevfl.training.passive_program import PassiveProgram

        if site.role == PASSIVE:
            return PassiveProgram(self.passive(setting))
        return ActiveProgram(self.active(setting))

    def export_model(self, source: PartSource) -> ExportedModel:
        """One party's part of a trained model for another scoring engine; a class that has one says so in its `fits`.

        Args:
            source: the part.

        Raises:
            InputError: the part is not in this party's hands under the job's protection, or has no exported form.
        """
        raise InputError(f"{self.title} has no exported form")

    def title_for(self, number: LossOfNumber | None) -> str:
        """`title`, depending on the target.

        Args:
            number: how a numeric target is learned; None for classes.
        """
        return self.title

    def findings(self, protection: Protection, passive: Sequence[str], active: str) -> list[Finding]:
        """Who learns what from this algorithm's messages under `protection`, as its exchanges declare.

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

    def max_releases(self, protection: Protection, plan: Plan, passive: int) -> ReleaseCounts:
        """How often training releases one row at most, as far as that is known before any rows are.

        ε of a noise multiplier in the job follows from it. None, the default, stands for what depends on the rows.

        Args:
            protection: of the job.
            plan: of the job.
            passive: how many passive parties there are.
        """
        return ReleaseCounts()

    def values_opened(self, plan: Plan) -> int:
        """How many values of one row of a passive party training opens at least, as far as that is known before any
        rows are; see `Policy.max_looks`.

        Args:
            plan: of the job.
        """
        return 0

    def min_releases(self, protection: Protection, plan: Plan, passive: int) -> ReleaseCounts:
        """How often training releases one row at least, whatever rows there are.

        Before anything is sent, policies are checked against it if the job gives a noise multiplier; once the rows are
        known, they are checked against the exact plan.

        Args:
            protection: of the job.
            plan: of the job.
            passive: how many passive parties there are.
        """
        exact = plan.steps is None and not self.uses_book  # otherwise passes per epoch, or rows per person, are unknown
        dp = protection.dp

        def count_after(epochs: int) -> ReleaseCounts:
            return self.max_releases(protection, replace(plan, epochs=epochs), passive)

        epochs = plan.epochs
        if dp is not None and dp.stops_on_budget():
            low, high = 1, epochs if exact else 1
            while low < high:  # the last epoch that the budgets allow
                middle = (low + high + 1) // 2
                looks = count_after(middle)
                allowed = dp.affords(features=looks.features, labels=looks.labels)
                low, high = (middle, high) if allowed else (low, middle - 1)
            epochs = low
        most = count_after(epochs)
        features, labels = (1 if n is None else n if exact else min(n, epochs) for n in (most.features, most.labels))
        return ReleaseCounts(features=features, labels=labels)

    def with_planned_noise(self, protection: Protection, plan: Plan, passive: int) -> Protection:
        """The protection with the ε that `plan` spends in place of noise multipliers, for findings.

        Args:
            protection: of the job.
            plan: of the job.
            passive: how many passive parties there are.
        """
        dp = protection.dp
        if dp is None:
            return protection
        looks = self.max_releases(protection, plan, passive)
        return protection.replace(dp=dp.with_planned_epsilon(features=looks.features, labels=looks.labels))

    def notes(self, protection: Protection) -> list[str]:
        """Sentences that a reader of the figures needs."""
        return []

    def most_passive_under(self, protection: Protection) -> int | None:
        """Largest number of passive parties under a protection, or None for no bound; by default `most_passive`.

        Args:
            protection: of the job.
        """
        return self.most_passive

    def opens_only_answers(self, protection: Protection) -> bool:
        """Whether a job at a protection of the cut opens nothing of single rows but answers, of its test rows and of
        predictions. Validation rows are then not scored in training, and a job keeps its last epoch.

        Args:
            protection: of the job.
        """
        return False

    def covers_training(self, protection: Protection) -> bool:
        """Whether noise of `DP.model` covers all that training shows to any party, at a protection of the cut.

        Args:
            protection: of the job.
        """
        return False

    def declared_levels(self, party: str) -> Mapping[str, tuple[str, ...]]:
        """Column of a party → the levels that the job declares; only for a `view` of ``"coded"``.

        Args:
            party: its name.
        """
        return {}

    def encodes_blindly(self, protection: Protection) -> bool:
        """Whether nothing of a coded column but its kind may depend on the party's rows.

        Args:
            protection: of the job.
        """
        return False

    def column_terms(
        self, part: Mapping[str, Any], x: np.ndarray, party: str, number: LossOfNumber | None
    ) -> ColumnTerms:
        """What each encoded column of a party adds to the model's sum, for algorithms whose model is such a sum.

        Args:
            part: the party's part of the model.
            x: its encoded columns of some rows, (n, columns).
            party: its name, for messages.
            number: how a numeric target is learned; None for classes.

        Raises:
            InputError: the model is not such a sum, or this part does not have the party's own terms.
        """
        self.check_reasons(None)
        raise NotImplementedError

    def check_reasons(self, protection: Protection | None) -> None:
        """Check that the active party of a job sees what each of its own columns adds to a score.

        Args:
            protection: of the job; None for any.

        Raises:
            InputError: it does not.
        """
        raise InputError(
            f"a model of {self.name} is not a sum of terms of single columns, so no party can tell what each of its "
            "columns adds: sv.explain splits scores among parties, and an additive model, a scorecard or a logistic "
            "regression explains columns too"
        )

    def sums_to_logits(self, sums: np.ndarray, *, numeric: bool) -> np.ndarray:
        """Logits of what all parties' `column_terms` add up to, float64 (n, outputs).

        Args:
            sums: (n, outputs).
            numeric: whether the target is a number.
        """
        return sums

    def logits_to_sums(self, logits: np.ndarray, *, numeric: bool) -> np.ndarray:
        """The inverse of `sums_to_logits`, for one output."""
        return logits

    def column_mistakes(self, columns: Mapping[str, Sequence[str]]) -> list[str]:
        """Sentences about settings that name a column which is not among the parties' `columns`."""
        return []

    def undeclared_columns(self, protection: Protection, columns: Mapping[str, Sequence[str]]) -> list[str]:
        """Sentences about columns of which the job has to declare more.

        Args:
            protection: of the job.
            columns: of each party.
        """
        return []

    def refuse_rows(self, rows: int) -> str:
        """Why so few common rows are refused, after their number; empty where they are not."""
        return ""

    def foresee_refusals(self, protection: Protection, *, rows: int, offered: int) -> list[str]:
        """Sentences about what the parties would refuse once they know their common rows.

        Args:
            protection: of the job.
            rows: that can be common at most.
            offered: columns of numbers that the active party can offer at most, its label among them.
        """
        return []


def find_algorithm(name: str) -> type[Algorithm]:
    """The algorithm of this name.

    Raises:
        UnknownNameError: no installed package has one.
        InputError: the entry point is not an `Algorithm`, has another name, or cannot be imported.
    """
    kind = load_registered(name)
    if not isinstance(kind, type) or not issubclass(kind, Algorithm) or kind.name != name:
        raise InputError(
            f"algorithm {name!r} is registered as {registered_algorithms()[name].value}, which is not an Algorithm of "
            "that name: "
            "its class has name = " + repr(getattr(kind, "name", None))
        )
    return kind
