"""What a job may ask of two parties that compute on shares, who they are, and what the agreement prints."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import securevfl as sv
from securevfl.errors import InputError, ProtocolError
from securevfl.jobfile import read_job
from securevfl.party.consent import terms_of_job
from securevfl.shares.two.exchanges import name_step, two_exchanges
from securevfl.training.split import fixed_batches
from securevfl.transport import COORDINATOR, Kind

PAIR = sv.Shares(computing=2)
HELPED = sv.Shares(computing=("bank", "shop"), helper="notary")


def test_two_parties_compute_and_a_helper_does_not() -> None:
    assert PAIR.computing_parties("bank", ["shop"]) == ("bank", "shop")
    assert PAIR.coordinator_among(["bank", "shop"]) == ""
    assert HELPED.computing_parties("bank", ["shop"], "notary") == ("bank", "shop")
    assert HELPED.coordinator_among(["bank", "shop"]) == "notary"
    assert HELPED.trusted_parties("bank", ["shop"]) == ("bank", "shop", "notary")


def test_three_named_by_number_are_those_of_the_default() -> None:
    assert sv.Shares(computing=3).computing_parties("bank", ["a", "b"]) == ("bank", "a", "b")
    assert not sv.Shares(computing=3).between_two
    assert not sv.Shares().between_two


@pytest.mark.parametrize(
    ("protection", "passive", "coordinator", "words"),
    [
        (PAIR, ["a", "b"], "", "nobody else has data"),
        (HELPED, ["other"], "notary", "name these two"),
        (HELPED, ["shop"], "clerk", 'helper = "clerk"'),
        (sv.Shares(computing=2, helper="shop"), ["shop"], "", "who has data"),
        (sv.Shares(), ["shop"], "", "set computing=2"),
    ],
)
def test_other_parties_are_refused_with_what_helps(
    protection: sv.Shares, passive: list[str], coordinator: str, words: str
) -> None:
    with pytest.raises(InputError, match=words):
        protection.computing_parties("bank", passive, coordinator)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"computing": 4}, "set 2 or 3"),
        ({"computing": 1}, "set 2 or 3"),
        ({"computing": 3, "helper": "h"}, "set computing = 2"),
        ({"helper": "h"}, "set computing = 2"),
        ({"computing": ("a", "a")}, "different parties"),
        ({"computing": ("a", "b"), "helper": "b"}, "Name a party without data"),
        ({"computing": 2, "weight_decay": 0.01}, "set weight_decay = 0"),
        ({"computing": 2, "model": "parts"}, "set model = 'shares'"),
        ({"computing": 2, "soft": True}, "leave soft out"),
    ],
)
def test_impossible_settings_are_refused_with_what_helps(settings: dict[str, object], words: str) -> None:
    with pytest.raises(InputError, match=words):
        sv.Shares(**settings)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["splitnn", "boosting", "additive", "entity_augmentation"])
def test_other_models_are_refused_with_what_helps(name: str) -> None:
    kind = {"splitnn": sv.SplitNN, "boosting": sv.Boosting, "additive": sv.Additive}
    algorithm = kind.get(name, sv.EntityAugmentation)()
    with pytest.raises(InputError, match=r"such as logistic_regression; let three parties compute.*'bfv'"):
        sv.Job(algorithm=algorithm, protection=PAIR)
    with pytest.raises(InputError, match="A helper changes nothing"):
        sv.Job(algorithm=algorithm, protection=HELPED)


def test_batches_are_at_most_as_large_as_what_is_multiplied_at_once() -> None:
    from securevfl.shares.two.course import LARGEST_BATCH

    sv.Job(algorithm=sv.LogisticRegression(), protection=PAIR, batch_size=LARGEST_BATCH)
    with pytest.raises(InputError, match=f"set batch_size = {LARGEST_BATCH}"):
        sv.Job(algorithm=sv.LogisticRegression(), protection=PAIR, batch_size=LARGEST_BATCH + 1)
    sv.Job(algorithm=sv.LogisticRegression(), protection=sv.Shares(), batch_size=LARGEST_BATCH + 1)


def test_one_layer_on_frozen_bottoms_is_accepted() -> None:
    sv.Job(algorithm=sv.LogisticRegression(bottom=sv.Frozen(8)), protection=PAIR)


def test_job_files_name_both_forms(tmp_path: Path) -> None:
    for text, wanted in (
        ("computing = 2", PAIR),
        ('computing = ["bank", "shop"]\nhelper = "notary"', HELPED),
    ):
        (tmp_path / "job.toml").write_text(_job_file(text))
        for name in ("bank", "shop"):
            (tmp_path / f"{name}.csv").write_text("id,x,y\n1,2,0\n2,3,1\n")
        assert read_job(tmp_path / "job.toml").job.protection == wanted


def _job_file(protection: str) -> str:
    return f"""
[algorithm]
name = "logistic_regression"
[protection]
name = "shares"
{protection}
[[party]]
name = "bank"
file = "bank.csv"
id = "id"
label = "y"
[[party]]
name = "shop"
file = "shop.csv"
id = "id"
"""


def test_the_card_names_the_source_of_randomness() -> None:
    pair, helped = PAIR.assumptions(["bank"], ["shop"]), HELPED.assumptions(["bank"], ["shop"])
    assert "bank and shop both follow the protocol" in pair
    assert "errors over rings" in pair
    assert "AES" in pair
    assert "neither bank nor shop combines what it holds with notary" in helped
    assert "gets nothing but sizes" in helped


def test_a_policy_has_to_trust_the_helper_with_shares() -> None:
    job = sv.Job(algorithm=sv.LogisticRegression(), protection=HELPED)
    terms = terms_of_job(job, "shop", active="bank", passive=["shop"])
    assert terms.computing == ("bank", "shop", "notary")


def test_a_helper_receives_sizes_only_and_signs_no_share_into_the_pair() -> None:
    for one in two_exchanges(1, helper=True):
        if one.receiver == COORDINATOR:
            assert one.kind is Kind.CONTROL
    assert all(COORDINATOR not in (one.sender, one.receiver) for one in two_exchanges(1, helper=False))


def test_undeclared_messages_have_no_step() -> None:
    assert name_step("keys base 0")[1] is Kind.PUBLIC_KEY
    assert name_step("open metrics")[0] == "shares/open metrics"
    assert name_step("transfers: set-up")[1] is Kind.PUBLIC_KEY
    assert name_step("transfers: columns")[1] is Kind.SHARE
    for label in ("open weights", "open", "opened metrics", "shares"):
        with pytest.raises(ProtocolError, match="not declared"):
            name_step(label)


def test_batches_keep_their_rows_and_change_their_order() -> None:
    rows = np.arange(100, 207)
    epochs = [fixed_batches(rows, 10, None, seed=5, epoch=epoch) for epoch in (1, 2, 3)]
    sets = [sorted(tuple(batch) for batch in batches) for batches in epochs]
    assert sets[0] == sets[1] == sets[2]
    assert sorted(np.concatenate(epochs[0])) == sorted(rows)
    assert [batch[0] for batch in epochs[0]] != [batch[0] for batch in epochs[1]]
    other = fixed_batches(rows, 10, None, seed=6, epoch=1)
    assert sorted(map(tuple, other)) != sets[0]


def test_steps_take_full_batches_of_as_many_passes_as_they_need() -> None:
    rows = np.arange(35)
    found = fixed_batches(rows, 10, 7, seed=1, epoch=2)
    assert [len(batch) for batch in found] == [10] * 7
    assert len({tuple(batch) for batch in found}) == 3
