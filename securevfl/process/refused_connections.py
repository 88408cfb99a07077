"""Refused connections in a party's ledger: which peer was refused or refused this party, the named reason, and how
often.

A port scan may call thousands of times. So the first refusal of a kind is written at once where a chain is open, and
then the tenth, the hundredth and so on; what is left is written when the party's process ends.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

from securevfl.errors import DiskFull
from securevfl.ledger import CONNECTIONS, REFUSED
from securevfl.privacy import Ledger
from securevfl.process.chains import Chains
from securevfl.run.events import RunEvents
from securevfl.transport import Scalar

__all__ = ["NOTE", "Refusals"]

NOTE = REFUSED

_MOST = 64
"""Most kinds of refusals counted separately; all others count as one."""


@dataclass
class _Kind:
    words: str
    times: int = 0
    told: int = 0


class Refusals(RunEvents):
    """Receives refused connections and records them.

    Args:
        chains: of the party.
        starts: how often its process was started.
    """

    def __init__(self, chains: Chains, starts: int) -> None:
        self._chains = chains
        self._starts = starts
        self._kinds: dict[tuple[str, str], _Kind] = {}

    def report_event(self, what: str, words: str, **values: Scalar) -> None:
        if what != "refused":
            return
        key = str(values.get("peer", "")), str(values.get("code", ""))
        if key not in self._kinds and len(self._kinds) >= _MOST:
            key, words = ("", "other"), f"more than {_MOST} kinds of refusals"
        kind = self._kinds.setdefault(key, _Kind(words))
        kind.times += 1
        ledger = self._chains.own.current_ledger
        # Peers have attested the chain once it has sent its head: what is refused from then on belongs to a later one.
        if ledger is not None and not ledger.is_attested and kind.times >= 10 * kind.told:
            self._record_refusals(ledger, key, kind)

    def write_to(self, ledger: Ledger) -> None:
        """Record what no chain contains yet."""
        for key, kind in self._kinds.items():
            if kind.times > kind.told:
                self._record_refusals(ledger, key, kind)

    def record_rest(self) -> None:
        """At the end of the process: record the rest in a separate chain. On a full disk it is lost, as with a kill."""
        if any(kind.times > kind.told for kind in self._kinds.values()):
            with suppress(DiskFull):
                chain = self._chains.open_separate(f"{CONNECTIONS} {self._starts}")
                self.write_to(chain)
                chain.close()

    def _record_refusals(self, ledger: Ledger, key: tuple[str, str], kind: _Kind) -> None:
        peer, code = key
        ledger.record_note(NOTE, {"peer": peer, "code": code, "words": kind.words, "times": kind.times - kind.told})
        kind.told = kind.times
