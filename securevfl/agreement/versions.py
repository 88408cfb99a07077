"""Software versions that all parties of an agreement must run."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from typing import Annotated

from msgspec import Meta
from securevfl_net.session.frames import VERSIONS as SESSION
from securevfl_net.version import VERSION as WIRE

from securevfl.config import Config
from securevfl.ledger.lines import VERSION as LEDGER

__all__ = ["Versions"]

Version = Annotated[int, Meta(ge=1, le=1 << 16)]


class Versions(Config):
    """Versions that two parties must share to run one job.

    Attributes:
        securevfl: the package: algorithms and their arithmetic.
        wire: of messages.
        session: of the transport's frames.
        ledger: of the ledgers.
    """

    securevfl: Annotated[str, Meta(min_length=1, max_length=64)]
    wire: Version
    session: Version
    ledger: Version

    @classmethod
    def section_path(cls) -> str:
        return "versions"

    @classmethod
    def read_installed(cls) -> Versions:
        """Versions of this installation."""
        try:
            package = version("securevfl")
        except PackageNotFoundError:  # a source tree that nobody installed
            package = "unknown"
        return cls(securevfl=package, wire=WIRE, session=SESSION[1], ledger=LEDGER)

    def describe_differences(self, other: Versions) -> list[str]:
        """Describe what differs.

        Args:
            other: of the agreement.
        """
        return [
            f"{name} is {getattr(self, name)} here and {getattr(other, name)} in the agreement"
            for name in self.__struct_fields__
            if getattr(self, name) != getattr(other, name)
        ]
