"""``[align]``: other protocols find the same rows, say so, and run only where all parties and their policies agree."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import securevfl_psi as psi
from securevfl_psi.joint.greeting import Greeting
from securevfl_psi.salted_hash import reverse_digests
from support.agreement_parties import proposal
from support.helpers import make_parties

import securevfl as sv
from securevfl.agreement import Proposal
from securevfl.agreement.plain_words import describe_proposal
from securevfl.align import EXCHANGES, Align, alignment_exchanges, declarable_exchanges
from securevfl.data import LabelBook
from securevfl.errors import PolicyError, ProtocolError
from securevfl.ledger import NoteLine
from securevfl.party import rule_against
from securevfl.party.consent import terms_of_job
from securevfl.privacy import Link, Policy
from securevfl.run.simulation import align_parties
from securevfl.transport import Kind


def _job(align: Align | None = None, **more: Any) -> sv.Job:
    return sv.Job(protection=sv.Plain(), seed=3, align=align or Align(), **more)


@pytest.mark.parametrize("passive", [1, 2])
@pytest.mark.parametrize("protocol", ["ot", "unbalanced", "auto", "unsafe_salted_hash"])
def test_every_protocol_finds_the_same_rows_and_the_ledgers_say_which_ran(protocol: Any, passive: int) -> None:
    people = make_parties(passive=passive)
    pad = None if protocol == "unbalanced" else 128
    usual, found = align_parties(people, _job()), align_parties(people, _job(Align(protocol=protocol, pad_to=pad)))
    for name, one in found.parties.items():
        assert one.rows.tolist() == usual.parties[name].rows.tolist()
        assert set(one.verified_by) == set(people) - {name}
        (note,) = [
            line for line in found.ledgers[name].lines if isinstance(line, NoteLine) and line.note == "alignment"
        ]
        assert note.values["protocol"] == one.protocol != ""
        assert note.values["sizes padded to"] == (pad or 0)
    words = found.parties["bank"].protocol
    expected = {"ot": "oblivious transfer", "unbalanced": "unbalanced PSI", "unsafe_salted_hash": "not private"}
    expected["auto"] = "as auto chose" if passive == 1 else "shows no party a pairwise intersection"
    assert expected[protocol] in words
    declared = {(e.step, e.kind) for e in declarable_exchanges(Align(protocol=protocol))}
    seen = {(e.what, e.kind) for x in found.ledgers.values() for e in x.entries if e.what.startswith("psi/")}
    assert seen <= declared
    if protocol in ("ot", "unbalanced") and passive == 1:
        assert {step for step, _ in seen} == {
            e.step for e in alignment_exchanges(1, align=Align(protocol=protocol))
        } - {
            "psi/compare",
            "psi/confirm",
        }


@pytest.mark.parametrize("protocol", ["ot", "unbalanced"])
def test_a_label_book_aligns_by_transfer_and_by_filter(protocol: Any) -> None:
    people = make_parties(passive=2)
    lacking = sorted(set(people["shop1"].ids) - set(people["bank"].ids))[:3]
    book = LabelBook(ids=tuple(lacking), label=np.zeros(len(lacking), dtype=np.int64))
    with_book = sv.Parties.of(replace(people.active, book=book), *people.passive)
    one, other = (align_parties(with_book, _job(Align(protocol=p))).parties for p in ("dh", protocol))
    for name in one:
        assert {k: v.tolist() for k, v in one[name].labelled.items()} == {
            k: v.tolist() for k, v in other[name].labelled.items()
        }


def test_a_job_trains_on_rows_that_transfers_found_and_its_receipt_says_so() -> None:
    result = sv.simulate(_job(Align(protocol="ot"), epochs=1), make_parties(passive=1))
    assert "oblivious transfer" in result.record.alignment.protocol
    said = {line.what: line.protection for line in result.record.runs[0].receipt}
    assert "identifiers, encoded" not in said  # the receipt is of the training; the alignment has its own links
    assert result.record.alignment.links


def test_salted_hashes_show_whole_sets_and_every_page_says_leak() -> None:
    """The attack: the active party lists identifiers and reads the passive party's set, also what is not common."""
    people, job = make_parties(passive=1), _job(Align(protocol="unsafe_salted_hash"))
    taken: list[np.ndarray] = []
    salts: list[bytes] = []
    send, digests = Link.send, psi.salted_hash.salted_digests

    async def spy(self: Link, kind: Kind, what: str, **rest: Any) -> None:
        if what == "psi/hashes":
            taken.append(rest["digests"])
        await send(self, kind, what, **rest)

    def salted(ids: Any, salt: bytes, *rest: Any) -> np.ndarray:
        salts.append(salt)  # which every party of the session knows
        return digests(ids, salt, *rest)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Link, "send", spy)
        patch.setattr("securevfl_psi.salted_hash.salted_digests", salted)
        align_parties(people, job)
    guesses = sorted({*people["shop1"].ids, *people["bank"].ids, "nobody"})
    assert set(reverse_digests(np.concatenate(taken), salts[0], guesses).values()) == set(people["shop1"].ids)
    (finding,) = job.align.findings(["shop1"], "bank")
    assert (finding.party, finding.about, finding.severity) == ("bank", "shop1", "leak")
    made = proposal(align=job.align)
    told = [line for paragraph in describe_proposal(made) for line in paragraph.lines]
    assert any(line.startswith("[leak]") and "whole set" in line for line in told)
    assert any("alignment: protocol unsafe_salted_hash" in line for line in told)


@pytest.mark.parametrize(
    ("policy", "protocol", "passive", "rule"),
    [
        (Policy(leaks=False), "unsafe_salted_hash", 1, "protocol 'dh' in"),
        (Policy(forbidden=frozenset({Kind.ENCODED_SET})), "unsafe_salted_hash", 1, "kind encoded set"),
        (Policy(pairwise_intersections=False), "ot", 2, "pairwise intersection with 'shop1'"),
        (Policy(pairwise_intersections=False), "unbalanced", 2, "pairwise intersection with 'shop1'"),
        (Policy(pairwise_intersections=False), "ot", 1, ""),
        (Policy(pairwise_intersections=False), "auto", 2, ""),
    ],
)
def test_a_policy_may_refuse_a_protocol_before_anything_is_sent(
    policy: Policy, protocol: Any, passive: int, rule: str
) -> None:
    job = _job(Align(protocol=protocol), policies={"shop1": policy}).replace(
        protection=sv.BFV(dp=sv.DP(features=sv.Gaussian(epsilon=0.1)))
    )
    names = [f"shop{number + 1}" for number in range(passive)]
    said = rule_against(job, "shop1", active="bank", passive=names, simulated=True)
    if not rule:
        assert "pairwise" not in said
        return
    assert rule in said
    with pytest.raises(PolicyError, match="refuses the job"):
        align_parties(make_parties(passive=passive), job)


def test_only_the_agreed_protocol_crosses() -> None:
    """A party whose code runs another protocol than the job's finds links that refuse it."""
    people = make_parties(passive=1)
    with pytest.MonkeyPatch.context() as patch:
        made = psi.JointTerms
        patch.setattr("securevfl.align.run.psi.JointTerms", lambda **given: made(**given | {"protocol": "ot"}))
        with pytest.raises(ProtocolError, match=r"psi/transfers.*declare"):
            align_parties(people, _job())
    steps = {e.step for e in declarable_exchanges(Align(protocol="ot"))}
    assert not steps & {"psi/blinded", "psi/doubled", "psi/tokens", "psi/slots", "psi/seed"}
    assert {e.step for e in EXCHANGES} == {e.step for e in declarable_exchanges(Align())}


def test_a_table_above_the_agreed_size_is_refused_and_padding_hides_sizes() -> None:
    people = make_parties(passive=1)
    rows = max(table.rows for table in people.values())
    with pytest.raises(ProtocolError, match=f"pad_to={rows - 1}"):
        align_parties(people, _job(Align(pad_to=rows - 1)))
    found = align_parties(people, _job(Align(pad_to=rows + 7)))
    shapes = [e.shapes["points"] for x in found.ledgers.values() for e in x.entries if e.what == "psi/blinded"]
    assert {shape[0] for shape in shapes} == {rows + 7}


def test_the_agreement_has_it_and_its_digest_and_the_job_s_change_with_it(tmp_path: Path) -> None:
    usual, other = proposal(), proposal(align=Align(protocol="auto", link=100, pad_to=4096))
    assert Proposal.decode(other.signed_bytes).align == Align(protocol="auto", link=100, pad_to=4096)
    assert Proposal.decode(usual.signed_bytes).job_of().align == Align()
    assert other.job_of().digest != usual.job_of().digest
    assert _job().digest == _job(Align()).digest
    file = tmp_path / "job.toml"
    file.write_text('[data]\nname = "credit"\n[align]\nprotocol = "otx"\nlink = 3\n')
    with pytest.raises(sv.InputError, match=r"align.protocol is 'otx'") as caught:
        sv.read_job(file)
    assert "did you mean" in str(caught.value) or "expected" in str(caught.value)
    with pytest.raises(sv.InputError, match="only 'auto' weighs the link"):
        Align(link=10)
    with pytest.raises(sv.InputError, match="pads all parties to one size"):
        Align(protocol="unbalanced", pad_to=100)


def test_what_parties_in_pairs_learn_stands_in_the_terms() -> None:
    found = terms_of_job(_job(Align(protocol="ot")), "shop1", active="bank", passive=["shop1", "shop2"])
    assert found.pairwise == "bank"
    assert terms_of_job(_job(), "shop1", active="bank", passive=["shop1", "shop2"]).pairwise == ""


def _two(bank: list[str], shop: list[str]) -> sv.Parties:
    label = np.arange(len(bank)) % 2
    tables = [
        sv.PartyTable(name="bank", ids=tuple(bank), columns={"x": np.ones(len(bank))}, label=label, classes=(0, 1)),
        sv.PartyTable(name="shop", ids=tuple(shop), columns={"y": np.ones(len(shop))}),
    ]
    return sv.Parties.of(*tables)


@pytest.mark.parametrize("large", ["bank", "shop"])
def test_an_unbalanced_alignment_has_the_errors_of_the_others(large: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever party is the large one; and its filter is made in steps, which the driver has to go through."""
    monkeypatch.setattr("securevfl_psi.publication.STEP", 16)
    many, few = [f"i{number}" for number in range(60)], ["x", *(f"i{number}" for number in range(48, 60))]
    job = _job(Align(protocol="unbalanced"))

    def people(few: list[str]) -> sv.Parties:
        return _two(many, few) if large == "bank" else _two(few, many)

    found = align_parties(people(few), job)
    one, other = ([people(few)[name].ids[row] for row in found.parties[name].rows] for name in ("bank", "shop"))
    assert one == other
    assert set(one) == set(few) & set(many)
    senders = {e.what: x.party for x in found.ledgers.values() for e in x.entries if e.way == "sent"}
    assert senders["psi/filter"] == large != senders["psi/rows"]
    with pytest.raises(sv.AlignmentError, match="no row is common to all"):
        align_parties(people(["x", "y"]), job)
    with pytest.raises(sv.InputError, match="occur more than once after normalisation"):
        align_parties(people(["x", " x"]), job)
    for strict in ("bank", "shop"):
        with pytest.raises(PolicyError, match="at least 13"):
            align_parties(people(few), job.replace(policies={strict: Policy(min_intersection=13)}))
    small = "shop" if large == "bank" else "bank"
    with pytest.raises(ProtocolError, match="at most 20 are accepted: raise max_set_size"):
        align_parties(people(few), job.replace(policies={small: Policy(max_set_size=20)}))


def test_a_policy_decides_whether_a_machine_is_measured_and_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """One party tells, the other one's policy forbids it, and both choose alike; other protocols tell nothing."""
    measured = psi.Speed(60, 50, 40, 70, 7)
    sent: dict[str, psi.Speed | None] = {}
    monkeypatch.setattr("securevfl_psi_cli.calibration.load_speed", lambda: measured)
    encode = Greeting.to_bytes

    def record(greeting: Greeting) -> bytes:
        sent[greeting.name] = greeting.speed
        return encode(greeting)

    monkeypatch.setattr(Greeting, "to_bytes", record)
    people = make_parties(passive=1)
    align_parties(people, _job(Align(protocol="auto"), policies={"shop1": Policy(tell_speed=False)}))
    assert sent == {"bank": measured, "shop1": psi.UNTOLD}
    asked: list[str] = []
    monkeypatch.setattr("securevfl_psi_cli.calibration.load_speed", lambda: asked.append("measured"))
    silent = {name: Policy(tell_speed=False) for name in people}
    align_parties(people, _job(Align(protocol="auto"), policies=silent))
    align_parties(people, _job(Align(protocol="ot")))
    assert not asked
    align_parties(make_parties(passive=2), _job(Align(protocol="auto")))
    assert not asked, "three parties without a label book run one protocol, and need no figures"
