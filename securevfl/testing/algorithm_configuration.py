"""Checks of an algorithm's configuration and declarations, which run no job."""

from __future__ import annotations

import json
from collections.abc import Mapping

from securevfl.cut import BFV, Plain, Protection
from securevfl.errors import InputError, PolicyError
from securevfl.privacy import DP, READABLE_KINDS, Gaussian, JointNoise
from securevfl.testing.failure import CheckFailed
from securevfl.testing.trial import Trial
from securevfl.training import Algorithm, find_algorithm, registered_algorithms
from securevfl.transport import Exchange, Exchanges, Kind

__all__ = ["KINDS", "check_configuration", "check_declarations", "check_refusals", "check_registry", "is_accepted"]

_STOP = Gaussian(epsilon=20.0, noise_multiplier=3.0, on_budget="stop")
KINDS: Mapping[str, tuple[DP, ...]] = {
    "model": (DP(model=Gaussian(epsilon=20.0)),),
    "stop": (DP(features=_STOP), DP(labels=_STOP), DP(model=_STOP)),
    "joint": (DP(features=JointNoise(epsilon=20.0, weight_bound=4.0)),),
}
"""Kind in `Fits.dp` → settings of differential privacy that request it, one for each place in a job."""


def is_accepted(algorithm: Algorithm, protection: Protection) -> bool:
    """Whether an algorithm accepts a protection.

    Raises:
        CheckFailed: it raises another error than `InputError` or `PolicyError`.
    """
    try:
        algorithm.check_protection(protection)
    except (InputError, PolicyError):
        return False
    except Exception as error:
        raise CheckFailed(
            f"check({protection!r}) ends with {type(error).__name__} ({error}); InputError or PolicyError was expected"
        ) from error
    return True


def check_configuration(trial: Trial) -> None:
    """Check that it has a name, a label and a title, and can be read back from what `describe` returns."""
    algorithm, kind = trial.algorithm, type(trial.algorithm)
    for what in ("name", "label", "title"):
        text = getattr(algorithm, what, None)
        if not isinstance(text, str) or not text.strip():
            raise CheckFailed(f"{what} is {text!r}; expected a text for tables, reports and job files")
    if algorithm.least_epochs < 1:
        raise CheckFailed(f"least_epochs is {algorithm.least_epochs}; expected at least 1")
    try:
        values = json.loads(json.dumps(algorithm.describe()))
        again = kind.from_values(values)
    except (TypeError, InputError) as error:
        raise CheckFailed(f"describe() returns {algorithm.describe()}, which cannot be read back: {error}") from error
    if type(again) is not kind or again != algorithm or hash(again) != hash(algorithm):
        raise CheckFailed(f"describe() reads back as {again!r}; {algorithm!r} was expected")
    if algorithm.replace() != algorithm:
        raise CheckFailed("replace() without changes returns a different configuration")


def check_registry(trial: Trial) -> None:
    """Check that no other installed algorithm has its name, and that a job file with this name finds this class."""
    kind, name = type(trial.algorithm), trial.algorithm.name
    if name not in registered_algorithms():
        return
    found = find_algorithm(name)
    if found is not kind:
        raise CheckFailed(
            f"name is {name!r}, under which {found.__module__}.{found.__qualname__} is installed: give "
            f"{kind.__qualname__} another name"
        )
    again = Algorithm.from_values(trial.algorithm.describe())
    if again != trial.algorithm:
        raise CheckFailed(f"a job file with its values gives {again!r}; {trial.algorithm!r} was expected")


def check_declarations(trial: Trial) -> None:
    """Check that its declarations agree with each other and with the protection, for any number of passive parties, and
    describe what receivers learn."""
    algorithm = trial.algorithm
    for protection in (
        Plain(),
        Plain(fixed_point=True),
        trial.sealing_protection,
        Plain(dp=DP(features=Gaussian(), labels=Gaussian())),
    ):
        if not is_accepted(algorithm, protection):
            continue
        for passive in range(1, trial.passive + 1):
            where = f"under {protection.name!r} with {passive} passive parties"
            declared = algorithm.exchanges(protection, passive)
            Exchanges(algorithm.all_exchanges(protection, passive))  # refuses two different declarations of one message
            _check_each(declared, protection, where)
            _check_revealed(declared, where)


def _check_each(declared: tuple[Exchange, ...], protection: Protection, where: str) -> None:
    for exchange in declared:
        step = f"{exchange.step!r}, declared {where},"
        if not exchange.words.strip():
            raise CheckFailed(f"{step} has no words; receipts show them")
        if (exchange.kind is Kind.CIPHERTEXT) != bool(exchange.ciphers):
            raise CheckFailed(f"{step} is {exchange.kind.value} under ciphers {sorted(exchange.ciphers)}")
        if protection.is_sealed and exchange.kind in READABLE_KINDS - {Kind.STATISTIC}:
            raise CheckFailed(
                f"{step} crosses readably as {exchange.kind.value}: set `reveals`, so that sealed jobs are refused"
            )
        if exchange.severity != "ok" and not exchange.reveals:
            raise CheckFailed(f"{step} has severity {exchange.severity!r} but does not describe what it reveals")


def _check_revealed(declared: tuple[Exchange, ...], where: str) -> None:
    """Check that for each direction in which values of rows are sent, one declaration describes what their receiver
    learns."""
    told = {(exchange.sender, exchange.receiver) for exchange in declared if exchange.reveals}
    for exchange in declared:
        rows = exchange.kind in READABLE_KINDS - {Kind.STATISTIC} or exchange.opened is not None
        if rows and (exchange.sender, exchange.receiver) not in told:
            raise CheckFailed(
                f"{exchange.step!r}, declared {where}, carries values of rows from the {exchange.sender} to the "
                f"{exchange.receiver} party, and no message in that direction describes what its receiver learns: "
                "give reveals="
            )


def check_refusals(trial: Trial) -> None:
    """Check that it accepts the kinds of differential privacy in `fits.dp` and refuses the others."""
    algorithm = trial.algorithm
    declared = algorithm.fits.dp
    for kind, forms in KINDS.items():
        taken = [dp for dp in forms if any(is_accepted(algorithm, one(dp=dp)) for one in (Plain, BFV))]
        if taken and kind not in declared:
            raise CheckFailed(
                f"it accepts {taken[0]!r}, and fits.dp does not name {kind!r}: does check() call super()?"
            )
        if not taken and kind in declared:
            raise CheckFailed(f"fits.dp names {kind!r}, and check() refuses {' and '.join(map(repr, forms))}")
