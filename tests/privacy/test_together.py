"""Work at once: the first error ends the others and is raised, and what else failed is told beside it."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from securevfl.errors import PeerEnded, ProtocolError
from securevfl.party import program
from securevfl.privacy import gather


async def _waits(ended: list[str], error: BaseException | None = None) -> None:
    try:
        await asyncio.Event().wait()
    finally:
        ended.append("ended")
        if error is not None:
            raise error


async def _fails() -> None:
    raise ProtocolError("the first")


def test_the_first_error_ends_the_others_before_it_is_raised() -> None:
    ended: list[str] = []
    others = (_waits(ended), _waits(ended, PeerEnded("follows")), _waits(ended, ValueError("a cause of its own")))
    with pytest.raises(ProtocolError, match="the first") as raised:
        asyncio.run(gather(*others, _fails()))
    assert ended == ["ended"] * 3
    assert raised.value.__notes__ == ["besides: ValueError: a cause of its own"]


class _Full:
    def close(self, outcome: str) -> None:
        raise OSError(28, "No space left on device")


@pytest.mark.parametrize("fails", [True, False])
def test_a_ledger_that_cannot_be_closed_does_not_hide_why_the_party_ended(fails: bool) -> None:
    closed: list[str] = []
    site: Any = SimpleNamespace(ledger=_Full(), links={}, others=[], close=lambda: closed.append("links"))
    site.peers = site.names = site.linked = ()
    with pytest.MonkeyPatch.context() as patch:

        async def done(_: object) -> None:
            return None

        patch.setattr(program, "exchange_ledger_heads", done)
        with pytest.raises(ProtocolError if fails else OSError) as raised:
            asyncio.run(program.run_and_close(site, _fails() if fails else done(site)))
    notes = ["besides, the ledger could not be closed: OSError: [Errno 28] No space left on device"]
    assert getattr(raised.value, "__notes__", []) == notes  # a run that was done says it, too
    assert closed == (["links"] if fails else [])  # peers wait for a party whose disk is full
