"""From a party file to a card, from cards and a job file to a proposal, from a proposal to an approval."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from securevfl_net.identity import Identity
from securevfl_net.identity.making import Key, make_authority
from support.agreement_parties import NOW, Company, card, proposal

import securevfl as sv
from securevfl import cli
from securevfl.agreement import (
    AgreedLimits,
    AgreementUse,
    PartyBudget,
    Proposal,
    TableSchema,
    approve_proposal,
    check_proposal,
    check_running,
    check_versions,
    find_differences,
    identity_of,
    make_party_card,
    peer_book,
    propose_job,
    read_agreement,
    read_party_file,
    require_peers,
    row_of,
)
from securevfl.agreement.plain_words import describe_proposal
from securevfl.agreement.proposing import parse_time, planned_epsilon
from securevfl.errors import Expired, InputError, PolicyError
from securevfl.party import JobTerms
from securevfl.privacy import PrivateKey
from securevfl.process.party_process import _bound_policy

JOB = """
[job]
epochs = 2
accept_leak = true
device = "cuda"

[protection.dp.features]
mechanism = "gaussian"
epsilon = 4.0

[protection]
name = "plain"

[policy.shop]
sealed = true

[data]
name = "breast_cancer"
"""


@pytest.fixture
def bank(tmp_path: Path) -> Company:
    return Company(tmp_path / "bank", "bank")


@pytest.fixture
def shop(tmp_path: Path) -> Company:
    return Company(tmp_path / "shop", "shop", sections='[policy]\nmax_results = "unlimited"\n')


@pytest.fixture
def made(tmp_path: Path, bank: Company, shop: Company) -> Proposal:
    cards = [make_party_card(read_party_file(one.file)) for one in (shop, bank)]
    (tmp_path / "job.toml").write_text(JOB)
    return propose_job(tmp_path / "job.toml", cards, purpose="score credit", expires="30d", now=NOW)


def _command(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str]:
    with pytest.raises(SystemExit) as ended:
        cli.main([str(word) for word in words])
    said = capsys.readouterr()
    return int(str(ended.value.code or 0)), " ".join((said.out + said.err).split())


def test_two_companies_agree_by_commands(
    tmp_path: Path, bank: Company, shop: Company, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "job.toml").write_text(JOB)
    for one in (bank, shop):
        code, said = _command(capsys, "card", one.file)
        assert code == 0
        assert "signs with ed25519:" in said
    cards = ["--card", bank.folder / "bank.card", "--card", shop.folder / "shop.card"]
    file = tmp_path / "agreement.toml"
    code, said = _command(capsys, "propose", tmp_path / "job.toml", *cards, "--purpose", "score credit", "-o", file)
    assert code == 0
    assert "shop: ε up to 8 at δ = 1e-05, over all attempts; one attempt plans ε = 4" in said
    assert _command(capsys, "propose", tmp_path / "job.toml", *cards, "--purpose", "x", "-o", file)[0] == 2
    code, said = _command(capsys, "approve", file, "--file", bank.file)
    assert code == 2
    assert "this is not a terminal" in said
    for one in (bank, shop):
        code, said = _command(capsys, "approve", file, "--file", one.file, "--yes")
        assert code == 0
        assert "[leak]" in said
    assert read_agreement(file).is_complete
    code, said = _command(capsys, "agreement", "show", file, "--as", "bank")
    assert code == 0
    assert "shop: approved, the signature verifies" in said
    assert "bank (you)" in said


def test_a_job_file_gives_the_job_alone(made: Proposal) -> None:
    for private in (b"policy", b"sealed", b"device", b"cuda", b"breast_cancer", b"bank.csv"):
        assert private not in made.signed_bytes
    assert made.job.epochs == 2
    assert made.owner_names == ("bank",)
    assert made.passive_names == ("shop",)
    assert made.card_of("bank").table == TableSchema(
        numbers=("age",), categories=("region",), label="late", classes=("0", "1")
    )
    assert made.card_of("bank").epsilon is None
    assert made.card_of("shop").epsilon == 8.0


def test_parties_with_other_devices_agree(made: Proposal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("securevfl.party.job._is_usable", lambda device: device == "cuda")
    assert made.job_of(device="cuda").digest == made.job_of(device="cpu").digest == made.job_of().digest
    assert made.job_of(device="cuda").device == "cuda"


def test_the_person_reads_all_that_is_signed(made: Proposal) -> None:
    text = "\n".join(line for one in describe_proposal(made, me="shop") for line in (one.title, *one.lines))
    tree = made.to_tree()
    for section in ("job", "algorithm", "versions"):
        for key, value in tree[section].items():
            assert f"{key} {str(value).lower() if isinstance(value, bool) else value}" in text
    for one in made.party:
        assert one.public_key.fingerprint in text
        assert one.tls_certificates[0].fingerprint in text
    for words in ("score credit", made.digest, "2026-12-22", "age", "region", "late", "0, 1", "epsilon 4.0", "[leak]"):
        assert words in text
    assert "Training ends before that after 20 attempts, or after 7 days in attempts." in text  # serving goes on


OTHER = PrivateKey.generate().public_key.fingerprint


def _new_key(one: Company) -> None:
    from securevfl.ledger import make_key

    make_key(one.name, one.folder / "keys")


def _new_certificate(one: Company) -> None:
    from support.identity_parties import World

    for file in (one.folder / "certs").iterdir():
        file.unlink()
    World(one.folder / "certs").own(one.name)


CHANGES: dict[str, tuple[Callable[[Company], None], str]] = {
    "another column": (
        lambda one: (one.folder / "shop.csv").write_text("customer,spent,calls\nP1,1,2\nP2,1,3\n") and None,
        'party.shop.table.numbers: the agreement has ["spent", "visits"], shop.toml has ["spent", "calls"]',
    ),
    "counts": (lambda one: setattr(one, "data", one.data + 'show = "counts"\n'), "shop.toml has 2"),
    "a category": (
        lambda one: setattr(one, "data", one.data + 'categorical = ["visits"]\n'),
        "party.shop.table.categories",
    ),
    "another signing key": (
        lambda one: (one.folder / "keys/shop.key").unlink() or (one.folder / "keys/shop.pub").unlink() or _new_key(one),
        "party.shop.signing_key",
    ),
    "another certificate": (_new_certificate, "party.shop.certificates"),
    "a pinned peer": (
        lambda one: setattr(one, "sections", f'[peer.bank]\ndial = "a:1"\nsigned_by = "{OTHER}"\n'),
        f"[peer.bank] expects {'ed25519:'}",
    ),
}


@pytest.mark.parametrize("what", CHANGES)
def test_differences_are_named_by_field(made: Proposal, shop: Company, what: str) -> None:
    change, words = CHANGES[what]
    change(shop)
    with pytest.raises(InputError) as told:
        approve_proposal(made, read_party_file(shop.file), NOW)
    assert words in str(told.value)


def test_a_stranger_cannot_approve(made: Proposal, bank: Company) -> None:
    shutil.copytree(bank.folder, bank.folder.with_name("other"))
    file = bank.folder.with_name("other") / "bank.toml"
    file.write_text(bank.file.read_text().replace('party = "bank"', 'party = "bamk"'))
    with pytest.raises(InputError, match="party of the agreement"):
        approve_proposal(made, read_party_file(file), NOW)


REFUSALS = {
    "a seal": ('[policy]\nsealed = true\nmax_results = "unlimited"\n', "demands them sealed"),
    "no leak": ('[policy]\nleaks = false\nmax_results = "unlimited"\n', "accepts no known leak"),
    "less ε": ('[policy]\nmax_epsilon = 3.0\nmax_results = "unlimited"\n', "spends ε = 4; the policy allows 3"),
    "fewer attempts": ("[budget]\nattempts = 3\n", "it allows 20 attempts; [budget] in shop.toml allows 3"),
    "fewer seconds": ("[budget]\nseconds = 60\n", "it allows 604,800 seconds; [budget] in shop.toml allows 60"),
    "less ε over attempts": (
        "[budget]\nepsilon = 6.0\n",
        "it allows ε = 8 at δ = 1e-05; [budget] in shop.toml allows 6",
    ),
    "a smaller δ": ("[budget]\nepsilon = 9.0\ndelta = 1e-6\n", "allows 9 at 1e-06"),
}


@pytest.mark.parametrize("what", REFUSALS)
def test_own_rules_refuse_by_name(
    made: Proposal, shop: Company, tmp_path: Path, capsys: pytest.CaptureFixture[str], what: str
) -> None:
    shop.sections, words = REFUSALS[what]
    with pytest.raises(PolicyError) as told:
        approve_proposal(made, read_party_file(shop.file), NOW)
    assert words in str(told.value)
    (tmp_path / "agreement.toml").write_bytes(made.signed_bytes)
    code, said = _command(capsys, "approve", tmp_path / "agreement.toml", "--file", shop.file, "--yes")
    assert code == 3
    assert " ".join(words.split()) in said
    assert not (tmp_path / "agreement.toml.shop.approval").exists()


def test_a_label_book_is_shown_and_refused(tmp_path: Path, made: Proposal, shop: Company) -> None:
    third = card("shop2", table=TableSchema(numbers=1))
    table = made.card_of("bank").table
    assert table is not None
    owner = made.card_of("bank").replace(table=table.replace(book=True))
    booked = made.replace(
        party=(owner, made.card_of("shop"), third), algorithm=sv.RandomMatch(), protection=sv.Plain(), job=JobTerms()
    )
    assert any(
        "labels of people that its table lacks" in line for one in describe_proposal(booked) for line in one.lines
    )
    shop.sections = '[policy]\npairwise_intersections = false\nmax_results = "unlimited"\n'
    with pytest.raises(PolicyError, match="pairwise intersection"):
        approve_proposal(booked, read_party_file(shop.file), NOW)


def test_what_ended_or_is_for_other_versions_is_not_signed(made: Proposal, bank: Company) -> None:
    own = read_party_file(bank.file)
    assert not check_proposal(made, own, NOW).differences
    with pytest.raises(PolicyError, match="it ended at"):
        approve_proposal(made, own, NOW + timedelta(days=31))
    newer = made.replace(versions=made.versions.replace(wire=9))
    with pytest.raises(InputError, match=r"versions\.wire is 1 here and 9 in the agreement"):
        approve_proposal(newer, own, NOW)
    approve_proposal(made.replace(versions=made.versions.replace(securevfl="0.2.9")), own, NOW)  # a patch


def test_a_bound_below_the_plan_is_refused(made: Proposal, shop: Company) -> None:
    less = made.replace(party=(made.card_of("bank"), made.card_of("shop").replace(epsilon=2.0)))
    with pytest.raises(PolicyError, match="plans ε = 4 for 'shop', and it allows 2"):
        approve_proposal(less, read_party_file(shop.file), NOW)


def test_a_bound_is_twice_the_plan_unless_given(tmp_path: Path, made: Proposal) -> None:
    assert planned_epsilon(made, "shop").epsilon == 4.0
    given = propose_job(
        tmp_path / "job.toml", made.party, purpose="x", expires="1h", now=NOW, epsilon={"shop": (5.0, 1e-6)}
    )
    assert (given.card_of("shop").epsilon, given.card_of("shop").delta) == (5.0, 1e-6)
    with pytest.raises(InputError, match="party of the agreement"):
        propose_job(
            tmp_path / "job.toml", made.party, purpose="x", expires="1h", now=NOW, epsilon={"shob": (5.0, 1e-6)}
        )


@pytest.mark.parametrize(
    ("text", "ends"),
    [
        ("30d", "2026-12-22T12:00:00Z"),
        ("90m", "2026-11-22T13:30:00Z"),
        ("2026-12-24", "2026-12-25T00:00:00Z"),
        ("2026-12-24T08:00:00Z", "2026-12-24T08:00:00Z"),
    ],
)
def test_ends_are_given_as_people_do(text: str, ends: str) -> None:
    assert parse_time(text, NOW) == ends
    assert AgreedLimits(expires=ends).expiry_time.tzinfo is UTC


@pytest.mark.parametrize(
    "text", ["", "tomorrow", "0d", "2026-11-01", "2026-02-30", "30", "99999w1", "2026-12-24T08:00:00"]
)
def test_other_ends_are_refused(text: str) -> None:
    with pytest.raises(InputError, match="the end is"):
        parse_time(text, NOW)


def test_two_proposals_are_compared_by_field(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = proposal(id="0" * 32, job={"epochs": 10})
    other = proposal(
        id="0" * 32,
        job={"epochs": 12, "patience": 3},
        party=(card("bank"), card("shop", table=TableSchema(numbers=("spent",)))),
    )
    found = find_differences(one, other, me="bank", peer="shop")
    assert found == [
        "job.epochs: bank has 10, shop has 12",
        'party.shop.table.numbers: bank has ["spent", "visits"], shop has ["spent"]',
        "job.patience: bank has nothing, shop has 3",
    ]
    assert find_differences(one, one) == []
    for name, made in (("one.toml", one), ("other.toml", other)):
        (tmp_path / name).write_bytes(made.signed_bytes)
    code, said = _command(capsys, "agreement", "compare", tmp_path / "one.toml", tmp_path / "other.toml")
    assert code == 2
    assert "job.epochs:" in said
    assert _command(capsys, "agreement", "compare", tmp_path / "one.toml", tmp_path / "one.toml")[0] == 0


def test_lists_that_read_alike_differ() -> None:
    cards = [card("shop", table=TableSchema(numbers=names)) for names in (("a, b",), ("a", "b"))]
    one, other = (proposal(id="0" * 32, party=(card("bank"), one)) for one in cards)
    assert len(find_differences(one, other)) == 1


SPENT = {
    "time": (AgreementUse(), NOW.replace(year=2027), Expired, "ended at 2026-12-31T00:00:00Z, and it is 2027-11-22"),
    "attempts": (AgreementUse(attempts=21), NOW, Expired, "used 21 attempts; the agreement allows 20"),
    "own attempts": (AgreementUse(attempts=11), NOW, Expired, "used 11 attempts; the budget allows 10"),
    "seconds": (AgreementUse(seconds=604_801), NOW, Expired, "used 604,801 seconds; the agreement allows 604,800"),
}


@pytest.mark.parametrize("what", SPENT)
def test_bounds_hold_while_a_job_runs(what: str) -> None:
    from support.agreement_parties import agreed

    found = agreed(proposal(party=(card("bank"), card("shop", epsilon=8.0, delta=1e-5))))
    budget = PartyBudget(attempts=10)
    spent, now, kind, words = SPENT[what]
    with pytest.raises(kind) as told:
        check_running(found, "shop", spent, now, budget=budget)
    assert words in str(told.value)
    check_running(found, "shop", AgreementUse(attempts=10, seconds=604_800), NOW, budget=budget)


def test_bounds_on_epsilon_are_a_part_of_the_policy() -> None:
    made = proposal(party=(card("bank"), card("shop", epsilon=8.0, delta=1e-5)))
    plain = sv.Policy(min_intersection=20)
    assert _bound_policy(plain, made, "bank", None) == plain
    assert _bound_policy(plain, made, "shop", None) == sv.Policy(min_intersection=20, max_epsilon=8.0, max_delta=1e-5)
    tight = PartyBudget(epsilon=7.0, delta=1e-6)
    assert _bound_policy(plain, made, "shop", tight) == sv.Policy(min_intersection=20, max_epsilon=7.0, max_delta=1e-6)
    assert _bound_policy(plain, made, "bank", tight).max_epsilon == 7.0
    assert _bound_policy(sv.Policy(max_epsilon=3.0), made, "shop", tight).max_epsilon == 3.0


@pytest.mark.parametrize(("minutes", "over"), [(-1, False), (4, False), (5, False), (6, True)])
def test_clocks_may_differ_by_five_minutes(minutes: int, over: bool) -> None:
    limits = AgreedLimits(expires="2026-12-31T00:00:00Z")
    assert limits.is_over(datetime(2026, 12, 31, tzinfo=UTC) + timedelta(minutes=minutes)) is over


def test_versions_are_compared(made: Proposal) -> None:
    from securevfl.agreement import Agreement

    check_versions(Agreement(made))
    with pytest.raises(InputError, match="ledger is 3 here and 4 in the agreement"):
        check_versions(Agreement(made.replace(versions=made.versions.replace(ledger=4))))


def test_the_agreement_alone_tells_who_the_peers_are(made: Proposal, bank: Company) -> None:
    from securevfl.agreement import Agreement

    own, agreement = read_party_file(bank.file), Agreement(made)
    assert row_of(agreement, own).shown == identity_of(own)
    book = peer_book(agreement, own, now=lambda: datetime.now(UTC))
    assert book.identify_peer(made.card_of("shop").tls_certificates[0].der) == "shop"
    with pytest.raises(InputError, match=r"gives no way to reach shop: add \[peer.shop\]"):
        require_peers(agreement, own)
    bank.sections = '[peer.shop]\ndial = "shop:1"\n[peer.else]\ndial = "else:1"\n'
    assert list(require_peers(agreement, read_party_file(bank.file))) == ["shop"]


def test_a_party_known_by_its_authority(shop: Company, bank: Company) -> None:
    from support.identity_parties import World

    from securevfl.agreement import Agreement

    world = World(shop.folder / "certs")
    ca = world.authority()
    issued: Identity = world.issued(ca, "shop")
    file = shop.file
    file.write_text(file.read_text().replace("[keys]\n", '[keys]\nauthority = "certs/ca.crt"\n'))
    known = make_party_card(read_party_file(file))
    assert known.certificates == ()
    assert known.issuer_certificate == ca.certificate
    made = proposal(party=(make_party_card(read_party_file(bank.file)), known))
    with pytest.raises(InputError, match=r"crl = … in \[peer.shop\]"):
        peer_book(Agreement(made), read_party_file(bank.file))
    bank.sections = f'[peer.shop]\ndial = "shop:1"\ncrl = "{ca.crl}"\n'
    book = peer_book(Agreement(made), read_party_file(bank.file), now=lambda: datetime.now(UTC))
    assert book.identify_peer(issued.certificate.der) == "shop"
    key = Key.generate()
    (shop.folder / "certs/ca.crt").write_bytes(make_authority("ca", key, NOW).pem)
    with pytest.raises(InputError, match="did not issue"):
        make_party_card(read_party_file(file))


def test_sealed_jobs_show_no_leak_of_the_cut(tmp_path: Path, bank: Company, shop: Company) -> None:
    (tmp_path / "job.toml").write_text('[protection]\nname = "bfv"\n')
    cards = [make_party_card(read_party_file(one.file)) for one in (bank, shop)]
    made = propose_job(tmp_path / "job.toml", cards, purpose="x", expires="1d", now=NOW, accept_leak=True)
    text = "\n".join(line for one in describe_proposal(made) for line in one.lines)
    assert "in the clear" not in text
    assert made.protection == sv.BFV()
