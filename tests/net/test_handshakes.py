"""Who has to go when too many call at once."""

from __future__ import annotations

import socket
from dataclasses import dataclass
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from securevfl_net.gate.connection import Connection, Phase
from securevfl_net.gate.handshakes import Handshakes, find_network


@dataclass(eq=False)
class _Caller:
    name: str
    phase: int = Phase.PEEK
    dialled: bool = False


def _add(room: Handshakes, name: str, network: str, phase: int = Phase.PEEK, *, dialled: bool = False) -> Connection:
    caller = cast(Connection, _Caller(name, phase, dialled))
    room.add(caller, network)
    return caller


def _loser(room: Handshakes, network: str) -> str:
    loser = room.choose_loser(network)
    return "" if loser is None else cast(_Caller, loser).name


def test_a_network_with_many_callers_loses_its_oldest_silent_one() -> None:
    room = Handshakes(4)
    _add(room, "honest", "h")
    _add(room, "speaks", "f", Phase.SHAKE)
    _add(room, "first", "f")
    assert _loser(room, "f") == ""
    _add(room, "second", "f")
    assert _loser(room, "f") == "first"
    assert _loser(room, "another") == "first"


def test_calls_of_this_party_take_no_place_and_never_go() -> None:
    room = Handshakes(2)
    for i in range(5):
        _add(room, f"own{i}", "", dialled=True)
    assert _loser(room, "x") == ""
    _add(room, "x0", "x")
    _add(room, "x1", "x")
    assert _loser(room, "y") == "x0"


def test_a_network_that_a_peer_came_from_keeps_places_among_many_networks() -> None:
    room = Handshakes(3)
    peer = _add(room, "peer", "p", Phase.LIVE)
    room.remove(peer)
    _add(room, "again", "p")
    _add(room, "n1", "1")
    _add(room, "n2", "2")
    assert _loser(room, "3") == "n1"  # without the memory it would be "again", the oldest of equals


def test_a_known_network_that_floods_loses_its_own() -> None:
    room = Handshakes(8)
    room.remove(_add(room, "peer", "p", Phase.LIVE))
    for i in range(7):
        _add(room, f"p{i}", "p")
    _add(room, "other", "o")
    assert _loser(room, "p") == "p0"


@given(st.lists(st.sampled_from("abcde"), min_size=1, max_size=200), st.integers(2, 12))
def test_nobody_goes_whose_network_has_fewer_callers_than_another(calls: list[str], most: int) -> None:
    room, held = Handshakes(most), dict.fromkeys("abcde", 0)
    for network in calls:
        loser = room.choose_loser(network)
        assert (loser is None) == (sum(held.values()) < most)
        if loser is not None:
            gone = cast(_Caller, loser).name
            after = held | {network: held[network] + 1}
            assert after[gone] == max(after[name] for name in held if held[name])
            room.remove(loser)
            held[gone] -= 1
        _add(room, network, network)
        held[network] += 1
        assert len(room) == sum(held.values()) <= most


@pytest.mark.parametrize(
    ("host", "network"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("", ""),
    ],
)
def test_a_network_is_an_address_or_the_64_that_one_customer_has(host: str, network: str) -> None:
    class Named:
        def getpeername(self) -> tuple[str, int]:
            if not host:
                raise OSError
            return host, 1

    assert find_network(cast(socket.socket, Named())) == network
