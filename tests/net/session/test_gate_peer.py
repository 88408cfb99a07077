"""What a gate knows of one peer: what it tells the program, and when it calls."""

from __future__ import annotations

import pytest
from net.session.ends import pair
from securevfl_net.gate.frames import Outbox
from securevfl_net.gate.peer import GatePeer
from securevfl_net.gate.settings import Timing


def test_a_peer_that_makes_up_reasons_fills_neither_memory_nor_ledger() -> None:
    outbox = Outbox()
    peer = GatePeer(0, pair().ends[0], outbox, Timing(), calls=False)
    for number in range(10_000):
        peer.report_refusal(f"reason-{number}", "words", ours=False)
    assert outbox.urgent < 16 * 200
    peer.report_refusal("reason-0", "words", ours=False)
    assert outbox.urgent < 16 * 200


@pytest.mark.parametrize("recalls", [False, True])
def test_a_peer_that_left_is_called_again_where_it_may_come_back(recalls: bool) -> None:
    peer = GatePeer(0, pair().ends[0], Outbox(), Timing(), calls=True, recalls=recalls)
    assert peer.is_call_due(1.0)
    peer.left = True
    assert peer.may_call is peer.is_call_due(1.0) is recalls
    peer.aborted = True
    assert not peer.may_call
