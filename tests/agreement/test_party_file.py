"""A party's own file: every mistake at once, paths relative to it, peers reached in one way each."""

from __future__ import annotations

from pathlib import Path

import pytest

from securevfl.agreement import Address, read_party_file
from securevfl.errors import InputError
from securevfl.privacy import Policy

WHOLE = """party = "bank"
state = "there/state"
device = "cpu"
listen = "127.0.0.1:0"
policy_file = "policy.toml"

[data]
file = "bank.csv"
id = "ref"
label = "late"
categorical = ["region"]
show = "counts"

[keys]
signing = "keys/bank.key"
certificate = "certs/bank.crt"
key = "certs/bank.key"

[policy]
min_intersection = 500

[budget]
epsilon = 8.0
attempts = 5

[peer.shop]
dial = "shop.example:7443"
proxy = "proxy:3128"

[peer.lab]
listen = true

[peer.club]
relay = "[::1]:7000"
rendezvous = "%s"
token = "relay.token"
window = 1048576
""" % ("ab" * 32)
KEYS = '[keys]\nsigning = "a"\ncertificate = "b"\nkey = "c"\n'


def _read(folder: Path, text: str) -> str:
    file = folder / "bank.toml"
    file.write_text(text)
    with pytest.raises(InputError) as told:
        read_party_file(file)
    return str(told.value)


def test_what_a_party_file_says(tmp_path: Path) -> None:
    (tmp_path / "bank.toml").write_text(WHOLE)
    (tmp_path / "policy.toml").write_text('party = "bank"\nmax_epsilon = 4.0\n')
    own = read_party_file(tmp_path / "bank.toml")
    assert own.party == "bank"
    assert own.state == tmp_path / "there/state"
    assert own.listen == Address("127.0.0.1", 0)
    assert own.policy == Policy(min_intersection=500, max_epsilon=4.0)
    assert own.budget.attempts == 5
    assert own.resolve_path(own.keys.key) == tmp_path / "certs/bank.key"
    assert own.data is not None
    assert own.data.path_from(own.folder) == tmp_path / "bank.csv"
    assert own.peers["club"].window == 1 << 20
    assert own.peers["lab"].listen


def test_all_mistakes_at_once(tmp_path: Path) -> None:
    text = WHOLE.replace('device = "cpu"', "device = 3").replace("[peer.lab]\nlisten = true", "[peer.lab]")
    text = text.replace('dial = "shop.example:7443"', 'dial = "shop.example"').replace("[budget]", "[budgt]")
    text = text.replace('listen = "127.0.0.1:0"', 'listen = "127.0.0.1:99999"')
    said = _read(tmp_path, text)
    for words in (
        "device is 3; a text",
        "the file has no 'budgt'; did you mean 'budget'?",
        "peer.shop: dial: 'shop.example' is no address",
        "peer.lab: give one of dial, relay and listen to reach a peer; given: none",
        "listen: '127.0.0.1:99999' is no address",
        "policy_file: ",
    ):
        assert words in said


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (KEYS, "does not say whose it is"),
        ('party = "Bank"\n' + KEYS, "names are lower-case words"),
        ('party = "bank"\n', "keys is missing"),
        ('party = "bank"\n' + KEYS + '[peer.bank]\ndial = "a:1"\n', "peer.bank is the party itself"),
        ('party = "bank"\n' + KEYS + "[peer.shop]\nlisten = true\n", "shop dial this party, which listens nowhere"),
        ('party = "bank"\n' + KEYS + '[peer.shop]\ndial = "a:1"\nrelay = "b:1"\n', "given: dial, relay"),
        ('party = "bank"\n' + KEYS + '[peer.shop]\nrelay = "b:1"\n', "relay and rendezvous go together"),
        ('party = "bank"\n' + KEYS + '[peer.shop]\ndial = "a:1"\ntoken = "t"\n', "relay and token go together"),
        ('party = "bank"\npolicy_file = "p.toml"\n' + KEYS, "policy_file is the policy of 'shop'"),
        ("party = ", "is not TOML"),
    ],
)
def test_mistakes_are_named(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "p.toml").write_text('party = "shop"\n')
    assert words in _read(tmp_path, text)


@pytest.mark.parametrize("text", ["a:1", "a.example:65535", "127.0.0.1:0", "[::1]:80"])
def test_addresses(text: str) -> None:
    assert str(Address.parse(text)) == text


@pytest.mark.parametrize(
    "text", ["", ":", "a", "a:", ":1", "a:65536", "a:-1", "::1:80", "[a]:1", "a b:1", "a:1 ", "a:٣", "a:000001"]
)
def test_no_addresses(text: str) -> None:
    with pytest.raises(InputError, match="is no address"):
        Address.parse(text)
