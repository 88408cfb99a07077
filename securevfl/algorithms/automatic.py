"""``algorithm="auto"``: several algorithms are tried, and the best on the validation rows is kept.

It trains nothing itself. A simulation replaces it by the algorithms that fit the job, trains each on the same rows, and
keeps one model; see `securevfl.experiments.choosing`. An agreement names the candidates, and its parties train them one
after the other inside one job; see `securevfl.party.choosing`. What it declares is what all of them do together: every
candidate is really trained, so each party learns what each of them shows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Annotated, ClassVar, NoReturn

from msgspec import Meta

from securevfl.cut import Protection
from securevfl.errors import InputError, PolicyError
from securevfl.privacy import Finding
from securevfl.training.algorithm import Algorithm, find_algorithm
from securevfl.training.fits import Fits
from securevfl.training.objectives import LossOfNumber
from securevfl.training.registry import registered_algorithms
from securevfl.transport import Exchange

__all__ = ["AutoAlgorithm"]

_USUAL = (("splitnn", "additive", "boosting"), ("logistic_regression", "scorecard"))
"""What is tried: the first of these groups of which the protection has one. Two computing parties train models of one
layer alone, and those are the second group."""


class AutoAlgorithm(Algorithm):
    """Try several algorithms, and keep the one that is best on the validation rows.

    Each candidate has its defaults and the job's terms. With noise, all of them share the job's ε and δ.

    Attributes:
        methods: names of the algorithms to try; an agreement has to name them. By default a network, an additive model
            and boosted trees; where two parties compute on shares, logistic regression and a scorecard.
        trees: rounds of boosted trees, which the job's `epochs` does not count.
    """

    name: ClassVar[str] = "auto"
    label: ClassVar[str] = "auto"
    fits: ClassVar[Fits] = Fits()
    chooses: ClassVar[bool] = True
    methods: tuple[str, ...] = ()
    trees: Annotated[int, Meta(ge=1, le=100_000)] = 300

    def problems(self) -> list[str]:
        found = super().problems()
        if len(set(self.methods)) < len(self.methods):
            found.append(f"auto.methods is {list(self.methods)!r}; name each algorithm once")
        for name in self.methods:
            if name not in registered_algorithms():
                found.append(f"auto.methods has {name!r}; choose from {', '.join(registered_algorithms())}")
            elif find_algorithm(name).many_owners:
                found.append(f"auto.methods has {name!r}, which is for several label owners: leave it out")
        return found

    @property
    def title(self) -> str:
        return f"{self.label} ({', '.join(self.methods)})" if self.methods else self.label

    @property
    def groups(self) -> Sequence[Sequence[Algorithm]]:
        """The candidates with their defaults; of several groups, the first that fits is tried."""
        return [[find_algorithm(name)() for name in names] for names in ((self.methods,) if self.methods else _USUAL)]

    def candidates_under(self, protection: Protection) -> Sequence[Algorithm]:
        for group in self.groups:
            found = [one for one in group if _is_able(one, protection)]
            if found:
                return found
        return ()

    def exchanges(self, protection: Protection, passive: int) -> tuple[Exchange, ...]:
        """Every message of every candidate."""
        every = (one.exchanges(protection, passive) for one in self.candidates_under(protection))
        return tuple(dict.fromkeys(exchange for exchanges in every for exchange in exchanges))

    def findings(self, protection: Protection, passive: Sequence[str], active: str) -> list[Finding]:
        """What each party learns from all candidates together."""
        every = (one.findings(protection, passive, active) for one in self.candidates_under(protection))
        found: list[Finding] = []
        for finding in (one for findings in every for one in findings):
            if finding not in found:
                found.append(finding)
        return found

    def notes(self, protection: Protection) -> list[str]:
        return list(dict.fromkeys(note for one in self.candidates_under(protection) for note in one.notes(protection)))

    def check_protection(self, protection: Protection) -> None:
        """See `Abilities.check_protection`: refused where no candidate can have it."""
        self._require_one(lambda one: one.check_protection(protection))

    def check_number(self, number: LossOfNumber, protection: Protection) -> None:
        """See `Abilities.check_number`."""
        self._require_one(lambda one: one.check_number(number, protection))

    def check_several(self, protection: Protection) -> None:
        """See `Abilities.check_several`."""
        self._require_one(lambda one: one.check_several(protection))

    def check_weights(self, why: str, protection: Protection) -> None:
        """See `Abilities.check_weights`."""
        self._require_one(lambda one: one.check_weights(why, protection))

    def check_leaving(self, protection: Protection) -> None:
        """See `Abilities.check_leaving`: nothing compares candidates of which some had the columns of a party that left
        and others had not."""
        raise InputError(
            "leaving is 'go-on', and a choice compares candidates that all have the same columns: set leaving = 'end', "
            "or name one algorithm"
        )

    def check_reasons(self, protection: Protection | None) -> None:
        """See `Algorithm.check_reasons`: whatever is kept has to have reasons."""
        for one in self._every():
            one.check_reasons(protection)

    def active(self, setting: object) -> NoReturn:
        """See `Algorithm.active`; there is none."""
        raise InputError(f"algorithm 'auto' does not train; {_ONE}")

    def passive(self, setting: object) -> NoReturn:
        """See `Algorithm.passive`; there is none."""
        raise InputError(f"algorithm 'auto' does not train; {_ONE}")

    def _require_one(self, check: Callable[[Algorithm], None]) -> None:
        """Refuse what no candidate passes.

        Raises:
            InputError, PolicyError: with the reasons of all.
        """
        errors: list[InputError | PolicyError] = []
        for one in self._every():
            try:
                check(one)
            except (InputError, PolicyError) as error:
                errors.append(error)
            else:
                return
        if errors:
            why = "\n  ".join(dict.fromkeys(map(str, errors)))
            raise type(errors[0])(f"algorithm 'auto' has nothing to try here:\n  {why}")

    def _every(self) -> Iterator[Algorithm]:
        return (one for group in self.groups for one in group)


_ONE = "its candidates do, each as a job of its own; see `securevfl.party.candidates`"


def _is_able(algorithm: Algorithm, protection: Protection) -> bool:
    try:
        algorithm.check_protection(protection)
    except (InputError, PolicyError):
        return False
    return True
