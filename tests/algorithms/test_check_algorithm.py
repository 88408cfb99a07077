"""`check_algorithm` names what is broken, and leaves a sound algorithm alone."""

from __future__ import annotations

import re

import pytest
from support.broken_algorithms import BROKEN, Broken

import securevfl as sv
from securevfl.testing import CheckFailed, check_algorithm, checks
from securevfl.training import Algorithm

SMALL = {"hidden": 8, "top": (8,), "lr": 0.02}


def made(kind: type[Algorithm]) -> Algorithm:
    more = {"bias": 0.5} if "bias" in kind.__annotations__ else {}
    return kind(**SMALL | more)


@pytest.mark.parametrize("kind", BROKEN, ids=lambda kind: kind.__name__)
def test_what_is_broken_is_found_by_the_check_of_that_name(kind: type[Algorithm]) -> None:
    name = BROKEN[kind]
    with pytest.raises(CheckFailed, match=re.escape(f"{kind.__name__} [{name}]: ")):
        dict(checks(made(kind)))[name]()


@pytest.mark.parametrize("kind", [kind for kind, name in BROKEN.items() if name in ("messages", "refusals")])
def test_the_first_check_that_fails_ends_it(kind: type[Algorithm]) -> None:
    with pytest.raises(CheckFailed, match=re.escape(f"{kind.__name__} [{BROKEN[kind]}]: ")):
        check_algorithm(made(kind))


def test_every_check_finds_something() -> None:
    """But for those that hold the toolkit's own doing: links write ledgers and receipts take declared words."""
    assert {name for name, _ in checks(Broken())} - set(BROKEN.values()) == {"ledgers", "receipt", "randomised labels"}


def test_a_class_that_needs_settings_says_so() -> None:
    with pytest.raises(CheckFailed, match="give a configuration"):
        check_algorithm(sv.SelfSupervised)


def test_parties_that_wait_for_each_other_are_told_apart() -> None:
    """The message says what each did last, and what to do."""
    (kind,) = (kind for kind, name in BROKEN.items() if name == "window")
    with pytest.raises(CheckFailed, match=r"last sent 'broken/shout'.*use link\.exchange"):
        dict(checks(made(kind)))["window"]()
