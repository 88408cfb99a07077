"""When refusals by peers end a process."""

from __future__ import annotations

import pytest
from securevfl_net import exit_codes
from securevfl_net.errors import exit_code_of

from securevfl.errors import PeerRefused
from securevfl.party import superseded
from securevfl.party.superseded import SupersededWatch
from securevfl.transport import ConnectionRefused

REVOKED = "it rejects this party's certificate as revoked"


def watch(words: str, monkeypatch: pytest.MonkeyPatch) -> SupersededWatch:
    """A watch long after a peer was refused, or refused."""
    monkeypatch.setattr(superseded, "_TWO_PROCESSES", -1.0)
    found = SupersededWatch("shop1")
    found.take_refusal(ConnectionRefused("bank", "revoked", words))
    return found


def test_a_party_whose_certificate_is_revoked_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    found = watch(f"the peer refuses: {REVOKED}", monkeypatch)
    assert found.is_waiting
    with pytest.raises(PeerRefused, match=r"'bank' refuses this party: .* revoked") as ended:
        found.check()
    assert exit_code_of(ended.value) == exit_codes.REFUSED


def test_who_refuses_a_revoked_peer_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    found = watch("the authority revoked the certificate", monkeypatch)
    assert not found.is_waiting
    found.check()


def test_a_list_that_was_mended_ends_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    found = watch(f"the peer refuses: {REVOKED}", monkeypatch)
    found.take_arrival("bank")
    found.check()
