"""Load a certificate that was rotated while a party runs: peers receive the endorsement first."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Protocol

from securevfl_net.identity import CertificateSeries
from securevfl_net.identity.certificate import format_time
from securevfl_net.link_state import LinkState

from securevfl.errors import InputError, ProtocolError
from securevfl.run.events import RunEvents

__all__ = ["Renewable", "renew_certificates"]

_LOOK = 5.0
"""Seconds between two checks for a newer certificate."""


class Renewable(Protocol):
    """A mesh whose certificate can be replaced, as `NetworkMesh`."""

    def link_states(self) -> Mapping[str, LinkState]:
        """State of the connections."""

    async def send_endorsement(self, endorsement: bytes) -> None:
        """Give it to all peers; it returns once all have it."""

    def renew_certificate(self) -> None:
        """Present the newest certificate."""


async def renew_certificates(row: CertificateSeries, mesh: Renewable, news: RunEvents, *, look: float = 0.0) -> None:
    """Load newer certificates until cancelled. An endorsement travels over established connections, so it waits until
    all peers are connected, and the certificate is not shown before all have the endorsement: a peer without it refuses
    the new certificate.

    Args:
        row: the party's certificates.
        mesh: the party's.
        news: receives the renewals.
        look: seconds between two checks; five unless given.
    """
    while True:
        await asyncio.sleep(look or _LOOK)
        try:
            found = row.find_next()
            if found is None or not all(link.connected for link in mesh.link_states().values()):
                continue
            newest, endorsement = found
            if endorsement:
                await mesh.send_endorsement(endorsement)
            row.record_use(newest)  # before it is shown: a process that starts again must not show the one before
            mesh.renew_certificate()
        except (InputError, OSError) as error:
            news.report_event("rotated", f"the new certificate cannot be used: {error}")
            continue
        except ProtocolError:  # the gate is gone: the party's runner reports it
            return
        until = format_time(newest.not_after)
        news.report_event("rotated", f"{newest.certificate_file} is now in use, valid until {until}")
