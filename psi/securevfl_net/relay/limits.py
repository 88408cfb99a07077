"""What one customer, one address and all together may take of a relay."""

from __future__ import annotations

import ipaddress
from collections import Counter, OrderedDict
from dataclasses import dataclass

__all__ = ["Allowance", "Limits", "network_of"]

_ADDRESSES = 4096
"""Addresses whose rate is remembered at a time; the one that was quiet longest is forgotten first."""
_DAY = 86_400.0


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Of a relay. Its memory is at most `connections` times about 150 kB.

    Attributes:
        connections: at a time, of all.
        per_address: at a time, of one IPv4 address or one IPv6 network of 64 bits.
        per_customer: at a time, of one token.
        attempts: new connections a minute, of one address.
        bytes_a_day: that one token's connections pass on, counted at the sender.
        bytes_a_second: that a connection passes on in each direction.
        introduction: seconds to say who one is.
        waiting: seconds for the other party to come.
        idle: seconds without a byte in either direction, after which a pair ends.
    """

    connections: int = 512
    per_address: int = 64
    per_customer: int = 64
    attempts: int = 120
    bytes_a_day: int = 1 << 40
    bytes_a_second: int = 1 << 30
    introduction: float = 5.0
    waiting: float = 60.0
    idle: float = 300.0


def network_of(address: str) -> str:
    """What counts as one address: an IPv6 host has a network of 64 bits to itself."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(found, ipaddress.IPv6Address):
        if found.ipv4_mapped:
            return str(found.ipv4_mapped)
        return str(ipaddress.ip_network((found, 64), strict=False))
    return str(found)


class Allowance:
    """Counts what is in use. Knows no clock: times are given, seconds of a clock that only runs forward.

    Args:
        limits: that hold.
    """

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.connections = 0
        self._addresses: Counter[str] = Counter()
        self._customers: Counter[str] = Counter()
        self._attempts: OrderedDict[str, tuple[float, float]] = OrderedDict()  # address → attempts left, as of when
        self._bytes: dict[str, tuple[float, int]] = {}  # customer → since when, bytes

    def enter(self, address: str, now: float) -> bool:
        """Whether one more connection of an address may come; if so it is counted until `leave`."""
        if not self._attempt(address, now) or self.connections >= self.limits.connections:
            return False
        if self._addresses[address] >= self.limits.per_address:
            return False
        self.connections += 1
        self._addresses[address] += 1
        return True

    def leave(self, address: str) -> None:
        """A connection that entered is gone."""
        self.connections -= 1
        self._addresses[address] -= 1
        if not self._addresses[address]:
            del self._addresses[address]

    def take(self, customer: str) -> bool:
        """Whether one more connection of a token may wait or be paired; if so it is counted until `give_back`."""
        if self._customers[customer] >= self.limits.per_customer:
            return False
        self._customers[customer] += 1
        return True

    def give_back(self, customer: str) -> None:
        """A connection that was taken is gone."""
        self._customers[customer] -= 1
        if not self._customers[customer]:
            del self._customers[customer]

    def passed(self, customer: str, count: int, now: float) -> bool:
        """Count bytes of a customer; whether it may go on."""
        since, whole = self._bytes.get(customer, (now, 0))
        if now - since >= _DAY:
            since, whole = now, 0
        self._bytes[customer] = since, whole + count
        return whole + count <= self.limits.bytes_a_day

    def _attempt(self, address: str, now: float) -> bool:
        most = float(self.limits.attempts)
        left, then = self._attempts.pop(address, (most, now))
        left = min(most, left + (now - then) * most / 60)
        self._attempts[address] = max(0.0, left - 1), now
        while len(self._attempts) > _ADDRESSES:
            self._attempts.popitem(last=False)
        return left >= 1
