"""A party's own file, TOML: its data, keys, policy, budget, device, pool, and how to reach its peers. It is private: no
peer ever sees it. Peers see the card that is made from it (`securevfl card`).

```toml
party = "bank"
state = "state"

[data]
file = "bank.csv"
id = "ref"
label = "late"

[keys]
signing = "keys/bank.key"
certificate = "certs/bank.crt"
key = "certs/bank.tls.key"

[peer.shop]
dial = "shop.example:7443"
```
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from securevfl.config import Config
from securevfl.data import PartyTable
from securevfl.data.table import explain_bad_name
from securevfl.errors import InputError
from securevfl.jobfile.job_file import TableSection
from securevfl.jobfile.policy_file import read_policy
from securevfl.jobfile.toml_text import raise_all, read_sections, read_toml
from securevfl.ledger import read_private_key
from securevfl.party.report_options import ReportOptions
from securevfl.privacy import Policy, PrivateKey

__all__ = ["Address", "KeySection", "PartyBudget", "PartyDataSection", "PartyFile", "PeerSection", "read_party_file"]

Word = Annotated[str, Meta(min_length=1, max_length=4096)]
Hex = Annotated[str, Meta(min_length=64, max_length=64)]


@dataclass(frozen=True)
class Address:
    """A host and a port; 0 for any that is free."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> Address:
        """Parse ``"host:port"`` or ``"[v6]:port"``.

        Raises:
            InputError: it is neither.
        """
        host, colon, port = text.rpartition(":")
        plain = host[1:-1] if host.startswith("[") and host.endswith("]") else host
        wrong = not colon or not plain or (":" in plain) != (plain != host) or not plain.isprintable() or " " in plain
        if wrong or not (port.isascii() and port.isdigit() and len(port) <= 5 and int(port) < 1 << 16):
            raise InputError(f'{text[:80]!r} is no address; "host:port" was expected, port 0 to 65535')
        return cls(plain, int(port))

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class PartyDataSection(TableSection):
    """``[data]``: the party's table, and what its card shows of it.

    Attributes:
        show: ``"names"`` of columns and classes, or ``"counts"`` of them.
    """

    show: Literal["names", "counts"] = "names"

    @classmethod
    def section_path(cls) -> str:
        return "data"


class KeySection(Config):
    """``[keys]``: files of keys and certificates, PEM.

    Attributes:
        signing: the party's Ed25519 key (`securevfl keys`): for approvals and ledgers.
        certificate: its TLS certificate.
        key: the certificate's private key.
        authority: certificate of the authority that issues this party's certificates, if peers shall identify it by
            that rather than by the certificate itself.
    """

    signing: Word
    certificate: Word
    key: Word
    authority: Word | None = None

    @classmethod
    def section_path(cls) -> str:
        return "keys"


class PartyBudget(Config):
    """``[budget]``: what the party will spend at most, whatever an agreement allows. None for no limit.

    Attributes:
        epsilon: most ε of its own releases, over all attempts.
        delta: with which that is counted.
        attempts: most attempts.
        seconds: most seconds in attempts, all together.
    """

    epsilon: Annotated[float, Meta(gt=0, le=1e6)] | None = None
    delta: Annotated[float, Meta(gt=0, lt=1)] = 1e-5
    attempts: Annotated[int, Meta(ge=1)] | None = None
    seconds: Annotated[int, Meta(ge=1)] | None = None

    @classmethod
    def section_path(cls) -> str:
        return "budget"


class PeerSection(Config):
    """``[peer.NAME]``: how one peer is reached. Exactly one of `dial`, `relay` and `listen`.

    Attributes:
        dial: the peer's address, ``"host:port"``.
        relay: address of a relay that both dial; with `rendezvous`.
        listen: the peer dials this party, at `PartyFile.listen`.
        rendezvous: 64 hexadecimal digits that both give the relay.
        token: file with the relay's token.
        proxy: address of an HTTP proxy that dials for this party (CONNECT).
        proxy_login: private file with the proxy's ``user:password`` in one line.
        signed_by: fingerprint of the peer's signing key, ``"ed25519:…"``, as the peer gave it in person: an agreement
            with another one is refused.
        crl: file with the list of certificates that the peer's authority revoked, where it is known by one.
        window: most bytes on their way to this peer and back.
    """

    dial: Word | None = None
    relay: Word | None = None
    listen: bool = False
    rendezvous: Hex | None = None
    token: Word | None = None
    proxy: Word | None = None
    proxy_login: Word | None = None
    signed_by: Word | None = None
    crl: Word | None = None
    window: Annotated[int, Meta(ge=1 << 16, le=1 << 32)] = 32 << 20

    @classmethod
    def section_path(cls) -> str:
        return "peer"

    def problems(self) -> list[str]:
        found = super().problems()
        ways = [name for name in ("dial", "relay", "listen") if getattr(self, name)]
        if len(ways) != 1:
            found.append(f"give one of dial, relay and listen to reach a peer; given: {', '.join(ways) or 'none'}")
        if (self.relay is None) != (self.rendezvous is None):
            found.append("relay and rendezvous go together; make one with: securevfl relay --new-meeting")
        if self.rendezvous is not None and set(self.rendezvous) - set("0123456789abcdef"):
            found.append("rendezvous is not 64 hexadecimal digits, lower case")
        if (self.relay is None) != (self.token is None):
            found.append("relay and token go together; make one with: securevfl relay --new-token NAME")
        if self.proxy_login is not None and self.proxy is None:
            found.append("proxy_login is for a proxy; leave it out")
        if self.proxy is not None and self.listen:
            found.append("a proxy dials, and this party listens; leave one out")
        for name in ("dial", "relay", "proxy"):
            found += _no_address(name, getattr(self, name))
        return found


def _no_address(what: str, text: str | None) -> list[str]:
    try:
        _ = Address.parse(text) if text is not None else None
    except InputError as error:
        return [f"{what}: {error}"]
    return []


class _Sections(Config):
    """All sections of a party file."""

    party: Annotated[str, Meta(max_length=64)] = ""
    state: Word = "state"
    results: Word | None = None
    filters: Word | None = None
    start: Word | None = None
    device: Word = "cpu"
    pool: Word = "local"
    baselines: bool = True
    listen: Word | None = None
    policy_file: Word | None = None
    data: PartyDataSection | None = None
    keys: KeySection | None = None
    policy: Policy | None = None
    budget: PartyBudget = msgspec.field(default_factory=PartyBudget)
    report: ReportOptions = msgspec.field(default_factory=ReportOptions)
    peer: Mapping[str, PeerSection] = msgspec.field(default_factory=dict)
    organisations: Mapping[str, Word] = msgspec.field(default_factory=dict)


def _report_mistakes(sections: _Sections) -> list[str]:
    """What the party's own report could never show."""
    if sections.report == ReportOptions():
        return []
    if sections.data is None or sections.data.label is None:
        return ["report is for the party with the labels, whose report has figures of scores: leave it out"]
    grouping = sections.report.grouping(sections.party)
    if grouping is None or grouping[0] == sections.party:
        return []
    return [
        f"report.group is {sections.report.group!r}, a column of {grouping[0]!r}: this party does not have its values, "
        "and nothing is sent for a report. Name a column of its own table; only a simulation can group by another's"
    ]


@dataclass(frozen=True, kw_only=True)
class PartyFile:
    """Content of a party file. Relative paths in it are relative to `folder`.

    Attributes:
        path: of the file.
        party: whose it is.
        state: the state folder.
        results: the party's result book: there it counts the numbers of each of its rows that it answered, over all
            agreements and what is served of them. ``PARTY.results.jsonl`` beside the party file unless given; back it
            up, and never put an older copy in its place.
        filters: folder for filters and keys of unbalanced alignments, if an agreement allows keeping them; None to keep
            none.
        start: state folder of the agreement whose model training goes on from, if the agreement asks for that; None for
            none.
        device: ``"cpu"`` or ``"cuda"``.
        pool: workers for the products of a sealed cut; see `securevfl_crypto.pools.open_pool`.
        baselines: whether a label owner also trains what it has alone, so that its report says what joining was worth.
        listen: own address; None to accept no connections.
        data: the table; None at a coordinator.
        keys: paths of keys and certificates, as `KeySection` has them; see `resolve_path`.
        policy: the party's own; of its file and of the section, both.
        budget: the party's own.
        report: what its own report decides with, if it has the labels: costs, and one of its columns.
        peers: name → how it is reached.
        organisations: name of a party → its organisation, as this party's officer knows it. Numbers are counted for
            organisations: two parties of one organisation share what it may have.
    """

    path: Path
    party: str
    state: Path
    results: Path
    filters: Path | None
    start: Path | None
    device: str
    pool: str
    baselines: bool
    listen: Address | None
    data: PartyDataSection | None
    keys: KeySection
    policy: Policy
    budget: PartyBudget
    report: ReportOptions
    peers: Mapping[str, PeerSection]
    organisations: Mapping[str, str]

    @property
    def folder(self) -> Path:
        """Folder of the party file."""
        return self.path.parent

    @property
    def days(self) -> Path:
        """Folder of the party's day book, beside the result book: who was scored today, over all its servers."""
        return self.results.with_suffix(".days")

    def resolve_path(self, name: str) -> Path:
        """A path that the file names."""
        return self.folder / name

    def signing_key(self) -> PrivateKey:
        """The party's signing key.

        Raises:
            InputError: it cannot be read, or others can.
        """
        return read_private_key(self.resolve_path(self.keys.signing))

    def read_table(self) -> PartyTable | None:
        """The party's table; None at a coordinator.

        Raises:
            InputError: it cannot be used.
        """
        grouping = self.report.grouping(self.party)
        beside = "" if grouping is None else grouping[1]
        return None if self.data is None else self.data.read_table(self.folder, self.party, beside)


def read_party_file(path: str | Path) -> PartyFile:
    """Read a party file. Keys and tables that it names are read when they are used.

    Raises:
        InputError: no such file, not TOML, or mistakes, all of them in one message.
    """
    file = Path(path)
    content = read_toml(file, "party", 'the page "Propose and approve a job"')
    sections, broken, found = read_sections(_Sections, content, [])
    rule = explain_bad_name(sections.party) if "party" not in broken else ""
    if "party" not in content:
        found.append('it does not say whose it is: begin with party = "…", the name in the agreement')
    elif rule:
        found.append(rule)
    if "keys" not in content:
        found.append("keys is missing; give signing, certificate and key, see `securevfl keys` and `securevfl certs`")
    found += _no_address("listen", sections.listen)
    listening = [name for name, peer in sections.peer.items() if peer.listen]
    if listening and sections.listen is None and "listen" not in broken:
        found.append(f'{", ".join(listening)} dial this party, which listens nowhere; give listen = "host:port"')
    found += [f"peer.{name}: {rule}" for name in sections.peer if (rule := explain_bad_name(name))]
    if sections.party in sections.peer:
        found.append(f"peer.{sections.party} is the party itself; name its peers")
    policy = sections.policy or Policy()
    if sections.policy_file is not None and "policy_file" not in broken:
        try:
            whose, own = read_policy(file.parent / sections.policy_file)
            policy = policy.combine_strictest(own) if sections.policy is not None else own
            if whose != sections.party:
                found.append(f"policy_file is the policy of {whose!r}, this is the file of {sections.party!r}")
        except InputError as error:
            found.append(f"policy_file: {error}")
    found += _report_mistakes(sections)
    raise_all(file, found)
    if sections.keys is None:
        raise InputError(f"{file}: keys is missing")
    return PartyFile(
        path=file,
        party=sections.party,
        state=file.parent / sections.state,
        results=file.parent / (sections.results or f"{sections.party}.results.jsonl"),
        organisations=sections.organisations,
        filters=None if sections.filters is None else file.parent / sections.filters,
        start=None if sections.start is None else file.parent / sections.start,
        device=sections.device,
        pool=sections.pool,
        baselines=sections.baselines,
        listen=None if sections.listen is None else Address.parse(sections.listen),
        data=sections.data,
        keys=sections.keys,
        policy=policy,
        budget=sections.budget,
        report=sections.report,
        peers=sections.peer,
    )
