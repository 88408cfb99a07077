"""Whoever stands between two computing parties, and shows each of them a certificate in the other's name, cannot put
keys of its own in the place of theirs: it would draw all three summands of every value."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from securevfl_crypto.ring import Exchange
from support.helpers import make_parties

import securevfl as sv
from securevfl.data import Parties
from securevfl.privacy import Ledger, PrivateKey
from securevfl.shares.wire import _SIGNED, LinkWire
from securevfl.transport import Message
from securevfl.transport.memory import MemoryChannel

_Meddles = Callable[[Message], Message]


@pytest.fixture(scope="module")
def people() -> Parties:
    return make_parties(2, 90)


def _own_key(message: Message) -> Message:
    """The key of whoever stands in between, under the signature of the other."""
    mine = np.frombuffer(Exchange("nobody").public_key, np.uint8)
    return replace(message, arrays={**message.arrays, "0": mine})


def _own_signature(message: Message) -> Message:
    """And signed by it, as far as it can."""
    found = _own_key(message)
    return replace(found, meta={**found.meta, "signature": PrivateKey.generate().sign("a", b"key")})


def _no_signature(message: Message) -> Message:
    return replace(message, meta={name: value for name, value in message.meta.items() if name != "signature"})


class _Anothers:
    """The first key that comes by, with its signature, in the name of all."""

    def __init__(self) -> None:
        self.first: Message | None = None

    def __call__(self, message: Message) -> Message:
        self.first = self.first or message
        return self.first


@pytest.mark.parametrize("meddles", [_own_key, _own_signature, _no_signature, _Anothers()])
def test_keys_that_are_replaced_on_the_way_are_refused(
    people: Parties, meddles: _Meddles, monkeypatch: pytest.MonkeyPatch
) -> None:
    send, keys = MemoryChannel.send, list[bytes]()

    async def replaced(channel: MemoryChannel, message: Message) -> int:
        if message.what == "shares/key":
            keys.append(np.asarray(message.arrays["0"]).tobytes())
            message = meddles(message)
        return await send(channel, message)

    monkeypatch.setattr(MemoryChannel, "send", replaced)
    job = sv.Job(algorithm=sv.SplitNN(hidden=4, top=()), protection=sv.Shares(), epochs=1, batch_size=32)
    with pytest.raises(sv.ProtocolError, match=r"is not signed by '?.*: .* somebody may be between the two") as caught:
        sv.simulate(job, people)
    assert keys
    assert not any(e.kind.value == "secret share" for ledger in caught.value.ledgers for e in ledger.iter_entries())


def test_a_party_that_introduces_itself_with_another_key_than_the_agreements_is_refused() -> None:
    bank, shop, other = (PrivateKey.generate() for _ in range(3))
    ledger = Ledger("bank", run="train", job="00", key=bank, pins={"shop": shop.public_key.hex})

    def said(key: PrivateKey) -> dict[str, tuple[str, dict[str, Any]]]:
        theirs = Ledger("shop", run="train", job="00", key=key)
        return {"shop": ("passive", theirs.introduction)}

    ledger.record_peers(said(shop))
    with pytest.raises(sv.ProtocolError, match="somebody may be impersonating it"):
        ledger.record_peers(said(other))


def test_a_signed_key_is_good_for_one_run_and_one_sender_among_the_same_three() -> None:
    """A key that was recorded in another run, and whose secret half somebody has by now, is nobody's in this one."""
    key, own, names = PrivateKey.generate(), np.arange(32, dtype=np.uint8), ("bank", "shop", "post")

    def place(party: str, run: str, job: str = "00") -> LinkWire:
        ledger = Ledger(party, run=run, job=job, key=key)
        others = {name: ("passive", ledger.introduction) for name in names if name != party}
        ledger.record_peers(others)
        return LinkWire(names, SimpleNamespace(name=party, job=job, ledger=ledger, links={}))  # type: ignore[arg-type]

    def accepts(sent: bytes, at: LinkWire, sender: str = "bank") -> bool:
        signature = place("bank", "train")._site.ledger.sign_for_peers(_SIGNED, sent)
        try:
            at._site.ledger.check_vouched(sender, _SIGNED, at._key_content(sender, own), signature)
        except sv.ProtocolError:
            return False
        return True

    sent = place("bank", "train")._key_content("bank", own)
    assert accepts(sent, place("shop", "train"))
    assert not accepts(sent, place("shop", "predict"))
    assert not accepts(sent, place("shop", "train", job="01"))
    assert not accepts(sent, place("shop", "train"), sender="post")
    assert not accepts(sent[:-1] + b"x", place("shop", "train"))
