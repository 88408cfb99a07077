"""Each reason to refuse a peer is told by name on both sides, whichever of them refuses."""

from __future__ import annotations

from datetime import timedelta

import pytest
from identity_parties import Side, World, by, meet, pinned

from securevfl.identity import Accepted, Code, PeerBook, Refusal


def _refused(client: Side, server: Side, code: Code, here: str, there: str, *, by_client: bool = False) -> None:
    """One side refuses with the words `here`, and the other one hears the words `there`."""
    results = meet(client, server)
    refuser, refused = results if by_client else results[::-1]
    assert isinstance(refuser, Refusal), refuser
    assert isinstance(refused, Refusal), refused
    assert (refuser.code, refuser.by, refused.code, refused.by) == (code, "here", code, "peer"), (refuser, refused)
    assert here in str(refuser)
    assert there in str(refused)
    assert str(refused).startswith("the peer refuses: ")
    assert str(refused).endswith(f"({code})")


@pytest.mark.parametrize("kind", ["p256", "ed25519"])
@pytest.mark.parametrize("means", ["pin", "authority", "mixed"])
def test_parties_that_know_each_other_let_each_other_in(world: World, means: str, kind: str) -> None:
    ca = world.authority()
    bank = world.own("bank", kind=kind) if means != "authority" else world.issued(ca, "bank")
    shop = world.own("shop", kind=kind) if means == "pin" else world.issued(ca, "shop")
    banks = PeerBook("bank", {"shop": pinned(shop) if means == "pin" else by(ca)})
    shops = PeerBook("shop", {"bank": by(ca) if means == "authority" else pinned(bank)})
    client, server = meet(Side(shop, shops, "bank"), Side(bank, banks))
    assert isinstance(client, Accepted), client
    assert isinstance(server, Accepted), server
    assert (client.party, server.party) == ("bank", "shop")
    assert client.certificate == bank.certificate
    assert abs(client.clock_ahead) < timedelta(minutes=1)
