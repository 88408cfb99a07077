"""Load a certificate that was rotated while a party runs: peers receive the endorsement first."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Protocol

from securevfl_net.identity import CertificateSeries, Identity
from securevfl_net.identity.certificate import format_time
from securevfl_net.link_state import LinkState

from securevfl.errors import InputError, ProtocolError
from securevfl.run.events import RunEvents

__all__ = ["Renewable", "renew_certificates"]

_LOOK = 5.0
"""Seconds between two checks for a newer certificate."""
_PATIENCE = 60.0
"""Seconds after which a party says that a newer certificate waits for its peers."""


class Renewable(Protocol):
    """A mesh whose certificate can be replaced, as `NetworkMesh`."""

    def link_states(self) -> Mapping[str, LinkState]:
        """State of the connections."""

    async def send_endorsement(self, endorsement: bytes) -> None:
        """Give it to all peers; it returns once all have it."""

    def renew_certificate(self) -> None:
        """Present the newest certificate."""


async def renew_certificates(
    row: CertificateSeries, mesh: Renewable, news: RunEvents, *, look: float = 0.0, patience: float = _PATIENCE
) -> None:
    """Load newer certificates until cancelled. An endorsement travels over established connections, so it waits until
    all peers are connected, and the certificate is not shown before all have the endorsement: a peer without it refuses
    the new certificate. A peer that never takes it keeps the old one in use, which is said once.

    Args:
        row: the party's certificates.
        mesh: the party's.
        news: receives the renewals.
        look: seconds between two checks; five unless given.
        patience: seconds after which it says that a certificate waits.
    """
    wait = _Wait(row, mesh, news, patience)
    while True:
        await asyncio.sleep(look or _LOOK)
        try:
            found = row.find_next()
            if found is None:
                continue
            newest, endorsement = found
            wait.begin(newest)
            if not all(link.connected for link in mesh.link_states().values()):
                wait.tell_if_due()
                continue
            if endorsement:
                await wait.send(endorsement)
            row.record_use(newest)  # before it is shown: a process that starts again must not show the one before
            mesh.renew_certificate()
        except (InputError, OSError) as error:
            news.report_event("rotated", f"the new certificate cannot be used: {error}")
            continue
        except ProtocolError:  # the gate is gone: the party's runner reports it
            return
        until = format_time(newest.not_after)
        news.report_event("rotated", f"{newest.certificate_file} is now in use, valid until {until}")


class _Wait:
    """How long a newer certificate has waited for the peers; says so once for each."""

    def __init__(self, row: CertificateSeries, mesh: Renewable, news: RunEvents, patience: float) -> None:
        self._row, self._mesh, self._news, self._patience = row, mesh, news, patience
        self._newest: Identity | None = None
        self._due = 0.0
        self._told = False

    def begin(self, newest: Identity) -> None:
        """A newer certificate is there, perhaps since some time."""
        if newest != self._newest:
            self._newest, self._due, self._told = newest, time.monotonic() + self._patience, False

    async def send(self, endorsement: bytes) -> None:
        """Give all peers the endorsement; see `Renewable.send_endorsement`."""
        sending = asyncio.ensure_future(self._mesh.send_endorsement(endorsement))
        try:
            await asyncio.wait({sending}, timeout=max(0.0, self._due - time.monotonic()))
            if not sending.done():
                self._tell()
            await sending
        finally:
            sending.cancel()

    def tell_if_due(self) -> None:
        """Say that the certificate waits, if it has for long."""
        if time.monotonic() >= self._due:
            self._tell()

    def _tell(self) -> None:
        if self._told or self._newest is None:
            return
        self._told = True
        away = sorted(peer for peer, link in self._mesh.link_states().items() if not link.connected)
        whose = f"{', '.join(away)} is not connected" if away else "a peer has not stored its endorsement: see its log"
        until = format_time(self._row.shown.not_after)
        words = f"{self._newest.certificate_file} is not in use yet: {whose}. The one before ends on {until}"
        self._news.report_event("rotated", words)
