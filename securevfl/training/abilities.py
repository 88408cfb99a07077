"""What an algorithm can learn, under which protection, and from whose columns it scores.

A job that asks for more is refused before anything is sent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, ClassVar, Literal

from securevfl.config import Config
from securevfl.cut import CutUse, Protection, sealing_protections
from securevfl.errors import InputError, PolicyError
from securevfl.privacy import DP
from securevfl.training.bottoms import Architecture
from securevfl.training.fits import UNDECLARED, Fits, LearnsKind
from securevfl.training.objectives import LossOfNumber
from securevfl.training.registry import algorithms_fit, load_registered, registered_algorithms

__all__ = ["Abilities", "Subsets"]

Subsets = Literal["all", "alone", "any"]
"""Whose columns a trained model scores rows from; see `Algorithm.subsets`."""


_DELTAS_ON_SHARES = (0.5, 10.0)


class Abilities(Config):
    """The part of an `Algorithm` that declares what it is fit for.

    Attributes:
        name: as in job files.
        label: for tables and reports; `title` adds what distinguishes a configuration.
        uses_book: whether the labels that the active party knows of other parties' rows are used.
        subsets: which rows a trained model is fit to score: ``"all"``, those that every party holds; ``"alone"``, also
            those of the active party, by its own columns; ``"any"``, those of the active party with the columns of any
            set of the passive parties. Training has shown it such rows; see `ActiveRole.score_alone`.
        alone_on_shares: whether the active party's own part stays in the clear on shares, and scores rows alone.
        not_on_shares: a sentence that says why its training is not on shares, with a space after it.
        reveals: what the algorithm sends in the clear by design. If it is set, sealed protections are refused.
        bounds_errors: whether it caps each row's error of a number itself, so that on shares the loss need not.
        fits: what the class can do beyond the least. A subclass that does not declare its own has `Fits()`.
    """

    name: ClassVar[str]
    label: ClassVar[str]
    uses_book: ClassVar[bool] = False
    subsets: ClassVar[Subsets] = "all"
    alone_on_shares: ClassVar[bool] = False
    not_on_shares: ClassVar[str] = ""
    reveals: ClassVar[str] = ""
    bounds_errors: ClassVar[bool] = False
    fits: ClassVar[Fits] = UNDECLARED

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "fits" not in cls.__dict__:  # what a base class can do was never checked with this one's changes
            cls.fits = UNDECLARED

    @property
    def title(self) -> str:
        """For tables and reports."""
        return self.label

    @property
    def trainable(self) -> bool:
        """Whether passive parties' bottoms have parameters."""
        return True

    @property
    def learns_alone(self) -> bool:
        """Whether passive parties also learn alone, from their rows that are not aligned and have no number. No peer
        notices."""
        return False

    @property
    def cut(self) -> CutUse | None:
        """What the algorithm needs from the cut layer; None if it does not use one."""
        return None

    def build_architecture(self, outputs: int) -> Architecture:
        """Shapes and rates of the split network, for an algorithm that is one.

        Args:
            outputs: width of the logits.

        Raises:
            InputError: this algorithm is not.
        """
        raise InputError(f"{self.title} is not a single split network")

    def check_protection(self, protection: Protection) -> None:
        """Refuse a protection that this algorithm does not support.

        Raises:
            PolicyError: it sends in the clear by design what the protection would seal.
            InputError: a kind of differential privacy that it does not support.
        """
        able = frozenset(self.fits.dp) | ({"model"} if protection.on_shares else frozenset())
        for kind in sorted(_wanted_kinds(protection.dp) - able):
            raise InputError(
                f"{self.title} does not support dp with {_KINDS[kind]}; leave it out, or use an algorithm that does"
                + self._explain_undeclared(f"dp={{{kind!r}}}", partial(_has_noise, kind))
            )
        if protection.on_shares and not self.fits.shares:
            raise InputError(
                f"{self.title} cannot be trained on shares: only an algorithm that trains one split network, with "
                "the built-in loss, on the rows that its parties feed can (it declares shares=True in its fits). "
                f"{self.not_on_shares}"
                f"Use {_list_names(algorithms_fit(lambda fits: bool(fits.shares)))}, or a protection of the cut "
                f"({_quote_names(sealing_protections())})"
                + self._explain_undeclared("shares=True", lambda fits: bool(fits.shares))
            )
        if protection.between_two:
            self._check_between_two(protection)
        dp = protection.dp
        if protection.on_shares and dp is not None:
            self._check_noise_on_shares(dp)
        if protection.on_shares and self.fits.mixes and not protection.takes_mixtures:
            raise InputError(
                f"{self.title} trains towards mixtures of several rows' classes, which change from batch to batch, and "
                "on shares a target is one class, dealt once and checked: set soft = true in the protection. Then the "
                "active party can hide which rows it labels, and the report says so"
            )
        if self.reveals and protection.is_sealed:
            raise PolicyError(
                f"{self.title} {self.reveals}, so {protection.name!r} cannot seal it: use protection "
                "'plain', with dp=sv.DP(features=sv.Gaussian()) for noise on what is handed over, or an algorithm that "
                f"stays at the cut layer ({_list_names(_sealable_names())})"
            )

    def _check_between_two(self, protection: Protection) -> None:
        """Refuse what two computing parties cannot train.

        Raises:
            InputError: another model than one layer of weights.
        """
        one_network = self.fits.shares_kind == "network" and not (self.trainable or self.fits.mixes)
        if self.fits.shares_kind in {"scorecard", "statistics"} or (
            one_network and self.build_architecture(1).top is None
        ):
            return
        raise InputError(
            f"{self.title} cannot be trained on shares of two parties: they train models of one layer of weights, "
            "such as logistic_regression; let three parties compute, of which one may be a coordinator without "
            'data, computing = ["…", "…", "coordinator"]; or use \'additive\' under protection \'bfv\', whose sums are '
            "made between two, with noise where the job asks for it"
            + (". A helper changes nothing in that" if getattr(protection, "helper", "") else "")
        )

    def check_leaving(self, protection: Protection) -> None:
        """Refuse a job that is to go on without a passive party that leaves, where it cannot or would tell too much.

        Args:
            protection: of the job.

        Raises:
            InputError: it cannot; the message names what can.
        """
        if protection.on_shares:
            raise InputError(
                "leaving is 'go-on', and on shares a party's columns stay dealt to the computing parties after it "
                "left, without a party that could count their use: set leaving = 'end', or name a protection of the "
                f"cut ({_quote_names(sealing_protections())}, 'plain')"
            )
        if not self.fits.goes_on:
            raise InputError(
                f"leaving is 'go-on', and {self.title} cannot go on without a party: use "
                f"{_list_names(algorithms_fit(lambda fits: fits.goes_on))}, or leaving = 'end'"
                + self._explain_undeclared("goes_on=True", lambda fits: fits.goes_on)
            )
        cut = self.cut
        if cut is not None and protection.is_sealed and cut.together and not (cut.alone and cut.differing):
            cure = (
                "Set masks = 'redrawn' in the algorithm" if hasattr(self, "masks") else "Use laser with redrawn masks"
            )
            raise InputError(
                f"leaving is 'go-on', and under {protection.name!r} the active party opens the sum over the passive "
                "parties: once a row is opened without the party that left, the difference is that party's part of z, "
                f"which this job does not declare. {cure}, whose card says so, or leaving = 'end'"
            )

    def _explain_undeclared(self, argument: str, fit: Callable[[Fits], bool]) -> str:
        """What to declare, if a base class is fit and this class left `fits` out; otherwise empty.

        Args:
            argument: of `Fits`, as it is written.
            fit: the test that a job's request makes.
        """
        kind = type(self)
        base = next((one for one in kind.__mro__[1:] if issubclass(one, Abilities) and fit(one.fits)), None)
        if base is None or kind.fits is not UNDECLARED:
            return ""
        return (
            f". {base.__name__} can, and a subclass does not inherit it: if it still holds for {kind.__name__}, "
            f"declare fits = Fits({argument}) in that class"
        )

    def check_number(self, number: LossOfNumber, protection: Protection) -> None:
        """Refuse to learn a number where this algorithm, or the protection, is for classes.

        Args:
            number: how it would be learned.
            protection: of the job.

        Raises:
            InputError: it is; the message names algorithms that do.
        """
        if "numbers" not in self.fits.learns:
            raise InputError(
                f"{self.title} learns classes, and task is 'regression': use an algorithm that learns a number "
                f"({_that_learn('numbers')}), or make classes of the label" + self._explain_unlearned("numbers")
            )
        if protection.on_shares and not self.bounds_errors:
            _check_number_on_shares(number)
        dp = protection.dp
        if dp is None:
            return
        if dp.label_draw is not None:
            raise InputError(
                "dp.labels is a randomised response, for classes; a numeric target takes sv.Gaussian(…) with "
                "target_range"
            )
        noisy = dp.gradient_noise is not None or dp.model is not None
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
            InputError: it is; the message names algorithms that do.
        """
        if "labels" not in self.fits.learns:
            raise InputError(
                f"{self.title} learns one label, and task is 'multilabel': use an algorithm that learns several "
                f"({_that_learn('labels')}), or train one job for each label" + self._explain_unlearned("labels")
            )
        if protection.on_shares:
            raise InputError(
                "several labels cannot be trained on shares: the classes of a row exclude each other there. Name a "
                f"protection of the cut ({_quote_names(sealing_protections())}), or train one job for each label"
            )
        dp = protection.dp
        if dp is not None and dp.label_draw is not None:
            raise InputError("dp.labels is a randomised response, for classes; several labels take sv.Gaussian(…)")

    def check_weights(self, why: str, protection: Protection) -> None:
        """Refuse weights of classes or rows where nothing multiplies losses, or noise is sized without them.

        Args:
            why: what asks for weights, for the message.
            protection: of the job.

        Raises:
            InputError: it is; the message names algorithms that do.
        """
        if "weights" not in self.fits.learns:
            raise InputError(
                f"{why}, and {self.title} counts all rows alike: use an algorithm that weighs rows "
                f"({_that_learn('weights')}) or leave weights out" + self._explain_unlearned("weights")
            )
        if protection.on_shares:
            raise InputError(
                f"{why}, and on shares all rows count alike: name a protection of the cut "
                f"({_quote_names(sealing_protections())}), or leave weights out"
            )
        dp = protection.dp
        if dp is not None and (dp.labels is not None or dp.model is not None):
            raise InputError(
                f"{why}, and the noise on labels, or on the model, is sized for rows that count alike: a weight "
                "follows from exact labels, or is a row's own, and ε would not cover it. Leave weights, or noise, out"
            )

    def _explain_unlearned(self, what: LearnsKind) -> str:
        return self._explain_undeclared(f"learns={{{what!r}}}", lambda fits: what in fits.learns)

    def _check_noise_on_shares(self, dp: DP) -> None:
        """Refuse noise that cannot be on shares.

        Raises:
            InputError: noise on what nobody sends, or on a model whose gradients nobody can bound.
        """
        if dp.model is None:
            if dp.label_draw is None or dp.features:
                raise InputError(
                    "on shares nothing of a row is sent that could carry noise: leave dp out, draw labels by "
                    "dp=sv.DP(labels=sv.RandomisedResponse(…)), or add noise to the steps of the model by "
                    "dp=sv.DP(model=sv.Gaussian(…))"
                )
            return
        if self.fits.shares_kind in {
            "additive",
            "statistics",
        }:  # noise is on sums over all rows, whose terms are capped
            return
        if self.uses_book or self.trainable or self.build_architecture(1).top is not None:
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
            InputError: the model was not trained on such rows. The message gives the choices.
        """
        missing = [name for name in everyone if name not in present]
        if not missing or self.subsets == "any" or (self.subsets == "alone" and not present):
            return
        without = f"{self.title} is not fit for rows without the columns of {', '.join(missing)}"
        if self.subsets == "alone":
            raise InputError(
                f"{without} but with those of {', '.join(present)}: give the tables of all parties, or only the active "
                "party's"
            )
        fit = [name for name in registered_algorithms() if getattr(load_registered(name), "subsets", "all") != "all"]
        raise InputError(
            f"{without}: it was trained on rows that all parties have. Score such rows only, or train an algorithm "
            f"that can also score others ({_list_names(fit)})"
        )


_KINDS = {
    "model": "model=… (DP-SGD; only 'local' trains a model that a party has by itself, and logistic_regression on "
    "shares one that nobody has)",
    "stop": "on_budget='stop' (all parties have to find the same last epoch from what is public)",
    "joint": "features=sv.JointNoise(…) (noise inside the ciphertext, on the sum over the parties)",
}


def _has_noise(kind: str, fits: Fits) -> bool:
    return kind in fits.dp


def _list_names(names: Iterable[str]) -> str:
    return ", ".join(names)


def _quote_names(names: Iterable[str]) -> str:
    return ", ".join(map(repr, names))


def _that_learn(what: LearnsKind) -> str:
    return _list_names(algorithms_fit(lambda fits: what in fits.learns))


def _sealable_names() -> list[str]:
    """Names of the algorithms that hand over nothing in the clear by design."""
    return [name for name in registered_algorithms() if not getattr(load_registered(name), "reveals", "")]


def _wanted_kinds(dp: DP | None) -> set[str]:
    """What of `_KINDS` this asks for."""
    if dp is None:
        return set()
    stops = any(getattr(mechanism, "on_budget", "") == "stop" for mechanism in (dp.features, dp.labels, dp.model))
    asked = {"model": dp.model, "stop": stops or None, "joint": dp.joint_noise}
    return {kind for kind, wanted in asked.items() if wanted is not None}


def _check_number_on_shares(number: LossOfNumber) -> None:
    """Refuse what the computing parties cannot learn a number by.

    Raises:
        InputError: another loss than Huber's, or a δ that numbers of 16 fractional bits are too coarse for.
    """
    if number.name != "huber":
        raise InputError(
            f"loss is {number.name!r}, and on shares a number is learned by the Huber loss, whose gradient is bounded "
            "whatever the weights are, so that no product wraps: take loss 'auto' (errors beyond 3 deviations count "
            f"linearly there) or 'huber', or a protection of the cut ({_quote_names(sealing_protections())})"
        )
    low, high = _DELTAS_ON_SHARES
    if not low <= number.delta <= high:
        raise InputError(
            f"huber_delta is {number.delta:g}, and on shares {low:g} to {high:g} deviations are possible: outside, "
            "numbers with 16 fractional bits are too coarse"
        )
