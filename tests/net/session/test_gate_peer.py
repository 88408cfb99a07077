"""What a hostile peer can make its party's gate tell the program."""

from __future__ import annotations

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
