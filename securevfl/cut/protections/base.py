"""What a protection is: it makes both sides of its cut, declares every message of it, and sets the policy that enforces
it."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Mapping, Sequence
from importlib.metadata import EntryPoint
from typing import TYPE_CHECKING, Any, ClassVar

from securevfl.config import Config
from securevfl.cut.spec import CutSpec, CutUse
from securevfl.errors import InputError
from securevfl.party_context import PartyContext
from securevfl.privacy import DP, Policy
from securevfl.registry import FoundByName, Registry
from securevfl.transport import Exchange, Kind, Sight

if TYPE_CHECKING:
    from securevfl.cut.base import ActiveCut, PassiveCut

__all__ = ["Protection", "find_protection", "protections", "with_dp"]

_REGISTRY = Registry("protection", "securevfl.protections")


class Protection(Config):
    """What a job asks for to protect what crosses the cut. Subclass it, or one of this toolkit's, to add one;
    `securevfl.testing.check_protection` checks the result.

    Attributes:
        name: as in job files.
        on_shares: whether computing parties train the whole network on shares, and there is no cut.
        error_bound: standard deviations of a numeric target beyond which its errors have to count linearly; None where
            the protection computes any loss.
        most_classes: largest number of classes of a label, or None for no bound.
        dp: differential privacy on top, or None.
    """

    name: ClassVar[str]
    on_shares: ClassVar[bool] = False
    error_bound: ClassVar[float | None] = None
    most_classes: ClassVar[int | None] = None
    dp: DP | None = None

    @classmethod
    def known_types(cls) -> Mapping[str, type[Config]]:
        """All installed protections, each imported when it is asked for; or a class itself where it has a name."""
        return super().known_types() or FoundByName(protections(), find_protection)

    @property
    @abstractmethod
    def title(self) -> str:
        """For tables and reports."""

    @property
    def ciphers(self) -> frozenset[str]:
        """Names of the schemes under which content may cross; empty where it is not encrypted."""
        return frozenset()

    @property
    def is_sealed(self) -> bool:
        """Whether row-level content crosses encrypted only."""
        return bool(self.ciphers)

    @property
    def uses_integers(self) -> bool:
        """Whether the cut computes in fixed-point integers, on the CPU."""
        return self.is_sealed

    @property
    def key_bits(self) -> int:
        """Size of a Paillier modulus; 0 without."""
        return 0

    @property
    def hands_out(self) -> bool:
        """Whether a model that was trained on shares is opened at the end, to each party its own part."""
        return False

    @property
    def changes_optimiser(self) -> bool:
        """Whether the job changes the rates of a network that is trained on shares."""
        return False

    @property
    def takes_few_rows(self) -> bool:
        """Whether the job asks to train on shares with few rows; see `Policy.few_rows`."""
        return False

    @property
    def answers_useless(self) -> bool:
        """Whether a model on shares answers without having proved useful; see `Policy.useful`."""
        return False

    def answers_classes(self, classes: int) -> bool:
        """Whether a model answers the likeliest class of a row and no probabilities.

        Args:
            classes: number of classes; 1 for a number.
        """
        return False

    def foresee_refusals(self, train: int, valid: int) -> list[str]:
        """What a job should expect from its numbers of rows, told before it trains.

        Args:
            train: training rows, about.
            valid: validation rows, about.
        """
        return []

    @property
    def between_two(self) -> bool:
        """Whether two parties compute on shares, which train models of one layer on batches that keep their rows."""
        return False

    @property
    def takes_mixtures(self) -> bool:
        """Whether targets on shares may be mixtures of classes, which nobody checks."""
        return False

    @property
    def opens_metrics(self) -> bool:
        """Whether the active party gets metrics of the validation rows in training."""
        return True

    def compares_epochs(self, *, simulated: bool) -> bool:
        """Whether of these metrics it gets one bit alone, whether they are the best so far.

        Args:
            simulated: whether one person has all parties.
        """
        return False

    def numbers_of_metrics(self, sets: int) -> int:
        """How many numbers of each validation row so many sets of metrics cost, where nothing else of the row is opened
        in training."""
        return 0

    @property
    def most_metric_sets(self) -> int | None:
        """Most sets of metrics of the validation rows that a job between organisations opens; None for any number."""
        return None

    def plan_problems(self, *, patience: int | None, keep: str, batch_size: int) -> list[str]:
        """What of a job's plan this protection cannot do, each with its cure.

        Args:
            patience: of the job, see `JobTerms`.
            keep: likewise.
            batch_size: likewise.
        """
        return []

    def numbers_per_answer(self, outputs: int) -> int:
        """How many numbers of a row one answer of a model opens, where the answer is all that is opened of it.

        Args:
            outputs: width of the model's output: 1 for two classes and for a number.
        """
        return outputs

    def sum_exchanges(self, passive: int) -> tuple[Exchange, ...]:
        """The messages of an algorithm whose training needs sums over the rows that train, each opened to the owner of
        a column; none where the protection makes no such sums.

        Args:
            passive: number of passive parties.
        """
        return ()

    def crossing_exchanges(self, passive: int, *, reveals: str, sights: Sequence[Sight]) -> tuple[Exchange, ...]:
        """The messages of statistics of columns of different parties; none where the protection computes none.

        Args:
            passive: number of passive parties.
            reveals: what the active party learns from the opened sums.
            sights: the same, taken apart.
        """
        return ()

    def computing_parties(self, active: str, passive: Sequence[str], coordinator: str = "") -> tuple[str, ...]:
        """Names of the parties that train on shares; empty where each trains its own half, at a cut.

        Args:
            active: the party with the labels.
            passive: the parties with features alone.
            coordinator: the party without data; empty where there is none, or where it is not known yet.

        Raises:
            InputError: parties that cannot be these; says what to do.
        """
        return ()

    def trusted_parties(self, active: str, passive: Sequence[str]) -> tuple[str, ...]:
        """Names of the parties of which a data party has to trust that they do not combine what they hold: those that
        compute on shares, and who deals random numbers to them.

        Args:
            active: the party with the labels.
            passive: the parties with features alone.
        """
        return self.computing_parties(active, passive)

    def coordinator_among(self, parties: Collection[str]) -> str:
        """The name of the party without data that this protection asks for beside `parties`; empty for none."""
        return ""

    # Algorithms, plans and settings belong to `training`, which imports this room: hence `Any` in the three methods
    # below. A protection that overrides them lives above `training` and names the types.

    def program(self, algorithm: Any, site: PartyContext, plan: Any, settings: Mapping[str, Any]) -> Any:
        """The program that trains at the party at `site`: the algorithm's own, unless the protection trains the model
        itself.

        Args:
            algorithm: of the job, an `Algorithm`.
            site: the party's place, linked with all its peers.
            plan: of the job, a `Plan`.
            settings: label owner → the party's `Setting` in that owner's federation; none at a party without data.

        Returns:
            A `Program`.
        """
        return algorithm.program(site, plan, settings)

    def scorer(self, algorithm: Any, site: PartyContext, setting: Any, model: Mapping[str, Any]) -> Any:
        """The program that scores rows by a trained model at the party at `site`, before it has come back to it.

        Args:
            algorithm: of the job that trained the model, an `Algorithm`.
            site: the party's place, linked with all its peers, those without data among them.
            setting: the party's `Setting` among the parties with data, with the rows to score.
            model: the party's part of the model.

        Returns:
            An `ActiveProgram` or a `PassiveProgram`.
        """
        return algorithm.scorer(site, setting, model)

    def helper_program(self, algorithm: Any, site: PartyContext, plan: Any) -> Any:
        """The program by which a party without data takes part in scoring rows, before it has come back to the model.

        Args:
            algorithm: of the job that trained the model, an `Algorithm`.
            site: the party's place, linked with all parties.
            plan: of that job, a `Plan`.

        Returns:
            A `HelperProgram`.

        Raises:
            InputError: a protection under which such a party has no part of a model.
        """
        raise InputError(f"under {self.title} a party without data has no part of a model to predict with")

    def policy(self) -> Policy:
        """The floor that this protection sets for every party: what it forbids cannot be sent."""
        return Policy(sealed=self.is_sealed, noised=_noised_kinds(self.dp))

    def assumptions(self, active: Sequence[str], passive: Sequence[str]) -> str:
        """What has to hold besides, so that nobody learns more than is declared; empty where nothing does. It follows
        "if", and stands above the table of who could read what.

        Args:
            active: names of the label owners.
            passive: names of the passive parties.
        """
        return ""

    @abstractmethod
    def exchanges(self, use: CutUse, passive: int) -> tuple[Exchange, ...]:
        """Every message of the cut, with what its receiver learns. Links refuse all others.

        Args:
            use: what the algorithm asks of the cut.
            passive: number of passive parties; there are no messages without any.
        """

    @abstractmethod
    def active_cut(self, site: PartyContext, spec: CutSpec) -> ActiveCut:
        """The active party's side of the cut."""

    @abstractmethod
    def passive_cut(self, site: PartyContext, spec: CutSpec) -> PassiveCut:
        """A passive party's side of the cut."""


def with_dp(text: str, dp: DP | None) -> str:
    """A protection's title with its noise."""
    return f"{text} + {dp.title}" if dp else text


def _noised_kinds(dp: DP | None) -> frozenset[Kind]:
    """Kinds of which every message in the clear has to carry noise."""
    if dp is None:
        return frozenset()
    features = frozenset({Kind.ACTIVATION, Kind.REPRESENTATION}) if dp.features else frozenset()
    return features | (frozenset({Kind.GRADIENT}) if dp.gradient_noise else frozenset())


def protections() -> Mapping[str, EntryPoint]:
    """Name in job files → where the protection lives; see `Registry.entries`."""
    return _REGISTRY.entries


def find_protection(name: str) -> type[Protection]:
    """The protection of this name.

    Raises:
        UnknownNameError: no installed package has one.
        InputError: the registered object is not a `Protection` of that name, or cannot be imported.
    """
    kind = _REGISTRY.load(name)
    if not isinstance(kind, type) or not issubclass(kind, Protection) or getattr(kind, "name", None) != name:
        raise InputError(
            f"protection {name!r} is registered as {protections()[name].value}, which is not a Protection of that "
            f"name: its class has name = {getattr(kind, 'name', None)!r}"
        )
    return kind
