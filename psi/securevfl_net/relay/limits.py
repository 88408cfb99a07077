"""A relay's limits per customer, per address and in total."""

from __future__ import annotations

from collections import Counter, OrderedDict
from dataclasses import dataclass

__all__ = ["Allowance", "Limits"]

_ADDRESSES = 4096
"""Maximum addresses whose rate is tracked; the one idle longest is dropped first."""
_DAY = 86_400.0


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Limits of a relay. Its memory is at most `connections` times about 150 kB.

    Attributes:
        connections: simultaneous connections in total.
        per_address: simultaneous connections per IPv4 address or IPv6 /64 network.
        per_customer: simultaneous connections per token.
        attempts: new connections per minute and address.
        bytes_a_day: bytes forwarded per token and day, counted at the sender.
        bytes_a_second: bytes forwarded per second, per connection and direction.
        introduction: seconds to finish the introduction.
        waiting: seconds to wait for the other party.
        idle: seconds without a byte in either direction after which a pair is closed.
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


class Allowance:
    """Counts usage against the limits. The caller passes times, in seconds of a monotonic clock.

    Args:
        limits: the relay's limits.
    """

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.connections = 0
        self._addresses: Counter[str] = Counter()
        self._customers: Counter[str] = Counter()
        self._attempts: OrderedDict[str, tuple[float, float]] = OrderedDict()  # address → attempts left, as of when
        self._bytes: dict[str, tuple[float, int]] = {}  # customer → since when, bytes

    def admit_address(self, address: str, now: float) -> bool:
        """Return True if an address may open one more connection, and count it until `release_address`."""
        if not self._allow_attempt(address, now) or self.connections >= self.limits.connections:
            return False
        if self._addresses[address] >= self.limits.per_address:
            return False
        self.connections += 1
        self._addresses[address] += 1
        return True

    def release_address(self, address: str) -> None:
        """Remove a connection counted by `admit_address`."""
        self.connections -= 1
        self._addresses[address] -= 1
        if not self._addresses[address]:
            del self._addresses[address]

    def admit_connection(self, customer: str) -> bool:
        """Return True if one more connection of a token may wait or be paired, and count it until `give_back`."""
        if self._customers[customer] >= self.limits.per_customer:
            return False
        self._customers[customer] += 1
        return True

    def give_back(self, customer: str) -> None:
        """Remove a connection counted by `admit_connection`."""
        self._customers[customer] -= 1
        if not self._customers[customer]:
            del self._customers[customer]

    def count_bytes(self, customer: str, count: int, now: float) -> bool:
        """Count a customer's bytes; return True if it may continue."""
        since, whole = self._bytes.get(customer, (now, 0))
        if now - since >= _DAY:
            since, whole = now, 0
        self._bytes[customer] = since, whole + count
        return whole + count <= self.limits.bytes_a_day

    def _allow_attempt(self, address: str, now: float) -> bool:
        most = float(self.limits.attempts)
        left, then = self._attempts.pop(address, (most, now))
        left = min(most, left + (now - then) * most / 60)
        self._attempts[address] = max(0.0, left - 1), now
        while len(self._attempts) > _ADDRESSES:
            self._attempts.popitem(last=False)
        return left >= 1
