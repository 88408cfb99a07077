"""``[link]``: records without a common identifier become rows to train on; what it tells whom, and what is refused."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from securevfl_psi.linkage import Families, FamilyErrors, encode_records, simulate_families
from support.agreement_parties import CERTIFICATES, card, proposal

import securevfl as sv
from securevfl.agreement import Proposal
from securevfl.agreement.plain_words import describe_proposal
from securevfl.agreement.proposal import ServingTerms
from securevfl.algorithms import AutoAlgorithm
from securevfl.align import Alignment, DateField, Linkage, link_exchanges
from securevfl.checks.job_check import check_file
from securevfl.data import PartyTable
from securevfl.errors import AlignmentError, InputError, PolicyError, ProtocolError
from securevfl.ledger import NoteLine
from securevfl.party import rule_against, run_party
from securevfl.party.aligning import with_link_weights
from securevfl.party_context import PartyContext
from securevfl.privacy import Link, Policy
from securevfl.process.state_folder import StateFolder
from securevfl.run.simulated_parties import Simulated
from securevfl.run.simulation import align_parties, run_parties
from securevfl.testing.company import Company, create_company
from securevfl.training import Trained
from securevfl.transport import Kind

FIELDS = dict.fromkeys(("given_name", "surname", "street"), "text") | {"phone": "code", "date_of_birth": "date"}


@cache
def _files() -> Families:
    return simulate_families(150, common=0.8, together=1.0, errors=FamilyErrors(typo=0.05), seed=4)


def _table(name: str, side: int, *, label: bool = False, link: bool = True) -> PartyTable:
    """Columns that say something about a person; numbers of rows of its own, which mean nothing to the other side."""
    files = _files()
    people = files.people[side]
    rng = np.random.default_rng(side)
    real = np.random.default_rng(9).normal(size=(2000, 2))[people]
    target = (real[:, 0] + real[:, 1] > 0).astype(np.int64)
    return PartyTable(
        name=name,
        ids=[f"{name}-{n}" for n in rng.permutation(len(people))],
        columns={f"x_{name}": real[:, side]},
        label=target if label else None,
        classes=(0, 1) if label else (),
        link={name: files.tables[side][name] for name in FIELDS} if link else {},
    )


def _parties(**more: Any) -> sv.Parties:
    return sv.Parties.of(_table("bank", 0, label=True), _table("shop", 1, **more))


def _job(linker: Any = "coordinator", **link: Any) -> sv.Job:
    how = Linkage(fields=FIELDS, linker=linker, **link)
    return sv.Job(protection=sv.Plain(), epochs=2, batch_size=16, seed=3, link=how)


def _right(aligned: Any) -> tuple[int, int, int]:
    """How many pairs, how many of them are one person, how many people both sides have."""
    a, b = _files().people
    rows = {name: found.rows for name, found in aligned.parties.items()}
    right = int((a[rows["bank"]] == b[rows["shop"]]).sum())
    return len(rows["bank"]), right, len(set(a.tolist()) & set(b.tolist()))


def test_records_without_a_common_identifier_become_a_trained_model() -> None:
    with pytest.raises(AlignmentError):  # their own numbers are nothing in common
        align_parties(_parties(), _job().replace(link=None))
    result = sv.simulate(_job(), _parties(), baselines=())
    told = result.record.alignment.protocol
    assert told.startswith("linkage by date_of_birth, given_name, phone, street, surname, compared by 'coordinator'")
    assert "recall between" in told
    assert told.endswith("composed by the active party")
    assert result.record.alignment.verified_by == ["bank", "shop"]
    assert result.record.runs[0].test["auc"] > 0.6


@pytest.mark.parametrize("linker", ["coordinator", "active"])
def test_linked_rows_are_the_same_people_whoever_compares(linker: Any) -> None:
    aligned = align_parties(_parties(), _job(linker))
    pairs, right, common = _right(aligned)
    assert right >= 0.9 * pairs
    assert right >= 0.8 * common
    declared = {(e.step, e.kind) for e in link_exchanges(_job(linker).link or Linkage(fields=FIELDS))}
    seen = {(e.what, e.kind) for x in aligned.ledgers.values() for e in x.entries if e.what.startswith("link/")}
    assert seen == declared
    for ledger in aligned.ledgers.values():
        (note,) = [line for line in ledger.lines if isinstance(line, NoteLine) and line.note == "linkage"]
        assert "recall between" in str(note.values["what"])
    assert ("coordinator" in aligned.ledgers) is (linker == "coordinator")


def test_candidates_train_on_linked_rows_and_the_coordinator_hears_of_no_choice() -> None:
    job = _job().replace(algorithm=AutoAlgorithm(methods=("splitnn", "logistic_regression")), epochs=1)

    async def program(site: PartyContext, table: Any) -> Trained:
        return await run_party(site, table, job)

    found, _ = Simulated(job=job, parties=_parties(), run="auto", linking=True).run_program(program)
    kept = {name: one.choice and one.choice.kept for name, one in found.items()}
    assert kept["bank"] == kept["shop"]
    assert kept == {"bank": kept["bank"], "coordinator": None, "shop": kept["bank"]}


def test_blocks_compare_less_and_find_nearly_the_same() -> None:
    job = _job(blocks=("surname:sound", "date_of_birth", "phone", "given_name:sound+date_of_birth:4"))
    pairs, right, common = _right(align_parties(_parties(), job))
    assert right >= 0.9 * pairs
    assert right >= 0.75 * common


@pytest.mark.parametrize("linker", ["coordinator", "active"])
@pytest.mark.parametrize("blocks", [(), ("surname:sound", "date_of_birth", "phone")], ids=["all pairs", "blocks"])
def test_witnesses_tell_recall_to_every_party(linker: Any, blocks: tuple[str, ...]) -> None:
    job = _job(linker, blocks=blocks, witnesses=("surname+date_of_birth", "given_name+phone"))
    aligned = align_parties(_parties(), job)
    pairs, right, common = _right(aligned)
    assert right >= 0.9 * pairs
    told = set()
    for ledger in aligned.ledgers.values():
        (note,) = [line for line in ledger.lines if isinstance(line, NoteLine) and line.note == "linkage"]
        said = re.search(r"recall about ([0-9.]+) \(([0-9.]+) to ([0-9.]+)\) of some ([0-9]+) people", str(note.values))
        assert said is not None
        told.add(said.groups())
    ((recall, low, high, people),) = told
    assert float(low) <= float(recall) <= float(high)
    assert float(recall) == pytest.approx(right / common, abs=0.1)
    assert int(people) == pytest.approx(common, rel=0.15)
    declared = {(e.step, e.words) for e in link_exchanges(job.link or Linkage(fields=FIELDS))}
    assert ("link/blocks", "blocks and witnesses of records" if blocks else "witnesses of records") in declared


@pytest.mark.parametrize("linker", ["coordinator", "active"])
def test_rows_count_by_how_likely_their_links_are_true(linker: Any) -> None:
    """With a threshold that lets wrong pairs in: these weigh less, in what the active party trains on and reports."""
    job = _job(linker, weights=True, threshold=0.45, deduplicate=False)
    people = _parties()
    aligned = align_parties(people, job)
    bank, shop = aligned.parties["bank"], aligned.parties["shop"]
    assert shop.weights is None
    assert bank.weights is not None
    a, b = _files().people
    right = a[bank.rows] == b[shop.rows]
    weights = bank.weights[bank.rows]
    assert 0 < (~right).sum() < right.sum()
    assert weights[~right].mean() < 0.6 * weights[right].mean()
    ran = run_parties(job, people, aligned, run="weights")
    split = ran.split.test
    assert ran.trained["bank"].weight is not None
    shares = ran.trained["bank"].weight / ran.trained["bank"].weight.sum()
    assert np.allclose(shares, weights[split] / weights[split].sum(), atol=1e-5)
    assert ran.trained["shop"].weight is None
    usual = align_parties(people, _job(linker, threshold=0.45, deduplicate=False))
    assert usual.parties["bank"].weights is None
    own = sv.PartyTable(**(vars(people["bank"]) | {"weight": np.full(people["bank"].rows, 2.0)}))
    assert np.allclose(with_link_weights(own, bank).weight, 2 * bank.weights)
    with pytest.raises(InputError, match=r"\[link\] has weights = true, and on shares all rows count alike"):
        job.replace(protection=sv.Shares())


def test_weights_of_a_coordinator_are_probabilities() -> None:
    send = Link.send

    async def forge(self: Link, kind: Kind, what: str, **rest: Any) -> None:
        await send(self, kind, what, **(rest | ({"weights": -rest["weights"]} if what == "link/weights" else {})))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Link, "send", forge)
        with pytest.raises(ProtocolError, match="some outside of 0 to 1"):
            align_parties(_parties(), _job(weights=True))
    found = Linkage(fields=FIELDS, weights=True).findings(["shop"], "bank")
    assert [f.severity for f in found if f.party == "bank"] == ["note"]


def _spied(job: sv.Job, step: str, people: sv.Parties | None = None) -> dict[tuple[str, str], list[dict[str, Any]]]:
    """Sender and receiver → arrays of the messages of a step."""
    seen: dict[tuple[str, str], list[dict[str, Any]]] = {}
    send = Link.send

    async def spy(self: Link, kind: Kind, what: str, **rest: Any) -> None:
        if what == step:
            seen.setdefault((self.me, self.peer), []).append(rest)
        await send(self, kind, what, **rest)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Link, "send", spy)
        align_parties(people or _parties(), job)
    return seen


def test_the_key_does_not_pass_the_coordinator_and_an_active_linker_can_test_guesses() -> None:
    """What findings say, tried: with the key a guess is an encoding, without it no record can be recognised."""
    keys: list[bytes] = []
    made = encode_records

    def spy(table: Any, schema: Any, key: bytes, **rest: Any) -> Any:
        keys.append(key)
        return made(table, schema, key, **rest)

    for linker in ("coordinator", "active"):
        job = _job(linker, deduplicate=False)
        keys.clear()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("securevfl_psi.linkage.encode_records", spy)
            sent = _spied(job, "link/records")
        taker = "coordinator" if linker == "coordinator" else "bank"
        words = np.concatenate([m["words"] for m in sent["shop", taker]])
        assert len(set(keys)) == 1  # the active party's and the passive one's
        public = _spied(job, "link/key")
        assert set(public) == {("bank", "shop"), ("shop", "bank")}  # nothing about it reaches a coordinator
        shop = _parties()["shop"]
        guess = {name: [values[0]] for name, values in shop.link.items()}
        assert job.link is not None
        hit = made(guess, job.link.psi_schema(), keys[0], context=f"{job.digest} shop").words.view(np.uint8)
        miss = made(guess, job.link.psi_schema(), bytes(32), context=f"{job.digest} shop").words.view(np.uint8)
        assert (words == hit).all(axis=1).any()
        assert not (words == miss).all(axis=1).any()


def test_records_reach_the_linker_in_no_order_of_the_table() -> None:
    orders: list[list[object]] = []
    made = encode_records

    def spy(table: Any, schema: Any, key: bytes, **rest: Any) -> Any:
        orders.append(list(table["phone"]))
        return made(table, schema, key, **rest)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("securevfl_psi.linkage.encode_records", spy)
        people = _parties()
        align_parties(people, _job(deduplicate=False))
    for order, name in zip(orders, ("bank", "shop"), strict=True):
        phones = list(people[name].link["phone"])
        assert sorted(map(str, order)) in [sorted(map(str, people[n].link["phone"])) for n in people]
        assert order != phones


def test_findings_say_who_could_read_what_and_policies_refuse_it() -> None:
    said = {linker: _job(linker).link.findings(["shop"], "bank") for linker in ("coordinator", "active")}  # type: ignore[union-attr]
    assert {(f.party, f.about, f.severity) for f in said["coordinator"]} == {
        ("coordinator", "bank", "leak"),
        ("coordinator", "shop", "leak"),
    }
    assert {(f.party, f.about, f.severity) for f in said["active"]} == {("bank", "shop", "leak")}
    quiet = sv.BFV(dp=sv.DP(features=sv.Gaussian(epsilon=0.1)))
    for policy, rule in (
        (Policy(leaks=False), "identifiers in the place of"),
        (Policy(forbidden=frozenset({Kind.ENCODED_SET})), "kind encoded set"),
    ):
        job = _job().replace(protection=quiet, policies={"shop": policy})
        assert rule in rule_against(job, "shop", active="bank", passive=["shop"], simulated=True)
        with pytest.raises(PolicyError, match="'shop' refuses the job"):
            align_parties(_parties(), job)


def test_another_key_or_other_fields_end_it() -> None:
    made = encode_records

    def other(table: Any, schema: Any, key: bytes, **rest: Any) -> Any:
        return made(table, schema, bytes(32) if rest["context"].endswith("shop") and _turn() else key, **rest)

    turns = iter(range(100))

    def _turn() -> bool:
        return next(turns) % 2 == 0

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("securevfl_psi.linkage.encode_records", other)
        with pytest.raises(AlignmentError, match=r"'bank' and 'shop' cannot be linked.*tags differ"):
            align_parties(_parties(), _job(deduplicate=False))


def test_more_records_than_a_policy_accepts_and_forged_sizes_are_refused() -> None:
    job = _job("active").replace(policies={"bank": Policy(max_set_size=100)})
    with pytest.raises(ProtocolError, match=r"'shop' announces \d+ records; the policy of 'bank' accepts 100"):
        align_parties(_parties(), job)
    send = Link.send
    for change, words in (
        (lambda rest: rest | {"words": rest["words"][:-1]}, "uint8"),
        (lambda rest: rest | {"meta": {"rows": 10**9}}, "announces 1000000000 records"),
        (lambda rest: rest | {"meta": {"rows": True}}, "announced True records"),
        (lambda rest: rest | {"tag": rest["tag"][:3]}, "'tag' as uint8"),
    ):

        async def forge(self: Link, kind: Kind, what: str, change: Any = change, **rest: Any) -> None:
            await send(self, kind, what, **(change(rest) if what == "link/records" and self.me == "shop" else rest))

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Link, "send", forge)
            with pytest.raises(ProtocolError, match=words):
                align_parties(_parties(), _job("active"))


def test_three_parties_link_with_the_active_one_and_align_globally() -> None:
    people = sv.Parties.of(_table("bank", 0, label=True), _table("clinic", 1), _table("shop", 1))
    aligned = align_parties(people, _job())
    rows = {name: found.rows for name, found in aligned.parties.items()}
    assert (rows["clinic"] == rows["shop"]).mean() > 0.9  # one table under two names, each with a key of its own
    assert len(rows["bank"]) > 50
    assert "multi-party PSI" in aligned.parties["bank"].protocol


def test_parties_of_a_network_link_too_and_go_on_from_what_they_linked(tmp_path: Path) -> None:
    """Each with its own files, ledger and report; the coordinator without data compares, and does nothing else."""
    job = _job(weights=True).replace(epochs=1)
    company = create_company(tmp_path, _parties(), job)
    assert company.names == ("bank", "coordinator", "shop")
    company.over_memory()
    for name in company.names:
        (path,) = company.state_folder(name).glob("ledgers/*.jsonl")
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        steps = {line["what"] for line in lines if "what" in line}
        assert any(line.get("note") == "linkage" and "recall between" in line["values"]["what"] for line in lines)
        assert ("train/start" in steps) is (name != "coordinator")
        assert "link/records" in steps
    kept = {name: _stored(company, name) for name in ("bank", "shop")}
    a, b = _files().people
    rows = kept["bank"].rows, kept["shop"].rows
    assert (a[rows[0]] == b[rows[1]]).mean() >= 0.9
    assert "recall between" in kept["bank"].protocol
    assert kept["shop"].weights is None
    assert kept["bank"].weights is not None  # what goes on after an interruption weighs rows alike


def _stored(company: Company, name: str) -> Alignment:
    with StateFolder.lock(company.state_folder(name), party=name, agreement=company.agreement.digest) as state:
        kept = state.read_alignment()
    assert kept is not None
    return kept.alignments["bank"]


def test_mistakes_are_told_before_anything_is_sent(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"'shop' has no linkage field 'date_of_birth', 'given_name'"):
        align_parties(_parties(link=False), _job())
    bad = _table("shop", 1)
    bad = replace(bad, link=dict(bad.link) | {"date_of_birth": ["soon"] * bad.rows})
    with pytest.raises(InputError, match=r"table of 'shop': 'soon' in row 0 of column 'date_of_birth' is not a date"):
        align_parties(sv.Parties.of(_table("bank", 0, label=True), bad), _job())
    for values, words in (
        ({"fields": {}}, "fields is empty"),
        ({"fields": {"a": "txt"}}, "txt"),
        ({"fields": {"a": "text"}, "threshold": 0.5, "precision": 0.9}, "give one of them"),
        ({"fields": {"a": "text"}, "blocks": ["b:sound"]}, r"fields: a\)"),
        ({"fields": {"a": "text"}, "blocks": ["a:quick"]}, "were expected"),
        ({"fields": {"a": "text"}, "witnesses": ["a", "b"]}, "witnesses has 'b'"),
        ({"fields": {"a": "text", "b": "text"}, "witnesses": ["a", "a+b"]}, "no field in both"),
        ({"fields": {"a": "text", "b": "text"}, "witnesses": ["a"]}, "two sets of fields were expected"),
        ({"fields": {"a b": "text"}}, "a name of letters"),
        ({"fields": {"a": {"kind": "text", "salt": "z"}}}, "name another field"),
        ({"fields": {"a": "text"}, "bits": 300}, "multiple of 64"),
    ):
        with pytest.raises(InputError, match=words):
            Linkage.from_values(values)


def test_the_agreement_holds_the_linkage_and_needs_a_coordinator() -> None:
    how = Linkage(fields={"surname": "text", "born": DateField(weight=2.5)}, blocks=("surname:sound",), precision=0.99)
    with pytest.raises(InputError, match=r"linkage by a coordinator .* needs one coordinator; the agreement has none"):
        proposal(link=how)
    helper = card("shop2", role="coordinator", table=None, certificates=(CERTIFICATES["shop2"],))
    made = proposal(link=how, party=(card("bank"), card("shop"), helper))
    again = Proposal.decode(made.signed_bytes)
    assert again.link == how
    assert again.job_of().link == how
    told = [line for paragraph in describe_proposal(again) for line in paragraph.lines]
    assert any("linkage, for want of a common identifier" in line and "precision 0.99" in line for line in told)
    assert any(line.startswith("[leak] coordinator learns") for line in told)
    assert proposal(link=how.replace(linker="active")).link is not None
    with pytest.raises(InputError, match="a coordinator links the records, and it has no part of the model"):
        proposal(link=how, party=(card("bank"), card("shop"), helper), serving=ServingTerms(asks=("bank",)))
    assert made.job_of().digest != proposal().job_of().digest


def test_a_job_file_links_and_leaves_linkage_columns_out_of_the_features(tmp_path: Path) -> None:
    for name, side in (("bank", 0), ("shop", 1)):
        table = _table(name, side, label=name == "bank")
        head = ["number", *(f"{f}_col" if name == "shop" else f for f in FIELDS), f"x_{name}"]
        columns = [table.ids, *(table.link[f] for f in FIELDS), table.columns[f"x_{name}"]]
        if table.label is not None:
            head, columns = [*head, "late"], [*columns, table.label]
        lines = [",".join("" if v is None else str(v) for v in row) for row in zip(*columns, strict=True)]
        (tmp_path / f"{name}.csv").write_text("\n".join([",".join(head), *lines]) + "\n")
    links = ", ".join(f'{f} = "{f}_col"' for f in FIELDS)
    (tmp_path / "job.toml").write_text(
        '[job]\nepochs = 1\n[protection]\nname = "plain"\n'
        "[link.fields]\n"
        + "".join(f'{name} = "{kind}"\n' for name, kind in FIELDS.items())
        + '[[party]]\nname = "bank"\n'
        'file = "bank.csv"\nid = "number"\nlabel = "late"\n[[party]]\nname = "shop"\nfile = "shop.csv"\nid = "number"\n'
        f"link = {{{links}}}\n"
    )
    read = sv.read_job(tmp_path / "job.toml")
    assert {name: table.feature_names for name, table in read.parties.items()} == {
        "bank": ("x_bank",),
        "shop": ("x_shop",),
    }
    aligned = align_parties(read.parties, read.job)
    pairs, right, common = _right(aligned)
    assert right >= 0.9 * pairs
    assert right >= 0.8 * common
    checked = check_file(tmp_path / "job.toml")
    assert checked.mistakes == checked.hints == ()
    assert checked.card is not None
    bank = tmp_path / "bank.csv"
    bank.write_text(re.sub(r",(?:19|20)\d\d\d\d0\d,", ",19000101,", bank.read_text()))
    (hint,) = check_file(tmp_path / "job.toml").hints
    assert "bank.csv, date_of_birth: " in hint
    assert "values are '19000101'" in hint
    (tmp_path / "job.toml").write_text((tmp_path / "job.toml").read_text().replace("street_col", "street_cool"))
    assert any(
        "street_cool" in mistake and "street_col" in mistake for mistake in check_file(tmp_path / "job.toml").mistakes
    )
    with pytest.raises(InputError, match=r"linkage column .* 'street_cool'"):
        sv.read_job(tmp_path / "job.toml")
