"""Versions of what parties say to each other, and which of them this installation speaks.

An agreement names numbers, and an installation accepts those between its oldest and its newest. So a party can install
a new release without a new agreement, as long as the release still speaks the agreement's numbers.
"""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from typing import Annotated

from msgspec import Meta
from securevfl_net.session.frames import VERSIONS as SESSION
from securevfl_net.version import VERSION as WIRE

from securevfl.config import Config
from securevfl.ledger.lines import VERSION as LEDGER

__all__ = ["PROTOCOLS", "Versions"]

Version = Annotated[int, Meta(ge=1, le=1 << 16)]

PROTOCOLS = (1, 1)
"""Oldest and newest protocol of jobs that this installation speaks: the messages that algorithms, protections and
alignment exchange, and their arithmetic.

A change that a party with the release before cannot follow makes a new newest number. The code then does what the
agreement's number says, and the number before stays for at least one minor version. An option that is added takes, in
agreements under an older protocol, a default that keeps that protocol's behaviour: see `Proposal.decode`.
"""

ADDED_OPTIONS: dict[int, frozenset[str]] = {}
"""Protocol → options that came with it, such as ``"job.huber_delta"``: an agreement under an older one lacks them."""


class Versions(Config):
    """Versions that two parties must share to run one job.

    Attributes:
        securevfl: the package that wrote the agreement, for information.
        protocol: of jobs, see `PROTOCOLS`.
        wire: of messages.
        session: of the transport's frames.
        ledger: of the ledgers.
    """

    securevfl: Annotated[str, Meta(min_length=1, max_length=64)]
    protocol: Version
    wire: Version
    session: Version
    ledger: Version

    @classmethod
    def section_path(cls) -> str:
        return "versions"

    @classmethod
    def read_installed(cls) -> Versions:
        """Newest versions of this installation."""
        try:
            package = version("securevfl")
        except PackageNotFoundError:  # a source tree that nobody installed
            package = "unknown"
        return cls(securevfl=package, **{name: newest for name, (_, newest) in _spoken_versions().items()})

    @property
    def later_options(self) -> frozenset[str]:
        """Options of newer protocols that this installation speaks, which an agreement under this one lacks."""
        return frozenset().union(*(added for number, added in ADDED_OPTIONS.items() if number > self.protocol))

    def describe_differences(self) -> list[str]:
        """Describe which of these versions, an agreement's, this installation does not speak."""
        found = []
        for name, (oldest, newest) in _spoken_versions().items():
            wanted = getattr(self, name)
            if not oldest <= wanted <= newest:
                here = f"{newest}" if oldest == newest else f"{oldest} to {newest}"
                cure = "install a newer securevfl" if wanted > newest else "install the securevfl of that time"
                found.append(f"{name} is {here} here and {wanted} in the agreement: {cure}")
        return found


def _spoken_versions() -> dict[str, tuple[int, int]]:
    """Name of a version → oldest and newest that this installation speaks."""
    return {"protocol": PROTOCOLS, "wire": (WIRE, WIRE), "session": SESSION, "ledger": (LEDGER, LEDGER)}
