"""Read what is left of a party's bounds: of certificates, the agreement, its result book and its disk."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Callable
from contextlib import suppress

from securevfl_net.identity import CertificateSeries

from securevfl.agreement import Agreement, PartyFile, peer_book
from securevfl.errors import InputError
from securevfl.privacy import ResultBook
from securevfl.process.state_folder import StateFolder
from securevfl.run.events import BoundsLeft

__all__ = ["BoundsReader", "tell_bounds"]

_LOOK = 60.0
"""Seconds from one reading to the next."""


class BoundsReader:
    """Reads what is left, from the party's own files.

    Args:
        agreement: with its bounds and the parties' certificates.
        own: the party's file.
        row: the party's certificates.
        state: its folder, locked by this process.
        results: its result book, as this process has it open.
    """

    def __init__(
        self, agreement: Agreement, own: PartyFile, row: CertificateSeries, state: StateFolder, results: ResultBook
    ) -> None:
        self._agreement = agreement
        self._own = own
        self._row = row
        self._state = state
        self._results = results

    def read(self) -> BoundsLeft:
        """What is left now.

        Raises:
            InputError: a file is damaged.
            OSError: a file cannot be read.
        """
        own, limits = self._own, self._agreement.proposal.limits
        book = peer_book(self._agreement, own, store=self._state.path / "endorsements.json")
        ends = {own.party: self._row.shown.certificate.not_after, **book.certificate_ends()}
        budget = own.budget
        begun = max((one.number for one in self._state.attempts), default=0)
        disk = shutil.disk_usage(self._state.path)
        return BoundsLeft(
            certificates={party: end.timestamp() for party, end in ends.items()},
            lists={party: end.timestamp() for party, end in book.list_ends().items()},
            agreement=limits.expiry_time.timestamp(),
            attempts=max(min(limits.attempts, budget.attempts or limits.attempts) - begun, 0),
            seconds=max(min(limits.seconds, budget.seconds or limits.seconds) - self._state.seconds_used, 0.0),
            epsilon=self._largest_epsilon(),
            results=self._results_left(),
            metric_sets=self._metric_sets(),
            disk=(disk.free, disk.total),
        )

    def _largest_epsilon(self) -> float | None:
        own = self._own
        card = self._agreement.proposal.card_of(own.party)
        bounds = [card.epsilon, own.policy.max_epsilon, own.budget.epsilon]
        return min((bound for bound in bounds if bound is not None), default=None)

    def _askers(self) -> dict[str, str]:
        """The parties that are answered about this party's rows → their organisations."""
        own = self._own
        if own.data is None or self._results.path is None or not self._results.path.exists():
            return {}
        owners = [name for name in self._agreement.proposal.owner_names if name != own.party]
        return {name: own.organisations.get(name, name) for name in owners}

    def _results_left(self) -> dict[str, int]:
        bound, found = self._own.policy.allowed_numbers(0), {}
        for party, asker in self._askers().items() if bound is not None else ():
            allowed = (bound or 0) + self._results.granted(asker, time.time())
            found[party] = max(allowed - int(self._results.count_people(asker).max(initial=0)), 0)
        return found

    def _metric_sets(self) -> dict[str, int]:
        return {party: self._results.metric_sets(asker) for party, asker in self._askers().items()}


async def tell_bounds(reader: BoundsReader, tell: Callable[[BoundsLeft], None], *, look: float = _LOOK) -> None:
    """Tell what is left, at once and then every `look` seconds, until cancelled. A file that cannot be read for a while
    is left to those who need it.

    Args:
        reader: reads it.
        tell: receives it.
        look: seconds.
    """
    while True:
        with suppress(InputError, OSError):
            tell(reader.read())
        await asyncio.sleep(look)
