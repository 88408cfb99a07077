"""An agreement whose job goes on from the model of an earlier one."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
import pytest

import securevfl as sv
from securevfl.agreement import Proposal, approve_proposal, read_agreement, read_party_file, write_approval
from securevfl.agreement.plain_words import describe_proposal
from securevfl.cli.agreements import _read_run
from securevfl.run.model_parts import ModelPart
from securevfl.testing.company import Company, create_company
from securevfl.testing.parties import make_parties

PEOPLE = make_parties(passive=1, rows=140)
SHARES = sv.Shares(computing=("bank", "shop1", "helper"), few_rows=True, useful="off", metrics="rounded")


def go_on(company: Company, **change: object) -> Company:
    """The same companies with a second agreement, and other state folders."""
    import datetime

    old = company.agreement
    proposal = Proposal.decode(
        old.proposal.replace(id="1" * 32, start=old.digest, **change).signed_bytes  # what the others read
    )
    path = company.folder / "second.toml"
    path.write_bytes(proposal.signed_bytes)
    for name in company.names:
        file = company.folder / f"{name}.toml"
        text = file.read_text().replace(f'state = "{name}.state"', f'state = "{name}.second"\nstart = "{name}.state"')
        file.write_text(text)
        write_approval(path, approve_proposal(proposal, read_party_file(file), datetime.datetime.now(datetime.UTC)))
    return Second(company.folder, company.names, read_agreement(path), company.people)


class Second(Company):
    """Files of the second agreement."""

    @property
    def agreement_file(self) -> Path:
        return self.folder / "second.toml"

    def state_folder(self, name: str) -> Path:
        return self.folder / f"{name}.second"


@pytest.mark.parametrize(
    ("algorithm", "protection", "change"),
    [
        (sv.LogisticRegression(lr=0.3), sv.Plain(), {"algorithm": sv.LogisticRegression(lr=1e-9, cut_lr=1e-9)}),
        (sv.LogisticRegression(), SHARES, {"protection": SHARES.replace(lr=1e-6, momentum=0.0)}),
    ],
    ids=["plain", "shares with a coordinator"],
)
def test_parties_go_on_from_their_own_parts(
    algorithm: sv.Algorithm, protection: sv.Protection, change: dict[str, object], tmp_path: Path
) -> None:
    job = sv.Job(algorithm=algorithm, protection=protection, epochs=3, batch_size=32, seed=3, keep="last")
    lenient = sv.Policy(max_results="unlimited", few_rows=True, useful="off")
    company = create_company(tmp_path, PEOPLE, job, policies=dict.fromkeys(PEOPLE, lenient))
    first = company.over_memory()["bank"]
    second = go_on(company, job=msgspec.structs.replace(company.agreement.proposal.job, epochs=1), **change)
    words = " ".join(line for part in describe_proposal(second.agreement.proposal) for line in part.lines)
    assert f"goes on from the model of run {company.agreement.digest}" in words
    assert "Rows that trained that model may validate and test now" in words
    later = second.over_memory()["bank"]
    assert first.finished is not None
    assert later.finished is not None
    before, after = first.finished.trained.scores, later.finished.trained.scores
    np.testing.assert_allclose(after, before, atol=0.02)  # steps of nearly nothing, the same test rows
    assert np.ptp(before[:, 1]) > 0.15
    parts = [
        ModelPart.load(place.state_folder("bank") / "model", "bank", place.agreement.proposal.job_of())
        for place in (company, second)
    ]
    assert parts[0].tree["encoder"] == parts[1].tree["encoder"]
    assert parts[1].run == second.agreement.digest
    notes = [line for line in later.finished.ledger.iter_lines() if getattr(line, "note", "") == "begins from"]
    assert [note.values["sha256"] for note in notes] == [parts[0].digest]
    assert (
        _read_run(str(company.state_folder("bank"))) == _read_run(company.agreement.digest) == company.agreement.digest
    )
    if protection.on_shares:
        return
    file = tmp_path / "bank.toml"
    file.write_text(file.read_text().replace('start = "bank.state"', 'start = "bank.second"'))
    with pytest.raises(sv.PolicyError, match=r"is of run .* and the agreement goes on from"):
        second.over_memory()
    file.write_text(file.read_text().replace('start = "bank.second"\n', ""))
    with pytest.raises(sv.PolicyError, match='start = "old-state"'):
        second.over_memory()


def test_an_agreement_says_from_what_it_goes_on_and_earlier_ones_keep_their_bytes(tmp_path: Path) -> None:
    job = sv.Job(algorithm=sv.SplitNN(hidden=4), protection=sv.Plain(), epochs=1)
    proposal = create_company(tmp_path, PEOPLE, job).agreement.proposal
    assert b"start" not in proposal.signed_bytes
    assert b"start = " in proposal.replace(start="a" * 64).signed_bytes
    for change, says in (
        ({"start": "b" * 63}, "64 hexadecimal digits"),
        ({"start": "b" * 64, "algorithm": sv.RISA()}, "does not go on from an earlier model"),
        (
            {"start": "b" * 64, "protection": sv.Plain(dp=sv.DP(features=sv.Gaussian(epsilon=2.0)))},
            "the two are not added up",
        ),
    ):
        with pytest.raises(sv.InputError, match=says):
            proposal.replace(**change)
