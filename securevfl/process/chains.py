"""A party's ledger chains over several attempts and processes, one after another in its file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from securevfl.errors import ProtocolError
from securevfl.ledger import Readmission, chains_of, file_of, read_lines
from securevfl.party.reports import View
from securevfl.privacy import Ledger, OpensLedgers, OwnLedgers, PrivateKey
from securevfl.run.run_files import OWN_RESULT, RESULTS
from securevfl.transport import Scalar

__all__ = ["Chains"]


class _SignedHead(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    run: Annotated[str, Meta(max_length=256)]
    head: Annotated[str, Meta(max_length=128)]
    messages: Annotated[int, Meta(ge=0, lt=1 << 53)]
    signature: Annotated[str, Meta(max_length=256)]


class Chains:
    """Opens the chains of one party.

    Args:
        party: whose.
        key: signs them.
        folder: of the file.
        software: name and version of what keeps them.
        pins: party → its public key, hexadecimal, as the agreement names it.
        stopped, readmitted: see `OwnLedgers`.

    Attributes:
        own: the party's file.
    """

    def __init__(
        self,
        party: str,
        key: PrivateKey,
        folder: Path,
        software: str,
        pins: Mapping[str, str],
        *,
        stopped: bool = False,
        readmitted: Sequence[Readmission] = (),
    ) -> None:
        self._party = party
        self._key = key
        self._path = file_of(party, folder)
        self.own = OwnLedgers(
            party,
            key,
            self._path,
            software=software,
            later=[RESULTS],
            pins=pins,
            stopped=stopped,
            readmitted=readmitted,
        )

    def run_name(self, attempt: int) -> str:
        """Name of an attempt's chain."""
        return "train" if attempt == 1 else f"train {attempt}"

    def attempt_ledgers(self, view: View) -> OpensLedgers:
        """Return the function that opens an attempt's ledgers."""
        epoch, step = (0, 0) if view.start is None else view.start[:2]
        return self.own.attempt_opener(view.attempt, view.mark.hex(), epoch=epoch, step=step)

    def signed_head(self) -> bytes:
        """The party's signed ledger head for a note to all peers; empty before it has met any."""
        ledger = self.own.current_ledger
        if ledger is None or not ledger.peers or ledger.is_attested:
            return b""
        return msgspec.msgpack.encode(_SignedHead(ledger.run, **self.own.sign_head(ledger)))  # type: ignore[arg-type]

    def store_head(self, peer: str, payload: bytes) -> None:
        """Write a peer's ledger head into the chain of the same run; heads of another run came too late and are
        dropped.

        Raises:
            ProtocolError: it is not a ledger head, or is not signed with the key that the peer introduced itself with.
        """
        try:
            word = msgspec.msgpack.decode(payload, type=_SignedHead)
        except (msgspec.MsgspecError, UnicodeError) as error:
            raise ProtocolError(f"{peer!r} sent no valid ledger head: {error}") from None
        ledger = self.own.current_ledger
        if ledger is not None and ledger.run == word.run and peer in ledger.peers:
            said: dict[str, Scalar] = {"head": word.head, "messages": word.messages, "signature": word.signature}
            self.own.record_head(ledger, peer, said)

    def sign(self, kind: str, content: bytes) -> str:
        """Sign content of a type with the party's key."""
        return self._key.sign(kind, content)

    def open_separate(self, run: str) -> Ledger:
        """A chain that belongs to no attempt, after the last one."""
        return self.own.open(self._party, run=run, job="")

    @property
    def are_results_bound(self) -> bool:
        """Whether the chain that names the party's own results follows the last attempt in the file."""
        chains, _ = chains_of(read_lines(self._path), str(self._path)) if self._path.exists() else ([], [])
        after = takewhile(lambda chain: not chain.attempt, reversed(chains))
        return any(chain.run == RESULTS and chain.is_closed for chain in after)

    def bind_results(self, digests: Mapping[str, str]) -> None:
        """Write the chain that names the party's own results.

        Args:
            digests: file of the party's own report → SHA-256, hexadecimal.
        """
        chain = self.open_separate(RESULTS)
        for name, digest in sorted(digests.items()):
            chain.record_note(OWN_RESULT, {"name": name, "sha256": digest})
        chain.close()
