"""What a class fits: a subclass starts with the least, a refusal names what to declare, and messages list names from
the registries."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest

import securevfl as sv
from securevfl.algorithms.baselines import LogisticRegression
from securevfl.algorithms.splitnn import SplitNN
from securevfl.cut import protections, sealing_protections
from securevfl.training import Algorithm, Fits, find_algorithm, registered_algorithms
from securevfl.training.fits import UNDECLARED
from securevfl.training.objectives import LossOfNumber
from securevfl.training.registry import algorithms_fit

STOP = sv.Gaussian(noise_multiplier=2.0, on_budget="stop")
SOURCES = Path(sv.__file__).parent


class Focal(SplitNN):
    """A stranger's subclass that declares nothing."""

    name: ClassVar[str] = "focal"
    label: ClassVar[str] = "focal"


class Declared(SplitNN):
    """One that declares a part."""

    name: ClassVar[str] = "declared"
    label: ClassVar[str] = "declared"
    fits: ClassVar[Fits] = Fits(dp={"stop"}, learns={"numbers"})


class Below(Declared):
    """A subclass of a subclass."""


def test_a_subclass_starts_with_the_least() -> None:
    assert SplitNN.fits.shares
    assert SplitNN.fits.counts
    assert Focal.fits == Below.fits == Focal().fits == Fits()
    assert Declared.fits == Fits(dp={"stop"}, learns={"numbers"})


def test_a_built_in_algorithm_declares_what_it_fits_where_a_base_class_does() -> None:
    """A user of a built-in algorithm is not asked to change its class."""
    for name in registered_algorithms():
        kind = find_algorithm(name)
        bases = [base for base in kind.__mro__[1:] if issubclass(base, Algorithm)]
        assert kind.fits is not UNDECLARED or all(base.fits is UNDECLARED for base in bases), name


@pytest.mark.parametrize(
    ("refused", "declaration"),
    [
        (lambda focal: focal.check_protection(sv.Shares(computing=("bank", "shop1", "shop2"))), "Fits(shares=True)"),
        (
            lambda focal: focal.check_protection(sv.Plain(dp=sv.DP(features=sv.JointNoise(weight_bound=4.0)))),
            "Fits(dp={'joint'})",
        ),
        (lambda focal: focal.check_protection(sv.Plain(dp=sv.DP(labels=STOP))), "Fits(dp={'stop'})"),
        (lambda focal: focal.check_number(LossOfNumber(), sv.Plain()), "Fits(learns={'numbers'})"),
        (lambda focal: focal.check_several(sv.Plain()), "Fits(learns={'labels'})"),
        (lambda focal: focal.check_weights("the job weighs rows", sv.Plain()), "Fits(learns={'weights'})"),
    ],
)
def test_a_refusal_names_what_to_declare(refused: Callable[[Any], None], declaration: str) -> None:
    with pytest.raises(sv.InputError) as caught:
        refused(Focal())
    told = (
        f". SplitNN can, and a subclass does not inherit it: if it still holds for Focal, declare fits = {declaration}"
    )
    assert told in str(caught.value)


def test_a_refusal_declares_nothing_where_no_base_class_can() -> None:
    with pytest.raises(sv.InputError) as caught:
        Focal().check_protection(sv.Plain(dp=sv.DP(model=sv.Gaussian())))
    assert "declare fits" not in str(caught.value)


def test_what_is_declared_is_accepted() -> None:
    Declared().check_protection(sv.Plain(dp=sv.DP(labels=STOP)))
    Declared().check_number(LossOfNumber(), sv.Plain())


def test_a_class_that_declares_is_asked_for_nothing() -> None:
    for algorithm in (Declared(), sv.LaserVFL()):
        with pytest.raises(sv.InputError) as caught:
            algorithm.check_several(sv.Plain())
        assert "declare fits" not in str(caught.value)


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"dp": {"marvell"}}, r"fits\.dp names 'marvell'"),
        ({"dp": {"joints"}}, r"fits\.dp names 'joints'.*'joint'"),
        ({"learns": {"classes"}}, r"fits\.learns names 'classes'"),
        ({"learns": "labels"}, r"fits\.learns is 'labels': give a set of names, \{'labels'\}"),
    ],
)
def test_an_unknown_kind_is_refused_where_it_is_written(wrong: dict[str, Any], why: str) -> None:
    with pytest.raises(sv.InputError, match=why):
        Fits(**wrong)


def test_refusals_list_the_installed_algorithms() -> None:
    able = algorithms_fit(lambda fits: bool(fits.shares))
    assert {"splitnn", "logistic_regression"} <= set(able)
    assert "laser" not in able
    with pytest.raises(sv.InputError, match=re.escape(", ".join(able))):
        sv.LaserVFL().check_protection(sv.Shares(computing=("bank", "shop1", "shop2")))


def test_refusals_list_the_installed_protections() -> None:
    assert sealing_protections() == ["auto", "bfv", "ckks", "paillier"]
    with pytest.raises(sv.InputError, match=re.escape("('auto', 'bfv', 'ckks', 'paillier')")):
        LogisticRegression().check_several(sv.Shares(computing=("bank", "shop1", "shop2")))


# Lists of names in the source.

ALLOWED = {
    "use protection 'paillier' or 'plain' in the place of": "boosting computes with these two classes and no other",
    "use aggregation 'paillier' or 'ckks'": "values of multi_vfl's `aggregation`, which are no protections",
}
"""A part of a literal that lists names by hand → why it may."""


def names_pattern() -> re.Pattern[str]:
    """Two names of algorithms or protections beside each other in a list."""
    one = rf"['`]?\b(?:{'|'.join(sorted([*registered_algorithms(), *protections()], key=len, reverse=True))})\b['`]?"
    return re.compile(rf"{one}(?:, | or | and |, or |, and |/){one}")


def literals(source: str) -> Iterator[tuple[int, str]]:
    """Line and text of each string literal that is not a docstring; fields of an f-string are left out."""
    tree = ast.parse(source)
    bare = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    inner = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield node.lineno, "…".join(str(part.value) for part in node.values if isinstance(part, ast.Constant))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in bare | inner:
            yield node.lineno, node.value


def test_the_pattern_finds_lists_and_no_prose() -> None:
    pattern = names_pattern()
    for text in ("use 'bfv', 'ckks' or 'paillier'", "(splitnn, laser)", "`local` and `residual`", "plain/bfv"):
        assert pattern.search(text), text
    for text in ("splitnn under protection 'bfv'", "the shares of a plain cut", "best_of or plainly", "auto"):
        assert not pattern.search(text), text


def test_no_message_lists_algorithms_or_protections_by_hand() -> None:
    """A list that somebody wrote misses whatever another package installs. Take names from `algorithms_fit`,
    `sealing_protections` or the registries, name one example, or add the literal and a reason to `ALLOWED`."""
    pattern, used, found = names_pattern(), set(), []
    for path in sorted(SOURCES.rglob("*.py")):
        for line, text in literals(path.read_text(encoding="utf-8")):
            if pattern.search(text):
                allowed = {part for part in ALLOWED if part in text}
                used |= allowed
                found += [] if allowed else [f"{path.relative_to(SOURCES)}:{line}: {text[:120]!r}"]
    assert not found, "\n".join(found)
    assert used == set(ALLOWED), "an allowance that no literal needs"
