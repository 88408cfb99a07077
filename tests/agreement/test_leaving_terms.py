"""What an agreement says of parties that leave, and which jobs cannot go on without one."""

from __future__ import annotations

from typing import Any

import pytest
from support.agreement_parties import ENDS, proposal

import securevfl as sv
from securevfl.agreement import AgreedLimits, Proposal
from securevfl.agreement.plain_words import describe_proposal
from securevfl.algorithms.field.party_dropout import PartyDropout
from securevfl.algorithms.laser import LaserVFL
from securevfl.errors import InputError, PolicyError
from securevfl.training.registry import load_registered, registered_algorithms

GO_ON = AgreedLimits(expires=ENDS, leaving="go-on", leaving_after=1800)


def made(*names: str, **changes: Any) -> Proposal:
    values: dict[str, Any] = {"algorithm": PartyDropout(), "limits": GO_ON}
    return proposal(*(names or ("bank", "shop", "shop2")), **(values | changes))


def test_agreements_without_the_option_have_the_bytes_that_they_always_had() -> None:
    raw = proposal().signed_bytes
    assert b'\nleaving = "end"\n' in raw
    assert b"leaving_after" not in raw
    assert Proposal.decode(raw).job_of().digest == proposal().job_of().digest
    usual = sv.Job(algorithm=PartyDropout(), protection=sv.Plain())
    assert usual.digest == usual.replace(leaving="end").digest != usual.replace(leaving="go-on").digest


def test_an_agreement_says_when_a_party_is_gone() -> None:
    read = Proposal.decode(made().signed_bytes)
    assert (read.limits.leaving, read.limits.leaving_after, read.job_of().leaving) == ("go-on", 1800, "go-on")
    said = "\n".join(line for paragraph in describe_proposal(read) for line in paragraph.lines)
    assert "(shop, shop2), or is away for more than 0:30:00, the job goes on without it" in said
    assert "If a party leaves for good, the job ends" in str(describe_proposal(proposal()))


@pytest.mark.parametrize(
    ("limits", "says"),
    [
        ({"leaving": "end", "leaving_after": 60}, "leaving_after is for leaving = 'go-on'"),
        ({"leaving": "go-on"}, "leaving_after says nothing"),
        (
            {"leaving": "go-on", "leaving_after": 119},
            r"leaving_after is 119 s; from reconnect \(120 s\) .*--leaving-after",
        ),
        ({"leaving": "go-on", "leaving_after": 86400}, r"to less than gather \(86400 s\)"),
        ({"leaving": "stay"}, "leaving"),
    ],
)
def test_times_that_mean_nothing_are_refused(limits: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError, match=says):
        AgreedLimits(expires=ENDS, **limits)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        (
            {"algorithm": sv.SplitNN()},
            "SplitNN cannot go on without a party: use boosting, entity_augmentation, laser, party_dr",
        ),
        (
            {"algorithm": sv.EntityAugmentation(), "protection": sv.Shares(soft=True)},
            "on shares a party's columns stay dealt",
        ),
        ({"algorithm": sv.Boosting(rising=("bank.age",))}, "boosting.rising and boosting.falling"),
        ({"protection": sv.BFV()}, "Set masks = 'redrawn' in the algorithm"),
        (
            {"algorithm": PartyDropout(masks="fixed"), "protection": sv.Paillier()},
            "the difference is that party's part",
        ),
        (
            {"algorithm": sv.EntityAugmentation(), "protection": sv.CKKS()},
            "Use laser with redrawn masks",
        ),
    ],
)
def test_jobs_that_cannot_go_on_are_refused_with_the_cure(changes: dict[str, Any], says: str) -> None:
    with pytest.raises((InputError, PolicyError), match=says):
        made(**changes)


def test_a_sealed_job_goes_on_where_its_card_declares_the_differences() -> None:
    assert made(algorithm=LaserVFL(masks="redrawn"), protection=sv.BFV()).limits.leaving == "go-on"


def test_one_party_with_features_alone_cannot_leave() -> None:
    with pytest.raises(InputError, match="without its only party with features alone nothing is left"):
        made("bank", "shop")


def test_every_algorithm_that_goes_on_is_tested_with_processes() -> None:
    able = {name for name in registered_algorithms() if load_registered(name).fits.goes_on}
    assert able == {"boosting", "entity_augmentation", "laser", "party_dropout"}  # tests/process/test_leaving.py
