"""Mistakes between companies: party files, keys, cards, agreements, addresses."""

from __future__ import annotations

from pathlib import Path

from support.mistakes.making import BANK_FILE, SHOP_FILE, Mistake, edit

__all__ = ["BETWEEN"]

PROPOSE = "propose job.toml --card bank.card --purpose trial --out other.toml"
PARTY = "party agreement.toml --as bank"


def _open_key() -> None:
    Path("keys/bank.key").chmod(0o644)


def _swap_keys() -> None:
    for ending in ("key", "pub"):
        Path(f"keys/bank.{ending}").write_bytes(Path(f"keys/shop.{ending}").read_bytes())


def _change_card() -> None:
    card = Path("shop.card")
    card.write_bytes(card.read_bytes() + b"# checked\n")


def _change_agreement() -> None:
    file = Path("agreement.toml")
    file.write_bytes(file.read_bytes().replace(b'purpose = "trial"', b'purpose = "sales"'))


BETWEEN = [
    Mistake(
        "init with two tables and a card", "init bank.csv shop.csv --card bank.card", "2 tables", "this party's own"
    ),
    Mistake(
        "a second label beside a card's",
        "init bank.csv --card bank.card --name other --label late",
        "'bank' has the label",
        "leave --label out",
    ),
    Mistake("the name of the card's party", "init shop.csv --card bank.card --name bank", "'bank'", "--name"),
    Mistake(
        "a peer's address to fill in",
        "check shop.toml",
        "line 10",
        '"host:port"',
        {"shop.toml": edit(SHOP_FILE, '"127.0.0.1:7443"', '"FILL IN"')},
    ),
    Mistake(
        "an address without a port",
        "check bank.toml",
        "'127.0.0.1'",
        "host:port",
        {"bank.toml": edit(BANK_FILE, '"127.0.0.1:7443"', '"127.0.0.1"')},
    ),
    Mistake(
        "a party file without keys",
        "check bank.toml",
        "keys is missing",
        "securevfl keys",
        {"bank.toml": BANK_FILE.partition("[keys]")[0]},
    ),
    Mistake("a key that others can read", "check bank.toml", "0644", "chmod 600", before=_open_key),
    Mistake(
        "a card changed by hand",
        PROPOSE + " --card shop.card",
        "shop.card",
        "as `securevfl card` wrote it",
        before=_change_card,
    ),
    Mistake("one card twice", PROPOSE + " --card bank.card", "'bank'", "once"),
    Mistake(
        "a job file as a card", "propose job.toml --card job.toml --purpose trial --out other.toml", "job.toml", "card"
    ),
    Mistake("an end in the past", PROPOSE + " --card shop.card --expires 2020-01-01", "2020-01-02", "later"),
    Mistake("approving without a terminal", "approve agreement.toml --file shop.toml", "not a terminal", "--yes"),
    Mistake(
        "signing with another key",
        "approve agreement.toml --file bank.toml --yes",
        "signing_key",
        "bank.toml has",
        before=_swap_keys,
    ),
    Mistake(
        "an agreement changed after it was signed",
        PARTY,
        "approved agreement",
        "approve this one",
        {},
        8,
        _change_agreement,
    ),
    Mistake(
        "a party that has not approved",
        "party agreement.toml --as shop",
        "'shop' has not approved",
        "securevfl approve",
    ),
    Mistake(
        "a party that is not in the agreement",
        "party agreement.toml --as bnk --file bank.toml",
        "not of 'bnk'",
        "give the right one",
    ),
    Mistake(
        "a table changed after the agreement",
        PARTY,
        "the agreement has",
        "bank.toml has",
        {"bank.csv": "ref,age,region,late\nP001,20,N,1\nP002,21,S,0\n"},
    ),
    Mistake(
        "a port in use", PARTY, "127.0.0.1:7443", "another address", {"bank.toml": edit(BANK_FILE, "7443", "BUSY")}, 75
    ),
    Mistake(
        "a peer that is away",
        PARTY + " --wait 0.1 --file bank.toml",
        "waited 0 s for shop",
        "start it again",
        {"bank.toml": edit(BANK_FILE, "7443", "0")},
        75,
    ),
    Mistake(
        "status of a folder that is not a state folder", "status keys", "keys/status.json", "name the state folder"
    ),
]
