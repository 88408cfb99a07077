"""The result book of real processes: on by default, one for all jobs and purposes, and no older copy is taken."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from support.helpers import make_parties

import securevfl as sv
from securevfl.errors import InputError, PolicyError, ProtocolError
from securevfl.party.consent import exchange_consent
from securevfl.party.ledger_heads import exchange_ledger_heads
from securevfl.party_context import PartyContext
from securevfl.privacy import HeldNumbers, Ledger, NoteLine, Policy, PrivateKey, ResultBook
from securevfl.run.context_building import build_links
from securevfl.run.roster import Roster
from securevfl.testing.company import Company, create_company
from securevfl.testing.linked_parties import link_in_memory
from securevfl.transport import memory_pair

PEOPLE = make_parties(passive=1, rows=60)
JOB = sv.Job(protection=sv.Plain(), algorithm=sv.LogisticRegression(), epochs=1, batch_size=32, seed=3)
"""Opens one number of each row."""
BOOK = "shop1.results.jsonl"
FILES = (BOOK, "shop1.results.key")


def agreed(folder: Path, job: sv.Job = JOB, policy: Policy | None = None) -> Company:
    return create_company(folder, PEOPLE, job, policies={"shop1": policy or Policy()})


def most(folder: Path) -> int:
    return int(ResultBook(folder / BOOK).count_opened(PEOPLE["shop1"].ids, "bank").max())


def said(errors: BaseExceptionGroup) -> str:
    return " ".join(map(str, errors.exceptions))


def carry(one: Path, other: Path) -> None:
    """The party counts in the same book, for another agreement."""
    for name in FILES:
        shutil.copy(one / name, other / name)


def test_a_party_counts_without_being_asked_to_and_refuses_by_default(tmp_path: Path) -> None:
    """Three agreements in three folders, each with other keys and certificates: the book is the party's one."""
    first, second, third = (agreed(tmp_path / name) for name in ("one", "two", "three"))
    first.over_memory()
    assert most(first.folder) == 1
    carry(first.folder, second.folder)
    parties = second.over_memory()
    assert most(second.folder) == 2
    assert parties["shop1"].finished is not None
    (note,) = [
        line for line in parties["shop1"].finished.ledger.lines if isinstance(line, NoteLine) and line.note == "results"
    ]
    facts = dict(note.values)
    assert (facts["asker"], facts["numbers"], facts["numbers with earlier runs"], facts["allowed"]) == ("bank", 1, 2, 2)
    assert facts["bound"] == "default"
    running = ResultBook(second.folder / BOOK).running("bank")
    assert facts["running"] == running > 100
    assert not list(second.folder.glob("bank.results.jsonl"))
    carry(second.folder, third.folder)
    with pytest.raises(ExceptionGroup) as caught:
        third.over_memory()
    assert "beside the 2 already answered for 'bank'" in said(caught.value)
    assert most(third.folder) == 2


def test_an_agreement_beyond_the_default_is_not_approved_and_the_line_to_write_is_named(tmp_path: Path) -> None:
    wide = JOB.replace(algorithm=sv.SplitNN(hidden=4), epochs=3)
    with pytest.raises(PolicyError, match=r"plans 12 numbers .* 'shop1', .*: max_results = 12, or"):
        agreed(tmp_path / "one", wide)
    agreed(tmp_path / "two", wide, Policy(max_results=12))
    with pytest.raises(PolicyError, match="plans 12 numbers"):
        agreed(tmp_path / "three", wide, Policy(max_results=11))


# Who asks.


def test_the_first_asker_is_taken_and_any_further_one_has_to_be_entered(tmp_path: Path) -> None:
    company = agreed(tmp_path / "one")
    book = ResultBook(company.folder / BOOK, party="shop1")
    book.add(book.begin_run(("x",), "Other Bank"), np.array([0]), 1)
    with pytest.raises(ExceptionGroup) as caught:
        company.over_memory()
    words = said(caught.value)
    assert "does not know which one 'bank' is" in words
    assert "[organisations] bank" in words
    assert "Other Bank" not in words  # peers read it
    file = company.folder / "shop1.toml"
    file.write_text(file.read_text() + '[organisations]\nbank = "Other Bank"\n')
    company.over_memory()
    assert ResultBook(company.folder / BOOK).askers == ["Other Bank"]


def test_what_was_counted_for_a_party_belongs_to_the_organisation_that_is_entered_later(tmp_path: Path) -> None:
    company = agreed(tmp_path / "one")
    company.over_memory()
    book = ResultBook(company.folder / BOOK, organisations={"bank": "Big Bank", "bank2": "Big Bank"})
    assert book.count_opened(PEOPLE["shop1"].ids, "Big Bank").max() == 1
    assert book.running("Big Bank") == ResultBook(company.folder / BOOK).running("bank")


# Older copies.


KEYS = {name: PrivateKey.generate() for name in ("bank", "lab", "shop")}
PINS = {name: key.public_key.hex for name, key in KEYS.items()}


@contextmanager
def three(folder: Path) -> Iterator[Mapping[str, PartyContext]]:
    """Bank, lab and shop, each with a folder, keys that the others know, and fresh links."""
    names, roster = ("bank", "lab", "shop"), Roster(owners=("bank",), passive=("lab", "shop"))
    channels: dict[str, dict[str, object]] = {name: {} for name in names}
    for one, other in (("bank", "lab"), ("bank", "shop"), ("lab", "shop")):
        channels[one][other], channels[other][one] = memory_pair(1 << 20)
    made = {}
    for name, site in link_in_memory(passive=("lab", "shop"), active="bank").items():
        ledger = Ledger(name, run="r", job="j", key=KEYS[name], pins=PINS)
        links = build_links(roster, name, channels[name], None, ledger=ledger, policy=site.policy, clock=site.clock)  # type: ignore[arg-type]
        made[name] = replace(
            site,
            ledger=ledger,
            links=links,
            simulated=False,
            results=ResultBook(folder / name / "results.jsonl", party=name),
            held=HeldNumbers(folder / name / "results.peers"),
        )
    yield made
    for site in made.values():
        site.close()


def meet(folder: Path, *, numbers: int = 0) -> None:
    """Consent; then the shop counts so many numbers, and the run ends."""

    async def at(site: PartyContext) -> None:
        await exchange_consent(site, JOB, book=False)
        if numbers and site.name == "shop":
            site.results.add(site.results.begin_run(("ann",), "bank"), np.array([0]), numbers)
        await exchange_ledger_heads(site)

    async def everybody(sites: Mapping[str, PartyContext]) -> None:
        async with asyncio.TaskGroup() as group:
            for site in sites.values():
                group.create_task(at(site))

    with three(folder) as sites:
        asyncio.run(everybody(sites))


def held(folder: Path, name: str, owner: str = "shop") -> int | None:
    found = HeldNumbers(folder / name / "results.peers").find(PINS[owner], PINS["bank"])
    return None if found is None else found.number


def test_peers_hold_the_running_number_and_refuse_an_older_copy(tmp_path: Path) -> None:
    meet(tmp_path, numbers=1)
    assert (held(tmp_path, "bank"), held(tmp_path, "lab"), held(tmp_path, "bank", "lab")) == (1, 1, 0)
    shutil.copytree(tmp_path / "shop", tmp_path / "copy")
    meet(tmp_path, numbers=1)
    meet(tmp_path)
    assert (held(tmp_path, "bank"), held(tmp_path, "lab")) == (2, 2)
    shutil.rmtree(tmp_path / "shop")
    shutil.copytree(tmp_path / "copy", tmp_path / "shop")
    with pytest.raises(ExceptionGroup) as caught:
        meet(tmp_path, numbers=1)
    words = said(caught.value)
    assert "'shop''s result book is older than what" in words
    assert "it has counted 1 numbers for 'bank', and 'shop' signed 2 before" in words
    assert all(isinstance(error, InputError) for error in caught.value.exceptions)
    assert ResultBook(tmp_path / "shop" / "results.jsonl").running("bank") == 1


def test_one_peer_that_holds_the_number_is_enough(tmp_path: Path) -> None:
    meet(tmp_path, numbers=2)
    (tmp_path / "bank" / "results.peers").unlink()
    for file in (tmp_path / "shop").iterdir():
        file.unlink()
    with pytest.raises(ExceptionGroup) as caught:
        meet(tmp_path)
    assert "is older" in said(caught.value)
    (tmp_path / "lab" / "results.peers").unlink()
    meet(tmp_path)


def test_a_peer_cannot_claim_a_number_that_the_party_did_not_sign(tmp_path: Path) -> None:
    meet(tmp_path, numbers=1)
    file = tmp_path / "bank" / "results.peers"
    assert b'"number":1' in file.read_bytes()
    file.write_bytes(file.read_bytes().replace(b'"number":1', b'"number":9'))
    with pytest.raises(ExceptionGroup) as caught:
        meet(tmp_path)
    assert "that 'shop' did not sign" in said(caught.value)
    assert any(isinstance(error, ProtocolError) for error in caught.value.exceptions)


def test_damaged_numbers_of_peers_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "results.peers"
    path.write_text("{")
    with pytest.raises(InputError, match=r"is damaged .* restore it, or delete it"):
        HeldNumbers(path).find("a", "b")
