"""Two companies with keys, certificates, tables and party files, and the agreement between them."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from securevfl_net.identity.making import Key, self_signed

import securevfl as sv
from securevfl.agreement import AgreedLimits, Agreement, Approval, PartyCard, Proposal, TableSchema, Versions
from securevfl.agreement.cards import certificate_text
from securevfl.ledger import make_key
from securevfl.party import JobTerms
from securevfl.privacy import PrivateKey
from support.identity_parties import World

NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)
ENDS = "2026-12-31T00:00:00Z"
TABLES = {
    "bank": TableSchema(numbers=("age",), categories=("region",), label="late", classes=("0", "1")),
    "shop": TableSchema(numbers=("spent", "visits")),
    "shop2": TableSchema(numbers=3, categories=1),
}
KEYS = {name: PrivateKey.generate() for name in TABLES}
CERTIFICATES = {name: certificate_text(self_signed(name, Key.generate(), NOW)) for name in TABLES}


def card(name: str, **changes: Any) -> PartyCard:
    values: dict[str, Any] = {
        "name": name,
        "role": "active" if TABLES[name].label else "passive",
        "signing_key": KEYS[name].public_key.hex,
        "certificates": (CERTIFICATES[name],),
        "table": TABLES[name],
    }
    return PartyCard(**(values | changes))


def proposal(*names: str, job: Mapping[str, Any] | None = None, **changes: Any) -> Proposal:
    values: dict[str, Any] = {
        "id": secrets.token_hex(16),
        "purpose": "score credit",
        "limits": AgreedLimits(expires=ENDS),
        "versions": Versions.read_installed(),
        "job": JobTerms(**(job or {})),
        "algorithm": sv.SplitNN(),
        "protection": sv.Plain(),
        "party": tuple(card(name) for name in names or ("bank", "shop")),
    }
    return Proposal(**(values | changes))


def agreed(made: Proposal) -> Agreement:
    found = Agreement(made)
    for name in made.party_names:
        found = found.with_approval(Approval.sign(made, name, KEYS[name]))
    return found


BANK_TABLE = "ref,age,region,late\n" + "".join(f"P{i},{20 + i},{'NS'[i % 2]},{i // 2 % 2}\n" for i in range(40))
SHOP_TABLE = "customer,spent,visits\n" + "".join(f"P{i},{i / 8},{i % 9}\n" for i in range(40))
DATA = {
    "bank": ("bank.csv", BANK_TABLE, 'id = "ref"\nlabel = "late"\ncategorical = ["region"]\n'),
    "shop": ("shop.csv", SHOP_TABLE, 'id = "customer"\n'),
}


@dataclass
class Company:
    """One party's folder, with a party file to which a test may add sections.

    Attributes:
        more: before the first section of the party file.
        sections: after the last one.
    """

    folder: Path
    name: str
    more: str = ""
    sections: str = ""
    data: str = ""
    files: list[Path] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.folder.mkdir(mode=0o700)
        file, table, self.data = DATA[self.name]
        (self.folder / file).write_text(table)
        certs = self.folder / "certs"
        certs.mkdir(mode=0o700)
        World(certs).own(self.name)
        make_key(self.name, self.folder / "keys")

    @property
    def file(self) -> Path:
        """The party file, written as it is by now."""
        path = self.folder / f"{self.name}.toml"
        path.write_text(
            f'party = "{self.name}"\nbaselines = false\n{self.more}\n'
            f'[data]\nfile = "{self.name}.csv"\n{self.data}\n[keys]\n'
            f'signing = "keys/{self.name}.key"\ncertificate = "certs/{self.name}.crt"\nkey = "certs/{self.name}.key"\n'
            f"{self.sections}"
        )
        return path
