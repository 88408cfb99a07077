"""The protection that a job names to train on secret shares, and the programs that it gives each party."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from msgspec import Meta
from securevfl_crypto.replicated import WIDEST

from securevfl.cut.protections.base import Protection
from securevfl.cut.spec import CutSpec, CutUse
from securevfl.party_context import PartyContext
from securevfl.shares.answers import AnswerKind, RowAnswer
from securevfl.shares.exchanges import OpenedMetrics, share_exchanges
from securevfl.shares.least_rows import LEAST_VALIDATION, MOST_METRICS, foresee_refusals
from securevfl.shares.network_ranges import ERROR_BOUND
from securevfl.shares.two.exchanges import crossing_exchanges, two_exchanges
from securevfl.shares.who_computes import Computers
from securevfl.transport import COORDINATOR, PASSIVE, Exchange, Sight

if TYPE_CHECKING:
    from securevfl.cut.base import ActiveCut, PassiveCut
    from securevfl.shares.coordinator import SharesCoordinator
    from securevfl.shares.programs import SharesActive, SharesPassive
    from securevfl.training.algorithm import Algorithm
    from securevfl.training.plan import Plan
    from securevfl.training.setting import Setting

__all__ = ["Shares"]


_LARGEST_BATCH = 1024
"""Rows that two parties multiply at once; `securevfl.shares.two.course` has it too, and imports what computes."""


class Shares(Protection):
    """Training on secret shares: nobody learns z, activations, gradients or weights, if no two of the three computing
    parties collude, and all follow the protocol. Replicated sharing modulo 2^64 (Araki et al.
    2016).

    Any number of parties deal their rows to the three, who train the whole network on shares. The network's optimiser
    is SGD with momentum and weight decay: it is linear, where Adam takes square roots. Its rates stand here, for those
    of an algorithm are Adam's.

    Attributes:
        computing: names of the three, the active party among them; a name that no party with a table has is that of a
            coordinator without data. Empty, or 3: the active party and the first two others. 2, or two names: both
            parties of a job of two compute, and nobody else; they train models of one layer.
        helper: name of a party without data that deals random numbers to two computing parties, and gets nothing but
            sizes. Empty: the two make them themselves, at more cost.
        lr: η, the learning rate of all weights.
        momentum: μ. Between two, steps are plain SGD with the rate η / (1 − μ), which momentum comes to in the long
            run.
        weight_decay: λ.
        model: what becomes of the trained model. ``"shares"``: it stays in shares. ``"parts"``: it is opened at the end
            of training, to each data party the weights of its own columns, to the active one those above, too;
            predictions take the parts in as shares again.
        answers: what the model answers about a row: ``"probabilities"``, ``"class"`` or ``"grades"``, see
            `securevfl.shares.answers`. By default probabilities of two classes, and the class alone of more.
        useful: ``"required"``: the model answers nothing unless it predicts the validation rows better with the passive
            parties' columns than without; ``"off"``: it always answers, as it does without metrics, where no validation
            row is dealt. See `securevfl.shares.usefulness`.
        few_rows: whether the job may have fewer than 400 training and 200 validation rows, or fewer than 20 validation
            rows of a class. Between organisations each party's policy has to allow it.
        soft: whether targets may be mixtures of classes that change from batch to batch, as Entity Augmentation's do.
            They are not checked then, and can hide which rows the active party labels.
        metrics: what is opened of the validation rows, to the active party. ``"best"``: after each epoch that validates
            one bit, whether its model is the best so far; the figures are compared on shares. ``"rounded"``: the
            figures, rounded; whoever knows all other rows reads one that validates from them (`benchmarks.asked`), so
            each set costs a number of each of these rows. None, the default: ``"best"`` between organisations, and
            ``"rounded"`` in a simulation, where one person sees everything. ``"none"``: nothing, so that ε of these
            rows is 0; all epochs are trained and the last one is kept, and the job must have ``keep="last"`` and no
            `patience`.
        dp: labels drawn by randomised response; noise on the steps of the model, where it has one layer: each computing
            party adds its own inside the shares, and that of any two reaches ε; or None.
    """

    name: ClassVar[str] = "shares"
    on_shares: ClassVar[bool] = True
    error_bound: ClassVar[float | None] = ERROR_BOUND
    most_classes: ClassVar[int | None] = WIDEST
    computing: int | tuple[str, ...] = ()
    helper: str = ""
    lr: Annotated[float, Meta(gt=0, le=10)] = 0.2
    momentum: Annotated[float, Meta(ge=0, le=0.99)] = 0.9
    weight_decay: Annotated[float, Meta(ge=0, lt=1)] = 0.0
    model: Literal["shares", "parts"] = "shares"
    answers: AnswerKind | None = None
    useful: Literal["required", "off"] = "required"
    few_rows: bool = False
    soft: bool = False
    metrics: OpenedMetrics | None = None

    def problems(self) -> list[str]:
        found = [*super().problems(), *self._computers.list_problems()]
        return [*found, *self._two_problems()] if self.between_two and not found else found

    def _two_problems(self) -> list[str]:
        """What two parties that compute alone cannot do, each with its cure."""
        three = "or let three parties compute"
        found = []
        if self.weight_decay:
            found.append(
                f"weight_decay is {self.weight_decay:g}, and between two the steps are plain SGD without decay: set "
                f"weight_decay = 0, {three}"
            )
        if self.hands_out:
            found.append(f"model is 'parts', and between two the model stays in shares: set model = 'shares', {three}")
        if self.soft:
            found.append(f"soft is true, and between two a row's target is one class: leave soft out, {three}")
        return found

    @property
    def _computers(self) -> Computers:
        return Computers(self.computing, self.helper)

    @property
    def between_two(self) -> bool:
        return self._computers.are_two

    @property
    def title(self) -> str:
        relaxed = {
            "model handed out": self.hands_out,
            "no metrics": not self.opens_metrics,
            "metrics compared on shares": self.metrics == "best",
            "rounded metrics": self.metrics == "rounded",
            "mixed targets": self.soft,
            "few rows": self.few_rows,
            "useful or not": self.useful == "off",
            f"answers by {self.answers}": self.answers is not None,
        }
        name = "secret shares"
        if self.between_two:
            name += " of two" + (", dealt by a helper" if self.helper else "")
        title = ", ".join([name, *(text for text, said in relaxed.items() if said)])
        return title + (f" + {self.dp.title_for('the model')}" if self.dp else "")

    @property
    def hands_out(self) -> bool:
        return self.model == "parts"

    @property
    def changes_optimiser(self) -> bool:
        usual = type(self)()
        return any(getattr(self, name) != getattr(usual, name) for name in ("lr", "momentum", "weight_decay"))

    @property
    def opens_metrics(self) -> bool:
        return self.metrics != "none"

    def compares_epochs(self, *, simulated: bool) -> bool:
        return self.metrics == "best" or (self.metrics is None and not simulated)

    def numbers_of_metrics(self, sets: int) -> int:
        return {"none": 0, "rounded": sets}.get(self.metrics or "", min(sets, 1))

    @property
    def most_metric_sets(self) -> int | None:
        return MOST_METRICS if self.opens_metrics else None

    def plan_problems(self, *, patience: int | None, keep: str, batch_size: int) -> list[str]:
        found = []
        if self.between_two and batch_size > _LARGEST_BATCH:
            found.append(
                f"batch_size is {batch_size}, and between two a batch has at most {_LARGEST_BATCH} rows: set "
                f"batch_size = {_LARGEST_BATCH}, or let three parties compute"
            )
        if self.opens_metrics:
            return found
        why = "and protection.metrics is 'none', so that no metric of the validation rows is opened"
        if keep != "last":
            found.append(f"keep is {keep!r}, {why}: set keep = 'last', or metrics = 'best'")
        if patience is not None:
            found.append(f"patience is {patience}, {why}: leave patience out, or set metrics = 'best'")
        return found

    @property
    def is_sealed(self) -> bool:
        return True

    @property
    def takes_few_rows(self) -> bool:
        return self.few_rows

    @property
    def answers_useless(self) -> bool:
        return self.useful == "off" or not self.opens_metrics

    def answers_classes(self, classes: int) -> bool:
        return RowAnswer.of(self.answers, classes).kind == "class"

    def foresee_refusals(self, train: int, valid: int) -> list[str]:
        if not self.opens_metrics:
            valid = LEAST_VALIDATION
        return foresee_refusals(train, valid, few_rows=self.few_rows, judged=not self.answers_useless)

    @property
    def takes_mixtures(self) -> bool:
        return self.soft

    def numbers_per_answer(self, outputs: int) -> int:
        return RowAnswer.of(self.answers, 2 if outputs == 1 else outputs).width

    def computing_parties(self, active: str, passive: Sequence[str], coordinator: str = "") -> tuple[str, ...]:
        return self._computers.find_names(active, passive, coordinator)

    def trusted_parties(self, active: str, passive: Sequence[str]) -> tuple[str, ...]:
        return (*self.computing_parties(active, passive), *([self.helper] if self.helper else []))

    def assumptions(self, active: Sequence[str], passive: Sequence[str]) -> str:
        return self._computers.assumptions(active, passive)

    def coordinator_among(self, parties: Collection[str]) -> str:
        return self._computers.find_outsider(parties)

    def exchanges(self, use: CutUse, passive: int) -> tuple[Exchange, ...]:
        if self.between_two:
            noise = None if self.dp is None else self.dp.model
            return two_exchanges(passive, helper=bool(self.helper), metrics=self.metrics, noise=noise)
        noise = None if self.dp is None else self.dp.model
        return share_exchanges(passive, parts=self.hands_out, noise=noise, metrics=self.metrics, soft=self.soft)

    def sum_exchanges(self, passive: int) -> tuple[Exchange, ...]:
        from securevfl.shares.additive.exchanges import sum_exchanges

        noise = None if self.dp is None else self.dp.model
        return sum_exchanges(passive, noise=noise, metrics=self.metrics)

    def crossing_exchanges(self, passive: int, *, reveals: str, sights: Sequence[Sight]) -> tuple[Exchange, ...]:
        two, helper = self.between_two, bool(self.helper)
        return crossing_exchanges(passive, two=two, helper=helper, reveals=reveals, sights=sights)

    def program(
        self, algorithm: Algorithm, site: PartyContext, plan: Plan, settings: Mapping[str, Setting]
    ) -> SharesActive | SharesPassive | SharesCoordinator:
        if site.role == COORDINATOR:
            return _coordinator_program(algorithm, self, site, plan)
        (setting,) = settings.values()
        return _data_program(algorithm, self, site, setting)

    def scorer(
        self, algorithm: Algorithm, site: PartyContext, setting: Setting, model: Mapping[str, Any]
    ) -> SharesActive | SharesPassive:
        return _data_program(algorithm, self, site, setting, trains=False)

    def helper_program(self, algorithm: Algorithm, site: PartyContext, plan: Plan) -> SharesCoordinator:
        return _coordinator_program(algorithm, self, site, plan, trains=False)

    def active_cut(self, site: PartyContext, spec: CutSpec) -> ActiveCut:
        from securevfl.cut.no_cut import NoActiveCut

        return NoActiveCut()

    def passive_cut(self, site: PartyContext, spec: CutSpec) -> PassiveCut:
        from securevfl.cut.no_cut import NoPassiveCut

        return NoPassiveCut()


def _data_program(
    algorithm: Algorithm, protection: Protection, site: PartyContext, setting: Setting, *, trains: bool = True
) -> SharesActive | SharesPassive:
    """The program of a party with a table; unless it `trains`, it scores rows by a trained model."""
    from securevfl.shares.kinds import find_programs
    from securevfl.shares.sharing import Sharing

    sharing = Sharing(algorithm=algorithm, protection=protection, site=site, plan=setting.plan, trains=trains)
    programs = find_programs(algorithm.fits.shares_kind, two=protection.between_two)
    if site.role == PASSIVE:
        return programs.passive(algorithm.passive(setting), sharing)  # type: ignore[no-any-return]
    return programs.active(algorithm.active(setting), sharing)  # type: ignore[no-any-return]


def _coordinator_program(
    algorithm: Algorithm, protection: Protection, site: PartyContext, plan: Plan, *, trains: bool = True
) -> SharesCoordinator:
    """The program of the party without data; unless it `trains`, it takes part in scoring rows."""
    from securevfl.shares.kinds import find_programs
    from securevfl.shares.sharing import Sharing

    sharing = Sharing(algorithm=algorithm, protection=protection, site=site, plan=plan, trains=trains)
    return find_programs(algorithm.fits.shares_kind, two=protection.between_two).coordinator(sharing)  # type: ignore[no-any-return]
